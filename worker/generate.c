/* generate.c: a prompt, then id after id until something ends it. The device samples; what it has computed beyond the
 * end is dropped. */
#include "generate.h"

#include "reply.h"
#include "errors.h"
#include "model/generator.h"
#include "setup.h"

/* What one generation holds while it runs. */
struct running {
    struct generation *g;
    struct generator *generator;
    struct reply *reply;
    const uint32_t *ends; /* the tokenizer's */
    uint32_t n_ends;
};

const char *finish_name(enum finish f)
{
    static const char *const names[] = { "stop", "length", "interrupt" };
    return names[f];
}

static int open_running(struct running *r)
{
    const struct generation *g = r->g;
    const struct reply_options reply = { .tokenizer = g->model->tokenizer,
                                         .stops = g->stops,
                                         .n_stops = g->n_stops,
                                         .harmony = g->harmony,
                                         .marks = g->marks,
                                         .out = g->ids ? NULL : g->out,
                                         .aside = g->ids ? NULL : g->aside,
                                         .out_terminal = g->out_terminal,
                                         .aside_terminal = g->aside_terminal };
    ERROR_TEXT(err);
    wk_status status = reply_open(&reply, &r->reply, &err);
    if (!status) status = sampler_check(g->params, g->model->program->n_vocab, &err);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    status = generator_open(g->model, 1, &r->generator, &err);
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

static void close_running(struct running *r)
{
    generator_close(r->generator);
    reply_close(r->reply);
}

/* Takes one id; true: a stop string is complete. */
static bool give_out(struct running *r, uint32_t id)
{
    struct generation *g = r->g;
    if (g->ids) {
        (void)fprintf(g->out, "%s%u", g->n_generated ? " " : "", id);
        (void)fflush(g->out);
    }
    return reply_take(r->reply, id);
}

static void end_text(struct running *r)
{
    reply_end(r->reply, r->g->finish != FINISH_STOP);
    (void)fputc('\n', r->g->out);
    (void)fflush(r->g->out);
}

/* The prompt, up to the first id. */
static wk_status prefill(struct running *r, const struct wk_err *err)
{
    struct generation *g = r->g;
    const struct generator_job job = { .params = g->params,
                                       .ends = r->ends,
                                       .n_ends = r->n_ends,
                                       .prompt = g->prompt,
                                       .n_prompt = g->n_prompt,
                                       .most = g->max_tokens,
                                       .constraint = g->constraint,
                                       .stop = interrupted };
    const double start = seconds_now();
    wk_status status = generator_start(r->generator, 0, &job, err);
    g->prefill_seconds = seconds_now() - start;
    return status;
}

static bool is_end(const struct running *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n_ends; i++)
        if (r->ends[i] == id) return true;
    return false;
}

static wk_status decode(struct running *r, const struct wk_err *err)
{
    struct generation *g = r->g;
    for (uint32_t id;;) {
        if (interrupted()) return wk_fail(err, WK_CANCELLED, "interrupted");
        wk_status status = generator_next(r->generator, &id, err);
        if (status || id == GENERATOR_NONE) return status; /* none: the limit or the context's end */
        if (id == GENERATOR_FAILED)
            return wk_fail(
                err, WK_INVALID,
                "a number became infinite or NaN: the weights are damaged or overflow; no token can be picked");
        if (id == GENERATOR_BLOCKED)
            return wk_fail(err, WK_INVALID, "the answer cannot go on as its grammar demands: no token fits here");
        g->finish = FINISH_STOP;
        if (is_end(r, id)) return WK_OK;
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
    size_t n;
    r.ends = tokenizer_end_ids(g->model->tokenizer, &n);
    r.n_ends = (uint32_t)n;
    int result = open_running(&r);
    if (!result) {
        wk_status status = prefill(&r, &err);
        const double start = seconds_now();
        if (!status) status = decode(&r, &err);
        g->decode_seconds = seconds_now() - start;
        if (status == WK_CANCELLED) g->finish = FINISH_INTERRUPT;
        if (!status || g->n_generated) end_text(&r);
        g->answered = reply_begun(r.reply);
        if (status && status != WK_CANCELLED) result = fail_status(STAGE_STEP, status, &err);
    }
    close_running(&r);
    return result;
}
