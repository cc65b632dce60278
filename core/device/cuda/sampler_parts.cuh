/* sampler_parts.cuh: rows with a temperature: a few blocks a row, `parts`, keep its logits in shared memory as integers
 * in the order of the floats and meet at barriers: of a cluster where the device has them (sm_90 on) and rows are few,
 * else of a cooperative launch with a counter in memory: large clusters find room in few places of the device, however
 * idle it is. Nothing is sorted: a cut (top-k, top-p) is found by histograms, the first over the distance from the best
 * logit, where values lie evenly, the next over ever smaller intervals, until one id is left. */
#ifndef CORE_DEVICE_CUDA_SAMPLER_PARTS_CUH
#define CORE_DEVICE_CUDA_SAMPLER_PARTS_CUH

#include "device/cuda/sampler_row.cuh"

/* ---- full: the parts of a row -------------------------------------------------------------------------- */

/* One block's view of its row. */
struct part {
    struct row_space *r;
    const struct head *h;
    uint32_t *key; /* shared: of ids [first, first + n) */
    uint32_t *count, *low, *middle,
        *high; /* shared [BINS]: count, and mass in three runs of 15 bits, whose sums over a part fit */
    uint32_t index, parts;
    uint32_t first, n;
    uint32_t level; /* histograms made so far */
    u64 best;       /* rank */
    float best_logit;
};

/* By one thread of each part: all have come here, and what they wrote before is seen. A barrier adds PARTS_MAX in all,
 * however many parts there are. */
static __device__ __forceinline__ void row_meet(struct row_space *r, uint32_t parts)
{
    uint32_t seen;
    __threadfence();
    const uint32_t old = atomicAdd(&r->barrier, PARTS_MAX / parts), target = (old & ~(PARTS_MAX - 1u)) + PARTS_MAX;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(&r->barrier) : "memory");
    while ((int32_t)(seen - target) < 0);
}

/* What every part wrote before it, every part reads after it. */
template <bool CLUSTER> static __device__ __forceinline__ void row_barrier(const struct part &p)
{
    if (CLUSTER) {
#if WK_HAS_CLUSTERS
        asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
        return;
    }
    __syncthreads();
    if (threadIdx.x == 0) row_meet(p.r, p.parts);
    __syncthreads();
}

/* A number of each part's first thread, in the lanes of every warp; 0 in those that have no part. `which` of the two
 * that a row exchanges. Blocks of a cluster leave it in each other's memory. */
template <bool CLUSTER> static __device__ u64 exchange(const struct part &p, uint32_t which, u64 mine)
{
    const uint32_t lane = threadIdx.x & 31u;
    if (CLUSTER) {
#if WK_HAS_CLUSTERS
        __shared__ u64 of_part[2][PARTS_MAX];
        if (which == 0)
            asm volatile("barrier.cluster.wait.acquire.aligned;" ::
                             : "memory"); /* all blocks have begun; a cluster has one row */
        if (threadIdx.x < 32) {
            mine = __shfl_sync(0xffffffffu, mine, 0);
            if (lane < p.parts)
                asm volatile(
                    "{ .reg .b32 to; mapa.shared::cluster.u32 to, %0, %1; st.shared::cluster.u64 [to], %2; }" ::"r"(
                        (uint32_t)__cvta_generic_to_shared(&of_part[which][p.index])),
                    "r"(lane), "l"(mine)
                    : "memory");
        }
        row_barrier<CLUSTER>(p);
        return lane < p.parts ? of_part[which][lane] : 0;
#endif
    }
    if (threadIdx.x == 0) p.r->of_part[which][p.index] = mine;
    row_barrier<CLUSTER>(p);
    return lane < p.parts ? __ldcg(&p.r->of_part[which][lane]) : 0;
}

template <int BYTES> static __device__ __forceinline__ void copy_async(void *shared, const void *global)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}

/* The part's logits as they are, and the head of its row, into shared memory. */
static __device__ void load_part(const struct space &v, const struct job &j, const struct part &p, struct head *h,
                                 uint32_t row)
{
    const float *from = j.logits + row * j.stride + p.first; /* p.first is a multiple of 4 */
    if (((uintptr_t)from & 15) == 0 && (p.n & 3) == 0)
        for (uint32_t i = 4 * threadIdx.x; i < p.n; i += 4 * BLOCK) copy_async<16>(p.key + i, from + i);
    else
        for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) copy_async<4>(p.key + i, from + i);
    load_head<BLOCK>(h, v, j, row);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}

/* Step 1. A logit that cannot be used stays so through all steps, so nobody looks before the last. */
static __device__ void add_bias(const struct space &v, const struct part &p)
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

/* Step 3: the job's mask, and the ids that end it, while it has too few. Before step 2, which leaves -inf as it is;
 * what cannot be used stays so. */
static __device__ void hold_mask(const struct part &p, const u64 *mask)
{
    for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) {
        const uint32_t bit = (uint32_t)(__ldcg(mask + (p.first + i) / 64) >> ((p.first + i) % 64)) & 1u;
        p.key[i] = __float_as_uint(allowed(__uint_as_float(p.key[i]), bit));
    }
    __syncthreads();
}
static __device__ void hold_ends(const struct part &p)
{
    for (uint32_t i = threadIdx.x; i < p.h->s.n_ends; i += BLOCK) {
        const uint32_t id = p.h->s.ends[i];
        if (id < p.first || id - p.first >= p.n) continue;
        if (__uint_as_float(p.key[id - p.first]) < INFINITY) p.key[id - p.first] = __float_as_uint(-INFINITY);
    }
    __syncthreads();
}

/* Steps 2, 4 and 5, logits to keys; the part's best rank, in the first warp. */
static __device__ u64 make_keys(const struct space &v, const struct part &p)
{
    const struct slot &s = p.h->s;
    const uint32_t *counts = v.counts + (u64)p.h->slot * v.n_vocab + p.first;
    const bool penalised = s.penalised;
    const float inverse = s.inverse;
    uint32_t best = 0, at = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) {
        float l = __uint_as_float(p.key[i]);
        const uint32_t times = penalised ? __ldcg(counts + i) : 0;
        if (times) {
            l = __fsub_rn(l, s.presence);
            l = __fsub_rn(l, __fmul_rn(s.frequency, __uint2float_rn(times)));
        }
        l = __fmul_rn(l, inverse);
        if (times) l = l > 0 ? __fdiv_rn(l, s.repetition) : __fmul_rn(l, s.repetition);
        const uint32_t key = order_key(l);
        p.key[i] = key;
        at = key > best ? i : at;
        best = key > best ? key : best;
    }
    return block_max<WARPS>(best ? rank_of(best, p.first + at) : 0);
}

/* ---- full: cuts ---------------------------------------------------------------------------------------- */

/* First histogram: distance from the best in 64ths, the last bin for all that is far; grows with the logit. */
static __device__ __forceinline__ uint32_t distance_bin(float best, uint32_t key)
{
    return BINS - 1 - (uint32_t)fminf(__fmul_rn(__fsub_rn(best, key_float(key)), 64.0f), (float)(BINS - 1));
}

/* Smallest key of `bin` or a higher one; by every warp for itself. */
static __device__ uint32_t bin_edge(float best, uint32_t bin)
{
    uint32_t below = KEY_MINUS_INF, in = order_key(best); /* bin of `below` < bin <= bin of `in` */
    if (bin == 0 || distance_bin(best, below) >= bin) return 0;
    while (in - below > 1) {
        const uint32_t step = (in - below + 31) / 32, probe = below + (threadIdx.x % 32 + 1) * step;
        /* The last probe is at `in` or beyond. */
        const uint32_t reached = __ballot_sync(0xffffffffu, probe >= in || distance_bin(best, probe) >= bin),
                       before = (uint32_t)__ffs((int)reached) - 1;
        const uint32_t edge = below + (before + 1) * step;
        in = edge < in ? edge : in;
        below += before * step;
    }
    return in;
}

/* The part's candidates, ranks in [low, high], into shared bins: by distance, or by (rank - low) >> shift. */
template <bool MASS>
static __device__ void make_histogram(const struct part &p, u64 low, u64 high, bool distance, uint32_t shift)
{
    const float best = key_float(rank_key(p.best));
    for (uint32_t i = threadIdx.x; i < (MASS ? 4 : 1) * BINS; i += BLOCK) p.count[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.n; i += BLOCK) {
        const uint32_t key = p.key[i];
        const u64 rank = rank_of(key, p.first + i);
        if (rank < low || rank > high) continue;
        const u64 w = MASS ? weight_of(__fsub_rn(key_float(key), p.best_logit)) : 1;
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
static __device__ void clear_histogram(const struct part &p, uint32_t buffer)
{
    for (uint32_t i = p.index * BLOCK + threadIdx.x; i < BINS; i += p.parts * BLOCK) {
        p.r->count[buffer][i] = 0;
        p.r->mass[buffer][i] = 0;
    }
}

/* Adds the part's bins to the row's; after it all parts' are there, and the buffer of the level
 * before is zero again. */
template <bool CLUSTER, bool MASS> static __device__ void merge_histogram(struct part &p)
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

struct found {
    uint32_t bin, count;
    u64 need;
}; /* need: of the bin's mass, counted from its best */

/* The bin in which the mass, best first, reaches `need`; share: need is that share of 2^32 of all mass instead. */
template <bool MASS> static __device__ struct found find_bin(const struct part &p, u64 need, bool share)
{
    __shared__ struct found result;
    const uint32_t buffer = (p.level - 1) % BUFFERS,
                   top = BINS - 4 * threadIdx.x; /* this thread's bins: top - 1 down to top - 4 */
    const uint4 c = __ldcg((const uint4 *)&p.r->count[buffer][top - 4]);
    const uint32_t count[4] = { c.w, c.z, c.y, c.x };
    u64 mass[4] = { c.w, c.z, c.y, c.x }, total;
    if (MASS) {
        const ulonglong2 a = __ldcg((const ulonglong2 *)&p.r->mass[buffer][top - 4]),
                         b = __ldcg((const ulonglong2 *)&p.r->mass[buffer][top - 2]);
        mass[0] = b.y, mass[1] = b.x, mass[2] = a.y, mass[3] = a.x;
    }
    const u64 mine = mass[0] + mass[1] + mass[2] + mass[3];
    u64 before = block_scan<WARPS>(mine, &total) - mine;
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

/* Where the shortest run, best first, ends whose mass reaches `need` (or that share of 2^32 of it all), among ranks of
 * at least `floor`: a rank that the run's last id and all better ones reach, and nobody else with mass. Mass: weights,
 * or 1 for each. */
template <bool CLUSTER, bool MASS> static __device__ u64 find_cut(struct part &p, u64 floor, u64 need)
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

/* ---- full: the draw ------------------------------------------------------------------------------------ */

/* By a warp: the part's c-th chunk, what of it has a rank of at least `cut` and a weight of at least `least`. */
static __device__ struct chunk_sum weigh_kept(const struct part &p, uint32_t c, u64 cut, u64 least, u64 (&w)[4])
{
    float l[4];
    const uint32_t at = c * SAMPLER_CHUNK + 4 * (threadIdx.x & 31u);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t key = at + i < p.n ? p.key[at + i] : KEY_MINUS_INF;
        l[i] = key_float(key);
        if (rank_of(key, p.first + at + i) < cut || (least && weight_of(__fsub_rn(l[i], p.best_logit)) < least))
            l[i] = -INFINITY;
    }
    return weigh_chunk(make_float4(l[0], l[1], l[2], l[3]), w);
}

/* Step 10. */
template <bool CLUSTER>
static __device__ void draw(const struct space &v, const struct job &j, const struct part &p, uint32_t row, u64 cut,
                            u64 least)
{
    const uint32_t warp = threadIdx.x / 32,
                   chunks = (p.n + SAMPLER_CHUNK - 1) / SAMPLER_CHUNK; /* at most one a thread, as shared memory is */
    const struct randoms random = draw_bits(p.h->s.seed, p.h->s.n_generated);
    u64 *of_chunk = (u64 *)p.count, of_part, w[4];
    __syncthreads(); /* histograms are done with */
#pragma unroll 1
    for (uint32_t c = warp; c < chunks; c += WARPS) {
        const struct chunk_sum of = weigh_kept(p, c, cut, least, w);
        if (threadIdx.x % 32 == 0) of_chunk[c] = weight_of_chunk(of, p.best_logit);
    }
    __syncthreads();
    const u64 mine = threadIdx.x < chunks ? of_chunk[threadIdx.x] : 0, until = block_scan<WARPS>(mine, &of_part),
              parts = warp_scan(exchange<CLUSTER>(p, 1, of_part));
    if (p.level) clear_histogram(p, (p.level - 1) % BUFFERS);
    const u64 total = __shfl_sync(0xffffffffu, parts, 31),
              before = __shfl_sync(0xffffffffu, parts, (int)p.index) - of_part + until - mine,
              target = __umul64hi(random.chunk, total);
    const uint32_t owner = __ballot_sync(0xffffffffu, target >= before && target - before < mine);
    if (!owner) return;
    const uint32_t chunk = warp * 32 + (uint32_t)__ffs((int)owner) - 1;
    weigh_kept(p, chunk, cut, least, w);
    accept(v, j, *p.h, row, p.first + chunk * SAMPLER_CHUNK + reach_in_chunk(w, random.id));
}

template <bool CLUSTER>
static __device__ void sample_row(const struct space &v, const struct job &j, uint32_t row, const u64 *mask,
                                  uint32_t *shared)
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
    if (idle(h)) {
        if (p.index == 0 && threadIdx.x == 0) give_none(v, j, h, row);
        return;
    }
    if (h.s.n_bias) add_bias(v, p);
    if (mask) hold_mask(p, mask);
    if (h.s.n_generated < h.s.min_ids) hold_ends(p);
    p.best = warp_max(exchange<CLUSTER>(p, 0, make_keys(v, p)));
    if (!can_pick(p.best) || h.s.greedy) {
        if (p.index == 0 && threadIdx.x < 32) accept_best(v, j, h, row, p.best);
        return;
    }
    p.best_logit = key_float(rank_key(p.best));
    u64 cut = 0;
    if (cuts_top_k(h.s, v.n_vocab)) cut = find_cut<CLUSTER, false>(p, 0, h.s.top_k);
    if (h.s.share < 1ull << 32) cut = find_cut<CLUSTER, true>(p, cut, h.s.share);
    draw<CLUSTER>(v, j, p, row, cut, !h.s.least && h.s.share < 1ull << 32 ? 1 : h.s.least);
}

#endif
