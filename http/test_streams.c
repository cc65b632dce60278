/* test_streams.c: streams of events and the ways in which clients leave them; slots; stalled readers; closing under
 * load.
 *
 * Deadlines of these servers are minutes, unless a test is about a deadline: that something ends here shows that it was
 * seen to end. */
#include "test_client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define H "Host: 127.0.0.1\r\n"
#define GET(target) "GET " target " HTTP/1.1\r\n" H "\r\n"
#define STREAM(headers) "GET /stream HTTP/1.1\r\n" H headers "\r\n"

enum { MINUTES = 600000, ANSWER = 1 << 16 };

static atomic_bool stop, go;
static atomic_uint began, left, ended; /* streams that began, were seen to be gone, came to their end */

static void handle_good(void *user, struct http_request *r)
{
    (void)user;
    http_answer(r, 200, "text/plain", "good\n", 5);
}

static void handle_body(void *user, struct http_request *r)
{
    const char *bytes;
    size_t n;
    (void)user;
    if (http_body(r, 1000, HTTP_ANY_TYPE, &bytes, &n)) http_answer(r, 200, "text/plain", bytes, n);
}

/* More than any socket's buffers hold. */
static void handle_large(void *user, struct http_request *r)
{
    const size_t n = 32 << 20;
    char *bytes = calloc(1, n);
    (void)user;
    if (bytes) http_answer(r, 200, "application/octet-stream", bytes, n);
    free(bytes);
}

/* Events 0, 1, ... every 5 ms until `stop`, at most X-Events of them; nothing at all before `go` with X-Quiet; lines
 * with X-Lines. */
static void handle_stream(void *user, struct http_request *r)
{
    const char *most = http_header(r, "X-Events");
    const bool quiet = http_header(r, "X-Quiet");
    const unsigned long n = most ? strtoul(most, NULL, 10) : 1000000;
    const bool lines = http_header(r, "X-Lines");
    bool here = http_stream_begin(r, lines ? HTTP_LINES : HTTP_EVENTS);
    (void)user;
    atomic_fetch_add(&began, 1);
    for (unsigned long i = 0; here && i < n && !atomic_load(&stop); pause_ms(5)) {
        if (quiet && !atomic_load(&go)) {
            here = http_ping(r);
            continue;
        }
        char text[64];
        const int length = snprintf(text, sizeof text, "{\"i\":%lu}", i++);
        here = http_event(r, lines ? NULL : "token", text, (size_t)length);
    }
    atomic_fetch_add(here ? &ended : &left, 1);
}

/* Events as fast as the client takes them. */
static void handle_torrent(void *user, struct http_request *r)
{
    char text[4000];
    bool here = http_stream_begin(r, HTTP_EVENTS);
    (void)user;
    memset(text, 'x', sizeof text);
    atomic_fetch_add(&began, 1);
    while (here && !atomic_load(&stop)) here = http_event(r, NULL, text, sizeof text);
    atomic_fetch_add(here ? &ended : &left, 1);
}

/* Works without a stream, and looks whether anybody is still there. */
static void handle_work(void *user, struct http_request *r)
{
    bool here = true;
    (void)user;
    atomic_fetch_add(&began, 1);
    for (; here && !atomic_load(&go); pause_ms(5)) here = http_ping(r);
    atomic_fetch_add(here ? &ended : &left, 1);
    http_answer(r, 200, "text/plain", "done", 4);
}

static const struct http_route routes[] = {
    { "GET", "/good", handle_good, false },      { "POST", "/body", handle_body, false },
    { "GET", "/stream", handle_stream, true },   { "GET", "/large", handle_large, false },
    { "GET", "/torrent", handle_torrent, true }, { "GET", "/work", handle_work, true },
};

static struct http_server *open_with(uint32_t max_streams, uint32_t write_ms)
{
    const struct http_options o = { .host = "127.0.0.1",
                                    .max_streams = max_streams,
                                    .reserve = 4,
                                    .header_ms = MINUTES,
                                    .body_ms = MINUTES,
                                    .write_ms = write_ms,
                                    .memory = 64 << 20 };
    atomic_store(&stop, false);
    atomic_store(&go, false);
    atomic_store(&began, 0);
    atomic_store(&left, 0);
    atomic_store(&ended, 0);
    return open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
}

static void stop_and_close(struct http_server *s)
{
    atomic_store(&stop, true);
    atomic_store(&go, true);
    http_close(s);
}

static struct http_counts counts_of(const struct http_server *s)
{
    struct http_counts c;
    http_counts(s, &c);
    return c;
}

static bool nothing_left(const struct http_server *s)
{
    const struct http_counts c = counts_of(s);
    return !c.connections && !c.streams;
}

static int send_request(const struct http_server *s, const char *text)
{
    const int fd = connect_to(http_port(s));
    assert_true(send_text(fd, text));
    return fd;
}

/* ---- events -------------------------------------------------------------------------------------------- */

/* Numbers 0 to n-1 in order, each once. */
static void check_events(const char *answer, unsigned n)
{
    const char *at = answer;
    for (unsigned i = 0; i < n; i++) {
        char text[64];
        const int length = snprintf(text, sizeof text, "event: token\ndata: {\"i\":%u}\n\n", i);
        at = strstr(at, text);
        if (!at) fail_msg("event %u is missing in: %s", i, answer);
        at += length;
    }
    assert_int_equal(count_of(answer, "event: "), n);
}

static void events(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(4, MINUTES);
    assert_int_equal(exchange(http_port(s), STREAM("X-Events: 30\r\n"), answer, sizeof answer), 200);
    check_events(answer, 30);
    assert_non_null(strstr(answer, "\r\nContent-Type: text/event-stream\r\nCache-Control: "
                                   "no-cache\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"));
    assert_non_null(
        strstr(answer, "\r\n1d\r\nevent: token\ndata: {\"i\":10}\n\n\r\n")); /* one chunk each, and its size is right */
    assert_string_equal(answer + strlen(answer) - 7, "\r\n0\r\n\r\n");
    assert_int_equal(exchange(http_port(s), "GET /stream HTTP/1.0\r\nX-Events: 3\r\n" H "\r\n", answer, sizeof answer),
                     200);
    assert_non_null(strstr(
        answer,
        "\r\n\r\nevent: token\ndata: {\"i\":0}\n\nevent: token\ndata: {\"i\":1}\n\nevent: token\ndata: {\"i\":2}\n\n"));
    assert_null(strstr(answer, "chunked"));
    assert_int_equal(exchange(http_port(s), "HEAD /stream HTTP/1.1\r\n" H "\r\n", answer, sizeof answer), 200);
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    wait_for(nothing_left(s));
    http_close(s);
}

static void lines(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(4, MINUTES);
    assert_int_equal(exchange(http_port(s), STREAM("X-Lines: 1\r\nX-Events: 11\r\n"), answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\r\nContent-Type: application/x-ndjson\r\nCache-Control: "
                                   "no-cache\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"));
    assert_non_null(strstr(answer, "\r\n8\r\n{\"i\":0}\n\r\n8\r\n{\"i\":1}\n\r\n"));
    assert_string_equal(strstr(answer, "{\"i\":10}"), "{\"i\":10}\n\r\n0\r\n\r\n");
    const char *old = "GET /stream HTTP/1.0\r\nX-Lines: 1\r\nX-Events: 2\r\n" H "\r\n";
    assert_int_equal(exchange(http_port(s), old, answer, sizeof answer), 200);
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n{\"i\":0}\n{\"i\":1}\n");
    wait_for(nothing_left(s));
    http_close(s);
}

/* Between lines nothing is written: after more than a second of silence the first byte is that of the first line. */
static void no_pings_between_lines(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(1, MINUTES);
    const int fd = send_request(s, STREAM("X-Lines: 1\r\nX-Quiet: 1\r\nX-Events: 1\r\n"));
    assert_true(read_until(fd, answer, sizeof answer, "\r\n\r\n"));
    pause_ms(HTTP_PING_MS + 500);
    atomic_store(&go, true);
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    assert_string_equal(answer, "8\r\n{\"i\":0}\n\r\n0\r\n\r\n");
    hang_up(fd);
    http_close(s);
}

/* A second of silence brings a comment. */
static void pings(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(1, MINUTES);
    const int fd = send_request(s, STREAM("X-Quiet: 1\r\nX-Events: 2\r\n"));
    assert_true(read_until(fd, answer, sizeof answer, "8\r\n: ping\n\n\r\n"));
    atomic_store(&go, true);
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    check_events(answer, 2);
    hang_up(fd);
    http_close(s);
}

/* ---- leaving ------------------------------------------------------------------------------------------- */

enum leaving { FIN, RESET, HALF_CLOSE }; /* and freezing, below */
static const char *const leaving_names[] = { "close", "reset", "half-close" };

static void leave(int fd, enum leaving how)
{
    if (how == HALF_CLOSE) half_close(fd);
    if (how == RESET) reset_at_end(fd);
    if (how == FIN || how == RESET) hang_up(fd);
}

/* Before a whole request is there. The one who freezes is the deadlines' concern. */
static void leave_early(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const char *const beginnings[] = { "", "GET /go", "GET /good HTTP/1.1\r\n" H,
                                              "POST /body HTTP/1.1\r\n" H "Content-Length: 100\r\n\r\n",
                                              "POST /body HTTP/1.1\r\n" H "Content-Length: 100\r\n\r\nhalf" };
    struct http_server *s = open_with(2, MINUTES);
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        for (enum leaving how = FIN; how <= HALF_CLOSE; how++) {
            const int fd = send_request(s, beginnings[i]);
            wait_for(counts_of(s).connections == 1);
            pause_ms(20);
            leave(fd, how);
            if (how == HALF_CLOSE) {
                assert_true(read_until(fd, answer, sizeof answer, NULL));
                if (status_in(answer) != (beginnings[i][0] ? 400 : 0))
                    fail_msg("\"%s\" and a half-close: %s", beginnings[i], answer);
                hang_up(fd);
            }
            wait_for(nothing_left(s));
        }
    }
    http_close(s);
}

static void leave_stream(struct http_server *s, const char *request, const char *until, enum leaving how)
{
    static char answer[ANSWER];
    const unsigned began_before = atomic_load(&began), left_before = atomic_load(&left);
    const int fd = send_request(s, request);
    if (until) assert_true(read_until(fd, answer, sizeof answer, until));
    wait_for(atomic_load(&began) == began_before + 1);
    leave(fd, how);
    if (how == HALF_CLOSE) { /* it has ended its side only: it is served to the end */
        pause_ms(300);
        assert_int_equal(atomic_load(&left), left_before);
        assert_int_equal(counts_of(s).streams, 1);
        atomic_store(&go, true);
        assert_true(read_until(fd, answer, sizeof answer, "{\"i\":5}"));
        assert_int_equal(atomic_load(&left), left_before);
        hang_up(fd);
        atomic_store(&go, false);
    }
    wait_for(atomic_load(&left) == left_before + 1);
    wait_for(nothing_left(s));
}

/* Lines: whoever has ended its side is gone, since nothing can be written that would tell. */
static void leave_lines(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(2, MINUTES);
    leave_stream(s, STREAM("X-Lines: 1\r\nX-Quiet: 1\r\n"), "\r\n\r\n", FIN);
    leave_stream(s, STREAM("X-Lines: 1\r\nX-Quiet: 1\r\n"), "\r\n\r\n", RESET);
    leave_stream(s, STREAM("X-Lines: 1\r\n"), "\"i\":3", FIN);
    leave_stream(s, STREAM("X-Lines: 1\r\n"), "\"i\":3", RESET);
    const int fd = send_request(s, STREAM("X-Lines: 1\r\nX-Quiet: 1\r\n"));
    assert_true(read_until(fd, answer, sizeof answer, "\r\n\r\n"));
    half_close(fd);
    wait_for(atomic_load(&left) == 5);
    hang_up(fd);
    wait_for(nothing_left(s));
    http_close(s);
}

static void leave_streams(void **state)
{
    (void)state;
    struct http_server *s = open_with(2, MINUTES);
    for (enum leaving how = FIN; how <= HALF_CLOSE; how++) {
        print_message("%s\n", leaving_names[how]);
        leave_stream(s, STREAM("X-Quiet: 1\r\n"), NULL, how);       /* perhaps before the first byte */
        leave_stream(s, STREAM("X-Quiet: 1\r\n"), "\r\n\r\n", how); /* queued, in prefill: headers came, no event */
        leave_stream(s, GET("/stream"), "\"i\":3", how);            /* in the middle */
    }
    leave_stream(s, GET("/torrent"), "xxxx", FIN);
    leave_stream(s, GET("/torrent"), "xxxx", RESET);
    http_close(s);
}

/* A handler that has answered nothing yet sees a reset; a client that has ended its side may still want the answer. */
static void leave_work(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(2, MINUTES);
    leave_stream(s, GET("/work"), NULL, RESET);
    const int fd = send_request(s, GET("/work"));
    half_close(fd);
    wait_for(atomic_load(&began) == 2);
    pause_ms(100);
    atomic_store(&go, true);
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    assert_int_equal(status_in(answer), 200);
    hang_up(fd);
    wait_for(nothing_left(s));
    http_close(s);
}

/* Clients that stop reading are gone after write_ms, whether they stay connected or not; meanwhile others get all of
 * their events. */
static void freeze(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(16, 1000);
    int fds[8];
    for (int i = 0; i < 8; i++) fds[i] = send_request(s, GET("/torrent"));
    wait_for(atomic_load(&began) == 8);
    assert_int_equal(exchange(http_port(s), STREAM("X-Events: 50\r\n"), answer, sizeof answer), 200);
    check_events(answer, 50);
    wait_for(atomic_load(&left) == 8);
    assert_int_equal(atomic_load(&ended), 1);
    wait_for(nothing_left(s));
    for (int i = 0; i < 8; i++) hang_up(fds[i]);
    http_close(s);
}

/* A whole answer has write_ms in all, also for one who takes a byte now and then. */
static void dripping_reader(void **state)
{
    (void)state;
    struct http_server *s = open_with(1, 500);
    const int fd = send_request(s, GET("/large"));
    wait_for(counts_of(s).connections == 1);
    const uint64_t end = now_ms() + PATIENCE_MS;
    while (!nothing_left(s)) {
        char sink[1000];
        (void)client_recv(fd, sink, sizeof sink, MSG_DONTWAIT);
        assert_true(now_ms() < end);
        pause_ms(10);
    }
    hang_up(fd);
    http_close(s);
}

/* A client with a receive buffer of `buffer` bytes takes at most `most` bytes of an endless stream every `pause` ms,
 * for twice write_ms or longer. It keeps its stream: it is not gone. False: we were slower than we wanted to be. */
static bool read_slowly(int buffer, size_t most, unsigned pause, int times, uint32_t write_ms)
{
    static char sink[65536];
    struct http_server *s = open_with(2, write_ms);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons(http_port(s)),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_true(!buffer || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    assert_true(client_begin(fd) && send_text(fd, GET("/torrent")));
    uint64_t before = now_ms(), longest = 0;
    for (int i = 0; i < times; i++) {
        pause_ms(pause);
        const ssize_t n = client_recv(fd, sink, most, 0);
        const uint64_t now = now_ms();
        if (now - before > longest) longest = now - before;
        before = now;
        assert_true(n > 0 || longest >= write_ms / 2);
    }
    const bool kept = atomic_load(&left) == 0;
    hang_up(fd);
    wait_for(atomic_load(&left) == 1);
    http_close(s);
    assert_true(kept || longest >= write_ms / 2);
    return kept;
}

static void slow_reader(void **state)
{
    (void)state;
    while (!read_slowly(0, 65536, 50, 60, 1500)) continue;
    while (!read_slowly(4096, 1000, 60, 100, 2000)) continue; /* the server's socket has no room for long */
}

/* ---- slots --------------------------------------------------------------------------------------------- */

static void slots(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_with(3, MINUTES);
    int fds[3];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) fds[i] = send_request(s, STREAM("X-Quiet: 1\r\n"));
        wait_for(counts_of(s).streams == 3);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(exchange(http_port(s), GET("/stream"), answer, sizeof answer), 429);
            assert_non_null(strstr(answer, "\r\nRetry-After: 1\r\n"));
            assert_non_null(strstr(answer, "{\"code\":\"QUEUE_FULL\""));
            assert_non_null(strstr(answer, "\"retriable\":true"));
            assert_int_equal(exchange(http_port(s), GET("/good"), answer, sizeof answer), 200);
        }
        assert_int_equal(counts_of(s).streams_refused, 20 * (round + 1));
        hang_up(fds[0]);
        wait_for(counts_of(s).streams == 2);
        assert_int_equal(exchange(http_port(s), STREAM("X-Events: 2\r\n"), answer, sizeof answer), 200);
        hang_up(fds[1]);
        hang_up(fds[2]);
        wait_for(nothing_left(s));
    }
    http_close(s);
}

/* ---- closing ------------------------------------------------------------------------------------------- */

static atomic_uint answered, refused, lost;

static void *ask_again_and_again(void *argument)
{
    const uint16_t port = *(const uint16_t *)argument;
    while (!atomic_load(&stop)) {
        char answer[4096];
        const int fd = try_connect(port);
        if (fd < 0) {
            atomic_fetch_add(&refused, 1);
            pause_ms(1);
            continue;
        }
        const bool sent = client_begin(fd) && send_text(fd, GET("/good"));
        const bool whole = read_until(fd, answer, sizeof answer, NULL);
        const int status = status_in(answer);
        if (!sent || !whole || (status != 200 && status != 503))
            atomic_fetch_add(&lost, 1);
        else
            atomic_fetch_add(&answered, 1);
        if (status == 200 && !strstr(answer, "\r\n\r\ngood\n")) fail_msg("half an answer: %s", answer);
        hang_up(fd);
    }
    return NULL;
}

/* Streams end whole, connections that asked for nothing are cut, and the port can be used again at once. */
static void close_under_load(void **state)
{
    (void)state;
    static char answer[ANSWER];
    enum { STREAMS = 20, IDLE = 20, THREADS = 4 };
    struct http_server *s = open_with(STREAMS, MINUTES);
    uint16_t port = http_port(s);
    int streams[STREAMS], idle[IDLE];
    pthread_t threads[THREADS];
    for (int i = 0; i < STREAMS; i++) streams[i] = send_request(s, GET("/stream"));
    wait_for(atomic_load(&began) == STREAMS);
    for (int i = 0; i < IDLE; i++) idle[i] = send_request(s, i % 2 ? "GET /go" : "");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_again_and_again, &port), 0);
    wait_for(atomic_load(&answered) > 50);
    atomic_store(&stop, true);
    http_close(s);
    for (int i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
    for (int i = 0; i < STREAMS; i++) {
        assert_true(read_until(streams[i], answer, sizeof answer, NULL));
        check_events(answer, count_of(answer, "event: "));
        assert_string_equal(answer + strlen(answer) - 7, "\r\n0\r\n\r\n");
        hang_up(streams[i]);
    }
    assert_int_equal(atomic_load(&ended), STREAMS);
    for (int i = 0; i < IDLE; i++) {
        assert_true(read_until(idle[i], answer, sizeof answer, NULL));
        hang_up(idle[i]);
    }
    const struct http_options again = { .host = "127.0.0.1",
                                        .port = port,
                                        .reserve = 2,
                                        .header_ms = 1000,
                                        .body_ms = 1000,
                                        .write_ms = 1000,
                                        .memory = 64 << 20 };
    s = open_server(&again, routes, sizeof routes / sizeof *routes, NULL);
    assert_int_equal(exchange(port, GET("/good"), answer, sizeof answer), 200);
    http_close(s);
}

/* Nothing that was open stays so, whatever was under way. */
static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 4096; fd++)
        n += !getsockopt(fd, SOL_SOCKET, SO_TYPE, &(int){ 0 }, &(socklen_t){ sizeof(int) });
    return n;
}

static void no_descriptor_is_left(void **state)
{
    (void)state;
    const int before = open_descriptors();
    for (int round = 0; round < 5; round++) {
        struct http_server *s = open_with(4, MINUTES);
        int fds[12];
        for (int i = 0; i < 12; i++) fds[i] = send_request(s, i < 4 ? GET("/stream") : i < 8 ? "GET /go" : "");
        stop_and_close(s);
        for (int i = 0; i < 12; i++) hang_up(fds[i]);
    }
    assert_int_equal(open_descriptors(), before);
}

/* In a process whose hard limit cannot be raised. */
static void too_few_descriptors(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const struct http_options o = { .host = "127.0.0.1",
                                        .max_streams = 1000,
                                        .reserve = 10,
                                        .header_ms = 1000,
                                        .body_ms = 1000,
                                        .write_ms = 1000,
                                        .memory = 64 << 20 };
        char text[256] = "";
        const struct wk_err err = { text, sizeof text };
        struct http_server *s = NULL;
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 500, 500 })) _exit(2);
        _exit(http_open(&o, routes, 1, NULL, &s, &err) == WK_INVALID && strstr(text, "ulimit -Hn) is 500") ? 0 : 1);
    }
    int status = 0;
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void wrong_options(void **state)
{
    (void)state;
    const struct http_options right = {
        .host = "127.0.0.1", .reserve = 1, .header_ms = 1, .body_ms = 1, .write_ms = 1, .memory = 64 << 20
    };
    struct http_server *s = open_server(&right, routes, 1, NULL), *other = NULL;
    struct http_options o[8] = { right, right, right, right, right, right, right, right };
    o[0].host = "example.org";
    o[1].host = "[::1]";
    o[2].reserve = 0;
    o[3].max_streams = UINT32_MAX;
    o[4].write_ms = 0;
    o[5].memory = 0;
    o[6].port = http_port(s);
    o[7].host = "192.0.2.1";
    for (int i = 0; i < 8; i++) {
        char text[256] = "";
        const struct wk_err err = { text, sizeof text };
        assert_int_equal(http_open(&o[i], routes, 1, NULL, &other, &err), i < 6 ? WK_INVALID : WK_IO);
        assert_null(other);
        if (!text[0]) fail_msg("no text for the options %d", i);
    }
    http_close(s);
    http_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_few_descriptors) /* before there are threads */,
        cmocka_unit_test(events),
        cmocka_unit_test(lines),
        cmocka_unit_test(pings),
        cmocka_unit_test(no_pings_between_lines),
        cmocka_unit_test(leave_early),
        cmocka_unit_test(leave_streams),
        cmocka_unit_test(leave_lines),
        cmocka_unit_test(leave_work),
        cmocka_unit_test(freeze),
        cmocka_unit_test(dripping_reader),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(slots),
        cmocka_unit_test(close_under_load),
        cmocka_unit_test(no_descriptor_is_left),
        cmocka_unit_test(wrong_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
