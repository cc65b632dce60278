/* take.c: operations that work on a row alone: do the inputs fit, what do they make. Also the names of results and the
 * checks that several kinds share. */
#include <math.h>
#include <string.h>

#include "plugin/call.h"
#include "plugin/growth.h"
#include "tape/ops.h"

/* ---- names --------------------------------------------------------------------------------------------- */

bool name_it(struct builder *b, struct draft *d, const char *base, bool numbered)
{
    if (b->given_name) base = b->given_name, numbered = false;
    wk_status status = labels_free(b->labels, base, numbered, d->name);
    if (status == WK_OK) return true;
    if (status == WK_NO_MEMORY) return messages_no_memory(b->messages), false;
    REFUSE(WK_INVALID, "%s: the name of a value has at most %d bytes", base, TAPE_NAME - 1);
}
bool name_in_scope(struct builder *b, struct draft *d, const char *what, bool numbered)
{
    char base[2 * TAPE_NAME];
    (void)snprintf(base, sizeof base, "%s%s", b->scope, what);
    return name_it(b, d, base, numbered);
}
bool name_after_tensor(struct builder *b, struct draft *d)
{
    return d->op.t[0] == TAPE_NONE ? name_in_scope(b, d, op_kind_name(d->op.kind), false)
                                   : name_it(b, d, b->asked[d->op.t[0]], false);
}
/* x.rope; where that grows too long, blk.7.rope. */
bool name_after_input(struct builder *b, struct draft *d, const char *what)
{
    char base[2 * TAPE_NAME];
    (void)snprintf(base, sizeof base, "%s.%s", input(b, d, 0)->name, what);
    return strlen(base) + 8 < TAPE_NAME ? name_it(b, d, base, false) : name_in_scope(b, d, what, false);
}

/* A struct that an operation points to, in the host's size. */
bool grown(struct builder *b, void *ours, size_t known, size_t least, const void *theirs, uint64_t size,
           const char *where, const char *what)
{
    char text[MESSAGE_BYTES];
    const wk_status status = growth_copy(ours, known, least, theirs, size, what, &(struct wk_err){ text, sizeof text });
    if (status != WK_OK) messages_say(b->messages, status, "%s: %s", where, text);
    return status == WK_OK;
}

/* ---- checks that several kinds share ------------------------------------------------------------------- */

bool one_slot(struct builder *b, const struct draft *d, int i)
{
    const struct tape_value *x = input(b, d, i);
    if (x->slots == 1) return true;
    REFUSE(WK_INVALID, "%s: %s has %u slots, 1 is served", d->name, x->name, (unsigned)x->slots);
}
bool same_shape(struct builder *b, const struct draft *d)
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
bool is_route(struct builder *b, const struct draft *d, int i)
{
    const struct tape_value *r = input(b, d, i);
    if (producer(b, r)->kind == WK_OP_ROUTE) return true;
    REFUSE(WK_INVALID, "%s: %s is not the result of a route", d->name, r->name);
}
bool finite_number(struct builder *b, const struct draft *d, const char *what, double x)
{
    if (isfinite(x)) return true;
    REFUSE(WK_INVALID, "%s: %s is not a finite number", d->name, what);
}
/* A value inside an enumeration that grows with the ABI. */
bool known(struct builder *b, const struct draft *d, const char *what, uint32_t x, uint32_t first, uint32_t end)
{
    if (x >= first && x < end) return true;
    REFUSE(WK_UNSUPPORTED, "%s: %s %u is unknown to this host (ABI %d.%d)", d->name, what, (unsigned)x, WK_ABI_MAJOR,
           WK_ABI_MINOR);
}
bool tensor_is(struct builder *b, const struct draft *d, int i, uint32_t rows, uint32_t cols, uint32_t slabs)
{
    const struct tape_tensor *t = weight(b, d, i);
    if (!t || (t->rows == rows && t->cols == cols && t->slabs == slabs)) return true;
    REFUSE(WK_INVALID, "%s: %s is %u x %u x %u, the operation needs %u x %u x %u", d->name, t->name, (unsigned)t->rows,
           (unsigned)t->cols, (unsigned)t->slabs, (unsigned)rows, (unsigned)cols, (unsigned)slabs);
}
bool as_input(const struct builder *b, struct draft *d, int i)
{
    d->width = input(b, d, i)->width;
    d->slots = input(b, d, i)->slots;
    return true;
}

/* ---- one function a kind ------------------------------------------------------------------------------- */

bool take_embed(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_embed *e = &a->embed;
    if (!name_after_tensor(b, d) || !known_choice(b, d, a)) return false;
    const struct tape_tensor *t = weight(b, d, 0);
    if (!tensor_is(b, d, 0, t->rows, t->cols, 1)) return false;
    if (e->index == WK_EMBED_POSITION && (uint64_t)b->p->context + e->offset > t->rows)
        REFUSE(WK_INVALID,
               "%s: a context of %u positions (+ %u) reaches past the table's %u rows; ask for a shorter context",
               d->name, (unsigned)b->p->context, (unsigned)e->offset, (unsigned)t->rows);
    if (e->index == WK_EMBED_ROW && e->offset >= t->rows)
        REFUSE(WK_INVALID, "%s: row %u of %s, which has %u", d->name, (unsigned)e->offset, t->name, (unsigned)t->rows);
    if (e->index == WK_EMBED_TOKEN_TYPE && (e->offset || t->rows < 2))
        REFUSE(WK_INVALID, "%s: types of tokens, 0 and 1, in %s, which has %u rows, from row %u on", d->name, t->name,
               (unsigned)t->rows, (unsigned)e->offset);
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

/* Rows [first, first + n) of every slab; x has `k` values for each. */
static bool take_product(struct builder *b, const struct wk_op_linear *l, struct draft *d, uint32_t k)
{
    const struct tape_tensor *w = weight(b, d, 0);
    if (!tensor_is(b, d, 0, w->rows, k, l->slabs ? l->slabs : 1)) return false;
    if (!l->n || (uint64_t)l->first + l->n > w->rows)
        REFUSE(WK_INVALID, "%s: rows %u to %llu of %s, which has %u", d->name, (unsigned)l->first,
               (unsigned long long)l->first + l->n, w->name, (unsigned)w->rows);
    bool bias_fits =
        d->op.kind == WK_OP_EXPERT ? tensor_is(b, d, 1, l->slabs, w->rows, 1) : tensor_is(b, d, 1, 1, w->rows, 1);
    d->op.u.linear.first = l->first;
    d->op.u.linear.n = l->n;
    d->op.u.linear.slabs = l->slabs;
    d->width = d->op.kind == WK_OP_LINEAR_HEADS ? (uint64_t)l->n * l->slabs : l->n;
    return bias_fits;
}
bool take_linear(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_after_tensor(b, d) || !one_slot(b, d, 0)) return false;
    if (a->linear.slabs) REFUSE(WK_INVALID, "%s: %u experts in a linear", d->name, (unsigned)a->linear.slabs);
    return take_product(b, &a->linear, d, input(b, d, 0)->width);
}
bool take_linear_heads(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_after_tensor(b, d) || !one_slot(b, d, 0)) return false;
    const struct tape_value *x = input(b, d, 0);
    if (!a->linear.slabs || x->width % a->linear.slabs)
        REFUSE(WK_INVALID, "%s: %s is %u wide, not a multiple of %u heads", d->name, x->name, (unsigned)x->width,
               (unsigned)a->linear.slabs);
    return take_product(b, &a->linear, d, x->width / a->linear.slabs);
}
bool take_expert(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_after_tensor(b, d) || !is_route(b, d, 1)) return false;
    const struct tape_value *x = input(b, d, 0), *r = input(b, d, 1);
    const struct tape_value *scores = &b->p->values[producer(b, r)->in[0]];
    if (x->slots != 1 && x->slots != r->slots)
        REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, x->name, (unsigned)x->slots, r->name,
               (unsigned)r->slots);
    if (scores->width != a->linear.slabs)
        REFUSE(WK_INVALID, "%s: %u experts, %s chooses among %u", d->name, (unsigned)a->linear.slabs, r->name,
               (unsigned)scores->width);
    d->slots = r->slots;
    return take_product(b, &a->linear, d, x->width);
}
/* Of any shape that has the numbers: its rows stand one after the other. */
bool take_vector(struct builder *b, const union any_op *a, struct draft *d)
{
    (void)a;
    if (!name_after_tensor(b, d)) return false;
    const struct tape_tensor *t = weight(b, d, 0);
    if (!tensor_is(b, d, 0, t->rows, t->cols, 1)) return false;
    d->width = (uint64_t)t->rows * t->cols;
    return true;
}

bool take_norm(struct builder *b, const union any_op *a, struct draft *d)
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

bool take_unary(struct builder *b, const union any_op *a, struct draft *d)
{
    static const char *const names[WK_UNARY_END] = {
        [WK_UNARY_SCALE] = "scale", [WK_UNARY_GELU_TANH] = "gelu",  [WK_UNARY_GELU_ERF] = "gelu",
        [WK_UNARY_SILU] = "silu",   [WK_UNARY_SIGMOID] = "sigmoid", [WK_UNARY_TANH] = "tanh",
        [WK_UNARY_RELU] = "relu",   [WK_UNARY_SOFTCAP] = "softcap", [WK_UNARY_SOFTPLUS] = "softplus",
        [WK_UNARY_EXP] = "exp"
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
bool take_glu(struct builder *b, const union any_op *a, struct draft *d)
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
bool take_add(struct builder *b, const union any_op *a, struct draft *d)
{
    (void)a;
    return name_in_scope(b, d, "add", true) && same_shape(b, d) && as_input(b, d, 0);
}
bool take_mul(struct builder *b, const union any_op *a, struct draft *d)
{
    (void)a;
    if (!name_in_scope(b, d, "mul", true)) return false;
    const struct tape_value *x = input(b, d, 0), *y = input(b, d, 1);
    if (x->width % y->width)
        REFUSE(WK_INVALID, "%s: %s is %u wide, %s %u, which does not divide it", d->name, x->name, (unsigned)x->width,
               y->name, (unsigned)y->width);
    if (y->slots != 1 && x->slots != 1 && x->slots != y->slots)
        REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, x->name, (unsigned)x->slots, y->name,
               (unsigned)y->slots);
    d->width = x->width;
    d->slots = x->slots > y->slots ? x->slots : y->slots;
    return true;
}
bool take_slice(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct tape_value *x = input(b, d, 0);
    const struct wk_op_slice *c = &a->slice;
    if (!name_after_input(b, d, "slice")) return false;
    const uint32_t groups = c->groups ? c->groups : 1;
    if (x->width % groups)
        REFUSE(WK_INVALID, "%s: %s is %u wide, not a multiple of %u groups", d->name, x->name, (unsigned)x->width,
               (unsigned)groups);
    if (!c->n || (uint64_t)c->first + c->n > x->width / groups)
        REFUSE(WK_INVALID, "%s: columns %u to %llu of %s, which is %u wide", d->name, (unsigned)c->first,
               (unsigned long long)c->first + c->n, x->name, (unsigned)(x->width / groups));
    d->op.u.slice.first = c->first;
    d->op.u.slice.n = c->n;
    d->op.u.slice.groups = groups;
    d->width = (uint64_t)c->n * groups;
    d->slots = x->slots;
    return true;
}
/* Inputs and tensors of an operation that takes any number of them stand side by side. */
static bool no_gaps(struct builder *b, const struct draft *d)
{
    for (uint32_t i = 1; i < TAPE_IN; i++) {
        const bool in = d->op.in[i] != TAPE_NONE && d->op.in[i - 1] == TAPE_NONE,
                   t = d->op.t[i] != TAPE_NONE && d->op.t[i - 1] == TAPE_NONE;
        if (!in && !t) continue;
        if (b->messages->status != WK_OK) return false; /* what is missing has failed before */
        REFUSE(WK_INVALID, "%s: %s %u stands behind one that is missing", d->name, in ? "input" : "tensor",
               (unsigned)i);
    }
    return true;
}
bool take_concat(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_concat *c = &a->concat;
    const uint32_t groups = c->groups ? c->groups : 1;
    uint32_t n = 0;
    if (!name_in_scope(b, d, "concat", true) || !no_gaps(b, d)) return false;
    d->slots = input(b, d, 0)->slots;
    for (; n < TAPE_IN && d->op.in[n] != TAPE_NONE; n++) {
        const struct tape_value *x = input(b, d, (int)n);
        const bool repeated = c->repeated >> n & 1;
        if (x->slots != d->slots)
            REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, input(b, d, 0)->name, (unsigned)d->slots, x->name,
                   (unsigned)x->slots);
        if (!repeated && x->width % groups)
            REFUSE(WK_INVALID, "%s: %s is %u wide, not a multiple of %u groups", d->name, x->name, (unsigned)x->width,
                   (unsigned)groups);
        d->width += repeated ? (uint64_t)x->width * groups : x->width;
    }
    if (n < TAPE_IN && c->repeated >> n)
        REFUSE(WK_INVALID, "%s: repeated is 0x%x for %u inputs", d->name, (unsigned)c->repeated, (unsigned)n);
    d->op.u.concat.groups = groups;
    d->op.u.concat.repeated = c->repeated;
    return true;
}

static bool take_route_groups(struct builder *b, const struct wk_op_route *r, struct draft *d, uint32_t n)
{
    if (!r->groups) {
        if (r->groups_used || r->group_score)
            REFUSE(WK_INVALID, "%s: %u groups used of none", d->name, (unsigned)r->groups_used);
        return true;
    }
    if (!known(b, d, "group score", r->group_score, 1, WK_GROUP_END)) return false;
    if (r->groups > TAPE_MAX_ROUTE_GROUPS)
        REFUSE(WK_INVALID, "%s: %u groups (1 to %d are served)", d->name, (unsigned)r->groups, TAPE_MAX_ROUTE_GROUPS);
    if (n % r->groups || (r->group_score == WK_GROUP_TOP2 && n / r->groups < 2))
        REFUSE(WK_INVALID, "%s: %u groups of %u experts", d->name, (unsigned)r->groups, (unsigned)n);
    if (!r->groups_used || r->groups_used > r->groups || r->k > r->groups_used * (n / r->groups))
        REFUSE(WK_INVALID, "%s: top %u of %u of %u groups, of %u experts each", d->name, (unsigned)r->k,
               (unsigned)r->groups_used, (unsigned)r->groups, (unsigned)(n / r->groups));
    d->op.u.route.groups = r->groups;
    d->op.u.route.groups_used = r->groups_used;
    d->op.u.route.group_score = r->group_score;
    return true;
}
bool take_route(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_route *r = &a->route;
    uint32_t n = input(b, d, 0)->width;
    if (!name_in_scope(b, d, "route", false) || !one_slot(b, d, 0) || !known_choice(b, d, a)) return false;
    if (!r->k || r->k > n || r->k > TAPE_MAX_SLOTS)
        REFUSE(WK_INVALID, "%s: top %u of %u (1 to %d are served)", d->name, (unsigned)r->k, (unsigned)n,
               TAPE_MAX_SLOTS);
    if (!known_flags(b, d, a) || !finite_number(b, d, "scale", (double)r->scale)) return false;
    if (r->score == WK_SCORE_SOFTMAX_TOPK && (r->groups || d->op.t[0] != TAPE_NONE))
        REFUSE(WK_INVALID,
               "%s: a score that is the softmax over the chosen cannot choose them by %s; WK_SCORE_SOFTMAX with "
               "WK_ROUTE_NORMALIZE has the same weights",
               d->name, r->groups ? "groups" : "a bias");
    if (!tensor_is(b, d, 0, 1, n, 1) || !take_route_groups(b, r, d, n)) return false;
    d->op.u.route.k = r->k;
    d->op.u.route.score = r->score;
    d->op.u.route.scale = r->scale;
    d->op.u.route.flags = r->flags;
    d->width = 1;
    d->slots = r->k;
    return true;
}
bool take_combine(struct builder *b, const union any_op *a, struct draft *d)
{
    (void)a;
    if (!name_in_scope(b, d, "combine", false)) return false;
    const struct tape_value *y = input(b, d, 0);
    d->width = y->width;
    if (d->op.in[1] == TAPE_NONE) return true;
    if (!is_route(b, d, 1)) return false;
    const struct tape_value *r = input(b, d, 1);
    if (y->slots != r->slots)
        REFUSE(WK_INVALID, "%s: %s has %u slots, %s %u", d->name, y->name, (unsigned)y->slots, r->name,
               (unsigned)r->slots);
    return true;
}

bool take_pool(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_in_scope(b, d, "pool", false) || !one_slot(b, d, 0) || !known_choice(b, d, a)) return false;
    d->op.u.pool.how = a->pool.how;
    return as_input(b, d, 0);
}
bool take_output(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_output *o = &a->output;
    const struct tape_value *x = input(b, d, 0);
    const bool logits = o->what == WK_OUTPUT_LOGITS, pooled = x->pooled;
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

bool take_custom(struct builder *b, const union any_op *a, struct draft *d)
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
    if (!name_in_scope(b, d, def->name, false) || !known(b, d, "split", def->split, 0, WK_SPLIT_END) || !no_gaps(b, d))
        return false;
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
