/* request.c: a connection's life: TLS's handshake, if there is TLS; then each head is looked at where it lies, judged,
 * taken and routed; the connection goes on behind a whole answer if the client asked for that. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum {
    CALM_ROUNDS = 2,
    CALM_MS = 10,        /* a head that comes in more pieces than this is looked at every 10 ms: dripping bytes buys no
                            processor time */
    CALM_HANDSHAKE = 16, /* and a handshake: certificates of a client are many */
    SLICE_MS = 50,
    ALLOW_BYTES = 128
};

/* ---- a request's memory -------------------------------------------------------------------------------- */

static struct http_request *request_new(struct http_server *s, int fd, struct tls_link *tls)
{
    struct http_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->s = s;
    r->fd = fd;
    r->tls = tls;
    r->begun_ns = http_now_ns();
    r->unread = true;
    (void)snprintf(r->method, sizeof r->method, "-");
    (void)snprintf(r->path, sizeof r->path, "-");
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        free(r);
        return NULL;
    }
    for (size_t i = 0; i < sizeof random; i++) {
        static const char hex[] = "0123456789abcdef";
        r->id[2 * i] = hex[random[i] >> 4];
        r->id[2 * i + 1] = hex[random[i] & 15];
    }
    return r;
}

static void request_free(struct http_request *r)
{
    body_free(r);
    free(r->rest);
    if (r->bytes) explicit_bzero(r->bytes, r->guard.head); /* a key is in it */
    free(r->bytes);
    http_text_free(&r->extra);
    free(r);
}

/* ---- the guards ---------------------------------------------------------------------------------------- */

bool request_no_thread_free(const struct http_server *s)
{
    return atomic_load_explicit(&s->connections, memory_order_relaxed) >= s->n_threads;
}

/* Waits for events of a connection whose first or next head is not whole. 1: they came; 0: the time for the header is
 * over; -1: no more can come. */
static int wait_for_head(const struct http_server *s, int fd, short events, uint64_t begun_ns)
{
    for (;;) {
        const uint64_t age = (http_now_ns() - begun_ns) / 1000000;
        uint64_t patience = s->o.header_ms;
        if (patience > HTTP_PRESSED_MS && (request_no_thread_free(s) || atomic_load(&s->closing)))
            patience = HTTP_PRESSED_MS;
        if (age >= patience) return 0;
        const uint64_t left = patience - age;
        struct pollfd p = { .fd = fd, .events = events };
        const int ready = poll(&p, 1, (int)(left < SLICE_MS ? left : SLICE_MS));
        if (ready < 0 && errno != EINTR) return -1;
        if (ready > 0) return p.revents & (POLLRDHUP | POLLHUP | POLLERR) ? -1 : 1;
    }
}

static void calm_down(unsigned round, unsigned most)
{
    if (round > most) (void)nanosleep(&(struct timespec){ 0, CALM_MS * 1000000 }, NULL);
}

/* Waits until more than `have` bytes can be seen; as wait_for_head. The end of TLS's bytes is found by reading them. */
static int wait_for_more(const struct http_request *r, size_t have, unsigned round)
{
    const int more = (int)have + 1;
    if (r->tls && tls_ended(r->tls)) return -1;
    if (!r->tls) (void)setsockopt(r->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof more);
    calm_down(round, CALM_ROUNDS);
    return wait_for_head(r->s, r->fd, r->tls ? tls_events(r->tls, POLLIN) : POLLIN | POLLRDHUP, r->begun_ns);
}

/* Reads ahead, without taking anything, until the guard knows. What comes together with the end of a
 * client's side is judged as well. *have: bytes that were seen. */
static enum guard_verdict judge(struct http_request *r, char *head, size_t cap, size_t *have)
{
    int more = 1;
    *have = 0;
    for (unsigned round = 0;; round++) {
        const ssize_t n = socket_peek(r, head, cap);
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) break;
        if (n > 0 && (size_t)n > *have) {
            *have = (size_t)n;
            const enum guard_verdict v = guard_check(head, *have, &r->guard);
            if (v != GUARD_MORE) return v;
        }
        if (more <= 0) {
            if (!*have) break; /* a connection that asked for nothing is owed nothing */
            r->guard.status = more < 0 ? 400 : 408;
            r->guard.reason = more < 0 ? "the request ends before its header does" : "the header took too long";
            return GUARD_REFUSE;
        }
        more = wait_for_more(r, *have, round);
    }
    r->gone = true;
    return GUARD_MORE;
}

static void copy_span(char *out, size_t cap, struct guard_span span)
{
    const size_t n = span.n < cap - 1 ? span.n : cap - 1;
    if (n) memcpy(out, span.at, n);
    out[n] = 0;
}

/* A page of this server itself: its origin is what Host says. */
static bool origin_allowed(const struct http_request *r)
{
    const char *after = strstr(r->origin, "://");
    if (after && !strcasecmp(after + 3, r->host) &&
        (!strncmp(r->origin, "http:", 5) || !strncmp(r->origin, "https:", 6)))
        return true;
    return names_listed((struct guard_span){ r->origin, strlen(r->origin) }, r->s->o.origins, r->s->o.n_origins);
}

static bool host_allowed(const struct http_request *r)
{
    if (!r->guard.host.at) return true; /* HTTP/1.0 without one: no browser sends that */
    const struct guard_span name = names_of_host(r->guard.host);
    static const char *const localhost[] = { "localhost" };
    return names_address(name) || names_listed(name, localhost, 1) ||
           names_listed(name, (const char *const *)r->s->own, r->s->n_own) ||
           names_listed(name, r->s->o.hosts, r->s->o.n_hosts);
}

static bool changes_state(const struct http_request *r)
{
    return strcmp(r->method, "GET") != 0 && !r->head && strcmp(r->method, "OPTIONS") != 0;
}

/* Who asks, as far as a browser tells. False: answered. */
static bool asker_allowed(struct http_request *r)
{
    if (!host_allowed(r)) {
        answer_refusal(r, 421,
                       "Host is no name of this worker: an address, localhost or this machine's name is; others are "
                       "allowed by --allowed-host NAME");
        return false;
    }
    if (r->guard.origin.at && !origin_allowed(r)) {
        answer_refusal(r, 403, "requests from pages of this origin are not allowed; --origin allows some");
        return false;
    }
    if (!r->guard.origin.at && r->guard.cross_site && changes_state(r)) {
        answer_refusal(r, 403, "requests from pages of other sites are not allowed (Sec-Fetch-Site: cross-site)");
        return false;
    }
    return true;
}

static void allowed_methods(const struct http_request *r, char out[ALLOW_BYTES]);

static void refuse_head(struct http_request *r, const char *head, size_t have)
{
    char path[GUARD_TARGET_MAX + 1], allow[ALLOW_BYTES];
    copy_span(r->asked, sizeof r->asked, guard_path(head, have));
    if (r->guard.status == 405) { /* the log has no path of what was refused; Allow needs it */
        copy_span(path, sizeof path, r->guard.target);
        path[strcspn(path, "?")] = 0;
        memcpy(r->path, path, sizeof path);
        allowed_methods(r, allow);
        (void)snprintf(r->path, sizeof r->path, "-");
        http_extra(r, "Allow", allow[0] ? allow : "GET, HEAD, POST, OPTIONS");
    }
    answer_refusal(r, r->guard.status, r->guard.reason);
}

/* The head, taken; false: no memory, or nobody is there. */
static bool take_head(struct http_request *r)
{
    const size_t n = r->guard.head;
    r->bytes = malloc(n + 1);
    if (!r->bytes || !socket_take(r, r->bytes, n)) {
        r->gone = true;
        return false;
    }
    r->bytes[n] = 0;
    r->in = n;
    r->n_headers = guard_cut(r->bytes, n, r->headers);
    return true;
}

/* Reads ahead, judges, and answers what does not pass. */
static bool vet(struct http_request *r)
{
    char head[GUARD_HEAD_MAX];
    size_t have;
    const enum guard_verdict v = judge(r, head, sizeof head, &have);
    if (!r->tls) (void)setsockopt(r->fd, SOL_SOCKET, SO_RCVLOWAT, &(int){ 1 }, sizeof(int));
    if (v == GUARD_REFUSE) refuse_head(r, head, have);
    if (v != GUARD_PASS || !take_head(r)) return false;
    copy_span(r->method, sizeof r->method, r->guard.method);
    copy_span(r->path, sizeof r->path, r->guard.target);
    r->path[strcspn(r->path, "?")] = 0;
    copy_span(r->host, sizeof r->host, r->guard.host);
    copy_span(r->origin, sizeof r->origin, r->guard.origin);
    r->head = !strcmp(r->method, "HEAD");
    copy_span(r->asked, sizeof r->asked, guard_path(head, have));
    r->unread = r->guard.chunked || r->guard.length;
    r->vetted = asker_allowed(r);
    r->guard.method = r->guard.target = r->guard.host = r->guard.origin = (struct guard_span){ 0 };
    return r->vetted;
}

/* ---- routes -------------------------------------------------------------------------------------------- */

static bool path_matches(const struct http_route *route, const char *path)
{
    const size_t n = strlen(route->path);
    return n > 1 && route->path[n - 1] == '/' ? !strncmp(path, route->path, n) : !strcmp(path, route->path);
}

static bool method_matches(const struct http_route *route, const char *method)
{
    return !strcmp(route->method, method) || (!strcmp(method, "HEAD") && !strcmp(route->method, "GET"));
}

/* The methods of a path, for Allow; empty: there is no such path. */
static void allowed_methods(const struct http_request *r, char out[ALLOW_BYTES])
{
    static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE" };
    size_t n = 0;
    out[0] = 0;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        for (uint32_t i = 0; i < r->s->n_routes; i++) {
            if (!path_matches(&r->s->routes[i], r->path) || !method_matches(&r->s->routes[i], methods[m])) continue;
            n += (size_t)snprintf(out + n, ALLOW_BYTES - n, "%s, ", methods[m]);
            break;
        }
    }
    if (n) (void)snprintf(out + n, ALLOW_BYTES - n, "OPTIONS");
}

/* Names of headers and commas: what a preflight asks for, and may be told back. */
static bool is_list_of_names(const char *text)
{
    return text[0] && !text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|"
                                         "~, ")];
}

static void answer_options(struct http_request *r, const char *allow)
{
    const char *asked = http_header(r, "Access-Control-Request-Headers");
    http_extra(r, "Allow", allow);
    if (r->origin[0] && http_header(r, "Access-Control-Request-Method")) {
        http_extra(r, "Access-Control-Allow-Methods", allow);
        if (asked && is_list_of_names(asked)) http_extra(r, "Access-Control-Allow-Headers", asked);
        http_extra(r, "Access-Control-Max-Age", "600");
    }
    http_answer(r, 204, NULL, NULL, 0);
}

static const struct http_route *find_route(const struct http_request *r)
{
    const struct http_route *best = NULL;
    for (uint32_t i = 0; i < r->s->n_routes; i++) {
        const struct http_route *route = &r->s->routes[i];
        if (path_matches(route, r->path) && method_matches(route, r->method) &&
            (!best || strlen(route->path) > strlen(best->path)))
            best = route;
    }
    return best;
}

static void take_id(struct http_request *r)
{
    const char *id = http_header(r, "X-Request-Id");
    if (!id) return;
    const size_t n = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-");
    if (n && n <= HTTP_ID_MAX && !id[n]) memcpy(r->id, id, n + 1);
}

/* n digits of lower-case hexadecimal at text, not all of them 0. */
static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n && strspn(text, "0") < n;
}

/* 00-TRACE-PARENT-FLAGS. What other versions mean nobody knows yet: their first four fields are the same. */
static void take_trace(struct http_request *r)
{
    const char *t = http_header(r, "traceparent");
    const size_t n = t ? strlen(t) : 0;
    if (n < HTTP_TRACE_BYTES || t[2] != '-' || t[35] != '-' || t[52] != '-' || !is_hex(t + 3, 32) ||
        !is_hex(t + 36, 16) || strspn(t, "0123456789abcdef") != 2 || strspn(t + 53, "0123456789abcdef") < 2 ||
        memcmp(t, "ff", 2) == 0 ||
        (memcmp(t, "00", 2) == 0 ? n != HTTP_TRACE_BYTES : t[HTTP_TRACE_BYTES] && t[HTTP_TRACE_BYTES] != '-'))
        return;
    memcpy(r->trace, t, HTTP_TRACE_BYTES);
}

const char *http_trace(const struct http_request *r) { return r->trace[0] ? r->trace : NULL; }

bool request_take_slot(struct http_request *r)
{
    if (r->slot) return true;
    r->slot = atomic_fetch_add(&r->s->streams, 1) < r->s->o.max_streams;
    if (!r->slot) atomic_fetch_sub(&r->s->streams, 1);
    return r->slot;
}

static void refuse_slot(struct http_request *r)
{
    char text[96];
    atomic_fetch_add(&r->s->streams_refused, 1);
    (void)snprintf(text, sizeof text, "%u of these requests are under way, as many as may be at once",
                   r->s->o.max_streams);
    http_error(
        r, &(struct http_failure){
               .status = 429, .code = "QUEUE_FULL", .message = r->s->o.full ? r->s->o.full : text, .retriable = true });
}

static void call_handler(struct http_request *r)
{
    struct http_server *s = r->s;
    atomic_fetch_add(&s->handlers, 1);
    if (atomic_load(&s->closing)) {
        answer_busy(r, "the server is shutting down");
    } else if (s->o.admit && !s->o.admit(s->user, r, r->route)) {
        atomic_fetch_add(&s->refused, 1);
    } else if (r->route->stream && !request_take_slot(r)) {
        refuse_slot(r);
    } else {
        atomic_fetch_add(&s->requests, 1);
        r->route->handle(s->user, r);
        if (r->gone && !r->answered)
            r->status = 499; /* nobody is there to be answered */
        else if (!r->answered)
            http_error(r,
                       &(struct http_failure){ .status = 500, .code = "INTERNAL", .message = "nothing was answered" });
        if (r->slot) atomic_fetch_sub(&s->streams, 1);
    }
    if (s->o.over) s->o.over(s->user, r);
    atomic_fetch_sub(&s->handlers, 1);
}

static bool take_rest(struct http_request *r)
{
    const size_t n = strlen(r->route->path), length = strlen(r->path);
    if (length <= n) return true;
    r->rest = malloc(length - n + 1);
    if (r->rest)
        (void)guard_decode(r->path + n, length - n, r->rest);
    else
        http_error(r, &(struct http_failure){ .status = 500, .code = "INTERNAL", .message = "out of memory" });
    return r->rest;
}

static void refuse_path(struct http_request *r)
{
    const char *text = r->s->o.unknown ? r->s->o.unknown(r->path) : NULL;
    answer_refusal(r, 404, text ? text : "there is no such path; GET /openapi.json names those there are");
}

static void serve(struct http_request *r)
{
    char allow[ALLOW_BYTES];
    take_id(r);
    take_trace(r);
    r->route = find_route(r);
    if (r->route) {
        if (take_rest(r)) call_handler(r);
        return;
    }
    allowed_methods(r, allow);
    if (allow[0] && !strcmp(r->method, "OPTIONS")) {
        answer_options(r, allow);
    } else if (allow[0]) {
        char text[ALLOW_BYTES + 64];
        (void)snprintf(text, sizeof text, "this path does not serve this method; it serves %s", allow);
        http_extra(r, "Allow", allow);
        answer_refusal(r, 405, text);
    } else {
        refuse_path(r);
    }
}

/* ---- connections --------------------------------------------------------------------------------------- */

/* Half of the reserve is kept free of connections that only wait for their next request. */
bool connection_is_pressed(const struct http_server *s)
{
    return atomic_load(&s->connections) + (s->o.reserve + 1) / 2 > s->n_threads;
}

void connection_press(struct http_server *s)
{
    const uint64_t one = 1;
    if (connection_is_pressed(s) && atomic_load(&s->idle) && write(s->evict, &one, sizeof one) < 0)
        return; /* there are more units in it than there can be connections */
}

/* Between two requests. False: none comes in time, or the thread is wanted. What has come already is served. */
static bool wait_for_next(struct http_server *s, int fd, const struct tls_link *tls)
{
    struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = s->evict, .events = POLLIN } };
    const uint64_t end = http_now_ns() + (uint64_t)HTTP_IDLE_MS * 1000000;
    bool comes = (tls && tls_pending(tls)) || poll(p, 1, 0) > 0, wanted = false;
    atomic_fetch_add(&s->idle, 1);
    while (!comes && !wanted && !connection_is_pressed(s) && !atomic_load(&s->closing)) {
        const uint64_t now = http_now_ns();
        uint64_t unit;
        if (now >= end || (poll(p, 2, (int)((end - now + 999999) / 1000000)) < 0 && errno != EINTR)) break;
        comes = p[0].revents;
        wanted = !comes && p[1].revents && read(s->evict, &unit, sizeof unit) == (ssize_t)sizeof unit;
    }
    atomic_fetch_sub(&s->idle, 1);
    return comes;
}

/* ---- TLS ----------------------------------------------------------------------------------------------- */

/* Somebody who does not get through the handshake: what was said to him arrives, also if he is still sending. */
static void turn_away(struct http_server *s, int fd, const char *plain, size_t n)
{
    struct http_request *r = request_new(s, fd, NULL);
    if (!r) return;
    if (n) {
        copy_span(r->asked, sizeof r->asked, guard_path(plain, n));
        answer_refusal(r, 400, "this port speaks https");
        answer_end(r);
    } else {
        atomic_fetch_add(&s->refused, 1);
        socket_finish(r);
    }
    request_free(r);
}

/* The beginning of plain HTTP, if that is what comes: TLS begins with a byte that is no letter. */
static size_t look_for_http(int fd, char *out, size_t cap)
{
    const ssize_t n = recv(fd, out, cap, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 && ((out[0] >= 'A' && out[0] <= 'Z') || (out[0] >= 'a' && out[0] <= 'z')) ? (size_t)n : 0;
}

/* NULL: there was none in time, or it failed, which the client has been told. */
static struct tls_link *shake_hands(struct http_server *s, int fd, uint64_t begun_ns)
{
    char plain[256];
    const int first = wait_for_head(s, fd, POLLIN | POLLRDHUP, begun_ns);
    const size_t n = first ? look_for_http(fd, plain, sizeof plain) : 0;
    if (n) turn_away(s, fd, plain, n);
    struct tls_link *l = first > 0 && !n ? tls_open(s->o.tls, fd) : NULL;
    if (!l) return NULL;
    enum tls_step step;
    int ready = 1;
    for (unsigned round = 0; (step = tls_accept(l)) == TLS_AGAIN && ready > 0; round++) {
        calm_down(round, CALM_HANDSHAKE);
        ready = wait_for_head(s, fd, tls_events(l, POLLIN), begun_ns);
    }
    if (step == TLS_DONE) {
        /* Nothing of ours follows the client's last message, which would acknowledge it; and many a client's socket
         * holds the request back until something does. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &(int){ 1 }, sizeof(int));
        return l;
    }
    if (step == TLS_FAILED) turn_away(s, fd, NULL, 0);
    tls_free(l);
    return NULL;
}

/* ---- all of a connection ------------------------------------------------------------------------------- */

static void serve_requests(struct http_server *s, int fd, struct tls_link *tls, uint64_t begun_ns)
{
    bool more = true;
    for (bool first = true; more && (first || wait_for_next(s, fd, tls)); first = false) {
        struct http_request *r = request_new(s, fd, tls);
        if (!r) return;
        if (first && tls) r->begun_ns = begun_ns; /* with the handshake */
        const bool passed = vet(r);
        if (passed) serve(r);
        body_free(r); /* not held while what the client still sends is awaited */
        if (passed || r->answered) answer_end(r);
        more = r->keeps && !r->gone;
        request_free(r);
    }
}

void connection_serve(struct http_server *s, int fd)
{
    if (!s->o.tls) {
        serve_requests(s, fd, NULL, 0);
        return;
    }
    const uint64_t begun_ns = http_now_ns();
    struct tls_link *tls = shake_hands(s, fd, begun_ns);
    if (!tls) return;
    serve_requests(s, fd, tls, begun_ns);
    (void)tls_end(tls);
    tls_free(tls);
}

/* ---- what a handler asks ------------------------------------------------------------------------------- */

const char *http_method(const struct http_request *r) { return r->method; }
const char *http_path(const struct http_request *r) { return r->path; }
const struct http_peer *http_peer(const struct http_request *r) { return r->tls ? tls_peer(r->tls) : NULL; }
const char *http_rest(const struct http_request *r) { return r->rest ? r->rest : ""; }
const char *http_id(const struct http_request *r) { return r->id; }
void *http_caller(struct http_request *r) { return r->caller; }
int http_status(const struct http_request *r) { return r->status; }

void http_address(const struct http_request *r, struct sockaddr_storage *out)
{
    socklen_t n = sizeof *out;
    memset(out, 0, sizeof *out);
    if (getpeername(r->fd, (struct sockaddr *)out, &n)) out->ss_family = AF_UNSPEC;
}

void http_local_address(const struct http_request *r, struct sockaddr_storage *out)
{
    socklen_t n = sizeof *out;
    memset(out, 0, sizeof *out);
    if (getsockname(r->fd, (struct sockaddr *)out, &n)) out->ss_family = AF_UNSPEC;
}

const char *http_header(const struct http_request *r, const char *name)
{
    for (size_t i = 0; i < r->n_headers; i++)
        if (!strcasecmp(r->headers[i].name, name)) return r->headers[i].value;
    return NULL;
}
