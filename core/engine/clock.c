/* clock.c: the engine's time, how its threads begin, and how threads wait for each other: a word of memory, and the
 * kernel's futex where it does not change soon. It knows nothing of jobs and pages, so that every other file may use
 * it. */
#include "engine/internal.h"

#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t engine_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void futex_wait_until(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    const struct timespec t = { .tv_sec = (time_t)(deadline_ns / 1000000000u),
                                .tv_nsec = (long)(deadline_ns % 1000000000u) };
    (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, deadline_ns ? &t : NULL, NULL,
                  FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_one(_Atomic uint32_t *word) { (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }
void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void engine_attention(struct engine *e, uint32_t bits)
{
    atomic_fetch_or(&e->attention, bits);
    if (atomic_load(&e->asleep) && atomic_exchange(&e->asleep, 0)) futex_wake_one(&e->asleep);
}

/* Signals that are not a thread's own fault belong to the main thread. */
wk_status engine_thread(pthread_t *thread, void *(*fn)(void *), void *arg, const struct wk_err *err)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT };
    sigset_t blocked, before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) (void)sigdelset(&blocked, own[i]);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int failed = pthread_create(thread, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? wk_fail(err, WK_NO_MEMORY, "no thread for the engine: %s", strerror(failed)) : WK_OK;
}
