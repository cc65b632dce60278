/* test_asks_cuda.c: what sampled steps on the device may ask besides ids: log probabilities, of prompts' tokens and of
 * ids, and masks that come while the step is under way; against the logits of the same rows and core/sample. */
#include "device/cuda/test_executor.h"

#include <math.h>

enum { N = 8, S = 9, WORDS = (V + 63) / 64 };

/* How a case cuts its prompts: class, and rows of the two chunks; the second has several runs where it is long. */
static const struct shape {
    enum row_role role;
    uint32_t first, second; /* second 0: 1 + the sequence's number */
} shapes[] = { { ROW_PROMPT, 4, 0 }, { ROW_GENERATED, 4, 0 }, { ROW_GENERATED, 3, 13 }, { ROW_PROMPT, 1, 13 } };

static uint32_t second(const struct shape *p, uint32_t s) { return p->second ? p->second : 1 + s; }
static bool has_mask(uint32_t s) { return s % 3 != 1; }
static uint32_t top_of(uint32_t s) { return s % 4 == 3 ? STEP_NO_TOP : 7 * s % 21; }

static struct sampler_params params_of(uint32_t s)
{
    static const struct sampler_bias never = { ZOO_BAD_TOKEN, -100 };
    struct sampler_params p = {
        .top_p = 1, .repetition_penalty = 1, .seed = 500 + s, .logit_bias = &never, .n_logit_bias = s % 4 == 2
    };
    if (s % 3) p.temperature = 0.9f;
    if (s % 5 == 4) p.top_k = 9;
    return p;
}

/* Of the i-th id of sequence s: about a third of all ids, never the one whose embedding is infinite. */
static void make_mask(uint32_t s, uint32_t i, uint64_t *mask)
{
    uint32_t r = 77 + 131 * s + i;
    memset(mask, 0, WORDS * sizeof *mask);
    for (uint32_t id = 0; id < V; id++) {
        r = r * 1664525u + 1013904223u;
        if (id == (s + i) % ZOO_BAD_TOKEN || (id != ZOO_BAD_TOKEN && (r >> 16) % 3 == 0))
            mask[id / 64] |= UINT64_C(1) << id % 64;
    }
}

/* Ids as logits and the CPU's sampler make them; the logits of all rows stay in b->s[s].logits. */
static void expect(struct bench *b, const struct shape *p, uint32_t s, uint32_t *ids)
{
    const struct sampler_params params = params_of(s);
    const uint32_t n_prompt = p->first + second(p, s);
    struct sampler *sampler;
    struct sampler_scratch *scratch;
    uint64_t mask[WORDS];
    if (sampler_open(&params, V, &sampler, &err) || sampler_scratch_open(V, &scratch, &err)) fail_msg("%s", text);
    b->s[s].position = 0;
    add(b, &t, s, n_prompt, p->role, 0), run(b, &t);
    for (uint32_t i = 0; i < N; i++) {
        make_mask(s, i, mask);
        if (sampler_pick(sampler, scratch, b->s[s].logits + (size_t)(n_prompt - 1 + i) * V, has_mask(s) ? mask : NULL,
                         &ids[i], &err) ||
            sampler_accept(sampler, ids[i], &err))
            fail_msg("%s", text);
        b->s[s].tokens[n_prompt + i] = ids[i];
        if (i + 1 < N) add(b, &t, s, 1, ROW_GENERATED, 0), run(b, &t);
    }
    b->s[s].position = 0;
    sampler_scratch_close(scratch);
    sampler_close(sampler);
}

struct asked {
    struct step_ask ask[ROWS];
    uint32_t s[ROWS], position[ROWS]; /* of the logits row */
    uint64_t mask[S][WORDS];
    const uint64_t *masks[ROWS];
    uint32_t n, n_seqs;
};

/* What is asked of the rows of a step that is built: the probability of the next token, but of the last row an id. */
static void ask(struct bench *b, const struct shape *p, uint32_t number, struct asked *a)
{
    memset(a, 0, sizeof *a);
    a->n = t.st.n_logits_rows;
    a->n_seqs = t.st.n_seqs;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t seq = 0;
        while (t.seqs[seq].row + t.seqs[seq].n_rows <= t.logits_rows[i]) seq++;
        const uint32_t s = t.of[seq], at = t.seqs[seq].position + t.logits_rows[i] - t.seqs[seq].row;
        const bool last = at + 1 >= p->first + second(p, s);
        a->s[i] = s;
        a->position[i] = at;
        a->ask[i] = (struct step_ask){ .id = last ? TOKEN_LAST : b->s[s].tokens[at + 1],
                                       .top = last ? top_of(s) : s % 21,
                                       .masked = last && has_mask(s) };
        if (!a->ask[i].masked) continue;
        make_mask(s, number, a->mask[s]);
        a->masks[i] = a->mask[s];
    }
    t.st.asks = a->ask;
}

static void check_top_logprobs(const struct bench *b, const struct asked *a, const struct sampler_top *got,
                               const uint32_t *ids)
{
    for (uint32_t i = 0; i < a->n; i++) {
        struct sampler_top want;
        const struct step_ask *q = &a->ask[i];
        const uint32_t id = q->id == TOKEN_LAST ? ids[a->s[i]] : q->id;
        if (q->top == STEP_NO_TOP) continue;
        if (sampler_top(b->s[a->s[i]].logits + (size_t)a->position[i] * V, V, id, q->top, &want, &err))
            fail_msg("%s", text);
        if (got[i].id != id || got[i].n != want.n || got[i].sum != want.sum || got[i].best != want.best ||
            got[i].logit != want.logit || got[i].rank != want.rank)
            fail_msg("sequence %u, position %u: id %u, best %g, expected %u, %g", a->s[i], a->position[i], got[i].id,
                     (double)got[i].best, id, (double)want.best);
        for (uint32_t k = 0; k < want.n; k++)
            if (got[i].top_id[k] != want.top_id[k] || got[i].top_logit[k] != want.top_logit[k])
                fail_msg("sequence %u, position %u: best %u is %u, expected %u", a->s[i], a->position[i], k,
                         got[i].top_id[k], want.top_id[k]);
    }
}

static void submit(struct bench *b)
{
    if (cuda->submit(b->x, &t.st, &err)) fail_msg("%s", text);
}

static void collect(const struct bench *b, const struct asked *a, uint32_t *ids, const uint32_t *want)
{
    static struct sampler_top top_logprobs[ROWS];
    bool failed[SEQUENCES];
    struct step_ids out = { .ids = ids, .failed = failed, .top_logprobs = top_logprobs };
    if (cuda->collect(b->x, &out, &err)) fail_msg("%s", text);
    for (uint32_t s = 0; s < a->n_seqs; s++) {
        assert_false(failed[s]);
        if (ids[s] != want[s]) fail_msg("sequence %u: id %u, expected %u", s, ids[s], want[s]);
    }
    check_top_logprobs(b, a, top_logprobs, ids);
}

/* Until its masks come, a step is neither followed by another nor collected; older ones are. */
static void give_masks(struct bench *b, const struct asked *a)
{
    struct step_ids out = { 0 };
    assert_int_equal(cuda->submit(b->x, &t.st, &err), WK_INVALID);
    assert_non_null(strstr(text, "waits for its masks"));
    assert_int_equal(cuda->step(b->x, &t.st, &err), WK_INVALID);
    assert_int_equal(cuda->collect(b->x, &out, &err), WK_INVALID);
    if (cuda->mask(b->x, &t.st, a->masks, &err)) fail_msg("%s", text);
    assert_int_equal(cuda->mask(b->x, &t.st, a->masks, &err), WK_INVALID);
}

static void test_shape(enum zoo_kind kind, const struct shape *p)
{
    static struct asked before, now;
    struct bench b;
    uint32_t want[N][S], of[N], none[S], ids[SEQUENCES];
    bench_open(&b, kind, FUSE_ALL, true, NULL, 0);
    for (uint32_t s = 0; s < S; s++) {
        const struct sampler_params params = params_of(s);
        expect(&b, p, s, of);
        for (uint32_t i = 0; i < N; i++) want[i][s] = of[i];
        none[s] = UINT32_MAX;
        if (cuda->sampler_set(b.x, s, &params, NULL, 0, &err)) fail_msg("%s", text);
    }
    for (uint32_t s = 0; s < S; s++) add(&b, &t, s, p->first, p->role, 0);
    ask(&b, p, 0, &before);
    submit(&b);
    memset(&t, 0, sizeof t);
    for (uint32_t s = 0; s < S; s++) b.s[s].position = p->first;
    for (uint32_t s = 0; s < S; s++) add(&b, &t, s, second(p, s), p->role, s % 2 ? 0 : p->first + second(p, s) - 1);
    ask(&b, p, 0, &now);
    submit(&b);
    collect(&b, &before, ids, none);
    give_masks(&b, &now);
    for (uint32_t s = 0; s < S; s++) b.s[s].position = p->first + second(p, s);
    for (uint32_t i = 1; i < N; i++) {
        before = now;
        memset(&t, 0, sizeof t);
        for (uint32_t s = 0; s < S; s++) {
            add(&b, &t, s, 1, ROW_GENERATED, 0);
            t.tokens[t.st.n_rows - 1] = TOKEN_LAST;
        }
        ask(&b, p, i, &now);
        submit(&b);
        collect(&b, &before, ids, want[i - 1]); /* as the masks of the step that is under way may depend on it */
        give_masks(&b, &now);
        for (uint32_t s = 0; s < S; s++) b.s[s].position++;
    }
    collect(&b, &now, ids, want[N - 1]);
    bench_close(&b);
}

static void test_all(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < STATELESS; k++)
        for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (k == 0 || i % 4 == k % 4) test_shape(chat_kinds[k], &shapes[i]);
}

/* Log probabilities of plain rows with steps under way ahead: pairs are not held back behind them. */
static void test_ahead(void **state)
{
    (void)state;
    enum { STEPS = 16 };
    struct bench b;
    uint32_t got[2][STEPS];
    bench_open(&b, ZOO_DENSE, FUSE_ALL, true, NULL, 0);
    for (uint32_t asks = 0; asks < 2; asks++) {
        const struct sampler_params p = { .temperature = 0.8f, .top_p = 1, .repetition_penalty = 1, .seed = 3 };
        static struct sampler_top top_logprobs[ROWS];
        bool failed[SEQUENCES];
        assert_int_equal(cuda->sampler_set(b.x, 0, &p, NULL, 0, &err), WK_OK);
        b.s[0].position = 0;
        for (uint32_t i = 0, done = 0; done < STEPS; i++) {
            const struct step_ask a = { .id = TOKEN_LAST, .top = 5 };
            uint32_t ids[SEQUENCES];
            struct step_ids out = { .ids = ids, .failed = failed, .top_logprobs = top_logprobs };
            memset(&t, 0, sizeof t);
            if (i < STEPS) {
                add(&b, &t, 0, i ? 1 : 6, i ? ROW_GENERATED : ROW_PROMPT, i ? 0 : 5);
                if (i) t.tokens[0] = TOKEN_LAST;
                if (asks && i % 3) t.st.asks = &a;
                submit(&b);
                b.s[0].position += i ? 1 : 6;
            }
            if (i + 1 < STEP_QUEUE) continue;
            if (cuda->collect(b.x, &out, &err)) fail_msg("%s", text);
            assert_false(failed[0]);
            if (asks && done % 3)
                assert_true(top_logprobs[0].id == ids[0] && top_logprobs[0].n == 5 && top_logprobs[0].sum > 0);
            got[asks][done++] = ids[0];
        }
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    memset(&t, 0, sizeof t);
    bench_close(&b);
}

/* A mask that allows nothing fails its row alone; logits that are not finite have no log probabilities. */
static void test_failures(void **state)
{
    (void)state;
    struct bench b;
    const struct sampler_params p = { .top_p = 1, .repetition_penalty = 1 };
    const uint64_t nothing[WORDS] = { 0 };
    uint64_t all[WORDS];
    uint32_t ids[SEQUENCES];
    bool failed[SEQUENCES];
    static struct sampler_top top_logprobs[ROWS];
    struct step_ids out = { .ids = ids, .failed = failed, .top_logprobs = top_logprobs };
    struct step_ask asks[6];
    const uint64_t *masks[6] = { NULL };
    memset(all, 0xff, sizeof all);
    bench_open(&b, ZOO_MAPS, FUSE_ALL, true, NULL, 0);
    b.s[2].tokens[1] = ZOO_BAD_TOKEN;
    for (uint32_t s = 0; s < 3; s++) {
        assert_int_equal(cuda->sampler_set(b.x, s, &p, NULL, 0, &err), WK_OK);
        add(&b, &t, s, 3, ROW_PROMPT, 1);
        asks[2 * s] = (struct step_ask){ .id = 4, .top = 20 };
        asks[2 * s + 1] = (struct step_ask){ .id = TOKEN_LAST, .top = 0, .masked = true };
        masks[2 * s + 1] = s ? all : nothing;
    }
    t.st.asks = asks;
    submit(&b);
    if (cuda->mask(b.x, &t.st, masks, &err)) fail_msg("%s", text);
    if (cuda->collect(b.x, &out, &err)) fail_msg("%s", text);
    assert_true(failed[0] && !failed[1] && failed[2]);
    assert_true(ids[0] == UINT32_MAX && ids[1] < V && ids[2] == UINT32_MAX);
    assert_int_equal(top_logprobs[0].id, 4);
    assert_int_equal(top_logprobs[0].n, 20);
    assert_int_equal(top_logprobs[1].id, UINT32_MAX);
    assert_int_equal(top_logprobs[3].id, ids[1]);
    assert_int_equal(top_logprobs[4].id, UINT32_MAX);
    assert_int_equal(top_logprobs[5].id, UINT32_MAX);
    static const struct {
        struct step_ask ask;
        const char *word;
    } bad[] = { { { .id = V, .top = 0 }, "the vocabulary has" },
                { { .id = 1, .top = 21 }, "the best 21 ids" },
                { { .id = 1, .top = STEP_NO_TOP }, "the best" },
                { { .id = 1, .top = 0, .masked = true }, "not sampled" },
                { { .id = TOKEN_LAST, .top = 0 }, "last row" } };
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        asks[0] = bad[i].ask;
        assert_int_equal(cuda->submit(b.x, &t.st, &err), WK_INVALID);
        if (!strstr(text, bad[i].word)) fail_msg("\"%s\" does not say %s", text, bad[i].word);
    }
    memset(&t, 0, sizeof t);
    bench_close(&b);
}

static int tests(int argc, char **argv)
{
    const struct CMUnitTest all[] = { cmocka_unit_test(test_all), cmocka_unit_test(test_ahead),
                                      cmocka_unit_test(test_failures) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return test_main(tests, argc, argv); }
