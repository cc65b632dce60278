/* test_connections.c: connections that go on, and addresses of either kind: requests one after the other, whatever
 * framing their bodies have; what ends such a connection; threads that it does not keep from others; IPv6, localhost;
 * chunked bodies in pieces of every length. */
#include "test_client.h"

#include "chunks.h"
#include "internal.h"

#define H "Host: 127.0.0.1\r\n"
#define KEEP "Connection: keep-alive\r\n"
#define JSON "Content-Type: application/json\r\n"

enum { ANSWER = 1 << 16, MINUTES = 600000 };

static void handle_good(void *user, struct http_request *r)
{
    (void)user;
    http_answer(r, 200, "text/plain", "good\n", 5);
}

static void handle_echo(void *user, struct http_request *r)
{
    const char *bytes;
    size_t n;
    (void)user;
    if (http_body(r, 1 << 20, HTTP_JSON, &bytes, &n)) http_answer(r, 200, "application/json", bytes, n);
}

static void handle_unread(void *user, struct http_request *r) { handle_good(user, r); }

static void handle_stream(void *user, struct http_request *r)
{
    (void)user;
    if (http_stream_begin(r, HTTP_EVENTS)) (void)http_event(r, NULL, "{}", 2);
}

/* Takes memory twice: {"first": bytes, "second": bytes}; releases it between. */
static void handle_memory(void *user, struct http_request *r)
{
    const char *first = http_header(r, "X-First"), *second = http_header(r, "X-Second"), *bytes;
    size_t n;
    (void)user;
    if (!http_body(r, 1 << 20, HTTP_JSON, &bytes, &n) || (first && !http_reserve(r, strtoul(first, NULL, 10)))) return;
    if (http_header(r, "X-Release")) http_release(r);
    if (!second || http_reserve(r, strtoul(second, NULL, 10))) http_answer(r, 200, "text/plain", "had\n", 4);
}

static const struct http_route routes[] = {
    { "GET", "/good", handle_good, false },      { "POST", "/echo", handle_echo, false },
    { "POST", "/unread", handle_unread, false }, { "GET", "/stream", handle_stream, true },
    { "POST", "/memory", handle_memory, false },
};

static struct http_server *open_at(const char *host, uint16_t port, uint32_t max_streams, uint32_t reserve)
{
    const struct http_options o = { .host = host,
                                    .port = port,
                                    .max_streams = max_streams,
                                    .reserve = reserve,
                                    .header_ms = MINUTES,
                                    .body_ms = MINUTES,
                                    .write_ms = MINUTES,
                                    .memory = 8 << 20 };
    return open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
}

/* One answer with a length, and whether the connection is said to go on. */
static int next_answer(int fd, char *answer, size_t cap, bool *goes_on)
{
    size_t n = 0;
    for (answer[0] = 0; n < cap - 1; answer[n] = 0) {
        const ssize_t got = client_recv(fd, answer + n, 1, 0);
        if (got <= 0) return 0;
        n++;
        if (n >= 4 && !memcmp(answer + n - 4, "\r\n\r\n", 4)) break;
    }
    answer[n] = 0;
    const char *length = strstr(answer, "Content-Length: ");
    for (long left = length ? atol(length + 16) : 0; left && n < cap - 1; left--, n++)
        if (client_recv(fd, answer + n, 1, 0) != 1) return 0;
    answer[n] = 0;
    *goes_on = strstr(answer, "\r\nConnection: keep-alive\r\n") && strstr(answer, "\r\nKeep-Alive: timeout=5\r\n");
    return status_in(answer);
}

static bool is_at_end(int fd)
{
    char rest[1];
    return client_recv(fd, rest, 1, 0) <= 0;
}

static void one_after_the_other(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const struct {
        const char *request, *body;
        int status;
    } steps[] = {
        { "GET /good HTTP/1.1\r\n" H KEEP "\r\n", "good\n", 200 },
        { "POST /echo HTTP/1.1\r\n" H KEEP JSON "Content-Length: 7\r\n\r\n{\"a\":1}", "{\"a\":1}", 200 },
        { "POST /echo HTTP/1.1\r\n" H KEEP JSON
          "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"b\r\n4\r\n\":2}\r\n0\r\n\r\n",
          "{\"b\":2}", 200 },
        { "GET /nothing HTTP/1.1\r\n" H KEEP "\r\n", "NOT_FOUND", 404 },
        { "POST /echo HTTP/1.1\r\n" H KEEP "\r\n", "", 200 },
        { "GET /good HTTP/1.0\r\n" KEEP "\r\n", "good\n", 200 },
        { "GET /good HTTP/1.1\r\n" H KEEP "\r\n", "good\n", 200 },
    };
    struct http_server *s = open_at("127.0.0.1", 0, 0, 8);
    bool goes_on;
    const int fd = connect_to(http_port(s));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_true(send_text(fd, steps[i].request));
        assert_int_equal(next_answer(fd, answer, sizeof answer, &goes_on), steps[i].status);
        assert_non_null(strstr(strstr(answer, "\r\n\r\n"), steps[i].body));
        if (!goes_on) fail_msg("step %zu: %s", i, answer);
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) assert_true(send_text(fd, steps[i].request));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        assert_int_equal(next_answer(fd, answer, sizeof answer, &goes_on), steps[i].status);
    assert_true(send_text(fd, "GET /good HTTP/1.1\r\n" H "\r\n"));
    assert_int_equal(next_answer(fd, answer, sizeof answer, &goes_on), 200);
    assert_false(goes_on);
    assert_true(is_at_end(fd));
    hang_up(fd);
    http_close(s);
}

/* Behind these nothing is served, whatever was asked for. */
static void ends(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const char *const last[] = {
        "GET /good HTTP/1.1\r\n" H KEEP "Bad Header: x\r\n\r\n",
        "BREW /good HTTP/1.1\r\n" H KEEP "\r\n",
        "GET /good HTTP/1.1\r\nHost: evil.example\r\n" KEEP "\r\n",
        "GET /good HTTP/1.1\r\n" H KEEP "Origin: https://evil.example\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" H KEEP JSON "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" H KEEP JSON "Content-Length: 9999999\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" H KEEP "Content-Length: 2\r\n\r\n{}",
        "POST /unread HTTP/1.1\r\n" H KEEP "Content-Length: 2\r\n\r\n{}",
        "GET /good HTTP/1.1\r\n" H "Connection: close\r\n\r\n",
    };
    struct http_server *s = open_at("127.0.0.1", 0, 0, 8);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        bool goes_on;
        const int fd = connect_to(http_port(s));
        assert_true(send_text(fd, "GET /good HTTP/1.1\r\n" H KEEP "\r\n"));
        assert_int_equal(next_answer(fd, answer, sizeof answer, &goes_on), 200);
        assert_true(goes_on && send_text(fd, last[i]));
        (void)send_text(fd, "GET /good HTTP/1.1\r\n" H KEEP "\r\n");
        assert_true(next_answer(fd, answer, sizeof answer, &goes_on) > 0);
        if (goes_on || !is_at_end(fd)) fail_msg("%s: %s", last[i], answer);
        hang_up(fd);
    }
    struct http_counts c;
    wait_for((http_counts(s, &c), !c.connections));
    http_close(s);
}

/* A stream in chunks has an end of its own. */
static void behind_a_stream(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_at("127.0.0.1", 0, 2, 8);
    const int fd = connect_to(http_port(s));
    for (int i = 0; i < 3; i++) {
        assert_true(send_text(fd, "GET /stream HTTP/1.1\r\n" H KEEP "\r\n"));
        assert_true(read_until(fd, answer, sizeof answer, "\r\n0\r\n\r\n"));
        assert_non_null(strstr(answer, "\r\nConnection: keep-alive\r\n"));
    }
    assert_true(send_text(fd, "GET /stream HTTP/1.0\r\n" KEEP "\r\n"));
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
    hang_up(fd);
    http_close(s);
}

/* Connections that wait for their next request hold no thread that somebody else needs. */
static void make_room(void **state)
{
    (void)state;
    static char answer[ANSWER];
    enum { THREADS = 8, MANY = 40 };
    struct http_server *s = open_at("127.0.0.1", 0, 0, THREADS);
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        bool goes_on;
        fds[i] = connect_to(http_port(s));
        assert_true(send_text(fds[i], "GET /good HTTP/1.1\r\n" H KEEP "\r\n"));
        assert_int_equal(next_answer(fds[i], answer, sizeof answer, &goes_on), 200);
        assert_true(atomic_load(&s->idle) <= THREADS / 2 + 1);
    }
    for (int i = 0; i < MANY; i++) hang_up(fds[i]);
    http_close(s);
}

/* http_close does not wait for those that wait. */
static void closing(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_server *s = open_at("127.0.0.1", 0, 0, 8);
    bool goes_on;
    const int fd = connect_to(http_port(s));
    assert_true(send_text(fd, "GET /good HTTP/1.1\r\n" H KEEP "\r\n"));
    assert_int_equal(next_answer(fd, answer, sizeof answer, &goes_on), 200);
    wait_for(atomic_load(&s->idle) == 1);
    http_close(s);
    assert_true(is_at_end(fd));
    hang_up(fd);
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

/* -1: not to be reached. */
static int connect_six(uint16_t port)
{
    const struct sockaddr_in6 a = { .sin6_family = AF_INET6,
                                    .sin6_port = htons(port),
                                    .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !connect(fd, (const struct sockaddr *)&a, sizeof a) && client_begin(fd)) return fd;
    hang_up(fd);
    return -1;
}

static bool has_six(void)
{
    const struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool has = fd >= 0 && !bind(fd, (const struct sockaddr *)&a, sizeof a);
    if (fd >= 0) hang_up(fd);
    return has;
}

static void check_answers(int fd, const char *host)
{
    static char answer[ANSWER], request[256];
    assert_true(fd >= 0);
    (void)snprintf(request, sizeof request, "GET /good HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    assert_true(send_text(fd, request) && read_until(fd, answer, sizeof answer, NULL));
    assert_int_equal(status_in(answer), 200);
    hang_up(fd);
}

static void addresses(void **state)
{
    (void)state;
    const bool six = has_six();
    struct http_server *s = open_at("localhost", 0, 0, 4);
    check_answers(connect_to(http_port(s)), "localhost");
    if (six) check_answers(connect_six(http_port(s)), "localhost");
    http_close(s);
    if (!six) {
        print_message("this machine has no IPv6: ::1 and :: are not tried\n");
        return;
    }
    s = open_at("::1", 0, 0, 4);
    for (int i = 0; i < 20; i++) check_answers(connect_six(http_port(s)), "[::1]:80");
    assert_int_equal(try_connect(http_port(s)), -1);
    const uint16_t port = http_port(s);
    http_close(s);
    s = open_at("::1", port, 0, 4); /* nothing holds it */
    http_close(s);
    s = open_at("::", 0, 0, 4);
    check_answers(connect_six(http_port(s)), "[::1]");
    check_answers(connect_to(http_port(s)), "127.0.0.1");
    http_close(s);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static int ask_memory(struct http_server *s, const char *headers)
{
    static char answer[ANSWER], request[512];
    (void)snprintf(request, sizeof request, "POST /memory HTTP/1.1\r\n" H "%s\r\n", headers);
    const int status = exchange(http_port(s), request, answer, sizeof answer);
    wait_for(!atomic_load(&s->reserved)); /* the answer comes first */
    return status;
}

static void memory(void **state)
{
    (void)state;
    struct http_server *s = open_at("127.0.0.1", 0, 0, 4);
    assert_int_equal(ask_memory(s, "X-First: 8000000\r\n"), 200);
    assert_int_equal(ask_memory(s, "X-First: 9000000\r\n"), 413);
    assert_int_equal(ask_memory(s, "X-First: 8000000\r\nX-Second: 1000000\r\n"), 413); /* together they never fit */
    assert_int_equal(ask_memory(s, "X-First: 8000000\r\nX-Release: 1\r\nX-Second: 1000000\r\n"), 200);
    wait_for(!atomic_load(&s->reserved));
    http_close(s);
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

static enum chunks_verdict decode_by(const char *text, size_t n, size_t piece, size_t room, char *out, size_t *made,
                                     size_t *used)
{
    struct chunks c = { 0 };
    enum chunks_verdict v = CHUNKS_MORE;
    *made = *used = 0;
    while (*used < n && (v == CHUNKS_MORE || v == CHUNKS_FULL)) {
        size_t u, m;
        const size_t now = n - *used < piece ? n - *used : piece;
        v = chunks_decode(&c, text + *used, now, &u, out + *made, room, &m);
        *used += u;
        *made += m;
    }
    return v;
}

/* Pieces and room of every length give the same bytes, and end at the same place. */
static void chunks_in_pieces(void **state)
{
    (void)state;
    static const char text[] = "5;a=b\r\nhello\r\n1\r\n \r\n00A\r\nworld\r\n\r\n.\r\n0;c\r\n\r\nGET /next";
    static const char body[] = "hello world\r\n\r\n.";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        for (size_t room = 1; room < sizeof body; room++) {
            char out[64];
            size_t made, used;
            assert_int_equal(decode_by(text, sizeof text - 1, piece, room, out, &made, &used), CHUNKS_DONE);
            assert_int_equal(made, sizeof body - 1);
            assert_memory_equal(out, body, made);
            assert_string_equal(text + used, "GET /next");
        }
    }
}

static void chunks_have_bounds(void **state)
{
    (void)state;
    static char text[1 << 16], out[1 << 16];
    const struct {
        unsigned extension, count;
        enum chunks_verdict verdict;
    } cases[] = { { CHUNKS_EXTENSION_MAX, 1, CHUNKS_DONE },
                  { CHUNKS_EXTENSION_MAX + 1, 1, CHUNKS_BAD },
                  { CHUNKS_EXTENSION_MAX, CHUNKS_EXTENSIONS_MAX / CHUNKS_EXTENSION_MAX, CHUNKS_DONE },
                  { CHUNKS_EXTENSION_MAX, CHUNKS_EXTENSIONS_MAX / CHUNKS_EXTENSION_MAX + 1, CHUNKS_BAD } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0, made, used;
        for (unsigned k = 0; k < cases[i].count; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "1;%0*d\r\nx\r\n", (int)cases[i].extension, 0);
        n += (size_t)snprintf(text + n, sizeof text - n, "0\r\n\r\n");
        assert_int_equal(decode_by(text, n, 7, sizeof out, out, &made, &used), cases[i].verdict);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(ends),
        cmocka_unit_test(behind_a_stream),
        cmocka_unit_test(make_room),
        cmocka_unit_test(closing),
        cmocka_unit_test(addresses),
        cmocka_unit_test(memory),
        cmocka_unit_test(chunks_in_pieces),
        cmocka_unit_test(chunks_have_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
