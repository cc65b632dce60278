/* quant-tq/quantize.c: reference encoders: the ternary values and the scale with the least squares of errors;
 * deterministic.
 *
 * The best ternary values for a scale d are those of the sizes above d / 2, and the best d for these is their mean. So
 * from the largest size down a few thresholds are tried; weights that are ternary already are met exactly. */
#include <math.h>

#include <worker/cpu/encode.h>

#include "formats.h"

/* The scale of 256 values; 0 if nothing is large enough for a half to scale. */
static float fit(const float *x, const float *importance)
{
    enum { CANDIDATES = 32 };
    float most = 0, best = 0, gain = 0;
    for (uint32_t i = 0; i < 256; i++) most = fmaxf(most, fabsf(x[i]));
    if (!(most > 0x1p-100f)) return 0;
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        const float from = most * (0.5f - 0.5f / CANDIDATES * (float)c);
        float sum = 0, weight = 0;
        for (uint32_t i = 0; i < 256; i++) {
            const float w = !importance ? 1 : importance[i];
            if (fabsf(x[i]) < from) continue;
            sum += w * fabsf(x[i]);
            weight += w;
        }
        if (weight > 0 && sum * (sum / weight) > gain) { /* the error is sum w x^2 - sum^2 / weight */
            gain = sum * (sum / weight);
            best = sum / weight;
        }
    }
    return best;
}

/* NULL: errors cost the same in all 256 columns from value i on; also where none of these has any importance. */
static const float *costs_of(const struct wk_quantize *in, uint64_t i)
{
    const float *importance = in->importance ? in->importance + i % in->row_length : NULL;
    for (uint32_t v = 0; importance && v < 256; v++)
        if (importance[v] > 0) return importance;
    return NULL;
}

/* 256 values of {0, 1, 2} under the scale that is a half at `at`. */
static wk_status ternary(const struct wk_quantize *in, uint64_t i, uint8_t *at, uint8_t q[256],
                         const struct wk_err *err)
{
    const wk_status status = wk_store_half(at, fit(in->x + i, costs_of(in, i)), i, err);
    const float d = status ? 0 : wk_load_half(at);
    for (uint32_t v = 0; v < 256; v++) {
        const float x = in->x[i + v];
        q[v] = d > 0 && fabsf(x) > 0.5f * d ? (x < 0 ? 0 : 2) : 1;
    }
    return status;
}

/* The byte whose digits, from the highest on, are q[0], q[step], ..: so many 3^-n of 256, rounded up. */
static uint8_t digits(const uint8_t *q, uint32_t step, uint32_t n)
{
    static const uint32_t power[5] = { 81, 27, 9, 3, 1 };
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += q[i * step] * power[i];
    return (uint8_t)((sum * 256 + 242) / 243);
}

wk_status tq1_0_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    wk_status status = wk_check_finite(in->x, in->n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < in->n; i += 256, b += 54) {
        uint8_t q[256];
        status = ternary(in, i, b + 52, q, err);
        for (uint32_t m = 0; m < 32; m++) b[m] = digits(q + m, 32, 5);
        for (uint32_t m = 0; m < 16; m++) b[32 + m] = digits(q + 160 + m, 16, 5);
        for (uint32_t m = 0; m < 4; m++) b[48 + m] = digits(q + 240 + m, 4, 4);
    }
    return status;
}

wk_status tq2_0_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    wk_status status = wk_check_finite(in->x, in->n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < in->n; i += 256, b += 66) {
        uint8_t q[256];
        status = ternary(in, i, b + 64, q, err);
        memset(b, 0, 64);
        for (uint32_t v = 0; v < 256; v++) {
            uint8_t *to = b + v / 128 * 32 + v % 32;
            *to = (uint8_t)(*to | q[v] << v / 32 % 4 * 2);
        }
    }
    return status;
}
