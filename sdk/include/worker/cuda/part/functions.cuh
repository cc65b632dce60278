/* worker/cuda/part/functions.cuh: the functions of WK_OP_UNARY and WK_OP_GLU, once for every kernel that applies them.
 *
 * A product's epilogue and a launch of its own give the same bits because both call these. F32 throughout, with the
 * CUDA math library's accurate functions: a few units in the last place, also in the tails (no form here subtracts two
 * close numbers). A NaN stays a NaN: limits are written as comparisons, since fminf and fmaxf would drop it. `fn` is
 * the same for a whole launch, so the branches do not diverge. */
#ifndef WORKER_CUDA_PART_FUNCTIONS_CUH
#define WORKER_CUDA_PART_FUNCTIONS_CUH

#include <stdint.h>

#include <worker/arch.h>

/* x / d for d >= 1, also infinite: the hardware's reciprocal and one step of Newton's, within 1.5 units in the last
 * place. Past 2^126 d is as good as infinite. Less than half of a division's instructions. */
__device__ __forceinline__ float wk_quotient(float x, float d)
{
    float r;
    d = fminf(d, 0x1p126f); /* of a NaN too: then x is one */
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return __fmul_rn(x, __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r));
}
__device__ __forceinline__ float wk_sigmoid(float x) { return __frcp_rn(__fadd_rn(1.0f, expf(-x))); }
__device__ __forceinline__ float wk_silu(float x) { return wk_quotient(x, __fadd_rn(1.0f, expf(-x))); }

/* (1 + tanh u) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
__device__ __forceinline__ float wk_gelu_tanh(float x)
{
    const float inner = __fmaf_rn(__fmul_rn(__fmul_rn(x, x), x), 0.044715f, x);
    return wk_quotient(x, __fadd_rn(1.0f, expf(__fmul_rn(inner, -1.59576912f))));
}

/* x Phi(x) = x / 2 erfc(-x / sqrt 2). */
__device__ __forceinline__ float wk_gelu_erf(float x)
{
    return __fmul_rn(__fmul_rn(0.5f, x), erfcf(__fmul_rn(x, -0.707106781f)));
}

__device__ __forceinline__ float wk_clamp_glu(float g, float u, float alpha, float limit)
{
    g = g > limit ? limit : g;
    u = u > limit ? limit : u < -limit ? -limit : u;
    return __fmul_rn(wk_quotient(g, __fadd_rn(1.0f, expf(-__fmul_rn(alpha, g)))), __fadd_rn(u, 1.0f));
}

/* WK_UNARY_* up to WK_UNARY_SOFTCAP, which products end with; another fn (0: none) gives x. */
__device__ __forceinline__ float wk_map_value(uint32_t fn, float x, float p)
{
    switch (fn) {
    case WK_UNARY_SCALE: return __fmul_rn(x, p);
    case WK_UNARY_GELU_TANH: return wk_gelu_tanh(x);
    case WK_UNARY_GELU_ERF: return wk_gelu_erf(x);
    case WK_UNARY_SILU: return wk_silu(x);
    case WK_UNARY_SIGMOID: return wk_sigmoid(x);
    case WK_UNARY_TANH: return tanhf(x);
    case WK_UNARY_RELU: return x < 0.0f ? 0.0f : x;
    case WK_UNARY_SOFTCAP: return __fmul_rn(p, tanhf(__fdiv_rn(x, p)));
    default: return x;
    }
}

/* All of WK_UNARY_*. The others are rare, and each makes every product's code longer, which costs time. */
__device__ __forceinline__ float wk_unary_value(uint32_t fn, float x, float p)
{
    switch (fn) {
    case WK_UNARY_SOFTPLUS: return __fadd_rn(fmaxf(x, 0.0f), log1pf(expf(-fabsf(x))));
    case WK_UNARY_EXP: return expf(x);
    default: return wk_map_value(fn, x, p);
    }
}

/* WK_GLU_* of gate and up; an unknown fn gives the gate. */
__device__ __forceinline__ float wk_glu_value(uint32_t fn, float g, float u, float alpha, float limit)
{
    switch (fn) {
    case WK_GLU_SILU: return __fmul_rn(wk_silu(g), u);
    case WK_GLU_GELU_TANH: return __fmul_rn(wk_gelu_tanh(g), u);
    case WK_GLU_GELU_ERF: return __fmul_rn(wk_gelu_erf(g), u);
    case WK_GLU_SILU_CLAMPED: return wk_clamp_glu(g, u, alpha, limit);
    default: return g;
    }
}

#endif
