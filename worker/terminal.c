/* terminal.c: see terminal.h. */
#include "terminal.h"

/* Bytes from `text` on that a terminal writes and does not obey. */
static size_t harmless(const unsigned char *text, size_t n)
{
    size_t i = 0;
    while (i < n && ((text[i] >= 0x20 && text[i] != 0x7f) || text[i] == '\n' || text[i] == '\t')) {
        if (text[i] == 0xc2 && i + 1 < n && text[i + 1] >= 0x80 && text[i + 1] < 0xa0)
            break; /* U+0080 to U+009F: escape sequences in one character */
        i++;
    }
    return i;
}

static void show(FILE *out, unsigned char c) { (void)fprintf(out, "^%c", c ^ 0x40); }

static void end_return(struct terminal *t, bool line_ends)
{
    if (t->returns && !line_ends) show(t->out, '\r');
    t->returns = false;
}

static void show_controls(struct terminal *t, const unsigned char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        end_return(t, text[i] == '\n');
        const size_t plain = harmless(text + i, n - i);
        (void)fwrite(text + i, 1, plain, t->out);
        i += plain;
        if (i == n) break;
        if (plain) continue;
        if (text[i] == '\r')
            t->returns = true;
        else if (text[i] == 0xc2)
            (void)fprintf(t->out, "<U+%04X>", text[++i]);
        else
            show(t->out, text[i]);
        i++;
    }
}

void terminal_write(struct terminal *t, const char *text, size_t n)
{
    if (!t->out || !n) return;
    if (t->shows)
        show_controls(t, (const unsigned char *)text, n);
    else
        (void)fwrite(text, 1, n, t->out);
    (void)fflush(t->out);
}

void terminal_end(struct terminal *t)
{
    if (!t->out) return;
    end_return(t, false);
    (void)fflush(t->out);
}
