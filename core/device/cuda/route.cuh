/* route.cuh: the choice of a row's k experts from its logits.
 *
 * A lane knows the best of the experts that it looks after; the warp picks the best of those k times, and whose was
 * picked looks again. */
#ifndef CORE_DEVICE_CUDA_ROUTE_CUH
#define CORE_DEVICE_CUDA_ROUTE_CUH

#include <math.h>

#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/functions.cuh>

#include "device/cuda/row.cuh"

struct route_choice {
    uint32_t experts, k, score;
    float scale;
};
/* Softmax over all that is divided by the sum of the chosen is softmax over the chosen. */
static inline struct route_choice choice_of(const struct cuda_route *r, uint32_t experts)
{
    const bool chosen = r->normalize && cuda_route_plain(r);
    const struct route_choice c = { experts, r->k, chosen ? (uint32_t)WK_SCORE_SOFTMAX_TOPK : r->score, r->scale };
    return c;
}

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

/* ---- choices by scores --------------------------------------------------------------------------------- */

/* How experts are chosen that the logits alone do not tell (struct wk_op_route). */
struct route_rules {
    const float *bias; /* [experts] or NULL */
    uint32_t groups, groups_used, group_score;
    bool normalize;
};

/* e^x has no infinity here: no weights whose sum is 0. A NaN stays one. */
static __device__ __forceinline__ float route_sigmoid(float x) { return wk_sigmoid(x < -87.0f ? -87.0f : x); }

static __device__ __forceinline__ float warp_top(float x)
{
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* The key of a group's score: of its n experts' largest, or of the sum of the two largest; a NaN's if it has one. */
static __device__ __forceinline__ uint32_t group_key(const float *score, uint32_t n, bool sum)
{
    float first = -INFINITY, second = -INFINITY;
    bool broken = false;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        const float x = score[i];
        broken |= x != x;
        second = fmaxf(second, fminf(first, x));
        first = fmaxf(first, x);
    }
    return broken ? UINT32_MAX : key_of(sum ? __fadd_rn(first, second) : first);
}

/* Experts of groups that are not among the best have no key any more. By a whole block. */
static __device__ __forceinline__ void keep_groups(const struct route_choice &c, const struct route_rules &rules,
                                                   const float *score, uint32_t *keys)
{
    __shared__ uint32_t group_keys[TAPE_MAX_ROUTE_GROUPS];
    __shared__ bool out[TAPE_MAX_ROUTE_GROUPS];
    const uint32_t size = c.experts / rules.groups;
#pragma unroll 1
    for (uint32_t g = threadIdx.x; g < rules.groups; g += blockDim.x)
        group_keys[g] = group_key(score + g * size, size, rules.group_score == WK_GROUP_TOP2);
    __syncthreads();
#pragma unroll 1
    for (uint32_t g = threadIdx.x; g < rules.groups; g += blockDim.x) {
        uint32_t better = 0; /* groups before this one in the order of scores, of equals the first */
#pragma unroll 1
        for (uint32_t h = 0; h < rules.groups; h++)
            better += group_keys[h] > group_keys[g] || (group_keys[h] == group_keys[g] && h < g);
        out[g] = better >= rules.groups_used;
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t e = threadIdx.x; e < c.experts; e += blockDim.x)
        if (out[e / size]) keys[e] = 0;
    __syncthreads();
}

/* Keys of a row whose logits and their keys are there, by a whole block; scores lie behind the logits. Without a bias
 * the logits' keys stay: they have the order of the scores, and tell apart what rounds to one score. Returns the
 * largest logit and the sum of all e^(logit - that), of a softmax. */
static __device__ __forceinline__ float2 score_experts(const struct route_choice &c, const struct route_rules &rules,
                                                       const struct route_space &s)
{
    __shared__ float2 softmax;
    const uint32_t lane = threadIdx.x % 32;
    float *const score = s.logits + route_padded(c.experts);
    const bool sigmoid = c.score == WK_SCORE_SIGMOID, sums = rules.group_score == WK_GROUP_TOP2;
    if (!sigmoid && threadIdx.x < 32) {
        float top = -INFINITY, sum = 0.0f;
#pragma unroll 1
        for (uint32_t e = lane; e < c.experts; e += 32) top = fmaxf(top, s.logits[e]);
        top = warp_top(top);
#pragma unroll 1
        for (uint32_t e = lane; e < c.experts; e += 32) sum = __fadd_rn(sum, expf(__fsub_rn(s.logits[e], top)));
        sum = wk_warp_sum(sum);
        if (lane == 0) softmax = make_float2(top, sum);
    }
    __syncthreads();
    if (rules.bias || sums)
#pragma unroll 1
        for (uint32_t e = threadIdx.x; e < c.experts; e += blockDim.x) {
            const float x = s.logits[e];
            score[e] = sigmoid ? route_sigmoid(x) : __fdiv_rn(expf(__fsub_rn(x, softmax.x)), softmax.y);
            if (!rules.bias) continue;
            score[e] = __fadd_rn(score[e], __ldg(rules.bias + e));
            s.keys[e] = key_of(score[e]);
        }
    __syncthreads();
    if (rules.groups) keep_groups(c, rules, rules.bias || sums ? score : s.logits, s.keys);
    return sigmoid ? make_float2(0.0f, 1.0f) : softmax;
}

/* out: k weights, k ids. By a warp. Softmax over all, divided by the sum of the chosen, is softmax over the chosen. */
static __device__ __forceinline__ void weigh_scored(const struct route_choice &c, const struct route_rules &rules,
                                                    const route_picks &picks, const float *logits, float2 softmax,
                                                    float *out, uint32_t lane)
{
    const bool sigmoid = c.score == WK_SCORE_SIGMOID;
    float x[2] = { -INFINITY, -INFINITY }, weight[2] = { 0.0f, 0.0f }, sum = softmax.y;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < c.k) {
            ((uint32_t *)out)[c.k + lane + 32 * i] = picks.own[i];
            x[i] = logits[picks.own[i]];
        }
    const float top = rules.normalize ? warp_top(fmaxf(x[0], x[1])) : softmax.x;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < c.k) weight[i] = sigmoid ? route_sigmoid(x[i]) : expf(__fsub_rn(x[i], top));
    /* A NaN among all, which no expert's score outlives, shows in the weights. */
    if (rules.normalize) sum = __fmaf_rn(softmax.y, 0.0f, wk_warp_sum(__fadd_rn(weight[0], weight[1])));
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < c.k) out[lane + 32 * i] = __fmul_rn(__fdiv_rn(weight[i], sum), c.scale);
}

#endif
