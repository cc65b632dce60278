/* worker/cuda/kernel/resident.cuh: products of 2 to 64 rows with matrices of which a block's share fits in shared
 * memory, on 9.0 and later.
 *
 * Such a launch is nothing but beginning and end, and each instruction that all warps execute there costs 6 to 8
 * clocks: so there is no ring, there are no roles, and few instructions stand between the wait for the launch before
 * and the store. Warp i of a block has leaf i of the tree of K slices, for all tiles of the block's item. It asks for
 * its weights before anything else, all at once; when they are there it lets the next launch begin and waits for the
 * one before, asks for its own activations, and makes weights while these come. The warps meet once, when the sums are
 * there; then all finish outputs, a value a lane. Blocks are small, so that those of the next launch stand beside them
 * with their weights, but not so small that those of three do.
 *
 * Rows are groups of 8 NT with blocks of their own, which find the weights in L2.
 *
 * Order of arithmetic: part/weights.cuh. */
#ifndef WORKER_CUDA_KERNEL_RESIDENT_CUH
#define WORKER_CUDA_KERNEL_RESIDENT_CUH

#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/mma.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/prologue.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/weights.cuh>

enum {
    WK_RESIDENT_TOGETHER = 3,            /* blocks a multiprocessor */
    WK_RESIDENT_TILES = 2,               /* most tiles of a block; glu: pairs */
    WK_RESIDENT_KEPT = WK_K_SLICES * 512 /* bytes of a row that waits for its norm */
};

/* What resident is given. Shared memory, offsets in bytes from its start: at 0 the weights of the K slices; behind them
 * activations, sums, barriers with the scales of a norm, rows that wait for their norm. */
struct wk_resident_args {
    wk_product_args p;      /* items: of `tiles` tiles; glu: pairs */
    uint32_t k_slice_bytes; /* weights of a K slice: a K step of all of the block's tiles */
    uint32_t bars_at, x_at, sums_at;
    uint32_t tiles;           /* of a block; glu: pairs */
    uint32_t k_slice_x_bytes; /* activations of a K slice: a K step of all columns */
    uint32_t rows_at;         /* rows that wait for their norm */
};

/* The tiles of a block: neighbours in a segment; with glu pairs of tiles of both. */
struct wk_resident_item {
    uint32_t seg, tile, count;
    __device__ __forceinline__ wk_resident_item(const wk_resident_args &a, uint32_t item) : seg(0)
    {
        const wk_product_args &p = a.p;
        if (!p.glu)
            for (const uint32_t all = item; seg + 1 < p.n_seg && all >= p.seg[seg].end; seg++)
                item = all - p.seg[seg].end;
        tile = item * a.tiles;
        count = min(a.tiles, p.seg[seg].n_tiles - tile);
    }
};

/* The K step of the warp's K slice, of all tiles, with glu by turns of both segments; what lies past the end of k
 * becomes zeros. */
__device__ __forceinline__ void wk_resident_ask(const wk_resident_args &a, const wk_resident_item &item, uint32_t to,
                                                uint32_t bar, uint32_t k_slice, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const wk_segment_args &s = p.seg[item.seg];
    const uint32_t bytes = s.k_step_bytes, first = k_slice * bytes, end = first + bytes,
                   tiles = p.glu ? 2 * item.count : item.count;
    const uint32_t lack = end > s.tile_bytes ? end - s.tile_bytes : 0; /* less than the K step has */
    if (lack) {
#pragma unroll 1
        for (uint32_t at = to + bytes - lack, i = 0; i < tiles; i++, at += bytes)
#pragma unroll 1
            for (uint32_t j = lane * 16; j < lack; j += 512)
                asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(at + j), "r"(0) : "memory");
        wk_publish();
        __syncwarp();
    }
    if (wk_elected()) {
        const uint64_t once = wk_fetch_once();
        wk_bar_init(bar, 1);
        wk_bar_init_done();
        wk_bar_expect(bar, tiles * (bytes - lack));
        const unsigned char *from = s.tiles + (uint64_t)item.tile * s.tile_stride + first;
        const uint64_t both = p.glu ? s.tile_stride : 2 * (uint64_t)s.tile_stride;
        uint64_t step = p.glu ? p.seg[1].tiles - p.seg[0].tiles : s.tile_stride;
#pragma unroll 1
        for (uint32_t i = tiles; i; i--) {
            wk_fetch(to, from, bytes - lack, bar, once);
            to += bytes;
            from += step;
            step = both - step;
        }
    }
    __syncwarp();
}

/* The warp's activations, of its K step if it has one, a run of 32 values after the other, placed as lanes read them
 * (kernel/stream.cuh). A column that is not there is the last one again. */
template <int NT, class... F>
__device__ __forceinline__ void wk_resident_bring(const wk_resident_args &a, uint32_t to, uint32_t k_slice, bool have,
                                                  uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t k_step = 1u << p.k_step_shift, end = min((k_slice + 1) * k_step, p.k32);
    uint32_t k = k_slice * k_step, left = have ? k_step : 0, all = 0;
    uint64_t from[NT];
    to += wk_run_place(wk_family_group<F...>(p.seg[0].type), lane);
#pragma unroll
    for (uint32_t n = 0; n < NT; n++) {
        from[n] = reinterpret_cast<uint64_t>(static_cast<const __half *>(p.in.x) +
                                             (uint64_t)min((blockIdx.y * NT + n) * 8 + lane / 4, p.rows - 1) * p.k32 +
                                             k + lane % 4 * 8);
        all ^= (uint32_t)from[n] ^ (uint32_t)(from[n] >> 32);
    }
    wk_at_hand(all ^ to ^ end ^ left);
    uint32_t whole = NT == 1 && k_step % 128 == 0 && p.k32 % k_step == 0;
    asm volatile("" : "+r"(whole));
    wk_depend();
    if (NT == 1 && whole) { /* four runs at a time, nothing to ask */
#pragma unroll 1
        for (; left; left -= 128) {
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) wk_copy16(to + j * 512, reinterpret_cast<const void *>(from[0] + 64 * j));
            from[0] += 256;
            to += 4 * 512;
        }
        return;
    }
#pragma unroll 1
    for (; left; left -= 32) {
#pragma unroll
        for (uint32_t n = 0; n < NT; n++) {
            wk_copy16_part(to + n * 512, reinterpret_cast<const void *>(from[n]), k < end ? 16 : 0);
            from[n] += 64;
        }
        to += NT * 512;
        k += 32;
    }
}

/* The same of activations that come by runs (quant_cuda.h): those of eight rows are 512 bytes side by side. */
template <int NT, class... F>
__device__ __forceinline__ void wk_resident_bring_runs(const wk_resident_args &a, uint32_t to, uint32_t k_slice,
                                                       bool have, uint32_t lane)
{
    constexpr uint32_t apart = 2048; /* bytes from run to run */
    const wk_product_args &p = a.p;
    const uint32_t runs = 1u << (p.k_step_shift - 5), all = p.k32 / 32, group = blockIdx.y * NT;
    uint32_t run = k_slice * runs, left = have ? runs : 0, whole = runs % 4 == 0 && all % runs == 0;
    uint64_t from =
        reinterpret_cast<uint64_t>(p.in.x) + (uint64_t)(group / 4 * all + run) * apart + group % 4 * 512 + lane * 16;
    to += wk_run_place(wk_family_group<F...>(p.seg[0].type), lane);
    asm volatile("" : "+r"(whole));
    wk_at_hand((uint32_t)from ^ (uint32_t)(from >> 32) ^ to ^ run ^ left ^ whole);
    wk_depend();
    if (whole) {
#pragma unroll 1
        for (; left; left -= 4, from += 4 * apart, to += 4 * NT * 512)
#pragma unroll
            for (uint32_t j = 0; j < 4 * NT; j++)
                wk_copy16(to + j * 512, reinterpret_cast<const void *>(from + j / NT * apart + j % NT * 512));
        return;
    }
#pragma unroll 1
    for (; left; left--, run++, from += apart, to += NT * 512)
#pragma unroll
        for (uint32_t n = 0; n < NT; n++)
            wk_copy16_part(to + n * 512, reinterpret_cast<const void *>(from + n * 512), run < all ? 16 : 0);
}

/* Whether launches with these formats take norms of several rows: their K steps are short, and their activations stand
 * in plain order (wk_run_place). */
template <class... F> __host__ __device__ constexpr bool wk_resident_norms()
{
    return ((F::super == 1 && F::group == 32) && ...);
}

/* The same of up to 8 F32 rows by the RMS norm, of whole K steps of up to 128 values, one a K slice: a lane has four
 * values of each row, and warp w makes the scale of row w, for all. Of two neighbouring rows lanes with an odd run of
 * 32 values take the other first, so that no banks collide. Rows from the fifth on wait in shared memory, not in
 * registers: more than 64 of these would keep blocks of the next launch out. A row that is not there is the last one
 * again, or nothing. */
__device__ __forceinline__ void wk_resident_norm(const wk_resident_args &a, uint32_t base, unsigned char *shared,
                                                 uint32_t to, uint32_t k_slice, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t parts = p.k / 16, last = p.rows - 1, odd = lane / 8 & 1u, scale_at = a.bars_at + WK_K_SLICES * 8;
    uint32_t have = k_slice < p.k_steps && lane * 4 >> p.k_step_shift == 0, left = parts > lane ? parts - lane : 0;
    const uint32_t k = have ? (k_slice << p.k_step_shift) + lane * 4 : 0;
    uint64_t from[5],
        part = reinterpret_cast<uint64_t>(p.in.aux + min(warp, last) * parts +
                                          lane); /* from: of the rows in registers and the one after them */
    float4 w = make_float4(1.0f, 1.0f, 1.0f, 1.0f), v[4];
    if (p.in.w) w = wk_read16_constant(p.in.w + k);
    uint32_t all = 0; /* at hand before the wait */
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) {
        from[i] = reinterpret_cast<uint64_t>(static_cast<const float *>(p.in.x) +
                                             (i < 4 ? min(i ^ odd, last) : 4) * p.in.x_stride + k);
        asm volatile("" : "+l"(from[i]));
        all ^= (uint32_t)from[i] ^ (uint32_t)(from[i] >> 32);
    }
    to += lane / 8 * 512 + lane % 8 * 8 + odd * 64;
    uint32_t later = to + 64 - odd * 128, kept = a.rows_at + (warp * 32 + lane) * 16,
             even = kept + odd * WK_RESIDENT_KEPT, scales = scale_at + odd * 32;
    uint32_t uneven = kept + WK_RESIDENT_KEPT - odd * WK_RESIDENT_KEPT,
             mine = lane < 2 ? scale_at + lane * 32 + (warp ^ lane) * 4
                             : 0; /* scales stand in the order of lanes with even and with odd runs */
    asm volatile(""
                 : "+l"(part), "+r"(to), "+r"(later), "+r"(kept), "+r"(even), "+r"(uneven), "+r"(scales), "+r"(mine),
                   "+r"(left), "+r"(have));
    wk_at_hand(all ^ (uint32_t)part ^ (uint32_t)(part >> 32) ^ to ^ later ^ kept ^ even ^ uneven ^ scales ^ mine ^
               left ^ have);
    wk_depend();
    float q[2] = { 0.0f, 0.0f };
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (32 * i < left) asm volatile("ld.global.f32 %0, [%1];" : "=f"(q[i]) : "l"(part + 128 * i) : "memory");
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(v[i].x), "=f"(v[i].y), "=f"(v[i].z), "=f"(v[i].w)
                     : "l"(from[i])
                     : "memory");
    uint32_t row = 4;
#pragma unroll 1
    for (; row < p.rows; row++, kept += WK_RESIDENT_KEPT, from[4] += p.in.x_stride * 4)
        wk_copy16(base + kept, reinterpret_cast<const void *>(from[4]));
    asm volatile("" : "+r"(row));
    const float zero =
        __uint_as_float(row - max(p.rows, 4)); /* which the assembler does not know: else it adds, and waits for what it
                                                  adds, before it asks for those rows */
    const float own = wk_norm_scale(wk_warp_sum(__fadd_rn(__fadd_rn(zero, q[0]), q[1])), p.k, p.in.eps);
    if (mine) *reinterpret_cast<float *>(shared + mine) = own;
    __syncthreads();
#pragma unroll 1
    for (uint32_t first = 0;;) {
        const float4 s = *reinterpret_cast<const float4 *>(shared + scales);
        const float scale[4] = { s.x, s.y, s.z, s.w };
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            union {
                __half2 h[2];
                uint2 bits;
            } y;
            y.h[0] = wk_act_half2(wk_rms_value(v[i].x, scale[i], w.x), wk_rms_value(v[i].y, scale[i], w.y));
            y.h[1] = wk_act_half2(wk_rms_value(v[i].z, scale[i], w.z), wk_rms_value(v[i].w, scale[i], w.w));
            if (have) *reinterpret_cast<uint2 *>(shared + (i & 1u ? later : to) + i / 2 * 128) = y.bits;
        }
        first += 4;
        if (first >= p.rows) break;
        asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            v[i] =
                *reinterpret_cast<const float4 *>(shared + (i & 1u ? uneven : even) + i / 2 * (2 * WK_RESIDENT_KEPT));
        scales += 16;
        to += 256;
        later += 256;
    }
}

/* A unit, first made, then, when they are there, multiplied by the activations. */
template <class T, int NT, uint32_t PLACE, bool WIDE_RANGE>
__device__ __forceinline__ void wk_resident_unit(float (&c)[2][NT][4], const typename T::scales &s,
                                                 const unsigned char *w, const wk_run_words<T, NT> &x, uint32_t lane)
{
    constexpr uint32_t runs = T::unit / 32;
    uint32_t v[runs][1][2][4];
    typename T::quants q;
    T::load(q, w, PLACE, lane);
#pragma unroll
    for (uint32_t b = 0; b < runs; b++) wk_f16_weights<T, WIDE_RANGE>(q, s, PLACE, b, v[b]);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
#pragma unroll
    for (uint32_t b = 0; b < runs; b++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint4 y = x.read(b, n);
            wk_mma(c[0][n], v[b][0][0], y.x, y.y);
            wk_mma(c[1][n], v[b][0][1], y.z, y.w);
        }
}
template <class T, int NT, bool WIDE_RANGE>
__device__ __forceinline__ void wk_resident_super(float (&c)[2][NT][4], typename T::scales &s, const unsigned char *w,
                                                  const wk_run_words<T, NT> &x, uint32_t lane)
{
    wk_resident_unit<T, NT, 0, WIDE_RANGE>(c, s, w, x, lane);
    if constexpr (T::super == 2) {
        T::load(s, w + T::offset(1), 1, lane);
        wk_resident_unit<T, NT, 1, WIDE_RANGE>(c, s, w + T::offset(1), x.runs(T::unit / 32), lane);
    }
}

/* An output of the block, a value a lane: a warp has columns 2 i and 2 i + 1 of a cell. All that does not come from
 * other launches is at hand before the wait for the one before. */
template <int NT> struct wk_resident_place {
    wk_output_at at;
    wk_place to;
    uint32_t from; /* byte of its sums */
    __device__ __forceinline__ wk_resident_place() {}
    __device__ __forceinline__ wk_resident_place(const wk_resident_args &a, const wk_resident_item &item, uint32_t i,
                                                 uint32_t lane)
        : at(at_of(a, item, i, lane)), to(a.p, at)
    {
        from = a.sums_at + (i / (4 * NT) * (a.p.glu ? 2 : 1) * NT + i / 4 % NT) * WK_K_SLICES * WK_CELL +
               wk_in_cell(lane % 8, i % 4) + (lane / 8 % 2 * 2 + lane / 16) * 4;
        asm volatile("" : "+r"(from));
    }
    static __device__ __forceinline__ wk_output_at at_of(const wk_resident_args &a, const wk_resident_item &item,
                                                         uint32_t i, uint32_t lane)
    {
        const uint32_t tile = i / (4 * NT), row = (blockIdx.y * 4 * NT + i % (4 * NT)) * 2 + lane / 16;
        return { item.seg, item.tile + tile, lane % 16, row, tile < item.count && row < a.p.rows };
    }
};
/* All outputs of the block; place: of the warp's first. */
template <int NT, bool ANY>
__device__ __forceinline__ void wk_resident_finish_way(const wk_resident_args &a, const wk_resident_item &item,
                                                       wk_resident_place<NT> &place, const unsigned char *shared,
                                                       float other, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t all = item.count * 4 * NT;
#pragma unroll 1
    for (uint32_t i = warp; i < all;) {
        float sum[1], up[1] = {};
        wk_tree_sum(sum, shared + place.from, 0, WK_K_SLICES, WK_CELL);
        if (p.glu) wk_tree_sum(up, shared + place.from + NT * WK_K_SLICES * WK_CELL, 0, WK_K_SLICES, WK_CELL);
        place.to.put<ANY>(p, place.at, other, sum[0], up[0]);
        i += WK_K_SLICES;
        if (i >= all) break;
        place = wk_resident_place<NT>(a, item, i, lane);
        other = place.to.ahead();
    }
}

template <int NT>
__device__ __forceinline__ void wk_resident_finish(const wk_resident_args &a, const wk_resident_item &item,
                                                   wk_resident_place<NT> &place, const unsigned char *shared,
                                                   uint32_t warp, uint32_t lane)
{
    const float other = place.to.ahead();
    __syncthreads();
    if (a.p.way == WK_WAY_ANY) {
        wk_resident_finish_way<NT, true>(a, item, place, shared, other, warp, lane);
        return;
    }
    wk_resident_finish_way<NT, false>(a, item, place, shared, other, warp, lane);
}

/* Where there is a norm, registers are held to what four blocks have: else the next launch's find no room. */
template <int NT, class... F>
__global__ void __launch_bounds__(32 * WK_K_SLICES, NT == 1 && wk_resident_norms<F...>() ? WK_RESIDENT_TOGETHER + 1
                                                                                         : WK_RESIDENT_TOGETHER)
    wk_product_resident(const __grid_constant__ wk_resident_args a)
{
    extern __shared__ uint4 wk_shared[];
    const wk_product_args &p = a.p;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(wk_shared), lane = threadIdx.x & 31u,
                   warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const wk_resident_item item(a, blockIdx.x);
    const uint32_t k_slice = wk_leaf_k_slice(warp);
    const bool have = k_slice < p.k_steps; /* a step: of as many as there are K slices, at most */
    const uint32_t w = warp * a.k_slice_bytes, x = a.x_at + warp * a.k_slice_x_bytes, bar = base + a.bars_at + warp * 8;
    if (have)
        wk_resident_ask(a, item, base + w, bar, k_slice, lane);
    else
        wk_touch_args(p);
    const uint32_t tiles = p.glu ? 2 * item.count : item.count;
    wk_resident_place<NT> place;
    if (NT == 1)
        place = wk_resident_place<NT>(
            a, item, warp, lane); /* with more columns its registers would keep blocks of the next launch out */
    if (have) wk_stage_wait(bar, 0);
    wk_release(); /* not before: what the next launch asks for would be beside this one's weights, and its blocks'
                     successors' beside these activations */
    const bool norm = NT == 1 && wk_resident_norms<F...>() && p.in.kind == WK_CUDA_IN_RMS;
    if (norm)
        wk_resident_norm(a, base, shared, x, k_slice, warp, lane);
    else if (p.in.kind == WK_CUDA_IN_RUNS)
        wk_resident_bring_runs<NT, F...>(a, base + x, k_slice, have, lane);
    else
        wk_resident_bring<NT, F...>(a, base + x, k_slice, have, lane);
    uint32_t to = a.sums_at + warp * WK_CELL + wk_in_cell(lane / 4, lane % 4);
    wk_for_type<F...>(sizeof...(F) > 1 ? p.seg[item.seg].type : 0, [&](auto format) {
        typedef decltype(format) T;
        const unsigned char *from = shared + w;
#pragma unroll 1
        for (uint32_t i = tiles; i; i--) {
            float c[2][NT][4] = {};
            wk_run_words<T, NT> xs(shared + x, lane);
#pragma unroll 1
            for (uint32_t u = have ? p.k_step_units : 0; u;
                 u -= T::super, from += T::offset(T::super), xs = xs.runs(T::super * (T::unit / 32))) {
                typename T::scales s;
                T::load(s, from, 0, lane);
                if (wk_wide_range<T>(s))
                    wk_resident_super<T, NT, true>(c, s, from, xs, lane);
                else
                    wk_resident_super<T, NT, false>(c, s, from, xs, lane);
            }
#pragma unroll
            for (int n = 0; n < NT; n++, to += WK_K_SLICES * WK_CELL) {
                const float sum[4] = { __fadd_rn(c[0][n][0], c[1][n][0]), __fadd_rn(c[0][n][1], c[1][n][1]),
                                       __fadd_rn(c[0][n][2], c[1][n][2]), __fadd_rn(c[0][n][3], c[1][n][3]) };
                *reinterpret_cast<float4 *>(shared + to) = make_float4(sum[0], sum[1], sum[2], sum[3]);
            }
        }
    });
    if (NT > 1) place = wk_resident_place<NT>(a, item, warp, lane);
    wk_resident_finish<NT>(a, item, place, shared, warp, lane);
}

#endif
