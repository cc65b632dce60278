/* messages_answer.c: an answer's items as blocks of content: events with names, which Anthropic's clients need, or one
 * message. */
#include <string.h>

#include "messages.h"

/* Why the answer ended well, as it is called here. */
static const char *reason_of(const struct item_list *l)
{
    return strcmp(l->reason, "length") == 0       ? "max_tokens"
           : strcmp(l->reason, "tool_calls") == 0 ? "tool_use"
           : l->stop != STOP_NONE                 ? "stop_sequence"
                                                  : "end_turn";
}

static void put_end(struct stream *x, const struct answer *a)
{
    const struct item_list *l = &x->items->lists[a->index];
    const char *reason = reason_of(l);
    http_text_format(&x->line, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (strcmp(reason, "stop_sequence") == 0) {
        const struct token_bytes stop = token_text_stop(a->text, l->stop);
        http_text_json(&x->line, stop.data, stop.len);
    } else {
        http_text_add(&x->line, "null", 4);
    }
}

/* Tokens of the prompt that were found in the cache are counted apart from the others. */
static void put_usage(struct stream *x, uint32_t cached)
{
    const size_t prompt = items_prompt_tokens(x);
    http_text_format(&x->line,
                     "\"usage\":{\"input_tokens\":%zu,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%u,"
                     "\"output_tokens\":%u,\"output_tokens_details\":{\"thinking_tokens\":%u},\"service_tier\":"
                     "\"standard\"}",
                     prompt - (cached < prompt ? cached : prompt), cached, x->items->tokens_out,
                     x->items->reasoning_ids);
}

static void put_edits(struct stream *x)
{
    if (messages_of(exchange_of(x))->edits)
        http_text_format(&x->line, ",\"context_management\":{\"applied_edits\":[]}");
}

/* {"id": ..., as far as the content. */
static void begin_message(struct stream *x)
{
    http_text_format(&x->line, "{\"id\":");
    http_text_json(&x->line, x->q.job_id, strlen(x->q.job_id));
    http_text_format(&x->line, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    http_text_json(&x->line, x->m->name, strlen(x->m->name));
    http_text_format(&x->line, ",\"content\":[");
}

/* "id":ID,"name":NAME,"input": of a call. */
static void put_call(struct http_text *out, const struct item *i)
{
    http_text_format(out, "{\"type\":\"tool_use\",\"id\":");
    http_text_json(out, i->id.data, i->id.n);
    http_text_format(out, ",\"name\":");
    http_text_json(out, i->name.data, i->name.n);
    http_text_format(out, ",\"input\":");
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

static void stream_start(struct stream *x, struct answer *a)
{
    struct job_figures f;
    job_figures(a->job, &f);
    http_text_format(&x->line, "{\"type\":\"message_start\",\"message\":");
    begin_message(x);
    http_text_format(&x->line, "],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(x, f.n_cached);
    http_text_format(&x->line, "}}");
    if (!stream_event(x, "message_start")) return;
    http_text_format(&x->line, "{\"type\":\"ping\"}");
    (void)stream_event(x, "ping");
}

static void stream_begin(struct stream *x, struct answer *a, struct item *i)
{
    (void)a;
    http_text_format(&x->line, "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":", i->index);
    if (i->kind == ITEM_CALL) {
        put_call(&x->line, i);
        http_text_format(&x->line, "{}}}");
    } else {
        http_text_format(&x->line, i->kind == ITEM_TEXT
                                       ? "{\"type\":\"text\",\"text\":\"\"}}"
                                       : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}");
    }
    (void)stream_event(x, "content_block_start");
}

/* kind, member: of the delta. */
static void send_delta(struct stream *x, const struct item *i, const char *kind, const char *member, const char *text,
                       size_t n)
{
    http_text_format(&x->line,
                     "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":{\"type\":\"%s\",\"%s\":", i->index,
                     kind, member);
    http_text_json(&x->line, text, n);
    http_text_format(&x->line, "}}");
    (void)stream_event(x, "content_block_delta");
}

static void stream_grow(struct stream *x, struct answer *a, struct item *i, const char *text, size_t n)
{
    (void)a;
    if (i->kind == ITEM_TEXT)
        send_delta(x, i, "text_delta", "text", text, n);
    else if (i->kind == ITEM_CALL)
        send_delta(x, i, "input_json_delta", "partial_json", text, n);
    else if (!messages_of(exchange_of(x))->hidden)
        send_delta(x, i, "thinking_delta", "thinking", text, n);
}

/* A signature is what clients want to send back with a thought; which model it came from is all that it says. */
static void stream_end(struct stream *x, struct answer *a, struct item *i)
{
    (void)a;
    if (i->kind == ITEM_REASONING)
        send_delta(x, i, "signature_delta", "signature", x->m->fingerprint, strlen(x->m->fingerprint));
    if (x->gone) return;
    http_text_format(&x->line, "{\"type\":\"content_block_stop\",\"index\":%u}", i->index);
    (void)stream_event(x, "content_block_stop");
}

static void stream_over(struct stream *x, struct answer *a, const struct ending *e)
{
    (void)e;
    if (x->gone) return;
    http_text_format(&x->line, "{\"type\":\"message_delta\",\"delta\":{");
    put_end(x, a);
    http_text_format(&x->line, "},");
    put_usage(x, x->items->cached);
    put_edits(x);
    http_text_format(&x->line, "}");
    (void)stream_event(x, "message_delta");
}

static void stream_done(struct stream *x)
{
    if (x->gone) return;
    http_text_format(&x->line, "{\"type\":\"message_stop\"}");
    (void)stream_event(x, "message_stop");
}

static void stream_error(struct stream *x, const struct ending *e)
{
    serve_put_failure(&x->line, x->r, &e->why);
    (void)stream_event(x, "error");
}

/* ---- a whole answer ------------------------------------------------------------------------------------ */

static void put_block(struct stream *x, const struct item *i)
{
    const char *text = i->text.n ? i->text.data : "";
    if (i->kind == ITEM_CALL) {
        put_call(&x->line, i);
        http_text_add(&x->line, i->text.n ? text : "{}", i->text.n ? i->text.n : 2);
    } else if (i->kind == ITEM_TEXT) {
        http_text_format(&x->line, "{\"type\":\"text\",\"text\":");
        http_text_json(&x->line, text, i->text.n);
    } else {
        http_text_format(&x->line, "{\"type\":\"thinking\",\"thinking\":");
        http_text_json(&x->line, text, messages_of(exchange_of(x))->hidden ? 0 : i->text.n);
        http_text_format(&x->line, ",\"signature\":\"%s\"", x->m->fingerprint);
    }
    http_text_add(&x->line, "}", 1);
}

/* A call that a limit has cut is in no whole answer: its input would be no object. */
static void whole_done(struct stream *x)
{
    const struct answer *a = &x->answers[0];
    const struct item_list *l = &x->items->lists[0];
    bool first = true;
    begin_message(x);
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->list[i].cut) continue;
        if (!first) http_text_add(&x->line, ",", 1);
        put_block(x, &l->list[i]);
        first = false;
    }
    http_text_format(&x->line, "],");
    put_end(x, a);
    http_text_add(&x->line, ",", 1);
    put_usage(x, x->items->cached);
    put_edits(x);
    http_text_format(&x->line, "}\n");
    items_send(x, true);
}

const struct encoder messages_stream = { .start = stream_start,
                                         .begin = stream_begin,
                                         .grow = stream_grow,
                                         .end = stream_end,
                                         .over = stream_over,
                                         .done = stream_done,
                                         .error = stream_error };
const struct encoder messages_whole = { .keeps = true, .done = whole_done, .error = items_whole_error };
