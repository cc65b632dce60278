/* format.h: the definition of the format, and what the source files here owe each other.
 *
 * 32 values are a block of 18 bytes: a scale d, as a half, and 16 bytes n of which byte j holds value j in its lower
 * and value j + 16 in its upper four bits. Each four bits choose one of 16 levels; a value is
 *
 *     d * LEVELS[bits]        rounded once to float
 *
 * The levels lie closer together near 0, where most weights of a model are. Change this to your format: what the bits
 * mean is said in reference.c, their order for vector units in `format_layout`, and the way from there to numbers in
 * products.h. */
#ifndef FORMAT_H
#define FORMAT_H

#include <worker/cpu/tile_common.h>

enum {
    TYPE = 23226, /* the number in a file's tensor table: nobody's, so a file says besides that it is of this plugin */
    BLOCK = 32,
    BLOCK_BYTES = 18
};

#define LEVELS -127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127

/* A tile is 16 rows. Of a block of each the four words of n are put side by side, a vector of 64 bytes for each word,
 * then the 16 scales: { kind, how many, from byte of the block, to byte of the record }. No bit is lost or added. */
static const struct wk_tile_layout format_layout = {
    BLOCK, BLOCK_BYTES, 2, 0, { { WK_FIELD_WORDS, 4, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 256 } }
};

void format_dequantize(const struct wk_dequantize *in);
wk_status format_quantize(const struct wk_quantize *in, const struct wk_err *err);

/* One product for each instruction set; the host calls what the processor has. */
void format_product_portable(const struct wk_cpu_product *p);
void format_product_avx2(const struct wk_cpu_product *p);
void format_product_avx512(const struct wk_cpu_product *p);

#endif
