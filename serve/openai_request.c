/* openai_request.c: the fields of /v1. */
#include "openai_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai_names.h"
#include "base/utf8.h"

enum { COMPLETION_TOKENS = 16 /* OpenAI's default of max_tokens for /v1/completions */ };

/* ---- sampling ------------------------------------------------------------------------------------------ */

static bool read_bias(const struct body_object *o, const struct job_request_limits *l, struct openai_request *r,
                      struct refusal *why)
{
    json_t *map = json_object_get(o->object, "logit_bias"), *value;
    const char *key;
    if (!map) return true;
    if (!json_is_object(map) || json_object_size(map) > SAMPLER_MAX_BIAS)
        return body_fail(o, "logit_bias", why, "an object of at most %d token ids", SAMPLER_MAX_BIAS);
    json_object_foreach (map, key, value) {
        char *end;
        errno = 0;
        const unsigned long long id = strtoull(key, &end, 10);
        const double bias = json_number_value(value);
        if (errno || !*key || strspn(key, "0123456789") != strlen(key) || (key[0] == '0' && key[1]) ||
            id >= (l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB) || !json_is_number(value) ||
            !(bias >= -100 && bias <= 100))
            return body_fail(o, "logit_bias", why, "token ids of the vocabulary with numbers from -100 to 100");
        r->bias[r->q.params.n_logit_bias++] = (struct sampler_bias){ (uint32_t)id, (float)bias };
    }
    r->q.params.logit_bias = r->bias;
    return true;
}

/* A string, or up to STOP_MAX. */
static bool read_stop(const struct body_object *o, struct job_request *q, struct refusal *why)
{
    const json_t *v = json_object_get(o->object, "stop");
    if (!v) return true;
    if ((!json_is_string(v) && !json_is_array(v)) || json_array_size(v) > STOP_MAX)
        return body_fail(o, "stop", why, "a string, or a list of at most %d", STOP_MAX);
    return job_request_stops(o, v, q, why);
}

/* Ids that end the answer as the model's own do. */
static bool read_stop_ids(const struct body_object *o, const struct job_request_limits *l, struct job_request *q,
                          struct refusal *why)
{
    const json_t *list = json_object_get(o->object, "stop_token_ids");
    const size_t n = json_array_size(list);
    if (!list) return true;
    if (!json_is_array(list) || n > REQUEST_STOP_IDS)
        return body_fail(o, "stop_token_ids", why, "a list of at most %d token ids", REQUEST_STOP_IDS);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= (l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB))
            return body_fail(o, "stop_token_ids", why, "ids of the vocabulary");
        q->stop_ids[i] = (uint32_t)json_integer_value(v);
    }
    q->n_stop_ids = (uint32_t)n;
    return true;
}

void openai_request_seed(json_t *body)
{
    const json_t *seed = json_object_get(body, "seed");
    char digits[24];
    if (!json_is_integer(seed) || json_integer_value(seed) >= 0) return;
    if (json_integer_value(seed) == -1) {
        (void)json_object_del(body, "seed");
        return;
    }
    (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)json_integer_value(seed));
    (void)json_object_set_new(body, "seed", json_string(digits));
}

static bool read_params(const struct body_object *o, const struct job_request_limits *l, uint32_t default_tokens,
                        struct openai_request *r, struct refusal *why)
{
    struct job_request *q = &r->q;
    int64_t max_tokens = default_tokens < l->max_tokens_out ? default_tokens : l->max_tokens_out, min_tokens = 0;
    double presence = 0, frequency = 0;
    const json_t *k = json_object_get(o->object, "top_k");
    const bool all = json_is_integer(k) && json_integer_value(k) == -1; /* vLLM's word for off */
    openai_request_seed(q->body);
    if (!body_integer(o, "max_tokens", 0, l->most_tokens, &max_tokens, why) ||
        !body_integer(o, "max_completion_tokens", 0, l->most_tokens, &max_tokens, why) ||
        !body_integer(o, "min_tokens", 0, max_tokens ? max_tokens : 1, &min_tokens, why) ||
        !body_flag(o, "ignore_eos", &q->ignore_eos, why) || !read_stop_ids(o, l, q, why) ||
        !job_request_sampling(o, l, all, q, why) || !body_real(o, "presence_penalty", -2, 2, &presence, why) ||
        !body_real(o, "frequency_penalty", -2, 2, &frequency, why) || !read_stop(o, q, why) || !read_bias(o, l, r, why))
        return false;
    q->max_tokens = (uint32_t)max_tokens;
    q->params.min_ids = (uint32_t)min_tokens;
    q->params.presence_penalty = (float)presence;
    q->params.frequency_penalty = (float)frequency;
    return true;
}

bool openai_request_telemetry(const struct body_object *o, struct openai_request *out, struct refusal *why)
{
    return body_flag(o, "timings_per_token", &out->timings, why) &&
           body_flag(o, "return_progress", &out->progress, why);
}

static bool read_stream(const struct body_object *o, struct openai_request *r, struct refusal *why)
{
    json_t *options = json_object_get(o->object, "stream_options");
    const struct body_object inside = { options, "stream_options." };
    if (!body_flag(o, "stream", &r->stream, why) || !openai_request_telemetry(o, r, why)) return false;
    if (!options) return true;
    if (!json_is_object(options)) return body_fail(o, "stream_options", why, "an object");
    if (!body_flag(&inside, "include_usage", &r->usage, why) ||
        !body_flag(&inside, "continuous_usage_stats", &r->usage_each, why))
        return false;
    r->usage_each = r->usage_each && r->usage; /* as vLLM has it */
    return r->stream || !r->usage || body_fail(o, "stream_options", why, "it only with \"stream\": true");
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static bool read_answers(const struct body_object *o, struct openai_request *r, struct refusal *why)
{
    int64_t n = 1, best = 0;
    if (!body_integer(o, "n", 1, OPENAI_MOST_ANSWERS, &n, why)) return false;
    best = n;
    if (!body_integer(o, "best_of", 0, INT32_MAX, &best, why)) return false;
    r->n = (uint32_t)n;
    return best == n || body_fail(o, "best_of", why, "as many as n, %u: of more answers none would be given", r->n);
}

/* How many of the best ids are wanted beside the one that is there; false: nothing is. */
static bool read_top(const struct body_object *o, const char *name, bool *wanted, uint32_t *out, struct refusal *why)
{
    const json_t *v = json_object_get(o->object, name);
    int64_t value = 0;
    if (!v || json_is_false(v)) return true;
    if (!body_integer(o, name, 0, SAMPLER_MAX_TOP, &value, why)) return false;
    *wanted = true;
    *out = (uint32_t)value;
    return true;
}

/* A chat has a flag and a number, a completion the number alone. */
static bool read_probs(const struct body_object *o, bool chat, struct openai_request *r, struct refusal *why)
{
    bool top = false;
    if (!read_top(o, "prompt_logprobs", &r->prompt_probs, &r->prompt_top, why)) return false;
    if (r->prompt_probs && r->stream) return body_fail(o, "prompt_logprobs", why, "it only without a stream");
    if (!chat) return read_top(o, "logprobs", &r->probs, &r->top, why);
    if (!body_flag(o, "logprobs", &r->probs, why) || !read_top(o, "top_logprobs", &top, &r->top, why)) return false;
    return r->probs || !r->top || body_fail(o, "top_logprobs", why, "it only with \"logprobs\": true");
}

static bool read_common(const struct body_object *o, const struct job_request_limits *l, uint32_t default_tokens,
                        enum openai_route route, struct openai_request *r, struct refusal *why)
{
    return body_name(o, "model", 255, &r->model, why) && openai_names_check(o, route, why) &&
           read_params(o, l, default_tokens, r, why) && read_stream(o, r, why) && read_answers(o, r, why) &&
           read_probs(o, route != OPENAI_COMPLETION, r, why) &&
           transfer_read(json_object_get(o->object, "kv_transfer_params"), &r->transfer, why);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static bool no_memory(struct refusal *why) { return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request"); }

/* --max-prompt-chars, where it was asked for. */
static bool few_chars(const struct job_request_limits *l, const struct openai_request *r, const char *field,
                      struct refusal *why)
{
    return !l->most_chars || r->q.prompt_chars <= l->most_chars ||
           refuse(why, SERVE_INVALID_REQUEST, field, "%s: expected at most %u characters, got %u", field, l->most_chars,
                  r->q.prompt_chars);
}

/* The bytes of a body, and what was parsed of them. */
struct chat_body {
    const struct body_object *o;
    const char *bytes;
    size_t n;
};

/* A member's own text: it goes to the chat as the client wrote it, so that numbers keep their digits. */
static bool read_member(const struct chat_body *b, const char *name, struct token_bytes *out, struct refusal *why)
{
    if (!json_object_get(b->o->object, name)) return true;
    return body_member(b->bytes, b->n, name, &out->data, &out->len) ||
           body_fail(b->o, name, why, "the name \"%s\" written without escapes", name);
}

static bool read_messages(const struct chat_body *b, const struct job_request_limits *l, struct openai_request *r,
                          struct refusal *why)
{
    struct chat_problem problem;
    struct token_bytes text = { 0 };
    size_t chars = 0;
    if (!body_required(b->o, "messages", why) || !read_member(b, "messages", &text, why)) return false;
    if (!conversation_read(text.data, text.len, &r->conversation, &problem))
        return refuse(why, serve_code_of_status(problem.status), problem.field, "%s", problem.text);
    if (!conversation_check_calls(&r->conversation, &problem))
        return refuse(why, serve_code_of_status(problem.status), problem.field, "%s", problem.text);
    for (size_t i = 0; i < r->conversation.n; i++)
        chars += utf8_count(r->conversation.messages[i].text.data, r->conversation.messages[i].text.len);
    r->chat = (struct chat_request)CHAT_REQUEST_OF(&r->conversation);
    r->q.prompt = r->conversation.texts;
    r->q.prompt_len = r->conversation.n_texts;
    r->q.prompt_chars = chars < UINT32_MAX ? (uint32_t)chars : UINT32_MAX;
    r->q.chat = true;
    r->prompts = calloc(1, sizeof *r->prompts);
    if (!r->prompts) return no_memory(why);
    r->prompts[0] = (struct openai_prompt){ .text = r->q.prompt, .len = r->q.prompt_len, .chars = r->q.prompt_chars };
    r->n_prompts = 1;
    return few_chars(l, r, "messages", why);
}

static bool read_effort(const struct body_object *o, struct openai_request *r, struct refusal *why)
{
    const char *effort = NULL;
    if (!body_name(o, "reasoning_effort", 16, &effort, why)) return false;
    if (effort && strcmp(effort, "minimal") != 0 && strcmp(effort, "low") != 0 && strcmp(effort, "medium") != 0 &&
        strcmp(effort, "high") != 0 && strcmp(effort, "none") != 0)
        return body_fail(o, "reasoning_effort", why, "none, minimal, low, medium or high");
    r->chat.effort = effort;
    return true;
}

static bool read_thinking(const struct body_object *o, struct openai_request *r, struct refusal *why)
{
    const json_t *v = json_object_get(o->object, "enable_thinking");
    if (!v) return true;
    if (!json_is_boolean(v)) return body_fail(o, "enable_thinking", why, "true or false");
    r->chat.thinking = json_is_true(v);
    return true;
}

/* Where the prompt ends. Clients that have the last message gone on with say that no answer is begun, or nothing. */
static bool read_end(const struct body_object *o, struct openai_request *r, struct refusal *why)
{
    bool generation = true;
    if (!body_flag(o, "add_generation_prompt", &generation, why) ||
        !body_flag(o, "continue_final_message", &r->chat.continue_final, why))
        return false;
    r->chat.no_generation = !generation;
    return !r->chat.continue_final || !json_is_true(json_object_get(o->object, "add_generation_prompt")) ||
           body_fail(o, "add_generation_prompt", why, "false, or nothing, with continue_final_message");
}

/* What a conversation is made of, and what the template is told besides. */
static bool read_chat(const struct chat_body *b, const struct job_request_limits *l, struct openai_request *r,
                      struct refusal *why)
{
    const struct body_object *o = b->o;
    const json_t *kwargs = json_object_get(o->object, "chat_template_kwargs");
    const json_t *documents = json_object_get(o->object, "documents");
    if (kwargs && !json_is_object(kwargs)) return body_fail(o, "chat_template_kwargs", why, "an object");
    if (documents && !json_is_array(documents)) return body_fail(o, "documents", why, "a list");
    if (!read_messages(b, l, r, why) || !read_effort(o, r, why) || !read_thinking(o, r, why) || !read_end(o, r, why) ||
        !read_member(b, "chat_template_kwargs", &r->chat.kwargs, why) ||
        !read_member(b, "documents", &r->chat.documents, why) || !read_member(b, "tools", &r->chat.tools, why) ||
        !openai_tools_read(o, r->chat.tools, &r->tools, why))
        return false;
    if (!json_array_size(documents)) r->chat.documents = (struct token_bytes){ 0 };
    r->chat.one_call = r->tools.one;
    if (r->tools.choice == TOOLS_CHOICE_NONE) r->chat.tools = (struct token_bytes){ 0 };
    return true;
}

/* ---- prompts ------------------------------------------------------------------------------------------- */

static bool read_ids(const struct body_object *o, const json_t *list, const struct job_request_limits *l,
                     struct openai_prompt *p, struct refusal *why)
{
    p->n_ids = json_array_size(list);
    p->ids = calloc(p->n_ids, sizeof *p->ids);
    if (!p->ids) return no_memory(why);
    for (size_t i = 0; i < p->n_ids; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= (l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB))
            return body_fail(o, "prompt", why, "ids of the vocabulary");
        p->ids[i] = (uint32_t)json_integer_value(v);
    }
    p->text = (const char *)p->ids;
    p->len = p->n_ids * sizeof *p->ids;
    return true;
}

static bool read_one(const struct body_object *o, const json_t *v, const struct job_request_limits *l,
                     struct openai_prompt *p, struct refusal *why)
{
    if (json_is_array(v) && json_array_size(v)) return read_ids(o, v, l, p, why);
    if (!json_is_string(v) || !json_string_length(v))
        return body_fail(o, "prompt", why, "texts that are not empty, or lists of token ids");
    p->text = json_string_value(v);
    p->len = json_string_length(v);
    p->chars = (uint32_t)utf8_count(p->text, p->len);
    return true;
}

/* A text, its ids, or a list of either. */
static bool read_prompts(const struct body_object *o, const struct job_request_limits *l, struct openai_request *r,
                         struct refusal *why)
{
    const json_t *v = json_object_get(o->object, "prompt"), *first = json_array_get(v, 0);
    const bool several = json_is_string(first) || json_is_array(first);
    const size_t n = several ? json_array_size(v) : 1;
    if (!body_required(o, "prompt", why)) return false;
    if (n * r->n > OPENAI_MOST_IN_ALL)
        return body_fail(o, "prompt", why, "at most %d answers, of all prompts together", OPENAI_MOST_IN_ALL);
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts) return no_memory(why);
    for (r->n_prompts = 0; r->n_prompts < n;) {
        struct openai_prompt *p = &r->prompts[r->n_prompts++];
        if (!read_one(o, several ? json_array_get(v, r->n_prompts - 1) : v, l, p, why)) return false;
        r->q.prompt_chars += p->chars;
    }
    return few_chars(l, r, "prompt", why) && body_flag(o, "parse_special", &r->q.parse_special, why) &&
           body_flag(o, "add_special_tokens", &r->add_special, why) && body_flag(o, "echo", &r->echo, why);
}

/* ---- both ---------------------------------------------------------------------------------------------- */

static bool is_whole(const json_t *value)
{
    const double v = json_real_value(value);
    return json_is_real(value) && v >= -0x1p53 && v <= 0x1p53 && v == (double)(int64_t)v;
}

static void make_list_whole(json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *element = json_array_get(list, i);
        if (is_whole(element)) (void)json_array_set_new(list, i, json_integer((json_int_t)json_real_value(element)));
    }
}

/* Whole numbers that came as reals, also in lists, and in lists of these: there are languages in which every number is
 * one. */
static void make_whole(json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach (object, key, value) {
        if (is_whole(value)) (void)json_object_set_new(object, key, json_integer((json_int_t)json_real_value(value)));
        make_list_whole(value);
        for (size_t i = 0; i < json_array_size(value); i++) make_list_whole(json_array_get(value, i));
    }
}

bool openai_request_body(const char *bytes, size_t n, struct openai_request *out, struct refusal *why)
{
    memset(out, 0, sizeof *out);
    if (!body_parse(bytes, n, &out->q.body, why)) return false;
    body_drop_nulls(out->q.body);
    make_whole(out->q.body);
    json_t *options = json_object_get(out->q.body, "stream_options");
    if (json_is_object(options)) body_drop_nulls(options);
    return true;
}

static bool request_chat(const char *bytes, size_t n, enum openai_route route, const struct job_request_limits *l,
                         struct openai_request *out, struct refusal *why)
{
    if (!openai_request_body(bytes, n, out, why)) return false;
    const struct body_object o = { out->q.body, "" };
    const struct chat_body b = { &o, bytes, n };
    out->reasoning = true;
    if (read_common(&o, l, l->max_tokens_out, route, out, why) && read_chat(&b, l, out, why) &&
        structured_read(&o, bytes, n, &out->q.form, why) && body_flag(&o, "include_reasoning", &out->reasoning, why))
        return true;
    openai_request_free(out);
    return false;
}

bool openai_request_chat(const char *bytes, size_t n, const struct job_request_limits *l, struct openai_request *out,
                         struct refusal *why)
{
    return request_chat(bytes, n, OPENAI_CHAT, l, out, why);
}

bool openai_request_render(const char *bytes, size_t n, const struct job_request_limits *l, struct openai_request *out,
                           struct refusal *why)
{
    return request_chat(bytes, n, OPENAI_RENDER, l, out, why);
}

bool openai_request_completion(const char *bytes, size_t n, const struct job_request_limits *l,
                               struct openai_request *out, struct refusal *why)
{
    if (!openai_request_body(bytes, n, out, why)) return false;
    const struct body_object o = { out->q.body, "" };
    out->add_special = true;
    if (read_common(&o, l, COMPLETION_TOKENS, OPENAI_COMPLETION, out, why) && read_prompts(&o, l, out, why) &&
        structured_read(&o, bytes, n, &out->q.form, why))
        return true;
    openai_request_free(out);
    return false;
}

bool openai_request_messages(const struct body_object *o, const char *bytes, size_t n, struct openai_request *out,
                             struct refusal *why)
{
    static const struct job_request_limits unlimited = { 0 };
    const struct chat_body b = { o, bytes, n };
    memset(out, 0, sizeof *out);
    if (read_chat(&b, &unlimited, out, why)) return true;
    openai_request_free(out);
    return false;
}

void openai_request_free(struct openai_request *r)
{
    job_request_free(&r->q);
    for (uint32_t i = 0; i < r->n_prompts; i++) free(r->prompts[i].ids);
    free(r->prompts);
    openai_tools_free(&r->tools);
    conversation_free(&r->conversation);
    r->prompts = NULL;
    r->n_prompts = 0;
}
