/* quant-mxfp4/dequantize.c: the reference values, straight from the formats' definitions. Nothing here knows tiles. */
#include "formats.h"

static const int8_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

void mxfp4_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 17) {
        const float d = wk_exponent_to_float(b[0]);
        for (uint32_t j = 0; j < 16; j++) {
            y[i + j] = (float)twice[b[1 + j] & 15] * d;
            y[i + j + 16] = (float)twice[b[1 + j] >> 4] * d;
        }
    }
}

void nvfp4_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 64, b += 36)
        for (uint32_t v = 0; v < 64; v++) {
            const uint8_t byte = b[4 + v / 16 * 8 + v % 8];
            in->y[i + v] = nvfp4_half_scale(b[v / 16]) * (float)twice[v % 16 < 8 ? byte & 15 : byte >> 4];
        }
}
