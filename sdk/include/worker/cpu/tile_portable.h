/* worker/cpu/tile_portable.h: products of tiles in plain C. Definitions: tile_common.h. */
#ifndef WORKER_CPU_TILE_PORTABLE_H
#define WORKER_CPU_TILE_PORTABLE_H

#include <worker/cpu/vec_portable.h>

#define WK_PAIR 1
#define WK_PAIR_TOKENS 1

/* Integers below 2^24 are exact in float, and every compiler turns loops over 16 floats into vectors: so the sums of
 * products, at most 32 * 255 * 127, are formed in float. */
WK_INLINE void wk_dots(const float (*weight)[WK_TILE_ROWS], const int8_t *q, uint32_t n, float *dot)
{
    WK_EACH_ROW(r) dot[r] = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float x = (float)q[i];
        WK_EACH_ROW(r) dot[r] += weight[i][r] * x;
    }
}

WK_INLINE void wk_tokens_q8(const struct wk_cpu_product *p, const struct wk_tile_format *f, const uint32_t tiles,
                            struct wk_v w[WK_PAIR][8], struct wk_tile_scratch *s, const uint32_t j, uint32_t k0,
                            uint32_t t0, uint32_t n)
{
    const uint32_t halves = WK_ACTIVATION_BLOCK / f->sub;
    const float *scale = s->scale[0] + j * halves * WK_TILE_ROWS, *min = s->min[0] + j * halves * WK_TILE_ROWS;
    float weight[WK_ACTIVATION_BLOCK][WK_TILE_ROWS];
    (void)tiles;
    for (uint32_t i = 0; i < WK_ACTIVATION_BLOCK; i++)
        wk_store(weight[i], wk_f_sub(wk_byte(w[0][i / 4], i % 4), wk_splat((float)f->offset)));
    for (uint32_t t = 0; t < n; t++) {
        const struct wk_activation_q8 *x = wk_x_q8(p, t0 + t, k0);
        float *acc = s->acc + (uint64_t)t * WK_TILE_ROWS, v[WK_TILE_ROWS] = { 0 }, dot[WK_TILE_ROWS];
        for (uint32_t h = 0; h < halves; h++) {
            wk_dots((const float(*)[WK_TILE_ROWS])weight + h * 16, x->q + h * 16, f->sub, dot);
            WK_EACH_ROW(r) v[r] += dot[r] * scale[h * WK_TILE_ROWS + r];
        }
        for (uint32_t h = 0; h < halves && f->has_min; h++) {
            const float sum = (float)wk_x_sum(x, halves, h);
            WK_EACH_ROW(r) v[r] -= sum * min[h * WK_TILE_ROWS + r];
        }
        WK_EACH_ROW(r) acc[r] += v[r] * x->d;
    }
}

WK_INLINE void wk_tokens_f32(const struct wk_cpu_product *p, const float *values, uint32_t len, uint32_t k0, float *acc,
                             uint32_t t0, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++) {
        const float *x = wk_x_f32(p, t0 + t, k0);
        float *a = acc + (uint64_t)t * 4 * WK_TILE_ROWS;
        for (uint32_t i = 0; i < len; i++) {
            for (uint32_t r = 0; r < WK_TILE_ROWS; r++)
                a[i % 4 * WK_TILE_ROWS + r] += values[i * WK_TILE_ROWS + r] * x[i];
        }
    }
}

#include <worker/cpu/tile_driver.h>
#endif
