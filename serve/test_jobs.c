/* test_jobs.c: the list of the service's jobs: open ones until their end is written down, in one moment; then the last
 * of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "jobs.h"

#include <cmocka.h> /* last: it has a macro named fail */

static struct job_place place_of(const char *id, uint32_t n_prompt)
{
    struct job_place p = { .view = { .state = JOB_QUEUED, .n_prompt = n_prompt } };
    (void)snprintf(p.view.id, sizeof p.view.id, "%s", id);
    return p;
}

static struct job_record record_of(const char *id, uint32_t tokens_out)
{
    struct job_record r = { .verdict = JOB_FINISHED, .end = "stop", .tokens_out = tokens_out };
    (void)snprintf(r.id, sizeof r.id, "%s", id);
    return r;
}

static void test_from_open_to_past(void **state)
{
    (void)state;
    struct job_log *l = job_log_open();
    struct job_view open[4];
    struct job_record past[JOB_LOG_MOST], record = record_of("a", 7);
    struct job_place a = place_of("a", 1), b = place_of("b", 2), again = place_of("a", 3);
    uint32_t n_past = 9;
    assert_non_null(l);
    assert_int_equal(job_log_find(l, NULL, "a", open, past), JOB_FOUND_NONE);
    job_log_enter(l, &a);
    job_log_enter(l, &b);
    assert_int_equal(job_log_find(l, NULL, "a", open, past), JOB_FOUND_OPEN);
    assert_int_equal(open[0].n_prompt, 1);
    job_log_enter(l, &again); /* the engine was done with the first */
    assert_int_equal(job_log_find(l, NULL, "a", open, past), JOB_FOUND_OPEN);
    assert_int_equal(open[0].n_prompt, 3);
    assert_int_equal(job_log_all(l, NULL, open, 4, past, &n_past), 3);
    assert_int_equal(n_past, 0);
    assert_string_equal(open[1].id, "b");
    assert_int_equal(job_log_all(l, NULL, open, 2, past, &n_past), 2);
    job_log_leave(l, &b, NULL); /* refused */
    assert_int_equal(job_log_find(l, NULL, "b", open, past), JOB_FOUND_NONE);
    job_log_leave(l, &a, &record);
    assert_int_equal(job_log_find(l, NULL, "a", open, past), JOB_FOUND_OPEN);
    record = record_of("a", 8);
    job_log_leave(l, &again, &record);
    assert_int_equal(job_log_find(l, NULL, "a", open, past), JOB_FOUND_PAST);
    assert_int_equal(past[0].tokens_out, 8);
    assert_int_equal(job_log_all(l, NULL, open, 4, past, &n_past), 0);
    assert_int_equal(n_past, 2);
    assert_int_equal(past[1].tokens_out, 7);
    job_log_close(l);
}

/* Two owners may have jobs of one id; each finds its own. */
static void test_owners(void **state)
{
    (void)state;
    static struct job_record past[JOB_LOG_MOST];
    static const uint64_t one[2] = { 1, 2 }, two[2] = { 1, 3 }, none[2] = { 0, 0 };
    struct job_log *l = job_log_open();
    struct job_view open[4];
    struct job_place a = place_of("a", 1), b = place_of("a", 2);
    uint32_t n_past;
    assert_non_null(l);
    memcpy(a.owner, one, sizeof one);
    memcpy(b.owner, two, sizeof two);
    job_log_enter(l, &a);
    job_log_enter(l, &b);
    assert_int_equal(job_log_find(l, one, "a", open, past), JOB_FOUND_OPEN);
    assert_int_equal(open[0].n_prompt, 1);
    assert_int_equal(job_log_find(l, none, "a", open, past), JOB_FOUND_NONE);
    assert_int_equal(job_log_all(l, two, open, 4, past, &n_past), 1);
    assert_int_equal(open[0].n_prompt, 2);
    struct job_record record = record_of("a", 5);
    memcpy(record.owner, one, sizeof one);
    job_log_leave(l, &a, &record);
    assert_int_equal(job_log_find(l, one, "a", open, past), JOB_FOUND_PAST);
    assert_int_equal(job_log_find(l, two, "a", open, past), JOB_FOUND_OPEN);
    assert_int_equal(job_log_all(l, two, open, 4, past, &n_past), 1);
    assert_int_equal(n_past, 0);
    job_log_leave(l, &b, NULL);
    job_log_close(l);
}

static void test_forgets_the_oldest(void **state)
{
    (void)state;
    static struct job_record past[JOB_LOG_MOST];
    struct job_log *l = job_log_open();
    struct job_view open;
    uint32_t n_past;
    char id[16];
    assert_non_null(l);
    for (uint32_t i = 0; i < JOB_LOG_MOST + 10; i++) {
        (void)snprintf(id, sizeof id, "%u", i);
        struct job_place p = place_of(id, 1);
        const struct job_record r = record_of(id, i);
        job_log_enter(l, &p);
        job_log_leave(l, &p, &r);
    }
    assert_int_equal(job_log_all(l, NULL, &open, 1, past, &n_past), 0);
    assert_int_equal(n_past, JOB_LOG_MOST);
    for (uint32_t i = 0; i < n_past; i++) assert_int_equal(past[i].tokens_out, JOB_LOG_MOST + 9 - i);
    assert_int_equal(job_log_find(l, NULL, "9", &open, past), JOB_FOUND_NONE);
    assert_int_equal(job_log_find(l, NULL, "10", &open, past), JOB_FOUND_PAST);
    job_log_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_from_open_to_past), cmocka_unit_test(test_owners),
                                        cmocka_unit_test(test_forgets_the_oldest) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
