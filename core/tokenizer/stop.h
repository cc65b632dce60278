/* stop.h: stop strings on a stream of bytes.
 *
 * The same text has many tokenisations and a stop string may begin inside a token, so matching is on decoded bytes.
 * Bytes that could still become the beginning of a stop string are held back; no byte of a stop string is ever given
 * out. The text ends where the first stop string ends; if several end on the same byte, the longest is the match. How
 * the bytes are cut into pieces never matters. */
#ifndef CORE_TOKENIZER_STOP_H
#define CORE_TOKENIZER_STOP_H

#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { STOP_MAX = 64, STOP_MAX_BYTES = 4096, STOP_NONE = -1 };

struct stop_matcher; /* [one thread at a time] */

/* n stop strings (0..STOP_MAX) of 1..STOP_MAX_BYTES bytes; copied. *out is freed by stop_close. */
wk_status stop_open(const char *const *strings, const size_t *lens, size_t n, struct stop_matcher **out,
                    const struct wk_err *err);
void stop_close(struct stop_matcher *m);                                       /* NULL allowed */
const char *stop_string(const struct stop_matcher *m, int index, size_t *len); /* one of them, not terminated */

/* Room that stop_push and stop_flush need at `out`. */
#define STOP_ROOM(n) ((size_t)(n) + STOP_MAX_BYTES)

/* Takes n bytes; writes those that are now certainly text to out (at most STOP_ROOM(n)) and their number to *written.
 * Returns the index of the stop string that matched, else STOP_NONE. After a match all further bytes are swallowed.
 * Time O(n). */
int stop_push(struct stop_matcher *m, const void *bytes, size_t n, char *out, size_t *written);
/* End of generation without a match: what was held back is text after all. Returns its length. */
size_t stop_flush(struct stop_matcher *m, char *out);

#endif
