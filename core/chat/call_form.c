/* call_form.c: how a model writes calls of functions: the row of the table (tools/tools.h) whose text is what the
 * model's own template makes of two calls that are tried. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat_inside.h"

#define OFFERED(name, key, type)                                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\",\"parameters\":{\"type\":" \
    "\"object\",\"properties\":{\"" key "\":{\"type\":\"" type "\",\"description\":\"d\"}},\"required\":[]}}}"
static const char offered[] = "[" OFFERED("probe_one", "text", "string") "," OFFERED("probe_two", "line", "string") "]";

/* The conversation that tools_find asks for, with the first n calls; 0: the user's message alone. */
static bool make_conversation(size_t n, bool results, struct conversation *out)
{
    static struct token_bytes said = { "u", 1 }, result = { "r", 1 };
    *out = (struct conversation){ .messages = calloc(2 + n, sizeof *out->messages),
                                  .n = !n ? 1 : 2 + (results ? n : 0),
                                  .calls = calloc(n + 1, sizeof *out->calls),
                                  .n_calls = n };
    if (!out->messages || !out->calls) return false;
    out->messages[0] = (struct chat_message){ .role = CHAT_USER, .has_content = true, .text = said };
    out->messages[1] = (struct chat_message){ .role = CHAT_ASSISTANT, .text = { "", 0 }, .n_calls = n };
    for (size_t i = 0; i < n; i++) {
        const struct tools_written *w = &tools_probes[i];
        out->calls[i] = (struct chat_call){ .id = w->id, .name = w->name, .arguments = w->arguments };
        out->messages[2 + i] = (struct chat_message){
            .role = CHAT_TOOL, .has_content = true, .text = result, .name = w->name, .call_id = w->id
        };
    }
    return true;
}

/* What the template makes of the first n calls, or of the place where an answer begins; text NULL: nothing. False: no
 * memory. */
static bool render(const struct chat *c, const struct chat_form *f, size_t n, struct jinja_result *out)
{
    struct conversation conversation;
    struct chat_problem why;
    const struct jinja_options options = { 0 };
    struct jinja_value *context = NULL, *tools = NULL;
    struct jinja_values *values = jinja_values_new();
    bool ok = make_conversation(n, f->caps.results, &conversation) && values;
    *out = (struct jinja_result){ 0 };
    ok = ok && !jinja_from_json(values, offered, sizeof offered - 1, "tools", &tools, NULL);
    if (ok) {
        const struct chat_context x = { .template = f->template,
                                        .caps = &f->caps,
                                        .bos = c->bos,
                                        .eos = c->eos,
                                        .tools = f->caps.tools ? tools : NULL,
                                        .generation = !n,
                                        .thinking = -1 };
        if (chat_shape(&conversation, &x, values, &context, &why))
            ok = !jinja_render(f->template, context, &options, out, NULL) || out->end != JINJA_NO_MEMORY;
        else
            ok = why.status != WK_NO_MEMORY;
    }
    if (out->end != JINJA_DONE) jinja_result_free(out);
    conversation_free(&conversation);
    jinja_values_free(values);
    return ok;
}

wk_status chat_find_calls(const struct chat *c, struct token_bytes source, struct chat_form *f,
                          const struct wk_err *err)
{
    struct tools_format format;
    const struct wk_err own = { f->no_calls, sizeof f->no_calls };
    struct jinja_result one = { 0 }, two = { 0 }, prompt = { 0 };
    bool ok = !f->caps.calls || (render(c, f, 0, &prompt) && render(c, f, 1, &one));
    ok = ok && (!f->caps.parallel || render(c, f, TOOLS_PROBES, &two));
    const struct tools_rendered rendered = {
        .template = source, .one = { one.text, one.n }, .two = { two.text, two.n }, .prompt = { prompt.text, prompt.n }
    };
    wk_status status = ok ? tools_find(&rendered, &format, &f->one_call, &own) : WK_NO_MEMORY;
    if (!status) status = tools_model_open(&format, c->tokenizer, &f->calls, &own);
    f->ids = one.text && memmem(one.text, one.n, tools_probes[0].id.data, tools_probes[0].id.len);
    if (!status) status = tools_model_open(&format, NULL, &f->past, &own);
    jinja_result_free(&one);
    jinja_result_free(&two);
    jinja_result_free(&prompt);
    if (status == WK_NO_MEMORY) return wk_fail(err, status, "no memory to try the chat template");
    return WK_OK; /* a model whose calls are not known chats all the same */
}

const struct tools_model *chat_calls(const struct chat *c, bool *single, const char **why)
{
    const struct chat_form *f = c->with_tools.template ? &c->with_tools : &c->plain;
    *single = f->one_call;
    *why = c->tool_use_fault[0] ? c->tool_use_fault : f->no_calls;
    return c->harmony || c->tool_use_fault[0] ? NULL : f->calls;
}
