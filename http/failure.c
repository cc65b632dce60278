/* failure.c: failures as answers: every one is written here, in the form of the interface that its path belongs to. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

const struct status *status_of(int number)
{
    static const char invalid[] = "invalid_request_error", server[] = "server_error", api[] = "api_error";
    static const struct status statuses[] = {
        { 200, "OK", "", "", "" },
        { 201, "Created", "", "", "" },
        { 202, "Accepted", "", "", "" },
        { 204, "No Content", "", "", "" },
        { 400, "Bad Request", "INVALID_REQUEST", invalid, invalid },
        { 401, "Unauthorized", "UNAUTHORIZED", "authentication_error", "authentication_error" },
        { 403, "Forbidden", "FORBIDDEN", "permission_error", "permission_error" },
        { 404, "Not Found", "NOT_FOUND", "not_found_error", "not_found_error" },
        { 405, "Method Not Allowed", "METHOD_NOT_ALLOWED", invalid, invalid },
        { 408, "Request Timeout", "REQUEST_TIMEOUT", invalid, invalid },
        { 409, "Conflict", "CONFLICT", invalid, invalid },
        { 413, "Content Too Large", "PAYLOAD_TOO_LARGE", invalid, "request_too_large" },
        { 414, "URI Too Long", "URI_TOO_LONG", invalid, invalid },
        { 415, "Unsupported Media Type", "UNSUPPORTED_MEDIA_TYPE", invalid, invalid },
        { 417, "Expectation Failed", "EXPECTATION_FAILED", invalid, invalid },
        { 421, "Misdirected Request", "MISDIRECTED", invalid, invalid },
        { 429, "Too Many Requests", "QUEUE_FULL", "rate_limit_error", "rate_limit_error" },
        { 431, "Request Header Fields Too Large", "HEADERS_TOO_LARGE", invalid, invalid },
        { 499, "Client Closed Request", "CANCELLED", invalid, api },
        { 500, "Internal Server Error", "INTERNAL", server, api },
        { 503, "Service Unavailable", "NOT_READY", "unavailable_error", "overloaded_error" },
        { 504, "Gateway Timeout", "INFERENCE_TIMEOUT", server, "timeout_error" },
    };
    static const struct status other = { 0, "Other", "INTERNAL", server, api };
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].number == number) return &statuses[i];
    return &other;
}

/* ---- forms --------------------------------------------------------------------------------------------- */

static void put_string(struct http_text *t, const char *before, const char *text)
{
    http_text_add(t, before, strlen(before));
    http_text_json(t, text, strlen(text));
}

static void put_members(struct http_text *t, const struct http_failure *f)
{
    for (size_t i = 0; i < HTTP_MEMBERS_MAX && f->more[i].name; i++)
        http_text_format(t, ",\"%s\":%llu", f->more[i].name, (unsigned long long)f->more[i].value);
}

static bool given(const char *text) { return text && text[0]; }

/* {code, message, retriable, job_id?, field?, ...} */
static void put_own(struct http_text *t, const struct http_failure *f, const struct http_request *r)
{
    (void)r;
    put_string(t, "{\"code\":", f->code);
    put_string(t, ",\"message\":", f->message);
    http_text_format(t, ",\"retriable\":%s", f->retriable ? "true" : "false");
    if (given(f->job_id)) put_string(t, ",\"job_id\":", f->job_id);
    if (given(f->field)) put_string(t, ",\"field\":", f->field);
    put_members(t, f);
    http_text_add(t, "}", 1);
}

/* {"error": {message, type, param, code, ...}}, the code in lower case. */
static void put_openai(struct http_text *t, const struct http_failure *f, const struct http_request *r)
{
    (void)r;
    put_string(t, "{\"error\":{\"message\":", f->message);
    http_text_format(t, ",\"type\":\"%s\",\"param\":", status_of(f->status)->openai);
    if (given(f->field))
        http_text_json(t, f->field, strlen(f->field));
    else
        http_text_add(t, "null", 4);
    http_text_format(t, ",\"code\":\"");
    for (const char *c = f->code; *c; c++)
        http_text_add(t, &(char){ (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c) }, 1);
    http_text_add(t, "\"", 1);
    if (given(f->job_id)) put_string(t, ",\"job_id\":", f->job_id);
    put_members(t, f);
    http_text_add(t, "}}", 2);
}

/* {"type": "error", "error": {type, message}, "request_id"}: who reads it knows these members, and no code beside.
 * Where a conversation was to be kept on this side (`thread`), its clients go on without that if `details` say so. */
static void put_anthropic(struct http_text *t, const struct http_failure *f, const struct http_request *r)
{
    http_text_format(t, "{\"type\":\"error\",\"error\":{\"type\":\"%s\"", status_of(f->status)->anthropic);
    put_string(t, ",\"message\":", f->message);
    if (given(f->field) && strcmp(f->field, "thread") == 0)
        http_text_format(t, ",\"details\":{\"error_code\":\"thread_unsupported_request\",\"unsupported\":[\"%s\"]}",
                         f->field);
    put_string(t, "},\"request_id\":", r->id);
    http_text_add(t, "}", 1);
}

/* {"error": message}: Ollama's has no more. */
static void put_ollama(struct http_text *t, const struct http_failure *f, const struct http_request *r)
{
    (void)r;
    put_string(t, "{\"error\":", f->message);
    http_text_add(t, "}", 1);
}

/* OpenAI's and Anthropic's clients tell no failure that is worth a retry by its status alone: they would try these
 * again, twice. */
static void steer_retries(struct http_request *r, const struct http_failure *f)
{
    if (!f->retriable && (f->status == 408 || f->status == 409 || f->status >= 500))
        http_extra(r, "x-should-retry", "false");
}

/* An interface's form of a failure: document and headers. The first row whose prefix the path has. */
struct form {
    const char *prefix, *id_header; /* id_header: what X-Request-Id is called besides; NULL: nothing */
    void (*put)(struct http_text *t, const struct http_failure *f, const struct http_request *r);
    void (*steer)(struct http_request *r, const struct http_failure *f); /* NULL: no headers of its own */
};

/* The path itself, with or without a query, or one below it; "": every path. */
static bool is_below(const char *path, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(path, prefix, n) == 0 && (!n || !path[n] || path[n] == '/' || path[n] == '?');
}

static const struct form *form_of(const struct http_request *r)
{
    static const struct form forms[] = {
        { "/v1/messages", "request-id", put_anthropic, steer_retries },
        { "/v1", NULL, put_openai, steer_retries },
        { "/v2", NULL, put_openai, steer_retries },
        { "/completion", NULL, put_openai, steer_retries }, /* llama-server's own routes have it, too */
        { "/completions", NULL, put_openai, steer_retries },
        { "/infill", NULL, put_openai, steer_retries },
        { "/apply-template", NULL, put_openai, steer_retries },
        { "/props", NULL, put_openai, steer_retries },
        { "/chat/completions", NULL, put_openai, steer_retries },
        { "/responses", NULL, put_openai, steer_retries },
        { "/models", NULL, put_openai, steer_retries },
        { "/slots", NULL, put_openai, steer_retries }, /* and those of its routes that are refused by name */
        { "/lora-adapters", NULL, put_openai, steer_retries },
        { "/embed", NULL, put_openai, steer_retries },
        { "/embedding", NULL, put_openai, steer_retries },
        { "/embeddings", NULL, put_openai, steer_retries },
        { "/rerank", NULL, put_openai, steer_retries },
        { "/reranking", NULL, put_openai, steer_retries },
        { "/api", NULL, put_ollama, NULL },
        { "", NULL, put_own, NULL },
    };
    const struct form *form = forms;
    while (!is_below(r->asked, form->prefix)) form++;
    return form;
}

void http_text_failure(struct http_text *t, const struct http_request *r, const struct http_failure *f)
{
    form_of(r)->put(t, f, r);
}

const char *failure_id_header(const struct http_request *r) { return form_of(r)->id_header; }

/* ---- answers ------------------------------------------------------------------------------------------- */

void http_error(struct http_request *r, const struct http_failure *f)
{
    struct http_text t = { 0 };
    const struct form *form = form_of(r);
    const uint32_t after = f->retry_after_s ? f->retry_after_s : f->status == 429 || f->status == 503 ? 1 : 0;
    char seconds[16];
    form->put(&t, f, r);
    http_text_add(&t, "\n", 1);
    (void)snprintf(seconds, sizeof seconds, "%u", after);
    if (after) http_extra(r, "Retry-After", seconds);
    if (form->steer) form->steer(r, f);
    if (t.failed)
        http_answer(r, 500, NULL, NULL, 0);
    else
        http_answer(r, f->status, "application/json", t.data, t.n);
    http_text_free(&t);
}

void answer_refusal(struct http_request *r, int status, const char *message)
{
    atomic_fetch_add(&r->s->refused, 1);
    http_error(r, &(struct http_failure){ .status = status, .code = status_of(status)->code, .message = message });
}

void answer_busy(struct http_request *r, const char *message)
{
    http_error(r, &(struct http_failure){ .status = 503, .code = "NOT_READY", .message = message, .retriable = true });
}
