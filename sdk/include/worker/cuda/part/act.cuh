/* worker/cuda/part/act.cuh: the one written arithmetic of activations, shared by every kernel that makes or reads them.
 *
 * A fusion changes where a number is made, never how: a norm in a product's prologue and the same norm in a launch of
 * its own give the same bits because both call these functions. All sums are fixed trees; multiplications and additions
 * are rounded as written. */
#ifndef WORKER_CUDA_PART_ACT_CUH
#define WORKER_CUDA_PART_ACT_CUH

#include <cuda_fp16.h>
#include <stdint.h>

/* Two values as f16, `low` in the low half: rounded to nearest even; what is out of range, infinities too, becomes
 * +-65504; a NaN stays NaN. One instruction does it all. */
__device__ __forceinline__ __half2 wk_act_half2(float low, float high)
{
    union {
        uint32_t u;
        __half2 h;
    } both;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(both.u) : "f"(high), "f"(low));
    return both.h;
}
/* The same of the values times 2^-shift. */
__device__ __forceinline__ __half2 wk_act_half2(float low, float high, uint32_t shift)
{
    const float factor = __uint_as_float((127u - shift) << 23);
    return wk_act_half2(__fmul_rn(low, factor), __fmul_rn(high, factor));
}
__device__ __forceinline__ __half wk_act_half(float x, uint32_t shift)
{
    return __low2half(wk_act_half2(x, 0.0f, shift));
}

/* One thread holds value j of a run of 16 that lies in 16 neighbouring lanes (j = lane % 16). Sum of squares of the
 * run, in every lane of it. */
__device__ __forceinline__ float wk_square_sum16(float x)
{
    float s = __fmul_rn(x, x);
#pragma unroll
    for (int d = 1; d < 16; d <<= 1) s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, d));
    return s;
}

/* The same where 4 neighbouring lanes hold a run, 4 values each: the same tree, the same bits. */
__device__ __forceinline__ float wk_square_sum16(float4 x)
{
    float s = __fadd_rn(__fadd_rn(__fmul_rn(x.x, x.x), __fmul_rn(x.y, x.y)),
                        __fadd_rn(__fmul_rn(x.z, x.z), __fmul_rn(x.w, x.w)));
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 1));
    return __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 2));
}
/* And where 2 of them do, an even one and the next, 8 values each. */
__device__ __forceinline__ float wk_square_sum16(float4 low, float4 high)
{
    const float a = __fadd_rn(__fadd_rn(__fmul_rn(low.x, low.x), __fmul_rn(low.y, low.y)),
                              __fadd_rn(__fmul_rn(low.z, low.z), __fmul_rn(low.w, low.w)));
    const float b = __fadd_rn(__fadd_rn(__fmul_rn(high.x, high.x), __fmul_rn(high.y, high.y)),
                              __fadd_rn(__fmul_rn(high.z, high.z), __fmul_rn(high.w, high.w)));
    const float s = __fadd_rn(a, b);
    return __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 1));
}

/* The lanes of a warp by a fixed tree; in every lane. */
__device__ __forceinline__ float wk_warp_sum(float s)
{
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, d));
    return s;
}

/* 1 / sqrt(sum / n + eps) */
__device__ __forceinline__ float wk_norm_scale(float sum, uint32_t n, float eps)
{
    return __frsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)n), eps));
}

/* The same of a row from its partials part[n16], n16 = ceil(n / 16), by one whole warp; in every lane. Lane l adds the
 * partials l, l + 32, ... in order, then the lanes are added. */
__device__ __forceinline__ float wk_rms_scale(const float *part, uint32_t n16, uint32_t n, float eps)
{
    float s = 0.0f;
    for (uint32_t i = threadIdx.x & 31u; i < n16; i += 32) s = __fadd_rn(s, __ldcg(part + i));
    return wk_norm_scale(wk_warp_sum(s), n, eps);
}

/* The normed value: (x * scale) * w. */
__device__ __forceinline__ float wk_rms_value(float x, float scale, float w)
{
    return __fmul_rn(__fmul_rn(x, scale), w);
}

#endif
