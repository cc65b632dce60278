/* socket.c: descriptors of this process, and connections read and written with deadlines.
 *
 * CivetWeb reads and writes with no deadline for the whole; so everything passes here instead. Here is also the one
 * place that knows whether a connection's bytes are plain or TLS's (tls.h). */
#include <dirent.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum {
    OTHER_FILES = 1024, /* descriptors that the process may want besides */
    CLOSING_MS = 500,   /* how long one write or read may go on once the server closes */
    SLICE_MS = 50,      /* how soon a waiting thread notices that the server closes, or is pressed */
    FINISH_MS = 500,
    FINISH_BYTES = 1 << 20,
    FINISH_IDLE_MS = 100 /* what comes is taken for FINISH_MS in all, but for pauses no longer than this */
};

static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t wanted; /* descriptors of all servers */

uint64_t http_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- descriptors --------------------------------------------------------------------------------------- */

uint16_t socket_port(int fd)
{
    struct sockaddr_storage a = { 0 };
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)&a)->sin6_port);
    return a.ss_family == AF_INET ? ntohs(((const struct sockaddr_in *)&a)->sin_port) : 0;
}

/* Calls visit for every open descriptor until it says true; that one, or -1. */
static int find_descriptor(bool (*visit)(int fd, void *user), void *user)
{
    int found = -1;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return -1;
    for (const struct dirent *e; found < 0 && (e = readdir(folder));) {
        const int fd = atoi(e->d_name);
        if (e->d_name[0] != '.' && fd != dirfd(folder) && visit(fd, user)) found = fd;
    }
    (void)closedir(folder);
    return found;
}

static bool listens_at(int fd, void *user)
{
    struct sockaddr_in a = { 0 };
    int listens = 0;
    socklen_t n = sizeof listens, size = sizeof a;
    return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) && listens &&
           !getsockname(fd, (struct sockaddr *)&a, &size) && a.sin_family == AF_INET &&
           a.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && ntohs(a.sin_port) == *(const uint16_t *)user;
}

int socket_listener(uint16_t port) { return find_descriptor(listens_at, &port); }

struct leftovers {
    uint16_t port;
    bool close_them;
    uint32_t found;
};

/* Also a connection that its client has reset meanwhile, which getpeername would not tell of. */
static bool is_leftover(int fd, void *user)
{
    struct leftovers *l = user;
    struct sockaddr_in peer; /* the kernel refuses room for more than the address has: an IPv6 one is longer still */
    socklen_t n = sizeof peer;
    if (socket_port(fd) != l->port || getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &peer, &n)) return false;
    l->found++;
    if (l->close_them) (void)close(fd);
    return false;
}

uint32_t socket_leftovers(uint16_t port, bool close_them)
{
    struct leftovers l = { .port = port, .close_them = close_them };
    (void)find_descriptor(is_leftover, &l);
    return l.found;
}

bool socket_allow(uint32_t descriptors, const struct wk_err *err)
{
    (void)pthread_mutex_lock(&limit_lock);
    const uint64_t need = (uint64_t)atomic_load(&wanted) + descriptors + OTHER_FILES;
    struct rlimit limit;
    bool enough = !getrlimit(RLIMIT_NOFILE, &limit);
    if (enough && limit.rlim_cur < need && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = need < limit.rlim_max ? (rlim_t)need : limit.rlim_max;
        enough = !setrlimit(RLIMIT_NOFILE, &limit);
    }
    /* the reserve for other files is a wish; room for the connections is not */
    if (enough && limit.rlim_cur >= need - OTHER_FILES + 64)
        atomic_fetch_add(&wanted, descriptors);
    else {
        (void)wk_fail(
            err, WK_INVALID,
            "%u connections need %u open files, the limit (ulimit -Hn) is %llu: raise it, or serve fewer streams",
            descriptors, (unsigned)(need - OTHER_FILES + 64), (unsigned long long)limit.rlim_max);
        enough = false;
    }
    (void)pthread_mutex_unlock(&limit_lock);
    return enough;
}

void socket_disallow(uint32_t descriptors) { atomic_fetch_sub(&wanted, descriptors); }

/* ---- waiting, reading, sending ---------------------------------------------------------------------------------- */

short socket_wait(const struct http_request *r, short events, uint64_t deadline_ns)
{
    uint64_t closing_ns = 0;
    for (;;) {
        const uint64_t now = http_now_ns();
        if (atomic_load_explicit(&r->s->closing, memory_order_relaxed)) {
            if (!closing_ns) closing_ns = now + (uint64_t)CLOSING_MS * 1000000;
            if (closing_ns < deadline_ns) deadline_ns = closing_ns;
        }
        if (now >= deadline_ns) return 0;
        const uint64_t ms = (deadline_ns - now + 999999) / 1000000;
        struct pollfd p = { .fd = r->fd, .events = r->tls ? tls_events(r->tls, events) : events };
        const int ready = poll(&p, 1, ms < SLICE_MS ? (int)ms : SLICE_MS);
        if (ready > 0) return p.revents;
        if (ready < 0 && errno != EINTR) return POLLERR;
    }
}

ssize_t socket_peek(const struct http_request *r, char *out, size_t cap)
{
    return r->tls ? tls_peek(r->tls, out, cap) : recv(r->fd, out, cap, MSG_PEEK | MSG_DONTWAIT);
}

ssize_t socket_read(const struct http_request *r, char *out, size_t cap)
{
    return r->tls ? tls_read(r->tls, out, cap) : recv(r->fd, out, cap, MSG_DONTWAIT);
}

bool socket_take(const struct http_request *r, char *out, size_t n)
{
    while (n) {
        const ssize_t got = socket_read(r, out, n);
        if (got <= 0 && !(got < 0 && errno == EINTR)) return false;
        if (got < 0) continue;
        out += got;
        n -= (size_t)got;
    }
    return true;
}

/* A client of TLS says that it sends no more in a record, before its socket does or instead. */
short socket_look(const struct http_request *r)
{
    struct pollfd p = { .fd = r->fd, .events = r->tls ? POLLIN | POLLRDHUP : POLLRDHUP };
    if (poll(&p, 1, 0) < 0) p.revents = 0;
    if (!r->tls) return p.revents;
    return (short)((p.revents & ~POLLIN) | tls_look(r->tls, p.revents & POLLIN));
}

static void skip_sent(struct iovec **parts, int *n, size_t sent)
{
    while (*n && sent >= (*parts)->iov_len) {
        sent -= (*parts)->iov_len;
        (*parts)++;
        (*n)--;
    }
    if (*n) {
        (*parts)->iov_base = (char *)(*parts)->iov_base + sent;
        (*parts)->iov_len -= sent;
    }
}

bool socket_moves(struct http_request *r)
{
    const uint64_t now = http_now_ns(), patience = (uint64_t)r->s->o.write_ms * 1000000;
    int queued = 0;
    if (ioctl(r->fd, SIOCOUTQ, &queued) != 0) return true; /* what is wrong with it is seen elsewhere */
    const int64_t taken = (int64_t)(r->tls ? tls_written(r->tls) : r->out) - queued;
    /* who did not look for long cannot tell how long nothing has moved */
    if (!queued || taken != r->acked || now - r->looked_ns > patience / 4) r->moved_ns = now;
    r->acked = taken;
    r->looked_ns = now;
    return now - r->moved_ns < patience;
}

/* Waits until the socket takes bytes again. The kernel says so only when a good part of its buffer is free, which a
 * slow client may take long for. False: nothing has moved for write_ms, or the server closes. */
static bool wait_for_room(struct http_request *r)
{
    const uint64_t slice = (uint64_t)r->s->o.write_ms * 1000000 / 8;
    for (;;) {
        const bool closing = atomic_load_explicit(&r->s->closing, memory_order_relaxed);
        if (socket_wait(r, POLLOUT, http_now_ns() + (closing ? 8 : 1) * slice)) return true;
        if (closing || !socket_moves(r)) return false;
    }
}

bool socket_send(struct http_request *r, struct iovec *parts, int n, bool whole)
{
    const uint64_t deadline = http_now_ns() + (uint64_t)r->s->o.write_ms * 1000000; /* of a whole answer */
    skip_sent(&parts, &n, 0);
    while (n && !r->gone) {
        const struct msghdr message = { .msg_iov = parts, .msg_iovlen = (size_t)n };
        const ssize_t sent =
            r->tls ? tls_send(r->tls, parts, n) : sendmsg(r->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            r->out += (uint64_t)sent;
            skip_sent(&parts, &n, (size_t)sent);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (whole ? !socket_wait(r, POLLOUT, deadline) : !wait_for_room(r)) r->gone = true;
        } else if (errno != EINTR) {
            r->gone = true;
        }
    }
    r->wrote_ns = http_now_ns();
    return !r->gone;
}

/* Until more comes, for FINISH_IDLE_MS at most, and only while nobody else needs the thread: as connections wait that
 * go on. */
static bool wait_for_rest(struct http_request *r)
{
    struct http_server *s = r->s;
    struct pollfd p[2] = { { .fd = r->fd, .events = POLLIN }, { .fd = s->evict, .events = POLLIN } };
    uint64_t unit;
    if (connection_is_pressed(s)) return false;
    atomic_fetch_add(&s->idle, 1);
    const bool any = poll(p, 2, FINISH_IDLE_MS) > 0;
    atomic_fetch_sub(&s->idle, 1);
    if (any && !p[0].revents && read(s->evict, &unit, sizeof unit) < 0) return true; /* another one's */
    return any && p[0].revents;
}

void socket_finish(struct http_request *r)
{
    if (r->tls && !r->gone) {
        const uint64_t until = http_now_ns() + (uint64_t)FINISH_MS * 1000000;
        while (tls_end(r->tls) == TLS_AGAIN && socket_wait(r, POLLOUT, until)) continue;
    }
    (void)shutdown(r->fd, SHUT_WR);
    if (r->gone || !r->unread) return;
    char sink[4096];
    size_t total = 0;
    const uint64_t end = http_now_ns() + (uint64_t)FINISH_MS * 1000000;
    while (total < FINISH_BYTES) {
        const ssize_t n = recv(r->fd, sink, sizeof sink, MSG_DONTWAIT);
        if (n > 0) {
            total += (size_t)n;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return;
        if (http_now_ns() >= end || !wait_for_rest(r)) return;
    }
}
