/* vocab.h: the tokens of a model as data: texts, types, scores, decoded bytes, ids with a role. Private to
 * core/tokenizer. */
#ifndef CORE_TOKENIZER_VOCAB_H
#define CORE_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "tokenizer/tokenizer.h"

struct gguf;

enum vocab_model {
    VOCAB_SPM /* U+2581 is a space, bytes have tokens <0xHH> */,
    VOCAB_BPE /* texts in the byte alphabet */,
    VOCAB_WORDPIECE /* U+2581 begins a word */,
    VOCAB_UNIGRAM /* as SPM, with or without byte tokens */
};

enum { VOCAB_MAX_FILE_ENDS = 32 /* ids that a file's keys name as ends */ };

struct vocab {
    enum vocab_model model;
    uint32_t n;
    const char *where; /* the list of tokens in messages: "tokenizer.ggml.tokens" */
    uint64_t seed;     /* of all hash tables: a file cannot be made to collide */

    char *text;         /* [text_at[n]] all texts one after the other, as the file spells them */
    uint32_t *text_at;  /* [n + 1] */
    char *piece;        /* the bytes that each token stands for */
    uint32_t *piece_at; /* [n + 1] */
    uint8_t *type;      /* [n] enum token_type */
    float *score;       /* [n], GGUF's SPM and unigram only */
    size_t longest;     /* bytes of the longest text */
    bool words_part;    /* SPM: no text has a space behind anything else, so that nothing merges across a word's end */

    uint32_t *slot; /* [slot_mask + 1] open-addressing table of text -> id, TOKEN_NONE: free */
    uint32_t slot_mask;

    uint32_t byte_id[256]; /* the token of each single byte, or TOKEN_NONE */
    uint32_t bos, eos, unk, pad, eot, eom, sep;
    bool add_bos, add_eos, add_sep, add_space_prefix;
    bool trims_spaces;                           /* unigram: spaces at the ends go, several become one */
    bool lowercase;                              /* WordPiece: text becomes lower case, without accents */
    uint32_t file_ends[VOCAB_MAX_FILE_ENDS + 1]; /* as the file's keys name them */
    size_t n_file_ends;
    uint32_t end_ids[VOCAB_MAX_FILE_ENDS + 16]; /* end-of-generation set, ascending */
    size_t n_end;
};

wk_status vocab_open(struct vocab *v, const struct gguf *file, enum vocab_model model, const struct wk_err *err);
/* In steps, for texts from elsewhere: vocab_begin; fill n, text, text_at, longest, type; vocab_table; roles;
 * vocab_complete. */
void vocab_begin(struct vocab *v, enum vocab_model model, const char *where);
wk_status vocab_table(struct vocab *v, const struct wk_err *err); /* vocab_find works from now on */
wk_status vocab_read_roles(struct vocab *v, const struct gguf *file,
                           const struct wk_err *err); /* from the file's keys; an absent one leaves a role alone */
wk_status vocab_complete(struct vocab *v, const struct wk_err *err); /* bytes, pieces, ends */
void vocab_close(struct vocab *v);

uint32_t vocab_find(const struct vocab *v, const char *text, size_t len); /* id or TOKEN_NONE */
static inline struct token_bytes vocab_text(const struct vocab *v, uint32_t id)
{
    return (struct token_bytes){ v->text + v->text_at[id], v->text_at[id + 1] - v->text_at[id] };
}
static inline struct token_bytes vocab_piece(const struct vocab *v, uint32_t id)
{
    return (struct token_bytes){ v->piece + v->piece_at[id], v->piece_at[id + 1] - v->piece_at[id] };
}
/* May ordinary text become this token? Control, unknown, unused and byte tokens have other ways. */
static inline bool vocab_is_text(const struct vocab *v, uint32_t id)
{
    return v->type[id] == TOKEN_NORMAL || v->type[id] == TOKEN_USER_DEFINED;
}
bool vocab_ends(const struct vocab *v, uint32_t id);
/* `<0xHH>` with exactly two hexadecimal digits -> 0..255, else -1. */
int vocab_byte_value(struct token_bytes t);

/* The byte alphabet of byte-level BPE: the code point that stands for `byte` in a token's text, as UTF-8 (1 or 2 bytes)
 * at out; returns the length. */
size_t vocab_put_symbol(unsigned char byte, char out[2]);

/* Mixes two words into a hash (folded 64 x 64 bit product). */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    const unsigned __int128 p = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* A growing array: room for `need` elements of `size` bytes at *array, *cap updated. false:
 * no memory, nothing changed. */
bool array_reserve(void **array, size_t *cap, size_t need, size_t size);

#endif
