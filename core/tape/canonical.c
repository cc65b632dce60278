/* canonical.c: one form for what can be written in two, readers of every value, and the values that somebody wants to
 * look at. */
#include <string.h>

#include "tape/internal.h"

/* x + y and y + x are the same bits, and so are products of one shape: the older value comes first. A vector stays the
 * second. */
void canonical_pass(struct tape_program *p)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        struct tape_op *o = &p->ops[i];
        if ((o->kind != WK_OP_ADD && o->kind != WK_OP_MUL) || o->in[0] <= o->in[1]) continue;
        const struct tape_value *x = &p->values[o->in[0]], *y = &p->values[o->in[1]];
        if (x->width != y->width || x->slots != y->slots || p->ops[y->op].kind == WK_OP_VECTOR) continue;
        uint32_t swap = o->in[0];
        o->in[0] = o->in[1];
        o->in[1] = swap;
    }
}

bool uses_make(const struct tape_program *p, struct arena *scratch, struct uses *out)
{
    uint32_t n = 0;
    out->first = arena_take(scratch, (size_t)p->n_values + 2, sizeof *out->first);
    if (!out->first) return false;
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < TAPE_IN; k++)
            if (p->ops[i].in[k] != TAPE_NONE) out->first[p->ops[i].in[k] + 2]++, n++;
    for (uint32_t v = 0; v < p->n_values; v++) out->first[v + 2] += out->first[v + 1];
    out->op = arena_take(scratch, n ? n : 1, sizeof *out->op);
    if (!out->op) return false;
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < TAPE_IN; k++)
            if (p->ops[i].in[k] != TAPE_NONE) out->op[out->first[p->ops[i].in[k] + 1]++] = i;
    return true;
}

static void tap(struct tape_value *v)
{
    if (v->tapped) return;
    v->tapped = true;
    v->n_readers++;
}
/* Pooled rows and vectors are no rows of a step. */
static bool can_tap(const struct tape_program *p, uint32_t v)
{
    return !p->values[v].pooled && p->ops[p->values[v].op].kind != WK_OP_VECTOR;
}

/* The operation whose value's name comes before the tail, if it is of that kind; NULL: none. */
static struct tape_op *op_before(struct tape_program *p, const char *name, const char *tail, uint16_t kind)
{
    char value[TAPE_NAME];
    const size_t len = strlen(name), n = strlen(tail);
    if (len <= n || len - n >= sizeof value || strcmp(name + len - n, tail) != 0) return NULL;
    (void)snprintf(value, sizeof value, "%.*s", (int)(len - n), name);
    const uint32_t v = tape_find_value(p, value);
    struct tape_op *o = v == TAPE_NONE ? NULL : &p->ops[p->values[v].op];
    return o && o->kind == kind ? o : NULL;
}

/* "blk.0.attention.scores", "blk.0.route.ids": not values, something that an operation can show on its way. */
static bool tap_part(struct tape_program *p, const char *name)
{
    struct tape_op *attention = op_before(p, name, ".scores", WK_OP_ATTENTION),
                   *route = op_before(p, name, ".ids", WK_OP_ROUTE);
    if (attention) attention->u.attn.tap_scores = true;
    if (route) route->u.route.tap_ids = true;
    return attention || route;
}

bool taps_pass(struct tape_program *p, const struct tape_options *o, struct messages *m)
{
    bool ok = true;
    for (uint32_t i = 0; i < o->n_taps; i++) {
        const char *name = o->taps[i];
        const bool all = strcmp(name, "*") == 0;
        for (uint32_t v = 0; all && v < p->n_values; v++)
            if (can_tap(p, v)) tap(&p->values[v]);
        if (all || tap_part(p, name)) continue;
        uint32_t v = tape_find_value(p, name);
        if (v != TAPE_NONE && can_tap(p, v)) {
            tap(&p->values[v]);
            continue;
        }
        messages_say(m, WK_INVALID, "tap %.64s: %s; worker debug tape lists the names", name,
                     v == TAPE_NONE ? "no value has this name" : "it is no row of a step");
        ok = false;
    }
    return ok;
}
