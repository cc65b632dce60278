/* test_embed.c: an engine of a model that gives embeddings: rows of texts in steps with others', in every mix the bits
 * of the text alone; what is refused; cancel, failure and drain. */
#include "test_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/session.h"
#include "test_data.h"

enum { WIDTH = 48, TEXTS = 40, TOKENS = 64 /* ids of the vocabulary */, CONTEXT = 512 };

static char path[DATA_PATH_MAX];

static struct test_model open_model(const struct device_ops *device, struct device_options dev)
{
    return test_file(device, golden_file(path, "bert-mean.gguf"), dev);
}

/* Text i: 1 to 200 tokens. */
static uint32_t make_text(uint32_t i, uint32_t *ids)
{
    static const uint32_t lengths[] = { 3, 17, 1, 64, 200, 33, 5, 32, 90, 2 };
    for (uint32_t k = 0; k < lengths[i % 10]; k++) ids[k] = (k * 7 + i * 5 + k * k % 13) % TOKENS;
    return lengths[i % 10];
}

static float alone[TEXTS][WIDTH];

static void make_alone(void)
{
    struct test_model t = open_model(device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = 256 });
    struct session *s;
    uint32_t ids[CONTEXT];
    ok(session_open(t.m, &s, &test_err));
    assert_int_equal(t.m->program->embedding_width, WIDTH);
    for (uint32_t i = 0; i < TEXTS; i++) {
        session_reset(s);
        const uint32_t n = make_text(i, ids);
        ok(session_feed(s, ids, n, ROW_PROMPT, 0, NULL, &test_err));
        memcpy(alone[i], session_embedding(s), sizeof alone[i]);
    }
    session_close(s);
    test_unload(&t);
}

/* Texts [from, to) as a job. */
static struct job *submit(struct engine *e, const char *id, uint32_t from, uint32_t to, uint64_t owner)
{
    static uint32_t ids[TEXTS * CONTEXT], ends[TEXTS];
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) {
        n += make_text(i, ids + n);
        ends[i - from] = n;
    }
    const struct engine_job spec = {
        .id = id, .prompt = ids, .n_prompt = n, .text_ends = ends, .n_texts = to - from, .owner = owner
    };
    return test_submit_spec(e, &spec);
}

static enum job_end end_of(struct job *j)
{
    enum job_end end;
    uint32_t id;
    assert_int_equal(test_read(j, &id, 1, &end), 0);
    return end;
}

static void check_rows(struct job *j, uint32_t from, uint32_t to)
{
    struct job_figures f;
    assert_int_equal(end_of(j), JOB_STOP);
    for (uint32_t i = from; i < to; i++)
        if (memcmp(job_pooled(j, i - from), alone[i], sizeof alone[i]) != 0) fail_msg("text %u: another row", i);
    job_figures(j, &f);
    assert_int_equal(f.n_generated, 0);
    job_release(j);
}

/* One job of all texts, jobs of one text each, and both beside each other, in steps of every size. */
static void test_rows(void **state)
{
    (void)state;
    static const struct {
        uint32_t sequences, rows, most;
    } cases[] = { { 1, 256, 256 }, { 4, 256, 64 }, { 16, 512, 512 }, { 3, 64, 16 } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct test_model t =
            open_model(test_device(1, UINT64_MAX),
                       (struct device_options){ .max_sequences = 2 * cases[c].sequences, .max_rows = cases[c].rows });
        struct engine *e = test_engine(
            t.m, (struct engine_options){ .max_sequences = cases[c].sequences, .max_batch_tokens = cases[c].most });
        struct job *jobs[TEXTS], *all = submit(e, "all", 0, TEXTS, 7);
        struct engine_stats stats;
        char name[16];
        for (uint32_t i = 0; i < TEXTS; i++) {
            (void)snprintf(name, sizeof name, "t%u", i);
            jobs[i] = submit(e, name, i, i + 1, i % 3);
        }
        for (uint32_t i = 0; i < TEXTS; i++) check_rows(jobs[i], i, i + 1);
        check_rows(all, 0, TEXTS);
        engine_stats(e, &stats);
        assert_int_equal(stats.ended[JOB_STOP], TEXTS + 1);
        assert_int_equal(stats.generated_tokens, 0);
        assert_int_equal(stats.step_rows, stats.prompt_tokens);
        if (cases[c].sequences > 1) assert_true(stats.steps < 2 * TEXTS); /* texts were together */
        engine_close(e);
        test_unload(&t);
    }
}

/* Pairs of texts, whose second one's tokens have the type 1: in one job and in jobs of one pair each, the scores of the
 * pair alone; and other ones than of the same tokens without types. */
static void test_pairs(void **state)
{
    (void)state;
    enum { PAIRS = 10, SCORES = 3 };
    struct test_model t = test_file(device_cpu(), golden_file(path, "bert-rank.gguf"),
                                    (struct device_options){ .max_sequences = 8, .max_rows = 256 });
    static uint32_t ids[PAIRS * CONTEXT], ends[PAIRS], seconds[PAIRS];
    float want[PAIRS][SCORES];
    struct session *s;
    struct job *jobs[PAIRS], *all, *plain;
    uint32_t n = 0;
    ok(session_open(t.m, &s, &test_err));
    for (uint32_t i = 0; i < PAIRS; i++) {
        const uint32_t length = make_text(i, ids + n);
        seconds[i] = i == 3 ? 0 : i % 2 ? length / 3 : length - 1;
        session_reset(s);
        ok(session_feed_pair(s, ids + n, length, seconds[i], &test_err));
        memcpy(want[i], session_embedding(s), sizeof want[i]);
        ends[i] = n += length;
    }
    session_close(s);
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 4, .max_batch_tokens = 256 });
    struct engine_job spec = { .id = "all", .prompt = ids, .n_prompt = n, .text_ends = ends, .n_texts = PAIRS };
    plain = test_submit_spec(e, &spec);
    spec.id = "pairs", spec.text_seconds = seconds;
    all = test_submit_spec(e, &spec);
    for (uint32_t i = 0; i < PAIRS; i++) {
        const uint32_t from = i ? ends[i - 1] : 0, length = ends[i] - from;
        char name[16];
        (void)snprintf(name, sizeof name, "p%u", i);
        const struct engine_job one = { .id = name,
                                        .prompt = ids + from,
                                        .n_prompt = length,
                                        .text_ends = &length,
                                        .n_texts = 1,
                                        .text_seconds = &seconds[i] };
        jobs[i] = test_submit_spec(e, &one);
    }
    assert_int_equal(end_of(all), JOB_STOP);
    assert_int_equal(end_of(plain), JOB_STOP);
    for (uint32_t i = 0; i < PAIRS; i++) {
        assert_int_equal(end_of(jobs[i]), JOB_STOP);
        assert_memory_equal(job_pooled(jobs[i], 0), want[i], sizeof want[i]);
        assert_memory_equal(job_pooled(all, i), want[i], sizeof want[i]);
        assert_int_equal(memcmp(job_pooled(plain, i), want[i], sizeof want[i]) == 0, seconds[i] == 0);
        job_release(jobs[i]);
    }
    job_release(all);
    job_release(plain);
    engine_close(e);
    test_unload(&t);
}

static void test_refused(void **state)
{
    (void)state;
    struct test_model t = open_model(test_device(1, UINT64_MAX), (struct device_options){ .max_rows = 64 });
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_batch_tokens = 64 });
    static uint32_t ids[2 * CONTEXT];
    struct job *j;
    /* The context's tokens are one step, whatever was asked for. */
    assert_int_equal(engine_text_most(e), CONTEXT);
    struct engine_job spec = { .id = "x", .prompt = ids, .n_prompt = CONTEXT + 1 };
    const uint32_t too_long[] = { CONTEXT + 1 }, falling[] = { 5, 5, 10 }, beyond[] = { 5, 11 }, short_of[] = { 4 },
                   whole[] = { CONTEXT };
    assert_int_equal(engine_submit(e, &spec, &j, &test_err), SUBMIT_INVALID);
    assert_non_null(strstr(test_text, "generates nothing"));
    spec.text_ends = too_long, spec.n_texts = 1;
    assert_int_equal(engine_submit(e, &spec, &j, &test_err), SUBMIT_CONTEXT);
    spec.n_prompt = 10;
    spec.text_ends = falling, spec.n_texts = 3;
    assert_int_equal(engine_submit(e, &spec, &j, &test_err), SUBMIT_INVALID);
    spec.text_ends = beyond, spec.n_texts = 2;
    assert_int_equal(engine_submit(e, &spec, &j, &test_err), SUBMIT_INVALID);
    spec.text_ends = short_of, spec.n_texts = 1;
    assert_int_equal(engine_submit(e, &spec, &j, &test_err), SUBMIT_INVALID);
    spec.n_prompt = CONTEXT, spec.text_ends = whole;
    j = test_submit_spec(e, &spec);
    assert_int_equal(end_of(j), JOB_STOP);
    job_release(j);
    ids[3] = TOKENS;
    assert_int_equal(engine_submit(e, &spec, &j, &test_err), SUBMIT_INVALID);
    engine_close(e);
    test_unload(&t);
    /* An engine that generates takes no texts. */
    t = test_llama(test_device(1, UINT64_MAX), (struct device_options){ 0 }, 2);
    e = test_engine(t.m, (struct engine_options){ 0 });
    const struct test_job job = test_make(0);
    struct engine_job text = test_spec(&job, "x");
    text.text_ends = &text.n_prompt, text.n_texts = 1;
    assert_int_equal(engine_text_most(e), 0);
    assert_int_equal(engine_submit(e, &text, &j, &test_err), SUBMIT_INVALID);
    engine_close(e);
    test_unload(&t);
}

/* Jobs that are cancelled, too late or drained end so, and the others' rows are what they are alone. */
static void test_ends(void **state)
{
    (void)state;
    struct test_model t = open_model(test_device(1, UINT64_MAX), (struct device_options){ .max_rows = 64 });
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 2, .max_batch_tokens = 64 });
    struct job *first = submit(e, "first", 0, TEXTS, 0), *second = submit(e, "second", 0, TEXTS, 1),
               *third = submit(e, "third", 0, TEXTS, 2);
    job_cancel(second);
    check_rows(first, 0, TEXTS);
    const enum job_end end = end_of(second);
    assert_true(end == JOB_CANCELLED || end == JOB_STOP); /* it may have been faster */
    job_release(second);
    check_rows(third, 0, TEXTS);
    uint32_t id = 1;
    const uint32_t one = 1;
    const struct engine_job late = {
        .id = "late", .prompt = &id, .n_prompt = 1, .text_ends = &one, .n_texts = 1, .deadline_ns = 1
    };
    struct job *j = test_submit_spec(e, &late);
    assert_int_equal(end_of(j), JOB_TIMEOUT);
    job_release(j);
    engine_drain(e);
    assert_int_equal(engine_submit(e, &late, &j, &test_err), SUBMIT_DRAINING);
    engine_close(e);
    test_unload(&t);
}

/* A step of several jobs' texts goes on until the last of them is cancelled: who cancels often keeps nobody from his
 * rows. */
static void test_cancelled_beside_others(void **state)
{
    (void)state;
    const struct timespec a_while = { .tv_nsec = 20000000 }; /* many looks of the gate */
    struct test_model t = open_model(test_device(1, 0), (struct device_options){ .max_rows = 64 });
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 4, .max_batch_tokens = 64 });
    struct job *blocks = submit(e, "blocks", 4, 5, 0); /* the first step, until all others are there */
    test_await_gate(0);
    struct job *stays = submit(e, "stays", 0, 2, 1), *leaves = submit(e, "leaves", 5, 7, 2);
    test_permit(1);
    test_await_gate(1);
    check_rows(blocks, 4, 5);
    job_cancel(leaves);
    job_cancel(leaves);
    (void)nanosleep(&a_while, NULL);
    assert_int_equal(test_control.cancelled, 0);
    test_permit(UINT64_MAX);
    check_rows(stays, 0, 2);
    assert_int_equal(test_control.cancelled, 0);
    (void)end_of(leaves); /* its texts may have been in that step */
    job_release(leaves);
    engine_close(e);
    test_unload(&t);
    /* Both: the step stops, and no other is let through. */
    t = open_model(test_device(1, 0), (struct device_options){ .max_rows = 64 });
    e = test_engine(t.m, (struct engine_options){ .max_sequences = 4, .max_batch_tokens = 64 });
    blocks = submit(e, "blocks", 4, 5, 0);
    test_await_gate(0);
    stays = submit(e, "stays", 0, 2, 1), leaves = submit(e, "leaves", 5, 7, 2);
    test_permit(1);
    test_await_gate(1);
    job_cancel(leaves);
    job_cancel(stays);
    assert_int_equal(end_of(stays), JOB_CANCELLED);
    assert_int_equal(end_of(leaves), JOB_CANCELLED);
    assert_int_equal(test_control.cancelled, 1);
    check_rows(blocks, 4, 5);
    job_release(stays);
    job_release(leaves);
    engine_close(e);
    test_unload(&t);
}

/* A step that fails ends the jobs that have texts in it, and those alone. */
static void test_failures(void **state)
{
    (void)state;
    static const struct {
        wk_status status;
        enum job_end end;
    } cases[] = { { WK_INTERNAL, JOB_FAILED }, { WK_NO_MEMORY, JOB_NO_MEMORY } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct test_model t = open_model(test_device(1, 0), (struct device_options){ .max_rows = 64 });
        struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 1, .max_batch_tokens = 64 });
        test_control.fail_at = 2;
        test_control.fail_with = cases[c].status;
        struct job *fails = submit(e, "fails", 3, TEXTS, 0), *next = submit(e, "next", 0, TEXTS, 0);
        test_permit(UINT64_MAX);
        assert_int_equal(end_of(fails), cases[c].end);
        check_rows(next, 0, TEXTS);
        job_release(fails);
        engine_close(e);
        test_unload(&t);
    }
}

/* A job of many texts gives way to another owner's that waits, and goes on where it was. */
static void test_slices(void **state)
{
    (void)state;
    struct test_model t = open_model(test_device(1, 0), (struct device_options){ .max_sequences = 3, .max_rows = 256 });
    const struct engine_options o = { .max_sequences = 1, .max_batch_tokens = 64, .timeslice_tokens = 70 };
    struct engine *e = test_engine(t.m, o);
    struct job_figures f;
    struct job *many = submit(e, "many", 0, TEXTS, 0);
    test_await_gate(0);
    struct job *one = submit(e, "one", 4, 5, 1);
    test_permit(UINT64_MAX);
    check_rows(one, 4, 5);
    job_figures(many, &f);
    assert_true(f.yields > 0);
    check_rows(many, 0, TEXTS);
    engine_close(e);
    test_unload(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows),
                                        cmocka_unit_test(test_pairs),
                                        cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_ends),
                                        cmocka_unit_test(test_cancelled_beside_others),
                                        cmocka_unit_test(test_failures),
                                        cmocka_unit_test(test_slices) };
    if (test_open_plugins()) return 1;
    make_alone();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
