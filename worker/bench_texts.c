/* bench_texts.c: see bench.h.
 *
 * A text is one step, or a part of one, as the service's engine makes them: whole texts, as many as the step has rows
 * for, with pages dealt from the first on. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"
#include "errors.h"
#include "json_out.h"

struct steps {
    const struct texts *t;
    struct model *model;
    uint32_t each;                              /* texts of a step */
    uint32_t *tokens;                           /* [each * t->tokens] */
    uint32_t *pages;                            /* 0, 1, 2, ... */
    const uint32_t *(*tables)[TAPE_MAX_GROUPS]; /* [each] */
    struct step_seq *seqs;                      /* [each] */
    float *rows;                                /* [each * embedding_width] */
    double *rates;                              /* [t->repeats] tokens a second */
    double first;                               /* seconds from the command's begin to the first texts */
};

/* Texts that fit a step. */
static uint32_t fitting(const struct model *m, uint32_t tokens)
{
    uint32_t n = tokens > m->dev.context ? 0 : m->dev.max_rows / tokens;
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        const uint32_t room = m->plan.kv_pages[g] / (uint32_t)kv_pages_of(tokens);
        if (room < n) n = room;
    }
    return n;
}

/* What a step is made of does not change: the tokens are arbitrary, for speed does not depend on them. */
static bool prepare(struct steps *s)
{
    const struct tape_program *p = s->model->program;
    const uint32_t n = s->t->tokens, pages = (uint32_t)kv_pages_of(n);
    s->tokens = malloc((size_t)s->each * n * sizeof *s->tokens);
    s->pages = malloc((size_t)s->each * pages * sizeof *s->pages);
    s->tables = calloc(s->each, sizeof *s->tables);
    s->seqs = calloc(s->each, sizeof *s->seqs);
    s->rows = malloc((size_t)s->each * p->embedding_width * sizeof *s->rows);
    s->rates = malloc(s->t->repeats * sizeof *s->rates);
    if (!s->tokens || !s->pages || !s->tables || !s->seqs || !s->rows || !s->rates) return false;
    for (uint32_t i = 0; i < s->each * n; i++) s->tokens[i] = (uint32_t)((uint64_t)i * 7919 % p->n_vocab);
    for (uint32_t i = 0; i < s->each * pages; i++) s->pages[i] = i;
    for (uint32_t i = 0; i < s->each; i++) {
        for (uint32_t g = 0; g < p->n_groups; g++) s->tables[i][g] = s->pages + i * pages;
        s->seqs[i] = (struct step_seq){ .row = i * n, .n_rows = n, .role = ROW_PROMPT, .pages = s->tables[i] };
    }
    return true;
}

static wk_status run_all(struct steps *s, const struct wk_err *err)
{
    wk_status status = WK_OK;
    for (uint32_t done = 0, n; !status && done < s->t->n; done += n) {
        n = s->t->n - done < s->each ? s->t->n - done : s->each;
        struct step step = {
            .n_rows = n * s->t->tokens, .n_seqs = n, .tokens = s->tokens, .seqs = s->seqs, .pooled = s->rows
        };
        status = s->model->device->step(s->model->executor, &step, err);
        for (uint32_t i = 0; !status && i < n; i++)
            if (s->seqs[i].failed)
                status =
                    wk_fail(err, WK_INVALID, "a number became infinite or NaN: the weights are damaged or overflow");
        if (!status && interrupted()) status = wk_fail(err, WK_CANCELLED, "interrupted");
    }
    return status;
}

static wk_status measure(struct steps *s, const struct wk_err *err)
{
    wk_status status = run_all(s, err); /* not counted: it packs the weights and warms the caches */
    s->first = seconds_now() - s->t->began;
    for (uint32_t r = 0; !status && r < s->t->repeats; r++) {
        const double start = seconds_now();
        status = run_all(s, err);
        s->rates[r] = (double)s->t->n * s->t->tokens / (seconds_now() - start);
    }
    return status;
}

static int print_texts(const struct steps *s, const struct opened *x)
{
    const struct texts *t = s->t;
    const struct model *m = x->model;
    const struct spread rate = spread_of(s->rates, t->repeats);
    const bool gpu = m->device->probe != NULL;
    const double n = t->tokens;
    if (t->json)
        return json_print(json_pack(
            "{s:o, s:s, s:s*, s:s*, s:i, s:b, s:I, s:I, s:I, s:f, s:f, s:{s:f, s:f, s:f}, s:{s:f, s:f, s:f}}", "model",
            json_bytes(m->name, strlen(m->name)), "device", m->device->name, "gpu", gpu ? x->gpu.name : NULL, "isa",
            gpu ? NULL : plugin_isa_name(m->dev.isa), "threads", (int)t->threads, "exact", m->dev.exact, "sequences",
            (json_int_t)t->n, "text_tokens", (json_int_t)t->tokens, "repeats", (json_int_t)t->repeats, "open_seconds",
            t->opened, "first_embedding_seconds", s->first, "embed_tokens_per_second", "median", rate.median, "min",
            rate.least, "max", rate.most, "texts_per_second", "median", rate.median / n, "min", rate.least / n, "max",
            rate.most / n));
    char device[DEVICE_TEXT], together[48] = "";
    if (s->each > 1) (void)snprintf(together, sizeof together, ", %u in a step", s->each);
    (void)printf("model      %s, device %s\n", m->name, opened_device(x, device));
    (void)printf("embed      %10.2f tok/s median of %u (%.2f to %.2f), texts of %u tokens%s\n", rate.median, t->repeats,
                 rate.least, rate.most, t->tokens, together);
    (void)printf("texts      %10.2f texts/s (%.2f to %.2f)\n", rate.median / n, rate.least / n, rate.most / n);
    (void)printf("start      %10.2f s to the open model, %.2f s to the first embedding\n", t->opened, s->first);
    return EXIT_DONE;
}

int bench_texts(const struct texts *t, const struct opened *x)
{
    struct steps s = { .t = t, .model = x->model };
    int result = EXIT_DONE;
    ERROR_TEXT(err);
    const uint32_t fit = fitting(x->model, t->tokens);
    if (!fit)
        return fail(CODE_CONTEXT_LENGTH_EXCEEDED,
                    "a text of %u tokens does not fit the context of %u; lower -p or raise --context", t->tokens,
                    x->model->dev.context);
    s.each = t->n < fit ? t->n : fit;
    if (!prepare(&s)) result = fail(CODE_INSUFFICIENT_MEMORY, "no memory for the measurements");
    const wk_status status = result ? WK_OK : measure(&s, &err);
    if (status == WK_CANCELLED)
        result = EXIT_INTERRUPTED;
    else if (status)
        result = fail_status(STAGE_STEP, status, &err);
    if (!result) result = print_texts(&s, x);
    free(s.tokens);
    free(s.pages);
    free((void *)s.tables);
    free(s.seqs);
    free(s.rows);
    free(s.rates);
    return result;
}
