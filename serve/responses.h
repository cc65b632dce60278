/* responses.h: OpenAI's Responses, as the chat that they are: /v1/responses.
 *
 * The request's items become a chat's messages, its tools a chat's functions; the answer's items become Responses' own.
 * Nothing is stored: "store" is answered false, and what asks for something that was stored is refused. Tools that a
 * server would run itself are left out, and the answer says so in `warnings`. */
#ifndef SERVE_RESPONSES_H
#define SERVE_RESPONSES_H

#include "raw.h"
#include "tools/tools.h"

/* A tool that answers call by another name, or in another form, than a function of it. */
struct responses_tool {
    struct http_text full;        /* what the model calls it */
    struct http_text space, name; /* what the client calls it; space: "" if it stands in no namespace */
    bool custom;                  /* its input is a text: {"input": ...} for the model */
};

/* Where a function of the chat stands among the request's tools. */
struct responses_place {
    uint32_t at, inside; /* inside: of a namespace's tools, from 1 on; 0: it is in none */
};

struct responses {
    struct responses_place places[TOOLS_MAX]; /* of each function */
    struct responses_tool *tools;             /* custom ones, and those of namespaces */
    size_t n_tools;
    struct http_text repeated; /* of the request, in the answer: ,"NAME":VALUE ... */
    struct http_text warnings; /* "TEXT",... */
    uint32_t n_warnings;
    bool encrypted;         /* reasoning comes back in encrypted_content as well */
    uint32_t sequence;      /* the next event's */
    struct http_text items; /* those that have ended, as the answer repeats them */
    struct http_text probs; /* log probabilities of the text that is being told, in entries */
};

/* The request as the body of a chat, added to out. False: why. Pure functions of r. */
bool responses_write(struct responses *r, const char *bytes, size_t n, struct http_text *out, struct refusal *why);
/* Its input: "messages":[...] */
bool responses_write_input(struct responses *r, struct raw root, struct http_text *out, struct refusal *why);
void responses_free(struct responses *r); /* NULL allowed */
/* A refusal of one of the chat's functions is one of the request's tool: tools that were left out count there. False:
 * it is of something else. */
bool responses_reword(const struct responses *r, struct refusal *why);
/* A warning: FORMAT as a text of `warnings`. */
__attribute__((format(printf, 2, 3))) void responses_warn(struct responses *r, const char *format, ...);
/* What the model calls a tool: its namespace, if it has one, in front. */
void responses_full_name(struct http_text *out, struct raw space, struct raw name);

/* How reasoning comes back from clients that keep what they do not read: base64 of its text behind a mark. */
void responses_seal(struct http_text *out, const struct http_text *text);
bool responses_unseal(struct raw sealed, struct http_text *out); /* false: it is none of ours */

#endif
