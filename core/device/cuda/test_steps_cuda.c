/* test_steps_cuda.c: the CUDA executor's steps: sampled ones against the CPU's sampler, launched alone and in pairs;
 * memory: planned is taken, and requests take nothing; refusals, infinite values and cancelled steps, after which the
 * others go on; somebody who asks meanwhile whether the device has died. An argument: only the test of this name. */
#include "device/cuda/test_executor.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- sampled steps ------------------------------------------------------------------------------------- */

/* Where the embedding of one token is infinite, that token is not to be picked. */
static struct sampler_params params_of(enum zoo_kind kind, uint32_t s)
{
    static const struct sampler_bias never = { ZOO_BAD_TOKEN, -100 };
    struct sampler_params p = { .top_p = 1, .repetition_penalty = 1, .seed = 1000 + s };
    if (kind != ZOO_DENSE) p.logit_bias = &never, p.n_logit_bias = 1;
    if (s % 3) p.temperature = 0.8f + 0.1f * (float)(s % 5);
    if (s % 4 == 1) p.top_k = 12;
    if (s % 5 == 2) p.top_p = 0.9f;
    if (s % 7 == 3) p.repetition_penalty = 1.2f, p.frequency_penalty = 0.3f;
    return p;
}

/* Ids as logits and the CPU's sampler make them. */
static void expected_ids(struct bench *b, enum zoo_kind kind, uint32_t s, uint32_t n_prompt, uint32_t n, uint32_t *ids)
{
    const struct sampler_params p = params_of(kind, s);
    struct sampler *sampler;
    struct sampler_scratch *scratch;
    if (sampler_open(&p, V, &sampler, &err) || sampler_scratch_open(V, &scratch, &err)) fail_msg("%s", text);
    uint32_t saved[ZOO_CONTEXT];
    memcpy(saved, b->s[s].tokens, sizeof saved);
    b->s[s].position = 0;
    prompt(b, s, n_prompt, n_prompt - 1);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = n_prompt - 1 + i;
        if (sampler_pick(sampler, scratch, b->s[s].logits + (size_t)at * V, NULL, &ids[i], &err) ||
            sampler_accept(sampler, ids[i], &err))
            fail_msg("%s", text);
        b->s[s].tokens[n_prompt + i] = ids[i];
        if (i + 1 < n) add(b, &t, s, 1, ROW_GENERATED, 0), run(b, &t);
    }
    memcpy(b->s[s].tokens, saved, sizeof saved);
    b->s[s].position = 0;
    sampler_scratch_close(scratch);
    sampler_close(sampler);
}

static void collect(struct bench *b, uint32_t *ids, bool *failed)
{
    struct step_ids out = { .ids = ids, .failed = failed };
    if (cuda->collect(b->x, &out, &err)) fail_msg("%s", text);
}

static void test_sampled(void **state)
{
    (void)state;
    enum { N = 12, S = 9 };
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
        struct bench b;
        uint32_t want[S][N], got[S][N], ids[SEQUENCES];
        bool failed[SEQUENCES];
        bench_open(&b, chat_kinds[k], FUSE_ALL, true, NULL, 0);
        for (uint32_t s = 0; s < S; s++) {
            const struct sampler_params p = params_of(chat_kinds[k], s);
            expected_ids(&b, chat_kinds[k], s, 5 + s, N, want[s]);
            if (cuda->sampler_set(b.x, s, &p, NULL, 0, &err)) fail_msg("%s", text);
        }
        /* A prompt in two chunks: only its last row is sampled. */
        for (uint32_t s = 0; s < S; s++) add(&b, &t, s, 4, ROW_PROMPT, 1000);
        assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_OK);
        for (uint32_t s = 0; s < S; s++) b.s[s].position = 4;
        memset(&t, 0, sizeof t);
        for (uint32_t s = 0; s < S; s++) add(&b, &t, s, 1 + s, ROW_PROMPT, 4 + s);
        assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_OK);
        collect(&b, ids, failed);
        for (uint32_t s = 0; s < S; s++) assert_true(ids[s] == UINT32_MAX && !failed[s]);
        for (uint32_t s = 0; s < S; s++) b.s[s].position = 5 + s;
        /* From here on ids stay on the device: as many steps under way as there may be. */
        for (uint32_t i = 1; i < N + STEP_QUEUE; i++) {
            if (i >= STEP_QUEUE) {
                collect(&b, ids, failed);
                for (uint32_t s = 0; s < S; s++) {
                    assert_false(failed[s]);
                    got[s][i - STEP_QUEUE] = ids[s];
                }
            }
            memset(&t, 0, sizeof t);
            for (uint32_t s = 0; i < N && s < S; s++) {
                add(&b, &t, s, 1, ROW_GENERATED, 0);
                t.tokens[t.st.n_rows - 1] = TOKEN_LAST;
                b.s[s].position++;
            }
            if (i < N && cuda->submit(b.x, &t.st, &err)) fail_msg("%s", text);
        }
        for (uint32_t s = 0; s < S; s++)
            for (uint32_t i = 0; i < N; i++)
                if (got[s][i] != want[s][i])
                    fail_msg("%s: sequence %u, id %u: %u, expected %u", zoo_name(chat_kinds[k]), s, i, got[s][i],
                             want[s][i]);
        struct step_ids none = { .ids = ids, .failed = failed };
        assert_int_equal(cuda->collect(b.x, &none, &err), WK_INVALID);
        bench_close(&b);
    }
}

/* One generated row for each of the first n sequences, going on with the last id. */
static void submit_next(struct bench *b, uint32_t n)
{
    memset(&t, 0, sizeof t);
    for (uint32_t s = 0; s < n; s++) {
        add(b, &t, s, 1, ROW_GENERATED, 0);
        t.tokens[t.st.n_rows - 1] = TOKEN_LAST;
        b->s[s].position++;
    }
    if (cuda->submit(b->x, &t.st, &err)) fail_msg("%s", text);
}

/* Runs that are launched in pairs give the ids that they give alone; whatever comes between the two of a pair, none is
 * lost and none comes late. */
static void test_pairs(void **state)
{
    (void)state;
    enum { N = 24, S = 9 };
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
        struct bench b;
        uint32_t got[2][N + STEP_QUEUE][SEQUENCES], held = 0, pairs = 0;
        bool failed[SEQUENCES];
        bench_open(&b, chat_kinds[k], FUSE_ALL, true, NULL, 0);
        for (uint32_t ahead = 0; ahead < 2; ahead++) {
            const uint32_t depth = ahead ? STEP_QUEUE : 1;
            for (uint32_t s = 0; s < S; s++) {
                const struct sampler_params p = {
                    .temperature = s % 3 ? 0.8f : 0, .top_p = 1, .repetition_penalty = 1, .seed = s
                };
                b.s[s].position = 0;
                if (cuda->sampler_set(b.x, s, &p, NULL, 0, &err)) fail_msg("%s", text);
            }
            memset(&t, 0, sizeof t);
            for (uint32_t s = 0; s < S; s++) add(&b, &t, s, 5 + s, ROW_PROMPT, 1000);
            assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_OK);
            for (uint32_t s = 0; s < S; s++) b.s[s].position = 5 + s;
            memset(got[ahead], 0, sizeof got[ahead]);
            for (uint32_t i = 1, done = 0; done < N; i++) {
                if (i >= depth || i >= N) collect(&b, got[ahead][done++], failed);
                if (i >= N) continue;
                const uint32_t was = b.x->held, n = i < 10 ? S : i < 16 ? 2 : 1; /* three buckets */
                if (i == 12)
                    assert_int_equal(cuda->sampler_set(b.x, S,
                                                       &(struct sampler_params){ .top_p = 1, .repetition_penalty = 1 },
                                                       NULL, 0, &err),
                                     WK_OK);
                submit_next(&b, n);
                if (b.x->held) assert_int_equal(b.x->held, cuda_bucket(n));
                held += b.x->held != 0;
                pairs += was && !b.x->held;
            }
            assert_int_equal(b.x->held, 0);
        }
        assert_true(pairs >= N / 4 && held >= pairs);
        for (uint32_t i = 0; i < N; i++)
            for (uint32_t s = 0; s < (i < 10 ? S : i < 16 ? 2u : 1u); s++)
                if (got[0][i][s] != got[1][i][s])
                    fail_msg("%s: id %u of sequence %u: %u, alone %u", zoo_name(chat_kinds[k]), i, s, got[1][i][s],
                             got[0][i][s]);
        bench_close(&b);
    }
}

/* A pair that cannot be launched costs its second step alone. */
static void test_pair_fails(void **state)
{
    (void)state;
    struct bench b;
    uint32_t want[3], ids[SEQUENCES];
    bool failed[SEQUENCES];
    bench_open(&b, ZOO_DENSE, FUSE_ALL, true, NULL, 0);
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        const struct sampler_params p = { .top_p = 1, .repetition_penalty = 1 };
        assert_int_equal(cuda->sampler_set(b.x, 0, &p, NULL, 0, &err), WK_OK);
        memset(&t, 0, sizeof t);
        b.s[0].position = 0;
        add(&b, &t, 0, 6, ROW_PROMPT, 1000);
        assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_OK);
        b.s[0].position = 6;
        for (uint32_t i = 0; i < 3; i++) {
            if (i) submit_next(&b, 1);
            if (!ahead) collect(&b, ids, failed), want[i] = ids[0];
        }
        assert_int_equal(b.x->held, ahead);
    }
    void **pair = &b.x->graphs[0][PROGRAM_PAIR].exec, *saved = *pair;
    *pair = NULL;
    assert_true(cuda->submit(b.x, &t.st, &err) != WK_OK);
    *pair = saved;
    for (uint32_t i = 0; i < 3; i++) {
        collect(&b, ids, failed);
        assert_true(ids[0] == want[i] && !failed[0]);
    }
    submit_next(&b, 1);
    collect(&b, ids, failed);
    assert_false(failed[0]);
    bench_close(&b);
}

/* After its end a slot gives no ids; the others go on. One step too many under way is refused. */
static void test_ends(void **state)
{
    (void)state;
    struct bench b;
    uint32_t want[4], ids[SEQUENCES];
    bool failed[SEQUENCES];
    bench_open(&b, ZOO_DENSE, FUSE_ALL, true, NULL, 0);
    expected_ids(&b, ZOO_DENSE, 0, 6, 4, want);
    const struct sampler_params p = params_of(ZOO_DENSE, 0);
    assert_int_equal(cuda->sampler_set(b.x, 0, &p, &want[1], 1, &err), WK_OK);
    assert_int_equal(cuda->sampler_set(b.x, SEQUENCES, &p, NULL, 0, &err), WK_INVALID);
    add(&b, &t, 0, 6, ROW_PROMPT, 5);
    assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_OK);
    b.s[0].position = 6;
    for (uint32_t i = 1; i < STEP_QUEUE; i++) {
        memset(&t, 0, sizeof t);
        add(&b, &t, 0, 1, ROW_GENERATED, 0);
        t.tokens[0] = TOKEN_LAST;
        b.s[0].position++;
        assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_OK);
    }
    assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_INVALID);
    const bool repeated = want[0] == want[1];
    for (uint32_t i = 0; i < STEP_QUEUE; i++) {
        collect(&b, ids, failed);
        assert_false(failed[0]);
        assert_int_equal(ids[0], i < (repeated ? 1 : 2) ? want[i] : UINT32_MAX);
    }
    bench_close(&b);
}

/* ---- memory, errors, cancellation ---------------------------------------------------------------------- */

static uint64_t free_bytes(void)
{
    size_t left = 0, all = 0;
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(cudaMemGetInfo(&left, &all), cudaSuccess);
    return left;
}

static void test_memory(void **state)
{
    enum { DRIVERS = 64 << 20 /* most that the driver may take beside what was planned */ };
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        struct bench b;
        struct memory_plan used;
        const uint64_t all = free_bytes();
        bench_open(&b, kinds[k], FUSE_ALL, false, NULL, 0);
        const uint64_t taken = all - free_bytes();
        if (taken > b.plan.total + DRIVERS)
            fail_msg("%s: the device has %llu bytes less, %llu were planned", zoo_name(kinds[k]),
                     (unsigned long long)taken, (unsigned long long)b.plan.total);
        cuda->memory(b.x, &used);
        for (uint32_t i = 0; i < MEMORY_KINDS; i++) assert_int_equal(used.bytes[i], b.plan.bytes[i]);
        assert_int_equal(used.total, b.plan.total);
        assert_int_equal(used.kv_pages[0], b.plan.kv_pages[0]);
        assert_int_equal(cuda->residency(b.x, &err), WK_OK);
        uint64_t before = 0;
        for (uint32_t i = 0; i < 100; i++) {
            b.s[i % 3].position = 0;
            prompt(&b, i % 3, 1 + i * 61 % ROWS, 0);
            if (!b.z.program->embedding_width) add(&b, &t, i % 3, 1, ROW_GENERATED, 0), run(&b, &t);
            const uint64_t left = free_bytes();
            if (i == 0) before = left;
            if (left != before)
                fail_msg("%s: prompt %u, of %u rows, took %lld bytes of device memory", zoo_name(kinds[k]), i,
                         1 + i * 61 % ROWS, (long long)before - (long long)left);
        }
        cuda->memory(b.x, &used);
        assert_int_equal(used.total, b.plan.total);
        bench_close(&b);
    }
}

/* What the driver takes for graphs cannot be counted in one: many sets of them take no more than as many plans. */
static void test_graphs(void **state)
{
    (void)state;
    enum { TIMES = 8 };
    static const enum zoo_kind of[] = { ZOO_WIDE, ZOO_EXPERTS };
    static struct graph sets[TIMES][BUCKETS][PROGRAM_KINDS];
    for (uint32_t k = 0; k < 2; k++) {
        struct bench b;
        bench_open(&b, of[k], FUSE_ALL, false, NULL, 0);
        const uint64_t before = free_bytes(), planned = b.plan.bytes[MEMORY_GRAPHS] * TIMES;
        for (uint32_t i = 0; i < TIMES; i++) {
            memcpy(sets[i], b.x->graphs, sizeof sets[i]);
            memset(b.x->graphs, 0, sizeof b.x->graphs);
            if (cuda_graphs_open(b.x, &err)) fail_msg("%s", text);
        }
        const uint64_t taken = before - free_bytes();
        print_message("%s: %u sets of graphs take %llu bytes, %llu were planned\n", zoo_name(of[k]), TIMES,
                      (unsigned long long)taken, (unsigned long long)planned);
        if (taken > planned + (2u << 20)) fail_msg("more than planned");
        for (uint32_t i = 0; i < TIMES; i++) {
            cuda_graphs_close(b.x);
            memcpy(b.x->graphs, sets[i], sizeof sets[i]);
        }
        bench_close(&b);
    }
}

/* A service's main thread asks all along whether the device has died, while others load and close: it is not to end a
 * capture. */
static struct {
    _Atomic bool enough, died;
    _Atomic uint32_t times;
} asking;
static void *ask(void *user)
{
    for (; !atomic_load(&asking.enough); atomic_fetch_add(&asking.times, 1))
        if (cuda->dead()) atomic_store(&asking.died, true);
    return user;
}

static void test_asked(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask, NULL), 0);
    for (uint32_t i = 0; i < 4; i++) {
        struct bench b;
        const uint32_t before = atomic_load(&asking.times);
        bench_open(&b, i % 2 ? ZOO_EXPERTS : ZOO_WIDE, FUSE_ALL, false, NULL, 0);
        prompt(&b, 0, 30, 0);
        add(&b, &t, 0, 1, ROW_GENERATED, 0), run(&b, &t);
        assert_true(atomic_load(&asking.times) > before);
        bench_close(&b);
    }
    atomic_store(&asking.enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(atomic_load(&asking.died));
}

static void refused(struct bench *b, struct step *st, const char *word)
{
    assert_int_equal(cuda->step(b->x, st, &err), WK_INVALID);
    if (!strstr(text, word)) fail_msg("\"%s\" does not name %s", text, word);
}

static void test_refusals(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, ZOO_DENSE, FUSE_ALL, false, NULL, 0);
    float logits[2 * V];
    uint32_t tokens[ROWS] = { 1, 2, 3 }, logits_rows[2] = { 0, 2 };
    for (uint32_t s = 0; s < 2; s++) zoo_hold(&b.pages, &b.s[s].kv, 0, 3, 0);
    struct step_seq good[2] = { { .row = 0, .n_rows = 2, .pages = b.s[0].kv.tables },
                                { .row = 2, .n_rows = 1, .pages = b.s[1].kv.tables } },
                    q[2];
    const struct step fine = { .n_rows = 3,
                               .n_seqs = 2,
                               .n_logits_rows = 2,
                               .tokens = tokens,
                               .seqs = q,
                               .logits_rows = logits_rows,
                               .logits = logits };
    struct step st = fine;
#define RESET() (memcpy(q, good, sizeof q), st = fine)
    RESET();
    assert_int_equal(cuda->step(b.x, &st, &err), WK_OK);
    tokens[1] = V;
    refused(&b, &st, "token 100");
    tokens[1] = TOKEN_LAST;
    refused(&b, &st, "token 4294967295");
    tokens[1] = 2;
    RESET(), q[1].row = 1, refused(&b, &st, "begins at row 1");
    RESET(), q[0].n_rows = 0, refused(&b, &st, "has 0 rows");
    RESET(), q[0].position = ZOO_CONTEXT - 1, refused(&b, &st, "context");
    RESET(), q[0].pages = NULL, refused(&b, &st, "page table");
    RESET(), st.n_rows = ROWS + 1, refused(&b, &st, "rows");
    RESET(), st.logits = NULL, refused(&b, &st, "logits");
    RESET(), logits_rows[1] = 3, refused(&b, &st, "logits row");
    logits_rows[1] = 2;
    /* Within the window, 40 positions here, a table is read. */
    zoo_hold(&b.pages, &b.s[0].kv, 320, 3, 0);
    const uint32_t id = b.s[0].kv.pages[0][8];
    b.s[0].kv.pages[0][8] = b.plan.kv_pages[0];
    RESET(), q[0] = (struct step_seq){ .row = 0, .n_rows = 3, .position = 320, .pages = b.s[0].kv.tables },
             st.n_seqs = 1, refused(&b, &st, "page");
    b.s[0].kv.pages[0][8] = id;
    zoo_hold(&b.pages, &b.s[0].kv, 0, 3, 0);
    /* Sampled: a row before the last, a slot that is not there. */
    RESET(), assert_int_equal(cuda->submit(b.x, &st, &err), WK_INVALID);
    assert_non_null(strstr(text, "last row"));
    logits_rows[0] = 1;
    RESET(), q[1].slot = SEQUENCES, assert_int_equal(cuda->submit(b.x, &st, &err), WK_INVALID);
    assert_non_null(strstr(text, "slot"));
    logits_rows[0] = 0;
    RESET(), b.s[1].kv.pages[0][0] = b.plan.kv_pages[0], refused(&b, &st, "page");
    bench_close(&b);
}

/* A sequence whose numbers are not finite is marked; its neighbour computes the bits that it computes alone. */
static void test_infinite(void **state)
{
    (void)state;
    const enum zoo_kind bad[] = { ZOO_MAPS, ZOO_EXPERTS };
    for (uint32_t k = 0; k < 2; k++) {
        struct bench b;
        bench_open(&b, bad[k], FUSE_ALL, true, NULL, 0);
        prompt(&b, 0, 20, 0);
        float alone[2 * V];
        add(&b, &t, 0, 1, ROW_GENERATED, 0), run(&b, &t);
        memcpy(alone, b.s[0].logits + (size_t)19 * V, sizeof alone);
        b.s[1].tokens[4] = ZOO_BAD_TOKEN;
        b.s[0].position = 0;
        for (uint32_t s = 0; s < 3; s++) add(&b, &t, s, 20, ROW_PROMPT, 12);
        run(&b, &t);
        assert_true(b.s[1].failed);
        for (uint32_t s = 0; s < 3; s++) add(&b, &t, s, 1, ROW_GENERATED, 0);
        run(&b, &t);
        assert_false(b.s[0].failed || b.s[2].failed);
        same_bits(alone, b.s[0].logits + (size_t)19 * V, 2 * V, "beside a broken sequence", k);
        /* Sampled: no id, and said so. */
        const struct sampler_params p = { .top_p = 1, .repetition_penalty = 1 };
        uint32_t ids[SEQUENCES];
        bool failed[SEQUENCES];
        for (uint32_t s = 0; s < 3; s++) assert_int_equal(cuda->sampler_set(b.x, s, &p, NULL, 0, &err), WK_OK);
        for (uint32_t s = 0; s < 3; s++) add(&b, &t, s, 1, ROW_GENERATED, 0);
        assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_OK);
        memset(&t, 0, sizeof t);
        collect(&b, ids, failed);
        assert_true(!failed[0] && failed[1] && !failed[2]);
        assert_true(ids[0] < V && ids[1] == UINT32_MAX && ids[2] < V);
        bench_close(&b);
    }
}

struct launched {
    uint32_t n;
    uint64_t product_bytes, attend_bytes;
};

static void count_launch(void *user, const char *name, double seconds, uint64_t bytes)
{
    struct launched *l = user;
    assert_true(seconds >= 0);
    assert_null(strstr(name, "blk."));
    l->n++;
    if (!strncmp(name, "product ", 8)) l->product_bytes += bytes;
    if (!strcmp(name, "attend")) l->attend_bytes += bytes;
}

/* Every launch but the first is told of, with the tiles and pages that it reads; logits are what they were. */
static void test_launches(void **state)
{
    (void)state;
    struct bench b;
    struct launched l = { 0 }, none;
    uint64_t tiles = 0, page = 0;
    float logits[V];
    bench_open(&b, ZOO_WIDE, FUSE_ALL, false, NULL, 0);
    for (uint32_t i = 0; i < b.x->n_matrices; i++)
        if (b.x->matrices[i].tensor != &b.z.program->tensors[b.z.program->ops[0].t[0]])
            tiles += b.x->matrices[i].tiles * b.x->matrices[i].tile_bytes;
    for (uint32_t i = 0; i < b.z.program->n_kv_layers; i++) page += cuda_layer_page_bytes(b.x, i) / KV_PAGE;
    prompt(&b, 0, 8, 8);
    const struct sequence before = b.s[0];
    add(&b, &t, 0, 1, ROW_GENERATED, 8);
    run(&b, &t);
    memcpy(logits, b.s[0].logits + (size_t)8 * V, sizeof logits);
    b.s[0].position = before.position;
    cuda->launches(b.x, count_launch, &l);
    add(&b, &t, 0, 1, ROW_GENERATED, 8);
    run(&b, &t);
    cuda->launches(b.x, NULL, NULL);
    same_bits(logits, b.s[0].logits + (size_t)8 * V, V, "a step whose launches are timed", 0);
    assert_int_equal(l.n, b.z.program->n_launches - 1);
    assert_int_equal(l.attend_bytes, 9 * page);
    assert_true(l.product_bytes >= tiles);
    none = l;
    add(&b, &t, 0, 1, ROW_GENERATED, 9);
    run(&b, &t);
    assert_int_equal(none.n, l.n);
    bench_close(&b);
}

static void test_cancel(void **state)
{
    (void)state;
    struct bench b;
    const bool yes = true;
    float logits[V];
    bench_open(&b, ZOO_DENSE, FUSE_ALL, false, NULL, 0);
    add(&b, &t, 0, 30, ROW_PROMPT, 29);
    t.st.cancel = &yes;
    t.st.logits = logits;
    assert_int_equal(cuda->step(b.x, &t.st, &err), WK_CANCELLED);
    t.st.cancel = NULL;
    assert_int_equal(cuda->step(b.x, &t.st, &err), WK_OK);
    memset(&t, 0, sizeof t);
    prompt(&b, 0, 30, 29);
    same_bits(logits, b.s[0].logits + (size_t)29 * V, V, "after a cancelled step", 0);
    bench_close(&b);
}

static int tests(int argc, char **argv)
{
    const struct CMUnitTest all[] = { cmocka_unit_test(test_sampled),    cmocka_unit_test(test_pairs),
                                      cmocka_unit_test(test_pair_fails), cmocka_unit_test(test_ends),
                                      cmocka_unit_test(test_memory),     cmocka_unit_test(test_graphs),
                                      cmocka_unit_test(test_asked),      cmocka_unit_test(test_refusals),
                                      cmocka_unit_test(test_infinite),   cmocka_unit_test(test_cancel),
                                      cmocka_unit_test(test_launches) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return test_main(tests, argc, argv); }
