/* rows.c: operations that compute a row from rows of the same token: embed, norm, rope, map, glu, add, mul, slice,
 * concat, route, combine, pool, output, custom. A launch of several (embed + scale + embed, norm + add, combine + add)
 * runs them one after the other on one row; what is swallowed lives in the thread's temporary rows. One function an
 * operation, fused or alone. */
#include "device/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "plugin/call.h"

void make_rope_rows(struct executor *x, uint32_t thread)
{
    const uint32_t rows = x->step->n_rows;
    /* From the last thread down: with one row the embedding is thread 0's. */
    thread = pool_active(x->pool) - 1 - thread;
    for (uint32_t t = 0; t < x->n_rope_tables; t++) {
        const struct rope_table *table = &x->rope_tables[t];
        for (uint32_t r = share(x, rows, thread); r < share(x, rows, thread + 1); r++) {
            float *c = table->rows + (uint64_t)r * 2 * table->n, *s = c + table->n;
            double m = table->mscale;
            if (table->temperature_length)
                m *= 1 + table->temperature * log(1 + (double)((x->position[r] + 1) / table->temperature_length));
            for (uint32_t i = 0; i < table->n; i++) {
                const double angle = x->position[r] * table->freq[i];
                c[i] = (float)(m * cos(angle));
                s[i] = (float)(m * sin(angle));
            }
        }
    }
}

void norm_row(const struct executor *x, const struct tape_op *op, const float *w, const float *b, float *y,
              const float *v, uint32_t width)
{
    const uint32_t run = op->u.norm.group ? op->u.norm.group : width;
    for (uint32_t i = 0; i < width; i += run)
        x->kernels->norm(y + i, v + i, w, b, run, op->u.norm.kind, op->u.norm.eps);
}

/* ---- one operation ------------------------------------------------------------------------------------- */

struct run { /* one row of one operation */
    struct executor *x;
    struct lane *l;
    const struct stage *s;
    const struct row_op *r;
    uint32_t i; /* row of the stage */
    const float *in[TAPE_IN];
    float *y;
};

static uint32_t row_width(const struct operand *o) { return o->width * o->slots; }

static void run_embed(const struct run *u)
{
    const uint32_t row = step_row(u->x, u->s->rows, u->i);
    uint64_t at = u->r->op->u.embed.offset;
    if (u->r->op->u.embed.index == WK_EMBED_TOKEN)
        at = u->x->step->tokens[row];
    else if (u->r->op->u.embed.index == WK_EMBED_POSITION)
        at += u->x->position[row];
    else if (u->r->op->u.embed.index == WK_EMBED_TOKEN_TYPE)
        at = step_token_type(&u->x->step->seqs[u->x->seq[row]], u->x->position[row]);
    weights_row(u->x, u->r, at, u->y);
}

static void run_norm(const struct run *u)
{
    const struct operand *a = &u->r->in[0];
    for (uint32_t s = 0; s < a->slots; s++)
        norm_row(u->x, u->r->op, u->r->w, u->r->b, u->y + (uint64_t)s * a->width, u->in[0] + (uint64_t)s * a->width,
                 a->width);
}

static void run_rope(const struct run *u)
{
    const struct tape_op *op = u->r->op;
    const uint32_t n = op->u.rope.n, head = op->u.rope.head, width = row_width(&u->r->in[0]);
    const float *rope_table = u->r->rope_table + (uint64_t)step_row(u->x, u->s->rows, u->i) * 2 * n;
    for (uint32_t h = 0; h < width; h += head)
        u->x->kernels->rope(u->y + h, u->in[0] + h, rope_table, n, head, op->u.rope.style);
}

/* Each value of the second factor is for a run of the first's; the one that has a single slot is the same for every
 * slot of the other. */
static void run_mul(const struct run *u)
{
    const struct operand *a = &u->r->in[0], *b = &u->r->in[1];
    const uint32_t slots = a->slots > b->slots ? a->slots : b->slots, run = a->width / b->width;
    for (uint32_t s = 0; s < slots; s++) {
        float *y = u->y + (uint64_t)s * a->width;
        const float *v = u->in[0] + (uint64_t)(a->slots == 1 ? 0 : s) * a->width,
                    *f = u->in[1] + (uint64_t)(b->slots == 1 ? 0 : s) * b->width;
        if (run == 1)
            u->x->kernels->mul(y, v, f, a->width);
        else
            for (uint32_t i = 0; i < b->width; i++)
                u->x->kernels->scale(y + (uint64_t)i * run, v + (uint64_t)i * run, f[i], run);
    }
}

static void run_slice(const struct run *u)
{
    const struct operand *a = &u->r->in[0];
    const uint32_t n = u->r->op->u.slice.n, groups = a->slots * u->r->op->u.slice.groups, step = row_width(a) / groups;
    const float *from = u->in[0] + u->r->op->u.slice.first;
    for (uint32_t g = 0; g < groups; g++) memcpy(u->y + (uint64_t)g * n, from + (uint64_t)g * step, n * sizeof *u->y);
}

static void run_concat(const struct run *u)
{
    const struct tape_op *op = u->r->op;
    float *y = u->y;
    for (uint32_t s = 0; s < u->r->in[0].slots; s++)
        for (uint32_t g = 0; g < op->u.concat.groups; g++)
            for (uint32_t j = 0; j < TAPE_IN && op->in[j] != TAPE_NONE; j++) {
                const bool repeated = op->u.concat.repeated >> j & 1;
                const uint32_t width = u->r->in[j].width, n = repeated ? width : width / op->u.concat.groups;
                memcpy(y, u->in[j] + (uint64_t)s * width + (repeated ? 0 : (uint64_t)g * n), n * sizeof *y);
                y += n;
            }
}

/* weights[i] = e^(r[ids[i]] - top) for n ids, NULL: all; returns their sum, in order. */
static float exponentials(const struct run *u, const float *r, const uint32_t *ids, uint32_t n, float top,
                          float *weights)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) weights[i] = r[ids ? ids[i] : i];
    u->x->kernels->exp(weights, weights, top, n);
    for (uint32_t i = 0; i < n; i++) sum += weights[i];
    return sum;
}

/* A set of a route's groups, a bit each. */
static bool has(uint64_t set, uint32_t g) { return set >> g & 1; }

/* ids [k]: the largest of the scores in the groups of the set, largest first, ties to the lowest index. */
static void choose_experts(const float *score, uint32_t experts, uint32_t groups, uint64_t set, uint32_t k,
                           uint32_t *ids)
{
    const uint32_t size = experts / groups;
    for (uint32_t s = 0; s < k; s++) {
        uint32_t best = TAPE_NONE;
        for (uint32_t g = 0; g < groups; g++)
            for (uint32_t e = g * size; has(set, g) && e < (g + 1) * size; e++) {
                bool taken = false;
                for (uint32_t t = 0; t < s; t++) taken |= ids[t] == e;
                if (!taken && (best == TAPE_NONE || score[e] > score[best])) best = e;
            }
        ids[s] = best;
    }
}

/* A group's score: its largest, or the sum of its two largest; what is no number counts as the least. */
static float group_score(const float *score, uint32_t n, uint32_t how)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (score[i] > first) {
            second = first;
            first = score[i];
        } else if (score[i] > second) {
            second = score[i];
        }
    return how == WK_GROUP_TOP2 ? first + second : first;
}

/* The groups_used best groups, ties to the lowest index. */
static uint64_t choose_groups(const struct tape_op *op, const float *score, uint32_t experts)
{
    const uint32_t groups = op->u.route.groups, size = experts / groups;
    float best[TAPE_MAX_ROUTE_GROUPS];
    uint64_t set = 0;
    for (uint32_t g = 0; g < groups; g++) best[g] = group_score(score + g * size, size, op->u.route.group_score);
    for (uint32_t n = 0; n < op->u.route.groups_used; n++) {
        uint32_t top = TAPE_NONE;
        for (uint32_t g = 0; g < groups; g++)
            if (!has(set, g) && (top == TAPE_NONE || best[g] > best[top])) top = g;
        set |= 1ull << top;
    }
    return set;
}

static float largest(const float *r, const uint32_t *ids, uint32_t n)
{
    float top = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (r[ids ? ids[i] : i] > top) top = r[ids ? ids[i] : i];
    return top;
}

/* Every expert's score, and bias, in the thread's row. */
static const float *route_scores(const struct run *u, const float *r, uint32_t experts)
{
    float *score = u->l->row;
    if (u->r->op->u.route.score == WK_SCORE_SIGMOID) {
        u->x->kernels->map(score, r, experts, WK_UNARY_SIGMOID, 0);
    } else {
        const float sum = exponentials(u, r, NULL, experts, largest(r, NULL, experts), score);
        for (uint32_t e = 0; e < experts; e++) score[e] = score[e] / sum;
    }
    if (u->r->w) u->x->kernels->add(score, score, u->r->w, experts);
    return score;
}

/* Without a bias the logits stand for the scores: they have the same order, and tell apart what rounds to one score. */
static void route_choose(const struct run *u, const float *r, uint32_t experts, uint32_t *ids)
{
    const struct tape_op *op = u->r->op;
    const uint32_t groups = op->u.route.groups;
    const bool biased = u->r->w != NULL, sums = groups && op->u.route.group_score == WK_GROUP_TOP2;
    const float *score = biased || sums ? route_scores(u, r, experts) : r;
    const uint64_t set = groups ? choose_groups(op, score, experts) : 1;
    choose_experts(biased ? score : r, experts, groups ? groups : 1, set, op->u.route.k, ids);
}

/* y: k weights, then k ids, the best first. Softmax over all, divided by the sum of the chosen, is softmax over the
 * chosen. */
static void run_route(const struct run *u)
{
    const struct tape_op *op = u->r->op;
    const uint32_t k = op->u.route.k, experts = row_width(&u->r->in[0]);
    const bool normalize = op->u.route.flags & WK_ROUTE_NORMALIZE;
    const float *r = u->in[0];
    float *y = u->y, sum = 0;
    uint32_t *ids = (uint32_t *)(void *)(y + k);
    route_choose(u, r, experts, ids);
    if (op->u.route.score == WK_SCORE_SIGMOID) {
        for (uint32_t s = 0; s < k; s++) y[s] = r[ids[s]];
        u->x->kernels->map(y, y, k, WK_UNARY_SIGMOID, 0);
        for (uint32_t s = 0; s < k; s++) sum += y[s];
        if (!normalize) sum = 1;
    } else if (op->u.route.score == WK_SCORE_SOFTMAX && !normalize) {
        const float top = largest(r, NULL, experts);
        (void)exponentials(u, r, ids, k, top, y);
        sum = exponentials(u, r, NULL, experts, top, u->l->row);
    } else {
        sum = exponentials(u, r, ids, k, largest(r, ids, k), y);
    }
    for (uint32_t s = 0; s < k; s++) y[s] = y[s] / sum * op->u.route.scale;
}

/* Weights that are left out are 1. */
static void run_combine(const struct run *u)
{
    const struct operand *a = &u->r->in[0];
    const bool weighted = u->r->op->in[1] != TAPE_NONE;
    if (weighted)
        u->x->kernels->scale(u->y, u->in[0], u->in[1][0], a->width);
    else
        memcpy(u->y, u->in[0], a->width * sizeof *u->y);
    for (uint32_t s = 1; s < a->slots; s++)
        if (weighted)
            u->x->kernels->add_scaled(u->y, u->in[0] + (uint64_t)s * a->width, u->in[1][s], a->width);
        else
            u->x->kernels->add(u->y, u->y, u->in[0] + (uint64_t)s * a->width, a->width);
}

/* i is the sequence. */
static void run_pool(const struct run *u)
{
    const struct step_seq *seq = &u->x->step->seqs[u->i];
    const struct operand *a = &u->r->in[0];
    const uint32_t how = u->r->op->u.pool.how, width = row_width(a);
    if (how != WK_POOL_MEAN) {
        memcpy(u->y, a->base + (seq->row + (how == WK_POOL_LAST ? seq->n_rows - 1 : 0)) * a->stride,
               width * sizeof *u->y);
        return;
    }
    memcpy(u->y, a->base + seq->row * a->stride, width * sizeof *u->y);
    for (uint32_t r = 1; r < seq->n_rows; r++)
        u->x->kernels->add(u->y, u->y, a->base + (seq->row + r) * a->stride, width);
    u->x->kernels->scale(u->y, u->y, 1.0f / (float)seq->n_rows, width);
}

static void run_output(const struct run *u)
{
    const struct tape_op *op = u->r->op;
    const uint32_t width = row_width(&u->r->in[0]);
    if (!u->x->kernels->bounded(u->in[0], width, FLT_MAX)) fail_row(u->x, u->s->rows, u->i);
    if (op->u.output.what == WK_OUTPUT_LOGITS) {
        memcpy(u->x->step->logits + (uint64_t)u->i * width, u->in[0], width * sizeof(float));
        return;
    }
    float *y = u->x->step->pooled + (uint64_t)u->i * width, factor = 1.0f;
    if (op->u.output.flags & WK_OUTPUT_L2_NORM) {
        double sum = 0;
        for (uint32_t j = 0; j < width; j++) sum += (double)u->in[0][j] * u->in[0][j];
        if (sum > 0) factor = (float)(1.0 / sqrt(sum));
    }
    u->x->kernels->scale(y, u->in[0], factor, width);
}

static void run_custom(const struct run *u)
{
    const struct tape_op *op = u->r->op;
    uint32_t width[TAPE_IN] = { 0 }, n = 0;
    while (n < TAPE_IN && op->in[n] != TAPE_NONE) {
        width[n] = row_width(&u->r->in[n]);
        n++;
    }
    const struct tape_value *out = &u->x->program->values[op->out];
    const struct step_seq *seq =
        &u->x->step->seqs[u->s->rows == ROWS_POOLED ? u->i : 0]; /* a pooled row stands at its last row's position */
    const uint32_t row = u->s->rows == ROWS_POOLED ? seq->row + seq->n_rows - 1 : step_row(u->x, u->s->rows, u->i);
    const float *tensor[TAPE_IN] = { NULL };
    uint32_t n_tensors = 0;
    for (; n_tensors < TAPE_IN && op->t[n_tensors] != TAPE_NONE; n_tensors++)
        tensor[n_tensors] = u->x->vectors[op->t[n_tensors]];
    const struct wk_custom_call call = { .struct_size = sizeof call,
                                         .n_rows = 1,
                                         .n_in = n,
                                         .out_width = out->width * out->slots,
                                         .in = u->in,
                                         .in_width = width,
                                         .position = &u->x->position[row],
                                         .params = op->u.custom.params,
                                         .out = u->y,
                                         .tensor = tensor,
                                         .n_tensors = n_tensors };
    struct plugin_call watched;
    PLUGIN_CALL(&watched, op->u.custom.def->cpu, "custom operation");
    op->u.custom.def->cpu(&call);
    plugin_call_end(&watched);
}

static void run_op(const struct run *u)
{
    const struct cpu_kernels *k = u->x->kernels;
    const struct tape_op *op = u->r->op;
    const uint32_t n = row_width(&u->r->in[0]);
    switch (op->kind) {
    case WK_OP_EMBED: run_embed(u); break;
    case WK_OP_NORM: run_norm(u); break;
    case WK_OP_ROPE: run_rope(u); break;
    case WK_OP_UNARY: k->map(u->y, u->in[0], n, op->u.unary.fn, op->u.unary.p); break;
    case WK_OP_GLU: k->glu(u->y, u->in[0], u->in[1], n, op->u.glu.fn, op->u.glu.alpha, op->u.glu.limit); break;
    case WK_OP_ADD: k->add(u->y, u->in[0], u->in[1], n); break;
    case WK_OP_MUL: run_mul(u); break;
    case WK_OP_SLICE: run_slice(u); break;
    case WK_OP_CONCAT: run_concat(u); break;
    case WK_OP_ROUTE: run_route(u); break;
    case WK_OP_COMBINE: run_combine(u); break;
    case WK_OP_POOL: run_pool(u); break;
    case WK_OP_OUTPUT: run_output(u); break;
    case WK_OP_CUSTOM: run_custom(u); break;
    default: break; /* build_stages refuses the rest */
    }
}

void rows_one(struct executor *x, const struct stage *s, struct lane *l, uint32_t i)
{
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const struct row_op *r = &s->ops[o];
        struct run u = {
            .x = x, .l = l, .s = s, .r = r, .i = i, .y = r->out ? r->out + i * r->out_stride : l->temp[o]
        };
        for (uint32_t j = 0; j < TAPE_IN; j++)
            if (r->temp_in[j] != TAPE_NONE)
                u.in[j] = l->temp[r->temp_in[j]];
            else if (r->in[j].base && r->op->kind != WK_OP_POOL)
                u.in[j] = operand_row(x, &r->in[j], i);
        run_op(&u);
    }
}

void rows_run(struct executor *x, const struct stage *s, struct lane *l)
{
    const uint32_t rows = stage_rows(x, s->rows);
    for (uint32_t i = share(x, rows, l->index); i < share(x, rows, l->index + 1); i++) rows_one(x, s, l, i);
}
