/* quant-basic/cuda/q5_0.cuh: Q5_0 on the device (contract: worker/cuda/format.cuh).
 *
 * A unit is two blocks of the 16 rows: 8 x { d of block 0: rows g, g+8; of block 1: rows g, g+8 }, then per lane 32
 * values of 5 bits in 5 words (wk_fives): four words, of all lanes; then the fifth, of all lanes. Pair 8 b + 4 h + i:
 * block b, row g + 8 h, values 8t + 2i and 8t + 2i + 1. If k ends with block 0 the fifth words are left out: their
 * pairs, 12 to 15, are of block 1. */
#ifndef QUANT_BASIC_CUDA_Q5_0_CUH
#define QUANT_BASIC_CUDA_Q5_0_CUH

#include "five.cuh"

#include <worker/cuda/format.cuh>

struct q5_0 {
    static constexpr uint32_t type = 6, block = 32, block_bytes = 22, unit = 64, super = 1, group = 32, slot = 704,
                              parts = 1, mins = 0;
    static constexpr float bias0 = WK_FIVES_BIAS + 16, bias1 = WK_FIVES_BIAS + 16;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 704; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 64) * 704 + (k % 64 ? 576 : 0);
    }

    struct scales {
        uint2 d;
        uint32_t far; /* some |d| is 2^-4 or more */
    };
    struct quants {
        uint32_t w[5];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        s.d = *reinterpret_cast<const uint2 *>(unit + lane / 4 * 8);
        s.far = wk_h2_any(s.d.x | s.d.y, 0x2c00); /* of either, or of none: too large a one does no harm */
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        const uint4 v = *reinterpret_cast<const uint4 *>(unit + 64 + lane * 16);
        q.w[0] = v.x, q.w[1] = v.y, q.w[2] = v.z, q.w[3] = v.w,
        q.w[4] = *reinterpret_cast<const uint32_t *>(unit + 576 + lane * 4);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        uint32_t o[16];
        wk_fives(q.w, o); /* half of it is used and made */
        wk_rows_fragments(o + 8 * b, o + 8 * b + 4, a[0]);
    }
    static constexpr float unscale = 16.0f;
    /* q 2^-19 times d 2^15 (pairs at bit 0 of their word: q 2^-24 times d 2^20), less d. */
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        const uint32_t d = b ? s.d.y : s.d.x, scale = FAR ? d : wk_h2_mul(d, 0x78007800u /* 2^15 */),
                       more = wk_h2_mul(scale, 0x50005000u /* 32 */), less = d ^ 0x80008000u;
        uint32_t o[16];
        wk_fives_low(q.w, o);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t p = 8 * b + i % 2 * 4 + i / 4 * 2 + i % 4 / 2; /* pair of a[0][i / 4][i % 4] */
            uint32_t v = o[p];
            if constexpr (FAR) v = wk_h2_mul(v, 0x78007800u);
            a[0][i / 4][i % 4] =
                wk_h2_fma(v, wk_h2_both(wk_five_low(p) ? more : scale, i % 2), wk_h2_both(less, i % 2));
        }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        return wk_half2_float(i ? s.d.y : s.d.x);
    }

    /* Quant j of block b of row r: low or high nibble of byte j % 16, bit j of the word h above it. */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
    {
        return (r.byte<q5_0>(row, b, 6 + j % 16) >> (j < 16 ? 0 : 4) & 15u) |
               (r.byte<q5_0>(row, b, 2 + j / 8) >> (j % 8) & 1u) << 4;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        if (word < 16)
            return r.half<q5_0>(word / 2, 2 * u + word % 2, 0) | r.half<q5_0>(word / 2 + 8, 2 * u + word % 2, 0) << 16;
        return five_pack<q5_0>(r, u, word - 16);
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *unit = tile + offset(b / 2);
        if (half == 0) return reinterpret_cast<const uint16_t *>(unit)[row % 8 * 4 + b % 2 * 2 + row / 8];
        return five_unpack(unit + 64, row, b, half - 1);
    }
};

#endif
