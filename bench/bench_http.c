/* bench_http.c: a worker's main port as load balancers and probes meet it: probes a second over connections of their
 * own, the same over connections that go on, and how long a probe takes beside 110 bodies of /tokenize that do not
 * come. `bench_http PORT [SECONDS]`, on a quiet machine. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 4, SLOW = 110, PROBES = 1000, ANSWER = 4096 };

static const char own[] = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
                  kept[] = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
                  slow[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           "Content-Length: 1000000\r\n\r\n{";

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int connect_to(uint16_t port)
{
    const struct sockaddr_in a = { .sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a)) {
        perror("connect");
        exit(1);
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* One answer with a length; false: the connection is over, or it was no 200. */
static bool read_answer(int fd)
{
    char text[ANSWER];
    size_t n = 0;
    for (;;) {
        const ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) return false;
        n += (size_t)got;
        text[n] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end && length && n >= (size_t)(end + 4 - text) + (size_t)atol(length + 16))
            return !strncmp(text, "HTTP/1.1 200", 12);
        if (n == sizeof text - 1) return false;
    }
}

struct client {
    pthread_t thread;
    uint16_t port;
    bool keep;
    double until;
    uint64_t answers;
};

static void *ask(void *user)
{
    struct client *c = user;
    int fd = -1;
    while (now() < c->until) {
        const char *text = c->keep ? kept : own;
        if (fd < 0) fd = connect_to(c->port);
        const bool sent = send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
        const bool good = sent && read_answer(fd);
        c->answers += good;
        if (c->keep && good) continue;
        (void)close(fd);
        fd = -1;
    }
    if (fd >= 0) (void)close(fd);
    return NULL;
}

static void measure(uint16_t port, bool keep, double seconds)
{
    struct client clients[CLIENTS] = { 0 };
    uint64_t answers = 0;
    const double from = now();
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){ .port = port, .keep = keep, .until = from + seconds };
        if (pthread_create(&clients[i].thread, NULL, ask, &clients[i])) exit(1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        (void)pthread_join(clients[i].thread, NULL);
        answers += clients[i].answers;
    }
    (void)printf("%-28s %.0f requests a second (%d clients)\n",
                 keep ? "connections that go on" : "a connection a request", (double)answers / (now() - from), CLIENTS);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void probe(uint16_t port, const char *name)
{
    static double ms[PROBES];
    for (int i = 0; i < PROBES; i++) {
        const double from = now();
        const int fd = connect_to(port);
        if (send(fd, own, sizeof own - 1, MSG_NOSIGNAL) != (ssize_t)(sizeof own - 1) || !read_answer(fd)) {
            (void)fprintf(stderr, "%s: a probe was not answered\n", name);
            exit(1);
        }
        ms[i] = (now() - from) * 1e3;
        (void)close(fd);
        (void)usleep(1000);
    }
    qsort(ms, PROBES, sizeof *ms, by_size);
    (void)printf("%-28s p50 %.2f  p99 %.2f  worst %.2f ms\n", name, ms[PROBES / 2], ms[PROBES * 99 / 100],
                 ms[PROBES - 1]);
}

int main(int argc, char **argv)
{
    const uint16_t port = argc > 1 ? (uint16_t)atoi(argv[1]) : 0;
    const double seconds = argc > 2 ? atof(argv[2]) : 3;
    int fds[SLOW];
    if (!port) {
        (void)fprintf(stderr, "usage: bench_http PORT [SECONDS]\n");
        return 2;
    }
    measure(port, false, seconds);
    measure(port, true, seconds);
    probe(port, "probes alone");
    for (int i = 0; i < SLOW; i++) {
        fds[i] = connect_to(port);
        if (send(fds[i], slow, sizeof slow - 1, MSG_NOSIGNAL) < 0) return 1;
    }
    probe(port, "probes beside 110 slow bodies");
    for (int i = 0; i < SLOW; i++) (void)close(fds[i]);
    return 0;
}
