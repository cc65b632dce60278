/* terminal.h: a model's text on its way to a terminal, which would obey it: escape sequences move the cursor, rename
 * windows and fill clipboards, and a carriage return writes over what stood there. There control characters are shown
 * instead: ^[ for an escape. A file or a pipe gets the text as it is. */
#ifndef WORKER_TERMINAL_H
#define WORKER_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct terminal {
    FILE *out;    /* NULL: nowhere */
    bool shows;   /* out is a terminal */
    bool returns; /* a carriage return waits for what follows: one before a line's end is part of it */
};

/* Whole characters of UTF-8. */
void terminal_write(struct terminal *t, const char *text, size_t n);
/* The text is over. */
void terminal_end(struct terminal *t);

#endif
