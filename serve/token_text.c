/* token_text.c: see token_text.h. */
#include "token_text.h"

#include <stdlib.h>
#include <string.h>

#include "chat/think.h"
#include "tokenizer/stop.h"
#include "base/utf8.h"

struct token_text {
    const struct tokenizer *tokenizer;
    struct stop_matcher *stops;
    struct utf8_stream utf8;
    size_t pushed, certain_n; /* bytes that went into the matcher, and came out */
    uint32_t n_ids, n_held;   /* n_held: ids before stop strings count */
    int stopped;
    bool waiting;         /* line [1] waits */
    bool channels, begun; /* harmony; some of its text was for the user */
    struct harmony_parser parser;
    bool thinks; /* reasoning stands between marks */
    struct think think;
    struct token_calls *calls; /* NULL: none may come */
    struct byte_buffer said;   /* with calls: of the last id, what is not reasoning; then what of it is text */
    size_t room;               /* bytes that certain[] has room for, stop strings' aside */
    bool failed;
    size_t sunk;              /* bytes of certain[] that the last id made */
    struct utf8_stream aside; /* reasoning */
    char *aside_text;
    size_t aside_n;   /* of the last id: as much room as a line has */
    uint32_t n_aside; /* ids of reasoning */
    char *certain;    /* [STOP_ROOM(piece_max + what a header can turn out to be)] */
    char *text[2];
    size_t n[2]; /* of the line to send, and of the one that waits: as much room each */
    uint32_t waiting_id;
};

size_t token_text_piece_max(const struct tokenizer *t)
{
    size_t most = 1;
    for (uint32_t id = 0; id < tokenizer_size(t); id++) {
        const size_t n = tokenizer_piece(t, id, false).len;
        most = n > most ? n : most;
    }
    return most;
}

/* Bytes of a line, of so many that are pushed, and the end behind it. */
static size_t line_room(size_t pushed)
{
    return UTF8_STREAM_ROOM(STOP_ROOM(pushed)) + UTF8_STREAM_ROOM(STOP_ROOM(pushed)) + 3;
}

static bool grow(char **text, size_t n)
{
    char *grown = realloc(*text, n);
    if (grown) *text = grown;
    return grown != NULL;
}

/* For a push of n bytes. Lines that were given out move. */
static bool make_room(struct token_text *x, size_t n)
{
    if (n <= x->room) return true;
    if (!grow(&x->certain, STOP_ROOM(n)) || !grow(&x->text[0], line_room(n)) || !grow(&x->text[1], line_room(n)))
        return false;
    x->room = n;
    return true;
}

wk_status token_text_open(const struct tokenizer *t, size_t piece_max, const char *const *stops,
                          const size_t *stop_lens, size_t n_stops, struct token_text **out, const struct wk_err *err)
{
    struct token_text *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x) return wk_fail(err, WK_NO_MEMORY, "no memory for text");
    x->tokenizer = t;
    x->stopped = STOP_NONE;
    const size_t room = piece_max + HARMONY_HEADER + 2;
    x->aside_text = malloc(line_room(room));
    wk_status status = x->aside_text && make_room(x, room) ? stop_open(stops, stop_lens, n_stops, &x->stops, err)
                                                           : wk_fail(err, WK_NO_MEMORY, "no memory for text");
    if (status) {
        token_text_close(x);
        return status;
    }
    *out = x;
    return WK_OK;
}

void token_text_channels(struct token_text *x, const struct harmony_ids *ids)
{
    x->channels = true;
    harmony_begin(&x->parser, ids, true);
}

void token_text_marks(struct token_text *x, const struct chat_marks *marks)
{
    x->thinks = true;
    think_begin(&x->think, x->tokenizer, marks);
}

void token_text_calls(struct token_text *x, struct token_calls *c) { x->calls = c; }
struct token_calls *token_text_calls_of(const struct token_text *x) { return x->calls; }

void token_text_hold(struct token_text *x, uint32_t n) { x->n_held = n; }

void token_text_close(struct token_text *x)
{
    if (!x) return;
    stop_close(x->stops);
    token_calls_close(x->calls);
    free(x->said.data);
    free(x->certain);
    free(x->aside_text);
    free(x->text[0]);
    free(x->text[1]);
    free(x);
}

int token_text_stopped(const struct token_text *x) { return x->stopped; }
bool token_text_failed(const struct token_text *x) { return x->failed; }
bool token_text_over(const struct token_text *x)
{
    return x->stopped != STOP_NONE || (x->calls && token_calls_over(x->calls));
}

struct token_bytes token_text_stop(const struct token_text *x, int index)
{
    struct token_bytes out;
    out.data = stop_string(x->stops, index, &out.len);
    return out;
}
struct token_bytes token_text_reasoning(const struct token_text *x)
{
    return (struct token_bytes){ x->aside_text, x->aside_n };
}
uint32_t token_text_reasoning_ids(const struct token_text *x) { return x->n_aside; }

/* The line that waits, as line of the caller; it waits no longer. */
static struct token_line give_waiting(struct token_text *x)
{
    x->waiting = false;
    return (struct token_line){ x->waiting_id, x->n_ids - 1, x->text[1], x->n[1] };
}

/* Takes bytes of the text; what they make certain goes to certain[at..). Returns its end. */
static size_t push_bytes(struct token_text *x, struct token_bytes bytes, size_t at)
{
    size_t n = bytes.len;
    if (x->stopped != STOP_NONE || !bytes.len) return at; /* an id without text has no address, either */
    if (x->n_ids < x->n_held)
        memcpy(x->certain + at, bytes.data, bytes.len);
    else
        x->stopped = stop_push(x->stops, bytes.data, bytes.len, x->certain + at, &n);
    x->pushed += bytes.len;
    x->certain_n += n;
    return at + n;
}

/* What events say to nobody but the model itself. */
static void take_reasoning(struct token_text *x, const struct harmony_event *events, size_t n_events)
{
    bool any = false;
    x->aside_n = 0;
    for (size_t i = 0; i < n_events; i++) {
        if (harmony_visible(&x->parser.header) || x->parser.header.channel != HARMONY_ANALYSIS) continue;
        const struct token_bytes said = events[i].kind == HARMONY_TEXT ? events[i].text
                                        : events[i].kind == HARMONY_BEGIN && x->n_aside
                                            ? (struct token_bytes){ "\n\n", 2 }
                                            : (struct token_bytes){ 0 };
        if (events[i].kind == HARMONY_BEGIN) utf8_stream_drop(&x->aside);
        if (said.len) x->aside_n += utf8_stream_push(&x->aside, said.data, said.len, x->aside_text + x->aside_n);
        any = any || events[i].kind == HARMONY_TEXT;
    }
    x->n_aside += any;
}

static bool say(struct token_text *x, struct token_bytes bytes)
{
    if (bytes.len > x->said.cap - x->said.n) {
        const size_t cap = 2 * x->said.cap + bytes.len;
        if (!grow(&x->said.data, cap)) return false;
        x->said.cap = cap;
    }
    if (bytes.len) memcpy(x->said.data + x->said.n, bytes.data, bytes.len);
    x->said.n += bytes.len;
    return true;
}

/* The same of what events say to the user; a second message for the user stands apart from the first. */
static size_t push_events(struct token_text *x, const struct harmony_event *events, size_t n_events)
{
    size_t at = 0;
    for (size_t i = 0; i < n_events; i++) {
        if (events[i].kind == HARMONY_END || !harmony_visible(&x->parser.header)) continue;
        if (events[i].kind == HARMONY_TEXT)
            at = push_bytes(x, events[i].text, at);
        else if (x->begun)
            at = push_bytes(x, (struct token_bytes){ "\n\n", 2 }, at);
        x->begun = x->begun || events[i].kind == HARMONY_TEXT;
    }
    return at;
}

/* The same where functions may be called: text is gathered in said. */
static bool take_events(struct token_text *x, const struct harmony_event *events, size_t n_events)
{
    const struct harmony_header *h = &x->parser.header;
    bool ok = true;
    for (size_t i = 0; ok && i < n_events; i++) {
        if (harmony_calls(h)) {
            ok = token_calls_message(x->calls, h, &events[i], &x->said);
        } else if (harmony_visible(h) && events[i].kind != HARMONY_END) {
            ok = events[i].kind == HARMONY_TEXT ? say(x, events[i].text)
                                                : !x->begun || say(x, (struct token_bytes){ "\n\n", 2 });
            x->begun = x->begun || events[i].kind == HARMONY_TEXT;
        }
    }
    return ok;
}

/* What stands before, between and behind the marks. */
static void sink(void *user, bool reasoning, const char *bytes, size_t n)
{
    struct token_text *x = user;
    if (reasoning)
        x->aside_n += utf8_stream_push(&x->aside, bytes, n, x->aside_text + x->aside_n);
    else if (x->calls)
        x->failed = !say(x, (struct token_bytes){ bytes, n }) || x->failed;
    else
        x->sunk = push_bytes(x, (struct token_bytes){ bytes, n }, x->sunk);
}

static size_t push_marked(struct token_text *x, uint32_t id)
{
    x->sunk = x->aside_n = 0;
    x->n_aside += think_push(&x->think, id, sink, x);
    return x->sunk;
}

static size_t end_marked(struct token_text *x)
{
    x->sunk = x->aside_n = 0;
    think_finish(&x->think, sink, x);
    return x->sunk;
}

/* What was gathered goes through the parser of calls: said is then what of it is text, behind `text`. */
static bool parse_said(struct token_text *x, uint32_t id, struct byte_buffer *text)
{
    const bool ok = token_calls_push(x->calls, id, (struct token_bytes){ x->said.data, x->said.n }, text);
    x->said.n = 0;
    return ok;
}

/* Ids where functions may be called; what of them is text is gathered in said. The parser is to see control tokens, and
 * other tokens whole: where reasoning's end has held a part back, it sees bytes. A control token that is no mark of
 * reasoning ends the wait for one. */
static bool take_id(struct token_text *x, uint32_t id, struct token_bytes piece)
{
    struct byte_buffer text = { 0 };
    bool reasoning = false, ok = true;
    x->aside_n = 0;
    if (x->thinks) {
        const size_t held = x->think.n;
        reasoning = think_push(&x->think, id, sink, x);
        x->n_aside += reasoning;
        if (held && !reasoning && !piece.len && !x->said.n && x->think.n == held) {
            think_finish(&x->think, sink, x);
            ok = parse_said(x, TOKEN_NONE, &text);
        }
    } else {
        ok = say(x, piece);
    }
    if (x->said.n != piece.len || (reasoning && !piece.len)) id = TOKEN_NONE;
    ok = ok && parse_said(x, id, &text);
    free(x->said.data);
    x->said = text;
    return ok;
}

/* The end of an answer with calls. */
static bool take_end(struct token_text *x)
{
    struct harmony_event events[HARMONY_EVENTS];
    struct byte_buffer text = { 0 };
    bool ok = true;
    if (x->channels) {
        ok = take_events(x, events, harmony_finish(&x->parser, events));
    } else if (x->thinks) {
        x->aside_n = 0;
        think_finish(&x->think, sink, x);
        ok = parse_said(x, TOKEN_NONE, &text);
        free(x->said.data);
        x->said = text;
    }
    return ok && token_calls_finish(x->calls, &x->said);
}

/* Room for what an id, or the end, has made text. */
static void gather(struct token_text *x, bool ok)
{
    x->failed = !ok || !make_room(x, x->said.n) || x->failed;
    if (x->failed) x->said.n = 0;
}

static bool holds(const struct token_text *x)
{
    return (x->calls && token_calls_holds(x->calls)) || (x->channels && harmony_holds(&x->parser)) ||
           (x->thinks && think_holds(&x->think));
}

int token_text_push(struct token_text *x, uint32_t id, struct token_line out[2])
{
    const struct token_bytes piece = tokenizer_piece(x->tokenizer, id, false);
    struct harmony_event events[HARMONY_EVENTS];
    int n_lines = 0;
    const size_t n_events = x->channels ? harmony_push(&x->parser, id, piece, events) : 0;
    if (x->calls) {
        x->said.n = 0;
        token_calls_begin(x->calls);
        gather(x, x->channels ? take_events(x, events, n_events) : take_id(x, id, piece));
    }
    if (x->waiting) out[n_lines++] = give_waiting(x);
    const size_t n = x->calls      ? push_bytes(x, (struct token_bytes){ x->said.data, x->said.n }, 0)
                     : x->channels ? push_events(x, events, n_events)
                     : x->thinks   ? push_marked(x, id)
                                   : push_bytes(x, piece, 0);
    if (x->channels) take_reasoning(x, events, n_events);
    x->n_ids++;
    x->n[0] = utf8_stream_push(&x->utf8, x->certain, n, x->text[0]);
    if (x->stopped != STOP_NONE)
        x->n[0] += utf8_stream_flush(&x->utf8, x->text[0] + x->n[0]);
    else if (x->certain_n < x->pushed || x->utf8.n || holds(x)) {
        /* The line given out above lies in text[1] and must live on: the new one stays in text[0] until it is asked
         * for, under the name text[1]. */
        char *line = x->text[1];
        x->text[1] = x->text[0];
        x->text[0] = line;
        x->n[1] = x->n[0];
        x->waiting_id = id;
        x->waiting = true;
        return n_lines;
    }
    out[n_lines++] = (struct token_line){ id, x->n_ids - 1, x->text[0], x->n[0] };
    return n_lines;
}

int token_text_end(struct token_text *x, bool cut, struct token_line out[1])
{
    struct harmony_event events[HARMONY_EVENTS];
    if (x->calls) token_calls_begin(x->calls);
    if (!x->waiting) return 0;
    if (x->calls) {
        x->said.n = 0;
        if (cut) token_calls_cut(x->calls);
        gather(x, take_end(x));
    }
    size_t n = x->calls      ? push_bytes(x, (struct token_bytes){ x->said.data, x->said.n }, 0)
               : x->channels ? push_events(x, events, harmony_finish(&x->parser, events))
               : x->thinks   ? end_marked(x)
                             : 0;
    n += stop_flush(x->stops, x->certain + n);
    x->n[1] += utf8_stream_push(&x->utf8, x->certain, n, x->text[1] + x->n[1]);
    if (cut)
        utf8_stream_drop(&x->utf8);
    else
        x->n[1] += utf8_stream_flush(&x->utf8, x->text[1] + x->n[1]);
    out[0] = give_waiting(x);
    return 1;
}
