/* kv_events.c: see kv_events.h.
 *
 * The thread sleeps in the engine's queue. A batch gets the next sequence number whatever becomes of it, so that
 * subscribers see what they miss; when worker-events was gone and is back, the engine tells everything again, behind
 * AllBlocksCleared. */
#include "kv_events.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/address.h"
#include "base/helper.h"
#include "engine/page_events.h"
#include "inside.h"
#include "kv_frame.h"
#include "kv_wire.h"
#include "log/log.h"

enum {
    HELLO_MS = 10000, /* until the program has bound its sockets */
    LOOK_MS = 200,    /* while nothing happens the thread looks so often whether the program is there */
    SEND_S = 2,       /* the program reads at all times: one that does not is ended */
    RETELL_S = 10,
    LEAVE_MS = 1000, /* for the program to send what waits and to end */
    PAUSE_MS = 100,  /* before it is started again; doubled each time */
    MOST_PAUSE_MS = 10000
};

struct kv_events {
    char program[4096], endpoint[300], replay[300], topic[KV_TOPIC_MAX];
    struct engine *engine;
    pthread_t thread;
    bool begun, exposed; /* exposed: other machines reach an endpoint */
    atomic_bool stop;
    _Atomic uint64_t batches, starts;

    /* Before `begun` the main thread's, then the thread's. */
    pid_t pid;                              /* 0: it does not run */
    int socket;                             /* -1 */
    uint64_t sequence, again_ns, retold_ns; /* retold_ns: it is not told again before */
    uint32_t pause_ms;
    struct page_event batch[KV_BATCH];
};

/* ---- endpoints ----------------------------------------------------------------------------------------- */

/* As libzmq has it: addresses are numbers, and * stands for all of IPv4 and IPv6. */
static wk_status read_endpoint(const char *text, char out[300], bool *exposed, const struct wk_err *err)
{
    static const char scheme[] = "tcp://";
    const char *at = strncmp(text, scheme, sizeof scheme - 1) == 0 ? text + sizeof scheme - 1 : NULL,
               *colon = at ? strrchr(at, ':') : NULL;
    char host[256] = "", *end = NULL;
    const size_t n = colon ? (size_t)(colon - at) : 0;
    const unsigned long port = colon && colon[1] >= '1' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
    if (n && n < sizeof host) memcpy(host, at, n);
    const bool bracketed = n > 2 && host[0] == '[' && host[n - 1] == ']';
    if (bracketed) {
        memmove(host, host + 1, n - 2);
        host[n - 2] = '\0';
    }
    const bool all = strcmp(host, "*") == 0, six = strchr(host, ':') != NULL;
    if (!port || port > UINT16_MAX || *end || six != bracketed || !(all || http_is_host(host)))
        return wk_fail(err, WK_INVALID,
                       "expected tcp://HOST:PORT with an address like 127.0.0.1 or [::1], localhost, or *, and a port "
                       "of 1 to 65535; got \"%.200s\"",
                       text);
    const char *name = strcasecmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    *exposed = !address_is_local_host(host);
    (void)snprintf(out, 300, six ? "tcp://[%s]:%lu" : "tcp://%s:%lu", name, port);
    return WK_OK;
}

wk_status kv_events_check(const char *endpoint, const struct wk_err *err)
{
    char out[300];
    bool exposed;
    return read_endpoint(endpoint, out, &exposed, err);
}

/* ---- the program --------------------------------------------------------------------------------------- */

static void end_program(struct kv_events *v, int wait_ms)
{
    if (!v->pid) return;
    (void)close(v->socket);
    pid_t ended = 0;
    for (; wait_ms > 0 && !ended; wait_ms -= 10) {
        ended = waitpid(v->pid, NULL, WNOHANG);
        if (!ended) (void)poll(NULL, 0, 10);
    }
    if (!ended) {
        (void)kill(v->pid, SIGKILL);
        while (waitpid(v->pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    v->pid = 0;
    v->socket = -1;
}

/* Its first word: its sockets are bound, or why not. */
static wk_status hear_hello(struct kv_events *v, const struct wk_err *err)
{
    struct kv_hello hello;
    struct pollfd p = { .fd = v->socket, .events = POLLIN };
    ssize_t n = -1;
    if (poll(&p, 1, HELLO_MS) == 1) n = recv(v->socket, &hello, sizeof hello, MSG_WAITALL);
    if (n != sizeof hello)
        return wk_fail(err, WK_IO, "%s did not say that it is ready: libzmq may be missing: install libzmq5",
                       v->program);
    hello.text[sizeof hello.text - 1] = '\0';
    return hello.failed ? wk_fail(err, WK_IO, "--kv-events: %s", hello.text) : WK_OK;
}

static wk_status start_program(struct kv_events *v, const struct wk_err *err)
{
    char name[] = "worker-events", *const arguments[] = { name, v->endpoint, v->replay[0] ? v->replay : NULL, NULL };
    const struct timeval patience = { .tv_sec = SEND_S };
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return wk_fail(err, WK_IO, "no socket for cache events: %s", strerror(errno));
    const int e = helper_spawn(v->program, arguments, pair[1], &v->pid);
    (void)close(pair[1]);
    if (e) {
        (void)close(pair[0]);
        v->pid = 0;
        return wk_fail(err, WK_IO, "%s does not start: %s", v->program, strerror(e));
    }
    v->socket = pair[0];
    (void)setsockopt(v->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const wk_status s = hear_hello(v, err);
    if (s)
        end_program(v, 0);
    else
        atomic_fetch_add(&v->starts, 1);
    return s;
}

/* A byte of its: somebody asked for batches that are no longer kept, and gets everything again, as all do: now and then
 * at most. */
static bool is_there(struct kv_events *v)
{
    char byte;
    const ssize_t n = recv(v->socket, &byte, 1, MSG_DONTWAIT);
    const uint64_t now = serve_now_ns();
    if (n == 1 && now >= v->retold_ns) {
        v->retold_ns = now + RETELL_S * 1000000000ull;
        engine_page_events_again(v->engine);
    }
    return n == 1 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void pause_more(struct kv_events *v)
{
    v->again_ns = serve_now_ns() + v->pause_ms * 1000000ull;
    v->pause_ms = v->pause_ms * 2 < MOST_PAUSE_MS ? v->pause_ms * 2 : MOST_PAUSE_MS;
}

static void lose_program(struct kv_events *v)
{
    end_program(v, 0);
    pause_more(v);
    LOG(LOG_WARN, "kv_events_restart", "worker-events is gone and starts again", log_s("endpoint", v->endpoint));
}

/* True: it runs. */
static bool keep_program(struct kv_events *v)
{
    char text[1024];
    if (v->pid && is_there(v)) return true;
    if (v->pid) lose_program(v);
    if (serve_now_ns() < v->again_ns) {
        (void)poll(NULL, 0, PAUSE_MS / 2);
        return false;
    }
    if (start_program(v, &(struct wk_err){ text, sizeof text })) {
        pause_more(v);
        LOG(LOG_ERROR, "kv_events_failed", text, log_s("endpoint", v->endpoint));
        return false;
    }
    engine_page_events_again(v->engine);
    return true;
}

/* ---- batches ------------------------------------------------------------------------------------------- */

static bool send_all(int socket, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n) {
        const ssize_t done = send(socket, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

/* The time of a batch is when the engine knew of its oldest record. */
static double since_1970(uint64_t at_ns)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - (double)(serve_now_ns() - at_ns) * 1e-9;
}

static void publish(struct kv_events *v, uint32_t n)
{
    struct http_text payload = { 0 };
    struct kv_frame frame = { .sequence = v->sequence++, .topic = (uint32_t)strlen(v->topic) };
    kv_wire_batch(&payload, v->batch, n, since_1970(v->batch[0].at_ns));
    frame.payload = (uint32_t)payload.n;
    const bool sent = !payload.failed && send_all(v->socket, &frame, sizeof frame) &&
                      send_all(v->socket, v->topic, frame.topic) && send_all(v->socket, payload.data, payload.n);
    http_text_free(&payload);
    if (sent) {
        atomic_fetch_add(&v->batches, 1);
        v->pause_ms = PAUSE_MS;
    } else {
        lose_program(v);
    }
}

static void *run(void *user)
{
    struct kv_events *v = user;
    while (!atomic_load(&v->stop)) {
        if (!keep_program(v)) continue;
        const uint32_t n = engine_page_events(v->engine, v->batch, KV_BATCH, LOOK_MS);
        if (n) publish(v, n);
    }
    v->batch[0] = (struct page_event){ .kind = PAGES_CLEARED, .at_ns = serve_now_ns() };
    if (v->pid) publish(v, 1);
    end_program(v, LEAVE_MS);
    return NULL;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

wk_status kv_events_open(const struct kv_events_options *o, struct kv_events **out, const struct wk_err *err)
{
    bool replay_exposed = false;
    struct kv_events *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return wk_fail(err, WK_NO_MEMORY, "no memory for cache events");
    (void)snprintf(v->topic, sizeof v->topic, "%s", o->topic ? o->topic : "");
    v->socket = -1;
    v->pause_ms = PAUSE_MS;
    wk_status s = read_endpoint(o->endpoint, v->endpoint, &v->exposed, err);
    if (!s && o->replay) s = read_endpoint(o->replay, v->replay, &replay_exposed, err);
    v->exposed = v->exposed || replay_exposed;
    if (!s) s = helper_find("worker-events", "publishes cache events", NULL, v->program, sizeof v->program, err);
    if (!s) s = start_program(v, err);
    if (s)
        free(v);
    else
        *out = v;
    return s;
}

wk_status kv_events_begin(struct kv_events *v, struct engine *e, const struct wk_err *err)
{
    if (!v) return WK_OK;
    v->engine = e;
    if (pthread_create(&v->thread, NULL, run, v)) return wk_fail(err, WK_NO_MEMORY, "no thread for cache events");
    v->begun = true;
    LOG(LOG_INFO, "kv_events", NULL, log_s("endpoint", v->endpoint), log_s("replay", v->replay[0] ? v->replay : NULL),
        log_s("topic", v->topic));
    if (v->exposed)
        LOG(LOG_WARN, "kv_events_exposed", "who reaches the endpoint from another machine can read prompts' tokens",
            log_s("endpoint", v->endpoint));
    return WK_OK;
}

void kv_events_close(struct kv_events *v)
{
    if (!v) return;
    atomic_store(&v->stop, true);
    if (v->begun) {
        engine_page_events_wake(v->engine);
        (void)pthread_join(v->thread, NULL);
    }
    end_program(v, LEAVE_MS);
    free(v);
}

void kv_events_counts(const struct kv_events *v, struct kv_events_counts *out)
{
    *out = (struct kv_events_counts){ 0 };
    if (v) *out = (struct kv_events_counts){ atomic_load(&v->batches), atomic_load(&v->starts) };
}
