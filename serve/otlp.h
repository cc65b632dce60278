/* otlp.h: requests as traces of OpenTelemetry: spans of the request, its queue, its prefill and its decoding, sent as
 * OTLP/HTTP JSON (POST {url}/v1/traces) by a thread of its own.
 *
 * Who serves a request never waits: its figures are copied into a queue that has an end; what finds it full is dropped
 * and counted. How bytes are sent is the caller's. No prompt, no text: names, counts, times. */
#ifndef SERVE_OTLP_H
#define SERVE_OTLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "engine/engine.h"
#include "http/http.h"

enum {
    OTLP_QUEUE = 1024,  /* records that wait */
    OTLP_BATCH = 256,   /* at most of one body */
    OTLP_WAIT_MS = 1000 /* that a record waits for others */
};

/* ---- W3C trace context --------------------------------------------------------------------------------- */

struct otlp_context {
    uint8_t trace[16], parent[8], span[8]; /* span: the request's own */
    bool has_parent, sampled;
};
/* The request's place in the trace that traceparent (http_trace) names, or in a new one: NULL. What a parent does not
 * sample is not exported. False: the system gives no random numbers. [any thread] */
bool otlp_begin(const char *traceparent, struct otlp_context *out);
/* The traceparent of what this request asks of others. [any thread] */
void otlp_traceparent(const struct otlp_context *c, char out[HTTP_TRACE_BYTES + 1]);

/* ---- records ------------------------------------------------------------------------------------------- */

/* A request that is over and its answer; of a request with several, each further answer is one more record with the
 * same context and answer_only. Times: CLOCK_MONOTONIC nanoseconds, 0: it never came to that. "": not known. */
struct otlp_record {
    struct otlp_context context;
    bool answer_only; /* spans of the answer's job alone */
    char method[8], route[64], model[128], key_id[64], job_id[ENGINE_JOB_ID_MAX + 1];
    char finish_reason[24], error[40]; /* error: the code; "": it came to a good end */
    int status;                        /* of HTTP */
    uint64_t arrived_ns, answered_ns;
    bool job; /* there was one: f and turns are its */
    struct job_figures f;
    uint32_t n_turns;
    struct job_turn turns[ENGINE_TURNS];
};
/* The job's figures, and those of its turns that are remembered. [the job's reader] */
void otlp_take_job(struct otlp_record *r, const struct job *j);

/* Who sends: strings live as long as the exporter. */
struct otlp_resource {
    const char *worker_id, *version;
};
/* The body of an export: an ExportTraceServiceRequest. unix_ns: what is added to times of the records to make them
 * times since 1970. out->failed: no memory. [any thread] */
void otlp_put(struct http_text *out, const struct otlp_resource *who, const struct otlp_record *r, size_t n,
              int64_t unix_ns);

/* ---- the exporter -------------------------------------------------------------------------------------- */

/* Sends n bytes to url with POST and Content-Type: application/json, within a few seconds. False: they were not taken.
 * [the exporter's thread] */
typedef bool (*otlp_send)(void *user, const char *url, const char *body, size_t n);

struct otlp;
/* url: "http://collector:4318"; /v1/traces is added. WK_INVALID: it is no http or https url. [main thread] */
wk_status otlp_open(const char *url, const struct otlp_resource *who, otlp_send send, void *user, struct otlp **out,
                    const struct wk_err *err);
/* Copied, if its trace is sampled. NULL allowed: nothing is exported. [any thread] */
void otlp_offer(struct otlp *o, const struct otlp_record *r);
/* Records that were sent; that were dropped, because the queue was full or what has them was not taken. */
struct otlp_counts {
    uint64_t sent, dropped;
};
void otlp_counts(struct otlp *o, struct otlp_counts *out); /* [any thread] */
/* Sends what waits, until something is not taken, and ends the thread. NULL allowed. [main thread] */
void otlp_close(struct otlp *o);

#endif
