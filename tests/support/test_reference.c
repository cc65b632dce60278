/* test_reference.c: section "the operations" of the tape's design, in double, one operation after the other, nothing
 * fused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/format.h"
#include "gguf/gguf.h"
#include "test_zoo.h"

#include <cmocka.h>

static void *need(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

static double *tensor_of(const struct tape_program *p, uint32_t tensor)
{
    if (tensor == TAPE_NONE) return NULL;
    const struct tape_tensor *t = &p->tensors[tensor];
    const size_t n = (size_t)t->rows * t->cols * t->slabs;
    float *f = need(n, sizeof *f);
    double *d = need(n, sizeof *d);
    format_dequantize(t->type, f, gguf_tensor_data(p->file, t->file), n);
    for (size_t i = 0; i < n; i++) d[i] = f[i];
    free(f);
    return d;
}

struct frame {
    struct reference *r;
    const struct tape_program *p;
    const struct tape_op *op;
    const uint32_t *tokens;
    uint32_t second;
    const double *w[TAPE_IN], *in[TAPE_IN];
    uint32_t width[TAPE_IN], slots[TAPE_IN];
    double *y;
    uint32_t out_width, out_slots;
};

static void do_embed(struct frame *f)
{
    for (uint32_t t = 0; t < f->r->n; t++) {
        const uint32_t index = f->op->u.embed.index;
        const size_t row = index == WK_EMBED_TOKEN        ? f->tokens[t]
                           : index == WK_EMBED_ROW        ? f->op->u.embed.offset
                           : index == WK_EMBED_TOKEN_TYPE ? f->second && t >= f->second
                                                          : t + f->op->u.embed.offset;
        for (uint32_t i = 0; i < f->out_width; i++)
            f->y[(size_t)t * f->out_width + i] = f->w[0][row * f->out_width + i];
    }
}

static void do_vector(struct frame *f)
{
    for (uint32_t t = 0; t < f->r->n; t++)
        for (uint32_t i = 0; i < f->out_width; i++) f->y[(size_t)t * f->out_width + i] = f->w[0][i];
}

static void do_linear(struct frame *f)
{
    const bool expert = f->op->kind == WK_OP_EXPERT;
    const uint32_t k = f->width[0], n = f->out_width;
    const struct tape_tensor *t = &f->p->tensors[f->op->t[0]];
    for (uint32_t r = 0; r < f->r->n; r++)
        for (uint32_t s = 0; s < f->out_slots; s++) {
            const uint32_t e = expert ? f->r->ids[f->op->in[1]][r * f->out_slots + s] : 0;
            const double *x = f->in[0] + ((size_t)r * f->slots[0] + (f->slots[0] == 1 ? 0 : s)) * k;
            for (uint32_t j = 0; j < n; j++) {
                const double *w = f->w[0] + ((size_t)e * t->rows + f->op->u.linear.first + j) * k;
                double sum = f->w[1] ? f->w[1][expert ? (size_t)e * n + j : f->op->u.linear.first + j] : 0;
                for (uint32_t i = 0; i < k; i++) sum += w[i] * x[i];
                f->y[((size_t)r * f->out_slots + s) * n + j] = sum;
            }
        }
}

static void do_linear_heads(struct frame *f)
{
    const uint32_t heads = f->op->u.linear.slabs, k = f->width[0] / heads, n = f->out_width / heads;
    for (size_t r = 0; r < f->r->n; r++)
        for (uint32_t j = 0; j < f->out_width; j++) {
            const double *w = f->w[0] + (size_t)j * k, *x = f->in[0] + r * f->width[0] + (size_t)(j / n) * k;
            double sum = 0;
            for (uint32_t i = 0; i < k; i++) sum += w[i] * x[i];
            f->y[r * f->out_width + j] = sum;
        }
}

static void do_norm(struct frame *f)
{
    const uint32_t run = f->op->u.norm.group ? f->op->u.norm.group : f->width[0];
    const size_t runs = (size_t)f->r->n * f->slots[0] * f->width[0] / run;
    for (size_t g = 0; g < runs; g++) {
        const double *x = f->in[0] + g * run;
        double mean = 0, square = 0;
        if (f->op->u.norm.kind == WK_NORM_LAYER) {
            for (uint32_t i = 0; i < run; i++) mean += x[i];
            mean /= run;
        }
        for (uint32_t i = 0; i < run; i++) square += (x[i] - mean) * (x[i] - mean);
        const double factor = 1 / sqrt(square / run + (double)f->op->u.norm.eps);
        for (uint32_t i = 0; i < run; i++)
            f->y[g * run + i] = (x[i] - mean) * factor * (f->w[0] ? f->w[0][i] : 1) + (f->w[1] ? f->w[1][i] : 0);
    }
}

static void do_rope(struct frame *f)
{
    const uint32_t n = f->op->u.rope.n, head = f->op->u.rope.head;
    const uint32_t length = f->op->u.rope.temperature_length;
    double m = f->op->u.rope.mscale;
    for (uint32_t t = 0; t < f->r->n; t++) {
        if (length) m = f->op->u.rope.mscale * (1 + f->op->u.rope.temperature * log(1 + (double)((t + 1) / length)));
        for (uint32_t h = 0; h < f->width[0]; h += head) {
            const double *x = f->in[0] + (size_t)t * f->width[0] + h;
            double *y = f->y + (size_t)t * f->width[0] + h;
            memcpy(y, x, head * sizeof *y);
            for (uint32_t i = 0; i < n; i++) {
                const uint32_t a = f->op->u.rope.style == WK_ROPE_HALF ? i : 2 * i,
                               b = f->op->u.rope.style == WK_ROPE_HALF ? i + n : 2 * i + 1;
                const double c = cos(t * f->op->u.rope.freq[i]), s = sin(t * f->op->u.rope.freq[i]);
                y[a] = m * (x[a] * c - x[b] * s);
                y[b] = m * (x[a] * s + x[b] * c);
            }
        }
    }
}

static bool sees(const struct tape_op *o, uint32_t t, uint32_t j)
{
    const uint32_t window = o->u.attn.window, chunk = o->u.attn.chunk;
    if (j > t) return o->u.attn.flags & WK_ATTENTION_BIDIRECTIONAL && (!window || j - t < window);
    return (!window || t - j < window) && (!chunk || t / chunk == j / chunk);
}

static void attend_one(struct frame *f, uint32_t t, uint32_t h, double *score)
{
    const uint32_t heads = f->op->u.attn.heads, kv = f->op->u.attn.kv_heads, dk = f->op->u.attn.head_k,
                   dv = f->op->u.attn.head_v, g = h / (heads / kv);
    const struct tape_op *source = &f->p->ops[f->p->kv_layers[f->op->u.attn.kv_layer].op];
    const bool in_key = f->op->u.attn.value_in_key > 0;
    const double cap = f->op->u.attn.softcap, *keys = f->r->value[source->in[1]],
                 *values = in_key ? keys : f->r->value[source->in[2]];
    double top = -INFINITY, sum = 0, *y = f->y + ((size_t)t * heads + h) * dv;
    for (uint32_t j = 0; j < f->r->n; j++) {
        score[j] = -INFINITY;
        if (!sees(f->op, t, j)) continue;
        double s = 0;
        for (uint32_t d = 0; d < dk; d++)
            s += f->in[0][((size_t)t * heads + h) * dk + d] * keys[((size_t)j * kv + g) * dk + d];
        s *= f->op->u.attn.scale;
        score[j] = cap != 0 ? cap * tanh(s / cap) : s;
        if (f->op->u.attn.slopes) score[j] -= f->op->u.attn.slopes[h] * fabs((double)t - j);
        if (score[j] > top) top = score[j];
    }
    if (f->w[0] && f->w[0][h] > top) top = f->w[0][h];
    memset(y, 0, dv * sizeof *y);
    for (uint32_t j = 0; j < f->r->n; j++) {
        const double e = exp(score[j] - top);
        sum += e;
        for (uint32_t d = 0; d < dv; d++) y[d] += e * values[((size_t)j * kv + g) * (in_key ? dk : dv) + d];
    }
    if (f->w[0]) sum += exp(f->w[0][h] - top);
    for (uint32_t d = 0; d < dv; d++) y[d] /= sum;
}

static void do_attention(struct frame *f)
{
    const uint32_t heads = f->op->u.attn.heads, n = f->r->n;
    double *scores = need((size_t)n * heads * n, sizeof *scores);
    f->r->scores[f->op->out] = scores;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t h = 0; h < heads; h++) attend_one(f, t, h, scores + ((size_t)t * heads + h) * n);
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}
static double gelu_erf(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }

static double map_one(const struct tape_op *op, double x)
{
    const double p = op->u.unary.p;
    switch (op->u.unary.fn) {
    case WK_UNARY_SCALE: return p * x;
    case WK_UNARY_GELU_TANH: return gelu_tanh(x);
    case WK_UNARY_GELU_ERF: return gelu_erf(x);
    case WK_UNARY_SILU: return x / (1 + exp(-x));
    case WK_UNARY_SIGMOID: return 1 / (1 + exp(-x));
    case WK_UNARY_TANH: return tanh(x);
    case WK_UNARY_RELU: return x > 0 ? x : 0;
    case WK_UNARY_SOFTPLUS: return fmax(x, 0) + log1p(exp(-fabs(x)));
    case WK_UNARY_EXP: return exp(x);
    case WK_UNARY_SOFTCAP: return p * tanh(x / p);
    default: fail_msg("unknown map"); return 0;
    }
}

static double glu_one(const struct tape_op *op, double g, double u)
{
    const double limit = op->u.glu.limit;
    switch (op->u.glu.fn) {
    case WK_GLU_SILU: return g / (1 + exp(-g)) * u;
    case WK_GLU_GELU_TANH: return gelu_tanh(g) * u;
    case WK_GLU_GELU_ERF: return gelu_erf(g) * u;
    case WK_GLU_SILU_CLAMPED:
        g = fmin(g, limit);
        u = fmax(-limit, fmin(limit, u));
        return g / (1 + exp(-(double)op->u.glu.alpha * g)) * (u + 1);
    default: fail_msg("unknown glu"); return 0;
    }
}

static void do_each(struct frame *f)
{
    const size_t n = (size_t)f->r->n * f->out_slots * f->width[0];
    for (size_t i = 0; i < n; i++) {
        const size_t row = i / f->width[0] / f->out_slots, slot = i / f->width[0] % f->out_slots, at = i % f->width[0];
        const double a = f->in[0][(row * f->slots[0] + (f->slots[0] == 1 ? 0 : slot)) * f->width[0] + at];
        const double b = f->in[1] ? f->in[1][(row * f->slots[1] + (f->slots[1] == 1 ? 0 : slot)) * f->width[1] +
                                             at / (f->width[0] / f->width[1])]
                                  : 0;
        f->y[i] = f->op->kind == WK_OP_UNARY ? map_one(f->op, a)
                  : f->op->kind == WK_OP_GLU ? glu_one(f->op, a, b)
                  : f->op->kind == WK_OP_ADD ? a + b
                                             : a * b;
    }
}

static void do_slice(struct frame *f)
{
    const uint32_t groups = f->op->u.slice.groups, part = f->width[0] / groups, n = f->op->u.slice.n;
    for (size_t r = 0; r < (size_t)f->r->n * f->slots[0] * groups; r++)
        for (uint32_t i = 0; i < n; i++) f->y[r * n + i] = f->in[0][r * part + f->op->u.slice.first + i];
}

static void do_concat(struct frame *f)
{
    const uint32_t groups = f->op->u.concat.groups;
    double *y = f->y;
    for (size_t r = 0; r < (size_t)f->r->n * f->out_slots; r++)
        for (uint32_t g = 0; g < groups; g++)
            for (uint32_t j = 0; j < TAPE_IN && f->in[j]; j++) {
                const bool repeated = f->op->u.concat.repeated >> j & 1;
                const uint32_t n = f->width[j] / (repeated ? 1 : groups);
                for (uint32_t i = 0; i < n; i++) *y++ = f->in[j][r * f->width[j] + (repeated ? 0 : g * n) + i];
            }
}

/* The next that may be chosen: how many of n have a larger score, or the same and a lower index, is its rank. */
static uint32_t rank_of(const double *score, uint32_t n, uint32_t i)
{
    uint32_t rank = 0;
    for (uint32_t j = 0; j < n; j++) rank += score[j] > score[i] || (score[j] == score[i] && j < i);
    return rank;
}

/* Experts of groups that are not among the best drop to -infinity. */
static void keep_groups(const struct tape_op *op, double *choice, uint32_t n)
{
    const uint32_t groups = op->u.route.groups, size = groups ? n / groups : 0;
    double best[64];
    for (uint32_t g = 0; g < groups; g++) {
        best[g] = 0;
        for (uint32_t e = 0; e < size; e++)
            if (rank_of(choice + g * size, size, e) < (op->u.route.group_score == WK_GROUP_TOP2 ? 2 : 1))
                best[g] += choice[g * size + e];
    }
    for (uint32_t e = 0; groups && e < n; e++)
        if (rank_of(best, groups, e / size) >= op->u.route.groups_used) choice[e] = -INFINITY;
}

static void do_route(struct frame *f)
{
    const uint32_t n = f->width[0], k = f->op->u.route.k, score = f->op->u.route.score;
    uint32_t *all = need((size_t)f->r->n * k, sizeof *all);
    f->r->ids[f->op->out] = all;
    for (uint32_t t = 0; t < f->r->n; t++) {
        const double *r = f->in[0] + (size_t)t * n;
        double *y = f->y + (size_t)t * k, whole = 0, sum = 0, p[64], choice[64];
        assert_true(n <= 64);
        for (uint32_t e = 0; e < n; e++) whole += exp(r[e]);
        for (uint32_t e = 0; e < n; e++) {
            p[e] = score == WK_SCORE_SIGMOID ? 1 / (1 + exp(-r[e])) : exp(r[e]) / whole;
            choice[e] = p[e] + (f->w[0] ? f->w[0][e] : 0);
        }
        keep_groups(f->op, choice, n);
        for (uint32_t e = 0; e < n; e++)
            if (rank_of(choice, n, e) < k) all[t * k + rank_of(choice, n, e)] = e;
        for (uint32_t s = 0; s < k; s++) sum += p[all[t * k + s]];
        if (score != WK_SCORE_SOFTMAX_TOPK && !(f->op->u.route.flags & WK_ROUTE_NORMALIZE)) sum = 1;
        for (uint32_t s = 0; s < k; s++) y[s] = p[all[t * k + s]] / sum * (double)f->op->u.route.scale;
    }
}

static void do_combine(struct frame *f)
{
    for (uint32_t t = 0; t < f->r->n; t++)
        for (uint32_t i = 0; i < f->width[0]; i++) {
            double sum = 0;
            for (uint32_t s = 0; s < f->slots[0]; s++)
                sum += (f->in[1] ? f->in[1][(size_t)t * f->slots[0] + s] : 1) *
                       f->in[0][((size_t)t * f->slots[0] + s) * f->width[0] + i];
            f->y[(size_t)t * f->width[0] + i] = sum;
        }
}

static void do_pool(struct frame *f)
{
    for (uint32_t i = 0; i < f->width[0]; i++) {
        f->y[i] = 0;
        for (uint32_t t = 0; t < f->r->n; t++) f->y[i] += f->in[0][(size_t)t * f->width[0] + i] / f->r->n;
    }
}

static void do_output(struct frame *f)
{
    if (f->op->u.output.what != WK_OUTPUT_EMBEDDING) return;
    double square = 0;
    for (uint32_t i = 0; i < f->width[0]; i++) square += f->in[0][i] * f->in[0][i];
    f->r->embedding = need(f->width[0], sizeof(double));
    for (uint32_t i = 0; i < f->width[0]; i++)
        f->r->embedding[i] = f->in[0][i] / (f->op->u.output.flags & WK_OUTPUT_L2_NORM ? sqrt(square) : 1);
}

/* The plugin's own function, on the rows rounded to F32. */
static void do_custom(struct frame *f)
{
    for (uint32_t t = 0; t < f->r->n; t++) {
        float *x[TAPE_IN] = { NULL }, *w[TAPE_IN] = { NULL }, *y = need(f->out_width, sizeof *y);
        const float *in[TAPE_IN] = { NULL };
        uint32_t n = 0, n_w = 0;
        for (; n_w < TAPE_IN && f->w[n_w]; n_w++) {
            const struct tape_tensor *q = &f->p->tensors[f->op->t[n_w]];
            w[n_w] = need((size_t)q->rows * q->cols, sizeof **w);
            for (size_t i = 0; i < (size_t)q->rows * q->cols; i++) w[n_w][i] = (float)f->w[n_w][i];
        }
        for (; n < TAPE_IN && f->in[n]; n++) {
            x[n] = need(f->width[n], sizeof **x);
            for (uint32_t i = 0; i < f->width[n]; i++) x[n][i] = (float)f->in[n][(size_t)t * f->width[n] + i];
            in[n] = x[n];
        }
        const struct wk_custom_call call = {
            sizeof call, 1, n, f->out_width, in, f->width, &t, f->op->u.custom.params, y, (const float *const *)w,
            n_w,         0
        };
        f->op->u.custom.def->cpu(&call);
        for (uint32_t i = 0; i < f->out_width; i++) f->y[(size_t)t * f->out_width + i] = y[i];
        for (uint32_t i = 0; i < n; i++) free(x[i]);
        for (uint32_t i = 0; i < n_w; i++) free(w[i]);
        free(y);
    }
}

static void do_conv(struct frame *f)
{
    const uint32_t width = f->width[0], kernel = f->op->u.state.kernel;
    for (uint32_t t = 0; t < f->r->n; t++)
        for (uint32_t c = 0; c < width; c++) {
            double sum = f->w[1] ? f->w[1][c] : 0;
            for (uint32_t i = 0; i < kernel; i++)
                if (t + i + 1 >= kernel)
                    sum += f->w[0][(size_t)c * kernel + i] * f->in[0][(size_t)(t + i + 1 - kernel) * width + c];
            f->y[(size_t)t * width + c] = sum;
        }
}

static void do_state(struct frame *f)
{
    const uint32_t heads = f->op->u.state.heads, dk = f->op->u.state.head_k, dv = f->op->u.state.head_v,
                   share = f->op->u.state.groups ? heads / f->op->u.state.groups : 0;
    if (f->op->u.state.kind == WK_STATE_CONV) {
        do_conv(f);
        return;
    }
    double *all = need((size_t)heads * dv * dk, sizeof *all);
    for (uint32_t t = 0; t < f->r->n; t++)
        for (uint32_t h = 0; h < heads; h++) {
            const double *q = f->in[0] + (size_t)t * f->width[0] + (size_t)(h / share) * dk,
                         *k = f->in[1] + (size_t)t * f->width[1] + (size_t)(h / share) * dk,
                         *v = f->in[2] + ((size_t)t * heads + h) * dv, decay = exp(f->in[3][(size_t)t * heads + h]);
            for (uint32_t c = 0; c < dv; c++) {
                double *s = all + ((size_t)h * dv + c) * dk, told = 0, u = v[c], y = 0;
                for (uint32_t i = 0; i < dk; i++) s[i] *= decay;
                for (uint32_t i = 0; i < dk; i++) told += s[i] * k[i];
                if (f->op->u.state.kind == WK_STATE_DELTA) u = f->in[4][(size_t)t * heads + h] * (v[c] - told);
                for (uint32_t i = 0; i < dk; i++) s[i] += u * k[i];
                for (uint32_t i = 0; i < dk; i++) y += s[i] * q[i];
                f->y[((size_t)t * heads + h) * dv + c] = y;
            }
        }
    free(all);
}

void reference_run(struct reference *r, const struct tape_program *p, const uint32_t *tokens, uint32_t n,
                   uint32_t second)
{
    static void (*const run[WK_OP_END])(struct frame *) = { [WK_OP_EMBED] = do_embed,
                                                            [WK_OP_LINEAR] = do_linear,
                                                            [WK_OP_NORM] = do_norm,
                                                            [WK_OP_ROPE] = do_rope,
                                                            [WK_OP_ATTENTION] = do_attention,
                                                            [WK_OP_UNARY] = do_each,
                                                            [WK_OP_GLU] = do_each,
                                                            [WK_OP_ADD] = do_each,
                                                            [WK_OP_MUL] = do_each,
                                                            [WK_OP_SLICE] = do_slice,
                                                            [WK_OP_CONCAT] = do_concat,
                                                            [WK_OP_VECTOR] = do_vector,
                                                            [WK_OP_ROUTE] = do_route,
                                                            [WK_OP_EXPERT] = do_linear,
                                                            [WK_OP_LINEAR_HEADS] = do_linear_heads,
                                                            [WK_OP_COMBINE] = do_combine,
                                                            [WK_OP_POOL] = do_pool,
                                                            [WK_OP_OUTPUT] = do_output,
                                                            [WK_OP_CUSTOM] = do_custom,
                                                            [WK_OP_STATE] = do_state };
    *r = (struct reference){ .n = n,
                             .value = need(p->n_values, sizeof *r->value),
                             .ids = need(p->n_values, sizeof *r->ids),
                             .scores = need(p->n_values, sizeof *r->scores),
                             .n_values = p->n_values };
    struct reference pooled = *r; /* the same values, of one row each */
    pooled.n = 1;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *op = &p->ops[i];
        struct frame f = { .r = op->in[0] != TAPE_NONE && p->values[op->in[0]].pooled ? &pooled : r,
                           .p = p,
                           .op = op,
                           .tokens = tokens,
                           .second = second };
        double *w[TAPE_IN];
        for (uint32_t j = 0; j < TAPE_IN; j++) f.w[j] = w[j] = tensor_of(p, f.op->t[j]);
        for (uint32_t j = 0; j < TAPE_IN; j++) {
            if (f.op->in[j] == TAPE_NONE) continue;
            f.in[j] = r->value[f.op->in[j]];
            f.width[j] = p->values[f.op->in[j]].width;
            f.slots[j] = p->values[f.op->in[j]].slots;
        }
        if (f.op->out != TAPE_NONE) {
            f.out_width = p->values[f.op->out].width;
            f.out_slots = p->values[f.op->out].slots;
            f.y = r->value[f.op->out] = need((size_t)n * f.out_width * f.out_slots, sizeof *f.y);
        }
        run[f.op->kind](&f);
        for (uint32_t j = 0; j < TAPE_IN; j++) free(w[j]);
    }
    r->embedding = pooled.embedding;
}

void reference_free(struct reference *r)
{
    for (uint32_t i = 0; i < r->n_values; i++) {
        free(r->value[i]);
        free(r->ids[i]);
        free(r->scores[i]);
    }
    free(r->value);
    free(r->ids);
    free(r->scores);
    free(r->embedding);
}
