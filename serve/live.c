/* live.c: GET /worker/live: what /metrics tells, once a second as an event, for the page's graphs.
 *
 * A stream holds a thread for as long as its page is open. So there are at most OPS_LIVE_MOST at once, for which the
 * main port has threads besides those of its other requests (serve.c); the admin port has none to spare and does not
 * have this route. A stream ends when its client leaves, when the worker drains, and after SAMPLES events: then the
 * page asks again, and a key that was taken back meanwhile shows nothing any more. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"
#include "ops.h"

enum { SAMPLES = 600, SECOND_MS = 1000, LOOK_MS = 50 };

static atomic_uint open_streams;

/* ---- what does not change: sent first, and again once a model is there ---------------------------------- */

static json_t *bytes_of(const struct model *m)
{
    json_t *o = json_object();
    for (int k = 0; k < MEMORY_KINDS; k++)
        (void)json_object_set_new(o, memory_kind_name((enum memory_kind)k), json_integer((json_int_t)m->plan.bytes[k]));
    (void)json_object_set_new(o, "total", json_integer((json_int_t)m->plan.total));
    return o;
}

static json_t *plugins_of(const struct serve *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; s->plugins && i < plugin_count(s->plugins); i++) {
        const struct plugin_entry *e = plugin_at(s->plugins, i);
        if (e->state == PLUGIN_LOADED)
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:s}", "id", e->note.id, "claims", e->claims, "sha256", e->digest));
    }
    return list;
}

/* The types that the model's weights have, and the plugins whose kernels compute with them. */
static json_t *kernels_of(const struct model *m)
{
    struct tape_capabilities c;
    json_t *list = json_array();
    tape_describe(m->program, &c);
    for (uint32_t i = 0; i < c.n_types; i++) {
        const struct wk_type_cpu *type = plugin_find_type(m->plugins, c.types[i], NULL);
        if (type)
            (void)json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "type", type->name, "bytes",
                                                        (json_int_t)c.type_bytes[i], "plugin",
                                                        plugin_type_owner(m->plugins, c.types[i])));
    }
    return list;
}

/* Upper bounds of the histograms' buckets but the last, which has none. */
static json_t *bounds(void)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i + 1 < ENGINE_BUCKETS; i++) (void)json_array_append_new(list, json_real(engine_bucket(i)));
    return list;
}

static bool send_about(struct http_request *r, const struct serve *s, const struct serve_model *m)
{
    json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:i}", "memory", m ? bytes_of(m->model) : json_null(), "plugins",
                          plugins_of(s), "kernels", m ? kernels_of(m->model) : json_array(), "bucket_seconds", bounds(),
                          "attention_layers", m ? (int)m->facts.attention_layers : 0);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    const bool sent = text && http_event(r, "about", text, strlen(text));
    json_decref(o);
    free(text);
    return sent;
}

/* ---- what does ------------------------------------------------------------------------------------------- */

static void put_histogram(struct http_text *t, const char *name, const struct engine_histogram *h)
{
    http_text_format(t, ",\"%s\":{\"sum\":%.9g,\"buckets\":[", name, h->sum);
    for (uint32_t i = 0; i < ENGINE_BUCKETS; i++) http_text_format(t, "%s%" PRIu64, i ? "," : "", h->count[i]);
    http_text_format(t, "]}");
}

/* Names are those of /metrics without worker_, and with the value of a label behind. */
static void put_sample(struct http_text *t, const struct serve *s, const struct engine_stats *e)
{
    const uint64_t taken = e->pages_used + e->pages_cached;
    const struct {
        const char *name;
        uint64_t n;
    } whole[] = { { "requests_queued", e->queued },
                  { "requests_running", e->running },
                  { "requests_prefilling", e->prefilling },
                  { "requests_accepted_total", e->submitted },
                  { "prompt_tokens_total", e->prompt_tokens },
                  { "tokens_generated_total", e->generated_tokens },
                  { "steps_total", e->steps },
                  { "step_tokens_total", e->step_rows },
                  { "batch_size", e->batch_sequences },
                  { "batch_tokens", e->batch_rows },
                  { "prefix_matched_tokens_total", e->cached_tokens },
                  { "prefix_full_hits_total", e->prefix_full_hits },
                  { "prefix_partial_hits_total", e->prefix_partial_hits },
                  { "prefix_misses_total", e->prefix_misses },
                  { "kv_cache_pages_used", e->pages_used },
                  { "kv_cache_pages_cached", e->pages_cached },
                  { "kv_cache_pages_free", e->pages > taken ? e->pages - taken : 0 },
                  { "prompt_steps_total", e->prompt_steps } };
    http_text_format(t, "{\"state\":\"%s\",\"uptime_seconds\":%.3f,\"kv_cache_usage_ratio\":%.9g",
                     serve_state_name(serve_state_of(s)), serve_seconds(serve_now_ns() - s->started_ns), e->usage);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        http_text_format(t, ",\"%s\":%" PRIu64, whole[i].name, whole[i].n);
    put_histogram(t, "time_to_first_token_seconds", &e->first_token_seconds);
    put_histogram(t, "inter_token_latency_seconds", &e->inter_token_seconds);
    http_text_add(t, "}", 1);
}

static bool send_sample(struct http_request *r, const struct serve *s, const struct serve_model *m, struct http_text *t)
{
    struct engine_stats e = { 0 };
    if (m) engine_stats(m->engine, &e);
    t->n = 0;
    put_sample(t, s, &e);
    return !t->failed && http_event(r, "sample", t->data, t->n);
}

/* ---- the stream ------------------------------------------------------------------------------------------ */

static bool is_over(const struct serve *s)
{
    const enum serve_state state = serve_state_of(s);
    return state == SERVE_DRAINING || state == SERVE_OVER;
}

/* Until the time for the next sample. False: nobody reads any more, or the worker ends. */
static bool rest(struct http_request *r, const struct serve *s, uint64_t until_ns)
{
    for (;;) {
        const uint64_t now = serve_now_ns();
        if (is_over(s) || !http_ping(r)) return false;
        if (now >= until_ns) return true;
        const uint64_t left_ms = (until_ns - now) / 1000000 + 1;
        (void)usleep((useconds_t)(left_ms < LOOK_MS ? left_ms : LOOK_MS) * 1000);
    }
}

static void follow(struct http_request *r, struct serve *s)
{
    struct http_text t = { 0 };
    const struct serve_model *told = NULL;
    uint64_t next_ns = serve_now_ns();
    if (!http_stream_begin(r, HTTP_EVENTS)) return;
    for (int i = 0; i < SAMPLES; i++) {
        const struct serve_model *m = atomic_load(&s->model);
        if ((!i || m != told) && !send_about(r, s, m)) break;
        told = m;
        if (!send_sample(r, s, m, &t)) break;
        next_ns += SECOND_MS * UINT64_C(1000000);
        if (!rest(r, s, next_ns)) break;
    }
    http_text_free(&t);
}

void live_figures(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct refusal why = { 0 };
    if (atomic_fetch_add(&open_streams, 1) < OPS_LIVE_MOST) {
        follow(r, s);
    } else {
        (void)refuse(&why, SERVE_QUEUE_FULL, NULL, "%d streams of live figures are open, as many as may be at once",
                     (int)OPS_LIVE_MOST);
        serve_refuse(s, r, &why);
    }
    atomic_fetch_sub(&open_streams, 1);
}
