#include "device/cpu/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Spins before giving way: long enough for the uneven end of a stage and for sampling between two steps, short enough that an idle
 * worker stops within a few milliseconds. A pause takes 40 to 140 cycles. */
enum { SPINS_STAGE = 4000, SPINS_STEP = 20000, SPINS_CROWDED = 64, YIELDS = 16 };

/* A word that threads wait on for a change. Sleepers announce themselves first, so that a waker without sleepers makes no system call. */
struct gate {
    _Alignas(64) _Atomic uint32_t turn;
    _Atomic uint32_t sleepers;
};

struct pool {
    uint32_t threads, started;
    bool crowded; /* more threads than processors */
    _Alignas(64) _Atomic uint32_t arrived;
    struct gate stage, step;
    void (*fn)(void *arg, uint32_t thread);
    void *arg;
    bool stop;
    pthread_t *thread; /* [threads]; [0] unused */
    int *processor;    /* [threads] */
};

struct start { struct pool *pool; uint32_t index; };

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->turn, 1);
    if (atomic_load(&g->sleepers)) syscall(SYS_futex, &g->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void gate_wait(struct gate *g, uint32_t turn, uint32_t spins)
{
    for (uint32_t i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->turn, memory_order_acquire) != turn) return;
        relax();
    }
    for (uint32_t i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&g->turn, memory_order_acquire) != turn) return;
        sched_yield();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->turn) == turn) syscall(SYS_futex, &g->turn, FUTEX_WAIT_PRIVATE, turn, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

void pool_barrier(struct pool *p)
{
    if (p->threads == 1) return;
    uint32_t turn = atomic_load_explicit(&p->stage.turn, memory_order_relaxed);
    if (atomic_fetch_add(&p->arrived, 1) + 1 == p->threads) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        gate_open(&p->stage);
        return;
    }
    gate_wait(&p->stage, turn, p->crowded ? SPINS_CROWDED : SPINS_STAGE);
}

static void pin(int processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)processor, &one);
    /* A refusal (a changed cpuset) costs speed, not correctness. */
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void *thread_main(void *arg)
{
    struct start s = *(struct start *)arg;
    free(arg);
    struct pool *p = s.pool;
    if (!p->crowded) pin(p->processor[s.index]);
    for (uint32_t turn = 0;; turn++) {
        gate_wait(&p->step, turn, p->crowded ? SPINS_CROWDED : SPINS_STEP);
        if (p->stop) return NULL;
        p->fn(p->arg, s.index);
        pool_barrier(p);
    }
}

uint32_t pool_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* Deals the allowed processors to threads. Fewer than threads: nobody is bound. */
static void choose_processors(struct pool *p)
{
    cpu_set_t set;
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int c = 0; c < CPU_SETSIZE && n < p->threads; c++)
            if (CPU_ISSET((unsigned)c, &set)) p->processor[n++] = c;
    p->crowded = n < p->threads;
}

static wk_status start_thread(struct pool *p, uint32_t index, const struct wk_err *err)
{
    struct start *s = malloc(sizeof *s);
    if (!s) return wk_fail(err, WK_NO_MEMORY, "out of memory starting thread %u", index);
    *s = (struct start){ p, index };
    int e = pthread_create(&p->thread[index], NULL, thread_main, s);
    if (!e) return WK_OK;
    free(s);
    return wk_fail(err, WK_NO_MEMORY, "cannot start thread %u of %u: %s; give fewer threads", index + 1, p->threads, strerror(e));
}

wk_status pool_open(uint32_t threads, struct pool **out, const struct wk_err *err)
{
    *out = NULL;
    if (threads < 1 || threads > POOL_MAX_THREADS) return wk_fail(err, WK_INVALID, "%u threads: expected 1 to %d", threads, POOL_MAX_THREADS);
    struct pool *p = aligned_alloc(64, sizeof *p);
    if (!p) return wk_fail(err, WK_NO_MEMORY, "out of memory for a pool of %u threads", threads);
    memset(p, 0, sizeof *p);
    p->threads = threads;
    p->started = 1;
    p->thread = calloc(threads, sizeof *p->thread);
    p->processor = calloc(threads, sizeof *p->processor);
    wk_status s = p->thread && p->processor ? WK_OK : wk_fail(err, WK_NO_MEMORY, "out of memory for a pool of %u threads", threads);
    if (!s) choose_processors(p);
    for (; !s && p->started < threads; p->started += s == WK_OK) s = start_thread(p, p->started, err);
    if (s) {
        pool_close(p);
        return s;
    }
    *out = p;
    return WK_OK;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    p->stop = true;
    gate_open(&p->step);
    for (uint32_t i = 1; i < p->started; i++) pthread_join(p->thread[i], NULL);
    free(p->thread);
    free(p->processor);
    free(p);
}

void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t thread), void *arg)
{
    cpu_set_t before;
    bool bound = !p->crowded && p->threads > 1 && sched_getaffinity(0, sizeof before, &before) == 0;
    if (bound) pin(p->processor[0]);
    p->fn = fn;
    p->arg = arg;
    if (p->threads > 1) gate_open(&p->step);
    fn(arg, 0);
    pool_barrier(p);
    /* Restored at once: threads that the caller starts later would inherit the single processor. */
    if (bound) (void)sched_setaffinity(0, sizeof before, &before);
}
