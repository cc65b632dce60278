/* print.c: values as text: Python's str() and repr(), and JSON as json.dumps writes it. */
#include "internal.h"

#include <math.h>
#include <stdio.h>

#include "base/utf8.h"

static unsigned any_origin(const struct str *s)
{
    return s->runs || s->origin == JINJA_INPUT ? JINJA_INPUT : JINJA_TEMPLATE;
}

static void print_number(struct buf *b, val v)
{
    const unsigned origin = v.input ? JINJA_INPUT : JINJA_TEMPLATE;
    if (v.kind == V_FLOAT) {
        char text[32];
        jn_float_text(v.u.f, text);
        jn_buf_text(b, text, origin);
    } else if (v.kind == V_INT) {
        char text[24];
        const int n = snprintf(text, sizeof text, "%lld", (long long)v.u.i);
        jn_buf_add(b, text, (size_t)n, origin);
    } else {
        jn_buf_text(b, jn_number_text(b->m, v, 10), origin);
    }
}

static void repr_char(struct buf *b, uint32_t c, char quote, unsigned origin)
{
    char text[12];
    const char *format = NULL;
    if (c == '\\' || c == (unsigned char)quote)
        (void)snprintf(text, sizeof text, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        (void)snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (jn_char_flags(c) & (1u << 9)) {
        jn_buf_char(b, c, origin);
        return;
    } else {
        format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
        switch (format[1]) {
        case 'x': (void)snprintf(text, sizeof text, "\\x%02x", c); break;
        case 'u': (void)snprintf(text, sizeof text, "\\u%04x", c); break;
        default: (void)snprintf(text, sizeof text, "\\U%08x", c); break;
        }
    }
    jn_buf_text(b, text, origin);
}

static void repr_string(struct buf *b, const struct str *s)
{
    const unsigned origin = any_origin(s);
    const bool single = memchr(s->data, '\'', s->n), twice = memchr(s->data, '"', s->n);
    const char quote = single && !twice ? '"' : '\'';
    uint32_t len;
    jn_spend_chars(b->m, s->n);
    if (s->markup) jn_buf_text(b, "Markup(", JINJA_TEMPLATE);
    jn_buf_add(b, &quote, 1, origin);
    uint32_t begin = 0;
    for (uint32_t i = 0; i < s->n; i += len) {
        const uint32_t c = jn_char_at(s, i, &len);
        if (c >= 0x20 && c < 0x7F && c != '\\' && c != (unsigned char)quote) continue;
        jn_buf_slice(b, s, begin, i);
        repr_char(b, c, quote, jn_str_origin(s, i));
        begin = i + len;
    }
    jn_buf_slice(b, s, begin, s->n);
    jn_buf_add(b, &quote, 1, origin);
    if (s->markup) jn_buf_text(b, ")", JINJA_TEMPLATE);
}

static void repr_items(struct buf *b, val v, const char *open, const char *close, bool input)
{
    const unsigned origin = input ? JINJA_INPUT : JINJA_TEMPLATE;
    jn_deeper(b->m);
    jn_buf_text(b, open, origin);
    struct iter i;
    jn_iter_open(b->m, &i, v);
    uint32_t n = 0;
    for (val item; jn_iter_next(b->m, &i, &item); n++) {
        jn_spend(b->m, 0);
        if (n) jn_buf_text(b, ", ", origin);
        jn_print_repr(b, item);
    }
    if (v.kind == V_TUPLE && n == 1) jn_buf_text(b, ",", origin);
    jn_buf_text(b, close, origin);
    jn_shallower(b->m);
}

static void repr_dict(struct buf *b, const struct dict *d)
{
    const unsigned origin = d->input ? JINJA_INPUT : JINJA_TEMPLATE;
    jn_deeper(b->m);
    jn_buf_text(b, "{", origin);
    for (uint32_t i = 0; i < d->n; i++) {
        jn_spend(b->m, 0);
        if (i) jn_buf_text(b, ", ", origin);
        jn_print_repr(b, d->pairs[i].key);
        jn_buf_text(b, ": ", origin);
        jn_print_repr(b, d->pairs[i].value);
    }
    jn_buf_text(b, "}", origin);
    jn_shallower(b->m);
}

static void repr_range(struct buf *b, const struct range *r)
{
    const unsigned origin = r->input ? JINJA_INPUT : JINJA_TEMPLATE;
    if (r->step == 1)
        jn_buf_text(b, jn_words(b->m, "range(%lld, %lld)", (long long)r->start, (long long)r->stop), origin);
    else
        jn_buf_text(
            b, jn_words(b->m, "range(%lld, %lld, %lld)", (long long)r->start, (long long)r->stop, (long long)r->step),
            origin);
}

void jn_print_repr(struct buf *b, val v)
{
    switch ((enum kind)v.kind) {
    case V_UNDEFINED: jn_buf_text(b, "Undefined", JINJA_TEMPLATE); break;
    case V_NONE: jn_buf_text(b, "None", JINJA_TEMPLATE); break;
    case V_BOOL: jn_buf_text(b, v.u.b ? "True" : "False", JINJA_TEMPLATE); break;
    case V_INT:
    case V_BIG:
    case V_FLOAT: print_number(b, v); break;
    case V_STRING: repr_string(b, v.u.s); break;
    case V_LIST: repr_items(b, v, "[", "]", v.u.list->input); break;
    case V_TUPLE: repr_items(b, v, "(", ")", v.u.list->input); break;
    case V_DICT: repr_dict(b, v.u.dict); break;
    case V_VIEW:
        jn_buf_text(b, jn_type_name(v), JINJA_TEMPLATE);
        repr_items(b, v, "([", "])", v.u.dict->input);
        break;
    case V_RANGE: repr_range(b, v.u.range); break;
    case V_NAMESPACE:
        jn_buf_text(b, "<Namespace ", JINJA_TEMPLATE);
        repr_dict(b, v.u.dict);
        jn_buf_text(b, ">", JINJA_TEMPLATE);
        break;
    case V_LOOP: {
        const val index = jn_loop_attr(b->m, v.u.loop, jn_v_text(b->m, "index").u.s);
        const val n = jn_loop_attr(b->m, v.u.loop, jn_v_text(b->m, "length").u.s);
        jn_buf_text(b, "<LoopContext ", JINJA_TEMPLATE);
        print_number(b, index);
        jn_buf_text(b, "/", JINJA_TEMPLATE);
        print_number(b, n);
        jn_buf_text(b, ">", JINJA_TEMPLATE);
        break;
    }
    case V_MACRO: {
        const val name = jn_macro_attr(b->m, v, jn_v_text(b->m, "name").u.s);
        jn_buf_text(b, "<Macro ", JINJA_TEMPLATE);
        if (name.kind == V_STRING)
            jn_print_repr(b, name);
        else
            jn_buf_text(b, "anonymous", JINJA_TEMPLATE);
        jn_buf_text(b, ">", JINJA_TEMPLATE);
        break;
    }
    default: /* Python prints an address as well, which no two runs have in common */
        jn_buf_text(b, "<", JINJA_TEMPLATE);
        jn_buf_text(b, jn_type_name(v), JINJA_TEMPLATE);
        jn_buf_text(b, " object>", JINJA_TEMPLATE);
        break;
    }
}

void jn_print_str(struct buf *b, val v)
{
    if (v.kind == V_STRING)
        jn_buf_str(b, v.u.s);
    else if (v.kind != V_UNDEFINED)
        jn_print_repr(b, v);
}

const struct str *jn_to_str(struct vm *m, val v)
{
    if (v.kind == V_STRING) return v.u.s;
    struct buf b;
    jn_buf_open(&b, m);
    jn_print_str(&b, v);
    return jn_buf_value(&b, false).u.s;
}

const struct str *jn_soft_str(struct vm *m, val v) { return jn_to_str(m, v); }

/* --- JSON --- */

struct json {
    struct buf *b;
    bool ascii, sort_keys;
    const struct str *indent, *item_separator, *key_separator;
    uint32_t level;
};

static void json_escape(struct buf *b, uint32_t c, unsigned origin)
{
    char text[16];
    const char *const two = c == '"'    ? "\\\""
                            : c == '\\' ? "\\\\"
                            : c == '\n' ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                            : c == '\f' ? "\\f"
                            : c == '\b' ? "\\b"
                                        : NULL;
    if (two)
        (void)snprintf(text, sizeof text, "%s", two);
    else if (c < 0x10000)
        (void)snprintf(text, sizeof text, "\\u%04x", c);
    else
        (void)snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                       0xDC00 + ((c - 0x10000) & 0x3FF));
    jn_buf_text(b, text, origin);
}

static void json_string(struct json *j, const struct str *s)
{
    const unsigned origin = any_origin(s);
    uint32_t begin = 0, len;
    jn_spend_chars(j->b->m, s->n);
    jn_buf_text(j->b, "\"", origin);
    for (uint32_t i = 0; i < s->n; i += len) {
        const unsigned char first = (unsigned char)s->data[i];
        len = 1;
        if (first >= 0x20 && first != '"' && first != '\\' && (!j->ascii || first < 0x7F)) continue;
        const uint32_t c = jn_char_at(s, i, &len);
        jn_buf_slice(j->b, s, begin, i);
        json_escape(j->b, c, jn_str_origin(s, i));
        begin = i + len;
    }
    jn_buf_slice(j->b, s, begin, s->n);
    jn_buf_text(j->b, "\"", origin);
}

static void json_number(struct buf *b, val v)
{
    if (v.kind == V_FLOAT && !isfinite(v.u.f))
        jn_buf_text(b,
                    isnan(v.u.f) ? "NaN"
                    : v.u.f < 0  ? "-Infinity"
                                 : "Infinity",
                    v.input ? JINJA_INPUT : JINJA_TEMPLATE);
    else
        print_number(b, v);
}

static void json_line(struct json *j)
{
    if (!j->indent) return;
    jn_buf_text(j->b, "\n", JINJA_TEMPLATE);
    jn_buf_fill(j->b, j->indent, j->level);
}

static void json_value(struct json *j, val v);

static void json_key(struct json *j, val key)
{
    struct buf text;
    switch ((enum kind)key.kind) {
    case V_STRING: json_string(j, key.u.s); return;
    case V_BOOL: json_string(j, jn_v_text(j->b->m, key.u.b ? "true" : "false").u.s); return;
    case V_NONE: json_string(j, jn_v_text(j->b->m, "null").u.s); return;
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        jn_buf_open(&text, j->b->m);
        json_number(&text, key);
        json_string(j, jn_buf_value(&text, false).u.s);
        return;
    default: jn_fail(j->b->m, "keys must be str, int, float, bool or None, not %s", jn_type_name(key));
    }
}

struct key_sort {
    struct vm *m;
    const struct dict *d;
};

static int order_of_keys(void *context, uint32_t a, uint32_t b)
{
    const struct key_sort *k = context;
    const val x = k->d->pairs[a].key, y = k->d->pairs[b].key;
    return jn_compare(k->m, CMP_LT, x, y) ? -1 : jn_compare(k->m, CMP_LT, y, x);
}

static void json_dict(struct json *j, const struct dict *d)
{
    struct vm *m = j->b->m;
    const unsigned origin = d->input ? JINJA_INPUT : JINJA_TEMPLATE;
    uint32_t *places = NULL;
    if (j->sort_keys && d->n) {
        places = jn_heap_array(m, d->n, sizeof *places);
        for (uint32_t i = 0; i < d->n; i++) places[i] = i;
        jn_sort_places(m, places, d->n, order_of_keys, &(struct key_sort){ m, d });
    }
    jn_buf_text(j->b, "{", origin);
    j->level++;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct pair *p = &d->pairs[places ? places[i] : i];
        jn_spend(m, 0);
        if (i) jn_buf_str(j->b, j->item_separator);
        json_line(j);
        json_key(j, p->key);
        jn_buf_str(j->b, j->key_separator);
        json_value(j, p->value);
    }
    j->level--;
    if (d->n) json_line(j);
    jn_buf_text(j->b, "}", origin);
}

static void json_list(struct json *j, const struct list *l)
{
    const unsigned origin = l->input ? JINJA_INPUT : JINJA_TEMPLATE;
    jn_buf_text(j->b, "[", origin);
    j->level++;
    for (uint32_t i = 0; i < l->n; i++) {
        jn_spend(j->b->m, 0);
        if (i) jn_buf_str(j->b, j->item_separator);
        json_line(j);
        json_value(j, l->items[i]);
    }
    j->level--;
    if (l->n) json_line(j);
    jn_buf_text(j->b, "]", origin);
}

static void json_value(struct json *j, val v)
{
    struct vm *m = j->b->m;
    jn_deeper(m);
    switch ((enum kind)v.kind) {
    case V_NONE: jn_buf_text(j->b, "null", JINJA_TEMPLATE); break;
    case V_BOOL: jn_buf_text(j->b, v.u.b ? "true" : "false", JINJA_TEMPLATE); break;
    case V_INT:
    case V_BIG:
    case V_FLOAT: json_number(j->b, v); break;
    case V_STRING: json_string(j, v.u.s); break;
    case V_LIST:
    case V_TUPLE: json_list(j, v.u.list); break;
    case V_DICT: json_dict(j, v.u.dict); break;
    default: jn_fail(m, "Object of type %s is not JSON serializable", jn_type_name(v));
    }
    jn_shallower(m);
}

void jn_print_json(struct buf *b, val v, bool ascii, const struct str *indent, const struct str *item_separator,
                   const struct str *key_separator, bool sort_keys)
{
    struct json j = { b, ascii, sort_keys, indent, item_separator, key_separator, 0 };
    json_value(&j, v);
}
