/* responses.c: what /v1/responses answers: events of a stream, each with its name, its type and a number, or one
 * document. The answer that is complete repeats all items, so a stream keeps them, too. */
#include "responses.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "openai_probs.h"
#include "ops.h"
#include "timings.h"

static struct responses *own(const struct stream *x) { return exchange_of(x)->own; }
static struct item_list *items_of(const struct stream *x) { return &x->items->lists[0]; }
static struct token_probs *probs_of(const struct stream *x) { return exchange_of(x)->probs; }

static void put(struct http_text *t, const char *before, const struct http_text *text)
{
    http_text_add(t, before, strlen(before));
    http_text_json(t, text->n ? text->data : "", text->n);
}

/* ---- items --------------------------------------------------------------------------------------------- */

static const struct responses_tool *tool_of(const struct stream *x, const struct item *i)
{
    const struct responses *r = own(x);
    for (size_t k = 0; k < r->n_tools; k++)
        if (r->tools[k].full.n == i->name.n && memcmp(r->tools[k].full.data, i->name.data, i->name.n) == 0)
            return &r->tools[k];
    return NULL;
}

static bool is_custom(const struct stream *x, const struct item *i)
{
    const struct responses_tool *t = i->kind == ITEM_CALL ? tool_of(x, i) : NULL;
    return t && t->custom;
}

/* The id of an item: the response's own, which it has behind "resp_", and its number. */
static void put_id(struct http_text *t, const struct stream *x, const struct item *i)
{
    const char *prefix = i->kind == ITEM_TEXT        ? "msg"
                         : i->kind == ITEM_REASONING ? "rs"
                         : is_custom(x, i)           ? "ctc"
                                                     : "fc";
    const char *id = strncmp(x->q.job_id, "resp_", 5) == 0 ? x->q.job_id + 5 : x->q.job_id;
    http_text_format(t, "\"%s_%s_%u\"", prefix, id, i->index);
}

/* What has come of the text's log probabilities since the last call; all of them stay in r->probs. */
static void take_probs(struct stream *x, struct http_text *out)
{
    struct http_text new = { 0 }, *all = &own(x)->probs;
    token_probs_take(&new, probs_of(x));
    if (new.n) {
        if (out) http_text_add(out, new.data, new.n);
        if (all->n) http_text_add(all, ",", 1);
        http_text_add(all, new.data, new.n);
    }
    x->line.failed = x->line.failed || new.failed || all->failed;
    http_text_free(&new);
}

/* The text part of a message or of reasoning. */
static void put_part(struct stream *x, struct http_text *t, const struct item *i, bool with_text)
{
    const struct http_text empty = { 0 }, *text = with_text ? &i->text : &empty;
    if (i->kind == ITEM_REASONING) {
        put(t, "{\"type\":\"reasoning_text\",\"text\":", text);
    } else {
        put(t, "{\"type\":\"output_text\",\"text\":", text);
        http_text_format(t, ",\"annotations\":[],\"logprobs\":[");
        if (with_text) take_probs(x, NULL);
        if (with_text && own(x)->probs.n) http_text_add(t, own(x)->probs.data, own(x)->probs.n);
        http_text_add(t, "]", 1);
    }
    http_text_add(t, "}", 1);
}

/* A custom tool's input is the text of the one member that its function has. */
static void put_input(struct http_text *t, const struct item *i)
{
    struct http_text text = { 0 };
    raw_text(raw_member(raw_of(i->text.n ? i->text.data : "", i->text.n), "input"), &text);
    http_text_json(t, text.n ? text.data : "", text.n);
    t->failed = t->failed || text.failed;
    http_text_free(&text);
}

static void put_call(struct stream *x, struct http_text *t, const struct item *i, bool with_text)
{
    const struct http_text empty = { 0 };
    const struct responses_tool *tool = tool_of(x, i);
    if (tool && tool->custom) {
        http_text_format(t, ",\"type\":\"custom_tool_call\",\"input\":");
        if (with_text)
            put_input(t, i);
        else
            http_text_format(t, "\"\"");
    } else {
        put(t, ",\"type\":\"function_call\",\"arguments\":", with_text ? &i->text : &empty);
    }
    put(t, ",\"call_id\":", &i->id);
    put(t, ",\"name\":", tool ? &tool->name : &i->name);
    if (tool && tool->space.n) put(t, ",\"namespace\":", &tool->space);
}

/* with_text: it has ended. */
static void put_item(struct stream *x, struct http_text *t, const struct item *i, bool with_text)
{
    const bool stopped = i->cut || (with_text && items_of(x)->reason && strcmp(items_of(x)->reason, "length") == 0 &&
                                    i->index + 1 == items_of(x)->n);
    http_text_format(t, "{\"id\":");
    put_id(t, x, i);
    http_text_format(t, ",\"status\":\"%s\"", !with_text ? "in_progress" : stopped ? "incomplete" : "completed");
    if (i->kind == ITEM_CALL) put_call(x, t, i, with_text);
    if (i->kind == ITEM_TEXT) http_text_format(t, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    if (i->kind == ITEM_REASONING) http_text_format(t, ",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
    if (i->kind != ITEM_CALL && with_text) put_part(x, t, i, true);
    if (i->kind != ITEM_CALL) http_text_add(t, "]", 1);
    if (i->kind == ITEM_REASONING && own(x)->encrypted && with_text) {
        struct http_text sealed = { 0 };
        responses_seal(&sealed, &i->text);
        put(t, ",\"encrypted_content\":", &sealed);
        t->failed = t->failed || sealed.failed;
        http_text_free(&sealed);
    } else if (i->kind == ITEM_REASONING) {
        http_text_format(t, ",\"encrypted_content\":null");
    }
    http_text_add(t, "}", 1);
}

/* ---- the response -------------------------------------------------------------------------------------- */

static void put_usage(struct stream *x)
{
    const struct items *t = x->items;
    const size_t prompt = items_prompt_tokens(x);
    http_text_format(
        &x->line,
        ",\"usage\":{\"input_tokens\":%zu,\"input_tokens_details\":{\"cached_tokens\":%u},\"output_tokens\":%u,"
        "\"output_tokens_details\":{\"reasoning_tokens\":%u},\"total_tokens\":%zu}",
        prompt, t->cached, t->tokens_out, t->reasoning_ids, prompt + t->tokens_out);
}

/* The items of the answer, which have been put together as they ended. */
static void begin_response(struct stream *x, const char *status)
{
    const struct exchange *e = exchange_of(x);
    http_text_format(&x->line,
                     "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64 ",\"status\":\"%s\",\"model\":",
                     x->q.job_id, e->created, status);
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_add(&x->line, own(x)->repeated.data, own(x)->repeated.n);
    if (own(x)->warnings.n) {
        http_text_format(&x->line, ",\"warnings\":[");
        http_text_add(&x->line, own(x)->warnings.data, own(x)->warnings.n);
        http_text_add(&x->line, "]", 1);
    }
}

static void put_unfinished(struct stream *x)
{
    begin_response(x, "in_progress");
    http_text_format(&x->line, ",\"error\":null,\"incomplete_details\":null,\"output\":[],\"usage\":null}");
}

static void put_timings(struct stream *x, bool over)
{
    if (exchange_of(x)->q.timings) timings_put_now(&x->line, &x->answers[0], over);
}

static bool is_complete(const struct stream *x) { return strcmp(items_of(x)->reason, "length") != 0; }

static void put_finished(struct stream *x)
{
    const struct responses *r = own(x);
    const bool complete = is_complete(x);
    begin_response(x, complete ? "completed" : "incomplete");
    http_text_format(&x->line, ",\"completed_at\":%" PRId64 ",\"error\":null,\"incomplete_details\":%s,\"output\":[",
                     (int64_t)time(NULL), complete ? "null" : "{\"reason\":\"max_output_tokens\"}");
    http_text_add(&x->line, r->items.n ? r->items.data : "", r->items.n);
    http_text_add(&x->line, "]", 1);
    put_usage(x);
    if (x->form->whole) put_timings(x, true); /* events have them beside the response */
    http_text_add(&x->line, "}", 1);
    x->line.failed = x->line.failed || r->items.failed;
}

/* The item has ended: the answer will repeat it. */
static void keep_item(struct stream *x, const struct item *i)
{
    struct responses *r = own(x);
    if (r->items.n) http_text_add(&r->items, ",", 1);
    put_item(x, &r->items, i, true);
    items_reserve(x, r->items.n);
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

static void begin_event(struct stream *x, const char *type)
{
    http_text_format(&x->line, "{\"type\":\"%s\",\"sequence_number\":%u", type, own(x)->sequence++);
}

static void send(struct stream *x, const char *type)
{
    http_text_add(&x->line, "}", 1);
    (void)stream_event(x, type);
}

static void begin_response_event(struct stream *x, const char *type, void (*put_response)(struct stream *x))
{
    begin_event(x, type);
    http_text_format(&x->line, ",\"response\":");
    put_response(x);
}

static void send_response(struct stream *x, const char *type, void (*put_response)(struct stream *x))
{
    if (x->gone) return;
    begin_response_event(x, type, put_response);
    send(x, type);
}

/* An event of an item: where it is. */
static void begin_at(struct stream *x, const char *type, const struct item *i)
{
    begin_event(x, type);
    http_text_format(&x->line, ",\"item_id\":");
    put_id(&x->line, x, i);
    http_text_format(&x->line, ",\"output_index\":%u", i->index);
    if (i->kind != ITEM_CALL) http_text_format(&x->line, ",\"content_index\":0");
}

static void add_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    const uint32_t n_vocab = x->m->facts.n_vocab;
    if (x->probs)
        token_probs_add_content(probs_of(x), x->m->facts.tokenizer, answer_probs(a, line),
                                x->top < n_vocab ? x->top : n_vocab);
}

static void on_start(struct stream *x, struct answer *a)
{
    (void)a;
    send_response(x, "response.created", put_unfinished);
    send_response(x, "response.in_progress", put_unfinished);
}

static void on_progress(struct stream *x, struct answer *a, uint32_t n_done)
{
    static const char type[] = "response.in_progress";
    if (x->gone) return;
    begin_response_event(x, type, put_unfinished);
    timings_put_progress(&x->line, a, n_done, exchange_of(x)->q.timings);
    send(x, type);
}

static void send_item(struct stream *x, const char *type, const struct item *i, bool with_text)
{
    if (x->gone) return;
    begin_event(x, type);
    http_text_format(&x->line, ",\"output_index\":%u,\"item\":", i->index);
    put_item(x, &x->line, i, with_text);
    send(x, type);
}

static void send_part(struct stream *x, const char *type, const struct item *i, bool with_text)
{
    if (x->gone) return;
    begin_at(x, type, i);
    http_text_format(&x->line, ",\"part\":");
    put_part(x, &x->line, i, with_text);
    send(x, type);
}

static void on_begin(struct stream *x, struct answer *a, struct item *i)
{
    (void)a;
    own(x)->probs.n = 0;
    send_item(x, "response.output_item.added", i, false);
    if (i->kind != ITEM_CALL) send_part(x, "response.content_part.added", i, false);
}

/* A custom tool's input is told when it is there: until then it is JSON. */
static void on_grow(struct stream *x, struct answer *a, struct item *i, const char *text, size_t n)
{
    static const char *const types[] = { [ITEM_REASONING] = "response.reasoning_text.delta",
                                         [ITEM_TEXT] = "response.output_text.delta",
                                         [ITEM_CALL] = "response.function_call_arguments.delta" };
    (void)a;
    if (x->gone || is_custom(x, i)) return;
    begin_at(x, types[i->kind], i);
    http_text_format(&x->line, ",\"delta\":");
    http_text_json(&x->line, text, n);
    if (i->kind == ITEM_TEXT) {
        http_text_format(&x->line, ",\"logprobs\":[");
        take_probs(x, &x->line);
        http_text_add(&x->line, "]", 1);
    }
    put_timings(x, false);
    send(x, types[i->kind]);
}

static void send_text_done(struct stream *x, const struct item *i)
{
    const bool text = i->kind == ITEM_TEXT;
    const char *type = text ? "response.output_text.done" : "response.reasoning_text.done";
    take_probs(x, NULL);
    begin_at(x, type, i);
    put(&x->line, ",\"text\":", &i->text);
    if (text) http_text_format(&x->line, ",\"logprobs\":[");
    if (text && own(x)->probs.n) http_text_add(&x->line, own(x)->probs.data, own(x)->probs.n);
    if (text) http_text_add(&x->line, "]", 1);
    send(x, type);
    send_part(x, "response.content_part.done", i, true);
}

static void send_call_done(struct stream *x, const struct item *i)
{
    static const char delta[] = "response.custom_tool_call_input.delta",
                      done[] = "response.custom_tool_call_input.done",
                      arguments[] = "response.function_call_arguments.done";
    if (!is_custom(x, i)) {
        begin_at(x, arguments, i);
        put(&x->line, ",\"name\":", &i->name);
        put(&x->line, ",\"arguments\":", &i->text);
        send(x, arguments);
        return;
    }
    begin_at(x, delta, i);
    http_text_format(&x->line, ",\"delta\":");
    put_input(&x->line, i);
    send(x, delta);
    if (x->gone) return;
    begin_at(x, done, i);
    http_text_format(&x->line, ",\"input\":");
    put_input(&x->line, i);
    send(x, done);
}

static void on_end(struct stream *x, struct answer *a, struct item *i)
{
    (void)a;
    keep_item(x, i);
    if (x->gone) return;
    (i->kind == ITEM_CALL ? send_call_done : send_text_done)(x, i);
    send_item(x, "response.output_item.done", i, true);
}

static void on_done(struct stream *x)
{
    const char *type = is_complete(x) ? "response.completed" : "response.incomplete";
    if (x->gone) return;
    begin_response_event(x, type, put_finished);
    put_timings(x, true);
    send(x, type);
}

/* A failure has the interface's document where the error of the response stands. */
static void on_error(struct stream *x, const struct ending *e)
{
    static const char type[] = "response.failed";
    if (!own(x)->sequence) send_response(x, "response.created", put_unfinished);
    if (x->gone) return;
    begin_event(x, type);
    http_text_format(&x->line, ",\"response\":");
    begin_response(x, "failed");
    http_text_format(&x->line, ",\"error\":{\"code\":\"%s\",\"message\":",
                     e->why.code == SERVE_CONTEXT_LENGTH_EXCEEDED ? "context_length_exceeded" : "server_error");
    http_text_json(&x->line, e->why.text, strlen(e->why.text));
    http_text_format(&x->line, "},\"incomplete_details\":null,\"output\":[");
    http_text_add(&x->line, own(x)->items.n ? own(x)->items.data : "", own(x)->items.n);
    http_text_format(&x->line, "],\"usage\":null}");
    send(x, type);
}

/* ---- a whole answer ------------------------------------------------------------------------------------ */

static void whole_end(struct stream *x, struct answer *a, struct item *i)
{
    (void)a;
    keep_item(x, i);
    own(x)->probs.n = 0;
}

static void whole_done(struct stream *x)
{
    put_finished(x);
    http_text_add(&x->line, "\n", 1);
    items_send(x, true);
}

static const struct encoder stream = { .keeps = true,
                                       .never_empty = true,
                                       .start = on_start,
                                       .progress = on_progress,
                                       .line = add_line,
                                       .begin = on_begin,
                                       .grow = on_grow,
                                       .end = on_end,
                                       .done = on_done,
                                       .error = on_error };
static const struct encoder whole = { .keeps = true,
                                      .never_empty = true,
                                      .line = add_line,
                                      .end = whole_end,
                                      .done = whole_done,
                                      .error = items_whole_error };

/* Messages have other places than the input's items. */
static const struct exchange_name names[] = { { "messages", "input", true },
                                              { "max_completion_tokens", "max_output_tokens", false },
                                              { "response_format", "text.format", false },
                                              { "reasoning_effort", "reasoning.effort", false },
                                              { NULL, NULL, false } };

static bool read_request(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                         struct refusal *why)
{
    e->own = calloc(1, sizeof(struct responses));
    if (!e->own) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
    return responses_write(e->own, bytes, n, &e->body, why) && exchange_read_chat(e, l, why);
}

static bool reword(const struct exchange *e, struct refusal *why) { return responses_reword(e->own, why); }

static void forget(struct exchange *e) { responses_free(e->own); }

static const struct interface interface = { .prefix = "resp_",
                                            .chat = true,
                                            .names = names,
                                            .read = read_request,
                                            .reword = reword,
                                            .stream = &stream,
                                            .whole = &whole,
                                            .forget = forget };

static void on_responses(void *user, struct http_request *r) { exchange_serve(user, r, &interface); }

static void on_count(void *user, struct http_request *r) { exchange_render(user, r, &interface, exchange_tell_count); }

const struct http_route serve_responses_routes[] = { { "POST", "/v1/responses", on_responses, true },
                                                     { "POST", "/responses", on_responses, true }, /* llama-server's */
                                                     { "POST", "/v1/responses/input_tokens", on_count, false },
                                                     { "POST", "/responses/input_tokens", on_count, false } };
const uint32_t serve_n_responses_routes = sizeof serve_responses_routes / sizeof *serve_responses_routes;
