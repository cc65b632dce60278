/* sampler_draw.cuh: the second kernel of rows with a temperature alone: from a row's best logit to its id.
 *
 * A row is cut into chunks of 128 ids, four a lane. A block sums the weights of some of them, one warp a chunk; the last of a row's blocks to come (an integer counter) draws: it finds
 * the chunk by the sums and the id by making that chunk's weights again. Logits are asked for before the wait: they were finished before the launch that looks for the best
 * let this one begin. */
#ifndef CORE_DEVICE_CUDA_SAMPLER_DRAW_CUH
#define CORE_DEVICE_CUDA_SAMPLER_DRAW_CUH

#include "device/cuda/sampler_parts.cuh"

enum { DRAW_BLOCK = 256, DRAW_WARPS = DRAW_BLOCK / 32, DRAW_BLOCKS_SM = 4, DRAW_CHUNKS = SAMPLER_MAX_VOCAB / CHUNK / DRAW_BLOCK /* of a thread, at most */ };
static_assert((int)POWERS == (int)DRAW_BLOCK, "a thread takes a power");

/* Four logits, of which `left` exist; the others are -inf. */
static __device__ __forceinline__ float4 read_four(const float *at, int32_t left)
{
    float4 x = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (left >= 4) x = __ldcg((const float4 *)at);
    else if (left > 0) x = make_float4(__ldcg(at), left > 1 ? __ldcg(at + 1) : -INFINITY, left > 2 ? __ldcg(at + 2) : -INFINITY, -INFINITY);
    return x;
}

/* What a row's weights depend on. */
struct weighing { float divisor, best; u64 least; const double *powers; }; /* best: divided; least: WEIGHT_ZERO + min-p's; powers: shared */

/* Weights of a lane's four ids, and their sum. */
static __device__ __forceinline__ u64 weigh_four(const struct weighing &r, float4 x, u64 (&w)[4])
{
    float l[4] = { x.x, x.y, x.z, x.w };
    if (r.divisor != 1.0f) { /* what is divided by 1 stays as it is */
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) l[i] = __fdiv_rn(l[i], r.divisor);
    }
    weights_of(w, l, (double)r.best, r.powers);
    if (r.least > WEIGHT_ZERO) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) w[i] = w[i] >= r.least ? w[i] : WEIGHT_ZERO;
    }
    return w[0] + w[1] + w[2] + w[3] - 4 * WEIGHT_ZERO;
}

/* Of a warp's sums, each below 2^46. */
static __device__ __forceinline__ u64 warp_sum46(u64 x)
{
    const uint32_t low = __reduce_add_sync(0xffffffffu, (uint32_t)x & 0x7fffffu), high = __reduce_add_sync(0xffffffffu, (uint32_t)(x >> 23));
    return low + ((u64)high << 23);
}

/* Step 10, by a whole block: chunks by threads in order, the one that is hit by its warp. */
static __device__ void draw_row(const struct space &v, const struct job &j, const struct head &h, uint32_t row, const struct weighing &r, const float *from, const u64 *of_chunk)
{
    const uint32_t lane = threadIdx.x & 31u, chunks = row_chunks(v.n_vocab), each = (chunks + DRAW_BLOCK - 1) / DRAW_BLOCK, first = threadIdx.x * each;
    const u64 random = draw_bits(h.s.seed, h.s.n_generated);
    u64 sums[DRAW_CHUNKS], w[4], mine = 0, total;
#pragma unroll
    for (uint32_t i = 0; i < DRAW_CHUNKS; i++) {
        sums[i] = i < each && first + i < chunks ? __ldcg(of_chunk + first + i) : 0;
        mine += sums[i];
    }
    u64 until = block_scan<DRAW_WARPS>(mine, &total), target = __umul64hi(random, total) - (until - mine);
    const uint32_t hit = __ballot_sync(0xffffffffu, target < mine); /* what is below zero is beyond all sums */
    if (!hit) return;
    uint32_t chunk = first, reached = 0;
#pragma unroll
    for (uint32_t i = 0; i < DRAW_CHUNKS; i++) {
        reached |= target < sums[i];
        target -= reached ? 0 : sums[i];
        chunk += !reached;
    }
    int owner = __ffs((int)hit) - 1;
    chunk = __shfl_sync(0xffffffffu, chunk, owner);
    target = __shfl_sync(0xffffffffu, target, owner);
    uint32_t id = chunk * CHUNK + 4 * lane;
    mine = weigh_four(r, read_four(from + id, (int32_t)(v.n_vocab - id)), w);
    until = warp_scan(mine);
    owner = __ffs((int)__ballot_sync(0xffffffffu, until > target)) - 1;
    target -= until - mine; /* of use to the owner alone */
    reached = 0;
#pragma unroll
    for (uint32_t i = 0; i < 3; i++) {
        reached |= target < w[i] - WEIGHT_ZERO;
        target -= w[i] - WEIGHT_ZERO;
        id += !reached;
    }
    accept(v, j, h, row, __shfl_sync(0xffffffffu, id, owner));
}

/* Block (part, row): j.part_ids / CHUNK chunks. r->best: from sample_best. */
static __global__ void __launch_bounds__(DRAW_BLOCK, DRAW_BLOCKS_SM) sample_draw(struct space v, struct job j)
{
    enum { AHEAD = 2, STEP = DRAW_WARPS * CHUNK };
    __shared__ struct head h;
    __shared__ double powers[POWERS];
    __shared__ bool last;
    const uint32_t row = blockIdx.y, chunks = row_chunks(v.n_vocab), part = j.part_ids / CHUNK, begin = blockIdx.x * part, end = chunks - begin < part ? chunks : begin + part;
    const float *from = j.logits + row * j.stride;
    struct row_space *r = &v.row[row];
    u64 *of_chunk = v.of_chunk + (u64)row * chunks, w[4];
    uint32_t c = begin + threadIdx.x / 32, id = c * CHUNK + 4 * (threadIdx.x & 31u);
    const float *at = from + id;
    int32_t left = (int32_t)((end * CHUNK < v.n_vocab ? end * CHUNK : v.n_vocab) - id);
    float4 x[AHEAD];
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++, at += STEP, left -= STEP) x[i] = read_four(at, left);
    load_head<DRAW_BLOCK>(&h, v, j, row);
    powers[threadIdx.x] = __ldg(v.powers + threadIdx.x);
    __syncthreads();
    wk_depend();
    wk_release();
    if (idle(h) || h.s.greedy) return;
    const struct weighing of = { h.s.temperature, __fdiv_rn(key_float(rank_key(__ldcg(&r->best) - 1)), h.s.temperature), WEIGHT_ZERO + h.s.least, powers }; /* a division keeps the order */
    const bool draws = can_pick(rank_of(order_key(of.best), 0));
    u64 *to = of_chunk + c;
#pragma unroll 1
    while (draws && c < end) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            if (c >= end) break;
            const u64 sum = warp_sum46(weigh_four(of, x[i], w));
            x[i] = read_four(at, left);
            if ((threadIdx.x & 31u) == 0) __stcg(to, sum);
            at += STEP;
            left -= STEP;
            to += DRAW_WARPS;
            c += DRAW_WARPS;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) last = comes_last(r);
    __syncthreads();
    if (!last) return;
    if (threadIdx.x == 0) {
        r->best = 0;
        r->arrived = 0;
    }
    if (draws) draw_row(v, j, h, row, of, from, of_chunk);
    else if (threadIdx.x < 32) accept_best(v, j, h, row, rank_of(KEY_NO_LOGIT, 0));
}

#endif
