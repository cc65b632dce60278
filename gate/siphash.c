/* siphash.c: see siphash.h. After J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012. */
#include "siphash.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

wk_status siphash_key_make(struct siphash_key *key, const struct wk_err *err)
{
    if (getrandom(key, sizeof *key, 0) == (ssize_t)sizeof *key) return WK_OK;
    return wk_fail(err, WK_IO, "the system gives no random numbers: %s", strerror(errno));
}

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[0] = rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

/* Up to 8 bytes, the first one lowest. */
static uint64_t little_endian(const unsigned char *p, size_t n)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t v[4] = { key->k0 ^ 0x736f6d6570736575u, key->k1 ^ 0x646f72616e646f6du, key->k0 ^ 0x6c7967656e657261u,
                      key->k1 ^ 0x7465646279746573u };
    for (size_t left = n;; left -= 8, p += 8) {
        const uint64_t word = left >= 8 ? little_endian(p, 8) : little_endian(p, left) | (uint64_t)n << 56;
        v[3] ^= word;
        rounds(v, 2);
        v[0] ^= word;
        if (left < 8) break;
    }
    v[2] ^= 0xff;
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
