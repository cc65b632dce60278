/* test_rope.c: the SDK's scalings of rotary frequencies against published numbers. */
#include <worker/rope.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void near(double x, double expected, double relative)
{
    if (fabs(x - expected) > relative * fabs(expected)) fail_msg("%.12g, expected %.12g", x, expected);
}

static void plain(void **state)
{
    (void)state;
    double f[32];
    wk_rope_frequencies(f, 32, 10000);
    near(f[0], 1.0, 1e-15);
    near(f[16], 0.01, 1e-12);
    near(f[31], pow(10000, -62.0 / 64), 1e-12);
}

static void stretched_and_divided(void **state)
{
    (void)state;
    double f[4] = { 1, 0.5, 0.25, 0.125 };
    const float factor[4] = { 1, 2, 4, 8 };
    wk_rope_scale_linear(f, 4, 2);
    near(f[3], 0.0625, 1e-15);
    wk_rope_scale_factors(f, 4, factor);
    near(f[0], 0.5, 1e-15);
    near(f[3], 0.0078125, 1e-15);
}

/* gpt-oss: 64 rotating values, base 150000, 32 times 4,096 positions. */
static const struct wk_yarn gpt_oss = {
    .base = 150000, .factor = 32, .original_context = 4096, .beta_fast = 32, .beta_slow = 1, .extrapolation = 1
};

static void yarn_bounds(void **state)
{
    (void)state;
    double low, high;
    wk_yarn_bounds(&gpt_oss, 32, &low, &high);
    near(low, 8.092779, 1e-7);
    near(high, 17.398025, 1e-7);
    struct wk_yarn rounded = gpt_oss;
    rounded.rounded = 1;
    wk_yarn_bounds(&rounded, 32, &low, &high);
    near(low, 8, 1e-15);
    near(high, 18, 1e-15);
    struct wk_yarn tiny = gpt_oss; /* clamped where the original context is short */
    tiny.original_context = 8;
    wk_yarn_bounds(&tiny, 32, &low, &high);
    assert_true(low == 0.0 && high > 0.0 && high < 1.0);
    struct wk_yarn small_base = gpt_oss;
    small_base.base = 2;
    wk_yarn_bounds(&small_base, 32, &low, &high);
    near(high, 63, 1e-15);
    near(wk_yarn_mscale(32), 1.3465736, 1e-7);
    near(wk_yarn_mscale(1), 1, 1e-15);
}

static void yarn_mixes(void **state)
{
    (void)state;
    double f[32], plain[32];
    wk_rope_frequencies(plain, 32, 150000);
    wk_rope_frequencies(f, 32, 150000);
    wk_rope_yarn(f, 32, &gpt_oss);
    for (int i = 0; i <= 8; i++) near(f[i], plain[i], 1e-15);       /* turns often: kept */
    for (int i = 18; i < 32; i++) near(f[i], plain[i] / 32, 1e-15); /* turns less than once: stretched */
    double ramp = (12 - 8.092779) / (17.398025 - 8.092779);
    near(f[12], plain[12] / 32 * ramp + plain[12] * (1 - ramp), 1e-6);
    struct wk_yarn none = gpt_oss;
    none.extrapolation = 0;
    wk_rope_frequencies(f, 32, 150000);
    wk_rope_yarn(f, 32, &none);
    near(f[0], plain[0] / 32, 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(plain), cmocka_unit_test(stretched_and_divided),
                                        cmocka_unit_test(yarn_bounds), cmocka_unit_test(yarn_mixes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
