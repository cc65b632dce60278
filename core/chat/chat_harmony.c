/* chat_harmony.c: conversations as gpt-oss's format has them (chat.h, harmony.h): instructions before the first message
 * are the developer's, reasoning is analysis, calls are commentary with a recipient. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat/chat_inside.h"

enum { NAME_ROOM = 300 /* "functions." and a name */ };

struct writing {
    const struct chat_request *q;
    const struct conversation *c;
    struct harmony_message *messages;
    size_t n;
    char *at; /* where the next text goes */
    struct chat_problem *why;
};

WK_PRINTF(4, 5)
static bool fail(const struct writing *w, size_t i, const char *field, const char *format, ...)
{
    char name[96], text[384];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(name, sizeof name, "messages[%zu].%s", i, field);
    return chat_refuse(w->why, WK_UNSUPPORTED, name, "%s", text);
}

static struct token_bytes word(const char *text) { return (struct token_bytes){ text, strlen(text) }; }

/* "functions.NAME" */
static struct token_bytes function_name(struct writing *w, struct token_bytes name)
{
    const struct token_bytes out = { w->at, 10 + name.len };
    memcpy(w->at, "functions.", 10);
    if (name.len) memcpy(w->at + 10, name.data, name.len);
    w->at += out.len;
    return out;
}

static void add_answer(struct writing *w, const struct chat_message *m)
{
    if (m->reasoning.len)
        w->messages[w->n++] =
            (struct harmony_message){ .role = HARMONY_ASSISTANT, .channel = word("analysis"), .content = m->reasoning };
    if (m->text.len || !m->n_calls)
        w->messages[w->n++] = (struct harmony_message){ .role = HARMONY_ASSISTANT,
                                                        .channel = word(m->n_calls ? "commentary" : "final"),
                                                        .content = m->text };
    for (size_t k = 0; k < m->n_calls; k++) {
        const struct chat_call *call = &w->c->calls[m->call + k];
        w->messages[w->n++] = (struct harmony_message){ .role = HARMONY_ASSISTANT,
                                                        .channel = word("commentary"),
                                                        .recipient = function_name(w, call->name),
                                                        .content_type = word("json"),
                                                        .constrained = true,
                                                        .content = call->arguments };
    }
}

static bool add_result(struct writing *w, size_t i)
{
    const struct chat_message *m = &w->c->messages[i];
    const struct token_bytes name = m->name.data ? m->name : m->called;
    if (!name.len)
        return fail(w, i, "tool_call_id", "no call before it has this id, and the result has no name of a function");
    w->messages[w->n++] = (struct harmony_message){ .role = HARMONY_TOOL,
                                                    .name = function_name(w, name),
                                                    .recipient = word("assistant"),
                                                    .channel = word("commentary"),
                                                    .content = m->text };
    return true;
}

static bool add_messages(struct writing *w, size_t from)
{
    for (size_t i = from; i < w->c->n; i++) {
        const struct chat_message *m = &w->c->messages[i];
        if (m->role == CHAT_ASSISTANT)
            add_answer(w, m);
        else if (m->role == CHAT_TOOL && !add_result(w, i))
            return false;
        else if (m->role != CHAT_TOOL)
            w->messages[w->n++] =
                (struct harmony_message){ .role = m->role == CHAT_USER ? HARMONY_USER : HARMONY_DEVELOPER,
                                          .content = m->text };
    }
    return true;
}

/* The instructions before the first other message, as paragraphs; returns how many messages they were. */
static size_t lead(struct writing *w, struct token_bytes *instructions)
{
    size_t n = 0;
    while (n < w->c->n && (w->c->messages[n].role == CHAT_SYSTEM || w->c->messages[n].role == CHAT_DEVELOPER)) n++;
    if (n == 1) *instructions = w->c->messages[0].text;
    if (n < 2) return n;
    const char *const begin = w->at;
    for (size_t i = 0; i < n; i++) {
        const struct token_bytes text = w->c->messages[i].text;
        if (w->at > begin && text.len) w->at += sprintf(w->at, "\n\n");
        if (text.len) memcpy(w->at, text.data, text.len);
        w->at += text.len;
    }
    *instructions = (struct token_bytes){ begin, (size_t)(w->at - begin) };
    return n;
}

static bool offer(const struct chat_request *q, struct chat_tools *tools, struct harmony_developer *developer,
                  struct chat_problem *why)
{
    if (!q->tools.data) return true;
    if (!chat_tools_read(q->tools.data, q->tools.len, tools, why)) return false;
    struct harmony_function *functions = calloc(tools->n + 1, sizeof *functions);
    if (!functions) return chat_refuse(why, WK_NO_MEMORY, "tools", "no memory for the tools");
    for (size_t i = 0; i < tools->n; i++)
        functions[i] = (struct harmony_function){ .name = tools->list[i].name,
                                                  .description = tools->list[i].description,
                                                  .parameters = tools->list[i].parameters };
    developer->functions = functions;
    developer->n_functions = (uint32_t)tools->n;
    return true;
}

static bool write_date(const struct chat_request *q, char out[16])
{
    const time_t local = (time_t)(q->clock.now + q->clock.utc_offset);
    struct tm day;
    return q->clock_set && gmtime_r(&local, &day) && strftime(out, 16, "%Y-%m-%d", &day) > 0;
}

static bool make(struct writing *w, struct chat_prompt *out, struct chat_problem *why)
{
    const struct chat_request *q = w->q;
    char said[320];
    const struct wk_err err = { said, sizeof said };
    char date[16];
    const struct harmony_system system = { .effort = q->effort, .date = write_date(q, date) ? date : NULL };
    struct harmony_developer developer = { 0 };
    struct chat_tools tools = { 0 };
    struct token_bytes instructions = { 0 };
    const size_t n_lead = lead(w, &instructions);
    developer.instructions = instructions;
    bool ok = add_messages(w, n_lead) && offer(q, &tools, &developer, why);
    const struct harmony_conversation conversation = { .system = &system,
                                                       .developer = &developer,
                                                       .messages = w->messages,
                                                       .n_messages = w->n,
                                                       .answer = !q->no_generation };
    const wk_status status = ok ? harmony_render(&conversation, &out->harmony, &err) : WK_OK;
    if (status) ok = chat_refuse(why, status, "messages", "%s", said);
    free((void *)(uintptr_t)developer.functions);
    chat_tools_free(&tools);
    if (!ok) return false;
    out->part = out->harmony.parts;
    out->n = out->harmony.n;
    return true;
}

bool chat_render_harmony(const struct chat_request *q, struct chat_prompt *out, struct chat_problem *why)
{
    const struct conversation *c = q->conversation;
    struct writing w = { .q = q, .c = c, .why = why };
    size_t bytes = 1;
    if (q->kwargs.data && !chat_check_variables(q->kwargs, why)) return false;
    if (q->documents.data) return chat_refuse(why, WK_UNSUPPORTED, "documents", "this model's format has no documents");
    if (q->continue_final)
        return chat_refuse(why, WK_UNSUPPORTED, "continue_final_message",
                           "answers of this model have channels: none is gone on with");
    if (!conversation_check_ids(c, false, why)) return false;
    for (size_t i = 0; i < c->n; i++)
        bytes += c->messages[i].text.len + c->messages[i].name.len + (c->messages[i].n_calls + 1) * NAME_ROOM;
    w.messages = calloc(2 * c->n + c->n_calls + 1, sizeof *w.messages);
    w.at = out->texts = malloc(bytes);
    if (!w.messages || !w.at) {
        free(w.messages);
        return chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the conversation");
    }
    const bool ok = make(&w, out, why);
    free(w.messages);
    return ok;
}
