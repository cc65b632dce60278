/* kernels_avx2.c: the kernels over 8 lanes (AVX2, FMA, F16C). */
#include "device/cpu/kernels.h"

#include <immintrin.h>
#include <string.h>

#include <worker/cpu/act_q8_avx2.h>

#define VW 8u
typedef __m256 vf;
#define V static inline __attribute__((always_inline))

V vf vf_set1(float x) { return _mm256_set1_ps(x); }
V vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
V void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
V vf vf_load_n(const float *p, uint32_t n)
{
    float t[VW] = { 0 };
    memcpy(t, p, n * sizeof *p);
    return vf_load(t);
}
V void vf_store_n(float *p, vf x, uint32_t n)
{
    float t[VW];
    vf_store(t, x);
    memcpy(p, t, n * sizeof *p);
}
V vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
V vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
V vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
V vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
V vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
V vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
V vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
V vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
V vf vf_sign(vf a, vf sign) { return _mm256_or_ps(vf_abs(a), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign)); }
V vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
V vf vf_pow2(vf a, vf n)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
}
V vf vf_lt(vf a, vf b, vf x, vf y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
V float vf_sum(vf a)
{
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
V float vf_top(vf a)
{
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
V vf vf_load_half(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
V void vf_store_half(uint16_t *p, vf x)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define SCORES_NQ 4
#define VALUES_NQ 3
#define quantize_row wk_quantize_act_q8_avx2
#define ISA_NAME "avx2"
#define ISA_LEVEL WK_ISA_AVX2
#define ISA_TABLE cpu_kernels_avx2
#include "device/cpu/kernels_body.h"
