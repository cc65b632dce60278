/* quant-q4k/plugin.c: what the plugin exports: Q4_K, Q5_K, Q6_K, Q2_K, Q3_K. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type_, bytes_)                                                                              \
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
                                                     .ggml_type = type_,                                          \
                                                     .block = 256,                                                \
                                                     .block_bytes = bytes_,                                       \
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
QUANT_Q4K_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_Q4K_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-q4k", "ggml:10,11,12,13,14", .name = "Q2_K, Q3_K, Q4_K, Q5_K, Q6_K",
              .version = "0.1.0", .quant = &quant);
