/* fold.h: text that comes in pieces, as the symbols that a blocklist compares: the UTF-8 of its NFKC_Casefold with one
 * space for each run of white space, and FOLD_BORDER wherever a word begins or ends (blocklist.h says what a word is).
 *
 * Code points that may become one with what stands before them (marks, Hangul vowels) belong to one segment with it. A
 * segment is folded when the next one begins, or the text ends: then its result depends on nothing else. A segment of
 * more than FOLD_SEGMENT code points is cut there; no language has one. */
#ifndef GATE_FOLD_H
#define GATE_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOLD_BORDER = 0xff /* no byte of UTF-8 */, FOLD_SEGMENT = 64 };

/* origin: where in the text the segment of the symbol begins; of a border, the one after it. Never decreases. */
typedef void fold_take(void *user, unsigned char symbol, uint64_t origin);

struct fold {
    fold_take *take;
    void *user;
    uint64_t at;       /* bytes given */
    uint64_t begin_at; /* of the segment */
    int32_t segment[FOLD_SEGMENT];
    unsigned n_segment;
    unsigned char partial[4]; /* a code point whose end is still to come */
    unsigned n_partial;
    bool word, space; /* of the last code point: part of a word; white space */
};

/* [one thread at a time] */
void fold_begin(struct fold *f, fold_take *take, void *user);
void fold_feed(struct fold *f, const void *bytes, size_t n);
void fold_end(struct fold *f);
/* Bytes of the text whose symbols have all been taken. */
uint64_t fold_done(const struct fold *f);

#endif
