/* prefix.c: whole pages of prompts, kept for later prompts that begin the same: a tree whose edges are KV_PAGE tokens.
 *
 * A node is found by its parent, its kernel class and its tokens, compared whole. Rows of another class would have other bits, so a hit gives what a miss
 * would have given. Nodes that no job holds wait in order of their last use; the oldest goes first. All memory is taken at the start. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

wk_status prefix_open(struct prefix *p, uint32_t cap, uint32_t n_groups, const struct wk_err *err)
{
    *p = (struct prefix){ .cap = cap, .n_groups = n_groups, .n_buckets = 1, .unused = ENGINE_NONE, .oldest = ENGINE_NONE, .newest = ENGINE_NONE };
    if (!cap) return WK_OK;
    if (getentropy(&p->seed, sizeof p->seed)) return wk_fail(err, WK_IO, "no random bytes for the prefix cache's hashes");
    while (p->n_buckets < cap && p->n_buckets < 1u << 31) p->n_buckets *= 2;
    p->nodes = calloc(cap, sizeof *p->nodes);
    p->pages = calloc((size_t)cap * n_groups, sizeof *p->pages);
    p->buckets = malloc((size_t)p->n_buckets * sizeof *p->buckets);
    if (!p->nodes || !p->pages || !p->buckets) return wk_fail(err, WK_NO_MEMORY, "out of memory for a prefix cache of %u pages", cap);
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
}

/* Seeded, so that nobody can make prompts that all meet in one bucket. */
static uint32_t hash_of(const struct prefix *p, enum row_role role, uint32_t parent, const uint32_t *tokens)
{
    uint64_t h = ((uint64_t)parent << 1 | (uint64_t)role) ^ p->seed;
    for (uint32_t i = 0; i < KV_PAGE; i++) {
        h = (h ^ tokens[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

static uint32_t look(const struct prefix *p, enum row_role role, uint32_t parent, uint32_t hash, const uint32_t *tokens)
{
    uint32_t i = p->buckets[hash & (p->n_buckets - 1)];
    for (; i != ENGINE_NONE; i = p->nodes[i].next) {
        const struct prefix_node *n = &p->nodes[i];
        if (n->hash == hash && n->parent == parent && n->role == (uint32_t)role && !memcmp(n->tokens, tokens, sizeof n->tokens)) break;
    }
    return i;
}

uint32_t prefix_find(const struct prefix *p, enum row_role role, const uint32_t *tokens, uint32_t n, uint32_t *nodes)
{
    uint32_t found = 0, parent = ENGINE_NONE;
    for (; p->cap && found < n; found++, tokens += KV_PAGE) {
        parent = look(p, role, parent, hash_of(p, role, parent, tokens), tokens);
        if (parent == ENGINE_NONE) break;
        nodes[found] = parent;
    }
    return found;
}

/* ---- order of last use ------------------------------------------------------------------------------------------------- */

static void unlink_node(struct prefix *p, struct prefix_node *n)
{
    *(n->older == ENGINE_NONE ? &p->oldest : &p->nodes[n->older].newer) = n->newer;
    *(n->newer == ENGINE_NONE ? &p->newest : &p->nodes[n->newer].older) = n->older;
    p->evictable--;
}

void prefix_hold(struct prefix *p, uint32_t node)
{
    struct prefix_node *n = &p->nodes[node];
    if (n->refs++ == 0) unlink_node(p, n);
}

void prefix_drop(struct prefix *p, uint32_t node)
{
    struct prefix_node *n = &p->nodes[node];
    if (--n->refs) return;
    n->older = p->newest;
    n->newer = ENGINE_NONE;
    *(p->newest == ENGINE_NONE ? &p->oldest : &p->nodes[p->newest].newer) = node;
    p->newest = node;
    p->evictable++;
}

/* ---- in and out -------------------------------------------------------------------------------------------------------- */

uint32_t prefix_add(struct prefix *p, enum row_role role, uint32_t parent, const uint32_t *tokens, uint32_t *pages, bool *returned)
{
    const uint32_t hash = hash_of(p, role, parent, tokens), there = look(p, role, parent, hash, tokens);
    *returned = there != ENGINE_NONE && p->nodes[there].refs == 0;
    for (uint32_t g = 0; *returned && g < p->n_groups; g++) {
        uint32_t *kept = &p->pages[(uint64_t)there * p->n_groups + g], page = *kept;
        *kept = pages[g];
        pages[g] = page;
    }
    if (there != ENGINE_NONE) {
        prefix_hold(p, there);
        return there;
    }
    /* Every node has a page of its own in every group, so there are never more than cap. */
    const uint32_t at = p->unused;
    struct prefix_node *n = &p->nodes[at];
    p->unused = n->next;
    *n = (struct prefix_node){ .parent = parent, .role = (uint32_t)role, .hash = hash, .next = p->buckets[hash & (p->n_buckets - 1)], .refs = 1 };
    p->buckets[hash & (p->n_buckets - 1)] = at;
    memcpy(n->tokens, tokens, sizeof n->tokens);
    memcpy(p->pages + (uint64_t)at * p->n_groups, pages, p->n_groups * sizeof *pages);
    return at;
}

const uint32_t *prefix_evict(struct prefix *p)
{
    const uint32_t at = p->oldest;
    if (at == ENGINE_NONE) return NULL;
    struct prefix_node *n = &p->nodes[at];
    uint32_t *from = &p->buckets[n->hash & (p->n_buckets - 1)];
    while (*from != at) from = &p->nodes[*from].next;
    *from = n->next;
    unlink_node(p, n);
    n->next = p->unused;
    p->unused = at;
    return p->pages + (uint64_t)at * p->n_groups;
}
