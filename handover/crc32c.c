/* crc32c.c: see crc32c.h. */
#include "crc32c.h"

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
__attribute__((target("sse4.2"))) static uint32_t by_words(uint32_t crc, const unsigned char *at, size_t n)
{
    uint64_t sum = crc, word;
    for (; n >= sizeof word; at += sizeof word, n -= sizeof word) {
        memcpy(&word, at, sizeof word);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    return by_bits((uint32_t)sum, at, n);
}

uint32_t crc32c(uint32_t before, const void *bytes, size_t n)
{
    return ~(__builtin_cpu_supports("sse4.2") ? by_words : by_bits)(~before, bytes, n);
}
#else
uint32_t crc32c(uint32_t before, const void *bytes, size_t n) { return ~by_bits(~before, bytes, n); }
#endif
