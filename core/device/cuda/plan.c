/* plan.c: from a tape to bytes: which matrices and vectors are kept, in what form each value lies in its buffer, and
 * the carving of all device memory. Pure: planning needs no GPU, only the plugins' word on the size of a tile.
 *
 * One function carves for planning and for opening, so what is announced is what is taken. Sizes are maxima over the
 * launches: the stages of a run follow each other on one stream and share one workspace. */
#include "device/cuda/executor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "device/kv_pages.h"
#include "device/step_check.h"
#include "device/cuda_calls.h"

/* ---- options and what is not served -------------------------------------------------------------------- */

static wk_status check_options(const struct tape_program *p, const struct device_options *o, const struct wk_err *err)
{
    enum { MAX_ROWS = 1 << 16 };
    if (o->exact)
        return wk_fail(err, WK_UNSUPPORTED, "--exact is the CPU's: on cuda activations are f16; use --device cpu");
    if (o->kv_type != KV_F16)
        return wk_fail(err, WK_UNSUPPORTED,
                       "an F32 cache is the CPU's: on cuda keys and values are f16; use --device cpu");
    const wk_status status = device_check_options(p, o, MAX_ROWS, err);
    if (status) return status;
    if (!o->find_cuda) return wk_fail(err, WK_INTERNAL, "cuda was not told where the plugins' kernels are");
    return WK_OK;
}

/* The running rows of a pool are there once. */
static wk_status check_pools(const struct tape_program *p, const struct wk_err *err)
{
    uint32_t pools = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) pools += p->ops[i].kind == WK_OP_POOL;
    if (pools < 2) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED, "%u pools: cuda serves one; use --device cpu", pools);
}

static bool serves_heads(const struct tape_op *op)
{
    const uint32_t dk = op->u.attn.head_k, dv = op->u.attn.head_v;
    return op->u.attn.value_in_key ? cuda_latent_serves(dk, dv) : cuda_attend_serves(dk, dv);
}

static wk_status check_ops(const struct tape_program *p, const struct wk_err *err)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *op = &p->ops[i];
        if (op->kind == WK_OP_STATE && !cuda_state_serves(op->u.state.head_k, op->u.state.head_v))
            return wk_fail(err, WK_UNSUPPORTED,
                           "%s: heads of %u (keys) and %u (values): cuda serves states of at most %d each; use --device"
                           " cpu",
                           p->values[op->out].name, op->u.state.head_k, op->u.state.head_v, CUDA_STATE_HEAD);
        if (op->kind == WK_OP_ROUTE && op->u.route.tap_ids)
            return wk_fail(err, WK_UNSUPPORTED, "%s.ids: cuda shows no taps of experts' numbers; use --device cpu",
                           p->values[op->out].name);
        if (op->kind == WK_OP_ATTENTION && !serves_heads(op))
            return wk_fail(err, WK_UNSUPPORTED,
                           "%s: heads of %u (keys) and %u (values): cuda does not serve these sizes; use --device cpu",
                           p->values[op->out].name, op->u.attn.head_k, op->u.attn.head_v);
    }
    return check_pools(p, err);
}

/* ---- matrices and vectors ------------------------------------------------------------------------------ */

const struct cuda_matrix *cuda_matrix_of(const struct executor *x, uint32_t tensor, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < x->n_matrices; i++) {
        const struct cuda_matrix *m = &x->matrices[i];
        if (m->tensor == &x->program->tensors[tensor] && m->first == first && m->n == n) return m;
    }
    return NULL;
}

static wk_status find_type(struct executor *x, const struct tape_tensor *t, struct cuda_matrix *m,
                           const struct wk_err *err)
{
    const uint32_t ggml_type = t->type->ggml_type;
    wk_status s = x->o.find_cuda(x->o.find_user, ggml_type, &m->module, err);
    if (s) return s;
    for (uint32_t i = 0; i < m->module->n_types && !m->type; i++)
        if (m->module->types[i]->ggml_type == ggml_type) m->type = m->module->types[i];
    if (!m->type)
        return wk_fail(err, WK_UNSUPPORTED, "%s: %s has no CUDA kernels for its type %u", t->name, m->module->id,
                       ggml_type);
    for (uint32_t i = 0; i < x->n_modules; i++)
        if (x->modules[i] == m->module) return WK_OK;
    x->modules[x->n_modules++] = m->module;
    return WK_OK;
}

static wk_status add_matrix(struct executor *x, uint32_t tensor, uint32_t first, uint32_t n, const struct wk_err *err)
{
    if (cuda_matrix_of(x, tensor, first, n)) return WK_OK;
    const struct tape_tensor *t = &x->program->tensors[tensor];
    struct cuda_matrix *m = &x->matrices[x->n_matrices];
    *m = (struct cuda_matrix){
        .tensor = t, .first = first, .n = n, .k = t->cols, .slabs = t->slabs, .tiles = (n + 15) / 16
    };
    wk_status s = find_type(x, t, m, err);
    if (s) return s;
    /* A module's word, of which everything that is laid out below is made: no less than the rows' own bytes, no more
     * than 8 bytes a value. */
    const uint64_t bytes = type_tile_bytes(m->type, t->cols),
                   least = WK_TILE_ROWS * (t->bytes / ((uint64_t)t->rows * t->slabs));
    const uint64_t most = (uint64_t)WK_TILE_ROWS * t->cols * 8 + 2048;
    if (bytes % 16 || bytes < least || bytes > most)
        return wk_fail(err, WK_INVALID,
                       "%s: %s: tile_bytes(%u) of type %u is %" PRIu64 "; a multiple of 16 in %" PRIu64 "..%" PRIu64
                       " expected",
                       t->name, m->module->id, t->cols, m->type->ggml_type, bytes, least, most);
    m->tile_bytes = bytes;
    m->panels = t->slabs > 1 && t->slabs <= WK_CUDA_LARGE_EXPERTS ? module_panels(m->module, m->type->ggml_type) : 0;
    if (m->panels != 0 && m->panels != 16 && m->panels != 32)
        return wk_fail(err, WK_INVALID, "%s: %s: panels(%u) is %u; 0, 16 or 32 expected", t->name, m->module->id,
                       m->type->ggml_type, m->panels);
    x->n_matrices++;
    return WK_OK;
}

static wk_status find_uses(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    x->uses = cuda_list(x, p->n_values, sizeof *x->uses);
    if (!x->uses) return wk_fail(err, WK_NO_MEMORY, "out of memory for the list of %u values", p->n_values);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *op = &p->ops[i];
        for (uint32_t j = 0; j < TAPE_IN; j++)
            if (op->in[j] != TAPE_NONE) x->uses[op->in[j]].reads++;
        if (op->kind == WK_OP_ROUTE) x->uses[op->in[0]].by_route = true;
    }
    return WK_OK;
}

bool cuda_is_router(const struct executor *x, const struct tape_segment *g)
{
    const struct tape_op *linear = &x->program->ops[g->op];
    return linear->kind == WK_OP_LINEAR && x->uses[linear->out].by_route;
}

bool cuda_is_vector(const struct tape_program *p, uint32_t v) { return p->ops[p->values[v].op].kind == WK_OP_VECTOR; }

/* Every row range that a product reads, every table that an embedding reads (whole: often the head's own tiles), every
 * small vector. */
static wk_status find_weights(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    uint32_t most = p->n_ops;
    for (uint32_t i = 0; i < p->n_launches; i++) most += p->launches[i].n_seg;
    x->matrices = cuda_list(x, most, sizeof *x->matrices);
    x->modules = cuda_list(x, most, sizeof *x->modules);
    x->vectors = cuda_list(x, p->n_tensors, sizeof *x->vectors);
    x->is_vector = cuda_list(x, p->n_tensors, sizeof *x->is_vector);
    if (!x->matrices || !x->modules || !x->vectors || !x->is_vector)
        return wk_fail(err, WK_NO_MEMORY, "out of memory for the list of %u matrices", most);
    for (uint32_t i = 0; i < p->n_launches; i++)
        for (uint32_t g = 0; g < p->launches[i].n_seg; g++) {
            const struct tape_segment *seg = &p->launches[i].seg[g];
            const bool router = cuda_is_router(x, seg);
            wk_status s = router ? WK_OK : add_matrix(x, seg->tensor, seg->first, seg->n, err);
            if (s) return s;
            if (router) x->is_vector[seg->tensor] = true;
        }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *op = &p->ops[i];
        const bool product = op->kind == WK_OP_LINEAR || op->kind == WK_OP_EXPERT || op->kind == WK_OP_LINEAR_HEADS;
        wk_status s = op->kind == WK_OP_EMBED ? add_matrix(x, op->t[0], 0, p->tensors[op->t[0]].rows, err) : WK_OK;
        if (s) return s;
        for (uint32_t t = product || op->kind == WK_OP_EMBED ? 1 : 0; t < TAPE_IN; t++)
            if (op->t[t] != TAPE_NONE) x->is_vector[op->t[t]] = true;
    }
    for (uint32_t i = 0; i < x->n_matrices; i++)
        if (x->is_vector[x->matrices[i].tensor - p->tensors])
            return wk_fail(err, WK_UNSUPPORTED,
                           "%s: cuda keeps a tensor as a matrix or as a vector or router, not as both",
                           x->matrices[i].tensor->name);
    return WK_OK;
}

/* ---- values: rows, forms ------------------------------------------------------------------------------- */

typedef void (*value_fn)(struct executor *x, const struct tape_launch *l, uint32_t v);

static void each_result(struct executor *x, const struct tape_launch *l, value_fn fn)
{
    for (uint32_t g = 0; g < l->n_seg; g++)
        if (l->seg[g].out != TAPE_NONE) fn(x, l, l->seg[g].out);
    if (l->out != TAPE_NONE && !l->logits) fn(x, l, l->out);
}

bool cuda_made_inside(const struct executor *x, const struct tape_launch *l, uint32_t value)
{
    for (uint32_t i = 0; i < l->n_ops; i++)
        if (l->ops[i] == x->program->values[value].op) return true;
    return false;
}

static void each_input(struct executor *x, const struct tape_launch *l, value_fn fn)
{
    for (uint32_t i = 0; i < l->n_ops; i++)
        for (uint32_t j = 0; j < TAPE_IN; j++) {
            const uint32_t v = x->program->ops[l->ops[i]].in[j];
            if (v != TAPE_NONE && !cuda_is_vector(x->program, v) && !cuda_made_inside(x, l, v)) fn(x, l, v);
        }
}

enum tape_rows cuda_launch_rows(const struct executor *x, const struct tape_launch *l)
{
    const struct tape_program *p = x->program;
    if (l->kind == LAUNCH_PRODUCT && l->logits) return ROWS_LOGITS;
    if (l->kind == LAUNCH_OUTPUT)
        return p->ops[l->ops[l->n_ops - 1]].u.output.what == WK_OUTPUT_LOGITS ? ROWS_LOGITS : ROWS_POOLED;
    return x->values[l->out != TAPE_NONE ? l->out : l->seg[0].out].rows;
}

static void hold_all(struct executor *x, const struct tape_launch *l, uint32_t v)
{
    (void)l;
    if (x->values[v].rows == ROWS_LOGITS) x->values[v].rows = ROWS_ALL;
}

/* Attention reads q and gives its result for all rows of a run, and so do states, embeddings, rotations and custom
 * operations, whose indices and tables are by row; whoever wants fewer picks them. What such values are made from is
 * then there for all rows too. So a row's class does not depend on fusion. */
static void find_rows(struct executor *x)
{
    const struct tape_program *p = x->program;
    for (uint32_t i = p->n_launches; i-- > 0;) {
        const struct tape_launch *l = &p->launches[i];
        const uint16_t alone = l->kind == LAUNCH_ALONE ? p->ops[l->ops[0]].kind : 0;
        const bool by_row = alone == WK_OP_ROPE || alone == WK_OP_CUSTOM;
        if (l->kind == LAUNCH_OUTPUT) continue;
        if (l->kind == LAUNCH_ATTEND || l->kind == LAUNCH_STATE || l->kind == LAUNCH_EMBED || by_row || l->heads)
            each_result(x, l, hold_all);
        if (l->kind == LAUNCH_ATTEND || cuda_launch_rows(x, l) == ROWS_ALL) each_input(x, l, hold_all);
        if (cuda_launch_rows(x, l) == ROWS_ALL) each_result(x, l, hold_all);
    }
}

/* Is the act of a row, as it lies, also the act of each of its parts? Where these are whole runs of 32 values. */
static bool whole_parts(const struct tape_launch *l, uint32_t width) { return !l->heads || width / l->heads % 32 == 0; }

static void keep_f32(struct executor *x, const struct tape_launch *l, uint32_t v)
{
    const struct tape_program *p = x->program;
    const bool product = l->kind == LAUNCH_PRODUCT || l->kind == LAUNCH_ROUTE;
    const bool picks = cuda_launch_rows(x, l) == ROWS_LOGITS && x->values[v].rows == ROWS_ALL;
    if (product && v == l->x && l->norm == TAPE_NONE && v != l->residual && !(l->route != TAPE_NONE && picks) &&
        whole_parts(l, x->values[v].width))
        return;
    x->values[v].form = VALUE_F32;
    if (product && v == l->x && l->norm != TAPE_NONE && p->ops[l->norm].u.norm.kind == WK_NORM_RMS &&
        x->values[v].slots == 1)
        x->values[v].partials = true;
}

static bool is_route(const struct executor *x, uint32_t v)
{
    return x->program->ops[x->program->values[v].op].kind == WK_OP_ROUTE;
}

static void find_form(struct executor *x, const struct tape_launch *l, uint32_t v)
{
    struct cuda_value *y = &x->values[v];
    const uint16_t kind = x->program->ops[x->program->values[v].op].kind;
    const bool acts = l->kind == LAUNCH_PRODUCT ||
                      (l->kind == LAUNCH_ATTEND && x->program->ops[l->attention].u.attn.head_v % 16 == 0);
    if (!acts || x->program->values[v].tapped || !whole_parts(l, y->width)) y->form = VALUE_F32;
    if (l->kind == LAUNCH_ATTEND || l->kind == LAUNCH_STATE || l->kind == LAUNCH_ROUTE || l->heads ||
        kind == WK_OP_CUSTOM || kind == WK_OP_POOL ||
        (kind == WK_OP_NORM && x->program->ops[x->program->values[v].op].u.norm.group))
        y->partials = false;
    y->shift = kind == WK_OP_NORM || kind == WK_OP_ATTENTION ? 0 : ACT_SHIFT;
    y->stride = cuda_stride(is_route(x, v) ? 2 * y->slots : y->width);
}

/* Experts of which large products read panels; 0: they serve none of the launch's matrices. */
static uint32_t panel_experts(const struct executor *x, const struct tape_launch *l)
{
    for (uint32_t g = 0; tape_launch_slabs(l) && g < l->n_seg; g++)
        if (!cuda_is_router(x, &l->seg[g]) && cuda_matrix_of(x, l->seg[g].tensor, l->seg[g].first, l->seg[g].n)->panels)
            return x->program->tensors[l->seg[g].tensor].slabs;
    return 0;
}

static wk_status find_values(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    x->values = cuda_list(x, p->n_values, sizeof *x->values);
    if (!x->values) return wk_fail(err, WK_NO_MEMORY, "out of memory for the list of %u values", p->n_values);
    for (uint32_t v = 0; v < p->n_values; v++)
        x->values[v] = (struct cuda_value){ .form = p->values[v].buffer == TAPE_NONE ? VALUE_NONE : VALUE_ACT,
                                            .rows = p->values[v].rows,
                                            .width = p->values[v].width,
                                            .slots = p->values[v].slots };
    find_rows(x);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        each_input(x, &p->launches[i], keep_f32);
        if (p->launches[i].kind == LAUNCH_OUTPUT) x->values[p->launches[i].x].form = VALUE_F32;
    }
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        each_result(x, l, find_form);
        if (l->out != TAPE_NONE && l->glu != TAPE_NONE) x->values[l->out].experts = panel_experts(x, l);
    }
    return WK_OK;
}

/* ---- sizes --------------------------------------------------------------------------------------------- */

static uint32_t most_rows(const struct executor *x, enum tape_rows rows)
{
    return rows == ROWS_ALL ? x->cap_all : rows == ROWS_LOGITS ? x->cap_logits_rows : x->run_rows;
}

static void most(uint64_t *a, uint64_t b)
{
    if (b > *a) *a = b;
}

/* Bytes of rows that are acts. */
static uint64_t act_bytes(uint64_t items, uint32_t k) { return items * wk_act_k(k) * 2; }

static uint32_t route_experts(const struct executor *x, uint32_t v)
{
    return x->program->values[x->program->ops[x->program->values[v].op].in[0]].width;
}

static uint64_t value_bytes(struct executor *x, uint32_t v)
{
    struct cuda_value *y = &x->values[v];
    const uint64_t rows = most_rows(x, y->rows), items = is_route(x, v) ? rows : rows * y->slots;
    uint64_t bytes = y->form == VALUE_ACT ? act_bytes(items, y->width) : items * y->stride * sizeof(float);
    y->aux_offset = (bytes + 255) & ~255ull;
    if (is_route(x, v))
        return y->aux_offset + wk_cuda_group_words(route_experts(x, v), rows * y->slots) * sizeof(uint32_t);
    if (y->form == VALUE_ACT) {
        if (y->experts) most(&bytes, wk_cuda_panel_bytes(y->width, wk_cuda_panel_places(y->experts, items)));
        return bytes;
    }
    return y->partials ? y->aux_offset + items * cuda_parts(y->width) * sizeof(float) : bytes;
}

struct sizes {
    uint64_t act, f32_scratch, scratch, q_half, attend, counters, tickets, running;
};

static void product_sizes(const struct executor *x, const struct tape_launch *l, struct sizes *z)
{
    const uint32_t slots = x->values[l->x].slots * tape_launch_parts(l),
                   width = x->values[l->x].width / tape_launch_parts(l);
    const bool experts = tape_launch_slabs(l);
    const enum tape_rows rows = cuda_launch_rows(x, l);
    /* A few generated rows are converted before they are picked. */
    const uint64_t n = most_rows(x, rows) > x->run_rows ? most_rows(x, rows) : x->run_rows,
                   results = n * (experts && !l->heads ? x->values[l->route].slots : slots);
    most(&z->act, act_bytes(n * slots, width));
    if (l->heads) most(&z->f32_scratch, n * x->values[l->x].width);
    uint64_t columns = 0;
    for (uint32_t g = 0; g < l->n_seg; g++) {
        const struct cuda_matrix *m =
            cuda_is_router(x, &l->seg[g]) ? NULL : cuda_matrix_of(x, l->seg[g].tensor, l->seg[g].first, l->seg[g].n);
        if (m && cuda_expands(m)) columns += cuda_stride(l->seg[g].n);
        if (m && !experts)
            most(&z->scratch, module_workspace(m->module, m->type->ggml_type, m->k,
                                               results < WK_CUDA_ROWS ? (uint32_t)results : WK_CUDA_ROWS));
        if (!l->logits) most(&z->f32_scratch, results * cuda_stride(l->seg[g].n));
    }
    if (panel_experts(x, l))
        most(&z->scratch, wk_cuda_panel_bytes(width, wk_cuda_panel_places(panel_experts(x, l), results)));
    if (rows != ROWS_ALL || experts) return;
    /* Side by side; f32_scratch is there twice. */
    most(&z->scratch, columns * wk_act_k(width) * 2);
    most(&z->f32_scratch, (results * columns + 1) / 2);
}

static struct sizes measure(const struct executor *x)
{
    const struct tape_program *p = x->program;
    struct sizes z = { .act = 1 };
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        if (l->kind == LAUNCH_PRODUCT || l->kind == LAUNCH_ROUTE) product_sizes(x, l, &z);
        if (p->ops[l->ops[0]].kind == WK_OP_POOL)
            most(&z.running, (uint64_t)x->o.max_sequences * p->values[l->x].width * p->values[l->x].slots);
    }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind != WK_OP_ATTENTION) continue;
        const uint32_t heads = p->ops[i].u.attn.heads, head_k = p->ops[i].u.attn.head_k,
                       head_v = p->ops[i].u.attn.head_v, rows = x->cap_all < x->run_rows ? x->cap_all : x->run_rows;
        if (p->ops[i].u.attn.value_in_key) {
            most(&z.q_half, cuda_latent_query_bytes(x->cap_all, heads, head_k, head_v));
            most(&z.attend, cuda_latent_workspace(rows, heads, head_k, head_v, x->o.context));
            continue;
        }
        most(&z.q_half, cuda_attend_query_bytes(x->cap_all, heads, head_k, head_v));
        most(&z.attend, cuda_attend_workspace(rows, heads, head_k, head_v, x->o.context));
        most(&z.counters, cuda_attend_counters(rows, heads));
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == WK_OP_ROUTE || p->ops[i].kind == WK_OP_LINEAR_HEADS) z.tickets = 1;
    z.f32_scratch = (z.f32_scratch + 63) & ~63ull; /* both halves aligned */
    return z;
}

/* ---- carving ------------------------------------------------------------------------------------------- */

enum { CARVED = 256 }; /* bytes: where an array may begin */
static void *carve(struct cuda_carve *c, uint64_t n, uint64_t size)
{
    uint64_t bytes, end, at = c->used;
    if (!checked_mul_u64(n, size, &bytes) || !checked_round_up_u64(bytes, CARVED, &bytes) ||
        !checked_add_u64(at, bytes, &end)) {
        c->used = UINT64_MAX;
        return NULL;
    }
    c->used = end;
    return c->base ? c->base + at : NULL;
}

static uint64_t tensor_values(const struct tape_tensor *t) { return (uint64_t)t->rows * t->cols * t->slabs; }

static void carve_weights(struct executor *x, struct cuda_carve *c)
{
    const struct tape_program *p = x->program;
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_matrices; i++) {
        struct cuda_matrix *m = &x->matrices[i];
        m->data = carve(c, (uint64_t)m->tiles * m->slabs, m->tile_bytes);
    }
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        if (!x->is_vector[t]) continue;
        const uint64_t raw = cuda_vector_raw(&p->tensors[t]);
        x->vectors[t] = carve(c, tensor_values(&p->tensors[t]), sizeof(float));
        x->vector_loads[n++] = (struct cuda_vector){ &p->tensors[t], x->vectors[t], raw ? carve(c, raw, 1) : NULL };
    }
    x->upload.n_vectors = n;
}

/* Entries of a bounded span's table that are used in turn: as many as a run's rows see. 0: a table has an entry for
 * every page. */
static uint32_t ring_pages(const struct executor *x, uint32_t g)
{
    const struct kv_span span = kv_span(&x->program->groups[g], x->o.context);
    const uint64_t seen = kv_touched((uint64_t)span.window + span.chunk + x->cap_all - 1);
    return kv_bounded(span) && seen < kv_pages_of(x->o.context) ? (uint32_t)seen : 0;
}

uint64_t cuda_layer_page_bytes(const struct executor *x, uint32_t layer)
{
    const struct tape_kv_layer *k = &x->program->kv_layers[layer];
    const struct tape_op *op = &x->program->ops[k->op];
    if (k->value_in_key) return cuda_latent_page_bytes(k->kv_heads, k->head_k, k->head_v);
    if (!x->program->groups[k->group].state) return cuda_attend_page_bytes(k->kv_heads, k->head_k, k->head_v);
    return cuda_state_page_bytes(&(struct cuda_state){ .kind = op->u.state.kind,
                                                       .width = x->program->values[op->out].width,
                                                       .kernel = op->u.state.kernel,
                                                       .heads = op->u.state.heads,
                                                       .dk = op->u.state.head_k,
                                                       .dv = op->u.state.head_v });
}

uint64_t cuda_layer_bytes(const struct executor *x, uint32_t layer, uint32_t pages)
{
    struct cuda_carve c = { 0 };
    (void)carve(&c, pages, cuda_layer_page_bytes(x, layer));
    return c.used;
}

static wk_status carve_cache(struct executor *x, struct cuda_carve *c, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    for (uint32_t i = 0; i < p->n_kv_layers; i++)
        x->plan.kv_page_bytes[p->kv_layers[i].group] += cuda_layer_page_bytes(x, i);
    wk_status s = kv_pages(p, &x->o, x->plan.kv_page_bytes, x->plan.kv_pages, err);
    for (uint32_t i = 0; !s && i < p->n_kv_layers; i++)
        x->cache[i] = carve(c, x->plan.kv_pages[p->kv_layers[i].group], cuda_layer_page_bytes(x, i));
    return s;
}

/* The arrays that prepare fills, in one order for the host's blocks and the device. */
static void carve_inputs(struct executor *x, struct cuda_carve *c)
{
    struct prepare *p = &x->prepare;
    p->token = carve(c, x->cap_all, sizeof *p->token);
    p->position = carve(c, x->cap_all, sizeof *p->position);
    p->row_seq = carve(c, x->cap_all, sizeof *p->row_seq);
    p->logits_rows = carve(c, x->cap_all, sizeof *p->logits_rows);
    p->seq = carve(c, x->run_rows, sizeof *p->seq);
    p->sampled = carve(c, x->run_rows, sizeof *p->sampled);
    p->lengths = carve(c, (x->run_rows + WK_CUDA_FEW - 1) / WK_CUDA_FEW, sizeof *p->lengths);
    p->pages = carve(c, (uint64_t)x->run_rows * x->page_stride, sizeof *p->pages);
    p->serial = carve(c, 1, sizeof *p->serial);
    p->ticket = carve(c, 1, sizeof *p->ticket);
    for (uint32_t i = 0; i < p->n_rope_tables; i++)
        p->rope_table[i].rows = carve(c, (uint64_t)x->cap_all * p->rope_table[i].n, 2 * sizeof(float));
    for (uint32_t i = 0; i < p->n_rows; i++) p->row[i].index = carve(c, x->cap_all, sizeof(uint32_t));
    x->batch = (struct cuda_batch){
        .token = p->token, .position = p->position, .row_seq = p->row_seq, .seq = p->seq, .lengths = p->lengths
    };
    for (uint32_t g = 0; g < x->program->n_groups; g++) {
        x->batch.pages[g] = p->pages ? p->pages + x->page_offset[g] : NULL;
        x->batch.page_stride[g] = x->page_stride;
    }
}

static void carve_activations(struct executor *x, struct cuda_carve *c)
{
    const struct tape_program *p = x->program;
    memset(x->buffer_bytes, 0, p->n_buffers * sizeof *x->buffer_bytes);
    for (uint32_t v = 0; v < p->n_values; v++)
        if (x->values[v].form) most(&x->buffer_bytes[p->values[v].buffer], value_bytes(x, v));
    for (uint32_t i = 0; i < p->n_buffers; i++) x->buffers[i] = carve(c, x->buffer_bytes[i], 1);
    for (uint32_t v = 0; v < p->n_values; v++) {
        struct cuda_value *y = &x->values[v];
        if (!y->form || !x->buffers[p->values[v].buffer]) continue;
        y->data = x->buffers[p->values[v].buffer];
        y->aux = y->form == VALUE_F32 && y->partials ? (float *)(void *)(y->data + y->aux_offset) : NULL;
        y->groups = is_route(x, v) ? (uint32_t *)(void *)(y->data + y->aux_offset) : NULL;
    }
    carve_inputs(x, c);
    x->logits_stride = cuda_stride(x->n_logits);
    x->logits = carve(c, x->run_rows * x->logits_stride, sizeof *x->logits);
    x->pooled = carve(c, (uint64_t)x->run_rows * p->embedding_width, sizeof *x->pooled);
}

static void carve_workspace(struct executor *x, struct cuda_carve *c)
{
    const struct sizes z = measure(x);
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < x->prepare.n_rope_tables; i++) pairs += x->prepare.rope_table[i].n;
    x->act = carve(c, z.act, 1);
    x->f32_scratch[0] = carve(c, 2 * z.f32_scratch, sizeof *x->f32_scratch[0]);
    x->f32_scratch[1] = x->f32_scratch[0] ? x->f32_scratch[0] + z.f32_scratch : NULL;
    x->scratch = carve(c, z.scratch, 1);
    x->gemm_space = carve(c, cuda_gemm_workspace(), 1);
    x->q_half = carve(c, z.q_half, 1);
    x->attend_space = carve(c, z.attend, 1);
    x->attend_counters = carve(c, z.counters, sizeof *x->attend_counters);
    x->route_ticket = carve(c, z.tickets, sizeof *x->route_ticket);
    x->running = carve(c, z.running, sizeof *x->running);
    for (uint32_t i = 0; i < x->n_heads; i++) {
        struct cuda_value *h = &x->heads[i];
        h->data = carve(c, 2ull * h->slots, sizeof(uint32_t));
        h->groups = carve(c, wk_cuda_group_words(h->slots, (uint64_t)x->cap_all * h->slots), sizeof *h->groups);
    }
    x->freq = carve(c, pairs, sizeof *x->freq);
    x->slopes = carve(c, cuda_slopes_before(x->program, x->program->n_ops), sizeof *x->slopes);
    x->masks.words = cuda_mask_words(x->n_logits);
    x->masks.device = carve(c, (uint64_t)x->run_rows * x->masks.words, sizeof *x->masks.device);
    x->sampler_memory = carve(c, x->n_logits ? cuda_sampler_bytes(x->o.max_sequences, x->n_logits, x->run_rows) : 0, 1);
}

wk_status cuda_executor_carve(struct executor *x, const struct wk_err *err)
{
    struct cuda_carve c[MEMORY_KINDS];
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) c[i] = (struct cuda_carve){ x->region[i], 0 };
    x->plan = (struct memory_plan){ .total = 0 };
    carve_weights(x, &c[MEMORY_WEIGHTS]);
    wk_status s = carve_cache(x, &c[MEMORY_KV], err);
    if (s) return s;
    carve_activations(x, &c[MEMORY_ACTIVATIONS]);
    carve_workspace(x, &c[MEMORY_WORKSPACE]);
    c[MEMORY_GRAPHS].used = cuda_graph_bytes(x);
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) {
        x->plan.bytes[i] = c[i].used;
        if (!checked_add_u64(x->plan.total, c[i].used, &x->plan.total)) x->plan.total = UINT64_MAX;
    }
    return WK_OK;
}

/* ---- slopes, RoPE tables and positions --------------------------------------------------------- */

uint32_t cuda_slopes_before(const struct tape_program *p, uint32_t op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < op; i++)
        if (p->ops[i].kind == WK_OP_ATTENTION && p->ops[i].u.attn.slopes) n += p->ops[i].u.attn.heads;
    return n;
}

/* Ropes of equal tables share their cosines and sines. */
uint32_t cuda_rope_table_index(const struct executor *x, const struct tape_op *op)
{
    for (uint32_t i = 0; i < x->prepare.n_rope_tables; i++) {
        const struct prepare_rope_table *t = &x->prepare.rope_table[i];
        if (t->freq == op->u.rope.freq && t->n == op->u.rope.n && t->mscale == op->u.rope.mscale &&
            t->temperature == op->u.rope.temperature && t->temperature_length == op->u.rope.temperature_length)
            return i;
    }
    return x->prepare.n_rope_tables;
}

static wk_status add_rope_table(struct executor *x, const struct tape_op *op, const struct wk_err *err)
{
    if (cuda_rope_table_index(x, op) < x->prepare.n_rope_tables) return WK_OK;
    if (x->prepare.n_rope_tables == PREPARE_ROPE_TABLES)
        return wk_fail(err, WK_UNSUPPORTED, "%s: a fifth table of rotations: cuda has room for %d",
                       x->program->values[op->out].name, PREPARE_ROPE_TABLES);
    x->prepare.rope_table[x->prepare.n_rope_tables++] =
        (struct prepare_rope_table){ .freq = op->u.rope.freq,
                                     .n = op->u.rope.n,
                                     .mscale = op->u.rope.mscale,
                                     .temperature = op->u.rope.temperature,
                                     .temperature_length = op->u.rope.temperature_length };
    return WK_OK;
}

/* Embeddings of one constant row, of one offset of positions, or of types of tokens, share their indices. */
uint32_t cuda_row_index(const struct executor *x, const struct tape_op *op)
{
    const struct prepare *p = &x->prepare;
    const bool by_position = op->u.embed.index == WK_EMBED_POSITION, by_type = op->u.embed.index == WK_EMBED_TOKEN_TYPE;
    for (uint32_t i = 0; i < p->n_rows; i++)
        if (p->row[i].offset == op->u.embed.offset && p->row[i].by_position == by_position &&
            p->row[i].by_type == by_type)
            return i;
    return p->n_rows;
}

static wk_status add_row(struct executor *x, const struct tape_op *op, const struct wk_err *err)
{
    struct prepare *p = &x->prepare;
    if (op->u.embed.index == WK_EMBED_TOKEN || cuda_row_index(x, op) < p->n_rows) return WK_OK;
    if (p->n_rows == PREPARE_ROWS)
        return wk_fail(err, WK_UNSUPPORTED,
                       "%s: a fifth constant row, offset of positions or type of tokens: cuda has room for %d",
                       x->program->values[op->out].name, PREPARE_ROWS);
    p->row[p->n_rows].by_position = op->u.embed.index == WK_EMBED_POSITION;
    p->row[p->n_rows].by_type = op->u.embed.index == WK_EMBED_TOKEN_TYPE;
    p->row[p->n_rows++].offset = op->u.embed.offset;
    return WK_OK;
}

static wk_status find_tables(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        wk_status s = p->ops[i].kind == WK_OP_ROPE    ? add_rope_table(x, &p->ops[i], err)
                      : p->ops[i].kind == WK_OP_EMBED ? add_row(x, &p->ops[i], err)
                                                      : WK_OK;
        if (s) return s;
    }
    if (p->n_vocab >= PREPARE_SECOND)
        return wk_fail(err, WK_UNSUPPORTED, "a vocabulary of %u ids: cuda expects fewer than %u", p->n_vocab,
                       PREPARE_SECOND);
    x->prepare.n_groups = p->n_groups;
    x->prepare.n_vocab = p->n_vocab;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        x->page_offset[g] = x->prepare.page_offset[g] = x->page_stride;
        x->prepare.ring_pages[g] = ring_pages(x, g);
        x->page_stride += x->prepare.ring_pages[g] ? x->prepare.ring_pages[g] : (uint32_t)kv_pages_of(x->o.context);
    }
    x->prepare.page_stride = x->page_stride;
    x->prepare.layout = prepare_layout(x->cap_all, x->run_rows, x->page_stride);
    return WK_OK;
}

/* ---- heads --------------------------------------------------------------------------------------------- */

/* Every number of heads that a product has parts for. */
static wk_status find_heads(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    x->heads = cuda_list(x, p->n_launches, sizeof *x->heads);
    if (!x->heads) return wk_fail(err, WK_NO_MEMORY, "out of memory for the lists of %u launches", p->n_launches);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const uint32_t heads = p->launches[i].heads;
        uint32_t k = 0;
        while (k < x->n_heads && x->heads[k].slots != heads) k++;
        if (heads && k == x->n_heads)
            x->heads[x->n_heads++] = (struct cuda_value){ .form = VALUE_F32, .width = 1, .slots = heads };
    }
    return WK_OK;
}

/* ---- custom operations --------------------------------------------------------------------------------- */

static wk_status find_customs(struct executor *x, const struct wk_err *err)
{
    x->customs = cuda_list(x, x->program->n_ops, sizeof *x->customs);
    if (!x->customs) return wk_fail(err, WK_NO_MEMORY, "out of memory for a list of %u operations", x->program->n_ops);
    return cuda_find_customs(x, err);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static wk_status make_lists(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    uint64_t loads = 0;
    for (uint32_t i = 0; i < x->n_matrices; i++) loads += x->matrices[i].slabs;
    if (loads > UINT32_MAX) return wk_fail(err, WK_INVALID, "%" PRIu64 " matrices in all", loads);
    x->upload.n_loads = (uint32_t)loads;
    x->loads = cuda_list(x, loads, sizeof *x->loads);
    x->vector_loads = cuda_list(x, p->n_tensors, sizeof *x->vector_loads);
    x->buffers = cuda_list(x, p->n_buffers, sizeof *x->buffers);
    x->buffer_bytes = cuda_list(x, p->n_buffers, sizeof *x->buffer_bytes);
    x->stages = cuda_list(x, p->n_launches, sizeof *x->stages);
    x->cache = cuda_list(x, p->n_kv_layers, sizeof *x->cache);
    x->run.row_of = cuda_list(x, x->cap_all, sizeof *x->run.row_of);
    x->run.logits_row_of = cuda_list(x, x->cap_all, sizeof *x->run.logits_row_of);
    x->run.ask_of = cuda_list(x, x->cap_all, sizeof *x->run.ask_of);
    x->logits_row_at = cuda_list(x, x->o.max_rows, sizeof *x->logits_row_at);
    struct run_top *top = cuda_list(x, (uint64_t)CUDA_RING * x->o.max_logits_rows, sizeof *top);
    struct sampler_top *top_logprobs = cuda_list(x, (uint64_t)STEP_QUEUE * x->o.max_logits_rows, sizeof *top_logprobs);
    for (uint32_t i = 0; top && i < CUDA_RING; i++) x->records[i].top = top + (uint64_t)i * x->o.max_logits_rows;
    for (uint32_t i = 0; top_logprobs && i < STEP_QUEUE; i++)
        x->pending[i].top_logprobs = top_logprobs + (uint64_t)i * x->o.max_logits_rows;
    x->slot_kind = cuda_list(x, x->o.max_sequences, sizeof *x->slot_kind);
    for (uint32_t i = 0; i < STEP_QUEUE; i++) {
        x->pending[i].ids = cuda_list(x, x->o.max_sequences, sizeof *x->pending[i].ids);
        x->pending[i].failed = cuda_list(x, x->o.max_sequences, sizeof *x->pending[i].failed);
        if (!x->pending[i].ids || !x->pending[i].failed)
            return wk_fail(err, WK_NO_MEMORY, "out of memory for the ids of %u sequences", x->o.max_sequences);
    }
    if (!x->loads || !x->vector_loads || !x->buffers || !x->buffer_bytes || !x->stages || !x->cache || !x->run.row_of ||
        !x->run.logits_row_of || !x->run.ask_of || !x->logits_row_at || !x->slot_kind || !top || !top_logprobs)
        return wk_fail(err, WK_NO_MEMORY, "out of memory for the lists of %u launches", p->n_launches);
    return WK_OK;
}

wk_status cuda_executor_plan(const struct tape_program *program, const struct device_options *o, struct executor **out,
                             const struct wk_err *err)
{
    *out = NULL;
    wk_status s = check_options(program, o, err);
    if (!s) s = check_ops(program, err);
    if (s) return s;
    struct executor *x = calloc(1, sizeof *x);
    if (!x) return wk_fail(err, WK_NO_MEMORY, "out of memory for an executor");
    x->program = program;
    x->o = *o;
    x->next_serial = x->oldest = 1;
    for (uint32_t i = 0; i < program->n_ops; i++)
        if (program->ops[i].kind == WK_OP_OUTPUT && program->ops[i].u.output.what == WK_OUTPUT_LOGITS)
            x->n_logits = program->n_vocab;
    const uint32_t decoded = cuda_bucket(o->max_sequences), least = cuda_bucket(o->max_rows);
    x->run_rows = decoded > WK_CUDA_FEW ? decoded : WK_CUDA_FEW;
    const uint32_t bucket = least < x->run_rows ? least : x->run_rows;
    x->cap_all = o->max_rows > bucket ? o->max_rows : bucket;
    x->cap_logits_rows = o->max_logits_rows > bucket ? o->max_logits_rows : bucket;
    s = find_uses(x, err);
    if (!s) s = find_weights(x, err);
    if (!s) s = find_values(x, err);
    if (!s) s = find_tables(x, err);
    if (!s) s = find_heads(x, err);
    if (!s) s = find_customs(x, err);
    if (!s) s = make_lists(x, err);
    if (!s) s = cuda_executor_carve(x, err);
    if (s) {
        cuda_lists_free(x);
        free(x);
        return s;
    }
    *out = x;
    return WK_OK;
}
