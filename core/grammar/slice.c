/* slice.c: what of the vocabulary can be allowed at once. In a JSON string 97 of 100 tokens of a large vocabulary
 * consist of characters that change nothing, and the others are such characters and then something else. So where the
 * automaton of a stack is shown to let every character of a slice's set pass, the tokens of these characters are
 * allowed by a mask that was made with the index. Where all of them lead to the same place, too, the tokens that go on
 * otherwise are known by what follows: each end is walked once, from the place behind as many characters. */
#include "grammar/masks.h"

#include <string.h>

enum { FRONTIER = 8 /* states that a slice is followed through at a time */ };

/* How much of a slice can follow. */
struct passage {
    uint32_t up_to;   /* characters */
    bool all;         /* any number */
    bool longer_fail; /* tokens with more are not allowed; else they must be tried */
    bool alike;       /* all characters lead to one place: places[i] is behind i of them, i <= up_to */
    uint32_t loop;    /* with all, alike: from this place on all are the same */
    struct top places[SLICE_LENGTHS + 1];
};

static bool same_states(const lang_id *a, uint32_t n, const lang_id *b, uint32_t m)
{
    return n == m && !memcmp(a, b, n * sizeof *a);
}

/* Follows every character of the slice's set through an automaton. False: it does not let all of them pass alike. */
static bool passes(struct grammar *g, const struct slice *s, const struct top *t, struct passage *out)
{
    lang_id now[FRONTIER] = { t->state }, next[FRONTIER];
    const bool text = g->nodes[t->node].kind == OF_TEXT, open = g->langs->exprs[t->state].flags & EXPR_OPEN;
    uint32_t n = 1;
    bool leaves = false; /* the text may end within a token, and what follows go on with it */
    *out = (struct passage){ .alike = !(g->nodes[t->node].flags & NODE_UNIQUE) };
    for (uint32_t length = 0; length <= SLICE_LENGTHS; length++) {
        bool live, dead;
        for (uint32_t i = 0; i < n && text; i++) leaves |= lang_accepts(g->langs, now[i]);
        out->alike &= n == 1 && !leaves;
        out->places[length] = *t;
        out->places[length].state = now[0];
        const uint32_t found = lang_next_set(g->langs, now, n, s->set, s->n_set, next, FRONTIER, &live, &dead);
        out->all = open || (found != UINT32_MAX && !dead && same_states(now, n, next, found));
        out->loop = length;
        if (out->all) {
            out->alike &= same_states(now, n, next, found);
            return true;
        }
        if (found == UINT32_MAX || (live && dead) || (dead && leaves)) return false;
        out->up_to = length;
        out->longer_fail = dead;
        if (dead) return true;
        memcpy(now, next, found * sizeof *now);
        n = found;
    }
    out->longer_fail = false;
    return true;
}

/* The string's counter alone decides. */
static void counted(struct grammar *g, const struct walker *w, const struct top *t, struct passage *out)
{
    struct top at = *t;
    *out = (struct passage){ .alike = true };
    for (uint32_t length = 0; length <= SLICE_LENGTHS; length++) {
        const uint64_t before = at.at;
        out->places[length] = at;
        out->up_to = out->loop = length;
        out->longer_fail = walker_inside(g, w, &at, 'a') == LANG_NO;
        if (out->longer_fail) return;
        out->all = at.at == before;
        if (out->all) return;
    }
}

static bool inside_string(const struct slice *s)
{
    for (uint32_t i = 0; i < s->n_set; i++)
        for (const char *c = "\"\\\x1f"; *c; c++)
            if (s->set[i].first <= (uint32_t)*c && s->set[i].last >= (uint32_t)*c) return false;
    return true;
}

/* Which slice to allow at once where t stands; NULL: none. */
static const struct slice *choose(struct grammar *g, const struct walker *w, const struct top *t, struct passage *out)
{
    const struct node *n = &g->nodes[t->node];
    const bool string = n->kind == OF_STRING;
    if (string ? string_phase_of(t) != STRING_BODY : n->kind != OF_TEXT) return NULL;
    for (uint32_t i = 0; i < w->x->n_slices && !langs_status(g->langs, NULL); i++) {
        const struct slice *s = &w->x->slices[i];
        if (string && !inside_string(s)) continue;
        if (string && n->a == LANG_EVERYTHING && !(n->flags & NODE_UNIQUE)) {
            counted(g, w, t, out);
            return s;
        }
        if (passes(g, s, t, out) && (out->all || out->up_to)) return s;
    }
    return NULL;
}

/* Tokens of characters of the set alone. */
static bool allow_whole(struct grammar *g, struct walker *w, const struct slice *s, const struct passage *p)
{
    for (uint32_t i = 0; i < w->x->words && (p->all || p->up_to); i++) w->bits[i] |= s->up_to[p->all ? 0 : p->up_to][i];
    for (uint32_t i = 0; i < s->n_longer && !p->all && !p->longer_fail; i++)
        if (!walker_token(g, w, s->longer[i])) return false;
    return true;
}

/* Tokens that begin with some characters of the set, where all of them lead to the same place. */
static bool walk_tails(struct grammar *g, struct walker *w, const struct slice *s, const struct passage *p)
{
    if (p->all && p->loop <= 1) return walker_begin(g, w, NULL, &p->places[p->loop]) && walker_tails(g, w, s->tails);
    const uint32_t last = p->all ? SLICE_LENGTHS : p->up_to;
    for (uint32_t k = 1; k <= last; k++)
        if (!walker_begin(g, w, NULL, &p->places[p->all && k > p->loop ? p->loop : k]) ||
            !walker_tails(g, w, &s->tails[k]))
            return false;
    return true;
}

/* Allows what of a slice can follow, and walks the rest. */
static bool walk_slice(struct grammar *g, struct walker *w, const struct slice *s, const struct passage *p,
                       const struct top *t)
{
    const bool string = g->nodes[t->node].kind == OF_STRING;
    if (!allow_whole(g, w, s, p) || !walker_tree(g, w, &w->x->all, s->begins) || !walker_tree(g, w, &s->odd, NULL))
        return false;
    if (!p->alike) return walker_tree(g, w, &s->some, NULL) && (string || walker_tree(g, w, &s->control, NULL));
    if (p->all ? p->loop > 1 : !p->longer_fail)
        for (uint32_t i = 0; i < s->n_some_longer; i++)
            if (!walker_token(g, w, s->some_longer[i])) return false;
    return walk_tails(g, w, s, p);
}

bool slices_walk(struct grammar *g, struct walker *w, const struct position *p, const struct top *t)
{
    struct passage passage;
    const struct slice *s = p->need ? NULL : choose(g, w, t, &passage);
    if (langs_status(g->langs, NULL)) return machine_failed(g);
    if (!walker_begin(g, w, p, t)) return false;
    return s ? walk_slice(g, w, s, &passage, t) : walker_tree(g, w, &w->x->all, NULL);
}
