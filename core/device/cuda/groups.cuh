/* groups.cuh: the items of experts by expert (wk_cuda_group_words in worker/quant_cuda.h), made by one block of
 * whatever kernel has just chosen them.
 *
 * A counting sort of integers, so its result depends on nothing but the choice: each warp counts a run of items,
 * the counts become places, and each warp goes over its run again in order. Lanes with the same expert find each other
 * by a vote; nothing is added by atomics. */
#ifndef CORE_DEVICE_CUDA_GROUPS_CUH
#define CORE_DEVICE_CUDA_GROUPS_CUH

#include <stdint.h>

struct group_items {
    const uint32_t *ids; /* [rows][k], stride words from row to row, each < experts */
    uint64_t stride;
    const int32_t *row_seq; /* rows with a negative one (padding) have no items; NULL: all have */
    uint32_t rows, k, experts;
    uint32_t *groups; /* out */
};

/* Words of shared memory for so many warps; with fewer words fewer warps take part, with 2 * experts one. */
static __host__ __device__ inline uint64_t group_shared_words(uint32_t experts, uint32_t warps)
{
    return ((uint64_t)warps + 1) * experts;
}

/* A warp's items from `first` on, 32 * AHEAD of them: their ids, UINT32_MAX where there is no item. */
struct group_ids {
    enum { AHEAD = 4 };
    uint32_t id[AHEAD];
    __device__ __forceinline__ void read(const group_items &g, uint32_t first, uint32_t end)
    {
        int32_t seq[AHEAD];
#pragma unroll
        for (uint32_t j = 0; j < AHEAD; j++) {
            id[j] = UINT32_MAX;
            seq[j] = 0;
            if (first + 32 * j >= end) continue;
            const uint32_t item = min(first + 32 * j + threadIdx.x % 32, end - 1), row = item / g.k;
            id[j] = __ldcg(g.ids + row * g.stride + item % g.k);
            if (g.row_seq) seq[j] = g.row_seq[row]; /* both on the way at once */
        }
#pragma unroll
        for (uint32_t j = 0; j < AHEAD; j++)
            if (seq[j] < 0 || first + 32 * j + threadIdx.x % 32 >= end) id[j] = UINT32_MAX;
    }
};
/* fn(id, item, lanes) for items [first, end) of a warp in order: lanes: those with the same id. known: ids has them. */
template <class Fn>
static __device__ __forceinline__ void group_walk(const group_items &g, uint32_t first, uint32_t end, group_ids &ids,
                                                  bool known, Fn fn)
{
#pragma unroll 1
    for (uint32_t i = first; i < end; i += 32 * group_ids::AHEAD) {
        if (!known) ids.read(g, i, end);
#pragma unroll
        for (uint32_t j = 0; j < group_ids::AHEAD; j++)
            if (i + 32 * j < end)
                fn(ids.id[j], i + 32 * j + threadIdx.x % 32, __match_any_sync(0xffffffffu, ids.id[j]));
    }
}

/* Is this block the last of `blocks` to come here? In every thread; what the others stored before is then seen. The
 * ticket is a word of 0, and is left so. */
static __device__ __forceinline__ bool last_of(uint32_t *ticket, uint32_t blocks)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) { /* the fences hold for all that the block's barriers order */
        __threadfence();
        last = atomicInc(ticket, blocks - 1) == blocks - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* At most 32 items, by a warp: of expert `id` in the item's lane; UINT32_MAX: no item. */
static __device__ __forceinline__ void group_items_few(uint32_t id, uint32_t items, uint32_t experts, uint32_t *groups,
                                                       uint32_t lane)
{
    uint32_t same = 0, less = 0; /* lanes of the same expert and of those before it */
#pragma unroll 4
    for (uint32_t i = 0; i < items; i++) {
        const uint32_t other = __shfl_sync(0xffffffffu, id, i);
        if (other == id) same |= 1u << i;
        if (other < id) less |= 1u << i;
    }
    const uint32_t below = same & ((1u << lane) - 1), there = __ballot_sync(0xffffffffu, id != UINT32_MAX),
                   firsts = __ballot_sync(0xffffffffu, id != UINT32_MAX && !below);
    const uint32_t place = (uint32_t)(__popc(less) + __popc(below)), used = (uint32_t)__popc(less & firsts),
                   n = (uint32_t)__popc(there), all = (uint32_t)__popc(firsts);
    if (id != UINT32_MAX) groups[2 * experts + 1 + place] = lane;
    if (firsts >> lane & 1u) {
        groups[used] = id;
        groups[experts + used] = place;
    }
#pragma unroll 1
    for (uint32_t i = all + lane; i <= experts; i += 32) {
        if (i < experts) groups[i] = 0;
        groups[experts + i] = n;
    }
}

/* By all threads of a block of whole warps, after a barrier behind the ids' stores. shared: `words` of them. */
static __device__ void group_items_make(const group_items &g, uint32_t *shared, uint32_t words)
{
    if (g.rows * g.k <= 32) {
        const uint32_t item = threadIdx.x, row = item / g.k;
        if (item >= 32) return;
        group_items_few(row < g.rows && (!g.row_seq || g.row_seq[row] >= 0)
                            ? __ldcg(g.ids + row * g.stride + item % g.k)
                            : UINT32_MAX,
                        g.rows * g.k, g.experts, g.groups, item);
        return;
    }
    enum { AT_ONCE = 4 };
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, items = g.rows * g.k,
                   warps = min(min(blockDim.x, items + 31) / 32, words / g.experts - 1);
    const uint32_t run = ((items + warps - 1) / warps + 31) & ~31u, first = min(warp * run, items),
                   end = warp < warps ? min(first + run, items) : first;
    const bool once = run <= 32 * group_ids::AHEAD;
    uint32_t *const before = shared, *const count = shared + g.experts,
                    *const own = count + warp * g.experts; /* [experts], [warps][experts] */
    struct group_ids ids;
    if (once) ids.read(g, first, end);
    for (uint32_t i = threadIdx.x; i < warps * g.experts; i += blockDim.x) count[i] = 0;
    __syncthreads();
    group_walk(g, first, end, ids, once, [&](uint32_t id, uint32_t, uint32_t lanes) {
        if (id != UINT32_MAX && lane == (uint32_t)__ffs((int)lanes) - 1) own[id] += (uint32_t)__popc(lanes);
        __syncwarp();
    });
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < g.experts; e += blockDim.x) {
        uint32_t sum = 0;
#pragma unroll 1
        for (uint32_t w = 0; w < warps; w += AT_ONCE) {
            uint32_t n[AT_ONCE];
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++) n[i] = w + i < warps ? count[(w + i) * g.experts + e] : 0;
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                if (w + i < warps) count[(w + i) * g.experts + e] = sum;
                sum += n[i];
            }
        }
        before[e] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        uint32_t places = 0, used = 0;
        for (uint32_t i = 0; i < g.experts; i += 32) {
            const uint32_t e = i + lane, n = e < g.experts ? before[e] : 0, some = __ballot_sync(0xffffffffu, n != 0);
            uint32_t sum = n;
            for (uint32_t d = 1; d < 32; d <<= 1) {
                const uint32_t below = __shfl_up_sync(0xffffffffu, sum, d);
                if (lane >= d) sum += below;
            }
            if (n) {
                const uint32_t at = used + (uint32_t)__popc(some & ((1u << lane) - 1));
                g.groups[at] = e;
                g.groups[g.experts + at] = places + sum - n;
            }
            if (e < g.experts) before[e] = places + sum - n;
            places += __shfl_sync(0xffffffffu, sum, 31);
            used += (uint32_t)__popc(some);
        }
        for (uint32_t i = used + lane; i <= g.experts; i += 32) {
            if (i < g.experts) g.groups[i] = 0;
            g.groups[g.experts + i] = places;
        }
    }
    __syncthreads();
    group_walk(g, first, end, ids, once, [&](uint32_t id, uint32_t item, uint32_t lanes) {
        const uint32_t place =
            id != UINT32_MAX ? before[id] + own[id] + (uint32_t)__popc(lanes & ((1u << lane) - 1)) : 0;
        __syncwarp();
        if (id != UINT32_MAX) {
            if (lane == (uint32_t)__ffs((int)lanes) - 1) own[id] += (uint32_t)__popc(lanes);
            g.groups[2 * g.experts + 1 + place] = item;
        }
        __syncwarp();
    });
}

#endif
