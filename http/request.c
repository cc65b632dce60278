/* request.c: a connection's life: its head is looked at in the socket, judged, given to CivetWeb to parse, routed; its
 * body read with a deadline. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include <civetweb.h>

#include "internal.h"

enum {
    CALM_ROUNDS = 2,
    CALM_MS = 10, /* a head that comes in more pieces than this is looked at every 10 ms: dripping bytes buys no
                     processor time */
    SLICE_MS = 50,
    PRESSED_BODY_MS = 1000,
    PRESSED_BODY_RATE =
        65536, /* bytes a second that a body must come with while no thread is free, after its first second */
    BUFFERED_MAX = 32768, /* more than CivetWeb can have read ahead */
    LARGE = 1 << 20,      /* a request that had so much memory has the system given back what is free */
    BODY_STEP =
        256 << 10, /* memory is taken as a body comes: who only says that much will come takes none from others */
};

struct http_request *request_new(struct http_server *s, struct mg_connection *c, int fd)
{
    struct http_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->s = s;
    r->connection = c;
    r->fd = fd;
    r->begun_ns = http_now_ns();
    r->unread = true;
    (void)snprintf(r->method, sizeof r->method, "-");
    (void)snprintf(r->path, sizeof r->path, "-");
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        free(r);
        return NULL;
    }
    for (size_t i = 0; i < sizeof random; i++) (void)snprintf(r->id + 2 * i, 3, "%02x", random[i]);
    return r;
}

void request_free(struct http_request *r)
{
    if (!r) return;
    free(r->rest);
    free(r->judged);
    http_text_free(&r->extra);
    free(r->body);
    atomic_fetch_sub(&r->s->reserved, r->reserved);
    if (r->reserved >= LARGE)
        (void)malloc_trim(0); /* of pages between what is still in use; server.c has set what happens to the others */
    free(r);
}

/* ---- the guards ---------------------------------------------------------------------------------------- */

static bool no_thread_free(const struct http_server *s)
{
    return atomic_load_explicit(&s->connections, memory_order_relaxed) >= s->n_threads;
}

/* Waits until more than `have` bytes lie in the socket. 1: they may; 0: the time for the header is over; -1: no more
 * can come. */
static int wait_for_more(const struct http_request *r, size_t have, unsigned round)
{
    const int more = (int)have + 1;
    (void)setsockopt(r->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof more);
    if (round > CALM_ROUNDS) (void)nanosleep(&(struct timespec){ 0, CALM_MS * 1000000 }, NULL);
    for (;;) {
        const uint64_t age = (http_now_ns() - r->begun_ns) / 1000000;
        uint64_t patience = r->s->o.header_ms;
        if (patience > HTTP_PRESSED_MS && (no_thread_free(r->s) || atomic_load(&r->s->closing)))
            patience = HTTP_PRESSED_MS;
        if (age >= patience) return 0;
        const uint64_t left = patience - age;
        struct pollfd p = { .fd = r->fd, .events = POLLIN | POLLRDHUP };
        const int ready = poll(&p, 1, (int)(left < SLICE_MS ? left : SLICE_MS));
        if (ready < 0 && errno != EINTR) return -1;
        if (ready > 0) return p.revents & (POLLRDHUP | POLLHUP | POLLERR) ? -1 : 1;
    }
}

/* Reads ahead, without taking anything from the socket, until the guard knows. What comes together with the end of a
 * client's side is judged as well. */
static enum guard_verdict judge(struct http_request *r, char *head, size_t cap)
{
    size_t have = 0;
    int more = 1;
    for (unsigned round = 0;; round++) {
        const ssize_t n = recv(r->fd, head, cap, MSG_PEEK | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) break;
        if (n > 0 && (size_t)n > have) {
            have = (size_t)n;
            const enum guard_verdict v = guard_check(head, have, &r->guard);
            if (v != GUARD_MORE) return v;
        }
        if (more <= 0) {
            if (!have) break; /* a connection that asked for nothing is owed nothing */
            r->guard.status = more < 0 ? 400 : 408;
            r->guard.reason = more < 0 ? "the request ends before its header does" : "the header took too long";
            return GUARD_REFUSE;
        }
        more = wait_for_more(r, have, round);
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
    for (uint32_t i = 0; i < r->s->o.n_origins; i++)
        if (!strcasecmp(r->s->o.origins[i], r->origin)) return true;
    return false;
}

static bool host_allowed(const struct http_request *r)
{
    if (!r->s->loopback || guard_loopback(r->guard.host)) return true;
    for (uint32_t i = 0; i < r->s->o.n_hosts; i++) {
        const size_t n = strlen(r->s->o.hosts[i]);
        if (!strncasecmp(r->host, r->s->o.hosts[i], n) && (!r->host[n] || r->host[n] == ':')) return true;
    }
    return false;
}

bool request_vet(struct http_request *r)
{
    char head[GUARD_HEAD_MAX];
    const enum guard_verdict v = judge(r, head, sizeof head);
    (void)setsockopt(r->fd, SOL_SOCKET, SO_RCVLOWAT, &(int){ 1 }, sizeof(int));
    if (v == GUARD_MORE) return false;
    if (v == GUARD_REFUSE) {
        answer_refusal(r, r->guard.status, r->guard.reason);
        return false;
    }
    r->judged = malloc(r->guard.head);
    if (!r->judged) return false;
    memcpy(r->judged, head, r->guard.head);
    r->in = r->guard.head;
    copy_span(r->method, sizeof r->method, r->guard.method);
    copy_span(r->path, sizeof r->path, r->guard.target);
    r->path[strcspn(r->path, "?")] = 0;
    copy_span(r->host, sizeof r->host, r->guard.host);
    copy_span(r->origin, sizeof r->origin, r->guard.origin);
    r->head = !strcmp(r->method, "HEAD");
    r->vetted = host_allowed(r);
    if (!r->vetted)
        answer_refusal(r, 421, "Host names another machine; this server is bound to a loopback address");
    else if (r->guard.origin.at && !origin_allowed(r)) {
        r->vetted = false;
        answer_refusal(r, 403, "requests from pages of this origin are not allowed");
    }
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
static void allowed_methods(const struct http_request *r, char out[128])
{
    static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE" };
    size_t n = 0;
    out[0] = 0;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        for (uint32_t i = 0; i < r->s->n_routes; i++) {
            if (!path_matches(&r->s->routes[i], r->path) || !method_matches(&r->s->routes[i], methods[m])) continue;
            n += (size_t)snprintf(out + n, 128 - n, "%s, ", methods[m]);
            break;
        }
    }
    if (n) (void)snprintf(out + n, 128 - n, "OPTIONS");
}

static void answer_options(struct http_request *r, const char *allow)
{
    http_extra(r, "Allow", allow);
    if (r->origin[0] && mg_get_header(r->connection, "Access-Control-Request-Method")) {
        http_extra(r, "Access-Control-Allow-Methods", allow);
        http_extra(r, "Access-Control-Allow-Headers",
                   "Authorization, Content-Type, X-Deadline, X-Request-Id, Traceparent, OpenAI-Organization, "
                   "OpenAI-Project, X-Stainless-Arch, X-Stainless-Lang, "
                   "X-Stainless-OS, X-Stainless-Package-Version, X-Stainless-Retry-Count, X-Stainless-Runtime, "
                   "X-Stainless-Runtime-Version, X-Stainless-Timeout"); /* what OpenAI's clients send */
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
    const char *id = mg_get_header(r->connection, "X-Request-Id");
    if (!id) return;
    const size_t n = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
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

static bool take_slot(struct http_request *r)
{
    r->slot = atomic_fetch_add(&r->s->streams, 1) < r->s->o.max_streams;
    if (r->slot) return true;
    atomic_fetch_sub(&r->s->streams, 1);
    atomic_fetch_add(&r->s->streams_refused, 1);
    char text[96];
    (void)snprintf(text, sizeof text, "%u of these requests are under way, as many as may be at once",
                   r->s->o.max_streams);
    http_error(
        r, &(struct http_failure){
               .status = 429, .code = "QUEUE_FULL", .message = r->s->o.full ? r->s->o.full : text, .retriable = true });
    return false;
}

static void call_handler(struct http_request *r)
{
    struct http_server *s = r->s;
    atomic_fetch_add(&s->handlers, 1);
    if (atomic_load(&s->closing)) {
        http_error(
            r, &(struct http_failure){
                   .status = 503, .code = "NOT_READY", .message = "the server is shutting down", .retriable = true });
    } else if (!r->route->stream || take_slot(r)) {
        atomic_fetch_add(&s->requests, 1);
        r->route->handle(s->user, r);
        if (r->gone && !r->answered)
            r->status = 499; /* nobody is there to be answered */
        else if (!r->answered)
            http_error(r,
                       &(struct http_failure){ .status = 500, .code = "INTERNAL", .message = "nothing was answered" });
        if (r->slot) atomic_fetch_sub(&s->streams, 1);
    }
    atomic_fetch_sub(&s->handlers, 1);
}

/* CivetWeb must have read the very request that was judged: not one that it understands otherwise, nor another
 * connection's. */
static bool parsed_as_judged(struct http_request *r)
{
    const char *names[GUARD_HEADERS_MAX], *values[GUARD_HEADERS_MAX];
    const struct mg_request_info *i = r->info;
    bool same = i->num_headers >= 0 && i->num_headers <= GUARD_HEADERS_MAX;
    for (int k = 0; same && k < i->num_headers; k++) {
        names[k] = i->http_headers[k].name;
        values[k] = i->http_headers[k].value;
    }
    same = same && guard_agrees(r->judged, r->guard.head,
                                &(struct guard_parsed){ .method = i->request_method,
                                                        .target = i->request_uri,
                                                        .query = i->query_string,
                                                        .version = i->http_version,
                                                        .names = names,
                                                        .values = values,
                                                        .n = (size_t)i->num_headers });
    free(r->judged);
    r->judged = NULL;
    return same;
}

static void refuse_path(struct http_request *r)
{
    const char *text = r->s->o.unknown ? r->s->o.unknown(r->path) : NULL;
    answer_refusal(r, 404, text ? text : "there is no such path; GET /openapi.json names those there are");
}

int request_serve(struct http_request *r, const struct mg_request_info *info)
{
    r->info = info;
    if (!parsed_as_judged(r)) {
        answer_refusal(r, 400, "the request is understood in two ways");
        answer_end(r);
        return r->status;
    }
    take_id(r);
    take_trace(r);
    if (!r->guard.sized || !r->guard.length) r->unread = false;
    char allow[128];
    r->route = find_route(r);
    if (r->route) {
        const size_t n = strlen(r->route->path), length = strlen(r->path);
        if (length > n) {
            r->rest = malloc(length - n + 1);
            if (!r->rest)
                http_error(r, &(struct http_failure){ .status = 500, .code = "INTERNAL", .message = "out of memory" });
            else
                (void)guard_decode(r->path + n, length - n, r->rest);
        }
        if (!r->answered) call_handler(r);
    } else {
        allowed_methods(r, allow);
        if (allow[0] && !strcmp(r->method, "OPTIONS"))
            answer_options(r, allow);
        else if (allow[0]) {
            http_extra(r, "Allow", allow);
            answer_refusal(r, 405, "this path does not serve this method");
        } else
            refuse_path(r);
    }
    answer_end(r);
    return r->status;
}

/* ---- what a handler asks ------------------------------------------------------------------------------- */

const char *http_path(const struct http_request *r) { return r->path; }
const char *http_rest(const struct http_request *r) { return r->rest ? r->rest : ""; }
const char *http_header(const struct http_request *r, const char *name) { return mg_get_header(r->connection, name); }
const char *http_id(const struct http_request *r) { return r->id; }

/* ---- the body ------------------------------------------------------------------------------------------ */

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    if (!type || strncasecmp(type, json, sizeof json - 1)) return false;
    const char *rest = type + sizeof json - 1;
    return !rest[strspn(rest, " ")] || rest[strspn(rest, " ")] == ';';
}

/* Is there more to come in time? Answers when not. */
static bool wait_for_body(struct http_request *r, uint64_t from_ns, size_t got)
{
    const uint64_t limit = from_ns + (uint64_t)r->s->o.body_ms * 1000000;
    for (;;) {
        const uint64_t now = http_now_ns(), age_ms = (now - from_ns) / 1000000;
        const bool dawdles =
            no_thread_free(r->s) && age_ms > PRESSED_BODY_MS && got < PRESSED_BODY_RATE * age_ms / 1000;
        if (now >= limit || dawdles) {
            answer_refusal(r, 408, "the body took too long");
            return false;
        }
        const uint64_t slice = now + (uint64_t)SLICE_MS * 1000000;
        if (socket_wait(r, POLLIN, slice < limit ? slice : limit)) return true;
        if (atomic_load(&r->s->closing)) {
            http_error(r, &(struct http_failure){ .status = 503,
                                                  .code = "NOT_READY",
                                                  .message = "the server is shutting down",
                                                  .retriable = true });
            return false;
        }
    }
}

/* CivetWeb has read what came together with the header; once that is taken, the rest is in the socket. Its own deadline
 * is 1 ms: it does not wait. */
static bool read_body(struct http_request *r, char *data, size_t size)
{
    const uint64_t from = http_now_ns();
    size_t room = size < BODY_STEP ? size : BODY_STEP;
    if (!http_reserve(r, room)) return false;
    const int buffered = mg_read(r->connection, data, size < BUFFERED_MAX ? size : BUFFERED_MAX);
    size_t got = buffered > 0 ? (size_t)buffered : 0;
    while (got < size) {
        const size_t step = size - room < BODY_STEP ? size - room : BODY_STEP;
        if (got == room) {
            if (!http_reserve(r, step)) return false;
            room += step;
        }
        const ssize_t n = recv(r->fd, data + got, room - got, MSG_DONTWAIT);
        if (n > 0) {
            got += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for_body(r, from, got)) return false;
            continue;
        }
        if (n == 0) answer_refusal(r, 400, "the body is shorter than Content-Length says");
        r->gone = n < 0 || r->gone;
        return false;
    }
    r->in += size;
    r->unread = false;
    return true;
}

/* Out of what all requests of a server together may have. */
static bool take_room(struct http_request *r, size_t bytes)
{
    if (atomic_fetch_add(&r->s->reserved, bytes) + bytes <= r->s->o.memory) {
        r->reserved += bytes;
        return true;
    }
    atomic_fetch_sub(&r->s->reserved, bytes);
    return false;
}

bool http_reserve(struct http_request *r, size_t bytes)
{
    char text[96];
    if (bytes > r->s->o.memory) {
        (void)snprintf(text, sizeof text, "the request would take %zu MiB of memory; at most %" PRIu64 " are given",
                       bytes >> 20, r->s->o.memory >> 20);
        answer_refusal(r, 413, text);
        return false;
    }
    if (take_room(r, bytes)) return true;
    http_error(r, &(struct http_failure){ .status = 503,
                                          .code = "NOT_READY",
                                          .message = "there is no memory for a request of this size now",
                                          .retriable = true });
    return false;
}

bool http_body(struct http_request *r, size_t most, bool json, const char **bytes, size_t *n)
{
    const char *coding = http_header(r, "Content-Encoding");
    const size_t size = (size_t)r->guard.length;
    *bytes = "";
    *n = 0;
    if (size > most) {
        char text[96];
        (void)snprintf(text, sizeof text, "the body has %zu bytes; at most %zu are taken", size, most);
        answer_refusal(r, 413, text);
        return false;
    }
    if (coding && strcasecmp(coding, "identity")) {
        answer_refusal(r, 415, "a body with a Content-Encoding is not taken");
        return false;
    }
    if (!size) return true;
    if (json && !is_json(http_header(r, "Content-Type"))) {
        answer_refusal(r, 415, "the body must be JSON, and Content-Type say so: application/json");
        return false;
    }
    r->body = malloc(size + 1); /* addresses: what has not come yet takes no memory, and none of what others may have */
    if (!r->body) {
        http_error(r, &(struct http_failure){ .status = 503,
                                              .code = "NOT_READY",
                                              .message = "there is no memory for a body of this size now",
                                              .retriable = true });
        return false;
    }
    r->body[size] = 0;
    if (r->guard.expects && !r->guard.old) {
        char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        if (!socket_send(r, &(struct iovec){ go_on, sizeof go_on - 1 }, 1, true)) return false;
    }
    if (!read_body(r, r->body, size)) return false;
    *bytes = r->body;
    *n = size;
    return true;
}
