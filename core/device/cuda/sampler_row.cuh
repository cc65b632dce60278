/* sampler_row.cuh: what all of the sampler's kernels share: state of slots and rows, and how a row ends. */
#ifndef CORE_DEVICE_CUDA_SAMPLER_ROW_CUH
#define CORE_DEVICE_CUDA_SAMPLER_ROW_CUH

#include "device/cuda/kernels.h"
#include "device/cuda/sampler_order.cuh"

enum {
    BLOCK = 512,
    WARPS = BLOCK / 32,
    PARTS_MAX = 16,
    PART_IDS = 4096,         /* ids a part, where there are enough parts */
    PART_SHARED = 109 << 10, /* most shared memory of a part, so that two fit a multiprocessor, */
    PART_ALONE = 116 << 10,  /* and what a part asks for to have a multiprocessor for itself */
    BIN_BITS = 11,
    BINS = 1 << BIN_BITS,
    BUFFERS = 3
};
enum slot_end { SLOT_RUNS = 0, SLOT_ENDED, SLOT_FAILED };

struct slot {
    u64 seed, n_generated;
    u64 share, least;                               /* top_p * 2^32; min_p * 2^44, as sample.c rounds them */
    float presence, frequency, inverse, repetition; /* inverse: 1 / temperature; 1 of a greedy slot */
    uint32_t top_k, n_bias, n_ends, min_ids, end;   /* end: enum slot_end */
    uint32_t greedy, penalised;                     /* penalised: the ids that it generated are counted */
    uint32_t ends[SAMPLER_MAX_ENDS];
};

static __device__ __forceinline__ bool cuts_top_k(const struct slot &s, uint32_t n_vocab)
{
    return s.top_k > 0 && s.top_k < n_vocab;
}

/* What the blocks of one row share. Histograms, best, arrived are zero between launches; barrier only ever counts. */
struct row_space {
    u64 best; /* of sample_plain: largest rank + 1 */
    uint32_t arrived, barrier;
    u64 of_part[2][PARTS_MAX]; /* best rank, sum of weights */
    u64 mass[BUFFERS][BINS];
    uint32_t count[BUFFERS][BINS];
};

/* Of a chunk: S of sample.h, its largest logit, and where in it the id is that v draws (job.drawn). */
struct __align__(16) chunk_sum
{
    u64 sum;
    float best;
    uint32_t place;
};

/* Device memory, by value in every launch. */
struct space {
    struct slot *slot;
    uint32_t *last;
    uint32_t *counts;          /* [slots][n_vocab] times that an id was generated */
    struct sampler_bias *bias; /* [slots][SAMPLER_MAX_BIAS] ascending ids, equal ones in the caller's order */
    struct row_space *row;
    struct chunk_sum *of_chunk; /* [rows][row_chunks] */
    uint32_t n_vocab, rows_max;
};

struct job {
    const struct cuda_seq *seq;
    const float *logits;
    u64 stride;
    const uint32_t *serial;
    struct cuda_sampled *out;
    uint32_t rows;
    uint32_t part_ids; /* ids of a block of the row: whole chunks */
    uint32_t drawn;    /* sample_plain: every chunk draws its id, in case it is the one */
};
static __host__ __device__ __forceinline__ uint32_t row_chunks(uint32_t n_vocab)
{
    return (n_vocab + SAMPLER_CHUNK - 1) / SAMPLER_CHUNK;
}

/* ---- masks --------------------------------------------------------------------------------------------- */

/* What a kernel is given of step 3: nothing, or struct masks by value. Batches without a mask have kernels without. */
struct no_masks {
    static const bool MASKED = false;
    __device__ __forceinline__ const u64 *of(uint32_t) const { return NULL; }
};
struct masks {
    static const bool MASKED = true;
    struct cuda_masks m;
    __device__ __forceinline__ const u64 *of(uint32_t row) const /* NULL: all ids are allowed */
    {
        const uint32_t at = m.of_row[row];
        return at == CUDA_NO_MASK ? NULL : (const u64 *)m.words + (u64)at * m.stride;
    }
};

/* Bits of ids [id, id + 4), id a multiple of 4. */
static __device__ __forceinline__ uint32_t four_bits(const u64 *mask, uint32_t id)
{
    return mask ? (uint32_t)(__ldcg(mask + id / 64) >> (id % 64)) & 15u : 15u;
}
/* A logit that cannot be used stays so. */
static __device__ __forceinline__ float allowed(float x, uint32_t bit)
{
    return bit || !(x < INFINITY) ? x : -INFINITY;
}
static __device__ __forceinline__ float4 allowed(float4 x, uint32_t bits)
{
    return make_float4(allowed(x.x, bits & 1u), allowed(x.y, bits & 2u), allowed(x.z, bits & 4u),
                       allowed(x.w, bits & 8u));
}

/* ---- the largest --------------------------------------------------------------------------------------- */

static __device__ __forceinline__ u64 warp_max(u64 x)
{
    const uint32_t high = __reduce_max_sync(0xffffffffu, (uint32_t)(x >> 32));
    const uint32_t low = __reduce_max_sync(0xffffffffu, (uint32_t)(x >> 32) == high ? (uint32_t)x : 0u);
    return (u64)high << 32 | low;
}

/* Largest of the block, in the first warp. */
template <int N_WARPS> static __device__ u64 block_max(u64 x)
{
    __shared__ u64 warp_best[N_WARPS];
    x = warp_max(x);
    if ((threadIdx.x & 31u) == 0) warp_best[threadIdx.x / 32] = x;
    __syncthreads();
    return threadIdx.x < 32 ? warp_max(threadIdx.x < N_WARPS ? warp_best[threadIdx.x] : 0) : 0;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Inclusive sums in order of lanes. */
static __device__ __forceinline__ u64 warp_scan(u64 x)
{
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const u64 other = __shfl_up_sync(0xffffffffu, x, d);
        if ((threadIdx.x & 31u) >= (uint32_t)d) x += other;
    }
    return x;
}

/* Inclusive sums in order of threads; *total: of all. */
template <int N_WARPS> static __device__ u64 block_scan(u64 x, u64 *total)
{
    __shared__ u64 warp_total[N_WARPS];
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32;
    x = warp_scan(x);
    __syncthreads(); /* the last call's totals have been read */
    if (lane == 31) warp_total[warp] = x;
    __syncthreads();
    u64 sum = 0, before = 0;
#pragma unroll
    for (uint32_t i = 0; i < N_WARPS; i++) {
        before = i == warp ? sum : before;
        sum += warp_total[i];
    }
    *total = sum;
    return before + x;
}

/* Four logits, of which `left` exist; the others are -inf. */
static __device__ __forceinline__ float4 read_four(const float *at, int32_t left)
{
    float4 x = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (left >= 4)
        x = __ldcg((const float4 *)at);
    else if (left > 0)
        x = make_float4(__ldcg(at), left > 1 ? __ldcg(at + 1) : -INFINITY, left > 2 ? __ldcg(at + 2) : -INFINITY,
                        -INFINITY);
    return x;
}

/* ---- chunks of a draw ---------------------------------------------------------------------------------- */

/* A NaN stays. */
static __device__ __forceinline__ float larger(float a, float b)
{
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
static __device__ __forceinline__ float largest_of(float4 x) { return larger(larger(x.x, x.y), larger(x.z, x.w)); }

/* Largest of a warp's floats; a NaN as larger() leaves it is above all. */
static __device__ __forceinline__ float warp_largest(float x)
{
    const int32_t b = __float_as_int(x), most = __reduce_max_sync(0xffffffffu, b ^ (int32_t)((uint32_t)(b >> 31) >> 1));
    return __int_as_float(most ^ (int32_t)((uint32_t)(most >> 31) >> 1));
}

/* A warp's chunk, four logits a lane, -inf of what does not stay: weights, their sum, the largest logit. If nothing
 * stays there is no weight. */
static __device__ __forceinline__ struct chunk_sum weigh_chunk(float4 x, u64 (&w)[4])
{
    const float best = warp_largest(largest_of(x));
    w[0] = weight_of(__fsub_rn(x.x, best));
    w[1] = weight_of(__fsub_rn(x.y, best));
    w[2] = weight_of(__fsub_rn(x.z, best));
    w[3] = weight_of(__fsub_rn(x.w, best));
    const u64 lane = w[0] + w[1] + w[2] + w[3]; /* at most 2^46: 27 bits and 20 */
    const uint32_t low = __reduce_add_sync(0xffffffffu, (uint32_t)lane & 0x7ffffffu),
                   high = __reduce_add_sync(0xffffffffu, (uint32_t)(lane >> 27));
    return { low + ((u64)high << 27), best, 0 };
}

/* W: sums have 51 bits, weights 44. */
static __device__ __forceinline__ u64 weight_of_chunk(const struct chunk_sum &of, float best)
{
    return __umul64hi(of.sum << 6, weight_of(__fsub_rn(of.best, best)) << (64 - SAMPLER_WEIGHT_BITS - 6));
}

/* By a whole warp with a chunk's weights: the place of the id at which the running sum exceeds its
 * share random / 2^64. */
static __device__ __forceinline__ uint32_t reach_in_chunk(const u64 (&w)[4], u64 random)
{
    const u64 mine = w[0] + w[1] + w[2] + w[3], until = warp_scan(mine);
    u64 target = __umul64hi(random, __shfl_sync(0xffffffffu, until, 31));
    const int owner = __ffs((int)__ballot_sync(0xffffffffu, until > target)) - 1;
    target -= until - mine; /* of use to the owner alone */
    uint32_t place = 4 * (threadIdx.x & 31u), reached = 0;
#pragma unroll
    for (uint32_t i = 0; i < 3; i++) {
        reached |= target < w[i];
        target -= w[i];
        place += !reached;
    }
    return __shfl_sync(0xffffffffu, place, owner);
}

static __device__ __forceinline__ struct chunk_sum read_chunk(const struct chunk_sum *from)
{
    const uint4 x = __ldcg((const uint4 *)from);
    return { (u64)x.y << 32 | x.x, __uint_as_float(x.z), x.w };
}
static __device__ __forceinline__ void write_chunk(struct chunk_sum *to, const struct chunk_sum &of)
{
    __stcg((uint4 *)to, make_uint4((uint32_t)of.sum, (uint32_t)(of.sum >> 32), __float_as_uint(of.best), of.place));
}

/* ---- the end of a row ---------------------------------------------------------------------------------- */

/* By one thread of each of the row's blocks: is this the last of them? Then what the others wrote before is seen. */
static __device__ __forceinline__ bool comes_last(struct row_space *r)
{
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(&r->arrived) : "memory");
    return before + 1 == gridDim.x;
}

/* What a block needs of its row's slot, in shared memory: asked for together with the logits. */
struct head {
    struct slot s;
    uint32_t slot, serial;
    bool padding;
};

/* By a whole block. */
template <uint32_t THREADS>
static __device__ __forceinline__ void load_head(struct head *h, const struct space &v, const struct job &j,
                                                 uint32_t row)
{
    const uint32_t words = sizeof h->s / sizeof(uint32_t), t = threadIdx.x, n_rows = __ldcg(&j.seq[row].n_rows),
                   of_row = __ldcg(&j.seq[row].slot), slot = n_rows ? of_row : 0;
    static_assert(words < THREADS, "a thread takes a word");
    if (t < words) ((uint32_t *)&h->s)[t] = __ldcg((const uint32_t *)&v.slot[slot] + t);
    if (t == THREADS - 1) {
        h->slot = slot;
        h->padding = !n_rows;
        h->serial = __ldcg(j.serial);
    }
}

/* Id and serial in one store: the host sees both or neither. */
static __device__ __forceinline__ void give(const struct space &v, const struct job &j, const struct head &h,
                                            uint32_t row, uint32_t id)
{
    struct cuda_sampled *out = &j.out[(u64)(h.serial % CUDA_RING) * v.rows_max + row];
    asm volatile("st.relaxed.sys.global.v2.b32 [%0], {%1, %2};" ::"l"(out), "r"(h.serial), "r"(id) : "memory");
}

/* By one whole warp: the row's id, and what generating it changes. */
static __device__ __forceinline__ void accept(const struct space &v, const struct job &j, const struct head &h,
                                              uint32_t row, uint32_t id)
{
    bool ends = false;
    for (uint32_t i = threadIdx.x % 32; i < h.s.n_ends; i += 32) ends |= h.s.ends[i] == id;
    ends = __any_sync(0xffffffffu, ends);
    if (threadIdx.x % 32) return;
    give(v, j, h, row, id);
    v.last[h.slot] = id;
    v.slot[h.slot].n_generated = h.s.n_generated + 1;
    if (ends) v.slot[h.slot].end = SLOT_ENDED;
    if (h.s.penalised)
        atomicAdd(&v.counts[(u64)h.slot * v.n_vocab + id], 1u); /* nobody else adds; no wait for what was there */
}

/* By one whole warp: the best id, or that there is none. */
static __device__ __forceinline__ void accept_best(const struct space &v, const struct job &j, const struct head &h,
                                                   uint32_t row, u64 best)
{
    if (can_pick(best)) {
        accept(v, j, h, row, rank_id(best));
    } else if (threadIdx.x % 32 == 0) {
        v.slot[h.slot].end = SLOT_FAILED;
        give(v, j, h, row, CUDA_NO_ID);
    }
}

/* A row that needs no logits: padding, or a slot that came to its end in an earlier step. */
static __device__ __forceinline__ bool idle(const struct head &h) { return h.padding || h.s.end != SLOT_RUNS; }
static __device__ __forceinline__ void give_none(const struct space &v, const struct job &j, const struct head &h,
                                                 uint32_t row)
{
    give(v, j, h, row, !h.padding && h.s.end == SLOT_FAILED ? CUDA_NO_ID : UINT32_MAX);
}

#endif
