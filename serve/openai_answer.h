/* openai_answer.h: what /v1/chat/completions and /v1/completions answer: chunks of a stream, or one document.
 *
 * A choice is an answer of stream.h; its index is the prompt's number times n, and its number among that prompt's
 * answers. [the handler's thread] */
#ifndef SERVE_OPENAI_ANSWER_H
#define SERVE_OPENAI_ANSWER_H

#include "openai_probs.h"
#include "openai_request.h"
#include "stream.h"
#include "tokenizer/utf8.h"

struct choice {
    struct http_text text, reasoning; /* of a whole answer, so far */
    struct http_text calls;           /* the same: as JSON, behind each other */
    struct http_text call,
        arguments; /* of the call that is not complete: its JSON as far as its arguments, and these */
    struct utf8_stream argument_text; /* of a stream: whole characters of arguments alone are sent */
    uint32_t n_calls;
    bool calling; /* a call has begun */
    struct token_probs probs;
    const char *reason; /* why it ended well; NULL: not yet */
    bool begun;         /* the prompt that it begins with was said */
};

struct completion {
    struct openai_request q;
    bool chat;
    struct tools_set *functions; /* that may be called; NULL: none */
    struct grammar *grammar;     /* of answers that may call them; NULL: they are free */
    int64_t created;
    struct choice *choices;   /* [prompts * n] */
    struct http_text *echoed; /* [prompts]: what choices begin with; NULL: nothing */
    uint32_t n_choices, reasoning_ids;
    uint32_t cached, again, tokens_out; /* of all that have ended; again: answers of the completion cache */
    size_t reserved;                    /* bytes, for a whole answer */
};

/* c: q, chat and created are given. False: no memory. completion_free in either case, which frees q as well. */
bool completion_open(struct completion *c);
void completion_free(struct completion *c);
/* The form of its answer; valid as long as c's request. */
struct stream_form completion_form(const struct completion *c);

#endif
