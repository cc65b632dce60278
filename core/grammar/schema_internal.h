/* schema_internal.h: what the files of the JSON Schema compiler share. Private to them.
 *
 * The way of a schema: text -> tree (schema_read.c) -> identifiers (schema_ref.c) -> normal form (schema_form.c and the
 * files of each keyword's family) -> shapes, in which every name and bound is settled (schema_shape.c) -> nodes
 * (schema_emit.c). All of it lives in one arena. The first failure sticks in the context; every function afterwards
 * returns false or NULL, so that a caller may test once. [one thread] */
#ifndef CORE_GRAMMAR_SCHEMA_INTERNAL_H
#define CORE_GRAMMAR_SCHEMA_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "grammar/node.h"
#include "tape/arena.h"
#include "tokenizer/json_reader.h"

/* Limits are counts, so that one schema has one answer on every machine. */
enum {
    SCHEMA_MAX_TEXT = 1 << 20,
    SCHEMA_MAX_VALUES = 200000,    /* JSON values in the text */
    SCHEMA_MAX_NODES = 20000,      /* sets of schemas that have a normal form */
    SCHEMA_MAX_ALTERNATIVES = 512, /* of one type in one normal form */
    SCHEMA_MAX_DEPTH = 96,         /* schemas that are applied in one place, one inside the other */
    SCHEMA_MAX_SCRATCH = 32 << 20, /* bytes while compiling */
    SCHEMA_FORMATS = 17
};

/* ---- the tree ------------------------------------------------------------------------------------------- */

struct js_member;
struct js_value {
    uint8_t kind;   /* enum jr_kind */
    bool truth;     /* JR_BOOL */
    bool base;      /* a schema with an identifier of its own */
    uint32_t n;     /* members or items */
    uint32_t order; /* of the text: no two have the same */
    const struct js_value *parent;
    union {
        struct js_member *member; /* [n] in the text's order, no key twice */
        struct js_value *item;    /* [n] */
        struct json_text text;    /* of a string; of a number as the text spells it */
    };
};
struct js_member {
    struct json_text key;
    struct js_value value;
};

/* An exact decimal: digits * 10^exp. digits: ASCII, without leading or trailing zeros; none: zero. */
struct dec {
    const char *digits;
    uint32_t n;
    bool negative;
    int64_t exp;
};

enum schema_draft { DRAFT_UNKNOWN = 0, DRAFT_4 = 4, DRAFT_6 = 6, DRAFT_7 = 7, DRAFT_2019 = 2019, DRAFT_2020 = 2020 };

struct schema_base; /* schema_ref.c */

struct schema_ctx {
    struct arena *arena;
    const struct wk_err *err;
    wk_status status;
    size_t taken; /* bytes of the arena */
    const struct js_value *root;
    enum schema_draft draft;
    bool strict;         /* an unknown format is refused */
    bool compact;        /* no white space */
    bool unevaluated;    /* some schema says unevaluatedProperties or unevaluatedItems */
    uint32_t depth;      /* of what is being normalised */
    struct forms *forms; /* schema_form.c */
    struct grammar *grammar;
    struct langs *langs; /* the grammar's */
    struct schema_base *bases;
    lang_id formats[SCHEMA_FORMATS]; /* schema_format.c: those made so far */
};

/* Zeroed memory of the arena. NULL: failed, and said. */
void *sch_take(struct schema_ctx *c, size_t n, size_t size);
/* langs_step: all loops whose length, or product of lengths, a schema decides are counted. */
bool sch_step(struct schema_ctx *c, uint64_t n);
/* Refuses the schema: names the keyword and the place (either may be NULL). Always false. */
WK_PRINTF(5, 6)
bool sch_fail(struct schema_ctx *c, wk_status status, const struct js_value *at, const char *keyword,
              const char *format, ...);
/* The same for a language that could not be made: says why. Always false. */
bool sch_lang_failed(struct schema_ctx *c, const struct js_value *at, const char *keyword);
/* The JSON pointer of a value as a URI fragment, "#/properties/a", cut to fit, without control characters. */
void js_pointer(const struct js_value *v, char *out, size_t cap);

bool js_read(struct schema_ctx *c, const char *text, size_t len);
const struct js_value *js_get(const struct js_value *object, const char *key); /* NULL: none, or no object */
const struct js_value *js_find(const struct js_value *object, struct json_text key);
bool js_equal(const struct js_value *a, const struct js_value *b); /* as JSON Schema compares: 1 equals 1.0 */
bool text_equal(struct json_text a, struct json_text b);
static inline bool js_is(const struct js_value *v, enum jr_kind kind) { return v && v->kind == kind; }

/* ---- numbers -------------------------------------------------------------------------------------------- */

struct dec dec_of(struct json_text number);
int dec_compare(struct dec a, struct dec b);
static inline bool dec_is_integer(struct dec a) { return a.exp >= 0 || !a.n; }
/* The value as a count. False: no integer from 0 to UINT32_MAX - 1. */
bool dec_count(struct dec a, uint32_t *out);
/* A positive decimal as units * 10^exp with exp <= 0 and units < 10^18; false: it has more digits. */
bool dec_units(struct dec a, uint64_t *units, int64_t *exp);
/* Is a a multiple of units * 10^exp? */
bool dec_is_multiple(struct dec a, uint64_t units, int64_t exp);
/* The smallest positive multiple of both, into a; false: too large. */
bool units_lcm(uint64_t *a_units, int64_t *a_exp, uint64_t b_units, int64_t b_exp);

/* ---- references ----------------------------------------------------------------------------------------- */

/* The draft that a schema's $schema names; NULL: otherwise; 0: none that is known. */
enum schema_draft schema_draft_of(const struct js_value *schema, enum schema_draft otherwise);
/* Finds every identifier and anchor. */
bool ref_collect(struct schema_ctx *c);
/* The schema that $ref, $dynamicRef or $recursiveRef of this schema names. NULL: refused. */
const struct js_value *ref_resolve(struct schema_ctx *c, const struct js_value *schema, const char *keyword,
                                   const struct js_value *ref);

#endif
