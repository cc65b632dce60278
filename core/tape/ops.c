/* ops.c: one recorded operation: may this host read the struct, do its inputs fit, what does it make.
 *
 * Every kind has a row in the table below and a take function that checks shapes and numbers and copies the fields.
 * Messages name the operation as its result would be called, the values it reads, and both shapes. */
#include <math.h>
#include <string.h>

#include "plugin/call.h"
#include "plugin/growth.h"
#include "tape/internal.h"

union any_op {
    struct wk_op o;
    struct wk_op_embed embed;
    struct wk_op_linear linear;
    struct wk_op_norm norm;
    struct wk_op_rope rope;
    struct wk_op_attention attention;
    struct wk_op_unary unary;
    struct wk_op_glu glu;
    struct wk_op_slice slice;
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

/* A struct that an operation points to, in the host's size. */
static bool grown(struct builder *b, void *ours, size_t known, size_t least, const void *theirs, uint64_t size,
                  const char *where, const char *what)
{
    char text[MESSAGE_BYTES];
    const wk_status status = growth_copy(ours, known, least, theirs, size, what, &(struct wk_err){ text, sizeof text });
    if (status != WK_OK) messages_say(b->messages, status, "%s: %s", where, text);
    return status == WK_OK;
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
/* By the table of kinds below: the operation's enumerator, its flags. */
static bool known_choice(struct builder *b, const struct draft *d, const union any_op *a);
static uint32_t unknown_flags(const union any_op *a);
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
    if (!name_after_tensor(b, d) || !known_choice(b, d, a)) return false;
    const struct tape_tensor *t = weight(b, d, 0);
    if (!tensor_is(b, d, 0, t->rows, t->cols, 1)) return false;
    if (e->index == WK_EMBED_POSITION && (uint64_t)b->p->context + e->offset > t->rows)
        REFUSE(WK_INVALID,
               "%s: a context of %u positions (+ %u) reaches past the table's %u rows; ask for a shorter context",
               d->name, (unsigned)b->p->context, (unsigned)e->offset, (unsigned)t->rows);
    if (e->index == WK_EMBED_TOKEN) {
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
    if (!name_after_tensor(b, d) || !known_choice(b, d, a)) return false;
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
static const double *share_frequencies(struct builder *b, const struct wk_rope_freqs *f)
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
    const struct wk_rope_freqs *f = a->rope.freqs;
    const struct tape_value *x = input(b, d, 0);
    uint32_t head = a->rope.head;
    if (!name_after_input(b, d, "rope") || !one_slot(b, d, 0)) return false;
    struct wk_rope_freqs copy;
    if (!f) REFUSE(WK_INVALID, "%s: no frequencies", d->name);
    if (!grown(b, &copy, sizeof copy, WK_ROPE_FREQS_SIZE_1_0, f, f->struct_size, d->name, "struct wk_rope_freqs"))
        return false;
    f = &copy;
    if (!f->freq) REFUSE(WK_INVALID, "%s: no frequencies", d->name);
    if (f->reserved)
        REFUSE(WK_UNSUPPORTED, "%s: frequencies: reserved is %u, must be 0", d->name, (unsigned)f->reserved);
    if (!known(b, d, "style", f->style, 0, WK_ROPE_HALF + 1)) return false;
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
    const struct wk_op_attention *t = &a->attention;
    uint32_t q = input(b, d, 0)->width, k = input(b, d, 1)->width, v = input(b, d, 2)->width;
    if (!name_in_scope(b, d, "attention", false) || !one_slot(b, d, 0) || !one_slot(b, d, 1) || !one_slot(b, d, 2))
        return false;
    if (unknown_flags(a))
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
    if (t->scale == 0)
        REFUSE(WK_INVALID, "%s: scale is 0, which would give every key the same weight; it is usually 1 / sqrt(%u)",
               d->name, (unsigned)(q / t->heads));
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

static bool take_unary(struct builder *b, const union any_op *a, struct draft *d)
{
    static const char *const names[WK_UNARY_END] = {
        [WK_UNARY_SCALE] = "scale", [WK_UNARY_GELU_TANH] = "gelu",  [WK_UNARY_GELU_ERF] = "gelu",
        [WK_UNARY_SILU] = "silu",   [WK_UNARY_SIGMOID] = "sigmoid", [WK_UNARY_TANH] = "tanh",
        [WK_UNARY_RELU] = "relu",   [WK_UNARY_SOFTCAP] = "softcap"
    };
    uint32_t fn = a->unary.fn;
    if (!name_after_input(b, d, fn && fn < WK_UNARY_END ? names[fn] : "unary") || !known_choice(b, d, a)) return false;
    if (!finite_number(b, d, "p", (double)a->unary.p)) return false;
    if (fn == WK_UNARY_SOFTCAP && !(a->unary.p > 0))
        REFUSE(WK_INVALID, "%s: a cap of %g must be above 0", d->name, (double)a->unary.p);
    d->op.u.unary.fn = fn;
    d->op.u.unary.p = a->unary.p;
    return as_input(b, d, 0);
}
static bool take_glu(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_glu *g = &a->glu;
    if (!name_in_scope(b, d, "glu", false) || !known_choice(b, d, a) || !same_shape(b, d)) return false;
    if (!finite_number(b, d, "alpha", (double)g->alpha) || !finite_number(b, d, "limit", (double)g->limit))
        return false;
    if (g->fn == WK_GLU_SILU_CLAMPED && !(g->limit > 0))
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
static bool take_slice(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct tape_value *x = input(b, d, 0);
    const struct wk_op_slice *c = &a->slice;
    if (!name_after_input(b, d, "slice")) return false;
    if (!c->n || (uint64_t)c->first + c->n > x->width)
        REFUSE(WK_INVALID, "%s: columns %u to %llu of %s, which is %u wide", d->name, (unsigned)c->first,
               (unsigned long long)c->first + c->n, x->name, (unsigned)x->width);
    d->op.u.slice.first = c->first;
    d->op.u.slice.n = c->n;
    d->width = c->n;
    d->slots = x->slots;
    return true;
}

static bool take_route(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_route *r = &a->route;
    uint32_t n = input(b, d, 0)->width;
    if (!name_in_scope(b, d, "route", false) || !one_slot(b, d, 0) || !known_choice(b, d, a)) return false;
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
    if (!name_in_scope(b, d, "pool", false) || !one_slot(b, d, 0) || !known_choice(b, d, a)) return false;
    d->op.u.pool.how = a->pool.how;
    return as_input(b, d, 0);
}
static bool take_output(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_output *o = &a->output;
    const struct tape_value *x = input(b, d, 0);
    const bool logits = o->what == WK_OUTPUT_LOGITS, pooled = producer(b, x)->kind == WK_OP_POOL;
    (void)snprintf(d->name, sizeof d->name, "%s", o->what == WK_OUTPUT_EMBEDDING ? "embedding" : "logits");
    if (!known_choice(b, d, a) || !one_slot(b, d, 0)) return false;
    if (o->flags & ~(uint32_t)(logits ? 0 : WK_OUTPUT_L2_NORM)) return known(b, d, "flags", o->flags, 0, 0);
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
    if (!c->def) REFUSE(WK_INVALID, "%scustom: no definition", b->scope);
    struct wk_custom_def *def = arena_take(b->arena, 1, sizeof *def);
    if (!def) return messages_no_memory(b->messages), false;
    if (!grown(b, def, sizeof *def, WK_CUSTOM_DEF_SIZE_1_0, c->def, c->def->struct_size, b->scope,
               "struct wk_custom_def"))
        return false;
    if (!def->name || !def->width || !def->cpu)
        REFUSE(WK_INVALID, "%scustom: the definition lacks a name, a width or a function", b->scope);
    if (!name_in_scope(b, d, def->name, false)) return false;
    uint32_t widths[TAPE_IN], n = 0;
    for (; n < TAPE_IN && d->op.in[n] != TAPE_NONE; n++) {
        if (!one_slot(b, d, (int)n)) return false;
        widths[n] = input(b, d, (int)n)->width;
    }
    if (c->params_bytes > 4096 || (c->params_bytes && !c->params))
        REFUSE(WK_INVALID, "%s: %u bytes of parameters, at most 4096", d->name, (unsigned)c->params_bytes);
    struct plugin_call call;
    PLUGIN_CALL(&call, def->width, "custom operation's width");
    d->width = def->width(widths, n);
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
    d->op.u.custom.def = def;
    d->op.u.custom.params_bytes = c->params_bytes;
    return true;
}

/* ---- the table, and the callback ----------------------------------------------------------------------- */

static const struct op_kind {
    const char *name;
    uint16_t least, size;    /* bytes in ABI 1.0; bytes this host knows */
    uint16_t reserved;       /* offset of the field that must be 0; 0: none */
    uint8_t n_in, n_t, need; /* inputs that must be there; tensors it may have; tensors it must have */
    bool (*take)(struct builder *b, const union any_op *a, struct draft *d);
    const char *choice; /* what its enumerator chooses; NULL: it has none */
    uint16_t choice_at; /* offset */
    uint8_t first, end; /* values that this host knows */
    uint16_t flags_at;  /* offset; 0: it has none */
    uint32_t flags;     /* those that this host knows */
} kinds[WK_OP_END] = {
#define CHOICE(what, type, field, low, high) \
    .choice = what, .choice_at = offsetof(struct type, field), .first = low, .end = high
#define FLAGS(type, mask) .flags_at = offsetof(struct type, flags), .flags = mask
#define PLAIN WK_OP_SIZE_1_0, sizeof(struct wk_op), 0
#define OP(NAME, name) WK_OP_##NAME##_SIZE_1_0, sizeof(struct wk_op_##name), 0
#define OP_RESERVED(NAME, name) \
    WK_OP_##NAME##_SIZE_1_0, sizeof(struct wk_op_##name), offsetof(struct wk_op_##name, reserved)
    [WK_OP_EMBED] = { "embed", OP(EMBED, embed), 0, 1, 1, .take = take_embed,
                      CHOICE("index", wk_op_embed, index, 0, WK_EMBED_POSITION + 1) },
    [WK_OP_LINEAR] = { "linear", OP_RESERVED(LINEAR, linear), 1, 2, 1, .take = take_linear },
    [WK_OP_NORM] = { "norm", OP_RESERVED(NORM, norm), 1, 2, 0, .take = take_norm,
                     CHOICE("norm", wk_op_norm, kind, 0, WK_NORM_LAYER + 1) },
    [WK_OP_ROPE] = { "rope", OP_RESERVED(ROPE, rope), 1, 0, 0, .take = take_rope },
    [WK_OP_ATTENTION] = { "attention", OP(ATTENTION, attention), 3, 1, 0, .take = take_attention,
                          FLAGS(wk_op_attention, 0) },
    [WK_OP_UNARY] = { "unary", OP(UNARY, unary), 1, 0, 0, .take = take_unary,
                      CHOICE("function", wk_op_unary, fn, 1, WK_UNARY_END) },
    [WK_OP_GLU] = { "glu", OP_RESERVED(GLU, glu), 2, 0, 0, .take = take_glu,
                    CHOICE("function", wk_op_glu, fn, 1, WK_GLU_END) },
    [WK_OP_ADD] = { "add", PLAIN, 2, 0, 0, .take = take_add },
    [WK_OP_MUL] = { "mul", PLAIN, 2, 0, 0, .take = take_mul },
    [WK_OP_SLICE] = { "slice", OP(SLICE, slice), 1, 0, 0, .take = take_slice },
    [WK_OP_ROUTE] = { "route", OP_RESERVED(ROUTE, route), 1, 0, 0, .take = take_route,
                      CHOICE("score", wk_op_route, score, 1, WK_SCORE_END) },
    [WK_OP_EXPERT] = { "expert", OP_RESERVED(LINEAR, linear), 2, 2, 1, .take = take_expert },
    [WK_OP_COMBINE] = { "combine", PLAIN, 2, 0, 0, .take = take_combine },
    [WK_OP_POOL] = { "pool", OP_RESERVED(POOL, pool), 1, 0, 0, .take = take_pool,
                     CHOICE("pooling", wk_op_pool, how, 1, WK_POOL_END) },
    [WK_OP_OUTPUT] = { "output", OP(OUTPUT, output), 1, 0, 0, .take = take_output,
                       CHOICE("output", wk_op_output, what, 1, WK_OUTPUT_END), FLAGS(wk_op_output, WK_OUTPUT_L2_NORM) },
    [WK_OP_CUSTOM] = { "custom", OP_RESERVED(CUSTOM, custom), 0, 0, 0, .take = take_custom },
#undef CHOICE
#undef FLAGS
#undef PLAIN
#undef OP
#undef OP_RESERVED
};
enum { MAX_OP_BYTES = 1024 };

const char *op_kind_name(uint32_t kind) { return kind && kind < WK_OP_END ? kinds[kind].name : "?"; }

static uint32_t field_of(const union any_op *a, uint16_t at)
{
    uint32_t x;
    memcpy(&x, (const unsigned char *)a + at, sizeof x);
    return x;
}
static bool knows_choice(const union any_op *a)
{
    const struct op_kind *k = &kinds[a->o.kind];
    const uint32_t x = k->choice ? field_of(a, k->choice_at) : 0;
    return !k->choice || (x >= k->first && x < k->end);
}
static bool known_choice(struct builder *b, const struct draft *d, const union any_op *a)
{
    const struct op_kind *k = &kinds[a->o.kind];
    return known(b, d, k->choice, field_of(a, k->choice_at), k->first, k->end);
}
static uint32_t unknown_flags(const union any_op *a)
{
    const struct op_kind *k = &kinds[a->o.kind];
    return k->flags_at ? field_of(a, k->flags_at) & ~k->flags : 0;
}

/* The growth rule: an operation of a newer SDK is taken iff it uses nothing that this host does not know. */
static wk_status readable(const struct wk_op *o, union any_op *copy, const struct wk_err *err)
{
    if (!o->kind || o->kind >= WK_OP_END)
        return wk_fail(err, WK_UNSUPPORTED, "op %u needs ABI %d.%u, this host has %d.%d", (unsigned)o->kind,
                       WK_ABI_MAJOR, (unsigned)o->since, WK_ABI_MAJOR, WK_ABI_MINOR);
    const struct op_kind *k = &kinds[o->kind];
    if (o->size > MAX_OP_BYTES)
        return wk_fail(err, WK_INVALID, "%s: %u bytes, at most %d", k->name, (unsigned)o->size, MAX_OP_BYTES);
    const wk_status status = growth_copy(copy, k->size, k->least, o, o->size, k->name, err);
    if (status != WK_OK) return status;
    uint32_t set = 0; /* offset of the first field that means nothing in this kind */
    uint32_t reserved = 0;
    if (k->reserved) memcpy(&reserved, (const unsigned char *)copy + k->reserved, sizeof reserved);
    if (reserved) set = k->reserved;
    for (uint32_t i = TAPE_IN; o->kind != WK_OP_CUSTOM && i-- > k->n_t;)
        if (o->t[i]) set = (uint32_t)(offsetof(struct wk_op, t) + i * sizeof o->t[0]);
    for (uint32_t i = TAPE_IN; o->kind != WK_OP_CUSTOM && i-- > k->n_in;)
        if (o->in[i]) set = (uint32_t)(offsetof(struct wk_op, in) + i * sizeof o->in[0]);
    if (!set) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED, "%s: byte %u is set, unknown to this host (ABI %d.%d)", k->name, (unsigned)set,
                   WK_ABI_MAJOR, WK_ABI_MINOR);
}

uint32_t builder_supports(void *self, const struct wk_op *o)
{
    (void)self;
    union any_op copy;
    return readable(o, &copy, NULL) == WK_OK && knows_choice(&copy) && !unknown_flags(&copy);
}

/* Ids become indices. An input that failed before stops the operation without another word. */
static bool resolve(struct builder *b, const struct wk_op *o, struct draft *d)
{
    const struct op_kind *k = &kinds[o->kind];
    for (int i = 0; i < TAPE_IN; i++) {
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
    for (int i = 0; i < TAPE_IN; i++)
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
    char text[MESSAGE_BYTES];
    struct draft d = { .op = { .kind = o->kind, .layer = b->layer, .out = TAPE_NONE, .launch = TAPE_NONE },
                       .slots = 1 };
    const wk_status status = readable(o, &copy, &(struct wk_err){ text, sizeof text });
    if (status != WK_OK) messages_say(b->messages, status, "%s%s", b->scope, text);
    if (status != WK_OK || !resolve(b, o, &d)) return 0;
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
