/* secret.c: see secret.h. */
#include "gate/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
enum { BASE = 62, PREFIX = 3, RANDOM_CHARS = 30, CHECK_CHARS = 6, BODY = PREFIX + RANDOM_CHARS };
_Static_assert(sizeof digits == BASE + 1, "base62");
_Static_assert(BODY + CHECK_CHARS == SECRET_CHARS, "parts of a key");

/* CRC-32 of IEEE 802.3. */
static uint32_t crc32_of(const char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint8_t)bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (UINT32_C(0xedb88320) & (0u - (crc & 1u)));
    }
    return ~crc;
}

static void check_digits(const char *text, char check[CHECK_CHARS])
{
    uint32_t crc = crc32_of(text, BODY);
    for (int i = CHECK_CHARS; i-- > 0; crc /= BASE) check[i] = digits[crc % BASE];
}

/* Random bytes below the greatest multiple of 62 in a byte are even over the digits; others are thrown away. */
static bool random_digits(char *out)
{
    enum { EVEN = 256 / BASE * BASE };
    uint8_t bytes[64];
    size_t have = 0;
    while (have < RANDOM_CHARS) {
        const ssize_t n = getrandom(bytes, sizeof bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        for (ssize_t i = 0; i < n && have < RANDOM_CHARS; i++)
            if (bytes[i] < EVEN) out[have++] = digits[bytes[i] % BASE];
    }
    OPENSSL_cleanse(bytes, sizeof bytes);
    return have == RANDOM_CHARS;
}

wk_status secret_make(char text[SECRET_TEXT], const struct wk_err *err)
{
    memcpy(text, "wk_", PREFIX);
    if (!random_digits(text + PREFIX)) {
        const int error = errno;
        OPENSSL_cleanse(text, SECRET_TEXT);
        return wk_fail(err, WK_IO, "the system gives no random bytes for a key: %s", strerror(error));
    }
    check_digits(text, text + BODY);
    text[SECRET_CHARS] = '\0';
    return WK_OK;
}

static bool is_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

bool secret_well_formed(const char *text, size_t n)
{
    char check[CHECK_CHARS];
    if (n != SECRET_CHARS || memcmp(text, "wk_", PREFIX) != 0) return false;
    for (size_t i = PREFIX; i < n; i++)
        if (!is_digit(text[i])) return false;
    check_digits(text, check);
    const bool same = CRYPTO_memcmp(check, text + BODY, CHECK_CHARS) == 0;
    OPENSSL_cleanse(check, sizeof check);
    return same;
}

bool secret_hash(const char *text, uint8_t hash[SECRET_HASH])
{
    unsigned int n = 0;
    if (EVP_Digest(text, SECRET_CHARS, hash, &n, EVP_sha256(), NULL) == 1 && n == SECRET_HASH) return true;
    memset(hash, 0, SECRET_HASH);
    return false;
}

void secret_hint(const char *text, char hint[SECRET_HINT + 1])
{
    memcpy(hint, text + PREFIX, SECRET_HINT);
    hint[SECRET_HINT] = '\0';
}
