/* model.h: the ways from raw text to ids, and what one encode needs. Private to core/tokenizer. */
#ifndef CORE_TOKENIZER_MODEL_H
#define CORE_TOKENIZER_MODEL_H

#include "tokenizer/json_reader.h"
#include "tokenizer/merge.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/special.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

struct gguf;

/* The merge list of byte-level BPE as a hash table of (left, right) -> rank, merged. */
struct bpe_merge {
    uint32_t left, right, rank, id;
}; /* left TOKEN_NONE: free */
struct bpe_merges {
    struct bpe_merge *slot;
    uint32_t mask, n;
    char *joined; /* [longest text + 1] while merges are added */
};

/* What a tokenizer.json says of the way of a text, besides its vocabulary, merges and pre-tokenizer's patterns. */
enum { HF_MAX_STEPS = 8, HF_MAX_TEXT = 4 * TOKENIZER_MAX_TEXT /* bytes after normalising */ };
enum hf_kind { HF_NFC, HF_PREPEND, HF_REPLACE };
struct hf_step {
    enum hf_kind kind;
    char *from, *to;
    size_t from_len, to_len;
};
struct hf_pipeline {
    char digest[65];                   /* SHA-256 of the file, hex */
    struct hf_step step[HF_MAX_STEPS]; /* the normalizer's */
    uint32_t n_steps;
    bool byte_level;                               /* else characters, with byte tokens to fall back to */
    bool prefix_space;                             /* ByteLevel's add_prefix_space */
    enum { HF_BARE, HF_FIRST, HF_ALWAYS } prepend; /* Metaspace's prepend_scheme */
    bool metaspace;                                /* spaces become U+2581 after the normalizer */
    struct specials raw, normalized;               /* added tokens, looked for before and after it */
};

/* Working memory of one encode. */
struct encoder {
    struct fragments fragments;
    struct pretokenizer_scratch words;
    struct merger merger;
    char *buffer; /* SPM: escaped text; BPE: a word in the byte alphabet; WordPiece: a word */
    size_t buffer_cap;
    struct byte_buffer normal, spare; /* tokenizer.json, WordPiece, unigram: normalised text */
    struct fragments inner;           /* and what added tokens leave of it */
};

bool tokens_add(struct tokens *out, uint32_t id); /* false: no memory */

/* bpe.c. bpe_begin: room for n merges; bpe_add_merge, in order: twice: it was there already, and the first one counts;
 * why says what is wrong. */
wk_status bpe_begin(struct bpe_merges *m, const struct vocab *v, uint64_t n, const char *where,
                    const struct wk_err *err);
bool bpe_split(const char *s, size_t len, struct token_bytes *left, struct token_bytes *right); /* "left right" */
wk_status bpe_add_merge(struct bpe_merges *m, const struct vocab *v, struct token_bytes left, struct token_bytes right,
                        bool *twice, const struct wk_err *why);
wk_status bpe_open(struct bpe_merges *m, const struct vocab *v, const struct gguf *file, const struct wk_err *err);
void bpe_close(struct bpe_merges *m);
wk_status bpe_encode(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *p, struct encoder *e,
                     const char *text, size_t n, struct tokens *out, const struct wk_err *err);
/* Merges the symbols in e->merger and appends their ids. False: no memory. */
bool bpe_merge_symbols(const struct vocab *v, const struct bpe_merges *m, struct encoder *e, const char *text,
                       struct tokens *out);

/* spm.c. space: put the word boundary that SentencePiece puts before a text. */
wk_status spm_encode(const struct vocab *v, struct encoder *e, const char *text, size_t n, bool space,
                     struct tokens *out, const struct wk_err *err);
bool spm_words_part(const struct vocab *v); /* what vocab.words_part says */
uint32_t spm_find_text(const struct vocab *v, const char *text,
                       size_t len); /* the token that text may become, or TOKEN_NONE */

/* wordpiece.c */
wk_status wordpiece_encode(const struct vocab *v, struct encoder *e, const char *text, size_t n, struct tokens *out,
                           const struct wk_err *err);

/* SentencePiece's unigram model. */
struct unigram {
    uint8_t *map; /* tokenizer.ggml.precompiled_charsmap; NULL: none */
    uint32_t n_units;
    const char *texts; /* in the map: [n_texts], each ends with a zero byte */
    size_t n_texts;
    uint32_t *order, n;  /* [n] tokens that text may become, by their bytes */
    uint32_t first[257]; /* of those that begin with this byte or a larger one */
    float unknown;       /* score of a character that no token spells */
};
/* unigram.c. space: put the word boundary that SentencePiece puts before a text. */
wk_status unigram_open(struct unigram *u, const struct vocab *v, const struct gguf *file, const struct wk_err *err);
void unigram_close(struct unigram *u);
wk_status unigram_encode(const struct unigram *u, const struct vocab *v, struct encoder *e, const char *text, size_t n,
                         bool space, struct tokens *out, const struct wk_err *err);

/* hf_parts.c: the parts of a tokenizer.json that are not its model. They come as raw JSON; name is the file's. */
struct hf_ends {
    uint32_t before, after;
    bool said;
}; /* ids that the post-processor puts round a text, or TOKEN_NONE; said: it speaks of them */
wk_status hf_read_normalizer(struct hf_pipeline *p, struct json_text json, const char *name, const struct wk_err *err);
wk_status hf_read_pretokenizer(struct hf_pipeline *p, struct pretokenizer *words, struct json_text json,
                               const char *name, const struct wk_err *err);
wk_status hf_read_postprocessor(struct hf_ends *ends, const struct vocab *v, struct json_text json, const char *name,
                                const struct wk_err *err);
/* strips: one space at the beginning of a text comes off. */
wk_status hf_read_decoder(const struct hf_pipeline *p, bool *strips, struct json_text json, const char *name,
                          const struct wk_err *err);

/* Reads a member's name: its index in names[0..n), each at most once; unknown and repeated ones fail, as does the end
 * of the object (SIZE_MAX, status 0). */
size_t hf_member(struct json_reader *r, const char *const *names, size_t n, uint64_t *seen);

/* hf_encode.c */
/* out: the result; the text is part of neither buffer. */
wk_status hf_normalize(const struct hf_pipeline *p, const char *text, size_t n, struct byte_buffer *out,
                       struct byte_buffer *spare, const struct wk_err *err);
wk_status hf_encode(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *words,
                    const struct hf_pipeline *p, struct encoder *e, const char *text, uint32_t n,
                    const struct trust_span *spans, size_t n_spans, struct tokens *out, const struct wk_err *err);
void hf_pipeline_close(struct hf_pipeline *p);

/* hf_json.c: everything of a tokenizer.json. file, rows: as in tokenizer.h. */
wk_status hf_open(const char *path, const struct gguf *file, uint32_t rows, struct vocab *v, struct bpe_merges *m,
                  struct pretokenizer *words, struct hf_pipeline *p, const struct wk_err *err);
wk_status hf_open_text(const char *text, size_t len, const char *name, const struct gguf *file, uint32_t rows,
                       struct vocab *v, struct bpe_merges *m, struct pretokenizer *words, struct hf_pipeline *p,
                       const struct wk_err *err);

#endif
