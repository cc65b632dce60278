/* build.c: makes each launch of the tape into a stage: every index resolved to a pointer, checked against what the tape
 * promises and against what the kernels take. Also the lists of what the upload fills. */
#include "device/cuda/executor.h"

#include <string.h>

#include "device/kv_pages.h"

/* A promise of the tape broken, or a form that these kernels do not have. */
static wk_status broken(const struct wk_err *err, wk_status status, const struct tape_launch *l, const char *what)
{
    return wk_fail(err, status, "launch %s of layer %u: %s", launch_kind_name(l->kind), l->layer, what);
}

static const struct tape_op *op_at(const struct executor *x, uint32_t op)
{
    return op == TAPE_NONE ? NULL : &x->program->ops[op];
}
static const float *vector_of(const struct executor *x, uint32_t tensor)
{
    return tensor == TAPE_NONE ? NULL : x->vectors[tensor];
}
static const struct cuda_value *value_of(const struct executor *x, uint32_t v)
{
    return v == TAPE_NONE || !x->values[v].data ? NULL : &x->values[v];
}

/* How a stage of `rows` reads a value. */
static wk_status operand_of(const struct executor *x, const struct tape_launch *l, enum tape_rows rows, uint32_t value,
                            struct cuda_operand *o, const struct wk_err *err)
{
    *o = (struct cuda_operand){ value_of(x, value), false };
    if (!o->v) return broken(err, WK_INTERNAL, l, "an input has no buffer");
    o->gather = rows == ROWS_LOGITS && o->v->rows == ROWS_ALL;
    if (o->v->rows != rows && !o->gather) return broken(err, WK_INTERNAL, l, "an input does not exist for these rows");
    if (o->gather && o->v->slots > 1) return broken(err, WK_UNSUPPORTED, l, "cuda does not pick rows of several slots");
    return WK_OK;
}

/* ---- products ------------------------------------------------------------------------------------------ */

static wk_status router_of(struct executor *x, const struct tape_launch *l, const struct tape_segment *g,
                           struct cuda_product_stage *p, const struct wk_err *err)
{
    const struct tape_tensor *t = &x->program->tensors[g->tensor];
    const float *bias = vector_of(x, g->bias);
    const struct cuda_value *out = value_of(x, g->out);
    p->routers[p->n_routers++] = (struct cuda_router_segment){ x->vectors[g->tensor] + (uint64_t)g->first * t->cols,
                                                               bias ? bias + g->first : NULL, g->n, out };
    if (t->cols != p->k || t->slabs != 1) return broken(err, WK_INTERNAL, l, "a router does not fit its input");
    if (l->kind == LAUNCH_ROUTE) return WK_OK;
    if (!out || out->form != VALUE_F32 || out->partials || p->x.v->slots != 1)
        return broken(err, WK_UNSUPPORTED, l, "cuda makes a router's logits for a route, of rows of one slot");
    return WK_OK;
}

static wk_status segments_of(struct executor *x, const struct tape_launch *l, struct cuda_product_stage *p,
                             const struct wk_err *err)
{
    for (uint32_t i = 0; i < l->n_seg; i++) {
        const struct tape_segment *g = &l->seg[i];
        if (cuda_is_router(x, g)) {
            wk_status s = router_of(x, l, g, p, err);
            if (s) return s;
            continue;
        }
        const struct cuda_matrix *m = cuda_matrix_of(x, g->tensor, g->first, g->n);
        const float *bias = vector_of(x, g->bias);
        const struct cuda_value *out = value_of(x, g->out);
        /* The bias of experts is a row a slab; a dense one covers the whole tensor. */
        p->seg[p->n_seg++] = (struct cuda_segment){ m, bias && !p->experts ? bias + g->first : bias, out };
        if (m->k != p->k) return broken(err, WK_INTERNAL, l, "a matrix does not fit its input");
        if (g->out != TAPE_NONE && !out) return broken(err, WK_INTERNAL, l, "a result has no buffer");
    }
    return WK_OK;
}

/* The same rows with a slot for each head, in f32_scratch where they do not follow each other without gaps. */
static void by_head(const struct executor *x, struct cuda_product_stage *p, uint32_t which, const struct cuda_value *v,
                    uint32_t heads)
{
    struct cuda_value *slots = &p->by_head[which];
    *slots = *v;
    slots->slots = heads;
    slots->width = v->width / heads;
    slots->stride = slots->width;
    if (v->form == VALUE_ACT || v->stride == v->width) return;
    p->padded[which] = v;
    slots->data = (uint8_t *)x->f32_scratch[which];
}

/* A product by heads is one of experts whose choice is known. */
static wk_status heads_stage(struct executor *x, const struct tape_launch *l, struct cuda_product_stage *p,
                             const struct wk_err *err)
{
    if (p->x.gather || p->seg[0].out->rows != ROWS_ALL || p->seg[0].out->partials)
        return broken(err, WK_INTERNAL, l, "a product by heads is not there for all rows");
    by_head(x, p, 0, p->x.v, l->heads);
    by_head(x, p, 1, p->seg[0].out, l->heads);
    p->x.v = &p->by_head[0];
    p->seg[0].out = &p->by_head[1];
    p->slots = l->heads;
    for (uint32_t i = 0; i < x->n_heads; i++)
        if (x->heads[i].slots == l->heads) p->route = &x->heads[i];
    return p->route ? WK_OK : broken(err, WK_INTERNAL, l, "nobody knows its heads");
}

/* rows: that the stage computes. */
static wk_status product_stage(struct executor *x, const struct tape_launch *l, enum tape_rows rows,
                               struct cuda_product_stage *p, const struct wk_err *err)
{
    *p = (struct cuda_product_stage){ .k = x->program->values[l->x].width / tape_launch_parts(l),
                                      .experts = tape_launch_slabs(l),
                                      .n_map = l->n_map,
                                      .out = l->logits ? NULL : value_of(x, l->out),
                                      .norm = op_at(x, l->norm),
                                      .glu = op_at(x, l->glu) };
    wk_status st = operand_of(x, l, rows, l->x, &p->x, err);
    if (!st && l->residual != TAPE_NONE) st = operand_of(x, l, rows, l->residual, &p->residual, err);
    if (!st && p->experts && !l->heads) {
        struct cuda_operand route;
        st = operand_of(x, l, rows, l->route, &route, err);
        p->route = route.v;
    }
    if (!st) st = segments_of(x, l, p, err);
    for (uint32_t g = 0; !st && g < p->n_seg && p->experts && rows == ROWS_ALL; g++)
        p->large |= p->seg[g].m->panels != 0;
    if (st || l->heads) return st ? st : heads_stage(x, l, p, err);
    p->slots = p->experts ? p->route->slots : p->x.v->slots;
    if (p->glu && (p->n_seg != 2 || p->seg[0].m->n != p->seg[1].m->n))
        return broken(err, WK_INTERNAL, l, "a gated activation of unequal halves");
    if (p->x.v->slots != 1 && p->x.v->slots != p->slots)
        return broken(err, WK_INTERNAL, l, "an input of neither one slot nor the route's");
    if (p->norm && p->x.v->slots != 1)
        return broken(err, WK_UNSUPPORTED, l, "cuda does not norm rows of several slots before a product");
    if (p->norm) {
        p->norm_w = vector_of(x, p->norm->t[0]);
        p->norm_b = vector_of(x, p->norm->t[1]);
    }
    for (uint32_t i = 0; i < l->n_map; i++) p->map[i] = op_at(x, l->map[i]);
    return WK_OK;
}

static wk_status route_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                             const struct wk_err *err)
{
    struct cuda_choice *c = &s->route.choice;
    const wk_status st = product_stage(x, l, s->rows, &s->route.router, err);
    c->out = value_of(x, l->out);
    for (uint32_t i = 0; i < l->n_ops; i++)
        if (op_at(x, l->ops[i])->kind == WK_OP_ROUTE) c->op = op_at(x, l->ops[i]);
    c->bias = vector_of(x, c->op->t[0]);
    return st;
}

/* ---- attention ----------------------------------------------------------------------------------------- */

static struct cuda_head_norm head_norm(const struct executor *x, uint32_t op)
{
    const struct tape_op *n = op_at(x, op);
    if (!n) return (struct cuda_head_norm){ .kind = CUDA_NORM_NONE };
    return (struct cuda_head_norm){ vector_of(x, n->t[0]), vector_of(x, n->t[1]), n->u.norm.eps, 1 + n->u.norm.kind };
}

static const float *rope_table_of(const struct executor *x, const struct tape_op *rope)
{
    return rope ? x->prepare.rope_table[cuda_rope_table_index(x, rope)].rows : NULL;
}

static wk_status attend_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                              const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    const struct tape_op *op = op_at(x, l->attention), *q_rope = op_at(x, l->q_rope), *k_rope = op_at(x, l->k_rope);
    const struct tape_kv_layer *layer = &p->kv_layers[op->u.attn.kv_layer];
    const bool stores = op == &p->ops[layer->op];
    const struct cuda_value *q = value_of(x, l->q), *k = stores ? value_of(x, l->k) : NULL,
                            *v = stores ? value_of(x, l->v) : NULL, *out = value_of(x, l->out);
    if (!q || !out || !cuda_all_f32(q) || out->rows != ROWS_ALL)
        return broken(err, WK_INTERNAL, l, "a value of attention has no rows, or not all");
    const bool in_key = op->u.attn.value_in_key;
    if (stores && (!k || !cuda_all_f32(k) || (in_key ? v != NULL : !v || !cuda_all_f32(v))))
        return broken(err, WK_INTERNAL, l, "keys or values of attention have no rows, or not all");
    const struct kv_span span = kv_span(&p->groups[layer->group], x->o.context);
    struct cuda_attend *a = &s->attend.call;
    *a = (struct cuda_attend){ .heads = op->u.attn.heads,
                               .kv_heads = op->u.attn.kv_heads,
                               .dk = op->u.attn.head_k,
                               .dv = op->u.attn.head_v,
                               .scale = op->u.attn.scale,
                               .softcap = op->u.attn.softcap,
                               .window = span.window,
                               .chunk = span.chunk,
                               .slopes = op->u.attn.slopes ? x->slopes + cuda_slopes_before(p, l->attention) : NULL,
                               .value_in_key = in_key,
                               .both_ways = op->u.attn.flags & WK_ATTENTION_BIDIRECTIONAL,
                               .group = layer->group,
                               .ring_pages = x->prepare.ring_pages[layer->group],
                               .q = cuda_f32(q),
                               .k = k ? cuda_f32(k) : NULL,
                               .v = v ? cuda_f32(v) : NULL,
                               .q_stride = q->stride,
                               .k_stride = k ? k->stride : 0,
                               .v_stride = v ? v->stride : 0,
                               .q_norm = head_norm(x, l->q_norm),
                               .k_norm = head_norm(x, l->k_norm),
                               .v_norm = head_norm(x, l->v_norm),
                               .q_rope_table = rope_table_of(x, q_rope),
                               .k_rope_table = rope_table_of(x, k_rope),
                               .sinks = vector_of(x, op->t[0]),
                               .cache = x->cache[op->u.attn.kv_layer],
                               .workspace = x->attend_space,
                               .counters = x->attend_counters };
    if (q_rope) a->q_rope_n = q_rope->u.rope.n, a->q_rope_style = q_rope->u.rope.style;
    if (k_rope) a->k_rope_n = k_rope->u.rope.n, a->k_rope_style = k_rope->u.rope.style;
    if (out->form == VALUE_ACT)
        a->act = out->data, a->shift = out->shift;
    else
        a->out = cuda_f32(out), a->out_stride = out->stride;
    s->attend.many = *a;
    s->attend.op = op;
    s->attend.out = out;
    s->attend.logits_rows_only = l->rows == ROWS_LOGITS;
    return WK_OK;
}

/* ---- states -------------------------------------------------------------------------------------------- */

static wk_status state_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                             const struct wk_err *err)
{
    const struct tape_op *op = op_at(x, l->ops[0]);
    const uint32_t group = x->program->kv_layers[op->u.state.kv_layer].group;
    const struct cuda_value *out = value_of(x, l->out);
    struct cuda_state *a = &s->state;
    if (!out || !cuda_all_f32(out)) return broken(err, WK_INTERNAL, l, "its result is not there for all rows");
    *a = (struct cuda_state){ .kind = op->u.state.kind,
                              .width = out->width,
                              .kernel = op->u.state.kernel,
                              .heads = op->u.state.heads,
                              .groups = op->u.state.groups,
                              .dk = op->u.state.head_k,
                              .dv = op->u.state.head_v,
                              .group = group,
                              .ring_pages = x->prepare.ring_pages[group],
                              .w = vector_of(x, op->t[0]),
                              .b = vector_of(x, op->t[1]),
                              .y = cuda_f32(out),
                              .y_stride = out->stride,
                              .cache = x->cache[op->u.state.kv_layer] };
    for (uint32_t j = 0; j < sizeof a->x / sizeof *a->x; j++) {
        const struct cuda_value *in = value_of(x, op->in[j]);
        if (op->in[j] == TAPE_NONE) continue;
        if (!in || !cuda_all_f32(in))
            return broken(err, WK_INTERNAL, l, "a value of a state is not there for all rows");
        a->x[j] = cuda_f32(in);
        a->x_stride[j] = in->stride;
    }
    return WK_OK;
}

/* ---- embeddings ---------------------------------------------------------------------------------------- */

static const uint32_t *index_of(const struct executor *x, const struct tape_op *op)
{
    if (op->u.embed.index == WK_EMBED_TOKEN) return x->prepare.token;
    return x->prepare.row[cuda_row_index(x, op)].index;
}

/* Place in the launch's parts of the table that value v comes from unsummed, or TAPE_NONE. */
static uint32_t part_of(const uint32_t *value, uint32_t n, uint32_t v)
{
    for (uint32_t i = 0; i < n; i++)
        if (value[i] == v) return i;
    return TAPE_NONE;
}

/* Tables, each scaled or not, added one after the other: the tape makes no others. */
static wk_status embed_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                             const struct wk_err *err)
{
    struct cuda_part part[MAX_PARTS];
    uint32_t value[MAX_PARTS], n = 0, order[MAX_PARTS], used = 0, sum = TAPE_NONE;
    for (uint32_t i = 0; i < l->n_ops; i++) {
        const struct tape_op *op = op_at(x, l->ops[i]);
        const uint32_t a = op->kind == WK_OP_EMBED ? TAPE_NONE : part_of(value, n, op->in[0]),
                       b = op->kind == WK_OP_ADD ? part_of(value, n, op->in[1]) : TAPE_NONE;
        if (op->kind == WK_OP_EMBED) {
            if (n == MAX_PARTS) return broken(err, WK_INTERNAL, l, "more than four tables");
            part[n] = (struct cuda_part){ .m = cuda_matrix_of(x, op->t[0], 0, x->program->tensors[op->t[0]].rows),
                                          .index = index_of(x, op),
                                          .scale = 1.0f };
            value[n++] = op->out;
        } else if (op->kind == WK_OP_UNARY && a != TAPE_NONE && part[a].scale == 1.0f) {
            part[a].scale = op->u.unary.p;
            value[a] = op->out;
        } else if (op->kind == WK_OP_ADD &&
                   (sum == TAPE_NONE ? a != TAPE_NONE && b != TAPE_NONE
                                     : (op->in[0] == sum && b != TAPE_NONE) || (op->in[1] == sum && a != TAPE_NONE))) {
            if (a != TAPE_NONE) order[used++] = a;
            if (b != TAPE_NONE) order[used++] = b;
            sum = op->out;
        } else
            return broken(err, WK_INTERNAL, l, "no sum of tables");
    }
    if (!used) order[used++] = 0;
    s->embed.n_parts = used;
    for (uint32_t i = 0; i < used; i++) s->embed.part[i] = part[order[i]];
    s->embed.out = value_of(x, l->out);
    return s->embed.out && s->embed.out->form == VALUE_F32 ? WK_OK
                                                           : broken(err, WK_INTERNAL, l, "its result has no rows");
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static wk_status row_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                           const struct wk_err *err)
{
    struct cuda_row_stage *r = &s->row;
    const struct tape_op *op = l->kind == LAUNCH_NORM_ADD ? op_at(x, l->norm)
                               : l->kind == LAUNCH_OUTPUT ? op_at(x, l->ops[l->n_ops - 1])
                                                          : op_at(x, l->ops[0]);
    /* A combine stands in its launch before or after the operations of its residual's. */
    if (l->kind == LAUNCH_COMBINE)
        for (uint32_t i = 0; i < l->n_ops; i++)
            if (op_at(x, l->ops[i])->kind == WK_OP_COMBINE) op = op_at(x, l->ops[i]);
    const bool pool = l->kind == LAUNCH_OUTPUT && s->rows == ROWS_POOLED;
    *r = (struct cuda_row_stage){ .op = op, .out = l->kind == LAUNCH_OUTPUT ? NULL : value_of(x, l->out) };
    if (l->kind != LAUNCH_OUTPUT && !r->out) return broken(err, WK_INTERNAL, l, "its result has no buffer");
    if (op->kind == WK_OP_NORM || op->kind == WK_OP_ROUTE) r->w = vector_of(x, op->t[0]), r->b = vector_of(x, op->t[1]);
    if (op->kind == WK_OP_ROPE) r->rope_table = rope_table_of(x, op);
    wk_status st = WK_OK;
    if (l->kind == LAUNCH_OUTPUT) {
        const bool pooled = x->program->values[l->x].pooled;
        return operand_of(x, l, pooled ? ROWS_POOLED : pool ? ROWS_ALL : ROWS_LOGITS, l->x, &r->x[0], err);
    }
    if (op->kind == WK_OP_POOL) return operand_of(x, l, ROWS_ALL, l->x, &r->x[0], err);
    for (uint32_t j = 0; j < TAPE_IN && op->in[j] != TAPE_NONE && !st; j++)
        if (cuda_is_vector(x->program, op->in[j])) {
            const struct tape_value *v = &x->program->values[op->in[j]];
            r->vector = vector_of(x, op_at(x, v->op)->t[0]);
            r->vector_width = v->width;
        } else
            st = operand_of(x, l, s->rows, op->in[j], &r->x[j], err);
    if (!st && l->residual != TAPE_NONE) st = operand_of(x, l, s->rows, l->residual, &r->residual, err);
    if (st) return st;
    for (uint32_t j = 0; j < TAPE_IN && r->x[j].v; j++)
        if (r->x[j].v->groups && op->kind != WK_OP_COMBINE && op->kind != WK_OP_MUL)
            return broken(err, WK_UNSUPPORTED, l, "cuda gives a route's weights to experts, combine and mul alone");
    return WK_OK;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static enum cuda_stage_kind kind_of(const struct executor *x, const struct tape_launch *l, bool logits)
{
    switch (l->kind) {
    case LAUNCH_EMBED: return STAGE_EMBED;
    case LAUNCH_PRODUCT: return STAGE_PRODUCT;
    case LAUNCH_ROUTE: return STAGE_ROUTE;
    case LAUNCH_ATTEND: return STAGE_ATTEND;
    case LAUNCH_STATE: return STAGE_STATE;
    case LAUNCH_COMBINE: return STAGE_COMBINE;
    case LAUNCH_OUTPUT: return logits ? STAGE_COPY : STAGE_POOL;
    case LAUNCH_NORM_ADD: return STAGE_ALONE;
    default: break;
    }
    switch (op_at(x, l->ops[0])->kind) {
    case WK_OP_CUSTOM: return STAGE_CUSTOM;
    case WK_OP_POOL: return STAGE_POOL;
    case WK_OP_ROUTE: return STAGE_CHOOSE;
    case WK_OP_COMBINE: return STAGE_COMBINE;
    default: return STAGE_ALONE;
    }
}

static wk_status build_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                             const struct wk_err *err)
{
    switch (s->kind) {
    case STAGE_EMBED: return embed_stage(x, l, s, err);
    case STAGE_PRODUCT: return product_stage(x, l, s->rows, &s->product, err);
    case STAGE_ROUTE: return route_stage(x, l, s, err);
    case STAGE_ATTEND: return attend_stage(x, l, s, err);
    case STAGE_STATE: return state_stage(x, l, s, err);
    case STAGE_CUSTOM: return cuda_custom_stage(x, l, s, err);
    default: return row_stage(x, l, s, err);
    }
}

wk_status cuda_build_stages(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        struct cuda_stage *s = &x->stages[i];
        *s = (struct cuda_stage){ .launch = l, .rows = cuda_launch_rows(x, l), .tapped = tape_launch_tapped(p, l) };
        s->logits = (l->kind == LAUNCH_PRODUCT && l->logits) || (l->kind == LAUNCH_OUTPUT && s->rows == ROWS_LOGITS);
        s->kind = kind_of(x, l, s->logits);
        if (i == 0 && s->kind != STAGE_EMBED)
            return broken(err, WK_INTERNAL, l, "the first launch takes no rows of a table");
        const wk_status st = build_stage(x, l, s, err);
        if (st) return st;
    }
    return cuda_find_edges(x, err);
}

wk_status cuda_build_upload(struct executor *x, const struct wk_err *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_matrices; i++) {
        const struct cuda_matrix *m = &x->matrices[i];
        for (uint32_t slab = 0; slab < m->slabs; slab++)
            x->loads[n++] = (struct cuda_load){ .tensor = m->tensor,
                                                .type = m->type,
                                                .first = m->first,
                                                .n = m->n,
                                                .slab = slab,
                                                .tiles = m->data + (uint64_t)slab * m->tiles * m->tile_bytes };
    }
    x->upload.file = x->program->file;
    x->upload.loads = x->loads;
    x->upload.vectors = x->vector_loads;
    x->upload.chunk = x->o.upload_chunk;
    x->upload.digest = x->o.digest;
    x->upload.progress = x->o.progress;
    x->upload.progress_user = x->o.progress_user;
    if (n != x->upload.n_loads) return wk_fail(err, WK_INTERNAL, "%u runs of tiles of %u", n, x->upload.n_loads);
    return WK_OK;
}
