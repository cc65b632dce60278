/* handover.c: see handover.h. */
#include "handover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "engine/handover.h"
#include "gate/download.h"
#include "log/log.h"
#include "work.h"

enum {
    LOOK_MS = 20,
    PATIENCE_MS = 10000 /* for a helper: then the prompt is read here */
};

const char *pull_result_name(enum pull_result r)
{
    static const char *const names[PULL_RESULTS] = { "done",      "cached",  "short",   "incomplete",  "foreign",
                                                     "forbidden", "busy",    "no_room", "unreachable", "refused",
                                                     "unknown",   "damaged", "stopped" };
    return names[r];
}

const double handover_bound[HANDOVER_BUCKETS - 1] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5 };

/* ---- helpers ------------------------------------------------------------------------------------------- */

/* They end with the thread that starts them, so this is the main thread's work. */
static wk_status open_helpers(struct handover *h, uint32_t n, const struct wk_err *err)
{
    h->helpers = calloc(n ? n : 1, sizeof *h->helpers);
    if (!h->helpers) return wk_fail(err, WK_NO_MEMORY, "no memory for %u pulls", n);
    for (; h->n_helpers < n; h->n_helpers++, h->n_free++) {
        const wk_status status = download_open(NULL, &h->helpers[h->n_helpers], err);
        if (status) return status;
    }
    return WK_OK;
}

struct download *handover_helper(struct handover *h, struct work *work)
{
    const uint64_t until = serve_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    struct download *d = NULL;
    (void)pthread_mutex_lock(&h->lock);
    while (!h->n_free && serve_now_ns() < until && !work_stopped(work)) {
        const struct timespec at = clock_in(CLOCK_MONOTONIC, LOOK_MS);
        (void)pthread_cond_timedwait(&h->freed, &h->lock, &at);
    }
    if (h->n_free) d = h->helpers[--h->n_free];
    (void)pthread_mutex_unlock(&h->lock);
    return d;
}

void handover_helper_back(struct handover *h, struct download *d)
{
    download_watch(d, NULL, NULL);
    (void)pthread_mutex_lock(&h->lock);
    h->helpers[h->n_free++] = d;
    (void)pthread_cond_signal(&h->freed);
    (void)pthread_mutex_unlock(&h->lock);
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

wk_status handover_open(const struct serve_handover *o, struct handover **out, const struct wk_err *err)
{
    struct handover *h = calloc(1, sizeof *h);
    if (!h) return wk_fail(err, WK_NO_MEMORY, "no memory for hand-overs");
    if (pthread_mutex_init(&h->lock, NULL) != 0 || !cond_init_monotonic(&h->freed) ||
        !cond_init_monotonic(&h->offered)) {
        free(h);
        return wk_fail(err, WK_NO_MEMORY, "no memory for hand-overs");
    }
    if (!segment_place(h->place)) h->place[0] = '\0';
    const uint32_t swept = segment_sweep();
    if (swept) LOG(LOG_WARN, "kv_orphans", "segments of dead workers were removed", log_u("segments", swept));
    wk_status status = leases_open(o->leases, engine_lease_release, &h->leases, err);
    if (!status) status = open_helpers(h, o->pulls, err);
    if (status)
        handover_close(h);
    else
        *out = h;
    return status;
}

void handover_close(struct handover *h)
{
    if (!h) return;
    handover_peer_close(h);
    leases_close(h->leases);
    for (uint32_t i = 0; i < h->n_helpers; i++) download_close(h->helpers[i]);
    free(h->helpers);
    (void)pthread_mutex_destroy(&h->lock);
    (void)pthread_cond_destroy(&h->freed);
    (void)pthread_cond_destroy(&h->offered);
    free(h);
}

void handover_tick(struct serve *s)
{
    if (!s->handover) return;
    leases_tick(s->handover->leases, serve_now_ns());
    handover_peer_tick(s);
}

bool handover_warm(const struct serve *s)
{
    const struct serve_model *m = atomic_load(&s->model);
    return strcmp(s->o->role, "decode") != 0 || (s->handover && m && serve_digest(m)[0]);
}

/* ---- counters ------------------------------------------------------------------------------------------ */

void handover_count(struct handover *h, enum pull_result result) { atomic_fetch_add(&h->results[result], 1); }

void handover_count_pages(struct handover *h, enum handover_way way, uint64_t ns, uint64_t bytes)
{
    int i = 0;
    while (i < HANDOVER_BUCKETS - 1 && (double)ns * 1e-9 > handover_bound[i]) i++;
    atomic_fetch_add(&h->count[way][i], 1);
    atomic_fetch_add(&h->us[way], ns / 1000);
    atomic_fetch_add(&h->bytes_in, bytes);
}
