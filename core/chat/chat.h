/* chat.h: conversations as prompts, in the form that an instruct model was trained on.
 *
 * A file's own template is run (jinja/jinja.h); it is a stranger's program, bounded by counts. What it can express was
 * found out when the chat was opened (caps.h), and requests are brought into that shape; what it cannot express is
 * refused by name. Each byte of a prompt knows whether the template or the request wrote it, and only the template's
 * bytes can become control tokens. gpt-oss's format is written and read by harmony.h. */
#ifndef CORE_CHAT_CHAT_H
#define CORE_CHAT_CHAT_H

#include <stddef.h>

#include <worker/abi.h>

#include "chat/conversation.h"
#include "harmony/harmony.h"
#include "jinja/jinja.h"
#include "tokenizer/tokenizer.h"
#include "tools/tools.h"

struct gguf;
struct chat; /* opaque; immutable once open, any thread */

enum { CHAT_MAX_TEMPLATE = JINJA_MAX_TEMPLATE };

/* Where a template comes from. */
struct chat_source {
    const struct gguf *file;     /* its templates, or where it has none the form that its tokens tell of; may be NULL */
    const struct tokenizer *t;   /* NULL: texts alone are wanted */
    struct token_bytes template; /* instead of the file's; data NULL: none */
    const char *template_name;   /* what messages call it */
    bool as_is;                  /* the template is not tried out: only chat_render_context may be called */
    bool json_calls;             /* where the form of calls is not known, they are plain JSON (chat_json_calls) */
};

/* Refuses a template that cannot be parsed, with line and column, one that has no form for a user's message, and a
 * vocabulary in which a mark of the conversation is not one special token. file and template are not kept; t is. */
wk_status chat_open(const struct chat_source *source, struct chat **out, const struct wk_err *err);
/* The same for a template's text, NULL: none. name: general.name, NULL: none. */
wk_status chat_open_text(const char *template, size_t len, const char *name, const struct tokenizer *t,
                         struct chat **out, const struct wk_err *err);
void chat_close(struct chat *c);            /* NULL allowed */
bool chat_is_harmony(const struct chat *c); /* then answers have channels: harmony.h */
/* "jinja", "harmony", or of a file without a template "chatml", "llama-2", "llama-3", "phi-3", "gemma" */
const char *chat_name(const struct chat *c);
/* Can it be told to think, or does it always? Harmony does. */
bool chat_thinks(const struct chat *c);
/* How the model writes calls of functions, and whether an answer has one at most; NULL: *why says why that is not
 * known, or it is harmony, whose calls are messages. */
const struct tools_model *chat_calls(const struct chat *c, bool *single, const char **why);

/* Calls as plain JSON, a list of {"name", "arguments"} or one of them, which the model writes only if it is made to;
 * its prompts are told of functions, calls and results in messages where its template has no form for them. NULL: that
 * was not asked for, or the model's own form is known. */
const struct tools_model *chat_json_calls(const struct chat *c, bool one);

/* What one prompt says. Texts are bytes of the caller's. */
struct chat_request {
    const struct conversation *conversation;
    struct token_bytes tools, documents; /* JSON lists; data NULL: none */
    struct token_bytes kwargs;           /* JSON of an object: further variables of the template; data NULL: none */
    bool one_call;                       /* an answer has one call at most */
    const char *effort;                  /* "none", "minimal", "low", "medium", "high"; NULL: nothing is said */
    int thinking;                        /* 0, 1; -1: nothing is said */
    bool wishes;                         /* the two above are: what the model cannot be told is left unsaid */
    bool no_generation;                  /* the prompt does not go on to where an answer begins */
    bool continue_final;                 /* the last message is an answer that the model is to go on with */
    struct jinja_options clock;          /* what strftime_now says */
    bool clock_set;                      /* by somebody: harmony states no date otherwise, so that ids stay */
};
#define CHAT_REQUEST_OF(c) { .conversation = (c), .thinking = -1 }

/* How an answer's reasoning is marked. */
struct chat_marks {
    const char *open, *close; /* of the chat's; "": reasoning is not marked */
    bool opened;              /* the prompt ends inside: the answer begins with reasoning */
};

/* The parts to encode, template text trusted, the rest not. They borrow from the chat and from this structure: do not
 * copy or move it. */
struct chat_prompt {
    const struct tokenizer_part *part;
    size_t n;
    struct chat_marks marks;
    struct tokenizer_part *own;
    struct jinja_result made;      /* a template's text; else empty */
    struct harmony_prompt harmony; /* harmony's; else empty */
    char *texts;                   /* what harmony's parts need */
};

/* Bytes of memory that chat_render takes at most for what a request brings, about: a template may make more, within
 * JINJA_MAX_MEMORY. json: bytes of tools, documents and kwargs. */
size_t chat_memory(const struct conversation *c, size_t json);
/* Encode the result with add_special: whether bos comes first is the file's decision or the template's, and it is never
 * doubled. chat_prompt_free afterwards, also after a failure. False: why names the member that the template has no form
 * for, or gives the template's own words of an exception. */
bool chat_render(const struct chat *c, const struct chat_request *q, struct chat_prompt *out, struct chat_problem *why);
/* A template's whole context as one JSON object, as it is: nothing is tried out, shaped or refused. bos_token and
 * eos_token count as the template's where they are the model's, and so do the names of roles. */
bool chat_render_context(const struct chat *c, struct token_bytes json, const struct jinja_options *clock,
                         struct chat_prompt *out, struct chat_problem *why);
void chat_prompt_free(struct chat_prompt *p);

#endif
