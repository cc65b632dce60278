/* speed.c: see speed.h. */
#include "speed.h"

#include <math.h>

/* Bytes of a tensor that a pass of n tokens reads through operation `op`. */
static double operand_bytes(const struct tape_program *p, const struct tape_op *op, uint32_t k, uint32_t n)
{
    const struct tape_tensor *t = &p->tensors[op->t[k]];
    const double rows = (double)t->rows * t->slabs;
    switch (op->kind) {
    case WK_OP_EMBED: return (double)t->bytes / rows * n; /* one row each */
    case WK_OP_LINEAR: return k == 0 ? (double)t->bytes * op->u.linear.n / rows : (double)t->bytes;
    case WK_OP_EXPERT:
        return (double)t->bytes * fmin(1, (double)p->values[op->in[1]].slots * n /
                                              op->u.linear.slabs); /* the chosen experts, if no two choose the same */
    default: return (double)t->bytes;
    }
}

/* Of the cache, position p reads every key and value before it that it sees. */
static double cache_bytes(const struct model *m, double position)
{
    const struct tape_program *p = m->program;
    const double size = m->dev.kv_type == KV_F32 ? 4 : 2;
    double bytes = 0;
    for (uint32_t i = 0; i < p->n_kv_layers; i++) {
        const struct tape_kv_layer *l = &p->kv_layers[i];
        const struct tape_kv_group *g = &p->groups[l->group];
        double seen = g->window && position > g->window ? g->window : position;
        if (g->state) seen = 0;
        if (g->chunk) seen = fmod(position, g->chunk);
        bytes += seen * l->kv_heads * ((double)l->head_k + (l->value_in_key ? 0 : l->head_v)) * size;
        bytes += 2 * (double)l->state_floats * sizeof(float); /* a state is read and written */
    }
    return bytes;
}

double decode_bytes(const struct model *m, uint32_t sequences, double position)
{
    const struct tape_program *p = m->program;
    double bytes = sequences * cache_bytes(m, position);
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < TAPE_IN; k++)
            if (p->ops[i].t[k] != TAPE_NONE) bytes += operand_bytes(p, &p->ops[i], k, sequences);
    return bytes / sequences;
}
