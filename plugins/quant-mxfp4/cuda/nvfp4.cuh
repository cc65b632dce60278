/* quant-mxfp4/cuda/nvfp4.cuh: NVFP4 on the device (contract: worker/cuda/format.cuh).
 *
 * A unit is one block of the 16 rows: 32 lanes x { row g, row g + 8 of the first 32 values; the same of the second }, a
 * word of 8 values each (mxfp4_bits.h); then for each g and either 16 of a 32 a word of scales: rows g and g + 8 of the
 * first 32, of the second. A lane's 8 values have one scale.
 *
 * A scale's seven bits, shifted, are a half: the scale times 2^-8. Products' weights are value times scale / 256, which
 * has six significant bits and is exact. */
#ifndef QUANT_MXFP4_CUDA_NVFP4_CUH
#define QUANT_MXFP4_CUDA_NVFP4_CUH

#include <worker/cuda/format.cuh>

#include "mxfp4_bits.h"

struct nvfp4 {
    static constexpr uint32_t type = 40, block = 64, block_bytes = 36, unit = 64, super = 1, group = 32, slot = 576,
                              parts = 1, mins = 0;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f, unscale = 256.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 576; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 64) * 576;
    }

    struct scales {
        uint32_t s;
    };
    struct quants {
        uint4 q;
    };
    /* The bytes without their eighth bits; one that is 127 with it becomes 0. */
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        const uint32_t w = reinterpret_cast<const uint32_t *>(unit + 512)[lane / 2], other = w ^ 0x7f7f7f7fu,
                       is_other = (((other & 0x7f7f7f7fu) + 0x7f7f7f7fu) | other) & 0x80808080u;
        s.s = w & (is_other - (is_other >> 7));
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        q.q = reinterpret_cast<const uint4 *>(unit)[lane];
    }
    template <bool>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        uint32_t x[4], y[4];
        mxfp4_pairs(b ? q.q.z : q.q.x, x);
        mxfp4_pairs(b ? q.q.w : q.q.y, y);
        wk_rows_fragments(x, y, a[0]);
        const uint32_t scale = wk_h2_mul(__byte_perm(s.s, 0, b ? 0x4342 : 0x4140) << 7, 0x74007400u /* 2^14 */);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) a[0][i / 4][i % 4] = wk_h2_mul(a[0][i / 4][i % 4], wk_h2_both(scale, i % 2));
    }

    /* Of a block of a row: 8 values from 8 i on; scale i of 4, as it is in the file. */
    static __device__ __forceinline__ uint32_t values_word(const unsigned char *tile, uint32_t row, uint32_t b,
                                                           uint32_t i)
    {
        return reinterpret_cast<const uint32_t *>(tile + offset(b))[(row % 8 * 4 + i % 4) * 4 + i / 4 * 2 + row / 8];
    }
    static __device__ __forceinline__ uint32_t scale_byte(const unsigned char *tile, uint32_t row, uint32_t b,
                                                          uint32_t i)
    {
        return tile[offset(b) + 512 + (row % 8 * 2 + i % 2) * 4 + i / 2 * 2 + row / 8];
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t s = scale_byte(tile, row, i / 8, i % 8 / 2);
        const float scale = s == 127 ? 0.0f : __fmul_rn(wk_half2_float((s & 127u) << 7).x, 256.0f);
        uint32_t pair[4];
        mxfp4_pairs(values_word(tile, row, i / 8, i % 8), pair);
#pragma unroll
        for (int j = 0; j < 4; j++) { /* a nibble of 8 is 0, not -0 */
            const float2 f = wk_half2_float(pair[j]);
            v[2 * j] = __fmul_rn(__fadd_rn(__fmul_rn(f.x, 16384.0f), 0.0f), scale);
            v[2 * j + 1] = __fmul_rn(__fadd_rn(__fmul_rn(f.y, 16384.0f), 0.0f), scale);
        }
    }

    /* Value j of 16: low (j < 8) or high nibble of byte j % 8. */
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        if (word >= 128) {
            const uint32_t row = (word - 128) / 2, sixteen = word % 2;
            return r.byte<nvfp4>(row, u, sixteen) | r.byte<nvfp4>(row + 8, u, sixteen) << 8 |
                   r.byte<nvfp4>(row, u, sixteen + 2) << 16 | r.byte<nvfp4>(row + 8, u, sixteen + 2) << 24;
        }
        const uint32_t lane = word / 4, row = lane / 4 + word % 2 * 8, i = word / 2 % 2 * 4 + lane % 4;
        uint32_t pair[4] = { 0, 0, 0, 0 };
        for (uint32_t j = 0; j < 8; j++)
            pair[j / 2] |= mxfp4_half(r.byte<nvfp4>(row, u, 4 + i / 2 * 8 + j) >> i % 2 * 4 & 15u) << 16 * (j % 2);
        return mxfp4_word(pair);
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        if (i < 4) return scale_byte(tile, row, b, i);
        const uint32_t sixteen = (i - 4) / 8, j = i % 4 + (i - 4) % 8 / 4 * 4;
        uint32_t low[4], high[4];
        mxfp4_pairs(values_word(tile, row, b, 2 * sixteen), low);
        mxfp4_pairs(values_word(tile, row, b, 2 * sixteen + 1), high);
        return mxfp4_nibble(low[j / 2], j % 2) | mxfp4_nibble(high[j / 2], j % 2) << 4;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        return byte_of(tile, row, b, 2 * half) | byte_of(tile, row, b, 2 * half + 1) << 8;
    }
};

#endif
