/* bench/roof.h: what the machine can do at most, to hold measured products against. */
#ifndef BENCH_ROOF_H
#define BENCH_ROOF_H

#include <stdint.h>

/* Reads `bytes` (a multiple of 256) at p, 64 bytes a load where the machine has them; the result only keeps the loads
 * alive. */
uint64_t roof_read(const void *p, uint64_t bytes);
uint64_t roof_read_avx512(const void *p, uint64_t bytes);

/* `rounds` times 12 independent vpdpbusd of 64 bytes: 12 * 128 integer operations a round. */
int32_t roof_vnni_avx512(uint64_t rounds);

#endif
