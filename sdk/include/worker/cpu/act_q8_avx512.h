/* worker/cpu/act_q8_avx512.h: wk_quantize_act_q8 for AVX-512, the same bits. Include only in files compiled for the
 * AVX-512 level. */
#ifndef WORKER_CPU_ACT_Q8_AVX512_H
#define WORKER_CPU_ACT_Q8_AVX512_H

#include <immintrin.h>

#include <worker/cpu/act_q8.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline void wk_quantize_act_q8_block_avx512(const float *x, struct wk_activation_q8 *y)
{
    const __m512 top = _mm512_set1_ps(3.402823466e38f), a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512 abs_a = _mm512_abs_ps(a), abs_b = _mm512_abs_ps(b);
    const __mmask16 bad = _mm512_cmp_ps_mask(abs_a, top, _CMP_NLE_UQ) | _mm512_cmp_ps_mask(abs_b, top, _CMP_NLE_UQ);
    float inverse;
    if (!wk_activation_q8_scale(_mm512_reduce_max_ps(_mm512_max_ps(abs_a, abs_b)), !bad, y, &inverse)) return;
    const __m512 i = _mm512_set1_ps(inverse);
    const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, i)), qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, i));
    _mm_storeu_si128((__m128i *)y->q, _mm512_cvtepi32_epi8(qa));
    _mm_storeu_si128((__m128i *)(y->q + 16), _mm512_cvtepi32_epi8(qb));
    y->sum[0] = (int16_t)_mm512_reduce_add_epi32(qa);
    y->sum[1] = (int16_t)_mm512_reduce_add_epi32(qb);
}

static inline void wk_quantize_act_q8_avx512(const float *x, uint32_t k, struct wk_activation_q8 *y)
{
    uint32_t i = 0;
    for (; k - i >= WK_ACTIVATION_BLOCK; i += WK_ACTIVATION_BLOCK) wk_quantize_act_q8_block_avx512(x + i, y++);
    if (i < k) wk_quantize_act_q8_block(x + i, k - i, y);
}

#ifdef __cplusplus
}
#endif
#endif
