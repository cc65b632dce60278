/* base/base64.h: base64 with padding (RFC 4648, 4). */
#ifndef CORE_BASE_BASE64_H
#define CORE_BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Characters of n bytes. */
static inline size_t base64_length(size_t n) { return (n + 2) / 3 * 4; }

/* To out [base64_length(n)]; not terminated. */
static inline void base64_encode(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3, out += 4) {
        const size_t have = n - i < 3 ? n - i : 3;
        const uint32_t bits = (uint32_t)bytes[i] << 16 | (have > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                              (have > 2 ? (uint32_t)bytes[i + 2] : 0);
        out[0] = digits[bits >> 18];
        out[1] = digits[bits >> 12 & 63];
        out[2] = have > 1 ? digits[bits >> 6 & 63] : '=';
        out[3] = have > 2 ? digits[bits & 63] : '=';
    }
}

#endif
