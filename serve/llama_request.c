/* llama_request.c: the fields of /completion and /infill. */
#include "llama_request.h"

#include <stdlib.h>
#include <string.h>

#include "openai_names.h"
#include "base/utf8.h"

static bool no_memory(struct refusal *why) { return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request"); }

/* ---- samplers ------------------------------------------------------------------------------------------ */

/* Names of samplers. Those without a bit are not here: with the values that alone are served they do nothing, or, as
 * "infill", choose among what the others leave. */
static const struct sampler_name {
    const char *name;
    uint32_t bit;
    int theirs, ours; /* places in llama-server's order and in this worker's */
} sampler_names[] = {
    { "penalties", LLAMA_PENALTIES, 0, 0 },
    { "temperature", LLAMA_TEMPERATURE, 4, 1 },
    { "top_k", LLAMA_TOP_K, 1, 2 },
    { "top_p", LLAMA_TOP_P, 2, 3 },
    { "min_p", LLAMA_MIN_P, 3, 4 },
    { "dry", 0, 0, 0 },
    { "top_n_sigma", 0, 0, 0 },
    { "typ_p", 0, 0, 0 },
    { "typical_p", 0, 0, 0 },
    { "xtc", 0, 0, 0 },
    { "adaptive_p", 0, 0, 0 },
    { "infill", 0, 0, 0 },
};

static const struct sampler_name *sampler_named(const json_t *v)
{
    for (size_t i = 0; i < sizeof sampler_names / sizeof *sampler_names; i++)
        if (body_says(v, sampler_names[i].name)) return &sampler_names[i];
    return NULL;
}

/* Either order stands for this worker's: llama-server's own is what its clients write out who want none. */
static bool read_samplers(const struct body_object *o, struct llama_request *q, struct refusal *why)
{
    const json_t *list = json_object_get(o->object, "samplers");
    bool theirs = true, ours = true;
    int last_theirs = -1, last_ours = -1;
    q->samplers = LLAMA_SAMPLERS;
    if (!list) return true;
    if (!json_is_array(list)) return body_fail(o, "samplers", why, "a list of names");
    q->samplers = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct sampler_name *s = sampler_named(json_array_get(list, i));
        if (!s || (s->bit & q->samplers))
            return body_fail(o, "samplers", why,
                             "penalties, temperature, top_k, top_p, min_p, and those that do nothing here, each once");
        if (!s->bit) continue;
        theirs = theirs && s->theirs > last_theirs;
        ours = ours && s->ours > last_ours;
        last_theirs = s->theirs;
        last_ours = s->ours;
        q->samplers |= s->bit;
    }
    return theirs || ours ||
           body_fail(o, "samplers", why, "the order penalties, temperature, top_k, top_p, min_p, or llama-server's");
}

static void set(json_t *body, const char *name, json_t *value, bool always)
{
    if (always || !json_object_get(body, name))
        (void)json_object_set_new(body, name, value);
    else
        json_decref(value);
}

/* llama-server's values where the request has none; off where the sampler is not asked for. */
static void fill_in(json_t *body, uint32_t samplers)
{
    const bool k = samplers & LLAMA_TOP_K, p = samplers & LLAMA_TOP_P, m = samplers & LLAMA_MIN_P;
    const bool heat = samplers & LLAMA_TEMPERATURE, penal = samplers & LLAMA_PENALTIES;
    const json_t *given = json_object_get(body, "temperature");
    if (json_is_number(given) && json_number_value(given) < 0) set(body, "temperature", json_real(0), true);
    set(body, "temperature", json_real(heat ? 0.8 : 1), !heat);
    set(body, "top_p", json_real(p ? 0.95 : 1), !p);
    set(body, "min_p", json_real(m ? 0.05 : 0), !m);
    set(body, "repeat_penalty", json_real(1), !penal);
    set(body, "presence_penalty", json_real(0), !penal);
    set(body, "frequency_penalty", json_real(0), !penal);
    set(body, "top_k", json_integer(k ? 40 : 0), !k);
}

/* Below 1 and above the vocabulary all are kept. */
static bool read_top_k(const struct body_object *o, const struct job_request_limits *l, struct job_request *r,
                       struct refusal *why)
{
    int64_t k = 0;
    const int64_t most = l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB;
    if (!body_integer(o, "top_k", INT32_MIN, INT32_MAX, &k, why)) return false;
    r->params.top_k = k < 0 || k > most ? 0 : (uint32_t)k;
    return true;
}

/* -1 and its 32 bits are any seed. */
static void drop_any_seed(json_t *body)
{
    const json_t *seed = json_object_get(body, "seed");
    if (json_is_integer(seed) && (json_integer_value(seed) == -1 || json_integer_value(seed) == UINT32_MAX))
        (void)json_object_del(body, "seed");
}

static bool read_sampling(const struct body_object *o, const struct job_request_limits *l, struct llama_request *q,
                          struct refusal *why)
{
    struct job_request *r = &q->o.q;
    double repeat = 1, presence = 0, frequency = 0;
    if (!read_samplers(o, q, why)) return false;
    drop_any_seed(r->body);
    openai_request_seed(r->body);
    fill_in(r->body, q->samplers);
    if (!job_request_sampling(o, l, true, r, why) || !read_top_k(o, l, r, why) ||
        !body_real(o, "repeat_penalty", 0, 2, &repeat, why) ||
        !body_real(o, "presence_penalty", -2, 2, &presence, why) ||
        !body_real(o, "frequency_penalty", -2, 2, &frequency, why))
        return false;
    if (!((float)repeat > 0)) return body_fail(o, "repeat_penalty", why, "a number above 0, at most 2");
    r->params.repetition_penalty = (float)repeat;
    r->params.presence_penalty = (float)presence;
    r->params.frequency_penalty = (float)frequency;
    return true;
}

/* ---- biases -------------------------------------------------------------------------------------------- */

static const char bias_form[] =
    "[[TOKEN, BIAS], ...] or {TOKEN: BIAS, ...}: ids or texts with numbers from -100 to 100, or false";

static bool add_bias(const struct body_object *o, const struct job_request_limits *l, struct openai_request *r,
                     int64_t id, double bias, struct refusal *why)
{
    if (id < 0 || id >= (int64_t)(l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB))
        return body_fail(o, "logit_bias", why, "ids of the vocabulary");
    if (r->q.params.n_logit_bias == SAMPLER_MAX_BIAS)
        return body_fail(o, "logit_bias", why, "at most %d ids, those of its texts together", SAMPLER_MAX_BIAS);
    r->bias[r->q.params.n_logit_bias++] = (struct sampler_bias){ (uint32_t)id, (float)bias };
    return true;
}

/* Each of the text's ids. */
static bool add_text_bias(const struct body_object *o, const struct job_request_limits *l, const struct llama_model *m,
                          struct openai_request *r, struct token_bytes text, double bias, struct refusal *why)
{
    struct tokens ids = { 0 };
    if (!m->tokenizer || text.len > STOP_MAX_BYTES)
        return body_fail(o, "logit_bias", why, "texts of at most %d bytes", STOP_MAX_BYTES);
    bool ok = !tokenizer_encode(m->tokenizer, text.data, text.len, false, false, &ids, NULL) || no_memory(why);
    for (size_t i = 0; ok && i < ids.n; i++) ok = add_bias(o, l, r, ids.ids[i], bias, why);
    tokens_free(&ids);
    return ok;
}

/* false: never, as far as a bias can say it. */
static bool bias_of(const json_t *v, double *out)
{
    *out = json_is_false(v) ? -100 : json_number_value(v);
    return (json_is_false(v) || json_is_number(v)) && *out >= -100 && *out <= 100;
}

/* The id that the text's digits are; -1: it is a text. */
static int64_t id_of(const char *text, size_t n)
{
    return n && n <= 10 && strspn(text, "0123456789") == n && (text[0] != '0' || n == 1) ? strtoll(text, NULL, 10) : -1;
}

static bool read_bias(const struct body_object *o, const struct job_request_limits *l, const struct llama_model *m,
                      struct openai_request *r, struct refusal *why)
{
    json_t *all = json_object_get(o->object, "logit_bias"), *value;
    const char *key;
    double bias;
    if (!all || json_is_false(all)) return true;
    r->q.params.logit_bias = r->bias;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *pair = json_array_get(all, i), *of = json_array_get(pair, 0);
        if (json_array_size(pair) != 2 || !bias_of(json_array_get(pair, 1), &bias) ||
            !(json_is_integer(of) || json_is_string(of)))
            return body_fail(o, "logit_bias", why, "%s", bias_form);
        const struct token_bytes text = { json_string_value(of), json_string_length(of) };
        if (!(json_is_integer(of) ? add_bias(o, l, r, json_integer_value(of), bias, why)
                                  : add_text_bias(o, l, m, r, text, bias, why)))
            return false;
    }
    json_object_foreach (all, key, value) {
        const int64_t id = id_of(key, strlen(key));
        if (!bias_of(value, &bias)) return body_fail(o, "logit_bias", why, "%s", bias_form);
        if (!(id >= 0 ? add_bias(o, l, r, id, bias, why)
                      : add_text_bias(o, l, m, r, (struct token_bytes){ key, strlen(key) }, bias, why)))
            return false;
    }
    return json_is_array(all) || json_is_object(all) || body_fail(o, "logit_bias", why, "%s", bias_form);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

/* n_predict, and what other servers call it. */
static bool read_most(const struct body_object *o, const struct job_request_limits *l, const struct llama_model *m,
                      struct llama_request *q, struct refusal *why)
{
    const uint32_t most = l->most_tokens < m->context ? l->most_tokens : m->context;
    q->n_predict = -1;
    if (!body_integer(o, "max_tokens", -1, l->most_tokens, &q->n_predict, why) ||
        !body_integer(o, "max_completion_tokens", -1, l->most_tokens, &q->n_predict, why) ||
        !body_integer(o, "n_predict", -1, l->most_tokens, &q->n_predict, why))
        return false;
    q->o.q.max_tokens = q->n_predict < 0 ? most : (uint32_t)q->n_predict;
    return true;
}

/* A string, or a list; empty strings, which clients send who want none, stop nothing. */
static bool read_stop(const struct body_object *o, struct job_request *r, struct refusal *why)
{
    json_t *v = json_object_get(o->object, "stop");
    if (!v || (json_is_string(v) && !json_string_length(v))) return true;
    for (size_t i = json_array_size(v); i-- > 0;) {
        const json_t *s = json_array_get(v, i);
        if (json_is_string(s) && !json_string_length(s)) (void)json_array_remove(v, i);
    }
    if ((!json_is_string(v) && !json_is_array(v)) || json_array_size(v) > STOP_MAX)
        return body_fail(o, "stop", why, "a string, or a list of at most %d", STOP_MAX);
    return job_request_stops(o, v, r, why);
}

static bool read_fields(const struct body_object *o, struct llama_request *q, struct refusal *why)
{
    json_t *list = json_object_get(o->object, "response_fields");
    const size_t n = json_array_size(list);
    if (!list) return true;
    if (!json_is_array(list) || n > LLAMA_MOST_FIELDS)
        return body_fail(o, "response_fields", why, "a list of at most %d names", LLAMA_MOST_FIELDS);
    for (size_t i = 0; i < n; i++)
        if (!json_string_length(json_array_get(list, i)))
            return body_fail(o, "response_fields", why, "names such as \"content\" and \"timings/prompt_n\"");
    q->fields = n ? json_incref(list) : NULL;
    return true;
}

/* Probabilities behind the samplers can be told where those 20 best that a device tells of hold all that top_k keeps,
 * and nothing changes logits before. */
static bool check_post_probs(const struct body_object *o, const struct llama_request *q, struct refusal *why)
{
    const struct sampler_params *p = &q->o.q.params;
    if (!q->post_probs || !q->o.probs) return true;
    if (p->n_logit_bias || p->presence_penalty != 0 || p->frequency_penalty != 0 || p->repetition_penalty != 1)
        return body_fail(o, "post_sampling_probs", why, "false, or nothing, with logit_bias and penalties");
    if (q->o.q.form.from.kind != GRAMMAR_NONE)
        return body_fail(o, "post_sampling_probs", why, "false, or nothing, with a form of the answer");
    return p->temperature < SAMPLER_GREEDY || (p->top_k && p->top_k <= SAMPLER_MAX_TOP) ||
           body_fail(o, "post_sampling_probs", why,
                     "it with a top_k from 1 to %d, of which probabilities are known, not %u, or with temperature 0",
                     SAMPLER_MAX_TOP, p->top_k);
}

static bool read_probs(const struct body_object *o, struct llama_request *q, struct refusal *why)
{
    int64_t top = 0;
    if (!body_integer(o, "n_probs", 0, SAMPLER_MAX_TOP, &top, why) ||
        !body_flag(o, "post_sampling_probs", &q->post_probs, why))
        return false;
    q->o.probs = top > 0;
    q->o.top = (uint32_t)top;
    return true;
}

static bool read_answer(const struct body_object *o, const struct job_request_limits *l, const struct llama_model *m,
                        struct llama_request *q, struct refusal *why)
{
    int64_t n = 1, indent = 0, ms = 0;
    if (!read_most(o, l, m, q, why) || !read_stop(o, &q->o.q, why) || !read_fields(o, q, why) ||
        !read_probs(o, q, why) || !body_integer(o, "n", 1, OPENAI_MOST_ANSWERS, &n, why) ||
        !body_integer(o, "n_cmpl", 1, OPENAI_MOST_ANSWERS, &n, why) ||
        !body_integer(o, "n_indent", 0, INT32_MAX, &indent, why) ||
        !body_integer(o, "t_max_predict_ms", -1, INT32_MAX, &ms, why) || !body_flag(o, "stream", &q->o.stream, why) ||
        !openai_request_telemetry(o, &q->o, why) || !body_flag(o, "return_tokens", &q->return_tokens, why) ||
        !body_flag(o, "ignore_eos", &q->o.q.ignore_eos, why))
        return false;
    q->o.n = (uint32_t)n;
    q->n_indent = (uint32_t)indent;
    q->predict_ms = ms > 0 ? (uint64_t)ms : 0;
    return true;
}

/* ---- prompts ------------------------------------------------------------------------------------------- */

static bool count_chars(const struct job_request_limits *l, const char *field, struct job_request *r,
                        struct token_bytes text, struct refusal *why)
{
    r->prompt_chars += (uint32_t)utf8_count(text.data, text.len);
    return !l->most_chars || r->prompt_chars <= l->most_chars ||
           refuse(why, SERVE_INVALID_REQUEST, field, "%s: expected at most %u characters in all, got %u", field,
                  l->most_chars, r->prompt_chars);
}

static struct token_bytes text_of(const json_t *v)
{
    return (struct token_bytes){ json_string_value(v), json_string_length(v) };
}

static bool read_parts(const struct body_object *o, const struct job_request_limits *l, const json_t *list,
                       struct job_request *r, struct refusal *why)
{
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v) ? !count_chars(l, "prompt", r, text_of(v), why)
                              : !json_is_integer(v) || json_integer_value(v) < 0 ||
                                    json_integer_value(v) >= (l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB))
            return json_is_string(v) ? false : body_fail(o, "prompt", why, "texts, and ids of the vocabulary");
    }
    return n || body_fail(o, "prompt", why, "lists that are not empty");
}

/* A text, a list of ids and texts, or {"prompt_string": a text}. */
static bool read_prompt(const struct body_object *o, const struct job_request_limits *l, const json_t *v,
                        struct llama_request *q, struct refusal *why)
{
    if (json_is_object(v)) {
        const json_t *media = json_object_get(v, "multimodal_data");
        if (json_string_length(media) || json_array_size(media))
            return refuse(why, SERVE_INVALID_REQUEST, "prompt",
                          "prompt: multimodal_data: this worker does not serve it; leave it out");
        v = json_object_get(v, "prompt_string");
    }
    q->prompts[q->n_prompts++] = v;
    if (json_is_array(v)) return read_parts(o, l, v, &q->o.q, why);
    return json_is_string(v) ? count_chars(l, "prompt", &q->o.q, text_of(v), why)
                             : body_fail(o, "prompt", why, "texts, lists of ids and texts, or {\"prompt_string\"}");
}

/* A list with a number in it is one prompt, another one a list of them. */
static bool is_several(const json_t *v)
{
    bool numbers = false;
    for (size_t i = 0; i < json_array_size(v); i++) numbers = numbers || json_is_number(json_array_get(v, i));
    return json_is_array(v) && !numbers;
}

static bool read_prompts(const struct body_object *o, const struct job_request_limits *l, struct llama_request *q,
                         struct refusal *why)
{
    const json_t *v = json_object_get(o->object, "prompt");
    const bool several = is_several(v);
    const size_t n = several ? json_array_size(v) : 1;
    if (!body_required(o, "prompt", why)) return false;
    if (!n || n * q->o.n > OPENAI_MOST_IN_ALL)
        return body_fail(o, "prompt", why, "one, or a list of at most %d, answers to each counted", OPENAI_MOST_IN_ALL);
    q->prompts = calloc(n, sizeof *q->prompts);
    if (!q->prompts) return no_memory(why);
    for (size_t i = 0; i < n; i++)
        if (!read_prompt(o, l, several ? json_array_get(v, i) : v, q, why)) return false;
    q->o.q.parse_special = true;
    return body_flag(o, "parse_special", &q->o.q.parse_special, why);
}

static bool read_infill_text(const struct body_object *o, const struct job_request_limits *l, const char *name,
                             struct llama_request *q, struct token_bytes *out, struct refusal *why)
{
    return body_string(o, name, 0, HTTP_BODY_MAX, &out->data, &out->len, why) &&
           count_chars(l, name, &q->o.q, *out, why);
}

static bool read_infill(const struct body_object *o, const struct job_request_limits *l, struct llama_request *q,
                        struct refusal *why)
{
    q->infill = true;
    q->prefix = q->suffix = q->middle = (struct token_bytes){ "", 0 };
    q->extra = json_object_get(o->object, "input_extra");
    if (!body_required(o, "input_prefix", why) || !body_required(o, "input_suffix", why) ||
        !read_infill_text(o, l, "input_prefix", q, &q->prefix, why) ||
        !read_infill_text(o, l, "input_suffix", q, &q->suffix, why) ||
        !read_infill_text(o, l, "prompt", q, &q->middle, why))
        return false;
    if (q->extra && !json_is_array(q->extra)) return body_fail(o, "input_extra", why, "a list of {filename, text}");
    for (size_t i = 0; i < json_array_size(q->extra); i++) {
        const json_t *chunk = json_array_get(q->extra, i), *name = json_object_get(chunk, "filename");
        if (!json_is_string(json_object_get(chunk, "text")) || (name && !json_is_null(name) && !json_is_string(name)))
            return body_fail(o, "input_extra", why, "objects with a text, and perhaps a filename, of strings");
        if (!count_chars(l, "input_extra", &q->o.q, text_of(json_object_get(chunk, "text")), why)) return false;
    }
    q->n_prompts = 1;
    return true;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static bool read_all(const char *bytes, size_t n, bool infill, const struct job_request_limits *l,
                     const struct llama_model *m, struct llama_request *q, struct refusal *why)
{
    const struct body_object o = { q->o.q.body, "" };
    return body_name(&o, "model", 255, &q->o.model, why) &&
           openai_names_check(&o, infill ? OPENAI_INFILL : OPENAI_LLAMA, why) && read_sampling(&o, l, q, why) &&
           read_answer(&o, l, m, q, why) && read_bias(&o, l, m, &q->o, why) &&
           (infill ? read_infill(&o, l, q, why) : read_prompts(&o, l, q, why)) &&
           structured_read(&o, bytes, n, &q->o.q.form, why) && check_post_probs(&o, q, why);
}

bool llama_request_read(const char *bytes, size_t n, bool infill, const struct job_request_limits *l,
                        const struct llama_model *m, struct llama_request *out, struct refusal *why)
{
    memset(out, 0, sizeof *out);
    out->adapters = m->adapters;
    out->n_adapters = m->n_adapters;
    if (!openai_request_body(bytes, n, &out->o, why)) return false;
    if (read_all(bytes, n, infill, l, m, out, why)) return true;
    llama_request_free(out);
    return false;
}

void llama_request_free(struct llama_request *q)
{
    openai_request_free(&q->o);
    free(q->prompts);
    json_decref(q->fields);
    q->prompts = NULL;
    q->fields = NULL;
}

/* ---- generation_settings ------------------------------------------------------------------------------- */

static void put_names(const struct llama_request *q, struct http_text *out)
{
    const char *between = "";
    http_text_format(out, ",\"samplers\":[");
    for (int place = 0; place < 5; place++)
        for (size_t i = 0; i < sizeof sampler_names / sizeof *sampler_names; i++) {
            const struct sampler_name *s = &sampler_names[i];
            if (!(s->bit & q->samplers) || s->ours != place) continue;
            http_text_format(out, "%s\"%s\"", between, s->name);
            between = ",";
        }
    http_text_format(out, "],\"stop\":[");
    for (uint32_t i = 0; i < q->o.q.n_stops; i++) {
        if (i) http_text_add(out, ",", 1);
        http_text_json(out, q->o.q.stops[i], q->o.q.stop_lens[i]);
    }
    http_text_add(out, "]", 1);
}

/* Ids that never come are told with null. */
static void put_biases(const struct llama_request *q, const struct tokenizer *t, struct http_text *out)
{
    const struct sampler_params *p = &q->o.q.params;
    size_t n = 0;
    const uint32_t *ends = t && q->o.q.ignore_eos ? tokenizer_end_ids(t, &n) : NULL;
    http_text_format(out, ",\"logit_bias\":[");
    for (uint32_t i = 0; i < p->n_logit_bias; i++)
        http_text_format(out, "%s{\"token\":%u,\"bias\":%.7g}", i ? "," : "", p->logit_bias[i].id,
                         (double)p->logit_bias[i].bias);
    for (size_t i = 0; ends && i < n; i++)
        http_text_format(out, "%s{\"token\":%u,\"bias\":null}", i || p->n_logit_bias ? "," : "", ends[i]);
    http_text_add(out, "]", 1);
}

static void put_adapters(const struct llama_request *q, struct http_text *out)
{
    http_text_format(out, ",\"lora\":[");
    for (uint32_t i = 0; i < q->n_adapters; i++)
        http_text_format(out, "%s{\"id\":%u,\"scale\":%.9g}", i ? "," : "", i, q->adapters[i].scale);
    http_text_add(out, "]", 1);
}

void llama_request_settings(const struct llama_request *q, const struct tokenizer *t, struct http_text *out)
{
    const struct sampler_params *p = &q->o.q.params;
    const json_t *grammar = json_object_get(q->o.q.body, "grammar");
    http_text_format(out,
                     "\"temperature\":%.7g,\"top_k\":%u,\"top_p\":%.7g,\"min_p\":%.7g,\"repeat_penalty\":%.7g,"
                     "\"presence_penalty\":%.7g,\"frequency_penalty\":%.7g,\"dynatemp_range\":0.0,"
                     "\"dynatemp_exponent\":1.0,\"top_n_sigma\":-1.0,\"xtc_probability\":0.0,\"xtc_threshold\":0.1,"
                     "\"typical_p\":1.0,\"repeat_last_n\":-1,\"dry_multiplier\":0.0,\"dry_base\":1.75,"
                     "\"dry_allowed_length\":2,\"dry_penalty_last_n\":-1,\"mirostat\":0,\"mirostat_tau\":5.0,"
                     "\"mirostat_eta\":0.1,\"adaptive_target\":-1.0,\"adaptive_decay\":0.9",
                     (double)p->temperature, p->top_k, (double)p->top_p, (double)p->min_p,
                     (double)p->repetition_penalty, (double)p->presence_penalty, (double)p->frequency_penalty);
    http_text_format(out,
                     ",\"n_predict\":%lld,\"max_tokens\":%lld,\"n_keep\":0,\"n_discard\":0,\"n_indent\":%u,"
                     "\"t_max_predict_ms\":%llu,\"ignore_eos\":%s,\"stream\":%s,\"n_probs\":%u,\"min_keep\":0,"
                     "\"post_sampling_probs\":%s,\"timings_per_token\":%s",
                     (long long)q->n_predict, (long long)q->n_predict, q->n_indent, (unsigned long long)q->predict_ms,
                     q->o.q.ignore_eos ? "true" : "false", q->o.stream ? "true" : "false", q->o.top,
                     q->post_probs ? "true" : "false", q->o.timings ? "true" : "false");
    put_adapters(q, out);
    http_text_format(out, ",\"grammar\":");
    http_text_json(out, json_is_string(grammar) ? json_string_value(grammar) : "", json_string_length(grammar));
    put_names(q, out);
    put_biases(q, t, out);
}

bool llama_request_defaults(const struct job_request_limits *l, const struct llama_model *m, struct llama_request *out,
                            struct refusal *why)
{
    static const char nothing[] = "{\"prompt\":\"\"}";
    return llama_request_read(nothing, sizeof nothing - 1, false, l, m, out, why);
}
