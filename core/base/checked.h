/* base/checked.h: arithmetic on numbers from outside. Every function returns false on overflow and then leaves *out
 * alone. */
#ifndef CORE_BASE_CHECKED_H
#define CORE_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

static inline bool checked_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}

/* a rounded up to a multiple of `to` (a power of two). */
static inline bool checked_round_up_u64(uint64_t a, uint64_t to, uint64_t *out)
{
    uint64_t sum;
    if (!checked_add_u64(a, to - 1, &sum)) return false;
    *out = sum & ~(to - 1);
    return true;
}

#endif
