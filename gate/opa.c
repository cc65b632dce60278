/* opa.c: see opa.h. One function asks, one reads what came; both begin with a no. */
#include "opa.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capability/json_text.h"
#include "scope.h"
#include "base/utf8.h"

enum { MOST_PATH = 512, MOST_SOCKET = 107 };

struct opa {
    struct fetch *f;
    char *url;     /* of the rule */
    char *socket;  /* NULL: by TCP */
    char *ca_file; /* NULL: the system's */
};

const char *opa_kind_name(enum opa_kind kind)
{
    static const char *const names[] = { [OPA_UNREACHABLE] = "unreachable", [OPA_STATUS] = "status",
                                         [OPA_UNDEFINED] = "undefined",     [OPA_WRONG] = "wrong",
                                         [OPA_DENIED] = "denied",           [OPA_ALLOWED] = "allowed" };
    return names[kind];
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool is_path(const char *path)
{
    if (!path || !*path || *path == '/' || strlen(path) > MOST_PATH || strstr(path, "//") || strstr(path, ".."))
        return false;
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    return path[strspn(path, allowed)] == '\0' && path[strlen(path) - 1] != '/';
}

/* http(s)://HOST[:PORT], a slash behind it or not. */
static bool is_host(const char *url)
{
    if (!url || (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)) return false;
    const char *host = strstr(url, "://") + 3;
    const size_t n = strcspn(host, "/");
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:[]";
    return n > 0 && n < 300 && (isalnum((unsigned char)*host) || *host == '[') && strspn(host, allowed) == n &&
           !memmem(host, n, "..", 2) && (host[n] == '\0' || host[n + 1] == '\0');
}

wk_status opa_open(const struct opa_config *c, struct fetch *f, struct opa **out, const struct wk_err *err)
{
    static const char unix_form[] = "unix:";
    *out = NULL;
    const bool by_socket = c->url && strncmp(c->url, unix_form, sizeof unix_form - 1) == 0;
    const char *socket = by_socket ? c->url + sizeof unix_form - 1 : NULL;
    if (by_socket ? *socket != '/' || strlen(socket) > MOST_SOCKET : !is_host(c->url))
        return wk_fail(err, WK_INVALID,
                       "a policy server is http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH, without a user, a "
                       "password and a query"); /* which are not said back */
    if (!is_path(c->path))
        return wk_fail(err, WK_INVALID,
                       "a policy's path is words of letters, digits, _, - and . with slashes between them, as "
                       "worker/allow, not \"%.100s\"",
                       c->path ? c->path : "");
    const wk_status ca = c->ca_file ? fetch_check_ca(c->ca_file, err) : WK_OK;
    if (ca) return ca;
    struct opa *p = calloc(1, sizeof *p);
    const char *base = by_socket ? "http://localhost" : c->url;
    const size_t base_len = strlen(base) - (!by_socket && base[strlen(base) - 1] == '/'),
                 size = base_len + MOST_PATH + 16;
    if (p) {
        p->f = f;
        p->url = malloc(size);
        p->socket = socket ? strdup(socket) : NULL;
        p->ca_file = c->ca_file ? strdup(c->ca_file) : NULL;
    }
    if (!p || !p->url || (socket && !p->socket) || (c->ca_file && !p->ca_file)) {
        opa_close(p);
        return wk_fail(err, WK_NO_MEMORY, "out of memory for a policy server");
    }
    (void)snprintf(p->url, size, "%.*s/v1/data/%s", (int)base_len, base, c->path);
    *out = p;
    return WK_OK;
}

void opa_close(struct opa *p)
{
    if (!p) return;
    free(p->url);
    free(p->socket);
    free(p->ca_file);
    free(p);
}

void opa_decision_free(struct opa_decision *d)
{
    json_decref(d->obligations);
    d->obligations = NULL;
}

/* ---- the question ------------------------------------------------------------------------------------------------ */

static bool put(json_t *o, const char *name, json_t *value)
{
    return value && json_object_set_new(o, name, value) == 0;
}

static bool put_text(json_t *o, const char *name, const char *text) { return !text || put(o, name, json_string(text)); }

static bool put_count(json_t *o, const char *name, int64_t n) { return n < 0 || put(o, name, json_integer(n)); }

static bool put_scopes(json_t *o, uint32_t scopes)
{
    json_t *names = json_array();
    for (uint32_t s = 1; names && s < SCOPE_ALL; s <<= 1)
        if ((scopes & s) && json_array_append_new(names, json_string(scope_name(s))) != 0) {
            json_decref(names);
            names = NULL;
        }
    return put(o, "scopes", names);
}

/* {"input": {...}} as text; NULL: no memory. */
static char *question(const struct opa_input *q)
{
    json_t *input = json_object(), *root = NULL;
    char *text = NULL;
    const bool good =
        input && put_text(input, "request_id", q->request_id) && put_text(input, "key_id", q->key_id) &&
        put_scopes(input, q->scopes) && put_text(input, "route", q->route) && put_text(input, "model", q->model) &&
        (!q->parameters || json_object_set(input, "parameters", q->parameters) == 0) &&
        put_count(input, "prompt_tokens", q->prompt_tokens) && put_count(input, "prompt_chars", q->prompt_chars) &&
        put_count(input, "max_tokens", q->max_tokens) && put_text(input, "prompt_hmac", q->prompt_hmac) &&
        (!q->prompt || put(input, "prompt", json_bytes(q->prompt, q->prompt_len)));
    if (good && (root = json_pack("{s:O}", "input", input)) != NULL) text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    json_decref(input);
    return text;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static bool deny(struct opa_decision *d, enum opa_kind kind, const char *format,
                                                       ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(d->reason, sizeof d->reason, format, args);
    va_end(args);
    d->kind = kind;
    d->max_tokens = -1;
    opa_decision_free(d);
    return false;
}

/* To out [cap], cut at a whole character; control characters become spaces. */
static void copy_text(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t left = strlen(text); left;) {
        const size_t k = utf8_sequence((const unsigned char *)text, left);
        if (k == 0 || n + k >= cap) break;
        memcpy(out + n, text, k);
        if (k == 1 && ((unsigned char)*text < 0x20 || *text == 0x7f)) out[n] = ' ';
        n += k;
        text += k;
        left -= k;
    }
    out[n] = '\0';
}

static bool is_whole(const json_t *value, int64_t most)
{
    if (json_is_integer(value)) return json_integer_value(value) >= 0 && json_integer_value(value) <= most;
    const double real = json_real_value(value);
    return json_is_real(value) && real >= 0 && real <= (double)most && floor(real) == real;
}

/* {allow, reason, max_tokens, obligations}: nothing else, since what is not understood could be a condition. */
static bool read_members(json_t *result, struct opa_decision *d)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)result, name, value) {
        bool good;
        if (strcmp(name, "allow") == 0)
            good = json_is_boolean(value);
        else if (strcmp(name, "reason") == 0)
            good = json_is_string(value);
        else if (strcmp(name, "max_tokens") == 0)
            good = is_whole(value, OPA_MOST_TOKENS);
        else if (strcmp(name, "obligations") == 0)
            good = json_is_array(value) || json_is_object(value);
        else
            return deny(d, OPA_WRONG,
                        "the policy's result has a member that is not known here: allow, reason, "
                        "max_tokens and obligations are expected");
        if (!good)
            return deny(d, OPA_WRONG,
                        "\"%s\" of the policy's result is of a wrong type: allow is a boolean, reason a "
                        "text, max_tokens a whole number up to %d, obligations an array or an object",
                        name, OPA_MOST_TOKENS);
    }
    const json_t *allow = json_object_get(result, "allow"), *reason = json_object_get(result, "reason"),
                 *most = json_object_get(result, "max_tokens");
    json_t *obligations = json_object_get(result, "obligations");
    if (!allow) return deny(d, OPA_WRONG, "the policy's result has no \"allow\"");
    if (!json_is_true(allow)) {
        char text[sizeof d->reason];
        copy_text(reason ? json_string_value(reason) : "", text, sizeof text);
        return deny(d, OPA_DENIED, "%s", text[0] ? text : "the policy says no");
    }
    if (most) d->max_tokens = (int64_t)json_number_value(most);
    d->obligations = json_incref(obligations);
    d->kind = OPA_ALLOWED;
    return true;
}

static bool read_document(const json_t *root, struct opa_decision *d)
{
    const json_t *id = json_object_get(root, "decision_id");
    json_t *result = json_object_get(root, "result");
    if (!json_is_object(root)) return deny(d, OPA_WRONG, "the policy server's answer is not a JSON object");
    if (id) {
        const char *text = json_string_value(id);
        if (!text || strlen(text) >= sizeof d->decision_id)
            return deny(d, OPA_WRONG, "decision_id of the policy server's answer is no text of at most 128 bytes");
        copy_text(text, d->decision_id, sizeof d->decision_id);
    }
    if (!result)
        return deny(d, OPA_UNDEFINED,
                    "the policy has no decision for this (undefined): is there such a rule, and has "
                    "it a default?");
    if (json_is_object(result)) return read_members(result, d);
    if (!json_is_boolean(result)) return deny(d, OPA_WRONG, "the policy's result is neither a boolean nor an object");
    if (!json_is_true(result)) return deny(d, OPA_DENIED, "the policy says no");
    d->kind = OPA_ALLOWED;
    return true;
}

bool opa_read(uint32_t status, const char *body, size_t n, struct opa_decision *out)
{
    *out = (struct opa_decision){ .kind = OPA_UNREACHABLE, .max_tokens = -1 };
    if (status != 200)
        return deny(out, OPA_STATUS, "the policy server answered with status %u: 200 is expected", status);
    json_error_t said;
    json_t *root = json_loadb(body, n, JSON_REJECT_DUPLICATES, &said);
    if (!root)
        return deny(out, OPA_WRONG, "the policy server's answer is not JSON: byte %d: %s", said.position, said.text);
    const bool allowed = read_document(root, out);
    json_decref(root);
    return allowed;
}

bool opa_allows(struct opa *p, const struct opa_input *input, struct opa_decision *out)
{
    char text[400] = "";
    struct fetch_answer a;
    *out = (struct opa_decision){ .kind = OPA_UNREACHABLE, .max_tokens = -1 };
    char *body = question(input);
    if (!body) return deny(out, OPA_UNREACHABLE, "out of memory for a question to the policy server");
    char trace[96] = "";
    const char *const headers[] = { trace };
    if (input->traceparent) (void)snprintf(trace, sizeof trace, "traceparent: %.60s", input->traceparent);
    const struct fetch_request r = { .method = "POST",
                                     .url = p->url,
                                     .content_type = "application/json",
                                     .headers = headers,
                                     .n_headers = trace[0] ? 1 : 0,
                                     .body = body,
                                     .body_len = strlen(body),
                                     .ca_file = p->ca_file,
                                     .unix_socket = p->socket,
                                     .timeout_ms = OPA_TIMEOUT_MS,
                                     .most_bytes = OPA_MOST_ANSWER };
    const wk_status s = fetch_do(p->f, &r, &a, &(struct wk_err){ text, sizeof text });
    free(body);
    if (s) return deny(out, OPA_UNREACHABLE, "the policy server gave no answer: %.350s", text);
    const bool allowed = opa_read(a.status, a.body, a.body_len, out);
    fetch_answer_free(&a);
    return allowed;
}
