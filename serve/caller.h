/* caller.h: who a request is of, and the gate's three questions asked for the service: when its header was read, before
 * its jobs are submitted, when it is over. Without a gate a caller is nobody and may do everything.
 *
 * A caller lives in its request's own memory (http_caller). [the request's thread] */
#ifndef SERVE_CALLER_H
#define SERVE_CALLER_H

#include "gate/gate.h"
#include "refusal.h"
#include "serve.h"

struct answer;
struct ending;
struct otlp_record;
struct stream;

struct serve_caller {
    struct gate_caller who;
    char address[64]; /* of the other end */
    uint64_t begun_ns;
    bool known;    /* the gate was asked who it is */
    bool recorded; /* the audit log has its entry already */
    bool open;     /* for everybody: no entry of the audit log where nothing goes wrong */
    /* For the audit log, told by whoever handles the request. */
    enum audit_kind kind;
    const char *code; /* of a refusal; NULL: none */
    const char *model;
    bool counted;
    uint64_t tokens_in, tokens_out, tokens_cached, used; /* used: prompts that were read, ids that were generated */
    struct otlp_record *trace;                           /* trace.c; NULL: none */
    char prompt_hmac[65], prompt_sha256[65];             /* "": none */
    struct http_text asked, said; /* the prompts, where the log has raw text; the answers' text, behind each other */
    const char *target;           /* AUDIT_COMMIT: the model's file; lives as long as the service */
};

struct serve_caller *serve_caller(struct http_request *r);

/* For http_options. */
bool caller_admit(void *user, struct http_request *r, const struct http_route *route);
void caller_answering(void *user, struct http_request *r);
void caller_over(void *user, struct http_request *r);

/* Does the caller have the scope? Also true without a gate. */
bool caller_has(const struct serve *s, struct http_request *r, uint32_t scope);
/* The highest priority that its jobs may have: its key's, else the command line's. */
int32_t caller_max_priority(const struct serve *s, struct http_request *r);
/* Whose jobs may the caller see: NULL: everybody's; else the digest of its id. */
const uint64_t *caller_sees(const struct serve *s, struct http_request *r);

/* May the stream's jobs be submitted? Charges rates, asks the guardrails, opens the scans of its answers. May lower
 * x->q.max_tokens. False: *why. */
bool caller_may_begin(struct stream *x, struct refusal *why);
/* The answer's headers tell the caller's rates. begins: its jobs do; else the request is refused, and what was charged
 * is given back first. */
void caller_rates(struct stream *x, bool begins);
/* Text of an answer goes to the client; the blocklist has stopped an answer; an answer is over, which its client is
 * about to be told. */
void caller_said(struct stream *x, const char *text, size_t n);
void caller_blocked(struct stream *x, uint32_t phrase);
void caller_ended(struct stream *x, const struct answer *a, const struct ending *e);

#endif
