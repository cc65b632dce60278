/* parallel.h: the same function on several threads, for work that is not a step of a model. */
#ifndef WORKER_PARALLEL_H
#define WORKER_PARALLEL_H

#include <stdint.h>

enum { PARALLEL_MAX = 1024 };

/* Calls work(user, index, n) for index 0..n-1, index 0 on the calling thread, and returns when all are done. Where a
 * thread cannot be made, its share runs on the calling thread. */
void parallel(uint32_t n, void (*work)(void *user, uint32_t index, uint32_t n), void *user);
/* Threads of a command that is given no --threads: machine_processors(), at most PARALLEL_MAX. */
uint32_t parallel_processors(void);

#endif
