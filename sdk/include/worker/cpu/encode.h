/* worker/cpu/encode.h: what every reference encoder needs: refusing what cannot be
 * encoded, storing halves, rounding. */
#ifndef WORKER_CPU_ENCODE_H
#define WORKER_CPU_ENCODE_H

#include <worker/cpu/half.h>
#include <worker/quant.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Nearest integer, ties to even, for |x| < 2^22: inline and the same everywhere. */
static inline float wk_round(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

static inline float wk_clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* WK_INVALID with the index and value of the first NaN or infinity. */
static inline wk_status wk_check_finite(const float *x, uint64_t n, const struct wk_err *err)
{
    for (uint64_t i = 0; i < n; i++) {
        if ((wk_float_bits(x[i]) & 0x7f800000u) == 0x7f800000u)
            return wk_fail(err, WK_INVALID, "value %llu is %g: only finite values can be encoded",
                           (unsigned long long)i, (double)x[i]);
    }
    return WK_OK;
}

/* WK_INVALID if the value, a scale or minimum of the block at index `at`, is beyond what a half holds; stored
 * otherwise. */
static inline wk_status wk_store_half(uint8_t *to, float value, uint64_t at, const struct wk_err *err)
{
    const uint16_t h = wk_float_to_half(value);
    if ((h & 0x7c00u) == 0x7c00u)
        return wk_fail(err, WK_INVALID, "the block at value %llu needs %g as a half, which holds at most 65504",
                       (unsigned long long)at, (double)value);
    memcpy(to, &h, sizeof h);
    return WK_OK;
}

#define WK_ENCODE_ONES 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
/* What an error in each of the n values from index `at` on costs, n at most 32: 1 where the caller gave no importance,
 * or where none of these columns has any. */
static inline const float *wk_error_costs(const struct wk_quantize *q, uint64_t at, uint32_t n)
{
    static const float ones[32] = { WK_ENCODE_ONES, WK_ENCODE_ONES };
    const float *w = q->importance ? q->importance + at % q->row_length : ones;
    for (uint32_t i = 0; i < n; i++)
        if (w[i] > 0) return w;
    return ones;
}
#undef WK_ENCODE_ONES

#ifdef __cplusplus
}
#endif
#endif
