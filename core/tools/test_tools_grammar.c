/* test_tools_grammar.c: the grammar of answers with calls: it takes what rows write, and whatever it takes is read back
 * as calls that fit their schemas. Answers are made at random by following the masks, token by token, with marks as
 * control tokens where models have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harmony/harmony.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "vocab_builder.h"
#include "tools/test_row.h"
#include "tools/tools.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

static const char weather_schema[] =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 4}, \"days\": {\"type\": "
    "\"integer\", \"minimum\": 0, \"maximum\": 99}, \"unit\": {\"enum\": [\"c\", \"f\", null]}, \"live\": {\"type\": "
    "\"boolean\"}, \"opts\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\", \"items\": "
    "{\"enum\": "
    "[1, \"x\"]}, \"maxItems\": 2}}, \"additionalProperties\": false}, \"code\": {\"anyOf\": [{\"type\": \"string\", "
    "\"minLength\": 1, \"maxLength\": 3}, {\"type\": \"number\", \"minimum\": 5, \"maximum\": 7}]}}, \"required\": "
    "[\"city\", \"days\"], \"additionalProperties\": false}";
static const char ping_schema[] = "{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": false}";
/* A set that no grammar can hold items to. */
static const char unique_schema[] =
    "{\"type\": \"object\", \"properties\": {\"l\": {\"type\": \"array\", \"uniqueItems\": "
    "true}}}";

static const struct tools_function functions[] = {
    { { "get_weather", 11 }, { weather_schema, sizeof weather_schema - 1 }, true },
    { { "ping", 4 }, { ping_schema, sizeof ping_schema - 1 }, true },
};
static const struct tools_function loose[] = {
    { { "get_weather", 11 }, { weather_schema, sizeof weather_schema - 1 }, false },
    { { "ping", 4 }, { NULL, 0 }, false },
};

static struct tools_set *open_set(const struct tools_function *f, size_t n)
{
    struct tools_set *s;
    if (tools_set_open(f, n, &s, &err)) fail_msg("%s", text);
    return s;
}

/* ---- a vocabulary of bytes and marks ----------------------------------------------------------------------- */

static struct builder builder;
static struct tokenizer *tokenizer;
static struct grammar_index *vocabulary;

static int open_vocabulary(void **state)
{
    static const char *const marks[] = { "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "[CALL_ID]",
                                         "<|tool_calls_section_begin|>",
                                         "<|tool_calls_section_end|>",
                                         "<|tool_call_begin|>",
                                         "<|tool_call_argument_begin|>",
                                         "<|tool_call_end|>",
                                         "<|open|>",
                                         "<|close|>",
                                         "<|sep|>",
                                         "<|tool_call_start|>",
                                         "<|tool_call>",
                                         "<tool_call|>",
                                         "<|\"|>",
                                         "<start_function_call>",
                                         "<end_function_call>",
                                         "<escape>",
                                         "<|START_ACTION|>",
                                         "<|END_ACTION|>",
                                         "<|start|>",
                                         "<|end|>",
                                         "<|message|>",
                                         "<|channel|>",
                                         "<|constrain|>",
                                         "<|return|>",
                                         "<|call|>" };
    (void)state;
    builder_bpe(&builder, "gpt-2");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) builder_token(&builder, marks[i], TOKEN_CONTROL, 0);
    builder_token(&builder, "<|endoftext|>", TOKEN_CONTROL, 0);
    builder_int(&builder, "tokenizer.ggml.eos_token_id", builder.n - 1);
    if (builder_open(&builder, &tokenizer, &err)) fail_msg("%s", text);
    if (grammar_index_open(tokenizer, tokenizer_size(tokenizer), &vocabulary, &err)) fail_msg("%s", text);
    return 0;
}
static int close_vocabulary(void **state)
{
    (void)state;
    grammar_index_close(vocabulary);
    tokenizer_close(tokenizer);
    return 0;
}

/* ---- following ------------------------------------------------------------------------------------------------ */

static uint64_t seed = 1;
static uint32_t draw(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed % n);
}

static bool ends_something(uint32_t id)
{
    const struct token_bytes piece = tokenizer_piece(tokenizer, id, false);
    return !piece.len || (piece.len == 1 && strchr("\"'<,}])\n/", piece.data[0]));
}

/* One of the allowed ids, those that end something more often. */
static uint32_t choose(const struct grammar_mask *mask)
{
    uint32_t all[1024], ends[1024], n = 0, n_ends = 0;
    for (uint32_t id = 0; id < tokenizer_size(tokenizer); id++) {
        if (!(mask->bits[id / 64] >> id % 64 & 1)) continue;
        all[n++] = id;
        if (ends_something(id)) ends[n_ends++] = id;
    }
    return n_ends && draw(3) == 0 ? ends[draw(n_ends)] : all[draw(n)];
}

struct call {
    char name[32], arguments[4096];
    size_t n;
};
enum { MAX_CALLS = 64 };
struct answer {
    struct call call[MAX_CALLS];
    uint32_t n;
    char shown[1 << 16];
    size_t n_shown;
};

static void take(struct answer *a, const struct tools_event *e, size_t n)
{
    for (; n; n--, e++) {
        struct call *c = &a->call[a->n];
        assert_true(a->n < MAX_CALLS);
        switch (e->kind) {
        case TOOLS_TEXT:
            for (size_t i = 0; i < e->text.len; i++)
                if (e->text.data[i] != '\n') fail_msg("text in an answer of calls: %s", a->shown);
            break;
        case TOOLS_CALL:
            (void)snprintf(c->name, sizeof c->name, "%.*s", (int)e->text.len, e->text.data);
            c->n = 0;
            break;
        case TOOLS_ARGUMENTS:
            assert_true(c->n + e->text.len < sizeof c->arguments);
            memcpy(c->arguments + c->n, e->text.data, e->text.len);
            c->n += e->text.len;
            break;
        case TOOLS_END: a->n++; break;
        default: fail_msg("a call was taken back: %s", a->shown);
        }
    }
}

static void fits(const struct call *c, const char *shown)
{
    const bool weather = strcmp(c->name, "get_weather") == 0;
    const char *schema = weather ? weather_schema : ping_schema;
    static struct grammar *grammars[2];
    struct grammar_match *m;
    if (!grammars[weather] && grammar_from_schema(schema, strlen(schema), NULL, NULL, &grammars[weather], &err))
        fail_msg("%s", text);
    assert_int_equal(grammar_match_open(grammars[weather], NULL, &m, &err), WK_OK);
    if (grammar_match_push(m, c->arguments, c->n, NULL, &err) || !grammar_match_complete(m))
        fail_msg("%s: the arguments %.*s do not fit: %s", shown, (int)c->n, c->arguments, c->name);
    grammar_match_close(m);
}

/* An answer by the masks, parsed while it comes. */
static void walk(struct grammar *g, const struct tools_model *m, const struct tools_set *s, struct answer *a)
{
    struct grammar_match *match;
    struct tools_parser *p;
    const struct tools_event *e;
    size_t n;
    a->n = 0;
    a->n_shown = 0;
    assert_int_equal(grammar_match_open(g, vocabulary, &match, &err), WK_OK);
    assert_int_equal(tools_parser_open(m, s, 1, false, &p, &err), WK_OK);
    for (uint32_t id = 0; !tokenizer_ends(tokenizer, id);) {
        struct grammar_mask mask;
        if (grammar_match_mask(match, &mask, &err)) fail_msg("%s: %s", text, a->shown);
        id = choose(&mask);
        if (grammar_match_accept(match, id, &err)) fail_msg("%s: %s", text, a->shown);
        if (tokenizer_ends(tokenizer, id)) break;
        const struct token_bytes shown = tokenizer_piece(tokenizer, id, true);
        assert_true(a->n_shown + shown.len < sizeof a->shown);
        memcpy(a->shown + a->n_shown, shown.data, shown.len);
        a->shown[a->n_shown += shown.len] = '\0';
        assert_int_equal(tools_parser_push(p, id, tokenizer_piece(tokenizer, id, false), &e, &n), WK_OK);
        take(a, e, n);
    }
    assert_int_equal(tools_parser_finish(p, &e, &n), WK_OK);
    take(a, e, n);
    if (!a->n) fail_msg("no call: %s", a->shown);
    for (uint32_t i = 0; i < a->n; i++) fits(&a->call[i], a->shown);
    tools_parser_close(p);
    grammar_match_close(match);
}

enum { RANDOM_CALLS = 1000 }; /* of each row */

static void test_random_answers_are_calls_that_fit(void **state)
{
    static struct answer a;
    size_t rows;
    const struct tools_format *f = tools_formats(&rows);
    struct tools_set *s = open_set(functions, 2);
    const struct tools_rule rule = { .required = true };
    (void)state;
    for (size_t i = 0; i < rows; i++) {
        struct tools_model *m;
        struct grammar *g;
        if (tools_model_open(&f[i], tokenizer, &m, &err)) fail_msg("%s", text);
        if (tools_grammar(m, s, &rule, NULL, &g, &err)) fail_msg("%s: %s", f[i].name, text);
        for (uint32_t n = 0; n < RANDOM_CALLS; n += a.n) walk(g, m, s, &a);
        grammar_close(g);
        tools_model_close(m);
    }
    tools_set_close(s);
}
/* ---- texts ------------------------------------------------------------------------------------------------------ */

static bool accepts(struct grammar *g, const char *answer, size_t n)
{
    struct grammar_match *m;
    assert_int_equal(grammar_match_open(g, NULL, &m, &err), WK_OK);
    const bool yes = !grammar_match_push(m, answer, n, NULL, &err) && grammar_match_complete(m);
    grammar_match_close(m);
    return yes;
}

static void test_what_rows_write_is_taken(void **state)
{
#define TEXT(t) { t, sizeof t - 1 }
    static const struct tools_written calls[] = {
        { TEXT("get_weather"), TEXT("{\"city\": \"K\xC3\xB6ln\", \"days\": 3}"), TEXT("abcDEF123") },
        { TEXT("ping"), TEXT("{}"), TEXT("abcDEF124") },
    };
    static const struct tools_written kimi[] = {
        { TEXT("get_weather"), TEXT("{\"city\": \"K\xC3\xB6ln\", \"days\": 3}"), TEXT("functions.get_weather:0") },
        { TEXT("ping"), TEXT("{}"), TEXT("functions.ping:1") },
    };
    size_t rows;
    const struct tools_format *f = tools_formats(&rows);
    (void)state;
    for (size_t i = 0; i < rows; i++)
        for (int strict = 0; strict < 2; strict++)
            for (int required = 0; required < 2; required++) {
                struct tools_set *s = open_set(strict ? functions : loose, 2);
                const struct tools_rule rule = { .required = required };
                struct byte_buffer out = { 0 };
                struct tools_model *m;
                struct grammar *g;
                assert_int_equal(tools_model_open(&f[i], NULL, &m, &err), WK_OK);
                if (tools_grammar(m, s, &rule, NULL, &g, &err)) fail_msg("%s: %s", f[i].name, text);
                const size_t n = f[i].single ? 1 : 2;
                assert_int_equal(tools_write(&f[i], f[i].ids == TOOLS_ID_KIMI ? kimi : calls, n, &out, &err), WK_OK);
                const size_t opened = f[i].opened ? strlen(f[i].opened) : 0; /* the prompt has it */
                if (!accepts(g, out.data + opened, out.n - opened))
                    fail_msg("%s, strict %d, required %d: %.*s", f[i].name, strict, required, (int)out.n, out.data);
                char says[64];
                const int len = snprintf(says, sizeof says, "%sHello, <you> [there] {1}", f[i].said ? f[i].said : "");
                const bool text_too = accepts(g, says, (size_t)len);
                assert_int_equal(text_too, !required);
                free(out.data);
                grammar_close(g);
                tools_model_close(m);
                tools_set_close(s);
            }
}

static void test_choices(void **state)
{
#define WEATHER "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\", \"days\": 3}}\n</tool_call>"
#define PING "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>"
    static const struct {
        struct tools_rule rule;
        const char *answer;
        bool taken;
    } cases[] = {
        { { .required = false }, "", true },
        { { .required = false }, "I think " PING, true },
        { { .required = false }, "I think <tool_call>{", false },
        { { .required = false },
          "I think <tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>",
          false },
        { { .required = false }, PING "\n" WEATHER, true },
        { { .required = false }, PING " and text", false },
        { { .required = false }, "{\"name\": \"ping\", \"arguments\": {\"x\": 1}}", false },
        { { .required = false }, "{\"answer\": 1}", true },
        { { .required = false, .single = true }, PING "\n" WEATHER, false },
        { { .required = true }, PING, true },
        { { .required = true }, "\n\n" PING, true },
        { { .required = true }, "text", false },
        { { .required = true, .named = { "ping", 4 } }, PING, true },
        { { .required = true, .named = { "ping", 4 } }, WEATHER, false },
        { { .required = true }, "<tool_call>\n{\"name\": \"ping\", \"arguments\": {\"x\": 1}}\n</tool_call>", false },
        { { .required = true },
          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}\n</tool_call>",
          false },
    };
    struct tools_set *s = open_set(functions, 2);
    struct tools_model *m;
    (void)state;
    assert_int_equal(tools_model_open(row("hermes"), NULL, &m, &err), WK_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g;
        if (tools_grammar(m, s, &cases[i].rule, NULL, &g, &err)) fail_msg("%s", text);
        if (accepts(g, cases[i].answer, strlen(cases[i].answer)) != cases[i].taken)
            fail_msg("case %zu: %s", i, cases[i].answer);
        grammar_close(g);
    }
    tools_model_close(m);
    tools_set_close(s);
}

static void test_a_function_that_cannot_be_strict_is_refused_alone(void **state)
{
    static const struct tools_function list[] = {
        { { "bad", 3 }, { unique_schema, sizeof unique_schema - 1 }, true },
        { { "ping", 4 }, { ping_schema, sizeof ping_schema - 1 }, true },
        { { "any", 3 }, { "{}", 2 }, true },
        { { "key", 3 },
          TEXT("{\"type\": \"object\", \"properties\": {\"a<b\": {}}, \"additionalProperties\": false}"),
          true },
    };
    static const char *const formats[] = { "hermes", "qwen-xml", "lfm2" };
    struct tools_set *s = open_set(list, 4);
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct tools_refusal refusals[4] = { 0 };
        const struct tools_rule rule = { .required = true }, named = { .required = true, .named = { "nobody", 6 } },
                                bad = { .required = true, .named = { "bad", 3 } };
        struct tools_model *m;
        struct grammar *g;
        assert_int_equal(tools_model_open(row(formats[i]), NULL, &m, &err), WK_OK);
        if (tools_grammar(m, s, &rule, refusals, &g, &err)) fail_msg("%s", text);
        assert_true(refusals[0].refused);
        assert_non_null(strstr(refusals[0].text, "\"bad\""));
        assert_non_null(strstr(refusals[0].text, "uniqueItems"));
        assert_false(refusals[1].refused);
        assert_non_null(strstr(refusals[2].text, "\"any\" cannot be strict: expected parameters of type object"));
        assert_int_equal(refusals[3].refused, i > 0); /* JSON has no trouble with such a name */
        grammar_close(g);
        assert_int_equal(tools_grammar(m, s, &rule, NULL, &g, &err), WK_UNSUPPORTED);
        assert_non_null(strstr(text, "\"bad\""));
        assert_null(g);
        assert_int_equal(tools_grammar(m, s, &named, NULL, &g, &err), WK_INVALID);
        assert_non_null(strstr(text, "\"nobody\""));
        assert_int_equal(tools_grammar(m, s, &bad, refusals, &g, &err), WK_INVALID);
        tools_model_close(m);
    }
    tools_set_close(s);
}

/* ---- harmony ---------------------------------------------------------------------------------------------------- */

static void take_harmony(struct answer *a, const struct harmony_parser *p, const struct harmony_event *e, bool *final)
{
    struct call *c = &a->call[0];
    const bool call = harmony_calls(&p->header);
    assert_int_equal(p->header.role, HARMONY_ASSISTANT);
    if (e->kind == HARMONY_BEGIN) {
        assert_int_not_equal(p->header.channel, HARMONY_OTHER);
        *final = *final || (!call && p->header.channel == HARMONY_FINAL);
    }
    if (e->kind == HARMONY_BEGIN && call) {
        assert_string_equal(p->header.content_type, "json");
        assert_memory_equal(p->header.recipient, "functions.", 10);
        (void)snprintf(c->name, sizeof c->name, "%.31s", p->header.recipient + 10);
        a->n++;
    }
    if (e->kind != HARMONY_TEXT || !call) return;
    assert_true(c->n + e->text.len < sizeof c->arguments);
    memcpy(c->arguments + c->n, e->text.data, e->text.len);
    c->n += e->text.len;
}

/* An answer by the masks, read by harmony's own parser: one call whose arguments fit, or one final message. */
static void walk_harmony(struct grammar *g, const struct harmony_ids *ids, struct answer *a)
{
    struct grammar_match *match;
    struct harmony_parser p;
    struct harmony_event e[HARMONY_EVENTS];
    bool final = false, over = false;
    a->n = 0;
    a->call[0].n = 0;
    assert_int_equal(grammar_match_open(g, vocabulary, &match, &err), WK_OK);
    harmony_begin(&p, ids, true);
    while (!over) {
        struct grammar_mask mask;
        if (grammar_match_mask(match, &mask, &err)) fail_msg("%s", text);
        over = grammar_match_complete(match);
        const uint32_t id = over ? ids->call : choose(&mask);
        if (grammar_match_accept(match, id, &err)) fail_msg("%s", text);
        const size_t n = harmony_push(&p, id, tokenizer_piece(tokenizer, id, false), e);
        for (size_t i = 0; i < n; i++) take_harmony(a, &p, &e[i], &final);
    }
    assert_int_equal(harmony_finish(&p, e), 0);
    assert_int_equal(a->n + final, 1);
    if (a->n) fits(&a->call[0], "harmony");
    grammar_match_close(match);
}

static void test_harmonys_headers_are_constrained(void **state)
{
    static struct answer a;
    struct harmony_ids ids;
    struct tools_set *s = open_set(functions, 2);
    uint32_t calls[2] = { 0 };
    (void)state;
    assert_true(harmony_find_ids(tokenizer, &ids));
    for (int required = 0; required < 2; required++) {
        const struct tools_rule rule = { .required = required };
        struct grammar *g;
        if (tools_harmony_grammar(&ids, s, &rule, NULL, &g, &err)) fail_msg("%s", text);
        for (uint32_t i = 0; i < RANDOM_CALLS; i++, calls[required] += a.n) walk_harmony(g, &ids, &a);
        grammar_close(g);
    }
    assert_int_equal(calls[1], RANDOM_CALLS);
    assert_in_range(calls[0], 1, RANDOM_CALLS - 1);
    tools_set_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_answers_are_calls_that_fit),
        cmocka_unit_test(test_what_rows_write_is_taken),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_harmonys_headers_are_constrained),
        cmocka_unit_test(test_a_function_that_cannot_be_strict_is_refused_alone),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
