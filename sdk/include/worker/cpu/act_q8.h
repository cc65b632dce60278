/* worker/cpu/act_q8.h: how a row of floats becomes struct wk_activation_q8, the definition that every instruction set
 * reproduces bit for bit.
 *
 * Per 32 values, in float: m = max|x|; d = m / 127; i = 127 / m; q = x * i rounded to nearest even; sums of q by
 * halves.
 *   - m so small that i is not finite (m < 127 / FLT_MAX): the block is zero, d included;
 *   - a NaN or an infinity among the 32: d = NaN and q = 0, so every product with this row is NaN and the host can
 *       tell;
 *   - values past k count as 0.
 * AVX2 and AVX-512 forms: act_q8_avx2.h, act_q8_avx512.h. */
#ifndef WORKER_CPU_ACT_Q8_H
#define WORKER_CPU_ACT_Q8_H

#include <math.h>

#include <worker/cpu/half.h>
#include <worker/quant.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The block's scale and the factor for its values; false if the block is zero or not finite, and
 * then *y is complete. */
static inline int wk_activation_q8_scale(float max, int finite, struct wk_activation_q8 *y, float *inverse)
{
    *inverse = 127.0f / max;
    if (finite && *inverse <= 3.402823466e38f) {
        y->d = max / 127.0f;
        return 1;
    }
    memset(y, 0, sizeof *y);
    if (!finite) y->d = wk_float_from_bits(0x7fc00000u);
    return 0;
}

/* One block of n <= 32 values. */
static inline void wk_quantize_act_q8_block(const float *x, uint32_t n, struct wk_activation_q8 *y)
{
    float max = 0, inverse;
    int finite = 1;
    for (uint32_t i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        if (!(a <= 3.402823466e38f)) finite = 0;
        if (a > max) max = a;
    }
    if (!wk_activation_q8_scale(max, finite, y, &inverse)) return;
    int sum[2] = { 0, 0 };
    for (uint32_t i = 0; i < WK_ACTIVATION_BLOCK; i++) {
        /* Adding 1.5 * 2^23 leaves the nearest integer in the low bits, ties to even, without a library call. */
        const float shifted = (i < n ? x[i] * inverse : 0.0f) + 0x1.8p23f;
        const int q = (int)(wk_float_bits(shifted) - 0x4b400000u);
        y->q[i] = (int8_t)q;
        sum[i / 16] += q;
    }
    y->sum[0] = (int16_t)sum[0];
    y->sum[1] = (int16_t)sum[1];
}

/* x: [k]; y: [ceil(k / 32)]. [any thread] */
static inline void wk_quantize_act_q8(const float *x, uint32_t k, struct wk_activation_q8 *y)
{
    for (uint32_t i = 0; i < k; i += WK_ACTIVATION_BLOCK)
        wk_quantize_act_q8_block(x + i, k - i < WK_ACTIVATION_BLOCK ? k - i : WK_ACTIVATION_BLOCK, y++);
}

#ifdef __cplusplus
}
#endif
#endif
