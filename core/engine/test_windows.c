/* test_windows.c: models whose layers see windows of every width, and chunks, or carry states: what jobs give, what is
 * found of their prompts, and the pages' accounts. */
#include "test_widths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"
#include "model/generator.h"
#include "tape/tape.h"

enum { V = TEST_VOCAB };

/* ---- tests --------------------------------------------------------------------------------------------- */

static const struct widths all_widths[] = {
    { 1, { 1 } },
    { 1, { 2 } },
    { 1, { 33 } },
    { 2, { 40, 0 } },
    { 2, { 0, 1 } },
    { 4, { 1, 33, 64, 200 } },
    { 3, { 128, 0, 31 } },
    { 2, { TEST_CONTEXT - 1, TEST_CONTEXT } },
    { 3, { 5000, 0, 65 } },
    { 2, { UINT32_MAX, 34 } },
    { 1, { 0 } },
    { 1, { CHUNK(32) } },
    { 2, { CHUNK(128), 0 } },
    { 4, { CHUNK(96), 33, 0, CHUNK(64) } },
    { 2, { 40, CHUNK(UINT32_MAX - 31) } },
    { 1, { STATE } },
    { 2, { STATE, 0 } },
    { 4, { STATE, 33, 0, STATE } },
};
enum { ALL_WIDTHS = sizeof all_widths / sizeof *all_widths };

/* By itself, in steps of every length; planned is taken, and every page comes back. */
static void test_alone_in_chunks(void **state)
{
    (void)state;
    static const uint32_t rows[] = { TEST_CONTEXT, 64, 31, 7, 1 };
    for (uint32_t i = 0; i < ALL_WIDTHS; i++) {
        answer_all(&all_widths[i]);
        for (uint32_t r = 0; r < 5; r++) {
            struct test_model t = open_model(&all_widths[i], device_cpu(),
                                             (struct device_options){ .max_sequences = 1, .max_rows = rows[r] });
            struct memory_plan used;
            t.m->device->memory(t.m->executor, &used);
            assert_memory_equal(&used, &t.m->plan, sizeof used);
            for (uint32_t k = r; k < KINDS; k += 3) {
                const struct test_job job = make(k);
                uint32_t ids[TEST_CONTEXT];
                enum job_end end;
                assert_int_equal(test_alone(t.m, &job, ids, &end), answers[k].n);
                for (uint32_t n = 0; n < answers[k].n; n++)
                    if (ids[n] != answers[k].ids[n])
                        fail_msg("widths %u, %u rows a step, job %u: id %u is %u, expected %u", i, rows[r], k, n,
                                 ids[n], answers[k].ids[n]);
            }
            for (uint32_t g = 0; g < t.m->program->n_groups; g++)
                if (kv_bounded(kv_span(&t.m->program->groups[g], TEST_CONTEXT)))
                    assert_int_equal(t.m->session_pages[g].n, t.m->plan.kv_pages[g]);
            test_unload(&t);
        }
    }
}

/* Prompts of some beginnings, then ids up to the end of the context, through pages that others had. */
static void test_to_the_end(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALL_WIDTHS; i++) {
        struct test_model one = open_model(&all_widths[i], device_cpu(),
                                           (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
        struct test_model t = open_model(&all_widths[i], test_device(4, UINT64_MAX),
                                         (struct device_options){ .max_sequences = 3, .max_rows = 48 });
        struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
        struct job *jobs[3];
        static struct test_answer want[3];
        char name[16];
        for (uint32_t k = 0; k < 3; k++) {
            struct test_job job = make(k + 4);
            job.most = TEST_CONTEXT;
            answer(one.m, &job, &want[k]);
            (void)snprintf(name, sizeof name, "%u", k);
            jobs[k] = test_submit(e, name, &job, 0, 0);
        }
        for (uint32_t k = 0; k < 3; k++) test_check(jobs[k], "to the end", &want[k], false);
        assert_true(engine_call(e, take_accounts, e));
        test_wait_idle(e);
        engine_close(e);
        test_unload(&t);
        test_unload(&one);
    }
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

struct setup {
    uint32_t ahead, sequences, slots, rows, kv;
    struct engine_options o;
}; /* kv: hundredths of the cache for `slots` sequences; 0: that, whole */
static const struct setup setups[] = {
    { 1, 6, 12, 64, 0, { .prefix_cache = true } },
    { 4, 8, 16, 96, 30, { .prefix_cache = true, .preempt = true, .high_priority = 3, .timeslice_tokens = 4 } },
    { 2, 4, 9, 40, 45, { .preempt = true, .high_priority = 2 } },
    { 3, 5, 20, 200, 25, { .prefix_cache = true, .preempt = true, .high_priority = 1, .timeslice_tokens = 2 } },
    { 3,
      5,
      20,
      200,
      25,
      { .prefix_cache = true, .eviction = EVICT_CLOCK, .preempt = true, .high_priority = 1, .timeslice_tokens = 2 } },
};

/* Jobs in a random order, priorities, slices, preemption, too few pages, cached prompts, some that are ended at random;
 * accounts at random. Returns how many prompt tokens were found. */
static uint64_t mix(const struct widths *w, const struct setup *s, uint64_t seed)
{
    enum { JOBS = 40 };
    struct device_options dev = { .max_sequences = s->slots, .max_rows = s->rows };
    struct test_model t = open_model(w, test_device(s->ahead, UINT64_MAX), dev);
    dev.kv_bytes = t.m->plan.bytes[MEMORY_KV] * s->kv / 100;
    if (s->kv) test_unload(&t), t = open_model(w, test_device(s->ahead, UINT64_MAX), dev);
    struct engine_options o = s->o;
    o.max_sequences = s->sequences;
    o.max_queue = 200;
    struct engine *e = test_engine(t.m, o);
    struct {
        struct job *job;
        uint32_t kind;
        bool cut;
    } jobs[JOBS];
    struct engine_stats stats;
    char name[32];
    for (uint32_t i = 0; i < JOBS; i++) {
        const uint32_t dice = next_random(&seed) % 8;
        jobs[i].kind = next_random(&seed) % KINDS;
        jobs[i].cut = false;
        const struct test_job job = make(jobs[i].kind);
        (void)snprintf(name, sizeof name, "%u", i);
        jobs[i].job = test_submit(e, name, &job, (int32_t)(next_random(&seed) % 6), 0);
        if (dice < 3) assert_true(engine_call(e, take_accounts, e));
        if (dice != 3) continue;
        const uint32_t victim = next_random(&seed) % (i + 1);
        jobs[victim].cut = true;
        job_cancel(jobs[victim].job);
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        (void)snprintf(name, sizeof name, "job %u of kind %u", i, jobs[i].kind);
        test_check(jobs[i].job, name, &answers[jobs[i].kind], jobs[i].cut);
        if (i % 4 == 0) assert_true(engine_call(e, take_accounts, e));
    }
    test_wait_idle(e);
    assert_true(engine_call(e, take_accounts, e));
    engine_stats(e, &stats);
    engine_close(e);
    test_unload(&t);
    return stats.cached_tokens;
}

static void test_mixes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALL_WIDTHS; i++) {
        uint64_t found = 0;
        answer_all(&all_widths[i]);
        for (uint32_t k = 0; k < sizeof setups / sizeof *setups; k++)
            for (uint64_t seed = 1; seed <= 3; seed++)
                found += mix(&all_widths[i], &setups[k], seed * 977 + i * 31 + k);
        assert_true(found > 0);
    }
}

/* ---- prefixes ------------------------------------------------------------------------------------------ */

/* A prompt of n tokens; those from `same` on are of another kind. */
static struct test_job prompt(uint32_t n, uint32_t same, uint32_t kind)
{
    struct test_job t = { .n = n,
                          .most = 12,
                          .params = { .temperature = 0.8f, .top_p = 1, .repetition_penalty = 1, .seed = n + kind } };
    for (uint32_t i = 0; i < n; i++) t.tokens[i] = (i * 5 + i / 7 + (i >= same ? 13 * kind : 0)) % V;
    return t;
}

static void expect(struct engine *e, struct model *alone, const struct test_job *t, uint32_t cached)
{
    uint32_t ids[TEST_CONTEXT];
    static struct test_answer want;
    enum job_end end;
    struct job_figures f;
    struct job *j = test_submit(e, "j", t, 0, 0);
    const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end);
    answer(alone, t, &want);
    job_figures(j, &f);
    job_release(j);
    if (f.n_cached != cached) fail_msg("prompt of %u: %u tokens found, expected %u", t->n, f.n_cached, cached);
    assert_int_equal(n, want.n);
    assert_memory_equal(ids, want.ids, n * sizeof *ids);
    assert_true(engine_call(e, take_accounts, e));
}

/* Room for all: whatever was computed can be gone on from at any page; states where a step ended, 64 rows each, and at
 * the last page before a prompt's last row. */
static void test_prefixes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALL_WIDTHS; i++) {
        struct test_model one = open_model(&all_widths[i], device_cpu(),
                                           (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
        struct test_model t = open_model(&all_widths[i], test_device(4, UINT64_MAX),
                                         (struct device_options){ .max_sequences = 1, .kv_sequences = 60 });
        struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
        const struct test_job long_one = prompt(230, 230, 0), branch = prompt(150, 100, 1), few = prompt(64, 64, 0),
                              whole = prompt(224, 224, 0);
        expect(e, one.m, &long_one, 0);
        expect(e, one.m, &long_one, 224);
        struct test_job salted = long_one;
        salted.salt.word[1] = 1;
        expect(e, one.m, &salted, 0);
        expect(e, one.m, &salted, 224);
        expect(e, one.m, &whole, 192);
        expect(e, one.m, &branch, has_states(&all_widths[i]) ? 64 : 96);
        expect(e, one.m, &branch, 128);
        expect(e, one.m, &few, 0);
        expect(e, one.m, &few, 32);
        test_wait_idle(e);
        engine_close(e);
        test_unload(&t);
        test_unload(&one);
    }
}

static struct job *submit_after(struct engine *e, const char *id, const struct test_job *t, struct job *after)
{
    const struct engine_job spec = {
        .id = id, .prompt = t->tokens, .n_prompt = t->n, .max_tokens = t->most, .params = &t->params, .after = after
    };
    struct job *j;
    assert_int_equal(engine_submit(e, &spec, &j, &test_err), SUBMIT_OK);
    return j;
}

/* Several answers to a prompt: the first reads it, the others go on from the state at its last page, whether its end is
 * a page's or not; each has a state of its own from there on. */
static void test_state_forks(void **state)
{
    (void)state;
    enum { FORKS = 5 };
    static const struct widths w = { 2, { STATE, STATE } };
    static const uint32_t lengths[] = { 200, 192, 33, 65, 64 };
    struct test_model one =
        open_model(&w, device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3)
        for (uint32_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            struct test_model t = open_model(&w, test_device(ahead, UINT64_MAX), (struct device_options){ 0 });
            struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
            struct test_job job = prompt(lengths[k], 0, k);
            struct job *jobs[FORKS];
            static struct test_answer want[FORKS];
            job.most = 70;
            for (uint32_t i = 0; i < FORKS; i++) {
                const char name[] = { (char)('a' + i), 0 };
                job.params.seed = 100 + i;
                answer(one.m, &job, &want[i]);
                jobs[i] = submit_after(e, name, &job, i ? jobs[0] : NULL);
            }
            assert_true(engine_call(e, take_accounts, e));
            for (uint32_t i = FORKS; i-- > 0;) {
                struct job_figures f;
                uint32_t ids[TEST_CONTEXT];
                enum job_end end;
                assert_int_equal(test_read(jobs[i], ids, TEST_CONTEXT, &end), want[i].n);
                assert_memory_equal(ids, want[i].ids, want[i].n * sizeof *ids);
                job_figures(jobs[i], &f);
                assert_int_equal(f.n_cached, i ? (lengths[k] - 1) / KV_PAGE * KV_PAGE : 0);
            }
            for (uint32_t i = FORKS; i-- > 0;) job_release(jobs[i]);
            test_wait_idle(e);
            assert_true(engine_call(e, take_accounts, e));
            engine_close(e);
            test_unload(&t);
        }
    test_unload(&one);
}

/* With two pages chunks go from one to the other, and a job never waits; a model with one page of states is
 * refused. */
static void test_few_state_pages(void **state)
{
    (void)state;
    static const struct widths w = { 2, { STATE, STATE } };
    struct test_model one =
        open_model(&w, device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
    struct device_options dev = { .max_sequences = 1, .max_rows = 70 };
    struct test_model t = open_model(&w, test_device(4, UINT64_MAX), dev);
    const uint64_t page = t.m->plan.kv_page_bytes[0];
    assert_int_equal(t.m->plan.kv_pages[0], 3);
    test_unload(&t);
    for (uint32_t pages = 2; pages <= 4; pages++) {
        dev.kv_bytes = pages * page;
        t = open_model(&w, test_device(4, UINT64_MAX), dev);
        assert_int_equal(t.m->plan.kv_pages[0], pages);
        struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
        struct engine_stats s;
        for (uint32_t k = 0; k < 6; k++) {
            const struct test_job job = prompt(60 + 33 * k, 0, k);
            expect(e, one.m, &job, 0);
        }
        const struct test_job last = prompt(60 + 33 * 5, 0, 5);
        expect(e, one.m, &last, 224);
        engine_stats(e, &s);
        assert_true(s.pages_cached <= pages);
        test_wait_idle(e);
        engine_close(e);
        test_unload(&t);
    }
    struct memory_plan plan;
    struct test_model again = open_model(&w, device_cpu(), (struct device_options){ .max_sequences = 1 });
    struct device_options few = again.m->dev;
    few.kv_bytes = 2 * page - 1;
    assert_int_equal(device_cpu()->plan(again.m->program, &few, &plan, &test_err), WK_INVALID);
    assert_non_null(strstr(test_text, "holds a state of a sequence once, not twice"));
    few.kv_bytes = strtoull(strstr(test_text, "at least ") + 9, NULL, 10);
    assert_int_equal(few.kv_bytes, 2 * page);
    assert_int_equal(device_cpu()->plan(again.m->program, &few, &plan, &test_err), WK_OK);
    few.kv_bytes = page - 1;
    assert_int_equal(device_cpu()->plan(again.m->program, &few, &plan, &test_err), WK_INVALID);
    assert_non_null(strstr(test_text, "holds no page of 32 positions"));
    test_unload(&again);
    test_unload(&one);
}

/* A window's pages have an order of their own: what is behind it goes first, and a prompt can be gone on from where its
 * last ones are still there. */
static void test_eviction(void **state)
{
    (void)state;
    static const struct widths w = { 2, { 40, 0 } };
    struct test_model one =
        open_model(&w, device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
    struct test_model t =
        open_model(&w, test_device(1, UINT64_MAX), (struct device_options){ .max_sequences = 1, .max_rows = 32 });
    struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
    struct engine_stats s;
    assert_int_equal(t.m->plan.kv_pages[0], 3 + 1);
    assert_int_equal(t.m->plan.kv_pages[1], 13);
    const struct test_job a = prompt(129, 0, 1), b = prompt(65, 0, 2), a_part = prompt(97, 0, 1);
    expect(e, one.m, &a, 0);
    engine_stats(e, &s);
    /* 129 + 11 positions were 5 pages: blocks 1 to 4 of the window had its 4, and block 4 is no whole page of the
     * prompt. */
    assert_int_equal(s.pages_cached, 3 + 4);
    assert_int_equal(s.prefix_evicted_pages, 1);
    expect(e, one.m, &a_part, 96); /* blocks 1 and 2 are what position 96 sees */
    expect(e, one.m, &a, 128);     /* and 2 and 3, position 128 */
    expect(e, one.m, &b, 0);       /* takes most of them */
    engine_stats(e, &s);
    assert_int_equal(s.pages_cached, 2 + 1 + 4 + 2);
    expect(e, one.m, &b, 64);
    expect(e, one.m, &a, 0); /* the chain is there, its windows are not */
    expect(e, one.m, &a, 128);
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
    test_unload(&one);
}

/* What is behind a chunk is given back and goes first, and a prompt can be gone on from wherever the pages of its own
 * chunk are there: from a chunk's beginning without any. */
static void test_chunk_eviction(void **state)
{
    (void)state;
    static const struct widths w = { 2, { CHUNK(64), 0 } };
    struct test_model one =
        open_model(&w, device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
    struct test_model t =
        open_model(&w, test_device(1, UINT64_MAX), (struct device_options){ .max_sequences = 1, .max_rows = 32 });
    struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true });
    struct engine_stats s;
    assert_int_equal(t.m->plan.kv_pages[0], 2 + 1);
    assert_int_equal(t.m->plan.kv_pages[1], 13);
    const struct test_job a = prompt(141, 0, 1), b = prompt(65, 0, 2), part = prompt(97, 0, 1);
    expect(e, one.m, &a, 0);
    engine_stats(e, &s);
    /* 141 + 11 positions are 5 pages, of which 3 are there at a time: blocks 2 and 3 of the chunked layer are kept. */
    assert_int_equal(s.pages_cached, 2 + 4);
    assert_int_equal(s.prefix_evicted_pages, 2);
    expect(e, one.m, &a, 128); /* the beginning of a chunk: it sees no page */
    expect(e, one.m, &part, 96);
    expect(e, one.m, &b, 0);
    expect(e, one.m, &b, 64);
    expect(e, one.m, &part, 64); /* its chain is there, block 2 is not */
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
    test_unload(&one);
}

/* A chunk is not found before its step was collected; of a job that fails it never is, nor by one that begins while the
 * rest of it is in flight. */
static void test_failed_prompt(void **state)
{
    (void)state;
    static const struct widths w = { 2, { 40, 0 } };
    struct test_model one =
        open_model(&w, device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
    struct test_model t = open_model(&w, test_device(4, 0), (struct device_options){ .max_sequences = 4 });
    struct engine *e = test_engine(t.m, (struct engine_options){ .prefix_cache = true, .max_batch_tokens = 64 });
    const struct test_job a = prompt(230, 230, 0), first = prompt(230, 0, 7);
    enum job_end end;
    uint32_t ids[TEST_CONTEXT];
    struct engine_stats s;
    struct job_figures f;
    static struct test_answer want;
    answer(one.m, &a, &want);
    test_control.spoil_slot = 0;
    struct job *j = test_submit(e, "bad", &first, 0, 0);
    test_permit(UINT64_MAX);
    assert_int_equal(test_read(j, ids, TEST_CONTEXT, &end), 0);
    assert_int_equal(end, JOB_FAILED);
    job_release(j);
    test_wait_idle(e);
    assert_true(engine_call(e, take_accounts, e));
    engine_stats(e, &s);
    assert_int_equal(s.pages_cached, 0);
    test_control.permits = 0;
    j = test_submit(e, "bad", &a, 0, 0);
    test_await_gate(test_control.begun);
    struct job *good = test_submit(e, "good", &a, 0, 0);
    test_permit(UINT64_MAX);
    assert_int_equal(test_read(j, ids, TEST_CONTEXT, &end), 0);
    assert_int_equal(end, JOB_FAILED);
    job_release(j);
    assert_int_equal(test_read(good, ids, TEST_CONTEXT, &end), want.n);
    assert_memory_equal(ids, want.ids, want.n * sizeof *ids);
    job_figures(good, &f);
    assert_int_equal(f.n_cached, 0);
    job_release(good);
    test_control.spoil_slot = UINT32_MAX;
    assert_true(engine_call(e, take_accounts, e));
    expect(e, one.m, &a, 224);
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
    test_unload(&one);
}

/* Nothing is generated by a model whose rows see both directions, and its prompts are one step. */
static void test_both_directions(void **state)
{
    (void)state;
    static const struct widths w = { 2, { 0, 40 } };
    enum { ROWS = 70 };
    recorded_flags = WK_ATTENTION_BIDIRECTIONAL;
    struct test_model t = open_model(&w, device_cpu(), (struct device_options){ .max_sequences = 2, .max_rows = ROWS });
    recorded_flags = 0;
    struct engine *e;
    struct generator *g;
    struct session *s;
    const struct test_job job = prompt(ROWS + 1, 230, 0);
    float whole[2 * V], again[ROWS * V];
    const struct engine_options o = { .max_sequences = 2, .max_batch_tokens = ROWS, .max_queue = 1 };
    assert_int_equal(engine_open(t.m, &o, &e, &test_err), WK_UNSUPPORTED);
    assert_non_null(strstr(test_text, "windows attends in both directions: it generates nothing"));
    assert_int_equal(generator_open(t.m, 1, &g, &test_err), WK_UNSUPPORTED);
    assert_non_null(strstr(test_text, "windows attends in both directions: it generates nothing"));
    ok(session_open(t.m, &s, &test_err));
    assert_int_equal(session_feed(s, job.tokens, ROWS + 1, ROW_PROMPT, 1, whole, &test_err), WK_INVALID);
    assert_non_null(strstr(test_text, "a prompt is one step, which has at most 70 rows, not 71"));
    ok(session_feed(s, job.tokens, ROWS, ROW_PROMPT, 2, whole, &test_err));
    assert_int_equal(session_feed(s, job.tokens, 1, ROW_GENERATED, 1, again, &test_err), WK_INVALID);
    assert_non_null(strstr(test_text, "a prompt is one step, 70 tokens of it came before"));
    session_reset(s);
    ok(session_feed(s, job.tokens, ROWS, ROW_PROMPT, ROWS, again, &test_err));
    assert_memory_equal(whole, again + (size_t)(ROWS - 2) * V, sizeof whole);
    session_reset(s);
    /* The last row is seen by the first. */
    ok(session_feed(s, job.tokens, ROWS - 1, ROW_PROMPT, ROWS - 1, again + V, &test_err));
    assert_memory_not_equal(again, again + V, V * sizeof *again);
    session_close(s);
    assert_int_equal(t.m->session_pages[1].n, t.m->plan.kv_pages[1]);
    test_unload(&t);
}

int main(void)
{
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_in_chunks), cmocka_unit_test(test_to_the_end),
        cmocka_unit_test(test_mixes),           cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_eviction),        cmocka_unit_test(test_state_forks),
        cmocka_unit_test(test_few_state_pages), cmocka_unit_test(test_chunk_eviction),
        cmocka_unit_test(test_failed_prompt),   cmocka_unit_test(test_both_directions)
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
