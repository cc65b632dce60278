/* toy8.c: a complete quantization plugin: one 8-bit format. Read it from top to bottom; quant.md states the contract.
 *
 * A block is 32 values: x = d * q + m with 8-bit q and half-precision d and m, 36 bytes. A product of 16 rows is
 * computed column by column, so the tile holds the 16 rows' values of a column side by side: that is the order in which
 * a vector unit wants them. */
#include <worker/cpu/encode.h>
#include <worker/plugin.h>

enum { BLOCK = 32, ROWS = WK_TILE_ROWS };

struct block {     /* as in the file */
    uint16_t d, m; /* halves */
    uint8_t q[BLOCK];
};
struct tile_block { /* the same block of 16 rows: the same bits, another order */
    uint16_t d[ROWS], m[ROWS];
    uint8_t q[BLOCK][ROWS];
};
WK_STATIC_ASSERT(sizeof(struct block) == 36, "what files hold");
WK_STATIC_ASSERT(sizeof(struct tile_block) == ROWS * sizeof(struct block) && sizeof(struct tile_block) % 64 == 0,
                 "no bit more, a multiple of 64 bytes");

/* ---- order --------------------------------------------------------------------------------------------- */

static uint64_t toy8_tile_bytes(uint32_t k) { return (uint64_t)k / BLOCK * sizeof(struct tile_block); }
static uint64_t toy8_scratch_bytes(uint32_t k)
{
    (void)k;
    return 0;
}

/* Rows of a file have any alignment: they are only ever copied from. */
static void toy8_pack(const struct wk_pack *p)
{
    struct tile_block *t = (struct tile_block *)p->tile;
    for (uint32_t b = 0; b < p->k / BLOCK; b++)
        for (uint32_t r = 0; r < ROWS; r++) {
            struct block x;
            memcpy(&x, (const char *)p->rows[r] + b * sizeof x, sizeof x);
            t[b].d[r] = x.d;
            t[b].m[r] = x.m;
            for (uint32_t i = 0; i < BLOCK; i++) t[b].q[i][r] = x.q[i];
        }
}

static void toy8_unpack(const struct wk_unpack *p)
{
    const struct tile_block *t = (const struct tile_block *)p->tile;
    for (uint32_t b = 0; b < p->k / BLOCK; b++)
        for (uint32_t r = 0; r < ROWS; r++) {
            struct block x = { t[b].d[r], t[b].m[r], { 0 } };
            for (uint32_t i = 0; i < BLOCK; i++) x.q[i] = t[b].q[i][r];
            memcpy((char *)p->rows[r] + b * sizeof x, &x, sizeof x);
        }
}

/* ---- reference: what the bits mean, and how they are made ---------------------------------------------- */

static void toy8_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    for (uint64_t b = 0; b < n / BLOCK; b++) {
        struct block x;
        memcpy(&x, (const char *)in->blocks + b * sizeof x, sizeof x);
        const float d = wk_half_to_float(x.d), m = wk_half_to_float(x.m);
        for (uint32_t i = 0; i < BLOCK; i++) y[b * BLOCK + i] = d * (float)x.q[i] + m;
    }
}

static wk_status toy8_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    for (uint64_t b = 0; b < n / BLOCK && status == WK_OK; b++, x += BLOCK) {
        struct block out = { 0, 0, { 0 } };
        float low = x[0], high = x[0];
        for (uint32_t i = 1; i < BLOCK; i++) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        status = wk_store_half((uint8_t *)&out.m, low, b * BLOCK, err);
        if (status == WK_OK) status = wk_store_half((uint8_t *)&out.d, (high - low) / 255.0f, b * BLOCK, err);
        if (status != WK_OK) break;
        const float d = wk_half_to_float(out.d), m = wk_half_to_float(out.m); /* what a reader will see */
        for (uint32_t i = 0; i < BLOCK; i++)
            out.q[i] = (uint8_t)wk_round(d > 0.0f ? wk_clamp((x[i] - m) / d, 0.0f, 255.0f) : 0.0f);
        memcpy((char *)in->blocks + b * sizeof out, &out, sizeof out);
    }
    return status;
}

/* ---- product ------------------------------------------------------------------------------------------- */

/* sum of (d q + m) x over a block, for 16 rows, x in floats: one sum a row, in the order of k. */
static void add_f32(float sum[ROWS], const struct tile_block *w, const float *x)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        const float d = wk_half_to_float(w->d[r]), m = wk_half_to_float(w->m[r]);
        for (uint32_t i = 0; i < BLOCK; i++) sum[r] += (d * (float)w->q[i][r] + m) * x[i];
    }
}

/* The same with x = x.d * x.q: the integers are exact, and m meets their sum, which the host has counted already. */
static void add_q8(float sum[ROWS], const struct tile_block *w, const struct wk_activation_q8 *x)
{
    int32_t dot[ROWS] = { 0 };
    for (uint32_t i = 0; i < BLOCK; i++)
        for (uint32_t r = 0; r < ROWS; r++) dot[r] += (int32_t)w->q[i][r] * x->q[i];
    for (uint32_t r = 0; r < ROWS; r++)
        sum[r] +=
            (wk_half_to_float(w->d[r]) * (float)dot[r] + wk_half_to_float(w->m[r]) * (float)(x->sum[0] + x->sum[1])) *
            x->d;
}

/* A result depends on its own tile and its own row of x alone: no sum runs over tokens or tiles. */
static void toy8_product(const struct wk_cpu_product *p)
{
    const uint32_t blocks = p->k / BLOCK;
    for (uint32_t t = 0; t < p->n_rows; t++) {
        const char *x = (const char *)p->x + t * p->x_stride;
        for (uint32_t i = 0; i < p->n_tiles; i++) {
            const struct tile_block *w = (const struct tile_block *)p->tiles + (uint64_t)i * blocks;
            float sum[ROWS] = { 0 };
            for (uint32_t b = 0; b < blocks; b++) {
                if (p->activation == WK_ACTIVATION_F32)
                    add_f32(sum, w + b, (const float *)(const void *)x + (uint64_t)b * BLOCK);
                else
                    add_q8(sum, w + b, (const struct wk_activation_q8 *)(const void *)x + b);
            }
            memcpy(p->y + t * p->y_stride + (uint64_t)i * ROWS, sum, sizeof sum);
        }
    }
}

/* ---- what is exported ---------------------------------------------------------------------------------- */

static const struct wk_isa_product products[] = { { WK_ISA_PORTABLE, 0, toy8_product } };
static const struct wk_type_cpu toy8 = {
    .struct_size = sizeof toy8,
    .ggml_type = 1000,
    .block = BLOCK,
    .block_bytes = sizeof(struct block),
    .activations = WK_ACTIVATION_F32 | WK_ACTIVATION_Q8,
    .name = "toy8",
    .tile_bytes = toy8_tile_bytes,
    .scratch_bytes = toy8_scratch_bytes,
    .pack = toy8_pack,
    .unpack = toy8_unpack,
    .dequantize = toy8_dequantize,
    .quantize = toy8_quantize,
    WK_TYPE_PRODUCTS(products), /* the host uses the portable one on every machine */
};
static const struct wk_type_cpu *const types[] = { &toy8 };
static const struct wk_quant quant = { sizeof quant, 1, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.example.toy8", "ggml:1000", .name = "an 8-bit toy format", .version = "1.0",
              .quant = &quant);
