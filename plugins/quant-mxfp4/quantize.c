/* quant-mxfp4/quantize.c: the reference encoders; deterministic.
 *
 * MXFP4's exponent is that of the value farthest from zero, so that this becomes 4 to 6 times the scale (up to 8 is cut
 * to 6): the rule of OCP Microscaling Formats 1.0, and the bytes of the files' own tools. Values that are not finite
 * are refused; every other has a scale.
 *
 * NVFP4's scale is that of a few around a sixth of the value farthest from zero whose squares of errors are the least;
 * the largest is 448, so values beyond 448 * 6 and half a step are refused. */
#include <math.h>

#include <worker/cpu/encode.h>

#include "formats.h"

/* Scale and levels are powers of two times small integers: the comparisons are exact. A tie goes to the level nearer
 * zero. */
static uint8_t nibble(float x, float d)
{
    static const float between[7] = { 0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10 };
    uint8_t level = 0;
    for (uint32_t i = 0; i < 7; i++) level = (uint8_t)(level + (fabsf(x) > between[i] * d));
    return level && x < 0 ? level | 8 : level;
}

wk_status mxfp4_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < n; i += 32, b += 17) {
        float max = 0;
        for (uint32_t j = 0; j < 32; j++) max = fmaxf(max, fabsf(x[i + j]));
        const uint32_t exponent = wk_float_bits(max) >> 23; /* 127 means 1 <= max < 2 */
        b[0] = (uint8_t)(exponent > 2 ? exponent - 2 : 0);
        const float d = wk_exponent_to_float(b[0]);
        for (uint32_t j = 0; j < 16; j++) b[1 + j] = (uint8_t)(nibble(x[i + j], d) | nibble(x[i + j + 16], d) << 4);
    }
    return status;
}

/* ---- NVFP4 --------------------------------------------------------------------------------------------- */

static float error_of(const float *x, const float *w, float half)
{
    static const float twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    float error = 0;
    for (uint32_t i = 0; i < 16; i++) {
        const float miss = x[i] - half * twice[nibble(x[i], half)];
        error += w[i] * miss * miss;
    }
    return error;
}

/* Scales are in the order of their codes, 0 .. 126. */
static uint8_t scale_of(const float *x, const float *w)
{
    float most = 0, least = INFINITY;
    uint8_t first = 0, best = 0;
    for (uint32_t i = 0; i < 16; i++) most = fmaxf(most, fabsf(x[i]));
    while (first < 126 && nvfp4_half_scale(first) * 12 < most) first++; /* the least that reaches it */
    for (int32_t code = first > 6 ? first - 6 : 0; code <= first + 6 && code <= 126; code++) {
        const float error = error_of(x, w, nvfp4_half_scale((uint8_t)code));
        if (error < least) {
            least = error;
            best = (uint8_t)code;
        }
    }
    return best;
}

wk_status nvfp4_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const wk_status status = wk_check_finite(in->x, in->n, err);
    if (status) return status;
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i++)
        if (fabsf(in->x[i]) > 2688)
            return wk_fail(err, WK_INVALID, "value %llu is %g: nvfp4 holds at most 2688", (unsigned long long)i,
                           (double)in->x[i]);
    for (uint64_t i = 0; i < in->n; i += 16) {
        const float *x = in->x + i;
        uint8_t *block = b + i / 64 * 36, *n = block + 4 + i / 16 % 4 * 8, *s = block + i / 16 % 4;
        *s = scale_of(x, wk_error_costs(in, i, 16));
        const float half = nvfp4_half_scale(*s);
        for (uint32_t j = 0; j < 8; j++) n[j] = (uint8_t)(nibble(x[j], half) | nibble(x[j + 8], half) << 4);
    }
    return WK_OK;
}
