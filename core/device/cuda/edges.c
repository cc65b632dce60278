/* edges.c: the values between the stages of a program: who reads each, and how it lies on its way.
 *
 * A value usually lies as plan.c has said, F32 rows or acts, and a stage waits for the launch in front of it before it
 * reads what that or an earlier one has made. Where one stage alone reads a value, right behind the stage that makes
 * it, more is possible: both agree on a layout that costs a copy or a conversion less. All of that is decided here, in
 * one pass over the edges, once the stages are built; what is enqueued follows it and asks nothing again. */
#include "device/cuda/product.h"

/* ---- the list ------------------------------------------------------------------------------------------ */

/* The edges by which a stage is given what its launch does not make itself, a value each; returns how many there are.
 * edge NULL: how many there are at most. */
static uint32_t list_edges(const struct executor *x, const struct cuda_stage *s, struct cuda_edge *edge)
{
    const struct tape_launch *l = s->launch;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_ops; i++)
        for (uint32_t j = 0; j < TAPE_IN; j++) {
            const uint32_t v = x->program->ops[l->ops[i]].in[j];
            if (v == TAPE_NONE || cuda_is_vector(x->program, v) || cuda_made_inside(x, l, v)) continue;
            uint32_t k = 0;
            while (edge && k < n && edge[k].value != v) k++;
            if (edge && k == n) edge[n] = (struct cuda_edge){ .value = v, .from = x->uses[v].from, .to = s };
            n += !edge || k == n;
        }
    return n;
}

static struct cuda_edge *edge_of(struct cuda_edge *edge, uint32_t n, uint32_t value)
{
    for (uint32_t i = 0; i < n; i++)
        if (edge[i].value == value) return &edge[i];
    return NULL;
}

/* The stage makes these values. */
static void note_results(struct executor *x, const struct cuda_stage *s)
{
    const struct tape_launch *l = s->launch;
    for (uint32_t g = 0; g < l->n_seg; g++)
        if (l->seg[g].out != TAPE_NONE) x->uses[l->seg[g].out].from = s;
    if (l->out != TAPE_NONE && !l->logits) x->uses[l->out].from = s;
}

/* ---- between two products ------------------------------------------------------------------------------ */

/* Does one call of p make the acts that q, the stage behind it, reads? */
static bool hands_acts(const struct cuda_product_stage *p, const struct cuda_product_stage *q)
{
    return p->out && p->out == q->x.v && p->out->form == VALUE_ACT && (p->glu ? cuda_glu_together(p) : p->n_seg == 1);
}

/* A dense gated activation, and one matrix that alone reads it. */
static bool calls_agree(const struct executor *x, const struct cuda_edge *e)
{
    const struct cuda_stage *s = e->from, *next = e->to;
    const struct cuda_product_stage *p = &s->product, *q = &next->product;
    return !s->tapped && !next->tapped && s->rows == next->rows && !next->logits && !p->experts && !q->experts &&
           p->glu && p->slots == 1 && p->out->width % 64 == 0 && q->n_seg == 1 && !q->x.gather && !q->norm &&
           x->uses[e->value].reads == 1;
}

/* The order of k of the panels that go from large products to large products; 0: acts do. */
static uint32_t panels_of(const struct executor *x, const struct cuda_edge *e)
{
    const struct cuda_product_stage *p = &e->from->product, *q = &e->to->product;
    if (!p->large || !q->large || !p->glu || !p->seg[0].m->panels || !p->out->experts) return 0;
    return x->uses[e->value].reads == q->n_seg ? cuda_common_panels(q) : 0;
}

/* The product s and the stage in front of it. in, choice: edges by which its x and its route come; choice NULL: it has
 * none. */
static void join_products(struct executor *x, struct cuda_stage *s, struct cuda_edge *in, struct cuda_edge *choice)
{
    struct cuda_product_stage *p = &s[-1].product, *q = &s->product;
    if (!hands_acts(p, q)) return;
    if (choice && p->experts && p->route == q->route) {
        choice->groups_ready = true;
        in->group = panels_of(x, in);
        if (in->group) in->layout = LAYOUT_PANELS;
    } else if (calls_agree(x, in))
        in->layout = LAYOUT_CALLS;
    if (in->layout != LAYOUT_VALUE) p->result = in;
}

/* ---- behind a route ------------------------------------------------------------------------------------ */

/* A router norms its rows and leaves them at x->act: are they what s, experts behind it, read? */
static bool fused_norm(const struct cuda_stage *s)
{
    const struct cuda_product_stage *p = &s->product, *q = &s[-1].route.router;
    return p->experts && p->norm && p->norm == q->norm && p->x.v == q->x.v && !p->x.gather && !q->x.gather &&
           s->rows == s[-1].rows;
}

/* ---- before attention ---------------------------------------------------------------------------------- */

/* May the attention s read q, k and v of prompts where the large product in front of it leaves them? */
static bool reads_columns(const struct executor *x, const struct cuda_stage *s)
{
    const struct cuda_stage *before = &s[-1];
    const struct cuda_product_stage *p = &before->product;
    const uint32_t value[3] = { s->launch->q, s->launch->k, s->launch->v };
    if (value[1] == TAPE_NONE || value[2] == TAPE_NONE) return false;
    if (before->kind != STAGE_PRODUCT || before->rows != ROWS_ALL || before->tapped || s->tapped || p->experts ||
        p->n_routers || p->n_map || p->glu || p->residual.v || p->out || p->n_seg != 3)
        return false;
    for (uint32_t g = 0; g < 3; g++)
        if (!cuda_expands(p->seg[g].m) || p->seg[g].out != &x->values[value[g]] || x->uses[value[g]].reads != 1)
            return false;
    return true;
}

static void join_attention(struct executor *x, struct cuda_stage *s, struct cuda_edge *edge, uint32_t n)
{
    const uint32_t value[3] = { s->launch->q, s->launch->k, s->launch->v };
    if (!reads_columns(x, s)) return;
    for (uint32_t i = 0; i < 3; i++) edge_of(edge, n, value[i])->layout = LAYOUT_COLUMNS;
    s[-1].product.result = edge_of(edge, n, value[0]);
    cuda_attend_columns(x, &s[-1].product, &s->attend.many);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

/* Is s the first product with so many heads? */
static bool first_by_heads(const struct executor *x, const struct cuda_stage *s)
{
    for (const struct cuda_stage *q = x->stages; q < s; q++)
        if (q->launch->heads == s->launch->heads) return false;
    return true;
}

/* How the values come by which s is given something: edge [n]. */
static void decide(struct executor *x, struct cuda_stage *s, struct cuda_edge *edge, uint32_t n)
{
    const struct tape_launch *l = s->launch;
    if (s->kind == STAGE_ROUTE) s->route.router.in = edge_of(edge, n, l->x);
    if (s->kind == STAGE_ATTEND) join_attention(x, s, edge, n);
    if (s->kind != STAGE_PRODUCT) return;
    struct cuda_edge *const in = edge_of(edge, n, l->x);
    struct cuda_edge *const choice = s->product.experts && !l->heads ? edge_of(edge, n, l->route) : NULL;
    s->product.in = in;
    s->product.choice = choice;
    s->product.makes_groups = l->heads && first_by_heads(x, s);
    if (s[-1].kind == STAGE_PRODUCT) join_products(x, s, in, choice);
    if (s[-1].kind == STAGE_ROUTE) in->fused = fused_norm(s);
}

wk_status cuda_find_edges(struct executor *x, const struct wk_err *err)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < x->program->n_launches; i++) most += list_edges(x, &x->stages[i], NULL);
    x->edges = cuda_list(x, most, sizeof *x->edges);
    if (!x->edges) return wk_fail(err, WK_NO_MEMORY, "out of memory for the list of %u edges", most);
    for (uint32_t i = 0; i < x->program->n_launches; i++) {
        struct cuda_stage *s = &x->stages[i];
        struct cuda_edge *edge = &x->edges[x->n_edges];
        const uint32_t n = list_edges(x, s, edge);
        decide(x, s, edge, n);
        note_results(x, s);
        x->n_edges += n;
    }
    return WK_OK;
}
