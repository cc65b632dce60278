/* stages.c: enqueues one stage, and the stages of a whole run in the order of the tape. Nothing here waits or
 * allocates, so a run of few rows can be captured as it is.
 *
 * In a run of few rows everything after the inputs is launched with programmatic dependence on what precedes it. The
 * launch behind the inputs, a gather, lets the next begin only when it has waited for them itself, so that all later
 * kernels may read inputs and tables early. */
#include "device/cuda/product.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_calls.h"

/* ---- rows ---------------------------------------------------------------------------------------------- */

static struct cuda_rows rows_of(const struct executor *x, const struct cuda_operand *o, uint32_t first)
{
    if (!o->v) return (struct cuda_rows){ NULL, 0, NULL };
    return (struct cuda_rows){ cuda_f32(o->v) + (o->gather ? 0 : (uint64_t)first * o->v->slots * o->v->stride),
                               o->v->stride, o->gather ? x->prepare.logits_rows + first : NULL };
}

static float *partials_of(const struct cuda_value *v, const struct run *r)
{
    return v->partials && r->few ? v->aux : NULL;
}

/* The tables' rows, scaled, one added to the other: a launch each, by the module that knows the table's format. */
static wk_status enqueue_embed(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t rows,
                               const struct wk_err *err)
{
    const struct cuda_value *out = s->embed.out;
    wk_status st = WK_OK;
    for (uint32_t i = 0; i < s->embed.n_parts && !st; i++) {
        const struct cuda_part *p = &s->embed.part[i];
        const struct wk_cuda_gather g = { .struct_size = sizeof g,
                                          .flags = WK_CUDA_DEPENDENT,
                                          .k = p->m->k,
                                          .rows = rows,
                                          .tiles = p->m->data,
                                          .index = p->index,
                                          .y = cuda_f32(out),
                                          .y_stride = out->stride,
                                          .scale = p->scale,
                                          .add = i > 0,
                                          .part = i + 1 == s->embed.n_parts ? partials_of(out, r) : NULL };
        st = type_gather(p->m->type, &g, x->stream, err);
    }
    return st;
}

static wk_status enqueue_alone(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t rows,
                               const struct wk_err *err)
{
    const struct cuda_row_stage *c = &s->row;
    struct cuda_alone a = { .pdl = true,
                            .op = c->op,
                            .rows = rows * c->out->slots,
                            .width = c->out->width,
                            .slots = c->out->slots,
                            .w = c->w,
                            .b = c->b,
                            .rope_table = c->rope_table,
                            .residual = rows_of(x, &c->residual, 0),
                            .y = cuda_f32(c->out),
                            .y_stride = c->out->stride,
                            .part = partials_of(c->out, r) };
    for (uint32_t j = 0; j < TAPE_IN && c->x[j].v; j++) {
        a.x[j] = rows_of(x, &c->x[j], 0);
        a.x_width[j] = c->x[j].v->width;
        a.x_slots[j] = c->x[j].v->slots;
        a.x_route[j] = c->x[j].v->groups != NULL;
    }
    if (c->vector) {
        a.x[1] = (struct cuda_rows){ c->vector, 0, NULL };
        a.x_width[1] = c->vector_width;
        a.x_slots[1] = 1;
    }
    return cuda_alone(&a, x->stream, err);
}

static wk_status enqueue_choice(struct executor *x, const struct cuda_stage *s, uint32_t rows, const struct wk_err *err)
{
    const struct cuda_choice c = { s->row.op, s->row.w, s->row.out };
    struct cuda_route a = cuda_route_call(x, &c, s->rows);
    a.rows = rows;
    a.experts = s->row.x[0].v->width;
    a.logits = rows_of(x, &s->row.x[0], 0);
    return cuda_route(&a, x->stream, err);
}

static wk_status enqueue_combine(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t rows,
                                 const struct wk_err *err)
{
    const struct cuda_row_stage *c = &s->row;
    const struct cuda_combine a = { .pdl = true,
                                    .rows = rows,
                                    .width = c->out->width,
                                    .k = c->x[0].v->slots,
                                    .x = cuda_f32(c->x[0].v),
                                    .x_stride = c->x[0].v->stride,
                                    .route = c->x[1].v ? c->x[1].v->data : NULL,
                                    .route_stride = c->x[1].v ? c->x[1].v->stride : 0,
                                    .residual = rows_of(x, &c->residual, 0),
                                    .y = cuda_f32(c->out),
                                    .y_stride = c->out->stride,
                                    .part = partials_of(c->out, r) };
    return cuda_combine(&a, x->stream, err);
}

wk_status cuda_copy_rows(struct executor *x, uint32_t rows, uint32_t width, struct cuda_rows from, float *y,
                         uint64_t y_stride, const struct wk_err *err)
{
    static const struct tape_op none = { .kind = WK_OP_SLICE };
    struct tape_op whole = none;
    whole.u.slice.n = width;
    const struct cuda_alone a = { .pdl = true,
                                  .op = &whole,
                                  .rows = rows,
                                  .width = width,
                                  .x = { from },
                                  .x_width = { width },
                                  .x_slots = { 1 },
                                  .slots = 1,
                                  .y = y,
                                  .y_stride = y_stride };
    return cuda_alone(&a, x->stream, err);
}

/* Logits that no product makes at its end: copied, picked, to where all logits are. */
static wk_status enqueue_copy(struct executor *x, const struct cuda_stage *s, uint32_t first, uint32_t rows,
                              const struct wk_err *err)
{
    return cuda_copy_rows(x, rows, s->row.x[0].v->width, rows_of(x, &s->row.x[0], first), x->logits, x->logits_stride,
                          err);
}

/* Pool, the end of an embedding, or both. */
static wk_status enqueue_pool(struct executor *x, const struct cuda_stage *s, const struct run *r,
                              const struct wk_err *err)
{
    const struct tape_launch *l = s->launch;
    const struct tape_op *first = &x->program->ops[l->ops[0]];
    const struct cuda_value *v = s->row.x[0].v, *out = s->row.out;
    const struct cuda_pool p = { .seqs = r->seqs,
                                 .width = v->width,
                                 .how = first->kind == WK_OP_POOL ? first->u.pool.how : 0,
                                 .l2 = !out && s->row.op->u.output.flags & WK_OUTPUT_L2_NORM ? 1 : 0,
                                 .seq = x->prepare.seq,
                                 .x = cuda_f32(v),
                                 .x_stride = v->stride,
                                 .running = x->running,
                                 .y = out ? cuda_f32(out) : x->pooled,
                                 .y_stride = out ? out->stride : x->program->embedding_width };
    return cuda_pool(&p, x->stream, err);
}

/* ---- products ------------------------------------------------------------------------------------------ */

static bool joined(const struct cuda_stage *s) { return s->product.out || s->logits; }

/* Results by head, and to where they lie. */
static wk_status heads_product(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               const struct product_input *i, uint32_t rows, const struct wk_err *err)
{
    const wk_status s = cuda_decode_siblings(x, p, r, i, 0, 1, rows, err);
    const struct cuda_value *to = p->padded[1];
    if (s || !to) return s;
    return cuda_copy_rows(x, rows, to->width, (struct cuda_rows){ x->f32_scratch[1], to->width, NULL },
                          (float *)(void *)to->data, to->stride, err);
}

static wk_status enqueue_product(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t first,
                                 uint32_t rows, const struct wk_err *err)
{
    const struct cuda_product_stage *p = &s->product;
    for (uint32_t g = 0; g < p->n_routers; g++) {
        const struct cuda_router_segment *q = &p->routers[g];
        wk_status st = cuda_enqueue_router(
            x, p, q, r, rows, &(struct cuda_router){ .y = (float *)(void *)q->out->data, .y_stride = q->out->stride },
            err);
        if (st) return st;
    }
    if (!p->n_seg) return WK_OK;
    if (p->makes_groups) {
        uint32_t *const ids = (uint32_t *)(void *)p->route->data + p->route->slots;
        const struct cuda_heads h = { true, rows, p->route->slots, ids, p->route->groups };
        const wk_status st = cuda_heads(&h, x->stream, err);
        if (st) return st;
    }
    if (p->large && !r->few) return cuda_prefill_experts(x, p, r, rows, err);
    const bool few = r->few || s->rows != ROWS_ALL || p->experts ||
                     (joined(s) && !(cuda_expands(p->seg[0].m) && cuda_expands(p->seg[p->n_seg - 1].m)));
    struct product_input i;
    wk_status st = WK_OK;
    if (p->padded[0])
        st = cuda_copy_rows(x, rows, p->padded[0]->width,
                            (struct cuda_rows){ cuda_f32(p->padded[0]), p->padded[0]->stride, NULL }, x->f32_scratch[0],
                            p->padded[0]->width, err);
    if (!st) st = cuda_product_input(x, p, r, first, rows, &i, err);
    if (st) return st;
    if (s->launch->heads) return heads_product(x, p, r, &i, rows, err);
    if (!few)
        return joined(s) ? cuda_prefill_joined(x, p, r, &i, rows, err) : cuda_prefill_siblings(x, p, r, &i, rows, err);
    if (!joined(s)) return cuda_decode_siblings(x, p, r, &i, 0, p->n_seg, rows, err);
    return cuda_decode_joined(x, p, r, &i, first, rows, err);
}

/* ---- attention ----------------------------------------------------------------------------------------- */

/* As many sequences a launch as one takes. */
static wk_status attend_few(struct executor *x, const struct cuda_attend *a, struct cuda_batch *batch,
                            const struct wk_err *err)
{
    wk_status st = WK_OK;
    for (uint32_t left = batch->seqs; left && !st; left -= batch->seqs) {
        batch->seqs = left < WK_CUDA_FEW ? left : WK_CUDA_FEW;
        st = cuda_attend(a, x->o.context, x->stream, err);
        batch->seq += batch->seqs;
        batch->lengths++;
        for (uint32_t g = 0; g < x->program->n_groups; g++)
            batch->pages[g] += (uint64_t)batch->seqs * batch->page_stride[g];
    }
    return st;
}

wk_status cuda_store_keys(struct executor *x, const struct cuda_attend *a, const struct wk_err *err)
{
    return a->value_in_key ? cuda_latent_store(a, x->q_half, x->stream, err)
                           : cuda_attend_store(a, x->q_half, x->stream, err);
}

static wk_status enqueue_attend(struct executor *x, const struct cuda_stage *s, const struct run *r,
                                const struct wk_err *err)
{
    struct cuda_batch batch = x->batch;
    batch.rows = r->rows;
    batch.seqs = r->seqs;
    struct cuda_attend a = r->few ? s->attend.call : s->attend.many;
    a.batch = &batch;
    a.pdl = true;
    if (r->few && !cuda_attend_tiles(&a)) return attend_few(x, &a, &batch, err);
    wk_status st = cuda_store_keys(x, &a, err);
    /* A chunk of a prompt of which no row is wanted stores keys and values in its last layer, and no more. */
    if (st || (!r->few && s->attend.logits_rows_only && !r->n_logits_rows)) return st;
    return a.value_in_key ? cuda_latent(&a, x->q_half, r->few ? x->o.context : 0, x->stream, err)
                          : cuda_attend_prompt(&a, x->q_half, x->stream, err);
}

/* ---- states -------------------------------------------------------------------------------------------- */

static wk_status enqueue_state(struct executor *x, const struct cuda_stage *s, const struct run *r,
                               const struct wk_err *err)
{
    struct cuda_batch batch = x->batch;
    batch.rows = r->rows;
    batch.seqs = r->seqs;
    struct cuda_state a = s->state;
    a.batch = &batch;
    a.pdl = true;
    return cuda_state(&a, x->stream, err);
}

/* ---- a stage ------------------------------------------------------------------------------------------- */

wk_status cuda_launch_failed(struct executor *x, const struct cuda_stage *s, wk_status status, const char *text,
                             const struct wk_err *err)
{
    const struct tape_launch *l = s->launch;
    char layer[32] = "", lost[256] = "";
    const struct wk_err e = { lost, sizeof lost };
    const char *name = l->n_seg              ? x->program->tensors[l->seg[0].tensor].name
                       : l->out != TAPE_NONE ? x->program->values[l->out].name
                                             : "output";
    if (l->layer != TAPE_NONE) (void)snprintf(layer, sizeof layer, " of layer %u", l->layer);
    const int code = (int)cudaPeekAtLastError();
    if (code && cuda_check(x->device, code, "launch", &e)) text = text[0] ? text : lost;
    return wk_fail(err, status, "launch %s%s (%s): %s", launch_kind_name(l->kind), layer, name, text);
}

static wk_status enqueue(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t first,
                         uint32_t rows, const struct wk_err *err)
{
    switch (s->kind) {
    case STAGE_EMBED: return enqueue_embed(x, s, r, rows, err);
    case STAGE_PRODUCT: return enqueue_product(x, s, r, first, rows, err);
    case STAGE_ROUTE: return cuda_enqueue_route(x, s, r, rows, err);
    case STAGE_ATTEND: return enqueue_attend(x, s, r, err);
    case STAGE_STATE: return enqueue_state(x, s, r, err);
    case STAGE_CUSTOM: return cuda_enqueue_custom(x, s, rows, err);
    case STAGE_ALONE: return enqueue_alone(x, s, r, rows, err);
    case STAGE_CHOOSE: return enqueue_choice(x, s, rows, err);
    case STAGE_COMBINE: return enqueue_combine(x, s, r, rows, err);
    case STAGE_POOL: return enqueue_pool(x, s, r, err);
    case STAGE_COPY: return enqueue_copy(x, s, first, rows, err);
    }
    return wk_fail(err, WK_INTERNAL, "a stage of kind %d", (int)s->kind);
}

wk_status cuda_enqueue_stage(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t first,
                             uint32_t rows, const struct wk_err *err)
{
    char text[512] = "";
    const struct wk_err e = { text, sizeof text };
    wk_status st = enqueue(x, s, r, first, rows, &e);
    return st ? cuda_launch_failed(x, s, st, text, err) : WK_OK;
}

/* ---- a run --------------------------------------------------------------------------------------------- */

static bool cancelled(const bool *cancel) { return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED); }

wk_status cuda_enqueue_run(struct executor *x, const struct run *r, enum program_kind kind, const bool *cancel,
                           stage_fn seen, const struct wk_err *err)
{
    wk_status st = cuda_prepare(&x->prepare, r->rows, r->seqs, r->behind, x->stream, err);
    for (uint32_t i = 0; i < x->program->n_launches && !st; i++) {
        const struct cuda_stage *s = &x->stages[i];
        const uint32_t rows = cuda_stage_rows(r, s->rows);
        if (cancelled(cancel)) return wk_fail(err, WK_CANCELLED, "cancelled");
        if (!rows || (s->logits && !r->few)) continue;
        st = cuda_enqueue_stage(x, s, r, 0, rows, err);
        if (!st && seen) st = seen(x, s, r, err);
    }
    if (!st && r->few && kind != PROGRAM_LOGITS)
        st = cuda_enqueue_sample(x, r->rows, (enum cuda_sample_kind)(kind - PROGRAM_SAMPLED), NULL, true, err);
    return st;
}

wk_status cuda_enqueue_logits(struct executor *x, const struct run *r, uint32_t first, uint32_t rows,
                              const struct wk_err *err)
{
    for (uint32_t i = 0; i < x->program->n_launches; i++) {
        wk_status st = x->stages[i].logits ? cuda_enqueue_stage(x, &x->stages[i], r, first, rows, err) : WK_OK;
        if (st) return st;
    }
    return WK_OK;
}

wk_status cuda_enqueue_sample(struct executor *x, uint32_t rows, enum cuda_sample_kind kind,
                              const struct cuda_masks *masks, bool pdl, const struct wk_err *err)
{
    const struct cuda_sample c = { .pdl = pdl,
                                   .kind = kind,
                                   .rows = rows,
                                   .seq = x->prepare.sampled,
                                   .logits = x->logits,
                                   .stride = x->logits_stride,
                                   .serial = x->prepare.serial,
                                   .masks = masks,
                                   .out = x->results_device };
    return cuda_sampler_run(x->sampler, &c, x->stream, err);
}
