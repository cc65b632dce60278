/* worker/cpu/half.h: 16-bit floats in portable C, bit for bit what F16C does; and scales that are bare exponents.
 *
 * Reference code may not use instructions that the oldest machine lacks, so the conversions are integer arithmetic on
 * the bit patterns. */
#ifndef WORKER_CPU_HALF_H
#define WORKER_CPU_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline float wk_float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t wk_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Exact for every pattern; a signalling NaN becomes quiet, its other payload bits stay. */
static inline float wk_half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 31) return wk_float_from_bits(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0));
    if (exponent) return wk_float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = (float)mantissa * 0x1p-24f; /* subnormal: a multiple of 2^-24, exact in float */
    return sign ? -magnitude : magnitude;
}

/* Rounds to nearest even; beyond 65504 + 1/2 ulp becomes infinite, NaN stays NaN. */
static inline uint16_t wk_float_to_half(float f)
{
    const uint32_t bits = wk_float_bits(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 1/2 rounds the sum to a multiple of 2^-24 */
        const float shifted = wk_float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (wk_float_bits(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}

static inline float wk_bf16_to_float(uint16_t h) { return wk_float_from_bits((uint32_t)h << 16); }

/* Rounds to nearest even; NaN stays NaN. */
static inline uint16_t wk_float_to_bf16(float f)
{
    const uint32_t bits = wk_float_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* 2^(e - 128), exact for every e: half of what E8M0 means by it, the scale of values that are stored as twice
 * themselves. */
static inline float wk_exponent_to_float(uint8_t e)
{
    return wk_float_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Unaligned little-endian loads: blocks in a file are aligned to 2 bytes at best. */
static inline uint16_t wk_load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t wk_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float wk_load_half(const void *p) { return wk_half_to_float(wk_load_u16(p)); }

#ifdef __cplusplus
}
#endif
#endif
