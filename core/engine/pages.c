/* pages.c: exact accounting of the KV cache's pages: free, held by jobs, kept by the prefix cache, promised.
 *
 * A job is admitted when every page that it may come to need can be promised to it: then it never waits for another in
 * the middle. What it needs more than the whole cache has is not promised: such a job runs as far as there are pages.
 * Kept pages that no job holds count as free, for they are given up when one is needed.
 *
 * Of a group of bounded span (a window, or chunks of the context) a job needs at any time what its next row sees, so
 * the most that this can be is promised, whatever its length: what it gives back behind that is promised to it again.
 * A part of a prompt takes more, out of what nobody was promised, while its step is built: its rows are stored before
 * any of them attends. Once the step is in flight all but what the next row sees goes back, for the device runs steps
 * one after the other; so every step finds what the one before had. Where it is less than a part wants, the part is
 * cut.
 *
 * Of states a job needs two pages: that of the row before its next, and where that row begins a block, another. A chunk
 * may take a third, for the end of its last whole block: a page of the prefix cache, since the rows behind are in the
 * last page. Blocks between have no page.
 *
 * A kept page of a bounded span may be seen by several jobs. Each counts it as its own: when one goes on, it will need
 * another. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"
#include "tape/tape.h"

/* ---- pools --------------------------------------------------------------------------------------------- */

static wk_status pool_open(struct page_pool *p, uint32_t n, struct kv_span span, const struct wk_err *err)
{
    *p = (struct page_pool){ .n = n,
                             .n_free = n,
                             .span = span,
                             .free = calloc((size_t)n + 1, sizeof *p->free),
                             .freed = calloc((size_t)n + 1, sizeof *p->freed) };
    if (!p->free || !p->freed) return wk_fail(err, WK_NO_MEMORY, "out of memory for the list of %u cache pages", n);
    for (uint32_t i = 0; i < n; i++) p->free[i] = n - 1 - i;
    return WK_OK;
}

/* Nodes of the prefix cache: each has a page of every group whose layers see all. Where no layers do, as many as have
 * pages, and those above them: a context's; of states, each of which may have a whole context above it, more. */
static uint32_t most_nodes(const struct engine *e)
{
    enum { MOST_ABOVE_STATES = 1 << 16 };
    const uint64_t context = kv_pages_of(e->model->dev.context);
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        const uint64_t n = e->pool[g].n;
        uint64_t above = context;
        if (e->pool[g].span.state) above = n * context < MOST_ABOVE_STATES ? n * context : MOST_ABOVE_STATES;
        if (!kv_bounded(e->pool[g].span) && n < least) least = n;
        if (n + above > most) most = n + above;
    }
    return (uint32_t)(least < UINT64_MAX ? least : most < UINT32_MAX ? most : UINT32_MAX - 1);
}

wk_status pages_open(struct engine *e, const struct wk_err *err)
{
    const struct model *m = e->model;
    struct kv_span spans[TAPE_MAX_GROUPS] = { 0 };
    wk_status s = WK_OK;
    e->n_groups = e->embeds ? 0 : m->program->n_groups; /* no job holds pages of which none outlives a step */
    for (uint32_t g = 0; !s && g < e->n_groups; g++) {
        spans[g] = kv_span(&m->program->groups[g], m->dev.context);
        s = pool_open(&e->pool[g], m->plan.kv_pages[g], spans[g], err);
    }
    return s ? s
             : prefix_open(&e->prefix, e->o.prefix_cache && !e->embeds ? most_nodes(e) : 0, e->o.eviction, spans,
                           e->n_groups, err);
}

void pages_close(struct engine *e)
{
    for (uint32_t g = 0; g < e->n_groups; g++) {
        free(e->pool[g].free);
        free(e->pool[g].freed);
    }
    prefix_close(&e->prefix);
}

uint32_t pages_needed(const struct page_pool *p, uint64_t positions) { return (uint32_t)kv_rest(p->span, positions); }

void pages_put_free(struct engine *e, uint32_t g, uint32_t page)
{
    e->pool[g].free[e->pool[g].n_free++] = page;
    e->pool[g].freed[page] = e->stats.steps;
}

void pages_evict_node(struct engine *e)
{
    const uint32_t *pages = prefix_evict(&e->prefix);
    for (uint32_t g = 0; g < e->n_groups; g++) {
        if (pages[g] == ENGINE_NONE) continue;
        pages_put_free(e, g, pages[g]);
        /* Where layers see all, nodes are dropped when no step of their job is in flight. */
        if (!kv_bounded(e->pool[g].span)) e->pool[g].freed[pages[g]] = 0;
        e->stats.prefix_evicted_pages++;
    }
}

static void evict_page(struct engine *e, uint32_t g)
{
    pages_put_free(e, g, prefix_evict_page(&e->prefix, g));
    e->stats.prefix_evicted_pages++;
}

uint64_t pages_spare(const struct engine *e, uint32_t g)
{
    return (uint64_t)e->pool[g].n_free + prefix_evictable(&e->prefix, g) - e->pool[g].promised;
}

uint32_t pages_take(struct engine *e, uint32_t g)
{
    struct page_pool *p = &e->pool[g];
    if (!p->n_free && kv_bounded(p->span))
        evict_page(e, g);
    else if (!p->n_free)
        pages_evict_node(e);
    return p->free[--p->n_free];
}

/* ---- promises ------------------------------------------------------------------------------------------ */

/* Pages of group g that j needs and could ever be given. */
static uint32_t share(const struct page_pool *p, const struct job *j)
{
    const uint32_t n = pages_needed(p, job_positions(j));
    return n < p->n ? n : p->n;
}

/* Pages of group g that would be there for j if `returned` more were, and `pinned` fewer could be evicted. Of a
 * bounded span nothing that is found comes free. */
static bool fits(const struct engine *e, uint32_t g, const struct job *j, uint32_t found, uint64_t returned,
                 uint32_t pinned)
{
    const uint64_t there = pages_spare(e, g) + returned, need = share(&e->pool[g], j);
    return kv_bounded(e->pool[g].span) ? there >= need : there >= (need > found ? need - found : 0) + pinned;
}

/* Kept pages that j's prompt begins with, but its last row has to run, and each whose log probabilities are wanted. */
static uint32_t find(const struct engine *e, struct job *j)
{
    const uint32_t rows = j->prompt_probs ? atomic_load(&j->n_scored) : j->n_prompt - 1;
    return prefix_find(&e->prefix, &j->salt, j->role, j->prompt, rows / KV_PAGE, j->nodes);
}

static uint32_t pinned_by(const struct engine *e, const struct job *j, uint32_t found)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < found; i++) n += prefix_users(&e->prefix, j->nodes[i]) == 0;
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

/* Pages of group g that are there for j once a victim gives up its own: where layers see all, kept ones stay that
 * others hold, or that j is to hold. */
static uint32_t returns(const struct engine *e, const struct job *victim, const struct job *j, uint32_t found,
                        uint32_t g)
{
    const struct job_pages *q = &victim->pages[g];
    uint32_t n = q->end - q->first + q->promise;
    for (uint32_t b = 0; !kv_bounded(e->pool[g].span) && b < victim->n_nodes; b++)
        n -= prefix_users(&e->prefix, victim->nodes[b]) > 1 || (b < found && j->nodes[b] == victim->nodes[b]);
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

void pages_use(struct engine *e, uint32_t g, uint32_t node)
{
    e->pool[g].promised += prefix_use_page(&e->prefix, g, node) > 0;
}
void pages_leave(struct engine *e, uint32_t g, uint32_t node)
{
    e->pool[g].promised -= prefix_leave_page(&e->prefix, g, node) > 0;
}

void pages_promise(struct engine *e, struct job *j, uint32_t found)
{
    for (uint32_t i = 0; i < found; i++) prefix_hold(&e->prefix, j->nodes[i]);
    j->n_nodes = j->n_committed = found;
    j->submitted = j->computed = found * KV_PAGE;
    j->has_pages = true;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        struct job_pages *q = &j->pages[g];
        const uint32_t need = share(&e->pool[g], j);
        q->first = kv_first(e->pool[g].span, j->submitted) / KV_PAGE;
        q->end = found;
        for (uint32_t b = q->first; b < found; b++) {
            q->table[b] = prefix_pages(&e->prefix, j->nodes[b])[g];
            if (kv_bounded(e->pool[g].span)) pages_use(e, g, j->nodes[b]);
        }
        q->promise = need > q->end - q->first ? need - (q->end - q->first) : 0;
        e->pool[g].promised += q->promise;
    }
    lease_begin(e, j);
}

/* ---- pages of a step's rows ---------------------------------------------------------------------------- */

/* Of a group of states: blocks whose pages j lacks to run its rows up to `end`: the last row's, and the one before,
 * which later prompts can go on from. Where the step ends with a block, that is such a place by itself, but for the end
 * of a prompt, whose last row always runs. Returns how many, ascending. */
static uint32_t lacks_states(const struct engine *e, const struct job *j, uint32_t g, uint32_t end, uint32_t block[2])
{
    const uint32_t held = j->pages[g].end, last = (end - 1) / KV_PAGE;
    uint32_t n = 0;
    if (e->prefix.cap && last > held && last * KV_PAGE <= j->n_prompt && (end % KV_PAGE || end == j->n_prompt))
        block[n++] = last - 1;
    if (last >= held) block[n++] = last;
    return n;
}

/* Of the next `rows` rows, how many j has or can have pages for in group g. */
static uint32_t rows_that_fit(const struct engine *e, const struct job *j, uint32_t g, uint32_t rows)
{
    const struct job_pages *q = &j->pages[g];
    const uint64_t there = q->promise + pages_spare(e, g);
    const uint32_t end = j->submitted + rows, whole = rows ? (end - 1) / KV_PAGE * KV_PAGE : 0;
    uint64_t reach = (q->end + there) * KV_PAGE;
    uint32_t block[2];
    if (e->pool[g].span.state) {
        /* With one page less, as far as the last row's block; with none, through the block that it is in. */
        if (!rows || lacks_states(e, j, g, end, block) <= there) return rows;
        reach = there ? whole : (uint64_t)q->end * KV_PAGE;
    }
    return reach >= (uint64_t)j->submitted + rows ? rows : reach > j->submitted ? (uint32_t)(reach - j->submitted) : 0;
}

static uint32_t take_promised(struct engine *e, struct job *j, uint32_t g)
{
    const uint32_t page = pages_take(e, g);
    if (!j->pages[g].promise) return page;
    j->pages[g].promise--;
    e->pool[g].promised--;
    return page;
}

uint32_t pages_grow(struct engine *e, struct job *j, uint32_t rows)
{
    for (uint32_t before = rows + 1; rows < before;) {
        before = rows;
        for (uint32_t g = 0; g < e->n_groups; g++) rows = rows_that_fit(e, j, g, rows);
    }
    for (uint32_t g = 0; rows && g < e->n_groups; g++) {
        struct job_pages *q = &j->pages[g];
        const bool state = e->pool[g].span.state;
        uint32_t block[2];
        const uint32_t n = state ? lacks_states(e, j, g, j->submitted + rows, block) : 0;
        for (const uint32_t end = (uint32_t)kv_pages_of((uint64_t)j->submitted + rows); q->end < end; q->end++)
            q->table[q->end] = state ? KV_NO_PAGE : take_promised(e, j, g);
        for (uint32_t i = 0; i < n; i++) q->table[block[i]] = take_promised(e, j, g);
    }
    return rows;
}

/* ---- keeping ------------------------------------------------------------------------------------------- */

/* The node is given j's pages where it has none; where it has, they take the place of j's own, which are the same in
 * every bit. */
static void keep_block(struct engine *e, struct job *j, uint32_t block, uint32_t node)
{
    for (uint32_t g = 0; g < e->n_groups; g++) {
        uint32_t *kept = &prefix_pages(&e->prefix, node)[g], *own = &j->pages[g].table[block];
        if (block < j->pages[g].first || *own == KV_NO_PAGE) continue;
        if (*kept == ENGINE_NONE && kv_bounded(e->pool[g].span))
            prefix_give_page(&e->prefix, g, node, *own);
        else if (*kept == ENGINE_NONE)
            *kept = *own;
        else {
            pages_put_free(e, g, *own);
            *own = *kept;
            if (kv_bounded(e->pool[g].span)) pages_use(e, g, node);
        }
    }
}

static void keep(struct engine *e, struct job *j)
{
    struct prefix *p = &e->prefix;
    for (const uint32_t rows = j->submitted < j->n_prompt ? j->submitted : j->n_prompt;
         p->cap && (j->n_nodes + 1) * KV_PAGE <= rows; j->n_nodes++) {
        const uint32_t b = j->n_nodes;
        bool added;
        if (p->unused == ENGINE_NONE && p->held.n) pages_evict_node(e);
        const uint32_t node =
            prefix_add(p, &j->salt, j->role, b ? j->nodes[b - 1] : ENGINE_NONE, j->prompt + b * KV_PAGE, &added);
        if (node == ENGINE_NONE) return;
        j->nodes[b] = node;
        keep_block(e, j, b, node);
        if (!added)
            j->n_committed =
                b + 1; /* nothing is below a node that is not committed, so neither is what is above this one */
    }
}

void pages_commit(struct engine *e, struct job *j)
{
    while (j->n_committed < j->n_nodes && (j->n_committed + 1) * KV_PAGE <= j->computed)
        prefix_commit(&e->prefix, j->nodes[j->n_committed++]);
    lease_follow(e, j);
}

/* ---- giving back --------------------------------------------------------------------------------------- */

/* Blocks [from, to) of group g. */
static void give_back(struct engine *e, struct job *j, uint32_t g, uint32_t from, uint32_t to)
{
    for (uint32_t b = from; b < to; b++) {
        const uint32_t page = j->pages[g].table[b];
        if (page == KV_NO_PAGE) continue; /* a block of states that a step passed */
        const bool kept = b < j->n_nodes && prefix_pages(&e->prefix, j->nodes[b])[g] == page;
        if (!kept)
            pages_put_free(e, g, page);
        else if (kv_bounded(e->pool[g].span))
            pages_leave(e, g, j->nodes[b]); /* else the node is dropped as a whole */
    }
}

/* What its next row does not see. A job without a next row leaves to its lease what it has. */
static void trim(struct engine *e, struct job *j, uint32_t g)
{
    struct page_pool *p = &e->pool[g];
    struct job_pages *q = &j->pages[g];
    const bool last = j->lease && j->submitted == job_positions(j);
    const uint32_t end = (uint32_t)kv_pages_of(j->submitted),
                   first = last ? end : kv_first(p->span, j->submitted) / KV_PAGE, need = last ? 0 : share(p, j);
    give_back(e, j, g, q->first, first);
    give_back(e, j, g, end, q->end);
    q->first = first;
    q->end = end;
    p->promised -= q->promise;
    q->promise = need > end - first ? need - (end - first) : 0;
    p->promised += q->promise;
}

void pages_settle(struct engine *e, struct job *j)
{
    keep(e, j);
    for (uint32_t g = 0; g < e->n_groups; g++)
        if (kv_bounded(e->pool[g].span)) trim(e, j, g);
    lease_use(e, j);
}

void pages_keep(struct engine *e, struct job *j)
{
    keep(e, j);
    lease_use(e, j);
    pages_commit(e, j);
}

void pages_drop(struct engine *e, struct job *j)
{
    lease_forget(e, j);
    for (uint32_t g = 0; g < e->n_groups; g++) {
        struct job_pages *q = &j->pages[g];
        give_back(e, j, g, q->first, q->end);
        e->pool[g].promised -= q->promise;
        q->first = q->end = q->promise = 0;
    }
    while (j->n_nodes) {
        const uint32_t node = j->nodes[--j->n_nodes];
        if (j->n_nodes < j->n_committed) {
            prefix_drop(&e->prefix, node);
            continue;
        }
        const uint32_t *pages = prefix_remove(&e->prefix, node);
        for (uint32_t g = 0; g < e->n_groups; g++)
            if (pages[g] != ENGINE_NONE) pages_put_free(e, g, pages[g]);
    }
    j->n_committed = 0;
    j->has_pages = j->pending_drop = false;
    j->submitted = j->computed = 0;
}
