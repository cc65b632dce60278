/* worker/cuda/kernel/split_k.cuh: products of 17 to 64 rows with few tiles and a long k, on sm_90a: the blocks of a
 * cluster of eight have a K slice each.
 *
 * Such a launch is nothing but beginning and end, and each instruction there counts (kernel/resident.cuh): so there is
 * no ring and there are no roles. A block has its K slice of four tiles, whose weights it asks for at once, before the
 * wait for the launch before, and behind that all rows' activations of the K slice: those that come as panels by a copy
 * a K step, else by copies of four bytes, which put every pair of values straight where wgmma wants it. Two warpgroups
 * multiply all columns, one has the first accumulator, the other the second: so each makes half of the weights only.
 * They exchange halves of their sums, and each sends what it has then to the block that finishes the output, which adds
 * the eight K slices.
 *
 * Order of arithmetic: part/weights.cuh. */
#ifndef WORKER_CUDA_KERNEL_SPLIT_K_CUH
#define WORKER_CUDA_KERNEL_SPLIT_K_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/cluster.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/weights.cuh>
#include <worker/cuda/part/wgmma.cuh>

enum {
    WK_SPLIT_K_TILES = 4, /* of a block: a warpgroup's */
    WK_SPLIT_K_WARPS = 8,
    WK_SPLIT_K_THREADS = 32 * WK_SPLIT_K_WARPS,
    WK_SPLIT_K_ROUNDS = 4, /* most K steps of a K slice */
    WK_SPLIT_K_BARS = WK_SPLIT_K_TILES + WK_SPLIT_K_ROUNDS + 1
};

/* What split_k is given. Shared memory, offsets in bytes from its start, which is a multiple of 1024: at 0 the
 * activations of the K slice's K steps; behind them weights, sums of all K slices, sums of accumulators on their way,
 * barriers.
 */
struct wk_split_k_args {
    wk_product_args p;   /* one segment */
    uint32_t weights_at; /* [WK_SPLIT_K_TILES] */
    uint32_t tile_bytes; /* all of a K slice's K steps of a tile */
    uint32_t sums_at, bars_at;
    uint32_t way_at; /* sums of one warpgroup's accumulator on their way to the other one */
};

/* The warp's tile: all K steps of the K slice. */
__device__ __forceinline__ void wk_split_k_ask(const unsigned char *from, uint32_t to, uint32_t bar, uint32_t bytes,
                                               uint32_t rounds)
{
    if (wk_elected()) {
        const uint64_t once = wk_fetch_once();
        wk_bar_init(bar, 1);
        wk_bar_init_done();
        wk_bar_expect(bar, rounds * bytes);
#pragma unroll 1
        for (; rounds; rounds--, to += bytes, from += WK_K_SLICES * bytes) wk_fetch(to, from, bytes, bar, once);
    }
    __syncwarp();
}

/* Activations that come as rows, those of the K slice, a K step after the other: a warp has each eighth row. 64 values
 * of a row are 128 bytes in a panel of wgmma's swizzled form, where the p-th pairs of the four lanes that share a run
 * of 32 stand side by side. A row that is not there is another one again: nobody reads what becomes of it. */
template <int NT, class F> struct wk_split_k_rows {
    uint64_t from, column, next;
    uint32_t to, last, panels;
    __device__ __forceinline__ wk_split_k_rows() {}
    __device__ __forceinline__ wk_split_k_rows(const wk_product_args &p, uint32_t x, uint32_t k_slice, uint32_t warp,
                                               uint32_t lane)
    {
        const uint32_t pair = F::group == 32 ? lane % 4 : lane / 8 % 2 * 2 + lane % 2,
                       t = F::group == 32 ? lane / 4 % 4 : lane / 2 % 4;
        from = reinterpret_cast<uint64_t>(static_cast<const __half *>(p.in.x) + (uint64_t)warp * p.k32 +
                                          (k_slice << p.k_step_shift)) +
               lane * 4;
        column = p.k32 * 16;
        next = (uint64_t)(2 * WK_K_SLICES) << p.k_step_shift;
        to = x + warp * 128 + ((lane / 16 * 4 + pair) ^ warp) * 16 + t * 4;
        last = (p.rows - 1 - warp) / 8;
        panels = 1u << (p.k_step_shift - 6);
        asm volatile("" : "+l"(from), "+l"(column), "+l"(next), "+r"(to), "+r"(last), "+r"(panels));
    }
    __device__ __forceinline__ void bring(uint32_t rounds, uint32_t bar)
    {
#pragma unroll 1
        for (; rounds; rounds--, bar += 8) {
            uint64_t at = from;
            uint32_t place = to;
#pragma unroll 1
            for (uint32_t n = 0; n < NT; n++, place += 1024) {
#pragma unroll
                for (uint32_t j = 0; j < 4; j++)
                    if (j < panels)
                        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place + j * NT * 1024),
                                     "l"(at + j * 128)
                                     : "memory");
                if (n < last) at += column;
            }
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
            from += next;
            to += panels * NT * 1024;
        }
    }
};

/* Those that come as panels: K step `round` of the K slice, by one thread, all places. */
template <int NT>
__device__ __forceinline__ void wk_split_k_panels(const wk_product_args &p, uint32_t x, uint32_t k_slice,
                                                  uint32_t round, uint32_t bar)
{
    const uint32_t bytes = (NT * 1024) << (p.k_step_shift - 6);
    wk_bar_expect(bar, bytes);
    wk_fetch(x + round * bytes,
             static_cast<const unsigned char *>(p.in.x) + (uint64_t)(k_slice + round * WK_K_SLICES) * bytes, bytes,
             bar);
}

/* 64 values of a unit, the half-th: what accumulator `ACCUMULATOR` multiplies of them. */
template <class T, int ACCUMULATOR, bool WIDE_RANGE>
__device__ __forceinline__ void wk_split_k_make(const typename T::quants &q, const typename T::scales &s,
                                                uint32_t place, uint32_t half, uint32_t (&to)[2][4], uint32_t zero)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t f[1][2][4];
        wk_f16_weights<T, WIDE_RANGE>(q, s, place, 2 * half + h, f);
#pragma unroll
        for (int j = 0; j < 4; j++) wk_wgmma_replace<wk_is_half<T>()>(to[h][j], f[0][ACCUMULATOR][j], zero);
    }
}

/* Accumulator `ACCUMULATOR` of the warp's tile and the K slice, all columns; weights, x: of the K slice. */
template <class T, int NT, int ACCUMULATOR>
__device__ __forceinline__ void wk_split_k_sums(float (&c)[NT][4], const wk_product_args &p,
                                                const unsigned char *weights, uint32_t x, uint32_t weights_bar,
                                                uint32_t x_bar, uint32_t rounds, uint32_t lane)
{
    constexpr uint32_t halves = T::unit / 64, pieces = T::super * halves > 1
                                                           ? T::super * halves
                                                           : 2; /* of 64 values: of a unit, of the loop */
    const uint32_t zero = p.k32 % 32;
    uint32_t n = rounds << (p.k_step_shift - 6);
    typename T::scales s;
    typename T::quants q;
    uint32_t b[2][2][4] = {}, ahead = pieces - 1;
    auto load = [&](uint32_t i) {
        const uint32_t place = T::super > 1 ? i / halves : 0;
        T::load(s, weights, place, lane);
        T::load(q, weights, place, lane);
    };
    auto make = [&](uint32_t i, uint32_t(&to)[2][4]) {
        const uint32_t place = T::super > 1 ? i / halves : 0;
        if (wk_wide_range<T>(s))
            wk_split_k_make<T, ACCUMULATOR, true>(q, s, place, i % halves, to, zero);
        else
            wk_split_k_make<T, ACCUMULATOR, false>(q, s, place, i % halves, to, zero);
        wk_wgmma_hold(to);
    };
#pragma unroll
    for (int i = 0; i < 4 * NT; i++) c[i / 4][i % 4] = 0.0f;
    if (n) {
        wk_stage_wait(weights_bar, 0);
        load(0);
        make(0, b[0]);
    }
#pragma unroll 1
    while (n) {
        wk_stage_wait(x_bar + min(ahead >> (p.k_step_shift - 6), rounds - 1) * 8, 0);
        wk_publish();
        ahead += pieces;
#pragma unroll
        for (uint32_t i = 0; i < pieces; i++) {
            const uint64_t at = wk_wgmma_swizzled(x);
            wk_wgmma_begin();
            wk_wgmma<8 * NT>::add(c, b[i % 2][0], at + 2 * ACCUMULATOR);
            wk_wgmma<8 * NT>::add(c, b[i % 2][1], at + 2 * ACCUMULATOR + 4);
            wk_wgmma_commit();
            n--;
            if ((T::super == 1 || i + 1 == pieces) && n == 0) break;
            x += NT * 1024;
            if ((i + 1) % halves == 0) {
                const uint32_t unit = T::super > 1 ? (i + 1) / halves : 1;
                weights += T::offset(unit) - T::offset(unit - 1);
                load((i + 1) % pieces);
            }
            wk_wgmma_wait<1>(); /* the products before these are over */
            make((i + 1) % pieces, b[(i + 1) % 2]);
        }
    }
    wk_wgmma_wait<0>();
}

/* Of the sums of the accumulator half of the column groups go to the warp that has the other accumulator of the tile;
 * behind a barrier of the two, with its own of the rest, a K slice's, each block gets what it finishes. exchange: of
 * the tile, at the lane's place. */
template <int NT, int ACCUMULATOR>
__device__ __forceinline__ void wk_split_k_leave(const float (&c)[NT][4], unsigned char *exchange)
{
    constexpr uint32_t owned = NT / 2;
#pragma unroll
    for (uint32_t n = 0; n < owned; n++) {
        const float *const other = c[(1 - ACCUMULATOR) * owned + n];
        *reinterpret_cast<float4 *>(exchange + (ACCUMULATOR * owned + n) * WK_CELL) =
            make_float4(other[0], other[1], other[2], other[3]);
    }
}
template <int NT, int ACCUMULATOR>
__device__ __forceinline__ void wk_split_k_send(const float (&c)[NT][4], const unsigned char *exchange, uint32_t to,
                                                uint32_t ready, uint32_t tile)
{
    constexpr uint32_t owned = NT / 2;
#pragma unroll
    for (uint32_t n = 0; n < owned; n++) {
        const float *const own = c[ACCUMULATOR * owned + n];
        const float4 v = *reinterpret_cast<const float4 *>(exchange + ((1 - ACCUMULATOR) * owned + n) * WK_CELL);
        const float sum[4] = { __fadd_rn(own[0], v.x), __fadd_rn(own[1], v.y), __fadd_rn(own[2], v.z),
                               __fadd_rn(own[3], v.w) };
        const uint32_t cell = (ACCUMULATOR * owned + n) * WK_SPLIT_K_TILES + tile;
        wk_cluster_send(to + cell % owned * WK_K_SLICES * WK_CELL, ready, cell / owned, sum);
    }
}

template <int NT, class F>
__global__ void __launch_bounds__(WK_SPLIT_K_THREADS, 1) wk_product_split_k(const __grid_constant__ wk_split_k_args a)
{
    constexpr uint32_t owned = NT / 2, outputs = NT / 4; /* cells that a block finishes, outputs of a lane */
    extern __shared__ uint4 wk_shared[];
    const wk_product_args &p = a.p;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(wk_shared), base = (start + 1023u) & ~1023u,
                   lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared) + (base - start);
    const uint32_t rank = blockIdx.x % WK_K_SLICES, first = blockIdx.x / WK_K_SLICES * WK_SPLIT_K_TILES,
                   mine = warp % WK_SPLIT_K_TILES, group = warp / WK_SPLIT_K_TILES;
    const uint32_t k_slice = wk_leaf_k_slice(rank),
                   rounds = k_slice < p.k_steps ? (p.k_steps - k_slice + WK_K_SLICES - 1) / WK_K_SLICES : 0;
    const uint32_t weights = a.weights_at + mine * a.tile_bytes, bars = base + a.bars_at, weights_bar = bars + mine * 8,
                   x_bars = bars + WK_SPLIT_K_TILES * 8, ready = x_bars + WK_SPLIT_K_ROUNDS * 8;
    const wk_segment_args &s = p.seg[0];
    const bool panels = p.in.kind == WK_CUDA_IN_PANELS;
    if (group == 0) {
        wk_split_k_ask(s.tiles + (uint64_t)min(first + mine, s.n_tiles - 1) * s.tile_stride + k_slice * s.k_step_bytes,
                       base + weights, weights_bar, s.k_step_bytes, rounds);
    } else if (lane == 0) {
        wk_bar_init(x_bars + mine * 8, panels ? 1 : 32 * WK_SPLIT_K_WARPS);
        if (mine == 0) wk_bar_init(ready, 1);
        wk_bar_init_done();
        if (mine == 0) wk_bar_expect(ready, owned * WK_K_SLICES * WK_CELL);
    }
    wk_release();
    wk_place place[outputs];
    wk_output_at at[outputs];
    uint32_t from[outputs];
#pragma unroll
    for (uint32_t o = 0; o < outputs; o++) {
        const uint32_t i = warp * outputs + o, cell = rank * owned + i / 4, tile = first + cell % WK_SPLIT_K_TILES,
                       row = (cell / WK_SPLIT_K_TILES * 4 + i % 4) * 2 + lane / 16;
        at[o] = { 0, tile, lane % 16, row, tile < s.n_tiles && row < p.rows };
        place[o] = wk_place(p, at[o]);
        from[o] = a.sums_at + i / 4 * WK_K_SLICES * WK_CELL + wk_in_cell(lane % 8, i % 4) +
                  (lane / 8 % 2 * 2 + lane / 16) * 4;
        asm volatile("" : "+r"(from[o]));
    }
    wk_split_k_rows<NT, F> rows;
    if (!panels) rows = wk_split_k_rows<NT, F>(p, base, k_slice, warp, lane);
    __syncthreads();
    wk_cluster_arrive();
    wk_depend();
    if (panels && group == 1 && mine < rounds && lane == 0)
        wk_split_k_panels<NT>(p, base, k_slice, mine, x_bars + mine * 8);
    float other[outputs];
#pragma unroll
    for (uint32_t o = 0; o < outputs; o++) other[o] = place[o].ahead();
    if (!panels) rows.bring(rounds, x_bars);
    float c[NT][4];
    unsigned char *const exchange = shared + a.way_at + mine * NT * WK_CELL + lane * 16;
    const uint32_t to = base + a.sums_at + rank * WK_CELL + wk_in_cell(lane / 4, lane % 4);
    if (group == 0) {
        wk_split_k_sums<F, NT, 0>(c, p, shared + weights, base, weights_bar, x_bars, rounds, lane);
        wk_split_k_leave<NT, 0>(c, exchange);
    } else {
        wk_split_k_sums<F, NT, 1>(c, p, shared + weights, base, weights_bar, x_bars, rounds, lane);
        wk_split_k_leave<NT, 1>(c, exchange);
    }
    wk_cluster_wait();
    asm volatile("bar.sync %0, 64;" ::"r"(1 + mine)
                 : "memory"); /* one instruction for both: else synccheck takes them for diverged */
    if (group == 0)
        wk_split_k_send<NT, 0>(c, exchange, to, ready, mine);
    else
        wk_split_k_send<NT, 1>(c, exchange, to, ready, mine);
    wk_stage_wait(ready, 0);
#pragma unroll
    for (uint32_t o = 0; o < outputs; o++) {
        float sum[1];
        wk_tree_sum(sum, shared + from[o], 0, WK_K_SLICES, WK_CELL);
        place[o].put(p, at[o], other[o], sum[0], 0.0f);
    }
}

#endif
