/* worker/cuda/kernel/multistage.cuh: products of 2 rows and more on images without bulk copies and clusters (8.x).
 *
 * A block of eight warps takes items of 8 / parts tiles: warp (part, tile) has the K slices of a part of k, 1 to 8
 * parts, and makes each fragment of weights once for up to 64 columns. Weights and activations come stage after stage
 * through one ring, by copies of 16 bytes that each lane asks for: a warp those of its own tile, and the warps of a
 * part share the activations of the part. One barrier a stage says that all copies of the stage have arrived and that
 * all warps have read the stage before, into whose place the next one then comes. The ring goes on across items, so
 * weights of the next are on the way while outputs are finished.
 *
 * The parts are what a cluster's blocks are in kernel/stream.cuh: their sums are added by the tree in shared memory.
 * More rows than a kernel has columns are groups with blocks of their own, which find the weights in L2. Order of
 * arithmetic: part/weights.cuh. */
#ifndef WORKER_CUDA_KERNEL_MULTISTAGE_CUH
#define WORKER_CUDA_KERNEL_MULTISTAGE_CUH

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/accumulate.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/items.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/prologue.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/weights.cuh>

enum {
    WK_MULTISTAGE_WARPS = WK_ITEM_TILES,
    WK_MULTISTAGE_THREADS = 32 * WK_MULTISTAGE_WARPS,
    WK_MULTISTAGE_DEPTH = 6 /* most stages of the ring */
};

/* Blocks a multiprocessor, as registers allow. */
template <int NT> constexpr uint32_t wk_multistage_together() { return NT > 4 ? 1 : 2; }

/* First K slice of a part. */
__device__ __forceinline__ uint32_t wk_multistage_k_slice(const wk_batch_args &a, uint32_t part)
{
    return wk_leaf_k_slice(part * wk_batch_leaves(a));
}

/* Shared memory: the ring's activations, [stages][parts]; from weights_at on its weights, [stages][warps]; sums_at:
 * sums, a cell a warp and eight columns: those of two K slices wait there, and in the end a warp's; kept_at: if there
 * is one part, those of four K slices. */
struct wk_multistage_warp : wk_batch_memory {
    using wk_batch_memory::wk_batch_memory;
    uint32_t warp, part, tile, group, lane; /* group: of columns */
    uint32_t k_slice, x_lane;               /* the part's first K slice; where a lane's chunk of a run stands */
    template <class... F> __device__ __forceinline__ void begin(const wk_batch_args &a)
    {
        lane = threadIdx.x & 31u;
        warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
        part = warp >> (31 - __clz(a.tiles));
        tile = warp & (a.tiles - 1);
        group = blockIdx.y;
        k_slice = wk_multistage_k_slice(a, part);
        x_lane = wk_run_place(wk_family_group<F...>(a.p.seg[0].type), lane);
    }
    __device__ __forceinline__ uint32_t x_place(const wk_batch_args &a, uint32_t stage) const
    {
        return x + stage * a.blocks * a.x_bytes;
    }
    __device__ __forceinline__ uint32_t w_place(const wk_batch_args &a, uint32_t stage) const
    {
        return w + (stage * WK_MULTISTAGE_WARPS + warp) * a.tile_bytes;
    }
    __device__ __forceinline__ unsigned char *generic(uint32_t address) const { return at + (address - base); }
};

/* K steps of a K slice. */
__device__ __forceinline__ uint32_t wk_multistage_k_steps(const wk_product_args &p, uint32_t k_slice)
{
    return k_slice < p.k_steps ? (p.k_steps - k_slice + WK_K_SLICES - 1) / WK_K_SLICES : 0;
}

/* What a warp asks for: stage after stage, item after item, all parts at the same place of their K slices: of part q
 * the K slice is that of the first part plus wk_leaf_k_slice(q * k_slices), and the first has as many K steps as any.
 * Activations of all parts are shared out among all warps, so that a warp has eight columns, and a lane one row. */
struct wk_multistage_copies {
    const unsigned char *from; /* the warp's tile */
    const __half *row;         /* lane (c, t) = (lane / 4, lane % 4): chunk t of column c. A column that is not there is
                                  the last one again */
    uint32_t item, left, place;     /* of the next stage; stages of the item from it on; where in the ring it comes */
    uint32_t leaf, k_steps, pieces; /* of its K slice; of the K slice from it on; of its K step from it on */
    uint32_t k, first;              /* value of k of the first part; byte in the tile of the warp's part */
    uint32_t tile_bytes, k_step_bytes, piece_bytes; /* tile_bytes: 0 if there is no such tile */
    template <int NT> __device__ __forceinline__ void begin(const wk_batch_args &a, const wk_multistage_warp &m)
    {
        const uint32_t column = min((m.group * NT + m.warp % NT) * 8 + m.lane / 4, a.p.rows - 1);
        row = static_cast<const __half *>(a.p.in.x) + (uint64_t)wk_input_row(a.p, column) * a.p.k32 + m.lane % 4 * 8;
        item = blockIdx.x;
        place = 0;
        locate(a, m);
    }
    /* To the next K slice that has K steps, from `leaf` on. */
    __device__ __forceinline__ void k_slice(const wk_batch_args &a, const wk_multistage_warp &m)
    {
        while ((k_steps = wk_multistage_k_steps(a.p, wk_leaf_k_slice(leaf))) == 0) leaf++;
        k = wk_leaf_k_slice(leaf) << a.p.k_step_shift;
        first = (wk_leaf_k_slice(leaf) + m.k_slice) * k_step_bytes;
        pieces = a.k_step_stages;
    }
    __device__ __forceinline__ void locate(const wk_batch_args &a, const wk_multistage_warp &m)
    {
        left = a.stages;
        if (item >= a.p.items) return;
        const wk_tile_at t = wk_batch_tile_of(a, item, m.tile);
        const wk_segment_args &s = a.p.seg[t.seg];
        from = s.tiles + (uint64_t)t.tile * s.tile_stride;
        tile_bytes = t.real ? s.tile_bytes : 0;
        k_step_bytes = s.k_step_bytes;
        piece_bytes = s.piece_bytes;
        leaf = 0;
        k_slice(a, m);
    }
    __device__ __forceinline__ void next(const wk_batch_args &a, const wk_multistage_warp &m)
    {
        if (++place == a.depth) place = 0;
        if (--left == 0) {
            item += a.workers;
            locate(a, m);
            return;
        }
        k += a.stage_k;
        first += piece_bytes;
        if (--pieces) return;
        pieces = a.k_step_stages;
        k += (WK_K_SLICES - 1) << a.p.k_step_shift;
        first += (WK_K_SLICES - 1) * k_step_bytes;
        if (--k_steps) return;
        leaf++;
        k_slice(a, m);
    }
    /* Asks for the next stage, to a place that all warps have read; what lies past the end of k becomes zeros. A group
     * of copies even if there is no stage. */
    template <int NT> __device__ __forceinline__ void ask(const wk_batch_args &a, const wk_multistage_warp &m)
    {
        constexpr uint32_t sharers = WK_MULTISTAGE_WARPS / NT; /* warps that have the same columns */
        if (item < a.p.items) {
            const uint32_t runs_shift = 31 - __clz(a.stage_k / 32), runs = a.blocks << runs_shift,
                           to = m.x_place(a, place) + m.warp % NT * 512 + m.x_lane;
            const bool whole = k + ((a.blocks - 1) << a.p.k_step_shift) + a.stage_k <= a.p.k32;
            if (tile_bytes)
                wk_copy_run_part(m.w_place(a, place), from + first,
                                 first < tile_bytes ? min(piece_bytes, tile_bytes - first) : 0, piece_bytes, m.lane);
#pragma unroll 2
            for (uint32_t i = m.warp / NT; i < runs; i += sharers) {
                const uint32_t part = i >> runs_shift, at = k + (wk_multistage_k_slice(a, part) << a.p.k_step_shift) +
                                                            (i - (part << runs_shift)) * 32;
                if (whole)
                    wk_copy16(to + i * (NT * 512), row + at);
                else
                    wk_copy16_part(to + i * (NT * 512), row + (at < a.p.k32 ? at : 0), at < a.p.k32 ? 16 : 0);
            }
            next(a, m);
        }
        wk_copy_commit();
    }
};

/* The sum of the K slices of the warp's part of its tile, left in the warp's cells. stage: the next one's place. real:
 * there is such a tile. */
template <class T, int NT>
__device__ __forceinline__ void wk_multistage_sums(const wk_batch_args &a, const wk_multistage_warp &m,
                                                   wk_multistage_copies &copies, uint32_t &stage, bool real)
{
    const wk_product_args &p = a.p;
    const uint32_t leaves = wk_batch_leaves(a);
    unsigned char *const two = m.generic(m.sums) + m.warp * WK_CELL,
                         *const four = m.generic(m.kept) + m.warp * WK_CELL; /* sums of so many K slices wait */
    float sum[NT][4];
#pragma unroll 1
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        const uint32_t k_slice = wk_leaf_k_slice(leaf);
        uint32_t own = real ? wk_multistage_k_steps(p, k_slice + m.k_slice) * a.k_step_stages : 0;
        float c[2][NT][4] = {};
#pragma unroll 1
        for (uint32_t n = wk_multistage_k_steps(p, k_slice) * a.k_step_stages; n; n--) {
            wk_copy_wait_but(a.depth - 2); /* the stage has arrived, */
            wk_sync_k_slices();            /* and the place of the one before is free */
            copies.ask<NT>(a, m);
            if (own) {
                own--;
                const wk_run_words<T, NT> x(m.generic(m.x_place(a, stage) + m.part * a.x_bytes), m.lane);
                wk_add_stage<T, NT>(c, m.generic(m.w_place(a, stage)), x, a.stage_units, m.lane);
            }
            if (++stage == a.depth) stage = 0;
        }
        wk_k_slice_done<NT>(sum, c, leaf, leaves, two, four);
    }
    __syncwarp();
    unsigned char *const cell = two + wk_in_cell(m.lane / 4, m.lane % 4);
#pragma unroll
    for (int n = 0; n < NT; n++)
        *reinterpret_cast<float4 *>(cell + n * WK_ITEM_TILES * WK_CELL) =
            make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
}

/* All warps finish the item's outputs, each every eighth cell; a lane has rows 4 (lane % 4) .. + 3 of column lane / 4
 * (kernel/stream.cuh). */
template <int NT>
__device__ __forceinline__ void wk_multistage_finish(const wk_batch_args &a, const wk_multistage_warp &m, uint32_t item)
{
    const wk_product_args &p = a.p;
    const uint32_t tiles = p.glu ? a.tiles / 2 : a.tiles, shift = 31 - __clz(tiles), cells = tiles * NT, t = m.lane / 8,
                   q = m.lane % 4;
    const unsigned char *const own =
        m.generic(m.sums) + t * 128 + ((q & 1u) * 4 ^ (2 * t & 4u)) * 16 + q / 2 * 8 + (m.lane / 4 & 1u) * 4;
    auto place = [&](uint32_t i) {
        const wk_tile_at at = wk_batch_tile_of(a, item, i & (tiles - 1));
        const uint32_t row = (m.group * NT + (i >> shift)) * 8 + m.lane / 4;
        return wk_four_at{ at.seg, at.tile, row, at.real && i < cells && row < p.rows };
    };
    wk_four_at next = place(m.warp);
    wk_four_more next_more = wk_four_ahead(p, next);
    wk_sync_k_slices(); /* all sums are there */
#pragma unroll 1
    for (uint32_t i = m.warp; i < cells; i += WK_MULTISTAGE_WARPS) {
        const wk_four_at o = next;
        wk_four_more more = next_more;
        const unsigned char *const from = own + ((i >> shift) * WK_ITEM_TILES + (i & (tiles - 1))) * WK_CELL;
        float sum[4], up[4] = {};
        wk_tree_sum(sum, from, 2 * t & 2u, a.blocks, a.tiles * WK_CELL);
        if (p.glu) wk_tree_sum(up, from + tiles * WK_CELL, 2 * t & 2u, a.blocks, a.tiles * WK_CELL);
        if (i + WK_MULTISTAGE_WARPS < cells) { /* what the next one reads is on the way while this one is stored */
            next = place(i + WK_MULTISTAGE_WARPS);
            next_more = wk_four_ahead(p, next);
        }
        wk_four_output(p, o, more, sum, up);
    }
    wk_sync_k_slices(); /* all have read them */
}

template <int NT, class... F>
__global__ void __launch_bounds__(WK_MULTISTAGE_THREADS, wk_multistage_together<NT>())
    wk_product_multistage(const __grid_constant__ wk_batch_args a)
{
#if !WK_HAS_CLUSTERS
    extern __shared__ uint4 wk_shared[];
    const wk_product_args &p = a.p;
    wk_multistage_warp m(a, (uint32_t)__cvta_generic_to_shared(wk_shared),
                         reinterpret_cast<unsigned char *>(wk_shared));
    m.begin<F...>(a);
    wk_multistage_copies copies;
    copies.begin<NT>(a, m);
#pragma unroll 1
    for (uint32_t i = 1; i < a.depth; i++) copies.ask<NT>(a, m);
    uint32_t stage = 0;
#pragma unroll 1
    for (uint32_t item = blockIdx.x; item < p.items; item += a.workers) {
        const wk_tile_at at = wk_batch_tile_of(a, item, m.tile);
        wk_for_type<F...>(sizeof...(F) > 1 ? p.seg[at.seg].type : 0,
                          [&](auto format) { wk_multistage_sums<decltype(format), NT>(a, m, copies, stage, at.real); });
        wk_multistage_finish<NT>(a, m, item);
    }
    wk_copy_wait<0>();
#else
    asm volatile("trap;");
    (void)a;
#endif
}

#endif
