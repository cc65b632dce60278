/* openai.c: OpenAI's interface: /v1/chat/completions, /v1/completions, /v1/models. What is not served is refused, never
 * left out of an answer in silence; errors have OpenAI's form (http/failure.c gives it to every failure below /v1/). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "caller.h"
#include "grammars.h"
#include "openai_answer.h"
#include "ops.h"

/* ---- the routes ---------------------------------------------------------------------------------------- */

/* What only the model tells; without one it is not ready, which comes next. */
static bool suits_model(const struct serve_model *m, struct completion *c, struct refusal *why)
{
    if (!m) return true;
    if (c->q.model && !serve_is_called(m, c->q.model))
        return refuse(why, SERVE_MODEL_NOT_FOUND, "model", "model: this worker serves %s, not %.255s", m->name,
                      c->q.model);
    if (c->chat && !m->chat)
        return refuse(
            why, SERVE_INVALID_REQUEST, "messages",
            "messages: this model's chat template cannot be used: %s; /v1/completions takes a prompt as it is",
            m->no_chat);
    return true;
}

static bool read_request(struct work *w, struct completion *c)
{
    struct serve *s = w->s;
    const struct serve_model *m = atomic_load(&s->model);
    const struct job_request_limits limits = { .most_chars = s->o->limit_prompt_chars ? s->o->max_prompt_chars : 0,
                                               .max_tokens_out = s->o->max_tokens_out,
                                               .most_tokens = s->o->limit_tokens_out ? s->o->max_tokens_out : INT32_MAX,
                                               .n_vocab = m ? m->model->program->n_vocab : 0,
                                               .max_priority = caller_max_priority(s, w->r) };
    struct refusal why;
    const char *bytes;
    size_t n;
    if (!work_body(w, HTTP_BODY_MAX, &bytes, &n)) return false;
    if ((c->chat ? openai_request_chat : openai_request_completion)(bytes, n, &limits, &c->q, &why)) {
        if (suits_model(m, c, &why)) return true;
        openai_request_free(&c->q);
    }
    serve_refuse(s, w->r, &why);
    return false;
}

/* The request was read. */
static void answer(struct work *w, struct completion *c, uint64_t arrived_ns)
{
    const struct openai_request *q = &c->q;
    const struct stream_form form = completion_form(c);
    struct stream x = { .form = &form,
                        .s = w->s,
                        .r = w->r,
                        .work = w,
                        .own = c,
                        .q = q->q,
                        .probs = q->probs,
                        .top = q->top,
                        .prompt_probs = q->prompt_probs || (q->echo && q->probs),
                        .prompt_top = q->echo && q->probs && q->top > q->prompt_top ? q->top : q->prompt_top,
                        .n_prompts = q->n_prompts,
                        .each = q->n,
                        .arrived_ns = arrived_ns };
    w->streams = q->stream;
    stream_run(&x, c->chat ? "chatcmpl-" : "cmpl-");
}

static void complete(struct serve *s, struct http_request *r, bool chat)
{
    static const struct refusal no_memory = { .code = SERVE_INTERNAL, .text = "no memory for the request" };
    const uint64_t arrived_ns = serve_now_ns();
    struct completion *c = calloc(1, sizeof *c);
    struct work work;
    work_open(&work, s, r);
    atomic_fetch_add(&s->streams, 1); /* before the state is read: who drains waits for us, or we see that it drains */
    if (!c) {
        serve_refuse(s, r, &no_memory);
    } else {
        c->chat = chat;
        c->created = (int64_t)time(NULL);
        if (read_request(&work, c)) {
            if (completion_open(c))
                answer(&work, c, arrived_ns);
            else
                serve_refuse(s, r, &no_memory);
            completion_free(c);
        }
        free(c);
    }
    work_close(&work);
    atomic_fetch_sub(&s->streams, 1);
}

static void on_chat(void *user, struct http_request *r) { complete(user, r, true); }
static void on_completion(void *user, struct http_request *r) { complete(user, r, false); }

/* A count below the architecture's name in the file; 0: none. */
static uint64_t count_of(const struct serve_model *m, const char *name)
{
    char key[128];
    uint64_t value = 0;
    (void)snprintf(key, sizeof key, "%.60s.%.60s", m->model->program->architecture, name);
    const struct gguf_kv *kv = gguf_find(m->model->file, key);
    return kv && !gguf_u64_at(m->model->file, kv, 0, &value, NULL) ? value : 0;
}

static json_t *model_card(const struct serve *s, const struct serve_model *m)
{
    const json_int_t context = m->model->dev.context;
    struct serve_condition condition;
    uint64_t page_bytes = 0;
    for (uint32_t g = 0; g < m->model->program->n_groups; g++)
        if (!m->model->program->groups[g].state) page_bytes += m->model->plan.kv_page_bytes[g];
    const uint64_t experts = count_of(m, "expert_count");
    serve_condition(s, &condition);
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:n, s:I, s:I, s:s, s:s, s:I, s:s, s:b, s:I, s:I, s:b, s:I, s:f}", "id", m->name,
        "object", "model", "created", (json_int_t)m->ready_at, "owned_by", "worker", "root", m->name, "parent",
        "max_model_len", context, "context_length", context, "device", s->device_text, "quantization", m->quant_kind,
        "kv_bytes_per_token", (json_int_t)(page_bytes / KV_PAGE), "health", condition.healthy ? "healthy" : "unhealthy",
        "is_moe", experts > 0, "n_experts", (json_int_t)experts, "n_active_experts",
        (json_int_t)(experts ? count_of(m, "expert_used_count") : 0), "structured_output",
        grammars_possible(m->grammars), "ready_at", (json_int_t)m->ready_at, "startup_seconds", s->startup_seconds);
}

static void on_models(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *list = json_array();
    if (m) (void)json_array_append_new(list, model_card(s, m));
    serve_answer(s, r, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
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
};
const uint32_t serve_n_openai_routes = sizeof serve_openai_routes / sizeof *serve_openai_routes;
