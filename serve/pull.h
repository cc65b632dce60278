/* pull.h: a prompt's pages come from the prefill worker that has computed them, into this worker's prefix cache. */
#ifndef SERVE_PULL_H
#define SERVE_PULL_H

#include "engine/handover.h"
#include "work.h"

/* What a request says of one prompt; texts are the request's. */
struct pull_request {
    struct work *work;
    const struct serve_model *m;
    const uint32_t *ids;
    uint32_t n_ids;
    struct engine_salt salt;   /* of whom it is */
    const char *engine, *host; /* NULL: not said */
    uint16_t port;             /* 0: not said */
    const char *id;            /* of the hand-over; NULL: not said */
    const char *job_id;        /* for the log */
};

/* Pulls what the prefix cache does not have. What it returns keeps the pages until the job has begun
 * (engine_lease_release); NULL: they did not come, and are computed. Which it was, and why, is counted and stands in
 * the log. *in_vain: seconds may have gone by without any page, and would for the request's next prompt. [the handler's
 * thread] */
struct engine_lease *pull_pages(const struct pull_request *q, bool *in_vain);

#endif
