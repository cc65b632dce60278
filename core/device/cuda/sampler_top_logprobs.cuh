/* sampler_top_logprobs.cuh: log probabilities: of a row of logits the largest, the sum of weights, and the best ids,
 * exactly as sampler_top of core/sample finds them. A block a row; rows that do not ask are not looked at.
 *
 * Logits are read twice. First every thread finds the best of its own ids. As many threads as ids are wanted have a
 * best of at least some rank, which is found bit by bit; all that is wanted is at least of it, and only ids of these
 * threads are, so there is room for them. The second time weights are summed, as integers, what is better than the id
 * asked for is counted, and those ids are kept; each then counts how many are better. */
#ifndef CORE_DEVICE_CUDA_SAMPLER_TOP_LOGPROBS_CUH
#define CORE_DEVICE_CUDA_SAMPLER_TOP_LOGPROBS_CUH

#include "device/cuda/sampler_row.cuh"

enum {
    TOP_BLOCK = 1024,
    TOP_WARPS = TOP_BLOCK / 32,
    TOP_AHEAD = 4, /* reads under way */
    TOP_FOUND = SAMPLER_MAX_TOP * (SAMPLER_MAX_VOCAB / TOP_BLOCK)
};

struct top_job {
    const struct cuda_seq *seq;
    const float *logits;
    u64 stride;
    const uint32_t *serial;
    struct cuda_top *out;
    uint32_t first, a_run, fours;
    struct cuda_top_row of[CUDA_SAMPLER_ROWS];
};

static __device__ __forceinline__ float4 read_any(const float *at, int32_t left, bool fours)
{
    if (fours) return read_four(at, left);
    return make_float4(left > 0 ? __ldcg(at) : -INFINITY, left > 1 ? __ldcg(at + 1) : -INFINITY,
                       left > 2 ? __ldcg(at + 2) : -INFINITY, left > 3 ? __ldcg(at + 3) : -INFINITY);
}

/* take(logit, id) of a thread's ids, ascending: fours, TOP_BLOCK of them apart. */
template <class T> static __device__ __forceinline__ void each_logit(const float *row, uint32_t n, bool fours, T take)
{
#pragma unroll 1
    for (uint32_t first = 4 * threadIdx.x; first < n; first += TOP_AHEAD * 4 * TOP_BLOCK) {
        float4 x[TOP_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < TOP_AHEAD; i++) {
            const uint32_t id = first + i * 4 * TOP_BLOCK;
            x[i] = read_any(row + id, (int32_t)n - (int32_t)id, fours);
        }
#pragma unroll
        for (uint32_t i = 0; i < TOP_AHEAD; i++) {
            const uint32_t id = first + i * 4 * TOP_BLOCK;
            if (id < n) take(x[i].x, id);
            if (id + 1 < n) take(x[i].y, id + 1);
            if (id + 2 < n) take(x[i].z, id + 2);
            if (id + 3 < n) take(x[i].w, id + 3);
        }
    }
}

/* The rank that `top` of the block's threads reach with theirs, and no more; by all of it. At least so many have one.
 */
static __device__ u64 rank_reached(u64 mine, uint32_t top)
{
    __shared__ uint32_t of_warp[2][TOP_WARPS]; /* in turn, so that one barrier a bit is enough */
    u64 rank = 0;
#pragma unroll 1
    for (uint32_t bit = 32 + ID_BITS; bit-- > 0;) {
        const u64 next = rank | 1ull << bit;
        const uint32_t reach = (uint32_t)__popc(__ballot_sync(0xffffffffu, mine >= next));
        if (threadIdx.x % 32 == 0) of_warp[bit % 2][threadIdx.x / 32] = reach;
        __syncthreads();
        if (__reduce_add_sync(0xffffffffu, of_warp[bit % 2][threadIdx.x % 32]) >= top) rank = next;
    }
    return rank;
}
static_assert(TOP_WARPS == 32, "a lane has a warp's count");

/* Result to mapped memory; the serial is seen when all of it is. */
static __device__ void give_top(const struct top_job &j, uint32_t row, const struct sampler_top &of)
{
    const uint32_t serial = __ldcg(j.serial), words = sizeof of / sizeof(uint32_t);
    struct cuda_top *out = &j.out[(u64)(serial % CUDA_RING) * j.a_run + j.first + row];
    __syncthreads();
    if (threadIdx.x < words) ((volatile uint32_t *)&out->top)[threadIdx.x] = ((const uint32_t *)&of)[threadIdx.x];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) *(volatile uint32_t *)&out->serial = serial;
}

static __global__ void __launch_bounds__(TOP_BLOCK)
    row_top_logprobs(struct space v, const __grid_constant__ struct top_job j)
{
    __shared__ u64 found[TOP_FOUND], best_rank, own_rank;
    __shared__ uint32_t n_found;
    __shared__ struct sampler_top of;
    const uint32_t row = j.of[blockIdx.x].row, asked = j.of[blockIdx.x].id, n = v.n_vocab,
                   top = min((uint32_t)j.of[blockIdx.x].top, n);
    const float *from = j.logits + row * j.stride;
    uint32_t key = 0, at = 0;
    if (threadIdx.x == 0) n_found = 0;
    each_logit(from, n, j.fours, [&](float x, uint32_t id) {
        const uint32_t k = order_key(x);
        at = k > key ? id : at;
        key = k > key ? k : key;
    });
    const u64 mine = key ? rank_of(key, at) : 0, first = block_max<TOP_WARPS>(mine);
    if (threadIdx.x == 0) {
        best_rank = first;
        of.id = asked == TOKEN_LAST ? __ldcg(v.last + __ldcg(&j.seq[row].slot)) : asked;
        of.logit = __ldcg(from + of.id);
        own_rank = rank_of(order_key(of.logit), of.id);
        of.best = key_float(rank_key(first));
        of.n = top;
        if (!can_pick(first)) of.id = CUDA_NO_ID;
    }
    __syncthreads();
    if (can_pick(best_rank)) {
        const u64 least = top ? rank_reached(mine, top) : ~0ull;
        const float best = key_float(rank_key(best_rank));
        u64 sum = 0, better_than_own = 0, total;
        each_logit(from, n, j.fours, [&](float x, uint32_t id) {
            const u64 rank = rank_of(order_key(x), id);
            sum += weight_of(__fsub_rn(x, best));
            better_than_own += rank > own_rank;
            if (rank >= least) found[atomicAdd(&n_found, 1u)] = rank;
        });
        block_scan<TOP_WARPS>(sum, &total);
        if (threadIdx.x == 0) of.sum = total;
        block_scan<TOP_WARPS>(better_than_own, &total);
        if (threadIdx.x == 0) of.rank = (uint32_t)total + 1;
        for (uint32_t i = threadIdx.x; i < n_found; i += TOP_BLOCK) {
            uint32_t better = 0;
            for (uint32_t k = 0; k < n_found; k++) better += found[k] > found[i];
            if (better >= top) continue;
            of.top_id[better] = rank_id(found[i]);
            of.top_logit[better] = __ldcg(from + rank_id(found[i]));
        }
    }
    give_top(j, row, of);
}

#endif
