/* test_client.h: a client that sends exactly the bytes that a test says, and a server in the same process for it. With
 * OVER_TLS both speak TLS, and the same tests say that nothing else is different: each send is a record. */
#ifndef HTTP_TEST_CLIENT_H
#define HTTP_TEST_CLIENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

#ifdef OVER_TLS
#include "test_tls.h"
#endif

enum { PATIENCE_MS = 30000 }; /* no answer for this long means that there is none; nothing else is timed */

static inline uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline void pause_ms(long ms) { (void)nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL); }

/* ---- one connection, plain or not ---------------------------------------------------------------------- */

/* As send and recv. */
static inline ssize_t client_send(int fd, const char *bytes, size_t n)
{
#ifdef OVER_TLS
    if (tls_client_of(fd)) return tls_client_send(fd, bytes, n);
#endif
    return send(fd, bytes, n, MSG_NOSIGNAL);
}

static inline ssize_t client_recv(int fd, char *out, size_t cap, int flags)
{
#ifdef OVER_TLS
    if (tls_client_of(fd)) return tls_client_recv(fd, out, cap, flags);
#endif
    return recv(fd, out, cap, flags);
}

/* Is anything there to be read, an end included, within ms? */
static inline bool client_can_read(int fd, int ms)
{
#ifdef OVER_TLS
    if (tls_client_of(fd) && SSL_pending(tls_client_of(fd)) > 0) return true;
#endif
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, ms) > 0;
}

/* Sends no more, and says so; the server may have ended before. */
static inline void half_close(int fd)
{
#ifdef OVER_TLS
    if (tls_client_of(fd)) (void)SSL_shutdown(tls_client_of(fd));
#endif
    (void)shutdown(fd, SHUT_WR);
}

static inline void hang_up(int fd)
{
#ifdef OVER_TLS
    tls_client_forget(fd);
#endif
    (void)close(fd);
}

/* So that the next hang_up is a reset. */
static inline void reset_at_end(int fd)
{
#ifdef OVER_TLS
    tls_client_silence(fd);
#endif
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger)), 0);
}

/* The handshake of the connection fd, if there is one. False: the server does not want it, or there is no connection.
 */
static inline bool client_begin(int fd)
{
#ifdef OVER_TLS
    return tls_client_begin(fd);
#else
    return fd >= 0;
#endif
}

static inline int try_connect(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Where the server may refuse the connection: it closes. */
static inline int connect_plainly(uint16_t port)
{
    const int fd = try_connect(port);
    assert_true(fd >= 0);
    return fd;
}

static inline int connect_to(uint16_t port)
{
    const int fd = connect_plainly(port);
    assert_true(client_begin(fd));
    return fd;
}

/* As much as the server takes; it may close in the middle. */
static inline bool send_bytes(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t sent = client_send(fd, bytes, n);
        if (sent <= 0) return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}
static inline bool send_text(int fd, const char *text) { return send_bytes(fd, text, strlen(text)); }

/* Reads until the end or a reset, or until `until` has come; false: neither came. out is terminated. */
static inline bool read_until(int fd, char *out, size_t cap, const char *until)
{
    size_t n = 0;
    const uint64_t end = now_ms() + PATIENCE_MS;
    out[0] = 0;
    while (n < cap - 1) {
        if (now_ms() >= end) return false;
        if (!client_can_read(fd, 100)) continue;
        const ssize_t got = client_recv(fd, out + n, cap - 1 - n, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) continue;
        if (got <= 0) return !until;
        n += (size_t)got;
        out[n] = 0;
        if (until && strstr(out, until)) return true;
    }
    return false;
}

static inline unsigned count_of(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

/* The status of an answer; 0: there is none. */
static inline int status_in(const char *answer) { return strncmp(answer, "HTTP/1.1 ", 9) ? 0 : atoi(answer + 9); }

/* One request, all of its answer, closed by the server. */
static inline int exchange(uint16_t port, const char *request, char *answer, size_t cap)
{
    const int fd = connect_to(port);
    (void)send_text(fd, request);
    assert_true(read_until(fd, answer, cap, NULL));
    hang_up(fd);
    return status_in(answer);
}

static inline struct http_server *open_server(const struct http_options *o, const struct http_route *routes, uint32_t n,
                                              void *user)
{
    char text[512] = { 0 };
    const struct wk_err err = { text, sizeof text };
    struct http_server *s = NULL;
    struct http_options options = *o;
#ifdef OVER_TLS
    options.tls = tls_for_tests();
#endif
    if (http_open(&options, routes, n, user, &s, &err)) fail_msg("%s", text);
    return s;
}

/* Waits until what() is true; fails after PATIENCE_MS. */
#define wait_for(condition)                                                  \
    do {                                                                     \
        const uint64_t wait_end = now_ms() + PATIENCE_MS;                    \
        while (!(condition)) {                                               \
            if (now_ms() > wait_end) fail_msg("never came: %s", #condition); \
            pause_ms(2);                                                     \
        }                                                                    \
    } while (0)

#endif
