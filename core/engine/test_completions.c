/* test_completions.c: who asks the same is given the same answer, without a step; who asks anything else is not. */
#include "test_jobs.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct test_model model;
static struct engine *engine;

static void open_all(uint32_t ahead, uint64_t bytes)
{
    model = test_llama(test_device(ahead, UINT64_MAX), (struct device_options){ .max_sequences = 4 }, 2);
    engine = test_engine(model.m,
                         (struct engine_options){ .prefix_cache = true, .completion_bytes = bytes, .max_queue = 4 });
}

static void close_all(void)
{
    test_wait_idle(engine);
    engine_close(engine);
    test_unload(&model);
}

enum { N = 24, ROOM = 1 << 20 };
static struct test_answer answers[N];

static struct engine_stats counters(void)
{
    struct engine_stats s;
    test_wait_idle(engine);
    engine_stats(engine, &s);
    return s;
}

/* Runs a job; was it a hit? Its figures are those of one. */
static bool ask(const struct engine_job *spec)
{
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    struct job_figures f;
    struct job_view view;
    const struct engine_stats before = counters();
    struct job *j = test_submit_spec(engine, spec);
    const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end);
    job_figures(j, &f);
    job_look(j, &view);
    job_release(j);
    const struct engine_stats after = counters();
    assert_int_equal(f.n_generated, n);
    assert_int_equal(view.state, JOB_OVER);
    assert_int_equal(after.submitted - before.submitted, 1);
    assert_int_equal(after.ended[end] - before.ended[end], 1);
    assert_int_equal(after.completion_hits - before.completion_hits, f.completion_hit);
    if (!f.completion_hit) return false;
    assert_int_equal(f.n_cached, spec->n_prompt);
    assert_true(f.queued_ns && f.queued_ns == f.started_ns && f.started_ns == f.ended_ns);
    assert_int_equal(f.first_token_ns, n ? f.queued_ns : 0);
    assert_int_equal(after.steps, before.steps);
    assert_int_equal(after.completion_misses, before.completion_misses);
    return true;
}

/* So many more may begin. */
static void hold_steps(uint64_t n)
{
    (void)pthread_mutex_lock(&test_control.lock);
    test_control.permits = n;
    (void)pthread_mutex_unlock(&test_control.lock);
}

static void test_hits(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        open_all(ahead, ROOM);
        for (uint32_t round = 0; round < 3; round++)
            for (uint32_t i = 0; i < N; i++) {
                const struct test_job t = test_make(i);
                struct job_figures f;
                struct job *j = test_submit(engine, "j", &t, (int32_t)round, 0);
                if (round) { /* over at once: all events are there */
                    job_figures(j, &f);
                    assert_true(f.completion_hit && f.ended_ns);
                }
                test_check(j, "hits", &answers[i], false);
            }
        const struct engine_stats s = counters();
        assert_int_equal(s.completion_hits, 2 * N);
        assert_int_equal(s.completion_misses, N);
        assert_int_equal(s.completions, N);
        assert_int_equal(s.submitted, 3 * N);
        assert_int_equal(s.ended[JOB_STOP] + s.ended[JOB_LENGTH], 3 * N);
        assert_true(s.completion_bytes > 0 && s.completion_bytes <= ROOM);
        close_all();
    }
}

/* Whatever may change an answer, or whose it is, is another question. */
static void test_keys(void **state)
{
    (void)state;
    open_all(1, ROOM);
    const struct sampler_bias bias[] = { { 3, 1 }, { 4, -1 } }, turned[] = { { 4, -1 }, { 3, 1 } };
    const uint32_t ends[] = { 7, 9 };
    struct test_job t = test_make(5);
    t.params = (struct sampler_params){ .temperature = 0.9f, .top_p = 0.95f, .repetition_penalty = 1.1f, .seed = 3 };
    t.most = 6, t.n_ends = 0;
    const struct sampler_params p = t.params;
    const struct engine_job s = test_spec(&t, "j");
    assert_false(ask(&s));
    assert_true(ask(&s));
#define OTHER(what)                                    \
    do {                                               \
        struct engine_job spec = s;                    \
        struct sampler_params params = p;              \
        spec.params = &params;                         \
        what;                                          \
        if (ask(&spec)) fail_msg("%s", #what);         \
        if (!ask(&spec)) fail_msg("again: %s", #what); \
    } while (0)
    OTHER(spec.owner = 1);
    OTHER(spec.owner = 1ull << 40);
    OTHER(spec.salt.word[0] = 1);
    OTHER(spec.salt.word[1] = 1);
    OTHER(spec.n_prompt--);
    OTHER(spec.max_tokens++);
    OTHER((spec.ends = ends, spec.n_ends = 1));
    OTHER((spec.ends = ends, spec.n_ends = 2));
    OTHER(params.seed++);
    OTHER(params.seed += 1ull << 32);
    OTHER(params.temperature = 0.8f);
    OTHER(params.top_p = 0.9f);
    OTHER(params.min_p = 0.01f);
    OTHER(params.top_k = 5);
    OTHER(params.min_ids = 1);
    OTHER(params.presence_penalty = 0.5f);
    OTHER(params.frequency_penalty = 0.5f);
    OTHER(params.repetition_penalty = 1);
    OTHER((params.logit_bias = bias, params.n_logit_bias = 1));
    OTHER((params.logit_bias = bias, params.n_logit_bias = 2));
    OTHER((params.logit_bias = turned, params.n_logit_bias = 2));
    OTHER(spec.probs = true);
    OTHER((spec.probs = true, spec.top_n = 2));
    OTHER(spec.prompt_probs = true);
    OTHER((spec.prompt_probs = true, spec.prompt_top_n = 2));
    t.tokens[t.n - 1] ^= 1;
    assert_false(ask(&s));
    assert_true(ask(&s));
    t.tokens[t.n - 1] ^= 1;
    assert_true(ask(&s));
    /* What changes nothing does not count. */
    struct engine_job same = s;
    same.id = "another", same.priority = 3, same.deadline_ns = test_now() + 100000000000u;
    assert_true(ask(&same));
    t.params.temperature = 0;
    assert_false(ask(&s));
    t.params.seed = 99;
    assert_true(ask(&s));
    close_all();
}

/* Log probabilities come with the ids, of the id that ended the answer and of the prompt as well. */
static void test_probs(void **state)
{
    (void)state;
    enum { TOP = 3, ROWS = TEST_CONTEXT };
    static struct sampler_prob seen[2][ROWS][1 + TOP], of_prompt[2][ROWS][1 + TOP];
    open_all(1, ROOM);
    for (uint32_t i = 0; i < N; i++) {
        const struct test_job t = test_make(i);
        struct engine_job spec = test_spec(&t, "j");
        spec.probs = spec.prompt_probs = true;
        spec.top_n = spec.prompt_top_n = TOP;
        memset(seen, 0, sizeof seen);
        memset(of_prompt, 0, sizeof of_prompt);
        for (uint32_t k = 0; k < 2; k++) {
            struct job_event e;
            struct job_figures f;
            struct job *j = test_submit_spec(engine, &spec);
            uint32_t n = 0, top;
            do {
                assert_true(job_next(j, &e, -1));
                if (e.kind == EVENT_TOKEN || (e.kind == EVENT_END && e.probs)) {
                    assert_int_equal(e.n_top, TOP);
                    memcpy(seen[k][n++], e.probs, sizeof seen[k][0]);
                }
            } while (e.kind != EVENT_END);
            assert_int_equal(n, answers[i].n + (answers[i].end == JOB_STOP));
            for (uint32_t at = 1; at < t.n; at++) {
                const struct sampler_prob *row = job_prompt_probs(j, at, &top);
                assert_non_null(row);
                assert_int_equal(top, TOP);
                memcpy(of_prompt[k][at], row, sizeof of_prompt[k][0]);
            }
            assert_null(job_prompt_probs(j, t.n, &top));
            job_figures(j, &f);
            assert_int_equal(f.completion_hit, k);
            job_release(j);
        }
        assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
        assert_memory_equal(of_prompt[0], of_prompt[1], sizeof of_prompt[0]);
    }
    close_all();
}

/* ---- what is not kept ---------------------------------------------------------------------------------- */

static uint32_t closed, masked;

static wk_status mask_all(void *user, uint64_t *bits, const struct wk_err *err)
{
    (void)user, (void)err;
    masked++;
    memset(bits, 0xff, (TEST_VOCAB + 63) / 64 * sizeof *bits);
    return WK_OK;
}

static void count_close(void *user)
{
    (void)user;
    closed++;
}

static void test_not_kept(void **state)
{
    (void)state;
    open_all(1, ROOM);
    struct test_job t = test_make(1);
    t.most = 200, t.n_ends = 0;
    struct engine_job spec = test_spec(&t, "j");
    /* Stopped or cancelled by the reader, or late. */
    for (uint32_t i = 0; i < 3; i++) {
        struct job *j;
        struct job_event e;
        hold_steps(3);
        spec.deadline_ns = i == 2 ? test_now() + 20000000 : 0;
        j = test_submit_spec(engine, &spec);
        if (i < 2) test_wait_generated(j, 1);
        if (i == 0) job_stop(j);
        if (i == 1) job_cancel(j);
        if (i == 2) (void)nanosleep(&(struct timespec){ .tv_nsec = 40000000 }, NULL);
        test_permit(UINT64_MAX);
        do assert_true(job_next(j, &e, -1));
        while (e.kind != EVENT_END);
        assert_int_equal(e.end, i == 0 ? JOB_STOP : i == 1 ? JOB_CANCELLED : JOB_TIMEOUT);
        job_release(j);
        assert_int_equal(counters().completions, 0);
    }
    spec.deadline_ns = 0;
    /* Not asked for. */
    spec.no_completion = true;
    assert_false(ask(&spec) || ask(&spec));
    assert_int_equal(counters().completions, 0);
    spec.no_completion = false;
    assert_false(ask(&spec));
    assert_true(ask(&spec));
    spec.no_completion = true;
    assert_false(ask(&spec));
    spec.no_completion = false;
    /* A constraint that nobody can tell from others; one that can be. */
    const struct sampler_constraint c = { .mask = mask_all, .close = count_close };
    uint8_t digest[ENGINE_DIGEST] = { 1 };
    spec.constraint = &c;
    assert_false(ask(&spec) || ask(&spec));
    assert_int_equal(counters().completions, 1);
    spec.constraint_digest = digest;
    assert_false(ask(&spec));
    assert_int_equal(closed, 3);
    masked = 0;
    assert_true(ask(&spec));
    assert_true(closed == 4 && masked == 0);
    digest[ENGINE_DIGEST - 1] = 1;
    assert_false(ask(&spec));
    assert_int_equal(closed, 5);
    close_all();
}

/* A step that fails gives no answer to keep. */
static void test_failures(void **state)
{
    (void)state;
    open_all(1, ROOM);
    const struct test_job t = test_make(8);
    test_control.fail_at = 2, test_control.fail_with = WK_INTERNAL;
    struct job *j = test_submit(engine, "j", &t, 0, 0);
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    (void)test_read(j, ids, TEST_CONTEXT, &end);
    assert_int_equal(end, JOB_FAILED);
    job_release(j);
    assert_int_equal(counters().completions, 0);
    test_check(test_submit(engine, "j", &t, 0, 0), "again", &answers[8], false);
    assert_int_equal(counters().completions, 1);
    close_all();
}

/* ---- room ---------------------------------------------------------------------------------------------- */

static struct engine_job numbered(struct test_job *t, uint32_t i)
{
    *t = test_make(0);
    t->params.temperature = 1;
    t->params.seed = 1000 + i;
    t->n = 40, t->most = 4, t->n_ends = 0;
    for (uint32_t k = 0; k < t->n; k++) t->tokens[k] = k;
    return test_spec(t, "j");
}

/* The one that was asked for longest ago goes; what is larger than all is not kept. */
static void test_eviction(void **state)
{
    (void)state;
    struct test_job t;
    struct engine_job spec;
    open_all(1, ROOM);
    spec = numbered(&t, 0);
    assert_false(ask(&spec));
    const uint64_t each = counters().completion_bytes;
    assert_true(each > 40 * sizeof(uint32_t) && each < 2048);
    close_all();
    open_all(1, 3 * each + each / 2);
    for (uint32_t i = 0; i < 3; i++) spec = numbered(&t, i), assert_false(ask(&spec));
    spec = numbered(&t, 0), assert_true(ask(&spec));
    spec = numbered(&t, 3), assert_false(ask(&spec)); /* takes the place of 1 */
    for (uint32_t i = 0; i < 4; i++)
        if (i != 1) spec = numbered(&t, i), assert_true(ask(&spec));
    spec = numbered(&t, 1), assert_false(ask(&spec));
    struct engine_stats s = counters();
    assert_int_equal(s.completion_evicted, 2);
    assert_int_equal(s.completion_bytes, 3 * each);
    spec.probs = true, spec.top_n = 20;
    assert_false(ask(&spec) || ask(&spec));
    s = counters();
    assert_int_equal(s.completion_evicted, 2);
    assert_int_equal(s.completions, 3);
    close_all();
    open_all(1, 0);
    assert_false(ask(&spec) || ask(&spec));
    s = counters();
    assert_int_equal(s.completion_misses + s.completions + s.completion_bytes, 0);
    close_all();
}

/* ---- the door ------------------------------------------------------------------------------------------ */

/* A hit needs no place in the queue; a name that is taken, and an engine that takes no more, refuse it all the same. */
static void test_door(void **state)
{
    (void)state;
    open_all(1, ROOM);
    struct test_job t = test_make(1), filler;
    const struct engine_job spec = test_spec(&t, "j");
    struct job *jobs[8], *j;
    assert_false(ask(&spec));
    hold_steps(0);
    for (uint32_t i = 0; i < 8; i++) {
        struct engine_job other = numbered(&filler, i);
        const char name[] = { (char)('a' + i), '\0' };
        other.id = name;
        jobs[i] = test_submit_spec(engine, &other);
    }
    struct engine_job full = numbered(&filler, 9);
    assert_int_equal(engine_submit(engine, &full, &j, &test_err), SUBMIT_QUEUE_FULL);
    j = test_submit_spec(engine, &spec);
    test_check(j, "full", &answers[1], false);
    struct engine_job taken = spec;
    taken.id = "c";
    assert_int_equal(engine_submit(engine, &taken, &j, &test_err), SUBMIT_EXISTS);
    engine_drain(engine);
    assert_int_equal(engine_submit(engine, &spec, &j, &test_err), SUBMIT_DRAINING);
    test_permit(UINT64_MAX);
    for (uint32_t i = 0; i < 8; i++) job_release(jobs[i]);
    close_all();
}

/* Several answers to a prompt of which some are known: all are what they are alone, and one reader reads them all. */
static void test_beside(void **state)
{
    (void)state;
    enum { EACH = 6 };
    open_all(4, ROOM);
    struct test_job t = test_make(5);
    t.params = (struct sampler_params){ .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
    t.most = 12, t.n_ends = 0;
    struct test_model one = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    static struct test_answer want[EACH];
    for (uint32_t i = 0; i < EACH; i++) {
        t.params.seed = i;
        want[i].n = test_alone(one.m, &t, want[i].ids, &want[i].end);
        const struct engine_job spec = test_spec(&t, "j");
        if (i % 2 == 0) assert_false(ask(&spec));
    }
    for (uint32_t first = 0; first < 2; first++) { /* the first is one of those that are known, or another */
        struct job *jobs[EACH];
        uint32_t n[EACH] = { 0 }, over = 0, which = 0;
        for (uint32_t i = 0; i < EACH; i++) {
            const char name[] = { (char)('a' + i), '\0' };
            struct engine_job spec = test_spec(&t, "j");
            t.params.seed = (i + first) % EACH;
            spec.id = name;
            spec.after = spec.beside = i ? jobs[0] : NULL;
            jobs[i] = test_submit_spec(engine, &spec);
        }
        while (over < EACH) {
            struct job_event e;
            assert_true(job_next_any(jobs, EACH, &which, &e, -1));
            const struct test_answer *w = &want[(which + first) % EACH];
            if (e.kind == EVENT_TOKEN) {
                assert_int_equal(e.index, n[which]);
                assert_int_equal(e.id, w->ids[n[which]++]);
            }
            if (e.kind == EVENT_END) {
                assert_int_equal(e.end, w->end);
                assert_int_equal(n[which], w->n);
                over++;
            }
        }
        for (uint32_t i = 0; i < EACH; i++) job_release(jobs[i]);
    }
    test_unload(&one);
    close_all();
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static void *many(void *user)
{
    const uint32_t thread = *(const uint32_t *)user;
    for (uint32_t round = 0; round < 30; round++)
        for (uint32_t i = 0; i < 6; i++) {
            const struct test_job t = test_make(i);
            char name[32];
            uint32_t ids[TEST_CONTEXT];
            enum job_end end;
            (void)snprintf(name, sizeof name, "%u.%u.%u", thread, round, i);
            struct job *j = test_submit(engine, name, &t, 0, 0);
            const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end);
            job_release(j);
            if (n != answers[i].n || end != answers[i].end || memcmp(ids, answers[i].ids, n * sizeof *ids) != 0)
                return "another answer";
        }
    return NULL;
}

/* So little room that answers come and go while others read them. */
static void test_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    open_all(4, 2500);
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, many, &numbers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        if (failed) fail_msg("%s", (const char *)failed);
    }
    const struct engine_stats s = counters();
    assert_true(s.completion_hits + s.completion_misses == THREADS * 30 * 6 && s.completion_bytes <= 2500);
    close_all();
}

int main(void)
{
    if (test_open_plugins()) return 1;
    test_llama_answers(answers, N);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits),     cmocka_unit_test(test_keys),     cmocka_unit_test(test_probs),
        cmocka_unit_test(test_not_kept), cmocka_unit_test(test_failures), cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_door),     cmocka_unit_test(test_beside),   cmocka_unit_test(test_threads),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
