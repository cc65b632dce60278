/* quant-mxfp4/test_mxfp4.c: what of MXFP4 and NVFP4 the checks that all formats share do not reach: every exponent,
 * scale and nibble, the encoders' bytes. */
#include <worker/cpu/act_q8.h>

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/mxfp4_bits.h"
#include "formats.h"
#include "plugin/format.h"
#include "test_data.h"

static const double level[16] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6 };

static void test_every_value(void **state)
{
    (void)state;
    for (int e = 0; e < 256; e++) {
        uint8_t block[17] = { (uint8_t)e };
        float y[32];
        for (uint32_t j = 0; j < 16; j++) block[1 + j] = (uint8_t)(j | (15 - j) << 4);
        format_call_dequantize(mxfp4_dequantize, y, block, 32);
        for (uint32_t j = 0; j < 32; j++) {
            const float expected = (float)ldexp(level[j < 16 ? j : 31 - j], e - 127);
            assert_memory_equal(&y[j], &expected, sizeof expected);
        }
    }
}

/* Every scale, its eighth bit and 127 included, in each of the four places, with every nibble low and high. */
static void test_every_value_of_nvfp4(void **state)
{
    (void)state;
    for (int s = 0; s < 256; s++) {
        uint8_t block[36] = { (uint8_t)s, (uint8_t)(s + 1), (uint8_t)(s ^ 128), (uint8_t)(255 - s) };
        float y[64];
        for (uint32_t j = 0; j < 32; j++) block[4 + j] = (uint8_t)((j & 15) | (15 - (j & 15)) << 4);
        format_call_dequantize(nvfp4_dequantize, y, block, 64);
        for (uint32_t v = 0; v < 64; v++) {
            const int code = block[v / 16], exponent = code >> 3 & 15, mantissa = code & 7;
            const uint32_t j = v / 16 * 8 + v % 8;
            const double scale = code == 127 ? 0 : exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
            const float expected = (float)(scale * level[v % 16 < 8 ? j & 15 : 15 - (j & 15)]);
            assert_true(y[v] == expected);
        }
    }
}

/* The scale that loses the least, also where it is one of the few subnormal ones; nothing above 2688 is taken. */
static void test_encoder_of_nvfp4(void **state)
{
    (void)state;
    float x[64] = { 2688, [16] = 6, -3, [32] = 0x1p-9f, [48] = 0.013f };
    uint8_t block[36];
    char text[128] = "";
    const struct wk_err err = { text, sizeof text };
    assert_int_equal(format_call_quantize(nvfp4_quantize, block, x, 64, &err), WK_OK);
    assert_int_equal(block[0], 126);
    assert_int_equal(block[4] & 15, 7);
    float y[64];
    format_call_dequantize(nvfp4_dequantize, y, block, 64);
    assert_true(y[0] == 2688 && y[16] == 6 && y[17] == -3 && y[32] == 0x1p-9f);
    assert_true(fabsf(y[48] - x[48]) < 1e-3f);
    x[63] = nextafterf(2688, 4000);
    assert_int_equal(format_call_quantize(nvfp4_quantize, block, x, 64, &err), WK_INVALID);
    assert_non_null(strstr(text, "value 63"));
}

/* ---- the bits of a device's tiles (cuda/mxfp4_bits.h) -------------------------------------------------- */

static uint32_t noise(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static void test_device_words(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (uint32_t n = 0; n < 100000; n++) { /* 8 values as a word and back; each nibble alone in each place first */
        uint8_t q[8] = { 0 };
        uint32_t pair[4] = { 0 }, back[4];
        for (uint32_t i = 0; i < 8; i++) q[i] = (uint8_t)(n < 128 ? (i == n / 16 ? n % 16 : 0) : noise(&random) >> 28);
        for (uint32_t i = 0; i < 8; i++) pair[i / 2] |= mxfp4_half(q[i]) << 16 * (i % 2);
        const uint32_t word = mxfp4_word(pair);
        mxfp4_pairs(word, back);
        assert_memory_equal(back, pair, sizeof pair);
        for (uint32_t i = 0; i < 8; i++) assert_int_equal(mxfp4_nibble(back[i / 2], i % 2), q[i]);
        const uint32_t any = noise(&random);
        mxfp4_pairs(any, back);
        assert_int_equal(mxfp4_word(back), any); /* and no word is left over */
    }
}

/* What a product makes of each nibble under each exponent, against what dequantize does: f16 of the pair, times the
 * scale. */
static void test_device_values(void **state)
{
    (void)state;
    for (uint32_t e = 0; e < 256; e++)
        for (uint32_t place = 0; place < 4; place++) {
            const uint32_t b = place / 2, h = place % 2, other = (e * 37 + 11) & 255;
            uint32_t four[4] = { other, other ^ 255, other ^ 85, other ^ 170 };
            four[place] = e;
            const uint32_t word = mxfp4_exponents(four);
            for (uint32_t i = 0; i < 4; i++) assert_int_equal(mxfp4_exponent(word, i / 2, i % 2), four[i]);
            const uint32_t both = mxfp4_scale_pair(word, b);
            const float scale = wk_float_from_bits(h ? both & 0xffff0000u : both << 16);
            assert_int_equal(isfinite(scale) != 0, e <= 240);
            assert_true(e > 240 || isnormal(scale));
            for (uint32_t q = 0; e <= 240 && q < 16; q++) {
                uint8_t block[17] = { (uint8_t)e, (uint8_t)q };
                float y[32];
                format_call_dequantize(mxfp4_dequantize, y, block, 32);
                const float value = wk_half_to_float((uint16_t)mxfp4_half(q)) * scale;
                assert_true(value == y[0] || (isinf(value) && isinf(y[0])));
            }
        }
}

static void data_known_encoder(void **state)
{
    enum { N = 4096 };
    (void)state;
    uint8_t ours[N / 32 * 17];
    size_t n;
    char *source = data_read("quant/source.f32", &n), *theirs = data_read("quant/mxfp4.raw", NULL);
    assert_true(n >= N * sizeof(float));
    assert_int_equal(format_call_quantize(mxfp4_quantize, ours, (const float *)(const void *)source, N, NULL), WK_OK);
    assert_memory_equal(ours, theirs, sizeof ours);
    free(source);
    free(theirs);
}

/* One value beside a larger one that fixes the exponent: its nibble. */
static uint8_t encode(float largest, float x, uint8_t *e)
{
    float values[32] = { largest, x };
    uint8_t block[17];
    assert_int_equal(format_call_quantize(mxfp4_quantize, block, values, 32, NULL), WK_OK);
    *e = block[0];
    return block[2] & 15;
}

static void test_encoder_edges(void **state)
{
    static const float tie[7] = { 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5 };
    (void)state;
    uint8_t e;
    for (uint8_t i = 0; i < 7; i++) { /* the level nearer zero; a hair above, the next */
        assert_int_equal(encode(4, tie[i], &e), i);
        assert_int_equal(e, 127);
        assert_int_equal(encode(4, nextafterf(tie[i], 9), &e), i + 1);
        assert_int_equal(encode(4, -tie[i], &e), i ? 8 + i : 0);
        assert_int_equal(encode(4, -nextafterf(tie[i], 9), &e), 9 + i);
    }
    assert_int_equal(encode(nextafterf(8, 0), 8 - 0x1p-20f, &e), 7);
    assert_int_equal(e, 127);
    assert_int_equal(encode(FLT_MAX, -FLT_MAX, &e), 15);
    assert_int_equal(e, 252);
    assert_int_equal(encode(0, -0.0f, &e), 0);
    assert_int_equal(e, 0);
    assert_int_equal(encode(0x1p-127f, -0x1p-128f, &e), 9); /* the smallest exponent: steps of 2^-128 */
    assert_int_equal(e, 0);
}

static void call(void (*product)(const struct wk_cpu_product *), uint32_t act, const void *tile, const void *x,
                 float y[16])
{
    static _Alignas(64) struct wk_tile_scratch scratch;
    const struct wk_cpu_product p = { .struct_size = sizeof p,
                                      .activation = act,
                                      .k = 32,
                                      .n_rows = 1,
                                      .n_tiles = 1,
                                      .y_stride = 16,
                                      .tiles = tile,
                                      .x = x,
                                      .y = y,
                                      .scratch = &scratch };
    product(&p);
}

/* Row r of tile t has exponent 16 t + r and -6 in one place, where the activation is 1; a scale that no product takes
 * makes its row NaN. */
static void check_exponents(void (*product)(const struct wk_cpu_product *))
{
    float x[32] = { [19] = 1 };
    struct wk_activation_q8 q;
    wk_quantize_act_q8(x, 32, &q);
    for (uint32_t t = 0; t < 16; t++) {
        _Alignas(64) uint8_t tile[320];
        uint8_t rows[16][17] = { 0 };
        const void *from[16];
        for (uint32_t r = 0; r < 16; r++) {
            rows[r][0] = (uint8_t)(16 * t + r);
            rows[r][1 + 3] = 0xf0;
            from[r] = rows[r];
        }
        wk_layout_pack(&mxfp4_layout, tile, from, 32);
        float exact[16], near[16];
        call(product, WK_ACTIVATION_F32, tile, x, exact);
        call(product, WK_ACTIVATION_Q8, tile, &q, near);
        for (int r = 0; r < 16; r++) {
            const double w = ldexp(-6, 16 * (int)t + r - 127);
            assert_int_equal(isnan(exact[r]), 16 * t + (uint32_t)r >= 228);
            assert_int_equal(isnan(near[r]), 16 * t + (uint32_t)r >= 228);
            if (isnan(exact[r])) continue;
            assert_true((double)exact[r] == w);
            assert_true(fabs((double)near[r] - w) <= 1e-6 * fabs(w) + 0x1p-149);
        }
    }
}

static void test_exponents_in_products(void **state)
{
    (void)state;
    check_exponents(mxfp4_product_portable);
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    check_exponents(mxfp4_product_avx2);
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vnni"))
        return;
    check_exponents(mxfp4_product_avx512);
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value),      cmocka_unit_test(test_every_value_of_nvfp4),
        cmocka_unit_test(test_encoder_of_nvfp4), cmocka_unit_test(test_device_words),
        cmocka_unit_test(test_device_values),    cmocka_unit_test(data_known_encoder),
        cmocka_unit_test(test_encoder_edges),    cmocka_unit_test(test_exponents_in_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
