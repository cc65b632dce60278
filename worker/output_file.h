/* output_file.h: a result file that appears whole or not at all. */
#ifndef WORKER_OUTPUT_FILE_H
#define WORKER_OUTPUT_FILE_H

#include <stdio.h>

struct output_file {
    FILE *stream;
    char *path, *temporary;
};

/* Return an exit status; a failure has been said. */
int output_open(const char *path, struct output_file *out);
int output_finish(struct output_file *out);   /* flushes and renames; closed either way */
void output_abandon(struct output_file *out); /* removes what was written; nothing if it is not open */

#endif
