/* worker/cuda/kernel/stream_wgmma.cuh: products of 17 to 64 rows on sm_90a.
 *
 * A block takes items of 8 tiles (128 rows of weights; with glu four pairs). Four of its warps stream: a stage of the
 * ring is a piece of a K step, of the tiles as they lie in memory, by bulk copies, and of the activations, brought
 * into the tensor cores' order on the way. Two warpgroups multiply, a tile a warp: a lane makes f16 weights, scale
 * inside, in the very registers where wgmma wants its A operand (that is how tiles are laid out), 64 values of k at a
 * time, while the 64 before are multiplied.
 *
 * Order of arithmetic: part/weights.cuh. A cluster of 1, 2, 4 or 8 blocks shares an item's K slices, neighbours of the
 * tree to a block; each block adds its own, sends its sum to the block that finishes the output, and that adds them by
 * the rest of the tree. With two buffers for sums an item is finished while the next one is multiplied.
 *
 * More rows than the kernel has columns are groups, each with clusters of its own, which find the weights in L2: 64
 * rows as twice 32 where items are too few for the multiprocessors. */
#ifndef WORKER_CUDA_KERNEL_STREAM_WGMMA_CUH
#define WORKER_CUDA_KERNEL_STREAM_WGMMA_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/cluster.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>
#include <worker/cuda/part/wgmma.cuh>

enum {
    WK_STREAM_WGMMA_STREAMS = 4, /* warps that stream */
    WK_STREAM_WGMMA_THREADS = 32 * (WK_ITEM_TILES + WK_STREAM_WGMMA_STREAMS),
    WK_STREAM_WGMMA_DEPTH = 24, /* most stages */
    WK_STREAM_WGMMA_BARS = 2 * WK_STREAM_WGMMA_DEPTH + 4,
    WK_STREAM_WGMMA_REGISTERS = 192, /* of a lane that multiplies, and of one that streams */
    WK_STREAM_WGMMA_REGISTERS_STREAM = 112,
    WK_STREAM_WGMMA_STAGES = 512 /* most stages of an item */
};

template <int NT> struct wk_stream_wgmma_shape {
    static constexpr uint32_t stage_k = NT == 4 ? 256 : 128,
                              panel = NT * 1024; /* most values of k of a stage; bytes of 64 values of all columns */
    static constexpr uint32_t column_groups = NT / WK_STREAM_WGMMA_STREAMS,
                              runs = stage_k /
                                     32; /* a streaming warp's groups of 8 columns, and runs of 32 values of each */
};

/* ---- tensor cores -------------------------------------------------------------------------------------- */

/* 64 values of k as one group, every other 16 to the same sums. */
template <int NT>
__device__ __forceinline__ void wk_stream_wgmma_multiply(float (&c)[2][NT][4], const uint32_t (&a)[4][4], uint32_t x)
{
    const uint64_t b = wk_wgmma_swizzled(x);
    wk_wgmma_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) wk_wgmma<8 * NT>::add(c[i % 2], a[i], b + 2 * i);
    wk_wgmma_commit();
}

/* ---- clusters ------------------------------------------------------------------------------------------ */

/* ---- the block's work in order ------------------------------------------------------------------------- */

struct wk_stream_wgmma_memory : wk_batch_memory {
    uint32_t first, rows; /* of the block's group */
    __device__ __forceinline__ wk_stream_wgmma_memory(const wk_batch_args &a, uint32_t start, unsigned char *generic,
                                                      uint32_t columns)
        : wk_batch_memory(a, start, generic), first(blockIdx.x / a.blocks % a.groups * columns),
          rows(min(a.p.rows - first, columns))
    {
    }
    __device__ __forceinline__ uint32_t full(uint32_t stage) const { return bars + stage * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t stage) const
    {
        return bars + (WK_STREAM_WGMMA_DEPTH + stage) * 8;
    }
    __device__ __forceinline__ uint32_t ready(uint32_t buffer) const
    {
        return bars + (2 * WK_STREAM_WGMMA_DEPTH + buffer) * 8;
    }
    __device__ __forceinline__ uint32_t freed(uint32_t buffer) const
    {
        return bars + (2 * WK_STREAM_WGMMA_DEPTH + 2 + buffer) * 8;
    }
};

__device__ __forceinline__ wk_tile_at wk_stream_wgmma_tile_of(const wk_product_args &p, uint32_t item, uint32_t i)
{
    wk_tile_at at = { 0, 0, false };
    if (p.glu) {
        at.seg = i / 4;
        at.tile = item * 4 + i % 4;
    } else {
        for (const uint32_t all = item; at.seg + 1 < p.n_seg && all >= p.seg[at.seg].end; at.seg++)
            item = all - p.seg[at.seg].end;
        at.tile = item * WK_ITEM_TILES + i;
    }
    at.real = at.tile < p.seg[at.seg].n_tiles;
    return at;
}

/* Stages of an item. */
__device__ __forceinline__ uint32_t wk_stream_wgmma_stages(const wk_batch_args &a, uint32_t rank)
{
    const uint32_t leaves = WK_K_SLICES / a.blocks;
    uint32_t n = 0;
    for (uint32_t i = 0; i < leaves; i++) {
        const uint32_t k_slice = wk_leaf_k_slice(rank * leaves + i);
        if (k_slice < a.p.k_steps) n += (a.p.k_steps - k_slice + WK_K_SLICES - 1) / WK_K_SLICES;
    }
    return n * a.k_step_stages;
}
/* Which stage of k the i-th of an item is: the block's K slices as the tree has them, their K steps, the K steps'
 * pieces.
 */
__device__ __forceinline__ uint32_t wk_stream_wgmma_order(const wk_batch_args &a, uint32_t rank, uint32_t i)
{
    uint32_t k_step = i >> a.run_shift;
    for (uint32_t leaf = rank * (WK_K_SLICES / a.blocks);; leaf++) {
        const uint32_t k_slice = wk_leaf_k_slice(leaf),
                       n = k_slice < a.p.k_steps ? (a.p.k_steps - k_slice + WK_K_SLICES - 1) / WK_K_SLICES : 0;
        if (k_step < n) return (k_slice + k_step * WK_K_SLICES) * a.k_step_stages + (i & (a.k_step_stages - 1));
        k_step -= n;
    }
}

/* ---- streams ------------------------------------------------------------------------------------------- */

/* The tiles of an item: four from each of two addresses on, as many as there are; all of it the same in all lanes. */
struct wk_stream_wgmma_weights {
    const unsigned char *from[2];
    uint32_t real[2];
    uint32_t item, tile_bytes, tile_stride, k_step_bytes, piece_bytes;
    __device__ __forceinline__ void locate(const wk_batch_args &a, uint32_t i)
    {
        item = i;
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const wk_tile_at t = wk_stream_wgmma_tile_of(a.p, i, half * 4);
            const wk_segment_args &s = a.p.seg[t.seg];
            from[half] = s.tiles + (uint64_t)t.tile * s.tile_stride;
            real[half] = t.real ? min(s.n_tiles - t.tile, 4u) : 0;
            tile_bytes = s.tile_bytes;
            tile_stride = s.tile_stride;
            k_step_bytes = s.k_step_bytes;
            piece_bytes = s.piece_bytes;
        }
    }
    /* Asks for piece k of all tiles; what lies past the end of k becomes zeros. */
    __device__ __forceinline__ void fetch(const wk_batch_args &a, const wk_stream_wgmma_memory &m, uint32_t stage,
                                          uint32_t i, uint32_t k, uint32_t lane)
    {
        if (i != item) locate(a, i);
        const uint32_t in = (k & (a.k_step_stages - 1)) * piece_bytes, first = (k >> a.run_shift) * k_step_bytes + in,
                       whole = min(piece_bytes, k_step_bytes - in);
        const uint32_t bytes = first < tile_bytes ? min(whole, tile_bytes - first) : 0;
        const uint32_t to = m.w + stage * WK_ITEM_TILES * a.tile_bytes, bar = m.full(stage);
        if (bytes < whole) {
#pragma unroll 1
            for (uint32_t j = bytes + lane % 4 * 16; j < whole; j += 64)
                asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to + lane / 4 * a.tile_bytes + j), "r"(0)
                             : "memory");
            wk_publish();
            __syncwarp();
        }
        if (wk_elected()) {
            wk_bar_expect(bar, (real[0] + real[1]) * bytes);
            if (bytes) {
#pragma unroll
                for (uint32_t half = 0; half < 2; half++) {
                    const unsigned char *tile = from[half] + first;
                    uint32_t place = to + half * 4 * a.tile_bytes;
#pragma unroll
                    for (uint32_t i = 0; i < 4; i++) {
                        if (i < real[half])
                            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                                         "[%1], %2, [%3];" ::"r"(place),
                                         "l"(tile), "r"(bytes), "r"(bar)
                                         : "memory");
                        tile += tile_stride;
                        place += a.tile_bytes;
                        asm volatile("" : "+l"(tile), "+r"(place)); /* one addition, and not again from the beginning */
                    }
                }
            }
        }
        __syncwarp();
    }
};

/* A warp's columns of the activations, a stage in registers: lane (c, t) = (lane / 4, lane % 4) has of column c of
 * eight and each run of 32 values those that the fragments have in lanes t. A column that is not there is the last one
 * again: nobody reads what becomes of it. */
template <int NT> struct wk_stream_wgmma_inputs {
    typedef wk_stream_wgmma_shape<NT> shape;
    const __half *row[shape::column_groups]; /* at the lane's first value */
    uint4 v[2][shape::column_groups][shape::runs];

    __device__ __forceinline__ void locate(const wk_batch_args &a, const wk_stream_wgmma_memory &m, uint32_t group,
                                           uint32_t warp, uint32_t lane)
    {
#pragma unroll
        for (uint32_t g = 0; g < shape::column_groups; g++) {
            const uint32_t c = m.first + min((warp + g * WK_STREAM_WGMMA_STREAMS) * 8 + lane / 4, m.rows - 1);
            row[g] = static_cast<const __half *>(a.p.in.x) +
                     (uint64_t)(a.p.in.row_index ? __ldg(a.p.in.row_index + c) : c) * a.p.k32 + lane % 4 * (group / 4);
        }
    }
    /* Stage `at` of k; zeros past the end. */
    template <int I> __device__ __forceinline__ void load(const wk_batch_args &a, uint32_t at, uint32_t group)
    {
        const uint32_t k0 = at * a.stage_k;
        if (k0 + shape::stage_k <= a.p.k32) {
#pragma unroll
            for (uint32_t g = 0; g < shape::column_groups; g++)
#pragma unroll
                for (uint32_t i = 0; i < shape::runs; i++) v[I][g][i] = wk_read_run(row[g] + k0 + 32 * i, group);
        } else {
#pragma unroll
            for (uint32_t g = 0; g < shape::column_groups; g++)
#pragma unroll
                for (uint32_t i = 0; i < shape::runs; i++)
                    v[I][g][i] =
                        k0 + i * 32 < a.p.k32 ? wk_read_run(row[g] + k0 + 32 * i, group) : make_uint4(0, 0, 0, 0);
        }
    }
    /* Chunk p of 16 bytes of a column's run: the p-th pair of all lanes. */
    template <int I>
    __device__ __forceinline__ void store(const wk_batch_args &a, uint32_t x, uint32_t warp, uint32_t lane)
    {
        const uint32_t c = lane % 8, p = lane / 8;
#pragma unroll
        for (uint32_t g = 0; g < shape::column_groups; g++)
#pragma unroll
            for (uint32_t i = 0; i < shape::runs; i++) {
                const uint32_t to = x + i / 2 * shape::panel + ((warp + g * WK_STREAM_WGMMA_STREAMS) * 8 + c) * 128 +
                                    (((i % 2 * 4 + p) ^ c) * 16);
                const uint4 &w = v[I][g][i];
                if (i * 32 >= a.stage_k) break;
                wk_store_run(to, w);
            }
    }
};

template <bool ODD> struct wk_stream_wgmma_turn {
    constexpr __host__ __device__ operator bool() const { return ODD; }
};

/* A streaming warp: its columns of every stage, and the tiles of every fourth. */
template <int NT, class... F>
__device__ __forceinline__ void wk_stream_wgmma_stream(const wk_batch_args &a, const wk_stream_wgmma_memory &m,
                                                       uint32_t rank, uint32_t worker, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t group = wk_family_group<F...>(p.seg[0].type), stages = wk_stream_wgmma_stages(a, rank),
                   all = worker < p.items ? (p.items - worker + a.workers - 1) / a.workers * stages : 0;
    const uint16_t *const order = reinterpret_cast<const uint16_t *>(m.at + a.order_at);
    if (all == 0) {
        wk_depend();
        return;
    }
    wk_stream_wgmma_weights w;
    w.locate(a, worker);
    uint32_t item = worker, at = warp; /* of the tiles that are asked for next */
    auto ask = [&](uint32_t stage) {
        while (at >= stages) {
            at -= stages;
            item += a.workers;
        }
        w.fetch(a, m, stage, item, __shfl_sync(0xffffffffu, order[at], 0) /* the same in all lanes, and known to be */,
                lane);
        at += WK_STREAM_WGMMA_STREAMS;
    };
    const uint32_t ahead = min(a.depth, all);
#pragma unroll 1
    for (uint32_t i = warp; i < ahead; i += WK_STREAM_WGMMA_STREAMS) ask(i);
    wk_stream_wgmma_inputs<NT> x;
    wk_depend();
    x.locate(a, m, group, warp, lane);
    x.template load<0>(a, order[0], group);
    x.template load<1>(a, order[stages > 1], group);
    wk_pipeline_state state = { 0, 1 };
    uint32_t next = stages > 2 ? 2 : 0, i = 0; /* next: stage of the item whose activations are loaded next */
    auto bring = [&](auto odd) {
        __syncwarp();
        wk_stage_wait(m.empty(state.i), state.parity);
        if (i >= ahead && i % WK_STREAM_WGMMA_STREAMS == warp) ask(state.i);
        if (odd)
            x.template store<1>(a, m.x + state.i * a.x_bytes, warp, lane);
        else
            x.template store<0>(a, m.x + state.i * a.x_bytes, warp, lane);
        wk_publish();
        __syncwarp();
        wk_bar_arrive_warp(m.full(state.i), lane);
        if (odd)
            x.template load<1>(a, order[next], group);
        else
            x.template load<0>(a, order[next], group);
        if (++next == stages) next = 0;
        state.next(a.depth);
        i++;
    };
    if constexpr (NT > 4) { /* two turns without branches; with fewer columns more code costs more than that */
#pragma unroll 1
        while (i < all) {
            bring(wk_stream_wgmma_turn<false>());
            if (i == all) break;
            bring(wk_stream_wgmma_turn<true>());
        }
    } else {
#pragma unroll 1
        while (i < all) bring((i & 1u) != 0);
    }
}

/* ---- multiplication ------------------------------------------------------------------------------------ */

struct wk_stream_wgmma_ring {
    wk_pipeline_state state;
    uint32_t given; /* the barrier of a stage that is given back when the products under way are done; 0: none */
};

/* 64 values of a unit, the half-th, as f16. */
template <class T, bool WIDE_RANGE>
__device__ __forceinline__ void wk_stream_wgmma_make(const typename T::quants &q, const typename T::scales &s,
                                                     uint32_t place, uint32_t half, uint32_t (&to)[4][4], uint32_t zero)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t f[1][2][4];
        wk_f16_weights<T, WIDE_RANGE>(q, s, place, 2 * half + h, f);
#pragma unroll
        for (int j = 0; j < 8; j++)
            wk_wgmma_replace<wk_is_half<T>()>(to[2 * h + j / 4][j % 4], f[0][j / 4][j % 4], zero);
    }
}

/* A warp's cell among those of a column tile: with glu a gate's and its up's are next to each other. */
__device__ __forceinline__ uint32_t wk_stream_wgmma_place(const wk_product_args &p, uint32_t warp)
{
    return p.glu ? warp % 4 * 2 + warp / 4 : warp;
}

/* The fragments of a piece, in whichever range its scales are, ready for wgmma. */
template <class T>
__device__ __forceinline__ void wk_stream_wgmma_piece(const typename T::quants &q, const typename T::scales &s,
                                                      uint32_t place, uint32_t half, uint32_t (&to)[4][4],
                                                      uint32_t zero)
{
    if (wk_wide_range<T>(s))
        wk_stream_wgmma_make<T, true>(q, s, place, half, to, zero);
    else
        wk_stream_wgmma_make<T, false>(q, s, place, half, to, zero);
    wk_wgmma_hold(to);
}
/* All products are over: the stage that they read goes back. */
__device__ __forceinline__ void wk_stream_wgmma_over(wk_stream_wgmma_ring &ring, uint32_t lane)
{
    wk_wgmma_wait<0>();
    if (ring.given) wk_bar_arrive_warp(ring.given, lane);
    ring.given = 0;
}
template <int NT> __device__ __forceinline__ void wk_stream_wgmma_zero(float (&c)[2][NT][4])
{
#pragma unroll
    for (int i = 0; i < 8 * NT; i++) c[i / 4 / NT][i / 4 % NT][i % 4] = 0.0f;
}
/* The second buffer of fragments to the first, once no product reads it. */
__device__ __forceinline__ void wk_stream_wgmma_swap(uint32_t (&b)[2][4][4])
{
    wk_wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < 16; j++) b[0][j / 4][j % 4] = b[1][j / 4][j % 4];
}

/* The sum of the block's K slices of the warp's tile. */
template <class T, int NT>
__device__ __forceinline__ void wk_stream_wgmma_sums(float (&sum)[NT][4], const wk_batch_args &a,
                                                     const wk_stream_wgmma_memory &m, wk_stream_wgmma_ring &ring,
                                                     uint32_t rank, uint32_t warp, uint32_t lane)
{
    typedef wk_stream_wgmma_shape<NT> shape;
    constexpr uint32_t halves = T::unit / 64;                                  /* buffers of a unit */
    constexpr uint32_t pieces = T::super * halves > 1 ? T::super * halves : 2; /* of the unrolled loop */
    const wk_product_args &p = a.p;
    const uint32_t leaves = WK_K_SLICES / a.blocks, units = a.stage_units, k_step_pieces = 1u << (p.k_step_shift - 6),
                   zero = p.k32 % 32;
    uint32_t left = wk_stream_wgmma_stages(a, rank) * units * halves, unit = 0,
             x = 0; /* left: pieces of the item; unit: in the stage */
    const unsigned char *w = NULL;
    typename T::scales s;
    typename T::quants q;
    uint32_t b[2][4][4] = {};
    float c[2][NT][4];
    unsigned char *const four = m.at + (m.sums - m.base) + wk_stream_wgmma_place(p, warp) * WK_CELL,
                         *const two = m.at + (m.kept - m.base) + warp * WK_CELL; /* sums of so many K slices wait */
    auto open = [&] {
        wk_stage_wait(m.full(ring.state.i), ring.state.parity);
        w = m.at + (m.w - m.base) + (ring.state.i * WK_ITEM_TILES + warp) * a.tile_bytes;
        x = m.x + ring.state.i * a.x_bytes;
    };
    /* To the next piece, number i of the unrolled: its unit's place, and which half of it. */
    auto advance = [&](uint32_t i) {
        const uint32_t place = T::super > 1 ? i / halves : 0;
        x += shape::panel;
        if (i % halves) return;
        if (++unit == units) {
            unit = 0;
            ring.given = m.empty(ring.state.i);
            ring.state.next(a.depth);
            if (left) open();
        } else {
            w += T::offset(1);
        }
        if (left) {
            T::load(s, w, place, lane);
            T::load(q, w, place, lane);
        }
    };
    auto make = [&](uint32_t i, uint32_t(&to)[4][4]) {
        wk_stream_wgmma_piece<T>(q, s, T::super > 1 ? i / halves : 0, i % halves, to, zero);
    };
    if (left) {
        open();
        T::load(s, w, 0, lane);
        T::load(q, w, 0, lane);
        make(0, b[0]);
    }
#pragma unroll 1
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        const uint32_t k_slice = wk_leaf_k_slice(rank * leaves + leaf);
        uint32_t n = k_slice < p.k_steps ? (p.k_steps - k_slice + WK_K_SLICES - 1) / WK_K_SLICES * k_step_pieces : 0;
        wk_stream_wgmma_zero<NT>(c);
#pragma unroll 1
        while (n) {
#pragma unroll
            for (uint32_t i = 0; i < pieces; i++) {
                wk_stream_wgmma_multiply<NT>(c, b[i % 2], x);
                n--;
                left--;
                const uint32_t before = ring.given;
                ring.given = 0;
                advance((i + 1) % pieces);
                wk_wgmma_wait<1>(); /* the products before these are over */
                if (before) wk_bar_arrive_warp(before, lane);
                make((i + 1) % pieces, b[(i + 1) % 2]);
                if ((T::super == 1 || i + 1 == pieces) && n == 0) {
                    if (i % 2 == 0) wk_stream_wgmma_swap(b);
                    break;
                }
            }
        }
        wk_stream_wgmma_over(ring, lane);
        wk_k_slice_done<NT>(sum, c, leaf, leaves, two, four);
    }
}

/* ---- sums to outputs ----------------------------------------------------------------------------------- */

/* An eighth of the cells of an item that the block finishes, number `warp`, all of one tile; sums: the item's; first,
 * rows: of the product. bar: of the sums that come from other warps; 0: they are there. */
__device__ __forceinline__ void wk_stream_wgmma_outputs(const wk_batch_args &a, const unsigned char *sums,
                                                        uint32_t first, uint32_t rows, uint32_t rank, uint32_t item,
                                                        uint32_t bar, uint32_t parity, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t each = p.glu ? 2 : 1, shift = p.glu ? 2 : 3, tiles = 1u << shift, stride = a.owned * each * WK_CELL,
                   t = lane / 8, q = lane % 4; /* rows 4 q .. of column lane / 4 of a cell */
    const uint32_t cell = rank * a.owned + warp, last = min(rank * a.owned + a.owned, (rows + 7) / 8 << shift),
                   end = first + rows;
    const wk_tile_at at = wk_stream_wgmma_tile_of(p, item, cell & (tiles - 1));
    const unsigned char *from =
        sums + warp * each * WK_CELL + t * 128 + ((q & 1u) * 4 ^ (2 * t & 4u)) * 16 + q / 2 * 8 + (lane / 4 & 1u) * 4;
    wk_four_at o = { at.seg, at.tile, first + (cell >> shift) * 8 + lane / 4, false };
    o.on = at.real && o.row < end && cell < last;
    wk_four_more more = wk_four_ahead(p, o);
    if (bar) wk_stage_wait(bar, parity);
    if (!at.real) return;
#pragma unroll 1
    for (uint32_t i = cell; i < last; i += WK_ITEM_TILES) {
        float sum[4], up[4] = {};
        wk_tree_sum(sum, from, 2 * t & 2u, a.blocks, stride);
        if (p.glu) wk_tree_sum(up, from + WK_CELL, 2 * t & 2u, a.blocks, stride);
        const wk_four_at now = o;
        wk_four_more with = more;
        from += WK_ITEM_TILES * each * WK_CELL;
        o.row += each * 8;
        o.on = o.row < end && i + WK_ITEM_TILES < last;
        if (!p.glu && p.residual && o.on) { /* the next cell's, on the way while this one is stored */
            const uint32_t j = o.tile * 16 + q * 4;
            wk_four_load(more.other, wk_four_residual(p, o, j), j, p.seg[o.seg].n);
        }
        wk_four_output(p, now, with, sum, up);
    }
}

template <int NT, class... F>
__device__ __forceinline__ void wk_stream_wgmma_consume(const wk_batch_args &a, const wk_stream_wgmma_memory &m,
                                                        uint32_t rank, uint32_t worker, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t each = p.glu ? 2 : 1, tiles = p.glu ? WK_ITEM_TILES / 2 : (uint32_t)WK_ITEM_TILES,
                   in_cell = wk_in_cell(lane / 4, lane % 4),
                   rounds = worker < p.items ? (p.items - worker + a.workers - 1) / a.workers : 0;
    const uint32_t owned_shift = 31 - __clz(a.owned),
                   later = a.buffers - 1; /* an item is finished so many items after it was multiplied */
    const uint32_t cells =
        tiles * NT > rank * a.owned ? min(a.owned, tiles * NT - rank * a.owned) : 0; /* that this block finishes */
    wk_stream_wgmma_ring ring = { 0, 0, 0 };
    wk_depend();
    if (a.blocks > 1) wk_cluster_wait();
#pragma unroll 1
    for (uint32_t r = 0; r < rounds + later; r++) {
        if (r < rounds) {
            const uint32_t item = worker + r * a.workers, buffer = r & later;
            const wk_tile_at at = wk_stream_wgmma_tile_of(p, item, warp);
            float c[NT][4];
            if (a.blocks == 1 && p.glu) asm volatile("bar.sync 1, 256;" ::: "memory"); /* the cells have been read */
            wk_for_type<F...>(sizeof...(F) > 1 ? p.seg[at.seg].type : 0, [&](auto format) {
                wk_stream_wgmma_sums<decltype(format), NT>(c, a, m, ring, rank, warp, lane);
            });
            /* Of column tile n: cell n tiles + warp % tiles of all. */
            if (a.blocks == 1) {
                __syncwarp();
#pragma unroll
                for (int n = 0; n < NT; n++)
                    *reinterpret_cast<float4 *>(m.at + (m.sums - m.base) +
                                                (n * WK_ITEM_TILES + wk_stream_wgmma_place(p, warp)) * WK_CELL +
                                                in_cell) = make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
                if (p.glu)
                    asm volatile("bar.sync 1, 256;" ::: "memory");
                else
                    __syncwarp();
            } else {
                if (r > later)
                    wk_stage_wait(m.freed(buffer),
                                  (r / a.buffers - 1) &
                                      1u); /* all have read what was there: nobody waits for the phase before */
                if (threadIdx.x == 0) wk_bar_expect(m.ready(buffer), cells * each * a.blocks * WK_CELL);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    const uint32_t i = n * tiles + (warp & (tiles - 1)), to = i >> owned_shift,
                                   cell = (i & (a.owned - 1)) * each + (warp >= tiles ? 1 : 0);
                    wk_cluster_send(m.sums + buffer * a.buffer + (rank * a.owned * each + cell) * WK_CELL + in_cell,
                                    m.ready(buffer), to, c[n]);
                }
            }
        }
        if (r < later) continue;
        const uint32_t done = r - later, buffer = done & later;
        wk_stream_wgmma_outputs(a, m.at + (m.sums - m.base) + buffer * a.buffer, m.first, m.rows, rank,
                                worker + done * a.workers, a.blocks > 1 ? m.ready(buffer) : 0, done / a.buffers & 1u,
                                warp, lane);
        __syncwarp();
        if (a.blocks > 1 && done + a.buffers < rounds) wk_cluster_arrive_warp(m.freed(buffer), a.blocks, lane);
    }
}

template <int NT, class... F>
__global__ void __launch_bounds__(WK_STREAM_WGMMA_THREADS, 1)
    wk_product_stream_wgmma(const __grid_constant__ wk_batch_args a)
{
    extern __shared__ uint4 wk_shared[];
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(wk_shared), lane = threadIdx.x & 31u,
                   warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const uint32_t rank = blockIdx.x % a.blocks, worker = blockIdx.x / a.blocks / a.groups;
    const uint32_t base = (start + 1023u) & ~1023u;
    const wk_stream_wgmma_memory m(a, base, reinterpret_cast<unsigned char *>(wk_shared) + (base - start), 8 * NT);
    if (lane == 0) { /* a lane of each warp: those of one warp would take turns */
        for (uint32_t i = warp; i < a.depth; i += WK_STREAM_WGMMA_THREADS / 32) {
            wk_bar_init(m.full(i), 1 + WK_STREAM_WGMMA_STREAMS * WK_BAR_WARP);
            wk_bar_init(m.empty(i), WK_ITEM_TILES * WK_BAR_WARP);
        }
        if (warp < 2) {
            wk_bar_init(m.ready(warp), 1);
            wk_bar_init(m.freed(warp), WK_ITEM_TILES * a.blocks * WK_BAR_WARP);
        }
        wk_bar_init_done();
    }
    for (uint32_t i = threadIdx.x, n = wk_stream_wgmma_stages(a, rank); i < n; i += WK_STREAM_WGMMA_THREADS)
        reinterpret_cast<uint16_t *>(m.at + a.order_at)[i] = (uint16_t)wk_stream_wgmma_order(a, rank, i);
    wk_release();
    __syncthreads();
    if (a.blocks > 1) wk_cluster_arrive();
    if (warp >= WK_ITEM_TILES) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((uint32_t)WK_STREAM_WGMMA_REGISTERS_STREAM));
        wk_stream_wgmma_stream<NT, F...>(a, m, rank, worker, warp - WK_ITEM_TILES, lane);
        if (a.blocks > 1) wk_cluster_wait();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((uint32_t)WK_STREAM_WGMMA_REGISTERS));
        wk_stream_wgmma_consume<NT, F...>(a, m, rank, worker, warp, lane);
    }
}

#endif
