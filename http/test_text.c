/* test_text.c: the escaper that every token passes: over all bytes, all characters, all cuts, against a parser and
 * against the rule for what is no character. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "http.h"
#include "base/utf8.h"

/* What the JSON must say: utf8.h's stream, the definition of replacement in this project. */
static size_t expected_text(const char *bytes, size_t n, char *out)
{
    struct utf8_stream s = { 0 };
    const size_t m = utf8_stream_push(&s, bytes, n, out);
    return m + utf8_stream_flush(&s, out + m);
}

static void check(const char *bytes, size_t n)
{
    struct http_text t = { 0 };
    char expected[4096];
    assert_true(UTF8_STREAM_ROOM(n) <= sizeof expected);
    const size_t m = expected_text(bytes, n, expected);
    http_text_json(&t, bytes, n);
    assert_false(t.failed);
    assert_int_equal(t.data[t.n], 0);
    for (size_t i = 0; i < t.n; i++) assert_true((unsigned char)t.data[i] >= 0x20 && t.data[i] != 0x7f);
    json_error_t error;
    json_t *value = json_loadb(t.data, t.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!value) fail_msg("%s: %.*s", error.text, (int)t.n, t.data);
    assert_int_equal(json_string_length(value), m);
    assert_memory_equal(json_string_value(value), expected, m);
    json_decref(value);
    http_text_free(&t);
}

static void one_and_two_bytes(void **state)
{
    (void)state;
    check("", 0);
    for (int a = 0; a < 256; a++) {
        check((char[]){ (char)a }, 1);
        check((char[]){ 'x', (char)a, 'y' }, 3);
        for (int b = 0; b < 256; b++) check((char[]){ (char)a, (char)b }, 2);
    }
}

static void every_character(void **state)
{
    (void)state;
    char block[1024];
    size_t n = 0;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        if (c >= 0xd800 && c <= 0xdfff) continue;
        char one[4];
        const size_t length = utf8_encode(c, one);
        if (n + length > sizeof block) {
            check(block, n);
            n = 0;
        }
        memcpy(block + n, one, length);
        n += length;
    }
    check(block, n);
}

/* Each character cut short, followed by text, by another beginning, and by the end. */
static void cut_characters(void **state)
{
    (void)state;
    static const uint32_t some[] = { 0x80,   0x7ff,  0x800,   0xfff,   0x1000,  0xcfff,  0xd000,  0xd7ff,
                                     0xe000, 0xffff, 0x10000, 0x3ffff, 0x40000, 0xfffff, 0x10ffff };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char c[4], text[16];
        const size_t length = utf8_encode(some[i], c);
        for (size_t cut = 1; cut < length; cut++) {
            memcpy(text, c, cut);
            check(text, cut);
            text[cut] = '"';
            check(text, cut + 1);
            memcpy(text + cut, c, length);
            check(text, cut + length);
            memcpy(text + cut, c, cut);
            check(text, 2 * cut);
        }
    }
}

static void random_bytes(void **state)
{
    (void)state;
    static const unsigned char likely[] = { 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0x80, 0x9f, 0xa0, 0xbf,
                                            0xff, 0xc0, 0xf5, '"',  '\\', '\n', 0,    'a',  0x7f };
    uint64_t seed = 42;
    for (int round = 0; round < 50000; round++) {
        char bytes[256];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const size_t n = (size_t)(seed >> 33) % sizeof bytes;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (char)(round % 2 ? likely[(seed >> 33) % sizeof likely] : (unsigned char)(seed >> 33));
        }
        check(bytes, n);
    }
}

static void known_outputs(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "a\"b\\c", "\"a\\\"b\\\\c\"" },
        { "\b\t\n\f\r\v\x1f\x7f", "\"\\b\\t\\n\\f\\r\\u000b\\u001f\\u007f\"" },
        { "\xe2\x80\xa8", "\"\xe2\x80\xa8\"" }, /* U+2028 is text in JSON */
        { "\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\"" },
        { "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "\xf0\x9f\x98", "\"\xef\xbf\xbd\"" },
        { "/</script>", "\"/</script>\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_text t = { 0 };
        http_text_json(&t, cases[i].in, strlen(cases[i].in));
        assert_string_equal(t.data, cases[i].out);
        http_text_free(&t);
    }
}

static void growing(void **state)
{
    (void)state;
    struct http_text t = { 0 };
    http_text_format(&t, "%s", "");
    assert_string_equal(t.data, "");
    for (int i = 0; i < 20000; i++) http_text_format(&t, "%d,", i % 10);
    assert_int_equal(t.n, 40000);
    for (size_t i = 0; i < t.n; i += 2) assert_true(t.data[i] == (char)('0' + i / 2 % 10) && t.data[i + 1] == ',');
    http_text_format(&t, "%5000s|", "x");
    assert_int_equal(t.n, 45001);
    http_text_add(&t, "abc", 0);
    assert_int_equal(t.n, 45001);
    assert_int_equal(t.data[t.n], 0);
    http_text_free(&t);
    assert_null(t.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_and_two_bytes), cmocka_unit_test(every_character), cmocka_unit_test(cut_characters),
        cmocka_unit_test(random_bytes),      cmocka_unit_test(known_outputs),   cmocka_unit_test(growing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
