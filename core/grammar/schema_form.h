/* schema_form.h: the normal form of a schema. Private to the JSON Schema compiler.
 *
 * A form is, for each of JSON's six types, a union of alternatives; an alternative is a set of atoms that all hold; an
 * atom is one plain statement about a value of that type ("has the property a", "item 3 fits this schema", "at most 8
 * characters"). Every keyword gives a form, and and, or and not of forms are forms, so allOf, anyOf, oneOf, not, if and
 * dependencies need nothing of their own afterwards.
 *
 * What an atom says of a value inside (a property, an item) it says by a set of schemas, which need not have been
 * looked at: that is what lets a schema contain itself, and what keeps a reference a pointer. A set is one object
 * however often it is asked for; there are finitely many, and each is compiled once. */
#ifndef CORE_GRAMMAR_SCHEMA_FORM_H
#define CORE_GRAMMAR_SCHEMA_FORM_H

#include "grammar/schema_internal.h"

enum schema_type { TYPE_NULL, TYPE_BOOLEAN, TYPE_NUMBER, TYPE_STRING, TYPE_ARRAY, TYPE_OBJECT, N_TYPES };

/* One member of a set: the values that fit the schema `v`, or (is_value) the value v itself; negated: all others. */
struct want {
    const struct js_value *v;
    bool is_value, negated;
};

enum form_state { FORM_ABSENT, FORM_BEING_MADE, FORM_MADE };

/* The values that fit every member. No members: all values. Made by set_* alone; equal sets are one. */
struct want_set {
    const struct want *want; /* [n] in the text's order */
    uint32_t n;
    uint8_t state;   /* enum form_state */
    uint8_t empty;   /* enum set_empty */
    bool shown_done; /* schema_emit.c: its rule is defined or will be */
    uint32_t proof;  /* the question of emptiness during which the form was begun */
    node_id node;    /* schema_emit.c */
    const struct form *form;
};
enum set_empty { SET_NOT_ASKED, SET_BEING_ASKED, SET_EMPTY, SET_NOT_SHOWN_EMPTY };

enum atom_kind {
    ATOM_TRUTH, /* the boolean is `count` */

    ATOM_INTEGER,
    ATOM_MINIMUM, /* bound, exclusive */
    ATOM_MAXIMUM,
    ATOM_MULTIPLE, /* units, exp */
    ATOM_NUMBERS,  /* one of values */

    ATOM_MIN_LENGTH, /* count */
    ATOM_MAX_LENGTH,
    ATOM_LANGUAGE, /* language */

    ATOM_MIN_ITEMS, /* count */
    ATOM_MAX_ITEMS,
    ATOM_ITEM,       /* if there is an item `count`, it is in `child` */
    ATOM_ITEMS_FROM, /* so is each item from `count` on */
    ATOM_SOME_ITEMS, /* at least `least` items from `count` on are in child */
    ATOM_FEW_ITEMS,  /* at most `least` items from `count` on are in child */
    ATOM_UNIQUE,

    ATOM_MIN_PROPERTIES, /* count */
    ATOM_MAX_PROPERTIES,
    ATOM_HAS,         /* the property `text` is there */
    ATOM_PROPERTY,    /* if it is there, it is in child */
    ATOM_FAMILY,      /* so is each property whose name is in `names` */
    ATOM_SOME_FAMILY, /* some property whose name is in `names` is in child */
};

/* Names of properties: those in `language` but for the keys of `listed` and `more`. */
struct names {
    lang_id language;
    const struct js_value *listed; /* an object, or NULL */
    const struct json_text *more;
    uint32_t n_more;
};

struct atom {
    uint8_t kind; /* enum atom_kind */
    bool negated; /* only of kinds that have no opposite: TRUTH no, INTEGER, MULTIPLE, NUMBERS, LANGUAGE, UNIQUE, HAS */
    bool exclusive;
    bool silent; /* comes from a `not`: evaluates nothing (unevaluatedProperties) */
    uint32_t id; /* the order in which atoms were made */
    uint32_t count, least;
    const struct js_value *at; /* for messages */
    const char *keyword;
    struct json_text text;
    const struct want_set *child;
    const struct names *names;
    struct dec bound;
    uint64_t units;
    int64_t exp;
    const struct js_value *const *values; /* [count] */
    lang_id language;
};

struct alternative {
    const struct atom *const *atom; /* [n] by id */
    uint32_t n;
};
struct alternatives {
    struct alternative *one; /* [n] none lies in another as far as their atoms tell */
    uint32_t n, cap;
};
struct form {
    struct alternatives type[N_TYPES];
};

/* ---- sets ----------------------------------------------------------------------------------------------- */

bool forms_open(struct schema_ctx *c);
struct want_set *set_of(struct schema_ctx *c, const struct js_value *v, bool is_value, bool negated);
struct want_set *set_and(struct schema_ctx *c, const struct want_set *a, const struct want_set *b);
struct want_set *set_all(struct schema_ctx *c);
struct want_set *set_none(struct schema_ctx *c);
/* Of a set with one member, of all and of none. */
struct want_set *set_not(struct schema_ctx *c, const struct want_set *a);
/* NULL: failed, or (c->blocked) it depends on itself while a question of emptiness is answered. */
const struct form *set_form(struct schema_ctx *c, const struct want_set *set);
/* True: no value is in it. False: none was found to be, or it was not looked into deeply enough. */
bool set_is_empty(struct schema_ctx *c, const struct want_set *set);

/* ---- forms ---------------------------------------------------------------------------------------------- */

struct form *form_all(struct schema_ctx *c);
struct form *form_none(struct schema_ctx *c);
struct form *form_and(struct schema_ctx *c, const struct form *a, const struct form *b);
struct form *form_or(struct schema_ctx *c, const struct form *a, const struct form *b);
struct form *form_not(struct schema_ctx *c, const struct form *a);
/* a without b: what is disjoint is not cut. */
struct form *form_minus(struct schema_ctx *c, const struct form *a, const struct form *b);
/* The values of `type` of which all these atoms hold, and all values of other types. */
struct form *form_of_atoms(struct schema_ctx *c, enum schema_type type, const struct atom *const *atoms, uint32_t n);
bool form_add(struct schema_ctx *c, struct form *f, enum schema_type type, const struct atom *const *atoms, uint32_t n);
const struct atom *atom_make(struct schema_ctx *c, const struct atom *wanted);

/* ---- keywords: schema_keywords.c, schema_logic.c, schema_values.c ---------------------------------------- */

const struct form *form_of_schema(struct schema_ctx *c, const struct js_value *schema);
const struct form *form_of_value(struct schema_ctx *c, const struct js_value *value);
/* One of the values of a list. */
struct form *form_of_values(struct schema_ctx *c, const struct js_value *list);
/* The form of a keyword that combines schemas; NULL: failed. *found: whether it is such a keyword. */
const struct form *form_of_logic(struct schema_ctx *c, const struct js_value *schema, const struct js_member *keyword,
                                 bool *found);
/* The language of a format; LANG_NONE: it is none that is enforced, or failed. */
lang_id format_language(struct schema_ctx *c, struct json_text name);

/* ---- shapes: schema_shape.c ------------------------------------------------------------------------------ */

/* Is it shown that no value fits the alternative? */
bool alternative_is_empty(struct schema_ctx *c, enum schema_type type, const struct alternative *a);
/* A regular expression of the compiler's own, which a whole text matches. */
lang_id own_language(struct schema_ctx *c, const char *pattern);
lang_id number_language(struct schema_ctx *c, const struct alternative *a);
/* Language and length of strings. */
struct string_shape {
    lang_id language;
    uint32_t min, max;
};
bool string_shape(struct schema_ctx *c, const struct alternative *a, struct string_shape *out);
/* All strings of a form as one language. */
lang_id strings_language(struct schema_ctx *c, const struct form *f);

enum { SHAPE_OTHERS = 2 };
struct array_shape {
    const struct want_set **prefix;
    uint32_t n_prefix, min, max;
    const struct want_set *rest;
    const struct atom *some; /* the one ATOM_SOME_ITEMS or ATOM_FEW_ITEMS, or NULL */
    const struct atom *few;
    const struct atom *others[SHAPE_OTHERS]; /* more of ATOM_SOME_ITEMS */
    uint32_t n_others;
    const struct atom *more; /* one count more than can be served */
    const struct atom *unique;
    bool empty;
};
bool array_shape(struct schema_ctx *c, const struct alternative *a, struct array_shape *out);

struct property_shape {
    struct json_text name;
    const struct want_set *value;
    bool required;
};
struct family_shape {
    lang_id names; /* the declared ones are still in it */
    const struct want_set *value;
};
struct object_shape {
    struct property_shape *property;
    uint32_t n_properties;
    struct family_shape *family;
    uint32_t n_families;
    uint32_t min, max;
    const struct atom *some; /* an ATOM_SOME_FAMILY that could not be told in other words, or NULL */
    bool empty;
};
bool object_shape(struct schema_ctx *c, const struct alternative *a, struct object_shape *out);
/* Takes a SOME_FAMILY out of an alternative, by naming the property that it may be: the union of what it gives back is
 * the alternative. False: failed. */
bool object_cases(struct schema_ctx *c, const struct alternative *a, struct alternatives *out);

/* ---- nodes: schema_emit.c -------------------------------------------------------------------------------- */

node_id schema_emit(struct schema_ctx *c, const struct want_set *root);
/* The members of objects of the set: schema.h. */
struct schema_member;
bool schema_emit_members(struct schema_ctx *c, const struct want_set *root, struct schema_member **out, size_t *n);

#endif
