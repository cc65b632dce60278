/* caps.h: what one chat template can express, and a conversation in the shape that it takes. Private to core/chat.
 *
 * Templates agree on a context (messages, tools, add_generation_prompt, ...) and differ in what they make of it: some
 * know no system message, print `None` for content that is null, want a call's arguments as an object or as text, or
 * raise an exception at two messages of one role. Nobody declares that, so it is found out when a model is opened:
 * about fifty small conversations are rendered, and what comes out is looked at. Each is shaped by the same function
 * that shapes requests, so what a probe has found is what a request gets. */
#ifndef CORE_CHAT_CAPS_H
#define CORE_CHAT_CAPS_H

#include "chat/conversation.h"
#include "jinja/jinja.h"
#include "tools/tools.h"

enum { CHAT_MARK = 64 /* bytes of a mark of thinking */ };

/* How a call without text says so, and how its arguments come. */
enum chat_no_content { CONTENT_EMPTY = 0 /* "" */, CONTENT_NULL, CONTENT_ABSENT };
enum chat_arguments { ARGUMENTS_OBJECT = 0, ARGUMENTS_TEXT };

struct chat_caps {
    bool none;            /* tools and documents that are not given have to be None, as transformers passes them */
    bool text;            /* content as a string */
    unsigned parts;       /* content as a list of parts: 1 << enum chat_role for each role's; else they are one text */
    bool one_part;        /* of a list the first part alone is shown, and a string is not */
    bool system, systems; /* one system message at the beginning; more than one */
    bool developer;       /* has a role of its own; else it is a system message */
    bool alternates;      /* two messages of one role behind each other are refused */
    bool tools;           /* shows functions that are offered */
    bool calls, parallel; /* shows an answer's call; more than one in an answer */
    bool results;         /* shows what a tool returned */
    bool short_ids;       /* ids of calls have exactly nine letters and digits */
    enum chat_no_content no_content;
    enum chat_arguments arguments;
    bool reasoning;                         /* shows the reasoning of the last answer */
    const char *reasoning_field;            /* "reasoning_content", "reasoning", "thinking"; NULL: none is read */
    const char *thinking_switch;            /* "enable_thinking", "thinking"; NULL: the template has none */
    bool effort;                            /* reads reasoning_effort */
    bool prefill;                           /* shows an answer that comes last */
    char open[CHAT_MARK], close[CHAT_MARK]; /* around reasoning; "": this model's is not marked */
};

/* What a context is made of besides the messages. Values are of the same arena, NULL: none given. */
struct chat_context {
    const struct jinja_template *template;
    const struct chat_caps *caps;
    const struct tools_model *calls; /* how calls look in texts of the past; NULL: not known */
    struct token_bytes bos, eos;
    const struct jinja_value *tools, *documents;
    struct token_bytes kwargs; /* JSON of an object: variables of the template; data NULL: none */
    bool generation;           /* the prompt ends where the next answer begins */
    int thinking;              /* -1: nothing is said; 0, 1 */
    const char *effort;
};

/* chat_template_kwargs of a model that has no template: what asks for something is refused by name. [any thread] */
bool chat_check_variables(struct token_bytes json, struct chat_problem *why);
/* The template's context, in `values`. Refuses what caps say that the template cannot express. [any thread] */
bool chat_shape(const struct conversation *c, const struct chat_context *x, struct jinja_values *values,
                struct jinja_value **out, struct chat_problem *why);

/* Calls that were in an answer's text. */
enum { CHAT_SPLIT_CALLS = 32 };
struct chat_split {
    struct chat_call calls[CHAT_SPLIT_CALLS];
    size_t n; /* 0: the text is left as it is */
    struct byte_buffer texts;
};
/* *text: what stands before the calls. m has no vocabulary; NULL: nothing is split. An answer is split whole or not at
 * all: with other text behind its calls, a call that breaks off, or more calls than the template takes in one answer,
 * it stays text. False: no memory. */
bool chat_split_calls(const struct tools_model *m, bool parallel, uint64_t seed, struct token_bytes *text,
                      struct chat_split *out);
void chat_split_free(struct chat_split *s);

/* source: the template's text; with_tools: it is for conversations with tools alone. WK_UNSUPPORTED: not even one
 * message of a user comes through; err says why. */
wk_status chat_probe(const struct jinja_template *t, struct token_bytes source, struct token_bytes bos,
                     struct token_bytes eos, bool with_tools, struct chat_caps *out, const struct wk_err *err);

/* ---- the other rooms of core/chat ---------------------------------------------------------------------- */

/* Files without a template: the published form of the family that the special tokens, or general.name, tell of, as a
 * template of our own. *name: what the family is called. "": harmony, which is written otherwise. NULL: none is known.
 * general_name may be NULL. */
const char *chat_builtin(const struct tokenizer *t, const char *general_name, const char **name);

/* Is every mark that a plain conversation is made of one special token? A mark that is text to the model, because its
 * exporter left it a normal token or out, would make another prompt than the one that the model was trained on, and
 * any user could write it. WK_UNSUPPORTED names the mark. */
wk_status chat_check_marks(const struct jinja_template *t, const struct chat_caps *caps, const struct tokenizer *vocab,
                           struct token_bytes bos, struct token_bytes eos, const struct wk_err *err);
wk_status chat_check_mark(const struct tokenizer *t, struct token_bytes mark, bool may_be_text,
                          const struct wk_err *err);

#endif
