/* bench_page_events.c: what a page of the prefix cache costs the engine's thread more where its events are read: pages
 * that come and go in a tree of 4096, without and with events. Prints nanoseconds a page, the best of many rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "engine/page_events.h"

enum { PAGES = 4096, DEPTH = 64, ROUNDS = 50 };

/* All pages come, in prompts of DEPTH pages, and go. ns a page. */
static double turn(struct prefix *p, uint32_t round)
{
    static uint32_t nodes[PAGES], tokens[KV_PAGE];
    const struct engine_salt salt = { { 0 } };
    const uint64_t from = engine_now();
    for (uint32_t i = 0; i < PAGES; i++) {
        bool added;
        for (uint32_t k = 0; k < KV_PAGE; k++) tokens[k] = round * 31 + i * 7 + k;
        nodes[i] = prefix_add(p, &salt, ROW_PROMPT, i % DEPTH ? nodes[i - 1] : ENGINE_NONE, tokens, &added);
        prefix_pages(p, nodes[i])[0] = i;
        prefix_commit(p, nodes[i]);
        if (p->events && i % 16 == 15) (void)page_events_turn(p); /* a step of 512 rows */
    }
    for (uint32_t i = PAGES; i-- > 0;) prefix_drop(p, nodes[i]);
    for (uint32_t i = 0; i < PAGES; i++) (void)prefix_evict(p);
    return (double)(engine_now() - from) / PAGES;
}

static int measure(const char *name, uint32_t records)
{
    static struct engine e; /* its reader's side alone */
    static struct page_event out[PAGES];
    const struct kv_span span = { 0 };
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    double best = 1e9;
    if (prefix_open(&e.prefix, PAGES, EVICT_LRU, &span, 1, &err) || page_events_open(&e.prefix, records, &err)) {
        (void)fprintf(stderr, "%s\n", text);
        return 1;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const double ns = turn(&e.prefix, round);
        if (ns < best) best = ns;
        while (records && engine_page_events(&e, out, PAGES, 0)) {}
    }
    (void)printf("%-16s %6.1f ns a page\n", name, best);
    prefix_close(&e.prefix);
    return 0;
}

int main(void) { return measure("without events", 0) || measure("with events", 4 * PAGES); }
