/* build.c: from a tape's launches to stages with every pointer resolved, and the carving of all memory.
 *
 * One function carves for planning and for opening, so what is announced is what is taken. Sizes are maxima over the
 * launches: the stages of a step follow each other and share one workspace. */
#include "device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "device/kv_pages.h"
#include "plugin/call.h"

void *carve(struct carve *c, uint64_t n, uint64_t size)
{
    uint64_t bytes, end, at = c->used;
    if (!checked_mul_u64(n, size, &bytes) || !checked_round_up_u64(bytes, 64, &bytes) ||
        !checked_add_u64(at, bytes, &end)) {
        c->used = UINT64_MAX;
        return NULL;
    }
    c->used = end;
    return c->base ? c->base + at : NULL;
}

/* ---- what kind of stage -------------------------------------------------------------------------------- */

static bool has_product(const struct tape_launch *l) { return l->kind == LAUNCH_PRODUCT || l->kind == LAUNCH_ROUTE; }

/* Operations that rows_one runs: for a route launch the route alone, which is its last. */
uint32_t build_row_ops(const struct tape_launch *l)
{
    if (l->kind == LAUNCH_PRODUCT || l->kind == LAUNCH_ATTEND || l->kind == LAUNCH_STATE) return 0;
    return l->kind == LAUNCH_ROUTE ? 1 : l->n_ops;
}

/* Logits are made for logits rows and embeddings for sequences, whatever taps ask of the values before them. */
enum tape_rows build_launch_rows(const struct tape_program *p, const struct tape_launch *l)
{
    if (l->kind == LAUNCH_PRODUCT && l->logits) return ROWS_LOGITS;
    if (l->kind == LAUNCH_OUTPUT)
        return p->ops[l->ops[l->n_ops - 1]].u.output.what == WK_OUTPUT_LOGITS ? ROWS_LOGITS : ROWS_POOLED;
    return l->rows;
}

static uint32_t most_rows(const struct executor *x, enum tape_rows rows)
{
    return rows == ROWS_ALL ? x->o.max_rows : rows == ROWS_LOGITS ? x->o.max_logits_rows : x->o.max_sequences;
}

static uint32_t value_floats(const struct tape_program *p, uint32_t v)
{
    const struct tape_value *t = &p->values[v];
    /* A route's row: k weights, k ids. */
    return t->width * t->slots * (p->ops[t->op].kind == WK_OP_ROUTE ? 2 : 1);
}

/* Forms of the activations that the matrices of a launch want. */
static uint32_t launch_acts(const struct executor *x, const struct tape_launch *l)
{
    uint32_t acts = 0;
    for (uint32_t i = 0; i < l->n_seg; i++)
        acts |= weights_matrix(x, l->seg[i].tensor, l->seg[i].first, l->seg[i].n)->act;
    return acts;
}

static uint64_t prepared_bytes(uint32_t k, uint32_t acts)
{
    return (acts & WK_ACTIVATION_Q8 ? product_row_bytes(k, WK_ACTIVATION_Q8) : 0) +
           (acts & WK_ACTIVATION_F32 ? product_row_bytes(k, WK_ACTIVATION_F32) : 0);
}

/* Activations that a task goes through again for each pair of tiles: five eighths of the second cache. */
static uint64_t chunk_bytes(void)
{
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return cache > CHUNK_CACHE ? (uint64_t)cache / 8 * 5 : CHUNK_CACHE / 8 * 5;
}

uint32_t product_chunk_rows(uint32_t k, uint32_t acts)
{
    const uint64_t n = chunk_bytes() / prepared_bytes(k, acts) & ~15ull;
    return n < 16 ? 16 : n < CHUNK_ROWS ? (uint32_t)n : CHUNK_ROWS;
}

/* ---- sizes of the workspace ---------------------------------------------------------------------------- */

struct sizes {
    uint64_t few_q8, few_f32, shared_q8, shared_f32, gather, scratch, row, route_logits, order, experts;
    uint64_t dk, dv, turned, partials;
    uint64_t temp, temps;
};

static void most(uint64_t *a, uint64_t b)
{
    if (b > *a) *a = b;
}

static void product_sizes(const struct executor *x, const struct tape_launch *l, struct sizes *z)
{
    const struct tape_program *p = x->program;
    const uint32_t acts = launch_acts(x, l), k = p->tensors[l->seg[0].tensor].cols,
                   rows = most_rows(x, build_launch_rows(p, l)), slots = p->values[l->x].slots * tape_launch_parts(l);
    const bool experts = tape_launch_slabs(l);
    for (uint32_t a = WK_ACTIVATION_F32; a <= WK_ACTIVATION_Q8; a <<= 1)
        if (acts & a) {
            const uint64_t bytes = product_row_bytes(k, a);
            most(a == WK_ACTIVATION_Q8 ? &z->few_q8 : &z->few_f32, FEW_ROWS * bytes);
            most(a == WK_ACTIVATION_Q8 ? &z->shared_q8 : &z->shared_f32, (uint64_t)rows * slots * bytes);
            if (experts) most(&z->gather, product_chunk_rows(k, acts) * bytes);
        }
    for (uint32_t i = 0; i < l->n_seg; i++) {
        const struct matrix *m = weights_matrix(x, l->seg[i].tensor, l->seg[i].first, l->seg[i].n);
        struct plugin_call call;
        PLUGIN_CALL(&call, m->type->scratch_bytes, "scratch_bytes");
        most(&z->scratch, m->type->scratch_bytes(m->k));
        plugin_call_end(&call);
        most(&z->experts, m->slabs);
        if (l->kind == LAUNCH_ROUTE) most(&z->route_logits, (uint64_t)rows * m->n);
    }
    if (experts) most(&z->order, (uint64_t)rows * (l->heads ? slots : p->values[l->route].slots));
}

static void temp_sizes(const struct executor *x, const struct tape_launch *l, struct sizes *z)
{
    const struct tape_program *p = x->program;
    if (l->kind == LAUNCH_ROUTE) return;
    for (uint32_t i = 0; i < l->n_ops; i++) {
        const uint32_t out = p->ops[l->ops[i]].out;
        if (out == TAPE_NONE || p->values[out].buffer != TAPE_NONE) continue;
        most(&z->temp, value_floats(p, out));
        most(&z->temps, i + 1);
    }
}

static struct sizes measure(const struct executor *x)
{
    const struct tape_program *p = x->program;
    struct sizes z = { .row = 1 };
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        if (has_product(l)) product_sizes(x, l, &z);
        if (build_row_ops(l)) temp_sizes(x, l, &z);
    }
    for (uint32_t i = 0; i < p->n_values; i++) most(&z.row, value_floats(p, i));
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind != WK_OP_ATTENTION) continue;
        const uint32_t dk = p->ops[i].u.attn.head_k, dv = p->ops[i].u.attn.head_v;
        most(&z.dk, dk);
        most(&z.dv, kv_padded(dv));
        most(&z.partials, attend_partial_bytes(x, p->ops[i].u.attn.heads, dv));
        if (p->ops[i].u.attn.value_in_key) most(&z.turned, kv_padded(dv));
    }
    return z;
}

/* ---- carving ------------------------------------------------------------------------------------------- */

uint64_t build_page_bytes(const struct executor *x, const struct tape_kv_layer *k)
{
    if (x->program->groups[k->group].state) return state_bytes(&x->program->ops[k->op], k);
    const uint64_t size = x->o.kv_type == KV_F16 ? 2 : 4;
    return (uint64_t)k->kv_heads * (k->head_k + (k->value_in_key ? 0 : kv_padded(k->head_v))) * KV_PAGE * size;
}

uint64_t build_layer_bytes(const struct executor *x, uint32_t k, uint32_t pages)
{
    struct carve c = { 0 };
    (void)carve(&c, pages, build_page_bytes(x, &x->program->kv_layers[k]));
    return c.used;
}

static wk_status carve_cache(struct executor *x, struct carve *kv, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    for (uint32_t i = 0; i < p->n_kv_layers; i++)
        x->plan.kv_page_bytes[p->kv_layers[i].group] += build_page_bytes(x, &p->kv_layers[i]);
    wk_status s = kv_pages(p, &x->o, x->plan.kv_page_bytes, x->plan.kv_pages, err);
    for (uint32_t i = 0; !s && i < p->n_kv_layers; i++)
        x->cache[i] = carve(kv, x->plan.kv_pages[p->kv_layers[i].group], build_page_bytes(x, &p->kv_layers[i]));
    return s;
}

static void carve_lane(struct lane *l, struct carve *c, const struct sizes *z)
{
    l->q8 = carve(c, z->few_q8, 1);
    l->f32 = carve(c, z->few_f32, 1);
    l->row = carve(c, z->row, sizeof *l->row);
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t few = FEW_ROWS * FEW_TILES * WK_TILE_ROWS, many = CHUNK_ROWS * MANY_TILES * WK_TILE_ROWS;
        l->y[i] = carve(c, few > many ? few : many, sizeof *l->y[i]);
    }
    l->scratch = carve(c, z->scratch, 1);
    l->gather = carve(c, z->gather, 1);
    l->order = carve(c, z->order, sizeof *l->order);
    l->start = carve(c, z->experts + 1, sizeof *l->start);
    l->used = carve(c, z->experts, sizeof *l->used);
    l->q = carve(c, ATTN_QUERIES * z->dk, sizeof *l->q);
    l->s = carve(c, ATTN_QUERIES * ATTN_SPLIT, sizeof *l->s);
    l->acc = carve(c, ATTN_QUERIES * z->dv, sizeof *l->acc);
    l->sum = carve(c, ATTN_QUERIES * z->dv, sizeof *l->sum);
    l->turned = carve(c, KV_PAGE * z->turned, sizeof *l->turned);
    for (uint32_t i = 0; i < z->temps; i++) l->temp[i] = carve(c, z->temp, sizeof *l->temp[i]);
}

static void carve_workspace(struct executor *x, struct carve *c)
{
    const struct sizes z = measure(x);
    const uint32_t rows = x->o.max_rows;
    for (uint32_t i = 0; i < x->n_rope_tables; i++)
        x->rope_tables[i].rows = carve(c, (uint64_t)rows * 2 * x->rope_tables[i].n, sizeof(float));
    x->shared_q8 = carve(c, z.shared_q8, 1);
    x->shared_f32 = carve(c, z.shared_f32, 1);
    x->route_logits = carve(c, z.route_logits, sizeof(float));
    x->partials = carve(c, z.partials, 1);
    x->position = carve(c, rows, sizeof *x->position);
    x->seq = carve(c, rows, sizeof *x->seq);
    x->all.blocks = carve(c, rows, sizeof *x->all.blocks);
    x->logits_rows.blocks = carve(c, x->o.max_logits_rows, sizeof *x->logits_rows.blocks);
    x->failed = carve(c, x->o.max_sequences, sizeof *x->failed);
    for (uint32_t i = 0; i < x->o.threads; i++) carve_lane(&x->lanes[i], c, &z);
    sampling_carve(x, c);
}

wk_status build_carve(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    struct carve c[MEMORY_KINDS];
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) c[i] = (struct carve){ x->region[i].base, 0 };
    x->plan = (struct memory_plan){ .total = 0 };
    weights_carve(x, &c[MEMORY_WEIGHTS], &c[MEMORY_WORKSPACE]);
    wk_status s = carve_cache(x, &c[MEMORY_KV], err);
    if (s) return s;
    for (uint32_t i = 0; i < p->n_buffers; i++)
        x->buffers[i] = carve(&c[MEMORY_ACTIVATIONS], most_rows(x, p->buffers[i].rows), p->buffers[i].row_bytes);
    carve_workspace(x, &c[MEMORY_WORKSPACE]);
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) {
        x->plan.bytes[i] = c[i].used;
        if (i == MEMORY_WORKSPACE && !checked_add_u64(x->plan.bytes[i], x->list_bytes, &x->plan.bytes[i]))
            x->plan.bytes[i] = UINT64_MAX;
        if (!checked_add_u64(x->plan.total, x->plan.bytes[i], &x->plan.total)) x->plan.total = UINT64_MAX;
    }
    return WK_OK;
}

/* ---- lists: small, of a length that the program alone decides ------------------------------------------ */

void *list_new(struct executor *x, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (x->n_lists == sizeof x->lists / sizeof *x->lists || !checked_mul_u64(n ? n : 1, size, &bytes) ||
        !checked_round_up_u64(bytes, 64, &bytes))
        return NULL;
    void *list = aligned_alloc(64, bytes);
    if (!list) return NULL;
    memset(list, 0, bytes);
    x->lists[x->n_lists++] = list;
    x->list_bytes += bytes;
    return list;
}

/* Ropes of equal tables share their cosines and sines. */
uint32_t rope_table_index(const struct executor *x, const struct tape_op *op)
{
    for (uint32_t i = 0; i < x->n_rope_tables; i++) {
        const struct rope_table *t = &x->rope_tables[i];
        if (t->freq == op->u.rope.freq && t->n == op->u.rope.n && t->mscale == op->u.rope.mscale &&
            t->temperature == op->u.rope.temperature && t->temperature_length == op->u.rope.temperature_length)
            return i;
    }
    return x->n_rope_tables;
}

wk_status build_lists(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    uint32_t ropes = 0;
    uint64_t ops = 0, cuts = 0;
    x->first_state = p->n_launches;
    for (uint32_t i = 0; i < p->n_ops; i++) ropes += p->ops[i].kind == WK_OP_ROPE;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        ops += build_row_ops(&p->launches[i]);
        if (p->launches[i].kind == LAUNCH_STATE && x->first_state == p->n_launches) x->first_state = i;
        cuts += has_product(&p->launches[i]) ? x->o.threads + 1u : 0;
    }
    x->buffers = list_new(x, p->n_buffers, sizeof *x->buffers);
    x->cache = list_new(x, p->n_kv_layers, sizeof *x->cache);
    x->conv = list_new(x, p->n_kv_layers, sizeof *x->conv);
    x->lanes = list_new(x, x->o.threads, sizeof *x->lanes);
    x->rope_tables = list_new(x, ropes, sizeof *x->rope_tables);
    x->stages = list_new(x, p->n_launches, sizeof *x->stages);
    x->row_ops = list_new(x, ops, sizeof *x->row_ops);
    x->cuts = list_new(x, cuts, sizeof *x->cuts);
    if (!x->buffers || !x->cache || !x->conv || !x->lanes || !x->rope_tables || !x->stages || !x->row_ops || !x->cuts)
        return wk_fail(err, WK_NO_MEMORY, "out of memory for the lists of %u launches", p->n_launches);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *op = &p->ops[i];
        if (op->kind != WK_OP_ROPE || rope_table_index(x, op) < x->n_rope_tables) continue;
        x->rope_tables[x->n_rope_tables++] = (struct rope_table){ .freq = op->u.rope.freq,
                                                                  .n = op->u.rope.n,
                                                                  .mscale = op->u.rope.mscale,
                                                                  .temperature = op->u.rope.temperature,
                                                                  .temperature_length = op->u.rope.temperature_length };
    }
    wk_status s = sampling_open(x, err);
    return s ? s : weights_find(x, err);
}
