/* test_refusal.c: refusals as values, and what every failure of the library and of the engine is called. */
#include "refusal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static void test_value(void **state)
{
    (void)state;
    struct refusal why = { 0 };
    refusal_job(&why, "job");
    assert_false(refuse(&why, SERVE_QUEUE_FULL, NULL, "%u jobs wait", 7u));
    assert_int_equal(why.code, SERVE_QUEUE_FULL);
    assert_string_equal(why.text, "7 jobs wait");
    assert_string_equal(why.field, "");
    assert_string_equal(why.job_id, "job");
    for (uint64_t i = 0; i < REFUSAL_MEMBERS + 1; i++) refusal_add(&why, "n", i);
    assert_int_equal(why.more[REFUSAL_MEMBERS - 1].value, REFUSAL_MEMBERS - 1);
    why.retry_after_s = 5;
    /* one that is made anew has nothing of the old one but whom it is about */
    assert_false(refuse(&why, SERVE_INVALID_REQUEST, "field", "text"));
    assert_string_equal(why.field, "field");
    assert_string_equal(why.job_id, "job");
    assert_null(why.more[0].name);
    assert_int_equal(why.retry_after_s, 0);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(serve_code_of_status(WK_INVALID), SERVE_INVALID_REQUEST);
    assert_int_equal(serve_code_of_status(WK_UNSUPPORTED), SERVE_INVALID_REQUEST);
    assert_int_equal(serve_code_of_status(WK_NO_MEMORY), SERVE_INTERNAL);
    assert_int_equal(serve_code_of_status((wk_status)99), SERVE_INTERNAL);
    static const enum serve_code ends[JOB_END_COUNT] = {
        SERVE_INTERNAL, SERVE_INTERNAL,   SERVE_CANCELLED, SERVE_INFERENCE_TIMEOUT, SERVE_VRAM_OOM,
        SERVE_INTERNAL, SERVE_CUDA_ERROR, SERVE_NOT_READY, SERVE_INVALID_REQUEST
    };
    for (int i = 0; i < JOB_END_COUNT; i++) assert_int_equal(serve_code_of_end((enum job_end)i), ends[i]);
    static const enum serve_code submits[] = { SERVE_INTERNAL,  SERVE_INVALID_REQUEST, SERVE_CONTEXT_LENGTH_EXCEEDED,
                                               SERVE_VRAM_OOM,  SERVE_QUEUE_FULL,      SERVE_JOB_EXISTS,
                                               SERVE_NOT_READY, SERVE_CUDA_ERROR,      SERVE_INTERNAL };
    for (int i = 0; i <= SUBMIT_NO_MEMORY; i++)
        assert_int_equal(serve_code_of_submit((enum submit_refusal)i), submits[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_value), cmocka_unit_test(test_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
