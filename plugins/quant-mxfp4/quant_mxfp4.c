/* quant_mxfp4.c: what the plugin exports: MXFP4 and NVFP4. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type, values, bytes) \
    WK_LAYOUT_TILES(name_, static)         \
    WK_TILE_TYPE(name_, type, #name_, values, bytes, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8)
QUANT_MXFP4_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_MXFP4_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-mxfp4", "ggml:39,40", .name = "MXFP4, NVFP4", .version = "1.0.0",
              .quant = &quant);
