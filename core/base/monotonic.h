/* base/monotonic.h: conditions whose waits end by CLOCK_MONOTONIC. */
#ifndef CORE_BASE_MONOTONIC_H
#define CORE_BASE_MONOTONIC_H

#include <pthread.h>
#include <stdbool.h>
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

#endif
