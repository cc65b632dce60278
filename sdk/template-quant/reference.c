/* reference.c: what the bits mean, and how they are made. Nothing here knows tiles, and speed does not count: this is
 * the definition that everything else is checked against, the same floats on every machine. */
#include <math.h>

#include <worker/cpu/encode.h>

#include "format.h"

static const float levels[16] = { LEVELS };

/* Blocks have any alignment in a file: they are read byte by byte. */
void format_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = (const uint8_t *)in->blocks;
    for (uint64_t i = 0; i < in->n; i += BLOCK, b += BLOCK_BYTES) {
        const float d = wk_load_half(b);
        for (uint32_t j = 0; j < BLOCK / 2; j++) {
            in->y[i + j] = d * levels[b[2 + j] & 15];
            in->y[i + j + BLOCK / 2] = d * levels[b[2 + j] >> 4];
        }
    }
}

/* The level nearest to v; between two, the lower one. */
static uint32_t nearest(float v)
{
    uint32_t q = 0;
    while (q < 15 && v > 0.5f * (levels[q] + levels[q + 1])) q++;
    return q;
}

/* The scale of a block: the one that takes the farthest value to the last level, and then, with the levels that follow
 * from it, the one that makes the sum of squared errors least. costs: of an error in each value. */
static float scale_of(const float *x, const float *costs)
{
    float far = 0, qx = 0, qq = 0;
    for (uint32_t i = 0; i < BLOCK; i++) far = fmaxf(far, fabsf(x[i]));
    const float inverse = 127.0f / far;
    if (!(inverse <= 3.402823466e38f)) return 0; /* all zero, or nearly */
    for (uint32_t i = 0; i < BLOCK; i++) {
        const float q = levels[nearest(x[i] * inverse)];
        qx += costs[i] * q * x[i];
        qq += costs[i] * q * q;
    }
    return qq > 0 ? qx / qq : far / 127.0f;
}

wk_status format_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    wk_status status = wk_check_finite(in->x, in->n, err); /* NaN and infinity are refused by their index */
    uint8_t *b = (uint8_t *)in->blocks;
    for (uint64_t i = 0; !status && i < in->n; i += BLOCK, b += BLOCK_BYTES) {
        const float *x = in->x + i;
        status = wk_store_half(b, scale_of(x, wk_error_costs(in, i, BLOCK)), i, err);
        if (status) break;
        const float d = wk_load_half(b), inverse = d > 0 ? 1 / d : 0; /* what a reader will see */
        for (uint32_t j = 0; j < BLOCK / 2; j++)
            b[2 + j] = (uint8_t)(nearest(x[j] * inverse) | nearest(x[j + BLOCK / 2] * inverse) << 4);
    }
    return status;
}
