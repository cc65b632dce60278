/* test_branch.c: many alternatives that begin alike read the same texts as a plain choice, and are not ambiguous. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/node.h"

static char text[256];
static const struct wk_err err = { text, sizeof text };

typedef node_id choice(struct grammar *g, const node_id *parts, size_t n);

static struct grammar *open_grammar(void)
{
    struct grammar *g;
    assert_int_equal(grammar_open(NULL, &g, &err), WK_OK);
    return g;
}

static struct grammar *seal(struct grammar *g, node_id root)
{
    if (grammar_seal(g, root, &err)) fail_msg("%s", text);
    return g;
}

/* Is the text read to its end, and may it end there? at: where it stopped. */
static bool reads(struct grammar *g, const char *said, size_t *at)
{
    struct grammar_match *m;
    assert_int_equal(grammar_match_open(g, NULL, &m, &err), WK_OK);
    const wk_status status = grammar_match_push(m, said, strlen(said), at, &err);
    if (status && status != WK_INVALID) fail_msg("%s", text);
    const bool whole = !status && grammar_match_complete(m);
    grammar_match_close(m);
    return whole;
}

static node_id literal(struct grammar *g, const char *t) { return node_literal(g, t, strlen(t)); }

/* A text whose parts stand in sequences of their own, cut at places that `cuts` tells. */
static node_id cut_literal(struct grammar *g, const char *t, unsigned cuts)
{
    node_id parts[3];
    const size_t n = strlen(t), one = n > 1 ? cuts % n : 0;
    parts[0] = node_literal(g, t, one);
    parts[1] = node_sequence(g, (const node_id[]){ node_literal(g, t + one, n - one), NODE_EMPTY }, 2);
    return node_sequence(g, parts, 2);
}

static void test_words(void **state)
{
    (void)state;
    enum { ROUNDS = 200, MOST = 40 };
    static choice *const choices[] = { node_any_of, node_branches };
    srand(7);
    for (int round = 0; round < ROUNDS; round++) {
        char words[MOST][8];
        struct grammar *g[2];
        const size_t n = 1 + (size_t)rand() % MOST;
        for (size_t i = 0; i < n; i++) {
            const size_t len = (size_t)rand() % 6;
            for (size_t k = 0; k < len; k++) words[i][k] = (char)('a' + rand() % 3);
            words[i][len] = '\0';
        }
        for (int which = 0; which < 2; which++) {
            node_id parts[MOST];
            g[which] = open_grammar();
            for (size_t i = 0; i < n; i++) parts[i] = cut_literal(g[which], words[i], (unsigned)(round + (int)i));
            const node_id all[] = { literal(g[which], "<"), choices[which](g[which], parts, n),
                                    literal(g[which], ">") };
            seal(g[which], node_sequence(g[which], all, 3));
        }
        for (size_t i = 0; i < n + 40; i++) {
            char said[16];
            size_t at[2] = { 0, 0 };
            if (i < n)
                (void)snprintf(said, sizeof said, "<%s>", words[i]);
            else
                (void)snprintf(said, sizeof said, "<%.*s%c>", rand() % 6, words[(size_t)rand() % n], 'a' + rand() % 3);
            const bool plain = reads(g[0], said, &at[0]), tree = reads(g[1], said, &at[1]);
            if (plain != tree || at[0] != at[1] || (i < n && !tree)) fail_msg("%s: %d %d", said, plain, tree);
        }
        grammar_close(g[0]);
        grammar_close(g[1]);
    }
}

/* More than there are stacks, of every kind of part: a text of a language, a value, characters of several bytes. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 1024 };
    static node_id parts[MANY];
    struct grammar *g = open_grammar();
    wk_status status = WK_OK;
    const lang_id digits = lang_regex(grammar_langs(g), "[0-9]{1,3}", 10, LANG_WHOLE, &status, NULL);
    size_t at;
    for (int i = 0; i < MANY; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "-\xC3\xA9\xE2\x82\xAC%d\": ", i);
        const node_id order[] = { literal(g, "call "), node_text(g, digits), literal(g, name), node_json_object(g),
                                  literal(g, " end") };
        parts[i] = node_sequence(g, order, 5);
    }
    seal(g, node_branches(g, parts, MANY));
    assert_true(reads(g,
                      "call 12-\xC3\xA9\xE2\x82\xAC"
                      "1023\": {\"x\": [1]} end",
                      &at));
    assert_true(reads(g,
                      "call 12-\xC3\xA9\xE2\x82\xAC"
                      "102\": {} end",
                      &at));
    assert_false(reads(g,
                       "call 12-\xC3\xA9\xE2\x82\xAC"
                       "1024\": {} end",
                       &at));
    assert_int_equal(at, 16);
    grammar_close(g);
}

/* A choice at the beginning of each is taken apart; one alternative, none, and one that reads nothing. */
static void test_shapes(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static node_id parts[MANY];
    struct grammar *g = open_grammar();
    size_t at;
    for (int i = 0; i < MANY; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%d", i);
        const node_id to = literal(g, name), kind = literal(g, "kind ");
        const node_id orders[] = { node_sequence(g, (const node_id[]){ kind, to }, 2),
                                   node_sequence(g, (const node_id[]){ to, kind }, 2) };
        parts[i] = node_sequence(g, (const node_id[]){ node_any_of(g, orders, 2), literal(g, "!") }, 2);
    }
    seal(g, node_branches(g, parts, MANY));
    assert_true(reads(g, "kind f99!", &at) && reads(g, "f7kind !", &at) && !reads(g, "f100kind !", &at));
    grammar_close(g);
    g = open_grammar();
    assert_int_equal(node_branches(g, NULL, 0), NODE_NOTHING);
    const node_id one = literal(g, "one"), both[] = { NODE_EMPTY, one, one };
    seal(g, node_sequence(g, (const node_id[]){ node_branches(g, &one, 1), node_branches(g, both, 3) }, 2));
    assert_true(reads(g, "one", &at) && reads(g, "oneone", &at) && !reads(g, "oneoneone", &at));
    grammar_close(g);
}

/* Each the beginning of the next: as deep as there are characters. */
static void test_deep(void **state)
{
    (void)state;
    enum { DEEP = 900 };
    static node_id parts[DEEP];
    static char said[DEEP + 2];
    struct grammar *g = open_grammar();
    size_t at;
    memset(said, 'a', DEEP);
    for (size_t i = 0; i < DEEP; i++) parts[i] = node_literal(g, said, i + 1);
    seal(g, node_branches(g, parts, 150));
    said[150] = '\0';
    assert_true(reads(g, said, &at));
    said[150] = 'a';
    said[151] = '\0';
    assert_false(reads(g, said, &at));
    assert_int_equal(at, 150);
    grammar_close(g);
    g = open_grammar();
    memset(said, 'a', DEEP);
    for (size_t i = 0; i < DEEP; i++) parts[i] = node_literal(g, said, i + 1);
    seal(g, node_branches(g, parts, DEEP)); /* the rest is a plain choice: it can be built */
    said[20] = '\0';
    assert_true(reads(g, said, &at));
    grammar_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_words), cmocka_unit_test(test_many),
                                        cmocka_unit_test(test_shapes), cmocka_unit_test(test_deep) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
