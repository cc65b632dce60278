/* worker/cuda/product_wide.cuh: products of 2 to 64 rows.
 *
 * A warp multiplies one slot of k (product_args.cuh) of one or two tiles with 8, 16 or 32 columns at a time. Its weights come through a ring of its own, across tiles, so
 * it waits for no other warp; the activations lie in shared memory for all 8 warps of a block. Two ways to spread the slots:
 *   side by side: a cluster of 8 blocks shares an item of 8 rows of tiles, block i has slot i, whose activations it brings once for all its items. A row's sums go
 *     straight into the shared memory of the block that finishes the row; it adds the 8 slots in order. They are waited for one item later, so the way is hidden.
 *   serial: a block takes all slots of its item in turn, the next slot's activations on their way: for matrices high enough to fill the GPU with items, and
 *     where there are no clusters (before sm_90). */
#ifndef WORKER_CUDA_PRODUCT_WIDE_CUH
#define WORKER_CUDA_PRODUCT_WIDE_CUH

#include <worker/cuda/epilogue.cuh>
#include <worker/cuda/prologue.cuh>

enum { WK_WIDE_THREADS = 256, WK_WIDE_WARPS = 8, WK_WIDE_STAGE = 2400 /* bytes */, WK_WIDE_DEPTH = 8, WK_WIDE_CELL = 512 /* bytes of 16 rows x 8 columns of sums */, WK_WIDE_ROOM = 64 << 10 /* bytes of activations beside which two tiles a row have room */ };

struct wk_wide_args {
    wk_product_args p;
    uint32_t serial;           /* 0: slot i of k is that of the cluster's block i; else a block takes all slots in turn: */
    uint32_t whole;            /* serial: the activations of all slots are held; else two slots' by turns */
    uint32_t column_groups, workers; /* groups of 8 NT columns; clusters (serial: blocks) that share a group's items */
    uint32_t items;            /* of a column group: 8 rows of MT tiles each, a row a warp */
    uint32_t slot_steps, magic; /* most steps of a slot; 2^16 / slot_steps + 1 */
    uint32_t apart;            /* bytes from tile to tile in a stage */
    uint32_t inputs;           /* bytes from the activations to those of the next slot */
    uint32_t places, buffer;   /* cells of a slot in a block; bytes from an item's cells to the next one's */
};

/* The tiles of row `row` of an item: one, or two next to each other, or a pair of gate and up. One tile a row: gates in even rows, ups in odd ones. */
struct wk_wide_place { uint32_t seg, tile, last; bool on; }; /* last: the second tile, or the first if there is none */
template <int MT> __device__ __forceinline__ wk_wide_place wk_wide_at(const wk_wide_args &a, uint32_t item, uint32_t row)
{
    const wk_product_args &p = a.p;
    uint32_t i = MT == 1 && p.glu ? item * (WK_WIDE_WARPS / 2) + row / 2 : item * WK_WIDE_WARPS + row;
    wk_wide_place at = { MT == 1 && p.glu ? row & 1u : 0, 0, 0, i < p.items };
    if (p.glu) {
        at.tile = at.last = i;
    } else {
        for (const uint32_t all = i; at.seg + 1 < p.n_seg && all >= p.seg[at.seg].end; at.seg++) i = all - p.seg[at.seg].end;
        at.tile = i * MT;
        at.last = min(at.tile + MT, p.seg[at.seg].n_tiles) - 1;
    }
    return at;
}

/* A stage of MT tiles, `apart` bytes from one to the next in shared memory; there: bytes to the tiles' end, zeros follow. */
template <int MT>
__device__ __forceinline__ void wk_wide_copy(uint32_t shared, const unsigned char *const from[MT], uint32_t at, uint32_t bytes, uint32_t apart, int32_t there, uint32_t bar, uint32_t lane)
{
    const bool cut = there < (int32_t)bytes;
    const uint32_t some = cut ? (uint32_t)max(there, 0) : bytes;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (cut) {
#pragma unroll
        for (int m = 0; m < MT; m++)
            for (uint32_t i = some + lane * 16; i < bytes; i += 512) asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(shared + m * apart + i), "r"(0) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
    }
    if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(MT * some) : "memory");
        if (some)
#pragma unroll
            for (int m = 0; m < MT; m++)
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared + m * apart), "l"(from[m] + at), "r"(some), "r"(bar) : "memory");
    }
#else
#pragma unroll
    for (int m = 0; m < MT; m++)
        for (uint32_t i = lane * 16; i < bytes; i += 512) wk_copy16_part(shared + m * apart + i, from[m] + (i < some ? at + i : 0), i < some ? 16 : 0);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
#endif
}

/* A warp's stages: item after item, slot after slot, its two partitions one after the other, step after step, stage after stage. */
template <int MT> struct wk_wide_stream {
    const unsigned char *tile[MT];
    uint32_t tile_bytes, step_bytes, stage_bytes, item, slot, step, part;

    __device__ __forceinline__ void locate(const wk_wide_args &a, uint32_t row)
    {
        if (item >= a.items) return;
        const wk_wide_place at = wk_wide_at<MT>(a, item, row);
        if (!at.on) {
            item = a.items;
            return;
        }
        const wk_segment_args &s = a.p.seg[at.seg];
        tile[0] = s.tiles + at.tile * s.tile_bytes;
        if (MT > 1) tile[MT - 1] = (a.p.glu ? a.p.seg[1].tiles : s.tiles) + at.last * s.tile_bytes;
        tile_bytes = (uint32_t)s.tile_bytes;
        step_bytes = s.step_bytes;
        stage_bytes = s.stage_bytes;
    }
    __device__ __forceinline__ void begin(const wk_wide_args &a, uint32_t worker, uint32_t first, uint32_t row)
    {
        item = first < a.p.steps ? worker : a.items;
        slot = step = first;
        part = 0;
        locate(a, row);
    }
    /* Asks for the next stage. */
    __device__ __forceinline__ void fetch(const wk_wide_args &a, uint32_t to, uint32_t bar, uint32_t first, uint32_t row, uint32_t lane)
    {
        if (item >= a.items) return;
        const uint32_t at = step * step_bytes + part * stage_bytes;
        wk_wide_copy<MT>(to, tile, at, stage_bytes, a.apart, (int32_t)(tile_bytes - at), bar, lane);
        if (++part < a.p.run) return;
        part = 0;
        step += WK_PARTITIONS;
        if (step < a.p.steps) return;
        if (!(step & WK_SLOTS) && slot + WK_SLOTS < a.p.steps) {
            step = slot + WK_SLOTS;
            return;
        }
        if (a.serial && slot + 1 < min((uint32_t)WK_SLOTS, a.p.steps)) {
            step = ++slot;
            return;
        }
        slot = step = first;
        item += a.workers;
        locate(a, row);
    }
};

/* ---- activations into shared memory ----------------------------------------------------------------------------------- */

/* Value i of what a block holds of a column: a slot's steps in order, or all slots' one after the other. */
__device__ __forceinline__ uint32_t wk_wide_k(const wk_wide_args &a, uint32_t first, uint32_t i)
{
    const uint32_t shift = a.p.step_shift, n = i >> shift, slot = n * a.magic >> 16;
    return ((first + slot + (n - slot * a.slot_steps) * WK_SLOTS) << shift) + (i & ((1u << shift) - 1));
}
__device__ __forceinline__ uint32_t wk_wide_values(const wk_wide_args &a) { return (a.slot_steps << a.p.step_shift) * (a.whole ? (uint32_t)WK_SLOTS : 1u); }

/* Terms of 32 values, number i of what the block holds. */
template <int NT, class... F> __device__ __forceinline__ void wk_wide_put(const wk_wide_args &a, unsigned char *shared, uint32_t column, uint32_t i, float4 s)
{
    uint32_t type = 0;
    ([&] {
        if (a.p.types >> type & 1u) {
            const wk_terms<F, 8 * NT> terms(shared + a.p.terms_at[type], wk_wide_values(a));
            if constexpr (F::group == 32) {
                terms.put(i, column, __fadd_rn(s.x, s.z), __fadd_rn(s.y, s.w));
            } else {
                terms.put(2 * i, column, s.x, s.y);
                terms.put(2 * i + 1, column, s.z, s.w);
            }
        }
        type++;
    }(), ...);
}

/* Act rows: a warp has columns warp, warp + 8, ... */
template <int NT, class... F> __device__ __forceinline__ void wk_wide_acts(const wk_wide_args &a, unsigned char *shared, uint32_t first, uint32_t column0, uint32_t columns)
{
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32, values = wk_wide_values(a);
    const uint32_t x = (uint32_t)__cvta_generic_to_shared(shared + p.x_at);
    uint32_t row[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) row[j] = warp + 8 * j < columns ? wk_input_row(p, column0 + warp + 8 * j) : 0;
    for (uint32_t i = lane; i < values / 32; i += 32) {
        const uint32_t k = wk_wide_k(a, first, i * 32);
        float4 s[NT];
#pragma unroll
        for (int j = 0; j < NT; j++) {
            s[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (k < p.k32 && warp + 8 * j < columns) s[j] = *reinterpret_cast<const float4 *>(p.in.aux + (uint64_t)row[j] * (p.k32 / 8) + k / 8);
        }
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const char *const from = static_cast<const char *>(p.in.x) + ((uint64_t)row[j] * p.k32 + (k < p.k32 ? k : 0)) * 2;
            if (warp + 8 * j < columns)
#pragma unroll
                for (uint32_t h = 0; h < 4; h++) wk_copy16_part(x + ((warp + 8 * j) * p.x_stride + i * 32 + h * 8) * 2, from + h * 16, k < p.k32 ? 16 : 0);
        }
#pragma unroll
        for (int j = 0; j < NT; j++)
            if (warp + 8 * j < columns) wk_wide_put<NT, F...>(a, shared, warp + 8 * j, i, s[j]);
    }
}

__device__ __forceinline__ float4 wk_wide_load4(const float *v, uint32_t k, uint32_t end, bool whole, float none)
{
    float4 r = make_float4(none, none, none, none);
    if (k >= end) return r;
    if (whole) return *reinterpret_cast<const float4 *>(v + k);
    r.x = v[k];
    if (k + 1 < end) r.y = v[k + 1];
    if (k + 2 < end) r.z = v[k + 2];
    if (k + 3 < end) r.w = v[k + 3];
    return r;
}

/* F32 rows by the RMS norm: a warp a row, 4 values a lane, 32 in 8 lanes. */
template <class... F> __device__ __forceinline__ void wk_wide_rms(const wk_wide_args &a, unsigned char *shared, uint32_t first, uint32_t column0, uint32_t columns)
{
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, c = threadIdx.x / 32, blocks = wk_wide_values(a) / 32, runs = (p.k + 15) / 16;
    if (c >= columns) return;
    const bool whole = p.k % 4 == 0 && p.in.x_stride % 4 == 0 && (reinterpret_cast<uintptr_t>(p.in.x) | reinterpret_cast<uintptr_t>(p.in.w)) % 16 == 0;
    const uint32_t row = wk_input_row(p, column0 + c);
    const float *const from = static_cast<const float *>(p.in.x) + row * p.in.x_stride;
    __half *const x = reinterpret_cast<__half *>(shared + p.x_at) + c * p.x_stride;
    float scale = 0.0f;
    for (uint32_t b = lane / 8; b - lane / 8 < blocks; b += 4 * WK_AHEAD) {
        float4 v[WK_AHEAD], w[WK_AHEAD];
        uint32_t k[WK_AHEAD];
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            k[j] = b + 4 * j < blocks ? wk_wide_k(a, first, (b + 4 * j) * 32 + lane % 8 * 4) : p.k32;
            v[j] = wk_wide_load4(from, k[j], p.k, whole, 0.0f);
            w[j] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
            if (p.in.w) w[j] = wk_wide_load4(p.in.w, k[j], p.k, whole, 1.0f);
        }
        if (b == lane / 8) scale = wk_rms_scale(p.in.aux + (uint64_t)row * runs, runs, p.k, p.in.eps);
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            const __half2 low = wk_act_half2(wk_rms_value(v[j].x, scale, w[j].x), wk_rms_value(v[j].y, scale, w[j].y), 0);
            const __half2 high = wk_act_half2(wk_rms_value(v[j].z, scale, w[j].z), wk_rms_value(v[j].w, scale, w[j].w), 0);
            const float2 s = wk_act_sum16(low, high);
            const float2 t = make_float2(__shfl_xor_sync(0xffffffffu, s.x, 4), __shfl_xor_sync(0xffffffffu, s.y, 4)); /* of the other half of the 32 */
            if (b + 4 * j >= blocks) continue;
            uint2 bits;
            bits.x = *reinterpret_cast<const uint32_t *>(&low);
            bits.y = *reinterpret_cast<const uint32_t *>(&high);
            *reinterpret_cast<uint2 *>(x + (b + 4 * j) * 32 + lane % 8 * 4) = bits;
            if (lane % 8 == 0) wk_wide_put<1, F...>(a, shared, c, b + 4 * j, make_float4(s.x, s.y, t.x, t.y));
        }
    }
}

/* Asks for what a block holds, slot `first` or all; it is there after wk_wide_ready. */
template <int NT, class... F> __device__ __forceinline__ void wk_wide_inputs(const wk_wide_args &a, unsigned char *shared, uint32_t first, uint32_t column0, uint32_t columns)
{
    if constexpr (NT == 1) {
        if (a.p.in.kind == WK_CUDA_IN_RMS) {
            wk_wide_rms<F...>(a, shared, first, column0, columns);
            return;
        }
    }
    wk_wide_acts<NT, F...>(a, shared, first, column0, columns);
}
__device__ __forceinline__ void wk_wide_ready()
{
    wk_copy_commit();
    wk_copy_wait<0>();
    __syncthreads();
}

/* ---- multiplication ---------------------------------------------------------------------------------------------------- */

/* A unit of MT tiles times 8 NT columns: y += . PLACE: its number in the super-unit; unit: of the first tile, the second `apart` bytes on; x: this lane's column of
 * the first column tile at the unit's first k, the other column tiles x_tile halves apart; bias, min: of the unit's first group (minima on tensor cores: of the super-unit). */
template <class F, int NT, int MT, uint32_t PLACE>
__device__ __forceinline__ void wk_wide_unit(float y[MT][NT][4], typename F::scales s[MT], const unsigned char *unit, uint32_t apart, const __half *x, uint32_t x_tile, const float *bias,
                                             const float *min, uint32_t lane)
{
    constexpr uint32_t columns = 8 * NT;
    const uint32_t t = lane % 4;
    typename F::quants q[MT];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        F::load(s[m], unit + m * apart, PLACE, lane);
        F::load(q[m], unit + m * apart, PLACE, lane);
    }
#pragma unroll
    for (uint32_t b = 0; b < F::unit / 32; b++) {
        uint32_t a[MT][F::parts][2][4], v[NT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) F::fragments(q[m], b, a[m]);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const __half *at = x + n * x_tile + b * 32;
            if constexpr (F::group == 32) {
                const uint4 w = *reinterpret_cast<const uint4 *>(at + t * 8);
                v[n][0] = w.x, v[n][1] = w.y, v[n][2] = w.z, v[n][3] = w.w;
            } else {
                const uint2 w = *reinterpret_cast<const uint2 *>(at + t * 4), u = *reinterpret_cast<const uint2 *>(at + 16 + t * 4);
                v[n][0] = w.x, v[n][1] = w.y, v[n][2] = u.x, v[n][3] = u.y;
            }
        }
#pragma unroll
        for (uint32_t h = 0; h < 32 / F::group; h++) {
            const uint32_t i = b * (32 / F::group) + h;
            float2 from[NT];
#pragma unroll
            for (int n = 0; n < NT; n++) {
                from[n] = make_float2(0.0f, 0.0f);
                if constexpr (wk_terms<F, columns>::biased) from[n] = *reinterpret_cast<const float2 *>(bias + i * columns + n * 8 + 2 * t);
            }
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const float2 scale = F::scale(s[m], i);
#pragma unroll
                for (uint32_t part = 0; part < F::parts; part++) {
                    float c[NT][4];
#pragma unroll
                    for (int n = 0; n < NT; n++) wk_mma_from(c[n], a[m][part][h], v[n][2 * h], v[n][2 * h + 1], from[n]);
                    if constexpr (F::group == 32)
#pragma unroll
                        for (int n = 0; n < NT; n++) wk_mma(c[n], a[m][part][1], v[n][2], v[n][3]);
                    float2 f = scale;
                    if constexpr (F::parts > 1) f = make_float2(__fmul_rn(f.x, F::part_scale(part)), __fmul_rn(f.y, F::part_scale(part)));
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        y[m][n][0] = __fmaf_rn(f.x, c[n][0], y[m][n][0]);
                        y[m][n][1] = __fmaf_rn(f.x, c[n][1], y[m][n][1]);
                        y[m][n][2] = __fmaf_rn(f.y, c[n][2], y[m][n][2]);
                        y[m][n][3] = __fmaf_rn(f.y, c[n][3], y[m][n][3]);
                    }
                }
            }
            if constexpr (F::mins == WK_MINS_GROUP)
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    const float2 sum = *reinterpret_cast<const float2 *>(min + i * columns + n * 8 + 2 * t);
#pragma unroll
                    for (int m = 0; m < MT; m++) {
                        const float2 low = F::min(s[m], PLACE, i);
                        y[m][n][0] = __fmaf_rn(-low.x, sum.x, y[m][n][0]);
                        y[m][n][1] = __fmaf_rn(-low.x, sum.y, y[m][n][1]);
                        y[m][n][2] = __fmaf_rn(-low.y, sum.x, y[m][n][2]);
                        y[m][n][3] = __fmaf_rn(-low.y, sum.y, y[m][n][3]);
                    }
                }
        }
    }
    if constexpr (F::mins > WK_MINS_SUPER && PLACE == F::super - 1) { /* the super-unit's minima: integers times sums, on the tensor cores */
        constexpr uint32_t n_j = F::mins - WK_MINS_SUPER;
        uint32_t a[MT][n_j][4];
        float2 low[MT];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            low[m] = F::min_scale(s[m]);
#pragma unroll
            for (uint32_t j = 0; j < n_j; j++) F::min_fragment(s[m], j, lane, a[m][j]);
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float c[MT][4] = {};
#pragma unroll
            for (uint32_t j = 0; j < n_j; j++) {
                const float4 v = reinterpret_cast<const float4 *>(min)[(j * columns + n * 8 + lane / 4) * 4 + t];
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    wk_mma_tf32(c[m], a[m][j], __float_as_uint(v.x), __float_as_uint(v.y));
                    wk_mma_tf32(c[m], a[m][j], __float_as_uint(v.z), __float_as_uint(v.w));
                }
            }
#pragma unroll
            for (int m = 0; m < MT; m++) {
                y[m][n][0] = __fmaf_rn(-low[m].x, c[m][0], y[m][n][0]);
                y[m][n][1] = __fmaf_rn(-low[m].x, c[m][1], y[m][n][1]);
                y[m][n][2] = __fmaf_rn(-low[m].y, c[m][2], y[m][n][2]);
                y[m][n][3] = __fmaf_rn(-low[m].y, c[m][3], y[m][n][3]);
            }
        }
    }
}

/* A warp's ring. */
struct wk_wide_ring {
    const unsigned char *at;
    uint32_t shared, bars, now, free, parity; /* now: the next stage to multiply; free: the one before it; depth: none yet */
    /* The next stage has arrived, and one is asked for in place of the last. */
    template <int MT> __device__ __forceinline__ const unsigned char *next(const wk_wide_args &a, wk_wide_stream<MT> &f, uint32_t first, uint32_t row, uint32_t lane)
    {
        const uint32_t depth = a.p.depth, slot = a.p.slot;
        wk_stage_wait(bars + now * 8, parity);
        __syncwarp();
        if (free < depth) f.fetch(a, shared + free * slot, bars + free * 8, first, row, lane);
        const unsigned char *stage = at + now * slot;
        free = now;
        if (++now == depth) {
            now = 0;
            parity ^= 1u;
        }
        return stage;
    }
};

/* Slot `slot` of MT tiles, number `place` of what the block holds: y = . */
template <class T, int NT, int MT>
__device__ __forceinline__ void wk_wide_slot(const wk_wide_args &a, float y[MT][NT][4], unsigned char *shared, uint32_t type, uint32_t slot, uint32_t place, wk_wide_ring &ring, wk_wide_stream<MT> &f,
                                             uint32_t first, uint32_t row, uint32_t lane)
{
    constexpr uint32_t columns = 8 * NT, groups = T::unit / T::group, super_floats = T::mins > WK_MINS_SUPER ? (T::mins - WK_MINS_SUPER) * 16 * columns : 0;
    const wk_product_args &p = a.p;
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at) + lane / 4 * p.x_stride;
    const uint32_t x_tile = 8 * p.x_stride;
    const wk_terms<T, columns> terms(shared + p.terms_at[type], wk_wide_values(a));
    float z[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) y[i / (NT * 4)][i / 4 % NT][i % 4] = 0.0f;
#pragma unroll 1
    for (uint32_t half = 0; half < 2; half++) {
#pragma unroll
        for (int i = 0; i < MT * NT * 4; i++) {
            z[i / (NT * 4)][i / 4 % NT][i % 4] = y[i / (NT * 4)][i / 4 % NT][i % 4];
            y[i / (NT * 4)][i / 4 % NT][i % 4] = 0.0f;
        }
#pragma unroll 1
        for (uint32_t step = slot + half * WK_SLOTS, i = half; step < p.steps; step += WK_PARTITIONS, i += 2) {
            const uint32_t local = (place * a.slot_steps + i) << p.step_shift; /* values before the step */
            const __half *xs = x + local;
            const float *bias = terms.bias + local / T::group * columns, *min = terms.min + (T::mins == WK_MINS_GROUP ? local / T::group * columns : local / (T::unit * T::super) * super_floats);
            typename T::scales s[MT];
            if constexpr (T::super == 2) {
                const unsigned char *at = ring.next(a, f, first, row, lane);
                wk_wide_unit<T, NT, MT, 0>(y, s, at, a.apart, xs, x_tile, bias, min, lane);
                wk_wide_unit<T, NT, MT, 1>(y, s, at + T::offset(1), a.apart, xs + T::unit, x_tile, bias + groups * columns, T::mins == WK_MINS_GROUP ? min + groups * columns : min, lane);
            } else {
#pragma unroll 1
                for (uint32_t part = 0; part < p.run; part++) {
                    const unsigned char *at = ring.next(a, f, first, row, lane);
#pragma unroll 1
                    for (uint32_t v = 0; v < p.stage_units; v++) {
                        wk_wide_unit<T, NT, MT, 0>(y, s, at, a.apart, xs, x_tile, bias, min, lane);
                        at += T::slot;
                        xs += T::unit;
                        bias += groups * columns;
                        min += T::mins == WK_MINS_GROUP ? groups * columns : super_floats;
                    }
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) y[i / (NT * 4)][i / 4 % NT][i % 4] = __fadd_rn(y[i / (NT * 4)][i / 4 % NT][i % 4], z[i / (NT * 4)][i / 4 % NT][i % 4]);
}

/* ---- the cluster -------------------------------------------------------------------------------------------------------- */

/* The cluster's barrier says that every block has begun, or has read what was sent to it; it orders no memory, which would wait for every store to reach L2. What is sent
 * counts down a barrier of its own in the memory that it goes to. */
__device__ __forceinline__ void wk_wide_arrive()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ __forceinline__ void wk_wide_meet()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
/* `bytes` are to come. */
__device__ __forceinline__ void wk_wide_expect(uint32_t bar, uint32_t bytes)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
#endif
}
/* 16 bytes into the shared memory of block `rank` of the cluster, at the place that has this address in one's own, and counted by its barrier. */
__device__ __forceinline__ void wk_wide_send(uint32_t at, uint32_t bar, uint32_t rank, const float v[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 to, bar; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 bar, %1, %2; "
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3,%4,%5,%6}, [bar]; }" ::"r"(at),
                 "r"(bar), "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
#endif
}

/* A cell: 16 bytes a lane (g, t), that of sums of rows g and g + 8 of columns 2t and 2t + 1, at such a place that no banks collide: of lanes in a row when
 * written, of equal t when read. */
__device__ __forceinline__ uint32_t wk_wide_in_cell(uint32_t g, uint32_t t) { return (t * 8 + (g ^ 2 * t)) * 16; }

/* Which block finishes column tile n of tile m of row `row` of an item, and the cell there. One tile a row and glu: two blocks share a pair's column tiles, gate and up
 * are next to each other. */
template <int NT, int MT> __device__ __forceinline__ void wk_wide_owner(const wk_wide_args &a, uint32_t row, uint32_t m, uint32_t n, uint32_t *rank, uint32_t *cell)
{
    constexpr uint32_t half = (NT + 1) / 2;
    if (MT == 1 && a.p.glu) {
        *rank = (row & ~1u) + n / half;
        *cell = n % half * 2 + (row & 1u);
    } else {
        *rank = row;
        *cell = m * NT + n;
    }
}
/* The row whose tiles block `rank` finishes; cells of 16 x 8 outputs among them. */
template <int MT> __device__ __forceinline__ uint32_t wk_wide_own_row(const wk_wide_args &a, uint32_t rank) { return MT == 1 && a.p.glu ? rank & ~1u : rank; }
template <int NT, int MT> __device__ __forceinline__ uint32_t wk_wide_outputs(const wk_wide_args &a, uint32_t rank)
{
    return !a.p.glu ? MT * NT : MT > 1 ? NT : rank & 1u ? NT / 2 : (NT + 1) / 2;
}

/* Adds up and stores cells i, i + apart, ... of what is finished of an item's row `row`: `slots` sums each. Waits for them first, if there is a barrier. */
template <int NT, int MT>
__device__ __forceinline__ void wk_wide_finish(const wk_wide_args &a, const unsigned char *cells, uint32_t slots, uint32_t i, uint32_t apart, uint32_t item, uint32_t rank, uint32_t bar,
                                               uint32_t parity, uint32_t column0, uint32_t columns)
{
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, count = wk_wide_outputs<NT, MT>(a, rank), stride = a.places * WK_WIDE_CELL;
    const wk_wide_place at = wk_wide_at<MT>(a, item, wk_wide_own_row<MT>(a, rank));
    const uint32_t t = lane / 8, q = lane % 4, in_cell = t * 128 + ((q & 1u) * 4 ^ (2 * t & 4u)) * 16 + q / 2 * 8 + (lane / 4 & 1u) * 4; /* column lane / 4, rows 4q .. */
    bool waited = !bar;
#pragma unroll 1
    for (;; i += apart) {
        const uint32_t m = p.glu ? 0 : i / NT, n = MT == 1 && p.glu ? (rank & 1u) * ((NT + 1) / 2) + i : i % NT;
        wk_four_at o = { at.seg, at.tile + m, column0 + n * 8 + lane / 4, at.on && i < count && n * 8 + lane / 4 < columns && at.tile + m <= at.last };
        if (MT == 1 && p.glu) o.seg = 0;
        wk_four_more more = wk_four_ahead(p, o);
        if (!waited) wk_stage_wait(bar, parity);
        waited = true;
        if (i >= count || !at.on) break;
        if (n * 8 >= columns || at.tile + m > at.last) continue;
        const unsigned char *cell = cells + (MT == 1 && p.glu ? 2 * i : i) * WK_WIDE_CELL + in_cell;
        const uint32_t other = MT == 1 ? WK_WIDE_CELL : NT * WK_WIDE_CELL;
        float sum[4] = {}, up[4] = {};
#pragma unroll 2
        for (uint32_t j = 0; j < slots; j++) {
#pragma unroll
            for (uint32_t r = 0; r < 4; r++) {
                const uint32_t to = (r ^ (2 * t & 2u)) * 16;
                sum[r] = __fadd_rn(sum[r], *reinterpret_cast<const float *>(cell + to));
                if (p.glu) up[r] = __fadd_rn(up[r], *reinterpret_cast<const float *>(cell + to + other));
            }
            cell += stride;
        }
        wk_four_output(p, o, more, sum, up);
    }
}

template <int NT, int MT, class... F> __global__ void __launch_bounds__(WK_WIDE_THREADS, NT * MT < 8 ? 2 : 1) wk_product_wide(const __grid_constant__ wk_wide_args a)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, row = threadIdx.x / 32, in_cell = wk_wide_in_cell(lane / 4, lane % 4);
    const uint32_t rank = a.serial ? 0 : blockIdx.x % WK_SLOTS, id = a.serial ? blockIdx.x : blockIdx.x / WK_SLOTS, slots = min((uint32_t)WK_SLOTS, p.steps);
    const uint32_t column0 = id % a.column_groups * 8 * NT, columns = min(p.rows - column0, 8u * NT), worker = id / a.column_groups;
    wk_wide_ring ring;
    ring.at = shared + row * p.depth * p.slot;
    ring.shared = (uint32_t)__cvta_generic_to_shared(ring.at);
    ring.bars = (uint32_t)__cvta_generic_to_shared(shared + p.bars_at) + row * p.depth * 8;
    ring.now = ring.parity = 0;
    ring.free = p.depth;
    if (lane < p.depth) wk_bar_init(ring.bars + lane * 8, WK_BAR_COPIES);
    const uint32_t sent = (uint32_t)__cvta_generic_to_shared(shared + p.bars_at) + WK_WIDE_WARPS * WK_WIDE_DEPTH * 8; /* two barriers, of items in turn */
    if (threadIdx.x < 2) wk_bar_init(sent + threadIdx.x * 8, 1);
    wk_bar_init_done();
    __syncwarp();
    if (!a.serial) wk_wide_arrive();

    wk_wide_stream<MT> f;
    wk_release();
    f.begin(a, worker, rank, row);
    for (uint32_t i = 0; i < p.depth; i++) f.fetch(a, ring.shared + i * p.slot, ring.bars + i * 8, rank, row, lane);
    wk_depend();
    wk_wide_inputs<NT, F...>(a, shared, rank, column0, columns);
    if (!a.serial || a.whole) wk_wide_ready();

    unsigned char *const cells = shared + p.red_at + (a.serial ? row * MT * NT * WK_WIDE_CELL : 0);
    uint32_t now = 0, parity = 0, held = 0; /* now: 1: the item's sums go to the second buffer; parity: of that buffer's barrier; held: where the slot's activations are */
#pragma unroll 1
    for (uint32_t item = worker;; item += a.workers, parity ^= now, now ^= 1u) {
        float y[MT][NT][4];
        wk_wide_place at = {};
        if (item < a.items) {
            at = wk_wide_at<MT>(a, item, row);
#pragma unroll 1
            for (uint32_t slot = rank, last = a.serial ? slots : min(rank + 1, slots); slot < last; slot++) {
                unsigned char *const inputs = shared + held;
                if (a.serial && !a.whole) { /* this slot's activations are there; the next one's are asked for */
                    const uint32_t next = slot + 1 < last ? slot + 1 : 0;
                    wk_wide_ready();
                    held ^= a.inputs;
                    if (next || item + a.workers < a.items) wk_wide_inputs<NT, F...>(a, shared + held, next, column0, columns);
                }
                if (!at.on) continue;
                const uint32_t type = p.seg[at.seg].type;
                wk_for_type<F...>(type, [&](auto format) { wk_wide_slot<decltype(format), NT, MT>(a, y, inputs, type, slot, a.whole ? slot : 0, ring, f, rank, row, lane); });
                if (a.serial) { /* the sum so far is kept where the finished one is read */
#pragma unroll
                    for (int i = 0; i < MT * NT; i++) {
                        float *const v = y[i / NT][i % NT];
                        float4 *const to = reinterpret_cast<float4 *>(cells + i * WK_WIDE_CELL + in_cell);
                        if (slot) *to = make_float4(__fadd_rn(to->x, v[0]), __fadd_rn(to->y, v[1]), __fadd_rn(to->z, v[2]), __fadd_rn(to->w, v[3]));
                        else *to = make_float4(v[0], v[1], v[2], v[3]);
                    }
                }
            }
        }
        if (a.serial) {
            if (item >= a.items) break;
            __syncwarp();
            wk_wide_finish<NT, MT>(a, cells, 1, 0, 1, item, row, 0, 0, column0, columns);
            __syncwarp();
            continue;
        }
        if (item != worker) /* the item before: parity is of this one, and that of the other barrier differs from it in the first buffer */
            wk_wide_finish<NT, MT>(a, cells + (now ^ 1u) * a.buffer, slots, row, WK_WIDE_WARPS, item - a.workers, rank, sent + (now ^ 1u) * 8, now ? parity : parity ^ 1u, column0, columns);
        if (item >= a.items) break;
        if (threadIdx.x == 0)
            wk_wide_expect(sent + now * 8, wk_wide_at<MT>(a, item, wk_wide_own_row<MT>(a, rank)).on ? wk_wide_outputs<NT, MT>(a, rank) * (p.glu ? 2 : 1) * slots * WK_WIDE_CELL : 0);
        wk_wide_meet(); /* the buffer's last sums have been read */
        if (at.on && rank < slots)
#pragma unroll
            for (int i = 0; i < MT * NT; i++) {
                uint32_t to, cell;
                wk_wide_owner<NT, MT>(a, row, i / NT, i % NT, &to, &cell);
                wk_wide_send((uint32_t)__cvta_generic_to_shared(cells) + now * a.buffer + (rank * a.places + cell) * WK_WIDE_CELL + in_cell, sent + now * 8, to, y[i / NT][i % NT]);
            }
        wk_wide_arrive();
    }
}

#endif
