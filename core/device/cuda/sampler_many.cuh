/* sampler_many.cuh: rows with a temperature alone where each block has parts of several: they are not kept in shared memory but read twice, the second time from L2 as far as they
 * still are there, so that all of a block's rows meet at the same two barriers, and between these nothing waits.
 *
 * A part is cut into chunks of 128 ids, four a lane; its warps take them in turn. A warp looks after each row where parts meet. */
#ifndef CORE_DEVICE_CUDA_SAMPLER_MANY_CUH
#define CORE_DEVICE_CUDA_SAMPLER_MANY_CUH

#include "device/cuda/sampler_parts.cuh"

enum { CHUNK = 128, LANE_CHUNKS = 5, CHUNKS_MAX = 32 * LANE_CHUNKS /* of a part */ };

/* One of the block's rows; a block has at most WARPS of them. */
struct many_row {
    struct head head;
    float best, divisor;       /* best: divided */
    bool draws;
    uint32_t of_warp[WARPS];   /* keys of their best logits */
    u64 of_chunk[CHUNKS_MAX];  /* sums of weights */
};
static_assert(WARPS * sizeof(struct many_row) <= 4 * BINS * sizeof(uint32_t) && (PART_SHARED / sizeof(uint32_t) - 4 * BINS) <= CHUNKS_MAX * CHUNK, "rows lie where histograms of others do; chunks of the largest part");

/* A lane's four logits of a chunk of n ids; past the end -inf. */
static __device__ __forceinline__ float4 read_chunk(const float *from, uint32_t chunk, uint32_t n)
{
    const uint32_t i = chunk * CHUNK + 4 * (threadIdx.x & 31u);
    float4 x = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (i < n) x = __ldcg((const float4 *)(from + i));
    if (chunk * CHUNK + CHUNK > n) {
        x.y = i + 1 < n ? x.y : -INFINITY;
        x.z = i + 2 < n ? x.z : -INFINITY;
        x.w = i + 3 < n ? x.w : -INFINITY;
    }
    return x;
}

/* Of the warp's chunks, first `WARPS` apart: the best logit, as a key. */
static __device__ uint32_t best_of_chunks(const float *from, uint32_t n, uint32_t first)
{
    enum { AHEAD = 4 };
    float best = -INFINITY;
#pragma unroll 1
    for (uint32_t c = first; c * CHUNK < n; c += AHEAD * WARPS) {
        float4 x[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) x[i] = read_chunk(from, c + i * WARPS, n);
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            asm("max.NaN.f32 %0, %0, %1;\n\tmax.NaN.f32 %0, %0, %2;\n\tmax.NaN.f32 %0, %0, %3;\n\tmax.NaN.f32 %0, %0, %4;" : "+f"(best) : "f"(x[i].x), "f"(x[i].y), "f"(x[i].z), "f"(x[i].w));
    }
    return __reduce_max_sync(0xffffffffu, order_key(best));
}

/* Weights of a lane's four ids, and their sum. */
static __device__ __forceinline__ u64 weigh_four(const struct many_row &r, const double *powers, float4 x, u64 (&w)[4])
{
    float l[4] = { x.x, x.y, x.z, x.w };
    u64 sum = 0;
    if (r.divisor != 1.0f) { /* what is divided by 1 stays as it is */
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) l[i] = __fdiv_rn(l[i], r.divisor);
    }
    weights_of(w, l, (double)r.best, powers);
    if (const u64 least = r.head.s.least) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) w[i] = w[i] >= least ? w[i] : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) sum += w[i];
    return sum;
}

/* Of a warp's sums, each below 2^46. */
static __device__ __forceinline__ u64 warp_sum46(u64 x)
{
    const uint32_t low = __reduce_add_sync(0xffffffffu, (uint32_t)x & 0x7fffffu), high = __reduce_add_sync(0xffffffffu, (uint32_t)(x >> 23));
    return low + ((u64)high << 23);
}

static __device__ void sum_chunks(struct many_row &r, const double *powers, const float *from, uint32_t n, uint32_t first)
{
    float4 next = read_chunk(from, first, n), after = read_chunk(from, first + WARPS, n);
#pragma unroll 2
    for (uint32_t c = first; c * CHUNK < n; c += WARPS) {
        const float4 x = next;
        u64 w[4];
        next = after;
        after = read_chunk(from, c + 2 * WARPS, n);
        const u64 sum = warp_sum46(weigh_four(r, powers, x, w));
        if ((threadIdx.x & 31u) == 0) r.of_chunk[c] = sum;
    }
}

/* exchange in memory, by one warp. */
static __device__ u64 exchange_row(struct row_space *r, uint32_t which, u64 mine)
{
    const uint32_t lane = threadIdx.x & 31u;
    if (lane == 0) {
        r->of_part[which][blockIdx.x] = mine;
        row_meet(r, gridDim.x);
    }
    __syncwarp();
    return lane < gridDim.x ? __ldcg(&r->of_part[which][lane]) : 0;
}

/* By a warp: the best of all parts. */
static __device__ void find_best(const struct space &v, const struct job &j, uint32_t row, struct many_row &r)
{
    const uint32_t lane = threadIdx.x & 31u, key = __reduce_max_sync(0xffffffffu, lane < WARPS ? r.of_warp[lane] : 0u);
    const u64 best = warp_max(exchange_row(&v.row[row], 0, rank_of(key, 0)));
    const float divided = __fdiv_rn(key_float(rank_key(best)), r.divisor);
    const bool draws = can_pick(rank_of(order_key(divided), 0));
    if (!draws && blockIdx.x == 0) accept_best(v, j, r.head, row, rank_of(KEY_NO_LOGIT, 0));
    if (lane == 0) {
        r.best = divided;
        r.draws = draws;
    }
}

/* By a warp: step 10. */
static __device__ void draw_row(const struct space &v, const struct job &j, uint32_t row, const struct many_row &r, const double *powers, const float *from, uint32_t first, uint32_t n)
{
    const uint32_t lane = threadIdx.x & 31u;
    const u64 random = draw_bits(r.head.s.seed, r.head.s.n_generated);
    u64 mine = 0, w[4];
#pragma unroll
    for (uint32_t i = 0; i < LANE_CHUNKS; i++) mine += r.of_chunk[lane * LANE_CHUNKS + i];
    u64 until = warp_scan(mine);
    const u64 of_part = __shfl_sync(0xffffffffu, until, 31), parts = warp_scan(exchange_row(&v.row[row], 1, of_part));
    const u64 before = __shfl_sync(0xffffffffu, parts, (int)blockIdx.x) - of_part;
    u64 target = __umul64hi(random, __shfl_sync(0xffffffffu, parts, 31));
    if (target < before || target - before >= of_part) return;
    target -= before;
    int owner = __ffs((int)__ballot_sync(0xffffffffu, until > target)) - 1;
    target -= __shfl_sync(0xffffffffu, until - mine, owner);
    uint32_t chunk = (uint32_t)owner * LANE_CHUNKS;
    for (; target >= r.of_chunk[chunk]; chunk++) target -= r.of_chunk[chunk];
    mine = weigh_four(r, powers, read_chunk(from, chunk, n), w);
    until = warp_scan(mine);
    owner = __ffs((int)__ballot_sync(0xffffffffu, until > target)) - 1;
    target -= until - mine; /* of use to the owner alone */
    uint32_t id = first + chunk * CHUNK + 4 * lane;
#pragma unroll
    for (uint32_t i = 0, sum_reached = 0; i < 3; i++) {
        sum_reached |= target < w[i];
        target -= w[i];
        id += !sum_reached;
    }
    accept(v, j, r.head, row, __shfl_sync(0xffffffffu, id, owner));
}

/* By the whole grid; rows blockIdx.y + i gridDim.y. Returns a bit for each i of the block that is left for sample_row. memory: of the block, shared. */
static __device__ uint32_t sample_many(const struct space &v, const struct job &j, const double *powers, void *memory)
{
    struct many_row *const r = (struct many_row *)memory;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, rows = (j.rows - blockIdx.y + gridDim.y - 1) / gridDim.y, own = blockIdx.y + warp * gridDim.y;
    const uint32_t first = blockIdx.x * j.part_ids, n = first >= v.n_vocab ? 0 : v.n_vocab - first < j.part_ids ? v.n_vocab - first : j.part_ids;
    auto logits = [&](uint32_t i) { return j.logits + (u64)(blockIdx.y + i * gridDim.y) * j.stride + first; };
    if (warp < rows) {
        struct head &h = r[warp].head;
        load_head(&h, v, j, own, lane, 32);
        for (uint32_t i = lane; i < CHUNKS_MAX; i += 32) r[warp].of_chunk[i] = 0;
        __syncwarp();
        if (lane == 0) {
            r[warp].draws = !idle(h) && is_plain(h.s, v.n_vocab) && !h.s.n_bias;
            r[warp].divisor = h.s.temperature;
        }
        if (lane == 0 && blockIdx.x == 0 && idle(h)) give_none(v, j, h, own);
    }
    __syncthreads();
    uint32_t left = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < rows; i++) {
        if (!r[i].draws) {
            left |= idle(r[i].head) ? 0 : 1u << i;
            continue;
        }
        const uint32_t best = best_of_chunks(logits(i), n, warp);
        if (lane == 0) r[i].of_warp[warp] = best;
    }
    __syncthreads();
    if (warp < rows && r[warp].draws) find_best(v, j, own, r[warp]);
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = rows; i-- > 0;) /* the last that were read first */
        if (r[i].draws) sum_chunks(r[i], powers, logits(i), n, (warp + 4 * i) % WARPS); /* other warps have a chunk more */
    __syncthreads();
    if (warp < rows && r[warp].draws) draw_row(v, j, own, r[warp], powers, logits(warp), first, n);
    __syncthreads();
    return left;
}

#endif
