/* worker/cpu/tile_portable.h: products of tiles in plain C. Definitions: tile_common.h. */
#ifndef WORKER_CPU_TILE_PORTABLE_H
#define WORKER_CPU_TILE_PORTABLE_H

#include <worker/cpu/vec_portable.h>

#define WK_PAIR 1
#define WK_PAIR_TOKENS 1

/* One sub-block of one row: exact. w: the row's byte of every word, 64 bytes apart. */
WK_INLINE int32_t wk_dot(const struct wk_v *w, uint32_t r, const int8_t *q, uint32_t n)
{
    int32_t dot = 0;
    for (uint32_t i = 0; i < n; i++) dot += (int32_t)(w[i / 4].u[r] >> 8 * (i % 4) & 0xffu) * q[i];
    return dot;
}

WK_INLINE void wk_tokens_q8(const struct wk_cpu_product *p, const struct wk_tile_format *f, const uint32_t tiles, struct wk_v w[WK_PAIR][8],
                            struct wk_tile_scratch *s, const uint32_t j, uint32_t k0, uint32_t t0, uint32_t n)
{
    const uint32_t halves = WK_ACT_BLOCK / f->sub;
    (void)tiles;
    for (uint32_t t = 0; t < n; t++) {
        const struct wk_act_q8 *x = wk_x_q8(p, t0 + t, k0);
        float *acc = s->acc + (uint64_t)t * WK_TILE_ROWS;
        for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
            const uint32_t at = j * halves * WK_TILE_ROWS + r;
            float v = 0;
            for (uint32_t h = 0; h < halves; h++) {
                const int32_t dot = wk_dot(w[0] + h * 4, r, x->q + h * 16, f->sub) - (int32_t)f->offset * wk_x_sum(x, halves, h);
                v += (float)dot * s->scale[0][at + h * WK_TILE_ROWS];
            }
            for (uint32_t h = 0; h < halves && f->has_min; h++) v -= (float)wk_x_sum(x, halves, h) * s->min[0][at + h * WK_TILE_ROWS];
            acc[r] += v * x->d;
        }
    }
}

WK_INLINE void wk_tokens_f32(const struct wk_cpu_product *p, const float *values, uint32_t len, uint32_t k0, float *acc, uint32_t t0, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++) {
        const float *x = wk_x_f32(p, t0 + t, k0);
        float *a = acc + (uint64_t)t * 4 * WK_TILE_ROWS;
        for (uint32_t i = 0; i < len; i++) {
            for (uint32_t r = 0; r < WK_TILE_ROWS; r++) a[i % 4 * WK_TILE_ROWS + r] += values[i * WK_TILE_ROWS + r] * x[i];
        }
    }
}

#include <worker/cpu/tile_driver.h>
#endif
