/* worker/cuda/prologue.cuh: activations into shared memory, and what they add to each group of a tile (wk_terms).
 *
 * A warp brings just the steps of k that it multiplies, of all columns, so no barrier is needed before the first product, only __syncwarp. All that is
 * asked of memory is asked before any of it is used: the way there and back is most of what a prologue costs. */
#ifndef WORKER_CUDA_PROLOGUE_CUH
#define WORKER_CUDA_PROLOGUE_CUH

#include <worker/cuda/product_args.cuh>

enum { WK_AHEAD = 4 }; /* loads of a lane under way */

/* Row of the input that row i of the product reads. */
__device__ __forceinline__ uint32_t wk_input_row(const wk_product_args &p, uint32_t i) { return p.in.row_index ? __ldg(p.in.row_index + i) : i; }

/* A warp's steps are warp, warp + 8, ...: of its two partitions by turns. */
__device__ __forceinline__ uint32_t wk_own_steps(const wk_product_args &p, uint32_t warp) { return warp < p.steps ? (p.steps - warp + WK_SLOTS - 1) / WK_SLOTS : 0; }
/* The i-th value of k of the warp's steps. */
__device__ __forceinline__ uint32_t wk_own_k(const wk_product_args &p, uint32_t warp, uint32_t i)
{
    return ((warp + (i >> p.step_shift) * WK_SLOTS) << p.step_shift) + (i & ((1u << p.step_shift) - 1));
}

/* Terms of 32 values of k, number i in their column, for every type of the launch; s: the act's sums of both halves. */
template <int COLUMNS, class... F> __device__ __forceinline__ void wk_put_terms(const wk_product_args &p, unsigned char *shared, uint32_t column, uint32_t i, float4 s)
{
    uint32_t type = 0;
    ([&] {
        if (p.types >> type & 1u) {
            const wk_terms<F, COLUMNS> terms(shared + p.terms_at[type], p.steps << p.step_shift);
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

/* Act rows: values 16 bytes at a time, zeros past k32; sums of 32 values at a time. A lane keeps to one column. */
template <int COLUMNS, class... F> __device__ __forceinline__ void wk_prologue_act(const wk_product_args &p, unsigned char *shared, uint32_t item, uint32_t warp, uint32_t rows)
{
    constexpr uint32_t apart = 32 / COLUMNS;
    const uint32_t lane = threadIdx.x & 31u, c = lane % COLUMNS, own = wk_own_steps(p, warp) << p.step_shift, row = COLUMNS == 1 || c < rows ? wk_input_row(p, COLUMNS == 1 ? item : c) : 0;
    if (COLUMNS > 1 && c >= rows) return;
    __half *const x = reinterpret_cast<__half *>(shared + p.x_at) + c * p.x_stride;
    const __half *const from = static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32;
    const float *const sums = p.in.aux + (uint64_t)row * (p.k32 / 8);
    /* chunk i, block b: eight and 32 values; a quarter as many blocks */
    for (uint32_t i = lane / COLUMNS, b = i; i < own / 8; i += apart * WK_AHEAD, b += apart) {
        uint4 v[WK_AHEAD];
        uint32_t k[WK_AHEAD];
        float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const uint32_t at = wk_own_k(p, warp, b * 32);
        if (b < own / 32 && at < p.k32) s = *reinterpret_cast<const float4 *>(sums + at / 8);
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            k[j] = wk_own_k(p, warp, (i + apart * j) * 8);
            v[j] = make_uint4(0, 0, 0, 0);
            if (i + apart * j < own / 8 && k[j] < p.k32) v[j] = *reinterpret_cast<const uint4 *>(from + k[j]);
        }
        if (b < own / 32) wk_put_terms<COLUMNS, F...>(p, shared, c, at / 32, s);
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++)
            if (i + apart * j < own / 8) *reinterpret_cast<uint4 *>(x + k[j]) = v[j];
    }
}

/* F32 rows by the RMS norm: 4 values a lane, 32 of one column in 8 lanes. */
template <int COLUMNS, class... F> __device__ __forceinline__ void wk_prologue_rms(const wk_product_args &p, unsigned char *shared, uint32_t item, uint32_t warp, uint32_t rows)
{
    __half *const x = reinterpret_cast<__half *>(shared + p.x_at);
    const uint32_t lane = threadIdx.x & 31u, blocks = wk_own_steps(p, warp) << p.step_shift >> 5, runs = (p.k + 15) / 16;
    const bool whole = p.k % 4 == 0 && p.in.x_stride % 4 == 0 && (reinterpret_cast<uintptr_t>(p.in.x) | reinterpret_cast<uintptr_t>(p.in.w)) % 16 == 0;
    float scale = 0.0f;
    float *const scales = reinterpret_cast<float *>(shared + p.red_at);
    if (COLUMNS > 1) { /* a warp a row; the numbers' place is that of sums not yet made */
        if (warp < rows) {
            scale = wk_rms_scale(p.in.aux + (uint64_t)wk_input_row(p, warp) * runs, runs, p.k, p.in.eps);
            if (lane == 0) scales[warp] = scale;
        }
        __syncthreads();
    }
    const uint32_t rounds = COLUMNS == 1 ? (blocks + 3) / 4 : 2 * blocks; /* all lanes take part in the sums */
    for (uint32_t r = 0; r < rounds; r += WK_AHEAD) {
        float4 v[WK_AHEAD], w[WK_AHEAD];
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            const uint32_t b = COLUMNS == 1 ? (r + j) * 4 + lane / 8 : (r + j) / 2, c = COLUMNS == 1 ? 0 : (r + j) % 2 * 4 + lane / 8;
            const uint32_t k = wk_own_k(p, warp, b * 32) + lane % 8 * 4;
            v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            w[j] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
            if (b >= blocks || c >= rows || k >= p.k) continue;
            const float *row = static_cast<const float *>(p.in.x) + wk_input_row(p, COLUMNS == 1 ? item : c) * p.in.x_stride + k;
            if (whole) {
                v[j] = *reinterpret_cast<const float4 *>(row);
                if (p.in.w) w[j] = __ldg(reinterpret_cast<const float4 *>(p.in.w + k));
            } else {
                v[j].x = row[0];
                if (k + 1 < p.k) v[j].y = row[1];
                if (k + 2 < p.k) v[j].z = row[2];
                if (k + 3 < p.k) v[j].w = row[3];
                if (p.in.w) {
                    w[j].x = __ldg(p.in.w + k);
                    if (k + 1 < p.k) w[j].y = __ldg(p.in.w + k + 1);
                    if (k + 2 < p.k) w[j].z = __ldg(p.in.w + k + 2);
                    if (k + 3 < p.k) w[j].w = __ldg(p.in.w + k + 3);
                }
            }
        }
        if (COLUMNS == 1 && r == 0) scale = wk_rms_scale(p.in.aux + (uint64_t)wk_input_row(p, item) * runs, runs, p.k, p.in.eps);
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            if (r + j >= rounds) break;
            const uint32_t b = COLUMNS == 1 ? (r + j) * 4 + lane / 8 : (r + j) / 2, c = COLUMNS == 1 ? 0 : (r + j) % 2 * 4 + lane / 8;
            const uint32_t k = wk_own_k(p, warp, b * 32) + lane % 8 * 4;
            if (COLUMNS > 1) scale = scales[min(c, rows - 1)];
            const __half2 low = __halves2half2(wk_act_half(wk_rms_value(v[j].x, scale, w[j].x), 0), wk_act_half(wk_rms_value(v[j].y, scale, w[j].y), 0));
            const __half2 high = __halves2half2(wk_act_half(wk_rms_value(v[j].z, scale, w[j].z), 0), wk_act_half(wk_rms_value(v[j].w, scale, w[j].w), 0));
            const float2 s = wk_act_sum16(low, high);
            const float2 t = make_float2(__shfl_xor_sync(0xffffffffu, s.x, 4), __shfl_xor_sync(0xffffffffu, s.y, 4)); /* of the other half of the 32 */
            if (b >= blocks || c >= rows) continue;
            uint2 bits;
            bits.x = *reinterpret_cast<const uint32_t *>(&low);
            bits.y = *reinterpret_cast<const uint32_t *>(&high);
            *reinterpret_cast<uint2 *>(x + c * p.x_stride + k) = bits;
            if (lane % 8 == 0) wk_put_terms<COLUMNS, F...>(p, shared, c, k / 32, make_float4(s.x, s.y, t.x, t.y));
        }
    }
    if (COLUMNS > 1) __syncthreads(); /* scales are read before sums of products take their place */
}

/* All columns of the launch (1: only row `item`). */
template <int COLUMNS, class... F> __device__ __forceinline__ void wk_prologue(const wk_product_args &p, unsigned char *shared, uint32_t item, uint32_t warp)
{
    const uint32_t rows = COLUMNS == 1 ? 1 : p.rows;
    if (p.in.kind == WK_CUDA_IN_RMS) wk_prologue_rms<COLUMNS, F...>(p, shared, item, warp, rows);
    else wk_prologue_act<COLUMNS, F...>(p, shared, item, warp, rows);
    __syncwarp();
}

#endif
