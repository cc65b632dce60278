/* masks.h: masks of a grammar for one vocabulary, and the vocabulary's index as they read it. Private to core/grammar.
 */
#ifndef CORE_GRAMMAR_MASKS_H
#define CORE_GRAMMAR_MASKS_H

#include "grammar/grammar_internal.h"
#include "tokenizer/tokenizer.h"

/* ---- the index (index.c) -------------------------------------------------------------------------------------- */

/* Tokens as a tree of bytes, in the order of a walk that goes down first. */
struct trie_node {
    uint32_t skip;  /* the next node that is not below this one */
    uint32_t token; /* 1 + the id of a token that ends here; 0: none. Others of the same bytes: same[] */
    uint16_t depth; /* bytes up to this node, from 1 */
    uint8_t byte;
};
struct trie {
    struct trie_node *nodes;
    uint32_t n;
};

/* Tokens that consist of whole characters of one set. */
enum { SLICE_LENGTHS = 16, MAX_SLICES = 6 };
struct slice {
    const struct lang_range *set;
    uint32_t n_set;
    uint64_t *up_to[SLICE_LENGTHS + 1]; /* masks: of tokens of at most i characters; [0]: of any length */
    uint32_t *longer;                   /* ids of those with more than SLICE_LENGTHS, by length */
    uint32_t *lengths;
    uint32_t n_longer;
    struct trie rest; /* all other tokens */
};

struct grammar_index {
    uint32_t n_vocab, words;   /* words: of a mask */
    struct token_bytes *bytes; /* [n_vocab]; empty: never allowed by its bytes */
    uint32_t *same;            /* [n_vocab]: 1 + the next id with the same bytes, 0: none */
    uint32_t *ends;
    uint32_t n_ends, longest;
    struct trie all;
    struct slice slices[MAX_SLICES];
    uint32_t n_slices;
};

bool index_ends(const struct grammar_index *x, uint32_t id);

/* ---- masks (mask.c) --------------------------------------------------------------------------------------------- */

/* From now on the grammar is used with this index. WK_INVALID: it is in use with another one. */
wk_status masks_use(struct grammar *g, const struct grammar_index *x, const struct wk_err *err);
wk_status masks_get(struct grammar *g, const struct position *p, struct grammar_mask *out, const struct wk_err *err);
uint64_t masks_bytes(const struct masks *m);
/* Does a node of the grammar name this id? */
bool masks_names(const struct grammar *g, uint32_t id);

#endif
