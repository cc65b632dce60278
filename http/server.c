/* server.c: CivetWeb started, asked and stopped.
 *
 * CivetWeb listens, accepts, queues and has the threads; it parses what the guards let through and calls us. Its
 * callbacks here are the only places that it enters. The first one comes when a thread has taken up a connection and
 * has not read from it: there the guards look at the bytes in the socket. At that moment CivetWeb knows the peer, but
 * gives out a connection's mg_request_info only once a request is parsed; the struct is a part of its connection,
 * though, always at the same place. Which place is learned once per process, from a request of our own to a server with
 * one thread. */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <civetweb.h>

#include "internal.h"

enum {
    QUEUE = 128,    /* connections accepted that wait for a thread; the others wait in the kernel */
    BACKLOG = 4096, /* the kernel allows net.core.somaxconn of them */
    STACK_BYTES =
        512 << 10, /* of a thread; addresses, not memory. Below 2 MiB the kernel does not back stacks with huge pages */
    REQUEST_BYTES = GUARD_HEAD_MAX + 256,
    /* What is free at the end of one of malloc's arenas goes back to the system from here on. Left alone, the limit
     * grows with what is freed, and each of the arenas (eight for each processor) keeps as much as the largest request
     * took that it ever served. */
    TRIM_BYTES = 128 << 10,
    THREADS_MAX = 16384,
    START_MS = 10000,
    CLOSE_MS = 1000,
    LAYOUT_END = 65536 /* no connection struct is as large */
};

static void sleep_ms(long ms) { (void)nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL); }

/* ---- where a connection keeps its mg_request_info ------------------------------------------------------ */

static pthread_mutex_t layout_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint info_offset; /* 0: not known yet */

/* s: a server as socket.c needs one, to see that connections can be found here at all. */
struct layout_probe {
    atomic_uint offset, peer_port;
    struct http_server s;
    atomic_bool found;
};

static int learn_layout(struct mg_connection *c)
{
    struct layout_probe *probe = mg_get_user_data(mg_get_context(c));
    const struct mg_request_info *info = mg_get_request_info(c);
    const uintptr_t at = (uintptr_t)info, from = (uintptr_t)c;
    atomic_store(&probe->peer_port, (unsigned)info->remote_port);
    if (at > from && at - from < LAYOUT_END) atomic_store(&probe->offset, (unsigned)(at - from));
    const int fd = socket_claim(&probe->s, probe->s.address, (uint16_t)info->remote_port);
    atomic_store(&probe->found, fd >= 0);
    socket_unclaim(fd);
    (void)mg_write(c, "HTTP/1.0 204 No Content\r\n\r\n", 27);
    return 204;
}

static void stop_context(struct mg_context *context, int listener)
{
    if (listener >= 0)
        (void)shutdown(
            listener, SHUT_RDWR); /* wakes CivetWeb's master thread, which would look at its flag every 2 s otherwise */
    mg_stop(context);
}

/* One request of our own; our side's port, 0: it failed. */
static uint16_t ask_probe(uint16_t port)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t own = 0;
    char answer[64];
    if (fd < 0) return 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = START_MS / 1000 },
                     sizeof(struct timeval));
    if (!connect(fd, (struct sockaddr *)&a, n) && !getsockname(fd, (struct sockaddr *)&a, &n) &&
        send(fd, request, sizeof request - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof request - 1) &&
        recv(fd, answer, sizeof answer, 0) > 0)
        own = ntohs(a.sin_port);
    (void)close(fd);
    return own;
}

static wk_status know_layout(const struct wk_err *err)
{
    static const char *options[] = { "listening_ports", "127.0.0.1:0", "num_threads", "1", NULL };
    wk_status status = WK_OK;
    (void)pthread_mutex_lock(&layout_lock);
    if (!atomic_load(&info_offset)) {
        struct layout_probe probe = { .s.address.s_addr = htonl(INADDR_LOOPBACK) };
        const struct mg_callbacks callbacks = { .begin_request = learn_layout };
        struct mg_context *context = mg_start(&callbacks, &probe, options);
        struct mg_server_port port = { 0 };
        uint16_t own = 0;
        if (context && mg_get_server_ports(context, 1, &port) == 1) {
            atomic_store(&probe.s.port, (uint16_t)port.port);
            own = ask_probe((uint16_t)port.port);
        }
        if (context) stop_context(context, socket_listener(probe.s.address, (uint16_t)port.port));
        const bool right = own && atomic_load(&probe.peer_port) == own && atomic_load(&probe.offset);
        if (right && atomic_load(&probe.found))
            atomic_store(&info_offset, atomic_load(&probe.offset));
        else if (right)
            status = wk_fail(err, WK_UNSUPPORTED,
                             "this system does not tell which socket has which peer (SO_PEERNAME, getsockname)");
        else
            status =
                wk_fail(err, WK_INTERNAL,
                        context ? "CivetWeb %s is not laid out as expected (1.15 is)" : "CivetWeb %s cannot be started",
                        mg_version());
    }
    (void)pthread_mutex_unlock(&layout_lock);
    return status;
}

/* ---- CivetWeb's callbacks ------------------------------------------------------------------------------ */

static struct http_server *server_of(const struct mg_connection *c) { return mg_get_user_data(mg_get_context(c)); }

static void *on_thread(const struct mg_context *context, int kind)
{
    struct http_server *s = mg_get_user_data(context);
    if (kind == 1) atomic_fetch_add(&s->threads_ready, 1);
    return NULL;
}

/* Nothing more comes out of this socket: CivetWeb finds the end, and closes. */
static void cut(int fd)
{
    char sink[4096];
    (void)shutdown(fd, SHUT_RDWR);
    while (recv(fd, sink, sizeof sink, MSG_DONTWAIT) > 0) continue;
}

static int on_connection(const struct mg_connection *c, void **data)
{
    struct http_server *s = server_of(c);
    const struct mg_request_info *info =
        (const void *)((const char *)c + atomic_load_explicit(&info_offset, memory_order_relaxed));
    struct in_addr peer;
    atomic_fetch_add(&s->connections, 1);
    if (inet_pton(AF_INET, info->remote_addr, &peer) != 1) return 0;
    const int fd = socket_claim(s, peer, (uint16_t)info->remote_port);
    if (fd < 0) return 0; /* CivetWeb parses it then, and on_request lets it go */
    struct http_request *r = request_new(s, (struct mg_connection *)(uintptr_t)c, fd);
    if (!r) {
        cut(fd);
        socket_unclaim(fd);
        return 0;
    }
    *data = r;
    if (!request_vet(r)) cut(fd);
    return 0;
}

static void on_close(const struct mg_connection *c)
{
    struct http_request *r = mg_get_user_connection_data(c);
    if (r) {
        socket_unclaim(r->fd);
        request_free(r);
    }
    atomic_fetch_sub(&server_of(c)->connections, 1);
}

static int on_request(struct mg_connection *c)
{
    struct http_request *r = mg_get_user_connection_data(c);
    return r && r->vetted ? request_serve(r, mg_get_request_info(c)) : 400; /* cut, or not to be told from another */
}

/* CivetWeb finds fault with what the guards let through. */
static int on_error(struct mg_connection *c, int status, const char *text)
{
    struct http_request *r = mg_get_user_connection_data(c);
    (void)text;
    if (r && r->vetted && !r->answered) {
        answer_refusal(r, status >= 400 && status < 500 ? status : 400, "this is no request that is served");
        answer_end(r);
    }
    return 0;
}

static int on_message(const struct mg_connection *c, const char *text)
{
    struct http_server *s = c ? server_of(c) : NULL;
    if (s && !atomic_load(&s->threads_ready) && !s->bind_error[0])
        (void)snprintf(s->bind_error, sizeof s->bind_error, "%s", text);
    return 1;
}

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status check_options(const struct http_options *o, const struct wk_err *err)
{
    struct in_addr a;
    if (!o->host || inet_pton(AF_INET, o->host, &a) != 1)
        return wk_fail(err, WK_INVALID, "\"%s\" is not an IPv4 address; IPv6 and UNIX sockets are not served",
                       o->host ? o->host : "");
    if (!o->reserve) return wk_fail(err, WK_INVALID, "the reserve of threads is 0; at least 1 is needed");
    if (o->max_streams > THREADS_MAX || o->reserve > THREADS_MAX - o->max_streams)
        return wk_fail(err, WK_INVALID, "%u streams and %u further threads are more than %u", o->max_streams,
                       o->reserve, (unsigned)THREADS_MAX);
    if (!o->memory) return wk_fail(err, WK_INVALID, "the memory for bodies is 0");
    if (!o->header_ms || !o->body_ms || !o->write_ms)
        return wk_fail(err, WK_INVALID, "a deadline of 0 ms: header_ms, body_ms and write_ms must be set");
    return WK_OK;
}

/* Is the address free? Asked before CivetWeb does, whose own complaint is a line of text. */
static wk_status check_address(const struct http_options *o, const struct wk_err *err)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(o->port) };
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)inet_pton(AF_INET, o->host, &a.sin_addr);
    if (fd < 0) return wk_fail(err, WK_IO, "no socket can be made: %s", strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const int bad = bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 1) ? errno : 0;
    (void)close(fd);
    if (bad == EADDRINUSE)
        return wk_fail(err, WK_IO, "%s:%u is in use by another program: stop it, or choose another port", o->host,
                       o->port);
    if (bad == EADDRNOTAVAIL) return wk_fail(err, WK_IO, "%s is not an address of this machine", o->host);
    if (bad == EACCES) return wk_fail(err, WK_IO, "port %u needs privileges: choose one from 1024 on", o->port);
    return bad ? wk_fail(err, WK_IO, "%s:%u cannot be bound: %s", o->host, o->port, strerror(bad)) : WK_OK;
}

/* Threads inherit a mask that leaves signals to the main thread, and a small stack. */
struct thread_settings {
    sigset_t mask;
    pthread_attr_t attributes;
    struct sigaction children;
    bool attributes_saved;
};

static void prepare_threads(struct thread_settings *was)
{
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF };
    sigset_t blocked;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) (void)sigdelset(&blocked, faults[i]);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, &was->mask);
    (void)sigaction(SIGCHLD, NULL,
                    &was->children); /* CivetWeb ignores it for its CGI, which is off; and SIGPIPE, which stays so */
    was->attributes_saved = !pthread_getattr_default_np(&was->attributes);
    pthread_attr_t small;
    if (!was->attributes_saved || pthread_attr_init(&small)) return;
    if (!pthread_attr_setstacksize(&small, STACK_BYTES)) (void)pthread_setattr_default_np(&small);
    (void)pthread_attr_destroy(&small);
}

static void restore_threads(struct thread_settings *was)
{
    if (was->attributes_saved) {
        (void)pthread_setattr_default_np(&was->attributes);
        (void)pthread_attr_destroy(&was->attributes);
    }
    (void)sigaction(SIGCHLD, &was->children, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &was->mask, NULL);
}

/* An option that CivetWeb could not copy is NULL, and it does not ask before it reads one. */
static bool options_stored(const struct mg_context *context, const char *const *options)
{
    for (; *options; options += 2) {
        const char *value = mg_get_option(context, options[0]);
        if (!value || strcmp(value, options[1])) return false;
    }
    return true;
}

static wk_status start_civetweb(struct http_server *s, const struct wk_err *err)
{
    char address[64], threads[16], queue[16], backlog[16], request[16];
    (void)snprintf(address, sizeof address, "%s:%u", s->o.host, s->o.port);
    (void)snprintf(threads, sizeof threads, "%u", s->n_threads);
    (void)snprintf(queue, sizeof queue, "%u", (unsigned)QUEUE);
    (void)snprintf(backlog, sizeof backlog, "%u", (unsigned)BACKLOG);
    (void)snprintf(request, sizeof request, "%u", (unsigned)REQUEST_BYTES);
    const char *options[] = { "listening_ports",
                              address,
                              "num_threads",
                              threads,
                              "connection_queue",
                              queue,
                              "listen_backlog",
                              backlog,
                              "max_request_size",
                              request,
                              "request_timeout_ms",
                              "1" /* we wait, it does not */,
                              "tcp_nodelay",
                              "1",
                              "enable_keep_alive",
                              "no",
                              "decode_url",
                              "no",
                              "decode_query_string",
                              "no",
                              "enable_directory_listing",
                              "no",
                              "access_control_allow_origin",
                              "",
                              "access_control_allow_methods",
                              "",
                              "enable_auth_domain_check",
                              "no",
                              NULL };
    const struct mg_callbacks callbacks = { .init_thread = on_thread,
                                            .init_connection = on_connection,
                                            .connection_close = on_close,
                                            .begin_request = on_request,
                                            .http_error = on_error,
                                            .log_message = on_message };
    s->context = mg_start(&callbacks, s, options);
    if (!s->context)
        return wk_fail(err, WK_IO, "%s:%u cannot be served: %s", s->o.host, s->o.port,
                       s->bind_error[0] ? s->bind_error : "CivetWeb does not start");
    if (!options_stored(s->context, options))
        return wk_fail(err, WK_NO_MEMORY, "CivetWeb has lost its options: out of memory");
    return WK_OK;
}

static wk_status finish_start(struct http_server *s, const struct wk_err *err)
{
    struct mg_server_port port = { 0 };
    if (mg_get_server_ports(s->context, 1, &port) != 1)
        return wk_fail(err, WK_INTERNAL, "CivetWeb does not know its port");
    atomic_store(&s->port, (uint16_t)port.port);
    s->listener = socket_listener(s->address, s->port);
    const uint64_t end = http_now_ns() + (uint64_t)START_MS * 1000000;
    while (atomic_load(&s->threads_ready) < s->n_threads && http_now_ns() < end) sleep_ms(1);
    if (atomic_load(&s->threads_ready) < s->n_threads)
        return wk_fail(err, WK_NO_MEMORY, "%u threads of %u could be started (ulimit -u, memory): serve fewer streams",
                       atomic_load(&s->threads_ready), s->n_threads);
    return WK_OK;
}

wk_status http_open(const struct http_options *o, const struct http_route *routes, uint32_t n_routes, void *user,
                    struct http_server **out, const struct wk_err *err)
{
    *out = NULL;
    wk_status status = check_options(o, err);
    if (status) return status;
    struct http_server *s = calloc(1, sizeof *s);
    if (!s) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    *s = (struct http_server){ .o = *o,
                               .routes = routes,
                               .n_routes = n_routes,
                               .user = user,
                               .n_threads = o->max_streams + o->reserve,
                               .listener = -1,
                               .port = o->port };
    (void)inet_pton(AF_INET, o->host, &s->address);
    s->loopback = ntohl(s->address.s_addr) >> 24 == 127;
    (void)mg_init_library(0);
    (void)mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    (void)mallopt(M_MXFAST, 0); /* small pieces, as of a parsed body, are joined when they are freed, or an arena's end
                                   would not be seen to be free */
    struct thread_settings was;
    prepare_threads(&was);
    bool allowed = false;
    if (!(status = socket_allow(s->n_threads + QUEUE, err) ? WK_OK : WK_INVALID)) {
        allowed = true;
        if (!(status = know_layout(err)) && !(status = check_address(o, err)) && !(status = start_civetweb(s, err)))
            status = finish_start(s, err);
    }
    restore_threads(&was);
    if (status) {
        if (s->context) stop_context(s->context, s->listener);
        if (allowed) socket_disallow(s->n_threads + QUEUE);
        (void)mg_exit_library();
        free(s);
        return status;
    }
    *out = s;
    return WK_OK;
}

uint16_t http_port(const struct http_server *s) { return atomic_load(&s->port); }

void http_counts(const struct http_server *s, struct http_counts *out)
{
    *out = (struct http_counts){ .requests = atomic_load(&s->requests),
                                 .refused = atomic_load(&s->refused),
                                 .streams_refused = atomic_load(&s->streams_refused),
                                 .streams = atomic_load(&s->streams),
                                 .connections = atomic_load(&s->connections) };
}

/* ---- close --------------------------------------------------------------------------------------------- */

void http_stop(struct http_server *s)
{
    if (!s) return;
    atomic_store(&s->closing, true);
    while (atomic_load(&s->handlers)) sleep_ms(1);
}

void http_close(struct http_server *s)
{
    if (!s) return;
    http_stop(s);
    if (s->listener >= 0) (void)shutdown(s->listener, SHUT_RDWR);
    /* Whoever was accepted before is told so; what CivetWeb has queued must not be there any more when it stops, for it
     * would neither serve nor close it. */
    const uint64_t end = http_now_ns() + (uint64_t)CLOSE_MS * 1000000;
    while ((atomic_load(&s->connections) || socket_leftovers(s->address, s->port, false)) && http_now_ns() < end)
        sleep_ms(1);
    mg_stop(s->context);
    (void)socket_leftovers(s->address, s->port, true);
    socket_disallow(s->n_threads + QUEUE);
    (void)mg_exit_library();
    free(s);
}
