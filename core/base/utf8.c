/* utf8.c: one table of lead bytes serves both the checker of whole text and the stream. See utf8.h. */
#include "base/utf8.h"

#include <string.h>

/* What may follow a lead byte: the character's length and the range of its second byte; all later bytes are 80..BF. The
 * narrow second ranges exclude overlong forms (E0, F0), surrogates (ED) and what lies above U+10FFFF (F4). */
struct lead {
    uint8_t len, low, high;
};
static struct lead lead_of(unsigned char b)
{
    if (b < 0x80) return (struct lead){ 1, 0, 0 };
    if (b < 0xC2) return (struct lead){ 0, 0, 0 };
    if (b < 0xE0) return (struct lead){ 2, 0x80, 0xBF };
    if (b < 0xF0) return (struct lead){ 3, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF };
    if (b < 0xF5) return (struct lead){ 4, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF };
    return (struct lead){ 0, 0, 0 };
}

size_t utf8_length(unsigned char first) { return lead_of(first).len; }

bool utf8_continues(unsigned char first, size_t i, unsigned char b)
{
    const struct lead l = lead_of(first);
    return i == 1 ? b >= l.low && b <= l.high : b >= 0x80 && b <= 0xBF;
}

size_t utf8_sequence(const unsigned char *bytes, size_t n)
{
    if (!n) return 0;
    const uint8_t len = lead_of(bytes[0]).len;
    if (len > n) return 0;
    for (uint8_t i = 1; i < len; i++)
        if (!utf8_continues(bytes[0], i, bytes[i])) return 0;
    return len;
}

bool utf8_is_valid(const char *text, size_t n)
{
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = utf8_sequence((const unsigned char *)text + i, n - i))) return false;
    return true;
}

uint32_t utf8_decode(const unsigned char *b, size_t len)
{
    switch (len) {
    case 1: return b[0];
    case 2: return (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    case 3: return (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    default:
        return (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 | (uint32_t)(b[2] & 0x3F) << 6 |
               (b[3] & 0x3F);
    }
}

size_t utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = len; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(leads[len] | c);
    return len;
}

size_t utf8_count(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

static size_t put_replacement(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

size_t utf8_stream_push(struct utf8_stream *s, const void *bytes, size_t n, char *out)
{
    const unsigned char *in = bytes;
    size_t written = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char b = in[i];
        if (s->n && !utf8_continues(s->held[0], s->n, b))
            written += utf8_stream_flush(s, out + written); /* and b begins anew */
        if (!s->n) {
            s->want = lead_of(b).len;
            if (!s->want) {
                written += put_replacement(out + written);
                continue;
            }
        }
        s->held[s->n++] = b;
        if (s->n == s->want) {
            memcpy(out + written, s->held, s->n);
            written += s->n;
            s->n = 0;
        }
    }
    return written;
}

size_t utf8_stream_flush(struct utf8_stream *s, char *out)
{
    if (!s->n) return 0;
    s->n = 0;
    return put_replacement(out);
}

void utf8_stream_drop(struct utf8_stream *s) { s->n = 0; }
