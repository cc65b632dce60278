/* base/hex.h: bytes as lower-case hexadecimal digits, and back. */
#ifndef CORE_BASE_HEX_H
#define CORE_BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

/* out: [2 n + 1], terminated. */
static inline void hex_write(const void *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = bytes;
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[in[i] >> 4];
        *out++ = digits[in[i] & 15];
    }
    *out = '\0';
}

static inline uint8_t hex_digit(char c) { return (uint8_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10); }

/* n bytes of 2 n characters, which are known to be digits, of either case. */
static inline void hex_read(const char *text, size_t n, void *out)
{
    uint8_t *bytes = out;
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
}

#endif
