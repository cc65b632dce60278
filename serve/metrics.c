/* metrics.c: GET /metrics in Prometheus' text format (docs/metrics.md has every name). A scrape copies the engine's
 * statistics once and formats them: no lock that the engine holds, no device call, so it may come every 50 ms. */
#include "gate/gate.h"
#include "inside.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "handover.h"
#include "log/log.h"
#include "ops.h"
#include "kv_events.h"
#include "otlp.h"

/* ---- counters that this file keeps --------------------------------------------------------------------- */

enum { STATUS_MAX = 600, DEADLINE_BUCKETS = 10 };
static _Atomic uint64_t answered[STATUS_MAX]; /* by HTTP status */
static const double deadline_bound[DEADLINE_BUCKETS - 1] = { 0, 0.1, 0.5, 1, 5, 10, 30, 60, 300 };
static _Atomic uint64_t deadline_count[DEADLINE_BUCKETS];
static _Atomic int64_t deadline_sum_us;
static _Atomic uint64_t tool_calls[2]; /* complete, malformed */

void metrics_answered(int status)
{
    if (status > 0 && status < STATUS_MAX) atomic_fetch_add_explicit(&answered[status], 1, memory_order_relaxed);
}

void metrics_tool_calls(uint32_t complete, uint32_t malformed)
{
    atomic_fetch_add_explicit(&tool_calls[0], complete, memory_order_relaxed);
    atomic_fetch_add_explicit(&tool_calls[1], malformed, memory_order_relaxed);
}

void metrics_deadline(double remaining_seconds)
{
    int i = 0;
    while (i < DEADLINE_BUCKETS - 1 && remaining_seconds > deadline_bound[i]) i++;
    const double bounded = remaining_seconds > 1e9 ? 1e9 : remaining_seconds < -1e9 ? -1e9 : remaining_seconds;
    atomic_fetch_add_explicit(&deadline_count[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&deadline_sum_us, (int64_t)(bounded * 1e6), memory_order_relaxed);
}

/* ---- the writer ---------------------------------------------------------------------------------------- */

/* # HELP and # TYPE of the family whose samples follow. */
static void family(struct http_text *t, const char *name, const char *type, const char *help)
{
    http_text_format(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value: backslash, quote and line end escaped. */
static void label(struct http_text *t, const char *name, const char *value, const char *before)
{
    http_text_format(t, "%s%s=\"", before, name);
    for (const char *c = value; *c; c++) {
        if (*c == '\\' || *c == '"') http_text_add(t, "\\", 1);
        if (*c == '\n')
            http_text_add(t, "\\n", 2);
        else
            http_text_add(t, c, 1);
    }
    http_text_add(t, "\"", 1);
}

static void number(struct http_text *t, double v)
{
    if (isinf(v))
        http_text_format(t, " %s\n", v > 0 ? "+Inf" : "-Inf");
    else if (v == floor(v) && fabs(v) < 1e15)
        http_text_format(t, " %.0f\n", v);
    else
        http_text_format(t, " %.9g\n", v);
}

static void whole(struct http_text *t, uint64_t v) { http_text_format(t, " %" PRIu64 "\n", v); }

static void gauge(struct http_text *t, const char *name, double v, const char *help)
{
    family(t, name, "gauge", help);
    http_text_format(t, "%s", name);
    number(t, v);
}

static void counter(struct http_text *t, const char *name, uint64_t v, const char *help)
{
    family(t, name, "counter", help);
    http_text_format(t, "%s", name);
    whole(t, v);
}

/* One sample with one label. */
static void labelled(struct http_text *t, const char *name, const char *key, const char *value, uint64_t v)
{
    http_text_format(t, "%s{", name);
    label(t, key, value, "");
    http_text_format(t, "}");
    whole(t, v);
}

static void histogram(struct http_text *t, const char *name, const struct engine_histogram *h, const char *help)
{
    uint64_t sum = 0;
    family(t, name, "histogram", help);
    for (uint32_t i = 0; i < ENGINE_BUCKETS; i++) {
        sum += h->count[i];
        if (i + 1 < ENGINE_BUCKETS)
            http_text_format(t, "%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name, engine_bucket(i), sum);
    }
    /* +Inf and the count are one number, whatever was being written while this copy was made. */
    http_text_format(t, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n", name, sum, name,
                     h->sum, name, sum);
}

/* What is counted here: count [n] by bound [n - 1]. label: key="value", or empty. */
static void buckets(struct http_text *t, const char *name, const char *label, const double *bound,
                    const _Atomic uint64_t *count, int n, double seconds)
{
    uint64_t sum = 0;
    const char *comma = label[0] ? "," : "", *open = label[0] ? "{" : "", *close = label[0] ? "}" : "";
    for (int i = 0; i < n - 1; i++) {
        sum += atomic_load_explicit(&count[i], memory_order_relaxed);
        http_text_format(t, "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, label, comma, bound[i], sum);
    }
    sum += atomic_load_explicit(&count[n - 1], memory_order_relaxed);
    http_text_format(t, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, label, comma, sum);
    http_text_format(t, "%s_sum%s%s%s %.6f\n", name, open, label, close, seconds);
    http_text_format(t, "%s_count%s%s%s %" PRIu64 "\n", name, open, label, close, sum);
}

/* ---- families ------------------------------------------------------------------------------------------ */

static void put_about(struct http_text *t, struct serve *s, const struct serve_model *m)
{
    char cuda[16] = "none";
    if (s->device && s->device->handle)
        (void)snprintf(cuda, sizeof cuda, "%u.%u", s->info.runtime / 1000, s->info.runtime % 1000 / 10);
    family(t, "worker_build_info", "gauge", "Version of the program and of the CUDA runtime that it uses; always 1.");
    http_text_format(t, "worker_build_info{");
    label(t, "version", WORKER_VERSION, "");
    label(t, "cuda", cuda, ",");
    http_text_format(t, "} 1\n");
    family(t, "worker_plugin_info", "gauge", "A loaded plugin and the SHA-256 of its file; always 1.");
    for (uint32_t i = 0; s->plugins && i < plugin_count(s->plugins); i++) {
        const struct plugin_entry *e = plugin_at(s->plugins, i);
        if (e->state != PLUGIN_LOADED) continue;
        http_text_format(t, "worker_plugin_info{");
        label(t, "id", e->note.id, "");
        label(t, "sha256", e->digest, ",");
        http_text_format(t, "} 1\n");
    }
    family(t, "worker_model_info", "gauge", "The model that is served; always 1, absent without a model.");
    if (!m) return;
    http_text_format(t, "worker_model_info{");
    label(t, "model", m->name, "");
    label(t, "architecture", m->facts.architecture, ",");
    label(t, "quant_kind", m->quant_kind, ",");
    label(t, "device", s->device_text ? s->device_text : "", ",");
    label(t, "fingerprint", m->fingerprint, ",");
    http_text_format(t, "} 1\n");
    if (m->facts.n_adapters) family(t, "worker_adapter_scale", "gauge", "How strong each adapter of --lora is.");
    for (uint32_t i = 0; i < m->facts.n_adapters; i++) {
        http_text_format(t, "worker_adapter_scale{");
        label(t, "adapter", gguf_path(m->facts.adapters[i].file), "");
        http_text_format(t, "} %.9g\n", m->facts.adapters[i].scale);
    }
}

static void put_life(struct http_text *t, struct serve *s, const struct serve_model *m, const struct engine_stats *e,
                     double now)
{
    struct serve_condition c;
    serve_condition(s, &c);
    gauge(t, "worker_healthy", c.healthy, "1 if /health says healthy.");
    gauge(t, "worker_ready", c.ready, "1 if /readyz says ready.");
    gauge(t, "worker_uptime_seconds", now - (double)s->started_ns * 1e-9, "Seconds since the process began.");
    gauge(t, "worker_startup_seconds", m ? s->startup_seconds : 0, "Seconds from the start to ready; 0 until then.");
    counter(t, "worker_log_lost_lines_total", log_lost(),
            "Lines for standard error that its reader did not take in time.");
    gauge(t, "worker_engine_idle_seconds",
          m && now > (double)e->progress_ns * 1e-9 ? now - (double)e->progress_ns * 1e-9 : 0,
          "Seconds since the engine's thread last did something; it does at least every second.");
}

static void put_memory(struct http_text *t, struct serve *s, const struct serve_model *m)
{
    struct device_memory d = { 0 };
    const bool gpu = m && m->facts.on_gpu;
    family(t, "worker_vram_bytes", "gauge", "Bytes of device memory that the model takes, by kind; 0 on a CPU.");
    for (int k = 0; k < MEMORY_KINDS; k++) {
        http_text_format(t, "worker_vram_bytes{");
        label(t, "kind", memory_kind_name((enum memory_kind)k), "");
        label(t, "quant_kind", m ? m->quant_kind : "", ",");
        http_text_format(t, "}");
        whole(t, gpu ? m->facts.bytes[k] : 0);
    }
    (void)serve_memory(s, &d);
    family(
        t, "worker_device_memory_bytes", "gauge",
        "The device's memory as last looked at; 0 on a CPU. overhead: neither free nor taken by this worker's model.");
    labelled(t, "worker_device_memory_bytes", "state", "total", d.total);
    labelled(t, "worker_device_memory_bytes", "state", "free", d.free);
    labelled(t, "worker_device_memory_bytes", "state", "taken", d.taken);
    labelled(t, "worker_device_memory_bytes", "state", "overhead", d.overhead);
}

static void put_requests(struct http_text *t, struct serve *s, const struct engine_stats *e)
{
    counter(t, "worker_requests_accepted_total", e->submitted, "Jobs that were queued.");
    family(t, "worker_requests_total", "counter", "Jobs that are over, by how they ended.");
    for (int i = 0; i < JOB_END_COUNT; i++)
        labelled(t, "worker_requests_total", "outcome", job_end_name((enum job_end)i), e->ended[i]);
    family(t, "worker_requests_refused_total", "counter",
           "Requests that a handler refused before a stream began, by error code.");
    for (int i = 0; i < SERVE_CODE_COUNT; i++)
        labelled(t, "worker_requests_refused_total", "code", serve_codes[i].name, atomic_load(&s->refused[i]));
    gauge(t, "worker_requests_queued", e->queued, "Jobs that wait.");
    gauge(t, "worker_requests_running", e->running, "Jobs that have begun and are not over.");
    gauge(t, "worker_requests_prefilling", e->prefilling, "Running jobs whose prompt is not all computed yet.");
    gauge(t, "worker_scheduler_queue_depth", e->queued,
          "The same as worker_requests_queued, under the name that autoscalers are given.");
    counter(t, "worker_prompt_tokens_total", e->prompt_tokens, "Prompt tokens of jobs that began.");
    counter(t, "worker_tokens_generated_total", e->generated_tokens, "Tokens generated.");
}

static void put_batches(struct http_text *t, const struct engine_stats *e)
{
    counter(t, "worker_steps_total", e->steps, "Steps of the engine.");
    counter(t, "worker_step_tokens_total", e->step_rows, "Tokens computed in steps, prompts and generated ones.");
    gauge(t, "worker_batch_size", e->batch_sequences, "Sequences of the last step.");
    gauge(t, "worker_batch_tokens", e->batch_rows, "Tokens of the last step.");
    histogram(t, "worker_queue_wait_seconds", &e->queue_seconds,
              "From the arrival of a job to the beginning of its prefill.");
    histogram(t, "worker_prefill_duration_seconds", &e->prefill_seconds,
              "From the beginning of a job's prefill to its first token.");
    histogram(t, "worker_time_to_first_token_seconds", &e->first_token_seconds,
              "From the arrival of a job to its first token.");
    histogram(t, "worker_inter_token_latency_seconds", &e->inter_token_seconds, "Between two tokens of a job.");
    histogram(t, "worker_mask_wait_seconds", &e->mask_wait_seconds,
              "Of steps with constrained jobs: from the ids that their masks follow from to the masks.");
    histogram(t, "worker_decode_duration_seconds", &e->decode_seconds, "From a job's first token to its end.");
    histogram(t, "worker_inference_duration_seconds", &e->job_seconds, "From the arrival of a job to its end.");
}

static void put_cache(struct http_text *t, const struct engine_stats *e)
{
    const uint64_t taken = e->pages_used + e->pages_cached;
    gauge(t, "worker_kv_cache_usage_ratio", e->usage,
          "Share of the KV pages that jobs hold, 0 to 1; with attention windows, of the layers where they hold most.");
    family(t, "worker_kv_cache_info", "gauge", "Tokens of a KV page and number of pages; always 1.");
    http_text_format(t, "worker_kv_cache_info{block_size=\"%d\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n", (int)KV_PAGE,
                     e->pages);
    family(t, "worker_kv_cache_pages", "gauge", "KV pages by state; used: by jobs, cached: by the prefix cache alone.");
    labelled(t, "worker_kv_cache_pages", "state", "used", e->pages_used);
    labelled(t, "worker_kv_cache_pages", "state", "cached", e->pages_cached);
    labelled(t, "worker_kv_cache_pages", "state", "free", e->pages > taken ? e->pages - taken : 0);
    counter(t, "worker_prefix_matched_tokens_total", e->cached_tokens,
            "Prompt tokens whose pages were found in the prefix cache.");
    counter(t, "worker_prefix_full_hits_total", e->prefix_full_hits,
            "Jobs with a prompt of more than a page, of which every whole page was found.");
    counter(t, "worker_prefix_partial_hits_total", e->prefix_partial_hits,
            "Jobs with a prompt of more than a page, of which some pages were found.");
    counter(t, "worker_prefix_misses_total", e->prefix_misses,
            "Jobs with a prompt of more than a page, of which nothing was found.");
    counter(t, "worker_prefix_evicted_pages_total", e->prefix_evicted_pages,
            "Pages that the prefix cache gave up for jobs.");
    counter(t, "worker_completion_cache_hits_total", e->completion_hits,
            "Jobs that the completion cache answered, without a step.");
    counter(t, "worker_completion_cache_misses_total", e->completion_misses,
            "Jobs that it could have answered, and whose answers it did not have.");
    counter(t, "worker_completion_cache_evicted_total", e->completion_evicted,
            "Answers that it gave up for newer ones.");
    gauge(t, "worker_completion_cache_bytes", (double)e->completion_bytes, "Host memory of the answers that it holds.");
    gauge(t, "worker_completion_cache_answers", (double)e->completions, "Answers that it holds.");
    counter(t, "worker_fairness_preemptions_total", e->preemptions,
            "Jobs whose place or pages were taken for one of higher priority; pages are computed again later.");
    counter(t, "worker_fairness_yields_total", e->yields,
            "Jobs that stepped back after their time slice, keeping their pages.");
    counter(t, "worker_fairness_resumes_total", e->resumes, "Jobs that went on after a preemption or a yield.");
    family(t, "worker_fairness_tokens_total", "counter", "Tokens generated, by priority class.");
    labelled(t, "worker_fairness_tokens_total", "priority", "high", e->high_tokens);
    labelled(t, "worker_fairness_tokens_total", "priority", "low", e->low_tokens);
}

/* A step runs the attention of every layer once: by the kernels for rows of prompts, or by those for generated rows. */
static void put_attention(struct http_text *t, const struct serve_model *m, const struct engine_stats *e)
{
    static const char name[] = "worker_attention_kernel_total";
    family(t, name, "counter", "Runs of attention, by layer and by kind of rows: generated ones, or those of prompts.");
    for (uint32_t layer = 0; m && layer < m->facts.attention_layers; layer++)
        for (int prompt = 0; prompt < 2; prompt++)
            http_text_format(t, "%s{layer=\"%u\",kind=\"%s\"} %" PRIu64 "\n", name, layer,
                             prompt ? "prompt" : "generated", prompt ? e->prompt_steps : e->steps - e->prompt_steps);
}

static void put_model(struct http_text *t, const struct serve_model *m, const struct engine_stats *e)
{
    uint64_t experts = 0;
    char key[TAPE_NAME + 24];
    if (m) {
        (void)snprintf(key, sizeof key, "%s.expert_used_count", m->facts.architecture);
        const struct gguf_kv *kv = gguf_find(m->facts.file, key);
        if (kv && gguf_u64(m->facts.file, kv, &experts, NULL)) experts = 0;
    }
    gauge(t, "worker_active_experts", (double)experts, "Experts that each token is routed to; 0 of a dense model.");
    counter(t, "worker_moe_requests_total", experts ? e->submitted : 0, "Jobs queued for a model with experts.");
    family(t, "worker_model_routes_total", "counter", "Jobs queued, by the model that serves them.");
    if (m) labelled(t, "worker_model_routes_total", "model", m->name, e->submitted);
    gauge(t, "worker_flash_attention_enabled", m && m->facts.on_gpu,
          "1 if attention is one fused kernel that never stores scores: on a GPU.");
}

static void put_tool_calls(struct http_text *t)
{
    static const char *const outcomes[] = { "complete", "malformed" };
    family(t, "worker_tool_calls_total", "counter", "Calls of functions in answers.");
    for (int i = 0; i < 2; i++)
        labelled(t, "worker_tool_calls_total", "outcome", outcomes[i],
                 atomic_load_explicit(&tool_calls[i], memory_order_relaxed));
}

static void put_deadlines(struct http_text *t)
{
    static const char name[] = "worker_deadline_remaining_seconds";
    family(t, name, "histogram", "Time that a request's X-Deadline left when it arrived.");
    buckets(t, name, "", deadline_bound, deadline_count, DEADLINE_BUCKETS,
            (double)atomic_load_explicit(&deadline_sum_us, memory_order_relaxed) * 1e-6);
}

static void put_http(struct http_text *t, const struct serve *s)
{
    struct http_counts c[2] = { 0 };
    const char *const port[2] = { "main", "admin" };
    if (s->main) http_counts(s->main, &c[0]);
    if (s->admin) http_counts(s->admin, &c[1]);
    family(t, "worker_http_requests_total", "counter", "Requests that came, by port.");
    for (int i = 0; i < 2; i++) labelled(t, "worker_http_requests_total", "port", port[i], c[i].requests);
    family(t, "worker_http_refused_total", "counter", "Requests that the guards refused before any handler, by port.");
    for (int i = 0; i < 2; i++) labelled(t, "worker_http_refused_total", "port", port[i], c[i].refused);
    family(t, "worker_http_streams_refused_total", "counter",
           "Streams, plans, commits and texts refused because --max-streams were open; on the admin port: because 4 "
           "were under way.");
    for (int i = 0; i < 2; i++) labelled(t, "worker_http_streams_refused_total", "port", port[i], c[i].streams_refused);
    family(t, "worker_http_connections", "gauge", "Open connections, by port.");
    for (int i = 0; i < 2; i++) labelled(t, "worker_http_connections", "port", port[i], c[i].connections);
    gauge(t, "worker_http_streams", c[0].streams, "Streams open now.");
    family(t, "worker_http_responses_total", "counter", "Answers by HTTP status.");
    for (int i = 0; i < STATUS_MAX; i++) {
        const uint64_t n = atomic_load_explicit(&answered[i], memory_order_relaxed);
        if (n) http_text_format(t, "worker_http_responses_total{code=\"%d\"} %" PRIu64 "\n", i, n);
    }
}

/* The model is one for the process's life, and "" before it is there. */
static void put_gate(struct http_text *t, const struct serve *s, const struct serve_model *m)
{
    struct gate_figures f;
    if (!s->gate) return;
    gate_figures(s->gate, &f);
    const struct {
        const char *reason;
        uint64_t n;
    } rows[] = { { "unauthorized", f.unauthorized }, { "attempts", f.attempts },
                 { "forbidden", f.forbidden },       { "rate", f.rate },
                 { "blocked", f.blocked },           { "unavailable", f.unavailable } };
    family(t, "worker_gate_refused_total", "counter", "Requests that the gate refused, by reason.");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        http_text_format(t, "worker_gate_refused_total{");
        label(t, "reason", rows[i].reason, "");
        label(t, "model", m ? m->name : "", ",");
        http_text_format(t, "}");
        whole(t, rows[i].n);
    }
    gauge(t, "worker_gate_keys", (double)f.keys, "API keys of the policy.");
    if (f.oidc) {
        gauge(t, "worker_oidc_keys", f.issuer.keys, "Keys of the issuer that tokens are verified by.");
        gauge(t, "worker_oidc_keys_age_seconds", (double)f.issuer.age_s, "Since they were fetched; -1: never.");
        counter(t, "worker_oidc_fetches_failed_total", f.issuer.failed, "Fetches of the issuer's keys that failed.");
    }
    if (!f.audit) return;
    counter(t, "worker_audit_lines_total", f.log.written, "Lines of the audit log.");
    counter(t, "worker_audit_dropped_total", f.log.dropped, "Lines of the audit log that could not be written.");
    gauge(t, "worker_audit_failing", f.log.failing, "1: the last line of the audit log could not be written.");
}

static void put_traces(struct http_text *t, const struct serve *s)
{
    struct otlp_counts c;
    if (!s->otlp) return;
    otlp_counts(s->otlp, &c);
    counter(t, "worker_traces_sent_total", c.sent, "Answers whose spans the collector of --otlp has taken.");
    counter(t, "worker_traces_dropped_total", c.dropped,
            "Answers whose spans were dropped: the collector was too slow, or did not take them.");
}

static void put_kv_events(struct http_text *t, const struct serve *s)
{
    struct kv_events_counts c;
    if (!s->kv_events) return;
    kv_events_counts(s->kv_events, &c);
    counter(t, "worker_kv_event_batches_total", c.batches, "Batches of cache events that were published.");
    counter(t, "worker_kv_event_restarts_total", c.starts - 1, "Restarts of the program that publishes cache events.");
}

static void put_transfers(struct http_text *t, struct handover *h)
{
    static const char name[] = "worker_kv_transfer_duration_seconds";
    char label[32];
    family(t, name, "histogram",
           "From the request for a prompt's pages until they were in the prefix cache, by how they came.");
    for (int way = 0; way < HANDOVER_WAYS; way++) {
        (void)snprintf(label, sizeof label, "backend=\"%s\"", handover_way_name((enum handover_way)way));
        buckets(t, name, label, handover_bound, h->count[way], HANDOVER_BUCKETS,
                (double)atomic_load(&h->us[way]) * 1e-6);
    }
}

/* Pages between workers: of a worker that hands some over, or pulls some. */
static void put_handover(struct http_text *t, const struct serve *s)
{
    struct leases_figures f;
    struct handover *h = s->handover;
    if (!h) return;
    leases_figures(h->leases, &f);
    put_transfers(t, h);
    family(t, "worker_kv_transfer_pulls_total", "counter",
           "Prompts whose pages were to be pulled, by what became of it.");
    for (int i = 0; i < PULL_RESULTS; i++)
        labelled(t, "worker_kv_transfer_pulls_total", "result", pull_result_name((enum pull_result)i),
                 atomic_load(&h->results[i]));
    family(t, "worker_kv_transfer_offers_total", "counter",
           "Prompts whose pages were to be handed over, by what became of it.");
    labelled(t, "worker_kv_transfer_offers_total", "result", "offered", f.offered);
    labelled(t, "worker_kv_transfer_offers_total", "result", "taken", f.taken);
    labelled(t, "worker_kv_transfer_offers_total", "result", "expired", f.expired);
    labelled(t, "worker_kv_transfer_offers_total", "result", "full", f.full);
    gauge(t, "worker_kv_transfer_waiting", f.waiting, "Prompts whose pages wait for a decode worker.");
    family(t, "worker_kv_transfer_bytes_total", "counter", "Bytes of pages between workers.");
    labelled(t, "worker_kv_transfer_bytes_total", "direction", "in", atomic_load(&h->bytes_in));
    labelled(t, "worker_kv_transfer_bytes_total", "direction", "out", atomic_load(&h->bytes_out));
}

/* ---- the process --------------------------------------------------------------------------------------- */

static uint32_t open_files(void)
{
    uint32_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d) return 0;
    for (const struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    (void)closedir(d);
    return n - 1; /* the folder's own */
}

/* Fields of /proc/self/stat behind the name, which may hold anything but ends with the last ')': threads (20), start in
 * ticks (22), bytes of address space (23), resident pages (24). */
static void put_process(struct http_text *t)
{
    char text[1024];
    unsigned long long threads = 0, start = 0, address_space = 0, resident = 0, boot = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) (void)fclose(f);
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    if (at)
        (void)sscanf(at + 1,
                     " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %llu %*d %llu %llu %llu",
                     &threads, &start, &address_space, &resident);
    struct timespec real, up;
    (void)clock_gettime(CLOCK_REALTIME, &real);
    (void)clock_gettime(CLOCK_BOOTTIME, &up);
    boot = (unsigned long long)(real.tv_sec - up.tv_sec);
    struct rlimit files = { 0 };
    (void)getrlimit(RLIMIT_NOFILE, &files);
    struct timespec cpu;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    family(t, "process_cpu_seconds_total", "counter", "Processor time, user and system.");
    http_text_format(t, "process_cpu_seconds_total %.6f\n", (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec);
    gauge(t, "process_resident_memory_bytes", (double)resident * (double)sysconf(_SC_PAGESIZE),
          "Memory that is resident.");
    gauge(t, "process_virtual_memory_bytes", (double)address_space, "Address space.");
    gauge(t, "process_start_time_seconds", (double)boot + (double)start / (double)sysconf(_SC_CLK_TCK),
          "Start of the process, seconds since 1970.");
    gauge(t, "process_threads", (double)threads, "Threads.");
    gauge(t, "process_open_fds", open_files(), "Open files.");
    gauge(t, "process_max_fds", (double)files.rlim_cur, "Files that may be open.");
}

/* ---- the endpoint -------------------------------------------------------------------------------------- */

static void metrics(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    struct engine_stats e = { 0 };
    struct http_text t = { 0 };
    if (m) engine_stats(m->engine, &e);
    put_about(&t, s, m);
    put_life(&t, s, m, &e, (double)serve_now_ns() * 1e-9);
    put_memory(&t, s, m);
    put_requests(&t, s, &e);
    put_batches(&t, &e);
    put_cache(&t, &e);
    put_model(&t, m, &e);
    put_attention(&t, m, &e);
    put_tool_calls(&t);
    put_deadlines(&t);
    put_http(&t, s);
    put_gate(&t, s, m);
    put_traces(&t, s);
    put_kv_events(&t, s);
    put_handover(&t, s);
    put_process(&t);
    if (t.failed)
        serve_refuse(s, r, &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for the answer" });
    else
        http_answer(r, 200, "text/plain; version=0.0.4; charset=utf-8", t.data, t.n);
    http_text_free(&t);
}

const struct http_route serve_metrics_routes[] = {
    { "GET", "/metrics", metrics, false },
    { "GET", "/worker/live", live_figures, false },
};
const uint32_t serve_n_metrics_routes = sizeof serve_metrics_routes / sizeof *serve_metrics_routes;
