/* openai_tools.h: the functions that a chat's request offers, and which of them the model may or must call. Pure
 * functions. [any thread] */
#ifndef SERVE_OPENAI_TOOLS_H
#define SERVE_OPENAI_TOOLS_H

#include "body.h"
#include "chat/conversation.h"
#include "tools/tools.h"

enum tools_choice {
    TOOLS_CHOICE_NONE = 0, /* none is offered, or none is to be called: the prompt has none */
    TOOLS_CHOICE_AUTO,
    TOOLS_CHOICE_REQUIRED,
    TOOLS_CHOICE_NAMED
};

struct openai_tools {
    enum tools_choice choice;
    bool one;                 /* an answer has one call at most */
    struct chat_tools list;   /* whatever the choice */
    bool *barred;             /* [list.n]: stands in the prompt, and is not to be called; NULL: all may be */
    struct token_bytes named; /* the function that is to be called: the body's */
};

/* tools (json: as the body has it; data NULL: none), tool_choice and parallel_tool_calls. openai_tools_free in either
 * case. */
bool openai_tools_read(const struct body_object *o, struct token_bytes json, struct openai_tools *out,
                       struct refusal *why);
void openai_tools_free(struct openai_tools *t);
static inline bool openai_tools_barred(const struct openai_tools *t, size_t i) { return t->barred && t->barred[i]; }
/* The functions that may be called, for parsers; the choice is not NONE. Copies. */
wk_status openai_tools_set(const struct openai_tools *t, struct tools_set **out, const struct wk_err *err);

#endif
