/* worker/cuda/act.cuh: the one written arithmetic of activations, shared by every kernel that makes or reads them.
 *
 * A fusion changes where a number is made, never how: a norm in a product's prologue and the same norm in a launch of its own give the
 * same bits because both call these functions. All sums are fixed trees; multiplications and additions are rounded as written. */
#ifndef WORKER_CUDA_ACT_CUH
#define WORKER_CUDA_ACT_CUH

#include <cuda_fp16.h>
#include <stdint.h>

/* x * 2^-shift as f16; clamped, NaN stays NaN. */
__device__ __forceinline__ __half wk_act_half(float x, uint32_t shift)
{
    const float s = __fmul_rn(x, __uint_as_float((127u - shift) << 23));
    return s != s ? __float2half_rn(s) : __float2half_rn(fminf(fmaxf(s, -65504.0f), 65504.0f));
}

/* One thread holds value j of a run of 16 that lies in 16 neighbouring lanes (j = lane % 16). Sum of squares of the run, in every lane of it. */
__device__ __forceinline__ float wk_square_sum16(float x)
{
    float s = __fmul_rn(x, x);
#pragma unroll
    for (int d = 1; d < 16; d <<= 1) s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, d));
    return s;
}

/* The act's sums of a run of 16 in 16 neighbouring lanes: .x over j % 4 in {0, 1}, .y over {2, 3}; in every lane of it. */
__device__ __forceinline__ float2 wk_act_sum16(__half h)
{
    float s = __half2float(h);
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 1));
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 4));
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 8));
    const float other = __shfl_xor_sync(0xffffffffu, s, 2);
    return (threadIdx.x & 2) ? make_float2(other, s) : make_float2(s, other);
}

/* 1 / sqrt(mean + eps) of a row from its partials part[n16], n16 = ceil(n / 16), by one whole warp; in every lane. Lane l adds the partials l,
 * l + 32, ... in order, then the lanes are added by a fixed tree. */
__device__ __forceinline__ float wk_rms_scale(const float *part, uint32_t n16, uint32_t n, float eps)
{
    float s = 0.0f;
    for (uint32_t i = threadIdx.x & 31u; i < n16; i += 32) s = __fadd_rn(s, __ldcg(part + i));
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, d));
    return __frsqrt_rn(__fadd_rn(__fdiv_rn(s, (float)n), eps));
}

/* The normed value: (x * scale) * w. */
__device__ __forceinline__ float wk_rms_value(float x, float scale, float w) { return __fmul_rn(__fmul_rn(x, scale), w); }

/* Programmatic dependent launch: no-ops before sm_90. Rules: before wk_depend a kernel reads weights, constants and what was finished before the
 * preceding launch began, and writes nothing; every block of every kernel calls wk_depend, also one without work. */
__device__ __forceinline__ void wk_depend()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void wk_release()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#endif
