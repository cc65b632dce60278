/* ollama_request.h: the bodies of /api/chat and /api/generate, written as those of /v1/chat/completions and
 * /v1/completions, which are read there: ranges and forms are checked once. Pure functions. [any thread] */
#ifndef SERVE_OLLAMA_REQUEST_H
#define SERVE_OLLAMA_REQUEST_H

#include "body.h"
#include "http/http.h"

/* What of the worker a body is held against. */
struct ollama_limits {
    uint32_t context;                     /* the most that num_ctx may be; 0: not known yet */
    uint32_t max_tokens_out, most_tokens; /* as job_request_limits has them */
    bool always_reasons;                  /* and what it thinks is left out where nobody wants it to */
};

enum ollama_asks {
    OLLAMA_LOAD = 0, /* is the model there? Nothing is written */
    OLLAMA_UNLOAD,   /* it may go. Nothing is written */
    OLLAMA_CHAT,     /* a chat's body is written; its messages are the request's */
    OLLAMA_PROMPT,   /* ... are the prompt */
    OLLAMA_SYSTEM,   /* ... are the system's and the prompt */
    OLLAMA_RAW       /* a completion's body is written */
};

struct ollama_body {
    enum ollama_asks asks;
    char *model; /* as the request calls it, the caller's to free, also after a failure; NULL: not at all */
};

/* *to is the caller's, and what it held is not freed. What is written is added to out. False: why says field, value and
 * range, in the request's own names. */
bool ollama_write(bool generate, const char *bytes, size_t n, const struct ollama_limits *l, struct ollama_body *to,
                  struct http_text *out, struct refusal *why);

#endif
