/* llama_answer.c: see llama_answer.h. */
#include "llama_answer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llama_prompt.h"
#include "raw.h"
#include "timings.h"

enum {
    RESERVE_STEP = 64 << 10,
    RESERVE_TIMES = 4 /* bytes for each of a whole answer: it is copied, and grows twofold */
};

bool llama_completion_open(struct llama_completion *c, const struct tokenizer *t)
{
    c->n_prompts = c->q.n_prompts;
    c->n_choices = c->n_prompts * c->q.o.n;
    c->choices = calloc(c->n_choices, sizeof *c->choices);
    c->prompts = calloc(c->n_prompts, sizeof *c->prompts);
    llama_request_settings(&c->q, t, &c->settings);
    return c->choices && c->prompts && !c->settings.failed;
}

void llama_completion_free(struct llama_completion *c)
{
    for (uint32_t i = 0; c->choices && i < c->n_choices; i++) {
        http_text_free(&c->choices[i].text);
        http_text_free(&c->choices[i].ids);
        http_text_free(&c->choices[i].probs);
        http_text_free(&c->choices[i].document);
    }
    for (uint32_t i = 0; c->prompts && i < c->n_prompts; i++) http_text_free(&c->prompts[i]);
    free(c->choices);
    free(c->prompts);
    http_text_free(&c->settings);
    llama_request_free(&c->q);
}

static struct llama_completion *own(const struct stream *x) { return x->own; }
static struct llama_choice *choice_of(const struct stream *x, const struct answer *a)
{
    return &own(x)->choices[a->index];
}

/* ---- prompts ------------------------------------------------------------------------------------------- */

static wk_status encode(struct stream *x, struct stream_prompt *p, const struct wk_err *err)
{
    struct llama_completion *c = own(x);
    struct http_text *shown = &c->prompts[p - x->prompts];
    char *text = NULL;
    size_t n = 0;
    wk_status status = llama_encode(x, &c->q, (uint32_t)(p - x->prompts), p, err);
    if (!status) status = tokenizer_decode(x->m->facts.tokenizer, p->ids.ids, p->ids.n, true, &text, &n, err);
    if (status) return status;
    http_text_add(shown, text, n);
    free(text);
    return shown->failed ? wk_fail(err, WK_NO_MEMORY, "no memory for its text") : WK_OK;
}

static void release(struct stream *x)
{
    openai_request_free(&own(x)->q.o); /* what the answers are to hold stays */
    x->q.body = NULL;
}

/* ---- probabilities ------------------------------------------------------------------------------------- */

/* {"id", "token", "bytes", "logprob" or "prob", without the closing brace. */
static void put_entry(struct http_text *out, const struct tokenizer *t, uint32_t id, const char *name, double value)
{
    const struct token_bytes piece = tokenizer_piece(t, id, true);
    http_text_format(out, "{\"id\":%u,\"token\":", id);
    http_text_json(out, piece.data, piece.len);
    http_text_format(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.len; i++) http_text_format(out, "%s%u", i ? "," : "", (unsigned char)piece.data[i]);
    http_text_format(out, "],\"%s\":%.9g", name, value > -9999 ? value : -9999.0);
}

/* Weights of the n best that the samplers leave, relative to the best, in the order of sample.h; how many stay. */
static uint32_t sampled_weights(const struct sampler_params *p, const struct sampler_prob *best, uint32_t n,
                                double weight[SAMPLER_MAX_TOP], double *sum)
{
    const double heat = p->temperature < SAMPLER_GREEDY ? SAMPLER_GREEDY : (double)p->temperature;
    uint32_t stay = p->temperature < SAMPLER_GREEDY ? 1 : p->top_k && p->top_k < n ? p->top_k : n;
    double all = 0, run = 0;
    if (stay > n) stay = n;
    for (uint32_t i = 0; i < stay; i++) all += weight[i] = exp((best[i].logprob - best[0].logprob) / heat);
    for (uint32_t i = 0; i < stay && p->top_p < 1; i++) {
        run += weight[i];
        if (run >= (double)p->top_p * all) stay = i + 1;
    }
    while (stay > 1 && (weight[stay - 1] < (double)p->min_p || weight[stay - 1] <= 0)) stay--;
    *sum = 0;
    for (uint32_t i = 0; i < stay; i++) *sum += weight[i];
    return stay;
}

static void put_post_probs(struct http_text *out, const struct stream *x, const struct sampler_prob *of, uint32_t n,
                           uint32_t shown)
{
    const struct tokenizer *t = x->m->facts.tokenizer;
    double weight[SAMPLER_MAX_TOP], sum, mine = 0;
    const uint32_t stay = sampled_weights(&x->q.params, of + 1, n, weight, &sum);
    for (uint32_t i = 0; i < stay; i++)
        if (of[1 + i].id == of[0].id) mine = weight[i] / sum;
    put_entry(out, t, of[0].id, "prob", mine);
    http_text_format(out, ",\"top_probs\":[");
    for (uint32_t i = 0; i < stay && i < shown; i++) {
        if (i) http_text_add(out, ",", 1);
        put_entry(out, t, of[1 + i].id, "prob", weight[i] / sum);
        http_text_add(out, "}", 1);
    }
    http_text_add(out, "]}", 2);
}

/* of: [1 + n]. */
static void put_probs(struct http_text *out, const struct stream *x, const struct sampler_prob *of)
{
    const struct tokenizer *t = x->m->facts.tokenizer;
    const uint32_t n_vocab = x->m->facts.n_vocab, n = x->top < n_vocab ? x->top : n_vocab,
                   shown = own(x)->q.o.top < n ? own(x)->q.o.top : n;
    if (own(x)->q.post_probs) {
        put_post_probs(out, x, of, n, shown);
        return;
    }
    put_entry(out, t, of[0].id, "logprob", of[0].logprob);
    http_text_format(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < shown; i++) {
        if (i) http_text_add(out, ",", 1);
        put_entry(out, t, of[1 + i].id, "logprob", of[1 + i].logprob);
        http_text_add(out, "}", 1);
    }
    http_text_add(out, "]}", 2);
}

static void put_probs_member(struct stream *x, struct llama_choice *o)
{
    http_text_format(&x->line, ",\"completion_probabilities\":[");
    if (o->probs.n) http_text_add(&x->line, o->probs.data, o->probs.n);
    http_text_add(&x->line, "]", 1);
    x->line.failed = x->line.failed || o->probs.failed;
    o->probs.n = 0;
}

/* ---- the end of an answer ------------------------------------------------------------------------------ */

static void put_stop(struct stream *x, const struct answer *a, const struct ending *e)
{
    const int stopped = token_text_stopped(a->text);
    const bool cut = choice_of(x, a)->cut, limit = cut || strcmp(e->reason, "length") == 0;
    const bool word = !limit && stopped != STOP_NONE;
    const struct token_bytes text = word ? token_text_stop(a->text, stopped) : (struct token_bytes){ "", 0 };
    http_text_format(&x->line, ",\"truncated\":%s,\"stop_type\":\"%s\",\"stopping_word\":",
                     limit && !cut && a->tokens_out < x->q.max_tokens ? "true" : "false",
                     limit  ? "limit"
                     : word ? "word"
                            : "eos");
    http_text_json(&x->line, text.data, text.len);
}

/* The document of an answer that is over, in x->line. */
static void put_document(struct stream *x, struct answer *a, const struct ending *e)
{
    const struct llama_completion *c = own(x);
    struct llama_choice *o = choice_of(x, a);
    const struct http_text *prompt = &c->prompts[a->prompt];
    const uint32_t n_prompt = (uint32_t)x->prompts[a->prompt].ids.n;
    const bool shows = !c->q.o.stream && c->q.return_tokens && o->ids.n;
    http_text_format(&x->line, "{\"index\":%u,\"content\":", a->index);
    http_text_json(&x->line, o->text.n ? o->text.data : "", o->text.n);
    http_text_format(&x->line, ",\"tokens\":[");
    if (shows) http_text_add(&x->line, o->ids.data, o->ids.n);
    http_text_format(&x->line, "],\"id_slot\":-1,\"stop\":true,\"model\":");
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_format(&x->line,
                     ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u,\"generation_settings\":{\"seed\":%" PRIu64 ",",
                     o->n_ids, n_prompt, a->seed);
    http_text_add(&x->line, c->settings.data, c->settings.n);
    http_text_format(&x->line, "},\"prompt\":");
    http_text_json(&x->line, prompt->n ? prompt->data : "", prompt->n);
    http_text_format(&x->line, ",\"has_new_line\":%s", o->new_line ? "true" : "false");
    put_stop(x, a, e);
    http_text_format(&x->line, ",\"tokens_cached\":%u", e->f.n_cached);
    timings_put(&x->line, &e->f, o->n_ids, e->f.last_token_ns);
    if (c->q.o.probs && !c->q.o.stream) put_probs_member(x, o);
    http_text_add(&x->line, "}", 1);
    x->line.failed = x->line.failed || o->text.failed || o->ids.failed;
}

/* The member at a path with slashes, as it is written; no data: there is none. */
static struct raw member_at(struct raw document, const char *path)
{
    char name[64];
    for (;;) {
        const size_t n = strcspn(path, "/");
        if (n >= sizeof name) return (struct raw){ 0 };
        memcpy(name, path, n);
        name[n] = '\0';
        document = raw_member(document, name);
        if (!path[n] || !document.data) return document;
        path += n + 1;
    }
}

static bool is_asked_before(const json_t *fields, size_t i, const char *path)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(json_string_value(json_array_get(fields, k)), path) == 0) return true;
    return false;
}

/* response_fields: those members alone, each by the name that it was asked for. */
static void pick_fields(struct stream *x)
{
    const json_t *fields = own(x)->q.fields;
    struct http_text picked = { 0 };
    if (!fields || x->line.failed) return;
    const struct raw document = raw_of(x->line.data, x->line.n);
    http_text_add(&picked, "{", 1);
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const char *path = json_string_value(json_array_get(fields, i));
        const struct raw value = is_asked_before(fields, i, path) ? (struct raw){ 0 } : member_at(document, path);
        if (!value.data) continue;
        http_text_add(&picked, ",", picked.n > 1);
        http_text_json(&picked, path, strlen(path));
        http_text_add(&picked, ":", 1);
        raw_copy(&picked, value, "");
    }
    http_text_add(&picked, "}", 1);
    picked.failed = picked.failed || !document.data;
    http_text_free(&x->line);
    x->line = picked;
}

/* ---- its text ------------------------------------------------------------------------------------------ */

/* Bytes of the text before the first line that has less indentation than n_indent; the answer's first line counts for
 * none. */
static size_t indented(struct llama_choice *o, uint32_t least, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            o->new_line = o->blank = true;
            o->indent = 0;
        } else if (o->blank && (text[i] == ' ' || text[i] == '\t')) {
            o->indent++;
        } else if (o->blank) {
            o->blank = false;
            if (o->indent < least) return i;
        }
    }
    return n;
}

/* t_max_predict_ms ends an answer at a line's end. */
static bool is_late(const struct stream *x, const struct answer *a)
{
    struct job_figures f;
    if (!own(x)->q.predict_ms) return false;
    job_figures(a->job, &f);
    return serve_ms_between(f.first_token_ns, serve_now_ns()) > (double)own(x)->q.predict_ms;
}

/* What of the line is told. False: nothing, the answer was over. */
static bool take_line(struct stream *x, struct answer *a, struct token_line *line)
{
    struct llama_choice *o = choice_of(x, a);
    if (o->cut) return false;
    const size_t n = indented(o, own(x)->q.n_indent, line->text, line->n);
    const bool short_of = n < line->n, late = line->n && memchr(line->text, '\n', line->n) && is_late(x, a);
    line->n = n;
    o->n_ids++;
    if (own(x)->q.o.probs) {
        if (o->probs.n) http_text_add(&o->probs, ",", 1);
        put_probs(&o->probs, x, answer_probs(a, line));
    }
    if (short_of || late) {
        o->cut = true;
        stream_cut(a);
    }
    return true;
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

static void stream_started(struct stream *x, struct answer *a) { (void)x, (void)a; }

static void begin_part(struct stream *x, const struct answer *a, const char *text, size_t n)
{
    http_text_format(&x->line, "{\"index\":%u,\"content\":", a->index);
    http_text_json(&x->line, text, n);
    http_text_format(&x->line, ",\"tokens\":[");
}

static void put_counts(struct stream *x, const struct answer *a, uint32_t n_ids)
{
    http_text_format(&x->line, "],\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":%u,\"tokens_evaluated\":%zu",
                     n_ids, x->prompts[a->prompt].ids.n);
}

static void stream_progress(struct stream *x, struct answer *a, uint32_t n_done)
{
    begin_part(x, a, "", 0);
    put_counts(x, a, 0);
    timings_put_progress(&x->line, a, n_done, own(x)->q.o.timings);
    http_text_add(&x->line, "}", 1);
    (void)stream_event(x, NULL);
}

static void stream_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    struct token_line told = *line;
    struct llama_choice *o = choice_of(x, a);
    if (!take_line(x, a, &told)) return;
    begin_part(x, a, told.text, told.n);
    http_text_format(&x->line, "%u", told.id);
    put_counts(x, a, o->n_ids);
    if (own(x)->q.o.timings) timings_put_now(&x->line, a, false);
    if (own(x)->q.o.probs) put_probs_member(x, o);
    http_text_add(&x->line, "}", 1);
    (void)stream_event(x, NULL);
}

static void stream_end(struct stream *x, struct answer *a, const struct ending *e)
{
    put_document(x, a, e);
    pick_fields(x);
    (void)stream_event(x, NULL);
}

static void stream_error(struct stream *x, const struct ending *e)
{
    serve_put_failure(&x->line, x->r, &e->why);
    (void)stream_event(x, NULL);
}

/* ---- a whole answer ------------------------------------------------------------------------------------ */

/* Memory for what is held, out of what requests share. Too much of it: that is answered. */
static void reserve(struct stream *x)
{
    struct llama_completion *c = own(x);
    size_t held = 0;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const struct llama_choice *o = &c->choices[i];
        held += o->text.n + o->ids.n + o->probs.n + o->document.n + c->settings.n + c->prompts[i / x->each].n;
    }
    if (held * RESERVE_TIMES <= c->reserved) return;
    const size_t more = held * RESERVE_TIMES - c->reserved + RESERVE_STEP;
    c->reserved += more;
    if (!http_reserve(x->r, more)) stream_told(x);
}

static void whole_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    struct token_line told = *line;
    struct llama_choice *o = choice_of(x, a);
    if (!take_line(x, a, &told)) return;
    http_text_add(&o->text, told.text, told.n);
    if (own(x)->q.return_tokens) http_text_format(&o->ids, "%s%u", o->ids.n ? "," : "", told.id);
    reserve(x);
}

static void whole_end(struct stream *x, struct answer *a, const struct ending *e)
{
    struct llama_choice *o = choice_of(x, a);
    x->line.n = 0;
    put_document(x, a, e);
    pick_fields(x);
    http_text_add(&o->document, x->line.data, x->line.n);
    x->line.failed = x->line.failed || o->document.failed;
    x->line.n = o->text.n = o->ids.n = 0;
    reserve(x);
}

static void whole_done(struct stream *x)
{
    const struct llama_completion *c = own(x);
    const bool several = c->n_choices > 1;
    if (several) http_text_add(&x->line, "[", 1);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        if (i) http_text_add(&x->line, ",", 1);
        http_text_add(&x->line, c->choices[i].document.data, c->choices[i].document.n);
    }
    http_text_format(&x->line, several ? "]\n" : "\n");
    if (x->line.failed) {
        struct refusal why = { .code = SERVE_INTERNAL, .text = "no memory for the answer" };
        refusal_job(&why, x->q.job_id);
        serve_fail(x->r, &why);
        stream_told(x);
    } else {
        http_answer(x->r, 200, "application/json", x->line.data, x->line.n);
    }
}

static void whole_error(struct stream *x, const struct ending *e) { serve_fail(x->r, &e->why); }

struct stream_form llama_completion_form(const struct llama_completion *c)
{
    struct stream_form form = { .encode = encode,
                                .release = release,
                                .started = stream_started,
                                .progress = stream_progress,
                                .line = stream_line,
                                .end = stream_end,
                                .error = stream_error,
                                .field = c->q.infill ? "input_prefix" : "prompt" };
    if (c->q.o.stream) return form;
    form.whole = true;
    form.progress = NULL;
    form.line = whole_line;
    form.end = whole_end;
    form.done = whole_done;
    form.error = whole_error;
    return form;
}
