/* quant-mxfp4/quantize.c: the reference encoder; deterministic.
 *
 * The exponent is that of the value farthest from zero, so that this becomes 4 to 6 times the scale (up to 8 is cut to
 * 6): the rule of OCP Microscaling Formats 1.0, and the bytes of the files' own tools. Values that are not finite are
 * refused; every other has a scale. */
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
