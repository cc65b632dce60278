/* chat.c: see chat.h. The forms are the models' published chat formats; where a template trims texts, names a default
 * system prompt or writes bos, that is read off the template's text. */
#include "chat/chat.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

enum {
    MAX_TEMPLATE = 256 << 10,
    MAX_DEFAULT_SYSTEM = 4096,
    TURN_PARTS = 16 /* of a prompt of one message */,
    PAST_PARTS = 5 /* of another message, at most */
};

typedef wk_status form_fn(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                          const struct wk_err *err);
enum { FAMILY_MARKS = 6 };
struct family {
    const char *name;
    form_fn *form;
    const char *marks[FAMILY_MARKS]; /* special tokens that a conversation is made of */
    const char *words[FAMILY_MARKS]; /* those that in some vocabularies are ordinary text */
};

struct chat {
    const struct family *family;
    struct token_bytes bos, eos;  /* the tokens' texts, of the tokenizer's; bos empty: the template writes none */
    bool trims;                   /* texts lose whitespace at both ends */
    bool states_dates;            /* Llama-3.1: knowledge cutoff and today's date */
    bool refuses_system;          /* Gemma-2 */
    bool open_space, close_space; /* Mistral: "[INST] " and " [/INST]" */
    bool answer_space, eos_space; /* Mistral: a space before an answer, and behind the eos that ends it */
    bool system_last;             /* Mistral: the system message stands in the last user message, not in the first */
    bool drops_thoughts;          /* Qwen3: answers of the past stand without what is before </think> */
    char *default_system;         /* ChatML: used if none is given, or NULL */
};

/* ---- building parts ------------------------------------------------------------------------------------ */

static void put(struct chat_prompt *p, const char *bytes, size_t len, bool trusted)
{
    p->own[p->n++] = (struct tokenizer_part){ bytes, len, trusted }; /* there is room: chat_wrap */
}
static void literal(struct chat_prompt *p, const char *text) { put(p, text, strlen(text), true); }

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void text(const struct chat *c, struct chat_prompt *p, struct token_bytes t)
{
    for (; c->trims && t.len && is_space(t.data[0]); t.data++) t.len--;
    while (c->trims && t.len && is_space(t.data[t.len - 1])) t.len--;
    put(p, t.data, t.len, false);
}

static const char *month_name(int month)
{
    static const char *const names[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    return names[(month - 1) % 12];
}

/* Messages of the two sides in turn, the user's first: for templates that raise an exception otherwise. */
static wk_status alternate(const struct chat *c, const struct chat_turn *turn, const struct wk_err *err)
{
    for (size_t i = 0; i <= turn->n_past; i++) {
        const bool assistant = i < turn->n_past && turn->past[i].assistant;
        if (assistant != (i % 2 == 1))
            return wk_fail(err, WK_UNSUPPORTED,
                           "the %s template has no form for two messages of one side behind each other: user and "
                           "assistant take turns, the user begins",
                           c->family->name);
    }
    return WK_OK;
}

/* An answer of the past. */
static void answer(const struct chat *c, struct chat_prompt *p, struct token_bytes t)
{
    static const char mark[] = "</think>";
    const char *end = NULL;
    for (const char *at = t.data;
         c->drops_thoughts && at && (at = memmem(at, (size_t)(t.data + t.len - at), mark, sizeof mark - 1));)
        end = at += sizeof mark - 1;
    while (end && end < t.data + t.len && *end == '\n') end++;
    text(c, p, end ? (struct token_bytes){ end, (size_t)(t.data + t.len - end) } : t);
}

/* ---- forms --------------------------------------------------------------------------------------------- */

static wk_status chatml(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                        const struct wk_err *err)
{
    (void)err;
    if (turn->system.data || c->default_system) {
        literal(p, "<|im_start|>system\n");
        if (turn->system.data)
            text(c, p, turn->system);
        else
            literal(p, c->default_system);
        literal(p, "<|im_end|>\n");
    }
    for (size_t i = 0; i < turn->n_past; i++) {
        const bool assistant = turn->past[i].assistant;
        literal(p, assistant ? "<|im_start|>assistant\n" : "<|im_start|>user\n");
        (assistant ? answer : text)(c, p, turn->past[i].text);
        literal(p, "<|im_end|>\n");
    }
    literal(p, "<|im_start|>user\n");
    text(c, p, turn->user);
    literal(p, "<|im_end|>\n<|im_start|>assistant\n");
    return WK_OK;
}

static wk_status llama2(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                        const struct wk_err *err)
{
    const wk_status status = alternate(c, turn, err);
    for (size_t i = 0; !status && i <= turn->n_past; i += 2) {
        literal(p, "[INST] ");
        if (!i && turn->system.data) {
            literal(p, "<<SYS>>\n");
            text(c, p, turn->system);
            literal(p, "\n<</SYS>>\n\n");
        }
        text(c, p, i < turn->n_past ? turn->past[i].text : turn->user);
        literal(p, " [/INST]");
        if (i == turn->n_past) break;
        literal(p, " ");
        text(c, p, turn->past[i + 1].text);
        literal(p, " ");
        put(p, c->eos.data, c->eos.len, true);
        put(p, c->bos.data, c->bos.len, true);
    }
    return status;
}

static wk_status mistral(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                         const struct wk_err *err)
{
    const wk_status status = alternate(c, turn, err);
    for (size_t i = 0; !status && i <= turn->n_past; i += 2) {
        literal(p, c->open_space ? "[INST] " : "[INST]");
        if (turn->system.data && i == (c->system_last ? turn->n_past : 0)) {
            text(c, p, turn->system);
            literal(p, "\n\n");
        }
        text(c, p, i < turn->n_past ? turn->past[i].text : turn->user);
        literal(p, c->close_space ? " [/INST]" : "[/INST]");
        if (i == turn->n_past) break;
        if (c->answer_space) literal(p, " ");
        text(c, p, turn->past[i + 1].text);
        put(p, c->eos.data, c->eos.len, true);
        if (c->eos_space) literal(p, " ");
    }
    return status;
}

/* Without a date the template's own default day stands, so that a prompt's ids do not depend on the clock. */
static wk_status llama3(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                        const struct wk_err *err)
{
    (void)err;
    if (turn->system.data || c->states_dates) {
        literal(p, "<|start_header_id|>system<|end_header_id|>\n\n");
        if (c->states_dates) {
            const bool dated = turn->year && turn->month && turn->day;
            (void)snprintf(p->date, sizeof p->date,
                           "Cutting Knowledge Date: December 2023\nToday Date: %02d %s %04d\n\n",
                           dated ? turn->day : 26, dated ? month_name(turn->month) : "Jul", dated ? turn->year : 2024);
            literal(p, p->date);
        }
        if (turn->system.data) text(c, p, turn->system);
        literal(p, "<|eot_id|>");
    }
    for (size_t i = 0; i < turn->n_past; i++) {
        literal(p, turn->past[i].assistant ? "<|start_header_id|>assistant<|end_header_id|>\n\n"
                                           : "<|start_header_id|>user<|end_header_id|>\n\n");
        text(c, p, turn->past[i].text);
        literal(p, "<|eot_id|>");
    }
    literal(p, "<|start_header_id|>user<|end_header_id|>\n\n");
    text(c, p, turn->user);
    literal(p, "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
    return WK_OK;
}

static wk_status phi3(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                      const struct wk_err *err)
{
    (void)err;
    if (turn->system.len) {
        literal(p, "<|system|>\n");
        text(c, p, turn->system);
        literal(p, "<|end|>\n");
    }
    for (size_t i = 0; i < turn->n_past; i++) {
        literal(p, turn->past[i].assistant ? "<|assistant|>\n" : "<|user|>\n");
        text(c, p, turn->past[i].text);
        literal(p, "<|end|>\n");
    }
    literal(p, "<|user|>\n");
    text(c, p, turn->user);
    literal(p, "<|end|>\n<|assistant|>\n");
    return WK_OK;
}

static wk_status zephyr(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                        const struct wk_err *err)
{
    (void)err;
    if (turn->system.data) {
        literal(p, "<|system|>\n");
        text(c, p, turn->system);
        put(p, c->eos.data, c->eos.len, true);
        literal(p, "\n");
    }
    for (size_t i = 0; i < turn->n_past; i++) {
        literal(p, turn->past[i].assistant ? "<|assistant|>\n" : "<|user|>\n");
        text(c, p, turn->past[i].text);
        put(p, c->eos.data, c->eos.len, true);
        literal(p, "\n");
    }
    literal(p, "<|user|>\n");
    text(c, p, turn->user);
    put(p, c->eos.data, c->eos.len, true);
    literal(p, "\n<|assistant|>\n");
    return WK_OK;
}

static wk_status gemma(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                       const struct wk_err *err)
{
    if (turn->system.data && c->refuses_system)
        return wk_fail(err, WK_UNSUPPORTED,
                       "this model's chat template has no system message; put its text into the prompt");
    const wk_status status = alternate(c, turn, err);
    for (size_t i = 0; !status && i <= turn->n_past; i++) {
        const bool model = i < turn->n_past && turn->past[i].assistant;
        literal(p, model ? "<start_of_turn>model\n" : "<start_of_turn>user\n");
        if (!i && turn->system.data) {
            text(c, p, turn->system);
            literal(p, "\n\n");
        }
        text(c, p, i < turn->n_past ? turn->past[i].text : turn->user);
        literal(p, "<end_of_turn>\n");
    }
    literal(p, "<start_of_turn>model\n");
    return status;
}

static wk_status harmony(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *p,
                         const struct wk_err *err)
{
    (void)c;
    (void)snprintf(p->date, sizeof p->date, "%04d-%02d-%02d", turn->year, turn->month, turn->day);
    const struct harmony_system system = { .date = turn->year && turn->month && turn->day ? p->date : NULL,
                                           .effort = turn->reasoning };
    const struct harmony_developer developer = { .instructions = turn->system };
    struct harmony_message *messages = calloc(turn->n_past + 1, sizeof *messages);
    if (!messages) return wk_fail(err, WK_NO_MEMORY, "no memory for a conversation of %zu messages", turn->n_past + 1);
    for (size_t i = 0; i < turn->n_past; i++) {
        const bool assistant = turn->past[i].assistant;
        messages[i] = (struct harmony_message){ .role = assistant ? HARMONY_ASSISTANT : HARMONY_USER,
                                                .channel = { "final", assistant ? 5 : 0 },
                                                .content = turn->past[i].text };
    }
    messages[turn->n_past] = (struct harmony_message){ .role = HARMONY_USER, .content = turn->user };
    const struct harmony_conversation conversation = {
        .system = &system, .developer = &developer, .messages = messages, .n_messages = turn->n_past + 1, .answer = true
    };
    const wk_status status = harmony_render(&conversation, &p->made, err);
    free(messages);
    if (status) return status;
    p->part = p->made.parts;
    p->n = p->made.n;
    return WK_OK;
}

wk_status chat_wrap(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *out,
                    const struct wk_err *err)
{
    out->n = 0;
    out->made = (struct harmony_prompt){ 0 };
    out->part = out->own = NULL;
    if (turn->month < 0 || turn->month > 12 || turn->day < 0 || turn->day > 31 || turn->year < 0 || turn->year > 9999)
        return wk_fail(err, WK_INVALID, "%d-%d-%d is no date", turn->year, turn->month, turn->day);
    if (turn->n_past < SIZE_MAX / (PAST_PARTS * 2 * sizeof *out->own))
        out->own = calloc(TURN_PARTS + turn->n_past * PAST_PARTS, sizeof *out->own);
    if (!out->own) return wk_fail(err, WK_NO_MEMORY, "no memory for a conversation of %zu messages", turn->n_past + 1);
    out->part = out->own;
    put(out, c->bos.data, c->bos.len, true);
    const wk_status status = c->family->form(c, turn, out, err);
    if (status) chat_prompt_free(out);
    return status;
}

void chat_prompt_free(struct chat_prompt *p)
{
    harmony_prompt_free(&p->made);
    free(p->own);
    p->part = p->own = NULL;
}

const char *chat_name(const struct chat *c) { return c->family->name; }

/* ---- recognition --------------------------------------------------------------------------------------- */

static const struct family
    CHATML = { "chatml", chatml, { "<|im_start|>", "<|im_end|>" }, { NULL } },
    LLAMA2 = { "llama-2", llama2, { NULL }, { "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>" } },
    LLAMA3 = { "llama-3", llama3, { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" }, { NULL } },
    PHI3 = { "phi-3", phi3, { "<|user|>", "<|assistant|>", "<|end|>" }, { "<|system|>" } },
    ZEPHYR = { "zephyr", zephyr, { NULL }, { "<|system|>", "<|user|>", "<|assistant|>" } },
    MISTRAL = { "mistral", mistral, { NULL }, { "[INST]", "[/INST]" } },
    GEMMA = { "gemma", gemma, { "<start_of_turn>", "<end_of_turn>" }, { NULL } },
    HARMONY = { "harmony", harmony, { "<|start|>", "<|message|>", "<|channel|>", "<|end|>" }, { NULL } };

bool chat_is_harmony(const struct chat *c) { return c->family == &HARMONY; }

/* The expression around the user's text: from `<|user|>` to the end of its {{ }}; does it hold `what`? */
static bool user_turn_has(const char *t, const char *what)
{
    const char *user = strstr(t, "<|user|>"), *end = user ? strstr(user, "}}") : NULL;
    const char *found = user ? strstr(user, what) : NULL;
    return found && end && found < end;
}

static const struct family *by_template(const char *t)
{
    if (strstr(t, "<|start|>") && strstr(t, "<|message|>") && strstr(t, "<|channel|>")) return &HARMONY;
    if (strstr(t, "<|im_start|>") && strstr(t, "<|im_end|>") && !strstr(t, "<|im_sep|>")) return &CHATML;
    if (strstr(t, "<|start_header_id|>") && strstr(t, "<|eot_id|>")) return &LLAMA3;
    if (strstr(t, "<start_of_turn>") && strstr(t, "<end_of_turn>")) return &GEMMA;
    if (strstr(t, "[INST]")) return strstr(t, "<<SYS>>") ? &LLAMA2 : &MISTRAL;
    if (user_turn_has(t, "<|end|>") && strstr(t, "<|assistant|>")) return &PHI3;
    if ((user_turn_has(t, "eos_token") || user_turn_has(t, "</s>")) && strstr(t, "<|assistant|>")) return &ZEPHYR;
    return NULL;
}

/* Whose template it is, of those that are known by sight alone; NULL: nobody's. */
static const char *stranger(const char *t)
{
    static const struct {
        const char *mark, *name;
    } strangers[] = { { "<|im_sep|>", "Phi-4" },
                      { "<\xEF\xBD\x9CUser\xEF\xBD\x9C>", "DeepSeek" },
                      { "<|START_OF_TURN_TOKEN|>", "Command R" },
                      { "<|header_start|>", "Llama 4" },
                      { "[gMASK]", "GLM" },
                      { "<|start_of_role|>", "Granite" },
                      { "[|assistant|]", "EXAONE" },
                      { "GPT4 Correct", "OpenChat" },
                      { "<|hy_", "Hunyuan" },
                      { "<reserved_106>", "Baichuan" },
                      { "<|User|>", "DeepSeek" },
                      { "### Instruction:", "Alpaca" },
                      { "ASSISTANT:", "Vicuna" },
                      { "<|assistant|>", "a relative of Phi-3 or Zephyr" } };
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        if (strstr(t, strangers[i].mark)) return strangers[i].name;
    return NULL;
}

static wk_status refuse(const char *template, const char *name, const struct wk_err *err)
{
    static const char known[] = "known are chatml, llama-2, llama-3, phi-3, zephyr, mistral, gemma and harmony: write "
                                "the prompt in the model's form yourself and send it as it is (--raw)";
    if (!template)
        return wk_fail(err, WK_UNSUPPORTED, "%s has no chat template and its tokens show no known family; %s",
                       name && *name ? name : "the file", known);
    const char *whose = stranger(template);
    char begin[49];
    (void)snprintf(begin, sizeof begin, "%s", template);
    for (char *c = begin; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = ' ';
    if (whose)
        return wk_fail(err, WK_UNSUPPORTED, "the chat template of %s (%s) is not one of those that are served; %s",
                       name && *name ? name : "the file", whose, known);
    return wk_fail(err, WK_UNSUPPORTED, "the chat template of %s, which begins \"%s\", is of no known family; %s",
                   name && *name ? name : "the file", begin, known);
}

static bool has_specials(const struct tokenizer *t, const char *a, const char *b)
{
    const uint32_t ids[2] = { tokenizer_find(t, a, strlen(a)), tokenizer_find(t, b, strlen(b)) };
    for (int i = 0; i < 2; i++)
        if (ids[i] == TOKEN_NONE || tokenizer_type(t, ids[i]) == TOKEN_NORMAL) return false;
    return true;
}

/* Files without a template: a family shows in its special tokens; Llama-2, which has none of its own, in the name. */
static const struct family *by_tokens(const struct tokenizer *t, const char *name)
{
    if (has_specials(t, "<|channel|>", "<|message|>")) return &HARMONY;
    if (has_specials(t, "<|im_start|>", "<|im_end|>")) return &CHATML;
    if (has_specials(t, "<|start_header_id|>", "<|eot_id|>")) return &LLAMA3;
    if (has_specials(t, "<start_of_turn>", "<end_of_turn>")) return &GEMMA;
    if (has_specials(t, "<|user|>", "<|end|>")) return &PHI3;
    const bool llama2_name = name && (strcasestr(name, "llama-2") || strcasestr(name, "llama 2") ||
                                      strcasestr(name, "llama v2") || strcasestr(name, "llama2"));
    const bool byte_fallback = tokenizer_type(t, tokenizer_find(t, "<0x0A>", 6)) ==
                               TOKEN_BYTE; /* SentencePiece's, wherever it was read from */
    return llama2_name && byte_fallback ? &LLAMA2 : NULL;
}

/* ChatML templates spell a default system message inside one quoted string: '<|im_start|>system\nText<|im_end|>\n'. One
 * whose string ends right after the newline only wraps a message that was given. false: no memory, or absurdly long. */
static bool find_default_system(const char *t, struct chat *c)
{
    static const char begin[] = "<|im_start|>system";
    for (const char *at = t; (at = strstr(at, begin));) {
        at += sizeof begin - 1;
        if (at[0] == '\\' && at[1] == 'n')
            at += 2;
        else if (at[0] == '\n')
            at++;
        else
            continue;
        const char *end = strstr(at, "<|im_end|>");
        if (!end || at[0] == '\'' || at[0] == '"' || at[0] == '{' || at[0] == '<') continue;
        if (end - at > MAX_DEFAULT_SYSTEM) return false;
        char *out = c->default_system = malloc((size_t)(end - at) + 1);
        if (!out) return false;
        for (; at < end; at++) {
            if (*at == '\\' && at + 1 < end)
                *out++ = *++at == 'n' ? '\n' : *at;
            else
                *out++ = *at;
        }
        *out = '\0';
        return true;
    }
    return true;
}

static struct token_bytes special_text(const struct tokenizer *t, uint32_t id)
{
    return id == TOKEN_NONE ? (struct token_bytes){ "", 0 } : tokenizer_text(t, id);
}

/* A mark that is text to the model, because its exporter left it a normal token or out, would make another prompt than
 * the one that the model was trained on, and any user could write it. */
static wk_status check_mark(const struct tokenizer *t, struct token_bytes mark, bool may_be_text,
                            const struct wk_err *err)
{
    struct tokens ids = { 0 };
    const uint32_t id = tokenizer_find(t, mark.data, mark.len);
    if (id == TOKEN_NONE && may_be_text) return WK_OK;
    const wk_status status = tokenizer_encode(t, mark.data, mark.len, true, false, &ids, err);
    const enum token_type type = ids.n == 1 ? tokenizer_type(t, ids.ids[0]) : TOKEN_NORMAL;
    tokens_free(&ids);
    if (status || type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) return status;
    const int len = mark.len < 64 ? (int)mark.len : 64;
    if (id == TOKEN_NONE)
        return wk_fail(err, WK_UNSUPPORTED,
                       "the chat template's mark %.*s is no token of this vocabulary: it was lost when the file was "
                       "made; make it anew, or write the prompt yourself and send it as it is (--raw)",
                       len, mark.data);
    return wk_fail(err, WK_UNSUPPORTED,
                   "the chat template's mark %.*s is no special token: the type of token %u is not control "
                   "(tokenizer.ggml.token_type); make the file anew, or write the prompt yourself and send it as it is "
                   "(--raw)",
                   len, mark.data, (unsigned)id);
}

static struct token_bytes mark_of(const char *text) { return (struct token_bytes){ text, strlen(text) }; }

static wk_status check_marks(const struct chat *c, const struct tokenizer *t, const struct wk_err *err)
{
    const bool uses_eos = c->family == &LLAMA2 || c->family == &MISTRAL || c->family == &ZEPHYR;
    wk_status status = WK_OK;
    for (int i = 0; !status && i < FAMILY_MARKS && c->family->marks[i]; i++)
        status = check_mark(t, mark_of(c->family->marks[i]), false, err);
    for (int i = 0; !status && i < FAMILY_MARKS && c->family->words[i]; i++)
        status = check_mark(t, mark_of(c->family->words[i]), true, err);
    if (!status && c->bos.len) status = check_mark(t, c->bos, false, err);
    return !status && uses_eos && c->eos.len ? check_mark(t, c->eos, false, err) : status;
}

static wk_status read_details(struct chat *c, const char *t, const struct wk_err *err)
{
    c->trims = strstr(t, "| trim") || strstr(t, "|trim") || strstr(t, ".strip()");
    c->states_dates = strstr(t, "Cutting Knowledge Date");
    c->refuses_system = strstr(t, "System role not supported");
    c->open_space = !*t || strstr(t, "[INST] ");
    c->close_space = !*t || strstr(t, " [/INST]");
    c->answer_space = strstr(t, "\" \" + message") || strstr(t, "' ' + message");
    c->eos_space = strstr(t, "eos_token + ' '") || strstr(t, "eos_token + \" \"");
    c->system_last = strstr(t, "loop.last");
    c->drops_thoughts = strstr(t, "split('</think>')");
    if (c->family == &CHATML && !find_default_system(t, c))
        return wk_fail(err, WK_INVALID, "tokenizer.chat_template: its default system message is longer than %d bytes",
                       MAX_DEFAULT_SYSTEM);
    return WK_OK;
}

wk_status chat_open_text(const char *template, size_t len, const char *name, const struct tokenizer *t,
                         struct chat **out, const struct wk_err *err)
{
    *out = NULL;
    if (len > MAX_TEMPLATE)
        return wk_fail(err, WK_INVALID, "tokenizer.chat_template: %zu bytes; at most %d are supported", len,
                       MAX_TEMPLATE);
    char *copy = malloc(len + 1);
    struct chat *c = calloc(1, sizeof *c);
    wk_status status = WK_NO_MEMORY;
    if (!copy || !c) {
        (void)wk_fail(err, status, "no memory for a chat template of %zu bytes", len);
        goto done;
    }
    if (template) memcpy(copy, template, len);
    copy[template ? len : 0] = '\0';
    c->family = template ? by_template(copy) : by_tokens(t, name);
    c->eos = special_text(t, tokenizer_eos(t));
    /* Harmony has no bos whatever the file calls one; of the others the template knows, or the
     * family always has one. */
    if (template ? strstr(copy, "bos_token") != NULL : c->family != &HARMONY && c->family != &CHATML)
        c->bos = special_text(t, tokenizer_bos(t));
    status = c->family ? read_details(c, copy, err) : refuse(template ? copy : NULL, name, err);
    if (!status) status = check_marks(c, t, err);
done:
    free(copy);
    if (status)
        chat_close(c);
    else
        *out = c;
    return status;
}

wk_status chat_open(const struct gguf *file, const struct tokenizer *t, struct chat **out, const struct wk_err *err)
{
    const struct gguf_kv *template_kv = gguf_find(file, "tokenizer.chat_template"),
                         *name_kv = gguf_find(file, "general.name");
    struct gguf_str template = { NULL, 0 }, name = { "", 0 };
    char short_name[128];
    *out = NULL;
    if (template_kv && gguf_str(file, template_kv, &template, err)) return WK_INVALID;
    if (name_kv && gguf_str(file, name_kv, &name, err)) return WK_INVALID;
    (void)snprintf(short_name, sizeof short_name, "%.*s", (int)(name.len < 127 ? name.len : 127), name.data);
    return chat_open_text(template.len ? template.data : NULL, (size_t) template.len, short_name, t, out, err);
}

void chat_close(struct chat *c)
{
    if (!c) return;
    free(c->default_system);
    free(c);
}
