/* stats.c: counters, histograms, and coherent copies of them.
 *
 * The engine's thread counts in a struct of its own and, after every step, puts a copy where readers find it: three
 * copies, one being written, one being read, one handed over, so that nobody waits for the engine nor it for them. */
#include "engine/internal.h"

#include <string.h>

/* 0.1 ms to 2000 s in steps of 1, 2, 5. */
static uint64_t bucket_ns(uint32_t i)
{
    static const uint32_t steps[] = { 1, 2, 5 };
    uint64_t ns = 100000u;
    for (uint32_t k = i / 3; k > 0; k--) ns *= 10;
    return ns * steps[i % 3];
}

double engine_bucket(uint32_t i) { return i + 1 < ENGINE_BUCKETS ? (double)bucket_ns(i) * 1e-9 : __builtin_inf(); }

void stats_add(struct engine_histogram *h, uint64_t ns)
{
    uint32_t i = 0;
    while (i + 1 < ENGINE_BUCKETS && ns > bucket_ns(i)) i++;
    h->count[i]++;
    h->n++;
    h->sum += (double)ns * 1e-9;
}

/* ---- copies -------------------------------------------------------------------------------------------- */

enum { FRESH = 4 }; /* beside the index of the copy in the middle: it was not read yet */

void stats_open(struct engine *e)
{
    e->published.back = 0;
    e->published.front = 1;
    atomic_store(&e->published.middle, 2);
}

void stats_publish(struct engine *e)
{
    struct engine_stats *s = &e->stats;
    s->progress_ns = engine_now();
    s->running = e->n_running;
    s->prefilling = 0;
    for (uint32_t i = 0; i < e->n_running; i++) s->prefilling += e->running[i]->n_ids == 0;
    s->pages = s->pages_used = s->pages_cached = 0;
    s->usage = 0;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        const uint32_t n = e->pool[g].n, cached = prefix_evictable(&e->prefix, g),
                       used = n - e->pool[g].n_free - cached;
        s->pages += n;
        s->pages_used += used;
        s->pages_cached += cached;
        if ((double)used / n > s->usage) s->usage = (double)used / n;
    }
    e->published.copy[e->published.back] = *s;
    e->published.back = atomic_exchange(&e->published.middle, e->published.back | FRESH) & ~(uint32_t)FRESH;
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
    (void)pthread_mutex_lock(&e->published.reading);
    if (atomic_load(&e->published.middle) & FRESH)
        e->published.front = atomic_exchange(&e->published.middle, e->published.front) & ~(uint32_t)FRESH;
    *out = e->published.copy[e->published.front];
    (void)pthread_mutex_unlock(&e->published.reading);
    const uint32_t live = atomic_load(&e->live);
    out->queued = live > out->running ? live - out->running : 0;
    out->submitted = atomic_load(&e->submitted);
    out->refused_full = atomic_load(&e->refused_full);
    completions_stats(&e->completions, out);
    out->draining = atomic_load(&e->draining);
    out->dead = atomic_load(&e->dead);
    if (out->dead) memcpy(out->dead_text, e->dead_text, sizeof out->dead_text);
}
