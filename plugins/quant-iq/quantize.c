/* quant-iq/quantize.c: reference encoders of IQ3_XXS and IQ3_S: least squares over a small set of candidate scales, the
 * nearest point of the grid for each four values; deterministic. The types of two bits and less are only read: without
 * knowing what an error in each column costs they lose too much.
 *
 * First the signs: where they have to be even in number, the value that costs the least takes the wrong one, and is one
 * below 0 for what follows. Then, of 32 values, magnitudes: for some scales each four become the nearest point, and the
 * scale that suits these points best follows from the normal equation. Last the scales are coded, so that the largest
 * of a block uses the whole range of the codes. */
#include <math.h>
#include <stdbool.h>

#include <worker/cpu/encode.h>

#include "formats.h"
#include "grid_iq3.h"

struct grid {
    const uint16_t *point; /* [points], in the order of their numbers */
    uint32_t points;
    uint8_t level[8];
    bool even; /* signs of eight values are even in number */
};
static const struct grid xxs = { iq3_xxs_grid, 256, { IQ3_XXS_LEVELS }, true };
static const struct grid s = { iq3_s_grid, 512, { 1, 3, 5, 7, 9, 11, 13, 15 }, false };

/* 32 values without their signs. */
struct group {
    float size[32], weight[32]; /* weight: what an error costs */
    uint8_t minus[4];           /* bit i: of value i of eight */
};

static void split(struct group *to, const struct grid *g, const float *x, const float *importance)
{
    for (uint32_t e = 0; e < 4; e++) {
        uint32_t least = 8 * e, minus = 0, odd = 0;
        for (uint32_t i = 8 * e; i < 8 * e + 8; i++) {
            const uint32_t negative = x[i] < 0;
            to->weight[i] = importance ? importance[i] : 1;
            to->size[i] = negative ? -x[i] : x[i];
            minus |= negative << i % 8;
            odd ^= negative;
            if (to->weight[i] * x[i] * x[i] < to->weight[least] * x[least] * x[least]) least = i;
        }
        if (g->even && odd) {
            minus ^= 1u << least % 8;
            to->size[least] = -to->size[least];
        }
        to->minus[e] = (uint8_t)minus;
    }
}

/* The point nearest to four sizes over a scale, whose inverse is given; of several the first. */
static uint32_t nearest(const struct grid *g, const float *size, const float *weight, float inverse)
{
    float cost[4][8], best = INFINITY;
    uint32_t found = 0;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t l = 0; l < 8; l++) {
            const float miss = (float)g->level[l] - size[i] * inverse;
            cost[i][l] = weight[i] * miss * miss;
        }
    for (uint32_t p = 0; p < g->points; p++) {
        const uint32_t at = g->point[p];
        const float sum = (cost[0][at & 7u] + cost[1][at >> 4 & 7u]) + (cost[2][at >> 8 & 7u] + cost[3][at >> 12]);
        if (sum < best) {
            best = sum;
            found = p;
        }
    }
    return found;
}

/* The scale that suits 32 values, of a few; 0 if nothing is large enough for a half to scale. */
static float fit(const struct grid *g, const struct group *v)
{
    enum { CANDIDATES = 11 };
    float most = 0, best = 0, gain = 0;
    for (uint32_t i = 0; i < 32; i++) most = fmaxf(most, v->size[i]);
    if (!(most > 0x1p-100f)) return 0;
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        const float inverse = (float)g->level[7] * (0.45f + 0.075f * (float)c) / most;
        float qq = 0, qx = 0;
        for (uint32_t f = 0; f < 32; f += 4) {
            const uint32_t p = g->point[nearest(g, v->size + f, v->weight + f, inverse)];
            for (uint32_t i = 0; i < 4; i++) {
                const float q = g->level[p >> 4 * i & 7u];
                qq += v->weight[f + i] * q * q;
                qx += v->weight[f + i] * q * v->size[f + i];
            }
        }
        if (qx > 0 && qx * qx > gain * qq) { /* the error is sum x^2 - qx^2 / qq */
            gain = qx * qx / qq;
            best = qx / qq;
        }
    }
    return best;
}

/* Scales of 8 groups as d times an odd number of five bits; of d, which is a half at b. */
struct coded {
    struct group group[8];
    uint32_t code[8]; /* (number - 1) / 2 */
    float d;
};

static wk_status code(struct coded *c, const struct grid *g, uint8_t *b, const float *x, const float *importance,
                      float unit, uint64_t at, const struct wk_err *err)
{
    float fits[8], most = 0;
    for (uint32_t j = 0; j < 8; j++) {
        split(&c->group[j], g, x + 32 * j, importance ? importance + 32 * j : NULL);
        fits[j] = fit(g, &c->group[j]);
        most = fmaxf(most, fits[j]);
    }
    const wk_status status = wk_store_half(b, most / (31 * unit), at, err);
    c->d = status ? 0 : wk_load_half(b) * unit;
    for (uint32_t j = 0; j < 8; j++)
        c->code[j] = c->d > 0 ? (uint32_t)(int32_t)wk_round(wk_clamp((fits[j] / c->d - 1) / 2, 0, 15)) : 0;
    return status;
}

/* Index of four values `f` of a block. */
static uint32_t index_of(const struct coded *c, const struct grid *g, uint32_t f)
{
    const struct group *v = &c->group[f / 8];
    const float scale = c->d * (float)(2 * c->code[f / 8] + 1);
    return nearest(g, v->size + f % 8 * 4, v->weight + f % 8 * 4, scale > 0 ? 1 / scale : 0);
}

static const float *of_column(const struct wk_quantize *in, uint64_t i)
{
    return in->importance ? in->importance + i % in->row_length : NULL;
}

wk_status iq3_xxs_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    wk_status status = wk_check_finite(in->x, in->n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < in->n; i += 256, b += 98) {
        struct coded c;
        status = code(&c, &xxs, b, in->x + i, of_column(in, i), 0.25f, i, err);
        for (uint32_t f = 0; f < 64; f++) b[2 + f] = (uint8_t)index_of(&c, &xxs, f);
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t last = c.code[j] << 28;
            for (uint32_t e = 0; e < 4; e++) last |= (c.group[j].minus[e] & 127u) << 7 * e;
            for (uint32_t k = 0; k < 4; k++) b[66 + 4 * j + k] = (uint8_t)(last >> 8 * k);
        }
    }
    return status;
}

wk_status iq3_s_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    wk_status status = wk_check_finite(in->x, in->n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < in->n; i += 256, b += 110) {
        struct coded c;
        status = code(&c, &s, b, in->x + i, of_column(in, i), 1, i, err);
        memset(b + 66, 0, 8);
        for (uint32_t f = 0; f < 64; f++) {
            const uint32_t index = index_of(&c, &s, f);
            b[2 + f] = (uint8_t)index;
            b[66 + f / 8] = (uint8_t)(b[66 + f / 8] | index >> 8 << f % 8);
        }
        for (uint32_t e = 0; e < 32; e++) b[74 + e] = c.group[e / 4].minus[e % 4];
        for (uint32_t j = 0; j < 4; j++) b[106 + j] = (uint8_t)(c.code[2 * j] | c.code[2 * j + 1] << 4);
    }
    return status;
}

/* ---- only read --------------------------------------------------------------------------------------------- */

static wk_status only_read(const char *name, const struct wk_err *err)
{
    return wk_fail(
        err, WK_UNSUPPORTED,
        "%s needs an importance matrix to be made, which this encoder does not use: take iq3_xxs or a larger "
        "type",
        name);
}

#define ONLY_READ(name)                                                               \
    wk_status name##_quantize(const struct wk_quantize *in, const struct wk_err *err) \
    {                                                                                 \
        (void)in;                                                                     \
        return only_read(#name, err);                                                 \
    }
ONLY_READ(iq2_xxs)
ONLY_READ(iq2_xs)
ONLY_READ(iq2_s)
ONLY_READ(iq1_s)
ONLY_READ(iq1_m)
