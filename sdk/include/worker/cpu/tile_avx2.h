/* worker/cpu/tile_avx2.h: products of tiles for AVX2 with FMA and F16C. Definitions: tile_common.h.
 *
 * vpmaddubsw adds two products in 16 bits, saturating. Weights below 2^b allow 2^(7-b) such sums to be added before they are widened;
 * 8-bit weights are made signed (minus 128) and their sign is moved to the activation: |w| <= 128 times 127 twice still fits. */
#ifndef WORKER_CPU_TILE_AVX2_H
#define WORKER_CPU_TILE_AVX2_H

#include <worker/cpu/vec_avx2.h>

#define WK_PAIR 1
#define WK_PAIR_TOKENS 1

#if defined(__clang__)
#define WK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WK_UNROLL _Pragma("GCC unroll 16")
#endif

WK_INLINE __m256i wk_broadcast4(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

/* 8 rows (part) times the 4-byte groups of one sub-block of `words` words; exact. */
WK_INLINE __m256i wk_dot8(const struct wk_v *w, const uint32_t part, const uint32_t words, const uint32_t bits, const int8_t *q, __m256i start)
{
    const uint32_t together = bits >= 7 ? 1 : bits == 6 ? 2 : 4;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i dot = start;
    WK_UNROLL
    for (uint32_t n = 0; n < words; n += together) {
        __m256i pairs = _mm256_setzero_si256();
        WK_UNROLL
        for (uint32_t i = n; i < n + together; i++) {
            const __m256i x = wk_broadcast4(q + 4 * i);
            if (bits == 8) {
                const __m256i v = _mm256_xor_si256(w[i].v[part], _mm256_set1_epi8((char)0x80));
                pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(x, v));
            } else {
                pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[i].v[part], x));
            }
        }
        dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
    }
    return dot;
}

WK_INLINE void wk_tokens_q8(const struct wk_cpu_product *p, const struct wk_tile_format *f, const uint32_t tiles, struct wk_v w[WK_PAIR][8],
                            struct wk_tile_scratch *s, const uint32_t j, uint32_t k0, uint32_t t0, uint32_t n)
{
    const uint32_t halves = WK_ACT_BLOCK / f->sub, minima = f->has_min ? halves : 0;
    const int32_t offset = (int32_t)f->offset - (f->bits == 8 ? 128 : 0);
    (void)tiles;
    for (uint32_t t = 0; t < n; t++) {
        const struct wk_act_q8 *x = wk_x_q8(p, t0 + t, k0);
        float *acc = s->acc + (uint64_t)t * WK_TILE_ROWS;
        const __m256 d = _mm256_set1_ps(x->d);
        WK_UNROLL
        for (uint32_t part = 0; part < 2; part++) {
            __m256 v = _mm256_setzero_ps();
            WK_UNROLL
            for (uint32_t h = 0; h < halves; h++) {
                const uint32_t at = (j * halves + h) * WK_TILE_ROWS + part * 8;
                const __m256i start = _mm256_set1_epi32(-offset * wk_x_sum(x, halves, h));
                const __m256 dot = _mm256_cvtepi32_ps(wk_dot8(w[0] + h * 4, part, 8 / halves, f->bits, x->q + h * 16, start));
                const __m256 scale = _mm256_load_ps(s->scale[0] + at);
                v = h ? _mm256_fmadd_ps(dot, scale, v) : _mm256_mul_ps(dot, scale);
            }
            WK_UNROLL
            for (uint32_t h = 0; h < minima; h++) {
                const uint32_t at = (j * halves + h) * WK_TILE_ROWS + part * 8;
                v = _mm256_fnmadd_ps(_mm256_set1_ps((float)wk_x_sum(x, halves, h)), _mm256_load_ps(s->min[0] + at), v);
            }
            _mm256_store_ps(acc + part * 8, _mm256_fmadd_ps(v, d, _mm256_load_ps(acc + part * 8)));
        }
    }
}

WK_INLINE void wk_tokens_f32(const struct wk_cpu_product *p, const float *values, uint32_t len, uint32_t k0, float *acc, uint32_t t0, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++) {
        const float *x = wk_x_f32(p, t0 + t, k0);
        float *at = acc + (uint64_t)t * 4 * WK_TILE_ROWS;
        __m256 a[8]; /* [k mod 4][2] */
        WK_UNROLL
        for (uint32_t i = 0; i < 8; i++) a[i] = _mm256_load_ps(at + 8 * i);
        uint32_t i = 0;
        for (; i + 4 <= len; i += 4) {
            WK_UNROLL
            for (uint32_t part = 0; part < 8; part++)
                a[part] = _mm256_fmadd_ps(_mm256_load_ps(values + i * WK_TILE_ROWS + part * 8), _mm256_set1_ps(x[i + part / 2]), a[part]);
        }
        WK_UNROLL
        for (uint32_t part = 0; part < 6; part++) {
            if (i + part / 2 >= len) break;
            a[part] = _mm256_fmadd_ps(_mm256_load_ps(values + i * WK_TILE_ROWS + part * 8), _mm256_set1_ps(x[i + part / 2]), a[part]);
        }
        WK_UNROLL
        for (uint32_t n2 = 0; n2 < 8; n2++) _mm256_store_ps(at + 8 * n2, a[n2]);
    }
}

#include <worker/cpu/tile_driver.h>
#endif
