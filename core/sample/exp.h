/* exp.h: e^x for x <= 0 by fixed recipes, so that every compiler, C library and device gives the same bits.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial, n into the exponent. Only additions, multiplications and
 * integer operations, each rounded by itself (the build says -ffp-contract=off), and no branch, so that loops over it
 * become vector code. */
#ifndef CORE_SAMPLE_EXP_H
#define CORE_SAMPLE_EXP_H

#include <stdint.h>
#include <string.h>

static inline uint64_t exp_bits(double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

/* Weights. 2^f by 1 + C1 f + ... + C5 f^5, |f| <= 1/2, the polynomial of that degree whose largest relative error is
 * least, 9.2e-8. */
#define SAMPLER_LOG2_E 0x1.715476p+0f
#define SAMPLER_EXP2_C1 0x1.62e42ap-1f
#define SAMPLER_EXP2_C2 0x1.ebf9bcp-3f
#define SAMPLER_EXP2_C3 0x1.c6b752p-5f
#define SAMPLER_EXP2_C4 0x1.3cea88p-7f
#define SAMPLER_EXP2_C5 0x1.5bba14p-10f

enum { SAMPLER_WEIGHT_BITS = 44 };
#define SAMPLER_TO_INTEGER                                                                                            \
    (0x1.8p23f + SAMPLER_WEIGHT_BITS) /* adding it leaves no room for a fraction: the sum's low bits are the integer, \
                                         and SAMPLER_WEIGHT_BITS more */

/* The weight of what lies x below the best, -inf to 0: e^x * 2^44, an integer: 2^44 of 0, 0 below -31.2. F32 up to the
 * integer: relative error below 3e-7 + 1e-7 |x|, and 1/2. */
static inline uint64_t sampler_weight(float x)
{
    const float y = x * SAMPLER_LOG2_E, t = y < -60.0f ? -60.0f : y, integer = t + SAMPLER_TO_INTEGER,
                f = t - (integer - SAMPLER_TO_INTEGER);
    float p = SAMPLER_EXP2_C5 * f + SAMPLER_EXP2_C4;
    p = p * f + SAMPLER_EXP2_C3;
    p = p * f + SAMPLER_EXP2_C2;
    p = p * f + SAMPLER_EXP2_C1;
    p = p * f + 1.0f;
    uint32_t bits, exponent;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&exponent, &integer, sizeof exponent);
    bits += exponent << 23;
    memcpy(&p, &bits, sizeof p);
    return exp_bits((double)p + 0x1p52) &
           ((UINT64_C(1) << 52) - 1); /* adding 2^52 rounds to an integer, in the low bits */
}

#endif
