/* test_unicode.c: normalization form C on cases of every rule, and what are words and spaces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tokenizer/unicode.h"
#include "base/utf8.h"

static void expect_nfc(const char *text, const char *expected)
{
    struct byte_buffer out = { 0 };
    assert_true(unicode_nfc(text, strlen(text), &out));
    assert_int_equal(out.n, strlen(expected));
    if (out.n) assert_memory_equal(out.data, expected, out.n);
    if (unicode_plain(text, strlen(text))) assert_string_equal(text, expected);
    free(out.data);
}

static void test_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        { "", "" },
        { "plain", "plain" },
        { "caf\u00E9", "caf\u00E9" },
        { "cafe\u0301", "caf\u00E9" },                 /* composes */
        { "\u212B \u2126 \u212A", "\u00C5 \u03A9 K" }, /* singletons */
        { "A\u030A", "\u00C5" },
        { "\u1E9B\u0323", "\u1E9B\u0323" },
        { "a\u0323\u0302", "\u1EAD" },
        { "a\u0302\u0323", "\u1EAD" },      /* marks are ordered first */
        { "\u1EA5\u0323", "\u1EAD\u0301" }, /* a composed letter comes apart for a mark of a lower class */
        { "a\u0315\u0300\u05AE\u0300b", "\u00E0\u05AE\u0300\u0315b" }, /* one class blocks */
        { "\u0344", "\u0308\u0301" },
        { "\u0958", "\u0915\u093C" },
        { "\uFB1D", "\u05D9\u05B4" }, /* excluded from composition */
        { "\u2ADC", "\u2ADD\u0338" },
        { "\u0F73", "\u0F71\u0F72" },
        { "\u1100\u1161\u11A8", "\uAC01" },
        { "\uAC00\u11A8", "\uAC01" },
        { "\uAC01\u11A8", "\uAC01\u11A8" },
        { "\u1100\u1161\u1161", "\uAC00\u1161" }, /* Hangul */
        { "\uAC00\u11A7", "\uAC00\u11A7" },       /* T begins one further */
        { "\u09C7\u09BE", "\u09CB" },
        { "\u09C7\u0334\u09BE", "\u09C7\u0334\u09BE" }, /* two starters; a mark between them blocks */
        { "\U0001D15E", "\U0001D157\U0001D165" },
        { "\uF900", "\u8C48" },
        { "\U0002F800", "\u4E3D" },
        { "\u0301a", "\u0301a" },
        { "\u0327\u0301", "\u0327\u0301" },
        { "\u0301\u0327", "\u0327\u0301" }, /* marks at the start */
        { "\u00F1\u0303\u0323", "\u1E47\u0303\u0303" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_nfc(cases[i].text, cases[i].expected);
}

/* Bytes that are no text stay, and nothing composes across them. */
static void test_stray_bytes(void **state)
{
    (void)state;
    expect_nfc("e\xFF\xCC\x81", "e\xFF\xCC\x81");
    expect_nfc("\xCC", "\xCC");
    expect_nfc("e\xCC\x81\xE1\xBA", "\xC3\xA9\xE1\xBA");
    expect_nfc("\xED\xA0\x80 e\xCC\x81", "\xED\xA0\x80 \xC3\xA9");
}

/* Every character: applying the form twice changes nothing, and lengths stay within what callers were told. */
static void test_every_character(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char text[4];
        struct byte_buffer once = { 0 }, twice = { 0 };
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        const size_t n = utf8_encode(c, text);
        assert_int_equal(utf8_sequence((unsigned char *)text, n), n);
        assert_true(unicode_nfc(text, n, &once));
        assert_true(unicode_nfc(once.data, once.n, &twice));
        assert_true(once.n <= 3 * n);
        assert_int_equal(once.n, twice.n);
        assert_memory_equal(once.data, twice.data, once.n);
        if (unicode_plain(text, n)) assert_memory_equal(once.data, text, n);
        free(once.data);
        free(twice.data);
    }
}

/* A megabyte of marks in falling order ends soon: the test's TIMEOUT is the judge. */
static void test_many_marks(void **state)
{
    (void)state;
    enum { N = 1 << 19 };
    static const char *const marks[] = { "\u0345", "\u0301", "\u0323", "\u0334" };
    char *text = malloc(2 * N);
    struct byte_buffer out = { 0 };
    assert_non_null(text);
    for (size_t i = 0; i < N; i++) memcpy(text + 2 * i, marks[i * 4 / N], 2);
    for (size_t i = 0; i < N; i += 3) memcpy(text + 2 * i, marks[i % 4], 2);
    assert_true(unicode_nfc(text, 2 * N, &out));
    assert_int_equal(out.n, 2 * N);
    free(out.data);
    free(text);
}

static void test_classes(void **state)
{
    (void)state;
    static const uint32_t spaces[] = { ' ', '\t', '\r', 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x205F, 0x3000 },
                          others[] = { 'a', 0, 0x1F, 0x180E, 0x200B, 0x2060, 0xFEFF, 0x10FFFF };
    static const uint32_t words[] = { 'a',   'Z',    '0',    '_',    0xE9,   0x300,   0x4E2D,
                                      0x661, 0x2160, 0x203F, 0x200D, 0x24B6, 0x1D7CE, 0xAC00 },
                          no_words[] = { ' ', '-', '<', '|', 0xBD, 0x2581, 0x2460, 0x1F30D };
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        assert_true(unicode_is_space(spaces[i]) && !unicode_is_word(spaces[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(unicode_is_space(others[i]));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) assert_true(unicode_is_word(words[i]));
    for (size_t i = 0; i < sizeof no_words / sizeof *no_words; i++) assert_false(unicode_is_word(no_words[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),      cmocka_unit_test(test_stray_bytes), cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_many_marks), cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
