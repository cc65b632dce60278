/* quant_memory.c: a format's functions with guarded memory: at either end of it, aligned as promised and no more,
 * inputs that may not be written; and with a plugin whose data may not be written and whose calls of the C library are
 * seen. */
#include <stdio.h>
#include <string.h>

#include <worker/cpu/act_q8.h>

#include "check/quant.h"
#include "check/watch.h"

/* What this room itself could not do: the check ends without it. */
static void need(struct check *c, wk_status status, const char *text)
{
    if (status == WK_OK) return;
    check_skip(c, "%s", text);
    check_leave(c);
}

static struct guarded *make(struct check *c, const char *name, uint64_t bytes, size_t align, enum guard_place place)
{
    char text[CHECK_TEXT];
    struct guarded *g = quant_memory(c, sizeof *g);
    need(c, guard_make(g, name, bytes, align, place, 0xff, &(struct wk_err){ text, sizeof text }), text);
    return g;
}

/* Memory with these bytes, which from now on may only be read. */
static struct guarded *input(struct check *c, const char *name, const void *bytes, uint64_t n, size_t align,
                             enum guard_place place)
{
    char text[CHECK_TEXT];
    struct guarded *g = make(c, name, n, align, place);
    memcpy(g->p, bytes, n);
    need(c, guard_read_only(g, true, &(struct wk_err){ text, sizeof text }), text);
    return g;
}

static void drop(struct guarded *g)
{
    if (g) guard_free(g);
}

/* Nothing beside it was written. */
static bool intact(struct check *c, const struct guarded *g, const char *what)
{
    char text[CHECK_TEXT];
    if (!g || guard_intact(g, what, &(struct wk_err){ text, sizeof text }) == WK_OK) return true;
    check_fail(c, "%s", text);
    return false;
}

static uint8_t *random_row(struct check *c, const struct wk_type_cpu *t, uint32_t k, struct check_draw *d)
{
    uint8_t *row = quant_memory(c, quant_row_bytes(t, k));
    quant_bytes(d, row, quant_row_bytes(t, k));
    return row;
}

/* ---- dequantize and quantize --------------------------------------------------------------------------- */

static bool dequantize_at(struct check *c, const struct wk_type_cpu *t, uint32_t k, enum guard_place place,
                          struct check_draw *d)
{
    char what[QUANT_TEXT];
    struct guarded *blocks = input(c, "the blocks", random_row(c, t, k, d), quant_row_bytes(t, k), 1, place),
                   *y = make(c, "y", (uint64_t)k * sizeof(float), sizeof(float), place);
    (void)snprintf(what, sizeof what, "type %s: dequantize of %u values in memory that %s", t->name, k,
                   guard_place_name(place));
    const bool good = quant_dequantize(c, what, t, (float *)(void *)y->p, blocks->p, k) && intact(c, blocks, what) &&
                      intact(c, y, what);
    drop(blocks);
    drop(y);
    return good;
}

static void check_values(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0xa0761d6478bd642fu };
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++)
        for (enum guard_place place = 0; place < GUARD_PLACES; place++)
            if (!dequantize_at(c, t, quant_length(t, i), place, &d)) return;
}

void memory_check_values(struct check *c) { quant_each_type(c, check_values); }

static bool quantize_at(struct check *c, const struct wk_type_cpu *t, uint32_t k, enum guard_place place, bool weighed,
                        struct check_draw *d)
{
    enum { ROWS = 2 };
    char what[QUANT_TEXT], text[QUANT_TEXT];
    wk_status status = WK_OK;
    float *values = quant_memory(c, (uint64_t)ROWS * k * sizeof *values),
          *weights = quant_memory(c, k * sizeof *weights);
    for (uint32_t i = 0; i < ROWS * k; i++) values[i] = quant_gauss(d) * 0.25f;
    for (uint32_t i = 0; i < k; i++) weights[i] = 0.01f * (float)check_draw(d, 100);
    struct guarded *x = input(c, "x", values, (uint64_t)ROWS * k * sizeof *values, sizeof *values, place),
                   *importance =
                       weighed ? input(c, "importance", weights, k * sizeof *weights, sizeof *weights, place) : NULL,
                   *blocks = make(c, "the blocks", ROWS * quant_row_bytes(t, k), 1, place);
    (void)snprintf(what, sizeof what, "type %s: quantize of 2 rows of %u values%s in memory that %s", t->name, k,
                   weighed ? " with importance" : "", guard_place_name(place));
    const struct wk_quantize q = { .row_length = k,
                                   .n = (uint64_t)ROWS * k,
                                   .x = (const float *)(const void *)x->p,
                                   .importance = weighed ? (const float *)(const void *)importance->p : NULL,
                                   .blocks = blocks->p };
    const bool good = quant_quantize(c, what, t, q, &status, text, sizeof text) && intact(c, x, what) &&
                      intact(c, importance, what) && intact(c, blocks, what);
    drop(x);
    drop(importance);
    drop(blocks);
    return good;
}

static void check_encode(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0xe7037ed1a0b428dbu };
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++)
        for (enum guard_place place = 0; place < GUARD_PLACES; place++)
            for (uint32_t weighed = 0; weighed < 2; weighed++)
                if (!quantize_at(c, t, quant_length(t, i), place, weighed, &d)) return;
}

void memory_check_encode(struct check *c) { quant_each_type(c, check_encode); }

/* ---- pack and unpack
 * -------------------------------------------------------------------------------------------------- */

static bool tiles_at(struct check *c, const struct wk_type_cpu *t, uint32_t k, enum guard_place place,
                     struct check_draw *d)
{
    char what[2][QUANT_TEXT], text[CHECK_TEXT];
    const struct wk_err err = { text, sizeof text };
    const uint64_t bytes = quant_row_bytes(t, k);
    struct guarded *in[WK_TILE_ROWS], *out[WK_TILE_ROWS], *tile = make(c, "the tile", t->tile_bytes(k), 64, place);
    const void *rows[WK_TILE_ROWS];
    void *to[WK_TILE_ROWS];
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        in[r] = input(c, "a row", random_row(c, t, k, d), bytes, 1, place);
        out[r] = make(c, "a row", bytes, 1, place);
        rows[r] = in[r]->p;
        to[r] = out[r]->p;
    }
    for (uint32_t i = 0; i < 2; i++)
        (void)snprintf(what[i], QUANT_TEXT, "type %s: %s of %u values in memory that %s", t->name,
                       i ? "unpack" : "pack", k, guard_place_name(place));
    bool good = quant_pack(c, what[0], t, tile->p, rows, k) && intact(c, tile, what[0]);
    need(c, guard_read_only(tile, true, &err), text);
    good = good && quant_unpack(c, what[1], t, to, tile->p, k) && intact(c, tile, what[1]);
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        good = good && intact(c, in[r], what[0]) && intact(c, out[r], what[1]);
        drop(in[r]);
        drop(out[r]);
    }
    drop(tile);
    return good;
}

static void check_tiles(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0x8ebc6af09c88c6e3u };
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++)
        for (enum guard_place place = 0; place < GUARD_PLACES; place++)
            if (!tiles_at(c, t, quant_length(t, i), place, &d)) return;
}

void memory_check_tiles(struct check *c) { quant_each_type(c, check_tiles); }

/* ---- products
 * ------------------------------------------------------------------------------------------------------------ */

struct shape {
    uint32_t tiles, tokens, form;
    enum guard_place place;
};

/* Rows of activations without room between them, in memory of the form. */
static struct guarded *activations(struct check *c, const struct quant_problem *p, const struct shape *s,
                                   uint64_t *stride)
{
    const uint64_t row =
        s->form ? (uint64_t)(p->k + 31) / 32 * sizeof(struct wk_activation_q8) : (uint64_t)p->k * sizeof(float);
    *stride = (row + 7) / 8 * 8;
    const uint64_t bytes = (s->tokens - 1) * *stride + row;
    uint8_t *x = quant_memory(c, bytes);
    for (uint32_t t = 0; t < s->tokens; t++) memcpy(x + t * *stride, p->x[s->form] + t * p->stride[s->form], row);
    return input(c, "x", x, bytes, 8, s->place);
}

/* Between the rows of results nothing may be written either. */
static bool gaps_are_left(struct check *c, const struct guarded *y, uint64_t stride, const struct shape *s,
                          const char *what)
{
    static const uint8_t fill[4] = { 0xff, 0xff, 0xff, 0xff };
    for (uint32_t t = 0; t + 1 < s->tokens; t++)
        for (uint64_t i = s->tiles * WK_TILE_ROWS; i < stride; i++) {
            if (memcmp(y->p + 4 * (t * stride + i), fill, sizeof fill) == 0) continue;
            check_fail(c, "%s: writes result %u of row %u, of which there are %u: between two rows of y", what,
                       (unsigned)i, t, s->tiles * WK_TILE_ROWS);
            return false;
        }
    return true;
}

static bool product_at(struct check *c, const struct quant_problem *p, uint32_t isa, const struct shape *s)
{
    char what[2 * QUANT_TEXT], name[QUANT_TEXT];
    uint64_t x_stride;
    const uint64_t y_stride = s->tiles * WK_TILE_ROWS + 5;
    struct guarded *x = activations(c, p, s, &x_stride),
                   *tiles = input(c, "the tiles", p->tiles, s->tiles * p->tile_bytes, 64, s->place),
                   *y = make(c, "y", ((s->tokens - 1) * y_stride + s->tiles * WK_TILE_ROWS) * sizeof(float),
                             sizeof(float), s->place),
                   *scratch = make(c, "scratch", p->scratch_bytes, 64, s->place);
    (void)snprintf(what, sizeof what, "%s, k %u, %u rows, %u tiles, in memory that %s",
                   quant_product_name(p->t, isa, s->form, name), p->k, s->tokens, s->tiles, guard_place_name(s->place));
    const bool good = quant_product(c, what, format_product_of(p->t, isa),
                                    (struct wk_cpu_product){ .activation = quant_activation(s->form),
                                                             .k = p->k,
                                                             .n_rows = s->tokens,
                                                             .n_tiles = s->tiles,
                                                             .x_stride = x_stride,
                                                             .y_stride = y_stride,
                                                             .tiles = tiles->p,
                                                             .x = x->p,
                                                             .y = (float *)(void *)y->p,
                                                             .scratch = scratch->p }) &&
                      intact(c, x, what) && intact(c, tiles, what) && intact(c, y, what) && intact(c, scratch, what) &&
                      gaps_are_left(c, y, y_stride, s, what);
    drop(x);
    drop(tiles);
    drop(y);
    drop(scratch);
    return good;
}

static void check_product(struct check *c, const struct wk_type_cpu *t)
{
    static const uint32_t tokens[] = { 1, 2, 7, 16, 33 }, tiles[] = { 1, QUANT_TILES };
    struct check_draw d = { 0x589965cc75374cc3u };
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++) {
        struct quant_problem p;
        if (!quant_problem_make(c, &p, t, quant_length(t, i), 33, QUANT_PLAIN, &d)) return;
        for (uint32_t isa = 0; isa < FORMAT_ISAS; isa++)
            for (uint32_t n = 0; quant_product_of(c, t, isa) && n < 5 * 2 * GUARD_PLACES * quant_forms(t); n++) {
                const struct shape s = { tiles[n % 2], tokens[n / 2 % 5], n / 10 / GUARD_PLACES,
                                         n / 10 % GUARD_PLACES };
                if (!product_at(c, &p, isa, &s)) return;
            }
    }
}

void memory_check_product(struct check *c) { quant_each_type(c, check_product); }

/* ---- state
 * ---------------------------------------------------------------------------------------------------------------- */

/* What the plugin did in the call that has just ended. */
static bool called_nothing(struct check *c, const char *what)
{
    if (!watch_seen()) return true;
    check_fail(c,
               "%s: it calls %s; a format's functions allocate nothing, take no locks and start no threads: memory to "
               "work in is scratch, or the stack",
               what, watch_seen());
    return false;
}

static void freeze(struct check *c, const struct wk_type_cpu *t, bool frozen)
{
    char text[CHECK_TEXT];
    need(c, watch_freeze((const void *)(uintptr_t)t->dequantize, frozen, &(struct wk_err){ text, sizeof text }), text);
}
static void watch_begin(struct check *c, const struct wk_type_cpu *t)
{
    watch_forget();
    freeze(c, t, true);
}
static bool watch_end(struct check *c, const char *what, const struct wk_type_cpu *t, bool returned)
{
    freeze(c, t, false);
    return returned && called_nothing(c, what);
}
/* A call that is watched; `returned`: the call itself, false if it ended with a fault. */
#define WATCHED(c, what, t, returned) (watch_begin(c, t), watch_end(c, what, t, returned))

static bool values_keep_nothing(struct check *c, const struct wk_type_cpu *t, uint32_t k, struct check_draw *d)
{
    char what[QUANT_TEXT], text[QUANT_TEXT];
    wk_status status;
    const uint64_t bytes = quant_row_bytes(t, k);
    float *x = quant_memory(c, k * sizeof *x), *y = quant_memory(c, k * sizeof *y);
    uint8_t *blocks = quant_memory(c, bytes);
    for (uint32_t i = 0; i < k; i++) x[i] = quant_gauss(d);
    const struct wk_quantize q = { .row_length = k, .n = k, .x = x, .importance = NULL, .blocks = blocks };
    (void)snprintf(what, sizeof what, "type %s: quantize", t->name);
    if (!WATCHED(c, what, t, quant_quantize(c, what, t, q, &status, text, sizeof text))) return false;
    (void)snprintf(what, sizeof what, "type %s: dequantize", t->name);
    return WATCHED(c, what, t, quant_dequantize(c, what, t, y, blocks, k));
}

static bool tiles_keep_nothing(struct check *c, const struct wk_type_cpu *t, uint32_t k, struct check_draw *d)
{
    char what[QUANT_TEXT];
    const void *rows[WK_TILE_ROWS];
    void *to[WK_TILE_ROWS], *tile = quant_memory(c, t->tile_bytes(k));
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) rows[r] = to[r] = random_row(c, t, k, d);
    (void)snprintf(what, sizeof what, "type %s: pack", t->name);
    if (!WATCHED(c, what, t, quant_pack(c, what, t, tile, rows, k))) return false;
    (void)snprintf(what, sizeof what, "type %s: unpack", t->name);
    return WATCHED(c, what, t, quant_unpack(c, what, t, to, tile, k));
}

static bool products_keep_nothing(struct check *c, const struct quant_problem *p)
{
    float *y = quant_memory(c, (uint64_t)p->tokens * QUANT_ROWS * sizeof *y);
    for (uint32_t isa = 0; isa < FORMAT_ISAS; isa++)
        for (uint32_t form = 0; form < quant_forms(p->t); form++) {
            char what[QUANT_TEXT];
            const format_product product = quant_product_of(c, p->t, isa);
            if (!product) continue;
            (void)quant_product_name(p->t, isa, form, what);
            if (!WATCHED(c, what, p->t,
                         quant_run(c, p, what, product, form, 0, QUANT_TILES, 0, p->tokens, y, QUANT_ROWS)))
                return false;
        }
    return true;
}

static void check_state(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0x1d8e4e27c47d124fu };
    struct quant_problem p;
    const uint32_t k = quant_length(t, 1);
    if (!quant_problem_make(c, &p, t, k, 9, QUANT_PLAIN, &d)) return;
    if (values_keep_nothing(c, t, k, &d) && tiles_keep_nothing(c, t, k, &d)) (void)products_keep_nothing(c, &p);
}

void memory_check_state(struct check *c)
{
    char text[CHECK_TEXT];
    const void *there = (const void *)(uintptr_t)c->quant->types[0]->dequantize;
    need(c, watch_install(there, &(struct wk_err){ text, sizeof text }), text);
    quant_each_type(c, check_state);
}
