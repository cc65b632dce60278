/* reply.c: see reply.h. Only the answer itself runs through the stop strings: a reasoning model must be able to think
 * about them. */
#include "reply.h"

#include <stdlib.h>
#include <string.h>

#include "chat/think.h"
#include "terminal.h"
#include "tokenizer/stop.h"
#include "base/utf8.h"

struct reply {
    struct reply_options o;
    struct harmony_parser parser;
    struct think think;
    bool thinking; /* reasoning was written aside, and has not ended */
    struct stop_matcher *stops;
    struct utf8_stream utf8, aside_utf8;
    struct terminal out, aside;
    char *certain, *text; /* bytes that no stop string can take back; the same as whole characters */
    bool begun, stopped;
};

wk_status reply_open(const struct reply_options *o, struct reply **out, const struct wk_err *err)
{
    size_t lens[STOP_MAX];
    *out = NULL;
    struct reply *a = calloc(1, sizeof *a);
    if (!a) return wk_fail(err, WK_NO_MEMORY, "no memory for text");
    a->o = *o;
    a->out = (struct terminal){ .out = o->out, .shows = o->out_terminal };
    a->aside = (struct terminal){ .out = o->aside, .shows = o->aside_terminal };
    if (o->harmony) harmony_begin(&a->parser, o->harmony, true);
    if (o->marks) think_begin(&a->think, o->tokenizer, o->marks);
    for (uint32_t i = 0; i < o->n_stops; i++) lens[i] = strlen(o->stops[i]);
    wk_status status = stop_open(o->stops, lens, o->n_stops, &a->stops, err);
    a->certain = malloc(STOP_ROOM(TOKENIZER_MAX_TOKEN_BYTES));
    a->text = malloc(UTF8_STREAM_ROOM(STOP_ROOM(TOKENIZER_MAX_TOKEN_BYTES)));
    if (!status && (!a->certain || !a->text)) status = wk_fail(err, WK_NO_MEMORY, "no memory for text");
    if (status)
        reply_close(a);
    else
        *out = a;
    return status;
}

void reply_close(struct reply *a)
{
    if (!a) return;
    stop_close(a->stops);
    free(a->certain);
    free(a->text);
    free(a);
}

bool reply_begun(const struct reply *a) { return a->begun; }

/* ---- the answer ---------------------------------------------------------------------------------------- */

static void show(struct reply *a, struct token_bytes bytes)
{
    size_t n = 0;
    if (!bytes.len || a->stopped) return;
    a->begun = true;
    a->stopped = stop_push(a->stops, bytes.data, bytes.len, a->certain, &n) != STOP_NONE;
    terminal_write(&a->out, a->text, utf8_stream_push(&a->utf8, a->certain, n, a->text));
}

/* ---- what stands aside --------------------------------------------------------------------------------- */

static void write_aside(struct reply *a, struct token_bytes bytes)
{
    if (a->o.aside)
        terminal_write(&a->aside, a->text, utf8_stream_push(&a->aside_utf8, bytes.data, bytes.len, a->text));
}

static void end_aside(struct reply *a)
{
    if (!a->o.aside) return;
    terminal_write(&a->aside, a->text, utf8_stream_flush(&a->aside_utf8, a->text));
    terminal_end(&a->aside);
    (void)fputs(a->aside.shows ? "\033[0m\n\n" : "\n\n", a->o.aside);
    (void)fflush(a->o.aside);
}

/* Of an answer with marks. */
static void sink(void *user, bool reasoning, const char *bytes, size_t n)
{
    struct reply *a = user;
    if (reasoning && !a->thinking && a->o.aside && a->aside.shows) (void)fputs("\033[2m", a->o.aside);
    if (!reasoning && a->thinking) end_aside(a);
    a->thinking = reasoning;
    (reasoning ? write_aside : show)(a, (struct token_bytes){ bytes, n });
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static void begin_message(struct reply *a)
{
    const struct harmony_header *h = &a->parser.header;
    if (harmony_visible(h)) {
        if (a->begun)
            show(a, (struct token_bytes){ "\n\n", 2 }); /* what was said before a call of a tool, and then the answer */
    } else if (a->o.aside) {
        if (a->aside.shows) (void)fputs("\033[2m", a->o.aside);
        if (!harmony_calls(h)) return;
        terminal_write(&a->aside, "[calls ", 7);
        write_aside(a, (struct token_bytes){ h->recipient, strlen(h->recipient) });
        terminal_write(&a->aside, a->text, utf8_stream_flush(&a->aside_utf8, a->text)); /* a name may end anywhere */
        terminal_write(&a->aside, "] ", 2);
    }
}

static void end_message(struct reply *a)
{
    if (!harmony_visible(&a->parser.header)) end_aside(a);
}

static void take_events(struct reply *a, const struct harmony_event *events, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == HARMONY_BEGIN)
            begin_message(a);
        else if (events[i].kind == HARMONY_END)
            end_message(a);
        else if (harmony_visible(&a->parser.header))
            show(a, events[i].text);
        else
            write_aside(a, events[i].text);
    }
}

bool reply_take(struct reply *a, uint32_t id)
{
    struct harmony_event events[HARMONY_EVENTS];
    const struct token_bytes piece = tokenizer_piece(a->o.tokenizer, id, false);
    if (a->o.harmony)
        take_events(a, events, harmony_push(&a->parser, id, piece, events));
    else if (a->o.marks)
        (void)think_push(&a->think, id, sink, a);
    else
        show(a, piece);
    return a->stopped;
}

void reply_end(struct reply *a, bool cut)
{
    struct harmony_event events[HARMONY_EVENTS];
    if (a->o.harmony) take_events(a, events, harmony_finish(&a->parser, events));
    if (a->o.marks) think_finish(&a->think, sink, a);
    if (a->thinking) end_aside(a);
    terminal_write(&a->out, a->text, utf8_stream_push(&a->utf8, a->certain, stop_flush(a->stops, a->certain), a->text));
    if (cut) utf8_stream_drop(&a->utf8);
    terminal_write(&a->out, a->text, utf8_stream_flush(&a->utf8, a->text));
    terminal_end(&a->out);
}
