/* format.c: Python's two ways to fill in a text: "%s" % values and "{}".format(values). */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PRECISION = 10000, MAX_NESTING = 2 };

/* What a directive of either kind asks for. */
struct spec {
    const struct str *fill; /* one character */
    char align;             /* < > = ^; 0: by kind */
    char sign;              /* + - space */
    bool alternate, zero;
    char grouping;            /* , or _; 0: none */
    int64_t width, precision; /* -1: none */
    char type;                /* 0: none */
};

static unsigned number_origin(val v) { return v.input ? JINJA_INPUT : JINJA_TEMPLATE; }

static void check_width(struct vm *m, int64_t n)
{
    if (n > JINJA_MAX_OUTPUT) jn_fail_limit(m, "a width or precision is larger than %d", JINJA_MAX_OUTPUT);
}

/* Adds text with its padding; the first `head` bytes (sign and prefix) stay before fill of kind '='. */
static void put_padded(struct buf *b, const struct spec *s, const struct str *text, uint32_t head, char align)
{
    const int64_t room = s->width - jn_str_chars(text);
    if (s->align) align = s->align;
    const int64_t before = room <= 0 || align == '<' ? 0 : align == '^' ? room / 2 : room;
    const struct str space = { .data = " ", .n = 1 };
    const struct str *fill = s->fill ? s->fill : &space;
    if (align == '=') {
        jn_buf_slice(b, text, 0, head);
        jn_buf_fill(b, fill, room);
        jn_buf_slice(b, text, head, text->n);
        return;
    }
    jn_buf_fill(b, fill, before);
    jn_buf_str(b, text);
    if (room > before) jn_buf_fill(b, fill, room - before);
}

/* Digits with a separator every `every` places, and zeros in front to a width if there are to be any. */
static const char *grouped(struct vm *m, const char *digits, char separator, int every, int64_t width)
{
    const size_t whole = strspn(digits, "0123456789abcdefABCDEF");
    const size_t n = strlen(digits), tail = n - whole;
    int64_t zeros = 0;
    size_t total = whole;
    if (separator) total += whole ? (whole - 1) / (size_t)every : 0;
    while ((int64_t)(total + tail) < width) {
        zeros++;
        total = whole + (size_t)zeros;
        if (separator) total += (total - 1) / (size_t)every;
    }
    char *out = jn_heap_take(m, total + tail + 2), *o = out;
    const size_t count = whole + (size_t)zeros;
    for (size_t i = 0; i < count; i++) {
        *o++ = i < (size_t)zeros ? '0' : digits[i - (size_t)zeros];
        const size_t left = count - 1 - i;
        if (separator && left && left % (size_t)every == 0) *o++ = separator;
    }
    memcpy(o, digits + whole, tail);
    return out;
}

static void put_number(struct buf *b, const struct spec *s, bool negative, const char *prefix, const char *digits,
                       int every, unsigned origin)
{
    struct vm *m = b->m;
    char head[8];
    (void)snprintf(head, sizeof head, "%s%s",
                   negative         ? "-"
                   : s->sign == '+' ? "+"
                   : s->sign == ' ' ? " "
                                    : "",
                   prefix);
    const int64_t zeros = s->zero && (!s->align || s->align == '=') ? s->width - (int64_t)strlen(head) : 0;
    if (s->grouping || zeros > 0) digits = grouped(m, digits, s->grouping, every, zeros);
    struct buf text;
    jn_buf_open(&text, m);
    jn_buf_text(&text, head, origin);
    jn_buf_text(&text, digits, origin);
    put_padded(b, s, jn_buf_value(&text, false).u.s, (uint32_t)strlen(head), '>');
}

static void put_integer(struct buf *b, const struct spec *s, val v)
{
    const char type = s->type ? s->type : 'd';
    const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const char *text = jn_number_text(b->m, v, base);
    const bool negative = *text == '-';
    char *digits = jn_heap_take(b->m, strlen(text) + 1);
    strcpy(digits, text + negative);
    const char *prefix = "";
    if (s->alternate && base != 10) prefix = type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : "0b";
    for (char *c = digits; type == 'X' && *c; c++)
        if (*c >= 'a') *c = (char)(*c - 32);
    if (s->precision > (int64_t)strlen(digits)) {
        check_width(b->m, s->precision);
        digits = (char *)(uintptr_t)grouped(b->m, digits, 0, 3, s->precision);
    }
    put_number(b, s, negative, prefix, digits, base == 10 ? 3 : 4, number_origin(v));
}

/* The digits of |f|, without a sign. */
static char *float_digits(struct vm *m, double f, const struct spec *s, bool shortest)
{
    f = fabs(f);
    if (s->precision > MAX_PRECISION) jn_fail_limit(m, "a precision is larger than %d", MAX_PRECISION);
    if (shortest) {
        char *text = jn_heap_take(m, 40);
        jn_float_text(f, text);
        return text;
    }
    char type = s->type ? s->type : 'g';
    if (type == 'n') type = 'g';
    if (type == '%') {
        type = 'f';
        f *= 100;
    }
    int precision = (int)(s->precision < 0 ? 6 : s->precision);
    const size_t room = (size_t)precision + 400;
    char *text = jn_heap_take(m, room);
    if (s->alternate && (type == 'g' || type == 'G')) {
        /* Not left to printf: glibc's loses zeros where rounding adds a digit. */
        if (!precision) precision = 1;
        (void)snprintf(text, room, "%.*e", precision - 1, f);
        const int exponent = atoi(strchr(text, 'e') + 1);
        const bool small = exponent >= -4 && exponent < precision;
        precision -= small ? exponent + 1 : 1;
        type = small ? 'f' : type == 'g' ? 'e' : 'E';
    }
    const char format[] = { '%', '#', '.', '*', type, '\0' }, plain[] = { '%', '.', '*', type, '\0' };
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const int n = snprintf(text, room, s->alternate ? format : plain, precision, f);
#pragma GCC diagnostic pop
    jn_spend_chars(m, (size_t)n * 8); /* a digit of many is dear */
    return text;
}

static void put_float(struct buf *b, const struct spec *s, double f, unsigned origin, bool percent_style)
{
    struct vm *m = b->m;
    const bool finite = isfinite(f);
    char *digits;
    if (!finite) {
        digits = jn_heap_take(m, 8);
        strcpy(digits, isnan(f) ? "nan" : "inf");
        if (s->type == 'E' || s->type == 'F' || s->type == 'G')
            for (char *c = digits; *c; c++) *c = (char)(*c - 32);
    } else if (!s->type && s->precision < 0 && !percent_style) {
        digits = float_digits(m, f, s, true);
    } else {
        struct spec precise = *s;
        /* A float without a type is 'g', but shows that it is one, and turns to exponents one place earlier. */
        digits = float_digits(m, f, &precise, false);
        if (!s->type && !percent_style) {
            char *e = strchr(digits, 'e');
            if (!e && !strchr(digits, '.')) {
                const size_t n = strlen(digits);
                if ((int64_t)n >= (s->precision ? s->precision : 1)) {
                    precise.type = 'e';
                    precise.precision = (int64_t)(s->precision ? s->precision : 1) - 1;
                    digits = float_digits(m, f, &precise, false);
                    char *exponent = strchr(digits, 'e'), *last = exponent;
                    if (strchr(digits, '.')) {
                        while (last[-1] == '0') last--;
                        if (last[-1] == '.') last--;
                        memmove(last, exponent, strlen(exponent) + 1);
                    }
                } else {
                    char *more = jn_heap_take(m, n + 3);
                    (void)snprintf(more, n + 3, "%s.0", digits);
                    digits = more;
                }
            }
        }
    }
    struct spec padded = *s;
    if (!finite && percent_style) padded.zero = false;
    if (s->type == '%' && !percent_style) {
        const size_t n = strlen(digits);
        char *more = jn_heap_take(m, n + 2);
        (void)snprintf(more, n + 2, "%s%%", digits);
        digits = more;
    }
    put_number(b, &padded, signbit(f) && !isnan(f), "", digits, 3, origin);
}

static const struct str *cut_to(struct vm *m, const struct str *s, int64_t chars)
{
    if (chars < 0 || chars >= jn_str_chars(s)) return s;
    return jn_str_slice(m, s, 0, jn_str_byte(s, (uint32_t)chars), false).u.s;
}

static const struct str *repr_of(struct vm *m, val v, bool ascii)
{
    struct buf b;
    jn_buf_open(&b, m);
    jn_print_repr(&b, v);
    const struct str *s = jn_buf_value(&b, false).u.s;
    if (!ascii) return s;
    jn_buf_open(&b, m);
    uint32_t len;
    for (uint32_t i = 0; i < s->n; i += len) {
        const uint32_t c = jn_char_at(s, i, &len);
        char text[12];
        if (c < 0x80)
            jn_buf_slice(&b, s, i, i + len);
        else {
            if (c < 0x100)
                (void)snprintf(text, sizeof text, "\\x%02x", c);
            else if (c < 0x10000)
                (void)snprintf(text, sizeof text, "\\u%04x", c);
            else
                (void)snprintf(text, sizeof text, "\\U%08x", c);
            jn_buf_text(&b, text, jn_str_origin(s, i));
        }
    }
    return jn_buf_value(&b, false).u.s;
}

static const struct str *escaped_if(struct vm *m, bool markup, const struct str *s)
{
    return markup && !s->markup ? jn_str_escape(m, s).u.s : s;
}

/* --- "%s" % values --- */

struct percent {
    struct vm *m;
    const struct str *s;
    struct buf b;
    uint32_t at, used;
    val values;
    bool taken; /* the one value that is no tuple */
    bool mapping;
};

static char peek(const struct percent *p) { return p->at < p->s->n ? p->s->data[p->at] : '\0'; }

static val next_value(struct percent *p)
{
    if (p->values.kind == V_TUPLE) {
        if (p->used >= p->values.u.list->n) jn_fail(p->m, "not enough arguments for format string");
        return p->values.u.list->items[p->used++];
    }
    if (p->taken) jn_fail(p->m, "not enough arguments for format string");
    p->taken = true;
    return p->values;
}

static val keyed_value(struct percent *p)
{
    const uint32_t begin = ++p->at;
    uint32_t depth = 1;
    if (!p->mapping) jn_fail(p->m, "format requires a mapping");
    for (; p->at < p->s->n && depth; p->at++) depth += peek(p) == '(' ? 1u : peek(p) == ')' ? UINT32_MAX : 0;
    if (depth) jn_fail(p->m, "incomplete format key");
    const val key = jn_str_slice(p->m, p->s, begin, p->at - 1, false);
    if (p->values.kind != V_DICT) jn_fail(p->m, "list indices must be integers or slices, not str");
    const val *found = jn_dict_find(p->m, p->values.u.dict, key);
    if (!found) jn_fail(p->m, "a key of the format is not in the mapping");
    p->taken = true;
    return *found;
}

static int64_t number_or_star(struct percent *p)
{
    if (peek(p) == '*') {
        p->at++;
        const val v = next_value(p);
        if (!jn_is_integer(v)) jn_fail(p->m, "* wants int");
        const int64_t n = jn_need_int(p->m, v, "*");
        check_width(p->m, n < 0 ? -n : n);
        return n;
    }
    int64_t n = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        n = n * 10 + (peek(p) - '0');
        check_width(p->m, n);
    }
    return n;
}

static void percent_char(struct percent *p, const struct spec *s, val v)
{
    struct buf text;
    jn_buf_open(&text, p->m);
    if (v.kind == V_STRING && jn_str_chars(v.u.s) == 1) {
        jn_buf_str(&text, v.u.s);
    } else {
        if (!jn_is_integer(v)) jn_fail(p->m, "%%c requires int or char");
        const int64_t c = jn_need_int(p->m, v, "%c");
        if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) jn_fail(p->m, "%%c arg not in range(0x110000)");
        jn_buf_char(&text, (uint32_t)c, number_origin(v));
    }
    put_padded(&p->b, s, jn_buf_value(&text, false).u.s, 0, '>');
}

static void percent_value(struct percent *p, struct spec *s, val v)
{
    struct vm *m = p->m;
    const struct str *text;
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        text = s->type == 's' ? jn_to_str(m, v) : repr_of(m, v, s->type == 'a');
        put_padded(&p->b, s, cut_to(m, escaped_if(m, p->s->markup, text), s->precision), 0, '>');
        return;
    case 'c': percent_char(p, s, v); return;
    case 'd':
    case 'i':
    case 'u':
        s->type = 'd';
        if (v.kind == V_FLOAT) {
            const uint8_t input = v.input;
            v = jn_number_from_double(m, v.u.f);
            v.input = input;
        }
        if (!jn_is_number(v)) jn_fail(m, "%%d format: a real number is required, not %s", jn_type_name(v));
        put_integer(&p->b, s, v);
        return;
    case 'x':
    case 'X':
    case 'o':
        if (!jn_is_integer(v)) jn_fail(m, "%%%c format: an integer is required, not %s", s->type, jn_type_name(v));
        put_integer(&p->b, s, v);
        return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jn_is_number(v)) {
            const val parsed = v.kind == V_STRING && p->s->markup ? jn_float_parse(m, v.u.s) : jn_v_missing();
            if (parsed.kind == V_MISSING) jn_fail(m, "must be real number, not %s", jn_type_name(v));
            v = parsed;
        }
        put_float(&p->b, s, jn_number_double(m, v), number_origin(v), true);
        return;
    default: jn_fail(m, "unsupported format character '%c' (0x%x)", s->type, (unsigned char)s->type);
    }
}

static void percent_directive(struct percent *p)
{
    struct spec s = { .width = 0, .precision = -1 };
    val v = jn_v_missing();
    bool left = false;
    if (peek(p) == '(') v = keyed_value(p);
    for (;; p->at++) {
        const char c = peek(p);
        if (c == '-')
            left = true;
        else if (c == '+')
            s.sign = '+';
        else if (c == ' ')
            s.sign = s.sign ? s.sign : ' ';
        else if (c == '#')
            s.alternate = true;
        else if (c == '0')
            s.zero = true;
        else
            break;
    }
    s.width = number_or_star(p);
    if (s.width < 0) {
        left = true;
        s.width = -s.width;
    }
    if (peek(p) == '.') {
        p->at++;
        s.precision = number_or_star(p);
        if (s.precision < 0) s.precision = 0;
    }
    while (peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L') p->at++;
    if (p->at >= p->s->n) jn_fail(p->m, "incomplete format");
    s.type = p->s->data[p->at++];
    if (left) {
        s.align = '<';
        s.zero = false;
    }
    if (s.type == '%') {
        jn_buf_text(&p->b, "%", jn_str_origin(p->s, p->at - 1));
        return;
    }
    if (v.kind == V_MISSING) v = next_value(p);
    percent_value(p, &s, v);
}

val jn_format_percent(struct vm *m, const struct str *s, val values)
{
    struct percent p = { .m = m, .s = s, .values = values };
    /* What can be subscripted may stay unread. */
    p.mapping = values.kind == V_DICT || values.kind == V_UNDEFINED || values.kind == V_LIST || values.kind == V_RANGE;
    jn_buf_open(&p.b, m);
    jn_spend_chars(m, s->n);
    while (p.at < s->n) {
        uint32_t end = p.at;
        while (end < s->n && s->data[end] != '%') end++;
        jn_buf_slice(&p.b, s, p.at, end);
        p.at = end + 1;
        if (end < s->n) percent_directive(&p);
        jn_spend(m, 0);
    }
    const bool left = values.kind == V_TUPLE ? p.used < values.u.list->n : !p.taken && !p.mapping;
    if (left) jn_fail(m, "not all arguments converted during string formatting");
    return jn_buf_value(&p.b, s->markup);
}

/* --- "{}".format(values) --- */

struct braces {
    struct vm *m;
    const struct args *a;
    const val *map;
    bool markup;
    int64_t automatic; /* the next number; -1: numbers are given */
    bool any_automatic;
};

static bool all_digits(const struct str *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->data[i] < '0' || s->data[i] > '9') return false;
    return s->n;
}

/* The value that a field begins with: the next one if the whole field has no name, else by number or name. A number
 * that is the whole field cannot stand beside fields without. */
static val argument(struct braces *f, const struct str *name, bool whole)
{
    const bool digits = all_digits(name);
    int64_t i = 0;
    if (whole && !name->n) {
        if (f->automatic < 0)
            jn_fail(f->m, "cannot switch from manual field specification to automatic field numbering");
        f->any_automatic = true;
        i = f->automatic++;
    } else if (digits) {
        if (whole && f->any_automatic)
            jn_fail(f->m, "cannot switch from automatic field numbering to manual field specification");
        if (whole) f->automatic = -1;
        const val number = jn_integer_parse(f->m, name, 10);
        if (number.kind != V_INT || !jn_number_int64(number, &i)) i = INT64_MAX;
    } else if (f->map) {
        const val found = jn_get_item(f->m, *f->map, (val){ .kind = V_STRING, .u.s = name });
        if (jn_is_undefined(found)) jn_fail_undefined(f->m, found);
        return found;
    } else {
        for (uint32_t k = 0; k < f->a->n_named; k++)
            if (jn_str_same(f->a->names[k].u.s, name)) return f->a->named[k];
        jn_fail(f->m, "format(): there is no argument '%.*s'", (int)(name->n < 99 ? name->n : 99), name->data);
    }
    if (i >= f->a->n_pos) jn_fail(f->m, "replacement index %lld out of range for positional args tuple", (long long)i);
    return f->a->pos[i];
}

/* name.attribute[item]... */
static val field(struct braces *f, const struct str *s, uint32_t begin, uint32_t end)
{
    uint32_t at = begin;
    while (at < end && s->data[at] != '.' && s->data[at] != '[') at++;
    val v = argument(f, jn_str_slice(f->m, s, begin, at, false).u.s, at == end);
    while (at < end) {
        const bool attribute = s->data[at++] == '.';
        const uint32_t from = at;
        while (at < end && (attribute ? s->data[at] != '.' && s->data[at] != '[' : s->data[at] != ']')) at++;
        if (at == from) jn_fail(f->m, "empty attribute in format string");
        const struct str *name = jn_str_slice(f->m, s, from, at, false).u.s;
        if (attribute) {
            v = jn_get_attr(f->m, v, name);
            continue;
        }
        if (at >= end) jn_fail(f->m, "expected '}' before end of string");
        at++;
        if (at < end && s->data[at] != '.' && s->data[at] != '[')
            jn_fail(f->m, "only '.' or '[' may follow ']' in format field specifier");
        const val number = all_digits(name) ? jn_integer_parse(f->m, name, 10) : jn_v_missing();
        v = jn_get_item(f->m, v, number.kind != V_MISSING ? number : (val){ .kind = V_STRING, .u.s = name });
    }
    return v;
}

static struct spec parse_spec(struct vm *m, const struct str *s)
{
    struct spec out = { .width = 0, .precision = -1 };
    uint32_t at = 0, len = 0;
    if (s->n) (void)jn_char_at(s, 0, &len);
    if (s->n > len && strchr("<>=^", s->data[len])) {
        out.fill = jn_str_slice(m, s, 0, len, false).u.s;
        out.align = s->data[len];
        at = len + 1;
    } else if (s->n && strchr("<>=^", s->data[0])) {
        out.align = s->data[at++];
    }
    if (at < s->n && strchr("+- ", s->data[at])) out.sign = s->data[at++];
    if (at < s->n && s->data[at] == 'z') jn_fail(m, "the option 'z' of a format is not supported");
    if (at < s->n && s->data[at] == '#') {
        out.alternate = true;
        at++;
    }
    if (at < s->n && s->data[at] == '0') {
        if (!out.fill) out.zero = true;
        at++;
    }
    for (; at < s->n && s->data[at] >= '0' && s->data[at] <= '9'; at++) {
        out.width = out.width * 10 + (s->data[at] - '0');
        check_width(m, out.width);
    }
    if (at < s->n && (s->data[at] == ',' || s->data[at] == '_')) out.grouping = s->data[at++];
    if (at < s->n && s->data[at] == '.') {
        const uint32_t first = ++at;
        out.precision = 0;
        for (; at < s->n && s->data[at] >= '0' && s->data[at] <= '9'; at++) {
            out.precision = out.precision * 10 + (s->data[at] - '0');
            check_width(m, out.precision);
        }
        if (at == first) jn_fail(m, "Format specifier missing precision");
    }
    if (at < s->n) out.type = s->data[at++];
    if (at < s->n) jn_fail(m, "Invalid format specifier");
    return out;
}

static void format_string(struct buf *b, struct spec *s, const struct str *text)
{
    if (s->type && s->type != 's') jn_fail(b->m, "Unknown format code '%c' for object of type 'str'", s->type);
    if (s->sign) jn_fail(b->m, "Sign not allowed in string format specifier");
    if (s->alternate) jn_fail(b->m, "Alternate form (#) not allowed in string format specifier");
    if (s->align == '=') jn_fail(b->m, "'=' alignment not allowed in string format specifier");
    if (s->grouping) jn_fail(b->m, "Cannot specify '%c' with 's'.", s->grouping);
    if (s->zero) s->fill = jn_v_text(b->m, "0").u.s;
    put_padded(b, s, cut_to(b->m, text, s->precision), 0, '<');
}

static void format_number(struct buf *b, struct spec *s, val v)
{
    struct vm *m = b->m;
    const bool float_type = s->type && strchr("eEfFgG%", s->type);
    if (v.kind == V_FLOAT || float_type) {
        if (s->type && !float_type && s->type != 'n')
            jn_fail(m, "Unknown format code '%c' for object of type 'float'", s->type);
        if (s->grouping && s->type == 'n') jn_fail(m, "Cannot specify '%c' with 'n'.", s->grouping);
        put_float(b, s, jn_number_double(m, v), number_origin(v), false);
        return;
    }
    if (s->type && !strchr("bcdoxXn", s->type))
        jn_fail(m, "Unknown format code '%c' for object of type 'int'", s->type);
    if (s->precision >= 0) jn_fail(m, "Precision not allowed in integer format specifier");
    if (s->grouping && (s->type == 'n' || s->type == 'c'))
        jn_fail(m, "Cannot specify '%c' with '%c'.", s->grouping, s->type);
    if (s->grouping == ',' && s->type && strchr("boxX", s->type)) jn_fail(m, "Cannot specify ',' with '%c'.", s->type);
    if (s->type == 'c') {
        struct buf text;
        jn_buf_open(&text, m);
        const int64_t c = jn_need_int(m, v, "format");
        if (s->sign) jn_fail(m, "Sign not allowed with integer format specifier 'c'");
        if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) jn_fail(m, "%%c arg not in range(0x110000)");
        jn_buf_char(&text, (uint32_t)c, number_origin(v));
        if (s->zero) s->fill = jn_v_text(m, "0").u.s;
        put_padded(b, s, jn_buf_value(&text, false).u.s, 0, '<');
        return;
    }
    if (s->type == 'n') s->type = 'd';
    put_integer(b, s, v);
}

static void format_value(struct braces *f, struct buf *out, val v, const struct str *spec)
{
    struct vm *m = f->m;
    struct buf b;
    jn_buf_open(&b, m);
    if (f->markup && v.kind == V_STRING && v.u.s->markup) {
        if (spec->n) jn_fail(m, "Unsupported format specification for Markup.");
        jn_buf_str(out, v.u.s);
        return;
    }
    if (!spec->n) {
        jn_print_str(&b, v);
    } else {
        struct spec s = parse_spec(m, spec);
        if (v.kind == V_STRING)
            format_string(&b, &s, v.u.s);
        else if (jn_is_number(v))
            format_number(&b, &s, v);
        else
            jn_fail(m, "unsupported format string passed to %s.__format__", jn_type_name(v));
    }
    jn_buf_str(out, escaped_if(m, f->markup, jn_buf_value(&b, false).u.s));
}

/* The place of the brace that closes the field which begins at `at`. */
static uint32_t field_end(struct braces *f, const struct str *s, uint32_t at)
{
    uint32_t depth = 1;
    for (; at < s->n; at++) {
        if (s->data[at] == '{') depth++;
        if (s->data[at] == '}' && !--depth) return at;
    }
    jn_fail(f->m, "expected '}' before end of string");
}

static const struct str *fill_in(struct braces *f, const struct str *s, uint32_t nesting);

static void put_field(struct braces *f, struct buf *b, const struct str *s, uint32_t begin, uint32_t end,
                      uint32_t nesting)
{
    uint32_t name_end = begin;
    bool bracket = false;
    while (name_end < end && (bracket || (s->data[name_end] != '!' && s->data[name_end] != ':'))) {
        if (s->data[name_end] == '[') bracket = true;
        if (s->data[name_end] == ']') bracket = false;
        if (s->data[name_end] == '{') jn_fail(f->m, "unexpected '{' in field name");
        name_end++;
    }
    uint32_t spec = name_end;
    char conversion = '\0';
    if (spec < end && s->data[spec] == '!') {
        if (spec + 1 >= end) jn_fail(f->m, "end of string while looking for conversion specifier");
        conversion = s->data[spec + 1];
        spec += 2;
        if (spec < end && s->data[spec] != ':') jn_fail(f->m, "expected ':' after conversion specifier");
    }
    val v = field(f, s, begin, name_end);
    const struct str *format = jn_v_text(f->m, "").u.s;
    if (conversion == 's')
        v = (val){ .kind = V_STRING, .u.s = jn_to_str(f->m, v) };
    else if (conversion == 'r' || conversion == 'a')
        v = (val){ .kind = V_STRING, .u.s = repr_of(f->m, v, conversion == 'a') };
    else if (conversion)
        jn_fail(f->m, "Unknown conversion specifier '%c'", conversion);
    if (spec < end) {
        const bool markup = f->markup;
        f->markup = false;
        format = fill_in(f, jn_str_slice(f->m, s, spec + 1, end, false).u.s, nesting + 1);
        f->markup = markup;
    }
    format_value(f, b, v, format);
}

static const struct str *fill_in(struct braces *f, const struct str *s, uint32_t nesting)
{
    struct buf b;
    jn_buf_open(&b, f->m);
    if (nesting > MAX_NESTING - 1 && memchr(s->data, '{', s->n)) jn_fail(f->m, "Max string recursion exceeded");
    jn_spend_chars(f->m, s->n);
    for (uint32_t i = 0; i < s->n;) {
        uint32_t end = i;
        while (end < s->n && s->data[end] != '{' && s->data[end] != '}') end++;
        jn_buf_slice(&b, s, i, end);
        if (end >= s->n) break;
        if (end + 1 < s->n && s->data[end + 1] == s->data[end]) {
            jn_buf_slice(&b, s, end, end + 1);
            i = end + 2;
            continue;
        }
        if (s->data[end] == '}') jn_fail(f->m, "Single '}' encountered in format string");
        if (end + 1 >= s->n) jn_fail(f->m, "Single '{' encountered in format string");
        const uint32_t close = field_end(f, s, end + 1);
        jn_spend(f->m, 0);
        put_field(f, &b, s, end + 1, close, nesting);
        i = close + 1;
    }
    return jn_buf_value(&b, false).u.s;
}

val jn_format_braces(struct vm *m, const struct str *s, const struct args *a, const val *map)
{
    struct braces f = { .m = m, .a = a, .map = map, .markup = s->markup };
    return jn_str_marked(m, fill_in(&f, s, 0), s->markup);
}
