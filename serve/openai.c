/* openai.c: OpenAI's interface: /v1/chat/completions, /v1/completions, /v1/models. What is not served is refused, never
 * left out of an answer in silence; errors have OpenAI's form (http/failure.c gives it to every failure below /v1/). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammars.h"
#include "openai_answer.h"
#include "ops.h"

/* ---- the routes ---------------------------------------------------------------------------------------- */

static bool read_chat(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                      struct refusal *why)
{
    return openai_request_chat(bytes, n, l, &e->q, why);
}

static bool read_completion(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                            struct refusal *why)
{
    return openai_request_completion(bytes, n, l, &e->q, why);
}

static const struct interface chat = {
    .prefix = "chatcmpl-", .chat = true, .read = read_chat, .stream = &openai_chat_stream, .whole = &openai_chat_whole
};
static const struct interface completion = {
    .prefix = "cmpl-", .read = read_completion, .stream = &openai_completion_stream, .whole = &openai_completion_whole
};

static void on_chat(void *user, struct http_request *r) { exchange_serve(user, r, &chat); }
static void on_completion(void *user, struct http_request *r) { exchange_serve(user, r, &completion); }

/* A count below the architecture's name in the file; 0: none. */
static uint64_t count_of(const struct serve_model *m, const char *name)
{
    char key[128];
    uint64_t value = 0;
    (void)snprintf(key, sizeof key, "%.60s.%.60s", m->facts.architecture, name);
    const struct gguf_kv *kv = gguf_find(m->facts.file, key);
    return kv && !gguf_u64_at(m->facts.file, kv, 0, &value, NULL) ? value : 0;
}

/* What llama-server's clients look for. */
static json_t *model_meta(const struct serve_model *m)
{
    const struct gguf *file = m->facts.file;
    uint64_t n_params = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        uint64_t n = 1;
        for (int k = 0; k < GGUF_MAX_DIMS; k++) n *= gguf_tensor_at(file, i)->ne[k];
        n_params += n;
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "n_vocab", (json_int_t)m->facts.n_vocab, "n_ctx",
                     (json_int_t)m->facts.context, "n_ctx_train", (json_int_t)m->facts.trained_context, "n_embd",
                     (json_int_t)count_of(m, "embedding_length"), "n_params", (json_int_t)n_params, "size",
                     (json_int_t)gguf_file_bytes(file));
}

/* The names by which requests may call it, as llama-server tells them; "*", every name, is none. */
static json_t *model_aliases(const struct serve_model *m)
{
    json_t *out = json_pack("[s]", m->name);
    for (uint32_t i = 0; i < m->o->n_aliases; i++)
        if (strcmp(m->o->aliases[i], "*") != 0) (void)json_array_append_new(out, json_string(m->o->aliases[i]));
    return out;
}

/* What it does, in the words of llama-server and Ollama. */
static const char *capability_of(const struct serve_model *m)
{
    return m->facts.ranks ? "rerank" : m->facts.width ? "embedding" : "completion";
}

static json_t *model_card(const struct serve *s, const struct serve_model *m)
{
    char created[32];
    const time_t ready_at = (time_t)m->ready_at;
    struct tm utc;
    (void)gmtime_r(&ready_at, &utc);
    (void)strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const json_int_t context = m->facts.context;
    struct serve_condition condition;
    const uint64_t experts = count_of(m, "expert_count");
    serve_condition(s, &condition);
    return json_pack(
        "{s:s, s:o, s:[], s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:n, s:I, s:I, s:s, s:s, s:I, s:s, s:b, s:I, s:I, s:b, "
        "s:I, s:f, s:o, s:[s]}",
        "id", m->name, "aliases", model_aliases(m), "tags", "object", "model", "type", "model", "display_name", m->name,
        "created_at", created, "created", (json_int_t)m->ready_at, "owned_by", "worker", "root", m->name, "parent",
        "max_model_len", context, "context_length", context, "device", s->device_text, "quantization", m->quant_kind,
        "kv_bytes_per_token", (json_int_t)m->facts.position_bytes, "health",
        condition.healthy ? "healthy" : "unhealthy", "is_moe", experts > 0, "n_experts", (json_int_t)experts,
        "n_active_experts", (json_int_t)(experts ? count_of(m, "expert_used_count") : 0), "structured_output",
        grammars_possible(m->grammars), "ready_at", (json_int_t)m->ready_at, "startup_seconds", s->startup_seconds,
        "meta", model_meta(m), "capabilities", capability_of(m));
}

/* `models` is what Codex reads, and stops at where it is missing. Entries would have to have all that it knows of
 * OpenAI's own models; with an empty list it uses what it is told on its command line. */
static void on_models(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *list = json_array();
    if (m) (void)json_array_append_new(list, model_card(s, m));
    /* has_more and the ids are what Anthropic's clients turn pages by */
    serve_answer(s, r, 200,
                 json_pack("{s:s, s:o, s:[], s:b, s:s?, s:s?}", "object", "list", "data", list, "models", "has_more",
                           false, "first_id", m ? m->name : NULL, "last_id", m ? m->name : NULL));
}

static void on_model(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    struct refusal why = { 0 };
    if (m && serve_is_called(m, http_rest(r))) {
        serve_answer(s, r, 200, model_card(s, m));
    } else {
        (void)refuse(&why, SERVE_MODEL_NOT_FOUND, "model", "model: this worker serves %s", m ? m->name : "none yet");
        serve_refuse(s, r, &why);
    }
}

const struct http_route serve_openai_routes[] = {
    { "POST", "/v1/chat/completions", on_chat, true },
    { "POST", "/v1/completions", on_completion, true },
    { "GET", "/v1/models", on_models, false },
    { "GET", "/v1/models/", on_model, false },
    { "POST", "/chat/completions", on_chat, true }, /* llama-server has these without /v1, too */
    { "GET", "/models", on_models, false },
};
const uint32_t serve_n_openai_routes = sizeof serve_openai_routes / sizeof *serve_openai_routes;
