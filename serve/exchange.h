/* exchange.h: one request to an interface of chats or completions, from its body to the end of its answer.
 *
 * An interface reads its body into an openai_request, or writes it as the body that /v1/chat/completions takes and has
 * that read, and encodes what comes. All else is the same for all of them: ids, sampling, tools and forms, limits,
 * refusals. [the handler's thread] */
#ifndef SERVE_EXCHANGE_H
#define SERVE_EXCHANGE_H

#include "items.h"
#include "openai_request.h"

struct exchange;

/* How an interface calls a member of a chat's body, in refusals. */
struct exchange_name {
    const char *chat, *own; /* chat NULL: the end of the list */
    bool whole;             /* what follows in a path is of no use: it counts otherwise */
};

struct interface {
    const char *prefix; /* of the ids that are chosen */
    bool chat;
    const struct exchange_name *names; /* NULL: it calls them alike */
    /* The same where a list does not do it; false: the list is asked. NULL: it does. */
    bool (*reword)(const struct exchange *e, struct refusal *why);
    /* The body as e->q, and what else the answer needs. False: why, or, if that has no text, it was answered; nothing
     * needs to be freed but e->body and e->own. The bytes outlive e->q. */
    bool (*read)(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                 struct refusal *why);
    const struct encoder *stream, *whole;
    enum http_stream_kind kind;         /* of streams */
    bool untyped;                       /* clients send bodies without a Content-Type that says JSON */
    void (*forget)(struct exchange *e); /* e->own; NULL: there is none */
};

struct exchange {
    const struct interface *interface; /* `read` may choose another one, where the body says which it is */
    struct work *work;
    struct openai_request q;
    struct http_text body; /* a chat's body that another one was written as; q's texts are its bytes */
    void *own;             /* the interface's */
    int64_t created;
    struct items items;
    struct tools_set *functions; /* that may be called; NULL: none */
    struct grammar *grammar;     /* of answers that may call them; NULL: they are free */
    /* of completions, [answers] and [prompts]: */
    struct token_probs *probs;
    struct http_text *echoed; /* what answers begin with; NULL: nothing */
    bool *begun;              /* ... which was said */
    uint32_t n_answers, n_echoed;
};

static inline struct exchange *exchange_of(const struct stream *x) { return x->own; }

/* The handler of a route of the interface. */
void exchange_serve(struct serve *s, struct http_request *r, const struct interface *i);
/* The handler of a route that is asked for prompts alone: nothing is queued or computed. `tell` writes the answer, of a
 * completion for each of its prompts, which become a list. */
struct exchange_prompt {
    const struct serve_model *m;
    struct chat_prompt prompt; /* of a chat */
    struct http_text text;     /* the prompt as it is; of ids what they say */
    struct tokens ids;
};
void exchange_render(struct serve *s, struct http_request *r, const struct interface *i,
                     void (*tell)(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out));
/* What OpenAI's and llama-server's routes tell of a prompt's length. */
void exchange_tell_count(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out);
/* e->body as a chat's, for interfaces that have written it. False: why, or, if that has no text, it was answered. */
bool exchange_read_chat(struct exchange *e, const struct job_request_limits *l, struct refusal *why);
/* The same as a completion's. */
bool exchange_read_completion(struct exchange *e, const struct job_request_limits *l, struct refusal *why);
/* What a request of this service may ask for. */
struct job_request_limits exchange_limits(const struct serve *s, struct http_request *r);
/* Does the model suit the request? Without one it is not ready, which is told later. */
bool exchange_suits(const struct serve_model *m, const struct exchange *e, struct refusal *why);

#endif
