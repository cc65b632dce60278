/* llama.c: llama-server's own interface: /completion (and /completions), /infill, /props, /lora-adapters. Chats, models
 * and texts are those of the other routes; embeddings are in embed.c; slots and their files are not
 * served (other_paths.c). */
#include <stdlib.h>
#include <string.h>

#include "caller.h"
#include "capability/json_text.h"
#include "llama_answer.h"
#include "llama_prompt.h"
#include "ops.h"

static struct job_request_limits limits_of(const struct serve *s, const struct serve_model *m, struct http_request *r)
{
    return (struct job_request_limits){ .most_chars = s->o->limit_prompt_chars ? s->o->max_prompt_chars : 0,
                                        .max_tokens_out = s->o->max_tokens_out,
                                        .most_tokens = s->o->limit_tokens_out ? s->o->max_tokens_out : INT32_MAX,
                                        .n_vocab = m->facts.n_vocab,
                                        .max_priority = caller_max_priority(s, r) };
}

static struct llama_model facts_of(const struct serve_model *m)
{
    return (struct llama_model){ .tokenizer = m->facts.tokenizer,
                                 .context = m->facts.context,
                                 .adapters = m->facts.adapters,
                                 .n_adapters = m->facts.n_adapters };
}

/* ---- /completion, /infill ------------------------------------------------------------------------------ */

/* What only the model tells. */
static bool suits_model(const struct serve_model *m, struct llama_request *q, struct refusal *why)
{
    if (q->o.model && !serve_suits_name(m, q->o.model, "model", why)) return false;
    if (!m->facts.tokenizer) return refuse(why, SERVE_INVALID_REQUEST, "prompt", "prompt: the model has no tokenizer");
    if (!q->infill) return true;
    const struct llama_marks marks = llama_marks_of(m);
    const char *missing = llama_marks_missing(&marks);
    if (missing)
        return refuse(why, SERVE_INVALID_REQUEST, "input_prefix",
                      "input_prefix: this model cannot fill in the middle: it has no token for it, neither by the key "
                      "tokenizer.ggml.%s nor by a text that is known; use /completion",
                      missing);
    llama_marks_end(&marks, &q->o.q);
    return true;
}

/* False: answered. */
static bool read_request(struct work *w, bool infill, struct llama_completion *c)
{
    struct serve *s = w->s;
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    const struct serve_model *m = serve_ready(s, &why);
    if (m) {
        const struct job_request_limits limits = limits_of(s, m, w->r);
        const struct llama_model facts = facts_of(m);
        if (!work_body(w, HTTP_BODY_MAX, &bytes, &n)) return false;
        if (llama_request_read(bytes, n, infill, &limits, &facts, &c->q, &why)) {
            if (suits_model(m, &c->q, &why) && (llama_completion_open(c, m->facts.tokenizer) ||
                                                refuse(&why, SERVE_INTERNAL, NULL, "no memory for the request")))
                return true;
            llama_completion_free(c);
        }
    }
    serve_refuse(s, w->r, &why);
    return false;
}

/* The request was read. */
static void answer(struct work *w, struct llama_completion *c, uint64_t arrived_ns)
{
    const struct openai_request *q = &c->q.o;
    const struct stream_form form = llama_completion_form(c);
    const uint32_t k = q->q.params.top_k; /* what the samplers leave must be known */
    const bool all = c->q.post_probs && k > q->top && q->q.params.temperature >= SAMPLER_GREEDY;
    struct stream x = { .form = &form,
                        .s = w->s,
                        .r = w->r,
                        .work = w,
                        .own = c,
                        .q = q->q,
                        .probs = q->probs,
                        .top = all ? k : q->top,
                        .progress = q->progress,
                        .n_prompts = c->n_prompts,
                        .each = q->n,
                        .arrived_ns = arrived_ns };
    w->streams = q->stream;
    stream_run(&x, c->q.infill ? "infill-" : "completion-");
}

static void complete(struct serve *s, struct http_request *r, bool infill)
{
    static const struct refusal no_memory = { .code = SERVE_INTERNAL, .text = "no memory for the request" };
    const uint64_t arrived_ns = serve_now_ns();
    struct llama_completion *c = calloc(1, sizeof *c);
    struct work work;
    work_open(&work, s, r);
    atomic_fetch_add(&s->streams, 1); /* before the state is read: who drains waits for us, or we see that it drains */
    if (!c) {
        serve_refuse(s, r, &no_memory);
    } else if (read_request(&work, infill, c)) {
        answer(&work, c, arrived_ns);
        llama_completion_free(c);
    }
    free(c);
    work_close(&work);
    atomic_fetch_sub(&s->streams, 1);
}

static void on_completion(void *user, struct http_request *r) { complete(user, r, false); }
static void on_infill(void *user, struct http_request *r) { complete(user, r, true); }

/* ---- /props -------------------------------------------------------------------------------------------- */

static json_t *spelt(const struct tokenizer *t, uint32_t id)
{
    const struct token_bytes text = id == TOKEN_NONE ? (struct token_bytes){ "", 0 } : tokenizer_text(t, id);
    return json_bytes(text.data, text.len);
}

/* What /completion does without being told; NULL: no memory. */
static json_t *default_params(const struct serve *s, const struct serve_model *m, struct http_request *r)
{
    const struct job_request_limits limits = limits_of(s, m, r);
    const struct llama_model facts = facts_of(m);
    struct llama_request *q = malloc(sizeof *q);
    struct http_text text = { 0 };
    struct refusal why;
    json_t *out = NULL;
    if (q && llama_request_defaults(&limits, &facts, q, &why)) {
        http_text_format(&text, "{\"seed\":%u,", UINT32_MAX); /* any */
        llama_request_settings(q, NULL, &text);
        http_text_add(&text, "}", 1);
        if (!text.failed) out = json_loadb(text.data, text.n, 0, NULL);
        llama_request_free(q);
    }
    http_text_free(&text);
    free(q);
    return out;
}

static json_t *chat_template(const struct serve *s, const struct serve_model *m)
{
    const struct gguf_kv *kv = gguf_find(m->facts.file, "tokenizer.chat_template");
    struct gguf_str text;
    if (s->o->chat_template.data) return json_bytes(s->o->chat_template.data, s->o->chat_template.len);
    return kv && !gguf_str(m->facts.file, kv, &text, NULL) ? json_bytes(text.data, text.len) : json_string("");
}

static void on_props(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = serve_ready_for(s, r);
    if (!m) return;
    const struct tokenizer *t = m->facts.tokenizer;
    const json_int_t context = m->facts.context;
    json_t *settings = json_pack("{s:I, s:o}", "n_ctx", context, "params", default_params(s, m, r));
    json_t *o =
        json_pack("{s:o, s:I, s:s, s:s, s:s, s:{s:b, s:b, s:b}, s:b, s:b, s:b, s:b, s:o, s:{}, s:s, s:b}",
                  "default_generation_settings", settings, "total_slots", (json_int_t)s->o->engine.max_sequences,
                  "model_alias", m->name, "model_path", m->path, "model_ftype", m->quant_kind, "modalities", "vision",
                  false, "video", false, "audio", false, "endpoint_slots", false, "endpoint_props", false,
                  "endpoint_metrics", true, "ui", true, "chat_template", chat_template(s, m), "chat_template_caps",
                  "build_info", "worker " WORKER_VERSION, "is_sleeping", false);
    if (o && t) {
        (void)json_object_set_new(o, "bos_token", spelt(t, tokenizer_bos(t)));
        (void)json_object_set_new(o, "eos_token", spelt(t, tokenizer_eos(t)));
    }
    serve_answer(s, r, 200, o);
}

static void on_change(void *user, struct http_request *r)
{
    struct refusal why = { 0 };
    (void)refuse(&why, SERVE_INVALID_REQUEST, "props",
                 "props: they cannot be changed while the worker runs: its command line decides them");
    serve_refuse(user, r, &why);
}

/* ---- /lora-adapters ------------------------------------------------------------------------------------ */

static void on_adapters(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = serve_ready_for(s, r);
    if (!m) return;
    json_t *list = json_array();
    for (uint32_t i = 0; i < m->facts.n_adapters; i++) {
        const struct adapter *a = &m->facts.adapters[i];
        const char *path = gguf_path(a->file);
        (void)json_array_append_new(list, json_pack("{s:I, s:o, s:f, s:o, s:o}", "id", (json_int_t)i, "path",
                                                    json_bytes(path, strlen(path)), "scale", a->scale, "task_name",
                                                    json_bytes(a->task, strlen(a->task)), "prompt_prefix",
                                                    json_bytes(a->prefix, strlen(a->prefix))));
    }
    serve_answer(s, r, 200, list);
}

static void on_adapter_change(void *user, struct http_request *r)
{
    struct refusal why = { 0 };
    (void)refuse(&why, SERVE_INVALID_REQUEST, "lora",
                 "lora: adapters are fixed while the worker runs: its command line decides them (--lora FILE:SCALE)");
    serve_refuse(user, r, &why);
}

const struct http_route serve_llama_routes[] = {
    { "POST", "/completion", on_completion, true },
    { "POST", "/completions", on_completion, true },
    { "POST", "/infill", on_infill, true },
    { "GET", "/props", on_props, false },
    { "POST", "/props", on_change, false },
    { "GET", "/lora-adapters", on_adapters, false },
    { "POST", "/lora-adapters", on_adapter_change, false },
};
const uint32_t serve_n_llama_routes = sizeof serve_llama_routes / sizeof *serve_llama_routes;
