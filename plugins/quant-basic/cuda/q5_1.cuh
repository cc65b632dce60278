/* quant-basic/cuda/q5_1.cuh: Q5_1 on the device (contract: worker/cuda/format.cuh).
 *
 * As Q5_0 (q5_0.cuh), with minima: a unit begins with 8 x { d of block 0: rows g, g+8; m likewise; d, m of block 1 };
 * then four words of all lanes, then the fifth of all lanes, which is left out where k ends with block 0. */
#ifndef QUANT_BASIC_CUDA_Q5_1_CUH
#define QUANT_BASIC_CUDA_Q5_1_CUH

#include "five.cuh"

#include <worker/cuda/format.cuh>

struct q5_1 {
    static constexpr uint32_t type = 7, block = 32, block_bytes = 24, unit = 64, super = 1, group = 32, slot = 768,
                              parts = 1, mins = 1;
    static constexpr float bias0 = WK_FIVES_BIAS, bias1 = WK_FIVES_BIAS;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 768; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 64) * 768 + (k % 64 ? 640 : 0);
    }

    struct scales {
        uint4 d;
    };
    struct quants {
        uint32_t w[5];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        s.d = reinterpret_cast<const uint4 *>(unit)[lane / 4];
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        const uint4 v = *reinterpret_cast<const uint4 *>(unit + 128 + lane * 16);
        q.w[0] = v.x, q.w[1] = v.y, q.w[2] = v.z, q.w[3] = v.w,
        q.w[4] = *reinterpret_cast<const uint32_t *>(unit + 640 + lane * 4);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        uint32_t o[16];
        wk_fives(q.w, o); /* half of it is used and made */
        wk_rows_fragments(o + 8 * b, o + 8 * b + 4, a[0]);
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        return wk_half2_float(i ? s.d.z : s.d.x);
    }
    static __device__ __forceinline__ float2 min(const scales &s, uint32_t, uint32_t i)
    {
        const float2 m = wk_half2_float(i ? s.d.w : s.d.y);
        return make_float2(-m.x, -m.y);
    }

    /* Quant j of block b of row r: low or high nibble of byte j % 16, bit j of the word h above it. */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
    {
        return (r.byte<q5_1>(row, b, 8 + j % 16) >> (j < 16 ? 0 : 4) & 15u) |
               (r.byte<q5_1>(row, b, 4 + j / 8) >> (j % 8) & 1u) << 4;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        if (word < 32)
            return r.half<q5_1>(word / 4, 2 * u + word / 2 % 2, word % 2 * 2) |
                   r.half<q5_1>(word / 4 + 8, 2 * u + word / 2 % 2, word % 2 * 2) << 16;
        return five_pack<q5_1>(r, u, word - 32);
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *unit = tile + offset(b / 2);
        if (half < 2) return reinterpret_cast<const uint16_t *>(unit)[row % 8 * 8 + b % 2 * 4 + half * 2 + row / 8];
        return five_unpack(unit + 128, row, b, half - 2);
    }
};

#endif
