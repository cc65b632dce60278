/* test_engine_cuda.c: the engine on a GPU: alone, among others, from kept pages, after a preemption, in slices: the
 * same ids; beside constrained jobs, too, which have theirs, and log probabilities as the logits say. The weights are
 * what they were. */
#include "test_jobs.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/module.h"
#include "model/generator.h"
#include "model/session.h"
#include "test_data.h"

enum { N = 48 };

static struct test_answer answers[N], long_answer;

/* Of lowest priority, and long: what comes later finds every place taken. */
static struct test_job long_job(void)
{
    struct test_job t = test_make(3);
    t.most = 300;
    return t;
}

static struct test_model open_path(const char *path, uint32_t sequences, uint32_t rows, uint64_t kv_bytes)
{
    return test_file(&cuda_device_ops, path,
                     (struct device_options){ .context = TEST_CONTEXT,
                                              .max_sequences = sequences,
                                              .max_rows = rows,
                                              .max_logits_rows = rows,
                                              .kv_bytes = kv_bytes });
}

static void run_all(const char *path, uint32_t sequences, uint32_t rows, uint64_t kv_bytes, struct engine_options o,
                    struct engine_stats *s)
{
    struct test_model t = open_path(path, 2 * sequences, rows, kv_bytes);
    struct job *jobs[N], *first[N];
    const struct test_job occupant = long_job();
    struct shard_handle sealed;
    char name[32], digest[65];
    assert_int_equal(t.m->device->seal(t.m->executor, NULL), WK_OK);
    t.m->device->handle(t.m->executor, &sealed);
    o.max_sequences = sequences;
    o.max_queue = 2 * N;
    struct engine *e = test_engine(t.m, o);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < sequences; i++)
            (void)snprintf(name, sizeof name, "long %u", i), first[i] = test_submit(e, name, &occupant, -1, 0);
        for (uint32_t i = 0; i < sequences; i++) test_wait_generated(first[i], 1);
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t which = (i * 5 + round) % N;
            const struct test_job job = test_make(which);
            (void)snprintf(name, sizeof name, "%u", which);
            jobs[which] = test_submit(e, name, &job, (int32_t)(i / 12), 0);
        }
        for (uint32_t i = 0; i < N; i++) {
            (void)snprintf(name, sizeof name, "job %u of %u at once", i, sequences);
            test_check(jobs[i], name, &answers[i], false);
        }
        for (uint32_t i = 0; i < sequences; i++) test_check(first[i], "a long one", &long_answer, false);
        test_wait_idle(e);
    }
    engine_stats(e, s);
    engine_close(e);
    /* read again from device memory, after two rounds of all jobs */
    assert_int_equal(t.m->device->verify(t.m->executor, digest, NULL), WK_OK);
    assert_string_equal(digest, sealed.digest);
    test_unload(&t);
}

static void test_model_file(const char *path)
{
    struct test_model single = open_path(path, 1, 128, 0);
    struct engine_stats s;
    const struct test_job occupant = long_job();
    test_answers(single.m, answers, N);
    long_answer.n = test_alone(single.m, &occupant, long_answer.ids, &long_answer.end);
    assert_int_equal(long_answer.n, 300);
    const uint64_t each = single.m->plan.bytes[MEMORY_KV];
    test_unload(&single);
    run_all(path, 1, 512, 0, (struct engine_options){ 0 }, &s);
    run_all(path, 48, 96, 0, (struct engine_options){ .prefix_cache = true }, &s);
    assert_true(s.prefix_full_hits >= 20);
    run_all(path, 8, 512, 3 * each,
            (struct engine_options){ .prefix_cache = true, .preempt = true, .high_priority = 2, .timeslice_tokens = 5 },
            &s);
    assert_true(s.preemptions > 0 && s.yields > 0 && s.resumes > 0);
    run_all(path, 9, 64, 2 * each, (struct engine_options){ .preempt = true, .high_priority = 1 }, &s);
    assert_true(s.preemptions > 0);
}

static void test_haiku(void **state)
{
    (void)state;
    test_model_file(HAIKU_MODEL);
}

static void test_haiku_moe(void **state)
{
    (void)state;
    if (!HAIKU_MOE_MODEL[0]) skip();
    test_model_file(HAIKU_MOE_MODEL);
}

/* ---- constraints and log probabilities ----------------------------------------------------------------- */

/* Ids of even and of odd numbers in turn. */
struct half {
    struct sampler_constraint c;
    uint32_t words, n;
};
static wk_status half_mask(void *user, uint64_t *bits, const struct wk_err *err)
{
    const struct half *h = user;
    (void)err;
    memset(bits, h->n % 2 ? 0xaa : 0x55, h->words * sizeof *bits);
    return WK_OK;
}
static wk_status half_accept(void *user, uint32_t id, const struct wk_err *err)
{
    struct half *h = user;
    return id % 2 == h->n++ % 2 ? WK_OK : wk_fail(err, WK_INTERNAL, "id %u was not allowed", id);
}
static void half_open(struct half *h, const struct model *m)
{
    *h = (struct half){ { h, half_mask, half_accept, NULL }, (m->program->n_vocab + 63) / 64, 0 };
}

static uint32_t constrained_alone(struct model *m, const struct test_job *t, uint32_t *ids)
{
    struct generator *g;
    struct half h;
    uint32_t n = 0, id;
    half_open(&h, m);
    ok(generator_open(m, 1, &g, &test_err));
    ok(generator_start(
        g, 0,
        &(struct generator_job){
            .params = &t->params, .prompt = t->tokens, .n_prompt = t->n, .most = t->most, .constraint = &h.c },
        &test_err));
    while (ok(generator_next(g, &id, &test_err)), id != GENERATOR_NONE) ids[n++] = id;
    generator_close(g);
    return n;
}

static void check_row(const float *logits, uint32_t n_vocab, uint32_t id, uint32_t n_top,
                      const struct sampler_prob *got)
{
    struct sampler_top top;
    struct sampler_prob want[1 + SAMPLER_MAX_TOP];
    ok(sampler_top(logits, n_vocab, id, n_top, &top, &test_err));
    sampler_probs(&top, want);
    for (uint32_t i = 0; i <= n_top; i++)
        if (got[i].id != want[i].id || got[i].rank != want[i].rank || got[i].logprob != want[i].logprob)
            fail_msg("entry %u: id %u, %.17g, expected %u, %.17g", i, got[i].id, got[i].logprob, want[i].id,
                     want[i].logprob);
}

/* The job's ids are `want`, and log probabilities of them and of its prompt those of the logits of single rows. */
static void check_probs(struct model *single, struct job *j, const struct test_job *t, const uint32_t *want, uint32_t n)
{
    const uint32_t n_vocab = single->program->n_vocab;
    struct session *s;
    struct job_event e;
    float *logits = malloc((size_t)t->n * n_vocab * sizeof *logits);
    uint32_t at = 0, n_top;
    assert_non_null(logits);
    ok(session_open(single, &s, &test_err));
    ok(session_feed(s, t->tokens, t->n, t->n <= GENERATOR_FEW ? ROW_GENERATED : ROW_PROMPT, t->n, logits, &test_err));
    const float *last = logits + (size_t)(t->n - 1) * n_vocab;
    float *row = malloc(n_vocab * sizeof *row);
    assert_non_null(row);
    while (assert_true(job_next(j, &e, -1)), e.kind != EVENT_END) {
        if (e.kind != EVENT_TOKEN) continue;
        if (at >= n || e.id != want[at]) fail_msg("id %u is %u", at, e.id);
        check_row(last, n_vocab, e.id, 20, e.probs);
        if (++at < n) ok(session_feed(s, &e.id, 1, ROW_GENERATED, 1, row, &test_err));
        last = row;
    }
    assert_int_equal(at, n);
    for (uint32_t p = 1; p < t->n; p++) {
        const struct sampler_prob *got = job_prompt_probs(j, p, &n_top);
        assert_non_null(got);
        assert_int_equal(n_top, 3);
        check_row(logits + (size_t)(p - 1) * n_vocab, n_vocab, t->tokens[p], 3, got);
    }
    session_close(s);
    free(logits);
    free(row);
    job_release(j);
}

/* Every third job is constrained, every third asks for log probabilities; all of them one prompt each, of which others
 * follow with more answers. */
static void test_asks(void **state)
{
    enum { JOBS = 24 };
    (void)state;
    static uint32_t constrained[JOBS][TEST_CONTEXT];
    struct test_model single =
        test_file(&cuda_device_ops, HAIKU_MODEL,
                  (struct device_options){
                      .context = TEST_CONTEXT, .max_sequences = 1, .max_rows = 256, .max_logits_rows = 256 });
    uint32_t n[JOBS];
    test_answers(single.m, answers, JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct test_job t = test_make(i);
        n[i] = constrained_alone(single.m, &t, constrained[i]);
    }
    static const uint32_t sequences[] = { 3, 24, 80 };
    for (uint32_t c = 0; c < 3; c++) {
        struct test_model t = open_path(HAIKU_MODEL, 2 * sequences[c], 256, 0);
        struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = sequences[c],
                                                                     .max_queue = 200,
                                                                     .prefix_cache = true,
                                                                     .timeslice_tokens = c ? 0 : 6 });
        struct half halves[JOBS];
        struct job *jobs[JOBS], *more[JOBS];
        char name[32];
        for (uint32_t i = 0; i < JOBS; i++) {
            const struct test_job job = test_make(i);
            (void)snprintf(name, sizeof name, "%u", i);
            half_open(&halves[i], t.m);
            struct engine_job spec = { .id = name,
                                       .prompt = job.tokens,
                                       .n_prompt = job.n,
                                       .max_tokens = job.most,
                                       .ends = job.ends,
                                       .n_ends = i % 3 ? 0 : job.n_ends,
                                       .params = &job.params,
                                       .constraint = i % 3 ? &halves[i].c : NULL,
                                       .probs = i % 3 == 2,
                                       .prompt_probs = i % 3 == 2,
                                       .top_n = 20,
                                       .prompt_top_n = 3 };
            if (engine_submit(e, &spec, &jobs[i], &test_err)) fail_msg("%s", test_text);
            (void)snprintf(name, sizeof name, "after %u", i);
            spec = (struct engine_job){ .id = name,
                                        .prompt = job.tokens,
                                        .n_prompt = job.n,
                                        .max_tokens = job.most,
                                        .ends = job.ends,
                                        .n_ends = job.n_ends,
                                        .params = &job.params,
                                        .after = jobs[i] };
            if (engine_submit(e, &spec, &more[i], &test_err)) fail_msg("%s", test_text);
        }
        for (uint32_t i = 0; i < JOBS; i++) {
            const struct test_job job = test_make(i);
            (void)snprintf(name, sizeof name, "job %u of %u at once", i, sequences[c]);
            test_check(more[i], name, &answers[i], false);
            struct test_answer want = { .n = n[i], .end = JOB_LENGTH };
            memcpy(want.ids, constrained[i], n[i] * sizeof *want.ids);
            if (i % 3 == 2)
                check_probs(single.m, jobs[i], &job, constrained[i], n[i]);
            else
                test_check(jobs[i], name, i % 3 ? &want : &answers[i], false);
        }
        struct engine_stats s;
        engine_stats(e, &s);
        assert_true(s.mask_wait_seconds.n > 0 && s.cached_tokens > 0);
        test_wait_idle(e);
        engine_close(e);
        test_unload(&t);
    }
    test_unload(&single);
}

static void data_stories(void **state)
{
    (void)state;
    char path[DATA_PATH_MAX];
    test_model_file(data_path(path, "stories260K/stories260K-ffn256-Q8_0.gguf"));
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1) {
        (void)fprintf(stderr, "no GPU here: skipped\n");
        return 77;
    }
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_haiku), cmocka_unit_test(test_haiku_moe),
                                        cmocka_unit_test(test_asks), cmocka_unit_test(data_stories) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
