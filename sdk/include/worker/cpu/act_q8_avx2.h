/* worker/cpu/act_q8_avx2.h: wk_quantize_act_q8 for AVX2, the same bits. Include only in files compiled with -mavx2. */
#ifndef WORKER_CPU_ACT_Q8_AVX2_H
#define WORKER_CPU_ACT_Q8_AVX2_H

#include <immintrin.h>

#include <worker/cpu/act_q8.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline float wk_max8_avx2(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

/* Sum of 16 signed bytes. */
static inline int16_t wk_sum16_avx2(__m128i q)
{
    __m256i s = _mm256_madd_epi16(_mm256_cvtepi8_epi16(q), _mm256_set1_epi16(1));
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
    return (int16_t)_mm_cvtsi128_si32(t);
}

static inline void wk_quantize_act_q8_block_avx2(const float *x, struct wk_activation_q8 *y)
{
    const __m256 clear_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), top = _mm256_set1_ps(3.402823466e38f);
    __m256 v[4], max = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        const __m256 a = _mm256_and_ps(v[i], clear_sign);
        bad = _mm256_or_ps(bad, _mm256_cmp_ps(a, top, _CMP_NLE_UQ));
        max = _mm256_max_ps(max, a);
    }
    float inverse;
    if (!wk_activation_q8_scale(wk_max8_avx2(max), !_mm256_movemask_ps(bad), y, &inverse)) return;
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    /* Packing works in 128-bit lanes: put the 4-byte groups back in order. */
    const __m256i ordered = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    memcpy(y->q, &ordered, sizeof y->q);
    y->sum[0] = wk_sum16_avx2(_mm256_castsi256_si128(ordered));
    y->sum[1] = wk_sum16_avx2(_mm256_extracti128_si256(ordered, 1));
}

static inline void wk_quantize_act_q8_avx2(const float *x, uint32_t k, struct wk_activation_q8 *y)
{
    uint32_t i = 0;
    for (; k - i >= WK_ACTIVATION_BLOCK; i += WK_ACTIVATION_BLOCK) wk_quantize_act_q8_block_avx2(x + i, y++);
    if (i < k) wk_quantize_act_q8_block(x + i, k - i, y);
}

#ifdef __cplusplus
}
#endif
#endif
