/* grammar.h: output that is constrained to a grammar: which tokens may come next, and whether a text is complete.
 *
 * A grammar is compiled once (grammar_from_*, or a front end on node.h) and then followed by any number of matches, one
 * for each sequence. A match is a position: which texts have been read, as a set of stacks over the grammar's nodes,
 * with partial characters and escapes. It is small and immutable inside, so cloning one (for drafts, for shared
 * prefixes) copies a pointer.
 *
 * A token is allowed exactly if the text so far and the token's bytes are the beginning of some complete text. Control
 * tokens are never allowed, but for the tokens that end generation, which are allowed exactly if the text is complete.
 *
 * Threads: a struct grammar_index may be used by all threads at once. A grammar with all its matches belongs to one
 * thread at a time (its automata, frames and masks are made on demand); grammar_keep and grammar_close may be called by
 * any thread. In the engine, all constrained jobs of one engine belong to its thread.
 *
 * Limits are counts (node.h, lang.h): the same grammar and tokens give the same answer on every machine. One that is
 * exceeded while matching is an error with a text, never a step without a mask.
 *
 * Compiling is bounded by counted steps, 12 million in all (about 200 ms of one core), which the functions of one
 * request share. Each millisecond of them the caller is asked whether it must end. */
#ifndef CORE_GRAMMAR_GRAMMAR_H
#define CORE_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "grammar/lang.h"
#include "tokenizer/tokenizer.h"

struct grammar;       /* what may be written */
struct grammar_index; /* a vocabulary, arranged for masks */
struct grammar_match; /* one text being written */

/* ---- front ends ----------------------------------------------------------------------------------------
 * Compiling is limited: some 200 ms of one core (LANG_MAX_STEPS), 16 MiB for what is made and as much for what is only
 * needed meanwhile. watch: asked while it lasts; WK_CANCELLED: it said stop. NULL allowed. */

/* llama.cpp's GBNF. WK_INVALID: with line and column. t: where tokens referred to by text (<think>) are looked up;
 * NULL: such references are refused. */
wk_status grammar_from_gbnf(const char *text, size_t n, const struct tokenizer *t, const struct lang_watch *watch,
                            struct grammar **out, const struct wk_err *err);
/* The whole output matches a regular expression (lang_regex). */
wk_status grammar_from_regex(const char *text, size_t n, const struct lang_watch *watch, struct grammar **out,
                             const struct wk_err *err);
/* The output is one of these texts. */
wk_status grammar_from_choice(const struct lang_word *choices, size_t n, const struct lang_watch *watch,
                              struct grammar **out, const struct wk_err *err);
/* The output is a JSON object: response_format json_object. */
wk_status grammar_from_json_object(struct grammar **out, const struct wk_err *err);

struct grammar *grammar_keep(struct grammar *g); /* one more owner */
void grammar_close(struct grammar *g);           /* the last owner's frees it; NULL allowed */

struct grammar_figures {
    uint32_t nodes, states, frames; /* states: of automata, made so far */
    uint32_t masks;                 /* different ones held */
    uint64_t bytes;                 /* without masks */
    uint64_t hits, misses;          /* of the masks' cache */
};
void grammar_figures(const struct grammar *g, struct grammar_figures *out);

/* For who keeps grammars: bytes with masks, as they were when a match was last closed; and whether its automata
 * have exceeded a limit, so that all its matches fail from then on. [any thread] */
uint64_t grammar_held(const struct grammar *g);
bool grammar_failed(const struct grammar *g);

/* ---- the vocabulary ------------------------------------------------------------------------------------ */

/* n_vocab: bits of a mask, the rows of logits; ids that the tokenizer lacks are never allowed. WK_UNSUPPORTED: the
 * tokenizer cannot be masked, and why. About 35 MB and 0.3 s for 200,000 tokens. The tokenizer must outlive it. */
wk_status grammar_index_open(const struct tokenizer *t, uint32_t n_vocab, struct grammar_index **out,
                             const struct wk_err *err);
void grammar_index_close(struct grammar_index *x); /* NULL allowed */
/* Could one be opened? Some milliseconds. */
wk_status grammar_index_possible(const struct tokenizer *t, uint32_t n_vocab, const struct wk_err *err);
/* The bytes that the token adds to a text; empty: it is never allowed by them. Valid as long as the tokenizer. */
struct token_bytes grammar_index_bytes(const struct grammar_index *x, uint32_t id);
/* The token with most of the first bytes; TOKEN_NONE: none begins so. */
uint32_t grammar_index_longest(const struct grammar_index *x, const char *bytes, size_t n);

/* ---- matching ------------------------------------------------------------------------------------------ */

/* At the beginning of a text. Keeps the grammar; x must outlive it, NULL: bytes alone will be pushed. All matches of a
 * grammar use the same index, or none. */
wk_status grammar_match_open(struct grammar *g, const struct grammar_index *x, struct grammar_match **out,
                             const struct wk_err *err);
wk_status grammar_match_clone(const struct grammar_match *m, struct grammar_match **out, const struct wk_err *err);
void grammar_match_close(struct grammar_match *m); /* NULL allowed */

/* Which ids may come next. bits: [ceil(n_vocab / 64)], as sampler_pick takes them; valid until the next call for this
 * grammar. serial: equal for equal masks of one grammar as long as it holds them, so that a device may keep a copy. */
struct grammar_mask {
    const uint64_t *bits;
    uint64_t serial;
    uint32_t n_allowed;
};
/* Fails when nothing is allowed (WK_INVALID, "the grammar's dead end") or its automata exceed a limit
 * (WK_UNSUPPORTED). */
wk_status grammar_match_mask(struct grammar_match *m, struct grammar_mask *out, const struct wk_err *err);
/* id was generated. WK_INVALID: it is not allowed; the match is unchanged. An id that ends generation ends the match:
 * nothing is allowed after it. */
wk_status grammar_match_accept(struct grammar_match *m, uint32_t id, const struct wk_err *err);
/* The same for bytes. *taken (may be NULL): how many were; all on WK_OK, and on WK_INVALID those before the first that
 * cannot follow: the match stands behind them. */
wk_status grammar_match_push(struct grammar_match *m, const char *bytes, size_t n, size_t *taken,
                             const struct wk_err *err);
bool grammar_match_complete(struct grammar_match *m); /* may the text end here? */

#endif
