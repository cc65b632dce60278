/* exchange.c: see exchange.h. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "caller.h"
#include "grammar/grammar.h"
#include "openai_probs.h"
#include "ops.h"
#include "tool_grammar.h"

static bool open_exchange(struct exchange *e)
{
    e->n_answers = e->q.n_prompts * e->q.n;
    e->items.every_line = e->q.probs;
    e->items.reasoning = e->q.reasoning;
    e->items.encoder = e->q.stream ? e->interface->stream : e->interface->whole;
    e->probs = calloc(e->n_answers, sizeof *e->probs);
    e->begun = calloc(e->n_answers, sizeof *e->begun);
    if (e->q.echo) e->echoed = calloc(e->q.n_prompts, sizeof *e->echoed);
    e->n_echoed = e->echoed ? e->q.n_prompts : 0;
    return items_open(&e->items, e->n_answers) && e->probs && e->begun && (e->echoed || !e->q.echo);
}

static void close_exchange(struct exchange *e)
{
    for (uint32_t i = 0; e->probs && i < e->n_answers; i++) token_probs_free(&e->probs[i]);
    for (uint32_t i = 0; i < e->n_echoed; i++) http_text_free(&e->echoed[i]);
    free(e->probs);
    free(e->begun);
    free(e->echoed);
    items_close(&e->items);
    grammar_close(e->grammar);
    tools_set_close(e->functions);
    openai_request_free(&e->q);
}

/* ---- prompts ------------------------------------------------------------------------------------------- */

static wk_status copy_ids(const struct serve_model *m, const struct openai_prompt *from, struct tokens *out,
                          const struct wk_err *err)
{
    const uint32_t n_vocab = m->facts.n_vocab;
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
    struct http_text *out = &exchange_of(x)->echoed[p - x->prompts];
    char *text = NULL;
    size_t n = 0;
    if (!from->ids) {
        http_text_add(out, from->text, from->len);
    } else {
        const wk_status status = tokenizer_decode(x->m->facts.tokenizer, p->ids.ids, p->ids.n, false, &text, &n, err);
        if (status) return status;
        http_text_add(out, text, n);
        free(text);
    }
    return out->failed ? wk_fail(err, WK_NO_MEMORY, "no memory for its text") : WK_OK;
}

static wk_status encode_completion(struct stream *x, const struct openai_prompt *from, struct stream_prompt *p,
                                   const struct wk_err *err)
{
    const struct exchange *e = exchange_of(x);
    const struct tokenizer_part raw = { from->text, from->len, x->q.parse_special };
    const wk_status status =
        from->ids ? copy_ids(x->m, from, &p->ids, err) : stream_encode(x, p, &raw, 1, e->q.add_special, err);
    return status || !e->echoed ? status : keep_echo(x, from, p, err);
}

/* The functions that the answers may call. False: x->problem. */
static bool offer(struct stream *x)
{
    struct exchange *e = exchange_of(x);
    const struct openai_tools *t = &e->q.tools;
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
    const wk_status status = openai_tools_set(t, &e->functions, &(struct wk_err){ text, sizeof text });
    if (status) return chat_refuse(&x->problem, status, "tools", "%s", text);
    x->functions = e->functions;
    x->one_call = t->one;
    x->must_call = t->choice != TOOLS_CHOICE_AUTO;
    if (!tool_grammar_make(x->m, x->calls, t, x->formed && !x->must_call, x->work, &e->grammar, &x->problem))
        return false;
    x->grammar = e->grammar;
    return !x->grammar || !x->q.ignore_eos ||
           chat_refuse(&x->problem, WK_INVALID, "ignore_eos",
                       "expected false, or nothing, with tools: calls have an end");
}

static wk_status encode(struct stream *x, struct stream_prompt *p, const struct wk_err *err)
{
    const struct exchange *e = exchange_of(x);
    const struct openai_prompt *from = &e->q.prompts[p - x->prompts];
    p->text = from->text;
    p->len = from->len;
    p->chars = from->chars;
    if (!e->interface->chat) return encode_completion(x, from, p, err);
    struct chat_request q = e->q.chat;
    if (e->q.tools.choice != TOOLS_CHOICE_NONE && !offer(x)) return x->problem.status;
    return stream_chat(x, p, &q, err);
}

static void release(struct stream *x)
{
    struct exchange *e = exchange_of(x);
    openai_request_free(&e->q); /* how many answers there are, and what they are to hold, stays */
    http_text_free(&e->body);
    x->q.body = NULL;
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

/* Is it that member, or one inside of it? */
static bool is_of(const char *field, const char *name, size_t n)
{
    return strncmp(field, name, n) == 0 && (!field[n] || field[n] == '.' || field[n] == '[');
}

/* A refusal of the chat's body in the words of the interface's. */
static void rename_fields(const struct exchange *e, struct refusal *why)
{
    const struct interface *in = e->interface;
    char field[sizeof why->field], text[sizeof why->text];
    if (in->reword && in->reword(e, why)) return;
    for (const struct exchange_name *name = in->names; name && name->chat; name++) {
        const size_t n = strlen(name->chat);
        if (!is_of(why->field, name->chat, n)) continue;
        const char *rest = strncmp(why->text, name->chat, n) == 0 ? why->text + n : NULL;
        if (rest && name->whole) rest = strstr(rest, ": ");
        (void)snprintf(field, sizeof field, "%s%.60s", name->own, name->whole ? "" : why->field + n);
        (void)snprintf(text, sizeof text, "%s%.900s", rest ? name->own : "", rest ? rest : why->text);
        memcpy(why->field, field, sizeof field);
        memcpy(why->text, text, sizeof text);
        return;
    }
}

static void refused(struct stream *x, struct refusal *why) { rename_fields(exchange_of(x), why); }

/* ---- from a body to an answer -------------------------------------------------------------------------- */

bool exchange_suits(const struct serve_model *m, const struct exchange *e, struct refusal *why)
{
    if (!m) return true;
    if (!stream_suits(m, false, why)) return false;
    if (e->q.model && !serve_suits_name(m, e->q.model, "model", why)) return false;
    if (e->interface->chat && !m->chat)
        return refuse(
            why, SERVE_INVALID_REQUEST, "messages",
            "messages: this model's chat template cannot be used: %s; /v1/completions takes a prompt as it is",
            m->no_chat);
    return true;
}

struct job_request_limits exchange_limits(const struct serve *s, struct http_request *r)
{
    const struct serve_model *m = atomic_load(&s->model);
    return (struct job_request_limits){ .most_chars = s->o->limit_prompt_chars ? s->o->max_prompt_chars : 0,
                                        .max_tokens_out = s->o->max_tokens_out,
                                        .most_tokens = s->o->limit_tokens_out ? s->o->max_tokens_out : INT32_MAX,
                                        .n_vocab = m ? m->facts.n_vocab : 0,
                                        .max_priority = caller_max_priority(s, r) };
}

/* e->body by one of openai_request's readers. */
static bool read_written(struct exchange *e, const struct job_request_limits *l, struct refusal *why,
                         bool (*read)(const char *, size_t, const struct job_request_limits *, struct openai_request *,
                                      struct refusal *))
{
    if (e->body.failed) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
    if (!http_reserve(e->work->r, e->body.cap) || !serve_reserve_tree(e->work->r, e->body.data, e->body.n))
        return false;
    if (read(e->body.data, e->body.n, l, &e->q, why)) return true;
    rename_fields(e, why);
    return false;
}

bool exchange_read_chat(struct exchange *e, const struct job_request_limits *l, struct refusal *why)
{
    return read_written(e, l, why, openai_request_chat);
}

bool exchange_read_completion(struct exchange *e, const struct job_request_limits *l, struct refusal *why)
{
    return read_written(e, l, why, openai_request_completion);
}

/* What was not answered yet, such as that there is no memory. */
static void refuse_request(const struct exchange *e, struct refusal *why)
{
    if (why->text[0]) serve_refuse(e->work->s, e->work->r, why);
}

static bool read_request(struct exchange *e)
{
    struct serve *s = e->work->s;
    const struct serve_model *m = atomic_load(&s->model);
    const struct job_request_limits limits = exchange_limits(s, e->work->r);
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    if (!work_body(e->work, HTTP_BODY_MAX, &bytes, &n)) return false;
    if (e->interface->read(e, bytes, n, &limits, &why)) {
        if (exchange_suits(m, e, &why)) return true;
        rename_fields(e, &why);
        openai_request_free(&e->q);
    }
    refuse_request(e, &why);
    return false;
}

/* The request was read. */
static void answer(struct work *w, struct exchange *e, uint64_t arrived_ns)
{
    const struct openai_request *q = &e->q;
    struct stream_form form = { .encode = encode,
                                .release = release,
                                .refused = refused,
                                .field = e->interface->chat ? "messages" : "prompt",
                                .kind = e->interface->kind,
                                .keeps_ids = q->prompt_probs || (q->echo && q->probs) };
    struct stream x = { .form = &form,
                        .s = w->s,
                        .r = w->r,
                        .work = w,
                        .own = e,
                        .items = &e->items,
                        .q = q->q,
                        .probs = q->probs,
                        .top = q->top,
                        .progress = q->progress,
                        .prompt_probs = q->prompt_probs || (q->echo && q->probs),
                        .prompt_top = q->echo && q->probs && q->top > q->prompt_top ? q->top : q->prompt_top,
                        .transfer = q->transfer.keep || q->transfer.pull ? &q->transfer : NULL,
                        .n_prompts = q->n_prompts,
                        .each = q->n,
                        .arrived_ns = arrived_ns };
    items_form(e->items.encoder, !q->stream, &form);
    w->streams = q->stream;
    stream_run(&x, e->interface->prefix);
}

static const struct refusal no_memory = { .code = SERVE_INTERNAL, .text = "no memory for the request" };

/* NULL: answered. */
static struct exchange *new_exchange(struct work *w, const struct interface *i)
{
    struct exchange *e = calloc(1, sizeof *e);
    if (!e) {
        serve_refuse(w->s, w->r, &no_memory);
        return NULL;
    }
    e->interface = i;
    w->untyped = i->untyped;
    e->work = w;
    e->created = (int64_t)time(NULL);
    return e;
}

static void free_exchange(struct exchange *e)
{
    http_text_free(&e->body);
    if (e->interface->forget) e->interface->forget(e);
    free(e);
}

void exchange_serve(struct serve *s, struct http_request *r, const struct interface *i)
{
    const uint64_t arrived_ns = serve_now_ns();
    struct work work;
    work_open(&work, s, r);
    atomic_fetch_add(&s->streams, 1); /* before the state is read: who drains waits for us, or we see that it drains */
    struct exchange *e = new_exchange(&work, i);
    if (e && read_request(e)) {
        if (open_exchange(e))
            answer(&work, e, arrived_ns);
        else
            serve_refuse(s, r, &no_memory);
        close_exchange(e);
    }
    if (e) free_exchange(e);
    work_close(&work);
    atomic_fetch_sub(&s->streams, 1);
}

/* ---- prompts alone ------------------------------------------------------------------------------------- */

/* False: answered, or why says it; here and below. */
static bool render_chat(struct exchange *e, struct exchange_prompt *p, struct refusal *why)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    struct chat_request *q = &e->q.chat;
    struct chat_problem problem;
    serve_clock(e->work->s, q);
    if (!http_reserve(e->work->r, chat_memory(q->conversation, q->tools.len + q->documents.len + q->kwargs.len)))
        return false;
    if (!chat_render(p->m->chat, q, &p->prompt, &problem))
        return refuse(why, serve_code_of_status(problem.status), problem.field, "%s", problem.text);
    for (size_t i = 0; i < p->prompt.n; i++) http_text_add(&p->text, p->prompt.part[i].bytes, p->prompt.part[i].len);
    const wk_status status =
        work_encode(e->work, p->m->facts.tokenizer, p->prompt.part, p->prompt.n, true, &p->ids, &err);
    if (status == WK_CANCELLED) return work_refuse(e->work, why);
    return !status || refuse(why, serve_code_of_status(status), "messages", "messages: %s", text);
}

static bool render_completion(struct exchange *e, const struct openai_prompt *from, struct exchange_prompt *p,
                              struct refusal *why)
{
    enum { OF_BYTE = 16 }; /* of a text: a copy, ids whose room grows by doubling, and what is written */
    char text[256] = "", *decoded = NULL;
    size_t n = 0;
    const struct wk_err err = { text, sizeof text };
    const struct tokenizer *t = p->m->facts.tokenizer;
    const struct tokenizer_part raw = { from->text, from->len, e->q.q.parse_special };
    if (!t) return refuse(why, SERVE_INVALID_REQUEST, "prompt", "prompt: the model has no tokenizer");
    if (!http_reserve(e->work->r, from->len * OF_BYTE)) return false;
    wk_status status = from->ids ? copy_ids(p->m, from, &p->ids, &err)
                                 : work_encode(e->work, t, &raw, 1, e->q.add_special, &p->ids, &err);
    if (status == WK_OK && from->ids) status = tokenizer_decode(t, p->ids.ids, p->ids.n, true, &decoded, &n, &err);
    if (status == WK_CANCELLED) return work_refuse(e->work, why);
    if (status) return refuse(why, serve_code_of_status(status), "prompt", "prompt: %s", text);
    http_text_add(&p->text, from->ids ? decoded : from->text, from->ids ? n : from->len);
    free(decoded);
    return true;
}

static void forget_prompt(struct exchange_prompt *p)
{
    chat_prompt_free(&p->prompt);
    tokens_free(&p->ids);
    http_text_free(&p->text);
}

static bool render_all(struct exchange *e, const struct serve_model *m, struct http_text *out,
                       void (*tell)(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out),
                       struct refusal *why)
{
    bool good = true;
    if (!e->interface->chat) http_text_add(out, "[", 1);
    for (uint32_t i = 0; good && i < e->q.n_prompts; i++) {
        struct exchange_prompt p = { .m = m };
        good = e->interface->chat ? render_chat(e, &p, why) : render_completion(e, &e->q.prompts[i], &p, why);
        if (i) http_text_add(out, ",", 1);
        if (good) tell(e, &p, out);
        out->failed = out->failed || p.text.failed;
        forget_prompt(&p);
    }
    http_text_format(out, e->interface->chat ? "\n" : "]\n");
    return good;
}

void exchange_render(struct serve *s, struct http_request *r, const struct interface *i,
                     void (*tell)(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out))
{
    struct refusal why = { 0 };
    struct http_text out = { 0 };
    struct work work;
    work_open(&work, s, r);
    const struct serve_model *m = serve_ready(s, &why);
    struct exchange *e = new_exchange(&work, i);
    if (e && !m) {
        serve_refuse(s, r, &why);
    } else if (e && read_request(e)) {
        const bool good = render_all(e, m, &out, tell, &why);
        if (!good) rename_fields(e, &why);
        if (good && out.failed) (void)refuse(&why, SERVE_INTERNAL, NULL, "no memory for an answer");
        if (why.text[0])
            refuse_request(e, &why);
        else if (good)
            http_answer(r, 200, "application/json", out.data, out.n);
        openai_request_free(&e->q);
    }
    if (e) free_exchange(e);
    http_text_free(&out);
    work_close(&work);
}

void exchange_tell_count(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out)
{
    (void)e;
    http_text_format(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", p->ids.n);
}
