/* schema.h: a JSON Schema as a grammar (drafts 4 to 2020-12; without $schema: 2020-12, and what older drafts say
 * otherwise is understood, too).
 *
 * The grammar's texts are JSON values that fit the schema: properties in declared order, those that are only required
 * after them, others behind. Never a value that does not fit: what cannot be enforced is refused with the keyword and
 * the JSON pointer. docs/http.md ("What a schema may not ask") has the list. */
#ifndef CORE_GRAMMAR_SCHEMA_H
#define CORE_GRAMMAR_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include <worker/abi.h>

#include "grammar/node.h"

struct schema_options {
    bool strict;  /* a format that is not enforced is refused; otherwise it is an annotation */
    bool compact; /* no white space between the tokens; otherwise as much as grammar_space has by default */
};

/* text: JSON, at most 1 MiB, not needed afterwards. options NULL: neither. WK_INVALID: no JSON, no schema, a bad regex,
 * no value fits it. WK_UNSUPPORTED: a keyword that cannot be enforced here, a limit. [any thread] */
wk_status grammar_from_schema(const char *text, size_t n, const struct schema_options *options,
                              const struct lang_watch *watch, struct grammar **out, const struct wk_err *err);

/* The same as a node of a grammar that is being built: several schemas may be nodes of one. compact is as the grammar's
 * space has it. [one thread at a time] */
wk_status schema_node(struct grammar *g, const char *text, size_t n, const struct schema_options *options, node_id *out,
                      const struct wk_err *err);

/* What an object holds by a schema, for texts in which members stand by themselves: the declared ones, in their order;
 * others are not told. */
struct schema_member {
    const char *name;
    size_t len;
    bool required;
    lang_id strings; /* the strings that fit, decoded; LANG_NOTHING: none */
    node_id string;  /* the same as JSON; NODE_NOTHING: none */
    node_id other;   /* the values that fit and are no strings, as JSON; NODE_NOTHING: none */
};
/* *out: one block with all names, for the caller's free. Besides what schema_node says, WK_UNSUPPORTED: an object that
 * must hold more than its declared members can say (alternatives of objects, minProperties). */
wk_status schema_members(struct grammar *g, const char *text, size_t n, const struct schema_options *options,
                         struct schema_member **out, size_t *n_out, const struct wk_err *err);

#endif
