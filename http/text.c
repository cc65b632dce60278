/* text.c: growing text and the JSON escaper that every token passes. */
#include "http.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { FIRST_BYTES = 256 };

/* Room for n more bytes and a terminator. */
static bool reserve(struct http_text *t, size_t n)
{
    if (t->failed) return false;
    if (t->cap - t->n > n) return true;
    size_t cap = t->cap ? t->cap : FIRST_BYTES;
    while (cap - t->n <= n) {
        if (cap > SIZE_MAX / 4) {
            t->failed = true;
            return false;
        }
        cap *= 2;
    }
    char *data = realloc(t->data, cap);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->cap = cap;
    return true;
}

void http_text_add(struct http_text *t, const char *bytes, size_t n)
{
    if (!reserve(t, n)) return;
    if (n) memcpy(t->data + t->n, bytes, n);
    t->n += n;
    t->data[t->n] = 0;
}

void http_text_format(struct http_text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(t->cap ? t->data + t->n : NULL, t->cap - t->n, format, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
    } else if (reserve(t, (size_t)n)) {
        if (vsnprintf(t->data + t->n, (size_t)n + 1, format, again) == n)
            t->n += (size_t)n;
        else
            t->failed = true;
    }
    va_end(again);
}

/* Bytes from i on that stand for themselves in a JSON string. */
static size_t plain_run(const char *bytes, size_t i, size_t n)
{
    const size_t from = i;
    while (i < n) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c < 0x20 || c == '"' || c == '\\' || c >= 0x7f) break;
        i++;
    }
    return i - from;
}

/* Bytes of 0x80 and above, up to the next one below: whatever is no character there ends before that one, so that the
 * run can be looked at alone. */
static size_t add_high_run(struct http_text *t, const char *bytes, size_t i, size_t n)
{
    const size_t from = i;
    while (i < n && (unsigned char)bytes[i] >= 0x80) {
        const size_t length = utf8_sequence((const unsigned char *)bytes + i, n - i);
        if (!length) break;
        i += length;
    }
    http_text_add(t, bytes + from, i - from);
    struct utf8_stream stream = { 0 };
    char out[UTF8_STREAM_ROOM(64)];
    const size_t bad = i;
    while (i < n && (unsigned char)bytes[i] >= 0x80) {
        size_t piece = 0;
        while (piece < 64 && i + piece < n && (unsigned char)bytes[i + piece] >= 0x80) piece++;
        http_text_add(t, out, utf8_stream_push(&stream, bytes + i, piece, out));
        i += piece;
    }
    if (i > bad) http_text_add(t, out, utf8_stream_flush(&stream, out));
    return i - from;
}

static void add_escaped(struct http_text *t, unsigned char c)
{
    static const char short_names[] = "btn\0fr"; /* 8 to 13; 11 has none */
    static const char hex[] = "0123456789abcdef";
    char text[6] = { '\\' };
    if (c == '"' || c == '\\')
        text[1] = (char)c;
    else if (c >= 8 && c <= 13 && c != 11)
        text[1] = short_names[c - 8];
    else {
        text[1] = 'u', text[2] = '0', text[3] = '0', text[4] = hex[c >> 4], text[5] = hex[c & 15];
        http_text_add(t, text, 6);
        return;
    }
    http_text_add(t, text, 2);
}

void http_text_json(struct http_text *t, const char *bytes, size_t n)
{
    http_text_add(t, "\"", 1);
    for (size_t i = 0; i < n;) {
        const size_t plain = plain_run(bytes, i, n);
        http_text_add(t, bytes + i, plain);
        i += plain;
        if (i == n) break;
        if ((unsigned char)bytes[i] >= 0x80)
            i += add_high_run(t, bytes, i, n);
        else
            add_escaped(t, (unsigned char)bytes[i++]);
    }
    http_text_add(t, "\"", 1);
}

void http_text_free(struct http_text *t)
{
    free(t->data);
    *t = (struct http_text){ 0 };
}
