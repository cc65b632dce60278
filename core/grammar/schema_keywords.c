/* schema_keywords.c: one schema's keywords as a form. Keywords that say something about one type become atoms of it;
 * those that combine schemas are schema_logic.c's. They are taken in the order of the text, since that is the order in
 * which properties will be written.
 *
 * A keyword that is not in the tables is an annotation, as the specification has it. A keyword of the tables whose
 * value is not what it may be refuses the schema: half a constraint is none. */
#include "grammar/schema_form.h"

#include <string.h>

struct builder {
    struct schema_ctx *c;
    const struct js_value *schema;
    const struct form *form; /* of what has been flushed */
    const struct atom **atom[N_TYPES];
    uint32_t n[N_TYPES], cap[N_TYPES];
    bool touched; /* some atoms wait */
};

static bool push(struct builder *b, enum schema_type type, const struct atom *wanted)
{
    const struct atom *a = atom_make(b->c, wanted);
    if (!a) return false;
    const struct atom **grown =
        arena_grow(b->c->arena, (void *)b->atom[type], b->n[type], &b->cap[type], sizeof *grown);
    if (!grown) return sch_fail(b->c, WK_NO_MEMORY, b->schema, NULL, "no memory for %u statements", b->n[type]);
    b->atom[type] = grown;
    b->atom[type][b->n[type]++] = a;
    return b->touched = true;
}

static bool both(struct builder *b, const struct form *f)
{
    if (!f) return false;
    b->form = b->form ? form_and(b->c, b->form, f) : f;
    return b->form != NULL;
}

/* What waits becomes part of the form, before a keyword that combines schemas. */
static bool flush(struct builder *b)
{
    if (!b->touched) return true;
    struct form *f = form_all(b->c);
    for (int t = 0; f && t < N_TYPES; t++) {
        if (!b->n[t]) continue;
        f->type[t] = (struct alternatives){ 0 };
        if (!form_add(b->c, f, (enum schema_type)t, b->atom[t], b->n[t])) return false;
        b->n[t] = 0;
    }
    b->touched = false;
    return both(b, f);
}

static bool wrong(struct builder *b, const char *keyword, const char *expected)
{
    return sch_fail(b->c, WK_INVALID, b->schema, keyword, "expected %s", expected);
}

/* ---- type, enum, const ---------------------------------------------------------------------------------- */

static bool add_type(struct builder *b, struct form *f, const struct js_value *name)
{
    static const char *const names[N_TYPES] = { "null", "boolean", "number", "string", "array", "object" };
    if (name->kind != JR_STRING) return wrong(b, "type", "the name of a type, or a list of names");
    for (int t = 0; t < N_TYPES; t++)
        if (jr_is(name->text, names[t])) return form_add(b->c, f, (enum schema_type)t, NULL, 0);
    if (!jr_is(name->text, "integer"))
        return sch_fail(b->c, WK_INVALID, b->schema, "type", "\"%.*s\" is no type",
                        (int)(name->text.len < 64 ? name->text.len : 64), name->text.data);
    const struct atom integer = { .kind = ATOM_INTEGER, .at = b->schema, .keyword = "type" };
    const struct atom *made = atom_make(b->c, &integer);
    return form_add(b->c, f, TYPE_NUMBER, &made, 1);
}

static bool kw_type(struct builder *b, const struct js_value *v)
{
    struct form *f = form_none(b->c);
    if (!f) return false;
    if (v->kind == JR_ARRAY && !v->n) return wrong(b, "type", "at least one name");
    for (uint32_t i = 0; v->kind == JR_ARRAY && i < v->n; i++)
        if (!add_type(b, f, &v->item[i])) return false;
    if (v->kind != JR_ARRAY && !add_type(b, f, v)) return false;
    /* OpenAPI 3.0: null beside what `type` says. */
    const struct js_value *nullable = js_get(b->schema, "nullable");
    if (js_is(nullable, JR_BOOL) && nullable->truth && !form_add(b->c, f, TYPE_NULL, NULL, 0)) return false;
    return flush(b) && both(b, f);
}

static bool kw_enum(struct builder *b, const struct js_value *v)
{
    if (v->kind != JR_ARRAY) return wrong(b, "enum", "a list of values");
    return flush(b) && both(b, form_of_values(b->c, v));
}

static bool kw_const(struct builder *b, const struct js_value *v)
{
    return flush(b) && both(b, form_of_value(b->c, v));
}

/* ---- numbers -------------------------------------------------------------------------------------------- */

static bool bound(struct builder *b, const char *keyword, const struct js_value *v, enum atom_kind kind, bool exclusive)
{
    if (v->kind != JR_NUMBER) return wrong(b, keyword, "a number");
    const struct atom a = {
        .kind = (uint8_t)kind, .at = b->schema, .keyword = keyword, .bound = dec_of(v->text), .exclusive = exclusive
    };
    return push(b, TYPE_NUMBER, &a);
}

static bool says_true(const struct js_value *v) { return js_is(v, JR_BOOL) && v->truth; } /* draft 4's exclusive... */

static bool kw_minimum(struct builder *b, const struct js_value *v)
{
    return bound(b, "minimum", v, ATOM_MINIMUM, says_true(js_get(b->schema, "exclusiveMinimum")));
}
static bool kw_maximum(struct builder *b, const struct js_value *v)
{
    return bound(b, "maximum", v, ATOM_MAXIMUM, says_true(js_get(b->schema, "exclusiveMaximum")));
}
static bool kw_exclusive_minimum(struct builder *b, const struct js_value *v)
{
    return v->kind == JR_BOOL || bound(b, "exclusiveMinimum", v, ATOM_MINIMUM, true);
}
static bool kw_exclusive_maximum(struct builder *b, const struct js_value *v)
{
    return v->kind == JR_BOOL || bound(b, "exclusiveMaximum", v, ATOM_MAXIMUM, true);
}

static bool kw_multiple_of(struct builder *b, const struct js_value *v)
{
    struct atom a = { .kind = ATOM_MULTIPLE, .at = b->schema, .keyword = "multipleOf" };
    if (v->kind != JR_NUMBER) return wrong(b, "multipleOf", "a number above 0");
    const struct dec d = dec_of(v->text);
    if (!d.n || d.negative) return wrong(b, "multipleOf", "a number above 0");
    if (!dec_units(d, &a.units, &a.exp))
        return sch_fail(b->c, WK_UNSUPPORTED, b->schema, "multipleOf", "more than 18 digits");
    return push(b, TYPE_NUMBER, &a);
}

/* ---- counts --------------------------------------------------------------------------------------------- */

static bool count_of(struct builder *b, const char *keyword, const struct js_value *v, uint32_t *out)
{
    const struct dec d = v->kind == JR_NUMBER ? dec_of(v->text) : (struct dec){ .negative = true, .n = 1 };
    if ((d.negative && d.n) || !dec_is_integer(d)) return wrong(b, keyword, "a whole number from 0");
    if (!dec_count(d, out)) *out = UINT32_MAX - 1;
    return true;
}

static bool least(struct builder *b, const char *keyword, const struct js_value *v, enum schema_type type,
                  enum atom_kind kind)
{
    struct atom a = { .kind = (uint8_t)kind, .at = b->schema, .keyword = keyword };
    return count_of(b, keyword, v, &a.count) && (!a.count || push(b, type, &a));
}

static bool most(struct builder *b, const char *keyword, const struct js_value *v, enum schema_type type,
                 enum atom_kind kind)
{
    struct atom a = { .kind = (uint8_t)kind, .at = b->schema, .keyword = keyword };
    return count_of(b, keyword, v, &a.count) && (a.count == UINT32_MAX - 1 || push(b, type, &a));
}

static bool kw_min_length(struct builder *b, const struct js_value *v)
{
    return least(b, "minLength", v, TYPE_STRING, ATOM_MIN_LENGTH);
}
static bool kw_max_length(struct builder *b, const struct js_value *v)
{
    return most(b, "maxLength", v, TYPE_STRING, ATOM_MAX_LENGTH);
}
static bool kw_min_items(struct builder *b, const struct js_value *v)
{
    return least(b, "minItems", v, TYPE_ARRAY, ATOM_MIN_ITEMS);
}
static bool kw_max_items(struct builder *b, const struct js_value *v)
{
    return most(b, "maxItems", v, TYPE_ARRAY, ATOM_MAX_ITEMS);
}
static bool kw_min_properties(struct builder *b, const struct js_value *v)
{
    return least(b, "minProperties", v, TYPE_OBJECT, ATOM_MIN_PROPERTIES);
}
static bool kw_max_properties(struct builder *b, const struct js_value *v)
{
    return most(b, "maxProperties", v, TYPE_OBJECT, ATOM_MAX_PROPERTIES);
}

/* ---- strings -------------------------------------------------------------------------------------------- */

static lang_id pattern_language(struct builder *b, const char *keyword, struct json_text pattern)
{
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    wk_status status = WK_OK;
    const lang_id found = lang_regex(b->c->langs, pattern.data, pattern.len, LANG_SEARCH, &status, &err);
    if (found == LANG_NONE) sch_fail(b->c, status ? status : WK_UNSUPPORTED, b->schema, keyword, "%s", text);
    return found;
}

static bool kw_pattern(struct builder *b, const struct js_value *v)
{
    struct atom a = { .kind = ATOM_LANGUAGE, .at = b->schema, .keyword = "pattern" };
    if (v->kind != JR_STRING) return wrong(b, "pattern", "a regular expression");
    a.language = pattern_language(b, "pattern", v->text);
    return a.language != LANG_NONE && push(b, TYPE_STRING, &a);
}

static bool kw_format(struct builder *b, const struct js_value *v)
{
    struct atom a = { .kind = ATOM_LANGUAGE, .at = b->schema, .keyword = "format" };
    if (v->kind != JR_STRING) return wrong(b, "format", "a format's name");
    a.language = format_language(b->c, v->text);
    if (b->c->status) return false;
    if (a.language != LANG_NONE) return push(b, TYPE_STRING, &a);
    /* These are formats, but no regular languages; a name that nobody defines is an annotation. */
    if (!b->c->strict && !jr_is(v->text, "regex") && !jr_is(v->text, "idn-hostname")) return true;
    return sch_fail(b->c, WK_UNSUPPORTED, b->schema, "format", "\"%.*s\" is no format that is enforced",
                    (int)(v->text.len < 64 ? v->text.len : 64), v->text.data);
}

/* ---- arrays --------------------------------------------------------------------------------------------- */

static const struct want_set *subschema(struct builder *b, const char *keyword, const struct js_value *v)
{
    if (v->kind == JR_OBJECT || v->kind == JR_BOOL) return set_of(b->c, v, false, false);
    wrong(b, keyword, "a schema");
    return NULL;
}

static bool prefix(struct builder *b, const char *keyword, const struct js_value *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        struct atom a = { .kind = ATOM_ITEM, .at = b->schema, .keyword = keyword, .count = i };
        a.child = subschema(b, keyword, &v->item[i]);
        if (!a.child || ((a.child->n || b->c->unevaluated) && !push(b, TYPE_ARRAY, &a))) return false;
    }
    return true;
}

static bool items_from(struct builder *b, const char *keyword, const struct js_value *v, uint32_t from)
{
    struct atom a = { .kind = ATOM_ITEMS_FROM, .at = b->schema, .keyword = keyword, .count = from };
    a.child = subschema(b, keyword, v);
    return a.child && ((!a.child->n && !b->c->unevaluated) || push(b, TYPE_ARRAY, &a));
}

static bool kw_items(struct builder *b, const struct js_value *v)
{
    const struct js_value *first = b->c->draft >= DRAFT_2020 ? js_get(b->schema, "prefixItems") : NULL,
                          *rest = js_get(b->schema, "additionalItems");
    if (v->kind == JR_ARRAY) /* before 2020-12 */
        return prefix(b, "items", v) && (!rest || items_from(b, "additionalItems", rest, v->n));
    return items_from(b, "items", v, js_is(first, JR_ARRAY) ? first->n : 0);
}

static bool kw_prefix_items(struct builder *b, const struct js_value *v)
{
    if (v->kind != JR_ARRAY || !v->n) return wrong(b, "prefixItems", "a list of schemas");
    if (js_is(js_get(b->schema, "items"), JR_ARRAY)) return wrong(b, "items", "a schema beside prefixItems");
    return prefix(b, "prefixItems", v);
}

static bool kw_contains(struct builder *b, const struct js_value *v)
{
    struct atom a = { .kind = ATOM_SOME_ITEMS, .at = b->schema, .keyword = "contains", .least = 1 };
    const bool bounded = b->c->draft >= DRAFT_2019;
    const struct js_value *min = bounded ? js_get(b->schema, "minContains") : NULL;
    const struct js_value *max = bounded ? js_get(b->schema, "maxContains") : NULL;
    a.child = subschema(b, "contains", v);
    if (!a.child || (min && !count_of(b, "minContains", min, &a.least))) return false;
    if (a.least && !push(b, TYPE_ARRAY, &a)) return false;
    a.kind = ATOM_FEW_ITEMS;
    if (max && !count_of(b, "maxContains", max, &a.least)) return false;
    return !max || push(b, TYPE_ARRAY, &a);
}

static bool kw_unique_items(struct builder *b, const struct js_value *v)
{
    const struct atom a = { .kind = ATOM_UNIQUE, .at = b->schema, .keyword = "uniqueItems" };
    if (v->kind != JR_BOOL) return wrong(b, "uniqueItems", "true or false");
    return !v->truth || push(b, TYPE_ARRAY, &a);
}

/* ---- objects -------------------------------------------------------------------------------------------- */

static bool kw_properties(struct builder *b, const struct js_value *v)
{
    if (v->kind != JR_OBJECT) return wrong(b, "properties", "an object of schemas");
    for (uint32_t i = 0; i < v->n; i++) {
        struct atom a = { .kind = ATOM_PROPERTY, .at = b->schema, .keyword = "properties", .text = v->member[i].key };
        a.child = subschema(b, "properties", &v->member[i].value);
        if (!a.child || !push(b, TYPE_OBJECT, &a)) return false;
    }
    return true;
}

static bool kw_required(struct builder *b, const struct js_value *v)
{
    if (v->kind != JR_ARRAY) return wrong(b, "required", "a list of names");
    for (uint32_t i = 0; i < v->n; i++) {
        const struct atom a = { .kind = ATOM_HAS, .at = b->schema, .keyword = "required", .text = v->item[i].text };
        if (v->item[i].kind != JR_STRING) return wrong(b, "required", "a list of names");
        if (!push(b, TYPE_OBJECT, &a)) return false;
    }
    return true;
}

static bool family(struct builder *b, const char *keyword, const struct want_set *child, const struct names *names)
{
    struct names *copy = sch_take(b->c, 1, sizeof *copy);
    struct atom a = { .kind = ATOM_FAMILY, .at = b->schema, .keyword = keyword, .child = child, .names = copy };
    if (!copy || !child) return false;
    *copy = *names;
    return (!child->n && !b->c->unevaluated) || push(b, TYPE_OBJECT, &a);
}

static bool kw_pattern_properties(struct builder *b, const struct js_value *v)
{
    if (v->kind != JR_OBJECT) return wrong(b, "patternProperties", "an object of schemas");
    for (uint32_t i = 0; i < v->n; i++) {
        struct names names = { .language = pattern_language(b, "patternProperties", v->member[i].key) };
        if (names.language == LANG_NONE ||
            !family(b, "patternProperties", subschema(b, "patternProperties", &v->member[i].value), &names))
            return false;
    }
    return true;
}

static bool kw_additional_properties(struct builder *b, const struct js_value *v)
{
    const struct js_value *properties = js_get(b->schema, "properties"),
                          *patterns = js_get(b->schema, "patternProperties");
    struct names names = { .language = LANG_EVERYTHING, .listed = js_is(properties, JR_OBJECT) ? properties : NULL };
    for (uint32_t i = 0; js_is(patterns, JR_OBJECT) && i < patterns->n; i++) {
        const lang_id one = pattern_language(b, "patternProperties", patterns->member[i].key);
        if (one == LANG_NONE) return false;
        names.language = lang_minus(b->c->langs, names.language, one);
    }
    return family(b, "additionalProperties", subschema(b, "additionalProperties", v), &names);
}

static bool kw_property_names(struct builder *b, const struct js_value *v)
{
    const struct want_set *child = subschema(b, "propertyNames", v);
    const struct form *f = child ? set_form(b->c, child) : NULL;
    const lang_id fit = f ? strings_language(b->c, f) : LANG_NONE;
    struct names names = { .language = lang_not(b->c->langs, fit) };
    if (fit == LANG_NONE) return false;
    return fit == LANG_EVERYTHING || family(b, "propertyNames", set_none(b->c), &names);
}

/* ---- unevaluated ---------------------------------------------------------------------------------------- */

static lang_id listed_words(struct schema_ctx *c, const struct js_value *listed)
{
    struct lang_word *words = sch_take(c, listed->n, sizeof *words);
    for (uint32_t i = 0; words && i < listed->n; i++)
        words[i] = (struct lang_word){ listed->member[i].key.data, listed->member[i].key.len };
    return words ? lang_words(c->langs, words, listed->n) : LANG_NONE;
}

/* What no part of this alternative has evaluated must fit the schema. */
static const struct atom *unevaluated_properties(struct builder *b, const struct alternative *a,
                                                 const struct want_set *child)
{
    struct names *rest = sch_take(b->c, 1, sizeof *rest);
    struct json_text *more = sch_take(b->c, a->n, sizeof *more);
    if (!rest || !more) return NULL;
    lang_id evaluated = LANG_NOTHING;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct atom *x = a->atom[i];
        if (x->silent) continue;
        if (x->kind == ATOM_PROPERTY) more[rest->n_more++] = x->text;
        /* propertyNames is a family of names that no property has: it evaluates nothing. */
        if (x->kind != ATOM_FAMILY || strcmp(x->keyword, "propertyNames") == 0) continue;
        lang_id one = x->names->language;
        if (x->names->listed) one = lang_minus(b->c->langs, one, listed_words(b->c, x->names->listed));
        for (uint32_t k = 0; k < x->names->n_more; k++)
            one = lang_minus(b->c->langs, one, lang_text(b->c->langs, x->names->more[k].data, x->names->more[k].len));
        evaluated = lang_or(b->c->langs, evaluated, one);
    }
    rest->language = lang_not(b->c->langs, evaluated);
    rest->more = more;
    const struct atom made = {
        .kind = ATOM_FAMILY, .at = b->schema, .keyword = "unevaluatedProperties", .child = child, .names = rest
    };
    return atom_make(b->c, &made);
}

static const struct atom *unevaluated_items(struct builder *b, const struct alternative *a,
                                            const struct want_set *child)
{
    struct atom made = { .kind = ATOM_ITEMS_FROM, .at = b->schema, .keyword = "unevaluatedItems", .child = child };
    for (uint32_t i = 0; i < a->n; i++) {
        const struct atom *x = a->atom[i];
        if (x->silent) continue;
        if (x->kind == ATOM_ITEM && x->count >= made.count) made.count = x->count + 1;
        if (x->kind == ATOM_ITEMS_FROM) made.child = set_all(b->c);
        if (x->kind == ATOM_SOME_ITEMS || x->kind == ATOM_FEW_ITEMS) {
            sch_fail(b->c, WK_UNSUPPORTED, b->schema, "unevaluatedItems",
                     "beside contains, which items are evaluated depends on their values");
            return NULL;
        }
    }
    return atom_make(b->c, &made);
}

static bool unevaluated(struct builder *b, const struct js_value *v, bool items)
{
    const char *keyword = items ? "unevaluatedItems" : "unevaluatedProperties";
    const enum schema_type type = items ? TYPE_ARRAY : TYPE_OBJECT;
    const struct want_set *child = v ? subschema(b, keyword, v) : NULL;
    const struct form *old = v && !b->form ? form_all(b->c) : b->form;
    if (!v) return true;
    struct form *f = child && old ? form_none(b->c) : NULL;
    if (!f) return false;
    for (int t = 0; t < N_TYPES; t++) f->type[t] = old->type[t];
    f->type[type] = (struct alternatives){ 0 };
    for (uint32_t i = 0; i < old->type[type].n; i++) {
        const struct alternative *a = &old->type[type].one[i];
        const struct atom **atoms = sch_take(b->c, (size_t)a->n + 1, sizeof *atoms);
        if (!atoms) return false;
        if (a->n) memcpy(atoms, a->atom, a->n * sizeof *atoms);
        atoms[a->n] = items ? unevaluated_items(b, a, child) : unevaluated_properties(b, a, child);
        if (!atoms[a->n] || !form_add(b->c, f, type, atoms, a->n + 1)) return false;
    }
    b->form = f;
    return true;
}

/* ---- one schema ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool (*add)(struct builder *b, const struct js_value *v);
    enum schema_draft since; /* before it an unknown keyword, which is an annotation */
} keywords[] = {
    { "type", kw_type, DRAFT_4 },
    { "enum", kw_enum, DRAFT_4 },
    { "const", kw_const, DRAFT_6 },
    { "minimum", kw_minimum, DRAFT_4 },
    { "maximum", kw_maximum, DRAFT_4 },
    { "exclusiveMinimum", kw_exclusive_minimum, DRAFT_4 },
    { "exclusiveMaximum", kw_exclusive_maximum, DRAFT_4 },
    { "multipleOf", kw_multiple_of, DRAFT_4 },
    { "minLength", kw_min_length, DRAFT_4 },
    { "maxLength", kw_max_length, DRAFT_4 },
    { "pattern", kw_pattern, DRAFT_4 },
    { "format", kw_format, DRAFT_4 },
    { "minItems", kw_min_items, DRAFT_4 },
    { "maxItems", kw_max_items, DRAFT_4 },
    { "items", kw_items, DRAFT_4 },
    { "prefixItems", kw_prefix_items, DRAFT_2020 },
    { "contains", kw_contains, DRAFT_6 },
    { "uniqueItems", kw_unique_items, DRAFT_4 },
    { "minProperties", kw_min_properties, DRAFT_4 },
    { "maxProperties", kw_max_properties, DRAFT_4 },
    { "properties", kw_properties, DRAFT_4 },
    { "required", kw_required, DRAFT_4 },
    { "patternProperties", kw_pattern_properties, DRAFT_4 },
    { "additionalProperties", kw_additional_properties, DRAFT_4 },
    { "propertyNames", kw_property_names, DRAFT_6 },
};

static bool add_keyword(struct builder *b, const struct js_member *m)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (jr_is(m->key, keywords[i].name)) return b->c->draft < keywords[i].since || keywords[i].add(b, &m->value);
    bool found = false;
    const struct form *f = form_of_logic(b->c, b->schema, m, &found);
    return !found || (f && flush(b) && both(b, f));
}

const struct form *form_of_schema(struct schema_ctx *c, const struct js_value *schema)
{
    struct builder b = { .c = c, .schema = schema };
    if (schema->kind == JR_BOOL) return schema->truth ? form_all(c) : form_none(c);
    if (schema->kind != JR_OBJECT) {
        sch_fail(c, WK_INVALID, schema, NULL, "expected a schema: an object, true or false");
        return NULL;
    }
    const bool ref_alone = c->draft <= DRAFT_7 && js_get(schema, "$ref");
    for (uint32_t i = 0; i < schema->n; i++)
        if ((!ref_alone || jr_is(schema->member[i].key, "$ref")) && !add_keyword(&b, &schema->member[i])) return NULL;
    if (!flush(&b)) return NULL;
    if (c->draft >= DRAFT_2019 && (!unevaluated(&b, js_get(schema, "unevaluatedItems"), true) ||
                                   !unevaluated(&b, js_get(schema, "unevaluatedProperties"), false)))
        return NULL;
    return b.form ? b.form : form_all(c);
}
