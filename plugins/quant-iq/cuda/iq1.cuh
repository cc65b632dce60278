/* quant-iq/cuda/iq1.cuh: IQ1_S and IQ1_M on the device (iq.cuh).
 *
 * A lane's words: index bytes of rows g, g + 8; then a half word of either row. Its bits 3 b .. 3 b + 2 are the upper
 * ones of the index in 32 number b; the last four are IQ1_S' scale of three bits and sign of the shift of 32 number t,
 * which the lane gives the three others, or IQ1_M's signs of the shift of all four. IQ1_M's head: for each g 16 bytes,
 * for units and either 16 of each 32 a word: the half word of row g with the scales of 32 number b at bits 3 b, that of
 * row g + 8 above it; the upper four bits of the four words are the halves d.
 *
 * A weight is eight times its level and shift, {-9, -7, -1, 1, 7, 9}, under a scale of an eighth. */
#ifndef QUANT_IQ_CUDA_IQ1_CUH
#define QUANT_IQ_CUDA_IQ1_CUH

#include "../grid_iq1.h"
#include "iq.cuh"

template <class F, uint32_t TYPE, uint32_t BYTES, uint32_t HEAD>
struct iq1 : iq_tiles<F, TYPE, BYTES, 2, 1, false, 0, HEAD> {
    using tiles = iq_tiles<F, TYPE, BYTES, 2, 1, false, 0, HEAD>;
    struct quants {
        uint2 index;
        uint32_t more;
    };
    static __device__ __forceinline__ uint32_t more_at_lane(const unsigned char *body, uint32_t lane)
    {
        return reinterpret_cast<const uint32_t *>(body + tiles::then_at)[lane];
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        const unsigned char *body = tiles::body(unit, u);
        q.index = reinterpret_cast<const uint2 *>(body)[lane];
        q.more = more_at_lane(body, lane);
    }
    /* Eight values; minus: 0x4444 for a shift of -1/8. */
    static __device__ __forceinline__ void pairs(uint32_t index, uint32_t more, uint32_t minus, uint32_t b,
                                                 uint32_t pair[4])
    {
        const uint32_t point = __ldg(iq1_grid + ((index >> 8 * b & 255u) | (more >> 3 * b & 7u) << 8)),
                       places[2] = { (point & 0x3333u) | minus, (point >> 2 & 0x3333u) | minus };
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t level = __byte_perm(0x00090107u, 0x00070109u, places[h]),
                           sign = __byte_perm(0x00000080u, 0x00008080u, places[h]);
            pair[2 * h] = __byte_perm(level, sign, 0x5140);
            pair[2 * h + 1] = __byte_perm(level, sign, 0x7362);
        }
    }
    static __device__ __forceinline__ uint32_t if_set(uint32_t bit) { return (bit & 1u) * 0x4444u; }

    /* ---- integers: weights, or levels 0 to 2 and ones ---- */
    static constexpr float int8_unscale = 0.125f;
    /* Three bits more of an index choose an eighth of a line. Levels of values 0 to 3 in the lower halves of a word's
     * bytes, of the others in the upper ones. */
    static __device__ __forceinline__ uint4 int8_line(uint32_t line, uint32_t part)
    {
        const uint32_t point = __ldg(iq1_grid + (line | part / 2 << 8)),
                       v = __byte_perm(0x00020100u, 0, point & 0x3333u) |
                           __byte_perm(0x00201000u, 0, point >> 2 & 0x3333u);
        return make_uint4(v, v, v, v);
    }
    static __device__ __forceinline__ uint32_t point_of(const quants &q, uint32_t b, uint32_t h)
    {
        return __ldg(iq1_grid +
                     (((h ? q.index.y : q.index.x) >> 8 * b & 255u) | (q.more >> (16 * h + 3 * b) & 7u) << 8));
    }
    /* Levels of two words; of the table: upper bits of both rows' indices are in bytes 0 and 2, or 1 and 3 of low. */
    template <bool TABLE>
    static __device__ __forceinline__ uint2 levels(const quants &q, const unsigned char *table, uint32_t lane,
                                                   uint32_t b, uint32_t h)
    {
        if constexpr (TABLE) {
            const uint32_t low = b < 2 ? wk_and_or(q.more << (5 - 3 * b), 0x00e000e0u, lane % 8 * 0x00040004u)
                                       : wk_and_or(q.more << (13 - 3 * b), 0xe000e000u, lane % 8 * 0x04000400u),
                           v = *reinterpret_cast<const uint32_t *>(
                               table + iq_line(h ? q.index.y : q.index.x, b, low, b / 2 + 2 * h, 1 - b / 2));
            return make_uint2(v & 0x03030303u, v >> 4 & 0x03030303u);
        } else {
            const uint32_t point = point_of(q, b, h);
            return make_uint2(__byte_perm(0x00020100u, 0, point & 0x3333u),
                              __byte_perm(0x00020100u, 0, point >> 2 & 0x3333u));
        }
    }
    /* F::shifted: bytes of levels, with what is to be added to them at once. */
    template <bool TABLE>
    static __device__ __forceinline__ void int8_levels(const quants &q, const unsigned char *table, uint32_t lane,
                                                       uint32_t b, uint32_t a[4], uint32_t less[4])
    {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint2 v = F::shifted(q, b, h, levels<TABLE>(q, table, lane, b, h));
            a[h] = v.x;
            a[h + 2] = v.y;
            less[h] = less[h + 2] = 0x01010101u;
        }
    }
    /* Eight weights; minus: as of pairs(). */
    static __device__ __forceinline__ void signed_eight(const quants &q, uint32_t b, uint32_t h, uint32_t minus,
                                                        uint32_t a[4])
    {
        const uint32_t point = point_of(q, b, h);
        a[h] = __byte_perm(0x000901f9u, 0x0007fff7u, (point & 0x3333u) | minus);
        a[h + 2] = __byte_perm(0x000901f9u, 0x0007fff7u, (point >> 2 & 0x3333u) | minus);
    }

    /* ---- the file's bytes: F::index_at, F::upper and F::last say where ---- */
    static __device__ __forceinline__ uint32_t lane_word(const wk_tile_rows &r, uint32_t b, uint32_t place,
                                                         uint32_t lane, uint32_t i)
    {
        uint32_t w = 0;
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t e = place * 16 + 4 * j + lane % 4;
            if (i < 2) {
                w |= r.byte<F>(lane / 4 + 8 * i, b, F::index_at + e) << 8 * j;
                continue;
            }
            for (uint32_t h = 0; h < 2; h++) {
                const uint32_t row = lane / 4 + 8 * h;
                w |= (F::upper(r, row, b, e) << 3 * j | F::last(r, row, b, e, j) << (12 + j)) << 16 * h;
            }
        }
        return w;
    }
    static __device__ __forceinline__ uint32_t index_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return tiles::lane_at(tile, b, e / 16, row % 8 * 4 + e % 4, row / 8) >> e / 4 % 4 * 8 & 255u;
    }
    /* The half word of eight e's lane and row. */
    static __device__ __forceinline__ uint32_t half_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return tiles::lane_at(tile, b, e / 16, row % 8 * 4 + e % 4, 2) >> row / 8 * 16 & 0xffffu;
    }
    static __device__ __forceinline__ uint32_t upper_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t e)
    {
        return half_of(tile, row, b, e) >> e / 4 % 4 * 3 & 7u;
    }
    static __device__ __forceinline__ void values(float scale, uint32_t at, uint32_t minus, float v[8])
    {
        for (uint32_t i = 0; i < 8; i++) {
            const float level = (float)(int)(iq1_grid[at] >> (i % 4 * 4 + i / 4 * 2) & 3u) - 1.0f;
            v[i] = __fmul_rn(scale, level + (minus ? -0.125f : 0.125f));
        }
    }
};

struct iq1_s : iq1<iq1_s, 19, 50, 32>, iq_integers {
    static constexpr uint32_t index_at = 2;
    /* ---- integers: 8 level, less 8 -+ 1 ---- */
    static __device__ __forceinline__ uint2 int8_odd(const quants &q, const unsigned char *, uint32_t, uint32_t,
                                                     uint32_t)
    {
        return make_uint2((q.more >> 11 & 14u) + 1, (q.more >> 27 & 14u) + 1);
    }
    static __device__ __forceinline__ void int8_factors(const quants &q, const unsigned char *unit, uint32_t u,
                                                        uint32_t set, uint32_t lane, uint2 *first, uint2 *second)
    {
        const uint2 odd = int8_odd(q, unit, u, set, lane);
        *first = make_uint2(8 * odd.x, 8 * odd.y);
        *second = make_uint2(0u - odd.x * (7 + (q.more >> 14 & 2u)), 0u - odd.y * (7 + (q.more >> 30 & 2u)));
    }
    static __device__ __forceinline__ uint2 shifted(const quants &, uint32_t, uint32_t, uint2 levels) { return levels; }
    static __device__ __forceinline__ void int8_signed(const quants &q, uint32_t b, uint32_t a[4])
    {
        const uint32_t signs = iq_ask(q.more, b);
        signed_eight(q, b, 0, if_set(signs >> 15), a);
        signed_eight(q, b, 1, if_set(signs >> 31), a);
    }

    /* ---- halves ---- */
    struct scales {
        uint32_t d, up, scale, minus, far; /* of 32 number t: up times 2 code + 1, or that itself; the shifts' signs */
    };
    using iq1::load;
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2 == 0) {
            s.d = reinterpret_cast<const uint32_t *>(unit)[lane / 4];
            s.up = iq_up<3>(s.d);
            s.far = iq_is_far<3>(s.d);
        }
        const uint32_t last = more_at_lane(body(unit, u), lane) >> 12, odd = iq_odd(last & 0x00070007u);
        s.scale = s.far ? odd : wk_h2_mul(s.up, odd);
        s.minus = last >> 3; /* bit 0: of row g; bit 16: of row g + 8 */
    }
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        uint32_t g[4], g8[4];
        const uint32_t minus = iq_ask(s.minus, b);
        pairs(q.index.x, q.more, if_set(minus), b, g);
        pairs(q.index.y, q.more >> 16, if_set(minus >> 16), b, g8);
        iq_weights<FAR, 3>(g, g8, iq_ask(s.scale, b), s.d, a);
    }

    static __device__ __forceinline__ uint32_t head_word(const wk_tile_rows &r, uint32_t b, uint32_t row)
    {
        return iq_halves_of_rows<iq1_s>(r, b, row);
    }
    static __device__ __forceinline__ uint32_t upper(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e)
    {
        return r.half<iq1_s>(row, b, 34 + e / 4 * 2) >> e % 4 * 3 & 7u;
    }
    static __device__ __forceinline__ uint32_t last(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e,
                                                    uint32_t j)
    {
        return r.half<iq1_s>(row, b, 34 + (e / 16 * 4 + e % 4) * 2) >> (12 + j) & 1u;
    }
    /* Four bits of 32 number j: code and sign. */
    static __device__ __forceinline__ uint32_t last_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t j)
    {
        return half_of(tile, row, b, j / 4 * 16 + j % 4) >> 12;
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        if (i < 2) return d_of(tile, row, b) >> 8 * i & 255u;
        if (i < 34) return index_of(tile, row, b, i - 2);
        const uint32_t j = (i - 34) / 2;
        uint32_t w = last_of(tile, row, b, j) << 12;
        for (uint32_t e = 0; e < 4; e++) w |= upper_of(tile, row, b, 4 * j + e) << 3 * e;
        return w >> i % 2 * 8 & 255u;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32, e = i % 32, last = last_of(tile, row, b, e / 4);
        values(__fmul_rn(iq_half(d_of(tile, row, b)), (float)(2 * (last & 7u) + 1)),
               index_of(tile, row, b, e) | upper_of(tile, row, b, e) << 8, last >> 3, v);
    }
};

struct iq1_m : iq1<iq1_m, 29, 56, 128>, wk_int8_grid {
    static constexpr uint32_t index_at = 0;
    static __device__ __forceinline__ uint32_t halves_of(const uint4 &w)
    {
        return (w.x >> 12 & 0x000f000fu) | (w.y >> 8 & 0x00f000f0u) | (w.z >> 4 & 0x0f000f00u) | (w.w & 0xf000f000u);
    }

    /* ---- integers: 8 level + 2 +- 1, less 10 ---- */
    static constexpr bool int8_sixteens = true;
    static __device__ __forceinline__ uint32_t int8_ds(const unsigned char *at, uint32_t lane)
    {
        return halves_of(reinterpret_cast<const uint4 *>(at)[lane / 4]);
    }
    /* The head lies before the even unit. */
    static __device__ __forceinline__ uint2 int8_odd(const quants &, const unsigned char *unit, uint32_t u,
                                                     uint32_t set, uint32_t lane)
    {
        const uint32_t *const at = reinterpret_cast<const uint32_t *>(unit - u * offset(1)) + lane / 4 * 4;
        const uint32_t w = at[2 * u + lane % 2] >> (lane / 2 % 2 * 3 + set * 6);
        return make_uint2((w & 7u) * 2 + 1, (w >> 16 & 7u) * 2 + 1);
    }
    static __device__ __forceinline__ void int8_factors(const quants &q, const unsigned char *unit, uint32_t u,
                                                        uint32_t set, uint32_t lane, uint2 *first, uint2 *second)
    {
        *first = int8_odd(q, unit, u, set, lane);
        *second = make_uint2(0u - 10 * first->x, 0u - 10 * first->y);
    }
    static __device__ __forceinline__ uint2 shifted(const quants &q, uint32_t b, uint32_t h, uint2 levels)
    {
        const uint32_t add = 0x03030303u ^ (iq_repeat(q.more << (19 - b - 16 * h)) & 0x02020202u);
        return make_uint2(levels.x * 8 + add, levels.y * 8 + add);
    }
    static __device__ __forceinline__ void int8_signed(const quants &q, uint32_t b, uint32_t a[4])
    {
        signed_eight(q, b, 0, if_set(q.more >> (12 + b)), a);
        signed_eight(q, b, 1, if_set(q.more >> (28 + b)), a);
    }

    /* ---- halves ---- */
    struct scales {
        uint32_t d, up, codes[2], far; /* codes: of both units */
    };
    using iq1::load;
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2) return;
        const uint4 w = reinterpret_cast<const uint4 *>(unit)[lane / 4];
        s.d = halves_of(w);
        s.codes[0] = lane & 2u ? w.y : w.x;
        s.codes[1] = lane & 2u ? w.w : w.z;
        s.up = iq_up<3>(s.d);
        s.far = iq_is_far<3>(s.d);
    }
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t u, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        uint32_t g[4], g8[4];
        pairs(q.index.x, q.more, if_set(q.more >> (12 + b)), b, g);
        pairs(q.index.y, q.more >> 16, if_set(q.more >> (28 + b)), b, g8);
        const uint32_t odd = iq_odd((u % 2 ? s.codes[1] : s.codes[0]) >> 3 * b & 0x00070007u);
        iq_weights<FAR, 3>(g, g8, FAR ? odd : wk_h2_mul(s.up, odd), s.d, a);
    }

    /* Word 4 g + 2 unit + sixteen. Scale i of 16 of the file is three bits of half word i / 4, with nibble i / 4 of d:
     * 32 number b of the unit has the scales 8 unit + 2 b + sixteen. */
    static __device__ __forceinline__ uint32_t head_word(const wk_tile_rows &r, uint32_t b, uint32_t word)
    {
        uint32_t w = 0;
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t row = word / 4 + 8 * h;
            uint32_t v = r.half<iq1_m>(row, b, 48 + word % 4 * 2) & 0xf000u;
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t i = word % 4 / 2 * 8 + 2 * j + word % 2;
                v |= (r.half<iq1_m>(row, b, 48 + i / 4 * 2) >> i % 4 * 3 & 7u) << 3 * j;
            }
            w |= v << 16 * h;
        }
        return w;
    }
    static __device__ __forceinline__ uint32_t nibble(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e)
    {
        return r.byte<iq1_m>(row, b, 32 + e / 2) >> e % 2 * 4 & 15u;
    }
    static __device__ __forceinline__ uint32_t upper(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e)
    {
        return nibble(r, row, b, e) & 7u;
    }
    static __device__ __forceinline__ uint32_t last(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t e,
                                                    uint32_t)
    {
        return nibble(r, row, b, e) >> 3;
    }
    /* The nibble of an eight; word i of a row's head; scale i of 16. */
    static __device__ __forceinline__ uint32_t nibble_of(const unsigned char *tile, uint32_t row, uint32_t b,
                                                         uint32_t e)
    {
        return upper_of(tile, row, b, e) | (half_of(tile, row, b, e) >> (12 + e / 4 % 4) & 1u) << 3;
    }
    static __device__ __forceinline__ uint32_t head_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        return head_at(tile, b, row % 8 * 4 + i) >> row / 8 * 16 & 0xffffu;
    }
    static __device__ __forceinline__ uint32_t code_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        return head_of(tile, row, b, i / 8 * 2 + i % 2) >> i / 2 % 4 * 3 & 7u;
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        if (i < 32) return index_of(tile, row, b, i);
        if (i < 48) return nibble_of(tile, row, b, 2 * (i - 32)) | nibble_of(tile, row, b, 2 * (i - 32) + 1) << 4;
        const uint32_t j = (i - 48) / 2;
        uint32_t w = head_of(tile, row, b, j) & 0xf000u;
        for (uint32_t s = 0; s < 4; s++) w |= code_of(tile, row, b, 4 * j + s) << 3 * s;
        return w >> i % 2 * 8 & 255u;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32, e = i % 32, h = nibble_of(tile, row, b, e);
        uint32_t d = 0;
        for (uint32_t j = 0; j < 4; j++) d |= head_of(tile, row, b, j) >> 12 << 4 * j;
        values(__fmul_rn(iq_half(d), (float)(2 * code_of(tile, row, b, e / 2) + 1)),
               index_of(tile, row, b, e) | (h & 7u) << 8, h >> 3, v);
    }
};

#endif
