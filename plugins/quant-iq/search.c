/* quant-iq/search.c: the search of the encoders of grids: least squares, weighed by importance, over all scales, all
 * points and both shifts; deterministic, and bounded in time.
 *
 * Values x with weights w become s times the levels q of a point at the error
 *     sum w (x - s q)^2  =  sum w x^2  +  s (s C - 2 X),   C = sum w q^2, X = sum w x q.
 * C and X of a point do not depend on s, so for every s > 0 the best point is a vertex of the upper left convex hull of
 * all points' (C, X). Of a grid's hundreds of points a few dozen are vertices: with them alone all scales are tried.
 *
 * The scale of a group of values: from s = infinity down, one piece (the values of one point) after the other moves on
 * to its next vertex; between two moves the best s is X / C of the sums, the error is - X^2 / C. Then d: for each code
 * that the group of the largest scale may get, the groups' best codes near their own scales, and a last time with the
 * d that suits these codes and points best.
 *
 * Signs are chosen before: where they have to be even in number, the value for which it costs the least has the wrong
 * one, and is one below 0 for what follows. */
#include "search.h"

#include <math.h>
#include <stdbool.h>

#include <worker/cpu/encode.h>

enum {
    VALUES = 256,
    PIECES = 64,        /* of a block: 64 of four values, or 32 of eight in up to two variants of the shift */
    GRID_POINTS = 4096, /* of the largest grid, with both shifts */
    DEPTH = 6,          /* of the hull: what lies between two vertices is looked at six times */
    VERTICES = 2 + (1 << DEPTH) - 1
};

struct hull {
    uint32_t n;
    float c[VERTICES], x[VERTICES]; /* both ascending */
    uint16_t point[VERTICES];
};

/* C and X of every point for the values of one piece. */
struct cloud {
    uint32_t n;
    float c[GRID_POINTS], x[GRID_POINTS];
    uint16_t some[GRID_POINTS]; /* numbers of points, in the order of the work */
};

struct block {
    const struct iq_grid *grid;
    float size;               /* of the largest value that matters; others are in units of it */
    float x[VALUES];          /* with the sign taken off where the format has signs */
    float w[VALUES];          /* in units of the largest of a group */
    float weight[16];         /* of a group, in units of the largest */
    float fit[16];            /* scale of a group; 0: no scale is better than none */
    uint32_t variants;        /* 2: the shift is chosen for a group */
    struct hull hull[PIECES]; /* [variants][pieces of a block] */
};

/* ---- hulls ------------------------------------------------------------------------------------------------- */

/* Four nibbles are a point. Of a nibble its part of C and of X: its value's level, or those of value i and i + 4. */
struct parts {
    float c[4][16], x[4][16];
};

static void add_part(struct parts *p, uint32_t i, uint32_t nibble, float level, float x, float w)
{
    p->c[i][nibble] += w * level * level;
    p->x[i][nibble] += w * level * x;
}

static void measure(struct cloud *v, const struct iq_grid *g, const float *x, const float *w, float shift)
{
    struct parts p = { { { 0 } }, { { 0 } } };
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t n = 0; n < 16; n++) {
            add_part(&p, i, n, g->level[g->span == 8 ? n & 3u : n & 7u] + shift, x[i], w[i]);
            if (g->span == 8) add_part(&p, i, n, g->level[n >> 2] + shift, x[i + 4], w[i + 4]);
        }
    float *c = v->c + v->n, *xs = v->x + v->n;
    for (uint32_t k = 0; k < g->points; k++) {
        const uint32_t at = g->point[k], a = at & 15u, b = at >> 4 & 15u, d = at >> 8 & 15u, e = at >> 12;
        c[k] = (p.c[0][a] + p.c[1][b]) + (p.c[2][d] + p.c[3][e]);
        xs[k] = (p.x[0][a] + p.x[1][b]) + (p.x[2][d] + p.x[3][e]);
    }
    v->n += g->points;
}

/* How far a point lies above the line from a to b. */
static inline float height(const struct cloud *v, uint32_t point, uint32_t a, uint32_t b)
{
    return (v->x[point] - v->x[a]) * (v->c[b] - v->c[a]) - (v->c[point] - v->c[a]) * (v->x[b] - v->x[a]);
}

/* Those of some[0 .. n) that lie above the line come first; their number. */
static uint32_t keep_above(const struct cloud *v, uint16_t *some, uint32_t n, uint32_t a, uint32_t b)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t point = some[i];
        some[i] = some[kept]; /* in any case: half of them would be a branch that no processor foresees */
        some[kept] = point;
        kept += height(v, point, a, b) > 0;
    }
    return kept;
}

static float slope(const struct hull *h, uint32_t i) { return (h->x[i + 1] - h->x[i]) / (h->c[i + 1] - h->c[i]); }

/* Slopes fall from each vertex to the next: of points on one line, but for rounding, the outer ones are enough. */
static void put(struct hull *h, const struct cloud *v, uint32_t point)
{
    const float c = v->c[point], x = v->x[point];
    if (h->n && !(c > h->c[h->n - 1] && x > h->x[h->n - 1])) return;
    h->c[h->n] = c;
    h->x[h->n] = x;
    h->point[h->n++] = (uint16_t)point;
    while (h->n > 2 && !(slope(h, h->n - 2) < slope(h, h->n - 3))) {
        h->n--;
        h->c[h->n - 1] = c;
        h->x[h->n - 1] = x;
        h->point[h->n - 1] = (uint16_t)point;
    }
}

/* The vertices between a and b, of some[0 .. n), which lie above the line from a to b. */
static void put_between(struct hull *h, const struct cloud *v, uint16_t *some, uint32_t n, uint32_t a, uint32_t b,
                        uint32_t depth)
{
    if (!n || !depth) return;
    uint32_t far = some[0];
    float most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float now = height(v, some[i], a, b);
        if (now > most) {
            most = now;
            far = some[i];
        }
    }
    const uint32_t left = keep_above(v, some, n, a, far), right = keep_above(v, some + left, n - left, far, b);
    put_between(h, v, some, left, a, far, depth - 1);
    put(h, v, far);
    put_between(h, v, some + left, right, far, b, depth - 1);
}

/* From the point of the least C to that of the largest X. */
static void make_hull(struct hull *h, struct cloud *v)
{
    uint32_t first = 0, last = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        v->some[i] = (uint16_t)i;
        if (v->c[i] < v->c[first] || (v->c[i] == v->c[first] && v->x[i] > v->x[first])) first = i;
        if (v->x[i] > v->x[last] || (v->x[i] == v->x[last] && v->c[i] < v->c[last])) last = i;
    }
    h->n = 0;
    put(h, v, first);
    if (first == last) return;
    put_between(h, v, v->some, keep_above(v, v->some, v->n, first, last), first, last, DEPTH);
    put(h, v, last);
}

/* The vertex with the least s C - 2 X. */
static uint32_t vertex_at(const struct hull *h, float s)
{
    uint32_t low = 0, high = h->n - 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (s * (h->c[middle + 1] - h->c[middle]) < 2 * (h->x[middle + 1] - h->x[middle]))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* Takes the signs off eight values; lowest: the lowest level over the highest. */
static uint8_t take_signs(float *x, const float *w, bool even, float lowest)
{
    uint32_t minus = 0, odd = 0, least = 0;
    float most = 0, cost[8];
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t negative = x[i] < 0;
        x[i] = negative ? -x[i] : x[i];
        minus |= negative << i;
        odd ^= negative;
        most = fmaxf(most, x[i]);
    }
    if (!even || !odd) return (uint8_t)minus;
    const float low = lowest * most;
    for (uint32_t i = 0; i < 8; i++) { /* what it costs to be the lowest level on the other side of 0 */
        cost[i] = w[i] * (x[i] < low ? 4 * low * x[i] : (x[i] + low) * (x[i] + low));
        if (cost[i] < cost[least]) least = i;
    }
    x[least] = -x[least];
    return (uint8_t)(minus ^ 1u << least);
}

/* Weights of a group, and its own among the groups: 0 where none of its columns has any importance. */
static void load_weights(struct block *b, const struct wk_quantize *in, uint64_t at, uint32_t group)
{
    const uint32_t n = b->grid->group, first = group * n;
    const float *w = wk_error_costs(in, at + first, n);
    float most = 0;
    for (uint32_t i = 0; i < n; i++) most = fmaxf(most, w[i]);
    for (uint32_t i = 0; i < n; i++) b->w[first + i] = w[i] / most;
    b->weight[group] = in->importance && w != in->importance + (at + first) % in->row_length ? 0 : most;
}

/* False if no half scales the largest value whose column matters. */
static bool load(struct block *b, const struct wk_quantize *in, uint64_t at, struct iq_coded *out)
{
    const struct iq_grid *g = b->grid;
    const float *x = in->x + at;
    float heaviest = 0;
    for (uint32_t j = 0; j < VALUES / g->group; j++) {
        load_weights(b, in, at, j);
        heaviest = fmaxf(heaviest, b->weight[j]);
    }
    for (uint32_t j = 0; j < VALUES / g->group; j++) b->weight[j] = heaviest > 0 ? b->weight[j] / heaviest : 1;
    for (uint32_t i = 0; i < VALUES; i++)
        if (b->w[i] > 0) b->size = fmaxf(b->size, fabsf(x[i]));
    if (!(b->size > 0x1p-100f)) return false;
    for (uint32_t i = 0; i < VALUES; i++) {
        b->x[i] = wk_clamp(x[i] / b->size, -1, 1);
        b->w[i] = fmaxf(b->w[i], 0x1p-16f); /* where nothing matters, nearer is better nevertheless */
    }
    const float lowest = g->level[0] / g->level[g->span == 8 ? 2 : 7];
    for (uint32_t i = 0; i < VALUES && g->signs != IQ_SIGNS_NONE; i += 8)
        out->minus[i / 8] = take_signs(b->x + i, b->w + i, g->signs == IQ_SIGNS_EVEN, lowest);
    return true;
}

static void make_hulls(struct block *b)
{
    const struct iq_grid *g = b->grid;
    const float up = g->shift == IQ_SHIFT_NONE ? 0 : 0.125f;
    struct cloud v;
    for (uint32_t i = 0; i < VALUES / g->span; i++) {
        const float *x = b->x + (size_t)i * g->span, *w = b->w + (size_t)i * g->span;
        v.n = 0;
        measure(&v, g, x, w, up);
        if (g->shift == IQ_SHIFT_OF_POINT) measure(&v, g, x, w, -up);
        make_hull(&b->hull[i], &v);
        if (b->variants < 2) continue;
        v.n = 0;
        measure(&v, g, x, w, -up);
        make_hull(&b->hull[VALUES / g->span + i], &v);
    }
}

/* ---- scales ------------------------------------------------------------------------------------------------ */

struct sums {
    float c, x;
};

static const struct hull *hulls_of(const struct block *b, uint32_t group, uint32_t variant)
{
    const struct iq_grid *g = b->grid;
    return b->hull + variant * (VALUES / g->span) + group * (g->group / g->span);
}

/* The best scale of a group of pieces; *gain: how much less the squared error is with it, if that is more. */
static void fit(const struct hull *h, uint32_t pieces, float *scale, float *gain)
{
    uint32_t at[8] = { 0 }, next;
    struct sums sum = { 0, 0 };
    for (uint32_t i = 0; i < pieces; i++) {
        sum.c += h[i].c[0];
        sum.x += h[i].x[0];
    }
    do {
        if (sum.x > 0 && sum.x * sum.x > *gain * sum.c) {
            *gain = sum.x * sum.x / sum.c;
            *scale = sum.x / sum.c;
        }
        float steepest = -INFINITY;
        next = pieces;
        for (uint32_t i = 0; i < pieces; i++) {
            const uint32_t k = at[i];
            if (k + 1 == h[i].n) continue;
            if (next < pieces && !(slope(&h[i], k) > steepest)) continue;
            steepest = slope(&h[i], k);
            next = i;
        }
        if (next < pieces) {
            const uint32_t k = at[next]++;
            sum.c += h[next].c[k + 1] - h[next].c[k];
            sum.x += h[next].x[k + 1] - h[next].x[k];
        }
    } while (next < pieces);
}

/* What scale s changes in a group's squared error, with the best points, in the better variant. */
static float change(const struct block *b, uint32_t group, float s, struct sums *sum, uint32_t *variant)
{
    float least = INFINITY;
    for (uint32_t v = 0; v < b->variants; v++) {
        const struct hull *h = hulls_of(b, group, v);
        struct sums now = { 0, 0 };
        for (uint32_t i = 0; i < b->grid->group / b->grid->span; i++) {
            const uint32_t k = vertex_at(&h[i], s);
            now.c += h[i].c[k];
            now.x += h[i].x[k];
        }
        const float error = s * (s * now.c - 2 * now.x);
        if (!(error < least)) continue;
        least = error;
        *sum = now;
        *variant = v;
    }
    return least;
}

/* Codes of all groups for one d, and what they come to. */
struct trial {
    uint8_t d[2], code[16];
    float change;    /* of the squared error, each group's by its weight */
    struct sums sum; /* with scales in units of d */
};

/* A group's code among the three next to its own scale; s: d's unit. */
static float choose_code(const struct block *b, uint32_t group, float s, uint8_t *code, struct sums *sum)
{
    const float top = (float)(b->grid->codes - 1),
                near = s > 0 ? wk_round(wk_clamp((b->fit[group] / s - 1) / 2, 0, top)) : 0;
    float least = INFINITY;
    for (float n = fmaxf(near - 1, 0); n <= fminf(near + 1, top); n++) {
        struct sums now = { 0, 0 };
        uint32_t variant = 0;
        const float error = change(b, group, s * (2 * n + 1), &now, &variant);
        if (!(error < least)) continue;
        least = error;
        *code = (uint8_t)n;
        *sum = now;
    }
    return least;
}

static wk_status try(const struct block *b, float d, struct trial *best, uint64_t at, const struct wk_err *err)
{
    struct trial t = { .change = 0 };
    const wk_status status = wk_store_half(t.d, d * b->size, at, err);
    if (status) return status;
    const float s = wk_load_half(t.d) / b->size * b->grid->unit;
    for (uint32_t j = 0; j < VALUES / b->grid->group; j++) {
        struct sums sum = { 0, 0 };
        t.change += b->weight[j] * choose_code(b, j, s, &t.code[j], &sum);
        const float number = 2 * (float)t.code[j] + 1;
        t.sum.c += b->weight[j] * number * number * sum.c;
        t.sum.x += b->weight[j] * number * sum.x;
    }
    if (t.change < best->change) *best = t;
    return WK_OK;
}

static wk_status choose_d(const struct block *b, struct trial *best, uint64_t at, const struct wk_err *err)
{
    const struct iq_grid *g = b->grid;
    float most = 0;
    for (uint32_t j = 0; j < VALUES / g->group; j++) most = fmaxf(most, b->fit[j]);
    wk_status status = WK_OK;
    for (uint32_t n = g->codes; n-- > 0;) { /* the first d is the smallest: with it alone a block may just be coded */
        status = try(b, most / (g->unit * (float)(2 * n + 1)), best, at, err);
        if (status) break;
    }
    if (status && best->change == INFINITY) return status;
    for (uint32_t n = 0; n < 2 && best->sum.x > 0; n++)
        (void)try(b, best->sum.x / (best->sum.c * g->unit), best, at, NULL);
    return WK_OK;
}

wk_status iq_search(const struct iq_grid *g, const struct wk_quantize *in, uint64_t at, struct iq_coded *out,
                    const struct wk_err *err)
{
    struct block b = { .grid = g, .variants = g->shift == IQ_SHIFT_OF_SCALE ? 2 : 1 };
    *out = (struct iq_coded){ .d = { 0 } };
    if (!load(&b, in, at, out)) return WK_OK;
    make_hulls(&b);
    const uint32_t pieces = g->group / g->span;
    for (uint32_t j = 0; j < VALUES / g->group; j++) {
        float gain = 0;
        for (uint32_t v = 0; v < b.variants; v++) fit(hulls_of(&b, j, v), pieces, &b.fit[j], &gain);
    }
    struct trial best = { .change = INFINITY };
    const wk_status status = choose_d(&b, &best, at, err);
    if (status) return status;
    memcpy(out->d, best.d, sizeof out->d);
    const float s = wk_load_half(best.d) / b.size * g->unit;
    for (uint32_t j = 0; j < VALUES / g->group; j++) {
        const float scale = s * (float)(2 * best.code[j] + 1);
        struct sums sum = { 0, 0 };
        uint32_t variant = 0;
        (void)change(&b, j, scale, &sum, &variant);
        out->code[j] = best.code[j];
        for (uint32_t i = 0; i < pieces; i++) {
            const struct hull *h = &hulls_of(&b, j, variant)[i];
            const uint32_t point = h->point[vertex_at(h, scale)];
            out->point[j * pieces + i] = (uint16_t)(point % g->points);
            if (g->shift != IQ_SHIFT_NONE) out->down[j * pieces + i] = (uint8_t)(variant | point / g->points);
        }
    }
    return WK_OK;
}
