/* model.h: the two ways from raw text to ids, and what one encode needs. Private to core/tokenizer. */
#ifndef CORE_TOKENIZER_MODEL_H
#define CORE_TOKENIZER_MODEL_H

#include "tokenizer/merge.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/special.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

/* The merge list of byte-level BPE as a hash table of (left, right) -> rank, merged. */
struct bpe_merge { uint32_t left, right, rank, id; }; /* left TOKEN_NONE: free */
struct bpe_merges { struct bpe_merge *slot; uint32_t mask; };

/* Working memory of one encode. */
struct encoder {
    struct fragments fragments;
    struct pretokenizer_scratch words;
    struct merger merger;
    char *buffer; /* SPM: escaped text; BPE: a word in the byte alphabet */
    size_t buffer_cap;
};

bool tokens_add(struct tokens *out, uint32_t id); /* false: no memory */

/* bpe.c */
wk_status bpe_open(struct bpe_merges *m, const struct vocab *v, const struct gguf *file, const struct wk_err *err);
void bpe_close(struct bpe_merges *m);
wk_status bpe_encode(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *p, struct encoder *e, const char *text,
                     size_t n, struct tokens *out, const struct wk_err *err);

/* spm.c. space: put the word boundary that SentencePiece puts before a text. */
wk_status spm_encode(const struct vocab *v, struct encoder *e, const char *text, size_t n, bool space, struct tokens *out, const struct wk_err *err);

#endif
