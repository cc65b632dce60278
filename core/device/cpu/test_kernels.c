/* test_kernels.c: every kernel of every instruction set against float64, at odd lengths, with guards around what it
 * writes. */
#include "device/cpu/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <worker/cpu/act_q8.h>
#include <worker/cpu/half.h>

#include "plugin/plugin.h"

#include <cmocka.h>

enum { MOST = 400, GUARD = 32 };
static const float poison = -12345.5f;
static const uint32_t lengths[] = { 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 127, 129, 200, 257, 400 };
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static const struct cpu_kernels *table;
static uint32_t seed = 1;

static float noise(float scale)
{
    seed = seed * 1664525u + 1013904223u;
    return scale * ((float)(seed >> 8) / 8388608.0f - 1.0f);
}

/* A buffer of n floats at an odd offset with poison before and behind it. */
struct guarded {
    float memory[MOST + 2 * GUARD];
};
static float *begin(struct guarded *g)
{
    for (uint32_t i = 0; i < MOST + 2 * GUARD; i++) g->memory[i] = poison;
    return g->memory + GUARD + 1;
}
static void check_guard(const struct guarded *g, uint32_t n)
{
    for (uint32_t i = 0; i < GUARD + 1; i++) assert_true(g->memory[i] == poison);
    for (uint32_t i = GUARD + 1 + n; i < MOST + 2 * GUARD; i++) assert_true(g->memory[i] == poison);
}

static void close_to(double got, double expected, double relative, double absolute, const char *what)
{
    if (isinf(expected) && got == expected) return;
    if (!(fabs(got - expected) <= fabs(expected) * relative + absolute))
        fail_msg("%s, %s: %.9g, expected %.9g", table->name, what, got, expected);
}

/* ---- element-wise -------------------------------------------------------------------------------------- */

static void test_sums(void **state)
{
    (void)state;
    for (uint32_t l = 0; l < LENGTHS; l++) {
        const uint32_t n = lengths[l];
        float a[MOST], b[MOST];
        struct guarded g;
        for (uint32_t i = 0; i < n; i++) a[i] = noise(3), b[i] = noise(2);
        float *y = begin(&g);
        table->add(y, a, b, n);
        for (uint32_t i = 0; i < n; i++) assert_true(y[i] == a[i] + b[i]);
        table->mul(y, a, b, n);
        for (uint32_t i = 0; i < n; i++) assert_true(y[i] == a[i] * b[i]);
        table->scale(y, a, 1.7f, n);
        for (uint32_t i = 0; i < n; i++) assert_true(y[i] == a[i] * 1.7f);
        table->add_scaled(y, b, -0.3f, n);
        for (uint32_t i = 0; i < n; i++)
            close_to((double)y[i], (double)(a[i] * 1.7f) - 0.3 * (double)b[i], 1e-6, 1e-6, "add_scaled");
        check_guard(&g, n);
    }
}

static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }
static double gelu_erf(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }

static double map_of(uint32_t fn, double x, double p)
{
    switch (fn) {
    case WK_UNARY_SCALE: return x * p;
    case WK_UNARY_GELU_TANH: return gelu_tanh(x);
    case WK_UNARY_GELU_ERF: return gelu_erf(x);
    case WK_UNARY_SILU: return x / (1 + exp(-x));
    case WK_UNARY_SIGMOID: return 1 / (1 + exp(-x));
    case WK_UNARY_TANH: return tanh(x);
    case WK_UNARY_RELU: return x > 0 ? x : 0;
    case WK_UNARY_SOFTPLUS: return fmax(x, 0) + log1p(exp(-fabs(x)));
    case WK_UNARY_EXP: return exp(x);
    default: return p * tanh(x / p);
    }
}

/* e^x within 2 units in the last place, and nothing lost at the edges. */
static void test_exp(void **state)
{
    (void)state;
    for (double at = -87.29; at < 87.9; at += 0.00737) {
        float x = (float)at, y;
        table->exp(&y, &x, 0.0f, 1);
        const double e = exp((double)x);
        if (fabs((double)y - e) > 2 * e * 0x1p-24 * 2)
            fail_msg("%s: e^%.9g = %.9g, expected %.9g", table->name, (double)x, (double)y, e);
    }
    const float edges[6] = { -INFINITY, -100.0f, -87.5f, 0.0f, 200.0f, INFINITY };
    float y[6];
    table->exp(y, edges, 0.0f, 6);
    assert_true(y[0] == 0.0f && y[1] == 0.0f && y[2] == 0.0f && y[3] == 1.0f && y[4] > 1e38f && y[5] > 1e38f);
    float nan = NAN;
    table->exp(y, &nan, 0.0f, 1);
    assert_true(isnan(y[0]));
}

static void test_maps(void **state)
{
    (void)state;
    for (uint32_t fn = 1; fn < WK_UNARY_END; fn++)
        for (uint32_t l = 0; l < LENGTHS; l++) {
            const uint32_t n = lengths[l];
            float x[MOST];
            struct guarded g;
            for (uint32_t i = 0; i < n; i++) x[i] = noise(i % 7 == 0 ? 30 : i % 3 ? 4 : 0.01f);
            float *y = begin(&g);
            table->map(y, x, n, fn, 2.5f);
            for (uint32_t i = 0; i < n; i++)
                close_to((double)y[i], map_of(fn, (double)x[i], 2.5), 4e-6, 1e-9,
                         "map"); /* e^u loses u units: the tails of gelu */
            check_guard(&g, n);
            /* One by one: the same bits, wherever the element lay. */
            for (uint32_t i = 0; i < n; i++) {
                float one;
                table->map(&one, x + i, 1, fn, 2.5f);
                assert_memory_equal(&one, y + i, sizeof one);
            }
        }
}

static void test_glu(void **state)
{
    (void)state;
    for (uint32_t fn = 1; fn < WK_GLU_END; fn++)
        for (uint32_t l = 0; l < LENGTHS; l++) {
            const uint32_t n = lengths[l];
            float a[MOST], b[MOST];
            struct guarded g;
            for (uint32_t i = 0; i < n; i++) a[i] = noise(9), b[i] = noise(9);
            float *y = begin(&g);
            table->glu(y, a, b, n, fn, 1.702f, 7.0f);
            for (uint32_t i = 0; i < n; i++) {
                const double gate = fmin((double)a[i], 7), up = fmax(-7, fmin(7, (double)b[i]));
                const double e = fn == WK_GLU_SILU_CLAMPED ? gate / (1 + exp(-(double)1.702f * gate)) * (up + 1)
                                                           : map_of(fn == WK_GLU_SILU        ? WK_UNARY_SILU
                                                                    : fn == WK_GLU_GELU_TANH ? WK_UNARY_GELU_TANH
                                                                                             : WK_UNARY_GELU_ERF,
                                                                    (double)a[i], 0) *
                                                                 (double)b[i];
                close_to((double)y[i], e, 4e-6, 1e-8, "glu");
            }
            check_guard(&g, n);
        }
}

static void test_bounded(void **state)
{
    (void)state;
    const float bad[] = { NAN, -NAN, INFINITY, -INFINITY, 70000.0f, -70000.0f };
    for (uint32_t l = 0; l < LENGTHS; l++) {
        float x[MOST];
        for (uint32_t i = 0; i < lengths[l]; i++) x[i] = noise(60000);
        assert_true(table->bounded(x, lengths[l], 65519.0f));
        for (uint32_t i = 0; i < lengths[l]; i += 3)
            for (uint32_t k = 0; k < 6; k++) {
                const float keep = x[i];
                x[i] = bad[k];
                assert_false(table->bounded(x, lengths[l], 65519.0f));
                x[i] = keep;
            }
    }
}

static void test_quantize(void **state)
{
    (void)state;
    for (uint32_t l = 0; l < LENGTHS; l++) {
        const uint32_t n = lengths[l], blocks = (n + 31) / 32;
        float x[MOST];
        struct wk_activation_q8 y[MOST / 32 + 2], expected[MOST / 32 + 2];
        memset(y, 0x5a, sizeof y);
        memset(expected, 0x5a, sizeof expected);
        for (uint32_t i = 0; i < n; i++) x[i] = noise(2);
        table->quantize(y, x, n);
        wk_quantize_act_q8(x, n, expected);
        assert_memory_equal(y, expected, sizeof y);
        assert_true(blocks > 0);
    }
}

/* ---- norms and rotation -------------------------------------------------------------------------------- */

static void test_norms(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint32_t l = 0; l < LENGTHS; l++) {
            const uint32_t n = lengths[l];
            float x[MOST], w[MOST], b[MOST];
            struct guarded g;
            double mean = 0, square = 0;
            for (uint32_t i = 0; i < n; i++) x[i] = noise(2) + 0.7f, w[i] = noise(1), b[i] = noise(1);
            for (uint32_t i = 0; kind == WK_NORM_LAYER && i < n; i++) mean += (double)x[i] / n;
            for (uint32_t i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
            float *y = begin(&g);
            table->norm(y, x, w, b, n, kind, 1e-5f);
            for (uint32_t i = 0; i < n; i++)
                close_to((double)y[i],
                         ((double)x[i] - mean) / sqrt(square + (double)1e-5f) * (double)w[i] + (double)b[i], 2e-6,
                         n == 1 ? 1e-4 : 2e-6, "norm");
            table->norm(y, x, NULL, NULL, n, kind, 1e-5f);
            for (uint32_t i = 0; i < n; i++)
                close_to((double)y[i], ((double)x[i] - mean) / sqrt(square + (double)1e-5f), 2e-6, n == 1 ? 1e-4 : 2e-6,
                         "bare norm");
            check_guard(&g, n);
        }
}

static void test_rope(void **state)
{
    (void)state;
    for (uint32_t style = 0; style < 2; style++)
        for (uint32_t n = 1; n < 40; n += 3) {
            const uint32_t head = 2 * n + n % 5;
            float x[MOST], turn[MOST];
            struct guarded g;
            for (uint32_t i = 0; i < head; i++) x[i] = noise(2);
            for (uint32_t i = 0; i < n; i++) turn[i] = cosf((float)i), turn[n + i] = sinf((float)i);
            float *y = begin(&g);
            table->rope(y, x, turn, n, head, style);
            for (uint32_t i = 0; i < n; i++) {
                const uint32_t p = style == WK_ROPE_HALF ? i : 2 * i, q = style == WK_ROPE_HALF ? i + n : 2 * i + 1;
                close_to((double)y[p], (double)x[p] * (double)turn[i] - (double)x[q] * (double)turn[n + i], 1e-6, 1e-6,
                         "rope");
                close_to((double)y[q], (double)x[p] * (double)turn[n + i] + (double)x[q] * (double)turn[i], 1e-6, 1e-6,
                         "rope");
            }
            for (uint32_t i = 2 * n; i < head; i++) assert_true(y[i] == x[i]);
            check_guard(&g, head);
        }
}

/* ---- attention ----------------------------------------------------------------------------------------- */

static const struct {
    uint32_t dk, dv;
} heads[] = { { 8, 8 }, { 16, 24 }, { 20, 20 }, { 64, 64 }, { 80, 80 }, { 96, 96 }, { 128, 40 } };
enum { QUERIES = 11 };

struct pages {
    void *k, *v;
    double *keys, *values;
};

static double rounded(float x, uint32_t type)
{
    return type == KV_F16 ? (double)wk_half_to_float(wk_float_to_half(x)) : (double)x;
}

/* A page with all 32 positions stored, in a scrambled order. */
static struct pages make_pages(uint32_t dk, uint32_t dv, uint32_t type)
{
    const size_t size = type == KV_F16 ? 2 : 4, kb = dk * KV_PAGE * size, vb = kv_padded(dv) * KV_PAGE * size;
    struct pages p = { aligned_alloc(64, kb), aligned_alloc(64, vb), calloc((size_t)dk * KV_PAGE, sizeof(double)),
                       calloc((size_t)dv * KV_PAGE, sizeof(double)) };
    assert_true(p.k && p.v && p.keys && p.values);
    memset(p.k, 0xff, kb);
    memset(p.v, 0xff, vb);
    for (uint32_t i = 0; i < KV_PAGE; i++) {
        const uint32_t slot = i * 13 % KV_PAGE;
        float k[MOST], v[MOST];
        for (uint32_t d = 0; d < dk; d++) k[d] = noise(2), p.keys[slot * dk + d] = rounded(k[d], type);
        for (uint32_t d = 0; d < dv; d++) v[d] = noise(2), p.values[slot * dv + d] = rounded(v[d], type);
        table->store_k[type](p.k, k, dk, slot);
        table->store_v[type](p.v, v, dv, slot);
    }
    return p;
}

static void free_pages(struct pages *p)
{
    free(p->k);
    free(p->v);
    free(p->keys);
    free(p->values);
}

static void test_scores(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < 2; type++)
        for (uint32_t h = 0; h < sizeof heads / sizeof *heads; h++) {
            const uint32_t dk = heads[h].dk;
            struct pages p = make_pages(dk, heads[h].dv, type);
            float q[QUERIES * 128], s[QUERIES * 40], alone[KV_PAGE];
            for (uint32_t i = 0; i < QUERIES * dk; i++) q[i] = noise(1);
            for (uint32_t n = 1; n <= QUERIES; n++) {
                for (uint32_t i = 0; i < QUERIES * 40; i++) s[i] = poison;
                table->scores[type](s, 40, q, dk, n, p.k, dk);
                for (uint32_t i = 0; i < QUERIES * 40; i++) {
                    if (i / 40 >= n || i % 40 >= KV_PAGE) {
                        assert_true(s[i] == poison);
                        continue;
                    }
                    double e = 0;
                    for (uint32_t d = 0; d < dk; d++) e += (double)q[i / 40 * dk + d] * p.keys[i % 40 * dk + d];
                    close_to((double)s[i], e, 1e-5, 2e-5, "scores");
                }
                table->scores[type](alone, KV_PAGE, q + (n - 1) * dk, dk, 1, p.k, dk);
                assert_memory_equal(alone, s + (n - 1) * 40, sizeof alone);
            }
            free_pages(&p);
        }
}

static void test_values(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < 2; type++)
        for (uint32_t h = 0; h < sizeof heads / sizeof *heads; h++) {
            const uint32_t dv = heads[h].dv, wide = kv_padded(dv);
            struct pages p = make_pages(heads[h].dk, dv, type);
            float w[QUERIES * KV_PAGE], y[(QUERIES + 1) * 128], alone[128];
            for (uint32_t i = 0; i < QUERIES * KV_PAGE; i++) w[i] = noise(1);
            for (uint32_t n = 1; n <= QUERIES; n++) {
                const uint32_t first = n % 3 * 5, count = KV_PAGE - first - n;
                for (uint32_t i = 0; i < (QUERIES + 1) * wide; i++) y[i] = i < n * wide ? 0.25f : poison;
                table->values[type](y, wide, w, KV_PAGE, n, p.v, wide, first, count);
                for (uint32_t i = n * wide; i < (n + 1) * wide; i++) assert_true(y[i] == poison);
                for (uint32_t i = 0; i < n; i++)
                    for (uint32_t d = 0; d < dv; d++) {
                        double e = 0.25;
                        for (uint32_t j = first; j < first + count; j++)
                            e += (double)w[i * KV_PAGE + j] * p.values[j * dv + d];
                        close_to((double)y[i * wide + d], e, 1e-5, 2e-5, "values");
                    }
                for (uint32_t d = 0; d < wide; d++) alone[d] = 0.25f;
                table->values[type](alone, wide, w + (n - 1) * KV_PAGE, KV_PAGE, 1, p.v, wide, first, count);
                assert_memory_equal(alone, y + (n - 1) * wide, wide * sizeof *alone);
            }
            free_pages(&p);
        }
}

/* The beginning of keys as values: the same numbers, padded with zeros, and nothing behind. */
static void test_turn(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < 2; type++)
        for (uint32_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (uint32_t cut = 0; cut < 2; cut++) {
                const uint32_t dk = heads[h].dk, dv = cut ? dk - dk / 3 : dk, wide = kv_padded(dv);
                struct pages p = make_pages(dk, heads[h].dv, type);
                float *v = malloc((KV_PAGE * wide + 1) * sizeof *v);
                assert_non_null(v);
                v[KV_PAGE * wide] = poison;
                table->turn[type](v, p.k, dv);
                for (uint32_t j = 0; j < KV_PAGE; j++)
                    for (uint32_t d = 0; d < wide; d++)
                        assert_true((double)v[j * wide + d] == (d < dv ? p.keys[j * dk + d] : 0));
                assert_true(v[KV_PAGE * wide] == poison);
                free(v);
                free_pages(&p);
            }
}

/* Before the row and behind it; far away as a float is. */
static void test_slope(void **state)
{
    (void)state;
    static const int64_t firsts[] = { 0, -31, -40, 5, -67108800 };
    for (uint32_t f = 0; f < 5; f++) {
        float s[64], y[64];
        for (uint32_t i = 0; i < 64; i++) y[i] = s[i] = noise(20);
        table->add_slope(y, 64, firsts[f], 0.37f);
        for (uint32_t i = 0; i < 64; i++)
            close_to((double)y[i], (double)s[i] - 0.37f * fabs((double)(firsts[f] + i)), 1e-6, 1e-6, "slope");
        memcpy(y, s, sizeof s);
        table->add_slope(y + 32, 32, firsts[f] + 32, 0.37f);
        table->add_slope(s, 64, firsts[f], 0.37f);
        assert_memory_equal(y + 32, s + 32, 32 * sizeof *s);
    }
}

static void test_softmax(void **state)
{
    (void)state;
    for (uint32_t n = 32; n <= ATTN_SPLIT; n += 32)
        for (uint32_t lo = 0; lo < n; lo += 17)
            for (uint32_t hi = 0; hi <= n; hi += 13) {
                float s[ATTN_SPLIT], raw[ATTN_SPLIT], max, sum;
                double top = -INFINITY, total = 0;
                for (uint32_t i = 0; i < n; i++)
                    s[i] = raw[i] = i >= lo && i < hi ? noise(20)
                                    : i % 2           ? NAN
                                                      : INFINITY; /* what is masked may be anything */
                for (uint32_t i = lo; i < hi; i++)
                    if ((double)raw[i] > top) top = (double)raw[i];
                for (uint32_t i = lo; i < hi; i++) total += exp((double)raw[i] - top);
                table->softmax(s, n, lo, hi, &max, &sum);
                assert_true((double)max == top);
                close_to((double)sum, total, 1e-5, 0, "softmax sum");
                for (uint32_t i = 0; i < n; i++)
                    close_to((double)s[i], i >= lo && i < hi ? exp((double)raw[i] - top) : 0, 1e-5, 1e-37, "softmax");
            }
    float s[32];
    for (uint32_t i = 0; i < 32; i++) s[i] = noise(50);
    float capped[32];
    memcpy(capped, s, sizeof s);
    table->cap_scores(capped, 32, 0.5f, 7.0f);
    for (uint32_t i = 0; i < 32; i++) close_to((double)capped[i], 7 * tanh((double)s[i] * 0.5 / 7), 1e-6, 1e-9, "cap");
}

/* Three splits, one of them empty, and a sink: as one softmax over all. */
static void test_combine(void **state)
{
    (void)state;
    float y[32], split[3][32], y_max = 0, y_sum = 0, out[24];
    const float max[3] = { 1.5f, 0, 4.25f }, sum[3] = { 3, 0, 1.5f }, sink = 2.0f;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t d = 0; d < 32; d++) split[i][d] = noise(3);
    for (uint32_t i = 0; i < 3; i++) table->combine(y, &y_max, &y_sum, split[i], max[i], sum[i], 32);
    const double a = exp(1.5 - 4.25), all = 3 * a + 1.5;
    assert_true(y_max == 4.25f);
    close_to((double)y_sum, all, 1e-6, 0, "combined sum");
    table->finish(out, y, y_max, y_sum, NULL, 24);
    for (uint32_t d = 0; d < 24; d++)
        close_to((double)out[d], ((double)split[0][d] * a + (double)split[2][d]) / all, 1e-5, 1e-6, "combine");
    table->finish(out, y, y_max, y_sum, &sink, 24);
    for (uint32_t d = 0; d < 24; d++)
        close_to((double)out[d], ((double)split[0][d] * a + (double)split[2][d]) / (all + exp(2 - 4.25)), 1e-5, 1e-6,
                 "sink");
    const float high = 9.0f;
    table->finish(out, y, y_max, y_sum, &high, 24);
    for (uint32_t d = 0; d < 24; d++)
        close_to((double)out[d], ((double)split[0][d] * a + (double)split[2][d]) / (all + exp(9 - 4.25)), 1e-5, 1e-6,
                 "high sink");
}

/* ---- states -------------------------------------------------------------------------------------------- */

static void test_conv(void **state)
{
    (void)state;
    static const uint32_t kernels[] = { 1, 2, 4, 7, 64 };
    static struct guarded g;
    float x[64][MOST], w[64 * MOST], b[MOST];
    for (uint32_t i = 0; i < 64 * MOST; i++) w[i] = noise(1), x[i / MOST][i % MOST] = noise(2);
    for (uint32_t i = 0; i < MOST; i++) b[i] = noise(1);
    for (uint32_t k = 0; k < 5; k++)
        for (uint32_t l = 0; l < LENGTHS; l++)
            for (uint32_t bias = 0; bias < 2; bias++) {
                const uint32_t n = lengths[l], rows = kernels[k];
                const float *seen[64];
                for (uint32_t i = 0; i < rows; i++) seen[i] = x[i] + MOST - n; /* nothing behind it may be read */
                float *y = begin(&g);
                table->conv(y, seen, w, MOST, bias ? b + MOST - n : NULL, rows, n);
                check_guard(&g, n);
                for (uint32_t c = 0; c < n; c++) {
                    double sum = bias ? (double)b[MOST - n + c] : 0;
                    for (uint32_t i = 0; i < rows; i++) sum += (double)w[i * MOST + c] * (double)seen[i][c];
                    close_to((double)y[c], sum, 1e-5, 2e-5, "conv");
                }
            }
}

/* One row of scan or delta rule in double, for one column. */
static double state_one(bool delta, double *s, const float *q, const float *k, double v, double decay, double beta,
                        uint32_t dk)
{
    double told = 0, y = 0;
    for (uint32_t i = 0; i < dk; i++) s[i] *= exp(decay);
    for (uint32_t i = 0; i < dk; i++) told += s[i] * (double)k[i];
    for (uint32_t i = 0; i < dk; i++) s[i] += (delta ? beta * (v - told) : v) * (double)k[i];
    for (uint32_t i = 0; i < dk; i++) y += s[i] * (double)q[i];
    return y;
}

/* Rows one after the other from one state. Sums run within a column alone: so columns that are equal stay equal to the
 * last bit, and vectors of any width with fused operations give the same bits. */
static void check_states(bool delta, uint32_t dk)
{
    enum { ROWS = 12, C = STATE_COLUMNS };
    float s[257 * C], wide[257 * C], q[257], k[257], v[C], y[C], other[C];
    double want[C][257];
    const struct cpu_kernels *fused = plugin_detect_isa() >= WK_ISA_AVX2 ? cpu_kernels_for(WK_ISA_AVX2) : table;
    for (uint32_t i = 0; i < dk * C; i++) s[i] = wide[i] = i % C == 3 ? s[i - 2] : noise(1);
    for (uint32_t c = 0; c < C; c++)
        for (uint32_t i = 0; i < dk; i++) want[c][i] = (double)s[i * C + c];
    for (uint32_t row = 0; row < ROWS; row++) {
        const float decay = row == 5 ? -INFINITY : -fabsf(noise(1)), beta = fabsf(noise(1)),
                    length = 1 / sqrtf((float)dk);
        for (uint32_t i = 0; i < dk; i++) q[i] = noise(1), k[i] = noise(length);
        for (uint32_t c = 0; c < C; c++) v[c] = c == 3 ? v[1] : noise(1);
        if (delta) {
            table->delta(y, s, q, k, v, decay, beta, dk);
            fused->delta(other, wide, q, k, v, decay, beta, dk);
        } else {
            table->scan(y, s, q, k, v, decay, dk);
            fused->scan(other, wide, q, k, v, decay, dk);
        }
        for (uint32_t c = 0; c < C; c++)
            close_to((double)y[c], state_one(delta, want[c], q, k, (double)v[c], (double)decay, (double)beta, dk), 1e-5,
                     2e-5, delta ? "delta" : "scan");
        assert_memory_equal(&y[1], &y[3], sizeof *y);
        if (table->isa == WK_ISA_PORTABLE) continue;
        assert_memory_equal(y, other, sizeof y);
        assert_memory_equal(s, wide, dk * C * sizeof *s);
    }
    for (uint32_t i = 0; i < dk; i++) assert_memory_equal(&s[i * C + 1], &s[i * C + 3], sizeof *s);
}

static void test_states(void **state)
{
    (void)state;
    static const uint32_t widths[] = { 1, 2, 3, 4, 5, 18, 64, 127, 128, 257 };
    for (uint32_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (uint32_t delta = 0; delta < 2; delta++) check_states(delta, widths[i]);
}

/* ---- repeated ------------------------------------------------------------------------------------------ */

/* Results of every kernel, and what they leave as it was. */
struct results {
    float y[23][MOST], turned[2][KV_PAGE * 48];
    struct wk_activation_q8 q[MOST / 32 + 1];
    uint8_t k[2][64 * KV_PAGE * 4], v[2][64 * KV_PAGE * 4];
    float scalars[4];
    bool bounded;
};
WK_STATIC_ASSERT(sizeof(struct cpu_kernels) == 31 * sizeof(void *), "a new kernel has to be among those of run_every");

static void run_every(struct results *r, const float *a, const float *b)
{
    enum { N = 203, HEAD = 64, QS = 3 };
    memset(r, 0xa5, sizeof *r);
    table->quantize(r->q, a, N);
    r->bounded = table->bounded(a, N, 2.5f);
    table->norm(r->y[0], a, b, a + 1, N, WK_NORM_RMS, 1e-5f);
    table->norm(r->y[1], a, b, a + 1, N, WK_NORM_LAYER, 1e-5f);
    table->add(r->y[2], a, b, N);
    table->mul(r->y[3], a, b, N);
    table->scale(r->y[4], a, 1.7f, N);
    memcpy(r->y[5], b, N * sizeof *b);
    table->add_scaled(r->y[5], a, -0.3f, N);
    table->exp(r->y[6], a, 0.5f, N);
    for (uint32_t fn = 1; fn < WK_UNARY_END; fn++) table->map(r->y[7] + 40 * (fn - 1), a + fn, 39, fn, 2.5f);
    for (uint32_t fn = 1; fn < WK_GLU_END; fn++) table->glu(r->y[8] + 60 * fn, a, b, 59, fn, 1.702f, 7.0f);
    for (uint32_t style = 0; style < 2; style++) table->rope(r->y[9 + style], a, b, HEAD / 2, HEAD, style);
    for (uint32_t type = 0; type < 2; type++) {
        for (uint32_t slot = 0; slot < KV_PAGE; slot++) {
            table->store_k[type](r->k[type], a + slot, HEAD, slot);
            table->store_v[type](r->v[type], b + slot, HEAD, slot);
        }
        table->scores[type](r->y[11 + type], KV_PAGE, a, HEAD, QS, r->k[type], HEAD);
        memset(r->y[13 + type], 0, sizeof r->y[13]);
        table->values[type](r->y[13 + type], HEAD, b, KV_PAGE, QS, r->v[type], HEAD, 3, KV_PAGE - 5);
        table->turn[type](r->turned[type], r->k[type], 39);
    }
    memcpy(r->y[22], a, 96 * sizeof *a);
    table->add_slope(r->y[22], 96, -40, 0.3f);
    memcpy(r->y[15], a, 96 * sizeof *a);
    table->cap_scores(r->y[15], 96, 0.5f, 7.0f);
    memcpy(r->y[16], a, 96 * sizeof *a);
    table->softmax(r->y[16], 96, 5, 90, &r->scalars[0], &r->scalars[1]);
    r->scalars[2] = r->scalars[3] = 0;
    table->combine(r->y[17], &r->scalars[2], &r->scalars[3], a, 1.5f, 3.0f, HEAD);
    table->combine(r->y[17], &r->scalars[2], &r->scalars[3], b, 4.25f, 1.5f, HEAD);
    table->finish(r->y[17] + 100, r->y[17], r->scalars[2], r->scalars[3], a, HEAD);
    table->conv(r->y[18], (const float *const[]){ a, b, a + 7 }, b, 47, a + 100, 3, 47);
    for (uint32_t i = 0; i < 2; i++) memcpy(r->y[20 + i], b, MOST * sizeof *b);
    table->scan(r->y[19], r->y[20], a, b, a + 100, -0.5f, MOST / STATE_COLUMNS);
    table->delta(r->y[19] + STATE_COLUMNS, r->y[21], a, b, a + 100, -0.5f, 0.01f, MOST / STATE_COLUMNS);
}

static void test_repeats(void **state)
{
    (void)state;
    static struct results first, again;
    float a[MOST], b[MOST];
    for (uint32_t i = 0; i < MOST; i++) a[i] = noise(3), b[i] = noise(2);
    run_every(&first, a, b);
    for (uint32_t n = 1; n < 100; n++) {
        run_every(&again, a, b);
        assert_memory_equal(&again, &first, sizeof first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),   cmocka_unit_test(test_exp),     cmocka_unit_test(test_maps),
        cmocka_unit_test(test_glu),    cmocka_unit_test(test_bounded), cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_norms),  cmocka_unit_test(test_rope),    cmocka_unit_test(test_scores),
        cmocka_unit_test(test_values), cmocka_unit_test(test_softmax), cmocka_unit_test(test_combine),
        cmocka_unit_test(test_conv),   cmocka_unit_test(test_states),  cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_turn),   cmocka_unit_test(test_slope),
    };
    int failed = 0;
    for (uint32_t isa = 0; isa <= plugin_detect_isa(); isa++) {
        table = cpu_kernels_for(isa);
        failed += cmocka_run_group_tests_name(table->name, tests, NULL, NULL);
    }
    return failed;
}
