/* index.h: what the makers of an index share. Private to index.c and index_slice.c. */
#ifndef CORE_GRAMMAR_INDEX_H
#define CORE_GRAMMAR_INDEX_H

#include "grammar/masks.h"

struct entry {
    const unsigned char *bytes;
    uint32_t len, id;
    uint32_t in_set; /* of the end of a token: characters of a slice's set before it */
};

int entry_order(const void *a, const void *b); /* by bytes; for qsort */
/* A tree of entries, which are in order and differ. same: of ids, NULL: they are groups. False: no memory. open: room
 * for the longest token. */
bool entry_trie(const struct entry *e, uint32_t n, const uint32_t *same, uint32_t *open, struct trie *out);

/* Makes all slices of tokens that are in order. False: no memory; what was made is closed with the index. */
bool index_slices(struct grammar_index *x, const struct entry *e, uint32_t n, uint32_t *open);
void index_slice_close(struct slice *s);

#endif
