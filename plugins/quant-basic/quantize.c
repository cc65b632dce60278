/* quant-basic/quantize.c: reference encoders. A block's scale comes from its largest value or its range; deterministic.
 *
 * Every encoder refuses values that are not finite, and values so large that a scale is beyond what a half can hold. */
#include <math.h>

#include <worker/cpu/encode.h>

#include "formats.h"

wk_status f32_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    if (!status) memcpy(in->blocks, x, n * sizeof *x);
    return status;
}

wk_status f16_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    for (uint64_t i = 0; !status && i < n; i++) status = wk_store_half((uint8_t *)in->blocks + 2 * i, x[i], i, err);
    return status;
}

wk_status bf16_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    for (uint64_t i = 0; !status && i < n; i++) {
        const uint16_t h = wk_float_to_bf16(x[i]);
        if ((h & 0x7f80u) == 0x7f80u)
            return wk_fail(err, WK_INVALID, "value %llu is %g: too large for BF16", (unsigned long long)i,
                           (double)x[i]);
        memcpy((uint8_t *)in->blocks + 2 * i, &h, 2);
    }
    return status;
}

wk_status q8_0_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < n; i += 32, b += 34) {
        float max = 0;
        for (uint32_t j = 0; j < 32; j++) max = fmaxf(max, fabsf(x[i + j]));
        const float d = max / 127.0f, inverse = d > 0 ? 1.0f / d : 0;
        status = wk_store_half(b, d, i, err);
        for (uint32_t j = 0; j < 32; j++)
            b[2 + j] = (uint8_t)(int8_t)roundf(fminf(fmaxf(x[i + j] * inverse, -127.0f), 127.0f));
    }
    return status;
}

/* 32 values of 4 or 5 bits to nibble bytes and the word of fifth bits. */
static uint32_t store_nibbles(uint8_t *to, const uint8_t q[32])
{
    uint32_t high = 0;
    for (uint32_t j = 0; j < 16; j++) to[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
    for (uint32_t j = 0; j < 32; j++) high |= (uint32_t)(q[j] >> 4) << j;
    return high;
}

static uint8_t level(float v, float top) { return (uint8_t)fminf(fmaxf(floorf(v + 0.5f), 0.0f), top); }

/* Q4_0, Q5_0: the value farthest from zero becomes -half exactly, so the longer side of the range serves its sign. */
static float encode_symmetric(const float *x, float half, uint8_t q[32])
{
    float max = 0;
    for (uint32_t j = 0; j < 32; j++) {
        if (fabsf(x[j]) > fabsf(max)) max = x[j];
    }
    const float d = max / -half, inverse = d != 0 ? 1.0f / d : 0;
    for (uint32_t j = 0; j < 32; j++) q[j] = level(x[j] * inverse + half, 2 * half - 1);
    return d;
}

/* Q4_1, Q5_1: the range [min, max] in equal steps. */
static float encode_range(const float *x, float top, uint8_t q[32], float *min)
{
    float low = x[0], high = x[0];
    for (uint32_t j = 1; j < 32; j++) {
        low = fminf(low, x[j]);
        high = fmaxf(high, x[j]);
    }
    const float d = (high - low) / top, inverse = d > 0 ? 1.0f / d : 0;
    for (uint32_t j = 0; j < 32; j++) q[j] = level((x[j] - low) * inverse, top);
    *min = low;
    return d;
}

wk_status q4_0_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks, q[32];
    for (uint64_t i = 0; !status && i < n; i += 32, b += 18) {
        const float d = encode_symmetric(x + i, 8, q);
        status = wk_store_half(b, d, i, err);
        store_nibbles(b + 2, q);
    }
    return status;
}

wk_status q5_0_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks, q[32];
    for (uint64_t i = 0; !status && i < n; i += 32, b += 22) {
        const float d = encode_symmetric(x + i, 16, q);
        status = wk_store_half(b, d, i, err);
        const uint32_t high = store_nibbles(b + 6, q);
        memcpy(b + 2, &high, 4);
    }
    return status;
}

wk_status q4_1_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks, q[32];
    for (uint64_t i = 0; !status && i < n; i += 32, b += 20) {
        float m;
        const float d = encode_range(x + i, 15, q, &m);
        status = wk_store_half(b, d, i, err);
        if (!status) status = wk_store_half(b + 2, m, i, err);
        store_nibbles(b + 4, q);
    }
    return status;
}

wk_status q5_1_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks, q[32];
    for (uint64_t i = 0; !status && i < n; i += 32, b += 24) {
        float m;
        const float d = encode_range(x + i, 31, q, &m);
        status = wk_store_half(b, d, i, err);
        if (!status) status = wk_store_half(b + 2, m, i, err);
        const uint32_t high = store_nibbles(b + 8, q);
        memcpy(b + 4, &high, 4);
    }
    return status;
}
