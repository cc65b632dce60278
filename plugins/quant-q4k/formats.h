/* quant-q4k/formats.h: the five types of this plugin, and what its source files owe each other.
 *
 * Blocks of 256 values (byte offsets in the file's block):
 *   Q2_K sc[0..15] qs[16..79] d[80] dmin[82]                16 sub-blocks of 16; y = d (sc & 15) q - dmin (sc >> 4)
 *   Q3_K hmask[0..31] qs[32..95] sc[96..107] d[108]         16 of 16; y = d (sc - 32) (q - 4)
 *   Q4_K d[0] dmin[2] sc[4..15] qs[16..143]                 8 of 32; y = d sc q - dmin m
 *   Q5_K d[0] dmin[2] sc[4..15] qh[16..47] qs[48..175]      8 of 32; likewise
 *   Q6_K ql[0..127] qh[128..191] sc[192..207] d[208]        16 of 16; y = d sc (q - 32), sc signed
 * Source: the GGUF format's definition of these types (ggml). */
#ifndef QUANT_Q4K_FORMATS_H
#define QUANT_Q4K_FORMATS_H

#include <worker/cpu/tile_common.h>

/* Records: scale bytes as words, then quants as words, in the order in which products read them, so that a tile is one
 * stream; halves where they fit. */
static const struct wk_tile_layout q2_K_layout = { 256,
                                                   84,
                                                   4,
                                                   0,
                                                   { { WK_FIELD_WORDS, 4, 0, 0 },
                                                     { WK_FIELD_HALVES, 1, 80, 256 },
                                                     { WK_FIELD_HALVES, 1, 82, 288 },
                                                     { WK_FIELD_WORDS, 16, 16, 320 } } };
static const struct wk_tile_layout q3_K_layout = { 256,
                                                   110,
                                                   4,
                                                   0,
                                                   { { WK_FIELD_WORDS, 3, 96, 0 },
                                                     { WK_FIELD_WORDS, 8, 0, 192 },
                                                     { WK_FIELD_WORDS, 16, 32, 704 },
                                                     { WK_FIELD_HALVES, 1, 108, 1728 } } };
static const struct wk_tile_layout q4_K_layout = { 256,
                                                   144,
                                                   4,
                                                   0,
                                                   { { WK_FIELD_WORDS, 3, 4, 0 },
                                                     { WK_FIELD_HALVES, 1, 0, 192 },
                                                     { WK_FIELD_HALVES, 1, 2, 224 },
                                                     { WK_FIELD_WORDS, 32, 16, 256 } } };
static const struct wk_tile_layout q5_K_layout = { 256,
                                                   176,
                                                   5,
                                                   0,
                                                   { { WK_FIELD_WORDS, 3, 4, 0 },
                                                     { WK_FIELD_HALVES, 1, 0, 192 },
                                                     { WK_FIELD_HALVES, 1, 2, 224 },
                                                     { WK_FIELD_WORDS, 8, 16, 256 },
                                                     { WK_FIELD_WORDS, 32, 48, 768 } } };
static const struct wk_tile_layout q6_K_layout = { 256,
                                                   210,
                                                   6,
                                                   0,
                                                   { { WK_FIELD_WORDS, 4, 192, 0 },
                                                     { WK_FIELD_WORDS, 16, 0, 256 },
                                                     { WK_FIELD_WORDS, 8, 128, 1280 },
                                                     { WK_FIELD_WORDS, 16, 64, 1792 },
                                                     { WK_FIELD_WORDS, 8, 160, 2816 },
                                                     { WK_FIELD_HALVES, 1, 208, 3328 } } };

/* X(name, ggml type, bytes a block); the name is ggml's spelling */
#define QUANT_Q4K_TYPES(X) \
    X(q4_K, 12, 144)       \
    X(q5_K, 13, 176)       \
    X(q6_K, 14, 210)       \
    X(q2_K, 10, 84)        \
    X(q3_K, 11, 110)

#define DECLARE(name, ...) WK_TILE_FUNCTIONS(name)
QUANT_Q4K_TYPES(DECLARE)
#undef DECLARE

#endif
