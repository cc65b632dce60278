/* quant-tq/dequantize.c: the reference values, straight from the formats' definitions. Nothing here knows tiles. */
#include "formats.h"

static float value(float d, uint32_t q) { return d * (float)((int32_t)q - 1); }

static uint32_t digit(uint8_t byte, uint32_t n)
{
    static const uint32_t power[5] = { 1, 3, 9, 27, 81 };
    return (byte * power[n] & 255u) * 3 >> 8;
}

void tq1_0_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 54) {
        const float d = wk_load_half(b + 52);
        float *y = in->y + i;
        for (uint32_t v = 0; v < 160; v++) y[v] = value(d, digit(b[v % 32], v / 32));
        for (uint32_t v = 0; v < 80; v++) y[160 + v] = value(d, digit(b[32 + v % 16], v / 16));
        for (uint32_t v = 0; v < 16; v++) y[240 + v] = value(d, digit(b[48 + v % 4], v / 4));
    }
}

void tq2_0_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 66) {
        const float d = wk_load_half(b + 64);
        for (uint32_t v = 0; v < 256; v++) in->y[i + v] = value(d, b[v / 128 * 32 + v % 32] >> v / 32 % 4 * 2 & 3u);
    }
}
