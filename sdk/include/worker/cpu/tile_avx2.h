/* worker/cpu/tile_avx2.h: products of tiles for AVX2 with FMA and F16C. Definitions: tile_common.h.
 *
 * vpmaddubsw adds two products in 16 bits, saturating. Weights below 2^b allow 2^(7-b) such sums to be added before
 * they are widened; 8-bit weights are made signed (minus 128) and their sign is moved to the activation: |w| <= 128
 * times 127 twice still fits. */
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

/* 8 rows (part) times one sub-block of `words` words for `tokens` tokens (all constant), added to dot; exact. q: the
 * sub-block's activations of token 0, those of the next `stride` bytes on. */
WK_INLINE void wk_dots(const struct wk_v *w, const uint32_t part, const uint32_t words, const uint32_t bits,
                       const uint32_t tokens, const uint8_t *q, uint64_t stride, __m256i dot[2])
{
    const uint32_t together = bits >= 7 ? 1 : bits == 6 ? 2 : 4;
    const __m256i ones = _mm256_set1_epi16(1);
    WK_UNROLL
    for (uint32_t n = 0; n < words; n += together) {
        __m256i pairs[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
        WK_UNROLL
        for (uint32_t i = n; i < n + together; i++) {
            const __m256i v = bits == 8 ? _mm256_xor_si256(w[i].v[part], _mm256_set1_epi8((char)0x80)) : w[i].v[part];
            WK_UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                const __m256i x = wk_broadcast4(q + t * stride + 4 * i);
                if (bits == 8)
                    pairs[t] = _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(x, v));
                else
                    pairs[t] = _mm256_add_epi16(pairs[t], _mm256_maddubs_epi16(v, x));
            }
        }
        WK_UNROLL
        for (uint32_t t = 0; t < tokens; t++) dot[t] = _mm256_add_epi32(dot[t], _mm256_madd_epi16(pairs[t], ones));
    }
}

/* One 32-block of 8 rows times `tokens` tokens, added to acc [token][16]. */
WK_INLINE void wk_micro_q8(const struct wk_tile_format *f, const struct wk_v *w, const uint32_t part,
                           const uint32_t tokens, const struct wk_tile_scratch *s, const uint32_t j, const uint8_t *x,
                           uint64_t stride, float *acc)
{
    const uint32_t halves = WK_ACTIVATION_BLOCK / f->sub, minima = f->has_min ? halves : 0;
    const int32_t offset = (int32_t)f->offset - (f->bits == 8 ? 128 : 0);
    const float *scale = s->scale[0] + j * halves * WK_TILE_ROWS + part * 8,
                *min = s->min[0] + j * halves * WK_TILE_ROWS + part * 8;
    __m256 v[2];
    WK_UNROLL
    for (uint32_t h = 0; h < halves; h++) {
        __m256i dot[2];
        WK_UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            dot[t] = _mm256_set1_epi32(
                -offset * wk_x_sum((const struct wk_activation_q8 *)(const void *)(x + t * stride), halves, h));
        wk_dots(w + h * 4, part, 8 / halves, f->bits, tokens, x + offsetof(struct wk_activation_q8, q) + h * 16, stride,
                dot);
        WK_UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const __m256 d = _mm256_cvtepi32_ps(dot[t]), by = _mm256_load_ps(scale + h * WK_TILE_ROWS);
            v[t] = h ? _mm256_fmadd_ps(d, by, v[t]) : _mm256_mul_ps(d, by);
        }
    }
    WK_UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const struct wk_activation_q8 *a = (const struct wk_activation_q8 *)(const void *)(x + t * stride);
        WK_UNROLL
        for (uint32_t h = 0; h < minima; h++)
            v[t] = _mm256_fnmadd_ps(_mm256_set1_ps((float)wk_x_sum(a, halves, h)),
                                    _mm256_load_ps(min + h * WK_TILE_ROWS), v[t]);
        float *at = acc + t * WK_TILE_ROWS + part * 8;
        _mm256_store_ps(at, _mm256_fmadd_ps(v[t], _mm256_set1_ps(a->d), _mm256_load_ps(at)));
    }
}

WK_INLINE void wk_tokens_q8(const struct wk_cpu_product *p, const struct wk_tile_format *f, const uint32_t tiles,
                            struct wk_v w[WK_PAIR][8], struct wk_tile_scratch *s, const uint32_t j, uint32_t k0,
                            uint32_t t0, uint32_t n)
{
    const uint64_t stride = p->x_stride;
    const uint8_t *x = (const uint8_t *)wk_x_q8(p, t0, k0);
    (void)tiles;
    uint32_t t = 0;
    for (; t + 2 <= n; t += 2) {
        wk_micro_q8(f, w[0], 0, 2, s, j, x + t * stride, stride, s->acc + (uint64_t)t * WK_TILE_ROWS);
        wk_micro_q8(f, w[0], 1, 2, s, j, x + t * stride, stride, s->acc + (uint64_t)t * WK_TILE_ROWS);
    }
    if (t == n) return;
    wk_micro_q8(f, w[0], 0, 1, s, j, x + t * stride, stride, s->acc + (uint64_t)t * WK_TILE_ROWS);
    wk_micro_q8(f, w[0], 1, 1, s, j, x + t * stride, stride, s->acc + (uint64_t)t * WK_TILE_ROWS);
}

WK_INLINE void wk_tokens_f32(const struct wk_cpu_product *p, const float *values, uint32_t len, uint32_t k0, float *acc,
                             uint32_t t0, uint32_t n)
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
                a[part] = _mm256_fmadd_ps(_mm256_load_ps(values + i * WK_TILE_ROWS + part * 8),
                                          _mm256_set1_ps(x[i + part / 2]), a[part]);
        }
        WK_UNROLL
        for (uint32_t part = 0; part < 6; part++) {
            if (i + part / 2 >= len) break;
            a[part] = _mm256_fmadd_ps(_mm256_load_ps(values + i * WK_TILE_ROWS + part * 8),
                                      _mm256_set1_ps(x[i + part / 2]), a[part]);
        }
        WK_UNROLL
        for (uint32_t n2 = 0; n2 < 8; n2++) _mm256_store_ps(at + 8 * n2, a[n2]);
    }
}

#include <worker/cpu/tile_driver.h>
#endif
