/* worker/cuda/kernel/gemv.cuh: products of 1 to 8 rows whose activations fit in shared memory.
 *
 * A block is a pipeline. One warp streams the block's tiles through a ring of stages in shared memory, as far ahead as
 * the ring is deep, across tiles and before the preceding launch has ended. Eight warps multiply: a stage holds a piece
 * of a K step for each of them; warp w has K slice w. One warp adds the eight sums of a tile, finishes the outputs
 * and stores them while the others are at the next tile. They meet only at barriers in memory, so none waits for more
 * than what it needs. */
#ifndef WORKER_CUDA_KERNEL_GEMV_CUH
#define WORKER_CUDA_KERNEL_GEMV_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/int8.cuh>
#include <worker/cuda/part/int8_grid.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/prologue.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>

enum {
    WK_GEMV_THREADS = 32 * (WK_K_SLICES + 2),
    WK_GEMV_ONE_STAGE = 4224, /* most bytes of a warp's part of a stage, of one row, where a K step can be cut: two
                                 units of BF16, which takes 264 us for 128256 x 4096 by one and 243 by two */
    WK_GEMV_DEPTH = 8,        /* most stages */
    WK_GEMV_SUMS = 4,         /* tiles whose sums may wait to be finished */
    WK_GEMV_BARS = 2 * (WK_GEMV_DEPTH + WK_GEMV_SUMS)
};

struct wk_gemv_bars : wk_pipeline_bars<WK_GEMV_DEPTH, WK_GEMV_SUMS> {
    /* By a lane of each warp: those of one warp would take turns. readers: warps that read a stage; sums: whether a
     * finishing warp waits for theirs. */
    __device__ __forceinline__ void init(uint32_t depth, uint32_t warp, uint32_t readers = WK_K_SLICES,
                                         bool sums = true) const
    {
        static_assert(WK_GEMV_DEPTH <= WK_K_SLICES && WK_GEMV_SUMS <= WK_K_SLICES, "a warp has one of each");
        if (warp < depth) {
            wk_bar_init(full(warp), WK_BAR_COPIES);
            wk_bar_init(empty(warp), readers * WK_BAR_WARP);
        }
        if (sums && warp < WK_GEMV_SUMS) {
            wk_bar_init(summed(warp), WK_K_SLICES * WK_BAR_WARP);
            wk_bar_init(finished(warp), WK_BAR_WARP);
        }
        wk_bar_init_done();
    }
};

/* The streaming warp. A stage: chunk w is a piece of K step w of eight K steps; or all of one round of eight K steps or
 * several. */
template <uint32_t UNIT>
__device__ __forceinline__ void wk_gemv_stream(const wk_product_args &p, uint32_t ring, const wk_gemv_bars &bars,
                                               uint32_t lane)
{
    const uint32_t in_item = p.glu ? 2 : 1;
    const bool cut = p.k % UNIT != 0; /* the last unit, which is multiplied as if it were whole */
    wk_pipeline_state state = { 0, 1 }, old = { 0, 0 };
    uint32_t more = p.stages_in_flight; /* stages that may still be asked for before one has arrived */
    for (uint32_t item = blockIdx.x; item < p.items; item += gridDim.x)
        for (uint32_t j = 0; j < in_item; j++) {
            uint32_t tile, s = wk_item_segment(p, item, &tile);
            if (p.glu) s = j;
            const wk_segment_args &seg = p.seg[s];
            const unsigned char *const from = seg.tiles + (uint64_t)tile * seg.tile_stride;
            const uint32_t apart = p.rounds * seg.k_step_bytes;
            uint32_t at = 0, left = p.run;
            for (uint32_t stage = 0; stage < p.stages; stage++) {
                __syncwarp(); /* one lane copies: another that fell a round of the ring behind would miss a barrier's
                                 parity, and wait for good */
                if (more) {
                    more--;
                } else {
                    wk_stage_wait(bars.full(old.i), old.parity);
                    old.next(p.depth);
                }
                wk_stage_wait(bars.empty(state.i), state.parity);
                wk_stage_copy8(ring + state.i * p.stage_bytes, from, at, seg.piece_bytes, apart, seg.tile_bytes,
                               cut ? p.k_steps * seg.k_step_bytes : seg.tile_bytes, bars.full(state.i), lane);
                at += seg.piece_bytes;
                if (--left == 0) {
                    left = p.run;
                    at += (WK_K_SLICES - 1) * apart;
                }
                state.next(p.depth);
            }
        }
}

/* One unit of a tile, at its place in the super-unit, times COLUMNS (1 or 8): y[accumulator] += . x: this lane's column
 * at the unit's first k. */
template <class F, int COLUMNS, uint32_t PLACE, bool WIDE_RANGE>
__device__ __forceinline__ void wk_gemv_unit(float y[2][4], const typename F::scales &s, const typename F::quants &q,
                                             const __half *x, uint32_t lane)
{
    const uint32_t t = lane % 4;
#pragma unroll
    for (uint32_t b = 0; b < F::unit / 32; b++) {
        uint32_t x4[4];
        wk_weights32<F> w;
        w.template make<WIDE_RANGE>(q, s, PLACE, b);
        wk_column_words<F>(x4, x, b, t);
        w.add(y, x4);
    }
}

/* The units from v on that share scales. */
template <class F, int COLUMNS, bool WIDE_RANGE>
__device__ __forceinline__ void wk_gemv_super(float y[2][4], typename F::scales &s, const unsigned char *at,
                                              const __half *x, uint32_t lane)
{
    typename F::quants q;
    F::load(q, at, 0, lane);
    wk_gemv_unit<F, COLUMNS, 0, WIDE_RANGE>(y, s, q, x, lane);
    if constexpr (F::super == 2) {
        F::load(s, at + F::offset(1), 1, lane);
        F::load(q, at + F::offset(1), 1, lane);
        wk_gemv_unit<F, COLUMNS, 1, WIDE_RANGE>(y, s, q, x + F::unit, lane);
    }
}
/* N units of a stage. Whether any has a wide range is asked once, so that those without, as a rule all, are one
 * run of instructions; else they are taken one by one. */
template <class F, int COLUMNS, uint32_t N>
__device__ __forceinline__ void wk_gemv_units(float y[2][4], const unsigned char *at, const __half *x, uint32_t lane)
{
    typename F::scales s[N / F::super];
    uint32_t wide_range = 0;
#pragma unroll
    for (uint32_t v = 0; v < N; v += F::super) {
        F::load(s[v / F::super], at + F::offset(v), 0, lane);
        wide_range |= wk_wide_range<F>(s[v / F::super]);
    }
    if (!wide_range) {
#pragma unroll
        for (uint32_t v = 0; v < N; v += F::super)
            wk_gemv_super<F, COLUMNS, false>(y, s[v / F::super], at + F::offset(v), x + v * F::unit, lane);
        return;
    }
    if constexpr (N == F::super) {
        wk_gemv_super<F, COLUMNS, true>(y, s[0], at, x, lane);
    } else {
#pragma unroll 1
        for (uint32_t v = 0; v < N; v += F::super)
            wk_gemv_units<F, COLUMNS, F::super>(y, at + F::offset(v), x + v * F::unit, lane);
    }
}

/* What a multiplying warp needs of the arguments, in registers before the wait: the compiler would read them again
 * where the first product waits for them, one way to the constants and back after the other. What comes out of shared
 * memory it cannot. */
struct wk_gemv_own {
    uint32_t k_steps, k_step_shift, stages, run, stage_units, stage_bytes, depth, items, x_at, red_at, k, in_item,
        rounds, k_slice_rotation;
    static __device__ __forceinline__ void leave(const wk_product_args &p, unsigned char *at) /* by one lane */
    {
        *reinterpret_cast<uint4 *>(at) = make_uint4(p.k_steps, p.k_step_shift, p.stages, p.run);
        *reinterpret_cast<uint4 *>(at + 16) = make_uint4(p.stage_units, p.stage_bytes, p.depth, p.items);
        *reinterpret_cast<uint4 *>(at + 32) =
            make_uint4(p.x_at, p.red_at, p.k, p.k_slice_rotation << 16 | p.rounds << 2 | (p.glu ? 2 : 1));
    }
    __device__ __forceinline__ explicit wk_gemv_own(uint32_t at)
    {
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(k_steps), "=r"(k_step_shift), "=r"(stages), "=r"(run)
                     : "r"(at));
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(stage_units), "=r"(stage_bytes), "=r"(depth), "=r"(items)
                     : "r"(at + 16));
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x_at), "=r"(red_at), "=r"(k), "=r"(k_slice_rotation)
                     : "r"(at + 32));
        in_item = k_slice_rotation & 3u;
        rounds = k_slice_rotation >> 2 & 0x3fffu;
        k_slice_rotation >>= 16;
    }
};

/* A piece of a K step, from k on: as many of its units as there are. x: the lane's column. */
template <class F, int COLUMNS>
__device__ __forceinline__ void wk_gemv_piece(float y[2][4], const wk_gemv_own &own, const unsigned char *at,
                                              const __half *x, uint32_t k, uint32_t lane)
{
    if (own.stage_units == 2 && k + F::unit < own.k) {
        wk_gemv_units<F, COLUMNS, 2>(y, at, x + k, lane);
    } else if (4 * F::slot <= WK_STAGE_BYTES && own.stage_units == 4 && k + 3 * F::unit < own.k) {
        wk_gemv_units<F, COLUMNS, 4>(y, at, x + k, lane);
    } else {
#pragma unroll 1
        for (uint32_t n = own.stage_units; n && k < own.k; n--, k += F::unit, at += F::slot)
            wk_gemv_units<F, COLUMNS, 1>(y, at, x + k, lane);
    }
}

/* Formats of integer products, of which this kernel has one row: what stands behind its blocks' bytes. */
struct wk_gemv_numbers {
    unsigned char *x, *sums;
    wk_int8_more *more;
    __device__ __forceinline__ wk_gemv_numbers(const wk_product_args &p, unsigned char *shared)
        : x(shared + p.x_at), sums(x + p.x_stride * 2),
          more(reinterpret_cast<wk_int8_more *>(sums + p.k_steps * WK_INT8_SUMS))
    {
    }
};
/* The warp's blocks of the row become integers, as format F has them. */
template <class F>
__device__ __forceinline__ void wk_gemv_int8(const wk_product_args &p, unsigned char *shared, uint32_t warp,
                                             uint32_t lane)
{
    const wk_gemv_numbers to(p, shared);
#pragma unroll 2
    for (uint32_t k_step = warp; k_step < p.k_steps; k_step += WK_K_SLICES) {
        unsigned char *const x = to.x + k_step * WK_INT8_BYTES;
        wk_int8_block<F>(reinterpret_cast<const uint4 *>(x)[lane], x, 128, to.more + k_step,
                         to.sums + k_step * WK_INT8_SUMS, lane);
    }
    __syncwarp();
}
/* A K slice's sums of a tile, of rows g and g + 8. table: of a format of grids (part/int8_grid.cuh), with TABLE. */
template <class F, bool TABLE>
__device__ __forceinline__ void wk_gemv_int8_k_slice(float y[2], const wk_gemv_own &own, const unsigned char *shared,
                                                     const unsigned char *table, const wk_gemv_bars &bars,
                                                     wk_pipeline_state &state, const wk_gemv_numbers &x,
                                                     uint32_t k_slice, uint32_t lane)
{
    constexpr uint32_t k_step_bytes = (uint32_t)F::offset(F::super);
    [[maybe_unused]] const wk_int8_grid_columns<wk_is_sixteens<F>()> columns(lane);
    uint32_t left = own.stages, k_step = k_slice;
#pragma unroll 1
    do {
        wk_stage_wait(bars.full(state.i), state.parity);
        const unsigned char *at = shared + state.i * own.stage_bytes + k_slice * k_step_bytes;
        uint32_t rounds = own.rounds;
#pragma unroll 1
        do {
            if (k_step < own.k_steps) {
                if constexpr (wk_is_int8_grid<F>())
                    wk_int8_grid_one<F, TABLE>(y, at, table, x.x + k_step * WK_INT8_BYTES, x.more + k_step, columns,
                                               lane);
                else
                    wk_int8_one<F>(y, at, x.x + k_step * WK_INT8_BYTES, x.more + k_step, x.sums + k_step * WK_INT8_SUMS,
                                   lane);
            }
            k_step += WK_K_SLICES;
            at += WK_K_SLICES * k_step_bytes;
        } while (--rounds);
        __syncwarp();
        wk_bar_arrive_warp(bars.empty(state.i), lane);
        state.next(own.depth);
    } while (--left);
}

/* The warp's sums y of a K slice to their place. INT8: of integer products, which have one accumulator. */
template <int COLUMNS, bool INT8>
__device__ __forceinline__ void wk_gemv_keep(float *to, const float (&y)[2][4], uint32_t lane)
{
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = INT8 ? y[0][i] : __fadd_rn(y[0][i], y[1][i]);
    if constexpr (COLUMNS == 1) {
        if (lane % 4 == 0) {
            to[0] = v[0];
            to[8] = v[2];
        }
    } else {
        *reinterpret_cast<float2 *>(to + lane % 4 * 2) = make_float2(v[0], v[1]);
        *reinterpret_cast<float2 *>(to + 8 * COLUMNS + lane % 4 * 2) = make_float2(v[2], v[3]);
    }
}

/* A multiplying warp. */
template <int COLUMNS, class... F>
__device__ __forceinline__ void wk_gemv_multiply(const wk_product_args &p, const wk_gemv_own &own,
                                                 unsigned char *shared, const unsigned char *table,
                                                 const wk_gemv_bars &bars, uint32_t warp, uint32_t lane)
{
    constexpr uint32_t super = wk_family<F...>::super, unit_k = wk_family<F...>::unit;
    constexpr bool int8 = (wk_is_int8<F>::yes && ...);
    static_assert(int8 ? COLUMNS == 1 : !(wk_is_int8<F>::yes || ...),
                  "all formats of a family have integer products, of one row here, or none has");
    const __half *const x = reinterpret_cast<const __half *>(shared + own.x_at) +
                            (COLUMNS == 1 ? 0 : min(lane / 4, p.rows - 1) * p.x_stride);
    float *const sums = reinterpret_cast<float *>(shared + own.red_at) + lane / 4 * COLUMNS;
    wk_pipeline_state state = { 0, 0 }, sum = { 0, 1 };
    uint32_t k_slice = warp, free = WK_GEMV_SUMS; /* places of sums that were never in use */
    for (uint32_t item = blockIdx.x; item < own.items; item += gridDim.x)
        for (uint32_t j = 0; j < own.in_item; j++) {
            uint32_t type = 0;
            if constexpr (sizeof...(F) > 1) {
                uint32_t tile, s = wk_item_segment(p, item, &tile);
                if (p.glu) s = j;
                type = p.seg[s].type;
            }
            float y[2][4] = {}; /* columns 2t, 2t + 1 of row g, and of row g + 8 */
            wk_for_type<F...>(type, [&](auto format) {
                using T = decltype(format);
                if constexpr (int8) {
                    float v[2] = {};
                    const wk_gemv_numbers numbers(p, shared);
                    if (wk_is_int8_grid<T>() && p.table_bytes)
                        wk_gemv_int8_k_slice<T, wk_is_int8_grid<T>()>(v, own, shared, table, bars, state, numbers,
                                                                      k_slice, lane);
                    else
                        wk_gemv_int8_k_slice<T, false>(v, own, shared, table, bars, state, numbers, k_slice, lane);
                    y[0][0] = v[0], y[0][2] = v[1];
                } else {
                    const uint32_t chunk = (uint32_t)T::offset(super == 2 ? 2 : own.stage_units) * k_slice;
                    uint32_t k = k_slice << own.k_step_shift, left = own.stages; /* k: the piece's first value */
                    [[maybe_unused]] uint32_t piece = own.run;
#pragma unroll 1
                    do {
                        wk_stage_wait(bars.full(state.i), state.parity);
                        const unsigned char *at = shared + state.i * own.stage_bytes + chunk;
                        uint32_t rounds = own.rounds;
#pragma unroll 1
                        do {
                            if constexpr (super == 2) {
                                if (k < own.k) wk_gemv_units<T, COLUMNS, 2>(y, at, x + k, lane);
                                k += WK_K_SLICES << own.k_step_shift;
                                at += (uint32_t)T::offset(2) * WK_K_SLICES;
                            } else {
                                wk_gemv_piece<T, COLUMNS>(y, own, at, x, k, lane);
                                k += own.stage_units * unit_k;
                                if (--piece == 0) {
                                    piece = own.run;
                                    k += (WK_K_SLICES - 1) << own.k_step_shift;
                                }
                                at += (uint32_t)T::offset(own.stage_units) * WK_K_SLICES;
                            }
                        } while (--rounds);
                        __syncwarp();
                        wk_bar_arrive_warp(bars.empty(state.i), lane);
                        state.next(own.depth);
                    } while (--left);
                }
            });
            if (free)
                free--;
            else
                wk_stage_wait(bars.finished(sum.i), sum.parity);
            wk_gemv_keep<COLUMNS, int8>(sums + (sum.i * WK_K_SLICES + k_slice) * 16 * COLUMNS, y, lane);
            __syncwarp();
            wk_bar_arrive_warp(bars.summed(sum.i), lane);
            sum.next(WK_GEMV_SUMS);
            k_slice = (k_slice + own.k_slice_rotation) % WK_K_SLICES;
        }
}

/* The sum of row r, column c of the tile whose sums are at place i. */
template <int COLUMNS>
__device__ __forceinline__ float wk_gemv_sum(const wk_product_args &p, const unsigned char *shared, uint32_t i,
                                             uint32_t r, uint32_t c)
{
    const float *const v =
        reinterpret_cast<const float *>(shared + p.red_at) + (i * WK_K_SLICES * 16 + r) * COLUMNS + c;
    float s[WK_K_SLICES];
#pragma unroll
    for (uint32_t k_slice = 0; k_slice < WK_K_SLICES; k_slice++) s[k_slice] = v[k_slice * 16 * COLUMNS];
    return wk_k_slices_sum(s);
}

/* The finishing warp: 16 rows of the item's tile in 16 lanes; one column: with glu the upper lanes add the second
 * segment's; more: two columns at a time. */
template <int COLUMNS, bool ANY>
__device__ __forceinline__ void wk_gemv_finish(const wk_product_args &p, const unsigned char *shared,
                                               const wk_gemv_bars &bars, uint32_t lane)
{
    const uint32_t in_item = p.glu ? 2 : 1;
    wk_pipeline_state sum = { 0, 0 };
    wk_output_at o;
    o.r = lane % 16;
    for (uint32_t item = blockIdx.x; item < p.items; item += gridDim.x) {
        const uint32_t first = sum.i; /* pairs begin at even places */
        o.seg = wk_item_segment(p, item, &o.tile);
        o.row = COLUMNS == 1 ? 0 : lane / 16;
        o.on = COLUMNS == 1 ? lane < 16 : o.row < p.rows;
        wk_place place(p, o);
        float other = place.ahead();
        wk_stage_wait(bars.summed(first), sum.parity);
        if (p.glu) wk_stage_wait(bars.summed(first + 1), sum.parity);
        if constexpr (COLUMNS == 1) {
            const float a = wk_gemv_sum<1>(p, shared, p.glu ? first + lane / 16 : first, o.r, 0);
            const float up = p.glu ? __shfl_down_sync(0xffffffffu, a, 16) : 0.0f;
            place.put<ANY>(p, o, other, a, up);
        } else {
#pragma unroll 1
            for (uint32_t c = 0; c < p.rows; c += 2) {
                const float a = wk_gemv_sum<COLUMNS>(p, shared, first, o.r, o.row),
                            up = p.glu ? wk_gemv_sum<COLUMNS>(p, shared, first + 1, o.r, o.row) : 0.0f;
                place.put<ANY>(p, o, other, a, up);
                o.row += 2;
                o.on = o.row < p.rows;
                if (c + 2 < p.rows) {
                    place = wk_place(p, o);
                    other = place.ahead();
                }
            }
        }
        __syncwarp();
        for (uint32_t i = 0; i < in_item; i++) {
            wk_bar_arrive_warp(bars.finished(first + i), lane);
            sum.next(WK_GEMV_SUMS);
        }
    }
}

/* Blocks that a multiprocessor's registers suffice for. One column of formats with a short way: three, so that beside
 * two of a launch there is room for one of the next, or of another kernel. With a table there is no room for a third.
 */
template <int COLUMNS, class... F> constexpr uint32_t wk_gemv_blocks()
{
    return COLUMNS == 1 && ((wk_has_f16_weights<F>::yes && !wk_is_exact<F>::yes && !wk_is_int8_grid<F>()) && ...) ? 3
                                                                                                                  : 2;
}

template <int COLUMNS, class... F>
__global__ void __launch_bounds__(WK_GEMV_THREADS, wk_gemv_blocks<COLUMNS, F...>())
    wk_product_gemv(const __grid_constant__ wk_product_args p)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const table = reinterpret_cast<unsigned char *>(wk_shared), *const shared = table + p.table_bytes;
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0),
                   base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_gemv_bars bars = { base + p.bars_at };
    if (lane == 0) bars.init(p.depth, warp);
    if (warp > WK_K_SLICES && lane == 0) wk_gemv_own::leave(p, shared + p.bars_at + WK_GEMV_BARS * 8);
    wk_release();
    __syncthreads();
    if (warp == WK_K_SLICES) {
        wk_gemv_stream<wk_family<F...>::unit>(p, base, bars, lane);
    } else if (warp > WK_K_SLICES) {
        wk_touch_args(p);
        wk_depend();
        if (p.way == WK_WAY_ANY) {
            wk_gemv_finish<COLUMNS, true>(p, shared, bars, lane);
            return;
        }
        wk_gemv_finish<COLUMNS, false>(p, shared, bars, lane);
    } else {
        const wk_gemv_own own(base + p.bars_at + WK_GEMV_BARS * 8);
        using first = typename wk_family<F...>::first;
        if constexpr (wk_is_int8_grid<first>())
            if (p.table_bytes) wk_int8_grid_fill<first>(table, warp * 32 + lane);
        wk_prologue<COLUMNS>(p, shared, warp, lane);
        if constexpr ((wk_is_int8<F>::yes || ...)) wk_gemv_int8<first>(p, shared, warp, lane);
        if (p.k_slice_rotation || p.table_bytes)
            wk_sync_k_slices(); /* warps change K slices: they read what others brought, and all read the table */
        wk_gemv_multiply<COLUMNS, F...>(p, own, shared, table, bars, warp, lane);
    }
}

/* ---- many tiles of a short k ---------------------------------------------------------------------------- */

/* wk_product_gemv_tall: products of one row with a great many tiles of a k so short that a K slice has one K step at
 * most: a vocabulary's, as a rule.
 *
 * Tiles of 8 to 14 KB come faster than eight warps can share each, wait for it and have their sums added by a ninth:
 * what they execute for that is as much again as the products. So here the stages of gemv's ring, a tile each,
 * are two warps' own: each warp has every other K slice, adds what it has in its lanes, and one of them adds both and
 * stores the outputs. Pairs do not wait for each other. Outputs are F32 with no more than a bias. Order of arithmetic:
 * part/weights.cuh. */
enum {
    WK_GEMV_TALL_PAIRS = WK_K_SLICES / 2, /* of a block */
    WK_GEMV_TALL_THREADS = 32 * (WK_K_SLICES + 1)
};
static_assert(WK_GEMV_DEPTH % WK_GEMV_TALL_PAIRS == 0,
              "a stage is always one pair's: tiles arrive in any order, and who "
              "waits for a stage has to know that the tile before had");

/* One of a pair's warps, which has half of the tree's leaves: K slices 0, 4, 2, 6, or 1, 5, 3, 7. UNITS: of a K step.
 */
template <class F, uint32_t UNITS>
__device__ __forceinline__ void wk_gemv_tall_multiply(const wk_product_args &p, unsigned char *shared,
                                                      const wk_gemv_bars &bars, uint32_t pair, uint32_t half,
                                                      uint32_t lane)
{
    const wk_segment_args &seg = p.seg[0];
    static_assert(F::unit % 64 == 0, "a K step has 1, 2 or 4 units");
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at);
    float *sums = reinterpret_cast<float *>(shared + p.red_at) + pair * 32 + lane % 16,
          *after = sums + 16; /* the first warp's, of 16 rows; two places by turns, so that they meet once a tile */
    const uint32_t k_steps = p.k_steps, n = seg.n, depth = p.depth;
    const float scale = seg.scale;
    wk_pipeline_state state = { pair, 0 };
#pragma unroll 1
    for (uint32_t tile = pair * gridDim.x + blockIdx.x; tile < p.items; tile += WK_GEMV_TALL_PAIRS * gridDim.x) {
        const uint32_t j = tile * 16 + lane % 16;
        const float bias = seg.bias && j < n ? __ldg(seg.bias + j) : 0.0f;
        float low = 0.0f, high = 0.0f; /* of rows g and g + 8: in even lanes of the warp's first two leaves, in odd ones
                                          of the others */
        const unsigned char *const at = shared + state.i * p.stage_bytes;
        wk_stage_wait(bars.full(state.i), state.parity);
#pragma unroll 1
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t k_step = wk_leaf_k_slice(4 * half + i);
            if (k_step >= k_steps) continue;
            float y[2][4] = {}; /* all columns are the same: every lane has the sums of its rows */
#pragma unroll
            for (uint32_t v = 0; v < UNITS; v += 2)
                wk_gemv_units<F, 1, UNITS == 1 ? 1 : 2>(y, at + k_step * (uint32_t)F::offset(UNITS) + F::offset(v),
                                                        x + (k_step * UNITS + v) * F::unit, lane);
            if (i / 2 == lane % 2) {
                low = __fadd_rn(low, __fadd_rn(y[0][0], y[1][0]));
                high = __fadd_rn(high, __fadd_rn(y[0][2], y[1][2]));
            }
        }
        __syncwarp();
        wk_bar_arrive_warp(bars.empty(state.i), lane);
        state.i += WK_GEMV_TALL_PAIRS;
        if (state.i >= depth) state = { pair, state.parity ^ 1u };
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
__global__ void __launch_bounds__(WK_GEMV_TALL_THREADS, 2)
    wk_product_gemv_tall(const __grid_constant__ wk_product_args p)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0),
                   base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_gemv_bars bars = { base + p.bars_at };
    if (lane == 0) bars.init(p.depth, warp, 2, false);
    wk_release();
    __syncthreads();
    if (warp == WK_K_SLICES) {
        wk_gemv_stream<F::unit>(p, base, bars, lane);
        return;
    }
    wk_prologue<1>(p, shared, warp, lane);
    wk_sync_k_slices(); /* a warp reads what others brought */
    const uint32_t pair = warp / 2, half = warp % 2;
    if constexpr (F::super == 2) {
        wk_gemv_tall_multiply<F, 2>(p, shared, bars, pair, half, lane);
    } else {
        if (p.k_step_units == 1)
            wk_gemv_tall_multiply<F, 1>(p, shared, bars, pair, half, lane);
        else if (p.k_step_units == 2)
            wk_gemv_tall_multiply<F, 2>(p, shared, bars, pair, half, lane);
        else
            wk_gemv_tall_multiply<F, 4>(p, shared, bars, pair, half, lane);
    }
}

#endif
