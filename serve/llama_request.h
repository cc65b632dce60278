/* llama_request.h: the bodies of llama-server's /completion and /infill.
 *
 * As there, null is the same as absent and names that nobody knows are ignored. What is known to change the answer and
 * is not served is refused by name, unless its value asks for nothing (openai_names.c). Pure functions. [any thread] */
#ifndef SERVE_LLAMA_REQUEST_H
#define SERVE_LLAMA_REQUEST_H

#include "http/http.h"
#include "openai_request.h"
#include "tape/adapter.h"
#include "tokenizer/tokenizer.h"

enum { LLAMA_MOST_FIELDS = 256 /* of response_fields */ };

/* What the samplers of a request are, as bits; what stands in no list is off. */
enum llama_sampler {
    LLAMA_PENALTIES = 1,
    LLAMA_TEMPERATURE = 2,
    LLAMA_TOP_K = 4,
    LLAMA_TOP_P = 8,
    LLAMA_MIN_P = 16,
    LLAMA_SAMPLERS = 31 /* all of them */
};

/* What the model decides. */
struct llama_model {
    const struct tokenizer *tokenizer; /* NULL: not known (fuzzing): texts of logit_bias are refused */
    uint32_t context;                  /* ids: what n_predict -1 asks for */
    const struct adapter *adapters;    /* [n_adapters], for generation_settings */
    uint32_t n_adapters;
};

struct llama_request {
    struct openai_request o; /* q, n, probs, top, model, stream, bias; no prompts */
    const json_t **prompts;  /* [n_prompts], the body's: a text, or a list of texts and ids */
    uint32_t n_prompts;
    bool infill;
    struct token_bytes prefix, suffix, middle; /* of an infill; middle: its prompt */
    const json_t *extra;                       /* of an infill: [{"filename", "text"}]; NULL: none */
    bool return_tokens, post_probs;
    json_t *fields; /* response_fields, its own; NULL: all */
    uint32_t n_indent;
    int64_t n_predict;              /* as it was asked for; -1: up to the context */
    uint64_t predict_ms;            /* 0: no limit */
    uint32_t samplers;              /* enum llama_sampler */
    const struct adapter *adapters; /* llama_model's */
    uint32_t n_adapters;
};

/* *out is the caller's, zeroed or not; llama_request_free after success. The bytes must outlive it. False: why says
 * field, value and range. */
bool llama_request_read(const char *bytes, size_t n, bool infill, const struct job_request_limits *l,
                        const struct llama_model *m, struct llama_request *out, struct refusal *why);
void llama_request_free(struct llama_request *q);

/* {"temperature": ..., ...: the members of generation_settings but for the seed, without braces. [before the body is
 * freed] */
void llama_request_settings(const struct llama_request *q, const struct tokenizer *t, struct http_text *out);
/* The same of a request that says nothing; a server's defaults. */
bool llama_request_defaults(const struct job_request_limits *l, const struct llama_model *m, struct llama_request *out,
                            struct refusal *why);

#endif
