/* work.c: see work.h. */
#include "work.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "base/monotonic.h"
#include "job_request.h"

enum { TURN_MS = 20 /* how often who waits for its turn looks whether it must end */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static unsigned running; /* large requests that are worked on */

static unsigned most_running(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n > 3 ? (unsigned)n / 2 : 1;
}

void work_open(struct work *w, struct serve *s, struct http_request *r)
{
    const char *text = http_header(r, "X-Deadline");
    struct timespec now;
    int64_t unix_ms;
    *w = (struct work){ .s = s, .r = r, .deadline_ns = serve_now_ns() + s->o->inference_timeout_s * 1000000000ull };
    if (!text || !job_request_deadline(text, &unix_ms)) return;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const int64_t left_ms = unix_ms - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    if (left_ms <= 0)
        w->deadline_ns = serve_now_ns();
    else if ((uint64_t)left_ms / 1000 < s->o->inference_timeout_s)
        w->deadline_ns = serve_now_ns() + (uint64_t)left_ms * 1000000;
}

bool work_stopped(struct work *w)
{
    if (w->stopped) return true;
    w->stopped = true;
    if (!(w->streams ? http_here(w->r) : !http_left(w->r)))
        w->why = SERVE_CANCELLED;
    else if (serve_state_of(w->s) >= SERVE_DRAINING)
        w->why = SERVE_NOT_READY;
    else if (serve_now_ns() >= w->deadline_ns)
        w->why = SERVE_INFERENCE_TIMEOUT;
    else
        w->stopped = false;
    return w->stopped;
}

bool work_refuse(const struct work *w, struct refusal *why)
{
    return refuse(why, w->why, NULL, "%s",
                  w->why == SERVE_CANCELLED   ? "the client has left"
                  : w->why == SERVE_NOT_READY ? "the worker is shutting down"
                                              : "the deadline passed before the request was read");
}

/* Waits for a turn; false: it must end. */
static bool take_turn(struct work *w)
{
    const unsigned most = most_running();
    (void)pthread_mutex_lock(&lock);
    while (running >= most) {
        const struct timespec until = clock_in(CLOCK_REALTIME, TURN_MS);
        (void)pthread_cond_timedwait(&left, &lock, &until);
        (void)pthread_mutex_unlock(&lock);
        if (work_stopped(w)) return false;
        (void)pthread_mutex_lock(&lock);
    }
    running++;
    w->placed = true;
    (void)pthread_mutex_unlock(&lock);
    return true;
}

bool work_turn(struct work *w, struct refusal *why)
{
    return (!work_stopped(w) && (w->placed || take_turn(w))) || work_refuse(w, why);
}

bool work_body(struct work *w, size_t most, const char **bytes, size_t *n)
{
    if (!http_body(w->r, most, w->untyped ? HTTP_JSON_OR_UNSAID : HTTP_JSON, bytes, n)) return false;
    if (*n > WORK_SMALL && !take_turn(w)) {
        struct refusal why = { 0 };
        (void)work_refuse(w, &why);
        serve_refuse(w->s, w->r, &why);
        return false;
    }
    return serve_reserve_tree(w->r, *bytes, *n);
}

static bool must_stop(void *user) { return work_stopped(user); }

struct lang_watch work_watch(struct work *w) { return (struct lang_watch){ must_stop, w }; }

wk_status work_encode(struct work *w, const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts,
                      bool add_special, struct tokens *out, const struct wk_err *err)
{
    const struct tokenizer_watch watch = { must_stop, w };
    return tokenizer_encode_watched(t, parts, n_parts, add_special, &watch, out, err);
}

void work_close(struct work *w)
{
    http_release(w->r);
    if (!w->placed) return;
    w->placed = false;
    (void)pthread_mutex_lock(&lock);
    running--;
    (void)pthread_cond_signal(&left);
    (void)pthread_mutex_unlock(&lock);
}
