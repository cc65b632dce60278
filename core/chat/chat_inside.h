/* chat_inside.h: what the files of core/chat share of a chat that is open. Private to core/chat. */
#ifndef CORE_CHAT_CHAT_INSIDE_H
#define CORE_CHAT_CHAT_INSIDE_H

#include "chat/caps.h"
#include "chat/chat.h"
#include "tools/tools.h"

/* One template and what it can express. */
struct chat_form {
    struct jinja_template *template; /* NULL: there is none */
    struct chat_caps caps;
    struct tools_model *calls; /* how calls of functions are written; NULL: no_calls says why that is not known */
    struct tools_model *past;  /* the same for texts, in which no mark is a token */
    bool one_call;             /* in an answer */
    bool ids;                  /* ids of calls stand in the prompt */
    char no_calls[256];
};

enum { CHAT_JSON_LIST = 0, CHAT_JSON_ONE, CHAT_JSON_FORMS };

struct chat {
    const char *name;
    const struct tokenizer *tokenizer;               /* NULL: texts alone are wanted */
    struct token_bytes bos, eos;                     /* of the tokenizer's */
    bool harmony;                                    /* answers have channels */
    bool harmony_prompts;                            /* and prompts are written by harmony.h */
    struct chat_form plain, with_tools;              /* with_tools: the file's template tool_use */
    char tool_use_fault[256];                        /* why it cannot be used, though it is there; "": it can */
    struct tools_model *json_calls[CHAT_JSON_FORMS]; /* how calls are written where their form is not known; or NULL */
};

static inline bool chat_form_thinks(const struct chat_form *f)
{
    return f->caps.open[0] || f->caps.thinking_switch || f->caps.effort;
}

/* f->calls and f->past, or why not. source: the template's text. Fails for want of memory alone. */
wk_status chat_find_calls(const struct chat *c, struct token_bytes source, struct chat_form *f,
                          const struct wk_err *err);
/* ---- json_calls.c -------------------------------------------------------------------------------------- */

/* c->json_calls, if the form of calls is not known. */
wk_status chat_open_json_calls(struct chat *c, const struct wk_err *err);
/* A request's conversation with its functions, calls and results as texts, where the template has no form for them.
 * Texts and messages are its own, all else the request's. */
struct chat_told {
    struct conversation conversation;
    bool inserted; /* the first message is none of the request's */
};
bool chat_tell(const struct chat_caps *caps, const struct chat_request *q, struct chat_told *out,
               struct chat_problem *why);
/* A problem with told->conversation becomes one with the request's. */
void chat_told_blame(const struct chat_told *told, struct chat_problem *why);
void chat_told_free(struct chat_told *told);

/* ---- chat_render.c and chat_harmony.c ------------------------------------------------------------------ */

/* The parts of out->made, of which `n` bytes are wanted. */
bool chat_make_parts(struct chat_prompt *out, size_t n, struct chat_problem *why);
/* chat_render for gpt-oss's format; q->effort is one of its own, or NULL. */
bool chat_render_harmony(const struct chat_request *q, struct chat_prompt *out, struct chat_problem *why);

#endif
