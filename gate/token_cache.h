/* token_cache.h: tokens that were verified a moment ago, by their digest, so that a client's next request costs a hash
 * instead of a signature. Bounded; the oldest make room. The digest is SHA-256 of a random key of this process and the
 * token: nobody outside knows where a token lands. */
#ifndef GATE_TOKEN_CACHE_H
#define GATE_TOKEN_CACHE_H

#include "jwt.h"

enum { TOKEN_DIGEST = 32 };

struct token_cache;

struct token_cache *token_cache_open(void); /* NULL: no memory, or no random bytes */
void token_cache_close(struct token_cache *c);
bool token_cache_digest(const struct token_cache *c, const char *token, size_t n, uint8_t digest[TOKEN_DIGEST]);
/* generation: of the keys that verified it; of others there is none. now: seconds since 1970. [any thread] */
bool token_cache_get(struct token_cache *c, const uint8_t digest[TOKEN_DIGEST], uint64_t generation, int64_t now,
                     struct jwt_claims *out);
/* For OIDC_CACHE_S, or until it expires. */
void token_cache_put(struct token_cache *c, const uint8_t digest[TOKEN_DIGEST], uint64_t generation, int64_t now,
                     const struct jwt_claims *claims);

#endif
