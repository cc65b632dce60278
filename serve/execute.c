/* execute.c: POST /execute and POST /worker/execute: a job as server-sent events, one for every id. */
#include "stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "chat/chat.h"

enum { METRICS_MS = 1000 };

/* ---- events -------------------------------------------------------------------------------------------- */

static void time_text(char out[32])
{
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)snprintf(out, 32, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)(utc.tm_year + 1900) % 10000,
                   (unsigned)(utc.tm_mon + 1) % 100, (unsigned)utc.tm_mday % 100, (unsigned)utc.tm_hour % 100,
                   (unsigned)utc.tm_min % 100, (unsigned)utc.tm_sec % 100, (unsigned)(now.tv_nsec / 1000000) % 1000);
}

static void send_started(struct stream *x, struct answer *a)
{
    char now[32];
    time_text(now);
    http_text_format(&x->line, "{\"job_id\":");
    http_text_json(&x->line, x->q.job_id, strlen(x->q.job_id));
    http_text_format(&x->line, ",\"model\":");
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_format(&x->line, ",\"started_at\":\"%s\",\"seed\":%" PRIu64 ",\"tokens_in\":%zu,\"fingerprint\":\"%s\"}",
                     now, a->seed, x->prompts[0].ids.n, x->m->fingerprint);
    (void)stream_event(x, "started");
}

static void send_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    (void)a;
    http_text_add(&x->line, "{\"t\":", 5);
    http_text_json(&x->line, line->text, line->n);
    http_text_format(&x->line, ",\"i\":%u,\"id\":%u}", line->index, line->id);
    (void)stream_event(x, "token");
}

static void send_metrics(struct stream *x, uint64_t now)
{
    uint64_t *next_ns = x->own;
    if (!x->q.metrics || now < *next_ns) return;
    struct engine_stats e;
    struct job_figures f;
    const struct shard_handle h = model_facts_handle(&x->m->facts);
    engine_stats(x->m->engine, &e);
    job_figures(x->answers[0].job, &f);
    const double seconds = f.first_token_ns ? (double)(f.last_token_ns - f.first_token_ns) * 1e-9 : 0;
    http_text_format(&x->line,
                     "{\"tokens_out\":%u,\"tokens_per_second\":%.3f,\"queue_depth\":%u,\"vram_bytes_used\":%" PRIu64
                     ",\"kv_used\":%.6f}",
                     f.n_generated, seconds > 0 ? (f.n_generated - 1) / seconds : 0.0, e.queued, h.vram_bytes, e.usage);
    (void)stream_event(x, "metrics");
    *next_ns = now + METRICS_MS * 1000000ull;
}

static void send_end(struct stream *x, struct answer *a, const struct ending *e)
{
    const int stopped = token_text_stopped(a->text);
    http_text_format(&x->line, "{\"job_id\":");
    http_text_json(&x->line, x->q.job_id, strlen(x->q.job_id));
    http_text_format(&x->line,
                     ",\"tokens_out\":%u,\"tokens_in\":%zu,\"tokens_cached\":%u,\"first_token_ms\":%.3f,\"decode_time_"
                     "ms\":%.3f,\"finish_reason\":\"%s\",\"stop_string\":",
                     a->tokens_out, x->prompts[0].ids.n, e->f.n_cached, e->first_ms, e->decode_ms, e->reason);
    if (stopped != STOP_NONE)
        http_text_json(&x->line, token_text_stop(a->text, stopped).data, token_text_stop(a->text, stopped).len);
    else
        http_text_add(&x->line, "null", 4);
    http_text_format(&x->line, ",\"seed\":%" PRIu64 "%s}", a->seed,
                     e->f.completion_hit ? ",\"completion_hit\":true" : "");
    (void)stream_event(x, "end");
}

static void send_error(struct stream *x, const struct ending *e)
{
    serve_put_failure(&x->line, x->r, &e->why);
    (void)stream_event(x, "error");
}

static wk_status encode(struct stream *x, struct stream_prompt *p, const struct wk_err *err)
{
    struct conversation said;
    p->text = x->q.prompt;
    p->len = x->q.prompt_len;
    p->chars = x->q.prompt_chars;
    const struct tokenizer_part raw = { x->q.prompt, x->q.prompt_len, x->q.parse_special };
    if (!x->q.chat) return stream_encode(x, p, &raw, 1, true, err);
    if (!conversation_of_user((struct token_bytes){ p->text, p->len }, &said, &x->problem))
        return wk_fail(err, x->problem.status, "%s", x->problem.text);
    struct chat_request q = CHAT_REQUEST_OF(&said);
    const wk_status status = stream_chat(x, p, &q, err);
    conversation_free(&said);
    return status;
}

static void release(struct stream *x) { job_request_free(&x->q); }

static const struct stream_form execute_form = { .encode = encode,
                                                 .release = release,
                                                 .started = send_started,
                                                 .line = send_line,
                                                 .turn = send_metrics,
                                                 .end = send_end,
                                                 .error = send_error,
                                                 .field = "prompt" };

/* ---- the routes ---------------------------------------------------------------------------------------- */

static bool read_request(struct stream *x, bool worker_form)
{
    const struct serve_model *m = atomic_load(&x->s->model);
    const struct job_request_limits limits = { .max_prompt_chars = x->s->o->max_prompt_chars,
                                               .max_tokens_out = x->s->o->max_tokens_out,
                                               .most_tokens = x->s->o->max_tokens_out,
                                               .n_vocab = m ? m->facts.n_vocab : 0,
                                               .max_priority = caller_max_priority(x->s, x->r) };
    struct refusal why;
    const char *bytes;
    size_t n;
    if (!work_body(x->work, job_request_most_bytes(&limits), &bytes, &n)) return false;
    if ((worker_form ? job_request_worker_execute : job_request_execute)(bytes, n, &limits, &x->q, &why)) return true;
    serve_refuse(x->s, x->r, &why);
    return false;
}

static void execute(struct serve *s, struct http_request *r, bool worker_form)
{
    uint64_t next_metrics_ns;
    struct work work;
    struct stream x = { .form = &execute_form,
                        .s = s,
                        .r = r,
                        .work = &work,
                        .own = &next_metrics_ns,
                        .n_prompts = 1,
                        .each = 1,
                        .arrived_ns = serve_now_ns() };
    work_open(&work, s, r);
    work.streams = true;
    next_metrics_ns = x.arrived_ns + METRICS_MS * 1000000ull;
    atomic_fetch_add(&s->streams, 1); /* before the state is read: who drains waits for us, or we see that it drains */
    if (read_request(&x, worker_form)) stream_run(&x, "");
    job_request_free(&x.q);
    work_close(&work);
    atomic_fetch_sub(&s->streams, 1);
}

static void on_execute(void *user, struct http_request *r) { execute(user, r, false); }
static void on_worker_execute(void *user, struct http_request *r) { execute(user, r, true); }

const struct http_route serve_execute_routes[] = {
    { "POST", "/execute", on_execute, true },
    { "POST", "/worker/execute", on_worker_execute, true },
};
const uint32_t serve_n_execute_routes = sizeof serve_execute_routes / sizeof *serve_execute_routes;
