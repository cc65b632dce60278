/* quant-basic/plugin.c: what the plugin exports: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type_, spelling_, block_, bytes_, acts_)                                                  \
    static const struct wk_isa_product name_##_products[] = { { WK_ISA_PORTABLE, 0, name_##_product_portable }, \
                                                              { WK_ISA_AVX2, 0, name_##_product_avx2 },         \
                                                              { WK_ISA_AVX512, 0, name_##_product_avx512 } };   \
    static const struct wk_type_cpu name_##_type = { .struct_size = sizeof(struct wk_type_cpu),                 \
                                                     .ggml_type = type_,                                        \
                                                     .block = block_,                                           \
                                                     .block_bytes = bytes_,                                     \
                                                     .activations = acts_,                                      \
                                                     .name = spelling_,                                         \
                                                     .tile_bytes = name_##_tile_bytes,                          \
                                                     .scratch_bytes = wk_tile_scratch_bytes,                    \
                                                     .pack = name_##_pack,                                      \
                                                     .unpack = name_##_unpack,                                  \
                                                     .dequantize = name_##_dequantize,                          \
                                                     .quantize = name_##_quantize,                              \
                                                     WK_TYPE_PRODUCTS(name_##_products) };
QUANT_BASIC_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_BASIC_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-basic", "ggml:0,1,2,3,6,7,8,30",
              .name = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1", .version = "1.0.0", .quant = &quant);
