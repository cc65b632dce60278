/* conversation.h: what a request says to a model: its messages and the tools that it offers, read from their JSON.
 *
 * The shape is that of OpenAI's chat completions, with what templates know besides (reasoning_content, name). Nothing
 * here knows a model: which of it a template can express is normalise.h's question. Texts are copies and live as long
 * as the structure; they may hold NUL. Pure functions. [any thread] */
#ifndef CORE_CHAT_CONVERSATION_H
#define CORE_CHAT_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "tokenizer/tokenizer.h"

/* Why a conversation is refused. field: the request's member, "messages[2].content"; text says it again, with what was
 * expected and what was found. */
struct chat_problem {
    wk_status status;
    char field[96], text[512];
};
/* Always false. field may be "". */
WK_PRINTF(4, 5)
bool chat_refuse(struct chat_problem *why, wk_status status, const char *field, const char *format, ...);

enum chat_role { CHAT_SYSTEM = 0, CHAT_DEVELOPER, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };
const char *chat_role_name(enum chat_role role);

/* A call of a function in an answer of the past. */
struct chat_call {
    struct token_bytes id, name;  /* id: data NULL: none given */
    struct token_bytes arguments; /* as the client has them: JSON, of an object if the model kept to the form */
};

struct chat_message {
    enum chat_role role;
    bool has_content, in_parts;   /* not: null or absent */
    struct token_bytes text;      /* the content; parts of a list stand behind each other, each on lines of its own */
    size_t part, n_parts;         /* in conversation.parts, slices of text; only in_parts */
    struct token_bytes reasoning; /* data NULL: none */
    size_t call, n_calls;         /* in conversation.calls */
    struct token_bytes name;      /* data NULL: none */
    struct token_bytes call_id;   /* of a tool's result; data NULL: none */
    struct token_bytes called;    /* the function of the latest call before it with that id; data NULL: there is none */
    size_t called_at;             /* that call's place in conversation.calls */
};

struct conversation {
    struct chat_message *messages;
    size_t n;
    struct token_bytes *parts;
    size_t n_parts;
    struct chat_call *calls;
    size_t n_calls;
    char *texts; /* all of the above point into it */
    size_t n_texts;
};

/* A list of one message or more. Refuses roles, kinds of content and members that nobody serves, by name. On failure
 * nothing needs to be freed. */
bool conversation_read(const char *json, size_t n, struct conversation *out, struct chat_problem *why);
/* Do calls and results fit each other? Arguments of calls are JSON of an object, and a result names a call before it.
 */
bool conversation_check_calls(const struct conversation *c, struct chat_problem *why);
/* Has a message two calls of one id? That is refused if ids stand in the prompt, and if the two are of different
 * functions, so that a result could be either's. */
bool conversation_check_ids(const struct conversation *c, bool in_prompt, struct chat_problem *why);
/* One message of the user. The text is the caller's and is not copied; texts stays NULL. */
bool conversation_of_user(struct token_bytes text, struct conversation *out, struct chat_problem *why);
void conversation_free(struct conversation *c);

/* A function that the model may call. */
struct chat_tool {
    struct token_bytes name, description; /* description: data NULL: none */
    struct token_bytes parameters;        /* JSON of an object; data NULL: none */
    bool strict;                          /* calls are to fit the parameters */
};
struct chat_tools {
    struct chat_tool *list;
    size_t n;
    char *texts;
};
/* A list of {"type": "function", "function": {"name", "description", "parameters", "strict"}}; a name is given once. */
bool chat_tools_read(const char *json, size_t n, struct chat_tools *out, struct chat_problem *why);
void chat_tools_free(struct chat_tools *t);

#endif
