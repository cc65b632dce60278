/* quant-iq4/plugin.c: what the plugin exports: IQ4_NL and IQ4_XS. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type, values, bytes)                                                                        \
    static uint64_t name_##_tile_bytes(uint32_t k) { return wk_layout_tile_bytes(&name_##_layout, k); }           \
    static void name_##_pack(void *tile, const void *const rows[16], uint32_t k)                                  \
    {                                                                                                             \
        wk_layout_pack(&name_##_layout, tile, rows, k);                                                           \
    }                                                                                                             \
    static void name_##_unpack(void *const rows[16], const void *tile, uint32_t k)                                \
    {                                                                                                             \
        wk_layout_unpack(&name_##_layout, rows, tile, k);                                                         \
    }                                                                                                             \
    static const struct wk_type_cpu name_##_type = { .struct_size = sizeof(struct wk_type_cpu),                   \
                                                     .ggml_type = type,                                           \
                                                     .block = values,                                             \
                                                     .block_bytes = bytes,                                        \
                                                     .acts = WK_ACT_F32 | WK_ACT_Q8,                              \
                                                     .name = #name_,                                              \
                                                     .tile_bytes = name_##_tile_bytes,                            \
                                                     .scratch_bytes = wk_tile_scratch_bytes,                      \
                                                     .pack = name_##_pack,                                        \
                                                     .unpack = name_##_unpack,                                    \
                                                     .dequantize = name_##_dequantize,                            \
                                                     .quantize = name_##_quantize,                                \
                                                     .product = { name_##_product_portable, name_##_product_avx2, \
                                                                  name_##_product_avx512 } };
QUANT_IQ4_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_IQ4_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-iq4", "ggml:20,23", .name = "IQ4_NL, IQ4_XS", .version = "0.1.0",
              .quant = &quant);
