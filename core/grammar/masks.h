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
    uint32_t token; /* 1 + the id of a token that ends here; 0: none */
    uint16_t depth; /* bytes up to this node, from 1 */
    uint8_t byte;
    bool shared; /* other tokens have the same bytes */
};
struct trie {
    struct trie_node *nodes;
    uint32_t n;
    uint32_t first[257]; /* where what begins with byte b is: first[b]..first[b + 1] - 1 */
};

/* Ends of tokens as a tree, each once: `token` is 1 + the number of a group, the tokens with that end. */
struct tails {
    struct trie tree;
    uint32_t *at; /* group i: ids[at[i]]..ids[at[i + 1] - 1] */
    uint32_t *ids;
};

/* Tokens by how many of their first characters are of one set, be it all (part of a character at the end counts as one,
 * if it can be one of the set) or, behind at least one, only some. The others begin otherwise. */
enum { SLICE_LENGTHS = 16, MAX_SLICES = 8 };
struct slice {
    const struct lang_range *set;
    uint32_t n_set;
    uint64_t begins[4]; /* bytes whose branches of the tree of all tokens are dealt with here */
    struct trie odd;    /* what begins otherwise, in these branches: with other characters above ASCII */
    uint64_t *up_to[SLICE_LENGTHS + 1]; /* all: masks of tokens of at most i characters; [0]: of any length */
    uint32_t *longer;                   /* ids of those with more than SLICE_LENGTHS, by length */
    uint32_t *lengths;
    uint32_t n_longer;
    struct tails tails[SLICE_LENGTHS + 1]; /* some: what follows i characters of the set; [0]: any number */
    struct trie some, control;             /* the same tokens whole; control: a control character follows */
    uint32_t *some_longer;                 /* ids of those with more than SLICE_LENGTHS characters of the set */
    uint32_t n_some_longer;
};

struct grammar_index {
    uint32_t n_vocab, words;   /* words: of a mask */
    struct token_bytes *bytes; /* [n_vocab]; empty: never allowed by its bytes */
    uint64_t *ordinary;        /* a mask: those that have bytes */
    uint32_t *same;            /* [n_vocab]: 1 + the next id with the same bytes, 0: none */
    uint32_t *ends;
    uint32_t n_ends, longest;
    struct trie all;
    struct slice slices[MAX_SLICES];
    uint32_t n_slices;
};

bool index_ends(const struct grammar_index *x, uint32_t id);

/* ---- walking (walk.c) ------------------------------------------------------------------------------------------- */

/* Makes a mask: cleared once, begun for each stack, then trees and tokens. */
struct walker {
    const struct grammar_index *x;
    uint64_t *bits; /* the mask being made */
    struct place *places;
    uint32_t n_places, cap_places;
    uint32_t *buckets;
    uint16_t *rows; /* [cap_places * 256]: the place behind each byte */
    struct tops tops;
    uint32_t kept_tops; /* those of places */
    uint16_t *path;     /* [longest + 1]: the place behind so many bytes of a token */
};
bool walker_open(struct walker *w, const struct grammar_index *x); /* w: zeros. False: no memory; walker_close */
void walker_close(struct walker *w);
uint64_t walker_bytes(const struct walker *w);
void walker_clear(struct walker *w);
void walker_end(struct walker *w); /* the mask is made: gives back room that few masks need */
/* Of what follows, false is a failure, in g->status. Tokens are tried behind stack t and a position's partial character
 * (NULL: none). */
bool walker_begin(struct grammar *g, struct walker *w, const struct position *p, const struct top *t);
/* Allows those of a tree that can follow. without: first bytes that are left out; NULL: none. */
bool walker_tree(struct grammar *g, struct walker *w, const struct trie *tree, const uint64_t without[4]);
bool walker_tails(struct grammar *g, struct walker *w, const struct tails *tails);
bool walker_token(struct grammar *g, struct walker *w, uint32_t id);
void walker_allow(struct walker *w, uint32_t id); /* without asking */
/* Character c, or any above ASCII (0x80), of the content of a string or a text where t stands. LANG_UNKNOWN: the
 * machine has to say. A counter from which no token comes to a bound stays as it is. */
enum lang_answer walker_inside(struct grammar *g, const struct walker *w, struct top *t, uint32_t c);

/* Allows the tokens that can follow stack t (slice.c). */
bool slices_walk(struct grammar *g, struct walker *w, const struct position *p, const struct top *t);

/* ---- masks (mask.c) --------------------------------------------------------------------------------------------- */

/* From now on the grammar is used with this index. WK_INVALID: it is in use with another one. */
wk_status masks_use(struct grammar *g, const struct grammar_index *x, const struct wk_err *err);
wk_status masks_get(struct grammar *g, const struct position *p, struct grammar_mask *out, const struct wk_err *err);
uint64_t masks_bytes(const struct masks *m);
/* Does a node of the grammar name this id? */
bool masks_names(const struct grammar *g, uint32_t id);

#endif
