/* peer_link.c: see peer_link.h. */
#include "peer_link.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOOK_MS = 50 /* between two looks at `stop` */, BACKLOG = 16 };

struct head {
    uint32_t kind, bytes;
};

/* ---- sockets ------------------------------------------------------------------------------------------- */

/* What all givers' names begin with: who names a giver cannot have other sockets of this user written to. */
static const char prefix[] = "worker-kv-";

/* The abstract namespace: a zero byte and the name. */
static socklen_t address(struct sockaddr_un *a, const char *name)
{
    const size_t n = strnlen(name, PEER_NAME - 1);
    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(a->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

int link_listen(char name[PEER_NAME], const struct wk_err *err)
{
    uint64_t random;
    struct sockaddr_un a;
    if (getentropy(&random, sizeof random)) {
        (void)wk_fail(err, WK_IO, "no random bytes for the name of a socket");
        return -1;
    }
    (void)snprintf(name, PEER_NAME, "%s%ld-%016" PRIx64, prefix, (long)getpid(), random);
    const socklen_t n = address(&a, name);
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0 && !bind(s, (struct sockaddr *)&a, n) && !listen(s, BACKLOG)) return s;
    (void)wk_fail(err, WK_IO, "no UNIX socket for the pages of prompts: %s", strerror(errno));
    if (s >= 0) (void)close(s);
    return -1;
}

bool link_same_user(int s)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return !getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &n) && (who.uid == geteuid() || who.uid == 0);
}

int link_connect(const char *name, const struct wk_err *err)
{
    struct sockaddr_un a;
    const socklen_t n = address(&a, name);
    const bool named = strncmp(name, prefix, sizeof prefix - 1) == 0;
    const int s = named ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (s >= 0 && !connect(s, (struct sockaddr *)&a, n) && link_same_user(s)) return s;
    (void)wk_fail(err, WK_UNSUPPORTED, "no worker of this user listens as %.63s on this host", name);
    if (s >= 0) (void)close(s);
    return -1;
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

/* Waits until something can be read or written. most_ms below 0: for any time. */
static bool ready(int s, short events, int most_ms, const atomic_bool *stop)
{
    for (int waited = 0; most_ms < 0 || waited < most_ms; waited += LOOK_MS) {
        struct pollfd p = { .fd = s, .events = events };
        if (stop && atomic_load(stop)) return false;
        const int n = poll(&p, 1, LOOK_MS);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
    return false;
}

static bool again(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static bool send_all(int s, const void *bytes, size_t n, int fd, const atomic_bool *stop)
{
    const uint8_t *at = bytes;
    while (n) {
        union {
            struct cmsghdr head;
            char space[CMSG_SPACE(sizeof fd)];
        } control = { 0 };
        struct iovec part = { .iov_base = (void *)(uintptr_t)at, .iov_len = n };
        struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
        if (fd >= 0) {
            m.msg_control = &control;
            m.msg_controllen = sizeof control.space;
            control.head =
                (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
            memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        }
        const ssize_t sent = sendmsg(s, &m, MSG_NOSIGNAL);
        if (sent < 0 && (!again() || !ready(s, POLLOUT, LINK_WAIT_MS, stop))) return false;
        if (sent <= 0) continue;
        at += sent;
        n -= (size_t)sent;
        fd = -1;
    }
    return true;
}

/* A descriptor that came with the bytes; more than one are none of ours. */
static void take_fd(struct msghdr *m, int *fd)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; CMSG_LEN(at + sizeof *fd) <= c->cmsg_len; at += sizeof *fd) {
            int one;
            memcpy(&one, CMSG_DATA(c) + at, sizeof one);
            if (*fd >= 0)
                (void)close(one);
            else
                *fd = one;
        }
    }
}

static bool receive_all(int s, void *bytes, size_t n, int *fd, int most_ms, const atomic_bool *stop)
{
    uint8_t *at = bytes;
    while (n) {
        union {
            struct cmsghdr head;
            char space[CMSG_SPACE(4 * sizeof *fd)];
        } control;
        struct iovec part = { .iov_base = at, .iov_len = n };
        struct msghdr m = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space
        };
        if (!ready(s, POLLIN, most_ms, stop)) return false;
        const ssize_t got = recvmsg(s, &m, MSG_CMSG_CLOEXEC);
        if (got == 0 || (got < 0 && !again())) return false;
        if (got < 0) continue;
        take_fd(&m, fd);
        at += got;
        n -= (size_t)got;
        most_ms = LINK_WAIT_MS;
    }
    return true;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

bool link_send(int s, enum link_kind kind, const void *a, uint32_t na, const void *b, uint32_t nb, int fd,
               const atomic_bool *stop)
{
    const struct head h = { kind, na + nb };
    return send_all(s, &h, sizeof h, fd, stop) && send_all(s, a, na, -1, stop) && send_all(s, b, nb, -1, stop);
}

bool link_receive(int s, struct link_message *out, bool patient, const atomic_bool *stop)
{
    struct head h;
    *out = (struct link_message){ .fd = -1 };
    bool good = receive_all(s, &h, sizeof h, &out->fd, patient ? -1 : LINK_WAIT_MS, stop) && h.bytes <= LINK_MOST;
    if (good && h.bytes) {
        out->payload = malloc(h.bytes);
        good = out->payload && receive_all(s, out->payload, h.bytes, &out->fd, LINK_WAIT_MS, stop);
    }
    if (good) {
        out->kind = (enum link_kind)h.kind;
        out->bytes = h.bytes;
        return true;
    }
    link_forget(out);
    return false;
}

void link_forget(struct link_message *m)
{
    free(m->payload);
    if (m->fd >= 0) (void)close(m->fd);
    *m = (struct link_message){ .fd = -1 };
}
