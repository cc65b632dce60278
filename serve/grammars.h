/* grammars.h: what a model's answers are constrained with: the index of its vocabulary, and grammars that were
 * compiled.
 *
 * The index is made by the first request that needs it. Compiled grammars are kept by the digest of their text, so that
 * a program that always asks for the same schema has it compiled once, with its masks; the least recently used go. One
 * that has exceeded a limit while it was followed is not given out again. All of it happens on requests' threads: what
 * is given out here is followed by the engine's thread alone (chat/constraint.h). [any thread] */
#ifndef SERVE_GRAMMARS_H
#define SERVE_GRAMMARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

enum { GRAMMARS_MOST = 256, GRAMMARS_BYTES = 64 << 20 };

struct grammars;

enum grammar_kind { GRAMMAR_NONE = 0, GRAMMAR_SCHEMA, GRAMMAR_OBJECT, GRAMMAR_REGEX, GRAMMAR_CHOICE, GRAMMAR_GBNF };
/* What a request asks for. */
struct grammar_source {
    enum grammar_kind kind;
    bool strict;             /* of a schema: formats that are not enforced are refused */
    struct token_bytes text; /* the schema's JSON, the expression, the grammar */
    const struct lang_word *choices;
    size_t n_choices;
};

/* t must outlive it. */
wk_status grammars_open(const struct tokenizer *t, uint32_t n_vocab, struct grammars **out, const struct wk_err *err);
/* No job may be left that has a grammar of it. NULL allowed */
void grammars_close(struct grammars *x);

/* Can the model's output be constrained? */
bool grammars_possible(const struct grammars *x);
/* The index of the vocabulary; lives as long as x. WK_UNSUPPORTED: the model's output cannot be constrained, and why.
 */
wk_status grammars_index(struct grammars *x, const struct grammar_index **out, const struct wk_err *err);
/* A digest of all that the grammar is made of; false: none can be made. */
bool grammars_digest(const struct grammar_source *from, char hex[65]);
/* The grammar if it is kept, which the caller closes; NULL: it must be compiled. */
struct grammar *grammars_kept(struct grammars *x, const struct grammar_source *from);
/* The grammar, compiled or as it was kept; the caller closes it. WK_CANCELLED: watch (NULL allowed) has ended it. */
wk_status grammars_get(struct grammars *x, const struct grammar_source *from, const struct lang_watch *watch,
                       struct grammar **out, const struct wk_err *err);
/* Grammars that the caller compiles: the one that is kept under a digest of all that it is made of, which the caller
 * closes; NULL: none is. */
struct grammar *grammars_find(struct grammars *x, const char digest[65]);
void grammars_keep(struct grammars *x, struct grammar *g, const char digest[65]);
/* What stands before the final content of a harmony model's answers; the caller closes it. */
wk_status grammars_harmony(struct grammars *x, struct grammar **out, const struct wk_err *err);

#endif
