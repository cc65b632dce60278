/* test_act_q8.c: 8-bit activations: the definition itself, and that every instruction set gives its bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <worker/cpu/act_q8.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* act_q8_avx2.c, act_q8_avx512.c */
void act_q8_avx2(const float *x, uint32_t k, struct wk_activation_q8 *y);
void act_q8_avx512(const float *x, uint32_t k, struct wk_activation_q8 *y);

enum { MOST = 160 };

static uint64_t state_ = 88172645463325252u;

static uint32_t bits(void)
{
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (uint32_t)(state_ >> 32);
}

/* Rows that have gone wrong somewhere: zeros of both signs, ties, one large value, subnormal maxima, the edges of the
 * float range, NaN, infinities, arbitrary bit patterns. */
static void make_row(float *x, uint32_t n, uint32_t kind)
{
    for (uint32_t i = 0; i < n; i++) {
        const float u = (float)bits() * 0x1p-31f - 1;
        switch (kind) {
        case 0: x[i] = i % 2 ? 0.0f : -0.0f; break;
        case 1: x[i] = i % 32 ? (float)(int32_t)(bits() % 254) - 126.5f : 127; break; /* scale 1: every value a tie */
        case 2: x[i] = i % 32 == 7 ? -3e38f : u; break;
        case 3: x[i] = u * 1e-39f; break;
        case 4: x[i] = u * 4e-37f; break; /* about where 127 / max overflows */
        case 5: x[i] = i == n / 2 ? NAN : u; break;
        case 6: x[i] = i == n - 1 ? -INFINITY : u; break;
        case 7: x[i] = wk_float_from_bits(bits()); break;
        default: x[i] = u * powf(2, (float)(bits() % 20)); break;
        }
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2"),
              avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    for (uint32_t round = 0; round < 20000; round++) {
        const uint32_t n = 1 + bits() % MOST;
        float x[MOST];
        struct wk_activation_q8 expected[MOST / 32], y[MOST / 32];
        make_row(x, n, round % 10);
        memset(expected, 0x5a, sizeof expected);
        wk_quantize_act_q8(x, n, expected);
        memset(y, 0x5a, sizeof y);
        if (avx2) {
            act_q8_avx2(x, n, y);
            assert_memory_equal(y, expected, sizeof y);
        }
        memset(y, 0x5a, sizeof y);
        if (avx512) {
            act_q8_avx512(x, n, y);
            assert_memory_equal(y, expected, sizeof y);
        }
    }
}

static void test_definition(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 2000; round++) {
        const uint32_t n = 1 + bits() % 32;
        float x[32], max = 0;
        struct wk_activation_q8 y;
        make_row(x, n, 8);
        wk_quantize_act_q8(x, n, &y);
        int32_t sum[2] = { 0, 0 };
        for (uint32_t i = 0; i < n; i++) max = fmaxf(max, fabsf(x[i]));
        for (uint32_t i = 0; i < 32; i++) {
            sum[i / 16] += y.q[i];
            assert_int_equal(y.q[i], i < n ? (int)rintf(x[i] * (127 / max)) : 0);
        }
        assert_true(y.d == max / 127);
        assert_int_equal(y.sum[0], sum[0]);
        assert_int_equal(y.sum[1], sum[1]);
    }
}

static void test_edges(void **state)
{
    (void)state;
    static const struct wk_activation_q8 zero;
    struct wk_activation_q8 y;
    float x[32] = { 0 };
    wk_quantize_act_q8(x, 32, &y);
    assert_memory_equal(&y, &zero, sizeof y);
    x[3] = 1e-38f;
    wk_quantize_act_q8(x, 32, &y);
    assert_memory_equal(&y, &zero, sizeof y);
    x[3] = NAN;
    wk_quantize_act_q8(x, 32, &y);
    assert_true(isnan(y.d));
    x[3] = 127;
    x[4] = 0.5f;
    x[5] = 1.5f;
    x[6] = -2.5f;
    wk_quantize_act_q8(x, 32, &y);
    assert_true(y.d == 1 && y.q[3] == 127 && y.q[4] == 0 && y.q[5] == 2 && y.q[6] == -2);
}

/* Every half, and the floats around the borders between two halves. */
static void test_halves(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = wk_half_to_float((uint16_t)h);
        const uint32_t exponent = h >> 10 & 31;
        if (exponent == 31) {
            assert_true(h & 1023 ? isnan(f) : isinf(f));
            if (h & 1023) assert_true(isnan(wk_half_to_float(wk_float_to_half(f))));
            continue;
        }
        const double magnitude = exponent ? ldexp(1024 + (h & 1023), (int)exponent - 25) : ldexp(h & 1023, -24);
        assert_true((double)f == (h & 0x8000 ? -magnitude : magnitude) && !signbit(f) == !(h & 0x8000));
        assert_int_equal(wk_float_to_half(f), h);
        if (h & 0x8000) continue;
        const double next = exponent == 30 && (h & 1023) == 1023 ? 65536 : (double)wk_half_to_float((uint16_t)(h + 1));
        const float middle = (float)((magnitude + next) / 2);
        assert_int_equal(wk_float_to_half(nextafterf(middle, 0)), h);
        assert_int_equal(wk_float_to_half(middle), h + (h & 1));
        assert_int_equal(wk_float_to_half(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(wk_float_to_bf16(wk_float_from_bits(0x3f808000u)), 0x3f80);
    assert_int_equal(wk_float_to_bf16(wk_float_from_bits(0x3f818000u)), 0x3f82);
    assert_int_equal(wk_float_to_bf16(wk_float_from_bits(0x3f808001u)), 0x3f81);
    assert_true(isnan(wk_bf16_to_float(wk_float_to_bf16(wk_float_from_bits(0x7f800001u)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
