/* items.c: see items.h. */
#include "items.h"

#include <stdlib.h>
#include <string.h>

enum {
    RESERVE_STEP = 64 << 10,
    RESERVE_TIMES = 4 /* bytes for each that is kept: it is copied, and grows twofold */
};

static struct item_list *list_of(const struct stream *x, const struct answer *a) { return &x->items->lists[a->index]; }
static const struct encoder *encoder(const struct stream *x) { return x->items->encoder; }

/* Is what an item of that kind holds kept? */
static bool keeps(const struct stream *x, enum item_kind kind)
{
    return encoder(x)->keeps || (kind == ITEM_CALL && encoder(x)->keeps_calls);
}

static void free_item(struct item *i)
{
    http_text_free(&i->id);
    http_text_free(&i->name);
    http_text_free(&i->text);
}

bool items_open(struct items *t, uint32_t n)
{
    t->lists = calloc(n, sizeof *t->lists);
    t->n = t->lists ? n : 0;
    for (uint32_t i = 0; i < t->n; i++) t->lists[i].stop = STOP_NONE;
    return t->lists;
}

void items_close(struct items *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t k = 0; k < t->lists[i].n; k++) free_item(&t->lists[i].list[k]);
        free_item(&t->lists[i].waiting);
        free(t->lists[i].list);
    }
    free(t->lists);
    *t = (struct items){ 0 };
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* An event that lacks something is not sent: the next one says that there was no memory. */
static void fail(struct stream *x)
{
    x->items->failed = true;
    x->line.failed = true;
}

void items_reserve(struct stream *x, size_t more)
{
    struct items *t = x->items;
    size_t held = more;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct item_list *l = &t->lists[i];
        held += l->n * sizeof *l->list + l->waiting.text.n;
        for (uint32_t k = 0; k < l->n; k++) held += l->list[k].text.n;
    }
    if (held * RESERVE_TIMES <= t->reserved) return;
    const size_t bytes = held * RESERVE_TIMES - t->reserved + RESERVE_STEP;
    t->reserved += bytes;
    if (x->told || http_reserve(x->r, bytes)) return;
    if (x->form->whole)
        stream_told(x);
    else
        fail(x); /* it has begun: there is no other answer */
}

/* ---- items --------------------------------------------------------------------------------------------- */

static struct item *open_item(const struct stream *x, const struct answer *a)
{
    struct item_list *l = list_of(x, a);
    return l->open ? &l->list[l->n - 1] : NULL;
}

static void end_item(struct stream *x, struct answer *a)
{
    struct item *i = open_item(x, a);
    if (!i) return;
    list_of(x, a)->open = false;
    if (encoder(x)->end) encoder(x)->end(x, a, i);
}

static bool make_room(struct item_list *l)
{
    const uint32_t room = l->room ? 2 * l->room : 4;
    if (l->n < l->room) return true;
    struct item *list = realloc(l->list, room * sizeof *list);
    if (!list) return false;
    l->list = list;
    l->room = room;
    return true;
}

/* NULL: no memory. */
static struct item *begin_item(struct stream *x, struct answer *a, enum item_kind kind, struct token_bytes id,
                               struct token_bytes name)
{
    struct item_list *l = list_of(x, a);
    end_item(x, a);
    if (!make_room(l)) {
        fail(x);
        return NULL;
    }
    struct item *i = &l->list[l->n];
    *i = (struct item){ .kind = kind, .index = l->n };
    for (uint32_t k = 0; k < l->n; k++) i->nth += l->list[k].kind == kind;
    l->n++;
    l->open = true;
    http_text_add(&i->id, id.data, id.len);
    http_text_add(&i->name, name.data, name.len);
    if (i->id.failed || i->name.failed) fail(x);
    if (encoder(x)->begin) encoder(x)->begin(x, a, i);
    return i;
}

static void grow_item(struct stream *x, struct answer *a, struct item *i, const char *text, size_t n)
{
    i->bytes += n;
    if (keeps(x, i->kind)) {
        http_text_add(&i->text, text, n);
        if (i->text.failed) fail(x);
    }
    if (encoder(x)->grow) encoder(x)->grow(x, a, i, text, n);
}

/* The open item if it is of that kind, else a new one. */
static struct item *item_of(struct stream *x, struct answer *a, enum item_kind kind)
{
    static const struct token_bytes none = { 0 };
    struct item *i = open_item(x, a);
    return i && i->kind == kind ? i : begin_item(x, a, kind, none, none);
}

/* Arguments, as far as they are whole characters. */
static void grow_call(struct stream *x, struct answer *a, struct item *i, const struct http_text *arguments)
{
    if (!arguments->n) return;
    char *text = malloc(UTF8_STREAM_ROOM(arguments->n));
    if (!text) {
        fail(x);
        return;
    }
    const size_t n = utf8_stream_push(&i->partial, arguments->data, arguments->n, text);
    if (n) grow_item(x, a, i, text, n);
    free(text);
}

/* ---- the stream's events ------------------------------------------------------------------------------- */

static void on_started(struct stream *x, struct answer *a)
{
    if (encoder(x)->start) encoder(x)->start(x, a);
}

static void on_progress(struct stream *x, struct answer *a, uint32_t n_done) { encoder(x)->progress(x, a, n_done); }

static void on_token(struct stream *x, struct answer *a)
{
    const struct token_bytes said = token_text_reasoning(a->text);
    if (!said.len || !x->items->reasoning) return;
    struct item *i = item_of(x, a, ITEM_REASONING);
    if (i) grow_item(x, a, i, said.data, said.len);
    if (encoder(x)->keeps) items_reserve(x, 0);
}

static void on_line(struct stream *x, struct answer *a, const struct token_line *line)
{
    if (encoder(x)->line) encoder(x)->line(x, a, line);
    if (!line->n && !x->items->every_line) return;
    struct item *i = item_of(x, a, ITEM_TEXT);
    if (i) grow_item(x, a, i, line->text, line->n);
    if (encoder(x)->keeps) items_reserve(x, 0);
}

/* A call's arguments that have come wait in `waiting`, so that those of one id are told at once; a call that is not
 * masked waits there whole: it may turn out to be text until it is complete, and what was told stands. */
static void take_call(struct stream *x, struct answer *a, const struct tools_event *e, bool last)
{
    struct item_list *l = list_of(x, a);
    struct item *w = &l->waiting;
    const bool masked = x->grammar != NULL, end = e->kind == TOOLS_END;
    if (e->kind == TOOLS_CALL) {
        w->id.n = w->name.n = w->text.n = 0;
        http_text_add(&w->id, e->id.data, e->id.len);
        http_text_add(&w->name, e->text.data, e->text.len);
    }
    if (e->kind == TOOLS_ARGUMENTS) http_text_add(&w->text, e->text.data, e->text.len);
    if (w->id.failed || w->name.failed || w->text.failed) fail(x);
    if (x->line.failed) return;
    if (masked ? e->kind == TOOLS_CALL : end)
        (void)begin_item(x, a, ITEM_CALL, (struct token_bytes){ w->id.data, w->id.n },
                         (struct token_bytes){ w->name.data, w->name.n });
    if (!end && !(masked && last)) return;
    struct item *i = open_item(x, a);
    if (i && i->kind == ITEM_CALL) grow_call(x, a, i, &w->text);
    w->text.n = 0;
    if (end) end_item(x, a);
}

static void on_calls(struct stream *x, struct answer *a)
{
    size_t n;
    const struct tools_event *e = token_calls_events(token_text_calls_of(a->text), &n);
    for (size_t i = 0; i < n && !x->gone; i++) take_call(x, a, &e[i], i + 1 == n);
    if (keeps(x, ITEM_CALL)) items_reserve(x, 0);
}

static bool says_nothing(const struct item_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->list[i].kind != ITEM_REASONING) return false;
    return true;
}

static void on_end(struct stream *x, struct answer *a, const struct ending *e)
{
    struct items *t = x->items;
    struct item *i = open_item(x, a);
    list_of(x, a)->reason = e->reason;
    list_of(x, a)->stop = token_text_stopped(a->text);
    if (i) i->cut = i->kind == ITEM_CALL;
    if (encoder(x)->never_empty && says_nothing(list_of(x, a))) (void)item_of(x, a, ITEM_TEXT);
    end_item(x, a);
    t->tokens_out += a->tokens_out;
    t->reasoning_ids += token_text_reasoning_ids(a->text);
    if (a->index % x->each == 0) t->cached += e->f.n_cached;
    t->again += e->f.completion_hit;
    if (encoder(x)->over) encoder(x)->over(x, a, e);
}

static void on_done(struct stream *x)
{
    if (encoder(x)->done) encoder(x)->done(x);
}

static void on_error(struct stream *x, const struct ending *e) { encoder(x)->error(x, e); }

void items_form(const struct encoder *e, bool whole, struct stream_form *out)
{
    out->started = on_started;
    out->progress = e->progress ? on_progress : NULL;
    out->token = on_token;
    out->line = on_line;
    out->calls = on_calls;
    out->end = on_end;
    out->done = on_done;
    out->error = on_error;
    out->whole = whole;
}

/* ---- for encoders -------------------------------------------------------------------------------------- */

size_t items_prompt_tokens(const struct stream *x)
{
    size_t n = 0;
    for (uint32_t i = 0; i < x->n_prompts; i++) n += x->prompts[i].ids.n;
    return n;
}

void items_send(struct stream *x, bool good)
{
    struct refusal why = { .code = SERVE_INTERNAL, .text = "no memory for the answer" };
    if (good && !x->line.failed && !x->items->failed) {
        http_answer(x->r, 200, "application/json", x->line.data, x->line.n);
        return;
    }
    refusal_job(&why, x->q.job_id);
    serve_fail(x->r, &why);
    stream_told(x);
}

void items_stream_error(struct stream *x, const struct ending *e)
{
    serve_put_failure(&x->line, x->r, &e->why);
    (void)stream_event(x, NULL);
}

void items_whole_error(struct stream *x, const struct ending *e) { serve_fail(x->r, &e->why); }
