/* pprint.c: the filter pprint: a value as Python's pprint.pformat() writes it, at most 80 characters wide where that
 * can be done, dicts in the order of their keys. */
#include "filters.h"

enum { WIDTH = 80 };

/* ---- the order of a dict's keys ------------------------------------------------------------------------ */

/* Types that cannot be compared stand in the order of their names. */
static const char *type_of(val v)
{
    switch ((enum kind)v.kind) {
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT:
    case V_BIG: return "int";
    case V_FLOAT: return "float";
    case V_STRING: return v.u.s->markup ? "markupsafe.Markup" : "str";
    case V_TUPLE: return "tuple";
    default: return jn_type_name(v);
    }
}

struct ordering {
    struct vm *m;
    const struct pair *pairs;
};

static int key_order(void *context, uint32_t i, uint32_t k)
{
    const struct ordering *o = context;
    const val a = o->pairs[i].key, b = o->pairs[k].key;
    jn_spend(o->m, a.kind == V_STRING ? a.u.s->n : 0);
    if (jn_is_number(a) && jn_is_number(b)) {
        const int order = jn_number_order(o->m, a, b);
        return order == 2 ? 0 : order; /* NaN */
    }
    if (a.kind == V_STRING && b.kind == V_STRING) return jn_str_order(a.u.s, b.u.s);
    return a.kind == b.kind ? jn_key_order(a, b) : strcmp(type_of(a), type_of(b));
}

static uint32_t *places_of(struct vm *m, const struct dict *d)
{
    uint32_t *places = jn_heap_array(m, d->n, sizeof *places);
    for (uint32_t i = 0; i < d->n; i++) places[i] = i;
    jn_sort_places(m, places, d->n, key_order, &(struct ordering){ m, d->pairs });
    return places;
}

/* ---- on one line --------------------------------------------------------------------------------------- */

static unsigned origin_of(val v)
{
    return (v.kind == V_DICT ? v.u.dict->input : v.u.list->input) ? JINJA_INPUT : JINJA_TEMPLATE;
}

static const char *closing(val v)
{
    return v.kind == V_DICT ? "}" : v.kind == V_LIST ? "]" : v.u.list->n == 1 ? ",)" : ")";
}

static void open_container(struct buf *b, val v)
{
    jn_buf_text(b, v.kind == V_DICT ? "{" : v.kind == V_LIST ? "[" : "(", origin_of(v));
}

static void print_line(struct buf *b, val v)
{
    struct vm *const m = b->m;
    if (v.kind != V_DICT && v.kind != V_LIST && v.kind != V_TUPLE) {
        jn_print_repr(b, v);
        return;
    }
    jn_deeper(m);
    open_container(b, v);
    const uint32_t *const places = v.kind == V_DICT ? places_of(m, v.u.dict) : NULL;
    const uint32_t n = places ? v.u.dict->n : v.u.list->n;
    for (uint32_t i = 0; i < n; i++) {
        jn_spend(m, 0);
        if (i) jn_buf_text(b, ", ", origin_of(v));
        if (places) {
            print_line(b, v.u.dict->pairs[places[i]].key);
            jn_buf_text(b, ": ", origin_of(v));
        }
        print_line(b, places ? v.u.dict->pairs[places[i]].value : v.u.list->items[i]);
    }
    jn_buf_text(b, closing(v), origin_of(v));
    jn_shallower(m);
}

static const struct str *line_of(struct vm *m, val v)
{
    struct buf b;
    jn_buf_open(&b, m);
    print_line(&b, v);
    return jn_buf_value(&b, false).u.s;
}

/* ---- on several lines ---------------------------------------------------------------------------------- */

static void new_line(struct buf *b, int64_t indent, unsigned origin)
{
    jn_buf_text(b, "\n", origin);
    jn_buf_fill(b, jn_v_text(b->m, " ").u.s, indent);
}

/* The end of a run of characters that are no space and of the spaces behind it. */
static uint32_t part_end(const struct str *s, uint32_t at)
{
    uint32_t len;
    while (at < s->n && !jn_char_is_space(jn_char_at(s, at, &len))) at += len;
    while (at < s->n && jn_char_is_space(jn_char_at(s, at, &len))) at += len;
    return at;
}

/* One line of a text that is too wide: as few pieces as fit, cut behind spaces. `last`: what the last piece leaves free
 * at its end. */
static void cut_line(struct vm *m, const struct str *line, int64_t width, int64_t last, struct list *chunks)
{
    uint32_t begin = 0, end = 0;
    for (uint32_t stop; end < line->n; end = stop) {
        stop = part_end(line, end);
        const int64_t room = stop == line->n ? width - last : width;
        const val candidate = jn_str_slice(m, line, begin, stop, line->markup);
        jn_spend(m, candidate.u.s->n);
        if (jn_str_chars(line_of(m, candidate)) <= room) continue;
        if (end > begin) {
            const val chunk = { .kind = V_STRING, .u.s = line_of(m, jn_str_slice(m, line, begin, end, line->markup)) };
            jn_list_push(m, chunks, chunk);
        }
        begin = end;
    }
    if (begin < line->n) {
        const val chunk = { .kind = V_STRING, .u.s = line_of(m, jn_str_slice(m, line, begin, line->n, line->markup)) };
        jn_list_push(m, chunks, chunk);
    }
}

/* As Python writes adjacent literals; `alone`: in brackets, since nothing else is around them. */
static void print_text(struct buf *b, const struct str *s, int64_t indent, int64_t allowance, bool alone)
{
    struct vm *const m = b->m;
    const struct list *const lines = jn_str_lines(m, s, true);
    struct list *const chunks = jn_list_new(m, 0);
    indent += alone;
    allowance += alone;
    const int64_t width = WIDTH - indent;
    for (uint32_t i = 0; i < lines->n; i++) {
        const int64_t last = i + 1 == lines->n ? allowance : 0;
        const val rep = { .kind = V_STRING, .u.s = line_of(m, lines->items[i]) };
        if (jn_str_chars(rep.u.s) <= width - last)
            jn_list_push(m, chunks, rep);
        else
            cut_line(m, lines->items[i].u.s, width, last, chunks);
    }
    const bool brackets = alone && chunks->n > 1;
    if (brackets) jn_buf_text(b, "(", JINJA_TEMPLATE);
    for (uint32_t i = 0; i < chunks->n; i++) {
        if (i) new_line(b, indent, JINJA_TEMPLATE);
        jn_buf_str(b, chunks->items[i].u.s);
    }
    if (brackets) jn_buf_text(b, ")", JINJA_TEMPLATE);
}

static void print_value(struct buf *b, val v, int64_t indent, int64_t allowance, bool alone);

static void print_items(struct buf *b, val v, int64_t indent, int64_t allowance)
{
    struct vm *const m = b->m;
    const uint32_t *const places = v.kind == V_DICT ? places_of(m, v.u.dict) : NULL;
    const uint32_t n = places ? v.u.dict->n : v.u.list->n;
    open_container(b, v);
    for (uint32_t i = 0; i < n; i++) {
        int64_t at = indent + 1;
        if (i) {
            jn_buf_text(b, ",", origin_of(v));
            new_line(b, at, origin_of(v));
        }
        if (places) {
            const struct str *const key = line_of(m, v.u.dict->pairs[places[i]].key);
            jn_buf_str(b, key);
            jn_buf_text(b, ": ", origin_of(v));
            at += (int64_t)jn_str_chars(key) + 2;
        }
        print_value(b, places ? v.u.dict->pairs[places[i]].value : v.u.list->items[i], at,
                    i + 1 == n ? allowance + (int64_t)strlen(closing(v)) : 1, false);
    }
    jn_buf_text(b, closing(v), origin_of(v));
}

/* indent: characters before the value; allowance: what comes behind it on its last line. */
static void print_value(struct buf *b, val v, int64_t indent, int64_t allowance, bool alone)
{
    const struct str *const line = line_of(b->m, v);
    const bool text = v.kind == V_STRING && v.u.s->n && !v.u.s->markup;
    jn_deeper(b->m);
    if (jn_str_chars(line) <= WIDTH - indent - allowance)
        jn_buf_str(b, line);
    else if (text)
        print_text(b, v.u.s, indent, allowance, alone);
    else if (v.kind == V_DICT || v.kind == V_LIST || v.kind == V_TUPLE)
        print_items(b, v, indent, allowance);
    else
        jn_buf_str(b, line);
    jn_shallower(b->m);
}

val jn_f_pprint(struct vm *m, val v, const struct args *a)
{
    struct buf b;
    jn_bind(m, "pprint", a, "", 0, NULL);
    jn_buf_open(&b, m);
    print_value(&b, v, 0, 0, true);
    return jn_buf_value(&b, false);
}
