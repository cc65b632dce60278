/* ops.c: operators, attributes and subscripts. */
#include "internal.h"

static val concat_lists(struct vm *m, val a, val b)
{
    const struct list *x = a.u.list, *y = b.u.list;
    jn_spend(m, ((size_t)x->n + y->n) * sizeof(val));
    struct list *l = jn_list_new(m, x->n + y->n);
    for (uint32_t i = 0; i < x->n; i++) jn_list_push(m, l, x->items[i]);
    for (uint32_t i = 0; i < y->n; i++) jn_list_push(m, l, y->items[i]);
    l->input = x->input && y->input;
    return jn_list_value(l, a.kind);
}

static val add(struct vm *m, val a, val b)
{
    if (a.kind == V_STRING && b.kind == V_STRING) {
        const bool markup = a.u.s->markup || b.u.s->markup;
        if (markup && !a.u.s->markup) a = jn_str_escape(m, a.u.s);
        if (markup && !b.u.s->markup) b = jn_str_escape(m, b.u.s);
        return jn_str_concat(m, a.u.s, b.u.s, markup);
    }
    if ((a.kind == V_LIST || a.kind == V_TUPLE) && a.kind == b.kind) return concat_lists(m, a, b);
    if (a.kind == V_STRING) jn_fail(m, "can only concatenate str (not \"%s\") to str", jn_type_name(b));
    return jn_v_missing();
}

/* n times a list or a string. */
static val repeat(struct vm *m, val v, val times)
{
    int64_t n;
    if (!jn_number_int64(times, &n)) jn_fail(m, "cannot fit 'int' into an index-sized integer");
    if (v.kind == V_STRING) return jn_str_repeat(m, v.u.s, n);
    const struct list *l = v.u.list;
    if (n <= 0 || !l->n) return jn_list_value(jn_list_new(m, 0), v.kind);
    if (n > (int64_t)(JINJA_MAX_MEMORY / sizeof(val) / l->n))
        jn_fail_limit(m, "values take more than %d bytes", JINJA_MAX_MEMORY);
    jn_spend_items(m, (size_t)n * l->n);
    struct list *out = jn_list_new(m, (uint32_t)n * l->n);
    for (int64_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < l->n; k++) out->items[out->n++] = l->items[k];
    return jn_list_value(out, v.kind);
}

static bool repeatable(val v) { return v.kind == V_STRING || v.kind == V_LIST || v.kind == V_TUPLE; }

val jn_binary(struct vm *m, enum binary op, val a, val b)
{
    static const char *const signs[] = { "+", "-", "*", "/", "//", "%", "** or pow()" };
    if (a.kind == V_STRING && op == BIN_MOD) return jn_format_percent(m, a.u.s, b);
    if (jn_is_undefined(a)) jn_fail_undefined(m, a);
    if (jn_is_undefined(b)) jn_fail_undefined(m, b);
    if (jn_is_number(a) && jn_is_number(b)) {
        switch (op) {
        case BIN_ADD: return jn_number_add(m, a, b);
        case BIN_SUB: return jn_number_sub(m, a, b);
        case BIN_MUL: return jn_number_mul(m, a, b);
        case BIN_DIV: return jn_number_div(m, a, b);
        case BIN_FLOOR_DIV: return jn_number_floor_div(m, a, b);
        case BIN_MOD: return jn_number_mod(m, a, b);
        case BIN_POW: return jn_number_pow(m, a, b);
        }
    }
    if (op == BIN_ADD) {
        const val v = add(m, a, b);
        if (v.kind != V_MISSING) return v;
    }
    if (op == BIN_MUL && repeatable(a) && jn_is_integer(b)) return repeat(m, a, b);
    if (op == BIN_MUL && repeatable(b) && jn_is_integer(a)) return repeat(m, b, a);
    jn_fail(m, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op], jn_type_name(a), jn_type_name(b));
}

static val unary(struct vm *m, val v, const char *sign)
{
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (!jn_is_number(v)) jn_fail(m, "bad operand type for unary %s: '%s'", sign, jn_type_name(v));
    if (v.kind == V_BOOL) return jn_v_int(v.u.b);
    return v;
}

val jn_unary_minus(struct vm *m, val v) { return jn_number_neg(m, unary(m, v, "-")); }
val jn_unary_plus(struct vm *m, val v) { return unary(m, v, "+"); }

uint32_t jn_length(struct vm *m, val v)
{
    switch ((enum kind)v.kind) {
    case V_UNDEFINED: return 0;
    case V_STRING: jn_spend(m, v.u.s->n); return jn_str_chars(v.u.s);
    case V_LIST:
    case V_TUPLE: return v.u.list->n;
    case V_DICT:
    case V_VIEW: return v.u.dict->n;
    case V_RANGE: return v.u.range->n;
    case V_LOOP: {
        int64_t n = 0;
        (void)jn_number_int64(jn_loop_attr(m, v.u.loop, jn_v_text(m, "length").u.s), &n);
        return (uint32_t)n;
    }
    default: jn_fail(m, "object of type '%s' has no len()", jn_type_name(v));
    }
}

/* --- Attributes --- */

static bool among(const struct str *name, const char *const *names)
{
    for (; *names; names++)
        if (jn_str_is(name, *names)) return true;
    return false;
}

/* What the sandbox hides: private names, and methods that would change a value. */
static bool unsafe(val v, const struct str *name)
{
    static const char *const lists[] = {
        "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL
    };
    static const char *const dicts[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };
    if (v.kind == V_LIST) return among(name, lists);
    return v.kind == V_DICT && among(name, dicts);
}

static bool is_private(const struct str *name)
{
    static const char *const known[] = { "__class__",        "__doc__",          "__init__",
                                         "__dir__",          "__eq__",           "__format__",
                                         "__getattribute__", "__hash__",         "__init_subclass__",
                                         "__new__",          "__reduce__",       "__reduce_ex__",
                                         "__repr__",         "__setattr__",      "__sizeof__",
                                         "__str__",          "__subclasshook__", "__delattr__",
                                         "__ne__",           "__lt__",           "__le__",
                                         "__gt__",           "__ge__",           NULL };
    static const char *const containers[] = { "__len__",     "__getitem__", "__contains__", "__iter__",
                                              "__add__",     "__mul__",     "__rmul__",     "__mod__",
                                              "__setitem__", "__delitem__", "__call__",     "__bool__",
                                              NULL };
    if (name->n < 2 || name->data[0] != '_' || name->data[1] != '_') return false;
    return among(name, known) || among(name, containers);
}

static val unsafe_attribute(struct vm *m, val v, const struct str *name)
{
    return jn_v_undefined(m, jn_words(m, "access to attribute '%.*s' of '%s' object is unsafe",
                                      (int)(name->n < 99 ? name->n : 99), name->data, jn_type_name(v)));
}

static val bound(struct vm *m, val v, const struct str *name, int id)
{
    struct method *f = jn_heap_take(m, sizeof *f);
    *f = (struct method){ v, name, (uint16_t)id };
    return (val){ .kind = V_METHOD, .u.method = f };
}

static val number_attribute(val v, const struct str *name)
{
    static const char *const same[] = { "real", NULL }, *const whole[] = { "numerator", NULL };
    if (!jn_is_number(v)) return jn_v_missing();
    if (v.kind == V_BOOL) v = jn_v_int(v.u.b);
    if (among(name, same) || (jn_is_integer(v) && among(name, whole))) return v;
    if (jn_str_is(name, "imag")) return v.kind == V_FLOAT ? jn_v_float(0) : jn_v_int(0);
    return jn_is_integer(v) && jn_str_is(name, "denominator") ? jn_v_int(1) : jn_v_missing();
}

static val range_attribute(val v, const struct str *name)
{
    const struct range *r = v.u.range;
    val out = jn_v_missing();
    if (jn_str_is(name, "start")) out = jn_v_int(r->start);
    if (jn_str_is(name, "stop")) out = jn_v_int(r->stop);
    if (jn_str_is(name, "step")) out = jn_v_int(r->step);
    out.input = r->input;
    return out;
}

/* An attribute that is no item: methods and the like. V_MISSING: there is none. */
static val own_attribute(struct vm *m, val v, const struct str *name)
{
    if (v.kind == V_NAMESPACE) {
        const val *found = jn_dict_find_str(v.u.dict, name);
        return found ? (name->n && name->data[0] == '_' ? unsafe_attribute(m, v, name) : *found) : jn_v_missing();
    }
    if (is_private(name) || unsafe(v, name)) return unsafe_attribute(m, v, name);
    const int id = jn_method_find(v, name);
    if (id >= 0) return bound(m, v, name, id);
    if (v.kind == V_LOOP) return jn_loop_attr(m, v.u.loop, name);
    if (v.kind == V_RANGE) return range_attribute(v, name);
    if (v.kind == V_TUPLE && v.u.list->group) {
        if (jn_str_is(name, "grouper")) return v.u.list->items[0];
        if (jn_str_is(name, "list")) return v.u.list->items[1];
    }
    if (v.kind == V_CYCLER && jn_str_is(name, "current")) return v.u.cycler->items[v.u.cycler->at];
    if (v.kind == V_CYCLER && jn_str_is(name, "items")) {
        struct list *l = jn_list_new(m, v.u.cycler->n);
        for (uint32_t i = 0; i < v.u.cycler->n; i++) jn_list_push(m, l, v.u.cycler->items[i]);
        return jn_list_value(l, V_TUPLE);
    }
    if (v.kind == V_SELF) return jn_block_of(m, name);
    if (v.kind == V_FUNCTION) return jn_global_item(m, v.aux, name);
    if (v.kind == V_MACRO) return jn_macro_attr(m, v, name);
    return number_attribute(v, name);
}

val jn_get_attr(struct vm *m, val v, const struct str *name)
{
    if (jn_is_undefined(v) && !is_private(name)) jn_fail_undefined(m, v);
    const val own = own_attribute(m, v, name);
    if (own.kind != V_MISSING) return own;
    if (v.kind == V_DICT) {
        const val *found = jn_dict_find_str(v.u.dict, name);
        if (found) return *found;
    }
    return jn_v_undefined_name(m, jn_type_name(v), name);
}

static bool index_of(val key, uint32_t n, uint32_t *at)
{
    int64_t i;
    if (!jn_is_integer(key) || !jn_number_int64(key, &i)) return false;
    if (i < 0) i += n;
    *at = (uint32_t)i;
    return i >= 0 && i < n;
}

static val character(struct vm *m, const struct str *s, uint32_t at)
{
    uint32_t len;
    jn_spend_chars(m, at);
    const uint32_t byte = jn_str_chars(s) == s->n ? at : jn_str_byte(s, at);
    (void)jn_char_at(s, byte, &len);
    return jn_str_slice(m, s, byte, byte + len, s->markup);
}

/* The bounds of a slice over n items, as slice.indices() computes them; the number of items. */
static uint32_t slice_bounds(struct vm *m, const val *parts, uint32_t n, int64_t *start, int64_t *stop, int64_t *step)
{
    int64_t bound[3] = { 0, 0, 1 };
    for (int i = 0; i < 3; i++) {
        if (jn_is_undefined(parts[i])) jn_fail(m, "slice indices must be integers or None or have an __index__ method");
        if (parts[i].kind == V_NONE) continue;
        if (!jn_is_integer(parts[i])) jn_fail(m, "slice indices must be integers or None or have an __index__ method");
        if (!jn_number_int64(parts[i], &bound[i]))
            bound[i] = jn_number_negative(parts[i]) ? INT64_MIN / 2 : INT64_MAX / 2;
        if (bound[i] < INT64_MIN / 2) bound[i] = INT64_MIN / 2;
        if (bound[i] > INT64_MAX / 2) bound[i] = INT64_MAX / 2;
    }
    if (bound[2] == 0) jn_fail(m, "slice step cannot be zero");
    const bool back = bound[2] < 0;
    const int64_t low = back ? -1 : 0, high = back ? (int64_t)n - 1 : n;
    for (int i = 0; i < 2; i++) {
        if (parts[i].kind == V_NONE) {
            bound[i] = (i == 0) != back ? low : high;
            continue;
        }
        if (bound[i] < 0) bound[i] += n;
        if (bound[i] < low) bound[i] = low;
        if (bound[i] > high) bound[i] = high;
    }
    *start = bound[0];
    *stop = bound[1];
    *step = bound[2];
    const int64_t way = back ? bound[0] - bound[1] : bound[1] - bound[0], stride = back ? -bound[2] : bound[2];
    return way <= 0 ? 0 : (uint32_t)((way - 1) / stride + 1);
}

static val slice_string(struct vm *m, const struct str *s, const val *parts)
{
    int64_t start, stop, step;
    const uint32_t chars = jn_str_chars(s), n = slice_bounds(m, parts, chars, &start, &stop, &step);
    jn_spend(m, s->n);
    if (!n) return jn_str_slice(m, s, 0, 0, s->markup);
    const bool plain = chars == s->n;
    if (step == 1) {
        const uint32_t begin = plain ? (uint32_t)start : jn_str_byte(s, (uint32_t)start);
        if (plain) return jn_str_slice(m, s, begin, begin + n, s->markup);
        const struct str rest = { .data = s->data + begin, .n = s->n - begin };
        return jn_str_slice(m, s, begin, begin + jn_str_byte(&rest, n), s->markup);
    }
    uint32_t *places = NULL; /* of each character */
    if (!plain) {
        places = jn_heap_array(m, chars, sizeof *places);
        for (uint32_t i = 0, at = 0, len; i < chars; i++, at += len) {
            places[i] = at;
            (void)jn_char_at(s, at, &len);
        }
    }
    jn_spend_items(m, n / 4);
    struct buf b;
    jn_buf_open(&b, m);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = (uint32_t)(start + (int64_t)i * step), byte = places ? places[at] : at;
        uint32_t len;
        (void)jn_char_at(s, byte, &len);
        jn_buf_slice(&b, s, byte, byte + len);
    }
    return jn_buf_value(&b, s->markup);
}

static val slice_of(struct vm *m, val v, const val *parts)
{
    int64_t start, stop, step;
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (v.kind == V_STRING) return slice_string(m, v.u.s, parts);
    if (v.kind == V_RANGE) {
        const struct range *r = v.u.range;
        const uint32_t n = slice_bounds(m, parts, r->n, &start, &stop, &step);
        struct range *out = jn_heap_take(m, sizeof *out);
        out->start = r->start + start * r->step;
        out->step = r->step * step;
        out->n = n;
        out->stop = r->start + stop * r->step;
        out->input = r->input;
        return (val){ .kind = V_RANGE, .u.range = out };
    }
    if (v.kind != V_LIST && v.kind != V_TUPLE) jn_fail(m, "'%s' object is not subscriptable", jn_type_name(v));
    const struct list *l = v.u.list;
    const uint32_t n = slice_bounds(m, parts, l->n, &start, &stop, &step);
    jn_spend_items(m, n / 4);
    struct list *out = jn_list_new(m, n);
    for (uint32_t i = 0; i < n; i++) out->items[out->n++] = l->items[start + (int64_t)i * step];
    out->input = l->input;
    return jn_list_value(out, v.kind);
}

val jn_get_item(struct vm *m, val v, val key)
{
    uint32_t at;
    if (key.kind == V_SLICE) return slice_of(m, v, key.u.slice);
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    switch ((enum kind)v.kind) {
    case V_STRING:
        jn_spend(m, v.u.s->n);
        if (jn_is_integer(key) && index_of(key, jn_str_chars(v.u.s), &at)) return character(m, v.u.s, at);
        break;
    case V_LIST:
    case V_TUPLE:
        if (index_of(key, v.u.list->n, &at)) return v.u.list->items[at];
        break;
    case V_RANGE:
        if (index_of(key, v.u.range->n, &at)) {
            val i = jn_v_int(v.u.range->start + (int64_t)at * v.u.range->step);
            i.input = v.u.range->input;
            return i;
        }
        break;
    case V_DICT: {
        if (key.kind == V_LIST || key.kind == V_DICT) break;
        const val *found = jn_dict_find(m, v.u.dict, key);
        if (found) return *found;
        break;
    }
    case V_FUNCTION: {
        const val own = jn_global_item(m, v.aux, key.kind == V_STRING ? key.u.s : NULL);
        if (own.kind != V_MISSING) return own;
        break;
    }
    default: break;
    }
    if (key.kind == V_STRING) {
        const val own = own_attribute(m, v, key.u.s);
        if (own.kind != V_MISSING) return own;
        return jn_v_undefined_name(m, jn_type_name(v), key.u.s);
    }
    return jn_v_undefined_name(m, jn_type_name(v), jn_to_str(m, key));
}
