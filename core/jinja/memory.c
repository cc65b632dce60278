/* memory.c: the heap of a render and how a failure leaves it. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_BLOCK = 16 << 10, LARGEST_BLOCK = 1 << 20, ALIGN = 16 };

struct block {
    struct block *before;
    size_t n;
};

_Noreturn static void leave(struct vm *m)
{
    if (!m->failure.at) m->failure.at = m->at;
    longjmp(*m->trap, 1);
}

_Noreturn static void no_memory(struct vm *m)
{
    m->failure = (struct failure){ .end = JINJA_NO_MEMORY, .message = "out of memory" };
    leave(m);
}

void *jn_heap_take(struct vm *m, size_t n)
{
    struct heap *h = &m->heap;
    if (n > JINJA_MAX_MEMORY) jn_fail_limit(m, "values take more than %d bytes", JINJA_MAX_MEMORY);
    n = (n + !n + ALIGN - 1) & ~(size_t)(ALIGN - 1); /* nothing, too, has an address */
    if ((size_t)(h->end - h->at) < n) {
        size_t size = h->last ? 2 * h->last->n : FIRST_BLOCK;
        if (size > LARGEST_BLOCK) size = LARGEST_BLOCK;
        if (size < n) size = n;
        if (h->total + size > JINJA_MAX_MEMORY) jn_fail_limit(m, "values take more than %d bytes", JINJA_MAX_MEMORY);
        struct block *b = calloc(1, sizeof *b + size); /* zeros of fresh pages cost nothing */
        if (!b) no_memory(m);
        *b = (struct block){ h->last, size };
        h->last = b;
        h->total += size;
        h->at = (char *)(b + 1);
        h->end = h->at + size;
    }
    char *p = h->at; /* what was never handed out is zero */
    h->at += n;
    return p;
}

void *jn_heap_array(struct vm *m, size_t n, size_t size)
{
    if (n > JINJA_MAX_MEMORY / size) jn_fail_limit(m, "values take more than %d bytes", JINJA_MAX_MEMORY);
    return jn_heap_take(m, n * size);
}

void *jn_heap_grow(struct vm *m, void *items, size_t used, uint32_t *cap, size_t want, size_t size)
{
    if (want <= *cap) return items;
    size_t room = 2 * (size_t)*cap;
    if (room < want) room = want;
    if (room < 64 / size) room = 64 / size;
    if (room < 4) room = 4;
    struct heap *h = &m->heap;
    const size_t old = ((size_t)*cap * size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    const size_t now = (room * size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (items && room <= JINJA_MAX_MEMORY / size && (char *)items + old == h->at &&
        (size_t)(h->end - h->at) >= now - old) {
        h->at += now - old;
        *cap = (uint32_t)room;
        return items;
    }
    void *grown = jn_heap_array(m, room, size);
    if (used) memcpy(grown, items, used * size);
    *cap = (uint32_t)room;
    return grown;
}

void jn_heap_free(struct heap *h)
{
    for (struct block *b = h->last; b;) {
        struct block *before = b->before;
        free(b);
        b = before;
    }
    *h = (struct heap){ 0 };
}

static const char *format_words(struct vm *m, const char *format, va_list list)
{
    char text[512];
    const int n = vsnprintf(text, sizeof text, format, list);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (n >= (int)sizeof text) { /* no half of a character */
        while (len && ((unsigned char)text[len - 1] & 0xC0) == 0x80) len--;
        if (len && (unsigned char)text[len - 1] >= 0x80) len--;
    }
    char *copy = jn_heap_take(m, len + 1);
    memcpy(copy, text, len);
    return copy;
}

const char *jn_words(struct vm *m, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const char *text = format_words(m, format, list);
    va_end(list);
    return text;
}

void jn_fail(struct vm *m, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const char *text = format_words(m, format, list);
    va_end(list);
    m->failure = (struct failure){ .end = JINJA_FAILED, .message = text };
    leave(m);
}

void jn_fail_limit(struct vm *m, const char *format, ...)
{
    /* Without the heap, which may be what is full: the texts are short. */
    va_list list;
    va_start(list, format);
    (void)vsnprintf(m->limit, sizeof m->limit, format, list);
    va_end(list);
    m->failure = (struct failure){ .end = JINJA_LIMIT, .message = m->limit };
    leave(m);
}

void jn_fail_again(struct vm *m, const struct failure *f)
{
    m->failure = *f;
    leave(m);
}

void jn_spend_items(struct vm *m, size_t n)
{
    m->steps += n;
    jn_spend(m, 0);
}
