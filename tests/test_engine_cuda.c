/* test_engine_cuda.c: the engine on a GPU: alone, among others, from kept pages, after a preemption, in slices: the
 * same ids. */
#include "engine/test_jobs.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/module.h"
#include "test_data.h"

enum { N = 48 };

static struct test_answer answers[N], long_answer;

/* Of lowest priority, and long: what comes later finds every place taken. */
static struct test_job long_job(void)
{
    struct test_job t = test_make(3);
    t.most = 300;
    return t;
}

static struct test_model open_path(const char *path, uint32_t sequences, uint32_t rows, uint64_t kv_bytes)
{
    return test_file(&cuda_device_ops, path,
                     (struct device_options){ .context = TEST_CONTEXT,
                                              .max_sequences = sequences,
                                              .max_rows = rows,
                                              .max_wanted = rows,
                                              .kv_bytes = kv_bytes });
}

static void run_all(const char *path, uint32_t sequences, uint32_t rows, uint64_t kv_bytes, struct engine_options o,
                    struct engine_stats *s)
{
    struct test_model t = open_path(path, 2 * sequences, rows, kv_bytes);
    struct job *jobs[N], *first[N];
    const struct test_job occupant = long_job();
    char name[32];
    o.max_sequences = sequences;
    o.max_queue = 2 * N;
    struct engine *e = test_engine(t.m, o);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < sequences; i++)
            (void)snprintf(name, sizeof name, "long %u", i), first[i] = test_submit(e, name, &occupant, -1, 0);
        for (uint32_t i = 0; i < sequences; i++) test_wait_generated(first[i], 1);
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t which = (i * 5 + round) % N;
            const struct test_job job = test_make(which);
            (void)snprintf(name, sizeof name, "%u", which);
            jobs[which] = test_submit(e, name, &job, (int32_t)(i / 12), 0);
        }
        for (uint32_t i = 0; i < N; i++) {
            (void)snprintf(name, sizeof name, "job %u of %u at once", i, sequences);
            test_check(jobs[i], name, &answers[i], false);
        }
        for (uint32_t i = 0; i < sequences; i++) test_check(first[i], "a long one", &long_answer, false);
        test_wait_idle(e);
    }
    engine_stats(e, s);
    engine_close(e);
    test_unload(&t);
}

static void test_model_file(const char *path)
{
    struct test_model single = open_path(path, 1, 128, 0);
    struct engine_stats s;
    const struct test_job occupant = long_job();
    test_answers(single.m, answers, N);
    long_answer.n = test_alone(single.m, &occupant, long_answer.ids, &long_answer.end);
    assert_int_equal(long_answer.n, 300);
    const uint64_t each = single.m->plan.bytes[MEMORY_KV];
    test_unload(&single);
    run_all(path, 1, 512, 0, (struct engine_options){ 0 }, &s);
    run_all(path, 48, 96, 0, (struct engine_options){ .prefix_cache = true }, &s);
    assert_true(s.prefix_full_hits >= 20);
    run_all(path, 8, 512, 3 * each,
            (struct engine_options){ .prefix_cache = true, .preempt = true, .high_priority = 2, .timeslice_tokens = 5 },
            &s);
    assert_true(s.preemptions > 0 && s.yields > 0 && s.resumes > 0);
    run_all(path, 9, 64, 2 * each, (struct engine_options){ .preempt = true, .high_priority = 1 }, &s);
    assert_true(s.preemptions > 0);
}

static void test_haiku(void **state)
{
    (void)state;
    test_model_file(HAIKU_MODEL);
}

static void test_haiku_moe(void **state)
{
    (void)state;
    if (!HAIKU_MOE_MODEL[0]) skip();
    test_model_file(HAIKU_MOE_MODEL);
}

static void data_stories(void **state)
{
    (void)state;
    char path[DATA_PATH_MAX];
    test_model_file(data_path(path, "stories260K/stories260K-ffn256-Q8_0.gguf"));
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1) {
        (void)fprintf(stderr, "no GPU here: skipped\n");
        return 77;
    }
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_haiku), cmocka_unit_test(test_haiku_moe),
                                        cmocka_unit_test(data_stories) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
