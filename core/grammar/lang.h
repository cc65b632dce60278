/* lang.h: regular languages over code points, as expressions that can be combined freely.
 *
 * A language is an expression of an arena: characters, concatenation, union, intersection, complement, counted
 * repetition. Equal expressions have one id (hash-consing). The deterministic automaton is lazy: its states are
 * expressions too, the derivative of a state by a character is made when it is first asked for (Brzozowski 1964), and
 * repetition counters stay numbers, so `.{0,2000}` costs nothing until it is walked. Because complement and
 * intersection are expressions like the others, a JSON Schema's `pattern`, `format` and `not` are one language.
 *
 * The alphabet is Unicode scalar values: 0..0x10FFFF without surrogates. Text outside of it (UTF-8 bytes, JSON escapes)
 * is decoded by whoever walks.
 *
 * Failure sticks: a function that cannot build returns LANG_NONE, remembers why (langs_status), and LANG_NONE as an
 * operand gives LANG_NONE. So a caller may build everything and ask once. [one thread at a time] */
#ifndef CORE_GRAMMAR_LANG_H
#define CORE_GRAMMAR_LANG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

struct langs; /* an arena of expressions and the rows of their automata */

typedef uint32_t lang_id;
enum {
    LANG_NONE = 0,  /* building it failed */
    LANG_NOTHING,   /* the empty language */
    LANG_EMPTY,     /* the empty text alone */
    LANG_ANY_CHAR,  /* one character, whatever it is */
    LANG_EVERYTHING /* every text */
};
enum {
    LANG_MAX_CHAR = 0x10FFFF,
    LANG_MAX_EXPRESSIONS = 1 << 17, /* in one arena, states of automata included; more: LANG_NONE */
    LANG_MAX_STATES = 1 << 16,      /* whose transitions are held at a time; then they are made anew */
    LANG_MAX_PROOF = 4096,          /* states that one question about a language may look at */
    LANG_MAX_DEPTH = 512,           /* nesting of an expression */
    LANG_MAX_STEPS = 12 * 1000000,  /* of work while an arena is built: some 200 ms of one core */
    LANG_MAX_BYTES = 16 << 20       /* that an arena holds while it is built */
};
#define LANG_UNBOUNDED UINT32_MAX

/* Asked every millisecond or so while languages, and what is made of them, are built: true ends it with WK_CANCELLED.
 */
struct lang_watch {
    bool (*stop)(void *user);
    void *user;
};

/* Whoever builds in the arena counts its work: the steps of all of it together are limited. watch: copied, NULL: nobody
 * asks to stop. */
wk_status langs_open(const struct lang_watch *watch, struct langs **out, const struct wk_err *err);
/* Counts n steps of work, each some 20 ns. False: too many, too much memory, or it must stop; that sticks. */
bool langs_step(struct langs *x, uint64_t n);
uint64_t langs_steps(const struct langs *x); /* counted so far */
/* All is built: what is made from now on, on demand, is limited by states and expressions alone. */
void langs_built(struct langs *x);
void langs_close(struct langs *x); /* NULL allowed */
/* WK_OK, or why the first failure happened. */
wk_status langs_status(const struct langs *x, const struct wk_err *err);
uint64_t langs_bytes(const struct langs *x);  /* memory held */
uint32_t langs_states(const struct langs *x); /* rows of automata made so far */

/* ---- building ------------------------------------------------------------------------------------------ */

struct lang_range {
    uint32_t first, last; /* inclusive */
};
lang_id lang_chars(struct langs *x, const struct lang_range *ranges, size_t n); /* one character of these, any order */
lang_id lang_text(struct langs *x, const char *text, size_t n); /* this one text; what is not UTF-8 fails */
/* One of these texts (UTF-8, copied); thousands are fine. */
struct lang_word {
    const char *text;
    size_t len;
};
lang_id lang_words(struct langs *x, const struct lang_word *words, size_t n);
lang_id lang_concat(struct langs *x, lang_id a, lang_id b);
lang_id lang_or(struct langs *x, lang_id a, lang_id b);
/* The union of all of them, at once: of thousands. Fixed texts among them become one set of words. n = 0: NOTHING. */
lang_id lang_any_of(struct langs *x, const lang_id *parts, size_t n);
lang_id lang_and(struct langs *x, lang_id a, lang_id b);
lang_id lang_not(struct langs *x, lang_id a);                                /* all other texts */
lang_id lang_minus(struct langs *x, lang_id a, lang_id b);                   /* a without b */
lang_id lang_repeat(struct langs *x, lang_id a, uint32_t min, uint32_t max); /* max: LANG_UNBOUNDED */
/* Texts of min to max characters. */
lang_id lang_length(struct langs *x, uint32_t min, uint32_t max);

/* A regular expression, as ECMA-262 (flag u) and Python write what both have: classes \d \w \s and theirs, . [..] with
 * ranges and negation, groups, | , * + ? {m,n} (lazy forms mean the same), ^ $ \A \Z \z, escapes \n \t \r \f \v \0 \cX
 * \xHH \uXXXX \u{X} \UXXXXXXXX, \p{..} for L, Lu, Ll, N, Nd, P, S, Z and their long names, look-ahead. \d is ASCII,
 * \w too. Refused by name with the byte at which it stands: look-behind, repeated look-ahead, backreferences, \b and
 * \B, atomic groups, inline flags other than those that change nothing. LANG_NONE: it is refused (not sticky: the text
 * is in err, WK_INVALID or WK_UNSUPPORTED in *status), or out of memory. */
enum lang_match {
    LANG_WHOLE, /* the whole text matches */
    LANG_SEARCH /* a part of the text does: JSON Schema's `pattern` */
};
lang_id lang_regex(struct langs *x, const char *pattern, size_t n, enum lang_match match, wk_status *status,
                   const struct wk_err *err);

/* The texts of JSON numbers within bounds, exact for any decimals. Bounds and multiple_of are JSON numbers as text,
 * NULL: none. A bounded number is written without an exponent; digits are capped: integer part 20 and fraction 17
 * digits, exponent 3, unless a bound has more. integer: a fraction of zeros is allowed ("1.0"). An empty set of numbers
 * is LANG_NOTHING. LANG_NONE: a bound is no JSON number or has more than 400 digits when written out (err says so; not
 * sticky). */
struct lang_number {
    const char *min, *max, *multiple_of;
    bool min_exclusive, max_exclusive;
    bool integer;
};
lang_id lang_number(struct langs *x, const struct lang_number *number, wk_status *status, const struct wk_err *err);

/* ---- questions ----------------------------------------------------------------------------------------- */

enum lang_answer { LANG_NO, LANG_YES, LANG_UNKNOWN /* more than LANG_MAX_PROOF states, or a failure that sticks */ };
enum lang_answer lang_is_empty(struct langs *x, lang_id a);
enum lang_answer lang_disjoint(struct langs *x, lang_id a, lang_id b);
enum lang_answer lang_contains(struct langs *x, lang_id a, lang_id part);  /* is every text of `part` one of a? */
bool lang_matches(struct langs *x, lang_id a, const char *text, size_t n); /* false, too, if text is not UTF-8 */
/* Is every beginning of a text of a the beginning of endlessly many? Only of languages with few states. */
enum lang_answer lang_goes_on(struct langs *x, lang_id a);
/* The texts of a, where that is seen from its form, into words[cap], which point into the arena until it grows.
 * UINT32_MAX: it is not seen, or there are more. */
uint32_t lang_texts(const struct langs *x, lang_id a, struct lang_word *words, uint32_t cap);

/* ---- walking: a state is an expression ------------------------------------------------------------------ */

bool lang_accepts(const struct langs *x, lang_id state); /* is the empty text in it? */
/* The state behind character c; LANG_NOTHING exactly if no text of the language goes on so. LANG_NONE: a limit, or no
 * memory (sticky). */
lang_id lang_next(struct langs *x, lang_id state, uint32_t c);
/* Does any character of first..last lead on? LANG_UNKNOWN as for LANG_NONE above. */
enum lang_answer lang_next_any(struct langs *x, lang_id state, uint32_t first, uint32_t last);

#endif
