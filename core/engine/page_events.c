/* page_events.c: see page_events.h. The tree's own adding and removing (prefix.c) says what comes and goes; this file
 * knows of each node whether it was told, and catches up with what was not. All memory is taken at the start. */
#include "engine/page_events.h"

#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

enum {
    LOOKED_AT = 1024,   /* nodes that a turn looks at while something was not announced */
    BEHIND_NS = 1000000 /* an idle engine looks so often then: the ring is full, and its reader at work */
};

struct page_events {
    struct page_event *ring;
    uint32_t cap; /* a power of two */
    _Atomic uint32_t head, tail, asleep;
    _Atomic bool again;

    /* The engine's thread. */
    uint64_t *hash;      /* [nodes] 0: it is not kept, or not committed */
    uint32_t *announced; /* [nodes] the round in which it was announced; 0: in none */
    uint32_t *above;     /* [nodes] for tell_path */
    uint32_t round;      /* from 1; what was announced before the last PAGES_CLEARED counts no more */
    uint32_t flushed;    /* tail when the reader was last woken */
    bool clear;          /* PAGES_CLEARED is to be announced, before anything else */
    bool behind, missed; /* behind: nodes from `at` on may not have been announced; missed: nor some before it */
    uint32_t at;
};

wk_status page_events_open(struct prefix *p, uint32_t records, const struct wk_err *err)
{
    if (!records || !p->cap) return WK_OK;
    struct page_events *v = calloc(1, sizeof *v);
    if (!v) return wk_fail(err, WK_NO_MEMORY, "out of memory for events of the prefix cache");
    p->events = v;
    v->cap = 1;
    while (v->cap < records && v->cap < 1u << 20) v->cap *= 2;
    v->round = 1;
    v->clear = true;
    v->ring = calloc(v->cap, sizeof *v->ring);
    v->hash = calloc(p->cap, sizeof *v->hash);
    v->announced = calloc(p->cap, sizeof *v->announced);
    v->above = calloc(p->cap, sizeof *v->above);
    return v->ring && v->hash && v->announced && v->above
               ? WK_OK
               : wk_fail(err, WK_NO_MEMORY, "out of memory for events of a prefix cache of %u pages", p->cap);
}

void page_events_close(struct prefix *p)
{
    struct page_events *v = p->events;
    if (!v) return;
    free(v->ring);
    free(v->hash);
    free(v->announced);
    free(v->above);
    free(v);
    p->events = NULL;
}

/* ---- the ring ------------------------------------------------------------------------------------------ */

/* The next record; NULL: the ring is full. */
static struct page_event *room(struct page_events *v)
{
    const uint32_t tail = atomic_load_explicit(&v->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&v->head, memory_order_acquire) == v->cap) return NULL;
    return &v->ring[tail & (v->cap - 1)];
}

static void give(struct page_events *v)
{
    atomic_store(&v->tail, atomic_load_explicit(&v->tail, memory_order_relaxed) + 1);
}

static uint32_t take(struct page_events *v, struct page_event *out, uint32_t most)
{
    const uint32_t head = atomic_load_explicit(&v->head, memory_order_relaxed), there = atomic_load(&v->tail) - head,
                   n = there < most ? there : most;
    for (uint32_t i = 0; i < n; i++) out[i] = v->ring[(head + i) & (v->cap - 1)];
    atomic_store_explicit(&v->head, head + n, memory_order_release);
    return n;
}

uint32_t engine_page_events(struct engine *e, struct page_event *out, uint32_t most, int timeout_ms)
{
    struct page_events *v = e->prefix.events;
    uint32_t n = take(v, out, most);
    if (n || !timeout_ms) return n;
    atomic_store(&v->asleep, 1);
    n = take(v, out, most);
    if (!n) futex_wait_until(&v->asleep, 1, timeout_ms < 0 ? 0 : engine_now() + (uint64_t)timeout_ms * 1000000u);
    atomic_store(&v->asleep, 0);
    return n ? n : take(v, out, most);
}

void engine_page_events_wake(struct engine *e)
{
    if (atomic_exchange(&e->prefix.events->asleep, 0)) futex_wake_one(&e->prefix.events->asleep);
}

void engine_page_events_again(struct engine *e)
{
    atomic_store(&e->prefix.events->again, true);
    engine_attention(e, ATTEND_EVENTS);
}

/* ---- what is announced -------------------------------------------------------------------------------------- */

static bool is_announced(const struct page_events *v, uint32_t node) { return v->announced[node] == v->round; }

/* The same in every process, other than the tree's own. */
static uint64_t hash_of(const struct prefix *p, const struct prefix_node *n)
{
    uint64_t h = engine_mix(0x9e3779b97f4a7c15u, n->role);
    if (n->parent != ENGINE_NONE) h = engine_mix(h, p->events->hash[n->parent]);
    for (uint32_t i = 0; n->parent == ENGINE_NONE && i < 2; i++) h = engine_mix(h, n->salt.word[i]);
    for (uint32_t i = 0; i < KV_PAGE; i++) h = engine_mix(h, n->tokens[i]);
    return h ? h : 1;
}

/* False: not now. */
static bool tell(struct prefix *p, uint32_t node)
{
    struct page_events *v = p->events;
    const struct prefix_node *n = &p->nodes[node];
    struct page_event *at = room(v);
    const bool first = n->parent == ENGINE_NONE;
    if (v->clear || !at || (!first && !is_announced(v, n->parent))) return false;
    at->kind = PAGE_STORED;
    at->first = first;
    at->hash = v->hash[node];
    at->parent = first ? 0 : v->hash[n->parent];
    at->at_ns = engine_now();
    at->salt = n->salt;
    memcpy(at->tokens, n->tokens, sizeof at->tokens);
    give(v);
    v->announced[node] = v->round;
    return true;
}

/* Those above it first. */
static bool tell_path(struct prefix *p, uint32_t node)
{
    struct page_events *v = p->events;
    uint32_t n = 0;
    for (; node != ENGINE_NONE && !is_announced(v, node); node = p->nodes[node].parent) v->above[n++] = node;
    while (n && tell(p, v->above[n - 1])) n--;
    return n == 0;
}

static void begin_again(struct page_events *v)
{
    v->round++;
    v->clear = v->behind = true;
    v->missed = false;
    v->at = 0;
}

void page_events_stored(struct prefix *p, uint32_t node)
{
    struct page_events *v = p->events;
    v->hash[node] = hash_of(p, &p->nodes[node]);
    if (!tell(p, node)) v->behind = v->missed = true;
}

void page_events_removed(struct prefix *p, uint32_t node)
{
    struct page_events *v = p->events;
    const uint64_t hash = v->hash[node];
    struct page_event *at = room(v);
    v->hash[node] = 0;
    if (!is_announced(v, node)) return;
    v->announced[node] = 0;
    if (!at) {
        begin_again(v);
        return;
    }
    at->kind = PAGE_REMOVED;
    at->hash = hash;
    at->at_ns = engine_now();
    give(v);
}

static void catch_up(struct prefix *p)
{
    struct page_events *v = p->events;
    for (uint32_t i = 0; i < LOOKED_AT && v->at < p->cap; i++, v->at++)
        if (v->hash[v->at] && !tell_path(p, v->at)) return;
    if (v->at < p->cap) return;
    v->at = 0;
    v->behind = v->missed;
    v->missed = false;
}

uint64_t page_events_turn(struct prefix *p)
{
    struct page_events *v = p->events;
    if (atomic_load_explicit(&v->again, memory_order_relaxed) && atomic_exchange(&v->again, false)) begin_again(v);
    struct page_event *at = v->clear ? room(v) : NULL;
    if (at) {
        at->kind = PAGES_CLEARED;
        at->at_ns = engine_now();
        give(v);
        v->clear = false;
    }
    if (v->behind && !v->clear) catch_up(p);
    const uint32_t tail = atomic_load_explicit(&v->tail, memory_order_relaxed);
    if (tail != v->flushed && atomic_exchange(&v->asleep, 0)) futex_wake_one(&v->asleep);
    v->flushed = tail;
    return v->clear || v->behind ? BEHIND_NS : UINT64_MAX;
}
