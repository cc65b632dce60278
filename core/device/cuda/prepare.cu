/* prepare.cu: a run's inputs from pinned memory to their fixed places. One block a row; block i also takes sequence i and its page tables.
 *
 * A graph cannot be given the place of its inputs, so the device counts runs: the block of run n lies at n % CUDA_RING. The last block to finish
 * moves the count on; the next run begins after this one has ended, so nobody reads it meanwhile. Reads over the bus are few and all at once, and
 * no copy engine has to take turns with the kernels between one graph and the next. */
#include "device/cuda/prepare.h"

#include "device/cuda/launch.cuh"

enum { THREADS = 128 };

struct prepare_layout prepare_layout(uint32_t rows, uint32_t seqs, uint32_t page_stride)
{
    struct prepare_layout l;
    const uint64_t row_bytes = ((uint64_t)rows * 4 + 15) & ~15ull;
    l.token = 0;
    l.position = l.token + row_bytes;
    l.row_seq = l.position + row_bytes;
    l.seq = l.row_seq + row_bytes;
    l.sampled = l.seq + (uint64_t)seqs * sizeof(struct cuda_seq);
    l.wanted = l.sampled + (uint64_t)seqs * sizeof(struct cuda_seq);
    l.pages = l.wanted + row_bytes;
    l.bytes = (l.pages + (uint64_t)seqs * page_stride * 4 + 255) & ~255ull;
    return l;
}

/* Pages that a sequence's table of group g has by now. */
static __device__ uint32_t pages_of(const struct prepare &p, uint32_t g, const struct cuda_seq &q)
{
    if (p.ring_pages[g]) return p.ring_pages[g];
    return (q.position + q.n_rows + KV_PAGE - 1) / KV_PAGE;
}

static __device__ void take_row(const struct prepare &p, const uint8_t *block, uint32_t row)
{
    const uint32_t position = *(const uint32_t *)(block + p.layout.position + 4ull * row);
    if (threadIdx.x == 0) {
        const int32_t seq = *(const int32_t *)(block + p.layout.row_seq + 4ull * row);
        uint32_t token = *(const uint32_t *)(block + p.layout.token + 4ull * row);
        if (token == TOKEN_LAST && seq >= 0) token = p.last[((const struct cuda_seq *)(block + p.layout.seq))[seq].slot];
        /* A finished slot has no id to go on with; what is computed for it is read by nobody. */
        p.token[row] = token < p.n_vocab ? token : 0;
        p.position[row] = position;
        p.row_seq[row] = seq;
        p.wanted[row] = *(const uint32_t *)(block + p.layout.wanted + 4ull * row);
        for (uint32_t i = 0; i < p.n_offsets; i++) p.by_position[i].index[row] = position + p.by_position[i].offset;
    }
    for (uint32_t t = 0; t < p.n_turns; t++) {
        const struct prepare_turn &turn = p.turn[t];
        float2 *y = (float2 *)turn.turn + (uint64_t)row * turn.n;
        for (uint32_t i = threadIdx.x; i < turn.n; i += THREADS) {
            double s, c;
            sincos((double)position * turn.freq[i], &s, &c);
            y[i] = make_float2((float)(turn.mscale * c), (float)(turn.mscale * s));
        }
    }
}

static __device__ void take_seq(const struct prepare &p, const uint8_t *block, uint32_t i)
{
    const struct cuda_seq q = ((const struct cuda_seq *)(block + p.layout.seq))[i];
    if (threadIdx.x == 0) {
        p.seq[i] = q;
        p.sampled[i] = ((const struct cuda_seq *)(block + p.layout.sampled))[i];
    }
    if (!q.n_rows) return;
    const uint64_t at = (uint64_t)i * p.page_stride;
    for (uint32_t g = 0; g < p.n_groups; g++) {
        const uint32_t n = pages_of(p, g, q);
        const uint32_t *from = (const uint32_t *)(block + p.layout.pages) + at + p.page_offset[g];
        for (uint32_t j = threadIdx.x; j < n; j += THREADS) p.pages[at + p.page_offset[g] + j] = from[j];
    }
}

static __global__ void __launch_bounds__(THREADS) prepare_kernel(const __grid_constant__ struct prepare p, uint32_t seqs)
{
    const uint32_t serial = *(volatile uint32_t *)p.serial + 1;
    const uint8_t *block = p.ring + serial % CUDA_RING * p.layout.bytes;
    take_row(p, block, blockIdx.x);
    if (blockIdx.x < seqs) take_seq(p, block, blockIdx.x);
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence();
    if (atomicAdd(p.ticket, 1) != gridDim.x - 1) return;
    *p.ticket = 0;
    *p.serial = serial;
}

wk_status cuda_prepare(const struct prepare *p, uint32_t rows, uint32_t seqs, void *stream, const struct wk_err *err)
{
    return cuda_launch("prepare", prepare_kernel, dim3(rows), dim3(THREADS), 0, false, stream, err, *p, seqs);
}

static __global__ void mark_kernel(const uint32_t *serial, uint32_t *mark)
{
    *(volatile uint32_t *)mark = *serial;
    __threadfence_system();
}

wk_status cuda_mark(const uint32_t *serial, uint32_t *mark, void *stream, const struct wk_err *err)
{
    return cuda_launch("mark", mark_kernel, dim3(1), dim3(1), 0, false, stream, err, serial, mark);
}
