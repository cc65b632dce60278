/* listen.c: the sockets that a server listens with: IPv4, IPv6, or both.
 *
 * CivetWeb as Debian builds it knows IPv4 alone, and says why it cannot bind in a line of text only. So we bind, and
 * put our sockets in the place of its own (server.c). */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

enum {
    BACKLOG = 4096, /* the kernel allows net.core.somaxconn of them */
    TRIES = 16      /* of finding a port that is free for both kinds of address */
};

struct place {
    struct sockaddr_storage address;
    socklen_t size;
    bool optional; /* not every machine has it */
};

static bool place_of(const char *host, struct place *out)
{
    struct sockaddr_in *four = (struct sockaddr_in *)&out->address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out->address;
    *out = (struct place){ 0 };
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        out->size = sizeof *four;
    } else if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        out->size = sizeof *six;
    }
    return out->size;
}

static bool is_localhost(const char *host) { return strcasecmp(host, "localhost") == 0; }

bool http_is_host(const char *host)
{
    struct place p;
    return host && (is_localhost(host) || place_of(host, &p));
}

static void set_port(struct place *p, uint16_t port)
{
    if (p->address.ss_family == AF_INET)
        ((struct sockaddr_in *)&p->address)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)&p->address)->sin6_port = htons(port);
}

/* -1: errno says why. */
static int open_one(const struct place *p)
{
    const int one = 1, fd = socket(p->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (p->address.ss_family == AF_INET6) { /* :: is all addresses, of both kinds */
        const struct in6_addr *address = &((const struct sockaddr_in6 *)&p->address)->sin6_addr;
        const int only = !IN6_IS_ADDR_UNSPECIFIED(address);
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    }
    if (!bind(fd, (const struct sockaddr *)&p->address, p->size) && !listen(fd, BACKLOG)) return fd;
    const int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

static wk_status refuse(const struct http_options *o, int why, const struct wk_err *err)
{
    const bool six = strchr(o->host, ':');
    const char *before = six ? "[" : "", *behind = six ? "]" : "";
    if (why == EADDRINUSE)
        return wk_fail(
            err, WK_IO,
            "%s%s%s:%u is in use by another program, perhaps by a worker (worker status tells): stop it, or choose "
            "another port: --port N, --admin-port N",
            before, o->host, behind, o->port);
    if (why == EADDRNOTAVAIL || why == EAFNOSUPPORT)
        return wk_fail(err, WK_IO, "%s is not an address of this machine", o->host);
    if (why == EACCES) return wk_fail(err, WK_IO, "port %u needs privileges: choose one from 1024 on", o->port);
    return wk_fail(err, WK_IO, "%s%s%s:%u cannot be bound: %s", before, o->host, behind, o->port, strerror(why));
}

static void close_all(int *fds, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) (void)close(fds[i]);
}

wk_status listen_open(const struct http_options *o, int out[LISTENERS_MAX], uint32_t *n, uint16_t *port,
                      const struct wk_err *err)
{
    struct place places[LISTENERS_MAX];
    const bool both = is_localhost(o->host);
    (void)place_of(both ? "127.0.0.1" : o->host, &places[0]);
    if (both) {
        (void)place_of("::1", &places[1]);
        places[1].optional = true;
    }
    for (int tries = o->port ? 1 : TRIES;; tries--) {
        int why = 0;
        *n = 0;
        *port = o->port;
        for (uint32_t i = 0; i < (both ? 2u : 1u) && !why; i++) {
            set_port(&places[i], *port);
            const int fd = open_one(&places[i]);
            if (fd >= 0) {
                out[(*n)++] = fd;
                *port = socket_port(fd);
            } else if (!places[i].optional || (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)) {
                why = errno;
            }
        }
        if (!why) return WK_OK;
        close_all(out, *n);
        *n = 0;
        if (why != EADDRINUSE || tries == 1) return refuse(o, why, err);
    }
}
