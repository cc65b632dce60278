/* quant-iq4/quantize.c: reference encoders: least squares over a small set of candidate scales; deterministic.
 *
 * The value farthest from zero lies at about the lowest level or, with a scale of the other sign, at about the highest.
 * For each of some places near these the values are rounded to levels, and the scale that suits these levels best
 * follows from the normal equation; errors count as much as the importance of their columns says (w). IQ4_XS then codes
 * the scales of its groups, so that the largest uses the whole range of the codes. */
#include <math.h>

#include <worker/cpu/encode.h>

#include "formats.h"

static const int8_t level_of[16] = { IQ4_LEVELS };

enum { CANDIDATES = 17, LANES = 4 };

/* Candidate i puts the farthest value one level of `end` short of it up to as far beyond. */
static float candidate(float end, uint32_t i) { return end * (1.0f + 0.02f * ((float)i - 8)); }

/* Sums run in four interleaved parts, so that a compiler may use vectors and still must keep this order. */
static float total(const float part[LANES]) { return (part[0] + part[1]) + (part[2] + part[3]); }

/* The nearest level to v; between two, the lower one. By steps at what lies midway, without branches. */
static inline float nearest(float v)
{
    float level = level_of[0];
    for (uint32_t i = 1; i < 16; i++)
        level = v > 0.5f * (float)(level_of[i - 1] + level_of[i]) ? (float)level_of[i] : level;
    return level;
}

static inline uint8_t nearest_index(float v)
{
    uint8_t q = 0;
    for (uint32_t i = 1; i < 16; i++) q = (uint8_t)(q + (v > 0.5f * (float)(level_of[i - 1] + level_of[i])));
    return q;
}

/* The scale of 32 values; 0 if nothing is large enough for a half to scale. */
static float fit(const float *x, const float *w)
{
    float far = 0, best = 0, most = 0;
    for (uint32_t i = 0; i < 32; i++) {
        if (fabsf(x[i]) > fabsf(far)) far = x[i];
    }
    if (!(fabsf(far) > 0x1p-100f)) return 0;
    for (uint32_t c = 0; c < 2 * CANDIDATES; c++) {
        const float inverse = candidate(level_of[c < CANDIDATES ? 0 : 15], c % CANDIDATES) / far;
        float qqs[LANES] = { 0 }, qxs[LANES] = { 0 };
        for (uint32_t i = 0; i < 32; i += LANES) {
            for (uint32_t l = 0; l < LANES; l++) {
                const float q = nearest(x[i + l] * inverse);
                qqs[l] += w[i + l] * (q * q);
                qxs[l] += w[i + l] * (q * x[i + l]);
            }
        }
        const float qq = total(qqs), qx = total(qxs);
        if (qx * qx > most * qq) { /* the error is sum w x^2 - qx^2 / qq; no level is 0, so qq is not */
            most = qx * qx / qq;
            best = qx / qq;
        }
    }
    return best;
}

static float error_of(const float *x, const float *w, float scale)
{
    const float inverse = scale != 0 ? 1.0f / scale : 0;
    float error[LANES] = { 0 };
    for (uint32_t i = 0; i < 32; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            const float miss = x[i + l] - scale * nearest(x[i + l] * inverse);
            error[l] += w[i + l] * (miss * miss);
        }
    }
    return total(error);
}

/* 32 values to 16 bytes. */
static void store_levels(uint8_t *n, const float *x, float scale)
{
    const float inverse = scale != 0 ? 1.0f / scale : 0;
    for (uint32_t j = 0; j < 16; j++)
        n[j] = (uint8_t)(nearest_index(x[j] * inverse) | nearest_index(x[j + 16] * inverse) << 4);
}

wk_status iq4_nl_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < n; i += 32, b += 18) {
        status = wk_store_half(b, fit(x + i, wk_error_costs(in, i, 32)), i, err);
        if (!status) store_levels(b + 2, x + i, wk_load_half(b));
    }
    return status;
}

/* The code of a group's scale, -32 .. 31, whose error is the least of it and its neighbours. */
static float code_of(const float *x, const float *w, float scale, float d)
{
    const float middle = d != 0 ? wk_round(wk_clamp(scale / d, -32, 31)) : 0;
    float least = INFINITY, best = middle;
    for (float c = fmaxf(middle - 1, -32); c <= fminf(middle + 1, 31); c++) {
        const float error = error_of(x, w, d * c);
        if (error < least) {
            least = error;
            best = c;
        }
    }
    return best;
}

wk_status iq4_xs_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(x, n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < n; i += 256, b += 136) {
        float fits[8], far = 0;
        for (uint32_t j = 0; j < 8; j++) {
            fits[j] = fit(x + i + (uint64_t)32 * j, wk_error_costs(in, i + (uint64_t)32 * j, 32));
            if (fabsf(fits[j]) > fabsf(far)) far = fits[j];
        }
        status = wk_store_half(b, far / -32, i, err);
        if (status) return status;
        const float d = wk_load_half(b);
        uint32_t low = 0, high = 0;
        for (uint32_t j = 0; j < 8; j++) {
            const float *group = x + i + (uint64_t)32 * j,
                        code = code_of(group, wk_error_costs(in, i + (uint64_t)32 * j, 32), fits[j], d);
            const uint32_t s = (uint32_t)(int32_t)(code + 32);
            low |= (s & 15u) << 4 * j;
            high |= s >> 4 << 2 * j;
            store_levels(b + 8 + 16 * j, group, d * code);
        }
        for (uint32_t j = 0; j < 2; j++) b[2 + j] = (uint8_t)(high >> 8 * j);
        for (uint32_t j = 0; j < 4; j++) b[4 + j] = (uint8_t)(low >> 8 * j);
    }
    return status;
}
