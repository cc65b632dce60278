/* quant-iq/dequantize.c: the reference values, straight from the formats' definitions. Nothing here knows tiles. */
#include "formats.h"
#include "grid_iq1.h"
#include "grid_iq2.h"
#include "grid_iq3.h"

/* Seven signs and the eighth that makes their number even. */
static uint32_t eight_signs(uint32_t seven)
{
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1u) << 7;
}

static float signed_level(float scale, int32_t level, uint32_t minus)
{
    return scale * (float)(minus ? -level : level);
}

/* Eight values of IQ2 and of IQ1, four of IQ3. */
static void eight_of_iq2(float *y, float scale, uint32_t point, uint32_t signs)
{
    static const uint8_t level[4] = { IQ2_LEVELS };
    for (uint32_t i = 0; i < 8; i++)
        y[i] = signed_level(scale, level[point >> (i % 4 * 4 + i / 4 * 2) & 3u], signs >> i & 1u);
}

static void eight_of_iq1(float *y, float scale, uint32_t point, uint32_t minus)
{
    const float shift = minus ? -0.125f : 0.125f;
    for (uint32_t i = 0; i < 8; i++) {
        const int32_t level = (int32_t)(point >> (i % 4 * 4 + i / 4 * 2) & 3u) - 1;
        y[i] = scale * ((float)level + shift);
    }
}

static void four_of_iq3(float *y, float scale, const uint8_t level[8], uint32_t point, uint32_t signs)
{
    for (uint32_t i = 0; i < 4; i++) y[i] = signed_level(scale, level[point >> 4 * i & 7u], signs >> i & 1u);
}

static uint32_t nibble(const uint8_t *bytes, uint32_t i) { return bytes[i / 2] >> i % 2 * 4 & 15u; }

void iq2_xxs_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 66)
        for (uint32_t g = 0; g < 32; g++) {
            const uint8_t *w = b + 2 + g / 4 * 8;
            const uint32_t last = wk_load_u32(w + 4);
            eight_of_iq2(in->y + i + (uint64_t)8 * g, wk_load_half(b) * ((float)(last >> 28) + 0.5f) * 0.25f,
                         iq2_xxs_grid[w[g % 4]], eight_signs(last >> g % 4 * 7 & 127u));
        }
}

void iq2_xs_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 74)
        for (uint32_t g = 0; g < 32; g++) {
            const uint32_t q = wk_load_u16(b + 2 + 2 * g);
            eight_of_iq2(in->y + i + (uint64_t)8 * g, wk_load_half(b) * ((float)nibble(b + 66, g / 2) + 0.5f) * 0.25f,
                         iq2_xs_grid[q & 511u], eight_signs(q >> 9));
        }
}

void iq2_s_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 82)
        for (uint32_t g = 0; g < 32; g++) {
            const uint32_t index = b[2 + g] | (b[66 + g / 4] >> g % 4 * 2 & 3u) << 8;
            eight_of_iq2(in->y + i + (uint64_t)8 * g, wk_load_half(b) * ((float)nibble(b + 74, g / 2) + 0.5f) * 0.25f,
                         iq2_s_grid[index], b[34 + g]);
        }
}

void iq3_xxs_dequantize(const struct wk_dequantize *in)
{
    static const uint8_t level[8] = { IQ3_XXS_LEVELS };
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 98)
        for (uint32_t f = 0; f < 64; f++) {
            const uint32_t last = wk_load_u32(b + 66 + f / 8 * 4);
            four_of_iq3(in->y + i + (uint64_t)4 * f, wk_load_half(b) * ((float)(last >> 28) + 0.5f) * 0.5f, level,
                        iq3_xxs_grid[b[2 + f]], eight_signs(last >> f % 8 / 2 * 7 & 127u) >> f % 2 * 4);
        }
}

void iq3_s_dequantize(const struct wk_dequantize *in)
{
    static const uint8_t level[8] = { 1, 3, 5, 7, 9, 11, 13, 15 };
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 110)
        for (uint32_t f = 0; f < 64; f++) {
            const uint32_t index = b[2 + f] | (b[66 + f / 8] >> f % 8 & 1u) << 8;
            four_of_iq3(in->y + i + (uint64_t)4 * f, wk_load_half(b) * (float)(2 * nibble(b + 106, f / 8) + 1), level,
                        iq3_s_grid[index], (uint32_t)b[74 + f / 2] >> f % 2 * 4);
        }
}

void iq1_s_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 50)
        for (uint32_t g = 0; g < 32; g++) {
            const uint32_t h = wk_load_u16(b + 34 + g / 4 * 2);
            eight_of_iq1(in->y + i + (uint64_t)8 * g, wk_load_half(b) * (float)(2 * (h >> 12 & 7u) + 1),
                         iq1_grid[b[2 + g] | (h >> g % 4 * 3 & 7u) << 8], h >> 15);
        }
}

void iq1_m_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = in->blocks;
    for (uint64_t i = 0; i < in->n; i += 256, b += 56) {
        uint32_t d = 0;
        for (uint32_t j = 0; j < 4; j++) d |= (uint32_t)(wk_load_u16(b + 48 + 2 * j) >> 12) << 4 * j;
        for (uint32_t g = 0; g < 32; g++) {
            const uint32_t h = nibble(b + 32, g), s = wk_load_u16(b + 48 + g / 8 * 2) >> g / 2 % 4 * 3 & 7u;
            eight_of_iq1(in->y + i + (uint64_t)8 * g, wk_half_to_float((uint16_t)d) * (float)(2 * s + 1),
                         iq1_grid[b[g] | (h & 7u) << 8], h >> 3);
        }
    }
}
