/* pages.c: exact accounting of the KV cache's pages: free, held by jobs, kept by the prefix cache, promised.
 *
 * A job is admitted when every page that it may come to need can be promised to it: then it never waits for another in the middle. What it needs more than
 * the whole cache has is not promised: such a job runs as far as there are pages. Kept pages that no job holds count as free, for they are given
 * up when one is needed. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#include "tape/tape.h"

/* ---- pools ----------------------------------------------------------------------------------------------------------- */

static wk_status pool_open(struct page_pool *p, uint32_t n, uint32_t ring, const struct wk_err *err)
{
    *p = (struct page_pool){ .n = n, .n_free = n, .ring = ring, .free = calloc((size_t)n + 1, sizeof *p->free) };
    if (!p->free) return wk_fail(err, WK_NO_MEMORY, "out of memory for the list of %u cache pages", n);
    for (uint32_t i = 0; i < n; i++) p->free[i] = n - 1 - i;
    return WK_OK;
}

/* Rings that come round: their old pages are written over, so there is nothing that a later job could be given. */
static bool comes_round(const struct model *m, uint32_t ring) { return ring && ring < (m->dev.context + KV_PAGE - 1) / KV_PAGE; }

wk_status pages_open(struct engine *e, const struct wk_err *err)
{
    const struct model *m = e->model;
    uint32_t least = UINT32_MAX;
    bool rings = false;
    wk_status s = WK_OK;
    e->n_groups = m->program->n_groups;
    for (uint32_t g = 0; !s && g < e->n_groups; g++) {
        const uint32_t ring = m->program->groups[g].ring_pages;
        rings = rings || comes_round(m, ring);
        s = pool_open(&e->pool[g], m->plan.kv_pages[g], comes_round(m, ring) ? ring : 0, err);
        if (m->plan.kv_pages[g] < least) least = m->plan.kv_pages[g];
    }
    if (!s) s = prefix_open(&e->prefix, e->o.prefix_cache && !rings && e->n_groups ? least : 0, e->n_groups, err);
    e->prefix_off_by_window = e->o.prefix_cache && rings;
    return s;
}

void pages_close(struct engine *e)
{
    for (uint32_t g = 0; g < e->n_groups; g++) free(e->pool[g].free);
    prefix_close(&e->prefix);
}

uint32_t pages_needed(const struct page_pool *p, uint64_t positions)
{
    const uint64_t n = (positions + KV_PAGE - 1) / KV_PAGE;
    return (uint32_t)(p->ring && n > p->ring ? p->ring : n);
}

static void evict(struct engine *e)
{
    const uint32_t *pages = prefix_evict(&e->prefix);
    for (uint32_t g = 0; g < e->n_groups; g++) e->pool[g].free[e->pool[g].n_free++] = pages[g];
    e->stats.prefix_evicted_pages += e->n_groups;
}

/* One page; promised: it was promised before, and so is there. */
static bool take(struct engine *e, struct page_pool *p, bool promised, uint32_t *page)
{
    if (!promised && p->n_free + e->prefix.evictable <= p->promised) return false;
    if (!p->n_free) evict(e);
    p->promised -= promised;
    *page = p->free[--p->n_free];
    return true;
}

/* ---- promises ---------------------------------------------------------------------------------------------------------- */

/* Pages of group g that j needs and could ever be given. */
static uint32_t share(const struct page_pool *p, const struct job *j)
{
    const uint32_t n = pages_needed(p, job_positions(j));
    return n < p->n ? n : p->n;
}

/* Pages of group g that would be there for j if `returned` more were, and `pinned` fewer could be evicted. */
static bool fits(const struct engine *e, uint32_t g, const struct job *j, uint32_t found, uint64_t returned, uint32_t pinned)
{
    const struct page_pool *p = &e->pool[g];
    const uint64_t there = (uint64_t)p->n_free + e->prefix.evictable - pinned + returned, need = share(p, j);
    return there >= p->promised + (need > found ? need - found : 0);
}

/* Kept pages that j's prompt begins with, but its last row has to run. */
static uint32_t find(const struct engine *e, struct job *j) { return prefix_find(&e->prefix, j->role, j->prompt, (j->n_prompt - 1) / KV_PAGE, j->nodes); }

static uint32_t pinned_by(const struct engine *e, const struct job *j, uint32_t found)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < found; i++) n += e->prefix.nodes[j->nodes[i]].refs == 0;
    return n;
}

bool pages_can_promise(const struct engine *e, struct job *j, uint32_t *found)
{
    *found = find(e, j);
    const uint32_t pinned = pinned_by(e, j, *found);
    for (uint32_t g = 0; g < e->n_groups; g++)
        if (!fits(e, g, j, *found, 0, pinned)) return false;
    return true;
}

/* Pages of group g that are there for j once a victim gives up its own: kept ones stay that others hold, or that j is to hold. */
static uint32_t returns(const struct engine *e, const struct job *victim, const struct job *j, uint32_t found, uint32_t g)
{
    uint32_t n = victim->pages[g].held + victim->pages[g].promise;
    for (uint32_t b = 0; b < victim->n_nodes; b++) {
        const uint32_t node = victim->nodes[b];
        const bool stays = e->prefix.nodes[node].refs > 1 || (b < found && j->nodes[b] == node);
        n -= stays && victim->pages[g].table[b] == prefix_pages(&e->prefix, node)[g];
    }
    return n;
}

bool pages_would_do(const struct engine *e, struct job *j, struct job *const *victims, uint32_t n)
{
    const uint32_t found = find(e, j), pinned = pinned_by(e, j, found);
    for (uint32_t g = 0; g < e->n_groups; g++) {
        uint64_t returned = 0;
        for (uint32_t i = 0; i < n; i++) returned += returns(e, victims[i], j, found, g);
        if (!fits(e, g, j, found, returned, pinned)) return false;
    }
    return true;
}

void pages_promise(struct engine *e, struct job *j, uint32_t found)
{
    for (uint32_t i = 0; i < found; i++) prefix_hold(&e->prefix, j->nodes[i]);
    j->n_nodes = found;
    j->fed = j->stored = found * KV_PAGE;
    j->has_pages = true;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        struct job_pages *q = &j->pages[g];
        const uint32_t need = share(&e->pool[g], j);
        for (uint32_t i = 0; i < found; i++) q->table[i] = prefix_pages(&e->prefix, j->nodes[i])[g];
        q->held = found;
        q->promise = need > found ? need - found : 0;
        e->pool[g].promised += q->promise;
    }
}

bool pages_grow(struct engine *e, struct job *j, uint32_t positions)
{
    for (uint32_t g = 0; g < e->n_groups; g++) {
        struct job_pages *q = &j->pages[g];
        for (const uint32_t need = pages_needed(&e->pool[g], positions); q->held < need; q->held++) {
            if (!take(e, &e->pool[g], q->promise > 0, &q->table[q->held])) return false;
            if (q->promise) q->promise--;
        }
    }
    return true;
}

/* ---- giving back ------------------------------------------------------------------------------------------------------- */

void pages_keep_prefix(struct engine *e, struct job *j)
{
    const uint32_t rows = j->stored < j->n_prompt ? j->stored : j->n_prompt;
    uint32_t pages[TAPE_MAX_GROUPS];
    while (e->prefix.cap && (j->n_nodes + 1) * KV_PAGE <= rows) {
        const uint32_t b = j->n_nodes;
        bool returned;
        for (uint32_t g = 0; g < e->n_groups; g++) pages[g] = j->pages[g].table[b];
        j->nodes[b] = prefix_add(&e->prefix, j->role, b ? j->nodes[b - 1] : ENGINE_NONE, j->prompt + b * KV_PAGE, pages, &returned);
        for (uint32_t g = 0; returned && g < e->n_groups; g++) e->pool[g].free[e->pool[g].n_free++] = pages[g];
        j->n_nodes++;
    }
}

void pages_drop(struct engine *e, struct job *j)
{
    for (uint32_t g = 0; g < e->n_groups; g++) {
        struct page_pool *p = &e->pool[g];
        struct job_pages *q = &j->pages[g];
        for (uint32_t b = q->held; b-- > 0;) {
            const bool kept = b < j->n_nodes && prefix_pages(&e->prefix, j->nodes[b])[g] == q->table[b];
            if (!kept) p->free[p->n_free++] = q->table[b];
        }
        p->promised -= q->promise;
        q->held = q->promise = 0;
    }
    while (j->n_nodes) prefix_drop(&e->prefix, j->nodes[--j->n_nodes]);
    j->has_pages = j->pending_drop = false;
    j->fed = j->stored = 0;
}
