/* test_raw.c: pieces of JSON as they are written. */
#include "raw.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct raw of(const char *text) { return raw_of(text, strlen(text)); }

static void says(struct raw value, const char *text)
{
    assert_non_null(value.data);
    assert_int_equal(value.n, strlen(text));
    assert_memory_equal(value.data, text, value.n);
}

static void test_members(void **state)
{
    (void)state;
    const struct raw o = of(" {\"a\": 1.50, \"b\" : [ 1 ,2], \"\\u0063\":\"x\\n\", \"n\":null, \"o\":{\"a\":true}} ");
    says(raw_member(o, "a"), "1.50");
    says(raw_member(o, "b"), "[ 1 ,2]");
    says(raw_member(o, "c"), "\"x\\n\""); /* its name is spelt with an escape */
    says(raw_member(raw_member(o, "o"), "a"), "true");
    assert_int_equal(raw_member(o, "b").kind, JR_ARRAY);
    assert_null(raw_member(o, "n").data); /* null is absent */
    assert_null(raw_member(o, "x").data);
    assert_null(raw_member(raw_member(o, "a"), "a").data); /* a number has no members */
    assert_null(raw_member((struct raw){ 0 }, "a").data);
    says(raw_member(of("{\"a\":1,\"a\":2}"), "a"), "2");
}

static void test_kinds(void **state)
{
    (void)state;
    struct refusal why;
    struct raw out;
    const struct raw o = of("{\"list\":[],\"text\":\"\"}");
    assert_true(raw_member_of(o, "", "list", JR_ARRAY, &out, &why));
    says(out, "[]");
    assert_true(raw_member_of(o, "", "none", JR_ARRAY, &out, &why));
    assert_null(out.data);
    assert_false(raw_member_of(o, "input[3]", "text", JR_ARRAY, &out, &why));
    assert_string_equal(why.field, "input[3].text");
    assert_string_equal(why.text, "input[3].text: expected a list, got a string");
}

static void test_walk(void **state)
{
    (void)state;
    static const char *const want[] = { "1", "[2, 3]", "{}", "null" };
    struct raw_walk w;
    struct raw value;
    size_t n = 0;
    raw_open(&w, of("[1, [2, 3], {}, null]"));
    while (raw_next(&w, &value)) says(value, want[n++]);
    assert_int_equal(n, 4);
    assert_int_equal(w.json.status, WK_OK);
    raw_close(&w);
    raw_open(&w, of("{\"a\":1}"));
    assert_true(raw_next(&w, &value));
    assert_true(jr_is(w.key, "a"));
    assert_false(raw_next(&w, &value));
    raw_close(&w);
    assert_true(raw_is_empty(of("[ ]")));
    assert_true(raw_is_empty(of("{}")));
    assert_false(raw_is_empty(of("[0]")));
    assert_false(raw_is_empty(of("0")));
    assert_false(raw_is_empty((struct raw){ 0 }));
    raw_open(&w, of("3")); /* neither list nor object: nothing in it */
    assert_false(raw_next(&w, &value));
    raw_close(&w);
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * (JR_MAX_DEPTH + 1) + 1] = "";
    memset(text, '[', JR_MAX_DEPTH + 1);
    memset(text + JR_MAX_DEPTH + 1, ']', JR_MAX_DEPTH + 1);
    assert_null(raw_of(text, JR_MAX_DEPTH + 1 + JR_MAX_DEPTH + 1).data);
    assert_int_equal(raw_of(text + 1, 2 * (size_t)JR_MAX_DEPTH).n, 2 * JR_MAX_DEPTH); /* as many as there may be */
}

static void test_text(void **state)
{
    (void)state;
    struct http_text t = { 0 };
    const struct raw o = of("{\"a\":\"x\\u00e9\\u0000y\",\"b\":7}");
    raw_text(raw_member(o, "a"), &t);
    assert_int_equal(t.n, 5);
    assert_memory_equal(t.data, "x\xc3\xa9\0y", 5);
    t.n = 0;
    raw_text(raw_member(o, "b"), &t); /* no string */
    assert_int_equal(t.n, 0);
    raw_copy(&t, raw_member(o, "none"), "{}");
    raw_copy_member(&t, "k", raw_member(o, "b"));
    raw_copy_member(&t, "k", raw_member(o, "none"));
    assert_string_equal(t.data, "{},\"k\":7");
    t.n = 0;
    raw_copy_line(&t, of("{\r\n\"a\":\n\"\\n\"}"), "");
    assert_string_equal(t.data, "{  \"a\": \"\\n\"}");
    assert_true(raw_says(of("\"a\\u0062\""), "ab"));
    assert_false(raw_says(of("\"ab\\u0000\""), "ab"));
    assert_false(raw_says(of("[\"ab\"]"), "ab"));
    http_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_members), cmocka_unit_test(test_kinds),
                                        cmocka_unit_test(test_walk), cmocka_unit_test(test_depth),
                                        cmocka_unit_test(test_text) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
