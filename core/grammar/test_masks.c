/* test_masks.c: masks against trying every token, on random vocabularies and grammars; and what an index refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "draw.h"
#include "grammar/grammar.h"
#include "grammar/node.h"
#include "vocab_builder.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };
static struct builder builder;

/* ---- vocabularies ------------------------------------------------------------------------------------------------ */

static bool has_token(const char *symbols, uint32_t len)
{
    for (uint32_t i = 0; i < builder.n; i++)
        if (builder.token[i].len == len && !memcmp(builder.token[i].text, symbols, len)) return true;
    return false;
}

/* A token of these bytes, spelt as byte-level vocabularies spell them. */
static void add_bytes(const char *bytes, size_t n)
{
    char symbols[64];
    uint32_t len = 0;
    for (size_t i = 0; i < n && len < 60; i++) {
        char symbol[3] = { 0 };
        vocab_put_symbol((unsigned char)bytes[i], symbol);
        const uint32_t more = (uint32_t)strlen(symbol);
        memcpy(symbols + len, symbol, more);
        len += more;
    }
    if (n && !has_token(symbols, len)) (void)builder_token_bytes(&builder, symbols, len, TOKEN_NORMAL, 0);
}

/* Pieces of what the grammars below are about, cut anywhere: also within characters. */
static void add_random_token(void)
{
    static const char pieces[] =
        "{\"name\": [true, false, null], \"id\":-12.50e+3}\\\"\\u00e9\\n\\ud83d\\ude00 "
        "\xc3\xa9\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80 abc the  end\n\t xyz0123456789 aaaaaaaaaaaaaaaaaaaaaaaa "
        "\",\"b\":\"}]}]},{\"a\":[[[\"\"]]]  (a)(b)((ab)) 1. e4 ab:ab;ab,ba";
    char bytes[32];
    size_t n = 0;
    for (uint32_t parts = 1 + draw(2); parts--;) {
        const uint32_t from = draw(sizeof pieces - 1), len = 1 + draw(draw(4) ? 4 : 14);
        for (uint32_t i = from; i < from + len && i < sizeof pieces - 1 && n < 25; i++) bytes[n++] = pieces[i];
    }
    add_bytes(bytes, n);
}

static struct tokenizer *random_tokenizer(uint32_t n)
{
    struct tokenizer *t;
    builder_bpe(&builder, "gpt-2");
    while (builder.n < n) add_random_token();
    (void)builder_token(&builder, "{\"", TOKEN_USER_DEFINED, 0); /* bytes that another token may have, too */
    (void)builder_token(&builder, " the", TOKEN_USER_DEFINED, 0);
    (void)builder_token(&builder, "<tool>", TOKEN_USER_DEFINED, 0); /* a mark: never by its text */
    (void)builder_token(&builder, "<think>", TOKEN_CONTROL, 0);
    (void)builder_token(&builder, "</think>", TOKEN_CONTROL, 0);
    builder_int(&builder, "tokenizer.ggml.eos_token_id", builder_token(&builder, "<|endoftext|>", TOKEN_CONTROL, 0));
    (void)builder_token(&builder, "<|im_end|>", TOKEN_CONTROL, 0); /* ends a text, too, by its name */
    if (builder_open(&builder, &t, &err)) fail_msg("%s", text);
    return t;
}

/* ---- grammars ------------------------------------------------------------------------------------------------------
 */

static const char *const sources[] = {
    "root ::= [a-z ]+ (\".\" | \"!\")",
    "root ::= .*",
    "root ::= [^\\n]{3,20} \"\\n\" root?",
    "root ::= \"(\" (root | [ab]*) \")\" | \"ab\" root",
    "root ::= w (\" \" w){0,40}\nw ::= [a-z]{1,3} | \"the\" | n\nn ::= [0-9]{1,12}",
    "root ::= [ab]{30} | \"a\"{0,7} \"b\"*",
    "root ::= (\"a\" | \"aa\" | x)* \"c\"\nx ::= \"aaa\" y\ny ::= \"b\" | \"a\" y | \"\"",
    "root ::= \"\xc3\xa9\" [\xe6\x97\xa5-\xe9\xbf\xbf]* | \"{\" (s \":\" root)* \"}\"\ns ::= \"\\\"\" [^\"]* \"\\\"\"",
    "root ::= <think> [^<]* </think> \"a\"+",
    "root ::= <think> !</think>* </think> [a-z]*",
};

/* *tokens: it names tokens by id. */
static struct grammar *random_grammar(const struct tokenizer *t, bool *tokens)
{
    struct grammar *g;
    wk_status status;
    const uint32_t kind = draw(16);
    *tokens = false;
    if (kind < sizeof sources / sizeof *sources) {
        *tokens = strstr(sources[kind], "<think>") != NULL;
        if (grammar_from_gbnf(sources[kind], strlen(sources[kind]), t, NULL, &g, &err)) fail_msg("%s", text);
        return g;
    }
    assert_int_equal(grammar_open(NULL, &g, &err), WK_OK);
    struct langs *x = grammar_langs(g);
    static const char *const patterns[] = { "^[a-z]+$",       "^(ab|the)*$", "a", "^.{2,9}$", "^\\u00e9|\\ud83d\\ude00",
                                            "^(?!ab)[abc ]+$" };
    const char *pattern = patterns[draw(6)];
    const uint32_t low = draw(4), high = low + draw(20);
    const struct lang_number bounds = { .min = draw(2) ? "-20" : NULL,
                                        .max = draw(2) ? "105.5" : NULL,
                                        .multiple_of = draw(2) ? "2.5" : NULL };
    const node_id values[] = {
        node_string(g, lang_regex(x, pattern, strlen(pattern), LANG_SEARCH, &status, &err), 0,
                    draw(2) ? 30 : NODE_UNBOUNDED),
        node_string(g, LANG_EVERYTHING, low, draw(2) ? high : NODE_UNBOUNDED),
        node_text(g, lang_number(x, &bounds, &status, &err)),
        node_json(g),
    };
    const struct node_property properties[] = { { "name", 4, values[draw(4)], draw(2) },
                                                { "id", 2, values[draw(4)], draw(2) },
                                                { "b", 1, values[draw(4)], draw(2) },
                                                { "a", 1, values[draw(4)], draw(2) } };
    static const struct lang_word names[] = { { "name", 4 }, { "id", 2 }, { "b", 1 }, { "a", 1 } };
    const struct node_family other = { lang_not(x, lang_words(x, names, 4)), values[draw(4)] };
    const struct node_object object = { properties, 4, &other, draw(2), draw(4), 4 + draw(3) };
    const node_id record = node_object(g, &object);
    const struct node_array array = {
        .prefix = values, .n_prefix = draw(3), .rest = record, .min = draw(3), .max = 2 + draw(30)
    };
    if (grammar_seal(g, draw(2) ? record : node_array(g, &array), &err)) fail_msg("%s", text);
    return g;
}

/* ---- masks
 * -------------------------------------------------------------------------------------------------------------- */

/* May this id come next, by its bytes and a match of its own? */
static bool may_follow(const struct grammar_match *m, uint32_t id)
{
    struct grammar_match *clone;
    assert_int_equal(grammar_match_clone(m, &clone, &err), WK_OK);
    const bool fits = grammar_match_accept(clone, id, &err) == WK_OK;
    grammar_match_close(clone);
    return fits;
}

/* The same by bytes alone, for ordinary tokens and those that end. */
static bool bytes_follow(const struct grammar_match *m, const struct tokenizer *t, uint32_t id)
{
    struct grammar_match *clone;
    assert_int_equal(grammar_match_clone(m, &clone, &err), WK_OK);
    bool fits = false;
    if (tokenizer_ends(t, id)) {
        fits = grammar_match_complete(clone);
    } else {
        const struct token_bytes b = tokenizer_piece(t, id, false);
        const bool mark = b.len > 2 && b.data[0] == '<' && b.data[b.len - 1] == '>';
        fits = b.len && !mark && grammar_match_push(clone, b.data, b.len, NULL, &err) == WK_OK;
    }
    grammar_match_close(clone);
    return fits;
}

static bool bit(const struct grammar_mask *mask, uint32_t id) { return mask->bits[id / 64] >> id % 64 & 1; }

static void check_mask(struct grammar_match *m, const struct tokenizer *t, const struct grammar_mask *mask,
                       uint32_t n_vocab, bool tokens)
{
    uint32_t allowed = 0;
    for (uint32_t id = 0; id < n_vocab; id++) {
        const bool expected = may_follow(m, id);
        if (!tokens && bytes_follow(m, t, id) != expected) fail_msg("id %u: by bytes %d", id, !expected);
        if (bit(mask, id) != expected) fail_msg("id %u: mask %d, expected %d", id, !expected, expected);
        allowed += expected;
    }
    assert_int_equal(allowed, mask->n_allowed);
}

static uint32_t any_allowed(const struct grammar_mask *mask, uint32_t n_vocab)
{
    uint32_t k = draw(mask->n_allowed);
    for (uint32_t id = 0; id < n_vocab; id++)
        if (bit(mask, id) && !k--) return id;
    fail_msg("fewer ids than said");
    return 0;
}

static void test_masks(void **state)
{
    (void)state;
    uint32_t steps = 0, ended = 0;
    for (int vocabulary = 0; vocabulary < 6; vocabulary++) {
        struct tokenizer *t = random_tokenizer(300 + draw(500));
        struct grammar_index *x;
        const uint32_t n_vocab = tokenizer_size(t) + draw(70); /* rows that no token has */
        if (grammar_index_open(t, n_vocab, &x, &err)) fail_msg("%s", text);
        for (int trial = 0; trial < 25; trial++) {
            bool tokens;
            struct grammar *g = random_grammar(t, &tokens);
            for (int walk = 0; walk < 2; walk++) {
                struct grammar_match *m;
                assert_int_equal(grammar_match_open(g, x, &m, &err), WK_OK);
                for (int i = 0; i < 12; i++, steps++) {
                    struct grammar_mask mask;
                    if (grammar_match_mask(m, &mask, &err)) fail_msg("%s", text);
                    check_mask(m, t, &mask, n_vocab, tokens);
                    const uint32_t id = any_allowed(&mask, n_vocab);
                    if (grammar_match_accept(m, id, &err)) fail_msg("%s", text);
                    if (tokenizer_ends(t, id)) {
                        assert_int_equal(grammar_match_mask(m, &mask, &err), WK_INVALID);
                        assert_true(grammar_match_complete(m));
                        ended++;
                        break;
                    }
                }
                grammar_match_close(m);
            }
            grammar_close(g);
        }
        grammar_index_close(x);
        tokenizer_close(t);
    }
    assert_true(steps > 1000 && ended > 10);
}

/* Tokens as large vocabularies have them: a mark before some letters, and an end behind them. */
static void add_word_token(void)
{
    static const char *const leads[] = { "", "", "", " ", ".", "-", "\"", "(\"", "  ", "\n", "@" };
    static const char *const letters[] = { "a", "b", "z", "Q", "7", "_", "\xc3\xa9", "\xe6\x97\xa5", " " };
    static const char *const ends[] = { "",    "",     "",   "",  "\"",   "\",", "\":",  "\"}",      "\\",
                                        "\\n", "\\u0", "\n", "@", ".com", "-",   "\"\n", "\xe6\x97", "\xe2\x80\xa8" };
    char bytes[64] = { 0 };
    const uint32_t kind = draw(sizeof letters / sizeof *letters + 4), n = draw(draw(8) ? 5 : 20);
    (void)strcat(bytes, leads[draw(sizeof leads / sizeof *leads)]);
    for (uint32_t i = 0; i < n; i++) /* often all of a kind, so that many tokens differ in length alone */
        (void)strcat(bytes, letters[kind < 3 ? draw(3) : kind - 3 < 9 && draw(4) ? kind - 3 : draw(9)]);
    (void)strcat(bytes, ends[draw(sizeof ends / sizeof *ends)]);
    add_bytes(bytes, strlen(bytes) < 29 ? strlen(bytes) : 29);
}

static struct tokenizer *word_tokenizer(uint32_t n, void (*add)(void))
{
    struct tokenizer *t;
    builder_bpe(&builder, "gpt-2");
    while (builder.n < n) add();
    builder_int(&builder, "tokenizer.ggml.eos_token_id", builder_token(&builder, "<|endoftext|>", TOKEN_CONTROL, 0));
    if (builder_open(&builder, &t, &err)) fail_msg("%s", text);
    return t;
}

static void check_walk(struct grammar *g, const struct grammar_index *x, const struct tokenizer *t, int steps)
{
    struct grammar_match *m;
    const uint32_t n_vocab = tokenizer_size(t);
    assert_int_equal(grammar_match_open(g, x, &m, &err), WK_OK);
    for (int i = 0; i < steps; i++) {
        struct grammar_mask mask;
        if (grammar_match_mask(m, &mask, &err)) fail_msg("%s", text);
        check_mask(m, t, &mask, n_vocab, false);
        const uint32_t id = any_allowed(&mask, n_vocab);
        if (grammar_match_accept(m, id, &err)) fail_msg("%s", text);
        if (tokenizer_ends(t, id)) break;
    }
    grammar_match_close(m);
}

/* Automata that let parts of slices pass, in strings and in texts: by all characters, some, a number of them, behind a
 * first byte; with and without an end in sight. */
static void test_slices(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "^[a-z]+$",           "^[A-Za-z]{2,9}$",
        "^\\w+(\\.\\w+)*$",   "^\\S+@\\S+$",
        "^[^0-9]*$",          "^.{2,20}$",
        "^[a-z@.-]{1,18}$",   "^[ab]{3}( [a-z]+)*$",
        "^(?!ab).*$",         "z",
        "^\\p{L}*$",          "^[^a@]*@?[^a]*$",
        "^([a-z]+-)*[a-z]+$", "^[\\u0080-\\uffff]{0,5}$",
        "^ ?[Q7_]{1,17}$",    "^\"?[a-z]\\\\*\\n?$",
    };
    struct tokenizer *t = word_tokenizer(1000, add_word_token);
    struct grammar_index *x;
    if (grammar_index_open(t, tokenizer_size(t), &x, &err)) fail_msg("%s", text);
    for (size_t i = 0; i < 2 * sizeof patterns / sizeof *patterns + 8; i++) {
        struct grammar *g;
        wk_status status = WK_OK;
        assert_int_equal(grammar_open(NULL, &g, &err), WK_OK);
        lang_id content = LANG_EVERYTHING;
        const char *pattern = i / 2 < sizeof patterns / sizeof *patterns ? patterns[i / 2] : NULL;
        if (pattern) content = lang_regex(grammar_langs(g), pattern, strlen(pattern), LANG_SEARCH, &status, &err);
        if (status) fail_msg("%s: %s", pattern, text);
        const uint32_t low = pattern ? 0 : draw(40), high = pattern ? NODE_UNBOUNDED : low + draw(40);
        const node_id value = i & 1 && pattern ? node_text(g, content) : node_string(g, content, low, high);
        const struct node_array array = { .rest = value, .min = 1, .max = 3 };
        if (grammar_seal(g, draw(2) ? value : node_array(g, &array), &err)) fail_msg("%s: %s", pattern, text);
        for (int walk = 0; walk < 2; walk++) check_walk(g, x, t, 5);
        grammar_close(g);
    }
    grammar_index_close(x);
    tokenizer_close(t);
}

static void add_name_token(void)
{
    char bytes[16];
    const uint32_t n = 7 + draw(6);
    for (uint32_t i = 0; i < n; i++) bytes[i] = (char)('a' + draw(26));
    bytes[n] = '"';
    add_bytes(bytes, n + 1);
}

/* Names that must not come twice are places of their own, each with its beginnings: more than a walk remembers. */
static void test_many_places(void **state)
{
    (void)state;
    struct tokenizer *t = word_tokenizer(1000, add_name_token);
    struct grammar_index *x;
    struct grammar *g;
    if (grammar_index_open(t, tokenizer_size(t), &x, &err)) fail_msg("%s", text);
    assert_int_equal(grammar_open(NULL, &g, &err), WK_OK);
    const struct node_family any = { LANG_EVERYTHING, node_literal(g, "1", 1) };
    const struct node_object object = { NULL, 0, &any, 1, 3, NODE_UNBOUNDED };
    if (grammar_seal(g, node_object(g, &object), &err)) fail_msg("%s", text);
    struct grammar_match *m;
    assert_int_equal(grammar_match_open(g, x, &m, &err), WK_OK);
    assert_int_equal(grammar_match_push(m, "{\"", 2, NULL, &err), WK_OK);
    struct grammar_mask mask;
    if (grammar_match_mask(m, &mask, &err)) fail_msg("%s", text);
    check_mask(m, t, &mask, tokenizer_size(t), false);
    grammar_match_close(m);
    check_walk(g, x, t, 8);
    grammar_close(g);
    grammar_index_close(x);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_masks), cmocka_unit_test(test_slices),
                                        cmocka_unit_test(test_many_places) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
