/* score.c: `worker score`: the perplexity of a text, and its logits as a file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/result_file.h"
#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "model/generator.h"
#include "session_tokens.h"
#include "sample/sample.h"
#include "setup.h"

enum { SCORE_ROWS = 128 /* rows of logits computed at once */ };

struct scoring {
    struct session *session;
    struct model *model;
    struct id_list tokens;
    struct result_file out; /* stream NULL: not wanted */
    float *logits;          /* [SCORE_ROWS][n_vocab] */
    uint32_t window_end, windows, scored;
    enum row_role
        role;   /* of the window's rows: as a job of the service with this prompt has, so that both say the same */
    double nll; /* sum of -log p of the scored tokens */
};

/* Feeds tokens [first, end) and adds up what they say of those that follow them in the window. */
static int score_rows(struct scoring *s, uint32_t first, uint32_t end)
{
    const uint32_t n_vocab = s->model->program->n_vocab, n = end - first;
    ERROR_TEXT(err);
    wk_status status = session_feed(s->session, s->tokens.ids + first, n, s->role, n, s->logits, &err);
    for (uint32_t i = 0; !status && i < n && first + i + 1 < s->window_end; i++) {
        const float *row = s->logits + (uint64_t)i * n_vocab;
        struct sampler_top top;
        struct sampler_prob p = { 0 };
        status = sampler_top(row, n_vocab, s->tokens.ids[first + i + 1], 0, &top, &err);
        if (!status) sampler_probs(&top, &p);
        s->nll -= p.logprob;
        s->scored++;
    }
    if (status) return fail_status(STAGE_STEP, status, &err);
    /* Raw bytes are little-endian because every processor that this builds for is. */
    if (!s->out.stream || result_file_write(&s->out, s->logits, (uint64_t)n * n_vocab * sizeof(float)))
        return EXIT_DONE;
    return fail_status(STAGE_OUTPUT, result_file_failed(&s->out, &err), &err);
}

/* A text longer than the context is scored window by window: each starts anew, and its first token is not predicted. */
static int score_windows(struct scoring *s)
{
    const uint32_t context = s->model->dev.context;
    int result = EXIT_DONE;
    for (uint32_t window = 0; !result && window < s->tokens.n; window += context) {
        s->window_end = s->tokens.n - window < context ? s->tokens.n : window + context;
        s->role = s->window_end - window <= GENERATOR_FEW ? ROW_GENERATED : ROW_PROMPT;
        session_reset(s->session);
        for (uint32_t first = window; !result && first < s->window_end; first += SCORE_ROWS)
            result = score_rows(s, first, s->window_end - first < SCORE_ROWS ? s->window_end : first + SCORE_ROWS);
        s->windows++;
    }
    return result;
}

static int print_score(const struct scoring *s)
{
    const double mean = s->scored ? s->nll / s->scored : 0;
    return json_print(json_pack(
        "{s:o, s:I, s:I, s:I, s:o, s:o}", "model", json_bytes(s->model->name, strlen(s->model->name)), "tokens",
        (json_int_t)s->tokens.n, "windows", (json_int_t)s->windows, "scored", (json_int_t)s->scored, "nll",
        s->scored ? json_real(mean) : json_null(), "perplexity", s->scored ? json_real(exp(mean)) : json_null()));
}

static int score(const struct options *o, struct scoring *s)
{
    ERROR_TEXT(err);
    if (s->model->program->bidirectional)
        return fail_status(
            STAGE_MODEL,
            wk_fail(&err, WK_UNSUPPORTED, "%s attends in both directions: it predicts no next token", s->model->name),
            &err);
    int result = session_tokens(o, s->model, &s->tokens);
    if (result) return result;
    s->logits = malloc((uint64_t)SCORE_ROWS * s->model->program->n_vocab * sizeof(float));
    if (!s->logits) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for logits");
    wk_status status = session_open(s->model, &s->session, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    if (option_text(o, OPT_LOGITS)) status = result_file_open(option_text(o, OPT_LOGITS), &s->out, &err);
    if (status) return fail_status(STAGE_OUTPUT, status, &err);
    result = score_windows(s);
    if (!result && s->out.stream) status = result_file_finish(&s->out, &err);
    if (status) return fail_status(STAGE_OUTPUT, status, &err);
    return result ? result : print_score(s);
}

int command_score(const struct options *o)
{
    struct opened x = { 0 };
    struct scoring s = { 0 };
    int result = session_tokens_usage(o);
    if (!result)
        result = open_model(
            o, &(struct model_needs){ .max_rows = SCORE_ROWS, .max_logits_rows = SCORE_ROWS, .load = true }, &x);
    s.model = x.model;
    if (!result) result = score(o, &s);
    result_file_abandon(&s.out);
    session_close(s.session);
    free(s.logits);
    free(s.tokens.ids);
    opened_close(&x);
    return result;
}
