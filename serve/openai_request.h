/* openai_request.h: the bodies of /v1/chat/completions and /v1/completions.
 *
 * As OpenAI's interface has it, null is the same as absent and names that nobody knows are ignored: clients send extras
 * of other servers. What is known to change the answer and is not served is refused by name, unless its value asks for
 * nothing (openai_names.c). Pure functions. [any thread] */
#ifndef SERVE_OPENAI_REQUEST_H
#define SERVE_OPENAI_REQUEST_H

#include "chat/chat.h"
#include "job_request.h"
#include "openai_tools.h"
#include "transfer.h"

enum { OPENAI_MOST_ANSWERS = 16 /* to a prompt */, OPENAI_MOST_IN_ALL = 256 /* to all prompts of a request */ };

/* A prompt: a text, or ids, which are its own; text is then the ids' bytes. */
struct openai_prompt {
    const char *text;
    size_t len;
    uint32_t chars;
    uint32_t *ids;
    size_t n_ids;
};

struct openai_request {
    struct job_request q; /* body owns every string; prompt: of a chat, all its texts behind each other */
    struct openai_prompt *prompts;
    uint32_t n_prompts, n;            /* n: answers to each */
    bool probs, prompt_probs;         /* log probabilities of the answers' ids, of the prompts' */
    uint32_t top, prompt_top;         /* and of so many of the best at their places */
    bool echo;                        /* a completion's text begins with its prompt */
    const char *model;                /* NULL: not named */
    bool stream, usage, usage_each;   /* usage: a last chunk with the counts; each: every chunk has them */
    bool timings, progress;           /* llama-server's telemetry: openai_request_telemetry */
    bool reasoning;                   /* a chat's reasoning is shown */
    bool add_special;                 /* a completion's prompt begins as the model's texts do */
    struct conversation conversation; /* of a chat */
    struct chat_request chat;         /* what is to be made of it; its JSON is part of the body's bytes */
    struct openai_tools tools;        /* of a chat */
    struct transfer transfer;         /* its texts are the body's */
    struct sampler_bias bias[SAMPLER_MAX_BIAS];
};

/* *out is the caller's, zeroed or not; openai_request_free after success. False: why says field, value and range. */
/* The bytes of a chat's body must outlive out->chat. */
bool openai_request_chat(const char *bytes, size_t n, const struct job_request_limits *l, struct openai_request *out,
                         struct refusal *why);
/* The same for a prompt that is only shown: tools are taken. */
bool openai_request_render(const char *bytes, size_t n, const struct job_request_limits *l, struct openai_request *out,
                           struct refusal *why);
bool openai_request_completion(const char *bytes, size_t n, const struct job_request_limits *l,
                               struct openai_request *out, struct refusal *why);
/* The conversation of a body that is read already, and stays the caller's like its bytes: out->chat, and what
 * openai_request_free frees. */
bool openai_request_messages(const struct body_object *o, const char *bytes, size_t n, struct openai_request *out,
                             struct refusal *why);
void openai_request_free(struct openai_request *r);

/* For requests of other interfaces with these members. out->q.body alone, the rest zeroed: without nulls, integers
 * that came as reals are whole. */
bool openai_request_body(const char *bytes, size_t n, struct openai_request *out, struct refusal *why);
/* timings_per_token and return_progress. */
bool openai_request_telemetry(const struct body_object *o, struct openai_request *out, struct refusal *why);
/* -1 is any seed; other negative ones are the 64 bits that they are made of. */
void openai_request_seed(json_t *body);

#endif
