/* stream.h: one request for tokens from its ids to the end of its job, whatever form the answer has: /execute's events,
 * OpenAI's chunks, or one document.
 *
 * The handler's thread is the job's one reader. It never blocks the engine: what it is slow to send waits in the job's
 * ring. A client that is gone cancels its own job at once. No text goes into the log: a digest, lengths and counts. */
#ifndef SERVE_STREAM_H
#define SERVE_STREAM_H

#include "inside.h"
#include "job_request.h"
#include "jobs.h"
#include "log/words.h"
#include "token_text.h"
#include "work.h"

struct stream;

/* A job's end, as answer, log and list of jobs tell it. */
struct ending {
    bool good;          /* JOB_STOP or JOB_LENGTH */
    const char *reason; /* of a good one: "stop", "length" */
    struct refusal why; /* of another */
    struct job_figures f;
    double first_ms, decode_ms;
};

/* What a route makes of a job's events. [the handler's thread] */
struct stream_form {
    wk_status (*encode)(struct stream *x, const struct wk_err *err); /* the request's ids, into x->prompt */
    void (*release)(struct stream *x); /* the request is a job: its JSON is not needed any more, nor what lies in it */
    void (*started)(struct stream *x);
    void (*token)(struct stream *x); /* x->text was given the next id; NULL: nothing */
    void (*line)(struct stream *x, const struct token_line *line);
    void (*turn)(struct stream *x, uint64_t now); /* between events, at least every 50 ms; NULL: nothing */
    void (*end)(struct stream *x, const struct ending *e);
    void (*error)(struct stream *x, const struct ending *e);
    const char *field; /* of the request that holds the prompt */
    bool whole;        /* one answer at the end: no stream of events */
};

struct stream {
    const struct stream_form *form;
    struct serve *s;
    const struct serve_model *m;
    const struct serve_known *known; /* of the model, when the job began: one answer has one fingerprint */
    struct http_request *r;
    struct work *work;
    size_t fewest;        /* not 0: the prompt has at least so many ids, more than the context: it was not encoded */
    void *own;            /* the form's */
    struct job_request q; /* prompt: what the log's digest is of */
    struct tokens prompt;
    uint64_t arrived_ns, deadline_ns, look_ns;
    struct job *job;
    struct job_place place; /* among the jobs that are listed */
    struct token_text *text;
    struct http_text line;                   /* of the event that is being sent */
    char prompt_hmac[65], prompt_sha256[65]; /* the latter only with --plain-sha256 */
    char log_id[LOG_WORD];                   /* q.job_id as events may show it */
    uint32_t tokens_out;
    bool gone, started; /* gone: nobody reads any more */
};

/* x->q is the request; what it leaves open is chosen here: the id, behind `prefix`, and the seed. Answered, streamed
 * and logged when it returns; the caller frees what is its own. x: form, s, r, work, arrived_ns, q and own are given;
 * s->streams counts the caller since before it read the service's state. */
void stream_run(struct stream *x, const char *prefix);
/* x->prompt of these parts, for forms; nothing is encoded if it can be told that the context does not hold it. */
wk_status stream_encode(struct stream *x, const struct tokenizer_part *parts, size_t n, bool add_special,
                        const struct wk_err *err);
/* x->line as an event, or without a name; what it held is forgotten. False: nobody reads any more. */
bool stream_event(struct stream *x, const char *event);

#endif
