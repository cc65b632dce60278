/* product_decode.c: the decode path of products, generated rows and the logits rows of prompts: rows as input, calls of
 * the plugins' kernels, results, and what is done after a call.
 *
 * A call takes up to 256 rows. A norm is in the prologue of as many rows as the module says, else its rows are
 * converted before. Formats that f16 would round and experts without large products take this way in prompts, too. What
 * a call cannot do at its end (types that no module serves together, a residual that is picked by other rows than the
 * input) is done by one launch after it, on the same numbers in the same order, so no bit depends on it. */
#include "device/cuda/product.h"

#include <string.h>

#include "device/cuda_calls.h"

/* ---- the input --------------------------------------------------------------------------------------------------- */

/* Segments from `first` on that one call takes. */
static uint32_t served_together(const struct cuda_product_stage *p, uint32_t first)
{
    uint32_t types[4], n = 0;
    for (uint32_t g = first; g < p->n_seg; g++) {
        types[n] = p->seg[g].m->type->ggml_type;
        if (p->seg[g].m->module != p->seg[first].m->module ||
            (n && (p->experts || !module_serves(p->seg[first].m->module, types, n + 1))))
            break;
        n++;
    }
    return n;
}

/* The call that takes segments from `first` on, as far as a module's questions look at it; returns
 * how many it takes. */
static uint32_t outline(const struct cuda_product_stage *p, uint32_t first, uint32_t rows, struct wk_cuda_product *q)
{
    const uint32_t n = served_together(p, first);
    *q = (struct wk_cuda_product){
        .struct_size = sizeof *q, .rows = rows, .k = p->k, .n_seg = n, .glu = p->glu && n == 2 ? p->glu->u.glu.fn : 0
    };
    for (uint32_t i = 0; i < n; i++)
        q->seg[i].ggml_type = p->seg[first + i].m->type->ggml_type, q->seg[i].n = p->seg[first + i].m->n;
    return n;
}

/* Whether all calls of the stage take their norm in the prologue. */
static bool norm_inside(const struct cuda_product_stage *p, const uint32_t *pick, uint32_t rows)
{
    struct wk_cuda_product q;
    if (rows == 1) return true;
    if (pick || rows > WK_CUDA_FEW_NORM) return false;
    for (uint32_t g = 0; g < p->n_seg;) {
        const struct wk_quant_cuda *module = p->seg[g].m->module;
        g += outline(p, g, rows, &q);
        if (rows > module_norm_rows(module, &q)) return false;
    }
    return true;
}

/* How acts of the stage may lie: as all its calls say; else as rows. Where buffers end before the places of rows that
 * are not there, as rows, too; and in groups of eight rows that are not whole, of which nobody would write the rest. */
static struct wk_cuda_layout layout_of(const struct executor *x, const struct cuda_product_stage *p, uint32_t rows)
{
    const struct wk_cuda_layout as_rows = { .in = WK_CUDA_IN_ACT, .out = WK_CUDA_OUT_ACT };
    struct wk_cuda_layout l = as_rows;
    struct wk_cuda_product q;
    if (p->n_routers || p->experts || rows > WK_CUDA_FEW || rows % 8 || wk_cuda_row_places(rows) > x->cap_all ||
        wk_cuda_row_places(rows) > x->cap_logits_rows)
        return as_rows;
    for (uint32_t g = 0, n; g < p->n_seg; g += n) {
        const struct wk_quant_cuda *module = p->seg[g].m->module;
        n = outline(p, g, rows, &q);
        const struct wk_cuda_layout call = module_layout(module, &q);
        if (g == 0)
            l = call;
        else if (memcmp(&l, &call, sizeof l))
            return as_rows;
    }
    return l;
}

/* How the acts of an edge lie in a run of few rows: `in` of the stage that reads, PANELS or RUNS, where the stage that
 * makes them leaves them so; else ACT. */
static struct wk_cuda_layout passed(const struct executor *x, const struct cuda_edge *e, const struct run *r,
                                    uint32_t rows)
{
    const struct wk_cuda_layout as_rows = { .in = WK_CUDA_IN_ACT, .out = WK_CUDA_OUT_ACT };
    if (cuda_layout_of(e) != LAYOUT_CALLS || !r->few) return as_rows;
    const struct wk_cuda_layout from = layout_of(x, &e->from->product, rows), to = layout_of(x, &e->to->product, rows);
    const bool meet = (from.out == WK_CUDA_OUT_PANELS && to.in == WK_CUDA_IN_PANELS) ||
                      (from.out == WK_CUDA_OUT_RUNS && to.in == WK_CUDA_IN_RUNS);
    return meet ? (struct wk_cuda_layout){ .in = to.in, .in_group = to.in_group, .out = from.out } : as_rows;
}

/* F32 rows to acts in the workspace. first: of the logits rows, when they are picked. picked: products will read a
 * choice of the rows. */
static wk_status convert(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                         const uint32_t *pick, uint32_t first, uint32_t rows, bool picked, struct product_input *i,
                         const struct wk_err *err)
{
    const struct cuda_value *v = p->x.v;
    const uint32_t slots = v->slots;
    const bool by_runs = r->few && slots == 1 && !picked && layout_of(x, p, rows).in == WK_CUDA_IN_RUNS;
    const struct cuda_convert c = { .pdl = true,
                                    .rows = rows * slots,
                                    .width = v->width,
                                    .norm = cuda_norm_kind(p),
                                    .eps = p->norm ? p->norm->u.norm.eps : 0.0f,
                                    .shift = p->norm ? 0 : v->shift,
                                    .x = { cuda_f32(v) + (pick ? 0 : (uint64_t)first * slots * v->stride), v->stride,
                                           pick ? pick + first : NULL },
                                    .part = r->few && cuda_norm_kind(p) == CUDA_NORM_RMS ? v->aux : NULL,
                                    .w = p->norm_w,
                                    .b = p->norm_b,
                                    .act = x->act,
                                    .by_runs = by_runs };
    *i = (struct product_input){
        .in = { .kind = by_runs ? WK_CUDA_IN_RUNS : WK_CUDA_IN_ACT, .shift = c.shift, .x = x->act }, .k = v->width
    };
    return cuda_convert(&c, x->stream, err);
}

/* Rows [first, first + rows) of the stage as input of products. Picked rows stay where they are wherever that is
 * possible. */
wk_status cuda_product_input(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                             uint32_t first, uint32_t rows, struct product_input *i, const struct wk_err *err)
{
    const struct cuda_value *v = p->x.v;
    const uint32_t *pick = p->x.gather ? x->prepare.logits_rows : NULL;
    if (p->in->fused) {
        *i = (struct product_input){ .in = { .kind = WK_CUDA_IN_ACT, .x = x->act }, .k = v->width };
        return WK_OK;
    }
    const uint32_t kind = passed(x, p->in, r, rows).in;
    if (kind != WK_CUDA_IN_ACT) {
        *i = (struct product_input){
            .in = { .kind = kind, .shift = v->shift, .x = v->data, .x_stride = wk_cuda_row_places(rows) }, .k = v->width
        };
        return WK_OK;
    }
    if (v->form == VALUE_ACT) {
        const uint64_t at = pick ? 0 : (uint64_t)first * v->slots;
        *i = (struct product_input){ .in = { .kind = WK_CUDA_IN_ACT,
                                             .shift = v->shift,
                                             .x = v->data + at * wk_act_k(v->width) * 2,
                                             .row_index = pick ? pick + first : NULL },
                                     .k = v->width };
        return WK_OK;
    }
    if (r->few && cuda_norm_kind(p) == CUDA_NORM_RMS && !p->norm_b && !p->experts && v->aux &&
        norm_inside(p, pick, rows)) {
        *i = (struct product_input){ .in = { .kind = WK_CUDA_IN_RMS,
                                             .eps = p->norm->u.norm.eps,
                                             .x = v->data,
                                             .aux = v->aux,
                                             .w = p->norm_w,
                                             .x_stride = v->stride,
                                             .row_index = pick },
                                     .k = v->width };
        return WK_OK;
    }
    /* A residual that is picked too wants the input unpicked; in a run of few rows both can stay. */
    const bool keep = pick && r->few && !p->experts;
    wk_status s = convert(x, p, r, keep ? NULL : pick, keep ? 0 : first, keep ? r->rows : rows, keep, i, err);
    if (keep) i->in.row_index = pick;
    return s;
}

/* The same input from item `first` on. */
static struct wk_cuda_input input_from(const struct product_input *i, uint32_t first)
{
    struct wk_cuda_input in = i->in;
    if (in.row_index) {
        in.row_index += first;
        return in;
    }
    const uint64_t bytes = in.kind == WK_CUDA_IN_RMS
                               ? in.x_stride * sizeof(float)
                               : (uint64_t)wk_act_k(i->k) * 2; /* by runs: of a multiple of 32 rows */
    in.x = (const uint8_t *)in.x + first * bytes;
    if (in.aux) in.aux += (uint64_t)first * cuda_parts(i->k);
    return in;
}

/* ---- the output -------------------------------------------------------------------------------------------------- */

struct product_output cuda_value_output(const struct cuda_value *v, const struct run *r, uint32_t n)
{
    const bool act = v->form == VALUE_ACT;
    /* Partials help the prologues of generated rows alone. */
    return (struct product_output){ .out = { .kind = act ? WK_CUDA_OUT_ACT : WK_CUDA_OUT_F32,
                                             .shift = act ? v->shift : 0,
                                             .y = v->data,
                                             .aux = r->few ? v->aux : NULL,
                                             .y_stride = v->stride },
                                    .n = n };
}

struct product_output cuda_plain_output(float *y, uint32_t n)
{
    return (struct product_output){ .out = { .kind = WK_CUDA_OUT_F32, .y = y, .y_stride = cuda_stride(n) }, .n = n };
}

static struct wk_cuda_output output_from(const struct product_output *o, uint32_t first)
{
    struct wk_cuda_output out = o->out;
    const bool act = out.kind == WK_CUDA_OUT_ACT;
    out.y = (uint8_t *)out.y + first * (act ? (uint64_t)wk_act_k(o->n) * 2 : out.y_stride * sizeof(float));
    if (out.aux) out.aux += (uint64_t)first * cuda_parts(o->n);
    return out;
}

/* Where the results of a stage without own outputs go: its value, or the logits from row `first` of the chunk on. */
struct product_output cuda_stage_output(const struct executor *x, const struct cuda_product_stage *p,
                                        const struct run *r)
{
    const uint32_t n = p->seg[0].m->n;
    return p->out ? cuda_value_output(p->out, r, n)
                  : (struct product_output){
                        .out = { .kind = WK_CUDA_OUT_F32, .y = x->logits, .y_stride = x->logits_stride }, .n = n
                    };
}

/* ---- one call of a module ---------------------------------------------------------------------------------------- */

/* Items [at, at + n) of the call. */
static wk_status product_call(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              const struct product_input *i, const struct product_call *c, uint32_t at, uint32_t n,
                              const struct wk_err *err)
{
    struct wk_cuda_product q = { .struct_size = sizeof q,
                                 .flags = WK_CUDA_DEPENDENT,
                                 .rows = n,
                                 .k = p->k,
                                 .n_seg = c->n_seg,
                                 .input = input_from(i, at),
                                 .out_group = c->out_group,
                                 .workspace = x->scratch };
    for (uint32_t g = 0; g < c->n_seg; g++) {
        const struct cuda_segment *seg = &p->seg[c->first_seg + g];
        q.seg[g] = (struct wk_cuda_segment){ .tiles = seg->m->data,
                                             .bias = seg->bias,
                                             .ggml_type = seg->m->type->ggml_type,
                                             .n = seg->m->n,
                                             .out = output_from(&c->out[g], at) };
    }
    if (c->epilogue && p->glu) q.glu = p->glu->u.glu.fn, q.alpha = p->glu->u.glu.alpha, q.limit = p->glu->u.glu.limit;
    for (uint32_t m = 0; c->epilogue && m < p->n_map; m++)
        q.map[m].fn = p->map[m]->u.unary.fn, q.map[m].p = p->map[m]->u.unary.p;
    if (c->epilogue && p->residual.v) {
        q.residual = cuda_f32(p->residual.v) + (i->in.row_index ? 0 : at * p->residual.v->stride);
        q.residual_stride = p->residual.v->stride;
    }
    if (p->experts) {
        q.expert = (const uint32_t *)(const void *)p->route->data + p->route->slots;
        q.expert_stride = (uint32_t)p->route->stride;
        q.top_k = p->route->slots;
        q.x_items = p->x.v->slots == 1 ? p->route->slots : 1;
        q.n_experts = p->seg[0].m->slabs;
        q.groups = p->route->groups;
        if (r->few && p->choice && p->choice->groups_ready) q.flags |= WK_CUDA_GROUPS_KNOWN;
    }
    return module_product(p->seg[c->first_seg].m->module, &q, x->stream, err);
}

wk_status cuda_product_calls(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                             const struct product_input *i, const struct product_call *c, uint32_t items,
                             const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t at = 0, n; at < items && !s; at += n) {
        n = p->experts || items - at < WK_CUDA_ROWS ? items - at : WK_CUDA_ROWS;
        s = product_call(x, p, r, i, c, at, n, err);
    }
    return s;
}

/* A gated activation's two segments in one call. Experts by groups are of one type a call, which files make them
 * anyway. */
bool cuda_glu_together(const struct cuda_product_stage *p)
{
    const uint32_t types[2] = { p->seg[0].m->type->ggml_type, p->seg[1].m->type->ggml_type };
    return p->seg[0].m->module == p->seg[1].m->module &&
           (p->experts ? types[0] == types[1] : module_serves(p->seg[0].m->module, types, 2));
}

/* ---- afterwards -------------------------------------------------------------------------------------------------- */

/* bias of the segments, glu or maps, residual: on results that lie in a and, for glu, in b. */
wk_status cuda_product_finish(struct executor *x, const struct cuda_product_stage *p, const struct product_output *a,
                              const struct product_output *b, bool with_bias, uint32_t first, uint32_t rows,
                              const struct product_output *to, const struct wk_err *err)
{
    struct cuda_finish f = {
        .pdl = true, .rows = rows * p->slots, .width = a->n, .x = a->out.y, .x_stride = a->out.y_stride, .out = to->out
    };
    if (b) f.u = b->out.y, f.u_stride = b->out.y_stride;
    if (with_bias) f.bias = p->seg[0].bias, f.u_bias = b ? p->seg[1].bias : NULL;
    if (p->glu) f.glu = p->glu->u.glu.fn, f.alpha = p->glu->u.glu.alpha, f.limit = p->glu->u.glu.limit;
    for (uint32_t m = 0; m < p->n_map; m++) f.map[m].fn = p->map[m]->u.unary.fn, f.map[m].p = p->map[m]->u.unary.p;
    if (p->residual.v) {
        const bool pick = p->residual.gather;
        f.residual = (struct cuda_rows){ cuda_f32(p->residual.v) + (pick ? 0 : (uint64_t)first * p->residual.v->stride),
                                         p->residual.v->stride, pick ? x->prepare.logits_rows + first : NULL };
    }
    return cuda_finish(&f, x->stream, err);
}

/* ---- a stage ----------------------------------------------------------------------------------------------------- */

static wk_status decode_glu(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                            const struct product_input *i, uint32_t first, uint32_t rows, const struct wk_err *err)
{
    struct product_output to = cuda_stage_output(x, p, r);
    const struct product_output half[2] = { cuda_plain_output(x->f32_scratch[0], to.n),
                                            cuda_plain_output(x->f32_scratch[1], to.n) };
    const struct wk_cuda_layout l = passed(x, p->result, r, rows);
    if (l.out != WK_CUDA_OUT_ACT) to.out.kind = l.out, to.out.y_stride = wk_cuda_row_places(rows);
    if (cuda_glu_together(p))
        return cuda_product_calls(
            x, p, r, i,
            &(struct product_call){ .n_seg = 2, .epilogue = true, .out = { to, to }, .out_group = l.in_group },
            rows * p->slots, err);
    wk_status s = cuda_product_calls(
        x, p, r, i, &(struct product_call){ .first_seg = 0, .n_seg = 1, .out = { half[0] } }, rows * p->slots, err);
    if (!s)
        s = cuda_product_calls(x, p, r, i, &(struct product_call){ .first_seg = 1, .n_seg = 1, .out = { half[1] } },
                               rows * p->slots, err);
    return s ? s : cuda_product_finish(x, p, &half[0], &half[1], false, first, rows, &to, err);
}

static wk_status decode_single(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               const struct product_input *i, uint32_t first, uint32_t rows, const struct wk_err *err)
{
    const struct product_output to = cuda_stage_output(x, p, r);
    /* One list of picked rows serves input and residual; where only one of them is picked, the residual comes after. */
    const bool inside = !p->residual.v || p->residual.gather == (i->in.row_index != NULL);
    if (inside)
        return cuda_product_calls(x, p, r, i, &(struct product_call){ .n_seg = 1, .epilogue = true, .out = { to } },
                                  rows * p->slots, err);
    const struct product_output plain = cuda_plain_output(x->f32_scratch[0], to.n);
    wk_status s =
        cuda_product_calls(x, p, r, i, &(struct product_call){ .n_seg = 1, .out = { plain } }, rows * p->slots, err);
    return s ? s : cuda_product_finish(x, p, &plain, NULL, false, first, rows, &to, err);
}

wk_status cuda_decode_siblings(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               const struct product_input *i, uint32_t first_seg, uint32_t n_seg, uint32_t rows,
                               const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t g = first_seg, n; g < first_seg + n_seg && !s; g += n) {
        n = served_together(p, g);
        if (n > first_seg + n_seg - g) n = first_seg + n_seg - g;
        struct product_call c = { .first_seg = g, .n_seg = n };
        for (uint32_t j = 0; j < n; j++) c.out[j] = cuda_value_output(p->seg[g + j].out, r, p->seg[g + j].m->n);
        s = cuda_product_calls(x, p, r, i, &c, rows * p->slots, err);
    }
    return s;
}

wk_status cuda_decode_joined(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                             const struct product_input *i, uint32_t first, uint32_t rows, const struct wk_err *err)
{
    return p->glu ? decode_glu(x, p, r, i, first, rows, err) : decode_single(x, p, r, i, first, rows, err);
}
