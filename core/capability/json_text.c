/* json_text.c: text as JSON strings. */
#include "capability/json_text.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/utf8.h"

json_t *json_bytes(const char *bytes, size_t len)
{
    struct utf8_stream stream = { 0 };
    char *text = malloc(UTF8_STREAM_ROOM(len) + 3);
    if (!text) return NULL;
    size_t n = utf8_stream_push(&stream, bytes, len, text);
    n += utf8_stream_flush(&stream, text + n);
    json_t *value = json_stringn(text, n);
    free(text);
    return value;
}

json_t *json_lower(const char *name)
{
    char text[64];
    size_t i = 0;
    for (; name[i] && i < sizeof text - 1; i++) text[i] = (char)tolower((unsigned char)name[i]);
    return json_stringn(text, i);
}
