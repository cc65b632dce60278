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

/* The same numbers by half of the operations, fused and a degree less, N at a time, because one alone waits for itself. Both recipes are within 2^-51 of each other, so a weight
 * below 2^34 (e^-7) is known to 2^-16, one below 2^42 (e^-1.4) to 2^-8, and where its fraction is not within 3 of these of a half, so is the nearest integer. The others, one of
 * some thousands and the very best, are made as they are defined. best: of the logits, twice. */
template <int N> __device__ __forceinline__ void weights_of(u64 (&w)[N], const float (&l)[N], double best, float best_float)
{
    const double to_integer = 0x1.8p52;
    float far[N];
    double p[N], r[N];
    u64 exponent[N];
    bool all_far = true, any = false, exact[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        far[i] = __fsub_rn(l[i], best_float);
        all_far &= far[i] < -32.0f;
        w[i] = 0;
    }
    if (all_far) return; /* below a half */
#pragma unroll
    for (int i = 0; i < N; i++) {
        const double d = __dsub_rn((double)l[i], best), t = __fma_rn(d, 0x1.71547652b82fep+0, to_integer), n = __dsub_rn(t, to_integer);
        r[i] = __fma_rn(n, -0x1.a39ef35793c76p-33, __fma_rn(n, -0x1.62e42feep-1, d));
        exponent[i] = (u64)(__double_as_longlong(t) + 44) << 52;
        p[i] = 1.0 / 479001600.0;
    }
    const double c[12] = { 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0 };
#pragma unroll
    for (int k = 0; k < 12; k++)
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = __fma_rn(p[i], r[i], c[k]);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const bool large = far[i] > -7.0f;
        const uint32_t bits = large ? 8 : 16, near = 3u << (32 - bits); /* of the fraction */
        const double y = __longlong_as_double((long long)((u64)__double_as_longlong(p[i]) + exponent[i]));
        const u64 scaled = (u64)__double_as_longlong(__dadd_rn(y, large ? 0x1p44 : 0x1p36)) & ((1ull << 52) - 1);
        exact[i] = far[i] >= -32.0f && (far[i] > -1.5f || ((uint32_t)scaled << (32 - bits)) - (0x80000000u - near) <= 2 * near);
        any |= exact[i];
        if (far[i] >= -32.0f) w[i] = (scaled + (1u << (bits - 1))) >> bits;
    }
    if (!any) return;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (exact[i]) w[i] = exact_weight(l[i], best);
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
