/* stages.c: makes each launch of the tape into a stage: every index resolved to a pointer, checked against what the
 * tape promises. */
#include "device/cpu/cpu.h"

#include <string.h>

#include "gguf/gguf.h"

/* A launch that reads what cannot be read at its rows: a promise of the tape broken. */
static wk_status broken(const struct wk_err *err, const struct tape_launch *l, const char *what)
{
    return wk_fail(err, WK_INTERNAL, "launch %s of layer %u: %s", launch_kind_name(l->kind), l->layer, what);
}

static const struct tape_op *op_at(const struct executor *x, uint32_t op)
{
    return op == TAPE_NONE ? NULL : &x->program->ops[op];
}
static const float *vector_of(const struct executor *x, uint32_t tensor)
{
    return tensor == TAPE_NONE ? NULL : x->vectors[tensor];
}

static float *value_base(const struct executor *x, uint32_t value)
{
    const uint32_t b = x->program->values[value].buffer;
    return b == TAPE_NONE ? NULL : x->buffers[b];
}

static uint64_t value_stride(const struct executor *x, uint32_t value)
{
    const struct tape_value *v = &x->program->values[value];
    return (uint64_t)v->width * v->slots * (x->program->ops[v->op].kind == WK_OP_ROUTE ? 2 : 1);
}

/* How a stage of `rows` reads a value. */
static wk_status operand_of(const struct executor *x, const struct tape_launch *l, enum tape_rows rows, uint32_t value,
                            struct operand *o, const struct wk_err *err)
{
    const struct tape_value *v = &x->program->values[value];
    *o = (struct operand){ value_base(x, value), value_stride(x, value), v->width, v->slots,
                           rows == ROWS_LOGITS && v->rows == ROWS_ALL };
    if (!o->base) return broken(err, l, "an input has no buffer");
    if (v->rows != rows && !o->gather) return broken(err, l, "an input does not exist for these rows");
    return WK_OK;
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* Thread t owns the tiles from cut[t] on: equal shares of the bytes. A pair's tiles count together. */
static void cut_tiles(const struct executor *x, struct product *p)
{
    const uint32_t step = p->glu_pair ? 2 : 1;
    uint64_t total = 0, before = 0;
    uint32_t tile = 0, t = 0;
    for (uint32_t g = 0; g < p->n_seg; g++) total += p->seg[g].m->tiles * p->seg[g].m->tile_bytes;
    for (uint32_t g = 0; g < p->n_seg; g += step) {
        const uint64_t bytes = p->seg[g].m->tile_bytes + (p->glu_pair ? p->seg[g + 1].m->tile_bytes : 0);
        for (uint32_t i = 0; i < p->seg[g].m->tiles; i++, tile++, before += bytes)
            while (t < x->o.threads && before * x->o.threads >= total * t) p->cut[t++] = tile;
    }
    while (t <= x->o.threads) p->cut[t++] = tile;
    const uint64_t fit = tile && total ? (uint64_t)FEW_BYTES * tile / total : FEW_TILES;
    p->piece = fit < 1 ? 1 : fit < FEW_TILES ? (uint32_t)fit : FEW_TILES;
}

static wk_status product_segments(struct executor *x, const struct tape_launch *l, struct product *p,
                                  const struct wk_err *err)
{
    for (uint32_t i = 0; i < l->n_seg; i++) {
        const struct tape_segment *g = &l->seg[i];
        const struct matrix *m = weights_matrix(x, g->tensor, g->first, g->n);
        const float *bias = vector_of(x, g->bias);
        float *out = NULL;
        if (g->out != TAPE_NONE)
            out = value_base(x, g->out);
        else if (l->kind == LAUNCH_ROUTE)
            out = x->route_logits;
        else if (l->out != TAPE_NONE && !l->logits)
            out = value_base(x, l->out);
        if (!out && !l->logits) return broken(err, l, "a result has no buffer");
        if (m->k != p->k) return broken(err, l, "a matrix does not fit its input");
        p->acts |= m->act;
        /* The bias of experts is a row a slab; a dense one covers the whole tensor. */
        p->seg[i] = (struct product_segment){ m, bias && !p->experts ? bias + g->first : bias, out };
    }
    return WK_OK;
}

static wk_status product_stage(struct executor *x, const struct tape_launch *l, struct stage *s, uint32_t **cuts,
                               const struct wk_err *err)
{
    struct product *p = &s->product;
    *p = (struct product){ .n_seg = l->n_seg,
                           .k = x->program->values[l->x].width / tape_launch_parts(l),
                           .slots = 1,
                           .logits = l->kind == LAUNCH_PRODUCT && l->logits,
                           .experts = tape_launch_slabs(l),
                           .norm = op_at(x, l->norm),
                           .glu = op_at(x, l->glu),
                           .n_map = l->n_map,
                           .cut = *cuts };
    *cuts += x->o.threads + 1;
    p->glu_pair = p->glu != NULL;
    wk_status st = operand_of(x, l, s->rows, l->x, &p->x, err);
    if (!st && p->experts && !l->heads) st = operand_of(x, l, s->rows, l->route, &p->route, err);
    if (!st && l->residual != TAPE_NONE) st = operand_of(x, l, s->rows, l->residual, &p->residual, err);
    if (l->heads) p->x.slots = l->heads, p->x.width = p->k; /* a slot for each part of the row */
    if (!st) st = product_segments(x, l, p, err);
    if (st) return st;
    p->slots = p->route.base ? p->route.slots : p->x.slots;
    if (p->glu_pair && (p->n_seg != 2 || p->seg[0].m->n != p->seg[1].m->n))
        return broken(err, l, "a gated activation of unequal halves");
    if (p->x.slots != 1 && p->x.slots != p->slots)
        return broken(err, l, "an input of neither one slot nor the route's");
    if (p->norm) {
        p->norm_w = vector_of(x, p->norm->t[0]);
        p->norm_b = vector_of(x, p->norm->t[1]);
    }
    for (uint32_t i = 0; i < l->n_map; i++) p->map[i] = op_at(x, l->map[i]);
    p->chunk = product_chunk_rows(p->k, p->acts);
    cut_tiles(x, p);
    return WK_OK;
}

/* ---- attention ----------------------------------------------------------------------------------------- */

static const float *rope_table_of(const struct executor *x, const struct tape_op *rope)
{
    return rope ? x->rope_tables[rope_table_index(x, rope)].rows : NULL;
}

static wk_status attend_stage(struct executor *x, const struct tape_launch *l, struct stage *s,
                              const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    const struct tape_op *op = op_at(x, l->attention);
    const uint32_t layer = op->u.attn.kv_layer;
    const uint64_t size = x->o.kv_type == KV_F16 ? 2 : 4;
    struct attend *a = &s->attend;
    *a = (struct attend){ .op = op,
                          .q_norm = op_at(x, l->q_norm),
                          .k_norm = op_at(x, l->k_norm),
                          .v_norm = op_at(x, l->v_norm),
                          .q_rope = op_at(x, l->q_rope),
                          .k_rope = op_at(x, l->k_rope),
                          .sinks = vector_of(x, op->t[0]),
                          .out = value_base(x, l->out),
                          .heads = op->u.attn.heads,
                          .kv_heads = op->u.attn.kv_heads,
                          .dk = op->u.attn.head_k,
                          .dv = op->u.attn.head_v,
                          .span = kv_span(&p->groups[p->kv_layers[layer].group], x->o.context),
                          .both_ways = op->u.attn.flags & WK_ATTENTION_BIDIRECTIONAL,
                          .value_in_key = op->u.attn.value_in_key,
                          .stores = op == &p->ops[p->kv_layers[layer].op],
                          .group = p->kv_layers[layer].group,
                          .cache = x->cache[layer] };
    a->v_offset = (uint64_t)a->dk * KV_PAGE * size;
    a->head_bytes = a->v_offset + (a->value_in_key ? 0 : (uint64_t)kv_padded(a->dv) * KV_PAGE * size);
    a->page_bytes = a->head_bytes * a->kv_heads;
    a->q_rope_table = rope_table_of(x, a->q_rope);
    a->k_rope_table = rope_table_of(x, a->k_rope);
    if (a->q_norm) a->q_norm_w = vector_of(x, a->q_norm->t[0]), a->q_norm_b = vector_of(x, a->q_norm->t[1]);
    if (a->k_norm) a->k_norm_w = vector_of(x, a->k_norm->t[0]), a->k_norm_b = vector_of(x, a->k_norm->t[1]);
    if (a->v_norm) a->v_norm_w = vector_of(x, a->v_norm->t[0]), a->v_norm_b = vector_of(x, a->v_norm->t[1]);
    if (!a->out) return broken(err, l, "its result has no buffer");
    wk_status st = operand_of(x, l, s->rows, l->q, &a->q, err);
    if (!st && a->stores) st = operand_of(x, l, ROWS_ALL, l->k, &a->k, err);
    if (!st && a->stores && !a->value_in_key) st = operand_of(x, l, ROWS_ALL, l->v, &a->v, err);
    return st;
}

/* ---- states -------------------------------------------------------------------------------------------- */

static wk_status state_stage(struct executor *x, const struct tape_launch *l, struct stage *s, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    const struct tape_op *op = op_at(x, l->ops[0]);
    const uint32_t layer = op->u.state.kv_layer;
    struct state *a = &s->state;
    *a = (struct state){ .op = op,
                         .w = x->conv[layer],
                         .b = vector_of(x, op->t[1]),
                         .out = value_base(x, l->out),
                         .width = p->values[op->out].width,
                         .heads = op->u.state.heads,
                         .dk = op->u.state.head_k,
                         .dv = op->u.state.head_v,
                         .slices = (op->u.state.head_v + STATE_COLUMNS - 1) / STATE_COLUMNS,
                         .group = p->kv_layers[layer].group,
                         .cache = x->cache[layer],
                         .page_bytes = build_page_bytes(x, &p->kv_layers[layer]) };
    a->share = op->u.state.groups ? a->heads / op->u.state.groups : 0;
    if (!a->out) return broken(err, l, "its result has no buffer");
    wk_status st = WK_OK;
    for (uint32_t j = 0; !st && j < sizeof a->in / sizeof *a->in; j++) {
        if (op->in[j] != TAPE_NONE) st = operand_of(x, l, ROWS_ALL, op->in[j], &a->in[j], err);
    }
    return st;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Place in the launch of the operation that makes a swallowed value. */
static uint32_t place_of(const struct executor *x, const struct tape_launch *l, uint32_t value)
{
    for (uint32_t i = 0; i < l->n_ops; i++)
        if (x->program->ops[l->ops[i]].out == value) return i;
    return TAPE_NONE;
}

static wk_status row_input(struct executor *x, const struct tape_launch *l, const struct stage *s, struct row_op *r,
                           uint32_t j, const struct wk_err *err)
{
    const uint32_t value = r->op->in[j];
    const struct tape_value *v = &x->program->values[value];
    if (l->kind == LAUNCH_ROUTE) {
        r->in[j] = (struct operand){ x->route_logits, s->product.seg[0].m->n, s->product.seg[0].m->n, 1, false };
        return WK_OK;
    }
    const struct tape_op *from = op_at(x, v->op);
    if (from->kind == WK_OP_VECTOR) { /* the same for every row */
        r->in[j] = (struct operand){ vector_of(x, from->t[0]), 0, v->width, v->slots, false };
        return WK_OK;
    }
    if (v->buffer == TAPE_NONE) {
        r->in[j] = (struct operand){ NULL, 0, v->width, v->slots, false };
        r->temp_in[j] = place_of(x, l, value);
        return r->temp_in[j] == TAPE_NONE ? broken(err, l, "an input has neither a buffer nor a producer in the launch")
                                          : WK_OK;
    }
    return operand_of(x, l, r->op->kind == WK_OP_POOL ? ROWS_ALL : s->rows, value, &r->in[j], err);
}

static bool row_kind(uint16_t kind)
{
    return kind != WK_OP_LINEAR && kind != WK_OP_EXPERT && kind != WK_OP_LINEAR_HEADS && kind != WK_OP_ATTENTION &&
           kind != WK_OP_STATE && kind > 0 && kind < WK_OP_END;
}

static wk_status row_op_of(struct executor *x, const struct tape_launch *l, const struct stage *s,
                           const struct tape_op *op, struct row_op *r, const struct wk_err *err)
{
    *r = (struct row_op){ .op = op };
    for (uint32_t j = 0; j < TAPE_IN; j++) r->temp_in[j] = TAPE_NONE;
    if (!row_kind(op->kind)) return broken(err, l, "an operation that does not work by rows");
    if (op->out != TAPE_NONE) {
        r->out = value_base(x, op->out);
        r->out_stride = value_stride(x, op->out);
    }
    if (op->kind == WK_OP_EMBED) {
        const struct tape_tensor *t = &x->program->tensors[op->t[0]];
        r->type = t->type;
        r->table = gguf_tensor_data(t->in, t->file);
        r->row_bytes = (uint64_t)(t->cols / t->type->block) * t->type->block_bytes;
    } else {
        r->w = vector_of(x, op->t[0]);
        r->b = vector_of(x, op->t[1]);
    }
    if (op->kind == WK_OP_ROPE) r->rope_table = rope_table_of(x, op);
    for (uint32_t j = 0; j < TAPE_IN; j++) {
        wk_status st =
            op->in[j] == TAPE_NONE || (l->kind == LAUNCH_ROUTE && j > 0) ? WK_OK : row_input(x, l, s, r, j, err);
        if (st) return st;
    }
    return WK_OK;
}

static wk_status row_stage(struct executor *x, const struct tape_launch *l, struct stage *s, struct row_op **ops,
                           const struct wk_err *err)
{
    s->ops = *ops;
    s->n_ops = build_row_ops(l);
    *ops += s->n_ops;
    /* A route launch's other operations are its product's. */
    const uint32_t first = l->n_ops - s->n_ops;
    for (uint32_t i = 0; i < s->n_ops; i++) {
        wk_status st = row_op_of(x, l, s, op_at(x, l->ops[first + i]), &s->ops[i], err);
        if (st) return st;
    }
    return WK_OK;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

wk_status build_stages(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    struct row_op *ops = x->row_ops;
    uint32_t *cuts = x->cuts;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        struct stage *s = &x->stages[i];
        wk_status st;
        *s = (struct stage){ .launch = l, .rows = build_launch_rows(p, l), .tapped = tape_launch_tapped(p, l) };
        switch (l->kind) {
        case LAUNCH_PRODUCT:
            s->run = product_run;
            st = product_stage(x, l, s, &cuts, err);
            break;
        case LAUNCH_ATTEND:
            s->run = attend_run;
            st = attend_stage(x, l, s, err);
            break;
        case LAUNCH_STATE:
            s->run = state_run;
            st = state_stage(x, l, s, err);
            break;
        case LAUNCH_ROUTE:
            s->run = route_run;
            st = product_stage(x, l, s, &cuts, err);
            if (!st) st = row_stage(x, l, s, &ops, err);
            break;
        default:
            s->run = rows_run;
            st = row_stage(x, l, s, &ops, err);
            break;
        }
        if (st) return st;
    }
    return WK_OK;
}
