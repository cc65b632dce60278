/* lex.c: a template's text into tokens, as jinja2's lexer with trim_blocks and lstrip_blocks cuts it. */
#include "ast.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

void jn_fail_syntax(struct vm *m, uint32_t at, const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    m->at = at + 1;
    jn_fail(m, "%s", text);
}

void jn_lex_open(struct lexer *l, struct vm *m, const char *source, uint32_t n)
{
    *l = (struct lexer){ .m = m, .source = source, .n = n, .state = T_DATA, .line_starting = true };
}

static bool starts(const struct lexer *l, uint32_t at, const char *text)
{
    const size_t n = strlen(text);
    return n <= l->n - at && memcmp(l->source + at, text, n) == 0;
}

static uint32_t decode(const struct lexer *l, uint32_t at, uint32_t *len)
{
    return jn_char_at(&(struct str){ .data = l->source, .n = l->n }, at, len);
}

static uint32_t skip_space(const struct lexer *l, uint32_t at)
{
    uint32_t len;
    while (at < l->n && jn_char_is_space(decode(l, at, &len))) at += len;
    return at;
}

static uint32_t strip_end(const struct lexer *l, uint32_t begin, uint32_t end)
{
    while (end > begin) {
        uint32_t at = end - 1, len;
        while (at > begin && ((unsigned char)l->source[at] & 0xC0) == 0x80) at--;
        if (!jn_char_is_space(decode(l, at, &len))) break;
        end = at;
    }
    return end;
}

/* The text before a tag, without what the tag's sign or lstrip_blocks takes from it. */
static uint32_t data_end(const struct lexer *l, uint32_t begin, uint32_t end, char sign, bool variable)
{
    if (sign == '-') return strip_end(l, begin, end);
    if (sign == '+' || variable) return end;
    uint32_t line = end;
    while (line > begin && l->source[line - 1] != '\n') line--;
    if (line == begin && !l->line_starting) return end;
    return skip_space(l, line) >= end ? line : end;
}

/* The end of a tag at `at` that closes with `mark`, and what it takes with it: -%} all space, %} one line end. */
static bool tag_end(const struct lexer *l, uint32_t at, const char *mark, bool block, uint32_t *after)
{
    const bool minus = l->source[at] == '-', plus = block && l->source[at] == '+';
    if (!starts(l, at + (minus || plus), mark)) return false;
    at += (uint32_t)(minus || plus) + 2;
    if (minus)
        at = skip_space(l, at);
    else if (block && !plus && at < l->n && l->source[at] == '\n')
        at++;
    *after = at;
    return true;
}

static void advance(struct lexer *l, uint32_t to)
{
    l->at = to;
    l->line_starting = to && l->source[to - 1] == '\n';
}

static void skip_comment(struct lexer *l, uint32_t begin)
{
    for (uint32_t at = l->at; at < l->n; at++) {
        uint32_t after;
        if (l->source[at] != '#' && l->source[at] != '-' && l->source[at] != '+') continue;
        if (!tag_end(l, at, "#}", true, &after)) continue;
        advance(l, after);
        return;
    }
    jn_fail_syntax(l->m, begin, "a comment has no end: expected #}");
}

/* {% raw %}: after it, or 0. */
static uint32_t raw_begin(const struct lexer *l, uint32_t at)
{
    at += 2;
    if (at < l->n && (l->source[at] == '-' || l->source[at] == '+')) at++;
    at = skip_space(l, at);
    if (!starts(l, at, "raw")) return 0;
    at = skip_space(l, at + 3);
    if (starts(l, at, "-%}")) return skip_space(l, at + 3);
    return starts(l, at, "%}") ? at + 2 : 0;
}

static struct token raw_text(struct lexer *l, uint32_t begin)
{
    const uint32_t from = l->at;
    for (uint32_t at = from; at + 1 < l->n; at++) {
        if (!starts(l, at, "{%")) continue;
        uint32_t p = at + 2, after;
        const char sign = p < l->n && (l->source[p] == '-' || l->source[p] == '+') ? l->source[p++] : '\0';
        p = skip_space(l, p);
        if (!starts(l, p, "endraw")) continue;
        p = skip_space(l, p + 6);
        if (p >= l->n || !tag_end(l, p, "%}", true, &after)) continue;
        const uint32_t end = data_end(l, from, at, sign, false);
        advance(l, after);
        return (struct token){ T_DATA, from, l->source + from, end - from };
    }
    jn_fail_syntax(l->m, begin, "raw has no end: expected {%% endraw %%}");
}

static struct token next_data(struct lexer *l)
{
    while (l->at < l->n) {
        uint32_t begin = l->at, at = begin;
        while (at + 1 < l->n && !(l->source[at] == '{' && strchr("%{#", l->source[at + 1]) && l->source[at + 1])) at++;
        if (at + 1 >= l->n) {
            advance(l, l->n);
            return (struct token){ T_DATA, begin, l->source + begin, l->n - begin };
        }
        const char kind = l->source[at + 1];
        const char sign =
            at + 2 < l->n && (l->source[at + 2] == '-' || l->source[at + 2] == '+') ? l->source[at + 2] : '\0';
        const uint32_t end = data_end(l, begin, at, sign, kind == '{');
        if (end > begin) { /* the tag is looked at again; its text is gone then, so that nothing is stripped twice */
            const bool line = l->line_starting;
            advance(l, at);
            l->line_starting = end == begin ? line : l->source[at - 1] == '\n';
            return (struct token){ T_DATA, begin, l->source + begin, end - begin };
        }
        const uint32_t raw = kind == '%' ? raw_begin(l, at) : 0;
        if (raw) {
            advance(l, raw);
            const struct token t = raw_text(l, at);
            if (t.n) return t;
            continue;
        }
        advance(l, at + 2 + (sign != '\0'));
        if (kind == '#') {
            skip_comment(l, at);
            continue;
        }
        l->state = kind == '{' ? T_VARIABLE_END : T_BLOCK_END;
        return (struct token){ kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN, at, l->source + at, 2 };
    }
    return (struct token){ T_END, l->n, "", 0 };
}

/* [0-9], with single underscores between: as far as it goes from `at`; `at` itself: nowhere. */
static uint32_t digits(const struct lexer *l, uint32_t at, const char *set)
{
    uint32_t end = at;
    while (end < l->n && l->source[end] && strchr(set, l->source[end])) {
        end++;
        if (end + 1 < l->n && l->source[end] == '_' && l->source[end + 1] && strchr(set, l->source[end + 1])) end++;
    }
    return end;
}

#define DECIMAL "0123456789"

static uint32_t float_end(const struct lexer *l, uint32_t at)
{
    const uint32_t whole = digits(l, at, DECIMAL);
    if (whole == at || (at && l->source[at - 1] == '.')) return at;
    uint32_t end = whole;
    if (end < l->n && l->source[end] == '.') {
        const uint32_t fraction = digits(l, end + 1, DECIMAL);
        if (fraction == end + 1) return at;
        end = fraction;
    }
    if (end < l->n && (l->source[end] | 32) == 'e') {
        uint32_t power = end + 1;
        if (power < l->n && (l->source[power] == '+' || l->source[power] == '-')) power++;
        if (digits(l, power, DECIMAL) > power) return digits(l, power, DECIMAL);
    }
    return end > whole ? end : at;
}

static uint32_t integer_end(const struct lexer *l, uint32_t at)
{
    if (l->source[at] == '0') {
        const char kind = at + 1 < l->n ? (char)(l->source[at + 1] | 32) : '\0';
        const char *const set = kind == 'x'   ? "0123456789abcdefABCDEF"
                                : kind == 'o' ? "01234567"
                                : kind == 'b' ? "01"
                                              : NULL;
        if (set) {
            const uint32_t begin = at + 2 + (at + 2 < l->n && l->source[at + 2] == '_');
            const uint32_t end = digits(l, begin, set);
            if (end > begin) return end;
        }
        return digits(l, at, "0");
    }
    return digits(l, at, DECIMAL);
}

static uint32_t name_end(const struct lexer *l, uint32_t at)
{
    uint32_t len;
    for (; at < l->n; at += len) {
        const uint32_t c = decode(l, at, &len);
        if (!jn_char_is_word(c) && !(jn_char_flags(c) & (1u << 12))) break;
    }
    return at;
}

static uint32_t string_end(const struct lexer *l, uint32_t at)
{
    const char quote = l->source[at];
    for (uint32_t i = at + 1; i < l->n; i++) {
        if (l->source[i] == quote) return i + 1;
        if (l->source[i] == '\\') i++;
    }
    return at;
}

static enum token_kind operator_at(const struct lexer *l, uint32_t at, uint32_t *n)
{
    static const struct {
        char text[3];
        uint8_t kind;
    } operators[] = { { "//", T_FLOOR_DIV }, { "**", T_POW },     { "==", T_EQ },    { "!=", T_NE },
                      { ">=", T_GE },        { "<=", T_LE },      { "+", T_ADD },    { "-", T_SUB },
                      { "/", T_DIV },        { "*", T_MUL },      { "%", T_MOD },    { "~", T_TILDE },
                      { "[", T_LBRACKET },   { "]", T_RBRACKET }, { "(", T_LPAREN }, { ")", T_RPAREN },
                      { "{", T_LBRACE },     { "}", T_RBRACE },   { ">", T_GT },     { "<", T_LT },
                      { "=", T_ASSIGN },     { ".", T_DOT },      { ":", T_COLON },  { "|", T_PIPE },
                      { ",", T_COMMA },      { ";", T_SEMICOLON } };
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (starts(l, at, operators[i].text)) {
            *n = (uint32_t)strlen(operators[i].text);
            return operators[i].kind;
        }
    return T_END;
}

static void balance(struct lexer *l, enum token_kind kind, uint32_t at)
{
    const char closing = kind == T_LBRACE ? '}' : kind == T_LPAREN ? ')' : kind == T_LBRACKET ? ']' : '\0';
    if (closing) {
        l->open = jn_heap_grow(l->m, l->open, l->n_open, &l->cap_open, (size_t)l->n_open + 1, 1);
        l->open[l->n_open++] = closing;
        return;
    }
    if (kind != T_RBRACE && kind != T_RPAREN && kind != T_RBRACKET) return;
    const char found = l->source[at];
    if (!l->n_open) jn_fail_syntax(l->m, at, "unexpected '%c'", found);
    if (l->open[--l->n_open] != found)
        jn_fail_syntax(l->m, at, "unexpected '%c', expected '%c'", found, l->open[l->n_open]);
}

static void check_identifier(const struct lexer *l, uint32_t begin, uint32_t end)
{
    uint32_t len;
    for (uint32_t at = begin; at < end; at += len)
        if (!(jn_char_flags(decode(l, at, &len)) & (at == begin ? 1u << 11 : 1u << 12)))
            jn_fail_syntax(l->m, at, "invalid character in a name");
}

struct token jn_lex_next(struct lexer *l)
{
    if (l->state == T_DATA) return next_data(l);
    l->at = skip_space(l, l->at);
    const uint32_t at = l->at;
    if (at >= l->n) return (struct token){ T_END, at, "", 0 };
    uint32_t end;
    const bool block = l->state == T_BLOCK_END;
    if (!l->n_open && tag_end(l, at, block ? "%}" : "}}", block, &end)) {
        const enum token_kind kind = l->state;
        advance(l, end);
        l->state = T_DATA;
        return (struct token){ kind, at, l->source + at, 2 };
    }
    enum token_kind kind = T_END;
    const char c = l->source[at];
    uint32_t n = 0;
    if (c >= '0' && c <= '9') {
        end = float_end(l, at);
        kind = end > at ? T_FLOAT : T_INTEGER;
        if (end == at) end = integer_end(l, at);
    } else if ((end = name_end(l, at)) > at) {
        check_identifier(l, at, end);
        kind = T_NAME;
    } else if (c == '"' || c == '\'') {
        end = string_end(l, at);
        kind = T_STRING;
        if (end == at) jn_fail_syntax(l->m, at, "a string has no end");
    } else {
        kind = operator_at(l, at, &n);
        uint32_t len;
        if (kind == T_END) jn_fail_syntax(l->m, at, "unexpected character U+%04X", (unsigned)decode(l, at, &len));
        balance(l, kind, at);
        end = at + n;
    }
    l->at = end;
    return (struct token){ kind, at, l->source + at, end - at };
}

const char *jn_token_words(struct vm *m, const struct token *t)
{
    switch (t->kind) {
    case T_END: return "end of template";
    case T_DATA: return "template data";
    case T_VARIABLE_END: return "end of print statement";
    case T_BLOCK_END: return "end of statement block";
    default: return jn_words(m, "'%.*s'", (int)(t->n < 40 ? t->n : 40), t->text);
    }
}
