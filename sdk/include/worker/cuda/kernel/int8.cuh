/* worker/cuda/kernel/int8.cuh: integer products (part/int8.cuh) of more than one row.
 *
 * Two launches. The first makes integers of the activations, once for all, in the workspace: a record for each
 * block of 256 values of four rows, in the order in which lanes read it. In the second a block has an item of eight
 * tiles (with glu four pairs), a tile a warp, for up to 4 NT rows; a warp streams: a stage of the ring is a block of k
 * of all of the item's tiles, as they lie in memory, and its records. Weights are asked for before the wait for the
 * launch before. Where items are too few for the multiprocessors a cluster of 2, 4 or 8 blocks shares an item's K
 * slices, neighbours of the tree to a block; each adds its own, and reads of the others what it needs of the outputs
 * that it finishes. Else blocks have items by turns, and the next one's stages are under way while outputs are
 * finished.
 *
 * More rows are groups with blocks of their own, which find the weights in L2. */
#ifndef WORKER_CUDA_KERNEL_INT8_CUH
#define WORKER_CUDA_KERNEL_INT8_CUH

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/int8.cuh>
#include <worker/cuda/part/int8_grid.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/ring.cuh>

enum {
    WK_INT8_TILES = 8, /* an item, and warps that multiply */
    WK_INT8_THREADS = 32 * (WK_INT8_TILES + 1),
    WK_INT8_TOGETHER = 2, /* blocks a multiprocessor */
    WK_INT8_DEPTH = 8,    /* most stages */
    WK_INT8_BARS = 2 * WK_INT8_DEPTH
};

/* What int8 is given. Shared memory, offsets in bytes from its start: at 0 the ring's weights; behind them its
 * activations, sums, barriers. */
struct wk_int8_args {
    wk_product_args p;      /* items: of WK_INT8_TILES tiles; glu: of half as many pairs */
    const unsigned char *x; /* records [k_steps][tiles]; the caller's workspace */
    uint32_t tiles;         /* of four rows */
    uint32_t blocks;        /* of a cluster: 1, 2, 4, 8 */
    uint32_t depth;         /* stages of the ring, at most WK_INT8_DEPTH */
    uint32_t tile_bytes;    /* of a tile in a stage: a K step */
    uint32_t bars_at, x_at, sums_at;
};

/* ---- activations --------------------------------------------------------------------------------------- */

/* Block (x, row): a block of 256 values a warp, as format F has them. Rows past the last are that one again. */
template <class F>
__global__ void __launch_bounds__(32 * WK_K_SLICES) wk_int8_rows(const __grid_constant__ wk_int8_args a)
{
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, k_step = blockIdx.x * WK_K_SLICES + threadIdx.x / 32, row = blockIdx.y,
                   from = min(row, p.rows - 1);
    unsigned char *const to =
        const_cast<unsigned char *>(a.x) + ((uint64_t)k_step * a.tiles + row / WK_INT8_RECORD_ROWS) * WK_INT8_RECORD;
    wk_release();
    wk_depend();
    if (k_step >= p.k_steps) return;
    const __half *const x =
        static_cast<const __half *>(p.in.x) + (uint64_t)wk_input_row(p, from) * p.k32 + k_step * F::block;
    wk_int8_block<F>(reinterpret_cast<const uint4 *>(x)[lane], to + row % WK_INT8_RECORD_ROWS * 128,
                     WK_INT8_RECORD_ROWS * 128,
                     reinterpret_cast<wk_int8_more *>(to + WK_INT8_MORE_AT) + row % WK_INT8_RECORD_ROWS,
                     to + WK_INT8_SUMS_AT + row % WK_INT8_RECORD_ROWS * WK_INT8_SUMS, lane);
}

/* ---- the block's work ---------------------------------------------------------------------------------- */

/* An item: tiles of a segment, or with glu pairs of tiles of both. */
struct wk_int8_item {
    uint32_t seg, tile, count;
    __device__ __forceinline__ wk_int8_item(const wk_product_args &p, uint32_t item)
    {
        seg = wk_item_segment(p, item, &tile);
        const uint32_t most = p.glu ? WK_INT8_TILES / 2 : WK_INT8_TILES;
        tile *= most;
        count = min(most, p.seg[seg].n_tiles - tile);
    }
    /* Of warp w, if it has one: its segment and tile. */
    __device__ __forceinline__ uint32_t segment(const wk_product_args &p, uint32_t w) const
    {
        return p.glu ? w % 2 : seg;
    }
    __device__ __forceinline__ uint32_t tile_of(const wk_product_args &p, uint32_t w) const
    {
        return tile + (p.glu ? w / 2 : w);
    }
    __device__ __forceinline__ uint32_t warps(const wk_product_args &p) const { return p.glu ? 2 * count : count; }
};
/* The stages of a block's items in order: of each, leaf after leaf of the block's part of the tree, the K steps. */
struct wk_int8_walk {
    uint32_t item, leaf, k_step;
    __device__ __forceinline__ explicit wk_int8_walk(const wk_int8_args &a)
        : item(blockIdx.x / a.blocks), leaf(blockIdx.x % a.blocks * (WK_K_SLICES / a.blocks)),
          k_step(wk_leaf_k_slice(leaf))
    {
        skip(a);
    }
    __device__ __forceinline__ bool done(const wk_int8_args &a) const { return item >= a.p.items; }
    __device__ __forceinline__ void skip(const wk_int8_args &a)
    {
        const uint32_t leaves = WK_K_SLICES / a.blocks;
        while (k_step >= a.p.k_steps) {
            if (++leaf % leaves == 0) {
                leaf -= leaves;
                item += gridDim.x / a.blocks;
                if (done(a)) return;
            }
            k_step = wk_leaf_k_slice(leaf);
        }
    }
    __device__ __forceinline__ void next(const wk_int8_args &a)
    {
        k_step += WK_K_SLICES;
        skip(a);
    }
};
/* A block's group of rows: its first record, and how many it has. */
template <int NT> __device__ __forceinline__ uint32_t wk_int8_records(const wk_int8_args &a)
{
    return min((uint32_t)NT, a.tiles - blockIdx.y * NT);
}
struct wk_int8_bars {
    uint32_t at;
    __device__ __forceinline__ uint32_t full(uint32_t i) const { return at + i * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t i) const { return at + (WK_INT8_DEPTH + i) * 8; }
};

/* The streaming warp. sm_90: one lane of it, by bulk copies; else all. */
template <int NT>
__device__ __forceinline__ void wk_int8_stream(const wk_int8_args &a, uint32_t base, const wk_int8_bars &bars,
                                               uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t bytes_x = wk_int8_records<NT>(a) * WK_INT8_RECORD, both = p.glu ? 1 : 0;
    const uint64_t once = wk_fetch_once();
    auto copy = [&](uint32_t to, const unsigned char *from, uint32_t bytes, uint32_t bar, bool again) {
#if WK_HAS_BULK_COPIES
        if (again)
            wk_fetch(to, from, bytes, bar);
        else
            wk_fetch(to, from, bytes, bar, once);
#else
        for (uint32_t j = lane * 16; j < bytes; j += 512) wk_copy16(to + j, from + j);
        (void)bar, (void)again, (void)once;
#endif
    };
    auto weights = [&](uint32_t i, const wk_int8_walk &at) {
        const wk_int8_item item(p, at.item);
        const uint32_t warps = item.warps(p);
        const wk_segment_args &first = p.seg[both ? 0 : item.seg], &second = p.seg[both ? 1 : item.seg];
        wk_bar_expect(bars.full(i), bytes_x + (both ? item.count * (first.k_step_bytes + second.k_step_bytes)
                                                    : warps * first.k_step_bytes));
        uint32_t to = base + i * (WK_INT8_TILES * a.tile_bytes);
        for (uint32_t w = 0; w < warps; w++, to += a.tile_bytes) {
            const wk_segment_args &s = both && w % 2 ? second : first;
            copy(to, s.tiles + (uint64_t)item.tile_of(p, w) * s.tile_stride + at.k_step * s.k_step_bytes,
                 s.k_step_bytes, bars.full(i), gridDim.y > 1);
        }
    };
    auto numbers = [&](uint32_t i, uint32_t k_step) {
        copy(base + a.x_at + i * (NT * WK_INT8_RECORD),
             a.x + ((uint64_t)k_step * a.tiles + blockIdx.y * NT) * WK_INT8_RECORD, bytes_x, bars.full(i), true);
#if !WK_HAS_BULK_COPIES
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bars.full(i)) : "memory");
#endif
    };
    wk_int8_walk walk(a), behind = walk;
    uint32_t first = 0;
    for (; first < a.depth && !walk.done(a); first++, walk.next(a)) weights(first, walk);
    wk_depend();
    for (uint32_t i = 0; i < first; i++, behind.next(a)) numbers(i, behind.k_step);
    for (wk_pipeline_state state = { 0, 0 }; !walk.done(a); walk.next(a), state.next(a.depth)) {
        wk_stage_wait(bars.empty(state.i), state.parity);
        weights(state.i, walk);
        numbers(state.i, walk.k_step);
    }
}

/* A multiplying warp: the sums of its tile over the block's K slices, rows g and g + 8, of row t of each record; then
 * where all can read them: [tile][row of activations][16]. */
template <int NT, class... F>
__device__ __forceinline__ void wk_int8_multiply(const wk_int8_args &a, const wk_int8_item &item, unsigned char *shared,
                                                 const wk_int8_bars &bars, wk_pipeline_state &state, uint32_t warp,
                                                 uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t leaves = WK_K_SLICES / a.blocks, first = blockIdx.x % a.blocks * leaves,
                   records = wk_int8_records<NT>(a);
    const bool have = warp < item.warps(p);
    float *const own = reinterpret_cast<float *>(shared + a.sums_at) + warp * (NT * WK_INT8_RECORD_ROWS * 16);
    float y[NT][2];
    wk_for_type<F...>(sizeof...(F) > 1 ? p.seg[item.segment(p, warp)].type : 0, [&](auto format) {
        typedef decltype(format) T;
#pragma unroll 1
        for (uint32_t leaf = 0; leaf < leaves; leaf++) {
#pragma unroll
            for (int i = 0; i < 2 * NT; i++) y[i / 2][i % 2] = 0.0f;
#pragma unroll 1
            for (uint32_t k_step = wk_leaf_k_slice(first + leaf); k_step < p.k_steps; k_step += WK_K_SLICES) {
                wk_stage_wait(bars.full(state.i), state.parity);
                const unsigned char *const tile = shared + (state.i * WK_INT8_TILES + warp) * a.tile_bytes,
                                           *const x = shared + a.x_at + state.i * (NT * WK_INT8_RECORD);
                if constexpr (wk_is_int8_grid<T>()) {
                    if (have) wk_int8_grid_several<T, NT>(y, tile, x, records, lane);
                } else {
                    if (have) wk_int8_several<T, NT>(y, tile, x, records, lane);
                }
                __syncwarp();
                wk_bar_arrive_warp(bars.empty(state.i), lane);
                state.next(a.depth);
            }
            uint32_t level = 0; /* sums of 1, 2 and 4 K slices wait in shared memory, in the warp's places, for those of
                                   as many others */
            for (; leaf >> level & 1u; level++) {
#pragma unroll
                for (int i = 0; i < 2 * NT; i++)
                    y[i / 2][i % 2] = __fadd_rn(own[(level * WK_INT8_TILES * NT * 2 + i) * 32 + lane], y[i / 2][i % 2]);
            }
            if (leaf + 1 < leaves) {
#pragma unroll
                for (int i = 0; i < 2 * NT; i++)
                    own[(level * WK_INT8_TILES * NT * 2 + i) * 32 + lane] = y[i / 2][i % 2];
            }
        }
    });
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2 * NT; i++)
        own[(i / 2 * WK_INT8_RECORD_ROWS + lane % 4) * 16 + i % 2 * 8 + lane / 4] = y[i / 2][i % 2];
}

/* ---- outputs ------------------------------------------------------------------------------------------- */

/* The multiplying warps of a cluster's blocks, of which there is one item then, or of a block, and what they wrote to
 * shared memory. */
__device__ __forceinline__ void wk_int8_meet(uint32_t blocks)
{
#if WK_HAS_CLUSTERS
    if (blocks > 1) {
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        return;
    }
#endif
    asm volatile("bar.sync 1, %0;" ::"n"(32 * WK_INT8_TILES) : "memory");
}
__device__ __forceinline__ float4 wk_int8_read(uint32_t at, uint32_t rank)
{
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if WK_HAS_CLUSTERS
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %4, %5; ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [there]; }"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "r"(at), "r"(rank)
        : "memory");
#endif
    return v;
}
/* Four sums: of the whole tree, from the blocks' parts of it. */
__device__ __forceinline__ void wk_int8_sum(float sum[4], const unsigned char *shared, uint32_t base, uint32_t at,
                                            uint32_t blocks)
{
    float4 v[WK_K_SLICES];
#pragma unroll
    for (uint32_t r = 0; r < WK_K_SLICES; r++)
        v[r] = r >= blocks   ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
               : blocks == 1 ? *reinterpret_cast<const float4 *>(shared + at)
                             : wk_int8_read(base + at, r);
    auto add = [](float4 &x, const float4 &y) {
        x = make_float4(__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y), __fadd_rn(x.z, y.z), __fadd_rn(x.w, y.w));
    };
#pragma unroll
    for (uint32_t apart = 1; apart < WK_K_SLICES; apart *= 2) {
        if (apart >= blocks) break;
#pragma unroll
        for (uint32_t r = 0; r < WK_K_SLICES; r += 2 * apart) add(v[r], v[r + apart]);
    }
    sum[0] = v[0].x, sum[1] = v[0].y, sum[2] = v[0].z, sum[3] = v[0].w;
}
/* The outputs go round among the warps of all blocks: four rows of weights of one row of activations a lane, eight rows
 * a warp. */
template <int NT>
__device__ __forceinline__ void wk_int8_finish(const wk_int8_args &a, const wk_int8_item &item,
                                               const unsigned char *shared, uint32_t base, uint32_t warp, uint32_t lane)
{
    constexpr uint32_t rows = NT * WK_INT8_RECORD_ROWS, eights = (rows + 7) / 8;
    const wk_product_args &p = a.p;
#pragma unroll 1
    for (uint32_t i = blockIdx.x % a.blocks + a.blocks * warp; i < item.count * eights; i += a.blocks * WK_INT8_TILES) {
        const uint32_t tile = i / eights, in = i % eights * 8 + lane / 4, row = blockIdx.y * rows + in,
                       warp_of = p.glu ? 2 * tile : tile;
        const uint32_t at = a.sums_at + ((warp_of * rows + min(in, rows - 1)) * 16 + lane % 4 * 4) * 4;
        const wk_four_at o = { item.seg, item.tile + tile, row, in < rows && row < p.rows };
        wk_four_more more = wk_four_ahead(p, o);
        float sum[4], up[4] = {};
        wk_int8_sum(sum, shared, base, at, a.blocks);
        if (p.glu) wk_int8_sum(up, shared, base, at + rows * 64, a.blocks);
        wk_four_output(p, o, more, sum, up);
    }
}

template <int NT, class... F>
__global__ void __launch_bounds__(WK_INT8_THREADS, WK_INT8_TOGETHER)
    wk_product_int8(const __grid_constant__ wk_int8_args a)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0),
                   base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_int8_bars bars = { base + a.bars_at };
    if (threadIdx.x < a.depth) {
        wk_bar_init(bars.full(threadIdx.x), WK_BAR_COPIES);
        wk_bar_init(bars.empty(threadIdx.x), WK_INT8_TILES * WK_BAR_WARP);
    }
    wk_bar_init_done();
    wk_release();
    __syncthreads();
    if (warp < WK_INT8_TILES) {
        wk_pipeline_state state = { 0, 0 };
#pragma unroll 1
        for (uint32_t i = blockIdx.x / a.blocks; i < p.items; i += gridDim.x / a.blocks) {
            const wk_int8_item item(p, i);
            wk_int8_multiply<NT, F...>(a, item, shared, bars, state, warp, lane);
            wk_int8_meet(a.blocks);
            wk_depend();
            wk_int8_finish<NT>(a, item, shared, base, warp, lane);
            wk_int8_meet(a.blocks); /* others read here */
        }
    } else {
#if WK_HAS_BULK_COPIES
        if (wk_elected()) wk_int8_stream<NT>(a, base, bars, lane);
        __syncwarp();
#else
        wk_int8_stream<NT>(a, base, bars, lane);
#endif
        if (a.blocks > 1) {
            wk_int8_meet(a.blocks);
            wk_int8_meet(a.blocks);
        }
    }
}

#endif
