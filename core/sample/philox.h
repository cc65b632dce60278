/* philox.h: Philox4x32-10, a random number generator without state: the block belongs to (key, counter) and to nothing
 * else.
 *
 * J. Salmon, M. Moraes, R. Dror, D. Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC11), section 4.3 and
 * table 2. Integer arithmetic alone, so every device gives the same bits. */
#ifndef CORE_SAMPLE_PHILOX_H
#define CORE_SAMPLE_PHILOX_H

#include <stdint.h>

struct philox_block {
    uint32_t word[4];
};

static inline struct philox_block philox4x32_10(struct philox_block counter, uint32_t key0, uint32_t key1)
{
    uint32_t *c = counter.word;
    for (int round = 0; round < 10; round++) {
        const uint64_t a = UINT64_C(0xd2511f53) * c[0], b = UINT64_C(0xcd9e8d57) * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        key0 += 0x9e3779b9u; /* golden ratio and sqrt(3) - 1: the Weyl sequence of the keys */
        key1 += 0xbb67ae85u;
    }
    return counter;
}

#endif
