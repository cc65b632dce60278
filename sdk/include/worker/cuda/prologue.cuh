/* worker/cuda/prologue.cuh: activations into shared memory. A warp brings just the steps of k that it multiplies, so no barrier is needed before the
 * first product, only __syncwarp. */
#ifndef WORKER_CUDA_PROLOGUE_CUH
#define WORKER_CUDA_PROLOGUE_CUH

#include <worker/cuda/product_args.cuh>

/* Row of the input that row i of the product reads. */
__device__ __forceinline__ uint32_t wk_input_row(const wk_product_args &p, uint32_t i) { return p.in.row_index ? __ldg(p.in.row_index + i) : i; }

/* A warp's steps are warp, warp + 8, ...: of its two partitions by turns. */
__device__ __forceinline__ uint32_t wk_own_steps(const wk_product_args &p, uint32_t warp) { return warp < p.steps ? (p.steps - warp + WK_SLOTS - 1) / WK_SLOTS : 0; }

/* One column of an act: its values in the warp's steps, zeros past k32; 16 bytes at a time. */
__device__ __forceinline__ void wk_stage_act(const wk_product_args &p, __half *x, const __half *row, uint32_t warp)
{
    const uint32_t lane = threadIdx.x & 31u, shift = p.step_shift - 3, mine = wk_own_steps(p, warp) << shift;
    for (uint32_t i = lane; i < mine; i += 128) {
        uint4 v[4];
        uint32_t k[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t c = i + 32 * j;
            k[j] = ((warp + (c >> shift) * WK_SLOTS) << p.step_shift) + (c & ((1u << shift) - 1)) * 8;
            v[j] = make_uint4(0, 0, 0, 0);
            if (c < mine && k[j] < p.k32) v[j] = *reinterpret_cast<const uint4 *>(row + k[j]);
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (i + 32 * j < mine) *reinterpret_cast<uint4 *>(x + k[j]) = v[j];
    }
}

/* One column from an F32 row by the RMS norm, with the act's sums beside it. */
__device__ __forceinline__ void wk_stage_rms(const wk_product_args &p, __half *x, float2 *sums, const float *row, const float *part, uint32_t warp)
{
    const uint32_t lane = threadIdx.x & 31u, step_k = 1u << p.step_shift;
    const float scale = wk_rms_scale(part, (p.k + 15) / 16, p.k, p.in.eps);
    const bool whole = p.k % 4 == 0 && (reinterpret_cast<uintptr_t>(row) | reinterpret_cast<uintptr_t>(p.in.w)) % 16 == 0;
    for (uint32_t step = warp; step < p.steps; step += WK_SLOTS)
        for (uint32_t i = 0; i < step_k; i += 128) { /* 64 or more: lanes past the step idle, but take part in the sums */
            const uint32_t k = step * step_k + i + 4 * lane;
            float v[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, w[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
            if (whole && k < p.k) {
                const float4 a = *reinterpret_cast<const float4 *>(row + k);
                v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
                if (p.in.w) {
                    const float4 b = __ldg(reinterpret_cast<const float4 *>(p.in.w + k));
                    w[0] = b.x, w[1] = b.y, w[2] = b.z, w[3] = b.w;
                }
            } else {
#pragma unroll
                for (uint32_t j = 0; j < 4; j++)
                    if (k + j < p.k) {
                        v[j] = row[k + j];
                        if (p.in.w) w[j] = __ldg(p.in.w + k + j);
                    }
            }
            __half h[4];
#pragma unroll
            for (int j = 0; j < 4; j++) h[j] = wk_act_half(wk_rms_value(v[j], scale, w[j]), 0);
            const __half2 low = __halves2half2(h[0], h[1]), high = __halves2half2(h[2], h[3]);
            const float2 s = wk_act_sum16(low, high);
            if (i + 4 * lane < step_k) {
                uint2 bits;
                bits.x = *reinterpret_cast<const uint32_t *>(&low);
                bits.y = *reinterpret_cast<const uint32_t *>(&high);
                *reinterpret_cast<uint2 *>(x + k) = bits;
                if (lane % 4 == 0) sums[k / 16] = s;
            }
        }
}

/* All columns of the launch (1: only row `item`), with the terms of every type in it. */
template <int COLUMNS, class... F> __device__ __forceinline__ void wk_prologue(const wk_product_args &p, unsigned char *shared, uint32_t item, uint32_t warp)
{
    __half *x = reinterpret_cast<__half *>(shared + p.x_at);
    const uint32_t rows = COLUMNS == 1 ? 1 : p.rows, padded = p.steps << p.step_shift;
    for (uint32_t c = 0; c < rows; c++) {
        const uint32_t row = wk_input_row(p, COLUMNS == 1 ? item : c);
        const float *sums;
        uint32_t runs;
        if (p.in.kind == WK_CUDA_IN_RMS) {
            float2 *made = reinterpret_cast<float2 *>(shared + p.sums_at) + c * (padded / 16);
            wk_stage_rms(p, x + c * p.x_stride, made, static_cast<const float *>(p.in.x) + row * p.in.x_stride, p.in.aux + (uint64_t)row * ((p.k + 15) / 16), warp);
            __syncwarp();
            sums = reinterpret_cast<const float *>(made);
            runs = padded / 16;
        } else {
            wk_stage_act(p, x + c * p.x_stride, static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32, warp);
            sums = p.in.aux + (uint64_t)row * (p.k32 / 8);
            runs = p.k32 / 16;
        }
        uint32_t type = 0;
        ([&] {
            if (p.types >> type & 1u) {
                const wk_terms<F, COLUMNS> terms(shared + p.terms_at[type], padded);
                const uint32_t shift = p.step_shift - wk_log2(F::group), mine = wk_own_steps(p, warp) << shift;
                for (uint32_t i = threadIdx.x & 31u; i < mine; i += 32)
                    terms.make(sums, runs, c, ((warp + (i >> shift) * WK_SLOTS) << shift) + (i & ((1u << shift) - 1)));
            }
            type++;
        }(), ...);
    }
    __syncwarp();
}

#endif
