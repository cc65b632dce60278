/* probe.c: the gate's parts that connect out, as a test drives them: a JSON object a line on standard input, one a line
 * back. "do" names the command; "times" runs it in so many threads at one time. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "gate/fetch.h"
#include "gate/oidc.h"
#include "gate/opa.h"
#include "gate/scope.h"
#include "log/log.h"

enum { TEXT = 700, MOST_TIMES = 2000, MOST_CLIENTS = 8 };

static struct fetch *net;
static struct oidc *issuer;
static struct opa *policy;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t n_answered, n_failed; /* calls of fetch_start that ended */

static const char *text_in(const json_t *q, const char *name) { return json_string_value(json_object_get(q, name)); }

static int64_t whole_in(const json_t *q, const char *name, int64_t otherwise)
{
    const json_t *v = json_object_get(q, name);
    return v ? json_integer_value(v) : otherwise;
}

static const char *status_name(wk_status s)
{
    return s == WK_OK ? "ok" : s == WK_INVALID ? "invalid" : s == WK_IO ? "io" : "other";
}

static json_t *said(wk_status s, const char *text)
{
    return json_pack("{s:s,s:s}", "status", status_name(s), "text", s ? text : "");
}

/* ---- fetch ------------------------------------------------------------------------------------------------------- */

static void request_in(const json_t *q, struct fetch_request *r, const char *headers[FETCH_MOST_HEADERS + 1])
{
    const json_t *list = json_object_get(q, "headers");
    const char *body = text_in(q, "body");
    *r = (struct fetch_request){ .method = text_in(q, "method") ? text_in(q, "method") : "GET",
                                 .url = text_in(q, "url"),
                                 .content_type = text_in(q, "type"),
                                 .headers = headers,
                                 .n_headers = json_array_size(list),
                                 .body = body,
                                 .body_len = body ? strlen(body) : 0,
                                 .ca_file = text_in(q, "ca"),
                                 .unix_socket = text_in(q, "socket"),
                                 .timeout_ms = (uint32_t)whole_in(q, "timeout", 20000),
                                 .most_bytes = (uint32_t)whole_in(q, "most", 1 << 20),
                                 .https_only = json_is_true(json_object_get(q, "https_only")) };
    for (size_t i = 0; i < r->n_headers && i <= FETCH_MOST_HEADERS; i++)
        headers[i] = json_string_value(json_array_get(list, i));
}

static json_t *do_fetch(const json_t *q)
{
    const char *headers[FETCH_MOST_HEADERS + 1];
    struct fetch_request r;
    struct fetch_answer a;
    char text[TEXT] = "";
    request_in(q, &r, headers);
    const wk_status s = fetch_do(net, &r, &a, &(struct wk_err){ text, sizeof text });
    json_t *out = said(s, text);
    if (!s) {
        (void)json_object_set_new(out, "code", json_integer(a.status));
        (void)json_object_set_new(out, "bytes", json_integer((json_int_t)a.body_len));
        if (a.body_len < 4096) (void)json_object_set_new(out, "body", json_stringn(a.body, a.body_len));
    }
    fetch_answer_free(&a);
    return out;
}

static void ended(void *arg, const struct fetch_answer *answer, const char *failure)
{
    (void)pthread_mutex_lock(&lock);
    if (answer && !failure)
        n_answered++;
    else
        n_failed++;
    (void)pthread_mutex_unlock(&lock);
    (void)arg;
}

/* fetch_start, "count" times; then "ended" waits for nobody: it says how many have ended. */
static json_t *do_start(const json_t *q)
{
    const char *headers[FETCH_MOST_HEADERS + 1];
    struct fetch_request r;
    char text[TEXT] = "";
    int64_t taken = 0;
    request_in(q, &r, headers);
    for (int64_t i = 0, n = whole_in(q, "count", 1); i < n; i++)
        if (fetch_start(net, &r, ended, NULL, &(struct wk_err){ text, sizeof text }) == WK_OK) taken++;
    return json_pack("{s:I,s:s}", "taken", (json_int_t)taken, "text", text);
}

static json_t *do_ended(const json_t *q)
{
    (void)q;
    (void)pthread_mutex_lock(&lock);
    json_t *out = json_pack("{s:I,s:I,s:I}", "answered", (json_int_t)n_answered, "failed", (json_int_t)n_failed,
                            "starts", (json_int_t)fetch_starts(net));
    (void)pthread_mutex_unlock(&lock);
    return out;
}

/* A stream, waited for. */
struct streamed {
    uint64_t parts;
    size_t n;
    uint32_t status;  /* that every part came with; 1: two had different ones */
    bool over, whole; /* whole: done's answer had a body */
    char body[4096], failure[TEXT];
};
static pthread_cond_t stream_over = PTHREAD_COND_INITIALIZER;

static void take_part(void *arg, uint32_t status, const char *bytes, size_t n)
{
    struct streamed *s = arg;
    if (s->n + n < sizeof s->body) memcpy(s->body + s->n, bytes, n);
    s->n += n;
    s->status = s->parts && s->status != status ? 1 : status;
    s->parts++;
}

static void end_stream(void *arg, const struct fetch_answer *answer, const char *failure)
{
    struct streamed *s = arg;
    (void)pthread_mutex_lock(&lock);
    s->whole = answer && answer->body_len;
    if (answer && s->parts && s->status != answer->status) s->status = 1;
    if (answer && !s->parts) s->status = answer->status;
    if (failure) (void)snprintf(s->failure, sizeof s->failure, "%s", failure);
    s->over = true;
    (void)pthread_cond_broadcast(&stream_over);
    (void)pthread_mutex_unlock(&lock);
}

static json_t *do_stream(const json_t *q)
{
    const char *headers[FETCH_MOST_HEADERS + 1];
    struct fetch_request r;
    char text[TEXT] = "";
    struct streamed s = { 0 };
    request_in(q, &r, headers);
    r.part = take_part;
    const wk_status status = fetch_start(net, &r, end_stream, &s, &(struct wk_err){ text, sizeof text });
    (void)pthread_mutex_lock(&lock);
    while (!status && !s.over) (void)pthread_cond_wait(&stream_over, &lock);
    (void)pthread_mutex_unlock(&lock);
    json_t *out = status ? said(status, text) : said(s.failure[0] ? WK_IO : WK_OK, s.failure);
    (void)json_object_set_new(out, "code", json_integer(s.status));
    (void)json_object_set_new(out, "parts", json_integer((json_int_t)s.parts));
    (void)json_object_set_new(out, "bytes", json_integer((json_int_t)s.n));
    (void)json_object_set_new(out, "whole", json_boolean(s.whole));
    if (s.n < sizeof s.body) (void)json_object_set_new(out, "body", json_stringn(s.body, s.n));
    return out;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static json_t *do_oidc(const json_t *q)
{
    const json_t *list = json_object_get(q, "clients");
    const char *clients[MOST_CLIENTS] = { NULL };
    struct oidc_config c = { .issuer = text_in(q, "issuer"),
                             .audience = text_in(q, "audience"),
                             .ca_file = text_in(q, "ca"),
                             .algs = (uint32_t)whole_in(q, "algs", 0),
                             .typ = text_in(q, "typ"),
                             .clients = clients,
                             .roles_claim = text_in(q, "roles") };
    char text[TEXT] = "";
    for (; c.n_clients < json_array_size(list) && c.n_clients < MOST_CLIENTS; c.n_clients++)
        clients[c.n_clients] = json_string_value(json_array_get(list, c.n_clients));
    oidc_close(issuer);
    issuer = NULL;
    return said(oidc_open(&c, net, &issuer, &(struct wk_err){ text, sizeof text }), text);
}

static json_t *do_ready(const json_t *q)
{
    char text[TEXT] = "";
    const wk_status s = oidc_ready(issuer, (uint32_t)whole_in(q, "ms", 20000), &(struct wk_err){ text, sizeof text });
    return said(s, text);
}

static json_t *do_check(const json_t *q)
{
    const json_t *token = json_object_get(q, "token");
    struct jwt_claims *c = malloc(sizeof *c);
    char text[TEXT] = "";
    enum jwt_result result;
    if (!c) return NULL;
    const wk_status s = oidc_check(issuer, json_string_value(token), json_string_length(token), c, &result,
                                   &(struct wk_err){ text, sizeof text });
    json_t *out = said(s, text), *names = json_array();
    (void)json_object_set_new(out, "result", json_string(jwt_result_name(result)));
    if (!s) {
        for (const char *n = NULL; (n = jwt_next_name(c, n)) != NULL;)
            (void)json_array_append_new(names, json_string(n));
        (void)json_object_set_new(out, "subject", json_string(c->subject));
        (void)json_object_set_new(out, "client", json_string(c->client));
        (void)json_object_set_new(out, "expires", json_integer(c->expires));
        (void)json_object_set_new(out, "scopes", json_integer(c->n_scopes));
        (void)json_object_set(out, "names", names);
    }
    json_decref(names);
    free(c);
    return out;
}

static json_t *do_state(const json_t *q)
{
    struct oidc_state s;
    (void)q;
    oidc_state(issuer, &s);
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:s}", "keys", (json_int_t)s.keys, "age", (json_int_t)s.age_s, "fetched",
                     (json_int_t)s.fetched, "failed", (json_int_t)s.failed, "remembered", (json_int_t)s.remembered,
                     "failure", s.failure);
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static json_t *do_policy(const json_t *q)
{
    const struct opa_config c = { text_in(q, "url"), text_in(q, "path"), text_in(q, "ca") };
    char text[TEXT] = "";
    opa_close(policy);
    policy = NULL;
    return said(opa_open(&c, net, &policy, &(struct wk_err){ text, sizeof text }), text);
}

static json_t *do_ask(const json_t *q)
{
    const json_t *prompt = json_object_get(q, "prompt");
    json_t *parameters = json_deep_copy(json_object_get(q, "parameters")); /* other threads have q, too */
    const struct opa_input input = { .request_id = text_in(q, "request_id"),
                                     .key_id = text_in(q, "key_id"),
                                     .scopes = (uint32_t)whole_in(q, "scopes", 0),
                                     .route = text_in(q, "route"),
                                     .model = text_in(q, "model"),
                                     .parameters = parameters,
                                     .prompt_tokens = whole_in(q, "prompt_tokens", -1),
                                     .prompt_chars = whole_in(q, "prompt_chars", -1),
                                     .max_tokens = whole_in(q, "max_tokens", -1),
                                     .prompt_hmac = text_in(q, "prompt_hmac"),
                                     .prompt = json_is_true(json_object_get(q, "bad_text")) ? "a\xff"
                                                                                              "b"
                                                                                            : json_string_value(prompt),
                                     .prompt_len = json_is_true(json_object_get(q, "bad_text"))
                                                       ? 3
                                                       : json_string_length(prompt) };
    struct opa_decision d;
    const bool allowed = opa_allows(policy, &input, &d);
    json_t *out =
        json_pack("{s:b,s:s,s:s,s:I,s:s,s:O?}", "allowed", allowed, "kind", opa_kind_name(d.kind), "reason", d.reason,
                  "max_tokens", (json_int_t)d.max_tokens, "decision_id", d.decision_id, "obligations", d.obligations);
    opa_decision_free(&d);
    json_decref(parameters);
    return out;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static json_t *do_stop(const json_t *q)
{
    (void)q;
    fetch_stop(net);
    return said(WK_OK, "");
}

static const struct command {
    const char *name;
    json_t *(*run)(const json_t *q);
} commands[] = { { "fetch", do_fetch },   { "stream", do_stream }, { "start", do_start }, { "ended", do_ended },
                 { "oidc", do_oidc },     { "ready", do_ready },   { "check", do_check }, { "state", do_state },
                 { "policy", do_policy }, { "ask", do_ask },       { "stop", do_stop } };

struct job {
    const struct command *command;
    const json_t *q;
    json_t *out;
};

static void *run_job(void *arg)
{
    struct job *j = arg;
    j->out = j->command->run(j->q);
    return NULL;
}

/* In "times" threads: the answers as a list. */
static json_t *run_many(const struct command *c, const json_t *q, size_t times)
{
    static struct job jobs[MOST_TIMES];
    static pthread_t threads[MOST_TIMES];
    json_t *all = json_array();
    size_t n = 0;
    pthread_attr_t small;
    (void)pthread_attr_init(&small);
    (void)pthread_attr_setstacksize(&small, 1 << 20);
    for (; n < times && n < MOST_TIMES; n++) {
        jobs[n] = (struct job){ c, q, NULL };
        if (pthread_create(&threads[n], &small, run_job, &jobs[n]) != 0) break;
    }
    (void)pthread_attr_destroy(&small);
    for (size_t i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
        (void)json_array_append_new(all, jobs[i].out);
    }
    return json_pack("{s:o}", "all", all);
}

static json_t *run(const char *line)
{
    json_t *q = json_loads(line, 0, NULL), *out = NULL;
    const char *name = text_in(q, "do");
    const int64_t times = whole_in(q, "times", 0);
    for (size_t i = 0; name && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) != 0) continue;
        out = times ? run_many(&commands[i], q, (size_t)times) : commands[i].run(q);
    }
    json_decref(q);
    return out;
}

int main(int argc, char **argv)
{
    char text[TEXT] = "", *line = NULL;
    size_t cap = 0;
    log_configure(LOG_NOTHING, LOG_PLAIN);
    if (fetch_open(argc > 1 ? argv[1] : NULL, &net, &(struct wk_err){ text, sizeof text }) != WK_OK) {
        (void)printf("%s\n", text);
        return 1;
    }
    while (getline(&line, &cap, stdin) > 0) {
        json_t *out = run(line);
        char *answer = out ? json_dumps(out, JSON_COMPACT) : NULL;
        (void)printf("%s\n", answer ? answer : "null");
        (void)fflush(stdout);
        free(answer);
        json_decref(out);
    }
    free(line);
    fetch_stop(net);
    oidc_close(issuer);
    opa_close(policy);
    fetch_close(net);
    return 0;
}
