/* responses.h: OpenAI's Responses, as the chat that they are: /v1/responses.
 *
 * The request's items become a chat's messages, its tools a chat's functions; the answer's items become Responses' own.
 * Nothing is stored: "store" is answered false, and what asks for something that was stored is refused. Tools that a
 * server would run itself are left out, and the answer says so in `warnings`. [the handler's thread] */
#ifndef SERVE_RESPONSES_H
#define SERVE_RESPONSES_H

#include "exchange.h"
#include "raw.h"

/* A tool that answers call by another name, or in another form, than a function of it. */
struct responses_tool {
    struct http_text full;        /* what the model calls it */
    struct http_text space, name; /* what the client calls it; space: "" if it stands in no namespace */
    bool custom;                  /* its input is a text: {"input": ...} for the model */
};

struct responses {
    struct responses_tool *tools; /* custom ones, and those of namespaces */
    size_t n_tools;
    struct http_text repeated; /* of the request, in the answer: ,"NAME":VALUE ... */
    struct http_text warnings; /* "TEXT",... */
    bool encrypted;            /* reasoning comes back in encrypted_content as well */
    uint32_t sequence;         /* the next event's */
    struct http_text items;    /* those that have ended, as the answer repeats them */
    struct http_text probs;    /* log probabilities of the text that is being told, in entries */
};

static inline struct responses *responses_of(const struct exchange *e) { return e->own; }

/* The request as a chat's body in e->body. False: why. The input's part of it: "messages". */
bool responses_read(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                    struct refusal *why);
bool responses_read_input(struct exchange *e, struct raw root, struct refusal *why);
/* ,"tools":[...] and ,"tool_choice":... */
bool responses_read_tools(struct exchange *e, struct raw root, struct refusal *why);
void responses_forget(struct exchange *e);
/* A warning: FORMAT as a text of `warnings`. */
__attribute__((format(printf, 2, 3))) void responses_warn(struct responses *r, const char *format, ...);
/* What the model calls a tool: its namespace, if it has one, in front. */
void responses_full_name(struct http_text *out, struct raw space, struct raw name);

/* How reasoning comes back from clients that keep what they do not read: base64 of its text behind a mark. */
void responses_seal(struct http_text *out, const struct http_text *text);
bool responses_unseal(struct raw sealed, struct http_text *out); /* false: it is none of ours */

#endif
