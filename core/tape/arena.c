/* arena.c: a list of blocks, each at least twice what is asked for. */
#include "tape/arena.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BLOCK = 64 * 1024, ALIGN = 16 };

struct block {
    struct block *next;
    size_t used, cap;
    _Alignas(ALIGN) unsigned char bytes[];
};
struct arena {
    struct block *newest;
};

struct arena *arena_new(void) { return calloc(1, sizeof(struct arena)); }

void arena_free(struct arena *a)
{
    if (!a) return;
    for (struct block *b = a->newest, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void *arena_take(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 4) return NULL;
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct block *b = a->newest;
    if (!b || b->cap - b->used < bytes) {
        size_t cap = bytes * 2 > FIRST_BLOCK ? bytes * 2 : FIRST_BLOCK;
        b = calloc(1, sizeof *b + cap);
        if (!b) return NULL;
        b->cap = cap;
        b->next = a->newest;
        a->newest = b;
    }
    void *p = b->bytes + b->used;
    b->used += bytes;
    return p;
}

void *arena_grow(struct arena *a, void *items, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap) return items;
    uint32_t more = *cap ? *cap * 2 : 64;
    void *copy = arena_take(a, more, size);
    if (!copy) return NULL;
    if (n) memcpy(copy, items, n * size);
    *cap = more;
    return copy;
}
