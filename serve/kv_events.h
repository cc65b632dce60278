/* kv_events.h: cache events for routers, over ZeroMQ in vLLM's form (--kv-events): a thread takes them from the engine
 * (engine/page_events.h), writes them (kv_wire.h), and gives them to worker-events, a program of its own, which
 * publishes them. docs/http.md says what subscribers see. */
#ifndef SERVE_KV_EVENTS_H
#define SERVE_KV_EVENTS_H

#include "engine/engine.h"

enum { KV_EVENTS_RECORDS = 8192 /* of the engine's queue */ };

struct kv_events_options {
    const char *endpoint, *replay; /* "tcp://HOST:PORT"; replay NULL: none */
    const char *topic;             /* of every batch; "" as vLLM has it, unless it is given one */
};

struct kv_events;

/* "tcp://HOST:PORT": HOST an address, localhost, or * for all. WK_INVALID: it is none. */
wk_status kv_events_check(const char *endpoint, const struct wk_err *err);
/* Starts worker-events, which binds its sockets. WK_IO: it is not there, or an endpoint is in use. The options are
 * copied, their strings live as long as the service. [main thread] */
wk_status kv_events_open(const struct kv_events_options *o, struct kv_events **out, const struct wk_err *err);
/* The engine is there, with page_events: what it keeps is published from now on. v NULL: nothing is. WK_NO_MEMORY: no
 * thread. [the loader's thread] */
wk_status kv_events_begin(struct kv_events *v, struct engine *e, const struct wk_err *err);
/* Says that nothing is kept any more, and ends thread and program; before the engine is closed. NULL allowed. [main
 * thread] */
void kv_events_close(struct kv_events *v);
/* Batches that were published, starts of worker-events. NULL: zeros. [any thread] */
struct kv_events_counts {
    uint64_t batches, starts;
};
void kv_events_counts(const struct kv_events *v, struct kv_events_counts *out);

#endif
