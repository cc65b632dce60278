/* transfer.h: kv_transfer_params of a request: what becomes of its prompts' pages, as vLLM's connector has it on the
 * wire and routers pass it on.
 *
 * A prefill worker is asked with do_remote_decode: it keeps the pages of each prompt and answers where they are
 * (leases.h). A decode worker gets that answer as it was, with do_remote_prefill: it pulls the pages into its prefix
 * cache before it submits its jobs (pull.h). Nothing here decides ids: pages that do not come are computed again, and
 * the client hears nothing of it. What stands in the members is this worker's own affair, since nobody between reads
 * it. [the handler's thread] */
#ifndef SERVE_TRANSFER_H
#define SERVE_TRANSFER_H

#include <jansson.h>

#include "handover/leases.h"
#include "refusal.h"

struct answer;
struct http_text;
struct stream;

/* As the request has it. */
struct transfer {
    bool keep, pull;           /* do_remote_decode, do_remote_prefill */
    const char *engine, *host; /* the body's; NULL: not said */
    uint16_t port;             /* 0: not said */
    const json_t *ids;         /* a list of the body's, one for each prompt; NULL: not said */
};

/* Of one prompt. */
struct transfer_prompt {
    struct engine_lease *pulled; /* holds what came until a job has found it; NULL: nothing came */
    bool reserved;               /* a place among the worker's hand-overs */
    char id[LEASES_ID];          /* of the hand-over that was offered; "": none */
};

/* The member kv_transfer_params, NULL: absent; nulls inside are the same as absent and go, names that nobody knows
 * are ignored. False: why says which is of a wrong type. */
bool transfer_read(json_t *params, struct transfer *out, struct refusal *why);

/* Is the request for a worker of this role and these pools? False: why. */
bool transfer_may(const struct stream *x, struct refusal *why);
/* Before the jobs are submitted: takes places, pulls pages. May take as long as the pages travel; ends early when the
 * client has left or the deadline has passed. Whatever fails, the jobs compute. */
void transfer_begin(struct stream *x);
/* Is the answer's job to keep its prompt's pages? */
bool transfer_keeps(const struct stream *x, const struct answer *a);
/* The answer's job has begun, or is over: what was pulled for it is its own, or nobody's. */
void transfer_started(struct stream *x, const struct answer *a);
/* The answer has come to a good end, which its client is about to be told: its prompt's pages are offered, if the
 * digest of the weights is known, without which nobody can take them. */
void transfer_offer(struct stream *x, const struct answer *a);
/* ,"kv_transfer_params":{...}, of a request that asked for it; else nothing. */
void transfer_put(struct http_text *out, const struct stream *x);
/* Places and pages that are left. */
void transfer_close(struct stream *x);

#endif
