/* test_generator.c: sampled steps and sequences that generate together, against logits and core/sample one by one. */
#include "model/generator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_build.h"

#include <cmocka.h>

enum { E = 64, F = 96, V = 50, H = 4, CONTEXT = 200, N = 6 };

static struct plugin_registry *registry;
static char text[2048];
static const struct wk_err err = { text, sizeof text };

static void ok(wk_status status)
{
    if (status) fail_msg("%s", text);
}

/* ---- a small llama ------------------------------------------------------------------------------------- */

static void put(struct gguf_build *g, const char *name, uint32_t rows, uint32_t cols, float scale)
{
    uint32_t seed = 3; /* by name: every model of this file has the same weights */
    for (const char *c = name; *c; c++) seed = seed * 31 + (unsigned char)*c;
    gguf_build_noise(g, seed, name, rows, cols, scale);
}

static struct gguf_build *file; /* the model's bytes: freed after it */

static struct model *plan(uint32_t sequences, uint32_t max_rows, float head)
{
    struct gguf_build *g = file = gguf_build_new("llama");
    struct model *m;
    gguf_build_u32(g, "llama.context_length", CONTEXT);
    gguf_build_u32(g, "llama.embedding_length", E);
    gguf_build_u32(g, "llama.block_count", 1);
    gguf_build_u32(g, "llama.feed_forward_length", F);
    gguf_build_u32(g, "llama.attention.head_count", H);
    gguf_build_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    static const struct {
        const char *name;
        uint32_t rows, cols;
        float scale;
    } tensors[] = {
        { "token_embd.weight", V, E, 0.2f },        { "output_norm.weight", 1, E, 1 },
        { "blk.0.attn_norm.weight", 1, E, 1 },      { "blk.0.attn_q.weight", E, E, 0.2f },
        { "blk.0.attn_k.weight", E, E, 0.2f },      { "blk.0.attn_v.weight", E, E, 0.2f },
        { "blk.0.attn_output.weight", E, E, 0.2f }, { "blk.0.ffn_norm.weight", 1, E, 1 },
        { "blk.0.ffn_gate.weight", F, E, 0.2f },    { "blk.0.ffn_up.weight", F, E, 0.2f },
        { "blk.0.ffn_down.weight", E, F, 0.2f },
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        put(g, tensors[i].name, tensors[i].rows, tensors[i].cols, tensors[i].scale);
    put(g, "output.weight", V, E, head);
    const struct model_options o = {
        .device = device_cpu(),
        .fuse = FUSE_ALL,
        .dev = { .threads = 2, .isa = WK_ISA_AVX512, .max_sequences = sequences, .max_rows = max_rows }
    };
    ok(model_plan(gguf_build_open(g), registry, &o, &m, &err));
    return m;
}

static struct model *load(uint32_t sequences, uint32_t max_rows, float head)
{
    struct model *m = plan(sequences, max_rows, head);
    ok(model_load(m, &err));
    return m;
}

static void unload(struct model *m)
{
    model_close(m);
    gguf_build_free(file);
}

static const struct sampler_bias bias[] = { { 3, 1.0f }, { 7, -100.0f } };

static struct sampler_params params(uint32_t i)
{
    return (struct sampler_params){ .temperature = i % 3 ? 1.2f : 0.0f,
                                    .top_k = i % 2 ? 20 : 0,
                                    .top_p = i % 4 ? 1.0f : 0.9f,
                                    .repetition_penalty = i % 3 == 2 ? 1.3f : 1.0f,
                                    .presence_penalty = i == 4 ? 0.5f : 0.0f,
                                    .logit_bias = bias,
                                    .n_logit_bias = i == 5 ? 2 : 0,
                                    .seed = i + 1 };
}

static uint32_t prompt_of(uint32_t i, uint32_t *tokens)
{
    static const uint32_t length[N] = { 1, 9, 64, 65, 130, 40 };
    for (uint32_t k = 0; k < length[i]; k++) tokens[k] = (k * 7 + i * 3) % V;
    return length[i];
}

/* n ids of job i by logits and core/sample; its last ids are UINT32_MAX after `end`. sets: masks of its ids in turn;
 * NULL: none. */
static void one_by_one(struct model *m, uint32_t i, uint32_t n, uint32_t end, const uint64_t *sets, uint32_t *ids)
{
    struct session *s;
    struct sampler *sampler;
    struct sampler_scratch *scratch;
    uint32_t tokens[CONTEXT];
    float logits[V];
    const struct sampler_params p = params(i);
    const uint32_t n_prompt = prompt_of(i, tokens);
    ok(session_open(m, &s, &err));
    ok(sampler_open(&p, V, &sampler, &err));
    ok(sampler_scratch_open(V, &scratch, &err));
    ok(session_feed(s, tokens, n_prompt, ROW_PROMPT, 1, logits, &err));
    for (uint32_t k = 0; k < n; k++) {
        if (k && ids[k - 1] == end)
            end = ids[k] = UINT32_MAX;
        else if (k && ids[k - 1] == UINT32_MAX)
            ids[k] = UINT32_MAX;
        else {
            ok(sampler_pick(sampler, scratch, logits, sets ? &sets[k % 2] : NULL, &ids[k], &err));
            ok(sampler_accept(sampler, ids[k], &err));
            if (session_length(s) < CONTEXT)
                ok(session_feed(s, &ids[k], 1, ROW_GENERATED, 1, logits, &err));
            else
                assert_int_equal(k, n - 1);
        }
    }
    sampler_close(sampler);
    sampler_scratch_close(scratch);
    session_close(s);
}

/* ---- generators ---------------------------------------------------------------------------------------- */

static void start_constrained(struct generator *g, uint32_t at, uint32_t i, uint32_t most, const uint32_t *end,
                              const struct sampler_constraint *constraint)
{
    uint32_t tokens[CONTEXT];
    const struct sampler_params p = params(i);
    const uint32_t n = prompt_of(i, tokens);
    ok(generator_start(g, at,
                       &(struct generator_job){ .params = &p,
                                                .ends = end,
                                                .n_ends = end != NULL,
                                                .prompt = tokens,
                                                .n_prompt = n,
                                                .most = most,
                                                .constraint = constraint },
                       &err));
}
static void start(struct generator *g, uint32_t at, uint32_t i, uint32_t most, const uint32_t *end)
{
    start_constrained(g, at, i, most, end, NULL);
}

/* Alone, together, and by single logits: the same ids; each stops where its job says. */
static void test_together(void **state)
{
    (void)state;
    enum { MOST = 30 };
    struct model *m = load(N, 48, 2);
    struct generator *g;
    uint32_t want[N][MOST + 2], ids[N], most[N];
    for (uint32_t i = 0; i < N; i++) {
        most[i] = MOST - 3 * i;
        one_by_one(m, i, most[i], UINT32_MAX, NULL, want[i]);
        want[i][most[i]] = want[i][most[i] + 1] = UINT32_MAX;
    }
    const uint32_t end = want[1][10];
    uint32_t at_end = 0;
    while (want[1][at_end] != end) at_end++;
    for (uint32_t k = at_end + 1; k < MOST + 2; k++) want[1][k] = UINT32_MAX;
    ok(generator_open(m, N, &g, &err));
    for (uint32_t round = 0; round < 2; round++) { /* a second round in the same slots */
        for (uint32_t i = 0; i < N; i++) start(g, (i + round) % N, i, most[i], i == 1 ? &end : NULL);
        for (uint32_t k = 0; k < MOST + 2; k++) {
            ok(generator_next(g, ids, &err));
            for (uint32_t i = 0; i < N; i++)
                assert_int_equal(ids[(i + round) % N], k < most[i] + 2 ? want[i][k] : UINT32_MAX);
        }
    }
    generator_close(g);
    ok(generator_open(m, 1, &g, &err));
    for (uint32_t i = 0; i < N; i++) {
        start(g, 0, i, most[i], i == 1 ? &end : NULL);
        for (uint32_t k = 0; k < most[i] + 2; k++) {
            ok(generator_next(g, ids, &err));
            assert_int_equal(ids[0], want[i][k]);
        }
    }
    generator_close(g);
    unload(m);
}

/* Ids of two sets in turn, none after n_most; a call of its own number fails. */
struct turns {
    uint64_t set[2];
    uint32_t n, n_most, calls, fails_at;
};
static wk_status turns_mask(void *user, uint64_t *bits, const struct wk_err *e)
{
    struct turns *t = user;
    if (++t->calls == t->fails_at) return wk_fail(e, WK_INTERNAL, "no mask, as told");
    bits[0] = t->n < t->n_most ? t->set[t->n % 2] : 0;
    return WK_OK;
}
static wk_status turns_accept(void *user, uint32_t id, const struct wk_err *e)
{
    struct turns *t = user;
    if (++t->calls == t->fails_at) return wk_fail(e, WK_INTERNAL, "not accepted, as told");
    return t->set[t->n++ % 2] >> id & 1 ? WK_OK : wk_fail(e, WK_INTERNAL, "id %u was not allowed", id);
}

/* Constrained sequences beside free ones, with steps in flight and without: each gives what it gives one by one. */
static void test_constrained(void **state)
{
    (void)state;
    enum { MOST = 20 };
    static struct device_ops ops;
    struct model *m = load(N, 48, 2);
    uint32_t want[N][MOST + 1], ids[N];
    const uint64_t sets[2] = { 0x0000f0f0f0f0f0f0, 0x3ff00ff0000ff };
    for (uint32_t i = 0; i < N; i++) {
        one_by_one(m, i, MOST, UINT32_MAX, i % 2 ? sets : NULL, want[i]);
        want[i][MOST] = UINT32_MAX;
    }
    for (uint32_t ahead = 1; ahead <= STEP_QUEUE; ahead++) {
        struct turns turns[N];
        struct sampler_constraint c[N];
        struct generator *g;
        ops = *device_cpu();
        ops.run_ahead = ahead;
        m->device = &ops;
        ok(generator_open(m, N, &g, &err));
        for (uint32_t i = 0; i < N; i++) {
            turns[i] = (struct turns){ .set = { sets[0], sets[1] }, .n_most = i == 3 ? 7 : MOST };
            c[i] = (struct sampler_constraint){ &turns[i], turns_mask, turns_accept, NULL };
            start_constrained(g, i, i, MOST, NULL, i % 2 ? &c[i] : NULL);
        }
        for (uint32_t k = 0; k <= MOST; k++) {
            ok(generator_next(g, ids, &err));
            for (uint32_t i = 0; i < N; i++)
                assert_int_equal(ids[i], i != 3 || k < 7 ? want[i][k] : k == 7 ? GENERATOR_BLOCKED : GENERATOR_NONE);
        }
        /* A call that fails, at any time, fails the generator's; what follows begins anew. */
        for (uint32_t at = 1; at < 9; at++) {
            turns[1] = (struct turns){ .set = { sets[0], sets[1] }, .n_most = MOST, .fails_at = at };
            const struct sampler_params p = params(1);
            const struct generator_job job = {
                .params = &p, .prompt = &ids[0], .n_prompt = 1, .most = MOST, .constraint = &c[1]
            };
            ids[0] = 1;
            wk_status status = generator_start(g, 0, &job, &err);
            for (uint32_t k = 0; !status && k < MOST; k++) status = generator_next(g, ids, &err);
            assert_int_equal(status, WK_INTERNAL);
            assert_non_null(strstr(text, "as told"));
        }
        start(g, 0, 2, MOST, NULL);
        for (uint32_t k = 0; k <= MOST; k++) {
            ok(generator_next(g, ids, &err));
            assert_int_equal(ids[0], want[2][k]);
        }
        generator_close(g);
    }
    unload(m);
}

static void test_context_end(void **state)
{
    (void)state;
    struct model *m = load(1, 512, 2);
    struct generator *g;
    uint32_t want[CONTEXT], id, n = 0;
    one_by_one(m, 4, CONTEXT - 130 + 1, UINT32_MAX, NULL, want);
    ok(generator_open(m, 1, &g, &err));
    start(g, 0, 4, 1000, NULL);
    for (; ok(generator_next(g, &id, &err)), id != GENERATOR_NONE; n++) assert_int_equal(id, want[n]);
    assert_int_equal(n, CONTEXT - 130 + 1);
    generator_close(g);
    unload(m);
}

/* Logits that overflow: the sequence fails, and stays failed; the others do not notice. */
static void test_failure(void **state)
{
    (void)state;
    struct model *m = load(2, 512, 1e38f);
    struct generator *g;
    uint32_t ids[2], failed = 0;
    ok(generator_open(m, 2, &g, &err));
    start(g, 0, 0, 20, NULL);
    start(g, 1, 1, 20, NULL);
    for (uint32_t k = 0; k < 20; k++) {
        ok(generator_next(g, ids, &err));
        failed += ids[0] == GENERATOR_FAILED;
        assert_true(ids[0] == (k ? GENERATOR_NONE : GENERATOR_FAILED));
    }
    assert_int_equal(failed, 1);
    generator_close(g);
    unload(m);
}

static bool stop_now(void) { return true; }

static void test_refusals(void **state)
{
    (void)state;
    struct model *m = load(2, 64, 2);
    struct generator *g, *more;
    const uint32_t tokens[CONTEXT + 1] = { 0 }, wrong = V;
    const struct sampler_params p = params(0), bad = { .temperature = 3, .repetition_penalty = 1 };
    uint32_t ids[2];
    struct generator_job job = { .params = &p, .prompt = tokens, .n_prompt = CONTEXT + 1, .most = 1 };
    assert_int_equal(generator_open(m, 65, &g, &err), WK_INVALID);
    assert_int_equal(generator_open(m, 3, &g, &err), WK_NO_MEMORY);
    assert_null(g);
    ok(generator_open(m, 2, &g, &err));
    assert_int_equal(generator_open(m, 1, &more, &err), WK_NO_MEMORY);
    assert_int_equal(generator_start(g, 0, &job, &err), WK_INVALID);
    assert_non_null(strstr(text, "context"));
    job.n_prompt = 1;
    job.params = &bad;
    assert_int_equal(generator_start(g, 0, &job, &err), WK_INVALID);
    assert_non_null(strstr(text, "temperature is 3"));
    job.params = &p;
    job.prompt = &wrong;
    assert_int_equal(generator_start(g, 0, &job, &err), WK_INVALID);
    assert_non_null(strstr(text, "token 50"));
    job.prompt = tokens;
    job.stop = stop_now;
    assert_int_equal(generator_start(g, 0, &job, &err), WK_CANCELLED);
    ok(generator_next(g, ids, &err));
    assert_true(ids[0] == GENERATOR_NONE && ids[1] == GENERATOR_NONE);
    generator_close(g);
    unload(m);
}

/* A cache smaller than all sequences at full length: each session has its share, and its ids are the same as far as
 * that reaches. */
static void test_shares(void **state)
{
    (void)state;
    struct model *m = load(2, 64, 2);
    struct generator *g;
    struct session *s;
    uint32_t want[40], n = 0, tokens[CONTEXT] = { 0 };
    one_by_one(m, 5, 24 + 1, UINT32_MAX, NULL, want); /* 40 tokens, then 24 fill 2 pages */
    const uint64_t page = m->plan.bytes[MEMORY_KV] / m->plan.kv_pages[0];
    assert_int_equal(model_set_kv(m, page, &err), WK_INTERNAL); /* it is loaded */
    unload(m);
    m = plan(2, 64, 2);
    assert_int_equal(model_kv_auto(m, 0), 14 * page);
    assert_int_equal(model_kv_auto(m, m->plan.total + 100 * page), 14 * page);
    assert_int_equal(model_kv_auto(m, m->plan.total - 4 * page), 5 * page); /* half of what is left */
    assert_int_equal(model_set_kv(m, model_kv_auto(m, 1), &err), WK_INVALID);
    assert_non_null(strstr(text, "holds no page"));
    assert_int_equal(model_set_kv(m, UINT64_MAX, &err), WK_NO_MEMORY);
    ok(model_set_kv(m, 5 * page + 1, &err));
    assert_int_equal(m->plan.kv_pages[0], 5);
    assert_int_equal(m->plan.bytes[MEMORY_KV], 5 * page);
    ok(model_load(m, &err));
    ok(generator_open(m, 2, &g, &err));
    start(g, 0, 5, 1000, NULL);
    start(g, 1, 5, 1000, NULL);
    for (uint32_t ids[2]; ok(generator_next(g, ids, &err)), ids[0] != GENERATOR_NONE; n++) {
        assert_int_equal(ids[0], want[n]);
        assert_int_equal(ids[1], want[n]);
    }
    assert_int_equal(n, 24 + 1);
    const struct sampler_params p = params(0);
    assert_int_equal(
        generator_start(g, 0, &(struct generator_job){ .params = &p, .prompt = tokens, .n_prompt = 65, .most = 1 },
                        &err),
        WK_INVALID);
    assert_non_null(strstr(text, "its share of the KV cache"));
    generator_close(g);
    ok(session_open(m, &s, &err));
    ok(session_feed(s, tokens, 60, ROW_PROMPT, 0, NULL, &err));
    assert_int_equal(session_feed(s, tokens, 5, ROW_PROMPT, 0, NULL, &err), WK_NO_MEMORY);
    assert_non_null(strstr(text, "share of the KV cache holds 64"));
    session_close(s);
    unload(m);
}

/* ---- the device's own rules ---------------------------------------------------------------------------- */

static void refused(struct model *m, const struct step *step, const char *words)
{
    assert_int_equal(m->device->submit(m->executor, step, &err), WK_INVALID);
    if (!strstr(text, words)) fail_msg("%s", text);
}

static void test_submit(void **state)
{
    (void)state;
    struct model *m = load(2, 64, 2);
    const struct device_ops *d = m->device;
    const uint32_t pages[CONTEXT / KV_PAGE + 1] = { 0, 1, 2, 3, 4, 5, 6 }, *const groups[] = { pages };
    const struct sampler_params p = params(1);
    uint32_t tokens[4] = { 1, 2, 3, 4 }, logits_row = 3, ids[2];
    bool failed[2];
    struct step_seq seq = { .n_rows = 4, .pages = groups, .slot = 1 };
    struct step step = {
        .n_rows = 4, .n_seqs = 1, .n_logits_rows = 1, .tokens = tokens, .seqs = &seq, .logits_rows = &logits_row
    };
    struct step_ids out = { .ids = ids, .failed = failed };
    assert_int_equal(d->collect(m->executor, &out, &err), WK_INVALID);
    refused(m, &step, "never set");
    assert_int_equal(d->sampler_set(m->executor, 2, &p, NULL, 0, &err), WK_INVALID);
    assert_int_equal(d->sampler_set(m->executor, 1, &p, tokens, SAMPLER_MAX_ENDS + 1, &err), WK_INVALID);
    ok(d->sampler_set(m->executor, 1, &p, NULL, 0, &err));
    logits_row = 2;
    refused(m, &step, "only the last row of a sequence");
    logits_row = 3;
    seq.slot = 2;
    refused(m, &step, "slot 2");
    seq.slot = 1;
    tokens[3] = TOKEN_LAST;
    refused(m, &step, "no id yet");
    tokens[3] = V;
    refused(m, &step, "token 50");
    tokens[3] = 4;
    ok(d->submit(m->executor, &step, &err));
    tokens[0] = TOKEN_LAST;
    seq.n_rows = step.n_rows = 1;
    logits_row = 0;
    for (uint32_t k = 1; k < STEP_QUEUE; k++) {
        seq.position = 3 + k;
        ok(d->submit(m->executor, &step, &err));
    }
    refused(m, &step, "under way");
    for (uint32_t k = 0; k < STEP_QUEUE; k++) {
        ok(d->collect(m->executor, &out, &err));
        assert_true(ids[0] < V && !failed[0]);
    }
    step.n_logits_rows = 0; /* nothing sampled: the slot stays where it is */
    ok(d->submit(m->executor, &step, &err));
    ok(d->collect(m->executor, &out, &err));
    assert_int_equal(ids[0], UINT32_MAX);
    assert_false(failed[0]);
    assert_int_equal(d->collect(m->executor, &out, &err), WK_INVALID);
    /* A step with a mask waits for it; what rows ask for is checked. */
    struct step_ask ask = { .id = TOKEN_LAST, .top = 3, .masked = true };
    struct sampler_top top;
    const uint64_t only = UINT64_C(1) << 17, *const masks[] = { &only };
    out.top_logprobs = &top;
    step.n_logits_rows = 1;
    step.asks = &ask;
    seq.position = 3 + STEP_QUEUE;
    assert_int_equal(d->mask(m->executor, &step, masks, &err), WK_INVALID);
    ok(d->submit(m->executor, &step, &err));
    refused(m, &step, "waits for its masks");
    assert_int_equal(d->collect(m->executor, &out, &err), WK_INVALID);
    ok(d->mask(m->executor, &step, masks, &err));
    assert_int_equal(d->mask(m->executor, &step, masks, &err), WK_INVALID);
    ok(d->collect(m->executor, &out, &err));
    assert_true(ids[0] == 17 && top.id == 17 && top.n == 3 && !failed[0]);
    ask.top = SAMPLER_MAX_TOP + 1;
    refused(m, &step, "the best 21 ids");
    ask = (struct step_ask){ .id = V, .top = 0 };
    refused(m, &step, "the probability of id 50");
    ask = (struct step_ask){ .id = 3, .top = 0, .masked = true };
    refused(m, &step, "not sampled");
    step.asks = NULL;
    struct step_seq twice[2] = { { .row = 0, .n_rows = 1, .pages = groups, .slot = 1 },
                                 { .row = 1, .n_rows = 1, .pages = groups, .slot = 1 } };
    step.seqs = twice;
    step.n_seqs = step.n_rows = 2;
    refused(m, &step, "twice");
    unload(m);
}

int main(void)
{
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &registry, &err)) {
        printf("%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together), cmocka_unit_test(test_constrained), cmocka_unit_test(test_context_end),
        cmocka_unit_test(test_failure),  cmocka_unit_test(test_refusals),    cmocka_unit_test(test_shares),
        cmocka_unit_test(test_submit),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    plugin_registry_close(registry);
    return failed;
}
