/* quant-q4k/quantize.c: reference encoders: least squares over a small set of candidate steps; deterministic.
 *
 * Errors count as much as the importance of their columns says (w; 1 where none is given).
 *
 * A sub-block is fitted alone first: for each of some candidate steps the values are rounded to levels, and the step
 * (and minimum) that suit these levels best follow from the normal equations. Then the block's halves are chosen so
 * that the largest sub-block scale uses the whole range of the coded scales, and each coded scale (and minimum) is the
 * best of its rounded value and its neighbours. */
#include <math.h>

#include <worker/cpu/encode.h>

#include "formats.h"

enum { CANDIDATES = 21 };

/* Candidate i widens or narrows the range by up to one level. */
static float candidate(float top, uint32_t i) { return top - 1.0f + 0.1f * (float)i; }

/* ---- scale and minimum: x ~ scale q - min, 0 <= q <= top, min >= 0 ------------------------------------- */

struct fit {
    float scale, min;
};

/* Sums run in four interleaved parts, so that a compiler may use vectors and still must keep this order. */
enum { LANES = 4 };

static float total(const float part[LANES]) { return (part[0] + part[1]) + (part[2] + part[3]); }

/* Level of one value. */
static inline float range_level(float x, float top, float min, float inverse)
{
    return wk_round(wk_clamp((x + min) * inverse, 0, top));
}

/* Squared error, weighed by w, when x is rounded to the levels of `f`. */
static float range_error(const float *x, const float *w, uint32_t n, float top, struct fit f)
{
    const float inverse = f.scale > 0 ? 1.0f / f.scale : 0;
    float error[LANES] = { 0 };
    for (uint32_t i = 0; i < n; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            const float miss = x[i + l] - (f.scale * range_level(x[i + l], top, f.min, inverse) - f.min);
            error[l] += w[i + l] * (miss * miss);
        }
    }
    return total(error);
}

/* Least squares for the levels that x gets under `f`. */
static struct fit range_solve(const float *x, const float *w, uint32_t n, float top, struct fit f)
{
    const float inverse = 1.0f / f.scale;
    float ws[LANES] = { 0 }, xs[LANES] = { 0 }, qs[LANES] = { 0 }, qqs[LANES] = { 0 }, qxs[LANES] = { 0 };
    for (uint32_t i = 0; i < n; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            const float q = range_level(x[i + l], top, f.min, inverse);
            ws[l] += w[i + l];
            xs[l] += w[i + l] * x[i + l];
            qs[l] += w[i + l] * q;
            qqs[l] += w[i + l] * (q * q);
            qxs[l] += w[i + l] * (q * x[i + l]);
        }
    }
    const float sw = total(ws), sx = total(xs), sq = total(qs), sqq = total(qqs), sqx = total(qxs),
                det = sw * sqq - sq * sq;
    if (!(det > 0)) return f;
    struct fit best = { (sw * sqx - sx * sq) / det, (sq * sqx - sqq * sx) / det };
    if (best.min < 0) best = (struct fit){ sqx / sqq, 0 };
    return best.scale > 0 ? best : f;
}

static struct fit range_fit(const float *x, const float *w, uint32_t n, float top)
{
    float low = 0, high = x[0];
    for (uint32_t i = 0; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    struct fit best = { 0, -low };
    if (!(high - low > 0x1p-100f)) return best; /* one value throughout, or nothing that a half could scale */
    /* The range as it is: of values that all get one level the equations are those of one unknown, and say nothing. */
    best.scale = (high - low) / top;
    float least = range_error(x, w, n, top, best);
    for (uint32_t i = 0; i < CANDIDATES; i++) {
        const struct fit f = range_solve(x, w, n, top, (struct fit){ (high - low) / candidate(top, i), -low });
        const float error = range_error(x, w, n, top, f);
        if (error < least) {
            least = error;
            best = f;
        }
    }
    return best;
}

/* 256 values in sub-blocks of n: levels 0..top, coded scales and minima 0..codes. d, dmin: as the file's halves
 * have them. */
struct range_block {
    float d, dmin;
    uint8_t scale[16], min[16], q[256];
};

/* The coded pair next to `f` with the least error. */
static void range_code(const float *x, const float *w, uint32_t n, float top, float codes, struct fit f,
                       struct range_block *b, uint32_t j)
{
    const float s0 = b->d > 0 ? wk_round(fminf(f.scale / b->d, codes)) : 0;
    const float m0 = b->dmin > 0 ? wk_round(fminf(f.min / b->dmin, codes)) : 0;
    float least = INFINITY;
    b->scale[j] = (uint8_t)s0;
    b->min[j] = (uint8_t)m0;
    for (float s = fmaxf(s0 - 1, 0); s <= fminf(s0 + 1, codes); s++) {
        for (float m = fmaxf(m0 - 1, 0); m <= fminf(m0 + 1, codes); m++) {
            const float error = range_error(x, w, n, top, (struct fit){ b->d * s, b->dmin * m });
            if (error < least) {
                least = error;
                b->scale[j] = (uint8_t)s;
                b->min[j] = (uint8_t)m;
            }
        }
    }
    const float scale = b->d * (float)b->scale[j], min = b->dmin * (float)b->min[j],
                inverse = scale > 0 ? 1.0f / scale : 0;
    for (uint32_t i = 0; i < n; i++) b->q[j * n + i] = (uint8_t)range_level(x[i], top, min, inverse);
}

/* halves: where d and dmin go. */
static wk_status range_encode(const struct wk_quantize *in, uint64_t at, uint32_t n, float top, float codes,
                              struct range_block *b, uint8_t *halves, const struct wk_err *err)
{
    const float *x = in->x + at;
    struct fit fits[16];
    float scale = 0, min = 0;
    for (uint32_t j = 0; j < 256 / n; j++) {
        fits[j] = range_fit(x + (uint64_t)j * n, wk_error_costs(in, at + (uint64_t)j * n, n), n, top);
        scale = fmaxf(scale, fits[j].scale);
        min = fmaxf(min, fits[j].min);
    }
    wk_status status = wk_store_half(halves, scale / codes, at, err);
    if (!status) status = wk_store_half(halves + 2, min / codes, at, err);
    if (status) return status;
    b->d = wk_load_half(halves);
    b->dmin = wk_load_half(halves + 2);
    for (uint32_t j = 0; j < 256 / n; j++)
        range_code(x + (uint64_t)j * n, wk_error_costs(in, at + (uint64_t)j * n, n), n, top, codes, fits[j], b, j);
    return WK_OK;
}

/* ---- scale alone: x ~ scale q, -half <= q < half ------------------------------------------------------- */

static inline float symmetric_level(float x, float half, float inverse)
{
    return wk_round(wk_clamp(x * inverse, -half, half - 1));
}

static float symmetric_error(const float *x, const float *w, float half, float scale)
{
    const float inverse = scale != 0 ? 1.0f / scale : 0;
    float error[LANES] = { 0 };
    for (uint32_t i = 0; i < 16; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            const float miss = x[i + l] - scale * symmetric_level(x[i + l], half, inverse);
            error[l] += w[i + l] * (miss * miss);
        }
    }
    return total(error);
}

/* The value farthest from zero lies at about -half: a scale may be negative. */
static float symmetric_fit(const float *x, const float *w, float half)
{
    float far = 0, best = 0, most = 0;
    for (uint32_t i = 0; i < 16; i++) {
        if (fabsf(x[i]) > fabsf(far)) far = x[i];
    }
    if (!(fabsf(far) > 0x1p-100f)) return 0;
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        const float inverse = -candidate(half, c) / far;
        float qqs[LANES] = { 0 }, qxs[LANES] = { 0 };
        for (uint32_t i = 0; i < 16; i += LANES) {
            for (uint32_t l = 0; l < LANES; l++) {
                const float q = symmetric_level(x[i + l], half, inverse);
                qqs[l] += w[i + l] * (q * q);
                qxs[l] += w[i + l] * (q * x[i + l]);
            }
        }
        const float sqq = total(qqs), sqx = total(qxs);
        if (sqq > 0 && sqx * sqx > most * sqq) { /* the error is sum w x^2 - sqx^2 / sqq */
            most = sqx * sqx / sqq;
            best = sqx / sqq;
        }
    }
    return best;
}

/* 16 sub-blocks of 16: coded scales -codes .. codes - 1, stored plus `codes`; levels plus half. */
static wk_status symmetric_encode(const struct wk_quantize *in, uint64_t at, float half, float codes, uint8_t scale[16],
                                  uint8_t q[256], uint8_t *d_at, const struct wk_err *err)
{
    const float *x = in->x + at;
    float fits[16], far = 0;
    for (uint32_t j = 0; j < 16; j++) {
        fits[j] = symmetric_fit(x + 16 * j, wk_error_costs(in, at + 16 * j, 16), half);
        if (fabsf(fits[j]) > fabsf(far)) far = fits[j];
    }
    const wk_status status = wk_store_half(d_at, far / -codes, at, err);
    if (status) return status;
    const float d = wk_load_half(d_at);
    for (uint32_t j = 0; j < 16; j++) {
        const float code = d != 0 ? wk_round(wk_clamp(fits[j] / d, -codes, codes - 1)) : 0;
        const float *w = wk_error_costs(in, at + 16 * j, 16);
        float least = INFINITY, best = code;
        for (float c = fmaxf(code - 1, -codes); c <= fminf(code + 1, codes - 1); c++) {
            const float error = symmetric_error(x + 16 * j, w, half, d * c);
            if (error < least) {
                least = error;
                best = c;
            }
        }
        const float scale_j = d * best, inverse = scale_j != 0 ? 1.0f / scale_j : 0;
        for (uint32_t i = 0; i < 16; i++)
            q[16 * j + i] = (uint8_t)(int32_t)(symmetric_level(x[16 * j + i], half, inverse) + half);
        scale[j] = (uint8_t)(int32_t)(best + codes);
    }
    return WK_OK;
}

/* ---- the five types ------------------------------------------------------------------------------------ */

/* The 12 bytes of eight 6-bit scales and minima. */
static void store_k4_scales(uint8_t *sc, const struct range_block *r)
{
    for (uint32_t j = 0; j < 4; j++) {
        sc[j] = (uint8_t)(r->scale[j] | (r->scale[j + 4] >> 4) << 6);
        sc[j + 4] = (uint8_t)(r->min[j] | (r->min[j + 4] >> 4) << 6);
        sc[j + 8] = (uint8_t)((r->scale[j + 4] & 15) | (r->min[j + 4] & 15) << 4);
    }
}

static void store_k4_nibbles(uint8_t *qs, const uint8_t *q)
{
    for (uint32_t i = 0; i < 128; i++) {
        const uint8_t *pair = q + i / 32 * 64 + i % 32;
        qs[i] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

wk_status q4_K_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(in->x, n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < n; i += 256, b += 144) {
        struct range_block r;
        status = range_encode(in, i, 32, 15, 63, &r, b, err);
        if (status) return status;
        store_k4_scales(b + 4, &r);
        store_k4_nibbles(b + 16, r.q);
    }
    return status;
}

wk_status q5_K_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(in->x, n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < n; i += 256, b += 176) {
        struct range_block r;
        status = range_encode(in, i, 32, 31, 63, &r, b, err);
        if (status) return status;
        store_k4_scales(b + 4, &r);
        store_k4_nibbles(b + 48, r.q);
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t bits = 0;
            for (uint32_t j = 0; j < 8; j++) bits |= (uint32_t)(r.q[32 * j + l] >> 4) << j;
            b[16 + l] = (uint8_t)bits;
        }
    }
    return status;
}

/* 256 two-bit values: four quarters of 32 share 32 bytes. */
static void store_pairs(uint8_t *qs, const uint8_t *q)
{
    for (uint32_t i = 0; i < 64; i++) {
        const uint8_t *v = q + i / 32 * 128 + i % 32;
        qs[i] = (uint8_t)((v[0] & 3) | (v[32] & 3) << 2 | (v[64] & 3) << 4 | (v[96] & 3) << 6);
    }
}

wk_status q2_K_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(in->x, n, err);
    uint8_t *b = in->blocks;
    for (uint64_t i = 0; !status && i < n; i += 256, b += 84) {
        struct range_block r;
        status = range_encode(in, i, 16, 3, 15, &r, b + 80, err);
        if (status) return status;
        for (uint32_t j = 0; j < 16; j++) b[j] = (uint8_t)(r.scale[j] | r.min[j] << 4);
        store_pairs(b + 16, r.q);
    }
    return status;
}

wk_status q3_K_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(in->x, n, err);
    uint8_t *b = in->blocks, scale[16], q[256];
    for (uint64_t i = 0; !status && i < n; i += 256, b += 110) {
        status = symmetric_encode(in, i, 4, 32, scale, q, b + 108, err);
        if (status) return status;
        memset(b, 0, 32);
        for (uint32_t v = 0; v < 256; v++) b[v % 32] |= (uint8_t)((q[v] >> 2) << v / 32);
        store_pairs(b + 32, q);
        for (uint32_t s = 0; s < 8; s++) b[96 + s] = (uint8_t)((scale[s] & 15) | (scale[s + 8] & 15) << 4);
        for (uint32_t s = 0; s < 4; s++)
            b[104 + s] = (uint8_t)(scale[s] >> 4 | (scale[s + 4] >> 4) << 2 | (scale[s + 8] >> 4) << 4 |
                                   (scale[s + 12] >> 4) << 6);
    }
    return status;
}

wk_status q6_K_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const uint64_t n = in->n;
    wk_status status = wk_check_finite(in->x, n, err);
    uint8_t *b = in->blocks, scale[16], q[256];
    for (uint64_t i = 0; !status && i < n; i += 256, b += 210) {
        status = symmetric_encode(in, i, 32, 128, scale, q, b + 208, err);
        if (status) return status;
        for (uint32_t j = 0; j < 16; j++) b[192 + j] = (uint8_t)(scale[j] ^ 0x80); /* plus 128 to signed */
        for (uint32_t v = 0; v < 128; v++) { /* byte v of ql: values of two quarters */
            const uint8_t *half = q + v / 64 * 128 + v % 64;
            b[v] = (uint8_t)((half[0] & 15) | (half[64] & 15) << 4);
        }
        for (uint32_t v = 0; v < 64; v++) {
            const uint8_t *half = q + v / 32 * 128 + v % 32;
            b[128 + v] = (uint8_t)(half[0] >> 4 | (half[32] >> 4) << 2 | (half[64] >> 4) << 4 | (half[96] >> 4) << 6);
        }
    }
    return status;
}
