/* serve.c: the main thread: binds, starts the loader, watches over it all, and ends it: by a signal, by /shutdown, by
 * the loss of the device. */
#include "inside.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "body.h"
#include "callback.h"
#include "caller.h"
#include "handover.h"
#include "identity.h"
#include "jobs.h"
#include "kv_events.h"
#include "log/log.h"
#include "log_names.h"
#include "ops.h"
#include "scopes.h"
#include "signals.h"
#include "trace.h"

enum {
    TURN_MS = 100, /* the main thread looks around at least so often */
    DRAIN_TURN_MS = 10,
    LEAVE_MS = 2000,  /* after the cancel, or a failed start: until everything is closed; then the process just ends */
    READERS_MS = 500, /* of these, for clients that do not read: then their connections are closed, and all that is to
                       * be written down is */
    LOST_MS = 1000,   /* after the loss of the device: for streams to say so */
    RESERVE = 32,
    ADMIN_THREADS = 4,
    ADMIN_LONG = 4,
    HEADER_MS = 5000,
    BODY_MS = 10000,
    WRITE_MS = 10000,
    EXIT_OK = 0,
    EXIT_FAIL = 1,
    EXIT_LOST = 70,
};
static const uint64_t MEMORY = UINT64_C(1) << 30; /* of a port's requests: 500 prompts of 128k tokens, in text */

/* What the main thread holds beside struct serve. */
struct supervisor {
    struct serve *s;
    struct load load; /* of the model that the process was started with */
    bool load_started, ready_told;
    struct watch *watch;
    struct http_route *routes, *admin_routes;
    uint32_t n_routes, n_admin_routes;
    uint64_t gate_ns;     /* when the gate is to be looked after */
    uint64_t handover_ns; /* ... hand-overs are */
    char full[96];        /* what a 429 of the main port says */
    struct http_tls *tls; /* of both ports; NULL: plain */
};

const char *serve_state_name(enum serve_state state)
{
    static const char *const names[] = { "starting", "waiting", "loading", "ready", "draining", "unhealthy", "over" };
    return names[state];
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static struct http_failure failure_of(const struct refusal *why)
{
    const struct serve_code_def *def = &serve_codes[why->code];
    struct http_failure f = { .status = def->status,
                              .code = def->name,
                              .message = why->text,
                              .retriable = def->retriable,
                              .retry_after_s = why->retry_after_s,
                              .job_id = why->job_id,
                              .field = why->field };
    _Static_assert((int)REFUSAL_MEMBERS <= (int)HTTP_MEMBERS_MAX, "a refusal has no more members than its answer");
    for (size_t i = 0; i < REFUSAL_MEMBERS; i++)
        f.more[i] = (struct http_member){ why->more[i].name, why->more[i].value };
    return f;
}

void serve_put_failure(struct http_text *out, const struct http_request *r, const struct refusal *why)
{
    const struct http_failure f = failure_of(why);
    http_text_failure(out, r, &f);
}

void serve_fail(struct http_request *r, const struct refusal *why)
{
    const struct http_failure f = failure_of(why);
    http_error(r, &f);
}

/* The id of a job that is refused; one that was looked for and is not there is a caller's word like any other. */
static const char *shown_id(const struct http_request *r, const struct refusal *why, char out[LOG_WORD])
{
    if (!why->job_id[0]) return NULL;
    return strcmp(http_path(r), serve_log_path(http_path(r), out)) == 0 ? log_id(why->job_id, out)
                                                                        : log_hidden(why->job_id, out);
}

void serve_refuse(struct serve *s, struct http_request *r, const struct refusal *why)
{
    const struct serve_code_def *def = &serve_codes[why->code];
    atomic_fetch_add(&s->refused[why->code], 1);
    serve_caller(r)->code = def->name;
    char path[LOG_WORD], field[LOG_WORD], id[LOG_WORD];
    LOG(LOG_INFO, "refused", NULL, log_s("worker_id", s->o->worker_id),
        log_s("path", serve_log_path(http_path(r), path)), log_s("code", def->name), log_u("status", def->status),
        log_s("field", serve_log_field(why->field, field)), log_s("job_id", shown_id(r, why, id)),
        log_s("request_id", http_id(r)), log_s("traceparent", http_trace(r)));
    serve_fail(r, why);
}

bool serve_reserve_tree(struct http_request *r, const char *bytes, size_t n)
{
    return http_reserve(r, body_memory(bytes, n));
}

bool serve_body(struct http_request *r, size_t most, const char **bytes, size_t *n)
{
    return http_body(r, most, HTTP_JSON, bytes, n) && serve_reserve_tree(r, *bytes, *n);
}

void serve_answer(struct serve *s, struct http_request *r, int status, json_t *document)
{
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    const size_t n = text ? strlen(text) : 0;
    json_decref(document);
    if (text) text[n] = '\n'; /* in place of the terminator: a line, for who reads it in a terminal */
    if (text)
        http_answer(r, status, "application/json", text, n + 1);
    else
        serve_refuse(s, r, &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for an answer" });
    if (text) explicit_bzero(text, n + 1); /* a new key may be in it */
    free(text);
}

const struct serve_model *serve_ready(const struct serve *s, struct refusal *out)
{
    const enum serve_state state = serve_state_of(s);
    const char *why = state == SERVE_WAITING || (state == SERVE_STARTING && s->o->wait_for_commit)
                          ? "no model yet: POST /worker/commit"
                      : state == SERVE_UNHEALTHY ? s->unhealthy_text
                      : state >= SERVE_DRAINING  ? "the worker is shutting down"
                                                 : "the model is being loaded";
    if (state == SERVE_READY) return atomic_load(&s->model);
    (void)refuse(out, SERVE_NOT_READY, NULL, "%s", why);
    return NULL;
}

const struct serve_model *serve_ready_for(struct serve *s, struct http_request *r)
{
    struct refusal why = { 0 };
    const struct serve_model *m = serve_ready(s, &why);
    if (!m) serve_refuse(s, r, &why);
    return m;
}

struct serve_place serve_place(const struct serve *s)
{
    struct serve_place out;
    const bool six = strchr(s->o->host, ':');
    (void)snprintf(out.text, sizeof out.text, "%s://%s%s%s:%u", s->o->tls_cert ? "https" : "http", six ? "[" : "",
                   s->o->host, six ? "]" : "", http_port(s->main));
    return out;
}

void serve_wake(struct serve *s)
{
    const uint64_t one = 1;
    if (write(s->wake, &one, sizeof one) < 0) return; /* the counter is full: it is awake already */
}

void serve_set_unhealthy(struct serve *s, enum serve_code code, const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    const enum serve_state state = serve_state_of(s);
    if (state != SERVE_UNHEALTHY && state != SERVE_DRAINING && state != SERVE_OVER) {
        (void)snprintf(s->unhealthy_code, sizeof s->unhealthy_code, "%s", serve_codes[code].name);
        (void)snprintf(s->unhealthy_text, sizeof s->unhealthy_text, "%s", text);
        atomic_store(&s->state, SERVE_UNHEALTHY);
    }
    (void)pthread_mutex_unlock(&lock);
}

/* ---- start --------------------------------------------------------------------------------------------- */

static void on_answered(void *user, const char *method, const char *path, int status, uint64_t bytes_in,
                        uint64_t bytes_out, double seconds)
{
    (void)user;
    metrics_answered(status);
    char word[LOG_WORD];
    LOG(LOG_DEBUG, "request", NULL, log_s("method", method), log_s("path", serve_log_path(path, word)),
        log_u("status", status), log_u("bytes_in", bytes_in), log_u("bytes_out", bytes_out), log_f("seconds", seconds));
}

/* What takes as long as its body or its model is large. */
static bool takes_long(const char *path)
{
    static const char *const paths[] = { "/tokenize",
                                         "/detokenize",
                                         "/worker/plan",
                                         "/worker/commit",
                                         "/v1/chat/completions/render",
                                         "/v1/messages/count_tokens",
                                         "/v1/chat/completions/input_tokens",
                                         "/v1/responses/input_tokens",
                                         "/chat/completions/input_tokens",
                                         "/responses/input_tokens",
                                         "/v1/completions/render",
                                         "/apply-template" };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(path, paths[i]) == 0) return true;
    return false;
}

void serve_parts(struct serve_part out[SERVE_PARTS])
{
    const struct serve_part all[SERVE_PARTS] = {
        { serve_execute_routes, serve_n_execute_routes },
        { serve_openai_routes, serve_n_openai_routes },
        { serve_control_routes, serve_n_control_routes },
        { serve_health_routes, serve_n_health_routes },
        { serve_metrics_routes, serve_n_metrics_routes },
        { serve_text_routes, serve_n_text_routes },
        { serve_responses_routes, serve_n_responses_routes },
        { serve_render_routes, serve_n_render_routes },
        { serve_page_routes, serve_n_page_routes },
        { serve_admin_routes, serve_n_admin_routes },
        { serve_messages_routes, serve_n_messages_routes },
        { serve_llama_routes, serve_n_llama_routes },
        { serve_ollama_routes, serve_n_ollama_routes },
        { serve_ollama_facts_routes, serve_n_ollama_facts_routes },
        { serve_handover_routes, serve_n_handover_routes },
        { serve_router_routes, serve_n_router_routes },
        { serve_embed_routes, serve_n_embed_routes },
    };
    memcpy(out, all, sizeof all);
}

/* Default deny: what nobody gave a scope is not served. */
static bool refuse_route(const struct http_route *route, const struct wk_err *err)
{
    return wk_fail(err, WK_INTERNAL, "%s %s stands in no row of the scope table", route->method, route->path) == WK_OK;
}

/* What holds a thread for as long as somebody looks on, or pages travel. */
static bool is_held(const char *path)
{
    return strcmp(path, "/worker/live") == 0 || strcmp(path, "/worker/handover") == 0;
}

/* The admin port has all but jobs, live figures and hand-overs, and few threads. What takes long shares the threads of
 * streams, or some of the admin port's, so that the others are there for probes. */
static bool gather_routes(struct supervisor *v, const struct wk_err *err)
{
    struct serve_part part[SERVE_PARTS];
    serve_parts(part);
    uint32_t n = 0;
    for (uint32_t i = 0; i < SERVE_PARTS; i++) n += part[i].n;
    v->routes = calloc(n, sizeof *v->routes);
    v->admin_routes = calloc(n, sizeof *v->admin_routes);
    if (!v->routes || !v->admin_routes) return wk_fail(err, WK_NO_MEMORY, "no memory for the routes") == WK_OK;
    for (uint32_t i = 0; i < SERVE_PARTS; i++) {
        for (uint32_t k = 0; k < part[i].n; k++) {
            struct http_route route = part[i].routes[k];
            const bool job = route.stream;
            route.stream = job || takes_long(route.path);
            if (!serve_scope_of(&route)) return refuse_route(&route, err);
            v->routes[v->n_routes++] = route;
            if (!job && !is_held(route.path)) v->admin_routes[v->n_admin_routes++] = route;
        }
    }
    return true;
}

static void on_odd_tls(void *user, const char *text)
{
    const struct serve *s = user;
    LOG(LOG_WARN, "tls_odd", text, log_s("worker_id", s->o->worker_id));
}

static bool open_tls(struct supervisor *v, struct serve_failure *why)
{
    const struct serve_options *o = v->s->o;
    const struct wk_err err = { why->text, sizeof why->text };
    const struct http_tls_files files = {
        .cert = o->tls_cert, .key = o->tls_key, .client_ca = o->tls_client_ca, .warn = on_odd_tls, .user = v->s
    };
    (void)snprintf(why->code, sizeof why->code, "TLS_FAILED");
    return !o->tls_cert || http_tls_open(&files, &v->tls, &err) == WK_OK;
}

static bool open_traces(struct supervisor *v, struct serve_failure *why)
{
    (void)snprintf(why->code, sizeof why->code, "INVALID_REQUEST");
    return !trace_open(v->s, &(struct wk_err){ why->text, sizeof why->text });
}

static bool open_handover(struct supervisor *v, struct serve_failure *why)
{
    const struct serve_handover *o = &v->s->o->handover;
    (void)snprintf(why->code, sizeof why->code, "INTERNAL");
    return (!o->leases && !o->pulls) ||
           !handover_open(o, &v->s->handover, &(struct wk_err){ why->text, sizeof why->text });
}

/* The files of TLS as they are now, for connections to come. */
static void reload_tls(struct supervisor *v)
{
    char text[1024] = "", expires[HTTP_TLS_TIME];
    const struct wk_err err = { text, sizeof text };
    const char *id = v->s->o->worker_id;
    if (http_tls_reload(v->tls, &err)) {
        LOG(LOG_ERROR, "error", text, log_s("code", "TLS_FAILED"), log_s("worker_id", id));
        return;
    }
    http_tls_expires(v->tls, expires);
    LOG(LOG_INFO, "tls_reloaded", NULL, log_s("worker_id", id), log_s("expires", expires));
}

/* SIGHUP: certificates were renewed, or the audit log's file was moved away. */
static void reload(struct supervisor *v)
{
    char text[1024] = "";
    if (v->tls) reload_tls(v);
    if (v->s->gate && gate_reopen(v->s->gate, &(struct wk_err){ text, sizeof text }))
        LOG(LOG_ERROR, "error", text, log_s("code", "AUDIT_FAILED"), log_s("worker_id", v->s->o->worker_id));
}

static bool bind_ports(struct supervisor *v, struct serve_failure *why)
{
    struct serve *s = v->s;
    const struct serve_options *o = s->o;
    if (!open_tls(v, why) || !open_traces(v, why) || !open_handover(v, why)) return false;
    (void)snprintf(v->full, sizeof v->full, "%u requests are under way, as many as --max-streams allows",
                   o->max_streams);
    struct http_options http = { .host = o->host,
                                 .port = o->port,
                                 .max_streams = o->max_streams,
                                 .reserve = RESERVE + 2 * OPS_LIVE_MOST + /* half may wait for bodies */
                                            (o->handover.leases ? HANDOVER_SERVED : 0),
                                 .header_ms = HEADER_MS,
                                 .body_ms = BODY_MS,
                                 .write_ms = WRITE_MS,
                                 .memory = MEMORY,
                                 .origins = o->origins,
                                 .n_origins = o->n_origins,
                                 .hosts = o->hosts,
                                 .n_hosts = o->n_hosts,
                                 .log = on_answered,
                                 .admit = s->gate || s->otlp ? caller_admit : NULL,
                                 .answering = s->gate ? caller_answering : NULL,
                                 .over = s->gate || s->otlp ? caller_over : NULL,
                                 .unknown = serve_other_path,
                                 .full = v->full,
                                 .tls = v->tls };
    const struct wk_err err = { why->text, sizeof why->text };
    (void)snprintf(why->code, sizeof why->code, "LISTEN_FAILED");
    if (!gather_routes(v, &err)) return false;
    struct http_server *server;
    if (http_open(&http, v->routes, v->n_routes, s, &server, &err)) return false;
    atomic_store(&s->main, server);
    if (!o->admin_port) return true;
    http.host = o->admin_host;
    http.port = o->admin_port;
    http.max_streams = ADMIN_LONG;
    http.full = NULL;
    http.reserve = ADMIN_THREADS;
    if (http_open(&http, v->admin_routes, v->n_admin_routes, s, &server, &err)) return false;
    atomic_store(&s->admin, server);
    return true;
}

static bool open_kv_events(struct serve *s, struct serve_failure *why)
{
    const struct serve_options *o = s->o;
    const struct kv_events_options kv = { o->kv_events, o->kv_events_replay, o->kv_events_topic };
    if (!o->kv_events) return true;
    (void)snprintf(why->code, sizeof why->code, "LISTEN_FAILED");
    return !kv_events_open(&kv, &s->kv_events, &(struct wk_err){ why->text, sizeof why->text });
}

static bool open_supervisor(struct supervisor *v, const struct serve_options *o, struct serve_failure *why)
{
    struct serve *s = v->s;
    s->o = o;
    s->started_ns = serve_now_ns();
    s->jobs = job_log_open();
    s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    (void)pthread_mutex_init(&s->memory_lock, NULL);
    if (!s->jobs || s->wake < 0) {
        (void)snprintf(why->code, sizeof why->code, "INSUFFICIENT_MEMORY");
        (void)snprintf(why->text, sizeof why->text, "no memory or no descriptor for the service: %s", strerror(errno));
        return false;
    }
    return open_kv_events(s, why) && bind_ports(v, why);
}

/* ---- the main thread's turns --------------------------------------------------------------------------- */

static void tend_gate(struct supervisor *v)
{
    const uint64_t now = serve_now_ns();
    if (!v->s->gate || now < v->gate_ns) return;
    v->gate_ns = now + 1000000000u;
    gate_tick(v->s->gate);
}

static void tend_handover(struct supervisor *v)
{
    const uint64_t now = serve_now_ns();
    if (!v->s->handover || now < v->handover_ns) return;
    v->handover_ns = now + TURN_MS * UINT64_C(1000000);
    handover_tick(v->s);
}

/* Sleeps until something happens, at most ms. True: the first signal came. */
static bool turn(struct supervisor *v, int ms)
{
    struct pollfd p[3] = { { .fd = signals_fd(v->s->signals), .events = POLLIN },
                           { .fd = v->s->wake, .events = POLLIN },
                           { .fd = signals_reload_fd(v->s->signals), .events = POLLIN } }; /* -1: is never ready */
    uint64_t count;
    notify_turn(v->s);
    tend_gate(v);
    tend_handover(v);
    (void)poll(p, 3, notify_wait(ms));
    if (p[2].revents && read(p[2].fd, &count, sizeof count) == sizeof count) reload(v);
    if (p[1].revents && read(v->s->wake, &count, sizeof count) < 0)
        p[1].revents = 0; /* somebody else's wake: the next turn sees it */
    return p[0].revents && read(p[0].fd, &count, sizeof count) == sizeof count;
}

static bool device_lost(const struct serve *s, char text[256])
{
    const struct serve_model *m = atomic_load(&s->model);
    struct engine_stats e;
    if (m) engine_stats(m->engine, &e);
    const bool engine_dead = m && e.dead;
    if (!engine_dead && !(s->device->dead && s->device->dead())) return false;
    (void)snprintf(text, 256, "%s", engine_dead && e.dead_text[0] ? e.dead_text : "the device was lost");
    return true;
}

/* The loader is joined as soon as it is done. */
static void end_load(struct supervisor *v)
{
    if (!v->load_started || atomic_load(&v->s->loading)) return;
    load_join(&v->load);
    v->load_started = false;
}

/* Tells the process's supervisor, once. A worker that waits for a commit has started when it waits. */
static void tell_ready(struct supervisor *v)
{
    char text[400];
    const struct serve_model *m = atomic_load(&v->s->model);
    if (v->ready_told || serve_state_of(v->s) != SERVE_READY) return;
    v->ready_told = true;
    (void)snprintf(text, sizeof text, "%s on %s, port %u", m->name, v->s->device_text, http_port(v->s->main));
    if (v->s->o->wait_for_commit)
        notify_status(text);
    else
        notify_ready(text);
}

/* Streams end with CUDA_ERROR, health is 503, and the process ends without asking the device for anything. */
static int end_lost(struct supervisor *v, const char *text)
{
    struct serve *s = v->s;
    const uint64_t until = serve_now_ns() + LOST_MS * 1000000ull;
    serve_set_unhealthy(s, SERVE_CUDA_ERROR, text);
    while ((atomic_load(&s->streams) || atomic_load(&s->loading)) && serve_now_ns() < until)
        (void)turn(v, DRAIN_TURN_MS);
    end_load(v);
    LOG(LOG_ERROR, "error", text, log_s("code", "CUDA_ERROR"), log_u("device_code", 7),
        log_s("worker_id", s->o->worker_id), log_u("gpu_device", s->info.index));
    return EXIT_LOST;
}

static bool is_idle(const struct serve *s)
{
    const struct serve_model *m = atomic_load(&s->model);
    return !atomic_load(&s->streams) && !atomic_load(&s->loading) && (!m || engine_idle(m->engine));
}

static void cancel_all(struct serve *s)
{
    enum { AT_ONCE = 64 };
    const struct serve_model *m = atomic_load(&s->model);
    struct job_view *jobs = m ? calloc(AT_ONCE, sizeof *jobs) : NULL;
    if (!jobs) return;
    const uint32_t n = engine_jobs(m->engine, jobs, AT_ONCE);
    for (uint32_t i = 0; i < n && i < AT_ONCE; i++) (void)engine_cancel(m->engine, NULL, jobs[i].id);
    free(jobs);
}

/* Routers look whether a worker is ready, and send it requests until they do: for a while both are true. False: the
 * device was lost meanwhile. */
static bool be_graceful(struct supervisor *v, char text[256])
{
    struct serve *s = v->s;
    const uint64_t until = serve_now_ns() + s->o->drain_grace_s * 1000000000ull;
    if (!s->o->drain_grace_s || serve_state_of(s) != SERVE_READY) return true;
    atomic_store(&s->leaving, true);
    LOG(LOG_INFO, "leaving", NULL, log_s("worker_id", s->o->worker_id), log_u("seconds", s->o->drain_grace_s),
        log_u("gpu_device", s->info.index));
    while (serve_now_ns() < until) {
        if (device_lost(s, text)) return false;
        (void)turn(v, DRAIN_TURN_MS);
    }
    return true;
}

/* Until everything has ended by itself or was cancelled. What hangs longer than that is ended with the process. */
static int drain(struct supervisor *v, const char *reason)
{
    struct serve *s = v->s;
    char text[256];
    if (!be_graceful(v, text)) return end_lost(v, text);
    const uint64_t cancel_at = serve_now_ns() + s->o->shutdown_timeout_s * 1000000000ull;
    signals_end_at(s->signals, cancel_at + LEAVE_MS * 1000000ull, EXIT_OK);
    atomic_store(&s->state, SERVE_DRAINING); /* before anything else: readiness goes first */
    notify_stopping();
    LOG(LOG_INFO, "shutdown", NULL, log_s("worker_id", s->o->worker_id), log_s("reason", reason),
        log_u("streams", atomic_load(&s->streams)), log_u("gpu_device", s->info.index));
    const uint64_t leave_at = cancel_at + READERS_MS * 1000000ull;
    while (!is_idle(s) && serve_now_ns() < leave_at) {
        const struct serve_model *m = atomic_load(&s->model);
        if (device_lost(s, text)) return end_lost(v, text);
        if (m) engine_drain(m->engine); /* also of a model that was loading when this began */
        if (serve_now_ns() >= cancel_at) cancel_all(s);
        (void)turn(v, DRAIN_TURN_MS);
    }
    return EXIT_OK;
}

/* Until there is a reason to end; *reason NULL: the start failed, or the device was lost: the
 * exit status says which. */
static int supervise(struct supervisor *v, const char **reason)
{
    struct serve *s = v->s;
    char text[256];
    *reason = NULL;
    for (;;) {
        if (turn(v, TURN_MS))
            *reason = "signal";
        else if (atomic_load(&s->stop_asked))
            *reason = "request";
        if (*reason) return EXIT_OK;
        if (device_lost(s, text)) return end_lost(v, text);
        end_load(v);
        tell_ready(v);
        if (atomic_load(&s->load_failed)) return EXIT_FAIL;
    }
}

static void close_supervisor(struct supervisor *v)
{
    struct serve *s = v->s;
    atomic_store(&s->state, SERVE_OVER);
    if (v->load_started) load_join(&v->load);
    watch_stop(v->watch);
    identity_stop(s->identity);
    callback_stop(s->callback);
    http_stop(s->admin); /* both before either is freed: /metrics of one tells the figures of the other */
    http_stop(s->main);
    http_close(s->admin);
    http_close(s->main);
    http_tls_close(v->tls);
    otlp_close(s->otlp);
    kv_events_close(s->kv_events);
    handover_close(s->handover);
    load_close(s);
    job_log_close(s->jobs);
    free(v->routes);
    free(v->admin_routes);
    if (s->wake >= 0) (void)close(s->wake);
    (void)pthread_mutex_destroy(&s->memory_lock);
}

/* The model, or waiting for one. */
static bool begin(struct supervisor *v, struct serve_failure *why)
{
    struct serve *s = v->s;
    LOG(LOG_INFO, "startup", NULL, log_s("worker_id", s->o->worker_id), log_s("host", s->o->host),
        log_u("port", http_port(s->main)), log_u("admin_port", s->admin ? http_port(s->admin) : 0),
        log_s("model_ref", s->o->model_path        ? s->o->model_path
                           : s->o->wait_for_commit ? NULL
                                                   : "embedded model"),
        log_s("device", s->device->name), log_u("gpu_device", s->info.index), log_s("role", s->o->role));
    v->watch = watch_start(s);
    if (!v->watch) {
        (void)snprintf(why->code, sizeof why->code, "INSUFFICIENT_MEMORY");
        (void)snprintf(why->text, sizeof why->text, "no thread to watch the device");
        return false;
    }
    if (s->o->wait_for_commit) {
        atomic_store(&s->state, SERVE_WAITING);
        notify_ready("waits for POST /worker/commit");
        if (s->o->quiet) return true;
        (void)printf("worker: waits for POST %s/worker/commit\n", serve_place(s).text);
        (void)fflush(stdout);
        return true;
    }
    v->load = (struct load){ .s = s, .path = s->o->model_path };
    (void)load_claim(s);
    v->load_started = load_start(&v->load);
    if (!v->load_started) *why = v->load.why;
    return v->load_started;
}

int serve_run(const struct serve_options *o, struct serve *s, struct serve_failure *why)
{
    struct supervisor v = { .s = s };
    const char *reason = NULL;
    int status = EXIT_FAIL;
    notify_open();
    log_never_waits();
    if (open_supervisor(&v, o, why) && begin(&v, why)) {
        status = supervise(&v, &reason);
        if (reason) status = drain(&v, reason);
        if (status == EXIT_LOST) return status;
        if (!reason) *why = s->failure;
    }
    if (!reason) signals_end_at(s->signals, serve_now_ns() + LEAVE_MS * 1000000ull, EXIT_FAIL);
    close_supervisor(&v);
    if (reason)
        LOG(LOG_INFO, "stopped", NULL, log_s("worker_id", o->worker_id),
            log_f("uptime_seconds", (double)(serve_now_ns() - s->started_ns) * 1e-9));
    return status;
}
