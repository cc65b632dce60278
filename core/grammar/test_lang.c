/* test_lang.c: languages against PCRE2, against each other, and against numbers as they are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "grammar/lang.h"

static char text[256];
static const struct wk_err err = { text, sizeof text };

static struct langs *open_langs(void)
{
    struct langs *x;
    assert_int_equal(langs_open(NULL, &x, &err), WK_OK);
    return x;
}

static lang_id regex(struct langs *x, const char *pattern, enum lang_match match)
{
    wk_status status;
    const lang_id id = lang_regex(x, pattern, strlen(pattern), match, &status, &err);
    if (!id) fail_msg("%s: %s", pattern, text);
    assert_int_equal(status, WK_OK);
    return id;
}

static void accepts(struct langs *x, lang_id id, const char *word, bool expected)
{
    if (lang_matches(x, id, word, strlen(word)) != expected) fail_msg("'%s': expected %d", word, expected);
}

/* ---- against PCRE2 ------------------------------------------------------------------------------------------ */

struct made {
    char text[512];
    size_t n;
};

static void add(struct made *m, const char *piece)
{
    const size_t len = strlen(piece);
    if (m->n + len >= sizeof m->text) return;
    memcpy(m->text + m->n, piece, len + 1);
    m->n += len;
}

static void make_pattern(struct made *m, int levels, bool anchors)
{
    static const char *const atoms[] = { "a",   "b", "c", "[ab]", "[^a]", ".", "\\d",    "\\w",
                                         "\\s", "0", "-", "ab",   "\\n",  "é", "[é-日]", "\\x61" };
    static const char *const counts[] = { "*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}", "*?" };
    for (uint32_t parts = 1 + draw(3); parts--;) {
        if (anchors && !draw(8)) add(m, draw(2) ? "^" : "$");
        if (levels && !draw(3)) {
            add(m, draw(2) ? "(" : "(?:");
            make_pattern(m, levels - 1, anchors);
            if (draw(2)) {
                add(m, "|");
                make_pattern(m, levels - 1, anchors);
            }
            add(m, ")");
            if (!anchors && draw(2)) add(m, counts[draw(8)]);
            if (anchors && !draw(4)) add(m, "?");
        } else {
            add(m, atoms[draw(16)]);
            if (draw(2)) add(m, counts[draw(8)]);
        }
    }
}

/* A group of alternatives in which look-ahead stands, perhaps in a group of its own, between other parts. */
static void make_look_group(struct made *m, int levels, bool anchors)
{
    make_pattern(m, 1, anchors);
    add(m, draw(2) ? "(" : "(?:");
    for (uint32_t n = 1 + draw(3); n--;) {
        if (draw(2)) make_pattern(m, 0, anchors);
        if (levels && !draw(3)) {
            make_look_group(m, levels - 1, anchors);
        } else if (draw(3)) {
            add(m, draw(2) ? "(?=" : "(?!");
            make_pattern(m, 0, anchors);
            add(m, ")");
        }
        if (draw(2)) make_pattern(m, 0, anchors);
        if (n) add(m, "|");
    }
    add(m, draw(4) ? ")" : ")?");
    if (draw(2)) make_pattern(m, 0, anchors);
}

static void make_word(struct made *m)
{
    static const char *const pieces[] = { "a", "b", "c", "0", "-", "\n", " ", "é", "日", "a", "b", "😀" };
    m->n = 0;
    m->text[0] = '\0';
    for (uint32_t n = draw(8); n--;) add(m, pieces[draw(12)]);
}

static bool pcre_matches(const struct made *pattern, bool whole, const struct made *word)
{
    char full[600];
    int code;
    PCRE2_SIZE offset;
    (void)snprintf(full, sizeof full, whole ? "\\A(?:%s)\\z" : "%s", pattern->text);
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)full, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &code, &offset, NULL);
    assert_non_null(re);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
    const int found = pcre2_match(re, (PCRE2_SPTR)word->text, word->n, 0, 0, data, NULL);
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    assert_true(found > 0 || found == PCRE2_ERROR_NOMATCH);
    return found > 0;
}

static void compare_patterns(bool anchors)
{
    struct langs *x = open_langs();
    uint32_t found = 0;
    for (int i = 0; i < 600; i++) {
        struct made pattern = { .n = 0 }, word;
        make_pattern(&pattern, 2, anchors);
        if (draw(3) == 0) {
            struct made look = { .n = 0 };
            add(&look, draw(2) ? "^(?=" : "^(?!");
            make_pattern(&look, 1, anchors);
            add(&look, ")");
            add(&look, pattern.text);
            pattern = look;
        } else if (draw(3) == 0) {
            pattern.n = 0;
            make_look_group(&pattern, 2, anchors);
        }
        const bool whole = draw(2);
        const lang_id id = regex(x, pattern.text, whole ? LANG_WHOLE : LANG_SEARCH);
        const lang_id other = lang_not(x, id);
        for (int k = 0; k < 12; k++) {
            make_word(&word);
            const bool expected = pcre_matches(&pattern, whole, &word);
            found += expected;
            if (lang_matches(x, id, word.text, word.n) != expected ||
                lang_matches(x, other, word.text, word.n) == expected)
                fail_msg("/%s/ (%s) on '%s': expected %d", pattern.text, whole ? "whole" : "search", word.text,
                         expected);
        }
        if (i % 100 == 99) { /* an arena holds so much and no more */
            langs_close(x);
            x = open_langs();
        }
    }
    assert_in_range(found, 200, 7000);
    langs_close(x);
}

static void test_patterns(void **state)
{
    (void)state;
    compare_patterns(false);
}

static void test_anchors(void **state)
{
    (void)state;
    compare_patterns(true);
}

static void test_syntax(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *word;
        bool whole, search;
    } cases[] = {
        { "abc", "abc", true, true },
        { "b", "abc", false, true },
        { "^b", "abc", false, false },
        { "^a|c$", "xc", false, true },
        { "a.c", "a\nc", false, false },
        { "a.c",
          "a\xe2\x80\xa8"
          "c",
          false, false },
        { "^\\S+$",
          "a\xc2\xa0"
          "b",
          false, false },
        { "\\u00e9\\x41\\cA\\0", "é", false, false },
        { "\\u00e9\\x41", "éA", true, true },
        { "\\ud83d\\ude00", "😀", true, true },
        { "\\u{1F600}\\U0001F600", "😀😀", true, true },
        { "[\\]\\-a-c^]+", "]-b^", true, true },
        { "[a-]", "-", true, true },
        { "[\\w-]+", "a-b", true, true },
        { "[^]", "\n", true, true },
        { "a{,2}", "aa", true, true },
        { "a{x}", "a{x}", true, true },
        { "a{1", "a{1", true, true },
        { "(?<year>\\d{4})-(?P<m>\\d\\d)", "2024-05", true, true },
        { "\\p{Lu}\\p{Letter}*\\P{L}", "Éa1", true, true },
        { "\\p{Script=Greek}+", "αβγ", true, true },
        { "^(?=.*[A-Z])(?=.*\\d).{8,}$", "abcdefgH1", true, true },
        { "^(?=.*[A-Z])(?=.*\\d).{8,}$", "abcdefgh1", false, false },
        { "^(?!admin$)[a-z]+$", "admin", false, false },
        { "^(?!admin$)[a-z]+$", "admins", true, true },
        { "(^|,)a(,|$)", "b,a", false, true },
        /* What a decimal of 6 digits, 2 of them behind the point, is written as by a data model's library. */
        { "^-?0*(?:\\d{0,4}|(?=[\\d.]{1,7}0*$)\\d{0,4}\\.\\d{0,2}0*$)", "1234.5600", true, true },
        { "^-?0*(?:\\d{0,4}|(?=[\\d.]{1,7}0*$)\\d{0,4}\\.\\d{0,2}0*)$", "1234.567", false, false },
        { "(^a)*b", "ab", true, true },
        { "", "", true, true },
        { "a||b", "", true, true },
        { "[]", "", false, false },
    };
    struct langs *x = open_langs();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        accepts(x, regex(x, cases[i].pattern, LANG_WHOLE), cases[i].word, cases[i].whole);
        accepts(x, regex(x, cases[i].pattern, LANG_SEARCH), cases[i].word, cases[i].search);
    }
    langs_close(x);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *says;
        wk_status status;
    } cases[] = {
        { "a(?<=b)c", "byte 1: look-behind", WK_UNSUPPORTED },
        { "(a(?=b))*", "byte 0: look-ahead cannot be repeated", WK_UNSUPPORTED },
        { "a(?=b){2}", "byte 1: look-ahead cannot be repeated", WK_UNSUPPORTED },
        { "(a)\\1", "byte 3: backreferences", WK_UNSUPPORTED },
        { "a\\b", "byte 1: word boundaries", WK_UNSUPPORTED },
        { "(?>a)", "byte 0: only", WK_UNSUPPORTED },
        { "(?i)a", "byte 0: only", WK_UNSUPPORTED },
        { "a**", "nothing to repeat", WK_INVALID },
        { "*a", "byte 0: there is nothing to repeat", WK_INVALID },
        { "a++", "possessive", WK_UNSUPPORTED },
        { "(a", "byte 0: the group has no )", WK_INVALID },
        { "a)", "byte 1: a )", WK_INVALID },
        { "[a", "byte 0: the class has no ]", WK_INVALID },
        { "[b-a]", "byte 1: a range", WK_INVALID },
        { "a\\", "nothing follows", WK_INVALID },
        { "\\q", "byte 0: an escape", WK_INVALID },
        { "\\uD800", "no Unicode character", WK_INVALID },
        { "\\u12", "4 hexadecimal", WK_INVALID },
        { "a{3,2}", "least count", WK_INVALID },
        { "a{99999999}", "count is larger", WK_UNSUPPORTED },
        { "\\p{Nonsense}", "byte 0: a Unicode property", WK_UNSUPPORTED },
        { "\xff", "byte 0: the text is not UTF-8", WK_INVALID },
    };
    struct langs *x = open_langs();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wk_status status = WK_OK;
        const lang_id id = lang_regex(x, cases[i].pattern, strlen(cases[i].pattern), LANG_WHOLE, &status, &err);
        if (id || status != cases[i].status || !strstr(text, cases[i].says))
            fail_msg("%s: status %d, '%s'", cases[i].pattern, status, text);
        assert_int_equal(langs_status(x, NULL), WK_OK); /* does not stick */
    }
    char deep[400];
    memset(deep, '(', 200);
    memset(deep + 200, ')', 200);
    wk_status status;
    assert_int_equal(lang_regex(x, deep, sizeof deep, LANG_WHOLE, &status, &err), LANG_NONE);
    assert_non_null(strstr(text, "64 levels"));
    langs_close(x);
}

/* ---- sets of texts ------------------------------------------------------------------------------------------- */

static void test_algebra(void **state)
{
    (void)state;
    struct langs *x = open_langs();
    const lang_id word = regex(x, "[a-z]+", LANG_WHOLE), short_one = lang_length(x, 2, 4);
    const lang_id both = lang_and(x, word, short_one);
    accepts(x, both, "a", false);
    accepts(x, both, "abcd", true);
    accepts(x, both, "abcde", false);
    accepts(x, lang_minus(x, word, both), "a", true);
    assert_int_equal(lang_contains(x, word, both), LANG_YES);
    assert_int_equal(lang_contains(x, both, word), LANG_NO);
    assert_int_equal(lang_disjoint(x, both, regex(x, "\\d*", LANG_WHOLE)), LANG_YES);
    assert_int_equal(lang_is_empty(x, lang_and(x, word, lang_not(x, word))), LANG_YES);
    assert_int_equal(lang_is_empty(x, lang_and(x, regex(x, "(ab)+", LANG_WHOLE), lang_length(x, 3, 3))), LANG_YES);
    assert_int_equal(lang_or(x, word, short_one), lang_or(x, short_one, word));
    assert_int_equal(lang_not(x, lang_not(x, word)), word);
    assert_int_equal(lang_repeat(x, LANG_ANY_CHAR, 0, LANG_UNBOUNDED), LANG_EVERYTHING);
    /* A state from which nothing can end is NOTHING, however it came about. */
    const lang_id even = lang_and(x, regex(x, "(abc)*", LANG_WHOLE), lang_length(x, 0, 4));
    lang_id s = even;
    for (const char *c = "abc"; *c; c++) assert_int_not_equal(s = lang_next(x, s, (uint32_t)*c), LANG_NOTHING);
    assert_true(lang_accepts(x, s));
    assert_int_equal(lang_next(x, s, 'a'), LANG_NOTHING);
    assert_int_equal(lang_next_any(x, s, 0, LANG_MAX_CHAR), LANG_NO);
    assert_int_equal(lang_next_any(x, even, 'a', 'b'), LANG_YES);
    assert_int_equal(lang_next_any(x, LANG_ANY_CHAR, 0xD800, 0xDFFF), LANG_NO);
    assert_int_equal(langs_status(x, NULL), WK_OK);
    langs_close(x);
}

static void test_words(void **state)
{
    (void)state;
    struct langs *x = open_langs();
    enum { N = 3000 };
    struct lang_word *words = malloc(N * sizeof *words);
    char(*names)[16] = malloc(N * sizeof *names);
    for (uint32_t i = 0; i < N; i++) {
        const int len = snprintf(names[i], sizeof names[i], i % 3 ? "k%u" : "日%u", i * 7 % N);
        words[i] = (struct lang_word){ names[i], (size_t)len };
    }
    const lang_id all = lang_words(x, words, N), rest = lang_not(x, all);
    for (uint32_t i = 0; i < N; i++) accepts(x, all, names[i], true);
    accepts(x, all, "k", false);
    accepts(x, rest, "k", true);
    accepts(x, rest, names[5], false);
    accepts(x, all, "", false);
    assert_int_equal(lang_words(x, words, 0), LANG_NOTHING);
    assert_int_equal(lang_text(x, "", 0), LANG_EMPTY);
    const struct lang_word twice[] = { { "a", 1 }, { "", 0 }, { "a", 1 } };
    accepts(x, lang_words(x, twice, 3), "", true);
    accepts(x, lang_words(x, twice, 3), "a", true);
    assert_int_equal(lang_text(x, "\xff", 1), LANG_NONE);
    assert_int_equal(langs_status(x, &err), WK_INVALID);
    free(names);
    free(words);
    langs_close(x);
}

/* What would take exponentially many states is refused by a count. */
static void test_limits(void **state)
{
    (void)state;
    struct langs *x = open_langs();
    lang_id s = regex(x, "(a|b)*a(a|b){40}c", LANG_WHOLE);
    for (int i = 0; s && i < 1000000; i++) s = lang_next(x, s, draw(2) ? 'a' : 'b');
    assert_int_equal(s, LANG_NONE);
    assert_int_equal(langs_status(x, &err), WK_UNSUPPORTED);
    assert_true(langs_bytes(x) < 24 << 20);
    langs_close(x);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static lang_id number(struct langs *x, const struct lang_number *n)
{
    wk_status status;
    const lang_id id = lang_number(x, n, &status, &err);
    if (!id) fail_msg("%s", text);
    return id;
}

/* Thousandths: all bounds and values of the test are whole numbers of them. */
static void print_thousandths(int value, char out[32])
{
    const int m = value < 0 ? -value : value;
    int len = snprintf(out, 32, "%s%d", value < 0 ? "-" : "", m / 1000);
    if (m % 1000) len += snprintf(out + len, 32 - (size_t)len, ".%03d", m % 1000);
    while (m % 1000 && out[len - 1] == '0') out[--len] = '\0';
}

static void test_number_bounds(void **state)
{
    (void)state;
    static const int values[] = { -100000, -12345, -12340, -12001, -12000, -11999, -1000,  -999,     -1,
                                  0,       1,      5,      10,     100,    999,    1000,   1001,     9999,
                                  10000,   12000,  12345,  12346,  99999,  100000, 100001, 123456789 };
    enum { N = sizeof values / sizeof *values };
    struct langs *x = open_langs();
    for (int trial = 0; trial < 300; trial++) {
        const int low = values[draw(N)], high = values[draw(N)], step = (const int[]){ 0, 5, 100, 1000, 3000 }[draw(5)];
        char min[32], max[32], multiple[32];
        print_thousandths(low, min);
        print_thousandths(high, max);
        print_thousandths(step, multiple);
        const struct lang_number n = { .min = draw(3) ? min : NULL,
                                       .max = draw(3) ? max : NULL,
                                       .multiple_of = step ? multiple : NULL,
                                       .min_exclusive = draw(2),
                                       .max_exclusive = draw(2),
                                       .integer = draw(2) };
        const lang_id id = number(x, &n);
        for (int i = 0; i < N; i++) {
            char word[40];
            print_thousandths(values[i], word);
            bool expected = !n.integer || values[i] % 1000 == 0;
            if (n.min) expected = expected && (n.min_exclusive ? values[i] > low : values[i] >= low);
            if (n.max) expected = expected && (n.max_exclusive ? values[i] < high : values[i] <= high);
            if (step) expected = expected && values[i] % step == 0;
            if (lang_matches(x, id, word, strlen(word)) != expected)
                fail_msg("%s in %s..%s step %s (%d %d %d): expected %d", word, n.min ? min : "", n.max ? max : "",
                         step ? multiple : "", n.min_exclusive, n.max_exclusive, n.integer, expected);
            (void)strcat(word, values[i] % 1000 ? "0" : ".0"); /* the same number */
            if (lang_matches(x, id, word, strlen(word)) != expected) fail_msg("%s: expected %d", word, expected);
        }
    }
    assert_int_equal(langs_status(x, NULL), WK_OK);
    langs_close(x);
}

static void test_number_forms(void **state)
{
    (void)state;
    static const char *const wrong[] = { "",    "-",   "01",    "1.", ".5",  "+1", "1e",
                                         "--1", "0x1", "1.5.2", " 1", "1e+", "NaN" };
    struct langs *x = open_langs();
    const lang_id any = number(x, &(struct lang_number){ .min = NULL });
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) accepts(x, any, wrong[i], false);
    accepts(x, any, "-0", true);
    accepts(x, any, "1e5", true);
    accepts(x, any, "-12.50E-003", true);
    accepts(x, any, "123456789012345678901", false); /* digits are capped */
    const struct lang_number wide = { .min = "1e25", .max = "1.5E25" };
    accepts(x, number(x, &wide), "12000000000000000000000000", true);
    accepts(x, number(x, &wide), "15000000000000000000000001", false);
    const struct lang_number small = { .min = "0", .max = "1e-20", .min_exclusive = true };
    accepts(x, number(x, &small), "0.00000000000000000001", true);
    accepts(x, number(x, &small), "0.0", false);
    assert_int_equal(number(x, &(struct lang_number){ .min = "2", .max = "1" }), LANG_NOTHING);
    assert_int_equal(number(x, &(struct lang_number){ .min = "1", .max = "1", .min_exclusive = true }), LANG_NOTHING);
    assert_int_equal(number(x, &(struct lang_number){ .min = "1.2", .max = "1.8", .integer = true }), LANG_NOTHING);
    accepts(x, number(x, &(struct lang_number){ .min = "0", .max = "0" }), "-0.0", true);
    static const char *const zero[] = { "-0", "-0.0" };
    for (size_t i = 0; i < 2; i++) { /* no integers to readers with types */
        accepts(x, number(x, &(struct lang_number){ .integer = true }), zero[i], false);
        accepts(x, number(x, &(struct lang_number){ .min = "0", .max = "0", .integer = true }), zero[i], false);
        accepts(x, number(x, &(struct lang_number){ .min = "-5", .multiple_of = "5", .integer = true }), zero[i],
                false);
    }
    accepts(x, number(x, &(struct lang_number){ .min = "-20", .max = "20", .integer = true }), "-10", true);
    accepts(x, number(x, &(struct lang_number){ .integer = true }), "-1", true);
    accepts(x, number(x, &(struct lang_number){ .integer = true }), "0", true);
    static const struct {
        struct lang_number n;
        const char *says;
    } refused[] = { { { .min = "1e500" }, "minimum 1e500 has more than 400" },
                    { { .max = "x" }, "maximum x is no JSON number" },
                    { { .multiple_of = "0" }, "larger than 0" },
                    { { .multiple_of = "-1" }, "larger than 0" },
                    { { .multiple_of = "12345678901" }, "9 digits" } };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        wk_status status;
        assert_int_equal(lang_number(x, &refused[i].n, &status, &err), LANG_NONE);
        assert_int_not_equal(status, WK_OK);
        if (!strstr(text, refused[i].says)) fail_msg("%s", text);
    }
    langs_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_anchors),       cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_algebra),       cmocka_unit_test(test_words),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_number_bounds), cmocka_unit_test(test_number_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
