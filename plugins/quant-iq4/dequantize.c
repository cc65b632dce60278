/* quant-iq4/dequantize.c: the reference values, straight from the formats' definitions. Nothing here knows tiles.
 *
 * Bit-exactness needs the order of operations, too: (d * (s - 32)) * level, each rounded to float. */
#include "formats.h"

/* 32 values from 16 bytes. */
static void levels(float *y, const uint8_t *n, float d)
{
    static const int8_t level[16] = { IQ4_LEVELS };
    for (uint32_t j = 0; j < 16; j++) {
        y[j] = d * (float)level[n[j] & 15];
        y[j + 16] = d * (float)level[n[j] >> 4];
    }
}

void iq4_nl_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 18) levels(y + i, b + 2, wk_load_half(b));
}

void iq4_xs_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 256, b += 136) {
        const float d = wk_load_half(b);
        const uint32_t high = wk_load_u16(b + 2);
        for (uint32_t j = 0; j < 8; j++) {
            const int32_t s = (b[4 + j / 2] >> (4 * (j % 2)) & 15) | (int32_t)(high >> 2 * j & 3u) << 4;
            levels(y + i + (uint64_t)32 * j, b + 8 + 16 * j, d * (float)(s - 32));
        }
    }
}
