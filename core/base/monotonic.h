/* base/monotonic.h: when waits for conditions and threads end. */
#ifndef CORE_BASE_MONOTONIC_H
#define CORE_BASE_MONOTONIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* For pthread_cond_timedwait with times of CLOCK_MONOTONIC. False: no memory. */
static inline bool cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t a;
    if (pthread_condattr_init(&a) != 0) return false;
    const bool good = pthread_condattr_setclock(&a, CLOCK_MONOTONIC) == 0 && pthread_cond_init(cond, &a) == 0;
    (void)pthread_condattr_destroy(&a);
    return good;
}

/* The time by `clock` in so many milliseconds: when a wait ends. */
static inline struct timespec clock_in(clockid_t clock, uint32_t ms)
{
    struct timespec at;
    (void)clock_gettime(clock, &at);
    at.tv_nsec += ms % 1000 * 1000000L;
    at.tv_sec += ms / 1000 + at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    return at;
}

#endif
