/* prefix.c: whole pages of prompts, kept for later prompts that begin the same: a tree whose edges are KV_PAGE tokens.
 *
 * A node is found by its parent, its kernel class and its tokens, compared whole, one without a parent also by its
 * salt: so jobs of another salt find nothing of it, nor what is below it. Rows of another class would have
 * other bits, so a hit gives what a miss would have given. A node comes with the step that computes it and is found
 * once that was collected. Nodes that no job holds wait until a page is needed; which goes first, LRU or Clock says.
 * All memory is taken at the start.
 *
 * Of a group with a window or chunks a node's page has a life of its own: it is used while the next row of a job that
 * passed or came upon it sees it, then waits in the group's own order, and may go before its node. The chain can be
 * gone on from behind any node where the pages are there that the next row sees. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool list_open(struct prefix_list *l, uint32_t cap, enum engine_eviction eviction)
{
    *l = (struct prefix_list){ .link = calloc(cap, sizeof *l->link),
                               .oldest = ENGINE_NONE,
                               .newest = ENGINE_NONE,
                               .clock = eviction == EVICT_CLOCK };
    return l->link != NULL;
}

static bool allocate(struct prefix *p, enum engine_eviction eviction, const struct kv_span *spans)
{
    p->nodes = calloc(p->cap, sizeof *p->nodes);
    p->pages = calloc((size_t)p->cap * p->n_groups, sizeof *p->pages);
    p->buckets = malloc((size_t)p->n_buckets * sizeof *p->buckets);
    bool there = p->nodes && p->pages && p->buckets && list_open(&p->held, p->cap, eviction);
    for (uint32_t g = 0; there && g < p->n_groups; g++) {
        p->group[g].span = spans[g];
        there = !kv_bounded(spans[g]) || list_open(&p->group[g].used, p->cap, eviction);
    }
    return there;
}

wk_status prefix_open(struct prefix *p, uint32_t cap, enum engine_eviction eviction, const struct kv_span *spans,
                      uint32_t n_groups, const struct wk_err *err)
{
    *p = (struct prefix){ .cap = cap, .n_groups = n_groups, .n_buckets = 1, .unused = ENGINE_NONE };
    if (!cap) return WK_OK;
    if (getentropy(&p->seed, sizeof p->seed))
        return wk_fail(err, WK_IO, "no random bytes for the prefix cache's hashes");
    while (p->n_buckets < cap && p->n_buckets < 1u << 31) p->n_buckets *= 2;
    if (!allocate(p, eviction, spans))
        return wk_fail(err, WK_NO_MEMORY, "out of memory for a prefix cache of %u pages", cap);
    memset(p->buckets, 0xff, (size_t)p->n_buckets * sizeof *p->buckets);
    for (uint32_t i = cap; i-- > 0;) {
        p->nodes[i].next = p->unused;
        p->unused = i;
    }
    return WK_OK;
}

void prefix_close(struct prefix *p)
{
    free(p->nodes);
    free(p->pages);
    free(p->buckets);
    free(p->held.link);
    page_events_close(p);
    for (uint32_t g = 0; g < TAPE_MAX_GROUPS; g++) free(p->group[g].used.link);
}

/* ---- looking ------------------------------------------------------------------------------------------- */

/* Seeded, so that nobody can make prompts that all meet in one bucket. */
static uint32_t hash_of(const struct prefix *p, const struct engine_salt *salt, enum row_role role, uint32_t parent,
                        const uint32_t *tokens)
{
    uint64_t h = ((uint64_t)parent << 1 | (uint64_t)role) ^ p->seed;
    for (uint32_t i = 0; parent == ENGINE_NONE && i < 2; i++) h = engine_mix(h, salt->word[i]);
    for (uint32_t i = 0; i < KV_PAGE; i++) h = engine_mix(h, tokens[i]);
    return (uint32_t)h;
}

static uint32_t look(const struct prefix *p, const struct engine_salt *salt, enum row_role role, uint32_t parent,
                     uint32_t hash, const uint32_t *tokens)
{
    uint32_t i = p->buckets[hash & (p->n_buckets - 1)];
    for (; i != ENGINE_NONE; i = p->nodes[i].next) {
        const struct prefix_node *n = &p->nodes[i];
        if (n->hash == hash && n->parent == parent && n->role == (uint32_t)role &&
            (parent != ENGINE_NONE || engine_same_salt(&n->salt, salt)) && !memcmp(n->tokens, tokens, sizeof n->tokens))
            break;
    }
    return i;
}

uint32_t prefix_find(const struct prefix *p, const struct engine_salt *salt, enum row_role role, const uint32_t *tokens,
                     uint32_t n, uint32_t *nodes)
{
    uint32_t found = 0, at = ENGINE_NONE,
             row[TAPE_MAX_GROUPS] = { 0 }; /* row: nodes one behind the other that have a page of the group */
    for (uint32_t i = 0; p->cap && i < n; i++, tokens += KV_PAGE) {
        at = look(p, salt, role, at, hash_of(p, salt, role, at, tokens), tokens);
        if (at == ENGINE_NONE || !p->nodes[at].committed) break;
        nodes[i] = at;
        bool whole = true;
        for (uint32_t g = 0; g < p->n_groups; g++) {
            row[g] = prefix_pages(p, at)[g] == ENGINE_NONE ? 0 : row[g] + 1;
            whole = whole && row[g] + kv_first(p->group[g].span, (i + 1) * KV_PAGE) / KV_PAGE > i;
        }
        if (whole) found = i + 1;
    }
    return found;
}

uint32_t prefix_chain(const struct prefix *p, const struct engine_salt *salt, enum row_role role,
                      const uint32_t *tokens, uint32_t n, uint32_t *nodes)
{
    uint32_t at = ENGINE_NONE, i = 0;
    for (; p->cap && i < n; i++, tokens += KV_PAGE) {
        at = look(p, salt, role, at, hash_of(p, salt, role, at, tokens), tokens);
        if (at == ENGINE_NONE || !p->nodes[at].committed) break;
        nodes[i] = at;
    }
    return i;
}

/* ---- who goes next ------------------------------------------------------------------------------------- */

/* On the older side of `newer`; ENGINE_NONE: as the newest. */
static void list_insert(struct prefix_list *l, uint32_t i, uint32_t newer)
{
    const uint32_t older = newer == ENGINE_NONE ? l->newest : l->link[newer].older;
    l->link[i].older = older;
    l->link[i].newer = newer;
    *(older == ENGINE_NONE ? &l->oldest : &l->link[older].newer) = i;
    *(newer == ENGINE_NONE ? &l->newest : &l->link[newer].older) = i;
}

static void list_unlink(struct prefix_list *l, uint32_t i)
{
    const struct prefix_link *at = &l->link[i];
    *(at->older == ENGINE_NONE ? &l->oldest : &l->link[at->older].newer) = at->newer;
    *(at->newer == ENGINE_NONE ? &l->newest : &l->link[at->newer].older) = at->older;
}

/* Something new, which one uses. Clock's hand comes to it before it comes to `above`. */
static void list_add(struct prefix_list *l, uint32_t i, uint32_t above)
{
    l->link[i].users = 1;
    l->link[i].again = false;
    if (l->clock) list_insert(l, i, above);
}

/* It goes, whether or not somebody uses it. */
static void list_remove(struct prefix_list *l, uint32_t i)
{
    const bool idle = l->link[i].users == 0;
    if (idle || l->clock) list_unlink(l, i);
    l->n -= idle;
    l->link[i].users = 0;
}

/* How many use it besides. */
static uint32_t list_use(struct prefix_list *l, uint32_t i)
{
    l->link[i].again = true;
    if (!l->link[i].users) {
        l->n--;
        if (!l->clock) list_unlink(l, i);
    }
    return l->link[i].users++;
}

static uint32_t list_leave(struct prefix_list *l, uint32_t i)
{
    if (--l->link[i].users) return l->link[i].users;
    l->n++;
    if (!l->clock) list_insert(l, i, ENGINE_NONE);
    return 0;
}

/* Of those that nobody uses (there is one) the next to go. nodes: those with others below them may not; whoever holds a
 * node holds all above it, so of what nobody holds one at least has nothing below. The hand goes round twice at most.
 */
static uint32_t list_next(struct prefix_list *l, const struct prefix_node *nodes)
{
    while (l->clock) {
        const uint32_t i = l->oldest;
        struct prefix_link *at = &l->link[i];
        if (!at->users && !at->again && !(nodes && nodes[i].n_below)) break;
        if (!at->users) at->again = false;
        list_unlink(l, i);
        list_insert(l, i, ENGINE_NONE);
    }
    return l->oldest;
}

void prefix_hold(struct prefix *p, uint32_t node) { (void)list_use(&p->held, node); }
void prefix_drop(struct prefix *p, uint32_t node) { (void)list_leave(&p->held, node); }
uint32_t prefix_use_page(struct prefix *p, uint32_t group, uint32_t node)
{
    return list_use(&p->group[group].used, node);
}
uint32_t prefix_leave_page(struct prefix *p, uint32_t group, uint32_t node)
{
    return list_leave(&p->group[group].used, node);
}

/* ---- in and out ---------------------------------------------------------------------------------------- */

uint32_t prefix_add(struct prefix *p, const struct engine_salt *salt, enum row_role role, uint32_t parent,
                    const uint32_t *tokens, bool *added)
{
    const uint32_t hash = hash_of(p, salt, role, parent, tokens), there = look(p, salt, role, parent, hash, tokens),
                   at = p->unused;
    *added = false;
    if (there != ENGINE_NONE && !p->nodes[there].committed) return ENGINE_NONE;
    if (there != ENGINE_NONE) {
        prefix_hold(p, there);
        return there;
    }
    if (at == ENGINE_NONE) return ENGINE_NONE;
    *added = true;
    struct prefix_node *n = &p->nodes[at];
    p->unused = n->next;
    *n = (struct prefix_node){ .parent = parent,
                               .salt = *salt,
                               .role = (uint32_t)role,
                               .hash = hash,
                               .next = p->buckets[hash & (p->n_buckets - 1)] };
    p->buckets[hash & (p->n_buckets - 1)] = at;
    if (parent != ENGINE_NONE) p->nodes[parent].n_below++;
    list_add(&p->held, at, parent);
    memcpy(n->tokens, tokens, sizeof n->tokens);
    for (uint32_t g = 0; g < p->n_groups; g++) prefix_pages(p, at)[g] = ENGINE_NONE;
    return at;
}

void prefix_give_page(struct prefix *p, uint32_t group, uint32_t node, uint32_t page)
{
    prefix_pages(p, node)[group] = page;
    list_add(&p->group[group].used, node, ENGINE_NONE);
}

uint32_t prefix_evict_page(struct prefix *p, uint32_t group)
{
    const uint32_t at = list_next(&p->group[group].used, NULL), page = prefix_pages(p, at)[group];
    list_remove(&p->group[group].used, at);
    prefix_pages(p, at)[group] = ENGINE_NONE;
    return page;
}

void prefix_commit(struct prefix *p, uint32_t node)
{
    p->nodes[node].committed = true;
    if (p->events) page_events_stored(p, node);
}

const uint32_t *prefix_remove(struct prefix *p, uint32_t node)
{
    if (p->events) page_events_removed(p, node);
    struct prefix_node *n = &p->nodes[node];
    uint32_t *from = &p->buckets[n->hash & (p->n_buckets - 1)];
    while (*from != node) from = &p->nodes[*from].next;
    *from = n->next;
    n->next = p->unused;
    p->unused = node;
    if (n->parent != ENGINE_NONE) p->nodes[n->parent].n_below--;
    list_remove(&p->held, node);
    for (uint32_t g = 0; g < p->n_groups; g++)
        if (kv_bounded(p->group[g].span) && prefix_pages(p, node)[g] != ENGINE_NONE)
            list_remove(&p->group[g].used, node);
    return prefix_pages(p, node);
}

const uint32_t *prefix_evict(struct prefix *p) { return prefix_remove(p, list_next(&p->held, p->nodes)); }
