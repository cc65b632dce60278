/* quant-iq/formats.h: the types of this plugin, and what its source files owe each other.
 *
 * A value is a scale times a level. Levels of eight (IQ1, IQ2) or four (IQ3) values side by side are one point of a
 * grid, of which a block holds the index; a value of IQ2 and IQ3 has a sign beside it. Blocks of 256 values (byte
 * offsets in the file's block; [n] of two bytes: u16, of four: u32, little end first; g: the group of 8 values):
 *
 *   IQ2_XXS  d[0] w[2..65]                                 of each 32 values: index bytes of four groups, then a u32:
 *                                                          signs of 7 bits of four groups, scale s of 4 bits
 *   IQ2_XS   d[0] q[2..65] s[66..73]                       u16 a group: index of 9 bits, signs of 7 bits
 *   IQ2_S    d[0] q[2..33] sign[34..65] h[66..73] s[74..81]   index: byte q, two bits more of h
 *   IQ3_XXS  d[0] q[2..65] w[66..97]                       index: byte q of each four values; of each 32 a u32 as
 *                                                          IQ2_XXS has
 *   IQ3_S    d[0] q[2..65] h[66..73] sign[74..105] s[106..109]   index: byte q, a bit more of h
 *   IQ1_S    d[0] q[2..33] h[34..49]                       index: byte q, three bits more of a u16 of each 32 values,
 *                                                          whose upper four bits are s (3 bits) and the shift's sign
 *   IQ1_M    q[0..31] h[32..47] s[48..55]                  index: byte q, three bits more of a nibble of h, whose
 *                                                          fourth bit is the shift's sign; s: four u16, each of four
 *                                                          scales of 3 bits, then 4 bits of the half d
 *
 * Signs of 7 bits are those of the first seven values of a group; the eighth makes the number of minus signs even.
 *   IQ2_XXS         y = d (s + 1/2) / 4 * {8, 25, 43}[level], negative by its sign; a scale for 32 values
 *   IQ2_XS, IQ2_S   the same; a scale for 16: a nibble of s
 *   IQ3_XXS         y = d (s + 1/2) / 2 * {4, 12, 20, 28, 36, 44, 52, 62}[level]; a scale for 32
 *   IQ3_S           y = d (2 s + 1) * (2 level + 1); a scale for 32: a nibble of s
 *   IQ1_S, IQ1_M    y = d (2 s + 1) * (level - 1 + shift), shift 1/8 or -1/8; a scale for 32, for 16
 * All of these are exact in F32. Source: the GGUF format's definition of these types (ggml). */
#ifndef QUANT_IQ_FORMATS_H
#define QUANT_IQ_FORMATS_H

#include <worker/cpu/tile_common.h>

#define IQ2_LEVELS 8, 25, 43
#define IQ3_XXS_LEVELS 4, 12, 20, 28, 36, 44, 52, 62

/* Records: words in the order of the file, then the halves. */
static const struct wk_tile_layout iq2_xxs_layout = {
    256, 66, 2, 0, { { WK_FIELD_WORDS, 16, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 1024 } }
};
static const struct wk_tile_layout iq2_xs_layout = {
    256, 74, 2, 0, { { WK_FIELD_WORDS, 18, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 1152 } }
};
static const struct wk_tile_layout iq2_s_layout = {
    256, 82, 2, 0, { { WK_FIELD_WORDS, 20, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 1280 } }
};
static const struct wk_tile_layout iq3_xxs_layout = {
    256, 98, 2, 0, { { WK_FIELD_WORDS, 24, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 1536 } }
};
static const struct wk_tile_layout iq3_s_layout = {
    256, 110, 2, 0, { { WK_FIELD_WORDS, 27, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 1728 } }
};
static const struct wk_tile_layout iq1_s_layout = {
    256, 50, 2, 0, { { WK_FIELD_WORDS, 12, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 768 } }
};
static const struct wk_tile_layout iq1_m_layout = { 256, 56, 1, 0, { { WK_FIELD_WORDS, 14, 0, 0 } } };

/* X(name, ggml type, bytes a block); the name is ggml's spelling */
#define QUANT_IQ_TYPES(X) \
    X(iq2_xxs, 16, 66)    \
    X(iq2_xs, 17, 74)     \
    X(iq3_xxs, 18, 98)    \
    X(iq1_s, 19, 50)      \
    X(iq3_s, 21, 110)     \
    X(iq2_s, 22, 82)      \
    X(iq1_m, 29, 56)

#define DECLARE(name, ...) WK_TILE_FUNCTIONS(name)
QUANT_IQ_TYPES(DECLARE)
#undef DECLARE

#endif
