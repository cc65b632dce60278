/* adapt.c: what adapters make of a recording.
 *
 * Behind each product or lookup that the plugin records, the host records what the adapters add to it: y = W x + s (B
 * (A x)), of several adapters in their order. The plugin is given the sum for its value and knows of nothing; to
 * executors these are operations as any others, so W may be of any type and keeps its bits. Row ranges of one tensor
 * share A x.
 *
 * Shapes, of W [slabs][n][k]: A [slabs][rank][k], B [slabs][n][rank]. Of a table of embeddings [n][k], whose rows are
 * looked up: A [n][rank], B [k][rank]; where the same tensor is the head, too, the head stays as it is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tape/adapter.h"
#include "tape/ops.h"

enum { MET = 1, /* an operation reads the model's tensor; */ TABLE = 2, /* looks its rows up; */ USED = 4 };

/* Of one pair: what became of it, and A x of the x that was last multiplied. */
struct pair {
    uint32_t state;             /* MET, TABLE, USED */
    uint32_t a, b;              /* tensor ids, 0: not used yet */
    uint32_t x, route, product; /* value ids */
};
/* One adapter while a model is recorded. */
struct adapting {
    const struct adapter *adapter;
    struct pair *pairs; /* [tensors of its file] at A's index */
};

static size_t index_of(const struct adapting *s, const struct gguf_tensor *t)
{
    return (size_t)(t - gguf_tensor_at(s->adapter->file, 0));
}

bool adapt_begin(struct builder *b)
{
    const struct tape_options *o = b->options;
    if (!o->n_adapters) return true;
    b->adapting = arena_take(b->scratch, o->n_adapters, sizeof *b->adapting);
    for (uint32_t i = 0; b->adapting && i < o->n_adapters; i++) {
        struct adapting *s = &b->adapting[i];
        s->adapter = &o->adapters[i];
        s->pairs = arena_take(b->scratch, (size_t)gguf_tensor_count(s->adapter->file), sizeof *s->pairs);
        if (!s->pairs) b->adapting = NULL;
    }
    if (!b->adapting) {
        messages_no_memory(b->messages);
        return false;
    }
    for (uint32_t i = 0; i < o->n_adapters; i++)
        if (strcmp(o->adapters[i].architecture, b->p->architecture) != 0)
            messages_say(b->messages, WK_INVALID, "%s: an adapter for %s, the model's architecture is %s",
                         gguf_path(o->adapters[i].file),
                         o->adapters[i].architecture[0] ? o->adapters[i].architecture : "no architecture",
                         b->p->architecture);
    return b->messages->status == WK_OK;
}

/* ---- does the pair fit? -------------------------------------------------------------------------------- */

/* Rows x cols x slabs of both halves, which have been read. */
struct shapes {
    uint32_t rows[2], cols[2], slabs[2];
};

static bool shapes_of(const struct gguf_tensor *const half[2], struct shapes *out)
{
    bool ok = true;
    for (int h = 0; h < 2; h++) ok = builder_tensor_shape(half[h], &out->rows[h], &out->cols[h], &out->slabs[h]) && ok;
    return ok && out->cols[ADAPTER_B] > 0;
}

static bool fits(const struct shapes *z, const struct tape_tensor *w, bool table)
{
    const uint32_t a = ADAPTER_A, b = ADAPTER_B;
    if (z->slabs[a] != w->slabs || z->slabs[b] != w->slabs) return false;
    return table ? z->rows[a] == w->rows && z->rows[b] == w->cols && z->cols[a] == z->cols[b]
                 : z->cols[a] == w->cols && z->rows[b] == w->rows && z->rows[a] == z->cols[b];
}

/* ---- the operations ------------------------------------------------------------------------------------ */

/* Records an operation whose value is called <tensor>.<what>. */
static uint32_t add_op(struct builder *b, const struct wk_op *o, const char *tensor, const char *what)
{
    char name[2 * TAPE_NAME];
    (void)snprintf(name, sizeof name, "%s.%s", tensor, what);
    b->given_name = name;
    const uint32_t value = builder_op(b, o);
    b->given_name = NULL;
    if (value) b->p->ops[b->p->values[value - 1].op].adapter = true;
    return value;
}

/* The product of x with rows [first, first + n) of one half; of the kind of `like`. */
static uint32_t add_product(struct builder *b, const union any_op *like, uint32_t x, uint32_t tensor, uint32_t first,
                            uint32_t n, const char *name, const char *what)
{
    struct wk_op_linear l;
    wk_op_init(&l, sizeof l, like->o.kind == WK_OP_EMBED ? WK_OP_LINEAR : like->o.kind);
    l.o.in[0] = x;
    if (like->o.kind == WK_OP_EXPERT) l.o.in[1] = like->o.in[1];
    l.o.t[0] = tensor;
    l.first = first;
    l.n = n;
    l.slabs = like->o.kind == WK_OP_EMBED ? 0 : like->linear.slabs;
    return add_op(b, &l.o, name, what);
}

static uint32_t add_lookup(struct builder *b, const union any_op *like, uint32_t tensor, const char *name)
{
    struct wk_op_embed e;
    wk_op_init(&e, sizeof e, WK_OP_EMBED);
    e.index = like->embed.index;
    e.offset = like->embed.offset;
    e.o.t[0] = tensor;
    return add_op(b, &e.o, name, "lora_a");
}

/* A x; ranges of one tensor that read the same x share it. */
static uint32_t first_half(struct builder *b, const union any_op *o, struct pair *p, uint32_t rank, const char *name)
{
    if (o->o.kind == WK_OP_EMBED) return add_lookup(b, o, p->a, name);
    if (!p->product || p->x != o->o.in[0] || p->route != o->o.in[1]) {
        p->x = o->o.in[0];
        p->route = o->o.in[1];
        p->product = add_product(b, o, p->x, p->a, 0, rank, name, "lora_a");
    }
    return p->product;
}

static uint32_t add_sum(struct builder *b, const union any_op *o, struct pair *p, float factor, uint32_t value)
{
    const uint32_t w = o->o.t[0] - 1;
    const bool table = o->o.kind == WK_OP_EMBED;
    const uint32_t rank = b->p->tensors[p->b - 1].cols, width = b->p->tensors[w].cols;
    char name[TAPE_NAME];
    (void)snprintf(name, sizeof name, "%s", b->asked[w]);
    const uint32_t inner = first_half(b, o, p, rank, name);
    if (!inner) return 0;
    const uint32_t outer =
        add_product(b, o, inner, p->b, table ? 0 : o->linear.first, table ? width : o->linear.n, name, "lora_b");
    struct wk_op_unary scale;
    wk_op_init(&scale, sizeof scale, WK_OP_UNARY);
    scale.o.in[0] = outer;
    scale.fn = WK_UNARY_SCALE;
    scale.p = factor;
    struct wk_op sum;
    wk_op_init(&sum, sizeof sum, WK_OP_ADD);
    sum.in[0] = value;
    sum.in[1] = outer ? add_op(b, &scale.o, name, "lora_b.scale") : 0;
    return sum.in[1] ? add_op(b, &sum, name, "lora") : 0;
}

/* `value`, the operation's, with what one adapter adds to it. */
static uint32_t adapt_by(struct builder *b, uint32_t i, const union any_op *o, uint32_t value)
{
    struct adapting *s = &b->adapting[i];
    const struct tape_tensor *w = &b->p->tensors[o->o.t[0] - 1];
    const struct gguf_tensor *half[2] = { adapter_find(s->adapter, w->name, ADAPTER_A),
                                          adapter_find(s->adapter, w->name, ADAPTER_B) };
    struct shapes z;
    const bool table = o->o.kind == WK_OP_EMBED;
    if (!half[0] || w->slab_files) return value;
    struct pair *p = &s->pairs[index_of(s, half[0])];
    p->state |= table ? MET | TABLE : MET;
    /* What is looked up anywhere is a table, and changed as one alone. */
    if (table != !!(p->state & TABLE) || !shapes_of(half, &z) || !fits(&z, w, table)) return value;
    p->state |= USED;
    const float factor = adapter_factor(s->adapter, z.cols[ADAPTER_B]);
    if (!isfinite(factor)) {
        messages_say(b->messages, WK_INVALID, "%s: %s: scale %g, alpha %g and rank %u make no finite factor",
                     gguf_path(s->adapter->file), w->name, s->adapter->scale, s->adapter->alpha,
                     (unsigned)z.cols[ADAPTER_B]);
        return 0;
    }
    if (s->adapter->scale == 0) return value;
    if (!p->a) p->a = builder_adapter_tensor(b, i, half[0], z.rows[0], z.cols[0], z.slabs[0]);
    if (!p->b) p->b = builder_adapter_tensor(b, i, half[1], z.rows[1], z.cols[1], z.slabs[1]);
    return p->a && p->b ? add_sum(b, o, p, factor, value) : 0;
}

uint32_t adapt_op(struct builder *b, const union any_op *o, uint32_t value)
{
    const uint16_t kind = o->o.kind;
    if (!b->adapting || !value) return value;
    if (kind != WK_OP_EMBED && kind != WK_OP_LINEAR && kind != WK_OP_EXPERT && kind != WK_OP_LINEAR_HEADS) return value;
    if (b->p->tensors[o->o.t[0] - 1].adapter) return value; /* recorded here */
    for (uint32_t i = 0; value && i < b->options->n_adapters; i++) value = adapt_by(b, i, o, value);
    return value;
}

/* ---- what changed nothing ------------------------------------------------------------------------------ */

static void say_shapes(const struct builder *b, const struct adapting *s, const struct gguf_tensor *half[2],
                       const struct gguf_tensor *w, bool table)
{
    struct shapes z;
    uint32_t rows, cols, slabs;
    const int len = (int)(half[0]->name.len - 7);
    const char *file = gguf_path(s->adapter->file), *name = half[0]->name.data;
    if (!shapes_of(half, &z) || !builder_tensor_shape(w, &rows, &cols, &slabs)) {
        messages_say(b->messages, WK_INVALID, "%s: %.*s: a tensor of four dimensions or without values", file, len,
                     name);
        return;
    }
    if (!table && z.cols[0] == cols && z.rows[1] == rows && z.rows[0] != z.cols[1])
        messages_say(b->messages, WK_INVALID, "%s: %.*s: the rank is %u in lora_a and %u in lora_b", file, len, name,
                     (unsigned)z.rows[0], (unsigned)z.cols[1]);
    else
        messages_say(b->messages, WK_INVALID,
                     "%s: %.*s: lora_a is %u x %u x %u and lora_b %u x %u x %u, the model's %s of %u x %u x %u takes "
                     "%s: an adapter of another model",
                     file, len, name, (unsigned)z.rows[0], (unsigned)z.cols[0], (unsigned)z.slabs[0],
                     (unsigned)z.rows[1], (unsigned)z.cols[1], (unsigned)z.slabs[1], table ? "table" : "matrix",
                     (unsigned)rows, (unsigned)cols, (unsigned)slabs,
                     table ? "rows x rank and columns x rank" : "rank x columns and rows x rank");
}

static void check_pair(const struct builder *b, const struct adapting *s, const struct gguf_tensor *a)
{
    enum adapter_half half = ADAPTER_A;
    const size_t len = adapter_name(a, &half);
    const uint32_t state = s->pairs[index_of(s, a)].state;
    if (half != ADAPTER_A || state & USED) return;
    char name[TAPE_NAME];
    (void)snprintf(name, sizeof name, "%.*s", (int)len, a->name.data);
    const struct gguf_tensor *w = gguf_tensor_find(b->p->file, a->name.data, len),
                             *both[2] = { a, adapter_find(s->adapter, name, ADAPTER_B) };
    if (!w)
        messages_say(b->messages, WK_INVALID, "%s: %s: the model has no such tensor: an adapter of another model",
                     gguf_path(s->adapter->file), name);
    else if (!(state & MET))
        messages_say(b->messages, WK_UNSUPPORTED,
                     "%s: %s: an adapter can change matrices and tables of embeddings that are one tensor; the model "
                     "reads this one otherwise",
                     gguf_path(s->adapter->file), name);
    else
        say_shapes(b, s, both, w, state & TABLE);
}

void adapt_end(const struct builder *b)
{
    for (uint32_t i = 0; b->adapting && i < b->options->n_adapters; i++)
        for (uint64_t t = 0; t < gguf_tensor_count(b->adapting[i].adapter->file); t++)
            check_pair(b, &b->adapting[i], gguf_tensor_at(b->adapting[i].adapter->file, t));
}
