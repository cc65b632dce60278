/* messages.h: Anthropic's Messages as the chat that they are: /v1/messages.
 *
 * The request is written as the body of a chat: the system prompt and the blocks of its messages become messages, calls
 * and results; what the worker's own chat takes besides goes there as it is. The answer's items become blocks. Nothing
 * is kept, and no tool runs on this side. [the handler's thread] */
#ifndef SERVE_MESSAGES_H
#define SERVE_MESSAGES_H

#include "exchange.h"
#include "raw.h"

enum { MESSAGES_SYSTEM = -1 };

/* What must be known of a request when it is a chat. */
struct messages {
    int32_t *origins; /* [n]: of the chat's messages: the place of the client's, or MESSAGES_SYSTEM */
    size_t n;
    const char *form; /* the member that asks for the answer's form */
    bool hidden;      /* blocks of thinking come without their text */
    bool edits;       /* the context's editing was asked for, which the answer tells of */
};

static inline const struct messages *messages_of(const struct exchange *e) { return e->own; }

/* The body of a chat that says the same as the n bytes, added to *out; *m is zeroed, messages_free after success or
 * failure. counted: only the prompt is wanted, and max_tokens need not be there. False: why. Pure. */
bool messages_write(const char *bytes, size_t n, bool counted, struct messages *m, struct http_text *out,
                    struct refusal *why);
void messages_free(struct messages *m);
/* "messages":[...] of the request's own, which is a list, and of its system prompt. *ends_open: the last message is an
 * answer to go on with. */
bool messages_write_history(struct raw system, struct raw list, struct messages *m, struct http_text *out,
                            bool *ends_open, struct refusal *why);
/* A refusal of that chat in the words of the request: by the list, or, if true is returned, without it. */
extern const struct exchange_name messages_names[];
bool messages_reword(const struct messages *m, struct refusal *why);

extern const struct encoder messages_stream, messages_whole;

#endif
