/* value.c: containers, truth, equality, order and iteration as Python has them. */
#include "big.h"

enum { LOOKED_AT = 8 /* a dict of so many keys needs no order */ };

val jn_v_undefined(struct vm *m, const char *text)
{
    struct undefined *u = jn_heap_take(m, sizeof *u);
    u->words = text;
    return (val){ .kind = V_UNDEFINED, .u.undefined = u };
}

val jn_v_undefined_name(struct vm *m, const char *type, const struct str *name)
{
    if (!m->undefined || m->undefined->type != type || m->undefined->name != name) {
        struct undefined *u = jn_heap_take(m, sizeof *u);
        u->type = type;
        u->name = name;
        m->undefined = u;
    }
    return (val){ .kind = V_UNDEFINED, .u.undefined = m->undefined };
}

void jn_fail_undefined(struct vm *m, val v)
{
    const struct undefined *u = v.u.undefined;
    if (u->words) jn_fail(m, "%s", u->words);
    const int n = (int)(u->name->n < 200 ? u->name->n : 200);
    if (u->type) jn_fail(m, "'%s object' has no attribute '%.*s'", u->type, n, u->name->data);
    jn_fail(m, "'%.*s' is undefined", n, u->name->data);
}

struct list *jn_list_new(struct vm *m, uint32_t cap)
{
    struct list *l = jn_heap_take(m, sizeof *l);
    if (cap) l->items = jn_heap_array(m, cap, sizeof *l->items);
    l->cap = cap;
    return l;
}

void jn_list_push(struct vm *m, struct list *l, val v)
{
    l->items = jn_heap_grow(m, l->items, l->n, &l->cap, (size_t)l->n + 1, sizeof *l->items);
    l->items[l->n++] = v;
}

val jn_list_value(struct list *l, enum kind kind) { return (val){ .kind = (uint8_t)kind, .u.list = l }; }

val jn_tuple2(struct vm *m, val a, val b)
{
    struct list *l = jn_list_new(m, 2);
    l->items[0] = a;
    l->items[1] = b;
    l->n = 2;
    return jn_list_value(l, V_TUPLE);
}

struct dict *jn_dict_new(struct vm *m, uint32_t cap)
{
    struct dict *d = jn_heap_take(m, sizeof *d);
    if (cap) d->pairs = jn_heap_array(m, cap, sizeof *d->pairs);
    d->cap = cap;
    return d;
}

enum { LONG_KEY = 255 /* bytes */ };

void jn_check_key(struct vm *m, val key)
{
    if (key.kind == V_LIST || key.kind == V_DICT || key.kind == V_SLICE ||
        (key.kind == V_VIEW && key.aux != VIEW_VALUES))
        jn_fail(m, "unhashable type: '%s'", jn_type_name(key));
    if (key.kind == V_STRING && key.u.s->n > LONG_KEY) jn_spend(m, key.u.s->n); /* it will be compared */
    if (key.kind != V_TUPLE) return;
    jn_deeper(m);
    for (uint32_t i = 0; i < key.u.list->n; i++) { /* one tuple may be in another many times over */
        jn_spend(m, 0);
        jn_check_key(m, key.u.list->items[i]);
    }
    jn_shallower(m);
}

static int key_class(val v)
{
    return v.kind == V_NONE ? 0 : jn_is_number(v) ? 1 : v.kind == V_STRING ? 2 : v.kind == V_TUPLE ? 3 : 4 + v.kind;
}

/* Numbers as keys, without a heap: exact for what fits 64 bits, as a double beyond, and then by digits. */
static int number_key_order(val a, val b)
{
    int64_t x, y;
    if (jn_is_integer(a) && jn_is_integer(b)) {
        if (jn_number_int64(a, &x) && jn_number_int64(b, &y)) return (x > y) - (x < y);
        if (a.kind == V_BIG && b.kind == V_BIG) return jn_big_order(a.u.big, b.u.big);
        return a.kind == V_BIG ? (a.u.big->negative ? -1 : 1) : (b.u.big->negative ? 1 : -1);
    }
    double f = 0, g = 0;
    if (a.kind == V_FLOAT)
        f = a.u.f;
    else if (a.kind != V_BIG && jn_number_int64(a, &x))
        f = (double)x;
    else
        (void)jn_big_double(a.u.big, &f);
    if (b.kind == V_FLOAT)
        g = b.u.f;
    else if (b.kind != V_BIG && jn_number_int64(b, &y))
        g = (double)y;
    else
        (void)jn_big_double(b.u.big, &g);
    if (f != f || g != g) return (f != f) - (g != g);
    return (f > g) - (f < g);
}

int jn_key_order(val a, val b)
{
    const int ca = key_class(a), cb = key_class(b);
    if (ca != cb) return ca - cb;
    switch (ca) {
    case 0: return 0;
    case 1: return number_key_order(a, b);
    case 2: return jn_str_order(a.u.s, b.u.s);
    case 3:
        for (uint32_t i = 0; i < a.u.list->n && i < b.u.list->n; i++) { /* check_key has bounded the depth */
            const int o = jn_key_order(a.u.list->items[i], b.u.list->items[i]);
            if (o) return o;
        }
        return (a.u.list->n > b.u.list->n) - (a.u.list->n < b.u.list->n);
    default:
        if (a.kind == V_UNDEFINED) return 0;
        if (a.kind == V_FUNCTION) return (a.aux > b.aux) - (a.aux < b.aux);
        return ((uintptr_t)a.u.list > (uintptr_t)b.u.list) - ((uintptr_t)a.u.list < (uintptr_t)b.u.list);
    }
}

/* Where the key is, or would be, in the sorted places. */
static uint32_t sorted_place(const struct dict *d, val key, bool *there)
{
    uint32_t low = 0, high = d->n_sorted;
    *there = false;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const int o = jn_key_order(d->pairs[d->sorted[mid]].key, key);
        if (o == 0) {
            *there = true;
            return mid;
        }
        if (o < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct pair *lookup(const struct dict *d, val key)
{
    if (d->sorted) {
        bool there;
        const uint32_t place = sorted_place(d, key, &there);
        return there ? &d->pairs[d->sorted[place]] : NULL;
    }
    for (uint32_t i = 0; i < d->n; i++) {
        const val k = d->pairs[i].key;
        if (k.kind == V_STRING && key.kind == V_STRING ? jn_str_same(k.u.s, key.u.s) : jn_key_order(k, key) == 0)
            return &d->pairs[i];
    }
    return NULL;
}

const val *jn_dict_find(struct vm *m, const struct dict *d, val key)
{
    jn_check_key(m, key);
    const struct pair *p = lookup(d, key);
    return p ? &p->value : NULL;
}

const val *jn_dict_find_str(const struct dict *d, const struct str *key)
{
    const struct pair *p = lookup(d, (val){ .kind = V_STRING, .u.s = key });
    return p ? &p->value : NULL;
}

static int pair_order(void *context, uint32_t a, uint32_t b)
{
    const struct dict *d = context;
    return jn_key_order(d->pairs[a].key, d->pairs[b].key);
}

static void sort_keys(struct vm *m, struct dict *d)
{
    d->sorted = jn_heap_array(m, d->cap, sizeof *d->sorted);
    for (uint32_t i = 0; i < d->n; i++) d->sorted[i] = i;
    d->n_sorted = d->n;
    jn_sort_places(m, d->sorted, d->n, pair_order, d);
}

void jn_dict_put(struct vm *m, struct dict *d, val key, val value)
{
    jn_check_key(m, key);
    struct pair *p = lookup(d, key);
    if (p) {
        p->value = value;
        return;
    }
    const uint32_t cap = d->cap;
    d->pairs = jn_heap_grow(m, d->pairs, d->n, &d->cap, (size_t)d->n + 1, sizeof *d->pairs);
    d->pairs[d->n++] = (struct pair){ key, value };
    if (!d->sorted) {
        if (d->n > LOOKED_AT) sort_keys(m, d);
        return;
    }
    if (d->cap != cap) {
        uint32_t *sorted = jn_heap_array(m, d->cap, sizeof *sorted);
        memcpy(sorted, d->sorted, d->n_sorted * sizeof *sorted);
        d->sorted = sorted;
    }
    bool there;
    const uint32_t place = sorted_place(d, key, &there);
    const size_t behind = (d->n_sorted - place) * sizeof *d->sorted;
    jn_spend(m, behind);
    memmove(d->sorted + place + 1, d->sorted + place, behind);
    d->sorted[place] = d->n - 1;
    d->n_sorted++;
}

void jn_dict_settle(struct vm *m, struct dict *d)
{
    for (uint32_t i = 0; i < d->n; i++) jn_check_key(m, d->pairs[i].key);
    uint32_t kept = 0;
    if (d->n <= LOOKED_AT) {
        const uint32_t n = d->n;
        d->n = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct pair pair = d->pairs[i];
            struct pair *p = lookup(d, pair.key);
            if (p)
                p->value = pair.value;
            else
                d->pairs[d->n++] = pair;
        }
        return;
    }
    sort_keys(m, d);
    bool *gone = jn_heap_take(m, d->n);
    for (uint32_t i = 0, first = 0; i < d->n; i++) {
        if (i && pair_order(d, d->sorted[first], d->sorted[i]) == 0) {
            d->pairs[d->sorted[first]].value = d->pairs[d->sorted[i]].value;
            gone[d->sorted[i]] = true;
        } else {
            first = i;
        }
    }
    for (uint32_t i = 0; i < d->n; i++)
        if (!gone[i]) d->pairs[kept++] = d->pairs[i];
    if (kept == d->n) return;
    d->n = kept;
    d->sorted = NULL;
    if (kept > LOOKED_AT) sort_keys(m, d);
}

void jn_sort_places(struct vm *m, uint32_t *places, uint32_t n, int (*order)(void *, uint32_t, uint32_t), void *context)
{
    if (n < 2) return;
    uint32_t *other = jn_heap_array(m, n, sizeof *other), *from = places, *to = other;
    for (uint64_t width = 1; width < n; width *= 2) {
        jn_spend_items(m, n / 8);
        for (uint64_t begin = 0; begin < n; begin += 2 * width) {
            const uint64_t middle = begin + width < n ? begin + width : n;
            const uint64_t end = middle + width < n ? middle + width : n;
            uint64_t a = begin, b = middle;
            for (uint64_t k = begin; k < end; k++) {
                const bool left = a < middle && (b >= end || order(context, from[b], from[a]) >= 0);
                to[k] = left ? from[a++] : from[b++];
            }
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != places) memcpy(places, from, n * sizeof *places);
}

bool jn_truth(struct vm *m, val v)
{
    (void)m;
    switch ((enum kind)v.kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL: return v.u.b;
    case V_INT: return v.u.i != 0;
    case V_FLOAT: return v.u.f != 0;
    case V_STRING: return v.u.s->n != 0;
    case V_LIST:
    case V_TUPLE: return v.u.list->n != 0;
    case V_DICT:
    case V_VIEW: return v.u.dict->n != 0;
    case V_RANGE: return v.u.range->n != 0;
    default: return true;
    }
}

static bool equal_lists(struct vm *m, const struct list *a, const struct list *b)
{
    if (a->n != b->n) return false;
    jn_deeper(m);
    jn_spend_items(m, a->n);
    bool same = true;
    for (uint32_t i = 0; same && i < a->n; i++) same = jn_equal(m, a->items[i], b->items[i]);
    jn_shallower(m);
    return same;
}

static bool equal_dicts(struct vm *m, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n) return false;
    jn_deeper(m);
    jn_spend_items(m, a->n);
    bool same = true;
    for (uint32_t i = 0; same && i < a->n; i++) {
        const struct pair *p = lookup(b, a->pairs[i].key);
        same = p && jn_equal(m, a->pairs[i].value, p->value);
    }
    jn_shallower(m);
    return same;
}

static bool equal_ranges(const struct range *a, const struct range *b)
{
    return a->n == b->n && (!a->n || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

bool jn_equal(struct vm *m, val a, val b)
{
    if (jn_is_number(a) && jn_is_number(b)) return jn_number_order(m, a, b) == 0;
    if (a.kind != b.kind) return false;
    switch ((enum kind)a.kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_STRING:
        if (a.u.s->n == b.u.s->n) jn_spend(m, a.u.s->n);
        return jn_str_same(a.u.s, b.u.s);
    case V_LIST:
    case V_TUPLE: return a.u.list == b.u.list || equal_lists(m, a.u.list, b.u.list);
    case V_DICT: return a.u.dict == b.u.dict || equal_dicts(m, a.u.dict, b.u.dict);
    case V_VIEW:
        if (a.aux != b.aux || a.aux == VIEW_VALUES) return false;
        if (a.aux == VIEW_ITEMS) return equal_dicts(m, a.u.dict, b.u.dict);
        for (uint32_t i = 0; i < a.u.dict->n; i++)
            if (!lookup(b.u.dict, a.u.dict->pairs[i].key)) return false;
        return a.u.dict->n == b.u.dict->n;
    case V_RANGE: return equal_ranges(a.u.range, b.u.range);
    case V_FUNCTION: return a.aux == b.aux;
    case V_METHOD: return a.u.method->id == b.u.method->id && jn_key_order(a.u.method->self, b.u.method->self) == 0;
    default: return a.u.list == b.u.list; /* the same object */
    }
}

static bool ordered(enum comparison op, int o)
{
    if (o == 2) return false;
    return op == CMP_LT ? o < 0 : op == CMP_LE ? o <= 0 : op == CMP_GT ? o > 0 : o >= 0;
}

static bool compare_lists(struct vm *m, enum comparison op, const struct list *a, const struct list *b)
{
    for (uint32_t i = 0; i < a->n && i < b->n; i++) {
        jn_spend(m, 0);
        if (jn_equal(m, a->items[i], b->items[i])) continue;
        jn_deeper(m);
        const bool result = jn_compare(m, op, a->items[i], b->items[i]);
        jn_shallower(m);
        return result;
    }
    return ordered(op, (a->n > b->n) - (a->n < b->n));
}

bool jn_compare(struct vm *m, enum comparison op, val a, val b)
{
    static const char *const signs[] = { "==", "!=", "<", "<=", ">", ">=" };
    switch (op) {
    case CMP_EQ: return jn_equal(m, a, b);
    case CMP_NE: return !jn_equal(m, a, b);
    case CMP_IN: return jn_contains(m, b, a);
    case CMP_NOT_IN: return !jn_contains(m, b, a);
    default: break;
    }
    if (jn_is_undefined(a)) jn_fail_undefined(m, a);
    if (jn_is_undefined(b)) jn_fail_undefined(m, b);
    if (jn_is_number(a) && jn_is_number(b)) return ordered(op, jn_number_order(m, a, b));
    if (a.kind == V_STRING && b.kind == V_STRING) {
        jn_spend(m, a.u.s->n < b.u.s->n ? a.u.s->n : b.u.s->n);
        return ordered(op, jn_str_order(a.u.s, b.u.s));
    }
    if ((a.kind == V_LIST || a.kind == V_TUPLE) && a.kind == b.kind) return compare_lists(m, op, a.u.list, b.u.list);
    jn_fail(m, "'%s' not supported between instances of '%s' and '%s'", signs[op], jn_type_name(a), jn_type_name(b));
}

bool jn_contains(struct vm *m, val container, val item)
{
    if (container.kind == V_STRING) {
        if (jn_is_undefined(item) || item.kind != V_STRING)
            jn_fail(m, "'in <string>' requires string as left operand, not %s", jn_type_name(item));
        jn_spend(m, container.u.s->n);
        return jn_str_find(container.u.s, item.u.s, 0, container.u.s->n) != UINT32_MAX;
    }
    if (container.kind == V_DICT || (container.kind == V_VIEW && container.aux == VIEW_KEYS))
        return jn_dict_find(m, container.u.dict, item) != NULL;
    if (!jn_is_iterable(container)) jn_fail(m, "argument of type '%s' is not iterable", jn_type_name(container));
    struct iter i;
    jn_iter_open(m, &i, container);
    for (val v; jn_iter_next(m, &i, &v);) {
        jn_spend(m, 0);
        if (jn_equal(m, v, item)) return true;
    }
    return false;
}

bool jn_has_length(val v) { return v.kind != V_ITERATOR && jn_is_iterable(v); }

const char *jn_type_name(val v)
{
    switch ((enum kind)v.kind) {
    case V_MISSING: return "missing";
    case V_UNDEFINED: return "Undefined";
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT:
    case V_BIG: return "int";
    case V_FLOAT: return "float";
    case V_STRING: return v.u.s->markup ? "Markup" : "str";
    case V_LIST: return "list";
    case V_TUPLE: return "tuple";
    case V_DICT: return "dict";
    case V_VIEW: return v.aux == VIEW_KEYS ? "dict_keys" : v.aux == VIEW_VALUES ? "dict_values" : "dict_items";
    case V_RANGE: return "range";
    case V_ITERATOR: return v.u.it->name;
    case V_NAMESPACE: return "Namespace";
    case V_MACRO: return "Macro";
    case V_LOOP: return "LoopContext";
    case V_METHOD: return "builtin_function_or_method";
    case V_FUNCTION: return "function";
    case V_CYCLER: return "Cycler";
    case V_JOINER: return "Joiner";
    case V_SELF: return "TemplateReference";
    case V_SLICE: return "slice";
    }
    return "?";
}

bool jn_is_iterable(val v)
{
    switch ((enum kind)v.kind) {
    case V_UNDEFINED:
    case V_STRING:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_VIEW:
    case V_RANGE:
    case V_ITERATOR:
    case V_LOOP: return true;
    default: return false;
    }
}

void jn_iter_open(struct vm *m, struct iter *i, val v)
{
    if (!jn_is_iterable(v) || v.kind == V_LOOP) jn_fail(m, "'%s' object is not iterable", jn_type_name(v));
    *i = (struct iter){ .v = v };
}

static bool iterator_next(struct vm *m, struct iterator *it, val *out)
{
    if (it->at < it->n) {
        *out = it->items[it->at++];
        return true;
    }
    if (it->failure) jn_fail_again(m, it->failure);
    return false;
}

bool jn_iter_next(struct vm *m, struct iter *i, val *out)
{
    const val v = i->v;
    switch ((enum kind)v.kind) {
    case V_STRING: {
        uint32_t len;
        if (i->at >= v.u.s->n) return false;
        (void)jn_char_at(v.u.s, i->at, &len);
        *out = jn_str_slice(m, v.u.s, i->at, i->at + len, false); /* of Markup, too */
        i->at += len;
        return true;
    }
    case V_LIST:
    case V_TUPLE:
        if (i->at >= v.u.list->n) return false;
        *out = v.u.list->items[i->at++];
        return true;
    case V_DICT:
    case V_VIEW: {
        if (i->at >= v.u.dict->n) return false;
        const struct pair *p = &v.u.dict->pairs[i->at++];
        if (v.kind == V_DICT || v.aux == VIEW_KEYS)
            *out = p->key;
        else if (v.aux == VIEW_VALUES)
            *out = p->value;
        else
            *out = jn_tuple2(m, p->key, p->value);
        return true;
    }
    case V_RANGE:
        if (i->at >= v.u.range->n) return false;
        *out = jn_v_int(v.u.range->start + (int64_t)i->at++ * v.u.range->step);
        out->input = v.u.range->input;
        return true;
    case V_ITERATOR: return iterator_next(m, v.u.it, out);
    default: return false;
    }
}

struct list *jn_to_list(struct vm *m, val v)
{
    struct iter i;
    jn_iter_open(m, &i, v);
    struct list *l = jn_list_new(m, jn_has_length(v) ? jn_length(m, v) : 0);
    for (val item; jn_iter_next(m, &i, &item);) {
        jn_spend(m, 0);
        jn_list_push(m, l, item);
    }
    return l;
}

val jn_iterator_of(struct vm *m, struct list *l, const char *name)
{
    struct iterator *it = jn_heap_take(m, sizeof *it);
    *it = (struct iterator){ .items = l->items, .n = l->n, .name = name };
    return (val){ .kind = V_ITERATOR, .u.it = it };
}
