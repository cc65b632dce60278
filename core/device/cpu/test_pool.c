/* test_pool.c: every thread runs, barriers order what is written before and read after, also with far more threads than
 * processors and where others want them. */
#include "device/cpu/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/machine.h"

enum { STAGES = 200 };

struct work {
    struct pool *pool;
    uint32_t threads, *cell, wrong;
    _Atomic uint32_t errors;
};

/* Each stage every thread writes its cell, and after the barrier reads its neighbour's. */
static void stages(void *arg, uint32_t thread)
{
    struct work *w = arg;
    for (uint32_t s = 1; s <= STAGES; s++) {
        w->cell[thread] = s;
        pool_barrier(w->pool);
        if (w->cell[(thread + 1) % pool_active(w->pool)] != s) w->errors++;
        pool_barrier(w->pool);
    }
}

static void test_barriers(void **state)
{
    (void)state;
    static const uint32_t counts[] = { 1, 2, 3, 5, 16 };
    for (uint32_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct work w = { .threads = counts[c], .cell = calloc(counts[c], sizeof(uint32_t)) };
        assert_non_null(w.cell);
        assert_int_equal(pool_open(counts[c], &w.pool, NULL), WK_OK);
        for (uint32_t run = 0; run < 20; run++) pool_run(w.pool, stages, &w);
        assert_int_equal(w.errors, 0);
        pool_close(w.pool);
        free(w.cell);
    }
}

static void count(void *arg, uint32_t thread)
{
    struct work *w = arg;
    w->cell[thread]++;
}

/* Threads that fell asleep between runs wake again. */
static void test_sleep(void **state)
{
    (void)state;
    struct work w = { .threads = 3, .cell = calloc(3, sizeof(uint32_t)) };
    const struct timespec pause = { 0, 30000000 };
    assert_int_equal(pool_open(3, &w.pool, NULL), WK_OK);
    for (uint32_t run = 0; run < 5; run++) {
        pool_run(w.pool, count, &w);
        nanosleep(&pause, NULL);
    }
    for (uint32_t t = 0; t < 3; t++) assert_int_equal(w.cell[t], 5);
    pool_close(w.pool);
    free(w.cell);
}

/* Others want every processor, then no longer: the pool runs with fewer threads and with more again, and every step is
 * whole. */
static _Atomic bool wanted;
static void *want(void *arg)
{
    (void)arg;
    while (wanted) {}
    return NULL;
}
static void test_busy(void **state)
{
    (void)state;
    enum { OTHERS = 8, RUNS = 60 };
    pthread_t others[OTHERS];
    const uint32_t threads = machine_processors() < 8 ? machine_processors() : 8;
    struct work w = { .threads = threads, .cell = calloc(threads, sizeof(uint32_t)) };
    assert_non_null(w.cell);
    assert_int_equal(pool_open(threads, &w.pool, NULL), WK_OK);
    for (uint32_t after = 0; after < 2; after++) {
        wanted = !after;
        for (uint32_t i = 0; i < OTHERS && wanted; i++)
            assert_int_equal(pthread_create(&others[i], NULL, want, NULL), 0);
        for (uint32_t run = 0; run < RUNS; run++) {
            pool_run(w.pool, stages, &w);
            assert_true(pool_active(w.pool) >= 1 && pool_active(w.pool) <= threads);
        }
        wanted = false;
        for (uint32_t i = 0; i < OTHERS && !after; i++) assert_int_equal(pthread_join(others[i], NULL), 0);
    }
    assert_int_equal(w.errors, 0);
    pool_close(w.pool);
    free(w.cell);
}

static void test_refusal(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_open(0, &p, NULL), WK_INVALID);
    assert_int_equal(pool_open(POOL_MAX_THREADS + 1, &p, NULL), WK_INVALID);
    assert_null(p);
    pool_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_barriers), cmocka_unit_test(test_sleep),
                                        cmocka_unit_test(test_busy), cmocka_unit_test(test_refusal) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
