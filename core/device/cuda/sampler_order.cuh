/* sampler_order.cuh: order, weights and random bits of core/sample, on the device: sample.c, exp.h and philox.h
 * operation by operation, each rounded by itself.
 *
 * An id is compared through its rank: 50 bits, key << 18 | (2^18 - 1 - id), key the float's order as an integer. Ranks
 * are distinct, and the larger is better: "best first, among equals the lower id". */
#ifndef CORE_DEVICE_CUDA_SAMPLER_ORDER_CUH
#define CORE_DEVICE_CUDA_SAMPLER_ORDER_CUH

#include <stdint.h>

#include "sample/exp.h"
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
__device__ __forceinline__ float key_float(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}
__device__ __forceinline__ u64 rank_of(uint32_t key, uint32_t id)
{
    return (u64)key << ID_BITS | (SAMPLER_MAX_VOCAB - 1 - id);
}
__device__ __forceinline__ uint32_t rank_key(u64 rank) { return (uint32_t)(rank >> ID_BITS); }
__device__ __forceinline__ uint32_t rank_id(u64 rank)
{
    return SAMPLER_MAX_VOCAB - 1 - ((uint32_t)rank & (SAMPLER_MAX_VOCAB - 1));
}
__device__ __forceinline__ bool can_pick(u64 best)
{
    return rank_key(best) > KEY_MINUS_INF && rank_key(best) < KEY_PLUS_INF;
}

/* sampler_weight of exp.h; of a NaN 0. */
__device__ __forceinline__ u64 weight_of(float x)
{
    const float t = fmaxf(__fmul_rn(x, SAMPLER_LOG2_E), -60.0f), integer = __fadd_rn(t, SAMPLER_TO_INTEGER),
                f = __fsub_rn(t, __fsub_rn(integer, SAMPLER_TO_INTEGER));
    float p = __fadd_rn(__fmul_rn(SAMPLER_EXP2_C5, f), SAMPLER_EXP2_C4);
    p = __fadd_rn(__fmul_rn(p, f), SAMPLER_EXP2_C3);
    p = __fadd_rn(__fmul_rn(p, f), SAMPLER_EXP2_C2);
    p = __fadd_rn(__fmul_rn(p, f), SAMPLER_EXP2_C1);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f);
    return __float2ull_rn(__uint_as_float(__float_as_uint(p) + (__float_as_uint(integer) << 23)));
}

/* Philox4x32-10: the first two words and the last two, low word first. */
struct randoms {
    u64 chunk, id;
};
static __device__ struct randoms draw_bits(u64 seed, u64 index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = 0, c3 = 0, key0 = (uint32_t)seed,
             key1 = (uint32_t)(seed >> 32);
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
    return { (u64)c1 << 32 | c0, (u64)c3 << 32 | c2 };
}

#endif
