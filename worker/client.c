/* client.c: see client.h. */
#include "client.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "errors.h"
#include "event_stream.h"
#include "gate.h"
#include "setup.h"

enum {
    KEY_MOST = 16384,
    ANSWER_MOST = 16 << 20,
    TIMEOUT_MS = 30000,
    SILENCE_MS = 120000, /* of a stream, in which a worker says something every second */
    LOOK_MS = 50,        /* how often Ctrl-C is looked for */
    URL_BYTES = 4096,
    AUTHORIZATION = KEY_MOST + 32
};

struct client {
    struct fetch *fetch;               /* NULL: not started yet, or a stream was left */
    const char *url, *ca;              /* the options' */
    size_t url_len;                    /* without slashes at its end */
    char authorization[AUTHORIZATION]; /* "": no key */
};

/* ---- a worker, or a model in this process -------------------------------------------------------------- */

/* What only a model in this process has, and what only a worker elsewhere. */
static const enum option_id of_models[] = { OPT_MODEL,        OPT_CHAT_TEMPLATE, OPT_TEMPLATE_DATE, OPT_TOKENIZER,
                                            OPT_ACCEPT_KEY,   OPT_DEVICE,        OPT_GPU_DEVICE,    OPT_FLASH_ATTENTION,
                                            OPT_FLASH_TILE,   OPT_DIGEST,        OPT_UPLOAD_CHUNK,  OPT_THREADS,
                                            OPT_ISA,          OPT_EXACT,         OPT_CONTEXT,       OPT_AUDIT_KEY,
                                            OPT_PLAIN_SHA256, OPT_PLUGIN_DIR,    OPT_PREFER,        OPT_PLUGIN_OPTION,
                                            OPT_PLUGIN_DIGEST },
                            of_workers[] = { OPT_API_KEY, OPT_API_KEY_FILE, OPT_CA };

static int refuse_flags(const struct options *o, const enum option_id *list, size_t n, const char *why)
{
    for (size_t i = 0; i < n; i++)
        if (o->value[list[i]].flag)
            return fail_usage(command_table[o->command].name, "--%s %s", option_table[list[i]].name, why);
    return EXIT_DONE;
}

int client_wanted(const struct options *o, bool *out)
{
    const struct option_value *url = &o->value[OPT_SERVED_URL];
    *out = url->text && (url->flag || !o->value[OPT_MODEL].flag);
    return *out
               ? refuse_flags(o, of_models, sizeof of_models / sizeof *of_models,
                              "is of a model in this process, and --url names a worker elsewhere")
               : refuse_flags(o, of_workers, sizeof of_workers / sizeof *of_workers, "is of --url, which is not given");
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static int read_key(const struct options *o, struct client *c)
{
    static const char scheme[] = "Authorization: Bearer ";
    const size_t lead = sizeof scheme - 1;
    size_t n;
    const int result = secret_option(o, OPT_API_KEY, OPT_API_KEY_FILE, KEY_MOST, c->authorization + lead, &n);
    if (result || !n)
        c->authorization[0] = '\0';
    else
        memcpy(c->authorization, scheme, lead);
    return result;
}

int client_open(const struct options *o, struct client **out)
{
    const char *command = command_table[o->command].name, *either = option_text(o, OPT_SERVED_URL);
    struct client *c = *out = calloc(1, sizeof *c);
    if (!c) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for a request");
    const struct option_value *given = &o->value[either ? OPT_SERVED_URL : OPT_URL];
    const char *where = given->flag ? "--url" : given->filed ? "url" : "WORKER_URL";
    c->url = either ? either : option_text(o, OPT_URL);
    c->ca = option_text(o, OPT_CA);
    if (strncmp(c->url, "http://", 7) != 0 && strncmp(c->url, "https://", 8) != 0)
        return fail_usage(command, "%s: expected http://HOST:PORT or https://HOST:PORT, got \"%.80s\"", where, c->url);
    c->url_len = strlen(c->url);
    while (c->url[c->url_len - 1] == '/') c->url_len--;
    if (strncmp(c->url + c->url_len - 3, "/v1", 3) == 0) /* OpenAI's clients want it there */
        return fail_usage(command, "%s: expected the worker's own address, without /v1, got \"%.80s\"", where, c->url);
    return read_key(o, c);
}

void client_close(struct client *c)
{
    if (!c) return;
    fetch_close(c->fetch);
    OPENSSL_cleanse(c->authorization, sizeof c->authorization);
    free(c);
}

const char *client_url(const struct client *c) { return c->url; }

/* ---- what is sent -------------------------------------------------------------------------------------- */

struct asked {
    struct fetch_request request;
    const char *headers[1];
    char url[URL_BYTES], *body;
};

static int make_request(struct client *c, const char *method, const char *path, const json_t *body, struct asked *out)
{
    ERROR_TEXT(err);
    if (!c->fetch && fetch_open(NULL, &c->fetch, &err)) return fail(CODE_INTERNAL, "%s", err_text);
    char *bytes = body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (body && !bytes) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for a request");
    const int n = snprintf(out->url, sizeof out->url, "%.*s%s", (int)c->url_len, c->url, path);
    if (n < 0 || (size_t)n >= sizeof out->url) {
        free(bytes);
        return fail(CODE_INVALID_REQUEST, "%.80s...: the address is longer than %d bytes", out->url, URL_BYTES - 1);
    }
    out->body = bytes;
    out->headers[0] = c->authorization;
    out->request = (struct fetch_request){ .method = method,
                                           .url = out->url,
                                           .content_type = bytes ? "application/json" : NULL,
                                           .headers = out->headers,
                                           .n_headers = c->authorization[0] ? 1 : 0,
                                           .body = bytes,
                                           .body_len = bytes ? strlen(bytes) : 0,
                                           .ca_file = c->ca,
                                           .timeout_ms = TIMEOUT_MS,
                                           .most_bytes = ANSWER_MOST };
    return EXIT_DONE;
}

bool client_error(const json_t *document, const struct wk_err *err)
{
    const json_t *inner = json_object_get(document, "error"), *of = json_is_object(inner) ? inner : document;
    const char *code = json_string_value(json_object_get(of, "code")),
               *text = json_string_value(json_object_get(of, "message"));
    if (!text) return false;
    (void)wk_fail(err, WK_INVALID, "%s%s%s", code ? code : "", code ? ": " : "", text);
    return true;
}

/* The worker's refusal, as it says it; how to show a key is another thing here than in HTTP. */
static int tell_refusal(const struct client *c, uint32_t status, const char *body, size_t n)
{
    ERROR_TEXT(err);
    if (!c->authorization[0] && (status == 401 || status == 429))
        return fail(CODE_INVALID_REQUEST,
                    "the worker asks for a key: give it by WORKER_API_KEY or --api-key-file FILE");
    json_t *document = json_loadb(body, n, 0, NULL);
    const int result = client_error(document, &err)
                           ? fail(CODE_INVALID_REQUEST, "the worker answers %u %s", status, err_text)
                           : fail(CODE_INVALID_REQUEST,
                                  "%s answers %u, and not as a worker does: is this a worker? --url or WORKER_URL "
                                  "names it",
                                  c->url, status);
    json_decref(document);
    return result;
}

/* No answer, and what may help; the text begins with the address. */
static int tell_silence(const struct client *c, const char *text)
{
    const bool nobody = strstr(text, "Failed to connect");
    const char *hint = nobody ? "; worker serve starts a worker, --url or WORKER_URL names one that runs elsewhere"
                       : strstr(text, "certificate problem") && !c->ca ? "; --ca FILE names a CA of your own"
                       : strstr(text, "wrong version number") ? "; a worker without TLS is at http://, not at https://"
                       : strstr(text, "resolve host")         ? "; --url or WORKER_URL names the worker"
                                                              : "";
    return fail(nobody ? CODE_NOT_READY : CODE_INVALID_REQUEST, "%s%s", text, hint);
}

int client_ask(struct client *c, const char *method, const char *path, const json_t *body, uint32_t also,
               struct fetch_answer *out)
{
    struct asked asked;
    ERROR_TEXT(err);
    *out = (struct fetch_answer){ 0 };
    int result = make_request(c, method, path, body, &asked);
    if (result) return result;
    if (fetch_do(c->fetch, &asked.request, out, &err))
        result = tell_silence(c, err_text);
    else if (out->status / 100 != 2 && out->status != also)
        result = tell_refusal(c, out->status, out->body, out->body_len);
    free(asked.body);
    if (result) fetch_answer_free(out);
    return result;
}

int client_object(struct client *c, const char *method, const char *path, const json_t *body, uint32_t also,
                  uint32_t *status, json_t **out)
{
    struct fetch_answer answer;
    *out = NULL;
    const int result = client_ask(c, method, path, body, also, &answer);
    if (result) return result;
    if (status) *status = answer.status;
    *out = json_loadb(answer.body, answer.body_len, 0, NULL);
    OPENSSL_cleanse(answer.body, answer.body_len);
    fetch_answer_free(&answer);
    if (json_is_object(*out)) return EXIT_DONE;
    json_decref(*out);
    *out = NULL;
    return fail(CODE_INVALID_REQUEST, "%s: the answer is no JSON object: is this a worker?", c->url);
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

/* What fetch's thread hands to the one that waits. */
struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_text came; /* not looked at yet */
    uint32_t status;       /* 0: not known yet */
    bool over, failed;
    char failure[1024];
};

static void take_part(void *arg, uint32_t status, const char *bytes, size_t n)
{
    struct waiting *w = arg;
    (void)pthread_mutex_lock(&w->lock);
    w->status = status;
    http_text_add(&w->came, bytes, n);
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

static void end_stream(void *arg, const struct fetch_answer *answer, const char *failure)
{
    struct waiting *w = arg;
    (void)pthread_mutex_lock(&w->lock);
    if (answer) w->status = answer->status;
    w->failed = failure != NULL;
    if (failure) (void)snprintf(w->failure, sizeof w->failure, "%s", failure);
    w->over = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

/* Waits for more, the end, or LOOK_MS. What came is *into's; true: there is no more after it. */
static bool wait_for_part(struct waiting *w, struct http_text *into)
{
    const struct timespec until = clock_in(CLOCK_MONOTONIC, LOOK_MS);
    (void)pthread_mutex_lock(&w->lock);
    if (!w->came.n && !w->over) (void)pthread_cond_timedwait(&w->changed, &w->lock, &until);
    const bool over = w->over;
    *into = w->came;
    w->came = (struct http_text){ 0 };
    (void)pthread_mutex_unlock(&w->lock);
    return over;
}

/* Follows the stream; what is left of it after Ctrl-C is nobody's. */
static int follow(const struct client *c, struct waiting *w, client_event event, void *user)
{
    struct event_stream events = { 0 };
    struct http_text refused = { 0 };
    bool more = true, over = false, lost = false;
    while (more && !over && !interrupted()) {
        struct http_text part;
        over = wait_for_part(w, &part);
        lost = lost || part.failed;
        if (part.n && w->status / 100 == 2)
            more = event_stream_push(&events, part.data, part.n, event, user);
        else if (part.n)
            http_text_add(&refused, part.data, part.n);
        http_text_free(&part);
    }
    int result = EXIT_DONE;
    if (lost || events.failed || refused.failed)
        result = fail(CODE_INSUFFICIENT_MEMORY, "no memory for the answer, or an event of it is too long");
    else if (over && more && w->failed)
        result = tell_silence(c, w->failure);
    else if (over && w->status / 100 != 2)
        result = tell_refusal(c, w->status, refused.data, refused.n);
    event_stream_free(&events);
    http_text_free(&refused);
    return result;
}

/* A request that nobody waits for any more ends with the process that makes it. After it nobody touches w. */
static void leave(struct client *c, struct waiting *w)
{
    (void)pthread_mutex_lock(&w->lock);
    const bool over = w->over;
    (void)pthread_mutex_unlock(&w->lock);
    if (over) return;
    fetch_close(c->fetch);
    c->fetch = NULL;
}

int client_stream(struct client *c, const char *path, const json_t *body, client_event event, void *user)
{
    struct waiting w = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct asked asked;
    ERROR_TEXT(err);
    if (!cond_init_monotonic(&w.changed)) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for a request");
    int result = make_request(c, "POST", path, body, &asked);
    if (!result) {
        asked.request.part = take_part;
        asked.request.timeout_ms = SILENCE_MS;
        if (fetch_start(c->fetch, &asked.request, end_stream, &w, &err))
            result = fail(CODE_INVALID_REQUEST, "%s", err_text);
        else
            result = follow(c, &w, event, user);
        leave(c, &w);
        free(asked.body);
    }
    http_text_free(&w.came);
    (void)pthread_cond_destroy(&w.changed);
    return result;
}
