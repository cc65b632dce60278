/* test_stop.c: the matcher against a search over the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/stop.h"

/* First end of any stop string in the text; of those that end there the longest. Returns the length of the text before
 * it. */
static size_t search(const char *text, size_t n, const char *const *stops, const size_t *lens, size_t n_stops, int *hit)
{
    *hit = STOP_NONE;
    for (size_t end = 1; end <= n; end++) {
        for (size_t i = 0; i < n_stops; i++)
            if (lens[i] <= end && memcmp(text + end - lens[i], stops[i], lens[i]) == 0 &&
                (*hit == STOP_NONE || lens[i] > lens[*hit]))
                *hit = (int)i;
        if (*hit != STOP_NONE) return end - lens[*hit];
    }
    return n;
}

static void test_against_search(void **state)
{
    (void)state;
    srand(2);
    for (int round = 0; round < 50000; round++) {
        char stop_text[STOP_MAX][8], in[40], out[sizeof in + STOP_MAX_BYTES];
        const char *stops[STOP_MAX];
        size_t lens[STOP_MAX], used = 0;
        const size_t n_stops = (size_t)rand() % (STOP_MAX + 1);
        for (size_t i = 0; i < n_stops; i++) {
            lens[i] = 1 + (size_t)rand() % 7;
            for (size_t k = 0; k < lens[i]; k++) stop_text[i][k] = (char)("ab\0"[rand() % 3]);
            stops[i] = stop_text[i];
        }
        for (size_t i = 0; i < sizeof in; i++) in[i] = (char)("ab\0"[rand() % 3]);
        struct stop_matcher *m;
        assert_int_equal(stop_open(stops, lens, n_stops, &m, NULL), WK_OK);
        int expected, got = STOP_NONE;
        const size_t n = search(in, sizeof in, stops, lens, n_stops, &expected);
        for (size_t at = 0; at < sizeof in;) {
            size_t take = 1 + (size_t)rand() % 9, written;
            if (take > sizeof in - at) take = sizeof in - at;
            got = stop_push(m, in + at, take, out + used, &written);
            used += written;
            at += take;
            assert_true(used <= n); /* nothing of a stop string ever leaves */
        }
        used += stop_flush(m, out + used);
        assert_int_equal(got, expected);
        assert_int_equal(used, n);
        assert_memory_equal(out, in, n);
        stop_close(m);
    }
}

/* Text is held back only while it could still become a stop string. */
static void test_holds_back_no_more_than_needed(void **state)
{
    (void)state;
    const char *stops[] = { "STOP" };
    const size_t lens[] = { 4 };
    struct stop_matcher *m;
    char out[STOP_ROOM(16)];
    size_t n;
    assert_int_equal(stop_open(stops, lens, 1, &m, NULL), WK_OK);
    assert_int_equal(stop_push(m, "x S", 3, out, &n), STOP_NONE);
    assert_int_equal(n, 2);
    assert_int_equal(stop_push(m, "T", 1, out, &n), STOP_NONE);
    assert_int_equal(n, 0);
    assert_int_equal(stop_push(m, "ARS", 3, out, &n), STOP_NONE);
    assert_int_equal(n, 4);
    assert_memory_equal(out, "STAR", 4);
    assert_int_equal(stop_push(m, "TOPPED", 6, out, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(stop_push(m, "more", 4, out, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(stop_flush(m, out), 0);
    stop_close(m);
}

static void test_limits(void **state)
{
    (void)state;
    struct stop_matcher *m;
    char text[128];
    struct wk_err err = { text, sizeof text };
    const char *stops[STOP_MAX + 1];
    size_t lens[STOP_MAX + 1];
    const size_t empty[] = { 1, 0 }, huge[] = { STOP_MAX_BYTES + 1 };
    for (size_t i = 0; i <= STOP_MAX; i++) stops[i] = "a", lens[i] = 1;
    assert_int_equal(stop_open(stops, lens, STOP_MAX + 1, &m, &err), WK_INVALID);
    assert_null(m);
    assert_int_equal(stop_open(stops, empty, 2, &m, &err), WK_INVALID);
    assert_non_null(strstr(text, "stop string 1 has 0 bytes"));
    assert_int_equal(stop_open(stops, huge, 1, &m, &err), WK_INVALID);
    stop_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_search),
        cmocka_unit_test(test_holds_back_no_more_than_needed),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
