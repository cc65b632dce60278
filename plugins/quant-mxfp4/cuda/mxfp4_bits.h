/* quant-mxfp4/cuda/mxfp4_bits.h: the bits of MXFP4 on the device, as functions of words: what nvcc compiles into
 * kernels and a C compiler into a test.
 *
 * The four bits of a value, sign at bit 15 and the others at bits 11 to 9 of an f16, are the value times 2^-14: E2M1's
 * exponent is then the lower end of f16's, its zero exponent f16's subnormals. So a pair of values costs a shift and a
 * mask, no table and no constant to take off again.
 *
 * Sign and magnitude do not lie side by side there, and no four shifts of a word cover all of its bits. Five do (0,
 * left 2, 6 and 9, right 3); two pairs are each the XOR of two of these. Bits are stored so that this gives the values:
 * mxfp4_pairs costs 8 instructions for 8 values, mxfp4_word is its inverse. */
#ifndef QUANT_MXFP4_CUDA_BITS_H
#define QUANT_MXFP4_CUDA_BITS_H

#include <stdint.h>

#ifdef __CUDACC__
#define MXFP4_FUNCTION static __device__ __forceinline__
#else
#define MXFP4_FUNCTION static inline
#endif

/* What two f16 hold of a pair, the first in the lower half. */
#define MXFP4_PAIR 0x8e008e00u

/* Word -> values 2j and 2j + 1 in pair j, times 2^-14. */
MXFP4_FUNCTION void mxfp4_pairs(uint32_t w, uint32_t pair[4])
{
    pair[0] = w << 6 & MXFP4_PAIR;
    pair[1] = w << 9 & MXFP4_PAIR;
    pair[2] = (w ^ w << 2) & MXFP4_PAIR;
    pair[3] = (w ^ w >> 3) & MXFP4_PAIR;
}

/* Nibbles of the file as a pair, and back. */
MXFP4_FUNCTION uint32_t mxfp4_half(uint32_t nibble) { return (nibble & 8u) << 12 | (nibble & 7u) << 9; }
MXFP4_FUNCTION uint32_t mxfp4_nibble(uint32_t pair, uint32_t upper)
{
    return (pair >> (16 * upper + 12) & 8u) | (pair >> (16 * upper + 9) & 7u);
}

/* The word of four pairs: bits in an order in which each is known when it is needed. */
MXFP4_FUNCTION uint32_t mxfp4_word(const uint32_t pair[4])
{
    const uint32_t c = pair[2], d = pair[3];
    uint32_t w = pair[0] >> 6 | pair[1] >> 9; /* bits 9, 5..3; 6, 2..0 */
    w |= (c ^ w << 2) & 0x08000800u;          /* 11 */
    w |= ((c ^ w) & 0x02000200u) >> 2;        /* 7 */
    w |= ((d ^ w) & 0x02000200u) << 3;        /* 12 */
    w |= ((d ^ w) & 0x08000800u) << 3;        /* 14 */
    w |= (d ^ w >> 3) & 0x80008000u;          /* 15 */
    w |= ((c ^ w) & 0x80008000u) >> 2;        /* 13 */
    w |= (d ^ w >> 3) & 0x04000400u;          /* 10 */
    w |= ((c ^ w) & 0x04000400u) >> 2;        /* 8 */
    return w;
}

/* Exponents of four blocks, of two rows h and two places b: e[2b + h]. Those of place b, after a turn to the left by 8
 * b, lie where a BF16 has its exponent. */
MXFP4_FUNCTION uint32_t mxfp4_exponents(const uint32_t e[4])
{
    const uint32_t next = e[2] << 7 | e[3] << 23;
    return e[0] << 7 | e[1] << 23 | next >> 8 | next << 24;
}
MXFP4_FUNCTION uint32_t mxfp4_turned(uint32_t w, uint32_t b) { return b ? w << 8 | w >> 24 : w; }
MXFP4_FUNCTION uint32_t mxfp4_exponent(uint32_t w, uint32_t b, uint32_t h)
{
    return mxfp4_turned(w, b) >> (7 + 16 * h) & 255u;
}

/* 2^(e - 127 + 14) of both rows as two BF16: a normal number for every e up to 240, infinite for 241, and not a number
 * beyond. */
MXFP4_FUNCTION uint32_t mxfp4_scale_pair(uint32_t w, uint32_t b)
{
    const uint32_t e = mxfp4_turned(w, b) & 0x7f807f80u;
#ifdef __CUDACC__
    return __viaddmin_u16x2(e, 14u << 7 | 14u << 23, 0x7fc07fc0u);
#else
    const uint32_t sum = e + (14u << 7 | 14u << 23), low = sum & 0xffffu, high = sum >> 16;
    return (low < 0x7fc0u ? low : 0x7fc0u) | (high < 0x7fc0u ? high : 0x7fc0u) << 16;
#endif
}

#endif
