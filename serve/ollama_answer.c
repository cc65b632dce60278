/* ollama_answer.c: items as Ollama's answers. A stream's lines carry a piece of the text or of the reasoning, or one
 * call, whose arguments are an object and so come whole; the last line has the counts. A call that a limit has cut has
 * no such object and is left out: done_reason says "length". */
#include "ollama.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "openai_probs.h"
#include "raw.h"

static bool is_generate(const struct stream *x) { return ollama_of(exchange_of(x))->generate; }
static struct token_probs *probs_of(const struct stream *x, const struct answer *a)
{
    return &exchange_of(x)->probs[a->index];
}

/* ---- what lines share ---------------------------------------------------------------------------------- */

void ollama_now(char out[OLLAMA_TIME])
{
    struct timespec now = { 0 };
    struct tm t;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!gmtime_r(&now.tv_sec, &t)) t = (struct tm){ .tm_mday = 1, .tm_year = 70 };
    const size_t n = strftime(out, OLLAMA_TIME, "%Y-%m-%dT%H:%M:%S", &t);
    (void)snprintf(out + n, OLLAMA_TIME - n, ".%09uZ", (unsigned)now.tv_nsec % 1000000000u);
}

void ollama_put_head(struct http_text *out, const struct exchange *e, const struct serve_model *m)
{
    const char *name = ollama_of(e)->body.model ? ollama_of(e)->body.model : m->name;
    char now[OLLAMA_TIME];
    ollama_now(now);
    http_text_format(out, "{\"model\":");
    http_text_json(out, name, strlen(name));
    http_text_format(out, ",\"created_at\":\"%s\"", now);
}

/* What an answer says, all of it or a piece. */
struct said {
    struct http_text text, thinking, calls; /* calls: as they stand in a list */
};

static void free_said(struct said *s)
{
    http_text_free(&s->text);
    http_text_free(&s->thinking);
    http_text_free(&s->calls);
}

static void add_call(struct http_text *out, const struct item *i)
{
    http_text_format(out, "%s{\"id\":", out->n ? "," : "");
    http_text_json(out, i->id.n ? i->id.data : "", i->id.n);
    http_text_format(out, ",\"function\":{\"index\":%u,\"name\":", i->nth);
    http_text_json(out, i->name.n ? i->name.data : "", i->name.n);
    http_text_format(out, ",\"arguments\":");
    /* JSON as the model has written it, in which a line may end between two tokens */
    raw_copy_line(out, (struct raw){ i->text.n ? i->text.data : NULL, i->text.n, JR_OBJECT }, "{}");
    http_text_format(out, "}}");
}

static void put_member(struct http_text *out, const char *name, const char *text, size_t n)
{
    http_text_format(out, "\"%s\":", name);
    http_text_json(out, n ? text : "", n);
}

/* {"model": ..., "created_at": ..., the message or the response, and the log probabilities that wait. */
static void put_line(struct stream *x, const struct answer *a, const struct said *s)
{
    struct token_probs *p = probs_of(x, a);
    ollama_put_head(&x->line, exchange_of(x), x->m);
    http_text_format(&x->line, is_generate(x) ? "," : ",\"message\":{\"role\":\"assistant\",");
    put_member(&x->line, is_generate(x) ? "response" : "content", s->text.data, s->text.n);
    if (s->thinking.n) {
        http_text_add(&x->line, ",", 1);
        put_member(&x->line, "thinking", s->thinking.data, s->thinking.n);
    }
    if (s->calls.n) {
        http_text_format(&x->line, ",\"tool_calls\":[");
        http_text_add(&x->line, s->calls.data, s->calls.n);
        http_text_add(&x->line, "]", 1);
    }
    if (!is_generate(x)) http_text_add(&x->line, "}", 1);
    if (x->probs && token_probs_bytes(p)) {
        http_text_format(&x->line, ",\"logprobs\":[");
        token_probs_take(&x->line, p);
        http_text_add(&x->line, "]", 1);
    }
    x->line.failed = x->line.failed || s->text.failed || s->thinking.failed || s->calls.failed;
}

static uint64_t between(uint64_t from, uint64_t to) { return from && to > from ? to - from : 0; }

/* The end of the last line, and of a whole answer. What passes before the job starts counts as loading, as there. */
static void put_end(struct stream *x, const struct answer *a, const struct ending *e)
{
    const struct job_figures *f = &e->f;
    http_text_format(&x->line,
                     ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64 ",\"load_duration\":%" PRIu64
                     ",\"prompt_eval_count\":%zu,\"prompt_eval_duration\":%" PRIu64
                     ",\"eval_count\":%u,\"eval_duration\":%" PRIu64 "}",
                     strcmp(e->reason, "length") == 0 ? "length" : "stop", between(x->arrived_ns, f->ended_ns),
                     between(x->arrived_ns, f->started_ns), items_prompt_tokens(x),
                     between(f->started_ns, f->first_token_ns ? f->first_token_ns : f->ended_ns), a->tokens_out,
                     between(f->first_token_ns, f->last_token_ns));
}

static void add_probs(struct stream *x, struct answer *a, const struct token_line *line)
{
    const uint32_t n_vocab = x->m->facts.n_vocab;
    if (x->probs)
        token_probs_add_content(probs_of(x, a), x->m->facts.tokenizer, answer_probs(a, line),
                                x->top < n_vocab ? x->top : n_vocab);
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

static void send_line(struct stream *x, const struct answer *a, const struct said *s)
{
    put_line(x, a, s);
    http_text_format(&x->line, ",\"done\":false}");
    (void)stream_event(x, NULL);
}

static void stream_grow(struct stream *x, struct answer *a, struct item *i, const char *text, size_t n)
{
    struct said s = { 0 };
    if (i->kind == ITEM_CALL) return;
    http_text_add(i->kind == ITEM_TEXT ? &s.text : &s.thinking, text, n);
    send_line(x, a, &s);
    free_said(&s);
}

static void stream_end(struct stream *x, struct answer *a, struct item *i)
{
    struct said s = { 0 };
    if (i->kind != ITEM_CALL || i->cut) return;
    add_call(&s.calls, i);
    s.calls.failed = s.calls.failed || i->text.failed;
    send_line(x, a, &s);
    free_said(&s);
}

static void stream_over(struct stream *x, struct answer *a, const struct ending *e)
{
    put_line(x, a, &(struct said){ 0 });
    put_end(x, a, e);
    (void)stream_event(x, NULL);
}

/* ---- a whole answer ------------------------------------------------------------------------------------ */

static void whole_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    add_probs(x, a, line);
    if (x->probs) items_reserve(x, token_probs_bytes(probs_of(x, a)));
}

static void whole_over(struct stream *x, struct answer *a, const struct ending *e)
{
    const struct item_list *l = &x->items->lists[a->index];
    struct said s = { 0 };
    for (uint32_t k = 0; k < l->n; k++) {
        const struct item *i = &l->list[k];
        if (i->kind == ITEM_CALL && !i->cut) add_call(&s.calls, i);
        if (i->kind != ITEM_CALL) http_text_add(i->kind == ITEM_TEXT ? &s.text : &s.thinking, i->text.data, i->text.n);
    }
    put_line(x, a, &s);
    put_end(x, a, e);
    http_text_add(&x->line, "\n", 1);
    free_said(&s);
}

static void whole_done(struct stream *x) { items_send(x, !token_probs_failed(probs_of(x, &x->answers[0]))); }

const struct encoder ollama_stream = { .keeps_calls = true,
                                       .line = add_probs,
                                       .grow = stream_grow,
                                       .end = stream_end,
                                       .over = stream_over,
                                       .error = items_stream_error };
const struct encoder ollama_whole = {
    .keeps = true, .line = whole_line, .over = whole_over, .done = whole_done, .error = items_whole_error
};
