/* quant-basic/cuda/five.cuh: how Q5_0 and Q5_1 pack and unpack their values of 5 bits: 32 lanes x four words, then 32
 * lanes x the fifth word (wk_fives). Pair 8 b + 4 h + i of a lane: values 8 (lane % 4) + 2 i of block b, row lane / 4 +
 * 8 h. */
#ifndef QUANT_BASIC_CUDA_FIVE_CUH
#define QUANT_BASIC_CUDA_FIVE_CUH

#include <worker/cuda/format.cuh>

/* Word `word` of the 160 of unit u; F::quant says the values. */
template <class F> __device__ __forceinline__ uint32_t five_pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
{
    const uint32_t lane = word < 128 ? word / 4 : word - 128, w = word < 128 ? word % 4 : 4;
    uint32_t v = 0;
    for (uint32_t p = 0; p < 16; p++) {
        if (p < 15 && p / 3 != w) continue;
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t q = F::quant(r, lane / 4 + p / 4 % 2 * 8, 2 * u + p / 8, lane % 4 * 8 + p % 4 * 2 + i);
            v |= p < 15 ? q << ((p % 3 == 0 ? 5 : p % 3 == 1 ? 10 : 0) + 16 * i) : (q >> w & 1u) << (15 + 16 * i);
        }
    }
    return v;
}

/* 16 bits of block b of the row as the file has them, of the unit's words: the two halves of the word of fifth bits,
 * then two bytes of nibbles each. */
__device__ __forceinline__ uint32_t five_unpack(const unsigned char *words, uint32_t row, uint32_t b, uint32_t half)
{
    auto bit = [&](uint32_t j, uint32_t n) { /* bit n of quant j */
                                             const uint32_t lane = row % 8 * 4 + j / 8;
                                             uint32_t w, at;
                                             wk_five_at(b % 2 * 8 + row / 8 * 4 + j % 8 / 2, j % 2, n, &w, &at);
                                             return *reinterpret_cast<const uint32_t *>(
                                                        words + (w < 4 ? lane * 16 + w * 4 : 512 + lane * 4)) >>
                                                        at &
                                                    1u;
    };
    uint32_t v = 0;
    for (uint32_t i = 0; i < 16; i++)
        v |= (half < 2 ? bit(16 * half + i, 4) : bit(2 * (half - 2) + i / 8 + i / 4 % 2 * 16, i % 4)) << i;
    return v;
}

#endif
