/* filters_text.c: filters that make texts and numbers. */
#include "filters.h"

#include <math.h>
#include <stdio.h>

#include "base/utf8.h"

enum { NONE = UINT32_MAX };

static bool given(val v) { return v.kind != V_MISSING; }
static bool given_some(val v) { return v.kind != V_MISSING && v.kind != V_NONE; }
static const struct str *one(struct vm *m, const char *c) { return jn_v_text(m, c).u.s; }

val jn_f_capitalize(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "capitalize", a, "", 0, NULL);
    return jn_str_capitalize(m, jn_soft_str(m, v));
}

static val with_case(struct vm *m, const struct str *s, enum char_case how)
{
    struct buf b;
    jn_buf_open(&b, m);
    jn_buf_case(&b, s, 0, s->n, how);
    return jn_buf_value(&b, s->markup);
}

val jn_f_upper(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "upper", a, "", 0, NULL);
    return with_case(m, jn_soft_str(m, v), CASE_UPPER);
}

val jn_f_lower(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "lower", a, "", 0, NULL);
    return with_case(m, jn_soft_str(m, v), CASE_LOWER);
}

val jn_f_center(struct vm *m, val v, const struct args *a)
{
    val width;
    jn_bind(m, "center", a, "width", 0, &width);
    return jn_str_pad(m, jn_soft_str(m, v), given(width) ? jn_need_int(m, width, "center") : 80, one(m, " "), true,
                      true);
}

val jn_f_escape(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "escape", a, "", 0, NULL);
    const struct str *s = jn_to_str(m, v);
    return s->markup ? v : jn_str_escape(m, s);
}

val jn_f_forceescape(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "forceescape", a, "", 0, NULL);
    return jn_str_escape(m, jn_to_str(m, v));
}

val jn_f_safe(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "safe", a, "", 0, NULL);
    return jn_str_marked(m, jn_to_str(m, v), true);
}

val jn_f_string(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "string", a, "", 0, NULL);
    return v.kind == V_STRING ? v : (val){ .kind = V_STRING, .u.s = jn_to_str(m, v) };
}

static bool word_begins(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || jn_char_is_space(c);
}

val jn_f_title(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "title", a, "", 0, NULL);
    const struct str *s = jn_soft_str(m, v);
    struct buf b;
    uint32_t len, end;
    jn_buf_open(&b, m);
    for (uint32_t i = 0; i < s->n; i = end) {
        /* A run of separators or of others: its first character in upper case, the rest in lower. */
        const uint32_t c = jn_char_at(s, i, &len);
        const bool separator = word_begins(c);
        for (end = i; end < s->n && word_begins(jn_char_at(s, end, &len)) == separator;) end += len;
        (void)jn_char_at(s, i, &len);
        jn_buf_case(&b, s, i, i + len, CASE_UPPER);
        jn_buf_case(&b, s, i + len, end, CASE_LOWER);
    }
    return jn_buf_value(&b, false);
}

val jn_f_trim(struct vm *m, val v, const struct args *a)
{
    val chars;
    jn_bind(m, "trim", a, "chars", 0, &chars);
    return jn_str_strip(m, jn_soft_str(m, v), given_some(chars) ? jn_need_str(m, chars, "trim") : NULL, true, true);
}

val jn_f_replace(struct vm *m, val v, const struct args *a)
{
    val p[3];
    jn_bind(m, "replace", a, "old new count", 2, p);
    const int64_t max = given_some(p[2]) ? jn_need_int(m, p[2], "replace") : -1;
    const struct str *s = jn_to_str(m, v), *old = jn_to_str(m, p[0]), *new = jn_to_str(m, p[1]);
    const val out = jn_str_replace(m, s, old, new, max);
    return jn_str_marked(m, out.u.s, false);
}

val jn_f_format(struct vm *m, val v, const struct args *a)
{
    if (a->n_pos && a->n_named) jn_fail(m, "format: positional and keyword arguments at the same time");
    const struct str *s = jn_soft_str(m, v);
    if (a->n_named) {
        struct dict *d = jn_dict_new(m, a->n_named);
        for (uint32_t i = 0; i < a->n_named; i++) jn_dict_put(m, d, a->names[i], a->named[i]);
        return jn_format_percent(m, s, (val){ .kind = V_DICT, .u.dict = d });
    }
    struct list *l = jn_list_new(m, a->n_pos);
    for (uint32_t i = 0; i < a->n_pos; i++) jn_list_push(m, l, a->pos[i]);
    return jn_format_percent(m, s, jn_list_value(l, V_TUPLE));
}

static void add_escaped(struct vm *m, struct buf *b, const struct str *s, bool markup)
{
    jn_buf_str(b, markup && !s->markup ? jn_str_escape(m, s).u.s : s);
}

val jn_f_indent(struct vm *m, val v, const struct args *a)
{
    val p[3];
    jn_bind(m, "indent", a, "width first blank", 0, p);
    if (v.kind != V_STRING) jn_fail(m, "indent: expected str, not %s", jn_type_name(v));
    const struct str *s = v.u.s, *by;
    if (given(p[0]) && p[0].kind == V_STRING)
        by = p[0].u.s;
    else
        by = jn_str_repeat(m, one(m, " "), given(p[0]) ? jn_need_int(m, p[0], "indent") : 4).u.s;
    const bool first = given(p[1]) && jn_truth(m, p[1]), blank = given(p[2]) && jn_truth(m, p[2]);
    const struct list *lines = jn_str_lines(m, jn_str_concat(m, s, one(m, "\n"), s->markup).u.s, false);
    struct buf b;
    jn_buf_open(&b, m);
    if (first) add_escaped(m, &b, by, false);
    for (uint32_t i = 0; i < lines->n; i++) {
        const struct str *line = lines->items[i].u.s;
        jn_spend_chars(m, line->n);
        if (i) jn_buf_text(&b, "\n", JINJA_TEMPLATE);
        if (i && (blank || line->n)) jn_buf_str(&b, by);
        jn_buf_str(&b, line);
    }
    return jn_buf_value(&b, s->markup);
}

static const struct str *cut(struct vm *m, const struct str *s, int64_t chars)
{
    const val parts[] = { jn_v_none(), jn_v_int(chars), jn_v_none() };
    return jn_get_item(m, (val){ .kind = V_STRING, .u.s = s }, (val){ .kind = V_SLICE, .u.slice = parts }).u.s;
}

val jn_f_truncate(struct vm *m, val v, const struct args *a)
{
    val p[4];
    jn_bind(m, "truncate", a, "length killwords end leeway", 0, p);
    const val max = given(p[0]) ? p[0] : jn_v_int(255), leeway = given_some(p[3]) ? p[3] : jn_v_int(5);
    const struct str *end = given(p[2]) ? jn_need_str(m, p[2], "truncate") : one(m, "...");
    const val end_length = jn_v_int(jn_str_chars(end));
    if (jn_compare(m, CMP_LT, max, end_length)) jn_fail(m, "truncate: expected length >= %u", jn_str_chars(end));
    if (jn_compare(m, CMP_LT, leeway, jn_v_int(0))) jn_fail(m, "truncate: expected leeway >= 0");
    const val room = jn_binary(m, BIN_ADD, max, leeway);
    if (jn_compare(m, CMP_LE, jn_v_int(jn_length(m, v)), room)) return v;
    if (v.kind != V_STRING) jn_fail(m, "truncate: expected str, not %s", jn_type_name(v));
    const struct str *kept = cut(m, v.u.s, jn_need_int(m, jn_binary(m, BIN_SUB, max, end_length), "truncate"));
    if (!(given(p[1]) && jn_truth(m, p[1]))) {
        const uint32_t space = jn_str_rfind(m, kept, one(m, " "), 0, kept->n);
        if (space != NONE) kept = jn_str_slice(m, kept, 0, space, kept->markup).u.s;
    }
    return jn_binary(m, BIN_ADD, (val){ .kind = V_STRING, .u.s = kept }, (val){ .kind = V_STRING, .u.s = end });
}

val jn_f_wordcount(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "wordcount", a, "", 0, NULL);
    const struct str *s = jn_soft_str(m, v);
    int64_t n = 0;
    bool in = false;
    uint32_t len;
    jn_spend_chars(m, s->n);
    for (uint32_t i = 0; i < s->n; i += len) {
        const bool word = jn_char_is_word(jn_char_at(s, i, &len));
        n += word && !in;
        in = word;
    }
    return jn_v_int(n);
}

val jn_f_wordwrap(struct vm *m, val v, const struct args *a)
{
    val p[4];
    jn_bind(m, "wordwrap", a, "width break_long_words wrapstring break_on_hyphens", 0, p);
    const struct str *end = given_some(p[2]) ? jn_need_str(m, p[2], "wordwrap") : one(m, "\n");
    const struct list *lines = jn_str_lines(m, jn_need_str(m, v, "wordwrap"), false);
    const int64_t width = given(p[0]) ? jn_need_int(m, p[0], "wordwrap") : 79;
    struct buf b;
    jn_buf_open(&b, m);
    for (uint32_t i = 0; i < lines->n; i++) {
        if (i) jn_buf_str(&b, end);
        jn_buf_str(&b, jn_str_wrap(m, lines->items[i].u.s, width, !given(p[1]) || jn_truth(m, p[1]), end,
                                   !given(p[3]) || jn_truth(m, p[3]))
                           .u.s);
    }
    return jn_buf_value(&b, false);
}

val jn_f_striptags(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "striptags", a, "", 0, NULL);
    return jn_str_strip_tags(m, jn_to_str(m, v));
}

/* --- Numbers --- */

val jn_f_int(struct vm *m, val v, const struct args *a)
{
    val p[2];
    jn_bind(m, "int", a, "default base", 0, p);
    const val otherwise = given(p[0]) ? p[0] : jn_v_int(0);
    int64_t base = 10;
    if (given(p[1]) && !(jn_is_integer(p[1]) && jn_number_int64(p[1], &base))) base = -1; /* int() refuses it */
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (jn_is_integer(v)) return v.kind == V_BOOL ? jn_v_int(v.u.b) : v;
    if (v.kind == V_FLOAT && isinf(v.u.f))
        jn_fail(m, "cannot convert float infinity to integer"); /* but "inf" is none */
    if (v.kind == V_STRING) {
        const bool valid = base == 0 || (base >= 2 && base <= 36);
        const val i = valid ? jn_integer_parse(m, v.u.s, (unsigned)base) : jn_v_missing();
        if (given(i)) return i;
        v = jn_float_parse(m, v.u.s);
    }
    if (v.kind != V_FLOAT || !isfinite(v.u.f)) return otherwise;
    val i = jn_number_from_double(m, v.u.f);
    i.input = v.input;
    return i;
}

val jn_f_float(struct vm *m, val v, const struct args *a)
{
    val otherwise;
    jn_bind(m, "float", a, "default", 0, &otherwise);
    if (!given(otherwise)) otherwise = jn_v_float(0);
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (jn_is_number(v)) {
        val f = jn_v_float(jn_number_double(m, v));
        f.input = v.input;
        return f;
    }
    if (v.kind != V_STRING) return otherwise;
    const val f = jn_float_parse(m, v.u.s);
    return given(f) ? f : otherwise;
}

val jn_f_round(struct vm *m, val v, const struct args *a)
{
    val p[2];
    jn_bind(m, "round", a, "precision method", 0, p);
    const struct str *how = given(p[1]) ? jn_need_str(m, p[1], "round") : one(m, "common");
    const bool common = jn_str_is(how, "common");
    if (!common && !jn_str_is(how, "ceil") && !jn_str_is(how, "floor"))
        jn_fail(m, "round: the method must be common, ceil or floor");
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (!jn_is_number(v)) jn_fail(m, "type %s doesn't define __round__ method", jn_type_name(v));
    if (common) {
        if (given(p[0]) && p[0].kind == V_NONE) return jn_number_round(m, v, 0, true);
        if (p[0].kind == V_BIG) return jn_number_round(m, v, jn_number_negative(p[0]) ? -100000 : 100000, false);
        return jn_number_round(m, v, given(p[0]) ? jn_need_int(m, p[0], "round") : 0, false);
    }
    if (given(p[0]) && !jn_is_number(p[0])) jn_fail(m, "round: the precision is no number but %s", jn_type_name(p[0]));
    const val scale = jn_number_pow(m, jn_v_int(10), given(p[0]) ? p[0] : jn_v_int(0));
    const val scaled = jn_number_mul(m, v, scale);
    const val whole = jn_is_integer(scaled)    ? scaled
                      : jn_str_is(how, "ceil") ? jn_number_from_double(m, ceil(scaled.u.f))
                                               : jn_number_from_double(m, floor(scaled.u.f));
    val out = jn_number_div(m, whole, scale);
    out.input = v.input;
    return out;
}

val jn_f_filesizeformat(struct vm *m, val v, const struct args *a)
{
    static const char units[] = "kMGTPEZY";
    val b;
    jn_bind(m, "filesizeformat", a, "binary", 0, &b);
    const bool two = given(b) && jn_truth(m, b);
    val f = v;
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (v.kind == V_STRING) f = jn_float_parse(m, v.u.s);
    if (!jn_is_number(f)) jn_fail(m, "filesizeformat: not a number: %s", jn_type_name(v));
    const double bytes = jn_number_double(m, f), base = two ? 1024 : 1000;
    char text[64];
    if (bytes == 1) {
        (void)snprintf(text, sizeof text, "1 Byte");
    } else if (bytes < base) {
        (void)snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        double unit = base * base;
        int i = 0;
        if (isnan(bytes)) jn_fail(m, "cannot convert float NaN to integer");
        for (; i < 7 && bytes >= unit; i++) unit *= base;
        const char letter = two && i == 0 ? 'K' : units[i];
        const double shown = base * bytes / unit;
        if (isinf(shown))
            (void)snprintf(text, sizeof text, "inf %c%s", letter, two ? "iB" : "B");
        else {
            char *large = jn_heap_take(m, 400);
            (void)snprintf(large, 400, "%.1f %c%s", shown, letter, two ? "iB" : "B");
            return jn_str_constant(m, large, strlen(large), f.input ? JINJA_INPUT : JINJA_TEMPLATE);
        }
    }
    return jn_str_new(m, text, strlen(text), f.input ? JINJA_INPUT : JINJA_TEMPLATE);
}

/* --- Codes --- */

static void add_quoted(struct buf *b, const struct str *s, bool query)
{
    jn_spend_chars(b->m, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        const unsigned char c = (unsigned char)s->data[i];
        const unsigned origin = jn_str_origin(s, i);
        char text[4] = { (char)c };
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (query && c == ' ')
            text[0] = '+';
        else if (!plain)
            (void)snprintf(text, sizeof text, "%%%02X", c);
        jn_buf_text(b, text, origin);
    }
}

val jn_f_urlencode(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "urlencode", a, "", 0, NULL);
    struct buf b;
    jn_buf_open(&b, m);
    if (v.kind == V_STRING || !jn_is_iterable(v)) {
        add_quoted(&b, jn_to_str(m, v), false);
        return jn_buf_value(&b, false);
    }
    struct iter i;
    jn_iter_open(m, &i, v.kind == V_DICT ? (val){ .kind = V_VIEW, .aux = VIEW_ITEMS, .u.dict = v.u.dict } : v);
    uint32_t n = 0;
    for (val item; jn_iter_next(m, &i, &item); n++) {
        if (!jn_is_iterable(item)) jn_fail(m, "cannot unpack non-iterable %s object", jn_type_name(item));
        const struct list *pair = jn_to_list(m, item);
        if (pair->n != 2) jn_fail(m, "urlencode: expected pairs");
        if (n) jn_buf_text(&b, "&", JINJA_TEMPLATE);
        add_quoted(&b, jn_to_str(m, pair->items[0]), true);
        jn_buf_text(&b, "=", JINJA_TEMPLATE);
        add_quoted(&b, jn_to_str(m, pair->items[1]), true);
    }
    return jn_buf_value(&b, false);
}

val jn_f_xmlattr(struct vm *m, val v, const struct args *a)
{
    val space;
    jn_bind(m, "xmlattr", a, "autospace", 0, &space);
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (v.kind != V_DICT) jn_fail(m, "'%s' object has no attribute 'items'", jn_type_name(v));
    struct buf b;
    jn_buf_open(&b, m);
    uint32_t n = 0;
    for (uint32_t i = 0; i < v.u.dict->n; i++) {
        const struct pair *p = &v.u.dict->pairs[i];
        if (p->value.kind == V_NONE || jn_is_undefined(p->value)) continue;
        const struct str *key = jn_need_str(m, p->key, "xmlattr");
        for (uint32_t k = 0; k < key->n; k++)
            if (key->data[k] && strchr(" \t\n\r\f\v/>=", key->data[k]))
                jn_fail(m, "xmlattr: invalid character in attribute name");
        if (n++ || !given(space) || jn_truth(m, space)) jn_buf_text(&b, " ", JINJA_TEMPLATE);
        add_escaped(m, &b, key, true);
        jn_buf_text(&b, "=\"", JINJA_TEMPLATE);
        add_escaped(m, &b, jn_to_str(m, p->value), true);
        jn_buf_text(&b, "\"", JINJA_TEMPLATE);
    }
    return jn_buf_value(&b, false);
}

val jn_f_tojson(struct vm *m, val v, const struct args *a)
{
    val p[4];
    jn_bind(m, "tojson", a, "ensure_ascii indent separators sort_keys", 0, p);
    const struct str *indent = NULL, *item = one(m, ", "), *key = one(m, ": ");
    if (given_some(p[1]) && v.kind != V_STRING) {
        indent = p[1].kind == V_STRING ? p[1].u.s : jn_str_repeat(m, one(m, " "), jn_need_int(m, p[1], "tojson")).u.s;
        item = one(m, ",");
    }
    if (given_some(p[2])) {
        if (!jn_is_iterable(p[2])) jn_fail(m, "tojson: separators must be a pair");
        const struct list *pair = jn_to_list(m, p[2]);
        if (pair->n != 2) jn_fail(m, "tojson: separators must be a pair");
        item = jn_need_str(m, pair->items[0], "tojson");
        key = jn_need_str(m, pair->items[1], "tojson");
    }
    struct buf b;
    jn_buf_open(&b, m);
    jn_print_json(&b, v, given(p[0]) && jn_truth(m, p[0]), indent, item, key, given(p[3]) && jn_truth(m, p[3]));
    return jn_buf_value(&b, false);
}
