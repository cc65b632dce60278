/* failing_memory.h: the n-th allocation of a program fails, and all after it. The linker puts these functions between
 * the core and the allocator: --wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free. */
#ifndef TESTS_SUPPORT_FAILING_MEMORY_H
#define TESTS_SUPPORT_FAILING_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static uint64_t left = UINT64_MAX; /* allocations until one fails */
static int64_t live;               /* blocks that were not given back */

static bool fails(void)
{
    if (left == UINT64_MAX) return false;
    if (left) left--;
    return !left;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
static void *counted(void *p)
{
    live += p != NULL;
    return p;
}
void *__wrap_malloc(size_t n) { return fails() ? NULL : counted(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : counted(__real_calloc(n, size)); }
void *__wrap_realloc(void *p, size_t n)
{
    if (fails()) return NULL;
    void *const grown = __real_realloc(p, n);
    live += grown && !p;
    return grown;
}
void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

#endif
