/* json_calls.c: functions for a model whose form of calls is not known, where the user has asked for it (--tool-format
 * json): calls are plain JSON, to which the answer's mask holds the model, and what its template has no form for of
 * functions, calls and results stands in messages. All of that counts as said by the request, never as the template's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat_inside.h"
#include "tokenizer/json_reader.h"

static const struct tools_format formats[] = {
    [CHAT_JSON_LIST] = { .name = "json", .begin = "[", .between = ", ", .end = "]", .call = "$OBJECT" },
    [CHAT_JSON_ONE] = { .name = "json", .call = "$OBJECT", .single = true },
};

wk_status chat_open_json_calls(struct chat *c, const struct wk_err *err)
{
    const struct chat_form *f = c->with_tools.template ? &c->with_tools : &c->plain;
    wk_status status = WK_OK;
    if (c->harmony || f->calls) return WK_OK;
    for (int i = 0; !status && i < CHAT_JSON_FORMS; i++)
        status = tools_model_open(&formats[i], c->tokenizer, &c->json_calls[i], err);
    return status;
}

const struct tools_model *chat_json_calls(const struct chat *c, bool one)
{
    return c->json_calls[one ? CHAT_JSON_ONE : CHAT_JSON_LIST];
}

/* ---- texts --------------------------------------------------------------------------------------------- */

static const char begins[] = "You can call functions. They are, as JSON:\n",
                  ends_list[] =
                      "\nTo call functions, answer with a JSON list of calls and nothing else: [{\"name\": \"the "
                      "function's name\", \"arguments\": {the parameters}}, ...]",
                  ends_one[] = "\nTo call one, answer with a JSON object and nothing else: {\"name\": \"the function's "
                               "name\", \"arguments\": {the parameters}}";

struct telling {
    const struct chat_request *q;
    const struct chat_caps *caps;
    struct conversation *out;
    char *at; /* where the next text goes */
    struct chat_problem *why;
};

static void put(struct telling *t, const char *bytes, size_t n)
{
    if (n) memcpy(t->at, bytes, n);
    t->at += n;
}
static void put_text(struct telling *t, const char *text) { put(t, text, strlen(text)); }

/* What was put since `begin` is the message's whole text. */
static void set_text(struct telling *t, struct chat_message *m, const char *begin)
{
    m->text = (struct token_bytes){ begin, (size_t)(t->at - begin) };
    m->has_content = true;
    m->in_parts = false;
}

/* Bytes that all new texts take together at most. */
static size_t room(const struct chat_request *q)
{
    enum { AROUND = 64 };
    const struct conversation *c = q->conversation;
    size_t n = sizeof begins + sizeof ends_list + sizeof ends_one + q->tools.len + AROUND;
    for (size_t i = 0; i < c->n; i++)
        n += c->messages[i].text.len + c->messages[i].name.len + c->messages[i].called.len + AROUND;
    for (size_t i = 0; i < c->n_calls; i++) n += c->calls[i].name.len + c->calls[i].arguments.len + AROUND;
    return n;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* An answer's calls as JSON. */
static wk_status write_calls(const struct telling *t, const struct chat_message *m, struct byte_buffer *out,
                             const struct wk_err *err)
{
    const bool one = t->q->one_call && m->n_calls == 1;
    struct tools_written *calls = calloc(m->n_calls, sizeof *calls);
    wk_status status = calls ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory for the conversation");
    for (size_t k = 0; !status && k < m->n_calls; k++) {
        const struct chat_call *call = &t->q->conversation->calls[m->call + k];
        const struct token_bytes arguments = call->arguments.len ? call->arguments : (struct token_bytes){ "{}", 2 };
        calls[k] = (struct tools_written){ .name = call->name, .arguments = arguments };
        if (!jr_is_object(arguments.data, arguments.len))
            status = wk_fail(err, WK_INVALID, "the arguments of %.*s are no JSON object",
                             (int)(call->name.len < 40 ? call->name.len : 40), call->name.data);
    }
    if (!status) status = tools_write(&formats[one ? CHAT_JSON_ONE : CHAT_JSON_LIST], calls, m->n_calls, out, err);
    free(calls);
    return status;
}

static bool tell_calls(struct telling *t, size_t i, struct chat_message *m)
{
    const char *const begin = t->at;
    char field[96], said[256] = "";
    struct byte_buffer written = { 0 };
    const wk_status status = write_calls(t, m, &written, &(struct wk_err){ said, sizeof said });
    (void)snprintf(field, sizeof field, "messages[%zu].tool_calls", i);
    if (status) {
        (void)chat_refuse(t->why, status, field, "%s", said);
    } else {
        put(t, m->text.data, m->text.len);
        if (m->text.len) put_text(t, "\n");
        put(t, written.data, written.n);
        set_text(t, m, begin);
        m->n_calls = 0;
    }
    free(written.data);
    return !status;
}

static void tell_result(struct telling *t, struct chat_message *m)
{
    const char *const begin = t->at;
    const struct token_bytes name = m->name.data ? m->name : m->called;
    put_text(t, name.len ? "Result of " : "Result");
    put(t, name.data, name.len);
    put_text(t, ":\n");
    put(t, m->text.data, m->text.len);
    set_text(t, m, begin);
    m->role = CHAT_USER;
    m->name = m->call_id = (struct token_bytes){ 0 };
}

/* The functions, before the text of the message. */
static void tell_functions(struct telling *t, struct chat_message *m)
{
    const char *const begin = t->at;
    put_text(t, begins);
    put(t, t->q->tools.data, t->q->tools.len);
    put_text(t, t->q->one_call ? ends_one : ends_list);
    if (m->text.len) put_text(t, "\n\n");
    put(t, m->text.data, m->text.len);
    set_text(t, m, begin);
}

/* In the system message that the conversation begins with, or one of their own; where the template has none, in the
 * first message of the user. */
static bool place_functions(struct telling *t, bool *inserted)
{
    struct conversation *c = t->out;
    const enum chat_role first = c->messages[0].role;
    size_t i = 0;
    if (t->caps->system && first != CHAT_SYSTEM && (first != CHAT_DEVELOPER || t->caps->developer)) {
        memmove(c->messages + 1, c->messages, c->n++ * sizeof *c->messages);
        c->messages[0] = (struct chat_message){ .role = CHAT_SYSTEM, .text = { "", 0 } };
        *inserted = true;
    }
    while (!t->caps->system && i < c->n && c->messages[i].role != CHAT_USER) i++;
    if (i == c->n)
        return chat_refuse(t->why, WK_UNSUPPORTED, "tools",
                           "this model's template has no system message: expected a message of the user to put the "
                           "functions into");
    tell_functions(t, &c->messages[i]);
    return true;
}

bool chat_tell(const struct chat_caps *caps, const struct chat_request *q, struct chat_told *out,
               struct chat_problem *why)
{
    const struct conversation *c = q->conversation;
    struct telling t = { .q = q, .caps = caps, .out = &out->conversation, .why = why };
    *out = (struct chat_told){ .conversation = *c };
    out->conversation.messages = calloc(c->n + 1, sizeof *c->messages);
    out->conversation.texts = t.at = malloc(room(q));
    bool ok = out->conversation.messages && t.at;
    if (!ok) (void)chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the conversation");
    if (ok) memcpy(out->conversation.messages, c->messages, c->n * sizeof *c->messages);
    for (size_t i = 0; ok && i < c->n; i++) {
        struct chat_message *m = &out->conversation.messages[i];
        if (m->n_calls && !caps->calls) ok = tell_calls(&t, i, m);
        if (m->role == CHAT_TOOL && !caps->results) tell_result(&t, m);
    }
    if (!caps->calls) out->conversation.n_calls = 0;
    if (ok && q->tools.data && !caps->tools) ok = place_functions(&t, &out->inserted);
    if (!ok) chat_told_free(out);
    return ok;
}

void chat_told_blame(const struct chat_told *told, struct chat_problem *why)
{
    static const char list[] = "messages[";
    const size_t n = strlen(why->field);
    char field[96], rest[sizeof why->field], text[sizeof why->text];
    char *end;
    if (!told->inserted || strncmp(why->field, list, sizeof list - 1) != 0) return;
    const unsigned long place = strtoul(why->field + sizeof list - 1, &end, 10);
    if (!place) return;
    (void)snprintf(rest, sizeof rest, "%s", end);
    (void)snprintf(text, sizeof text, "%s", why->text + n + strlen(": "));
    (void)snprintf(field, sizeof field, "%s%lu%.60s", list, place - 1, rest);
    (void)chat_refuse(why, why->status, field, "%s", text);
}

void chat_told_free(struct chat_told *told)
{
    free(told->conversation.messages);
    free(told->conversation.texts);
    *told = (struct chat_told){ 0 };
}
