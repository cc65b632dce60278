/* run.c: one run: opens streams when they are due, moves their bytes with epoll, and adds up what they gave. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "stream.h"

struct run {
    const struct load_options *o;
    const struct bodies *bodies;
    struct results *r;
    struct stream *streams;      /* [requests + others] */
    uint32_t *open;              /* [requests + others] indices of open streams, for timeouts */
    uint32_t n_open, n_measured; /* n_measured: open, others apart */
    uint32_t next;               /* the next request */
    double due;                  /* when it may begin */
    uint64_t state;
    int epoll, timer;
};

/* ---- one stream's connection --------------------------------------------------------------------------- */

static bool watch(const struct run *run, struct stream *s, uint32_t events, bool add)
{
    struct epoll_event e = { .events = events, .data.ptr = s };
    return epoll_ctl(run->epoll, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, s->fd, &e) == 0;
}

static void close_stream(struct run *run, struct stream *s)
{
    struct results *r = run->r;
    if (s->end == STREAM_ABANDONED && s->index % 2) { /* every other one with a reset */
        const struct linger reset = { .l_onoff = 1, .l_linger = 0 };
        (void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    (void)close(s->fd);
    s->fd = -1;
    free(s->buffer);
    s->buffer = NULL;
    for (uint32_t i = 0; i < run->n_open; i++)
        if (run->open[i] == s->index) run->open[i] = run->open[--run->n_open];
    if (s->other) return;
    run->n_measured--;
    if (s->end == STREAM_FAILED) {
        r->failed++;
        results_count(r, s->why);
    } else if (s->end == STREAM_ABANDONED) {
        r->abandoned++;
        r->output_tokens += s->tokens;
    } else {
        r->completed++;
        r->output_tokens += s->tokens;
        if (s->tokens) (void)series_add(&r->ttft, s->first - s->begun);
        if (s->tokens > 1) (void)series_add(&r->tpot, (s->last - s->first) / (double)(s->tokens - 1));
        (void)series_add(&r->e2el, s->heard - s->begun);
    }
}

static void fail_stream(struct run *run, struct stream *s, const char *why)
{
    if (s->end == STREAM_OPEN) s->end = STREAM_FAILED;
    (void)snprintf(s->why, sizeof s->why, "%s", why);
    close_stream(run, s);
}

static void open_stream(struct run *run, uint32_t index, bool other)
{
    struct stream *s = &run->streams[index];
    const struct load_options *o = run->o;
    *s = (struct stream){
        .index = index, .other = other, .body = run->bodies->text[index], .r = run->r, .abandon_at = UINT32_MAX
    };
    if (!other && o->abandon > 0 && load_uniform(&run->state) < o->abandon)
        s->abandon_at = (uint32_t)(load_random(&run->state) % o->output_tokens);
    s->n_head = (size_t)snprintf(s->head, sizeof s->head,
                                 "POST /execute HTTP/1.1\r\nHost: %s\r\nContent-Type: "
                                 "application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                                 o->host, strlen(s->body));
    s->buffer = malloc(STREAM_BUFFER);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    s->begun = s->heard = load_now();
    run->open[run->n_open++] = index;
    if (!other && ++run->n_measured > run->r->most_streams) run->r->most_streams = run->n_measured;
    if (!s->buffer || s->fd < 0) {
        fail_stream(run, s, s->buffer ? strerror(errno) : "out of memory");
        return;
    }
    const int one = 1, small = 2048;
    (void)setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (other && o->stalled)
        (void)setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small); /* so that the server feels it soon */
    if (connect(s->fd, (const struct sockaddr *)&o->address, sizeof o->address) != 0 && errno != EINPROGRESS)
        fail_stream(run, s, strerror(errno));
    else if (!watch(run, s, EPOLLOUT, true))
        fail_stream(run, s, strerror(errno));
}

/* Sends what is left of head and body. */
static void push(struct run *run, struct stream *s)
{
    const size_t n_body = strlen(s->body), all = s->n_head + n_body;
    while (s->sent < all) {
        const char *from = s->sent < s->n_head ? s->head + s->sent : s->body + (s->sent - s->n_head);
        const size_t n = s->sent < s->n_head ? s->n_head - s->sent : all - s->sent;
        const ssize_t k = send(s->fd, from, n, MSG_NOSIGNAL | (s->sent < s->n_head ? MSG_MORE : 0));
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (k < 0) { /* refused before it was read? then an answer may still be there */
            if (errno == EPIPE || errno == ECONNRESET) break;
            fail_stream(run, s, strerror(errno));
            return;
        }
        s->sent += (size_t)k;
    }
    s->phase = STREAM_HEAD;
    (void)watch(run, s, EPOLLIN, false);
}

static void pull(struct run *run, struct stream *s)
{
    char bytes[1 << 14];
    if (s->other && !s->answered) {
        s->answered = true;
        run->r->others_open++;
    }
    if (s->other && run->o->stalled) { /* from here on nobody reads */
        (void)epoll_ctl(run->epoll, EPOLL_CTL_DEL, s->fd, NULL);
        return;
    }
    for (int reads = 0; reads < 8; reads++) { /* then the others' turn */
        const ssize_t k = recv(s->fd, bytes, sizeof bytes, 0);
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        const double now = load_now();
        if (k > 0)
            stream_take(s, bytes, (size_t)k, now);
        else
            stream_closed(s, k < 0, now);
        if (s->end != STREAM_OPEN) {
            close_stream(run, s);
            return;
        }
    }
}

/* ---- all of them --------------------------------------------------------------------------------------- */

/* Opens what is due, and says by the timer when the next is. */
static void open_due(struct run *run)
{
    const struct load_options *o = run->o;
    while (run->next < o->requests && run->n_measured < o->concurrency && (o->rate <= 0 || load_now() >= run->due)) {
        open_stream(run, run->next++, false);
        if (o->rate > 0) run->due += -log(load_uniform(&run->state)) / o->rate;
    }
    if (o->rate <= 0 || run->next >= o->requests) return;
    const double wait = run->due - load_now();
    const struct itimerspec t = { .it_value = { .tv_sec = wait > 0 ? (time_t)wait : 0,
                                                .tv_nsec = wait > 0 ? (long)((wait - floor(wait)) * 1e9) + 1 : 1 } };
    (void)timerfd_settime(run->timer, 0, &t, NULL);
}

static void give_up(struct run *run, double now)
{
    for (uint32_t i = run->n_open; i-- > 0;) {
        struct stream *s = &run->streams[run->open[i]];
        if (!(s->other && run->o->stalled) && now - s->heard > run->o->timeout) fail_stream(run, s, "timeout");
    }
}

static void turn(struct run *run)
{
    struct epoll_event events[512];
    const int n = epoll_wait(run->epoll, events, 512, 100);
    for (int i = 0; i < n; i++) {
        struct stream *s = events[i].data.ptr;
        if (!s) {
            uint64_t times;
            (void)!read(run->timer, &times, sizeof times);
        } else if (s->fd >= 0 && s->phase == STREAM_CONNECT) {
            int error = 0;
            socklen_t size = sizeof error;
            (void)getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &size);
            if (error)
                fail_stream(run, s, strerror(error));
            else
                push(run, s);
        } else if (s->fd >= 0) {
            pull(run, s);
        }
    }
}

/* Until the server has answered all of them or ten seconds have passed. */
static void open_others(struct run *run)
{
    const struct load_options *o = run->o;
    for (uint32_t i = 0; i < o->others; i++) open_stream(run, o->requests + i, true);
    for (const double until = load_now() + 10; run->r->others_open < o->others && load_now() < until;) turn(run);
}

static bool enough_files(uint32_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= (rlim_t)wanted + 16) return true;
    (void)fprintf(stderr, "load: %u streams want more open files than ulimit -n allows (%llu)\n", wanted,
                  (unsigned long long)limit.rlim_cur);
    return false;
}

bool load_run(const struct load_options *o, const struct bodies *bodies, struct results *out)
{
    const uint32_t all = o->requests + o->others;
    struct run run = { .o = o,
                       .bodies = bodies,
                       .r = out,
                       .state = o->seed ^ 0x6c6f6164,
                       .streams = calloc(all, sizeof *run.streams),
                       .open = calloc(all, sizeof *run.open) };
    *out = (struct results){ 0 };
    run.epoll = epoll_create1(EPOLL_CLOEXEC);
    run.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL };
    bool good = run.streams && run.open && run.epoll >= 0 && run.timer >= 0 &&
                epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.timer, &e) == 0;
    if (!good) (void)fprintf(stderr, "load: cannot begin: %s\n", strerror(errno));
    good = good && enough_files((o->concurrency < o->requests ? o->concurrency : o->requests) + o->others);
    if (good) {
        open_others(&run);
        const double begun = run.due = load_now();
        for (double looked = begun; run.next < o->requests || run.n_measured;) {
            open_due(&run);
            turn(&run);
            if (load_now() - looked < 0.5) continue;
            looked = load_now();
            give_up(&run, looked);
        }
        out->seconds = load_now() - begun;
        while (run.n_open) close_stream(&run, &run.streams[run.open[0]]);
    }
    if (run.epoll >= 0) (void)close(run.epoll);
    if (run.timer >= 0) (void)close(run.timer);
    free(run.streams);
    free(run.open);
    return good;
}
