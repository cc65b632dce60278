/* slice.c: what of the vocabulary can be allowed at once. In a JSON string 97 of 100 tokens of a large vocabulary
 * consist of characters that change nothing, and the others are such characters and then something else. So where the
 * automaton of a stack is shown to let every character of a slice's set pass, the tokens of these characters are
 * allowed by a mask that was made with the index. Where all of them lead to the same place, too, the tokens that go on
 * otherwise are known by what follows: each end is walked once, from the place behind as many characters.
 *
 * The same lists exist for the tokens behind one first byte that is no letter and no digit (`.com`, `-based`). */
#include "grammar/masks.h"

#include <string.h>

enum { FRONTIER = 8 /* states that a slice is followed through at a time */ };

/* How much of a slice can follow. */
struct passage {
    uint32_t up_to;   /* characters */
    bool all;         /* any number */
    bool longer_fail; /* tokens with more are not allowed; else they must be tried */
    bool string;      /* in one, not in a text */
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
    *out = (struct passage){ .string = !text, .alike = !(g->nodes[t->node].flags & NODE_UNIQUE) };
    for (uint32_t length = 0; length <= SLICE_LENGTHS; length++) {
        for (uint32_t i = 0; i < n && text; i++) leaves |= lang_accepts(g->langs, now[i]);
        out->alike &= n == 1 && !leaves;
        out->places[length] = *t;
        out->places[length].state = now[0];
        const uint32_t found = lang_next_set(g->langs, now, n, s->set, s->n_set, next, FRONTIER);
        out->all = open || same_states(now, n, next, found);
        out->loop = length;
        if (out->all) {
            out->alike &= same_states(now, n, next, found);
            return true;
        }
        if (found == UINT32_MAX || (!found && leaves)) return false;
        out->up_to = length;
        out->longer_fail = !found;
        if (!found) return true;
        memcpy(now, next, found * sizeof *now);
        n = found;
    }
    out->longer_fail = false;
    return true;
}

/* The string's counter alone decides. Where it is past the lower bound and no end of a token comes to the upper one,
 * ends are told alike, and so all begin at the last such place. */
static void counted(struct grammar *g, const struct walker *w, const struct slice *s, const struct top *t,
                    struct passage *out)
{
    const struct node *n = &g->nodes[t->node];
    struct top at = *t;
    *out = (struct passage){ .string = true, .alike = true };
    for (uint32_t length = 0; length <= SLICE_LENGTHS; length++) {
        const uint64_t before = at.at;
        out->places[length] = at;
        for (uint32_t i = 0; i < length && n->c - at.at >= s->longest_end; i++)
            if (out->places[i].at >= n->b) out->places[i] = at;
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
            counted(g, w, s, t, out);
            return s;
        }
        if (passes(g, s, t, out) && (out->all || out->up_to)) return s;
    }
    return NULL;
}

/* Tokens of characters of the set alone. */
static bool allow_whole(struct grammar *g, struct walker *w, const struct part *part, const struct passage *p)
{
    const uint32_t *at = part->whole_at, end = p->all ? SLICE_LENGTHS + 2 : p->up_to + 1;
    for (uint32_t i = at[1]; i < at[end]; i++) w->bits[part->whole[i] / 64] |= UINT64_C(1) << part->whole[i] % 64;
    for (uint32_t i = at[SLICE_LENGTHS + 1]; i < at[SLICE_LENGTHS + 2] && !p->all && !p->longer_fail; i++)
        if (!walker_token(g, w, part->whole[i])) return false;
    return true;
}

/* Tokens that go on otherwise behind some characters of the set, where all of these lead to the same place. */
static bool walk_tails(struct grammar *g, struct walker *w, const struct part *part, const struct passage *p)
{
    if (p->all && p->loop <= 1) return walker_begin(g, w, NULL, &p->places[p->loop]) && walker_tails(g, w, part->tails);
    const uint32_t last = p->all ? SLICE_LENGTHS : p->up_to;
    for (uint32_t k = 1; k <= last; k++)
        if (!walker_begin(g, w, NULL, &p->places[p->all && k > p->loop ? p->loop : k]) ||
            !walker_tails(g, w, &part->tails[k]))
            return false;
    return true;
}

/* Allows the tokens of a part that can follow. The walk has begun at the stack where the tokens begin; of p, it is in a
 * string or not. */
static bool walk_part(struct grammar *g, struct walker *w, const struct part *part, const struct passage *p)
{
    if (!allow_whole(g, w, part, p) || !walker_tree(g, w, &part->other)) return false;
    if (!p->alike) return walker_tree(g, w, &part->some) && (p->string || walker_tree(g, w, &part->control));
    if (p->all ? p->loop > 1 : !p->longer_fail)
        for (uint32_t i = 0; i < part->n_longer; i++)
            if (!walker_token(g, w, part->longer[i])) return false;
    return walk_tails(g, w, part, p);
}

/* What of a slice can follow one stack. */
struct chosen {
    const struct slice *slice; /* NULL: none */
    struct top at;
    struct passage passage;
};

/* Allows the tokens with this first byte that can follow, where the walk has begun. chosen: for that place, and what
 * was chosen last for another; most often one of them fits again. */
static bool walk_behind(struct grammar *g, struct walker *w, uint8_t byte, struct chosen chosen[2])
{
    struct top behind;
    switch (walker_lead(g, w, byte, &behind)) {
    case LEAD_FAILED: return false;
    case LEAD_NONE: return true;
    case LEAD_PLACE: return walker_branch(g, w, byte);
    case LEAD_INSIDE: break;
    }
    if (!(w->x->many[byte / 64] >> byte % 64 & 1)) return walker_branch(g, w, byte);
    struct chosen *last = machine_same(&chosen->at, &behind) ? &chosen[0] : &chosen[1];
    if (!machine_same(&last->at, &behind)) {
        last->at = behind;
        last->slice = choose(g, w, &behind, &last->passage);
        if (langs_status(g->langs, NULL)) return machine_failed(g);
    }
    const struct part *part = last->slice ? last->slice->behind[byte] : NULL;
    if (!part) return walker_branch(g, w, byte);
    return walk_part(g, w, part, &last->passage) && walker_begin(g, w, NULL, &chosen->at);
}

bool slices_walk(struct grammar *g, struct walker *w, const struct position *p, const struct top *t)
{
    struct chosen chosen[2] = { { .at = *t }, { .at = *t } };
    if (p->need) return walker_begin(g, w, p, t) && walker_tree(g, w, &w->x->all);
    const struct slice *s = chosen->slice = choose(g, w, t, &chosen->passage);
    const struct passage *passage = &chosen->passage;
    if (langs_status(g->langs, NULL)) return machine_failed(g);
    if (!walker_begin(g, w, NULL, t)) return false;
    if (s) {
        for (uint32_t i = 0; i < w->x->words && (passage->all || passage->up_to); i++)
            w->bits[i] |= s->up_to[passage->all ? 0 : passage->up_to][i];
        if (!walk_part(g, w, &s->root, passage) || !walker_begin(g, w, NULL, t)) return false;
    }
    for (uint32_t b = 0; b < 256; b++)
        if (!(s && s->begins[b / 64] >> b % 64 & 1) && w->x->branches[b] < w->x->branches[b + 1] &&
            !walk_behind(g, w, (uint8_t)b, chosen))
            return false;
    return true;
}
