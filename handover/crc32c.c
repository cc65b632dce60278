/* crc32c.c: see crc32c.h.
 *
 * The processor's instruction takes 8 bytes in three cycles, but begins one each cycle. So long runs are cut into three
 * lanes, whose sums are made at once and put together: a sum is linear, and what LANE bytes of zeros do to it is a
 * table. */
#include "crc32c.h"

#include <pthread.h>
#include <string.h>

static uint32_t by_bits(uint32_t crc, const unsigned char *at, size_t n)
{
    enum { POLYNOMIAL = (int)0x82f63b78u };
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ ((uint32_t)POLYNOMIAL & (0u - (crc & 1)));
    }
    return crc;
}

#if defined __x86_64__
enum { LANE = 4096 };
static uint32_t behind[4][256]; /* what LANE zeros make of each byte of a sum */

__attribute__((target("sse4.2"))) static uint32_t by_words(uint32_t crc, const unsigned char *at, size_t n)
{
    uint64_t sum = crc, word;
    for (; n >= sizeof word; at += sizeof word, n -= sizeof word) {
        memcpy(&word, at, sizeof word);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    return by_bits((uint32_t)sum, at, n);
}

static void make_table(void)
{
    static const unsigned char zeros[LANE];
    uint32_t bit[32];
    for (uint32_t i = 0; i < 32; i++) bit[i] = by_words(UINT32_C(1) << i, zeros, LANE);
    for (uint32_t byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++)
            for (uint32_t i = 0; i < 8; i++)
                if (value >> i & 1) behind[byte][value] ^= bit[8 * byte + i];
}

static uint32_t shift(uint32_t crc)
{
    return behind[0][crc & 255] ^ behind[1][crc >> 8 & 255] ^ behind[2][crc >> 16 & 255] ^ behind[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t by_lanes(uint32_t crc, const unsigned char *at, size_t n)
{
    for (; n >= 3 * LANE; at += 3 * LANE, n -= 3 * LANE) {
        uint64_t a = crc, b = 0, c = 0, word[3];
        for (size_t i = 0; i < LANE; i += sizeof *word) {
            for (size_t k = 0; k < 3; k++) memcpy(&word[k], at + k * LANE + i, sizeof *word);
            a = __builtin_ia32_crc32di(a, word[0]);
            b = __builtin_ia32_crc32di(b, word[1]);
            c = __builtin_ia32_crc32di(c, word[2]);
        }
        crc = shift(shift((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    return by_words(crc, at, n);
}

uint32_t crc32c(uint32_t before, const void *bytes, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!__builtin_cpu_supports("sse4.2")) return ~by_bits(~before, bytes, n);
    if (n < 3 * LANE) return ~by_words(~before, bytes, n);
    (void)pthread_once(&once, make_table);
    return ~by_lanes(~before, bytes, n);
}
#else
uint32_t crc32c(uint32_t before, const void *bytes, size_t n) { return ~by_bits(~before, bytes, n); }
#endif
