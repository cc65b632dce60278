/* quant_mxfp4.c: what the plugin exports: MXFP4. */
#include <worker/plugin.h>

#include "formats.h"

WK_LAYOUT_TILES(mxfp4, static)

WK_TILE_TYPE(mxfp4, 39, "mxfp4", 32, 17, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8)

static const struct wk_type_cpu *const types[] = { &mxfp4_type };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-mxfp4", "ggml:39", .name = "MXFP4", .version = "1.0.0", .quant = &quant);
