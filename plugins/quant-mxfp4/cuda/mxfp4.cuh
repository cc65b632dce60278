/* quant-mxfp4/cuda/mxfp4.cuh: MXFP4 on the device (contract: worker/cuda/format.cuh).
 *
 * A unit is two blocks of the 16 rows: 32 lanes x { row g, row g+8 of block 0; the same of block 1 }, a word of 8
 * values each (mxfp4_bits.h); then 8 x a word of four exponents: rows g and g+8 of both blocks. A unit that k cuts
 * short is whole, with zeros.
 *
 * Fragments are the values times 2^-14 and need no bias. Products multiply sums of 32 by 2^(e - 127), an e of 0 being a
 * scale of 0, and have the 2^14 at their end: they are finite as long as their sums are (the CPU's are not from 228
 * on). Where a tile is made into f16 or F32 the scale is 2^(e - 127 + 14), so that no exponent of the file is a
 * subnormal scale; gather and expand know every e, as the CPU's dequantize does. Expanded to f16, values are exact for
 * e from 104 to 140; below they are rounded as subnormals are, above they become infinite: no trained model has any
 * such. */
#ifndef QUANT_MXFP4_CUDA_MXFP4_CUH
#define QUANT_MXFP4_CUDA_MXFP4_CUH

#include <worker/cuda/format.cuh>

#include "mxfp4_bits.h"

struct mxfp4 {
    static constexpr bool exact = true;
    static constexpr uint32_t type = 39, block = 32, block_bytes = 17, unit = 64, super = 1, group = 32, slot = 544,
                              parts = 1, mins = 0;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 544; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)((k + 63) / 64) * 544;
    }

    struct scales {
        uint32_t e;
    };
    struct quants {
        uint4 q;
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        s.e = *reinterpret_cast<const uint32_t *>(unit + 512 + lane / 4 * 4);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        q.q = reinterpret_cast<const uint4 *>(unit)[lane];
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        uint32_t x[4], y[4];
        mxfp4_pairs(b ? q.q.z : q.q.x, x);
        mxfp4_pairs(b ? q.q.w : q.q.y, y);
        wk_rows_fragments(x, y, a[0]);
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        const uint32_t pair = mxfp4_scale_pair(s.e, i);
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    }
    /* What products multiply sums of 32 by, 2^(e - 127); they have the fragments' 2^14 at their end. An e of 0 is taken
     * as a scale of 0. */
    static constexpr float unscale = 16384.0f;
    static __device__ __forceinline__ float2 sum_scale(const scales &s, uint32_t i)
    {
        const uint32_t low = i ? s.e << 24 | s.e >> 8 : s.e << 16, high = i ? s.e << 8 | s.e >> 24 : s.e;
        return make_float2(__uint_as_float(low & 0x7f800000u), __uint_as_float(high & 0x7f800000u));
    }
    /* As an f16, 2^(e - 113), for e from 99 to 128: below, every value of the block is 0 in f16; above, it is none, for
     * blocks whose values reach 12. */
    static __device__ __forceinline__ bool half_scales(const scales &s)
    {
        const uint32_t low = 0xbf80bf80u /* -129 << 7 */, none = 0xffffffffu;
        return ((__viaddmax_s16x2(s.e & 0x7f807f80u, low, none) &
                 __viaddmax_s16x2(mxfp4_turned(s.e, 1) & 0x7f807f80u, low, none)) &
                0x80008000u) == 0x80008000u;
    }
    static __device__ __forceinline__ uint32_t half_scale(const scales &s, uint32_t i, uint32_t h)
    {
        const uint32_t exponents =
            __vmins2(__viaddmax_s16x2(mxfp4_turned(s.e, i) & 0x7f807f80u, 0xcf00cf00u /* -98 << 7 */, 0u),
                     31u << 7 | 31u << 23); /* of an f16, at bit 7 */
        return __byte_perm(exponents << 3, 0, h ? 0x3232 : 0x1010);
    }

    /* Where the words of a row lie: 8 values from 8t of block b; the exponent of block b. */
    static __device__ __forceinline__ uint32_t values_word(const unsigned char *tile, uint32_t row, uint32_t b,
                                                           uint32_t t)
    {
        return *reinterpret_cast<const uint32_t *>(tile + offset(b / 2) + (row % 8 * 4 + t) * 16 + b % 2 * 8 +
                                                   row / 8 * 4);
    }
    static __device__ __forceinline__ uint32_t exponent(const unsigned char *tile, uint32_t row, uint32_t b)
    {
        return mxfp4_exponent(*reinterpret_cast<const uint32_t *>(tile + offset(b / 2) + 512 + row % 8 * 4), b % 2,
                              row / 8);
    }
    /* Twice the value, an integer, times 2^(e - 128), which is exact: as the CPU's dequantize. */
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t e = exponent(tile, row, i / 4);
        const float d = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        uint32_t pair[4];
        mxfp4_pairs(values_word(tile, row, i / 4, i % 4), pair);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = wk_half2_float(pair[j]);
            v[2 * j] = __fmul_rn(__fmul_rn(f.x, 32768.0f), d);
            v[2 * j + 1] = __fmul_rn(__fmul_rn(f.y, 32768.0f), d);
        }
    }

    /* Nibble j of block b: value j (j < 16) low in byte j, value j high in byte j - 16. */
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        if (word >= 128) {
            const uint32_t row = word - 128,
                           e[4] = { r.byte<mxfp4>(row, 2 * u, 0), r.byte<mxfp4>(row + 8, 2 * u, 0),
                                    r.byte<mxfp4>(row, 2 * u + 1, 0), r.byte<mxfp4>(row + 8, 2 * u + 1, 0) };
            return mxfp4_exponents(e);
        }
        const uint32_t lane = word / 4, row = lane / 4 + word % 2 * 8, b = 2 * u + word / 2 % 2, first = 8 * (lane % 4);
        uint32_t pair[4] = { 0, 0, 0, 0 };
        for (uint32_t i = 0; i < 8; i++)
            pair[i / 2] |= mxfp4_half(r.byte<mxfp4>(row, b, 1 + (first + i) % 16) >> (first < 16 ? 0 : 4) & 15u)
                           << 16 * (i % 2);
        return mxfp4_word(pair);
    }
    static __device__ __forceinline__ uint32_t
    nibbles(const unsigned char *tile, uint32_t row, uint32_t b,
            uint32_t j) /* byte j of a block's values: value j and value j + 16 */
    {
        uint32_t low[4], high[4];
        mxfp4_pairs(values_word(tile, row, b, j / 8), low);
        mxfp4_pairs(values_word(tile, row, b, j / 8 + 2), high);
        return mxfp4_nibble(low[j % 8 / 2], j % 2) | mxfp4_nibble(high[j % 8 / 2], j % 2) << 4;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const uint32_t first = half ? nibbles(tile, row, b, 2 * half - 1) : exponent(tile, row, b);
        return half < 8 ? first | nibbles(tile, row, b, 2 * half) << 8 : first;
    }
};

#endif
