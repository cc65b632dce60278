/* body.c: JSON bodies. */
#include "body.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { SHOWN_BYTES = 80 };

/* ---- a walk over the tokens ---------------------------------------------------------------------------- */

struct span {
    size_t at, n;
};

/* A number that Jansson's integers do not hold: it becomes a string, or a number with a fraction. */
struct mark {
    struct span number;
    bool quoted;
};

struct walk {
    const char *bytes;
    size_t n, at;
    uint32_t depth;
    struct {
        bool object, named;
        struct span key;
    } level[BODY_MAX_DEPTH + 1];
    struct mark *marks; /* [n_marks] */
    size_t n_marks, cap_marks;
};

/* The names of `depth` levels that lead to where the walk stands, joined by dots. */
static void field_of(const struct walk *w, uint32_t depth, char out[96])
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t d = 1; d <= depth && d <= BODY_MAX_DEPTH; d++) {
        const struct span key = w->level[d].key;
        if (!w->level[d].object || !key.n || n + key.n + 2 > 96) continue;
        n += (size_t)snprintf(out + n, 96 - n, "%s%.*s", n ? "." : "", (int)key.n, w->bytes + key.at);
    }
    struct utf8_stream stream = { 0 };
    char clean[UTF8_STREAM_ROOM(96) + 3];
    size_t m = utf8_stream_push(&stream, out, n, clean);
    if (m > 90) m = 0; /* a name that is no UTF-8 grew: not worth showing */
    memcpy(out, clean, m);
    out[m] = '\0';
}

/* Behind the string that begins at w->at, or at the end. */
static struct span string_at(const struct walk *w)
{
    size_t i = w->at + 1, quote = i;
    for (; i < w->n; i++) {
        if (quote <= i) { /* strings are most of what there is: memchr looks at many bytes at once */
            const char *found = memchr(w->bytes + i, '"', w->n - i);
            quote = found ? (size_t)(found - w->bytes) : w->n;
        }
        const char *escape = quote > i ? memchr(w->bytes + i, '\\', quote - i) : NULL;
        if (!escape) {
            i = quote;
            break;
        }
        i = (size_t)(escape - w->bytes) + 1; /* what is escaped is passed */
        if (i >= quote) quote = 0;
    }
    return (struct span){ w->at + 1, (i < w->n ? i : w->n) - w->at - 1 };
}

static bool too_large(const struct walk *w, struct span number, struct refusal *why)
{
    char field[96];
    field_of(w, w->depth, field);
    return refuse(why, SERVE_INVALID_REQUEST, field, "%s%snumber out of range: %.*s", field, field[0] ? ": " : "",
                  (int)(number.n < 40 ? number.n : 40), w->bytes + number.at);
}

static bool mark(struct walk *w, struct span number, bool quoted, struct refusal *why)
{
    if (w->n_marks == w->cap_marks) {
        const size_t cap = w->cap_marks ? 2 * w->cap_marks : 4;
        struct mark *marks = realloc(w->marks, cap * sizeof *marks);
        if (!marks) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the body");
        w->marks = marks;
        w->cap_marks = cap;
    }
    w->marks[w->n_marks++] = (struct mark){ number, quoted };
    return true;
}

/* Is it a double, in value? text: the number and a terminator. */
static bool is_double(const char *text) { return isfinite(strtod(text, NULL)); }

/* A number's text, as long as it is: leaves what fits to Jansson; of whole ones that do not, a seed's uint64 becomes a
 * string, and what a double holds gets a fraction, so that whatever asks for an integer refuses it by name. */
static bool judge_number(struct walk *w, struct span number, const char *text, struct refusal *why)
{
    const bool whole = !strpbrk(text, ".eE");
    if (!whole) return is_double(text) || too_large(w, number, why);
    errno = 0;
    (void)strtoll(text, NULL, 10);
    if (!errno) return true;
    errno = 0;
    (void)strtoull(text, NULL, 10);
    const struct span key = w->level[w->depth].key;
    const bool seed = w->depth && w->level[w->depth].object && key.n == 4 && memcmp(w->bytes + key.at, "seed", 4) == 0;
    if (seed && (errno || text[0] == '-')) return too_large(w, number, why);
    return seed || is_double(text) ? mark(w, number, seed, why) : too_large(w, number, why);
}

static bool number_at(struct walk *w, struct refusal *why)
{
    struct span number = { w->at, 0 };
    char small[64], *text = small;
    while (w->at < w->n && memchr("+-.0123456789eE", w->bytes[w->at], 15)) w->at++;
    number.n = w->at - number.at;
    if (number.n >= sizeof small && !(text = malloc(number.n + 1)))
        return refuse(why, SERVE_INTERNAL, NULL, "no memory for the body");
    memcpy(text, w->bytes + number.at, number.n);
    text[number.n] = '\0';
    const bool ok = judge_number(w, number, text, why);
    if (text != small) free(text);
    return ok;
}

static bool open_level(struct walk *w, bool object, struct refusal *why)
{
    char field[96];
    if (w->depth == BODY_MAX_DEPTH) {
        field_of(w, 1, field);
        return refuse(why, SERVE_INVALID_REQUEST, field, "%s%snested deeper than %d levels", field,
                      field[0] ? ": " : "", BODY_MAX_DEPTH);
    }
    w->depth++;
    memset(&w->level[w->depth], 0, sizeof w->level[w->depth]);
    w->level[w->depth].object = object;
    w->at++;
    return true;
}

/* Walks until `stop`, or to where the bytes are no JSON: that is Jansson's to say. False: refused here. */
static bool walk(struct walk *w, size_t stop, struct refusal *why)
{
    while (w->at < w->n && w->at < stop) {
        const char c = w->bytes[w->at];
        if (c == '"') {
            const struct span s = string_at(w);
            if (w->depth && w->level[w->depth].object && !w->level[w->depth].named) {
                w->level[w->depth].key = s;
                w->level[w->depth].named = true;
            }
            w->at = s.at + s.n + 1;
        } else if (c == '{' || c == '[') {
            if (!open_level(w, c == '{', why)) return false;
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            if (!number_at(w, why)) return false;
        } else {
            if ((c == '}' || c == ']') && w->depth) w->depth--;
            if (c == ',' && w->depth) {
                w->level[w->depth].named = false;
                w->level[w->depth].key.n = 0;
            }
            w->at++;
        }
    }
    return true;
}

static size_t put(char *out, size_t at, const char *bytes, size_t n)
{
    memcpy(out + at, bytes, n);
    return at + n;
}

/* A copy in which the marked numbers are what they shall become. */
static char *rewritten(const struct walk *w, size_t *n)
{
    char *copy = malloc(w->n + 2 * w->n_marks + 1);
    size_t from = 0, to = 0;
    if (!copy) return NULL;
    for (size_t i = 0; i < w->n_marks; i++) {
        const struct mark *m = &w->marks[i];
        to = put(copy, to, w->bytes + from, m->number.at - from);
        if (m->quoted) copy[to++] = '"';
        to = put(copy, to, w->bytes + m->number.at, m->number.n);
        to = m->quoted ? put(copy, to, "\"", 1) : put(copy, to, ".0", 2);
        from = m->number.at + m->number.n;
    }
    *n = put(copy, to, w->bytes + from, w->n - from);
    return copy;
}

static bool parse(const char *bytes, size_t n, json_t **out, struct refusal *why)
{
    json_error_t said;
    struct refusal unused;
    char field[96];
    *out = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &said);
    if (*out && json_is_object(*out)) return true;
    if (*out) {
        json_decref(*out);
        *out = NULL;
        return refuse(why, SERVE_INVALID_REQUEST, NULL, "expected a JSON object");
    }
    struct walk w = { .bytes = bytes, .n = n };
    (void)walk(&w, said.position > 1 ? (size_t)said.position - 1 : 0,
               &unused); /* to what the offending token belongs to */
    field_of(&w, w.depth, field);
    free(w.marks);
    return refuse(why, SERVE_INVALID_REQUEST, field, "not JSON: line %d, column %d: %s", said.line, said.column,
                  said.text);
}

bool body_parse(const char *bytes, size_t n, json_t **out, struct refusal *why)
{
    struct walk w = { .bytes = bytes, .n = n };
    *out = NULL;
    *why = (struct refusal){ 0 };
    bool ok = walk(&w, n, why);
    if (ok && !w.n_marks) {
        ok = parse(bytes, n, out, why);
    } else if (ok) {
        size_t m;
        char *copy = rewritten(&w, &m);
        ok = copy ? parse(copy, m, out, why) : refuse(why, SERVE_INTERNAL, NULL, "no memory for the body");
        free(copy);
    }
    free(w.marks);
    return ok;
}

static size_t skip_space(const char *bytes, size_t n, size_t at)
{
    while (at < n && memchr(" \t\r\n", bytes[at], 4)) at++;
    return at;
}

/* Behind the value that begins at `at`. */
static size_t value_end(const char *bytes, size_t n, size_t at)
{
    size_t depth = 0;
    while (at < n) {
        const char c = bytes[at];
        if (c == '"') {
            const struct span text = string_at(&(struct walk){ .bytes = bytes, .n = n, .at = at });
            at = text.at + text.n;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        } else if (!depth && memchr(",}] \t\r\n", c, 7)) {
            return at;
        } else {
            at++;
            continue;
        }
        at++;
        if (!depth) return at;
    }
    return n;
}

bool body_member(const char *bytes, size_t n, const char *name, const char **value, size_t *len)
{
    size_t at = skip_space(bytes, n, 0) + 1; /* behind the brace */
    while ((at = skip_space(bytes, n, at)) < n && bytes[at] == '"') {
        const struct span key = string_at(&(struct walk){ .bytes = bytes, .n = n, .at = at });
        const size_t begin = skip_space(bytes, n, skip_space(bytes, n, key.at + key.n + 1) + 1);
        const size_t end = begin < n ? value_end(bytes, n, begin) : n;
        if (begin < n && key.n == strlen(name) && memcmp(bytes + key.at, name, key.n) == 0) {
            *value = bytes + begin;
            *len = end - begin;
            return true;
        }
        at = skip_space(bytes, n, end) + 1; /* behind the comma */
    }
    return false;
}

/* As Jansson 2.14 and the C library's allocator have it, by the token that tells of it; measured by a test. */
size_t body_memory(const char *bytes, size_t n)
{
    enum { OF_STRING = 96, OF_OBJECT = 256, OF_ARRAY = 144, OF_NAME = 64, OF_ELEMENT = 64, ROUNDED = 4096 };
    size_t memory = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = bytes[i];
        if (c == '"') {
            const struct span text = string_at(&(struct walk){ .bytes = bytes, .n = n, .at = i });
            memory += OF_STRING + text.n + 1;
            i = text.at + text.n;
        } else {
            memory += c == '{' ? OF_OBJECT : c == '[' ? OF_ARRAY : c == ':' ? OF_NAME : c == ',' ? OF_ELEMENT : 0;
        }
    }
    return memory + ROUNDED;
}

/* ---- members ------------------------------------------------------------------------------------------- */

static void name_field(const struct body_object *o, const char *name, char out[96])
{
    (void)snprintf(out, 96, "%s%.80s", o->prefix, name);
}

/* A value as JSON, cut at a character's end. */
static void show(const json_t *value, char out[SHOWN_BYTES + 8])
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    const size_t n = text ? strlen(text) : 0;
    (void)snprintf(out, SHOWN_BYTES + 8, "%.*s%s", SHOWN_BYTES, text ? text : "nothing", n > SHOWN_BYTES ? "..." : "");
    free(text);
}

bool body_fail(const struct body_object *o, const char *name, struct refusal *why, const char *expected, ...)
{
    char shown[SHOWN_BYTES + 8], what[256], field[96];
    va_list args;
    va_start(args, expected);
    (void)vsnprintf(what, sizeof what, expected, args);
    va_end(args);
    name_field(o, name, field);
    show(json_object_get(o->object, name), shown);
    return refuse(why, SERVE_INVALID_REQUEST, field, "%s: expected %s, got %s", field, what, shown);
}

bool body_knows(const struct body_object *o, const char *const *names, size_t n, struct refusal *why)
{
    const char *key;
    json_t *value;
    char field[96];
    json_object_foreach ((json_t *)(uintptr_t)o->object, key, value) {
        size_t i = 0;
        while (i < n && strcmp(names[i], key) != 0) i++;
        if (i < n) continue;
        name_field(o, key, field);
        return refuse(why, SERVE_INVALID_REQUEST, field, "%s: unknown field", field);
    }
    return true;
}

bool body_says(const json_t *value, const char *word)
{
    const size_t n = json_string_length(value);
    return json_is_string(value) && n == strlen(word) && memcmp(json_string_value(value), word, n) == 0;
}

bool body_required(const struct body_object *o, const char *name, struct refusal *why)
{
    char field[96];
    if (json_object_get(o->object, name)) return true;
    name_field(o, name, field);
    return refuse(why, SERVE_INVALID_REQUEST, field, "%s: is missing", field);
}

bool body_integer(const struct body_object *o, const char *name, int64_t min, int64_t max, int64_t *out,
                  struct refusal *why)
{
    const json_t *value = json_object_get(o->object, name);
    if (!value) return true;
    const int64_t v = json_integer_value(value);
    if (!json_is_integer(value) || v < min || v > max)
        return body_fail(o, name, why, "a whole number from %" PRId64 " to %" PRId64, min, max);
    *out = v;
    return true;
}

bool body_real(const struct body_object *o, const char *name, double min, double max, double *out, struct refusal *why)
{
    const json_t *value = json_object_get(o->object, name);
    if (!value) return true;
    const double v = json_number_value(value);
    if (!json_is_number(value) || !(v >= min && v <= max))
        return body_fail(o, name, why, "a number from %g to %g", min, max);
    *out = v;
    return true;
}

void body_drop_nulls(json_t *object)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value) if (json_is_null(value))(void) json_object_del(object, key);
}

bool body_flag(const struct body_object *o, const char *name, bool *out, struct refusal *why)
{
    const json_t *value = json_object_get(o->object, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return body_fail(o, name, why, "true or false");
    *out = json_is_true(value);
    return true;
}

bool body_uint64(const struct body_object *o, const char *name, uint64_t *out, bool *given, struct refusal *why)
{
    static const char *const expected = "a whole number from 0 to 18446744073709551615, or a string of its digits";
    const json_t *value = json_object_get(o->object, name);
    if (!value) return true;
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
    } else if (json_is_string(value)) {
        const char *text = json_string_value(value);
        const size_t n = json_string_length(value);
        if (!n || n > 20 || strspn(text, "0123456789") != n) return body_fail(o, name, why, "%s", expected);
        errno = 0;
        *out = strtoull(text, NULL, 10);
        if (errno) return body_fail(o, name, why, "%s", expected);
    } else {
        return body_fail(o, name, why, "%s", expected);
    }
    *given = true;
    return true;
}

bool body_string(const struct body_object *o, const char *name, size_t least, size_t most, const char **out, size_t *n,
                 struct refusal *why)
{
    const json_t *value = json_object_get(o->object, name);
    if (!value) return true;
    if (!json_is_string(value) || json_string_length(value) < least || json_string_length(value) > most)
        return body_fail(o, name, why, "a string of %zu to %zu bytes", least, most);
    *out = json_string_value(value);
    *n = json_string_length(value);
    return true;
}

bool body_name(const struct body_object *o, const char *name, size_t most, const char **out, struct refusal *why)
{
    size_t n = 0;
    if (!body_string(o, name, 1, most, out, &n, why)) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)(*out)[i] < 0x20 || (*out)[i] == 0x7f)
            return body_fail(o, name, why, "a string without control characters");
    return true;
}
