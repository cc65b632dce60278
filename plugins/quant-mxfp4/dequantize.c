/* quant-mxfp4/dequantize.c: the reference values, straight from the format's definition. Nothing here knows tiles. */
#include "formats.h"

void mxfp4_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    static const int8_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 17) {
        const float d = wk_exponent_to_float(b[0]);
        for (uint32_t j = 0; j < 16; j++) {
            y[i + j] = (float)twice[b[1 + j] & 15] * d;
            y[i + j + 16] = (float)twice[b[1 + j] >> 4] * d;
        }
    }
}
