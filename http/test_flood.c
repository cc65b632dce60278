/* test_flood.c: thousands of connections: half-open ones on one port while the other answers, and as many streams as
 * were asked for, none lost or out of order. */
#include "test_client.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define H "Host: 127.0.0.1\r\n"
#define GET(target) "GET " target " HTTP/1.1\r\n" H "\r\n"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STREAMS = 200, SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { STREAMS = 200, SANITIZED = 1 };
#else
enum { STREAMS = 1000, SANITIZED = 0 };
#endif
#else
enum { STREAMS = 1000, SANITIZED = 0 };
#endif

enum { MINUTES = 600000, FLOOD = 10000, EVENTS = 50, RSS_MOST_KB = 256 << 10 };

static atomic_bool go;

static void handle_good(void *user, struct http_request *r)
{
    (void)user;
    http_answer(r, 200, "text/plain", "good\n", 5);
}

static void handle_stream(void *user, struct http_request *r)
{
    bool here = http_stream_begin(r, HTTP_EVENTS);
    (void)user;
    for (; here && !atomic_load(&go); pause_ms(20)) here = http_ping(r);
    for (int i = 0; here && i < EVENTS; i++) {
        char text[64];
        const int n = snprintf(text, sizeof text, "{\"stream\":\"%s\",\"i\":%d}", http_rest(r), i);
        here = http_event(r, "token", text, (size_t)n);
        pause_ms(1);
    }
}

static const struct http_route routes[] = { { "GET", "/good", handle_good, false },
                                            { "GET", "/stream/", handle_stream, true } };

static struct http_server *open_with(uint32_t max_streams, uint32_t reserve)
{
    const struct http_options o = { .host = "127.0.0.1",
                                    .max_streams = max_streams,
                                    .reserve = reserve,
                                    .header_ms = MINUTES,
                                    .body_ms = MINUTES,
                                    .write_ms = MINUTES,
                                    .memory = 64 << 20 };
    atomic_store(&go, false);
    return open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
}

static bool idle(const struct http_server *s)
{
    struct http_counts c;
    http_counts(s, &c);
    return !c.connections && !c.streams;
}

/* Descriptors for n connections; the number that there can be. */
static unsigned room_for(unsigned n)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < n + 6000 && limit.rlim_max > limit.rlim_cur) {
        limit.rlim_cur = limit.rlim_max < n + 6000 ? limit.rlim_max : n + 6000;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur < n + 6000 ? (unsigned)limit.rlim_cur / 2 : n;
}

static int connect_without_waiting(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_true(!connect(fd, (struct sockaddr *)&a, sizeof a) || errno == EINPROGRESS);
    return fd;
}

/* No deadline ends these connections: only that threads are wanted does. */
static void half_open(void **state)
{
    (void)state;
    static char answer[4096];
    struct http_server *s = open_with(0, 8);
    int fds[40];
    for (int i = 0; i < 40; i++) {
        fds[i] = connect_to(http_port(s));
        if (i % 2) assert_true(send_text(fds[i], "GET /good HTTP/1.1\r\nX: "));
    }
    assert_int_equal(exchange(http_port(s), GET("/good"), answer, sizeof answer), 200);
    for (int i = 0; i < 40; i++) (void)close(fds[i]);
    wait_for(idle(s));
    http_close(s);
}

/* In a process of its own, as a stranger is: reads the port, connects, says so, and stays until it is ended. */
static void flood_from_elsewhere(int in, int out)
{
    uint16_t port = 0;
    const unsigned n = room_for(FLOOD);
    if (read(in, &port, sizeof port) != sizeof port) _exit(1);
    for (unsigned i = 0; i < n; i++) {
        const int fd = connect_without_waiting(port);
        (void)send(fd, "GET /go", i % 8, MSG_NOSIGNAL);
    }
    if (write(out, &n, sizeof n) != sizeof n || read(in, &port, sizeof port) < 0) _exit(1);
    _exit(0);
}

static void flood(void **state)
{
    (void)state;
    static char answer[4096];
    int to[2], from[2];
    assert_true(!pipe(to) && !pipe(from));
    const pid_t child = fork(); /* before there are threads */
    assert_true(child >= 0);
    if (!child) {
        (void)close(to[1]);
        flood_from_elsewhere(to[0], from[1]);
    }
    struct http_server *s = open_with(32, 32), *admin = open_with(0, 4);
    const uint16_t port = http_port(s);
    assert_int_equal(write(to[1], &port, sizeof port), sizeof port);
    uint64_t worst = 0;
    unsigned n = 0;
    struct pollfd p = { .fd = from[0], .events = POLLIN };
    for (int i = 0; i < 500 || !p.revents; i++) {
        const uint64_t begin = now_ms();
        assert_int_equal(exchange(http_port(admin), GET("/good"), answer, sizeof answer), 200);
        if (now_ms() - begin > worst) worst = now_ms() - begin;
        if (!p.revents) assert_true(poll(&p, 1, 0) >= 0);
    }
    assert_int_equal(read(from[0], &n, sizeof n), sizeof n);
    print_message("%u half-open connections; the other port's slowest answer took %d ms\n", n, (int)worst);
    for (int i = 0; i < 2; i++) (void)close(to[i]), (void)close(from[i]);
    int status = 0;
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    assert_int_equal(exchange(http_port(s), GET("/good"), answer, sizeof answer), 200);
    wait_for(idle(s));
    http_close(admin);
    http_close(s);
}

/* ---- many streams -------------------------------------------------------------------------------------- */

struct reader {
    int fd;
    char *text;
    size_t n, cap;
    bool over;
};

/* Takes what is there. */
static void take(struct reader *r)
{
    if (r->cap - r->n < 4096) {
        r->cap = 2 * r->cap + 8192;
        r->text = realloc(r->text, r->cap);
        assert_non_null(r->text);
    }
    const ssize_t n = recv(r->fd, r->text + r->n, r->cap - r->n - 1, MSG_DONTWAIT);
    if (n > 0)
        r->n += (size_t)n;
    else if (n == 0)
        r->over = true;
    else
        assert_true(errno == EAGAIN || errno == EINTR);
    r->text[r->n] = 0;
}

static void check_stream(const struct reader *r, int number)
{
    const char *at = r->text;
    for (int i = 0; i < EVENTS; i++) {
        char text[96];
        (void)snprintf(text, sizeof text, "data: {\"stream\":\"%d\",\"i\":%d}\n\n", number, i);
        at = strstr(at, text);
        if (!at) fail_msg("stream %d: event %d is missing: %s", number, i, r->text);
        at += strlen(text);
    }
    assert_int_equal(count_of(r->text, "data: "), EVENTS);
    assert_string_equal(r->text + r->n - 5, "0\r\n\r\n");
}

static long rss_kb(void)
{
    long kb = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1) break;
    (void)fclose(f);
    return kb;
}

static void many_streams(void **state)
{
    (void)state;
    static char answer[4096];
    static struct reader readers[STREAMS];
    static struct pollfd polls[STREAMS];
    (void)room_for(2 * STREAMS);
    struct http_server *s = open_with(STREAMS, 16);
    for (int i = 0; i < STREAMS; i++) {
        char request[128];
        (void)snprintf(request, sizeof request, "GET /stream/%d HTTP/1.1\r\n" H "\r\n", i);
        readers[i] = (struct reader){ .fd = connect_to(http_port(s)) };
        polls[i] = (struct pollfd){ .fd = readers[i].fd, .events = POLLIN };
        assert_true(send_text(readers[i].fd, request));
    }
    struct http_counts c = { 0 };
    wait_for((http_counts(s, &c), c.streams == STREAMS));
    const uint64_t from = now_ms();
    assert_int_equal(exchange(http_port(s), GET("/stream/x"), answer, sizeof answer), 429);
    const uint64_t refusal_ms = now_ms() - from;
    assert_int_equal(exchange(http_port(s), GET("/good"), answer, sizeof answer), 200);
    const long rss = rss_kb();
    print_message("%d streams: one more was refused in %d ms; %ld MiB resident\n", (int)STREAMS, (int)refusal_ms,
                  rss / 1024);
    if (!SANITIZED) assert_true(rss < RSS_MOST_KB);
    atomic_store(&go, true);
    const uint64_t end = now_ms() + PATIENCE_MS;
    for (int open = STREAMS; open;) {
        assert_true(now_ms() < end && poll(polls, STREAMS, 100) >= 0);
        for (int i = 0; i < STREAMS; i++) {
            if (!polls[i].revents || readers[i].over) continue;
            take(&readers[i]);
            if (readers[i].over) {
                polls[i].fd = -1;
                open--;
            }
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        check_stream(&readers[i], i);
        (void)close(readers[i].fd);
        free(readers[i].text);
    }
    wait_for(idle(s));
    http_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(half_open), cmocka_unit_test(flood),
                                        cmocka_unit_test(many_streams) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
