/* test_handover.c: prompts that one engine reads and another goes on from: the ids are those of one engine that does
 * both, whatever their chunks, windows, neighbours and caches; what is refused, lost, given up; and the pages'
 * accounts on both sides. */
#include "test_widths.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* ---- two engines --------------------------------------------------------------------------------------- */

struct side {
    struct test_model t;
    struct engine *e;
};

static struct side side_open(const struct widths *w, const struct device_ops *device, struct device_options dev,
                             struct engine_options o)
{
    struct side s = { .t = open_model(w, device, dev) };
    o.prefix_cache = true;
    s.e = test_engine(s.t.m, o);
    return s;
}

/* Pages come back when the engine's thread has heard of it. */
/* Takes the engine's accounts when it has given up the leases that nobody has: the last to let go of one can be its own
 * thread, behind the end that the job's reader saw. */
static void check_accounts(struct engine *e)
{
    uint32_t had = 0;
    for (uint32_t i = 0; i < n_test_leases; i++) had += test_leases[i]->engine == e;
    test_wait_for(atomic_load(&e->n_leases) == had);
    assert_true(engine_call(e, take_accounts, e));
}

static void side_close(struct side *s)
{
    assert_int_equal(n_test_leases, 0);
    test_wait_unused(s->e);
    check_accounts(s->e);
    engine_close(s->e);
    test_unload(&s->t);
}

static void note(struct engine_lease *l)
{
    assert_in_range(n_test_leases, 0, MOST_TEST_LEASES - 1);
    test_leases[n_test_leases++] = l;
}

static void release(struct engine_lease *l)
{
    uint32_t i = 0;
    while (test_leases[i] != l) i++;
    test_leases[i] = test_leases[--n_test_leases];
    engine_lease_release(l);
}

/* The prompt is read and kept. The job stays until the caller releases it. */
static struct job *read_prompt(struct engine *e, const char *id, const struct test_job *t, struct engine_lease **lease)
{
    struct engine_job spec = test_spec(t, id);
    spec.keep = true;
    spec.max_tokens = 1;
    struct job *j = test_submit_spec(e, &spec);
    *lease = job_lease(j);
    note(*lease);
    return j;
}

static void finish(struct job *j, enum job_end want)
{
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    (void)test_read(j, ids, TEST_CONTEXT, &end);
    assert_int_equal(end, want);
    job_release(j);
}

/* What a lease gives, block by block and in runs of any length as they come, goes to the import. */
static void stream(struct engine_lease *l, struct engine_import *to, const struct engine_layout *layout, uint64_t seed)
{
    uint32_t from, end, ready, blocks;
    enum lease_state state = LEASE_GROWING;
    (void)engine_lease_tokens(l, &blocks);
    engine_import_range(to, &from, &end);
    assert_int_equal(blocks, end);
    void *bytes = malloc(engine_block_bytes(layout, blocks, 0, blocks) + 1);
    assert_non_null(bytes);
    while (from < end) {
        state = engine_lease_wait(l, from, -1, &ready);
        if (state == LEASE_LOST) fail_msg("the lease is lost: %s", engine_lease_text(l));
        assert_true(ready > from);
        const uint32_t n = 1 + next_random(&seed) % (ready - from);
        ok(engine_lease_read(l, from, from + n, bytes, &test_err));
        ok(engine_import_write(to, from, from + n, bytes, &test_err));
        from += n;
    }
    free(bytes);
}

/* All of it: the ids are those of `want`, and nothing of the prompt's blocks is computed again. Returns how many blocks
 * travelled. */
static uint32_t hand_over(struct engine *from, struct engine *to, const struct test_job *t,
                          const struct test_answer *want, uint64_t seed)
{
    struct engine_layout layout, same;
    struct engine_lease *given, *taken;
    struct engine_import *import;
    struct job_figures f;
    uint32_t first, end, ids[TEST_CONTEXT];
    enum job_end over;
    ok(engine_layout(from, &layout, &test_err));
    ok(engine_layout(to, &same, &test_err));
    assert_memory_equal(&layout, &same, sizeof same);
    struct job *j = read_prompt(from, "give", t, &given);
    ok(engine_import_begin(to, t->tokens, t->n, &t->salt, &import, &test_err));
    engine_import_range(import, &first, &end);
    assert_int_equal(end, engine_blocks(t->n));
    stream(given, import, &layout, seed);
    taken = engine_import_commit(import);
    note(taken);
    finish(j, JOB_LENGTH);
    release(given);
    j = test_submit(to, "take", t, 0, 0);
    assert_int_equal(test_read(j, ids, TEST_CONTEXT, &over), want->n);
    assert_memory_equal(ids, want->ids, want->n * sizeof *ids);
    job_figures(j, &f);
    job_release(j);
    assert_int_equal(f.n_cached, end * KV_PAGE);
    check_accounts(to);
    release(taken);
    return end - first;
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

static const struct widths all_widths[] = {
    { 1, { 1 } },
    { 1, { 33 } },
    { 2, { 40, 0 } },
    { 4, { 1, 33, 64, 200 } },
    { 3, { 128, 0, 31 } },
    { 2, { TEST_CONTEXT - 1, TEST_CONTEXT } },
    { 3, { 5000, 0, 65 } },
    { 1, { 0 } },
    { 1, { CHUNK(32) } },
    { 2, { CHUNK(128), 0 } },
    { 4, { CHUNK(96), 33, 0, CHUNK(64) } },
};
enum { ALL_WIDTHS = sizeof all_widths / sizeof *all_widths };

/* Greedy and seeded, prompts of both kernel classes, other chunks and another depth of steps on either side, the cache
 * of either side cold and warm. */
static void test_ids(void **state)
{
    (void)state;
    static const struct {
        uint32_t give_rows, take_rows, ahead;
    } cases[] = { { 64, 64, 1 }, { 33, 7, 4 }, { 7, 200, 3 } };
    for (uint32_t i = 0; i < ALL_WIDTHS; i++) {
        answer_all(&all_widths[i]);
        for (uint32_t c = 0; c < 3; c++) {
            struct device_options dev = { .max_rows = cases[c].give_rows };
            struct side give = side_open(&all_widths[i], test_device(cases[c].ahead, UINT64_MAX), dev,
                                         (struct engine_options){ .max_sequences = 4 });
            dev.max_rows = cases[c].take_rows;
            struct side take =
                side_open(&all_widths[i], device_cpu(), dev, (struct engine_options){ .max_sequences = 4 });
            uint32_t travelled = 0, blocks = 0;
            for (uint32_t k = c; k < KINDS; k += 2) {
                const struct test_job job = make(k);
                travelled += hand_over(give.e, take.e, &job, &answers[k], k);
                blocks += engine_blocks(job.n);
            }
            assert_true(travelled > 0 && travelled < blocks); /* what a beginning shares is there */
            side_close(&give);
            side_close(&take);
        }
    }
}

/* Even and odd ids in turn. */
static wk_status mask_turns(void *user, uint64_t *bits, const struct wk_err *err)
{
    (void)err;
    *bits = *(const uint32_t *)user % 2 ? 0xaaaaaaaaaaaaaaaau : 0x5555555555555555u;
    return WK_OK;
}
static wk_status accept_turns(void *user, uint32_t id, const struct wk_err *err)
{
    uint32_t *n = user;
    if (id % 2 != *n % 2) return wk_fail(err, WK_INTERNAL, "id %u was not allowed", id);
    ++*n;
    return WK_OK;
}
static void close_turns(void *user) { *(uint32_t *)user = 0; }

static void unified(struct engine *e, const struct test_job *t, const struct sampler_constraint *c,
                    struct test_answer *out)
{
    struct engine_job spec = test_spec(t, "unified");
    spec.constraint = c;
    struct job *j = test_submit_spec(e, &spec);
    out->n = test_read(j, out->ids, TEST_CONTEXT, &out->end);
    job_release(j);
}

/* A job with masks is masked where it decodes; the prompt is kept without. Both cache types. */
static void test_masks(void **state)
{
    (void)state;
    static const struct widths w = { 3, { 40, 0, CHUNK(64) } };
    uint32_t turns = 0;
    const struct sampler_constraint c = { &turns, mask_turns, accept_turns, close_turns };
    for (uint32_t type = 0; type < 2; type++) {
        const struct device_options dev = { .kv_type = type ? KV_F32 : KV_F16, .max_sequences = 2 };
        struct side one = side_open(&w, device_cpu(), dev, (struct engine_options){ 0 }),
                    give = side_open(&w, device_cpu(), dev, (struct engine_options){ 0 }),
                    take = side_open(&w, test_device(4, UINT64_MAX), dev, (struct engine_options){ 0 });
        for (uint32_t k = 0; k < KINDS; k += 3) {
            static struct test_answer free_one, masked, again;
            struct test_job t = make(k);
            t.salt.word[0] = k + 1;
            unified(one.e, &t, NULL, &free_one);
            unified(one.e, &t, &c, &masked);
            (void)hand_over(give.e, take.e, &t, &free_one, k);
            unified(take.e, &t, &c, &again);
            assert_true(masked.n == again.n && masked.end == again.end);
            assert_memory_equal(masked.ids, again.ids, again.n * sizeof *again.ids);
        }
        side_close(&one);
        side_close(&give);
        side_close(&take);
    }
}

/* ---- leases -------------------------------------------------------------------------------------------- */

static const struct widths mixed = { 3, { 40, 0, CHUNK(64) } };

static struct test_job prompt(uint32_t n, uint32_t kind)
{
    struct test_job t = { .n = n, .most = 12, .params = { .top_p = 1, .repetition_penalty = 1, .seed = n + kind } };
    for (uint32_t i = 0; i < n; i++) t.tokens[i] = (i * 5 + i / 7 + 13 * kind) % TEST_VOCAB;
    return t;
}

/* Blocks can be read while the prompt's next part waits; they do not change any more. */
static void test_streaming(void **state)
{
    (void)state;
    struct side s = side_open(&mixed, test_device(1, 0), (struct device_options){ 0 }, (struct engine_options){ 0 });
    const struct test_job t = prompt(230, 1);
    struct engine_layout layout;
    struct engine_lease *l;
    uint32_t ready, blocks;
    ok(engine_layout(s.e, &layout, &test_err));
    const uint64_t all = engine_block_bytes(&layout, 7, 0, 7), early = engine_block_bytes(&layout, 7, 0, 2);
    uint8_t *first = malloc(all), *again = malloc(all);
    assert_true(first && again && early && early < all);
    struct job *j = read_prompt(s.e, "j", &t, &l);
    assert_memory_equal(engine_lease_tokens(l, &blocks), t.tokens, 7 * KV_PAGE * sizeof *t.tokens);
    assert_int_equal(blocks, 7);
    assert_int_equal(engine_lease_wait(l, 0, 0, &ready), LEASE_GROWING);
    assert_int_equal(ready, 0);
    assert_int_equal(engine_lease_wait(l, 0, 2, &ready), LEASE_GROWING);
    assert_int_equal(engine_lease_read(l, 0, 1, first, &test_err), WK_INVALID);
    assert_non_null(strstr(test_text, "blocks 0 to 1 of a lease of which 0 can be read"));
    test_permit(1);
    assert_int_equal(engine_lease_wait(l, 0, -1, &ready), LEASE_GROWING);
    assert_int_equal(ready, 2);
    ok(engine_lease_read(l, 0, 2, first, &test_err));
    assert_int_equal(engine_lease_read(l, 1, 3, first, &test_err), WK_INVALID);
    assert_int_equal(engine_lease_read(l, 2, 1, first, &test_err), WK_INVALID);
    test_permit(UINT64_MAX);
    while (engine_lease_wait(l, ready, -1, &ready) == LEASE_GROWING) {}
    assert_int_equal(ready, 7);
    finish(j, JOB_LENGTH);
    ok(engine_lease_read(l, 0, 7, again, &test_err));
    assert_memory_equal(first, again, early);
    ok(engine_lease_read(l, 6, 7, first, &test_err));
    assert_memory_equal(first, again + engine_block_bytes(&layout, 7, 0, 6), engine_block_bytes(&layout, 7, 6, 7));
    struct device_page pages[3 * 7];
    assert_int_equal(engine_block_pages(&layout, 7, 0, 7), 2 + 7 + 1); /* 40 positions, all, and 192 to 223 */
    ok(engine_lease_pages(l, 0, 7, pages, &test_err));
    ok(s.t.m->device->pages_read(s.t.m->executor, pages, 2 + 7 + 1, first, &test_err));
    assert_memory_equal(first, again, all);
    release(l);
    free(first);
    free(again);
    side_close(&s);
}

/* Two jobs that compute the same at once both keep it: what is there once is counted twice. */
static void test_same_prompt(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= 4; ahead += 3) {
        struct side s = side_open(&mixed, test_device(ahead, 0), (struct device_options){ .max_rows = 512 },
                                  (struct engine_options){ .max_sequences = 4 });
        const struct test_job t = prompt(161, 3);
        struct engine_lease *l[4];
        struct job *j[4];
        char name[] = "0";
        uint32_t ready;
        for (uint32_t i = 0; i < 4; i++, name[0]++) j[i] = read_prompt(s.e, name, &t, &l[i]);
        test_permit(UINT64_MAX);
        for (uint32_t i = 0; i < 4; i++) finish(j[i], JOB_LENGTH);
        check_accounts(s.e);
        for (uint32_t i = 0; i < 4; i++) {
            if (engine_lease_wait(l[i], 0, 0, &ready) != LEASE_WHOLE) fail_msg("%u: %s", i, engine_lease_text(l[i]));
            release(l[i]);
        }
        side_close(&s);
    }
}

/* A lease does not outlive what it was for: the job is cancelled in the middle, fails, or never begins. */
static void test_lost(void **state)
{
    (void)state;
    struct side s = side_open(&mixed, test_device(1, 0), (struct device_options){ 0 }, (struct engine_options){ 0 });
    const struct test_job t = prompt(230, 1), other = prompt(230, 2);
    struct engine_lease *l, *m;
    uint32_t ready;
    struct job *j = read_prompt(s.e, "j", &t, &l), *k = read_prompt(s.e, "k", &other, &m);
    job_cancel(k);
    test_permit(1);
    finish(k, JOB_CANCELLED);
    assert_int_equal(engine_lease_wait(m, 0, -1, &ready), LEASE_LOST);
    assert_string_equal(engine_lease_text(m), "its job ended before all pages of the prompt were kept");
    release(m);
    assert_int_equal(engine_lease_wait(l, 0, -1, &ready), LEASE_GROWING);
    test_await_gate(test_control.begun);
    job_cancel(j);
    finish(j, JOB_CANCELLED);
    assert_int_equal(engine_lease_wait(l, 0, -1, &ready), LEASE_LOST);
    assert_int_equal(ready, 0);
    uint8_t byte;
    assert_int_equal(engine_lease_read(l, 0, 0, &byte, &test_err), WK_INVALID);
    assert_non_null(strstr(test_text, "the lease is lost: its job ended before"));
    check_accounts(s.e);
    release(l);
    test_control.spoil_slot = 0;
    test_permit(UINT64_MAX);
    j = read_prompt(s.e, "j", &other, &l);
    finish(j, JOB_FAILED);
    assert_int_equal(engine_lease_wait(l, 0, -1, &ready), LEASE_LOST);
    release(l);
    test_control.spoil_slot = UINT32_MAX;
    side_close(&s);
}

/* A prompt without a whole page before its last token has nothing to hand over. */
static void test_nothing(void **state)
{
    (void)state;
    answer_all(&mixed);
    struct side a = side_open(&mixed, device_cpu(), (struct device_options){ 0 }, (struct engine_options){ 0 }),
                b = side_open(&mixed, device_cpu(), (struct device_options){ 0 }, (struct engine_options){ 0 });
    for (uint32_t k = 0; k < KINDS; k++) {
        const struct test_job t = make(k);
        if (!engine_blocks(t.n)) assert_int_equal(hand_over(a.e, b.e, &t, &answers[k], 0), 0);
    }
    side_close(&a);
    side_close(&b);
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static void test_refused(void **state)
{
    (void)state;
    static const struct widths states = { 2, { STATE, 0 } };
    const struct test_job t = prompt(100, 0);
    struct engine_layout layout;
    struct engine_import *i;
    struct engine_lease *l;
    uint32_t ready;
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct test_model m = open_model(kind ? &states : &mixed, device_cpu(), (struct device_options){ 0 });
        struct engine *e = test_engine(m.m, (struct engine_options){ .prefix_cache = kind });
        const char *why = kind ? "the model has states, which are not handed over" : "there is no prefix cache";
        assert_int_equal(engine_layout(e, &layout, &test_err), WK_UNSUPPORTED);
        assert_non_null(strstr(test_text, why));
        assert_int_equal(engine_import_begin(e, t.tokens, t.n, &t.salt, &i, &test_err), WK_UNSUPPORTED);
        assert_non_null(strstr(test_text, why));
        struct job *j = read_prompt(e, "j", &t, &l);
        assert_int_equal(engine_lease_wait(l, 0, -1, &ready), LEASE_LOST);
        assert_non_null(strstr(engine_lease_text(l), why));
        finish(j, JOB_LENGTH); /* and is answered */
        release(l);
        test_wait_idle(e);
        engine_close(e);
        test_unload(&m);
    }
    struct side s = side_open(&mixed, device_cpu(), (struct device_options){ 0 }, (struct engine_options){ 0 });
    const uint32_t bad[] = { 1, TEST_VOCAB };
    assert_int_equal(engine_import_begin(s.e, bad, 2, &t.salt, &i, &test_err), WK_INVALID);
    assert_non_null(strstr(test_text, "token 1 of the prompt is 50"));
    assert_int_equal(engine_import_begin(s.e, t.tokens, TEST_CONTEXT, &t.salt, &i, &test_err), WK_INVALID);
    assert_int_equal(engine_import_begin(s.e, t.tokens, 0, &t.salt, &i, &test_err), WK_INVALID);
    ok(engine_import_begin(s.e, t.tokens, t.n, &t.salt, &i, &test_err));
    assert_int_equal(engine_import_write(i, 2, 4, bad, &test_err), WK_INVALID);
    assert_int_equal(engine_import_write(i, 3, 2, bad, &test_err), WK_INVALID);
    engine_import_abort(i);
    engine_import_abort(NULL);
    side_close(&s);
}

/* Leases and imports are at most so many; all others are answered without. */
static void test_too_many(void **state)
{
    (void)state;
    struct side s = side_open(&mixed, device_cpu(), (struct device_options){ 0 }, (struct engine_options){ 0 });
    static struct engine_import *imports[ENGINE_LEASES];
    const struct test_job t = prompt(20, 0);
    struct engine_import *more;
    struct engine_lease *l;
    uint32_t ready;
    for (uint32_t i = 0; i < ENGINE_LEASES; i++)
        ok(engine_import_begin(s.e, t.tokens, t.n, &t.salt, &imports[i], &test_err));
    assert_int_equal(engine_import_begin(s.e, t.tokens, t.n, &t.salt, &more, &test_err), WK_NO_MEMORY);
    assert_non_null(strstr(test_text, "there are too many leases"));
    struct job *j = read_prompt(s.e, "j", &t, &l);
    assert_int_equal(engine_lease_wait(l, 0, -1, &ready), LEASE_LOST);
    assert_string_equal(engine_lease_text(l), "there are too many leases");
    finish(j, JOB_LENGTH);
    release(l);
    for (uint32_t i = 0; i < ENGINE_LEASES; i++) engine_import_abort(imports[i]);
    side_close(&s);
}

/* 13 pages: what jobs have is not taken, leases take half, and one alone what it needs; a job that waits gets what was
 * imported. */
static void test_room(void **state)
{
    (void)state;
    static const struct widths plain = { 1, { 0 } };
    struct side s = side_open(&plain, test_device(1, UINT64_MAX), (struct device_options){ .kv_sequences = 1 },
                              (struct engine_options){ .max_sequences = 4 });
    assert_int_equal(s.t.m->plan.kv_pages[0], 13);
    const struct test_job large = prompt(300, 1), small = prompt(129, 2), other = prompt(129, 3);
    struct engine_import *i;
    struct engine_lease *l, *m;
    uint32_t ready;
    struct job *j = read_prompt(s.e, "large", &large, &l);
    finish(j, JOB_LENGTH);
    assert_int_equal(engine_lease_wait(l, 0, 0, &ready), LEASE_WHOLE); /* 9 of 13 */
    assert_int_equal(engine_import_begin(s.e, small.tokens, small.n, &small.salt, &i, &test_err), WK_NO_MEMORY);
    assert_non_null(strstr(test_text, "other leases have half of all pages"));
    assert_int_equal(engine_import_begin(s.e, small.tokens, 161, &small.salt, &i, &test_err), WK_NO_MEMORY);
    assert_non_null(strstr(test_text, "jobs have too many of the KV cache's pages"));
    /* A job that needs what is leased waits for it; it holds up nobody for ever. */
    const struct test_job waits = prompt(200, 4);
    j = test_submit(s.e, "waits", &waits, 0, 0);
    struct job_view view;
    for (uint32_t k = 0; k < 100; k++) {
        job_look(j, &view);
        assert_int_equal(view.state, JOB_QUEUED);
        test_nap();
    }
    release(l);
    finish(j, JOB_LENGTH);
    /* Reserved pages are nobody's until they are committed; a committed import gives way. */
    ok(engine_import_begin(s.e, small.tokens, small.n, &small.salt, &i, &test_err));
    struct engine_layout layout;
    ok(engine_layout(s.e, &layout, &test_err));
    void *bytes = calloc(1, engine_block_bytes(&layout, 4, 0, 4));
    assert_non_null(bytes);
    ok(engine_import_write(i, 0, 4, bytes, &test_err));
    free(bytes);
    l = engine_import_commit(i);
    note(l);
    assert_int_equal(engine_lease_wait(l, 0, -1, &ready), LEASE_WHOLE);
    struct engine_stats stats;
    do engine_stats(s.e, &stats);
    while (stats.pages_used != 4);
    struct test_job most = prompt(320, 5);
    most.most = 1;
    j = read_prompt(s.e, "most", &most, &m);
    finish(j, JOB_LENGTH);
    check_accounts(s.e);
    assert_int_equal(engine_lease_wait(m, 0, -1, &ready), LEASE_WHOLE);
    release(m);
    release(l);
    j = test_submit(s.e, "other", &other, 0, 0);
    finish(j, JOB_LENGTH);
    side_close(&s);
}

/* ---- load ---------------------------------------------------------------------------------------------- */

/* One router: hands prompts over from `give` to `take`, one after the other, while others do the same; ends some of it
 * at random. */
struct router {
    struct engine *give, *take;
    uint64_t seed;
    uint32_t number, rounds;
    _Atomic uint32_t *handed, *anew;
    pthread_t thread;
};

static bool cut(struct router *r) { return next_random(&r->seed) % 12 == 0; }

/* Like a worker would: whatever goes wrong, the job prefills anew. */
static struct engine_lease *pull(struct router *r, struct engine_lease *from, const struct test_job *t)
{
    static _Thread_local uint8_t bytes[1 << 20];
    struct engine_layout layout;
    struct engine_import *i;
    uint32_t at, end, ready;
    ok(engine_layout(r->give, &layout, &test_err));
    char text[256];
    const struct wk_err err = { text, sizeof text };
    if (engine_import_begin(r->take, t->tokens, t->n, &t->salt, &i, &err)) return NULL;
    engine_import_range(i, &at, &end);
    assert_in_range(engine_block_bytes(&layout, end, at, end), 0, sizeof bytes);
    while (at < end) {
        const enum lease_state state = engine_lease_wait(from, at, -1, &ready);
        const bool stop = state == LEASE_LOST || cut(r);
        if (stop || engine_lease_read(from, at, ready, bytes, &err) || engine_import_write(i, at, ready, bytes, &err)) {
            engine_import_abort(i);
            return NULL;
        }
        at = ready;
    }
    return engine_import_commit(i);
}

static void route_one(struct router *r, uint32_t round)
{
    const uint32_t kind = next_random(&r->seed) % KINDS;
    const struct test_job t = make(kind);
    char name[32];
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    (void)snprintf(name, sizeof name, "%u.%u", r->number, round);
    struct engine_job spec = test_spec(&t, name);
    spec.keep = true;
    spec.max_tokens = 1;
    spec.priority = (int32_t)(next_random(&r->seed) % 6);
    struct job *j = test_submit_spec(r->give, &spec);
    struct engine_lease *given = job_lease(j);
    if (cut(r)) job_cancel(j);
    struct engine_lease *taken = pull(r, given, &t);
    (void)test_read(j, ids, TEST_CONTEXT, &end);
    job_release(j);
    engine_lease_release(given);
    atomic_fetch_add(taken ? r->handed : r->anew, 1);
    spec.keep = false;
    spec.max_tokens = t.most;
    j = test_submit_spec(r->take, &spec);
    const bool cancelled = cut(r);
    if (cancelled) job_cancel(j);
    if (next_random(&r->seed) % 2) engine_lease_release(taken), taken = NULL;
    test_check(j, name, &answers[kind], cancelled);
    engine_lease_release(taken);
}

static void *route(void *arg)
{
    struct router *r = arg;
    for (uint32_t i = 0; i < r->rounds; i++) route_one(r, i);
    return NULL;
}

/* 1,000 and more hand-overs by several routers at once, with few pages, preemption, slices, cancels on either side:
 * every answer is right, most came over, and no page stays. */
static void test_load(void **state)
{
    (void)state;
    enum { ROUTERS = 6, ROUNDS = 45 };
    static const struct widths widths[] = {
        { 1, { 0 } }, { 2, { 40, 0 } }, { 3, { 128, 0, 31 } }, { 4, { CHUNK(96), 33, 0, CHUNK(64) } }
    };
    _Atomic uint32_t handed = 0, anew = 0;
    for (uint32_t w = 0; w < 4; w++) {
        answer_all(&widths[w]);
        const struct device_options dev = { .max_sequences = 12, .kv_sequences = 4 };
        const struct engine_options o = {
            .max_sequences = 6, .preempt = true, .high_priority = 4, .timeslice_tokens = 5
        };
        struct side give = side_open(&widths[w], device_cpu(), dev, o),
                    take = side_open(&widths[w], test_device(4, UINT64_MAX), dev, o);
        struct router r[ROUTERS];
        for (uint32_t i = 0; i < ROUTERS; i++) {
            r[i] = (struct router){ .give = give.e,
                                    .take = take.e,
                                    .seed = w * 100 + i,
                                    .number = i,
                                    .rounds = ROUNDS,
                                    .handed = &handed,
                                    .anew = &anew };
            assert_int_equal(pthread_create(&r[i].thread, NULL, route, &r[i]), 0);
        }
        for (uint32_t i = 0; i < ROUTERS; i++) assert_int_equal(pthread_join(r[i].thread, NULL), 0);
        side_close(&give);
        side_close(&take);
    }
    print_message("%u handed over, %u computed anew\n", (unsigned)handed, (unsigned)anew);
    assert_true(handed + anew == 4 * ROUTERS * ROUNDS && handed > anew);
}

/* A device that dies ends what waits for it. */
static void test_dead(void **state)
{
    (void)state;
    struct side s = side_open(&mixed, test_device(1, 0), (struct device_options){ 0 }, (struct engine_options){ 0 });
    const struct test_job t = prompt(230, 1);
    struct engine_lease *l;
    struct engine_import *i;
    uint32_t ready;
    test_control.fail_at = 2;
    test_control.die = true;
    ok(engine_import_begin(s.e, t.tokens, 65, &t.salt, &i, &test_err));
    struct job *j = read_prompt(s.e, "j", &t, &l);
    test_permit(UINT64_MAX);
    finish(j, JOB_DEVICE_LOST);
    assert_int_equal(engine_lease_wait(l, 7, -1, &ready), LEASE_LOST);
    release(l);
    l = engine_import_commit(i);
    note(l);
    while (engine_lease_wait(l, UINT32_MAX, -1, &ready) == LEASE_GROWING) {}
    release(l);
    assert_int_equal(engine_import_begin(s.e, t.tokens, 65, &t.salt, &i, &test_err), WK_INTERNAL);
    assert_non_null(strstr(test_text, "the engine is dead"));
    test_wait_unused(s.e);
    engine_close(s.e);
    test_unload(&s.t);
}

int main(void)
{
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ids),         cmocka_unit_test(test_streaming),
                                        cmocka_unit_test(test_same_prompt), cmocka_unit_test(test_lost),
                                        cmocka_unit_test(test_nothing),     cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_too_many),    cmocka_unit_test(test_room),
                                        cmocka_unit_test(test_masks),       cmocka_unit_test(test_load),
                                        cmocka_unit_test(test_dead) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
