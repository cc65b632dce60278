/* prepare.cu: a run's inputs from pinned memory to their fixed places. One block a row; block i also takes sequence i
 * and its page tables.
 *
 * A graph cannot be given the place of its inputs, so the device counts runs: the block of run n lies at n % CUDA_RING.
 * The last block to have read the count moves it on; the next run begins after this one has ended, so nobody reads it
 * meanwhile. No copy engine has to take turns with the kernels between one graph and the next.
 *
 * Nothing can start before this kernel has ended, so it makes one journey over the bus: every word that may be wanted
 * is asked for at once, the page tables' first entries before anybody knows how many there are. Meanwhile a generated
 * row's rotations are made for the position behind the one that the row had in the run before; if the row is at
 * another, they are made again. All of that may pass while the run before still samples: only what is written, and the
 * ids that were sampled last, wait for its end. */
#include "device/cuda/prepare.h"

#include <worker/cuda/part/launch.cuh>

#include "device/cuda/launch.cuh"

enum { THREADS = 128, LINE = 64, WORDS = LINE / 4 };
static_assert(sizeof(struct prepare_line) == LINE, "a line of pinned memory");

struct prepare_layout prepare_layout(uint32_t rows, uint32_t seqs, uint32_t page_stride)
{
    struct prepare_layout l;
    l.pages = (uint64_t)(rows > seqs ? rows : seqs) * LINE;
    l.table = (page_stride + LINE / 4 - 1) / (LINE / 4) * (LINE / 4);
    l.bytes = (l.pages + (uint64_t)seqs * l.table * 4 + 255) & ~255ull;
    return l;
}

/* The host writes a block while the device runs: nothing of it may come out of a cache. */
static __device__ __forceinline__ uint32_t from_host(const void *p) { return *(const volatile uint32_t *)p; }

/* By one thread. A finished slot has no id to go on with; what is computed for it is read by nobody. */
static __device__ __forceinline__ void put_row(const struct prepare &p, uint32_t row, const struct prepare_row &r)
{
    const uint32_t type = r.token & PREPARE_SECOND ? 1 : 0, own = r.token & ~PREPARE_SECOND;
    const uint32_t token = own & PREPARE_LAST ? __ldcg(p.last + (own & ~PREPARE_LAST)) : own;
    p.position[row] = r.position;
    p.row_seq[row] = r.seq;
    p.logits_rows[row] = r.logits_row;
#pragma unroll 1
    for (uint32_t i = 0; i < p.n_rows; i++)
        p.row[i].index[row] = p.row[i].by_position * r.position + p.row[i].by_type * type + p.row[i].offset;
    p.token[row] = token < p.n_vocab ? token : 0;
}

/* Called, not inlined: its code is long, and both places that want it run in every step. */
static __device__ __noinline__ float2 rope_pair(double angle, double mscale)
{
    double s, c;
    sincos(angle, &s, &c);
    return make_float2((float)(mscale * c), (float)(mscale * s));
}
/* Called, too: few models have it. */
static __device__ __noinline__ double temperature_at(double temperature, uint32_t lengths)
{
    return 1.0 + temperature * log(1.0 + (double)lengths);
}
static __device__ __forceinline__ float2 rope_at(const struct prepare_rope_table &table, uint32_t i, uint32_t position)
{
    double mscale = table.mscale;
    if (table.temperature_length)
        mscale *= temperature_at(table.temperature, (position + 1) / table.temperature_length);
    return rope_pair((double)position * table.freq[i], mscale);
}

/* ahead: the thread's first value of the first table; made: it is there. */
static __device__ __forceinline__ void put_rope_rows(const struct prepare &p, uint32_t row, uint32_t position,
                                                     float2 ahead, bool made)
{
#pragma unroll 1
    for (uint32_t t = 0; t < p.n_rope_tables; t++, made = false) {
        float2 *y = (float2 *)p.rope_table[t].rows + (uint64_t)row * p.rope_table[t].n;
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < p.rope_table[t].n; i += THREADS, made = false)
            y[i] = made ? ahead : rope_at(p.rope_table[t], i, position);
    }
}

/* early: entry threadIdx.x of the host's table. */
static __device__ __forceinline__ void put_pages(const struct prepare &p, uint32_t row, const uint32_t *table,
                                                 uint32_t end, uint32_t early)
{
    uint32_t first = 0; /* entry of the host's table at which the group's begin */
#pragma unroll 1
    for (uint32_t g = 0; g < p.n_groups; g++) {
        const uint32_t n = prepare_pages(p.ring_pages[g], end);
        uint32_t *to = p.pages + (uint64_t)row * p.page_stride + p.page_offset[g];
#pragma unroll 1
        for (uint32_t j = first - first % THREADS + threadIdx.x; j < first + n; j += THREADS)
            if (j >= first) to[j - first] = j < THREADS ? early : from_host(table + j);
        first += n;
    }
}

/* Every block has read the count when the last one comes here. */
static __device__ __forceinline__ void count_run(const struct prepare &p, uint32_t serial)
{
    if (gridDim.x > 1 && atomicAdd(p.ticket, 1) != gridDim.x - 1) return;
    *p.ticket = 0;
    *p.serial = serial;
}

static __global__ void __launch_bounds__(THREADS)
    prepare_kernel(const __grid_constant__ struct prepare p, uint32_t seqs)
{
    __shared__ union {
        uint32_t word[WORDS];
        struct prepare_line of;
    } in;
    const uint32_t row = blockIdx.x, i = threadIdx.x;
    wk_release();
    const uint32_t next = *(volatile uint32_t *)(p.position + row) + 1, serial = *(volatile uint32_t *)p.serial + 1;
    const bool guess = gridDim.x <= WK_CUDA_FEW && p.n_rope_tables && i < p.rope_table[0].n, with_seq = row < seqs;
    const uint8_t *block = p.ring + serial % CUDA_RING * p.layout.bytes;
    const uint32_t *table = (const uint32_t *)(block + p.layout.pages) + (uint64_t)row * p.layout.table;
    uint32_t word = 0, early = 0;
    if (i < (with_seq ? WORDS : sizeof in.of.row / 4)) word = from_host(block + (uint64_t)row * LINE + i * 4);
    if (with_seq && i < p.page_stride) early = from_host(table + i);
    float2 ahead = make_float2(0, 0);
    if (guess) ahead = rope_at(p.rope_table[0], i, next);
    if (i < WORDS) in.word[i] = word;
    wk_depend();
    __syncthreads();
    put_rope_rows(p, row, in.of.row.position, ahead, guess && in.of.row.position == next);
    if (i == 0) put_row(p, row, in.of.row);
    if (i == 32) count_run(p, serial);
    if (!with_seq) return;
    if (i == 64) p.seq[row] = in.of.seq;
    if (i == 96) p.sampled[row] = in.of.sampled;
    if (i == 97 && row % WK_CUDA_FEW == 0) p.lengths[row / WK_CUDA_FEW] = in.of.lengths;
    if (in.of.seq.n_rows) put_pages(p, row, table, in.of.seq.position + in.of.seq.n_rows, early);
}

wk_status cuda_prepare(const struct prepare *p, uint32_t rows, uint32_t seqs, bool pdl, void *stream,
                       const struct wk_err *err)
{
    return cuda_launch("prepare", prepare_kernel, dim3(rows), dim3(THREADS), 0, pdl, stream, err, *p, seqs);
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
