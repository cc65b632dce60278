/* stream.c: what arrives, taken apart and judged. */
#include "stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

void stream_violation(struct stream *s, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (s->r->violations++ == 0)
        (void)snprintf(s->r->first_violation, sizeof s->r->first_violation, "stream %u: %s", s->index, text);
    if (s->end == STREAM_OPEN) {
        s->end = STREAM_FAILED;
        (void)snprintf(s->why, sizeof s->why, "violation");
    }
}

/* ---- events -------------------------------------------------------------------------------------------- */

/* The number behind "i": of a token event. In a JSON string a quote has a backslash before it, so `"i":` cannot stand
 * inside one. */
static bool token_index(const char *data, uint32_t *out)
{
    for (const char *at = data; (at = strstr(at, "\"i\":")); at += 4) {
        if (at == data || at[-1] == '\\') continue;
        char *end;
        const unsigned long v = strtoul(at + 4, &end, 10);
        if (end == at + 4 || v > UINT32_MAX) return false;
        *out = (uint32_t)v;
        return true;
    }
    return false;
}

static void take_token(struct stream *s, const char *data, double now)
{
    uint32_t index = 0;
    if (!s->started)
        stream_violation(s, "token before started");
    else if (!token_index(data, &index))
        stream_violation(s, "a token without a number: %.80s", data);
    else if (index != s->tokens)
        stream_violation(s, "token %u where %u was due", index, s->tokens);
    if (s->tokens++ == 0)
        s->first = now;
    else if (!s->other)
        (void)series_add(&s->r->itl, now - s->last);
    s->last = now;
    if (s->tokens > s->abandon_at && s->end == STREAM_OPEN) s->end = STREAM_ABANDONED;
}

static void take_started(struct stream *s, const char *data)
{
    char mine[64];
    json_t *o = json_loads(data, 0, NULL);
    const char *id = json_string_value(json_object_get(o, "job_id"));
    (void)snprintf(mine, sizeof mine, "load-%d-%u", (int)getpid(), s->index);
    if (!id || strcmp(id, mine) != 0)
        stream_violation(s, "started for job %.60s instead of %s", id ? id : "(none)", mine);
    if (s->started) stream_violation(s, "started twice");
    s->started = true;
    json_decref(o);
}

static void take_end(struct stream *s, const char *data, bool error)
{
    json_t *o = json_loads(data, 0, NULL);
    if (!o) stream_violation(s, "a terminal event that is no JSON: %.80s", data);
    s->terminal = true;
    if (error) {
        const char *code = json_string_value(json_object_get(o, "code"));
        if (s->end == STREAM_OPEN) {
            s->end = STREAM_FAILED;
            (void)snprintf(s->why, sizeof s->why, "%.60s", code ? code : "error without a code");
        }
    } else {
        const json_t *out = json_object_get(o, "tokens_out"), *in = json_object_get(o, "tokens_in");
        if (!json_is_integer(out) || json_integer_value(out) != (json_int_t)s->tokens)
            stream_violation(s, "%u tokens came, end says %lld", s->tokens, (long long)json_integer_value(out));
        if (!s->other && s->end == STREAM_OPEN) s->r->input_tokens += (uint64_t)json_integer_value(in);
    }
    json_decref(o);
}

/* One event: lines without the blank one behind them, terminated. */
static void take_event(struct stream *s, char *block, double now)
{
    const char *event = "", *data = NULL;
    for (char *line = block, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        if (line[0] == ':') continue; /* a ping */
        if (strncmp(line, "event: ", 7) == 0)
            event = line + 7;
        else if (strncmp(line, "data: ", 6) == 0)
            data = line + 6;
        else if (*line)
            stream_violation(s, "a line that is neither event nor data: %.60s", line);
    }
    if (!data) return;
    if (s->terminal)
        stream_violation(s, "event %.30s after the terminal one", event);
    else if (strcmp(event, "token") == 0)
        take_token(s, data, now);
    else if (strcmp(event, "started") == 0)
        take_started(s, data);
    else if (strcmp(event, "end") == 0)
        take_end(s, data, false);
    else if (strcmp(event, "error") == 0)
        take_end(s, data, true);
    else if (strcmp(event, "metrics") != 0)
        stream_violation(s, "unknown event %.30s", event);
}

static void take_events(struct stream *s, const char *bytes, size_t n, double now)
{
    while (n && s->end == STREAM_OPEN) {
        const size_t room = STREAM_BUFFER - 1 - s->n, k = n < room ? n : room;
        if (!k) {
            stream_violation(s, "an event of more than %d bytes", STREAM_BUFFER);
            return;
        }
        memcpy(s->buffer + s->n, bytes, k);
        s->n += k;
        s->buffer[s->n] = '\0';
        bytes += k;
        n -= k;
        char *at = s->buffer, *blank;
        while (s->end == STREAM_OPEN && (blank = strstr(at, "\n\n"))) {
            *blank = '\0';
            take_event(s, at, now);
            at = blank + 2;
        }
        s->n -= (size_t)(at - s->buffer);
        memmove(s->buffer, at, s->n);
    }
}

/* ---- framing ------------------------------------------------------------------------------------------- */

/* Chunked coding: size line, bytes, line end, ... States: 0 digits, 1 rest of the size line, 2 bytes, 3 the line end
 * behind them. */
static void take_chunked(struct stream *s, const char *bytes, size_t n, double now)
{
    while (n && s->end == STREAM_OPEN) {
        if (s->chunk_state == 2) {
            const size_t k = n < s->chunk_left ? n : s->chunk_left;
            take_events(s, bytes, k, now);
            bytes += k;
            n -= k;
            s->chunk_left -= k;
            if (!s->chunk_left) s->chunk_state = 3;
            continue;
        }
        const char c = *bytes++;
        n--;
        if (s->chunk_state == 0) {
            const char *digits = "0123456789abcdef", *d = c ? strchr(digits, c | 0x20) : NULL;
            if (c != '\r' && c != '\n' && d && s->chunk_left < 1 << 20)
                s->chunk_left = s->chunk_left * 16 + (size_t)(d - digits);
            else if (c == '\n')
                s->chunk_state = s->chunk_left ? 2 : 0;
            else if (c != '\r')
                s->chunk_state = 1;
        } else if (c == '\n') {
            s->chunk_state = s->chunk_state == 1 && s->chunk_left ? 2 : 0;
        }
    }
}

/* Status and framing of a complete header. */
static void take_head(struct stream *s)
{
    if (sscanf(s->buffer, "HTTP/1.1 %d", &s->status) != 1) stream_violation(s, "no HTTP status: %.60s", s->buffer);
    s->chunked = strcasestr(s->buffer, "\r\nTransfer-Encoding: chunked") != NULL;
    s->phase = s->status == 200 ? STREAM_EVENTS : STREAM_ERROR_BODY;
    if (s->status == 200 && !strcasestr(s->buffer, "\r\nContent-Type: text/event-stream"))
        stream_violation(s, "200 without a stream of events");
}

void stream_take(struct stream *s, const char *bytes, size_t n, double now)
{
    s->heard = now;
    if (s->phase == STREAM_HEAD || s->phase == STREAM_ERROR_BODY) {
        const size_t room = STREAM_BUFFER - 1 - s->n, k = n < room ? n : room;
        memcpy(s->buffer + s->n, bytes, k);
        s->n += k;
        s->buffer[s->n] = '\0';
        if (s->phase == STREAM_ERROR_BODY) return;
        char *blank = strstr(s->buffer, "\r\n\r\n");
        if (!blank) {
            if (k < n || s->n == STREAM_BUFFER - 1)
                stream_violation(s, "a header of more than %d bytes", STREAM_BUFFER);
            return;
        }
        blank[2] = '\0';
        take_head(s);
        const size_t used = (size_t)(blank + 4 - s->buffer), rest = s->n - used;
        memmove(s->buffer, blank + 4, rest);
        s->n = rest;
        s->buffer[rest] = '\0';
        if (s->phase != STREAM_EVENTS || !rest) return;
        char *copy = malloc(rest); /* once a stream: what came behind the header goes the way of all that follows */
        if (!copy) return;
        memcpy(copy, s->buffer, rest);
        s->n = 0;
        if (s->chunked)
            take_chunked(s, copy, rest, now);
        else
            take_events(s, copy, rest, now);
        free(copy);
    } else if (s->phase == STREAM_EVENTS) {
        if (s->chunked)
            take_chunked(s, bytes, n, now);
        else
            take_events(s, bytes, n, now);
    }
}

void stream_closed(struct stream *s, bool broken, double now)
{
    if (s->end != STREAM_OPEN) return;
    if (s->phase == STREAM_ERROR_BODY) {
        json_t *o = json_loadb(s->buffer, s->n, JSON_DISABLE_EOF_CHECK, NULL);
        const char *code = json_string_value(json_object_get(o, "code"));
        (void)snprintf(s->why, sizeof s->why, "%d %.50s", s->status, code ? code : "");
        if (!code) stream_violation(s, "status %d without our JSON: %.60s", s->status, s->buffer);
        if (now - s->begun > s->r->refused_slowest) s->r->refused_slowest = now - s->begun;
        json_decref(o);
        s->end = STREAM_FAILED;
    } else if (s->phase == STREAM_EVENTS && s->terminal) {
        s->end = STREAM_COMPLETED;
    } else {
        if (s->phase == STREAM_EVENTS)
            stream_violation(s, "closed without a terminal event after %u tokens", s->tokens);
        (void)snprintf(s->why, sizeof s->why, broken ? "connection broken" : "connection closed");
        s->end = STREAM_FAILED;
    }
}
