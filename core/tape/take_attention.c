/* take_attention.c: operations that know where a row stands in its sequence: rotation by position, attention over the
 * cache, and states that a sequence carries from row to row. Attention and states have a layer of the KV cache each. */
#include <math.h>
#include <string.h>

#include "tape/ops.h"

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
bool take_rope(struct builder *b, const union any_op *a, struct draft *d)
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
    if (f->reserved_temperature)
        REFUSE(WK_UNSUPPORTED, "%s: frequencies: reserved_temperature is %u, must be 0", d->name,
               (unsigned)f->reserved_temperature);
    if (!known(b, d, "style", f->style, 0, ROPE_STYLES)) return false;
    if (!head || x->width % head)
        REFUSE(WK_INVALID, "%s: %s is %u wide, not a multiple of head %u", d->name, x->name, (unsigned)x->width,
               (unsigned)head);
    if (!f->n || (uint64_t)f->n * 2 > head)
        REFUSE(WK_INVALID, "%s: %u pairs in a head of %u", d->name, (unsigned)f->n, (unsigned)head);
    if (!finite_number(b, d, "mscale", f->mscale) || !finite_number(b, d, "temperature", f->temperature)) return false;
    if (f->temperature != 0 && !f->temperature_length)
        REFUSE(WK_INVALID, "%s: a temperature of %g, and temperature_length is 0", d->name, f->temperature);
    for (uint32_t i = 0; i < f->n; i++)
        if (!isfinite(f->freq[i])) REFUSE(WK_INVALID, "%s: frequency %u is not a finite number", d->name, (unsigned)i);
    d->op.u.rope.freq = share_frequencies(b, f);
    if (!d->op.u.rope.freq) return messages_no_memory(b->messages), false;
    d->op.u.rope.head = head;
    d->op.u.rope.style = f->style;
    d->op.u.rope.n = f->n;
    d->op.u.rope.mscale = f->mscale;
    d->op.u.rope.temperature = f->temperature;
    d->op.u.rope.temperature_length = f->temperature_length;
    return as_input(b, d, 0);
}

/* The next layer of the cache, in the group that gives pages back by the same rule, made when first seen. */
static bool take_kv_layer(struct builder *b, struct draft *d, struct tape_kv_group group, struct tape_kv_layer layer)
{
    struct tape_program *p = b->p;
    uint32_t g = 0;
    while (g < p->n_groups && (p->groups[g].window != group.window || p->groups[g].chunk != group.chunk ||
                               p->groups[g].state != group.state))
        g++;
    if (g == TAPE_MAX_GROUPS)
        REFUSE(WK_INVALID, "%s: more than %d different attention windows", d->name, TAPE_MAX_GROUPS);
    p->kv_layers = arena_grow(b->arena, p->kv_layers, p->n_kv_layers, &b->cap_kv_layers, sizeof *p->kv_layers);
    if (!p->kv_layers) return p->n_kv_layers = 0, messages_no_memory(b->messages), false;
    if (g == p->n_groups) p->groups[p->n_groups++] = group;
    p->groups[g].n_layers++;
    layer.op = p->n_ops;
    layer.group = g;
    p->kv_layers[p->n_kv_layers++] = layer;
    return true;
}

static bool take_slopes(struct builder *b, const struct wk_op_attention *t, struct draft *d)
{
    if (!t->slopes) return true;
    for (uint32_t h = 0; h < t->heads; h++)
        if (!finite_number(b, d, "a slope", (double)t->slopes[h])) return false;
    float *copy = arena_take(b->arena, t->heads, sizeof *copy);
    if (!copy) return messages_no_memory(b->messages), false;
    memcpy(copy, t->slopes, t->heads * sizeof *copy);
    d->op.u.attn.slopes = copy;
    return true;
}

static bool take_attention_numbers(struct builder *b, const union any_op *a, struct draft *d)
{
    const struct wk_op_attention *t = &a->attention;
    const uint32_t q = input(b, d, 0)->width;
    if (!known_flags(b, d, a)) return false;
    if (!t->heads || !t->kv_heads || t->heads % t->kv_heads)
        REFUSE(WK_INVALID, "%s: %u heads for %u of k and v, must be a multiple", d->name, (unsigned)t->heads,
               (unsigned)t->kv_heads);
    if (!tensor_is(b, d, 0, 1, t->heads, 1) || !finite_number(b, d, "scale", (double)t->scale)) return false;
    if (t->scale == 0)
        REFUSE(WK_INVALID, "%s: scale is 0, which would give every key the same weight; it is usually 1 / sqrt(%u)",
               d->name, (unsigned)(q / t->heads));
    if (!isfinite(t->softcap) || t->softcap < 0)
        REFUSE(WK_INVALID, "%s: soft-cap %g must be 0 or above", d->name, (double)t->softcap);
    if (t->chunk && (t->window || t->chunk % 32 || t->flags & WK_ATTENTION_BIDIRECTIONAL))
        REFUSE(WK_INVALID, "%s: chunks of %u positions must be a multiple of 32, without a window, one-directional",
               d->name, (unsigned)t->chunk);
    d->op.u.attn.heads = t->heads;
    d->op.u.attn.kv_heads = t->kv_heads;
    d->op.u.attn.scale = t->scale;
    d->op.u.attn.softcap = t->softcap;
    d->op.u.attn.window = t->window;
    d->op.u.attn.chunk = t->chunk;
    d->op.u.attn.flags = t->flags;
    d->op.u.attn.value_in_key = t->value_in_key;
    b->p->bidirectional |= (t->flags & WK_ATTENTION_BIDIRECTIONAL) != 0;
    return take_slopes(b, t, d);
}

static bool take_keys_and_values(struct builder *b, const struct wk_op_attention *t, struct draft *d)
{
    const uint32_t q = input(b, d, 0)->width, k = input(b, d, 1)->width;
    if (!one_slot(b, d, 1)) return false;
    if (q % t->heads || k % t->kv_heads || q / t->heads != k / t->kv_heads)
        REFUSE(WK_INVALID, "%s: q is %u wide for %u heads, k %u for %u", d->name, (unsigned)q, (unsigned)t->heads,
               (unsigned)k, (unsigned)t->kv_heads);
    d->op.u.attn.head_k = k / t->kv_heads;
    d->op.u.attn.head_v = t->value_in_key;
    if (d->op.in[2] != TAPE_NONE) {
        const uint32_t v = input(b, d, 2)->width;
        if (!one_slot(b, d, 2)) return false;
        if (t->value_in_key)
            REFUSE(WK_INVALID, "%s: v is given, and value_in_key is %u", d->name, (unsigned)t->value_in_key);
        if (v % t->kv_heads)
            REFUSE(WK_INVALID, "%s: v is %u wide for %u heads", d->name, (unsigned)v, (unsigned)t->kv_heads);
        d->op.u.attn.head_v = v / t->kv_heads;
    } else if (!t->value_in_key || t->value_in_key > d->op.u.attn.head_k) {
        REFUSE(WK_INVALID, "%s: no v, and value_in_key is %u for keys of %u", d->name, (unsigned)t->value_in_key,
               (unsigned)d->op.u.attn.head_k);
    }
    d->width = (uint64_t)d->op.u.attn.head_v * t->heads;
    if (d->width >= TAPE_MAX_WIDTH) return true; /* refused where every width is */
    d->op.u.attn.kv_layer = b->p->n_kv_layers;
    return take_kv_layer(b, d, (struct tape_kv_group){ .window = t->window, .chunk = t->chunk },
                         (struct tape_kv_layer){ .kv_heads = t->kv_heads,
                                                 .head_k = d->op.u.attn.head_k,
                                                 .head_v = d->op.u.attn.head_v,
                                                 .value_in_key = t->value_in_key != 0 });
}

/* The cache of an earlier attention. It is no input: the tape runs in order. */
static bool take_source(struct builder *b, const struct wk_op_attention *t, struct draft *d)
{
    const struct tape_value *source = input(b, d, 3);
    const struct tape_op *o = producer(b, source);
    const uint32_t q = input(b, d, 0)->width;
    if (o->kind != WK_OP_ATTENTION)
        REFUSE(WK_INVALID, "%s: %s is not the result of an attention", d->name, source->name);
    if (d->op.in[1] != TAPE_NONE || d->op.in[2] != TAPE_NONE)
        REFUSE(WK_INVALID, "%s: k or v beside those of %s", d->name, source->name);
    if (q % t->heads || q / t->heads != o->u.attn.head_k)
        REFUSE(WK_INVALID, "%s: q is %u wide for %u heads, keys of %s have %u", d->name, (unsigned)q,
               (unsigned)t->heads, source->name, (unsigned)o->u.attn.head_k);
    if (t->kv_heads != o->u.attn.kv_heads || t->window != o->u.attn.window || t->chunk != o->u.attn.chunk ||
        t->value_in_key != o->u.attn.value_in_key)
        REFUSE(WK_INVALID, "%s: kv_heads, window, chunk and value_in_key must be those of %s", d->name, source->name);
    d->op.u.attn.head_k = o->u.attn.head_k;
    d->op.u.attn.head_v = o->u.attn.head_v;
    d->op.u.attn.kv_layer = o->u.attn.kv_layer;
    d->width = (uint64_t)d->op.u.attn.head_v * t->heads;
    d->op.in[3] = TAPE_NONE;
    return true;
}

bool take_attention(struct builder *b, const union any_op *a, struct draft *d)
{
    if (!name_in_scope(b, d, "attention", false) || !one_slot(b, d, 0) || !take_attention_numbers(b, a, d))
        return false;
    if (d->op.in[3] != TAPE_NONE) return take_source(b, &a->attention, d);
    if (d->op.in[1] == TAPE_NONE) {
        if (b->messages->status != WK_OK) return false; /* k has failed before */
        REFUSE(WK_INVALID, "%s: neither k nor an attention whose keys are used again", d->name);
    }
    if (d->op.in[2] == TAPE_NONE && b->messages->status != WK_OK) return false;
    return take_keys_and_values(b, &a->attention, d);
}

/* ---- states -------------------------------------------------------------------------------------------- */

static bool take_conv(struct builder *b, const struct wk_op_state *s, struct draft *d, uint64_t *floats)
{
    const struct tape_value *x = input(b, d, 0);
    if (!s->kernel || s->kernel > TAPE_MAX_KERNEL)
        REFUSE(WK_INVALID, "%s: a kernel of %u rows, expected 1 to %d", d->name, (unsigned)s->kernel, TAPE_MAX_KERNEL);
    if (d->op.t[0] == TAPE_NONE) REFUSE(WK_INVALID, "%s: a convolution without its tensor", d->name);
    *floats = (uint64_t)x->width * (s->kernel - 1);
    return tensor_is(b, d, 0, x->width, s->kernel, 1) && tensor_is(b, d, 1, 1, x->width, 1) && as_input(b, d, 0);
}
static bool wide(struct builder *b, const struct draft *d, int i, const char *what, uint64_t width)
{
    const struct tape_value *x = input(b, d, i);
    if (x->width == width) return true;
    REFUSE(WK_INVALID, "%s: %s %s is %u wide, expected %llu", d->name, what, x->name, (unsigned)x->width,
           (unsigned long long)width);
}
static bool take_scan(struct builder *b, const struct wk_op_state *s, struct draft *d, uint64_t *floats)
{
    const struct tape_value *q = input(b, d, 0), *v = input(b, d, 2);
    if (!s->heads || !s->groups || s->heads % s->groups)
        REFUSE(WK_INVALID, "%s: %u heads for %u of keys, must be a multiple", d->name, (unsigned)s->heads,
               (unsigned)s->groups);
    if (q->width % s->groups || v->width % s->heads)
        REFUSE(WK_INVALID, "%s: q is %u wide for %u heads, v %u for %u", d->name, (unsigned)q->width,
               (unsigned)s->groups, (unsigned)v->width, (unsigned)s->heads);
    *floats = (uint64_t)(q->width / s->groups) * v->width;
    d->op.u.state.head_k = q->width / s->groups;
    d->op.u.state.head_v = v->width / s->heads;
    return wide(b, d, 1, "k", q->width) && wide(b, d, 3, "decay", s->heads) &&
           (s->kind != WK_STATE_DELTA || wide(b, d, 4, "beta", s->heads)) && as_input(b, d, 2);
}

bool take_state(struct builder *b, const union any_op *a, struct draft *d)
{
    static const struct {
        const char *name;
        int n_in;
        bool (*take)(struct builder *b, const struct wk_op_state *s, struct draft *d, uint64_t *floats);
    } rows[WK_STATE_END] = {
        [WK_STATE_CONV] = { "conv", 1, take_conv },
        [WK_STATE_SCAN] = { "scan", 4, take_scan },
        [WK_STATE_DELTA] = { "delta", 5, take_scan },
    };
    const struct wk_op_state *s = &a->state;
    uint64_t floats;
    if (!name_in_scope(b, d, s->kind < WK_STATE_END && rows[s->kind].name ? rows[s->kind].name : "state", false) ||
        !known_choice(b, d, a))
        return false;
    for (int i = 0; i < TAPE_IN; i++) {
        const bool there = d->op.in[i] != TAPE_NONE;
        if (!there && i < rows[s->kind].n_in && b->messages->status != WK_OK) return false;
        if (there != (i < rows[s->kind].n_in))
            REFUSE(WK_INVALID, "%s: input %d %s", d->name, i, there ? "means nothing here" : "is missing");
        if (there && !one_slot(b, d, i)) return false;
    }
    if (s->kind == WK_STATE_CONV ? s->heads || s->groups : s->kernel || d->op.t[0] != TAPE_NONE)
        REFUSE(WK_INVALID, "%s: heads of a convolution, or a kernel or tensor of another state", d->name);
    d->op.u.state.kind = s->kind;
    d->op.u.state.kernel = s->kernel;
    d->op.u.state.heads = s->heads;
    d->op.u.state.groups = s->groups;
    d->op.u.state.kv_layer = b->p->n_kv_layers;
    if (!rows[s->kind].take(b, s, d, &floats)) return false;
    if (floats > TAPE_MAX_STATE)
        REFUSE(WK_INVALID, "%s: a state of %llu numbers, at most %d", d->name, (unsigned long long)floats,
               TAPE_MAX_STATE);
    /* A row reads the state behind the row before it: a window of two positions. */
    return take_kv_layer(b, d, (struct tape_kv_group){ .window = 2, .state = true },
                         (struct tape_kv_layer){ .state_floats = floats });
}
