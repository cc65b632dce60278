/* quant-mxfp4/formats.h: MXFP4, and what this plugin's source files owe each other.
 *
 * A block is 32 values in 17 bytes: e[0] n[1..16]; nibble byte j holds value j low, value j + 16 high. e is an exponent
 * (E8M0), a nibble is sign, two bits of exponent and one of mantissa (E2M1):
 *   y = 2^(e - 127) * {0, 0.5, 1, 1.5, 2, 3, 4, 6}[nibble & 7], negative if nibble & 8; nibble 8 is +0
 * computed as 2^(e - 128) times twice the value, an integer. That is exact: e = 0 gives subnormals, large e infinities.
 * E8M0 calls e = 255 not a number; here as in the files' own tools it is one more exponent. Source: the GGUF format's
 * definition of the type (ggml); OCP Microscaling Formats 1.0 for E8M0 and E2M1.
 *
 * Products are of scales below 2^100 (tile_common.h): from e = 228 on, 255 included, a block makes its row's results
 * NaN. */
#ifndef QUANT_MXFP4_FORMATS_H
#define QUANT_MXFP4_FORMATS_H

#include <worker/cpu/tile_common.h>

/* Record: nibble words, then the exponents. */
static const struct wk_tile_layout mxfp4_layout = {
    32, 17, 2, 0, { { WK_FIELD_WORDS, 4, 1, 0 }, { WK_FIELD_BYTES, 1, 0, 256 } }
};

void mxfp4_dequantize(const struct wk_dequantize *in);
wk_status mxfp4_quantize(const struct wk_quantize *in, const struct wk_err *err);
void mxfp4_product_portable(const struct wk_cpu_product *p);
void mxfp4_product_avx2(const struct wk_cpu_product *p);
void mxfp4_product_avx512(const struct wk_cpu_product *p);

#endif
