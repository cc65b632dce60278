/* line_input.c: see line_input.h. libedit reads through a function of ours, so that Ctrl-C ends a line and nothing
 * else; that function makes characters of bytes itself, since texts are UTF-8 in every locale. */
#include "line_input.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "setup.h"
#include "text.h"
#include "base/utf8.h"

enum { KEPT_LINES = 1000, LOOK_MS = 50 /* how often Ctrl-C is looked for: it may come just before the wait */ };

struct line_input {
    EditLine *edit; /* NULL: lines as they come */
    History *history;
    const char *prompt;
    char *line;
    size_t cap;             /* of line, without edit */
    unsigned char in[4096]; /* of standard input, */
    size_t n_in, at;        /* from `at` on not looked at yet */
    bool stopped;           /* Ctrl-C ended the line */
};

static char *show_prompt(EditLine *e)
{
    struct line_input *l;
    (void)el_get(e, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt;
}

/* A byte of standard input: 1; 0: its end; -1: failed, or Ctrl-C. */
static int read_byte(struct line_input *l, unsigned char *out)
{
    while (l->at == l->n_in) {
        struct pollfd in = { STDIN_FILENO, POLLIN, 0 };
        const int ready = poll(&in, 1, LOOK_MS);
        if (interrupted()) {
            l->stopped = true;
            return -1;
        }
        if (ready < 0 && errno != EINTR) return -1;
        if (ready <= 0) continue;
        const ssize_t n = read(STDIN_FILENO, l->in, sizeof l->in);
        if (n == 0 || (n < 0 && errno != EINTR)) return (int)n;
        l->at = 0;
        l->n_in = n < 0 ? 0 : (size_t)n;
    }
    *out = l->in[l->at++];
    return 1;
}

/* A character of UTF-8. What is none is U+FFFD. */
static int read_character(EditLine *e, wchar_t *out)
{
    struct line_input *l;
    unsigned char bytes[4];
    size_t n = 0;
    (void)el_get(e, EL_CLIENTDATA, &l);
    int got = read_byte(l, &bytes[n++]);
    if (got != 1) return got;
    const size_t whole = bytes[0] < 0xc2 || bytes[0] > 0xf4 ? 1 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
    while (n < whole) {
        got = read_byte(l, &bytes[n++]);
        if (got != 1) return got;
    }
    static const unsigned char lead[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    *out = 0xfffd;
    if (utf8_sequence(bytes, whole) != whole) return 1;
    *out = (wchar_t)(bytes[0] & lead[whole]);
    for (size_t i = 1; i < whole; i++) *out = (wchar_t)(((unsigned)*out << 6) | (bytes[i] & 0x3fu));
    return 1;
}

static bool open_editor(struct line_input *l)
{
    HistEvent event;
    l->edit = el_init("worker", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->edit || !l->history || history(l->history, &event, H_SETSIZE, KEPT_LINES) < 0) return false;
    (void)history(l->history, &event, H_SETUNIQUE, 1);
    return !el_set(l->edit, EL_CLIENTDATA, l) && !el_set(l->edit, EL_PROMPT, show_prompt) &&
           !el_set(l->edit, EL_EDITOR, "emacs") && !el_set(l->edit, EL_HIST, history, l->history) &&
           !el_set(l->edit, EL_GETCFN, read_character) && !el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

struct line_input *line_input_open(bool edited)
{
    struct line_input *l = calloc(1, sizeof *l);
    if (!l || !edited || open_editor(l)) return l;
    line_input_close(l);
    return NULL;
}

void line_input_close(struct line_input *l)
{
    if (!l) return;
    if (l->history) history_end(l->history);
    if (l->edit) el_end(l->edit);
    free(l->line);
    free(l);
}

/* The last line may be without an end. */
static enum line_result read_plain(struct line_input *l, const char **out, size_t *n)
{
    unsigned char c = 0;
    int got;
    for (*n = 0; (got = read_byte(l, &c)) == 1 && c != '\n';) {
        if (*n + 1 >= l->cap) {
            const size_t cap = l->cap ? 2 * l->cap : 4096;
            char *grown = *n < TEXT_MAX_BYTES ? realloc(l->line, cap) : NULL;
            if (!grown) return LINE_FAILED;
            l->line = grown;
            l->cap = cap;
        }
        l->line[(*n)++] = (char)c;
    }
    if (got < 0) return l->stopped ? LINE_INTERRUPTED : LINE_FAILED;
    if (got == 0 && *n == 0) return LINE_END;
    if (*n && l->line[*n - 1] == '\r') --*n;
    if (l->cap) l->line[*n] = '\0';
    *out = l->cap ? l->line : "";
    return LINE_READ;
}

enum line_result line_input_next(struct line_input *l, const char *prompt, const char **out, size_t *n)
{
    HistEvent event;
    int got;
    l->stopped = false;
    if (!l->edit) return read_plain(l, out, n);
    l->prompt = mbstowcs(NULL, prompt, 0) != (size_t)-1 ? prompt : "> "; /* of what is no text libedit makes NULL */
    el_resize(l->edit);                                                  /* the window may have another size by now */
    (void)el_set(l->edit, EL_PREP_TERM, 1); /* before the prompt is there: keys that are typed at once are its, too */
    const char *line = el_gets(l->edit, &got);
    if (l->stopped) return LINE_INTERRUPTED;
    if (!line || got <= 0) return got < 0 ? LINE_FAILED : LINE_END;
    free(l->line);
    l->line = strdup(line);
    if (!l->line) return LINE_FAILED;
    *n = strcspn(l->line, "\r\n");
    l->line[*n] = '\0';
    if (*n) (void)history(l->history, &event, H_ENTER, l->line);
    *out = l->line;
    return LINE_READ;
}
