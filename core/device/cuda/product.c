/* product.c: enqueues the products of a stage.
 *
 * Few rows (generated ones, and the wanted ones of prompts): the plugins' kernels, up to 256 rows a call; norm in the
 * prologue of as many rows as the module says, else converted before. Many rows (prompts): the matrices of a launch are
 * expanded to f16, side by side, and given to one product of the library, the experts of a layer to the plugins' large
 * products where they have them. Formats that f16 would round and other experts always take the plugins' kernels for
 * few rows, routers the host's own. What a call cannot do at its end (types that no module serves together, a residual
 * that is picked by other rows than the input) is done by one launch after it, on the same numbers in the same order,
 * so no bit depends on it. */
#include "device/cuda/executor.h"
#include "device/cuda/calls.h"

#include <string.h>

/* The input as it lies before a product: acts, or F32 rows with their partials. */
struct input {
    struct wk_cuda_input in;
    uint32_t k;
};
/* Results of one segment or of the stage. */
struct output {
    struct wk_cuda_output out;
    uint32_t n;
};

static const float *f32(const struct cuda_value *v) { return (const float *)(const void *)v->data; }

/* ---- the input ----------------------------------------------------------------------------------------- */

static uint32_t norm_kind(const struct cuda_product_stage *p)
{
    return p->norm ? 1 + p->norm->u.norm.kind : CUDA_NORM_NONE;
}

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
        wk_cuda_row_places(rows) > x->cap_wanted)
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

/* How the act between two stages passes in a run of few rows: `in` of the taker, PANELS or RUNS, where the giver leaves
 * them; else ACT. */
static struct wk_cuda_layout passed(const struct executor *x, const struct cuda_product_stage *giver,
                                    const struct cuda_product_stage *taker, const struct run *r, uint32_t rows)
{
    const struct wk_cuda_layout as_rows = { .in = WK_CUDA_IN_ACT, .out = WK_CUDA_OUT_ACT };
    if (!giver || !taker || !r->few) return as_rows;
    const struct wk_cuda_layout from = layout_of(x, giver, rows), to = layout_of(x, taker, rows);
    const bool meet = (from.out == WK_CUDA_OUT_PANELS && to.in == WK_CUDA_IN_PANELS) ||
                      (from.out == WK_CUDA_OUT_RUNS && to.in == WK_CUDA_IN_RUNS);
    return meet ? (struct wk_cuda_layout){ .in = to.in, .in_group = to.in_group, .out = from.out } : as_rows;
}

/* F32 rows to acts in the workspace. first: of the wanted rows, when they are picked. picked: products will read a
 * choice of the rows. */
static wk_status convert(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                         const uint32_t *pick, uint32_t first, uint32_t rows, bool picked, struct input *i,
                         const struct wk_err *err)
{
    const struct cuda_value *v = p->x.v;
    const uint32_t slots = v->slots;
    const bool by_runs = r->few && slots == 1 && !picked && layout_of(x, p, rows).in == WK_CUDA_IN_RUNS;
    const struct cuda_convert c = { .dependent = true,
                                    .rows = rows * slots,
                                    .width = v->width,
                                    .norm = norm_kind(p),
                                    .eps = p->norm ? p->norm->u.norm.eps : 0.0f,
                                    .shift = p->norm ? 0 : v->shift,
                                    .x = { f32(v) + (pick ? 0 : (uint64_t)first * slots * v->stride), v->stride,
                                           pick ? pick + first : NULL },
                                    .part = r->few && norm_kind(p) == CUDA_NORM_RMS ? v->aux : NULL,
                                    .w = p->norm_w,
                                    .b = p->norm_b,
                                    .act = x->act,
                                    .by_runs = by_runs };
    *i = (struct input){ .in = { .kind = by_runs ? WK_CUDA_IN_RUNS : WK_CUDA_IN_ACT, .shift = c.shift, .x = x->act },
                         .k = v->width };
    return cuda_convert(&c, x->stream, err);
}

/* Rows [first, first + rows) of the stage as input of products. Picked rows stay where they are wherever that is
 * possible. */
static wk_status make_input(struct executor *x, const struct cuda_product_stage *p, const struct run *r, uint32_t first,
                            uint32_t rows, struct input *i, const struct wk_err *err)
{
    const struct cuda_value *v = p->x.v;
    const uint32_t *pick = p->x.gather ? x->prepare.wanted : NULL;
    if (p->after_route) {
        *i = (struct input){ .in = { .kind = WK_CUDA_IN_ACT, .x = x->act }, .k = v->width };
        return WK_OK;
    }
    const uint32_t kind = passed(x, p->giver, p, r, rows).in;
    if (kind != WK_CUDA_IN_ACT) {
        *i = (struct input){
            .in = { .kind = kind, .shift = v->shift, .x = v->data, .x_stride = wk_cuda_row_places(rows) }, .k = v->width
        };
        return WK_OK;
    }
    if (v->form == VALUE_ACT) {
        const uint64_t at = pick ? 0 : (uint64_t)first * v->slots;
        *i = (struct input){ .in = { .kind = WK_CUDA_IN_ACT,
                                     .shift = v->shift,
                                     .x = v->data + at * wk_act_k(v->width) * 2,
                                     .row_index = pick ? pick + first : NULL },
                             .k = v->width };
        return WK_OK;
    }
    if (r->few && norm_kind(p) == CUDA_NORM_RMS && !p->norm_b && !p->experts && v->aux && norm_inside(p, pick, rows)) {
        *i = (struct input){ .in = { .kind = WK_CUDA_IN_RMS,
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
static struct wk_cuda_input input_from(const struct input *i, uint32_t first)
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

/* ---- the output ---------------------------------------------------------------------------------------- */

static struct output value_output(const struct cuda_value *v, const struct run *r, uint32_t n)
{
    const bool act = v->form == VALUE_ACT;
    /* Partials help the prologues of generated rows alone. */
    return (struct output){ .out = { .kind = act ? WK_CUDA_OUT_ACT : WK_CUDA_OUT_F32,
                                     .shift = act ? v->shift : 0,
                                     .y = v->data,
                                     .aux = r->few ? v->aux : NULL,
                                     .y_stride = v->stride },
                            .n = n };
}

static struct output plain_output(float *y, uint32_t n)
{
    return (struct output){ .out = { .kind = WK_CUDA_OUT_F32, .y = y, .y_stride = cuda_stride(n) }, .n = n };
}

static struct wk_cuda_output output_from(const struct output *o, uint32_t first)
{
    struct wk_cuda_output out = o->out;
    const bool act = out.kind == WK_CUDA_OUT_ACT;
    out.y = (uint8_t *)out.y + first * (act ? (uint64_t)wk_act_k(o->n) * 2 : out.y_stride * sizeof(float));
    if (out.aux) out.aux += (uint64_t)first * cuda_parts(o->n);
    return out;
}

/* Where the results of a stage without own outputs go: its value, or the logits from row `first` of the chunk on. */
static struct output stage_output(const struct executor *x, const struct cuda_product_stage *p, const struct run *r)
{
    const uint32_t n = p->seg[0].m->n;
    return p->out ? value_output(p->out, r, n)
                  : (struct output){ .out = { .kind = WK_CUDA_OUT_F32, .y = x->logits, .y_stride = x->logits_stride },
                                     .n = n };
}

/* ---- few rows: one call of a module -------------------------------------------------------------------- */

struct call {
    uint32_t first_seg, n_seg;
    bool epilogue; /* glu, maps and residual inside */
    struct output out[4];
    uint32_t out_group; /* of panels */
};

/* Items [at, at + n) of the call. */
static wk_status product_call(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              const struct input *i, const struct call *c, uint32_t at, uint32_t n,
                              const struct wk_err *err)
{
    struct wk_cuda_product q = { .struct_size = sizeof q,
                                 .flags = WK_CUDA_DEPENDENT,
                                 .rows = n,
                                 .k = p->k,
                                 .n_seg = c->n_seg,
                                 .input = input_from(i, at),
                                 .out_group = c->out_group,
                                 .workspace = x->expanded };
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
        q.residual = f32(p->residual.v) + (i->in.row_index ? 0 : at * p->residual.v->stride);
        q.residual_stride = p->residual.v->stride;
    }
    if (p->experts) {
        q.expert = (const uint32_t *)(const void *)p->route->data + p->route->slots;
        q.expert_stride = (uint32_t)p->route->stride;
        q.top_k = p->route->slots;
        q.x_items = p->x.v->slots == 1 ? p->route->slots : 1;
        q.n_experts = p->seg[0].m->slabs;
        q.groups = p->route->groups;
        if (r->few && p->after_experts) q.flags |= WK_CUDA_GROUPS_KNOWN;
    }
    return module_product(p->seg[c->first_seg].m->module, &q, x->stream, err);
}

static wk_status product_calls(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               const struct input *i, const struct call *c, uint32_t items, const struct wk_err *err)
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
static bool glu_together(const struct cuda_product_stage *p)
{
    const uint32_t types[2] = { p->seg[0].m->type->ggml_type, p->seg[1].m->type->ggml_type };
    return p->seg[0].m->module == p->seg[1].m->module &&
           (p->experts ? types[0] == types[1] : module_serves(p->seg[0].m->module, types, 2));
}

static bool read_once(const struct tape_program *p, uint32_t value)
{
    uint32_t readers = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t j = 0; j < TAPE_IN; j++) readers += p->ops[i].in[j] == value;
    return readers == 1;
}

bool cuda_product_follows(const struct cuda_product_stage *p, const struct cuda_product_stage *before)
{
    return p->experts && before->experts && p->route == before->route && p->x.v == before->out &&
           p->x.v->form == VALUE_ACT && (before->glu ? glu_together(before) : before->n_seg == 1);
}

void cuda_product_pass(const struct executor *x, struct cuda_stage *s, struct cuda_stage *next)
{
    struct cuda_product_stage *p = &s->product, *q = &next->product;
    if (s->tapped || next->tapped || s->rows != next->rows || next->logits || p->experts || q->experts || !p->glu ||
        !glu_together(p) || p->slots != 1 || q->n_seg != 1)
        return;
    if (!p->out || p->out != q->x.v || q->x.gather || q->norm || p->out->form != VALUE_ACT || p->out->width % 64 ||
        !read_once(x->program, s->launch->out))
        return;
    p->taker = q;
    q->giver = p;
}

/* ---- afterwards ---------------------------------------------------------------------------------------- */

/* bias of the segments, glu or maps, residual: on results that lie in a and, for glu, in b. */
static wk_status finish(struct executor *x, const struct cuda_product_stage *p, const struct output *a,
                        const struct output *b, bool with_bias, uint32_t first, uint32_t rows, const struct output *to,
                        const struct wk_err *err)
{
    struct cuda_finish f = { .dependent = true,
                             .rows = rows * p->slots,
                             .width = a->n,
                             .x = a->out.y,
                             .x_stride = a->out.y_stride,
                             .out = to->out };
    if (b) f.u = b->out.y, f.u_stride = b->out.y_stride;
    if (with_bias) f.bias = p->seg[0].bias, f.u_bias = b ? p->seg[1].bias : NULL;
    if (p->glu) f.glu = p->glu->u.glu.fn, f.alpha = p->glu->u.glu.alpha, f.limit = p->glu->u.glu.limit;
    for (uint32_t m = 0; m < p->n_map; m++) f.map[m].fn = p->map[m]->u.unary.fn, f.map[m].p = p->map[m]->u.unary.p;
    if (p->residual.v) {
        const bool pick = p->residual.gather;
        f.residual = (struct cuda_rows){ f32(p->residual.v) + (pick ? 0 : (uint64_t)first * p->residual.v->stride),
                                         p->residual.v->stride, pick ? x->prepare.wanted + first : NULL };
    }
    return cuda_finish(&f, x->stream, err);
}

/* ---- a stage on few rows ------------------------------------------------------------------------------- */

static wk_status few_glu(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                         const struct input *i, uint32_t first, uint32_t rows, const struct wk_err *err)
{
    struct output to = stage_output(x, p, r);
    const struct output half[2] = { plain_output(x->tmp[0], to.n), plain_output(x->tmp[1], to.n) };
    const struct wk_cuda_layout l = passed(x, p, p->taker, r, rows);
    if (l.out != WK_CUDA_OUT_ACT) to.out.kind = l.out, to.out.y_stride = wk_cuda_row_places(rows);
    if (glu_together(p))
        return product_calls(x, p, r, i,
                             &(struct call){ .n_seg = 2, .epilogue = true, .out = { to, to }, .out_group = l.in_group },
                             rows * p->slots, err);
    wk_status s = product_calls(x, p, r, i, &(struct call){ .first_seg = 0, .n_seg = 1, .out = { half[0] } },
                                rows * p->slots, err);
    if (!s)
        s = product_calls(x, p, r, i, &(struct call){ .first_seg = 1, .n_seg = 1, .out = { half[1] } }, rows * p->slots,
                          err);
    return s ? s : finish(x, p, &half[0], &half[1], false, first, rows, &to, err);
}

static wk_status few_single(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                            const struct input *i, uint32_t first, uint32_t rows, const struct wk_err *err)
{
    const struct output to = stage_output(x, p, r);
    /* One list of picked rows serves input and residual; where only one of them is picked, the residual comes after. */
    const bool inside = !p->residual.v || p->residual.gather == (i->in.row_index != NULL);
    if (inside)
        return product_calls(x, p, r, i, &(struct call){ .n_seg = 1, .epilogue = true, .out = { to } }, rows * p->slots,
                             err);
    const struct output plain = plain_output(x->tmp[0], to.n);
    wk_status s = product_calls(x, p, r, i, &(struct call){ .n_seg = 1, .out = { plain } }, rows * p->slots, err);
    return s ? s : finish(x, p, &plain, NULL, false, first, rows, &to, err);
}

static wk_status few_siblings(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              const struct input *i, uint32_t first_seg, uint32_t n_seg, uint32_t rows,
                              const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t g = first_seg, n; g < first_seg + n_seg && !s; g += n) {
        n = served_together(p, g);
        if (n > first_seg + n_seg - g) n = first_seg + n_seg - g;
        struct call c = { .first_seg = g, .n_seg = n };
        for (uint32_t j = 0; j < n; j++) c.out[j] = value_output(p->seg[g + j].out, r, p->seg[g + j].m->n);
        s = product_calls(x, p, r, i, &c, rows * p->slots, err);
    }
    return s;
}

/* ---- a stage on many rows ------------------------------------------------------------------------------ */

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
    bool join = p->glu || p->attended;
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

wk_status cuda_prepare_products(struct executor *x, const struct cuda_stage *s, const struct wk_err *err)
{
    const struct cuda_product_stage *p = &s->product;
    if (s->launch->kind != LAUNCH_PRODUCT || s->rows != ROWS_ALL || p->experts) return WK_OK;
    for (uint32_t g = 0;;) {
        const struct columns c = next_columns(p, &g);
        if (!c.n_seg) return WK_OK;
        wk_status st = cuda_gemm_prepare(x->gemm, c.n, p->k, err);
        if (st) return st;
    }
}

/* Where the joined columns of a stage go: apart from its value, if a gated activation or a conversion is to follow. */
static struct output joined_output(const struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                   uint32_t n)
{
    const struct output to = stage_output(x, p, r);
    return to.out.kind == WK_CUDA_OUT_ACT || p->glu ? plain_output(x->tmp[0], n) : to;
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
static struct output sibling_output(const struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                    const struct columns *l)
{
    return straight(p, l) ? value_output(p->seg[l->seg[0]].out, r, l->n) : plain_output(x->tmp[0], l->n);
}

static struct cuda_gemm_call large_call(const struct executor *x, const struct cuda_product_stage *p,
                                        const struct wk_cuda_input *in, const struct columns *l, uint32_t items,
                                        const struct output *to, const struct cuda_value *c)
{
    const uint32_t k32 = wk_act_k(p->k);
    return (struct cuda_gemm_call){ .rows = items,
                                    .n = l->n,
                                    .k = p->k,
                                    .w = x->expanded,
                                    .w_stride = k32,
                                    .x = in->x,
                                    .x_stride = k32,
                                    .c = c ? f32(c) : NULL,
                                    .c_stride = c ? c->stride : 0,
                                    .y = to->out.y,
                                    .y_stride = to->out.y_stride,
                                    .scale = (float)(1u << in->shift),
                                    .workspace = x->gemm_space };
}

wk_status cuda_load_products(struct executor *x, const struct cuda_stage *s, const struct wk_err *err)
{
    const struct cuda_product_stage *p = &s->product;
    if (s->launch->kind != LAUNCH_PRODUCT || s->rows != ROWS_ALL || p->experts) return WK_OK;
    const struct run r = { .rows = x->cap_all };
    const struct wk_cuda_input in = { .x = p->x.v->form == VALUE_ACT ? p->x.v->data : x->act };
    for (uint32_t g = 0;;) {
        const struct columns l = next_columns(p, &g);
        if (!l.n_seg) return WK_OK;
        const struct output to = p->out ? joined_output(x, p, &r, l.n) : sibling_output(x, p, &r, &l);
        const struct cuda_gemm_call c =
            large_call(x, p, &in, &l, x->cap_all * p->slots, &to, p->out && !finished_apart(p) ? p->residual.v : NULL);
        wk_status st = cuda_gemm_load(x->gemm, &c, x->stream, err);
        if (st) return st;
    }
}

/* y = x . all these columns, + c when not NULL: expansion, then one product of the library. */
static wk_status large_product(struct executor *x, const struct cuda_product_stage *p, const struct input *i,
                               const struct columns *l, uint32_t items, const struct output *to,
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
                                          .y = (uint8_t *)x->expanded + (uint64_t)l->at[g] * k32 * 2,
                                          .y_stride = k32 };
        s = type_expand(m->type, &e, x->stream, err);
    }
    const struct cuda_gemm_call g = large_call(x, p, &i->in, l, items, to, c);
    return s ? s : cuda_gemm_run(x->gemm, &g, x->stream, err);
}

/* Columns of a product that were made side by side. */
static struct output columns_at(const struct output *all, uint32_t at, uint32_t n)
{
    struct output o = *all;
    o.out.y = (float *)o.out.y + at;
    o.n = n;
    return o;
}

static wk_status many_joined(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                             const struct input *i, uint32_t rows, const struct wk_err *err)
{
    uint32_t first = 0;
    const struct columns l = next_columns(p, &first);
    const struct output to = stage_output(x, p, r), all = joined_output(x, p, r, l.n);
    const bool apart = finished_apart(p);
    wk_status s = large_product(x, p, i, &l, rows * p->slots, &all, apart ? NULL : p->residual.v, err);
    if (s || !apart) return s;
    const struct output a = columns_at(&all, 0, to.n), b = columns_at(&all, l.at[p->glu ? 1 : 0], to.n);
    return finish(x, p, &a, p->glu ? &b : NULL, true, 0, rows, &to, err);
}

/* One large product of siblings: straight into the value, or side by side and from there, with the biases. */
static wk_status many_columns(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              const struct input *i, const struct columns *l, uint32_t items, const struct wk_err *err)
{
    const struct output all = sibling_output(x, p, r, l);
    wk_status s = large_product(x, p, i, l, items, &all, NULL, err);
    for (uint32_t g = 0; g < l->n_seg && !s && !straight(p, l) && !p->attended; g++) {
        const struct cuda_segment *seg = &p->seg[l->seg[g]];
        const struct output to = value_output(seg->out, r, seg->m->n);
        s = cuda_finish(&(struct cuda_finish){ .dependent = true,
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

void cuda_product_attended(const struct executor *x, struct cuda_stage *s, struct cuda_stage *attend)
{
    struct cuda_product_stage *p = &s->product;
    struct cuda_attend *a = &attend->attend.many;
    const uint32_t value[3] = { attend->launch->q, attend->launch->k, attend->launch->v };
    if (value[1] == TAPE_NONE || value[2] == TAPE_NONE) return;
    if (s->launch->kind != LAUNCH_PRODUCT || s->rows != ROWS_ALL || s->tapped || attend->tapped || p->experts ||
        p->n_routers || p->n_map || p->glu || p->residual.v || p->out || p->n_seg != 3)
        return;
    for (uint32_t g = 0; g < 3; g++)
        if (!cuda_expands(p->seg[g].m) || p->seg[g].out != &x->values[value[g]] || !read_once(x->program, value[g]))
            return;
    uint32_t g = 0;
    p->attended = true;
    const struct columns l = next_columns(p, &g);
    a->q = x->tmp[0];
    a->k = x->tmp[0] + l.at[1];
    a->v = x->tmp[0] + l.at[2];
    a->q_stride = a->k_stride = a->v_stride = cuda_stride(l.n);
    a->q_bias = p->seg[0].bias;
    a->k_bias = p->seg[1].bias;
    a->v_bias = p->seg[2].bias;
}

static wk_status many_siblings(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               const struct input *i, uint32_t rows, const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t g = 0; g < p->n_seg && !s; g++)
        if (!cuda_expands(p->seg[g].m)) s = few_siblings(x, p, r, i, g, 1, rows, err);
    for (uint32_t g = 0; !s;) {
        const struct columns l = next_columns(p, &g);
        if (!l.n_seg) break;
        s = many_columns(x, p, r, i, &l, rows * p->slots, err);
    }
    return s;
}

/* ---- experts of prompts --------------------------------------------------------------------------------
 *
 * Which way a matrix goes is its own, never the launch's: so no bit depends on what was fused. */

bool cuda_product_large(const struct cuda_stage *s)
{
    const struct cuda_product_stage *p = &s->product;
    bool any = false;
    for (uint32_t g = 0; g < p->n_seg; g++) any |= p->seg[g].m->panels != 0;
    return any && p->experts && s->rows == ROWS_ALL;
}

/* The order of k of the panels that all segments read; 0: there is none. */
static uint32_t common_panels(const struct cuda_product_stage *p)
{
    for (uint32_t g = 1; g < p->n_seg; g++)
        if (p->seg[g].m->panels != p->seg[0].m->panels) return 0;
    return p->seg[0].m->panels;
}

uint32_t cuda_product_panels(const struct executor *x, const struct cuda_stage *s, const struct cuda_stage *next)
{
    const struct cuda_product_stage *p = &s->product, *q = &next->product;
    uint32_t readers = 0;
    if (!p->large || !q->large || !p->glu || !glu_together(p) || !p->seg[0].m->panels || !p->out->experts) return 0;
    for (uint32_t i = 0; i < x->program->n_ops; i++)
        for (uint32_t j = 0; j < TAPE_IN; j++) readers += x->program->ops[i].in[j] == s->launch->out;
    return readers == q->n_seg ? common_panels(q) : 0;
}

/* The input as its readers want it: acts, and panels of one order at a time. */
struct experts_input {
    struct input acts;
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
    if (p->from_panels) {
        i->group = common_panels(p);
        return WK_OK;
    }
    wk_status s = make_input(x, p, r, 0, rows, &i->acts, err);
    i->panels.shift = i->acts.in.shift;
    i->panels.x = x->expanded;
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
                                   .y = x->expanded,
                                   .places = i->panels.x_stride };
    return cuda_panels(&c, x->stream, err);
}

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
                                 .out_group = p->to_panels };
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
                                 struct experts_input *i, uint32_t g, uint32_t items, const struct output *to,
                                 const struct wk_err *err)
{
    if (p->seg[g].m->panels) return experts_call(x, p, i, g, 1, items, &to->out, err);
    return product_calls(x, p, r, &i->acts, &(struct call){ .first_seg = g, .n_seg = 1, .out = { *to } }, items, err);
}

/* The same, to where they go. */
static wk_status experts_single(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                struct experts_input *i, uint32_t g, uint32_t rows, const struct output *to,
                                const struct wk_err *err)
{
    const bool is_value = to->out.kind == WK_CUDA_OUT_F32 && !p->n_map;
    const struct output plain = is_value ? *to : plain_output(x->tmp[0], to->n);
    wk_status s = experts_segment(x, p, r, i, g, rows * p->slots, &plain, err);
    return s || is_value ? s : finish(x, p, &plain, NULL, false, 0, rows, to, err);
}

static wk_status experts_many(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              uint32_t rows, const struct wk_err *err)
{
    struct experts_input i;
    wk_status s = experts_input(x, p, r, rows, &i, err);
    for (uint32_t g = 0; !p->out && g < p->n_seg && !s; g++) {
        const struct output to = value_output(p->seg[g].out, r, p->seg[g].m->n);
        s = experts_single(x, p, r, &i, g, rows, &to, err);
    }
    if (s || !p->out) return s;
    const struct output to = value_output(p->out, r, p->seg[0].m->n);
    if (!p->glu) return experts_single(x, p, r, &i, 0, rows, &to, err);
    if (p->to_panels) {
        const struct wk_cuda_output out = {
            .kind = WK_CUDA_OUT_PANELS, .shift = p->out->shift, .y = p->out->data, .y_stride = i.panels.x_stride
        };
        return experts_call(x, p, &i, 0, 2, rows * p->slots, &out, err);
    }
    const struct output half[2] = { plain_output(x->tmp[0], to.n), plain_output(x->tmp[1], to.n) };
    for (uint32_t g = 0; g < 2 && !s; g++) s = experts_segment(x, p, r, &i, g, rows * p->slots, &half[g], err);
    return s ? s : finish(x, p, &half[0], &half[1], false, 0, rows, &to, err);
}

/* ---- routers ------------------------------------------------------------------------------------------- */

/* The rows as a router reads them, and leaves them in x->act: by its own norm, where their partials are there and every
 * block that shares a row norms not too many. */
static wk_status router_input(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              uint32_t rows, struct cuda_router *c, const struct wk_err *err)
{
    const struct cuda_value *v = p->x.v;
    struct input i;
    if (v->form == VALUE_F32 && r->few && rows <= WK_CUDA_FEW && norm_kind(p) == CUDA_NORM_RMS && !p->norm_b &&
        v->aux) {
        c->in = (struct wk_cuda_input){ .kind = WK_CUDA_IN_RMS,
                                        .eps = p->norm->u.norm.eps,
                                        .x = v->data,
                                        .aux = v->aux,
                                        .w = p->norm_w,
                                        .x_stride = v->stride,
                                        .row_index = p->x.gather ? x->prepare.wanted : NULL };
        c->act = x->act;
        return WK_OK;
    }
    wk_status s = make_input(x, p, r, 0, rows, &i, err);
    c->in = i.in;
    return s;
}

static wk_status enqueue_router(struct executor *x, const struct cuda_product_stage *p,
                                const struct cuda_router_segment *g, const struct run *r, uint32_t rows,
                                struct cuda_router *c, const struct wk_err *err)
{
    c->dependent = true;
    c->rows = rows;
    c->k = p->k;
    c->experts = g->n;
    c->w = g->w;
    c->bias = g->bias;
    wk_status s = router_input(x, p, r, rows, c, err);
    return s ? s : cuda_router(c, x->stream, err);
}

/* ---- stages -------------------------------------------------------------------------------------------- */

static bool joined(const struct cuda_stage *s) { return s->product.out || s->logits; }

/* Results by head, and to where they lie. */
static wk_status heads_product(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               const struct input *i, uint32_t rows, const struct wk_err *err)
{
    const wk_status s = few_siblings(x, p, r, i, 0, 1, rows, err);
    const struct cuda_value *to = p->padded[1];
    if (s || !to) return s;
    return cuda_copy_rows(x, rows, to->width, (struct cuda_rows){ x->tmp[1], to->width, NULL },
                          (float *)(void *)to->data, to->stride, err);
}

wk_status cuda_enqueue_product(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t first,
                               uint32_t rows, const struct wk_err *err)
{
    const struct cuda_product_stage *p = &s->product;
    for (uint32_t g = 0; g < p->n_routers; g++) {
        const struct cuda_router_segment *q = &p->routers[g];
        wk_status st = enqueue_router(
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
    if (p->large && !r->few) return experts_many(x, p, r, rows, err);
    const bool few = r->few || s->rows != ROWS_ALL || p->experts ||
                     (joined(s) && !(cuda_expands(p->seg[0].m) && cuda_expands(p->seg[p->n_seg - 1].m)));
    struct input i;
    wk_status st = WK_OK;
    if (p->padded[0])
        st = cuda_copy_rows(x, rows, p->padded[0]->width,
                            (struct cuda_rows){ f32(p->padded[0]), p->padded[0]->stride, NULL }, x->tmp[0],
                            p->padded[0]->width, err);
    if (!st) st = make_input(x, p, r, first, rows, &i, err);
    if (st) return st;
    if (s->launch->heads) return heads_product(x, p, r, &i, rows, err);
    if (!few) return joined(s) ? many_joined(x, p, r, &i, rows, err) : many_siblings(x, p, r, &i, rows, err);
    if (!joined(s)) return few_siblings(x, p, r, &i, 0, p->n_seg, rows, err);
    return p->glu ? few_glu(x, p, r, &i, first, rows, err) : few_single(x, p, r, &i, first, rows, err);
}

bool cuda_product_after_route(const struct cuda_stage *s, const struct cuda_stage *route)
{
    const struct cuda_product_stage *p = &s->product, *q = &route->product;
    return p->experts && p->norm && p->norm == q->norm && p->x.v == q->x.v && !p->x.gather && !q->x.gather &&
           s->rows == route->rows;
}

wk_status cuda_enqueue_route(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t rows,
                             const struct wk_err *err)
{
    const struct cuda_router_segment *g = &s->product.routers[0];
    struct cuda_route route = cuda_route_call(x, s);
    struct cuda_router c = { .y = x->tmp[0], .y_stride = cuda_stride(g->n) };
    if (cuda_route_plain(&route)) c.route = route;
    wk_status st = enqueue_router(x, &s->product, g, r, rows, &c, err);
    if (st || c.route.k) return st;
    route.rows = rows;
    route.experts = g->n;
    route.logits = (struct cuda_rows){ c.y, c.y_stride, NULL };
    return cuda_route(&route, x->stream, err);
}
