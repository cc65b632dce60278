/* quant-basic/tiles.c: rows of the file to tiles and back, all types. */
#include "formats.h"

WK_LAYOUT_TILES(q4_0, )
WK_LAYOUT_TILES(q4_1, )
WK_LAYOUT_TILES(q5_0, )
WK_LAYOUT_TILES(q5_1, )
WK_LAYOUT_TILES(q8_0, )
WK_PLAIN_TILES(f32, 4, )
WK_PLAIN_TILES(f16, 2, )
WK_PLAIN_TILES(bf16, 2, )
