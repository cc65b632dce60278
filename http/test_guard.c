/* test_guard.c: the guard alone: every case, each of its prefixes, limits to the byte, and requests that were changed
 * at random. */
#include "test_client.h"

#include "guard.h"
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

/* What a parser makes of a head, as pointers into text that it has cut into strings. */
struct parsed {
    char text[1024];
    const char *names[GUARD_HEADERS_MAX], *values[GUARD_HEADERS_MAX];
    struct guard_parsed view;
};

static void parse(const char *head, size_t n, struct parsed *p)
{
    *p = (struct parsed){ 0 };
    memcpy(p->text, head, n);
    char *rest = p->text, *line = strsep(&rest, "\n");
    p->view = (struct guard_parsed){ .names = p->names, .values = p->values };
    p->view.method = strsep(&line, " ");
    char *target = strsep(&line, " ");
    p->view.target = strsep(&target, "?");
    p->view.query = target;
    p->view.version = line + 5;
    line[strcspn(line, "\r")] = 0;
    while ((line = strsep(&rest, "\n")) && line[0] != '\r') {
        line[strcspn(line, "\r")] = 0;
        p->names[p->view.n] = strsep(&line, ":");
        p->values[p->view.n++] = line + strspn(line, " ");
    }
}

/* The server compares what CivetWeb has parsed with what was judged: any difference shows. */
static void agreement(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOOD; i++) {
        static struct parsed p;
        struct guard g;
        const char *head = good_cases[i].bytes;
        assert_int_equal(guard_check(head, good_cases[i].n, &g), GUARD_PASS);
        parse(head, g.head, &p);
        if (!guard_agrees(head, g.head, &p.view)) fail_msg("%s", good_cases[i].name);
        struct guard_parsed other[] = { p.view, p.view, p.view, p.view, p.view };
        other[0].method = "PUT";
        other[1].target = "/";
        other[2].query = p.view.query ? NULL : "x";
        other[3].version = "1.2";
        other[4].n = p.view.n ? p.view.n - 1 : 1;
        p.names[p.view.n] = p.values[p.view.n] = "X";
        for (size_t k = 0; k < sizeof other / sizeof *other; k++)
            if (guard_agrees(head, g.head, &other[k]))
                fail_msg("%s: difference %zu is not seen", good_cases[i].name, k);
        for (size_t k = 0; k < p.view.n; k++) {
            const char *name = p.names[k], *value = p.values[k];
            p.names[k] = "X-Other";
            assert_false(guard_agrees(head, g.head, &p.view));
            p.names[k] = name;
            p.values[k] = "other";
            assert_false(guard_agrees(head, g.head, &p.view));
            p.values[k] = value;
        }
        assert_true(guard_agrees(head, g.head, &p.view));
    }
}

static void loopback_names(void **state)
{
    (void)state;
    static const char *const yes[] = { "localhost", "LocalHost:1", "127.0.0.1",  "127.255.255.255:65535",
                                       "[::1]",     "[::1]:80",    "127.0.0.001" };
    static const char *const no[] = { "",           ":",          ":80",         "localhost.",      "localhos",
                                      "xlocalhost", "127.0.0.1.", "127.0.0",     "127.0.0.1.1",     "127.0.0.0001",
                                      "127..0.1",   "128.0.0.1",  "127.0.0.256", "0.0.0.0",         "[::]",
                                      "::1",        "10.0.0.1",   "example.org", "localhost:80:80", "127.0.0.1x" };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(guard_loopback((struct guard_span){ yes[i], strlen(yes[i]) }));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (guard_loopback((struct guard_span){ no[i], strlen(no[i]) })) fail_msg("%s", no[i]);
    assert_true(guard_loopback((struct guard_span){ 0 }));
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
    assert_int_equal(count_of(copy, "\r\ntransfer-encoding:"), 0);
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
        char text[1024];
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
        cmocka_unit_test(hostile),        cmocka_unit_test(prefixes),   cmocka_unit_test(refusals_stay),
        cmocka_unit_test(limits),         cmocka_unit_test(every_byte), cmocka_unit_test(agreement),
        cmocka_unit_test(loopback_names), cmocka_unit_test(decoding),   cmocka_unit_test(changed_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
