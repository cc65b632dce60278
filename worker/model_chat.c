/* model_chat.c: see model_chat.h. */
#include "model_chat.h"

#include "chat/clock.h"
#include "errors.h"

static const char *command_of(const struct options *o) { return command_table[o->command].name; }

int model_chat_tokenizer(const struct model *m)
{
    return m->tokenizer
               ? EXIT_DONE
               : fail(CODE_MODEL_LOAD_FAILED,
                      "%s: the file has no tokenizer; give a tokenizer.json with --tokenizer, or use worker score "
                      "--ids or worker bench",
                      m->name);
}

int model_chat_open(const struct options *o, const struct model *m, const char *instead, struct model_chat *out)
{
    const char *path = option_text(o, OPT_CHAT_TEMPLATE);
    ERROR_TEXT(err);
    const int result = path ? text_read(NULL, path, &out->template) : EXIT_DONE;
    if (result) return result;
    const struct chat_source source = { .file = m->file,
                                        .t = m->tokenizer,
                                        .template = { out->template.bytes, out->template.len },
                                        .template_name = path };
    wk_status status = chat_open(&source, &out->chat, &err);
    if (status && status != WK_NO_MEMORY) return fail(CODE_INVALID_REQUEST, "%s; %s", err_text, instead);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    if (chat_is_harmony(out->chat) && !harmony_find_ids(m->tokenizer, &out->harmony))
        return fail(CODE_MODEL_LOAD_FAILED,
                    "%s: its chat template is harmony's, but its vocabulary has no such control tokens", m->name);
    return EXIT_DONE;
}

void model_chat_close(struct model_chat *c)
{
    chat_close(c->chat);
    text_free(&c->template);
    *c = (struct model_chat){ 0 };
}

int model_chat_reasoning(const struct options *o, const struct chat *chat)
{
    static const enum option_id of_chats[] = { OPT_REASONING, OPT_REASONING_EFFORT };
    if (chat && chat_thinks(chat)) return EXIT_DONE;
    for (size_t i = 0; i < sizeof of_chats / sizeof *of_chats; i++)
        if (o->value[of_chats[i]].flag)
            return fail_usage(command_of(o), "--%s is for chats with models that reason; %s",
                              option_table[of_chats[i]].name,
                              chat ? "this model does not" : "this prompt is sent as it is");
    return EXIT_DONE;
}

static int read_options(const struct options *o, struct chat_request *q)
{
    const char *date = option_text(o, OPT_TEMPLATE_DATE);
    if (option_given(o, OPT_REASONING_EFFORT)) q->effort = option_text(o, OPT_REASONING_EFFORT);
    q->clock = chat_clock_now();
    q->clock_set = date != NULL;
    return !date || chat_clock_read(date, &q->clock)
               ? EXIT_DONE
               : fail_usage(command_of(o),
                            "--template-date: expected a day or a time of RFC 3339, such as 2026-07-04, got "
                            "\"%.40s\"",
                            date);
}

int model_chat_encode(const struct options *o, const struct model *m, const struct chat *chat, struct chat_request *q,
                      struct chat_prompt *prompt, struct tokens *out)
{
    struct chat_problem why;
    ERROR_TEXT(err);
    *prompt = (struct chat_prompt){ 0 };
    *out = (struct tokens){ 0 };
    const int result = read_options(o, q);
    if (result) return result;
    if (!chat_render(chat, q, prompt, &why))
        return fail(why.status == WK_NO_MEMORY ? CODE_INSUFFICIENT_MEMORY : CODE_INVALID_REQUEST, "%s", why.text);
    const wk_status status = tokenizer_encode_parts(m->tokenizer, prompt->part, prompt->n, true, out, &err);
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

int model_chat_fits(const struct model *m, const struct tokens *ids)
{
    if (ids->n == 0)
        return fail(CODE_INVALID_REQUEST, "the prompt is empty and the model begins no text by itself; give a prompt");
    if (ids->n >= m->dev.context)
        return fail(CODE_CONTEXT_LENGTH_EXCEEDED,
                    "the prompt has %zu tokens, the context %u; shorten it or raise --context", ids->n, m->dev.context);
    for (size_t i = 0; i < ids->n; i++)
        if (ids->ids[i] >= m->program->n_vocab)
            return fail(CODE_MODEL_LOAD_FAILED, "%s: its tokenizer gives id %u, but its vocabulary has %u", m->name,
                        ids->ids[i], m->program->n_vocab);
    return EXIT_DONE;
}
