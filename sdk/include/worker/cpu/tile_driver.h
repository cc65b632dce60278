/* worker/cpu/tile_driver.h: the loops over tiles, blocks of k and runs of tokens, for whichever instruction set was
 * included before.
 *
 * A block of weights is expanded into registers (or the first cache) once and meets every token of the run before the
 * next block: so packed weights are read once, nothing expanded is ever written to memory, and one token or a hundred
 * run the same code, hence the same bits. The tile_*.h that includes this file brings
 *   WK_PAIR             tiles taken together (1 or 2) from WK_PAIR_TOKENS tokens on: they share each load of an
 *                       activation
 *   wk_tokens_q8, wk_tokens_f32   one block of weights times n_rows tokens, into sums in scratch. */
#ifndef WORKER_CPU_TILE_DRIVER_H
#define WORKER_CPU_TILE_DRIVER_H

/* How many bytes before their use weights are asked for into the first cache, and into the second before that (0: not).
 * One token leaves so little work a line that the hardware's own prefetch covers half of the memory's latency. */
struct wk_ahead {
    uint32_t first, second;
};
#define WK_AHEAD ((struct wk_ahead){ 8192, 0 })

/* For one token on Intel's processors, whose first cache has 10 to 16 lines under way where the second has 48. AMD's
 * has enough, and a second request a line costs more than it gains. */
#define WK_AHEAD_INTEL ((struct wk_ahead){ 2048, 16384 })
WK_INLINE int wk_is_intel(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("intel");
#else
    return 0;
#endif
}

/* Asks for the `bytes` bytes that lie so far beyond `offset` of a tile. Past the end of the tiles that does nothing.
 * `tiles` tiles that are multiplied together are as many streams; each continues `tiles` tiles later. */
WK_INLINE void wk_fetch(const uint8_t *tile, uint64_t offset, uint32_t ahead, const int into_second, uint32_t bytes,
                        const uint32_t tiles, uint64_t tile_bytes)
{
    offset += ahead / tiles;
    if (tiles > 1 && offset >= tile_bytes) offset += (tiles - 1) * tile_bytes;
    for (uint32_t line = 0; line < bytes; line += 64) {
        const void *p = (const void *)((uintptr_t)tile + offset + line);
        if (into_second)
            __builtin_prefetch(p, 0, 2);
        else
            __builtin_prefetch(p);
    }
}

WK_INLINE void wk_fetch_ahead(const uint8_t *tile, uint64_t offset, const struct wk_ahead ahead, uint32_t bytes,
                              const uint32_t tiles, uint64_t tile_bytes)
{
    wk_fetch(tile, offset, ahead.first, 0, bytes, tiles, tile_bytes);
    if (ahead.second) wk_fetch(tile, offset, ahead.second, 1, bytes, tiles, tile_bytes);
}

/* The format's weights with j a constant, as shifts want it, without eight copies of what follows. */
WK_INLINE void wk_weights(const struct wk_tile_format *f, const uint8_t *body, uint32_t j, struct wk_v *w)
{
    if (f->layout->block == WK_ACTIVATION_BLOCK) {
        f->weights(body, 0, w);
        return;
    }
    switch (j) {
    case 0: f->weights(body, 0, w); break;
    case 1: f->weights(body, 1, w); break;
    case 2: f->weights(body, 2, w); break;
    case 3: f->weights(body, 3, w); break;
    case 4: f->weights(body, 4, w); break;
    case 5: f->weights(body, 5, w); break;
    case 6: f->weights(body, 6, w); break;
    default: f->weights(body, 7, w); break;
    }
}

WK_INLINE void wk_store_q8(const struct wk_cpu_product *p, const float *acc, uint32_t tiles, uint32_t tile, uint32_t t0,
                           uint32_t n)
{
    const uint32_t width = tiles * WK_TILE_ROWS;
    for (uint32_t t = 0; t < n; t++)
        memcpy(p->y + (t0 + t) * p->y_stride + (uint64_t)tile * WK_TILE_ROWS, acc + (uint64_t)t * width,
               width * sizeof *acc);
}

/* `tiles` (1 or WK_PAIR) tiles from `tile` times tokens t0 .. t0 + n - 1. */
WK_INLINE void wk_tiles_q8(const struct wk_cpu_product *p, const struct wk_tile_format *f, const uint32_t tiles,
                           uint32_t tile, uint32_t t0, uint32_t n, const struct wk_ahead ahead)
{
    struct wk_tile_scratch *s = (struct wk_tile_scratch *)p->scratch;
    const uint32_t block_bytes = f->layout->block_bytes, blocks = p->k / f->layout->block;
    const uint64_t tile_bytes = wk_layout_tile_bytes(f->layout, p->k);
    const uint8_t *at = (const uint8_t *)p->tiles + tile * tile_bytes;
    const uint32_t step = block_bytes * WK_TILE_ROWS / (f->layout->block / WK_ACTIVATION_BLOCK);
    memset(s->acc, 0, (uint64_t)n * tiles * WK_TILE_ROWS * sizeof *s->acc);
    for (uint32_t b = 0; b < blocks; b++) {
        const uint8_t *body = at + wk_record_body(block_bytes, blocks, b),
                      *tail = at + wk_record_tail(block_bytes, blocks, b);
        for (uint32_t i = 0; i < tiles; i++)
            f->scales(body + i * tile_bytes, tail + i * tile_bytes, s->scale[i], s->min[i]);
        for (uint32_t j = 0; j < f->layout->block / WK_ACTIVATION_BLOCK; j++) {
            struct wk_v w[WK_PAIR][8];
            for (uint32_t i = 0; i < tiles; i++) {
                wk_weights(f, body + i * tile_bytes, j, w[i]);
                wk_fetch_ahead(at + i * tile_bytes, ((uint64_t)b * (f->layout->block / WK_ACTIVATION_BLOCK) + j) * step,
                               ahead, step, tiles, tile_bytes);
            }
            wk_tokens_q8(p, f, tiles, w, s, j, b * f->layout->block + j * WK_ACTIVATION_BLOCK, t0, n);
        }
    }
    wk_store_q8(p, s->acc, tiles, tile, t0, n);
}

WK_INLINE void wk_product_q8(const struct wk_cpu_product *p, const struct wk_tile_format *f)
{
    for (uint32_t t0 = 0; t0 < p->n_rows; t0 += WK_TOKENS_Q8) {
        const uint32_t n = p->n_rows - t0 < WK_TOKENS_Q8 ? p->n_rows - t0 : WK_TOKENS_Q8;
        uint32_t tile = 0;
        if (WK_PAIR == 2 && n >= WK_PAIR_TOKENS)
            for (; tile + 2 <= p->n_tiles; tile += 2) wk_tiles_q8(p, f, WK_PAIR, tile, t0, n, WK_AHEAD);
        if (n == 1 && wk_is_intel())
            for (; tile < p->n_tiles; tile++) wk_tiles_q8(p, f, 1, tile, t0, 1, WK_AHEAD_INTEL);
        for (; tile < p->n_tiles; tile++) wk_tiles_q8(p, f, 1, tile, t0, n, WK_AHEAD);
    }
}

/* ---- float activations --------------------------------------------------------------------------------- */

/* acc [n][4][16] -> y: (0 + 1) + (2 + 3). */
WK_INLINE void wk_store_f32(const struct wk_cpu_product *p, const float *acc, uint32_t tile, uint32_t t0, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++) {
        float *y = p->y + (t0 + t) * p->y_stride + (uint64_t)tile * WK_TILE_ROWS;
        const float *a = acc + (uint64_t)t * 4 * WK_TILE_ROWS;
        for (uint32_t r = 0; r < WK_TILE_ROWS; r++) y[r] = (a[r] + a[16 + r]) + (a[32 + r] + a[48 + r]);
    }
}

/* Weights of one 32-block as the reference dequantize has them: [32][16]. */
WK_INLINE void wk_values(const struct wk_tile_format *f, const struct wk_v w[8], uint32_t j,
                         const struct wk_tile_scratch *s, float *values)
{
    const struct wk_f offset = wk_splat((float)f->offset);
    for (uint32_t i = 0; i < WK_ACTIVATION_BLOCK; i++) {
        const uint32_t sub = (j * WK_ACTIVATION_BLOCK + i) / f->sub;
        struct wk_f v = wk_byte(w[i / 4], i % 4);
        if (f->offset) v = wk_f_sub(v, offset);
        v = wk_f_mul(wk_load_floats(s->scale[0] + sub * WK_TILE_ROWS), v);
        if (f->has_min) v = wk_f_sub(v, wk_load_floats(s->min[0] + sub * WK_TILE_ROWS));
        wk_store(values + i * WK_TILE_ROWS, v);
    }
}

WK_INLINE void wk_tile_f32(const struct wk_cpu_product *p, const struct wk_tile_format *f, uint32_t tile, uint32_t t0,
                           uint32_t n)
{
    struct wk_tile_scratch *s = (struct wk_tile_scratch *)p->scratch;
    const uint32_t block_bytes = f->layout->block_bytes, blocks = p->k / f->layout->block;
    const uint8_t *at = (const uint8_t *)p->tiles + tile * wk_layout_tile_bytes(f->layout, p->k);
    const uint32_t step = block_bytes * WK_TILE_ROWS / (f->layout->block / WK_ACTIVATION_BLOCK);
    memset(s->acc, 0, (uint64_t)n * 4 * WK_TILE_ROWS * sizeof *s->acc);
    for (uint32_t b = 0; b < blocks; b++) {
        const uint8_t *body = at + wk_record_body(block_bytes, blocks, b),
                      *tail = at + wk_record_tail(block_bytes, blocks, b);
        f->scales(body, tail, s->scale[0], s->min[0]);
        for (uint32_t j = 0; j < f->layout->block / WK_ACTIVATION_BLOCK; j++) {
            struct wk_v w[8];
            wk_fetch_ahead(at, ((uint64_t)b * (f->layout->block / WK_ACTIVATION_BLOCK) + j) * step, WK_AHEAD, step, 1,
                           0);
            wk_weights(f, body, j, w);
            wk_values(f, w, j, s, s->values);
            wk_tokens_f32(p, s->values, WK_ACTIVATION_BLOCK, b * f->layout->block + j * WK_ACTIVATION_BLOCK, s->acc, t0,
                          n);
        }
    }
    wk_store_f32(p, s->acc, tile, t0, n);
}

WK_INLINE void wk_product_f32(const struct wk_cpu_product *p, const struct wk_tile_format *f)
{
    for (uint32_t t0 = 0; t0 < p->n_rows; t0 += WK_TOKENS_F32) {
        const uint32_t n = p->n_rows - t0 < WK_TOKENS_F32 ? p->n_rows - t0 : WK_TOKENS_F32;
        for (uint32_t tile = 0; tile < p->n_tiles; tile++) wk_tile_f32(p, f, tile, t0, n);
    }
}

/* wk_type_cpu.product for a format, both forms of activations. */
WK_INLINE void wk_tile_product(const struct wk_cpu_product *p, const struct wk_tile_format *f)
{
    if (p->activation == WK_ACTIVATION_Q8)
        wk_product_q8(p, f);
    else
        wk_product_f32(p, f);
}

/* wk_type_cpu.product for tiles of plain elements [k][16]. load: 16 elements as floats. */
WK_INLINE void wk_plain_product(const struct wk_cpu_product *p, uint32_t element_bytes,
                                struct wk_f (*load)(const void *))
{
    struct wk_tile_scratch *s = (struct wk_tile_scratch *)p->scratch;
    for (uint32_t t0 = 0; t0 < p->n_rows; t0 += WK_TOKENS_F32) {
        const uint32_t n = p->n_rows - t0 < WK_TOKENS_F32 ? p->n_rows - t0 : WK_TOKENS_F32;
        for (uint32_t tile = 0; tile < p->n_tiles; tile++) {
            const uint8_t *at = (const uint8_t *)p->tiles + tile * wk_plain_tile_bytes(element_bytes, p->k);
            memset(s->acc, 0, (uint64_t)n * 4 * WK_TILE_ROWS * sizeof *s->acc);
            for (uint32_t k0 = 0; k0 < p->k; k0 += WK_PLAIN_RUN) {
                const uint32_t len = p->k - k0 < WK_PLAIN_RUN ? p->k - k0 : WK_PLAIN_RUN;
                for (uint32_t i = 0; i < len; i++) {
                    const uint64_t offset = (uint64_t)(k0 + i) * element_bytes * WK_TILE_ROWS;
                    if (i % 4 == 0) wk_fetch_ahead(at, offset, WK_AHEAD, 4 * element_bytes * WK_TILE_ROWS, 1, 0);
                    wk_store(s->values + i * WK_TILE_ROWS, load(at + offset));
                }
                wk_tokens_f32(p, s->values, len, k0, s->acc, t0, n);
            }
            wk_store_f32(p, s->acc, tile, t0, n);
        }
    }
}

#endif
