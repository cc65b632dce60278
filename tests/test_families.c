/* test_families.c LIST: every tiny model of the goldens that generates, of every architecture, by the engine: among
 * others, in chunks, from pages that the prefix cache kept, after a preemption, in slices: the ids of each job are
 * those that it has alone. LIST: see golden.h. */
#include "test_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "tape/tape.h"

enum { JOBS = 20 };

static const struct golden_case *cases;
static uint32_t n_cases;
static struct test_answer answers[JOBS];

/* All jobs, twice, those of low priority first; counts are added to *s. kv: hundredths of the cache that `slots`
 * sequences need. */
static void run(const char *path, uint32_t slots, uint32_t kv, struct engine_options o, struct engine_stats *s)
{
    struct device_options dev = { .context = TEST_CONTEXT, .max_sequences = slots, .max_rows = 48 };
    struct test_model t = test_file(test_device(4, UINT64_MAX), path, dev);
    struct engine_stats now;
    dev.kv_bytes = t.m->plan.bytes[MEMORY_KV] * kv / 100;
    test_unload(&t);
    t = test_file(test_device(4, UINT64_MAX), path, dev);
    o.max_sequences = slots / 2;
    struct engine *e = test_engine(t.m, o);
    for (uint32_t round = 0; round < 2; round++) {
        struct job *jobs[JOBS];
        char name[128];
        for (uint32_t i = 0; i < JOBS; i++) {
            const struct test_job job = test_make(i);
            (void)snprintf(name, sizeof name, "%u", i);
            jobs[i] = test_submit(e, name, &job, (int32_t)(i / 4), 0);
            if (i == 3) test_wait_generated(jobs[i], 1);
        }
        for (uint32_t i = 0; i < JOBS; i++) {
            (void)snprintf(name, sizeof name, "%s: job %u, %u hundredths of the cache", path, i, kv);
            test_check(jobs[i], name, &answers[i], false);
        }
        test_wait_idle(e);
    }
    engine_stats(e, &now);
    s->cached_tokens += now.cached_tokens;
    s->preemptions += now.preemptions;
    s->yields += now.yields;
    engine_close(e);
    test_unload(&t);
}

/* False: it generates nothing. */
static bool alone(const char *path)
{
    struct test_model t =
        test_file(device_cpu(), path,
                  (struct device_options){ .context = TEST_CONTEXT, .max_sequences = 1, .max_rows = TEST_CONTEXT });
    const bool generates = !tape_whole_prompt(t.m->program);
    if (generates) test_answers(t.m, answers, JOBS);
    test_unload(&t);
    return generates;
}

static void test_models(void **state)
{
    (void)state;
    struct engine_stats tight = { 0 };
    const char *last = "";
    for (uint32_t i = 0; i < n_cases; i++) {
        char path[512];
        struct engine_stats roomy = { 0 };
        if (strcmp(cases[i].model, last) == 0 || strncmp(cases[i].model, "formats-", 8) == 0) continue;
        last = cases[i].model;
        golden_path(path, sizeof path, last);
        if (!alone(path)) continue;
        run(path, 12, 500, (struct engine_options){ .prefix_cache = true }, &roomy);
        if (!roomy.cached_tokens) fail_msg("%s: no prompt was found in the cache", last);
        run(path, 8, 30,
            (struct engine_options){ .prefix_cache = true, .preempt = true, .high_priority = 2, .timeslice_tokens = 3 },
            &tight);
    }
    assert_true(tight.preemptions > 0 && tight.yields > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_models) };
    struct golden_case *list = argc == 2 ? golden_cases(argv[1], &n_cases) : NULL;
    if (!list || test_open_plugins()) return 1;
    cases = list;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    free(list);
    return failed;
}
