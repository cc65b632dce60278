/* sampler_order.cuh: order, weights and random bits of core/sample, on the device: sample.c, exp.h and philox.h operation by operation, each rounded
 * by itself.
 *
 * An id is compared through its rank: 50 bits, key << 18 | (2^18 - 1 - id), key the float's order as an integer. Ranks are distinct, and the larger is
 * better: "best first, among equals the lower id". */
#ifndef CORE_DEVICE_CUDA_SAMPLER_ORDER_CUH
#define CORE_DEVICE_CUDA_SAMPLER_ORDER_CUH

#include <stdint.h>

#include "sample/sample.h"

typedef unsigned long long u64;

enum { ID_BITS = 18 };
static_assert(1 << ID_BITS == SAMPLER_MAX_VOCAB, "a rank has room for every id");

const uint32_t KEY_NO_LOGIT = 0xffffffffu, KEY_PLUS_INF = 0xff800000u, KEY_MINUS_INF = 0x007fffffu;

/* Integers in the order of the floats; -0 and 0 are one; NaN and +inf are above all. */
__device__ __forceinline__ uint32_t order_key(float x)
{
    const uint32_t b = __float_as_uint(__fadd_rn(x, 0.0f));
    const bool unusable = (b & 0x7fffffffu) > 0x7f800000u || b == 0x7f800000u;
    return unusable ? KEY_NO_LOGIT : b ^ ((uint32_t) - (int32_t)(b >> 31) | 0x80000000u);
}
__device__ __forceinline__ float key_float(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }
__device__ __forceinline__ u64 rank_of(uint32_t key, uint32_t id) { return (u64)key << ID_BITS | (SAMPLER_MAX_VOCAB - 1 - id); }
__device__ __forceinline__ uint32_t rank_key(u64 rank) { return (uint32_t)(rank >> ID_BITS); }
__device__ __forceinline__ uint32_t rank_id(u64 rank) { return SAMPLER_MAX_VOCAB - 1 - ((uint32_t)rank & (SAMPLER_MAX_VOCAB - 1)); }
__device__ __forceinline__ bool can_pick(u64 best) { return rank_key(best) > KEY_MINUS_INF && rank_key(best) < KEY_PLUS_INF; }

__device__ __forceinline__ double exp_step(double p, double r, double c) { return __dadd_rn(__dmul_rn(p, r), c); }

/* sampler_exp of exp.h */
__device__ __forceinline__ double exp_fixed(double x)
{
    const double to_integer = 0x1.8p52;
    const double t = __dadd_rn(__dmul_rn(x, 0x1.71547652b82fep+0), to_integer), n = __dsub_rn(t, to_integer);
    const double r = __dsub_rn(__dsub_rn(x, __dmul_rn(n, 0x1.62e42feep-1)), __dmul_rn(n, 0x1.a39ef35793c76p-33));
    double p = 1.0 / 6227020800.0;
    p = exp_step(p, r, 1.0 / 479001600.0);
    p = exp_step(p, r, 1.0 / 39916800.0);
    p = exp_step(p, r, 1.0 / 3628800.0);
    p = exp_step(p, r, 1.0 / 362880.0);
    p = exp_step(p, r, 1.0 / 40320.0);
    p = exp_step(p, r, 1.0 / 5040.0);
    p = exp_step(p, r, 1.0 / 720.0);
    p = exp_step(p, r, 1.0 / 120.0);
    p = exp_step(p, r, 1.0 / 24.0);
    p = exp_step(p, r, 1.0 / 6.0);
    p = exp_step(p, r, 0.5);
    p = exp_step(p, r, 1.0);
    p = exp_step(p, r, 1.0);
    return __longlong_as_double(__double_as_longlong(p) + (long long)((u64)__double_as_longlong(t) << 52));
}

__device__ __forceinline__ u64 weight_of(uint32_t key, double best)
{
    double d = __dsub_rn((double)key_float(key), best);
    d = d < -40.0 ? -40.0 : d;
    return (u64)__double_as_longlong(__dadd_rn(__dmul_rn(exp_fixed(d), 0x1p44), 0x1p52)) & ((1ull << 52) - 1);
}

/* The first two words of Philox4x32-10, low word first. */
__device__ u64 draw_bits(u64 seed, u64 index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = 0, c3 = 0, key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 a = (u64)0xd2511f53u * c0, b = (u64)0xcd9e8d57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return (u64)c1 << 32 | c0;
}

#endif
