/* server.c: CivetWeb started, asked and stopped.
 *
 * CivetWeb accepts, queues and has the threads. Its callbacks here are the only places that it enters, and the one that
 * matters comes when a thread has taken up a connection and has not read from it: there all of the connection's
 * requests are served (request.c), and CivetWeb itself finds nothing but its end. So one parser sees what clients send,
 * ours.
 *
 * Two things are not in its interface. Which descriptor a connection has: it is a part of its connection, always at the
 * same place; which one is learned once per process, from a request of our own to a server with one thread. And how to
 * listen elsewhere than on IPv4: it gets ports on 127.0.0.1 to begin with, whose descriptors are made ours by
 * dup3. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <civetweb.h>

#include "internal.h"

enum {
    QUEUE = 128, /* connections accepted that wait for a thread; the others wait in the kernel */
    STACK_BYTES =
        512 << 10, /* of a thread; addresses, not memory. Below 2 MiB the kernel does not back stacks with huge pages */
    /* What is free at the end of one of malloc's arenas goes back to the system from here on. Left alone, the limit
     * grows with what is freed, and each of the arenas (eight for each processor) keeps as much as the largest request
     * took that it ever served. */
    TRIM_BYTES = 128 << 10,
    THREADS_MAX = 16384,
    START_MS = 10000,
    CLOSE_MS = 1000,
    LAYOUT_END = 8192, /* of a connection, behind its mg_request_info: the descriptor comes before */
    ADDRESSES = 64     /* bytes behind a descriptor that its two addresses are in */
};

static void sleep_ms(long ms) { (void)nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL); }

/* ---- where a connection keeps its descriptor ----------------------------------------------------------- */

static pthread_mutex_t layout_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint descriptor_offset; /* 0: not known yet */

struct layout_probe {
    atomic_uint offset, peer_port;
};

/* Is this the address of 127.0.0.1 and that port? */
static bool is_address(const char *at, int port)
{
    struct sockaddr_in a;
    memcpy(&a, at, sizeof a);
    return a.sin_family == AF_INET && a.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && ntohs(a.sin_port) == port;
}

/* A descriptor is followed by the address of our end, and soon by the peer's. */
static bool is_descriptor(const char *at, const struct mg_request_info *info)
{
    int fd;
    memcpy(&fd, at, sizeof fd);
    if (!is_address(at + sizeof fd, info->server_port) || socket_port(fd) != info->server_port) return false;
    for (size_t k = sizeof fd + sizeof(struct sockaddr_in); k <= ADDRESSES - sizeof(struct sockaddr_in); k += sizeof fd)
        if (is_address(at + k, info->remote_port)) return true;
    return false;
}

static int learn_layout(struct mg_connection *c)
{
    struct layout_probe *probe = mg_get_user_data(mg_get_context(c));
    const struct mg_request_info *info = mg_get_request_info(c);
    const char *from = (const char *)(info + 1);
    atomic_store(&probe->peer_port, (unsigned)info->remote_port);
    for (size_t k = 0; k < LAYOUT_END && (const char *)info > (const char *)c; k += sizeof(int)) {
        if (!is_descriptor(from + k, info)) continue;
        atomic_store(&probe->offset, (unsigned)(from + k - (const char *)c));
        break;
    }
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
    if (!atomic_load(&descriptor_offset)) {
        struct layout_probe probe = { 0 };
        const struct mg_callbacks callbacks = { .begin_request = learn_layout };
        struct mg_context *context = mg_start(&callbacks, &probe, options);
        struct mg_server_port port = { 0 };
        uint16_t own = 0;
        if (context && mg_get_server_ports(context, 1, &port) == 1) own = ask_probe((uint16_t)port.port);
        if (context) stop_context(context, socket_listener((uint16_t)port.port));
        if (own && atomic_load(&probe.peer_port) == own && atomic_load(&probe.offset))
            atomic_store(&descriptor_offset, atomic_load(&probe.offset));
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

/* The sockets that CivetWeb listens with become ours, before its thread looks at them first: poll would go on to wait
 * for those that it has begun with. */
static void take_ports(struct http_server *s, const struct mg_context *context)
{
    struct mg_server_port ports[LISTENERS_MAX] = { 0 };
    bool ok = mg_get_server_ports(context, LISTENERS_MAX, ports) == (int)s->n_listeners;
    for (uint32_t i = 0; ok && i < s->n_listeners; i++) {
        const int fd = socket_listener((uint16_t)ports[i].port);
        ok = fd >= 0 && dup3(s->ours[i], fd, O_CLOEXEC) == fd;
        s->listener[i] = ok ? fd : -1;
    }
    atomic_store(&s->ports_taken, ok ? 1 : -1);
}

static void *on_thread(const struct mg_context *context, int kind)
{
    struct http_server *s = mg_get_user_data(context);
    if (kind == 0) take_ports(s, context);
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
    int fd;
    (void)data;
    memcpy(&fd, (const char *)c + atomic_load_explicit(&descriptor_offset, memory_order_relaxed), sizeof fd);
    atomic_fetch_add(&s->connections, 1);
    connection_press(s);
    if (fd < 0 || socket_port(fd) != atomic_load(&s->port)) return 0; /* on_request lets it go */
    connection_serve(s, fd);
    cut(fd);
    return 0;
}

static void on_close(const struct mg_connection *c) { atomic_fetch_sub(&server_of(c)->connections, 1); }

/* What CivetWeb reads itself is not served: there is nothing, but for who came while the ports were being bound. */
static int on_request(struct mg_connection *c)
{
    (void)c;
    return 400;
}

static int on_error(struct mg_connection *c, int status, const char *text)
{
    (void)c;
    (void)status;
    (void)text;
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
    if (!o->host || !http_is_host(o->host))
        return wk_fail(err, WK_INVALID,
                       "\"%s\" is not an IPv4 or IPv6 address, or localhost; UNIX sockets are not served",
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
    char threads[16], queue[16];
    (void)snprintf(threads, sizeof threads, "%u", s->n_threads);
    (void)snprintf(queue, sizeof queue, "%u", (unsigned)QUEUE);
    const char *options[] = { "listening_ports",
                              s->n_listeners > 1 ? "127.0.0.1:0,127.0.0.1:0" : "127.0.0.1:0",
                              "num_threads",
                              threads,
                              "connection_queue",
                              queue,
                              "request_timeout_ms",
                              "1" /* it has nothing to wait for */,
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
    const uint64_t end = http_now_ns() + (uint64_t)START_MS * 1000000;
    while ((atomic_load(&s->threads_ready) < s->n_threads || !atomic_load(&s->ports_taken)) && http_now_ns() < end)
        sleep_ms(1);
    if (atomic_load(&s->ports_taken) < 1) return wk_fail(err, WK_INTERNAL, "CivetWeb's own ports are not found");
    if (atomic_load(&s->threads_ready) < s->n_threads)
        return wk_fail(err, WK_NO_MEMORY, "%u threads of %u could be started (ulimit -u, memory): serve fewer streams",
                       atomic_load(&s->threads_ready), s->n_threads);
    return WK_OK;
}

static void free_server(struct http_server *s)
{
    for (uint32_t i = 0; i < s->n_own; i++) free(s->own[i]);
    if (s->evict >= 0) (void)close(s->evict);
    free(s);
}

static wk_status start(struct http_server *s, const struct wk_err *err)
{
    uint16_t port;
    wk_status status = know_layout(err);
    if (!status) status = listen_open(&s->o, s->ours, &s->n_listeners, &port, err);
    if (status) return status;
    atomic_store(&s->port, port);
    status = start_civetweb(s, err);
    if (!status) status = finish_start(s, err);
    for (uint32_t i = 0; i < s->n_listeners; i++) (void)close(s->ours[i]);
    return status;
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
                               .listener = { -1, -1 },
                               .evict = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC) };
    s->n_own = names_own(s->own);
    (void)mg_init_library(0);
    (void)mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    (void)mallopt(M_MXFAST, 0); /* small pieces, as of a parsed body, are joined when they are freed, or an arena's end
                                   would not be seen to be free */
    struct thread_settings was;
    prepare_threads(&was);
    bool allowed = false;
    if (s->evict < 0) status = wk_fail(err, WK_NO_MEMORY, "no descriptor can be had: %s", strerror(errno));
    if (!status && !(status = socket_allow(s->n_threads + QUEUE, err) ? WK_OK : WK_INVALID)) {
        allowed = true;
        status = start(s, err);
    }
    restore_threads(&was);
    if (status) {
        if (s->context) stop_context(s->context, s->listener[0]);
        if (allowed) socket_disallow(s->n_threads + QUEUE);
        (void)mg_exit_library();
        free_server(s);
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
    const uint64_t everyone = s->n_threads;
    atomic_store(&s->closing, true);
    while (write(s->evict, &everyone, sizeof everyone) < 0 && errno == EINTR) continue;
    while (atomic_load(&s->handlers)) sleep_ms(1);
}

void http_close(struct http_server *s)
{
    if (!s) return;
    http_stop(s);
    for (uint32_t i = 0; i < s->n_listeners; i++) (void)shutdown(s->listener[i], SHUT_RDWR);
    /* Whoever was accepted before is told so; what CivetWeb has queued must not be there any more when it stops, for it
     * would neither serve nor close it. */
    const uint64_t end = http_now_ns() + (uint64_t)CLOSE_MS * 1000000;
    while ((atomic_load(&s->connections) || socket_leftovers(s->port, false)) && http_now_ns() < end) sleep_ms(1);
    mg_stop(s->context);
    (void)socket_leftovers(s->port, true);
    socket_disallow(s->n_threads + QUEUE);
    (void)mg_exit_library();
    free_server(s);
}
