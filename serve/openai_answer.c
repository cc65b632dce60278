/* openai_answer.c: see openai_answer.h. Chunks are events without a name: OpenAI's clients understand nothing else. */
#include "openai_answer.h"

#include <inttypes.h>
#include <string.h>

#include "openai_probs.h"
#include "timings.h"
#include "base/utf8.h"

static struct exchange *own(const struct stream *x) { return x->own; }
static struct item_list *items_of(const struct stream *x, const struct answer *a) { return &x->items->lists[a->index]; }
static struct token_probs *probs_of(const struct stream *x, const struct answer *a) { return &own(x)->probs[a->index]; }
static bool is_chat(const struct stream *x) { return own(x)->interface->chat; }

/* ---- what answers and chunks share --------------------------------------------------------------------- */

/* {"id": ..., "choices":[ */
static void begin(struct stream *x, bool chunk)
{
    http_text_format(&x->line, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", x->q.job_id,
                     !is_chat(x) ? "text_completion"
                     : chunk     ? "chat.completion.chunk"
                                 : "chat.completion",
                     own(x)->created);
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_format(&x->line, ",\"system_fingerprint\":\"%s\",\"choices\":[", x->m->fingerprint);
}

struct counts {
    size_t prompt;
    uint32_t out, cached, reasoning, again;
};

static void put_counts(struct stream *x, const struct counts *c)
{
    http_text_format(&x->line,
                     "\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%u,\"total_tokens\":%zu,\"prompt_tokens_"
                     "details\":{\"cached_tokens\":%u}",
                     c->prompt, c->out, c->prompt + c->out, c->cached);
    if (is_chat(x))
        http_text_format(&x->line, ",\"completion_tokens_details\":{\"reasoning_tokens\":%u}", c->reasoning);
    if (c->again) http_text_format(&x->line, ",\"cached_completions\":%u", c->again);
    http_text_format(&x->line, "}");
}

/* Of all answers. */
static void put_usage(struct stream *x)
{
    const struct items *t = x->items;
    put_counts(x, &(struct counts){ items_prompt_tokens(x), t->tokens_out, t->cached, t->reasoning_ids, t->again });
}

/* Of one, so far. */
static void put_usage_of(struct stream *x, const struct answer *a)
{
    struct job_figures f;
    job_figures(a->job, &f);
    put_counts(x, &(struct counts){ x->prompts[a->prompt].ids.n, a->tokens_out, f.n_cached,
                                    token_text_reasoning_ids(a->text), f.completion_hit });
}

/* always: also where there are none, as after a request for no token. */
static void put_probs(struct stream *x, struct token_probs *p, bool always)
{
    http_text_format(&x->line, ",\"logprobs\":");
    if (x->probs && (always || token_probs_bytes(p)))
        token_probs_put(&x->line, p, is_chat(x));
    else
        http_text_add(&x->line, "null", 4);
}

/* Characters that the id adds to the text; what is no character by itself counts where it begins. */
static size_t count_chars(const struct stream *x, uint32_t id, bool special)
{
    const struct token_bytes piece = tokenizer_piece(x->m->facts.tokenizer, id, special);
    size_t n = 0;
    for (size_t i = 0; i < piece.len; i++) n += ((unsigned char)piece.data[i] & 0xc0) != 0x80;
    return n;
}

static uint32_t most_top(const struct stream *x)
{
    const uint32_t n_vocab = x->m->facts.n_vocab;
    return x->top < n_vocab ? x->top : n_vocab;
}

static void add_probs(struct stream *x, struct answer *a, const struct token_line *line)
{
    const struct tokenizer *t = x->m->facts.tokenizer;
    const struct sampler_prob *of = answer_probs(a, line);
    if (!x->probs) return;
    if (is_chat(x))
        token_probs_add_content(probs_of(x, a), t, of, most_top(x));
    else
        token_probs_add_lists(probs_of(x, a), t, line->id, of, most_top(x), count_chars(x, line->id, false));
}

/* The id that ended the answer, with an echo: who asks for one and a token cuts the last place off, to have the
 * prompt's, whatever the token is. */
static void add_end(struct stream *x, const struct answer *a)
{
    if (!own(x)->echoed || !x->probs || !a->end_probs) return;
    token_probs_add_lists(probs_of(x, a), x->m->facts.tokenizer, a->end_probs->id, a->end_probs, most_top(x), 0);
}

/* ---- prompts in answers -------------------------------------------------------------------------------- */

struct prompt_row {
    const struct job *job;
};
static const struct sampler_prob *row_of(void *user, size_t i, uint32_t *n_top)
{
    return job_prompt_probs(((struct prompt_row *)user)->job, (uint32_t)i, n_top);
}

/* The first answer to a prompt has its log probabilities. */
static const struct job *scored(const struct stream *x, const struct answer *a)
{
    return x->answers[a->prompt * x->each].job;
}

/* Offsets are those of the prompt's text: what its ids are longer by is in front, a space or a token that the text does
 * not spell. */
static void echo_probs(struct stream *x, const struct answer *a, const struct http_text *text)
{
    const struct exchange *c = own(x);
    const struct tokens *ids = &x->prompts[a->prompt].ids;
    const bool special = c->q.q.parse_special;
    struct token_probs *p = probs_of(x, a);
    const size_t chars = utf8_count(text->n ? text->data : "", text->n);
    size_t all = 0, at = 0;
    for (size_t i = 0; i < ids->n; i++) all += count_chars(x, ids->ids[i], special);
    const size_t hidden = all > chars ? all - chars : 0;
    for (size_t i = 0; i < ids->n; i++) {
        uint32_t n_top = 0;
        const struct sampler_prob *of = i ? job_prompt_probs(scored(x, a), (uint32_t)i, &n_top) : NULL;
        p->chars = at > hidden ? at - hidden : 0;
        token_probs_add_lists(p, x->m->facts.tokenizer, ids->ids[i], of, n_top < c->q.top ? n_top : c->q.top, 0);
        at += count_chars(x, ids->ids[i], special);
    }
    p->chars = chars;
}

/* What the choice begins with, once; its log probabilities are added. NULL: nothing, or it was said. */
static const struct http_text *echo(struct stream *x, const struct answer *a)
{
    struct exchange *e = own(x);
    if (!e->echoed || e->begun[a->index]) return NULL;
    e->begun[a->index] = true;
    if (x->probs) echo_probs(x, a, &e->echoed[a->prompt]);
    return &e->echoed[a->prompt];
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

/* {..., "choices":[{"index":I, */
static void begin_choice(struct stream *x, const struct answer *a)
{
    begin(x, true);
    http_text_format(&x->line, "{\"index\":%u,", a->index);
}

/* The choice's end, with the log probabilities that wait; the chunk's is open. reason NULL: not the last chunk. */
static void end_choice(struct stream *x, const struct answer *a, const char *reason)
{
    put_probs(x, probs_of(x, a), false);
    if (reason)
        http_text_format(&x->line, ",\"finish_reason\":\"%s\"}]", reason);
    else
        http_text_format(&x->line, ",\"finish_reason\":null}]");
    if (own(x)->q.usage) http_text_add(&x->line, ",", 1);
    if (own(x)->q.usage_each)
        put_usage_of(x, a);
    else if (own(x)->q.usage)
        http_text_format(&x->line, "\"usage\":null");
}

static void send_choice(struct stream *x, const struct answer *a, const char *reason)
{
    end_choice(x, a, reason);
    if (own(x)->q.timings && (reason || a->tokens_out)) timings_put_now(&x->line, a, reason != NULL);
    http_text_add(&x->line, "}", 1);
    (void)stream_event(x, NULL);
}

/* member: of the delta of a chat, before the text, NULL: an empty delta. */
static void send_text(struct stream *x, const struct answer *a, const char *member, const char *text, size_t n,
                      const char *reason)
{
    begin_choice(x, a);
    http_text_format(&x->line, "%s%s", is_chat(x) ? "\"delta\":{" : "\"text\":", is_chat(x) && member ? member : "");
    if (member || !is_chat(x)) http_text_json(&x->line, text, n);
    if (is_chat(x)) http_text_add(&x->line, "}", 1);
    send_choice(x, a, reason);
}

static void stream_echo(struct stream *x, const struct answer *a)
{
    const struct http_text *text = echo(x, a);
    if (text) send_text(x, a, NULL, text->data, text->n, NULL);
}

static void chat_start(struct stream *x, struct answer *a)
{
    send_text(x, a, "\"role\":\"assistant\",\"content\":", "", 0, NULL);
}

static void stream_progress(struct stream *x, struct answer *a, uint32_t n_done)
{
    begin_choice(x, a);
    http_text_format(&x->line, is_chat(x) ? "\"delta\":{}" : "\"text\":\"\"");
    end_choice(x, a, NULL);
    timings_put_progress(&x->line, a, n_done, own(x)->q.timings);
    http_text_add(&x->line, "}", 1);
    (void)stream_event(x, NULL);
}

static void stream_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    stream_echo(x, a);
    add_probs(x, a, line);
}

static void begin_call(struct stream *x, const struct answer *a, const struct item *i)
{
    begin_choice(x, a);
    http_text_format(&x->line, "\"delta\":{\"content\":null,\"tool_calls\":[{\"index\":%u,", i->nth);
}

static void end_call(struct stream *x, const struct answer *a)
{
    http_text_format(&x->line, "}}]}");
    send_choice(x, a, NULL);
}

/* "id": ..., as far as the arguments. */
static void put_call(struct http_text *out, const struct item *i)
{
    http_text_format(out, "\"id\":");
    http_text_json(out, i->id.data, i->id.n);
    http_text_format(out, ",\"type\":\"function\",\"function\":{\"name\":");
    http_text_json(out, i->name.data, i->name.n);
    http_text_format(out, ",\"arguments\":");
}

static void chat_begin(struct stream *x, struct answer *a, struct item *i)
{
    if (i->kind != ITEM_CALL) return;
    begin_call(x, a, i);
    put_call(&x->line, i);
    http_text_json(&x->line, "", 0);
    end_call(x, a);
}

static void chat_grow(struct stream *x, struct answer *a, struct item *i, const char *text, size_t n)
{
    if (i->kind != ITEM_CALL) {
        send_text(x, a, i->kind == ITEM_TEXT ? "\"content\":" : "\"reasoning_content\":", text, n, NULL);
        return;
    }
    begin_call(x, a, i);
    http_text_format(&x->line, "\"function\":{\"arguments\":");
    http_text_json(&x->line, text, n);
    end_call(x, a);
}

static void completion_grow(struct stream *x, struct answer *a, struct item *i, const char *text, size_t n)
{
    if (i->kind == ITEM_TEXT) send_text(x, a, NULL, text, n, NULL);
}

static void stream_over(struct stream *x, struct answer *a, const struct ending *e)
{
    stream_echo(x, a);
    add_end(x, a);
    send_text(x, a, NULL, "", 0, e->reason);
}

static void stream_done(struct stream *x)
{
    if ((own(x)->q.usage || x->keeps) && !x->gone) {
        begin(x, true);
        http_text_format(&x->line, own(x)->q.usage ? "]," : "]");
        if (own(x)->q.usage) put_usage(x);
        if (own(x)->q.usage && own(x)->q.timings) timings_put_now(&x->line, &x->answers[0], true);
        transfer_put(&x->line, x);
        http_text_format(&x->line, "}");
        (void)stream_event(x, NULL);
    }
    if (x->gone) return;
    http_text_format(&x->line, "[DONE]");
    (void)stream_event(x, NULL);
}

/* ---- a whole answer ------------------------------------------------------------------------------------ */

/* Bytes of log probabilities that wait for the answer's end. */
static size_t probs_bytes(const struct stream *x)
{
    size_t n = 0;
    for (uint32_t i = 0; x->probs && i < x->n_answers; i++) n += token_probs_bytes(&own(x)->probs[i]);
    return n;
}

static void whole_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    (void)echo(x, a); /* its log probabilities come first */
    add_probs(x, a, line);
    if (x->probs) items_reserve(x, probs_bytes(x));
}

static void whole_over(struct stream *x, struct answer *a, const struct ending *e)
{
    (void)e;
    (void)echo(x, a);
    add_end(x, a);
    if (x->probs) items_reserve(x, probs_bytes(x));
}

static void put_prompt_probs(struct stream *x, const struct answer *a)
{
    struct prompt_row row = { scored(x, a) };
    http_text_format(&x->line, ",\"prompt_logprobs\":");
    prompt_probs_put(&x->line, x->m->facts.tokenizer, x->prompts[a->prompt].ids.n, row_of, &row, own(x)->q.prompt_top);
}

/* All items of that kind as one JSON string, behind the text that the answer begins with. */
static bool put_texts(struct stream *x, const struct answer *a, enum item_kind kind)
{
    const struct item_list *l = items_of(x, a);
    const struct exchange *e = own(x);
    struct http_text all = { 0 };
    if (kind == ITEM_TEXT && e->echoed) http_text_add(&all, e->echoed[a->prompt].data, e->echoed[a->prompt].n);
    for (uint32_t i = 0; i < l->n; i++)
        if (l->list[i].kind == kind) http_text_add(&all, l->list[i].text.data, l->list[i].text.n);
    http_text_json(&x->line, all.n ? all.data : "", all.n);
    const bool good = !all.failed;
    http_text_free(&all);
    return good;
}

static size_t bytes_of(const struct item_list *l, enum item_kind kind)
{
    size_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) n += l->list[i].kind == kind ? l->list[i].bytes : 0;
    return n;
}

static void put_calls(struct stream *x, const struct item_list *l)
{
    http_text_format(&x->line, ",\"tool_calls\":[");
    for (uint32_t i = 0; i < l->n; i++) {
        const struct item *call = &l->list[i];
        if (call->kind != ITEM_CALL) continue;
        http_text_format(&x->line, call->nth ? ",{" : "{");
        put_call(&x->line, call);
        http_text_json(&x->line, call->text.n ? call->text.data : "", call->text.n);
        http_text_format(&x->line, "}}");
    }
    http_text_add(&x->line, "]", 1);
}

static bool has_calls(const struct item_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->list[i].kind == ITEM_CALL) return true;
    return false;
}

static bool put_message(struct stream *x, const struct answer *a)
{
    const struct item_list *l = items_of(x, a);
    bool good = true;
    http_text_format(&x->line, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (has_calls(l) && !bytes_of(l, ITEM_TEXT))
        http_text_add(&x->line, "null", 4);
    else
        good = put_texts(x, a, ITEM_TEXT);
    if (bytes_of(l, ITEM_REASONING)) {
        http_text_format(&x->line, ",\"reasoning_content\":");
        good = put_texts(x, a, ITEM_REASONING) && good;
    }
    if (has_calls(l)) put_calls(x, l);
    http_text_format(&x->line, ",\"refusal\":null}");
    return good;
}

static bool put_text(struct stream *x, const struct answer *a)
{
    http_text_format(&x->line, "\"text\":");
    return put_texts(x, a, ITEM_TEXT);
}

static bool put_choice(struct stream *x, const struct answer *a)
{
    const bool prompt = own(x)->q.prompt_probs && !is_chat(x);
    http_text_format(&x->line, "%s{\"index\":%u,", a->index ? "," : "", a->index);
    const bool good = (is_chat(x) ? put_message : put_text)(x, a) && !token_probs_failed(probs_of(x, a));
    put_probs(x, probs_of(x, a), true);
    if (prompt) put_prompt_probs(x, a);
    http_text_format(&x->line, ",\"finish_reason\":\"%s\"}", items_of(x, a)->reason);
    return good;
}

/* Bytes that the prompts' log probabilities take in the answer, about. */
static size_t prompt_probs_bytes(const struct stream *x)
{
    enum { ENTRY = 96 };
    size_t n = 0;
    for (uint32_t i = 0; i < x->n_answers; i++) n += x->prompts[x->answers[i].prompt].ids.n;
    return own(x)->q.prompt_probs ? n * (1 + own(x)->q.prompt_top) * ENTRY : 0;
}

static void whole_done(struct stream *x)
{
    bool good = true;
    if (!http_reserve(x->r, prompt_probs_bytes(x))) return;
    begin(x, false);
    for (uint32_t i = 0; i < x->n_answers; i++) good = put_choice(x, &x->answers[i]) && good;
    http_text_format(&x->line, "],");
    put_usage(x);
    if (own(x)->q.prompt_probs && is_chat(x)) put_prompt_probs(x, &x->answers[0]);
    if (own(x)->q.timings) timings_put_now(&x->line, &x->answers[0], true);
    transfer_put(&x->line, x);
    http_text_format(&x->line, "}\n");
    items_send(x, good);
}

/* ---- the encoders -------------------------------------------------------------------------------------- */

const struct encoder openai_chat_stream = { .start = chat_start,
                                            .progress = stream_progress,
                                            .line = stream_line,
                                            .begin = chat_begin,
                                            .grow = chat_grow,
                                            .over = stream_over,
                                            .done = stream_done,
                                            .error = items_stream_error };
const struct encoder openai_completion_stream = { .progress = stream_progress,
                                                  .line = stream_line,
                                                  .grow = completion_grow,
                                                  .over = stream_over,
                                                  .done = stream_done,
                                                  .error = items_stream_error };
const struct encoder openai_chat_whole = {
    .keeps = true, .line = whole_line, .over = whole_over, .done = whole_done, .error = items_whole_error
};
const struct encoder openai_completion_whole = {
    .keeps = true, .line = whole_line, .over = whole_over, .done = whole_done, .error = items_whole_error
};
