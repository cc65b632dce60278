/* quant-iq4/plugin.c: what the plugin exports: IQ4_NL and IQ4_XS. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type, values, bytes)                                                                      \
    WK_LAYOUT_TILES(name_, static)                                                                              \
    static const struct wk_isa_product name_##_products[] = { { WK_ISA_PORTABLE, 0, name_##_product_portable }, \
                                                              { WK_ISA_AVX2, 0, name_##_product_avx2 },         \
                                                              { WK_ISA_AVX512, 0, name_##_product_avx512 } };   \
    static const struct wk_type_cpu name_##_type = { .struct_size = sizeof(struct wk_type_cpu),                 \
                                                     .ggml_type = type,                                         \
                                                     .block = values,                                           \
                                                     .block_bytes = bytes,                                      \
                                                     .activations = WK_ACTIVATION_F32 | WK_ACTIVATION_Q8,       \
                                                     .name = #name_,                                            \
                                                     .tile_bytes = name_##_tile_bytes,                          \
                                                     .scratch_bytes = wk_tile_scratch_bytes,                    \
                                                     .pack = name_##_pack,                                      \
                                                     .unpack = name_##_unpack,                                  \
                                                     .dequantize = name_##_dequantize,                          \
                                                     .quantize = name_##_quantize,                              \
                                                     WK_TYPE_PRODUCTS(name_##_products) };
QUANT_IQ4_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_IQ4_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-iq4", "ggml:20,23", .name = "IQ4_NL, IQ4_XS", .version = "1.0.0",
              .quant = &quant);
