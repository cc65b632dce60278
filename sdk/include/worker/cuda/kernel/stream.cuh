/* worker/cuda/kernel/stream.cuh: products of 2 to 16 rows on 9.0 and later, and of up to 32 with small matrices.
 *
 * A block takes items of up to 8 tiles (with glu four pairs), a tile a warp, and multiplies by mma.sync: with so few
 * columns wgmma, whose four warps meet at every instruction, costs more than the weights. Each of these warps streams
 * its own tile through a ring of its own: as soon as it has read a stage it asks for the one that comes into its place,
 * so no warp asks for all (a copy costs some hundred clocks beside warps that multiply). Four warps bring the
 * activations, once, all of the block's share of k; then they finish outputs while the others are at the next item. A
 * launch is mostly beginning and end: each warp makes only the barriers that it needs, and asks before it meets any
 * other.
 *
 * Order of arithmetic and clusters: as kernel/stream_wgmma.cuh. */
#ifndef WORKER_CUDA_KERNEL_STREAM_CUH
#define WORKER_CUDA_KERNEL_STREAM_CUH

#include <worker/cuda/part/accumulate.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/cluster.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/items.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/mma.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>

enum {
    WK_STREAM_TILES = 8,    /* most tiles of an item, and warps that multiply */
    WK_STREAM_STREAMS = 4,  /* warps that bring activations and finish outputs */
    WK_STREAM_TOGETHER = 2, /* blocks a multiprocessor */
    WK_STREAM_DEPTH = 12,   /* most stages of a ring */
    WK_STREAM_STAGES = 96,  /* most stages of a block's share of an item */
    WK_STREAM_BARS = WK_STREAM_DEPTH * WK_STREAM_TILES + WK_STREAM_STAGES + 4,
    WK_STREAM_THREADS = 32 * (WK_STREAM_TILES + WK_STREAM_STREAMS)
};

struct wk_stream_memory : wk_batch_memory {
    using wk_batch_memory::wk_batch_memory;
    __device__ __forceinline__ uint32_t full(uint32_t warp, uint32_t stage) const
    {
        return bars + (warp * WK_STREAM_DEPTH + stage) * 8;
    }
    __device__ __forceinline__ uint32_t x_full(uint32_t stage) const
    {
        return bars + (WK_STREAM_DEPTH * WK_STREAM_TILES + stage) * 8;
    }
    __device__ __forceinline__ uint32_t ready(uint32_t buffer) const { return x_full(WK_STREAM_STAGES + buffer); }
    __device__ __forceinline__ uint32_t freed(uint32_t buffer) const { return x_full(WK_STREAM_STAGES + 2 + buffer); }
};

/* The stages of a block's share of an item in order: its K slices as the tree has them, their K steps, the K steps'
 * pieces.
 */
struct wk_stream_walk {
    uint32_t leaf, end, k_step, piece;
    __device__ __forceinline__ bool leaves(const wk_batch_args &a) /* to the next leaf that has K steps */
    {
        for (; leaf < end; leaf++) {
            k_step = wk_leaf_k_slice(leaf);
            if (k_step < a.p.k_steps) return true;
        }
        return false;
    }
    __device__ __forceinline__ bool begin(const wk_batch_args &a, uint32_t rank) /* false: the block has none */
    {
        leaf = rank * wk_batch_leaves(a);
        end = leaf + wk_batch_leaves(a);
        piece = 0;
        return leaves(a);
    }
    __device__ __forceinline__ bool next(const wk_batch_args &a) /* false: there are no more */
    {
        if (++piece < a.k_step_stages) return true;
        piece = 0;
        k_step += WK_K_SLICES;
        if (k_step < a.p.k_steps) return true;
        leaf++;
        return leaves(a);
    }
};

/* ---- activations --------------------------------------------------------------------------------------- */

/* All of the block's, once, all asked for at once; a warp a stage. Lane (c, t) = (lane / 4, lane % 4) brings chunk t of
 * a run of 32 values of column c of eight. A column that is not there is the last one again: nobody reads what becomes
 * of it. */
template <int NT, class... F>
__device__ __forceinline__ void wk_stream_bring(const wk_batch_args &a, const wk_stream_memory &m, uint32_t rank,
                                                uint32_t worker, uint32_t warp, uint32_t lane)
{
    const uint32_t group = wk_family_group<F...>(a.p.seg[0].type), runs = a.stage_k / 32,
                   at = m.x + wk_run_place(group, lane);
    const __half *row[NT];
    wk_stream_walk walk;
    bool more = walk.begin(a, rank) && worker < a.p.items;
    wk_depend();
#pragma unroll
    for (uint32_t n = 0; n < NT; n++) {
        const uint32_t c = min(n * 8 + lane / 4, a.p.rows - 1);
        row[n] = static_cast<const __half *>(a.p.in.x) +
                 (uint64_t)(a.p.in.row_index ? __ldg(a.p.in.row_index + c) : c) * a.p.k32 + lane % 4 * 8;
    }
#pragma unroll 1
    for (uint32_t i = 0; more; i++, more = walk.next(a)) {
        if (i % WK_STREAM_STREAMS != warp) continue;
        const uint32_t k0 = (walk.k_step * a.k_step_stages + walk.piece) * a.stage_k, to = at + i * a.x_bytes;
#pragma unroll 4
        for (uint32_t j = 0; j < runs; j++)
#pragma unroll
            for (uint32_t n = 0; n < NT; n++) {
                const bool in = k0 + 32 * j < a.p.k32;
                wk_copy16_part(to + (j * NT + n) * 512, row[n] + (in ? k0 + 32 * j : 0), in ? 16 : 0);
            }
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(m.x_full(i)) : "memory");
    }
}

/* ---- multiplication ------------------------------------------------------------------------------------ */

/* A warp's tile, stage after stage, item after item. */
struct wk_stream_tiles {
    const unsigned char *from;
    wk_stream_walk walk; /* what is asked for next */
    uint32_t item;
    uint32_t tile_bytes, k_step_bytes, piece_bytes; /* tile_bytes: 0 if there is no such tile */
    __device__ __forceinline__ void locate(const wk_batch_args &a, uint32_t i, uint32_t rank, uint32_t warp)
    {
        item = walk.begin(a, rank) ? i : a.p.items;
        if (item >= a.p.items) return;
        const wk_tile_at t = wk_batch_tile_of(a, i, warp);
        const wk_segment_args &s = a.p.seg[t.seg];
        from = s.tiles + (uint64_t)t.tile * s.tile_stride;
        tile_bytes = t.real ? s.tile_bytes : 0;
        k_step_bytes = s.k_step_bytes;
        piece_bytes = s.piece_bytes;
    }
    /* Asks for the next stage, to a place that all lanes have read; what lies past the end of k becomes zeros. */
    __device__ __forceinline__ void ask(const wk_batch_args &a, uint32_t to, uint32_t bar, uint32_t rank, uint32_t warp,
                                        uint32_t lane)
    {
        if (item >= a.p.items) return;
        const uint32_t first = walk.k_step * k_step_bytes + walk.piece * piece_bytes,
                       bytes = first < tile_bytes ? min(piece_bytes, tile_bytes - first) : 0;
        if (bytes < piece_bytes) {
#pragma unroll 1
            for (uint32_t j = bytes + lane * 16; j < piece_bytes; j += 512)
                asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to + j), "r"(0) : "memory");
            wk_publish();
            __syncwarp();
        }
        if (lane == 0) {
            wk_bar_expect(bar, bytes);
            if (bytes) {
                const uint64_t once = wk_fetch_once();
                wk_fetch(to, from + first, bytes, bar, once);
            }
        }
        if (!walk.next(a)) locate(a, item + a.workers, rank, warp);
    }
};

/* A multiplying warp's ring. */
__device__ __forceinline__ void wk_stream_ring_begin(wk_warp_ring &ring, const wk_batch_args &a,
                                                     const wk_stream_memory &m, uint32_t warp)
{
    ring.begin(m.w + warp * a.tile_bytes, m.full(warp, 0), a.depth);
}
__device__ __forceinline__ void wk_stream_ring_next(wk_warp_ring &ring, const wk_batch_args &a,
                                                    const wk_stream_memory &m, uint32_t warp)
{
    ring.next(a.tiles * a.tile_bytes, m.w + warp * a.tile_bytes, m.full(warp, 0), a.depth);
}

/* The sum of the block's K slices of the warp's tile. */
template <class T, int NT>
__device__ __forceinline__ void wk_stream_sums(float (&sum)[NT][4], const wk_batch_args &a, const wk_stream_memory &m,
                                               wk_stream_tiles &tiles, wk_warp_ring &ring, uint32_t rank, uint32_t warp,
                                               uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t leaves = wk_batch_leaves(a);
    unsigned char *const two = m.at + (m.kept - m.base) + warp * WK_CELL,
                         *const four = two + NT * WK_ITEM_TILES * WK_CELL; /* sums of so many K slices wait */
    wk_run_words<T, NT> x(m.at, lane);
    uint32_t x_bar = m.x_full(0);
#pragma unroll 1
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        const uint32_t k_slice = wk_leaf_k_slice(rank * leaves + leaf);
        float c[2][NT][4] = {};
#pragma unroll 1
        for (uint32_t n = k_slice < p.k_steps ? (p.k_steps - k_slice + WK_K_SLICES - 1) / WK_K_SLICES * a.k_step_stages
                                              : 0;
             n; n--) {
            wk_stage_wait(ring.bar, ring.parity);
            wk_stage_wait(x_bar, 0);
            wk_add_stage<T, NT>(c, m.at + (ring.at - m.base), x, a.stage_units, lane);
            __syncwarp();
            tiles.ask(a, ring.at, ring.bar, rank, warp, lane);
            wk_stream_ring_next(ring, a, m, warp);
            x.at += a.x_bytes;
            x_bar += 8;
        }
        wk_k_slice_done<NT>(sum, c, leaf, leaves, two, four);
    }
}

/* ---- sums to outputs ----------------------------------------------------------------------------------- */

/* Cells of an item that the block finishes: the first, and one past the last. */
__device__ __forceinline__ uint2 wk_stream_cells(const wk_batch_args &a, uint32_t rank)
{
    const uint32_t tiles = a.p.glu ? a.tiles / 2 : a.tiles;
    return make_uint2(rank * a.owned, min((rank + 1) * a.owned, tiles * ((a.p.rows + 7) / 8)));
}
/* Tile of a cell of an item, and its columns' first row. */
__device__ __forceinline__ wk_tile_at wk_stream_cell(const wk_batch_args &a, uint32_t item, uint32_t cell,
                                                     uint32_t &row)
{
    const uint32_t tiles = a.p.glu ? a.tiles / 2 : a.tiles;
    for (row = 0; cell >= tiles; row += 8) cell -= tiles;
    return wk_batch_tile_of(a, item, cell);
}
/* A finishing warp gives the sums' place back; all do, each once an item. */
__device__ __forceinline__ void wk_stream_free(const wk_batch_args &a, const wk_stream_memory &m, uint32_t item,
                                               wk_pipeline_state &state, uint32_t lane)
{
    __syncwarp();
    if (item + a.buffers * a.workers < a.p.items) wk_cluster_arrive_warp(m.freed(state.i), a.blocks, lane);
    state.next(a.buffers);
}

/* A finishing warp where the block has one cell of an item: columns 2 warp and 2 warp + 1 of it, a value a lane: with a
 * gate four after the other would take longer than all else. */
__device__ __forceinline__ void wk_stream_finish_one(const wk_batch_args &a, const wk_stream_memory &m, uint32_t rank,
                                                     uint32_t worker, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t stride = (p.glu ? 2 : 1) * WK_CELL;
    const unsigned char *const own =
        m.at + (m.sums - m.base) + wk_in_cell(lane % 8, warp) + (lane / 8 % 2 * 2 + lane / 16) * 4;
    const uint2 cells = wk_stream_cells(a, rank);
    wk_pipeline_state state = { 0, 0 };
#pragma unroll 1
    for (uint32_t item = worker; item < p.items; item += a.workers) {
        uint32_t row;
        const wk_tile_at at = wk_stream_cell(a, item, cells.x, row);
        row += warp * 2 + lane / 16;
        const wk_output_at o = { at.seg, at.tile, lane % 16, row, at.real && cells.x < cells.y && row < p.rows };
        const wk_place to(p, o);
        const float other = to.ahead();
        const unsigned char *const from = own + state.i * a.buffer;
        wk_stage_wait(m.ready(state.i), state.parity);
        if (cells.x < cells.y) {
            float sum[1], up[1] = {};
            wk_tree_sum(sum, from, 0, a.blocks, stride);
            if (p.glu) wk_tree_sum(up, from + WK_CELL, 0, a.blocks, stride);
            to.put(p, o, other, sum[0], up[0]);
        }
        wk_stream_free(a, m, item, state, lane);
    }
}

/* A finishing warp: every fourth of the block's cells; a lane has rows 4 (lane % 4) .. + 3 of column lane / 4. */
__device__ __forceinline__ void wk_stream_finish(const wk_batch_args &a, const wk_stream_memory &m, uint32_t rank,
                                                 uint32_t worker, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t each = p.glu ? 2 : 1, stride = a.owned * each * WK_CELL, t = lane / 8, q = lane % 4;
    const uint2 cells = wk_stream_cells(a, rank);
    const unsigned char *const own = m.at + (m.sums - m.base) + warp * each * WK_CELL + t * 128 +
                                     ((q & 1u) * 4 ^ (2 * t & 4u)) * 16 + q / 2 * 8 + (lane / 4 & 1u) * 4;
    auto place = [&](uint32_t item, uint32_t cell) {
        uint32_t row;
        const wk_tile_at at = wk_stream_cell(a, item, cell, row);
        row += lane / 4;
        return wk_four_at{ at.seg, at.tile, row, at.real && cell < cells.y && row < p.rows };
    };
    wk_pipeline_state state = { 0, 0 };
#pragma unroll 1
    for (uint32_t item = worker; item < p.items; item += a.workers) {
        wk_four_at next = place(item, cells.x + warp);
        wk_four_more next_more = wk_four_ahead(p, next);
        const unsigned char *from = own + state.i * a.buffer;
        wk_stage_wait(m.ready(state.i), state.parity);
#pragma unroll 1
        for (uint32_t cell = cells.x + warp; cell < cells.y; cell += WK_STREAM_STREAMS) {
            const wk_four_at o = next;
            wk_four_more more = next_more;
            float sum[4], up[4] = {};
            wk_tree_sum(sum, from, 2 * t & 2u, a.blocks, stride);
            if (p.glu) wk_tree_sum(up, from + WK_CELL, 2 * t & 2u, a.blocks, stride);
            if (cell + WK_STREAM_STREAMS <
                cells.y) { /* what the next one reads is on the way while this one is stored */
                next = place(item, cell + WK_STREAM_STREAMS);
                next_more = wk_four_ahead(p, next);
            }
            wk_four_output(p, o, more, sum, up);
            from += WK_STREAM_STREAMS * each * WK_CELL;
        }
        wk_stream_free(a, m, item, state, lane);
    }
}

/* A multiplying warp; `own`, `ring`: its first stages have been asked for. */
template <int NT, class... F>
__device__ __forceinline__ void wk_stream_consume(const wk_batch_args &a, const wk_stream_memory &m,
                                                  wk_stream_tiles &own, wk_warp_ring &ring, uint32_t rank,
                                                  uint32_t worker, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t each = p.glu ? 2 : 1, tiles = a.tiles / each, pair = warp >= tiles;
    const uint32_t cells =
        tiles * NT > rank * a.owned ? min(a.owned, tiles * NT - rank * a.owned) : 0; /* that this block finishes */
    wk_pipeline_state state = { 0, 1 };
    uint32_t free = a.buffers; /* that were never in use */
    wk_depend();
    if (a.blocks > 1) wk_cluster_wait();
#pragma unroll 1
    for (uint32_t item = worker; item < p.items; item += a.workers) {
        float c[NT][4];
        wk_for_type<F...>(sizeof...(F) > 1 ? p.seg[wk_batch_tile_of(a, item, warp).seg].type : 0, [&](auto format) {
            wk_stream_sums<decltype(format), NT>(c, a, m, own, ring, rank, warp, lane);
        });
        if (free)
            free--;
        else
            wk_stage_wait(m.freed(state.i), state.parity); /* all have read what was there */
        if (a.blocks > 1 && warp == 0 && lane == 0) wk_bar_expect(m.ready(state.i), cells * each * a.blocks * WK_CELL);
        uint32_t mine = warp - pair * tiles;
        if (NT > 2) asm volatile("" : "+r"(mine)); /* else the places below are kept in registers all the time */
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t i = n * tiles + mine,
                           to = i * a.owned_inverse >> 16; /* of all cells of the item: who finishes it */
            const uint32_t at = state.i * a.buffer + ((rank * a.owned + i - to * a.owned) * each + pair) * WK_CELL +
                                wk_in_cell(lane / 4, lane % 4);
            if (a.blocks > 1)
                wk_cluster_send(m.sums + at, m.ready(state.i), to, c[n]);
            else
                *reinterpret_cast<float4 *>(m.at + (m.sums - m.base) + at) =
                    make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
        }
        __syncwarp();
        if (a.blocks == 1) wk_bar_arrive_warp(m.ready(state.i), lane);
        state.next(a.buffers);
    }
}

/* Of one lane: the barriers of activations and sums. */
__device__ __forceinline__ void wk_stream_begin(const wk_batch_args &a, const wk_stream_memory &m, uint32_t warp)
{
#pragma unroll 1
    for (uint32_t i = warp; i < a.stages; i += WK_STREAM_STREAMS) wk_bar_init(m.x_full(i), 32);
    if (warp < a.buffers) {
        wk_bar_init(m.ready(warp), a.blocks > 1 ? 1 : a.tiles * WK_BAR_WARP);
        wk_bar_init(m.freed(warp), WK_STREAM_STREAMS * a.blocks * WK_BAR_WARP);
    }
    wk_bar_init_done();
}

template <int NT, class... F>
__global__ void __launch_bounds__(WK_STREAM_THREADS, WK_STREAM_TOGETHER)
    wk_product_stream(const __grid_constant__ wk_batch_args a)
{
    extern __shared__ uint4 wk_shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(wk_shared), lane = threadIdx.x & 31u;
    asm volatile(""
                 : "+r"(base),
                   "+r"(lane)); /* else the compiler makes them again, from special registers, for every stage */
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), rank = blockIdx.x & (a.blocks - 1),
                   worker = blockIdx.x >> (31 - __clz(a.blocks));
    const wk_stream_memory m(a, base, static_cast<unsigned char *>(__cvta_shared_to_generic(base)));
    wk_release();
    const bool finishes = warp >= a.tiles;
    wk_warp_ring ring; /* of a warp that multiplies; its own: it asks before it meets any other */
    wk_stream_tiles own;
    if (finishes) {
        wk_touch_args(a.p);
        if (lane == 0) wk_stream_begin(a, m, warp - a.tiles);
    } else {
        ring.parity = 1;
        wk_stream_ring_begin(ring, a, m, warp);
        if (lane == 0) {
#pragma unroll 1
            for (uint32_t i = 0; i < a.depth; i++) wk_bar_init(ring.bar + i * 8, 1);
            wk_bar_init_done();
        }
        own.locate(a, worker, rank, warp);
#pragma unroll 1
        for (uint32_t i = 0; i < a.depth; i++, wk_stream_ring_next(ring, a, m, warp))
            own.ask(a, ring.at, ring.bar, rank, warp, lane);
    }
    __syncthreads();
    if (a.blocks > 1) wk_cluster_arrive();
    if (finishes) {
        wk_stream_bring<NT, F...>(a, m, rank, worker, warp - a.tiles, lane);
        if (a.blocks > 1) wk_cluster_wait();
        if (a.owned == 1)
            wk_stream_finish_one(a, m, rank, worker, warp - a.tiles, lane);
        else
            wk_stream_finish(a, m, rank, worker, warp - a.tiles, lane);
    } else {
        wk_stream_consume<NT, F...>(a, m, own, ring, rank, worker, warp, lane);
    }
}

#endif
