/* openai.c: OpenAI's interface: /v1/chat/completions, /v1/completions, /v1/models.
 *
 * Chunks are events without a name and errors have OpenAI's form (http/failure.c gives it to every failure below /v1/):
 * its clients understand nothing else. What is not served is refused, never left out of an answer in silence. */
#include "stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "openai_request.h"
#include "ops.h"

struct completion {
    struct openai_request q;
    bool chat;
    int64_t created;
    struct http_text text, reasoning; /* of a whole answer, so far */
};

/* ---- what answers and chunks share --------------------------------------------------------------------- */

static const struct completion *own(const struct stream *x) { return x->own; }

/* {"id": ..., "choices":[{"index":0, */
static void begin(struct stream *x, bool chunk)
{
    const struct completion *c = own(x);
    http_text_format(&x->line, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", x->q.job_id,
                     !c->chat ? "text_completion"
                     : chunk  ? "chat.completion.chunk"
                              : "chat.completion",
                     c->created);
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_format(&x->line, ",\"system_fingerprint\":\"%s\",\"choices\":[", x->known->fingerprint);
}

static void put_usage(struct stream *x, const struct ending *e)
{
    http_text_format(&x->line,
                     "\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%u,\"total_tokens\":%zu,\"prompt_tokens_"
                     "details\":{\"cached_tokens\":%u}",
                     x->prompt.n, x->tokens_out, x->prompt.n + x->tokens_out, e->f.n_cached);
    if (own(x)->chat)
        http_text_format(&x->line, ",\"completion_tokens_details\":{\"reasoning_tokens\":%u}",
                         token_text_reasoning_ids(x->text));
    http_text_format(&x->line, "}");
}

/* One chunk. member: of the delta of a chat, before the text, NULL: an empty delta; reason NULL: not the last. */
static void send_chunk(struct stream *x, const char *member, const char *text, size_t n, const char *reason)
{
    const struct completion *c = own(x);
    begin(x, true);
    http_text_format(&x->line, "{\"index\":0,%s%s",
                     c->chat ? "\"delta\":{" : "\"text\":", c->chat && member ? member : "");
    if (member || !c->chat) http_text_json(&x->line, text, n);
    http_text_format(&x->line, "%s,\"logprobs\":null,\"finish_reason\":", c->chat ? "}" : "");
    if (reason)
        http_text_format(&x->line, "\"%s\"}]", reason);
    else
        http_text_format(&x->line, "null}]");
    http_text_format(&x->line, c->q.usage ? ",\"usage\":null}" : "}");
    (void)stream_event(x, NULL);
}

/* ---- forms --------------------------------------------------------------------------------------------- */

static wk_status encode(struct stream *x, const struct wk_err *err)
{
    const struct openai_request *q = &own(x)->q;
    struct chat_prompt wrapped;
    if (q->ids) {
        x->prompt.ids = calloc(q->n_ids, sizeof *x->prompt.ids);
        if (!x->prompt.ids) return wk_fail(err, WK_NO_MEMORY, "no memory for %zu ids", q->n_ids);
        memcpy(x->prompt.ids, q->ids, q->n_ids * sizeof *q->ids);
        x->prompt.n = x->prompt.cap = q->n_ids;
        for (size_t i = 0; i < q->n_ids; i++)
            if (q->ids[i] >= x->m->model->program->n_vocab)
                return wk_fail(err, WK_INVALID, "element %zu is %u: the vocabulary has %u ids", i, q->ids[i],
                               x->m->model->program->n_vocab);
        return WK_OK;
    }
    const struct tokenizer_part raw = { x->q.prompt, x->q.prompt_len, x->q.parse_special };
    if (!x->q.chat) return stream_encode(x, &raw, 1, q->add_special, err);
    wk_status status =
        chat_wrap(x->m->chat, &q->turn, &wrapped, err); /* no date: the same request gives the same text tomorrow */
    if (!status) status = stream_encode(x, wrapped.part, wrapped.n, true, err);
    chat_prompt_free(&wrapped);
    return status;
}

static void release(struct stream *x)
{
    struct completion *c = x->own;
    openai_request_free(&c->q);
    x->q.body = NULL;
}

static void stream_started(struct stream *x)
{
    if (own(x)->chat) send_chunk(x, "\"role\":\"assistant\",\"content\":", "", 0, NULL);
}

static void stream_token(struct stream *x)
{
    const struct token_bytes said = token_text_reasoning(x->text);
    if (said.len && own(x)->q.reasoning) send_chunk(x, "\"reasoning_content\":", said.data, said.len, NULL);
}

static void stream_line(struct stream *x, const struct token_line *line)
{
    if (line->n) send_chunk(x, "\"content\":", line->text, line->n, NULL);
}

static void stream_end(struct stream *x, const struct ending *e)
{
    send_chunk(x, NULL, "", 0, e->reason);
    if (own(x)->q.usage && !x->gone) {
        begin(x, true);
        http_text_format(&x->line, "],");
        put_usage(x, e);
        http_text_format(&x->line, "}");
        (void)stream_event(x, NULL);
    }
    if (x->gone) return;
    http_text_format(&x->line, "[DONE]");
    (void)stream_event(x, NULL);
}

static void stream_error(struct stream *x, const struct ending *e)
{
    serve_put_failure(&x->line, x->r, &e->why);
    (void)stream_event(x, NULL);
}

static void whole_started(struct stream *x) { (void)x; }

static void whole_token(struct stream *x)
{
    const struct token_bytes said = token_text_reasoning(x->text);
    if (own(x)->q.reasoning) http_text_add(&((struct completion *)x->own)->reasoning, said.data, said.len);
}

static void whole_line(struct stream *x, const struct token_line *line)
{
    http_text_add(&((struct completion *)x->own)->text, line->text, line->n);
}

static void fail_whole(struct stream *x)
{
    struct refusal why = { .code = SERVE_INTERNAL, .text = "no memory for the answer" };
    refusal_job(&why, x->q.job_id);
    serve_fail(x->r, &why);
}

static void whole_end(struct stream *x, const struct ending *e)
{
    const struct completion *c = own(x);
    begin(x, false);
    http_text_format(&x->line, c->chat ? "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                                       : "{\"index\":0,\"text\":");
    http_text_json(&x->line, c->text.n ? c->text.data : "", c->text.n);
    if (c->reasoning.n) {
        http_text_format(&x->line, ",\"reasoning_content\":");
        http_text_json(&x->line, c->reasoning.data, c->reasoning.n);
    }
    http_text_format(&x->line, "%s,\"logprobs\":null,\"finish_reason\":\"%s\"}],", c->chat ? ",\"refusal\":null}" : "",
                     e->reason);
    put_usage(x, e);
    http_text_format(&x->line, "}\n");
    if (x->line.failed || c->text.failed || c->reasoning.failed)
        fail_whole(x);
    else
        http_answer(x->r, 200, "application/json", x->line.data, x->line.n);
}

static void whole_error(struct stream *x, const struct ending *e) { serve_fail(x->r, &e->why); }

static struct stream_form form_of(const struct completion *c)
{
    const char *field = c->chat ? "messages" : "prompt";
    return c->q.stream ? (struct stream_form){ .encode = encode,
                                               .release = release,
                                               .started = stream_started,
                                               .token = stream_token,
                                               .line = stream_line,
                                               .end = stream_end,
                                               .error = stream_error,
                                               .field = field }
                       : (struct stream_form){ .encode = encode,
                                               .release = release,
                                               .started = whole_started,
                                               .token = whole_token,
                                               .line = whole_line,
                                               .end = whole_end,
                                               .error = whole_error,
                                               .field = field,
                                               .whole = true };
}

/* ---- the routes ---------------------------------------------------------------------------------------- */

/* gpt-oss reasons, shortly or for long; the others never do. The least that a model can do is minimal for it. */
static bool suits_effort(const struct serve_model *m, struct chat_turn *turn, struct refusal *why)
{
    const char *effort = turn->reasoning;
    const bool reasons = m->chat && chat_is_harmony(m->chat);
    if (effort && strcmp(effort, "minimal") == 0) effort = turn->reasoning = reasons ? "low" : "none";
    if (!effort || (strcmp(effort, "none") != 0) == reasons) return true;
    return refuse(why, SERVE_INVALID_REQUEST, "reasoning_effort", "reasoning_effort: expected %s, got %s",
                  reasons ? "minimal, low, medium or high: this model always reasons"
                          : "none, or nothing: this model does not reason",
                  effort);
}

/* Is the model called that, or that and :latest, as some clients complete every name? */
static bool is_called(const struct serve_model *m, const char *name)
{
    const size_t n = strlen(m->name);
    return strncmp(name, m->name, n) == 0 && (!name[n] || strcmp(name + n, ":latest") == 0);
}

/* What only the model tells; without one it is not ready, which comes next. */
static bool suits_model(const struct serve_model *m, struct completion *c, struct refusal *why)
{
    if (!m) return true;
    if (c->q.model && !is_called(m, c->q.model))
        return refuse(why, SERVE_MODEL_NOT_FOUND, "model", "model: this worker serves %s, not %.255s", m->name,
                      c->q.model);
    if (c->chat && !m->chat)
        return refuse(
            why, SERVE_INVALID_REQUEST, "messages",
            "messages: this model has no chat template that is known: %s; /v1/completions takes a prompt as it is",
            m->no_chat);
    return suits_effort(m, &c->q.turn, why);
}

static bool read_request(struct work *w, struct completion *c)
{
    struct serve *s = w->s;
    const struct serve_model *m = atomic_load(&s->model);
    const struct job_request_limits limits = { .most_chars = s->o->limit_prompt_chars ? s->o->max_prompt_chars : 0,
                                               .max_tokens_out = s->o->max_tokens_out,
                                               .most_tokens = s->o->limit_tokens_out ? s->o->max_tokens_out : INT32_MAX,
                                               .n_vocab = m ? m->model->program->n_vocab : 0,
                                               .max_priority = s->o->max_priority };
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

static void complete(struct serve *s, struct http_request *r, bool chat)
{
    const uint64_t arrived_ns = serve_now_ns();
    struct completion *c = calloc(1, sizeof *c);
    struct work work;
    work_open(&work, s, r);
    atomic_fetch_add(&s->streams, 1); /* before the state is read: who drains waits for us, or we see that it drains */
    if (!c) {
        serve_refuse(s, r, &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for the request" });
    } else {
        c->chat = chat;
        c->created = (int64_t)time(NULL);
        if (read_request(&work, c)) {
            work.streams = c->q.stream;
            const struct stream_form form = form_of(c);
            struct stream x = {
                .form = &form, .s = s, .r = r, .work = &work, .own = c, .q = c->q.q, .arrived_ns = arrived_ns
            };
            stream_run(&x, chat ? "chatcmpl-" : "cmpl-");
            openai_request_free(&c->q);
        }
        http_text_free(&c->text);
        http_text_free(&c->reasoning);
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
    for (uint32_t g = 0; g < m->model->program->n_groups; g++) page_bytes += m->model->plan.kv_page_bytes[g];
    const uint64_t experts = count_of(m, "expert_count");
    serve_condition(s, &condition);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:I, s:I, s:s, s:s, s:I, s:s, s:b, s:I, s:I, s:b, s:I, s:f}", "id",
                     m->name, "object", "model", "created", (json_int_t)m->ready_at, "owned_by", "worker", "root",
                     m->name, "parent", "max_model_len", context, "context_length", context, "device", s->device_text,
                     "quantization", m->quant_kind, "kv_bytes_per_token", (json_int_t)(page_bytes / KV_PAGE), "health",
                     condition.healthy ? "healthy" : "unhealthy", "is_moe", experts > 0, "n_experts",
                     (json_int_t)experts, "n_active_experts",
                     (json_int_t)(experts ? count_of(m, "expert_used_count") : 0), "structured_output", false,
                     "ready_at", (json_int_t)m->ready_at, "startup_seconds", s->startup_seconds);
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
    if (m && is_called(m, http_rest(r))) {
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
