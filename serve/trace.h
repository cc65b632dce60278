/* trace.h: requests as spans for --otlp: begun with the request, told of its answers, offered when it is over. Without
 * --otlp nothing happens here. [the request's thread] */
#ifndef SERVE_TRACE_H
#define SERVE_TRACE_H

#include "otlp.h"
#include "serve.h"

struct answer;
struct ending;
struct stream;

/* WK_INVALID: the URL. [main thread] */
wk_status trace_open(struct serve *s, const struct wk_err *err);
void trace_begin(struct serve *s, struct http_request *r);
/* An answer's job is over. */
void trace_answer(struct stream *x, const struct answer *a, const struct ending *e);
void trace_over(struct serve *s, struct http_request *r);
/* What this request tells others of its place in a trace; false: nothing. */
bool trace_parent(struct http_request *r, char out[HTTP_TRACE_BYTES + 1]);

#endif
