/* socket.c: the sockets that CivetWeb has accepted, found again among the process's descriptors, and used with
 * deadlines.
 *
 * CivetWeb does not say which descriptor a connection has, and reads and writes with no deadline for the whole. But it
 * says who the peer is, and the socket whose peer that is can be asked for among the process's descriptors. A table of
 * those that live requests have claimed keeps the search short: what is left to ask are the process's other files and
 * the few sockets that nobody has begun with.
 *
 * It must be the right one, always: another would be another client's. The searching thread's own socket is open and
 * unclaimed, since all earlier claims were right and each is given back before CivetWeb closes the socket; so if
 * exactly one socket of all fits, it is that one. More than one can fit only if a client makes it so (the same port
 * again after a reset, or towards a second address of ours): then nobody is served. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum {
    TABLE_BITS = 1 << 20, /* descriptors that can be claimed */
    OTHER_FILES = 1024,   /* descriptors that the process may want besides */
    CLOSING_MS = 1000,    /* how long one write or read may go on once the server closes */
    SLICE_MS = 50,        /* how soon a waiting thread notices that the server closes, or is pressed */
    FINISH_MS = 500,
    FINISH_BYTES = 1 << 20,
    FINISH_IDLE_MS = 100
};

static _Atomic uint64_t claimed[TABLE_BITS / 64];
static atomic_int end_known = 64; /* descriptors_end when it was last asked for */
static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t wanted; /* descriptors of all servers */

uint64_t http_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- finding a descriptor ------------------------------------------------------------------------------ */

/* Is a descriptor of `from` or above open? The directory lists them in their order, from any place on. */
static bool listed_from(int directory, int from)
{
    char entries[256];
    return lseek(directory, from + 2, SEEK_SET) < 0 ||
           getdents64(directory, entries, sizeof entries) != 0; /* 2: . and .. */
}

/* No descriptor of the process is as large as this one, a multiple of 64; at most twice as large as needed, or not
 * much. */
static int descriptors_end(void)
{
    const int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), known = atomic_load(&end_known);
    struct rlimit limit;
    int end = known;
    if (directory < 0)
        return !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < TABLE_BITS ? ((int)limit.rlim_cur + 63) & ~63
                                                                                : TABLE_BITS;
    if (end > 64 && !listed_from(directory, end / 2)) end /= 2;
    while (end < TABLE_BITS && listed_from(directory, end)) end *= 2;
    (void)close(directory);
    if (end != known) atomic_store(&end_known, end);
    return end;
}

/* address: INADDR_ANY stands for every one. */
static bool is_bound_to(int fd, in_addr_t address, uint16_t port)
{
    struct sockaddr_in a = { 0 };
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) || n != sizeof a || a.sin_family != AF_INET) return false;
    return ntohs(a.sin_port) == port && (address == htonl(INADDR_ANY) || a.sin_addr.s_addr == address);
}

/* Also of a connection that its client has reset meanwhile, which getpeername would not say. */
static bool has_peer(int fd, struct sockaddr_in *peer)
{
    socklen_t n = sizeof *peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERNAME, peer, &n) && n == sizeof *peer && peer->sin_family == AF_INET;
}

/* Of the 64 descriptors from `first` on, those that are open and nobody's: a bit each. */
static uint64_t unclaimed_from(int first)
{
    struct pollfd p[64];
    uint64_t open = ~atomic_load_explicit(&claimed[first / 64], memory_order_acquire);
    for (int i = 0; i < 64; i++) p[i] = (struct pollfd){ .fd = open >> i & 1 ? first + i : -1 };
    if (!open || poll(p, 64, 0) < 0) return open;
    for (int i = 0; i < 64; i++)
        if (p[i].revents & POLLNVAL) open &= ~(UINT64_C(1) << i);
    return open;
}

/* The one unclaimed socket below `end` with these two ends; -1 if there is none, or more than one. */
static int find_one(int end, struct in_addr peer, uint16_t peer_port, struct in_addr ours, uint16_t our_port)
{
    int found = -1;
    for (int first = 0; first < end; first += 64) {
        for (uint64_t open = unclaimed_from(first); open; open &= open - 1) {
            const int fd = first + __builtin_ctzll(open);
            struct sockaddr_in a;
            if (!has_peer(fd, &a) || a.sin_addr.s_addr != peer.s_addr || ntohs(a.sin_port) != peer_port ||
                !is_bound_to(fd, ours.s_addr, our_port))
                continue;
            if (found >= 0) return -1;
            found = fd;
        }
    }
    return found;
}

int socket_claim(const struct http_server *s, struct in_addr peer, uint16_t peer_port)
{
    const int fd = find_one(descriptors_end(), peer, peer_port, s->address, atomic_load(&s->port));
    if (fd < 0) return -1;
    const uint64_t bit = UINT64_C(1) << (fd % 64);
    return atomic_fetch_or(&claimed[fd / 64], bit) & bit ? -1 : fd;
}

void socket_unclaim(int fd)
{
    if (fd >= 0) (void)atomic_fetch_and(&claimed[fd / 64], ~(UINT64_C(1) << (fd % 64)));
}

int socket_listener(struct in_addr address, uint16_t port)
{
    const int end = descriptors_end();
    for (int fd = 0; fd < end; fd++) {
        int listens = 0;
        socklen_t n = sizeof listens;
        if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) && listens &&
            is_bound_to(fd, address.s_addr, port))
            return fd;
    }
    return -1;
}

uint32_t socket_leftovers(struct in_addr address, uint16_t port, bool close_them)
{
    const int end = descriptors_end();
    uint32_t found = 0;
    for (int fd = 0; fd < end; fd++) {
        struct sockaddr_in a;
        if (atomic_load(&claimed[fd / 64]) >> (fd % 64) & 1) continue;
        if (!has_peer(fd, &a) || !is_bound_to(fd, address.s_addr, port)) continue;
        found++;
        if (close_them) (void)close(fd);
    }
    return found;
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

/* ---- waiting, sending ---------------------------------------------------------------------------------- */

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
        struct pollfd p = { .fd = r->fd, .events = events };
        const int ready = poll(&p, 1, ms < SLICE_MS ? (int)ms : SLICE_MS);
        if (ready > 0) return p.revents;
        if (ready < 0 && errno != EINTR) return POLLERR;
    }
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

bool socket_send(struct http_request *r, struct iovec *parts, int n, bool whole)
{
    const uint64_t patience = (uint64_t)r->s->o.write_ms * 1000000;
    uint64_t deadline = http_now_ns() + patience;
    skip_sent(&parts, &n, 0);
    while (n && !r->gone) {
        const struct msghdr message = { .msg_iov = parts, .msg_iovlen = (size_t)n };
        const ssize_t sent = sendmsg(r->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            r->out += (uint64_t)sent;
            skip_sent(&parts, &n, (size_t)sent);
            if (!whole) deadline = http_now_ns() + patience;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!socket_wait(r, POLLOUT, deadline)) r->gone = true;
        } else if (errno != EINTR) {
            r->gone = true;
        }
    }
    r->wrote_ns = http_now_ns();
    return !r->gone;
}

void socket_finish(struct http_request *r)
{
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
        const uint64_t idle = http_now_ns() + (uint64_t)FINISH_IDLE_MS * 1000000;
        if (!socket_wait(r, POLLIN, idle < end ? idle : end)) return;
    }
}
