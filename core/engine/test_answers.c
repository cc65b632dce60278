/* test_answers.c: what a job may ask for besides ids: log probabilities of ids and of its prompt, a constraint, and a
 * prompt that it shares. Each is compared with what the model's own logits say, and none of it changes anybody's ids.
 */
#include "test_jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/session.h"

enum { JOBS = 24, WORDS = (TEST_VOCAB + 63) / 64 };

static struct test_answer alone[JOBS];

static void name_of(char kind, uint32_t i, char name[16]) { (void)snprintf(name, 16, "%c%u", kind, i); }

/* ---- log probabilities --------------------------------------------------------------------------------- */

/* Logits of a job's prompt and ids, row by row, from a session that is given all of them. */
static float *logits_of(struct model *m, const struct test_job *t, const struct test_answer *a)
{
    struct session *s;
    float *logits = malloc((size_t)TEST_CONTEXT * TEST_VOCAB * sizeof *logits);
    assert_non_null(logits);
    ok(session_open(m, &s, &test_err));
    ok(session_feed(s, t->tokens, t->n, t->n <= 64 ? ROW_GENERATED : ROW_PROMPT, t->n, logits, &test_err));
    for (uint32_t i = 0; i < a->n; i++)
        ok(session_feed(s, &a->ids[i], 1, ROW_GENERATED, 1, logits + (size_t)(t->n + i) * TEST_VOCAB, &test_err));
    session_close(s);
    return logits;
}

static void check_row(const float *logits, uint32_t id, uint32_t n_top, const struct sampler_prob *got,
                      const char *what)
{
    struct sampler_top top;
    struct sampler_prob want[1 + SAMPLER_MAX_TOP];
    ok(sampler_top(logits, TEST_VOCAB, id, n_top, &top, &test_err));
    sampler_probs(&top, want);
    assert_int_equal(top.n, n_top);
    for (uint32_t i = 0; i <= n_top; i++)
        if (got[i].id != want[i].id || got[i].rank != want[i].rank || got[i].logprob != want[i].logprob)
            fail_msg("%s, entry %u: id %u, %.17g, expected %u, %.17g", what, i, got[i].id, got[i].logprob, want[i].id,
                     want[i].logprob);
}

/* Reads the job: the ids that it gives alone, each with its log probabilities. */
static void check_probs(struct job *j, const char *name, const struct test_job *t, const struct test_answer *a,
                        const float *logits, uint32_t top, uint32_t prompt_top)
{
    struct job_event event;
    uint32_t n = 0, n_top = 99;
    while (assert_true(job_next(j, &event, -1)), event.kind != EVENT_END) {
        if (event.kind != EVENT_TOKEN) continue;
        if (n >= a->n || event.id != a->ids[n]) fail_msg("%s: id %u is %u", name, n, event.id);
        assert_int_equal(event.n_top, top);
        assert_int_equal(event.probs[0].id, event.id);
        check_row(logits + (size_t)(t->n - 1 + n) * TEST_VOCAB, event.id, top, event.probs, name);
        n++;
    }
    assert_int_equal(event.end, a->end);
    assert_int_equal(n, a->n);
    assert_null(job_prompt_probs(j, 0, &n_top));
    assert_null(job_prompt_probs(j, t->n, &n_top));
    for (uint32_t p = 1; p < t->n; p++) {
        const struct sampler_prob *got = job_prompt_probs(j, p, &n_top);
        assert_non_null(got);
        assert_int_equal(n_top, prompt_top);
        check_row(logits + (size_t)(p - 1) * TEST_VOCAB, t->tokens[p], prompt_top, got, name);
    }
    job_release(j);
}

/* Every second job asks; steps are cut in every way; the second round finds cached prompts, and a priority job takes
 * pages away. */
static void test_log_probabilities(void **state)
{
    (void)state;
    static const struct {
        uint32_t ahead, sequences, rows, logits_rows, slice;
        bool cache;
    } cases[] = { { 1, 1, 64, 64, 0, false },
                  { 1, 3, 33, 3, 0, true },
                  { 4, 8, 8, 8, 3, true },
                  { 1, 8, 512, 100, 5, true },
                  { 2, 40, 64, 64, 0, false } };
    struct test_model single =
        test_llama(device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = 256 }, 2);
    float *logits[JOBS];
    test_llama_answers(alone, JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct test_job t = test_make(i);
        logits[i] = logits_of(single.m, &t, &alone[i]);
    }
    test_unload(&single);
    for (uint32_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct test_model t = test_llama(test_device(cases[c].ahead, UINT64_MAX),
                                         (struct device_options){ .max_sequences = 2 * cases[c].sequences,
                                                                  .max_rows = 512,
                                                                  .max_logits_rows = cases[c].logits_rows },
                                         2);
        struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = cases[c].sequences,
                                                                     .max_batch_tokens = cases[c].rows,
                                                                     .timeslice_tokens = cases[c].slice,
                                                                     .prefix_cache = cases[c].cache });
        for (uint32_t round = 0; round < 2; round++) {
            struct job *jobs[JOBS];
            char name[16];
            for (uint32_t i = 0; i < JOBS; i++) {
                const struct test_job job = test_make(i);
                name_of('p', i, name);
                struct engine_job spec = test_spec(&job, name);
                spec.probs = spec.prompt_probs = i % 2;
                spec.top_n = i % 21, spec.prompt_top_n = (i + 7) % 21;
                jobs[i] = test_submit_spec(e, &spec);
            }
            for (uint32_t i = 0; i < JOBS; i++) {
                const struct test_job job = test_make(i);
                name_of('p', i, name);
                if (i % 2)
                    check_probs(jobs[i], name, &job, &alone[i], logits[i], i % 21, (i + 7) % 21);
                else
                    test_check(jobs[i], name, &alone[i], false);
            }
            test_wait_idle(e);
        }
        engine_close(e);
        test_unload(&t);
    }
    for (uint32_t i = 0; i < JOBS; i++) free(logits[i]);
}

/* A prompt whose job is preempted goes on where its log probabilities end. */
static void test_preempted_prompt(void **state)
{
    (void)state;
    struct test_model t = test_llama(device_cpu(), (struct device_options){ .max_sequences = 4 }, 2);
    const uint64_t page = t.m->plan.bytes[MEMORY_KV] / t.m->plan.kv_pages[0];
    struct test_job low = test_make(8), high = test_make(5); /* 230 tokens; 150 */
    struct test_answer a, b;
    a.n = test_alone(t.m, &low, a.ids, &a.end);
    b.n = test_alone(t.m, &high, b.ids, &b.end);
    float *logits = logits_of(t.m, &low, &a);
    test_unload(&t);
    t = test_llama(
        test_device(1, 3),
        (struct device_options){ .max_sequences = 4, .max_rows = 32, .max_logits_rows = 16, .kv_bytes = 10 * page }, 2);
    struct engine *e =
        test_engine(t.m, (struct engine_options){ .max_sequences = 2, .preempt = true, .prefix_cache = true });
    struct engine_job spec = test_spec(&low, "low");
    spec.probs = spec.prompt_probs = true;
    spec.top_n = 2, spec.prompt_top_n = 3;
    struct job *first = test_submit_spec(e, &spec);
    test_await_gate(3);
    struct job *second = test_submit(e, "high", &high, 9, 0);
    test_permit(UINT64_MAX);
    test_check(second, "high", &b, false);
    check_probs(first, "low", &low, &a, logits, 2, 3);
    free(logits);
    struct engine_stats s;
    engine_stats(e, &s);
    assert_true(s.preemptions > 0);
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
}

/* ---- constraints --------------------------------------------------------------------------------------- */

/* Ids of two sets in turn; nothing after `most` ids, or an end; can be told to fail. */
struct turns {
    struct sampler_constraint c;
    uint64_t set[2];
    uint32_t n, dead_at, fail_mask_at, fail_accept_at, closed; /* UINT32_MAX: never */
};

static wk_status turns_mask(void *user, uint64_t *bits, const struct wk_err *err)
{
    struct turns *t = user;
    if (t->n == t->fail_mask_at) return wk_fail(err, WK_INTERNAL, "no mask, as told");
    memset(bits, 0, WORDS * sizeof *bits);
    bits[0] = t->n == t->dead_at ? ~UINT64_C(0) << TEST_VOCAB : t->set[t->n % 2];
    return WK_OK;
}

static wk_status turns_accept(void *user, uint32_t id, const struct wk_err *err)
{
    struct turns *t = user;
    if (!(t->set[t->n % 2] >> id & 1)) return wk_fail(err, WK_INTERNAL, "id %u was not allowed", id);
    if (t->n == t->fail_accept_at) return wk_fail(err, WK_INTERNAL, "not accepted, as told");
    t->n++;
    return WK_OK;
}

static void turns_close(void *user) { ((struct turns *)user)->closed++; }

static void turns_open(struct turns *t, uint64_t even, uint64_t odd)
{
    *t = (struct turns){ .c = { t, turns_mask, turns_accept, turns_close },
                         .set = { even, odd },
                         .dead_at = UINT32_MAX,
                         .fail_mask_at = UINT32_MAX,
                         .fail_accept_at = UINT32_MAX };
}

/* What sampler_pick says of the job's own logits, one after the other. */
static struct test_answer constrained_alone(struct model *m, const struct test_job *t, const uint64_t set[2])
{
    struct test_answer a = { .end = JOB_LENGTH };
    struct session *s;
    struct sampler *p;
    struct sampler_scratch *x;
    float logits[TEST_VOCAB];
    ok(session_open(m, &s, &test_err));
    ok(sampler_open(&t->params, TEST_VOCAB, &p, &test_err));
    ok(sampler_scratch_open(TEST_VOCAB, &x, &test_err));
    ok(session_feed(s, t->tokens, t->n, t->n <= 64 ? ROW_GENERATED : ROW_PROMPT, 1, logits, &test_err));
    for (;;) {
        uint64_t mask = set[a.n % 2];
        uint32_t id;
        for (uint32_t i = 0; i < t->n_ends && a.n < t->params.min_ids; i++) mask &= ~(UINT64_C(1) << t->ends[i]);
        ok(sampler_pick(p, x, logits, &mask, &id, &test_err));
        for (uint32_t i = 0; i < t->n_ends; i++)
            if (t->ends[i] == id) a.end = JOB_STOP;
        if (a.end == JOB_STOP) break;
        a.ids[a.n++] = id;
        ok(sampler_accept(p, id, &test_err));
        if (a.n == t->most) break;
        ok(session_feed(s, &id, 1, ROW_GENERATED, 1, logits, &test_err));
    }
    sampler_close(p);
    sampler_scratch_close(x);
    session_close(s);
    return a;
}

static const uint64_t sets[][2] = { { 0x00000f0f0f0f0f0f, 0x0000f0f0f0f0f0f0 },
                                    { 0x3, 0x2000000000000 },
                                    { ~UINT64_C(0), 0x7fffe },
                                    { 0x3ff00, 0x3ff00 } };

/* Constrained and free jobs together, in every size of batch, ahead and not, with time slices and cached prompts: each
 * gives what it gives alone. */
static void test_constraints(void **state)
{
    (void)state;
    static const struct {
        uint32_t ahead, sequences, rows, slice;
        bool cache;
    } cases[] = { { 1, 1, 64, 0, false },
                  { 1, 3, 33, 0, true },
                  { 4, 8, 8, 3, true },
                  { 3, 8, 512, 5, true },
                  { 4, 40, 64, 0, false } };
    struct test_answer want[JOBS];
    struct test_model single = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    test_llama_answers(alone, JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct test_job t = test_make(i);
        want[i] = constrained_alone(single.m, &t, sets[i % 4]);
    }
    test_unload(&single);
    for (uint32_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct test_model t =
            test_llama(test_device(cases[c].ahead, UINT64_MAX),
                       (struct device_options){ .max_sequences = 2 * cases[c].sequences, .max_rows = 512 }, 2);
        struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = cases[c].sequences,
                                                                     .max_batch_tokens = cases[c].rows,
                                                                     .timeslice_tokens = cases[c].slice,
                                                                     .prefix_cache = cases[c].cache });
        struct job *jobs[2 * JOBS];
        struct turns turns[JOBS];
        char name[16];
        for (uint32_t i = 0; i < 2 * JOBS; i++) {
            const struct test_job job = test_make(i / 2);
            name_of('c', i, name);
            struct engine_job spec = test_spec(&job, name);
            if (i % 2) {
                turns_open(&turns[i / 2], sets[i / 2 % 4][0], sets[i / 2 % 4][1]);
                spec.constraint = &turns[i / 2].c;
                spec.probs = i % 3 == 0;
            }
            jobs[i] = test_submit_spec(e, &spec);
        }
        for (uint32_t i = 0; i < 2 * JOBS; i++) {
            name_of('c', i, name);
            test_check(jobs[i], name, i % 2 ? &want[i / 2] : &alone[i / 2], false);
            if (i % 2) assert_int_equal(turns[i / 2].closed, 1);
        }
        struct engine_stats s;
        engine_stats(e, &s);
        assert_true(s.mask_wait_seconds.n > 0 && s.mask_wait_seconds.sum > 0);
        test_wait_idle(e);
        engine_close(e);
        test_unload(&t);
    }
}

/* A batch without a constrained job makes no mask and waits for none; one end a kind of bad constraint. */
static void test_dead_ends(void **state)
{
    (void)state;
    struct test_model t = test_llama(test_device(4, UINT64_MAX), (struct device_options){ .max_sequences = 8 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 4 });
    struct test_job job = test_make(2);
    struct engine_stats s;
    job.n_ends = 1, job.ends[0] = 9;
    job.params.min_ids = 0;
    job.most = 8;
    struct test_answer free_answer = { .n = 0 };
    free_answer.n = test_alone(t.m, &job, free_answer.ids, &free_answer.end);
    test_check(test_submit(e, "free", &job, 0, 0), "free", &free_answer, false);
    engine_stats(e, &s);
    assert_int_equal(s.mask_wait_seconds.n, 0);
    static const struct {
        uint64_t even, odd;
        uint32_t dead_at, fail_mask_at, fail_accept_at, min_ids, n;
        enum job_end end;
        const char *text;
    } cases[] = {
        { 0xff, 0xff00, 3, UINT32_MAX, UINT32_MAX, 0, 3, JOB_GRAMMAR, "the grammar allows no token here" },
        { 0xff, 0xff00, 0, UINT32_MAX, UINT32_MAX, 0, 0, JOB_GRAMMAR, "the grammar allows no token here" },
        { 0x0f, 0x200, UINT32_MAX, UINT32_MAX, UINT32_MAX, 5, 1, JOB_GRAMMAR, "the grammar allows no token here" },
        { 0xff, 0xff00, UINT32_MAX, 2, UINT32_MAX, 0, 2, JOB_FAILED, "the constraint failed: no mask, as told" },
        { 0xff, 0xff, UINT32_MAX, UINT32_MAX, 1, 0, 2, JOB_FAILED, "the constraint failed: not accepted, as told" },
        { 0x0f, 0x200, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 1, JOB_STOP, "" }, /* an end where it alone is allowed */
        { 0x0f, 0xf0, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 8, JOB_LENGTH, "" } /* and nowhere else */
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct turns turns;
        uint32_t ids[TEST_CONTEXT];
        enum job_end end;
        struct job_figures f;
        turns_open(&turns, cases[i].even, cases[i].odd);
        turns.dead_at = cases[i].dead_at;
        turns.fail_mask_at = cases[i].fail_mask_at;
        turns.fail_accept_at = cases[i].fail_accept_at;
        job.params.min_ids = cases[i].min_ids;
        struct engine_job spec = test_spec(&job, "dead");
        spec.constraint = &turns.c;
        struct job *j = test_submit_spec(e, &spec);
        const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end);
        job_figures(j, &f);
        if (end != cases[i].end || n != cases[i].n || strcmp(f.text, cases[i].text))
            fail_msg("case %u: %u ids, %s, \"%s\"", i, n, job_end_name(end), f.text);
        job_release(j);
        assert_int_equal(turns.closed, 1);
    }
    engine_stats(e, &s);
    assert_int_equal(s.ended[JOB_GRAMMAR], 3);
    assert_string_equal(job_end_name(JOB_GRAMMAR), "grammar");
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
}

/* Cancelled, stopped, late and left alone with the engine's end while a step waits at the gate: closed once each. A
 * refused job's constraint is not called. */
static void test_constrained_ends(void **state)
{
    (void)state;
    struct test_model t = test_llama(test_device(2, 4), (struct device_options){ .max_sequences = 8 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 4 });
    struct turns turns[4];
    struct job *jobs[4];
    struct test_job job = test_make(0);
    static const char *const names[] = { "cancel", "stop", "late", "closed" };
    job.most = 300;
    for (uint32_t i = 0; i < 4; i++) {
        turns_open(&turns[i], 0xff00, 0xff);
        struct engine_job spec = test_spec(&job, names[i]);
        spec.constraint = &turns[i].c;
        if (i == 2) spec.deadline_ns = 1;
        jobs[i] = test_submit_spec(e, &spec);
    }
    test_await_gate(4);
    struct turns refused;
    turns_open(&refused, 1, 1);
    struct engine_job spec = test_spec(&job, names[3]); /* its id is in use */
    spec.constraint = &refused.c;
    struct job *none;
    assert_int_equal(engine_submit(e, &spec, &none, &test_err), SUBMIT_EXISTS);
    assert_int_equal(refused.closed, 0);
    spec.id = "top";
    spec.probs = true, spec.top_n = SAMPLER_MAX_TOP + 1;
    assert_int_equal(engine_submit(e, &spec, &none, &test_err), SUBMIT_INVALID);
    assert_non_null(strstr(test_text, "the best 21 ids"));
    job_cancel(jobs[0]);
    job_stop(jobs[1]);
    test_permit(UINT64_MAX);
    static const enum job_end ends[] = { JOB_CANCELLED, JOB_STOP, JOB_TIMEOUT };
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t ids[TEST_CONTEXT];
        enum job_end end;
        (void)test_read(jobs[i], ids, TEST_CONTEXT, &end);
        assert_int_equal(end, ends[i]);
        assert_int_equal(turns[i].closed, 1);
        job_release(jobs[i]);
    }
    job_release(jobs[3]);
    engine_close(e);
    assert_int_equal(turns[3].closed, 1);
    test_unload(&t);
}

static uint32_t masks_given, mask_fails_at;

/* The device loses the step. */
static wk_status failing_mask(struct executor *x, const struct step *step, const uint64_t *const *masks,
                              const struct wk_err *err)
{
    uint32_t ids[64];
    bool failed[64];
    wk_status s = device_cpu()->mask(x, step, masks, err);
    if (s || ++masks_given != mask_fails_at) return s;
    ok(device_cpu()->collect(x, &(struct step_ids){ .ids = ids, .failed = failed }, err));
    return wk_fail(err, WK_INTERNAL, "the masks of step %u are lost, as told", masks_given);
}

/* A step whose masks the device refuses ends its jobs, constrained or not; the engine goes on. */
static void test_lost_masks(void **state)
{
    (void)state;
    struct device_ops ops = *device_cpu();
    ops.mask = failing_mask;
    struct test_model t = test_llama(&ops, (struct device_options){ .max_sequences = 4 }, 2);
    struct test_job job = test_make(2);
    job.n_ends = 0;
    job.most = 12;
    const struct test_answer want = constrained_alone(t.m, &job, sets[0]);
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 4, .prefix_cache = true });
    for (mask_fails_at = 1; mask_fails_at < 14; mask_fails_at += 4) {
        struct turns turns[3];
        struct job *jobs[3];
        masks_given = 0;
        for (uint32_t i = 0; i < 3; i++) {
            char name[16];
            name_of('l', i, name);
            turns_open(&turns[i], sets[0][0], sets[0][1]);
            struct engine_job spec = test_spec(&job, name);
            spec.constraint = i ? &turns[i].c : NULL;
            jobs[i] = test_submit_spec(e, &spec);
        }
        uint32_t lost = 0;
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t ids[TEST_CONTEXT];
            enum job_end end;
            struct job_figures f;
            const uint32_t n = test_read(jobs[i], ids, TEST_CONTEXT, &end);
            job_figures(jobs[i], &f);
            if (i) assert_true(n <= want.n && !memcmp(ids, want.ids, n * sizeof *ids));
            lost += end == JOB_FAILED;
            if (end == JOB_FAILED) assert_non_null(strstr(f.text, "are lost, as told"));
            job_release(jobs[i]);
            if (i) assert_int_equal(turns[i].closed, 1);
        }
        assert_true(lost > 0 || masks_given < mask_fails_at);
        test_wait_idle(e);
    }
    engine_close(e);
    test_unload(&t);
}

/* A constrained job whose pages are taken in the middle of its answer goes on with the masks that are next. */
static void test_preempted_constraint(void **state)
{
    (void)state;
    struct test_model t = test_llama(device_cpu(), (struct device_options){ .max_sequences = 4 }, 2);
    const uint64_t page = t.m->plan.bytes[MEMORY_KV] / t.m->plan.kv_pages[0];
    struct test_job low = test_make(3), high = test_make(5); /* 65 tokens; 150 */
    struct test_answer want, other;
    struct turns turns;
    low.most = 100;
    want = constrained_alone(t.m, &low, sets[0]);
    other.n = test_alone(t.m, &high, other.ids, &other.end);
    test_unload(&t);
    for (uint32_t ahead = 1; ahead <= STEP_QUEUE; ahead += STEP_QUEUE - 1) {
        t = test_llama(test_device(ahead, 22),
                       (struct device_options){ .max_sequences = 4, .max_rows = 64, .kv_bytes = 8 * page }, 2);
        struct engine *e =
            test_engine(t.m, (struct engine_options){ .max_sequences = 2, .preempt = true, .prefix_cache = true });
        struct engine_job spec = test_spec(&low, "low");
        turns_open(&turns, sets[0][0], sets[0][1]);
        spec.constraint = &turns.c;
        struct job *first = test_submit_spec(e, &spec);
        test_await_gate(22);
        struct job *second = test_submit(e, "high", &high, 9, 0);
        test_permit(UINT64_MAX);
        test_check(second, "high", &other, false);
        test_check(first, "low", &want, false);
        struct engine_stats s;
        engine_stats(e, &s);
        assert_true(s.preemptions > 0);
        assert_int_equal(turns.closed, 1);
        test_wait_idle(e);
        engine_close(e);
        test_unload(&t);
    }
}

/* ---- several answers ----------------------------------------------------------------------------------- */

/* Sixteen answers to one prompt: rows of one prefill and of what is behind its whole pages, ids of each seed alone. */
static void test_one_prompt(void **state)
{
    (void)state;
    enum { N = 16 };
    struct test_model t = test_llama(test_device(4, UINT64_MAX), (struct device_options){ .max_sequences = 40 }, 2);
    static const uint32_t prompts[] = { 8, 3, 5, 2, 0 }; /* 230, 65, 150, 64 and 9 tokens */
    for (uint32_t c = 0; c < 2 * sizeof prompts / sizeof *prompts; c++) {
        const bool cache = c % 2 == 0;
        struct test_job job = test_make(prompts[c / 2]);
        struct test_answer want[N];
        struct job *jobs[N];
        char name[16];
        job.params.temperature = 1.5f;
        job.n_ends = 0;
        job.most = 7;
        for (uint32_t i = 0; i < N; i++) {
            job.params.seed = 100 + i;
            want[i].n = test_alone(t.m, &job, want[i].ids, &want[i].end);
        }
        struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 20, .prefix_cache = cache });
        for (uint32_t i = 0; i < N; i++) {
            job.params.seed = 100 + i;
            name_of('n', i, name);
            struct engine_job spec = test_spec(&job, name);
            spec.after = i ? jobs[0] : NULL;
            jobs[i] = test_submit_spec(e, &spec);
        }
        for (uint32_t i = 0; i < N; i++) name_of('n', i, name), test_check(jobs[i], name, &want[i], false);
        struct engine_stats s;
        engine_stats(e, &s);
        const uint32_t whole = (job.n - 1) / KV_PAGE * KV_PAGE;
        assert_int_equal(s.cached_tokens, cache ? (N - 1) * whole : 0);
        test_wait_idle(e);
        engine_close(e);
    }
    test_unload(&t);
}

/* The id that ends a job is not given out, but its log probabilities come with the end: those that it has where it ends
 * nothing. */
static void test_ending_id(void **state)
{
    (void)state;
    enum { AT = 4 };
    struct test_model t = test_llama(test_device(4, UINT64_MAX), (struct device_options){ .max_sequences = 2 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 2 });
    struct test_job job = test_make(2);
    struct sampler_prob want[3];
    struct job_event event;
    job.n_ends = 0;
    job.most = AT + 1;
    struct engine_job spec = test_spec(&job, "on");
    spec.probs = true;
    spec.top_n = 2;
    struct job *j = test_submit_spec(e, &spec);
    while (job_next(j, &event, -1) && event.kind != EVENT_END)
        if (event.kind == EVENT_TOKEN) memcpy(want, event.probs, sizeof want);
    assert_int_equal(event.end, JOB_LENGTH);
    assert_null(event.probs);
    job_release(j);
    const uint32_t ends[] = { want[0].id };
    spec.id = "ends";
    spec.ends = ends;
    spec.n_ends = 1;
    j = test_submit_spec(e, &spec);
    uint32_t n = 0;
    while (job_next(j, &event, -1) && event.kind != EVENT_END) n += event.kind == EVENT_TOKEN;
    assert_int_equal(event.end, JOB_STOP);
    assert_in_range(n, 0, AT);
    assert_non_null(event.probs);
    assert_int_equal(event.n_top, 2);
    assert_int_equal(event.probs[0].id, ends[0]);
    for (uint32_t i = 0; n == AT && i < 3; i++) /* else it came earlier */
        assert_true(event.probs[i].id == want[i].id && event.probs[i].logprob == want[i].logprob);
    job_release(j);
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
}

/* One reader of many jobs: every event of each, in its order, and none twice; also with jobs that wait for others, and
 * when the one that the others were submitted beside is released first. */
static void test_one_reader(void **state)
{
    (void)state;
    enum { N = 12 };
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        struct test_model t =
            test_llama(test_device(ahead, UINT64_MAX), (struct device_options){ .max_sequences = 9 }, 2);
        struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 4 });
        static struct test_answer want[N];
        struct job *jobs[N];
        uint32_t n_ids[N] = { 0 }, n_ended = 0, which = 0;
        char name[16];
        struct job_event event;
        test_answers(t.m, want, N);
        for (uint32_t i = 0; i < N; i++) {
            const struct test_job job = test_make(i);
            name_of('r', i, name);
            struct engine_job spec = test_spec(&job, name);
            spec.beside = i ? jobs[i - 1] : NULL;
            jobs[i] = test_submit_spec(e, &spec);
        }
        while (job_next_any(jobs, N, &which, &event, -1)) {
            assert_in_range(which, 0, N - 1);
            if (event.kind == EVENT_TOKEN) {
                assert_int_equal(event.index, n_ids[which]);
                assert_int_equal(event.id, want[which].ids[n_ids[which]++]);
            }
            if (event.kind != EVENT_END) continue;
            assert_int_equal(event.end, want[which].end);
            assert_int_equal(n_ids[which], want[which].n);
            n_ended++;
        }
        assert_int_equal(n_ended, N);
        assert_false(job_next_any(jobs, N, &which, &event, 0));
        for (uint32_t i = 0; i < N; i++) job_release(jobs[i]);
        const struct test_job job = test_make(8);
        for (uint32_t i = 0; i < 3; i++) {
            name_of('s', i, name);
            struct engine_job spec = test_spec(&job, name);
            spec.beside = i ? jobs[0] : NULL;
            jobs[i] = test_submit_spec(e, &spec);
        }
        job_release(jobs[0]);
        for (which = 0; job_next_any(jobs + 1, 2, &which, &event, -1);) assert_in_range(which, 0, 1);
        job_release(jobs[1]);
        job_release(jobs[2]);
        test_wait_idle(e);
        engine_close(e);
        test_unload(&t);
    }
}

static uint32_t next_progress(struct job *j)
{
    struct job_event event;
    assert_true(job_next(j, &event, -1));
    assert_int_equal(event.kind, EVENT_PROGRESS);
    return event.n_done;
}

/* How much of a prompt is computed is told after each step, beginning with what was found of it, also to who reads it
 * late. The ids are those of a job that does not ask. */
static void test_progress(void **state)
{
    (void)state;
    enum { ROWS = 20 };
    struct test_answer want;
    struct test_job job = test_make(8); /* 230 tokens */
    struct test_model t = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    want.n = test_alone(t.m, &job, want.ids, &want.end);
    test_unload(&t);
    t = test_llama(test_device(1, 0), (struct device_options){ .max_sequences = 2 }, 2);
    struct engine *e =
        test_engine(t.m, (struct engine_options){ .max_sequences = 1, .max_batch_tokens = ROWS, .prefix_cache = true });
    struct job_event event;
    struct engine_job spec = test_spec(&job, "each");
    spec.progress = true;
    struct job *j = test_submit_spec(e, &spec);
    assert_true(job_next(j, &event, -1));
    assert_int_equal(event.kind, EVENT_STARTED);
    assert_int_equal(next_progress(j), 0);
    for (uint32_t done = ROWS; done < job.n + ROWS; done += ROWS) {
        assert_false(job_next(j, &event, 0));
        test_permit(1);
        assert_int_equal(next_progress(j), done < job.n ? done : job.n);
    }
    assert_true(job_next(j, &event, -1));
    assert_true(event.kind == EVENT_TOKEN && event.id == want.ids[0]);
    job_release(j);
    test_permit(UINT64_MAX);
    test_wait_idle(e);
    const struct test_job other = test_make(5); /* 150 tokens */
    struct engine_job late = test_spec(&other, "late");
    late.progress = true;
    j = test_submit_spec(e, &late);
    test_wait_idle(e);
    assert_true(job_next(j, &event, -1));
    for (uint32_t done = 0; done < other.n + ROWS; done += ROWS)
        assert_int_equal(next_progress(j), done < other.n ? done : other.n);
    job_release(j);
    spec.id = "again";
    j = test_submit_spec(e, &spec);
    assert_true(job_next(j, &event, -1));
    assert_int_equal(event.kind, EVENT_STARTED);
    assert_int_equal(next_progress(j), 224); /* whole pages */
    assert_int_equal(next_progress(j), job.n);
    for (uint32_t i = 0; i < want.n; i++) {
        assert_true(job_next(j, &event, -1));
        assert_true(event.kind == EVENT_TOKEN && event.id == want.ids[i]);
    }
    assert_true(job_next(j, &event, -1));
    assert_int_equal(event.kind, EVENT_END);
    job_release(j);
    engine_close(e);
    test_unload(&t);
}

/* Who is waited for never begins, or ends before its prompt is read: the others go on. Other jobs pass them. */
static void test_first_is_lost(void **state)
{
    (void)state;
    struct test_model t = test_llama(test_device(1, 0), (struct device_options){ .max_sequences = 8 }, 2);
    struct engine *e = test_engine(t.m, (struct engine_options){ .max_sequences = 2, .prefix_cache = true });
    struct test_job job = test_make(8), other = test_make(0);
    struct test_answer want, other_want;
    struct test_model single = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    want.n = test_alone(single.m, &job, want.ids, &want.end);
    other_want.n = test_alone(single.m, &other, other_want.ids, &other_want.end);
    test_unload(&single);
    struct job *first = test_submit(e, "first", &job, 0, 0);
    struct engine_job spec = test_spec(&job, "second");
    spec.after = first;
    spec.priority = 3;
    struct job *second = test_submit_spec(e, &spec);
    test_await_gate(0);
    struct job *third = test_submit(e, "third", &other, 0, 0);
    test_permit(1);
    test_await_gate(1);
    job_release(first);
    test_permit(UINT64_MAX);
    test_check(second, "second", &want, false);
    test_check(third, "third", &other_want, false);
    struct test_model t2 = test_llama(device_cpu(), (struct device_options){ .max_sequences = 2 }, 2);
    struct engine *e2 = test_engine(t2.m, (struct engine_options){ .max_sequences = 1 });
    struct job *strange = test_submit(e2, "strange", &other, 0, 0), *none;
    spec.after = strange;
    assert_int_equal(engine_submit(e, &spec, &none, &test_err), SUBMIT_INVALID);
    assert_non_null(strstr(test_text, "before it is another engine's"));
    spec.after = NULL;
    spec.beside = strange;
    assert_int_equal(engine_submit(e, &spec, &none, &test_err), SUBMIT_INVALID);
    assert_non_null(strstr(test_text, "beside it is another engine's"));
    test_check(strange, "strange", &other_want, false);
    engine_close(e2);
    test_unload(&t2);
    test_wait_idle(e);
    engine_close(e);
    test_unload(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_probabilities), cmocka_unit_test(test_preempted_prompt),
        cmocka_unit_test(test_constraints),       cmocka_unit_test(test_dead_ends),
        cmocka_unit_test(test_constrained_ends),  cmocka_unit_test(test_preempted_constraint),
        cmocka_unit_test(test_lost_masks),        cmocka_unit_test(test_one_prompt),
        cmocka_unit_test(test_first_is_lost),     cmocka_unit_test(test_one_reader),
        cmocka_unit_test(test_ending_id),         cmocka_unit_test(test_progress),
    };
    const int failed = test_open_plugins();
    if (failed) return failed;
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return result;
}
