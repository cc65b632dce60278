/* pool.h: a fixed set of threads that run one function together, and a barrier between its stages.
 *
 * The caller of pool_run is thread 0; the others sleep when there is nothing to do. Waiting spins for a bounded time
 * and then sleeps in the kernel, so an idle process takes no processor, and a pool of more threads than processors
 * still makes progress. Where others keep its threads from their processors, fewer of them run a step, down to one,
 * until there is room again: what a step computes must not depend on how many they are. */
#ifndef CORE_DEVICE_CPU_POOL_H
#define CORE_DEVICE_CPU_POOL_H

#include <stdint.h>

#include <worker/abi.h>

struct pool;

enum { POOL_MAX_THREADS = 1024 };

/* threads: 1 .. POOL_MAX_THREADS. Where there are just as many processors, each thread is bound to one. */
wk_status pool_open(uint32_t threads, struct pool **out, const struct wk_err *err);
void pool_close(struct pool *p); /* NULL allowed; not while running */

/* Threads of the running step or, between steps, of the next: 1 .. those that were opened. */
uint32_t pool_active(const struct pool *p);

/* Runs fn(arg, thread) on every active thread, thread = 0 .. active - 1, and returns when all are done. One caller at a
 * time; while threads are bound and all active, the caller is kept on its processor. */
void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t thread), void *arg);

/* Every thread of a running pool must come here before any goes on; what was written before is seen after. */
void pool_barrier(struct pool *p);

#endif
