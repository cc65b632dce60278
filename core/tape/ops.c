/* ops.c: one recorded operation: may this host read the struct, are its inputs there, which function takes it. Every
 * kind has a row in the table below; the take functions are in take.c and take_attention.c. */
#include <string.h>

#include "plugin/growth.h"
#include "tape/ops.h"

/* ---- the table, and the callback ----------------------------------------------------------------------- */

enum { MAX_CHOICES = 2 };
static const struct op_kind {
    const char *name;
    uint16_t least, size;               /* bytes in ABI 1.0; bytes this host knows */
    uint16_t reserved;                  /* offset of the field that must be 0; 0: none */
    uint8_t n_in, need_in, n_t, need_t; /* inputs that it may have and must have; the same of tensors */
    bool pooled;                        /* it may work on pooled rows */
    bool (*take)(struct builder *b, const union any_op *a, struct draft *d);
    struct {
        const char *what;   /* its enumerators choose; NULL: it has no more */
        uint16_t at;        /* offset */
        uint8_t first, end; /* values that this host knows */
    } choice[MAX_CHOICES];
    uint16_t flags_at; /* offset; 0: it has none */
    uint32_t flags;    /* those that this host knows */
} kinds[WK_OP_END] = {
#define CHOICE(what, type, field, low, high) .choice[0] = { what, offsetof(struct type, field), low, high }
#define CHOICE_2(what, type, field, low, high) .choice[1] = { what, offsetof(struct type, field), low, high }
#define FLAGS(type, mask) .flags_at = offsetof(struct type, flags), .flags = mask
#define PLAIN WK_OP_SIZE_1_0, sizeof(struct wk_op), 0
#define OP(NAME, name) WK_OP_##NAME##_SIZE_1_0, sizeof(struct wk_op_##name), 0
#define OP_RESERVED(NAME, name) \
    WK_OP_##NAME##_SIZE_1_0, sizeof(struct wk_op_##name), offsetof(struct wk_op_##name, reserved)
    [WK_OP_EMBED] = { "embed", OP(EMBED, embed), 0, 0, 1, 1, .take = take_embed,
                      CHOICE("index", wk_op_embed, index, 0, WK_EMBED_END) },
    [WK_OP_LINEAR] = { "linear", OP_RESERVED(LINEAR, linear), 1, 1, 2, 1, true, .take = take_linear },
    [WK_OP_NORM] = { "norm", OP_RESERVED(NORM, norm), 1, 1, 2, 0, true, .take = take_norm,
                     CHOICE("norm", wk_op_norm, kind, 0, WK_NORM_LAYER + 1) },
    [WK_OP_ROPE] = { "rope", OP_RESERVED(ROPE, rope), 1, 1, 0, 0, .take = take_rope },
    [WK_OP_ATTENTION] = { "attention", OP(ATTENTION, attention), 4, 1, 1, 0, .take = take_attention,
                          FLAGS(wk_op_attention, WK_ATTENTION_BIDIRECTIONAL) },
    [WK_OP_UNARY] = { "unary", OP(UNARY, unary), 1, 1, 0, 0, true, .take = take_unary,
                      CHOICE("function", wk_op_unary, fn, 1, WK_UNARY_END) },
    [WK_OP_GLU] = { "glu", OP_RESERVED(GLU, glu), 2, 2, 0, 0, true, .take = take_glu,
                    CHOICE("function", wk_op_glu, fn, 1, WK_GLU_END) },
    [WK_OP_ADD] = { "add", PLAIN, 2, 2, 0, 0, true, .take = take_add },
    [WK_OP_MUL] = { "mul", PLAIN, 2, 2, 0, 0, true, .take = take_mul },
    [WK_OP_SLICE] = { "slice", OP_RESERVED(SLICE, slice), 1, 1, 0, 0, true, .take = take_slice },
    [WK_OP_ROUTE] = { "route", OP_RESERVED(ROUTE, route), 1, 1, 1, 0, .take = take_route,
                      CHOICE("score", wk_op_route, score, 1, WK_SCORE_END),
                      CHOICE_2("group score", wk_op_route, group_score, 0, WK_GROUP_END),
                      FLAGS(wk_op_route, WK_ROUTE_NORMALIZE) },
    [WK_OP_EXPERT] = { "expert", OP_RESERVED(LINEAR, linear), 2, 2, 2, 1, .take = take_expert },
    [WK_OP_COMBINE] = { "combine", PLAIN, 2, 1, 0, 0, .take = take_combine },
    [WK_OP_POOL] = { "pool", OP_RESERVED(POOL, pool), 1, 1, 0, 0, .take = take_pool,
                     CHOICE("pooling", wk_op_pool, how, 1, WK_POOL_END) },
    [WK_OP_OUTPUT] = { "output", OP(OUTPUT, output), 1, 1, 0, 0, true, .take = take_output,
                       CHOICE("output", wk_op_output, what, 1, WK_OUTPUT_END), FLAGS(wk_op_output, WK_OUTPUT_L2_NORM) },
    [WK_OP_CUSTOM] = { "custom", OP_RESERVED(CUSTOM, custom), TAPE_IN, 0, TAPE_IN, 0, .take = take_custom },
    [WK_OP_CONCAT] = { "concat", OP(CONCAT, concat), TAPE_IN, 1, 0, 0, true, .take = take_concat },
    [WK_OP_LINEAR_HEADS] = { "linear_heads", OP_RESERVED(LINEAR, linear), 1, 1, 1, 1, .take = take_linear_heads },
    [WK_OP_VECTOR] = { "vector", PLAIN, 0, 0, 1, 1, .take = take_vector },
    [WK_OP_STATE] = { "state", OP(STATE, state), 5, 1, 2, 0, .take = take_state,
                      CHOICE("state", wk_op_state, kind, 1, WK_STATE_END) },
#undef CHOICE
#undef CHOICE_2
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
    for (int i = 0; i < MAX_CHOICES && k->choice[i].what; i++) {
        const uint32_t x = field_of(a, k->choice[i].at);
        if (x < k->choice[i].first || x >= k->choice[i].end) return false;
    }
    return true;
}
bool known_choice(struct builder *b, const struct draft *d, const union any_op *a)
{
    const struct op_kind *k = &kinds[a->o.kind];
    for (int i = 0; i < MAX_CHOICES && k->choice[i].what; i++)
        if (!known(b, d, k->choice[i].what, field_of(a, k->choice[i].at), k->choice[i].first, k->choice[i].end))
            return false;
    return true;
}
static uint32_t unknown_flags(const union any_op *a)
{
    const struct op_kind *k = &kinds[a->o.kind];
    return k->flags_at ? field_of(a, k->flags_at) & ~k->flags : 0;
}
bool known_flags(struct builder *b, const struct draft *d, const union any_op *a)
{
    const uint32_t unknown = unknown_flags(a);
    if (!unknown) return true;
    REFUSE(WK_UNSUPPORTED, "%s: flags 0x%x are unknown to this host (ABI %d.%d)", d->name, (unsigned)unknown,
           WK_ABI_MAJOR, WK_ABI_MINOR);
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
    for (uint32_t i = TAPE_IN; i-- > k->n_t;)
        if (o->t[i]) set = (uint32_t)(offsetof(struct wk_op, t) + i * sizeof o->t[0]);
    for (uint32_t i = TAPE_IN; i-- > k->n_in;)
        if (o->in[i]) set = (uint32_t)(offsetof(struct wk_op, in) + i * sizeof o->in[0]);
    if (!set) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED, "%s: byte %u is set, unknown to this host (ABI %d.%d)", k->name, (unsigned)set,
                   WK_ABI_MAJOR, WK_ABI_MINOR);
}

/* What the operation points to, where that has a size and enumerators of its own. */
static bool knows_pointed(const union any_op *a)
{
    struct wk_rope_freqs f;
    struct wk_custom_def d;
    if (a->o.kind == WK_OP_ROPE && a->rope.freqs)
        return growth_copy(&f, sizeof f, WK_ROPE_FREQS_SIZE_1_0, a->rope.freqs, a->rope.freqs->struct_size, "", NULL) ==
                   WK_OK &&
               !f.reserved && f.style < ROPE_STYLES;
    if (a->o.kind == WK_OP_CUSTOM && a->custom.def)
        return growth_copy(&d, sizeof d, WK_CUSTOM_DEF_SIZE_1_0, a->custom.def, a->custom.def->struct_size, "", NULL) ==
                   WK_OK &&
               d.split < WK_SPLIT_END;
    return true;
}

uint32_t builder_supports(void *self, const struct wk_op *o)
{
    (void)self;
    union any_op copy;
    return readable(o, &copy, NULL) == WK_OK && knows_choice(&copy) && !unknown_flags(&copy) && knows_pointed(&copy);
}

/* Pooled rows and vectors are no rows of a step: not every operation works on them. */
static bool may_read(struct builder *b, const struct wk_op *o, struct draft *d)
{
    const struct op_kind *k = &kinds[o->kind];
    const struct tape_value *plain = NULL, *pooled = NULL;
    for (int i = 0; i < TAPE_IN; i++) {
        if (!o->in[i]) continue;
        const struct tape_value *v = input(b, d, i);
        if (is_vector(b, v)) {
            if ((o->kind == WK_OP_ADD || o->kind == WK_OP_MUL) && i == 1) continue;
            REFUSE(WK_INVALID, "%s%s: %s is a vector, which add and mul alone read, as their second", b->scope, k->name,
                   v->name);
        }
        *(v->pooled ? &pooled : &plain) = v;
    }
    if (pooled && !k->pooled)
        REFUSE(WK_INVALID, "%s%s: does not work on %s, one pooled row a sequence", b->scope, k->name, pooled->name);
    if (pooled && plain)
        REFUSE(WK_INVALID, "%s%s: %s is one pooled row a sequence, %s is not", b->scope, k->name, pooled->name,
               plain->name);
    d->pooled = pooled || o->kind == WK_OP_POOL;
    return true;
}

/* Ids become indices. An input that failed before stops the operation without another word. */
static bool resolve(struct builder *b, const struct wk_op *o, struct draft *d)
{
    const struct op_kind *k = &kinds[o->kind];
    for (int i = 0; i < TAPE_IN; i++) {
        d->op.in[i] = o->in[i] ? o->in[i] - 1 : TAPE_NONE;
        d->op.t[i] = o->t[i] ? o->t[i] - 1 : TAPE_NONE;
        bool missing = (i < k->need_in && !o->in[i]) || (i < k->need_t && !o->t[i]);
        if (missing && b->messages->status != WK_OK) return false;
        if (missing || o->in[i] > b->p->n_values || o->t[i] > b->p->n_tensors)
            REFUSE(WK_INVALID, "%s%s: input %d is no value or tensor of this model", b->scope, k->name, i);
    }
    return may_read(b, o, d);
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
        *v = (struct tape_value){
            .width = (uint32_t)d->width, .slots = d->slots, .op = p->n_ops, .pooled = d->pooled, .buffer = TAPE_NONE
        };
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
    return adapt_op(b, &copy, commit(b, &d));
}
