/* chat_render.c: a request through a chat's template (chat.h): what is asked of thinking, the render, and whether all
 * that was said is in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat_inside.h"
#include "tokenizer/json_reader.h"

/* ---- what a request asks of thinking ------------------------------------------------------------------- */

struct chosen {
    const char *effort;
    int thinking;
};

static bool refuse_effort(const struct chat_request *q, const char *expected, struct chat_problem *why)
{
    return chat_refuse(why, WK_UNSUPPORTED, "reasoning_effort", "expected %s, got %s", expected, q->effort);
}

static bool is(const char *text, const char *word) { return text && strcmp(text, word) == 0; }

/* The least that a model can do is minimal for it. */
static bool choose_harmony(const struct chat_request *q, struct chosen *out, struct chat_problem *why)
{
    *out = (struct chosen){ is(q->effort, "minimal") ? "low" : q->effort, -1 };
    if (q->wishes) return true;
    if (is(q->effort, "none")) return refuse_effort(q, "minimal, low, medium or high: this model always reasons", why);
    return q->thinking != 0 ||
           chat_refuse(why, WK_UNSUPPORTED, "enable_thinking", "expected true, got false: this model always reasons");
}

static bool choose_effort(const struct chat_caps *caps, bool thinks, const struct chat_request *q, struct chosen *out,
                          struct chat_problem *why)
{
    const bool none = is(q->effort, "none"), least = none || is(q->effort, "minimal");
    if (!q->effort) return true;
    if (caps->thinking_switch && (least || !caps->effort)) {
        out->thinking = !least;
    } else if (caps->effort) {
        out->effort = is(q->effort, "minimal") ? "low" : q->effort;
        if (caps->thinking_switch) out->thinking = 1;
    } else if (!thinks && !least) {
        return refuse_effort(q, "none, or nothing: this model does not reason", why);
    } else if (thinks && !is(q->effort, "medium")) {
        return refuse_effort(q, "nothing: this model always reasons, as long as it chooses", why);
    }
    return true;
}

/* Each goes where the template reads it, and nowhere else: a level does not turn thinking on. */
static struct chosen choose_wishes(const struct chat_caps *caps, const struct chat_request *q)
{
    return (struct chosen){ caps->effort ? q->effort : NULL, caps->thinking_switch ? q->thinking : -1 };
}

static bool choose_thinking(const struct chat_form *f, const struct chat_request *q, struct chosen *out,
                            struct chat_problem *why)
{
    const bool thinks = chat_form_thinks(f);
    *out = q->wishes ? choose_wishes(&f->caps, q) : (struct chosen){ NULL, -1 };
    if (q->wishes) return true;
    if (!choose_effort(&f->caps, thinks, q, out, why)) return false;
    if (q->thinking < 0) return true;
    if (f->caps.thinking_switch)
        out->thinking = q->thinking;
    else if (q->thinking != thinks)
        return chat_refuse(why, WK_UNSUPPORTED, "enable_thinking", "expected %s, got %s: %s", thinks ? "true" : "false",
                           q->thinking ? "true" : "false",
                           thinks ? "this model always reasons" : "this model does not reason");
    return true;
}

/* ---- running a template -------------------------------------------------------------------------------- */

static bool fail_render(const struct jinja_result *made, const char *said, struct chat_problem *why)
{
    const wk_status status = made->end == JINJA_NO_MEMORY ? WK_NO_MEMORY : WK_UNSUPPORTED;
    return chat_refuse(why, status, "messages", "the model's chat template refuses them: %s", said);
}

/* The parts of out->made, of which `n` bytes are wanted. */
bool chat_make_parts(struct chat_prompt *out, size_t n, struct chat_problem *why)
{
    const struct jinja_result *made = &out->made;
    out->part = out->own = calloc(made->n_runs + 1, sizeof *out->own);
    if (!out->own) return chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the prompt");
    for (size_t i = 0; i < made->n_runs && made->runs[i].begin < n; i++) {
        const size_t end = made->runs[i].end < n ? made->runs[i].end : n;
        out->own[out->n++] = (struct tokenizer_part){ made->text + made->runs[i].begin, end - made->runs[i].begin,
                                                      made->runs[i].from_template };
    }
    return true;
}

static const char *last_of(const char *text, size_t n, const char *mark)
{
    const size_t len = strlen(mark);
    for (size_t at = n; len && len <= n && at >= len; at--)
        if (memcmp(text + at - len, mark, len) == 0) return text + at - len;
    return NULL;
}

/* Does the prompt end inside reasoning? The template has opened it behind the last message. */
static bool ends_opened(const struct chat_prompt *p, const struct chat_caps *caps)
{
    const struct tokenizer_part *tail = p->n ? &p->own[p->n - 1] : NULL;
    if (!tail || !tail->parse_special || !caps->open[0]) return false;
    const char *open = last_of(tail->bytes, tail->len, caps->open),
               *close = last_of(tail->bytes, tail->len, caps->close);
    return open && (!close || close < open);
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static struct token_bytes stripped(struct token_bytes t)
{
    while (t.len && is_blank(*t.data)) t.data++, t.len--;
    while (t.len && is_blank(t.data[t.len - 1])) t.len--;
    return t;
}

/* Where `words` end in a text the last time; 0: nowhere. Read backwards, each byte once, whatever clients repeat in
 * both (Knuth, Morris and Pratt 1977). borders: [words.len] */
static size_t end_of_last(const char *text, size_t n, struct token_bytes words, size_t *borders)
{
    const char *const last = words.data + words.len - 1;
    borders[0] = 0;
    for (size_t i = 1, k = 0; i < words.len; i++) {
        while (k && *(last - i) != *(last - k)) k = borders[k - 1];
        k += *(last - i) == *(last - k);
        borders[i] = k;
    }
    for (size_t at = n, k = 0; at-- > 0;) {
        while (k && text[at] != *(last - k)) k = borders[k - 1];
        k += text[at] == *(last - k);
        if (k == words.len) return at + words.len;
    }
    return 0;
}

/* Where the last message's text ends in what was made, so that the model goes on there. As the template has it: blanks
 * at its end that were taken off stay off. */
static bool end_of_final(const struct jinja_result *made, struct token_bytes text, size_t *out,
                         struct chat_problem *why)
{
    const struct token_bytes words = stripped(text); /* not empty: check_last */
    const size_t trailing = (size_t)((text.data + text.len) - (words.data + words.len));
    size_t *borders = words.len <= made->n ? malloc(words.len * sizeof *borders) : NULL, at = 0;
    if (words.len <= made->n && !borders)
        return chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the conversation");
    if (borders) at = end_of_last(made->text, made->n, words, borders);
    free(borders);
    if (!at)
        return chat_refuse(why, WK_UNSUPPORTED, "continue_final_message",
                           "this model's template does not show an answer as it is, so that none can be gone on with");
    if (made->n - at >= trailing && !memcmp(made->text + at, words.data + words.len, trailing)) at += trailing;
    *out = at;
    return true;
}

/* ---- is everything there? ------------------------------------------------------------------------------ */

/* A conversation of the same form in which message i says "Wmessage{i}w". */
static bool with_sentinels(const struct conversation *c, struct conversation *out, struct chat_problem *why)
{
    enum { ROOM = 32 };
    *out = *c;
    out->messages = calloc(c->n, sizeof *out->messages);
    out->texts = malloc(c->n * ROOM);
    if (!out->messages || !out->texts) {
        free(out->messages);
        free(out->texts);
        return chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the conversation");
    }
    for (size_t i = 0; i < c->n; i++) {
        char *text = out->texts + i * ROOM;
        out->messages[i] = c->messages[i];
        if (!c->messages[i].text.len) continue;
        out->messages[i].text = (struct token_bytes){ text, (size_t)snprintf(text, ROOM, "Wmessage%zuw", i) };
        out->messages[i].in_parts = false;
    }
    return true;
}

static bool shows(const struct jinja_result *made, size_t *from, struct token_bytes words)
{
    const char *at = memmem(made->text + *from, made->n - *from, words.data, words.len);
    if (!at && *from) at = memmem(made->text, made->n, words.data, words.len);
    if (at) *from = (size_t)(at - made->text) + words.len;
    return at != NULL;
}

/* Texts of messages that are not in the prompt as they are: did the template change them, or leave them out? */
static bool check_dropped(const struct chat_form *f, const struct chat_context *x, const struct jinja_options *clock,
                          const struct conversation *c, const bool *missing, struct jinja_values *values,
                          struct chat_problem *why)
{
    struct conversation marked;
    struct jinja_value *context;
    struct jinja_result made = { 0 };
    size_t from = 0;
    if (!with_sentinels(c, &marked, why)) return false;
    bool ok = true;
    if (chat_shape(&marked, x, values, &context, why) && !jinja_render(f->template, context, clock, &made, NULL))
        for (size_t i = 0; ok && i < c->n; i++)
            if (missing[i] && !shows(&made, &from, marked.messages[i].text)) {
                char field[96];
                (void)snprintf(field, sizeof field, "messages[%zu].role", i);
                ok = chat_refuse(why, WK_UNSUPPORTED, field,
                                 "this model's template leaves a %s message at this place out of the prompt",
                                 chat_role_name(c->messages[i].role));
            }
    if (ok) *why = (struct chat_problem){ 0 };
    jinja_result_free(&made);
    free(marked.messages);
    free(marked.texts);
    return ok;
}

/* Each text that is not found costs a search of the whole prompt. Behind so many, sentinels alone tell. */
enum { MOST_MISSING = 16 };

/* Is every text of a system, a user and a tool in the prompt? What answers said may be left out: templates drop what a
 * model was not trained to see again, such as its reasoning. */
static bool check_shown(const struct chat_form *f, const struct chat_context *x, const struct jinja_options *clock,
                        const struct conversation *c, const struct jinja_result *made, struct jinja_values *values,
                        struct chat_problem *why)
{
    bool *missing = calloc(c->n, sizeof *missing);
    size_t from = 0, n_missing = 0;
    if (!missing) return chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the conversation");
    for (size_t i = 0; i < c->n; i++) {
        const struct chat_message *m = &c->messages[i];
        const struct token_bytes words = stripped(m->text);
        if (m->role == CHAT_ASSISTANT || !words.len) continue;
        missing[i] = n_missing == MOST_MISSING || !shows(made, &from, words);
        if (missing[i] && n_missing < MOST_MISSING) n_missing++;
    }
    const bool ok = !n_missing || check_dropped(f, x, clock, c, missing, values, why);
    free(missing);
    return ok;
}

static bool check_tools_shown(const struct chat_tools *tools, const struct jinja_result *made, struct chat_problem *why)
{
    size_t from = 0;
    for (size_t i = 0; i < tools->n; i++) {
        char field[96];
        (void)snprintf(field, sizeof field, "tools[%zu]", i);
        if (!shows(made, &from, tools->list[i].name))
            return chat_refuse(
                why, WK_UNSUPPORTED, field, "this model's template leaves the function %.*s out of the prompt",
                (int)(tools->list[i].name.len < 64 ? tools->list[i].name.len : 64), tools->list[i].name.data);
    }
    return true;
}

/* ---- rendering ----------------------------------------------------------------------------------------- */

/* add_generation_prompt among the variables is the request's own member by another way. */
static void read_generation(struct chat_request *q)
{
    struct json_reader r;
    struct json_text key;
    char said[128];
    const struct wk_err err = { said, sizeof said };
    jr_open(&r, q->kwargs.data, q->kwargs.len, "kwargs", "", &err);
    if (q->kwargs.data && jr_peek(&r) == JR_OBJECT && jr_object(&r))
        while (jr_member(&r, &key)) {
            bool generation;
            if (jr_is(key, "add_generation_prompt") && jr_peek(&r) == JR_BOOL && jr_bool(&r, &generation))
                q->no_generation = !generation;
            else
                (void)jr_skip(&r);
        }
    jr_close(&r);
}

static bool check_last(const struct chat_request *q, struct chat_problem *why)
{
    const struct conversation *c = q->conversation;
    const struct chat_message *last = &c->messages[c->n - 1];
    char field[96];
    (void)snprintf(field, sizeof field, "messages[%zu].role", c->n - 1);
    if (q->continue_final && last->role != CHAT_ASSISTANT)
        return chat_refuse(why, WK_INVALID, field,
                           "continue_final_message goes on with an assistant's message, not a %s's",
                           chat_role_name(last->role));
    if (q->continue_final && (last->n_calls || !stripped(last->text).len))
        return chat_refuse(why, WK_INVALID, field,
                           "continue_final_message needs an answer with a text and without calls");
    if (last->role == CHAT_ASSISTANT && !q->continue_final && !q->no_generation)
        return chat_refuse(why, WK_INVALID, field,
                           "the last message is an answer: continue_final_message goes on with it; else a user or a "
                           "tool speaks last");
    return true;
}

/* told: what the template does not take stands in messages. */
static bool read_tools(const struct chat_form *f, const struct chat_request *q, bool told, struct jinja_values *values,
                       const struct jinja_value **out, struct chat_tools *tools, struct chat_problem *why)
{
    char said[256];
    const struct wk_err err = { said, sizeof said };
    struct jinja_value *value;
    if (!q->tools.data) return true;
    if (!chat_tools_read(q->tools.data, q->tools.len, tools, why)) return false;
    if (!tools->n) return true;
    if (!f->caps.tools)
        return told || chat_refuse(why, WK_UNSUPPORTED, "tools", "this model's template has no form for tools");
    if (jinja_from_json(values, q->tools.data, q->tools.len, "tools", &value, &err))
        return chat_refuse(why, WK_INVALID, "tools", "%s", said);
    *out = value;
    return true;
}

static bool read_documents(const struct chat_form *f, const struct chat_request *q, struct jinja_values *values,
                           const struct jinja_value **out, struct chat_problem *why)
{
    char said[256];
    const struct wk_err err = { said, sizeof said };
    struct jinja_value *value;
    if (!q->documents.data) return true;
    if (!jinja_reads(f->template, "documents"))
        return chat_refuse(why, WK_UNSUPPORTED, "documents", "this model's template has no form for documents");
    if (jinja_from_json(values, q->documents.data, q->documents.len, "documents", &value, &err))
        return chat_refuse(why, WK_INVALID, "documents", "%s", said);
    *out = value;
    return true;
}

/* From the shaped context to parts. */
static bool run(const struct chat_form *f, const struct chat_context *x, const struct chat_request *q,
                const struct chat_tools *tools, struct jinja_values *values, struct chat_prompt *out,
                struct chat_problem *why)
{
    struct jinja_value *context;
    char said[384] = "";
    const struct wk_err err = { said, sizeof said };
    const struct conversation *c = q->conversation;
    if (!conversation_check_ids(c, f->ids, why) || !chat_shape(c, x, values, &context, why)) return false;
    if (jinja_render(f->template, context, &q->clock, &out->made, &err)) return fail_render(&out->made, said, why);
    if (!check_shown(f, x, &q->clock, c, &out->made, values, why) || !check_tools_shown(tools, &out->made, why))
        return false;
    size_t n = out->made.n;
    if (q->continue_final && !end_of_final(&out->made, c->messages[c->n - 1].text, &n, why)) return false;
    if (!chat_make_parts(out, n, why)) return false;
    if (!q->continue_final) out->marks = (struct chat_marks){ f->caps.open, f->caps.close, ends_opened(out, &f->caps) };
    return true;
}

static bool render_form(const struct chat *c, const struct chat_form *f, const struct chat_request *q, bool told,
                        struct chat_prompt *out, struct chat_problem *why)
{
    struct chosen chosen;
    struct chat_tools tools = { 0 };
    struct chat_context x = { .template = f->template,
                              .caps = &f->caps,
                              .calls = f->past,
                              .bos = c->bos,
                              .eos = c->eos,
                              .kwargs = q->kwargs,
                              .generation = !q->no_generation && !q->continue_final };
    if (q->tools.data && c->tool_use_fault[0])
        return chat_refuse(why, WK_UNSUPPORTED, "tools", "the file's template tool_use cannot be used: %s",
                           c->tool_use_fault);
    if (!choose_thinking(f, q, &chosen, why)) return false;
    x.thinking = chosen.thinking;
    x.effort = chosen.effort;
    struct jinja_values *values = jinja_values_new();
    if (!values) return chat_refuse(why, WK_NO_MEMORY, "messages", "no memory for the conversation");
    const bool ok = read_tools(f, q, told, values, &x.tools, &tools, why) &&
                    read_documents(f, q, values, &x.documents, why) && run(f, &x, q, &tools, values, out, why);
    chat_tools_free(&tools);
    jinja_values_free(values);
    return ok;
}

static bool render_template(const struct chat *c, const struct chat_request *q, struct chat_prompt *out,
                            struct chat_problem *why)
{
    const struct chat_form *f = q->tools.data && c->with_tools.template ? &c->with_tools : &c->plain;
    struct chat_request own = *q;
    struct chat_told told;
    if (!c->json_calls[CHAT_JSON_LIST] || f->calls) return render_form(c, f, q, false, out, why);
    if (!chat_tell(&f->caps, q, &told, why)) return false;
    own.conversation = &told.conversation;
    const bool ok = render_form(c, f, &own, true, out, why);
    if (!ok) chat_told_blame(&told, why);
    chat_told_free(&told);
    return ok;
}

/* What calls in an answer's text can become (split.c): a value behind each of these signs, which takes as much as three
 * bytes of JSON are counted for. */
static size_t json_in_text(struct token_bytes text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += text.data[i] == '[' || text.data[i] == '{' || text.data[i] == ',';
    return 3 * n;
}

size_t chat_memory(const struct conversation *c, size_t json)
{
    enum { OF_MESSAGE = 1024, OF_PART = 512, OF_TEXT = 16, OF_JSON = 64 };
    size_t texts = c->n_texts;
    for (size_t i = 0; i < c->n_calls; i++) json += c->calls[i].arguments.len;
    for (size_t i = 0; i < c->n; i++)
        if (c->messages[i].role == CHAT_ASSISTANT) json += json_in_text(c->messages[i].text);
    for (size_t i = 0; i < c->n && !c->texts; i++) texts += c->messages[i].text.len; /* conversation_of_user */
    const size_t values = (c->n + c->n_calls) * OF_MESSAGE + c->n_parts * OF_PART + json * OF_JSON;
    return texts * OF_TEXT + (values < JINJA_MAX_MEMORY ? values : JINJA_MAX_MEMORY);
}

bool chat_render(const struct chat *c, const struct chat_request *q, struct chat_prompt *out, struct chat_problem *why)
{
    *out = (struct chat_prompt){ .marks = { "", "", false } };
    *why = (struct chat_problem){ 0 };
    struct chat_request own = *q;
    read_generation(&own);
    if (!check_last(&own, why)) return false;
    if (!c->harmony_prompts) return render_template(c, &own, out, why);
    struct chosen chosen;
    if (!choose_harmony(&own, &chosen, why)) return false;
    own.effort = chosen.effort;
    return chat_render_harmony(&own, out, why);
}

void chat_prompt_free(struct chat_prompt *p)
{
    jinja_result_free(&p->made);
    harmony_prompt_free(&p->harmony);
    free(p->own);
    free(p->texts);
    *p = (struct chat_prompt){ 0 };
}
