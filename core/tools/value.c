/* value.c: values of arguments, read unit by unit and written as JSON in the same pass. One machine reads JSON,
 * Python's literals and Gemma's objects, because models that were trained on one of them write pieces of the others.
 * What leaves it is JSON at every complete value; what cannot become that is VALUE_BAD at once. */
#include <string.h>

#include "tools/internal.h"
#include "tokenizer/vocab.h"

enum state {
    V_VALUE, /* a value */
    V_FIRST, /* a value, or ] */
    V_FIRST_KEY,
    V_KEY,
    V_BARE_KEY,
    V_COLON,
    V_OPEN, /* Gemma's quote has begun */
    V_STRING,
    V_ESCAPE,
    V_HEX,
    V_MAYBE_END, /* a quote that ends the string if what follows a value follows */
    V_NUMBER,
    V_WORD,
    V_AFTER
};
enum level { L_ARRAY, L_OBJECT, L_CALL };
enum number { N_MINUS, N_ZERO, N_DIGITS, N_POINT, N_FRACTION, N_E, N_SIGN, N_EXPONENT };

bool tools_put(struct byte_buffer *b, const char *bytes, size_t n)
{
    if (!array_reserve((void **)&b->data, &b->cap, b->n + n, 1)) return false;
    if (n) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    return true;
}

static enum value_result put(struct byte_buffer *out, const char *bytes, size_t n)
{
    return tools_put(out, bytes, n) ? VALUE_MORE : VALUE_NO_MEMORY;
}
static enum value_result put_unit(struct byte_buffer *out, unit u) { return put(out, &(char){ (char)u }, 1); }

/* A character below 0x80 inside a JSON string. */
static enum value_result put_escaped(struct byte_buffer *out, unit u)
{
    static const char hex[] = "0123456789abcdef";
    if (u == '"' || u == '\\') return put(out, (const char[]){ '\\', (char)u }, 2);
    if (u >= 0x20) return put_unit(out, u);
    switch (u) {
    case '\n': return put(out, "\\n", 2);
    case '\t': return put(out, "\\t", 2);
    case '\r': return put(out, "\\r", 2);
    default: return put(out, (const char[]){ '\\', 'u', '0', '0', hex[u >> 4], hex[u & 15] }, 6);
    }
}

void value_begin(struct value *v, enum value_style style, const struct step *gemma_quote)
{
    memset(v, 0, sizeof *v);
    v->state = V_VALUE;
    v->loose = style == VALUE_PYTHON_CALL;
    if (style == VALUE_GEMMA) {
        v->gemma = gemma_quote->units;
        v->gemma_n = gemma_quote->n;
    }
}

bool value_complete(const struct value *v)
{
    return v->state == V_NUMBER && !v->depth &&
           (v->number == N_ZERO || v->number == N_DIGITS || v->number == N_FRACTION || v->number == N_EXPONENT);
}

static enum value_result after_value(struct value *v)
{
    v->state = V_AFTER;
    return v->depth ? VALUE_MORE : VALUE_DONE;
}

static enum value_result open_level(struct value *v, enum level level, struct byte_buffer *out)
{
    if (v->depth == VALUE_DEPTH) return VALUE_BAD;
    v->level[v->depth++] = (unsigned char)level;
    v->state = level == L_ARRAY ? V_FIRST : V_FIRST_KEY;
    return put_unit(out, level == L_ARRAY ? '[' : '{');
}

static enum value_result close_level(struct value *v, unit u, struct byte_buffer *out)
{
    static const char ends[] = { ']', '}', ')' };
    const unsigned char level = v->level[v->depth - 1];
    if (u != (unit)ends[level]) return VALUE_BAD;
    v->depth--;
    const enum value_result r = put_unit(out, level == L_ARRAY ? ']' : '}');
    return r == VALUE_MORE ? after_value(v) : r;
}

/* ---- strings -------------------------------------------------------------------------------------------- */

static enum value_result open_string(struct value *v, unit u, bool key, struct byte_buffer *out)
{
    v->quote = u;
    v->key = key;
    v->state = V_STRING;
    v->gemma_at = 0;
    if (v->gemma && u == v->gemma[0] && v->gemma_n > 1) {
        v->gemma_at = 1;
        v->state = V_OPEN;
    }
    return put_unit(out, '"');
}

static bool opens_string(const struct value *v, unit u)
{
    return u == '"' || u == '\'' || (v->gemma && u == v->gemma[0]);
}

static enum value_result close_string(struct value *v, struct byte_buffer *out)
{
    const enum value_result r = put_unit(out, '"');
    if (r != VALUE_MORE) return r;
    if (!v->key) return after_value(v);
    v->state = V_COLON;
    return VALUE_MORE;
}

/* A byte from 0x80 on: UTF-8, as it is. */
static enum value_result put_high(struct value *v, unit u, struct byte_buffer *out)
{
    if (v->utf8_left) {
        if (u < v->utf8_low || u > v->utf8_high) return VALUE_BAD;
        v->utf8_left--;
    } else {
        if (u < 0xC2 || u > 0xF4) return VALUE_BAD;
        v->utf8_left = u < 0xE0 ? 1 : u < 0xF0 ? 2 : 3;
    }
    v->utf8_low = u == 0xE0 ? 0xA0 : u == 0xF0 ? 0x90 : 0x80;
    v->utf8_high = u == 0xED ? 0x9F : u == 0xF4 ? 0x8F : 0xBF;
    return put_unit(out, u);
}

static enum value_result string_unit(struct value *v, unit u, struct byte_buffer *out)
{
    if (u >= UNIT_MARK || (v->utf8_left && u < 0x80)) return VALUE_BAD;
    if (u >= 0x80) return put_high(v, u, out);
    if (v->gemma && v->quote == v->gemma[0]) return put_escaped(out, u);
    if (u == '\\') {
        v->state = V_ESCAPE;
        return VALUE_MORE;
    }
    return put_escaped(out, u);
}

/* In Gemma's string: its end, or what looked like it. */
static enum value_result gemma_unit(struct value *v, unit u, struct byte_buffer *out)
{
    if (!v->utf8_left && u == v->gemma[v->gemma_at])
        return ++v->gemma_at == v->gemma_n ? close_string(v, out) : VALUE_MORE;
    for (uint16_t i = 0; i < v->gemma_at; i++) {
        const enum value_result r = string_unit(v, v->gemma[i], out);
        if (r != VALUE_MORE) return r;
    }
    v->gemma_at = !v->utf8_left && u == v->gemma[0];
    return v->gemma_at ? VALUE_MORE : string_unit(v, u, out);
}

static enum value_result in_string(struct value *v, unit u, struct byte_buffer *out)
{
    if (v->gemma && v->quote == v->gemma[0]) return gemma_unit(v, u, out);
    if (u != v->quote || v->utf8_left) return string_unit(v, u, out);
    if (v->loose && v->depth == 1 && !v->key) {
        v->state = V_MAYBE_END;
        return VALUE_MORE;
    }
    return close_string(v, out);
}

static enum value_result escape(struct value *v, unit u, struct byte_buffer *out)
{
    v->state = V_STRING;
    if (u == 'u' || u == 'x') {
        v->state = V_HEX;
        v->n_hex = u == 'u' ? 4 : 2;
        return put(out, u == 'u' ? "\\u" : "\\u00", u == 'u' ? 2 : 4);
    }
    if (u == '\'') return put_unit(out, u);
    if (u < 0x80 && u && strchr("\"\\/bfnrt", u)) return put(out, (const char[]){ '\\', (char)u }, 2);
    /* No escape of JSON's; Python keeps the backslash then, and so do models that write regular expressions. */
    const enum value_result r = put(out, "\\\\", 2);
    return r == VALUE_MORE ? string_unit(v, u, out) : r;
}

static enum value_result hex(struct value *v, unit u, struct byte_buffer *out)
{
    if (u > 'f' || !((u >= '0' && u <= '9') || (u >= 'a' && u <= 'f') || (u >= 'A' && u <= 'F'))) return VALUE_BAD;
    if (!--v->n_hex) v->state = V_STRING;
    return put_unit(out, u);
}

/* ---- numbers and words ----------------------------------------------------------------------------------- */

static bool number_next(struct value *v, unit u)
{
    const bool digit = u >= '0' && u <= '9';
    switch (v->number) {
    case N_MINUS: v->number = u == '0' ? N_ZERO : N_DIGITS; return digit;
    case N_DIGITS:
        if (digit) return true;
        __attribute__((fallthrough));
    case N_ZERO: v->number = u == '.' ? N_POINT : N_E; return u == '.' || u == 'e' || u == 'E';
    case N_POINT: v->number = N_FRACTION; return digit;
    case N_FRACTION:
        if (digit) return true;
        v->number = N_E;
        return u == 'e' || u == 'E';
    case N_E: v->number = digit ? N_EXPONENT : N_SIGN; return digit || u == '+' || u == '-';
    case N_SIGN: v->number = N_EXPONENT; return digit;
    default: return digit;
    }
}

static enum value_result after(struct value *v, unit u, struct byte_buffer *out);

/* A unit behind a number or a word: the value was complete before it. */
static enum value_result ended_before(struct value *v, unit u, struct byte_buffer *out)
{
    v->state = V_AFTER;
    return v->depth ? after(v, u, out) : VALUE_BEFORE;
}

static enum value_result in_number(struct value *v, unit u, struct byte_buffer *out)
{
    const uint8_t before = v->number;
    if (number_next(v, u)) return put_unit(out, u);
    v->number = before;
    if (before == N_MINUS || before == N_POINT || before == N_E || before == N_SIGN || unit_is_word(u))
        return VALUE_BAD;
    return ended_before(v, u, out);
}

static enum value_result in_word(struct value *v, unit u, struct byte_buffer *out)
{
    static const struct {
        const char *word, *json;
    } words[] = { { "true", "true" },   { "True", "true" }, { "false", "false" },
                  { "False", "false" }, { "null", "null" }, { "None", "null" } };
    if (v->n_word == VALUE_WORD - 1) return VALUE_BAD;
    v->word[v->n_word++] = (char)u;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(words[i].word, v->word, v->n_word) != 0) continue;
        if (words[i].word[v->n_word]) return VALUE_MORE;
        const enum value_result r = put(out, words[i].json, strlen(words[i].json));
        return r == VALUE_MORE ? after_value(v) : r;
    }
    return VALUE_BAD;
}

/* ---- structure ------------------------------------------------------------------------------------------- */

static enum value_result begin_value(struct value *v, unit u, struct byte_buffer *out)
{
    if (unit_is_space(u)) return v->depth ? put_unit(out, u) : VALUE_MORE;
    if (opens_string(v, u)) return open_string(v, u, false, out);
    if (u == '{') return open_level(v, L_OBJECT, out);
    if (u == '(' && v->loose && !v->depth) return open_level(v, L_CALL, out);
    if (u == '[') return open_level(v, L_ARRAY, out);
    if (u == '-' || (u >= '0' && u <= '9')) {
        v->state = V_NUMBER;
        v->number = u == '-' ? N_MINUS : u == '0' ? N_ZERO : N_DIGITS;
        return put_unit(out, u);
    }
    v->state = V_WORD;
    v->n_word = 0;
    return u < 0x80 ? in_word(v, u, out) : VALUE_BAD;
}

static enum value_result begin_key(struct value *v, unit u, struct byte_buffer *out)
{
    const bool bare = v->gemma || v->level[v->depth - 1] == L_CALL;
    if (unit_is_space(u)) return put_unit(out, u);
    if (v->state == V_FIRST_KEY && (u == '}' || u == ')')) return close_level(v, u, out);
    if (opens_string(v, u) && v->level[v->depth - 1] == L_OBJECT) return open_string(v, u, true, out);
    if (!bare || !(unit_is_name(u) || (u >= 0x80 && u < UNIT_MARK)) || u == ':') return VALUE_BAD;
    v->state = V_BARE_KEY;
    const enum value_result r = put_unit(out, '"');
    return r != VALUE_MORE ? r : u >= 0x80 ? put_high(v, u, out) : put_unit(out, u);
}

static enum value_result bare_key(struct value *v, unit u, struct byte_buffer *out)
{
    if (u == (v->level[v->depth - 1] == L_CALL ? '=' : ':') && !v->utf8_left) {
        v->state = V_VALUE;
        return put(out, "\":", 2);
    }
    if (u >= 0x80 && u < UNIT_MARK) return put_high(v, u, out);
    if (v->utf8_left || !(unit_is_name(u) || u == '$')) return VALUE_BAD;
    return put_unit(out, u);
}

static enum value_result after(struct value *v, unit u, struct byte_buffer *out)
{
    if (unit_is_space(u)) return put_unit(out, u);
    if (u != ',') return close_level(v, u, out);
    v->state = v->level[v->depth - 1] == L_ARRAY ? V_VALUE : V_KEY;
    return put_unit(out, u);
}

static enum value_result maybe_end(struct value *v, unit u, struct byte_buffer *out)
{
    if (u < 0x80 && u && strchr(",)]}:", u)) {
        const enum value_result r = close_string(v, out);
        return r == VALUE_MORE ? after(v, u, out) : r;
    }
    const enum value_result r = put_escaped(out, v->quote);
    if (r != VALUE_MORE || u == v->quote) return r;
    v->state = V_STRING;
    return string_unit(v, u, out);
}

enum value_result value_push(struct value *v, unit u, struct byte_buffer *out)
{
    switch (v->state) {
    case V_FIRST:
        if (u == ']') return close_level(v, u, out);
        if (!unit_is_space(u)) v->state = V_VALUE;
        return begin_value(v, u, out);
    case V_VALUE: return begin_value(v, u, out);
    case V_FIRST_KEY:
    case V_KEY: return begin_key(v, u, out);
    case V_BARE_KEY: return bare_key(v, u, out);
    case V_COLON:
        if (unit_is_space(u)) return put_unit(out, u);
        v->state = V_VALUE;
        return u == ':' ? put_unit(out, u) : VALUE_BAD;
    case V_OPEN:
        if (u != v->gemma[v->gemma_at]) return VALUE_BAD;
        if (++v->gemma_at < v->gemma_n) return VALUE_MORE;
        v->gemma_at = 0;
        v->state = V_STRING;
        return VALUE_MORE;
    case V_STRING: return in_string(v, u, out);
    case V_ESCAPE: return escape(v, u, out);
    case V_HEX: return hex(v, u, out);
    case V_MAYBE_END: return maybe_end(v, u, out);
    case V_NUMBER: return in_number(v, u, out);
    case V_WORD: return in_word(v, u, out);
    default: return after(v, u, out);
    }
}

/* ---- raw texts ------------------------------------------------------------------------------------------- */

static bool put_replacement(struct byte_buffer *out) { return tools_put(out, "\xEF\xBF\xBD", 3); }

bool raw_put(struct raw_text *r, unsigned char byte, struct byte_buffer *out)
{
    const unsigned char lead = r->held[0];
    if (r->n) {
        const unsigned char low = r->n > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        const unsigned char high = r->n > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (byte >= low && byte <= high) {
            r->held[r->n++] = byte;
            if (r->n < (lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4)) return true;
            const uint8_t n = r->n;
            r->n = 0;
            return tools_put(out, (const char *)r->held, n);
        }
        r->n = 0;
        if (!put_replacement(out)) return false;
    }
    if (byte < 0x80) return put_escaped(out, byte) == VALUE_MORE;
    if (byte < 0xC2 || byte > 0xF4) return put_replacement(out);
    r->held[r->n++] = byte;
    return true;
}

bool raw_end(struct raw_text *r, struct byte_buffer *out)
{
    const bool cut = r->n;
    r->n = 0;
    return !cut || put_replacement(out);
}
