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
};

/* Ends of tokens as a tree, each once: `token` is 1 + the number of a group, the tokens with that end. */
struct tails {
    struct trie tree;
    uint32_t *at; /* group i: ids[at[i]]..ids[at[i + 1] - 1] */
    uint32_t *ids;
};

/* Tokens by how many characters of one set they begin with, behind a first byte or none: whole: they have no others
 * (part of a character at the end counts as one, if it can be one of the set); some: they go on otherwise. */
enum { SLICE_LENGTHS = 16, MAX_SLICES = 10, MANY_TOKENS = 32 };
struct part {
    uint32_t *whole;                      /* ids of i characters: whole_at[i]..whole_at[i + 1] - 1; of the root only: */
    uint32_t whole_at[SLICE_LENGTHS + 3]; /* [SLICE_LENGTHS + 1]: of more */
    struct tails tails[SLICE_LENGTHS + 1]; /* some: what follows i characters; [0]: any number */
    struct trie some, control;             /* the same tokens from their first byte; control: if that is what follows */
    uint32_t *longer;                      /* some: ids of those with more than SLICE_LENGTHS characters */
    uint32_t n_longer;
    struct trie other; /* no character of the set comes; of the root: in branches that are dealt with by the slice */
};
struct slice {
    const struct lang_range *set;
    uint32_t n_set;
    uint64_t begins[4];                 /* first bytes of its characters: it deals with these branches */
    uint64_t *up_to[SLICE_LENGTHS + 1]; /* masks: whole tokens of at most i characters; [0]: of any number */
    struct part root;
    uint32_t longest_end;      /* bytes of a tail that does not begin with a control character */
    struct part *behind[0x80]; /* tokens that begin with this byte, which is not of the set; NULL: few */
};

struct grammar_index {
    uint32_t n_vocab, words;   /* words: of a mask */
    struct token_bytes *bytes; /* [n_vocab]; empty: never allowed by its bytes */
    uint64_t *ordinary;        /* a mask: those that have bytes */
    uint32_t *same;            /* [n_vocab]: 1 + the next id with the same bytes, 0: none */
    uint32_t *ends;
    uint32_t n_ends, longest;
    struct trie all;
    uint32_t branches[257]; /* where what begins with byte b is in it: branches[b]..branches[b + 1] - 1 */
    uint64_t many[4];       /* first bytes that slices have tokens behind */
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
/* Allows those of a tree that can follow; tails: groups; of all tokens, those that begin with one byte. */
bool walker_tree(struct grammar *g, struct walker *w, const struct trie *tree);
bool walker_tails(struct grammar *g, struct walker *w, const struct tails *tails);
bool walker_branch(struct grammar *g, struct walker *w, uint8_t byte);
bool walker_token(struct grammar *g, struct walker *w, uint32_t id);
void walker_allow(struct walker *w, uint32_t id); /* without asking */
/* Where a first byte leads to. */
enum lead {
    LEAD_FAILED,
    LEAD_NONE,  /* it cannot follow */
    LEAD_PLACE, /* to some place */
    LEAD_INSIDE /* to *t, in the content of a string or a text */
};
enum lead walker_lead(struct grammar *g, struct walker *w, uint8_t byte, struct top *t);
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
