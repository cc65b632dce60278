/* json_reader.c: see json_reader.h. One scanner serves reading and skipping, so that what is skipped is as valid as
 * what is read. */
#include "tokenizer/json_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/vocab.h"

enum { SHOWN_KEY = 48 /* bytes of a key in a message */ };

static const char *const kind_names[] = { "nothing",  "an object", "an array", "a string",
                                          "a number", "a boolean", "null" };

void jr_open(struct json_reader *r, const char *text, size_t len, const char *name, const char *path,
             const struct wk_err *err)
{
    if (!text) text = ""; /* of no bytes: arithmetic on a null pointer is undefined */
    *r = (struct json_reader){ .begin = text, .at = text, .end = text + len, .name = name, .path = path, .err = err };
}

void jr_close(struct json_reader *r)
{
    free(r->scratch);
    r->scratch = NULL;
    r->scratch_cap = 0;
}

bool jr_is(struct json_text t, const char *text) { return t.len == strlen(text) && memcmp(t.data, text, t.len) == 0; }

/* ---- failures ------------------------------------------------------------------------------------------ */

/* "model.merges[17]" of the levels that are open; what does not fit is left out. */
static void write_path(const struct json_reader *r, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s", r->path);
    for (uint32_t i = 0; i < r->depth && n < cap; i++) {
        const struct json_level *l = &r->level[i];
        if (!l->count) break;
        const int put = l->key.data ? snprintf(out + n, cap - n, "%s%.*s", n ? "." : "",
                                               (int)(l->key.len < SHOWN_KEY ? l->key.len : SHOWN_KEY), l->key.data)
                                    : snprintf(out + n, cap - n, "[%llu]", (unsigned long long)(l->count - 1));
        if (put < 0) break;
        n += (size_t)put;
    }
}

bool jr_fail(struct json_reader *r, wk_status status, const char *format, ...)
{
    if (r->status) return false;
    char path[128], text[512]; /* what is wrong matters more than all of a long path */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    write_path(r, path, sizeof path);
    r->status = wk_fail(r->err, status, "%s: %s%s%s", r->name, path, path[0] ? ": " : "", text);
    return false;
}

static bool fail_syntax(struct json_reader *r, const char *expected)
{
    if (r->at == r->end)
        return jr_fail(r, WK_INVALID, "byte %zu: expected %s, the text ends: it is truncated; download it again",
                       (size_t)(r->at - r->begin), expected);
    return jr_fail(r, WK_INVALID, "byte %zu: expected %s, found byte 0x%02X", (size_t)(r->at - r->begin), expected,
                   (unsigned)(unsigned char)*r->at);
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

static void skip_space(struct json_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

enum jr_kind jr_peek(struct json_reader *r)
{
    if (r->status) return JR_NOTHING;
    skip_space(r);
    switch (r->at < r->end ? *r->at : '\0') {
    case '{': return JR_OBJECT;
    case '[': return JR_ARRAY;
    case '"': return JR_STRING;
    case 't':
    case 'f': return JR_BOOL;
    case 'n': return JR_NULL;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return JR_NUMBER;
    default: return JR_NOTHING;
    }
}

static bool expect(struct json_reader *r, enum jr_kind wanted)
{
    const enum jr_kind found = jr_peek(r);
    if (r->status) return false;
    if (found == wanted) return true;
    return found == JR_NOTHING ? fail_syntax(r, kind_names[wanted])
                               : jr_fail(r, WK_INVALID, "expected %s, found %s", kind_names[wanted], kind_names[found]);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hexadecimal digits at p, or -1. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_value(p[i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool is_high(int32_t c) { return c >= 0xD800 && c <= 0xDBFF; }
static bool is_low(int32_t c) { return c >= 0xDC00 && c <= 0xDFFF; }

/* The length of the escape at p (a backslash), and the character that it means; 0: it is none. */
static size_t read_escape(const char *p, const char *end, uint32_t *out)
{
    static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    if (end - p < 2) return 0;
    const char *name = p[1] ? strchr(names, p[1]) : NULL;
    if (name) {
        *out = (unsigned char)means[name - names];
        return 2;
    }
    const int32_t first = p[1] == 'u' ? hex4(p + 2, end) : -1;
    if (first < 0 || is_low(first)) return 0;
    *out = (uint32_t)first;
    if (!is_high(first)) return 6;
    const int32_t second = end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, end) : -1;
    if (second < 0 || !is_low(second)) return 0;
    *out = 0x10000u + ((uint32_t)(first - 0xD800) << 10) + (uint32_t)(second - 0xDC00);
    return 12;
}

/* Takes a string at its quote. raw: what lies between the quotes; escapes: how many there are. */
static bool scan_string(struct json_reader *r, struct json_text *raw, size_t *escapes)
{
    const char *p = r->at + 1;
    *escapes = 0;
    for (raw->data = p;;) {
        while (p < r->end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' && *p != '\\') p++;
        if (p < r->end && *p == '"') break;
        size_t len = 0;
        uint32_t c;
        if (r->end - p > 1 && (unsigned char)*p >= 0xC2 && (unsigned char)*p < 0xE0 &&
            ((unsigned char)p[1] & 0xC0) == 0x80)
            len = 2; /* most of what is not ASCII here */
        else if (p < r->end && (unsigned char)*p >= 0x80)
            len = utf8_sequence((const unsigned char *)p, (size_t)(r->end - p));
        else if (p < r->end && *p == '\\') {
            len = read_escape(p, r->end, &c);
            ++*escapes;
        }
        if (!len) {
            r->at = p;
            return p < r->end && *p == '\\'
                       ? jr_fail(r, WK_INVALID,
                                 "byte %zu: a string has an escape that is none, or half a surrogate pair",
                                 (size_t)(p - r->begin))
                       : fail_syntax(r, "the rest of a string in UTF-8");
        }
        p += len;
    }
    raw->len = (size_t)(p - raw->data);
    r->at = p + 1;
    return true;
}

/* The string without its escapes, which only ever get shorter. */
static bool unescape(struct json_reader *r, struct json_text raw, struct json_text *out)
{
    if (!array_reserve((void **)&r->scratch, &r->scratch_cap, raw.len, 1))
        return jr_fail(r, WK_NO_MEMORY, "no memory for a string of %zu bytes", raw.len);
    size_t n = 0;
    for (const char *p = raw.data, *end = raw.data + raw.len; p < end;) {
        uint32_t c = 0;
        if (*p != '\\')
            r->scratch[n++] = *p++;
        else {
            p += read_escape(p, end, &c);
            n += utf8_encode(c, r->scratch + n);
        }
    }
    *out = (struct json_text){ r->scratch, n };
    return true;
}

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

/* The end of the number at r->at, or NULL. */
static const char *number_end(const struct json_reader *r)
{
    const char *p = r->at + (*r->at == '-'), *begin = p;
    p = digits(p, r->end);
    if (p == begin || (*begin == '0' && p - begin > 1)) return NULL;
    if (p < r->end && *p == '.') {
        begin = ++p;
        if ((p = digits(p, r->end)) == begin) return NULL;
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < r->end && (*p == '+' || *p == '-')) p++;
        begin = p;
        if ((p = digits(p, r->end)) == begin) return NULL;
    }
    return p;
}

static bool skip_number(struct json_reader *r)
{
    const char *end = number_end(r);
    if (!end) return fail_syntax(r, "a number as JSON writes it");
    r->at = end;
    return true;
}

static bool take_word(struct json_reader *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return fail_syntax(r, "true, false or null");
    r->at += n;
    return true;
}

/* ---- objects and arrays -------------------------------------------------------------------------------- */

static bool enter(struct json_reader *r)
{
    if (r->depth == JR_MAX_DEPTH)
        return jr_fail(r, WK_INVALID, "more than %d levels of objects and arrays", JR_MAX_DEPTH);
    r->level[r->depth++] = (struct json_level){ 0 };
    r->at++;
    return true;
}

bool jr_object(struct json_reader *r) { return expect(r, JR_OBJECT) && enter(r); }
bool jr_array(struct json_reader *r) { return expect(r, JR_ARRAY) && enter(r); }

/* Before the next member or element: takes the comma, or the closing bracket (false). */
static bool another(struct json_reader *r, char close)
{
    struct json_level *l = &r->level[r->depth - 1];
    if (r->status) return false;
    skip_space(r);
    if (r->at < r->end && *r->at == close) {
        r->at++;
        r->depth--;
        return false;
    }
    if (l->count) {
        if (r->at == r->end || *r->at != ',') return fail_syntax(r, close == '}' ? "',' or '}'" : "',' or ']'");
        r->at++;
        skip_space(r);
    }
    return true;
}

/* The key's raw text goes to the path; the string itself only if somebody wants it. */
static bool next_member(struct json_reader *r, struct json_text *key)
{
    struct json_text raw;
    size_t escapes;
    if (!another(r, '}')) return false;
    if (r->at == r->end || *r->at != '"') return fail_syntax(r, "a member's name in quotes");
    if (!scan_string(r, &raw, &escapes)) return false;
    struct json_level *l = &r->level[r->depth - 1];
    l->key = raw;
    l->count++;
    skip_space(r);
    if (r->at == r->end || *r->at != ':') return fail_syntax(r, "':'");
    r->at++;
    if (!key) return true;
    *key = raw;
    return !escapes || unescape(r, raw, key);
}

bool jr_member(struct json_reader *r, struct json_text *key) { return next_member(r, key); }

bool jr_element(struct json_reader *r)
{
    if (!another(r, ']')) return false;
    r->level[r->depth - 1].count++;
    return true;
}

/* ---- values -------------------------------------------------------------------------------------------- */

bool jr_string(struct json_reader *r, struct json_text *out)
{
    struct json_text raw;
    size_t escapes;
    if (!expect(r, JR_STRING) || !scan_string(r, &raw, &escapes)) return false;
    *out = raw;
    return !escapes || unescape(r, raw, out);
}

bool jr_u64(struct json_reader *r, uint64_t *out)
{
    if (!expect(r, JR_NUMBER)) return false;
    const char *end = number_end(r);
    uint64_t value = 0;
    if (!end) return fail_syntax(r, "a number as JSON writes it");
    for (const char *p = r->at; p < end; p++)
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return jr_fail(r, WK_INVALID, "expected a whole number from 0 to 2^64 - 1, found %.*s",
                           (int)(end - r->at < 32 ? end - r->at : 32), r->at);
    r->at = end;
    *out = value;
    return true;
}

bool jr_bool(struct json_reader *r, bool *out)
{
    if (!expect(r, JR_BOOL)) return false;
    *out = *r->at == 't';
    return take_word(r, *out ? "true" : "false");
}

bool jr_null(struct json_reader *r) { return jr_peek(r) == JR_NULL && take_word(r, "null"); }

/* A value that has no levels; of an object or array only the bracket. */
static bool skip_one(struct json_reader *r)
{
    struct json_text raw;
    size_t escapes;
    bool value;
    switch (jr_peek(r)) {
    case JR_OBJECT:
    case JR_ARRAY: return enter(r);
    case JR_STRING: return scan_string(r, &raw, &escapes);
    case JR_NUMBER: return skip_number(r);
    case JR_BOOL: return jr_bool(r, &value);
    case JR_NULL: return jr_null(r);
    default: return fail_syntax(r, "a value");
    }
}

bool jr_skip(struct json_reader *r)
{
    const uint32_t outside = r->depth;
    uint64_t objects = 0; /* bit i: level i, counted from outside, is an object */
    for (bool first = true; first || r->depth > outside; first = false) {
        if (!first) {
            const bool object = objects >> (r->depth - 1 - outside) & 1;
            if (object ? !next_member(r, NULL) : !jr_element(r)) {
                if (r->status) return false;
                continue;
            }
        }
        const bool object = jr_peek(r) == JR_OBJECT;
        const uint32_t level = r->depth;
        if (!skip_one(r)) return false;
        if (r->depth > level)
            objects = (objects & ~(1ull << (level - outside))) | (uint64_t)object << (level - outside);
    }
    return !r->status;
}

bool jr_raw(struct json_reader *r, struct json_text *out)
{
    if (r->status) return false;
    skip_space(r);
    const char *begin = r->at;
    if (!jr_skip(r)) return false;
    *out = (struct json_text){ begin, (size_t)(r->at - begin) };
    return true;
}

bool jr_finish(struct json_reader *r)
{
    if (r->status) return false;
    skip_space(r);
    return r->at == r->end || fail_syntax(r, "nothing more");
}

bool jr_is_object(const char *text, size_t n)
{
    struct json_reader r;
    char said[128];
    const struct wk_err err = { said, sizeof said };
    jr_open(&r, text, n, "object", "", &err);
    const bool ok = jr_peek(&r) == JR_OBJECT && jr_skip(&r) && jr_finish(&r);
    jr_close(&r);
    return ok;
}
