/* worker/cuda/kernel/resident_cluster.cuh: products of 2 to 16 rows with few tiles and a long k, on 9.0 and later: a
 * cluster of four blocks has a tile, two K slices each.
 *
 * An accumulator goes through its K slice K step after K step, and making a K step's weights takes one warp four times
 * as long as multiplying them. So each accumulator has two warps, which take its K steps by turns: one makes the
 * weights of a K step, for its accumulator alone, while the other multiplies, and they hand each other the sums in
 * shared memory. Blocks are small enough to stand beside the launch before, with their weights. All of a block's
 * weights are asked for before the wait for that launch, all of its activations behind it. Each K slice's sums go to
 * the first block of the cluster, which finishes the tile.
 *
 * Order of arithmetic: part/weights.cuh. */
#ifndef WORKER_CUDA_KERNEL_RESIDENT_CLUSTER_CUH
#define WORKER_CUDA_KERNEL_RESIDENT_CLUSTER_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/cluster.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/mma.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/weights.cuh>

enum {
    WK_RESIDENT_CLUSTER_BLOCKS = 4,                                          /* of a tile */
    WK_RESIDENT_CLUSTER_K_SLICES = WK_K_SLICES / WK_RESIDENT_CLUSTER_BLOCKS, /* of a block */
    WK_RESIDENT_CLUSTER_PARTS = 2,                                           /* warps of an accumulator */
    WK_RESIDENT_CLUSTER_WARPS = WK_RESIDENT_CLUSTER_K_SLICES * 2 * WK_RESIDENT_CLUSTER_PARTS,
    WK_RESIDENT_CLUSTER_ROUNDS = 4, /* most K steps of a K slice */
    WK_RESIDENT_CLUSTER_RUNS = 8,   /* most runs of 32 values in a K step */
    WK_RESIDENT_CLUSTER_BARS = 2 * WK_RESIDENT_CLUSTER_K_SLICES * WK_RESIDENT_CLUSTER_PARTS + 1
};

/* What resident_cluster is given. Shared memory, offsets in bytes from its start: at 0 the activations of the block's
 * K steps, [k_steps][K slices]; behind them weights, sums of all K slices, sums on their way, barriers. */
struct wk_resident_cluster_args {
    wk_product_args p;       /* one segment */
    uint32_t k_step_bytes;   /* weights of a K step of the tile */
    uint32_t k_step_x_bytes; /* activations of a step: all columns */
    uint32_t weights_at;     /* [k_steps][K slices of the block] */
    uint32_t sums_at, bars_at;
    uint32_t way_at; /* sums of an accumulator on their way from one warp to the other one that has the K slice */
};

/* All weights of a warp's K steps, every second one of the K slice from `part` on: `n` of them, places and K steps
 * `apart` from each other. */
__device__ __forceinline__ void wk_resident_cluster_ask(const wk_resident_cluster_args &a, const unsigned char *from,
                                                        uint32_t to, uint32_t n, uint32_t bar)
{
    if (wk_elected()) {
        const uint32_t bytes = a.p.seg[0].k_step_bytes;
        const uint64_t once = wk_fetch_once();
        wk_bar_init(bar, 1);
        wk_bar_init_done();
        wk_bar_expect(bar, n * bytes);
#pragma unroll 1
        for (; n; n--, to += WK_RESIDENT_CLUSTER_PARTS * WK_RESIDENT_CLUSTER_K_SLICES * a.k_step_bytes,
                  from += WK_RESIDENT_CLUSTER_PARTS * WK_K_SLICES * bytes)
            wk_fetch(to, from, bytes, bar, once);
    }
}

/* Their activations, as rows or by runs, each second run of 32 values: the other warp that has these K steps, of the
 * other accumulator, brings the rest. A column that is not there is the last one again. */
template <int NT, class F> struct wk_resident_cluster_rows {
    uint64_t from[NT];
    uint32_t to, k_step, apart; /* apart: bytes from run to run */
    __device__ __forceinline__ wk_resident_cluster_rows(const wk_resident_cluster_args &a, uint32_t x, uint32_t first,
                                                        uint32_t accumulator, uint32_t lane)
    {
        const wk_product_args &p = a.p;
        const bool by_runs = p.in.kind == WK_CUDA_IN_RUNS;
        k_step = 1u << p.k_step_shift;
        apart = by_runs ? 2048 : 64;
        to = x + accumulator * NT * 512 + wk_run_place(F::group, lane);
        uint32_t all = to ^ k_step ^ apart;
#pragma unroll
        for (uint32_t n = 0; n < NT; n++) {
            from[n] = reinterpret_cast<uint64_t>(p.in.x) + (first * k_step / 32 + accumulator) * apart +
                      (by_runs ? n * 512 + lane * 16 : min(n * 8 + lane / 4, p.rows - 1) * p.k32 * 2 + lane % 4 * 16);
            all ^= (uint32_t)from[n] ^ (uint32_t)(from[n] >> 32);
        }
        wk_at_hand(all);
    }
    __device__ __forceinline__ void bring(const wk_resident_cluster_args &a, uint32_t n, uint32_t bar) const
    {
        uint32_t at = 0, place = to;
#pragma unroll 1
        for (; n; n--, at += WK_RESIDENT_CLUSTER_PARTS * WK_K_SLICES * k_step / 32 * apart,
                  place += WK_RESIDENT_CLUSTER_PARTS * WK_RESIDENT_CLUSTER_K_SLICES * a.k_step_x_bytes)
#pragma unroll
            for (uint32_t j = 0; j < WK_RESIDENT_CLUSTER_RUNS * NT; j++)
                if (j / NT % 2 == 0 && j / NT * 32 < k_step)
                    wk_copy16(place + j * 512, reinterpret_cast<const void *>(from[j % NT] + at + j / NT * apart));
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
    }
};

/* A K step's weights for one accumulator: of each run what its product wants. */
template <class T, int ACCUMULATOR, bool WIDE_RANGE>
__device__ __forceinline__ void wk_resident_cluster_unit(uint32_t (*to)[4], const typename T::scales &s,
                                                         const typename T::quants &q, uint32_t place)
{
#pragma unroll
    for (uint32_t b = 0; b < T::unit / 32; b++) {
        uint32_t both[1][2][4];
        wk_f16_weights<T, WIDE_RANGE>(q, s, place, b, both);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) to[b][j] = both[0][ACCUMULATOR][j];
    }
}
template <class T, int ACCUMULATOR>
__device__ __forceinline__ void wk_resident_cluster_make(const wk_product_args &p,
                                                         uint32_t (&to)[WK_RESIDENT_CLUSTER_RUNS][4],
                                                         const unsigned char *w, uint32_t lane)
{
    constexpr uint32_t runs = T::unit / 32, units = T::super > 1 ? T::super : WK_RESIDENT_CLUSTER_RUNS / runs;
#pragma unroll
    for (uint32_t u = 0; u < units; u++) {
        if (T::super == 1 && u >= p.k_step_units) break;
        const uint32_t place = T::super > 1 ? u : 0;
        typename T::scales s;
        typename T::quants q;
        T::load(s, w + T::offset(u), place, lane);
        T::load(q, w + T::offset(u), place, lane);
        if (wk_wide_range<T>(s))
            wk_resident_cluster_unit<T, ACCUMULATOR, true>(to + u * runs, s, q, place);
        else
            wk_resident_cluster_unit<T, ACCUMULATOR, false>(to + u * runs, s, q, place);
    }
}

/* What a warp works with. */
struct wk_resident_cluster_warp {
    uint32_t own, part, rounds; /* K slice of the block's; its first K step of the K slice; K steps of the K slice */
    uint32_t weights_bar, x_bar;
    unsigned char *cell, *other; /* of the accumulator's sums on their way, of the other accumulator's */
};

/* The warp's K steps of accumulator ACCUMULATOR. True: it is accumulator 0's last, and c the K slice's sums. */
template <class T, int NT, int ACCUMULATOR>
__device__ __forceinline__ bool wk_resident_cluster_accumulate(float (&c)[NT][4], const wk_resident_cluster_args &a,
                                                               unsigned char *shared, const wk_resident_cluster_warp &m,
                                                               uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t turn = 1 + (m.own * 2 + ACCUMULATOR) * WK_RESIDENT_CLUSTER_PARTS,
                   done = 1 + WK_RESIDENT_CLUSTER_K_SLICES * 2 * WK_RESIDENT_CLUSTER_PARTS +
                          m.own; /* barriers: of the sums' way to each of the two, of the K slice's accumulators */
    bool last = false, met = false;
#pragma unroll 1
    for (uint32_t r = m.part; r < m.rounds; r += WK_RESIDENT_CLUSTER_PARTS) {
        const uint32_t at = r * WK_RESIDENT_CLUSTER_K_SLICES + m.own;
        uint32_t v[WK_RESIDENT_CLUSTER_RUNS][4];
        wk_resident_cluster_make<T, ACCUMULATOR>(p, v, shared + a.weights_at + at * a.k_step_bytes, lane);
        if (!met) wk_stage_wait(m.x_bar, 0);
        met = true;
        const wk_run_words<T, NT> x(shared + at * a.k_step_x_bytes, lane);
        if (r) asm volatile("bar.sync %0, 64;" ::"r"(turn + m.part) : "memory");
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const float4 before =
                r ? *reinterpret_cast<const float4 *>(m.cell + n * WK_CELL) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            c[n][0] = before.x, c[n][1] = before.y, c[n][2] = before.z, c[n][3] = before.w;
        }
#pragma unroll
        for (uint32_t b = 0; b < WK_RESIDENT_CLUSTER_RUNS; b++) {
            if (T::super == 1 && b >= p.k_step_units * (T::unit / 32)) break;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const uint4 y = x.read(b, n);
                wk_mma(c[n], v[b], ACCUMULATOR ? y.z : y.x, ACCUMULATOR ? y.w : y.y);
            }
        }
        last = r + 1 == m.rounds;
        if (ACCUMULATOR == 0 && last) break;
#pragma unroll
        for (int n = 0; n < NT; n++)
            *reinterpret_cast<float4 *>(m.cell + n * WK_CELL) = make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
        asm volatile("bar.arrive %0, 64;" ::"r"(last ? done : turn + (m.part ^ 1u)) : "memory");
    }
    if (ACCUMULATOR || !last) return false;
    asm volatile("bar.sync %0, 64;" ::"r"(done) : "memory");
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const float4 o = *reinterpret_cast<const float4 *>(m.other + n * WK_CELL);
        c[n][0] = __fadd_rn(c[n][0], o.x), c[n][1] = __fadd_rn(c[n][1], o.y), c[n][2] = __fadd_rn(c[n][2], o.z),
        c[n][3] = __fadd_rn(c[n][3], o.w);
    }
    return true;
}

template <int NT, class F>
__global__ void __launch_bounds__(32 * WK_RESIDENT_CLUSTER_WARPS, NT == 1 ? 4 : 3)
    wk_product_resident_cluster(const __grid_constant__ wk_resident_cluster_args a)
{
    extern __shared__ uint4 wk_shared[];
    const wk_product_args &p = a.p;
    const wk_segment_args &s = p.seg[0];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(wk_shared), lane = threadIdx.x & 31u,
                   warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const uint32_t tile = blockIdx.x / WK_RESIDENT_CLUSTER_BLOCKS, rank = blockIdx.x % WK_RESIDENT_CLUSTER_BLOCKS,
                   accumulator = warp / WK_RESIDENT_CLUSTER_K_SLICES % 2;
    wk_resident_cluster_warp m;
    m.own = warp % WK_RESIDENT_CLUSTER_K_SLICES;
    m.part = warp / (2 * WK_RESIDENT_CLUSTER_K_SLICES);
    const uint32_t leaf = rank * WK_RESIDENT_CLUSTER_K_SLICES + m.own, k_slice = wk_leaf_k_slice(leaf),
                   bars = base + a.bars_at, ready = bars, first = k_slice + m.part * WK_K_SLICES,
                   at = m.part * WK_RESIDENT_CLUSTER_K_SLICES + m.own;
    m.rounds = (p.k_steps - k_slice + WK_K_SLICES - 1) / WK_K_SLICES;
    m.weights_bar = bars + 8 + at * 16;
    m.x_bar = m.weights_bar + 8;
    m.cell = shared + a.way_at + (m.own * 2 + accumulator) * NT * WK_CELL + lane * 16;
    m.other = m.cell + NT * WK_CELL;
    const uint32_t n = m.rounds > m.part
                           ? (m.rounds - m.part + WK_RESIDENT_CLUSTER_PARTS - 1) / WK_RESIDENT_CLUSTER_PARTS
                           : 0; /* K steps of the warp's */
    if (accumulator == 0) {
        if (n)
            wk_resident_cluster_ask(a, s.tiles + (uint64_t)tile * s.tile_stride + first * s.k_step_bytes,
                                    base + a.weights_at + at * a.k_step_bytes, n, m.weights_bar);
    } else if (wk_elected()) {
        wk_bar_init(m.x_bar, 64);
        if (at == 0 && rank == 0) wk_bar_init(ready, 1);
        wk_bar_init_done();
        if (at == 0 && rank == 0) wk_bar_expect(ready, NT * WK_K_SLICES * WK_CELL);
    }
    __syncthreads();
    wk_cluster_arrive();
    const uint32_t row = warp * 2 + lane / 16;
    const wk_output_at o = { 0, tile, lane % 16, row, warp < 4 * NT && row < p.rows };
    const wk_place place(p, o);
    const wk_resident_cluster_rows<NT, F> rows(a, base + at * a.k_step_x_bytes, first, accumulator, lane);
    if (n) wk_stage_wait(m.weights_bar, 0);
    wk_release(); /* not before (kernel/resident.cuh) */
    wk_depend();
    if (n) rows.bring(a, n, m.x_bar);
    const float other = rank == 0 ? place.ahead() : 0.0f;
    wk_cluster_wait();
    float c[NT][4];
    if (accumulator ? wk_resident_cluster_accumulate<F, NT, 1>(c, a, shared, m, lane)
                    : wk_resident_cluster_accumulate<F, NT, 0>(c, a, shared, m, lane)) {
#pragma unroll
        for (int n = 0; n < NT; n++)
            wk_cluster_send(base + a.sums_at + (n * WK_K_SLICES + leaf) * WK_CELL + wk_in_cell(lane / 4, lane % 4),
                            ready, 0, c[n]);
    }
    if (rank || warp >= 4 * NT) return;
    wk_stage_wait(ready, 0);
    float sum[1];
    wk_tree_sum(sum,
                shared + a.sums_at + warp / 4 * WK_K_SLICES * WK_CELL + wk_in_cell(lane % 8, warp % 4) +
                    (lane / 8 % 2 * 2 + lane / 16) * 4,
                0, WK_K_SLICES, WK_CELL);
    place.put(p, o, other, sum[0], 0.0f);
}

#endif
