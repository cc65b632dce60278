/* jwks.h: a set of public keys (RFC 7517), read from an issuer's document, and signatures verified with them.
 *
 * A key that is of another kind, for another use, or weak, is left out; a document of which nothing is left is refused.
 * RSA: n of 2048 to 8192 bits, e odd and from 65537 to 64 bits. EC: P-256, a point of the curve. */
#ifndef GATE_JWKS_H
#define GATE_JWKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum jwt_alg { JWT_RS256 = 1, JWT_ES256 = 2, JWT_ALGS = 3 }; /* bits */
enum { JWKS_MOST_BYTES = 256 << 10, JWKS_MOST_KEYS = 100, JWKS_MOST_KID = 256 /* bytes */ };

struct jwks; /* never changes; counted holders */

/* algs: bits of jwt_alg that may be used. The caller's first hold: jwks_release. WK_INVALID: no such document, or no
 * key in it can be used: the text says why the first was left out. [any thread] */
wk_status jwks_parse(const char *bytes, size_t n, uint32_t algs, struct jwks **out, const struct wk_err *err);
struct jwks *jwks_hold(struct jwks *set);    /* returns set [any thread] */
void jwks_release(struct jwks *set);         /* NULL allowed [any thread] */
uint32_t jwks_count(const struct jwks *set); /* keys that can be used, 1 or more */

enum jwks_found { JWKS_FOUND = 0, JWKS_NONE, JWKS_SEVERAL };
struct jwks_key;
/* The key of exactly this kid [kid_len] that serves alg; kid NULL: the only one that serves alg. */
enum jwks_found jwks_find(const struct jwks *set, enum jwt_alg alg, const char *kid, size_t kid_len,
                          const struct jwks_key **out);
/* Is `signature` (RS256: as long as n; ES256: r and s, 32 bytes each) one of `text`? [any thread] */
bool jwks_verify(const struct jwks_key *key, const void *text, size_t n, const uint8_t *signature,
                 size_t signature_len);

#endif
