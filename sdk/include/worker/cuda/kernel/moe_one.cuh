/* worker/cuda/kernel/moe_one.cuh: products of one row's experts: each item has an expert of its own, and which
 * item and which tiles of it a block has is known before the experts are.
 *
 * Block (rank, i) of a grid of top_k x workers has a run of work units, tiles (glu: pairs), of item `rank`. The
 * pipeline is that of kernel/moe_decode.cuh, but no two warps meet once the wait for the preceding launch has ended:
 * the streaming one reads the expert's number and asks for its tiles at once, the multiplying ones bring the input
 * meanwhile, of which all is known but what it holds. What lies between the wait and the first copy is time in which
 * memory does nothing: one journey, for the number.
 *
 * Order: that of part/weights.cuh. */
#ifndef WORKER_CUDA_KERNEL_MOE_ONE_CUH
#define WORKER_CUDA_KERNEL_MOE_ONE_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/experts.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/prologue.cuh>
#include <worker/cuda/part/ring.cuh>

/* A block's work units: the run of its item's. */
__device__ __forceinline__ wk_experts_walk wk_moe_one_walk(const wk_experts_args &a)
{
    const uint32_t each = a.p.items / gridDim.y, rest = a.p.items % gridDim.y;
    return { each + (blockIdx.y < rest ? 1 : 0), 0, 0, 0, 1, blockIdx.y * each + min(blockIdx.y, rest) };
}

/* By all warps, a lane each: one warp's lanes would take their turns at it, which costs a block that begins late more
 * than all else before its first copy. */
__device__ __forceinline__ void wk_moe_one_bars_init(const wk_experts_args &a, const wk_experts_bars &bars,
                                                     uint32_t warp, uint32_t lane)
{
    typedef wk_experts_shape<1> shape;
    const uint32_t rounds = a.p.depth * a.rounds, all = rounds + a.p.depth + 2 * shape::places;
    if (lane) return;
#pragma unroll 1
    for (uint32_t i = warp; i < all; i += shape::threads / 32) {
        const uint32_t j = i - rounds, k = j - a.p.depth;
        if (i < rounds)
            wk_bar_init(bars.full(i), WK_BAR_COPIES);
        else if (j < a.p.depth)
            wk_bar_init(bars.empty(j), WK_K_SLICES * WK_BAR_WARP);
        else if (k < shape::places)
            wk_bar_init(bars.summed(k), WK_K_SLICES * WK_BAR_WARP);
        else
            wk_bar_init(bars.finished(k - shape::places), WK_BAR_WARP);
    }
    wk_bar_init_done();
}

/* The expert of the block's item. */
__device__ __forceinline__ uint32_t wk_moe_one_expert(const wk_experts_args &a)
{
    if (!a.known) wk_depend();
    return __ldcg(a.chosen + blockIdx.x);
}

/* The streaming lane, where stages are runs of a tile's bytes. The wait stands between a barrier's count and its copy,
 * as if the expert were the first: so all that the first copy needs but the expert is there before, the instructions,
 * too. */
__device__ __forceinline__ void wk_moe_one_stream_whole(const wk_experts_args &a, const wk_experts_walk &walk,
                                                        uint32_t ring, const wk_experts_bars &bars)
{
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1, depth = p.depth, stage_bytes = p.stage_bytes, stages = p.stages,
                   rounds = a.rounds, bytes = stage_bytes / rounds;
    const uint32_t tile_bytes = p.seg[0].tile_bytes;
    const uint64_t once = wk_fetch_once();
    wk_pipeline_state now = { 0, 1 }, old = { 0, 0 }; /* a stage; a round */
    uint32_t more = p.stages_in_flight,
             expert = 0; /* more: rounds that may still be asked for before one has arrived */
    bool chosen = false;
#pragma unroll 1
    for (uint32_t work_unit = walk.tile, last = work_unit + walk.left; work_unit < last; work_unit++)
#pragma unroll 1
        for (uint32_t j = 0; j < in_item; j++) {
            uint32_t tile, s = wk_item_segment(p, work_unit, &tile);
            if (p.glu) s = j;
            const wk_segment_args &seg = p.seg[s];
            const unsigned char *from = seg.tiles + ((uint64_t)expert * seg.n_tiles + tile) * seg.tile_stride;
            const uint64_t slab = (uint64_t)seg.n_tiles * seg.tile_stride;
            uint32_t left = tile_bytes;
#pragma unroll 1
            for (uint32_t stage = stages; stage; stage--) {
                uint32_t full = bars.full(now.i * rounds), to = ring + now.i * stage_bytes;
                wk_stage_wait(bars.empty(now.i), now.parity);
#pragma unroll 1
                for (uint32_t r = rounds; r; r--) {
                    const uint32_t n = min(left, bytes);
                    if (more) {
                        more--;
                    } else {
                        wk_stage_wait(bars.full(old.i), old.parity);
                        old.next(depth * rounds);
                    }
                    wk_bar_expect(full, n);
                    if (!chosen) {
                        chosen = true;
                        expert = wk_moe_one_expert(a);
                        from += expert * slab;
                    }
                    wk_fetch(to, from, n, full, once);
                    to += bytes;
                    from += n;
                    left -= n;
                    full += 8;
                }
                now.next(depth);
            }
        }
}

/* A multiplying warp. */
template <class F>
__device__ __forceinline__ void wk_moe_one_multiply(const wk_experts_args &a, const wk_experts_walk &walk,
                                                    unsigned char *shared, const wk_experts_bars &bars, uint32_t warp,
                                                    uint32_t lane)
{
    typedef wk_experts_shape<1> shape;
    const wk_product_args &p = a.p;
    const uint32_t units = F::super == 2 ? 2 : p.stage_units, own = wk_own_k_steps(p, warp),
                   tiles = walk.left * (p.glu ? 2 : 1);
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at) + (warp << p.k_step_shift);
    wk_experts_ring ring = { shared + (uint32_t)F::offset(units) * warp, 0, { 0, 0 } };
    wk_pipeline_state sum = { 0, 1 };
    wk_one_act(p, shared, warp, lane, blockIdx.x / p.x_items);
    __syncwarp();
#pragma unroll 1
    for (uint32_t i = 0; i < tiles; i++) {
        float y[1][2][4] = {};
        if constexpr (F::super == 2) {
            wk_experts_tile<F, 1, 2>(y, a, ring, bars, x, own, lane);
        } else {
            if (4 * F::slot <= WK_STAGE_BYTES && units == 4)
                wk_experts_tile<F, 1, 4>(y, a, ring, bars, x, own, lane);
            else if (units == 2)
                wk_experts_tile<F, 1, 2>(y, a, ring, bars, x, own, lane);
            else
                wk_experts_tile<F, 1, 1>(y, a, ring, bars, x, own, lane);
        }
        wk_stage_wait(bars.finished(sum.i), sum.parity);
        unsigned char *const cell = shared + p.red_at + warp * shape::cell + sum.i * shape::place;
        if (lane % 4 == 0) {
            *reinterpret_cast<float *>(cell + lane) = __fadd_rn(y[0][0][0], y[0][1][0]);
            *reinterpret_cast<float *>(cell + lane + 32) = __fadd_rn(y[0][0][2], y[0][1][2]);
        }
        __syncwarp();
        wk_bar_arrive_warp(bars.summed(sum.i), lane);
        sum.next(shape::places);
    }
}

/* The finishing warp: 16 rows of a tile in 16 lanes, with glu the second segment's in the upper ones. What a work unit
 * reads besides sums is asked for one ahead. */
__device__ __forceinline__ void wk_moe_one_finish(const wk_experts_args &a, const wk_experts_walk &walk,
                                                  const unsigned char *shared, const wk_experts_bars &bars,
                                                  uint32_t lane)
{
    typedef wk_experts_shape<1> shape;
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1, last = walk.tile + walk.left;
    wk_touch_args(p);
    const uint32_t expert = wk_moe_one_expert(a);
    wk_depend();
    wk_release(); /* not before: what the launch before last has made is then known to the next one */
    wk_pipeline_state sum = { 0, 0 };
    wk_output_at o = {};
    o.r = lane % 16;
    o.on = lane < 16;
    o.row = blockIdx.x;
#pragma unroll 1
    for (uint32_t work_unit = walk.tile; work_unit < last; work_unit++) {
        o.seg = wk_item_segment(p, work_unit, &o.tile);
        const wk_place to(p, o, expert);
        const float other = to.ahead();
        wk_stage_wait(bars.summed(sum.i), sum.parity);
        if (p.glu) wk_stage_wait(bars.summed(sum.i + 1), sum.parity); /* pairs begin at even places */
        const float *const v =
            reinterpret_cast<const float *>(shared + p.red_at + (sum.i + (p.glu ? lane / 16 : 0)) * shape::place) + o.r;
        float sums[WK_K_SLICES];
#pragma unroll
        for (uint32_t k_slice = 0; k_slice < WK_K_SLICES; k_slice++) sums[k_slice] = v[k_slice * 16];
        const float s = wk_k_slices_sum(sums);
        __syncwarp();
        wk_bar_arrive_warp(bars.finished(sum.i), in_item, lane);
        to.put(p, o, other, s, p.glu ? __shfl_down_sync(0xffffffffu, s, 16) : 0.0f);
        for (uint32_t i = 0; i < in_item; i++) sum.next(shape::places);
    }
}

template <class F>
__global__ void __launch_bounds__(wk_experts_shape<1>::threads, wk_experts_shape<1>::blocks)
    wk_product_moe_one(const __grid_constant__ wk_experts_args a)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0),
                   base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_experts_bars bars = { base + a.p.bars_at };
    wk_moe_one_bars_init(a, bars, warp, lane);
    if (a.tail) wk_experts_zeros(a, shared, 1);
    __syncthreads();
    wk_experts_walk walk = wk_moe_one_walk(a);
    if (warp < WK_K_SLICES) {
        wk_moe_one_multiply<F>(a, walk, shared, bars, warp, lane);
    } else if (warp == WK_K_SLICES) {
        wk_moe_one_finish(a, walk, shared, bars, lane);
    } else if (!a.whole) {
        walk.expert = wk_moe_one_expert(a);
        wk_experts_stream<1>(a, walk, base, bars, lane);
    } else if (lane == 0) {
        wk_moe_one_stream_whole(a, walk, base, bars);
    }
}

#endif
