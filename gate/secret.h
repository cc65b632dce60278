/* secret.h: the text of an API key. "wk_", 30 random characters of base62 (178 bits), 6 digits of base62 that are the
 * CRC-32 of all before them: a scanner of repositories recognises it, and a key that was typed or cut wrongly is
 * refused before anything is looked up.
 *
 * Only the SHA-256 of a key is kept. A slow hash would protect guessable passwords; 178 random bits cannot be guessed.
 * [any thread] */
#ifndef GATE_SECRET_H
#define GATE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum {
    SECRET_CHARS = 39,              /* of a key */
    SECRET_TEXT = SECRET_CHARS + 1, /* bytes of a buffer for it, with the terminator */
    SECRET_HASH = 32,               /* bytes */
    SECRET_HINT = 4                 /* characters, behind "wk_": what a person knows a key by */
};

/* A new key; who is done with text wipes it (OPENSSL_cleanse). WK_IO: the system gives no random bytes; text is "". */
wk_status secret_make(char text[SECRET_TEXT], const struct wk_err *err);
/* Are the n bytes at text a key by form: length, prefix, characters, check digits? text needs no terminator. */
bool secret_well_formed(const char *text, size_t n);
/* SHA-256 of a well-formed key. False: libcrypto failed; hash is zero. */
bool secret_hash(const char *text, uint8_t hash[SECRET_HASH]);
/* The first SECRET_HINT of its random characters, terminated. About 154 random bits stay unknown. */
void secret_hint(const char *text, char hint[SECRET_HINT + 1]);

#endif
