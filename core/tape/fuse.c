/* fuse.c: joins operations into launches.
 *
 * Patterns follow uses, never the order of recording. A value vanishes into a launch iff it has one reader and no tap.
 * Every launch has either one result, or several that are products of one and the same input (siblings): so each of its
 * inputs is an ancestor of each of its results, no two launches can wait for each other, and sorting by the first
 * result gives an order in which all can run.
 *
 * The passes below go from the most specific pattern to the rest; what no pattern takes stands alone, and says why if
 * one nearly fitted. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tape/internal.h"

enum { MAX_SEGMENTS = 4, MAX_MAPS = 4, MAX_TABLES = 4 };

struct fuser {
    struct tape_program *p;
    const struct uses *uses;
    uint32_t fuse;
    struct tape_launch *l; /* [n_ops], n used */
    uint32_t n;
};

static const struct tape_op *op_at(const struct fuser *f, uint32_t op) { return &f->p->ops[op]; }
static const struct tape_value *value_at(const struct fuser *f, uint32_t v) { return &f->p->values[v]; }
static uint32_t producer(const struct fuser *f, uint32_t v) { return f->p->values[v].op; }
static bool done(const struct fuser *f, uint32_t op) { return f->p->ops[op].launch != TAPE_NONE; }
static bool vanishes(const struct fuser *f, uint32_t v)
{
    return value_at(f, v)->n_readers == 1 && !value_at(f, v)->tapped;
}
static uint32_t reader(const struct fuser *f, uint32_t v)
{
    return f->uses->op[f->uses->first[v]];
} /* of a value that vanishes */
static uint32_t other_input(const struct tape_op *o, uint32_t v) { return o->in[0] == v ? o->in[1] : o->in[0]; }

static struct tape_launch *new_launch(struct fuser *f, enum launch_kind kind)
{
    struct tape_launch *l = &f->l[f->n++];
    *l = (struct tape_launch){ .kind = kind,
                               .layer = TAPE_NONE,
                               .norm = TAPE_NONE,
                               .x = TAPE_NONE,
                               .route = TAPE_NONE,
                               .glu = TAPE_NONE,
                               .add = TAPE_NONE,
                               .residual = TAPE_NONE,
                               .q_norm = TAPE_NONE,
                               .k_norm = TAPE_NONE,
                               .v_norm = TAPE_NONE,
                               .q_rope = TAPE_NONE,
                               .k_rope = TAPE_NONE,
                               .attention = TAPE_NONE,
                               .q = TAPE_NONE,
                               .k = TAPE_NONE,
                               .v = TAPE_NONE,
                               .out = TAPE_NONE };
    return l;
}
static void claim(struct fuser *f, struct tape_launch *l, uint32_t op)
{
    if (!done(f, op))
        f->p->ops[op].launch = (uint32_t)(l - f->l); /* a norm in several prologues belongs to the first */
    l->ops[l->n_ops++] = op;
}

/* ---- why not ------------------------------------------------------------------------------------------- */

WK_PRINTF(2, 3)
static void why(struct tape_launch *l, const char *format, ...)
{
    if (l->alone[0]) return; /* the first reason stands */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(l->alone, sizeof l->alone, format, args);
    va_end(args);
}
/* The value kept a pattern from fitting. */
static void why_value(struct fuser *f, struct tape_launch *l, uint32_t v)
{
    const struct tape_value *x = value_at(f, v);
    if (x->tapped)
        why(l, "%s is tapped", x->name);
    else
        why(l, "%s has %u readers", x->name, (unsigned)x->n_readers);
}

/* ---- attention ----------------------------------------------------------------------------------------- */

/* Walks from q, k or v of an attention back over its rope and its norm over heads; gives the value before them. */
static uint32_t take_chain(struct fuser *f, struct tape_launch *l, uint32_t v, uint32_t head, uint32_t *rope,
                           uint32_t *norm)
{
    uint32_t op = producer(f, v);
    if (rope && op_at(f, op)->kind == WK_OP_ROPE && op_at(f, op)->u.rope.head == head) {
        if (!vanishes(f, v)) {
            why_value(f, l, v);
            return v;
        }
        *rope = op;
        claim(f, l, op);
        v = op_at(f, op)->in[0];
        op = producer(f, v);
    }
    const struct tape_op *o = op_at(f, op);
    if (o->kind != WK_OP_NORM || o->u.norm.group != head) return v;
    if (!vanishes(f, v)) {
        why_value(f, l, v);
        return v;
    }
    *norm = op;
    claim(f, l, op);
    return o->in[0];
}

static void fuse_attention(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    struct tape_launch *l = new_launch(f, LAUNCH_ATTEND);
    l->attention = op;
    l->q = o->in[0];
    l->k = o->in[1]; /* TAPE_NONE: keys and values of another layer; v alone: they are in the keys */
    l->v = o->in[2];
    l->out = o->out;
    claim(f, l, op);
    if (!(f->fuse & FUSE_ATTEND)) return;
    l->q = take_chain(f, l, l->q, o->u.attn.head_k, &l->q_rope, &l->q_norm);
    if (l->k != TAPE_NONE) l->k = take_chain(f, l, l->k, o->u.attn.head_k, &l->k_rope, &l->k_norm);
    if (l->v != TAPE_NONE) l->v = take_chain(f, l, l->v, o->u.attn.head_v, NULL, &l->v_norm);
}

/* ---- products ------------------------------------------------------------------------------------------ */

static void add_segment(struct fuser *f, struct tape_launch *l, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    l->x = o->in[0];
    if (o->kind == WK_OP_EXPERT) l->route = o->in[1];
    l->seg[l->n_seg++] = (struct tape_segment){
        .op = op, .tensor = o->t[0], .first = o->u.linear.first, .n = o->u.linear.n, .bias = o->t[1], .out = o->out
    };
    claim(f, l, op);
}

/* linear -> route */
static void fuse_route(struct fuser *f, uint32_t op)
{
    uint32_t scores = op_at(f, op)->in[0], linear = producer(f, scores);
    if (!(f->fuse & FUSE_ROUTE) || op_at(f, linear)->kind != WK_OP_LINEAR || !vanishes(f, scores)) return;
    struct tape_launch *l = new_launch(f, LAUNCH_ROUTE);
    add_segment(f, l, linear);
    claim(f, l, op);
    l->seg[0].out = TAPE_NONE;
    l->out = op_at(f, op)->out;
}

static bool is_product(const struct tape_op *o) { return o->kind == WK_OP_LINEAR || o->kind == WK_OP_EXPERT; }
static bool same_input(const struct tape_op *a, const struct tape_op *b)
{
    return a->kind == b->kind && a->in[0] == b->in[0] && a->in[1] == b->in[1];
}

/* two products of one input -> glu */
static void fuse_glu(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    uint32_t gate = producer(f, o->in[0]), up = producer(f, o->in[1]);
    if (!(f->fuse & FUSE_GLU) || gate == up || done(f, gate) || done(f, up)) return;
    if (!is_product(op_at(f, gate)) || !same_input(op_at(f, gate), op_at(f, up))) return;
    if (!vanishes(f, o->in[0]) || !vanishes(f, o->in[1])) return;
    struct tape_launch *l = new_launch(f, LAUNCH_PRODUCT);
    add_segment(f, l, gate);
    add_segment(f, l, up);
    claim(f, l, op);
    l->seg[0].out = l->seg[1].out = TAPE_NONE;
    l->glu = op;
    l->out = o->out;
}

/* A vector is no row that a launch could add as its residual. */
static bool adds_vector(const struct fuser *f, const struct tape_op *add)
{
    return op_at(f, producer(f, add->in[1]))->kind == WK_OP_VECTOR;
}

/* Functions that products end with (worker/quant_cuda.h). */
static bool ends_product(const struct tape_op *unary) { return unary->u.unary.fn <= WK_UNARY_SOFTCAP; }

/* May the reader of v be the next step of the epilogue of a product of this kind? What an adapter adds takes the sum at
 * its own end, so that the model's products stay together. */
static bool epilogue_takes(const struct fuser *f, const struct tape_launch *l, uint16_t kind, uint32_t v)
{
    const uint32_t op = reader(f, v);
    const struct tape_op *o = op_at(f, op);
    if (done(f, op)) return false;
    switch (o->kind) {
    case WK_OP_UNARY: return ends_product(o) && (!l || l->n_map < MAX_MAPS);
    case WK_OP_ADD: return kind == WK_OP_LINEAR && !adds_vector(f, o) && !(o->adapter && o->in[0] == v);
    case WK_OP_OUTPUT: return kind == WK_OP_LINEAR && o->u.output.what == WK_OUTPUT_LOGITS;
    default: return false;
    }
}

/* linear -> maps -> add or logits; expert -> maps */
static void fuse_epilogue(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    uint32_t v = o->out;
    if (!(f->fuse & FUSE_EPILOGUE) || !vanishes(f, v) || !epilogue_takes(f, NULL, o->kind, v)) return;
    struct tape_launch *l = new_launch(f, LAUNCH_PRODUCT);
    add_segment(f, l, op);
    l->seg[0].out = TAPE_NONE;
    while (vanishes(f, v) && epilogue_takes(f, l, o->kind, v)) {
        uint32_t next = reader(f, v);
        claim(f, l, next);
        if (op_at(f, next)->kind == WK_OP_OUTPUT) {
            l->logits = true;
            break;
        }
        if (op_at(f, next)->kind == WK_OP_UNARY) {
            l->map[l->n_map++] = next;
        } else {
            l->add = next;
            l->residual = other_input(op_at(f, next), v);
        }
        v = op_at(f, next)->out;
        if (l->add != TAPE_NONE) break;
    }
    l->out = v;
}

/* Ranges of one tensor stand in the order of its rows, whatever the author wrote first: neighbours become one run of
 * tiles. */
static int by_rows(const void *a, const void *b)
{
    const struct tape_segment *x = a, *y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->op < y->op ? -1 : 1;
}
static bool is_sum_or_map(uint16_t kind) { return kind == WK_OP_ADD || kind == WK_OP_UNARY || kind == WK_OP_GLU; }

/* One slab for each part of the input: nothing joins it. */
static void place_heads(struct fuser *f, uint32_t op)
{
    struct tape_launch *l = new_launch(f, LAUNCH_PRODUCT);
    l->heads = op_at(f, op)->u.linear.slabs;
    add_segment(f, l, op);
}

/* products of one input, whose results are all kept; the model's own among themselves, as without adapters, whose
 * matrices are of other types */
static void fuse_siblings(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    struct tape_launch *l = new_launch(f, LAUNCH_PRODUCT);
    add_segment(f, l, op);
    for (uint32_t i = f->uses->first[o->in[0]];
         (f->fuse & FUSE_SIBLINGS) && i < f->uses->first[o->in[0] + 1] && l->n_seg < MAX_SEGMENTS; i++) {
        uint32_t other = f->uses->op[i];
        if (!done(f, other) && same_input(o, op_at(f, other)) && o->adapter == op_at(f, other)->adapter)
            add_segment(f, l, other);
    }
    qsort(l->seg, l->n_seg, sizeof l->seg[0], by_rows);
    if (!vanishes(f, o->out) && is_sum_or_map(op_at(f, reader(f, o->out))->kind)) why_value(f, l, o->out);
}

/* ---- the smaller patterns ------------------------------------------------------------------------------ */

/* embed, scaled or not, then sums with other embeds: only gathered rows go in, of at most four tables */
static void fuse_embed(struct fuser *f, uint32_t op)
{
    struct tape_launch *l = new_launch(f, LAUNCH_EMBED);
    claim(f, l, op);
    uint32_t v = op_at(f, op)->out, tables = 1;
    while ((f->fuse & FUSE_EMBED) && vanishes(f, v)) {
        uint32_t next = reader(f, v);
        const struct tape_op *o = op_at(f, next);
        if (done(f, next)) break;
        if (o->kind == WK_OP_ADD) {
            uint32_t other = other_input(o, v), embed = producer(f, other);
            if (op_at(f, embed)->kind != WK_OP_EMBED || done(f, embed) || !vanishes(f, other)) break;
            if (tables++ == MAX_TABLES) break;
            claim(f, l, embed);
        } else if (o->kind != WK_OP_UNARY || o->u.unary.fn != WK_UNARY_SCALE || l->n_ops > 1) {
            break;
        }
        claim(f, l, next);
        v = o->out;
    }
    l->out = v;
}

static void take_residual(struct fuser *f, struct tape_launch *l, uint32_t add)
{
    l->add = add;
    l->residual = other_input(op_at(f, add), l->out);
    l->out = op_at(f, add)->out;
    claim(f, l, add);
}
static bool add_follows(const struct fuser *f, uint32_t v)
{
    const struct tape_op *o = vanishes(f, v) ? op_at(f, reader(f, v)) : NULL;
    return o && o->kind == WK_OP_ADD && !adds_vector(f, o) && !done(f, reader(f, v));
}

static void fuse_combine(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    struct tape_launch *l = new_launch(f, LAUNCH_COMBINE);
    l->x = o->in[0];
    l->route = o->in[1];
    l->out = o->out;
    claim(f, l, op);
    if ((f->fuse & FUSE_COMBINE) && add_follows(f, o->out)) take_residual(f, l, reader(f, o->out));
}

static bool is_row_norm(const struct fuser *f, const struct tape_op *o)
{
    return o->kind == WK_OP_NORM && !o->u.norm.group && value_at(f, o->out)->slots == 1;
}
static void fuse_norm_add(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    if (!(f->fuse & FUSE_NORM_ADD) || !is_row_norm(f, o) || !add_follows(f, o->out)) return;
    struct tape_launch *l = new_launch(f, LAUNCH_NORM_ADD);
    l->norm = op;
    l->x = o->in[0];
    l->out = o->out;
    claim(f, l, op);
    take_residual(f, l, reader(f, o->out));
}

/* A norm that only products read is made again in the prologue of each of their launches. */
static void fuse_norm(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    const uint32_t *first = &f->uses->op[f->uses->first[o->out]], *end = &f->uses->op[f->uses->first[o->out + 1]];
    if (!(f->fuse & FUSE_NORM) || !is_row_norm(f, o) || value_at(f, o->out)->tapped) return;
    for (const uint32_t *r = first; r < end; r++)
        if (!is_product(op_at(f, *r))) return;
    for (const uint32_t *r = first; r < end; r++) {
        struct tape_launch *l = &f->l[op_at(f, *r)->launch];
        if (l->norm == op) continue;
        l->norm = op;
        l->x = o->in[0];
        claim(f, l, op);
    }
}

static bool pools_for_output(const struct fuser *f, uint32_t pool)
{
    const uint32_t v = op_at(f, pool)->out;
    return vanishes(f, v) && op_at(f, reader(f, v))->kind == WK_OP_OUTPUT;
}

/* pool -> output, or logits of a value that no product makes at its end */
static void place_output(struct fuser *f, uint32_t op)
{
    struct tape_launch *l = new_launch(f, LAUNCH_OUTPUT);
    l->x = op_at(f, op)->in[0];
    uint32_t from = producer(f, l->x);
    if (op_at(f, from)->kind == WK_OP_POOL && pools_for_output(f, from)) {
        l->x = op_at(f, from)->in[0];
        claim(f, l, from);
    }
    claim(f, l, op);
}

/* ---- what stands alone --------------------------------------------------------------------------------- */

/* Norms and ropes go into launches of their readers: which reader is of another kind? */
static void explain_readers(struct fuser *f, struct tape_launch *l, const struct tape_op *o)
{
    if (value_at(f, o->out)->tapped || o->kind == WK_OP_ROPE) why_value(f, l, o->out);
    for (uint32_t i = f->uses->first[o->out]; i < f->uses->first[o->out + 1]; i++) {
        const struct tape_op *r = op_at(f, f->uses->op[i]);
        if (o->kind == WK_OP_NORM && is_product(r)) continue;
        why(l, "read by %s", r->out == TAPE_NONE ? op_kind_name(r->kind) : value_at(f, r->out)->name);
    }
}
/* The others go into launches of what they read. */
static void explain_inputs(struct fuser *f, struct tape_launch *l, const struct tape_op *o)
{
    for (int i = 0; i < 2 && o->in[i] != TAPE_NONE; i++)
        if (is_product(op_at(f, producer(f, o->in[i]))) && !vanishes(f, o->in[i])) why_value(f, l, o->in[i]);
    if (o->kind == WK_OP_GLU && !same_input(op_at(f, producer(f, o->in[0])), op_at(f, producer(f, o->in[1]))))
        why(l, "its two sides are not products of one input");
}
static void explain(struct fuser *f, struct tape_launch *l, const struct tape_op *o)
{
    static const struct {
        uint16_t kind;
        uint32_t bit;
        void (*explain)(struct fuser *f, struct tape_launch *l, const struct tape_op *o);
    } rows[] = {
        { WK_OP_NORM, FUSE_NORM, explain_readers },     { WK_OP_ROPE, FUSE_ATTEND, explain_readers },
        { WK_OP_ROUTE, FUSE_ROUTE, explain_inputs },    { WK_OP_GLU, FUSE_GLU, explain_inputs },
        { WK_OP_UNARY, FUSE_EPILOGUE, explain_inputs }, { WK_OP_ADD, FUSE_EPILOGUE, explain_inputs },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].kind != o->kind) continue;
        if (f->fuse & rows[i].bit)
            rows[i].explain(f, l, o);
        else
            why(l, "this fusion is off");
    }
}

static void place_alone(struct fuser *f, uint32_t op)
{
    const struct tape_op *o = op_at(f, op);
    struct tape_launch *l = new_launch(f, LAUNCH_ALONE);
    l->x = o->in[0];
    l->out = o->out;
    claim(f, l, op);
    explain(f, l, o);
}

/* ---- order and rows ------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}
static bool is_siblings(const struct tape_launch *l) { return l->kind == LAUNCH_PRODUCT && l->out == TAPE_NONE; }

/* The operation that makes the first result. Before it, everything that the launch reads is there. */
static uint32_t first_result(const struct tape_launch *l)
{
    uint32_t first = l->ops[l->n_ops - 1];
    for (uint32_t i = 0; is_siblings(l) && i < l->n_seg; i++)
        if (l->seg[i].op < first) first = l->seg[i].op;
    return first;
}
static int by_first_result(const void *a, const void *b)
{
    uint32_t x = first_result(a), y = first_result(b);
    return x < y ? -1 : x > y;
}

static void keep(struct fuser *f, struct tape_launch *l, uint32_t v)
{
    if (value_at(f, v)->rows < l->rows) l->rows = value_at(f, v)->rows;
}
/* A launch computes the rows that the neediest of its results is needed for; all its results then have these rows. */
static void set_rows(struct fuser *f, struct tape_launch *l)
{
    const struct tape_op *last = op_at(f, l->ops[l->n_ops - 1]);
    l->layer = last->layer;
    if (l->kind == LAUNCH_OUTPUT) {
        l->rows = last->u.output.what == WK_OUTPUT_LOGITS ? ROWS_LOGITS : ROWS_POOLED;
        return;
    }
    l->rows = value_at(f, is_siblings(l) ? l->seg[0].out : l->out)->pooled ? ROWS_POOLED : ROWS_LOGITS;
    if (!is_siblings(l)) keep(f, l, l->out);
    for (uint32_t i = 0; is_siblings(l) && i < l->n_seg; i++) keep(f, l, l->seg[i].out);
    for (uint32_t i = 0; is_siblings(l) && i < l->n_seg; i++) f->p->values[l->seg[i].out].rows = l->rows;
}

static void put_in_order(struct fuser *f)
{
    for (uint32_t i = 0; i < f->n; i++) qsort(f->l[i].ops, f->l[i].n_ops, sizeof f->l[i].ops[0], by_number);
    qsort(f->l, f->n, sizeof *f->l, by_first_result);
    for (uint32_t i = 0; i < f->p->n_ops; i++) f->p->ops[i].launch = TAPE_NONE;
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint32_t k = 0; k < f->l[i].n_ops; k++)
            if (!done(f, f->l[i].ops[k])) f->p->ops[f->l[i].ops[k]].launch = i;
        set_rows(f, &f->l[i]);
    }
}

static void place_state(struct fuser *f, uint32_t op)
{
    struct tape_launch *l = new_launch(f, LAUNCH_STATE);
    l->x = op_at(f, op)->in[0];
    l->out = op_at(f, op)->out;
    claim(f, l, op);
}

static void place_rest(struct fuser *f, uint32_t op)
{
    switch (op_at(f, op)->kind) {
    case WK_OP_OUTPUT: place_output(f, op); break;
    case WK_OP_VECTOR: break; /* its readers find it */
    case WK_OP_POOL:
        if (!pools_for_output(f, op)) place_alone(f, op);
        break;
    case WK_OP_STATE: place_state(f, op); break;
    case WK_OP_LINEAR_HEADS: place_heads(f, op); break;
    default: place_alone(f, op);
    }
}

bool fuse_pass(struct tape_program *p, const struct uses *u, uint32_t fuse, struct arena *arena, struct arena *scratch)
{
    struct fuser f = { .p = p, .uses = u, .fuse = fuse };
    static const struct {
        uint16_t kind;
        void (*pass)(struct fuser *f, uint32_t op);
    } passes[] = {
        { WK_OP_ATTENTION, fuse_attention }, { WK_OP_ROUTE, fuse_route },
        { WK_OP_EMBED, fuse_embed },         { WK_OP_GLU, fuse_glu },
        { WK_OP_LINEAR, fuse_epilogue },     { WK_OP_EXPERT, fuse_epilogue },
        { WK_OP_COMBINE, fuse_combine },     { WK_OP_NORM, fuse_norm_add },
        { WK_OP_LINEAR, fuse_siblings },     { WK_OP_EXPERT, fuse_siblings },
        { WK_OP_NORM, fuse_norm },           { 0, place_rest },
    };
    f.l = arena_take(scratch, p->n_ops, sizeof *f.l); /* as many as operations, if nothing joins */
    if (!f.l) return false;
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
        for (uint32_t op = 0; op < p->n_ops; op++)
            if ((!passes[i].kind || p->ops[op].kind == passes[i].kind) && !done(&f, op)) passes[i].pass(&f, op);
    put_in_order(&f);
    p->launches = arena_take(arena, f.n, sizeof *p->launches);
    if (!p->launches) return false;
    memcpy(p->launches, f.l, f.n * sizeof *f.l);
    p->n_launches = f.n;
    return true;
}
