/* marks.c: the control tokens that a conversation is made of, checked against the vocabulary (caps.h). */
#include <stdio.h>
#include <string.h>

#include "chat/caps.h"

enum { MARK_MAX = 64 };

wk_status chat_check_mark(const struct tokenizer *t, struct token_bytes mark, bool may_be_text,
                          const struct wk_err *err)
{
    struct tokens ids = { 0 };
    const uint32_t id = tokenizer_find(t, mark.data, mark.len);
    if (id == TOKEN_NONE && may_be_text) return WK_OK;
    const wk_status status = tokenizer_encode(t, mark.data, mark.len, true, false, &ids, err);
    const enum token_type type = ids.n == 1 ? tokenizer_type(t, ids.ids[0]) : TOKEN_NORMAL;
    tokens_free(&ids);
    if (status || type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) return status;
    const int len = mark.len < MARK_MAX ? (int)mark.len : MARK_MAX;
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

/* How a text that looks like a mark is to be judged. */
enum look { NO_MARK = 0, MAY_BE_TEXT, IS_MARK };

static bool is(const char *mark, size_t n, const char *text) { return n == strlen(text) && !memcmp(mark, text, n); }

static enum look look_of(const char *mark, size_t n)
{
    /* Roles that some models have as special tokens (Phi-3) and some as text (Zephyr). */
    static const char *const words[] = { "<|system|>", "<|user|>", "<|assistant|>" };
    static const char bar[] = "\xEF\xBD\x9C"; /* DeepSeek's */
    if (mark[0] == '[') {
        for (size_t i = 1; i + 1 < n; i++)
            if (!(mark[i] >= 'A' && mark[i] <= 'Z') && mark[i] != '_' && !(i == 1 && mark[i] == '/')) return NO_MARK;
        return n > 3 ? MAY_BE_TEXT : NO_MARK;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is(mark, n, words[i])) return MAY_BE_TEXT;
    if (n > 4 && mark[1] == '|' && mark[n - 2] == '|') return IS_MARK;
    if (n > 8 && memcmp(mark + 1, bar, 3) == 0 && memcmp(mark + n - 4, bar, 3) == 0) return IS_MARK;
    return is(mark, n, "<start_of_turn>") || is(mark, n, "<end_of_turn>") ? IS_MARK : NO_MARK;
}

/* The mark that begins at text[0], of n bytes; 0: none does. */
static size_t mark_at(const char *text, size_t n)
{
    if (*text != '<' && *text != '[') return 0;
    const char close = *text == '<' ? '>' : ']';
    for (size_t i = 1; i < n && i < MARK_MAX; i++) {
        if (text[i] == close) return i + 1;
        if (text[i] == *text || (unsigned char)text[i] <= ' ') return 0;
    }
    return 0;
}

static wk_status check_run(const struct tokenizer *vocab, const char *text, size_t n, const struct wk_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const size_t len = mark_at(text + i, n - i);
        const enum look look = len ? look_of(text + i, len) : NO_MARK;
        if (look == NO_MARK) continue;
        const wk_status status =
            chat_check_mark(vocab, (struct token_bytes){ text + i, len }, look == MAY_BE_TEXT, err);
        if (status) return status;
        i += len - 1;
    }
    return WK_OK;
}

wk_status chat_check_marks(const struct jinja_template *t, const struct chat_caps *caps, const struct tokenizer *vocab,
                           struct token_bytes bos, struct token_bytes eos, const struct wk_err *err)
{
    static const char with_system[] =
        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"u\"}]",
                      without[] = "[{\"role\":\"user\",\"content\":\"u\"}]";
    const struct chat_context x = {
        .template = t, .caps = caps, .bos = bos, .eos = eos, .generation = true, .thinking = -1
    };
    wk_status status = WK_OK;
    if (bos.len && jinja_reads(t, "bos_token")) status = chat_check_mark(vocab, bos, false, err);
    if (!status && eos.len && jinja_reads(t, "eos_token")) status = chat_check_mark(vocab, eos, false, err);
    for (int k = 0; !status && k < 2; k++) {
        const char *messages = k ? without : with_system;
        struct conversation c;
        struct chat_problem why;
        struct jinja_value *context;
        struct jinja_result made = { 0 };
        struct jinja_values *values = jinja_values_new();
        const struct jinja_options options = { 0 };
        if (!values || !conversation_read(messages, strlen(messages), &c, &why)) {
            jinja_values_free(values);
            return wk_fail(err, WK_NO_MEMORY, "no memory to try the chat template");
        }
        /* A template that has no form for it was found out before. */
        if (chat_shape(&c, &x, values, &context, &why)) (void)jinja_render(t, context, &options, &made, NULL);
        for (size_t i = 0; !status && made.text && i < made.n_runs; i++)
            if (made.runs[i].from_template)
                status = check_run(vocab, made.text + made.runs[i].begin, made.runs[i].end - made.runs[i].begin, err);
        jinja_result_free(&made);
        jinja_values_free(values);
        conversation_free(&c);
    }
    return status;
}
