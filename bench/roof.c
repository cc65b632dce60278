/* bench/roof.c: reading memory in plain C. */
#include <string.h>

#include "roof.h"

uint64_t roof_read(const void *p, uint64_t bytes)
{
    uint64_t sum[8] = { 0 };
    for (uint64_t i = 0; i < bytes; i += 64) {
        uint64_t v[8];
        memcpy(v, (const uint8_t *)p + i, sizeof v);
        for (uint32_t j = 0; j < 8; j++) sum[j] += v[j];
    }
    for (uint32_t j = 1; j < 8; j++) sum[0] += sum[j];
    return sum[0];
}
