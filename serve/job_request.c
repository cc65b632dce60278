/* job_request.c: the fields of /execute. */
#include "job_request.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

static const char *const execute_names[] = { "job_id",
                                             "prompt",
                                             "max_tokens",
                                             "temperature",
                                             "top_p",
                                             "top_k",
                                             "min_p",
                                             "repetition_penalty",
                                             "stop",
                                             "seed",
                                             "priority",
                                             "chat",
                                             "metrics",
                                             "parse_special",
                                             "response_format",
                                             "json_schema",
                                             "grammar",
                                             "structured_outputs",
                                             "guided_json",
                                             "guided_regex",
                                             "guided_choice",
                                             "guided_grammar" };
enum {
    N_EXECUTE_NAMES = sizeof execute_names / sizeof *execute_names,
    N_NOT_PARAMS = 2 /* job_id and prompt stand outside of params */
};

static bool read_prompt(const struct body_object *o, const struct job_request_limits *l, struct job_request *r,
                        struct refusal *why)
{
    if (!body_required(o, "prompt", why)) return false;
    if (!json_is_string(json_object_get(o->object, "prompt"))) return body_fail(o, "prompt", why, "a string");
    (void)body_string(o, "prompt", 0, SIZE_MAX, &r->prompt, &r->prompt_len, why);
    r->prompt_chars = (uint32_t)utf8_count(r->prompt, r->prompt_len);
    if (r->prompt_chars >= 1 && r->prompt_chars <= l->max_prompt_chars) return true;
    char field[96];
    (void)snprintf(field, sizeof field, "%sprompt", o->prefix);
    return refuse(why, SERVE_INVALID_REQUEST, field, "%s: expected 1 to %u characters, got %u", field,
                  l->max_prompt_chars, r->prompt_chars); /* not the text itself */
}

bool job_request_stops(const struct body_object *o, const json_t *v, struct job_request *r, struct refusal *why)
{
    const size_t n = json_is_string(v) ? 1 : json_array_size(v);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_string(v) ? v : json_array_get(v, i);
        if (!json_is_string(s) || !json_string_length(s) || json_string_length(s) > STOP_MAX_BYTES)
            return body_fail(o, "stop", why, "strings of 1 to %d bytes", STOP_MAX_BYTES);
        r->stops[i] = json_string_value(s);
        r->stop_lens[i] = json_string_length(s);
    }
    r->n_stops = (uint32_t)n;
    return true;
}

static bool read_stop(const struct body_object *o, struct job_request *r, struct refusal *why)
{
    const json_t *list = json_object_get(o->object, "stop");
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > REQUEST_STOPS)
        return body_fail(o, "stop", why, "a list of at most %d strings", REQUEST_STOPS);
    return job_request_stops(o, list, r, why);
}

bool job_request_sampling(const struct body_object *o, const struct job_request_limits *l, bool top_k_off,
                          struct job_request *r, struct refusal *why)
{
    int64_t top_k = 0, priority = 0;
    double temperature = 1, top_p = 1, min_p = 0, repetition = 1;
    const int64_t most_k = l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB;
    if (!body_real(o, "temperature", 0, 2, &temperature, why) || !body_real(o, "top_p", 0, 1, &top_p, why) ||
        (!top_k_off && !body_integer(o, "top_k", 0, most_k, &top_k, why)) ||
        !body_real(o, "min_p", 0, 1, &min_p, why) || !body_real(o, "repetition_penalty", 0, 2, &repetition, why) ||
        !body_uint64(o, "seed", &r->params.seed, &r->seed_given, why) ||
        !body_integer(o, "priority", REQUEST_LEAST_PRIORITY, l->max_priority, &priority, why))
        return false;
    if (!((float)repetition > 0)) return body_fail(o, "repetition_penalty", why, "a number above 0, at most 2");
    r->priority = (int32_t)priority;
    r->params.top_k = (uint32_t)top_k;
    r->params.temperature = (float)temperature;
    r->params.top_p = (float)top_p;
    r->params.min_p = (float)min_p;
    r->params.repetition_penalty = (float)repetition;
    return true;
}

/* bytes: what o was parsed from. */
static bool read_params(const struct body_object *o, const char *bytes, size_t n, const struct job_request_limits *l,
                        struct job_request *r, struct refusal *why)
{
    int64_t max_tokens = l->max_tokens_out;
    if (!body_integer(o, "max_tokens", 1, l->max_tokens_out, &max_tokens, why) ||
        !job_request_sampling(o, l, false, r, why) || !body_flag(o, "chat", &r->chat, why) ||
        !body_flag(o, "metrics", &r->metrics, why) || !body_flag(o, "parse_special", &r->parse_special, why) ||
        !read_stop(o, r, why) || !structured_read(o, bytes, n, &r->form, why))
        return false;
    r->max_tokens = (uint32_t)max_tokens;
    return !(r->chat && r->parse_special) ||
           body_fail(o, "parse_special", why, "false with chat: the template alone makes control tokens");
}

static bool read_job_id(const struct body_object *o, struct job_request *r, struct refusal *why)
{
    const char *id = NULL;
    if (!body_name(o, "job_id", ENGINE_JOB_ID_MAX, &id, why)) return false;
    if (id) (void)snprintf(r->job_id, sizeof r->job_id, "%s", id);
    return true;
}

static bool read_execute(struct job_request *r, const char *bytes, size_t n, const struct job_request_limits *l,
                         struct refusal *why)
{
    const struct body_object o = { r->body, "" };
    return body_knows(&o, execute_names, N_EXECUTE_NAMES, why) && body_required(&o, "job_id", why) &&
           read_job_id(&o, r, why) && read_prompt(&o, l, r, why) && read_params(&o, bytes, n, l, r, why);
}

static bool read_worker_execute(struct job_request *r, const char *bytes, size_t n, const struct job_request_limits *l,
                                struct refusal *why)
{
    static const char *const names[] = { "handle_id", "prompt", "params", "job_id" };
    const struct body_object o = { r->body, "" };
    if (!body_knows(&o, names, sizeof names / sizeof *names, why) || !body_required(&o, "handle_id", why) ||
        !body_name(&o, "handle_id", REQUEST_MAX_HANDLE, &r->handle_id, why) || !read_job_id(&o, r, why) ||
        !read_prompt(&o, l, r, why))
        return false;
    const char *text = NULL;
    size_t len = 0;
    json_t *none = json_object();
    const json_t *given = json_object_get(r->body, "params");
    const struct body_object params = { given ? given : none, "params." };
    const bool ok = (!given || json_is_object(given) || body_fail(&o, "params", why, "an object")) &&
                    (!given || body_member(bytes, n, "params", &text, &len) ||
                     body_fail(&o, "params", why, "the name \"params\" written without escapes")) &&
                    body_knows(&params, execute_names + N_NOT_PARAMS, N_EXECUTE_NAMES - N_NOT_PARAMS, why) &&
                    read_params(&params, text, len, l, r, why);
    json_decref(none);
    return ok;
}

static bool read_body(const char *bytes, size_t n, const struct job_request_limits *l, struct job_request *out,
                      struct refusal *why,
                      bool (*read)(struct job_request *, const char *, size_t, const struct job_request_limits *,
                                   struct refusal *))
{
    struct refusal unnamed;
    const char *id = NULL;
    memset(out, 0, sizeof *out);
    if (!body_parse(bytes, n, &out->body, why)) return false;
    /* whatever is wrong with the request, its sender learns which one it was */
    if (body_name(&(struct body_object){ out->body, "" }, "job_id", ENGINE_JOB_ID_MAX, &id, &unnamed) && id)
        refusal_job(why, id);
    if (read(out, bytes, n, l, why)) return true;
    job_request_free(out);
    return false;
}

bool job_request_execute(const char *bytes, size_t n, const struct job_request_limits *l, struct job_request *out,
                         struct refusal *why)
{
    return read_body(bytes, n, l, out, why, read_execute);
}

bool job_request_worker_execute(const char *bytes, size_t n, const struct job_request_limits *l,
                                struct job_request *out, struct refusal *why)
{
    return read_body(bytes, n, l, out, why, read_worker_execute);
}

void job_request_free(struct job_request *r)
{
    structured_free(&r->form);
    json_decref(r->body);
    r->body = NULL;
}

/* ---- X-Deadline ---------------------------------------------------------------------------------------- */

/* Exactly n digits at *text, which moves on; -1: something else. */
static int digits(const char **text, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++) {
        if (!isdigit((unsigned char)(*text)[i])) return -1;
        value = value * 10 + ((*text)[i] - '0');
    }
    *text += n;
    return value;
}

static bool literal(const char **text, char c)
{
    if (**text != c) return false;
    (*text)++;
    return true;
}

/* "Z", "+01:00": minutes east of Greenwich. */
static bool offset_at(const char **text, int *minutes)
{
    *minutes = 0;
    if (literal(text, 'Z') || literal(text, 'z')) return true;
    const bool west = **text == '-';
    if (!west && **text != '+') return false;
    (*text)++;
    const int h = digits(text, 2);
    if (h < 0 || h > 23 || !literal(text, ':')) return false;
    const int m = digits(text, 2);
    if (m < 0 || m > 59) return false;
    *minutes = west ? -(h * 60 + m) : h * 60 + m;
    return true;
}

static bool rfc3339(const char *text, int64_t *unix_ms)
{
    static const int days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    struct tm t = { 0 };
    int minutes, ms = 0;
    const int year = digits(&text, 4);
    if (year < 1970 || !literal(&text, '-')) return false;
    const int month = digits(&text, 2);
    if (month < 1 || month > 12 || !literal(&text, '-')) return false;
    t.tm_mday = digits(&text, 2);
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (t.tm_mday < 1 || t.tm_mday > days[month - 1] - (month == 2 && !leap) ||
        (!literal(&text, 'T') && !literal(&text, 't')))
        return false;
    t.tm_hour = digits(&text, 2);
    if (t.tm_hour < 0 || t.tm_hour > 23 || !literal(&text, ':')) return false;
    t.tm_min = digits(&text, 2);
    if (t.tm_min < 0 || t.tm_min > 59 || !literal(&text, ':')) return false;
    t.tm_sec = digits(&text, 2);
    if (t.tm_sec < 0 || t.tm_sec > 60) return false;
    if (literal(&text, '.')) {
        if (!isdigit((unsigned char)*text)) return false;
        for (int scale = 100; isdigit((unsigned char)*text); text++, scale /= 10) ms += (*text - '0') * scale;
    }
    if (!offset_at(&text, &minutes) || *text) return false;
    t.tm_year = year - 1900;
    t.tm_mon = month - 1;
    *unix_ms = ((int64_t)timegm(&t) - minutes * 60) * 1000 + ms;
    return true;
}

bool job_request_deadline(const char *text, int64_t *unix_ms)
{
    const size_t n = strlen(text);
    if (n && n <= 15 && strspn(text, "0123456789") == n) {
        *unix_ms = (int64_t)strtoll(text, NULL, 10);
        return true;
    }
    return rfc3339(text, unix_ms);
}
