/* schema_values.c: enum and const: the forms of given values. */
#include "grammar/schema_form.h"

static bool add_array(struct schema_ctx *c, struct form *f, const struct js_value *v)
{
    const struct atom **atoms = sch_take(c, (size_t)v->n + 2, sizeof *atoms);
    uint32_t n = 0;
    struct atom a = { .at = v, .keyword = "const", .kind = ATOM_MAX_ITEMS, .count = v->n };
    if (!atoms) return false;
    atoms[n++] = atom_make(c, &a);
    a.kind = ATOM_MIN_ITEMS;
    if (v->n) atoms[n++] = atom_make(c, &a);
    a.kind = ATOM_ITEM;
    for (uint32_t i = 0; i < v->n; i++) {
        a.count = i;
        a.child = set_of(c, &v->item[i], true, false);
        atoms[n++] = atom_make(c, &a);
    }
    return form_add(c, f, TYPE_ARRAY, atoms, n);
}

static bool add_object(struct schema_ctx *c, struct form *f, const struct js_value *v)
{
    const struct atom **atoms = sch_take(c, 2 * (size_t)v->n + 1, sizeof *atoms);
    uint32_t n = 0;
    struct atom most = { .at = v, .keyword = "const", .kind = ATOM_MAX_PROPERTIES, .count = v->n };
    if (!atoms) return false;
    atoms[n++] = atom_make(c, &most);
    for (uint32_t i = 0; i < v->n; i++) {
        struct atom a = { .at = v, .keyword = "const", .kind = ATOM_PROPERTY, .text = v->member[i].key };
        a.child = set_of(c, &v->member[i].value, true, false);
        atoms[n++] = atom_make(c, &a);
        a.kind = ATOM_HAS;
        a.child = NULL;
        atoms[n++] = atom_make(c, &a);
    }
    return form_add(c, f, TYPE_OBJECT, atoms, n);
}

static bool add_value(struct schema_ctx *c, struct form *f, const struct js_value *v)
{
    struct atom a = { .at = v, .keyword = "const" };
    const struct atom *made;
    switch (v->kind) {
    case JR_NULL: return form_add(c, f, TYPE_NULL, NULL, 0);
    case JR_BOOL:
        a.kind = ATOM_TRUTH;
        a.count = v->truth;
        made = atom_make(c, &a);
        return form_add(c, f, TYPE_BOOLEAN, &made, 1);
    case JR_ARRAY: return add_array(c, f, v);
    case JR_OBJECT: return add_object(c, f, v);
    default: return true;
    }
}

/* All numbers, and all strings, of some values are one atom each: thousands of names are common. */
static bool add_scalars(struct schema_ctx *c, struct form *f, const struct js_value *v, uint32_t n)
{
    const struct js_value **numbers = sch_take(c, n, sizeof *numbers);
    struct lang_word *words = sch_take(c, n, sizeof *words);
    uint32_t n_numbers = 0, n_words = 0;
    if (!numbers || !words) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (v[i].kind == JR_NUMBER) numbers[n_numbers++] = &v[i];
        if (v[i].kind == JR_STRING) words[n_words++] = (struct lang_word){ v[i].text.data, v[i].text.len };
    }
    struct atom a = { .at = v, .keyword = "enum", .kind = ATOM_NUMBERS, .values = numbers, .count = n_numbers };
    const struct atom *made = n_numbers ? atom_make(c, &a) : NULL;
    if (n_numbers && !form_add(c, f, TYPE_NUMBER, &made, 1)) return false;
    if (!n_words) return true;
    struct atom s = { .at = v, .keyword = "enum", .kind = ATOM_LANGUAGE };
    s.language = lang_words(c->langs, words, n_words);
    if (s.language == LANG_NONE) return sch_lang_failed(c, v, "enum");
    made = atom_make(c, &s);
    return form_add(c, f, TYPE_STRING, &made, 1);
}

static struct form *form_of_some(struct schema_ctx *c, const struct js_value *v, uint32_t n)
{
    struct form *f = form_none(c);
    for (uint32_t i = 0; f && i < n; i++)
        if (!add_value(c, f, &v[i])) return NULL;
    return f && add_scalars(c, f, v, n) ? f : NULL;
}

struct form *form_of_values(struct schema_ctx *c, const struct js_value *list)
{
    return form_of_some(c, list->item, list->n);
}

const struct form *form_of_value(struct schema_ctx *c, const struct js_value *value)
{
    return form_of_some(c, value, 1);
}
