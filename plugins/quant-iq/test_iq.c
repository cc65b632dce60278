/* test_iq.c: the encoders of grids against an exhaustive search in double, with and without importance; values that a
 * block holds come back; rows that nobody would make. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "draw.h"
#include "formats.h"
#include "grid_iq1.h"
#include "grid_iq2.h"
#include "grid_iq3.h"
#include "plugin/format.h"

struct type {
    const char *name;
    wk_status (*quantize)(const struct wk_quantize *, const struct wk_err *);
    void (*dequantize)(const struct wk_dequantize *);
    const uint16_t *grid;
    uint32_t bytes, points, span, group, codes;
    double unit, level[8];
    bool even, one_shift; /* the shift of IQ1 is one for a group, else one for a point */
};
#define FUNCTIONS(name) #name, name##_quantize, name##_dequantize
static const struct type types[] = {
    { FUNCTIONS(iq2_xxs), iq2_xxs_grid, 66, 256, 8, 32, 16, 0.125, { 8, 25, 43 }, true, false },
    { FUNCTIONS(iq2_xs), iq2_xs_grid, 74, 512, 8, 16, 16, 0.125, { 8, 25, 43 }, true, false },
    { FUNCTIONS(iq2_s), iq2_s_grid, 82, 1024, 8, 16, 16, 0.125, { 8, 25, 43 }, false, false },
    { FUNCTIONS(iq3_xxs), iq3_xxs_grid, 98, 256, 4, 32, 16, 0.25, { 4, 12, 20, 28, 36, 44, 52, 62 }, true, false },
    { FUNCTIONS(iq3_s), iq3_s_grid, 110, 512, 4, 32, 16, 1, { 1, 3, 5, 7, 9, 11, 13, 15 }, false, false },
    { FUNCTIONS(iq1_s), iq1_grid, 50, 2048, 8, 32, 8, 1, { -1, 0, 1 }, false, true },
    { FUNCTIONS(iq1_m), iq1_grid, 56, 2048, 8, 16, 8, 1, { -1, 0, 1 }, false, false },
};
enum { TYPES = sizeof types / sizeof *types };

static bool has_shift(const struct type *t) { return t->level[0] < 0; }

static wk_status quantize(const struct type *t, void *blocks, const float *x, const float *importance, uint32_t n,
                          const struct wk_err *err)
{
    const struct wk_quantize q = { sizeof q, n, n, x, importance, blocks, &format_plain };
    return t->quantize(&q, err);
}

/* About a normal distribution, sigma 1. */
static float noise(void)
{
    float sum = 0;
    for (uint32_t i = 0; i < 12; i++) sum += (float)draw(65536) / 65536;
    return sum - 6;
}

/* Values, and importances from a 1,000th of the largest to it. */
static void make(float *x, float *importance, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        x[i] = noise() * 0.02f;
        importance[i] = powf(10, -3.0f * (float)draw(1000) / 999);
    }
}

static double error(const float *x, const float *y, const float *w, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)w[i] * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

/* ---- exhaustive search ------------------------------------------------------------------------------------- */

static double d_of(const struct type *t, const uint8_t *b)
{
    uint32_t d = 0;
    if (t->quantize != iq1_m_quantize) return (double)wk_load_half(b);
    for (uint32_t j = 0; j < 4; j++) d |= (uint32_t)(wk_load_u16(b + 48 + 2 * j) >> 12) << 4 * j;
    return (double)wk_half_to_float((uint16_t)d);
}

/* The least error of the values of a point with any point, by magnitudes where there are signs; with `wrong` one of the
 * signs, the one for which it costs the least, is the wrong one. */
static double best_point(const struct type *t, const float *x, const float *w, double s, double shift, bool wrong)
{
    double least = INFINITY;
    for (uint32_t p = 0; p < t->points; p++) {
        double sum = 0, turn = INFINITY;
        for (uint32_t i = 0; i < t->span; i++) {
            const uint32_t l = t->span == 8 ? t->grid[p] >> (i % 4 * 4 + i / 4 * 2) & 3u : t->grid[p] >> 4 * i & 7u;
            const double q = s * (t->level[l] + shift), v = has_shift(t) ? (double)x[i] : fabs((double)x[i]);
            sum += (double)w[i] * (q - v) * (q - v);
            turn = fmin(turn, 4 * (double)w[i] * q * v);
        }
        least = fmin(least, wrong ? sum + turn : sum);
    }
    return least;
}

/* Of eight values. */
static double best_eight(const struct type *t, const float *x, const float *w, double s, double shift)
{
    uint32_t odd = 0;
    for (uint32_t i = 0; i < 8; i++) odd ^= x[i] < 0;
    const bool wrong = t->even && odd;
    if (t->span == 8) return best_point(t, x, w, s, shift, wrong);
    const double right[2] = { best_point(t, x, w, s, 0, false), best_point(t, x + 4, w + 4, s, 0, false) };
    if (!wrong) return right[0] + right[1];
    return fmin(right[0] + best_point(t, x + 4, w + 4, s, 0, true), best_point(t, x, w, s, 0, true) + right[1]);
}

static double best_group(const struct type *t, const float *x, const float *w, double s)
{
    double up = 0, down = 0, either = 0;
    for (uint32_t i = 0; i < t->group; i += 8) {
        const double a = best_eight(t, x + i, w + i, s, has_shift(t) ? 0.125 : 0),
                     b = has_shift(t) ? best_eight(t, x + i, w + i, s, -0.125) : a;
        up += a;
        down += b;
        either += fmin(a, b);
    }
    return t->one_shift ? fmin(up, down) : either;
}

static double best_block(const struct type *t, const float *x, const float *w, double d)
{
    double sum = 0;
    for (uint32_t i = 0; i < 256; i += t->group) {
        double least = INFINITY;
        for (uint32_t c = 0; c < t->codes; c++)
            least = fmin(least, best_group(t, x + i, w + i, d * t->unit * (2 * c + 1)));
        sum += least;
    }
    return sum;
}

/* With its own d an encoder's block is next to the best that there is; and no other d among many is much better. */
static void test_exhaustive(void **state)
{
    (void)state;
    static const double others[] = { 0.55, 0.7, 0.8, 0.87, 0.93, 0.97, 1.03, 1.08, 1.15, 1.25, 1.4, 1.7 };
    for (uint32_t k = 0; k < TYPES; k++) {
        const struct type *t = &types[k];
        float x[256], w[256], y[256];
        uint8_t b[256];
        make(x, w, 256);
        assert_int_equal(quantize(t, b, x, w, 256, NULL), WK_OK);
        format_call_dequantize(t->dequantize, y, b, 256);
        const double d = d_of(t, b), got = error(x, y, w, 256), here = best_block(t, x, w, d);
        double there = here;
        for (uint32_t i = 0; i < sizeof others / sizeof *others; i++)
            there = fmin(there, best_block(t, x, w, d * others[i]));
        print_message("%-7s error over that of an exhaustive search: %.5f with its d, %.5f with any\n", t->name,
                      got / here, got / there);
        assert_true(got >= here * (1 - 1e-5)); /* or the search is none */
        assert_true(got <= 1.03 * here && got <= 1.04 * there);
    }
}

/* ---- importance --------------------------------------------------------------------------------------------- */

static void test_importance(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N], w[N], alike[N], y[N];
    static uint8_t b[N];
    make(x, w, N);
    for (uint32_t i = 0; i < N; i++) alike[i] = 1;
    for (uint32_t k = 0; k < TYPES; k++) {
        double weighed[2];
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(quantize(&types[k], b, x, i ? w : alike, N, NULL), WK_OK);
            format_call_dequantize(types[k].dequantize, y, b, N);
            weighed[i] = error(x, y, w, N);
        }
        print_message("%-7s weighed error with importance: %.3f of that without\n", types[k].name,
                      weighed[1] / weighed[0]);
        assert_true(weighed[1] < 0.75 * weighed[0]);
    }
}

/* Importance is by column: two rows of 512 are encoded as each of them alone; its size does not matter. */
static void test_columns(void **state)
{
    (void)state;
    float x[1024], w[1024];
    uint8_t both[1024], one[1024], scaled[1024];
    make(x, w, 1024);
    for (uint32_t k = 0; k < TYPES; k++) {
        const uint32_t row = 2 * types[k].bytes;
        const struct wk_quantize q = { sizeof q, 512, 1024, x, w, both, &format_plain };
        assert_int_equal(types[k].quantize(&q, NULL), WK_OK);
        float larger[512];
        for (uint32_t i = 0; i < 512; i++) larger[i] = w[i] * 0x1p60f;
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(quantize(&types[k], one + (size_t)r * row, x + 512 * r, w, 512, NULL), WK_OK);
            assert_int_equal(quantize(&types[k], scaled + (size_t)r * row, x + 512 * r, larger, 512, NULL), WK_OK);
        }
        assert_memory_equal(both, one, 2 * row);
        assert_memory_equal(both, scaled, 2 * row);
    }
}

static void test_refuses_without(void **state)
{
    (void)state;
    const float x[256] = { 1 };
    for (uint32_t k = 0; k < TYPES; k++) {
        char text[256] = "";
        uint8_t b[256];
        const wk_status status = quantize(&types[k], b, x, NULL, 256, &(struct wk_err){ text, sizeof text });
        assert_int_equal(status, strncmp(types[k].name, "iq3", 3) == 0 ? WK_OK : WK_UNSUPPORTED);
        if (status) assert_true(strstr(text, types[k].name) && strstr(text, "--imatrix"));
    }
}

/* ---- values that come back, and others ------------------------------------------------------------------------ */

/* What a block holds is encoded as it is: blocks of random bits, which have all points, signs, shifts and codes. */
static void test_round_trip(void **state)
{
    (void)state;
    uint32_t same = 0, all = 0;
    for (uint32_t k = 0; k < TYPES; k++) {
        const struct type *t = &types[k];
        float alike[256];
        for (uint32_t i = 0; i < 256; i++) alike[i] = 1;
        for (uint32_t n = 0; n < 40; n++) {
            uint8_t b[256], again[256];
            float x[256], y[256];
            for (uint32_t i = 0; i < t->bytes; i++) b[i] = (uint8_t)draw(256);
            if (t->quantize == iq1_m_quantize)
                b[55] = (uint8_t)(0x20 | (b[55] & 15u));
            else
                b[1] = 0x24;
            format_call_dequantize(t->dequantize, x, b, 256);
            assert_int_equal(quantize(t, again, x, alike, 256, NULL), WK_OK);
            format_call_dequantize(t->dequantize, y, again, 256);
            same += memcmp(x, y, sizeof x) == 0;
            all++;
            float zero[256] = { 0 };
            if (error(x, y, alike, 256) > 1e-6 * error(x, zero, alike, 256)) fail_msg("%s: block %u", t->name, n);
        }
    }
    print_message("%u of %u blocks came back to the bit\n", same, all);
    assert_true(same > all * 95 / 100);
}

static void check_hostile(const struct type *t, const char *what, const float *x, const float *w)
{
    float y[256];
    uint8_t b[256];
    double most = 0;
    for (uint32_t i = 0; i < 256; i++) most = fmax(most, fabs((double)x[i]));
    if (quantize(t, b, x, w, 256, NULL) != WK_OK) fail_msg("%s: %s", t->name, what);
    format_call_dequantize(t->dequantize, y, b, 256);
    for (uint32_t i = 0; i < 256; i++)
        if (!(fabs((double)y[i]) <= 4 * most)) fail_msg("%s: %s: value %u is %g", t->name, what, i, (double)y[i]);
}

static void test_hostile(void **state)
{
    (void)state;
    float x[256], w[256], ones[256], y[256];
    for (uint32_t k = 0; k < TYPES; k++) {
        const struct type *t = &types[k];
        uint8_t b[256];
        make(x, w, 256);
        for (uint32_t i = 0; i < 256; i++) ones[i] = 1;
        static const float importances[] = { 0, 1e-45f, 1e-38f, 3e38f };
        for (uint32_t n = 0; n < 4; n++) {
            for (uint32_t i = 0; i < 256; i++) w[i] = i % 3 ? 1 : importances[n];
            check_hostile(t, "importances beside 1", x, w);
            for (uint32_t i = 0; i < 256; i++) w[i] = importances[n];
            check_hostile(t, "importances all alike", x, w);
            for (uint32_t i = 0; i < 256; i++) w[i] = i == 77 ? importances[n] : 0;
            check_hostile(t, "one importance", x, w);
        }
        for (uint32_t i = 0; i < 256; i++) w[i] = i / 32 == 3;
        check_hostile(t, "one group", x, w);
        static const float values[] = { 0, -0.0f, 1e-45f, -1e-38f, 0x1p-24f, 1e4f };
        for (uint32_t n = 0; n < 6; n++) {
            for (uint32_t i = 0; i < 256; i++) x[i] = values[n];
            check_hostile(t, "values all alike", x, ones);
            for (uint32_t i = 0; i < 256; i++) x[i] = i == 200 ? values[n] : 0;
            check_hostile(t, "one value", x, ones);
        }
        memset(x, 0, sizeof x);
        assert_int_equal(quantize(t, b, x, ones, 256, NULL), WK_OK);
        format_call_dequantize(t->dequantize, y, b, 256);
        for (uint32_t i = 0; i < 256; i++) assert_true(y[i] == 0);
        /* the largest value lies where nothing matters */
        make(x, w, 256);
        x[100] = 3e38f;
        w[100] = 0;
        assert_int_equal(quantize(t, b, x, w, 256, NULL), WK_OK);
        format_call_dequantize(t->dequantize, y, b, 256);
        x[100] = y[100];
        const float none[256] = { 0 };
        assert_true(error(x, y, w, 256) < 0.5 * error(x, none, w, 256));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exhaustive),      cmocka_unit_test(test_importance), cmocka_unit_test(test_columns),
        cmocka_unit_test(test_refuses_without), cmocka_unit_test(test_round_trip), cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
