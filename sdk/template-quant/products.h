/* products.h: how a record of a tile becomes numbers, written once in the vocabulary of worker/cpu/vec_*.h: struct wk_v
 * is 4 bytes of each of 16 rows, struct wk_f a float of each. A file that includes this has chosen the instruction set
 * by including a worker/cpu/tile_*.h, whose loops call what is here, and has defined PRODUCT. */

/* value = scale * (weight - offset): a weight is its level plus 127, which makes a byte of it. */
#define OFFSET 127

/* The record's scales, one a row and block. body and tail: the two parts of a record, see struct wk_tile_layout. */
WK_INLINE void format_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)body, (void)min;
    wk_store(scale, wk_load_halves(tail));
}

/* The 32 weights as bytes: w[n] has values 4 n .. 4 n + 3 of every row. */
WK_INLINE void format_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    static const uint8_t levels[16] = { 0, 39, 60, 77, 91, 104, 115, 127, 137, 147, 158, 170, 183, 198, 219, 254 };
    (void)j; /* which 32 of a longer block */
    for (uint32_t n = 0; n < 4; n++) {
        const struct wk_v v = wk_load(body + 64 * n);
        w[n] = wk_look_up(v, 0, levels);
        w[n + 4] = wk_look_up(v, 4, levels);
    }
}

static const struct wk_tile_format format = {
    &format_layout, .sub = 32, .bits = 8, .offset = OFFSET, .scales = format_scales, .weights = format_weights
};

void PRODUCT(const struct wk_cpu_product *p) { wk_tile_product(p, &format); }
