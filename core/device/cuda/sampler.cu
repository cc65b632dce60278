/* sampler.cu: from rows of logits to ids, exactly as core/sample/sample.h defines it.
 *
 * Two kernels. sample_plain takes rows of which the best id is wanted, or a draw at a temperature alone: many small
 * blocks a row (sampler_plain.cuh). sample_full serves everything else: a few blocks a row share it
 * (sampler_parts.cuh). Both exist with and without masks. A third finds log probabilities (sampler_top_logprobs.cuh).
 *
 * Every sum and maximum is of integers, so neither the number of blocks nor their order shows in an id. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/launch.cuh"
#include "device/cuda/sampler_parts.cuh"
#include "device/cuda/sampler_plain.cuh"
#include "device/cuda/sampler_top_logprobs.cuh"

enum { BIAS_A_LAUNCH = 448 /* entries that fit into a launch's parameters */ };

struct cuda_sampler {
    struct space space;
    uint32_t slots, parts_least, parts_most;
    uint32_t multiprocessors, blocks_at_once; /* blocks_at_once: of sample_full that the device holds together */
    bool clusters;
};

namespace
{

/* ---- full ---------------------------------------------------------------------------------------------- */

template <bool CLUSTER, class MASKS>
__global__ void __launch_bounds__(BLOCK, 2)
    sample_full(struct space v, struct job j, const __grid_constant__ MASKS masks)
{
    extern __shared__ uint4 shared_words[];
    if (CLUSTER) {
#if WK_HAS_CLUSTERS
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
    }
    wk_depend();
    wk_release();
    for (uint32_t row = blockIdx.y; row < j.rows; row += gridDim.y) {
        sample_row<CLUSTER>(v, j, row, masks.of(row), (uint32_t *)shared_words);
        __syncthreads(); /* before the next row's logits overwrite this one's */
    }
}

/* ---- a new job in a slot ------------------------------------------------------------------------------- */

__global__ void set_slot(struct space v, uint32_t slot, struct slot s)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) {
        v.slot[slot] = s;
        v.last[slot] = 0;
    }
    if (s.penalised && i < v.n_vocab) v.counts[(u64)slot * v.n_vocab + i] = 0;
}

struct bias_run {
    uint32_t slot, first, n;
    struct sampler_bias entry[BIAS_A_LAUNCH];
};

__global__ void set_bias(struct space v, const __grid_constant__ struct bias_run run)
{
    const uint32_t i = threadIdx.x;
    if (i < run.n) v.bias[(u64)run.slot * SAMPLER_MAX_BIAS + run.first + i] = run.entry[i];
}
static_assert(BIAS_A_LAUNCH <= 1024 && sizeof(struct bias_run) + sizeof(struct space) <= 4096,
              "a block of threads and the parameters of a launch");

/* ---- host ---------------------------------------------------------------------------------------------- */

/* Takes pieces of the caller's memory, 256-byte aligned; base NULL: only counts. */
struct carving {
    char *base;
    u64 used;
};
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
    v->of_chunk = (struct chunk_sum *)carve(&c, (u64)rows * row_chunks(n_vocab) * sizeof *v->of_chunk);
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

uint32_t part_ids(const struct cuda_sampler *s, uint32_t parts)
{
    return row_chunks((s->space.n_vocab + parts - 1) / parts) * SAMPLER_CHUNK;
}
uint32_t part_shared(const struct cuda_sampler *s, uint32_t parts)
{
    return (4 * BINS + part_ids(s, parts)) * (uint32_t)sizeof(uint32_t);
}

/* Parts of a row: powers of two. Fewer for many rows, as few as shared memory allows; which,
 * decides nothing but time. */
void choose_parts(struct cuda_sampler *s, uint32_t most_shared)
{
    s->parts_least = s->parts_most = 1;
    while (s->parts_most < PARTS_MAX && s->space.n_vocab > s->parts_most * PART_IDS) s->parts_most *= 2;
    while (s->parts_least < s->parts_most && part_shared(s, s->parts_least) > most_shared) s->parts_least *= 2;
}

template <class MASKS> wk_status prepare_full(struct cuda_sampler *s, const struct wk_err *err)
{
    const uint32_t largest = part_shared(s, s->parts_least);
    int blocks = 0;
    cudaError_t code =
        cudaFuncSetAttribute(sample_full<false, MASKS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)largest);
    if (!code) code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sample_full<false, MASKS>, BLOCK, largest);
    if (!code && s->clusters)
        code = cudaFuncSetAttribute(sample_full<true, MASKS>, cudaFuncAttributeMaxDynamicSharedMemorySize, PART_ALONE);
    if (!code && s->clusters)
        code = cudaFuncSetAttribute(sample_full<true, MASKS>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    const uint32_t at_once = (uint32_t)blocks * s->multiprocessors;
    s->blocks_at_once = at_once < s->blocks_at_once ? at_once : s->blocks_at_once;
    return cuda_status(code, "sampler kernels", err);
}

/* Shared memory beyond the default, clusters beyond the portable eight, and what the device holds at once. */
wk_status prepare_kernels(struct cuda_sampler *s, const struct wk_err *err)
{
    const uint32_t own = 4096; /* of sample_full's own shared memory, at most */
    struct wk_image image;
    int device = 0, multiprocessors = 0, shared = 0;
    cudaError_t code = cudaGetDevice(&device);
    if (!code) code = wk_image_read(&image);
    if (!code) code = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (!code) code = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (code) return cuda_status(code, "sampler kernels", err);
    choose_parts(s, (uint32_t)shared - own < (uint32_t)PART_SHARED ? (uint32_t)shared - own : (uint32_t)PART_SHARED);
    s->multiprocessors = (uint32_t)multiprocessors;
    s->blocks_at_once = UINT32_MAX;
    s->clusters = image.clusters && shared >= PART_ALONE; /* devices with less have small clusters as well */
    wk_status status = prepare_full<no_masks>(s, err);
    if (!status) status = prepare_full<masks>(s, err);
    if (status) return status;
    const uint32_t largest = part_shared(s, s->parts_least);
    if (s->blocks_at_once < s->parts_most)
        return wk_fail(err, WK_UNSUPPORTED, "the sampler needs %u blocks of %u bytes at once, the device holds %u",
                       s->parts_most, largest, s->blocks_at_once);
    return WK_OK;
}

/* Four logits at a time can be read. */
bool in_fours(const struct job *j) { return j->stride % 4 == 0 && (uintptr_t)j->logits % 16 == 0; }

/* As many blocks as the device holds at once, each with a chunk for every warp at least. */
template <class MASKS>
wk_status launch_plain(const struct cuda_sampler *s, struct job *j, const MASKS &masks, bool pdl, void *stream,
                       const struct wk_err *err)
{
    const uint32_t chunks = row_chunks(s->space.n_vocab), most = PLAIN_BLOCKS_SM * s->multiprocessors / j->rows,
                   share = most ? (chunks + most - 1) / most : chunks;
    const uint32_t part = share < (uint32_t)PLAIN_WARPS ? (uint32_t)PLAIN_WARPS : share;
    j->part_ids = part * SAMPLER_CHUNK;
    j->drawn = part <= (uint32_t)PLAIN_DRAWN * PLAIN_WARPS;
    return cuda_launch("sample_plain", sample_plain<MASKS>, dim3((chunks + part - 1) / part, j->rows),
                       dim3(PLAIN_BLOCK), 0, pdl, stream, err, s->space, *j, masks);
}

template <class MASKS>
wk_status launch_full(const struct cuda_sampler *s, struct job *j, const MASKS &masks, bool pdl, void *stream,
                      const struct wk_err *err)
{
    uint32_t parts = s->parts_most;
    while (parts > s->parts_least && parts * j->rows > 2 * s->multiprocessors) parts /= 2;
    const uint32_t together = s->blocks_at_once / parts, rows = j->rows < together ? j->rows : together,
                   shared = part_shared(s, parts);
    j->part_ids = part_ids(s, parts);
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
        config.numAttrs = pdl ? 3 : 2;
        return cuda_status(cudaLaunchKernelEx(&config, sample_full<false, MASKS>, s->space, *j, masks), "sample_full",
                           err);
    }
    /* Two parts of a cluster would share a multiprocessor although others are idle. */
    if (shared < (uint32_t)PART_ALONE) config.dynamicSmemBytes = PART_ALONE;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = parts;
    attribute[1].val.clusterDim.y = 1;
    attribute[1].val.clusterDim.z = 1;
    attribute[2].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[2].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = pdl ? 3 : 2;
    return cuda_status(cudaLaunchKernelEx(&config, sample_full<true, MASKS>, s->space, *j, masks), "sample_full", err);
}

template <class MASKS>
wk_status launch(const struct cuda_sampler *s, const struct cuda_sample *c, struct job *j, const MASKS &masks,
                 void *stream, const struct wk_err *err)
{
    return c->kind == CUDA_SAMPLE_PLAIN && in_fours(j) ? launch_plain(s, j, masks, c->pdl, stream, err)
                                                       : launch_full(s, j, masks, c->pdl, stream, err);
}

} // namespace

uint64_t cuda_sampler_bytes(uint32_t slots, uint32_t n_vocab, uint32_t rows)
{
    struct space v;
    return carve_space(&v, NULL, slots, n_vocab, rows);
}

wk_status cuda_sampler_open(uint32_t slots, uint32_t n_vocab, uint32_t rows, void *memory, struct cuda_sampler **out,
                            const struct wk_err *err)
{
    *out = NULL;
    if (n_vocab < 1 || n_vocab > SAMPLER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "vocabulary of %u ids; 1 to %d expected", n_vocab, SAMPLER_MAX_VOCAB);
    if (slots < 1 || rows < 1 || rows > CUDA_SAMPLER_ROWS)
        return wk_fail(err, WK_INVALID,
                       "a sampler of %u slots and %u rows; at least one of each and at most %d rows expected", slots,
                       rows, CUDA_SAMPLER_ROWS);
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

wk_status cuda_sampler_set(struct cuda_sampler *s, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                           uint32_t n_ends, void *stream, const struct wk_err *err)
{
    if (slot >= s->slots) return wk_fail(err, WK_INVALID, "sampler slot %u; there are %u", slot, s->slots);
    if (n_ends > SAMPLER_MAX_ENDS)
        return wk_fail(err, WK_INVALID, "%u ids that end a sequence; at most %d expected", n_ends, SAMPLER_MAX_ENDS);
    wk_status status = sampler_check(p, s->space.n_vocab, err);
    if (status) return status;
    struct slot to = {};
    to.seed = p->seed;
    to.share = (u64)rint((double)p->top_p * 0x1p32);
    to.least = (u64)ceil((double)p->min_p * 0x1p44);
    to.presence = p->presence_penalty;
    to.frequency = p->frequency_penalty;
    to.repetition = p->repetition_penalty;
    to.top_k = p->top_k;
    to.n_bias = p->n_logit_bias;
    to.n_ends = n_ends;
    to.min_ids = p->min_ids;
    to.greedy = p->temperature < SAMPLER_GREEDY;
    to.inverse = to.greedy ? 1 : 1 / p->temperature;
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
    if (c->rows < 1 || c->rows > s->space.rows_max)
        return wk_fail(err, WK_INTERNAL, "%u rows to sample; the sampler was opened for %u", c->rows,
                       s->space.rows_max);
    if (c->rows > 1 && c->stride < s->space.n_vocab)
        return wk_fail(err, WK_INTERNAL, "rows of %u logits, %llu apart", s->space.n_vocab, (u64)c->stride);
    struct job j = { c->seq, c->logits, c->stride, c->serial, c->out, c->rows, 0, 0 };
    if (!c->masks) return launch(s, c, &j, no_masks(), stream, err);
    const struct masks of = { *c->masks };
    return launch(s, c, &j, of, stream, err);
}

wk_status cuda_sampler_top_logprobs(const struct cuda_sampler *s, const struct cuda_top_logprobs *c, void *stream,
                                    const struct wk_err *err)
{
    struct top_job j = {};
    if (c->n < 1 || c->n > (uint32_t)CUDA_SAMPLER_ROWS)
        return wk_fail(err, WK_INTERNAL, "log probabilities of %u rows; 1 to %d expected", c->n, CUDA_SAMPLER_ROWS);
    j.seq = c->seq;
    j.logits = c->logits;
    j.stride = c->stride;
    j.serial = c->serial;
    j.out = c->out;
    j.first = c->first;
    j.a_run = c->a_run;
    j.fours = c->stride % 4 == 0 && (uintptr_t)c->logits % 16 == 0;
    memcpy(j.of, c->of, c->n * sizeof *j.of);
    return cuda_launch("row_top_logprobs", row_top_logprobs, dim3(c->n), dim3(TOP_BLOCK), 0, false, stream, err,
                       s->space, j);
}

const uint32_t *cuda_sampler_last(const struct cuda_sampler *s) { return s->space.last; }
enum cuda_sample_kind cuda_sampler_kind(const struct sampler_params *p)
{
    if (p->n_logit_bias || p->min_ids || p->presence_penalty != 0 || p->frequency_penalty != 0 ||
        p->repetition_penalty != 1)
        return CUDA_SAMPLE_ANY;
    return p->temperature < SAMPLER_GREEDY || (p->top_k == 0 && p->top_p >= 1 && p->min_p == 0) ? CUDA_SAMPLE_PLAIN
                                                                                                : CUDA_SAMPLE_ANY;
}
void cuda_sampler_without_clusters(struct cuda_sampler *s) { s->clusters = false; }
