/* base/base64url.h: base64url without padding (RFC 4648, 5). */
#ifndef CORE_BASE_BASE64URL_H
#define CORE_BASE_BASE64URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline int base64url_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* To out [cap], which may be the text itself. False: another character, an impossible length, bits left over that are
 * not zero, or no room. */
static inline bool base64url_decode(const char *text, size_t n, uint8_t *out, size_t cap, size_t *len)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t k = 0;
    if (n % 4 == 1) return false;
    for (size_t i = 0; i < n; i++) {
        const int d = base64url_digit(text[i]);
        if (d < 0) return false;
        bits = (bits << 6 | (uint32_t)d) & 0xffff;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        if (k == cap) return false;
        out[k++] = (uint8_t)(bits >> have);
    }
    *len = k;
    return (bits & ((1u << have) - 1)) == 0;
}

#endif
