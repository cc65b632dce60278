/* test_token_calls.c: an answer's calls between reasoning and text, as ids and as harmony's messages: what is told,
 * what stays text, and what a limit leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "token_text.h"
#include "vocab_builder.h"

struct heard {
    char text[512], reasoning[256], calls[512]; /* calls: name(arguments) of each, ! behind a broken one */
};

static void add(char *to, size_t room, const char *bytes, size_t n)
{
    const size_t at = strlen(to);
    assert_true(at + n < room);
    memcpy(to + at, bytes, n);
    to[at + n] = '\0';
}

static void hear(struct heard *h, const struct token_text *x, const struct token_line *line, int n_lines)
{
    size_t n;
    const struct tools_event *e = token_calls_events(token_text_calls_of(x), &n);
    for (int i = 0; i < n_lines; i++) add(h->text, sizeof h->text, line[i].text, line[i].n);
    for (size_t i = 0; i < n; i++) {
        add(h->calls, sizeof h->calls, e[i].text.data, e[i].text.len);
        if (e[i].kind == TOOLS_CALL) assert_int_equal(e[i].id.len, 29);
        static const char *const behind[] = { "", "(", "", ")", "!" };
        add(h->calls, sizeof h->calls, behind[e[i].kind], strlen(behind[e[i].kind]));
    }
}

struct answer_case {
    const char *output;
    bool single, masked, cut;
    const char *text, *reasoning, *calls;
    uint32_t complete, malformed;
};

static void check_case(const struct answer_case *c, const struct tokenizer *t, const struct tools_model *m,
                       const struct chat_marks *marks, const struct harmony_ids *harmony, bool alone)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"}}}";
    const struct tools_function f = { { "f", 1 }, { schema, sizeof schema - 1 }, false };
    static struct heard h;
    struct tokens ids = { 0 };
    struct tools_set *set;
    struct token_calls *calls;
    struct token_text *x;
    struct token_line line[2];
    size_t given = 0;
    h = (struct heard){ { 0 }, { 0 }, { 0 } };
    assert_int_equal(tokenizer_encode(t, c->output, strlen(c->output), true, false, &ids, NULL), WK_OK);
    assert_int_equal(tools_set_open(&f, 1, &set, NULL), WK_OK);
    assert_int_equal(token_calls_open(m, set, 7, c->single, c->masked, &calls, NULL), WK_OK);
    if (alone) token_calls_alone(calls);
    assert_int_equal(token_text_open(t, token_text_piece_max(t), NULL, NULL, 0, &x, NULL), WK_OK);
    if (harmony) token_text_channels(x, harmony);
    if (marks) token_text_marks(x, marks);
    token_text_calls(x, calls);
    while (given < ids.n && !token_text_over(x)) {
        hear(&h, x, line, token_text_push(x, ids.ids[given++], line));
        const struct token_bytes said = token_text_reasoning(x);
        add(h.reasoning, sizeof h.reasoning, said.data, said.len);
    }
    const int n = token_text_end(x, c->cut, line);
    hear(&h, x, line, n);
    if (strcmp(h.text, c->text) != 0 || strcmp(h.reasoning, c->reasoning) != 0 || strcmp(h.calls, c->calls) != 0)
        fail_msg("%s: text %s, reasoning %s, calls %s", c->output, h.text, h.reasoning, h.calls);
    assert_int_equal(token_calls_complete(calls), c->complete);
    assert_int_equal(token_calls_malformed(calls), c->malformed);
    assert_false(token_text_failed(x));
    token_text_close(x);
    tools_set_close(set);
    tokens_free(&ids);
}

#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"\xC3\xA9\"}}\n</tool_call>"
#define CALLED "f({\"x\": \"\xC3\xA9\"})"
#define BEGUN "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"a"

static const struct tools_format *hermes(void)
{
    size_t n;
    const struct tools_format *f = tools_formats(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(f[i].name, "hermes") == 0) return &f[i];
    return NULL;
}

/* The marks of calls as text and as control tokens; reasoning before, or none. */
static void test_ids(void **state)
{
    (void)state;
    static const struct answer_case cases[] = {
        { CALL, false, false, false, "", "", CALLED, 1, 0 },
        { "I look.\n" CALL "\n" CALL, false, false, false, "I look.\n", "", CALLED CALLED, 2, 0 },
        { "I look." CALL "\n" CALL, true, false, false, "I look.", "", CALLED, 1, 0 },
        { "\n\n" CALL, false, true, false, "", "", CALLED, 1, 0 },
        { "\n\nno call", false, false, false, "\n\nno call", "", "", 0, 0 },
        { "\n\n", false, false, false, "\n\n", "", "", 0, 0 },
        { BEGUN, false, false, true, BEGUN, "", "f({\"x\": \"a!", 0, 1 },
        { BEGUN, false, true, false, BEGUN, "", "f({\"x\": \"a!", 0, 1 },
        { BEGUN, false, true, true, "", "", "f({\"x\": \"a", 0, 0 },
        { CALL BEGUN, false, true, true, "", "", CALLED "f({\"x\": \"a", 1, 0 },
        { "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", false, false, false,
          "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", "", "", 0, 1 },
    };
    static const struct answer_case thought[] = {
        { "<think>I call " CALL "?</think>\n\n" CALL, false, false, false, "", "I call " CALL "?", CALLED, 1, 0 },
        { "<think>so</think>" CALL "done", false, false, false, "done", "so", CALLED, 1, 0 },
        { CALL, false, false, false, "", "", CALLED, 1, 0 },
        { "<th" CALL, false, false, false, "<th", "", CALLED, 1, 0 },
        { "<th", false, false, false, "<th", "", "", 0, 0 },
    };
    static const struct answer_case alone[] = {
        { "\n" CALL "\n<tool_call>\n{\"na", false, true, true, "", "", CALLED, 1, 0 },
        { "\n", false, true, true, "", "", "", 0, 0 },
    };
    static const struct chat_marks marks = { "<think>", "</think>", false };
    for (size_t control = 0; control < 2; control++) {
        static struct builder builder;
        struct tokenizer *t;
        struct tools_model *m;
        builder_bpe(&builder, "gpt-4o");
        if (control) {
            builder_token(&builder, "<tool_call>", TOKEN_CONTROL, 0);
            builder_token(&builder, "</tool_call>", TOKEN_CONTROL, 0);
        }
        assert_int_equal(builder_open(&builder, &t, NULL), WK_OK);
        assert_int_equal(tools_model_open(hermes(), t, &m, NULL), WK_OK);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i], t, m, NULL, NULL, false);
        for (size_t i = control; i < sizeof thought / sizeof *thought; i++) /* inside, control tokens show nothing */
            check_case(&thought[i], t, m, &marks, NULL, false);
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) check_case(&alone[i], t, m, NULL, NULL, true);
        tools_model_close(m);
        tokenizer_close(t);
    }
}

#define CALLS(name, arguments) "<|channel|>commentary to=" name " <|constrain|>json<|message|>" arguments
#define THOUGHT "<|channel|>analysis<|message|>so<|end|><|start|>assistant"

static void test_harmony(void **state)
{
    (void)state;
    static const struct answer_case cases[] = {
        { CALLS("functions.f", "{\"x\":\"a\"}"), false, false, false, "", "", "f({\"x\":\"a\"})", 1, 0 },
        { THOUGHT CALLS("functions.f", "{}"), true, true, false, "", "so", "f({})", 1, 0 },
        { CALLS("functions.g", "{}"), false, false, false, "{}", "", "", 0, 1 },
        { CALLS("functions.f", "no"), false, false, false, "no", "", "", 0, 1 },
        { CALLS("functions.f", "{\"x\":"), false, false, true, "{\"x\":", "", "", 0, 1 },
        { CALLS("functions.f", "{\"x\":"), false, true, true, "", "", "f({\"x\":", 0, 0 },
        { "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" CALLS("functions.f", "{}"), false, false,
          false, "I look.", "", "f({})", 1, 0 },
        { "<|channel|>final<|message|>text", false, false, false, "text", "", "", 0, 0 },
    };
    static const char *const specials[] = { "<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                            "<|constrain|>", "<|return|>", "<|call|>" };
    static struct builder builder;
    struct tokenizer *t;
    struct harmony_ids harmony;
    builder_bpe(&builder, "gpt-4o");
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        builder_token(&builder, specials[i], TOKEN_CONTROL, 0);
    assert_int_equal(builder_open(&builder, &t, NULL), WK_OK);
    assert_true(harmony_find_ids(t, &harmony));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i], t, NULL, NULL, &harmony, false);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ids), cmocka_unit_test(test_harmony) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
