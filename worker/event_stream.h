/* event_stream.h: server-sent events out of the bytes of an answer, however these are cut. Names of events are passed
 * over: those who read streams here tell events by their data. Pure; the bytes are a stranger's. [one thread] */
#ifndef WORKER_EVENT_STREAM_H
#define WORKER_EVENT_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "http/http.h"

enum { EVENT_STREAM_MOST = 16 << 20 /* bytes of one event's data, or of a line */ };

struct event_stream {
    struct http_text line, data; /* not complete yet */
    bool some;                   /* the event has data */
    bool failed;                 /* too long, or no memory: nothing more is taken */
}; /* zeroed: at the beginning of a stream */

/* data: [n], and a zero behind it; valid during the call. False: no more is wanted. */
typedef bool (*event_stream_sink)(void *user, const char *data, size_t n);
/* Gives the events that the bytes complete. False: the sink wants no more, or s->failed. An event that the end of the
 * stream cuts is none. */
bool event_stream_push(struct event_stream *s, const char *bytes, size_t n, event_stream_sink sink, void *user);
void event_stream_free(struct event_stream *s);

#endif
