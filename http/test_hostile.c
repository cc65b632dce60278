/* test_hostile.c: every case against the real server over real sockets: one answer at most, of the right kind, then the
 * end; what is smuggled behind a request is never served; and after each case the server answers a good request. */
#include "test_client.h"

#include <jansson.h>
#include <stdatomic.h>

#include "internal.h"
#include "test_cases.h"

enum { BODY_MOST = 1024, ANSWER = 1 << 16 };

static atomic_uint smuggled, good;
static struct http_server *server,
    *impatient; /* the second one's deadlines are short: it is asked what ends by them, and nothing else */

static void handle_good(void *user, struct http_request *r)
{
    (void)user;
    atomic_fetch_add(&good, 1);
    http_answer(r, 200, "text/plain", "good\n", 5);
}
static void handle_smuggled(void *user, struct http_request *r)
{
    atomic_fetch_add(&smuggled, 1);
    handle_good(user, r);
}
static void handle_echo(void *user, struct http_request *r)
{
    const char *bytes;
    size_t n;
    (void)user;
    if (http_body(r, BODY_MOST, HTTP_JSON, &bytes, &n)) http_answer(r, 200, "application/json", bytes, n);
}
static void handle_big(void *user, struct http_request *r)
{
    const char *bytes;
    size_t n;
    (void)user;
    if (http_body(r, HTTP_BODY_MAX, HTTP_ANY_TYPE, &bytes, &n))
        http_answer(r, 200, "application/octet-stream", bytes, n);
}
static void handle_items(void *user, struct http_request *r)
{
    (void)user;
    const char *rest = http_rest(r);
    struct http_text t = { 0 };
    http_text_format(&t, "%s|%s", http_path(r), rest);
    http_answer(r, 200, "text/plain", t.data, t.n);
    http_text_free(&t);
}
static void handle_silent(void *user, struct http_request *r)
{
    (void)user;
    (void)r;
}
static void handle_extras(void *user, struct http_request *r)
{
    (void)user;
    http_extra(r, "X-One", "1");
    http_extra(r, "X-Split", "a\r\nX-Injected: b");
    http_extra(r, "X-Split2\r\nX-Injected", "b");
    for (int i = 0; i < 20; i++) http_extra(r, "X-Many", "m");
    http_answer(r, 200, "text/plain", "", 0);
    http_answer(r, 500, "text/plain", "second", 6);
}

static const struct http_route routes[] = {
    { "GET", "/good", handle_good, false },     { "GET", "/smuggled", handle_smuggled, false },
    { "POST", "/echo", handle_echo, false },    { "POST", "/v1/echo", handle_echo, false },
    { "POST", "/big", handle_big, false },      { "GET", "/items/", handle_items, false },
    { "GET", "/silent", handle_silent, false }, { "GET", "/extras", handle_extras, false },
};

static int open_all(void **state)
{
    (void)state;
    static const char *const origins[] = { "https://chat.example" }, *const hosts[] = { "friend.example" };
    struct http_options o = { .host = "127.0.0.1",
                              .max_streams = 0,
                              .reserve = 16,
                              .header_ms = PATIENCE_MS,
                              .body_ms = PATIENCE_MS,
                              .write_ms = PATIENCE_MS,
                              .memory = 64 << 20,
                              .origins = origins,
                              .n_origins = 1,
                              .hosts = hosts,
                              .n_hosts = 1 };
    server = open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
    o.header_ms = o.body_ms = 300;
    impatient = open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    http_close(server);
    http_close(impatient);
    return 0;
}

static void check_alive(struct http_server *s, const char *after)
{
    static char answer[ANSWER];
    const uint64_t end = now_ms() + PATIENCE_MS;
    while (exchange(http_port(s), GET("/good") "\r\n", answer, sizeof answer) !=
           200) /* on a busy machine even we can be too slow for the impatient one */
        if (s != impatient || now_ms() > end) fail_msg("after \"%s\" a good request gets: %s", after, answer);
}

static void check_error(const char *name, const char *answer, int status)
{
    const char *body = strstr(answer, "\r\n\r\n");
    json_error_t error;
    json_t *o = body ? json_loads(body + 4, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (!o) fail_msg("%s: no JSON in %s", name, answer);
    if (!json_is_string(json_object_get(o, "code")) || !json_is_string(json_object_get(o, "message")) ||
        !json_is_boolean(json_object_get(o, "retriable")))
        fail_msg("%s: %s", name, body);
    if (status == 405) assert_non_null(strstr(answer, "\r\nAllow: "));
    if (status == 405) assert_non_null(strstr(answer, "OPTIONS"));
    json_decref(o);
}

static void check_case(const struct hostile *c)
{
    static char answer[ANSWER];
    struct http_server *s = c->status == 408 ? impatient : server;
    const uint64_t end = now_ms() + PATIENCE_MS;
    do {
        const int fd = connect_to(http_port(s));
        (void)send_bytes(fd, c->bytes, c->n);
        if (!read_until(fd, answer, sizeof answer, NULL))
            fail_msg("%s: the connection stays open; so far: %s", c->name, answer);
        hang_up(fd);
    } while (s == impatient && c->n && !answer[0] &&
             now_ms() < end); /* nothing of it had come in time: we were too slow for the impatient one */
    if (status_in(answer) != c->status)
        fail_msg("%s: %d instead of %d: %s", c->name, status_in(answer), c->status, answer);
    if (count_of(answer, "\r\nX-Request-Id: ") != 1) fail_msg("%s: more than one answer: %s", c->name, answer);
    if (!strstr(answer, "\r\nConnection: close\r\n") || !strstr(answer, "\r\nX-Request-Id: "))
        fail_msg("%s: %s", c->name, answer);
    const bool head = !strncmp(c->bytes, "HEAD", 4);
    if (c->status >= 400 && !head) check_error(c->name, answer, c->status);
    if (head) assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    if (atomic_load(&smuggled)) fail_msg("%s: the second request was served", c->name);
    check_alive(s, c->name);
}

static void hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_HOSTILE; i++) check_case(&hostile_cases[i]);
    print_message("%d hostile requests\n", (int)N_HOSTILE);
}

static void served(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOOD; i++) check_case(&good_cases[i]);
}

/* The same requests cut into two pieces at every byte arrive as they would whole. */
static void in_two_pieces(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const char request[] = POST JSON "Content-Length: 14\r\n\r\n{\"text\":\"abc\"}";
    for (size_t cut = 1; cut < sizeof request - 1; cut++) {
        const int fd = connect_to(http_port(server));
        (void)send_bytes(fd, request, cut);
        if (cut % 4 == 0) pause_ms(2);
        (void)send_bytes(fd, request + cut, sizeof request - 1 - cut);
        assert_true(read_until(fd, answer, sizeof answer, NULL));
        hang_up(fd);
        if (status_in(answer) != 200 || !strstr(answer, "\r\n\r\n{\"text\":\"abc\"}"))
            fail_msg("cut after %zu: %s", cut, answer);
    }
}

/* As a slow client sends: what has come already must not keep what comes next from being seen. */
static void in_many_pieces(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const char request[] = POST JSON "Content-Length: 14\r\n\r\n{\"text\":\"abc\"}";
    for (size_t piece = 1; piece < 40; piece += 6) {
        const int fd = connect_to(http_port(server));
        for (size_t at = 0; at < sizeof request - 1; at += piece) {
            const size_t left = sizeof request - 1 - at;
            assert_true(send_bytes(fd, request + at, left < piece ? left : piece));
            pause_ms(2);
        }
        assert_true(read_until(fd, answer, sizeof answer, NULL));
        hang_up(fd);
        if (status_in(answer) != 200 || !strstr(answer, "\r\n\r\n{\"text\":\"abc\"}"))
            fail_msg("pieces of %zu: %s", piece, answer);
    }
}

/* All bodies together have a limit. Those that are only announced count nothing, what has come does, and is there again
 * for others. */
static void bodies_together(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const char small[] = "POST /big HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nhi";
    static char large[(1 << 20) + 128];
    char head[128], *body = calloc(1, HTTP_BODY_MAX);
    int large_head_n;
    enum { FULL = 4 };
    int fds[FULL];
    struct http_options o = { .host = "127.0.0.1",
                              .reserve = FULL + 8,
                              .header_ms = PATIENCE_MS,
                              .body_ms = 10 * PATIENCE_MS,
                              .write_ms = PATIENCE_MS,
                              .memory = (uint64_t)FULL * HTTP_BODY_MAX };
    struct http_server *patient = open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
    assert_non_null(body);
    (void)snprintf(head, sizeof head, "POST /big HTTP/1.1\r\n" H "Content-Length: %d\r\nExpect: 100-continue\r\n\r\n",
                   (int)HTTP_BODY_MAX);
    for (int i = 0; i < FULL; i++) {
        fds[i] = connect_to(http_port(patient));
        assert_true(send_text(fds[i], head) && read_until(fds[i], answer, sizeof answer, "100 Continue"));
    }
    assert_int_equal(exchange(http_port(patient), small, answer, sizeof answer), 200);
    for (int i = 0; i < FULL; i++) assert_true(send_bytes(fds[i], body, HTTP_BODY_MAX - 1));
    wait_for(atomic_load(&patient->reserved) == (uint64_t)FULL * (HTTP_BODY_MAX - HTTP_OWN_BYTES));
    large_head_n = snprintf(large, sizeof large, "POST /big HTTP/1.1\r\n" H "Content-Length: %d\r\n\r\n", 1 << 20);
    memset(large + large_head_n, 'x', 1 << 20);
    const int one = connect_to(http_port(patient));
    assert_true(send_bytes(one, large, (size_t)large_head_n + (1 << 20)));
    assert_true(read_until(one, answer, sizeof answer, NULL));
    hang_up(one);
    assert_int_equal(status_in(answer), 503);
    assert_int_equal(exchange(http_port(patient), small, answer, sizeof answer), 200); /* it has memory of its own */
    assert_int_equal(exchange(http_port(patient), GET("/good") "\r\n", answer, sizeof answer), 200);
    for (int i = 0; i < FULL; i++) hang_up(fds[i]);
    wait_for(!atomic_load(&patient->reserved));
    assert_int_equal(exchange(http_port(patient), small, answer, sizeof answer), 200);
    http_close(patient);
    free(body);
}

/* Bodies that are awaited hold half of the threads that are no streams', and dawdle only while there are others. */
static void slow_bodies(void **state)
{
    (void)state;
    static char answer[ANSWER];
    const struct http_options o = { .host = "127.0.0.1",
                                    .reserve = 2,
                                    .header_ms = 20 * PATIENCE_MS,
                                    .body_ms = 20 * PATIENCE_MS,
                                    .write_ms = PATIENCE_MS,
                                    .memory = 64 << 20 };
    struct http_server *s = open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
    static const char dawdling[] = POST JSON "Content-Length: 1000\r\n\r\n{";
    const int first = connect_to(http_port(s));
    assert_true(send_text(first, dawdling));
    wait_for(atomic_load(&s->bodies) == 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(exchange(http_port(s), dawdling, answer, sizeof answer), 503);
        assert_non_null(strstr(answer, "\r\nRetry-After: "));
        assert_int_equal(exchange(http_port(s), POST JSON "Content-Length: 2\r\n\r\n{}", answer, sizeof answer), 200);
        assert_int_equal(exchange(http_port(s), GET("/good") "\r\n", answer, sizeof answer), 200);
    }
    struct pollfd p = { .fd = first, .events = POLLIN };
    assert_int_equal(poll(&p, 1, 0), 0);
    const uint64_t end = now_ms() + PATIENCE_MS;
    do { /* others hold the second thread: it is pressed for one */
        const int other = connect_to(http_port(s));
        (void)poll(&p, 1, 100);
        hang_up(other);
    } while (!p.revents && now_ms() < end);
    assert_true(read_until(first, answer, sizeof answer, NULL));
    assert_int_equal(status_in(answer), 408);
    hang_up(first);
    http_close(s);
}

/* One byte at a time, for longer than the deadline: the server ends it, by 408. */
static void dripped(const char *what, const char *text, size_t at_once)
{
    static char answer[ANSWER];
    const int fd = connect_to(http_port(impatient));
    (void)send_bytes(fd, text, at_once);
    const uint64_t end = now_ms() + PATIENCE_MS;
    for (size_t i = at_once;; i++) {
        if (now_ms() > end) fail_msg("%s: still served", what);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, 5) > 0) break;
        if (!send_bytes(fd, text[i] ? &text[i] : "x", 1)) break;
        if (!text[i]) i--;
    }
    (void)read_until(fd, answer, sizeof answer, NULL);
    hang_up(fd);
    if (answer[0] && status_in(answer) != 408) fail_msg("%s: %s", what, answer);
    check_alive(impatient, what);
}

static void drips(void **state)
{
    (void)state;
    dripped("header, byte by byte", GET("/good") "X: ", 0);
    dripped("request line, byte by byte", "GET /", 0);
    dripped("body, byte by byte", POST JSON "Content-Length: 1000\r\n\r\n",
            strlen(POST JSON "Content-Length: 1000\r\n\r\n"));
}

/* Large things: what is too large is refused while it comes, and the answer arrives although not all of it was read. */
static void large(void **state)
{
    (void)state;
    static char answer[ANSWER], text[1 << 20];
    size_t n = (size_t)snprintf(text, sizeof text, "GET /");
    memset(text + n, 'a', sizeof text - n);
    int fd = connect_to(http_port(server));
    (void)send_bytes(fd, text, sizeof text);
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    hang_up(fd);
    assert_true(!answer[0] || status_in(answer) == 414);
    check_alive(server, "a target of 1 MiB");

    n = (size_t)snprintf(text, sizeof text, "GET /good HTTP/1.1\r\n" H "X: ");
    memset(text + n, 'a', sizeof text - n);
    fd = connect_to(http_port(server));
    (void)send_bytes(fd, text, 17000);
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    hang_up(fd);
    assert_int_equal(status_in(answer), 431);
    check_alive(server, "a header of 17 KB");

    n = (size_t)snprintf(text, sizeof text, POST JSON "Content-Length: 1000000\r\n\r\n");
    fd = connect_to(http_port(server));
    (void)send_bytes(fd, text, n + 100000);
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    hang_up(fd);
    assert_int_equal(status_in(answer), 413);
    check_alive(server, "a body of 1 MB");
}

/* The largest body that is taken comes back unchanged. */
static void whole_16_mib(void **state)
{
    (void)state;
    char head[256];
    const size_t n = HTTP_BODY_MAX;
    const int head_n = snprintf(head, sizeof head, "POST /big HTTP/1.1\r\n" H "Content-Length: %zu\r\n\r\n", n);
    char *request = malloc((size_t)head_n + n), *answer = malloc(n + 4096);
    assert_true(request && answer);
    memcpy(request, head, (size_t)head_n);
    uint64_t seed = 1;
    for (size_t i = 0; i < n; i++)
        request[(size_t)head_n + i] = (char)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 56);
    const int fd = connect_to(http_port(server));
    assert_true(send_bytes(fd, request, (size_t)head_n + n));
    size_t got = 0;
    for (ssize_t m; (m = client_recv(fd, answer + got, n + 4095 - got, 0)) > 0;) got += (size_t)m;
    hang_up(fd);
    const char *body = memmem(answer, got, "\r\n\r\n", 4);
    assert_non_null(body);
    assert_int_equal(got - (size_t)(body + 4 - answer), n);
    assert_memory_equal(body + 4, request + head_n, n);
    free(request);
    free(answer);
}

static void closed_early(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        { "", 0 },
        { "GET", 400 },
        { "GET /good HTTP/1.1\r\nHo", 400 },
        { GET("/good"), 400 },
        { GET("/good") "\r\n", 200 },
        { POST JSON "Content-Length: 5\r\n\r\n", 400 },
        { POST JSON "Content-Length: 5\r\n\r\n{}", 400 },
        { POST JSON "Content-Length: 2\r\n\r\n{}", 200 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int fd = connect_to(http_port(server));
        (void)send_text(fd, cases[i].text);
        half_close(fd);
        assert_true(read_until(fd, answer, sizeof answer, NULL));
        hang_up(fd);
        if (status_in(answer) != cases[i].status) fail_msg("\"%s\" and the end: %s", cases[i].text, answer);
        check_alive(server, cases[i].text);
    }
}

/* A request and a reset at once: whoever the reset overtakes is not served, and nothing else happens. */
static void reset_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4 * (N_HOSTILE + N_GOOD); i++) {
        const struct hostile *c = i % (N_HOSTILE + N_GOOD) < N_HOSTILE
                                      ? &hostile_cases[i % (N_HOSTILE + N_GOOD)]
                                      : &good_cases[i % (N_HOSTILE + N_GOOD) - N_HOSTILE];
        const int fd = connect_to(http_port(server));
        (void)send_bytes(fd, c->bytes, c->n);
        reset_at_end(fd);
        hang_up(fd);
    }
    check_alive(server, "resets");
    assert_int_equal(atomic_load(&smuggled), 0);
    struct http_counts c;
    wait_for((http_counts(server, &c), !c.connections));
}

/* A socket that will connect from that port of ours; false: somebody else has taken it. */
static bool socket_at(uint16_t own_port, int *out)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    const struct sockaddr_in own = { .sin_family = AF_INET,
                                     .sin_port = htons(own_port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    *out = fd;
    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 },
                     sizeof(struct linger)); /* no TIME_WAIT: the port is used again */
    return !bind(fd, (const struct sockaddr *)&own, sizeof own);
}

static bool connect_towards(int fd, const char *address, uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    return inet_pton(AF_INET, address, &a.sin_addr) == 1 && !connect(fd, (struct sockaddr *)&a, sizeof a);
}

static uint16_t free_port(uint16_t server_port)
{
    const int fd = connect_plainly(server_port);
    struct sockaddr_in own;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &(socklen_t){ sizeof own }), 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
    hang_up(fd);
    return ntohs(own.sin_port);
}

/* Two connections that only our own address tells apart wait for the one thread of a server that is bound to all
 * addresses. What one asks is never judged or answered for the other. */
static void same_peer_twice(void **state)
{
    (void)state;
    static char first[ANSWER], second[ANSWER];
    static const char *const texts[] = { GET("/good") "\r\n", POST
                                         "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" INNER };
    static const int statuses[] = { 200, 400 };
    const struct http_options o = { .host = "0.0.0.0",
                                    .reserve = 1,
                                    .header_ms = PATIENCE_MS,
                                    .body_ms = PATIENCE_MS,
                                    .write_ms = PATIENCE_MS,
                                    .memory = 64 << 20 };
    const uint64_t end = now_ms() + PATIENCE_MS;
    for (int round = 0; round < 4;) {
        struct http_server *s = open_server(&o, routes, sizeof routes / sizeof *routes, NULL);
        const uint16_t port = http_port(s), own = free_port(port);
        int a, b;
        bool both = socket_at(own, &a);
        both = socket_at(own, &b) && both;
        both = both && connect_towards(a, "127.0.0.1", port) && connect_towards(b, "127.0.0.2", port);
        both = both && client_begin(a) && send_text(a, texts[round % 2]);
        both = both && client_begin(b) && send_text(b, texts[round / 2]);
        assert_true(!both || (read_until(a, first, sizeof first, NULL) && read_until(b, second, sizeof second, NULL)));
        hang_up(a);
        hang_up(b);
        http_close(s);
        assert_int_equal(atomic_load(&smuggled), 0);
        assert_true(now_ms() < end);
        if (!both) continue; /* somebody else has taken the port of ours */
        if (status_in(first) != statuses[round % 2]) fail_msg("round %d: the first got %s", round, first);
        if (status_in(second) != statuses[round / 2]) fail_msg("round %d: the second got %s", round, second);
        round++;
    }
}

static void expectations(void **state)
{
    (void)state;
    static char answer[ANSWER];
    const int fd = connect_to(http_port(server));
    (void)send_text(fd, POST JSON "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_true(read_until(fd, answer, sizeof answer, "\r\n\r\n"));
    assert_string_equal(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    (void)send_text(fd, "{}");
    assert_true(read_until(fd, answer, sizeof answer, NULL));
    hang_up(fd);
    assert_int_equal(status_in(answer), 200);
}

#define PREFLIGHT                      \
    "Origin: https://chat.example\r\n" \
    "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "

static void contract(void **state)
{
    (void)state;
    static char answer[ANSWER];
    const uint16_t port = http_port(server);
    assert_int_equal(exchange(port, GET("/items/x%2Fy%20z+w?b=1&a=%41+b&empty&c") "\r\n", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\r\n\r\n/items/x%2Fy%20z+w|x/y z+w"));
    assert_int_equal(exchange(port, GET("/silent") "\r\n", answer, sizeof answer), 500);
    assert_non_null(strstr(answer, "INTERNAL"));
    assert_int_equal(exchange(port, GET("/extras") "\r\n", answer, sizeof answer), 200);
    assert_null(strstr(answer, "Injected"));
    assert_int_equal(count_of(answer, "X-Many: m\r\n"), HTTP_EXTRA_MAX - 1);
    assert_int_equal(count_of(answer, "\r\nX-Request-Id: "), 1);
    assert_int_equal(exchange(port, GET("/good") "X-Request-Id: my-id_1.2\r\n\r\n", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\r\nX-Request-Id: my-id_1.2\r\n"));
    /* as vllm-router writes one, with an address of IPv6, and one that is too long */
    static const char routers[] =
        "___prefill_addr_fd00:1234:5678:9abc:def0:1234:5678:9abc:8000___decode_addr_10.100.100.200:"
        "8001_0b3c7f2e6d0f4b5f9d1c6a1e2f3a4b5c";
    char asked[1024], shown[1024], longest[HTTP_ID_MAX + 2];
    (void)snprintf(asked, sizeof asked, GET("/good") "X-Request-Id: %s\r\n\r\n", routers);
    (void)snprintf(shown, sizeof shown, "\r\nX-Request-Id: %s\r\n", routers);
    assert_int_equal(exchange(port, asked, answer, sizeof answer), 200);
    assert_non_null(strstr(answer, shown));
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    (void)snprintf(asked, sizeof asked, GET("/good") "X-Request-Id: %s\r\n\r\n", longest);
    assert_int_equal(exchange(port, asked, answer, sizeof answer), 200);
    assert_null(strstr(answer, longest));
    assert_int_equal(exchange(port, GET("/good") "X-Request-Id: <script>\r\n\r\n", answer, sizeof answer), 200);
    assert_null(strstr(answer, "script"));
    assert_int_equal(exchange(port, GET("/good") "Origin: https://chat.example\r\n\r\n", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\r\nAccess-Control-Allow-Origin: https://chat.example\r\n"));
    assert_non_null(strstr(answer, "x-should-retry"));
    assert_int_equal(exchange(port, GET("/good") "\r\n", answer, sizeof answer), 200);
    assert_null(strstr(answer, "Access-Control"));
    assert_non_null(strstr(answer, "\r\nCross-Origin-Resource-Policy: same-origin\r\n"));
    assert_int_equal(exchange(port, "TRACE /echo?x HTTP/1.1\r\n" H "\r\n", answer, sizeof answer), 405);
    assert_non_null(strstr(answer, "\r\nAllow: POST, OPTIONS\r\n"));
    assert_int_equal(exchange(port, "BREW /nothing HTTP/1.1\r\n" H "\r\n", answer, sizeof answer), 405);
    assert_non_null(strstr(answer, "\r\nAllow: GET, HEAD, POST, OPTIONS\r\n"));
    assert_int_equal(exchange(port, "GET /good HTTP/1.1\r\nHost: evil.example\r\n\r\n", answer, sizeof answer), 421);
    assert_non_null(strstr(answer, "--allowed-host"));
    assert_int_equal(exchange(port, "OPTIONS /echo HTTP/1.1\r\n" H PREFLIGHT "X-My-Header, authorization\r\n\r\n",
                              answer, sizeof answer),
                     204);
    assert_non_null(strstr(answer, "\r\nAccess-Control-Allow-Headers: X-My-Header, authorization\r\n"));
    assert_non_null(strstr(answer, "\r\nAccess-Control-Allow-Methods: POST, OPTIONS\r\n"));
    assert_int_equal(exchange(port, "OPTIONS /echo HTTP/1.1\r\n" H PREFLIGHT "a b(c)\r\n\r\n", answer, sizeof answer),
                     204);
    assert_null(strstr(answer, "Allow-Headers"));
    assert_int_equal(exchange(port, "PUT /echo HTTP/1.1\r\n" H "\r\n", answer, sizeof answer), 405);
    assert_non_null(strstr(answer, "\r\nAllow: POST, OPTIONS\r\n"));
    assert_int_equal(exchange(port, "PUT /good HTTP/1.1\r\n" H "\r\n", answer, sizeof answer), 405);
    assert_non_null(strstr(answer, "\r\nAllow: GET, HEAD, OPTIONS\r\n"));
}

/* Below /v1/ every error is in OpenAI's form, the guards' too. */
static void openai_form(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static char long_target[4096], long_header[20000];
    (void)snprintf(long_target, sizeof long_target, "GET /v1/%03000d HTTP/1.1\r\n" H "\r\n", 0);
    (void)snprintf(long_header, sizeof long_header, "GET /v1/models HTTP/1.1\r\n" H "X: %017000d\r\n\r\n", 0);
    const struct {
        const char *request, *code;
        int status;
    } cases[] = {
        { "GET /v1/nothing HTTP/1.1\r\n" H "\r\n", "not_found", 404 },
        { "BREW /v1/nothing HTTP/1.1\r\n" H "\r\n", "method_not_allowed", 405 },
        { "POST /v1/echo HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "invalid_request",
          400 },
        { "GET /v1/echo HTTP/1.1\r\n\r\n", "invalid_request", 400 },
        { "GET /v1/echo HTTP/1.1\n", "invalid_request", 400 },
        { "GET /v1/echo HTTP/3.1\r\n", "invalid_request", 400 },
        { "GET  /v1/echo HTTP/1.1\r\n", "invalid_request", 400 },
        { "POST /v1/echo HTTP/1.1\r\n" H "Expect: tea\r\n\r\n", "expectation_failed", 417 },
        { "GET /v1/echo HTTP/1.1\r\nHost: evil.example\r\n\r\n", "misdirected", 421 },
        { "GET /v1/echo HTTP/1.1\r\n" H "Origin: null\r\n\r\n", "forbidden", 403 },
        { "POST /v1/echo HTTP/1.1\r\n" H "Content-Length: 99999999999\r\n\r\n", "payload_too_large", 413 },
        { "POST /v1/echo HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\n{}", "unsupported_media_type", 415 },
        { "POST /v1/echo HTTP/1.1\r\n" H JSON "Transfer-Encoding: chunked\r\n\r\nx", "invalid_request", 400 },
        { long_target, "uri_too_long", 414 },
        { long_header, "headers_too_large", 431 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int status = exchange(http_port(server), cases[i].request, answer, sizeof answer);
        const char *body = strstr(answer, "\r\n\r\n");
        json_t *o = body ? json_loads(body + 4, JSON_REJECT_DUPLICATES, NULL) : NULL, *e = json_object_get(o, "error");
        if (status != cases[i].status || !json_is_string(json_object_get(e, "message")) ||
            !json_is_string(json_object_get(e, "type")) || !json_object_get(e, "param") ||
            strcmp(json_string_value(json_object_get(e, "code")), cases[i].code) != 0)
            fail_msg("%s: %s", cases[i].request, answer);
        json_decref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile),        cmocka_unit_test(served),          cmocka_unit_test(in_two_pieces),
        cmocka_unit_test(in_many_pieces), cmocka_unit_test(bodies_together), cmocka_unit_test(slow_bodies),
        cmocka_unit_test(drips),          cmocka_unit_test(large),           cmocka_unit_test(whole_16_mib),
        cmocka_unit_test(closed_early),   cmocka_unit_test(reset_at_once),   cmocka_unit_test(same_peer_twice),
        cmocka_unit_test(expectations),   cmocka_unit_test(contract),        cmocka_unit_test(openai_form),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
