/* quant-tq/products.h: how records expand, and one product a type, for the instruction set that the including file has
 * chosen: it includes a worker/cpu/tile_*.h first and defines PRODUCT(name). j is the 32-block within the 256. */

/* Words 0..7: digits of blocks 0 to 4; words 8..11: two of a block each, and the first half of block 7; word 12: its
 * second half. */
WK_INLINE void tq1_0_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    for (uint32_t n = 0; n < 8; n++) {
        const uint32_t digit = j < 5 ? j : 2 * (j - 5) + n / 4;
        if (j < 5)
            w[n] = wk_thirds(wk_load(body + 64 * n), digit);
        else if (j < 7 || n < 4)
            w[n] = wk_thirds(wk_load(body + 512 + 64 * (n % 4)), digit);
        else
            w[n] = wk_thirds(wk_load(body + 768), n % 4);
    }
}

WK_INLINE void tq2_0_weights(const uint8_t *body, uint32_t j, struct wk_v *w)
{
    for (uint32_t n = 0; n < 8; n++) w[n] = wk_field(wk_load(body + 64 * (j / 4 * 8 + n)), 2 * (int)(j % 4), 3);
}

WK_INLINE void tq_scales(const uint8_t *body, const uint8_t *tail, float *scale, float *min)
{
    (void)body, (void)min;
    const struct wk_f d = wk_load_halves(tail);
    for (uint32_t j = 0; j < 8; j++) wk_store(scale + j * WK_TILE_ROWS, d);
}

static const struct wk_tile_format tq1_0 = { &tq1_0_layout, .sub = 32,           .bits = 2,
                                             .offset = 1,   .scales = tq_scales, .weights = tq1_0_weights };
static const struct wk_tile_format tq2_0 = { &tq2_0_layout, .sub = 32,           .bits = 2,
                                             .offset = 1,   .scales = tq_scales, .weights = tq2_0_weights };

void PRODUCT(tq1_0)(const struct wk_cpu_product *p) { wk_tile_product(p, &tq1_0); }
void PRODUCT(tq2_0)(const struct wk_cpu_product *p) { wk_tile_product(p, &tq2_0); }
