/* execute.c: POST /execute and POST /worker/execute: a request becomes a job, the job's events become server-sent events.
 *
 * The handler's thread is the job's one reader. It never blocks the engine: what it is slow to send waits in the job's ring. A client that is gone cancels its own
 * job at once. No text goes into the log: a digest, lengths and counts. */
#include "inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/sha256.h"
#include "jobs.h"
#include "log/log.h"
#include "ops.h"
#include "job_request.h"
#include "token_text.h"
#include "chat/chat.h"

enum { LOOK_MS = 50 /* how often a silent stream asks whether anybody is there */, METRICS_MS = 1000 };

struct stream {
    struct serve *s;
    const struct serve_model *m;
    struct http_request *r;
    struct job_request q;
    struct tokens prompt;
    uint64_t arrived_ns, deadline_ns, next_metrics_ns;
    struct job *job;
    struct token_text *text;
    struct http_text line;       /* of the event that is being sent */
    char prompt_sha256[65];
    uint32_t tokens_out;
    bool gone, started;          /* gone: nobody reads any more */
};

/* ---- events ------------------------------------------------------------------------------------------------------------ */

static bool send_event(struct stream *x, const char *event)
{
    if (x->line.failed) {
        LOG(LOG_ERROR, "error", "no memory for an event", log_s("code", "INTERNAL"), log_s("job_id", x->q.job_id));
        x->gone = true;
    }
    if (!x->gone && !http_event(x->r, event, x->line.data, x->line.n)) x->gone = true;
    x->line.n = 0;
    if (x->gone) job_cancel(x->job);
    return !x->gone;
}

static void time_text(char out[32])
{
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)snprintf(out, 32, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)(utc.tm_year + 1900) % 10000, (unsigned)(utc.tm_mon + 1) % 100, (unsigned)utc.tm_mday % 100,
                   (unsigned)utc.tm_hour % 100, (unsigned)utc.tm_min % 100, (unsigned)utc.tm_sec % 100, (unsigned)(now.tv_nsec / 1000000) % 1000);
}

static void send_started(struct stream *x)
{
    char now[32];
    time_text(now);
    x->started = true;
    LOG(LOG_INFO, "execute_start", NULL, log_s("worker_id", x->s->o->worker_id), log_s("job_id", x->q.job_id), log_s("model_ref", x->m->path), log_u("gpu_device", x->s->info.index),
        log_s("request_id", http_id(x->r)), log_u("tokens_in", x->prompt.n), log_u("seed", x->q.params.seed), log_s("prompt_sha256", x->prompt_sha256),
        log_u("prompt_chars", x->q.prompt_chars));
    http_text_format(&x->line, "{\"job_id\":");
    http_text_json(&x->line, x->q.job_id, strlen(x->q.job_id));
    http_text_format(&x->line, ",\"model\":");
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_format(&x->line, ",\"started_at\":\"%s\",\"seed\":%" PRIu64 ",\"tokens_in\":%zu,\"fingerprint\":\"%s\"}", now, x->q.params.seed, x->prompt.n, x->m->fingerprint);
    (void)send_event(x, "started");
}

static void send_lines(struct stream *x, const struct token_line *line, int n)
{
    for (int i = 0; i < n && !x->gone; i++) {
        http_text_add(&x->line, "{\"t\":", 5);
        http_text_json(&x->line, line[i].text, line[i].n);
        http_text_format(&x->line, ",\"i\":%u,\"id\":%u}", line[i].index, line[i].id);
        (void)send_event(x, "token");
    }
}

static void send_metrics(struct stream *x, uint64_t now)
{
    struct engine_stats e;
    struct job_figures f;
    struct shard_handle h = { 0 };
    engine_stats(x->m->engine, &e);
    job_figures(x->job, &f);
    if (x->m->model->device->handle) x->m->model->device->handle(x->m->model->executor, &h);
    const double seconds = f.first_token_ns ? (double)(f.last_token_ns - f.first_token_ns) * 1e-9 : 0;
    http_text_format(&x->line, "{\"tokens_out\":%u,\"tokens_per_second\":%.3f,\"queue_depth\":%u,\"vram_bytes_used\":%" PRIu64 ",\"kv_used\":%.6f}", f.n_generated,
                     seconds > 0 ? (f.n_generated - 1) / seconds : 0.0, e.queued, h.vram_bytes, e.usage);
    (void)send_event(x, "metrics");
    x->next_metrics_ns = now + METRICS_MS * 1000000ull;
}

/* ---- the end ----------------------------------------------------------------------------------------------------------- */

static enum serve_code code_of(enum job_end end)
{
    switch (end) {
    case JOB_CANCELLED: return SERVE_CANCELLED;
    case JOB_TIMEOUT: return SERVE_INFERENCE_TIMEOUT;
    case JOB_NO_MEMORY: return SERVE_VRAM_OOM;
    case JOB_DEVICE_LOST: return SERVE_CUDA_ERROR;
    case JOB_DRAINED: return SERVE_NOT_READY;
    default: return SERVE_INTERNAL;
    }
}

static void error_text(enum job_end end, const struct job_figures *f, char out[320])
{
    const char *why = end == JOB_CANCELLED ? "cancelled" : end == JOB_TIMEOUT ? "the deadline passed" : end == JOB_DRAINED ? "the worker is shutting down" : "the job failed";
    (void)snprintf(out, 320, "%s%s%s", why, f->text[0] ? ": " : "", f->text);
}

static double ms_between(uint64_t from, uint64_t to) { return from && to > from ? (double)(to - from) * 1e-6 : 0; }

/* A job's end, as stream, log and list of jobs tell it. */
struct ending {
    bool good;                   /* JOB_STOP or JOB_LENGTH */
    const char *reason;          /* of a good one: "stop", "length" */
    const struct serve_code_def *code; /* of another */
    char text[320];
    struct job_figures f;
    double first_ms, decode_ms;
};

static void send_end(struct stream *x, const struct ending *e)
{
    const int stopped = token_text_stopped(x->text);
    http_text_format(&x->line, "{\"job_id\":");
    http_text_json(&x->line, x->q.job_id, strlen(x->q.job_id));
    http_text_format(&x->line, ",\"tokens_out\":%u,\"tokens_in\":%zu,\"tokens_cached\":%u,\"first_token_ms\":%.3f,\"decode_time_ms\":%.3f,\"finish_reason\":\"%s\",\"stop_string\":",
                     x->tokens_out, x->prompt.n, e->f.n_cached, e->first_ms, e->decode_ms, e->reason);
    if (stopped != STOP_NONE) http_text_json(&x->line, x->q.stops[stopped], x->q.stop_lens[stopped]);
    else http_text_add(&x->line, "null", 4);
    http_text_format(&x->line, ",\"seed\":%" PRIu64 "}", x->q.params.seed);
    (void)send_event(x, "end");
}

static void send_error(struct stream *x, const struct ending *e)
{
    http_text_format(&x->line, "{\"code\":\"%s\",\"message\":", e->code->name);
    http_text_json(&x->line, e->text, strlen(e->text));
    http_text_format(&x->line, ",\"retriable\":%s,\"job_id\":", e->code->retriable ? "true" : "false");
    http_text_json(&x->line, x->q.job_id, strlen(x->q.job_id));
    http_text_add(&x->line, "}", 1);
    (void)send_event(x, "error");
}

static void narrate_end(const struct stream *x, enum job_end end, const struct ending *e)
{
    struct shard_handle h = { 0 };
    if (x->m->model->device->handle) x->m->model->device->handle(x->m->model->executor, &h);
    if (end == JOB_NO_MEMORY || end == JOB_FAILED || end == JOB_DEVICE_LOST)
        LOG(LOG_ERROR, "error", e->text, log_s("code", e->code->name), log_s("worker_id", x->s->o->worker_id), log_s("job_id", x->q.job_id), log_u("gpu_device", x->s->info.index));
    LOG(LOG_INFO, "execute_end", NULL, log_s("worker_id", x->s->o->worker_id), log_s("job_id", x->q.job_id), log_s("model_ref", x->m->path), log_u("gpu_device", x->s->info.index),
        log_s("request_id", http_id(x->r)), log_s("outcome", e->good ? "finished" : e->code->name), log_s("finish_reason", e->good ? e->reason : NULL), log_b("client_gone", x->gone),
        log_u("tokens_in", x->prompt.n), log_u("tokens_out", x->tokens_out), log_u("tokens_cached", e->f.n_cached), log_f("queue_ms", ms_between(e->f.queued_ns, e->f.started_ns)),
        log_f("first_token_ms", e->first_ms), log_f("decode_time_ms", e->decode_ms), log_u("vram_bytes", h.vram_bytes), log_u("seed", x->q.params.seed),
        log_u("preemptions", e->f.preemptions), log_s("prompt_sha256", x->prompt_sha256), log_u("prompt_chars", x->q.prompt_chars));
}

static void finish(struct stream *x, enum job_end end)
{
    struct ending e = { .good = end == JOB_STOP || end == JOB_LENGTH, .reason = end == JOB_STOP ? "stop" : "length", .code = &serve_codes[code_of(end)] };
    job_figures(x->job, &e.f);
    error_text(end, &e.f, e.text);
    e.first_ms = ms_between(x->arrived_ns, e.f.first_token_ns);
    e.decode_ms = ms_between(e.f.first_token_ns, e.f.last_token_ns);
    struct job_record record = { .verdict = e.good ? JOB_FINISHED : end == JOB_CANCELLED ? JOB_WAS_CANCELLED : JOB_HAS_FAILED, .end = e.good ? e.reason : e.code->name,
        .tokens_in = (uint32_t)x->prompt.n, .tokens_out = x->tokens_out, .seconds = serve_seconds(e.f.ended_ns - x->arrived_ns) };
    memcpy(record.id, x->q.job_id, sizeof record.id);
    job_log_add(x->s->jobs, &record); /* before the client knows: who has read the end finds the job listed as it ended */
    if (e.good) send_end(x, &e);
    else send_error(x, &e);
    narrate_end(x, end, &e);
}

/* ---- following the job -------------------------------------------------------------------------------------------------- */

static void take_token(struct stream *x, const struct job_event *e)
{
    struct token_line line[2];
    if (token_text_stopped(x->text) != STOP_NONE) return; /* computed before the engine heard of the stop */
    const int n = token_text_push(x->text, e->id, line);
    x->tokens_out++;
    send_lines(x, line, n);
    if (token_text_stopped(x->text) != STOP_NONE) job_stop(x->job);
}

static void take_end(struct stream *x, enum job_end end)
{
    struct token_line line[1];
    if (token_text_stopped(x->text) != STOP_NONE) end = JOB_STOP; /* the text is complete, whatever became of the steps behind it */
    send_lines(x, line, token_text_end(x->text, end != JOB_STOP, line));
    finish(x, end);
}

/* Until the job is over, also when nobody reads any more: its end is written down. */
static void follow(struct stream *x)
{
    struct job_event e;
    for (;;) {
        if (!job_next(x->job, &e, LOOK_MS)) {
            if (!x->gone && !http_ping(x->r)) x->gone = true;
            if (x->gone) job_cancel(x->job);
        } else if (e.kind == EVENT_STARTED) {
            send_started(x);
        } else if (e.kind == EVENT_TOKEN) {
            take_token(x, &e);
        } else {
            take_end(x, e.end);
            return;
        }
        if (!x->q.metrics || x->gone || !x->started) continue;
        const uint64_t now = serve_now_ns();
        if (now >= x->next_metrics_ns) send_metrics(x, now);
    }
}

/* ---- from a request to a job -------------------------------------------------------------------------------------------- */

static bool random_bytes(void *out, size_t n) { return getrandom(out, n, 0) == (ssize_t)n; }

/* Version 4 of RFC 9562. */
static bool random_id(char out[ENGINE_JOB_ID_MAX + 1])
{
    unsigned char b[16];
    if (!random_bytes(b, sizeof b)) return false;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    (void)snprintf(out, ENGINE_JOB_ID_MAX + 1, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9],
                   b[10], b[11], b[12], b[13], b[14], b[15]);
    return true;
}

static bool read_request(struct stream *x, bool worker_form)
{
    const struct serve_model *m = atomic_load(&x->s->model);
    const struct job_request_limits limits = { x->s->o->max_prompt_chars, x->s->o->max_tokens_out, m ? m->model->program->n_vocab : 0 };
    struct body_error why;
    const char *bytes;
    size_t n;
    if (!http_body(x->r, job_request_most_bytes(&limits), true, &bytes, &n)) return false;
    if (!(worker_form ? job_request_worker_execute : job_request_execute)(bytes, n, &limits, &x->q, &why)) {
        serve_refuse(x->s, x->r, SERVE_INVALID_REQUEST, NULL, why.field, "%s", why.text);
        return false;
    }
    if ((!x->q.job_id[0] && !random_id(x->q.job_id)) || (!x->q.seed_given && !random_bytes(&x->q.params.seed, sizeof x->q.params.seed))) {
        serve_refuse(x->s, x->r, SERVE_INTERNAL, NULL, NULL, "the system gives no random numbers: %s", strerror(errno));
        return false;
    }
    if (!x->q.seed_given) x->q.params.seed >>= 11; /* 53 bits: what every client's numbers hold, so that it can send it back */
    return true;
}

/* --inference-timeout-sec from arrival, or X-Deadline if that is earlier. */
static bool read_deadline(struct stream *x)
{
    const char *text = http_header(x->r, "X-Deadline");
    struct timespec now;
    int64_t unix_ms;
    x->deadline_ns = x->arrived_ns + x->s->o->inference_timeout_s * 1000000000ull;
    if (!text) return true;
    if (!job_request_deadline(text, &unix_ms)) {
        serve_refuse(x->s, x->r, SERVE_INVALID_REQUEST, x->q.job_id, "X-Deadline", "X-Deadline: expected a time of RFC 3339 or milliseconds since 1970");
        return false;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const int64_t left_ms = unix_ms - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    metrics_deadline((double)left_ms * 1e-3);
    LOG(LOG_INFO, "deadline", NULL, log_s("job_id", x->q.job_id), log_f("remaining_seconds", (double)left_ms * 1e-3));
    if (left_ms <= 0) {
        serve_refuse(x->s, x->r, SERVE_INFERENCE_TIMEOUT, x->q.job_id, NULL, "X-Deadline has passed %" PRId64 " ms ago", -left_ms);
        return false;
    }
    /* a deadline of years from now would not fit into nanoseconds */
    if ((uint64_t)left_ms / 1000 < x->s->o->inference_timeout_s) x->deadline_ns = serve_now_ns() + (uint64_t)left_ms * 1000000;
    return true;
}

static bool check_handle(struct stream *x)
{
    if (!x->q.handle_id) return true;
    if (strcmp(x->q.handle_id, x->m->shard_id) != 0) {
        serve_refuse(x->s, x->r, SERVE_NOT_FOUND, x->q.job_id, "handle_id", "handle_id: no such handle; GET /worker/ready names those there are");
        return false;
    }
    if (load_sealed(x->m)) return true;
    serve_refuse(x->s, x->r, SERVE_NOT_READY, x->q.job_id, NULL, "the weights are not sealed yet");
    return false;
}

static wk_status encode(struct stream *x, const struct wk_err *err)
{
    const struct tokenizer *t = x->m->model->tokenizer;
    struct chat_prompt wrapped;
    if (!x->q.chat) return tokenizer_encode(t, x->q.prompt, x->q.prompt_len, false, true, &x->prompt, err);
    const struct chat_turn turn = { .user = { x->q.prompt, x->q.prompt_len } }; /* no date: the same request gives the same text tomorrow */
    wk_status status = chat_wrap(x->m->chat, &turn, &wrapped, err);
    if (!status) status = tokenizer_encode_parts(t, wrapped.part, wrapped.n, true, &x->prompt, err);
    chat_prompt_free(&wrapped);
    return status;
}

/* The context's refusal says by how much: clients shorten and try again. */
static bool check_context(struct stream *x)
{
    const uint32_t context = x->m->model->dev.context, most = x->s->o->max_tokens_in;
    const uint32_t limit = most && most < context - 1 ? most : context - 1;
    const struct serve_code_def *code = &serve_codes[SERVE_CONTEXT_LENGTH_EXCEEDED];
    if (x->prompt.n <= limit) return true;
    atomic_fetch_add(&x->s->refused[SERVE_CONTEXT_LENGTH_EXCEEDED], 1);
    http_text_format(&x->line, "{\"code\":\"%s\",\"message\":\"prompt: expected at most %u tokens, got %zu\",\"retriable\":false,\"job_id\":", code->name, limit, x->prompt.n);
    http_text_json(&x->line, x->q.job_id, strlen(x->q.job_id));
    http_text_format(&x->line, ",\"field\":\"prompt\",\"n_prompt_tokens\":%zu,\"n_ctx\":%u}", x->prompt.n, context);
    if (x->line.failed) http_error(x->r, 500, "INTERNAL", "no memory for an answer", false, NULL, NULL);
    else http_answer(x->r, code->status, "application/json", x->line.data, x->line.n);
    x->line.n = 0;
    return false;
}

static bool check_stops(struct stream *x)
{
    for (uint32_t i = 0; i < x->q.n_stops; i++) {
        struct tokens ids = { 0 };
        const wk_status status = tokenizer_encode(x->m->model->tokenizer, x->q.stops[i], x->q.stop_lens[i], false, false, &ids, NULL);
        const size_t n = ids.n;
        tokens_free(&ids);
        if (!status && n <= REQUEST_STOP_TOKENS) continue;
        serve_refuse(x->s, x->r, SERVE_INVALID_REQUEST, x->q.job_id, "stop", "stop: expected strings of at most %d tokens, entry %u has %zu", REQUEST_STOP_TOKENS, i, n);
        return false;
    }
    return true;
}

static bool make_prompt(struct stream *x)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    if (x->q.params.top_k > x->m->model->program->n_vocab) {
        serve_refuse(x->s, x->r, SERVE_INVALID_REQUEST, x->q.job_id, "top_k", "top_k: expected a whole number from 0 to %u, got %u", x->m->model->program->n_vocab, x->q.params.top_k);
        return false;
    }
    if (x->q.chat && !x->m->chat) {
        serve_refuse(x->s, x->r, SERVE_INVALID_REQUEST, x->q.job_id, "chat", "chat: this model has no chat template that is known: %s", x->m->no_chat);
        return false;
    }
    if (!check_stops(x)) return false;
    wk_status status = encode(x, &err);
    for (size_t i = 0; !status && i < x->prompt.n; i++)
        if (x->prompt.ids[i] >= x->m->model->program->n_vocab) status = wk_fail(&err, WK_INTERNAL, "the tokenizer gives ids that the model does not have");
    if (status || !x->prompt.n) {
        serve_refuse(x->s, x->r, status == WK_INTERNAL || status == WK_NO_MEMORY ? SERVE_INTERNAL : SERVE_INVALID_REQUEST, x->q.job_id, "prompt", "prompt: %s",
                     text[0] ? text : "gives no tokens");
        return false;
    }
    return check_context(x);
}

/* What the engine's refusal means to a client. */
static void refuse_job(struct stream *x, enum submit_refusal why, const char *text)
{
    switch (why) {
    case SUBMIT_EXISTS: serve_refuse(x->s, x->r, SERVE_JOB_EXISTS, x->q.job_id, "job_id", "job_id: a job of this id is queued or running"); return;
    case SUBMIT_QUEUE_FULL: serve_refuse(x->s, x->r, SERVE_QUEUE_FULL, x->q.job_id, NULL, "%u jobs wait already", x->s->o->engine.max_queue); return;
    case SUBMIT_DRAINING: serve_refuse(x->s, x->r, SERVE_NOT_READY, x->q.job_id, NULL, "the worker is shutting down"); return;
    case SUBMIT_DEAD: serve_refuse(x->s, x->r, SERVE_CUDA_ERROR, x->q.job_id, NULL, "the device was lost: %s", text); return;
    case SUBMIT_NEVER_FITS: serve_refuse(x->s, x->r, SERVE_VRAM_OOM, x->q.job_id, "prompt", "the KV cache has no room for this prompt: %s", text); return;
    case SUBMIT_CONTEXT:
    case SUBMIT_INVALID: serve_refuse(x->s, x->r, SERVE_INVALID_REQUEST, x->q.job_id, NULL, "%s", text); return;
    default: serve_refuse(x->s, x->r, SERVE_INTERNAL, x->q.job_id, NULL, "%s", text);
    }
}

static bool submit(struct stream *x)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    size_t n_ends;
    const uint32_t *ends = tokenizer_end_ids(x->m->model->tokenizer, &n_ends);
    const struct engine_job spec = { .id = x->q.job_id, .prompt = x->prompt.ids, .n_prompt = (uint32_t)x->prompt.n, .max_tokens = x->q.max_tokens, .ends = ends, .n_ends = (uint32_t)n_ends,
        .params = &x->q.params, .priority = x->q.priority, .deadline_ns = x->deadline_ns };
    if (!sha256_hex(x->q.prompt, x->q.prompt_len, x->prompt_sha256) ||
        token_text_open(x->m->model->tokenizer, x->m->piece_max, x->q.stops, x->q.stop_lens, x->q.n_stops, &x->text, &err)) {
        serve_refuse(x->s, x->r, SERVE_INTERNAL, x->q.job_id, NULL, "%s", text[0] ? text : "no digest of the prompt can be made");
        return false;
    }
    struct harmony_ids harmony;
    if (x->q.chat && chat_is_harmony(x->m->chat) && harmony_find_ids(x->m->model->tokenizer, &harmony)) token_text_channels(x->text, &harmony);
    const enum submit_refusal refusal = engine_submit(x->m->engine, &spec, &x->job, &err);
    if (refusal) refuse_job(x, refusal, text);
    return !refusal;
}

static void execute(struct serve *s, struct http_request *r, bool worker_form)
{
    struct stream x = { .s = s, .r = r, .arrived_ns = serve_now_ns() };
    atomic_fetch_add(&s->streams, 1); /* before the state is read: who drains waits for us, or we see that it drains */
    if (read_request(&x, worker_form) && read_deadline(&x) && (x.m = serve_ready(s, r, x.q.job_id)) && check_handle(&x) && make_prompt(&x) && submit(&x)) {
        x.next_metrics_ns = x.arrived_ns + METRICS_MS * 1000000ull;
        if (!http_stream_begin(r)) x.gone = true;
        if (x.gone) job_cancel(x.job);
        follow(&x);
        job_release(x.job);
    }
    token_text_close(x.text);
    http_text_free(&x.line);
    tokens_free(&x.prompt);
    job_request_free(&x.q);
    atomic_fetch_sub(&s->streams, 1);
}

static void on_execute(void *user, struct http_request *r) { execute(user, r, false); }
static void on_worker_execute(void *user, struct http_request *r) { execute(user, r, true); }

const struct http_route serve_execute_routes[] = {
    { "POST", "/execute", on_execute, true },
    { "POST", "/worker/execute", on_worker_execute, true },
};
const uint32_t serve_n_execute_routes = sizeof serve_execute_routes / sizeof *serve_execute_routes;
