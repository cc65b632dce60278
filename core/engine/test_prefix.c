/* test_prefix.c: prompts that begin as earlier ones did: what is found, counted, evicted; the ids are
 * those of a miss. */
#include "engine/internal.h"
#include "test_jobs.h"

#include <stdio.h>
#include <string.h>

static struct test_model model;
static struct engine *engine;

/* A prompt of n tokens; those from `same` on are of another kind. */
static struct test_job prompt(uint32_t n, uint32_t same, uint32_t kind)
{
    struct test_job t = { .n = n,
                          .most = 12,
                          .params = { .temperature = 0.8f, .top_p = 1, .repetition_penalty = 1, .seed = n + kind } };
    for (uint32_t i = 0; i < n; i++) t.tokens[i] = (i * 5 + i / 7 + (i >= same ? 13 * kind : 0)) % TEST_VOCAB;
    return t;
}

static enum engine_eviction eviction;

static void open_all(uint32_t ahead, uint64_t kv_pages, bool cache)
{
    model = test_llama(test_device(ahead, UINT64_MAX), (struct device_options){ .max_sequences = 4 }, 2);
    if (kv_pages) {
        const uint64_t page = model.m->plan.bytes[MEMORY_KV] / model.m->plan.kv_pages[0];
        test_unload(&model);
        model = test_llama(test_device(ahead, UINT64_MAX),
                           (struct device_options){ .max_sequences = 4, .kv_bytes = kv_pages * page }, 2);
        assert_int_equal(model.m->plan.kv_pages[0], kv_pages);
    }
    engine = test_engine(model.m, (struct engine_options){ .prefix_cache = cache, .eviction = eviction });
}

static void close_all(void)
{
    test_wait_idle(engine);
    engine_close(engine);
    test_unload(&model);
}

static struct model *reference(struct test_model *t)
{
    *t = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    return t->m;
}

/* Runs a job; what is found of its prompt, and its ids against those it gives alone. */
static void expect(struct model *alone, const struct test_job *t, uint32_t cached)
{
    uint32_t ids[TEST_CONTEXT], want[TEST_CONTEXT];
    enum job_end end, want_end;
    struct job_figures f;
    struct job *j = test_submit(engine, "j", t, 0, 0);
    const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end), m = test_alone(alone, t, want, &want_end);
    job_figures(j, &f);
    job_release(j);
    if (f.n_cached != cached) fail_msg("prompt of %u: %u tokens found, expected %u", t->n, f.n_cached, cached);
    assert_true(n == m && end == want_end);
    assert_memory_equal(ids, want, n * sizeof *ids);
}

static void counters(uint64_t full, uint64_t partial, uint64_t misses, uint64_t tokens, uint64_t kept)
{
    struct engine_stats s;
    test_wait_idle(engine);
    engine_stats(engine, &s);
    assert_int_equal(s.prefix_full_hits, full);
    assert_int_equal(s.prefix_partial_hits, partial);
    assert_int_equal(s.prefix_misses, misses);
    assert_int_equal(s.cached_tokens, tokens);
    assert_int_equal(s.pages_cached, kept);
}

static void test_hits(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        const struct test_job long_one = prompt(230, 230, 0), branch = prompt(150, 100, 1), early = prompt(230, 3, 2),
                              few = prompt(64, 64, 0), more = prompt(65, 65, 0), whole = prompt(224, 224, 0),
                              tiny = prompt(32, 32, 0);
        open_all(ahead, 0, true);
        expect(alone, &long_one, 0);
        counters(0, 0, 1, 0, 7);
        expect(alone, &long_one, 224);
        counters(1, 0, 1, 224, 7);
        expect(alone, &whole, 192); /* its last page too is there, but the last row has to run */
        counters(2, 0, 1, 416, 7);
        expect(alone, &branch, 96);
        counters(2, 1, 1, 512, 8);
        expect(alone, &branch, 128);
        counters(3, 1, 1, 640, 8);
        expect(alone, &early, 0);
        counters(3, 1, 2, 640, 15);
        /* The same tokens in rows of another class are another page. */
        expect(alone, &more, 64);
        expect(alone, &few, 0);
        counters(4, 1, 3, 704, 17);
        expect(alone, &few, 32);
        counters(5, 1, 3, 736, 17);
        expect(alone, &tiny, 0); /* no page before its last token: nothing to look for */
        counters(5, 1, 3, 736, 17);
        close_all();
    }
    test_unload(&t);
}

/* Jobs of one beginning at once: pages that two compute are held twice, kept once. */
static void test_shared(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    open_all(4, 0, true);
    struct test_answer want[6];
    struct job *jobs[6];
    struct test_job made[6];
    char name[16];
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 6; i++) {
            made[i] = prompt(200 + i, i % 2 ? 150 : 230, i + 1);
            want[i].n = test_alone(alone, &made[i], want[i].ids, &want[i].end);
        }
        for (uint32_t i = 0; i < 6; i++)
            (void)snprintf(name, sizeof name, "%u", i), jobs[i] = test_submit(engine, name, &made[i], 0, 0);
        for (uint32_t i = 0; i < 6; i++) test_check(jobs[i], "shared", &want[i], false);
        test_wait_idle(engine);
    }
    close_all();
    test_unload(&t);
}

/* A cache of 10 pages: what was used last stays, the lowest pages go first, and no job is refused for kept pages. */
static void test_eviction(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    struct engine_stats s;
    const struct test_job a = prompt(100, 0, 1), b = prompt(100, 0, 2), c = prompt(100, 0, 3), all = prompt(300, 0, 4);
    open_all(1, 10, true);
    expect(alone, &a, 0);
    expect(alone, &b, 0);
    counters(0, 0, 2, 0, 6);
    expect(alone, &a, 96); /* b is older now */
    expect(alone, &c, 0);  /* 4 pages: all free ones */
    counters(1, 0, 3, 96, 9);
    expect(alone, &all, 0); /* 10 pages: everything goes */
    counters(1, 0, 4, 96, 9);
    engine_stats(engine, &s);
    assert_int_equal(s.prefix_evicted_pages, 9);
    expect(alone, &a, 0); /* takes the 3 lowest pages of `all`, 1 was free */
    engine_stats(engine, &s);
    assert_int_equal(s.prefix_evicted_pages, 12);
    const struct test_job beginning = prompt(200, 0, 4);
    expect(alone, &beginning, 192);
    close_all();
    test_unload(&t);
}

/* A prompt that came twice stays by Clock, though others came later; by LRU it goes, for its last use is oldest. What
 * has something below it never goes first. */
static void test_clock(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    const struct test_job often = prompt(100, 0, 1),
                          once[] = { prompt(100, 0, 2), prompt(100, 0, 3), prompt(100, 0, 4) };
    for (int i = 0; i < 2; i++) {
        eviction = i ? EVICT_CLOCK : EVICT_LRU;
        open_all(1, 10, true);
        expect(alone, &often, 0);
        expect(alone, &often, 96);
        for (size_t k = 0; k < sizeof once / sizeof *once; k++) expect(alone, &once[k], 0); /* 3 pages stay of each */
        expect(alone, &often, i ? 96 : 0);
        /* A chance each time that it is used, not for good: enough others push it out. */
        for (uint32_t k = 5; k < 15; k++) {
            const struct test_job other = prompt(100, 0, k);
            expect(alone, &other, 0);
        }
        expect(alone, &often, 0);
        close_all();
    }
    eviction = EVICT_LRU;
    test_unload(&t);
}

static struct test_job salted(const struct test_job *t, uint64_t low, uint64_t high)
{
    struct test_job out = *t;
    out.salt = (struct engine_salt){ { low, high } };
    return out;
}

/* A prompt is found under its own salt alone, each word of which counts; the common one is a salt like any other. */
static void test_salts(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    const struct test_job a = prompt(230, 230, 0), branch = prompt(150, 100, 1), few = prompt(64, 64, 0);
    static const uint64_t salts[][2] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 1, 1 }, { UINT64_MAX, UINT64_MAX } };
    enum { SALTS = sizeof salts / sizeof *salts };
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        open_all(ahead, 60, true);
        for (uint32_t i = 0; i < SALTS; i++) {
            const struct test_job mine = salted(&a, salts[i][0], salts[i][1]);
            expect(alone, &mine, 0);
            expect(alone, &mine, 224);
        }
        counters(SALTS, 0, SALTS, SALTS * 224, SALTS * 7);
        for (uint32_t i = 0; i < SALTS; i++) {
            const struct test_job mine = salted(&branch, salts[i][0], salts[i][1]),
                                  tiny = salted(&few, salts[i][0], salts[i][1]);
            expect(alone, &mine, 96);
            expect(alone, &mine, 128);
            expect(alone, &tiny, 0);
            expect(alone, &tiny, 32);
        }
        close_all();
    }
    test_unload(&t);
}

/* Salts of one hash are told apart all the same. */
static void test_salts_of_one_hash(void **state)
{
    (void)state;
    const struct kv_span span = { 0 };
    const struct engine_salt a = { { 1, 2 } }, b = { { 1, 3 } };
    uint32_t tokens[KV_PAGE] = { 0 }, at;
    struct prefix p;
    bool added;
    ok(prefix_open(&p, 1, EVICT_LRU, &span, 1, &test_err));
    at = prefix_add(&p, &b, ROW_PROMPT, ENGINE_NONE, tokens, &added);
    const uint32_t hash = p.nodes[at].hash;
    (void)prefix_remove(&p, at);
    at = prefix_add(&p, &a, ROW_PROMPT, ENGINE_NONE, tokens, &added);
    prefix_pages(&p, at)[0] = 0;
    p.nodes[at].committed = true;
    assert_int_equal(prefix_find(&p, &a, ROW_PROMPT, tokens, 1, &at), 1);
    assert_int_not_equal(p.nodes[at].hash, hash);
    p.nodes[at].hash = hash;
    assert_int_equal(prefix_find(&p, &b, ROW_PROMPT, tokens, 1, &at), 0);
    prefix_close(&p);
}

/* Pages of one salt make place for those of another; a job with another's beginning stays out of its pages while both
 * run, and what names another job has its salt. */
static void test_salts_together(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    const struct test_job a = prompt(100, 0, 1), b = salted(&a, 5, 0), c = salted(&a, 6, 0), all = prompt(300, 0, 4);
    open_all(1, 10, true);
    expect(alone, &a, 0);
    expect(alone, &b, 0);
    expect(alone, &a, 96); /* b is older now */
    expect(alone, &c, 0);
    counters(1, 0, 3, 96, 9);
    expect(alone, &all, 0); /* 10 pages: everything goes */
    expect(alone, &b, 0);
    expect(alone, &b, 96);
    close_all();
    open_all(4, 0, true);
    struct test_answer want;
    struct job *jobs[6], *after;
    const struct test_job made = prompt(200, 0, 9);
    want.n = test_alone(alone, &made, want.ids, &want.end);
    for (uint32_t i = 0; i < 6; i++) {
        const struct test_job mine = salted(&made, i % 2, i % 3);
        const char name[] = { (char)('a' + i), '\0' };
        jobs[i] = test_submit(engine, name, &mine, 0, 0);
    }
    struct engine_job spec = { .id = "after",
                               .prompt = made.tokens,
                               .n_prompt = made.n,
                               .max_tokens = 1,
                               .params = &made.params,
                               .after = jobs[1] };
    assert_int_equal(engine_submit(engine, &spec, &after, &test_err), SUBMIT_INVALID);
    assert_non_null(strstr(test_text, "another salt"));
    spec.salt = (struct engine_salt){ { 1, 1 } };
    assert_int_equal(engine_submit(engine, &spec, &after, &test_err), SUBMIT_OK);
    job_release(after);
    for (uint32_t i = 0; i < 6; i++) test_check(jobs[i], "salted", &want, false);
    counters(0, 0, 6, 0, 36);
    close_all();
    test_unload(&t);
}

static void test_off(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    const struct test_job a = prompt(230, 0, 1);
    open_all(1, 0, false);
    expect(alone, &a, 0);
    expect(alone, &a, 0);
    counters(0, 0, 0, 0, 0);
    close_all();
    test_unload(&t);
}

/* What was in the middle of its prompt when it was cancelled has kept its whole pages. */
static void test_cancelled_prompt(void **state)
{
    (void)state;
    struct test_model t;
    struct model *alone = reference(&t);
    const struct test_job a = prompt(230, 0, 1);
    open_all(1, 0, true);
    test_control.permits = 0;
    struct job *j = test_submit(engine, "a", &a, 0, 0);
    test_permit(2); /* of 64 rows each */
    test_await_gate(2);
    job_release(j);
    test_permit(UINT64_MAX);
    test_wait_idle(engine);
    expect(alone, &a, 128);
    counters(0, 1, 1, 128, 7);
    close_all();
    test_unload(&t);
}

/* All the other tests of this file count alike by Clock, where nothing is evicted; and ids never depend on it. */
static void test_clock_hits(void **state)
{
    eviction = EVICT_CLOCK;
    test_hits(state);
    test_shared(state);
    test_cancelled_prompt(state);
    eviction = EVICT_LRU;
}

int main(void)
{
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_hits),
                                        cmocka_unit_test(test_shared),
                                        cmocka_unit_test(test_eviction),
                                        cmocka_unit_test(test_off),
                                        cmocka_unit_test(test_cancelled_prompt),
                                        cmocka_unit_test(test_clock),
                                        cmocka_unit_test(test_clock_hits),
                                        cmocka_unit_test(test_salts),
                                        cmocka_unit_test(test_salts_together),
                                        cmocka_unit_test(test_salts_of_one_hash) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
