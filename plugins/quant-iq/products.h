/* quant-iq/products.h: how records expand, and one product a type, for the instruction set that the including file has
 * chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name).
 *
 * Everywhere j is the 32-block within the 256, g the group of 8 values of it. A weight of IQ2 and IQ3 is its level with
 * its sign plus the largest level; of IQ1 eight times its level and shift, plus 9, with scales an eighth. */
#include "grid_iq1.h"
#include "grid_iq2.h"
#include "grid_iq3.h"

/* ---- grids ----------------------------------------------------------------------------------------------- */

#define IQ_POINTS(name, bits_, POINTS)                                               \
    static const _Alignas(64) uint8_t name##_low[1 << bits_] = { POINTS(IQ_LOW) };   \
    static const _Alignas(64) uint8_t name##_high[1 << bits_] = { POINTS(IQ_HIGH) }; \
    static const struct wk_grid name##_points = { name##_grid, name##_low, name##_high, bits_ };
IQ_POINTS(iq2_xxs, 8, IQ2_XXS_POINTS)
IQ_POINTS(iq2_xs, 9, IQ2_XS_POINTS)
IQ_POINTS(iq2_s, 10, IQ2_S_POINTS)
IQ_POINTS(iq3_xxs, 8, IQ3_XXS_POINTS)
IQ_POINTS(iq3_s, 9, IQ3_S_POINTS)
IQ_POINTS(iq1, 11, IQ1_POINTS)

/* ---- IQ2 ------------------------------------------------------------------------------------------------- */

/* The values of four points: groups `place` of the 32 values; byte g of `signs` has the signs of point g. */
WK_INLINE void iq2_values(const struct wk_v points[4], struct wk_v signs, const uint8_t place[4], struct wk_v *w)
{
    static const uint8_t first[32] = { 51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43, 51, 68, 86, 43,
                                       35, 18, 0,  43, 35, 18, 0,  43, 35, 18, 0,  43, 35, 18, 0,  43 },
                         last[32] = { 51, 51, 51, 51, 68, 68, 68, 68, 86, 86, 86, 86, 43, 43, 43, 43,
                                      35, 35, 35, 35, 18, 18, 18, 18, 0,  0,  0,  0,  43, 43, 43, 43 };
    for (uint32_t g = 0; g < 4; g++) {
        w[2 * place[g]] = wk_look_up_signed(points[g], signs, 8 * g, first);
        w[2 * place[g] + 1] = wk_look_up_signed(points[g], signs, 8 * g + 4, last);
    }
}

static const uint8_t iq2_in_order[4] = { 0, 1, 2, 3 };

WK_INLINE void iq2_xxs_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const struct wk_v q = wk_load(body + 128 * j), signs = wk_even(wk_fan(wk_load(body + 128 * j + 64), 0, 7));
    struct wk_v points[4];
    wk_look_up_points(q, q, 0, 8, &iq2_xxs_points, points);
    iq2_values(points, signs, iq2_in_order, w);
}

/* Of four numbers of 16 bits in two words each the lower and the upper bytes, in the order 0, 2, 1, 3. */
WK_INLINE void iq2_xs_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t place[4] = { 0, 2, 1, 3 };
    const struct wk_v q[2] = { wk_load(body + 128 * j), wk_load(body + 128 * j + 64) },
                      low = wk_or(wk_bits(q[0], 0, 0x00ff00ff), wk_bits(q[1], -8, 0xff00ff00)),
                      high = wk_or(wk_bits(q[0], 8, 0x00ff00ff), wk_bits(q[1], 0, 0xff00ff00));
    struct wk_v points[4];
    wk_look_up_points(low, high, 0, 8, &iq2_xs_points, points);
    iq2_values(points, wk_even(wk_field(high, 1, 0x7f)), place, w);
}

/* Index bytes, sign bytes, then two bits more of each index: byte j of the words at 1024. */
WK_INLINE void iq2_s_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    struct wk_v points[4];
    wk_look_up_points(wk_load(body + 64 * j), wk_load(body + 1024 + 64 * (j / 4)), 8 * (j % 4), 2, &iq2_s_points,
                      points);
    iq2_values(points, wk_load(body + 512 + 64 * j), iq2_in_order, w);
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

/* The values of four points, words 4 half .. 4 half + 3; byte n / 2 of `signs` has the signs of word n. */
WK_INLINE void iq3_values(const struct wk_v points[4], struct wk_v signs, uint32_t half, const uint8_t table[32],
                          struct wk_v *w)
{
    for (uint32_t n = 0; n < 4; n++) w[4 * half + n] = wk_look_up_signed(points[n], signs, 16 * half + 4 * n, table);
}

WK_INLINE void iq3_xxs_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t plus_62[32] = { 66, 74, 82, 90, 98, 106, 114, 124, 66, 74, 82, 90, 98, 106, 114, 124,
                                         58, 50, 42, 34, 26, 18,  10,  0,   58, 50, 42, 34, 26, 18,  10,  0 };
    const struct wk_v signs = wk_even(wk_fan(wk_load(body + 1024 + 64 * j), 0, 7));
    for (uint32_t half = 0; half < 2; half++) {
        const struct wk_v q = wk_load(body + 128 * j + 64 * half);
        struct wk_v points[4];
        wk_look_up_points(q, q, 0, 8, &iq3_xxs_points, points);
        iq3_values(points, signs, half, plus_62, w);
    }
}

WK_INLINE void iq3_xxs_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    iq_scales_of_words(body + 1024, 64, wk_f_mul(wk_load_halves(tail), wk_splat(0.5f)), scale);
}

/* Index bytes, then a bit more of each, bit n of byte j at 1024, then sign bytes. */
WK_INLINE void iq3_s_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t plus_15[32] = { 16, 18, 20, 22, 24, 26, 28, 30, 16, 18, 20, 22, 24, 26, 28, 30,
                                         14, 12, 10, 8,  6,  4,  2,  0,  14, 12, 10, 8,  6,  4,  2,  0 };
    const struct wk_v more = wk_load(body + 1024 + 64 * (j / 4)), signs = wk_load(body + 1152 + 64 * j);
    for (uint32_t half = 0; half < 2; half++) {
        struct wk_v points[4];
        wk_look_up_points(wk_load(body + 128 * j + 64 * half), more, 8 * (j % 4) + 4 * half, 1, &iq3_s_points, points);
        iq3_values(points, signs, half, plus_15, w);
    }
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

/* The values of four points; byte i of shift[g] is 0 for -1/8, 2 for 1/8. */
WK_INLINE void iq1_values(const struct wk_v points[4], const struct wk_v shift[4], struct wk_v *w)
{
    static const uint8_t first[16] = { 0, 8, 16, 0, 0, 8, 16, 0, 0, 8, 16, 0, 0, 8, 16, 0 },
                         last[16] = { 0, 0, 0, 0, 8, 8, 8, 8, 16, 16, 16, 16, 0, 0, 0, 0 };
    for (uint32_t g = 0; g < 4; g++) {
        w[2 * g] = wk_or(wk_look_up(points[g], 0, first), shift[g]);
        w[2 * g + 1] = wk_or(wk_look_up(points[g], 0, last), shift[g]);
    }
}

/* The fourth bit of a nibble is set for a shift of -1/8. */
static const uint8_t iq1_shift[16] = { 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0 };

/* Index bytes, then a half word each of 32 values. */
WK_INLINE void iq1_s_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const struct wk_v h = wk_load(body + 512 + 64 * (j / 2)),
                      one = wk_look_up(wk_spread(h, j % 2 * 2 + 1), 4, iq1_shift), shift[4] = { one, one, one, one };
    struct wk_v points[4];
    wk_look_up_points(wk_load(body + 64 * j), h, 16 * (j % 2), 3, &iq1_points, points);
    iq1_values(points, shift, w);
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
    const struct wk_v h = wk_load(body + 512 + 64 * (j / 2));
    struct wk_v points[4], shift[4];
    wk_look_up_points(wk_load(body + 64 * j), h, 16 * (j % 2), 4, &iq1_points, points);
    for (uint32_t g = 0; g < 4; g++) shift[g] = wk_look_up(wk_spread(h, j % 2 * 2 + g / 2), g % 2 ? 4 : 0, iq1_shift);
    iq1_values(points, shift, w);
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
