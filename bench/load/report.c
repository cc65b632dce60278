/* report.c: series of seconds, and the report with the names of `vllm bench serve`, so that two servers can be laid
 * side by side. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"

double load_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t load_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double load_uniform(uint64_t *state) { return ((double)(load_random(state) >> 11) + 0.5) * 0x1p-53; }

bool series_add(struct series *s, double seconds)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap ? s->cap * 2 : 1024;
        float *v = realloc(s->v, cap * sizeof *v);
        if (!v) return false;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (float)seconds;
    return true;
}

void series_free(struct series *s)
{
    free(s->v);
    *s = (struct series){ 0 };
}

void results_count(struct results *r, const char *code)
{
    for (uint32_t i = 0; i < r->n_codes; i++) {
        if (strcmp(r->codes[i].code, code) != 0) continue;
        r->codes[i].n++;
        return;
    }
    if (r->n_codes == LOAD_MAX_CODES) return;
    (void)snprintf(r->codes[r->n_codes].code, sizeof r->codes[0].code, "%s", code);
    r->codes[r->n_codes++].n = 1;
}

void results_free(struct results *r)
{
    series_free(&r->ttft);
    series_free(&r->tpot);
    series_free(&r->itl);
    series_free(&r->e2el);
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Linear between neighbours, as numpy's percentile. v: ascending, n > 0. */
static double percentile(const float *v, size_t n, double p)
{
    const double at = p / 100.0 * (double)(n - 1);
    const size_t i = (size_t)at, next = i + 1 < n ? i + 1 : i;
    return (double)v[i] + (at - (double)i) * ((double)v[next] - (double)v[i]);
}

static void put(json_t *o, const char *what, const char *name, double seconds)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s_%s_ms", what, name);
    (void)json_object_set_new(o, key, json_real(round(seconds * 1e6) / 1e3)); /* microseconds are enough */
}

/* mean_, median_, std_, p95_, p99_ and max_ of a series; nothing of an empty one. */
static void put_series(json_t *o, const char *name, struct series *s)
{
    double sum = 0, square = 0;
    if (!s->n) return;
    qsort(s->v, s->n, sizeof *s->v, ascending);
    for (size_t i = 0; i < s->n; i++) sum += (double)s->v[i];
    const double mean = sum / (double)s->n;
    for (size_t i = 0; i < s->n; i++) square += ((double)s->v[i] - mean) * ((double)s->v[i] - mean);
    put(o, "mean", name, mean);
    put(o, "median", name, percentile(s->v, s->n, 50));
    put(o, "std", name, sqrt(square / (double)s->n));
    put(o, "p95", name, percentile(s->v, s->n, 95));
    put(o, "p99", name, percentile(s->v, s->n, 99));
    put(o, "max", name, (double)s->v[s->n - 1]);
}

json_t *load_report(const struct load_options *o, const struct results *r)
{
    struct results copy = *r; /* sorting the series in place is no loss: they are read here alone */
    json_t *errors = json_object();
    for (uint32_t i = 0; i < r->n_codes; i++)
        (void)json_object_set_new(errors, r->codes[i].code, json_integer((json_int_t)r->codes[i].n));
    const double t = r->seconds > 0 ? r->seconds : 1;
    json_t *out = json_pack(
        "{s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:f, s:f, s:f, s:o}", "url", o->url,
        "num_prompts", (json_int_t)o->requests, "max_concurrency", (json_int_t)o->concurrency, "request_rate", o->rate,
        "seed", (json_int_t)o->seed, "completed", (json_int_t)r->completed, "failed", (json_int_t)r->failed,
        "abandoned", (json_int_t)r->abandoned, "violations", (json_int_t)r->violations, "most_streams",
        (json_int_t)r->most_streams, "others", (json_int_t)r->others_open, "duration", r->seconds, "total_input_tokens",
        (json_int_t)r->input_tokens, "total_output_tokens", (json_int_t)r->output_tokens, "request_throughput",
        (double)r->completed / t, "output_throughput", (double)r->output_tokens / t, "total_token_throughput",
        (double)(r->input_tokens + r->output_tokens) / t, "errors", errors);
    if (!out) return NULL;
    put_series(out, "ttft", &copy.ttft);
    put_series(out, "tpot", &copy.tpot);
    put_series(out, "itl", &copy.itl);
    put_series(out, "e2el", &copy.e2el);
    if (r->n_codes) put(out, "max", "refusal", r->refused_slowest);
    if (r->violations) (void)json_object_set_new(out, "first_violation", json_string(r->first_violation));
    return out;
}
