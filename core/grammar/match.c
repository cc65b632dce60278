/* match.c: where matches stand. A position is immutable and shared by those that stand there; frames are kept alive by
 * positions alone, and those that none reaches are taken back when there are many. See grammar.h. */
#include <stdlib.h>
#include <string.h>

#include "grammar/masks.h"

struct grammar_match {
    struct grammar *g;
    const struct grammar_index *index;
    struct position *at;
};

/* ---- frames that nobody needs -------------------------------------------------------------------------------------
 */

static void mark_from(struct grammar *g, const struct position *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t f = p->tops[i].parent; f && !g->frames[f].marked; f = g->frames[f].parent)
            g->frames[f].marked = true;
}

/* Takes back the frames that no position reaches. Between steps alone. */
static void collect(struct grammar *g)
{
    if (g->live_frames < g->collect_at) return;
    for (const struct position *p = g->positions; p; p = p->next) mark_from(g, p);
    memset(g->frame_buckets, 0, g->n_frame_buckets * sizeof *g->frame_buckets);
    g->free_frame = g->live_frames = 0;
    for (uint32_t i = g->n_frames; i-- > 1;) {
        struct frame *f = &g->frames[i];
        if (f->marked) {
            frame_relink(g, i);
            g->live_frames++;
        } else {
            *f = (struct frame){ .chain = g->free_frame };
            g->free_frame = i;
        }
        f->marked = false;
    }
    const uint32_t twice = 2 * g->live_frames;
    if (g->collect_at < twice) g->collect_at = twice;
}

/* ---- positions
 * -------------------------------------------------------------------------------------------------------- */

static void release(struct grammar *g, struct position *p)
{
    if (--p->refs) return;
    if (p->previous)
        p->previous->next = p->next;
    else
        g->positions = p->next;
    if (p->next) p->next->previous = p->previous;
    free(p);
}

/* A position with copies of tops; NULL: no memory. */
static struct position *make_position(struct grammar *g, const struct top *tops, const struct reading *r)
{
    struct position *p = malloc(sizeof *p + r->n * sizeof *p->tops);
    if (!p) return NULL;
    *p = (struct position){
        .refs = 1, .n = r->n, .value = r->value, .need = r->need, .length = r->length, .next = g->positions
    };
    if (r->n) memcpy(p->tops, tops + r->first, r->n * sizeof *tops);
    if (g->positions) g->positions->previous = p;
    g->positions = p;
    return p;
}

static wk_status move_to(struct grammar_match *m, const struct top *tops, const struct reading *r,
                         const struct wk_err *err)
{
    struct position *p = make_position(m->g, tops, r);
    if (!p) return wk_fail(err, WK_NO_MEMORY, "no memory for a grammar's stacks");
    release(m->g, m->at);
    m->at = p;
    return WK_OK;
}

/* Says why a step failed. The failure is that of one position: other matches of the grammar go on, unless its automata
 * have met a limit, which stays. */
static wk_status failure(struct grammar *g, const struct wk_err *err)
{
    const wk_status status = wk_fail(err, g->status, "%s", g->why);
    if (langs_status(g->langs, NULL))
        atomic_store(&g->failed, true);
    else
        g->status = WK_OK;
    return status;
}

wk_status grammar_match_open(struct grammar *g, const struct grammar_index *x, struct grammar_match **out,
                             const struct wk_err *err)
{
    *out = NULL;
    if (!g->sealed) return wk_fail(err, WK_INTERNAL, "a grammar was not sealed");
    if (g->status) return failure(g, err);
    if (x) {
        const wk_status status = masks_use(g, x, err);
        if (status) return status;
    }
    struct grammar_match *m = calloc(1, sizeof *m);
    const struct top start = machine_start(g, g->root, 0);
    const struct reading r = { .n = 1, .end = 1 };
    if (m) m->at = make_position(g, &start, &r);
    if (!m || !m->at) {
        free(m);
        return wk_fail(err, WK_NO_MEMORY, "no memory for a grammar's stacks");
    }
    m->g = grammar_keep(g);
    m->index = x;
    *out = m;
    return WK_OK;
}

wk_status grammar_match_clone(const struct grammar_match *m, struct grammar_match **out, const struct wk_err *err)
{
    *out = malloc(sizeof **out);
    if (!*out) return wk_fail(err, WK_NO_MEMORY, "no memory for a grammar's stacks");
    **out = *m;
    (void)grammar_keep(m->g);
    m->at->refs++;
    return WK_OK;
}

void grammar_match_close(struct grammar_match *m)
{
    if (!m) return;
    release(m->g, m->at);
    atomic_store(&m->g->held, grammar_bytes(m->g) + (m->g->masks ? masks_bytes(m->g->masks) : 0));
    grammar_close(m->g);
    free(m);
}

/* ---- reading
 * ------------------------------------------------------------------------------------------------------------ */

/* Reads bytes after position p; *r and list: what follows. *taken: bytes before the one that cannot follow. */
static enum lang_answer read_bytes(struct grammar *g, const struct position *p, const char *bytes, size_t n,
                                   struct tops *list, struct reading *r, size_t *taken)
{
    *taken = 0;
    if (!machine_load(g, p, list, r)) return LANG_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        struct reading next;
        const enum lang_answer fits = machine_byte(g, list, r, (unsigned char)bytes[i], &next);
        if (fits != LANG_YES) return fits;
        /* Only the latest tops are needed: they move to the front. */
        memmove(list->list, list->list + next.first, next.n * sizeof *list->list);
        next.first = 0;
        next.end = list->n = next.n;
        *r = next;
        *taken = i + 1;
    }
    return LANG_YES;
}

wk_status grammar_match_push(struct grammar_match *m, const char *bytes, size_t n, size_t *taken,
                             const struct wk_err *err)
{
    struct tops list = { .list = NULL };
    struct reading r;
    size_t count = 0;
    wk_status status = WK_OK;
    collect(m->g);
    const enum lang_answer fits = m->at->ended ? LANG_NO : read_bytes(m->g, m->at, bytes, n, &list, &r, &count);
    if (fits == LANG_UNKNOWN)
        status = failure(m->g, err);
    else if (count)
        status = move_to(m, list.list, &r, err);
    if (!status && fits == LANG_NO) status = wk_fail(err, WK_INVALID, "byte %zu cannot follow by the grammar", count);
    if (taken) *taken = count;
    free(list.list);
    return status;
}

bool grammar_match_complete(struct grammar_match *m)
{
    if (m->at->need || m->at->ended) return m->at->ended;
    const enum lang_answer complete = machine_complete(m->g, m->at->tops, m->at->n);
    if (complete == LANG_UNKNOWN) (void)failure(m->g, NULL); /* the next step says it again */
    return complete == LANG_YES;
}

/* A token by its bytes, by its id where nodes name ids, or both. */
static enum lang_answer read_token(struct grammar_match *m, uint32_t id, struct tops *list, struct reading *r)
{
    struct grammar *g = m->g;
    size_t taken;
    struct token_bytes bytes = grammar_index_bytes(m->index, id);
    enum lang_answer fits = bytes.len ? read_bytes(g, m->at, bytes.data, bytes.len, list, r, &taken) : LANG_NO;
    if (fits == LANG_UNKNOWN || m->at->need || !masks_names(g, id)) return fits;
    const uint32_t n = fits == LANG_YES ? list->n : 0;
    list->n = n;
    const uint32_t symbol = TOKEN_SYMBOL + (id & TOKEN_ID_BITS) + (bytes.len ? 0 : CONTROL_SYMBOL);
    if (!machine_step(g, m->at->tops, m->at->n, symbol, list)) return LANG_UNKNOWN;
    if (list->n == n) return fits;
    if (n && r->need) { /* a partial character and its whole token: two readings that one position cannot hold */
        (void)grammar_fail(g, WK_UNSUPPORTED, "token %u ends in a character and is named by the grammar", id);
        return LANG_UNKNOWN;
    }
    *r = (struct reading){ .n = list->n, .end = list->n };
    return LANG_YES;
}

wk_status grammar_match_accept(struct grammar_match *m, uint32_t id, const struct wk_err *err)
{
    struct tops list = { .list = NULL };
    struct reading r = { .n = 0 };
    wk_status status = WK_OK;
    if (!m->index) return wk_fail(err, WK_INTERNAL, "a match without a vocabulary takes no tokens");
    collect(m->g);
    if (m->at->ended) return wk_fail(err, WK_INVALID, "token %u after the end of generation", id);
    if (index_ends(m->index, id) && grammar_match_complete(m)) {
        status = move_to(m, NULL, &r, err);
        if (!status) m->at->ended = true;
        return status;
    }
    const enum lang_answer fits = read_token(m, id, &list, &r);
    if (fits == LANG_YES)
        status = move_to(m, list.list, &r, err);
    else
        status = fits == LANG_NO ? wk_fail(err, WK_INVALID, "token %u cannot follow by the grammar", id)
                                 : failure(m->g, err);
    free(list.list);
    return status;
}

wk_status grammar_match_mask(struct grammar_match *m, struct grammar_mask *out, const struct wk_err *err)
{
    if (!m->index) return wk_fail(err, WK_INTERNAL, "a match without a vocabulary has no masks");
    collect(m->g);
    if (m->g->status) return failure(m->g, err);
    if (m->at->ended) return wk_fail(err, WK_INVALID, "nothing follows the end of generation");
    const wk_status status = masks_get(m->g, m->at, out, err);
    if (m->g->status) return failure(m->g, err);
    if (!status && !out->n_allowed)
        return wk_fail(err, WK_INVALID, "the grammar has come to a dead end: no token of this vocabulary can follow");
    return status;
}

void grammar_figures(const struct grammar *g, struct grammar_figures *out)
{
    *out = (struct grammar_figures){ .nodes = g->n_nodes - BUILT_IN_NODES,
                                     .states = langs_states(g->langs),
                                     .frames = g->live_frames,
                                     .bytes = grammar_bytes(g) };
    if (g->masks) masks_figures(g->masks, out);
}
