/* score.c: `worker score`: the perplexity of a text, and its logits as a file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "output_file.h"
#include "session_tokens.h"
#include "sample/sample.h"
#include "setup.h"

enum { SCORE_ROWS = 32 /* rows of logits computed at once */ };

struct scoring {
    struct session *session;
    struct model *model;
    struct id_list tokens;
    struct output_file out; /* stream NULL: not wanted */
    float *logits;          /* [SCORE_ROWS][n_vocab] */
    double nll;             /* sum of -log p of tokens[1..] */
};

static int score_rows(struct scoring *s)
{
    const uint32_t n_vocab = s->model->program->n_vocab;
    ERROR_TEXT(err);
    for (uint32_t first = 0; first < s->tokens.n; first += SCORE_ROWS) {
        const uint32_t n = s->tokens.n - first < SCORE_ROWS ? s->tokens.n - first : SCORE_ROWS;
        wk_status status = session_feed(s->session, s->tokens.ids + first, n, ROW_PROMPT, n, s->logits, &err);
        for (uint32_t i = 0; !status && i < n && first + i + 1 < s->tokens.n; i++) {
            const float *row = s->logits + (uint64_t)i * n_vocab;
            double log_sum = 0;
            status = sampler_log_sum(row, n_vocab, &log_sum, &err);
            s->nll += log_sum - (double)row[s->tokens.ids[first + i + 1]];
        }
        if (status) return fail_status(STAGE_STEP, status, &err);
        /* Raw bytes are little-endian because every processor that this builds for is. */
        if (s->out.stream && fwrite(s->logits, (size_t)n_vocab * sizeof(float), n, s->out.stream) != n)
            return fail(CODE_OUTPUT_FAILED, "%s: cannot be written", s->out.path);
    }
    return EXIT_DONE;
}

static int print_score(const struct scoring *s)
{
    const uint32_t scored = s->tokens.n - 1;
    const double mean = scored ? s->nll / scored : 0;
    return json_print(json_pack("{s:o, s:I, s:I, s:o, s:o}", "model", json_bytes(s->model->name, strlen(s->model->name)), "tokens", (json_int_t)s->tokens.n, "scored",
        (json_int_t)scored, "nll", scored ? json_real(mean) : json_null(), "perplexity", scored ? json_real(exp(mean)) : json_null()));
}

static int score(const struct options *o, struct scoring *s)
{
    ERROR_TEXT(err);
    int result = session_tokens(o, s->model, &s->tokens);
    if (result) return result;
    s->logits = malloc((uint64_t)SCORE_ROWS * s->model->program->n_vocab * sizeof(float));
    if (!s->logits) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for logits");
    wk_status status = session_open(s->model, &s->session, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    if (option_text(o, OPT_LOGITS)) result = output_open(option_text(o, OPT_LOGITS), &s->out);
    if (!result) result = score_rows(s);
    if (!result && s->out.stream) result = output_finish(&s->out);
    return result ? result : print_score(s);
}

int command_score(const struct options *o)
{
    struct opened x = { NULL, NULL };
    struct scoring s = { 0 };
    int result = session_tokens_usage(o);
    if (!result) result = open_model(o, &(struct model_needs){ .max_rows = SCORE_ROWS, .max_wanted = SCORE_ROWS, .load = true }, &x);
    s.model = x.model;
    if (!result) result = score(o, &s);
    output_abandon(&s.out);
    session_close(s.session);
    free(s.logits);
    free(s.tokens.ids);
    opened_close(&x);
    return result;
}
