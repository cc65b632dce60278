/* line_input.h: lines that somebody types, with editing and a history of what was typed (libedit), or lines of a file
 * or a pipe. [main thread] */
#ifndef WORKER_LINE_INPUT_H
#define WORKER_LINE_INPUT_H

#include <stdbool.h>
#include <stddef.h>

struct line_input;

/* edited: standard input and output are a terminal. NULL: no memory, or the terminal cannot be used. */
struct line_input *line_input_open(bool edited);
void line_input_close(struct line_input *l); /* NULL allowed */

enum line_result { LINE_READ, LINE_END, LINE_INTERRUPTED /* Ctrl-C: what was typed is dropped */, LINE_FAILED };
/* A line without its end; *out: [*n], and a zero behind it, valid until the next call. prompt: shown where lines are
 * edited. */
enum line_result line_input_next(struct line_input *l, const char *prompt, const char **out, size_t *n);

#endif
