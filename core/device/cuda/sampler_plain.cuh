/* sampler_plain.cuh: rows of which no more is wanted than a draw at a temperature, or their best id, in one launch that
 * reads logits once.
 *
 * A row is cut into the chunks of sample.h, each a warp's, four ids a lane. Of a row to be drawn every chunk leaves its
 * largest logit and the sum of its weights; the last of the row's blocks to come (an integer counter) draws the chunk
 * by them, and the id by making that chunk's weights again, or where warps have few chunks, each has drawn its id. Of a
 * greedy row every block leaves its best by an integer maximum, and the last writes the id. */
#ifndef CORE_DEVICE_CUDA_SAMPLER_PLAIN_CUH
#define CORE_DEVICE_CUDA_SAMPLER_PLAIN_CUH

#include <worker/cuda/part/launch.cuh>

#include "device/cuda/sampler_row.cuh"

enum {
    PLAIN_BLOCK = 512,
    PLAIN_WARPS = PLAIN_BLOCK / 32,
    PLAIN_BLOCKS_SM = 2,
    PLAIN_AHEAD = 3,
    PLAIN_DRAWN = 3 /* chunks of a warp: with more, drawing in each would cost more than weighing one again */,
    PLAIN_CHUNKS = SAMPLER_MAX_VOCAB / SAMPLER_CHUNK / PLAIN_BLOCK /* of a thread that draws, at most */
};

/* A warp's chunks of a block's, from `number` on every PLAIN_WARPS-th; some are asked for ahead, with their bits of the
 * mask. */
template <bool MASKED> struct chunk_stream {
    const float *at;                             /* where the lane asks next, in chunk `asked` */
    uint32_t number, asked, whole, end, n_vocab; /* whole: chunks before it have all of their ids */
    float4 x[PLAIN_AHEAD];
    const u64 *mask; /* NULL: all ids are allowed */
    uint32_t bits[PLAIN_AHEAD];
    __device__ __forceinline__ chunk_stream(const float *row, const u64 *allowed_ids, uint32_t vocab, uint32_t first,
                                            uint32_t last)
        : at(row + first * SAMPLER_CHUNK + 4 * (threadIdx.x & 31u)), number(first), asked(first),
          whole(min(last, vocab / SAMPLER_CHUNK)), end(last), n_vocab(vocab), mask(allowed_ids)
    {
#pragma unroll
        for (uint32_t i = 0; i < PLAIN_AHEAD; i++) ask(i);
    }
    __device__ __forceinline__ void ask(uint32_t i)
    {
        if (asked < whole)
            x[i] = __ldcg((const float4 *)at);
        else if (asked < end)
            x[i] = read_four(at, (int32_t)(n_vocab - asked * SAMPLER_CHUNK - 4 * (threadIdx.x & 31u)));
        if (MASKED && asked < end) bits[i] = four_bits(mask, asked * SAMPLER_CHUNK + 4 * (threadIdx.x & 31u));
        at += PLAIN_WARPS * SAMPLER_CHUNK;
        asked += PLAIN_WARPS;
    }
    /* take(four logits, number of the chunk) */
    template <class T> __device__ __forceinline__ void each(T take)
    {
#pragma unroll 1
        while (number < end)
#pragma unroll
            for (uint32_t i = 0; i < PLAIN_AHEAD; i++) {
                if (number >= end) break;
                take(MASKED ? allowed(x[i], bits[i]) : x[i], number);
                ask(i);
                number += PLAIN_WARPS;
            }
    }
};

/* ---- the best id --------------------------------------------------------------------------------------- */

/* Rank of the best of a thread's ids, which come in ascending order: of four neighbours that have a larger logit than
 * all before, which is the first is asked at the end. */
template <bool MASKED> static __device__ __forceinline__ u64 best_of_chunks(struct chunk_stream<MASKED> &s)
{
    float best = -INFINITY;
    uint32_t at = SAMPLER_MAX_VOCAB - 4;
    float4 four = make_float4(0, 0, 0, 0);
    s.each([&](float4 x, uint32_t number) {
        const float most = largest_of(x);
        if (most > best) {
            at = number * SAMPLER_CHUNK + 4 * (threadIdx.x & 31u);
            four = x;
        }
        best = larger(best, most);
    });
    return rank_of(order_key(best), at + (four.x == best ? 0 : four.y == best ? 1 : four.z == best ? 2 : 3));
}

/* ---- a draw -------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float4 at_temperature(float4 x, float inverse)
{
    return make_float4(__fmul_rn(x.x, inverse), __fmul_rn(x.y, inverse), __fmul_rn(x.z, inverse),
                       __fmul_rn(x.w, inverse));
}

/* The draw of a row whose chunks are weighed, by a whole block: chunks by threads in order, the one that is drawn by
 * its thread's warp. */
template <bool MASKED>
static __device__ void draw_row(const struct space &v, const struct job &j, const struct head &h,
                                const struct randoms &random, uint32_t row, const float *from, const u64 *mask,
                                const struct chunk_sum *of_chunk)
{
    __shared__ uint32_t warp_key[PLAIN_WARPS];
    const uint32_t lane = threadIdx.x & 31u, chunks = row_chunks(v.n_vocab),
                   each = (chunks + PLAIN_BLOCK - 1) / PLAIN_BLOCK, first = threadIdx.x * each;
    struct chunk_sum of[PLAIN_CHUNKS];
    uint32_t key = 0;
#pragma unroll
    for (uint32_t i = 0; i < PLAIN_CHUNKS; i++) {
        of[i] = i < each && first + i < chunks ? read_chunk(of_chunk + first + i) : chunk_sum{ 0, -INFINITY, 0 };
        key = max(key, order_key(of[i].best));
    }
    key = __reduce_max_sync(0xffffffffu, key);
    if (lane == 0) warp_key[threadIdx.x / 32] = key;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < PLAIN_WARPS; i++) key = max(key, warp_key[i]);
    if (!can_pick(rank_of(key, 0))) {
        if (threadIdx.x < 32) accept_best(v, j, h, row, rank_of(KEY_NO_LOGIT, 0));
        return;
    }
    u64 mine = 0, total;
#pragma unroll
    for (uint32_t i = 0; i < PLAIN_CHUNKS; i++) {
        if (i < each) of[i].sum = weight_of_chunk(of[i], key_float(key));
        mine += of[i].sum;
    }
    const u64 until = block_scan<PLAIN_WARPS>(mine, &total);
    u64 target = __umul64hi(random.chunk, total) - (until - mine);
    const uint32_t hit = __ballot_sync(0xffffffffu, target < mine); /* what is below zero is beyond all sums */
    if (!hit) return;
    uint32_t chunk = first, place = 0, reached = 0;
#pragma unroll
    for (uint32_t i = 0; i < PLAIN_CHUNKS; i++) {
        place = reached ? place : of[i].place;
        reached |= target < of[i].sum;
        target -= reached ? 0 : of[i].sum;
        chunk += !reached;
    }
    const int owner = __ffs((int)hit) - 1;
    chunk = __shfl_sync(0xffffffffu, chunk, owner);
    place = __shfl_sync(0xffffffffu, place, owner);
    if (!j.drawn) {
        u64 w[4];
        const uint32_t id = chunk * SAMPLER_CHUNK + 4 * lane;
        float4 x = read_four(from + id, (int32_t)(v.n_vocab - id));
        if (MASKED) x = allowed(x, four_bits(mask, id));
        weigh_chunk(at_temperature(x, h.s.inverse), w);
        place = reach_in_chunk(w, random.id);
    }
    accept(v, j, h, row, chunk * SAMPLER_CHUNK + place);
}

/* Block (part, row): j.part_ids / SAMPLER_CHUNK chunks. */
template <class MASKS>
static __global__ void __launch_bounds__(PLAIN_BLOCK, PLAIN_BLOCKS_SM)
    sample_plain(struct space v, struct job j, const __grid_constant__ MASKS masks)
{
    __shared__ struct head h;
    __shared__ bool last;
    const uint32_t row = blockIdx.y, chunks = row_chunks(v.n_vocab), part = j.part_ids / SAMPLER_CHUNK,
                   begin = blockIdx.x * part;
    const float *from = j.logits + row * j.stride;
    const u64 *mask = masks.of(row);
    struct row_space *r = &v.row[row];
    struct chunk_sum *of_chunk = v.of_chunk + (u64)row * chunks;
    load_head<PLAIN_BLOCK>(&h, v, j, row);
    __syncthreads();
    const struct randoms random = draw_bits(h.s.seed, h.s.n_generated);
    wk_depend();
    struct chunk_stream<MASKS::MASKED> s(from, mask, v.n_vocab, begin + threadIdx.x / 32, min(begin + part, chunks));
    wk_release();
    if (idle(h)) {
        if (blockIdx.x == 0 && threadIdx.x == 0) give_none(v, j, h, row);
        return;
    }
    const bool greedy = h.s.greedy;
    if (greedy) {
        const u64 best = block_max<PLAIN_WARPS>(best_of_chunks(s));
        if (threadIdx.x == 0) atomicMax(&r->best, best + 1);
    } else {
        const float inverse = h.s.inverse;
        struct chunk_sum *to = of_chunk + s.number;
        s.each([&](float4 x, uint32_t) {
            u64 w[4];
            struct chunk_sum of = weigh_chunk(at_temperature(x, inverse), w);
            if (j.drawn) of.place = reach_in_chunk(w, random.id);
            if ((threadIdx.x & 31u) == 0) write_chunk(to, of);
            to += PLAIN_WARPS;
        });
        __syncthreads();
    }
    if (threadIdx.x == 0) last = comes_last(r);
    __syncthreads();
    if (!last) return;
    if (threadIdx.x == 0) r->arrived = 0;
    if (!greedy) {
        draw_row<MASKS::MASKED>(v, j, h, random, row, from, mask, of_chunk);
        return;
    }
    if (threadIdx.x >= 32) return;
    const u64 best = __ldcg(&r->best) - 1;
    __syncwarp();
    if (threadIdx.x == 0) r->best = 0;
    accept_best(v, j, h, row, best);
}

#endif
