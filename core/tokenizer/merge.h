/* merge.h: the merging that byte-pair encoding (Sennrich et al. 2016) and SentencePiece's variant of it share. Private
 * to core/tokenizer.
 *
 * A text begins as a row of symbols; again and again the best adjacent pair becomes one symbol, until no pair may
 * merge. Pairs wait in a heap, symbols are a doubly linked list: O(n log n), whatever the text. */
#ifndef CORE_TOKENIZER_MERGE_H
#define CORE_TOKENIZER_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYMBOL_END UINT32_MAX

struct symbol {
    uint32_t at, len;    /* bytes of the text; len 0: merged into its left neighbour */
    uint32_t prev, next; /* indices, SYMBOL_END at either end */
    uint32_t id;         /* token, or TOKEN_NONE if no token is spelt so */
};

struct candidate {
    uint64_t key; /* priority << 32 | index of the left symbol: the smallest is merged first, ties leftmost */
    uint32_t len; /* of both symbols together; if it has changed since, the candidate is stale */
    uint32_t id;  /* of the merged symbol */
};

struct tokenizer_watch;

/* Working memory of one thread; zeroed: empty, and nobody watches. */
struct merger {
    struct symbol *symbol; /* [n]; filled by the caller with merger_add; the first is never merged away */
    struct candidate *heap;
    size_t n, cap, n_heap, heap_cap;
    const struct tokenizer_watch *watch;
    uint32_t work; /* since it began */
    bool stopped;  /* the watch has said so */
};

/* May l and r merge? Then gives the priority (smaller is sooner) and the token. */
typedef bool merge_rule(const void *model, const char *text, const struct symbol *l, const struct symbol *r,
                        uint32_t *priority, uint32_t *id);

void merger_clear(struct merger *m);
bool merger_add(struct merger *m, uint32_t at, uint32_t len, uint32_t id); /* false: no memory */
/* False: no memory, or stopped. */
bool merger_run(struct merger *m, merge_rule *rule, const void *model, const char *text);
/* To be called for each word or pair: asks the watch now and then. False: stopped. */
bool merger_goes_on(struct merger *m);
void merger_free(struct merger *m);

#endif
