/* schema.h: a JSON Schema as a grammar (drafts 4 to 2020-12; without $schema: 2020-12, and what older drafts say
 * otherwise is understood, too).
 *
 * The grammar's texts are JSON values that fit the schema: properties in declared order, those that are only required
 * after them, others behind. Never a value that does not fit: what cannot be enforced is refused with the keyword and
 * the JSON pointer. docs/design.md has the list. */
#ifndef CORE_GRAMMAR_SCHEMA_H
#define CORE_GRAMMAR_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include <worker/abi.h>

struct grammar;

struct schema_options {
    bool strict;  /* a format that is not enforced is refused; otherwise it is an annotation */
    bool compact; /* no white space between the tokens; otherwise as much as grammar_space has by default */
};

/* text: JSON, at most 1 MiB, not needed afterwards. options NULL: neither. WK_INVALID: no JSON, no schema, a bad regex,
 * no value fits it. WK_UNSUPPORTED: a keyword that cannot be enforced here, a limit. [any thread] */
wk_status grammar_from_schema(const char *text, size_t n, const struct schema_options *options, struct grammar **out,
                              const struct wk_err *err);

#endif
