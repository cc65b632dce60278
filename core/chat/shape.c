/* shape.c: requests in the shape that a template takes (caps.h). Nothing is dropped here: what cannot be said is
 * refused with the message that it is in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/caps.h"
#include "tokenizer/json_reader.h"

enum { SHORT_ID = 9 };

struct shaping {
    const struct conversation *c;
    const struct chat_context *x;
    struct jinja_values *values;
    struct chat_problem *why;
    char *joined; /* for texts of several messages as one */
    bool failed;  /* some value could not be made */
};

WK_PRINTF(4, 5)
static bool fail(const struct shaping *s, size_t i, const char *field, const char *format, ...)
{
    char name[96], text[384];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(name, sizeof name, "messages[%zu]%s%s", i, *field ? "." : "", field);
    return chat_refuse(s->why, WK_UNSUPPORTED, name, "%s", text);
}

static bool no_memory(const struct shaping *s)
{
    return chat_refuse(s->why, WK_NO_MEMORY, "messages", "no memory for the conversation");
}

static struct jinja_value *input(const struct shaping *s, struct token_bytes t)
{
    return jinja_string(s->values, t.data ? t.data : "", t.len, JINJA_INPUT);
}

/* A word of our own. */
static struct jinja_value *word(const struct shaping *s, const char *text)
{
    return jinja_string(s->values, text, strlen(text), JINJA_TEMPLATE);
}

static void set(struct shaping *s, struct jinja_value *dict, const char *key, const struct jinja_value *value)
{
    s->failed = s->failed || !jinja_dict_set(s->values, dict, key, value);
}

static void add(struct shaping *s, struct jinja_value *list, const struct jinja_value *item)
{
    s->failed = s->failed || !jinja_list_add(s->values, list, item);
}

/* ---- content ------------------------------------------------------------------------------------------- */

static struct jinja_value *text_part(struct shaping *s, struct token_bytes text)
{
    struct jinja_value *part = jinja_dict(s->values);
    set(s, part, "type", word(s, "text"));
    set(s, part, "text", input(s, text));
    return part;
}

static struct jinja_value *content_of(struct shaping *s, const struct chat_message *m, struct token_bytes text)
{
    const struct chat_caps *caps = s->x->caps;
    const bool whole = text.data == m->text.data && text.len == m->text.len, parts = m->in_parts && whole;
    if (caps->text && !(parts && caps->parts >> m->role & 1)) return input(s, text);
    struct jinja_value *list = jinja_list(s->values);
    if (!parts || caps->one_part) {
        add(s, list, text_part(s, text));
        return list;
    }
    for (size_t k = 0; k < m->n_parts; k++) add(s, list, text_part(s, s->c->parts[m->part + k]));
    return list;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

/* Nine letters and digits made of an id; the same id gives the same ones. FNV-1a is good enough: who wants two of his
 * own calls to be confused can do so without it. */
static struct token_bytes short_id(struct token_bytes id, char out[SHORT_ID])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    bool fits = id.len == SHORT_ID;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < id.len; i++) {
        const unsigned char c = (unsigned char)id.data[i];
        fits = fits && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
        hash = (hash ^ c) * 0x100000001b3u;
    }
    if (fits) return id;
    for (int i = 0; i < SHORT_ID; i++, hash /= 36) out[i] = digits[hash % 36];
    return (struct token_bytes){ out, SHORT_ID };
}

enum { NO_CALL = UINT32_MAX };

/* Kimi's ids name the function; those that clients made up become ids of that form. */
static struct token_bytes kimi_id(const struct shaping *s, struct token_bytes id, uint32_t call, char out[TOOLS_ID])
{
    static const char own[] = "functions.";
    if (call == NO_CALL || (id.len > sizeof own - 1 && memcmp(id.data, own, sizeof own - 1) == 0)) return id;
    const struct token_bytes name = s->c->calls[call].name;
    return name.len > TOOLS_MAX_NAME ? id : tools_kimi_id(name, call, out);
}

/* call: whose id it is, among the conversation's calls; NO_CALL: of none of them. */
static void set_id(struct shaping *s, struct jinja_value *dict, const char *key, struct token_bytes id, uint32_t call)
{
    char room[TOOLS_ID];
    if (s->x->caps->short_ids)
        id = short_id(id, room);
    else if (s->x->calls && tools_model_ids(s->x->calls) == TOOLS_ID_KIMI)
        id = kimi_id(s, id, call, room);
    if (id.data) set(s, dict, key, input(s, id));
}

/* at: the call's place among the conversation's; NO_CALL: it was text. */
static bool add_call(struct shaping *s, size_t i, const struct chat_call *call, uint32_t at, struct jinja_value *list)
{
    struct jinja_value *out = jinja_dict(s->values), *function = jinja_dict(s->values), *arguments = NULL;
    struct token_bytes json = call->arguments;
    char said[192];
    const struct wk_err err = { said, sizeof said };
    if (!json.len) json = (struct token_bytes){ "{}", 2 };
    set_id(s, out, "id", call->id, at);
    set(s, out, "type", word(s, "function"));
    set(s, function, "name", input(s, call->name));
    if (s->x->caps->arguments == ARGUMENTS_TEXT) {
        arguments = input(s, json);
    } else if (!jr_is_object(json.data, json.len)) {
        return fail(s, i, "tool_calls", "the arguments of %.*s are no JSON object, which this model's template needs",
                    (int)(call->name.len < 40 ? call->name.len : 40), call->name.data);
    } else if (jinja_from_json(s->values, json.data, json.len, "arguments", &arguments, &err)) {
        return fail(s, i, "tool_calls", "%s", said);
    }
    set(s, function, "arguments", arguments);
    set(s, out, "function", function);
    add(s, list, out);
    return true;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

/* An answer that begins with marked reasoning, as clients send it back that show all text: split, so that the template
 * writes the marks, or leaves the reasoning out, as it was made to. */
static void split_reasoning(const struct chat_caps *caps, const struct chat_message *m, struct token_bytes *reasoning,
                            struct token_bytes *text)
{
    const size_t open = strlen(caps->open), close = strlen(caps->close);
    struct token_bytes rest = *text;
    if (m->reasoning.data || !caps->reasoning_field || !open || !close) return;
    while (rest.len && (is_newline(*rest.data) || *rest.data == ' ')) rest.data++, rest.len--;
    if (rest.len < open || memcmp(rest.data, caps->open, open) != 0) return;
    const char *begin = rest.data + open, *all_end = text->data + text->len;
    const char *end = memmem(begin, (size_t)(all_end - begin), caps->close, close);
    if (!end) return;
    *text = (struct token_bytes){ end + close, (size_t)(all_end - end) - close };
    while (text->len && is_newline(*text->data)) text->data++, text->len--;
    while (begin < end && is_newline(*begin)) begin++;
    while (end > begin && is_newline(end[-1])) end--;
    *reasoning = (struct token_bytes){ begin, (size_t)(end - begin) };
}

static void set_content(struct shaping *s, const struct chat_message *m, struct token_bytes text, bool calls,
                        struct jinja_value *out)
{
    const enum chat_no_content none = s->x->caps->no_content;
    if (calls && !text.len && none == CONTENT_NULL)
        set(s, out, "content", jinja_none(s->values));
    else if (!calls || text.len || none == CONTENT_EMPTY)
        set(s, out, "content", content_of(s, m, text));
}

/* first: the first one's place among the conversation's; NO_CALL: they were text. */
static bool set_calls(struct shaping *s, size_t i, const struct chat_call *calls, size_t n, uint32_t first,
                      struct jinja_value *out)
{
    const struct chat_caps *caps = s->x->caps;
    if (!caps->calls) return fail(s, i, "tool_calls", "this model's template has no form for calls of tools");
    if (n > 1 && !caps->parallel)
        return fail(s, i, "tool_calls", "this model's template has no form for several calls in one message");
    struct jinja_value *list = jinja_list(s->values);
    for (size_t k = 0; k < n; k++)
        if (!add_call(s, i, &calls[k], first == NO_CALL ? NO_CALL : first + (uint32_t)k, list)) return false;
    set(s, out, "tool_calls", list);
    return true;
}

static bool set_answer(struct shaping *s, size_t i, const struct chat_message *m, struct token_bytes text,
                       struct jinja_value *out)
{
    const struct chat_caps *caps = s->x->caps;
    struct token_bytes reasoning = m->reasoning;
    struct chat_split split;
    split_reasoning(caps, m, &reasoning, &text);
    if (!chat_split_calls(m->n_calls ? NULL : s->x->calls, caps->parallel, i, &text, &split)) return no_memory(s);
    const size_t n = split.n ? split.n : m->n_calls;
    set_content(s, m, text, n > 0, out);
    if (reasoning.len && caps->reasoning_field) set(s, out, caps->reasoning_field, input(s, reasoning));
    const bool ok = !n || (split.n ? set_calls(s, i, split.calls, n, NO_CALL, out)
                                   : set_calls(s, i, s->c->calls + m->call, n, (uint32_t)m->call, out));
    chat_split_free(&split);
    return ok;
}

static enum chat_role role_of(const struct shaping *s, size_t i)
{
    const enum chat_role role = s->c->messages[i].role;
    return role == CHAT_DEVELOPER && !s->x->caps->developer ? CHAT_SYSTEM : role;
}

/* How many messages from i on are one for this template. */
static size_t together(const struct shaping *s, size_t i)
{
    const struct chat_caps *caps = s->x->caps;
    const enum chat_role role = role_of(s, i);
    const bool merges =
        role == CHAT_SYSTEM ? !i && !caps->systems : (role == CHAT_USER || role == CHAT_ASSISTANT) && caps->alternates;
    size_t n = 1;
    while (merges && i + n < s->c->n && role_of(s, i + n) == role && !s->c->messages[i + n - 1].n_calls &&
           (role != CHAT_ASSISTANT || !s->c->messages[i + n].reasoning.data))
        n++;
    return n;
}

/* The texts of n messages as paragraphs of one. */
static struct token_bytes join(struct shaping *s, size_t i, size_t n)
{
    size_t at = 0;
    if (n == 1) return s->c->messages[i].text;
    for (size_t k = i; k < i + n; k++) {
        const struct token_bytes text = s->c->messages[k].text;
        if (at && text.len) at += (size_t)sprintf(s->joined + at, "\n\n");
        if (text.len) memcpy(s->joined + at, text.data, text.len);
        at += text.len;
    }
    return (struct token_bytes){ s->joined, at };
}

static bool add_message(struct shaping *s, size_t i, size_t n, struct jinja_value *list)
{
    const struct chat_message *last = &s->c->messages[i + n - 1];
    const enum chat_role role = role_of(s, i);
    struct chat_message m = *last;
    struct jinja_value *out = jinja_dict(s->values);
    struct token_bytes text = join(s, i, n);
    m.role = role;
    if (n > 1) {
        m.text = text;
        m.in_parts = false;
        if (!m.reasoning.data) m.reasoning = s->c->messages[i].reasoning;
    }
    if (role == CHAT_SYSTEM && !s->x->caps->system)
        return fail(s, i, "role",
                    "this model's template has no %s message: put its text into the first message of the user",
                    chat_role_name(s->c->messages[i].role));
    if (role == CHAT_TOOL && !s->x->caps->results)
        return fail(s, i, "role", "this model's template has no form for results of tools");
    set(s, out, "role", word(s, chat_role_name(role)));
    if (role == CHAT_ASSISTANT) {
        if (!set_answer(s, i, &m, text, out)) return false;
    } else {
        set(s, out, "content", content_of(s, &m, text));
    }
    if (role == CHAT_TOOL) {
        set_id(s, out, "tool_call_id", m.call_id, m.called.data ? (uint32_t)m.called_at : NO_CALL);
        if (!m.name.data) m.name = m.called;
    }
    if (m.name.data && n == 1) set(s, out, "name", input(s, m.name));
    add(s, list, out);
    return true;
}

static struct jinja_value *messages_of(struct shaping *s)
{
    struct jinja_value *list = jinja_list(s->values);
    size_t bytes = 1;
    for (size_t i = 0; i < s->c->n; i++) bytes += s->c->messages[i].text.len + 2;
    s->joined = malloc(bytes);
    bool ok = (list && s->joined) || no_memory(s);
    for (size_t i = 0; ok && i < s->c->n;) {
        const size_t n = together(s, i);
        ok = add_message(s, i, n, list);
        i += n;
    }
    free(s->joined);
    return ok ? list : NULL;
}

/* ---- the context --------------------------------------------------------------------------------------- */

/* Variables that a request sets by members of its own. */
static bool is_own(struct json_text name)
{
    static const char *const own[] = { "messages", "tools", "bos_token", "eos_token" };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (jr_is(name, own[i])) return true;
    return false;
}

/* false, null and what is empty. */
static bool asks_nothing(struct json_text value)
{
    static const char *const nothing[] = { "false", "null", "0", "\"\"", "[]", "{}" };
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        if (jr_is(value, nothing[i])) return true;
    return false;
}

static bool add_variable(struct shaping *s, struct jinja_value *context, struct json_text key, struct json_text raw)
{
    char name[80], field[96], said[192];
    const struct wk_err err = { said, sizeof said };
    struct jinja_value *value;
    (void)snprintf(name, sizeof name, "%.*s", key.len < 60 ? (int)key.len : 60, key.data);
    (void)snprintf(field, sizeof field, "chat_template_kwargs.%.60s", name);
    if (is_own(key))
        return chat_refuse(s->why, WK_INVALID, field, "the request has a member of its own for it, or none");
    if (jr_is(key, "add_generation_prompt")) /* chat_render has read it */
        return jr_is(raw, "true") || jr_is(raw, "false") || jr_is(raw, "null") ||
               chat_refuse(s->why, WK_INVALID, field, "expected true or false");
    if (key.len != strlen(name) || !s->x->template || !jinja_reads(s->x->template, name))
        return asks_nothing(raw) ||
               chat_refuse(s->why, WK_UNSUPPORTED, field, "this model's template reads no variable of that name");
    if (jinja_from_json(s->values, raw.data, raw.len, field, &value, &err))
        return chat_refuse(s->why, WK_INVALID, field, "%s", said);
    set(s, context, name, value);
    return true;
}

/* chat_template_kwargs. */
static bool add_variables(struct shaping *s, struct jinja_value *context, struct token_bytes json)
{
    static const char member[] = "chat_template_kwargs";
    struct json_reader r;
    struct json_text key, raw;
    char said[192] = "";
    const struct wk_err err = { said, sizeof said };
    bool ok = true;
    jr_open(&r, json.data, json.len, member, "", &err);
    if (jr_peek(&r) != JR_OBJECT || !jr_object(&r)) {
        jr_close(&r);
        return chat_refuse(s->why, WK_INVALID, member, "expected an object");
    }
    while (ok && jr_member(&r, &key)) {
        char name[80];
        const struct json_text kept = { name, key.len };
        const bool fits = key.len < sizeof name;
        if (fits) memcpy(name, key.data, key.len);
        ok = jr_raw(&r, &raw);
        if (ok && fits)
            ok = add_variable(s, context, kept, raw);
        else if (ok && !asks_nothing(raw))
            ok = chat_refuse(s->why, WK_UNSUPPORTED, member, "a name has %zu bytes", kept.len);
    }
    if (ok && !r.status && !jr_finish(&r)) ok = false;
    if (r.status && !s->why->status) ok = chat_refuse(s->why, r.status, member, "%s", said);
    jr_close(&r);
    return ok;
}

bool chat_check_variables(struct token_bytes json, struct chat_problem *why)
{
    const struct chat_context none = { .template = NULL };
    struct shaping s = { .x = &none, .why = why };
    return add_variables(&s, NULL, json);
}

bool chat_shape(const struct conversation *c, const struct chat_context *x, struct jinja_values *values,
                struct jinja_value **out, struct chat_problem *why)
{
    struct shaping s = { .c = c, .x = x, .values = values, .why = why };
    *why = (struct chat_problem){ 0 };
    struct jinja_value *context = jinja_dict(values), *messages = messages_of(&s);
    if (!messages) return false;
    set(&s, context, "messages", messages);
    set(&s, context, "add_generation_prompt", jinja_bool(values, x->generation));
    set(&s, context, "bos_token", jinja_string(values, x->bos.data ? x->bos.data : "", x->bos.len, JINJA_TEMPLATE));
    set(&s, context, "eos_token", jinja_string(values, x->eos.data ? x->eos.data : "", x->eos.len, JINJA_TEMPLATE));
    if (x->tools || x->caps->none) set(&s, context, "tools", x->tools ? x->tools : jinja_none(values));
    if (x->documents || x->caps->none) set(&s, context, "documents", x->documents ? x->documents : jinja_none(values));
    if (x->thinking >= 0 && x->caps->thinking_switch)
        set(&s, context, x->caps->thinking_switch, jinja_bool(values, x->thinking));
    if (x->effort && x->caps->effort) set(&s, context, "reasoning_effort", word(&s, x->effort));
    if (x->kwargs.data && !add_variables(&s, context, x->kwargs)) return false;
    *out = context;
    return !s.failed || no_memory(&s);
}
