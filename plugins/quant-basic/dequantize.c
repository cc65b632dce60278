/* quant-basic/dequantize.c: the reference values, straight from the formats' definitions. Nothing here knows tiles. */
#include "formats.h"

void f32_dequantize(const struct wk_dequantize *in) { memcpy(in->y, in->blocks, in->n * sizeof *in->y); }

void f16_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    for (uint64_t i = 0; i < n; i++) y[i] = wk_load_half((const uint8_t *)in->blocks + 2 * i);
}

void bf16_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    for (uint64_t i = 0; i < n; i++) y[i] = wk_bf16_to_float(wk_load_u16((const uint8_t *)in->blocks + 2 * i));
}

void q8_0_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 34) {
        const float d = wk_load_half(b);
        for (uint32_t j = 0; j < 32; j++) y[i + j] = (float)(int8_t)b[2 + j] * d;
    }
}

/* Value j of 16 nibble bytes, 0..31. */
static int32_t nibble(const uint8_t *bytes, uint32_t j) { return j < 16 ? bytes[j] & 15 : bytes[j - 16] >> 4; }

/* The same with bit j of h as fifth bit. */
static int32_t nibble_and_bit(const uint8_t *bytes, uint32_t h, uint32_t j)
{
    return nibble(bytes, j) | (int32_t)(h >> j & 1u) << 4;
}

void q4_0_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 18) {
        const float d = wk_load_half(b);
        for (uint32_t j = 0; j < 32; j++) y[i + j] = (float)(nibble(b + 2, j) - 8) * d;
    }
}

void q4_1_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 20) {
        const float d = wk_load_half(b), m = wk_load_half(b + 2);
        for (uint32_t j = 0; j < 32; j++) y[i + j] = (float)nibble(b + 4, j) * d + m;
    }
}

void q5_0_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 22) {
        const float d = wk_load_half(b);
        const uint32_t h = wk_load_u32(b + 2);
        for (uint32_t j = 0; j < 32; j++) y[i + j] = (float)(nibble_and_bit(b + 6, h, j) - 16) * d;
    }
}

void q5_1_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < n; i += 32, b += 24) {
        const float d = wk_load_half(b), m = wk_load_half(b + 2);
        const uint32_t h = wk_load_u32(b + 4);
        for (uint32_t j = 0; j < 32; j++) y[i + j] = (float)nibble_and_bit(b + 8, h, j) * d + m;
    }
}
