/* control.c: what drives a worker from outside: cancel and shutdown, plan and commit, and the list of jobs. */
#include "inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "body.h"
#include "caller.h"
#include "capability/json_text.h"
#include "jobs.h"
#include "log/log.h"
#include "log/words.h"
#include "model_ref.h"
#include "job_request.h"

enum { CONTROL_BODY_MAX = 64 << 10, JOBS_SHOWN = 1024 };

/* The body as an object of these names; false: answered. */
static bool read_control(struct serve *s, struct http_request *r, const char *const *names, size_t n_names,
                         json_t **out)
{
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    *out = NULL;
    if (!serve_body(r, CONTROL_BODY_MAX, &bytes, &n)) return false;
    const struct body_object o = { body_parse(n ? bytes : "{}", n ? n : 2, out, &why) ? *out : NULL, "" };
    struct refusal unnamed;
    const char *id = NULL;
    if (o.object && body_name(&o, "job_id", ENGINE_JOB_ID_MAX, &id, &unnamed) && id) refusal_job(&why, id);
    if (o.object && body_knows(&o, names, n_names, &why)) return true;
    serve_refuse(s, r, &why);
    json_decref(*out);
    return false;
}

/* ---- cancel, shutdown ---------------------------------------------------------------------------------- */

static void on_cancel(void *user, struct http_request *r)
{
    static const char *const names[] = { "job_id" };
    struct serve *s = user;
    struct refusal why = { 0 };
    const char *id = NULL;
    json_t *body;
    if (!read_control(s, r, names, 1, &body)) return;
    const struct body_object o = { body, "" };
    if (!body_required(&o, "job_id", &why) || !body_name(&o, "job_id", ENGINE_JOB_ID_MAX, &id, &why)) {
        serve_refuse(s, r, &why);
    } else {
        const struct serve_model *m = atomic_load(&s->model);
        const bool own = !caller_has(s, r, SCOPE_ADMIN); /* who may see all jobs may not end them */
        const bool found = m && engine_cancel(m->engine, own ? &serve_caller(r)->who.owner : NULL, id);
        char word[LOG_WORD];
        LOG(LOG_INFO, "cancel", NULL, log_s("worker_id", s->o->worker_id), log_s("job_id", log_id(id, word)),
            log_b("found", found));
        serve_answer(s, r, 202, json_pack("{s:s, s:b}", "job_id", id, "found", found));
    }
    json_decref(body);
}

static void on_shutdown(void *user, struct http_request *r)
{
    struct serve *s = user;
    json_t *body;
    if (!read_control(s, r, NULL, 0, &body)) return;
    json_decref(body);
    atomic_store(&s->stop_asked, true);
    serve_answer(s, r, 202, json_pack("{s:s}", "status", "draining"));
    serve_wake(s);
}

/* ---- plan, commit, ready ------------------------------------------------------------------------------- */

static bool resolve(const struct serve *s, const char *field, const char *ref, char path[MODEL_PATH_MAX],
                    struct refusal *why)
{
    char text[512];
    return model_ref_resolve(s->o->model_dir, ref, path, text, sizeof text) ||
           refuse(why, SERVE_INVALID_REQUEST, field, "%s", text);
}

/* Texts name files as the client does: where --model-dir lies is nobody's business. */
static void hide_folder(const struct serve *s, char *text)
{
    const size_t n = s->o->model_dir ? strlen(s->o->model_dir) : 0;
    for (char *at = text; n && (at = strstr(at, s->o->model_dir));)
        memmove(at, at + n + (at[n] == '/'), strlen(at + n + (at[n] == '/')) + 1);
}

/* A reason for each line of text; NULL: none. */
static void add_reasons(json_t *list, const char *text)
{
    for (const char *at = text; at && *at;) {
        const size_t n = strcspn(at, "\n");
        if (n) (void)json_array_append_new(list, json_bytes(at, n));
        at += n + (at[n] == '\n');
    }
}

/* One call of the loader's plan, on a stack of its own: a connection's is small, and a GPU's driver is not modest. */
struct planning {
    struct serve *s;
    const char *path;
    struct model *m;
    uint64_t available;
    struct serve_failure why;
    bool ok;
};

static void *run_plan(void *user)
{
    struct planning *p = user;
    p->ok = p->s->o->loader.plan(p->s->o->loader.user, p->path, &p->m, &p->available, &p->why);
    return NULL;
}

static void plan(struct planning *p)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_plan, p))
        (void)snprintf(p->why.text, sizeof p->why.text, "no thread to plan in");
    else
        (void)pthread_join(thread, NULL);
}

/* Why the plan is none, one by one. */
static json_t *reasons_of(const struct serve *s, bool single, const struct planning *p)
{
    char text[128];
    json_t *list = json_array();
    if (!single)
        add_reasons(list,
                    "shard_layout tensor_parallel with tp_degree above 1: this worker serves a model on one device");
    if (!p->ok) add_reasons(list, p->why.text);
    if (p->ok && p->available && p->m->plan.total > p->available) {
        (void)snprintf(text, sizeof text, "needs %" PRIu64 " bytes of %s, %" PRIu64 " are available", p->m->plan.total,
                       s->device->probe ? "device memory" : "memory", p->available);
        add_reasons(list, text);
    }
    return list;
}

/* What loading `path` would take. bytes: by kind, also on a CPU, where vram_required is 0. */
static json_t *plan_document(struct serve *s, const char *path, bool single)
{
    struct planning p = { .s = s, .path = path };
    const bool gpu = s->device->probe != NULL;
    plan(&p);
    if (!p.ok) hide_folder(s, p.why.text);
    const bool fits = p.ok && (!p.available || p.m->plan.total <= p.available);
    const uint64_t vram = p.ok && gpu ? p.m->plan.total : 0;
    json_t *bytes = json_object(), *shards = json_array();
    for (int k = 0; p.ok && k < MEMORY_KINDS; k++)
        (void)json_object_set_new(bytes, memory_kind_name((enum memory_kind)k),
                                  json_integer((json_int_t)p.m->plan.bytes[k]));
    if (p.ok && single)
        (void)json_array_append_new(shards, json_pack("{s:i, s:I, s:o}", "shard_index", 0, "vram_bytes",
                                                      (json_int_t)vram, "gpu_device",
                                                      gpu ? json_integer((json_int_t)s->info.index) : json_null()));
    json_t *document = json_pack("{s:b, s:I, s:o, s:o, s:s, s:o, s:I, s:I}", "feasible", fits && single,
                                 "vram_required", (json_int_t)vram, "shard_plan", shards, "reasons",
                                 reasons_of(s, single, &p), "device", s->device->name, "bytes", bytes, "total_bytes",
                                 (json_int_t)(p.ok ? p.m->plan.total : 0), "available_bytes", (json_int_t)p.available);
    model_close(p.m);
    return document;
}

static bool read_plan(const struct serve *s, const json_t *body, char path[MODEL_PATH_MAX], int64_t *degree,
                      struct refusal *why)
{
    const struct body_object o = { body, "" };
    const char *ref = NULL, *layout = "single";
    if (!body_required(&o, "model_ref", why) || !body_name(&o, "model_ref", MODEL_PATH_MAX / 2, &ref, why) ||
        !body_name(&o, "shard_layout", 32, &layout, why) || !body_integer(&o, "tp_degree", 1, 1024, degree, why))
        return false;
    if (strcmp(layout, "single") != 0 && strcmp(layout, "tensor_parallel") != 0)
        return body_fail(&o, "shard_layout", why, "\"single\" or \"tensor_parallel\"");
    if (strcmp(layout, "tensor_parallel") == 0 && !body_required(&o, "tp_degree", why)) return false;
    if (strcmp(layout, "single") == 0 && *degree != 1)
        return body_fail(&o, "tp_degree", why, "1 with shard_layout single");
    return resolve(s, "model_ref", ref, path, why);
}

static void on_plan(void *user, struct http_request *r)
{
    static const char *const names[] = { "model_ref", "shard_layout", "tp_degree" };
    struct serve *s = user;
    struct refusal why = { 0 };
    char path[MODEL_PATH_MAX];
    int64_t degree = 1;
    json_t *body;
    if (!read_control(s, r, names, 3, &body)) return;
    if (read_plan(s, body, path, &degree, &why))
        serve_answer(s, r, 200, plan_document(s, path, degree == 1));
    else
        serve_refuse(s, r, &why);
    json_decref(body);
}

struct commit {
    const char *ref, *file, *shard_id, *digest;
    int64_t shard_index;
};

static bool is_digest(const char *text) { return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64; }

static bool read_commit(const json_t *body, struct commit *c, struct refusal *why)
{
    const struct body_object o = { body, "" };
    if (!body_required(&o, "model_ref", why) || !body_name(&o, "model_ref", MODEL_PATH_MAX / 2, &c->ref, why) ||
        !body_name(&o, "model_bytes", MODEL_PATH_MAX / 2, &c->file, why) ||
        !body_name(&o, "shard_id", REQUEST_MAX_HANDLE, &c->shard_id, why) ||
        !body_integer(&o, "shard_index", 0, 0, &c->shard_index, why) || !body_name(&o, "digest", 64, &c->digest, why))
        return false;
    if (c->digest && !is_digest(c->digest)) return body_fail(&o, "digest", why, "64 lower-case hexadecimal digits");
    return true;
}

/* A model that serves is the answer even while its load still ends: the loader says "ready" before it lets the claim
 * go. */
static bool refuse_commit(const struct serve *s, bool claimed, struct refusal *why)
{
    const bool has = atomic_load(&s->model) != NULL;
    return refuse(why, has ? SERVE_ALREADY_COMMITTED : SERVE_NOT_READY, NULL, "%s",
                  has       ? "this worker has its model, and serves no second one: start another worker"
                  : claimed ? "another model is being loaded"
                            : "the worker is shutting down, or unhealthy");
}

/* The answer's document; NULL: refused. */
static json_t *commit(struct serve *s, const struct commit *c, struct refusal *why)
{
    char path[MODEL_PATH_MAX];
    if (!resolve(s, c->file ? "model_bytes" : "model_ref", c->file ? c->file : c->ref, path, why)) return NULL;
    while (serve_state_of(s) == SERVE_STARTING) (void)usleep(1000); /* the first milliseconds: ports are being bound */
    if (!load_claim(s)) return refuse_commit(s, true, why), NULL;
    if (serve_state_of(s) != SERVE_WAITING) { /* decided before the claim was ours */
        atomic_store(&s->loading, false);
        return refuse_commit(s, false, why), NULL;
    }
    /* In a thread of the loader's own, whatever the connection's has for a stack; it goes on if the client leaves. */
    struct load l = { .s = s, .path = path, .ref = c->ref, .digest = c->digest, .shard_id = c->shard_id, .seal = true };
    if (load_start(&l)) load_join(&l);
    const struct serve_model *m = l.ok ? atomic_load(&s->model) : NULL;
    if (!m) {
        hide_folder(s, l.why.text);
        return refuse(why, serve_code_named(l.why.code), NULL, "%s", l.why.text), NULL;
    }
    const bool sealed = m->facts.on_gpu && load_sealed(m);
    json_t *document = json_pack("{s:o, s:b, s:I}", "handle", load_handle(s, m), "sealed", sealed, "total_bytes",
                                 (json_int_t)m->facts.total_bytes);
    if (!document) (void)refuse(why, SERVE_INTERNAL, NULL, "no memory for an answer");
    return document;
}

/* The audit record of a commit, whatever became of it. What it names is shown once a file by that name was loaded;
 * until then it is a caller's text. */
static void record_commit(struct serve *s, struct http_request *r, const struct commit *c, const struct refusal *why,
                          bool ok, uint64_t begun_ns)
{
    char ref[LOG_WORD], file[LOG_WORD], shard[LOG_WORD];
    const struct serve_model *m = ok ? atomic_load(&s->model) : NULL;
    LOG(ok ? LOG_INFO : LOG_WARN, "commit", ok ? NULL : "a commit was refused", log_s("worker_id", s->o->worker_id),
        log_s("request_id", http_id(r)), log_u("gpu_device", s->info.index),
        log_s("outcome", ok ? "committed" : serve_codes[why->code].name),
        log_s("model_ref", m        ? m->path
                           : c->ref ? log_hidden(c->ref, ref)
                                    : NULL),
        log_s("model_bytes", !c->file ? NULL : log_hidden(c->file, file)),
        log_s("shard_id", m ? log_id(m->shard_id, shard) : NULL),
        log_s("digest_demanded", c->digest && is_digest(c->digest) ? c->digest : NULL),
        log_s("digest", m ? serve_digest_text(m) : NULL), log_s("fingerprint", m ? m->fingerprint : NULL),
        log_b("sealed", m && m->facts.on_gpu && load_sealed(m)),
        log_f("seconds", serve_seconds(serve_now_ns() - begun_ns)));
}

static void on_commit(void *user, struct http_request *r)
{
    static const char *const names[] = { "model_ref", "shard_id", "shard_index", "model_bytes", "digest" };
    struct serve *s = user;
    struct refusal why = { 0 };
    struct commit c = { 0 };
    json_t *body;
    if (!read_control(s, r, names, 5, &body)) return;
    const uint64_t begun_ns = serve_now_ns();
    json_t *document = read_commit(body, &c, &why) ? commit(s, &c, &why) : NULL;
    record_commit(s, r, &c, &why, document != NULL, begun_ns);
    serve_caller(r)->kind = AUDIT_COMMIT;
    serve_caller(r)->target = document ? atomic_load(&s->model)->path : NULL;
    if (document)
        serve_answer(s, r, 200, document);
    else
        serve_refuse(s, r, &why);
    json_decref(body);
}

static void on_ready(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *handles = json_array();
    if (m) (void)json_array_append_new(handles, load_handle(s, m));
    serve_answer(s, r, 200,
                 json_pack("{s:b, s:o, s:n}", "ready", m && serve_state_of(s) == SERVE_READY && load_sealed(m),
                           "handles", handles, "nccl_group_id"));
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static json_t *open_job(const struct serve *s, const struct job_view *v)
{
    const struct serve_model *m = atomic_load(&s->model);
    return json_pack("{s:s, s:s, s:o, s:i, s:I, s:I, s:I, s:f}", "job_id", v->id, "state", job_state_name(v->state),
                     "model_ref", m ? json_bytes(m->path, strlen(m->path)) : json_null(), "priority", (int)v->priority,
                     "tokens_in", (json_int_t)v->n_prompt, "prompt_tokens_done", (json_int_t)v->n_done, "tokens_out",
                     (json_int_t)v->n_generated, "seconds", serve_seconds(serve_now_ns() - v->queued_ns));
}

static json_t *past_job(const struct job_record *j)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:I, s:I, s:f}", "job_id", j->id, "state", job_verdict_name(j->verdict),
                     "model_ref", json_bytes(j->model_ref, strlen(j->model_ref)), "end", j->end, "tokens_in",
                     (json_int_t)j->tokens_in, "tokens_out", (json_int_t)j->tokens_out, "seconds", j->seconds);
}

static void on_jobs(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct job_view *open = calloc(JOBS_SHOWN, sizeof *open);
    struct job_record *past = calloc(JOB_LOG_MOST, sizeof *past);
    uint32_t n_past = 0;
    const uint32_t n = open && past ? job_log_all(s->jobs, caller_sees(s, r), open, JOBS_SHOWN, past, &n_past) : 0;
    json_t *list = open && past ? json_array() : NULL;
    for (uint32_t i = 0; i < n; i++) (void)json_array_append_new(list, open_job(s, &open[i]));
    for (uint32_t i = 0; i < n_past; i++) (void)json_array_append_new(list, past_job(&past[i]));
    serve_answer(s, r, 200, json_pack("{s:o}", "jobs", list));
    free(open);
    free(past);
}

static void on_job(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct job_view open;
    struct job_record past;
    struct refusal why = { 0 };
    switch (job_log_find(s->jobs, caller_sees(s, r), http_rest(r), &open, &past)) {
    case JOB_FOUND_OPEN: serve_answer(s, r, 200, open_job(s, &open)); return;
    case JOB_FOUND_PAST: serve_answer(s, r, 200, past_job(&past)); return;
    default:
        (void)refuse(&why, SERVE_NOT_FOUND, NULL,
                     "no job of this id is queued or running, or among the last %d that are over", JOB_LOG_MOST);
        refusal_job(&why, strlen(http_rest(r)) <= ENGINE_JOB_ID_MAX ? http_rest(r) : "");
        serve_refuse(s, r, &why);
    }
}

const struct http_route serve_control_routes[] = {
    { "POST", "/cancel", on_cancel, false },     { "POST", "/shutdown", on_shutdown, false },
    { "POST", "/worker/plan", on_plan, false },  { "POST", "/worker/commit", on_commit, false },
    { "GET", "/worker/ready", on_ready, false }, { "GET", "/worker/jobs", on_jobs, false },
    { "GET", "/worker/jobs/", on_job, false },
};
const uint32_t serve_n_control_routes = sizeof serve_control_routes / sizeof *serve_control_routes;
