/* generate.c: a prompt, then id after id until something ends it. The device samples; what it has computed beyond the end is dropped. */
#include "generate.h"

#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "model/generator.h"
#include "setup.h"
#include "tokenizer/stop.h"
#include "tokenizer/utf8.h"

/* What one generation holds while it runs. */
struct running {
    struct generation *g;
    struct generator *generator;
    struct stop_matcher *stops;
    struct utf8_stream utf8;
    char *certain, *text;   /* bytes that no stop string can take back; the same as whole characters */
    size_t piece_cap;       /* bytes of a token that both have room for */
};

const char *finish_name(enum finish f)
{
    static const char *const names[] = { "stop", "length", "interrupt" };
    return names[f];
}

static int open_running(struct running *r)
{
    const struct generation *g = r->g;
    size_t lens[STOP_MAX];
    ERROR_TEXT(err);
    for (uint32_t i = 0; i < g->n_stops; i++) lens[i] = strlen(g->stops[i]);
    wk_status status = stop_open(g->stops, lens, g->n_stops, &r->stops, &err);
    if (!status) status = sampler_check(g->params, g->model->program->n_vocab, &err);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    status = generator_open(g->model, 1, &r->generator, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    r->piece_cap = TOKENIZER_MAX_TOKEN_BYTES;
    r->certain = malloc(STOP_ROOM(r->piece_cap));
    r->text = malloc(UTF8_STREAM_ROOM(STOP_ROOM(r->piece_cap)));
    return r->certain && r->text ? EXIT_DONE : fail(CODE_INSUFFICIENT_MEMORY, "no memory for text");
}

static void close_running(struct running *r)
{
    generator_close(r->generator);
    stop_close(r->stops);
    free(r->certain);
    free(r->text);
}

static void write_certain(struct running *r, size_t n)
{
    size_t len = utf8_stream_push(&r->utf8, r->certain, n, r->text);
    if (r->g->ids || !len) return;
    (void)fwrite(r->text, 1, len, r->g->out);
    (void)fflush(r->g->out);
}

/* Takes one id's bytes; true: a stop string is complete. */
static bool give_out(struct running *r, uint32_t id)
{
    struct generation *g = r->g;
    struct token_bytes piece = tokenizer_piece(g->model->tokenizer, id, false);
    size_t n = 0;
    bool stopped = stop_push(r->stops, piece.data, piece.len, r->certain, &n) != STOP_NONE;
    if (g->ids) {
        (void)fprintf(g->out, "%s%u", g->n_generated ? " " : "", id);
        (void)fflush(g->out);
    }
    write_certain(r, n);
    return stopped;
}

/* What is still held back. After a stop string there is nothing; a limit drops a character that it cut. */
static void end_text(struct running *r)
{
    write_certain(r, stop_flush(r->stops, r->certain));
    if (r->g->finish != FINISH_STOP) utf8_stream_drop(&r->utf8);
    size_t n = utf8_stream_flush(&r->utf8, r->text);
    if (!r->g->ids) (void)fwrite(r->text, 1, n, r->g->out);
    (void)fputc('\n', r->g->out);
    (void)fflush(r->g->out);
}

/* The prompt, up to the first id. */
static wk_status prefill(struct running *r, const struct wk_err *err)
{
    struct generation *g = r->g;
    size_t n_ends;
    const uint32_t *ends = tokenizer_end_ids(g->model->tokenizer, &n_ends);
    const struct generator_job job = { .params = g->params, .ends = ends, .n_ends = (uint32_t)n_ends, .prompt = g->prompt, .n_prompt = g->n_prompt, .most = g->max_tokens, .stop = interrupted };
    const double start = seconds_now();
    wk_status status = generator_start(r->generator, 0, &job, err);
    g->prefill_seconds = seconds_now() - start;
    return status;
}

static wk_status decode(struct running *r, const struct wk_err *err)
{
    struct generation *g = r->g;
    for (uint32_t id;;) {
        if (interrupted()) return wk_fail(err, WK_CANCELLED, "interrupted");
        wk_status status = generator_next(r->generator, &id, err);
        if (status || id == GENERATOR_NONE) return status; /* none: the limit or the context's end */
        if (id == GENERATOR_FAILED) return wk_fail(err, WK_INVALID, "a number became infinite or NaN: the weights are damaged or overflow; no token can be picked");
        g->finish = FINISH_STOP;
        if (tokenizer_ends(g->model->tokenizer, id)) return WK_OK;
        const bool stopped = give_out(r, id);
        g->n_generated++;
        if (stopped) return WK_OK;
        g->finish = FINISH_LENGTH;
    }
}

int generate(struct generation *g)
{
    struct running r = { .g = g };
    ERROR_TEXT(err);
    int result = open_running(&r);
    if (!result) {
        wk_status status = prefill(&r, &err);
        const double start = seconds_now();
        if (!status) status = decode(&r, &err);
        g->decode_seconds = seconds_now() - start;
        if (status == WK_CANCELLED) g->finish = FINISH_INTERRUPT;
        if (!status || g->n_generated) end_text(&r);
        if (status && status != WK_CANCELLED) result = fail_status(STAGE_STEP, status, &err);
    }
    close_running(&r);
    return result;
}
