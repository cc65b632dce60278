/* test_json_reader.c: what JSON is and what is none, read and skipped alike; paths in messages; no memory for what a
 * text only claims. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/json_reader.h"

static char error_text[512];
static const struct wk_err open_err = { error_text, sizeof error_text };

/* A copy that ends where the text ends, so that a sanitizer sees every byte read beyond. */
static char *exact(const char *text, size_t n)
{
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n) memcpy(copy, text, n);
    return copy;
}

/* Reads everything that a value has, as its kind asks; false: it failed. */
static bool read_value(struct json_reader *r)
{
    struct json_text s;
    uint64_t number;
    bool value;
    switch (jr_peek(r)) {
    case JR_OBJECT:
        if (!jr_object(r)) return false;
        while (jr_member(r, &s))
            if (!read_value(r)) return false;
        return !r->status;
    case JR_ARRAY:
        if (!jr_array(r)) return false;
        while (jr_element(r))
            if (!read_value(r)) return false;
        return !r->status;
    case JR_STRING: return jr_string(r, &s);
    case JR_NUMBER: return jr_u64(r, &number);
    case JR_BOOL: return jr_bool(r, &value);
    case JR_NULL: return jr_null(r);
    default: return jr_skip(r); /* says what was expected */
    }
}

/* Is the text one value and nothing else? Reading and skipping must agree, unless it has numbers that are not whole. */
static bool accepts(const char *text, size_t n, bool read)
{
    struct json_reader r;
    char *copy = exact(text, n);
    jr_open(&r, copy, n, "text", "", &open_err);
    const bool ok = (read ? read_value(&r) : jr_skip(&r)) && jr_finish(&r);
    assert_int_equal(ok, r.status == WK_OK);
    jr_close(&r);
    free(copy);
    return ok;
}

static const char *const good[] = { "{}",
                                    "[]",
                                    " [ ] ",
                                    "null",
                                    "true",
                                    "false",
                                    "0",
                                    "18446744073709551615",
                                    "\"\"",
                                    "\"a\\u0000b\"",
                                    "\"\\ud83d\\udc4b\"",
                                    "\"\xF0\x9F\x91\x8B\"",
                                    "{\"a\":{\"b\":[1,2,{\"c\":null}]},\"\":\"\"}",
                                    "[1 , 2\t,\n3\r]",
                                    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                    "{\"\\u00e9\":1}",
                                    "\"\x7F\"" };
static const char *const only_skipped[] = {
    "-1", "1.5", "1e3", "-0", "18446744073709551616", "1E+2", "0.0e-0"
}; /* numbers that are no ids */
static const char *const bad[] = { "",
                                   " ",
                                   "{",
                                   "[",
                                   "}",
                                   "]",
                                   "[1",
                                   "[1,",
                                   "[1,]",
                                   "[,1]",
                                   "{\"a\"",
                                   "{\"a\":",
                                   "{\"a\":1",
                                   "{\"a\":1,",
                                   "{\"a\":1,}",
                                   "{a:1}",
                                   "{1:1}",
                                   "[1 2]",
                                   "{\"a\" 1}",
                                   "tru",
                                   "nul",
                                   "falsey",
                                   "True",
                                   "01",
                                   "+1",
                                   ".5",
                                   "1.",
                                   "1e",
                                   "-",
                                   "0x1",
                                   "NaN",
                                   "Infinity",
                                   "\"",
                                   "\"a",
                                   "\"\\",
                                   "\"\\x\"",
                                   "\"\\u12\"",
                                   "\"\\u12g4\"",
                                   "\"\\ud800\"",
                                   "\"\\udc00\"",
                                   "\"\\ud800\\u0041\"",
                                   "\"\\ud800\\",
                                   "\"\\ud83d\\udc4",
                                   "\"\n\"",
                                   "\"\t\"",
                                   "\"\x80\"",
                                   "\"\xC0\xAF\"",
                                   "\"\xED\xA0\x80\"",
                                   "\"\xF4\x90\x80\x80\"",
                                   "\"\xF0\x9F\x91\"",
                                   "\xEF\xBB\xBF{}",
                                   "{} {}",
                                   "1 1",
                                   "[]]",
                                   "nullnull",
                                   "\"a\"\"b\"",
                                   "[\"a\":1]",
                                   "{\"a\",1}",
                                   "/* */ 1",
                                   "'a'",
                                   "[1}",
                                   "{\"a\":1]" };

static void test_grammar(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (int read = 0; read < 2; read++)
            if (!accepts(good[i], strlen(good[i]), read)) fail_msg("%s: %s", good[i], error_text);
    for (size_t i = 0; i < sizeof only_skipped / sizeof *only_skipped; i++) {
        if (!accepts(only_skipped[i], strlen(only_skipped[i]), false)) fail_msg("%s: %s", only_skipped[i], error_text);
        if (accepts(only_skipped[i], strlen(only_skipped[i]), true)) fail_msg("%s was read as an id", only_skipped[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int read = 0; read < 2; read++)
            if (accepts(bad[i], strlen(bad[i]), read)) fail_msg("%s was taken", bad[i]);
    assert_false(accepts("\"a\0b\"", 5, false)); /* a raw NUL */
}

/* Every beginning of a text is none; nothing beyond it is looked at. */
static void test_every_prefix(void **state)
{
    (void)state;
    static const char text[] = "{\"model\": {\"vocab\": {\"\\ud83d\\udc4b\\u00e9\": 17, \"\xC3\xA9\": 2}, \"merges\": "
                               "[\"a b\", [\"c\", \"\\\"\"]], \"x\": [true, false, null, 1]}}";
    assert_true(accepts(text, sizeof text - 1, true));
    for (size_t n = 0; n < sizeof text - 1; n++) {
        assert_false(accepts(text, n, true));
        assert_false(accepts(text, n, false));
    }
}

static void test_strings(void **state)
{
    (void)state;
    static const char text[] = "[\"plain\", \"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\u0000\\n\", \"\"]";
    struct json_reader r;
    struct json_text s = { 0 };
    jr_open(&r, text, sizeof text - 1, "text", "", &open_err);
    assert_true(jr_array(&r) && jr_element(&r) && jr_string(&r, &s));
    assert_true(jr_is(s, "plain"));
    assert_true(s.data >= text && s.data < text + sizeof text); /* no copy */
    assert_true(jr_element(&r) && jr_string(&r, &s));
    assert_int_equal(s.len, 12);
    assert_memory_equal(s.data, "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\0\n", 12);
    assert_true(jr_element(&r) && jr_string(&r, &s));
    assert_int_equal(s.len, 0);
    assert_false(jr_element(&r));
    assert_true(jr_finish(&r));
    jr_close(&r);
}

static void expect_failure(const char *text, const char *expected)
{
    struct json_reader r;
    jr_open(&r, text, strlen(text), "file", "", &open_err);
    if (read_value(&r)) fail_msg("%s was taken", text);
    jr_close(&r);
    if (strcmp(error_text, expected)) fail_msg("%s\n said: %s\n not:  %s", text, error_text, expected);
}

static void test_messages(void **state)
{
    (void)state;
    expect_failure("{\"model\": {\"merges\": [\"a\", 1, tru]}}",
                   "file: model.merges[2]: byte 30: expected true, false or null, found byte 0x74");
    expect_failure("[[1, -1]]", "file: [0][1]: expected a whole number from 0 to 2^64 - 1, found -1");
    expect_failure("{\"a\": {\"b\": \"x", "file: a.b: byte 14: expected the rest of a string in UTF-8, the text ends: "
                                          "it is truncated; download it again");
    expect_failure("{\"a\": 1 \"b\": 2}", "file: a: byte 8: expected ',' or '}', found byte 0x22");
    struct json_reader r;
    struct json_text s;
    jr_open(&r, "[1]", 3, "file", "model", &open_err);
    assert_false(jr_object(&r));
    assert_string_equal(error_text, "file: model: expected an object, found an array");
    assert_false(jr_array(&r)); /* the first failure sticks */
    assert_false(jr_string(&r, &s));
    assert_string_equal(error_text, "file: model: expected an object, found an array");
    jr_close(&r);
    char key[4096];
    (void)snprintf(key, sizeof key, "{\"%0*d\": x}", 3000, 7);
    jr_open(&r, key, strlen(key), "file", "", &open_err);
    assert_false(read_value(&r));
    assert_true(strlen(error_text) < 200); /* a long key is cut */
    jr_close(&r);
}

static void test_depth(void **state)
{
    (void)state;
    enum { MANY = 1 << 20 };
    char *text = malloc(MANY);
    assert_non_null(text);
    for (int kind = 0; kind < 2; kind++)
        for (int n = JR_MAX_DEPTH; n <= JR_MAX_DEPTH + 1; n++) {
            size_t len = 0;
            for (int i = 0; i < n; i++) len += (size_t)sprintf(text + len, kind ? "{\"k\":" : "[");
            text[len++] = '1';
            for (int i = 0; i < n; i++) text[len++] = kind ? '}' : ']';
            assert_int_equal(accepts(text, len, true), n == JR_MAX_DEPTH);
            assert_int_equal(accepts(text, len, false), n == JR_MAX_DEPTH);
            if (n > JR_MAX_DEPTH) /* a long path leaves room for what is wrong */
                assert_in_range((size_t)(strstr(error_text, ": more than") - error_text), 1, 150);
        }
    memset(text, '[', MANY);
    assert_false(accepts(text, MANY, false));
    assert_non_null(strstr(error_text, "levels"));
    /* Many, but flat: reading allocates nothing for them. */
    size_t n = 0;
    text[n++] = '[';
    while (n + 3 < MANY - 2) n += (size_t)sprintf(text + n, "[],");
    text[n++] = '1';
    text[n++] = ']';
    if (!accepts(text, n, true)) fail_msg("%s", error_text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),  cmocka_unit_test(test_every_prefix), cmocka_unit_test(test_strings),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
