/* gguf/names.h: a set of names that finds duplicates and answers look-ups in constant time.
 *
 * The names come from untrusted files, so the hash is SipHash-1-3 under a key that is drawn for each set: nobody can
 * prepare names that collide, and n insertions cost O(n). The set stores positions in an array of the caller's whose
 * items begin with a struct gguf_str. */
#ifndef CORE_GGUF_NAMES_H
#define CORE_GGUF_NAMES_H

#include "gguf/gguf.h"

struct names {
    uint32_t *slot; /* [mask + 1]: position + 1, or 0 for empty; open addressing, at most half full */
    uint64_t mask;
    uint64_t used;
    uint64_t key[2];
};

enum { NAMES_ABSENT = -1, NAMES_NO_MEMORY = -2 };

/* Adds items[i]. Returns NAMES_ABSENT if its name is new (and now in the set), the position that has the same name
 * otherwise, or NAMES_NO_MEMORY. `items` may have moved since the last call. */
int64_t names_add(struct names *set, const void *items, size_t stride, uint32_t i);
/* Position of `name`, or NAMES_ABSENT. */
int64_t names_find(const struct names *set, const void *items, size_t stride, struct gguf_str name);
void names_free(struct names *set);

#endif
