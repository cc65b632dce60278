/* quant-iq4/cuda/iq4.cuh: what IQ4_NL and IQ4_XS share on the device: 32 levels of two rows, and products' weights.
 *
 * Fragments are the levels times 2^-24 (iq4_bits.h) and need no bias; scales as floats have the 2^24. Products' weights
 * are f16(level * scale / 16): level 2^-24 times scale 2^20, one product a pair. Where some scale is so large that 2^20
 * times it is out of f16's range (FAR), the levels are made 2^20 times larger instead. */
#ifndef QUANT_IQ4_CUDA_IQ4_CUH
#define QUANT_IQ4_CUDA_IQ4_CUH

#include <worker/cuda/format.cuh>

#include "iq4_bits.h"

/* A of 32 values from the words of rows g and g + 8. */
__device__ __forceinline__ void iq4_fragments(uint2 q, uint32_t a[1][2][4])
{
    uint32_t x[4], y[4];
    iq4_pairs(q.x, x);
    iq4_pairs(q.y, y);
    wk_rows_fragments(x, y, a[0]);
}

/* A scale of two rows as iq4_halves takes it. */
__device__ __forceinline__ uint32_t iq4_up(uint32_t d, bool far)
{
    const uint32_t up = wk_h2_mul(wk_h2_mul(d, 0x78007800u /* 2^15 */), 0x50005000u /* 2^5 */);
    return far ? d : up;
}
template <bool FAR> __device__ __forceinline__ void iq4_halves(uint2 q, uint32_t scale, uint32_t a[1][2][4])
{
    iq4_fragments(q, a);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t v = a[0][i / 4][i % 4];
        if constexpr (FAR) v = wk_h2_mul(wk_h2_mul(v, 0x78007800u), 0x50005000u);
        a[0][i / 4][i % 4] = wk_h2_mul(v, wk_h2_both(scale, i % 2));
    }
}

/* The word of 8 values from value `first` of a group of 32, of block b of a row, whose 16 bytes begin at byte `at`. */
template <class F>
__device__ __forceinline__ uint32_t iq4_pack(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t at,
                                             uint32_t first)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < 8; i++)
        v |= iq4_put(r.byte<F>(row, b, at + (first + i) % 16) >> (first < 16 ? 0 : 4) & 15u, i);
    return v;
}

#endif
