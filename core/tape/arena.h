/* arena.h: memory that is taken in small pieces and given back at once.
 *
 * A tape and everything it points to lives in one arena, so that each way out of recording, good or bad, frees with one
 * call. */
#ifndef CORE_TAPE_ARENA_H
#define CORE_TAPE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena; /* [one thread at a time] */

struct arena *arena_new(void);    /* NULL: out of memory */
void arena_free(struct arena *a); /* NULL allowed */
/* n * size zeroed bytes, aligned to 16, valid until arena_free; NULL: out of memory (or the product overflows). */
void *arena_take(struct arena *a, size_t n, size_t size);
/* Room for one more item behind `n` used ones: `items` itself while *cap suffices, else a copy twice as long. NULL: out
 * of memory. */
void *arena_grow(struct arena *a, void *items, uint32_t n, uint32_t *cap, size_t size);

#endif
