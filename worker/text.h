/* text.h: text and ids from outside: read whole, measured, and checked to be what they claim to be. */
#ifndef WORKER_TEXT_H
#define WORKER_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
    char *bytes;
    size_t len;
}; /* terminated; freed by text_free */
struct id_list {
    uint32_t *ids;
    uint32_t n;
};

enum { TEXT_MAX_BYTES = 64 << 20 };

/* Exactly one of argument and path: the text of --prompt, or of a file ("-": standard input). Refuses invalid UTF-8,
 * naming the byte. Return an exit status; on failure nothing needs freeing. */
int text_read(const char *argument, const char *path, struct text *out);
/* A file's bytes as they are. */
int text_read_bytes(const char *path, struct text *out);
void text_free(struct text *t);

/* Copy of a file's own words for a terminal: what it could obey (C0, DEL, C1) becomes '?'. A longer one ends between
 * two characters. Returns out. */
const char *text_printable(const char *text, char *out, size_t cap);

/* "1.23 GB", in units of thousands. Returns out. */
enum { SIZE_TEXT = 32 };
const char *size_text(uint64_t bytes, char out[SIZE_TEXT]);

/* Ids separated by spaces or newlines, each below `limit`. */
int ids_parse(const char *text, uint32_t limit, struct id_list *out);

#endif
