/* text.c: reads prompts, texts and id lists. */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "base/utf8.h"

/* Byte offset of the first byte that is not part of a UTF-8 character; len if there is none. */
static size_t invalid_at(const char *bytes, size_t len)
{
    size_t at = 0;
    while (at < len) {
        size_t n = utf8_sequence((const unsigned char *)bytes + at, len - at);
        if (!n) break;
        at += n;
    }
    return at;
}

static int read_stream(FILE *in, const char *name, struct text *out)
{
    size_t cap = 0;
    for (;;) {
        if (out->len + 1 >= cap) {
            cap = cap ? cap * 2 : 65536;
            char *grown = realloc(out->bytes, cap);
            if (!grown) return fail(CODE_INSUFFICIENT_MEMORY, "%s: no memory for the text", name);
            out->bytes = grown;
        }
        size_t n = fread(out->bytes + out->len, 1, cap - out->len - 1, in);
        out->len += n;
        if (out->len > TEXT_MAX_BYTES)
            return fail(CODE_INVALID_REQUEST, "%s: longer than %d bytes; give a shorter text", name, TEXT_MAX_BYTES);
        if (n == 0) break;
    }
    out->bytes[out->len] = '\0';
    if (ferror(in)) return fail(CODE_INVALID_REQUEST, "%s: cannot be read: %s", name, strerror(errno));
    return EXIT_DONE;
}

static int read_path(const char *path, struct text *out)
{
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", out);
    FILE *in = fopen(path, "rbe");
    if (!in)
        return fail(CODE_INVALID_REQUEST, "%s: cannot be opened: %s%s", path, strerror(errno),
                    *path == '{' || *path == '[' ? "; expected the name of a file, or - and the JSON on standard input"
                                                 : "");
    int result = read_stream(in, path, out);
    (void)fclose(in);
    return result;
}

int text_read_bytes(const char *path, struct text *out)
{
    *out = (struct text){ NULL, 0 };
    const int result = read_path(path, out);
    if (result) text_free(out);
    return result;
}

int text_read(const char *argument, const char *path, struct text *out)
{
    int result = EXIT_DONE;
    *out = (struct text){ NULL, 0 };
    if (argument) {
        out->len = strlen(argument);
        out->bytes = strdup(argument);
        if (!out->bytes) result = fail(CODE_INSUFFICIENT_MEMORY, "no memory for the text");
    } else {
        result = read_path(path, out);
    }
    const char *name = argument ? "text" : strcmp(path, "-") == 0 ? "standard input" : path;
    const size_t bad = result ? 0 : invalid_at(out->bytes, out->len);
    if (!result && bad < out->len)
        result = fail(CODE_INVALID_REQUEST, "%s: byte %zu (0x%02x) is not valid UTF-8; convert the text to UTF-8", name,
                      bad, (unsigned)(unsigned char)out->bytes[bad]);
    if (result) text_free(out);
    return result;
}

const char *text_printable(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    const unsigned char *p = (const unsigned char *)text;
    for (; *p && n + 1 < cap; p++) {
        const bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;
        out[n++] = *p < ' ' || *p == 0x7f || c1 ? '?' : (char)*p;
        p += c1;
    }
    for (; n && (*p & 0xc0) == 0x80; p--) n--; /* not within a character */
    out[n] = '\0';
    return out;
}

const char *size_text(uint64_t bytes, char out[SIZE_TEXT])
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    (void)snprintf(out, SIZE_TEXT, "%.*f %s",
                   unit == 0 || value >= 99.95 ? 0
                   : value >= 9.995            ? 1
                                               : 2,
                   value, units[unit]);
    return out;
}

void text_free(struct text *t)
{
    free(t->bytes);
    *t = (struct text){ NULL, 0 };
}

int ids_parse(const char *text, uint32_t limit, struct id_list *out)
{
    uint32_t n = 0;
    /* An id and its separator take at least two bytes. */
    uint32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof *ids);
    *out = (struct id_list){ NULL, 0 };
    if (!ids) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the ids");
    for (const char *at = text; *at;) {
        if (isspace((unsigned char)*at)) {
            at++;
            continue;
        }
        char *end;
        errno = 0;
        unsigned long long id = isdigit((unsigned char)*at) ? strtoull(at, &end, 10) : limit;
        if (errno || id >= limit || (*end && !isspace((unsigned char)*end))) {
            free(ids);
            return fail(CODE_INVALID_REQUEST,
                        "ids: \"%.24s\": expected whole numbers from 0 to %u, separated by spaces", at, limit - 1);
        }
        ids[n++] = (uint32_t)id;
        at = end;
    }
    *out = (struct id_list){ ids, n };
    return EXIT_DONE;
}
