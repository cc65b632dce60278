/* route.cuh: the choice of a row's k experts from its logits.
 *
 * A lane knows the best of the experts that it looks after; the warp picks the best of those k times, and whose was
 * picked looks again. */
#ifndef CORE_DEVICE_CUDA_ROUTE_CUH
#define CORE_DEVICE_CUDA_ROUTE_CUH

#include <math.h>

#include "device/cuda/row.cuh"

struct route_choice {
    uint32_t experts, k, score;
    float scale;
};

/* Where the choice is made: keys and logits of a row, [experts rounded up to 32]. */
struct route_space {
    uint32_t *keys;
    float *logits;
};
static __host__ __device__ inline uint32_t route_padded(uint32_t experts) { return (experts + 31) & ~31u; }

/* Orders as numbers do: -0 as 0; a NaN above all, so that it is picked and its row's weights show it. At least 1. */
static __device__ __forceinline__ uint32_t key_of(float x)
{
    if (x != x) return UINT32_MAX;
    const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The best of a thread's experts that are left, of equals the first; key 0: none is. */
struct route_best {
    uint32_t key, expert;
};
static __device__ __forceinline__ route_best best_of(const uint32_t *keys, uint32_t experts, uint32_t lane)
{
    route_best best = { 0, 0 };
#pragma unroll 4
    for (uint32_t e = lane; e < route_padded(experts); e += 32)
        if (keys[e] > best.key) best = { keys[e], e };
    return best;
}

/* Thread t of `threads`: logits logit(e) and their keys to where the choice is made. */
template <class Logit>
static __device__ __forceinline__ route_best route_keys(uint32_t experts, const struct route_space &s, Logit logit,
                                                        uint32_t t, uint32_t threads)
{
    route_best best = { 0, 0 };
#pragma unroll 1
    for (uint32_t e = t; e < route_padded(experts); e += threads) {
        const float x = e < experts ? logit(e) : 0.0f;
        const uint32_t key = e < experts ? key_of(x) : 0;
        s.logits[e] = x;
        s.keys[e] = key;
        if (key > best.key) best = { key, e };
    }
    return best;
}

/* A row's picks: the first, and this lane's: pick `lane` and pick lane + 32. */
struct route_picks {
    uint32_t first, own[2];
};

/* By a warp; best: of the experts e with e % 32 == lane. What was picked has no key any more, where there are more
 * than 32. */
static __device__ __forceinline__ route_picks pick_experts(const struct route_choice &c, route_best best,
                                                           uint32_t *keys, uint32_t lane)
{
    route_picks picks = {};
#pragma unroll 1
    for (uint32_t i = 0; i < c.k; i++) {
        const uint32_t top = __reduce_max_sync(0xffffffffu, best.key),
                       expert = __reduce_min_sync(0xffffffffu, best.key == top ? best.expert : UINT32_MAX);
        if (i == 0) picks.first = expert;
        if (i == lane) picks.own[0] = expert;
        if (i == lane + 32) picks.own[1] = expert;
        if (expert % 32 != lane) continue;
        if (c.experts > 32) {
            keys[expert] = 0;
            best = best_of(keys, c.experts, lane);
        } else {
            best.key = 0;
        }
    }
    return picks;
}

/* out: k weights, k ids. By a warp. */
static __device__ __forceinline__ void weigh_experts(const struct route_choice &c, const route_picks &picks,
                                                     const float *logits, float *out, uint32_t lane)
{
    const float top = logits[picks.first];
    float weight[2] = { 0.0f, 0.0f };
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < c.k) {
            ((uint32_t *)out)[c.k + lane + 32 * i] = picks.own[i];
            weight[i] = expf(__fsub_rn(logits[picks.own[i]], top));
        }
    float sum = __fadd_rn(weight[0], weight[1]);
    if (c.score == WK_SCORE_SOFTMAX) {
        sum = 0.0f;
#pragma unroll 1
        for (uint32_t e = lane; e < c.experts; e += 32) sum = __fadd_rn(sum, expf(__fsub_rn(logits[e], top)));
    }
    sum = wk_warp_sum(sum);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < c.k) out[lane + 32 * i] = __fmul_rn(__fdiv_rn(weight[i], sum), c.scale);
}

#endif
