/* quant-mxfp4/formats.h: MXFP4 and NVFP4, and what this plugin's source files owe each other.
 *
 * A block of MXFP4 is 32 values in 17 bytes: e[0] n[1..16]; nibble byte j holds value j low, value j + 16 high. e is an
 * exponent (E8M0), a nibble is sign, two bits of exponent and one of mantissa (E2M1):
 *   y = 2^(e - 127) * {0, 0.5, 1, 1.5, 2, 3, 4, 6}[nibble & 7], negative if nibble & 8; nibble 8 is +0
 * It is computed as 2^(e - 128) times twice the value, an integer. That is exact: e = 0 gives subnormals, large e
 * infinities. E8M0 calls e = 255 not a number; here as in the files' own tools it is one more exponent.
 *
 * A block of NVFP4 is 64 values in 36 bytes: s[0..3] n[4..35]; each 16 values have a scale s and eight bytes of
 * nibbles, byte j with value j low, value j + 8 high. s is a number without sign of four bits of exponent and three of
 * mantissa (E4M3, the exponent less 7; of exponent 0 subnormals); 127 is 0, and of any other byte the eighth bit is not
 * looked at: y is s times the value of the nibble, computed as s / 2 times twice the value, which is exact.
 *
 * Source: the GGUF format's definition of these types (ggml); OCP Microscaling Formats 1.0 for E8M0 and E2M1.
 *
 * Products are of scales below 2^100 (tile_common.h): from e = 228 on, 255 included, a block makes its row's results
 * NaN. Every scale of NVFP4 is below 2^9. */
#ifndef QUANT_MXFP4_FORMATS_H
#define QUANT_MXFP4_FORMATS_H

#include <worker/cpu/tile_common.h>

/* Record: nibble words, then the exponents. */
static const struct wk_tile_layout mxfp4_layout = {
    32, 17, 2, 0, { { WK_FIELD_WORDS, 4, 1, 0 }, { WK_FIELD_BYTES, 1, 0, 256 } }
};

/* Record: nibble words, then the scales of a block as a word. */
static const struct wk_tile_layout nvfp4_layout = {
    64, 36, 2, 0, { { WK_FIELD_WORDS, 8, 4, 0 }, { WK_FIELD_WORDS, 1, 0, 512 } }
};

/* X(name, ggml type, values a block, bytes a block) */
#define QUANT_MXFP4_TYPES(X) \
    X(mxfp4, 39, 32, 17)     \
    X(nvfp4, 40, 64, 36)

#define DECLARE(name, ...) WK_TILE_FUNCTIONS(name)
QUANT_MXFP4_TYPES(DECLARE)
#undef DECLARE

/* Half of an E4M3 number as NVFP4 has it. */
static inline float nvfp4_half_scale(uint8_t s)
{
    return s == 127 ? 0 : wk_half_to_float((uint16_t)((s & 127u) << 7)) * 128; /* a half's exponent is 8 larger */
}

#endif
