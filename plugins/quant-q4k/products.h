/* quant-q4k/products.h: how records of the formats expand, and one product per type, for the instruction set that the
 * including file has chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name).
 *
 * Everywhere j is the 32-block within the 256: half j / 4 of the block, quarter j % 4 of the half. */

/* Word n of a sub-block: nibbles of word 8 (j / 2) + n of qs, low for even j. */
WK_INLINE void k4_nibbles(const uint8_t *qs, uint32_t j, struct wk_v *w)
{
    for (uint32_t n = 0; n < 8; n++) w[n] = wk_field(wk_load(qs + 64 * (j / 2 * 8 + n)), j % 2 ? 4 : 0, 15);
}

WK_INLINE void q4_K_weights(const uint8_t *body, uint32_t j, struct wk_v *w) { k4_nibbles(body + 256, j, w); }

/* The fifth bit of sub-block j is bit j of every byte of qh, at 256. */
WK_INLINE void q5_K_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    k4_nibbles(body + 768, j, w);
    for (uint32_t n = 0; n < 8; n++) w[n] = wk_or(w[n], wk_field(wk_load(body + 256 + 64 * n), (int)j - 4, 16));
}

/* A half, 1,536 bytes, has 16 words of ql and 8 of qh. Low nibbles: quarters 0 and 2 share 8 words of ql, 1 and 3 the
 * next 8; bits 4 and 5: bits 2 (j % 4) and up of qh. */
WK_INLINE void q6_K_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    const uint8_t *half = body + 256 + j / 4 * 1536, *low = half + 64 * (j % 2 * 8), *high = half + 1024;
    for (uint32_t n = 0; n < 8; n++)
        w[n] = wk_or(wk_field(wk_load(low + 64 * n), j % 4 / 2 ? 4 : 0, 15),
                     wk_field(wk_load(high + 64 * n), 2 * (int)(j % 4) - 4, 48));
}

WK_INLINE void k2_pairs(const uint8_t *qs, uint32_t j, struct wk_v *w)
{
    for (uint32_t n = 0; n < 8; n++) w[n] = wk_field(wk_load(qs + 64 * (j / 4 * 8 + n)), 2 * (int)(j % 4), 3);
}

WK_INLINE void q2_K_weights(const uint8_t *body, uint32_t j, struct wk_v *w) { k2_pairs(body + 320, j, w); }

/* The third bit of sub-block j is bit j of every byte of hmask, at 192. */
WK_INLINE void q3_K_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    k2_pairs(body + 704, j, w);
    for (uint32_t n = 0; n < 8; n++) w[n] = wk_or(w[n], wk_field(wk_load(body + 192 + 64 * n), (int)j - 2, 4));
}

/* Six-bit scales and minima of Q4_K and Q5_K: 3 words of scale bytes at `at`, then d and dmin. The first four are whole
 * bytes less their top two bits; those top bits complete the nibbles of the other four. */
WK_INLINE void k4_scales(const uint8_t *at, float *scale, float *min)
{
    const struct wk_v a = wk_load(at), b = wk_load(at + 64), c = wk_load(at + 128);
    const struct wk_v s[2] = { wk_field(a, 0, 63), wk_or(wk_field(c, 0, 15), wk_field(a, 2, 48)) };
    const struct wk_v m[2] = { wk_field(b, 0, 63), wk_or(wk_field(c, 4, 15), wk_field(b, 2, 48)) };
    const struct wk_f d = wk_load_halves(at + 192), dmin = wk_load_halves(at + 224);
    for (uint32_t j = 0; j < 8; j++) {
        wk_store(scale + j * WK_TILE_ROWS, wk_f_mul(d, wk_byte(s[j / 4], j % 4)));
        wk_store(min + j * WK_TILE_ROWS, wk_f_mul(dmin, wk_byte(m[j / 4], j % 4)));
    }
}

WK_INLINE void q4_K_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)tail;
    k4_scales(body, scale, min);
}

WK_INLINE void q5_K_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)tail;
    k4_scales(body, scale, min);
}

WK_INLINE void q6_K_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    const struct wk_f d = wk_load_halves(tail);
    for (uint32_t b = 0; b < 16; b++)
        wk_store(scale + b * WK_TILE_ROWS, wk_f_mul(d, wk_signed_byte(wk_load(body + 64 * (b / 4)), b % 4)));
}

WK_INLINE void q2_K_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)tail;
    const struct wk_f d = wk_load_halves(body + 256), dmin = wk_load_halves(body + 288);
    for (uint32_t b = 0; b < 16; b++) {
        const struct wk_v v = wk_load(body + 64 * (b / 4));
        wk_store(scale + b * WK_TILE_ROWS, wk_f_mul(d, wk_byte(wk_field(v, 0, 15), b % 4)));
        wk_store(min + b * WK_TILE_ROWS, wk_f_mul(dmin, wk_byte(wk_field(v, 4, 15), b % 4)));
    }
}

/* Low nibbles in words 0 and 1 (low half: sub-blocks 0..7), high two bits in word 2. */
WK_INLINE void q3_K_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)min;
    const struct wk_f d = wk_load_halves(tail), bias = wk_splat(32);
    const struct wk_v high = wk_load(body + 128);
    for (uint32_t g = 0; g < 4; g++) {
        const struct wk_v low = wk_field(wk_load(body + 64 * (g % 2)), g / 2 ? 4 : 0, 15);
        const struct wk_v s = wk_or(low, wk_field(high, 2 * (int)g - 4, 48));
        for (uint32_t i = 0; i < 4; i++)
            wk_store(scale + (g * 4 + i) * WK_TILE_ROWS, wk_f_mul(d, wk_f_sub(wk_byte(s, i), bias)));
    }
}

static const struct wk_tile_format q2_K = {
    &q2_K_layout, .sub = 16, .bits = 2, .has_min = 1, .scales = q2_K_scales, .weights = q2_K_weights
};
static const struct wk_tile_format q3_K = {
    &q3_K_layout, .sub = 16, .bits = 3, .offset = 4, .scales = q3_K_scales, .weights = q3_K_weights
};
static const struct wk_tile_format q4_K = {
    &q4_K_layout, .sub = 32, .bits = 4, .has_min = 1, .scales = q4_K_scales, .weights = q4_K_weights
};
static const struct wk_tile_format q5_K = {
    &q5_K_layout, .sub = 32, .bits = 5, .has_min = 1, .scales = q5_K_scales, .weights = q5_K_weights
};
static const struct wk_tile_format q6_K = {
    &q6_K_layout, .sub = 16, .bits = 6, .offset = 32, .scales = q6_K_scales, .weights = q6_K_weights
};

void PRODUCT(q2_K)(const struct wk_cpu_product *p) { wk_tile_product(p, &q2_K); }
void PRODUCT(q3_K)(const struct wk_cpu_product *p) { wk_tile_product(p, &q3_K); }
void PRODUCT(q4_K)(const struct wk_cpu_product *p) { wk_tile_product(p, &q4_K); }
void PRODUCT(q5_K)(const struct wk_cpu_product *p) { wk_tile_product(p, &q5_K); }
void PRODUCT(q6_K)(const struct wk_cpu_product *p) { wk_tile_product(p, &q6_K); }
