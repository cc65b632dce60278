/* test_owners.c: jobs of several owners: however many one has, the others' turns come; one alone finds the order that
 * there was before owners; nobody's ids change. */
#include "test_jobs.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct test_model model;
static struct engine *engine;

static void open_all(uint32_t sequences, uint32_t slots, struct engine_options o)
{
    model = test_llama(test_device(1, 0),
                       (struct device_options){ .max_sequences = slots, .max_rows = 64, .max_logits_rows = 64 }, 2);
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
static struct test_answer answers[N], long_answer;

/* Job 1 without an end: 30 ids. */
static struct test_job long_job(void)
{
    struct test_job t = test_make(1);
    t.most = 30, t.n_ends = 0;
    return t;
}

static void make_answers(void)
{
    struct test_model t = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    const struct test_job job = long_job();
    test_answers(t.m, answers, N);
    long_answer.n = test_alone(t.m, &job, long_answer.ids, &long_answer.end);
    test_unload(&t);
}

static struct job *submit(struct test_job t, const char *name, uint32_t number, uint64_t owner, int32_t priority)
{
    char id[32];
    (void)snprintf(id, sizeof id, "%s%u", name, number);
    t.owner = owner;
    return test_submit(engine, id, &t, priority, 0);
}

static void wait_ended(struct job *j)
{
    struct job_figures f;
    while (job_figures(j, &f), !f.ended_ns) (void)nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* Runs what waits; in this order they begin. False: the machine was so slow that somebody aged meanwhile. */
static bool check_order(struct job *const *order, uint32_t n, uint64_t from, const struct test_answer *want)
{
    test_permit(UINT64_MAX);
    for (uint32_t i = 0; i < n; i++) wait_ended(order[i]);
    const bool in_time = test_now() - from < 1900000000u;
    for (uint32_t i = 1; i < n; i++)
        if (in_time && test_started(order[i - 1]) >= test_started(order[i]))
            fail_msg("job %u begins before job %u", i, i - 1);
    for (uint32_t i = 0; i < n; i++) test_check(order[i], "order", want, false);
    return in_time;
}

/* ---- who begins ---------------------------------------------------------------------------------------- */

enum { MANY = 60 };

/* MANY jobs of one owner wait, then others come: each waits for one of those at most. */
static bool take_turns(void)
{
    const uint64_t from = test_now();
    open_all(1, 2, (struct engine_options){ 0 });
    struct job *a[MANY], *b[3], *c, *order[MANY + 5];
    struct job *running = submit(test_make(0), "running", 0, 1, 0);
    test_await_gate(0);
    for (uint32_t i = 0; i < MANY; i++) a[i] = submit(test_make(0), "a", i, 1, 0);
    for (uint32_t i = 0; i < 3; i++) b[i] = submit(test_make(0), "b", i, 2, 0);
    c = submit(test_make(0), "c", 0, 0, 0); /* those of owner 0 have their turn as well */
    struct job *const first[] = { running, b[0], c, a[0], b[1], a[1], b[2] };
    memcpy(order, first, sizeof first);
    for (uint32_t i = 2; i < MANY; i++) order[5 + i] = a[i];
    const bool in_time = check_order(order, MANY + 5, from, &answers[0]);
    close_all();
    return in_time;
}

static void test_turns(void **state)
{
    (void)state;
    while (!take_turns()) continue;
}

/* Turns are remembered of an owner whose jobs are all over: who sends one after the other is not new each time. */
static void test_one_by_one(void **state)
{
    (void)state;
    open_all(1, 2, (struct engine_options){ 0 });
    struct job *c[2], *b[2], *a;
    c[0] = submit(test_make(0), "c", 0, 3, 0);
    test_await_gate(0);
    b[0] = submit(test_make(0), "b", 0, 2, 0);
    a = submit(test_make(0), "a", 0, 1, 0);
    c[1] = submit(test_make(0), "c", 1, 3, 0);
    struct job_view views[4];
    for (uint64_t steps = 1; engine_jobs(engine, views, 4) > 2; steps++) { /* until c and b are over: a runs */
        test_permit(1);
        test_await_gate(steps);
    }
    b[1] = submit(test_make(0), "b", 1, 2, 0); /* its owner's turn was after that of c's */
    test_permit(UINT64_MAX);
    wait_ended(b[1]);
    wait_ended(c[1]);
    assert_true(test_started(b[0]) < test_started(a) && test_started(a) < test_started(c[1]) &&
                test_started(c[1]) < test_started(b[1]));
    for (uint32_t i = 0; i < 2; i++) test_check(b[i], "b", &answers[0], false);
    for (uint32_t i = 0; i < 2; i++) test_check(c[i], "c", &answers[0], false);
    test_check(a, "a", &answers[0], false);
    close_all();
}

/* A queue that is old does not stand before everybody who comes: its first job has its turn, then the other's. */
static void test_old_queue(void **state)
{
    (void)state;
    open_all(1, 2, (struct engine_options){ 0 });
    struct job *running = submit(test_make(0), "running", 0, 1, 0), *a[20];
    test_await_gate(0);
    for (uint32_t i = 0; i < 20; i++) a[i] = submit(test_make(0), "a", i, 1, 0);
    (void)nanosleep(&(struct timespec){ .tv_sec = 2, .tv_nsec = 50000000 }, NULL);
    struct job *b = submit(test_make(0), "b", 0, 2, 0);
    test_permit(UINT64_MAX);
    for (uint32_t i = 0; i < 20; i++) wait_ended(a[i]);
    wait_ended(b);
    assert_true(test_started(b) < test_started(a[1]));
    test_check(running, "running", &answers[0], false);
    test_check(b, "b", &answers[0], false);
    for (uint32_t i = 0; i < 20; i++) test_check(a[i], "a", &answers[0], false);
    close_all();
}

/* Priorities come before turns, between owners as among one's own. */
static bool keep_priorities(uint64_t other)
{
    const uint64_t from = test_now();
    open_all(1, 2, (struct engine_options){ 0 });
    struct job *first = submit(test_make(0), "first", 0, 1, -5);
    test_await_gate(0);
    struct job *zero = submit(test_make(0), "zero", 0, 1, 0), *again = submit(test_make(0), "again", 0, 1, 0),
               *three = submit(test_make(0), "three", 0, other, 3),
               *low = submit(test_make(0), "low", 0, other, INT32_MIN),
               *top = submit(test_make(0), "top", 0, 1, INT32_MAX);
    struct job *const order[] = { first, top, three, zero, again, low };
    const bool in_time = check_order(order, 6, from, &answers[0]);
    close_all();
    return in_time;
}

/* The same order by one owner alone, whoever that is, as with several. */
static void test_priorities(void **state)
{
    (void)state;
    while (!keep_priorities(1)) continue;
    while (!keep_priorities(2)) continue;
}

/* ---- who goes on --------------------------------------------------------------------------------------- */

/* Slices: the one job of an owner has every second one, and is over before any of the six of another. */
static void test_slices(void **state)
{
    (void)state;
    enum { A = 6 };
    open_all(1, 8, (struct engine_options){ .timeslice_tokens = 3 });
    struct job *a[A];
    for (uint32_t i = 0; i < A; i++) a[i] = submit(long_job(), "a", i, 1, 0);
    struct job *b = submit(long_job(), "b", 0, 2, 0);
    test_permit(UINT64_MAX);
    wait_ended(b);
    for (uint32_t i = 0; i < A; i++) wait_ended(a[i]);
    struct job_figures f, g;
    job_figures(b, &f);
    for (uint32_t i = 0; i < A; i++) {
        job_figures(a[i], &g);
        assert_true(g.ended_ns > f.ended_ns && g.yields > 0);
        test_check(a[i], "a", &long_answer, false);
    }
    test_check(b, "b", &long_answer, false);
    close_all();
}

/* Three long prompts of one owner run, and one of another that came last: rows of steps are theirs in turn. */
static void test_prompts(void **state)
{
    (void)state;
    open_all(4, 8, (struct engine_options){ 0 });
    struct job *a[3], *b;
    a[0] = submit(test_make(8), "a", 0, 1, 0);
    test_await_gate(0);
    for (uint32_t i = 1; i < 3; i++) a[i] = submit(test_make(8), "a", i, 1, 0);
    test_permit(1); /* they run, too, before the other comes */
    test_await_gate(1);
    b = submit(test_make(8), "b", 0, 2, 0);
    struct job_view last, other = { 0 };
    for (uint64_t steps = 2; !other.n_prompt || other.n_done < other.n_prompt; steps++) {
        test_permit(1);
        test_await_gate(steps);
        job_look(b, &other);
    }
    job_look(a[2], &last);
    assert_int_equal(last.n_done, 0);
    test_permit(UINT64_MAX);
    for (uint32_t i = 0; i < 3; i++) test_check(a[i], "a", &answers[8], false);
    test_check(b, "b", &answers[8], false);
    close_all();
}

/* ---- who is remembered --------------------------------------------------------------------------------- */

/* More owners than there is room for: those are forgotten that have no job. */
static void test_many_owners(void **state)
{
    (void)state;
    enum { AT_ONCE = 40, ROUNDS = 40 };
    open_all(4, 8, (struct engine_options){ 0 });
    test_permit(UINT64_MAX);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct job *jobs[AT_ONCE];
        struct test_job t = test_make(0);
        for (uint32_t i = 0; i < AT_ONCE; i++)
            jobs[i] = submit(t, "j", i, (uint64_t)(round * AT_ONCE + i) * 0x100000001u, 0);
        for (uint32_t i = 0; i < AT_ONCE; i++) test_check(jobs[i], "many", &answers[0], false);
    }
    close_all();
}

int main(void)
{
    if (test_open_plugins()) return 1;
    make_answers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),       cmocka_unit_test(test_one_by_one), cmocka_unit_test(test_old_queue),
        cmocka_unit_test(test_priorities),  cmocka_unit_test(test_slices),     cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_many_owners),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
