/* exp.h: e^x for x <= 0 by a fixed recipe, so that every compiler, C library and device gives the same bits.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 13 (remainder below 1e-17 of the result), n into the
 * exponent. Relative error below 3e-16. Only additions, multiplications and integer operations, each rounded by itself (the build
 * says -ffp-contract=off), and no branch, so that loops over it become vector code. */
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

/* x in [-700, 0] */
static inline double sampler_exp(double x)
{
    const double to_integer = 0x1.8p52; /* adding it leaves no room for a fraction: the sum's low bits are the integer */
    const double t = x * 0x1.71547652b82fep+0 + to_integer, n = t - to_integer;
    const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; /* ln 2, 32 bits and the rest: n times the first is exact */
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const uint64_t bits = exp_bits(p) + (exp_bits(t) << 52);
    memcpy(&p, &bits, sizeof p);
    return p;
}

#endif
