/* openai_answer.c: see openai_answer.h. Chunks are events without a name: OpenAI's clients understand nothing else. */
#include "openai_answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "tokenizer/utf8.h"
#include "tool_grammar.h"

enum {
    RESERVE_STEP = 64 << 10,
    RESERVE_TIMES = 4 /* bytes for each of a whole answer: it is copied, and grows twofold */
};

bool completion_open(struct completion *c)
{
    c->n_choices = c->q.n_prompts * c->q.n;
    c->choices = calloc(c->n_choices, sizeof *c->choices);
    if (c->q.echo) c->echoed = calloc(c->q.n_prompts, sizeof *c->echoed);
    return c->choices && (c->echoed || !c->q.echo);
}

void completion_free(struct completion *c)
{
    for (uint32_t i = 0; c->choices && i < c->n_choices; i++) {
        http_text_free(&c->choices[i].text);
        http_text_free(&c->choices[i].reasoning);
        http_text_free(&c->choices[i].calls);
        http_text_free(&c->choices[i].call);
        http_text_free(&c->choices[i].arguments);
        token_probs_free(&c->choices[i].probs);
    }
    for (uint32_t i = 0; c->echoed && i < c->n_choices / c->q.n; i++) http_text_free(&c->echoed[i]);
    free(c->choices);
    free(c->echoed);
    grammar_close(c->grammar);
    tools_set_close(c->functions);
    openai_request_free(&c->q);
}

static struct completion *own(const struct stream *x) { return x->own; }
static struct choice *choice_of(const struct stream *x, const struct answer *a) { return &own(x)->choices[a->index]; }

/* ---- what answers and chunks share --------------------------------------------------------------------- */

/* {"id": ..., "choices":[ */
static void begin(struct stream *x, bool chunk)
{
    const struct completion *c = own(x);
    http_text_format(&x->line, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", x->q.job_id,
                     !c->chat ? "text_completion"
                     : chunk  ? "chat.completion.chunk"
                              : "chat.completion",
                     c->created);
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_format(&x->line, ",\"system_fingerprint\":\"%s\",\"choices\":[", x->m->fingerprint);
}

/* A prompt counts once, however many answers it has. */
static void put_usage(struct stream *x)
{
    const struct completion *c = own(x);
    size_t prompts = 0;
    for (uint32_t i = 0; i < x->n_prompts; i++) prompts += x->prompts[i].ids.n;
    http_text_format(&x->line,
                     "\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%u,\"total_tokens\":%zu,\"prompt_tokens_"
                     "details\":{\"cached_tokens\":%u}",
                     prompts, c->tokens_out, prompts + c->tokens_out, c->cached);
    if (c->chat)
        http_text_format(&x->line, ",\"completion_tokens_details\":{\"reasoning_tokens\":%u}", c->reasoning_ids);
    if (c->again) http_text_format(&x->line, ",\"cached_completions\":%u", c->again);
    http_text_format(&x->line, "}");
}

/* always: also where there are none, as after a request for no token. */
static void put_probs(struct stream *x, struct choice *o, bool always)
{
    http_text_format(&x->line, ",\"logprobs\":");
    if (own(x)->q.probs && (always || token_probs_bytes(&o->probs)))
        token_probs_put(&x->line, &o->probs, own(x)->chat);
    else
        http_text_add(&x->line, "null", 4);
}

static void count_end(struct stream *x, const struct answer *a, const struct ending *e)
{
    struct completion *c = own(x);
    choice_of(x, a)->reason = e->reason;
    c->tokens_out += a->tokens_out;
    c->reasoning_ids += token_text_reasoning_ids(a->text);
    if (a->index % x->each == 0) c->cached += e->f.n_cached;
    c->again += e->f.completion_hit;
}

/* Characters that the id adds to the text; what is no character by itself counts where it begins. */
static size_t count_chars(const struct stream *x, uint32_t id, bool special)
{
    const struct token_bytes piece = tokenizer_piece(x->m->model->tokenizer, id, special);
    size_t n = 0;
    for (size_t i = 0; i < piece.len; i++) n += ((unsigned char)piece.data[i] & 0xc0) != 0x80;
    return n;
}

static uint32_t most_top(const struct stream *x)
{
    const uint32_t n_vocab = x->m->model->program->n_vocab, top = own(x)->q.top;
    return top < n_vocab ? top : n_vocab;
}

static void add_probs(struct stream *x, struct answer *a, const struct token_line *line)
{
    const struct completion *c = own(x);
    const struct tokenizer *t = x->m->model->tokenizer;
    struct token_probs *p = &choice_of(x, a)->probs;
    const struct sampler_prob *of = answer_probs(a, line);
    if (!c->q.probs) return;
    if (c->chat)
        token_probs_add_content(p, t, of, most_top(x));
    else
        token_probs_add_lists(p, t, line->id, of, most_top(x), count_chars(x, line->id, false));
}

/* The id that ended the answer, with an echo: who asks for one and a token cuts the last place off, to have the
 * prompt's, whatever the token is. */
static void add_end(struct stream *x, const struct answer *a)
{
    const struct completion *c = own(x);
    if (!c->echoed || !c->q.probs || !a->end_probs) return;
    token_probs_add_lists(&choice_of(x, a)->probs, x->m->model->tokenizer, a->end_probs->id, a->end_probs, most_top(x),
                          0);
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
    const struct completion *c = own(x);
    const struct tokens *ids = &x->prompts[a->prompt].ids;
    const bool special = c->q.q.parse_special;
    struct token_probs *p = &choice_of(x, a)->probs;
    const size_t chars = utf8_count(text->n ? text->data : "", text->n);
    size_t all = 0, at = 0;
    for (size_t i = 0; i < ids->n; i++) all += count_chars(x, ids->ids[i], special);
    const size_t hidden = all > chars ? all - chars : 0;
    for (size_t i = 0; i < ids->n; i++) {
        uint32_t n_top = 0;
        const struct sampler_prob *of = i ? job_prompt_probs(scored(x, a), (uint32_t)i, &n_top) : NULL;
        p->chars = at > hidden ? at - hidden : 0;
        token_probs_add_lists(p, x->m->model->tokenizer, ids->ids[i], of, n_top < c->q.top ? n_top : c->q.top, 0);
        at += count_chars(x, ids->ids[i], special);
    }
    p->chars = chars;
}

/* What the choice begins with, once; its log probabilities are added. NULL: nothing, or it was said. */
static const struct http_text *echo(struct stream *x, const struct answer *a)
{
    const struct completion *c = own(x);
    struct choice *o = choice_of(x, a);
    if (!c->echoed || o->begun) return NULL;
    o->begun = true;
    if (c->q.probs) echo_probs(x, a, &c->echoed[a->prompt]);
    return &c->echoed[a->prompt];
}

/* ---- prompts ------------------------------------------------------------------------------------------- */

static wk_status copy_ids(struct stream *x, const struct openai_prompt *from, struct tokens *out,
                          const struct wk_err *err)
{
    const uint32_t n_vocab = x->m->model->program->n_vocab;
    out->ids = calloc(from->n_ids, sizeof *out->ids);
    if (!out->ids) return wk_fail(err, WK_NO_MEMORY, "no memory for %zu ids", from->n_ids);
    memcpy(out->ids, from->ids, from->n_ids * sizeof *out->ids);
    out->n = out->cap = from->n_ids;
    for (size_t i = 0; i < out->n; i++)
        if (out->ids[i] >= n_vocab)
            return wk_fail(err, WK_INVALID, "id %zu is %u: the vocabulary has %u ids", i, out->ids[i], n_vocab);
    return WK_OK;
}

/* The text that answers begin with: the prompt as it came, or what its ids say. */
static wk_status keep_echo(struct stream *x, const struct openai_prompt *from, const struct stream_prompt *p,
                           const struct wk_err *err)
{
    struct http_text *out = &own(x)->echoed[p - x->prompts];
    char *text = NULL;
    size_t n = 0;
    if (!from->ids) {
        http_text_add(out, from->text, from->len);
    } else {
        const wk_status status = tokenizer_decode(x->m->model->tokenizer, p->ids.ids, p->ids.n, false, &text, &n, err);
        if (status) return status;
        http_text_add(out, text, n);
        free(text);
    }
    return out->failed ? wk_fail(err, WK_NO_MEMORY, "no memory for its text") : WK_OK;
}

static wk_status encode_completion(struct stream *x, const struct openai_prompt *from, struct stream_prompt *p,
                                   const struct wk_err *err)
{
    const struct completion *c = own(x);
    const struct tokenizer_part raw = { from->text, from->len, x->q.parse_special };
    const wk_status status =
        from->ids ? copy_ids(x, from, &p->ids, err) : stream_encode(x, p, &raw, 1, c->q.add_special, err);
    return status || !c->echoed ? status : keep_echo(x, from, p, err);
}

/* The functions that the answers may call. False: x->problem. */
static bool offer(struct stream *x)
{
    struct completion *c = own(x);
    const struct openai_tools *t = &c->q.tools;
    char text[256] = "";
    bool single;
    const char *unknown;
    x->calls = chat_calls(x->m->chat, &single, &unknown);
    if (!x->calls) x->calls = chat_json_calls(x->m->chat, t->one);
    if (!x->calls && !chat_is_harmony(x->m->chat))
        return chat_refuse(&x->problem, WK_UNSUPPORTED, "tools", "this model's answers cannot be read for calls: %s",
                           unknown);
    if (chat_json_calls(x->m->chat, t->one) && t->choice == TOOLS_CHOICE_AUTO)
        return chat_refuse(&x->problem, WK_UNSUPPORTED, "tool_choice",
                           "expected required, a function, or none: with --tool-format json an answer is calls only "
                           "where it must be, since of itself this model writes them in no form that is known");
    const wk_status status = openai_tools_set(t, &c->functions, &(struct wk_err){ text, sizeof text });
    if (status) return chat_refuse(&x->problem, status, "tools", "%s", text);
    x->functions = c->functions;
    x->one_call = t->one;
    x->must_call = t->choice != TOOLS_CHOICE_AUTO;
    if (!tool_grammar_make(x->m, x->calls, t, x->formed && !x->must_call, x->work, &c->grammar, &x->problem))
        return false;
    x->grammar = c->grammar;
    return !x->grammar || !x->q.ignore_eos ||
           chat_refuse(&x->problem, WK_INVALID, "ignore_eos",
                       "expected false, or nothing, with tools: calls have an end");
}

static wk_status encode(struct stream *x, struct stream_prompt *p, const struct wk_err *err)
{
    const struct completion *c = own(x);
    const struct openai_prompt *from = &c->q.prompts[p - x->prompts];
    p->text = from->text;
    p->len = from->len;
    p->chars = from->chars;
    if (!c->chat) return encode_completion(x, from, p, err);
    struct chat_request q = c->q.chat;
    if (c->q.tools.choice != TOOLS_CHOICE_NONE && !offer(x)) return x->problem.status;
    return stream_chat(x, p, &q, err);
}

static void release(struct stream *x)
{
    struct completion *c = own(x);
    openai_request_free(&c->q); /* how many answers there are, and what they are to hold, stays */
    x->q.body = NULL;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

/* What is known of a call: o->call, and o->arguments so far. */
static void take_call(struct choice *o, const struct tools_event *e)
{
    if (e->kind == TOOLS_CALL) {
        o->calling = true;
        o->call.n = o->arguments.n = 0;
        http_text_format(&o->call, "\"id\":");
        http_text_json(&o->call, e->id.data, e->id.len);
        http_text_format(&o->call, ",\"type\":\"function\",\"function\":{\"name\":");
        http_text_json(&o->call, e->text.data, e->text.len);
        http_text_format(&o->call, ",\"arguments\":");
    }
    if (e->kind == TOOLS_ARGUMENTS) http_text_add(&o->arguments, e->text.data, e->text.len);
    if (e->kind == TOOLS_BROKEN) o->calling = false;
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

/* One chunk of a choice, with the log probabilities that wait. member: of the delta of a chat, before the text, NULL:
 * an empty delta; reason NULL: not the last. */
static void send_chunk(struct stream *x, const struct answer *a, const char *member, const char *text, size_t n,
                       const char *reason)
{
    const struct completion *c = own(x);
    begin(x, true);
    http_text_format(&x->line, "{\"index\":%u,%s%s", a->index,
                     c->chat ? "\"delta\":{" : "\"text\":", c->chat && member ? member : "");
    if (member || !c->chat) http_text_json(&x->line, text, n);
    if (c->chat) http_text_add(&x->line, "}", 1);
    put_probs(x, choice_of(x, a), false);
    if (reason)
        http_text_format(&x->line, ",\"finish_reason\":\"%s\"}]", reason);
    else
        http_text_format(&x->line, ",\"finish_reason\":null}]");
    http_text_format(&x->line, c->q.usage ? ",\"usage\":null}" : "}");
    (void)stream_event(x, NULL);
}

static void stream_echo(struct stream *x, const struct answer *a)
{
    const struct http_text *text = echo(x, a);
    if (text) send_chunk(x, a, NULL, text->data, text->n, NULL);
}

static void stream_started(struct stream *x, struct answer *a)
{
    if (own(x)->chat) send_chunk(x, a, "\"role\":\"assistant\",\"content\":", "", 0, NULL);
}

static void stream_token(struct stream *x, struct answer *a)
{
    const struct token_bytes said = token_text_reasoning(a->text);
    if (said.len && own(x)->q.reasoning) send_chunk(x, a, "\"reasoning_content\":", said.data, said.len, NULL);
}

static void stream_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    stream_echo(x, a);
    add_probs(x, a, line);
    if (line->n || own(x)->q.probs) send_chunk(x, a, "\"content\":", line->text, line->n, NULL);
}

/* A chunk of one call. first: as JSON, what its delta begins with. */
static void send_call(struct stream *x, const struct answer *a, uint32_t index, const struct http_text *first,
                      struct token_bytes arguments)
{
    begin(x, true);
    http_text_format(&x->line, "{\"index\":%u,\"delta\":{\"content\":null,\"tool_calls\":[{\"index\":%u,", a->index,
                     index);
    if (first)
        http_text_add(&x->line, first->data, first->n);
    else
        http_text_format(&x->line, "\"function\":{\"arguments\":");
    http_text_json(&x->line, arguments.data, arguments.len);
    http_text_format(&x->line, "}}]}");
    put_probs(x, choice_of(x, a), false);
    http_text_format(&x->line, ",\"finish_reason\":null}]%s}", own(x)->q.usage ? ",\"usage\":null" : "");
    (void)stream_event(x, NULL);
}

/* Arguments that have come, as far as they are whole characters. */
static void send_arguments(struct stream *x, struct answer *a)
{
    struct choice *o = choice_of(x, a);
    char *text = o->arguments.n ? malloc(UTF8_STREAM_ROOM(o->arguments.n)) : NULL;
    if (o->arguments.n && !text) x->line.failed = true; /* the next event tells */
    const size_t n = text ? utf8_stream_push(&o->argument_text, o->arguments.data, o->arguments.n, text) : 0;
    if (n || x->line.failed) send_call(x, a, o->n_calls, NULL, (struct token_bytes){ text, n });
    o->arguments.n = 0;
    free(text);
}

/* Masked calls are sent as they come. Others may turn out to be text until they are complete, and what was sent
 * stands. */
static void stream_calls(struct stream *x, struct answer *a)
{
    size_t n;
    const struct tools_event *e = token_calls_events(token_text_calls_of(a->text), &n);
    struct choice *o = choice_of(x, a);
    for (size_t i = 0; i < n && !x->gone; i++) {
        const bool end = e[i].kind == TOOLS_END;
        take_call(o, &e[i]);
        if (x->grammar ? e[i].kind == TOOLS_CALL : end)
            send_call(x, a, o->n_calls, &o->call, (struct token_bytes){ "", 0 });
        if (end || (x->grammar && i + 1 == n)) send_arguments(x, a);
        if (!end) continue;
        o->argument_text = (struct utf8_stream){ 0 };
        o->calling = false;
        o->n_calls++;
    }
}

static void stream_end(struct stream *x, struct answer *a, const struct ending *e)
{
    count_end(x, a, e);
    stream_echo(x, a);
    add_end(x, a);
    send_chunk(x, a, NULL, "", 0, e->reason);
}

static void stream_done(struct stream *x)
{
    if (own(x)->q.usage && !x->gone) {
        begin(x, true);
        http_text_format(&x->line, "],");
        put_usage(x);
        http_text_format(&x->line, "}");
        (void)stream_event(x, NULL);
    }
    if (x->gone) return;
    http_text_format(&x->line, "[DONE]");
    (void)stream_event(x, NULL);
}

static void stream_error(struct stream *x, const struct ending *e)
{
    serve_put_failure(&x->line, x->r, &e->why);
    (void)stream_event(x, NULL);
}

/* ---- a whole answer ------------------------------------------------------------------------------------ */

static void fail_whole(struct stream *x)
{
    struct refusal why = { .code = SERVE_INTERNAL, .text = "no memory for the answer" };
    refusal_job(&why, x->q.job_id);
    serve_fail(x->r, &why);
    stream_told(x);
}

/* Memory for what is held, out of what requests share. Too much of it: that is answered. */
static void reserve(struct stream *x)
{
    struct completion *c = own(x);
    size_t held = 0;
    for (uint32_t i = 0; i < c->n_choices; i++)
        held += c->choices[i].text.n + c->choices[i].reasoning.n + c->choices[i].calls.n + c->choices[i].arguments.n +
                token_probs_bytes(&c->choices[i].probs);
    if (held * RESERVE_TIMES <= c->reserved) return;
    const size_t more = held * RESERVE_TIMES - c->reserved + RESERVE_STEP;
    c->reserved += more;
    if (!http_reserve(x->r, more)) stream_told(x);
}

static void whole_started(struct stream *x, struct answer *a) { (void)x, (void)a; }

static void whole_token(struct stream *x, struct answer *a)
{
    const struct token_bytes said = token_text_reasoning(a->text);
    if (own(x)->q.reasoning) http_text_add(&choice_of(x, a)->reasoning, said.data, said.len);
}

static void whole_echo(struct stream *x, const struct answer *a)
{
    const struct http_text *text = echo(x, a);
    if (text) http_text_add(&choice_of(x, a)->text, text->data, text->n);
}

static void whole_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    whole_echo(x, a);
    http_text_add(&choice_of(x, a)->text, line->text, line->n);
    add_probs(x, a, line);
    reserve(x);
}

/* A character that the limit has cut vanishes, as it does from text and from a stream. */
static void drop_cut_character(struct http_text *t)
{
    size_t at = t->n;
    while (at && t->n - at < 3 && ((unsigned char)t->data[at - 1] & 0xc0) == 0x80) at--;
    if (at && (unsigned char)t->data[at - 1] >= 0xc0 &&
        !utf8_sequence((const unsigned char *)t->data + at - 1, t->n - at + 1))
        t->n = at - 1;
}

static void add_call(struct choice *o)
{
    http_text_format(&o->calls, o->n_calls++ ? ",{" : "{");
    http_text_add(&o->calls, o->call.data, o->call.n);
    http_text_json(&o->calls, o->arguments.data, o->arguments.n);
    http_text_format(&o->calls, "}}");
    o->calling = false;
}

static void whole_calls(struct stream *x, struct answer *a)
{
    size_t n;
    const struct tools_event *e = token_calls_events(token_text_calls_of(a->text), &n);
    struct choice *o = choice_of(x, a);
    for (size_t i = 0; i < n; i++) {
        take_call(o, &e[i]);
        if (e[i].kind == TOOLS_END) add_call(o);
    }
    reserve(x);
}

static void whole_end(struct stream *x, struct answer *a, const struct ending *e)
{
    count_end(x, a, e);
    if (x->grammar && choice_of(x, a)->calling) { /* a limit has cut it */
        drop_cut_character(&choice_of(x, a)->arguments);
        add_call(choice_of(x, a));
    }
    whole_echo(x, a);
    add_end(x, a);
    reserve(x);
}

static void put_prompt_probs(struct stream *x, const struct answer *a)
{
    const struct completion *c = own(x);
    struct prompt_row row = { scored(x, a) };
    http_text_format(&x->line, ",\"prompt_logprobs\":");
    prompt_probs_put(&x->line, x->m->model->tokenizer, x->prompts[a->prompt].ids.n, row_of, &row, c->q.prompt_top);
}

static bool put_choice(struct stream *x, const struct answer *a)
{
    const struct completion *c = own(x);
    struct choice *o = choice_of(x, a);
    http_text_format(&x->line, "%s{\"index\":%u,%s", a->index ? "," : "", a->index,
                     c->chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    if (o->n_calls && !o->text.n)
        http_text_add(&x->line, "null", 4);
    else
        http_text_json(&x->line, o->text.n ? o->text.data : "", o->text.n);
    if (o->reasoning.n) {
        http_text_format(&x->line, ",\"reasoning_content\":");
        http_text_json(&x->line, o->reasoning.data, o->reasoning.n);
    }
    if (o->n_calls) {
        http_text_format(&x->line, ",\"tool_calls\":[");
        http_text_add(&x->line, o->calls.data, o->calls.n);
        http_text_add(&x->line, "]", 1);
    }
    if (c->chat) http_text_format(&x->line, ",\"refusal\":null}");
    const bool failed = o->text.failed || o->reasoning.failed || o->calls.failed || o->call.failed ||
                        o->arguments.failed || token_probs_failed(&o->probs);
    put_probs(x, o, true);
    if (c->q.prompt_probs && !c->chat) put_prompt_probs(x, a);
    http_text_format(&x->line, ",\"finish_reason\":\"%s\"}", o->reason);
    return !failed;
}

/* Bytes that the prompts' log probabilities take in the answer, about. */
static size_t prompt_probs_bytes(const struct stream *x)
{
    enum { ENTRY = 96 };
    const struct completion *c = own(x);
    size_t n = 0;
    for (uint32_t i = 0; i < x->n_answers; i++) n += x->prompts[x->answers[i].prompt].ids.n;
    return c->q.prompt_probs ? n * (1 + c->q.prompt_top) * ENTRY : 0;
}

static void whole_done(struct stream *x)
{
    const struct completion *c = own(x);
    bool good = true;
    if (!http_reserve(x->r, prompt_probs_bytes(x))) return;
    begin(x, false);
    for (uint32_t i = 0; i < x->n_answers; i++) good = put_choice(x, &x->answers[i]) && good;
    http_text_format(&x->line, "],");
    put_usage(x);
    if (c->q.prompt_probs && c->chat) put_prompt_probs(x, &x->answers[0]);
    http_text_format(&x->line, "}\n");
    if (!good || x->line.failed)
        fail_whole(x);
    else
        http_answer(x->r, 200, "application/json", x->line.data, x->line.n);
}

static void whole_error(struct stream *x, const struct ending *e) { serve_fail(x->r, &e->why); }

struct stream_form completion_form(const struct completion *c)
{
    struct stream_form form = { .encode = encode,
                                .release = release,
                                .started = stream_started,
                                .token = stream_token,
                                .line = stream_line,
                                .calls = stream_calls,
                                .end = stream_end,
                                .done = stream_done,
                                .error = stream_error,
                                .field = c->chat ? "messages" : "prompt",
                                .keeps_ids = c->q.prompt_probs || (c->q.echo && c->q.probs) };
    if (c->q.stream) return form;
    form.whole = true;
    form.started = whole_started;
    form.token = whole_token;
    form.line = whole_line;
    form.calls = whole_calls;
    form.end = whole_end;
    form.done = whole_done;
    form.error = whole_error;
    return form;
}
