/* test_ids.c: what a job gives does not depend on who else there is, nor on how steps are cut; what is refused;
 * figures. */
#include "test_jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_data.h"

enum { JOBS = 40 };

static struct test_answer answers[JOBS];

static void name_of(uint32_t i, char name[16]) { (void)snprintf(name, 16, "job-%u", i); }

/* The first n jobs at once, the second time with what the first left in the cache. n: no multiple of 7, and at most
 * JOBS. */
static void run_twice(struct engine *e, const struct test_answer *want, uint32_t n)
{
    struct job *jobs[JOBS];
    char name[16];
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t which = (i * 7 + round) % n;
            const struct test_job job = test_make(which);
            name_of(which, name);
            jobs[which] = test_submit(e, name, &job, 0, 0);
        }
        for (uint32_t i = 0; i < n; i++) name_of(i, name), test_check(jobs[i], name, &want[i], false);
        test_wait_idle(e);
    }
}

/* M-1002: a hundred jobs, in batches, with cached prompts, and not a bit of the weights is another. */
static void test_weights_stay(void **state)
{
    (void)state;
    enum { ALL = 100, AT_ONCE = 20 };
    char before[65], after[65], name[16];
    struct test_model t = test_llama(test_device(1, UINT64_MAX), (struct device_options){ .max_sequences = 8 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
    ok(model_digest(t.m, NULL, before, NULL));
    for (uint32_t i = 0; i < ALL; i += AT_ONCE) {
        struct job *jobs[AT_ONCE];
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const struct test_job job = test_make(i + k);
            name_of(k, name);
            jobs[k] = test_submit(e, name, &job, 0, 0);
        }
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            uint32_t ids[TEST_CONTEXT];
            enum job_end end;
            assert_true(test_read(jobs[k], ids, TEST_CONTEXT, &end) > 0);
            job_release(jobs[k]);
        }
    }
    test_wait_idle(e);
    ok(model_digest(t.m, NULL, after, NULL));
    assert_string_equal(before, after);
    engine_close(e);
    test_unload(&t);
}

/* All at once, in every size of batch and of steps, with steps in flight and without, cached prompts or not. */
static void test_among_others(void **state)
{
    (void)state;
    static const struct {
        uint32_t ahead, sequences, rows;
        bool cache;
    } cases[] = { { 1, 1, 64, false },  { 1, 3, 33, false }, { 4, 8, 8, true },
                  { 1, 8, 512, false }, { 2, 40, 64, true }, { 4, 40, 512, true } };
    test_llama_answers(answers, JOBS);
    for (uint32_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct test_model t =
            test_llama(test_device(cases[c].ahead, UINT64_MAX),
                       (struct device_options){ .max_sequences = cases[c].sequences, .max_rows = 512 }, 2);
        struct engine *e = test_engine(
            t.m, (struct engine_options){ .max_batch_tokens = cases[c].rows, .prefix_cache = cases[c].cache });
        run_twice(e, answers, JOBS);
        engine_close(e);
        test_unload(&t);
    }
}

/* A model half of whose layers see 8 positions, alone and among others, with enough pages for all and for a few; cached
 * prompts the second time. */
static void test_windows(void **state)
{
    (void)state;
    enum { N = 10 };
    char path[DATA_PATH_MAX];
    static struct test_answer want[N];
    (void)golden_file(path, "gpt-oss.gguf");
    struct test_model single =
        test_file(device_cpu(), path, (struct device_options){ .max_sequences = 1, .max_rows = 32, .context = 384 });
    test_answers(single.m, want, N);
    const uint64_t all = single.m->plan.bytes[MEMORY_KV];
    assert_int_equal(single.m->program->n_groups, 2);
    assert_int_equal(single.m->program->groups[0].window, 8);
    assert_int_equal(single.m->plan.kv_pages[0], 2 + 1); /* what 8 positions touch, and a step's 32 rows */
    test_unload(&single);
    for (uint32_t c = 0; c < 2; c++) {
        struct test_model t = test_file(
            device_cpu(), path,
            (struct device_options){ .max_sequences = N, .max_rows = 32, .context = 384, .kv_bytes = c ? 2 * all : 0 });
        struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
        struct engine_stats s;
        run_twice(e, want, N);
        engine_stats(e, &s);
        if (!c) assert_true(s.cached_tokens > 0 && s.prefix_full_hits > 0);
        engine_close(e);
        test_unload(&t);
    }
}

/* Real vocabulary and weights. */
static void test_trained(const char *path)
{
    enum { N = 12 };
    static struct test_answer want[N];
    struct test_model single = test_file(
        device_cpu(), path, (struct device_options){ .max_sequences = 1, .max_rows = 256, .context = TEST_CONTEXT });
    test_answers(single.m, want, N);
    test_unload(&single);
    struct test_model t = test_file(
        device_cpu(), path, (struct device_options){ .max_sequences = N, .max_rows = 256, .context = TEST_CONTEXT });
    struct engine *e = test_engine(
        t.m, (struct engine_options){ .max_sequences = N / 2, .prefix_cache = true, .timeslice_tokens = 7 });
    run_twice(e, want, N);
    engine_close(e);
    test_unload(&t);
}

static void test_haiku(void **state)
{
    (void)state;
    test_trained(HAIKU_MODEL);
}

/* Routed experts: who else is in the batch decides which experts are read, and nothing else. */
static void test_haiku_moe(void **state)
{
    (void)state;
    if (!HAIKU_MOE_MODEL[0]) skip();
    test_trained(HAIKU_MOE_MODEL);
}

static enum submit_refusal refusal(struct engine *e, struct engine_job spec)
{
    struct job *j = (struct job *)(void *)&spec;
    test_text[0] = 0;
    const enum submit_refusal r = engine_submit(e, &spec, &j, &test_err);
    assert_null(j);
    assert_true(r != SUBMIT_OK && test_text[0]);
    return r;
}

/* A model whose cache holds five pages, for two sequences. */
static struct test_model five_pages(void)
{
    struct test_model t =
        test_llama(test_device(1, 0), (struct device_options){ .max_sequences = 2, .kv_bytes = 0 }, 2);
    const uint64_t page = t.m->plan.bytes[MEMORY_KV] / t.m->plan.kv_pages[0];
    test_unload(&t);
    t = test_llama(test_device(1, 0), (struct device_options){ .max_sequences = 2, .kv_bytes = 5 * page }, 2);
    assert_int_equal(t.m->plan.kv_pages[0], 5);
    return t;
}

static void test_bad_options(void **state)
{
    (void)state;
    struct test_model t = five_pages();
    struct engine *e;
    struct engine_options bad[] = { { .max_sequences = 3, .max_batch_tokens = 64, .max_queue = 1 },
                                    { .max_sequences = 0, .max_batch_tokens = 64, .max_queue = 1 },
                                    { .max_sequences = 2, .max_batch_tokens = 65, .max_queue = 1 },
                                    { .max_sequences = 2, .max_batch_tokens = 1, .max_queue = 1 },
                                    { .max_sequences = 2, .max_batch_tokens = 64 } };
    static const char *const named[] = { "max_sequences is 3", "max_sequences is 0", "max_batch_tokens is 65",
                                         "max_batch_tokens is 1", "max_queue is 0" };
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(engine_open(t.m, &bad[i], &e, &test_err), WK_INVALID);
        assert_null(e);
        assert_non_null(strstr(test_text, named[i]));
    }
    test_unload(&t);
}

static void refused(struct engine *e, struct engine_job spec, enum submit_refusal as, const char *words)
{
    assert_int_equal(refusal(e, spec), as);
    if (!strstr(test_text, words)) fail_msg("%s", test_text);
}

/* Jobs that are wrong in one field. */
static void test_bad_jobs(void **state)
{
    (void)state;
    struct test_model t = five_pages();
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_queue = 1 });
    struct test_job job = test_make(0);
    char long_id[ENGINE_JOB_ID_MAX + 2];
    memset(long_id, 'x', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = 0;
    const struct engine_job good = {
        .id = "a", .prompt = job.tokens, .n_prompt = job.n, .max_tokens = 5, .params = &job.params
    };
    struct engine_job spec = good;
    const uint32_t wrong[] = { 1, TEST_VOCAB };
    struct sampler_params hot = job.params;
    hot.temperature = 3;
    spec.id = "";
    refused(e, spec, SUBMIT_INVALID, "id has 0 bytes");
    spec.id = NULL;
    refused(e, spec, SUBMIT_INVALID, "id has 0 bytes");
    spec.id = long_id;
    refused(e, spec, SUBMIT_INVALID, "129 bytes");
    spec = good, spec.n_prompt = 0;
    refused(e, spec, SUBMIT_INVALID, "no tokens");
    spec = good, spec.max_tokens = 0;
    refused(e, spec, SUBMIT_INVALID, "max_tokens is 0");
    spec = good, spec.n_ends = SAMPLER_MAX_ENDS + 1;
    refused(e, spec, SUBMIT_INVALID, "65 ids");
    spec = good, spec.params = &hot;
    refused(e, spec, SUBMIT_INVALID, "temperature is 3");
    spec = good, spec.prompt = wrong, spec.n_prompt = 2;
    refused(e, spec, SUBMIT_INVALID, "token 1 of the prompt is 50");
    static uint32_t many[TEST_CONTEXT];
    spec = good, spec.prompt = many, spec.n_prompt = TEST_CONTEXT;
    assert_int_equal(refusal(e, spec), SUBMIT_CONTEXT);
    spec.n_prompt = 5 * KV_PAGE + 1;
    refused(e, spec, SUBMIT_NEVER_FITS, "6 pages");
    engine_close(e);
    test_unload(&t);
}

/* Two run, one waits; then a job that needs more pages than there are, and one behind it. */
static void test_no_room(void **state)
{
    (void)state;
    struct test_model t = five_pages();
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_queue = 1 });
    struct test_job job = test_make(0), five = test_make(0);
    struct engine_job spec = {
        .id = "b", .prompt = job.tokens, .n_prompt = job.n, .max_tokens = 5, .params = &job.params
    };
    struct job *a = test_submit(e, "a", &job, 0, 0), *b = test_submit(e, "b", &job, 0, 0),
               *c = test_submit(e, "c", &job, 0, 0);
    assert_int_equal(refusal(e, spec), SUBMIT_EXISTS);
    spec.id = "d";
    assert_int_equal(refusal(e, spec), SUBMIT_QUEUE_FULL);
    struct job_view views[4];
    assert_int_equal(engine_jobs(e, views, 4), 3);
    assert_string_equal(views[0].id, "a");
    assert_string_equal(views[2].id, "c");
    assert_int_equal(engine_jobs(e, views, 1), 3);
    test_permit(UINT64_MAX);
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    assert_int_equal(test_read(a, ids, TEST_CONTEXT, &end), job.most);
    job_release(a);
    job_release(test_submit(e, "a", &job, 0, 0)); /* the id is free again */
    test_read(b, ids, TEST_CONTEXT, &end);
    test_read(c, ids, TEST_CONTEXT, &end);
    job_release(b);
    job_release(c);
    test_wait_idle(e);
    /* A prompt that fits, and more ids than there are pages for: it goes as far as it can, and the
     * next one is served. */
    five.n = 100, five.most = 200, five.n_ends = 0;
    a = test_submit(e, "five", &five, 0, 0);
    assert_int_equal(test_read(a, ids, TEST_CONTEXT, &end), 5 * KV_PAGE - 100 + 1);
    assert_int_equal(end, JOB_NO_MEMORY);
    struct job_figures f;
    job_figures(a, &f);
    assert_non_null(strstr(f.text, "5 pages"));
    job_release(a);
    test_wait_idle(e);
    a = test_submit(e, "next", &job, 0, 0);
    assert_int_equal(test_read(a, ids, TEST_CONTEXT, &end), job.most);
    job_release(a);
    struct engine_stats s;
    test_wait_idle(e);
    engine_stats(e, &s);
    assert_int_equal(s.refused_full, 1);
    assert_int_equal(s.submitted, 6);
    engine_close(e);
    test_unload(&t);
}

/* Before min_ids ids none of those that end the job comes, however likely; then the first one ends it. */
static void test_min_ids(void **state)
{
    (void)state;
    struct test_model t = test_llama(test_device(4, UINT64_MAX), (struct device_options){ .max_sequences = 2 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ 0 });
    for (uint32_t i = 0; i < 4; i++) {
        struct test_job job = test_make(i);
        uint32_t first[TEST_CONTEXT], ids[TEST_CONTEXT], n;
        enum job_end end;
        job.most = 30, job.n_ends = 0, job.params.min_ids = 0;
        struct job *j = test_submit(e, "free", &job, 0, 0);
        assert_int_equal(test_read(j, first, TEST_CONTEXT, &end), 30);
        job_release(j);
        job.n_ends = 2, job.ends[0] = first[0], job.ends[1] = TEST_VOCAB - 1;
        j = test_submit(e, "ends", &job, 0, 0);
        assert_int_equal(test_read(j, ids, TEST_CONTEXT, &end), 0);
        assert_int_equal(end, JOB_STOP);
        job_release(j);
        job.params.min_ids = 7;
        j = test_submit(e, "held", &job, 0, 0);
        n = test_read(j, ids, TEST_CONTEXT, &end);
        job_release(j);
        assert_in_range(n, 7, 30);
        assert_int_equal(end, n < 30 ? JOB_STOP : JOB_LENGTH);
        for (uint32_t k = 0; k < n; k++) assert_true(ids[k] != first[0] && ids[k] != TEST_VOCAB - 1);
        if (i == 0) { /* greedy: what would have come comes as soon as it may */
            job.params.min_ids = 1;
            j = test_submit(e, "one", &job, 0, 0);
            assert_true(test_read(j, first, TEST_CONTEXT, &end) >= 1);
            assert_int_equal(first[0], ids[0]);
            job_release(j);
        }
    }
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
}

/* Prompt and ids fill the context; 0-based numbers to the end. */
static void test_context_end(void **state)
{
    (void)state;
    struct test_model t = test_llama(test_device(4, UINT64_MAX), (struct device_options){ .max_sequences = 2 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ 0 });
    struct test_job job = test_make(8);
    uint32_t want[TEST_CONTEXT], ids[TEST_CONTEXT];
    enum job_end end;
    job.most = 10000, job.n_ends = 0;
    struct job *j = test_submit(e, "long", &job, 0, 0);
    assert_int_equal(test_read(j, ids, TEST_CONTEXT, &end), TEST_CONTEXT - job.n);
    assert_int_equal(end, JOB_LENGTH);
    job_release(j);
    test_wait_idle(e);
    engine_close(e);
    assert_int_equal(test_alone(t.m, &job, want, &end), TEST_CONTEXT - job.n);
    assert_memory_equal(ids, want, (TEST_CONTEXT - job.n) * sizeof *ids);
    test_unload(&t);
}

static uint64_t counted(const struct engine_histogram *h)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < ENGINE_BUCKETS; i++) n += h->count[i];
    assert_int_equal(n, h->n);
    return n;
}

static void test_figures(void **state)
{
    (void)state;
    struct test_model t = test_llama(test_device(1, UINT64_MAX), (struct device_options){ .max_sequences = 4 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_queue = 100 });
    struct job *jobs[8];
    struct engine_stats s;
    struct job_figures f;
    uint32_t ids[TEST_CONTEXT], prompt = 0, generated = 0, ended[JOB_END_COUNT] = { 0 };
    enum job_end end;
    char name[16];
    for (uint32_t i = 0; i < 8; i++) {
        const struct test_job job = test_make(i + 1);
        name_of(i, name);
        jobs[i] = test_submit(e, name, &job, i == 2 ? 9 : 0, 0);
        prompt += job.n;
    }
    uint32_t high = 0, gaps = 0;
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t n = test_read(jobs[i], ids, TEST_CONTEXT, &end);
        generated += n, ended[end]++, gaps += n ? n - 1 : 0;
        if (i == 2) high = n;
        job_figures(jobs[i], &f);
        assert_true(f.queued_ns <= f.started_ns && f.started_ns < f.first_token_ns &&
                    f.first_token_ns <= f.last_token_ns && f.last_token_ns <= f.ended_ns);
        assert_true(f.n_generated == n && f.n_cached == 0 && !f.preemptions && !f.yields && !f.text[0]);
        job_release(jobs[i]);
    }
    test_wait_idle(e);
    engine_stats(e, &s);
    for (uint32_t i = 0; i < JOB_END_COUNT; i++) assert_int_equal(s.ended[i], ended[i]);
    assert_int_equal(s.prompt_tokens, prompt);
    assert_int_equal(s.generated_tokens, generated);
    assert_int_equal(s.high_tokens, high);
    assert_int_equal(s.low_tokens, generated - high);
    assert_int_equal(counted(&s.queue_seconds), 8);
    assert_int_equal(counted(&s.prefill_seconds), 8);
    assert_int_equal(counted(&s.first_token_seconds), 8);
    assert_int_equal(counted(&s.decode_seconds), 8);
    assert_int_equal(counted(&s.job_seconds), 8);
    assert_int_equal(counted(&s.inter_token_seconds), gaps);
    assert_true(s.steps > 0 && s.step_rows >= prompt && s.pages == t.m->plan.kv_pages[0] && s.usage <= 0);
    assert_true(fabs(engine_bucket(0) - 1e-4) < 1e-12 && fabs(engine_bucket(4) - 2e-3) < 1e-12 &&
                isinf(engine_bucket(ENGINE_BUCKETS - 1)));
    const uint64_t before = s.progress_ns;
    while (engine_stats(e, &s), s.progress_ns == before) continue; /* idle too */
    engine_close(e);
    test_unload(&t);
}

int main(void)
{
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_among_others), cmocka_unit_test(test_weights_stay),
                                        cmocka_unit_test(test_windows),      cmocka_unit_test(test_haiku),
                                        cmocka_unit_test(test_haiku_moe),    cmocka_unit_test(test_bad_options),
                                        cmocka_unit_test(test_bad_jobs),     cmocka_unit_test(test_no_room),
                                        cmocka_unit_test(test_context_end),  cmocka_unit_test(test_min_ids),
                                        cmocka_unit_test(test_figures) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
