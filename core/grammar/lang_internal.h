/* lang_internal.h: expressions as lang.c builds and lang_walk.c reads them. Private to core/grammar. */
#ifndef CORE_GRAMMAR_LANG_INTERNAL_H
#define CORE_GRAMMAR_LANG_INTERNAL_H

#include "grammar/lang.h"

enum lang_kind {
    KIND_NOTHING = 0,
    KIND_EMPTY,
    KIND_EVERYTHING,
    KIND_CHARS,   /* a: number of the set */
    KIND_CONCAT,  /* a, then b */
    KIND_OR,      /* b operands from a in the pool, ascending */
    KIND_AND,     /* the same */
    KIND_NOT,     /* a */
    KIND_REPEAT,  /* a, from b to c times */
    KIND_WORDS,   /* what words b..c of table a have behind their first d bytes, which are the same in all of them */
    KIND_MULTIPLE /* decimals that are a multiple of a / 10^d, behind digits that leave b modulo a; c: where in it */
};
/* Where in a decimal: before the first digit, in the integer part, behind j digits of the fraction. */
enum { AT_START = 0, AT_INTEGER, AT_FRACTION };
enum {
    EXPR_ACCEPTS = 1,  /* the empty text is in it */
    EXPR_POSITIVE = 2, /* it has a text, as its form shows */
    EXPR_LIVE = 4,     /* it has a text, as was proved */
    EXPR_DEAD = 8,     /* it has none, as was proved */
    EXPR_FINITE = 16,  /* its texts are of bounded length, as its form shows */
    EXPR_OPEN = 32     /* every text is the beginning of one of its texts, as its form shows */
};

struct expr {
    uint8_t kind, flags;
    uint16_t depth; /* levels that a derivative goes down at most */
    uint32_t a, b, c, d;
    uint32_t chain;       /* next of the same hash */
    uint32_t row;         /* of transitions, in `rows`; 0: none */
    uint32_t stamp, memo; /* the derivative that the walk number `stamp` made of it */
    uint32_t mark;        /* the last proof that met it */
};

struct char_set {
    uint32_t at, n; /* ranges, ascending and apart, in `ranges` */
};

/* Ascending texts, each once. Word i: bytes at[i]..at[i + 1]. */
struct word_table {
    char *bytes;
    uint32_t *at;
    uint32_t n;
};

/* How the alphabet falls into classes whose characters no set of a list tells apart. */
struct partition {
    uint32_t sets_at, n_sets; /* the list, in `numbers` */
    uint32_t starts_at, n;    /* intervals: first characters, then their classes, in `numbers` */
    uint32_t n_classes;
    uint32_t chain;
    uint16_t ascii[128];
    bool alike_above; /* all characters above ASCII are of one class */
};
enum { CLASS_NONE = 0xFFFF, MAX_CLASSES = 0xFFFE, LANG_MAX_PROPERTIES = 8, LANG_MAX_NAME = 40 };

struct numbers {
    uint32_t *list;
    uint32_t n, cap;
};

struct langs {
    struct expr *exprs;
    uint32_t n_exprs, cap_exprs;
    uint32_t *buckets;
    uint32_t n_buckets; /* a power of two */
    struct numbers pool;
    struct numbers scratch; /* operands being collected, as a stack */

    struct char_set *sets;
    uint32_t n_sets, cap_sets;
    struct lang_range *ranges;
    uint32_t n_ranges, cap_ranges;

    struct word_table *tables;
    uint32_t n_tables, cap_tables;

    struct partition *partitions;
    uint32_t n_partitions, cap_partitions;
    uint32_t partition_buckets[256];
    struct numbers numbers;

    /* Rows: a partition's number, then the state behind each class, 0: not made yet. */
    struct numbers rows;
    uint32_t n_rows, stamp, mark;
    uint32_t single[128]; /* 1 + the set of one ASCII character; 0: none yet */

    uint64_t words_bytes;
    struct unicode_property {
        char name[LANG_MAX_NAME];
        lang_id set;
    } properties[LANG_MAX_PROPERTIES]; /* looked up so far */
    uint32_t n_properties;
    struct lang_watch watch;
    uint64_t steps, ask_at; /* of work; when to look at time and memory again */
    bool built;             /* steps are not counted any more */
    wk_status status;
    char why[160];
};

/* Bytes of characters that follow each other in an expression. */
struct byte_run {
    char bytes[256];
    size_t n;
};

/* Remembers the first failure. Always LANG_NONE. */
lang_id langs_fail(struct langs *x, wk_status status, const char *why);

bool numbers_room(struct langs *x, struct numbers *v, uint32_t more);
bool numbers_push(struct langs *x, struct numbers *v, uint32_t value);

/* The union (KIND_OR) or intersection (KIND_AND) of what lies in `scratch` from base on, which it takes away. */
lang_id lang_combine(struct langs *x, enum lang_kind kind, uint32_t base);
/* The number of a set of ranges (any order); UINT32_MAX: failed. An empty one has number 0. */
uint32_t lang_set(struct langs *x, const struct lang_range *ranges, size_t n);
lang_id lang_from_set(struct langs *x, uint32_t set);
/* Digits that leave `rest` modulo `divisor` have been read: will the decimal be a multiple of divisor / 10^places? */
lang_id lang_multiple(struct langs *x, uint32_t divisor, uint32_t rest, uint32_t where, uint32_t places);
lang_id lang_words_from(struct langs *x, uint32_t table, uint32_t first, uint32_t last, uint32_t depth);

/* lang_next where the transition is known, and of an ASCII character; otherwise that. */
static inline lang_id lang_next_ascii(struct langs *x, lang_id state, uint32_t c)
{
    const uint32_t row = x->exprs[state].row;
    if (!row) return lang_next(x, state, c);
    const uint32_t next = x->rows.list[row + 1 + x->partitions[x->rows.list[row]].ascii[c]];
    const bool known = next == LANG_NOTHING || x->exprs[next].flags & (EXPR_ACCEPTS | EXPR_POSITIVE | EXPR_LIVE);
    return next && known ? next : lang_next(x, state, c);
}
/* Makes what follows the states that come first from `id` on, at most `most` of them, and says how many they are: then
 * the first masks do not wait for it. Nothing is proved: behind a state that may be dead it does not look. */
enum { LANG_MAX_PREPARED = 16 };
uint32_t lang_prepare(struct langs *x, lang_id id, uint32_t most);
/* The state behind every character above ASCII, if it is the same for all of them; LANG_NONE: it is not, or a
 * failure. */
lang_id lang_next_above(struct langs *x, lang_id state);
/* States behind any character of a set's ranges (ascending), from states in[0..n), each once, at most cap; 0: none of
 * the characters has a text behind it. UINT32_MAX: some have and some not, more than cap, or a failure. */
uint32_t lang_next_set(struct langs *x, const lang_id *in, uint32_t n, const struct lang_range *set, uint32_t n_set,
                       lang_id *out, uint32_t cap);
int lang_compare_words(const struct lang_word *a, const struct lang_word *b);
/* A table of these words, which are ascending and each once; UINT32_MAX: failed. */
uint32_t lang_word_table(struct langs *x, const struct lang_word *words, size_t n);
/* The first word of low..high - 1 that does not come before a text with the n bytes `next` at `skip` (after: that comes
 * behind all of those). */
uint32_t lang_word_bound(const struct word_table *t, uint32_t low, uint32_t high, uint32_t skip, const char *next,
                         uint32_t n, bool after);

static inline const char *word_at(const struct word_table *t, uint32_t i, uint32_t *len)
{
    *len = t->at[i + 1] - t->at[i];
    return t->bytes + t->at[i];
}

#endif
