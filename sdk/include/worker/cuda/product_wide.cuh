/* worker/cuda/product_wide.cuh: products of 2 to 64 rows, activations straight from global memory.
 *
 * A block of 8 warps takes two tiles at a time (of neighbouring rows; with glu one of each segment); the warps share k as the partitions say, so a
 * fragment of activations in registers serves both tiles. Weights, and the activations' sums with them, come through the warp's ring. */
#ifndef WORKER_CUDA_PRODUCT_WIDE_CUH
#define WORKER_CUDA_PRODUCT_WIDE_CUH

#include <worker/cuda/epilogue.cuh>
#include <worker/cuda/prologue.cuh>

enum { WK_WIDE_THREADS = 256, WK_WIDE_WARPS = 8, WK_WIDE_TILES = 2 };

/* Shared memory of one warp and of the block, in bytes. slot: of the ring for one tile. */
__host__ __device__ constexpr uint32_t wk_wide_stage(uint32_t slot, uint32_t unit, uint32_t columns) { return WK_WIDE_TILES * slot + columns * (unit / 2); }
__host__ __device__ constexpr uint32_t wk_wide_red(uint32_t columns) { return WK_SLOTS * WK_WIDE_TILES * 16 * (columns + 8) * 4; }

/* Activations of 32 values of k of the lane's column of each of NT column tiles. */
template <int NT, uint32_t GROUP> struct wk_wide_b {
    uint4 v[NT];
    __device__ __forceinline__ void load(const __half *x, const uint32_t row[NT], uint32_t k, uint32_t k32, uint32_t t)
    {
        if (k < k32) {
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const __half *at = x + row[n] + k;
                if (GROUP == 32) {
                    v[n] = *reinterpret_cast<const uint4 *>(at + t * 8);
                } else {
                    const uint2 a = *reinterpret_cast<const uint2 *>(at + t * 4), b = *reinterpret_cast<const uint2 *>(at + 16 + t * 4);
                    v[n] = make_uint4(a.x, a.y, b.x, b.y);
                }
            }
        } else {
#pragma unroll
            for (int n = 0; n < NT; n++) v[n] = make_uint4(0, 0, 0, 0);
        }
    }
};

/* 32 values of k: both tiles times all columns. i: the block's first group in the unit. */
template <class F, int NT>
__device__ __forceinline__ void wk_wide_block(float y[WK_WIDE_TILES][NT][4], const typename F::scales s[WK_WIDE_TILES], const uint32_t a[WK_WIDE_TILES][F::parts][2][4],
                                              const wk_wide_b<NT, F::group> &x, const wk_terms<F, 8 * NT> &terms, uint32_t u, uint32_t i, uint32_t t)
{
#pragma unroll
    for (uint32_t h = 0; h < 32 / F::group; h++) {
        float2 scale[WK_WIDE_TILES], low[WK_WIDE_TILES];
#pragma unroll
        for (int m = 0; m < WK_WIDE_TILES; m++) {
            scale[m] = F::scale(s[m], i + h);
            if constexpr (F::mins == WK_MINS_GROUP) low[m] = F::min(s[m], u, i + h);
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float2 bias = make_float2(0.0f, 0.0f);
            if constexpr (wk_terms<F, 8 * NT>::biased) bias = *reinterpret_cast<const float2 *>(terms.bias + (i + h) * 8 * NT + n * 8 + 2 * t);
#pragma unroll
            for (int m = 0; m < WK_WIDE_TILES; m++) {
#pragma unroll
                for (uint32_t part = 0; part < F::parts; part++) {
                    float c[4] = { bias.x, bias.y, bias.x, bias.y };
                    if (h == 0) wk_mma(c, a[m][part][0], x.v[n].x, x.v[n].y);
                    else wk_mma(c, a[m][part][1], x.v[n].z, x.v[n].w);
                    if (F::group == 32) wk_mma(c, a[m][part][1], x.v[n].z, x.v[n].w);
                    float2 f = scale[m];
                    if constexpr (F::parts > 1) f = make_float2(__fmul_rn(f.x, F::part_scale(part)), __fmul_rn(f.y, F::part_scale(part)));
                    y[m][n][0] = __fmaf_rn(f.x, c[0], y[m][n][0]);
                    y[m][n][1] = __fmaf_rn(f.x, c[1], y[m][n][1]);
                    y[m][n][2] = __fmaf_rn(f.y, c[2], y[m][n][2]);
                    y[m][n][3] = __fmaf_rn(f.y, c[3], y[m][n][3]);
                }
                if constexpr (F::mins == WK_MINS_GROUP) {
                    const float2 sum = *reinterpret_cast<const float2 *>(terms.min + (i + h) * 8 * NT + n * 8 + 2 * t);
                    y[m][n][0] = __fmaf_rn(-low[m].x, sum.x, y[m][n][0]);
                    y[m][n][1] = __fmaf_rn(-low[m].x, sum.y, y[m][n][1]);
                    y[m][n][2] = __fmaf_rn(-low[m].y, sum.x, y[m][n][2]);
                    y[m][n][3] = __fmaf_rn(-low[m].y, sum.y, y[m][n][3]);
                }
            }
        }
    }
}

/* The minima of a super-unit whose sums' terms are complete. */
template <class F, int NT>
__device__ __forceinline__ void wk_wide_mins(float y[WK_WIDE_TILES][NT][4], const typename F::scales s[WK_WIDE_TILES], const wk_terms<F, 8 * NT> &terms, uint32_t lane)
{
    constexpr uint32_t n_j = F::mins - WK_MINS_SUPER;
    uint32_t a[WK_WIDE_TILES][n_j][4];
    float2 scale[WK_WIDE_TILES];
#pragma unroll
    for (int m = 0; m < WK_WIDE_TILES; m++) {
        scale[m] = F::min_scale(s[m]);
#pragma unroll
        for (uint32_t j = 0; j < n_j; j++) F::min_fragment(s[m], j, lane, a[m][j]);
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float c[WK_WIDE_TILES][4] = {};
#pragma unroll
        for (uint32_t j = 0; j < n_j; j++) {
            const float4 v = reinterpret_cast<const float4 *>(terms.min)[(j * 8 * NT + n * 8 + lane / 4) * 4 + lane % 4];
#pragma unroll
            for (int m = 0; m < WK_WIDE_TILES; m++) {
                wk_mma_tf32(c[m], a[m][j], __float_as_uint(v.x), __float_as_uint(v.y));
                wk_mma_tf32(c[m], a[m][j], __float_as_uint(v.z), __float_as_uint(v.w));
            }
        }
#pragma unroll
        for (int m = 0; m < WK_WIDE_TILES; m++) {
            y[m][n][0] = __fmaf_rn(-scale[m].x, c[m][0], y[m][n][0]);
            y[m][n][1] = __fmaf_rn(-scale[m].x, c[m][1], y[m][n][1]);
            y[m][n][2] = __fmaf_rn(-scale[m].y, c[m][2], y[m][n][2]);
            y[m][n][3] = __fmaf_rn(-scale[m].y, c[m][3], y[m][n][3]);
        }
    }
}

/* A pair of tiles: where they are. */
struct wk_wide_item {
    uint32_t seg, tile, n_tiles;  /* n_tiles: 1 or 2 of this segment; with glu tile `tile` of both segments */
    uint32_t type, bytes;
    const unsigned char *at[WK_WIDE_TILES];
    __device__ __forceinline__ void locate(const wk_product_args &p, uint32_t item)
    {
        seg = 0;
        if (!p.glu)
            for (uint32_t first = item; seg + 1 < p.n_seg && first >= p.seg[seg].end;) item = first - p.seg[seg++].end;
        const wk_segment_args &s = p.seg[seg], &up = p.seg[p.glu ? 1 : seg];
        tile = p.glu ? item : item * WK_WIDE_TILES;
        n_tiles = p.glu || tile + 1 == s.n_tiles ? 1 : 2;
        type = s.type;
        bytes = (uint32_t)s.tile_bytes;
        at[0] = s.tiles + tile * s.tile_bytes;
        at[1] = up.tiles + (p.glu ? tile : tile + n_tiles - 1) * up.tile_bytes;
    }
};

struct wk_wide_stream {
    wk_wide_item now;
    uint32_t item, unit;
    /* The warp's first unit of an item is that of partition `warp`; after partition warp's last step comes partition warp + 8. */
    __device__ __forceinline__ void begin(const wk_product_args &p, uint32_t warp)
    {
        item = blockIdx.x;
        if (warp >= p.steps) item = p.items;
        if (item < p.items) now.locate(p, item);
        unit = warp * p.step_units;
    }
};

/* Unit that follows `unit`: in its step, else the next step of its partition, else the first of the warp's other one, else (returns false) of the next item. shift: log2 of
 * the units in a step. */
__device__ __forceinline__ bool wk_wide_next(const wk_product_args &p, uint32_t warp, uint32_t shift, uint32_t &unit)
{
    if (++unit & ((1u << shift) - 1)) return true;
    uint32_t step = (unit >> shift) - 1;
    const bool second = step % WK_PARTITIONS != warp;
    step += WK_PARTITIONS;
    bool more = true;
    if (step >= p.steps) {
        step = warp + WK_WIDE_WARPS;
        if (second || step >= p.steps) {
            step = warp;
            more = false;
        }
    }
    unit = step << shift;
    return more;
}

template <int NT, class... F> __global__ void __launch_bounds__(WK_WIDE_THREADS, 1) wk_product_wide(const __grid_constant__ wk_product_args p)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    constexpr uint32_t columns = 8 * NT;
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32, t = lane % 4, g = lane / 4;
    const uint32_t shift = p.step_shift - wk_log2(wk_family<F...>::unit), column0 = blockIdx.y * columns, rows = min(p.rows - column0, columns), ring_bytes = p.depth * p.slot;
    const unsigned char *const ring = shared + warp * ring_bytes;
    const uint32_t ring_at = (uint32_t)__cvta_generic_to_shared(ring);
    const __half *const x = static_cast<const __half *>(p.in.x);

    uint32_t sum_row[NT > 4 ? NT / 4 : 1]; /* of column lane + 32 j: where its sums begin */
    uint32_t row[NT];                      /* of this lane's column of each column tile: where its values begin */
    wk_wide_stream f;

    auto weights = [&](uint32_t at) {
        wk_for_type<F...>(f.now.type, [&](auto format) {
            using T = decltype(format);
            const uint32_t first = (uint32_t)T::offset(f.unit), last = (uint32_t)T::offset(f.unit + 1);
#pragma unroll
            for (int m = 0; m < WK_WIDE_TILES; m++)
#pragma unroll 2
                for (uint32_t i = first + lane * 16; i < last; i += 512)
                    wk_copy16_part(ring_at + at + m * T::slot + (i - first), f.now.at[m] + (i < f.now.bytes ? i : 0), i < f.now.bytes ? 16 : 0);
        });
    };
    auto sums = [&](uint32_t at, uint32_t unit) { /* column c's at c * unit / 2 bytes behind the tiles */
        wk_for_type<F...>(f.now.type, [&](auto format) {
            using T = decltype(format);
#pragma unroll
            for (uint32_t j = 0; j < (columns + 31) / 32; j++) {
                const uint32_t c = lane + 32 * j;
                if (c < columns) {
#pragma unroll
                    for (uint32_t i = 0; i < T::unit / 32; i++) {
                        const uint32_t k = unit * T::unit + i * 32;
                        wk_copy16_part(ring_at + at + WK_WIDE_TILES * T::slot + c * (T::unit / 2) + i * 16, p.in.aux + (k < p.k32 ? sum_row[j] + k / 8 : 0), k < p.k32 ? 16 : 0);
                    }
                }
            }
        });
    };

    f.begin(p, warp);
    wk_wide_stream late = f; /* where the sums of the stages asked for before the wait belong */
    wk_release();
    for (uint32_t i = 0; i + 1 < p.depth && f.item < p.items; i++) {
        weights(i * p.slot);
        if (!wk_wide_next(p, warp, shift, f.unit)) {
            f.item += gridDim.x;
            if (f.item < p.items) f.now.locate(p, f.item);
        }
    }
    wk_depend();
#pragma unroll
    for (uint32_t j = 0; j < (columns + 31) / 32; j++) sum_row[j] = wk_input_row(p, column0 + min(lane + 32 * j, rows - 1)) * (p.k32 / 8);
#pragma unroll
    for (int n = 0; n < NT; n++) row[n] = wk_input_row(p, column0 + min(n * 8 + g, rows - 1)) * p.k32;
    for (uint32_t i = 0; i + 1 < p.depth; i++) {
        if (late.item < p.items) {
            sums(i * p.slot, late.unit);
            if (!wk_wide_next(p, warp, shift, late.unit)) late.item += gridDim.x;
        }
        wk_copy_commit();
    }

    float *const red = reinterpret_cast<float *>(shared + p.red_at);
    float *const slot = red + warp * WK_WIDE_TILES * 16 * (columns + 8) + g * (columns + 8) + 2 * t;
    uint32_t from = 0;
    for (uint32_t item = blockIdx.x; item < p.items; item += gridDim.x) {
        uint32_t type;
        {
            wk_wide_item of;
            of.locate(p, item);
            type = of.type;
        }
        wk_for_type<F...>(type, [&](auto format) {
            using T = decltype(format);
            unsigned char *const own = shared + p.terms_at[0] + warp * wk_terms_bytes<T>(T::unit * T::super, columns);
            const wk_terms<T, columns> terms(own, T::unit * T::super);
            constexpr uint32_t blocks = T::unit / 32, groups = T::unit / T::group;
            wk_wide_b<NT, T::group> b[2];
            b[0].load(x, row, warp * p.step_units * T::unit, warp < p.steps ? p.k32 : 0, t);
#pragma unroll 1
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t partition = warp + half * WK_WIDE_WARPS;
                float y[WK_WIDE_TILES][NT][4] = {};
#pragma unroll 1
                for (uint32_t unit = partition * p.step_units, end = unit + p.step_units; partition < p.steps;) {
                    typename T::scales s[WK_WIDE_TILES];
#pragma unroll 1
                    for (; unit < end; unit++) {
                        wk_copy_wait(p.depth - 2);
                        __syncwarp();
                        if (f.item < p.items) {
                            const uint32_t to = (from ? from : ring_bytes) - p.slot; /* the stage before, which is free */
                            weights(to);
                            sums(to, f.unit);
                            if (!wk_wide_next(p, warp, shift, f.unit)) {
                                f.item += gridDim.x;
                                if (f.item < p.items) f.now.locate(p, f.item);
                            }
                        }
                        wk_copy_commit();
                        const unsigned char *const stage = ring + from;
                        from = from + p.slot == ring_bytes ? 0 : from + p.slot;
                        /* terms of the unit: of a super-unit, bias groups start over, sums for minima are collected */
                        const uint32_t first = unit % T::super * groups;
#pragma unroll
                        for (uint32_t i = 0; i < (groups * columns + 31) / 32; i++) {
                            const uint32_t j = i * 32 + lane, c = j % columns;
                            if (j >= groups * columns) break;
                            const unsigned char *raw = stage + WK_WIDE_TILES * T::slot + c * (T::unit / 2);
                            if (T::group == 32) {
                                const float4 v = *reinterpret_cast<const float4 *>(raw + j / columns * 16);
                                terms.put(first + j / columns, c, __fadd_rn(v.x, v.z), __fadd_rn(v.y, v.w));
                            } else {
                                const float2 v = *reinterpret_cast<const float2 *>(raw + j / columns * 8);
                                terms.put(first + j / columns, c, v.x, v.y);
                            }
                        }
                        __syncwarp();
                        typename T::quants q[WK_WIDE_TILES];
#pragma unroll
                        for (int m = 0; m < WK_WIDE_TILES; m++) {
                            T::load(s[m], stage + m * T::slot, unit, lane);
                            T::load(q[m], stage + m * T::slot, unit, lane);
                        }
#pragma unroll
                        for (uint32_t i = 0; i < blocks; i++) {
                            uint32_t next = unit;
                            if (i + 1 == blocks) (void)wk_wide_next(p, warp, shift, next);
                            b[(i + 1) & 1].load(x, row, i + 1 == blocks ? next * T::unit : unit * T::unit + (i + 1) * 32, p.k32, t);
                            uint32_t a[WK_WIDE_TILES][T::parts][2][4];
#pragma unroll
                            for (int m = 0; m < WK_WIDE_TILES; m++) T::fragments(q[m], i, a[m]);
                            wk_terms<T, columns> here = terms;
                            here.bias += first * columns;
                            if (T::mins == WK_MINS_GROUP) here.min += first * columns;
                            wk_wide_block<T, NT>(y, s, a, b[i & 1], here, unit, i * (32 / T::group), t);
                        }
                        if constexpr (T::mins > WK_MINS_SUPER)
                            if (unit % T::super == T::super - 1) wk_wide_mins<T, NT>(y, s, terms, lane);
                    }
                    unit = end + (WK_PARTITIONS - 1) * p.step_units;
                    end = unit + p.step_units;
                    if (unit >= p.steps * p.step_units) break;
                }
#pragma unroll
                for (int m = 0; m < WK_WIDE_TILES; m++)
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            float2 *at = reinterpret_cast<float2 *>(slot + (m * 16 + h * 8) * (columns + 8) + n * 8);
                            float2 v = make_float2(y[m][n][2 * h], y[m][n][2 * h + 1]);
                            if (half) v = make_float2(__fadd_rn(at->x, v.x), __fadd_rn(at->y, v.y));
                            *at = v;
                        }
            }
        });
        __syncthreads();
        wk_wide_item now;
        now.locate(p, item);
        const uint32_t outputs = (p.glu ? 1 : now.n_tiles) * 16 * rows;
        for (uint32_t id = threadIdx.x; (id & ~31u) < outputs; id += WK_WIDE_THREADS) {
            wk_output_at o;
            o.r = id % 16;
            const uint32_t column = id / 16 % rows, m = id / 16 / rows;
            o.row = column0 + column;
            o.on = id < outputs;
            o.seg = now.seg;
            o.tile = now.tile + m;
            const wk_output_more more = wk_output_ahead(p, o, 0);
            float sum[2] = { 0.0f, 0.0f };
            if (o.on) {
                for (uint32_t j = 0; j < (p.glu ? 2 : 1); j++) {
                    const float *v = red + ((m + j) * 16 + o.r) * (columns + 8) + column;
                    float a = 0.0f;
#pragma unroll
                    for (uint32_t i = 0; i < WK_SLOTS; i++) a = __fadd_rn(a, v[i * WK_WIDE_TILES * 16 * (columns + 8)]);
                    if (j == 0) sum[0] = a;
                    else sum[1] = a;
                }
            }
            wk_output(p, o, more, sum[0], sum[1]);
        }
        __syncthreads();
    }
}

#endif
