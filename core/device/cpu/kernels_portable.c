/* kernels_portable.c: the kernels over 4 lanes of the compiler's own vector type: any processor, no intrinsics.
 *
 * A fused multiply-add would be a library call on processors without one; here it is a product and a sum. */
#include "device/cpu/kernels.h"

#include <string.h>

#include <worker/cpu/act_q8.h>

#define VW 4u
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
#define V static inline __attribute__((always_inline))

V vf vf_set1(float x) { return (vf){ x, x, x, x }; }
V vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
V void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
V vf vf_load_n(const float *p, uint32_t n)
{
    vf x = { 0 };
    for (uint32_t i = 0; i < n; i++) x[i] = p[i];
    return x;
}
V void vf_store_n(float *p, vf x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) p[i] = x[i];
}
V vf vf_pick(vi mask, vf x, vf y) { return (vf)(((vi)x & mask) | ((vi)y & ~mask)); }
V vf vf_add(vf a, vf b) { return a + b; }
V vf vf_sub(vf a, vf b) { return a - b; }
V vf vf_mul(vf a, vf b) { return a * b; }
V vf vf_div(vf a, vf b) { return a / b; }
V vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
V vf vf_lt(vf a, vf b, vf x, vf y) { return vf_pick(a < b, x, y); }
V vf vf_min(vf a, vf b) { return vf_lt(a, b, a, b); }
V vf vf_max(vf a, vf b) { return vf_lt(b, a, a, b); }
V vf vf_abs(vf a) { return (vf)((vi)a & INT32_MAX); }
V vf vf_sign(vf a, vf sign) { return (vf)(((vi)a & INT32_MAX) | ((vi)sign & INT32_MIN)); }
/* Adding 1.5 * 2^23 leaves no fraction bits; magnitudes from 2^22 on are whole enough for every use here and pass. */
V vf vf_round(vf a)
{
    vf magic = vf_set1(12582912.0f), r = (a + magic) - magic;
    return vf_lt(vf_abs(a), vf_set1(4194304.0f), r, a);
}
V vf vf_pow2(vf a, vf n)
{
    vf magic = vf_set1(12582912.0f);
    vi e = (vi)(n + magic) -
           (vi)magic; /* the whole number, out of the fraction bits; no conversion that a NaN could upset */
    return a * (vf)((vi)((e + 127) << 23));
}
V float vf_sum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
V float vf_top(vf a)
{
    float m = a[0];
    for (uint32_t i = 1; i < VW; i++) m = a[i] > m ? a[i] : m;
    return m;
}

V vf vf_load_half(const uint16_t *p)
{
    return (vf){ wk_half_to_float(p[0]), wk_half_to_float(p[1]), wk_half_to_float(p[2]), wk_half_to_float(p[3]) };
}
V void vf_store_half(uint16_t *p, vf x)
{
    for (uint32_t i = 0; i < VW; i++) p[i] = wk_float_to_half(x[i]);
}

#define SCORES_NQ 4
#define VALUES_NQ 3
#define quantize_row wk_quantize_act_q8
#define ISA_NAME "portable"
#define ISA_LEVEL WK_ISA_PORTABLE
#define ISA_TABLE cpu_kernels_portable
#include "device/cpu/kernels_body.h"
