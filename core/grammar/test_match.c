/* test_match.c: what grammars take and refuse, byte by byte: GBNF against PCRE2 and by hand, JSON nodes by hand. */
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
#include "grammar/grammar_internal.h"
#include "test_data.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

/* How many bytes of the text can follow each other; *complete: the text may end there. */
static size_t follow(struct grammar *g, const char *word, size_t n, bool *complete)
{
    struct grammar_match *m;
    size_t taken;
    assert_int_equal(grammar_match_open(g, NULL, &m, &err), WK_OK);
    const wk_status status = grammar_match_push(m, word, n, &taken, &err);
    *complete = grammar_match_complete(m);
    grammar_match_close(m);
    assert_int_equal(status, taken == n ? WK_OK : WK_INVALID);
    return taken;
}

/* at: SIZE_MAX: all of the word is taken, and is complete; its length: all is taken, but it is not complete. */
static void expect(struct grammar *g, const char *word, size_t at)
{
    bool complete;
    const size_t n = strlen(word), taken = follow(g, word, n, &complete);
    const bool all = taken == n && complete;
    if (at == SIZE_MAX ? !all : all || taken != at) fail_msg("'%s': taken %zu, complete %d", word, taken, complete);
}
#define WHOLE SIZE_MAX

static struct grammar *gbnf(const char *source)
{
    struct grammar *g;
    if (grammar_from_gbnf(source, strlen(source), NULL, NULL, &g, &err)) fail_msg("%s\n%s", source, text);
    return g;
}

/* ---- GBNF ----------------------------------------------------------------------------------------------------- */

static void test_notation(void **state)
{
    (void)state;
    static const struct {
        const char *source, *word;
        size_t at;
    } cases[] = {
        { "root ::= \"ab\" # comment\n", "ab", WHOLE },
        { "root ::= \"ab\"", "a", 1 },
        { "root ::= \"ab\"", "ax", 1 },
        { "root ::= \"\"", "", WHOLE },
        { "root ::= \"a\" | \"b\" |\n  \"c\"", "c", WHOLE },
        { "root ::= (\n  \"a\"\n  \"b\"\n)+\n", "abab", WHOLE },
        { "root ::= x-y_1+\nx-y_1 ::= [a-c]", "abc", WHOLE },
        { "root ::=\n  \"a\"", "a", WHOLE },
        { "root ::= [^a-c\\n\\]]{2}", "de", WHOLE },
        { "root ::= [^a-c\\n\\]]{2}", "d]", 1 },
        { "root ::= \"a\"{2,3}", "aaaa", 3 },
        { "root ::= \"a\"{,2} \"b\"", "aab", WHOLE },
        { "root ::= \"a\" {2,} \"b\"", "ab", 1 },
        { "root ::= \"ab\"*", "aba", 3 },
        { "root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\\t\"", "A\xc3\xa9\xf0\x9f\x98\x80\"\\\t", WHOLE },
        { "root ::= . .",
          "\xf0\x9f\x98\x80"
          "a",
          WHOLE },
        { "root ::= [\xe3\x81\x81-\xe3\x82\x9f]+", "\xe3\x81\x82\xe3\x82", 5 },
        { "root ::= [\xe3\x81\x81-\xe3\x82\x9f]+", "\xe3\x83", 1 },
        { "root ::= [-+*/]", "-", WHOLE },
        { "root ::= \"(\" root \")\" | \"x\"", "((x))", WHOLE },
        { "root ::= \"(\" root \")\" | \"x\"", "((x)))", 5 },
        { "root ::= a b\na ::= \"x\"?\nb ::= \"x\"?", "xx", WHOLE },
        { "root ::= a* \"y\"\na ::= b?\nb ::= \"x\"", "xxxy", WHOLE },
        { "root ::= a{3} \"y\"\na ::= b?\nb ::= \"x\"", "y", WHOLE },
        { "root ::= a{3} \"y\"\na ::= b?\nb ::= \"x\"", "xxxxy", 3 },
        { "root ::= b{3} \"y\"\nb ::= \"x\"", "xxy", 2 },
        { "root ::= b{0,2}\nb ::= c c\nc ::= \"x\" | \"y\"", "xyx", 3 },
        { "root ::= (b | c)* \"!\"\nb ::= \"ab\"\nc ::= \"a\" | \"b\"", "abaab!", WHOLE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = gbnf(cases[i].source);
        expect(g, cases[i].word, cases[i].at);
        grammar_close(g);
    }
}

static void test_refused_notation(void **state)
{
    (void)state;
    static const struct {
        const char *source, *says;
    } cases[] = {
        { "", "line 1, column 1: there is no rule \"root\"" },
        { "roots ::= \"a\"", "no rule \"root\"" },
        { "root ::= \"a\"\n  | b", "line 2, column 3: expected the name" },
        { "root ::= b", "line 1, column 10: rule \"b\" is not defined" },
        { "root ::= \"a", "line 1, column 10: the literal has no closing quote" },
        { "root ::= [a", "the class has no ]" },
        { "root ::= [b-a]", "column 11: a range ends before it begins" },
        { "root ::= (\"a\"", "expected ) for the (" },
        { "root ::= \"a\")", "column 13: a ) without its (" },
        { "root ::= *", "nothing to repeat" },
        { "root ::= \"a\"{3,2}", "least count" },
        { "root ::= \"a\"{x}", "expected a number" },
        { "root ::= \"a\"{9999999}", "larger than 1,048,576" },
        { "root = \"a\"", "expected ::=" },
        { "root ::= \"\\q\"", "escape that is not known" },
        { "root ::= \"\\ud800\"", "no Unicode character" },
        { "root ::= \"\\x4\"", "expected 2 hexadecimal" },
        { "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule \"root\" is defined twice" },
        { "root ::= \"x\" a\na ::= a \"y\" | \"z\"", "line 2, column 1: rule \"a\" refers to itself at its left end" },
        { "root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a \"z\" | \"y\"", "left recursion" },
        { "root ::= a*\na ::= a?", "left recursion" },
        { "root ::= \"x\" root", "no text fits" },
        { "root ::= [] \"a\"", "no text fits" },
        { "root ::= <think>", "only where a model is given" },
        { "root ::= <[x]>", "is no token's id" },
        { "root ::= !\"a\"", "expected <token>" },
        { "root ::= \xff", "expected a literal" },
        { "root ::= \"\xff\"", "not UTF-8" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g;
        const wk_status status = grammar_from_gbnf(cases[i].source, strlen(cases[i].source), NULL, NULL, &g, &err);
        if (status == WK_OK || !strstr(text, cases[i].says)) fail_msg("%s: %d '%s'", cases[i].source, status, text);
        assert_null(g);
    }
    char deep[1000] = "root ::= ";
    memset(deep + 9, '(', 100);
    struct grammar *g;
    assert_int_equal(grammar_from_gbnf(deep, 109, NULL, NULL, &g, &err), WK_UNSUPPORTED);
    assert_non_null(strstr(text, "64 levels"));
}

/* A random grammar of non-recursive rules, and the same as a pattern for PCRE2. */
struct made {
    char text[4096];
    size_t n;
};
static void add(struct made *m, const char *piece)
{
    const size_t len = strlen(piece);
    assert_true(m->n + len < sizeof m->text);
    memcpy(m->text + m->n, piece, len + 1);
    m->n += len;
}

static void make_parts(struct made *g, struct made *re, int levels, const struct made *patterns, int n_rules)
{
    static const char *const atoms[][2] = { { "\"a\"", "a" },     { "\"ab\"", "ab" }, { "[ab]", "[ab]" },
                                            { "[^a]", "[^a]" },   { "\"b\"", "b" },   { "\"\xc3\xa9\"", "\xc3\xa9" },
                                            { "[b-c]", "[b-c]" }, { ".", "(?s:.)" },  { "\"\"", "" } };
    static const char *const counts[] = { "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}" };
    for (uint32_t parts = 1 + draw(3), i = 0; i < parts; i++) {
        if (i) add(g, " ");
        add(re, "(?:");
        if (levels && !draw(3)) {
            add(g, "(");
            make_parts(g, re, levels - 1, patterns, n_rules);
            if (draw(2)) {
                add(g, " | ");
                add(re, "|");
                make_parts(g, re, levels - 1, patterns, n_rules);
            }
            add(g, ")");
        } else if (n_rules && draw(2)) {
            const uint32_t r = draw((uint32_t)n_rules);
            const char name[] = { 'r', (char)('0' + r), '\0' };
            add(g, name);
            add(re, patterns[r].text);
        } else {
            const uint32_t k = draw(9);
            add(g, atoms[k][0]);
            add(re, atoms[k][1]);
        }
        add(re, ")");
        if (draw(3) == 0) {
            const char *count = counts[draw(7)];
            add(g, count);
            add(re, count);
        }
    }
}

/* 2: the whole word matches; 1: it begins something that does; 0: neither; -1: PCRE2 gave up. */
static int pcre_follows(const pcre2_code *code, const char *word, size_t n)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    int found = pcre2_match(code, (PCRE2_SPTR)word, n, 0, 0, data, NULL);
    int result = found > 0 ? 2 : found == PCRE2_ERROR_NOMATCH ? 0 : -1;
    if (!result) {
        found = pcre2_match(code, (PCRE2_SPTR)word, n, 0, PCRE2_PARTIAL_HARD, data, NULL);
        result = found == PCRE2_ERROR_PARTIAL ? 1 : found == PCRE2_ERROR_NOMATCH ? 0 : -1;
    }
    pcre2_match_data_free(data);
    return result;
}

static void test_against_pcre(void **state)
{
    (void)state;
    static const char *const letters[] = { "a", "b", "c", "\xc3\xa9", "\xe6\x97\xa5" };
    int compared = 0, given_up = 0, refused = 0;
    for (int trial = 0; trial < 1500; trial++) {
        static struct made source, patterns[4], full;
        struct grammar *g;
        source.n = 0;
        for (int r = 0; r < 4; r++) {
            const char head[] = { 'r', (char)('0' + r), '\0' };
            patterns[r].n = 0;
            patterns[r].text[0] = '\0';
            add(&source, r == 3 ? "root" : head);
            add(&source, " ::= ");
            make_parts(&source, &patterns[r], 1, patterns, r);
            add(&source, "\n");
            if (patterns[r].n > 800) break;
        }
        if (!strstr(source.text, "root")) continue;
        const wk_status status = grammar_from_gbnf(source.text, source.n, NULL, NULL, &g, &err);
        if (status) {
            if (!strstr(text, "too ambiguous")) fail_msg("%s\n%s", source.text, text);
            refused++;
            continue;
        }
        full.n = 0;
        add(&full, "\\A(?:");
        add(&full, patterns[3].text);
        add(&full, ")\\z");
        int code_error;
        PCRE2_SIZE offset;
        pcre2_code *code =
            pcre2_compile((PCRE2_SPTR)full.text, full.n,
                          PCRE2_UTF | PCRE2_NO_AUTO_POSSESS | PCRE2_NO_START_OPTIMIZE | PCRE2_NO_DOTSTAR_ANCHOR,
                          &code_error, &offset, NULL);
        assert_non_null(code);
        for (int k = 0; k < 6; k++) {
            struct made word = { .n = 0 };
            word.text[0] = '\0';
            for (uint32_t n = draw(7); n--;) {
                add(&word, letters[draw(5)]);
                bool complete;
                const size_t bytes = follow(g, word.text, word.n, &complete);
                const bool taken = bytes == word.n;
                const int expected = pcre_follows(code, word.text, word.n);
                /* Where there are too many ways of reading, fewer texts are taken; never others. */
                const bool fewer = g->over_limit && (!taken || (expected == 2 && !complete));
                given_up += expected < 0 || fewer;
                if (expected < 0 || fewer) break;
                compared++;
                if (taken != (expected > 0) || (taken && complete != (expected == 2)))
                    fail_msg("%s'%s': taken %d, complete %d, expected %d\n%s", source.text, word.text, taken, complete,
                             expected, full.text);
            }
        }
        pcre2_code_free(code);
        grammar_close(g);
    }
    assert_true(compared > 10000 && given_up < compared / 10 && refused < 300);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static struct grammar *sealed(struct grammar *g, node_id root)
{
    if (grammar_seal(g, root, &err)) fail_msg("%s", text);
    return g;
}

static struct grammar *opened(void)
{
    struct grammar *g;
    assert_int_equal(grammar_open(NULL, &g, &err), WK_OK);
    return g;
}

static void test_json(void **state)
{
    (void)state;
    struct grammar *g = opened();
    (void)sealed(g, node_json(g));
    static const char *const whole[] = { "{}",
                                         "[]",
                                         "0",
                                         "-1.5e+3",
                                         "true",
                                         "null",
                                         "\"\"",
                                         "\"a\\n\\u00e9\\ud83d\\ude00\xc3\xa9\\/\"",
                                         "[1,2, [3] , {}]",
                                         "{\"a\":1,\"b\" : [ ]}",
                                         "{\n  \"a\": {\n    \"b\": null\n  }\n}",
                                         "[[[[[[]]]]]]",
                                         "{\"\":\"\"}" };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) expect(g, whole[i], WHOLE);
    static const struct {
        const char *word;
        size_t at;
    } broken[] = { { " {}", 0 },
                   { "{} ", 2 },
                   { "[1,]", 3 },
                   { "{,", 1 },
                   { "{\"a\"}", 4 },
                   { "tru", 3 },
                   { "01", 1 },
                   { "\"\x01\"", 1 },
                   { "\"\\x\"", 2 },
                   { "\"\\ud83d\"", 7 },
                   { "\"\\ud83dx", 7 },
                   { "\"\\udc00", 4 },
                   { "\"\\ud83d\\u0041", 9 },
                   { "[\n\n]", 2 },
                   { "\"\xff", 1 },
                   { "\"\xc3", 2 },
                   { "\"\xed\xa0", 2 },
                   { "\"\xc0", 1 },
                   { "\"\xf4\x90", 2 },
                   { "1.", 2 },
                   { "[                     ]", 21 } };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) expect(g, broken[i].word, broken[i].at);
    char deep[20001];
    memset(deep, '[', 10000);
    memset(deep + 10000, ']', 10000);
    deep[20000] = '\0';
    expect(g, deep, WHOLE);
    grammar_close(g);
    assert_int_equal(grammar_from_json_object(&g, &err), WK_OK);
    expect(g, "{\"a\":[]}", WHOLE);
    expect(g, "[", 0);
    grammar_close(g);
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *pattern; /* NULL: any content */
        uint32_t min, max;
        const char *word;
        size_t at;
    } cases[] = {
        { NULL, 2, 3, "\"a\"", 2 },
        { NULL, 2, 3, "\"\\u0061\xc3\xa9\"", WHOLE },
        { NULL, 2, 3,
          "\"\\ud83d\\ude00\xf0\x9f\x98\x80"
          "a\"",
          WHOLE },
        { NULL, 2, 3, "\"abcd", 4 },
        { NULL, 2, 3, "\"abc\\", 4 },
        { NULL, 0, 0, "\"\"", WHOLE },
        { "[a-z]+", 0, NODE_UNBOUNDED, "\"ab\"", WHOLE },
        { "[a-z]+", 0, NODE_UNBOUNDED, "\"\\u0061\\u007A\"", WHOLE },
        { "[a-z]+", 0, NODE_UNBOUNDED, "\"\\u1", 3 },
        { "[a-z]+", 0, NODE_UNBOUNDED, "\"\\u004", 5 },
        { "[a-z]+", 0, NODE_UNBOUNDED, "\"\\n", 2 },
        { "[a-z]+", 0, NODE_UNBOUNDED, "\"\"", 1 },
        { "(ab)+", 0, 5, "\"abababab", 5 },
        { "\\ud83d\\ude00", 0, NODE_UNBOUNDED, "\"\\ud83d\\ude00\"", WHOLE },
        { "\\ud83d\\ude00", 0, NODE_UNBOUNDED, "\"\\ud83e", 6 },
        { "\\ud83d\\ude00", 0, NODE_UNBOUNDED, "\"\\ud83d\\ude0f", 12 },
        { "\\ud83d\\ude00", 0, NODE_UNBOUNDED, "\"\\uda", 4 },
        { "\"\\\\", 0, NODE_UNBOUNDED, "\"\\\"\\\\\"", WHOLE },
        { "a\\u20ac", 0, NODE_UNBOUNDED, "\"a\xe2\x82\xac\"", WHOLE },
        { "a\\u20ac", 0, NODE_UNBOUNDED, "\"a\xe2\x83", 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = opened();
        lang_id content = LANG_EVERYTHING;
        wk_status status;
        if (cases[i].pattern)
            content =
                lang_regex(grammar_langs(g), cases[i].pattern, strlen(cases[i].pattern), LANG_WHOLE, &status, &err);
        (void)sealed(g, node_string(g, content, cases[i].min, cases[i].max));
        expect(g, cases[i].word, cases[i].at);
        grammar_close(g);
    }
}

/* Properties b?, a, c?, a quote and a newline as a name; further ones begin with x and are numbers. */
static node_id example(struct grammar *g, uint32_t min, uint32_t max)
{
    wk_status status;
    struct langs *x = grammar_langs(g);
    const struct lang_number digits = { .min = "0", .max = "9", .integer = true };
    const node_id number = node_text(g, lang_number(x, &digits, &status, &err));
    const struct node_property properties[] = { { "b", 1, number, false },
                                                { "ab", 2, number, true },
                                                { "c", 1, node_literal(g, "null", 4), false },
                                                { "\"\n", 2, number, false },
                                                { "never", 5, NODE_NOTHING, false } };
    const struct node_family families[] = { { lang_regex(x, "^x", 2, LANG_SEARCH, &status, &err), number } };
    const struct node_object object = { properties, 5, families, 1, min, max };
    return node_object(g, &object);
}

static void test_objects(void **state)
{
    (void)state;
    static const struct {
        uint32_t min, max;
        const char *word;
        size_t at;
    } cases[] = {
        { 0, NODE_UNBOUNDED, "{\"ab\":1}", WHOLE },
        { 0, NODE_UNBOUNDED, "{}", 1 },
        { 0, NODE_UNBOUNDED, "{\"b\":1,\"ab\":2,\"c\":null,\"\\\"\\n\":3,\"x\":4,\"xy\":5}", WHOLE },
        { 0, NODE_UNBOUNDED, "{\"ab\":1,\"b\"", 9 },
        { 0, NODE_UNBOUNDED, "{\"c\"", 2 },
        { 0, NODE_UNBOUNDED, "{\"x\"", 2 },
        { 0, NODE_UNBOUNDED, "{\"a\"", 3 },
        { 0, NODE_UNBOUNDED, "{\"\\u0061b\":1}", WHOLE },
        { 0, NODE_UNBOUNDED, "{\"ab\":1,\"never", 9 },
        { 0, NODE_UNBOUNDED, "{\"ab\":1,\"c\":1", 12 },
        { 0, NODE_UNBOUNDED, "{\"ab\":1,\"x\":null", 12 },
        { 0, NODE_UNBOUNDED, "{\"ab\" :\n1 , \"\\u0022\\u000a\": 2 }", WHOLE },
        { 0, 2, "{\"b\":1,\"ab\":2}", WHOLE },
        { 0, 2, "{\"b\":1,\"ab\":2,", 13 },
        { 0, 1, "{\"b\"", 2 },
        { 3, 3, "{\"ab\":1,\"x\":2}", 13 },
        { 3, 3, "{\"ab\":1,\"x\":2,\"y", 15 },
        { 3, 3, "{\"ab\":1,\"x\":2,\"xx\":2}", WHOLE },
        { 3, 3, "{\"ab\":1,\"x\":2,\"x\":2}", 16 }, /* the same name does not count twice */
        { 3, NODE_UNBOUNDED, "{\"ab\":1,\"xy\":2,\"x\":2,\"\\u0078y\":2}", 29 },
        { 3, NODE_UNBOUNDED, "{\"ab\":1,\"xy\":2,\"x\":2,\"xyx\":2}", WHOLE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = opened();
        (void)sealed(g, example(g, cases[i].min, cases[i].max));
        expect(g, cases[i].word, cases[i].at);
        grammar_close(g);
    }
}

static void test_arrays(void **state)
{
    (void)state;
    static const struct {
        uint32_t min, max;
        bool rest;
        const char *word;
        size_t at;
    } cases[] = {
        { 0, NODE_UNBOUNDED, true, "[]", WHOLE },
        { 0, NODE_UNBOUNDED, true, "[1,null,2,2]", WHOLE },
        { 0, NODE_UNBOUNDED, true, "[null", 1 },
        { 0, NODE_UNBOUNDED, true, "[1,2", 3 },
        { 0, NODE_UNBOUNDED, false, "[1,null,", 7 },
        { 0, NODE_UNBOUNDED, false, "[1,null]", WHOLE },
        { 3, 4, true, "[1,null]", 7 },
        { 3, 4, true, "[1,null,2,2,", 11 },
        { 3, 4, true, "[ 1 , null , 2 ]", WHOLE },
        { 0, 1, true, "[1,", 2 },
        { 0, 0, true, "[1", 1 },
        { 0, 0, true, "[ ]", WHOLE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = opened();
        const node_id prefix[] = { node_literal(g, "1", 1), node_literal(g, "null", 4) };
        const node_id two = node_literal(g, "2", 1);
        const struct node_array array = { prefix,       2,    cases[i].rest ? two : NODE_NOTHING, cases[i].min,
                                          cases[i].max, false };
        (void)sealed(g, node_array(g, &array));
        expect(g, cases[i].word, cases[i].at);
        grammar_close(g);
    }
}

static void test_space(void **state)
{
    (void)state;
    static const struct {
        struct grammar_space space;
        const char *word;
        size_t at;
    } cases[] = { { { 0, 0 }, "[1,null]", WHOLE },
                  { { 0, 0 }, "[ ", 1 },
                  { { 2, 2 }, "[\n\n1]", WHOLE },
                  { { 2, 0 }, "[\n", 1 },
                  { { 2, 0 }, "[   ", 3 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = opened();
        grammar_set_space(g, &cases[i].space);
        (void)sealed(g, node_json(g));
        expect(g, cases[i].word, cases[i].at);
        grammar_close(g);
    }
}

/* What no text can fulfil is refused or taken out. */
static void test_unsatisfiable(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        struct grammar *g = opened();
        const node_id one = node_literal(g, "1", 1), rule = node_rule(g, "r", 1);
        const struct node_property gone = { "a", 1, NODE_NOTHING, true }, self = { "a", 1, rule, true };
        const struct node_property maybe = { "a", 1, rule, false };
        const struct node_object with_gone = { .properties = &gone, .n_properties = 1, .max = 5 };
        const struct node_object endless = { .properties = &self, .n_properties = 1, .max = 5 };
        const struct node_object fine = { .properties = &maybe, .n_properties = 1, .max = 5 };
        const struct node_object few = { .properties = &maybe, .n_properties = 1, .min = 2, .max = 5 };
        const struct node_array short_one = { .prefix = &one, .n_prefix = 1, .rest = NODE_NOTHING, .min = 2, .max = 5 };
        const node_id parts[] = { one, NODE_NOTHING };
        node_id body = NODE_NONE;
        switch (i) {
        case 0: body = node_object(g, &with_gone); break;
        case 1: body = node_object(g, &endless); break;
        case 2: body = node_object(g, &few); break;
        case 3: body = node_array(g, &short_one); break;
        case 4: body = node_sequence(g, parts, 2); break;
        case 5: body = node_string(g, LANG_NOTHING, 0, 5); break;
        case 6: body = node_any_of(g, NULL, 0); break;
        case 7: body = node_any_of(g, parts, 2); break;
        default: body = node_object(g, &fine); break;
        }
        node_define(g, rule, body);
        const wk_status status = grammar_seal(g, rule, &err);
        assert_int_equal(status, i < 7 ? WK_INVALID : WK_OK);
        if (i < 7) assert_non_null(strstr(text, "no text fits"));
        if (i == 8) expect(g, "{\"a\":{}}", WHOLE);
        grammar_close(g);
    }
}

static void test_sticking(void **state)
{
    (void)state;
    struct grammar *g = opened();
    assert_int_equal(node_literal(g, "\xff", 1), NODE_NONE);
    const node_id parts[] = { node_literal(g, "a", 1), NODE_NONE };
    assert_int_equal(node_sequence(g, parts, 2), NODE_NONE);
    assert_int_equal(grammar_seal(g, NODE_EMPTY, &err), WK_INVALID);
    assert_non_null(strstr(text, "not UTF-8"));
    grammar_close(g);
    g = opened();
    const node_id rule = node_rule(g, "tree", 4);
    assert_int_equal(grammar_seal(g, rule, &err), WK_INVALID);
    assert_non_null(strstr(text, "\"tree\" is not defined"));
    grammar_close(g);
    g = opened();
    const node_id a = node_literal(g, "a", 1);
    for (int i = 0; i < GRAMMAR_MAX_NODES + 5; i++) (void)node_repeat(g, a, 2, 5);
    assert_int_equal(grammar_seal(g, a, &err), WK_UNSUPPORTED);
    assert_non_null(strstr(text, "20000 nodes"));
    grammar_close(g);
    g = opened();
    const struct node_property twice[] = { { "a", 1, NODE_EMPTY, false }, { "a", 1, NODE_EMPTY, false } };
    const struct node_object object = { .properties = twice, .n_properties = 2, .max = 5 };
    assert_int_equal(node_object(g, &object), NODE_NONE);
    assert_int_equal(grammar_seal(g, NODE_EMPTY, &err), WK_INVALID);
    assert_non_null(strstr(text, "twice"));
    grammar_close(g);
}

/* Frames that no position needs are taken back, whatever is pushed. */
static void test_long_text(void **state)
{
    (void)state;
    struct grammar *g = gbnf("root ::= (a | b)*\na ::= \"(\" root \")\"\nb ::= \"[\" root \"]\" \";\"?");
    struct grammar_match *m, *clone;
    char open[64];
    assert_int_equal(grammar_match_open(g, NULL, &m, &err), WK_OK);
    size_t depth = 0;
    static char stack[4000];
    for (int i = 0; i < 300000; i++) {
        const bool close = depth && (depth == sizeof stack || draw(2));
        open[0] = close ? (stack[depth - 1] == '(' ? ')' : ']') : draw(2) ? '(' : '[';
        assert_int_equal(grammar_match_push(m, open, 1, NULL, &err), WK_OK);
        if (close)
            depth--;
        else
            stack[depth++] = open[0];
        if (i % 1000 == 0) {
            assert_int_equal(grammar_match_clone(m, &clone, &err), WK_OK);
            grammar_match_close(m);
            m = clone;
        }
    }
    assert_int_equal(grammar_match_complete(m), depth == 0);
    struct grammar_figures f;
    grammar_figures(g, &f);
    assert_true(f.frames < 60000 && f.bytes < 8 << 20);
    grammar_match_close(m);
    grammar_close(g);
}

/* What needs more stacks than are followed within a few characters is refused. */
static void refused_as_ambiguous(const char *source)
{
    struct grammar *g;
    assert_int_equal(grammar_from_gbnf(source, strlen(source), NULL, NULL, &g, &err), WK_UNSUPPORTED);
    if (!strstr(text, "too ambiguous")) fail_msg("%s: %s", source, text);
}

static void test_ambiguity(void **state)
{
    (void)state;
    refused_as_ambiguous("root ::= a{0,500} b\na ::= c{1,100}\nc ::= \"x\" | \"y\"\nb ::= \"z\"");
    refused_as_ambiguous("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"");
    /* By recursion alone: some of the ways are followed, and each of them can be ended. */
    struct grammar *g = gbnf("root ::= a\na ::= \"x\" a \"y\"? | \"z\"");
    struct grammar_match *m;
    assert_int_equal(grammar_match_open(g, NULL, &m, &err), WK_OK);
    for (int i = 0; i < 500; i++) assert_int_equal(grammar_match_push(m, "x", 1, NULL, &err), WK_OK);
    assert_int_equal(grammar_match_push(m, "z", 1, NULL, &err), WK_OK);
    for (int i = 0; i < 50; i++) {
        assert_true(grammar_match_complete(m));
        assert_int_equal(grammar_match_push(m, "y", 1, NULL, &err), WK_OK);
    }
    assert_true(grammar_match_complete(m));
    assert_int_equal(grammar_match_push(m, "x", 1, NULL, &err), WK_INVALID); /* never what is not in it */
    grammar_match_close(m);
    expect(g, "xxzyyy", 5);
    expect(g, "xxzyy", WHOLE);
    grammar_close(g);
}

/* ---- published grammars
 * ---------------------------------------------------------------------------------------------- */

static void data_samples(void **state)
{
    (void)state;
    static const struct {
        const char *file, *word;
        size_t at;
    } cases[] = {
        { "arithmetic", "x=(y*2)\n", WHOLE },
        { "arithmetic", "x=1+*", 3 },
        { "c", "int f(int x){return x;}", WHOLE },
        { "chess", "1. e4 e5\n2. Nf3 Nc6\n", WHOLE },
        { "chess", "1. e9", 4 },
        { "english", "Hello, world.", WHOLE },
        { "japanese", "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab", WHOLE },
        { "japanese", "abc", 0 },
        { "json", "{ \"a\":[1,2,{\"b\":\"x\\u00e9\"}]}", WHOLE },
        { "json_arr", "[\n1,\n2]", WHOLE },
        { "list", "- a\n- b\n", WHOLE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "schemas/gbnf/%s.gbnf", cases[i].file);
        char *source = data_read(name, NULL);
        struct grammar *g = gbnf(source);
        free(source);
        expect(g, cases[i].word, cases[i].at);
        grammar_close(g);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notation),      cmocka_unit_test(test_refused_notation),
        cmocka_unit_test(test_against_pcre),  cmocka_unit_test(test_json),
        cmocka_unit_test(test_strings),       cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),        cmocka_unit_test(test_space),
        cmocka_unit_test(test_unsatisfiable), cmocka_unit_test(test_sticking),
        cmocka_unit_test(test_long_text),     cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(data_samples),
    };
    choose_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
