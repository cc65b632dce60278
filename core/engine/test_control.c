/* test_control.c: jobs that are ended, from outside, by a deadline or by a device's fault, in every state; what the
 * others notice of it: nothing. */
#include "test_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct test_model model;
static struct engine *engine;
static struct test_job quick, slow; /* prompts of generated rows and of prompt rows, 64 and 230 tokens */

static void open_all(uint32_t ahead, uint32_t sequences, struct engine_options o)
{
    model =
        test_llama(test_device(ahead, 0),
                   (struct device_options){ .max_sequences = 2 * sequences, .max_rows = 32, .max_logits_rows = 32 }, 2);
    o.max_sequences = sequences;
    o.prefix_cache = true;
    engine = test_engine(model.m, o);
    quick = test_make(2);
    slow = test_make(8);
    quick.most = slow.most = 30;
    quick.n_ends = slow.n_ends = 0;
}

static void close_all(void)
{
    test_permit(UINT64_MAX);
    test_wait_idle(engine);
    engine_close(engine);
    test_unload(&model);
}

static enum job_state state_of(const char *id)
{
    struct job_view views[16];
    const uint32_t n = engine_jobs(engine, views, 16);
    for (uint32_t i = 0; i < n && i < 16; i++)
        if (!strcmp(views[i].id, id)) return views[i].state;
    return JOB_OVER;
}

static uint32_t finish(struct job *j, enum job_end want)
{
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end);
    if (end != want) fail_msg("%s, expected %s", job_end_name(end), job_end_name(want));
    job_release(j);
    return n;
}

/* It still gives what it gives alone, with pages of the ended ones. */
static void next_is_right(void)
{
    static struct test_answer want;
    test_permit(UINT64_MAX);
    struct job *j = test_submit(engine, "next", &slow, 0, 0);
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end);
    job_release(j);
    close_all();
    struct test_model t = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    want.n = test_alone(t.m, &slow, want.ids, &want.end);
    test_unload(&t);
    assert_int_equal(n, want.n);
    assert_memory_equal(ids, want.ids, n * sizeof *ids);
}

/* ---- cancelled ----------------------------------------------------------------------------------------- */

static void test_cancel_queued(void **state)
{
    (void)state;
    open_all(1, 1, (struct engine_options){ 0 });
    struct job *first = test_submit(engine, "first", &slow, 0, 0), *second = test_submit(engine, "second", &slow, 0, 0),
               *third = test_submit(engine, "third", &slow, 0, 0);
    test_await_gate(0);
    assert_int_equal(state_of("second"), JOB_QUEUED);
    assert_true(engine_cancel(engine, NULL, "second"));
    job_cancel(third);
    assert_false(engine_cancel(engine, NULL, "nobody"));
    test_permit(1);
    assert_int_equal(finish(second, JOB_CANCELLED), 0);
    assert_int_equal(finish(third, JOB_CANCELLED), 0);
    assert_false(engine_cancel(engine, NULL, "second"));
    test_permit(UINT64_MAX);
    assert_int_equal(finish(first, JOB_LENGTH), 30);
    next_is_right();
}

/* While the device computes a chunk of its prompt: the step stops, the rest of the prompt never runs. */
static void test_cancel_in_prefill_step(void **state)
{
    (void)state;
    open_all(1, 2, (struct engine_options){ 0 });
    struct job *j = test_submit(engine, "j", &slow, 0, 0), *other = test_submit(engine, "other", &slow, 0, 0);
    test_permit(2);
    test_await_gate(2);
    assert_int_equal(state_of("j"), JOB_PREFILL);
    struct job_event event;
    assert_true(job_next(j, &event, -1));
    assert_int_equal(event.kind, EVENT_STARTED);
    job_cancel(j);
    job_cancel(j);
    assert_true(job_next(j, &event, -1)); /* no step was let through */
    assert_int_equal(event.kind, EVENT_END);
    assert_int_equal(event.end, JOB_CANCELLED);
    job_cancel(j);
    job_stop(j);
    job_release(j);
    assert_int_equal(test_control.cancelled, 1);
    test_permit(UINT64_MAX);
    assert_int_equal(finish(other, JOB_LENGTH), 30);
    next_is_right();
}

static void test_cancel_in_decode(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        open_all(ahead, 2, (struct engine_options){ 0 });
        struct job *j = test_submit(engine, "j", &quick, 0, 0);
        test_permit(12);
        test_wait_generated(j, 3);
        assert_int_equal(state_of("j"), JOB_DECODE);
        job_cancel(j);
        test_permit(UINT64_MAX);
        const uint32_t n = finish(j, JOB_CANCELLED);
        assert_in_range(n, 3, 29);
        next_is_right();
    }
}

/* Its end is told at once, while steps that it is in are in flight; until these are collected its pages are in use, and
 * counted so. How many steps the engine submits before it looks round depends on how long they take: they are let
 * through one by one, until it has looked. */
static void test_pages_of_ended(void **state)
{
    (void)state;
    enum { STEPS = 20 }; /* of both; j needs 31 of its own to end by itself */
    open_all(4, 2, (struct engine_options){ 0 });
    struct job *j = test_submit(engine, "j", &quick, 0, 0), *other = test_submit(engine, "other", &slow, 0, 0);
    struct engine_stats before, after;
    struct job_figures f;
    uint64_t steps = STEPS;
    test_permit(STEPS);
    test_await_gate(STEPS);
    engine_stats(engine, &before);
    assert_int_equal(before.running, 2);
    job_cancel(j);
    do {
        test_permit(1);
        test_await_gate(++steps);
        job_figures(j, &f);
    } while (!f.ended_ns);
    (void)finish(j, JOB_CANCELLED); /* the next step waits at the gate, one to three are in flight */
    engine_stats(engine, &after);
    assert_int_equal(after.running, 1);
    assert_int_equal(after.ended[JOB_CANCELLED], 1);
    assert_true(after.pages_used >= before.pages_used);
    test_permit(UINT64_MAX);
    assert_int_equal(finish(other, JOB_LENGTH), 30);
    test_wait_idle(engine); /* all pages are back */
    next_is_right();
}

/* A stop string was found: job_stop, then released before the end was read. */
static void test_stop(void **state)
{
    (void)state;
    open_all(4, 2, (struct engine_options){ 0 });
    struct job *j = test_submit(engine, "j", &quick, 0, 0), *gone = test_submit(engine, "gone", &quick, 0, 0);
    struct engine_stats s;
    test_permit(12);
    test_wait_generated(j, 3);
    job_stop(j);
    job_cancel(j); /* the first counts */
    job_stop(gone);
    job_release(gone);
    test_permit(UINT64_MAX);
    (void)finish(j, JOB_STOP);
    test_wait_idle(engine);
    engine_stats(engine, &s);
    assert_int_equal(s.ended[JOB_STOP], 2);
    next_is_right();
}

static void test_cancel_parked(void **state)
{
    (void)state;
    open_all(1, 1, (struct engine_options){ .timeslice_tokens = 3, .preempt = true });
    struct job *yielded = test_submit(engine, "yielded", &quick, 0, 0);
    test_permit(2);
    test_await_gate(2);
    struct job *other = test_submit(engine, "other", &quick, 0, 0);
    test_permit(3); /* two ids, and the other's prompt */
    test_await_gate(5);
    assert_int_equal(state_of("yielded"), JOB_YIELDED);
    struct job_figures f;
    job_figures(yielded, &f);
    assert_int_equal(f.yields, 1);
    job_cancel(yielded);
    test_permit(UINT64_MAX);
    assert_int_equal(finish(yielded, JOB_CANCELLED), 3);
    assert_int_equal(finish(other, JOB_LENGTH), 30);
    next_is_right();
}

/* ---- deadlines ----------------------------------------------------------------------------------------- */

static void test_deadlines(void **state)
{
    (void)state;
    open_all(1, 1, (struct engine_options){ 0 });
    struct job *past = test_submit(engine, "past", &quick, 0, test_now() - 1);
    assert_int_equal(finish(past, JOB_TIMEOUT), 0);
    assert_int_equal(test_control.begun, 0); /* nothing of it ran */
    struct job *running = test_submit(engine, "running", &slow, 0, 0);
    test_await_gate(0);
    struct job *queued = test_submit(engine, "queued", &slow, 0, test_now() + 5000000);
    test_permit(1);
    test_await_gate(1);
    struct timespec nap = { .tv_nsec = 6000000 };
    (void)nanosleep(&nap, NULL);
    test_permit(1);
    assert_int_equal(finish(queued, JOB_TIMEOUT), 0);
    test_permit(UINT64_MAX);
    assert_int_equal(finish(running, JOB_LENGTH), 30);
    test_wait_idle(engine);
    /* In prefill: after three of eight chunks; in decode. */
    for (uint32_t steps = 3; steps <= 12; steps += 9) {
        test_control.permits = 0;
        test_control.begun = 0;
        struct test_job fresh = slow;
        fresh.tokens[0] = steps; /* nothing of it is kept */
        struct job *j = test_submit(engine, "j", &fresh, 0, test_now() + 50000000);
        test_permit(steps);
        nap.tv_nsec = 60000000;
        (void)nanosleep(&nap, NULL);
        test_permit(1); /* the step at the gate ends, and nothing follows it */
        const uint32_t n = finish(j, JOB_TIMEOUT);
        assert_in_range(n, 0, steps == 3 ? 0 : 6);
        test_permit(UINT64_MAX);
        test_wait_idle(engine);
    }
    next_is_right();
}

/* ---- drain, calls, close ------------------------------------------------------------------------------- */

static void test_drain(void **state)
{
    (void)state;
    open_all(1, 1, (struct engine_options){ 0 });
    struct job *running = test_submit(engine, "running", &quick, 0, 0),
               *queued = test_submit(engine, "queued", &quick, 0, 0), *j;
    struct engine_stats s;
    test_await_gate(0);
    engine_drain(engine);
    const struct engine_job spec = {
        .id = "late", .prompt = quick.tokens, .n_prompt = 1, .max_tokens = 1, .params = &quick.params
    };
    assert_int_equal(engine_submit(engine, &spec, &j, &test_err), SUBMIT_DRAINING);
    assert_false(engine_idle(engine));
    test_permit(UINT64_MAX);
    assert_int_equal(finish(queued, JOB_DRAINED), 0);
    assert_int_equal(finish(running, JOB_LENGTH), 30);
    test_wait_idle(engine);
    engine_stats(engine, &s);
    assert_true(s.draining && !s.dead);
    engine_close(engine);
    test_unload(&model);
}

struct called {
    uint32_t steps, calls;
    struct job *during;
};

static void count_call(void *user)
{
    struct called *c = user;
    struct step_ids none = { 0 };
    /* Nothing is in flight, so nothing can be collected. */
    assert_int_equal(model.m->device->run_ahead > 1 ? device_cpu()->collect(model.m->executor, &none, NULL)
                                                    : WK_INVALID,
                     WK_INVALID);
    c->calls++;
}

static void *call_often(void *user)
{
    for (uint32_t i = 0; i < 20; i++) assert_true(engine_call(engine, count_call, user));
    return NULL;
}

static void test_calls(void **state)
{
    (void)state;
    open_all(4, 2, (struct engine_options){ 0 });
    struct called c = { 0 };
    pthread_t thread;
    test_permit(UINT64_MAX);
    assert_true(engine_call(engine, count_call, &c)); /* idle */
    struct job *j = test_submit(engine, "j", &slow, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, call_often, &c), 0);
    assert_int_equal(finish(j, JOB_LENGTH), 30);
    (void)pthread_join(thread, NULL);
    assert_int_equal(c.calls, 21);
    next_is_right();
}

/* With jobs queued and running, steps in flight. */
static void test_close(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        open_all(ahead, 2, (struct engine_options){ 0 });
        struct job *jobs[4];
        static const char *const names[] = { "a", "b", "c", "d" };
        for (uint32_t i = 0; i < 4; i++) jobs[i] = test_submit(engine, names[i], i % 2 ? &quick : &slow, 0, 0);
        test_permit(5);
        test_await_gate(5);
        if (ahead > 1) test_permit(UINT64_MAX); /* such a device is not asked to stop a step */
        for (uint32_t i = 0; i < 4; i++) job_cancel(jobs[i]);
        for (uint32_t i = 0; i < 4; i++) job_release(jobs[i]);
        engine_close(engine);
        test_unload(&model);
    }
    engine_close(NULL);
}

/* ---- readers ------------------------------------------------------------------------------------------- */

/* One never reads until all is over, one goes away; the third is served, and the first finds everything. */
static void test_slow_reader(void **state)
{
    (void)state;
    open_all(1, 3, (struct engine_options){ 0 });
    slow.most = 150;
    struct job *late = test_submit(engine, "late", &slow, 0, 0), *gone = test_submit(engine, "gone", &slow, 0, 0),
               *quick_one = test_submit(engine, "quick", &quick, 0, 0);
    test_permit(UINT64_MAX);
    job_release(gone);
    assert_int_equal(finish(quick_one, JOB_LENGTH), 30);
    test_wait_idle(engine);
    assert_int_equal(finish(late, JOB_LENGTH), 150);
    struct job_event event;
    struct job *j = test_submit(engine, "timed", &quick, 0, 0);
    uint32_t n = 0;
    for (bool over = false; !over;) { /* polls, and waits a little */
        if (!job_next(j, &event, n % 2 ? 0 : 1)) continue;
        n += event.kind == EVENT_TOKEN;
        over = event.kind == EVENT_END;
    }
    assert_int_equal(n, 30);
    job_release(j);
    job_release(NULL);
    slow.most = 30;
    next_is_right();
}

static void test_wait_ends(void **state)
{
    (void)state;
    open_all(1, 1, (struct engine_options){ 0 });
    struct job *j = test_submit(engine, "j", &quick, 0, 0);
    struct job_event event;
    test_await_gate(0);
    assert_true(job_next(j, &event, -1));
    const uint64_t before = test_now();
    assert_false(job_next(j, &event, 20));
    assert_true(test_now() - before >= 20000000);
    test_permit(UINT64_MAX);
    assert_int_equal(event.kind, EVENT_STARTED);
    uint32_t n = 0;
    while (job_next(j, &event, -1)) n++;
    assert_int_equal(n, 31);
    job_release(j);
    next_is_right();
}

/* ---- faults -------------------------------------------------------------------------------------------- */

/* Rows of one slot become NaN: that job fails, the others do not notice. */
static void test_failed_row(void **state)
{
    (void)state;
    open_all(4, 3, (struct engine_options){ 0 });
    test_control.spoil_slot = 1;
    struct job *jobs[3] = { test_submit(engine, "a", &quick, 0, 0), NULL, NULL };
    test_await_gate(0);
    jobs[1] = test_submit(engine, "b", &slow, 0, 0);
    jobs[2] = test_submit(engine, "c", &slow, 0, 0);
    test_permit(UINT64_MAX);
    struct job_figures f;
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    assert_int_equal(finish(jobs[0], JOB_LENGTH), 30);
    (void)test_read(jobs[1], ids, TEST_CONTEXT, &end);
    assert_int_equal(end, JOB_FAILED);
    job_figures(jobs[1], &f);
    assert_non_null(strstr(f.text, "NaN"));
    job_release(jobs[1]);
    assert_int_equal(finish(jobs[2], JOB_LENGTH), 30);
    test_wait_idle(engine);
    test_control.spoil_slot = UINT32_MAX;
    next_is_right();
}

/* A step is refused: its jobs end, the engine goes on. */
static void test_failed_step(void **state)
{
    (void)state;
    static const struct {
        wk_status with;
        enum job_end end;
    } cases[] = { { WK_NO_MEMORY, JOB_NO_MEMORY }, { WK_INTERNAL, JOB_FAILED } };
    for (uint32_t i = 0; i < 2; i++) {
        open_all(4, 1, (struct engine_options){ 0 });
        test_control.fail_at = 3;
        test_control.fail_with = cases[i].with;
        struct job *j = test_submit(engine, "j", &slow, 0, 0), *after = test_submit(engine, "after", &slow, 0, 0);
        struct job_figures f;
        uint32_t ids[TEST_CONTEXT];
        enum job_end end;
        test_permit(UINT64_MAX);
        assert_int_equal(test_read(j, ids, TEST_CONTEXT, &end), 0);
        assert_int_equal(end, cases[i].end);
        job_figures(j, &f);
        assert_non_null(strstr(f.text, "step 3 fails"));
        job_release(j);
        assert_int_equal(finish(after, JOB_LENGTH), 30);
        next_is_right();
    }
}

/* Steps that fail one after the other, and then no more: the count is of those since the last id. */
static void test_failing(void **state)
{
    (void)state;
    struct engine_stats s;
    open_all(1, 1, (struct engine_options){ 0 });
    test_control.fail_at = 2;
    test_control.fail_to = 5;
    test_permit(UINT64_MAX);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(finish(test_submit(engine, "j", &slow, 0, 0), JOB_FAILED) <= 1);
        engine_stats(engine, &s);
        assert_int_equal(s.failures, i + 1);
        assert_non_null(strstr(s.failure_text, "fails as it was told"));
        assert_false(s.dead);
    }
    assert_true(s.failures >= ENGINE_FAILING);
    assert_int_equal(finish(test_submit(engine, "j", &slow, 0, 0), JOB_LENGTH), 30);
    engine_stats(engine, &s);
    assert_int_equal(s.failures, 0);
    next_is_right();
}

static void test_refused_sampler(void **state)
{
    (void)state;
    open_all(1, 2, (struct engine_options){ 0 });
    test_control.refuse_samplers = true;
    struct job *j = test_submit(engine, "j", &slow, 0, 0);
    assert_int_equal(finish(j, JOB_NO_MEMORY), 0);
    test_control.refuse_samplers = false;
    next_is_right();
}

/* The device dies, in submit or in collect, with jobs in every state: all end, their text stays,
 * nothing more is taken. */
static void test_dead_device(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        open_all(i % 2 ? 4 : 1, 2, (struct engine_options){ 0 });
        test_control.fail_at = 6;
        test_control.die = true;
        test_control.fail_in_collect = i >= 2;
        struct job *jobs[4], *late;
        static const char *const names[] = { "a", "b", "c", "d" };
        for (uint32_t k = 0; k < 4; k++) jobs[k] = test_submit(engine, names[k], k ? &slow : &quick, 0, 0);
        struct called c = { 0 };
        struct engine_stats s;
        struct job_figures f;
        uint32_t ids[TEST_CONTEXT];
        enum job_end end;
        test_permit(UINT64_MAX);
        for (uint32_t k = 0; k < 4; k++) {
            (void)test_read(jobs[k], ids, TEST_CONTEXT, &end);
            assert_int_equal(end, JOB_DEVICE_LOST);
            job_figures(jobs[k], &f);
            assert_non_null(strstr(f.text, "as it was told"));
            job_release(jobs[k]);
        }
        test_wait_idle(engine);
        const struct engine_job spec = {
            .id = "late", .prompt = quick.tokens, .n_prompt = 1, .max_tokens = 1, .params = &quick.params
        };
        assert_int_equal(engine_submit(engine, &spec, &late, &test_err), SUBMIT_DEAD);
        assert_non_null(strstr(test_text, "as it was told"));
        assert_false(engine_call(engine, count_call, &c));
        engine_stats(engine, &s);
        assert_true(s.dead && strstr(s.dead_text, "as it was told"));
        assert_int_equal(s.ended[JOB_DEVICE_LOST], 4);
        engine_close(engine);
        test_unload(&model);
    }
}

int main(void)
{
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_queued),
        cmocka_unit_test(test_cancel_in_prefill_step),
        cmocka_unit_test(test_cancel_in_decode),
        cmocka_unit_test(test_pages_of_ended),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_cancel_parked),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_wait_ends),
        cmocka_unit_test(test_failed_row),
        cmocka_unit_test(test_failed_step),
        cmocka_unit_test(test_refused_sampler),
        cmocka_unit_test(test_failing),
        cmocka_unit_test(test_dead_device),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
