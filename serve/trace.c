/* trace.c: see trace.h. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caller.h"
#include "gate/fetch.h"
#include "inside.h"
#include "log_names.h"
#include "stream.h"

enum { SEND_MS = 5000, ANSWER_MOST = 64 << 10 };

/* [the exporter's thread] */
static bool post(void *user, const char *url, const char *body, size_t n)
{
    const struct fetch_request request = { .method = "POST",
                                           .url = url,
                                           .content_type = "application/json",
                                           .body = body,
                                           .body_len = n,
                                           .timeout_ms = SEND_MS,
                                           .most_bytes = ANSWER_MOST };
    struct fetch_answer answer = { 0 };
    const bool taken = !fetch_do(user, &request, &answer, NULL) && answer.status / 100 == 2;
    fetch_answer_free(&answer);
    return taken;
}

wk_status trace_open(struct serve *s, const struct wk_err *err)
{
    const struct otlp_resource who = { .worker_id = s->o->worker_id, .version = WORKER_VERSION };
    return s->o->otlp_url ? otlp_open(s->o->otlp_url, &who, post, s->fetch, &s->otlp, err) : WK_OK;
}

void trace_begin(struct serve *s, struct http_request *r)
{
    char word[LOG_WORD];
    struct serve_caller *c = serve_caller(r);
    if (!s->otlp) return;
    struct otlp_record *t = calloc(1, sizeof *t);
    if (t && otlp_begin(http_trace(r), &t->context) && t->context.sampled) {
        t->arrived_ns = c->begun_ns;
        (void)snprintf(t->method, sizeof t->method, "%s", http_method(r));
        (void)snprintf(t->route, sizeof t->route, "%s", serve_log_path(http_path(r), word));
        c->trace = t;
    } else {
        free(t);
    }
}

/* What is known of the whole request, for the record of one answer. */
static void name_answer(const struct stream *x, const struct answer *a, const struct ending *e, struct otlp_record *t)
{
    (void)snprintf(t->model, sizeof t->model, "%.127s", x->m->name);
    (void)snprintf(t->key_id, sizeof t->key_id, "%.63s", serve_caller(x->r)->who.id);
    (void)snprintf(t->job_id, sizeof t->job_id, "%s", a->job_id);
    (void)snprintf(t->finish_reason, sizeof t->finish_reason, "%s", e->good ? e->reason : "");
    (void)snprintf(t->error, sizeof t->error, "%s", e->good ? "" : serve_codes[e->why.code].name);
    otlp_take_job(t, a->job);
}

void trace_answer(struct stream *x, const struct answer *a, const struct ending *e)
{
    struct otlp_record *t = serve_caller(x->r)->trace;
    if (!t) return;
    if (!t->job) {
        name_answer(x, a, e, t);
        return;
    }
    struct otlp_record *more = calloc(1, sizeof *more);
    if (!more) return;
    more->context = t->context;
    more->answer_only = true;
    name_answer(x, a, e, more);
    otlp_offer(x->s->otlp, more);
    free(more);
}

void trace_over(struct serve *s, struct http_request *r)
{
    struct serve_caller *c = serve_caller(r);
    struct otlp_record *t = c->trace;
    if (!t) return;
    t->status = http_status(r);
    t->answered_ns = serve_now_ns();
    if (c->code && !t->error[0]) (void)snprintf(t->error, sizeof t->error, "%s", c->code);
    if (!c->open || t->status >= 400) otlp_offer(s->otlp, t); /* probes come every second, and say nothing */
    free(t);
    c->trace = NULL;
}

bool trace_parent(struct http_request *r, char out[HTTP_TRACE_BYTES + 1])
{
    const struct otlp_record *t = serve_caller(r)->trace;
    const char *came = http_trace(r);
    if (t)
        otlp_traceparent(&t->context, out);
    else if (came)
        (void)snprintf(out, HTTP_TRACE_BYTES + 1, "%s", came);
    return t || came;
}
