/* handover_peer.c: pages from one process's memory to another's (handover/peer.h), between a request for a hand-over
 * (handover_send.c) and its answer: whoever may read the hand-over was decided there, so a name and an id are enough
 * here. */
#include "handover.h"

#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "engine/handover.h"
#include "handover/peer.h"
#include "handover/runs.h"
#include "log/log.h"

enum {
    LOOK_MS = 50,
    COMES_MS = 2000,  /* until somebody comes for what is offered: then it goes another way */
    TAKES_MS = 15000, /* until all was copied */
    COPY_MS = 10000   /* the same, as who copies has it */
};

/* ---- what is offered ----------------------------------------------------------------------------------- */

/* The lock is held. NULL: there is none. */
static struct handover_offer *offer_of(struct handover *h, const char *id)
{
    for (int i = 0; i < HANDOVER_SERVED; i++)
        if (h->offers[i].id && strcmp(h->offers[i].id, id) == 0) return &h->offers[i];
    return NULL;
}

static struct engine_lease *find(void *user, const char *ticket)
{
    struct handover *h = user;
    struct engine_lease *lease = NULL;
    (void)pthread_mutex_lock(&h->lock);
    struct handover_offer *o = offer_of(h, ticket);
    if (o && !o->found) {
        o->found = true;
        lease = o->lease;
        engine_lease_ref(lease);
    }
    (void)pthread_mutex_unlock(&h->lock);
    return lease;
}

static void done(void *user, const char *ticket, struct engine_lease *lease, bool taken)
{
    struct handover *h = user;
    (void)pthread_mutex_lock(&h->lock);
    struct handover_offer *o = offer_of(h, ticket);
    if (o && o->found && o->lease == lease) {
        o->over = true;
        o->taken = taken;
        (void)pthread_cond_broadcast(&h->offered);
    }
    (void)pthread_mutex_unlock(&h->lock);
    engine_lease_release(lease);
}

/* The lock is held; left is asked without it. */
static bool wait_for_taker(struct handover *h, const struct handover_offer *o, bool (*left)(void *user), void *user)
{
    const uint64_t begun_ns = serve_now_ns();
    while (!o->over) {
        const uint64_t ms = (serve_now_ns() - begun_ns) / 1000000;
        if (ms > (o->found ? TAKES_MS : COMES_MS)) return false;
        const struct timespec at = clock_in(CLOCK_MONOTONIC, LOOK_MS);
        if (!pthread_cond_timedwait(&h->offered, &h->lock, &at) || o->over) continue;
        (void)pthread_mutex_unlock(&h->lock);
        const bool gone = left(user);
        (void)pthread_mutex_lock(&h->lock);
        if (gone && !o->over) return false;
    }
    return o->taken;
}

struct handover_offer *handover_peer_offer(struct handover *h, const char *id, struct engine_lease *lease)
{
    struct handover_offer *o = NULL;
    (void)pthread_mutex_lock(&h->lock);
    for (int i = 0; i < HANDOVER_SERVED && !o; i++)
        if (!h->offers[i].id) o = &h->offers[i];
    if (o) *o = (struct handover_offer){ .id = id, .lease = lease };
    (void)pthread_mutex_unlock(&h->lock);
    return o;
}

bool handover_peer_wait(struct handover *h, struct handover_offer *o, bool (*left)(void *user), void *user)
{
    (void)pthread_mutex_lock(&h->lock);
    const bool taken = wait_for_taker(h, o, left, user);
    *o = (struct handover_offer){ 0 };
    (void)pthread_mutex_unlock(&h->lock);
    return taken;
}

const char *handover_peer_name(const struct handover *h)
{
    const struct peer_giver *g = atomic_load(&h->giver);
    return g ? peer_giver_name(g) : NULL;
}

/* ---- what is taken ------------------------------------------------------------------------------------- */

/* A place among the copies that are in flight; NULL: there is none. */
static struct handover_copy *begin_copy(struct handover *h)
{
    for (int i = 0; i < HANDOVER_PULLS; i++) {
        uint64_t nobody = 0;
        if (!atomic_compare_exchange_strong(&h->copies[i].since_ns, &nobody, serve_now_ns())) continue;
        atomic_store(&h->copies[i].stop, false);
        return &h->copies[i];
    }
    return NULL;
}

wk_status handover_peer_take(struct handover *h, const char *name, const char *id, const struct packet *mine,
                             struct engine_import *i, const struct wk_err *err)
{
    struct peer_taker *t = atomic_load(&h->taker);
    struct handover_copy *copy = t ? begin_copy(h) : NULL;
    if (!copy) return wk_fail(err, WK_UNSUPPORTED, "this worker cannot copy from another one's memory");
    const wk_status status = peer_take(t, name, id, mine, i, &copy->stop, err);
    atomic_store(&copy->since_ns, 0);
    return status;
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

static void open_giver(struct serve *s, const struct serve_model *m, const struct engine_layout *layout)
{
    struct handover *h = s->handover;
    char text[256] = "";
    struct packet is;
    struct peer_giver *giver = NULL;
    const struct run_of of = { .layout = layout, .fingerprint = m->fingerprint, .digest = serve_digest(m) };
    const struct peer_leases leases = { .find = find, .done = done, .user = h };
    const struct wk_err err = { text, sizeof text };
    if (!run_packet(&of, NULL, &is) || peer_giver_open(m->engine, &is, &leases, &giver, &err))
        LOG(LOG_WARN, "kv_no_peer", text, log_s("worker_id", s->o->worker_id));
    atomic_store(&h->giver, giver);
}

static void open_taker(struct serve *s, const struct serve_model *m)
{
    char text[256] = "";
    struct peer_taker *taker = NULL;
    if (peer_taker_open(m->engine, &taker, &(struct wk_err){ text, sizeof text }))
        LOG(LOG_WARN, "kv_no_peer", text, log_s("worker_id", s->o->worker_id));
    atomic_store(&s->handover->taker, taker);
}

static void open_peers(struct serve *s)
{
    const struct serve_handover *o = &s->o->handover;
    struct handover *h = s->handover;
    const struct serve_model *m = atomic_load(&s->model);
    struct engine_layout layout;
    if (h->peers_tried || o->most < HANDOVER_PEER || serve_state_of(s) != SERVE_READY || !serve_digest(m)[0]) return;
    h->peers_tried = true;
    if (engine_layout(m->engine, &layout, NULL)) return; /* each hand-over finds that out, too */
    if (o->leases) open_giver(s, m, &layout);
    if (o->pulls) open_taker(s, m);
}

void handover_peer_tick(struct serve *s)
{
    struct handover *h = s->handover;
    const uint64_t now = serve_now_ns();
    open_peers(s);
    struct peer_taker *t = atomic_load(&h->taker);
    if (t) peer_taker_tick(t);
    for (int i = 0; i < HANDOVER_PULLS; i++) {
        const uint64_t since = atomic_load(&h->copies[i].since_ns);
        if (since && now > since + COPY_MS * UINT64_C(1000000)) atomic_store(&h->copies[i].stop, true);
    }
}

void handover_peer_close(struct handover *h)
{
    peer_giver_close(atomic_exchange(&h->giver, NULL));
    peer_taker_close(atomic_exchange(&h->taker, NULL));
}
