/* quant_iq.c: what the plugin exports: IQ1, IQ2 and IQ3 in their sizes. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type, bytes) \
    WK_LAYOUT_TILES(name_, static) \
    WK_TILE_TYPE(name_, type, #name_, 256, bytes, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8)
QUANT_IQ_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_IQ_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-iq", "ggml:16,17,18,19,21,22,29",
              .name = "IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S", .version = "1.0.0", .quant = &quant);
