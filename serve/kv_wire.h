/* kv_wire.h: events of the prefix cache as vLLM writes them: a batch is the array [time, events, rank], an event a map
 * with its name under "type", in msgpack. */
#ifndef SERVE_KV_WIRE_H
#define SERVE_KV_WIRE_H

#include "engine/page_events.h"
#include "http/http.h"

/* n records as one batch, of this time (seconds since 1970). Pages one below the other, and pages that go, share an
 * event where they follow one another. out->failed: no memory. [any thread] */
void kv_wire_batch(struct http_text *out, const struct page_event *v, uint32_t n, double at);

#endif
