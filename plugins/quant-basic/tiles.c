/* quant-basic/tiles.c: rows of the file to tiles and back, all types. */
#include "formats.h"

#define LAYOUT_TILES(name)                                                                     \
    uint64_t name##_tile_bytes(uint32_t k) { return wk_layout_tile_bytes(&name##_layout, k); } \
    void name##_pack(void *tile, const void *const rows[16], uint32_t k)                       \
    {                                                                                          \
        wk_layout_pack(&name##_layout, tile, rows, k);                                         \
    }                                                                                          \
    void name##_unpack(void *const rows[16], const void *tile, uint32_t k)                     \
    {                                                                                          \
        wk_layout_unpack(&name##_layout, rows, tile, k);                                       \
    }

#define PLAIN_TILES(name, bytes)                                                                                  \
    uint64_t name##_tile_bytes(uint32_t k) { return wk_plain_tile_bytes(bytes, k); }                              \
    void name##_pack(void *tile, const void *const rows[16], uint32_t k) { wk_plain_pack(bytes, tile, rows, k); } \
    void name##_unpack(void *const rows[16], const void *tile, uint32_t k) { wk_plain_unpack(bytes, rows, tile, k); }

LAYOUT_TILES(q4_0)
LAYOUT_TILES(q4_1)
LAYOUT_TILES(q5_0)
LAYOUT_TILES(q5_1)
LAYOUT_TILES(q8_0)
PLAIN_TILES(f32, 4)
PLAIN_TILES(f16, 2)
PLAIN_TILES(bf16, 2)
