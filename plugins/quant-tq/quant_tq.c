/* quant_tq.c: what the plugin exports: TQ1_0 and TQ2_0. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type, bytes) \
    WK_LAYOUT_TILES(name_, static) \
    WK_TILE_TYPE(name_, type, #name_, 256, bytes, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8)
QUANT_TQ_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_TQ_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-tq", "ggml:34,35", .name = "TQ1_0, TQ2_0", .version = "1.0.0",
              .quant = &quant);
