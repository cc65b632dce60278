/* worker/cuda/product_few.cuh: products of 1 to 8 rows whose activations fit in shared memory.
 *
 * A block of 8 warps takes tile after tile; the warps share k: warp w has partitions w and w + 8, their steps by turns. Each warp streams its part of the tiles
 * through a ring of its own in shared memory, a few stages ahead, across tiles: the first stages are asked for before the wait for the preceding launch.
 * Several blocks share a multiprocessor, so that one finishes a tile while others multiply, and the next launch's blocks fill their rings as this
 * one's leave. */
#ifndef WORKER_CUDA_PRODUCT_FEW_CUH
#define WORKER_CUDA_PRODUCT_FEW_CUH

#include <worker/cuda/epilogue.cuh>
#include <worker/cuda/prologue.cuh>

enum { WK_FEW_STAGE = 2400 /* bytes */, WK_FEW_FLIGHT = 48 << 10 /* bytes a multiprocessor asks for ahead */, WK_FEW_THREADS = 256, WK_FEW_DEPTH = 8, WK_FEW_TILES = 4 /* most tiles between two barriers of a block */ };

/* x, where the compiler cannot make it again: it is kept in a register. */
__device__ __forceinline__ uint32_t wk_kept(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* Unit u of a tile times COLUMNS (1 or 8): y += . PLACE: u % super; x: this lane's column at the unit's first k. */
template <class F, int COLUMNS, uint32_t PLACE>
__device__ __forceinline__ void wk_few_unit(float *y, typename F::scales &s, const unsigned char *unit, uint32_t u, const __half *x, const wk_terms<F, COLUMNS> &terms, uint32_t lane)
{
    constexpr uint32_t groups = F::unit / F::group;
    const uint32_t t = lane % 4, first = u * groups;
    typename F::quants q;
    F::load(s, unit, PLACE, lane);
    F::load(q, unit, PLACE, lane);
#pragma unroll
    for (uint32_t b = 0; b < F::unit / 32; b++) {
        uint32_t a[F::parts][2][4], x4[4];
        F::fragments(q, b, a);
        if (F::group == 32) {
            const uint4 v = *reinterpret_cast<const uint4 *>(x + b * 32 + t * 8);
            x4[0] = v.x, x4[1] = v.y, x4[2] = v.z, x4[3] = v.w;
        } else {
            const uint2 v = *reinterpret_cast<const uint2 *>(x + b * 32 + t * 4), w = *reinterpret_cast<const uint2 *>(x + b * 32 + 16 + t * 4);
            x4[0] = v.x, x4[1] = v.y, x4[2] = w.x, x4[3] = w.y;
        }
#pragma unroll
        for (uint32_t h = 0; h < 32 / F::group; h++) {
            const uint32_t i = b * (32 / F::group) + h;
            const float2 scale = F::scale(s, i);
#pragma unroll
            for (uint32_t part = 0; part < F::parts; part++) {
                float c[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
                if constexpr (wk_terms<F, COLUMNS>::biased) {
                    if constexpr (COLUMNS == 1) {
                        const float4 v = reinterpret_cast<const float4 *>(terms.bias)[first + i];
                        c[0] = v.x, c[1] = v.y, c[2] = v.z, c[3] = v.w;
                    } else {
                        const float2 v = *reinterpret_cast<const float2 *>(terms.bias + (first + i) * COLUMNS + 2 * t);
                        c[0] = c[2] = v.x;
                        c[1] = c[3] = v.y;
                    }
                }
                wk_mma(c, a[part][h], x4[2 * h], x4[2 * h + 1]);
                if (F::group == 32) wk_mma(c, a[part][1], x4[2], x4[3]);
                float2 f = scale;
                if constexpr (F::parts > 1) f = make_float2(__fmul_rn(f.x, F::part_scale(part)), __fmul_rn(f.y, F::part_scale(part)));
                y[0] = __fmaf_rn(f.x, c[0], y[0]);
                if constexpr (COLUMNS == 1) {
                    y[1] = __fmaf_rn(f.y, c[2], y[1]);
                } else {
                    y[1] = __fmaf_rn(f.x, c[1], y[1]);
                    y[2] = __fmaf_rn(f.y, c[2], y[2]);
                    y[3] = __fmaf_rn(f.y, c[3], y[3]);
                }
            }
            if constexpr (F::mins == WK_MINS_GROUP) {
                const float2 m = F::min(s, PLACE, i);
                const float *sum = terms.min + (first + i) * COLUMNS + (COLUMNS == 1 ? 0 : 2 * t);
                y[0] = __fmaf_rn(-m.x, sum[0], y[0]);
                if constexpr (COLUMNS == 1) {
                    y[1] = __fmaf_rn(-m.y, sum[0], y[1]);
                } else {
                    y[1] = __fmaf_rn(-m.x, sum[1], y[1]);
                    y[2] = __fmaf_rn(-m.y, sum[0], y[2]);
                    y[3] = __fmaf_rn(-m.y, sum[1], y[3]);
                }
            }
        }
    }
    if constexpr (F::mins > WK_MINS_SUPER && PLACE == F::super - 1) { /* the super-unit's minima: integers times sums, on the tensor cores */
        {
            constexpr uint32_t n = F::mins - WK_MINS_SUPER;
            float c[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
            for (uint32_t j = 0; j < n; j++) {
                uint32_t a[4];
                F::min_fragment(s, j, lane, a);
                const float4 v = reinterpret_cast<const float4 *>(terms.min)[((u / F::super * n + j) * COLUMNS + (COLUMNS == 1 ? 0 : lane / 4)) * 4 + t];
                wk_mma_tf32(c, a, __float_as_uint(v.x), __float_as_uint(v.y));
                wk_mma_tf32(c, a, __float_as_uint(v.z), __float_as_uint(v.w));
            }
            const float2 m = F::min_scale(s);
            y[0] = __fmaf_rn(-m.x, c[0], y[0]);
            if constexpr (COLUMNS == 1) {
                y[1] = __fmaf_rn(-m.y, c[2], y[1]);
            } else {
                y[1] = __fmaf_rn(-m.x, c[1], y[1]);
                y[2] = __fmaf_rn(-m.y, c[2], y[2]);
                y[3] = __fmaf_rn(-m.y, c[3], y[3]);
            }
        }
    }
}

/* Experts: the block's item, and whose weights it takes; known only after the preceding launch. */
__device__ __forceinline__ uint32_t wk_item(const wk_product_args &p) { return p.first_row + blockIdx.y; }
__device__ __forceinline__ uint32_t wk_expert(const wk_product_args &p)
{
    return p.expert ? __ldcg(p.expert + (uint64_t)(wk_item(p) / p.top_k) * p.expert_stride + wk_item(p) % p.top_k) : 0;
}

/* Where a warp's stream of stages stands: tile after tile of the block, step after step of the warp's, stage after stage. */
struct wk_stream {
    const unsigned char *from;   /* the next stage */
    uint32_t bytes, run, steps;  /* of a stage; stages left in the step; steps left in the tile */
    uint32_t left, item, seg;    /* tiles left to the block; this one */
    int32_t there;               /* bytes from the stage to the tile's end */

    __device__ __forceinline__ void locate(const wk_product_args &p, uint32_t warp)
    {
        uint32_t i = item;
        if (!p.glu)
            for (seg = 0; seg + 1 < p.n_seg && item >= p.seg[seg].end; seg++) i = item - p.seg[seg].end;
        const wk_segment_args &s = p.seg[seg];
        const uint32_t at = warp * s.step_bytes;
        from = s.tiles + ((uint64_t)wk_expert(p) * s.n_tiles + i) * s.tile_bytes + at;
        there = (int32_t)((uint32_t)s.tile_bytes - at);
        bytes = s.stage_bytes;
        run = p.run;
        steps = wk_own_steps(p, warp);
    }
    __device__ __forceinline__ void begin(const wk_product_args &p, uint32_t warp)
    {
        item = blockIdx.x;
        seg = 0;
        left = warp < p.steps ? ((p.items - item - 1) / gridDim.x + 1) << (p.glu ? 1 : 0) : 0;
        locate(p, warp);
    }
    /* Asks for the next stage. */
    __device__ __forceinline__ void fetch(const wk_product_args &p, uint32_t to, uint32_t bar, uint32_t warp, uint32_t lane)
    {
        if (!left) return;
        wk_stage_copy(to, from, bytes, there, bar, lane);
        uint32_t on = bytes;
        if (!--run) {
            run = p.run;
            if (!--steps) {
                if (--left) {
                    if (p.glu) seg ^= 1u;
                    if (!p.glu || !seg) item += gridDim.x;
                    locate(p, warp);
                }
                return;
            }
            on += (WK_SLOTS - 1) * p.seg[seg].step_bytes;
        }
        from += on;
        there -= (int32_t)on;
    }
};

/* Output `id` of the round that begins with item `base`: 16 rows of a tile, then the columns, then the items. */
template <int COLUMNS> __device__ __forceinline__ wk_output_at wk_few_output(const wk_product_args &p, uint32_t id, uint32_t base, uint32_t rows)
{
    wk_output_at o;
    const uint32_t item = base + id / 16 / rows * gridDim.x;
    o.r = id % 16;
    o.row = COLUMNS == 1 ? wk_item(p) : id / 16 % rows;
    o.on = id < p.round * 16 * rows && item < p.items;
    o.seg = 0;
    o.tile = item;
    if (!p.glu)
        for (; o.seg + 1 < p.n_seg && item >= p.seg[o.seg].end; o.seg++) o.tile = item - p.seg[o.seg].end;
    return o;
}

/* Blocks a multiprocessor with one column: what the registers of their kernels allow. */
__host__ __device__ constexpr uint32_t wk_few_blocks(uint32_t super) { return super == 2 ? 2 : 3; }

template <int COLUMNS, class... F> __global__ void __launch_bounds__(WK_FEW_THREADS, COLUMNS == 1 ? wk_few_blocks(wk_family<F...>::super) : 2) wk_product_few(const __grid_constant__ wk_product_args p)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    constexpr uint32_t super = wk_family<F...>::super, unit_k = wk_family<F...>::unit;
    const uint32_t lane = wk_kept(threadIdx.x & 31u), warp = wk_kept(threadIdx.x / 32), t = lane % 4, g = lane / 4;
    const unsigned char *const ring = shared + warp * p.depth * p.slot;
    const uint32_t ring_at = (uint32_t)__cvta_generic_to_shared(ring), rows = COLUMNS == 1 ? 1 : p.rows;
    const uint32_t bars = (uint32_t)__cvta_generic_to_shared(shared + p.bars_at) + warp * p.depth * 8;
    if (lane < p.depth) wk_barrier_init(bars + lane * 8);
    __syncwarp();

    wk_stream f;
    wk_release();
    if (p.expert) wk_depend();
    f.begin(p, warp);
    for (uint32_t i = 0; i < p.depth; i++) f.fetch(p, ring_at + i * p.slot, bars + i * 8, warp, lane);
    if (!p.expert) wk_depend();
    wk_prologue<COLUMNS, F...>(p, shared, p.expert ? wk_item(p) / p.x_items : p.first_row, warp);

    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at) + (COLUMNS == 1 ? 0 : min(g, rows - 1) * p.x_stride);
    const uint32_t in_item = p.glu ? 2 : 1, outputs = p.round * 16 * rows;
    uint32_t now = 0, free = p.depth, parity = 0, turn = 0; /* stages: the next one to multiply, and the one before it; depth: none yet */
    for (uint32_t base = blockIdx.x; base < p.items; base += p.round * gridDim.x, turn++) {
        float *const half = reinterpret_cast<float *>(shared + p.red_at) + (turn & 1u) * WK_SLOTS * p.round * in_item * 16 * COLUMNS;
        /* The outputs of a round are finished by changing warps; what they read besides is asked for now. */
        const uint32_t id = (threadIdx.x + turn * 32) & (WK_FEW_THREADS - 1);
        wk_output_more more = { 0.0f, 0.0f };
        if (id < outputs) more = wk_output_ahead(p, wk_few_output<COLUMNS>(p, id, base, rows), wk_expert(p));

        for (uint32_t j = 0; j < p.round * in_item; j++) {
            const uint32_t tile = base + (p.glu ? j / 2 : j) * gridDim.x;
            if (tile >= p.items) break;
            uint32_t type = 0;
            if constexpr (sizeof...(F) > 1) {
                uint32_t s = p.glu ? j & 1u : 0;
                if (!p.glu)
                    for (; s + 1 < p.n_seg && tile >= p.seg[s].end; s++) { }
                type = p.seg[s].type;
            }
            constexpr int ny = COLUMNS == 1 ? 2 : 4;
            float y[ny] = {}, z[ny] = {}; /* of the partition that the next step is in, and of the other */
            wk_for_type<F...>(type, [&](auto format) {
                using T = decltype(format);
                const wk_terms<T, COLUMNS> terms(shared + p.terms_at[type], p.steps << p.step_shift);
                auto stage = [&]() { /* the next stage has arrived, and one is asked for in place of the last */
                    wk_stage_wait(bars + now * 8, parity);
                    __syncwarp();
                    if (free < p.depth) f.fetch(p, ring_at + free * p.slot, bars + free * 8, warp, lane);
                    const unsigned char *at = ring + now * p.slot;
                    free = now;
                    if (++now == p.depth) {
                        now = 0;
                        parity ^= 1u;
                    }
                    return at;
                };
#pragma unroll 1
                for (uint32_t step = warp; step < p.steps; step += WK_SLOTS) {
                    const __half *xs = x + (step << p.step_shift);
                    typename T::scales s;
                    if constexpr (super == 2) {
                        const unsigned char *at = stage();
                        wk_few_unit<T, COLUMNS, 0>(y, s, at, 2 * step, xs, terms, lane);
                        wk_few_unit<T, COLUMNS, 1>(y, s, at + T::offset(1), 2 * step + 1, xs + unit_k, terms, lane);
                    } else {
                        uint32_t u = step << p.step_shift >> wk_log2(unit_k);
#pragma unroll 1
                        for (uint32_t i = 0; i < p.run; i++) {
                            const unsigned char *at = stage();
#pragma unroll 1
                            for (uint32_t v = 0; v < p.stage_units; v++, u++) {
                                wk_few_unit<T, COLUMNS, 0>(y, s, at, u, xs, terms, lane);
                                at += T::slot;
                                xs += unit_k;
                            }
                        }
                    }
#pragma unroll
                    for (int i = 0; i < ny; i++) {
                        const float v = y[i];
                        y[i] = z[i];
                        z[i] = v;
                    }
                }
            });
#pragma unroll
            for (int i = 0; i < ny; i++) y[i] = __fadd_rn(y[i], z[i]);
            float *const mine = half + (j * WK_SLOTS + warp) * 16 * COLUMNS;
            if constexpr (COLUMNS == 1) {
                if (t == 0) {
                    mine[g] = y[0];
                    mine[g + 8] = y[1];
                }
            } else {
                *reinterpret_cast<float2 *>(mine + g * 8 + 2 * t) = make_float2(y[0], y[1]);
                *reinterpret_cast<float2 *>(mine + (g + 8) * 8 + 2 * t) = make_float2(y[2], y[3]);
            }
        }
        __syncthreads();
        if ((id & ~31u) < outputs) {
            const wk_output_at o = wk_few_output<COLUMNS>(p, id, base, rows);
            float sum[2] = { 0.0f, 0.0f };
            if (o.on) {
                const float *v = half + id / 16 / rows * in_item * WK_SLOTS * 16 * COLUMNS + o.r * COLUMNS + (COLUMNS == 1 ? 0 : o.row);
#pragma unroll
                for (uint32_t j = 0; j < 2; j++) {
                    if (j < in_item)
#pragma unroll
                        for (uint32_t i = 0; i < WK_SLOTS; i++) sum[j] = __fadd_rn(sum[j], v[i * 16 * COLUMNS]);
                    v += WK_SLOTS * 16 * COLUMNS;
                }
            }
            wk_output(p, o, more, sum[0], sum[1]);
        }
    }
}

#endif
