/* draw.h: numbers that are the same in every run. Each program has its own `seed`, which a test may set. */
#ifndef TESTS_SUPPORT_DRAW_H
#define TESTS_SUPPORT_DRAW_H

#include <stdint.h>

static uint32_t seed = 1;

/* Below n: xorshift32 (Marsaglia 2003). */
static inline uint32_t draw(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed % n;
}

#endif
