/* tensor.h: the arithmetic of Hopper's tensor cores for F32 sums (MMA-Sim, arXiv 2511.10909, which compared it with the
 * device): all products of a step and the accumulator are taken to the largest of their exponents, cut there (not
 * rounded) behind 25 bits of fraction, added exactly, and the sum is cut to F32. A product's exponent is the sum of its
 * factors', before it is normalised; the order of the terms does not matter. */
#ifndef TESTS_EMULATOR_TENSOR_H
#define TESTS_EMULATOR_TENSOR_H

#include <math.h>

#include "lanes.h"

enum {
    TENSOR_HALF = -14,
    TENSOR_WIDE = -126 /* F32, BF16, TF32 */,
    TENSOR_ZERO = -4096,
    TENSOR_FRACTION = 25,
    TENSOR_COLUMNS = 8
};

/* The exponent of a value of a format whose least normal exponent is given: a subnormal has that one. */
static inline int32_t tensor_exponent(float x, int32_t least)
{
    const int32_t e = (int32_t)(bits_of(x) >> 23 & 255) - 127;
    return x == 0.0f ? TENSOR_ZERO : e > least ? e : least;
}

static inline float cut_to_float(double v)
{
    const float f = (float)v;
    if (isnan(v)) return f32_of(0x7fffffffu);
    return fabs((double)f) > fabs(v) && fabs(v) < 0x1p128 ? f32_of(bits_of(f) - 1) : f;
}

/* d[c] = d[c] + sum of a[n] b[n][c] over n < k, for eight columns; ea, eb: exponents; b and eb
 * have rows of `stride`. */
static inline void tensor_row(float *d, const float *a, const int32_t *ea, const float *b, const int32_t *eb,
                              size_t stride, unsigned k)
{
    int32_t most[TENSOR_COLUMNS];
    double sum[TENSOR_COLUMNS], plain[TENSOR_COLUMNS], scale[TENSOR_COLUMNS];
    for (unsigned c = 0; c < TENSOR_COLUMNS; c++) most[c] = tensor_exponent(d[c], TENSOR_WIDE);
    for (unsigned n = 0; n < k; n++)
        for (unsigned c = 0; c < TENSOR_COLUMNS; c++) {
            const int32_t e = ea[n] + eb[n * stride + c];
            most[c] = e > most[c] ? e : most[c];
        }
    for (unsigned c = 0; c < TENSOR_COLUMNS; c++) {
        const int32_t e = most[c] < -512 ? -512 : most[c]; /* every term is zero */
        scale[c] = f64_of((uint64_t)(1023 + TENSOR_FRACTION - e) << 52);
        most[c] = e;
        plain[c] = (double)d[c];
        sum[c] = trunc((double)d[c] * scale[c]);
    }
    for (unsigned n = 0; n < k; n++)
        for (unsigned c = 0; c < TENSOR_COLUMNS; c++) {
            const double p = (double)a[n] * (double)b[n * stride + c];
            plain[c] += p;
            sum[c] += trunc(p * scale[c]);
        }
    for (unsigned c = 0; c < TENSOR_COLUMNS; c++)
        d[c] = cut_to_float(isfinite(plain[c]) ? sum[c] * f64_of((uint64_t)(1023 + most[c] - TENSOR_FRACTION) << 52)
                                               : plain[c]);
}

#endif
