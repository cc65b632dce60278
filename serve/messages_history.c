/* messages_history.c: the system prompt and the messages of a request as a chat's messages. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

struct history {
    struct messages *m;
    struct http_text *out;
    struct refusal *why;
    int32_t at;     /* the client's message that is read; MESSAGES_SYSTEM */
    char where[48]; /* "messages[3].content", "system" */
};

__attribute__((format(printf, 2, 3))) static bool wrong(const struct history *h, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return refuse(h->why, SERVE_INVALID_REQUEST, h->where, "%s: %s", h->where, text);
}

static bool no_memory(const struct history *h)
{
    return refuse(h->why, SERVE_INTERNAL, NULL, "no memory for the request");
}

/* {"role":"ROLE","content": of one more message. */
static bool begin_message(struct history *h, const char *role)
{
    struct messages *m = h->m;
    if (!(m->n & (m->n - 1))) { /* doubled at each power of two */
        int32_t *grown = realloc(m->origins, (m->n ? 2 * m->n : 1) * sizeof *grown);
        if (!grown) return no_memory(h);
        m->origins = grown;
    }
    http_text_format(h->out, "%s{\"role\":\"%s\",\"content\":", m->n ? "," : "", role);
    m->origins[m->n++] = h->at;
    return true;
}

static void end_message(const struct history *h) { http_text_add(h->out, "}", 1); }

/* ---- blocks -------------------------------------------------------------------------------------------- */

struct block {
    struct raw type, text, thinking, id, name, input, tool_use_id, content, is_error;
};

/* The k-th of a list. */
static bool read_block(const struct history *h, struct raw value, size_t k, struct block *b)
{
    static const struct {
        const char *name;
        size_t at;
    } members[] = {
        { "type", offsetof(struct block, type) },         { "text", offsetof(struct block, text) },
        { "thinking", offsetof(struct block, thinking) }, { "id", offsetof(struct block, id) },
        { "name", offsetof(struct block, name) },         { "input", offsetof(struct block, input) },
        { "content", offsetof(struct block, content) },   { "tool_use_id", offsetof(struct block, tool_use_id) },
        { "is_error", offsetof(struct block, is_error) },
    };
    struct raw_walk w;
    struct raw member;
    *b = (struct block){ 0 };
    if (value.kind != JR_OBJECT) return wrong(h, "block %zu is no object with a type", k);
    raw_open(&w, value);
    while (raw_next(&w, &member))
        for (size_t i = 0; i < sizeof members / sizeof *members; i++)
            if (member.kind != JR_NULL && jr_is(w.key, members[i].name)) {
                const size_t at = members[i].at;
                memcpy((char *)b + at, &member, sizeof member);
            }
    const bool read = !w.json.status;
    raw_close(&w);
    return (read || no_memory(h)) && (b->type.kind == JR_STRING || wrong(h, "block %zu has no type", k));
}

/* What is not served, by its name. */
static bool unserved(const struct history *h, const struct block *b, size_t k, const char *served)
{
    struct http_text type = { 0 };
    raw_text(b->type, &type);
    const bool media = raw_says(b->type, "image") || raw_says(b->type, "document");
    if (type.failed)
        (void)no_memory(h);
    else
        (void)wrong(h, "block %zu is of type %.60s: %s%s", k, type.n ? type.data : "\"\"",
                    media ? "image and document input is not supported by this worker; it takes " : "expected ",
                    served);
    http_text_free(&type);
    return false;
}

/* Texts of a message, for its content: nothing, one text, or a list of parts. Empty ones are none: a part has a line
 * of its own in many prompts. */
struct texts {
    struct http_text parts;
    struct raw only;
    size_t n;
};

static bool is_empty(struct raw string) { return string.n == 2; }

static bool add_text(const struct history *h, const struct block *b, size_t k, struct texts *t)
{
    if (b->text.kind != JR_STRING) return wrong(h, "block %zu has no text", k);
    if (is_empty(b->text)) return true;
    http_text_format(&t->parts, "%s{\"type\":\"text\",\"text\":", t->n ? "," : "");
    raw_copy(&t->parts, b->text, "");
    http_text_add(&t->parts, "}", 1);
    t->only = b->text;
    t->n++;
    return true;
}

/* none: what stands for no text. */
static void put_texts(struct http_text *out, const struct texts *t, const char *none)
{
    if (t->n > 1) http_text_add(out, "[", 1);
    if (t->n > 1) http_text_add(out, t->parts.data, t->parts.n);
    if (t->n > 1) http_text_add(out, "]", 1);
    if (t->n < 2) raw_copy(out, t->only, none);
    out->failed = out->failed || t->parts.failed;
}

/* A string, or a list of blocks of text. */
static bool read_texts(const struct history *h, struct raw content, struct texts *t)
{
    struct raw_walk w;
    struct raw value;
    struct block b;
    bool good = true;
    if (content.kind == JR_STRING) {
        if (is_empty(content)) return true;
        t->only = content;
        t->n = 1;
        return true;
    }
    if (content.kind != JR_ARRAY) return wrong(h, "expected a string or a list of blocks");
    raw_open(&w, content);
    for (size_t k = 0; good && raw_next(&w, &value); k++)
        good = read_block(h, value, k, &b) &&
               (raw_says(b.type, "text") ? add_text(h, &b, k, t) : unserved(h, &b, k, "text"));
    good = good && (!w.json.status || no_memory(h));
    raw_close(&w);
    return good;
}

static bool write_texts(struct history *h, const char *role, const struct texts *t)
{
    if (!begin_message(h, role)) return false;
    put_texts(h->out, t, "\"\"");
    end_message(h);
    return true;
}

/* ---- the system prompt --------------------------------------------------------------------------------- */

/* Claude Code's first block counts its requests: it changes with each of them, and no prompt would be found in the
 * cache. It is for who sends the bill. */
static bool is_bill(struct raw text)
{
    static const char mark[] = "\"x-anthropic-billing-header:";
    return text.kind == JR_STRING && text.n >= sizeof mark - 1 && memcmp(text.data, mark, sizeof mark - 1) == 0;
}

static bool write_system(struct history *h, struct raw system)
{
    struct texts t = { 0 };
    struct raw_walk w;
    struct raw value;
    struct block b;
    bool good = true;
    h->at = MESSAGES_SYSTEM;
    (void)snprintf(h->where, sizeof h->where, "system");
    raw_open(&w, system);
    for (size_t k = 0; good && system.kind == JR_ARRAY && raw_next(&w, &value); k++)
        good = read_block(h, value, k, &b) && (!raw_says(b.type, "text") ? unserved(h, &b, k, "text")
                                               : is_bill(b.text)         ? true
                                                                         : add_text(h, &b, k, &t));
    raw_close(&w);
    if (system.kind != JR_ARRAY && system.data) good = read_texts(h, system, &t);
    if (t.n) good = good && write_texts(h, "system", &t);
    http_text_free(&t.parts);
    return good;
}

/* ---- a user's messages, and those of a system in mid-conversation -------------------------------------- */

/* A chat's results say nothing of errors: this one's text does. */
static void put_error(struct http_text *out, const struct texts *t)
{
    http_text_format(out, "[{\"type\":\"text\",\"text\":\"Error:\"}");
    if (t->n == 1) {
        http_text_format(out, ",{\"type\":\"text\",\"text\":");
        raw_copy(out, t->only, "");
        http_text_add(out, "}", 1);
    } else if (t->n) {
        http_text_add(out, ",", 1);
        http_text_add(out, t->parts.data, t->parts.n);
    }
    http_text_add(out, "]", 1);
    out->failed = out->failed || t->parts.failed;
}

static bool write_result(struct history *h, const struct block *b, size_t k)
{
    struct texts t = { 0 };
    if (b->tool_use_id.kind != JR_STRING) return wrong(h, "block %zu has no tool_use_id", k);
    if (b->is_error.data && b->is_error.kind != JR_BOOL) return wrong(h, "is_error of block %zu is no boolean", k);
    bool good = (!b->content.data || read_texts(h, b->content, &t)) && begin_message(h, "tool");
    if (good) {
        if (b->is_error.data && *b->is_error.data == 't')
            put_error(h->out, &t);
        else
            put_texts(h->out, &t, "\"\"");
        raw_copy_member(h->out, "tool_call_id", b->tool_use_id);
        end_message(h);
    }
    http_text_free(&t.parts);
    return good;
}

/* Results become messages of their own, in their order; the texts beside them stand behind. */
static bool write_blocks(struct history *h, struct raw content)
{
    struct texts t = { 0 };
    struct raw_walk w;
    struct raw value;
    struct block b;
    size_t results = 0;
    bool good = true;
    raw_open(&w, content);
    for (size_t k = 0; good && raw_next(&w, &value); k++) {
        good = read_block(h, value, k, &b);
        const bool result = good && raw_says(b.type, "tool_result");
        results += result;
        good = good && (result                     ? write_result(h, &b, k)
                        : raw_says(b.type, "text") ? add_text(h, &b, k, &t)
                                                   : unserved(h, &b, k, "text and tool_result"));
    }
    good = good && (!w.json.status || no_memory(h));
    raw_close(&w);
    if (t.n || !results) good = good && write_texts(h, "user", &t);
    http_text_free(&t.parts);
    return good;
}

/* A message of texts alone. */
static bool write_plain(struct history *h, const char *role, struct raw content)
{
    struct texts t = { 0 };
    const bool good = read_texts(h, content, &t) && write_texts(h, role, &t);
    http_text_free(&t.parts);
    return good;
}

/* ---- an assistant's ------------------------------------------------------------------------------------ */

struct said {
    struct texts texts;
    struct http_text calls, reasoning;
    size_t n_calls, n_thoughts;
};

static bool add_call(const struct history *h, const struct block *b, size_t k, struct said *s)
{
    if (b->id.kind != JR_STRING || b->name.kind != JR_STRING) return wrong(h, "block %zu has no id or no name", k);
    if (b->input.data && b->input.kind != JR_OBJECT) return wrong(h, "input of block %zu is no object", k);
    http_text_format(&s->calls, "%s{\"id\":", s->n_calls++ ? "," : "");
    raw_copy(&s->calls, b->id, "");
    http_text_format(&s->calls, ",\"type\":\"function\",\"function\":{\"name\":");
    raw_copy(&s->calls, b->name, "");
    http_text_format(&s->calls, ",\"arguments\":");
    raw_copy(&s->calls, b->input, "{}");
    http_text_format(&s->calls, "}}");
    return true;
}

static bool add_thought(const struct history *h, const struct block *b, size_t k, struct said *s)
{
    if (b->thinking.kind != JR_STRING) return wrong(h, "block %zu has no thinking", k);
    if (is_empty(b->thinking)) return true; /* as it comes back from who was not shown it */
    if (s->n_thoughts++) http_text_add(&s->reasoning, "\n", 1);
    raw_text(b->thinking, &s->reasoning);
    return true;
}

static bool read_said(const struct history *h, struct raw content, struct said *s)
{
    struct raw_walk w;
    struct raw value;
    struct block b;
    bool good = true;
    if (content.kind != JR_ARRAY) return read_texts(h, content, &s->texts);
    raw_open(&w, content);
    for (size_t k = 0; good && raw_next(&w, &value); k++)
        good = read_block(h, value, k, &b) &&
               (raw_says(b.type, "text")                ? add_text(h, &b, k, &s->texts)
                : raw_says(b.type, "tool_use")          ? add_call(h, &b, k, s)
                : raw_says(b.type, "thinking")          ? add_thought(h, &b, k, s)
                : raw_says(b.type, "redacted_thinking") ? true /* nobody here can read it */
                                                        : unserved(h, &b, k, "text, tool_use and thinking"));
    good = good && (!w.json.status || no_memory(h));
    raw_close(&w);
    return good;
}

static void put_said(struct http_text *out, const struct said *s)
{
    put_texts(out, &s->texts, s->n_calls ? "null" : "\"\"");
    if (s->n_thoughts) http_text_format(out, ",\"reasoning_content\":");
    if (s->n_thoughts) http_text_json(out, s->reasoning.n ? s->reasoning.data : "", s->reasoning.n);
    if (s->n_calls) http_text_format(out, ",\"tool_calls\":[");
    if (s->n_calls) http_text_add(out, s->calls.data, s->calls.n);
    if (s->n_calls) http_text_add(out, "]", 1);
    out->failed = out->failed || s->calls.failed || s->reasoning.failed;
}

/* The last one is gone on with; one without a text has not begun. */
static bool write_assistant(struct history *h, struct raw content, bool last, bool *ends_open)
{
    struct said s = { 0 };
    bool good = read_said(h, content, &s);
    if (good && last && s.n_calls)
        good = wrong(h, "the last message calls tools: a user's message with their results must follow");
    if (good && !(last && !s.texts.n)) {
        *ends_open = last;
        good = begin_message(h, "assistant");
        if (good) put_said(h->out, &s);
        if (good) end_message(h);
    }
    http_text_free(&s.texts.parts);
    http_text_free(&s.calls);
    http_text_free(&s.reasoning);
    return good;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static bool write_message(struct history *h, struct raw message, bool last, bool *ends_open)
{
    (void)snprintf(h->where, sizeof h->where, "messages[%d]", (int)h->at);
    if (message.kind != JR_OBJECT) return wrong(h, "expected an object with role and content");
    const struct raw role = raw_member(message, "role"), content = raw_member(message, "content");
    const bool user = raw_says(role, "user"), system = raw_says(role, "system");
    if (!user && !system && !raw_says(role, "assistant")) {
        (void)snprintf(h->where, sizeof h->where, "messages[%d].role", (int)h->at);
        return wrong(h, "expected user, assistant or system");
    }
    (void)snprintf(h->where, sizeof h->where, "messages[%d].content", (int)h->at);
    if (!user && !system) return write_assistant(h, content, last, ends_open);
    return user && content.kind == JR_ARRAY ? write_blocks(h, content)
                                            : write_plain(h, user ? "user" : "system", content);
}

static size_t count(struct raw list)
{
    struct raw_walk w;
    struct raw value;
    size_t n = 0;
    raw_open(&w, list);
    while (raw_next(&w, &value)) n++;
    raw_close(&w);
    return n;
}

bool messages_write_history(struct raw system, struct raw list, struct messages *m, struct http_text *out,
                            bool *ends_open, struct refusal *why)
{
    struct history h = { .m = m, .out = out, .why = why };
    const size_t n = count(list);
    struct raw_walk w;
    struct raw message;
    *ends_open = false;
    if (!n) return refuse(why, SERVE_INVALID_REQUEST, "messages", "messages: expected one message or more");
    http_text_format(out, "\"messages\":[");
    bool good = write_system(&h, system);
    raw_open(&w, list);
    for (h.at = 0; good && raw_next(&w, &message); h.at++)
        good = write_message(&h, message, (size_t)h.at + 1 == n, ends_open);
    good = good && (!w.json.status || no_memory(&h));
    raw_close(&w);
    http_text_add(out, "]", 1);
    return good;
}
