/* worker/cpu/tile_avx512.h: products of tiles for AVX-512 with VNNI. Definitions: tile_common.h.
 *
 * vpdpbusd takes 4 unsigned weights and 4 signed activations of every row; the activations are a 4-byte broadcast. With
 * two tiles in registers (16 vectors) a token costs 16 of them and 8 broadcasts. Converting the integer sum to float is
 * free: the sum starts at the bits of 1.5 * 2^23, so that it *is* the float 1.5 * 2^23 + dot (|dot| < 2^22), and
 * fma(that, scale, -1.5 * 2^23 * scale) is dot * scale rounded once: a scale has at most 22 significant bits, so the
 * third operand is exact. */
#ifndef WORKER_CPU_TILE_AVX512_H
#define WORKER_CPU_TILE_AVX512_H

#include <worker/cpu/vec_avx512.h>

#define WK_PAIR 2
#define WK_PAIR_TOKENS 8 /* from so many tokens on sharing activations is worth reading two tiles at once */

#if defined(__clang__)
#define WK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WK_UNROLL _Pragma("GCC unroll 16")
#endif

#define WK_MAGIC 0x4b400000
#define WK_MAGIC_F 0x1.8p23f

/* 4 bytes at p in every row. */
WK_INLINE __m512i wk_broadcast4(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

/* The two int16 factors of vpdpwssd that pick or weigh an activation block's two sums. */
WK_INLINE __m512i wk_sum_factors(int32_t first, int32_t second)
{
    return _mm512_set1_epi32((int32_t)((uint32_t)(first & 0xffff) | (uint32_t)second << 16));
}

/* Scales and minima of one 32-block by tile and sub-block, loaded once for all tokens (stores to the sums might alias
 * them). */
struct wk_factors {
    __m512 scale[WK_PAIR][2], unmagic[WK_PAIR], min[WK_PAIR][2];
};

WK_INLINE void wk_load_factors(const struct wk_tile_format *f, const uint32_t tiles, const struct wk_tile_scratch *s,
                               const uint32_t j, struct wk_factors *to)
{
    const uint32_t halves = WK_ACTIVATION_BLOCK / f->sub;
    WK_UNROLL
    for (uint32_t i = 0; i < tiles; i++) {
        WK_UNROLL
        for (uint32_t h = 0; h < halves; h++) {
            to->scale[i][h] = _mm512_load_ps(s->scale[i] + (j * halves + h) * WK_TILE_ROWS);
            if (f->has_min) to->min[i][h] = _mm512_load_ps(s->min[i] + (j * halves + h) * WK_TILE_ROWS);
        }
        to->unmagic[i] = _mm512_mul_ps(to->scale[i][0], _mm512_set1_ps(-WK_MAGIC_F));
    }
}

/* The integer sums of one 32-block of `tiles` tiles and `tokens` tokens (both constant), the first of them with the
 * magic bits. x: token t at t * stride bytes. */
WK_INLINE void wk_dots(const struct wk_tile_format *f, const uint32_t tiles, const uint32_t tokens,
                       struct wk_v w[WK_PAIR][8], const uint8_t *x, uint64_t stride, __m512i dot[2][WK_PAIR][2])
{
    const uint32_t halves = WK_ACTIVATION_BLOCK / f->sub;
    const int32_t offset = -(int32_t)f->offset;
    WK_UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const __m512i sums = wk_broadcast4(x + t * stride + offsetof(struct wk_activation_q8, sum));
        __m512i start[2] = { _mm512_set1_epi32(WK_MAGIC), _mm512_setzero_si512() };
        if (offset) {
            start[0] = _mm512_dpwssd_epi32(start[0], sums, wk_sum_factors(offset, halves == 1 ? offset : 0));
            if (halves == 2) start[1] = _mm512_dpwssd_epi32(start[1], sums, wk_sum_factors(0, offset));
        }
        WK_UNROLL
        for (uint32_t i = 0; i < tiles; i++) {
            dot[t][i][0] = start[0];
            dot[t][i][1] = start[1];
        }
    }
    WK_UNROLL
    for (uint32_t n = 0; n < 8; n++) {
        WK_UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const __m512i q = wk_broadcast4(x + t * stride + offsetof(struct wk_activation_q8, q) + 4 * n);
            const uint32_t h = n * halves / 8;
            WK_UNROLL
            for (uint32_t i = 0; i < tiles; i++) dot[t][i][h] = _mm512_dpbusd_epi32(dot[t][i][h], w[i][n].v, q);
        }
    }
}

/* The same block, scaled and added to acc [token][tiles][16]. */
WK_INLINE void wk_micro_q8(const struct wk_tile_format *f, const uint32_t tiles, const uint32_t tokens,
                           struct wk_v w[WK_PAIR][8], const struct wk_factors *factors, const uint8_t *x,
                           uint64_t stride, float *acc)
{
    const uint32_t halves = WK_ACTIVATION_BLOCK / f->sub, minima = f->has_min ? halves : 0;
    __m512i dot[2][WK_PAIR][2];
    wk_dots(f, tiles, tokens, w, x, stride, dot);
    WK_UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const __m512 d = _mm512_castsi512_ps(wk_broadcast4(x + t * stride + offsetof(struct wk_activation_q8, d)));
        const __m512i sums = wk_broadcast4(x + t * stride + offsetof(struct wk_activation_q8, sum));
        __m512 sum[2];
        WK_UNROLL
        for (uint32_t h = 0; h < minima; h++)
            sum[h] = _mm512_cvtepi32_ps(
                _mm512_dpwssd_epi32(_mm512_setzero_si512(), sums, wk_sum_factors(h == 0, h == 1 || halves == 1)));
        WK_UNROLL
        for (uint32_t i = 0; i < tiles; i++) {
            __m512 v = _mm512_fmadd_ps(_mm512_castsi512_ps(dot[t][i][0]), factors->scale[i][0], factors->unmagic[i]);
            if (halves == 2) v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][i][1]), factors->scale[i][1], v);
            WK_UNROLL
            for (uint32_t h = 0; h < minima; h++) v = _mm512_fnmadd_ps(sum[h], factors->min[i][h], v);
            float *a = acc + (t * tiles + i) * WK_TILE_ROWS;
            _mm512_store_ps(a, _mm512_fmadd_ps(v, d, _mm512_load_ps(a)));
        }
    }
}

WK_INLINE void wk_tokens_q8(const struct wk_cpu_product *p, const struct wk_tile_format *f, const uint32_t tiles,
                            struct wk_v w[WK_PAIR][8], struct wk_tile_scratch *s, const uint32_t j, uint32_t k0,
                            uint32_t t0, uint32_t n)
{
    const uint64_t stride = p->x_stride;
    const uint8_t *x = (const uint8_t *)wk_x_q8(p, t0, k0);
    float *acc = s->acc;
    struct wk_factors factors;
    wk_load_factors(f, tiles, s, j, &factors);
    uint32_t t = 0;
    for (; t + 2 <= n; t += 2) {
        wk_micro_q8(f, tiles, 2, w, &factors, x, stride, acc);
        x += 2 * stride;
        acc += 2 * tiles * WK_TILE_ROWS;
    }
    if (t < n) wk_micro_q8(f, tiles, 1, w, &factors, x, stride, acc);
}

/* `tokens` (constant) tokens times values [len][16]; acc: [token][4][16]. */
WK_INLINE void wk_micro_f32(const uint32_t tokens, const float *values, uint32_t len, const uint8_t *x, uint64_t stride,
                            float *acc)
{
    __m512 a[4][4];
    WK_UNROLL
    for (uint32_t i = 0; i < tokens * 4; i++) a[i / 4][i % 4] = _mm512_load_ps(acc + i * WK_TILE_ROWS);
    uint32_t i = 0;
    for (; i + 4 <= len; i += 4) {
        WK_UNROLL
        for (uint32_t part = 0; part < 4; part++) {
            const __m512 v = _mm512_load_ps(values + (i + part) * WK_TILE_ROWS);
            WK_UNROLL
            for (uint32_t t = 0; t < tokens; t++)
                a[t][part] = _mm512_fmadd_ps(
                    v, _mm512_castsi512_ps(wk_broadcast4(x + t * stride + (i + part) * sizeof(float))), a[t][part]);
        }
    }
    WK_UNROLL
    for (uint32_t part = 0; part < 3; part++) {
        if (i + part >= len) break;
        const __m512 v = _mm512_load_ps(values + (i + part) * WK_TILE_ROWS);
        WK_UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            a[t][part] = _mm512_fmadd_ps(
                v, _mm512_castsi512_ps(wk_broadcast4(x + t * stride + (i + part) * sizeof(float))), a[t][part]);
    }
    WK_UNROLL
    for (uint32_t n = 0; n < tokens * 4; n++) _mm512_store_ps(acc + n * WK_TILE_ROWS, a[n / 4][n % 4]);
}

WK_INLINE void wk_tokens_f32(const struct wk_cpu_product *p, const float *values, uint32_t len, uint32_t k0, float *acc,
                             uint32_t t0, uint32_t n)
{
    const uint8_t *x = (const uint8_t *)wk_x_f32(p, t0, k0);
    uint32_t t = 0;
    for (; t + 4 <= n; t += 4)
        wk_micro_f32(4, values, len, x + t * p->x_stride, p->x_stride, acc + (uint64_t)t * 4 * WK_TILE_ROWS);
    for (; t < n; t++)
        wk_micro_f32(1, values, len, x + t * p->x_stride, p->x_stride, acc + (uint64_t)t * 4 * WK_TILE_ROWS);
}

#include <worker/cpu/tile_driver.h>
#endif
