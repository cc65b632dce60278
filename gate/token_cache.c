/* token_cache.c: see token_cache.h. Sets of four places; a claim's memory is as long as its names. */
#include "token_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "oidc.h"

enum { WAYS = 4, SETS = OIDC_CACHE / WAYS, KEY = 32 };

struct entry {
    uint8_t digest[TOKEN_DIGEST];
    uint64_t generation;
    int64_t since, until;      /* seconds since 1970 */
    struct jwt_claims *claims; /* NULL: free; without the part of names that is not in use */
};

struct token_cache {
    pthread_mutex_t lock;
    uint8_t key[KEY];
    struct entry entries[SETS][WAYS];
};

struct token_cache *token_cache_open(void)
{
    struct token_cache *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    if (RAND_bytes(c->key, KEY) != 1 || pthread_mutex_init(&c->lock, NULL) != 0) {
        free(c);
        return NULL;
    }
    return c;
}

void token_cache_close(struct token_cache *c)
{
    if (!c) return;
    for (int s = 0; s < SETS; s++)
        for (int w = 0; w < WAYS; w++) free(c->entries[s][w].claims);
    (void)pthread_mutex_destroy(&c->lock);
    OPENSSL_cleanse(c->key, KEY);
    free(c);
}

bool token_cache_digest(const struct token_cache *c, const char *token, size_t n, uint8_t digest[TOKEN_DIGEST])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned len = 0;
    const bool good = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
                      EVP_DigestUpdate(ctx, c->key, KEY) == 1 && EVP_DigestUpdate(ctx, token, n) == 1 &&
                      EVP_DigestFinal_ex(ctx, digest, &len) == 1 && len == TOKEN_DIGEST;
    EVP_MD_CTX_free(ctx);
    return good;
}

static struct entry *set_of(struct token_cache *c, const uint8_t *digest)
{
    return c->entries[(digest[0] | (unsigned)digest[1] << 8) % SETS];
}

static bool is_good(const struct entry *e, uint64_t generation, int64_t now)
{
    return e->claims && e->generation == generation && now >= e->since && now < e->until;
}

static size_t bytes_of(const struct jwt_claims *claims)
{
    return offsetof(struct jwt_claims, names) + claims->names_len;
}

bool token_cache_get(struct token_cache *c, const uint8_t digest[TOKEN_DIGEST], uint64_t generation, int64_t now,
                     struct jwt_claims *out)
{
    bool found = false;
    (void)pthread_mutex_lock(&c->lock);
    struct entry *set = set_of(c, digest);
    for (int w = 0; w < WAYS && !found; w++) {
        if (!is_good(&set[w], generation, now) || CRYPTO_memcmp(set[w].digest, digest, TOKEN_DIGEST) != 0) continue;
        memcpy(out, set[w].claims, bytes_of(set[w].claims));
        found = true;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return found;
}

void token_cache_put(struct token_cache *c, const uint8_t digest[TOKEN_DIGEST], uint64_t generation, int64_t now,
                     const struct jwt_claims *claims)
{
    const int64_t most = now + OIDC_CACHE_S, until = claims->expires < most ? claims->expires : most;
    struct jwt_claims *copy = malloc(sizeof *copy);
    if (!copy) return; /* then it is verified again */
    memcpy(copy, claims, bytes_of(claims));
    struct jwt_claims *shorter = realloc(copy, bytes_of(claims));
    (void)pthread_mutex_lock(&c->lock);
    struct entry *set = set_of(c, digest), *e = &set[0];
    for (int w = 0; w < WAYS; w++) { /* its own place, or one that is free, or that ends first */
        if (set[w].claims && memcmp(set[w].digest, digest, TOKEN_DIGEST) == 0) {
            e = &set[w];
            break;
        }
        if (!is_good(e, generation, now)) continue;
        if (!is_good(&set[w], generation, now) || set[w].until < e->until) e = &set[w];
    }
    free(e->claims);
    *e = (struct entry){ .generation = generation, .since = now, .until = until, .claims = shorter ? shorter : copy };
    memcpy(e->digest, digest, TOKEN_DIGEST);
    (void)pthread_mutex_unlock(&c->lock);
}
