/* conversation.c: see conversation.h. */
#include "chat/conversation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/json_reader.h"

enum { MAX_TOOLS = 1024, MAX_NAME = 128 /* bytes of a function's name */ };

bool chat_refuse(struct chat_problem *why, wk_status status, const char *field, const char *format, ...)
{
    va_list args;
    size_t n;
    why->status = status;
    (void)snprintf(why->field, sizeof why->field, "%s", field);
    n = (size_t)snprintf(why->text, sizeof why->text, "%s%s", why->field, *field ? ": " : "");
    va_start(args, format);
    (void)vsnprintf(why->text + n, sizeof why->text - n, format, args);
    va_end(args);
    return false;
}

const char *chat_role_name(enum chat_role role)
{
    static const char *const names[] = { "system", "developer", "user", "assistant", "tool" };
    return names[role];
}

/* ---- reading ------------------------------------------------------------------------------------------- */

struct reading {
    struct json_reader json;
    struct wk_err err;
    char said[256];
    struct chat_problem *why;
    const char *list; /* "messages", "tools" */
    size_t index;     /* of the element that is read */
    char *at;         /* where the next text goes */
};

static void begin(struct reading *r, const char *list, const char *json, size_t n, struct chat_problem *why)
{
    *r = (struct reading){ .why = why, .list = list };
    r->err = (struct wk_err){ r->said, sizeof r->said };
    *why = (struct chat_problem){ 0 };
    jr_open(&r->json, json, n, list, "", &r->err);
}

WK_PRINTF(3, 4)
static bool fail(struct reading *r, const char *field, const char *format, ...)
{
    char name[96], text[384];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(name, sizeof name, "%s[%zu]%s%s", r->list, r->index, *field ? "." : "", field);
    return chat_refuse(r->why, WK_INVALID, name, "%s", text);
}

static bool no_memory(struct reading *r)
{
    return chat_refuse(r->why, WK_NO_MEMORY, r->list, "no memory for the %s", r->list);
}

/* What the reader itself refuses: no JSON, too deep. */
static bool broken(struct reading *r)
{
    return r->why->status || chat_refuse(r->why, r->json.status ? r->json.status : WK_INVALID, r->list, "%s", r->said);
}

/* Room for one more behind `n` used ones. */
static bool grow(struct reading *r, void **items, size_t n, size_t size)
{
    if (n & (n - 1)) return true; /* doubled at each power of two */
    const size_t cap = n ? 2 * n : 1;
    void *grown = cap <= SIZE_MAX / size / 2 ? realloc(*items, cap * size) : NULL;
    if (!grown) return no_memory(r);
    *items = grown;
    memset((char *)grown + n * size, 0, (cap - n) * size);
    return true;
}

static struct token_bytes keep(struct reading *r, struct json_text text)
{
    const struct token_bytes out = { r->at, text.len };
    if (text.len) memcpy(r->at, text.data, text.len);
    r->at += text.len;
    return out;
}

/* A string, or null, which leaves *out as it is. */
static bool text_member(struct reading *r, const char *field, struct token_bytes *out)
{
    struct json_text text;
    if (jr_null(&r->json)) return true;
    if (jr_peek(&r->json) != JR_STRING) return fail(r, field, "expected a string or null");
    if (!jr_string(&r->json, &text)) return false;
    *out = keep(r, text);
    return true;
}

static bool says(struct token_bytes t, const char *text)
{
    return t.len == strlen(text) && !memcmp(t.data, text, t.len);
}

/* Bytes of a text to show in a message. */
static int shown(struct token_bytes t) { return t.len < 40 ? (int)t.len : 40; }

/* ---- content ------------------------------------------------------------------------------------------- */

/* One part of a list: {"type": "text", "text": ...}; an answer's refusal counts as its text. */
static bool read_part(struct reading *r, struct conversation *c, struct chat_message *m)
{
    struct token_bytes type = { 0 }, text = { 0 };
    struct json_text key;
    char *const before = r->at;
    char name[48] = "";
    if (jr_peek(&r->json) != JR_OBJECT) return fail(r, "content", "part %zu is no object", m->n_parts);
    if (!jr_object(&r->json)) return false;
    if (m->n_parts) *r->at++ = '\n';
    char *const begin = r->at;
    while (jr_member(&r->json, &key)) {
        struct json_text value;
        if (jr_is(key, "type") && jr_peek(&r->json) == JR_STRING) {
            if (!jr_string(&r->json, &value)) return false;
            (void)snprintf(name, sizeof name, "%.*s", value.len < 40 ? (int)value.len : 40, value.data);
            type = (struct token_bytes){ name, value.len };
        } else if ((jr_is(key, "text") || jr_is(key, "refusal")) && jr_peek(&r->json) == JR_STRING) {
            r->at = begin;
            if (!jr_string(&r->json, &value)) return false;
            text = keep(r, value);
        } else if (!jr_skip(&r->json)) {
            return false;
        }
    }
    const bool refusal = says(type, "refusal");
    if (!says(type, "text") && !refusal)
        return fail(r, "content", "part %zu is of type %.40s: only text is served", m->n_parts,
                    type.data ? name : "(none)");
    if (!text.data) return fail(r, "content", "part %zu has no %s", m->n_parts, refusal ? "refusal" : "text");
    if (!m->n_parts) m->text.data = begin;
    if (!grow(r, (void **)&c->parts, c->n_parts, sizeof *c->parts)) return false;
    c->parts[c->n_parts++] = text;
    m->n_parts++;
    m->text.len += (size_t)(r->at - before);
    return true;
}

static bool read_content(struct reading *r, struct conversation *c, struct chat_message *m)
{
    struct json_text text;
    m->text = (struct token_bytes){ "", 0 };
    m->part = c->n_parts;
    m->n_parts = 0;
    m->has_content = m->in_parts = false;
    if (jr_null(&r->json)) return true;
    m->has_content = true;
    if (jr_peek(&r->json) == JR_STRING) {
        if (!jr_string(&r->json, &text)) return false;
        m->text = keep(r, text);
        return true;
    }
    if (jr_peek(&r->json) != JR_ARRAY) return fail(r, "content", "expected a string or a list of text parts");
    m->in_parts = true;
    if (!jr_array(&r->json)) return false;
    while (jr_element(&r->json))
        if (!read_part(r, c, m)) return false;
    return true;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

/* An object, or a string in which one is written; either as JSON. */
static bool read_arguments(struct reading *r, struct chat_call *call)
{
    struct json_text text;
    const enum jr_kind kind = jr_peek(&r->json);
    if (kind != JR_STRING && kind != JR_OBJECT)
        return fail(r, "tool_calls", "arguments: expected JSON of an object, as a string");
    if (!(kind == JR_STRING ? jr_string : jr_raw)(&r->json, &text)) return false;
    call->arguments = keep(r, text);
    return true;
}

static bool read_function(struct reading *r, struct chat_call *call)
{
    struct json_text key;
    if (jr_peek(&r->json) != JR_OBJECT) return fail(r, "tool_calls", "function: expected an object");
    if (!jr_object(&r->json)) return false;
    while (jr_member(&r->json, &key)) {
        const bool name = jr_is(key, "name");
        if (name ? !text_member(r, "tool_calls", &call->name)
                 : !(jr_is(key, "arguments") && !jr_null(&r->json) ? read_arguments(r, call) : jr_skip(&r->json)))
            return false;
    }
    return true;
}

static bool read_call(struct reading *r, struct chat_call *call)
{
    struct token_bytes type = { "function", 8 };
    struct json_text key;
    if (jr_peek(&r->json) != JR_OBJECT) return fail(r, "tool_calls", "expected objects with id and function");
    if (!jr_object(&r->json)) return false;
    while (jr_member(&r->json, &key)) {
        const bool ok = jr_is(key, "id")         ? text_member(r, "tool_calls", &call->id)
                        : jr_is(key, "type")     ? text_member(r, "tool_calls", &type)
                        : jr_is(key, "function") ? read_function(r, call)
                                                 : jr_skip(&r->json);
        if (!ok) return false;
    }
    if (!says(type, "function"))
        return fail(r, "tool_calls", "calls of type %.*s are not served: expected function", shown(type), type.data);
    if (!call->name.len || call->name.len > MAX_NAME)
        return fail(r, "tool_calls", "expected a function with a name of 1 to %d bytes", MAX_NAME);
    if (!call->arguments.data) call->arguments = (struct token_bytes){ "{}", 2 };
    return true;
}

static bool read_calls(struct reading *r, struct conversation *c, struct chat_message *m)
{
    m->call = c->n_calls;
    m->n_calls = 0;
    if (jr_null(&r->json)) return true;
    if (jr_peek(&r->json) != JR_ARRAY) return fail(r, "tool_calls", "expected a list of calls");
    if (!jr_array(&r->json)) return false;
    while (jr_element(&r->json)) {
        if (!grow(r, (void **)&c->calls, c->n_calls, sizeof *c->calls)) return false;
        c->calls[c->n_calls] = (struct chat_call){ 0 };
        if (!read_call(r, &c->calls[c->n_calls])) return false;
        c->n_calls++;
        m->n_calls++;
    }
    return true;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static bool read_role(struct reading *r, struct chat_message *m, bool *known)
{
    struct json_text text;
    if (jr_peek(&r->json) != JR_STRING) return fail(r, "role", "expected system, developer, user, assistant or tool");
    if (!jr_string(&r->json, &text)) return false;
    for (m->role = CHAT_SYSTEM; m->role <= CHAT_TOOL; m->role++)
        if (jr_is(text, chat_role_name(m->role))) return *known = true;
    if (jr_is(text, "function"))
        return fail(r, "role", "function is not served any more: write tool, with the call's tool_call_id");
    return fail(r, "role", "expected system, developer, user, assistant or tool, got %.*s",
                shown((struct token_bytes){ text.data, text.len }), text.data);
}

/* A member of OpenAI's that would change the prompt and has no place in any template. */
static bool read_unserved(struct reading *r, const char *field)
{
    return jr_null(&r->json) || fail(r, field, "this worker does not serve it; leave it out");
}

static bool read_member(struct reading *r, struct conversation *c, struct chat_message *m, struct json_text key,
                        bool *known, struct token_bytes *refusal)
{
    if (jr_is(key, "role")) return read_role(r, m, known);
    if (jr_is(key, "content")) return read_content(r, c, m);
    if (jr_is(key, "tool_calls")) return read_calls(r, c, m);
    if (jr_is(key, "reasoning_content") || jr_is(key, "reasoning"))
        return text_member(r, "reasoning_content", &m->reasoning);
    if (jr_is(key, "name")) return text_member(r, "name", &m->name);
    if (jr_is(key, "tool_call_id")) return text_member(r, "tool_call_id", &m->call_id);
    if (jr_is(key, "refusal")) return text_member(r, "refusal", refusal);
    if (jr_is(key, "function_call")) return read_unserved(r, "function_call");
    if (jr_is(key, "audio")) return read_unserved(r, "audio");
    return jr_skip(&r->json);
}

static bool read_message(struct reading *r, struct conversation *c, struct chat_message *m)
{
    struct token_bytes refusal = { 0 };
    struct json_text key;
    bool known = false;
    if (jr_peek(&r->json) != JR_OBJECT) return fail(r, "", "expected an object with role and content");
    if (!jr_object(&r->json)) return false;
    m->text = (struct token_bytes){ "", 0 };
    while (jr_member(&r->json, &key))
        if (!read_member(r, c, m, key, &known, &refusal)) return false;
    if (r->json.status) return false;
    if (!known) return fail(r, "role", "expected system, developer, user, assistant or tool, got none");
    if (m->n_calls && m->role != CHAT_ASSISTANT)
        return fail(r, "tool_calls", "only an assistant calls tools, not a %s", chat_role_name(m->role));
    if (m->role != CHAT_ASSISTANT) m->reasoning = (struct token_bytes){ 0 };
    if (!m->has_content && refusal.data) {
        m->text = refusal;
        m->has_content = true;
    }
    return m->has_content || m->role == CHAT_ASSISTANT ||
           fail(r, "content", "expected a string or a list of text parts");
}

/* ---- ids of calls -------------------------------------------------------------------------------------- */

static int compare_texts(struct token_bytes a, struct token_bytes b)
{
    const size_t n = a.len < b.len ? a.len : b.len;
    const int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* By id, those of one id as they stand in the conversation. */
static int by_id(const void *a, const void *b)
{
    const struct chat_call *x = *(const struct chat_call *const *)a, *y = *(const struct chat_call *const *)b;
    const int order = compare_texts(x->id, y->id);
    return order ? order : (x > y) - (x < y);
}

/* The calls that have ids, sorted; NULL: no memory. */
static const struct chat_call **sort_calls(const struct conversation *c, size_t *n)
{
    const struct chat_call **list = calloc(c->n_calls + 1, sizeof *list);
    *n = 0;
    for (size_t i = 0; list && i < c->n_calls; i++)
        if (c->calls[i].id.data) list[(*n)++] = &c->calls[i];
    if (*n) qsort(list, *n, sizeof *list, by_id);
    return list;
}

/* The last call with this id among the first `before`; NULL: there is none. */
static const struct chat_call *find_call(const struct conversation *c, const struct chat_call *const *list, size_t n,
                                         size_t before, struct token_bytes id)
{
    size_t low = 0; /* how many of the list stand before what is looked for */
    for (size_t high = n; low < high;) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_texts(list[middle]->id, id);
        if (order < 0 || (!order && (size_t)(list[middle] - c->calls) < before))
            low = middle + 1;
        else
            high = middle;
    }
    return low && !compare_texts(list[low - 1]->id, id) ? list[low - 1] : NULL;
}

/* Which functions the results are of. False: no memory. */
static bool name_results(struct conversation *c)
{
    size_t n, before = 0;
    const struct chat_call **list = sort_calls(c, &n);
    for (size_t i = 0; list && i < c->n; i++) {
        struct chat_message *m = &c->messages[i];
        const struct chat_call *call =
            m->role == CHAT_TOOL && m->call_id.data ? find_call(c, list, n, before, m->call_id) : NULL;
        if (call) {
            m->called = call->name;
            m->called_at = (size_t)(call - c->calls);
        }
        before += m->n_calls;
    }
    free(list);
    return list != NULL;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

bool conversation_read(const char *json, size_t n, struct conversation *out, struct chat_problem *why)
{
    struct reading r;
    *out = (struct conversation){ 0 };
    begin(&r, "messages", json, n, why);
    out->texts = r.at = malloc(n + 1);
    bool ok = out->texts || no_memory(&r);
    if (ok && (jr_peek(&r.json) != JR_ARRAY || !jr_array(&r.json)))
        ok = chat_refuse(why, WK_INVALID, "messages", "expected a list of one message or more");
    for (; ok && jr_element(&r.json); r.index++) {
        ok = grow(&r, (void **)&out->messages, out->n, sizeof *out->messages);
        if (ok) out->messages[out->n] = (struct chat_message){ 0 };
        ok = ok && read_message(&r, out, &out->messages[out->n]);
        out->n += ok;
    }
    ok = ok && !r.json.status && jr_finish(&r.json);
    if (ok && !out->n) ok = chat_refuse(why, WK_INVALID, "messages", "expected a list of one message or more");
    if (!ok) (void)broken(&r);
    if (ok) ok = name_results(out) || no_memory(&r);
    out->n_texts = ok ? (size_t)(r.at - out->texts) : 0;
    jr_close(&r.json);
    if (!ok) conversation_free(out);
    return ok;
}

bool conversation_check_calls(const struct conversation *c, struct chat_problem *why)
{
    char field[96];
    bool may_hide = false; /* the last answer may have calls in its text, as clients send it that show all of it */
    for (size_t i = 0; i < c->n; i++) {
        const struct chat_message *m = &c->messages[i];
        for (size_t k = 0; k < m->n_calls; k++) {
            const struct chat_call *call = &c->calls[m->call + k];
            if (!call->arguments.len || jr_is_object(call->arguments.data, call->arguments.len)) continue;
            (void)snprintf(field, sizeof field, "messages[%zu].tool_calls[%zu].function.arguments", i, k);
            return chat_refuse(why, WK_INVALID, field, "expected JSON of an object, got %.*s", shown(call->arguments),
                               call->arguments.data);
        }
        if (m->role != CHAT_TOOL) may_hide = m->role == CHAT_ASSISTANT && !m->n_calls && m->text.len;
        if (m->role != CHAT_TOOL || may_hide || m->called.data) continue;
        (void)snprintf(field, sizeof field, "messages[%zu].tool_call_id", i);
        return m->call_id.data ? chat_refuse(why, WK_INVALID, field, "no call of a message before it has the id %.*s",
                                             shown(m->call_id), m->call_id.data)
                               : chat_refuse(why, WK_INVALID, field, "expected the id of the call that it answers");
    }
    return true;
}

bool conversation_check_ids(const struct conversation *c, bool in_prompt, struct chat_problem *why)
{
    size_t n, *of = calloc(c->n_calls + 1, sizeof *of); /* the message of each call */
    const struct chat_call **list = sort_calls(c, &n);
    bool ok = list && of;
    if (!ok) (void)chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the conversation");
    for (size_t i = 0; ok && i < c->n; i++)
        for (size_t k = 0; k < c->messages[i].n_calls; k++) of[c->messages[i].call + k] = i;
    for (size_t k = 1; ok && k < n; k++) {
        const size_t one = (size_t)(list[k - 1] - c->calls), two = (size_t)(list[k] - c->calls);
        char field[96];
        if (of[one] != of[two] || compare_texts(list[k - 1]->id, list[k]->id) ||
            (!in_prompt && !compare_texts(list[k - 1]->name, list[k]->name)))
            continue;
        const size_t first = c->messages[of[two]].call;
        (void)snprintf(field, sizeof field, "messages[%zu].tool_calls[%zu].id", of[two], two - first);
        ok = chat_refuse(why, WK_INVALID, field, "%.*s is the id of tool_calls[%zu] already: expected one of its own",
                         shown(list[k]->id), list[k]->id.data, one - first);
    }
    free(list);
    free(of);
    return ok;
}

bool conversation_of_user(struct token_bytes text, struct conversation *out, struct chat_problem *why)
{
    *out = (struct conversation){ .messages = calloc(1, sizeof *out->messages), .n = 1 };
    if (!out->messages) return chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for a message");
    out->messages[0] = (struct chat_message){ .role = CHAT_USER, .has_content = true, .text = text };
    return true;
}

void conversation_free(struct conversation *c)
{
    free(c->messages);
    free(c->parts);
    free(c->calls);
    free(c->texts);
    *c = (struct conversation){ 0 };
}

/* ---- tools --------------------------------------------------------------------------------------------- */

static bool read_tool_function(struct reading *r, struct chat_tool *tool)
{
    struct json_text key;
    if (jr_peek(&r->json) != JR_OBJECT) return fail(r, "function", "expected an object with a name");
    if (!jr_object(&r->json)) return false;
    while (jr_member(&r->json, &key)) {
        if (jr_is(key, "name") || jr_is(key, "description")) {
            const bool name = jr_is(key, "name");
            if (!text_member(r, name ? "function.name" : "function.description",
                             name ? &tool->name : &tool->description))
                return false;
        } else if (jr_is(key, "parameters") && !jr_null(&r->json)) {
            struct json_text raw;
            if (jr_peek(&r->json) != JR_OBJECT)
                return fail(r, "function.parameters", "expected a JSON Schema, which is an object");
            if (!jr_raw(&r->json, &raw)) return false;
            tool->parameters = keep(r, raw);
        } else if (jr_is(key, "strict") && !jr_null(&r->json)) {
            if (jr_peek(&r->json) != JR_BOOL) return fail(r, "function.strict", "expected true or false");
            if (!jr_bool(&r->json, &tool->strict)) return false;
        } else if (!jr_is(key, "parameters") && !jr_is(key, "strict") && !jr_skip(&r->json)) {
            return false;
        }
    }
    return true;
}

static bool read_tool(struct reading *r, struct chat_tools *t)
{
    struct chat_tool *tool = &t->list[t->n];
    struct token_bytes type = { 0 };
    struct json_text key;
    bool function = false;
    if (jr_peek(&r->json) != JR_OBJECT) return fail(r, "", "expected an object with type and function");
    if (!jr_object(&r->json)) return false;
    while (jr_member(&r->json, &key)) {
        function |= jr_is(key, "function");
        if (!(jr_is(key, "type")       ? text_member(r, "type", &type)
              : jr_is(key, "function") ? read_tool_function(r, tool)
                                       : jr_skip(&r->json)))
            return false;
    }
    if (r->json.status) return false;
    if (!type.data) return fail(r, "type", "expected {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!says(type, "function")) return fail(r, "type", "expected function, got %.*s", shown(type), type.data);
    if (!function) return fail(r, "function", "expected an object with name, description and parameters");
    if (!tool->name.len || tool->name.len > MAX_NAME)
        return fail(r, "function.name", "expected a name of 1 to %d bytes", MAX_NAME);
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].name.len == tool->name.len && !memcmp(t->list[i].name.data, tool->name.data, tool->name.len))
            return fail(r, "function.name", "%.*s is the name of tools[%zu] already", shown(tool->name),
                        tool->name.data, i);
    return true;
}

bool chat_tools_read(const char *json, size_t n, struct chat_tools *out, struct chat_problem *why)
{
    struct reading r;
    *out = (struct chat_tools){ 0 };
    begin(&r, "tools", json, n, why);
    out->texts = r.at = malloc(n + 1);
    bool ok = out->texts || no_memory(&r);
    if (ok && (jr_peek(&r.json) != JR_ARRAY || !jr_array(&r.json)))
        ok = chat_refuse(why, WK_INVALID, "tools", "expected a list of functions");
    for (; ok && jr_element(&r.json); r.index++) {
        if (out->n == MAX_TOOLS) ok = chat_refuse(why, WK_INVALID, "tools", "expected at most %d functions", MAX_TOOLS);
        ok = ok && grow(&r, (void **)&out->list, out->n, sizeof *out->list);
        if (ok) out->list[out->n] = (struct chat_tool){ 0 };
        ok = ok && read_tool(&r, out);
        out->n += ok;
    }
    ok = ok && !r.json.status && jr_finish(&r.json);
    if (!ok) (void)broken(&r);
    jr_close(&r.json);
    if (!ok) chat_tools_free(out);
    return ok;
}

void chat_tools_free(struct chat_tools *t)
{
    free(t->list);
    free(t->texts);
    *t = (struct chat_tools){ 0 };
}
