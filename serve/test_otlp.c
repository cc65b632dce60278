/* test_otlp.c: traces as OTLP's JSON has them, and the exporter's queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <pthread.h>

#include "otlp.h"

#include <cmocka.h>

static const char parent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
static const struct otlp_resource who = { "3f6c9f0e-0000-4000-8000-000000000001", "1.2" };

static struct otlp_record record(const char *traceparent)
{
    struct otlp_record r = { .method = "POST",
                             .route = "/v1/chat/completions",
                             .model = "ha\"iku",
                             .key_id = "key-1",
                             .job_id = "job-1",
                             .finish_reason = "stop",
                             .status = 200,
                             .arrived_ns = 1000,
                             .answered_ns = 9000,
                             .job = true,
                             .f = { .n_prompt = 12,
                                    .n_cached = 4,
                                    .n_generated = 5,
                                    .yields = 1,
                                    .queued_ns = 2000,
                                    .started_ns = 3000,
                                    .first_token_ns = 4000,
                                    .last_token_ns = 7000,
                                    .ended_ns = 8000 },
                             .n_turns = 2,
                             .turns = { { TURN_YIELDED, 5000 }, { TURN_RESUMED, 6000 } } };
    assert_true(otlp_begin(traceparent, &r.context));
    return r;
}

/* The spans of an export of n records, which the caller releases with *all. */
static const json_t *spans_of(const struct otlp_record *r, size_t n, json_t **all)
{
    struct http_text out = { 0 };
    json_error_t error;
    otlp_put(&out, &who, r, n, 1700000000000000000);
    assert_false(out.failed);
    *all = json_loadb(out.data, out.n, JSON_REJECT_DUPLICATES, &error);
    if (!*all) fail_msg("%s: %.*s", error.text, (int)out.n, out.data);
    http_text_free(&out);
    const json_t *of = json_array_get(json_object_get(*all, "resourceSpans"), 0),
                 *scope = json_array_get(json_object_get(of, "scopeSpans"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(scope, "scope"), "name")), "worker");
    return json_object_get(scope, "spans");
}

static const json_t *value_of(const json_t *attributes, const char *key)
{
    size_t i;
    json_t *a;
    json_array_foreach ((json_t *)(uintptr_t)attributes, i, a)
        if (strcmp(json_string_value(json_object_get(a, "key")), key) == 0) return json_object_get(a, "value");
    return NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void expect(const json_t *span, const char *key, const char *kind, const char *value)
{
    assert_string_equal(text_of(value_of(json_object_get(span, "attributes"), key), kind), value);
}

static void test_request(void **state)
{
    (void)state;
    json_t *all;
    const struct otlp_record r = record(parent);
    const json_t *spans = spans_of(&r, 1, &all), *span = json_array_get(spans, 0);
    const json_t *resource = json_object_get(json_array_get(json_object_get(all, "resourceSpans"), 0), "resource");
    expect(resource, "service.name", "stringValue", "worker");
    expect(resource, "service.version", "stringValue", who.version);
    expect(resource, "service.instance.id", "stringValue", who.worker_id);
    assert_int_equal(json_array_size(spans), 4);
    assert_string_equal(text_of(span, "traceId"), "0af7651916cd43dd8448eb211c80319c");
    assert_string_equal(text_of(span, "parentSpanId"), "b7ad6b7169203331");
    assert_int_equal(strlen(text_of(span, "spanId")), 16);
    assert_string_equal(text_of(span, "name"), "POST /v1/chat/completions");
    assert_int_equal(json_integer_value(json_object_get(span, "kind")), 2);
    assert_string_equal(text_of(span, "startTimeUnixNano"), "1700000000000001000");
    assert_string_equal(text_of(span, "endTimeUnixNano"), "1700000000000009000");
    expect(span, "http.response.status_code", "intValue", "200");
    expect(span, "gen_ai.request.model", "stringValue", "ha\"iku");
    expect(span, "gen_ai.usage.input_tokens", "intValue", "12");
    expect(span, "gen_ai.usage.output_tokens", "intValue", "5");
    expect(span, "worker.tokens_cached", "intValue", "4");
    expect(span, "worker.key_id", "stringValue", "key-1");
    const json_t *reasons =
        json_object_get(value_of(json_object_get(span, "attributes"), "gen_ai.response.finish_reasons"), "arrayValue");
    assert_string_equal(text_of(json_array_get(json_object_get(reasons, "values"), 0), "stringValue"), "stop");
    assert_true(json_is_false(
        json_object_get(value_of(json_object_get(span, "attributes"), "worker.completion_hit"), "boolValue")));
    assert_null(json_object_get(span, "status"));
    const json_t *events = json_object_get(span, "events");
    assert_int_equal(json_array_size(events), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *e = json_array_get(events, i);
        assert_string_equal(text_of(e, "name"), i ? "scheduler.fairness.resume" : "scheduler.fairness.yield");
        assert_string_equal(text_of(e, "timeUnixNano"), i ? "1700000000000006000" : "1700000000000005000");
    }
    json_decref(all);
}

/* Parts are the request's children, one after the other; those that never came are left out. */
static void test_parts(void **state)
{
    (void)state;
    static const char *const names[] = { "queue", "prefill", "decode" };
    struct otlp_record r[3] = { record(NULL), record(NULL), record(NULL) };
    json_t *all;
    const json_t *spans = spans_of(r, 1, &all), *request = json_array_get(spans, 0);
    assert_null(json_object_get(request, "parentSpanId"));
    for (size_t i = 0; i < 3; i++) {
        const json_t *span = json_array_get(spans, 1 + i);
        char from[32], to[32];
        (void)snprintf(from, sizeof from, "170000000000000%zu000", 2 + i);
        (void)snprintf(to, sizeof to, "170000000000000%zu000", i < 2 ? 3 + i : 8);
        assert_string_equal(text_of(span, "name"), names[i]);
        assert_int_equal(json_integer_value(json_object_get(span, "kind")), 1);
        assert_string_equal(text_of(span, "traceId"), text_of(request, "traceId"));
        assert_string_equal(text_of(span, "parentSpanId"), text_of(request, "spanId"));
        assert_string_equal(text_of(span, "startTimeUnixNano"), from);
        assert_string_equal(text_of(span, "endTimeUnixNano"), to);
        for (size_t k = 0; k < 1 + i; k++)
            assert_string_not_equal(text_of(span, "spanId"), text_of(json_array_get(spans, k), "spanId"));
    }
    json_decref(all);
    /* Another answer of the same request; one that waited until its deadline; one that was refused. */
    r[1].context = r[0].context;
    r[1].answer_only = true;
    (void)strcpy(r[1].job_id, "job-1.1");
    r[2].f.started_ns = r[2].f.first_token_ns = r[2].f.last_token_ns = 0;
    r[2].finish_reason[0] = '\0';
    (void)strcpy(r[2].error, "INFERENCE_TIMEOUT");
    spans = spans_of(r, 3, &all);
    assert_int_equal(json_array_size(spans), 4 + 3 + 2);
    for (size_t i = 1; i < 7; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(text_of(json_array_get(spans, i), "spanId"),
                                    text_of(json_array_get(spans, k), "spanId"));
    const json_t *late = json_array_get(spans, 7), *status = json_object_get(late, "status");
    assert_int_equal(json_integer_value(json_object_get(status, "code")), 2);
    assert_string_equal(text_of(status, "message"), "INFERENCE_TIMEOUT");
    expect(late, "error.type", "stringValue", "INFERENCE_TIMEOUT");
    assert_string_equal(text_of(json_array_get(spans, 8), "endTimeUnixNano"), "1700000000000008000");
    json_decref(all);
    r[2].job = false;
    spans = spans_of(&r[2], 1, &all);
    assert_int_equal(json_array_size(spans), 1);
    json_decref(all);
    r[0].f.completion_hit = true;
    spans = spans_of(r, 1, &all);
    assert_int_equal(json_array_size(spans), 1);
    json_decref(all);
}

static void test_context(void **state)
{
    (void)state;
    struct otlp_context c, other;
    char text[HTTP_TRACE_BYTES + 1];
    assert_true(otlp_begin(parent, &c));
    assert_true(c.sampled && c.has_parent);
    otlp_traceparent(&c, text);
    assert_int_equal(strlen(text), HTTP_TRACE_BYTES);
    assert_memory_equal(text, parent, 36);
    assert_memory_not_equal(text, parent, 52);
    assert_string_equal(text + 52, "-01");
    assert_true(otlp_begin(text, &other));
    assert_memory_equal(other.trace, c.trace, sizeof c.trace);
    assert_memory_equal(other.parent, c.span, sizeof c.span);
    assert_true(otlp_begin("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", &c));
    assert_false(c.sampled);
    assert_true(otlp_begin(NULL, &c) && otlp_begin(NULL, &other));
    assert_true(c.sampled && !c.has_parent);
    assert_memory_not_equal(c.trace, other.trace, sizeof c.trace);
    assert_memory_not_equal(c.span, other.span, sizeof c.span);
}

/* ---- the exporter -------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, refuse, wrong;
    uint32_t bodies, requests;
} collector = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* Waits until it is open. */
static bool collect(void *user, const char *url, const char *body, size_t n)
{
    json_t *all = json_loadb(body, n, 0, NULL);
    (void)pthread_mutex_lock(&collector.lock);
    collector.wrong = collector.wrong || !all || strcmp(url, user) != 0;
    collector.bodies++;
    (void)pthread_cond_broadcast(&collector.changed);
    while (!collector.open) (void)pthread_cond_wait(&collector.changed, &collector.lock);
    const json_t *of = json_array_get(json_object_get(all, "resourceSpans"), 0),
                 *spans = json_object_get(json_array_get(json_object_get(of, "scopeSpans"), 0), "spans");
    collector.requests += (uint32_t)json_array_size(spans);
    const bool taken = !collector.refuse;
    (void)pthread_mutex_unlock(&collector.lock);
    json_decref(all);
    return taken;
}

static void set_open(bool open)
{
    (void)pthread_mutex_lock(&collector.lock);
    collector.open = open;
    (void)pthread_cond_broadcast(&collector.changed);
    (void)pthread_mutex_unlock(&collector.lock);
}

/* While the collector takes nothing, one batch is under way, a queue waits, and what comes besides is dropped. */
static void test_queue(void **state)
{
    (void)state;
    enum { MORE = 10 };
    char url[] = "http://collector:4318/v1/traces", text[256];
    struct otlp *o;
    struct otlp_counts counts;
    struct otlp_record r = record(NULL), unsampled = record("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    r.job = false;
    assert_int_equal(otlp_open("http://collector:4318/", &who, collect, url, &o, NULL), WK_OK);
    for (uint32_t i = 0; i < OTLP_BATCH; i++) otlp_offer(o, &r);
    (void)pthread_mutex_lock(&collector.lock);
    while (!collector.bodies) (void)pthread_cond_wait(&collector.changed, &collector.lock);
    (void)pthread_mutex_unlock(&collector.lock);
    for (uint32_t i = 0; i < OTLP_QUEUE + MORE; i++) otlp_offer(o, &r);
    otlp_offer(o, &unsampled);
    otlp_counts(o, &counts);
    assert_true(counts.sent == 0 && counts.dropped >= MORE);
    const uint64_t dropped = counts.dropped;
    set_open(true);
    otlp_close(o);
    assert_int_equal(collector.requests + dropped, OTLP_BATCH + OTLP_QUEUE + MORE);
    /* What is not taken is counted; nothing waits for an exporter that is not there. */
    collector.refuse = true;
    assert_int_equal(otlp_open("http://collector:4318", &who, collect, url, &o, NULL), WK_OK);
    otlp_offer(o, &r);
    while (otlp_counts(o, &counts), !counts.dropped) (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    assert_int_equal(counts.sent, 0);
    otlp_close(o);
    assert_false(collector.wrong);
    otlp_offer(NULL, &r);
    otlp_close(NULL);
    static const char *const bad[] = { "",         "collector:4318", "ftp://x",   "http://",
                                       "http:///", "http://a b",     "http://a?b" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(otlp_open(bad[i], &who, collect, url, &o, &(struct wk_err){ text, sizeof text }), WK_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
