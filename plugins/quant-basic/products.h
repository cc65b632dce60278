/* quant-basic/products.h: how records of the formats expand, and one product per type, for the instruction set that the
 * including file has chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name). */

/* Words 0..3 hold values 0..15 in their low and 16..31 in their high nibbles. */
WK_INLINE void nibbles(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    (void)j;
    for (uint32_t n = 0; n < 4; n++) {
        const struct wk_v v = wk_load(body + 64 * n);
        w[n] = wk_field(v, 0, 15);
        w[n + 4] = wk_field(v, 4, 15);
    }
}

/* The same with bit n of each byte of the plane at 256 as bit 4 of word n. */
WK_INLINE void nibbles_and_bits(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    nibbles(body, j, w);
    const struct wk_v plane = wk_load(body + 256);
    w[0] = wk_or(w[0], wk_field(plane, -4, 16));
    w[1] = wk_or(w[1], wk_field(plane, -3, 16));
    w[2] = wk_or(w[2], wk_field(plane, -2, 16));
    w[3] = wk_or(w[3], wk_field(plane, -1, 16));
    w[4] = wk_or(w[4], wk_field(plane, 0, 16));
    w[5] = wk_or(w[5], wk_field(plane, 1, 16));
    w[6] = wk_or(w[6], wk_field(plane, 2, 16));
    w[7] = wk_or(w[7], wk_field(plane, 3, 16));
}

WK_INLINE void flipped_bytes(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    (void)j;
    for (uint32_t n = 0; n < 8; n++) w[n] = wk_flip(wk_load(body + 64 * n));
}

WK_INLINE void scale_in_tail(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)body, (void)min;
    wk_store(scale, wk_load_halves(tail));
}

/* The file adds m, the tile's arithmetic subtracts a minimum. */
WK_INLINE void scale_and_minimum(const uint8_t *at, float *scale, float *min)
{
    wk_store(scale, wk_load_halves(at));
    wk_store(min, wk_f_sub(wk_splat(-0.0f), wk_load_halves(at + 32)));
}

WK_INLINE void q4_1_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)tail;
    scale_and_minimum(body + 256, scale, min);
}

WK_INLINE void q5_1_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)tail;
    scale_and_minimum(body + 320, scale, min);
}

static const struct wk_tile_format q4_0 = {
    &q4_0_layout, .sub = 32, .bits = 4, .offset = 8, .scales = scale_in_tail, .weights = nibbles
};
static const struct wk_tile_format q4_1 = { &q4_1_layout,          .sub = 32,         .bits = 4, .has_min = 1,
                                            .scales = q4_1_scales, .weights = nibbles };
static const struct wk_tile_format q5_0 = {
    &q5_0_layout, .sub = 32, .bits = 5, .offset = 16, .scales = scale_in_tail, .weights = nibbles_and_bits
};
static const struct wk_tile_format q5_1 = {
    &q5_1_layout, .sub = 32, .bits = 5, .has_min = 1, .scales = q5_1_scales, .weights = nibbles_and_bits
};
static const struct wk_tile_format q8_0 = {
    &q8_0_layout, .sub = 32, .bits = 8, .offset = 128, .scales = scale_in_tail, .weights = flipped_bytes
};

void PRODUCT(q4_0)(const struct wk_cpu_product *p) { wk_tile_product(p, &q4_0); }
void PRODUCT(q4_1)(const struct wk_cpu_product *p) { wk_tile_product(p, &q4_1); }
void PRODUCT(q5_0)(const struct wk_cpu_product *p) { wk_tile_product(p, &q5_0); }
void PRODUCT(q5_1)(const struct wk_cpu_product *p) { wk_tile_product(p, &q5_1); }
void PRODUCT(q8_0)(const struct wk_cpu_product *p) { wk_tile_product(p, &q8_0); }
void PRODUCT(f32)(const struct wk_cpu_product *p) { wk_plain_product(p, 4, wk_load_floats); }
void PRODUCT(f16)(const struct wk_cpu_product *p) { wk_plain_product(p, 2, wk_load_halves); }
void PRODUCT(bf16)(const struct wk_cpu_product *p) { wk_plain_product(p, 2, wk_load_bf16s); }
