/* schema_emit.c: sets of schemas as nodes of a grammar. Each set is compiled once; one with arrays or objects in it is
 * a rule, so that it may contain itself, and waits in a queue until it is defined: no recursion here. */
#include "grammar/schema_form.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"

enum { SCALARS = 512, NAME_BYTES = 200, MAX_POSITIONS = 64 /* places of an item that is looked for */ };

struct scalar {
    lang_id language;
    uint32_t min, max;
    bool string;
    node_id node;
};
struct emitter {
    struct schema_ctx *c;
    struct want_set **queue;
    uint32_t n_queue, cap_queue, next;
    struct scalar scalar[SCALARS]; /* made lately: the same few are everywhere */
    node_id space;
};

struct parts {
    node_id *node;
    uint32_t n, cap;
};

static bool put(struct emitter *e, struct parts *p, node_id node)
{
    node_id *grown = arena_grow(e->c->arena, p->node, p->n, &p->cap, sizeof *grown);
    if (!grown) return sch_fail(e->c, WK_NO_MEMORY, NULL, NULL, "no memory for %u parts", p->n);
    p->node = grown;
    p->node[p->n++] = node;
    return !e->c->status;
}

/* ---- scalars -------------------------------------------------------------------------------------------- */

static node_id scalar(struct emitter *e, lang_id language, uint32_t min, uint32_t max, bool string)
{
    struct scalar *s = &e->scalar[(language * 31u + min * 7u + max + string) % SCALARS];
    if (language == LANG_NONE || e->c->status) return NODE_NONE;
    if (s->node && s->language == language && s->min == min && s->max == max && s->string == string) return s->node;
    const node_id node = string ? node_string(e->c->grammar, language, min, max) : node_text(e->c->grammar, language);
    *s = (struct scalar){ language, min, max, string, node };
    return node;
}

static bool put_numbers(struct emitter *e, const struct alternatives *list, struct parts *out)
{
    lang_id *each = sch_take(e->c, list->n, sizeof *each);
    if (!each) return false;
    for (uint32_t i = 0; i < list->n; i++) each[i] = number_language(e->c, &list->one[i]);
    const lang_id all = lang_any_of(e->c->langs, each, list->n);
    if (!list->n || all == LANG_NOTHING) return !e->c->status;
    return put(e, out, scalar(e, all, 0, 0, false));
}

static bool put_strings(struct emitter *e, const struct form *f, struct parts *out)
{
    const struct alternatives *list = &f->type[TYPE_STRING];
    struct string_shape s = { LANG_NOTHING, 0, LANG_UNBOUNDED };
    if (!list->n) return true;
    if (list->n == 1 && !string_shape(e->c, &list->one[0], &s)) return false;
    if (list->n > 1) s.language = strings_language(e->c, f);
    if (s.language == LANG_NOTHING) return !e->c->status;
    return put(e, out, scalar(e, s.language, s.min, s.max, true));
}

static bool put_booleans(struct emitter *e, const struct alternatives *list, struct parts *out)
{
    bool may[2] = { false, false };
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t truth = 0; truth < 2; truth++)
            if (!list->one[i].n || (list->one[i].n == 1 && list->one[i].atom[0]->count == truth)) may[truth] = true;
    return (!may[0] || put(e, out, node_literal(e->c->grammar, "false", 5))) &&
           (!may[1] || put(e, out, node_literal(e->c->grammar, "true", 4)));
}

/* ---- references ----------------------------------------------------------------------------------------- */

static node_id define(struct emitter *e, const struct want_set *set);

static node_id reference(struct emitter *e, const struct want_set *asked)
{
    struct schema_ctx *c = e->c;
    struct want_set *set = (struct want_set *)(uintptr_t)asked;
    if (!set || c->status) return NODE_NONE;
    if (set == set_all(c)) return node_json(c->grammar);
    if (set == set_none(c)) return NODE_NOTHING;
    if (set->node) return set->node;
    const struct form *f = set_form(c, set);
    if (!f) return NODE_NONE;
    if (!f->type[TYPE_ARRAY].n && !f->type[TYPE_OBJECT].n) return set->node = define(e, set);
    char name[NAME_BYTES];
    js_pointer(set->want[0].v, name, sizeof name);
    struct want_set **grown = arena_grow(c->arena, (void *)e->queue, e->n_queue, &e->cap_queue, sizeof *grown);
    if (!grown) {
        sch_fail(c, WK_NO_MEMORY, NULL, NULL, "no memory for %u rules", e->n_queue);
        return NODE_NONE;
    }
    e->queue = grown;
    e->queue[e->n_queue++] = set;
    return set->node = node_rule(c->grammar, name, strlen(name));
}

/* ---- arrays --------------------------------------------------------------------------------------------- */

/* The array with item `at` in `special` (NULL: none is). */
static bool put_plain_array(struct emitter *e, const struct array_shape *s, uint32_t at, const struct want_set *special,
                            struct parts *out)
{
    struct parts prefix = { 0 };
    const uint32_t length = special && at >= s->n_prefix ? at + 1 : s->n_prefix;
    struct node_array a = { .min = s->min, .max = s->max };
    for (uint32_t i = 0; i < length && i < s->max; i++) {
        const struct want_set *item = i < s->n_prefix ? s->prefix[i] : s->rest;
        if (special && i == at) item = set_and(e->c, item, special);
        if (!put(e, &prefix, reference(e, item))) return false;
    }
    if (special && a.min <= at) a.min = at + 1;
    a.prefix = prefix.node;
    a.n_prefix = prefix.n;
    a.rest = s->max <= length ? (node_id)NODE_NOTHING : reference(e, s->rest);
    return put(e, out, node_array(e->c->grammar, &a));
}

static node_id comma(struct emitter *e, node_id item)
{
    const node_id parts[] = { e->space, node_literal(e->c->grammar, ",", 1), e->space, item };
    return node_sequence(e->c->grammar, parts, 4);
}

/* An array of `fixed` items, then others and low to high special ones: each comma stands before its item, so the first
 * item of all is written apart. */
static bool put_searched_array(struct emitter *e, const struct array_shape *s, uint32_t fixed, node_id other,
                               node_id special, uint32_t low, uint32_t high, struct parts *out)
{
    struct grammar *g = e->c->grammar;
    struct parts all = { 0 }, head = { 0 };
    const node_id others = node_repeat(g, comma(e, other), 0, NODE_UNBOUNDED);
    const node_id one_parts[] = { comma(e, special), others }, one = node_sequence(g, one_parts, 2);
    const node_id open = node_literal(g, "[", 1), close = node_literal(g, "]", 1);
    if (!put(e, &head, open) || !put(e, &head, e->space)) return false;
    for (uint32_t i = 0; i < fixed; i++) {
        const node_id item = reference(e, i < s->n_prefix ? s->prefix[i] : s->rest);
        if (!put(e, &head, i ? comma(e, item) : item)) return false;
    }
    const node_id begin = node_sequence(g, head.node, head.n);
    const node_id more = node_repeat(g, one, low, high);
    const uint32_t less = high == NODE_UNBOUNDED ? high : high ? high - 1 : 0;
    const node_id fewer = node_repeat(g, one, low ? low - 1 : 0, less);
    if (fixed) {
        const node_id parts[] = { others, more };
        if (!put(e, &all, node_sequence(g, parts, 2))) return false;
    } else {
        const node_id from_other[] = { other, others, more }, from_special[] = { special, others, fewer };
        if (!put(e, &all, node_sequence(g, from_other, 3))) return false;
        if (high && !put(e, &all, node_sequence(g, from_special, 3))) return false;
        if (!low && !put(e, &all, NODE_EMPTY)) return false;
    }
    const node_id parts[] = { begin, node_any_of(g, all.node, all.n), e->space, close };
    return put(e, out, node_sequence(g, parts, 4));
}

static bool put_contains(struct emitter *e, const struct array_shape *s, struct parts *out)
{
    const struct atom *some = s->some, *few = s->few, *blame = few ? few : some;
    const struct want_set *special = set_and(e->c, s->rest, blame->child);
    uint32_t base = s->n_prefix > s->min ? s->n_prefix : s->min;
    if (few) {
        const uint32_t low = some ? some->least : 0;
        if (s->n_prefix || s->min > low || s->max != UINT32_MAX || few->count ||
            (some && (some->child != few->child || some->count)))
            return sch_fail(e->c, WK_UNSUPPORTED, few->at, few->keyword,
                            "maxContains beside minItems, maxItems or single items");
        if (low > few->least) return true;
        const struct want_set *other = set_and(e->c, s->rest, set_not(e->c, few->child));
        return put_searched_array(e, s, 0, reference(e, other), reference(e, special), low, few->least, out);
    }
    if (some->least == 1) {
        if (base < some->count) base = some->count;
        if (s->max != UINT32_MAX) base = s->max;
        if (base > MAX_POSITIONS)
            return sch_fail(e->c, WK_UNSUPPORTED, some->at, some->keyword, "beside a count of more than %d items",
                            MAX_POSITIONS);
        for (uint32_t i = some->count; i < base; i++)
            if (!put_plain_array(e, s, i, some->child, out)) return false;
        if (s->max != UINT32_MAX) return true;
    } else if (s->n_prefix || s->min > some->least || s->max != UINT32_MAX || some->count)
        return sch_fail(e->c, WK_UNSUPPORTED, some->at, some->keyword,
                        "minContains beside minItems, maxItems or single items");
    else
        base = 0;
    return put_searched_array(e, s, base, reference(e, s->rest), reference(e, special), some->least, NODE_UNBOUNDED,
                              out);
}

/* Several kinds of items that must come, one item of each at least: which are still to come decides what may follow,
 * and each set of them is a node. An item that is of some of them may count as any of these. */
static bool put_several(struct emitter *e, const struct array_shape *s, struct parts *out)
{
    enum { KINDS = SHAPE_OTHERS + 1, ALL = 1 << KINDS };
    struct grammar *g = e->c->grammar;
    const struct atom *kind[KINDS] = { s->some };
    const uint32_t n = s->n_others + 1, all = (1u << n) - 1;
    node_id item[ALL], rest[ALL];
    for (uint32_t i = 1; i < n; i++) kind[i] = s->others[i - 1];
    for (uint32_t i = 0; i < n; i++)
        if (s->few || s->n_prefix || s->min > 1 || s->max != UINT32_MAX || kind[i]->count || kind[i]->least != 1)
            return sch_fail(e->c, WK_UNSUPPORTED, kind[i]->at, kind[i]->keyword,
                            "more than one count of some items (contains, or a negated items) in one array, beside "
                            "other counts");
    for (uint32_t set = 0; set <= all; set++) {
        const struct want_set *want = s->rest;
        for (uint32_t i = 0; i < n; i++)
            if (set >> i & 1) want = set_and(e->c, want, kind[i]->child);
        item[set] = want && set_is_empty(e->c, want) ? (node_id)NODE_NOTHING : reference(e, want);
    }
    struct parts begin = { 0 };
    for (uint32_t left = 0; left <= all; left++) {
        struct parts ways = { 0 };
        if (!left && !put(e, &ways, NODE_EMPTY)) return false;
        for (uint32_t met = left; met; met = (met - 1) & left) {
            if (item[met] == NODE_NOTHING) continue;
            const node_id parts[] = { comma(e, item[met]), rest[left & ~met] };
            if (!put(e, &ways, node_sequence(g, parts, 2))) return false;
        }
        const node_id parts[] = { node_repeat(g, comma(e, item[0]), 0, NODE_UNBOUNDED),
                                  node_any_of(g, ways.node, ways.n) };
        rest[left] = node_sequence(g, parts, 2);
    }
    for (uint32_t met = 0; met <= all; met++) {
        const node_id parts[] = { item[met], rest[all & ~met] };
        if (item[met] != NODE_NOTHING && !put(e, &begin, node_sequence(g, parts, 2))) return false;
    }
    const node_id parts[] = { node_literal(g, "[", 1), e->space, node_any_of(g, begin.node, begin.n), e->space,
                              node_literal(g, "]", 1) };
    return put(e, out, node_sequence(g, parts, 5));
}

/* ---- uniqueItems ---------------------------------------------------------------------------------------- */

/* The few values that items may be: null, booleans, and listed strings and numbers. */
enum { UNIQUE_VALUES = 9 };
struct values {
    node_id node[UNIQUE_VALUES];
    uint32_t n;
    bool few; /* these are all */
};

static bool put_value(struct emitter *e, struct values *v, node_id node)
{
    if (v->n == UNIQUE_VALUES) return v->few = false;
    v->node[v->n++] = node;
    return !e->c->status;
}

static bool list_numbers(struct emitter *e, const struct alternatives *list, struct values *v)
{
    const struct js_value *known[UNIQUE_VALUES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n && v->few; i++) {
        const struct alternative *a = &list->one[i];
        v->few = a->n == 1 && a->atom[0]->kind == ATOM_NUMBERS && !a->atom[0]->negated;
        for (uint32_t k = 0; v->few && k < a->atom[0]->count; k++) {
            const struct js_value *value = a->atom[0]->values[k];
            bool again = false;
            for (uint32_t j = 0; j < n; j++) again = again || js_equal(known[j], value);
            if (again) continue;
            struct atom one = *a->atom[0];
            one.values = &value;
            one.count = 1;
            const struct atom *atom = atom_make(e->c, &one);
            const lang_id spelt = atom ? number_language(e->c, &(struct alternative){ &atom, 1 }) : (lang_id)LANG_NONE;
            if (!put_value(e, v, node_text(e->c->grammar, spelt))) return !e->c->status;
            known[n++] = value;
        }
    }
    return !e->c->status;
}

static bool list_values(struct emitter *e, const struct form *f, struct values *v)
{
    struct schema_ctx *c = e->c;
    struct parts scalars = { 0 };
    struct lang_word words[UNIQUE_VALUES];
    *v = (struct values){ .few = !f->type[TYPE_ARRAY].n && !f->type[TYPE_OBJECT].n };
    if (f->type[TYPE_NULL].n && !put(e, &scalars, node_literal(c->grammar, "null", 4))) return false;
    if (!put_booleans(e, &f->type[TYPE_BOOLEAN], &scalars)) return false;
    for (uint32_t i = 0; i < scalars.n; i++) (void)put_value(e, v, scalars.node[i]);
    const lang_id strings = f->type[TYPE_STRING].n ? strings_language(c, f) : (lang_id)LANG_NOTHING;
    if (strings == LANG_NONE) return false;
    const uint32_t n = lang_texts(c->langs, strings, words, UNIQUE_VALUES);
    lang_id each[UNIQUE_VALUES];
    v->few = v->few && n != UINT32_MAX;
    for (uint32_t i = 0; v->few && i < n; i++) {
        char *copy = sch_take(c, words[i].len, 1); /* the arena's own may move */
        if (!copy) return false;
        if (words[i].len) memcpy(copy, words[i].text, words[i].len);
        words[i].text = copy;
    }
    for (uint32_t i = 0; v->few && i < n; i++) {
        each[i] = lang_text(c->langs, words[i].text, words[i].len);
        (void)put_value(e, v, node_string(c->grammar, each[i], 0, NODE_UNBOUNDED));
    }
    return list_numbers(e, &f->type[TYPE_NUMBER], v);
}

/* Arrays of a few values, each once: what follows depends on which are left, and each set of them is a node. */
static bool put_arrangements(struct emitter *e, const struct array_shape *s, const struct values *v, struct parts *out)
{
    struct grammar *g = e->c->grammar;
    const uint32_t all = (1u << v->n) - 1;
    node_id *rest = sch_take(e->c, (size_t)all + 1, sizeof *rest);
    if (!rest) return false;
    for (uint32_t left = 0; left <= all; left++) {
        const uint32_t came = v->n - (uint32_t)__builtin_popcount(left);
        struct parts ways = { 0 };
        if (came >= s->min && !put(e, &ways, NODE_EMPTY)) return false;
        for (uint32_t i = 0; i < v->n && came < s->max; i++) {
            if (!(left >> i & 1) || rest[left & ~(1u << i)] == NODE_NOTHING) continue;
            const node_id parts[] = { left == all ? v->node[i] : comma(e, v->node[i]), rest[left & ~(1u << i)] };
            if (!put(e, &ways, node_sequence(g, parts, 2))) return false;
        }
        rest[left] = node_any_of(g, ways.node, ways.n);
    }
    if (rest[all] == NODE_NOTHING) return true;
    const node_id parts[] = { node_literal(g, "[", 1), e->space, rest[all], e->space, node_literal(g, "]", 1) };
    return put(e, out, node_sequence(g, parts, 5));
}

static bool put_unique(struct emitter *e, const struct array_shape *s, struct parts *out)
{
    struct schema_ctx *c = e->c;
    struct values v;
    const bool plain = !s->unique->negated && !s->n_prefix && !s->some && !s->few;
    const struct form *f = plain ? set_form(c, s->rest) : NULL;
    if (plain && (!f || !list_values(e, f, &v))) return false;
    if (plain && v.few) return put_arrangements(e, s, &v, out);
    bool strings = plain;
    for (int t = 0; t < N_TYPES && strings; t++) strings = (f->type[t].n != 0) == (t == TYPE_STRING);
    const lang_id language = strings ? strings_language(c, f) : (lang_id)LANG_NONE;
    if (!strings || lang_goes_on(c->langs, language) != LANG_YES)
        return sch_fail(c, WK_UNSUPPORTED, s->unique->at, s->unique->keyword,
                        "items can be told apart if they are strings without maxLength, of which none is the last "
                        "of its kind, or of at most %d listed values; leave it out or say maxItems 1",
                        UNIQUE_VALUES);
    const struct node_array a = {
        .rest = node_string(c->grammar, language, 0, NODE_UNBOUNDED), .min = s->min, .max = s->max, .unique = true
    };
    return put(e, out, node_array(c->grammar, &a));
}

static bool put_array(struct emitter *e, const struct alternative *a, struct parts *out)
{
    struct array_shape s;
    if (!array_shape(e->c, a, &s)) return false;
    if (s.empty) return true;
    if (s.more)
        return sch_fail(e->c, WK_UNSUPPORTED, s.more->at, s.more->keyword,
                        "more than one count of some items (contains, or a negated items) in one array");
    if (s.unique && (s.unique->negated || s.max > 1)) return put_unique(e, &s, out);
    if (s.n_others) return put_several(e, &s, out);
    return s.some || s.few ? put_contains(e, &s, out) : put_plain_array(e, &s, 0, NULL, out);
}

/* ---- objects -------------------------------------------------------------------------------------------- */

static bool put_object(struct emitter *e, const struct alternative *a, struct parts *out)
{
    struct schema_ctx *c = e->c;
    struct object_shape s;
    if (!object_shape(c, a, &s)) return false;
    if (s.empty) return true;
    struct node_property *property = sch_take(c, s.n_properties, sizeof *property);
    struct node_family *family = sch_take(c, s.n_families, sizeof *family);
    struct lang_word *words = sch_take(c, s.n_properties, sizeof *words);
    struct node_object o = { .min = s.min, .max = s.max, .properties = property, .families = family };
    if (!property || !family || !words) return false;
    for (uint32_t i = 0; i < s.n_properties; i++) {
        const struct property_shape *p = &s.property[i];
        words[i] = (struct lang_word){ p->name.data, p->name.len };
        if (p->value == set_none(c)) continue;
        property[o.n_properties++] =
            (struct node_property){ p->name.data, p->name.len, reference(e, p->value), p->required };
    }
    const lang_id declared = s.n_families ? lang_words(c->langs, words, s.n_properties) : LANG_NOTHING;
    for (uint32_t i = 0; i < s.n_families; i++) {
        const lang_id names = lang_minus(c->langs, s.family[i].names, declared);
        if (lang_is_empty(c->langs, names) == LANG_YES) continue;
        family[o.n_families++] = (struct node_family){ names, reference(e, s.family[i].value) };
    }
    return put(e, out, node_object(c->grammar, &o));
}

static bool put_objects(struct emitter *e, const struct alternative *a, struct parts *out)
{
    struct alternatives cases = { 0 };
    if (!a->n) return put(e, out, node_json_object(e->c->grammar));
    if (!object_cases(e->c, a, &cases)) return false;
    for (uint32_t i = 0; i < cases.n; i++)
        if (!put_object(e, &cases.one[i], out)) return false;
    return true;
}

/* ---- a set ---------------------------------------------------------------------------------------------- */

/* The values of a form: all, or those that are no strings. */
static node_id values_node(struct emitter *e, const struct form *f, const struct js_value *at, bool strings)
{
    struct parts parts = { 0 };
    bool made = !f->type[TYPE_NULL].n || put(e, &parts, node_literal(e->c->grammar, "null", 4));
    made = made && put_booleans(e, &f->type[TYPE_BOOLEAN], &parts);
    made = made && put_numbers(e, &f->type[TYPE_NUMBER], &parts);
    made = made && (!strings || put_strings(e, f, &parts));
    for (uint32_t i = 0; made && i < f->type[TYPE_ARRAY].n; i++)
        made = put_array(e, &f->type[TYPE_ARRAY].one[i], &parts);
    for (uint32_t i = 0; made && i < f->type[TYPE_OBJECT].n; i++)
        made = put_objects(e, &f->type[TYPE_OBJECT].one[i], &parts);
    if (made && parts.n > GRAMMAR_MAX_STACKS)
        made = sch_fail(e->c, WK_UNSUPPORTED, at, NULL,
                        "%u kinds of values begin alike here, of which %d can be followed at a time", parts.n,
                        GRAMMAR_MAX_STACKS);
    return made ? node_any_of(e->c->grammar, parts.node, parts.n) : (node_id)NODE_NONE;
}

static node_id define(struct emitter *e, const struct want_set *set)
{
    const struct form *f = set_form(e->c, set);
    return f ? values_node(e, f, set->want[0].v, true) : (node_id)NODE_NONE;
}

static node_id white_space(struct schema_ctx *c)
{
    if (c->compact) return NODE_EMPTY;
    const lang_id line = own_language(c, "[ \\t\\r]*\\n?[ \\t\\r]*");
    return node_text(c->grammar, lang_and(c->langs, line, lang_length(c->langs, 0, 20)));
}

static struct emitter *emitter_open(struct schema_ctx *c)
{
    struct emitter *e = sch_take(c, 1, sizeof *e);
    if (!e) return NULL;
    e->c = c;
    e->space = white_space(c);
    return e;
}

/* The rules that were asked for, and those that these ask for. */
static void define_queued(struct emitter *e)
{
    while (e->next < e->n_queue && !e->c->status) {
        const struct want_set *set = e->queue[e->next++];
        node_define(e->c->grammar, set->node, define(e, set));
    }
}

node_id schema_emit(struct schema_ctx *c, const struct want_set *root)
{
    struct emitter *e = emitter_open(c);
    if (!e) return NODE_NONE;
    const node_id node = reference(e, root);
    define_queued(e);
    return c->status ? (node_id)NODE_NONE : node;
}

/* ---- members -------------------------------------------------------------------------------------------- */

static bool emit_member(struct emitter *e, const struct property_shape *p, struct schema_member *out)
{
    struct parts strings = { 0 };
    const struct form *f = set_form(e->c, p->value);
    if (!f) return false;
    out->required = p->required;
    out->strings = f->type[TYPE_STRING].n ? strings_language(e->c, f) : (lang_id)LANG_NOTHING;
    if (out->strings == LANG_NONE) return sch_lang_failed(e->c, p->value->n ? p->value->want[0].v : NULL, NULL);
    if (!put_strings(e, f, &strings)) return false;
    out->string = node_any_of(e->c->grammar, strings.node, strings.n);
    out->other = values_node(e, f, p->value->n ? p->value->want[0].v : NULL, false);
    return !e->c->status;
}

/* Are the required members enough for the least number, and all of them not more than the largest? */
static bool counts_hold(const struct object_shape *s)
{
    uint32_t required = 0;
    for (uint32_t i = 0; i < s->n_properties; i++) required += s->property[i].required;
    return s->min <= required && s->max >= s->n_properties;
}

bool schema_emit_members(struct schema_ctx *c, const struct want_set *root, struct schema_member **out, size_t *n)
{
    struct emitter *e = emitter_open(c);
    const struct form *f = e ? set_form(c, root) : NULL;
    struct object_shape s = { 0 };
    if (!f) return false;
    const struct alternatives *objects = &f->type[TYPE_OBJECT];
    if (objects->n == 1 && objects->one[0].n && !object_shape(c, &objects->one[0], &s)) return false;
    if (objects->n != 1 || s.some || s.empty || (objects->one[0].n && !counts_hold(&s)))
        return sch_fail(c, WK_UNSUPPORTED, c->root, NULL,
                        "expected one object with declared members; alternatives and counts of members cannot be "
                        "enforced in this form");
    size_t bytes = s.n_properties * sizeof **out + 1;
    for (uint32_t i = 0; i < s.n_properties; i++) bytes += s.property[i].name.len;
    struct schema_member *list = calloc(1, bytes);
    if (!list) return sch_fail(c, WK_NO_MEMORY, NULL, NULL, "no memory for %u members", s.n_properties);
    char *names = (char *)(list + s.n_properties);
    for (uint32_t i = 0; i < s.n_properties && !c->status; i++) {
        const struct property_shape *p = &s.property[i];
        if (p->value == set_none(c)) continue; /* it must not come */
        struct schema_member *m = &list[(*n)++];
        memcpy(names, p->name.data, p->name.len);
        m->name = names;
        m->len = p->name.len;
        names += p->name.len;
        if (!emit_member(e, p, m)) break;
    }
    define_queued(e);
    *out = list;
    if (!c->status) return true;
    free(list);
    *out = NULL;
    *n = 0;
    return false;
}
