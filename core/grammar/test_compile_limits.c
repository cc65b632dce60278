/* test_compile_limits.c: what compiling may cost. Whatever a text says, its compiler counts its work, stops where it is
 * too much, and stops when it is told to; what is refused is refused then, never while a text is followed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/schema.h"

enum kind { SCHEMA, REGEX, GBNF };

struct asking {
    uint64_t asked, stop_at;
};

static bool ask(void *user)
{
    struct asking *a = user;
    return ++a->asked == a->stop_at;
}

static wk_status compile(enum kind kind, const char *text, struct asking *asking, struct grammar **out, char *why,
                         size_t cap)
{
    const struct lang_watch watch = { ask, asking };
    const struct wk_err err = { why, cap };
    switch (kind) {
    case SCHEMA: return grammar_from_schema(text, strlen(text), NULL, &watch, out, &err);
    case REGEX: return grammar_from_regex(text, strlen(text), &watch, out, &err);
    default: return grammar_from_gbnf(text, strlen(text), NULL, &watch, out, &err);
    }
}

/* ---- texts of a kind ------------------------------------------------------------------------------------ */

/* open, then n times `each` with its number for every %d, between commas or what `comma` says, then close. */
static char *many(const char *open, const char *each, const char *comma, const char *close, unsigned n)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    (void)fputs(open, f);
    for (unsigned i = 0; i < n; i++) {
        if (i) (void)fputs(comma, f);
        for (const char *p = each; *p; p++) {
            if (p[0] == '%' && p[1] == 'd') {
                (void)fprintf(f, "%u", i);
                p++;
            } else {
                (void)fputc(*p, f);
            }
        }
    }
    (void)fputs(close, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

struct bomb {
    enum kind kind;
    const char *open, *each, *comma, *close;
    unsigned n;
    bool refused; /* it must be */
};
static const struct bomb bombs[] = {
    { SCHEMA, "{\"type\":\"object\",\"patternProperties\":{", "\"^.*x%d.{%d}\":{\"minimum\":%d}", ",", "}}", 29, true },
    { SCHEMA, "{\"anyOf\":[", "{\"type\":\"string\",\"pattern\":\"x%d.*y%d\"}", ",", "]}", 500, true },
    { SCHEMA, "{\"oneOf\":[", "{\"type\":\"string\",\"pattern\":\"x%d\"}", ",", "]}", 100, true },
    { SCHEMA, "{\"type\":\"string\",\"allOf\":[", "{\"pattern\":\"x%d.*y%d\"}", ",", "]}", 100, true },
    { SCHEMA, "{\"type\":\"string\",\"allOf\":[", "{\"pattern\":\"a.{%d}b\"}", ",", "]}", 20, true },
    { SCHEMA, "{\"not\":{\"allOf\":[", "{\"pattern\":\"x%d\"}", ",", "]}}", 300, false },
    { SCHEMA, "{\"enum\":[", "\"value %d\"", ",", "]}", 60000, false },
    { SCHEMA, "{\"enum\":[", "7%d", ",", "]}", 60000, false },
    { SCHEMA, "{\"enum\":[", "{\"a\":%d}", ",", "]}", 5000, true },
    { SCHEMA, "{\"type\":\"object\",\"required\":[", "\"r%d\"", ",", "]}", 60000, true },
    { SCHEMA, "{\"additionalProperties\":false,\"properties\":{", "\"p%d\":{\"type\":\"null\"}", ",", "}}", 19000,
      false },
    { SCHEMA, "{\"$defs\":{", "\"d%d\":{\"$anchor\":\"x%d\",\"items\":{\"$ref\":\"#x%d\"}}", ",", "},\"$ref\":\"#x1\"}",
      9000, false },
    { SCHEMA, "{\"properties\":{\"$ref\":{},", "\"d%d\":{\"$ref\":\"#/properties/d%d0\"}", ",", "}}", 9000, true },
    { SCHEMA, "{\"type\":\"object\",\"anyOf\":[", "{\"required\":[\"a%d\"]}", ",", "]}", 400, true },
    { SCHEMA, "{\"type\":\"object\",\"dependentRequired\":{", "\"a%d\":[\"b%d\"]", ",", "}}", 12, true },
    { SCHEMA, "{\"allOf\":[", "{\"not\":{\"minimum\":%d,\"maximum\":%d.5}}", ",", "],\"type\":\"number\"}", 200, true },
    { SCHEMA, "{\"type\":\"array\",\"prefixItems\":[", "{\"minimum\":%d}", ",", "]}", 20000, true },
    { SCHEMA, "{\"type\":\"object\",\"properties\":{",
      "\"p%d\":{\"type\":\"string\",\"format\":\"uri\",\"pattern\":\"^h.*%d$\"}", ",", "}}", 1000, false },
    { SCHEMA, "{\"type\":\"object\",\"properties\":{", "\"p%d\":{\"type\":\"string\",\"format\":\"date-time\"}", ",",
      "}}", 5000, false },
    { SCHEMA, "{\"type\":\"string\",\"allOf\":[", "{\"pattern\":\"^\\\\p{L}{%d}\\\\p{Lu}\"}", ",", "]}", 200, false },
    { REGEX, "", "word%dx", "|", "", 50000, false },
    { REGEX, "(", "w.*%dx", "|", ")+y", 5000, false },
    { REGEX, "", "(", "", "a", 100, true },
    { REGEX, "", "((a{1000}){1000}){1000}", "", "", 100, false },
    { REGEX, "", "(a?){1000}", "", "b", 1000, false },
    { REGEX, "", "(?=.*[a-c]{%d}d)", "", ".*", 30, false },
    { REGEX, "", ".*", "", "a", 20000, false },
    { REGEX, "", "(^a|b$)", "", "", 500, true },
    { REGEX, "", ".", "", "", 500000, true },
    { GBNF, "root ::= ", "\"w%d\"", " | ", "", 9000, false },
    { GBNF, "root ::= ", "(", "", "\"a\"", 100, true },
    { GBNF, "root ::= r1\n", "r%d ::= \"a\" r%d1 | \"b\"", "\n", "", 9000, true },
    { GBNF, "root ::= ", "((\"a\"{1000}){1000}){1000}", " ", "", 500, false },
    { GBNF, "root ::= ", "[\\U00004e00-\\U00009fff]{%d}", " ", "", 1000, false },
};
enum { N_BOMBS = sizeof bombs / sizeof *bombs };

static void test_bombs(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_BOMBS; i++) {
        const struct bomb *b = &bombs[i];
        char why[400] = "";
        struct asking asking = { 0 };
        struct grammar *g = NULL;
        char *text = many(b->open, b->each, b->comma, b->close, b->n);
        const wk_status status = compile(b->kind, text, &asking, &g, why, sizeof why);
        if (!status != !b->refused) fail_msg("number %zu, %.40s: %s", i, text, status ? why : "is not refused");
        assert_true(status == WK_OK || status == WK_INVALID || status == WK_UNSUPPORTED);
        /* One question for some ten thousand steps: their number is what bounds them. */
        assert_in_range(asking.asked, 0, LANG_MAX_STEPS / 40000);
        if (g) {
            struct grammar_figures figures;
            grammar_figures(g, &figures);
            assert_in_range(figures.bytes, 1, GRAMMAR_MAX_BYTES);
        }
        grammar_close(g);
        free(text);
    }
}

/* n alternatives of arrays in n alternatives of arrays: n times n ways of reading "[[". */
static char *nested_arrays(unsigned n)
{
    char inner[256], *all = many("{\"anyOf\":[",
                                 "{\"items\":{\"type\":\"string\",\"pattern\":\"^a%d\"},"
                                 "\"type\":\"array\"}",
                                 ",", "]}", n);
    char *each = malloc(strlen(all) + sizeof inner);
    assert_non_null(each);
    (void)sprintf(each, "{\"type\":\"array\",\"maxItems\":1%%d,\"items\":%s}", all);
    char *whole = many("{\"anyOf\":[", each, ",", "]}", n);
    free(each);
    free(all);
    return whole;
}

/* The same of objects that a first member tells apart: one way at a time goes on. */
static char *nested_kinds(unsigned n)
{
    char *all = many("{\"anyOf\":[",
                     "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"k%d\"},\"of\":{\"type\":\"null\"}},"
                     "\"required\":[\"kind\"],\"additionalProperties\":false}",
                     ",", "]}", n);
    char *each = malloc(strlen(all) + 256);
    assert_non_null(each);
    (void)sprintf(each,
                  "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"k%%d\"},\"of\":%s},"
                  "\"required\":[\"kind\"],\"additionalProperties\":false}",
                  all);
    char *whole = many("{\"anyOf\":[", each, ",", "]}", n);
    free(each);
    free(all);
    return whole;
}

/* What needs more stacks than are followed is refused; what only looks like it is not. */
static void test_ambiguous(void **state)
{
    (void)state;
    static const struct {
        char *(*make)(unsigned n);
        unsigned n;
        bool refused;
    } cases[] = { { nested_arrays, 40, true },
                  { nested_arrays, 9, true },
                  { nested_arrays, 8, false },
                  { nested_kinds, 30, false } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[400] = "", *text = cases[i].make(cases[i].n);
        struct asking asking = { 0 };
        struct grammar *g = NULL;
        const wk_status status = compile(SCHEMA, text, &asking, &g, why, sizeof why);
        if (status != (cases[i].refused ? WK_UNSUPPORTED : WK_OK)) fail_msg("number %zu: %s", i, why);
        if (status && !strstr(why, "too ambiguous")) fail_msg("%s", why);
        grammar_close(g);
        free(text);
    }
}

/* Whenever it is told to stop, each front end does. */
static void test_stop(void **state)
{
    (void)state;
    static const struct bomb slow[] = {
        { SCHEMA, "{\"oneOf\":[", "{\"type\":\"string\",\"pattern\":\"x%d\"}", ",", "]}", 30, false },
        { SCHEMA, "{\"type\":\"object\",\"properties\":{", "\"p%d\":{\"pattern\":\"^h.*%d$\"}", ",", "}}", 1000,
          false },
        { REGEX, "", "word%dx|w.*%d", "|", "", 2000, false },
        { GBNF, "root ::= ", "\"w%d\"", " | ", "", 60000, false },
    };
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        const struct bomb *b = &slow[i];
        char *text = many(b->open, b->each, b->comma, b->close, b->n);
        struct asking whole = { 0 };
        char why[400] = "";
        struct grammar *g = NULL;
        if (compile(b->kind, text, &whole, &g, why, sizeof why)) fail_msg("%s", why);
        grammar_close(g);
        assert_in_range(whole.asked, 1, 1000);
        for (uint64_t at = 1; at <= whole.asked; at++) {
            struct asking asking = { .stop_at = at };
            g = NULL;
            assert_int_equal(compile(b->kind, text, &asking, &g, why, sizeof why), WK_CANCELLED);
            assert_null(g);
            assert_int_equal(asking.asked, at); /* and nothing is asked, or done, after that */
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bombs), cmocka_unit_test(test_ambiguous),
                                        cmocka_unit_test(test_stop) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
