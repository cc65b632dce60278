/* sampler.cu: from rows of logits to ids, exactly as core/sample/sample.h defines it.
 *
 * Two kernels. sample_greedy serves batches whose slots all take the plain best id: many small blocks a row, each leaves its best by an integer
 * maximum, and the last of them (an integer counter) writes the id. sample_full serves everything else: a few blocks a row, `parts`, that keep
 * the row's logits in shared memory as integers in the order of the floats and meet at barriers: a cluster where the device has them (sm_90 on) and rows are
 * few, else a cooperative launch with a counter in memory: large clusters find room in few places of the device, however idle it is. It never sorts: a cut (top-k, top-p) is found by histograms, the first over the
 * distance from the best logit, where values lie evenly, the next over ever smaller intervals, until one id is left.
 *
 * Every sum and maximum is of integers, so neither the number of blocks nor their order shows in an id. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/sampler_order.cuh"

#include <worker/cuda/act.cuh>

namespace {

enum {
    GREEDY_BLOCK = 256, GREEDY_IDS = 4096, GREEDY_BLOCKS = 1056, /* ids a block, at least; blocks of all rows together, about */
    BLOCK = 512, WARPS = BLOCK / 32,
    PARTS_MAX = 16, PART_IDS = 4096,         /* ids a part, where there are enough parts */
    PART_SHARED = 110 << 10,                 /* most shared memory of a part, so that two fit a multiprocessor, */
    PART_ALONE = 116 << 10,                  /* and what a part asks for to have a multiprocessor for itself */
    BIN_BITS = 11, BINS = 1 << BIN_BITS, BUFFERS = 3,
    BIAS_A_LAUNCH = 448                      /* entries that fit into a launch's parameters */
};
enum slot_end { SLOT_RUNS = 0, SLOT_ENDED, SLOT_FAILED };

struct slot {
    u64 seed, n_generated;
    u64 share, least;          /* top_p * 2^32; min_p * 2^44, as sample.c rounds them */
    float presence, frequency, temperature, repetition;
    uint32_t top_k, n_bias, n_ends, end; /* end: enum slot_end */
    uint32_t greedy, penalised; /* penalised: the ids that it generated are counted */
    uint32_t ends[SAMPLER_MAX_ENDS];
};

/* What the blocks of one row share. Histograms, best, arrived are zero between launches; barrier only ever counts. */
struct row_space {
    u64 best;                  /* greedy: largest rank + 1 */
    uint32_t arrived, barrier;
    u64 of_part[2][PARTS_MAX]; /* best rank, sum of weights */
    u64 mass[BUFFERS][BINS];
    uint32_t count[BUFFERS][BINS];
};

/* Device memory, by value in every launch. */
struct space {
    struct slot *slot;
    uint32_t *last;
    uint32_t *counts;          /* [slots][n_vocab] times that an id was generated */
    struct sampler_bias *bias; /* [slots][SAMPLER_MAX_BIAS] ascending ids, equal ones in the caller's order */
    struct row_space *row;
    uint32_t n_vocab, rows_max;
};

struct job {
    const struct cuda_seq *seq;
    const float *logits;
    u64 stride;
    const uint32_t *serial;
    struct cuda_sampled *out;
    uint32_t rows;
    uint32_t part_ids, run;    /* full: ids of a part; of a thread of it, odd, so that threads' runs lie in different banks */
};

}

struct cuda_sampler {
    struct space space;
    uint32_t slots, parts_least, parts_most;
    uint32_t multiprocessors, blocks_at_once; /* blocks_at_once: of sample_full that the device holds together */
    bool clusters;
};

namespace {

/* ---- the end of a row -------------------------------------------------------------------------------------------------------------- */

/* What a block needs of its row's slot, in shared memory: asked for together with the logits. */
struct head { struct slot s; uint32_t slot, serial; bool padding; };

__device__ __forceinline__ void load_head(struct head *h, const struct space &v, const struct job &j, uint32_t row)
{
    const uint32_t words = sizeof h->s / sizeof(uint32_t), n_rows = __ldcg(&j.seq[row].n_rows), of_row = __ldcg(&j.seq[row].slot), slot = n_rows ? of_row : 0;
    if (threadIdx.x < words) ((uint32_t *)&h->s)[threadIdx.x] = __ldcg((const uint32_t *)&v.slot[slot] + threadIdx.x);
    if (threadIdx.x == words) {
        h->slot = slot;
        h->padding = !n_rows;
        h->serial = __ldcg(j.serial);
    }
}
static_assert(sizeof(struct slot) / sizeof(uint32_t) < GREEDY_BLOCK, "a thread for each word");

/* Id and serial in one store: the host sees both or neither. */
__device__ __forceinline__ void give(const struct space &v, const struct job &j, const struct head &h, uint32_t row, uint32_t id)
{
    struct cuda_sampled *out = &j.out[(u64)(h.serial % CUDA_RING) * v.rows_max + row];
    asm volatile("st.relaxed.sys.global.v2.b32 [%0], {%1, %2};" ::"l"(out), "r"(h.serial), "r"(id) : "memory");
}

/* By one whole warp: the row's id, and what generating it changes. */
__device__ __forceinline__ void accept(const struct space &v, const struct job &j, const struct head &h, uint32_t row, uint32_t id)
{
    bool ends = false;
    for (uint32_t i = threadIdx.x % 32; i < h.s.n_ends; i += 32) ends |= h.s.ends[i] == id;
    ends = __any_sync(0xffffffffu, ends);
    if (threadIdx.x % 32) return;
    give(v, j, h, row, id);
    v.last[h.slot] = id;
    v.slot[h.slot].n_generated = h.s.n_generated + 1;
    if (ends) v.slot[h.slot].end = SLOT_ENDED;
    if (h.s.penalised) atomicAdd(&v.counts[(u64)h.slot * v.n_vocab + id], 1u); /* nobody else adds; no wait for what was there */
}

/* By one whole warp: the best id, or that there is none. */
__device__ __forceinline__ void accept_best(const struct space &v, const struct job &j, const struct head &h, uint32_t row, u64 best)
{
    if (can_pick(best)) {
        accept(v, j, h, row, rank_id(best));
    } else if (threadIdx.x % 32 == 0) {
        v.slot[h.slot].end = SLOT_FAILED;
        give(v, j, h, row, CUDA_NO_ID);
    }
}

/* A row that needs no logits: padding, or a slot that came to its end in an earlier step. By a whole block; tell: it says so. */
__device__ __forceinline__ bool idle(const struct space &v, const struct job &j, const struct head &h, uint32_t row, bool tell)
{
    if (!h.padding && h.s.end == SLOT_RUNS) return false;
    if (tell && threadIdx.x == 0) give(v, j, h, row, !h.padding && h.s.end == SLOT_FAILED ? CUDA_NO_ID : UINT32_MAX);
    return true;
}

/* ---- greedy ------------------------------------------------------------------------------------------------------------------------ */

/* Largest key so far and its id; ids come in ascending order. */
__device__ __forceinline__ void better(uint32_t &key, uint32_t &id, float x, uint32_t of)
{
    const uint32_t k = order_key(x);
    id = k > key ? of : id;
    key = k > key ? k : key;
}

/* By a whole block; the head comes in beside the first logits. first is a multiple of 4. */
__device__ u64 best_of_range(const float *logits, uint32_t first, uint32_t end, struct head *h, const struct space &v, const struct job &j, uint32_t row)
{
    enum { AT_ONCE = 4, STRIDE = 4 * GREEDY_BLOCK };
    const bool aligned = ((uintptr_t)logits & 15) == 0;
    const uint32_t whole = aligned ? end & ~3u : first;
    uint32_t key = 0, id = SAMPLER_MAX_VOCAB - 1;
    bool head = true;
    for (uint32_t at = first + 4 * threadIdx.x; head || at < whole; at += AT_ONCE * STRIDE) {
        float4 x[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (at + i * STRIDE < whole) x[i] = __ldcg((const float4 *)(logits + at + i * STRIDE));
        if (head) load_head(h, v, j, row);
        head = false;
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t of = at + i * STRIDE;
            if (of >= whole) continue;
            better(key, id, x[i].x, of);
            better(key, id, x[i].y, of + 1);
            better(key, id, x[i].z, of + 2);
            better(key, id, x[i].w, of + 3);
        }
    }
    for (uint32_t i = whole + threadIdx.x; i < end; i += GREEDY_BLOCK) better(key, id, __ldcg(logits + i), i);
    return rank_of(key, id);
}

__device__ __forceinline__ u64 warp_max(u64 x)
{
    const uint32_t high = __reduce_max_sync(0xffffffffu, (uint32_t)(x >> 32));
    const uint32_t low = __reduce_max_sync(0xffffffffu, (uint32_t)(x >> 32) == high ? (uint32_t)x : 0u);
    return (u64)high << 32 | low;
}

/* Largest of the block, in the first warp. */
template <int N_WARPS>
__device__ u64 block_max(u64 x)
{
    __shared__ u64 warp_best[N_WARPS];
    x = warp_max(x);
    if ((threadIdx.x & 31u) == 0) warp_best[threadIdx.x / 32] = x;
    __syncthreads();
    return threadIdx.x < 32 ? warp_max(threadIdx.x < N_WARPS ? warp_best[threadIdx.x] : 0) : 0;
}

__global__ void __launch_bounds__(GREEDY_BLOCK) sample_greedy(struct space v, struct job j, uint32_t block_ids)
{
    wk_depend();
    wk_release();
    __shared__ struct head h;
    const uint32_t row = blockIdx.y, first = blockIdx.x * block_ids, end = v.n_vocab - first < block_ids ? v.n_vocab : first + block_ids;
    const u64 best = block_max<GREEDY_BLOCK / 32>(best_of_range(j.logits + row * j.stride, first, end, &h, v, j, row));
    if (idle(v, j, h, row, blockIdx.x == 0)) return;
    if (threadIdx.x >= 32) return;
    struct row_space *r = &v.row[row];
    uint32_t arrived = 0;
    if (threadIdx.x == 0) {
        atomicMax(&r->best, best + 1);
        __threadfence();
        arrived = atomicAdd(&r->arrived, 1u);
        __threadfence();
    }
    if (__shfl_sync(0xffffffffu, arrived, 0) + 1 != gridDim.x) return;
    const u64 of_row = __ldcg(&r->best) - 1;
    __syncwarp();
    if (threadIdx.x == 0) {
        r->best = 0;
        r->arrived = 0;
    }
    accept_best(v, j, h, row, of_row);
}

/* ---- full: the parts of a row ---------------------------------------------------------------------------------------------------------- */

/* One block's view of its row. */
struct part {
    struct row_space *r;
    const struct head *h;
    uint32_t *key;              /* shared: of ids [first, first + n); of a plain row: bits of its logits */
    uint32_t *count, *low, *middle, *high; /* shared [BINS]: count, and mass in three runs of 15 bits, whose sums over a part fit */
    uint32_t index, parts;
    uint32_t first, n;
    uint32_t level;             /* histograms made so far */
    u64 best;                   /* rank */
    double best_logit;
    float best_float;           /* the same */
    float divisor;              /* of a plain row: temperature */
};

/* What every part wrote before it, every part reads after it. */
template <bool CLUSTER>
__device__ __forceinline__ void row_barrier(const struct part &p)
{
    if (CLUSTER) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
        return;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t seen;
        __threadfence();
        /* A barrier adds PARTS_MAX in all, however many parts there are. */
        const uint32_t old = atomicAdd(&p.r->barrier, PARTS_MAX / p.parts), target = (old & ~(PARTS_MAX - 1u)) + PARTS_MAX;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(&p.r->barrier) : "memory");
        while ((int32_t)(seen - target) < 0);
    }
    __syncthreads();
}

/* A number of each part's first thread, in the lanes of every warp; 0 in those that have no part. `which` of the two that a row exchanges. Blocks of a cluster
 * leave it in each other's memory. */
template <bool CLUSTER>
__device__ u64 exchange(const struct part &p, uint32_t which, u64 mine)
{
    const uint32_t lane = threadIdx.x & 31u;
    if (CLUSTER) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        __shared__ u64 of_part[2][PARTS_MAX];
        if (which == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); /* all blocks have begun; a cluster has one row */
        if (threadIdx.x < 32) {
            mine = __shfl_sync(0xffffffffu, mine, 0);
            if (lane < p.parts)
                asm volatile("{ .reg .b32 to; mapa.shared::cluster.u32 to, %0, %1; st.shared::cluster.u64 [to], %2; }" ::"r"((uint32_t)__cvta_generic_to_shared(&of_part[which][p.index])), "r"(lane), "l"(mine) : "memory");
        }
        row_barrier<CLUSTER>(p);
        return lane < p.parts ? of_part[which][lane] : 0;
#endif
    }
    if (threadIdx.x == 0) p.r->of_part[which][p.index] = mine;
    row_barrier<CLUSTER>(p);
    return lane < p.parts ? __ldcg(&p.r->of_part[which][lane]) : 0;
}

/* Inclusive sums in order of lanes. */
__device__ __forceinline__ u64 warp_scan(u64 x)
{
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const u64 other = __shfl_up_sync(0xffffffffu, x, d);
        if ((threadIdx.x & 31u) >= (uint32_t)d) x += other;
    }
    return x;
}

/* Inclusive sums in order of threads; *total: of all. */
__device__ u64 block_scan(u64 x, u64 *total)
{
    __shared__ u64 warp_total[WARPS];
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32;
    x = warp_scan(x);
    __syncthreads(); /* the last call's totals have been read */
    if (lane == 31) warp_total[warp] = x;
    __syncthreads();
    u64 sum = 0, before = 0;
#pragma unroll
    for (uint32_t i = 0; i < WARPS; i++) {
        before = i == warp ? sum : before;
        sum += warp_total[i];
    }
    *total = sum;
    return before + x;
}

template <int BYTES>
__device__ __forceinline__ void copy_async(void *shared, const void *global)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}

/* The part's logits as they are, and the head of its row, into shared memory. */
__device__ void load_part(const struct space &v, const struct job &j, const struct part &p, struct head *h, uint32_t row)
{
    const float *from = j.logits + row * j.stride + p.first; /* p.first is a multiple of 4 */
    if (((uintptr_t)from & 15) == 0 && (p.n & 3) == 0)
        for (uint32_t i = 4 * threadIdx.x; i < p.n; i += 4 * BLOCK) copy_async<16>(p.key + i, from + i);
    else
        for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) copy_async<4>(p.key + i, from + i);
    load_head(h, v, j, row);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}

/* Step 1. A logit that cannot be used stays so through all steps, so nobody looks before the last. */
__device__ void add_bias(const struct space &v, const struct part &p)
{
    const struct sampler_bias *b = v.bias + (u64)p.h->slot * SAMPLER_MAX_BIAS;
    const uint32_t n = p.h->s.n_bias;
    for (uint32_t i = threadIdx.x; i < n; i += BLOCK) {
        const uint32_t id = b[i].id;
        if (id < p.first || id - p.first >= p.n || (i && b[i - 1].id == id)) continue;
        float l = __uint_as_float(p.key[id - p.first]);
        for (uint32_t k = i; k < n && b[k].id == id; k++) l = __fadd_rn(l, b[k].bias);
        p.key[id - p.first] = __float_as_uint(l);
    }
    __syncthreads();
}

/* Steps 2 to 5, logits to keys; the part's best rank, in the first warp. */
__device__ u64 make_keys(const struct space &v, const struct part &p)
{
    const struct slot &s = p.h->s;
    const uint32_t *counts = v.counts + (u64)p.h->slot * v.n_vocab + p.first;
    const bool divide = !s.greedy && s.temperature != 1.0f, penalised = s.penalised; /* what is divided by 1 stays as it is */
    const float temperature = s.temperature;
    uint32_t best = 0, at = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) {
        float l = __uint_as_float(p.key[i]);
        const uint32_t times = penalised ? __ldcg(counts + i) : 0;
        if (times) {
            l = __fsub_rn(l, s.presence);
            l = __fsub_rn(l, __fmul_rn(s.frequency, __uint2float_rn(times)));
        }
        if (divide) l = __fdiv_rn(l, temperature);
        if (times) l = l > 0 ? __fdiv_rn(l, s.repetition) : __fmul_rn(l, s.repetition);
        const uint32_t key = order_key(l);
        p.key[i] = key;
        at = key > best ? i : at;
        best = key > best ? key : best;
    }
    return block_max<WARPS>(best ? rank_of(best, p.first + at) : 0);
}

/* A plain row: nothing but a temperature, and maybe biases and min-p, stands between its logits and their weights. No order is wanted but who is the best, and since a division keeps the
 * order, the best logit is the best one divided. Its rank with no id, in the first warp; one that cannot be picked if any logit is unusable. */
__device__ u64 best_of_plain(const struct part &p)
{
    float best = -INFINITY;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) asm("max.NaN.f32 %0, %0, %1;" : "+f"(best) : "f"(__uint_as_float(p.key[i])));
    return block_max<WARPS>(rank_of(order_key(best), 0));
}
__device__ __forceinline__ float divided(const struct part &p, float l) { return p.divisor != 1.0f ? __fdiv_rn(l, p.divisor) : l; } /* what is divided by 1 stays as it is */

/* ---- full: cuts -------------------------------------------------------------------------------------------------------------------------- */

/* First histogram: distance from the best in 64ths, the last bin for all that is far; grows with the logit. */
__device__ __forceinline__ uint32_t distance_bin(float best, uint32_t key)
{
    return BINS - 1 - (uint32_t)fminf(__fmul_rn(__fsub_rn(best, key_float(key)), 64.0f), (float)(BINS - 1));
}

/* Smallest key of `bin` or a higher one; by every warp for itself. */
__device__ uint32_t bin_edge(float best, uint32_t bin)
{
    uint32_t below = KEY_MINUS_INF, in = order_key(best); /* bin of `below` < bin <= bin of `in` */
    if (bin == 0 || distance_bin(best, below) >= bin) return 0;
    while (in - below > 1) {
        const uint32_t step = (in - below + 31) / 32, probe = below + (threadIdx.x % 32 + 1) * step;
        /* The last probe is at `in` or beyond. */
        const uint32_t reached = __ballot_sync(0xffffffffu, probe >= in || distance_bin(best, probe) >= bin), before = (uint32_t)__ffs((int)reached) - 1;
        const uint32_t edge = below + (before + 1) * step;
        in = edge < in ? edge : in;
        below += before * step;
    }
    return in;
}

/* The part's candidates, ranks in [low, high], into shared bins: by distance, or by (rank - low) >> shift. */
template <bool MASS>
__device__ void make_histogram(const struct part &p, u64 low, u64 high, bool distance, uint32_t shift)
{
    const float best = key_float(rank_key(p.best));
    for (uint32_t i = threadIdx.x; i < (MASS ? 4 : 1) * BINS; i += BLOCK) p.count[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) {
        const uint32_t key = p.key[i];
        const u64 rank = rank_of(key, p.first + i);
        if (rank < low || rank > high) continue;
        const u64 w = MASS ? exact_weight(key_float(key), p.best_logit) : 1;
        if (!w) continue;
        const uint32_t bin = distance ? distance_bin(best, key) : (uint32_t)((rank - low) >> shift);
        atomicAdd(&p.count[bin], 1u);
        if (!MASS) continue;
        atomicAdd(&p.low[bin], (uint32_t)w & 0x7fffu);
        atomicAdd(&p.middle[bin], (uint32_t)(w >> 15) & 0x7fffu);
        atomicAdd(&p.high[bin], (uint32_t)(w >> 30));
    }
    __syncthreads();
}

/* This part's share of a buffer that all parts have read. */
__device__ void clear_histogram(const struct part &p, uint32_t buffer)
{
    for (uint32_t i = p.index * BLOCK + threadIdx.x; i < BINS; i += p.parts * BLOCK) {
        p.r->count[buffer][i] = 0;
        p.r->mass[buffer][i] = 0;
    }
}

/* Adds the part's bins to the row's; after it all parts' are there, and the buffer of the level before is zero again. */
template <bool CLUSTER, bool MASS>
__device__ void merge_histogram(struct part &p)
{
    const uint32_t now = p.level % BUFFERS, before = (p.level + BUFFERS - 1) % BUFFERS;
    for (uint32_t i = threadIdx.x; i < BINS; i += BLOCK) {
        if (!p.count[i]) continue;
        atomicAdd(&p.r->count[now][i], p.count[i]);
        if (MASS) atomicAdd(&p.r->mass[now][i], p.low[i] + ((u64)p.middle[i] << 15) + ((u64)p.high[i] << 30));
    }
    row_barrier<CLUSTER>(p);
    clear_histogram(p, before);
    p.level++;
}

struct found { uint32_t bin, count; u64 need; }; /* need: of the bin's mass, counted from its best */

/* The bin in which the mass, best first, reaches `need`; share: need is that share of 2^32 of all mass instead. */
template <bool MASS>
__device__ struct found find_bin(const struct part &p, u64 need, bool share)
{
    __shared__ struct found result;
    const uint32_t buffer = (p.level - 1) % BUFFERS, top = BINS - 4 * threadIdx.x; /* this thread's bins: top - 1 down to top - 4 */
    const uint4 c = __ldcg((const uint4 *)&p.r->count[buffer][top - 4]);
    const uint32_t count[4] = { c.w, c.z, c.y, c.x };
    u64 mass[4] = { c.w, c.z, c.y, c.x }, total;
    if (MASS) {
        const ulonglong2 a = __ldcg((const ulonglong2 *)&p.r->mass[buffer][top - 4]), b = __ldcg((const ulonglong2 *)&p.r->mass[buffer][top - 2]);
        mass[0] = b.y, mass[1] = b.x, mass[2] = a.y, mass[3] = a.x;
    }
    const u64 mine = mass[0] + mass[1] + mass[2] + mass[3];
    u64 before = block_scan(mine, &total) - mine;
    if (share) { /* ceil(need * total / 2^32), at least 1 */
        const u64 product = need * total, rounded = product + 0xffffffffull;
        need = (__umul64hi(need, total) + (rounded < product)) << 32 | rounded >> 32;
        need = need ? need : 1;
    }
    if (before < need && need <= before + mine) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (before < need && need <= before + mass[i]) result = found{ top - 1 - i, count[i], need - before };
            before += mass[i];
        }
    }
    __syncthreads();
    return result; /* not overwritten before the next level's barriers */
}

/* Where the shortest run, best first, ends whose mass reaches `need` (or that share of 2^32 of it all), among ranks of at least `floor`: a rank that
 * the run's last id and all better ones reach, and nobody else with mass. Mass: weights, or 1 for each. */
template <bool CLUSTER, bool MASS>
__device__ u64 find_cut(struct part &p, u64 floor, u64 need)
{
    u64 low = floor, high = p.best;
    uint32_t shift = 0;
    for (bool distance = true;; distance = false) {
        make_histogram<MASS>(p, low, high, distance, shift);
        merge_histogram<CLUSTER, MASS>(p);
        const struct found f = find_bin<MASS>(p, need, MASS && distance);
        need = f.need;
        if (distance) {
            const float best = key_float(rank_key(p.best));
            const u64 edge = (u64)bin_edge(best, f.bin) << ID_BITS;
            if (f.bin + 1 < BINS) high = ((u64)bin_edge(best, f.bin + 1) << ID_BITS) - 1;
            low = edge > low ? edge : low;
        } else {
            low += (u64)f.bin << shift;
            const u64 end = low + ((u64)1 << shift) - 1;
            high = end < high ? end : high;
        }
        if (f.count == 1 || (!MASS && f.count == need) || (!distance && shift == 0)) return low;
        const uint32_t bits = 64 - (uint32_t)__clzll((long long)(high - low));
        shift = bits > BIN_BITS ? bits - BIN_BITS : 0;
    }
}

/* ---- full: the draw ------------------------------------------------------------------------------------------------------------------------ */

template <bool PLAIN> __device__ __forceinline__ float drawn_logit(const struct part &p, uint32_t key) { return PLAIN ? divided(p, __uint_as_float(key)) : key_float(key); }

template <bool PLAIN>
__device__ __forceinline__ u64 drawn_weight(const struct part &p, uint32_t position, u64 cut)
{
    const uint32_t key = p.key[position];
    const u64 w = exact_weight(drawn_logit<PLAIN>(p, key), p.best_logit);
    return (PLAIN || rank_of(key, p.first + position) >= cut) && w >= p.h->s.least ? w : 0;
}

/* By one whole warp: the id in the run of positions [first, first + n) at which the running sum exceeds target. */
template <bool PLAIN>
__device__ uint32_t walk_run(const struct part &p, uint32_t first, uint32_t n, u64 target, u64 cut)
{
    const uint32_t lane = threadIdx.x & 31u;
    for (uint32_t at = 0;; at += 32) {
        u64 w = at + lane < n ? drawn_weight<PLAIN>(p, first + at + lane, cut) : 0;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            const u64 other = __shfl_up_sync(0xffffffffu, w, d);
            if (lane >= (uint32_t)d) w += other;
        }
        const uint32_t beyond = __ballot_sync(0xffffffffu, w > target);
        if (beyond || at + 32 >= n) return p.first + first + at + (beyond ? (uint32_t)__ffs((int)beyond) - 1 : 0);
        target -= __shfl_sync(0xffffffffu, w, 31);
    }
}

/* Of this thread's run. */
template <bool PLAIN>
__device__ u64 sum_of_run(const struct part &p, uint32_t from, uint32_t to, u64 cut)
{
    enum { AT_ONCE = 2 };
    const u64 least = p.h->s.least;
    u64 sum = 0;
    for (uint32_t i = from; i < to; i += AT_ONCE) {
        float l[AT_ONCE];
        bool in[AT_ONCE], any = false;
        u64 w[AT_ONCE];
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t at = i + k < to ? i + k : i;
            const uint32_t key = p.key[at];
            l[k] = drawn_logit<PLAIN>(p, key);
            in[k] = i + k < to && (PLAIN || rank_of(key, p.first + at) >= cut);
            any |= in[k];
        }
        if (!any) continue;
        if (PLAIN) weights_of(w, l, p.best_logit, p.best_float);
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE && !PLAIN; k++) w[k] = exact_weight(l[k], p.best_logit);
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) sum += in[k] && w[k] >= least ? w[k] : 0;
    }
    return sum;
}

/* Step 10, over ranks of at least `cut`. */
template <bool CLUSTER, bool PLAIN>
__device__ void draw(const struct space &v, const struct job &j, const struct part &p, uint32_t row, u64 cut)
{
    const uint32_t from = threadIdx.x * j.run < p.n ? threadIdx.x * j.run : p.n, n = p.n - from < j.run ? p.n - from : j.run;
    const u64 random = draw_bits(p.h->s.seed, p.h->s.n_generated), mine = sum_of_run<PLAIN>(p, from, from + n, cut);
    u64 of_part;
    const u64 until = block_scan(mine, &of_part), parts = warp_scan(exchange<CLUSTER>(p, 1, of_part));
    if (p.level) clear_histogram(p, (p.level - 1) % BUFFERS);
    const u64 total = __shfl_sync(0xffffffffu, parts, 31), before = __shfl_sync(0xffffffffu, parts, (int)p.index) - of_part + until - mine, target = __umul64hi(random, total);
    const uint32_t owner = __ballot_sync(0xffffffffu, target >= before && target - before < mine);
    if (!owner) return;
    const int lane = __ffs((int)owner) - 1;
    accept(v, j, *p.h, row, walk_run<PLAIN>(p, __shfl_sync(0xffffffffu, from, lane), __shfl_sync(0xffffffffu, n, lane), __shfl_sync(0xffffffffu, target - before, lane), cut));
}

template <bool CLUSTER>
__device__ void sample_row(const struct space &v, const struct job &j, uint32_t row, uint32_t *shared)
{
    __shared__ struct head h;
    const uint32_t first = blockIdx.x * j.part_ids;
    struct part p = {};
    p.r = &v.row[row];
    p.h = &h;
    p.count = shared;
    p.low = shared + BINS;
    p.middle = shared + 2 * BINS;
    p.high = shared + 3 * BINS;
    p.key = shared + 4 * BINS;
    p.index = blockIdx.x;
    p.parts = gridDim.x;
    p.first = first;
    p.n = first >= v.n_vocab ? 0 : v.n_vocab - first < j.part_ids ? v.n_vocab - first : j.part_ids;
    load_part(v, j, p, &h, row);
    if (idle(v, j, h, row, p.index == 0)) return;
    if (h.s.n_bias) add_bias(v, p);
    const bool cuts = (h.s.top_k > 0 && h.s.top_k < v.n_vocab) || h.s.share < 1ull << 32, plain = !cuts && !h.s.greedy && !h.s.penalised;
    p.best = warp_max(exchange<CLUSTER>(p, 0, plain ? best_of_plain(p) : make_keys(v, p)));
    if (plain) {
        p.divisor = h.s.temperature;
        p.best = rank_of(order_key(divided(p, key_float(rank_key(p.best)))), 0);
    }
    if (!can_pick(p.best) || h.s.greedy) {
        if (p.index == 0 && threadIdx.x < 32) accept_best(v, j, h, row, p.best);
        return;
    }
    p.best_float = key_float(rank_key(p.best));
    p.best_logit = (double)p.best_float;
    if (plain) {
        draw<CLUSTER, true>(v, j, p, row, 0);
        return;
    }
    u64 cut = 0;
    if (h.s.top_k > 0 && h.s.top_k < v.n_vocab) cut = find_cut<CLUSTER, false>(p, 0, h.s.top_k);
    if (h.s.share < 1ull << 32) cut = find_cut<CLUSTER, true>(p, cut, h.s.share);
    draw<CLUSTER, false>(v, j, p, row, cut);
}

template <bool CLUSTER>
__global__ void __launch_bounds__(BLOCK, 2) sample_full(struct space v, struct job j)
{
    extern __shared__ uint4 shared_words[];
    if (CLUSTER) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
    }
    wk_depend();
    wk_release();
    for (uint32_t row = blockIdx.y; row < j.rows; row += gridDim.y) {
        sample_row<CLUSTER>(v, j, row, (uint32_t *)shared_words);
        __syncthreads(); /* before the next row's logits overwrite this one's */
    }
}

/* ---- a new job in a slot ----------------------------------------------------------------------------------------------------------------- */

__global__ void set_slot(struct space v, uint32_t slot, struct slot s)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) {
        v.slot[slot] = s;
        v.last[slot] = 0;
    }
    if (s.penalised && i < v.n_vocab) v.counts[(u64)slot * v.n_vocab + i] = 0;
}

struct bias_run { uint32_t slot, first, n; struct sampler_bias entry[BIAS_A_LAUNCH]; };

__global__ void set_bias(struct space v, const __grid_constant__ struct bias_run run)
{
    const uint32_t i = threadIdx.x;
    if (i < run.n) v.bias[(u64)run.slot * SAMPLER_MAX_BIAS + run.first + i] = run.entry[i];
}
static_assert(BIAS_A_LAUNCH <= 1024 && sizeof(struct bias_run) + sizeof(struct space) <= 4096, "a block of threads and the parameters of a launch");

/* ---- host ---------------------------------------------------------------------------------------------------------------------------------- */

/* Takes pieces of the caller's memory, 256-byte aligned; base NULL: only counts. */
struct carving { char *base; u64 used; };
void *carve(struct carving *c, u64 bytes)
{
    void *at = c->base ? c->base + c->used : NULL;
    c->used += (bytes + 255) & ~255ull;
    return at;
}

u64 carve_space(struct space *v, char *base, uint32_t slots, uint32_t n_vocab, uint32_t rows)
{
    struct carving c = { base, 0 };
    v->slot = (struct slot *)carve(&c, slots * sizeof *v->slot);
    v->last = (uint32_t *)carve(&c, slots * sizeof *v->last);
    v->bias = (struct sampler_bias *)carve(&c, (u64)slots * SAMPLER_MAX_BIAS * sizeof *v->bias);
    v->row = (struct row_space *)carve(&c, rows * sizeof *v->row);
    v->counts = (uint32_t *)carve(&c, (u64)slots * n_vocab * sizeof *v->counts);
    return c.used;
}

/* Stable by id: entries of one id are added in the caller's order. */
void sort_bias(struct sampler_bias *b, const struct sampler_params *p)
{
    for (uint32_t i = 0; i < p->n_logit_bias; i++) {
        uint32_t at = i;
        for (; at > 0 && b[at - 1].id > p->logit_bias[i].id; at--) b[at] = b[at - 1];
        b[at] = p->logit_bias[i];
    }
}

uint32_t part_ids(const struct cuda_sampler *s, uint32_t parts) { return ((s->space.n_vocab + parts - 1) / parts + 3) & ~3u; }
uint32_t part_shared(const struct cuda_sampler *s, uint32_t parts) { return (4 * BINS + part_ids(s, parts)) * (uint32_t)sizeof(uint32_t); }

/* Parts of a row: powers of two. Fewer for many rows, as few as shared memory allows; which, decides nothing but time. */
void choose_parts(struct cuda_sampler *s, uint32_t most_shared)
{
    s->parts_least = s->parts_most = 1;
    while (s->parts_most < PARTS_MAX && s->space.n_vocab > s->parts_most * PART_IDS) s->parts_most *= 2;
    while (s->parts_least < s->parts_most && part_shared(s, s->parts_least) > most_shared) s->parts_least *= 2;
}

/* Shared memory beyond the default, clusters beyond the portable eight, and what the device holds at once. */
wk_status prepare_kernels(struct cuda_sampler *s, const struct wk_err *err)
{
    const uint32_t own = 1024; /* of sample_full's own shared memory, at most */
    int device = 0, major = 0, multiprocessors = 0, shared = 0, blocks = 0;
    cudaError_t code = cudaGetDevice(&device);
    if (!code) code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!code) code = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (!code) code = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (code) return cuda_status(code, "sampler kernels", err);
    choose_parts(s, (uint32_t)shared - own < (uint32_t)PART_SHARED ? (uint32_t)shared - own : (uint32_t)PART_SHARED);
    const uint32_t largest = part_shared(s, s->parts_least);
    code = cudaFuncSetAttribute(sample_full<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)largest);
    if (!code) code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sample_full<false>, BLOCK, largest);
    s->multiprocessors = (uint32_t)multiprocessors;
    s->blocks_at_once = (uint32_t)blocks * s->multiprocessors;
    s->clusters = major >= 9 && shared >= PART_ALONE; /* devices with less have small clusters as well */
    if (!code && s->clusters) code = cudaFuncSetAttribute(sample_full<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, PART_ALONE);
    if (!code && s->clusters) code = cudaFuncSetAttribute(sample_full<true>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (code) return cuda_status(code, "sampler kernels", err);
    if (s->blocks_at_once < s->parts_most) return wk_fail(err, WK_UNSUPPORTED, "the sampler needs %u blocks of %u bytes at once, the device holds %u", s->parts_most, largest, s->blocks_at_once);
    return WK_OK;
}

wk_status launch_greedy(const struct cuda_sampler *s, const struct job *j, bool dependent, void *stream, const struct wk_err *err)
{
    const uint32_t want = (s->space.n_vocab + GREEDY_IDS - 1) / GREEDY_IDS, most = GREEDY_BLOCKS / j->rows ? GREEDY_BLOCKS / j->rows : 1;
    const uint32_t blocks = want < most ? want : most, ids = ((s->space.n_vocab + blocks - 1) / blocks + 3) & ~3u;
    const dim3 grid((s->space.n_vocab + ids - 1) / ids, j->rows);
    return cuda_launch("sample_greedy", sample_greedy, grid, dim3(GREEDY_BLOCK), 0, dependent, stream, err, s->space, *j, ids);
}

wk_status launch_full(const struct cuda_sampler *s, struct job *j, bool dependent, void *stream, const struct wk_err *err)
{
    uint32_t parts = s->parts_most;
    while (parts > s->parts_least && parts * j->rows > 2 * s->multiprocessors) parts /= 2;
    const uint32_t together = s->blocks_at_once / parts, rows = j->rows < together ? j->rows : together, shared = part_shared(s, parts);
    j->part_ids = part_ids(s, parts);
    j->run = (j->part_ids + BLOCK - 1) / BLOCK | 1u;
    cudaLaunchAttribute attribute[3] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(parts, rows);
    config.blockDim = dim3(BLOCK);
    config.dynamicSmemBytes = shared;
    config.stream = (cudaStream_t)stream;
    config.attrs = attribute;
    config.numAttrs = 2;
    attribute[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout; /* as cuda_launch says */
    attribute[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    if (!s->clusters || 2 * parts * rows > s->multiprocessors) {
        attribute[1].id = cudaLaunchAttributeCooperative;
        attribute[1].val.cooperative = 1;
        attribute[2].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[2].val.programmaticStreamSerializationAllowed = 1;
        config.numAttrs = dependent ? 3 : 2;
        return cuda_status(cudaLaunchKernelEx(&config, sample_full<false>, s->space, *j), "sample_full", err);
    }
    /* Two parts of a cluster would share a multiprocessor although others are idle. */
    if (shared < (uint32_t)PART_ALONE) config.dynamicSmemBytes = PART_ALONE;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = parts;
    attribute[1].val.clusterDim.y = 1;
    attribute[1].val.clusterDim.z = 1;
    attribute[2].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[2].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = dependent ? 3 : 2;
    return cuda_status(cudaLaunchKernelEx(&config, sample_full<true>, s->space, *j), "sample_full", err);
}

}

uint64_t cuda_sampler_bytes(uint32_t slots, uint32_t n_vocab, uint32_t rows)
{
    struct space v;
    return carve_space(&v, NULL, slots, n_vocab, rows);
}

wk_status cuda_sampler_open(uint32_t slots, uint32_t n_vocab, uint32_t rows, void *memory, struct cuda_sampler **out, const struct wk_err *err)
{
    *out = NULL;
    if (n_vocab < 1 || n_vocab > SAMPLER_MAX_VOCAB) return wk_fail(err, WK_INVALID, "vocabulary of %u ids; 1 to %d expected", n_vocab, SAMPLER_MAX_VOCAB);
    if (slots < 1 || rows < 1 || rows > CUDA_SAMPLER_ROWS) return wk_fail(err, WK_INVALID, "a sampler of %u slots and %u rows; at least one of each and at most %d rows expected", slots, rows, CUDA_SAMPLER_ROWS);
    struct cuda_sampler *s = (struct cuda_sampler *)calloc(1, sizeof *s);
    if (!s) return wk_fail(err, WK_NO_MEMORY, "out of memory for a sampler");
    const u64 bytes = carve_space(&s->space, (char *)memory, slots, n_vocab, rows);
    s->slots = slots;
    s->space.n_vocab = n_vocab;
    s->space.rows_max = rows;
    wk_status status = prepare_kernels(s, err);
    if (!status) status = cuda_status(cudaMemset(memory, 0, bytes), "clearing the sampler's memory", err);
    if (!status) status = cuda_status(cudaDeviceSynchronize(), "clearing the sampler's memory", err);
    if (status) {
        free(s);
        return status;
    }
    *out = s;
    return WK_OK;
}

void cuda_sampler_close(struct cuda_sampler *s) { free(s); }

wk_status cuda_sampler_set(struct cuda_sampler *s, uint32_t slot, const struct sampler_params *p, const uint32_t *ends, uint32_t n_ends, void *stream, const struct wk_err *err)
{
    if (slot >= s->slots) return wk_fail(err, WK_INVALID, "sampler slot %u; there are %u", slot, s->slots);
    if (n_ends > SAMPLER_MAX_ENDS) return wk_fail(err, WK_INVALID, "%u ids that end a sequence; at most %d expected", n_ends, SAMPLER_MAX_ENDS);
    wk_status status = sampler_check(p, s->space.n_vocab, err);
    if (status) return status;
    struct slot to = {};
    to.seed = p->seed;
    to.share = (u64)rint((double)p->top_p * 0x1p32);
    to.least = (u64)ceil((double)p->min_p * 0x1p44);
    to.presence = p->presence_penalty;
    to.frequency = p->frequency_penalty;
    to.temperature = p->temperature;
    to.repetition = p->repetition_penalty;
    to.top_k = p->top_k;
    to.n_bias = p->n_logit_bias;
    to.n_ends = n_ends;
    to.greedy = p->temperature < SAMPLER_GREEDY;
    to.penalised = p->presence_penalty != 0 || p->frequency_penalty != 0 || p->repetition_penalty != 1;
    if (n_ends) memcpy(to.ends, ends, n_ends * sizeof *ends);
    const uint32_t threads = 256, blocks = to.penalised ? (s->space.n_vocab + threads - 1) / threads : 1;
    status = cuda_launch("set_slot", set_slot, dim3(blocks), dim3(threads), 0, false, stream, err, s->space, slot, to);
    struct sampler_bias sorted[SAMPLER_MAX_BIAS];
    sort_bias(sorted, p);
    for (uint32_t at = 0; !status && at < p->n_logit_bias; at += BIAS_A_LAUNCH) {
        struct bias_run run = {};
        run.slot = slot;
        run.first = at;
        run.n = p->n_logit_bias - at < (uint32_t)BIAS_A_LAUNCH ? p->n_logit_bias - at : (uint32_t)BIAS_A_LAUNCH;
        memcpy(run.entry, sorted + at, run.n * sizeof *sorted);
        status = cuda_launch("set_bias", set_bias, dim3(1), dim3(BIAS_A_LAUNCH), 0, false, stream, err, s->space, run);
    }
    return status;
}

wk_status cuda_sampler_run(struct cuda_sampler *s, const struct cuda_sample *c, void *stream, const struct wk_err *err)
{
    if (c->rows < 1 || c->rows > s->space.rows_max) return wk_fail(err, WK_INTERNAL, "%u rows to sample; the sampler was opened for %u", c->rows, s->space.rows_max);
    if (c->rows > 1 && c->stride < s->space.n_vocab) return wk_fail(err, WK_INTERNAL, "rows of %u logits, %llu apart", s->space.n_vocab, (u64)c->stride);
    struct job j = { c->seq, c->logits, c->stride, c->serial, c->out, c->rows, 0, 0 };
    return c->greedy ? launch_greedy(s, &j, c->dependent, stream, err) : launch_full(s, &j, c->dependent, stream, err);
}

const uint32_t *cuda_sampler_last(const struct cuda_sampler *s) { return s->space.last; }
bool cuda_sampler_plain(const struct sampler_params *p)
{
    return p->temperature < SAMPLER_GREEDY && !p->n_logit_bias && p->presence_penalty == 0 && p->frequency_penalty == 0 && p->repetition_penalty == 1;
}
void cuda_sampler_without_clusters(struct cuda_sampler *s) { s->clusters = false; }
