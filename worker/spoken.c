/* spoken.c: see spoken.h. */
#include "spoken.h"

#include <stdlib.h>
#include <string.h>

static const char dim[] = "\033[2m", plain[] = "\033[0m";

void spoken_open(struct spoken *s, bool terminal)
{
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    const bool plainly = (no_color && *no_color) || (kind && strcmp(kind, "dumb") == 0);
    *s = (struct spoken){ .out = { .out = stdout, .shows = terminal },
                          .styled = terminal && !plainly,
                          .calls = json_array() };
    s->failed = !s->calls;
}

void spoken_close(struct spoken *s)
{
    http_text_free(&s->text);
    http_text_free(&s->reasoning);
    http_text_free(&s->id);
    http_text_free(&s->name);
    http_text_free(&s->arguments);
    json_decref(s->calls);
    s->calls = NULL;
}

static void style(struct spoken *s, const char *sequence)
{
    if (s->styled) (void)fputs(sequence, s->out.out);
}

static void keep(struct spoken *s, struct http_text *to, const char *bytes, size_t n)
{
    http_text_add(to, bytes, n);
    s->failed = s->failed || to->failed;
}

/* The call that is open is complete. */
static void end_call(struct spoken *s)
{
    json_t *call = json_pack("{s:s%, s:s, s:{s:s%, s:s%}}", "id", s->id.data, s->id.n, "type", "function", "function",
                             "name", s->name.data, s->name.n, "arguments", s->arguments.data, s->arguments.n);
    if (!call || json_array_append_new(s->calls, call)) s->failed = true;
    terminal_write(&s->out, ")]", 2);
}

/* Something else begins; what was there before ends with a line. */
static void change(struct spoken *s, enum spoken_part to)
{
    if (s->now == to && to != SPOKEN_CALL) return;
    const bool shown = s->now != SPOKEN_NOTHING && (s->now != SPOKEN_REASONING || s->out.shows);
    if (s->now == SPOKEN_CALL) end_call(s);
    terminal_end(&s->out);
    if (s->now == SPOKEN_REASONING || s->now == SPOKEN_CALL) style(s, plain);
    if (shown) terminal_write(&s->out, "\n", 1);
    if (shown && s->now == SPOKEN_REASONING && to != SPOKEN_NOTHING) terminal_write(&s->out, "\n", 1);
    if (to == SPOKEN_REASONING || to == SPOKEN_CALL) style(s, dim);
    s->now = to;
}

void spoken_reasoning(struct spoken *s, const char *bytes, size_t n)
{
    if (!n) return;
    change(s, SPOKEN_REASONING);
    keep(s, &s->reasoning, bytes, n);
    if (s->out.shows) terminal_write(&s->out, bytes, n);
}

void spoken_text(struct spoken *s, const char *bytes, size_t n)
{
    if (!n) return;
    change(s, SPOKEN_TEXT);
    keep(s, &s->text, bytes, n);
    terminal_write(&s->out, bytes, n);
}

void spoken_call(struct spoken *s, const char *id, size_t n_id, const char *name, size_t n_name)
{
    change(s, SPOKEN_CALL);
    s->id.n = s->name.n = s->arguments.n = 0;
    keep(s, &s->id, id, n_id);
    keep(s, &s->name, name, n_name);
    keep(s, &s->arguments, "", 0);
    terminal_write(&s->out, "[calls ", 7);
    terminal_write(&s->out, name, n_name);
    terminal_write(&s->out, "(", 1);
}

void spoken_arguments(struct spoken *s, const char *bytes, size_t n)
{
    if (s->now != SPOKEN_CALL) return;
    keep(s, &s->arguments, bytes, n);
    terminal_write(&s->out, bytes, n);
}

void spoken_end(struct spoken *s, bool cut)
{
    if (cut && s->now == SPOKEN_CALL) {
        terminal_end(&s->out);
        style(s, plain);
        terminal_write(&s->out, "\n", 1);
        s->now = SPOKEN_NOTHING;
    }
    change(s, SPOKEN_NOTHING);
    (void)fflush(s->out.out);
}

json_t *spoken_message(struct spoken *s)
{
    const bool calls = json_array_size(s->calls) > 0;
    if (s->failed || (!s->text.n && !calls)) return NULL; /* reasoning alone is no answer */
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          s->text.n ? json_stringn(s->text.data, s->text.n) : json_null());
    bool good = m != NULL;
    if (good && s->reasoning.n)
        good = !json_object_set_new(m, "reasoning_content", json_stringn(s->reasoning.data, s->reasoning.n));
    if (good && calls) good = !json_object_set(m, "tool_calls", s->calls);
    if (good) return m;
    json_decref(m);
    s->failed = true;
    return NULL;
}
