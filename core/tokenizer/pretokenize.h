/* pretokenize.h: cuts text into the words inside which byte-level BPE merges. Private to core/tokenizer. */
#ifndef CORE_TOKENIZER_PRETOKENIZE_H
#define CORE_TOKENIZER_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { PRETOKENIZER_MAX_STEPS = 6 };

/* Compiled patterns of one pre-tokenizer, applied one after the other, each to the pieces that the one before left. */
struct pretokenizer {
    void *step[PRETOKENIZER_MAX_STEPS]; /* pcre2_code, immutable */
    size_t n_steps;
    bool ignore_merges; /* a word that is a token is that token, whatever merges would give */
    bool add_bos;       /* unless the file says otherwise */
};

struct piece {
    uint32_t at, len;
};

/* One thread's working memory; zeroed: empty. */
struct pretokenizer_scratch {
    struct piece *piece, *spare; /* piece: the result, [n] */
    size_t n, cap, n_spare, spare_cap;
    void *match, *context, *stack; /* PCRE2's */
};

/* name: the value of tokenizer.ggml.pre; an unknown one is refused with the list of known ones. */
wk_status pretokenizer_open(struct pretokenizer *p, const char *name, size_t len, const struct wk_err *err);
/* One step more, as a tokenizer.json spells it (a zeroed pretokenizer has none). A regular expression must be one that
 * this program knows under its own, linear form: no pattern of a stranger is ever run. total: it leaves no text
 * unmatched. Unknown or too many steps: WK_UNSUPPORTED. */
wk_status pretokenizer_add_regex(struct pretokenizer *p, const char *regex, size_t len, bool *total,
                                 const struct wk_err *err);
enum pretokenizer_step { STEP_GPT2, STEP_DIGIT, STEP_DIGITS, STEP_PUNCTUATION, STEP_PUNCTUATION_RUN };
wk_status pretokenizer_add_step(struct pretokenizer *p, enum pretokenizer_step step, const struct wk_err *err);
/* Cuts at a text of UTF-8, 1 to PRETOKENIZER_MAX_LITERAL bytes, which is a piece, or goes with the piece before or
 * behind it. */
enum pretokenizer_merge { LITERAL_ISOLATED, LITERAL_WITH_PREVIOUS, LITERAL_WITH_NEXT };
enum { PRETOKENIZER_MAX_LITERAL = 32 };
wk_status pretokenizer_add_literal(struct pretokenizer *p, const char *text, size_t len, enum pretokenizer_merge merge,
                                   const struct wk_err *err);
void pretokenizer_close(struct pretokenizer *p);

/* Cuts text[0..n) into s->piece[0..s->n), in order and without gaps. Bytes that are no UTF-8 are pieces of one byte
 * each. */
wk_status pretokenizer_split(const struct pretokenizer *p, struct pretokenizer_scratch *s, const char *text, size_t n,
                             const struct wk_err *err);
void pretokenizer_scratch_free(struct pretokenizer_scratch *s);

#endif
