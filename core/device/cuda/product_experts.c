/* product_experts.c: experts of prompts by the plugins' large products, which read panels, and the routers and routes
 * that choose experts. Experts of formats without large products take the decode path, in prompts, too.
 *
 * Which way a matrix goes is its own, never the launch's: so no bit depends on what was fused. */
#include "device/cuda/product.h"

#include "device/cuda_calls.h"

/* ---- panels ------------------------------------------------------------------------------------------------------ */

uint32_t cuda_common_panels(const struct cuda_product_stage *p)
{
    for (uint32_t g = 1; g < p->n_seg; g++)
        if (p->seg[g].m->panels != p->seg[0].m->panels) return 0;
    return p->seg[0].m->panels;
}

/* The input as its readers want it: acts, and panels of one order at a time. */
struct experts_input {
    struct product_input acts;
    struct wk_cuda_input panels;
    uint32_t group; /* of the panels; 0: not made */
};

static wk_status experts_input(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               uint32_t rows, struct experts_input *i, const struct wk_err *err)
{
    const struct cuda_value *v = p->x.v;
    *i = (struct experts_input){ .panels = { .kind = WK_CUDA_IN_PANELS,
                                             .shift = v->shift,
                                             .x = v->data,
                                             .x_stride = wk_cuda_panel_places(p->seg[0].m->slabs, rows * p->slots) } };
    if (cuda_layout_of(p->in) == LAYOUT_PANELS) {
        i->group = p->in->group;
        return WK_OK;
    }
    wk_status s = cuda_product_input(x, p, r, 0, rows, &i->acts, err);
    i->panels.shift = i->acts.in.shift;
    i->panels.x = x->scratch;
    return s;
}

static wk_status experts_panels(struct executor *x, const struct cuda_product_stage *p, uint32_t items, uint32_t group,
                                struct experts_input *i, const struct wk_err *err)
{
    if (i->group == group) return WK_OK;
    i->group = group;
    const struct cuda_panels c = { .k = p->k,
                                   .items = items,
                                   .x_items = p->x.v->slots == 1 ? p->slots : 1,
                                   .experts = p->seg[0].m->slabs,
                                   .group = group,
                                   .groups = p->route->groups,
                                   .x = i->acts.in.x,
                                   .y = x->scratch,
                                   .places = i->panels.x_stride };
    return cuda_panels(&c, x->stream, err);
}

/* ---- large products ---------------------------------------------------------------------------------------------- */

static bool leaves_panels(const struct cuda_product_stage *p) { return cuda_layout_of(p->result) == LAYOUT_PANELS; }

/* n_seg segments from g on by their module's large products, 2 of them as a gated activation. */
static wk_status experts_call(struct executor *x, const struct cuda_product_stage *p, struct experts_input *i,
                              uint32_t g, uint32_t n_seg, uint32_t items, const struct wk_cuda_output *out,
                              const struct wk_err *err)
{
    const struct cuda_matrix *m = p->seg[g].m;
    wk_status s = experts_panels(x, p, items, m->panels, i, err);
    if (s) return s;
    struct wk_cuda_product q = { .struct_size = sizeof q,
                                 .rows = items,
                                 .k = p->k,
                                 .n_seg = n_seg,
                                 .input = i->panels,
                                 .top_k = p->slots,
                                 .n_experts = m->slabs,
                                 .groups = p->route->groups,
                                 .ticket = x->route_ticket,
                                 .out_group = leaves_panels(p) ? p->result->group : 0 };
    if (n_seg > 1) q.glu = p->glu->u.glu.fn, q.alpha = p->glu->u.glu.alpha, q.limit = p->glu->u.glu.limit;
    for (uint32_t j = 0; j < n_seg; j++)
        q.seg[j] = (struct wk_cuda_segment){ .tiles = p->seg[g + j].m->data,
                                             .bias = p->seg[g + j].bias,
                                             .ggml_type = p->seg[g + j].m->type->ggml_type,
                                             .n = m->n,
                                             .out = *out };
    return module_large(m->module, &q, x->stream, err);
}

/* One segment's results as F32 rows. */
static wk_status experts_segment(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                 struct experts_input *i, uint32_t g, uint32_t items, const struct product_output *to,
                                 const struct wk_err *err)
{
    if (p->seg[g].m->panels) return experts_call(x, p, i, g, 1, items, &to->out, err);
    return cuda_product_calls(x, p, r, &i->acts, &(struct product_call){ .first_seg = g, .n_seg = 1, .out = { *to } },
                              items, err);
}

/* The same, to where they go. */
static wk_status experts_single(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                struct experts_input *i, uint32_t g, uint32_t rows, const struct product_output *to,
                                const struct wk_err *err)
{
    const bool is_value = to->out.kind == WK_CUDA_OUT_F32 && !p->n_map;
    const struct product_output plain = is_value ? *to : cuda_plain_output(x->f32_scratch[0], to->n);
    wk_status s = experts_segment(x, p, r, i, g, rows * p->slots, &plain, err);
    return s || is_value ? s : cuda_product_finish(x, p, &plain, NULL, false, 0, rows, to, err);
}

wk_status cuda_prefill_experts(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               uint32_t rows, const struct wk_err *err)
{
    struct experts_input i;
    wk_status s = experts_input(x, p, r, rows, &i, err);
    for (uint32_t g = 0; !p->out && g < p->n_seg && !s; g++) {
        const struct product_output to = cuda_value_output(p->seg[g].out, r, p->seg[g].m->n);
        s = experts_single(x, p, r, &i, g, rows, &to, err);
    }
    if (s || !p->out) return s;
    const struct product_output to = cuda_value_output(p->out, r, p->seg[0].m->n);
    if (!p->glu) return experts_single(x, p, r, &i, 0, rows, &to, err);
    if (leaves_panels(p)) {
        const struct wk_cuda_output out = {
            .kind = WK_CUDA_OUT_PANELS, .shift = p->out->shift, .y = p->out->data, .y_stride = i.panels.x_stride
        };
        return experts_call(x, p, &i, 0, 2, rows * p->slots, &out, err);
    }
    const struct product_output half[2] = { cuda_plain_output(x->f32_scratch[0], to.n),
                                            cuda_plain_output(x->f32_scratch[1], to.n) };
    for (uint32_t g = 0; g < 2 && !s; g++) s = experts_segment(x, p, r, &i, g, rows * p->slots, &half[g], err);
    return s ? s : cuda_product_finish(x, p, &half[0], &half[1], false, 0, rows, &to, err);
}

/* ---- routers and routes ------------------------------------------------------------------------------------------ */

/* The rows as a router reads them, and leaves them in x->act: by its own norm, where their partials are there and every
 * block that shares a row norms not too many. */
static wk_status router_input(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              uint32_t rows, struct cuda_router *c, const struct wk_err *err)
{
    const struct cuda_value *v = p->x.v;
    struct product_input i;
    if (v->form == VALUE_F32 && r->few && rows <= WK_CUDA_FEW && cuda_norm_kind(p) == CUDA_NORM_RMS && !p->norm_b &&
        v->aux) {
        c->in = (struct wk_cuda_input){ .kind = WK_CUDA_IN_RMS,
                                        .eps = p->norm->u.norm.eps,
                                        .x = v->data,
                                        .aux = v->aux,
                                        .w = p->norm_w,
                                        .x_stride = v->stride,
                                        .row_index = p->x.gather ? x->prepare.logits_rows : NULL };
        c->act = x->act;
        return WK_OK;
    }
    wk_status s = cuda_product_input(x, p, r, 0, rows, &i, err);
    c->in = i.in;
    return s;
}

wk_status cuda_enqueue_router(struct executor *x, const struct cuda_product_stage *p,
                              const struct cuda_router_segment *g, const struct run *r, uint32_t rows,
                              struct cuda_router *c, const struct wk_err *err)
{
    c->pdl = true;
    c->rows = rows;
    c->k = p->k;
    c->experts = g->n;
    c->w = g->w;
    c->bias = g->bias;
    wk_status s = router_input(x, p, r, rows, c, err);
    return s ? s : cuda_router(c, x->stream, err);
}

struct cuda_route cuda_route_call(const struct executor *x, const struct cuda_choice *c, enum tape_rows rows)
{
    const struct tape_op *op = c->op;
    return (struct cuda_route){ .pdl = true,
                                .k = op->u.route.k,
                                .score = op->u.route.score,
                                .scale = op->u.route.scale,
                                .normalize = op->u.route.flags & WK_ROUTE_NORMALIZE,
                                .n_groups = op->u.route.groups,
                                .groups_used = op->u.route.groups_used,
                                .group_score = op->u.route.group_score,
                                .bias = c->bias,
                                .out = c->out->data,
                                .out_stride = c->out->stride,
                                .groups = c->out->groups,
                                .ticket = x->route_ticket,
                                .row_seq = rows == ROWS_ALL ? x->batch.row_seq : NULL };
}

wk_status cuda_enqueue_route(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t rows,
                             const struct wk_err *err)
{
    const struct cuda_router_segment *g = &s->route.router.routers[0];
    struct cuda_route route = cuda_route_call(x, &s->route.choice, s->rows);
    struct cuda_router c = { .y = x->f32_scratch[0], .y_stride = cuda_stride(g->n) };
    if (cuda_route_plain(&route)) c.route = route;
    wk_status st = cuda_enqueue_router(x, &s->route.router, g, r, rows, &c, err);
    if (st || c.route.k) return st;
    route.rows = rows;
    route.experts = g->n;
    route.logits = (struct cuda_rows){ c.y, c.y_stride, NULL };
    return cuda_route(&route, x->stream, err);
}
