/* responder_here.c: answers of a model in this process: the conversation as ids, ids as text, reasoning and calls. What
 * computes the ids and what reads them are a service's (core/engine, serve/token_text.h), so that both say the same,
 * and so that the engine's prefix cache has what the conversation begins with: a turn computes what was added to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/constraint.h"
#include "engine/engine.h"
#include "errors.h"
#include "grammar/grammar.h"
#include "model_chat.h"
#include "serve/token_text.h"
#include "setup.h"
#include "responder.h"

enum { LOOK_MS = 50 /* how often it is asked whether Ctrl-C was typed */ };

struct here {
    const struct options *o;
    const struct sampling *sampling;
    struct opened x;
    struct engine *engine;
    struct model_chat chat;
    size_t piece_max;
    struct grammar_index *index; /* NULL: no function was offered yet, or the vocabulary cannot be masked */
};

/* One answer. */
struct answering {
    struct here *h;
    struct spoken *spoken;
    struct conversation said;
    struct chat_prompt prompt;
    struct tokens ids;
    struct token_text *text;
    struct tools_set *functions;     /* NULL: none are offered */
    const struct tools_model *calls; /* how they are written; NULL: as harmony's messages */
    bool one_call;
    struct grammar *grammar; /* of answers that may call them; NULL: they are free */
    struct sampler_constraint constraint;
    uint32_t ends[SAMPLER_MAX_ENDS], n_ends;
    struct http_text id, name, arguments; /* of a call that has no end yet */
};

static int refuse(const struct chat_problem *why)
{
    return fail(why->status == WK_NO_MEMORY ? CODE_INSUFFICIENT_MEMORY : CODE_INVALID_REQUEST, "%s", why->text);
}

/* ---- ids become an answer ------------------------------------------------------------------------------ */

/* Calls are told once they are complete: what begins like one may be text. */
static void take_call(struct answering *a, const struct tools_event *e)
{
    if (e->kind == TOOLS_CALL) {
        a->id.n = a->name.n = a->arguments.n = 0;
        http_text_add(&a->id, e->id.data, e->id.len);
        http_text_add(&a->name, e->text.data, e->text.len);
        http_text_add(&a->arguments, "", 0);
    }
    if (e->kind == TOOLS_ARGUMENTS) http_text_add(&a->arguments, e->text.data, e->text.len);
    if (a->id.failed || a->name.failed || a->arguments.failed) a->spoken->failed = true;
    if (e->kind != TOOLS_END || a->spoken->failed) return;
    spoken_call(a->spoken, a->id.data, a->id.n, a->name.data, a->name.n);
    spoken_arguments(a->spoken, a->arguments.data, a->arguments.n);
}

/* What the last id, or the end, has made certain. */
static void take(struct answering *a, const struct token_line *line, int n)
{
    const struct token_bytes reasoning = token_text_reasoning(a->text);
    const struct token_calls *calls = token_text_calls_of(a->text);
    size_t n_events = 0;
    spoken_reasoning(a->spoken, reasoning.data, reasoning.len);
    for (int i = 0; i < n; i++) spoken_text(a->spoken, line[i].text, line[i].n);
    const struct tools_event *events = calls ? token_calls_events(calls, &n_events) : NULL;
    for (size_t i = 0; i < n_events; i++) take_call(a, &events[i]);
    if (token_text_failed(a->text)) a->spoken->failed = true;
}

/* True: no more is wanted. */
static bool take_id(struct answering *a, uint32_t id)
{
    struct token_line line[2];
    take(a, line, token_text_push(a->text, id, line));
    return token_text_over(a->text) || a->spoken->failed;
}

static int open_text(struct answering *a)
{
    const struct here *h = a->h;
    const struct sampling *s = h->sampling;
    struct token_calls *calls;
    size_t lens[STOP_MAX];
    ERROR_TEXT(err);
    for (uint32_t i = 0; i < s->n_stops; i++) lens[i] = strlen(s->stops[i]);
    wk_status status = token_text_open(h->x.model->tokenizer, h->piece_max, s->stops, lens, s->n_stops, &a->text, &err);
    if (!status && chat_is_harmony(h->chat.chat))
        token_text_channels(a->text, &h->chat.harmony);
    else if (!status && a->prompt.marks.open[0])
        token_text_marks(a->text, &a->prompt.marks);
    if (!status && a->functions) {
        status = token_calls_open(a->calls, a->functions, s->params.seed + a->said.n, a->one_call, a->grammar != NULL,
                                  &calls, &err);
        if (!status) token_text_calls(a->text, calls);
    }
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

/* ---- functions ----------------------------------------------------------------------------------------- */

/* Some models end with a mark of what stands around calls: it must pass. */
static void find_ends(struct answering *a)
{
    size_t n, n_marks = 0;
    const uint32_t *own = tokenizer_end_ids(a->h->x.model->tokenizer, &n),
                   *marks = a->calls ? tools_model_marks(a->calls, &n_marks) : NULL;
    for (size_t i = 0; i < n && a->n_ends < SAMPLER_MAX_ENDS; i++) {
        bool is_mark = false;
        for (size_t k = 0; k < n_marks; k++) is_mark = is_mark || marks[k] == own[i];
        if (!is_mark) a->ends[a->n_ends++] = own[i];
    }
}

/* Answers in which every call is of a function that is offered. What cannot be masked is free, unless a strict function
 * was promised. */
static int mask(struct answering *a, bool strict)
{
    struct here *h = a->h;
    const struct model *m = h->x.model;
    const struct tools_rule rule = { .single = a->one_call };
    ERROR_TEXT(err);
    wk_status status = h->index ? WK_OK : grammar_index_open(m->tokenizer, m->program->n_vocab, &h->index, &err);
    if (!status)
        status = a->calls ? tools_grammar(a->calls, a->functions, &rule, NULL, &a->grammar, &err)
                          : tools_harmony_grammar(&h->chat.harmony, a->functions, &rule, NULL, &a->grammar, &err);
    if (status && !strict && status != WK_NO_MEMORY) return EXIT_DONE;
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

static int offer(struct answering *a, const char *json, size_t n)
{
    static const char nothing[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    struct chat_problem why;
    struct chat_tools tools;
    const char *unknown;
    bool strict = false;
    ERROR_TEXT(err);
    a->calls = chat_calls(a->h->chat.chat, &a->one_call, &unknown);
    if (!a->calls && !chat_is_harmony(a->h->chat.chat))
        return fail(CODE_INVALID_REQUEST, "tools: this model's answers cannot be read for calls: %s", unknown);
    if (!chat_tools_read(json, n, &tools, &why)) return refuse(&why);
    struct tools_function *list = calloc(tools.n + 1, sizeof *list);
    for (size_t i = 0; list && i < tools.n; i++) {
        const struct chat_tool *f = &tools.list[i];
        list[i] = f->parameters.data
                      ? (struct tools_function){ f->name, f->parameters, f->strict }
                      : (struct tools_function){ f->name, { nothing, sizeof nothing - 1 }, true }; /* takes none */
        strict = strict || f->strict;
    }
    const wk_status status = list ? tools_set_open(list, tools.n, &a->functions, &err)
                                  : wk_fail(&err, WK_NO_MEMORY, "no memory for the tools");
    free(list);
    chat_tools_free(&tools);
    return status ? fail_status(STAGE_TOKENS, status, &err) : mask(a, strict);
}

static int constrain(struct answering *a)
{
    const struct here *h = a->h;
    ERROR_TEXT(err);
    if (!a->grammar) return EXIT_DONE;
    const bool marked = !chat_is_harmony(h->chat.chat) && a->prompt.marks.open[0];
    const struct constraint_lead lead = { .marks = marked ? &a->prompt.marks : NULL };
    const wk_status status = constraint_open(a->grammar, h->index, h->x.model->tokenizer, h->x.model->program->n_vocab,
                                             &lead, &a->constraint, &err);
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

/* ---- an answer ----------------------------------------------------------------------------------------- */

static int make_prompt(struct answering *a, const char *messages, const char *tools)
{
    const struct here *h = a->h;
    struct chat_problem why;
    if (!conversation_read(messages, strlen(messages), &a->said, &why)) return refuse(&why);
    if (!conversation_check_calls(&a->said, &why)) return refuse(&why);
    struct chat_request q = CHAT_REQUEST_OF(&a->said);
    q.tools = (struct token_bytes){ tools, tools ? strlen(tools) : 0 };
    int result = tools ? offer(a, tools, q.tools.len) : EXIT_DONE;
    if (!result) result = model_chat_encode(h->o, h->x.model, h->chat.chat, &q, &a->prompt, &a->ids);
    return result ? result : model_chat_fits(h->x.model, &a->ids);
}

/* The answer's job; its constraint is the engine's from then on. */
static int submit(struct answering *a, struct job **out)
{
    const struct here *h = a->h;
    const struct engine_job spec = { .id = "chat",
                                     .prompt = a->ids.ids,
                                     .n_prompt = (uint32_t)a->ids.n,
                                     .max_tokens = option_u32(h->o, OPT_MAX_TOKENS),
                                     .ends = a->ends,
                                     .n_ends = a->n_ends,
                                     .params = &h->sampling->params,
                                     .constraint = a->constraint.mask ? &a->constraint : NULL,
                                     .no_completion = true };
    ERROR_TEXT(err);
    switch (engine_submit(h->engine, &spec, out, &err)) {
    case SUBMIT_OK: a->constraint = (struct sampler_constraint){ 0 }; return EXIT_DONE;
    case SUBMIT_NO_MEMORY:
    case SUBMIT_NEVER_FITS: return fail(CODE_INSUFFICIENT_MEMORY, "%s", err_text);
    case SUBMIT_DEAD: return fail_status(STAGE_STEP, WK_INTERNAL, &err);
    default: return fail_status(STAGE_TOKENS, WK_INVALID, &err);
    }
}

/* Ids until the job's end, or until no more are wanted; *stopped: that was so. */
static enum job_end follow(struct answering *a, struct job *j, bool *stopped)
{
    struct job_event e = { .kind = EVENT_STARTED };
    *stopped = false;
    while (e.kind != EVENT_END) {
        if (interrupted()) job_cancel(j);
        if (!job_next(j, &e, LOOK_MS)) continue;
        if (e.kind != EVENT_TOKEN || *stopped || interrupted()) continue;
        *stopped = take_id(a, e.id);
        if (*stopped) job_stop(j);
    }
    return e.end;
}

static int explain(enum job_end end, const struct job_figures *f)
{
    ERROR_TEXT(err);
    switch (end) {
    case JOB_STOP:
    case JOB_LENGTH:
    case JOB_CANCELLED: return EXIT_DONE;
    case JOB_NO_MEMORY: return fail_status(STAGE_STEP, wk_fail(&err, WK_NO_MEMORY, "%s", f->text), &err);
    case JOB_GRAMMAR:
        return fail_status(
            STAGE_STEP, wk_fail(&err, WK_INVALID, "the answer cannot go on as its grammar demands: %s", f->text), &err);
    case JOB_FAILED: return fail_status(STAGE_STEP, wk_fail(&err, WK_INVALID, "%s", f->text), &err);
    default: return fail_status(STAGE_STEP, wk_fail(&err, WK_INTERNAL, "%s", f->text), &err);
    }
}

static int run(struct answering *a, enum responder_end *out)
{
    struct token_line line[1];
    struct job_figures f;
    struct job *j;
    bool stopped;
    int result = submit(a, &j);
    if (result) return result;
    const enum job_end end = follow(a, j, &stopped);
    const bool complete = stopped || end == JOB_STOP;
    job_figures(j, &f);
    job_release(j);
    result = stopped ? EXIT_DONE : explain(end, &f);
    if (!result) take(a, line, token_text_end(a->text, !complete, line));
    *out = complete ? RESPONDER_STOP : end == JOB_LENGTH ? RESPONDER_LENGTH : RESPONDER_INTERRUPT;
    LOG(LOG_INFO, "chat_answer", NULL, log_u("tokens_in", f.n_prompt), log_u("tokens_cached", f.n_cached),
        log_u("tokens_out", f.n_generated), log_s("end", job_end_name(end)));
    return result;
}

static void free_answering(struct answering *a)
{
    constraint_close(&a->constraint);
    grammar_close(a->grammar);
    token_text_close(a->text);
    tools_set_close(a->functions);
    tokens_free(&a->ids);
    chat_prompt_free(&a->prompt);
    conversation_free(&a->said);
    http_text_free(&a->id);
    http_text_free(&a->name);
    http_text_free(&a->arguments);
}

static int answer(void *self, const struct dialog *d, struct spoken *s, enum responder_end *end)
{
    struct answering a = { .h = self, .spoken = s };
    char *messages = json_dumps(d->messages, JSON_COMPACT),
         *tools = d->tools ? json_dumps(d->tools, JSON_COMPACT) : NULL;
    int result = messages && (tools || !d->tools) ? make_prompt(&a, messages, tools)
                                                  : fail(CODE_INSUFFICIENT_MEMORY, "no memory for the conversation");
    find_ends(&a);
    if (!result) result = constrain(&a);
    if (!result) result = open_text(&a);
    if (!result) result = run(&a, end);
    free_answering(&a);
    free(messages);
    free(tools);
    return result;
}

static void close_here(void *self)
{
    struct here *h = self;
    engine_close(h->engine);
    grammar_index_close(h->index);
    model_chat_close(&h->chat);
    opened_close(&h->x);
    free(h);
}

static int open_engine(struct here *h)
{
    ERROR_TEXT(err);
    const struct engine_options options = {
        .max_sequences = 1, .max_batch_tokens = h->x.model->dev.max_rows, .max_queue = 1, .prefix_cache = true
    };
    const wk_status status = engine_open(h->x.model, &options, &h->engine, &err);
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

int responder_here(const struct options *o, const struct sampling *sampling, struct responder *out)
{
    char device[DEVICE_TEXT];
    struct here *h = calloc(1, sizeof *h);
    *out = (struct responder){ .answer = answer, .close = h ? close_here : NULL, .self = h };
    if (!h) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the model");
    h->o = o;
    h->sampling = sampling;
    int result =
        open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS_BEST, .max_logits_rows = 1, .load = true }, &h->x);
    if (!result) result = model_chat_tokenizer(h->x.model);
    if (!result) result = model_chat_open(o, h->x.model, "worker complete sends texts as they are", &h->chat);
    if (!result) result = model_chat_reasoning(o, h->chat.chat);
    if (!result) result = open_engine(h);
    if (result) return result;
    h->piece_max = token_text_piece_max(h->x.model->tokenizer);
    (void)snprintf(out->title, sizeof out->title, "%.200s on %s", h->x.model->name, opened_device(&h->x, device));
    return EXIT_DONE;
}
