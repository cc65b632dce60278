/* test_mix.c: everything at once: random jobs, priorities, slices, preemption, too few pages, cached prompts, cancels,
 * deadlines, many threads. What a job gives is what it gives alone, or the beginning of it; afterwards every page is
 * back. */
#include "test_jobs.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { KINDS = 60 };
static struct test_answer answers[KINDS];

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static struct test_model open_model(uint32_t ahead, uint32_t sequences, uint64_t kv_pages)
{
    struct device_options dev = { .max_sequences = sequences, .max_rows = 128, .max_logits_rows = 128 };
    struct test_model t = test_llama(test_device(ahead, UINT64_MAX), dev, 2);
    if (!kv_pages) return t;
    dev.kv_bytes = t.m->plan.bytes[MEMORY_KV] / t.m->plan.kv_pages[0] * kv_pages;
    test_unload(&t);
    return test_llama(test_device(ahead, UINT64_MAX), dev, 2);
}

struct setup {
    uint32_t ahead, sequences, slots;
    uint64_t pages;
    struct engine_options o;
};

static const struct setup setups[] = {
    { 1, 8, 16, 0, { .max_batch_tokens = 128, .prefix_cache = true } },
    { 4,
      16,
      32,
      40,
      { .max_batch_tokens = 48, .prefix_cache = true, .preempt = true, .high_priority = 3, .timeslice_tokens = 4 } },
    { 2, 4, 9, 11, { .max_batch_tokens = 100, .preempt = true, .high_priority = 2 } },
    { 4, 32, 32, 60, { .max_batch_tokens = 33, .prefix_cache = true, .timeslice_tokens = 1 } },
    { 4, 32, 32, 60, { .max_batch_tokens = 33, .prefix_cache = true, .eviction = EVICT_CLOCK, .timeslice_tokens = 1 } },
    { 3,
      5,
      64,
      20,
      { .max_batch_tokens = 128, .prefix_cache = true, .preempt = true, .high_priority = 1, .timeslice_tokens = 2 } },
};

struct held {
    struct job *job;
    uint32_t kind;
    bool cut;
};

/* From one thread: jobs in a random order, some of which are ended at random. */
static void mix(const struct setup *s, uint64_t seed)
{
    enum { JOBS = 64 };
    struct test_model t = open_model(s->ahead, s->slots, s->pages);
    struct engine_options o = s->o;
    o.max_sequences = s->sequences;
    o.max_queue = 200;
    struct engine *e = test_engine(t.m, o);
    struct held jobs[JOBS];
    char name[32];
    for (uint32_t i = 0; i < JOBS; i++) {
        const uint32_t dice = next_random(&seed) % 8;
        jobs[i] = (struct held){ .kind = next_random(&seed) % KINDS, .cut = dice < 2 };
        const struct test_job job = test_make(jobs[i].kind);
        (void)snprintf(name, sizeof name, "%u", i);
        jobs[i].job = test_submit(e, name, &job, (int32_t)(next_random(&seed) % 6),
                                  dice == 1 ? test_now() + next_random(&seed) % 20000000 : 0);
        if (dice == 2) (void)nanosleep(&(struct timespec){ .tv_nsec = next_random(&seed) % 300000 }, NULL);
        if (i && dice == 0) {
            const uint32_t victim = next_random(&seed) % i;
            jobs[victim].cut = true;
            if (i % 2)
                job_stop(jobs[victim].job);
            else
                job_cancel(jobs[victim].job);
        }
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        (void)snprintf(name, sizeof name, "job %u of kind %u", i, jobs[i].kind);
        test_check(jobs[i].job, name, &answers[jobs[i].kind], jobs[i].cut);
    }
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
}

static void test_mixes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof setups / sizeof *setups; i++)
        for (uint64_t seed = 1; seed <= 6; seed++) mix(&setups[i], seed * 977 + i);
}

/* ---- many threads -------------------------------------------------------------------------------------- */

struct crowd {
    struct engine *e;
    uint32_t number;
    _Atomic bool *over;
};

static void *live(void *arg)
{
    enum { EACH = 13 }; /* by 16 threads: 208 jobs */
    struct crowd *c = arg;
    uint64_t seed = c->number * 7919 + 5;
    struct held jobs[EACH];
    char name[32];
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t dice = next_random(&seed) % 6;
        jobs[i] = (struct held){ .kind = next_random(&seed) % KINDS, .cut = dice < 3 };
        const struct test_job job = test_make(jobs[i].kind);
        (void)snprintf(name, sizeof name, "%u-%u", c->number, i);
        jobs[i].job = test_submit(c->e, name, &job, (int32_t)(next_random(&seed) % 6),
                                  dice == 1 ? test_now() + next_random(&seed) % 30000000 : 0);
        if (dice == 0) (void)engine_cancel(c->e, NULL, name);
        if (dice == 2) job_stop(jobs[i].job);
        if (dice == 3 && i % 2) { /* the client is gone */
            job_release(jobs[i].job);
            jobs[i].job = NULL;
        }
        /* Some read as they go, some at the end. */
        if (dice == 4 && jobs[i].job) {
            test_check(jobs[i].job, name, &answers[jobs[i].kind], false);
            jobs[i].job = NULL;
        }
    }
    for (uint32_t i = 0; i < EACH; i++)
        if (jobs[i].job) test_check(jobs[i].job, "crowd", &answers[jobs[i].kind], jobs[i].cut);
    return NULL;
}

static void nothing(void *user) { (void)user; }

/* Looks at everything, all the time. */
static void *watch(void *arg)
{
    struct crowd *c = arg;
    struct engine_stats s;
    struct job_view views[64];
    uint64_t before = 0;
    for (uint32_t i = 0; !atomic_load(c->over); i++) {
        engine_stats(c->e, &s);
        uint64_t ended = 0;
        for (uint32_t k = 0; k < JOB_END_COUNT; k++) ended += s.ended[k];
        assert_true(ended >= before && ended <= s.submitted && s.pages_used + s.pages_cached <= s.pages);
        before = ended;
        const uint32_t n = engine_jobs(c->e, views, 64);
        for (uint32_t k = 0; k < n && k < 64; k++) assert_true(views[k].id[0] && views[k].n_done <= views[k].n_prompt);
        if (i % 16 == 0) assert_true(engine_call(c->e, nothing, NULL));
        engine_tune(c->e, i % 3, (int32_t)(i % 5), i % 4);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enum { THREADS = 16 };
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        struct test_model t = open_model(ahead, 32, 70);
        struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 16,
                                                                     .max_queue = 300,
                                                                     .prefix_cache = true,
                                                                     .preempt = true,
                                                                     .high_priority = 4,
                                                                     .timeslice_tokens = 5 });
        struct crowd crowd[THREADS + 1];
        pthread_t threads[THREADS + 1];
        _Atomic bool over = false;
        struct engine_stats s;
        for (uint32_t i = 0; i <= THREADS; i++) {
            crowd[i] = (struct crowd){ e, i, &over };
            assert_int_equal(pthread_create(&threads[i], NULL, i < THREADS ? live : watch, &crowd[i]), 0);
        }
        for (uint32_t i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
        atomic_store(&over, true);
        (void)pthread_join(threads[THREADS], NULL);
        test_wait_idle(e);
        engine_stats(e, &s);
        uint64_t ended = 0;
        for (uint32_t k = 0; k < JOB_END_COUNT; k++) ended += s.ended[k];
        assert_int_equal(ended, THREADS * 13);
        assert_int_equal(s.submitted, THREADS * 13);
        engine_close(e);
        test_unload(&t);
    }
}

int main(void)
{
    if (test_open_plugins()) return 1;
    test_llama_answers(answers, KINDS);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mixes), cmocka_unit_test(test_threads) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
