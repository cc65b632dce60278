/* product.c: products of weight tiles with rows of activations, with what comes before (norm, conversion) and after
 * (bias, gated activation, maps, residual) in the same stage.
 *
 * Few rows (decode): memory-bound. Every thread prepares all activations for itself, which is cheaper than a barrier,
 * and reads its own run of tiles, the same ones every time, in pieces that others may take when they are done with
 * theirs. Many rows: rows are prepared once, by shares; then tasks of some tiles x a chunk of rows whose activations
 * fit the L2 cache are taken one by one. A result's bits come from its own tile and its own row, so neither split
 * shows. */
#include "device/cpu/cpu.h"

#include <float.h>
#include <string.h>

#include "plugin/format.h"
#include "plugin/call.h"

/* Rows of x in the forms that the matrices want, `stride` bytes apart; [1] F32, [0] Q8. */
struct prepared {
    const uint8_t *rows[2];
    uint64_t stride[2];
};
enum { FORM_Q8 = 0, FORM_F32 = 1 };

static uint32_t form_of(const struct matrix *m) { return m->act == WK_ACTIVATION_Q8 ? FORM_Q8 : FORM_F32; }

uint64_t product_row_bytes(uint32_t k, uint32_t act)
{
    if (act == WK_ACTIVATION_Q8)
        return (uint64_t)((k + WK_ACTIVATION_BLOCK - 1) / WK_ACTIVATION_BLOCK) * sizeof(struct wk_activation_q8);
    return (uint64_t)((k + 15) & ~15u) * sizeof(float);
}

/* ---- before: norm and conversion ----------------------------------------------------------------------- */

/* A block with a value that is not finite has a scale that is not. */
static bool finite_blocks(const struct wk_activation_q8 *b, uint32_t k)
{
    float sum = 0;
    for (uint32_t i = 0; i < (k + WK_ACTIVATION_BLOCK - 1) / WK_ACTIVATION_BLOCK; i++) sum += b[i].d - b[i].d;
    return sum == 0.0f;
}

/* Row `i` of x, counted over slots. */
static void prepare_row(struct executor *x, const struct stage *s, struct lane *l, uint32_t i, uint8_t *q8, float *f32)
{
    const struct product *p = &s->product;
    const float *v = operand_row(x, &p->x, i / p->x.slots) + (uint64_t)(i % p->x.slots) * p->k;
    if (p->norm) {
        float *y = f32 ? f32 : l->row;
        norm_row(x, p->norm, p->norm_w, p->norm_b, y, v, p->k);
        v = y;
    } else if (f32)
        memcpy(f32, v, p->k * sizeof *f32);
    bool good;
    if (q8) {
        x->kernels->quantize((struct wk_activation_q8 *)q8, v, p->k);
        good = finite_blocks((const struct wk_activation_q8 *)q8, p->k);
    } else
        good = x->kernels->bounded(v, p->k, FLT_MAX);
    if (!good) fail_row(x, s->rows, i / p->x.slots);
}

static struct prepared prepare(struct executor *x, const struct stage *s, struct lane *l, uint32_t n, bool few)
{
    const struct product *p = &s->product;
    uint8_t *q8 = few ? l->q8 : x->shared_q8, *f32 = (uint8_t *)(few ? l->f32 : x->shared_f32);
    struct prepared a = { { q8, f32 },
                          { product_row_bytes(p->k, WK_ACTIVATION_Q8), product_row_bytes(p->k, WK_ACTIVATION_F32) } };
    uint32_t from = few ? 0 : share(x, n, l->index), to = few ? n : share(x, n, l->index + 1);
    for (uint32_t i = from; i < to; i++)
        prepare_row(x, s, l, i, p->acts & WK_ACTIVATION_Q8 ? q8 + i * a.stride[FORM_Q8] : NULL,
                    p->acts & WK_ACTIVATION_F32 ? (float *)(void *)(f32 + i * a.stride[FORM_F32]) : NULL);
    if (!few) pool_barrier(x->pool);
    return a;
}

/* ---- a block: some tiles times some rows, and after ---------------------------------------------------- */

struct block {
    uint32_t seg, slab, tile, n_tiles;
    const uint32_t *items; /* results, or NULL: [first, first + n) */
    uint32_t first, n;
};

static uint32_t block_item(const struct block *b, uint32_t t) { return b->items ? b->items[t] : b->first + t; }

/* The row of x that result `item` is computed from. */
static const uint8_t *item_row(const struct product *p, const struct prepared *a, uint32_t form, uint32_t item)
{
    return a->rows[form] + (p->x.slots == p->slots ? item : item / p->slots) * a->stride[form];
}

static void multiply(struct executor *x, const struct product *p, struct lane *l, const struct prepared *a,
                     const struct block *b, const struct product_segment *seg, float *y, uint64_t y_stride)
{
    const struct matrix *m = seg->m;
    const uint32_t form = form_of(m);
    const uint8_t *rows = item_row(p, a, form, block_item(b, 0));
    if (b->items && b->n > 1) {
        for (uint32_t t = 0; t < b->n; t++)
            memcpy(l->gather + t * a->stride[form], item_row(p, a, form, b->items[t]), a->stride[form]);
        rows = l->gather;
    }
    const void *tiles = weights_tiles(x, m, b->slab, b->tile, b->n_tiles);
    struct plugin_call call;
    PLUGIN_CALL(&call, m->product, "product");
    m->product(&(struct wk_cpu_product){ .struct_size = sizeof(struct wk_cpu_product),
                                         .activation = m->act,
                                         .tensor = &format_plain,
                                         .k = m->k,
                                         .n_rows = b->n,
                                         .n_tiles = b->n_tiles,
                                         .x_stride = a->stride[form],
                                         .y_stride = y_stride,
                                         .tiles = tiles,
                                         .x = rows,
                                         .y = y,
                                         .scratch = l->scratch });
    plugin_call_end(&call);
}

/* Columns [c, c + n) of one result, from y; for a gated pair also from u. Each step works in place, the last one into
 * the result. */
static void finish_row(struct executor *x, const struct product *p, const struct block *b, uint32_t item, uint32_t c,
                       uint32_t n, float *y, float *u, float *out)
{
    const struct cpu_kernels *k = x->kernels;
    const struct product_segment *seg = &p->seg[b->seg];
    uint32_t steps = p->n_map + (seg->bias ? 1u : 0u) + (u ? 1u : 0u) + (p->residual.base ? 1u : 0u);
    if (!steps) memcpy(out, y, n * sizeof *out);
    if (seg->bias) k->add(--steps ? y : out, y, seg->bias + (uint64_t)b->slab * seg->m->n + c, n);
    if (u) {
        if (seg[1].bias) k->add(u, u, seg[1].bias + (uint64_t)b->slab * seg->m->n + c, n);
        k->glu(--steps ? y : out, y, u, n, p->glu->u.glu.fn, p->glu->u.glu.alpha, p->glu->u.glu.limit);
    }
    for (uint32_t i = 0; i < p->n_map; i++)
        k->map(--steps ? y : out, y, n, p->map[i]->u.unary.fn, p->map[i]->u.unary.p);
    if (p->residual.base)
        k->add(out, operand_row(x, &p->residual, item / p->slots) + (uint64_t)(item % p->slots) * seg->m->n + c, y, n);
}

static void block_run(struct executor *x, const struct stage *s, struct lane *l, const struct prepared *a,
                      const struct block *b)
{
    const struct product *p = &s->product;
    const struct product_segment *seg = &p->seg[b->seg];
    const uint32_t c = b->tile * WK_TILE_ROWS, width = b->n_tiles * WK_TILE_ROWS,
                   n = seg->m->n - c < width ? seg->m->n - c : width;
    float *out = (seg->out ? seg->out : x->step->logits) + c;
    /* Whole tiles with nothing to do afterwards go straight to their place. */
    const bool direct = n == width && !b->items && !seg->bias && !p->glu_pair && !p->n_map && !p->residual.base;
    if (direct)
        multiply(x, p, l, a, b, seg, out + (uint64_t)b->first * seg->m->n, seg->m->n);
    else {
        multiply(x, p, l, a, b, seg, l->y[0], width);
        if (p->glu_pair) multiply(x, p, l, a, b, seg + 1, l->y[1], width);
    }
    for (uint32_t t = 0; t < b->n; t++) {
        const uint32_t item = block_item(b, t);
        float *to = out + (uint64_t)item * seg->m->n;
        if (!direct)
            finish_row(x, p, b, item, c, n, l->y[0] + (uint64_t)t * width,
                       p->glu_pair ? l->y[1] + (uint64_t)t * width : NULL, to);
        if (p->logits && !x->kernels->bounded(to, n, FLT_MAX)) fail_row(x, s->rows, item);
    }
}

/* ---- items by expert ----------------------------------------------------------------------------------- */

/* Fills l->order with the results of each expert, in order, l->start [slabs + 1], and l->used with the experts that
 * have any; returns how many. Every thread does it for itself. */
static uint32_t sort_by_expert(struct executor *x, const struct product *p, struct lane *l, uint32_t rows)
{
    const uint32_t experts = p->seg[0].m->slabs;
    memset(l->start, 0, (experts + 1) * sizeof *l->start);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t *ids =
                p->route.base ? (const uint32_t *)(const void *)(operand_row(x, &p->route, r) + p->slots) : NULL;
            for (uint32_t s = 0; s < p->slots; s++) {
                const uint32_t id = ids ? ids[s] : s;
                if (pass == 0)
                    l->start[id + 1]++;
                else
                    l->order[l->start[id]++] = r * p->slots + s;
            }
        }
        if (pass == 0)
            for (uint32_t e = 0; e < experts; e++) l->start[e + 1] += l->start[e];
    }
    /* The second pass moved each start to its end, which is the next one's start. */
    memmove(l->start + 1, l->start, experts * sizeof *l->start);
    l->start[0] = 0;
    uint32_t used = 0;
    for (uint32_t e = 0; e < experts; e++)
        if (l->start[e + 1] > l->start[e]) l->used[used++] = e;
    return used;
}

/* ---- few rows ------------------------------------------------------------------------------------------ */

/* Tiles [from, to), counted over the segments (a pair's tiles together), for the given rows of one slab. */
static void few_tiles(struct executor *x, const struct stage *s, struct lane *l, const struct prepared *a,
                      struct block b, uint32_t from, uint32_t to)
{
    const struct product *p = &s->product;
    for (uint32_t g = 0, base = 0; g < p->n_seg && base < to; g += p->glu_pair ? 2 : 1) {
        const uint32_t tiles = p->seg[g].m->tiles, end = to - base < tiles ? to - base : tiles;
        b.seg = g;
        b.tile = from > base ? from - base : 0;
        if (b.tile < end) {
            b.n_tiles = end - b.tile;
            block_run(x, s, l, a, &b);
        }
        base += tiles;
    }
}

/* Piece i of the run that thread `owner` owns: for each used expert in turn, p->piece tiles. False: there is none. */
static bool few_piece(struct executor *x, const struct stage *s, struct lane *l, const struct prepared *a,
                      uint32_t rows, uint32_t used, uint32_t owner, uint32_t i)
{
    const struct product *p = &s->product;
    const uint32_t from = p->cut[owner], to = p->cut[owner + 1], pieces = (to - from + p->piece - 1) / p->piece;
    if (i >= pieces * used) return false;
    const uint32_t at = from + i % pieces * p->piece, end = to - at < p->piece ? to : at + p->piece;
    if (p->experts) {
        const uint32_t e = l->used[i / pieces];
        few_tiles(x, s, l, a,
                  (struct block){ .slab = e, .items = l->order + l->start[e], .n = l->start[e + 1] - l->start[e] }, at,
                  end);
    } else
        few_tiles(x, s, l, a, (struct block){ .n = rows * p->slots }, at, end);
    return true;
}

/* First its own run in order, then pieces of the others': memory is never equally fast for all, and a barrier waits for
 * the last. */
static void few_run(struct executor *x, const struct stage *s, struct lane *l, const struct prepared *a, uint32_t rows)
{
    const uint32_t parity = l->phase & 1;
    uint32_t used = 1;
    if (s->product.experts) used = sort_by_expert(x, &s->product, l, rows);
    for (uint32_t t = 0; t < x->o.threads; t++) {
        const uint32_t owner = (l->index + t) % x->o.threads;
        _Atomic uint32_t *next = &x->lanes[owner].next[parity];
        while (few_piece(x, s, l, a, rows, used, owner, atomic_fetch_add_explicit(next, 1, memory_order_relaxed)));
    }
}

/* ---- many rows: tasks of MANY_TILES tiles x a chunk ---------------------------------------------------- */

static uint32_t tile_tasks(const struct product *p)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < p->n_seg; g += p->glu_pair ? 2 : 1)
        n += (p->seg[g].m->tiles + MANY_TILES - 1) / MANY_TILES;
    return n;
}

/* Task `i` of tile_tasks. */
static struct block tile_task(const struct product *p, uint32_t i)
{
    uint32_t g = 0;
    for (;; g += p->glu_pair ? 2 : 1) {
        const uint32_t n = (p->seg[g].m->tiles + MANY_TILES - 1) / MANY_TILES;
        if (i < n) break;
        i -= n;
    }
    const uint32_t tile = i * MANY_TILES, left = p->seg[g].m->tiles - tile;
    return (struct block){ .seg = g, .tile = tile, .n_tiles = left < MANY_TILES ? left : MANY_TILES };
}

static void many_dense(struct executor *x, const struct stage *s, struct lane *l, const struct prepared *a, uint32_t n)
{
    const struct product *p = &s->product;
    const uint32_t per_chunk = tile_tasks(p), chunks = (n + p->chunk - 1) / p->chunk;
    for (uint32_t i; (i = phase_take(x, l)) < per_chunk * chunks;) {
        struct block b = tile_task(p, i % per_chunk);
        b.first = i / per_chunk * p->chunk;
        b.n = n - b.first < p->chunk ? n - b.first : p->chunk;
        block_run(x, s, l, a, &b);
    }
}

static void many_experts(struct executor *x, const struct stage *s, struct lane *l, const struct prepared *a,
                         uint32_t rows)
{
    const struct product *p = &s->product;
    const uint32_t per_expert = tile_tasks(p);
    const uint32_t used = sort_by_expert(x, p, l, rows);
    for (uint32_t i; (i = phase_take(x, l)) < per_expert * used;) {
        struct block b = tile_task(p, i % per_expert);
        b.slab = l->used[i / per_expert];
        for (uint32_t at = l->start[b.slab], end = l->start[b.slab + 1]; at < end; at += b.n) {
            b.items = l->order + at;
            b.n = end - at < p->chunk ? end - at : p->chunk;
            block_run(x, s, l, a, &b);
        }
    }
}

/* ---- stages -------------------------------------------------------------------------------------------- */

void product_run(struct executor *x, const struct stage *s, struct lane *l)
{
    const struct product *p = &s->product;
    const uint32_t rows = stage_rows(x, s->rows), n = rows * p->x.slots;
    const bool few = n <= FEW_ROWS;
    const struct prepared a = prepare(x, s, l, n, few);
    phase_begin(x, l);
    if (few)
        few_run(x, s, l, &a, rows);
    else if (p->experts)
        many_experts(x, s, l, &a, rows);
    else
        many_dense(x, s, l, &a, n);
    phase_end(l);
}

void route_run(struct executor *x, const struct stage *s, struct lane *l)
{
    product_run(x, s, l);
    pool_barrier(x->pool);
    const uint32_t rows = stage_rows(x, s->rows);
    for (uint32_t i = share(x, rows, l->index); i < share(x, rows, l->index + 1); i++) rows_one(x, s, l, i);
}
