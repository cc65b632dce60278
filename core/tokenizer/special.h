/* special.h: finds special tokens in text. Private to core/tokenizer. */
#ifndef CORE_TOKENIZER_SPECIAL_H
#define CORE_TOKENIZER_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "tokenizer/tokenizer.h"

struct vocab;

enum { SPECIAL_MAX_BYTES = 1 << 20 }; /* of all special tokens together; bounds the automaton's memory */

/* How a special of a tokenizer.json is found. */
enum {
    SPECIAL_WORD = 1 /* not beside a character of a word */,
    SPECIAL_STRIPS_LEFT = 2,
    SPECIAL_STRIPS_RIGHT = 4 /* takes the white space there with it */
};

struct special {
    struct token_bytes text;
    uint32_t id;
    bool control;
    uint8_t flags;
};

/* An Aho-Corasick automaton (1975) over the texts of all special tokens. Immutable. */
struct specials {
    uint64_t seed;
    bool leftmost;      /* built over reversed texts, for specials_split_leftmost */
    uint32_t *id;       /* [n] specials, longest text first, ties by id: the order in which they claim text */
    uint32_t *len;      /* [n] bytes */
    uint32_t *terminal; /* [n] the state that spells it */
    uint8_t *control;   /* [n] only where control tokens are allowed */
    uint8_t *flags;     /* [n] SPECIAL_* */
    uint32_t n;
    struct special_state *state;
    uint32_t *edge; /* [edge_mask + 1] open addressing: the child state, 0: free */
    uint32_t n_states, edge_mask;
};

/* Text [0, end) up to the next span's begin; spans are in order and cover the text. */
struct trust_span {
    uint32_t end;
    bool control;
};

/* A stretch of text: a special token, or raw text (id TOKEN_NONE). */
struct fragment {
    uint32_t at, len, id;
};
struct fragments {
    struct fragment *list;
    size_t n, cap;
};

/* The texts of list[0..n) are not kept; where says whose tokens they are in messages. */
wk_status specials_open(struct specials *s, const struct special *list, uint32_t n, bool leftmost, uint64_t seed,
                        const char *where, const struct wk_err *err);
/* Those of a GGUF vocabulary: control, unknown and user-defined tokens. */
wk_status specials_open_vocab(struct specials *s, const struct vocab *v, const struct wk_err *err);
/* A user-defined token that begins or ends a text is a control token by what it does (Phi-3's </s>). */
bool special_is_control(const struct vocab *v, uint32_t id);
void specials_close(struct specials *s);

/* Appends the fragments of text[0..n), empty ones left out. Control tokens are found only wholly inside one span that
 * allows them. The result is that of taking the specials one by one, longest first, and cutting each out of the
 * remaining raw text from left to right; time O(n log n) for any real vocabulary. */
wk_status specials_split(const struct specials *s, const char *text, uint32_t n, const struct trust_span *spans,
                         size_t n_spans, struct fragments *out, const struct wk_err *err);

/* The same as Hugging Face's tokenizers cut: the leftmost special first, of several there the longest. Time O(n). */
wk_status specials_split_leftmost(const struct specials *s, const char *text, uint32_t n,
                                  const struct trust_span *spans, size_t n_spans, struct fragments *out,
                                  const struct wk_err *err);

#endif
