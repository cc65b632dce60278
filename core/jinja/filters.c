/* filters.c: the table of filters, and those of sequences and mappings. */
#include "filters.h"

static bool given(val v) { return v.kind != V_MISSING; }
static bool given_some(val v) { return v.kind != V_MISSING && v.kind != V_NONE; }

/* --- Iterators: jinja2 makes these lazily, so that a failure is met by who reads that far --- */

typedef void (*producer)(struct vm *m, val v, const struct args *a, struct list *out);

static val produce(struct vm *m, producer make, val v, const struct args *a)
{
    jmp_buf here, *const outer = m->trap;
    const uint32_t depth = m->depth;
    struct list *const l = jn_list_new(m, 0);
    struct failure *const failure = jn_heap_take(m, sizeof *failure);
    if (setjmp(here) == 0) {
        m->trap = &here;
        make(m, v, a, l);
    } else {
        *failure = m->failure;
        m->depth = depth;
    }
    m->trap = outer;
    if (failure->end == JINJA_LIMIT || failure->end == JINJA_NO_MEMORY) jn_fail_again(m, failure);
    const val it = jn_iterator_of(m, l, "generator");
    if (failure->end != JINJA_DONE) it.u.it->failure = failure;
    return it;
}

/* An attribute as filters name one: "a.b.0", an index, or none. */
struct getter {
    val *parts;
    uint32_t n;
    val otherwise; /* V_MISSING, V_NONE: none */
    bool ignore_case;
};

static bool all_digits(const struct str *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->data[i] < '0' || s->data[i] > '9') return false;
    return s->n;
}

static val piece(struct vm *m, const struct str *s, uint32_t begin, uint32_t end)
{
    const val part = jn_str_slice(m, s, begin, end, false);
    if (!all_digits(part.u.s)) return part;
    const val i = jn_integer_parse(m, part.u.s, 10);
    return given(i) ? i : part;
}

static struct getter getter_range(struct vm *m, const struct str *s, uint32_t begin, uint32_t stop)
{
    struct getter g = { .otherwise = jn_v_missing() };
    uint32_t n = 1;
    for (uint32_t i = begin; i < stop; i++) n += s->data[i] == '.';
    g.parts = jn_heap_array(m, n, sizeof *g.parts);
    for (uint32_t i = begin; i <= stop; i++) {
        if (i < stop && s->data[i] != '.') continue;
        g.parts[g.n++] = piece(m, s, begin, i);
        begin = i + 1;
    }
    return g;
}

static struct getter getter_of(struct vm *m, val attribute, val otherwise, bool ignore_case)
{
    struct getter g = { .otherwise = jn_v_missing() };
    if (attribute.kind == V_STRING) {
        g = getter_range(m, attribute.u.s, 0, attribute.u.s->n);
    } else if (given_some(attribute)) {
        g.parts = jn_heap_array(m, 1, sizeof *g.parts);
        g.parts[g.n++] = attribute;
    }
    g.otherwise = otherwise;
    g.ignore_case = ignore_case;
    return g;
}

static val lowered(struct vm *m, val v)
{
    if (v.kind != V_STRING) return v;
    struct buf b;
    jn_buf_open(&b, m);
    jn_buf_case(&b, v.u.s, 0, v.u.s->n, CASE_LOWER);
    return jn_buf_value(&b, v.u.s->markup);
}

static val get(struct vm *m, const struct getter *g, val v)
{
    for (uint32_t i = 0; i < g->n; i++) {
        jn_spend(m, 0);
        v = jn_get_item(m, v, g->parts[i]);
        if (jn_is_undefined(v) && given_some(g->otherwise)) v = g->otherwise;
    }
    return g->ignore_case ? lowered(m, v) : v;
}

/* A flag that Python's sorted() reads as an integer. */
static bool is_reverse(struct vm *m, val v) { return given(v) && jn_need_int(m, v, "reverse") != 0; }

static bool is_case_sensitive(struct vm *m, val v) { return given(v) && jn_truth(m, v); }

/* --- map, select, reject --- */

static int filter_named(struct vm *m, val name)
{
    const int id = name.kind == V_STRING ? jn_filter_find(name.u.s) : -1;
    if (id < 0)
        jn_fail(m, "no filter has this name: %.*s", name.kind == V_STRING ? (int)name.u.s->n : 0,
                name.kind == V_STRING ? name.u.s->data : "");
    return id;
}

static int test_named(struct vm *m, val name)
{
    const int id = name.kind == V_STRING ? jn_test_find(name.u.s) : -1;
    if (id < 0)
        jn_fail(m, "no test has this name: %.*s", name.kind == V_STRING ? (int)name.u.s->n : 0,
                name.kind == V_STRING ? name.u.s->data : "");
    return id;
}

static void make_map(struct vm *m, val v, const struct args *a, struct list *out)
{
    struct iter i;
    if (!jn_truth(m, v)) return;
    if (!a->n_pos) {
        val p[2];
        jn_bind(m, "map", a, "attribute default", 0, p);
        if (!given(p[0])) jn_fail(m, "map requires a filter argument");
        const struct getter g = getter_of(m, p[0], p[1], false);
        jn_iter_open(m, &i, v);
        for (val item; jn_iter_next(m, &i, &item);) jn_list_push(m, out, get(m, &g, item));
        return;
    }
    const int id = filter_named(m, a->pos[0]);
    struct args rest = *a;
    rest.pos++;
    rest.n_pos--;
    jn_iter_open(m, &i, v);
    jn_deeper(m);
    for (val item; jn_iter_next(m, &i, &item);) {
        jn_spend(m, 0);
        jn_list_push(m, out, jn_filter_call(m, (unsigned)id, item, &rest));
    }
    jn_shallower(m);
}

static void choose(struct vm *m, val v, const struct args *a, struct list *out, bool want, bool by_attribute)
{
    struct getter g = { 0 };
    struct args rest = *a;
    struct iter i;
    if (!jn_truth(m, v)) return;
    if (by_attribute) {
        if (!a->n_pos) jn_fail(m, "missing parameter for attribute name");
        g = getter_of(m, a->pos[0], jn_v_missing(), false);
        rest.pos++;
        rest.n_pos--;
    }
    int id = -1;
    if (rest.n_pos) {
        id = test_named(m, *rest.pos++);
        rest.n_pos--;
    }
    jn_iter_open(m, &i, v);
    for (val item; jn_iter_next(m, &i, &item);) {
        jn_spend(m, 0);
        const val tested = get(m, &g, item);
        if ((id < 0 ? jn_truth(m, tested) : jn_test_call(m, (unsigned)id, tested, &rest)) == want)
            jn_list_push(m, out, item);
    }
}

static void make_select(struct vm *m, val v, const struct args *a, struct list *l) { choose(m, v, a, l, true, false); }
static void make_reject(struct vm *m, val v, const struct args *a, struct list *l) { choose(m, v, a, l, false, false); }
static void make_selectattr(struct vm *m, val v, const struct args *a, struct list *l)
{
    choose(m, v, a, l, true, true);
}
static void make_rejectattr(struct vm *m, val v, const struct args *a, struct list *l)
{
    choose(m, v, a, l, false, true);
}

/* --- Others that are read lazily --- */

static void make_items(struct vm *m, val v, const struct args *a, struct list *out)
{
    jn_bind(m, "items", a, "", 0, NULL);
    if (jn_is_undefined(v)) return;
    if (v.kind != V_DICT) jn_fail(m, "can only get item pairs from a mapping");
    for (uint32_t i = 0; i < v.u.dict->n; i++) {
        jn_spend(m, 0);
        jn_list_push(m, out, jn_tuple2(m, v.u.dict->pairs[i].key, v.u.dict->pairs[i].value));
    }
}

static void make_unique(struct vm *m, val v, const struct args *a, struct list *out)
{
    val p[2];
    jn_bind(m, "unique", a, "case_sensitive attribute", 0, p);
    const struct getter g = getter_of(m, p[1], jn_v_missing(), !is_case_sensitive(m, p[0]));
    struct dict *seen = jn_dict_new(m, 0);
    struct iter i;
    jn_iter_open(m, &i, v);
    for (val item; jn_iter_next(m, &i, &item);) {
        const val key = get(m, &g, item);
        jn_spend(m, 0);
        if (jn_dict_find(m, seen, key)) continue;
        jn_dict_put(m, seen, key, jn_v_bool(true));
        jn_list_push(m, out, item);
    }
}

static void make_batch(struct vm *m, val v, const struct args *a, struct list *out)
{
    val p[2];
    jn_bind(m, "batch", a, "linecount fill_with", 1, p);
    struct list *line = NULL;
    struct iter i;
    jn_iter_open(m, &i, v);
    for (val item; jn_iter_next(m, &i, &item);) {
        jn_spend(m, 0);
        if (!line || jn_equal(m, jn_v_int(line->n), p[0])) {
            if (line || jn_equal(m, jn_v_int(0), p[0]))
                jn_list_push(m, out, jn_list_value(line ? line : jn_list_new(m, 0), V_LIST));
            line = jn_list_new(m, 0);
        }
        jn_list_push(m, line, item);
    }
    if (!line) return;
    if (given_some(p[1]) && jn_compare(m, CMP_LT, jn_v_int(line->n), p[0])) {
        const int64_t want = jn_need_int(m, p[0], "batch");
        if (want > JINJA_MAX_RANGE * 10) jn_fail_limit(m, "values take more than %d bytes", JINJA_MAX_MEMORY);
        jn_spend_items(m, (size_t)want);
        while (line->n < want) jn_list_push(m, line, p[1]);
    }
    jn_list_push(m, out, jn_list_value(line, V_LIST));
}

static void make_slice(struct vm *m, val v, const struct args *a, struct list *out)
{
    val p[2];
    jn_bind(m, "slice", a, "slices fill_with", 1, p);
    const struct list *all = jn_to_list(m, v);
    const int64_t slices = jn_need_int(m, p[0], "slice");
    if (!slices) jn_fail(m, "division or modulo by zero");
    if (slices < 0) return;
    const int64_t each = all->n / slices, extra = all->n % slices;
    uint32_t at = 0;
    for (int64_t k = 0; k < slices; k++) {
        struct list *part = jn_list_new(m, 0);
        jn_spend(m, 0);
        for (int64_t n = each + (k < extra); n > 0; n--) jn_list_push(m, part, all->items[at++]);
        if (given_some(p[1]) && k >= extra) jn_list_push(m, part, p[1]);
        jn_list_push(m, out, jn_list_value(part, V_LIST));
    }
}

/* Wrong arguments fail at once, as those of a generator function do. */
#define LAZY(name, parameters, required)                           \
    static val f_##name(struct vm *m, val v, const struct args *a) \
    {                                                              \
        val p[2];                                                  \
        jn_bind(m, #name, a, parameters, required, p);             \
        return produce(m, make_##name, v, a);                      \
    }
LAZY(items, "", 0)
LAZY(unique, "case_sensitive attribute", 0)
LAZY(batch, "linecount fill_with", 1)
LAZY(slice, "slices fill_with", 1)

static val f_map(struct vm *m, val v, const struct args *a) { return produce(m, make_map, v, a); }
static val f_select(struct vm *m, val v, const struct args *a) { return produce(m, make_select, v, a); }
static val f_reject(struct vm *m, val v, const struct args *a) { return produce(m, make_reject, v, a); }
static val f_selectattr(struct vm *m, val v, const struct args *a) { return produce(m, make_selectattr, v, a); }
static val f_rejectattr(struct vm *m, val v, const struct args *a) { return produce(m, make_rejectattr, v, a); }

/* --- Order --- */

struct sorting {
    struct vm *m;
    val *const *keys; /* of each item, n_keys */
    uint32_t n_keys;
    bool reverse;
};

static int item_order(void *context, uint32_t a, uint32_t b)
{
    const struct sorting *s = context;
    if (s->reverse) {
        const uint32_t swap = a;
        a = b;
        b = swap;
    }
    jn_spend(s->m, 0);
    for (uint32_t i = 0; i < s->n_keys; i++) {
        if (s->n_keys > 1 && jn_equal(s->m, s->keys[a][i], s->keys[b][i])) continue;
        if (jn_compare(s->m, CMP_LT, s->keys[a][i], s->keys[b][i])) return -1;
        return jn_compare(s->m, CMP_LT, s->keys[b][i], s->keys[a][i]);
    }
    return 0;
}

static struct list *sorted(struct vm *m, const struct list *l, val *const *keys, uint32_t n_keys, bool reverse)
{
    uint32_t *places = jn_heap_array(m, l->n, sizeof *places);
    for (uint32_t i = 0; i < l->n; i++) places[i] = i;
    jn_sort_places(m, places, l->n, item_order, &(struct sorting){ m, keys, n_keys, reverse });
    struct list *out = jn_list_new(m, l->n);
    for (uint32_t i = 0; i < l->n; i++) jn_list_push(m, out, l->items[places[i]]);
    return out;
}

static val f_sort(struct vm *m, val v, const struct args *a)
{
    val p[3];
    jn_bind(m, "sort", a, "reverse case_sensitive attribute", 0, p);
    const bool ignore = !is_case_sensitive(m, p[1]);
    uint32_t n = 1;
    const struct str *s = given(p[2]) && p[2].kind == V_STRING ? p[2].u.s : NULL;
    for (uint32_t i = 0; s && i < s->n; i++) n += s->data[i] == ',';
    struct getter *getters = jn_heap_array(m, n, sizeof *getters);
    if (s) {
        uint32_t begin = 0, k = 0;
        for (uint32_t i = 0; i <= s->n; i++) {
            if (i < s->n && s->data[i] != ',') continue;
            getters[k] = getter_range(m, s, begin, i);
            getters[k++].ignore_case = ignore;
            begin = i + 1;
        }
    } else {
        getters[0] = getter_of(m, p[2], jn_v_missing(), ignore);
    }
    const struct list *l = jn_to_list(m, v);
    val **keys = jn_heap_array(m, l->n, sizeof(val *));
    for (uint32_t i = 0; i < l->n; i++) {
        keys[i] = jn_heap_array(m, n, sizeof(val));
        for (uint32_t k = 0; k < n; k++) keys[i][k] = get(m, &getters[k], l->items[i]);
    }
    /* Python compares lists of keys, equal ones first: also where there is but one. */
    for (uint32_t i = 0; n == 1 && i < l->n; i++) {
        struct list *one = jn_list_new(m, 1);
        jn_list_push(m, one, keys[i][0]);
        keys[i][0] = jn_list_value(one, V_LIST);
    }
    return jn_list_value(sorted(m, l, keys, n, is_reverse(m, p[0])), V_LIST);
}

static val f_dictsort(struct vm *m, val v, const struct args *a)
{
    val p[3];
    jn_bind(m, "dictsort", a, "case_sensitive by reverse", 0, p);
    const bool value = given(p[1]) && p[1].kind == V_STRING && jn_str_is(p[1].u.s, "value");
    if (given(p[1]) && !value && !(p[1].kind == V_STRING && jn_str_is(p[1].u.s, "key")))
        jn_fail(m, "dictsort: you can only sort by either \"key\" or \"value\"");
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (v.kind != V_DICT) jn_fail(m, "'%s' object has no attribute 'items'", jn_type_name(v));
    const bool ignore = !is_case_sensitive(m, p[0]);
    const struct dict *d = v.u.dict;
    struct list *l = jn_list_new(m, d->n);
    val **keys = jn_heap_array(m, d->n, sizeof(val *));
    for (uint32_t i = 0; i < d->n; i++) {
        jn_list_push(m, l, jn_tuple2(m, d->pairs[i].key, d->pairs[i].value));
        keys[i] = jn_heap_take(m, sizeof(val));
        *keys[i] = value ? d->pairs[i].value : d->pairs[i].key;
        if (ignore) *keys[i] = lowered(m, *keys[i]);
    }
    return jn_list_value(sorted(m, l, keys, 1, is_reverse(m, p[2])), V_LIST);
}

static val f_groupby(struct vm *m, val v, const struct args *a)
{
    val p[3];
    jn_bind(m, "groupby", a, "attribute default case_sensitive", 1, p);
    const bool ignore = !is_case_sensitive(m, p[2]);
    const struct getter g = getter_of(m, p[0], p[1], ignore), plain = getter_of(m, p[0], p[1], false);
    const struct list *l = jn_to_list(m, v);
    val **keys = jn_heap_array(m, l->n, sizeof(val *));
    for (uint32_t i = 0; i < l->n; i++) {
        keys[i] = jn_heap_take(m, sizeof(val));
        *keys[i] = get(m, &g, l->items[i]);
    }
    const struct list *in_order = sorted(m, l, keys, 1, false);
    struct list *groups = jn_list_new(m, 0), *group = NULL;
    val last = jn_v_missing();
    for (uint32_t i = 0; i < in_order->n; i++) {
        const val key = get(m, &g, in_order->items[i]);
        if (!group || !jn_equal(m, key, last)) {
            group = jn_list_new(m, 0);
            const val pair =
                jn_tuple2(m, ignore ? get(m, &plain, in_order->items[i]) : key, jn_list_value(group, V_LIST));
            pair.u.list->group = true;
            jn_list_push(m, groups, pair);
            last = key;
        }
        jn_list_push(m, group, in_order->items[i]);
    }
    return jn_list_value(groups, V_LIST);
}

static val extreme(struct vm *m, val v, const struct args *a, const char *name, enum comparison better)
{
    val p[2], best = jn_v_missing(), best_key = best;
    jn_bind(m, name, a, "case_sensitive attribute", 0, p);
    const struct getter g = getter_of(m, p[1], jn_v_missing(), !is_case_sensitive(m, p[0]));
    struct iter i;
    jn_iter_open(m, &i, v);
    for (val item; jn_iter_next(m, &i, &item);) {
        jn_spend(m, 0);
        const val key = get(m, &g, item);
        if (given(best) && !jn_compare(m, better, key, best_key)) continue;
        best = item;
        best_key = key;
    }
    return given(best) ? best : jn_v_undefined(m, "No aggregated item, sequence was empty.");
}

static val f_min(struct vm *m, val v, const struct args *a) { return extreme(m, v, a, "min", CMP_LT); }
static val f_max(struct vm *m, val v, const struct args *a) { return extreme(m, v, a, "max", CMP_GT); }

/* --- Items --- */

static val f_first(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "first", a, "", 0, NULL);
    struct iter i;
    jn_iter_open(m, &i, v);
    val item;
    return jn_iter_next(m, &i, &item) ? item : jn_v_undefined(m, "No first item, sequence was empty.");
}

static struct list *backwards(struct vm *m, val v)
{
    struct list *l = jn_to_list(m, v);
    for (uint32_t i = 0; i < l->n / 2; i++) {
        const val swap = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = swap;
    }
    return l;
}

static val f_last(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "last", a, "", 0, NULL);
    if (!jn_has_length(v) || v.kind == V_LOOP) jn_fail(m, "'%s' object is not reversible", jn_type_name(v));
    if (v.kind == V_STRING && v.u.s->n) return jn_get_item(m, v, jn_v_int(-1));
    if (v.kind == V_LIST && v.u.list->n) return v.u.list->items[v.u.list->n - 1];
    const struct list *l = jn_to_list(m, v);
    return l->n ? l->items[l->n - 1] : jn_v_undefined(m, "No last item, sequence was empty.");
}

static val f_reverse(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "reverse", a, "", 0, NULL);
    if (v.kind == V_STRING) {
        const val parts[] = { jn_v_none(), jn_v_none(), jn_v_int(-1) };
        return jn_get_item(m, v, (val){ .kind = V_SLICE, .u.slice = parts });
    }
    if (!jn_is_iterable(v)) jn_fail(m, "reverse: the argument must be iterable");
    struct list *l = backwards(m, v);
    return v.kind == V_ITERATOR ? jn_list_value(l, V_LIST) : jn_iterator_of(m, l, "reversed");
}

static val f_length(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "length", a, "", 0, NULL);
    return jn_v_int(jn_length(m, v));
}

static val f_list(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "list", a, "", 0, NULL);
    return jn_list_value(jn_to_list(m, v), V_LIST);
}

static val f_join(struct vm *m, val v, const struct args *a)
{
    val p[2];
    jn_bind(m, "join", a, "d attribute", 0, p);
    const struct str *separator = given(p[0]) ? jn_to_str(m, p[0]) : jn_v_text(m, "").u.s;
    const struct getter g = getter_of(m, p[1], jn_v_missing(), false);
    struct buf b;
    struct iter i;
    jn_buf_open(&b, m);
    jn_iter_open(m, &i, v);
    uint32_t n = 0;
    for (val item; jn_iter_next(m, &i, &item); n++) {
        const uint32_t before = b.n;
        if (n) jn_buf_str(&b, separator);
        jn_print_str(&b, get(m, &g, item));
        jn_spend(m, b.n - before);
    }
    return jn_buf_value(&b, false);
}

static val f_sum(struct vm *m, val v, const struct args *a)
{
    val p[2];
    jn_bind(m, "sum", a, "attribute start", 0, p);
    const struct getter g = getter_of(m, p[0], jn_v_missing(), false);
    val sum = given(p[1]) ? p[1] : jn_v_int(0);
    if (sum.kind == V_STRING) jn_fail(m, "sum() can't sum strings");
    struct iter i;
    jn_iter_open(m, &i, v);
    for (val item; jn_iter_next(m, &i, &item);) {
        jn_spend(m, 0);
        sum = jn_binary(m, BIN_ADD, sum, get(m, &g, item));
    }
    return sum;
}

static val f_default(struct vm *m, val v, const struct args *a)
{
    val p[2];
    jn_bind(m, "default", a, "default_value boolean", 0, p);
    if (jn_is_undefined(v) || (given(p[1]) && jn_truth(m, p[1]) && !jn_truth(m, v)))
        return given(p[0]) ? p[0] : jn_v_text(m, "");
    return v;
}

static val f_attr(struct vm *m, val v, const struct args *a)
{
    val name;
    jn_bind(m, "attr", a, "name", 1, &name);
    const struct str *s = jn_need_str(m, name, "attr");
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (v.kind != V_DICT) return jn_get_attr(m, v, s);
    /* Items do not count: an empty dict has the same attributes. */
    return jn_get_attr(m, jn_method_find(v, s) >= 0 ? v : (val){ .kind = V_DICT, .u.dict = jn_dict_new(m, 0) }, s);
}

/* A prompt is to be the same each time: chance has no place in it, as lipsum() has not. */
static val f_random(struct vm *m, val v, const struct args *a)
{
    (void)v;
    jn_bind(m, "random", a, "", 0, NULL);
    jn_fail(m, "the filter random picks by chance, which is not supported");
}

static val f_abs(struct vm *m, val v, const struct args *a)
{
    jn_bind(m, "abs", a, "", 0, NULL);
    if (jn_is_undefined(v)) jn_fail_undefined(m, v);
    if (!jn_is_number(v)) jn_fail(m, "bad operand type for abs(): '%s'", jn_type_name(v));
    if (v.kind == V_FLOAT) {
        v.u.f = __builtin_fabs(v.u.f);
        return v;
    }
    return jn_number_negative(v) ? jn_unary_minus(m, v) : jn_unary_plus(m, v);
}

/* --- The table --- */

static const struct {
    const char *name;
    filter call;
} filters[] = { { "abs", f_abs },
                { "attr", f_attr },
                { "batch", f_batch },
                { "capitalize", jn_f_capitalize },
                { "center", jn_f_center },
                { "count", f_length },
                { "d", f_default },
                { "default", f_default },
                { "dictsort", f_dictsort },
                { "e", jn_f_escape },
                { "escape", jn_f_escape },
                { "filesizeformat", jn_f_filesizeformat },
                { "first", f_first },
                { "float", jn_f_float },
                { "forceescape", jn_f_forceescape },
                { "format", jn_f_format },
                { "groupby", f_groupby },
                { "indent", jn_f_indent },
                { "int", jn_f_int },
                { "items", f_items },
                { "join", f_join },
                { "last", f_last },
                { "length", f_length },
                { "list", f_list },
                { "lower", jn_f_lower },
                { "map", f_map },
                { "max", f_max },
                { "min", f_min },
                { "pprint", jn_f_pprint },
                { "random", f_random },
                { "reject", f_reject },
                { "rejectattr", f_rejectattr },
                { "replace", jn_f_replace },
                { "reverse", f_reverse },
                { "round", jn_f_round },
                { "safe", jn_f_safe },
                { "select", f_select },
                { "selectattr", f_selectattr },
                { "slice", f_slice },
                { "sort", f_sort },
                { "string", jn_f_string },
                { "striptags", jn_f_striptags },
                { "sum", f_sum },
                { "title", jn_f_title },
                { "tojson", jn_f_tojson },
                { "trim", jn_f_trim },
                { "truncate", jn_f_truncate },
                { "unique", f_unique },
                { "upper", jn_f_upper },
                { "urlencode", jn_f_urlencode },
                { "urlize", jn_f_urlize },
                { "wordcount", jn_f_wordcount },
                { "wordwrap", jn_f_wordwrap },
                { "xmlattr", jn_f_xmlattr } };

int jn_filter_find(const struct str *name)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (jn_str_is(name, filters[i].name)) return (int)i;
    return -1;
}

val jn_filter_call(struct vm *m, unsigned id, val v, const struct args *a) { return filters[id].call(m, v, a); }
