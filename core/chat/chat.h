/* chat.h: a conversation in the form that an instruct model was trained on, up to where its next answer begins.
 *
 * Templates of files are Jinja programs by strangers: they are recognised, never run. Each known family is a function
 * here. */
#ifndef CORE_CHAT_CHAT_H
#define CORE_CHAT_CHAT_H

#include <stddef.h>

#include <worker/abi.h>

#include "chat/harmony.h"
#include "tokenizer/tokenizer.h"

struct gguf;
struct chat; /* opaque; immutable once open, any thread */

/* Chooses by tokenizer.chat_template, or where the file has none by its special tokens. Refuses what it does not know,
 * by name where it has one, and a vocabulary in which a mark of the conversation is not one special token. `t` and *out
 * are the caller's; *out does not keep `file`, but needs `t`. */
wk_status chat_open(const struct gguf *file, const struct tokenizer *t, struct chat **out, const struct wk_err *err);
/* The same for a template's text, NULL: none. name: general.name, NULL: none. */
wk_status chat_open_text(const char *template, size_t len, const char *name, const struct tokenizer *t,
                         struct chat **out, const struct wk_err *err);
void chat_close(struct chat *c);            /* NULL allowed */
bool chat_is_harmony(const struct chat *c); /* then answers have channels: harmony.h */
const char *chat_name(
    const struct chat *c); /* "chatml", "llama-2", "llama-3", "phi-3", "zephyr", "mistral", "gemma", "harmony" */

/* What was said before, oldest first. */
struct chat_message {
    bool assistant;
    struct token_bytes text;
}; /* assistant: else the user */

/* What one prompt says. Texts are bytes of the caller's; system.data NULL: none given, so the template's own default
 * holds. */
struct chat_turn {
    struct token_bytes system;
    const struct chat_message *past;
    size_t n_past;
    struct token_bytes user; /* the message to be answered */
    int year, month, day;    /* for templates that state today's date; 0: none known */
    const char *reasoning;   /* harmony: "low", "medium", "high"; NULL: medium */
};

/* The parts to encode, template text trusted, the caller's texts not. They borrow from the chat, the turn's texts and
 * this struct: do not copy or move it. */
struct chat_prompt {
    const struct tokenizer_part *part;
    size_t n;
    struct tokenizer_part *own;
    char date[128];
    struct harmony_prompt made; /* harmony's text; else empty */
};

/* Encode the result with add_special: whether bos comes first is the file's decision or the template's, and it is never
 * doubled. chat_prompt_free afterwards, also after a failure. WK_UNSUPPORTED: what this template has no form for: a
 * system message (Gemma-2), or, with llama-2, mistral and gemma, two messages of one side behind each other. */
wk_status chat_wrap(const struct chat *c, const struct chat_turn *turn, struct chat_prompt *out,
                    const struct wk_err *err);
void chat_prompt_free(struct chat_prompt *p);

#endif
