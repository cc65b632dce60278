/* quant-tq/formats.h: TQ1_0 and TQ2_0, and what this plugin's source files owe each other.
 *
 * Ternary values: y = d (q - 1), q of {0, 1, 2}. Blocks of 256 values (byte offsets in the file's block; v: the value):
 *   TQ1_0  t[0..47] l[48..51] d[52]   digits of bytes: digit n is (byte 3^n mod 256) 3 / 256
 *                                     v 0..159: digit v / 32 of byte v % 32; v 160..239: digit (v - 160) / 16 of byte
 *                                     32 + v % 16; v 240..255: digit (v - 240) / 4 of byte 48 + v % 4
 *   TQ2_0  q[0..63] d[64]             two bits: v / 32 % 4 of byte v / 128 * 32 + v % 32; 3 is taken as it is, y = 2 d
 * Source: the GGUF format's definition of these types (ggml). */
#ifndef QUANT_TQ_FORMATS_H
#define QUANT_TQ_FORMATS_H

#include <worker/cpu/tile_common.h>

/* Records: words in the order of the file, then the halves. */
static const struct wk_tile_layout tq1_0_layout = {
    256, 54, 2, 0, { { WK_FIELD_WORDS, 13, 0, 0 }, { WK_FIELD_HALVES, 1, 52, 832 } }
};
static const struct wk_tile_layout tq2_0_layout = {
    256, 66, 2, 0, { { WK_FIELD_WORDS, 16, 0, 0 }, { WK_FIELD_HALVES, 1, 64, 1024 } }
};

/* X(name, ggml type, bytes a block); the name is ggml's spelling */
#define QUANT_TQ_TYPES(X) \
    X(tq1_0, 34, 54)      \
    X(tq2_0, 35, 66)

#define DECLARE(name, ...) WK_TILE_FUNCTIONS(name)
QUANT_TQ_TYPES(DECLARE)
#undef DECLARE

#endif
