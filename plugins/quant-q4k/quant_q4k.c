/* quant_q4k.c: what the plugin exports: Q2_K to Q6_K. It is called quant-q4k, which is the file name that installations
 * and requirements know: it began with Q4_K, and the others have the same superblocks of 256 values and join it. */
#include <worker/plugin.h>

#include "formats.h"

#define DEFINE(name_, type, bytes) \
    WK_LAYOUT_TILES(name_, static) \
    WK_TILE_TYPE(name_, type, #name_, 256, bytes, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8)
QUANT_Q4K_TYPES(DEFINE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_Q4K_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-q4k", "ggml:10,11,12,13,14", .name = "Q2_K, Q3_K, Q4_K, Q5_K, Q6_K",
              .version = "1.0.0", .quant = &quant);
