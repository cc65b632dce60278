/* stream.h: one request and its stream of events, as bytes come in: status, framing, events, and the rules that every
 * stream must keep. */
#ifndef BENCH_LOAD_STREAM_H
#define BENCH_LOAD_STREAM_H

#include "load.h"

enum stream_phase { STREAM_CONNECT = 0, STREAM_HEAD, STREAM_EVENTS, STREAM_ERROR_BODY };
enum stream_end { STREAM_OPEN = 0, STREAM_COMPLETED /* closed after `end` */, STREAM_FAILED, STREAM_ABANDONED };
enum { STREAM_BUFFER = 1 << 14 /* bytes: of a header, of one event */ };

struct stream {
    int fd;
    uint32_t index;
    enum stream_phase phase;
    bool other; /* not measured; one of stalled readers is not read any more once the server has answered */
    bool answered;
    const char *body;    /* the request's, not owned */
    size_t sent, n_head; /* bytes of head + body sent */
    char head[256];
    char *buffer;
    size_t n; /* [STREAM_BUFFER] what is not parsed yet */
    bool chunked;
    size_t chunk_left;
    unsigned chunk_state;
    int status;
    bool started, terminal;
    uint32_t tokens, abandon_at; /* abandon_at: the number of tokens after which the client leaves; UINT32_MAX: never */
    double begun, first, last, heard;
    struct results *r;
    enum stream_end end;
    char why[64]; /* STREAM_FAILED: a code for the report */
};

/* Takes n bytes that arrived at time now. */
void stream_take(struct stream *s, const char *bytes, size_t n, double now);
/* The server closed, or the connection broke (broken). Decides s->end. */
void stream_closed(struct stream *s, bool broken, double now);
/* Counts a violation once, with its text. */
__attribute__((format(printf, 2, 3))) void stream_violation(struct stream *s, const char *format, ...);

#endif
