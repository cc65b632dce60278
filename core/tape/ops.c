/* ops.c: one recorded operation: may this host read the struct, do its inputs fit, what does it make.
 *
 * Every kind has a row in the table below and a take function that checks shapes and numbers and copies the fields.
 * Messages name the operation as its result would be called, the values it reads, and both shapes. */
#include <math.h>
#include <string.h>

#include "plugin/call.h"
#include "tape/internal.h"

union any_op {
    struct wk_op o;
    struct wk_op_embed embed;
    struct wk_op_linear linear;
    struct wk_op_norm norm;
    struct wk_op_rope rope;
    struct wk_attn attn;
    struct wk_op_map map;
    struct wk_op_glu glu;
    struct wk_op_cols cols;
    struct wk_op_route route;
    struct wk_op_pool pool;
    struct wk_op_output output;
    struct wk_op_custom custom;
};

/* What take functions fill: the operation, and the name and shape of its result. */
struct draft {
    struct tape_op op;
    char name[TAPE_NAME];
    uint64_t width;
    uint32_t slots;
};

#define REFUSE(status, ...) return messages_say(b->messages, status, __VA_ARGS__), false

static const struct tape_value *input(const struct builder *b, const struct draft *d, int i)
{
    return &b->p->values[d->op.in[i]];
}
static const struct tape_tensor *weight(const struct builder *b, const struct draft *d, int i)
{
    return d->op.t[i] == TAPE_NONE ? NULL : &b->p->tensors[d->op.t[i]];
}
static const struct tape_op *producer(const struct builder *b, const struct tape_value *v) { return &b->p->ops[v->op]; }

/* ---- names --------------------------------------------------------------------------------------------- */

static bool name_it(struct builder *b, struct draft *d, const char *base, bool numbered)
{
    wk_status status = labels_free(b->labels, base, numbered, d->name);
    if (status == WK_OK) return true;
    if (status == WK_NO_MEMORY) return messages_no_memory(b->messages), false;
    REFUSE(WK_INVALID, "%s: the name of a value has at most %d bytes", base, TAPE_NAME - 1);
}
static bool name_in_scope(struct builder *b, struct draft *d, const char *what, bool numbered)
{
    char base[2 * TAPE_NAME];
    (void)snprintf(base, sizeof base, "%s%s", b->scope, what);
    return name_it(b, d, base, numbered);
}
static bool name_after_tensor(struct builder *b, struct draft *d)
{
    return d->op.t[0] == TAPE_NONE ? name_in_scope(b, d, op_kind_name(d->op.kind), false)
                                   : name_it(b, d, b->asked[d->op.t[0]], false);
}
/* x.rope; where that grows too long, blk.7.rope. */
static bool name_after_input(struct builder *b, struct draft *d, const char *what)
{
    char base[2 * TAPE_NAME];
    (void)snprintf(base, sizeof base, "%s.%s", input(b, d, 0)->name, what);
    return strlen(base) + 8 < TAPE_NAME ? name_it(b, d, base, false) : name_in_scope(b, d, what, false);
}

/* ---- checks that several kinds share ------------------------------------------------------------------- */

static bool one_slot(struct builder *b, const struct draft *d, int i)
{
    const struct tape_value *x = input(b, d, i);
    if (x->slots == 1) return true;
    REFUSE(WK_INVALID, "%s: %s has %u slots, 1 is served", d->name, x->name, (unsigned)x->slots);
}
static bool same_shape(struct builder *b, const struct draft *d)
{
    const struct tape_value *x = input(b, d, 0), *y = input(b, d, 1);
    if (x->width != y->width)
        REFUSE(WK_INVALID, "%s: %s is %u wide, %s %u", d->name, x->name, (unsigned)x->width, y->name,
               (unsigned)y->width);
    if (x->slots != y->slots)
        REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, x->name, (unsigned)x->slots, y->name,
               (unsigned)y->slots);
    return true;
}
static bool is_route(struct builder *b, const struct draft *d, int i)
{
    const struct tape_value *r = input(b, d, i);
    if (producer(b, r)->kind == WK_OP_ROUTE) return true;
    REFUSE(WK_INVALID, "%s: %s is not the result of a route", d->name, r->name);
}
static bool finite_number(struct builder *b, const struct draft *d, const char *what, double x)
{
    if (isfinite(x)) return true;
    REFUSE(WK_INVALID, "%s: %s is not a finite number", d->name, what);
}
/* A value inside an enumeration that grows with the ABI. */
static bool known(struct builder *b, const struct draft *d, const char *what, uint32_t x, uint32_t first, uint32_t end)
{
    if (x >= first && x < end) return true;
    REFUSE(WK_UNSUPPORTED, "%s: %s %u is unknown to this host (ABI %d.%d)", d->name, what, (unsigned)x, WK_ABI_MAJOR,
           WK_ABI_MINOR);
}
static bool tensor_is(struct builder *b, const struct draft *d, int i, uint32_t rows, uint32_t cols, uint32_t slabs)
{
    const struct tape_tensor *t = weight(b, d, i);
    if (!t || (t->rows == rows && t->cols == cols && t->slabs == slabs)) return true;
    REFUSE(WK_INVALID, "%s: %s is %u x %u x %u, the operation needs %u x %u x %u", d->name, t->name, (unsigned)t->rows,
           (unsigned)t->cols, (unsigned)t->slabs, (unsigned)rows, (unsigned)cols, (unsigned)slabs);
}
static bool as_input(const struct builder *b, struct draft *d, int i)
{
    d->width = input(b, d, i)->width;
    d->slots = input(b, d, i)->slots;
    return true;
}

/* ---- one function a kind ------------------------------------------------------------------------------- */

static bool take_embed(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_embed *e = &a->embed;
    if (!name_after_tensor(b, d) || !known(b, d, "index", e->index, 0, WK_BY_POSITION + 1)) return false;
    const struct tape_tensor *t = weight(b, d, 0);
    if (!tensor_is(b, d, 0, t->rows, t->cols, 1)) return false;
    if (e->index == WK_BY_POSITION && (uint64_t)b->p->context + e->offset > t->rows)
        REFUSE(WK_INVALID,
               "%s: a context of %u positions (+ %u) reaches past the table's %u rows; ask for a shorter context",
               d->name, (unsigned)b->p->context, (unsigned)e->offset, (unsigned)t->rows);
    if (e->index == WK_BY_TOKEN) {
        if (e->offset) REFUSE(WK_INVALID, "%s: an offset of %u for a table of tokens", d->name, (unsigned)e->offset);
        if (b->p->n_vocab && b->p->n_vocab != t->rows)
            REFUSE(WK_INVALID, "%s: %u tokens, another table has %u", d->name, (unsigned)t->rows,
                   (unsigned)b->p->n_vocab);
        b->p->n_vocab = t->rows;
    }
    d->op.u.embed.index = e->index;
    d->op.u.embed.offset = e->offset;
    d->width = t->cols;
    return true;
}

/* LINEAR and EXPERT: rows [first, first + n) of every slab. */
static bool take_product(struct builder *b, const struct wk_op_linear *l, struct draft *d)
{
    const struct tape_value *x = input(b, d, 0);
    const struct tape_tensor *w = weight(b, d, 0);
    if (!tensor_is(b, d, 0, w->rows, x->width, d->op.kind == WK_OP_EXPERT ? l->n_expert : 1)) return false;
    if (!l->n || (uint64_t)l->first + l->n > w->rows)
        REFUSE(WK_INVALID, "%s: rows %u to %llu of %s, which has %u", d->name, (unsigned)l->first,
               (unsigned long long)l->first + l->n, w->name, (unsigned)w->rows);
    bool bias_fits =
        d->op.kind == WK_OP_EXPERT ? tensor_is(b, d, 1, l->n_expert, w->rows, 1) : tensor_is(b, d, 1, 1, w->rows, 1);
    d->op.u.linear.first = l->first;
    d->op.u.linear.n = l->n;
    d->op.u.linear.n_expert = l->n_expert;
    d->width = l->n;
    return bias_fits;
}
static bool take_linear(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_after_tensor(b, d) || !one_slot(b, d, 0)) return false;
    if (a->linear.n_expert) REFUSE(WK_INVALID, "%s: %u experts in a linear", d->name, (unsigned)a->linear.n_expert);
    return take_product(b, &a->linear, d);
}
static bool take_expert(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_after_tensor(b, d) || !is_route(b, d, 1)) return false;
    const struct tape_value *x = input(b, d, 0), *r = input(b, d, 1);
    const struct tape_value *scores = &b->p->values[producer(b, r)->in[0]];
    if (x->slots != 1 && x->slots != r->slots)
        REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, x->name, (unsigned)x->slots, r->name,
               (unsigned)r->slots);
    if (scores->width != a->linear.n_expert)
        REFUSE(WK_INVALID, "%s: %u experts, %s chooses among %u", d->name, (unsigned)a->linear.n_expert, r->name,
               (unsigned)scores->width);
    d->slots = r->slots;
    return take_product(b, &a->linear, d);
}

static bool take_norm(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_norm *n = &a->norm;
    if (!name_after_tensor(b, d) || !known(b, d, "norm", n->kind, 0, WK_NORM_LAYER + 1)) return false;
    const struct tape_value *x = input(b, d, 0);
    if (n->group && x->width % n->group)
        REFUSE(WK_INVALID, "%s: %s is %u wide, not a multiple of %u", d->name, x->name, (unsigned)x->width,
               (unsigned)n->group);
    uint32_t width = n->group ? n->group : x->width;
    if (!tensor_is(b, d, 0, 1, width, 1) || !tensor_is(b, d, 1, 1, width, 1)) return false;
    if (n->kind == WK_NORM_RMS && d->op.t[1] != TAPE_NONE) REFUSE(WK_INVALID, "%s: an RMS norm has no bias", d->name);
    if (!isfinite(n->eps) || !(n->eps > 0)) REFUSE(WK_INVALID, "%s: eps %g must be above 0", d->name, (double)n->eps);
    d->op.u.norm.kind = n->kind;
    d->op.u.norm.group = n->group;
    d->op.u.norm.eps = n->eps;
    return as_input(b, d, 0);
}

/* The program's copy of a table of frequencies: one for all ropes that have the same numbers. */
static const double *share_frequencies(struct builder *b, const struct wk_freqs *f)
{
    for (uint32_t i = b->p->n_ops; i-- > 0;) {
        const struct tape_op *o = &b->p->ops[i];
        if (o->kind != WK_OP_ROPE || o->u.rope.n != f->n) continue;
        if (memcmp(o->u.rope.freq, f->freq, f->n * sizeof *f->freq) == 0) return o->u.rope.freq;
        if (b->p->n_ops - i > 256) break; /* a miss costs memory, not truth */
    }
    double *copy = arena_take(b->arena, f->n, sizeof *copy);
    if (copy) memcpy(copy, f->freq, f->n * sizeof *copy);
    return copy;
}
static bool take_rope(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_freqs *f = a->rope.freqs;
    const struct tape_value *x = input(b, d, 0);
    uint32_t head = a->rope.head;
    if (!name_after_input(b, d, "rope") || !one_slot(b, d, 0)) return false;
    if (!f || f->struct_size < sizeof *f || !f->freq) REFUSE(WK_INVALID, "%s: no frequencies", d->name);
    if (f->struct_size > sizeof *f || f->pad)
        REFUSE(WK_UNSUPPORTED, "%s: frequencies of a newer ABI than %d.%d", d->name, WK_ABI_MAJOR, WK_ABI_MINOR);
    if (!known(b, d, "style", f->style, 0, WK_ROPE_HALVES + 1)) return false;
    if (!head || x->width % head)
        REFUSE(WK_INVALID, "%s: %s is %u wide, not a multiple of head %u", d->name, x->name, (unsigned)x->width,
               (unsigned)head);
    if (!f->n || (uint64_t)f->n * 2 > head)
        REFUSE(WK_INVALID, "%s: %u pairs in a head of %u", d->name, (unsigned)f->n, (unsigned)head);
    if (!finite_number(b, d, "mscale", f->mscale)) return false;
    for (uint32_t i = 0; i < f->n; i++)
        if (!isfinite(f->freq[i])) REFUSE(WK_INVALID, "%s: frequency %u is not a finite number", d->name, (unsigned)i);
    d->op.u.rope.freq = share_frequencies(b, f);
    if (!d->op.u.rope.freq) return messages_no_memory(b->messages), false;
    d->op.u.rope.head = head;
    d->op.u.rope.style = f->style;
    d->op.u.rope.n = f->n;
    d->op.u.rope.mscale = f->mscale;
    return as_input(b, d, 0);
}

/* The group of KV layers of one window, made when first seen. */
static bool take_kv_layer(struct builder *b, struct draft *d)
{
    struct tape_program *p = b->p;
    uint32_t g = 0;
    while (g < p->n_groups && p->groups[g].window != d->op.u.attn.window) g++;
    if (g == TAPE_MAX_GROUPS)
        REFUSE(WK_INVALID, "%s: more than %d different attention windows", d->name, TAPE_MAX_GROUPS);
    p->kv_layers = arena_grow(b->arena, p->kv_layers, p->n_kv_layers, &b->cap_kv_layers, sizeof *p->kv_layers);
    if (!p->kv_layers) return p->n_kv_layers = 0, messages_no_memory(b->messages), false;
    if (g == p->n_groups) p->groups[p->n_groups++] = (struct tape_kv_group){ .window = d->op.u.attn.window };
    p->groups[g].n_layers++;
    d->op.u.attn.kv_layer = p->n_kv_layers;
    p->kv_layers[p->n_kv_layers++] = (struct tape_kv_layer){ .op = p->n_ops,
                                                             .group = g,
                                                             .kv_heads = d->op.u.attn.kv_heads,
                                                             .head_k = d->op.u.attn.head_k,
                                                             .head_v = d->op.u.attn.head_v };
    return true;
}
static bool take_attention(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_attn *t = &a->attn;
    uint32_t q = input(b, d, 0)->width, k = input(b, d, 1)->width, v = input(b, d, 2)->width;
    if (!name_in_scope(b, d, "attention", false) || !one_slot(b, d, 0) || !one_slot(b, d, 1) || !one_slot(b, d, 2))
        return false;
    if (t->flags)
        REFUSE(WK_UNSUPPORTED, "%s: flags 0x%x are unknown to this host (ABI %d.%d)", d->name, (unsigned)t->flags,
               WK_ABI_MAJOR, WK_ABI_MINOR);
    if (!t->heads || !t->kv_heads || t->heads % t->kv_heads)
        REFUSE(WK_INVALID, "%s: %u heads for %u of k and v, must be a multiple", d->name, (unsigned)t->heads,
               (unsigned)t->kv_heads);
    if (q % t->heads || k % t->kv_heads || q / t->heads != k / t->kv_heads)
        REFUSE(WK_INVALID, "%s: q is %u wide for %u heads, k %u for %u", d->name, (unsigned)q, (unsigned)t->heads,
               (unsigned)k, (unsigned)t->kv_heads);
    if (v % t->kv_heads)
        REFUSE(WK_INVALID, "%s: v is %u wide for %u heads", d->name, (unsigned)v, (unsigned)t->kv_heads);
    if (!tensor_is(b, d, 0, 1, t->heads, 1) || !finite_number(b, d, "scale", (double)t->scale)) return false;
    if (!isfinite(t->softcap) || t->softcap < 0)
        REFUSE(WK_INVALID, "%s: soft-cap %g must be 0 or above", d->name, (double)t->softcap);
    d->op.u.attn.heads = t->heads;
    d->op.u.attn.kv_heads = t->kv_heads;
    d->op.u.attn.head_k = k / t->kv_heads;
    d->op.u.attn.head_v = v / t->kv_heads;
    d->op.u.attn.scale = t->scale;
    d->op.u.attn.softcap = t->softcap;
    d->op.u.attn.window = t->window;
    d->width = (uint64_t)d->op.u.attn.head_v * t->heads;
    if (d->width >= TAPE_MAX_WIDTH) return true; /* refused where every width is */
    return take_kv_layer(b, d);
}

static bool take_map(struct builder *b, const union any_op *a, struct draft *d)
{
    static const char *const names[WK_MAP_END] = {
        [WK_MAP_SCALE] = "scale", [WK_MAP_GELU_TANH] = "gelu",  [WK_MAP_GELU_ERF] = "gelu",
        [WK_MAP_SILU] = "silu",   [WK_MAP_SIGMOID] = "sigmoid", [WK_MAP_TANH] = "tanh",
        [WK_MAP_RELU] = "relu",   [WK_MAP_SOFTCAP] = "softcap"
    };
    uint32_t fn = a->map.fn;
    if (!name_after_input(b, d, fn && fn < WK_MAP_END ? names[fn] : "map") ||
        !known(b, d, "function", fn, 1, WK_MAP_END))
        return false;
    if (!finite_number(b, d, "p", (double)a->map.p)) return false;
    if (fn == WK_MAP_SOFTCAP && !(a->map.p > 0))
        REFUSE(WK_INVALID, "%s: a cap of %g must be above 0", d->name, (double)a->map.p);
    d->op.u.map.fn = fn;
    d->op.u.map.p = a->map.p;
    return as_input(b, d, 0);
}
static bool take_glu(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_glu *g = &a->glu;
    if (!name_in_scope(b, d, "glu", false) || !known(b, d, "function", g->fn, 1, WK_GLU_END) || !same_shape(b, d))
        return false;
    if (!finite_number(b, d, "alpha", (double)g->alpha) || !finite_number(b, d, "limit", (double)g->limit))
        return false;
    if (g->fn == WK_GLU_CLAMP && !(g->limit > 0))
        REFUSE(WK_INVALID, "%s: a limit of %g must be above 0", d->name, (double)g->limit);
    d->op.u.glu.fn = g->fn;
    d->op.u.glu.alpha = g->alpha;
    d->op.u.glu.limit = g->limit;
    return as_input(b, d, 0);
}
static bool take_add(struct builder *b, const union any_op *a, struct draft *d)
{
    (void)a;
    return name_in_scope(b, d, "add", true) && same_shape(b, d) && as_input(b, d, 0);
}
static bool take_mul(struct builder *b, const union any_op *a, struct draft *d)
{
    (void)a;
    if (!name_in_scope(b, d, "mul", true)) return false;
    const struct tape_value *x = input(b, d, 0), *y = input(b, d, 1);
    if (y->width != 1 && x->width != y->width)
        REFUSE(WK_INVALID, "%s: %s is %u wide, %s %u", d->name, x->name, (unsigned)x->width, y->name,
               (unsigned)y->width);
    if (y->slots != 1 && x->slots != y->slots)
        REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, x->name, (unsigned)x->slots, y->name,
               (unsigned)y->slots);
    return as_input(b, d, 0);
}
static bool take_cols(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct tape_value *x = input(b, d, 0);
    const struct wk_op_cols *c = &a->cols;
    if (!name_after_input(b, d, "cols")) return false;
    if (!c->n || (uint64_t)c->first + c->n > x->width)
        REFUSE(WK_INVALID, "%s: columns %u to %llu of %s, which is %u wide", d->name, (unsigned)c->first,
               (unsigned long long)c->first + c->n, x->name, (unsigned)x->width);
    d->op.u.cols.first = c->first;
    d->op.u.cols.n = c->n;
    d->width = c->n;
    d->slots = x->slots;
    return true;
}

static bool take_route(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_route *r = &a->route;
    uint32_t n = input(b, d, 0)->width;
    if (!name_in_scope(b, d, "route", false) || !one_slot(b, d, 0) || !known(b, d, "score", r->score, 1, WK_SCORE_END))
        return false;
    if (!r->k || r->k > n || r->k > TAPE_MAX_SLOTS)
        REFUSE(WK_INVALID, "%s: top %u of %u (1 to %d are served)", d->name, (unsigned)r->k, (unsigned)n,
               TAPE_MAX_SLOTS);
    if (!finite_number(b, d, "scale", (double)r->scale)) return false;
    d->op.u.route.k = r->k;
    d->op.u.route.score = r->score;
    d->op.u.route.scale = r->scale;
    d->width = 1;
    d->slots = r->k;
    return true;
}
static bool take_combine(struct builder *b, const union any_op *a, struct draft *d)
{
    (void)a;
    if (!name_in_scope(b, d, "combine", false) || !is_route(b, d, 1)) return false;
    const struct tape_value *y = input(b, d, 0), *r = input(b, d, 1);
    if (y->slots != r->slots)
        REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, y->name, (unsigned)y->slots, r->name,
               (unsigned)r->slots);
    d->width = y->width;
    return true;
}

static bool take_pool(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_in_scope(b, d, "pool", false) || !one_slot(b, d, 0) ||
        !known(b, d, "pooling", a->pool.how, 1, WK_POOL_END))
        return false;
    d->op.u.pool.how = a->pool.how;
    return as_input(b, d, 0);
}
static bool take_output(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_output *o = &a->output;
    const struct tape_value *x = input(b, d, 0);
    const bool logits = o->what == WK_OUT_LOGITS, pooled = producer(b, x)->kind == WK_OP_POOL;
    (void)snprintf(d->name, sizeof d->name, "%s", o->what == WK_OUT_EMBEDDING ? "embedding" : "logits");
    if (!known(b, d, "output", o->what, 1, WK_OUT_END) || !one_slot(b, d, 0)) return false;
    if (o->flags & ~(uint32_t)(logits ? 0 : WK_EMBEDDING_L2)) return known(b, d, "flags", o->flags, 0, 0);
    if (logits == pooled)
        REFUSE(WK_INVALID, "%s: %s is %s", d->name, x->name,
               pooled ? "one pooled row a sequence" : "not the result of pool");
    uint32_t *slot = logits ? &b->logits : &b->embedding;
    if (*slot != TAPE_NONE) REFUSE(WK_INVALID, "%s: recorded twice", d->name);
    *slot = b->p->n_ops;
    if (!logits) b->p->embedding_width = x->width;
    d->op.u.output.what = o->what;
    d->op.u.output.flags = o->flags;
    return as_input(b, d, 0);
}

static bool take_custom(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_custom *c = &a->custom;
    if (!c->def || c->def->struct_size < sizeof *c->def || !c->def->name || !c->def->width || !c->def->cpu)
        REFUSE(WK_INVALID, "%scustom: the definition lacks a name, a width or a function", b->scope);
    if (!name_in_scope(b, d, c->def->name, false)) return false;
    uint32_t widths[4], n = 0;
    for (; n < 4 && d->op.in[n] != TAPE_NONE; n++) {
        if (!one_slot(b, d, (int)n)) return false;
        widths[n] = input(b, d, (int)n)->width;
    }
    if (c->params_bytes > 4096 || (c->params_bytes && !c->params))
        REFUSE(WK_INVALID, "%s: %u bytes of parameters, at most 4096", d->name, (unsigned)c->params_bytes);
    struct plugin_call call;
    PLUGIN_CALL(&call, c->def->width, "custom operation's width");
    d->width = c->def->width(widths, n);
    plugin_call_end(&call);
    if (!d->width)
        REFUSE(WK_INVALID, "%s: the plugin's operation refuses inputs of these widths (first: %u)", d->name,
               (unsigned)(n ? widths[0] : 0));
    if (c->params_bytes) {
        void *copy = arena_take(b->arena, c->params_bytes, 1);
        if (!copy) return messages_no_memory(b->messages), false;
        memcpy(copy, c->params, c->params_bytes);
        d->op.u.custom.params = copy;
    }
    d->op.u.custom.def = c->def;
    d->op.u.custom.params_bytes = c->params_bytes;
    return true;
}

/* ---- the table, and the callback ----------------------------------------------------------------------- */

static const struct op_kind {
    const char *name;
    uint16_t size, pad;      /* bytes this host knows; offset of the field that must be 0 (0: none) */
    uint8_t n_in, n_t, need; /* inputs that must be there; tensors it may have; tensors it must have */
    bool (*take)(struct builder *b, const union any_op *a, struct draft *d);
} kinds[WK_OP_END] = {
#define PAD(type) offsetof(struct type, pad)
    [WK_OP_EMBED] = { "embed", sizeof(struct wk_op_embed), 0, 0, 1, 1, take_embed },
    [WK_OP_LINEAR] = { "linear", sizeof(struct wk_op_linear), PAD(wk_op_linear), 1, 2, 1, take_linear },
    [WK_OP_NORM] = { "norm", sizeof(struct wk_op_norm), PAD(wk_op_norm), 1, 2, 0, take_norm },
    [WK_OP_ROPE] = { "rope", sizeof(struct wk_op_rope), PAD(wk_op_rope), 1, 0, 0, take_rope },
    [WK_OP_ATTENTION] = { "attention", sizeof(struct wk_attn), 0, 3, 1, 0, take_attention },
    [WK_OP_MAP] = { "map", sizeof(struct wk_op_map), 0, 1, 0, 0, take_map },
    [WK_OP_GLU] = { "glu", sizeof(struct wk_op_glu), PAD(wk_op_glu), 2, 0, 0, take_glu },
    [WK_OP_ADD] = { "add", sizeof(struct wk_op), 0, 2, 0, 0, take_add },
    [WK_OP_MUL] = { "mul", sizeof(struct wk_op), 0, 2, 0, 0, take_mul },
    [WK_OP_COLS] = { "cols", sizeof(struct wk_op_cols), 0, 1, 0, 0, take_cols },
    [WK_OP_ROUTE] = { "route", sizeof(struct wk_op_route), PAD(wk_op_route), 1, 0, 0, take_route },
    [WK_OP_EXPERT] = { "expert", sizeof(struct wk_op_linear), PAD(wk_op_linear), 2, 2, 1, take_expert },
    [WK_OP_COMBINE] = { "combine", sizeof(struct wk_op), 0, 2, 0, 0, take_combine },
    [WK_OP_POOL] = { "pool", sizeof(struct wk_op_pool), PAD(wk_op_pool), 1, 0, 0, take_pool },
    [WK_OP_OUTPUT] = { "output", sizeof(struct wk_op_output), 0, 1, 0, 0, take_output },
    [WK_OP_CUSTOM] = { "custom", sizeof(struct wk_op_custom), PAD(wk_op_custom), 0, 0, 0, take_custom },
#undef PAD
};
enum { MAX_OP_BYTES = 1024 };

const char *op_kind_name(uint32_t kind) { return kind && kind < WK_OP_END ? kinds[kind].name : "?"; }

uint32_t builder_supports(void *self, uint32_t kind, uint32_t size)
{
    (void)self;
    return kind && kind < WK_OP_END && size >= sizeof(struct wk_op) && size <= kinds[kind].size;
}

/* The growth rule: an operation of a newer SDK is taken iff it uses nothing that this host does not know. */
static bool readable(struct builder *b, const struct wk_op *o, union any_op *copy)
{
    if (!o->kind || o->kind >= WK_OP_END)
        REFUSE(WK_UNSUPPORTED, "op %u needs ABI %d.%u, this host has %d.%d", (unsigned)o->kind, WK_ABI_MAJOR,
               (unsigned)o->since, WK_ABI_MAJOR, WK_ABI_MINOR);
    const struct op_kind *k = &kinds[o->kind];
    if (o->size < k->size || o->size > MAX_OP_BYTES)
        REFUSE(WK_INVALID, "%s%s: %u bytes, must be %u to %d", b->scope, k->name, (unsigned)o->size, (unsigned)k->size,
               MAX_OP_BYTES);
    memcpy(copy, o, k->size);
    uint32_t set = 0; /* offset of the first byte that is not understood */
    for (uint32_t i = o->size; i-- > k->size;)
        if (((const unsigned char *)o)[i]) set = i;
    uint32_t pad = 0;
    if (k->pad) memcpy(&pad, (const unsigned char *)o + k->pad, sizeof pad);
    if (pad) set = k->pad;
    for (uint32_t i = 4; i-- > k->n_t;)
        if (o->t[i]) set = (uint32_t)(offsetof(struct wk_op, t) + i * sizeof o->t[0]);
    for (uint32_t i = 4; o->kind != WK_OP_CUSTOM && i-- > k->n_in;)
        if (o->in[i]) set = (uint32_t)(offsetof(struct wk_op, in) + i * sizeof o->in[0]);
    if (!set) return true;
    REFUSE(WK_UNSUPPORTED, "%s%s: byte %u is set, unknown to this host (ABI %d.%d)", b->scope, k->name, (unsigned)set,
           WK_ABI_MAJOR, WK_ABI_MINOR);
}

/* Ids become indices. An input that failed before stops the operation without another word. */
static bool resolve(struct builder *b, const struct wk_op *o, struct draft *d)
{
    const struct op_kind *k = &kinds[o->kind];
    for (int i = 0; i < 4; i++) {
        d->op.in[i] = o->in[i] ? o->in[i] - 1 : TAPE_NONE;
        d->op.t[i] = o->t[i] ? o->t[i] - 1 : TAPE_NONE;
        bool missing = (i < k->n_in && !o->in[i]) || (i < k->need && !o->t[i]);
        if (missing && b->messages->status != WK_OK) return false;
        if (missing || o->in[i] > b->p->n_values || o->t[i] > b->p->n_tensors)
            REFUSE(WK_INVALID, "%s%s: input %d is no value or tensor of this model", b->scope, k->name, i);
        if (o->in[i] && o->kind != WK_OP_OUTPUT && b->p->ops[b->p->values[o->in[i] - 1].op].kind == WK_OP_POOL)
            REFUSE(WK_INVALID, "%s%s: only an output reads %s, one pooled row a sequence", b->scope, k->name,
                   b->p->values[o->in[i] - 1].name);
    }
    return true;
}

/* Appends the operation and its value; a value id. */
static uint32_t commit(struct builder *b, struct draft *d)
{
    struct tape_program *p = b->p;
    const bool makes_value = d->op.kind != WK_OP_OUTPUT;
    p->ops = arena_grow(b->arena, p->ops, p->n_ops, &b->cap_ops, sizeof *p->ops);
    p->values = arena_grow(b->arena, p->values, p->n_values, &b->cap_values, sizeof *p->values);
    if (!p->ops || !p->values || !labels_take(b->labels, d->name)) {
        if (!p->ops) p->n_ops = 0;
        if (!p->values) p->n_values = 0;
        messages_no_memory(b->messages);
        return 0;
    }
    for (int i = 0; i < 4; i++)
        if (d->op.in[i] != TAPE_NONE) p->values[d->op.in[i]].n_readers++;
    if (makes_value) {
        d->op.out = p->n_values;
        struct tape_value *v = &p->values[p->n_values++];
        *v = (struct tape_value){ .width = (uint32_t)d->width, .slots = d->slots, .op = p->n_ops, .buffer = TAPE_NONE };
        memcpy(v->name, d->name, sizeof v->name);
    } else {
        memcpy(p->values[d->op.in[0]].name, d->name, sizeof d->name); /* taps know it as "logits" or "embedding" */
    }
    p->ops[p->n_ops++] = d->op;
    return makes_value ? p->n_values : d->op.in[0] + 1;
}

uint32_t builder_op(void *self, const struct wk_op *o)
{
    struct builder *b = self;
    if (b->messages->status == WK_NO_MEMORY) return 0;
    union any_op copy;
    memset(&copy, 0, sizeof copy);
    struct draft d = { .op = { .kind = o->kind, .layer = b->layer, .out = TAPE_NONE, .launch = TAPE_NONE },
                       .slots = 1 };
    if (!readable(b, o, &copy) || !resolve(b, o, &d)) return 0;
    if (b->p->n_ops == TAPE_MAX_OPS) {
        if (b->messages->status == WK_OK)
            messages_say(b->messages, WK_INVALID, "more than %d operations", TAPE_MAX_OPS);
        return 0;
    }
    if (!kinds[o->kind].take(b, &copy, &d)) return 0;
    if (d.width >= TAPE_MAX_WIDTH) {
        messages_say(b->messages, WK_INVALID, "%s: %llu wide, must be below %d", d.name, (unsigned long long)d.width,
                     TAPE_MAX_WIDTH);
        return 0;
    }
    return commit(b, &d);
}
