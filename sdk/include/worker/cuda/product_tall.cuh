/* worker/cuda/product_tall.cuh: products of one row with a great many tiles of a k so short that a slot has one step at
 * most: a vocabulary's, as a rule.
 *
 * Tiles of 8 to 14 KB come faster than eight warps can share each, wait for it and have their sums added by a ninth:
 * what they execute for that is as much again as the products. So here the stages of product_few's ring, a tile each,
 * are two warps' own: each warp has every other slot, adds what it has in its lanes, and one of them adds both and
 * stores the outputs. Pairs do not wait for each other. Outputs are F32 with no more than a bias. Order of arithmetic:
 * halves.cuh. */
#ifndef WORKER_CUDA_PRODUCT_TALL_CUH
#define WORKER_CUDA_PRODUCT_TALL_CUH

#include <worker/cuda/product_few.cuh>

enum {
    WK_TALL_PAIRS = WK_SLOTS / 2, /* of a block */
    WK_TALL_TILES = 4,            /* at least, of a pair */
    WK_TALL_THREADS = 32 * (WK_SLOTS + 1)
};
static_assert(WK_FEW_DEPTH % WK_TALL_PAIRS == 0, "a stage is always one pair's: tiles arrive in any order, and who "
                                                 "waits for a stage has to know that the tile before had");

/* One of a pair's warps, which has half of the tree's leaves: slots 0, 4, 2, 6, or 1, 5, 3, 7. UNITS: of a step. */
template <class F, uint32_t UNITS>
__device__ __forceinline__ void wk_tall_multiply(const wk_product_args &p, unsigned char *shared,
                                                 const wk_few_bars &bars, uint32_t pair, uint32_t half, uint32_t lane)
{
    const wk_segment_args &seg = p.seg[0];
    static_assert(F::unit % 64 == 0, "a step has 1, 2 or 4 units");
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at);
    float *sums = reinterpret_cast<float *>(shared + p.red_at) + pair * 32 + lane % 16,
          *after = sums + 16; /* the first warp's, of 16 rows; two places by turns, so that they meet once a tile */
    const uint32_t steps = p.steps, n = seg.n, depth = p.depth;
    const float scale = seg.scale;
    wk_turn turn = { pair, 0 };
#pragma unroll 1
    for (uint32_t tile = pair * gridDim.x + blockIdx.x; tile < p.items; tile += WK_TALL_PAIRS * gridDim.x) {
        const uint32_t j = tile * 16 + lane % 16;
        const float bias = seg.bias && j < n ? __ldg(seg.bias + j) : 0.0f;
        float low = 0.0f, high = 0.0f; /* of rows g and g + 8: in even lanes of the warp's first two leaves, in odd ones
                                          of the others */
        const unsigned char *const at = shared + turn.i * p.slot;
        wk_stage_wait(bars.full(turn.i), turn.parity);
#pragma unroll 1
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t step = wk_leaf_slot(4 * half + i);
            if (step >= steps) continue;
            float y[2][4] = {}; /* all columns are the same: every lane has the sums of its rows */
#pragma unroll
            for (uint32_t v = 0; v < UNITS; v += 2)
                wk_few_units<F, 1, UNITS == 1 ? 1 : 2>(y, at + step * (uint32_t)F::offset(UNITS) + F::offset(v),
                                                       x + (step * UNITS + v) * F::unit, lane);
            if (i / 2 == lane % 2) {
                low = __fadd_rn(low, __fadd_rn(y[0][0], y[1][0]));
                high = __fadd_rn(high, __fadd_rn(y[0][2], y[1][2]));
            }
        }
        __syncwarp();
        wk_bar_arrive_warp(bars.empty(turn.i), lane);
        turn.i += WK_TALL_PAIRS;
        if (turn.i >= depth) turn = { pair, turn.parity ^ 1u };
        low = __fadd_rn(low, __shfl_xor_sync(0xffffffffu, low, 1));
        high = __fadd_rn(high, __shfl_xor_sync(0xffffffffu, high, 1));
        const float mine = __shfl_sync(0xffffffffu, lane % 2 ? high : low, lane % 8 * 4 + lane / 8 % 2);
        if (!half && lane < 16) *sums = mine;
        asm volatile("bar.sync %0, 64;" ::"r"(2 + pair) : "memory");
        if (half && lane < 16 && j < n)
            static_cast<float *>(seg.y)[j] = __fadd_rn(__fmul_rn(__fadd_rn(*sums, mine), scale), bias);
        float *const last = sums;
        sums = after;
        after = last;
    }
}

template <class F>
__global__ void __launch_bounds__(WK_TALL_THREADS, 2) wk_product_tall(const __grid_constant__ wk_product_args p)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0),
                   base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_few_bars bars = { base + p.bars_at };
    if (lane == 0) bars.init(p.depth, warp, 2, false);
    wk_release();
    __syncthreads();
    if (warp == WK_SLOTS) {
        wk_few_stream<F::unit>(p, base, bars, lane);
        return;
    }
    wk_prologue<1>(p, shared, warp, lane);
    wk_sync_slots(); /* a warp reads what others brought */
    const uint32_t pair = warp / 2, half = warp % 2;
    if constexpr (F::super == 2) {
        wk_tall_multiply<F, 2>(p, shared, bars, pair, half, lane);
    } else {
        if (p.step_units == 1)
            wk_tall_multiply<F, 1>(p, shared, bars, pair, half, lane);
        else if (p.step_units == 2)
            wk_tall_multiply<F, 2>(p, shared, bars, pair, half, lane);
        else
            wk_tall_multiply<F, 4>(p, shared, bars, pair, half, lane);
    }
}

#endif
