/* quant-iq/products.h: how records expand, and one product a type, for the instruction set that the including file has
 * chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name).
 *
 * Everywhere j is the 32-block within the 256, g the group of 8 values of it. A weight of IQ2 and IQ3 is its level with
 * its sign plus the largest level; of IQ1 eight times its level and shift, plus 9, with scales an eighth. */
#include "grid_iq1.h"
#include "grid_iq2.h"
#include "grid_iq3.h"

/* ---- signs ----------------------------------------------------------------------------------------------- */

/* Seven signs in each byte: with the eighth that makes their number even. */
WK_INLINE struct wk_v iq_even_signs(struct wk_v seven)
{
    static const uint8_t odd[16] = { 0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0 };
    return wk_or(seven, wk_look_up(wk_xor(seven, wk_field(seven, 4, 15)), 0, odd));
}

/* Of a word with seven signs of four groups from bit 0 on: those of group g in byte g. */
WK_INLINE struct wk_v iq_signs_of_word(struct wk_v w)
{
    const struct wk_v low = wk_or(wk_bits(w, 0, 0x7f), wk_bits(w, -1, 0x7f00)),
                      high = wk_or(wk_bits(w, -2, 0x7f0000), wk_bits(w, -3, 0x7f000000));
    return iq_even_signs(wk_or(low, high));
}

/* ---- IQ2 ------------------------------------------------------------------------------------------------- */

/* Eight values of the point, whose signs are byte g of `signs`. */
WK_INLINE void iq2_eight(struct wk_v index, const uint16_t *grid, struct wk_v signs, uint32_t g, struct wk_v *w)
{
    static const uint8_t low[16] = { 51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43 },
                         high[16] = { 51, 51, 51, 51, 68, 68, 68, 68, 86, 86, 86, 86, 43, 43, 43, 43 };
    const struct wk_v point = wk_look_up_nibbles(index, grid), minus = wk_spread(signs, g);
    w[2 * g] = wk_negate(wk_look_up(point, 0, low), minus, 0, 86);
    w[2 * g + 1] = wk_negate(wk_look_up(point, 0, high), minus, 4, 86);
}

WK_INLINE void iq2_xxs_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const struct wk_v q = wk_load(body + 128 * j), signs = iq_signs_of_word(wk_load(body + 128 * j + 64));
    for (uint32_t g = 0; g < 4; g++) iq2_eight(wk_bits(q, 8 * (int)g, 255), iq2_xxs_grid, signs, g, w);
}

WK_INLINE void iq2_xs_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const struct wk_v q[2] = { wk_load(body + 128 * j), wk_load(body + 128 * j + 64) };
    const struct wk_v signs = iq_even_signs(wk_or(wk_or(wk_bits(q[0], 9, 0x7f), wk_bits(q[0], 17, 0x7f00)),
                                                  wk_or(wk_bits(q[1], -7, 0x7f0000), wk_bits(q[1], 1, 0x7f000000))));
    for (uint32_t g = 0; g < 4; g++) iq2_eight(wk_bits(q[g / 2], 16 * (int)(g % 2), 511), iq2_xs_grid, signs, g, w);
}

/* Index bytes, sign bytes, then two bits more of each index: byte j of the words at 1024. */
WK_INLINE void iq2_s_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const struct wk_v q = wk_load(body + 64 * j), signs = wk_load(body + 512 + 64 * j),
                      more = wk_load(body + 1024 + 64 * (j / 4));
    for (uint32_t g = 0; g < 4; g++)
        iq2_eight(wk_or(wk_bits(q, 8 * (int)g, 255), wk_bits(more, 8 * (int)(j % 4) + 2 * (int)g - 8, 0x300)),
                  iq2_s_grid, signs, g, w);
}

/* d (s + 1/2) */
WK_INLINE struct wk_f iq_half_scale(struct wk_f d, struct wk_f s) { return wk_f_mul(d, wk_f_sub(s, wk_splat(-0.5f))); }

/* Of 8 words, `step` bytes from one to the next, whose upper four bits are scales. */
WK_INLINE void iq_scales_of_words(const uint8_t *first, uint32_t step, struct wk_f d, float *scale)
{
    for (uint32_t j = 0; j < 8; j++)
        wk_store(scale + j * WK_TILE_ROWS, iq_half_scale(d, wk_byte(wk_field(wk_load(first + step * j), 4, 15), 3)));
}

WK_INLINE void iq2_xxs_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    iq_scales_of_words(body + 64, 128, wk_f_mul(wk_load_halves(tail), wk_splat(0.25f)), scale);
}

/* Scale i of 16 is nibble i % 2 of byte i / 2 of two words. */
WK_INLINE void iq2_scales(const uint8_t *at, const uint8_t *halves, float *scale)
{
    const struct wk_f d = wk_f_mul(wk_load_halves(halves), wk_splat(0.25f));
    for (uint32_t i = 0; i < 16; i++) {
        const struct wk_v s = wk_field(wk_load(at + 64 * (i / 8)), i % 2 ? 4 : 0, 15);
        wk_store(scale + i * WK_TILE_ROWS, iq_half_scale(d, wk_byte(s, i / 2 % 4)));
    }
}

WK_INLINE void iq2_xs_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    iq2_scales(body + 1024, tail, scale);
}

WK_INLINE void iq2_s_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    iq2_scales(body + 1152, tail, scale);
}

/* ---- IQ3 ------------------------------------------------------------------------------------------------- */

/* Four values of the point, word n; byte n / 2 of `signs` has its signs. */
WK_INLINE void iq3_four(struct wk_v index, const uint16_t *grid, const uint8_t table[16], uint32_t twice,
                        struct wk_v signs, uint32_t n, struct wk_v *w)
{
    w[n] = wk_negate(wk_look_up(wk_look_up_nibbles(index, grid), 0, table), wk_spread(signs, n / 2), n % 2 * 4, twice);
}

WK_INLINE void iq3_xxs_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t plus_62[16] = { 66, 74, 82, 90, 98, 106, 114, 124, 66, 74, 82, 90, 98, 106, 114, 124 };
    const struct wk_v q[2] = { wk_load(body + 128 * j), wk_load(body + 128 * j + 64) },
                      signs = iq_signs_of_word(wk_load(body + 1024 + 64 * j));
    for (uint32_t n = 0; n < 8; n++)
        iq3_four(wk_bits(q[n / 4], 8 * (int)(n % 4), 255), iq3_xxs_grid, plus_62, 124, signs, n, w);
}

WK_INLINE void iq3_xxs_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    iq_scales_of_words(body + 1024, 64, wk_f_mul(wk_load_halves(tail), wk_splat(0.5f)), scale);
}

/* Index bytes, then a bit more of each, bit n of byte j at 1024, then sign bytes. */
WK_INLINE void iq3_s_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t plus_15[16] = { 16, 18, 20, 22, 24, 26, 28, 30, 16, 18, 20, 22, 24, 26, 28, 30 };
    const struct wk_v q[2] = { wk_load(body + 128 * j), wk_load(body + 128 * j + 64) },
                      more = wk_load(body + 1024 + 64 * (j / 4)), signs = wk_load(body + 1152 + 64 * j);
    for (uint32_t n = 0; n < 8; n++)
        iq3_four(wk_or(wk_bits(q[n / 4], 8 * (int)(n % 4), 255), wk_bits(more, 8 * (int)(j % 4) + (int)n - 8, 0x100)),
                 iq3_s_grid, plus_15, 30, signs, n, w);
}

WK_INLINE void iq3_s_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    const struct wk_f twice = wk_f_mul(wk_load_halves(tail), wk_splat(2));
    const struct wk_v s = wk_load(body + 1664);
    for (uint32_t j = 0; j < 8; j++)
        wk_store(scale + j * WK_TILE_ROWS, iq_half_scale(twice, wk_byte(wk_field(s, j % 2 ? 4 : 0, 15), j / 2)));
}

/* ---- IQ1 ------------------------------------------------------------------------------------------------- */

/* Eight values of the point; byte i of `shift` is 0 for -1/8, 2 for 1/8. */
WK_INLINE void iq1_eight(struct wk_v index, struct wk_v shift, uint32_t g, struct wk_v *w)
{
    static const uint8_t low[16] = { 0, 8, 16, 0, 0, 8, 16, 0, 0, 8, 16, 0, 0, 8, 16, 0 },
                         high[16] = { 0, 0, 0, 0, 8, 8, 8, 8, 16, 16, 16, 16, 0, 0, 0, 0 };
    const struct wk_v point = wk_look_up_nibbles(index, iq1_grid);
    w[2 * g] = wk_or(wk_look_up(point, 0, low), shift);
    w[2 * g + 1] = wk_or(wk_look_up(point, 0, high), shift);
}

/* The fourth bit of a nibble is set for a shift of -1/8. */
static const uint8_t iq1_shift[16] = { 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0 };

/* Index bytes, then a half word each of 32 values. */
WK_INLINE void iq1_s_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const struct wk_v q = wk_load(body + 64 * j), h = wk_load(body + 512 + 64 * (j / 2)),
                      shift = wk_look_up(wk_spread(h, j % 2 * 2 + 1), 4, iq1_shift);
    for (uint32_t g = 0; g < 4; g++)
        iq1_eight(wk_or(wk_bits(q, 8 * (int)g, 255), wk_bits(h, 16 * (int)(j % 2) + 3 * (int)g - 8, 0x700)), shift, g,
                  w);
}

/* d (s + 1/2) / 4 */
WK_INLINE void iq1_s_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    const struct wk_f d = wk_f_mul(wk_load_halves(tail), wk_splat(0.25f));
    for (uint32_t j = 0; j < 8; j++) {
        const struct wk_v h = wk_load(body + 512 + 64 * (j / 2));
        wk_store(scale + j * WK_TILE_ROWS, iq_half_scale(d, wk_byte(wk_field(h, 4, 7), j % 2 * 2 + 1)));
    }
}

/* Index bytes, then a nibble each of 8 values. */
WK_INLINE void iq1_m_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const struct wk_v q = wk_load(body + 64 * j), h = wk_load(body + 512 + 64 * (j / 2));
    for (uint32_t g = 0; g < 4; g++)
        iq1_eight(wk_or(wk_bits(q, 8 * (int)g, 255), wk_bits(h, 16 * (int)(j % 2) + 4 * (int)g - 8, 0x700)),
                  wk_look_up(wk_spread(h, j % 2 * 2 + g / 2), g % 2 ? 4 : 0, iq1_shift), g, w);
}

/* Scale i of 16: three bits of half word i / 4; the upper four of each are d's. */
WK_INLINE void iq1_m_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)tail, (void)min;
    const struct wk_v s[2] = { wk_load(body + 768), wk_load(body + 832) };
    const struct wk_v low = wk_or(wk_bits(s[0], 12, 15), wk_bits(s[0], 24, 0xf0)),
                      high = wk_or(wk_bits(s[1], 4, 0xf00), wk_bits(s[1], 16, 0xf000));
    const struct wk_f d = wk_f_mul(wk_half(wk_or(low, high)), wk_splat(0.25f));
    for (uint32_t i = 0; i < 16; i++)
        wk_store(scale + i * WK_TILE_ROWS,
                 iq_half_scale(d, wk_byte(wk_bits(s[i / 8], 16 * (int)(i / 4 % 2) + 3 * (int)(i % 4), 7), 0)));
}

/* ---- products -------------------------------------------------------------------------------------------- */

#define FORMAT(name, sub_, bits_, offset_)                                                            \
    static const struct wk_tile_format name = { &name##_layout,          .sub = sub_,                 \
                                                .bits = bits_,           .offset = offset_,           \
                                                .scales = name##_scales, .weights = name##_weights }; \
    void PRODUCT(name)(const struct wk_cpu_product *p) { wk_tile_product(p, &name); }
FORMAT(iq2_xxs, 32, 7, 43)
FORMAT(iq2_xs, 16, 7, 43)
FORMAT(iq2_s, 16, 7, 43)
FORMAT(iq3_xxs, 32, 7, 62)
FORMAT(iq3_s, 32, 5, 15)
FORMAT(iq1_s, 32, 5, 9)
FORMAT(iq1_m, 16, 5, 9)
