/* roles.c: what each tensor is for, found by where its rows go and come from; no author states it. A tensor with
 * several uses (a tied head, fused q|k|v) has the role of its first. */
#include "tape/internal.h"

static const char *const names[] = { "none", "embed",  "q",      "k",    "v",    "o",    "gate",  "up",
                                     "down", "router", "expert", "norm", "head", "bias", "sinks", "other" };

const char *tape_role_name(enum tape_role role)
{
    return (size_t)role < sizeof names / sizeof names[0] ? names[role] : "?";
}

static bool passes_through(uint16_t kind)
{
    return kind == WK_OP_NORM || kind == WK_OP_ROPE || kind == WK_OP_UNARY || kind == WK_OP_SLICE || kind == WK_OP_MUL;
}

/* Follows the only (or first) reader through operations that keep a row's meaning to the one that tells the role. */
static enum tape_role by_reader(const struct tape_program *p, const struct uses *u, uint32_t v)
{
    bool activated = false;
    while (u->first[v] < u->first[v + 1]) {
        const struct tape_op *o = &p->ops[u->op[u->first[v]]];
        if (o->adapter) { /* its products and sums are the model's product, in parts */
            v = o->out;
            continue;
        }
        switch (o->kind) {
        case WK_OP_ATTENTION: return v == o->in[0] ? ROLE_Q : v == o->in[1] ? ROLE_K : ROLE_V;
        case WK_OP_GLU: return v == o->in[0] ? ROLE_GATE : ROLE_UP;
        case WK_OP_ROUTE: return ROLE_ROUTER;
        case WK_OP_OUTPUT: return o->u.output.what == WK_OUTPUT_LOGITS ? ROLE_HEAD : ROLE_OTHER;
        case WK_OP_LINEAR: return activated ? ROLE_UP : ROLE_OTHER;
        default: break;
        }
        if (!passes_through(o->kind) || o->in[0] != v) return ROLE_OTHER;
        if (o->kind == WK_OP_UNARY && o->u.unary.fn != WK_UNARY_SCALE && o->u.unary.fn != WK_UNARY_SOFTCAP)
            activated = true;
        v = o->out;
    }
    return ROLE_OTHER;
}

static enum tape_role of_linear(const struct tape_program *p, const struct uses *u, const struct tape_op *o)
{
    enum tape_role role = by_reader(p, u, o->out);
    if (role != ROLE_OTHER) return role;
    const struct tape_op *from = &p->ops[p->values[o->in[0]].op];
    if (from->kind == WK_OP_ATTENTION) return ROLE_O;
    return from->kind == WK_OP_GLU || from->kind == WK_OP_UNARY ? ROLE_DOWN : ROLE_OTHER;
}

static void give(struct tape_program *p, uint32_t t, enum tape_role role)
{
    if (t != TAPE_NONE && p->tensors[t].role == ROLE_NONE) p->tensors[t].role = role;
}

void roles_pass(struct tape_program *p, const struct uses *u)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *o = &p->ops[i];
        switch (o->kind) {
        case WK_OP_EMBED: give(p, o->t[0], ROLE_EMBED); break;
        case WK_OP_NORM: give(p, o->t[0], ROLE_NORM); break;
        case WK_OP_ATTENTION: give(p, o->t[0], ROLE_SINKS); break;
        case WK_OP_EXPERT: give(p, o->t[0], ROLE_EXPERT); break;
        case WK_OP_ROUTE: give(p, o->t[0], ROLE_BIAS); break;
        case WK_OP_LINEAR_HEADS:
        case WK_OP_VECTOR:
        case WK_OP_STATE: give(p, o->t[0], ROLE_OTHER); break;
        case WK_OP_CUSTOM:
            for (int k = 0; k < TAPE_IN; k++) give(p, o->t[k], ROLE_OTHER);
            break;
        case WK_OP_LINEAR: give(p, o->t[0], of_linear(p, u, o)); break;
        default: break;
        }
        if (o->kind != WK_OP_ATTENTION) give(p, o->t[1], ROLE_BIAS);
    }
}
