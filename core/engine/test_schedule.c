/* test_schedule.c: who runs first, who gives way, and that nobody's ids change for it. */
#include "test_jobs.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct test_model model;
static struct engine *engine;

static void open_all(uint32_t ahead, uint64_t permits, uint32_t sequences, uint64_t kv_pages, struct engine_options o)
{
    struct device_options dev = { .max_sequences = 2 * sequences, .max_rows = 64, .max_logits_rows = 64 };
    model = test_llama(test_device(ahead, permits), dev, 2);
    if (kv_pages) {
        dev.kv_bytes = model.m->plan.bytes[MEMORY_KV] / model.m->plan.kv_pages[0] * kv_pages;
        test_unload(&model);
        model = test_llama(test_device(ahead, permits), dev, 2);
    }
    o.max_sequences = sequences;
    engine = test_engine(model.m, o);
}

static void close_all(void)
{
    test_wait_idle(engine);
    engine_close(engine);
    test_unload(&model);
}

enum { N = 10 };
static struct test_answer answers[N];

static struct job *submit(uint32_t i, const char *name, int32_t priority)
{
    const struct test_job t = test_make(i);
    return test_submit(engine, name, &t, priority, 0);
}

static void wait_ended(struct job *j)
{
    struct job_figures f;
    while (job_figures(j, &f), !f.ended_ns) (void)nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* What is remembered of a job that is over: it stepped back and went on in turn, and its figures count the same. Who
 * steps back with its last step in flight ends before it goes on. */
static void check_turns(struct job *j)
{
    struct job_figures f;
    struct job_turn t;
    const uint32_t n = job_turns(j), known = n < ENGINE_TURNS ? n : ENGINE_TURNS - 1;
    uint32_t back[2] = { 0 };
    uint64_t last = 0;
    bool away = n > known && job_turn(j, n - known, &t) && t.kind == TURN_RESUMED;
    job_figures(j, &f);
    for (uint32_t i = n - known; i < n; i++) {
        assert_true(job_turn(j, i, &t));
        assert_true(t.at_ns >= last && t.at_ns >= f.queued_ns && t.at_ns <= f.ended_ns);
        assert_true(t.kind == TURN_RESUMED ? away : !away || t.kind == TURN_PREEMPTED);
        away = t.kind != TURN_RESUMED;
        last = t.at_ns;
        if (away) back[t.kind]++;
    }
    if (n == known) assert_true(back[TURN_YIELDED] == f.yields && back[TURN_PREEMPTED] == f.preemptions);
    assert_false(job_turn(j, n, &t));
    if (n > ENGINE_TURNS) assert_false(job_turn(j, n - ENGINE_TURNS - 1, &t));
}

/* Larger first, equal ones in order. */
static void test_priorities(void **state)
{
    (void)state;
    open_all(1, 0, 1, 0, (struct engine_options){ 0 });
    struct job *first = submit(0, "first", -5);
    test_await_gate(0); /* it has the only place before any other comes */
    struct job *zero = submit(0, "zero", 0), *again = submit(0, "again", 0), *three = submit(0, "three", 3),
               *low = submit(0, "low", INT32_MIN), *top = submit(0, "top", INT32_MAX);
    test_permit(UINT64_MAX);
    struct job *const order[] = { first, top, three, zero, again, low };
    for (uint32_t i = 0; i < 6; i++) wait_ended(order[i]);
    for (uint32_t i = 1; i < 6; i++) assert_true(test_started(order[i - 1]) < test_started(order[i]));
    for (uint32_t i = 0; i < 6; i++) test_check(order[i], "priority", &answers[0], false);
    close_all();
}

/* Two seconds of waiting are worth one priority: whom newer ones of a higher priority pass at first, they pass no more.
 * False: the machine was so slow that more than one was earned. */
static bool age_by_one(void)
{
    open_all(1, 0, 1, 0, (struct engine_options){ 0 });
    struct job *running = submit(0, "running", 0);
    test_await_gate(0);
    const uint64_t before = test_now();
    struct job *old = submit(0, "old", 0);
    (void)nanosleep(&(struct timespec){ .tv_sec = 2, .tv_nsec = 50000000 }, NULL);
    struct job *even = submit(0, "even", 1), *higher = submit(0, "higher", 2);
    test_permit(UINT64_MAX);
    struct job *const order[] = { running, higher, old, even };
    for (uint32_t i = 0; i < 4; i++) wait_ended(order[i]);
    const bool in_time = test_now() - before < 4000000000u;
    for (uint32_t i = 1; i < 4; i++) assert_true(!in_time || test_started(order[i - 1]) < test_started(order[i]));
    for (uint32_t i = 0; i < 4; i++) test_check(order[i], "ageing", &answers[0], false);
    close_all();
    return in_time;
}

static void test_ageing(void **state)
{
    (void)state;
    while (!age_by_one()) continue;
}

/* A small job does not pass a large one that waits for pages: it would wait for ever. */
static void test_no_passing(void **state)
{
    (void)state;
    open_all(1, 0, 2, 9, (struct engine_options){ 0 });
    struct job *running = submit(5, "running", 0); /* 150 + 4: 5 pages */
    test_await_gate(0);
    struct job *large = submit(8, "large", 0), *small = submit(1, "small", 0); /* 8 and 1 pages */
    test_permit(1);
    test_await_gate(1);
    struct job_view views[3];
    assert_int_equal(engine_jobs(engine, views, 3), 3);
    assert_int_equal(views[1].state, JOB_QUEUED);
    assert_int_equal(views[2].state, JOB_QUEUED);
    test_permit(UINT64_MAX);
    wait_ended(running);
    wait_ended(small);
    struct job_figures f;
    job_figures(running, &f);
    assert_true(test_started(small) >= f.ended_ns && test_started(large) >= f.ended_ns);
    test_check(running, "running", &answers[5], false);
    test_check(large, "large", &answers[8], false);
    test_check(small, "small", &answers[1], false);
    close_all();
}

/* Slices of 3 ids: all get on at the same time, one of high priority is left alone. */
static void test_slices(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        open_all(ahead, 0, 1, 0, (struct engine_options){ .timeslice_tokens = 3 });
        struct job *high = submit(2, "high", 7), *jobs[N];
        struct job_figures f;
        struct engine_stats s;
        char name[16];
        uint64_t yields = 0;
        for (uint32_t i = 0; i < N; i++) (void)snprintf(name, sizeof name, "%u", i), jobs[i] = submit(i, name, 0);
        test_permit(UINT64_MAX);
        wait_ended(high);
        job_figures(high, &f);
        assert_int_equal(f.yields, 0);
        test_check(high, "high", &answers[2], false);
        /* One place and two slots: two jobs take turns. */
        for (uint32_t i = 0; i < N; i++) {
            wait_ended(jobs[i]);
            job_figures(jobs[i], &f);
            yields += f.yields;
            assert_int_equal(f.preemptions, 0);
            check_turns(jobs[i]);
            test_check(jobs[i], "slices", &answers[i], false);
        }
        test_wait_idle(engine);
        engine_stats(engine, &s);
        assert_true(yields >= 4);
        assert_int_equal(s.yields, yields);
        assert_true(s.resumes > 0 && s.resumes <= s.yields);
        close_all();
    }
}

/* A high job takes a place (pages kept) or pages (computed again) from the lowest; what is taken from whom is exact,
 * and no id changes. */
static void test_preemption(void **state)
{
    (void)state;
    static const struct {
        uint32_t pages, ahead, steps;
        enum job_state then;
    } cases[] = {
        { 0, 1, 6, JOB_YIELDED }, { 14, 1, 6, JOB_PREEMPTED }, { 14, 1, 2, JOB_PREEMPTED },
        { 0, 4, 6, JOB_YIELDED }, { 14, 4, 6, JOB_PREEMPTED },
    };
    for (uint32_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (uint32_t cache = 0; cache < 2; cache++) {
            open_all(cases[c].ahead, 0, 2, cases[c].pages,
                     (struct engine_options){ .preempt = true, .prefix_cache = cache });
            struct job_figures f;
            struct engine_stats s;
            struct job_view views[3];
            struct job *low = submit(8, "low", -1), *mid = submit(7, "mid", 0); /* 8 and 4 or 5 pages */
            test_permit(cases[c].steps);
            test_await_gate(cases[c].steps);
            struct job *high = submit(5, "high", 6); /* 5 pages */
            test_permit(cases[c].ahead + 1);
            test_await_gate(cases[c].steps + cases[c].ahead + 1);
            assert_int_equal(engine_jobs(engine, views, 3), 3);
            if (cases[c].ahead == 1) assert_int_equal(views[0].state, cases[c].then);
            test_permit(UINT64_MAX);
            wait_ended(low);
            job_figures(low, &f);
            assert_int_equal(f.preemptions, 1);
            assert_int_equal(job_turns(low), 2);
            check_turns(low);
            test_check(high, "high", &answers[5], false);
            test_check(mid, "mid", &answers[7], false);
            test_check(low, "low", &answers[8], false);
            test_wait_idle(engine);
            engine_stats(engine, &s);
            assert_int_equal(s.preemptions, 1);
            assert_int_equal(s.resumes, 1);
            close_all();
        }
}

/* Switched off, or the running ones are no lower: it waits. */
static void test_no_preemption(void **state)
{
    (void)state;
    for (uint32_t on = 0; on < 2; on++) {
        open_all(1, 0, 1, 0, (struct engine_options){ .preempt = on });
        struct job *running = submit(2, "running", on ? 6 : 0);
        test_permit(2);
        test_await_gate(2);
        struct job *high = submit(0, "high", on ? 6 : 9);
        test_permit(UINT64_MAX);
        wait_ended(high);
        struct job_figures f, g;
        job_figures(running, &f);
        job_figures(high, &g);
        assert_int_equal(f.preemptions, 0);
        assert_true(g.started_ns >= f.ended_ns);
        test_check(running, "running", &answers[2], false);
        test_check(high, "high", &answers[0], false);
        close_all();
    }
    /* Switched on while they wait. */
    open_all(1, 0, 1, 0, (struct engine_options){ 0 });
    struct job *running = submit(8, "running", 0);
    test_permit(2);
    test_await_gate(2);
    struct job *high = submit(0, "high", 9);
    struct engine_tuning now;
    engine_tuning(engine, &now);
    assert_true(!now.preempt && now.timeslice_tokens == 0);
    engine_tune(engine, true, 9, 1000);
    engine_tuning(engine, &now);
    assert_true(now.preempt && now.high_priority == 9 && now.timeslice_tokens == 1000);
    test_permit(UINT64_MAX);
    test_check(high, "high", &answers[0], false);
    struct job_figures f;
    wait_ended(running);
    job_figures(running, &f);
    assert_int_equal(f.preemptions, 1);
    test_check(running, "running", &answers[8], false);
    close_all();
}

/* Jobs that take turns leave a slot for one that is urgent. */
static void test_urgent_beside_slices(void **state)
{
    (void)state;
    enum { LOW = 4, STEPS = 60, MORE = 12 };
    open_all(1, 0, 2, 0, (struct engine_options){ .timeslice_tokens = 3, .preempt = true });
    struct job *low[LOW];
    struct job_figures f;
    uint32_t yields = 0;
    for (uint32_t i = 0; i < LOW; i++) {
        struct test_job t = test_make(1);
        char name[16];
        (void)snprintf(name, sizeof name, "%u", i);
        t.most = 100, t.n_ends = 0;
        low[i] = test_submit(engine, name, &t, 0, 0);
    }
    test_permit(STEPS);
    test_await_gate(STEPS);
    for (uint32_t i = 0; i < LOW; i++) job_figures(low[i], &f), yields += f.yields;
    assert_true(yields > 0);
    struct job *high = submit(0, "high", 9);
    test_permit(MORE);
    test_await_gate(STEPS + MORE);
    assert_true(test_started(high) > 0);
    for (uint32_t i = 0; i < LOW; i++) {
        job_figures(low[i], &f);
        assert_int_equal(f.ended_ns, 0);
    }
    test_permit(UINT64_MAX);
    test_check(high, "high", &answers[0], false);
    for (uint32_t i = 0; i < LOW; i++) {
        uint32_t ids[100];
        enum job_end end;
        assert_int_equal(test_read(low[i], ids, 100, &end), 100);
        job_release(low[i]);
    }
    close_all();
}

/* Preempted again and again, at every id: prompt rows again as prompt rows, ids as generated rows. */
static void test_often_preempted(void **state)
{
    (void)state;
    static const uint32_t which[] = { 8, 2, 9 }; /* 230, 64, 33 tokens */
    for (uint32_t k = 0; k < 3; k++) {
        open_all(1, 0, 1, 9, (struct engine_options){ .preempt = true });
        struct job *j = submit(which[k], "j", 0);
        uint32_t times = 0;
        for (uint32_t round = 0; round < 12; round++) {
            struct test_job t = test_make(5);
            t.n = 225, t.most = 1, t.n_ends = 0;
            for (uint32_t i = 150; i < t.n; i++) t.tokens[i] = i % TEST_VOCAB;
            char name[16];
            (void)snprintf(name, sizeof name, "%u", round);
            test_permit(3);
            (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
            struct job *high = test_submit(engine, name, &t, 9, 0);
            test_permit(8);
            uint32_t ids[8];
            enum job_end end;
            if (test_read(high, ids, 8, &end) == 1) times++;
            job_release(high);
        }
        test_permit(UINT64_MAX);
        struct job_figures f;
        wait_ended(j);
        job_figures(j, &f);
        assert_int_equal(times, 12);
        check_turns(j);
        test_check(j, "often", &answers[which[k]], false);
        assert_true(f.preemptions >= 1);
        close_all();
    }
}

int main(void)
{
    if (test_open_plugins()) return 1;
    test_llama_answers(answers, N);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priorities),      cmocka_unit_test(test_ageing),
        cmocka_unit_test(test_no_passing),      cmocka_unit_test(test_slices),
        cmocka_unit_test(test_preemption),      cmocka_unit_test(test_no_preemption),
        cmocka_unit_test(test_often_preempted), cmocka_unit_test(test_urgent_beside_slices),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
