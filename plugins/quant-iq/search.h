/* quant-iq/search.h: what the encoders of grids share: the search for the scales, points and signs of a block. */
#ifndef QUANT_IQ_SEARCH_H
#define QUANT_IQ_SEARCH_H

#include <worker/quant.h>

enum iq_signs { IQ_SIGNS_NONE, IQ_SIGNS_FREE, IQ_SIGNS_EVEN }; /* EVEN: the minus signs of eight are even in number */

/* What the shift of IQ1 is chosen for: values with one scale, or the values of one point. */
enum iq_shift { IQ_SHIFT_NONE, IQ_SHIFT_OF_SCALE, IQ_SHIFT_OF_POINT };

struct iq_grid {
    const uint16_t *point; /* [points], in the order of their numbers */
    uint32_t points;
    uint32_t span;         /* values of a point: 8 (levels of two bits, as grid_iq2.h says), or 4 (levels of three) */
    float level[8];        /* ascending; without the shift */
    uint32_t group, codes; /* values with one scale: 16 or 32; codes of scales: 8 or 16 */
    float unit;            /* a scale is d * unit * (2 * code + 1) */
    enum iq_signs signs;
    enum iq_shift shift;
};

/* A block of 256 values. */
struct iq_coded {
    uint8_t d[2];       /* a half */
    uint8_t code[16];   /* of each group */
    uint8_t minus[32];  /* bit i: of value i of eight */
    uint8_t down[32];   /* of eight values: 1 if the shift is -1/8 */
    uint16_t point[64]; /* numbers of the points of each `span` values */
};

/* The 256 values from index `at` on; they are finite. WK_INVALID: no half is large enough for d. */
wk_status iq_search(const struct iq_grid *g, const struct wk_quantize *in, uint64_t at, struct iq_coded *out,
                    const struct wk_err *err);

#endif
