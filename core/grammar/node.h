/* node.h: the graph of nodes that every front end (GBNF, regex, choice, JSON Schema) compiles to.
 *
 * A front end opens a grammar, builds nodes from the leaves up, and seals it with the root. A node is a set of texts
 * and may be used at any number of places: nothing is copied, and counters are counted at run time, never unrolled.
 * Recursion goes through rules, which are declared first and defined later.
 *
 * Failure sticks: a function that cannot build returns NODE_NONE and remembers why; NODE_NONE as a part gives
 * NODE_NONE; grammar_seal returns the first failure. What a caller refuses in its own words (a keyword, a JSON pointer)
 * it says itself, and closes the grammar.
 *
 * Alternatives may overlap: the machine follows all of them, up to GRAMMAR_MAX_STACKS at a time. A grammar of which a
 * short text needs more is refused by grammar_seal; where only long ones do, by recursion, some are followed: fewer
 * texts are taken then, never others, and each can be ended.
 *
 * What can never be completed (a rule without end, a language without a text, an object whose required property has no
 * value) is found by grammar_seal and taken out; a root without any text is refused. Left recursion is refused with the
 * rule's name.
 *
 * All text is UTF-8. Arguments are copied. [one thread at a time] */
#ifndef CORE_GRAMMAR_NODE_H
#define CORE_GRAMMAR_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "grammar/lang.h"

struct grammar;
typedef uint32_t node_id;
enum {
    NODE_NONE = 0,
    NODE_NOTHING, /* no text at all: JSON Schema's `false` */
    NODE_EMPTY    /* the empty text */
};
enum {
    GRAMMAR_MAX_TEXT = 1 << 20, /* bytes of a schema, a grammar or an expression */
    GRAMMAR_MAX_NODES = 20000,
    GRAMMAR_MAX_LEVELS = 64, /* nesting in a front end's text */
    GRAMMAR_MAX_STACKS = 64,
    GRAMMAR_MAX_BYTES = 16 << 20 /* before cached masks */
};
#define NODE_UNBOUNDED UINT32_MAX

/* watch: asked while it is built, until grammar_seal; copied; NULL allowed. */
wk_status grammar_open(const struct lang_watch *watch, struct grammar **out, const struct wk_err *err);
/* Where this grammar's languages are built. */
struct langs *grammar_langs(struct grammar *g);

node_id node_literal(struct grammar *g, const char *text, size_t n); /* this text; empty: NODE_EMPTY */
node_id node_text(struct grammar *g, lang_id language);              /* a text of the language, as it is: numbers too */
node_id node_sequence(struct grammar *g, const node_id *parts, size_t n);
node_id node_any_of(struct grammar *g, const node_id *parts, size_t n); /* one of them; n = 0: NODE_NOTHING */
/* The same texts as node_any_of's, for many alternatives that begin alike: what several begin with stands once. */
node_id node_branches(struct grammar *g, const node_id *parts, size_t n);
node_id node_repeat(struct grammar *g, node_id part, uint32_t min, uint32_t max); /* max: NODE_UNBOUNDED */

/* One token of the vocabulary by its id, control tokens included; except: any other token, control tokens excluded.
 * Bytes never match it. For marks of chat formats, which no text may forge. */
node_id node_token(struct grammar *g, const uint32_t *ids, size_t n, bool except);

/* A rule, to be defined once before grammar_seal. name: what messages call it ("expr", "#/$defs/tree"). */
node_id node_rule(struct grammar *g, const char *name, size_t n);
void node_define(struct grammar *g, node_id rule, node_id body);

/* ---- JSON ---------------------------------------------------------------------------------------------- */

/* White space between the tokens of objects and arrays: spaces, tabs, carriage returns, newlines. Never before or after
 * the value itself. Set before the first object or array is made. */
struct grammar_space {
    uint16_t max_bytes, max_newlines; /* by default 20 and 1; 0, 0: none */
};
void grammar_set_space(struct grammar *g, const struct grammar_space *space);

/* A string whose content, with escapes decoded, is a text of `content` of min to max characters (code points). Any
 * spelling that JSON allows is taken, lone surrogates excepted. content LANG_EVERYTHING with counters is what costs
 * least; lengths of other languages become part of the language. */
node_id node_string(struct grammar *g, lang_id content, uint32_t min, uint32_t max);

/* Declared properties come in this order, each at most once, required ones always. Then, in any number, further ones:
 * the name decides the family. Names of a family exclude all declared names (subtract them: lang_minus(family,
 * lang_words(...))); families may overlap, then any of their values fits. A property whose value is NODE_NOTHING never
 * comes. min, max: properties in all. Where min asks for further ones, no name comes twice. */
struct node_property {
    const char *name; /* decoded UTF-8; may hold NUL */
    size_t len;
    node_id value;
    bool required;
};
struct node_family {
    lang_id names; /* LANG_EVERYTHING minus the declared ones: additionalProperties */
    node_id value;
};
struct node_object {
    const struct node_property *properties;
    size_t n_properties;
    const struct node_family *families;
    size_t n_families;
    uint32_t min, max; /* 0, NODE_UNBOUNDED */
};
node_id node_object(struct grammar *g, const struct node_object *object);

/* Element i is prefix[i], later ones are `rest` (NODE_NOTHING: there are none). unique: no two are the same; without a
 * prefix, and `rest` is a string of a language that goes on (lang_goes_on), so that no beginning has only texts that
 * came before. */
struct node_array {
    const node_id *prefix;
    size_t n_prefix;
    node_id rest;
    uint32_t min, max; /* elements; 0, NODE_UNBOUNDED */
    bool unique;
};
node_id node_array(struct grammar *g, const struct node_array *array);

node_id node_json(struct grammar *g);        /* any JSON value; one node however often it is asked for */
node_id node_json_object(struct grammar *g); /* any JSON object */

/* ---- done ---------------------------------------------------------------------------------------------- */

/* WK_INVALID, WK_UNSUPPORTED (a limit) or WK_NO_MEMORY with a text; the grammar can then only be closed. Afterwards it
 * can be used (grammar.h), and not built any more. */
wk_status grammar_seal(struct grammar *g, node_id root, const struct wk_err *err);

#endif
