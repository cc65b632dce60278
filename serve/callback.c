/* callback.c: the ready callback. */
#include "callback.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "log/log.h"

enum { HOST_MAX = 256, PATH_MAX_BYTES = 2048, IO_MS = 5000, STOP_WAIT_MS = 500 };

struct target {
    char host[HOST_MAX], port[8], path[PATH_MAX_BYTES];
};

struct callback {
    pthread_t thread;
    int stop; /* eventfd: readable once it shall end */
    int news; /* eventfd: readable once there is another document */
    struct target to;
    json_t *document; /* the thread's */
    pthread_mutex_t lock;
    json_t *next;  /* under the lock: what comes after it; NULL: nothing */
    uint16_t port; /* of the document's url, whose address is that of the connection; 0: the url stands */
};

/* ---- the address --------------------------------------------------------------------------------------- */

static wk_status split(const char *url, struct target *t, const struct wk_err *err)
{
    static const char expected[] = "expected http://HOST[:PORT][/PATH]";
    if (strncmp(url, "https://", 8) == 0)
        return wk_fail(err, WK_UNSUPPORTED, "https is not served; use http, for example to a proxy beside this worker");
    if (strncmp(url, "http://", 7) != 0) return wk_fail(err, WK_INVALID, "%s", expected);
    const char *host = url + 7;
    const size_t n = strcspn(host, ":/?#"), whole = strcspn(host, "/?#");
    for (const char *p = url; *p; p++)
        if (!isgraph((unsigned char)*p))
            return wk_fail(err, WK_INVALID, "%s, without spaces or control characters", expected);
    if (!n || n >= sizeof t->host || strcspn(host, "@[") < whole || strchr(host, '#'))
        return wk_fail(err, WK_INVALID, "%s", expected);
    (void)snprintf(t->host, sizeof t->host, "%.*s", (int)n, host);
    (void)snprintf(t->port, sizeof t->port, "80");
    if (host[n] == ':') {
        char *end;
        const unsigned long port = strtoul(host + n + 1, &end, 10);
        if (!isdigit((unsigned char)host[n + 1]) || end != host + whole || port < 1 || port > 65535)
            return wk_fail(err, WK_INVALID, "%s, PORT 1 to 65535", expected);
        (void)snprintf(t->port, sizeof t->port, "%lu", port);
    }
    if (strlen(host + whole) + 2 > sizeof t->path)
        return wk_fail(err, WK_INVALID, "the path is longer than %d bytes", PATH_MAX_BYTES - 2);
    (void)snprintf(t->path, sizeof t->path, "%s%s", host[whole] == '/' ? "" : "/", host + whole);
    return WK_OK;
}

wk_status callback_check(const char *url, const struct wk_err *err)
{
    struct target t;
    return split(url, &t, err);
}

/* ---- one try ------------------------------------------------------------------------------------------- */

/* Waits until fd is ready for `events`; false: too long, or asked to stop. */
static bool wait_for(const struct callback *c, int fd, short events)
{
    struct pollfd p[2] = { { .fd = fd, .events = events }, { .fd = c->stop, .events = POLLIN } };
    int n;
    do n = poll(p, 2, IO_MS);
    while (n < 0 && errno == EINTR);
    return n > 0 && !p[1].revents;
}

static int connect_to(const struct callback *c, const struct wk_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *all;
    const int gave = getaddrinfo(c->to.host, c->to.port, &hints, &all);
    if (gave) {
        (void)wk_fail(err, WK_IO, "%s: %s", c->to.host, gai_strerror(gave));
        return -1;
    }
    int fd = -1, why = 0;
    for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
        socklen_t n = sizeof why;
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        why = fd < 0 || (connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) ? errno : 0;
        if (!why && !wait_for(c, fd, POLLOUT)) why = ETIMEDOUT;
        if (!why && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n)) why = errno;
        if (why && fd >= 0) (void)close(fd);
        if (why) fd = -1;
    }
    freeaddrinfo(all);
    if (fd < 0) (void)wk_fail(err, WK_IO, "%s:%s: %s", c->to.host, c->to.port, strerror(why));
    return fd;
}

static wk_status send_all(const struct callback *c, int fd, const char *bytes, size_t n, const struct wk_err *err)
{
    while (n) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return wk_fail(err, WK_IO, "sending: %s", strerror(errno));
        if (sent < 0 && errno == EAGAIN && !wait_for(c, fd, POLLOUT))
            return wk_fail(err, WK_IO, "sending took too long");
        if (sent > 0) bytes += sent, n -= (size_t)sent;
    }
    return WK_OK;
}

/* The status of the answer: "HTTP/1.1 204 ...": what follows does not matter. */
static wk_status read_status(const struct callback *c, int fd, const struct wk_err *err)
{
    char line[32];
    size_t n = 0;
    while (n < 12) {
        if (!wait_for(c, fd, POLLIN)) return wk_fail(err, WK_IO, "no answer in time");
        const ssize_t got = recv(fd, line + n, 12 - n, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) return wk_fail(err, WK_IO, "the connection was closed without an answer");
        n += (size_t)got;
    }
    line[n] = '\0';
    if (strncmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ' || !isdigit((unsigned char)line[9]))
        return wk_fail(err, WK_IO, "the answer is not HTTP");
    return line[9] == '2' ? WK_OK : wk_fail(err, WK_IO, "answered with status %.3s", line + 9);
}

/* Who listens at every address of this machine is told of by the one that the receiver sees. */
static void name_address(const struct callback *c, int fd)
{
    struct sockaddr_storage here;
    socklen_t n = sizeof here;
    char text[INET6_ADDRSTRLEN], url[80];
    if (!c->port || getsockname(fd, (struct sockaddr *)&here, &n) ||
        getnameinfo((struct sockaddr *)&here, n, text, sizeof text, NULL, 0, NI_NUMERICHOST))
        return;
    const bool six = here.ss_family == AF_INET6;
    const char *was = json_string_value(json_object_get(c->document, "url"));
    const bool tls = was && strncmp(was, "https:", 6) == 0;
    (void)snprintf(url, sizeof url, "%s://%s%s%s:%u", tls ? "https" : "http", six ? "[" : "", text, six ? "]" : "",
                   c->port);
    (void)json_object_set_new(c->document, "url", json_string(url));
}

static wk_status try_once(const struct callback *c, const struct wk_err *err)
{
    char head[HOST_MAX + PATH_MAX_BYTES + 256];
    const int fd = connect_to(c, err);
    if (fd < 0) return WK_IO;
    name_address(c, fd);
    char *body = json_dumps(c->document, JSON_COMPACT);
    wk_status status = body ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory for the callback");
    if (!status) {
        const int n = snprintf(head, sizeof head,
                               "POST %s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nContent-Length: "
                               "%zu\r\nConnection: close\r\n\r\n",
                               c->to.path, c->to.host, c->to.port, strlen(body));
        status = send_all(c, fd, head, (size_t)n, err);
    }
    if (!status) status = send_all(c, fd, body, strlen(body), err);
    if (!status) status = read_status(c, fd, err);
    free(body);
    (void)close(fd);
    return status;
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* Waits for wait_ms (-1: for ever), or until there is news. True: it shall end. */
static bool told_to_stop(const struct callback *c, int wait_ms)
{
    struct pollfd p[2] = { { .fd = c->stop, .events = POLLIN }, { .fd = c->news, .events = POLLIN } };
    return poll(p, 2, wait_ms) > 0 && p[0].revents;
}

/* Takes the next document, if there is one. */
static bool take_next(struct callback *c)
{
    uint64_t count;
    (void)pthread_mutex_lock(&c->lock);
    const bool any = c->next != NULL;
    if (any && read(c->news, &count, sizeof count) == sizeof count) {
        json_decref(c->document);
        c->document = c->next;
        c->next = NULL;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return any;
}

/* Says the document until it is taken, tries run out, or there is another one. True: it shall end. */
static bool tell(struct callback *c)
{
    char text[256];
    const struct wk_err err = { text, sizeof text };
    for (int i = 1; i <= CALLBACK_TRIES; i++) {
        if (!try_once(c, &err)) {
            LOG(LOG_INFO, "callback", NULL, log_s("host", c->to.host), log_u("tries", i));
            return told_to_stop(c, -1) || !take_next(c);
        }
        if (told_to_stop(c, 0)) return true;
        const bool last = i == CALLBACK_TRIES;
        LOG(last ? LOG_ERROR : LOG_WARN, last ? "error" : "callback_failed", text, log_s("code", "CALLBACK_FAILED"),
            log_s("host", c->to.host), log_u("tries", i));
        if (told_to_stop(c, last ? -1 : 1000 << (i - 1))) return true;
        if (take_next(c)) return false;
    }
    return true;
}

static void *run(void *user)
{
    struct callback *c = user;
    while (!tell(c)) {}
    return NULL;
}

static void free_callback(struct callback *c)
{
    if (c->stop >= 0) (void)close(c->stop);
    if (c->news >= 0) (void)close(c->news);
    (void)pthread_mutex_destroy(&c->lock);
    json_decref(c->document);
    json_decref(c->next);
    free(c);
}

wk_status callback_start(const char *url, json_t *document, uint16_t port, struct callback **out,
                         const struct wk_err *err)
{
    struct callback *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        json_decref(document);
        return wk_fail(err, WK_NO_MEMORY, "no memory for the callback");
    }
    c->stop = eventfd(0, EFD_CLOEXEC);
    c->news = eventfd(0, EFD_CLOEXEC);
    (void)pthread_mutex_init(&c->lock, NULL);
    c->document = document;
    c->port = port;
    wk_status status = c->stop >= 0 && c->news >= 0 ? split(url, &c->to, err)
                                                    : wk_fail(err, WK_NO_MEMORY, "no descriptor for the callback");
    if (!status && pthread_create(&c->thread, NULL, run, c))
        status = wk_fail(err, WK_NO_MEMORY, "no thread for the callback");
    if (status)
        free_callback(c);
    else
        *out = c;
    return status;
}

void callback_again(struct callback *c, json_t *document)
{
    const uint64_t one = 1;
    (void)pthread_mutex_lock(&c->lock);
    const bool waking = c->next == NULL;
    json_decref(c->next);
    c->next = document;
    if (waking && write(c->news, &one, sizeof one) != sizeof one) c->next = NULL, json_decref(document);
    (void)pthread_mutex_unlock(&c->lock);
}

void callback_stop(struct callback *c)
{
    const uint64_t one = 1;
    if (!c) return;
    if (write(c->stop, &one, sizeof one) != sizeof one) return;
    const struct timespec until = clock_in(CLOCK_REALTIME, STOP_WAIT_MS);
    /* A thread that hangs in getaddrinfo is left alone with its memory: the process is about to end. */
    if (pthread_timedjoin_np(c->thread, NULL, &until) == 0)
        free_callback(c);
    else
        (void)pthread_detach(c->thread);
}
