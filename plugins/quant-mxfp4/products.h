/* quant-mxfp4/products.h: how records expand, and one product a type, for the instruction set that the including file
 * has chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name). */

/* A weight is twice the value plus 12, hence not negative. */
static const uint8_t twice_plus_12[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };

/* Words 0..3 hold values 0..15 in their low and 16..31 in their high nibbles. */
WK_INLINE void mxfp4_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    (void)j;
    for (uint32_t n = 0; n < 4; n++) {
        const struct wk_v v = wk_load(body + 64 * n);
        w[n] = wk_look_up(v, 0, twice_plus_12);
        w[n + 4] = wk_look_up(v, 4, twice_plus_12);
    }
}

WK_INLINE void mxfp4_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)body, (void)min;
    wk_store(scale, wk_load_exponents(tail));
}

/* Words 2 i and 2 i + 1 hold the 16 values of scale i: 0..7 in their low and 8..15 in their high nibbles. */
WK_INLINE void nvfp4_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    for (uint32_t n = 0; n < 4; n++) {
        const struct wk_v v = wk_load(body + 64 * (4 * j + n));
        w[n / 2 * 4 + n % 2] = wk_look_up(v, 0, twice_plus_12);
        w[n / 2 * 4 + n % 2 + 2] = wk_look_up(v, 4, twice_plus_12);
    }
}

/* As nvfp4_half_scale; a byte of 127 is the one whose lower nibble is 15 and upper one 7. */
WK_INLINE void nvfp4_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    static const uint8_t not_15[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0 },
                         not_7[16] = { 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1 };
    (void)tail, (void)min;
    const struct wk_v v = wk_load(body + 512), one = wk_or(wk_look_up(v, 0, not_15), wk_look_up(v, 4, not_7));
    for (uint32_t i = 0; i < 4; i++)
        wk_store(scale + i * WK_TILE_ROWS,
                 wk_f_mul(wk_f_mul(wk_half(wk_bits(v, 8 * (int)i - 7, 0x3f80)), wk_splat(128)), wk_byte(one, i)));
}

static const struct wk_tile_format mxfp4 = {
    &mxfp4_layout, .sub = 32, .bits = 5, .offset = 12, .scales = mxfp4_scales, .weights = mxfp4_weights
};
static const struct wk_tile_format nvfp4 = {
    &nvfp4_layout, .sub = 16, .bits = 5, .offset = 12, .scales = nvfp4_scales, .weights = nvfp4_weights
};

void PRODUCT(mxfp4)(const struct wk_cpu_product *p) { wk_tile_product(p, &mxfp4); }
void PRODUCT(nvfp4)(const struct wk_cpu_product *p) { wk_tile_product(p, &nvfp4); }
