/* test_functions.h: what the tests of core/tools share: a request's functions, an answer as its reader has it, and
 * answers cut at every place. Included once by each test. */
#ifndef CORE_TOOLS_TEST_FUNCTIONS_H
#define CORE_TOOLS_TEST_FUNCTIONS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "vocab_builder.h"
#include "tools/test_row.h"
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

#endif
