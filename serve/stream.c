/* stream.c: a request becomes jobs, the jobs' events become an answer. */
#include "stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/sha256.h"
#include "chat/chat.h"
#include "chat/constraint.h"
#include "log/log.h"
#include "log/words.h"
#include "answer_grammar.h"
#include "grammars.h"
#include "ops.h"

enum {
    LOOK_MS = 50, /* how often it is asked whether anybody is there */
    HEAD_MS = 250 /* a stream begins with its first event, or so long after the request: one that came just before the
                     worker drains, and whose job has not begun, is refused with 503: a router asks another worker */
};

/* ---- events -------------------------------------------------------------------------------------------- */

static void cancel_all(const struct stream *x)
{
    for (uint32_t i = 0; i < x->n_answers; i++)
        if (x->answers[i].job && !x->answers[i].over) job_cancel(x->answers[i].job);
}

void stream_told(struct stream *x)
{
    x->told = true;
    cancel_all(x);
}

void stream_cut(struct answer *a)
{
    a->cut = true;
    job_stop(a->job);
}

bool stream_event(struct stream *x, const char *event)
{
    if (x->line.failed) {
        LOG(LOG_ERROR, "error", "no memory for an event", log_s("code", "INTERNAL"),
            log_s("job_id", x->answers[0].log_id));
        x->gone = true;
    }
    if (!x->gone && !http_event(x->r, event, x->line.data, x->line.n)) x->gone = true;
    x->line.n = 0;
    if (x->gone) cancel_all(x);
    return !x->gone;
}

static bool is_heard(const struct stream *x) { return !x->gone && !x->told && !x->failed; }

static void send_lines(struct stream *x, struct answer *a, const struct token_line *line, int n)
{
    for (int i = 0; i < n && is_heard(x); i++) {
        caller_said(x, line[i].text, line[i].n);
        x->form->line(x, a, &line[i]);
    }
}

/* What the last push, or the end, told of calls. */
static void send_calls(struct stream *x, struct answer *a)
{
    const struct token_calls *c = token_text_calls_of(a->text);
    size_t n = 0;
    if (c) (void)token_calls_events(c, &n);
    if (n && x->form->calls && is_heard(x)) x->form->calls(x, a);
}

static const struct stream_prompt *prompt_of(const struct stream *x, const struct answer *a)
{
    return &x->prompts[a->prompt];
}

size_t stream_tokens_in(const struct stream *x, const struct answer *a)
{
    size_t n = 0;
    if (!x->embeds) return prompt_of(x, a)->ids.n;
    for (uint32_t i = 0; i < x->n_prompts; i++) n += x->prompts[i].ids.n;
    return n;
}

/* Only where somebody asked for it: a short prompt can be guessed from it. */
static struct log_field plain_digest(const struct stream *x, const struct stream_prompt *p)
{
    return x->s->o->plain_sha256 ? log_s("prompt_sha256", p->prompt_sha256) : (struct log_field){ .kind = LOG_END };
}

/* Between the events of its beginning and its end: a job's other states. */
static void narrate_state(const struct stream *x, const struct answer *a, const char *state)
{
    LOG(LOG_INFO, "job_state", NULL, log_s("worker_id", x->s->o->worker_id), log_s("job_id", a->log_id),
        log_s("model_ref", x->m->path), log_s("state", state));
}

/* That its job stepped back for others, and went on. What so many turns ago is forgotten is passed over. */
static void narrate_turns(const struct stream *x, struct answer *a)
{
    for (const uint32_t n = job_turns(a->job); a->turns < n; a->turns++) {
        struct job_turn t;
        if (!job_turn(a->job, a->turns, &t)) continue;
        LOG(LOG_INFO, t.kind == TURN_RESUMED ? "scheduler.fairness.resume" : "scheduler.fairness.yield", NULL,
            log_s("worker_id", x->s->o->worker_id), log_s("job_id", a->log_id), log_s("model_ref", x->m->path),
            log_s("request_id", http_id(x->r)), log_b("preempted", t.kind == TURN_PREEMPTED),
            log_f("at_ms", serve_ms_between(x->arrived_ns, t.at_ns)), log_s("traceparent", http_trace(x->r)));
    }
}

static void start(struct stream *x, struct answer *a)
{
    const struct stream_prompt *p = prompt_of(x, a);
    a->started = true;
    x->begun = true;
    LOG(LOG_INFO, "execute_start", NULL, log_s("worker_id", x->s->o->worker_id), log_s("job_id", a->log_id),
        log_s("model_ref", x->m->path), log_u("gpu_device", x->s->info.index), log_s("request_id", http_id(x->r)),
        log_u("tokens_in", stream_tokens_in(x, a)), log_u("seed", a->seed), log_s("state", "prefill"),
        log_u("prompt_chars", p->chars), log_s("prompt_hmac", p->prompt_hmac), log_s("traceparent", http_trace(x->r)),
        plain_digest(x, p));
    if (!x->told) x->form->started(x, a);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void explain_end(const struct stream *x, const struct answer *a, enum job_end end, const struct job_figures *f,
                        struct refusal *out)
{
    const char *why = end == JOB_CANCELLED  ? "cancelled"
                      : end == JOB_TIMEOUT  ? "the deadline passed"
                      : end == JOB_DRAINED  ? "the worker is shutting down"
                      : end != JOB_GRAMMAR  ? "the job failed"
                      : x->q.params.min_ids ? "the answer cannot go on as its form demands (min_tokens may be too many)"
                                            : "the answer cannot go on as its form demands";
    const char *field = end == JOB_GRAMMAR ? answer_held_by(x) : NULL;
    (void)refuse(out, serve_code_of_end(end), field, "%s%s%s%s%s", field ? field : "", field ? ": " : "", why,
                 f->text[0] ? ": " : "", f->text);
    refusal_job(out, a->job_id);
}

static void explain_block(const struct answer *a, struct refusal *out)
{
    (void)refuse(out, SERVE_GUARDRAIL_BLOCKED, NULL,
                 "the answer has a phrase that this worker's blocklist does not allow");
    refusal_job(out, a->job_id);
}

static void narrate_end(const struct stream *x, const struct answer *a, enum job_end end, const struct ending *e,
                        const char *state)
{
    const struct stream_prompt *p = prompt_of(x, a);
    const struct shard_handle h = model_facts_handle(&x->m->facts);
    const char *code = serve_codes[e->why.code].name;
    if (end == JOB_NO_MEMORY || end == JOB_FAILED || end == JOB_DEVICE_LOST)
        LOG(LOG_ERROR, "error", e->why.text, log_s("code", code), log_s("worker_id", x->s->o->worker_id),
            log_s("job_id", a->log_id), log_s("model_ref", x->m->path), log_u("gpu_device", x->s->info.index));
    LOG(LOG_INFO, "execute_end", NULL, log_s("worker_id", x->s->o->worker_id), log_s("job_id", a->log_id),
        log_s("model_ref", x->m->path), log_u("gpu_device", x->s->info.index), log_s("request_id", http_id(x->r)),
        log_s("state", state), log_s("outcome", e->good ? "finished" : code),
        log_s("finish_reason", e->good ? e->reason : NULL), log_b("client_gone", x->gone),
        log_u("tokens_in", stream_tokens_in(x, a)), log_u("tokens_out", a->tokens_out),
        log_u("tokens_cached", e->f.n_cached), log_b("completion_hit", e->f.completion_hit),
        log_f("queue_ms", serve_ms_between(e->f.queued_ns, e->f.started_ns)), log_f("first_token_ms", e->first_ms),
        log_f("decode_time_ms", e->decode_ms), log_u("vram_bytes", h.vram_bytes), log_u("seed", a->seed),
        log_u("preemptions", e->f.preemptions), log_u("prompt_chars", p->chars), log_s("prompt_hmac", p->prompt_hmac),
        log_s("traceparent", http_trace(x->r)), plain_digest(x, p));
}

/* How a good end is called. */
static const char *reason_of(const struct answer *a, enum job_end end)
{
    const struct token_calls *c = a->text ? token_text_calls_of(a->text) : NULL;
    if (end != JOB_STOP) return "length";
    return c && token_calls_complete(c) ? "tool_calls" : "stop";
}

/* A whole answer fails when all its jobs are over: what is written down of it then counts them all. */
static void tell_end(struct stream *x, struct answer *a, const struct ending *e)
{
    if (e->good) {
        transfer_offer(x, a);
        x->form->end(x, a, e);
    } else if (x->form->whole) {
        x->failed = true;
        x->failure = *e;
        cancel_all(x);
    } else {
        if (x->headed)
            x->form->error(x, e);
        else
            serve_fail(x->r, &e->why);
        stream_told(x);
    }
}

static void finish(struct stream *x, struct answer *a, enum job_end end)
{
    const struct token_calls *calls = a->text ? token_text_calls_of(a->text) : NULL;
    const bool text_failed = a->text && token_text_failed(a->text);
    struct ending e = { .good = (end == JOB_STOP || end == JOB_LENGTH) && !text_failed && !a->blocked,
                        .reason = reason_of(a, end) };
    if (calls) metrics_tool_calls(token_calls_complete(calls), token_calls_malformed(calls));
    job_figures(a->job, &e.f);
    if (text_failed)
        (void)refuse(&e.why, SERVE_INTERNAL, NULL, "no memory for the answer's text");
    else if (a->blocked)
        explain_block(a, &e.why);
    else if (!e.good)
        explain_end(x, a, end, &e.f, &e.why);
    if (!e.good && x->form->refused) x->form->refused(x, &e.why);
    e.first_ms = serve_ms_between(x->arrived_ns, e.f.first_token_ns);
    e.decode_ms = serve_ms_between(e.f.first_token_ns, e.f.last_token_ns);
    struct job_record record = { .verdict = e.good                 ? JOB_FINISHED
                                            : end == JOB_CANCELLED ? JOB_WAS_CANCELLED
                                                                   : JOB_HAS_FAILED,
                                 .end = e.good ? e.reason : serve_codes[e.why.code].name,
                                 .model_ref = x->m->path,
                                 .tokens_in = (uint32_t)stream_tokens_in(x, a),
                                 .tokens_out = a->tokens_out,
                                 .seconds = serve_seconds(e.f.ended_ns - x->arrived_ns) };
    memcpy(record.id, a->job_id, sizeof record.id);
    memcpy(record.owner, a->place.owner, sizeof record.owner);
    job_log_leave(x->s->jobs, &a->place,
                  &record); /* before the client knows: who has read the end finds the job listed as it ended */
    a->over = true;
    x->n_over++;
    caller_ended(x, a, &e);
    if (!x->told && !x->failed) tell_end(x, a, &e);
    narrate_end(x, a, end, &e, job_verdict_name(record.verdict));
}

/* ---- following the jobs -------------------------------------------------------------------------------- */

static void take_token(struct stream *x, struct answer *a, const struct job_event *e)
{
    struct token_line line[2];
    if (token_text_over(a->text) || a->cut) return; /* computed before the engine heard of the stop */
    if (!x->q.max_tokens) return;                   /* the prompt is what was wanted */
    a->probs[e->index & 1] = e->probs;
    const int n = token_text_push(a->text, e->id, line);
    if (!a->tokens_out++) narrate_state(x, a, "decode");
    if (x->form->token && is_heard(x)) x->form->token(x, a);
    send_lines(x, a, line, n);
    send_calls(x, a);
    if (token_text_failed(a->text)) job_cancel(a->job);
    if (token_text_over(a->text)) job_stop(a->job);
}

/* What the blocklist has let go. */
static void release_held(struct stream *x, struct answer *a)
{
    struct job_event e;
    while (output_filter_next(a->filter, &e)) take_token(x, a, &e);
    const uint32_t found = output_filter_found(a->filter);
    if (found == BLOCKLIST_NONE || a->blocked || token_text_over(a->text)) return;
    a->blocked = true;
    caller_blocked(x, found);
    job_cancel(a->job);
}

static void filter_token(struct stream *x, struct answer *a, const struct job_event *e)
{
    const struct tokenizer *t = x->m->facts.tokenizer;
    if (output_filter_take(a->filter, e, tokenizer_piece(t, e->id, false), tokenizer_piece(t, e->id, true)))
        release_held(x, a);
    else
        job_cancel(a->job);
}

static void take_end(struct stream *x, struct answer *a, const struct job_event *e)
{
    enum job_end end = e->end;
    if (!a->text) { /* rows */
        finish(x, a, end);
        return;
    }
    if (a->filter) {
        output_filter_end(a->filter);
        release_held(x, a);
    }
    struct token_line line[1];
    if (token_text_over(a->text) || a->cut)
        end = JOB_STOP; /* the text is complete, whatever became of the steps behind it */
    if (!x->q.max_tokens && end == JOB_STOP) end = JOB_LENGTH;
    a->end_probs = !token_text_over(a->text) ? e->probs : NULL;
    send_lines(x, a, line, token_text_end(a->text, end != JOB_STOP, line));
    send_calls(x, a);
    finish(x, a, end);
}

/* The head of a stream, once. */
static void send_head(struct stream *x)
{
    if (x->form->whole || x->headed || !is_heard(x)) return;
    x->headed = true;
    x->gone = !http_stream_begin(x->r, x->form->kind);
    if (x->gone) cancel_all(x);
}

/* Is anybody still there? Asked every LOOK_MS, whether ids come or not: not every id is something to write. */
static void look(struct stream *x)
{
    const uint64_t now = serve_now_ns();
    if (now < x->look_ns) return;
    x->look_ns = now + LOOK_MS * 1000000ull;
    for (uint32_t i = 0; i < x->n_answers; i++) narrate_turns(x, &x->answers[i]);
    if (now >= x->head_ns) send_head(x);
    if (!is_heard(x)) return;
    x->gone = x->form->whole ? http_left(x->r) : !http_ping(x->r);
    if (x->gone) cancel_all(x);
}

/* Until all jobs are over, also when nobody reads any more: their ends are written down. */
static void follow(struct stream *x)
{
    uint32_t which = x->n_answers - 1;
    struct job_event e;
    while (x->n_over < x->n_answers) {
        const bool any = job_next_any(x->jobs, x->n_answers, &which, &e, LOOK_MS);
        struct answer *a = &x->answers[which];
        if (any) narrate_turns(x, a);
        if (any && !(e.kind == EVENT_END && e.end == JOB_DRAINED)) send_head(x);
        if (any && e.kind == EVENT_END) take_end(x, a, &e);
        if (any && e.kind != EVENT_TOKEN) transfer_started(x, a);
        if (any && e.kind == EVENT_STARTED) start(x, a);
        if (any && e.kind == EVENT_PROGRESS && is_heard(x)) x->form->progress(x, a, e.n_done);
        if (any && e.kind == EVENT_TOKEN) (a->filter ? filter_token : take_token)(x, a, &e);
        if (x->n_over == x->n_answers) break;
        look(x);
        if (x->form->turn && is_heard(x) && x->begun) x->form->turn(x, serve_now_ns());
    }
    if (x->told) return;
    if (x->failed)
        x->form->error(x, &x->failure);
    else if (x->form->done)
        x->form->done(x);
}

/* ---- from a request to jobs ---------------------------------------------------------------------------- */

static bool random_bytes(void *out, size_t n) { return getrandom(out, n, 0) == (ssize_t)n; }

/* prefix and version 4 of RFC 9562. */
static bool random_id(const char *prefix, char out[ENGINE_JOB_ID_MAX + 1])
{
    unsigned char b[16];
    if (!random_bytes(b, sizeof b)) return false;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    (void)snprintf(out, ENGINE_JOB_ID_MAX + 1, "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   prefix, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
    return true;
}

/* Answers with their names and seeds, and room for prompts and jobs. */
static bool lay_out(struct stream *x, struct refusal *why)
{
    const uint32_t n = x->embeds ? 1 : x->n_prompts * x->each;
    x->prompts = calloc(x->n_prompts, sizeof *x->prompts);
    x->answers = calloc(n, sizeof *x->answers);
    x->jobs = calloc(n, sizeof *x->jobs);
    if (!x->prompts || !x->answers || !x->jobs) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
    for (uint32_t i = 0; i < n; i++) {
        struct answer *a = &x->answers[i];
        a->index = i;
        a->prompt = i / x->each;
        a->seed = x->q.params.seed + i % x->each;
        if (i)
            (void)snprintf(a->job_id, sizeof a->job_id, "%.100s.%u", x->q.job_id, i);
        else
            memcpy(a->job_id, x->q.job_id, sizeof a->job_id);
        (void)log_id(a->job_id, a->log_id);
    }
    x->n_answers = n;
    return true;
}

static bool choose(struct stream *x, const char *prefix, struct refusal *why)
{
    if ((!x->q.job_id[0] && !random_id(prefix, x->q.job_id)) ||
        (!x->q.seed_given && !random_bytes(&x->q.params.seed, sizeof x->q.params.seed)))
        return refuse(why, SERVE_INTERNAL, NULL, "the system gives no random numbers: %s", strerror(errno));
    refusal_job(why, x->q.job_id);
    if (!x->q.seed_given)
        x->q.params.seed >>= 11; /* 53 bits: what every client's numbers hold, so that it can send it back */
    return lay_out(x, why);
}

/* --inference-timeout-sec from arrival, or X-Deadline, the header's text, if that is earlier. */
static bool read_deadline(struct stream *x, const char *text, struct refusal *why)
{
    struct timespec now;
    int64_t unix_ms;
    x->deadline_ns = x->arrived_ns + x->s->o->inference_timeout_s * 1000000000ull;
    if (!text) return true;
    if (!job_request_deadline(text, &unix_ms))
        return refuse(why, SERVE_INVALID_REQUEST, "X-Deadline",
                      "X-Deadline: expected a time of RFC 3339 or milliseconds since 1970");
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const int64_t left_ms = unix_ms - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    metrics_deadline((double)left_ms * 1e-3);
    LOG(LOG_INFO, "deadline", NULL, log_s("job_id", x->answers[0].log_id),
        log_f("remaining_seconds", (double)left_ms * 1e-3));
    if (left_ms <= 0)
        return refuse(why, SERVE_INFERENCE_TIMEOUT, NULL, "X-Deadline has passed %" PRId64 " ms ago", -left_ms);
    /* a deadline of years from now would not fit into nanoseconds */
    if ((uint64_t)left_ms / 1000 < x->s->o->inference_timeout_s)
        x->deadline_ns = serve_now_ns() + (uint64_t)left_ms * 1000000;
    return true;
}

static bool check_handle(const struct stream *x, struct refusal *why)
{
    if (!x->q.handle_id) return true;
    if (strcmp(x->q.handle_id, x->m->shard_id) != 0)
        return refuse(why, SERVE_NOT_FOUND, "handle_id",
                      "handle_id: no such handle; GET /worker/ready names those there are");
    return load_sealed(x->m) || refuse(why, SERVE_NOT_READY, NULL, "the weights are not sealed yet");
}

uint32_t stream_prompt_limit(const struct stream *x)
{
    const uint32_t room = x->embeds ? engine_text_most(x->m->engine) : x->m->facts.context - 1,
                   most = x->s->o->max_tokens_in;
    return most && most < room ? most : room;
}

/* The context's refusal says by how much, in the words that clients look for: they shorten and try again. A context
 * that the command line left smaller than the model's own can be raised. */
static bool check_context(const struct stream *x, const struct stream_prompt *p, struct refusal *why)
{
    const uint32_t context = x->m->facts.context, limit = stream_prompt_limit(x);
    const size_t n = x->fewest ? x->fewest : p->ids.n;
    if (n <= limit) return true;
    const uint32_t own = x->m->facts.trained_context;
    char raise[96] = "";
    if (own > context && limit == context - !x->embeds)
        (void)snprintf(raise, sizeof raise, ", or start the worker with --context N, up to %u of this model", own);
    (void)refuse(
        why, SERVE_CONTEXT_LENGTH_EXCEEDED, x->form->field,
        "%s: This model's maximum context length is %u tokens. Expected at most %u tokens, got %s%zu: shorten it%s "
        "(context_length_exceeded)",
        x->form->field, context, limit, x->fewest ? "at least " : "", n, raise);
    refusal_add(why, "n_prompt_tokens", n);
    refusal_add(why, "n_ctx", context);
    return false;
}

static bool check_stops(const struct stream *x, struct refusal *why)
{
    for (uint32_t i = 0; i < x->q.n_stops; i++) {
        struct tokens ids = { 0 };
        const wk_status status =
            tokenizer_encode(x->m->facts.tokenizer, x->q.stops[i], x->q.stop_lens[i], false, false, &ids, NULL);
        const size_t n = ids.n;
        tokens_free(&ids);
        if (!status && n <= REQUEST_STOP_TOKENS) continue;
        return refuse(why, SERVE_INVALID_REQUEST, "stop",
                      "stop: expected strings of at most %d tokens, entry %u has %zu", REQUEST_STOP_TOKENS, i, n);
    }
    return true;
}

/* Is it a mark of calls, where functions may be called? Some models end with what stands around a call. */
static bool is_mark(const struct stream *x, uint32_t id)
{
    size_t n = 0;
    const uint32_t *marks = x->calls ? tools_model_marks(x->calls, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        if (marks[i] == id) return true;
    return false;
}

/* The ids that end the job: the model's, unless they are to be ignored, and the request's. */
static uint32_t find_ends(const struct stream *x, uint32_t out[SAMPLER_MAX_ENDS])
{
    size_t n = 0;
    const uint32_t *own = tokenizer_end_ids(x->m->facts.tokenizer, &n);
    if (x->q.ignore_eos) n = 0;
    uint32_t n_out = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_mark(x, own[i])) out[n_out++] = own[i];
    memcpy(out + n_out, x->q.stop_ids, x->q.n_stop_ids * sizeof *out);
    return n_out + x->q.n_stop_ids;
}

/* What a model that was not there yet when the request was read has to say. */
static bool check_ids(const struct stream *x, struct refusal *why)
{
    const uint32_t n_vocab = x->m->facts.n_vocab;
    size_t n_own;
    (void)tokenizer_end_ids(x->m->facts.tokenizer, &n_own);
    if (x->q.params.top_k > n_vocab)
        return refuse(why, SERVE_INVALID_REQUEST, "top_k", "top_k: expected a whole number from 0 to %u, got %u",
                      n_vocab, x->q.params.top_k);
    if (n_own + x->q.n_stop_ids > SAMPLER_MAX_ENDS)
        return refuse(why, SERVE_INVALID_REQUEST, "stop_token_ids", "stop_token_ids: expected at most %zu ids, got %u",
                      SAMPLER_MAX_ENDS - n_own, x->q.n_stop_ids);
    for (uint32_t i = 0; i < x->q.n_stop_ids; i++)
        if (x->q.stop_ids[i] >= n_vocab)
            return refuse(why, SERVE_INVALID_REQUEST, "stop_token_ids",
                          "stop_token_ids: expected ids below %u, the vocabulary, got %u", n_vocab, x->q.stop_ids[i]);
    return true;
}

wk_status stream_encode(struct stream *x, struct stream_prompt *p, const struct tokenizer_part *parts, size_t n,
                        bool add_special, const struct wk_err *err)
{
    enum { OF_BYTE = 16 }; /* bytes for each of the text: a copy, and ids whose room grows by doubling */
    const struct tokenizer *t = x->m->facts.tokenizer;
    size_t bytes = 0;
    const size_t fewest = tokenizer_fewest(t, parts, n);
    if (fewest > stream_prompt_limit(x)) {
        x->fewest = fewest;
        return wk_fail(err, WK_INVALID, "more than the context holds");
    }
    for (size_t i = 0; i < n; i++) bytes += parts[i].len;
    if (!http_reserve(x->r, bytes * OF_BYTE)) return wk_fail(err, WK_NO_MEMORY, "no memory for the prompt");
    return work_encode(x->work, t, parts, n, add_special, &p->ids, err);
}

wk_status stream_chat(struct stream *x, struct stream_prompt *p, struct chat_request *q, const struct wk_err *err)
{
    struct chat_prompt prompt;
    wk_status status;
    const size_t json = q->tools.len + q->documents.len + q->kwargs.len;
    serve_clock(x->s, q);
    if (!http_reserve(x->r, chat_memory(q->conversation, json)))
        return wk_fail(err, WK_NO_MEMORY, "no memory for the prompt");
    if (chat_render(x->m->chat, q, &prompt, &x->problem)) {
        x->marks = prompt.marks;
        status = stream_encode(x, p, prompt.part, prompt.n, true, err);
    } else {
        status = wk_fail(err, x->problem.status, "%s", x->problem.text);
    }
    chat_prompt_free(&prompt);
    return status;
}

static bool make_prompt(struct stream *x, struct stream_prompt *p, struct refusal *why)
{
    char text[512] = "", number[32] = "";
    const struct wk_err err = { text, sizeof text };
    if (x->n_prompts > 1) (void)snprintf(number, sizeof number, "element %u: ", (unsigned)(p - x->prompts));
    if (work_stopped(x->work)) return work_refuse(x->work, why);
    wk_status status = x->form->encode(x, p, &err);
    if (x->fewest) return check_context(x, p, why);
    if (status == WK_CANCELLED) return work_refuse(x->work, why);
    for (size_t i = 0; !status && i < p->ids.n; i++)
        if (p->ids.ids[i] >= x->m->facts.n_vocab)
            status = wk_fail(&err, WK_INTERNAL, "the tokenizer gives ids that the model does not have");
    if (x->problem.status) return refuse(why, serve_code_of_status(status), x->problem.field, "%s", x->problem.text);
    if (status || !p->ids.n)
        return refuse(why, status ? serve_code_of_status(status) : SERVE_INVALID_REQUEST, x->form->field, "%s: %s%s",
                      x->form->field, number, text[0] ? text : "gives no tokens");
    if (!log_hmac(p->text, p->len, p->prompt_hmac) ||
        (x->s->o->plain_sha256 && !sha256_hex(p->text, p->len, p->prompt_sha256)))
        return refuse(why, SERVE_INTERNAL, NULL, "no digest of the prompt can be made");
    return check_context(x, p, why);
}

static bool make_prompts(struct stream *x, struct refusal *why)
{
    if (x->q.chat && !x->m->chat)
        return refuse(why, SERVE_INVALID_REQUEST, "chat", "chat: this model's chat template cannot be used: %s",
                      x->m->no_chat);
    if (!check_ids(x, why) || !check_stops(x, why)) return false;
    for (uint32_t i = 0; i < x->n_prompts; i++)
        if (!make_prompt(x, &x->prompts[i], why)) return false;
    return true;
}

/* An answer with a seed of chance comes once; one to no token is asked for to have the prompt computed. */
static bool may_come_again(const struct stream *x)
{
    return x->q.max_tokens && (x->q.seed_given || x->q.params.temperature < SAMPLER_GREEDY);
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

/* The engine's refusal as a client is told of it; text: what the engine says. */
static bool refuse_job(const struct stream *x, enum submit_refusal refusal, const char *text, struct refusal *why)
{
    const enum serve_code code = serve_code_of_submit(refusal);
    switch (refusal) {
    case SUBMIT_EXISTS: return refuse(why, code, "job_id", "job_id: a job of this id is queued or running");
    case SUBMIT_QUEUE_FULL:
        return refuse(why, code, NULL, "%u jobs wait already, as many as --max-queue allows",
                      x->s->o->engine.max_queue);
    case SUBMIT_DRAINING: return refuse(why, code, NULL, "the worker is shutting down");
    case SUBMIT_DEAD: return refuse(why, code, NULL, "the device was lost: %s", text);
    case SUBMIT_NEVER_FITS:
        return refuse(why, code, x->form->field, "the KV cache has no room for this prompt: %s", text);
    default: return refuse(why, code, NULL, "%s", text);
    }
}

/* Calls' ids are made of the job's: a conversation may have answers of one seed, and no id may come twice in it. */
static bool open_calls(struct stream *x, struct answer *a, struct refusal *why)
{
    char text[256] = "";
    struct token_calls *calls;
    uint64_t seed = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = a->job_id; *c; c++) seed = (seed ^ (unsigned char)*c) * 0x100000001b3u;
    if (token_calls_open(x->calls, x->functions, seed, x->one_call, x->grammar != NULL, &calls,
                         &(struct wk_err){ text, sizeof text }))
        return refuse(why, SERVE_INTERNAL, NULL, "%s", text);
    if (x->must_call) token_calls_alone(calls);
    token_text_calls(a->text, calls);
    return true;
}

static bool open_text(struct stream *x, struct answer *a, struct refusal *why)
{
    char text[512] = "";
    struct harmony_ids harmony;
    if (x->embeds) return true;
    if (token_text_open(x->m->facts.tokenizer, x->m->piece_max, x->q.stops, x->q.stop_lens, x->q.n_stops, &a->text,
                        &(struct wk_err){ text, sizeof text }))
        return refuse(why, SERVE_INTERNAL, NULL, "%s", text);
    token_text_hold(a->text, x->q.params.min_ids);
    if (x->q.chat && chat_is_harmony(x->m->chat) && harmony_find_ids(x->m->facts.tokenizer, &harmony))
        token_text_channels(a->text, &harmony);
    else if (x->q.chat && x->marks.open && x->marks.open[0])
        token_text_marks(a->text, &x->marks);
    if (x->list && output_filter_open(x->list, &a->filter, &(struct wk_err){ text, sizeof text }))
        return refuse(why, SERVE_INTERNAL, NULL, "%s", text);
    return !x->functions || open_calls(x, a, why);
}

/* Into the list of jobs, before it is submitted; and afterwards. */
static void enter_job(struct stream *x, struct answer *a, uint32_t n_prompt)
{
    a->place.view = (struct job_view){
        .state = JOB_QUEUED, .priority = x->q.priority, .n_prompt = n_prompt, .queued_ns = x->arrived_ns
    };
    memcpy(a->place.view.id, a->job_id, sizeof a->place.view.id);
    memcpy(a->place.owner, serve_caller(x->r)->who.self, sizeof a->place.owner);
    job_log_enter(x->s->jobs, &a->place);
}

static void follow_job(struct stream *x, struct answer *a)
{
    x->jobs[a->index] = a->job;
    job_log_follow(x->s->jobs, &a->place, a->job);
    narrate_state(x, a, "queued");
}

static bool submit(struct stream *x, struct answer *a, struct refusal *why)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    uint32_t ends[SAMPLER_MAX_ENDS];
    const struct stream_prompt *p = prompt_of(x, a);
    const struct answer *first = &x->answers[a->prompt * x->each];
    struct sampler_params params = x->q.params;
    struct sampler_constraint constraint = { 0 };
    const struct gate_caller *who = &serve_caller(x->r)->who;
    uint8_t digest[ENGINE_DIGEST];
    params.seed = a->seed;
    if (!answer_constrain(x, &constraint, why)) return false;
    const bool again = x->s->o->engine.completion_bytes && may_come_again(x),
               known = again && constraint.mask && answer_digest(x, digest);
    const struct engine_job spec = { .id = a->job_id,
                                     .prompt = p->ids.ids,
                                     .n_prompt = (uint32_t)p->ids.n,
                                     .max_tokens = x->q.max_tokens ? x->q.max_tokens : 1,
                                     .ends = ends,
                                     .n_ends = find_ends(x, ends),
                                     .params = &params,
                                     .priority = x->q.priority,
                                     .owner = who->owner,
                                     .salt = { { who->salt[0], who->salt[1] } },
                                     .deadline_ns = x->deadline_ns,
                                     .constraint = constraint.mask ? &constraint : NULL,
                                     .constraint_digest = known ? digest : NULL,
                                     .no_completion = !again,
                                     .keep = transfer_keeps(x, a),
                                     .probs = x->probs && x->q.max_tokens,
                                     .top_n = x->top,
                                     .prompt_probs = x->prompt_probs && a == first,
                                     .prompt_top_n = x->prompt_top,
                                     .progress = x->progress && x->form->progress,
                                     .after = a == first ? NULL : first->job,
                                     .beside = a->index ? x->answers[0].job : NULL };
    if (!open_text(x, a, why)) {
        constraint_close(&constraint);
        return false;
    }
    enter_job(x, a, spec.n_prompt);
    const enum submit_refusal refusal = engine_submit(x->m->engine, &spec, &a->job, &err);
    if (refusal) {
        constraint_close(&constraint);
        job_log_leave(x->s->jobs, &a->place, NULL);
        return refuse_job(x, refusal, text, why);
    }
    follow_job(x, a);
    return true;
}

/* All prompts as the texts of one job. */
static bool submit_texts(struct stream *x, struct refusal *why)
{
    char text[512] = "";
    struct answer *a = &x->answers[0];
    const struct gate_caller *who = &serve_caller(x->r)->who;
    const size_t n = stream_tokens_in(x, a), bytes = (n + 2ull * x->n_prompts) * sizeof(uint32_t),
                 rows = (size_t)x->n_prompts * x->m->facts.width * sizeof(float);
    if (!http_reserve(x->r, bytes * 2 + rows)) return false;
    uint32_t *ids = n < UINT32_MAX ? malloc(bytes) : NULL, *ends = ids ? ids + n : NULL,
             *seconds = ids ? ends + x->n_prompts : NULL, at = 0;
    if (!ids) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the texts");
    for (uint32_t i = 0; i < x->n_prompts; ends[i++] = at) {
        memcpy(ids + at, x->prompts[i].ids.ids, x->prompts[i].ids.n * sizeof *ids);
        seconds[i] = x->prompts[i].second;
        at += (uint32_t)x->prompts[i].ids.n;
    }
    const struct engine_job spec = { .id = a->job_id,
                                     .prompt = ids,
                                     .n_prompt = at,
                                     .text_ends = ends,
                                     .n_texts = x->n_prompts,
                                     .text_seconds = seconds,
                                     .priority = x->q.priority,
                                     .owner = who->owner,
                                     .deadline_ns = x->deadline_ns };
    enter_job(x, a, spec.n_prompt);
    const enum submit_refusal refusal =
        engine_submit(x->m->engine, &spec, &a->job, &(struct wk_err){ text, sizeof text });
    free(ids);
    if (refusal) {
        job_log_leave(x->s->jobs, &a->place, NULL);
        return refuse_job(x, refusal, text, why);
    }
    follow_job(x, a);
    return true;
}

/* Nobody will hear of them: the request was refused. */
static void take_back(struct stream *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        job_log_leave(x->s->jobs, &x->answers[i].place, NULL);
        job_cancel(x->answers[i].job);
    }
}

static bool submit_all(struct stream *x, struct refusal *why)
{
    const uint32_t most = x->s->o->engine.max_sequences + x->s->o->engine.max_queue;
    if (x->embeds) return submit_texts(x, why);
    transfer_begin(x);
    if (x->n_answers > most)
        return refuse(
            why, SERVE_INVALID_REQUEST, x->form->field,
            "%s: expected at most %u answers in all, as many as --max-sequences and --max-queue allow, got %u",
            x->form->field, most, x->n_answers);
    for (uint32_t i = 0; i < x->n_answers; i++) {
        if (submit(x, &x->answers[i], why)) continue;
        take_back(x, i);
        return false;
    }
    return true;
}

static void forget_ids(struct stream *x)
{
    for (uint32_t i = 0; i < x->n_prompts; i++) {
        free(x->prompts[i].ids.ids);
        x->prompts[i].ids.ids = NULL; /* how many there were is told at the end */
    }
}

/* Bytes that log probabilities take until the request ends: in its jobs, and, of prompts, in what is told of them. */
static size_t probs_bytes(const struct stream *x)
{
    enum { EACH = sizeof(struct sampler_prob), TOLD = 64 };
    size_t bytes = 0;
    for (uint32_t i = 0; x->prompt_probs && i < x->n_prompts; i++)
        bytes += x->prompts[i].ids.n * (1 + x->prompt_top) * (EACH + TOLD);
    for (uint32_t i = 0; x->probs && i < x->n_answers; i++) {
        const size_t room = x->m->facts.context - prompt_of(x, &x->answers[i])->ids.n;
        bytes += (room < x->q.max_tokens ? room : x->q.max_tokens) * (1 + x->top) * EACH;
    }
    return bytes;
}

/* The request was read, and its jobs are there. */
static void begin_answer(struct stream *x)
{
    x->form->release(x);
    if (!x->form->keeps_ids) forget_ids(x);
    work_close(x->work);
    x->head_ns = serve_now_ns() + HEAD_MS * 1000000ull;
    if (!http_reserve(x->r, probs_bytes(x))) stream_told(x); /* that there is no memory for it was answered */
}

bool stream_suits(const struct serve_model *m, bool embeds, struct refusal *why)
{
    if (embeds == (m->facts.width != 0)) return true;
    return embeds
               ? refuse(why, SERVE_INVALID_REQUEST, "model",
                        "model: %s generates text; embeddings and scores need a model that is made for them; a worker "
                        "started with --pooling mean, first or last gives embeddings of this one",
                        m->name)
               : refuse(why, SERVE_INVALID_REQUEST, "model", "model: %s generates no text: it gives %s; use POST %s",
                        m->name, m->facts.ranks ? "scores" : "embeddings",
                        m->facts.ranks ? "/v1/rerank" : "/v1/embeddings");
}

void stream_run(struct stream *x, const char *prefix)
{
    struct refusal why = { 0 };
    if (choose(x, prefix, &why) && read_deadline(x, http_header(x->r, "X-Deadline"), &why) &&
        (x->m = serve_ready(x->s, &why)) && stream_suits(x->m, x->embeds, &why) && check_handle(x, &why) &&
        transfer_may(x, &why) && answer_make_grammar(x, &why) && make_prompts(x, &why) && caller_may_begin(x, &why) &&
        submit_all(x, &why)) {
        caller_rates(x, true);
        begin_answer(x);
        follow(x);
    } else {
        caller_rates(x, false);
        if (x->form->refused) x->form->refused(x, &why);
        if (why.text[0]) serve_refuse(x->s, x->r, &why); /* else it was answered: there is no memory */
    }
    for (uint32_t i = 0; i < x->n_answers; i++) {
        job_release(x->answers[i].job);
        token_text_close(x->answers[i].text);
        output_filter_close(x->answers[i].filter);
    }
    transfer_close(x);
    for (uint32_t i = 0; x->prompts && i < x->n_prompts; i++) tokens_free(&x->prompts[i].ids);
    http_text_free(&x->line);
    grammar_close(x->formed);
    grammar_close(x->header);
    blocklist_free(x->list);
    free(x->prompts);
    free(x->answers);
    free(x->jobs);
}
