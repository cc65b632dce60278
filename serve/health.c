/* health.c: GET /health (and /v1/health), /livez, /readyz, /healthz, /version and /v1/loads, on both ports.
 *
 * From cached state alone: no device call, no lock that the engine holds, so that they answer at once whatever the
 * device is doing. "healthy" is a statement about the engine's thread too: it reports progress every second, so a hung
 * step shows here and does not hide behind a server that still accepts. */
#include "inside.h"

#include <string.h>

#include "caller.h"
#include "handover.h"
#include "capability/capability.h"
#include "capability/json_text.h"
#include "ops.h"
#include "chat/chat.h"

/* A step that takes longer than this is taken for a hung one: a long prompt's chunk on a
 * slow processor takes seconds. */
static const double stalled_after = 60;

static double seconds_since(uint64_t ns)
{
    const uint64_t now = serve_now_ns();
    return now > ns ? serve_seconds(now - ns) : 0;
}

static void say(struct serve_condition *c, const char *reason, const char *text)
{
    c->reason = reason;
    (void)snprintf(c->text, sizeof c->text, "%s", text);
}

void serve_condition(const struct serve *s, struct serve_condition *out)
{
    const enum serve_state state = serve_state_of(s);
    const struct serve_model *m = atomic_load(&s->model);
    *out = (struct serve_condition){ .healthy = state == SERVE_READY || state == SERVE_DRAINING,
                                     .ready = state == SERVE_READY && !atomic_load(&s->leaving) };
    if (state == SERVE_UNHEALTHY)
        say(out, "unhealthy", s->unhealthy_text);
    else if (state == SERVE_READY && atomic_load(&s->leaving))
        say(out, "draining", "the worker ends soon; work is still taken");
    else if (state == SERVE_DRAINING || state == SERVE_OVER)
        say(out, "draining", "running jobs finish, nothing new is taken");
    else if (state == SERVE_STARTING)
        say(out, "model_not_loaded", "the worker is starting");
    else if (state == SERVE_LOADING)
        say(out, "model_not_loaded", "the model is being loaded");
    else if (state != SERVE_READY || !m)
        say(out, "model_not_loaded", "waiting for a model: POST /worker/commit");
    if (state != SERVE_READY || !m) return;
    struct engine_stats stats;
    engine_stats(m->engine, &stats);
    const bool failing = stats.failures >= ENGINE_FAILING;
    if (!stats.dead && !failing && seconds_since(stats.progress_ns) < stalled_after) {
        if (handover_warm(s)) return;
        out->ready = false;
        say(out, "decode_pool_not_ready",
            "the digest of the weights is computed, which pages of others are compared by");
        return;
    }
    out->healthy = out->ready = false;
    if (stats.dead)
        say(out, "engine_dead", stats.dead_text);
    else if (failing)
        say(out, "engine_failing", stats.failure_text);
    else
        say(out, "engine_stalled", "the device has not finished a step for a minute");
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static void answer(struct serve *s, struct http_request *r, int status, json_t *document)
{
    http_extra(r, "Cache-Control", "no-store");
    serve_answer(s, r, status, document);
}

static void livez(void *user, struct http_request *r) { answer(user, r, 200, json_pack("{s:s}", "status", "alive")); }

static void readyz(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct serve_condition c;
    serve_condition(s, &c);
    const char *why = !c.reason                                        ? NULL
                      : strcmp(c.reason, "model_not_loaded") == 0      ? "no model backend loaded"
                      : strcmp(c.reason, "draining") == 0              ? "draining"
                      : strcmp(c.reason, "decode_pool_not_ready") == 0 ? "decode pool not ready"
                                                                       : "unhealthy";
    if (c.ready)
        answer(s, r, 200, json_pack("{s:s, s:s}", "status", "ready", "role", s->o->role));
    else
        answer(
            s, r, 503,
            json_pack("{s:s, s:s, s:s}", "status", "not_ready", "role", s->o->role, "reason", why ? why : "unhealthy"));
}

static void healthz(void *user, struct http_request *r)
{
    struct serve_condition c;
    serve_condition(user, &c);
    if (c.ready)
        answer(user, r, 200, json_pack("{s:s}", "status", "ok"));
    else
        answer(user, r, 503,
               json_pack("{s:s, s:s}", "status", "degraded", "reason", c.reason ? c.reason : "unhealthy"));
}

/* ---- /health ------------------------------------------------------------------------------------------- */

static json_t *id_or_null(uint32_t id) { return id == TOKEN_NONE ? json_null() : json_integer(id); }

static json_t *end_ids(const struct tokenizer *t)
{
    size_t n = 0;
    const uint32_t *ids = tokenizer_end_ids(t, &n);
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) (void)json_array_append_new(array, json_integer(ids[i]));
    return array;
}

/* Bytes by ggml type, and what the model asks for, from one walk over its pass. */
static void put_file(json_t *o, const struct model *m)
{
    struct tape_capabilities c;
    json_t *types = json_object();
    tape_describe(m->program, &c);
    for (uint32_t i = 0; i < c.n_types; i++) {
        const struct wk_type_cpu *type = plugin_find_type(m->plugins, c.types[i], NULL);
        json_t *name = type ? json_lower(type->name) : NULL;
        if (name) (void)json_object_set_new(types, json_string_value(name), json_integer((json_int_t)c.type_bytes[i]));
        json_decref(name);
    }
    (void)json_object_set_new(o, "tensor_types", types);
    (void)json_object_set_new(o, "capabilities",
                              json_pack("{s:s, s:s, s:s}", "architecture", m->program->architecture, "positional",
                                        c.positional, "attention", c.attention));
}

/* Keys without which the file would have been refused. */
static json_t *accepted_keys(const struct gguf_accepted *a)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < a->n; i++)
        if (a->used >> i & 1) (void)json_array_append_new(array, json_string(a->names[i]));
    return array;
}

/* By the names of their files: folders are nothing to tell whoever has no key. */
static json_t *adapters(const struct model *m)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < m->n_adapters; i++) {
        const char *path = gguf_path(m->adapters[i].file), *slash = strrchr(path, '/'),
                   *name = slash ? slash + 1 : path;
        (void)json_array_append_new(
            array, json_pack("{s:o, s:f}", "file", json_bytes(name, strlen(name)), "scale", m->adapters[i].scale));
    }
    return array;
}

static void put_tokenizer(json_t *o, const struct model *m)
{
    if (!m->tokenizer) return;
    (void)json_object_set_new(o, "tokenizer_kind", json_string(tokenizer_kind(m->tokenizer)));
    (void)json_object_set_new(o, "vocab_size", json_integer(tokenizer_size(m->tokenizer)));
    (void)json_object_set_new(o, "bos_id", id_or_null(tokenizer_bos(m->tokenizer)));
    (void)json_object_set_new(o, "eos_ids", end_ids(m->tokenizer));
}

static void put_queue(json_t *o, const struct serve_model *m, const struct engine_options *e)
{
    struct engine_stats stats;
    engine_stats(m->engine, &stats);
    (void)json_object_set_new(o, "queue",
                              json_pack("{s:I, s:I, s:I, s:I}", "queued", (json_int_t)stats.queued, "running",
                                        (json_int_t)stats.running, "max_queue", (json_int_t)e->max_queue,
                                        "max_sequences", (json_int_t)e->max_sequences));
    (void)json_object_set_new(o, "kv_cache",
                              json_pack("{s:I, s:I, s:I, s:I}", "page_tokens", (json_int_t)KV_PAGE, "pages",
                                        (json_int_t)stats.pages, "pages_used", (json_int_t)stats.pages_used,
                                        "pages_cached", (json_int_t)stats.pages_cached));
}

static void put_model(json_t *o, struct serve *s, const struct serve_model *sm)
{
    const struct model *m = sm->model;
    struct shard_handle handle = { 0 };
    if (m->device->handle) m->device->handle(m->executor, &handle);
    (void)json_object_set_new(o, "model", json_bytes(sm->name, strlen(sm->name)));
    (void)json_object_set_new(o, "resident", json_boolean(m->device->handle && serve_state_of(s) != SERVE_UNHEALTHY));
    (void)json_object_set_new(o, "sealed", json_boolean(handle.sealed));
    (void)json_object_set_new(o, "digest", json_string(serve_digest_text(sm)));
    (void)json_object_set_new(o, "quant_kind", json_string(sm->quant_kind));
    (void)json_object_set_new(o, "plugin", json_string(sm->plugin));
    (void)json_object_set_new(o, "fingerprint", json_string(sm->fingerprint));
    (void)json_object_set_new(o, "vram_bytes_used", json_integer((json_int_t)handle.vram_bytes));
    (void)json_object_set_new(o, "context_length", json_integer((json_int_t)capabilities_context(m->program)));
    (void)json_object_set_new(o, "context", json_integer((json_int_t)m->dev.context));
    (void)json_object_set_new(o, "chat", sm->chat ? json_string(chat_name(sm->chat)) : json_null());
    (void)json_object_set_new(o, "chat_problem", sm->chat ? json_null() : json_bytes(sm->no_chat, strlen(sm->no_chat)));
    (void)json_object_set_new(o, "accepted_keys", accepted_keys(&m->accepted));
    (void)json_object_set_new(o, "adapters", adapters(m));
    put_tokenizer(o, m);
    put_file(o, m);
    put_queue(o, sm, &s->o->engine);
}

static void put_device(json_t *o, struct serve *s)
{
    struct device_memory memory;
    const bool gpu = s->device && s->device->handle;
    (void)json_object_set_new(o, "device", json_string(s->device ? s->device->name : "unknown"));
    (void)json_object_set_new(o, "device_text", json_string(s->device_text ? s->device_text : ""));
    (void)json_object_set_new(o, "vram_only",
                              json_boolean(gpu && !s->handover)); /* pages are staged in the host's memory */
    (void)json_object_set_new(o, "sm", gpu ? json_integer(s->info.major * 10 + s->info.minor) : json_null());
    (void)json_object_set_new(o, "cuda_runtime_version",
                              gpu ? json_sprintf("%u.%u", s->info.runtime / 1000, s->info.runtime % 1000 / 10)
                                  : json_null());
    (void)json_object_set_new(o, "flash_attention",
                              json_pack("{s:b, s:b, s:I}", "enabled", gpu && s->o->flash_attention, "requested",
                                        s->o->flash_attention, "tile_size", (json_int_t)s->o->flash_tile));
    if (!serve_memory(s, &memory)) return;
    (void)json_object_set_new(o, "device_memory",
                              json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)memory.total, "free",
                                        (json_int_t)memory.free, "taken", (json_int_t)memory.taken, "overhead",
                                        (json_int_t)memory.overhead));
}

static void health(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    struct serve_condition c;
    serve_condition(s, &c);
    json_t *o = json_pack("{s:s, s:s, s:s?, s:s?, s:s, s:s, s:s, s:f}", "status", c.healthy ? "healthy" : "unhealthy",
                          "state", serve_state_name(serve_state_of(s)), "reason", c.reason, "detail",
                          c.reason ? c.text : NULL, "worker_id", s->o->worker_id, "role", s->o->role, "version",
                          WORKER_VERSION, "uptime_seconds", seconds_since(s->started_ns));
    if (o && serve_state_of(s) == SERVE_UNHEALTHY) (void)json_object_set_new(o, "code", json_string(s->unhealthy_code));
    /* whom it is not told who asks: whether it works, and no more */
    const bool known = caller_has(s, r, SCOPE_INFERENCE | SCOPE_METRICS | SCOPE_ADMIN_READ);
    if (o && known) put_device(o, s);
    if (o && known && m) put_model(o, s, m);
    answer(s, r, c.healthy ? 200 : 503, o);
}

/* ---- /version, /v1/loads ------------------------------------------------------------------------------- */

static void version(void *user, struct http_request *r)
{
    serve_answer(user, r, 200, json_pack("{s:s}", "version", WORKER_VERSION));
}

/* What SGLang's router reads of each worker: requests, and tokens of the KV cache. */
static json_t *load_of(const struct serve_model *m, const struct engine_options *e)
{
    struct engine_stats stats;
    engine_stats(m->engine, &stats);
    const json_int_t most = (json_int_t)stats.pages * KV_PAGE;
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "dp_rank", 0, "num_running_reqs",
                     (json_int_t)stats.running, "num_waiting_reqs", (json_int_t)stats.queued, "num_total_reqs",
                     (json_int_t)stats.running + stats.queued, "num_used_tokens",
                     (json_int_t)(stats.usage * (double)most), "max_total_num_tokens", most, "token_usage", stats.usage,
                     "max_running_requests", (json_int_t)e->max_sequences);
}

static void loads(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *list = json_array(), *one = m ? load_of(m, &s->o->engine) : NULL;
    json_t *aggregate =
        json_pack("{s:O?, s:O?, s:O?, s:O?}", "total_running_reqs", json_object_get(one, "num_running_reqs"),
                  "total_waiting_reqs", json_object_get(one, "num_waiting_reqs"), "total_reqs",
                  json_object_get(one, "num_total_reqs"), "avg_token_usage", json_object_get(one, "token_usage"));
    if (one) (void)json_array_append_new(list, one);
    serve_answer(s, r, 200,
                 json_pack("{s:I, s:s, s:i, s:o, s:o}", "timestamp", (json_int_t)time(NULL), "version", WORKER_VERSION,
                           "dp_rank_count", one ? 1 : 0, "loads", list, "aggregate", aggregate));
}

const struct http_route serve_health_routes[] = {
    { "GET", "/health", health, false },   { "GET", "/v1/health", health, false },
    { "GET", "/version", version, false }, { "GET", "/v1/loads", loads, false },
    { "GET", "/livez", livez, false },     { "GET", "/readyz", readyz, false },
    { "GET", "/healthz", healthz, false },
};
const uint32_t serve_n_health_routes = sizeof serve_health_routes / sizeof *serve_health_routes;
