/* worker/cuda/kernel/lm_head.cuh: products of 17 to 64 rows with many tiles of a k so short that all activations of 32
 * rows fit in shared memory, on 9.0 and later.
 *
 * Two warps share a tile, all tiles at once: each has half of the K slices, one after the other, their sums added as
 * soon as they are there. So nothing is added across the block, and no warp waits for another but for the activations
 * and for its team, which shares the tile, with glu the gate's and the up's. Each streams its half through a ring of
 * its own, a K step a stage, in the order in which the tree wants the K slices: as soon as it has read a stage it
 * asks for the one that comes into its place. All of a block's activations are brought once: those that come by runs by
 * a few copies, else by all warps.
 *
 * Rows are groups of 8 NT with blocks of their own, which find the weights in L2. Order of arithmetic:
 * part/weights.cuh. */
#ifndef WORKER_CUDA_KERNEL_LM_HEAD_CUH
#define WORKER_CUDA_KERNEL_LM_HEAD_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/mma.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>

enum {
    WK_LM_HEAD_PARTS = 2, /* warps of a tile */
    WK_LM_HEAD_WARPS = 20 /* most of a block, as registers allow */
};

/* What lm_head is given. Shared memory, offsets in bytes from its start: at 0 the warps' rings; behind them
 * activations, sums, barriers of the rings, the barrier of activations. */
struct wk_lm_head_args {
    wk_product_args p;    /* items: tiles; glu: pairs */
    uint32_t depth;       /* stages of a warp's ring, at most WK_WARP_DEPTH */
    uint32_t stage_bytes; /* of a warp's ring: a K step of a tile */
    uint32_t bars_at, x_at;
    uint32_t leaves; /* K slices of a tile that a warp has, side by side in the tree of K slices */
    uint32_t sums_at;
    uint32_t x_bar_at; /* the barrier of activations that lie by runs */
};

/* What a warp asks for: K steps of its tiles, K slice after K slice. */
struct wk_lm_head_tiles {
    const unsigned char *from;    /* of the tile; not used where there is none */
    uint32_t unit, each;          /* the warp's tile of all (glu: pair); from one of its tiles to the next */
    uint32_t first, leaf, k_step; /* first: of its leaves; asked for next */
    uint32_t tile_bytes, k_step_bytes;
    uint32_t start, bars; /* addresses of the first stage and barrier of the warp's ring */
    __device__ __forceinline__ void locate(const wk_lm_head_args &a, uint32_t up)
    {
        const wk_product_args &p = a.p;
        leaf = first;
        k_step = wk_leaf_k_slice(leaf);
        if (unit >= p.items) return;
        uint32_t seg = up, tile = unit;
        if (!p.glu) wk_tile_segment(p, seg, tile);
        const wk_segment_args &s = p.seg[seg];
        from = s.tiles + (uint64_t)tile * s.tile_stride;
        tile_bytes = s.tile_bytes;
        k_step_bytes = s.k_step_bytes;
    }
    /* Asks for the next stage, to a place that all lanes have read; what lies past the end of k becomes zeros. */
    __device__ __forceinline__ void ask(const wk_lm_head_args &a, uint32_t to, uint32_t bar, uint32_t up, uint32_t lane)
    {
        if (unit >= a.p.items) return;
        const uint32_t at = k_step * k_step_bytes, bytes = min(k_step_bytes, tile_bytes - at);
        if (bytes < k_step_bytes) {
#pragma unroll 1
            for (uint32_t j = bytes + lane * 16; j < k_step_bytes; j += 512)
                asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to + j), "r"(0) : "memory");
            wk_publish();
            __syncwarp();
        }
        if (wk_elected()) {
            const uint64_t once = wk_fetch_once();
            wk_bar_expect(bar, bytes);
            wk_fetch(to, from + at, bytes, bar, once);
        }
        for (k_step += WK_K_SLICES; k_step >= a.p.k_steps;) {
            if (++leaf == first + a.leaves) {
                unit += each;
                locate(a, up);
                return;
            }
            k_step = wk_leaf_k_slice(leaf);
        }
    }
};

/* What is past the end of k is zeros. */
template <int NT>
__device__ __forceinline__ void wk_lm_head_zeros(const wk_product_args &p, uint32_t to, uint32_t warp, uint32_t lane)
{
    for (uint32_t i = to + (p.k32 / 32 * NT + warp) * 512 + lane * 16,
                  end = to + (p.k_steps << (p.k_step_shift - 5)) * NT * 512;
         i < end; i += blockDim.x / 32 * 512)
        asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(i), "r"(0) : "memory");
}

/* All activations of the block's columns that come by runs (quant_cuda.h): one warp asks, by few copies; all wait at
 * `bar`. */
template <int NT>
__device__ __forceinline__ void wk_lm_head_bring_runs(const wk_product_args &p, uint32_t to, uint32_t bar,
                                                      uint32_t warp, uint32_t lane)
{
    static_assert(NT == 4, "runs are of 32 rows");
    constexpr uint32_t run = NT * 512, at_once = 8;
    const uint32_t runs = p.k32 / 32;
    if (warp == 0 && lane == 0) {
        wk_bar_init(bar, 1);
        wk_bar_init_done();
        wk_bar_expect(bar, runs * run);
    }
    wk_lm_head_zeros<NT>(p, to, warp, lane);
    __syncthreads();
    wk_depend();
    if (warp == 0 && wk_elected()) {
        const unsigned char *from = static_cast<const unsigned char *>(p.in.x) + (uint64_t)blockIdx.y * runs * run;
        for (uint32_t i = 0; i < runs; i += at_once)
            wk_fetch(to + i * run, from + i * run, min(at_once, runs - i) * run, bar);
    }
    wk_stage_wait(bar, 0);
}

/* All activations of the block's columns, a run of 32 values after the other, placed as lanes read them
 * (kernel/stream.cuh). A column that is not there is the last one again. */
template <int NT, class... F>
__device__ __forceinline__ void wk_lm_head_bring(const wk_lm_head_args &a, uint32_t to, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t warps = blockDim.x / 32, runs = p.k32 / 32;
    uint32_t all = 0, place = to + wk_run_place(wk_family_group<F...>(p.seg[0].type), lane) + warp * NT * 512;
    uint64_t from[NT];
#pragma unroll
    for (uint32_t n = 0; n < NT; n++) {
        from[n] = reinterpret_cast<uint64_t>(static_cast<const __half *>(p.in.x) +
                                             (uint64_t)min((blockIdx.y * NT + n) * 8 + lane / 4, p.rows - 1) * p.k32 +
                                             lane % 4 * 8 + warp * 32);
        all ^= (uint32_t)from[n] ^ (uint32_t)(from[n] >> 32);
    }
    wk_lm_head_zeros<NT>(p, to, warp, lane);
    wk_at_hand(all ^ place ^ runs);
    wk_depend();
    if (p.in.row_index) {
#pragma unroll
        for (uint32_t n = 0; n < NT; n++)
            from[n] = reinterpret_cast<uint64_t>(
                static_cast<const __half *>(p.in.x) +
                (uint64_t)__ldg(p.in.row_index + min((blockIdx.y * NT + n) * 8 + lane / 4, p.rows - 1)) * p.k32 +
                lane % 4 * 8 + warp * 32);
    }
#pragma unroll 1
    for (uint32_t i = warp; i < runs; i += warps, place += warps * NT * 512) {
#pragma unroll
        for (uint32_t n = 0; n < NT; n++) {
            wk_copy16(place + n * 512, reinterpret_cast<const void *>(from[n]));
            from[n] += warps * 64;
        }
    }
}

template <class T, int NT, bool WIDE_RANGE>
__device__ __forceinline__ void wk_lm_head_unit(float (&c)[2][NT][4], const typename T::scales &s,
                                                const unsigned char *w, const wk_run_words<T, NT> &x, uint32_t lane)
{
    static_assert(T::super == 1, "units stand alone");
    typename T::quants q;
    T::load(q, w, 0, lane);
#pragma unroll
    for (uint32_t b = 0; b < T::unit / 32; b++) {
        uint32_t v[1][2][4];
        uint4 y[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) y[n] = x.read(b, n);
        wk_f16_weights<T, WIDE_RANGE>(q, s, 0, b, v);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            wk_mma(c[0][n], v[0][0], y[n].x, y[n].y);
            wk_mma(c[1][n], v[0][1], y[n].z, y[n].w);
        }
    }
}

/* The sum of the warp's K slices of its tile, left at `own`: a cell for each 8 columns, 16 bytes a lane. Sums of 1 and
 * 2 K slices wait there and behind it: between K slices no registers are needed, and few instructions. */
template <class T, int NT>
__device__ __forceinline__ void wk_lm_head_sums(const wk_lm_head_args &a, unsigned char *shared, uint32_t base,
                                                wk_lm_head_tiles &tiles, wk_warp_ring &ring, uint32_t up,
                                                unsigned char *own, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const wk_run_words<T, NT> xs(shared + a.x_at, lane);
#pragma unroll 1
    for (uint32_t leaf = 0; leaf < a.leaves; leaf++) {
        float c[2][NT][4] = {};
#pragma unroll 1
        for (uint32_t k_step = wk_leaf_k_slice(tiles.first + leaf); k_step < p.k_steps; k_step += WK_K_SLICES) {
            wk_run_words<T, NT> x = xs.runs(k_step << (p.k_step_shift - 5));
            const unsigned char *w = shared + (ring.at - base);
            wk_stage_wait(ring.bar, ring.parity);
#pragma unroll 1
            for (uint32_t u = p.k_step_units; u; u--, w += T::offset(1), x = x.runs(T::unit / 32)) {
                typename T::scales s;
                T::load(s, w, 0, lane);
                if (wk_wide_range<T>(s))
                    wk_lm_head_unit<T, NT, true>(c, s, w, x, lane);
                else
                    wk_lm_head_unit<T, NT, false>(c, s, w, x, lane);
            }
            __syncwarp();
            tiles.ask(a, ring.at, ring.bar, up, lane);
            ring.next(a.stage_bytes, tiles.start, tiles.bars, a.depth);
        }
#pragma unroll
        for (int i = 0; i < 4 * NT; i++) c[0][i / 4][i % 4] = __fadd_rn(c[0][i / 4][i % 4], c[1][i / 4][i % 4]);
        float4 *at = reinterpret_cast<float4 *>(own);
#pragma unroll 1
        for (uint32_t l = leaf; l & 1u; l >>= 1, at += NT * 32) {
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const float4 v = at[n * 32];
                c[0][n][0] = __fadd_rn(v.x, c[0][n][0]);
                c[0][n][1] = __fadd_rn(v.y, c[0][n][1]);
                c[0][n][2] = __fadd_rn(v.z, c[0][n][2]);
                c[0][n][3] = __fadd_rn(v.w, c[0][n][3]);
            }
        }
        if (leaf + 1 == a.leaves) at = reinterpret_cast<float4 *>(own);
#pragma unroll
        for (int n = 0; n < NT; n++) at[n * 32] = make_float4(c[0][n][0], c[0][n][1], c[0][n][2], c[0][n][3]);
    }
}

template <int NT, class... F>
__global__ void __launch_bounds__(32 * WK_LM_HEAD_WARPS, 1)
    wk_product_lm_head(const __grid_constant__ wk_lm_head_args a)
{
    extern __shared__ uint4 wk_shared[];
    const wk_product_args &p = a.p;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(wk_shared), lane = threadIdx.x & 31u,
                   warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const uint32_t team_shift = p.glu ? 2 : 1, team = 1u << team_shift, group = warp >> team_shift,
                   member = warp & (team - 1), up = member / WK_LM_HEAD_PARTS;
    wk_warp_ring ring;
    wk_lm_head_tiles tiles;
    ring.parity = 1;
    tiles.start = base + warp * a.depth * a.stage_bytes;
    tiles.bars = base + a.bars_at + warp * WK_WARP_DEPTH * 8;
    ring.begin(tiles.start, tiles.bars, a.depth);
    if (lane < a.depth) wk_bar_init(ring.bar + lane * 8, 1);
    wk_bar_init_done();
    __syncwarp();
    tiles.first = member % WK_LM_HEAD_PARTS * a.leaves;
    tiles.unit = group * gridDim.x + blockIdx.x;
    tiles.each = p.items; /* no second one */
    const uint32_t unit = tiles.unit;
    tiles.locate(a, up);
#pragma unroll 1
    for (uint32_t i = a.depth; i; i--) {
        tiles.ask(a, ring.at, ring.bar, up, lane);
        ring.next(a.stage_bytes, tiles.start, tiles.bars, a.depth);
    }
    wk_release();
    if (p.in.kind == WK_CUDA_IN_RUNS) {
        wk_lm_head_bring_runs<NT>(p, base + a.x_at, base + a.x_bar_at, warp, lane);
    } else {
        wk_lm_head_bring<NT, F...>(a, base + a.x_at, warp, lane);
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
    }
    if (unit >= p.items) return;
    const uint32_t kept = NT * 512 * 2, t = lane / 8, q = lane % 4;
    unsigned char *const own = shared + a.sums_at + warp * kept;
    const unsigned char *at = own - member * kept + member * 512 + t * 128 + ((q & 1u) * 4 ^ (2 * t & 4u)) * 16 +
                              q / 2 * 8 + (lane / 4 & 1u) * 4;
    uint32_t seg = 0, tile = unit;
    if (!p.glu) wk_tile_segment(p, seg, tile);
    wk_for_type<F...>(sizeof...(F) > 1 ? p.seg[seg].type : 0, [&](auto format) {
        wk_lm_head_sums<decltype(format), NT>(a, shared, base, tiles, ring, up, own + wk_in_cell(lane / 4, lane % 4),
                                              lane);
    });
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "r"(32 * team) : "memory"); /* the team's sums are there */
#pragma unroll 1
    for (uint32_t n = member; n < NT; n += team, at += team * 512) {
        float value[4], other[4] = {};
        const uint32_t row = (blockIdx.y * NT + n) * 8 + lane / 4;
        const wk_four_at o = { seg, tile, row, row < p.rows };
        wk_four_more more = wk_four_ahead(p, o);
        auto four = [&](float(&v)[4], const unsigned char *from) {
#pragma unroll
            for (uint32_t r = 0; r < 4; r++) {
                const unsigned char *const place = from + (r ^ (2 * t & 2u)) * 16;
                v[r] =
                    __fadd_rn(*reinterpret_cast<const float *>(place), *reinterpret_cast<const float *>(place + kept));
            }
        };
        four(value, at);
        if (p.glu) four(other, at + WK_LM_HEAD_PARTS * kept);
        wk_four_output<true>(p, o, more, value, other);
    }
}

#endif
