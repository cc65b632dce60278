/* test_job_request.c: bodies of /execute: what is refused, and that what is accepted arrives as it was sent. */
#include "test_bad_bodies.h"
#include "job_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct job_request_limits limits = {
    .max_prompt_chars = 32768, .max_tokens_out = 2048, .max_priority = 1000, .most_tokens = 2048
};

static void good(const char *body, struct job_request *out)
{
    struct refusal why;
    if (!job_request_execute(body, strlen(body), &limits, out, &why))
        fail_msg("%s: refused: %s: %s", body, why.field, why.text);
}

static void test_bad_bodies(void **state)
{
    (void)state;
    assert_true(N_BAD_BODIES > 100);
    for (size_t i = 0; i < N_BAD_BODIES; i++) {
        const struct bad_body *b = &bad_bodies[i];
        struct job_request r;
        struct refusal why;
        const size_t n = b->n ? b->n : strlen(b->body);
        /* an empty body is one without anything in it to whoever sends it, and nothing here */
        if (job_request_execute(b->body, n, &limits, &r, &why)) fail_msg("%s: accepted", b->body);
        if (n && strcmp(why.field, b->field) != 0)
            fail_msg("%s: field \"%s\", expected \"%s\" (%s)", b->body, why.field, b->field, why.text);
        assert_true(strlen(why.text) > 5);
    }
}

/* 0 where a sanitizer has the allocator. */
static size_t allocated(void)
{
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* What is said before parsing is what parsing takes, and not far from it where that is most. */
static void test_memory(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *unit, *end;
        double share;
    } kinds[] = {
        { "{\"x\":[", "{},", "{}]}", 0.5 },
        { "{\"x\":[", "[],", "[]]}", 0.5 },
        { "{\"x\":[", "5,", "5]}", 0.5 },
        { "{\"x\":[", "\"\",", "0]}", 0.5 },
        { "{\"x\":[", "[1],", "[]]}", 0.5 },
        { "{\"x\":[", "1.5,", "0]}", 0.5 },
        { "{\"x\":[", "null,", "0]}", 0.1 },
        { "{\"x\":[", "{\"a\":{}},", "0]}", 0.5 },
        { "{\"x\":\"", "text, \\\"and\\\" {more}: [text]. ", "\"}", 0.5 },
        { "{\"x\":[", "\"0123456789012345678901234\",", "0]}", 0.5 },
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        enum { UNITS = 50000 };
        struct refusal why;
        json_t *document;
        char *body = malloc(64 + UNITS * strlen(kinds[k].unit)), *at = body;
        assert_non_null(body);
        at += sprintf(at, "%s", kinds[k].begin);
        for (int i = 0; i < UNITS; i++) at = strcpy(at, kinds[k].unit) + strlen(kinds[k].unit);
        at += sprintf(at, "%s", kinds[k].end);
        const size_t before = allocated(), said = body_memory(body, (size_t)(at - body));
        assert_true(body_parse(body, (size_t)(at - body), &document, &why));
        const size_t took = allocated() - before;
        if (allocated() && (took > said || (double)took < kinds[k].share * (double)said))
            fail_msg("%s: takes %zu bytes, said were %zu", kinds[k].unit, took, said);
        json_decref(document);
        free(body);
    }
}

static void test_defaults(void **state)
{
    (void)state;
    struct job_request r;
    good("{\"job_id\":\"a\",\"prompt\":\"Hi \\u4f60\\ud83d\\ude00\"}", &r);
    assert_string_equal(r.job_id, "a");
    assert_int_equal(r.prompt_len, 10);
    assert_int_equal(r.prompt_chars, 5);
    assert_int_equal(r.max_tokens, 2048);
    assert_true(r.params.temperature == 1 && r.params.top_p == 1 && r.params.min_p == 0 &&
                r.params.repetition_penalty == 1 && r.params.top_k == 0);
    assert_false(r.seed_given || r.chat || r.metrics || r.n_stops || r.priority || r.handle_id);
    job_request_free(&r);
}

static void test_seeds(void **state)
{
    (void)state;
    static const struct {
        const char *seed;
        uint64_t value;
    } seeds[] = {
        { "0", 0 },
        { "42", 42 },
        { "9007199254740993", 9007199254740993u },
        { "9223372036854775807", INT64_MAX },
        { "9223372036854775808", (uint64_t)INT64_MAX + 1 },
        { "18446744073709551615", UINT64_MAX },
        { "\"18446744073709551615\"", UINT64_MAX },
        { "\"0\"", 0 },
        { "\"9007199254740993\"", 9007199254740993u },
        { "  10000000000000000001 ", 10000000000000000001u },
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char body[256];
        struct job_request r;
        (void)snprintf(body, sizeof body,
                       "{\"job_id\":\"a\",\"seed\":%s,\"prompt\":\"seed: "
                       "18446744073709551615\",\"stop\":[\"\\\"seed\\\":18446744073709551615\"]}",
                       seeds[i].seed);
        good(body, &r);
        assert_true(r.seed_given);
        assert_true(r.params.seed == seeds[i].value);
        assert_string_equal(r.prompt, "seed: 18446744073709551615"); /* text that looks like a number is text */
        assert_string_equal(r.stops[0], "\"seed\":18446744073709551615");
        job_request_free(&r);
        (void)snprintf(body, sizeof body, "{\"handle_id\":\"h\",\"prompt\":\"x\",\"params\":{\"seed\":%s}}",
                       seeds[i].seed);
        struct refusal why;
        assert_true(job_request_worker_execute(body, strlen(body), &limits, &r, &why));
        assert_true(r.params.seed == seeds[i].value);
        assert_string_equal(r.job_id, "");
        job_request_free(&r);
    }
}

/* As long as they are: what a double holds is a number, whatever its digits; whoever wants a whole one says so. */
static void test_long_numbers(void **state)
{
    (void)state;
    static char body[4096];
    static const char *const good_values[] = { "1.%0300d", "0.5%0300d", "1.5e-%0100d1", "10e-%0100d2" };
    for (size_t i = 0; i < sizeof good_values / sizeof *good_values; i++) {
        struct job_request r;
        char value[512];
        (void)snprintf(value, sizeof value, good_values[i], 0);
        (void)snprintf(body, sizeof body, "{\"job_id\":\"b\",\"prompt\":\"x\",\"temperature\":%s}", value);
        good(body, &r);
        assert_true(r.params.temperature > 0.09 && r.params.temperature < 1.6);
        job_request_free(&r);
    }
    static const char *const names[] = { "max_tokens", "top_k", "temperature", "priority" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct job_request r;
        struct refusal why;
        (void)snprintf(body, sizeof body, "{\"job_id\":\"b\",\"prompt\":\"x\",\"%s\":1%0200d}", names[i], 0);
        assert_false(job_request_execute(body, strlen(body), &limits, &r, &why));
        assert_string_equal(why.field, names[i]);
    }
    struct refusal why;
    json_t *o;
    size_t n = (size_t)snprintf(body, sizeof body, "{\"a\":[");
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, "%s-9223372036854775809%020d", i ? "," : "", i);
    n += (size_t)snprintf(body + n, sizeof body - n, "],\"b\":\"\\\"\\\\\",\"seed\":18446744073709551615,\"c\":1}");
    assert_true(body_parse(body, n, &o, &why));
    assert_int_equal(json_array_size(json_object_get(o, "a")), 40);
    assert_true(json_is_real(json_array_get(json_object_get(o, "a"), 39)));
    assert_string_equal(json_string_value(json_object_get(o, "b")), "\"\\");
    assert_string_equal(json_string_value(json_object_get(o, "seed")), "18446744073709551615");
    assert_int_equal(json_integer_value(json_object_get(o, "c")), 1);
    json_decref(o);
    n = (size_t)snprintf(body, sizeof body, "{\"a\":1%0400d}", 0); /* no double either */
    assert_false(body_parse(body, n, &o, &why));
    assert_string_equal(why.field, "a");
}

static void test_edges(void **state)
{
    (void)state;
    struct job_request r;
    good("{\"job_id\":\"a\",\"prompt\":\"a\\u0000b\",\"max_tokens\":1,\"temperature\":0,\"top_p\":0,\"top_k\":262144,"
         "\"min_p\":1,\"repetition_penalty\":2,"
         "\"stop\":[\"a\",\"b\\u0000\",\"\\n\",\"d\"],\"priority\":-1000,\"chat\":true,\"metrics\":false}",
         &r);
    assert_int_equal(r.prompt_len, 3);
    assert_memory_equal(r.prompt, "a\0b", 3);
    assert_int_equal(r.n_stops, 4);
    assert_int_equal(r.stop_lens[1], 2);
    assert_int_equal(r.priority, -1000);
    assert_true(r.chat && !r.metrics && r.params.repetition_penalty == 2 && r.params.temperature == 0 &&
                r.params.top_k == 262144);
    job_request_free(&r);
    good("{\"job_id\":\"a\",\"prompt\":\"x\",\"stop\":[],\"temperature\":2,\"repetition_penalty\":1e-3}", &r);
    assert_true(r.params.repetition_penalty == 1e-3f);
    job_request_free(&r);
}

/* Code points are counted, not bytes; a prompt of the largest size in its largest spelling is not too large for the
 * body. */
static void test_longest_prompt(void **state)
{
    (void)state;
    for (uint32_t extra = 0; extra < 2; extra++) {
        const uint32_t n = limits.max_prompt_chars + extra;
        char *body = malloc((size_t)n * 12 + 100);
        assert_non_null(body);
        size_t at = (size_t)sprintf(body, "{\"job_id\":\"a\",\"prompt\":\"");
        for (uint32_t i = 0; i < n; i++) at += (size_t)sprintf(body + at, "\\ud83d\\ude00");
        at += (size_t)sprintf(body + at, "\"}");
        struct job_request r;
        struct refusal why;
        assert_true(at <= job_request_most_bytes(&limits));
        const bool ok = job_request_execute(body, at, &limits, &r, &why);
        assert_int_equal(ok, !extra);
        if (ok) {
            assert_int_equal(r.prompt_chars, n);
            job_request_free(&r);
        } else {
            assert_string_equal(why.field, "prompt");
            assert_non_null(strstr(why.text, "32768"));
        }
        free(body);
    }
}

static void test_worker_execute(void **state)
{
    (void)state;
    static const struct {
        const char *body, *field;
    } bad[] = {
        { "{\"prompt\":\"x\"}", "handle_id" },
        { "{\"handle_id\":\"h\"}", "prompt" },
        { "{\"handle_id\":\"h\",\"prompt\":\"x\",\"params\":[]}", "params" },
        { "{\"handle_id\":\"h\",\"prompt\":\"x\",\"params\":{\"prompt\":\"y\"}}", "params.prompt" },
        { "{\"handle_id\":\"h\",\"prompt\":\"x\",\"params\":{\"job_id\":\"y\"}}", "params.job_id" },
        { "{\"handle_id\":\"h\",\"prompt\":\"x\",\"params\":{\"max_tokens\":0}}", "params.max_tokens" },
        { "{\"handle_id\":\"h\",\"prompt\":\"x\",\"max_tokens\":1}", "max_tokens" },
        { "{\"handle_id\":\"h\",\"prompt\":\"x\",\"params\":{\"seed\":18446744073709551616}}", "params.seed" },
        { "{\"handle_id\":1,\"prompt\":\"x\"}", "handle_id" },
        { "{\"handle_id\":\"h\",\"prompt\":\"x\",\"params\":{\"top_k\":NaN}}", "params.top_k" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct job_request r;
        struct refusal why;
        assert_false(job_request_worker_execute(bad[i].body, strlen(bad[i].body), &limits, &r, &why));
        if (strcmp(why.field, bad[i].field) != 0) fail_msg("%s: field \"%s\" (%s)", bad[i].body, why.field, why.text);
    }
}

/* Any bytes at all, near to valid ones: no crash, and what is accepted has its fields in range. */
static void test_damaged_bodies(void **state)
{
    (void)state;
    static const char whole[] = "{\"job_id\":\"a\",\"prompt\":\"Hi "
                                "\\u00e4\",\"max_tokens\":20,\"seed\":18446744073709551615,\"stop\":[\"x\",\"y\"],"
                                "\"temperature\":0.5,\"chat\":true}";
    static const char spice[] = "{}[]\",:\\0123456789eE+-.tfn \x80\xc3\xff";
    srand(3);
    for (int round = 0; round < 200000; round++) {
        char body[sizeof whole];
        struct job_request r;
        struct refusal why;
        memcpy(body, whole, sizeof whole);
        for (int k = rand() % 4; k >= 0; k--)
            body[(size_t)rand() % (sizeof whole - 1)] = spice[(size_t)rand() % sizeof spice];
        const size_t n = rand() % 8 ? sizeof whole - 1 : (size_t)rand() % sizeof whole;
        if (!job_request_execute(body, n, &limits, &r, &why)) {
            assert_true(why.text[0]);
            continue;
        }
        assert_true(r.max_tokens >= 1 && r.max_tokens <= 2048 && r.n_stops <= STOP_MAX && r.prompt_chars >= 1);
        assert_true(r.params.temperature >= 0 && r.params.temperature <= 2);
        job_request_free(&r);
    }
}

static void test_deadlines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } ok[] = {
        { "0", 0 },
        { "1700000000123", 1700000000123 },
        { "1970-01-01T00:00:00Z", 0 },
        { "2026-11-21T18:00:00Z", 1795284000000 },
        { "2026-11-21T18:00:00.25Z", 1795284000250 },
        { "2026-11-21T19:30:00+01:30", 1795284000000 },
        { "2026-11-21t12:00:00.1234567-06:00", 1795284000123 },
        { "2024-02-29T00:00:00Z", 1709164800000 },
        { "2016-12-31T23:59:60Z", 1483228800000 },
    };
    static const char *const wrong[] = { "",
                                         "now",
                                         "-1",
                                         "+5",
                                         "1.5",
                                         "1e12",
                                         "12345678901234567",
                                         "2026-11-21",
                                         "2026-11-21T18:00Z",
                                         "2026-11-21 18:00:00Z",
                                         "2026-13-01T00:00:00Z",
                                         "2026-00-01T00:00:00Z",
                                         "2026-11-31T00:00:00Z",
                                         "2026-02-29T00:00:00Z",
                                         "2026-11-21T24:00:00Z",
                                         "2026-11-21T18:60:00Z",
                                         "2026-11-21T18:00:61Z",
                                         "2026-11-21T18:00:00",
                                         "2026-11-21T18:00:00.Z",
                                         "2026-11-21T18:00:00+0100",
                                         "2026-11-21T18:00:00+24:00",
                                         "2026-11-21T18:00:00Zx",
                                         "1969-12-31T23:59:59Z",
                                         " 5",
                                         "5 " };
    int64_t ms;
    for (size_t i = 0; i < sizeof ok / sizeof *ok; i++) {
        if (!job_request_deadline(ok[i].text, &ms)) fail_msg("%s: refused", ok[i].text);
        if (ms != ok[i].ms) fail_msg("%s: %lld", ok[i].text, (long long)ms);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (job_request_deadline(wrong[i], &ms)) fail_msg("%s: accepted", wrong[i]);
}

/* Members as the client wrote them. */
static void test_members(void **state)
{
    (void)state;
    static const char body[] =
        " { \"a\" : {\"x\": [1, \"}\\\"]\"]} ,\"b\":12345678901234567890 , \"c\":\"s,}\",\"d\":null,"
        "\"\\u0065\":1, \"f\":[ ],\"g\":true}";
    static const struct {
        const char *name, *text;
    } cases[] = { { "a", "{\"x\": [1, \"}\\\"]\"]}" },
                  { "b", "12345678901234567890" },
                  { "c", "\"s,}\"" },
                  { "d", "null" },
                  { "f", "[ ]" },
                  { "g", "true" },
                  { "e", NULL },
                  { "x", NULL },
                  { "", NULL } };
    const char *value;
    size_t n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool there = body_member(body, sizeof body - 1, cases[i].name, &value, &n);
        assert_int_equal(there, cases[i].text != NULL);
        if (!there) continue;
        assert_int_equal(n, strlen(cases[i].text));
        assert_memory_equal(value, cases[i].text, n);
    }
    /* Whatever is cut: nothing behind the end is looked at. */
    for (size_t cut = 0; cut < sizeof body - 1; cut++) {
        char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy, body, cut);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            (void)body_member(copy, cut, cases[i].name, &value, &n);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_bodies),     cmocka_unit_test(test_memory),
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_long_numbers),   cmocka_unit_test(test_edges),
        cmocka_unit_test(test_longest_prompt), cmocka_unit_test(test_worker_execute),
        cmocka_unit_test(test_damaged_bodies), cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
