/* demand.c: for which rows of a step each value is needed, going back from the outputs.
 *
 * Logits are needed for a step's logits rows alone, and so is all that leads to them but what attention must store: so
 * a prompt runs the tail of its last layer for one row. A tap needs all rows. */
#include "tape/internal.h"

static void need(struct tape_program *p, uint32_t v, enum tape_rows rows)
{
    if (rows < p->values[v].rows) p->values[v].rows = rows; /* ROWS_ALL is the least */
}

void demand_pass(struct tape_program *p)
{
    for (uint32_t v = 0; v < p->n_values; v++)
        p->values[v].rows = p->values[v].pooled ? ROWS_POOLED : p->values[v].tapped ? ROWS_ALL : ROWS_LOGITS;
    for (uint32_t i = p->n_ops; i-- > 0;) {
        const struct tape_op *o = &p->ops[i];
        if (o->kind == WK_OP_OUTPUT) continue;
        if (o->kind == WK_OP_ATTENTION && o->u.attn.tap_scores) need(p, o->out, ROWS_ALL);
        if (o->kind == WK_OP_ROUTE && o->u.route.tap_ids) need(p, o->out, ROWS_ALL);
        enum tape_rows rows = p->values[o->out].rows;
        for (int k = 0; k < TAPE_IN; k++) {
            if (o->in[k] == TAPE_NONE) continue;
            const bool stored = (o->kind == WK_OP_ATTENTION && k > 0) || o->kind == WK_OP_STATE;
            if (!p->values[o->in[k]].pooled) need(p, o->in[k], stored || o->kind == WK_OP_POOL ? ROWS_ALL : rows);
        }
    }
}
