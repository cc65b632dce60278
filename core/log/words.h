/* log/words.h: what of other people's words may stand in a log. A prompt is told by its keyed digest, a name that a
 * caller chose by itself only where it is known or has the form of an id, else by its keyed digest and length.
 *
 * Keyed (HMAC-SHA256), because whoever has a log and a guess could test the plain digest of a short text. The key is
 * random, the process's own, unless one is given: then digests of two processes can be compared. */
#ifndef CORE_LOG_WORDS_H
#define CORE_LOG_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_KEY_LEAST = 16, LOG_KEY_MOST = 4096, LOG_ID_MOST = 128, LOG_WORD = LOG_ID_MOST + 1 };

/* The key, LOG_KEY_LEAST to LOG_KEY_MOST bytes, which are copied. [main thread, before other threads start] */
void log_key(const void *bytes, size_t n);
/* HMAC-SHA256 of bytes. hex: 64 lower-case digits, terminated. False: the system gives no random key, or libcrypto
 * fails; hex is "". [any thread] */
bool log_hmac(const void *bytes, size_t n, char hex[65]);

/* A text by digest and length: "hmac:0123456789abcdef:12". Returns out. */
const char *log_hidden(const char *text, char out[LOG_WORD]);
/* An id that a caller chose (a job's, a request's): as it is if it has 1 to LOG_ID_MOST bytes and all of them are
 * letters, digits or of "._:@/+=-"; else hidden. NULL stays NULL. Returns out or NULL. */
const char *log_id(const char *id, char out[LOG_WORD]);
/* A field's name, "messages[3].content": as it is if each of its parts, n bytes at part, is known; else hidden. NULL
 * and "" are NULL. */
const char *log_field_name(const char *field, bool (*known)(const char *part, size_t n), char out[LOG_WORD]);

#endif
