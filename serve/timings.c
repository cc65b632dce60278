/* timings.c: see timings.h. */
#include "timings.h"

/* n: how many there are; steps: how many of them the time was for. */
static void put_speed(struct http_text *out, const char *what, uint32_t n, uint32_t steps, double ms)
{
    http_text_format(out, ",\"%s_n\":%u,\"%s_ms\":%.6f,\"%s_per_token_ms\":%.6f,\"%s_per_second\":%.6f", what, n, what,
                     ms, what, steps ? ms / steps : 0.0, what, ms > 0 ? steps * 1e3 / ms : 0.0);
}

static void put(struct http_text *out, const struct job_figures *f, uint32_t n_read, double read_ms, uint32_t n_ids,
                double ids_ms)
{
    http_text_format(out, ",\"timings\":{\"cache_n\":%u", f->n_cached);
    put_speed(out, "prompt", n_read, n_read, read_ms);
    put_speed(out, "predicted", n_ids, n_ids ? n_ids - 1 : 0, ids_ms);
    http_text_add(out, "}", 1);
}

void timings_put(struct http_text *out, const struct job_figures *f, uint32_t n_ids, uint64_t until_ns)
{
    put(out, f, f->n_prompt - f->n_cached, serve_ms_between(f->started_ns, f->first_token_ns), n_ids,
        serve_ms_between(f->first_token_ns, until_ns));
}

void timings_put_now(struct http_text *out, const struct answer *a, bool over)
{
    struct job_figures f;
    job_figures(a->job, &f);
    timings_put(out, &f, a->tokens_out, over ? f.last_token_ns : serve_now_ns());
}

void timings_put_progress(struct http_text *out, const struct answer *a, uint32_t n_done, bool timings)
{
    struct job_figures f;
    job_figures(a->job, &f);
    const uint32_t n_read = n_done - f.n_cached; /* by this job */
    const double ms = n_read ? serve_ms_between(f.started_ns, serve_now_ns()) : 0;
    http_text_format(out, ",\"prompt_progress\":{\"total\":%u,\"cache\":%u,\"processed\":%u,\"time_ms\":%.0f}",
                     f.n_prompt, f.n_cached, n_done, ms);
    if (timings) put(out, &f, n_read, ms, 0, 0);
}
