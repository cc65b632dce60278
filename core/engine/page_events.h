/* page_events.h: what the prefix cache keeps, told as it comes and goes, for routers that send a request where its
 * prompt is kept.
 *
 * The engine's thread writes plain records into a ring that has an end, and one reader takes them; nobody waits for the
 * other. A page is told once the step that computed it was collected, below pages that were told before it. Nothing is
 * lost in silence: a page for which the ring has no room is told later; where it has none for one that goes, or the
 * reader asks for it, PAGES_CLEARED is told, and behind it everything that is kept, some at each turn of the engine. */
#ifndef CORE_ENGINE_PAGE_EVENTS_H
#define CORE_ENGINE_PAGE_EVENTS_H

#include "device/device.h"
#include "engine/engine.h"

enum page_event_kind {
    PAGE_STORED = 0, /* KV_PAGE tokens of a prompt are kept */
    PAGE_REMOVED,    /* they no longer are; nothing below them is */
    PAGES_CLEARED    /* what was told before is no longer so; what is kept follows. The first of all records */
};
struct page_event {
    enum page_event_kind kind;
    bool first; /* PAGE_STORED: a prompt's first page; parent is 0 */
    /* Of the page's tokens, those before them, their salt and their kernel class: the same in every process; never 0 */
    uint64_t hash, parent;
    uint64_t at_ns; /* CLOCK_MONOTONIC: when the engine knew of it */
    struct engine_salt salt;
    uint32_t tokens[KV_PAGE]; /* PAGE_STORED */
};

/* At most `most` records, oldest first; waits for the first until timeout_ms or engine_page_events_wake. Of an engine
 * with engine_options.page_events. [one reader] */
uint32_t engine_page_events(struct engine *e, struct page_event *out, uint32_t most, int timeout_ms);
/* The reader has lost some: from the beginning. [any thread] */
void engine_page_events_again(struct engine *e);
void engine_page_events_wake(struct engine *e); /* [any thread] */

#endif
