/* kernels_avx512.c: the kernels over 16 lanes (AVX-512 F, BW, VL, DQ). */
#include "device/cpu/kernels.h"

#include <immintrin.h>

#include <worker/cpu/act_q8_avx512.h>

#define VW 16u
typedef __m512 vf;
#define V static inline __attribute__((always_inline))

V vf vf_set1(float x) { return _mm512_set1_ps(x); }
V vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
V void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
V vf vf_load_n(const float *p, uint32_t n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
V void vf_store_n(float *p, vf x, uint32_t n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x); }
V vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
V vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
V vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
V vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
V vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
V vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
V vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
V vf vf_abs(vf a) { return _mm512_abs_ps(a); }
V vf vf_sign(vf a, vf sign)
{
    __m512i bit = _mm512_set1_epi32(INT32_MIN); /* 0xca: where the bit is set the second operand, else the third */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign), _mm512_castps_si512(a), 0xca));
}
V vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
V vf vf_pow2(vf a, vf n) { return _mm512_scalef_ps(a, n); }
V vf vf_lt(vf a, vf b, vf x, vf y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x); }
V float vf_sum(vf a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
V float vf_top(vf a) { return _mm512_reduce_max_ps(a); }
V vf vf_load_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
V void vf_store_half(uint16_t *p, vf x)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define SCORES_NQ 8
#define VALUES_NQ 6
#define quantize_row wk_quantize_act_q8_avx512
#define ISA_NAME "avx512"
#define ISA_LEVEL WK_ISA_AVX512
#define ISA_TABLE cpu_kernels_avx512
#include "device/cpu/kernels_body.h"
