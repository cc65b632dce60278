/* job_request.h: the bodies of /execute and /worker/execute: one set of fields, names, ranges and defaults.
 *
 * Everything that needs no model is checked here: types, ranges, counts, unknown and missing fields. Pure functions.
 * [any thread] */
#ifndef SERVE_JOB_REQUEST_H
#define SERVE_JOB_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "body.h"
#include "engine/engine.h"
#include "sample/sample.h"
#include "structured.h"
#include "tokenizer/stop.h"

enum {
    REQUEST_STOPS = 4, /* of /execute */
    REQUEST_STOP_TOKENS = 32,
    REQUEST_STOP_IDS = 48, /* of /v1; the model's own come on top: SAMPLER_MAX_ENDS in all */
    REQUEST_LEAST_PRIORITY = -1000,
    REQUEST_MAX_HANDLE = 191,
    REQUEST_FORM_BYTES = 1 << 20 /* of the answer's form, as /execute takes it */
};

struct job_request_limits {
    uint32_t max_prompt_chars; /* code points, of /execute */
    uint32_t most_chars;       /* of all texts of a request of /v1; 0: what the context holds */
    uint32_t max_tokens_out;   /* also the default of max_tokens */
    uint32_t most_tokens; /* the largest max_tokens of /v1, whose clients name large ones: what the context has no room
                             for ends with "length" */
    uint32_t n_vocab;     /* largest top_k; 0: not known yet */
    int32_t max_priority;
};

struct job_request {
    json_t *body;                       /* owns every string below */
    char job_id[ENGINE_JOB_ID_MAX + 1]; /* "": the caller names it */
    const char *handle_id;              /* of /worker/execute; else NULL */
    const char *prompt;
    size_t prompt_len; /* bytes; may hold NUL */
    uint32_t prompt_chars;
    uint32_t max_tokens;          /* 0, of /v1: the prompt alone is computed */
    struct sampler_params params; /* no biases; seed: see seed_given */
    bool seed_given, chat, metrics;
    bool parse_special; /* control tokens that the prompt spells are such */
    bool ignore_eos;    /* the model's own ids that end an answer do not */
    uint32_t stop_ids[REQUEST_STOP_IDS], n_stop_ids;
    const char *stops[STOP_MAX];
    size_t stop_lens[STOP_MAX];
    uint32_t n_stops;
    int32_t priority;
    struct structured form; /* of the answer; texts: as `body` and the bytes that it was parsed from live */
};

/* {job_id, prompt, max_tokens, ..., priority, chat, metrics}. False: why says field, value and range; nothing needs to
 * be freed. */
bool job_request_execute(const char *bytes, size_t n, const struct job_request_limits *l, struct job_request *out,
                         struct refusal *why);
/* {handle_id, prompt, params: {the other fields of /execute}, job_id?}. */
bool job_request_worker_execute(const char *bytes, size_t n, const struct job_request_limits *l,
                                struct job_request *out, struct refusal *why);
void job_request_free(struct job_request *r);

/* What /execute and /v1 read alike. The members of sampling, seed and priority; top_k_off: top_k is
 * not read, and off. */
bool job_request_sampling(const struct body_object *o, const struct job_request_limits *l, bool top_k_off,
                          struct job_request *r, struct refusal *why);
/* The stop strings that `v` has: a string, or a list of at most STOP_MAX. */
bool job_request_stops(const struct body_object *o, const json_t *v, struct job_request *r, struct refusal *why);

/* Bytes that a body of either may have: every code point of the prompt as two \uXXXX, and the rest. */
static inline size_t job_request_most_bytes(const struct job_request_limits *l)
{
    return (size_t)l->max_prompt_chars * 12 + (REQUEST_STOPS * STOP_MAX_BYTES * 6) + REQUEST_FORM_BYTES + 16384;
}

/* X-Deadline: RFC 3339 or milliseconds since 1970. False: it is neither. */
bool job_request_deadline(const char *text, int64_t *unix_ms);

#endif
