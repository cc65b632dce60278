/* quant-iq/cuda/iq2.cuh: IQ2_XXS, IQ2_XS and IQ2_S on the device (iq.cuh).
 *
 * A lane's words: index bytes of rows g, g + 8, then their signs. In the places of last signs IQ2_XXS has the scale of
 * 32 number t of the unit, which its lane gives the three others; IQ2_XS has the ninth bits of the indices. IQ2_S has
 * two bits more of each index, bits 2 b of a byte a row. Scales of 16 values lie as a word of nibbles, number b of row
 * g and of row g + 8 above it, for the lanes of either 16. */
#ifndef QUANT_IQ_CUDA_IQ2_CUH
#define QUANT_IQ_CUDA_IQ2_CUH

#include "../grid_iq2.h"
#include "iq.cuh"

/* SEVEN: an eighth sign is made. */
template <class F, uint32_t TYPE, uint32_t BYTES, bool MORE, uint32_t CODES, bool SEVEN>
struct iq2 : iq_tiles<F, TYPE, BYTES, 4, 0, MORE, CODES, 32>, iq_integers {
    using tiles = iq_tiles<F, TYPE, BYTES, 4, 0, MORE, CODES, 32>;
    static constexpr bool by_lane = CODES == 0;
    struct scales {
        uint32_t d, up, codes, far; /* codes: by_lane: 2 code + 1, of FAR units, or up times that; else nibbles */
    };
    struct quants {
        uint4 w;
        uint32_t signs[2], more;
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        const unsigned char *body = tiles::body(unit, u);
        if (u % 2 == 0) {
            s.d = reinterpret_cast<const uint32_t *>(unit)[lane / 4];
            s.up = iq_up<3>(s.d);
            s.far = iq_is_far<3>(s.d);
        }
        if constexpr (by_lane) {
            const uint2 w = reinterpret_cast<const uint2 *>(body)[2 * lane + 1];
            const uint32_t odd = iq_odd(iq_instead(w.x, w.y));
            s.codes = s.far ? odd : wk_h2_mul(s.up, odd);
        } else {
            s.codes = reinterpret_cast<const uint32_t *>(body + tiles::codes_at)[lane / 2];
        }
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        const unsigned char *body = tiles::body(unit, u);
        q.w = reinterpret_cast<const uint4 *>(body)[lane];
        q.signs[0] = SEVEN ? iq_even(q.w.z) : q.w.z;
        q.signs[1] = SEVEN ? iq_even(q.w.w) : q.w.w;
        if constexpr (MORE) q.more = reinterpret_cast<const uint16_t *>(body + tiles::more_at)[lane];
    }
    static __device__ __forceinline__ void pairs(uint32_t point, uint32_t signs, uint32_t b, uint32_t pair[4])
    {
        iq_pairs(__byte_perm(0x002b1908u, 0, point & 0x3333u), signs, b, pair);
        iq_pairs(__byte_perm(0x002b1908u, 0, point >> 2 & 0x3333u), signs, 4 + b, pair + 2);
    }
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        uint32_t g[4], g8[4], scale;
        pairs(F::point(q.w.x, q.w.z, q.more, b), q.signs[0], b, g);
        pairs(F::point(q.w.y, q.w.w, q.more >> 8, b), q.signs[1], b, g8);
        if constexpr (by_lane)
            scale = iq_ask(s.codes, b);
        else
            scale = iq_odd(s.codes >> 4 * b & 0x000f000fu);
        if constexpr (!by_lane && !FAR) scale = wk_h2_mul(s.up, scale);
        iq_weights<FAR, 3>(g, g8, scale, s.d, a);
    }

    /* ---- integers: levels, under a scale of an eighth. F: line_point: the point of a part of a line; line: where one
     * is, of row g (h 0) or g + 8 ---- */
    static constexpr float int8_unscale = 0.125f;
    static constexpr bool int8_sixteens = !by_lane;
    static __device__ __forceinline__ uint2 int8_odd(const quants &q, const unsigned char *unit, uint32_t u,
                                                     uint32_t set, uint32_t lane)
    {
        if constexpr (by_lane) {
            return make_uint2((q.w.z >> 28) * 2 + 1, (q.w.w >> 28) * 2 + 1);
        } else {
            const uint32_t *const codes = reinterpret_cast<const uint32_t *>(tiles::body(unit, u) + tiles::codes_at);
            const uint32_t w = codes[lane / 4 * 2 + lane % 2] >> (lane / 2 % 2 * 4 + set * 8);
            return make_uint2((w & 15u) * 2 + 1, (w >> 16 & 15u) * 2 + 1);
        }
    }
    static __device__ __forceinline__ void int8_factors(const quants &q, const unsigned char *unit, uint32_t u,
                                                        uint32_t set, uint32_t lane, uint2 *first, uint2 *second)
    {
        iq_sign_factors(int8_odd(q, unit, u, set, lane), first, second);
    }
    /* Of values 0 to 3, of the others. */
    static __device__ __forceinline__ uint2 levels(uint32_t point)
    {
        return make_uint2(__byte_perm(0x002b1908u, 0, point & 0x3333u),
                          __byte_perm(0x002b1908u, 0, point >> 2 & 0x3333u));
    }
    /* Of by_lane formats values 0 to 3 are in the first half of a line, the others in the second: two loads; of others,
     * whose lines have several points, side by side. */
    static __device__ __forceinline__ uint4 int8_line(uint32_t line, uint32_t part)
    {
        const uint2 v = levels(F::line_point(line, part));
        const uint32_t x = by_lane && part >= 8 ? v.y : v.x, y = by_lane ? x : v.y;
        return make_uint4(x, y, x, y);
    }
    static __device__ __forceinline__ uint32_t point_of(const quants &q, uint32_t b, uint32_t h)
    {
        return h ? F::point(q.w.y, q.w.w, q.more >> 8, b) : F::point(q.w.x, q.w.z, q.more, b);
    }
    template <bool TABLE>
    static __device__ __forceinline__ void int8_levels(const quants &q, const unsigned char *table, uint32_t lane,
                                                       uint32_t b, uint32_t a[4], uint32_t less[4])
    {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            uint2 v;
            if constexpr (!TABLE) {
                v = levels(point_of(q, b, h));
            } else {
                const unsigned char *const at = table + F::line(q, b, h, lane);
                if constexpr (by_lane)
                    v = make_uint2(*reinterpret_cast<const uint32_t *>(at),
                                   *reinterpret_cast<const uint32_t *>(at + 128));
                else
                    v = *reinterpret_cast<const uint2 *>(at);
            }
            a[h] = v.x;
            a[h + 2] = v.y;
            less[h] = v.x & iq_mask(q.signs[h], b);
            less[h + 2] = v.y & iq_mask(q.signs[h], 4 + b);
        }
    }
    static __device__ __forceinline__ void int8_signed(const quants &q, uint32_t b, uint32_t a[4])
    {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint2 v = levels(point_of(q, b, h));
            a[h] = iq_signed(v.x, iq_mask(q.signs[h], b));
            a[h + 2] = iq_signed(v.y, iq_mask(q.signs[h], 4 + b));
        }
    }

    /* ---- the file's bytes ---- */
    static __device__ __forceinline__ uint32_t head_word(const wk_tile_rows &r, uint32_t b, uint32_t row)
    {
        return iq_halves_of_rows<F>(r, b, row);
    }
    /* The eight of 32 number j of the unit. */
    static __device__ __forceinline__ uint32_t eight_of(uint32_t place, uint32_t j, uint32_t lane)
    {
        return place * 16 + 4 * j + lane % 4;
    }
    static __device__ __forceinline__ uint32_t lane_word(const wk_tile_rows &r, uint32_t b, uint32_t place,
                                                         uint32_t lane, uint32_t i)
    {
        const uint32_t row = lane / 4 + i % 2 * 8;
        uint32_t w = 0;
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t e = eight_of(place, j, lane);
            w |= i < 2 ? F::index(r, row, b, e) << 8 * j : iq_sign_put(F::signs(r, row, b, e, j), j);
        }
        return w;
    }
    /* Nibbles i .. of 16 scales from byte `at` on; of a word, 4 of row g, 4 of row g + 8. */
    static __device__ __forceinline__ uint32_t codes_from(const wk_tile_rows &r, uint32_t b, uint32_t place,
                                                          uint32_t word, uint32_t at)
    {
        uint32_t w = 0;
        for (uint32_t j = 0; j < 8; j++) {
            const uint32_t code = place * 8 + j % 4 * 2 + word % 2;
            w |= (r.byte<F>(word / 2 + j / 4 * 8, b, at + code / 2) >> code % 2 * 4 & 15u) << 4 * j;
        }
        return w;
    }
    /* Of a tile: lane of an eight, and its word; code number i of 16 of a row. */
    static __device__ __forceinline__ uint32_t word_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e,
                                                       uint32_t i)
    {
        return tiles::lane_at(tile, b, e / 16, row % 8 * 4 + e % 4, i + row / 8);
    }
    static __device__ __forceinline__ uint32_t index_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return word_of(tile, row, b, e, 0) >> e / 4 % 4 * 8 & 255u;
    }
    static __device__ __forceinline__ uint32_t signs_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return iq_sign_get(word_of(tile, row, b, e, 2), e / 4 % 4);
    }
    static __device__ __forceinline__ uint32_t code_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        return tiles::code_at(tile, b, i / 8, row % 8 * 2 + i % 2) >> (i / 2 % 4 * 4 + row / 8 * 16) & 15u;
    }
    /* The values of eight e of a block under code / 2 + 1/4 of d. */
    static __device__ __forceinline__ void values(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t point,
                                                  uint32_t signs, uint32_t code, float v[8])
    {
        const float d = iq_half(tiles::d_of(tile, row, b)), scale = __fmul_rn(d, ((float)code + 0.5f) * 0.25f);
        for (uint32_t i = 0; i < 8; i++) {
            const float level = (float)(0x002b1908u >> (point >> (i % 4 * 4 + i / 4 * 2) & 3u) * 8 & 255u);
            v[i] = __fmul_rn(scale, signs >> i & 1u ? -level : level);
        }
    }
    static __device__ __forceinline__ uint32_t even_signs(uint32_t seven)
    {
        return (seven & 127u) | ((uint32_t)__popc(seven & 127u) & 1u) << 7;
    }
};

struct iq2_xxs : iq2<iq2_xxs, 16, 66, false, 0, true> {
    static __device__ __forceinline__ uint32_t line_point(uint32_t line, uint32_t)
    {
        return __ldg(iq2_xxs_grid + line);
    }
    static __device__ __forceinline__ uint32_t line(const quants &q, uint32_t b, uint32_t h, uint32_t lane)
    {
        return iq_line(h ? q.w.y : q.w.x, b, lane * 4, 0, 3);
    }
    static __device__ __forceinline__ uint32_t point(uint32_t index, uint32_t, uint32_t, uint32_t b)
    {
        return __ldg(iq2_xxs_grid + (index >> 8 * b & 255u));
    }
    /* Of each 32: four index bytes, then the word of signs and scale. */
    static __device__ __forceinline__ uint32_t last(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
    {
        return r.half<iq2_xxs>(row, b, 6 + 8 * j) | r.half<iq2_xxs>(row, b, 8 + 8 * j) << 16;
    }
    static __device__ __forceinline__ uint32_t index(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e)
    {
        return r.byte<iq2_xxs>(row, b, 2 + e / 4 * 8 + e % 4);
    }
    /* Beside the signs of 32 number j of the unit: bit j of the scale of 32 number t. */
    static __device__ __forceinline__ uint32_t signs(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e,
                                                     uint32_t j)
    {
        return (last(r, row, b, e / 4) >> e % 4 * 7 & 127u) | (last(r, row, b, e / 16 * 4 + e % 4) >> (28 + j) & 1u)
                                                                  << 7;
    }
    static __device__ __forceinline__ uint32_t scale_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t j)
    {
        uint32_t code = 0;
        for (uint32_t i = 0; i < 4; i++) code |= signs_of(tile, row, b, j / 4 * 16 + 4 * i + j % 4) >> 7 << i;
        return code;
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        if (i < 2) return d_of(tile, row, b) >> 8 * i & 255u;
        const uint32_t j = (i - 2) / 8, k = (i - 2) % 8;
        if (k < 4) return index_of(tile, row, b, 4 * j + k);
        uint32_t w = scale_of(tile, row, b, j) << 28;
        for (uint32_t e = 0; e < 4; e++) w |= (signs_of(tile, row, b, 4 * j + e) & 127u) << 7 * e;
        return w >> 8 * (k - 4) & 255u;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32, e = i % 32;
        values(tile, row, b, iq2_xxs_grid[index_of(tile, row, b, e)], even_signs(signs_of(tile, row, b, e)),
               scale_of(tile, row, b, e / 4), v);
    }
};

struct iq2_xs : iq2<iq2_xs, 17, 74, false, 16, true> {
    /* A ninth bit, the uppermost of a word after a shift, chooses the half of a line. */
    static __device__ __forceinline__ uint32_t line_point(uint32_t line, uint32_t part)
    {
        return __ldg(iq2_xs_grid + (line | part / 8 << 8));
    }
    static __device__ __forceinline__ uint32_t line(const quants &q, uint32_t b, uint32_t h, uint32_t lane)
    {
        const uint32_t low = wk_and_or((h ? q.w.w : q.w.z) << (3 - b), 0x80000000u, lane % 16 << 27);
        return iq_line(h ? q.w.y : q.w.x, b, low, 3, 0);
    }
    static __device__ __forceinline__ uint32_t point(uint32_t index, uint32_t signs, uint32_t, uint32_t b)
    {
        return __ldg(iq2_xs_grid + ((index >> 8 * b & 255u) | (signs >> (28 + b) & 1u) << 8));
    }
    static __device__ __forceinline__ uint32_t index(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e)
    {
        return r.byte<iq2_xs>(row, b, 2 + 2 * e);
    }
    static __device__ __forceinline__ uint32_t signs(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e,
                                                     uint32_t)
    {
        const uint32_t upper = r.byte<iq2_xs>(row, b, 3 + 2 * e);
        return upper >> 1 | (upper & 1u) << 7;
    }
    static __device__ __forceinline__ uint32_t code_word(const wk_tile_rows &r, uint32_t b, uint32_t place,
                                                         uint32_t word)
    {
        return codes_from(r, b, place, word, 66);
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        if (i < 2) return d_of(tile, row, b) >> 8 * i & 255u;
        if (i >= 66) return code_of(tile, row, b, 2 * (i - 66)) | code_of(tile, row, b, 2 * (i - 66) + 1) << 4;
        const uint32_t e = (i - 2) / 2, s = signs_of(tile, row, b, e);
        return i % 2 ? (s << 1 & 255u) | s >> 7 : index_of(tile, row, b, e);
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32, e = i % 32, s = signs_of(tile, row, b, e);
        values(tile, row, b, iq2_xs_grid[index_of(tile, row, b, e) | s >> 7 << 8], even_signs(s),
               code_of(tile, row, b, e / 2), v);
    }
};

struct iq2_s : iq2<iq2_s, 22, 82, true, 16, false> {
    /* Two bits more choose a quarter of a line, of which there is a copy for each eighth lane. */
    static __device__ __forceinline__ uint32_t line_point(uint32_t line, uint32_t part)
    {
        return __ldg(iq2_s_grid + (line | part / 4 << 8));
    }
    static __device__ __forceinline__ uint32_t line(const quants &q, uint32_t b, uint32_t h, uint32_t lane)
    {
        return iq_line(h ? q.w.y : q.w.x, b, wk_and_or(q.more << (6 - 2 * b), 0xc0c0u, lane % 8 * 0x808u), h, 3);
    }
    static __device__ __forceinline__ uint32_t point(uint32_t index, uint32_t, uint32_t more, uint32_t b)
    {
        return __ldg(iq2_s_grid + ((index >> 8 * b & 255u) | (more >> 2 * b & 3u) << 8));
    }
    static __device__ __forceinline__ uint32_t index(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e)
    {
        return r.byte<iq2_s>(row, b, 2 + e);
    }
    static __device__ __forceinline__ uint32_t signs(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e,
                                                     uint32_t)
    {
        return r.byte<iq2_s>(row, b, 34 + e);
    }
    static __device__ __forceinline__ uint32_t more(const wk_tile_rows &r, uint32_t b, uint32_t place, uint32_t lane)
    {
        uint32_t v = 0;
        for (uint32_t j = 0; j < 8; j++)
            v |= (r.byte<iq2_s>(lane / 4 + j / 4 * 8, b, 66 + place * 4 + j % 4) >> lane % 4 * 2 & 3u) << 2 * j;
        return v;
    }
    static __device__ __forceinline__ uint32_t code_word(const wk_tile_rows &r, uint32_t b, uint32_t place,
                                                         uint32_t word)
    {
        return codes_from(r, b, place, word, 74);
    }
    static __device__ __forceinline__ uint32_t upper_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return more_of(tile, b, e / 16, row % 8 * 4 + e % 4) >> (row / 8 * 8 + e / 4 % 4 * 2) & 3u;
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        if (i < 2) return d_of(tile, row, b) >> 8 * i & 255u;
        if (i < 34) return index_of(tile, row, b, i - 2);
        if (i < 66) return signs_of(tile, row, b, i - 34);
        if (i >= 74) return code_of(tile, row, b, 2 * (i - 74)) | code_of(tile, row, b, 2 * (i - 74) + 1) << 4;
        uint32_t v = 0;
        for (uint32_t e = 0; e < 4; e++) v |= upper_of(tile, row, b, 4 * (i - 66) + e) << 2 * e;
        return v;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32, e = i % 32;
        values(tile, row, b, iq2_s_grid[index_of(tile, row, b, e) | upper_of(tile, row, b, e) << 8],
               signs_of(tile, row, b, e), code_of(tile, row, b, e / 2), v);
    }
};

#endif
