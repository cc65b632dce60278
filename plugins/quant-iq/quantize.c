/* quant-iq/quantize.c: reference encoders: where the numbers of search.c go in a block; deterministic. The types of two
 * bits and less are only made where it is known what an error in each column costs: without that they lose too much. */
#include <stdbool.h>

#include <worker/cpu/encode.h>

#include "formats.h"
#include "grid_iq1.h"
#include "grid_iq2.h"
#include "grid_iq3.h"
#include "search.h"

static const struct iq_grid iq2_xxs = { iq2_xxs_grid, 256, 8, { IQ2_LEVELS }, 32, 16, 0.125f, IQ_SIGNS_EVEN, 0 },
                            iq2_xs = { iq2_xs_grid, 512, 8, { IQ2_LEVELS }, 16, 16, 0.125f, IQ_SIGNS_EVEN, 0 },
                            iq2_s = { iq2_s_grid, 1024, 8, { IQ2_LEVELS }, 16, 16, 0.125f, IQ_SIGNS_FREE, 0 },
                            iq3_xxs = { iq3_xxs_grid, 256, 4, { IQ3_XXS_LEVELS }, 32, 16, 0.25f, IQ_SIGNS_EVEN, 0 },
                            iq3_s = { iq3_s_grid, 512, 4, { 1, 3, 5, 7, 9, 11, 13, 15 }, 32, 16, 1, IQ_SIGNS_FREE, 0 },
                            iq1_s = { iq1_grid, 2048, 8, { -1, 0, 1 }, 32, 8, 1, IQ_SIGNS_NONE, IQ_SHIFT_OF_SCALE },
                            iq1_m = { iq1_grid, 2048, 8, { -1, 0, 1 }, 16, 8, 1, IQ_SIGNS_NONE, IQ_SHIFT_OF_POINT };

static void store_u16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

/* Bits beside others that were written; the block was all zeros. */
static void add_bits(uint8_t *to, uint32_t value, uint32_t shift) { *to = (uint8_t)(*to | value << shift); }

/* Signs of 7 bits of four groups, a scale of 4 bits. */
static void store_word(uint8_t *to, const struct iq_coded *c, uint32_t j)
{
    uint32_t word = (uint32_t)c->code[j] << 28;
    for (uint32_t e = 0; e < 4; e++) word |= (c->minus[4 * j + e] & 127u) << 7 * e;
    store_u16(to, word);
    store_u16(to + 2, word >> 16);
}

static void iq2_xxs_store(uint8_t *b, const struct iq_coded *c)
{
    memcpy(b, c->d, 2);
    for (uint32_t g = 0; g < 32; g++) b[2 + g / 4 * 8 + g % 4] = (uint8_t)c->point[g];
    for (uint32_t j = 0; j < 8; j++) store_word(b + 6 + 8 * j, c, j);
}

static void iq2_xs_store(uint8_t *b, const struct iq_coded *c)
{
    memcpy(b, c->d, 2);
    for (uint32_t g = 0; g < 32; g++) store_u16(b + 2 + 2 * g, c->point[g] | (c->minus[g] & 127u) << 9);
    for (uint32_t i = 0; i < 16; i++) add_bits(b + 66 + i / 2, c->code[i], i % 2 * 4);
}

static void iq2_s_store(uint8_t *b, const struct iq_coded *c)
{
    memcpy(b, c->d, 2);
    for (uint32_t g = 0; g < 32; g++) {
        b[2 + g] = (uint8_t)c->point[g];
        b[34 + g] = c->minus[g];
        add_bits(b + 66 + g / 4, c->point[g] >> 8, g % 4 * 2);
    }
    for (uint32_t i = 0; i < 16; i++) add_bits(b + 74 + i / 2, c->code[i], i % 2 * 4);
}

static void iq3_xxs_store(uint8_t *b, const struct iq_coded *c)
{
    memcpy(b, c->d, 2);
    for (uint32_t f = 0; f < 64; f++) b[2 + f] = (uint8_t)c->point[f];
    for (uint32_t j = 0; j < 8; j++) store_word(b + 66 + 4 * j, c, j);
}

static void iq3_s_store(uint8_t *b, const struct iq_coded *c)
{
    memcpy(b, c->d, 2);
    for (uint32_t f = 0; f < 64; f++) {
        b[2 + f] = (uint8_t)c->point[f];
        add_bits(b + 66 + f / 8, c->point[f] >> 8, f % 8);
    }
    memcpy(b + 74, c->minus, 32);
    for (uint32_t j = 0; j < 8; j++) add_bits(b + 106 + j / 2, c->code[j], j % 2 * 4);
}

static void iq1_s_store(uint8_t *b, const struct iq_coded *c)
{
    memcpy(b, c->d, 2);
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t high = (uint32_t)c->code[j] << 12 | (uint32_t)c->down[4 * j] << 15;
        for (uint32_t e = 0; e < 4; e++) {
            b[2 + 4 * j + e] = (uint8_t)c->point[4 * j + e];
            high |= (uint32_t)c->point[4 * j + e] >> 8 << 3 * e;
        }
        store_u16(b + 34 + 2 * j, high);
    }
}

static void iq1_m_store(uint8_t *b, const struct iq_coded *c)
{
    for (uint32_t g = 0; g < 32; g++) {
        b[g] = (uint8_t)c->point[g];
        add_bits(b + 32 + g / 2, (uint32_t)c->point[g] >> 8 | (uint32_t)c->down[g] << 3, g % 2 * 4);
    }
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t word = (wk_load_u16(c->d) >> 4 * j & 15u) << 12;
        for (uint32_t i = 0; i < 4; i++) word |= (uint32_t)c->code[4 * j + i] << 3 * i;
        store_u16(b + 48 + 2 * j, word);
    }
}

static wk_status encode(const struct iq_grid *g, const struct wk_quantize *in, uint32_t bytes,
                        void (*store)(uint8_t *b, const struct iq_coded *c), const struct wk_err *err)
{
    wk_status status = wk_check_finite(in->x, in->n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < in->n; i += 256, b += bytes) {
        struct iq_coded c;
        status = iq_search(g, in, i, &c, err);
        memset(b, 0, bytes);
        if (!status) store(b, &c);
    }
    return status;
}

static wk_status needs_importance(const char *name, const struct wk_err *err)
{
    return wk_fail(err, WK_UNSUPPORTED,
                   "%s is made only with an importance matrix: give one (worker imatrix makes it, --imatrix names "
                   "it), or take iq3_xxs or a larger type",
                   name);
}

/* ALONE: the type is made with importance alone. */
#define ENCODER(name, bytes, ALONE)                                                   \
    wk_status name##_quantize(const struct wk_quantize *in, const struct wk_err *err) \
    {                                                                                 \
        if ((ALONE) && !in->importance) return needs_importance(#name, err);          \
        return encode(&name, in, bytes, name##_store, err);                           \
    }
ENCODER(iq2_xxs, 66, true)
ENCODER(iq2_xs, 74, true)
ENCODER(iq2_s, 82, true)
ENCODER(iq3_xxs, 98, false)
ENCODER(iq3_s, 110, false)
ENCODER(iq1_s, 50, true)
ENCODER(iq1_m, 56, true)
