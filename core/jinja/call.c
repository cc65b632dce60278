/* call.c: arguments, the functions that every template has, and the methods of values that are no strings. */
#include "internal.h"

#include <stdio.h>

/* The next name of a list of names; its length. 0: the end. */
static size_t next_name(const char **p)
{
    size_t n = 0;
    while (**p == ' ') ++*p;
    while ((*p)[n] && (*p)[n] != ' ') n++;
    return n;
}

void jn_bind(struct vm *m, const char *what, const struct args *a, const char *parameters, uint32_t required, val *out)
{
    const bool positional = *parameters == '/';
    const char *p = parameters + positional;
    uint32_t n = 0;
    uint64_t used = 0;
    for (size_t len; (len = next_name(&p)) != 0; p += len, n++) {
        out[n] = n < a->n_pos ? a->pos[n] : jn_v_missing();
        for (uint32_t k = 0; !positional && k < a->n_named && k < 64; k++) {
            const struct str *name = a->names[k].u.s;
            if (name->n != len || memcmp(name->data, p, len) != 0) continue;
            if (n < a->n_pos) jn_fail(m, "%s() got multiple values for argument '%.*s'", what, (int)len, p);
            out[n] = a->named[k];
            used |= (uint64_t)1 << k;
        }
        if (n < required && out[n].kind == V_MISSING)
            jn_fail(m, "%s() missing required argument '%.*s'", what, (int)len, p);
    }
    if (a->n_pos > n) jn_fail(m, "%s() takes at most %u arguments (%u given)", what, n, a->n_pos);
    for (uint32_t k = 0; k < a->n_named; k++)
        if (k >= 64 || !(used >> k & 1))
            jn_fail(m, "%s() got an unexpected keyword argument '%.*s'", what,
                    (int)(a->names[k].u.s->n < 99 ? a->names[k].u.s->n : 99), a->names[k].u.s->data);
}

int64_t jn_need_int(struct vm *m, val v, const char *what)
{
    int64_t i;
    if (!jn_is_integer(v)) jn_fail(m, "%s: '%s' object cannot be interpreted as an integer", what, jn_type_name(v));
    if (!jn_number_int64(v, &i)) jn_fail(m, "%s: an integer is too large", what);
    return i;
}

const struct str *jn_need_str(struct vm *m, val v, const char *what)
{
    if (v.kind != V_STRING) jn_fail(m, "%s: expected str, not %s", what, jn_type_name(v));
    return v.u.s;
}

/* --- Functions of the language --- */

enum global { G_RANGE, G_DICT, G_NAMESPACE, G_CYCLER, G_JOINER, G_LIPSUM, G_RAISE, G_STRFTIME };

static const char *const global_names[] = { "range",  "dict",   "namespace",       "cycler",
                                            "joiner", "lipsum", "raise_exception", "strftime_now" };

int jn_global_find(const struct str *name)
{
    for (size_t i = 0; i < sizeof global_names / sizeof global_names[0]; i++)
        if (jn_str_is(name, global_names[i])) return (int)i;
    return -1;
}

const char *jn_global_name(unsigned id) { return global_names[id]; }

static val make_range(struct vm *m, const struct args *a)
{
    int64_t bound[3] = { 0, 0, 1 };
    if (a->n_named) jn_fail(m, "range() takes no keyword arguments");
    if (a->n_pos < 1 || a->n_pos > 3) jn_fail(m, "range expected 1 to 3 arguments, got %u", a->n_pos);
    uint8_t input = 0;
    for (uint32_t i = 0; i < a->n_pos; i++) {
        if (jn_is_undefined(a->pos[i])) jn_fail_undefined(m, a->pos[i]);
        bound[a->n_pos == 1 ? 1 : i] = jn_need_int(m, a->pos[i], "range()");
        input |= a->pos[i].input;
    }
    if (!bound[2]) jn_fail(m, "range() arg 3 must not be zero");
    const int64_t step = bound[2];
    const unsigned __int128 way = step > 0
                                      ? (bound[1] > bound[0] ? (unsigned __int128)((__int128)bound[1] - bound[0]) : 0)
                                      : (bound[0] > bound[1] ? (unsigned __int128)((__int128)bound[0] - bound[1]) : 0);
    const unsigned __int128 stride = step > 0 ? (unsigned __int128)step : (unsigned __int128)(-(__int128)step);
    const unsigned __int128 n = way ? (way - 1) / stride + 1 : 0;
    if (n > JINJA_MAX_RANGE) jn_fail(m, "range too big: the sandbox blocks ranges larger than %d", JINJA_MAX_RANGE);
    struct range *r = jn_heap_take(m, sizeof *r);
    *r = (struct range){ bound[0], bound[1], step, (uint32_t)n, input };
    return (val){ .kind = V_RANGE, .u.range = r };
}

/* dict(mapping or pairs, **more) */
static struct dict *make_dict(struct vm *m, const char *what, const struct args *a)
{
    struct dict *d = jn_dict_new(m, 0);
    if (a->n_pos > 1) jn_fail(m, "%s expected at most 1 argument, got %u", what, a->n_pos);
    if (a->n_pos && jn_is_undefined(a->pos[0])) jn_fail_undefined(m, a->pos[0]);
    if (a->n_pos && a->pos[0].kind == V_DICT) {
        const struct dict *from = a->pos[0].u.dict;
        jn_spend_items(m, from->n);
        for (uint32_t i = 0; i < from->n; i++) jn_dict_put(m, d, from->pairs[i].key, from->pairs[i].value);
        d->input = from->input;
    } else if (a->n_pos) {
        struct iter i;
        jn_iter_open(m, &i, a->pos[0]);
        for (val item; jn_iter_next(m, &i, &item);) {
            const struct list *pair = jn_to_list(m, item);
            if (pair->n != 2) jn_fail(m, "%s: an element has length %u; 2 is required", what, pair->n);
            jn_dict_put(m, d, pair->items[0], pair->items[1]);
        }
    }
    for (uint32_t i = 0; i < a->n_named; i++) jn_dict_put(m, d, a->names[i], a->named[i]);
    return d;
}

static val make_cycler(struct vm *m, const struct args *a)
{
    if (a->n_named) jn_fail(m, "cycler() takes no keyword arguments");
    if (!a->n_pos) jn_fail(m, "at least one item has to be provided");
    struct cycler *c = jn_heap_take(m, sizeof *c);
    val *items = jn_heap_array(m, a->n_pos, sizeof *items);
    memcpy(items, a->pos, a->n_pos * sizeof *items);
    *c = (struct cycler){ items, a->n_pos, 0 };
    return (val){ .kind = V_CYCLER, .u.cycler = c };
}

static val make_joiner(struct vm *m, const struct args *a)
{
    val separator;
    jn_bind(m, "joiner", a, "sep", 0, &separator);
    struct joiner *j = jn_heap_take(m, sizeof *j);
    j->separator = separator.kind == V_MISSING ? jn_v_text(m, ", ") : separator;
    return (val){ .kind = V_JOINER, .u.joiner = j };
}

static val format_now(struct vm *m, const struct args *a)
{
    val format;
    jn_bind(m, "strftime_now", a, "format", 1, &format);
    struct buf b;
    jn_buf_open(&b, m);
    jn_format_time(&b, jn_need_str(m, format, "strftime_now()"), m->options->now, m->options->utc_offset);
    return jn_buf_value(&b, false);
}

static _Noreturn void raise(struct vm *m, const struct args *a)
{
    val message;
    jn_bind(m, "raise_exception", a, "message", 1, &message);
    const struct str *s = jn_to_str(m, message);
    if (s->n > JINJA_MAX_OUTPUT) jn_fail_limit(m, "more than %d bytes of an exception", JINJA_MAX_OUTPUT);
    char *text = jn_heap_take(m, (size_t)s->n + 1);
    memcpy(text, s->data, s->n);
    jn_fail_again(m, &(struct failure){ .end = JINJA_RAISED, .message = text });
}

val jn_global_call(struct vm *m, unsigned id, const struct args *a)
{
    switch ((enum global)id) {
    case G_RANGE: return make_range(m, a);
    case G_DICT: return (val){ .kind = V_DICT, .u.dict = make_dict(m, "dict", a) };
    case G_NAMESPACE: return (val){ .kind = V_NAMESPACE, .u.dict = make_dict(m, "namespace", a) };
    case G_CYCLER: return make_cycler(m, a);
    case G_JOINER: return make_joiner(m, a);
    case G_RAISE: raise(m, a);
    case G_STRFTIME: return format_now(m, a);
    case G_LIPSUM: jn_fail(m, "lipsum() makes random text, which is not supported");
    }
    jn_fail(m, "a function is unknown");
}

/* --- Methods of values that are no strings; a string's are in methods.c --- */

enum { FIRST_OTHER = 100 };
enum other {
    M_KEYS = FIRST_OTHER,
    M_VALUES,
    M_ITEMS,
    M_GET,
    M_COPY,
    M_FROMKEYS,
    M_INDEX,
    M_COUNT,
    M_CYCLE,
    M_CHANGED,
    M_NEXT,
    M_RESET,
    M_IS_INTEGER,
    M_BIT_LENGTH
};

int jn_method_find(val self, const struct str *name)
{
    static const struct {
        const char *name;
        uint32_t kinds;
        int id;
    } others[] = { { "keys", 1u << V_DICT, M_KEYS },
                   { "values", 1u << V_DICT, M_VALUES },
                   { "items", 1u << V_DICT, M_ITEMS },
                   { "get", 1u << V_DICT, M_GET },
                   { "copy", 1u << V_DICT | 1u << V_LIST, M_COPY },
                   { "fromkeys", 1u << V_DICT, M_FROMKEYS },
                   { "index", 1u << V_LIST | 1u << V_TUPLE | 1u << V_RANGE, M_INDEX },
                   { "count", 1u << V_LIST | 1u << V_TUPLE | 1u << V_RANGE, M_COUNT },
                   { "cycle", 1u << V_LOOP, M_CYCLE },
                   { "changed", 1u << V_LOOP, M_CHANGED },
                   { "next", 1u << V_CYCLER, M_NEXT },
                   { "reset", 1u << V_CYCLER, M_RESET },
                   { "is_integer", 1u << V_FLOAT, M_IS_INTEGER },
                   { "bit_length", 1u << V_INT | 1u << V_BIG | 1u << V_BOOL, M_BIT_LENGTH } };
    if (self.kind == V_STRING) return jn_str_method_find(name);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].kinds >> self.kind & 1 && jn_str_is(name, others[i].name)) return others[i].id;
    return -1;
}

val jn_global_item(struct vm *m, unsigned id, const struct str *name)
{
    if (id != G_DICT) return jn_v_missing();
    if (name && jn_str_is(name, "fromkeys")) {
        struct method *f = jn_heap_take(m, sizeof *f);
        *f = (struct method){ { .kind = V_DICT, .u.dict = jn_dict_new(m, 0) }, name, M_FROMKEYS };
        return (val){ .kind = V_METHOD, .u.method = f };
    }
    return (val){ .kind = V_FUNCTION, .aux = G_DICT };
}

static val view(val dict, enum view which) { return (val){ .kind = V_VIEW, .aux = which, .u.dict = dict.u.dict }; }

static val get(struct vm *m, const struct dict *d, const struct args *a)
{
    val v[2];
    jn_bind(m, "get", a, "/key default", 1, v);
    const val *found = jn_dict_find(m, d, v[0]);
    return found ? *found : v[1].kind == V_MISSING ? jn_v_none() : v[1];
}

static val copy(struct vm *m, val self, const struct args *a)
{
    jn_bind(m, "copy", a, "/", 0, NULL);
    if (self.kind == V_LIST) return jn_list_value(jn_to_list(m, self), V_LIST);
    return (val){ .kind = V_DICT, .u.dict = make_dict(m, "dict", &(struct args){ .pos = &self, .n_pos = 1 }) };
}

static val from_keys(struct vm *m, const struct args *a)
{
    val v[2];
    jn_bind(m, "fromkeys", a, "/iterable value", 1, v);
    struct dict *d = jn_dict_new(m, 0);
    struct iter i;
    jn_iter_open(m, &i, v[0]);
    for (val key; jn_iter_next(m, &i, &key);) jn_dict_put(m, d, key, v[1].kind == V_MISSING ? jn_v_none() : v[1]);
    return (val){ .kind = V_DICT, .u.dict = d };
}

static val position(struct vm *m, val self, const struct args *a, bool count)
{
    val v[3];
    jn_bind(m, count ? "count" : "index", a, count || self.kind == V_RANGE ? "/value" : "/value start stop", 1, v);
    const uint32_t n = jn_length(m, self);
    int64_t bounds[2] = { 0, n }, found = 0;
    for (int k = 0; k < 2 && !count && self.kind != V_RANGE; k++) {
        if (v[k + 1].kind == V_MISSING) continue;
        bounds[k] = jn_need_int(m, v[k + 1], "index()");
        if (bounds[k] < 0) bounds[k] += n;
    }
    struct iter i;
    jn_iter_open(m, &i, self);
    int64_t at = 0;
    for (val item; jn_iter_next(m, &i, &item); at++) {
        jn_spend(m, 0);
        if (at < bounds[0] || at >= bounds[1] || !jn_equal(m, item, v[0])) continue;
        if (!count) return jn_v_int(at);
        found++;
    }
    if (!count) jn_fail(m, "the value is not in %s", jn_type_name(self));
    return jn_v_int(found);
}

val jn_method_call(struct vm *m, const struct method *f, const struct args *a)
{
    const val self = f->self;
    if (self.kind == V_STRING) return jn_str_method(m, f->id, self.u.s, a);
    val result;
    switch ((enum other)f->id) {
    case M_KEYS: jn_bind(m, "keys", a, "/", 0, NULL); return view(self, VIEW_KEYS);
    case M_VALUES: jn_bind(m, "values", a, "/", 0, NULL); return view(self, VIEW_VALUES);
    case M_ITEMS: jn_bind(m, "items", a, "/", 0, NULL); return view(self, VIEW_ITEMS);
    case M_GET: return get(m, self.u.dict, a);
    case M_COPY: return copy(m, self, a);
    case M_FROMKEYS: return from_keys(m, a);
    case M_INDEX: return position(m, self, a, false);
    case M_COUNT: return position(m, self, a, true);
    case M_CYCLE:
    case M_CHANGED: return jn_loop_method(m, self.u.loop, f->name, a);
    case M_NEXT:
        jn_bind(m, "next", a, "/", 0, NULL);
        result = self.u.cycler->items[self.u.cycler->at];
        self.u.cycler->at = (self.u.cycler->at + 1) % self.u.cycler->n;
        return result;
    case M_RESET:
        jn_bind(m, "reset", a, "/", 0, NULL);
        self.u.cycler->at = 0;
        return jn_v_none();
    case M_IS_INTEGER:
        jn_bind(m, "is_integer", a, "/", 0, NULL);
        return jn_v_bool(self.u.f - self.u.f == 0 && self.u.f == __builtin_floor(self.u.f));
    case M_BIT_LENGTH: {
        jn_bind(m, "bit_length", a, "/", 0, NULL);
        const char *bits = jn_number_text(m, self, 2);
        const size_t n = strlen(bits) - (*bits == '-');
        return jn_v_int(strcmp(bits, "0") == 0 ? 0 : (int64_t)n);
    }
    }
    jn_fail(m, "a method is unknown");
}
