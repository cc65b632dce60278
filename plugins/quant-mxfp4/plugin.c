/* quant-mxfp4/plugin.c: what the plugin exports: MXFP4. */
#include <worker/plugin.h>

#include "formats.h"

WK_LAYOUT_TILES(mxfp4, static)

static const struct wk_isa_product products[] = { { WK_ISA_PORTABLE, 0, mxfp4_product_portable },
                                                  { WK_ISA_AVX2, 0, mxfp4_product_avx2 },
                                                  { WK_ISA_AVX512, 0, mxfp4_product_avx512 } };

static const struct wk_type_cpu mxfp4_type = { .struct_size = sizeof(struct wk_type_cpu),
                                               .ggml_type = 39,
                                               .block = 32,
                                               .block_bytes = 17,
                                               .activations = WK_ACTIVATION_F32 | WK_ACTIVATION_Q8,
                                               .name = "mxfp4",
                                               .tile_bytes = mxfp4_tile_bytes,
                                               .scratch_bytes = wk_tile_scratch_bytes,
                                               .pack = mxfp4_pack,
                                               .unpack = mxfp4_unpack,
                                               .dequantize = mxfp4_dequantize,
                                               .quantize = mxfp4_quantize,
                                               WK_TYPE_PRODUCTS(products) };

static const struct wk_type_cpu *const types[] = { &mxfp4_type };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-mxfp4", "ggml:39", .name = "MXFP4", .version = "1.0.0", .quant = &quant);
