/* product_prefill.c: the prefill path of dense products: the matrices of a launch are expanded to f16, side by side,
 * and given to one product of the library; what is left of the stage (biases, gated activation, maps, residual) is done
 * by one launch after it. Matrices that f16 would round take the decode path. */
#include "device/cuda/product.h"

#include "device/cuda_calls.h"

/* ---- columns side by side ---------------------------------------------------------------------------------------- */

/* Segments side by side: each begins at a multiple of 16 columns, and what lies between is nobody's. */
struct columns {
    uint32_t n_seg, seg[4], at[4], n;
};

enum { NARROW = 1024 }; /* columns below which no tile of the library fills the machine */

static struct columns one_segment(const struct cuda_product_stage *p, uint32_t g)
{
    return (struct columns){ .n_seg = 1, .seg = { g }, .n = p->seg[g].m->n };
}

static void add_segment(const struct cuda_product_stage *p, struct columns *c, uint32_t g)
{
    c->seg[c->n_seg] = g;
    c->at[c->n_seg++] = c->n = (uint32_t)cuda_stride(c->n);
    c->n += p->seg[g].m->n;
}

/* The next large product of the stage, which takes its segments from *g on; n_seg 0: there is none. A gated
 * activation's two are one product: they meet afterwards anyway. So are siblings that an attention reads side by side,
 * of which one has a bias, which is added afterwards, or few columns; the rest go straight to their values. */
static struct columns next_columns(const struct cuda_product_stage *p, uint32_t *g)
{
    struct columns c = { 0 };
    bool join = p->glu || cuda_layout_of(p->result) == LAYOUT_COLUMNS;
    for (uint32_t i = 0; i < p->n_seg; i++)
        join |= cuda_expands(p->seg[i].m) && (p->seg[i].bias || p->seg[i].m->n < NARROW);
    for (; *g < p->n_seg; ++*g) {
        if (!cuda_expands(p->seg[*g].m)) continue;
        if (join)
            add_segment(p, &c, *g);
        else
            return one_segment(p, (*g)++);
    }
    return c;
}

/* ---- the product of the library ---------------------------------------------------------------------------------- */

/* Where the joined columns of a stage go: apart from its value, if a gated activation or a conversion is to follow. */
static struct product_output joined_output(const struct executor *x, const struct cuda_product_stage *p,
                                           const struct run *r, uint32_t n)
{
    const struct product_output to = cuda_stage_output(x, p, r);
    return to.out.kind == WK_CUDA_OUT_ACT || p->glu ? cuda_plain_output(x->f32_scratch[0], n) : to;
}

/* Does a launch of its own finish them? A sum is rounded once: the residual is then added there,
 * else in the product. */
static bool finished_apart(const struct cuda_product_stage *p)
{
    return (p->out && p->out->form == VALUE_ACT) || p->glu || p->n_map || p->seg[0].bias;
}

/* Where columns of siblings go: straight into the value of one, or side by side for what comes after. */
static bool straight(const struct cuda_product_stage *p, const struct columns *l)
{
    const struct cuda_segment *only = &p->seg[l->seg[0]];
    return l->n_seg == 1 && !only->bias && only->out->form == VALUE_F32;
}

static struct product_output sibling_output(const struct executor *x, const struct cuda_product_stage *p,
                                            const struct run *r, const struct columns *l)
{
    return straight(p, l) ? cuda_value_output(p->seg[l->seg[0]].out, r, l->n)
                          : cuda_plain_output(x->f32_scratch[0], l->n);
}

static struct cuda_gemm_call large_call(const struct executor *x, const struct cuda_product_stage *p,
                                        const struct wk_cuda_input *in, const struct columns *l, uint32_t items,
                                        const struct product_output *to, const struct cuda_value *c)
{
    const uint32_t k32 = wk_act_k(p->k);
    return (struct cuda_gemm_call){ .rows = items,
                                    .n = l->n,
                                    .k = p->k,
                                    .w = x->scratch,
                                    .w_stride = k32,
                                    .x = in->x,
                                    .x_stride = k32,
                                    .c = c ? cuda_f32(c) : NULL,
                                    .c_stride = c ? c->stride : 0,
                                    .y = to->out.y,
                                    .y_stride = to->out.y_stride,
                                    .scale = (float)(1u << in->shift),
                                    .workspace = x->gemm_space };
}

wk_status cuda_prepare_products(struct executor *x, const struct cuda_stage *s, const struct wk_err *err)
{
    const struct cuda_product_stage *p = &s->product;
    if (s->kind != STAGE_PRODUCT || s->rows != ROWS_ALL || p->experts) return WK_OK;
    for (uint32_t g = 0;;) {
        const struct columns c = next_columns(p, &g);
        if (!c.n_seg) return WK_OK;
        wk_status st = cuda_gemm_prepare(x->gemm, c.n, p->k, err);
        if (st) return st;
    }
}

wk_status cuda_load_products(struct executor *x, const struct cuda_stage *s, const struct wk_err *err)
{
    const struct cuda_product_stage *p = &s->product;
    if (s->kind != STAGE_PRODUCT || s->rows != ROWS_ALL || p->experts) return WK_OK;
    const struct run r = { .rows = x->cap_all };
    const struct wk_cuda_input in = { .x = p->x.v->form == VALUE_ACT ? p->x.v->data : x->act };
    for (uint32_t g = 0;;) {
        const struct columns l = next_columns(p, &g);
        if (!l.n_seg) return WK_OK;
        const struct product_output to = p->out ? joined_output(x, p, &r, l.n) : sibling_output(x, p, &r, &l);
        const struct cuda_gemm_call c =
            large_call(x, p, &in, &l, x->cap_all * p->slots, &to, p->out && !finished_apart(p) ? p->residual.v : NULL);
        wk_status st = cuda_gemm_load(x->gemm, &c, x->stream, err);
        if (st) return st;
    }
}

/* y = x . all these columns, + c when not NULL: expansion, then one product of the library. */
static wk_status large_product(struct executor *x, const struct cuda_product_stage *p, const struct product_input *i,
                               const struct columns *l, uint32_t items, const struct product_output *to,
                               const struct cuda_value *c, const struct wk_err *err)
{
    const uint32_t k32 = wk_act_k(p->k);
    wk_status s = WK_OK;
    for (uint32_t g = 0; g < l->n_seg && !s; g++) {
        const struct cuda_matrix *m = p->seg[l->seg[g]].m;
        const struct wk_cuda_expand e = { .struct_size = sizeof e,
                                          .k = m->k,
                                          .n_rows = m->n,
                                          .flags = WK_CUDA_DEPENDENT,
                                          .tiles = m->data,
                                          .y = (uint8_t *)x->scratch + (uint64_t)l->at[g] * k32 * 2,
                                          .y_stride = k32 };
        s = type_expand(m->type, &e, x->stream, err);
    }
    const struct cuda_gemm_call g = large_call(x, p, &i->in, l, items, to, c);
    return s ? s : cuda_gemm_run(x->gemm, &g, x->stream, err);
}

/* Columns of a product that were made side by side. */
static struct product_output columns_at(const struct product_output *all, uint32_t at, uint32_t n)
{
    struct product_output o = *all;
    o.out.y = (float *)o.out.y + at;
    o.n = n;
    return o;
}

/* ---- a stage ----------------------------------------------------------------------------------------------------- */

wk_status cuda_prefill_joined(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              const struct product_input *i, uint32_t rows, const struct wk_err *err)
{
    uint32_t first = 0;
    const struct columns l = next_columns(p, &first);
    const struct product_output to = cuda_stage_output(x, p, r), all = joined_output(x, p, r, l.n);
    const bool apart = finished_apart(p);
    wk_status s = large_product(x, p, i, &l, rows * p->slots, &all, apart ? NULL : p->residual.v, err);
    if (s || !apart) return s;
    const struct product_output a = columns_at(&all, 0, to.n), b = columns_at(&all, l.at[p->glu ? 1 : 0], to.n);
    return cuda_product_finish(x, p, &a, p->glu ? &b : NULL, true, 0, rows, &to, err);
}

/* One large product of siblings: straight into the value, or side by side and from there, with the biases. */
static wk_status prefill_columns(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                 const struct product_input *i, const struct columns *l, uint32_t items,
                                 const struct wk_err *err)
{
    const struct product_output all = sibling_output(x, p, r, l);
    wk_status s = large_product(x, p, i, l, items, &all, NULL, err);
    for (uint32_t g = 0; g < l->n_seg && !s && cuda_layout_of(p->result) != LAYOUT_COLUMNS && !straight(p, l); g++) {
        const struct cuda_segment *seg = &p->seg[l->seg[g]];
        const struct product_output to = cuda_value_output(seg->out, r, seg->m->n);
        s = cuda_finish(&(struct cuda_finish){ .pdl = true,
                                               .rows = items,
                                               .width = to.n,
                                               .x = (float *)all.out.y + l->at[g],
                                               .x_stride = all.out.y_stride,
                                               .bias = seg->bias,
                                               .out = to.out },
                        x->stream, err);
    }
    return s;
}

void cuda_attend_columns(const struct executor *x, const struct cuda_product_stage *p, struct cuda_attend *a)
{
    uint32_t g = 0;
    const struct columns l = next_columns(p, &g);
    a->q = x->f32_scratch[0];
    a->k = x->f32_scratch[0] + l.at[1];
    a->v = x->f32_scratch[0] + l.at[2];
    a->q_stride = a->k_stride = a->v_stride = cuda_stride(l.n);
    a->q_bias = p->seg[0].bias;
    a->k_bias = p->seg[1].bias;
    a->v_bias = p->seg[2].bias;
}

wk_status cuda_prefill_siblings(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                const struct product_input *i, uint32_t rows, const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t g = 0; g < p->n_seg && !s; g++)
        if (!cuda_expands(p->seg[g].m)) s = cuda_decode_siblings(x, p, r, i, g, 1, rows, err);
    for (uint32_t g = 0; !s;) {
        const struct columns l = next_columns(p, &g);
        if (!l.n_seg) break;
        s = prefill_columns(x, p, r, i, &l, rows * p->slots, err);
    }
    return s;
}
