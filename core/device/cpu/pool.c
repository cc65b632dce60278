/* pool.c: threads that run a step together, and how many of them do.
 *
 * A stage ends when its last thread has had a processor. Where others want the processors too, a bound thread waits for
 * its turn on its own while its siblings spin theirs away: two threads beside four busy processes got a tenth of what
 * one alone does. So the pool looks now and then how long its threads stood ready without a processor. When they did
 * for most of the time, half as many go on, wherever there is room for them; one alone waits for nobody. When there is
 * room again, twice as many try. */
#include "device/cpu/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Spins before sleeping: long enough for the uneven end of a stage and for sampling between two steps, short enough
 * that an idle worker stops within a few milliseconds. A pause takes 40 to 140 cycles. */
enum { SPINS_STAGE = 4000, SPINS_STEP = 20000, SPINS_CROWDED = 64 };

/* Milliseconds of steps: between two looks; until a smaller pool tries to grow, doubled each time that this was too
 * early. */
enum { WINDOW = 30, PATIENCE = 500, MOST_PATIENCE = 16000, LOOKED_AT = 8 /* most threads at a look */ };
static const int64_t MS = 1000000;

/* A word that threads wait on for a change. Sleepers announce themselves first, so that a waker without sleepers makes
 * no system call. */
struct gate {
    _Alignas(64) _Atomic uint32_t turn;
    _Atomic uint32_t sleepers;
};

struct pool {
    uint32_t threads, started;
    bool crowded, bound;     /* more threads than processors; just as many, so that each has its own */
    _Atomic uint32_t active; /* threads of this step and the next: those below */
    _Alignas(64) _Atomic uint32_t arrived;
    struct gate stage, step,
        size; /* the turn of a step: ACTIVE bits: its threads, above: its number; size: whenever `active` has grown */
    void (*fn)(void *arg, uint32_t thread);
    void *arg;
    _Atomic bool stop;
    pthread_t *thread; /* [threads]; [0] unused */
    _Atomic pid_t *id; /* [threads] of the kernel; [0]: the last caller */
    int *processor;    /* [threads] */
    cpu_set_t allowed;
    struct {
        int64_t ran,
            delay; /* nanoseconds: in steps since the last look; of its threads without a processor, until then */
        int64_t unchanged,
            patience; /* nanoseconds in steps: since the number of threads was changed; until it may grow */
        bool grown;   /* and not looked at since */
    } look;
};
enum { ACTIVE = 11 };
_Static_assert(POOL_MAX_THREADS < 1 << ACTIVE, "a number of threads fits");

struct start {
    struct pool *pool;
    uint32_t index;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

uint32_t pool_active(const struct pool *p) { return atomic_load_explicit(&p->active, memory_order_relaxed); }

static void gate_open(struct gate *g, uint32_t turn)
{
    atomic_store(&g->turn, turn);
    if (atomic_load(&g->sleepers)) syscall(SYS_futex, &g->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void gate_wait(struct gate *g, uint32_t turn, uint32_t spins)
{
    for (uint32_t i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->turn, memory_order_acquire) != turn) return;
        relax();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->turn) == turn) syscall(SYS_futex, &g->turn, FUTEX_WAIT_PRIVATE, turn, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

static uint32_t spins(const struct pool *p, uint32_t otherwise) { return p->crowded ? SPINS_CROWDED : otherwise; }

void pool_barrier(struct pool *p)
{
    const uint32_t active = pool_active(p);
    if (active == 1) return;
    uint32_t turn = atomic_load_explicit(&p->stage.turn, memory_order_relaxed);
    if (atomic_fetch_add(&p->arrived, 1) + 1 == active) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        gate_open(&p->stage, turn + 1);
        return;
    }
    gate_wait(&p->stage, turn, spins(p, SPINS_STAGE));
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
    bool bound = false;
    p->id[s.index] = gettid();
    for (uint32_t turn = 0;;) {
        const uint32_t size = atomic_load(&p->size.turn);
        /* Read after `size`: a pool that is closed or grows in between does not leave this thread asleep. */
        if (p->stop) return NULL;
        if (s.index >= atomic_load(&p->active)) {
            gate_wait(&p->size, size, 0);
            continue;
        }
        gate_wait(&p->step, turn, spins(p, SPINS_STEP));
        if (p->stop) return NULL;
        turn = atomic_load(&p->step.turn);
        const uint32_t active = turn & ((1u << ACTIVE) - 1);
        if (s.index >= active)
            continue; /* of a step without this thread nothing else is looked at: the next may have begun */
        const bool bind = active == p->threads && p->bound;
        if (bind && !bound) pin(p->processor[s.index]);
        if (bound && !bind) (void)sched_setaffinity(0, sizeof p->allowed, &p->allowed);
        bound = bind;
        p->fn(p->arg, s.index);
        pool_barrier(p);
    }
}

/* The beginning of a small file of the kernel's as a text, empty where there is none. */
static void read_text(const char *path, char *text, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, bytes - 1);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0) (void)close(fd);
}

/* Deals the allowed processors to threads. Where there are more of them than threads, whoever deals out time knows
 * better which are free. */
static void choose_processors(struct pool *p)
{
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof p->allowed, &p->allowed) == 0)
        for (int c = 0; c < CPU_SETSIZE; c++)
            if (CPU_ISSET((unsigned)c, &p->allowed) && n++ < p->threads) p->processor[n - 1] = c;
    p->crowded = n < p->threads;
    p->bound = n == p->threads;
}

/* ---- who has the processors ---------------------------------------------------------------------------- */

static int64_t now(void)
{
    struct timespec t = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* How long a thread of this process stood ready without a processor since it began, in nanoseconds; 0 where the kernel
 * does not say. */
static int64_t delay_of(pid_t id)
{
    char path[64], text[128];
    long long computed, delay;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)id);
    read_text(path, text, sizeof text);
    return sscanf(text, "%lld %lld", &computed, &delay) == 2 ? delay : 0;
}

/* Of the caller and some more of those that run. */
static int64_t delays(const struct pool *p)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < pool_active(p) && i < LOOKED_AT; i++) sum += delay_of(p->id[i]);
    return sum;
}

/* How many threads the next steps have. */
static uint32_t choose_active(struct pool *p)
{
    const uint32_t active = pool_active(p);
    const int64_t delay = delays(p) - p->look.delay, ran = p->look.ran;
    const bool grown = p->look.grown;
    p->look.grown = false;
    p->look.unchanged += ran;
    if (active > 1 && delay > ran / 4 * 3) {
        p->look.unchanged = 0;
        p->look.patience = !grown                                  ? PATIENCE * MS
                           : p->look.patience < MOST_PATIENCE * MS ? 2 * p->look.patience
                                                                   : p->look.patience;
        return active / 2;
    }
    if (active == p->threads || delay > ran / 4 || p->look.unchanged < p->look.patience) return active;
    p->look.unchanged = 0;
    p->look.grown = true;
    return 2 * active < p->threads ? 2 * active : p->threads;
}

/* After a step that took `ran`. */
static void look_around(struct pool *p, int64_t ran)
{
    const pid_t caller = gettid();
    p->look.ran += ran;
    if (p->id[0] == caller && p->look.ran < WINDOW * MS) return;
    if (p->id[0] == caller) {
        const uint32_t before = pool_active(p), active = choose_active(p);
        atomic_store(&p->active, active);
        if (active > before) gate_open(&p->size, p->size.turn + 1);
    }
    p->id[0] = caller;
    p->look.ran = 0;
    p->look.delay = delays(p);
}

static wk_status start_thread(struct pool *p, uint32_t index, const struct wk_err *err)
{
    struct start *s = malloc(sizeof *s);
    if (!s) return wk_fail(err, WK_NO_MEMORY, "out of memory starting thread %u", index);
    *s = (struct start){ p, index };
    int e = pthread_create(&p->thread[index], NULL, thread_main, s);
    if (!e) return WK_OK;
    free(s);
    return wk_fail(err, WK_NO_MEMORY, "cannot start thread %u of %u: %s; give fewer threads", index + 1, p->threads,
                   strerror(e));
}

wk_status pool_open(uint32_t threads, struct pool **out, const struct wk_err *err)
{
    *out = NULL;
    if (threads < 1 || threads > POOL_MAX_THREADS)
        return wk_fail(err, WK_INVALID, "%u threads: expected 1 to %d", threads, POOL_MAX_THREADS);
    struct pool *p = aligned_alloc(64, sizeof *p);
    if (!p) return wk_fail(err, WK_NO_MEMORY, "out of memory for a pool of %u threads", threads);
    memset(p, 0, sizeof *p);
    p->threads = threads;
    p->active = threads;
    p->look.patience = PATIENCE * MS;
    p->started = 1;
    p->thread = calloc(threads, sizeof *p->thread);
    p->processor = calloc(threads, sizeof *p->processor);
    p->id = calloc(threads, sizeof *p->id);
    wk_status s = p->thread && p->processor && p->id
                      ? WK_OK
                      : wk_fail(err, WK_NO_MEMORY, "out of memory for a pool of %u threads", threads);
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
    gate_open(&p->size, p->size.turn + 1);
    gate_open(&p->step, p->step.turn + (1u << ACTIVE));
    for (uint32_t i = 1; i < p->started; i++) pthread_join(p->thread[i], NULL);
    free(p->thread);
    free(p->processor);
    free(p->id);
    free(p);
}

void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t thread), void *arg)
{
    cpu_set_t before;
    const uint32_t active = pool_active(p);
    const bool watched = !p->crowded && p->threads > 1,
               bound = watched && p->bound && active == p->threads && sched_getaffinity(0, sizeof before, &before) == 0;
    const int64_t since = watched ? now() : 0;
    if (bound) pin(p->processor[0]);
    p->fn = fn;
    p->arg = arg;
    if (active > 1) gate_open(&p->step, ((p->step.turn >> ACTIVE) + 1) << ACTIVE | active);
    fn(arg, 0);
    pool_barrier(p);
    /* Restored at once: threads that the caller starts later would inherit the single processor. */
    if (bound) (void)sched_setaffinity(0, sizeof before, &before);
    if (watched) look_around(p, now() - since);
}
