/* quant-iq4/cuda/iq4_bits.h: the bits of IQ4's levels on the device, as functions of words: what nvcc compiles into
 * kernels and a C compiler into a test.
 *
 * A level is a sign and a magnitude below 128. A byte of magnitude under an upper byte of the sign alone is a subnormal
 * f16, the level times 2^-24: a pair costs no constant that has to be taken off again.
 *
 * Magnitudes come from tables of eight bytes by the instruction that permutes bytes, whose selectors are the stored
 * nibbles: three bits choose a byte, and where the fourth is set the result is that byte's sign bit, eight times: 0,
 * since no magnitude has it. So the nibble of a positive level finds 0 in the table of the negative ones, where its
 * fourth bit is turned over, and the other way round; the OR of both is the magnitude. The fourth bit, 1 if negative
 * (in the file 0), is the sign of the result, too: it stands at the top of a byte in every second nibble, in the others
 * after a shift by four. Hence values 2j and 2j + 1 are nibbles j % 2 + 4 (j / 2) and that plus 2. */
#ifndef QUANT_IQ4_CUDA_BITS_H
#define QUANT_IQ4_CUDA_BITS_H

#include <stdint.h>

#ifdef __CUDACC__
#define IQ4_FUNCTION static __device__ __forceinline__
#else
#define IQ4_FUNCTION static inline
#endif

/* Bytes of a (0..3) and b (4..7) by the nibbles of the lower half of `selector`; one with its fourth bit set has the
 * byte's sign bit everywhere. */
IQ4_FUNCTION uint32_t iq4_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
#ifdef __CUDACC__
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
#else
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t s = selector >> 4 * i & 15u, byte = (s & 4u ? b : a) >> 8 * (s & 3u) & 255u;
        d |= (s & 8u ? 255u * (byte >> 7) : byte) << 8 * i;
    }
    return d;
#endif
}

/* Magnitudes of four nibbles; turned: the same with their fourth bits turned over. */
IQ4_FUNCTION uint32_t iq4_magnitudes(uint32_t w, uint32_t turned)
{
    return iq4_bytes(0x26190d01u, 0x71594535u, w) | iq4_bytes(0x4153687fu, 0x0a162331u, turned);
}

/* Word -> levels 2j and 2j + 1 in pair j, times 2^-24. */
IQ4_FUNCTION void iq4_pairs(uint32_t w, uint32_t pair[4])
{
    const uint32_t turned = w ^ 0x88888888u, low = iq4_magnitudes(w, turned),
                   high = iq4_magnitudes(w >> 16, turned >> 16), even = w << 4 & 0x80808080u, odd = w & 0x80808080u;
    pair[0] = iq4_bytes(low, even, 0x5240u);
    pair[1] = iq4_bytes(low, odd, 0x5341u);
    pair[2] = iq4_bytes(high, even, 0x7260u);
    pair[3] = iq4_bytes(high, odd, 0x7361u);
}

/* Value i of 8, a nibble of the file, in its place of a word, and back. */
IQ4_FUNCTION uint32_t iq4_place(uint32_t i) { return 4 * (i / 2 % 2 + i / 4 * 4 + i % 2 * 2); }
IQ4_FUNCTION uint32_t iq4_put(uint32_t nibble, uint32_t i) { return (nibble ^ 8u) << iq4_place(i); }
IQ4_FUNCTION uint32_t iq4_get(uint32_t w, uint32_t i) { return (w >> iq4_place(i) & 15u) ^ 8u; }

/* Codes of scales, six bits, of two rows h and two groups: code[2 group + h], as a half and a byte, and back: those of
 * a group in the halves of a word. */
IQ4_FUNCTION uint32_t iq4_codes_low(const uint32_t code[4])
{
    return (code[0] & 15u) | (code[2] & 15u) << 4 | (code[1] & 15u) << 8 | (code[3] & 15u) << 12;
}
IQ4_FUNCTION uint32_t iq4_codes_high(const uint32_t code[4])
{
    return code[0] >> 4 | code[2] >> 4 << 2 | code[1] >> 4 << 4 | code[3] >> 4 << 6;
}
IQ4_FUNCTION uint32_t iq4_codes(uint32_t low, uint32_t high, uint32_t group)
{
    const uint32_t apart = low | low << 8, two = high | high << 12; /* a row's in the lower bits of either half */
    return group ? (apart >> 4 & 0x000f000fu) | (two << 2 & 0x00300030u)
                 : (apart & 0x000f000fu) | (two << 4 & 0x00300030u);
}

#endif
