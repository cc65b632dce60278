/* eights.c: a quantization plugin that uses everything that quant.h has, in what C11 to C++20 share: blocks of 32 whole
 * numbers in 8 bits with a float scale. Built from frozen, today's and grown headers, it must compute the same. SET_*
 * (of grown headers): sets the last word of that struct. */
#include <string.h>

#include <worker/plugin.h>

enum { BLOCK = 32, BYTES = 36, TYPE = 1001 };

static uint64_t eights_tile_bytes(uint32_t k) { return (uint64_t)k / BLOCK * BYTES * WK_TILE_ROWS; }
static uint64_t eights_scratch_bytes(uint32_t k) { return (uint64_t)k * 4; }
static void eights_pack(const struct wk_pack *p)
{
    const size_t row = (size_t)p->k / BLOCK * BYTES;
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) memcpy((char *)p->tile + r * row, p->rows[r], row);
}
static void eights_unpack(const struct wk_unpack *u)
{
    const size_t row = (size_t)u->k / BLOCK * BYTES;
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) memcpy(u->rows[r], (const char *)u->tile + r * row, row);
}
static void eights_dequantize(const struct wk_dequantize *d)
{
    for (uint64_t i = 0; i < d->n; i++) {
        const signed char *block = (const signed char *)d->blocks + i / BLOCK * BYTES;
        float scale;
        memcpy(&scale, block, 4);
        d->y[i] = scale * (float)block[4 + i % BLOCK] * d->tensor->scale;
    }
}
static wk_status eights_quantize(const struct wk_quantize *q, const struct wk_err *err)
{
    if (q->row_length % BLOCK || q->n % q->row_length)
        return wk_fail(err, WK_INVALID, "rows of %u values", (unsigned)q->row_length);
    for (uint64_t b = 0; b < q->n / BLOCK; b++) {
        signed char *block = (signed char *)q->blocks + b * BYTES;
        float most = 0;
        for (uint32_t i = 0; i < BLOCK; i++) {
            const float x = q->x[b * BLOCK + i], size = x < 0 ? -x : x;
            if (!(x - x == 0.0f))
                return wk_fail(err, WK_INVALID, "value %llu is not finite", (unsigned long long)(b * BLOCK + i));
            if ((!q->importance || q->importance[(b * BLOCK + i) % q->row_length] > 0) && size > most) most = size;
        }
        const float scale = most / 127.0f;
        memcpy(block, &scale, 4);
        for (uint32_t i = 0; i < BLOCK; i++) {
            float x = scale > 0 ? q->x[b * BLOCK + i] / scale : 0.0f;
            x = x > 127.0f ? 127.0f : x < -127.0f ? -127.0f : x;
            block[4 + i] = (signed char)(x < 0 ? x - 0.5f : x + 0.5f);
        }
    }
    return WK_OK;
}
static void eights_product(const struct wk_cpu_product *p)
{
    float *weights = (float *)p->scratch;
    const uint64_t row = (uint64_t)p->k / BLOCK * BYTES;
    for (uint32_t i = 0; i < p->n_tiles * WK_TILE_ROWS; i++) {
        struct wk_dequantize d;
        memset(&d, 0, sizeof d);
        d.struct_size = sizeof d;
        d.n = p->k;
        d.blocks = (const char *)p->tiles + i * row;
        d.y = weights;
        d.tensor = p->tensor;
        eights_dequantize(&d);
        for (uint32_t t = 0; t < p->n_rows; t++) {
            const char *x = (const char *)p->x + t * p->x_stride;
            float sum = 0;
            for (uint32_t k = 0; k < p->k; k++) {
                const struct wk_activation_q8 *block = (const struct wk_activation_q8 *)(const void *)x + k / BLOCK;
                sum += weights[k] * (p->activation == WK_ACTIVATION_F32 ? ((const float *)(const void *)x)[k]
                                                                        : block->d * (float)block->q[k % BLOCK]);
            }
            p->y[t * p->y_stride + i] = sum;
        }
    }
}

#ifdef SET_PRODUCT
#define PRODUCT_TAIL \
    , { 0, 1 }
#else
#define PRODUCT_TAIL
#endif
static const struct wk_isa_product products[] = { { WK_ISA_PORTABLE, 0, eights_product PRODUCT_TAIL },
                                                  { 77, 0, eights_product PRODUCT_TAIL } }; /* of some later host */
static const struct wk_type_cpu type = {
    .struct_size = sizeof(struct wk_type_cpu),
    .ggml_type = TYPE,
    .block = BLOCK,
    .block_bytes = BYTES,
    .activations = WK_ACTIVATION_F32 | WK_ACTIVATION_Q8,
    .flags = 0,
    .name = "eights",
    .tile_bytes = eights_tile_bytes,
    .scratch_bytes = eights_scratch_bytes,
    .pack = eights_pack,
    .unpack = eights_unpack,
    .dequantize = eights_dequantize,
    .quantize = eights_quantize,
    WK_TYPE_PRODUCTS(products),
#ifdef SET_TYPE
    .grown_ = { 0, 1 },
#endif
};
static const struct wk_type_cpu *const types[] = { &type };
static const struct wk_quant quant = {
    .struct_size = sizeof(struct wk_quant),
    .n_types = 1,
    .types = types,
#ifdef SET_QUANT
    .grown_ = { 0, 1 },
#endif
};

WORKER_PLUGIN(WK_KIND_QUANT, "org.example.eights", "ggml:1001", .name = "eights", .version = "1.0", .init = NULL,
              .arch = NULL, .quant = &quant, .extension = NULL);
