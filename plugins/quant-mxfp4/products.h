/* quant-mxfp4/products.h: how records expand, and the product, for the instruction set that the including file has
 * chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name). */

/* Words 0..3 hold values 0..15 in their low and 16..31 in their high nibbles. A weight is twice the value plus 12,
 * hence not negative. */
WK_INLINE void mxfp4_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t twice_plus_12[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };
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

static const struct wk_tile_format mxfp4 = {
    &mxfp4_layout, .sub = 32, .bits = 5, .offset = 12, .scales = mxfp4_scales, .weights = mxfp4_weights
};

void PRODUCT(mxfp4)(const struct wk_cpu_product *p) { wk_tile_product(p, &mxfp4); }
