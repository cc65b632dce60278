/* stack_limit.c: how many stacks a grammar can need at a time. The machine follows GRAMMAR_MAX_STACKS; a text that
 * leads to more goes on with some of them, so it can always be ended, but not in every way. A grammar that comes to
 * that is refused when it is sealed, so far as it is found.
 *
 * First a bound from the nodes alone: values of JSON are told apart by how they begin, so only alternatives of one kind
 * can be followed together. Most schemas are shown harmless by it. Of the others, recursive ones and grammars, some
 * short texts are followed, those with most stacks first, for a limited number of steps. What comes to too many stacks
 * behind longer ones only, by recursion, is not refused: few texts ever get there. */
#include "grammar/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    TOO_MANY = GRAMMAR_MAX_STACKS + 1, /* as many as that, or more */
    MAX_PASSES = 24,
    MAX_PLACES = 512,
    MAX_WAYS = 30000, /* stacks that read a character, in one search */
    LONGEST = 32,     /* characters of a text that is followed */
    MANY = 24,        /* characters that may follow: not all are tried */
    FIRSTS = 4,
    N_ASCII = 128
};

/* ---- the bound ------------------------------------------------------------------------------------------ */

enum { BEGINS_OBJECT, BEGINS_ARRAY, BEGINS_STRING, BEGINS_OTHER, N_BEGINS };
/* Stacks of one node at a time, by how its value begins. */
struct stack_bound {
    uint8_t of[N_BEGINS];
};

static uint8_t sum(uint32_t a, uint32_t b) { return (uint8_t)(a + b < TOO_MANY ? a + b : TOO_MANY); }
static uint8_t larger(uint8_t a, uint8_t b) { return a > b ? a : b; }

static uint8_t most_of(const struct stack_bound *c)
{
    uint8_t most = 0;
    for (int i = 0; i < N_BEGINS; i++) most = larger(most, c->of[i]);
    return most;
}

/* A name may be a declared one and of each family until it is over; then it is a declared one, or of some families. */
static uint8_t of_object(const struct object *o, const struct stack_bound *all)
{
    uint8_t most = sum(o->n != 0, o->n_families), families = 0;
    for (uint32_t i = 0; i < o->n; i++)
        if (o->properties[i].enabled) most = larger(most, most_of(&all[o->properties[i].value]));
    for (uint32_t i = 0; i < o->n_families; i++) families = sum(families, most_of(&all[o->families[i].value]));
    return larger(most, families);
}

static uint8_t of_array(const struct array *a, const struct stack_bound *all)
{
    uint8_t most = most_of(&all[a->rest]);
    for (uint32_t i = 0; i < a->n_prefix; i++) most = larger(most, most_of(&all[a->prefix[i]]));
    return larger(most, 1);
}

static struct stack_bound judge(const struct grammar *g, const struct node *n, const struct stack_bound *all)
{
    struct stack_bound c = { { 0 } };
    if (!(n->flags & NODE_PRODUCTIVE)) return c;
    switch ((enum node_kind)n->kind) {
    case OF_NOTHING:
    case OF_SEEN:
    case OF_NAMES: break;
    case OF_STRING: c.of[BEGINS_STRING] = 1; break;
    case OF_OBJECT: c.of[BEGINS_OBJECT] = of_object(&g->objects[n->a], all); break;
    case OF_ARRAY: c.of[BEGINS_ARRAY] = of_array(&g->arrays[n->a], all); break;
    case OF_RULE: c = all[n->a]; break;
    case OF_ANY_OF:
        for (uint32_t k = 0; k < n->b; k++)
            for (int i = 0; i < N_BEGINS; i++) c.of[i] = sum(c.of[i], all[g->parts.list[n->a + k]].of[i]);
        break;
    case OF_EMPTY:
    case OF_LITERAL:
    case OF_TEXT:
    case OF_TOKEN: c.of[BEGINS_OTHER] = 1; break;
    case OF_SEQUENCE:
    case OF_REPEAT: c.of[BEGINS_OTHER] = TOO_MANY; break; /* where one part ends and the next begins is open */
    }
    return c;
}

/* Is it shown that no text needs more stacks than can be followed? False, too, if there is no memory. */
static bool shown_small(struct grammar *g)
{
    struct stack_bound *all = calloc(g->n_nodes, sizeof *all);
    bool changed = all != NULL, small = false;
    for (uint32_t pass = 0; changed && pass < MAX_PASSES && langs_step(g->langs, g->n_nodes); pass++) {
        changed = false;
        for (uint32_t i = 1; i < g->n_nodes; i++) {
            const struct stack_bound c = judge(g, &g->nodes[i], all);
            changed |= memcmp(&c, &all[i], sizeof c) != 0;
            all[i] = c;
        }
        small = !changed && most_of(&all[g->root]) < TOO_MANY;
    }
    free(all);
    return small;
}

/* ---- the search ----------------------------------------------------------------------------------------- */

struct place {
    struct top *tops;   /* [n] */
    uint32_t n, length; /* length: of the text that leads there */
    bool done;
};
struct search {
    struct grammar *g;
    struct place places[MAX_PLACES];
    uint32_t n, ways;
    bool led[N_ASCII]; /* characters that have led on anywhere */
    struct tops out;
};

/* Keeps the tops in x->out as a place, unless they are one. False: no memory. */
static bool keep(struct search *x, uint32_t length)
{
    const size_t bytes = x->out.n * sizeof *x->out.list;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->places[i].n == x->out.n && !memcmp(x->places[i].tops, x->out.list, bytes)) return true;
    if (x->n == MAX_PLACES) return true;
    struct top *tops = malloc(bytes);
    if (!tops) return false;
    memcpy(tops, x->out.list, bytes);
    x->places[x->n++] = (struct place){ tops, x->out.n, length, length >= LONGEST };
    return true;
}

/* Characters that may follow a place; of many some: those that have led on elsewhere, marks of JSON, the first ones. */
static bool choose(struct search *x, const struct place *p, bool chosen[N_ASCII])
{
    struct ahead ahead;
    uint32_t n = 0;
    if (!machine_ahead(x->g, p->tops, p->n, &ahead)) return false;
    for (uint32_t c = '\t'; c < N_ASCII; c++) n += (uint32_t)(ahead.ascii[c / 64] >> c % 64 & 1);
    for (uint32_t c = '\t', first = 0; c < N_ASCII; c++) {
        if (!(ahead.ascii[c / 64] >> c % 64 & 1)) continue;
        chosen[c] = n <= MANY || x->led[c] || strchr("\"{}[],:", (int)c) || first < FIRSTS;
        first++;
    }
    return true;
}

/* Follows the characters that may come at place i. False: a failure, or too many stacks (g->over_limit). */
static bool expand(struct search *x, uint32_t at)
{
    const struct place p = x->places[at];
    bool chosen[N_ASCII] = { false };
    x->places[at].done = true;
    if (!choose(x, &p, chosen)) return false;
    for (uint32_t c = 0; c < N_ASCII && x->ways < MAX_WAYS; c++) {
        if (!chosen[c]) continue;
        x->out.n = 0;
        if (!langs_step(x->g->langs, 8 * (uint64_t)p.n) || !machine_step(x->g, p.tops, p.n, c, &x->out)) return false;
        if (x->g->over_limit) return false;
        x->ways += p.n + x->out.n;
        if (!x->out.n) continue;
        x->led[c] = true;
        if (!keep(x, p.length + 1)) return (void)grammar_fail(x->g, WK_NO_MEMORY, "no memory for a grammar"), false;
    }
    return true;
}

/* The place with most stacks that is not done, of equals the latest; UINT32_MAX: none. */
static uint32_t next_place(const struct search *x)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < x->n; i++)
        if (!x->places[i].done && (best == UINT32_MAX || x->places[i].n >= x->places[best].n)) best = i;
    return best;
}

/* Frames that the search has made go; what automata it has made stays. */
static void forget_frames(struct grammar *g)
{
    free(g->frames);
    free(g->frame_buckets);
    g->frames = NULL;
    g->frame_buckets = NULL;
    g->n_frames = g->cap_frames = g->free_frame = g->live_frames = g->n_frame_buckets = 0;
}

void stack_limit_check(struct grammar *g)
{
    if (shown_small(g) || langs_status(g->langs, NULL)) return;
    struct search *x = calloc(1, sizeof *x);
    if (!x) return (void)grammar_fail(g, WK_NO_MEMORY, "no memory for a grammar");
    x->g = g;
    g->over_limit = false;
    bool fine = true;
    const struct top start = machine_start(g, g->root, 0);
    x->places[0].tops = malloc(sizeof start);
    if (x->places[0].tops) {
        x->places[0].tops[0] = start;
        x->places[0].n = x->n = 1;
    } else {
        (void)grammar_fail(g, WK_NO_MEMORY, "no memory for a grammar");
    }
    for (uint32_t at; fine && x->ways < MAX_WAYS && (at = next_place(x)) != UINT32_MAX;) fine = expand(x, at);
    if (g->over_limit)
        (void)grammar_fail(g, WK_UNSUPPORTED,
                           "it is too ambiguous: more than %d ways of reading one text would have to be followed at a "
                           "time; let alternatives differ where they begin",
                           GRAMMAR_MAX_STACKS);
    for (uint32_t i = 0; i < x->n; i++) free(x->places[i].tops);
    free(x->out.list);
    free(x);
    g->over_limit = false;
    forget_frames(g);
}
