/* schema_logic.c: keywords that combine schemas, by the algebra of forms. */
#include "grammar/schema_form.h"

static const struct form *sub(struct schema_ctx *c, const struct js_value *schema, const char *keyword,
                              const struct js_value *v)
{
    if (v->kind == JR_OBJECT || v->kind == JR_BOOL) return set_form(c, set_of(c, v, false, false));
    sch_fail(c, WK_INVALID, schema, keyword, "expected a schema: an object, true or false");
    return NULL;
}

static bool is_list(struct schema_ctx *c, const struct js_value *schema, const char *keyword, const struct js_value *v)
{
    return (v->kind == JR_ARRAY && v->n) ||
           sch_fail(c, WK_INVALID, schema, keyword, "expected a list of at least one schema");
}

static const struct form *all_of(struct schema_ctx *c, const struct js_value *schema, const struct js_value *v)
{
    const struct form *f = NULL;
    if (!is_list(c, schema, "allOf", v)) return NULL;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct form *one = sub(c, schema, "allOf", &v->item[i]);
        f = f && one ? form_and(c, f, one) : one;
        if (!f) return NULL;
    }
    return f;
}

static const struct form *any_of(struct schema_ctx *c, const struct js_value *schema, const struct js_value *v)
{
    const struct form *f = NULL;
    if (!is_list(c, schema, "anyOf", v)) return NULL;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct form *one = sub(c, schema, "anyOf", &v->item[i]);
        if (!one) return NULL;
        /* A value that fits several has been evaluated by all of them. */
        const struct form *two = f && c->unevaluated ? form_and(c, f, one) : NULL;
        f = f ? form_or(c, f, one) : one;
        if (two) f = form_or(c, f, two);
        if (!f) return NULL;
    }
    return f;
}

/* Each branch without all the others. */
static const struct form *one_of(struct schema_ctx *c, const struct js_value *schema, const struct js_value *v)
{
    const struct form *f = form_none(c);
    if (!is_list(c, schema, "oneOf", v)) return NULL;
    for (uint32_t i = 0; f && i < v->n; i++) {
        const struct form *one = sub(c, schema, "oneOf", &v->item[i]);
        for (uint32_t k = 0; one && k < v->n; k++) {
            const struct form *other = k == i ? NULL : sub(c, schema, "oneOf", &v->item[k]);
            if (k != i) one = form_minus(c, one, other);
        }
        f = form_or(c, f, one);
    }
    return f;
}

static const struct form *if_then_else(struct schema_ctx *c, const struct js_value *schema, const struct js_value *v)
{
    const struct js_value *then = js_get(schema, "then"), *otherwise = js_get(schema, "else");
    if (!then && !otherwise && !c->unevaluated) return form_all(c);
    const struct form *cond = sub(c, schema, "if", v), *yes = cond, *no = form_not(c, cond);
    if (then) yes = form_and(c, yes, sub(c, schema, "then", then));
    if (otherwise) no = form_and(c, no, sub(c, schema, "else", otherwise));
    return form_or(c, yes, no);
}

/* Objects without the property, and objects with it that fit the form. */
static const struct form *if_has(struct schema_ctx *c, const struct js_value *schema, const char *keyword,
                                 struct json_text name, const struct form *then)
{
    struct atom a = { .kind = ATOM_HAS, .at = schema, .keyword = keyword, .text = name };
    const struct atom *has = atom_make(c, &a);
    a.negated = true;
    const struct atom *lacks = atom_make(c, &a);
    const struct form *with = has && then ? form_and(c, form_of_atoms(c, TYPE_OBJECT, &has, 1), then) : NULL;
    return with && lacks ? form_or(c, with, form_of_atoms(c, TYPE_OBJECT, &lacks, 1)) : NULL;
}

static const struct form *required_names(struct schema_ctx *c, const struct js_value *schema, const char *keyword,
                                         const struct js_value *list)
{
    const struct atom **atoms = sch_take(c, list->n, sizeof *atoms);
    for (uint32_t i = 0; atoms && i < list->n; i++) {
        const struct atom a = { .kind = ATOM_HAS, .at = schema, .keyword = keyword, .text = list->item[i].text };
        if (list->item[i].kind != JR_STRING) {
            sch_fail(c, WK_INVALID, schema, keyword, "expected lists of names");
            return NULL;
        }
        atoms[i] = atom_make(c, &a);
    }
    return atoms ? form_of_atoms(c, TYPE_OBJECT, atoms, list->n) : NULL;
}

static const struct form *dependencies(struct schema_ctx *c, const struct js_value *schema, const char *keyword,
                                       const struct js_value *v, bool lists, bool schemas)
{
    const struct form *f = form_all(c);
    if (v->kind != JR_OBJECT) {
        sch_fail(c, WK_INVALID, schema, keyword, "expected an object");
        return NULL;
    }
    for (uint32_t i = 0; f && i < v->n; i++) {
        const struct js_value *one = &v->member[i].value;
        const struct form *then = NULL;
        if (one->kind == JR_ARRAY && lists)
            then = required_names(c, schema, keyword, one);
        else if (schemas)
            then = sub(c, schema, keyword, one);
        else
            sch_fail(c, WK_INVALID, schema, keyword, "expected lists of names");
        f = form_and(c, f, then ? if_has(c, schema, keyword, v->member[i].key, then) : NULL);
    }
    return f;
}

static const struct form *reference(struct schema_ctx *c, const struct js_value *schema, const char *keyword,
                                    const struct js_value *v)
{
    const struct js_value *target = ref_resolve(c, schema, keyword, v);
    return target ? set_form(c, set_of(c, target, false, false)) : NULL;
}

const struct form *form_of_logic(struct schema_ctx *c, const struct js_value *schema, const struct js_member *keyword,
                                 bool *found)
{
    const struct json_text key = keyword->key;
    const struct js_value *v = &keyword->value;
    const bool new = c->draft >= DRAFT_2019; /* an older draft's unknown keyword is an annotation */
    *found = true;
    if (jr_is(key, "allOf")) return all_of(c, schema, v);
    if (jr_is(key, "anyOf")) return any_of(c, schema, v);
    if (jr_is(key, "oneOf")) return one_of(c, schema, v);
    if (jr_is(key, "not")) return form_not(c, sub(c, schema, "not", v));
    if (jr_is(key, "if") && c->draft >= DRAFT_7) return if_then_else(c, schema, v);
    if (jr_is(key, "$ref")) return reference(c, schema, "$ref", v);
    if (jr_is(key, "$dynamicRef") && new) return reference(c, schema, "$dynamicRef", v);
    if (jr_is(key, "$recursiveRef") && new) return reference(c, schema, "$recursiveRef", v);
    if (jr_is(key, "dependentRequired") && new) return dependencies(c, schema, "dependentRequired", v, true, false);
    if (jr_is(key, "dependentSchemas") && new) return dependencies(c, schema, "dependentSchemas", v, false, true);
    if (jr_is(key, "dependencies")) return dependencies(c, schema, "dependencies", v, true, true);
    *found = false;
    return NULL;
}
