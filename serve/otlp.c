/* otlp.c: see otlp.h. The JSON form of OTLP: ids are hexadecimal, numbers of 64 bits are strings. */
#include "otlp.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/hex.h"
#include "base/monotonic.h"

/* ---- W3C trace context --------------------------------------------------------------------------------- */

/* No id is all zeros. */
static bool draw(uint8_t *out, size_t n)
{
    if (getrandom(out, n, 0) != (ssize_t)n) return false;
    out[0] |= 1;
    return true;
}

bool otlp_begin(const char *traceparent, struct otlp_context *out)
{
    *out = (struct otlp_context){ .sampled = true };
    if (!draw(out->span, sizeof out->span)) return false;
    if (!traceparent || strlen(traceparent) < HTTP_TRACE_BYTES) return draw(out->trace, sizeof out->trace);
    uint8_t flags;
    hex_read(traceparent + 3, sizeof out->trace, out->trace);
    hex_read(traceparent + 36, sizeof out->parent, out->parent);
    hex_read(traceparent + 53, 1, &flags);
    out->has_parent = true;
    out->sampled = flags & 1;
    return true;
}

void otlp_traceparent(const struct otlp_context *c, char out[HTTP_TRACE_BYTES + 1])
{
    char trace[33], span[17];
    hex_write(c->trace, sizeof c->trace, trace);
    hex_write(c->span, sizeof c->span, span);
    (void)snprintf(out, HTTP_TRACE_BYTES + 1, "00-%s-%s-0%d", trace, span, c->sampled);
}

/* ---- records ------------------------------------------------------------------------------------------- */

void otlp_take_job(struct otlp_record *r, const struct job *j)
{
    const uint32_t n = job_turns(j);
    r->job = true;
    r->n_turns = 0;
    job_figures(j, &r->f);
    for (uint32_t i = n > ENGINE_TURNS ? n - ENGINE_TURNS : 0; i < n; i++)
        if (job_turn(j, i, &r->turns[r->n_turns])) r->n_turns++;
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

struct writer {
    struct http_text *out;
    int64_t unix_ns;
    bool more; /* of the list that is being written: something stands in it */
};

static void comma(struct writer *w)
{
    if (w->more) http_text_add(w->out, ",", 1);
    w->more = true;
}

/* "": left out. */
static void put_text(struct writer *w, const char *key, const char *value)
{
    if (!value[0]) return;
    comma(w);
    http_text_format(w->out, "{\"key\":\"%s\",\"value\":{\"stringValue\":", key);
    http_text_json(w->out, value, strlen(value));
    http_text_format(w->out, "}}");
}

static void put_number(struct writer *w, const char *key, uint64_t value)
{
    comma(w);
    http_text_format(w->out, "{\"key\":\"%s\",\"value\":{\"intValue\":\"%" PRIu64 "\"}}", key, value);
}

static void put_flag(struct writer *w, const char *key, bool value)
{
    comma(w);
    http_text_format(w->out, "{\"key\":\"%s\",\"value\":{\"boolValue\":%s}}", key, value ? "true" : "false");
}

static void put_time(struct writer *w, const char *key, uint64_t ns)
{
    http_text_format(w->out, "\"%s\":\"%" PRIu64 "\"", key, (uint64_t)((int64_t)ns + w->unix_ns));
}

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };

/* {..., "attributes":[ */
static void begin_span(struct writer *w, const struct otlp_context *c, const uint8_t id[8], const uint8_t *parent,
                       const char *name, int kind)
{
    char hex[33];
    comma(w);
    hex_write(c->trace, sizeof c->trace, hex);
    http_text_format(w->out, "{\"traceId\":\"%s\",", hex);
    hex_write(id, 8, hex);
    http_text_format(w->out, "\"spanId\":\"%s\",", hex);
    if (parent) {
        hex_write(parent, 8, hex);
        http_text_format(w->out, "\"parentSpanId\":\"%s\",", hex);
    }
    http_text_format(w->out, "\"name\":");
    http_text_json(w->out, name, strlen(name));
    http_text_format(w->out, ",\"kind\":%d,\"attributes\":[", kind);
    w->more = false;
}

/* ], ..., behind which the span is open for events and status. A span never ends before it begins. */
static void put_times(struct writer *w, uint64_t from, uint64_t to)
{
    http_text_format(w->out, "],");
    put_time(w, "startTimeUnixNano", from);
    http_text_format(w->out, ",");
    put_time(w, "endTimeUnixNano", to > from ? to : from);
    w->more = true;
}

static void put_turns(struct writer *w, const struct otlp_record *r)
{
    if (!r->n_turns) return;
    http_text_format(w->out, ",\"events\":[");
    w->more = false;
    for (uint32_t i = 0; i < r->n_turns; i++) {
        const struct job_turn *t = &r->turns[i];
        comma(w);
        http_text_format(w->out, "{\"name\":\"scheduler.fairness.%s\",", t->kind == TURN_RESUMED ? "resume" : "yield");
        put_time(w, "timeUnixNano", t->at_ns);
        http_text_format(w->out, ",\"attributes\":[");
        w->more = false;
        put_flag(w, "worker.preempted", t->kind == TURN_PREEMPTED);
        http_text_format(w->out, "]}");
    }
    http_text_format(w->out, "]");
    w->more = true;
}

static void put_request(struct writer *w, const struct otlp_record *r)
{
    const struct otlp_context *c = &r->context;
    char name[sizeof r->method + sizeof r->route + 1];
    (void)snprintf(name, sizeof name, "%s %s", r->method, r->route);
    begin_span(w, c, c->span, c->has_parent ? c->parent : NULL, name, KIND_SERVER);
    put_text(w, "http.request.method", r->method);
    put_text(w, "http.route", r->route);
    put_number(w, "http.response.status_code", r->status > 0 ? (uint64_t)r->status : 0);
    put_text(w, "gen_ai.request.model", r->model);
    put_text(w, "worker.key_id", r->key_id);
    put_text(w, "worker.job_id", r->job_id);
    put_text(w, "error.type", r->error);
    if (r->finish_reason[0]) {
        comma(w);
        http_text_format(w->out, "{\"key\":\"gen_ai.response.finish_reasons\",\"value\":{\"arrayValue\":{\"values\":[{"
                                 "\"stringValue\":");
        http_text_json(w->out, r->finish_reason, strlen(r->finish_reason));
        http_text_format(w->out, "}]}}}");
    }
    if (r->job) {
        put_number(w, "gen_ai.usage.input_tokens", r->f.n_prompt);
        put_number(w, "gen_ai.usage.output_tokens", r->f.n_generated);
        put_number(w, "worker.tokens_cached", r->f.n_cached);
        put_number(w, "worker.preemptions", r->f.preemptions);
        put_number(w, "worker.yields", r->f.yields);
        put_flag(w, "worker.completion_hit", r->f.completion_hit);
    }
    put_times(w, r->arrived_ns, r->answered_ns);
    put_turns(w, r);
    if (r->error[0]) {
        http_text_format(w->out, ",\"status\":{\"code\":%d,\"message\":", STATUS_ERROR);
        http_text_json(w->out, r->error, strlen(r->error));
        http_text_format(w->out, "}");
    }
    http_text_format(w->out, "}");
}

/* A part of the job, below the request. Its id is made of the request's, its own number and its job's id: nobody else
 * names it. */
static void put_part(struct writer *w, const struct otlp_record *r, const char *name, uint32_t number, uint64_t from,
                     uint64_t to)
{
    uint64_t h = 0xcbf29ce484222325u + number;
    uint8_t id[8];
    if (!from) return;
    for (const char *c = r->job_id; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    h = (h ^ h >> 29) * 0xff51afd7ed558ccdu;
    for (uint32_t i = 0; i < 8; i++) id[i] = (uint8_t)(r->context.span[i] ^ h >> 8 * i);
    id[7] |= 1;
    begin_span(w, &r->context, id, r->context.span, name, KIND_INTERNAL);
    put_text(w, "worker.job_id", r->job_id);
    put_times(w, from, to);
    if (r->answer_only && number == 0) put_turns(w, r);
    http_text_format(w->out, "}");
}

static uint64_t first_of(uint64_t a, uint64_t b) { return a ? a : b; }

static void put_job(struct writer *w, const struct otlp_record *r)
{
    const struct job_figures *f = &r->f;
    if (f->completion_hit) return; /* it had none of these */
    put_part(w, r, "queue", 0, f->queued_ns, first_of(f->started_ns, f->ended_ns));
    put_part(w, r, "prefill", 1, f->started_ns, first_of(f->first_token_ns, f->ended_ns));
    put_part(w, r, "decode", 2, f->first_token_ns, first_of(f->ended_ns, f->last_token_ns));
}

void otlp_put(struct http_text *out, const struct otlp_resource *who, const struct otlp_record *r, size_t n,
              int64_t unix_ns)
{
    struct writer w = { .out = out, .unix_ns = unix_ns };
    http_text_format(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_text(&w, "service.name", "worker");
    put_text(&w, "service.version", who->version);
    put_text(&w, "service.instance.id", who->worker_id);
    http_text_format(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"worker\"},\"spans\":[");
    w.more = false;
    for (size_t i = 0; i < n; i++) {
        if (!r[i].answer_only) put_request(&w, &r[i]);
        if (r[i].job) put_job(&w, &r[i]);
    }
    http_text_format(out, "]}]}]}");
}

/* ---- the exporter -------------------------------------------------------------------------------------- */

struct otlp {
    char url[2048];
    struct otlp_resource who;
    otlp_send send;
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool stop;
    struct otlp_record *ring, *batch; /* [OTLP_QUEUE], [OTLP_BATCH]: the thread's */
    uint32_t first, n;
    struct otlp_counts counts;
};

static int64_t since_1970(void)
{
    struct timespec real, up;
    (void)clock_gettime(CLOCK_REALTIME, &real);
    (void)clock_gettime(CLOCK_MONOTONIC, &up);
    return ((int64_t)real.tv_sec - up.tv_sec) * 1000000000 + (real.tv_nsec - up.tv_nsec);
}

/* Until there is a batch, or what there is has waited long enough, or the end: how many are taken; 0: the end. */
static uint32_t take(struct otlp *o)
{
    bool late = false;
    (void)pthread_mutex_lock(&o->lock);
    while (!o->n && !o->stop) (void)pthread_cond_wait(&o->news, &o->lock);
    const struct timespec until = clock_in(CLOCK_MONOTONIC, OTLP_WAIT_MS);
    while (o->n < OTLP_BATCH && !o->stop && !late)
        late = pthread_cond_timedwait(&o->news, &o->lock, &until) == ETIMEDOUT;
    const uint32_t n = o->n < OTLP_BATCH ? o->n : OTLP_BATCH;
    for (uint32_t i = 0; i < n; i++) o->batch[i] = o->ring[(o->first + i) % OTLP_QUEUE];
    o->first = (o->first + n) % OTLP_QUEUE;
    o->n -= n;
    (void)pthread_mutex_unlock(&o->lock);
    return n;
}

static void *run(void *user)
{
    struct otlp *o = user;
    for (uint32_t n; (n = take(o));) {
        struct http_text body = { 0 };
        otlp_put(&body, &o->who, o->batch, n, since_1970());
        const bool sent = !body.failed && o->send(o->user, o->url, body.data, body.n);
        http_text_free(&body);
        (void)pthread_mutex_lock(&o->lock);
        *(sent ? &o->counts.sent : &o->counts.dropped) += n;
        if (!sent && o->stop) { /* the end does not wait for each that is left */
            o->counts.dropped += o->n;
            o->n = 0;
        }
        (void)pthread_mutex_unlock(&o->lock);
    }
    return NULL;
}

static wk_status make_url(struct otlp *o, const char *url, const struct wk_err *err)
{
    static const char path[] = "/v1/traces";
    size_t n = strlen(url);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return wk_fail(err, WK_INVALID, "the collector's url: expected http://HOST[:PORT] or https://HOST[:PORT]");
    for (const char *c = url; *c; c++)
        if (!isgraph((unsigned char)*c) || *c == '?' || *c == '#')
            return wk_fail(err, WK_INVALID, "the collector's url: expected no blanks, ? or #");
    while (n && url[n - 1] == '/') n--;
    if (n < 8 || n + sizeof path > sizeof o->url)
        return wk_fail(err, WK_INVALID, "the collector's url: expected a host and at most %zu bytes",
                       sizeof o->url - sizeof path);
    (void)snprintf(o->url, sizeof o->url, "%.*s%s", (int)n, url, path);
    return WK_OK;
}

static void free_all(struct otlp *o)
{
    free(o->ring);
    free(o->batch);
    (void)pthread_cond_destroy(&o->news);
    (void)pthread_mutex_destroy(&o->lock);
    free(o);
}

wk_status otlp_open(const char *url, const struct otlp_resource *who, otlp_send send, void *user, struct otlp **out,
                    const struct wk_err *err)
{
    struct otlp *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o || !cond_init_monotonic(&o->news)) {
        free(o);
        return wk_fail(err, WK_NO_MEMORY, "no memory for the exporter of traces");
    }
    (void)pthread_mutex_init(&o->lock, NULL);
    o->who = *who;
    o->send = send;
    o->user = user;
    o->ring = calloc(OTLP_QUEUE, sizeof *o->ring);
    o->batch = calloc(OTLP_BATCH, sizeof *o->batch);
    wk_status status = make_url(o, url, err);
    if (!status && (!o->ring || !o->batch)) status = wk_fail(err, WK_NO_MEMORY, "no memory for the exporter of traces");
    if (!status && pthread_create(&o->thread, NULL, run, o))
        status = wk_fail(err, WK_NO_MEMORY, "no thread for the exporter of traces");
    if (status)
        free_all(o);
    else
        *out = o;
    return status;
}

void otlp_offer(struct otlp *o, const struct otlp_record *r)
{
    if (!o || !r->context.sampled) return;
    (void)pthread_mutex_lock(&o->lock);
    if (o->n < OTLP_QUEUE)
        o->ring[(o->first + o->n++) % OTLP_QUEUE] = *r;
    else
        o->counts.dropped++;
    if (o->n == 1 || o->n == OTLP_BATCH) (void)pthread_cond_signal(&o->news);
    (void)pthread_mutex_unlock(&o->lock);
}

void otlp_counts(struct otlp *o, struct otlp_counts *out)
{
    (void)pthread_mutex_lock(&o->lock);
    *out = o->counts;
    (void)pthread_mutex_unlock(&o->lock);
}

void otlp_close(struct otlp *o)
{
    if (!o) return;
    (void)pthread_mutex_lock(&o->lock);
    o->stop = true;
    (void)pthread_cond_signal(&o->news);
    (void)pthread_mutex_unlock(&o->lock);
    (void)pthread_join(o->thread, NULL);
    free_all(o);
}
