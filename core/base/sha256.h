/* base/sha256.h: SHA-256 (FIPS 180-4) of bytes that come in pieces; libcrypto's, which uses the processor's
 * instructions. */
#ifndef CORE_BASE_SHA256_H
#define CORE_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sha256; /* [one thread at a time] */

struct sha256 *sha256_begin(void); /* NULL: out of memory */
/* After a failed update every later call fails too, so that only the end needs a test. */
void sha256_update(struct sha256 *s, const void *bytes, size_t n);
/* Frees s. hex: 64 lower-case digits, terminated. false: a step failed, hex is "". */
bool sha256_end(struct sha256 *s, char hex[65]);
/* All at once. */
bool sha256_hex(const void *bytes, size_t n, char hex[65]);

#endif
