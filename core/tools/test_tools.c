/* test_tools.c: every row of the table reads back, cut anywhere, the calls that it writes; what is no call comes back
 * as text. */
#include "tools/test_functions.h"

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

/* Calls without marks are an answer's beginning. */
static bool bare(const struct tools_format *f)
{
    return f->begin ? strcmp(f->begin, "[") == 0 : strncmp(f->call, "$OBJECT", 7) == 0;
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
        if (bare(&f[i])) {
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
          "functions.ping:4", 16 },
    };
    (void)state;
    /* Kimi counts on through the conversation; what is no index, or one that was given, becomes the next. */
    static const char kimi[] =
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:7<|tool_call_argument_begin|>"
        "{}<|tool_call_end|><|tool_call_begin|>ping<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_call_begin|>functions.ping:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>";
    struct tools_model *k2 = model_of(row("kimi-k2"), NULL);
    struct answer k = { 0 };
    parse(k2, kimi, sizeof kimi - 1, 1, 0, false, &k);
    assert_int_equal(k.n, 3);
    assert_string_equal(k.call[0].id, "functions.ping:7");
    assert_string_equal(k.call[1].id, "functions.ping:8");
    assert_string_equal(k.call[2].id, "functions.ping:9");
    answer_free(&k);
    tools_model_close(k2);
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

static void expect_in(const char *format, const char *text, const struct expected *calls, size_t n, const char *content)
{
    struct tools_model *m = model_of(row(format), NULL);
    expect(m, text, strlen(text), calls, n, content, format);
    tools_model_close(m);
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

/* The prompt has the first call's mark; "all" is who text is for. */
static void test_an_opened_call(void **state)
{
    static const struct expected search = { "search", "{\"query\": \"x\"}" };
    static const struct expected two[] = { { "search", "{\"query\": \"x\"}" }, { "ping", "{}" } };
    (void)state;
    expect_in("functionary-3.2", "all\nHello, all\nof >> you.", NULL, 0, "Hello, all\nof >> you.");
    expect_in("functionary-3.2", "all", NULL, 0, "all");
    expect_in("functionary-3.2", "search of nothing", NULL, 0, "search of nothing");
    expect_in("functionary-3.2", "search\n{\"query\": \"x\"}", &search, 1, "");
    expect_in("functionary-3.2", ">>>search\n{\"query\": \"x\"}", &search, 1, "");
    expect_in("functionary-3.2", "all\nI look.>>>search\n{\"query\": \"x\"}>>>ping\n{}", two, 2, "I look.");
    expect_in("functionary-3.2", "search\n{\"query\": \"x\"}>>>all\nSo.", &search, 1, "So.");
}

static void test_cdata(void **state)
{
#define SEARCH(value) "<function name=\"search\"><param name=\"query\">" value "</param></function>"
    static const struct {
        const char *text, *query;
    } cases[] = {
        { SEARCH("<![CDATA[a < b && c\n</param>]]>"), "{\"query\": \"a < b && c\\n</param>\"}" },
        { SEARCH("<![CDATA[a]]]]><![CDATA[>b]]>"), "{\"query\": \"a]]>b\"}" },
        { SEARCH("<![CDATA[[1]]]>"), "{\"query\": \"[1]\"}" },
        { SEARCH("<![CDATA[]]>"), "{\"query\": \"\"}" },
        { SEARCH("<![CDAT <b>"), "{\"query\": \"<![CDAT <b>\"}" },
        { SEARCH("x <![CDATA[y]]>"), "{\"query\": \"x <![CDATA[y]]>\"}" },
    };
    static const struct tools_written call = { TEXT("search"), TEXT("{\"query\": \"<]]>\"}"), TEXT("") };
    struct byte_buffer out = { 0 };
    char text[256];
    const struct wk_err err = { text, sizeof text };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct expected expected = { "search", cases[i].query };
        expect_in("minicpm-5", cases[i].text, &expected, 1, "");
    }
    assert_int_equal(tools_write(row("minicpm-5"), &call, 1, &out, &err), WK_UNSUPPORTED);
    assert_non_null(strstr(text, "\"minicpm-5\" has no form for a string with ]]>"));
    free(out.data);
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

/* What other programs' parsers lost, as their users told. */
static void test_what_models_write_into_calls(void **state)
{
    static const struct {
        const char *format, *text;
        struct expected call;
    } cases[] = {
        /* a text about calls: tags in a value end it only where a parameter or the call's end follows */
        { "qwen-xml",
          "<tool_call>\n<function=search>\n<parameter=query>\na </parameter> "
          "b\n</parameter>\n<function=x>\n</parameter>\n"
          "</function>\n</tool_call>",
          { "search", "{\"query\": \"a </parameter> b\\n</parameter>\\n<function=x>\"}" } },
        { "glm-4.5",
          "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>y</arg_value>\n<arg_key>days</"
          "arg_key>\n"
          "<arg_value>3</arg_value>\n</tool_call>",
          { "get_weather", "{\"city\": \"x</arg_value>y\", \"days\": 3}" } },
        { "minimax-m2",
          "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"opts\">{\"k\": "
          "\"</parameter>\"}</parameter>\n"
          "</invoke>\n</minimax:tool_call>",
          { "get_weather", "{\"opts\": {\"k\": \"</parameter>\"}}" } },
        /* nothing is no number */
        { "qwen-xml",
          "<tool_call>\n<function=get_weather>\n<parameter=days>\n\n</parameter>\n<parameter=city>\n\n</parameter>\n"
          "</function>\n</tool_call>",
          { "get_weather", "{\"city\": \"\"}" } },
        /* what is no value of its type comes through as it was written */
        { "qwen-xml",
          "<function=get_weather><parameter=days>2026-01-15</parameter></function></tool_call>",
          { "get_weather", "{\"days\": \"2026-01-15\"}" } },
        { "glm-4.7",
          "<tool_call>search\n<arg_key>query</arg_key><arg_value> 10001 </arg_value></tool_call>",
          { "search", "{\"query\": \" 10001 \"}" } },
        /* arguments that are null, or JSON in a string */
        { "hermes", "<tool_call>\n{\"name\": \"ping\", \"arguments\": null}\n</tool_call>", { "ping", "{}" } },
        { "hermes",
          "<tool_call>\n{\"name\": \"search\", \"arguments\": \"{\\\"query\\\": \\\"\\u00e9\\\"}\"}\n</tool_call>",
          { "search", "{\"query\": \"\xC3\xA9\"}" } },
        { "hermes", "<tool_call>\n{\"arguments\": \"{}\", \"name\": \"ping\"}\n</tool_call>", { "ping", "{}" } },
        /* the form of OpenAI's interface */
        { "hermes",
          "<tool_call>\n{\"id\": \"x\", \"type\": \"function\", \"function\": {\"name\": \"ping\", \"arguments\": "
          "{}}}\n"
          "</tool_call>",
          { "ping", "{}" } },
        /* all of a call in one step, and one without its end */
        { "deepseek-v3.1",
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}"
          "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          { "ping", "{}" } },
        { "kimi-k2", "<|tool_call_begin|>functions.ping:3<|tool_call_argument_begin|>{}", { "ping", "{}" } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_in(cases[i].format, cases[i].text, &cases[i].call, 1, NULL);
}

/* Members and items as elements; the schema says what is text. */
static void test_elements(void **state)
{
#define NS "]<]minimax[>["
#define NESTED(inside) NS "<tool_call>\n" NS "<invoke name=\"get_weather\">" inside NS "</invoke>\n" NS "</tool_call>"
#define ELEMENT(name, inside) NS "<" name ">" inside NS "</" name ">"
    static const struct {
        const char *text, *arguments;
    } cases[] = {
        { NESTED(""), "{}" },
        { NESTED(ELEMENT("city", " 12 ]<]mini </city>\n")), "{\"city\": \" 12 ]<]mini </city>\\n\"}" },
        { NESTED(ELEMENT("city", "") ELEMENT("opts", "") ELEMENT("days", "3")),
          "{\"city\": \"\", \"opts\": {}, \"days\": 3}" },
        { NESTED(ELEMENT("opts", ELEMENT("item", "1") ELEMENT("k", ELEMENT("item", "a") ELEMENT("item", "2")))),
          "{\"opts\": {\"item\": 1, \"k\": [\"a\", 2]}}" },
        { NESTED(ELEMENT("opts", "{\"k\": [1, null]}")), "{\"opts\": {\"k\": [1, null]}}" },
        { NESTED(ELEMENT("live", "True") ELEMENT("code", "7") ELEMENT("limit", "null")),
          "{\"live\": true, \"code\": \"7\", \"limit\": null}" },
    };
    static const char *const none[] = {
        NESTED(NS "<city>x" NS "</town>"), NESTED(NS "<city>x"),
        NESTED("x" ELEMENT("city", "y")),  NESTED(ELEMENT("opts", "x" ELEMENT("k", "y"))),
        NESTED(NS "<>x" NS "</>"),
    };
    struct byte_buffer deep = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct expected call = { "get_weather", cases[i].arguments };
        expect_in("minimax-m3", cases[i].text, &call, 1, "");
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) expect_in("minimax-m3", none[i], NULL, 0, none[i]);
    append(&deep, bytes(NS "<tool_call>" NS "<invoke name=\"ping\">"));
    for (int i = 0; i < 40; i++) append(&deep, bytes(NS "<k>"));
    expect_in("minimax-m3", deep.data, NULL, 0, deep.data);
    free(deep.data);
}

/* An id that names no function is of the only one that there is. */
static void test_an_id_without_a_name(void **state)
{
    static const char text[] = "<|tool_calls_section_begin|><|tool_call_begin|>call00003<|tool_call_argument_begin|>{}"
                               "<|tool_call_end|><|tool_calls_section_end|>";
    struct tools_set *all = set;
    (void)state;
    expect_in("kimi-k2", text, NULL, 0, text);
    assert_int_equal(tools_set_open(&functions[2], 1, &set, NULL), WK_OK);
    expect_in("kimi-k2", text, &(struct expected){ "ping", "{}" }, 1, "");
    tools_set_close(set);
    set = all;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_reads_what_it_writes),
        cmocka_unit_test(test_text_around_calls_stays),
        cmocka_unit_test(test_ids_have_the_models_form),
        cmocka_unit_test(test_variants_that_can_only_be_calls),
        cmocka_unit_test(test_what_is_no_call_comes_back),
        cmocka_unit_test(test_the_next_call_is_still_found),
        cmocka_unit_test(test_an_opened_call),
        cmocka_unit_test(test_cdata),
        cmocka_unit_test(test_values_have_the_types_of_the_schema),
        cmocka_unit_test(test_what_models_write_into_calls),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_an_id_without_a_name),
        cmocka_unit_test(test_arguments_stream),
        cmocka_unit_test(test_a_single_call),
        cmocka_unit_test(test_marks_are_ids_where_the_vocabulary_has_them),
        cmocka_unit_test(test_functions_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_set, close_set);
}
