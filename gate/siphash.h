/* siphash.h: SipHash-2-4 with a key of 128 bits: a hash for tables whose keys strangers choose. Who does not know the
 * key cannot find texts that fall into one place. */
#ifndef GATE_SIPHASH_H
#define GATE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

struct siphash_key {
    uint64_t k0, k1;
};

/* A random key. WK_IO: the system gives none. [any thread] */
wk_status siphash_key_make(struct siphash_key *key, const struct wk_err *err);
uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t n); /* [any thread] */

#endif
