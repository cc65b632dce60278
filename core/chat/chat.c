/* chat.c: chats from files and templates (chat.h): which template it is, whether it can be used, and what it can
 * express. */
#include "chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat_inside.h"
#include "gguf/gguf.h"

/* ---- opening ------------------------------------------------------------------------------------------- */

static struct token_bytes special_text(const struct tokenizer *t, uint32_t id)
{
    return id == TOKEN_NONE ? (struct token_bytes){ "", 0 } : tokenizer_text(t, id);
}

static wk_status open_form(const struct chat *c, struct token_bytes text, bool as_is, struct chat_form *out,
                           const struct wk_err *err)
{
    wk_status status = jinja_open(&out->template, text.data, text.len, err);
    if (!status && !as_is)
        status = chat_probe(out->template, text, c->bos, c->eos, out == &c->with_tools, &out->caps, err);
    if (!status && !as_is) status = chat_find_calls(c, text, out, err);
    if (!status && !as_is && c->tokenizer)
        status = chat_check_marks(out->template, &out->caps, c->tokenizer, c->bos, c->eos, err);
    return status;
}

static void close_form(struct chat_form *f)
{
    jinja_close(f->template);
    tools_model_close(f->calls);
    tools_model_close(f->past);
    f->template = NULL;
    f->calls = f->past = NULL;
}

static bool says_harmony(struct token_bytes t)
{
    static const char *const marks[] = { "<|start|>", "<|message|>", "<|channel|>" };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!memmem(t.data, t.len, marks[i], strlen(marks[i]))) return false;
    return true;
}

static wk_status check_harmony(const struct tokenizer *t, const struct wk_err *err)
{
    static const char *const marks[] = { "<|start|>", "<|message|>", "<|channel|>", "<|end|>" };
    wk_status status = WK_OK;
    for (size_t i = 0; !status && i < sizeof marks / sizeof *marks; i++)
        status = chat_check_mark(t, (struct token_bytes){ marks[i], strlen(marks[i]) }, false, err);
    return status;
}

/* template.data NULL: none. given: by the user, in the place of the file's. */
static wk_status open_plain(struct chat *c, struct token_bytes template, bool given, bool as_is, const char *model,
                            const struct wk_err *err)
{
    const struct tokenizer *t = c->tokenizer;
    c->name = "jinja";
    if (!template.data) {
        const char *builtin = t ? chat_builtin(t, model, &c->name) : NULL;
        if (!builtin)
            return wk_fail(err, WK_UNSUPPORTED,
                           "%s has no chat template and its tokens show no known family; name a template with "
                           "--chat-template, or write the prompt in the model's form yourself and send it as it is "
                           "(--raw)",
                           model && *model ? model : "the file");
        c->harmony = c->harmony_prompts = !*builtin;
        template = (struct token_bytes){ builtin, strlen(builtin) };
    } else if (t && says_harmony(template)) {
        c->harmony = true;
        c->harmony_prompts = !given && !as_is;
    }
    if (c->harmony) c->name = "harmony";
    const wk_status status = c->harmony && !as_is ? check_harmony(t, err) : WK_OK;
    return status || c->harmony_prompts ? status : open_form(c, template, as_is, &c->plain, err);
}

static wk_status no_memory(const struct wk_err *err) { return wk_fail(err, WK_NO_MEMORY, "no memory for a chat"); }

static struct chat *new_chat(const struct tokenizer *t)
{
    struct chat *c = calloc(1, sizeof *c);
    if (c && t) {
        c->tokenizer = t;
        c->bos = special_text(t, tokenizer_bos(t));
        c->eos = special_text(t, tokenizer_eos(t));
    }
    return c;
}

wk_status chat_open_text(const char *template, size_t len, const char *name, const struct tokenizer *t,
                         struct chat **out, const struct wk_err *err)
{
    struct chat *c = new_chat(t);
    *out = NULL;
    const wk_status status =
        c ? open_plain(c, (struct token_bytes){ template, len }, false, false, name, err) : no_memory(err);
    if (status)
        chat_close(c);
    else
        *out = c;
    return status;
}

/* The string of a key. data NULL: the file has none. */
static wk_status text_of(const struct gguf *file, const char *key, struct token_bytes *out, const struct wk_err *err)
{
    struct gguf_str text = { NULL, 0 };
    const struct gguf_kv *kv = file ? gguf_find(file, key) : NULL;
    const wk_status status = kv ? gguf_str(file, kv, &text, err) : WK_OK;
    *out = (struct token_bytes){ text.data, (size_t)text.len };
    if (!status && kv && !out->data) out->data = "";
    return status;
}

/* The file's template for conversations with tools. One that cannot be used leaves the other as it is, and refuses
 * tools. */
static void open_tool_use(struct chat *c, const struct chat_source *source)
{
    struct token_bytes text;
    const struct wk_err err = { c->tool_use_fault, sizeof c->tool_use_fault };
    if (c->harmony_prompts || source->template.data ||
        text_of(source->file, "tokenizer.chat_template.tool_use", &text, &err) || !text.data)
        return;
    if (open_form(c, text, source->as_is, &c->with_tools, &err)) close_form(&c->with_tools);
}

wk_status chat_open(const struct chat_source *source, struct chat **out, const struct wk_err *err)
{
    struct token_bytes template = source->template, name = { 0 };
    char model[128], said[384];
    const struct wk_err own = { said, sizeof said };
    struct chat *c = new_chat(source->t);
    *out = NULL;
    wk_status status = c ? WK_OK : no_memory(&own);
    if (!status && !template.data) status = text_of(source->file, "tokenizer.chat_template", &template, &own);
    if (!status) status = text_of(source->file, "general.name", &name, &own);
    (void)snprintf(model, sizeof model, "%.*s", (int)(name.len < 127 ? name.len : 127), name.data ? name.data : "");
    if (!status) status = open_plain(c, template, source->template.data != NULL, source->as_is, model, &own);
    if (!status) {
        open_tool_use(c, source);
        if (source->json_calls) status = chat_open_json_calls(c, &own);
    }
    if (!status) {
        *out = c;
        return WK_OK;
    }
    chat_close(c);
    return source->template.data ? wk_fail(err, status, "%s: %s", source->template_name, said)
                                 : wk_fail(err, status, "%s", said);
}

void chat_close(struct chat *c)
{
    if (!c) return;
    close_form(&c->plain);
    close_form(&c->with_tools);
    for (int i = 0; i < CHAT_JSON_FORMS; i++) tools_model_close(c->json_calls[i]);
    free(c);
}

const char *chat_name(const struct chat *c) { return c->name; }
bool chat_is_harmony(const struct chat *c) { return c->harmony; }

bool chat_thinks(const struct chat *c) { return c->harmony || chat_form_thinks(&c->plain); }
