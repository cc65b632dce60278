/* fuzz_tools.c: libFuzzer target. The first byte chooses a row of the table, the second how the answer is cut and what
 * it is: the rest of the input, alone, behind two calls that the row writes, or somewhere in them; or the rest as a
 * text of the past, whose functions are not known. Whatever the cuts: the same text, the same calls; arguments that are
 * JSON; and no byte is lost: what is in no call is text. Build with -DWORKER_FUZZ=ON and clang. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/json_reader.h"
#include "tools/internal.h"

struct result {
    struct byte_buffer text, calls; /* calls: name, 0, arguments, 0 */
    uint32_t n;
    size_t at; /* in calls: where the open one begins */
    bool open;
};

static void add(struct byte_buffer *b, const char *bytes, size_t n)
{
    if (!tools_put(b, bytes, n)) abort();
}

static void check_arguments(const struct result *r)
{
    struct json_reader j;
    const char *text = r->calls.data + r->at;
    text += strlen(text) + 1;
    jr_open(&j, text, r->calls.n - (size_t)(text - r->calls.data), "", "", NULL);
    /* Half of a surrogate pair is JSON's grammar, and more levels than the reader takes cannot come. */
    if (!(jr_peek(&j) == JR_OBJECT && jr_skip(&j) && jr_finish(&j)) && !memmem(text, strlen(text), "\\u", 2)) abort();
    jr_close(&j);
}

static void take(struct result *r, const struct tools_event *e, size_t n)
{
    for (; n; n--, e++) {
        if (e->index != r->n || r->open != (e->kind != TOOLS_TEXT && e->kind != TOOLS_CALL)) abort();
        switch (e->kind) {
        case TOOLS_TEXT: add(&r->text, e->text.data, e->text.len); break;
        case TOOLS_CALL:
            r->at = r->calls.n;
            r->open = true;
            add(&r->calls, e->text.data, e->text.len);
            add(&r->calls, "", 1);
            if (!e->id.len) abort();
            break;
        case TOOLS_ARGUMENTS: add(&r->calls, e->text.data, e->text.len); break;
        case TOOLS_END:
            check_arguments(r);
            add(&r->calls, "", 1);
            r->open = false;
            r->n++;
            break;
        default:
            r->calls.n = r->at;
            r->open = false;
            break;
        }
    }
}

static void parse(const struct tools_model *m, const struct tools_set *s, const uint8_t *data, size_t size,
                  size_t piece, struct result *r)
{
    struct tools_parser *p;
    const struct tools_event *e;
    size_t n;
    if (tools_parser_open(m, s, 1, false, &p, NULL)) abort();
    for (size_t at = 0; at < size; at += piece) {
        const size_t len = size - at < piece ? size - at : piece;
        if (tools_parser_push(p, TOKEN_NONE, (struct token_bytes){ (const char *)data + at, len }, &e, &n)) abort();
        take(r, e, n);
    }
    if (tools_parser_finish(p, &e, &n)) abort();
    take(r, e, n);
    if (r->open || tools_parser_calls(p) != r->n) abort();
    tools_parser_close(p);
}

/* The text is the input without some of its bytes; without calls, without white space at most, and without what says
 * that text follows. */
static void check_text(const struct tools_format *f, const struct result *r, const uint8_t *data, size_t size)
{
    size_t at = 0;
    if (f->said) return;
    for (size_t i = 0; i < size; i++) {
        if (at < r->text.n && (uint8_t)r->text.data[at] == data[i])
            at++;
        else if (!r->n && !unit_is_space(data[i]))
            abort();
    }
    if (at != r->text.n) abort();
}

/* What the row writes, with the input in it at one place of 256, or behind it. */
static void write_answer(const struct tools_format *f, bool inside, const uint8_t *data, size_t size,
                         struct byte_buffer *out)
{
#define BYTES(text) { text, sizeof text - 1 }
    static const struct tools_written calls[] = {
        { BYTES("f"), BYTES("{\"s\": \"a <b> c\\n\", \"n\": 3, \"u\": null}"), BYTES("functions.f:0") },
        { BYTES("g"), BYTES("{\"k\": \"v\", \"o\": {\"a\": [1, {}]}}"), BYTES("functions.g:1") },
    };
    struct byte_buffer text = { 0 };
    if (tools_write(f, calls, f->single ? 1 : 2, &text, NULL)) abort();
    const size_t at = inside && size ? text.n * data[0] / 256 : text.n;
    add(out, text.data, at);
    add(out, (const char *)data, size);
    add(out, text.data + at, text.n - at);
    free(text.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char schema[] =
        "{\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"u\": "
        "{\"type\": [\"string\", \"null\"]}}}";
    static const struct tools_function functions[] = { { { "f", 1 }, { schema, sizeof schema - 1 }, false },
                                                       { { "g", 1 }, { NULL, 0 }, false } };
    enum { ALONE, BEHIND, INSIDE, PAST };
    static struct tools_set *all;
    struct result a = { 0 }, b = { 0 };
    struct byte_buffer answer = { 0 };
    struct tools_model *m;
    size_t rows;
    const struct tools_format *f = tools_formats(&rows);
    if (!all && tools_set_open(functions, 2, &all, NULL)) abort();
    if (size < 2) return 0;
    f += data[0] % rows;
    const int mode = data[1] >> 6;
    const struct tools_set *s = mode == PAST ? NULL : all;
    if (tools_model_open(f, NULL, &m, NULL)) abort();
    if (mode == BEHIND || mode == INSIDE)
        write_answer(f, mode == INSIDE, data + 2, size - 2, &answer);
    else
        add(&answer, (const char *)data + 2, size - 2);
    parse(m, s, (const uint8_t *)answer.data, answer.n, 1, &a);
    parse(m, s, (const uint8_t *)answer.data, answer.n, (data[1] & 63) + 2u, &b);
    if (a.n != b.n || a.text.n != b.text.n || a.calls.n != b.calls.n) abort();
    if (a.text.n && memcmp(a.text.data, b.text.data, a.text.n) != 0) abort();
    if (a.calls.n && memcmp(a.calls.data, b.calls.data, a.calls.n) != 0) abort();
    check_text(f, &a, (const uint8_t *)answer.data, answer.n);
    /* Where nothing is noticed there is nothing to split. */
    if (mode == PAST && a.n && !tools_model_notices(m, (struct token_bytes){ answer.data, answer.n })) abort();
    free(a.text.data);
    free(a.calls.data);
    free(b.text.data);
    free(b.calls.data);
    free(answer.data);
    tools_model_close(m);
    return 0;
}
