/* import.c: pages of a prompt that another engine has read come into the prefix cache; see handover.h.
 *
 * An import asks the engine's thread for pages: blocks that the cache has are held, for the others pages are taken out
 * of what nobody was promised. A step in flight may still read what such a page had; then the caller is answered when
 * it has ended. The caller writes, beside all steps, and commits: the blocks become nodes of the cache that are
 * committed at once. Another job may have computed some of them meanwhile; those stay, and the imported pages, which
 * are the same in every bit, are given back.
 *
 * A committed import only saves work, so it is the first to go when a job that waits lacks pages. */
#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/generator.h"
#include "tape/tape.h"

enum import_want { WANT_BEGIN = 0, WANT_COMMIT, WANT_ABORT };

struct engine_import {
    struct engine *engine;
    struct engine_lease *lease; /* what it will be: nodes and pages as far as they are known. A page of a block is the
                                   import's own, or KV_NO_PAGE where the cache has it */
    struct engine_salt salt;
    enum row_role role;
    uint32_t from;  /* the first block that lacks something */
    uint32_t chain; /* blocks that the cache has as nodes: held */
    uint64_t steps; /* up to this one they may still read its pages */

    /* Under the engine's lock. */
    enum import_want want;
    bool done;
    struct engine_import *next;

    wk_status status; /* before done */
    char text[200];
};

/* ---- callers ------------------------------------------------------------------------------------------- */

static void ask(struct engine_import *i, enum import_want want)
{
    struct engine *e = i->engine;
    i->want = want;
    i->next = NULL;
    *e->imports_in_end = i;
    e->imports_in_end = &i->next;
    engine_attention(e, ATTEND_PAGES);
}

static wk_status check_prompt(const struct engine *e, const uint32_t *prompt, uint32_t n, const struct wk_err *err)
{
    const uint32_t n_vocab = e->model->program->n_vocab, context = e->model->dev.context;
    const char *refusal = lease_refusal(e);
    if (refusal) return wk_fail(err, WK_UNSUPPORTED, "pages cannot be taken over: %s", refusal);
    if (n < 1 || n >= context)
        return wk_fail(err, WK_INVALID, "a prompt of %u tokens: expected 1 to %u", n, context - 1);
    for (uint32_t i = 0; i < n; i++)
        if (prompt[i] >= n_vocab)
            return wk_fail(err, WK_INVALID, "token %u of the prompt is %u: the vocabulary has %u", i, prompt[i],
                           n_vocab);
    return WK_OK;
}

wk_status engine_import_begin(struct engine *e, const uint32_t *prompt, uint32_t n_prompt,
                              const struct engine_salt *salt, struct engine_import **out, const struct wk_err *err)
{
    *out = NULL;
    wk_status s = check_prompt(e, prompt, n_prompt, err);
    if (s) return s;
    struct engine_import *i = malloc(sizeof *i);
    struct engine_lease *l = i ? lease_new(e, prompt, n_prompt, NULL) : NULL;
    if (!l) {
        free(i);
        return wk_fail(err, WK_NO_MEMORY, "out of memory for the import of %u prompt tokens", n_prompt);
    }
    *i = (struct engine_import){
        .engine = e, .lease = l, .salt = *salt, .role = n_prompt <= GENERATOR_FEW ? ROW_GENERATED : ROW_PROMPT
    };
    (void)pthread_mutex_lock(&e->lock);
    ask(i, WANT_BEGIN);
    while (!i->done) (void)pthread_cond_wait(&e->called, &e->lock);
    (void)pthread_mutex_unlock(&e->lock);
    s = i->status;
    if (s) {
        (void)wk_fail(err, s, "%s", i->text);
        engine_lease_release(l);
        free(i);
        return s;
    }
    *out = i;
    return WK_OK;
}

void engine_import_range(const struct engine_import *i, uint32_t *from, uint32_t *to)
{
    *from = i->from;
    *to = i->lease->blocks;
}

static wk_status check_range(const struct engine_import *i, uint32_t from, uint32_t to, const struct wk_err *err)
{
    if (from >= i->from && from <= to && to <= i->lease->blocks) return WK_OK;
    return wk_fail(err, WK_INVALID, "blocks %u to %u of an import of blocks %u to %u", from, to, i->from,
                   i->lease->blocks);
}

wk_status engine_import_write(struct engine_import *i, uint32_t from, uint32_t to, const void *bytes,
                              const struct wk_err *err)
{
    wk_status s = check_range(i, from, to, err);
    return s ? s : lease_write(i->lease, from, to, bytes, err);
}

/* ---- what the device does itself -----------------------------------------------------------------------------------
 */

wk_status engine_pin(struct engine *e, void *memory, uint64_t bytes, const struct wk_err *err)
{
    const struct model *m = e->model;
    if (!m->device->pin) return wk_fail(err, WK_UNSUPPORTED, "device %s pins no memory", m->device->name);
    return m->device->pin(m->executor, memory, bytes, err);
}

void engine_unpin(struct engine *e, void *memory) { e->model->device->unpin(e->model->executor, memory); }

wk_status engine_share(struct engine *e, struct device_share *out, const struct wk_err *err)
{
    const struct model *m = e->model;
    if (!m->device->share)
        return wk_fail(err, WK_UNSUPPORTED, "device %s shares no memory with other processes", m->device->name);
    return m->device->share(m->executor, out, err);
}

wk_status engine_peer_open(struct engine *e, const struct device_share *share, struct device_peer **out,
                           const struct wk_err *err)
{
    const struct model *m = e->model;
    *out = NULL;
    if (!m->device->peer_open)
        return wk_fail(err, WK_UNSUPPORTED, "device %s opens no other process's memory", m->device->name);
    return m->device->peer_open(m->executor, share, out, err);
}

void engine_peer_close(struct engine *e, struct device_peer *p)
{
    if (p) e->model->device->peer_close(e->model->executor, p);
}

wk_status engine_import_peer(struct engine_import *i, uint32_t from, uint32_t to, struct device_peer *p,
                             const struct device_page *pages, const struct wk_err *err)
{
    const struct model *m = i->engine->model;
    wk_status s = check_range(i, from, to, err);
    while (!s && from < to) {
        struct device_page own[LEASE_RUN];
        const uint32_t n = lease_pages(i->lease, &from, to, LEASE_RUN, own);
        s = m->device->peer_read(m->executor, p, pages, own, n, err);
        pages += n;
    }
    return s;
}

/* ---- callers: the end ---------------------------------------------------------------------------------- */

/* It is the engine's thread's now. */
static void hand_in(struct engine_import *i, enum import_want want)
{
    struct engine *e = i->engine;
    (void)pthread_mutex_lock(&e->lock);
    ask(i, want);
    (void)pthread_mutex_unlock(&e->lock);
}

struct engine_lease *engine_import_commit(struct engine_import *i)
{
    struct engine_lease *l = i->lease;
    engine_lease_ref(l); /* until the pages are in the cache */
    hand_in(i, WANT_COMMIT);
    return l;
}

void engine_import_abort(struct engine_import *i)
{
    if (i) hand_in(i, WANT_ABORT);
}

/* ---- reserving ----------------------------------------------------------------------------------------- */

static uint32_t *page_of(const struct engine_import *i, uint32_t b, uint32_t g)
{
    return &i->lease->pages[(uint64_t)b * i->engine->n_groups + g];
}

static bool bounded(const struct engine *e, uint32_t g) { return kv_bounded(e->pool[g].span); }

/* Is there room in group g? A block that is there costs too: of a bounded span its page has to be paid for, else it
 * cannot be given up any more. */
static bool fits(const struct engine *e, const struct engine_import *i, uint32_t g)
{
    const struct engine_lease *l = i->lease;
    uint64_t need = l->blocks - l->first[g];
    for (uint32_t b = 0; !bounded(e, g) && b < i->chain; b++) need -= prefix_users(&e->prefix, l->nodes[b]) > 0;
    return pages_spare(e, g) >= need;
}

static wk_status refuse(struct engine_import *i, wk_status s, const char *text)
{
    (void)snprintf(i->text, sizeof i->text, "%s", text);
    return s;
}

static wk_status check_room(struct engine *e, struct engine_import *i)
{
    if (atomic_load(&e->dead)) return refuse(i, WK_INTERNAL, "the engine is dead");
    if (atomic_load(&i->lease->state) == LEASE_LOST) return refuse(i, WK_NO_MEMORY, i->lease->text);
    for (uint32_t g = 0; g < e->n_groups; g++)
        if (!fits(e, i, g)) return refuse(i, WK_NO_MEMORY, "jobs have too many of the KV cache's pages");
    if (!lease_count(e, i->lease)) return refuse(i, WK_NO_MEMORY, "other leases have half of all pages");
    return WK_OK;
}

/* Of what the cache has, first: what is evicted for the others is something else. */
static void hold(struct engine *e, struct engine_import *i)
{
    struct engine_lease *l = i->lease;
    i->from = i->chain;
    for (; l->n_held < i->chain; l->n_held++) prefix_hold(&e->prefix, l->nodes[l->n_held]);
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (uint32_t b = l->first[g]; b < i->chain; b++) {
            const bool there = prefix_pages(&e->prefix, l->nodes[b])[g] != ENGINE_NONE;
            *page_of(i, b, g) = there ? KV_NO_PAGE : 0;
            if (there && bounded(e, g)) pages_use(e, g, l->nodes[b]);
            if (!there && b < i->from) i->from = b;
        }
}

static void reserve(struct engine *e, struct engine_import *i)
{
    struct engine_lease *l = i->lease;
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (uint32_t b = l->first[g]; b < l->blocks; b++)
            if (b >= i->chain || *page_of(i, b, g) != KV_NO_PAGE) {
                const uint32_t page = *page_of(i, b, g) = pages_take(e, g);
                if (e->pool[g].freed[page] > i->steps) i->steps = e->pool[g].freed[page];
            }
}

static void answer(struct engine *e, struct engine_import *i, wk_status s)
{
    (void)pthread_mutex_lock(&e->lock);
    i->status = s;
    i->done = true; /* i is its caller's again */
    (void)pthread_cond_broadcast(&e->called);
    (void)pthread_mutex_unlock(&e->lock);
}

static void begin(struct engine *e, struct engine_import *i)
{
    struct engine_lease *l = i->lease;
    i->chain = prefix_chain(&e->prefix, &i->salt, i->role, l->tokens, l->blocks, l->nodes);
    const wk_status s = check_room(e, i);
    if (s) {
        answer(e, i, s);
        return;
    }
    hold(e, i);
    reserve(e, i);
    i->next = e->ripening;
    e->ripening = i;
    import_collected(e);
}

void import_collected(struct engine *e)
{
    for (struct engine_import **at = &e->ripening, *i; (i = *at);) {
        if (e->stats.steps - e->n_under_way < i->steps) {
            at = &i->next;
            continue;
        }
        *at = i->next;
        answer(e, i, WK_OK);
    }
}

/* ---- entering ------------------------------------------------------------------------------------------ */

/* Block b's page of group g goes to node, or back if the node has one meanwhile. */
static void give(struct engine *e, struct engine_import *i, uint32_t b, uint32_t g, uint32_t node)
{
    uint32_t *kept = &prefix_pages(&e->prefix, node)[g];
    const uint32_t own = *page_of(i, b, g);
    if (own == KV_NO_PAGE) return;
    *page_of(i, b, g) = KV_NO_PAGE;
    if (*kept != ENGINE_NONE) {
        pages_put_free(e, g, own);
        if (bounded(e, g)) pages_use(e, g, node);
    } else if (bounded(e, g)) {
        prefix_give_page(&e->prefix, g, node, own);
    } else {
        *kept = own;
    }
}

/* The node of block b, held; ENGINE_NONE: there is no room for nodes, or a step in flight computes the block. */
static uint32_t node_of(struct engine *e, struct engine_import *i, uint32_t b)
{
    struct prefix *p = &e->prefix;
    bool added;
    if (b < i->chain) return i->lease->nodes[b];
    if (p->unused == ENGINE_NONE && p->held.n) pages_evict_node(e);
    const uint32_t node = prefix_add(p, &i->salt, i->role, b ? i->lease->nodes[b - 1] : ENGINE_NONE,
                                     i->lease->tokens + (uint64_t)b * KV_PAGE, &added);
    if (node != ENGINE_NONE && added) prefix_commit(p, node);
    return node;
}

static void put_back(struct engine *e, struct engine_import *i, uint32_t from)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (uint32_t b = from > i->lease->first[g] ? from : i->lease->first[g]; b < i->lease->blocks; b++)
            if (*page_of(i, b, g) != KV_NO_PAGE) pages_put_free(e, g, *page_of(i, b, g));
}

static void commit(struct engine *e, struct engine_import *i)
{
    struct engine_lease *l = i->lease;
    uint32_t b = 0, node;
    for (; b < l->blocks && (node = node_of(e, i, b)) != ENGINE_NONE; b++) {
        l->nodes[b] = node;
        for (uint32_t g = 0; g < e->n_groups; g++)
            if (b >= l->first[g]) give(e, i, b, g, node);
    }
    put_back(e, i, b);
    l->n_held = b;
    for (uint32_t g = 0; g < e->n_groups; g++) l->used[g] = b > l->first[g] ? b : l->first[g];
    lease_uncount(e, l); /* it is given up where it is in the way */
    l->older = e->imported;
    e->imported = l;
    lease_set(l, LEASE_WHOLE, NULL);
    engine_lease_release(l);
    free(i);
}

static void abandon(struct engine *e, struct engine_import *i)
{
    struct engine_lease *l = i->lease;
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (uint32_t b = l->first[g]; bounded(e, g) && b < i->chain; b++)
            if (*page_of(i, b, g) == KV_NO_PAGE) pages_leave(e, g, l->nodes[b]);
    put_back(e, i, 0);
    lease_unpin(e, l);
    engine_lease_release(l);
    free(i);
}

/* ---- the engine's thread ------------------------------------------------------------------------------- */

bool import_give_way(struct engine *e)
{
    struct engine_lease *l = e->imported;
    if (!l) return false;
    e->imported = l->older;
    lease_unpin(e, l);
    return true;
}

static void forget(struct engine *e, const struct engine_lease *l)
{
    struct engine_lease **at = &e->imported;
    while (*at && *at != l) at = &(*at)->older;
    if (*at) *at = l->older;
}

void import_attend(struct engine *e)
{
    (void)pthread_mutex_lock(&e->lock);
    struct engine_import *in = e->imports_in;
    e->imports_in = NULL;
    e->imports_in_end = &e->imports_in;
    struct engine_lease *out = e->released;
    e->released = NULL;
    (void)pthread_mutex_unlock(&e->lock);
    for (struct engine_lease *next; out; out = next) {
        next = out->next;
        forget(e, out);
        lease_unpin(e, out);
        lease_free(out);
    }
    for (struct engine_import *next; in; in = next) {
        next = in->next;
        (in->want == WANT_BEGIN ? begin : in->want == WANT_COMMIT ? commit : abandon)(e, in);
    }
}
