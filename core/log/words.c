/* words.c: keyed digests, and the tests of what needs none. */
#include "log/words.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/hex.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char key[LOG_KEY_MOST]; /* under the lock until key_bytes is set, then constant */
static size_t key_bytes;

void log_key(const void *bytes, size_t n)
{
    (void)pthread_mutex_lock(&lock);
    key_bytes = n < sizeof key ? n : sizeof key;
    memcpy(key, bytes, key_bytes);
    (void)pthread_mutex_unlock(&lock);
}

static size_t have_key(void)
{
    enum { RANDOM = 32 };
    (void)pthread_mutex_lock(&lock);
    if (!key_bytes && getrandom(key, RANDOM, 0) == RANDOM) key_bytes = RANDOM;
    const size_t n = key_bytes;
    (void)pthread_mutex_unlock(&lock);
    return n;
}

bool log_hmac(const void *bytes, size_t n, char hex[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    const size_t have = have_key();
    hex[0] = '\0';
    if (!have || !HMAC(EVP_sha256(), key, (int)have, bytes, n, digest, &len) || len != 32) return false;
    hex_write(digest, len, hex);
    return true;
}

const char *log_hidden(const char *text, char out[LOG_WORD])
{
    char hex[65];
    const size_t n = strlen(text);
    (void)log_hmac(text, n, hex);
    (void)snprintf(out, LOG_WORD, "hmac:%.16s:%zu", hex, n);
    return out;
}

const char *log_id(const char *id, char out[LOG_WORD])
{
    static const char usual[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@/+=-";
    if (!id) return NULL;
    const size_t n = strlen(id);
    if (!n || n > LOG_ID_MOST || strspn(id, usual) != n) return log_hidden(id, out);
    memcpy(out, id, n + 1);
    return out;
}

const char *log_field_name(const char *field, bool (*known)(const char *part, size_t n), char out[LOG_WORD])
{
    if (!field || !field[0]) return NULL;
    if (strlen(field) >= LOG_WORD) return log_hidden(field, out);
    for (const char *p = field; *p;) {
        const size_t n = strcspn(p, ".[");
        if (!n || !known(p, n)) return log_hidden(field, out);
        p += n;
        while (*p == '[') {
            const size_t digits = strspn(p + 1, "0123456789");
            if (!digits || p[digits + 1] != ']') return log_hidden(field, out);
            p += digits + 2;
        }
        if (*p == '.' && p[1])
            p++;
        else if (*p)
            return log_hidden(field, out);
    }
    (void)snprintf(out, LOG_WORD, "%s", field);
    return out;
}
