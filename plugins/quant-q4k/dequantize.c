/* quant-q4k/dequantize.c: the reference values, straight from the formats' definitions. Nothing here knows tiles.
 *
 * Bit-exactness needs the order of operations too: (d * scale) * q - (dmin * min), each rounded to float. */
#include "formats.h"

/* Scale and minimum j of the 12 bytes that Q4_K and Q5_K share. */
static void k4_scale(const uint8_t *sc, uint32_t j, float *scale, float *min)
{
    if (j < 4) {
        *scale = (float)(sc[j] & 63);
        *min = (float)(sc[j + 4] & 63);
    } else {
        *scale = (float)((sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4);
        *min = (float)((sc[j + 4] >> 4) | (sc[j] >> 6) << 4);
    }
}

/* qh: NULL for Q4_K. */
static void k4_block(float *y, const uint8_t *b, const uint8_t *qh, const uint8_t *qs)
{
    const float d = wk_load_half(b), dmin = wk_load_half(b + 2);
    for (uint32_t j = 0; j < 8; j++) {
        float scale, min;
        k4_scale(b + 4, j, &scale, &min);
        scale *= d;
        min *= dmin;
        for (uint32_t l = 0; l < 32; l++) {
            int32_t q = qs[j / 2 * 32 + l] >> (j % 2 ? 4 : 0) & 15;
            if (qh) q |= (qh[l] >> j & 1) << 4;
            y[j * 32 + l] = scale * (float)q - min;
        }
    }
}

void q4_K_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 256, b += 144) k4_block(y + i, b, NULL, b + 16);
}

void q5_K_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 256, b += 176) k4_block(y + i, b, b + 16, b + 48);
}

void q6_K_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 256, b += 210) {
        const float d = wk_load_half(b + 208);
        for (uint32_t v = 0; v < 256; v++) {
            const uint32_t half = v / 128, quarter = v / 32 % 4, l = v % 32;
            const int32_t low = b[64 * half + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
            const int32_t high = b[128 + 32 * half + l] >> (2 * quarter) & 3;
            y[i + v] = d * (float)(int8_t)b[192 + v / 16] * (float)((low | high << 4) - 32);
        }
    }
}

void q2_K_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 256, b += 84) {
        const float d = wk_load_half(b + 80), dmin = wk_load_half(b + 82);
        for (uint32_t v = 0; v < 256; v++) {
            const float scale = d * (float)(b[v / 16] & 15), min = dmin * (float)(b[v / 16] >> 4);
            const int32_t q = b[16 + v / 128 * 32 + v % 32] >> (2 * (v / 32 % 4)) & 3;
            y[i + v] = scale * (float)q - min;
        }
    }
}

/* Six-bit scale s of Q3_K, 0..63. */
static int32_t q3_K_scale(const uint8_t *sc, uint32_t s)
{
    const int32_t low = s < 8 ? sc[s] & 15 : sc[s - 8] >> 4;
    return low | (sc[8 + s % 4] >> (2 * (s / 4)) & 3) << 4;
}

void q3_K_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 256, b += 110) {
        const float d = wk_load_half(b + 108);
        for (uint32_t v = 0; v < 256; v++) {
            const float scale = d * (float)(q3_K_scale(b + 96, v / 16) - 32);
            const int32_t low = b[32 + v / 128 * 32 + v % 32] >> (2 * (v / 32 % 4)) & 3;
            const int32_t high = b[v % 32] >> (v / 32) & 1;
            y[i + v] = scale * (float)(low + 4 * high - 4);
        }
    }
}
