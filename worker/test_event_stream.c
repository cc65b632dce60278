/* test_event_stream.c: events out of bytes that are cut anywhere, and what is too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "event_stream.h"

struct heard {
    char text[4096];
    size_t n, most; /* events; false after so many */
};

static bool hear(void *user, const char *data, size_t n)
{
    struct heard *h = user;
    assert_int_equal(strlen(data), n);
    assert_true(strlen(h->text) + n + 2 < sizeof h->text);
    strcat(h->text, data);
    strcat(h->text, "|");
    return ++h->n != h->most;
}

static const char stream[] = ": a comment\n\n"
                             "event: one\r\ndata: {\"a\": 1}\r\n\r\n"
                             "data:without a space\n\n"
                             "data: two\ndata: lines\nid: 7\n\n"
                             "data\n\n"
                             "data: \n\n"
                             "data:  [DONE]\n\n"
                             "data: cut off\n";
static const char events[] = "{\"a\": 1}|without a space|two\nlines|| [DONE]|";

static void any_cut(void **state)
{
    (void)state;
    const size_t n = sizeof stream - 1;
    for (size_t cut = 0; cut <= n; cut++) {
        struct event_stream s = { 0 };
        struct heard h = { .text = "" };
        assert_true(event_stream_push(&s, stream, cut, hear, &h));
        assert_true(event_stream_push(&s, stream + cut, n - cut, hear, &h));
        assert_string_equal(h.text, events);
        event_stream_free(&s);
    }
    struct event_stream s = { 0 };
    struct heard h = { .text = "" };
    for (size_t i = 0; i < n; i++) assert_true(event_stream_push(&s, stream + i, 1, hear, &h));
    assert_string_equal(h.text, events);
    event_stream_free(&s);
}

static void enough(void **state)
{
    (void)state;
    struct event_stream s = { 0 };
    struct heard h = { .text = "", .most = 2 };
    assert_false(event_stream_push(&s, stream, sizeof stream - 1, hear, &h));
    assert_false(s.failed);
    assert_string_equal(h.text, "{\"a\": 1}|without a space|");
    event_stream_free(&s);
}

static void too_long(void **state)
{
    (void)state;
    struct event_stream s = { 0 };
    struct heard h = { .text = "" };
    char *block = malloc(1 << 20);
    assert_non_null(block);
    memset(block, 'x', 1 << 20);
    assert_true(event_stream_push(&s, "data: ", 6, hear, &h));
    for (int i = 0; i < 15; i++) assert_true(event_stream_push(&s, block, 1 << 20, hear, &h));
    assert_false(event_stream_push(&s, block, 1 << 20, hear, &h));
    assert_true(s.failed);
    assert_false(event_stream_push(&s, "\n\n", 2, hear, &h));
    assert_int_equal(h.n, 0);
    event_stream_free(&s);
    /* lines that are short, and data that is not */
    const struct event_stream fresh = { 0 };
    s = fresh;
    memcpy(block, "data: ", 6);
    block[(1 << 20) - 1] = '\n';
    bool good = true;
    for (int i = 0; i < 17 && good; i++) good = event_stream_push(&s, block, 1 << 20, hear, &h);
    assert_true(!good && s.failed);
    event_stream_free(&s);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(any_cut), cmocka_unit_test(enough),
                                        cmocka_unit_test(too_long) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
