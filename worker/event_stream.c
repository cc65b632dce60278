/* event_stream.c: see event_stream.h. */
#include "event_stream.h"

#include <string.h>

static bool add(struct event_stream *s, struct http_text *to, const char *bytes, size_t n)
{
    if (n > EVENT_STREAM_MOST - to->n) s->failed = true;
    if (!s->failed) http_text_add(to, bytes, n);
    s->failed = s->failed || to->failed;
    return !s->failed;
}

/* A line without its end. */
static bool take_line(struct event_stream *s, event_stream_sink sink, void *user)
{
    static const char name[] = "data:";
    const size_t n_name = sizeof name - 1;
    const char *line = s->line.data;
    size_t n = s->line.n;
    s->line.n = 0;
    if (n && line[n - 1] == '\r') n--;
    if (!n) {
        const bool some = s->some;
        const size_t n_data = s->data.n;
        s->some = false;
        s->data.n = 0;
        return !some || sink(user, s->data.data, n_data);
    }
    if (n < n_name || memcmp(line, name, n_name) != 0) return true; /* another field, or a comment */
    const size_t skip = n_name + (n > n_name && line[n_name] == ' ');
    if (s->some && !add(s, &s->data, "\n", 1)) return false;
    s->some = true;
    return add(s, &s->data, line + skip, n - skip);
}

bool event_stream_push(struct event_stream *s, const char *bytes, size_t n, event_stream_sink sink, void *user)
{
    while (n && !s->failed) {
        const char *end = memchr(bytes, '\n', n);
        const size_t part = end ? (size_t)(end - bytes) : n;
        if (!add(s, &s->line, bytes, part)) return false;
        if (!end) return true;
        if (!take_line(s, sink, user)) return false;
        bytes += part + 1;
        n -= part + 1;
    }
    return !s->failed;
}

void event_stream_free(struct event_stream *s)
{
    http_text_free(&s->line);
    http_text_free(&s->data);
    *s = (struct event_stream){ 0 };
}
