/* route.cuh: the choice of a row's k experts from its logits, by a warp or a block.
 *
 * An expert's place is the number of experts before it; a thread counts them for its own, so k costs nothing. */
#ifndef CORE_DEVICE_CUDA_ROUTE_CUH
#define CORE_DEVICE_CUDA_ROUTE_CUH

#include <math.h>

#include "device/cuda/row.cuh"

struct route_choice { uint32_t experts, k, score; float scale; };

/* Where its threads meet: keys, with zeros behind the last [experts rounded up to 32], 16-byte aligned; logits, as many; picked [k]. */
struct route_space { uint32_t *keys; float *logits; uint32_t *picked; };
static __host__ __device__ inline uint32_t route_padded(uint32_t experts) { return (experts + 31) & ~31u; }

/* Orders as numbers do: -0 as 0; a NaN above all, so that it is picked and its row's weights show it. At least 1. */
static __device__ __forceinline__ uint32_t key_of(float x)
{
    if (x != x) return UINT32_MAX;
    const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* How many of the experts have a greater key than expert e, or the same and a lower index. keys: 16-byte aligned, zeros behind the last. */
static __device__ __forceinline__ uint32_t place_of(const uint32_t *keys, uint32_t experts, uint32_t e)
{
    const uint32_t own = keys[e], before = own - 1;
    uint32_t place = 0;
    for (uint32_t i = 0; i < experts; i += 32) {
        uint4 q[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) q[j] = *(const uint4 *)(keys + i + 4 * j);
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            const uint32_t at = i + 4 * j;
            place += (q[j].x > (at < e ? before : own)) + (q[j].y > (at + 1 < e ? before : own)) + (q[j].z > (at + 2 < e ? before : own)) + (q[j].w > (at + 3 < e ? before : own));
        }
    }
    return place;
}

/* Logits logit(e) -> out: k weights, k ids. By `threads` threads, whole warps, of which this is number t; sync is their barrier. */
template <class Logit, class Sync>
static __device__ __forceinline__ void choose_experts(const struct route_choice &c, const struct route_space &s, Logit logit, float *out, uint32_t t, uint32_t threads, Sync sync)
{
    for (uint32_t e = t; e < route_padded(c.experts); e += threads) {
        const float x = e < c.experts ? logit(e) : 0.0f;
        s.logits[e] = x;
        s.keys[e] = e < c.experts ? key_of(x) : 0;
    }
    sync();
    for (uint32_t e = t; e < c.experts; e += threads) {
        const uint32_t place = place_of(s.keys, c.experts, e);
        if (place < c.k) s.picked[place] = e;
    }
    sync();
    if (t >= 32) return;
    const float top = s.logits[s.picked[0]];
    float weight[2] = { 0.0f, 0.0f }, sum = 0.0f; /* thread t: picks t and t + 32 */
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (32 * i < c.k) {
            if (t + 32 * i < c.k) weight[i] = expf(__fsub_rn(s.logits[s.picked[t + 32 * i]], top));
            sum = __fadd_rn(sum, weight[i]);
        }
    if (c.score == WK_SOFTMAX_ALL) {
        sum = 0.0f;
        for (uint32_t e = t; e < c.experts; e += 32) sum = __fadd_rn(sum, expf(__fsub_rn(s.logits[e], top)));
    }
    sum = wk_warp_sum(sum);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (t + 32 * i < c.k) {
            out[t + 32 * i] = __fmul_rn(__fdiv_rn(weight[i], sum), c.scale);
            ((uint32_t *)out)[c.k + t + 32 * i] = s.picked[t + 32 * i];
        }
}

#endif
