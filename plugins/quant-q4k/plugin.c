/* quant-q4k/plugin.c: what the plugin exports: Q4_K, Q5_K, Q6_K, Q2_K, Q3_K. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type_, bytes_)                                                                            \
    WK_LAYOUT_TILES(name_, static)                                                                              \
    static const struct wk_isa_product name_##_products[] = { { WK_ISA_PORTABLE, 0, name_##_product_portable }, \
                                                              { WK_ISA_AVX2, 0, name_##_product_avx2 },         \
                                                              { WK_ISA_AVX512, 0, name_##_product_avx512 } };   \
    static const struct wk_type_cpu name_##_type = { .struct_size = sizeof(struct wk_type_cpu),                 \
                                                     .ggml_type = type_,                                        \
                                                     .block = 256,                                              \
                                                     .block_bytes = bytes_,                                     \
                                                     .activations = WK_ACTIVATION_F32 | WK_ACTIVATION_Q8,       \
                                                     .name = #name_,                                            \
                                                     .tile_bytes = name_##_tile_bytes,                          \
                                                     .scratch_bytes = wk_tile_scratch_bytes,                    \
                                                     .pack = name_##_pack,                                      \
                                                     .unpack = name_##_unpack,                                  \
                                                     .dequantize = name_##_dequantize,                          \
                                                     .quantize = name_##_quantize,                              \
                                                     WK_TYPE_PRODUCTS(name_##_products) };
QUANT_Q4K_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_Q4K_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-q4k", "ggml:10,11,12,13,14", .name = "Q2_K, Q3_K, Q4_K, Q5_K, Q6_K",
              .version = "1.0.0", .quant = &quant);
