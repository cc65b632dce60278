/* quant-iq/cuda/iq3.cuh: IQ3_XXS and IQ3_S on the device (iq.cuh).
 *
 * A lane's words: index bytes of the first and of the second fours of row g, then of row g + 8; then signs of both.
 * IQ3_XXS has scales beside the signs as IQ2_XXS has. IQ3_S has a bit more of each index, bit 2 b + half of a byte a
 * row, and scales as a word of nibbles of 32 number b of row g, of row g + 8 above it. */
#ifndef QUANT_IQ_CUDA_IQ3_CUH
#define QUANT_IQ_CUDA_IQ3_CUH

#include "../grid_iq3.h"
#include "iq.cuh"

/* LOW: of the scale's unit. */
template <class F, uint32_t TYPE, uint32_t BYTES, bool MORE, uint32_t CODES, uint32_t LOW>
struct iq3 : iq_tiles<F, TYPE, BYTES, 4, 2, MORE, CODES, 32>, iq_integers {
    using tiles = iq_tiles<F, TYPE, BYTES, 4, 2, MORE, CODES, 32>;
    static constexpr bool by_lane = CODES == 0;
    struct scales {
        uint32_t d, up, codes, far; /* as IQ2's */
    };
    struct quants {
        uint4 index;
        uint32_t signs[2], more;
    };
    static __device__ __forceinline__ uint2 sign_words(const unsigned char *body, uint32_t lane)
    {
        return reinterpret_cast<const uint2 *>(body + tiles::then_at)[lane];
    }
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        const unsigned char *body = tiles::body(unit, u);
        if (u % 2 == 0) {
            s.d = reinterpret_cast<const uint32_t *>(unit)[lane / 4];
            s.up = iq_up<LOW>(s.d);
            s.far = iq_is_far<LOW>(s.d);
        }
        if constexpr (by_lane) {
            const uint2 w = sign_words(body, lane);
            const uint32_t odd = iq_odd(iq_instead(w.x, w.y));
            s.codes = s.far ? odd : wk_h2_mul(s.up, odd);
        } else {
            s.codes = reinterpret_cast<const uint32_t *>(body + tiles::codes_at)[lane / 4];
        }
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        const unsigned char *body = tiles::body(unit, u);
        q.index = reinterpret_cast<const uint4 *>(body)[lane];
        const uint2 w = sign_words(body, lane);
        q.signs[0] = by_lane ? iq_even(w.x) : w.x;
        q.signs[1] = by_lane ? iq_even(w.y) : w.y;
        if constexpr (MORE) q.more = reinterpret_cast<const uint16_t *>(body + tiles::more_at)[lane];
    }
    /* Four values, `half` of the eight in 32 number b. */
    static __device__ __forceinline__ void pairs(uint32_t index, uint32_t more, uint32_t signs, uint32_t b,
                                                 uint32_t half, uint32_t pair[2])
    {
        const uint32_t point = __ldg(F::grid((index >> 8 * b & 255u) | F::upper(more >> (2 * b + half))));
        iq_pairs(__byte_perm(F::low_levels, F::high_levels, point), signs, 4 * half + b, pair);
    }
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        uint32_t g[4], g8[4], scale;
        pairs(q.index.x, q.more, q.signs[0], b, 0, g);
        pairs(q.index.y, q.more, q.signs[0], b, 1, g + 2);
        pairs(q.index.z, q.more >> 8, q.signs[1], b, 0, g8);
        pairs(q.index.w, q.more >> 8, q.signs[1], b, 1, g8 + 2);
        if constexpr (by_lane)
            scale = iq_ask(s.codes, b);
        else
            scale = iq_odd(s.codes >> 4 * b & 0x000f000fu);
        if constexpr (!by_lane && !FAR) scale = wk_h2_mul(s.up, scale);
        iq_weights<FAR, LOW>(g, g8, scale, s.d, a);
    }

    /* ---- integers: levels ---- */
    static __device__ __forceinline__ uint2 int8_odd(const quants &, const unsigned char *unit, uint32_t u, uint32_t,
                                                     uint32_t lane)
    {
        const unsigned char *body = tiles::body(unit, u);
        if constexpr (by_lane) {
            const uint2 w = sign_words(body, lane);
            return make_uint2((w.x >> 28) * 2 + 1, (w.y >> 28) * 2 + 1);
        } else {
            const uint32_t w = reinterpret_cast<const uint32_t *>(body + tiles::codes_at)[lane / 4] >> lane % 4 * 4;
            return make_uint2((w & 15u) * 2 + 1, (w >> 16 & 15u) * 2 + 1);
        }
    }
    static __device__ __forceinline__ void int8_factors(const quants &q, const unsigned char *unit, uint32_t u,
                                                        uint32_t set, uint32_t lane, uint2 *first, uint2 *second)
    {
        iq_sign_factors(int8_odd(q, unit, u, set, lane), first, second);
    }
    static __device__ __forceinline__ uint32_t four_levels(uint32_t index)
    {
        return __byte_perm(F::low_levels, F::high_levels, __ldg(F::grid(index)));
    }
    /* A ninth bit of an index chooses the half of a line. */
    static __device__ __forceinline__ uint4 int8_line(uint32_t line, uint32_t part)
    {
        const uint32_t v = four_levels(MORE ? line | part / 8 << 8 : line);
        return make_uint4(v, v, v, v);
    }
    /* Word of indices i of a lane, bit 2 b + i % 2 of its row's byte of more. */
    static __device__ __forceinline__ uint32_t indices(const quants &q, uint32_t i)
    {
        return i == 0 ? q.index.x : i == 1 ? q.index.y : i == 2 ? q.index.z : q.index.w;
    }
    static __device__ __forceinline__ uint32_t levels_of(const quants &q, uint32_t b, uint32_t i)
    {
        return four_levels((indices(q, i) >> 8 * b & 255u) | F::upper(q.more >> (i / 2 * 8 + 2 * b + i % 2)));
    }
    template <bool TABLE>
    static __device__ __forceinline__ void int8_levels(const quants &q, const unsigned char *table, uint32_t lane,
                                                       uint32_t b, uint32_t a[4], uint32_t less[4])
    {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) { /* a row's first four, its second; row g, row g + 8 */
            const uint32_t at = i / 2 + i % 2 * 2;
            if constexpr (TABLE) {
                uint32_t low = lane * 0x404; /* a byte for either row */
                if constexpr (MORE) low = wk_and_or(q.more << (7 - 2 * b - i % 2), 0x8080u, low);
                a[at] = *reinterpret_cast<const uint32_t *>(table + iq_line(indices(q, i), b, low, i / 2, 3));
            } else {
                a[at] = levels_of(q, b, i);
            }
            less[at] = a[at] & iq_mask(q.signs[i / 2], i % 2 * 4 + b);
        }
    }
    static __device__ __forceinline__ void int8_signed(const quants &q, uint32_t b, uint32_t a[4])
    {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            a[i / 2 + i % 2 * 2] = iq_signed(levels_of(q, b, i), iq_mask(q.signs[i / 2], i % 2 * 4 + b));
    }

    /* ---- the file's bytes ---- */
    static __device__ __forceinline__ uint32_t head_word(const wk_tile_rows &r, uint32_t b, uint32_t row)
    {
        return iq_halves_of_rows<F>(r, b, row);
    }
    static __device__ __forceinline__ uint32_t lane_word(const wk_tile_rows &r, uint32_t b, uint32_t place,
                                                         uint32_t lane, uint32_t i)
    {
        const uint32_t row = lane / 4 + (i < 4 ? i / 2 : i % 2) * 8;
        uint32_t w = 0;
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t e = place * 16 + 4 * j + lane % 4;
            w |= i < 4 ? r.byte<F>(row, b, 2 + 2 * e + i % 2) << 8 * j : iq_sign_put(F::signs(r, row, b, e, j), j);
        }
        return w;
    }
    static __device__ __forceinline__ uint32_t index_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t f)
    {
        const uint32_t e = f / 2;
        return tiles::lane_at(tile, b, e / 16, row % 8 * 4 + e % 4, f % 2 + row / 8 * 2) >> e / 4 % 4 * 8 & 255u;
    }
    static __device__ __forceinline__ uint32_t signs_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return iq_sign_get(tiles::lane_at(tile, b, e / 16, row % 8 * 4 + e % 4, 4 + row / 8), e / 4 % 4);
    }
    /* Four values of point `at` under `scale`. */
    static __device__ __forceinline__ void values(float scale, uint32_t at, uint32_t signs, float v[4])
    {
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t l = *F::grid(at) >> 4 * i & 7u;
            const float level = (float)((l < 4 ? F::low_levels : F::high_levels) >> l % 4 * 8 & 255u);
            v[i] = __fmul_rn(scale, signs >> i & 1u ? -level : level);
        }
    }
};

struct iq3_xxs : iq3<iq3_xxs, 18, 98, false, 0, 2> {
    static constexpr uint32_t low_levels = 0x1c140c04u, high_levels = 0x3e342c24u;
    static constexpr float int8_unscale = 0.25f;
    static __device__ __forceinline__ const uint16_t *grid(uint32_t index) { return iq3_xxs_grid + index; }
    static __device__ __forceinline__ uint32_t upper(uint32_t) { return 0; }
    static __device__ __forceinline__ uint32_t last(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
    {
        return r.half<iq3_xxs>(row, b, 66 + 4 * j) | r.half<iq3_xxs>(row, b, 68 + 4 * j) << 16;
    }
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
        if (i < 66) return index_of(tile, row, b, i - 2);
        const uint32_t j = (i - 66) / 4;
        uint32_t w = scale_of(tile, row, b, j) << 28;
        for (uint32_t e = 0; e < 4; e++) w |= (signs_of(tile, row, b, 4 * j + e) & 127u) << 7 * e;
        return w >> 8 * ((i - 66) % 4) & 255u;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32, e = i % 32, seven = signs_of(tile, row, b, e) & 127u,
                       s = seven | ((uint32_t)__popc(seven) & 1u) << 7;
        const float scale =
            __fmul_rn(iq_half(d_of(tile, row, b)), ((float)scale_of(tile, row, b, e / 4) + 0.5f) * 0.5f);
        values(scale, index_of(tile, row, b, 2 * e), s, v);
        values(scale, index_of(tile, row, b, 2 * e + 1), s >> 4, v + 4);
    }
};

struct iq3_s : iq3<iq3_s, 21, 110, true, 8, 0> {
    static constexpr uint32_t low_levels = 0x07050301u, high_levels = 0x0f0d0b09u;
    static constexpr float int8_unscale = 1.0f;
    static __device__ __forceinline__ const uint16_t *grid(uint32_t index) { return iq3_s_grid + index; }
    static __device__ __forceinline__ uint32_t upper(uint32_t more) { return (more & 1u) << 8; }
    static __device__ __forceinline__ uint32_t signs(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e,
                                                     uint32_t)
    {
        return r.byte<iq3_s>(row, b, 74 + e);
    }
    static __device__ __forceinline__ uint32_t more(const wk_tile_rows &r, uint32_t b, uint32_t place, uint32_t lane)
    {
        uint32_t v = 0;
        for (uint32_t j = 0; j < 8; j++)
            v |= (r.byte<iq3_s>(lane / 4 + j / 4 * 8, b, 66 + place * 4 + j % 4) >> lane % 4 * 2 & 3u) << 2 * j;
        return v;
    }
    static __device__ __forceinline__ uint32_t code_word(const wk_tile_rows &r, uint32_t b, uint32_t place,
                                                         uint32_t word)
    {
        return r.half<iq3_s>(word, b, 106 + 2 * place) | r.half<iq3_s>(word + 8, b, 106 + 2 * place) << 16;
    }
    static __device__ __forceinline__ uint32_t code_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t j)
    {
        return code_at(tile, b, j / 4, row % 8) >> (j % 4 * 4 + row / 8 * 16) & 15u;
    }
    static __device__ __forceinline__ uint32_t upper_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return more_of(tile, b, e / 16, row % 8 * 4 + e % 4) >> (row / 8 * 8 + e / 4 % 4 * 2) & 3u;
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        if (i < 2) return d_of(tile, row, b) >> 8 * i & 255u;
        if (i < 66) return index_of(tile, row, b, i - 2);
        if (i >= 106) return code_of(tile, row, b, 2 * (i - 106)) | code_of(tile, row, b, 2 * (i - 106) + 1) << 4;
        if (i >= 74) return signs_of(tile, row, b, i - 74);
        uint32_t v = 0;
        for (uint32_t e = 0; e < 4; e++) v |= upper_of(tile, row, b, 4 * (i - 66) + e) << 2 * e;
        return v;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32, e = i % 32, s = signs_of(tile, row, b, e), more = upper_of(tile, row, b, e);
        const float scale = __fmul_rn(iq_half(d_of(tile, row, b)), (float)(2 * code_of(tile, row, b, e / 4) + 1));
        values(scale, index_of(tile, row, b, 2 * e) | (more & 1u) << 8, s, v);
        values(scale, index_of(tile, row, b, 2 * e + 1) | more >> 1 << 8, s >> 4, v + 4);
    }
};

#endif
