/* quant_products.c: a format's products against sums in F64, and that a result is the same whatever is computed beside
 * it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <worker/cpu/act_q8.h>

#include "check/quant.h"

/* Numbers of rows of activations at a time: around the sizes that products are written for. */
static const uint32_t tokens[] = { 1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, QUANT_TOKENS };
enum { COUNTS = sizeof tokens / sizeof *tokens };

/* Numbers of tiles for the i-th number of rows: all where that costs little. */
static uint32_t fewest_tiles(uint32_t k, uint32_t i) { return k < 400 ? 1 : 1 + i % QUANT_TILES; }
static uint32_t most_tiles(uint32_t k, uint32_t i) { return k < 400 ? QUANT_TILES : fewest_tiles(k, i); }

/* Tokens that a problem has: fewer where rows are very long. */
static uint32_t most_tokens(uint32_t k) { return k <= 8192 ? QUANT_TOKENS : 9; }

/* Calls fn for every product and form of activations of the type that is to be looked at; stops where it says false. */
struct variant {
    struct check *c;
    const struct quant_problem *p;
    format_product product;
    uint32_t isa, form;
    char name[QUANT_TEXT];
};
static bool each_variant(struct check *c, const struct quant_problem *p, bool (*fn)(const struct variant *v))
{
    for (uint32_t isa = 0; isa < FORMAT_ISAS; isa++)
        for (uint32_t form = 0; form < quant_forms(p->t); form++) {
            struct variant v = { c, p, quant_product_of(c, p->t, isa), isa, form, "" };
            if (!v.product) continue;
            (void)quant_product_name(p->t, isa, form, v.name);
            if (!fn(&v)) return false;
        }
    return true;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Of rows with weights from 2^90 on, or that are no numbers, nothing is asked. */
static bool within(const struct variant *v, uint32_t tiles, uint32_t n, const float *y, uint64_t y_stride)
{
    const struct quant_problem *p = v->p;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t r = 0; r < tiles * WK_TILE_ROWS; r++) {
            const double got = (double)y[t * y_stride + r], sum = p->sum[v->form][t * QUANT_ROWS + r];
            if (!(p->most[r] < 0x1p90) || fabs(got - sum) <= quant_bound(p, v->form, t, r)) continue;
            check_fail(v->c,
                       "%s, k %u, %u rows of activations, %u tiles: result %u of row %u is %.9g, expected %.9g within "
                       "%.3g: the sum in F64 of dequantize's values times the activations",
                       v->name, p->k, n, tiles, r, t, got, sum, quant_bound(p, v->form, t, r));
            return false;
        }
    return true;
}

static bool sums_of(const struct variant *v)
{
    const struct quant_problem *p = v->p;
    const uint64_t stride = QUANT_ROWS + 3;
    float *y = quant_memory(v->c, p->tokens * stride * sizeof *y);
    for (uint32_t i = 0; i < COUNTS && tokens[i] <= p->tokens; i++)
        for (uint32_t tiles = fewest_tiles(p->k, i); tiles <= most_tiles(p->k, i); tiles++)
            if (!quant_run(v->c, p, v->name, v->product, v->form, 0, tiles, 0, tokens[i], y, stride) ||
                !within(v, tiles, tokens[i], y, stride))
                return false;
    return true;
}

/* Rows with a scale at the edge of its range. */
static bool edges_of(const struct variant *v)
{
    enum { N = 3 };
    float *y = quant_memory(v->c, N * QUANT_ROWS * sizeof *y);
    return quant_run(v->c, v->p, v->name, v->product, v->form, 0, QUANT_TILES, 0, N, y, QUANT_ROWS) &&
           within(v, QUANT_TILES, N, y, QUANT_ROWS);
}

/* Edge blocks that a check looks at. */
static uint32_t edges_looked_at(const struct wk_type_cpu *t)
{
    return quant_length(t, 1) > 8192 ? 200 : quant_edges(t);
}

static void check_product(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0xbf58476d1ce4e5b9u };
    for (uint32_t first = 0, rows = 1; first < edges_looked_at(t); first += rows) {
        struct quant_problem p;
        if (!quant_problem_make(c, &p, t, quant_length(t, 1), 3, first, &d)) return;
        quant_problem_sums(&p, c);
        if (!each_variant(c, &p, edges_of)) return;
        rows = p.rows;
    }
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++) {
        struct quant_problem p;
        const uint32_t k = quant_length(t, i);
        if (!quant_problem_make(c, &p, t, k, most_tokens(k), QUANT_PLAIN, &d)) return;
        quant_problem_sums(&p, c);
        if (!each_variant(c, &p, sums_of)) return;
        if (!quant_problem_make(c, &p, t, k, 9, QUANT_EXTREME, &d)) continue; /* it does not encode such values */
        quant_problem_sums(&p, c);
        if (!each_variant(c, &p, sums_of)) return;
    }
}

void quant_check_product(struct check *c) { quant_each_type(c, check_product); }

/* ---- a result and what is beside it -------------------------------------------------------------------- */

static bool same_bits(const struct variant *v, const char *how, const float *y, uint64_t y_stride, const float *whole,
                      uint32_t tile, uint32_t tiles, uint32_t token, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t r = 0; r < tiles * WK_TILE_ROWS; r++) {
            const float *a = y + t * y_stride + r,
                        *b = whole + (uint64_t)(token + t) * QUANT_ROWS + tile * WK_TILE_ROWS + r;
            if (memcmp(a, b, sizeof *a) == 0) continue;
            check_fail(v->c,
                       "%s, k %u: result %u of row %u is %.9g %s, and %.9g in the call of all rows and tiles; expected "
                       "the same bits: a result depends on its own tile and its own row of activations alone",
                       v->name, v->p->k, tile * WK_TILE_ROWS + r, token + t, (double)*a, how, (double)*b);
            return false;
        }
    return true;
}

static bool part_is_same(const struct variant *v, float *y, const float *whole, uint32_t tile, uint32_t tiles,
                         uint32_t token, uint32_t n)
{
    char how[96];
    const uint64_t stride = tiles * WK_TILE_ROWS + 1;
    (void)snprintf(how, sizeof how, "in a call of %u rows from %u on, %u tiles from %u on", n, token, tiles, tile);
    return quant_run(v->c, v->p, v->name, v->product, v->form, tile, tiles, token, n, y, stride) &&
           same_bits(v, how, y, stride, whole, tile, tiles, token, n);
}

/* All rows of activations but one are something else. */
static bool neighbours_change_nothing(const struct variant *v, float *y, const float *whole)
{
    const struct quant_problem *p = v->p;
    struct quant_problem other = *p;
    struct check_draw d = { 77 };
    const uint64_t bytes = p->tokens * p->stride[v->form];
    const uint32_t own = p->tokens / 2;
    other.x[v->form] = (uint8_t *)quant_memory(v->c, bytes + 8) + 8;
    for (uint32_t t = 0; t < p->tokens; t++) {
        uint8_t *x = other.x[v->form] + t * p->stride[v->form];
        if (t == own) {
            memcpy(x, p->x[v->form] + t * p->stride[v->form], p->stride[v->form]);
            continue;
        }
        float *floats = quant_memory(v->c, p->k * sizeof *floats);
        for (uint32_t i = 0; i < p->k; i++) floats[i] = t % 2 ? quant_gauss(&d) * 1e4f : (float)NAN;
        if (v->form)
            wk_quantize_act_q8(floats, p->k, (struct wk_activation_q8 *)(void *)x);
        else
            memcpy(x, floats, p->k * sizeof *floats);
    }
    return quant_run(v->c, &other, v->name, v->product, v->form, 0, QUANT_TILES, 0, p->tokens, y, QUANT_ROWS) &&
           same_bits(v, "with other rows beside it", y + (uint64_t)own * QUANT_ROWS, QUANT_ROWS, whole, 0, QUANT_TILES,
                     own, 1);
}

static bool splits_of(const struct variant *v)
{
    const struct quant_problem *p = v->p;
    float *whole = quant_memory(v->c, (uint64_t)p->tokens * QUANT_ROWS * sizeof *whole),
          *y = quant_memory(v->c, (uint64_t)p->tokens * (QUANT_ROWS + 1) * sizeof *y);
    if (!quant_run(v->c, p, v->name, v->product, v->form, 0, QUANT_TILES, 0, p->tokens, whole, QUANT_ROWS))
        return false;
    for (uint32_t i = 0; i < COUNTS && tokens[i] <= p->tokens; i++)
        for (uint32_t tiles = fewest_tiles(p->k, i); tiles <= most_tiles(p->k, i); tiles++) {
            const uint32_t first = p->tokens - tokens[i], tile = i % 2 ? 0 : QUANT_TILES - tiles;
            if (!part_is_same(v, y, whole, tile, tiles, 0, tokens[i]) ||
                !part_is_same(v, y, whole, QUANT_TILES - tiles, tiles, first * 5 / 7, tokens[i]))
                return false;
        }
    return neighbours_change_nothing(v, y, whole);
}

static void check_row(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0x94d049bb133111ebu };
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++) {
        struct quant_problem p;
        const uint32_t k = quant_length(t, i);
        if (!quant_problem_make(c, &p, t, k, most_tokens(k), QUANT_PLAIN, &d) || !each_variant(c, &p, splits_of))
            return;
    }
}

void quant_check_row(struct check *c) { quant_each_type(c, check_row); }

/* ---- numbers that are none ----------------------------------------------------------------------------- */

/* An activation that is not finite: its own results are not, all others are. */
static bool poisons_its_own(const struct variant *v)
{
    enum { N = 5, POISONED = 2 };
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    const struct quant_problem *p = v->p;
    struct quant_problem other = *p;
    float *y = quant_memory(v->c, N * QUANT_ROWS * sizeof *y), *x = quant_memory(v->c, p->k * sizeof *x);
    other.x[v->form] = (uint8_t *)quant_memory(v->c, N * p->stride[v->form] + 8) + 8;
    for (uint32_t i = 0; i < 9; i++) {
        const uint32_t at = i / 3 == 0 ? 0 : i / 3 == 1 ? p->k / 2 : p->k - 1;
        uint8_t *row = other.x[v->form] + POISONED * p->stride[v->form];
        memcpy(other.x[v->form], p->x[v->form], N * p->stride[v->form]);
        memcpy(x, p->x[0] + POISONED * p->stride[0], p->k * sizeof *x);
        x[at] = bad[i % 3];
        if (v->form)
            wk_quantize_act_q8(x, p->k, (struct wk_activation_q8 *)(void *)row);
        else
            memcpy(row, x, p->k * sizeof *x);
        if (!quant_run(v->c, &other, v->name, v->product, v->form, 0, QUANT_TILES, 0, N, y, QUANT_ROWS)) return false;
        for (uint32_t j = 0; j < N * QUANT_ROWS; j++) {
            const bool own = j / QUANT_ROWS == POISONED;
            if (!isfinite(y[j]) == own || (own && p->most[j % QUANT_ROWS] == 0)) continue;
            check_fail(v->c,
                       "%s, k %u: activation %u of row %d is %g, and result %u of row %u is %g; expected results that "
                       "are not finite of that row alone",
                       v->name, p->k, at, POISONED, (double)bad[i % 3], j % QUANT_ROWS, j / QUANT_ROWS, (double)y[j]);
            return false;
        }
    }
    return true;
}

/* Weights that are not finite: so are the results of their rows. */
static bool edges_reach(const struct variant *v)
{
    enum { N = 3 };
    const struct quant_problem *p = v->p;
    float *y = quant_memory(v->c, N * QUANT_ROWS * sizeof *y);
    if (!quant_run(v->c, p, v->name, v->product, v->form, 0, QUANT_TILES, 0, N, y, QUANT_ROWS)) return false;
    for (uint32_t j = 0; j < N * QUANT_ROWS; j++) {
        if (isfinite(p->most[j % QUANT_ROWS]) || !isfinite(y[j])) continue;
        check_fail(v->c,
                   "%s, k %u: a weight of row %u of the matrix is not finite, and its result of row %u is %g; expected "
                   "one that is not finite: damage must not look like an answer",
                   v->name, p->k, j % QUANT_ROWS, j / QUANT_ROWS, (double)y[j]);
        return false;
    }
    return true;
}

static void check_finite(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0xd6e8feb86659fd93u };
    struct quant_problem p;
    const uint32_t k = quant_length(t, 1);
    if (!quant_problem_make(c, &p, t, k, 5, QUANT_PLAIN, &d) || !each_variant(c, &p, poisons_its_own)) return;
    for (uint32_t first = 0; first < edges_looked_at(t); first += p.rows)
        if (!quant_problem_make(c, &p, t, k, 3, first, &d) || !each_variant(c, &p, edges_reach)) return;
}

void quant_check_finite(struct check *c) { quant_each_type(c, check_finite); }

/* ---- again --------------------------------------------------------------------------------------------- */

struct again {
    const struct variant *v;
    const float *first;
    float *y;
    bool same;
};

static void run_again(void *user)
{
    struct again *a = user;
    const struct variant *v = a->v;
    a->same = quant_run(v->c, v->p, v->name, v->product, v->form, 0, QUANT_TILES, 0, v->p->tokens, a->y, QUANT_ROWS) &&
              same_bits(v, "when it is computed again", a->y, QUANT_ROWS, a->first, 0, QUANT_TILES, 0, v->p->tokens);
}

/* Whatever scratch begins with, after other calls, and on a thread with a small stack. */
static bool repeats(const struct variant *v)
{
    static const uint8_t fills[] = { 0xff, 0x00, 0x7f, 0xa5 };
    const struct quant_problem *p = v->p;
    float *first = quant_memory(v->c, (uint64_t)p->tokens * QUANT_ROWS * sizeof *first);
    struct again a = { v, first, quant_memory(v->c, (uint64_t)p->tokens * QUANT_ROWS * sizeof *first), true };
    if (!quant_run(v->c, p, v->name, v->product, v->form, 0, QUANT_TILES, 0, p->tokens, first, QUANT_ROWS))
        return false;
    for (uint32_t i = 0; i < 2 * sizeof fills && a.same; i++) {
        memset(p->scratch, fills[i / 2], p->scratch_bytes);
        if (i % 2)
            quant_on_thread(v->c, run_again, &a);
        else
            run_again(&a);
        const uint32_t other = i % p->tokens; /* another call in between */
        if (a.same && !quant_run(v->c, p, v->name, v->product, v->form, i % QUANT_TILES, 1, other, 1, a.y, QUANT_ROWS))
            return false;
    }
    return a.same;
}

static void check_repeat(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0xff51afd7ed558ccdu };
    for (uint32_t i = 1; i < QUANT_LENGTHS; i += 2) {
        struct quant_problem p;
        if (!quant_problem_make(c, &p, t, quant_length(t, i), 9, QUANT_PLAIN, &d) || !each_variant(c, &p, repeats))
            return;
    }
}

void quant_check_repeat(struct check *c) { quant_each_type(c, check_repeat); }
