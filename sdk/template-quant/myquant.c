/* myquant.c: a quantization format: what the plugin exports. format.h has the definition, reference.c what the bits
 * mean, products.h what multiplies them; quant.md of the SDK is the contract. */
#include <worker/plugin.h>

#include "format.h"

/* tile_bytes, pack and unpack, from format_layout. */
WK_LAYOUT_TILES(format, static)

/* The host takes the best that a processor has; the portable one is required. */
static const struct wk_isa_product products[] = {
    { WK_ISA_PORTABLE, 0, format_product_portable },
#if defined(__x86_64__)
    { WK_ISA_AVX2, 0, format_product_avx2 },
    { WK_ISA_AVX512, 0, format_product_avx512 },
#endif
};

static const struct wk_type_cpu type = {
    .struct_size = sizeof type,
    .ggml_type = TYPE,
    .block = BLOCK,
    .block_bytes = BLOCK_BYTES,
    .activations = WK_ACTIVATION_F32 | WK_ACTIVATION_Q8,
    .name = "myquant", /* as in: worker quantize IN OUT myquant */
    .tile_bytes = format_tile_bytes,
    .scratch_bytes = wk_tile_scratch_bytes,
    .pack = format_pack,
    .unpack = format_unpack,
    .dequantize = format_dequantize,
    .quantize = format_quantize,
    WK_TYPE_PRODUCTS(products),
};
static const struct wk_type_cpu *const types[] = { &type };
static const struct wk_quant quant = { sizeof quant, 1, types };

/* The id is the plugin's own for ever: the name of a domain of yours, reversed. Model files name it. */
WORKER_PLUGIN(WK_KIND_QUANT, "org.example.myquant", "ggml:23226", .name = "myquant", .version = "0.1", .quant = &quant);
