/* quant-iq4/test_iq4.c: what of IQ4_NL and IQ4_XS the checks that all formats share do not reach: every level, scale
 * and code against the formats' definition in double, in values, products and the device's words; the encoders'
 * choices. */
#include <worker/cpu/act_q8.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda/iq4_bits.h"
#include "formats.h"
#include "plugin/format.h"

/* ---- the definition, in double --------------------------------------------------------------------------- */

static const double level[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

static double nl_value(const uint8_t *b, uint32_t i)
{
    return (double)wk_load_half(b) * level[i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4];
}

static uint32_t xs_code(const uint8_t *b, uint32_t j)
{
    const uint32_t low = j % 2 ? b[4 + j / 2] >> 4 : b[4 + j / 2] & 15u, high = j < 4 ? b[2] : b[3];
    return low + 16 * (high / (1u << 2 * (j % 4)) % 4);
}

static double xs_value(const uint8_t *b, uint32_t i)
{
    const uint32_t j = i / 32, at = 8 + 16 * j + i % 16;
    return (double)wk_load_half(b) * ((double)xs_code(b, j) - 32) * level[i % 32 < 16 ? b[at] & 15 : b[at] >> 4];
}

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Block number n: every half that is a number, or a code, comes in turn; nibbles are arbitrary. */
static void make_nl(uint8_t *b, uint32_t n, uint32_t *random)
{
    const uint16_t d = (uint16_t)n;
    memcpy(b, &d, 2);
    for (uint32_t j = 0; j < 16; j++) b[2 + j] = (uint8_t)noise(random);
}

static void make_xs(uint8_t *b, uint32_t n, uint32_t *random)
{
    make_nl(b, n * 37 % 0x7c00 | (n & 1) << 15, random);
    for (uint32_t j = 2; j < 136; j++) b[j] = (uint8_t)noise(random);
}

static bool is_number(const uint8_t *half) { return (wk_load_u16(half) & 0x7c00u) != 0x7c00u; }

static void test_every_value(void **state)
{
    (void)state;
    uint32_t random = 1, codes = 0;
    float y[256];
    for (uint32_t n = 0; n < 65536; n++) {
        uint8_t b[18];
        make_nl(b, n, &random);
        format_call_dequantize(iq4_nl_dequantize, y, b, 32);
        for (uint32_t i = 0; i < 32; i++) {
            const float expected = (float)nl_value(b, i);
            if (is_number(b))
                assert_memory_equal(&y[i], &expected, 4);
            else
                assert_true(!isfinite(y[i]));
        }
    }
    for (uint32_t n = 0; n < 4096; n++) {
        uint8_t b[136];
        make_xs(b, n, &random);
        codes |= xs_code(b, 5) == n % 64;
        format_call_dequantize(iq4_xs_dequantize, y, b, 256);
        for (uint32_t i = 0; i < 256; i++) { /* the product of three has 24 bits at most: one rounding or none */
            const float expected = (float)xs_value(b, i);
            if (y[i] != expected) fail_msg("block %u value %u: %a, expected %a", n, i, (double)y[i], (double)expected);
        }
    }
    assert_int_equal(codes, 1);
}

/* ---- the bits of a device's tiles (cuda/iq4_bits.h) -------------------------------------------------------- */

static void test_device_words(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (uint32_t n = 0; n < 100000; n++) { /* each nibble in each place first, then any */
        uint32_t word = 0, pair[4], q[8];
        for (uint32_t i = 0; i < 8; i++) {
            q[i] = n < 128 ? (i == n / 16 ? n % 16 : 8) : noise(&random) & 15u;
            word |= iq4_put(q[i], i);
        }
        iq4_pairs(word, pair);
        for (uint32_t i = 0; i < 8; i++) {
            assert_int_equal(iq4_get(word, i), q[i]);
            const double value = (double)wk_half_to_float((uint16_t)(pair[i / 2] >> 16 * (i % 2)));
            assert_true(value == ldexp(level[q[i]], -24));
        }
    }
}

static void test_device_codes(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 64 * 4; n++) {
        const uint32_t at = n / 64, other = (n * 37 + 11) & 63u;
        uint32_t code[4] = { other, other ^ 63u, other ^ 21u, other ^ 42u };
        code[at] = n % 64;
        const uint32_t low = iq4_codes_low(code), high = iq4_codes_high(code);
        assert_true(low < 65536 && high < 256);
        for (uint32_t group = 0; group < 2; group++)
            assert_int_equal(iq4_codes(low, high, group), code[2 * group] | code[2 * group + 1] << 16);
    }
}

/* ---- encoders -------------------------------------------------------------------------------------------- */

/* Values that are levels times a scale come back as they were, with a scale of either sign. */
static void test_encoders_keep_values(void **state)
{
    (void)state;
    static const float scales[] = { 0x1p-9f, -0x1p-9f, 3 * 0x1p-12f, -1.0f, 512.0f };
    uint32_t random = 7;
    for (uint32_t n = 0; n < 50; n++) {
        float x[256], y[256];
        uint8_t nl[8 * 18], xs[136];
        for (uint32_t i = 0; i < 256; i++) /* the lowest level is in every group */
            x[i] = scales[n % 5] * (float)level[i % 32 ? noise(&random) & 15u : 0];
        assert_int_equal(format_call_quantize(iq4_nl_quantize, nl, x, 256, NULL), WK_OK);
        format_call_dequantize(iq4_nl_dequantize, y, nl, 256);
        assert_memory_equal(x, y, sizeof x);
        for (uint32_t i = 0; i < 256; i++) /* one group has the largest scale; the others' codes are anything */
            x[i] *= i < 32 ? -32 : (float)((int32_t)(i / 32 * 9) - 32);
        assert_int_equal(format_call_quantize(iq4_xs_quantize, xs, x, 256, NULL), WK_OK);
        format_call_dequantize(iq4_xs_dequantize, y, xs, 256);
        for (uint32_t i = 0; i < 256; i++)
            if (x[i] != y[i]) fail_msg("%u: value %u is %a, was %a", n, i, (double)y[i], (double)x[i]);
    }
}

/* No other level and no scale a little off would be nearer: the encoders' result is a minimum. */
static void test_encoders_choose_the_nearest(void **state)
{
    (void)state;
    uint32_t random = 3;
    for (uint32_t n = 0; n < 200; n++) {
        float x[256];
        uint8_t nl[8 * 18], xs[136];
        for (uint32_t i = 0; i < 256; i++)
            x[i] = (float)((int32_t)(noise(&random) % 4001) - 2000) * (float)((int32_t)(noise(&random) % 100)) * 1e-6f;
        assert_int_equal(format_call_quantize(iq4_nl_quantize, nl, x, 256, NULL), WK_OK);
        assert_int_equal(format_call_quantize(iq4_xs_quantize, xs, x, 256, NULL), WK_OK);
        for (uint32_t i = 0; i < 256; i++) {
            const double d[2] = { (double)wk_load_half(nl + i / 32 * 18),
                                  (double)wk_load_half(xs) * ((double)xs_code(xs, i / 32) - 32) };
            const double got[2] = { nl_value(nl + i / 32 * 18, i % 32), xs_value(xs, i) };
            for (uint32_t f = 0; f < 2; f++)
                for (uint32_t q = 0; q < 16; q++)
                    assert_true(fabs(got[f] - (double)x[i]) <= fabs(d[f] * level[q] - (double)x[i]) * (1 + 1e-6));
        }
    }
}

static void test_encoders_of_nothing(void **state)
{
    (void)state;
    float x[256] = { 0 }, y[256];
    uint8_t nl[8 * 18], xs[136];
    x[40] = 0x1p-126f; /* no half scales it */
    assert_int_equal(format_call_quantize(iq4_nl_quantize, nl, x, 256, NULL), WK_OK);
    assert_int_equal(format_call_quantize(iq4_xs_quantize, xs, x, 256, NULL), WK_OK);
    format_call_dequantize(iq4_nl_dequantize, y, nl, 256);
    for (uint32_t i = 0; i < 256; i++) assert_true(y[i] == 0);
    format_call_dequantize(iq4_xs_dequantize, y, xs, 256);
    for (uint32_t i = 0; i < 256; i++) assert_true(y[i] == 0);
}

/* ---- products ---------------------------------------------------------------------------------------------- */

struct type {
    const struct wk_tile_layout *layout;
    double (*value)(const uint8_t *block, uint32_t i);
    void (*make)(uint8_t *block, uint32_t n, uint32_t *random);
    void (*product[3])(const struct wk_cpu_product *);
};
static const struct type nl = {
    &iq4_nl_layout, nl_value, make_nl, { iq4_nl_product_portable, iq4_nl_product_avx2, iq4_nl_product_avx512 }
};
static const struct type xs = {
    &iq4_xs_layout, xs_value, make_xs, { iq4_xs_product_portable, iq4_xs_product_avx2, iq4_xs_product_avx512 }
};

static void call(void (*product)(const struct wk_cpu_product *), uint32_t act, uint32_t k, const void *tile,
                 const void *x, float y[16])
{
    static _Alignas(64) struct wk_tile_scratch scratch;
    const struct wk_cpu_product p = { .struct_size = sizeof p,
                                      .activation = act,
                                      .k = k,
                                      .n_rows = 1,
                                      .n_tiles = 1,
                                      .y_stride = 16,
                                      .tiles = tile,
                                      .x = x,
                                      .y = y,
                                      .scratch = &scratch };
    product(&p);
}

/* A block of 16 rows, and an activation of 1 in each place in turn: every weight by itself. Activations as floats: to
 * the bit; in 8 bits: but for their scale's rounding. */
static void check_weights(const struct type *t, uint32_t isa, uint32_t *random)
{
    const uint32_t k = t->layout->block;
    for (uint32_t n = 0; n < 40; n++) {
        _Alignas(64) uint8_t tile[16 * 136];
        uint8_t rows[16][136];
        const void *from[16];
        for (uint32_t r = 0; r < 16; r++) {
            do t->make(rows[r], noise(random), random);
            while (!is_number(rows[r]));
            from[r] = rows[r];
        }
        wk_layout_pack(t->layout, tile, from, k);
        for (uint32_t i = n % 3; i < k; i += 3) {
            float x[256] = { 0 }, exact[16], near[16];
            struct wk_activation_q8 q[8];
            x[i] = 1;
            wk_quantize_act_q8(x, k, q);
            call(t->product[isa], WK_ACTIVATION_F32, k, tile, x, exact);
            call(t->product[isa], WK_ACTIVATION_Q8, k, tile, q, near);
            for (uint32_t r = 0; r < 16; r++) {
                const double w = t->value(rows[r], i);
                assert_true((double)exact[r] == w);
                assert_true(fabs((double)near[r] - w) <= 1e-6 * fabs(w));
            }
        }
    }
}

static void test_weights_in_products(void **state)
{
    (void)state;
    uint32_t random = 5, levels = 1;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels = 2;
    if (levels == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni"))
        levels = 3;
    for (uint32_t isa = 0; isa < levels; isa++) {
        check_weights(&nl, isa, &random);
        check_weights(&xs, isa, &random);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value),
        cmocka_unit_test(test_device_words),
        cmocka_unit_test(test_device_codes),
        cmocka_unit_test(test_encoders_keep_values),
        cmocka_unit_test(test_encoders_choose_the_nearest),
        cmocka_unit_test(test_encoders_of_nothing),
        cmocka_unit_test(test_weights_in_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
