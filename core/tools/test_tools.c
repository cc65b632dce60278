/* test_tools.c: every row of the table: what it writes is found as its own, and read back, cut anywhere, as the calls
 * that were written; what is no call comes back as text. With test data: what real templates write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>

#include "jinja/jinja.h"
#include "test_data.h"
#include "tokenizer/vocab_builder.h"
#include "tools/tools.h"

static struct token_bytes bytes(const char *s) { return (struct token_bytes){ s, s ? strlen(s) : 0 }; }

static const char weather_schema[] =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}, "
    "\"opts\": {\"type\": \"object\"}, \"live\": {\"$ref\": \"#/$defs/flag\"}, \"unit\": {\"enum\": [\"c\", \"f\"]}, "
    "\"limit\": {\"type\": [\"number\", \"null\"]}, \"code\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": "
    "\"null\"}]}}, \"$defs\": {\"flag\": {\"type\": \"boolean\"}}}";
static const char search_schema[] = "{\"type\": \"object\", \"properties\": {\"query\": {\"type\": \"string\"}}}";

static const struct tools_function functions[] = {
    { { "get_weather", 11 }, { weather_schema, sizeof weather_schema - 1 }, false },
    { { "search", 6 }, { search_schema, sizeof search_schema - 1 }, false },
    { { "ping", 4 }, { NULL, 0 }, false },
    { { "probe_one", 9 }, { NULL, 0 }, false },
    { { "probe_two", 9 }, { NULL, 0 }, false },
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* ---- an answer as its reader has it ----------------------------------------------------------------------- */

enum { MAX_CALLS = 8 };
struct answer {
    struct byte_buffer text;
    struct {
        char name[TOOLS_MAX_NAME], id[TOOLS_ID];
        struct byte_buffer arguments;
        bool complete;
    } call[MAX_CALLS];
    uint32_t n, events, malformed;
};

static void append(struct byte_buffer *b, struct token_bytes text)
{
    assert_true(array_reserve((void **)&b->data, &b->cap, b->n + text.len + 1, 1));
    if (text.len) memcpy(b->data + b->n, text.data, text.len);
    b->n += text.len;
    b->data[b->n] = '\0';
}

static void take(struct answer *a, const struct tools_event *e, size_t n)
{
    for (; n; n--, e++) {
        a->events++;
        assert_in_range(e->index, 0, MAX_CALLS - 1);
        const bool open = a->n && !a->call[a->n - 1].complete;
        if (e->kind == TOOLS_TEXT) {
            assert_false(open);
            append(&a->text, e->text);
            continue;
        }
        assert_int_equal(open, e->kind != TOOLS_CALL);
        if (e->kind == TOOLS_CALL) {
            assert_int_equal(e->index, a->n);
            (void)snprintf(a->call[a->n].name, TOOLS_MAX_NAME, "%.*s", (int)e->text.len, e->text.data);
            (void)snprintf(a->call[a->n].id, TOOLS_ID, "%.*s", (int)e->id.len, e->id.data);
            assert_true(e->id.len > 0);
            a->n++;
        } else if (e->kind == TOOLS_ARGUMENTS)
            append(&a->call[e->index].arguments, e->text);
        else if (e->kind == TOOLS_END)
            a->call[e->index].complete = true;
        else
            a->call[--a->n].arguments.n = 0;
    }
}

static void answer_free(struct answer *a)
{
    free(a->text.data);
    for (size_t i = 0; i < MAX_CALLS; i++) free(a->call[i].arguments.data);
    *a = (struct answer){ 0 };
}

static struct tools_set *set;
static int open_set(void **state)
{
    char text[256];
    const struct wk_err err = { text, sizeof text };
    (void)state;
    if (tools_set_open(functions, FUNCTIONS, &set, &err)) fail_msg("%s", text);
    return 0;
}
static int close_set(void **state)
{
    (void)state;
    tools_set_close(set);
    return 0;
}

static struct tools_model *model_of(const struct tools_format *f, const struct tokenizer *t)
{
    struct tools_model *m;
    char text[256];
    const struct wk_err err = { text, sizeof text };
    if (tools_model_open(f, t, &m, &err)) fail_msg("%s", text);
    return m;
}
static const struct tools_format *row(const char *name)
{
    size_t n;
    const struct tools_format *f = tools_formats(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(f[i].name, name) == 0) return &f[i];
    fail_msg("no row %s", name);
    return NULL;
}

/* The text in pieces: of `piece` bytes; 0: cut once, at `cut`. */
static void parse(const struct tools_model *m, const char *text, size_t len, size_t piece, size_t cut, bool single,
                  struct answer *out)
{
    struct tools_parser *p;
    const struct tools_event *e;
    size_t n;
    assert_int_equal(tools_parser_open(m, set, 7, single, &p, NULL), WK_OK);
    for (size_t at = 0; at < len;) {
        size_t take_n = piece ? piece : at < cut ? cut - at : len - at;
        if (take_n > len - at) take_n = len - at;
        assert_int_equal(tools_parser_push(p, TOKEN_NONE, (struct token_bytes){ text + at, take_n }, &e, &n), WK_OK);
        take(out, e, n);
        at += take_n;
    }
    assert_int_equal(tools_parser_finish(p, &e, &n), WK_OK);
    take(out, e, n);
    assert_int_equal(tools_parser_calls(p), out->n);
    out->malformed = tools_parser_malformed(p);
    tools_parser_close(p);
}

struct expected {
    const char *name, *arguments;
};

static void expect_call(const struct answer *a, size_t i, const struct expected *call, const char *what)
{
    json_error_t e;
    json_t *expected = json_loads(call->arguments, JSON_DECODE_ANY, NULL);
    json_t *got = json_loadb(a->call[i].arguments.data ? a->call[i].arguments.data : "", a->call[i].arguments.n,
                             JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    assert_non_null(expected);
    assert_true(a->call[i].complete);
    assert_string_equal(a->call[i].name, call->name);
    if (!got || !json_equal(got, expected))
        fail_msg("%s: call %zu: expected %s, found %.*s", what, i, call->arguments, (int)a->call[i].arguments.n,
                 a->call[i].arguments.data);
    json_decref(got);
    json_decref(expected);
}

/* content: NULL: whatever it is. */
static void expect(const struct tools_model *m, const char *text, size_t len, const struct expected *calls, size_t n,
                   const char *content, const char *what)
{
    for (size_t cut = 0; cut <= len + 2; cut++) { /* once at every place; then whole, and byte by byte */
        struct answer a = { 0 };
        parse(m, text, len, cut == len + 1 ? 1 : cut == len + 2 ? 3 : 0, cut, false, &a);
        if (a.n != n) fail_msg("%s, cut at %zu: expected %zu calls, found %u in %s", what, cut, n, a.n, text);
        for (size_t i = 0; i < n; i++) expect_call(&a, i, &calls[i], what);
        if (content) assert_string_equal(a.text.data ? a.text.data : "", content);
        answer_free(&a);
    }
}

static void expect_in(const char *format, const char *text, const struct expected *calls, size_t n, const char *content)
{
    struct tools_model *m = model_of(row(format), NULL);
    expect(m, text, strlen(text), calls, n, content, format);
    tools_model_close(m);
}

/* ---- the table -------------------------------------------------------------------------------------------- */

#define TEXT(text) { text, sizeof text - 1 }
static const struct tools_written written[] = {
    { TEXT("get_weather"), TEXT("{\"city\": \"K\xC3\xB6ln\", \"days\": 3, \"opts\": {\"a\": [1, \"x\"]}}"),
      TEXT("call00001") },
    { TEXT("search"), TEXT("{\"query\": \"a <b> & c, d\"}"), TEXT("call00002") },
    { TEXT("ping"), TEXT("{}"), TEXT("call00003") },
};
static const struct expected read_back[] = {
    { "get_weather", "{\"city\": \"K\xC3\xB6ln\", \"days\": 3, \"opts\": {\"a\": [1, \"x\"]}}" },
    { "search", "{\"query\": \"a <b> & c, d\"}" },
    { "ping", "{}" },
};

static void write_row(const struct tools_format *f, const struct tools_written *calls, size_t n,
                      struct byte_buffer *out)
{
    char text[256], ids[3][TOOLS_ID];
    const struct wk_err err = { text, sizeof text };
    struct tools_written with_ids[3];
    for (size_t i = 0; i < n; i++) {
        with_ids[i] = calls[i];
        if (f->ids != TOOLS_ID_KIMI) continue;
        const int len = snprintf(ids[i], TOOLS_ID, "functions.%.*s:%zu", (int)calls[i].name.len, calls[i].name.data, i);
        with_ids[i].id = (struct token_bytes){ ids[i], (size_t)len };
    }
    if (tools_write(f, with_ids, n, out, &err)) fail_msg("%s: %s", f->name, text);
    append(out, bytes(""));
}

static void test_every_row_reads_what_it_writes(void **state)
{
    size_t rows;
    const struct tools_format *f = tools_formats(&rows);
    (void)state;
    for (size_t i = 0; i < rows; i++) {
        struct tools_model *m = model_of(&f[i], NULL);
        for (size_t n = 1; n <= (f[i].single ? 1 : 3); n++) {
            struct byte_buffer text = { 0 };
            write_row(&f[i], written, n, &text);
            expect(m, text.data, text.n, read_back, n, "", f[i].name);
            free(text.data);
        }
        tools_model_close(m);
    }
}

/* What is said before and behind calls stays, to the byte, where calls have marks. */
static void test_text_around_calls_stays(void **state)
{
    size_t rows;
    const struct tools_format *f = tools_formats(&rows);
    (void)state;
    for (size_t i = 0; i < rows; i++) {
        struct tools_model *m = model_of(&f[i], NULL);
        struct byte_buffer text = { 0 };
        if (strncmp(f[i].call, "$OBJECT", 7) == 0 && !f[i].begin) {
            tools_model_close(m);
            continue;
        }
        append(&text, bytes("Let me < see [x].\n"));
        write_row(&f[i], written, 1, &text);
        append(&text, bytes("Done."));
        expect(m, text.data, text.n, read_back, 1, "Let me < see [x].\nDone.", f[i].name);
        free(text.data);
        tools_model_close(m);
    }
}

static void test_rows_are_found_by_what_a_template_writes(void **state)
{
    size_t rows;
    const struct tools_format *f = tools_formats(&rows);
    char text[256];
    const struct wk_err err = { text, sizeof text };
    (void)state;
    for (size_t i = 0; i < rows; i++) {
        struct byte_buffer one = { 0 }, two = { 0 }, template = { 0 };
        const struct tools_format *found;
        bool single;
        for (size_t k = 0; k < 2; k++)
            if (f[i].marks[k]) append(&template, bytes(f[i].marks[k]));
        append(&one, bytes("<user>\n<assistant>"));
        append(&two, bytes("<user>\n<assistant>"));
        write_row(&f[i], tools_probes, 1, &one);
        if (!f[i].single) write_row(&f[i], tools_probes, 2, &two);
        const struct token_bytes t = { template.data, template.n }, a = { one.data, one.n },
                                 b = { f[i].single ? NULL : two.data, two.n };
        if (tools_find(t, a, b, &found, &single, &err)) fail_msg("%s: %s", f[i].name, text);
        assert_string_equal(found->name, f[i].name);
        assert_int_equal(single, f[i].single);
        /* The same marks, another form: refused. */
        one.data[one.n - 1] ^= 1;
        one.data[one.n / 2] ^= 1;
        assert_int_equal(tools_find(t, a, b, &found, &single, &err), WK_UNSUPPORTED);
        assert_non_null(strstr(text, f[i].name) ? text : strstr(text, "call format"));
        assert_null(found);
        free(one.data);
        free(two.data);
        free(template.data);
    }
    const struct tools_format *found;
    bool single;
    assert_int_equal(tools_find(bytes("{{ x }}"), bytes("x"), bytes(NULL), &found, &single, &err), WK_UNSUPPORTED);
    assert_int_equal(tools_find(bytes("<tool_call>"), bytes(NULL), bytes(NULL), &found, &single, &err), WK_UNSUPPORTED);
}

static void test_ids_have_the_models_form(void **state)
{
    static const struct {
        const char *format, *text, *start;
        size_t n;
    } cases[] = {
        { "hermes", "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>", "call_", 29 },
        { "devstral", "[TOOL_CALLS]ping[ARGS]{}", "", 9 },
        { "mistral-3.2", "[TOOL_CALLS]ping[CALL_ID]abcDEF123[ARGS]{}", "abcDEF123", 9 },
        { "kimi-k2",
          "<|tool_calls_section_begin|><|tool_call_begin|>ping:4<|tool_call_argument_begin|>{}<|tool_call_end|>",
          "functions.ping:0", 16 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tools_model *m = model_of(row(cases[i].format), NULL);
        struct answer a = { 0 }, b = { 0 };
        parse(m, cases[i].text, strlen(cases[i].text), 1, 0, false, &a);
        parse(m, cases[i].text, strlen(cases[i].text), 5, 0, false, &b);
        assert_int_equal(a.n, 1);
        assert_int_equal(strlen(a.call[0].id), cases[i].n);
        assert_memory_equal(a.call[0].id, cases[i].start, strlen(cases[i].start));
        assert_string_equal(a.call[0].id, b.call[0].id); /* by the seed, not by the cuts */
        answer_free(&a);
        answer_free(&b);
        tools_model_close(m);
    }
}

/* ---- what models write otherwise -------------------------------------------------------------------------- */

static void test_variants_that_can_only_be_calls(void **state)
{
    static const struct expected ping = { "ping", "{}" }, search = { "search", "{\"query\": \"x\"}" };
    static const struct {
        const char *format, *text;
        const struct expected *call;
    } cases[] = {
        { "hermes", "<tool_call>{\"name\":\"search\",\"arguments\":{\"query\":\"x\"}}</tool_call>", &search },
        { "hermes", "<tool_call>\n{\"arguments\": {\"query\": \"x\"}, \"name\": \"search\"}\n</tool_call>", &search },
        { "hermes", "<tool_call>\n{\"id\": [1.5, {}], \"name\": \"ping\"}\n</tool_call>", &ping },
        { "hermes", "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}", &search },
        { "hermes", "\n{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}\n</tool_call>", &search },
        { "hermes", "<tool_call>\n{\"name\": \"functions.search\", \"arguments\": {'query': 'x'}}\n</tool_call>",
          &search },
        { "qwen-xml", "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n</tool_call>", &search },
        { "qwen-xml", "<tool_call><function=search><parameter=query>x</parameter></function></tool_call>", &search },
        { "glm-4.5", "<tool_call>search<arg_key>query</arg_key><arg_value>x</arg_value></tool_call>", &search },
        { "glm-4.7", "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n</tool_call>", &search },
        { "mistral", "[TOOL_CALLS] [{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}]", &search },
        { "kimi-k2",
          "<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{\"query\": \"x\"}"
          "<|tool_call_end|><|tool_calls_section_end|>",
          &search },
        { "lfm2", "<|tool_call_start|>[search(query=\"x\")]<|tool_call_end|>", &search },
        { "llama-3", "{\"name\": \"search\", \"parameters\": {\"query\": \"x\"}}", &search },
        { "deepseek-v3.1",
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search"
          "<｜tool▁sep｜>{\"query\": \"x\"}",
          &search },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_in(cases[i].format, cases[i].text, cases[i].call, 1, NULL);
}

static void test_what_is_no_call_comes_back(void **state)
{
    static const struct {
        const char *format, *text;
        uint32_t malformed;
    } cases[] = {
        { "hermes", "I would write <tool_call> here. Then </tool_call>!", 1 },
        { "hermes", "a <tool_cal", 0 },
        { "hermes", "<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>", 1 },
        { "hermes", "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": nothing}}\n</tool_call>", 1 },
        { "hermes", "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"cut", 1 },
        { "hermes", "<tool_call>\n{\"name\": \"search\", \"arguments\": [1]}\n</tool_call>", 1 },
        { "hermes", "{\"name\": \"Bob\", \"arguments\": 3} is an object.", 0 },
        { "llama-3", "{\"name\": \"search\", \"value\": 3}", 0 },
        { "llama-3", "Hello {\"name\": \"search\", \"parameters\": {}}", 0 },
        { "qwen-xml", "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\nI stop", 1 },
        { "mistral", "[TOOL_CALLS][]", 1 },
        { "mistral", "[TOOL_CALLS] are useful", 1 },
        { "lfm2", "<|tool_call_start|>[search(query=x)]<|tool_call_end|>", 1 },
        { "glm-4.5", "<tool_call>nobody\n</tool_call>", 1 },
        { "gemma-4", "<|tool_call>call:search{query:<|\"|>x", 1 },
        { "kimi-k3", "<|open|>tools<|sep|><|open|>call tool=\"nobody\" index=\"1\"<|sep|>", 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tools_model *m = model_of(row(cases[i].format), NULL);
        struct answer a = { 0 };
        expect(m, cases[i].text, strlen(cases[i].text), NULL, 0, cases[i].text, cases[i].format);
        parse(m, cases[i].text, strlen(cases[i].text), 1, 0, false, &a);
        if (a.malformed != cases[i].malformed)
            fail_msg("%s: expected %u malformed, found %u", cases[i].text, cases[i].malformed, a.malformed);
        answer_free(&a);
        tools_model_close(m);
    }
}

/* A call after one that was none, and one after another without the section's end. */
static void test_the_next_call_is_still_found(void **state)
{
    static const struct expected ping = { "ping", "{}" };
    (void)state;
    expect_in("hermes", "<tool_call>oh <tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>", &ping, 1,
              "<tool_call>oh ");
    expect_in("minimax-m2", "<minimax:tool_call>\n<invoke name=\"ping\">\n</invoke>\nSo be it.", &ping, 1,
              "\nSo be it.");
    expect_in("apriel", "<tool_calls>[{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"x\"}]</tool_calls>", &ping,
              1, ", {\"name\": \"x\"}]</tool_calls>");
}

static void test_values_have_the_types_of_the_schema(void **state)
{
    static const struct expected call = {
        "get_weather",
        "{\"city\": \"12\", \"days\": 12, \"live\": true, \"unit\": \"c\", \"limit\": null, \"code\": \"7\", "
        "\"opts\": {\"k\": [true, null, \"it's\"]}, \"free\": [1], \"word\": \"a\\\\b \\\"c\\\"\\n\"}"
    };
    static const char text[] =
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n12\n</parameter>\n"
        "<parameter=live>\nTrue\n</parameter>\n<parameter=unit>\nc\n</parameter>\n<parameter=limit>\nNone\n</"
        "parameter>\n"
        "<parameter=code>\n7\n</parameter>\n<parameter=opts>\n{'k': [True, None, \"it's\"]}\n</parameter>\n"
        "<parameter=free>\n[1]\n</parameter>\n<parameter=word>\na\\b \"c\"\n\n</parameter>\n</function>\n</tool_call>";
    static const struct expected said = { "get_weather", "{\"city\": \"3\", \"days\": \"x\"}" };
    (void)state;
    expect_in("qwen-xml", text, &call, 1, "");
    expect_in("deepseek-v3.2",
              "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
              "string=\"true\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"true\">x"
              "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
              &said, 1, "");
}

/* Strings leave as they come: no byte waits but what may be the end. */
static void test_arguments_stream(void **state)
{
    static const char *const texts[][2] = {
        { "hermes", "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"one two" },
        { "qwen-xml", "<tool_call>\n<function=search>\n<parameter=query>\none two" },
        { "gemma-4", "<|tool_call>call:search{query:<|\"|>one two" },
        { "lfm2", "<|tool_call_start|>[search(query='one two" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tools_model *m = model_of(row(texts[i][0]), NULL);
        struct tools_parser *p;
        const struct tools_event *e;
        size_t n;
        assert_int_equal(tools_parser_open(m, set, 1, false, &p, NULL), WK_OK);
        assert_int_equal(tools_parser_push(p, TOKEN_NONE, bytes(texts[i][1]), &e, &n), WK_OK);
        assert_int_equal(n, 2);
        assert_int_equal(e[0].kind, TOOLS_CALL);
        assert_int_equal(e[1].kind, TOOLS_ARGUMENTS);
        assert_memory_equal(e[1].text.data + e[1].text.len - 7, "one two", 7);
        assert_int_equal(tools_parser_push(p, TOKEN_NONE, bytes("!"), &e, &n), WK_OK);
        assert_int_equal(n, 1);
        assert_int_equal(e[0].text.len, 1);
        tools_parser_close(p);
        tools_model_close(m);
    }
}

static void test_a_single_call(void **state)
{
    static const char one[] = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
    char two[160];
    struct tools_model *m = model_of(row("hermes"), NULL);
    struct answer a = { 0 };
    (void)state;
    (void)snprintf(two, sizeof two, "%s\n%s", one, one);
    parse(m, two, strlen(two), 1, 0, true, &a);
    assert_int_equal(a.n, 1);
    assert_non_null(strstr(a.text.data, one));
    answer_free(&a);
    tools_model_close(m);
}

/* ---- control tokens --------------------------------------------------------------------------------------- */

static void test_marks_are_ids_where_the_vocabulary_has_them(void **state)
{
    static struct builder b;
    static const char *const marks[] = { "[TOOL_CALLS]", "[ARGS]" };
    struct tokenizer *t;
    struct tools_parser *p;
    const struct tools_event *e;
    struct answer a = { 0 };
    size_t n;
    char text[256];
    const struct wk_err err = { text, sizeof text };
    (void)state;
    builder_bpe(&b, "gpt-2");
    for (size_t i = 0; i < 2; i++) builder_token(&b, marks[i], TOKEN_CONTROL, 0);
    if (builder_open(&b, &t, &err)) fail_msg("%s", text);
    struct tools_model *m = model_of(row("devstral"), t);
    const uint32_t *ids = tools_model_marks(m, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], tokenizer_find(t, marks[0], strlen(marks[0])));
    /* The text of a mark is text. */
    const char *forged = "[TOOL_CALLS]ping[ARGS]{}";
    parse(m, forged, strlen(forged), 1, 0, false, &a);
    assert_int_equal(a.n, 0);
    assert_string_equal(a.text.data, forged);
    answer_free(&a);
    /* The tokens are marks; inside a string they end the call. */
    for (int broken = 0; broken < 2; broken++) {
        assert_int_equal(tools_parser_open(m, set, 3, false, &p, NULL), WK_OK);
        const struct {
            uint32_t id;
            const char *text;
        } steps[] = { { ids[0], "" },
                      { TOKEN_NONE, "search" },
                      { ids[1], "" },
                      { TOKEN_NONE, "{\"query\": \"a" },
                      { broken ? ids[1] : TOKEN_NONE, "" },
                      { TOKEN_NONE, "\"}" } };
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            assert_int_equal(tools_parser_push(p, steps[i].id, bytes(steps[i].text), &e, &n), WK_OK);
            take(&a, e, n);
        }
        assert_int_equal(tools_parser_finish(p, &e, &n), WK_OK);
        take(&a, e, n);
        assert_int_equal(a.n, !broken);
        assert_string_equal(a.text.data ? a.text.data : "",
                            broken ? "[TOOL_CALLS]search[ARGS]{\"query\": \"a[ARGS]\"}" : "");
        answer_free(&a);
        tools_parser_close(p);
    }
    tools_model_close(m);
    tokenizer_close(t);
}

/* ---- functions -------------------------------------------------------------------------------------------- */

static void test_functions_are_refused_by_name(void **state)
{
    static const struct {
        struct tools_function f[2];
        size_t n;
        const char *says;
    } cases[] = {
        { { { { "a b", 3 }, { NULL, 0 }, false } }, 1, "function 0" },
        { { { { "", 0 }, { NULL, 0 }, false } }, 1, "function 0" },
        { { { { "f", 1 }, { NULL, 0 }, false }, { { "f", 1 }, { NULL, 0 }, false } }, 2, "\"f\" is given twice" },
        { { { { "f", 1 }, { "[1]", 3 }, false } }, 1, "function \"f\"" },
        { { { { "f", 1 }, { "{\"a\"", 4 }, false } }, 1, "function \"f\"" },
    };
    char text[256];
    const struct wk_err err = { text, sizeof text };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tools_set *s;
        assert_int_equal(tools_set_open(cases[i].f, cases[i].n, &s, &err), WK_INVALID);
        assert_null(s);
        assert_non_null(strstr(text, cases[i].says));
    }
}

/* ---- real templates --------------------------------------------------------------------------------------- */

/* The family of each rendering; NULL: not served, and the reason is said in the table of docs/design.md. */
static const struct {
    const char *template, *format;
} families[] = {
    { "Qwen-Qwen3-4B-Instruct-2507", "hermes" },
    { "Qwen-Qwen3-Coder-30B-A3B-Instruct", "qwen-xml" },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama-3" },
    { "meta-llama-Llama-3.2-3B-Instruct", "llama-3" },
    { "mistralai-Mistral-Nemo-Instruct-2407", "mistral" },
    { "Mistral-Small-3.2-24B-Instruct-2506", "mistral-3.2" },
    { "mistralai-Devstral-Small-2-24B-Instruct-2512", "devstral" },
    { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1" },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1" },
    { "deepseek-ai-DeepSeek-V3.2", "deepseek-v3.2" },
    { "meetkai-functionary-medium-v3.1", "functionary-3.1" },
    { "zai-org-GLM-4.5-Air", "glm-4.5" },
    { "GLM-4.7-Flash", "glm-4.7" },
    { "moonshotai-Kimi-K2.6", "kimi-k2" },
    { "MiniMax-M2", "minimax-m2" },
    { "ibm-granite-granite-4.0", "hermes" },
    { "NVIDIA-Nemotron-Nano-v2", "nemotron-nano" },
    { "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen-xml" },
    { "google-gemma-4-31B-it", "gemma-4" },
    { "Apertus-8B-Instruct", "apertus" },
    { "LFM2.5-8B-A1B", "lfm2" },
    { "ByteDance-Seed-OSS", "seed" },
    { "StepFun3.5-Flash", "step" },
    { "unsloth-Apriel-1.5", "apriel" },
    { "Kimi-K3", "kimi-k3" },
    { "XiaomiMiMo-MiMo-V2-Flash", "mimo" },
};

/* The renderings' ids of Kimi are not of its form; the form holds the name. */
static void name_ids(char *text, size_t cap)
{
    static const char *const ids[][2] = { { "call00001", "functions.get_weather:0" },
                                          { "call00002", "functions.search:1" } };
    for (size_t i = 0; i < 2; i++) {
        char *at = strstr(text, ids[i][0]);
        if (!at) continue;
        const size_t n = strlen(ids[i][1]), tail = strlen(at + 9) + 1;
        assert_true((size_t)(at - text) + n + tail <= cap);
        memmove(at + n, at + 9, tail);
        memcpy(at, ids[i][1], n);
    }
}

static const char *family_of(const char *template)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].template, template) == 0) return families[i].format;
    return NULL;
}

static void data_renderings_of_real_templates(void **state)
{
    size_t n, index, seen = 0;
    char *file = data_read("templates_real/tool_call_renderings.json", &n);
    json_t *all = json_loadb(file, n, 0, NULL), *rendering;
    (void)state;
    assert_non_null(all);
    struct expected calls[2];
    char *arguments[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *call = json_array_get(json_object_get(all, "calls"), i);
        arguments[i] = json_dumps(json_object_get(call, "arguments"), 0);
        calls[i] = (struct expected){ json_string_value(json_object_get(call, "name")), arguments[i] };
    }
    json_array_foreach (json_object_get(all, "formats"), index, rendering) {
        const char *template = json_string_value(json_object_get(rendering, "template"));
        const char *format = family_of(template);
        if (!format) continue;
        seen++;
        struct tools_model *m = model_of(row(format), NULL);
        for (size_t i = 0; i < 2; i++) {
            char text[4096];
            const char *given = json_string_value(json_object_get(rendering, i ? "two_calls" : "one_call"));
            if (!given) continue;
            /* Bare JSON is the answer's beginning; what was rendered before it is the prompt. */
            const char *begin = strcmp(format, "llama-3") == 0 ? strstr(given, "{\"name\"") : given;
            (void)snprintf(text, sizeof text, "%s", begin);
            if (row(format)->ids == TOOLS_ID_KIMI) name_ids(text, sizeof text);
            expect(m, text, strlen(text), calls, i + 1, NULL, template);
        }
        tools_model_close(m);
    }
    assert_int_equal(seen, sizeof families / sizeof *families);
    for (size_t i = 0; i < 2; i++) free(arguments[i]);
    json_decref(all);
    free(file);
}

/* Each row's templates among the test data; those of no row call nothing, or in a form that is not served. */
static const struct {
    const char *format, *templates;
} found_rows[] = {
    { "apertus", " Apertus-8B-Instruct.jinja " },
    { "apriel-id", " Apriel-1.6-15b-Thinker-fixed.jinja ServiceNow-AI-Apriel-1.5-15b-Thinker.jinja "
                   "unsloth-Apriel-1.5.jinja " },
    { "deepseek-r1", " deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja microsoft-MAI-DS-R1.jinja "
                     "unsloth-r1-1776.jinja " },
    { "deepseek-v3.1", " deepseek-ai-DeepSeek-V3.1.jinja " },
    { "deepseek-v3.2", " deepseek-ai-DeepSeek-V3.2.jinja " },
    { "deepseek-v4", " deepseek-ai-DeepSeek-V4-Flash-0731.jinja deepseek-ai-DeepSeek-V4.jinja "
                     "unsloth-DeepSeek-V4-Flash.jinja " },
    { "devstral", " mistralai-Devstral-Small-2-24B-Instruct-2512.jinja "
                  "mistralai-Ministral-3-14B-Reasoning-2512.jinja "
                  "mistralai-Ministral-3-3B-Instruct-2512.jinja unsloth-mistral-Devstral-Small-2507.jinja " },
    { "frog", " microsoft-FrogBoss-32B-2510.jinja " },
    { "functionary-3.1", " kakaocorp-kanana-1.5-8b-instruct-2505.jinja meetkai-functionary-medium-v3.1.jinja " },
    { "gemma-4", " google-gemma-4-26B-A4B-it.jinja google-gemma-4-31B-it-interleaved.jinja "
                 "google-gemma-4-31B-it.jinja google-gemma-4-E4B-it.jinja " },
    { "gigachat-3.1", " GigaChat3.1-10B-A1.8B.jinja ai-sage-GigaChat3.1-Audio-10B-A1.8B.jinja " },
    { "glm-4.5", " GLM-4.6.jinja poolside-Laguna-XS-2.1.jinja poolside-Laguna-XS.2.jinja "
                 "zai-org-GLM-4.5-Air.jinja zai-org-GLM-4.6V.jinja " },
    { "glm-4.7", " GLM-4.7-Flash.jinja poolside-Laguna-S-2.1.jinja zai-org-GLM-5.1.jinja "
                 "zai-org-GLM-5.2.jinja " },
    { "hermes", " Bielik-11B-v3.0-Instruct.jinja JetBrains-Mellum2-12B-A2.5B-Instruct.jinja MiMo-VL.jinja "
                "NightPrince-Muslim-6B-PRO.jinja NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja "
                "NousResearch-Hermes-4-14B.jinja Qwen-QwQ-32B.jinja Qwen-QwQ-32B@16488a.jinja "
                "Qwen-Qwen2.5-7B-Instruct.jinja Qwen-Qwen3-0.6B.jinja Qwen-Qwen3-4B-Instruct-2507.jinja "
                "Qwen-Qwen3-4B-Thinking-2507.jinja Qwen-Qwen3-Embedding-8B.jinja "
                "Qwen-Qwen3-Omni-30B-A3B-Instruct.jinja Qwen-Qwen3-VL-8B-Instruct.jinja "
                "ibm-granite-granite-4.0.jinja ibm-granite-granite-4.1.jinja "
                "ibm-granite-granite-switch-4.1-3b-preview.jinja ibm-granite-granite-vision-4.1-4b.jinja " },
    { "intern", " internlm-Intern-S1-mini.jinja " },
    { "kimi-k2", " moonshotai-Kimi-K2.5.jinja moonshotai-Kimi-K2.6.jinja moonshotai-Kimi-K2.7-Code.jinja "
                 "moonshotai-Kimi-K2.jinja moonshotai-Kimi-Linear-48B-A3B-Instruct.jinja " },
    { "kimi-k3", " Kimi-K3.jinja " },
    { "lfm2", " LFM2.5-8B-A1B.jinja " },
    { "lfm2-double", " LiquidAI-LFM2.5-VL-450M.jinja " },
    { "ling", " inclusionAI-Ring-2.6-1T.jinja inclusionai-ling-3.0-flash.jinja " },
    { "llama-3", " meta-llama-Llama-3.1-8B-Instruct.jinja meta-llama-Llama-3.2-3B-Instruct.jinja " },
    { "mimo", " XiaomiMiMo-MiMo-V2-Flash.jinja " },
    { "minicpm3", " openbmb-MiniCPM3-4B.jinja " },
    { "minimax-m1", " MiniMax-M1.jinja " },
    { "minimax-m2", " MiniMax-M2.jinja MiniMaxAI-MiniMax-M2.5.jinja " },
    { "mistral", " 0xA50C1A1-Mistral-Nemo-Instruct-2407-Heretic-v2.jinja "
                 "mistralai-Mistral-Nemo-Instruct-2407.jinja " },
    { "mistral-0.3", " mistralai-Mistral-7B-Instruct-v0.3.jinja " },
    { "mistral-3.2", " Mistral-Small-3.2-24B-Instruct-2506.jinja " },
    { "nemotron-nano", " NVIDIA-Nemotron-Nano-v2.jinja " },
    { "olmo-3", " allenai-Olmo-3-7B-Instruct.jinja " },
    { "qwen-xml", " NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja Qwen-Qwen3-Coder-30B-A3B-Instruct.jinja "
                  "Qwen-Qwen3-Coder-Next.jinja Qwen-Qwen3.6-35B-A3B.jinja Qwen3-Coder.jinja Qwen3.5-4B.jinja "
                  "arcee-ai-Trinity-Large-Thinking.jinja nvidia-Cosmos3-Edge.jinja " },
    { "seed", " ByteDance-Seed-OSS.jinja " },
    { "solar", " upstage-Solar-Open-100B.jinja " },
    { "step", " StepFun3.5-Flash.jinja stepfun-ai-Step-3.7-Flash.jinja " },
    { "gigachat-3", " GigaChat3-10B-A1.8B.jinja " },
};

#define PROBE_TOOL(name)                                        \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name \
    "\", \"description\": \"d\", \"parameters\": {\"type\": "   \
    "\"object\", \"properties\": {\"text\": {\"type\": \"string\"}}}}}"

/* What a template makes of the first n probes; data NULL: it refuses. In its own memory. */
static struct byte_buffer render(const struct jinja_template *t, size_t n, bool arguments_as_text)
{
    static const char result[] = "{\"role\": \"tool\", \"content\": \"r\", \"name\": \"probe_one\", \"tool_call_id\": "
                                 "\"probe0001\"}";
    char json[4096];
    size_t at =
        (size_t)snprintf(json, sizeof json,
                         "{\"bos_token\": \"<BOS>\", \"eos_token\": \"<EOS>\", \"tools\": [%s, %s], \"messages\": "
                         "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"\", "
                         "\"tool_calls\": [",
                         PROBE_TOOL("probe_one"), PROBE_TOOL("probe_two"));
    for (size_t i = 0; i < n; i++) {
        json_t *arguments = json_stringn(tools_probes[i].arguments.data, tools_probes[i].arguments.len);
        char *quoted = json_dumps(arguments, JSON_ENCODE_ANY);
        at += (size_t)snprintf(json + at, sizeof json - at,
                               "%s{\"id\": \"%s\", \"type\": \"function\", \"function\": {\"name\": \"%s\", "
                               "\"arguments\": %s}}",
                               i ? ", " : "", tools_probes[i].id.data, tools_probes[i].name.data,
                               arguments_as_text ? quoted : tools_probes[i].arguments.data);
        free(quoted);
        json_decref(arguments);
    }
    at += (size_t)snprintf(json + at, sizeof json - at, "]}, %s]}", result);
    assert_true(at < sizeof json);
    const struct jinja_options options = { 0 };
    struct jinja_values *values = jinja_values_new();
    struct jinja_value *context;
    struct jinja_result r = { 0 };
    struct byte_buffer out = { 0 };
    assert_int_equal(jinja_from_json(values, json, at, "context", &context, NULL), WK_OK);
    if (!jinja_render(t, context, &options, &r, NULL)) append(&out, (struct token_bytes){ r.text, r.n });
    jinja_result_free(&r);
    jinja_values_free(values);
    return out;
}

static const char *row_of_template(const char *source, size_t len)
{
    struct jinja_template *t;
    const struct tools_format *f = NULL;
    if (jinja_open(&t, source, len, NULL)) return "";
    for (int as_text = 0; as_text < 2 && !f; as_text++) {
        bool single;
        struct byte_buffer one = render(t, 1, as_text), two = render(t, 2, as_text);
        (void)tools_find((struct token_bytes){ source, len }, (struct token_bytes){ one.data, one.n },
                         (struct token_bytes){ two.data, two.n }, &f, &single, NULL);
        free(one.data);
        free(two.data);
    }
    jinja_close(t);
    return f ? f->name : "";
}

static void data_real_templates_find_their_rows(void **state)
{
    char path[DATA_PATH_MAX], name[512];
    size_t n_found = 0, expected = 0;
    DIR *folder = opendir(data_path(path, "templates_real/templates"));
    (void)state;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        size_t len;
        if (e->d_name[0] == '.') continue;
        (void)snprintf(name, sizeof name, "templates_real/templates/%s", e->d_name);
        char *source = data_read(name, &len);
        const char *found = row_of_template(source, len);
        (void)snprintf(name, sizeof name, " %s ", e->d_name);
        free(source);
        const char *row_name = "";
        for (size_t i = 0; i < sizeof found_rows / sizeof *found_rows; i++)
            if (strstr(found_rows[i].templates, name)) row_name = found_rows[i].format;
        if (strcmp(found, row_name) != 0) fail_msg("%s: expected row \"%s\", found \"%s\"", name, row_name, found);
        n_found += *found != '\0';
    }
    (void)closedir(folder);
    for (size_t i = 0; i < sizeof found_rows / sizeof *found_rows; i++)
        for (const char *at = found_rows[i].templates; (at = strstr(at, ".jinja")); at++) expected++;
    assert_int_equal(n_found, expected);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_reads_what_it_writes),
        cmocka_unit_test(test_text_around_calls_stays),
        cmocka_unit_test(test_rows_are_found_by_what_a_template_writes),
        cmocka_unit_test(test_ids_have_the_models_form),
        cmocka_unit_test(test_variants_that_can_only_be_calls),
        cmocka_unit_test(test_what_is_no_call_comes_back),
        cmocka_unit_test(test_the_next_call_is_still_found),
        cmocka_unit_test(test_values_have_the_types_of_the_schema),
        cmocka_unit_test(test_arguments_stream),
        cmocka_unit_test(test_a_single_call),
        cmocka_unit_test(test_marks_are_ids_where_the_vocabulary_has_them),
        cmocka_unit_test(test_functions_are_refused_by_name),
        cmocka_unit_test(data_renderings_of_real_templates),
        cmocka_unit_test(data_real_templates_find_their_rows),
    };
    choose_tests(argc, argv);
    return cmocka_run_group_tests(tests, open_set, close_set);
}
