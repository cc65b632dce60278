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

__device__ __forceinline__ u64 exact_weight(float l, double best)
{
    double d = __dsub_rn((double)l, best);
    d = d < -40.0 ? -40.0 : d;
    return (u64)__double_as_longlong(__dadd_rn(__dmul_rn(exp_fixed(d), 0x1p44), 0x1p52)) & ((1ull << 52) - 1);
}

/* The same numbers by a third of the operations, N at a time, because one alone waits for itself: e^d = 2^(n / 256) e^r, the first factor from a table, the second by four terms behind
 * its 1. Both recipes are within 2^-49 of each other, so a weight is the integer to which the product is rounded with an e^r that is 2^-48 larger as well as with one that is 2^-48 smaller.
 * Where these differ, for one of some thousands and the very best, it is made as it is defined.
 *
 * w: weights + 2^52 as doubles' bits, WEIGHT_ZERO + weight; whoever adds several takes away as many WEIGHT_ZERO at once. powers: bits of 2^(44 + i / 256), less i << 44, so that n << 12 makes the
 * exponent of the high word. */
enum { POWER_BITS = 8, POWERS = 1 << POWER_BITS };
const u64 WEIGHT_ZERO = 0x433ull << 52;
template <int N> __device__ __forceinline__ void weights_of(u64 (&w)[N], const float (&l)[N], double best, const double *powers)
{
    const double to_integer = 0x1.8p52, to_weight = 0x1p52;
    uint32_t doubts[N], doubt = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        double d = __dsub_rn((double)l[i], best);
        d = __hiloint2double((int)min((uint32_t)__double2hiint(d), 0xc0440000u), __double2loint(d)); /* not below -40 and something */
        const double t = __fma_rn(d, 0x1.71547652b82fep+8, to_integer), r = __fma_rn(__dsub_rn(t, to_integer), -0x1.62e42fefa39efp-9, d);
        const double p = __fma_rn(__fma_rn(__fma_rn(r, 1.0 / 24, 1.0 / 6), r, 0.5), r, 1.0);
        const int n = __double2loint(t);
        double power = powers[n & (POWERS - 1)];
        power = __hiloint2double(__double2hiint(power) + (int)((uint32_t)n << (20 - POWER_BITS)), __double2loint(power));
        const double most = __fma_rn(__fma_rn(p, r, 1.0 + 0x1p-48), power, to_weight), least = __fma_rn(__fma_rn(p, r, 1.0 - 0x1p-48), power, to_weight);
        w[i] = (u64)__double_as_longlong(most);
        doubts[i] = (uint32_t)(__double2loint(most) ^ __double2loint(least));
        doubt |= doubts[i];
    }
    if (!doubt) return;
    uint32_t doubtful = 0;
#pragma unroll
    for (int i = 0; i < N; i++) doubtful |= doubts[i] ? 1u << i : 0u;
#pragma unroll 1
    for (; doubtful; doubtful &= doubtful - 1) {
        const uint32_t at = (uint32_t)__ffs((int)doubtful) - 1;
        float x = l[0];
#pragma unroll
        for (uint32_t i = 1; i < N; i++) x = i == at ? l[i] : x;
        const u64 exact = exact_weight(x, best) + WEIGHT_ZERO;
#pragma unroll
        for (uint32_t i = 0; i < N; i++) w[i] = i == at ? exact : w[i];
    }
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
