/* test_rows.cu: norms, conversions, element-wise launches, embeddings and operations alone: values against float64,
 * orders of summation against the same orders on the host bit by bit, at odd widths, with poison in and around what is
 * written. */
#include <worker/cuda/part/act.cuh>

#include "device/cuda/kernels.h"
#include "device/cuda/test_device.cuh"

static const uint32_t widths[] = { 1,   3,   4,   15,   16,   17,   31,   32,    33,    64,
                                   100, 130, 896, 1001, 4096, 5000, 9000, 16384, 16386, 22016 };
enum { WIDTHS = sizeof widths / sizeof *widths };
static const uint32_t row_counts[] = { 1, 2, 7 },
                      convert_counts[] = { 1, 3, 130 }; /* 130: more blocks than a launch of few has */
enum { COUNTS = sizeof row_counts / sizeof *row_counts };

static void close_to(double got, double expected, double relative, double absolute, const char *what, uint32_t width,
                     uint32_t r, uint32_t i)
{
    if (isinf(expected) && got == expected) return;
    if (!(fabs(got - expected) <= fabs(expected) * relative + absolute))
        fail_msg("%s, width %u, row %u, value %u: %.9g, expected %.9g", what, width, r, i, got, expected);
}

/* ---- the written orders, on the host ------------------------------------------------------------------- */

/* Lanes paired at distance 1, 2, 4, ...: n a power of two, at most 32. */
static float tree(const float *x, uint32_t n)
{
    float s[32];
    memcpy(s, x, n * sizeof *s);
    for (uint32_t d = 1; d < n; d <<= 1) {
        float next[32];
        for (uint32_t i = 0; i < n; i++) next[i] = s[i] + s[i ^ d];
        memcpy(s, next, n * sizeof *s);
    }
    return s[0];
}
static float run16(const float *x, uint32_t left, bool squares)
{
    float v[16];
    for (uint32_t i = 0; i < 16; i++) v[i] = i < left ? (squares ? x[i] * x[i] : x[i]) : 0.0f;
    return tree(v, 16);
}
static float row_sum(const float *x, uint32_t width, bool squares)
{
    float lane[32] = { 0 };
    for (uint32_t i = 0; i * 16 < width; i++) lane[i % 32] += run16(x + i * 16, width - i * 16, squares);
    return tree(lane, 32);
}
static float inverse_root(float sum, uint32_t n, float eps)
{
    return (float)(1.0 / sqrt((double)(sum / (float)n + eps)));
}

static void check_part(const float *part, const float *y, uint32_t width)
{
    for (uint32_t i = 0; i * 16 < width; i++) {
        const float expected = run16(y + i * 16, width - i * 16, true);
        if (part[i] != expected) fail_msg("width %u: partial %u is %.9g, expected %.9g", width, i, part[i], expected);
    }
}
/* An act from the F32 row that it was made of. */
static void check_act(const uint16_t *act, const float *y, uint32_t width, uint32_t shift)
{
    const uint32_t k = wk_act_k(width);
    for (uint32_t i = 0; i < k; i++) {
        const float s = i < width ? ldexpf(y[i], -(int)shift) : 0.0f;
        const uint16_t expected = half_bits(s > 65504 ? 65504 : s < -65504 ? -65504 : s);
        if (act[i] != expected && !(isnan(s) && isnan(half_value(act[i]))))
            fail_msg("width %u: act %u is %04x, expected %04x", width, i, act[i], expected);
    }
}
static void untouched(const float *row, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        if (!isnan(row[i])) fail_msg("value %u past the row's end was written", i);
}

/* One thread a value and four values a thread: the same sums. */
static __global__ void both_sums(const float *x, float *one, float *four)
{
    const float v = x[threadIdx.x];
    const float s = wk_square_sum16(v);
    if (threadIdx.x % 16 == 0) one[threadIdx.x / 16] = s;
    const uint32_t first = (threadIdx.x & 31u) * 4;
    const float4 q = make_float4(x[first], x[first + 1], x[first + 2], x[first + 3]);
    const float s4 = wk_square_sum16(q);
    if (threadIdx.x < 32 && threadIdx.x % 4 == 0) four[threadIdx.x / 4] = s4;
}
static void test_sums(void **state)
{
    (void)state;
    array<float> x = make_noise(128, 5), one = make<float>(8), four = make<float>(8);
    both_sums<<<1, 128>>>(x.device, one.device, four.device);
    receive(&one);
    receive(&four);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(one.host[i] == four.host[i]);
        assert_true(one.host[i] == run16(x.host + i * 16, 16, true));
    }
    drop(&x);
    drop(&one);
    drop(&four);
}

/* ---- convert ------------------------------------------------------------------------------------------- */

struct convert_case {
    uint32_t rows, width, stride, norm, shift;
    bool weights, bias, parts, index, act;
};

/* Norms against float64 and against the written order; the act against the F32 row of the same launch. */
static void convert_one(const struct convert_case *c)
{
    const uint32_t k = wk_act_k(c->width), n16 = (c->width + 15) / 16, stored = c->rows + 2;
    const float eps = 1e-5f;
    array<float> x = make_noise((size_t)stored * c->stride, 4), w = make_noise(c->width, 2),
                 b = make_noise(c->width, 2), part = make<float>((size_t)stored * n16);
    array<float> y = make<float>((size_t)c->rows * c->stride);
    array<uint16_t> act = make<uint16_t>((size_t)c->rows * k);
    array<uint32_t> index = make<uint32_t>(c->rows);
    for (uint32_t r = 0; r < c->rows; r++) index.host[r] = (r * 5 + 1) % stored;
    for (uint32_t r = 0; r < stored; r++)
        for (uint32_t i = 0; i < n16; i++)
            part.host[r * n16 + i] = run16(x.host + (size_t)r * c->stride + i * 16, c->width - i * 16, true);
    send(&index);
    send(&part);
    struct cuda_convert call = {};
    call.rows = c->rows;
    call.width = c->width;
    call.norm = c->norm;
    call.eps = eps;
    call.shift = c->shift;
    call.x = { x.device, c->stride, c->index ? index.device : NULL };
    call.part = c->parts ? part.device : NULL;
    call.w = c->weights ? w.device : NULL;
    call.b = c->bias ? b.device : NULL;
    call.act = c->act ? act.device : NULL;
    call.y = y.device;
    call.y_stride = c->stride;
    LAUNCH(cuda_convert(&call, NULL, &error_text));
    receive(&y);
    receive(&act);
    for (uint32_t r = 0; r < c->rows; r++) {
        const float *v = x.host + (size_t)(c->index ? index.host[r] : r) * c->stride,
                    *got = y.host + (size_t)r * c->stride;
        double mean = 0, squares = 0;
        for (uint32_t i = 0; i < c->width; i++) mean += v[i];
        mean = c->norm == CUDA_NORM_LAYER ? mean / c->width : 0;
        for (uint32_t i = 0; i < c->width; i++) squares += (v[i] - mean) * (v[i] - mean);
        const double scale = c->norm ? 1 / sqrt(squares / c->width + (double)eps) : 1;
        const float exact = inverse_root(row_sum(v, c->width, true), c->width, eps);
        for (uint32_t i = 0; i < c->width; i++) {
            const double wi = c->weights ? w.host[i] : 1, bi = c->bias ? b.host[i] : 0,
                         expected = (v[i] - mean) * scale * wi + bi;
            close_to(got[i], expected, 1e-6, 2e-6 * (fabs(wi) * (1 + fabs(mean) * scale) + fabs(bi)), "convert",
                     c->width, r, i);
            if (c->norm == CUDA_NORM_RMS && !c->bias && got[i] != v[i] * exact * (float)wi)
                fail_msg("width %u: RMS value %u is %.9g, in the written order %.9g", c->width, i, got[i],
                         v[i] * exact * (float)wi);
        }
        untouched(got, c->width, c->stride);
        if (c->act) check_act(act.host + (size_t)r * k, got, c->width, c->shift);
    }
    drop(&x);
    drop(&w);
    drop(&b);
    drop(&part);
    drop(&y);
    drop(&act);
    drop(&index);
}

static void test_convert(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WIDTHS; i++)
        for (uint32_t j = 0; j < COUNTS; j++)
            for (uint32_t norm = 0; norm <= CUDA_NORM_LAYER; norm++)
                for (uint32_t form = 0; form < 4; form++) {
                    const uint32_t n = widths[i];
                    const bool weights = norm && form != 1, bias = norm == CUDA_NORM_LAYER && form != 2;
                    if (convert_counts[j] > 3 && (n > 10000 || form & 1)) continue;
                    const struct convert_case c = { convert_counts[j],
                                                    n,
                                                    form & 1 ? n + 1 : (n + 15) / 16 * 16,
                                                    norm,
                                                    form == 3 ? 4u : 0u,
                                                    weights,
                                                    bias,
                                                    (form & 2) != 0,
                                                    form == 2,
                                                    form != 1 };
                    convert_one(&c);
                }
}

/* Values that f16 cannot hold. */
static void test_extremes(void **state)
{
    (void)state;
    static const float values[] = { 65504, 65519, 65520, 1e9f,    -1e9f,  INFINITY, -INFINITY, NAN,
                                    0,     -0.0f, 6e-8f, 2.9e-8f, 1e-30f, 1048064,  1048320,   -3e38f };
    array<float> x = make<float>(16);
    array<uint16_t> act = make<uint16_t>(32);
    memcpy(x.host, values, sizeof values);
    send(&x);
    for (uint32_t shift = 0; shift <= 4; shift += 4) {
        struct cuda_convert call = {};
        call.rows = 1;
        call.width = 16;
        call.shift = shift;
        call.x = { x.device, 16, NULL };
        call.act = act.device;
        LAUNCH(cuda_convert(&call, NULL, &error_text));
        receive(&act);
        check_act(act.host, values, 16, shift);
    }
    drop(&x);
    drop(&act);
}

/* ---- finish -------------------------------------------------------------------------------------------- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double gelu_tanh(double x) { return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x))); }
static double gelu_erf(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752); }
static double map_exact(uint32_t fn, double x, double p)
{
    switch (fn) {
    case WK_UNARY_SCALE: return x * p;
    case WK_UNARY_GELU_TANH: return gelu_tanh(x);
    case WK_UNARY_GELU_ERF: return gelu_erf(x);
    case WK_UNARY_SILU: return x * sigmoid(x);
    case WK_UNARY_SIGMOID: return sigmoid(x);
    case WK_UNARY_TANH: return tanh(x);
    case WK_UNARY_RELU: return x > 0 ? x : 0;
    case WK_UNARY_SOFTCAP: return p * tanh(x / p);
    case WK_UNARY_SOFTPLUS: return fmax(x, 0.0) + log1p(exp(-fabs(x)));
    case WK_UNARY_EXP: return exp(x);
    default: return x;
    }
}
static double glu_exact(uint32_t fn, double g, double u, double alpha, double limit)
{
    switch (fn) {
    case WK_GLU_SILU: return g * sigmoid(g) * u;
    case WK_GLU_GELU_TANH: return gelu_tanh(g) * u;
    case WK_GLU_GELU_ERF: return gelu_erf(g) * u;
    case WK_GLU_SILU_CLAMPED:
        g = fmin(g, limit);
        u = fmax(-limit, fmin(u, limit));
        return g * sigmoid(alpha * g) * (u + 1);
    default: return g;
    }
}

/* Of the power in a function's lower tail, by which the rounding of its argument grows; 0 where the argument is not
 * rounded. */
static double exponent(uint32_t map, uint32_t glu, double x)
{
    if (x > 0) return 0;
    if (map == WK_UNARY_GELU_TANH || glu == WK_GLU_GELU_TANH) return fabs(1.6 * x + 0.0715 * x * x * x);
    if (map == WK_UNARY_GELU_ERF || glu == WK_GLU_GELU_ERF) return x * x;
    return glu == WK_GLU_SILU_CLAMPED ? fabs(1.702 * x) : 0;
}

/* The functions by themselves, over a range that reaches the tails. */
static void test_functions(void **state)
{
    (void)state;
    enum { N = 40000 };
    array<float> x = make<float>(N), u = make_noise(N, 10), y = make<float>(N);
    for (uint32_t i = 0; i < N; i++)
        x.host[i] =
            i < N / 2 ? 24.0f * ((float)i / (N / 4) - 1.0f) : noise(1) * ldexpf(1, (int)(next_noise() % 20) - 14);
    send(&x);
    for (uint32_t fn = 1; fn < WK_UNARY_END + WK_GLU_END - 1; fn++) {
        const bool map = fn < WK_UNARY_END;
        const uint32_t glu = map ? 0 : fn - WK_UNARY_END + 1;
        struct cuda_finish f = {};
        f.rows = 1;
        f.width = N;
        f.x = x.device;
        f.u = map ? NULL : u.device;
        f.glu = glu;
        f.alpha = 1.702f;
        f.limit = 7.0f;
        if (map) f.map[0].fn = fn, f.map[0].p = 30.0f;
        f.out.y = y.device;
        poison(&y);
        LAUNCH(cuda_finish(&f, NULL, &error_text));
        receive(&y);
        for (uint32_t i = 0; i < N; i++) {
            const double v = x.host[i],
                         expected = map ? map_exact(fn, v, 30.0) : glu_exact(glu, v, u.host[i], 1.702f, 7.0);
            close_to(y.host[i], expected, 5e-7 + 1.5e-7 * exponent(fn, glu, v), 1e-34, map ? "map" : "glu", fn, 0, i);
        }
    }
    /* A NaN stays one, whatever the limits. */
    for (uint32_t i = 0; i < N; i++) x.host[i] = NAN;
    send(&x);
    for (uint32_t fn = 1; fn < WK_UNARY_END + WK_GLU_END - 1; fn++) {
        struct cuda_finish f = {};
        f.rows = 1;
        f.width = 7;
        f.x = x.device;
        f.u = fn < WK_UNARY_END ? NULL : u.device;
        f.glu = fn < WK_UNARY_END ? 0 : fn - WK_UNARY_END + 1;
        f.limit = 7;
        if (fn < WK_UNARY_END) f.map[0].fn = fn, f.map[0].p = 1;
        f.out.y = y.device;
        CUDA_OK(cudaMemset(y.device, 0, 28));
        LAUNCH(cuda_finish(&f, NULL, &error_text));
        receive(&y);
        for (uint32_t i = 0; i < 7; i++) assert_true(isnan(y.host[i]));
    }
    drop(&x);
    drop(&u);
    drop(&y);
}

struct finish_case {
    uint32_t rows, width, stride, glu, maps, form;
}; /* form bits: 1 bias, 2 residual, 4 act, 8 in place */

static void finish_one(const struct finish_case *c)
{
    const uint32_t k = wk_act_k(c->width), n16 = (c->width + 15) / 16;
    const bool bias = c->form & 1, residual = c->form & 2, to_act = c->form & 4, in_place = (c->form & 8) && !to_act;
    const size_t n = (size_t)c->rows * c->stride;
    array<float> x = make_noise(n, 3), u = make_noise(n, 3), y = make<float>(n), b = make_noise(c->width, 1),
                 ub = make_noise(c->width, 1), res = make_noise(n, 2);
    array<float> part = make<float>((size_t)c->rows * n16);
    array<uint16_t> act = make<uint16_t>((size_t)c->rows * k);
    struct cuda_finish f = {};
    f.rows = c->rows;
    f.width = c->width;
    f.x = x.device;
    f.x_stride = f.u_stride = c->stride;
    f.u = c->glu ? u.device : NULL;
    f.bias = bias ? b.device : NULL;
    f.u_bias = bias && c->glu ? ub.device : NULL;
    f.glu = c->glu;
    f.alpha = 1.5f;
    f.limit = 2;
    for (uint32_t m = 0; m < c->maps; m++)
        f.map[m].fn = m ? WK_UNARY_SCALE : WK_UNARY_SOFTCAP, f.map[m].p = m ? 0.5f : 2.0f;
    if (residual) f.residual = { res.device, c->stride, NULL };
    f.out.kind = to_act ? WK_CUDA_OUT_ACT : WK_CUDA_OUT_F32;
    f.out.shift = to_act ? 4 : 0;
    f.out.y = to_act ? (void *)act.device : in_place ? x.device : y.device;
    f.out.aux = to_act ? NULL : part.device;
    f.out.y_stride = c->stride;
    float *kept = (float *)malloc(n * sizeof *kept);
    memcpy(kept, x.host, n * sizeof *kept);
    LAUNCH(cuda_finish(&f, NULL, &error_text));
    receive(in_place ? &x : &y);
    receive(&act);
    receive(&part);
    for (uint32_t r = 0; r < c->rows; r++) {
        float *row = (in_place ? x.host : y.host) + (size_t)r * c->stride;
        for (uint32_t i = 0; i < c->width; i++) {
            const size_t at = (size_t)r * c->stride + i;
            double v = kept[at] + (bias ? (double)b.host[i] : 0);
            if (c->glu) v = glu_exact(c->glu, v, u.host[at] + (bias ? (double)ub.host[i] : 0), 1.5, 2);
            for (uint32_t m = 0; m < c->maps; m++) v = map_exact(f.map[m].fn, v, f.map[m].p);
            if (residual) v += res.host[at];
            if (to_act)
                close_to(half_value(act.host[(size_t)r * k + i]) * 16.0, v, 6e-4, 3e-6, "finish to act", c->width, r,
                         i);
            else
                close_to(row[i], v, 1e-6, 2e-6, "finish", c->width, r, i);
        }
        if (to_act) {
            float *back = (float *)malloc(c->width * sizeof *back);
            for (uint32_t i = 0; i < c->width; i++) back[i] = ldexpf(half_value(act.host[(size_t)r * k + i]), 4);
            check_act(act.host + (size_t)r * k, back, c->width, 4);
            free(back);
        } else {
            check_part(part.host + (size_t)r * n16, row, c->width);
            if (!in_place) untouched(row, c->width, c->stride);
        }
    }
    free(kept);
    drop(&x);
    drop(&u);
    drop(&y);
    drop(&b);
    drop(&ub);
    drop(&res);
    drop(&part);
    drop(&act);
}

static void test_finish(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WIDTHS; i++)
        for (uint32_t glu = 0; glu < WK_GLU_END; glu++)
            for (uint32_t form = 0; form < 16; form++) {
                const uint32_t n = widths[i];
                if (n > 4096 && form % 5) continue;
                const struct finish_case c = {
                    row_counts[form % COUNTS], n, form & 1 ? n + 3 : (n + 15) / 16 * 16, glu, glu ? 0 : form % 3, form
                };
                finish_one(&c);
            }
}

/* ---- operations alone ---------------------------------------------------------------------------------- */

struct alone_case {
    struct tape_op op;
    uint32_t rows, width, slots, x_width[2], x_slots1;
    bool residual, part;
};

struct alone_run {
    array<float> x[2], y, part, w, b, rope_table, residual;
    uint32_t x_stride[2], y_stride;
};

static struct alone_run alone_go(const struct alone_case *c)
{
    struct alone_run g = {};
    const uint32_t items = c->rows * c->slots, pairs = c->op.kind == WK_OP_ROPE ? c->op.u.rope.n : 1;
    struct cuda_alone a = {};
    g.y_stride = (c->width + 15) / 16 * 16;
    for (uint32_t j = 0; j < 2; j++) {
        g.x_stride[j] = (c->x_width[j] + 15) / 16 * 16;
        g.x[j] = make_noise((size_t)items * (g.x_stride[j] + 16), 3);
        a.x[j] = { g.x[j].device, g.x_stride[j], NULL };
        a.x_width[j] = c->x_width[j];
        a.x_slots[j] = j ? c->x_slots1 : c->slots;
    }
    g.y = make<float>((size_t)items * g.y_stride);
    g.part = make<float>((size_t)items * ((c->width + 15) / 16));
    g.residual = make_noise((size_t)items * g.y_stride, 2);
    g.w = make_noise(c->width, 2);
    g.b = make_noise(c->width, 2);
    g.rope_table = make<float>((size_t)c->rows * pairs * 2);
    for (size_t i = 0; i < (size_t)c->rows * pairs; i++) {
        const double angle = noise(100);
        g.rope_table.host[2 * i] = (float)cos(angle);
        g.rope_table.host[2 * i + 1] = (float)sin(angle);
    }
    send(&g.rope_table);
    a.op = &c->op;
    a.rows = items;
    a.width = c->width;
    a.slots = c->slots;
    a.w = g.w.device;
    a.b = c->op.kind == WK_OP_NORM && c->op.u.norm.kind == WK_NORM_LAYER ? g.b.device : NULL;
    a.rope_table = g.rope_table.device;
    if (c->residual) a.residual = { g.residual.device, g.y_stride, NULL };
    a.y = g.y.device;
    a.y_stride = g.y_stride;
    a.part = c->part ? g.part.device : NULL;
    LAUNCH(cuda_alone(&a, NULL, &error_text));
    receive(&g.y);
    receive(&g.part);
    return g;
}
static void alone_drop(struct alone_run *g)
{
    drop(&g->x[0]);
    drop(&g->x[1]);
    drop(&g->y);
    drop(&g->part);
    drop(&g->w);
    drop(&g->b);
    drop(&g->rope_table);
    drop(&g->residual);
}

/* What the operation gives for value i of an item, in float64, and the size of what is subtracted on the way. */
static double alone_exact(const struct alone_case *c, const struct alone_run *g, uint32_t item, uint32_t i,
                          double *size)
{
    const struct tape_op *op = &c->op;
    const float *x = g->x[0].host + (size_t)item * g->x_stride[0],
                *z = g->x[1].host + (size_t)(c->x_slots1 == 1 ? item / c->slots : item) * g->x_stride[1];
    switch (op->kind) {
    case WK_OP_UNARY: return map_exact(op->u.unary.fn, x[i], op->u.unary.p);
    case WK_OP_GLU: return glu_exact(op->u.glu.fn, x[i], z[i], op->u.glu.alpha, op->u.glu.limit);
    case WK_OP_ADD: return (double)x[i] + z[i];
    case WK_OP_MUL: return (double)x[i] * z[c->x_width[1] == 1 ? 0 : i];
    case WK_OP_SLICE: return x[op->u.slice.first + i];
    case WK_OP_ROPE: {
        const uint32_t j = i % op->u.rope.head, n = op->u.rope.n, halves = op->u.rope.style == WK_ROPE_HALF;
        const uint32_t pair = halves ? j % n : j / 2;
        const float *h = x + i - j, *t = g->rope_table.host + ((size_t)(item / c->slots) * n + pair) * 2;
        if (j >= 2 * n) return x[i];
        const double p = halves ? h[pair] : h[2 * pair], q = halves ? h[pair + n] : h[2 * pair + 1];
        return (halves ? j >= n : j % 2) ? p * t[1] + q * t[0] : p * t[0] - q * t[1];
    }
    default: {
        const uint32_t group = op->u.norm.group ? op->u.norm.group : c->width;
        const float *v = x + i / group * group;
        double mean = 0, squares = 0;
        for (uint32_t j = 0; j < group; j++) mean += v[j];
        mean = op->u.norm.kind == WK_NORM_LAYER ? mean / group : 0;
        for (uint32_t j = 0; j < group; j++) squares += (v[j] - mean) * (v[j] - mean);
        *size = fabs(mean) / sqrt(squares / group + op->u.norm.eps) * fabs(g->w.host[i % group]);
        return (x[i] - mean) / sqrt(squares / group + op->u.norm.eps) * g->w.host[i % group] +
               (op->u.norm.kind == WK_NORM_LAYER ? (double)g->b.host[i % group] : 0);
    }
    }
}

static void alone_one(const struct alone_case *c)
{
    struct alone_run g = alone_go(c);
    for (uint32_t item = 0; item < c->rows * c->slots; item++) {
        const float *y = g.y.host + (size_t)item * g.y_stride;
        for (uint32_t i = 0; i < c->width; i++) {
            double size = 1;
            const double expected = alone_exact(c, &g, item, i, &size) +
                                    (c->residual ? (double)g.residual.host[(size_t)item * g.y_stride + i] : 0);
            close_to(y[i], expected, 1e-6, 3e-6 + 4e-7 * size, "an operation alone", c->width, item, i);
        }
        untouched(y, c->width, g.y_stride);
        if (c->part) check_part(g.part.host + (size_t)item * ((c->width + 15) / 16), y, c->width);
    }
    alone_drop(&g);
}

static struct alone_case alone_case_of(uint16_t kind, uint32_t rows, uint32_t width)
{
    struct alone_case c = {};
    c.op.kind = kind;
    c.rows = rows;
    c.width = c.x_width[0] = c.x_width[1] = width;
    c.slots = c.x_slots1 = 1;
    c.part = true;
    return c;
}

static void test_alone(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WIDTHS; i++)
        for (uint32_t j = 0; j < COUNTS; j++)
            for (uint32_t residual = 0; residual < 2; residual++) {
                static const uint16_t kinds[] = {
                    WK_OP_UNARY, WK_OP_GLU, WK_OP_ADD, WK_OP_MUL, WK_OP_SLICE, WK_OP_NORM
                };
                for (uint32_t q = 0; q < sizeof kinds / sizeof *kinds; q++) {
                    struct alone_case c = alone_case_of(kinds[q], row_counts[j], widths[i]);
                    c.residual = residual;
                    switch (kinds[q]) {
                    case WK_OP_UNARY: c.op.u.unary.fn = WK_UNARY_GELU_TANH; break;
                    case WK_OP_GLU: c.op.u.glu.fn = WK_GLU_GELU_ERF; break;
                    case WK_OP_MUL:
                        if (residual) c.x_width[1] = 1;
                        c.slots = 3;
                        c.x_slots1 = j ? 3 : 1;
                        break;
                    case WK_OP_SLICE:
                        c.x_width[0] = widths[i] + 5;
                        c.op.u.slice.first = j * 2;
                        break;
                    case WK_OP_NORM:
                        c.op.u.norm.kind = residual ? WK_NORM_RMS : WK_NORM_LAYER;
                        c.op.u.norm.eps = 1e-5f;
                        break;
                    default: break;
                    }
                    alone_one(&c);
                }
            }
}

static void test_heads(void **state)
{
    (void)state;
    static const uint32_t heads[] = { 2, 6, 33, 64, 80, 128, 256 };
    for (uint32_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (uint32_t j = 0; j < COUNTS; j++)
            for (uint32_t form = 0; form < 2; form++) {
                struct alone_case c = alone_case_of(WK_OP_NORM, row_counts[j], heads[i] * 5);
                c.op.u.norm.group = heads[i];
                c.op.u.norm.kind = form ? WK_NORM_LAYER : WK_NORM_RMS;
                c.op.u.norm.eps = 1e-6f;
                c.part = false;
                alone_one(&c);
                c = alone_case_of(WK_OP_ROPE, row_counts[j], heads[i] * 5);
                c.op.u.rope.head = heads[i];
                c.op.u.rope.style = form ? WK_ROPE_HALF : WK_ROPE_INTERLEAVED;
                c.op.u.rope.n = j ? heads[i] / 2 : (heads[i] + 3) / 4;
                c.slots = j == 1 ? 2 : 1;
                alone_one(&c);
            }
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

/* A row's bits alone and among others, whether its partials were given or not. */
static void test_neighbours(void **state)
{
    (void)state;
    enum { ROWS = 130 };
    static const uint32_t sizes[] = { 77, 896, 4096, 6000, 20000 };
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t norm = CUDA_NORM_RMS; norm <= CUDA_NORM_LAYER; norm++) {
            const uint32_t n = sizes[i], k = wk_act_k(n), stride = (n + 15) / 16 * 16, n16 = (n + 15) / 16;
            array<float> x = make_noise((size_t)ROWS * stride, 3), w = make_noise(n, 2),
                         part = make<float>((size_t)ROWS * n16), copy = make<float>((size_t)ROWS * stride);
            array<uint16_t> act[2] = { make<uint16_t>((size_t)ROWS * k), make<uint16_t>((size_t)ROWS * k) };
            struct cuda_finish f = {};
            f.rows = ROWS;
            f.width = n;
            f.x = x.device;
            f.x_stride = stride;
            f.out.y = copy.device;
            f.out.y_stride = stride;
            f.out.aux = part.device;
            LAUNCH(cuda_finish(&f, NULL, &error_text));
            struct cuda_convert c = {};
            c.rows = ROWS;
            c.width = n;
            c.norm = norm;
            c.eps = 1e-6f;
            c.x = { x.device, stride, NULL };
            c.w = w.device;
            c.act = act[0].device;
            LAUNCH(cuda_convert(&c, NULL, &error_text));
            for (uint32_t r = 0; r < ROWS; r += c.rows) {
                c.rows = r + 1 < ROWS - r ? r + 1 : ROWS - r; /* 1, 2, 4 to 64, and the rest */
                c.pdl = true;
                c.x.x = x.device + (size_t)r * stride;
                c.part = norm == CUDA_NORM_RMS ? part.device + (size_t)r * n16 : NULL;
                c.act = act[1].device + (size_t)r * k;
                LAUNCH(cuda_convert(&c, NULL, &error_text));
            }
            for (uint32_t j = 0; j < 2; j++) receive(&act[j]);
            assert_memory_equal(act[0].host, act[1].host, (size_t)ROWS * k * 2);
            array<uint16_t> runs = make<uint16_t>((size_t)(ROWS + 31) / 32 * 32 * k);
            c.rows = ROWS;
            c.x.x = x.device;
            c.part = norm == CUDA_NORM_RMS ? part.device : NULL;
            c.act = runs.device;
            c.by_runs = true;
            LAUNCH(cuda_convert(&c, NULL, &error_text));
            receive(&runs);
            for (uint32_t r = 0; r < ROWS; r++)
                for (uint32_t e = 0; e < k; e += 32)
                    assert_memory_equal(runs.host + ((size_t)(r / 32 * (k / 32) + e / 32) * 32 + r % 32) * 32,
                                        act[0].host + (size_t)r * k + e, 64);
            drop(&runs);
            drop(&x);
            drop(&w);
            drop(&part);
            drop(&copy);
            for (uint32_t j = 0; j < 2; j++) drop(&act[j]);
        }
}

static void test_refusals(void **state)
{
    (void)state;
    struct cuda_convert c = {};
    assert_int_equal(cuda_convert(&c, NULL, &error_text), WK_INTERNAL);
    c.rows = c.width = 1;
    assert_int_equal(cuda_convert(&c, NULL, &error_text), WK_INTERNAL);
    struct cuda_finish f = {};
    f.rows = f.width = 1;
    f.glu = WK_GLU_SILU;
    assert_int_equal(cuda_finish(&f, NULL, &error_text), WK_INTERNAL);
    f.glu = 0;
    f.map[0].fn = WK_UNARY_END;
    assert_int_equal(cuda_finish(&f, NULL, &error_text), WK_INTERNAL);
    struct tape_op op = {};
    struct cuda_alone a = {};
    op.kind = WK_OP_ATTENTION;
    a.op = &op;
    a.rows = a.width = a.slots = 1;
    assert_int_equal(cuda_alone(&a, NULL, &error_text), WK_INTERNAL);
    assert_non_null(strstr(error_memory, "no launch of its own"));
}

int main(void)
{
    const int skipped = no_gpu();
    if (skipped) return skipped;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums),     cmocka_unit_test(test_convert),
                                        cmocka_unit_test(test_extremes), cmocka_unit_test(test_functions),
                                        cmocka_unit_test(test_finish),   cmocka_unit_test(test_alone),
                                        cmocka_unit_test(test_heads),    cmocka_unit_test(test_neighbours),
                                        cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
