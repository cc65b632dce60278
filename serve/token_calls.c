/* token_calls.c: see token_calls.h. */
#include "token_calls.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/json_reader.h"

struct token_calls {
    const struct tools_set *set;
    struct tools_parser *parser; /* NULL: harmony */
    uint64_t seed;
    bool single, masked, alone, cut;
    bool lost;                  /* a call that was cut was begun: what the parser makes text of it is none */
    struct tools_event *events; /* their texts are places in texts: data is set when they are asked for */
    size_t n_events, cap_events;
    struct byte_buffer texts;
    struct byte_buffer blanks; /* that the answer begins with: they go if a call follows */
    bool begun;                /* something else was said */
    /* harmony */
    bool open; /* a call's message is being read */
    char name[HARMONY_NAME];
    struct byte_buffer arguments;
    uint32_t calls, malformed;
};

wk_status token_calls_open(const struct tools_model *m, const struct tools_set *set, uint64_t seed, bool single,
                           bool masked, struct token_calls **out, const struct wk_err *err)
{
    struct token_calls *c = *out = calloc(1, sizeof *c);
    if (!c) return wk_fail(err, WK_NO_MEMORY, "no memory for an answer's calls");
    c->set = set;
    c->seed = seed;
    c->single = single;
    c->masked = masked;
    const wk_status status = m ? tools_parser_open(m, set, seed, single, &c->parser, err) : WK_OK;
    if (!status) return WK_OK;
    token_calls_close(c);
    *out = NULL;
    return status;
}

void token_calls_close(struct token_calls *c)
{
    if (!c) return;
    tools_parser_close(c->parser);
    free(c->events);
    free(c->texts.data);
    free(c->blanks.data);
    free(c->arguments.data);
    free(c);
}

/* ---- events -------------------------------------------------------------------------------------------- */

static bool append(struct byte_buffer *b, struct token_bytes t)
{
    if (t.len > b->cap - b->n) {
        const size_t cap = 2 * b->cap + t.len;
        char *grown = cap > b->cap ? realloc(b->data, cap) : NULL;
        if (!grown) return false;
        b->data = grown;
        b->cap = cap;
    }
    if (t.len) memcpy(b->data + b->n, t.data, t.len);
    b->n += t.len;
    return true;
}

void token_calls_begin(struct token_calls *c) { c->n_events = c->texts.n = 0; }

static bool tell(struct token_calls *c, const struct tools_event *e)
{
    if (c->n_events == c->cap_events) {
        const size_t cap = 2 * c->cap_events + 8;
        void *grown = realloc(c->events, cap * sizeof *c->events);
        if (!grown) return false;
        c->events = grown;
        c->cap_events = cap;
    }
    c->events[c->n_events++] = *e;
    return append(&c->texts, e->text) && append(&c->texts, e->id);
}

static bool is_blank(struct token_bytes t)
{
    for (size_t i = 0; i < t.len; i++)
        if (t.data[i] != ' ' && (t.data[i] < '\t' || t.data[i] > '\r')) return false;
    return true;
}

static bool flush_blanks(struct token_calls *c, struct byte_buffer *text)
{
    const bool ok = append(text, (struct token_bytes){ c->blanks.data, c->blanks.n });
    c->blanks.n = 0;
    return ok;
}

static bool take_text(struct token_calls *c, struct token_bytes said, struct byte_buffer *text)
{
    if (c->alone) return true; /* what a limit has cut, or blanks */
    if (!c->begun && is_blank(said)) return append(&c->blanks, said);
    c->begun = true;
    return flush_blanks(c, text) && append(text, said);
}

static bool take(struct token_calls *c, const struct tools_event *events, size_t n, struct byte_buffer *text)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TOOLS_END) c->blanks.n = 0;
        if (events[i].kind == TOOLS_BROKEN && c->masked && c->cut) c->lost = true;
        if (c->lost) return true;
        if (!(events[i].kind == TOOLS_TEXT ? take_text(c, events[i].text, text) : tell(c, &events[i]))) return false;
    }
    return true;
}

const struct tools_event *token_calls_events(const struct token_calls *c, size_t *n)
{
    size_t at = 0;
    for (size_t i = 0; i < c->n_events; i++) {
        struct tools_event *e = &c->events[i];
        e->text.data = c->texts.data + at;
        e->id.data = e->text.data + e->text.len;
        at += e->text.len + e->id.len;
    }
    *n = c->n_events;
    return c->events;
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

bool token_calls_push(struct token_calls *c, uint32_t id, struct token_bytes piece, struct byte_buffer *text)
{
    const struct tools_event *events;
    size_t n;
    if (!c->parser) return append(text, piece);
    return !tools_parser_push(c->parser, id, piece, &events, &n) && take(c, events, n, text);
}

/* ---- harmony's messages -------------------------------------------------------------------------------- */

/* The function that a recipient names; data NULL: none that was offered. */
static struct token_bytes function_of(const struct token_calls *c, const char *recipient)
{
    static const char space[] = "functions.";
    const size_t skip = strncmp(recipient, space, sizeof space - 1) == 0 ? sizeof space - 1 : 0;
    const struct token_bytes name = { recipient + skip, strlen(recipient + skip) };
    return tools_set_has(c->set, name) ? name : (struct token_bytes){ 0 };
}

static bool tell_message(struct token_calls *c, enum tools_kind kind, struct token_bytes text)
{
    char id[TOOLS_ID];
    struct tools_event e = { .kind = kind, .index = c->calls, .text = text };
    if (kind == TOOLS_CALL) e.id = (struct token_bytes){ id, tools_call_id(TOOLS_ID_OPENAI, c->seed, c->calls, id) };
    return tell(c, &e);
}

static bool end_message(struct token_calls *c, struct byte_buffer *text)
{
    const struct token_bytes name = function_of(c, c->name), arguments = { c->arguments.data, c->arguments.n };
    const bool told = c->masked && name.data;
    c->open = false;
    if (told && c->cut) return true;
    if (!name.data || !jr_is_object(arguments.data, arguments.len)) {
        c->malformed++;
        return (!told || tell_message(c, TOOLS_BROKEN, (struct token_bytes){ 0 })) && append(text, arguments);
    }
    const bool ok = told || (tell_message(c, TOOLS_CALL, name) && tell_message(c, TOOLS_ARGUMENTS, arguments));
    if (!ok || !tell_message(c, TOOLS_END, (struct token_bytes){ 0 })) return false;
    c->calls++;
    return true;
}

bool token_calls_message(struct token_calls *c, const struct harmony_header *h, const struct harmony_event *e,
                         struct byte_buffer *text)
{
    if (e->kind == HARMONY_BEGIN) {
        c->open = true;
        c->arguments.n = 0;
        memcpy(c->name, h->recipient, sizeof c->name);
    }
    const struct token_bytes name = c->masked ? function_of(c, c->name) : (struct token_bytes){ 0 };
    if (e->kind == HARMONY_BEGIN) return !name.data || tell_message(c, TOOLS_CALL, name);
    if (e->kind == HARMONY_TEXT)
        return append(&c->arguments, e->text) && (!name.data || tell_message(c, TOOLS_ARGUMENTS, e->text));
    return e->kind != HARMONY_END || end_message(c, text);
}

/* ---- both ---------------------------------------------------------------------------------------------- */

void token_calls_alone(struct token_calls *c) { c->alone = true; }
void token_calls_cut(struct token_calls *c) { c->cut = true; }

bool token_calls_finish(struct token_calls *c, struct byte_buffer *text)
{
    const struct tools_event *events;
    size_t n;
    if (token_calls_over(c)) return true; /* what stands behind the call was not asked for */
    if (!c->parser) return !c->open || end_message(c, text);
    return !tools_parser_finish(c->parser, &events, &n) && take(c, events, n, text) &&
           (token_calls_complete(c) || flush_blanks(c, text));
}

bool token_calls_holds(const struct token_calls *c)
{
    return c->blanks.n || (c->parser ? tools_parser_holds(c->parser) : c->open);
}
bool token_calls_over(const struct token_calls *c) { return c->single && token_calls_complete(c) > 0; }

uint32_t token_calls_complete(const struct token_calls *c)
{
    return c->parser ? tools_parser_calls(c->parser) : c->calls;
}
uint32_t token_calls_malformed(const struct token_calls *c)
{
    if (!c->parser) return c->malformed;
    return c->masked && c->cut ? 0 : tools_parser_malformed(c->parser); /* a limit's work is nobody's mistake */
}
