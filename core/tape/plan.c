/* plan.c: which buffer each value that crosses launches lives in.
 *
 * Interval colouring: a value lives from the launch that makes it to the last that reads it; a launch's results never
 * share a buffer with what it reads; a tapped value lives to the end of the step. Rows for all and for logits rows
 * alone are kept apart, since there are thousands of the ones and few of the others. */
#include "tape/internal.h"

enum { ROW_ALIGN = 64 };

struct life {
    uint32_t from, to; /* launches; from TAPE_NONE: the value has no buffer */
};

static bool inside(const struct tape_launch *l, uint32_t op)
{
    for (uint32_t i = 0; i < l->n_ops; i++)
        if (l->ops[i] == op) return true;
    return false;
}

static void live(const struct tape_program *p, struct life *life)
{
    for (uint32_t v = 0; v < p->n_values; v++) life[v] = (struct life){ TAPE_NONE, 0 };
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        for (uint32_t k = 0; k < l->n_seg; k++)
            if (l->seg[k].out != TAPE_NONE) life[l->seg[k].out].from = i;
        if (l->out != TAPE_NONE && !l->logits) life[l->out].from = i;
        for (uint32_t k = 0; k < l->n_ops; k++) {
            const struct tape_op *o = &p->ops[l->ops[k]];
            for (int n = 0; n < TAPE_IN; n++)
                if (o->in[n] != TAPE_NONE && !inside(l, p->values[o->in[n]].op)) life[o->in[n]].to = i;
        }
    }
    for (uint32_t v = 0; v < p->n_values; v++)
        if (p->values[v].tapped) life[v].to = p->n_launches;
}

static uint64_t row_bytes(const struct tape_program *p, uint32_t v)
{
    const struct tape_value *x = &p->values[v];
    uint64_t words = (uint64_t)x->width * x->slots;
    if (p->ops[x->op].kind == WK_OP_ROUTE) words *= 2; /* the experts' ids behind their weights */
    return (words * sizeof(float) + ROW_ALIGN - 1) & ~(uint64_t)(ROW_ALIGN - 1);
}

/* Among buffers that are free: the smallest that is wide enough, else the widest. */
static uint32_t choose(const struct tape_program *p, const uint32_t *until, uint32_t v, uint32_t from)
{
    const uint64_t bytes = row_bytes(p, v);
    uint32_t best = TAPE_NONE;
    for (uint32_t b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].rows != p->values[v].rows || until[b] >= from) continue;
        const uint64_t now = p->buffers[b].row_bytes, then = best == TAPE_NONE ? 0 : p->buffers[best].row_bytes;
        const bool better = best == TAPE_NONE || (then < bytes ? now > then : now >= bytes && now < then);
        if (better) best = b;
    }
    return best;
}

static bool colour(struct tape_program *p, const struct life *life, struct arena *arena, struct arena *scratch)
{
    uint32_t cap = 0, cap_until = 0, *until = NULL;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        for (uint32_t k = 0; k <= l->n_seg; k++) {
            uint32_t v = k < l->n_seg ? l->seg[k].out : l->out;
            if (v == TAPE_NONE || life[v].from != i || p->values[v].buffer != TAPE_NONE) continue;
            uint32_t b = choose(p, until, v, i);
            if (b == TAPE_NONE) {
                p->buffers = arena_grow(arena, p->buffers, p->n_buffers, &cap, sizeof *p->buffers);
                until = arena_grow(scratch, until, p->n_buffers, &cap_until, sizeof *until);
                if (!p->buffers || !until) return false;
                b = p->n_buffers++;
                p->buffers[b] = (struct tape_buffer){ .row_bytes = 0, .rows = p->values[v].rows };
            }
            if (p->buffers[b].row_bytes < row_bytes(p, v)) p->buffers[b].row_bytes = row_bytes(p, v);
            until[b] = life[v].to;
            p->values[v].buffer = b;
        }
    }
    return true;
}

bool plan_pass(struct tape_program *p, struct arena *arena, struct arena *scratch)
{
    struct life *life = arena_take(scratch, p->n_values, sizeof *life);
    if (!life) return false;
    live(p, life);
    return colour(p, life, arena, scratch);
}
