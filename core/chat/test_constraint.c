/* test_constraint.c: a grammar as what a job may generate: alone, behind reasoning in each form of its marks, and
 * behind harmony's headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chat/constraint.h"
#include "vocab_builder.h"

static struct builder builder;
static char text[256];
static const struct wk_err err = { text, sizeof text };

struct world {
    struct tokenizer *t;
    struct grammar_index *x;
    struct grammar *g;
    uint32_t n_vocab;
    uint64_t bits[(BUILDER_TOKENS + 63) / 64];
};

static void open_world(struct world *w, const char *regex)
{
    builder_int(&builder, "tokenizer.ggml.eos_token_id", builder_token(&builder, "<|end of text|>", TOKEN_CONTROL, 0));
    if (builder_open(&builder, &w->t, &err)) fail_msg("%s", text);
    w->n_vocab = tokenizer_size(w->t);
    if (grammar_index_open(w->t, w->n_vocab, &w->x, &err)) fail_msg("%s", text);
    assert_int_equal(grammar_from_regex(regex, strlen(regex), NULL, &w->g, &err), WK_OK);
}

static void close_world(struct world *w)
{
    grammar_close(w->g);
    grammar_index_close(w->x);
    tokenizer_close(w->t);
}

static bool may(struct world *w, struct sampler_constraint *c, uint32_t id)
{
    if (c->mask(c->user, w->bits, &err)) fail_msg("%s", text);
    return w->bits[id / 64] >> id % 64 & 1;
}

static uint32_t end_of(const struct world *w)
{
    size_t n;
    const uint32_t *ends = tokenizer_end_ids(w->t, &n);
    assert_true(n > 0);
    return ends[0];
}

/* Writes the text, special tokens where it spells them; each id must be allowed. Returns the first id that is not, of
 * which nothing is taken; TOKEN_NONE: all are. */
static uint32_t writes(struct world *w, struct sampler_constraint *c, const char *said)
{
    struct tokens ids = { 0 };
    uint32_t refused = TOKEN_NONE;
    assert_int_equal(tokenizer_encode(w->t, said, strlen(said), true, false, &ids, NULL), WK_OK);
    for (size_t i = 0; i < ids.n && refused == TOKEN_NONE; i++) {
        if (!may(w, c, ids.ids[i]))
            refused = ids.ids[i];
        else if (c->accept(c->user, ids.ids[i], &err))
            fail_msg("%s: %s", said, text);
    }
    tokens_free(&ids);
    return refused;
}
static void expect_written(struct world *w, struct sampler_constraint *c, const char *said)
{
    if (writes(w, c, said) != TOKEN_NONE) fail_msg("\"%s\" is not allowed", said);
}

static void open_constraint(struct world *w, const struct constraint_lead *lead, struct sampler_constraint *c)
{
    assert_int_equal(constraint_open(w->g, w->x, w->t, w->n_vocab, lead, c, &err), WK_OK);
}

static void test_alone(void **state)
{
    (void)state;
    struct world w;
    struct sampler_constraint c, never = { 0 };
    builder_bpe(&builder, "gpt-2");
    open_world(&w, "ab+");
    open_constraint(&w, NULL, &c);
    assert_true(writes(&w, &c, "b") != TOKEN_NONE);
    assert_false(may(&w, &c, end_of(&w)));
    expect_written(&w, &c, "ab");
    assert_true(may(&w, &c, end_of(&w)));
    expect_written(&w, &c, "b");
    constraint_close(&c);
    constraint_close(&c); /* nothing any more */
    constraint_close(&never);
    open_constraint(&w, NULL, &c); /* one that no job has ever called */
    constraint_close(&c);
    close_world(&w);
}

/* The marks as control tokens, as tokens that show themselves, and as text. */
static const int types[] = { TOKEN_CONTROL, TOKEN_USER_DEFINED, 0 };

static void open_marked(struct world *w, int type)
{
    builder_bpe(&builder, "gpt-2");
    if (type) {
        builder_token(&builder, "<think>", type, 0);
        builder_token(&builder, "</think>", type, 0);
    }
    open_world(w, "\\{[a-z]*\\}");
}

static void test_opened(void **state)
{
    (void)state;
    static const char *const thoughts[] = { "Hm {x}? <b></think>{ok}", "</think>\n\n{ok}", "a\n</think>\n{ok}" };
    const struct chat_marks marks = { "<think>", "</think>", true };
    const struct constraint_lead lead = { .marks = &marks };
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        struct world w;
        open_marked(&w, types[k]);
        for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
            struct sampler_constraint c;
            open_constraint(&w, &lead, &c);
            assert_false(may(&w, &c, end_of(&w))); /* an answer must come */
            expect_written(&w, &c, thoughts[i]);
            assert_true(may(&w, &c, end_of(&w)));
            assert_true(writes(&w, &c, "x") != TOKEN_NONE);
            constraint_close(&c);
        }
        close_world(&w);
    }
}

/* The answer alone, or a thought first: where the mark is a token it may be written. */
static void test_may_think(void **state)
{
    (void)state;
    const struct chat_marks marks = { "<think>", "</think>", false };
    const struct constraint_lead lead = { .marks = &marks };
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        struct world w;
        struct sampler_constraint c;
        open_marked(&w, types[k]);
        open_constraint(&w, &lead, &c);
        expect_written(&w, &c, "{a}");
        assert_true(writes(&w, &c, "<think>") != TOKEN_NONE);
        constraint_close(&c);
        open_constraint(&w, &lead, &c);
        if (types[k]) {
            expect_written(&w, &c, "<think>\nHm.\n</think>\n\n{a}");
            assert_true(may(&w, &c, end_of(&w)));
        } else {
            assert_true(writes(&w, &c, "<think>") != TOKEN_NONE);
        }
        constraint_close(&c);
        close_world(&w);
    }
}

/* Blanks behind the mark are few, and a token that goes on with what no answer begins with is a dead end by name. */
static void test_behind_mark(void **state)
{
    (void)state;
    const struct chat_marks marks = { "<think>", "</think>", true };
    const struct constraint_lead lead = { .marks = &marks };
    struct world w;
    struct sampler_constraint c;
    open_marked(&w, TOKEN_CONTROL);
    open_constraint(&w, &lead, &c);
    expect_written(&w, &c, "</think>\n\n");
    assert_true(writes(&w, &c, "\n") != TOKEN_NONE);
    expect_written(&w, &c, "{");
    constraint_close(&c);
    close_world(&w);

    builder_bpe(&builder, "gpt-2");
    const uint32_t glued = builder.n;
    builder_token(&builder, "k>x", TOKEN_NORMAL, 0);
    open_world(&w, "\\{[a-z]*\\}");
    open_constraint(&w, &lead, &c);
    expect_written(&w, &c, "Hm.</thin");
    assert_true(may(&w, &c, glued));
    assert_int_equal(c.accept(c.user, glued, &err), WK_OK);
    assert_int_equal(c.mask(c.user, w.bits, &err), WK_INVALID);
    constraint_close(&c);
    close_world(&w);
}

static void test_harmony(void **state)
{
    (void)state;
    static const char *const tokens[] = { "<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                          "<|constrain|>", "<|return|>", "<|call|>" };
    struct world w;
    struct sampler_constraint c;
    struct constraint_lead lead = { 0 };
    builder_bpe(&builder, "gpt-2");
    open_world(&w, "\\{[a-z]*\\}");
    assert_int_equal(constraint_harmony(w.t, &lead.header, &err), WK_INVALID); /* no such tokens */
    close_world(&w);
    builder_bpe(&builder, "gpt-2");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) builder_token(&builder, tokens[i], TOKEN_CONTROL, 0);
    open_world(&w, "\\{[a-z]*\\}");
    if (constraint_harmony(w.t, &lead.header, &err)) fail_msg("%s", text);
    open_constraint(&w, &lead, &c);
    assert_true(writes(&w, &c, "{") != TOKEN_NONE);
    expect_written(&w, &c, "<|channel|>analysis<|message|>Let us see: {}. So:");
    assert_false(may(&w, &c, end_of(&w)));
    expect_written(&w, &c, "<|end|><|start|>assistant<|channel|>");
    assert_true(writes(&w, &c, "commentary") != TOKEN_NONE);
    assert_true(writes(&w, &c, "analysis") != TOKEN_NONE);
    constraint_close(&c);
    open_constraint(&w, &lead, &c);
    expect_written(&w, &c, "<|channel|>final<|message|>");
    assert_true(writes(&w, &c, "x") != TOKEN_NONE);
    expect_written(&w, &c, "{so}");
    assert_true(may(&w, &c, end_of(&w)));
    assert_true(writes(&w, &c, "<|start|>") != TOKEN_NONE);
    constraint_close(&c);
    grammar_close(lead.header);
    close_world(&w);
}

static struct grammar *from_regex(const char *pattern)
{
    struct grammar *g;
    if (grammar_from_regex(pattern, strlen(pattern), NULL, &g, &err)) fail_msg("%s", text);
    return g;
}

/* Two grammars: what either takes, until one alone can go on. Behind reasoning as at once. */
static void test_other(void **state)
{
    (void)state;
    const struct chat_marks marks = { "<think>", "</think>", true };
    struct world w;
    struct sampler_constraint c;
    for (int marked = 0; marked < 2; marked++) {
        open_marked(&w, TOKEN_CONTROL);
        struct constraint_lead lead = { .marks = marked ? &marks : NULL, .other = from_regex("\\{call[0-9]\\}|ab") };
        static const struct {
            const char *said, *refused; /* what cannot follow */
            bool whole;
        } cases[] = { { "{call", "7x", false }, { "{call7}", "}", true }, { "{calls", "7", false },
                      { "{c}", "}", true },     { "ab", "{", true },      { "a", "}", false },
                      { "{", "0", false } };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            open_constraint(&w, &lead, &c);
            if (marked) expect_written(&w, &c, "{call8}? </think>\n\n");
            expect_written(&w, &c, cases[i].said);
            assert_int_equal(may(&w, &c, end_of(&w)), cases[i].whole);
            assert_true(writes(&w, &c, cases[i].refused) != TOKEN_NONE);
            constraint_close(&c);
        }
        grammar_close(lead.other);
        close_world(&w);
    }
    /* Both taken to the end, and a token that ends the reasoning inside one of them. */
    builder_bpe(&builder, "gpt-2");
    const uint32_t glued = builder.n;
    builder_token(&builder, "k>ab", TOKEN_NORMAL, 0);
    open_world(&w, "\\{[a-z]*\\}");
    const struct constraint_lead lead = { .marks = &marks, .other = from_regex("\\{x\\}|ab") };
    open_constraint(&w, &lead, &c);
    expect_written(&w, &c, "</think>{x}");
    assert_true(may(&w, &c, end_of(&w)));
    assert_int_equal(c.accept(c.user, end_of(&w), &err), WK_OK);
    constraint_close(&c);
    open_constraint(&w, &lead, &c);
    expect_written(&w, &c, "Hm.</thin");
    assert_int_equal(c.accept(c.user, glued, &err), WK_OK);
    assert_true(may(&w, &c, end_of(&w)));
    assert_true(writes(&w, &c, "{") != TOKEN_NONE);
    constraint_close(&c);
    grammar_close(lead.other);
    close_world(&w);
}

/* In harmony the other grammar has headers of its own. */
static void test_harmony_other(void **state)
{
    (void)state;
    static const char *const tokens[] = { "<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                          "<|constrain|>", "<|return|>", "<|call|>" };
    static const char calls[] = "root ::= <|channel|> \"commentary to=f\" <|message|> \"{}\"";
    struct world w;
    struct sampler_constraint c;
    struct constraint_lead lead = { 0 };
    builder_bpe(&builder, "gpt-2");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) builder_token(&builder, tokens[i], TOKEN_CONTROL, 0);
    open_world(&w, "\\{[a-z]*\\}");
    if (constraint_harmony(w.t, &lead.header, &err) ||
        grammar_from_gbnf(calls, sizeof calls - 1, w.t, NULL, &lead.other, &err))
        fail_msg("%s", text);
    static const char *const good[] = { "<|channel|>commentary to=f<|message|>{}", "<|channel|>final<|message|>{so}",
                                        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final"
                                         "<|message|>{}") };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        open_constraint(&w, &lead, &c);
        expect_written(&w, &c, good[i]);
        assert_true(may(&w, &c, end_of(&w)));
        constraint_close(&c);
    }
    open_constraint(&w, &lead, &c);
    expect_written(&w, &c, "<|channel|>commentary to=f<|message|>{");
    assert_true(writes(&w, &c, "s") != TOKEN_NONE); /* the form is not that of arguments */
    constraint_close(&c);
    grammar_close(lead.header);
    grammar_close(lead.other);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_alone),        cmocka_unit_test(test_opened),
                                        cmocka_unit_test(test_may_think),    cmocka_unit_test(test_behind_mark),
                                        cmocka_unit_test(test_harmony),      cmocka_unit_test(test_other),
                                        cmocka_unit_test(test_harmony_other) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
