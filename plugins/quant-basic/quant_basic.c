/* quant_basic.c: what the plugin exports: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1. */
#include <worker/plugin.h>

#include "formats.h"

QUANT_BASIC_TYPES(WK_TILE_TYPE)

#define LIST(name_, ...) &name_##_type,
static const struct wk_type_cpu *const types[] = { QUANT_BASIC_TYPES(LIST) };

static const struct wk_quant quant = { sizeof quant, sizeof types / sizeof *types, types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.worker.quant-basic", "ggml:0,1,2,3,6,7,8,30",
              .name = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1", .version = "1.0.0", .quant = &quant);
