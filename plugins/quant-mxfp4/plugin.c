/* quant-mxfp4/plugin.c: what the plugin exports: MXFP4. */
#include <worker/plugin.h>

#include "formats.h"

static uint64_t mxfp4_tile_bytes(uint32_t k) { return wk_layout_tile_bytes(&mxfp4_layout, k); }
static void mxfp4_pack(void *tile, const void *const rows[16], uint32_t k)
{
    wk_layout_pack(&mxfp4_layout, tile, rows, k);
}
static void mxfp4_unpack(void *const rows[16], const void *tile, uint32_t k)
{
    wk_layout_unpack(&mxfp4_layout, rows, tile, k);
}

static const struct wk_type_cpu mxfp4_type = { .struct_size = sizeof(struct wk_type_cpu),
                                               .ggml_type = 39,
                                               .block = 32,
                                               .block_bytes = 17,
                                               .acts = WK_ACT_F32 | WK_ACT_Q8,
                                               .name = "mxfp4",
                                               .tile_bytes = mxfp4_tile_bytes,
                                               .scratch_bytes = wk_tile_scratch_bytes,
                                               .pack = mxfp4_pack,
                                               .unpack = mxfp4_unpack,
                                               .dequantize = mxfp4_dequantize,
                                               .quantize = mxfp4_quantize,
                                               .product = { mxfp4_product_portable, mxfp4_product_avx2,
                                                            mxfp4_product_avx512 } };

static const struct wk_type_cpu *const types[] = { &mxfp4_type };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-mxfp4", "ggml:39", .name = "MXFP4", .version = "0.1.0", .quant = &quant);
