/* quant-iq4/products.h: how records expand, and one product a type, for the instruction set that the including file has
 * chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name). */

/* Words 4 j .. 4 j + 3 hold group j: values 0..15 in their low and 16..31 in their high nibbles. A weight is its level
 * plus 128. */
WK_INLINE void iq4_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t plus_128[16] = { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241 };
    for (uint32_t n = 0; n < 4; n++) {
        const struct wk_v v = wk_load(body + 64 * (4 * j + n));
        w[n] = wk_look_up(v, 0, plus_128);
        w[n + 4] = wk_look_up(v, 4, plus_128);
    }
}

WK_INLINE void iq4_nl_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)body, (void)min;
    wk_store(scale, wk_load_halves(tail));
}

/* s - 32 is the lower four bits less what the upper two lack of 32. */
WK_INLINE void iq4_xs_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)tail, (void)min;
    const struct wk_v low = wk_load(body + 2048), high = wk_load_u16s(body + 2144);
    const struct wk_f d = wk_load_halves(body + 2112), bias = wk_splat(32);
    for (uint32_t j = 0; j < 8; j++) {
        const struct wk_f s = wk_byte(wk_field(low, j % 2 ? 4 : 0, 15), j / 2);
        const struct wk_f up = wk_byte(wk_field(high, 2 * (int)(j % 4) - 4, 48), j / 4);
        wk_store(scale + j * WK_TILE_ROWS, wk_f_mul(d, wk_f_sub(s, wk_f_sub(bias, up))));
    }
}

static const struct wk_tile_format iq4_nl = {
    &iq4_nl_layout, .sub = 32, .bits = 8, .offset = 128, .scales = iq4_nl_scales, .weights = iq4_weights
};
static const struct wk_tile_format iq4_xs = {
    &iq4_xs_layout, .sub = 32, .bits = 8, .offset = 128, .scales = iq4_xs_scales, .weights = iq4_weights
};

void PRODUCT(iq4_nl)(const struct wk_cpu_product *p) { wk_tile_product(p, &iq4_nl); }
void PRODUCT(iq4_xs)(const struct wk_cpu_product *p) { wk_tile_product(p, &iq4_xs); }
