/* quant-iq4/formats.h: IQ4_NL and IQ4_XS, and what this plugin's source files owe each other.
 *
 * A value is a scale times one of 16 levels that do not lie evenly, IQ4_LEVELS. Blocks in the file (byte offsets; a
 * byte of n holds value j low, value j + 16 high, of each 32):
 *   IQ4_NL  32 values   d[0] n[2..17]                          y = d * level
 *   IQ4_XS  256 values  d[0] sh[2..3] sl[4..7] n[8..135]       y = (d * (s - 32)) * level
 * Group j of 32 of IQ4_XS has a scale s of six bits: the lower four are nibble j % 2 of sl[j / 2], the upper two bits
 * 2j and 2j + 1 of sh. Source: the GGUF format's definition of these types (ggml). */
#ifndef QUANT_IQ4_FORMATS_H
#define QUANT_IQ4_FORMATS_H

#include <worker/cpu/tile_common.h>

#define IQ4_LEVELS -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* Records: nibble words first, then the scales. */
static const struct wk_tile_layout iq4_nl_layout = {
    32, 18, 2, 0, { { WK_FIELD_WORDS, 4, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 256 } }
};
static const struct wk_tile_layout iq4_xs_layout = { 256,
                                                     136,
                                                     4,
                                                     0,
                                                     { { WK_FIELD_WORDS, 32, 8, 0 },
                                                       { WK_FIELD_WORDS, 1, 4, 2048 },
                                                       { WK_FIELD_HALVES, 1, 0, 2112 },
                                                       { WK_FIELD_HALVES, 1, 2, 2144 } } };

/* X(name, ggml type, values a block, bytes a block) */
#define QUANT_IQ4_TYPES(X) \
    X(iq4_nl, 20, 32, 18)  \
    X(iq4_xs, 23, 256, 136)

#define DECLARE(name, ...) WK_TILE_FUNCTIONS(name)
QUANT_IQ4_TYPES(DECLARE)
#undef DECLARE

#endif
