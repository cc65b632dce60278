/* load.c: from a path to a service that is ready: the model, its engine, and what handlers read of both. */
#include "inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "callback.h"
#include "capability/capability.h"
#include "capability/json_text.h"
#include "grammars.h"
#include "identity.h"
#include "kv_events.h"
#include "log/log.h"
#include "plugin/plugin.h"
#include "scheduler.h"
#include "token_text.h"
#include "chat/chat.h"

/* ---- what a model is called ---------------------------------------------------------------------------- */

static void name_plugin(const struct serve *s, const struct model *m, char out[64])
{
    const struct plugin_entry *who = NULL;
    (void)plugin_find_arch(s->plugins, m->program->architecture, &who);
    (void)snprintf(out, 64, "%.63s", who ? who->note.id : "?");
}

static void name_shard(const struct serve *s, const struct model *m, const char *given, char out[192])
{
    struct shard_handle h = { .total_shards = 1 };
    if (given) {
        (void)snprintf(out, 192, "%.191s", given);
        return;
    }
    if (m->device->handle) m->device->handle(m->executor, &h);
    if (m->device->handle)
        (void)snprintf(out, 192, "%.80s:gpu%u:%u-of-%u", m->name, h.gpu_device, h.shard_index + 1, h.total_shards);
    else
        (void)snprintf(out, 192, "%.80s:%s:1-of-1", m->name, s->device->name);
}

/* Is `name` that, or that and :latest? */
static bool is_that(const char *name, const char *that)
{
    const size_t n = strlen(that);
    return strncmp(name, that, n) == 0 && (!name[n] || strcmp(name + n, ":latest") == 0);
}

bool serve_is_called(const struct serve_model *m, const char *name)
{
    bool is = is_that(name, m->name);
    for (uint32_t i = 0; i < m->o->n_aliases; i++)
        is = is || strcmp(m->o->aliases[i], "*") == 0 || is_that(name, m->o->aliases[i]);
    return is;
}

bool serve_suits_name(const struct serve_model *m, const char *name, const char *member, struct refusal *why)
{
    return serve_is_called(m, name) ||
           refuse(why, SERVE_MODEL_NOT_FOUND, member,
                  "%s: this worker serves %s, not %.255s: ask for that name, or start it with --model-alias NAME, "
                  "which it then has, too ('*': every name)",
                  member, m->name, name);
}

bool load_sealed(const struct serve_model *m) { return !m->facts.on_gpu || model_facts_handle(&m->facts).sealed; }

json_t *load_handle(const struct serve *s, const struct serve_model *m)
{
    const bool gpu = m->facts.on_gpu;
    const struct shard_handle h = gpu ? model_facts_handle(&m->facts) : (struct shard_handle){ .total_shards = 1 };
    return json_pack("{s:o, s:s, s:o, s:I, s:b, s:b, s:s, s:o, s:I, s:I}", "shard_id",
                     json_bytes(m->shard_id, strlen(m->shard_id)), "device", s->device->name, "gpu_device",
                     gpu ? json_integer((json_int_t)h.gpu_device) : json_null(), "vram_bytes", (json_int_t)h.vram_bytes,
                     "sealed", h.sealed, "write_protected", h.write_protected, "digest",
                     gpu ? h.digest : serve_digest(m), "model_ref", json_bytes(m->path, strlen(m->path)), "shard_index",
                     (json_int_t)h.shard_index, "total_shards", (json_int_t)h.total_shards);
}

/* ---- ready --------------------------------------------------------------------------------------------- */

static json_t *callback_document(const struct serve *s, const struct serve_model *m)
{
    const struct shard_handle h = model_facts_handle(&m->facts);
    const struct serve_place at = serve_place(s);
    char *profile = s->o->loader.profile(s->o->loader.user);
    json_t *ecp = profile ? json_loads(profile, 0, NULL) : NULL;
    free(profile);
    return json_pack("{s:s, s:o, s:s, s:I, s:s, s:o}", "worker_id", s->o->worker_id, "model_ref",
                     json_bytes(m->path, strlen(m->path)), "url", at.text, "vram_bytes_used", (json_int_t)h.vram_bytes,
                     "digest", serve_digest_text(m), "ecp", ecp ? ecp : json_null());
}

static void call_back(struct serve *s, const struct serve_model *m)
{
    char text[256];
    const struct wk_err err = { text, sizeof text };
    if (!s->o->callback_url) return;
    json_t *document = callback_document(s, m);
    const bool everywhere =
        strcmp(s->o->host, "0.0.0.0") == 0 || strcmp(s->o->host, "::") == 0; /* no address at which others reach it */
    wk_status status =
        document ? callback_start(s->o->callback_url, document, everywhere ? http_port(s->main) : 0, &s->callback, &err)
                 : wk_fail(&err, WK_NO_MEMORY, "no memory for the callback");
    if (status) LOG(LOG_ERROR, "error", text, log_s("code", "CALLBACK_FAILED"), log_s("worker_id", s->o->worker_id));
}

/* Whoever was told of a model whose digest was not known is told again. */
static void call_back_again(struct serve *s, const struct serve_model *m)
{
    json_t *document = s->callback ? callback_document(s, m) : NULL;
    if (document) callback_again(s->callback, document);
}

/* How a model is asked that gives rows. */
static void say_rows(const struct serve *s, const struct serve_model *m, const char *at)
{
    (void)printf("try it:\n"
                 "  curl %s '%s/v1/%s' -H 'Content-Type: application/json' -d '%s'\n"
                 "OpenAI's clients: base URL %s/v1, model %s\n"
                 "Ollama's and llama-server's clients: %s\n"
                 "Ctrl-C ends it.\n",
                 s->o->tls_cert ? "-k" : "-s", at, m->facts.ranks ? "rerank" : "embeddings",
                 m->facts.ranks ? "{\"query\": \"rain\", \"documents\": [\"an umbrella\", \"a fork\"]}"
                                : "{\"input\": \"an umbrella\"}",
                 at, m->name, at);
    (void)fflush(stdout);
}

/* For people who started it in a terminal: where it is, what it is, and a line that works as it stands. */
static void say_ready(const struct serve *s, const struct serve_model *m)
{
    const struct model_facts *f = &m->facts;
    const struct shard_handle h = model_facts_handle(f);
    LOG(LOG_INFO, "ready", NULL, log_s("worker_id", s->o->worker_id), log_s("model", m->name),
        log_s("model_ref", m->path), log_s("device", s->device->name), log_u("gpu_device", s->info.index),
        log_s("host", s->o->host), log_u("port", http_port(s->main)), log_f("startup_seconds", s->startup_seconds),
        log_u("bytes", f->total_bytes), log_u("vram_bytes", h.vram_bytes), log_b("sealed", h.sealed),
        log_s("digest", serve_digest_text(m)), log_s("fingerprint", m->fingerprint));
    if (s->o->quiet) return;
    const struct serve_place at = serve_place(s);
    (void)printf("worker: ready at %s\n"
                 "  model    %s, %s, context %u, chat template %s\n"
                 "  plugin   %s\n"
                 "  device   %s\n"
                 "  memory   %" PRIu64 " bytes: weights %" PRIu64 ", KV cache %" PRIu64 "\n",
                 at.text, m->name, m->quant_kind, f->context, m->chat ? chat_name(m->chat) : "none", m->plugin,
                 s->device_text, f->total_bytes, f->bytes[MEMORY_WEIGHTS], f->bytes[MEMORY_KV]);
    for (uint32_t i = 0; i < f->n_adapters; i++)
        (void)printf("  adapter  %s, scale %g\n", gguf_path(f->adapters[i].file), f->adapters[i].scale);
    if (f->on_gpu)
        (void)printf("  digest   %s\n", serve_digest(m)[0]
                                            ? serve_digest(m)
                                            : "not known yet: GET /health has it once the weights are sealed");
    if (f->width) {
        say_rows(s, m, at.text);
        return;
    }
    (void)printf("try it:\n"
                 "  curl %s '%s/execute' -H 'Content-Type: application/json' -d '{\"job_id\": \"first\", "
                 "\"prompt\": \"Write a haiku about GPU computing\"%s, \"max_tokens\": 100}'\n"
                 "a page to chat: %s in a browser\n"
                 "OpenAI's clients: base URL %s/v1, model %s\n"
                 "Anthropic's, Ollama's and llama-server's clients: %s\n"
                 "Ctrl-C ends it.\n",
                 s->o->tls_cert ? "-kN" : "-N" /* a certificate is of a name, this is an address */, at.text,
                 m->chat ? ", \"chat\": true" : "", at.text, at.text, m->name, at.text);
    (void)fflush(stdout);
}

static bool fail(struct serve_failure *why, const char *code, const char *text)
{
    (void)snprintf(why->code, sizeof why->code, "%s", code);
    (void)snprintf(why->text, sizeof why->text, "%s", text);
    return false;
}

/* The engine on an opened model, and the rest of serve_model. */
static bool open_service(const struct load *l, struct serve_model *m, struct serve_failure *why)
{
    struct serve *s = l->s;
    const struct model *model = m->model;
    char text[1024], chat_text[sizeof m->no_chat];
    const struct wk_err err = { text, sizeof text }, chat_err = { chat_text, sizeof chat_text };
    if (!model->tokenizer)
        return fail(why, "MODEL_LOAD_FAILED",
                    "the file has no tokenizer: it cannot serve text; give a tokenizer.json with --tokenizer");
    m->facts = model_facts_of(model);
    const struct chat_source chat = { .file = model->file,
                                      .t = model->tokenizer,
                                      .template = s->o->chat_template,
                                      .template_name = s->o->chat_template_name,
                                      .json_calls = s->o->json_calls };
    if (m->facts.width && (s->o->handover.leases || s->o->handover.pulls))
        return fail(why, "MODEL_LOAD_FAILED", "the model gives embeddings: it has no pages to hand over");
    if (grammars_open(model->tokenizer, model->program->n_vocab, &m->grammars, &err))
        return fail(why, "INTERNAL", text);
    if (chat_open(&chat, &m->chat, &chat_err)) (void)snprintf(m->no_chat, sizeof m->no_chat, "%s", chat_text);
    m->o = s->o;
    (void)snprintf(m->name, sizeof m->name, "%s", s->o->model_id ? s->o->model_id : model->name);
    (void)snprintf(m->path, sizeof m->path, "%s", l->ref ? l->ref : l->path ? l->path : "embedded model");
    name_plugin(s, model, m->plugin);
    capabilities_quantization(model->file, s->plugins, m->quant_kind);
    name_shard(s, model, l->shard_id, m->shard_id);
    if (!identity_make(s, m)) return fail(why, "INTERNAL", "no fingerprint of program and model can be made");
    m->piece_max = token_text_piece_max(model->tokenizer);
    m->ready_at = (int64_t)time(NULL);
    struct engine_options engine = s->o->engine;
    if (!engine.max_batch_tokens || engine.max_batch_tokens > model->step_rows)
        engine.max_batch_tokens = model->step_rows;
    engine.page_events = s->kv_events ? KV_EVENTS_RECORDS : 0;
    return (!engine_open(m->model, &engine, &m->engine, &err) && !kv_events_begin(s->kv_events, m->engine, &err)) ||
           fail(why, "INTERNAL", text);
}

static void free_model(struct serve_model *m)
{
    if (!m) return;
    engine_close(m->engine); /* no job is left */
    grammars_close(m->grammars);
    chat_close(m->chat);
    model_close(m->model);
    free(m);
}

static bool load(struct load *l)
{
    struct serve *s = l->s;
    struct serve_model *m = calloc(1, sizeof *m);
    if (!m) return fail(&l->why, "INSUFFICIENT_MEMORY", "no memory for a model");
    if (!s->o->loader.load(s->o->loader.user, l->path, l->digest, l->seal, &m->model, &l->why) ||
        !open_service(l, m, &l->why)) {
        free_model(m);
        return false;
    }
    s->startup_seconds = (double)(serve_now_ns() - s->started_ns) * 1e-9;
    atomic_store(&s->model, m);
    scheduler_follow(s);
    int was = SERVE_LOADING;
    if (!atomic_compare_exchange_strong(&s->state, &was, SERVE_READY)) return true; /* it ends already */
    say_ready(s, m);
    call_back(s, m);
    s->identity = identity_start(s, m, call_back_again);
    return true;
}

static void *run(void *user)
{
    struct load *l = user;
    struct serve *s = l->s;
    int was = SERVE_LOADING;
    l->ok = load(l);
    if (!l->ok && s->o->wait_for_commit) (void)atomic_compare_exchange_strong(&s->state, &was, SERVE_WAITING);
    if (!l->ok && !s->o->wait_for_commit) {
        s->failure = l->why;
        atomic_store(&s->load_failed, true);
    }
    atomic_store(&s->loading, false);
    serve_wake(s);
    return NULL;
}

bool load_claim(struct serve *s)
{
    bool idle = false;
    return atomic_compare_exchange_strong(&s->loading, &idle, true);
}

bool load_start(struct load *l)
{
    int was = SERVE_STARTING, waits = SERVE_WAITING;
    if (!atomic_compare_exchange_strong(&l->s->state, &was, SERVE_LOADING))
        (void)atomic_compare_exchange_strong(&l->s->state, &waits, SERVE_LOADING);
    if (pthread_create(&l->thread, NULL, run, l) == 0) return true;
    was = SERVE_LOADING;
    if (l->s->o->wait_for_commit) (void)atomic_compare_exchange_strong(&l->s->state, &was, SERVE_WAITING);
    atomic_store(&l->s->loading, false);
    return fail(&l->why, "INSUFFICIENT_MEMORY", "no thread to load a model in");
}

void load_join(struct load *l) { (void)pthread_join(l->thread, NULL); }

void load_close(struct serve *s) { free_model(atomic_exchange(&s->model, NULL)); }
