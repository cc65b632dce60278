/* sha256.c: the wrapper over libcrypto's EVP interface. */
#include "base/sha256.h"

#include <stdlib.h>

#include <openssl/evp.h>

#include "base/hex.h"

struct sha256 {
    EVP_MD_CTX *ctx;
    bool ok;
};

struct sha256 *sha256_begin(void)
{
    struct sha256 *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->ctx = EVP_MD_CTX_new();
    if (!s->ctx) {
        free(s);
        return NULL;
    }
    s->ok = EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) == 1;
    return s;
}

void sha256_update(struct sha256 *s, const void *bytes, size_t n)
{
    if (s->ok && n) s->ok = EVP_DigestUpdate(s->ctx, bytes, n) == 1;
}

bool sha256_end(struct sha256 *s, char hex[65])
{
    unsigned char digest[32];
    unsigned int len = 0;
    bool ok = s->ok && EVP_DigestFinal_ex(s->ctx, digest, &len) == 1 && len == sizeof digest;
    EVP_MD_CTX_free(s->ctx);
    free(s);
    hex[0] = '\0';
    if (!ok) return false;
    hex_write(digest, sizeof digest, hex);
    return true;
}

bool sha256_hex(const void *bytes, size_t n, char hex[65])
{
    struct sha256 *s = sha256_begin();
    hex[0] = '\0';
    if (!s) return false;
    sha256_update(s, bytes, n);
    return sha256_end(s, hex);
}
