/* test_guard.c: the guard alone: every case, each of its prefixes, limits to the byte, and requests that were changed
 * at random. */
#include "test_client.h"

#include "names.h"
#include "test_cases.h"

static void hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_HOSTILE; i++) {
        const struct hostile *c = &hostile_cases[i];
        struct guard g;
        const enum guard_verdict v = guard_check(c->bytes, c->n, &g);
        const int got = v == GUARD_REFUSE ? g.status : v == GUARD_PASS ? 0 : -1;
        if (got != c->guard)
            fail_msg("%s: %d (%s) instead of %d", c->name, got, v == GUARD_REFUSE ? g.reason : "", c->guard);
        if (v == GUARD_REFUSE) assert_true(g.reason && *g.reason);
    }
}

/* A prefix of what passes is never refused, and the verdict on the whole does not change with what follows. */
static void prefixes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOOD; i++) {
        const struct hostile *c = &good_cases[i];
        struct guard g;
        if (guard_check(c->bytes, c->n, &g) != GUARD_PASS) fail_msg("%s is refused: %s", c->name, g.reason);
        const size_t head = g.head;
        for (size_t n = 0; n < c->n; n++) {
            char *copy = malloc(n ? n : 1); /* exactly as long: the sanitizer sees a read past it */
            assert_non_null(copy);
            memcpy(copy, c->bytes, n);
            const enum guard_verdict v = guard_check(copy, n, &g);
            if (v != (n < head ? GUARD_MORE : GUARD_PASS))
                fail_msg("%s, %zu bytes of it: %d %s", c->name, n, (int)v, v == GUARD_REFUSE ? g.reason : "");
            free(copy);
        }
    }
}

/* A refusal stays one whatever follows: nothing can be repaired by sending more. */
static void refusals_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_HOSTILE; i++) {
        const struct hostile *c = &hostile_cases[i];
        struct guard g;
        bool refused = false;
        for (size_t n = 0; n <= c->n; n++) {
            const enum guard_verdict v = guard_check(c->bytes, n, &g);
            if (refused && v != GUARD_REFUSE) fail_msg("%s: refused, and after %zu bytes not any more", c->name, n);
            refused = v == GUARD_REFUSE;
        }
    }
}

static enum guard_verdict check_target_of(size_t length, struct guard *g)
{
    static char text[8192];
    size_t n = (size_t)snprintf(text, sizeof text, "GET /");
    memset(text + n, 'a', length - 1);
    n += length - 1;
    n += (size_t)snprintf(text + n, sizeof text - n, " HTTP/1.1\r\n" H "\r\n");
    return guard_check(text, n, g);
}

static enum guard_verdict check_headers_of(size_t count, struct guard *g)
{
    static char text[8192];
    size_t n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" H);
    for (size_t i = 1; i < count; i++) n += (size_t)snprintf(text + n, sizeof text - n, "X-%zu: y\r\n", i);
    n += (size_t)snprintf(text + n, sizeof text - n, "\r\n");
    return guard_check(text, n, g);
}

static enum guard_verdict check_head_of(size_t length, struct guard *g)
{
    static char text[GUARD_HEAD_MAX + 4096];
    size_t n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" H "X: ");
    memset(text + n, 'y', length - n - 4);
    memcpy(text + length - 4, "\r\n\r\n", 4);
    memset(text + length, 'z', sizeof text - length);
    return guard_check(text, sizeof text, g);
}

static void limits(void **state)
{
    (void)state;
    struct guard g;
    assert_int_equal(check_target_of(GUARD_TARGET_MAX, &g), GUARD_PASS);
    assert_int_equal(g.target.n, GUARD_TARGET_MAX);
    assert_int_equal(check_target_of(GUARD_TARGET_MAX + 1, &g), GUARD_REFUSE);
    assert_int_equal(g.status, 414);
    assert_int_equal(check_headers_of(GUARD_HEADERS_MAX, &g), GUARD_PASS);
    assert_int_equal(check_headers_of(GUARD_HEADERS_MAX + 1, &g), GUARD_REFUSE);
    assert_int_equal(g.status, 431);
    assert_int_equal(check_headers_of(300, &g), GUARD_REFUSE);
    assert_int_equal(check_head_of(GUARD_HEAD_MAX, &g), GUARD_PASS);
    assert_int_equal(g.head, GUARD_HEAD_MAX);
    assert_int_equal(check_head_of(GUARD_HEAD_MAX + 1, &g), GUARD_REFUSE);
    assert_int_equal(g.status, 431);
}

/* Every byte that is not allowed somewhere is refused there. */
static void every_byte(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after, *allowed;
    } places[] = {
        { "GET /a", "b HTTP/1.1\r\n" H "\r\n",
          "-._~!$&'()*+,;=:@/?[] " }, /* a space ends it, which the version shows */
        { "GET / HTTP/1.1\r\n" H "X", "Y: z\r\n\r\n", "!#$%&'*+-.^_`|~:" },
    };
    for (size_t p = 0; p < 2; p++) {
        for (int b = 0; b < 256; b++) {
            char text[256];
            struct guard g;
            const size_t before = strlen(places[p].before), after = strlen(places[p].after);
            memcpy(text, places[p].before, before);
            text[before] = (char)b;
            memcpy(text + before + 1, places[p].after, after);
            const bool letter = (b >= '0' && b <= '9') || (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z');
            const bool good = (letter || (b && strchr(places[p].allowed, b))) && !(p == 0 && b == ' ');
            if ((guard_check(text, before + 1 + after, &g) == GUARD_PASS) != good) fail_msg("place %zu, byte %d", p, b);
        }
    }
    for (int b = 0; b < 256; b++) {
        char text[128];
        struct guard g;
        const int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" H "X: a%cb\r\n\r\n", b ? b : 1);
        if (!b) *strchr(text, 1) = 0;
        if ((guard_check(text, (size_t)n, &g) == GUARD_PASS) != (b >= 0x20 && b != 0x7f)) fail_msg("value, byte %d", b);
    }
}

/* What is cut into strings is what another look at the lines finds. */
static void cutting(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOOD; i++) {
        struct guard g;
        struct guard_header headers[GUARD_HEADERS_MAX];
        char text[2048], copy[2048], *rest = copy;
        assert_int_equal(guard_check(good_cases[i].bytes, good_cases[i].n, &g), GUARD_PASS);
        memcpy(text, good_cases[i].bytes, g.head);
        memcpy(copy, good_cases[i].bytes, g.head);
        text[g.head] = copy[g.head] = 0;
        const size_t n = guard_cut(text, g.head, headers);
        (void)strsep(&rest, "\n");
        for (size_t k = 0; k < n; k++) {
            char *line = strsep(&rest, "\n"), *value = strchr(line, ':');
            *value++ = 0;
            value += strspn(value, " ");
            for (size_t end = strlen(value); end && strchr(" \r", value[end - 1]);) value[--end] = 0;
            assert_string_equal(headers[k].name, line);
            assert_string_equal(headers[k].value, value);
        }
        assert_string_equal(rest, "\r\n");
    }
}

static void paths(void **state)
{
    (void)state;
    static const struct {
        const char *line, *path;
    } cases[] = {
        { "GET /v1/models HTTP/1.1\r\n", "/v1/models" },
        { "GET  /v1/models HTTP/1.1\r\n", "/v1/models" },
        { "BREW\t/v1/models", "/v1/models" },
        { "\r\nPOST /v1/chat", "/v1/chat" },
        { "GET http://127.0.0.1/v1/models HTTP/1.1\r\n", "/v1/models" },
        { "GET https://a/v1/", "/v1/" },
        { "GET http://a", "" },
        { "GET /v1\r\nX: /v1/\r\n", "/v1" },
        { "GET", "" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct guard_span path = guard_path(cases[i].line, strlen(cases[i].line));
        if (path.n != strlen(cases[i].path) || memcmp(path.at, cases[i].path, path.n) != 0)
            fail_msg("%s: %.*s", cases[i].line, (int)path.n, path.at);
    }
}

static struct guard_span span(const char *text) { return (struct guard_span){ text, strlen(text) }; }

static void hosts(void **state)
{
    (void)state;
    static const char *const addresses[] = { "127.0.0.1", "0.0.0.0",       "255.255.255.255",
                                             "[::1]",     "[2001:db8::1]", "[::ffff:1.2.3.4]" };
    static const char *const names[] = { "",     "localhost", "127.0.0.1.", "127.0.0",   "127.0.0.1.1", "127.0.0.001",
                                         "::1",  "[]",        "[::1",       "::1]",      "[127.0.0.1]", "127.0.0.256",
                                         "0x7f", "[::1%lo]",  "127..0.1",   "127.0.0.1x" };
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) assert_true(names_address(span(addresses[i])));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names_address(span(names[i]))) fail_msg("%s", names[i]);
    assert_int_equal(names_of_host(span("a:80")).n, 1);
    assert_int_equal(names_of_host(span("a:")).n, 1);
    assert_int_equal(names_of_host(span("a80")).n, 3);
    assert_int_equal(names_of_host(span("[::1]:80")).n, 5);
    assert_int_equal(names_of_host(span("[::1]")).n, 5);
    char *own[NAMES_OWN_MAX], name[256] = "";
    const uint32_t n = names_own(own);
    assert_int_equal(gethostname(name, sizeof name - 1), 0);
    assert_true(names_listed(span(name), (const char *const *)own, n));
    assert_false(names_listed(span("evil.example"), (const char *const *)own, n));
    for (uint32_t i = 0; i < n; i++) free(own[i]);
    static const char *const any[] = { "a.example", "*" };
    assert_true(names_listed(span("A.Example"), any, 1));
    assert_false(names_listed(span("b.example"), any, 1));
    assert_true(names_listed(span("b.example"), any, 2));
}

/* What can never match is told when it is given. */
static void what_can_be_allowed(void **state)
{
    (void)state;
    static const char *const origins[] = { "*",
                                           "null",
                                           "https://chat.example.org",
                                           "http://localhost:3000",
                                           "http://127.0.0.1:8080",
                                           "http://[::1]:8080",
                                           "https://Chat.Example",
                                           "https://xn--bcher-kva.example:8443",
                                           "chrome-extension://abcdefghijklmnop",
                                           "tauri://localhost",
                                           "http://a_b.example:443" };
    static const char *const bad_origins[] = { "",
                                               "chat.example.org",
                                               "https://",
                                               "://a",
                                               "https:/a",
                                               "https://chat.example/",
                                               "https://chat.example/path",
                                               "https://chat.example?x",
                                               "https://chat.example#x",
                                               "https://user@chat.example",
                                               "https://*.example",
                                               "https://chat.example:443",
                                               "http://chat.example:80",
                                               "https://chat.example:",
                                               "https://chat.example:0",
                                               "https://chat.example:65536",
                                               "https://chat.example:08443",
                                               "https://\xc3\xbc.example",
                                               "https://a b",
                                               "http://127.1",
                                               "http://2130706433",
                                               "http://[0:0:0:0:0:0:0:1]",
                                               "http://[::1",
                                               "http://::1",
                                               "https://a,https://b",
                                               "https://.example",
                                               "**" };
    static const char *const hosts[] = { "*", "worker.example.org", "worker", "my_host", "[2001:db8::1]", "10.0.0.1" };
    static const char *const bad_hosts[] = { "",    "worker:80", "http://worker", "worker/",    "*.example.org",
                                             "a b", "10.1",      "b\xc3\xbc",     "[::1]:7531", "::1" };
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        if (http_origin_fault(origins[i])) fail_msg("%s: %s", origins[i], http_origin_fault(origins[i]));
    for (size_t i = 0; i < sizeof bad_origins / sizeof *bad_origins; i++)
        if (!http_origin_fault(bad_origins[i])) fail_msg("%s", bad_origins[i]);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (http_host_fault(hosts[i])) fail_msg("%s: %s", hosts[i], http_host_fault(hosts[i]));
    for (size_t i = 0; i < sizeof bad_hosts / sizeof *bad_hosts; i++)
        if (!http_host_fault(bad_hosts[i])) fail_msg("%s", bad_hosts[i]);
}

static void decoding(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "", "" },         { "abc", "abc" },         { "a%2Fb", "a/b" }, { "a%2fb", "a/b" }, { "a+b", "a+b" },
        { "%41%42", "AB" }, { "%c3%a4", "\xc3\xa4" }, { "%25", "%" },     { "%2541", "%41" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[32];
        assert_int_equal(guard_decode(cases[i].in, strlen(cases[i].in), out), strlen(cases[i].out));
        assert_string_equal(out, cases[i].out);
    }
}

/* Whatever passes has these properties, looked at in another way than the guard does. */
static void assert_sound(const char *bytes, const struct guard *g)
{
    assert_true(g->head >= 4 && g->head <= GUARD_HEAD_MAX && !memcmp(bytes + g->head - 4, "\r\n\r\n", 4));
    assert_null(memmem(bytes, g->head - 1, "\r\n\r\n", 4));
    unsigned lines = 0;
    for (size_t i = 0; i < g->head; i++) {
        assert_true(bytes[i] != 0);
        if (bytes[i] == '\n') assert_true(bytes[i - 1] == '\r'), lines++;
        if (bytes[i] == '\r') assert_true(bytes[i + 1] == '\n');
        if (bytes[i] == '\n' && i + 1 < g->head) assert_true(bytes[i + 1] != ' ' && bytes[i + 1] != '\t');
    }
    assert_true(lines <= GUARD_HEADERS_MAX + 2);
    assert_true(g->target.at[0] == '/' && g->target.n <= GUARD_TARGET_MAX);
    char *copy = strndup(bytes, g->head);
    assert_non_null(copy);
    for (char *c = copy; *c; c++) *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
    assert_true(count_of(copy, "\r\nhost:") == (g->host.at ? 1 : 0) && (g->host.at || g->old));
    assert_true(count_of(copy, "\r\ncontent-length:") == (g->sized ? 1 : 0));
    assert_int_equal(count_of(copy, "\r\ntransfer-encoding:"), g->chunked ? 1 : 0);
    assert_false(g->chunked && g->sized);
    free(copy);
}

static void changed_at_random(void **state)
{
    (void)state;
    static const char *const pieces[] = { "\r\n",
                                          "\n",
                                          "\r",
                                          " ",
                                          "\t",
                                          ":",
                                          "\r\n\r\n",
                                          "Content-Length: 2\r\n",
                                          "Transfer-Encoding: chunked\r\n",
                                          H,
                                          "\r\n x",
                                          "%00",
                                          "HTTP/1.0",
                                          "//",
                                          ".." };
    uint64_t seed = 7, passed = 0;
    for (int round = 0; round < 200000; round++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const struct hostile *c = &good_cases[(seed >> 33) % N_GOOD];
        char text[2048];
        size_t n = c->n;
        memcpy(text, c->bytes, n);
        for (unsigned edits = 1 + (unsigned)(seed >> 60) % 3; edits; edits--) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const size_t at = (size_t)(seed >> 33) % n, what = (size_t)(seed >> 24) % 4;
            if (what == 0)
                text[at] = (char)(seed >> 50);
            else if (what == 1 && n > 8)
                memmove(text + at, text + at + 1, --n - at);
            else {
                const char *piece = pieces[(seed >> 50) % (sizeof pieces / sizeof *pieces)];
                const size_t m = strlen(piece);
                memmove(text + at + m, text + at, n - at);
                memcpy(text + at, piece, m);
                n += m;
            }
        }
        struct guard g;
        if (guard_check(text, n, &g) != GUARD_PASS) continue;
        assert_sound(text, &g);
        passed++;
    }
    assert_true(passed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(refusals_stay),
        cmocka_unit_test(limits),
        cmocka_unit_test(every_byte),
        cmocka_unit_test(cutting),
        cmocka_unit_test(paths),
        cmocka_unit_test(hosts),
        cmocka_unit_test(what_can_be_allowed),
        cmocka_unit_test(decoding),
        cmocka_unit_test(changed_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
