/* handover.h: pages of prompts between this worker and others: what it has offered, what it pulls, and what became of
 * both. There is one where --prefill-pool-size or --decode-pool-size is not 0.
 *
 * POST /worker/handover gives the pages of one hand-over (docs/http.md). It is a route of the main port like the
 * others, so that TLS, keys, limits and deadlines are theirs. */
#ifndef SERVE_HANDOVER_H
#define SERVE_HANDOVER_H

#include <pthread.h>

#include "handover/leases.h"
#include "handover/segment.h"
#include "inside.h"

struct download;
struct packet;
struct peer_giver;
struct peer_taker;
struct work;

/* What became of a prompt whose pages were to be pulled. */
enum pull_result {
    PULL_DONE = 0,    /* they came */
    PULL_CACHED,      /* this worker had them all */
    PULL_SHORT,       /* it has no whole page */
    PULL_INCOMPLETE,  /* the request does not say where they are */
    PULL_FOREIGN,     /* another program, model, device or layout has computed them */
    PULL_FORBIDDEN,   /* that host may not be asked */
    PULL_BUSY,        /* --decode-pool-size pulls were in flight */
    PULL_NO_ROOM,     /* no pages for them here */
    PULL_UNREACHABLE, /* no answer, or it broke off */
    PULL_REFUSED,     /* the worker there did not give them: a key, or it has too much to do */
    PULL_UNKNOWN,     /* the worker there does not have them, or not any more */
    PULL_DAMAGED,     /* what came is not what was sent, or is none of ours */
    PULL_STOPPED,     /* the client left, the deadline passed, the worker shuts down */
    PULL_RESULTS
};
const char *pull_result_name(enum pull_result r); /* "done", "cached", ... */

enum {
    HANDOVER_BUCKETS = 12,
    HANDOVER_SERVED = 16, /* hand-overs that are read at once */
    HANDOVER_PULLS = 64   /* --decode-pool-size, at most */
};

/* A hand-over that another process of this host may copy from this one's memory, while handover_send.c waits for it. */
struct handover_offer {
    const char *id; /* NULL: the place is free */
    struct engine_lease *lease;
    bool found, over, taken;
};
/* A copy from another process's memory. */
struct handover_copy {
    _Atomic uint64_t since_ns; /* 0: the place is free */
    atomic_bool stop;          /* it takes too long */
};

struct handover {
    struct leases *leases;
    char place[SEGMENT_PLACE]; /* "": no shared memory */
    struct download **helpers; /* [pulls], of who connects out; NULL: taken */
    uint32_t n_helpers, n_free;
    pthread_mutex_t lock; /* of helpers and offers */
    pthread_cond_t freed;
    atomic_uint serving;
    /* Of handover_peer.c: */
    _Atomic(struct peer_giver *) giver; /* NULL: none yet, or it cannot be */
    _Atomic(struct peer_taker *) taker;
    bool peers_tried;
    pthread_cond_t offered;
    struct handover_offer offers[HANDOVER_SERVED]; /* under `lock` */
    struct handover_copy copies[HANDOVER_PULLS];
    _Atomic uint64_t results[PULL_RESULTS];
    /* Of pulls that are done, by the way that the pages came; seconds: handover_bound. */
    _Atomic uint64_t count[HANDOVER_WAYS][HANDOVER_BUCKETS], us[HANDOVER_WAYS], bytes_in, bytes_out;
};

/* Also removes what dead workers have left in shared memory. [main thread] */
wk_status handover_open(const struct serve_handover *o, struct handover **out, const struct wk_err *err);
/* No handler runs any more; before the engine is closed. NULL allowed. [main thread] */
void handover_close(struct handover *h);
/* Some times a second: what nobody has taken ends. [main thread] */
void handover_tick(struct serve *s);
/* May a decode worker be given work: helpers, and the digest of the model, without which nothing can be compared?
 * True of a worker that is none. [any thread] */
bool handover_warm(const struct serve *s);

/* ---- handover_peer.c: from one process's memory to another's ---- */
/* Opens what it needs, once the model and its digest are there; ends what takes too long. [main thread] */
void handover_peer_tick(struct serve *s);
void handover_peer_close(struct handover *h);
/* The name by which others find this process's memory; NULL: they cannot. [any thread] */
const char *handover_peer_name(const struct handover *h);
/* From now on the lease is found under its id, which must live as long; NULL: there is no place. [any thread] */
struct handover_offer *handover_peer_offer(struct handover *h, const char *id, struct engine_lease *lease);
/* Waits until it was copied, and ends the offer. False: it was not: nobody came, or it broke off. `left` says that
 * nobody waits for it any more. [any thread] */
bool handover_peer_wait(struct handover *h, struct handover_offer *o, bool (*left)(void *user), void *user);
/* All blocks that the import lacks, from the process of this name. [any thread] */
struct engine_import;
wk_status handover_peer_take(struct handover *h, const char *name, const char *id, const struct packet *mine,
                             struct engine_import *i, const struct wk_err *err);

/* ---- handover.c ---- */
/* A helper, at most for so long; NULL: all were busy, or `work` was stopped. [any thread] */
struct download *handover_helper(struct handover *h, struct work *work);
void handover_helper_back(struct handover *h, struct download *d);
void handover_count(struct handover *h, enum pull_result result);
/* A pull that is done. */
void handover_count_pages(struct handover *h, enum handover_way way, uint64_t ns, uint64_t bytes);
extern const double handover_bound[HANDOVER_BUCKETS - 1]; /* seconds; the last bucket: +Inf */

#endif
