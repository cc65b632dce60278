/* test_sample.c: the sampler against the definition in sample.h done the slow way: everything sorted, sums in long
 * double. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample/exp.h"
#include "sample/philox.h"
#include "sample/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static uint64_t next_random(uint64_t *s) /* xorshift64 */
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}
static double next_unit(uint64_t *s) { return (double)(next_random(s) >> 11) * 0x1p-53; }

static const struct sampler_params off = { .temperature = 1, .repetition_penalty = 1, .top_p = 1 };

/* ---- the pieces ---------------------------------------------------------------------------------------- */

/* Known answers of the authors' own distribution (Random123, kat_vectors). */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < 3; i++) {
        struct philox_block b;
        memcpy(b.word, rows[i].counter, sizeof b.word);
        b = philox4x32_10(b, rows[i].key[0], rows[i].key[1]);
        assert_memory_equal(b.word, rows[i].want, sizeof b.word);
    }
}

static void test_weight(void **state)
{
    (void)state;
    uint64_t seed = 8;
    assert_true(sampler_weight(0.0f) == UINT64_C(1) << SAMPLER_WEIGHT_BITS &&
                sampler_weight(-0.0f) == UINT64_C(1) << SAMPLER_WEIGHT_BITS);
    assert_true(sampler_weight(-INFINITY) == 0 && sampler_weight(-1e30f) == 0 && sampler_weight(-31.25f) == 0 &&
                sampler_weight(-31.0f) > 0);
    for (int i = 0; i < 400000; i++) {
        const float x = (float)(-next_unit(&seed) * (i % 2 ? 34.0 : 1.0));
        const long double want = expl((long double)x) * 0x1p44L, error = fabsl((long double)sampler_weight(x) - want);
        if (error > 0.5L + (3e-7L + 1e-7L * fabsl((long double)x)) * want)
            fail_msg("weight(%a): %llu, expected %Lg", (double)x, (unsigned long long)sampler_weight(x), want);
    }
}

/* ---- the definition, the slow way ---------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 u128;

struct ranked {
    float l;
    uint32_t id;
    uint64_t w;
    bool stays;
};

/* The first of n at which the running sum of w exceeds floor(random * sum / 2^64). */
static uint32_t slow_reach(const uint64_t *w, uint32_t n, uint64_t random)
{
    long double total = 0, run = 0;
    for (uint32_t i = 0; i < n; i++) total += (long double)w[i];
    const long double target = floorl((long double)random * total / 0x1p64L);
    for (uint32_t i = 0; i < n; i++)
        if ((run += (long double)w[i]) > target) return i;
    fail_msg("a target beyond the sum");
    return 0;
}

static int best_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->l != y->l) return x->l > y->l ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}
enum { SLOW_CHUNKS = 3 };
static int by_id(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->id < y->id ? -1 : 1;
}

/* history: the generated ids, in order. Returns UINT32_MAX where there is no id to pick. */
static uint32_t slow_pick(const struct sampler_params *p, uint32_t n, const float *logits, const uint64_t *mask,
                          const uint32_t *history, uint32_t n_history)
{
    struct ranked *r = calloc(n, sizeof *r);
    assert_non_null(r);
    volatile float inverse = 1.0f / p->temperature;
    for (uint32_t i = 0; i < n; i++) {
        volatile float l = logits[i]; /* volatile: every step rounded */
        uint32_t times = 0;
        for (uint32_t j = 0; j < p->n_logit_bias; j++)
            if (p->logit_bias[j].id == i) l = l + p->logit_bias[j].bias;
        for (uint32_t j = 0; j < n_history; j++) times += history[j] == i;
        volatile float frequency = p->frequency_penalty * (float)times;
        if (times) l = l - p->presence_penalty;
        if (times) l = l - frequency;
        if (mask && !(mask[i / 64] >> (i % 64) & 1)) l = -INFINITY;
        if (p->temperature >= SAMPLER_GREEDY) l = l * inverse;
        if (times) l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        r[i] = (struct ranked){ l, i, 0, true };
    }
    qsort(r, n, sizeof *r, best_first);
    uint32_t picked = r[0].id;
    if (r[0].l == -INFINITY)
        picked = UINT32_MAX;
    else if (p->temperature >= SAMPLER_GREEDY) {
        long double all = 0, run = 0;
        const float m = r[0].l;
        for (uint32_t i = 0; i < n; i++) r[i].stays = p->top_k == 0 || i < p->top_k;
        for (uint32_t i = 0; i < n; i++) {
            r[i].w = sampler_weight(r[i].l - m);
            all += r[i].stays ? (long double)r[i].w : 0;
        }
        const long double share = rintl((long double)p->top_p * 0x1p32L);
        bool reached = false;
        for (uint32_t i = 0; i < n && share < 0x1p32L; i++) {
            r[i].stays = r[i].stays && !reached && r[i].w;
            run += (long double)r[i].w;
            reached = reached || run * 0x1p32L >= share * all;
        }
        for (uint32_t i = 0; i < n; i++)
            r[i].stays = r[i].stays && (long double)r[i].w >= (long double)p->min_p * 0x1p44L;
        struct philox_block b = philox4x32_10((struct philox_block){ { n_history, 0, 0, 0 } }, (uint32_t)p->seed,
                                              (uint32_t)(p->seed >> 32));
        qsort(r, n, sizeof *r, by_id);
        uint64_t of_chunk[SLOW_CHUNKS] = { 0 }, weights[SLOW_CHUNKS][128] = { 0 };
        assert_true(n <= SLOW_CHUNKS * 128);
        for (uint32_t c = 0; c < SLOW_CHUNKS; c++) {
            float best = -INFINITY;
            u128 s = 0;
            for (uint32_t i = 128 * c; i < n && i < 128 * c + 128; i++)
                best = r[i].stays && r[i].l > best ? r[i].l : best;
            for (uint32_t i = 128 * c; i < n && i < 128 * c + 128; i++)
                s += weights[c][i % 128] = r[i].stays && r[i].l > -INFINITY ? sampler_weight(r[i].l - best) : 0;
            if (best > -INFINITY) of_chunk[c] = (uint64_t)(s * sampler_weight(best - m) / ((u128)1 << 44));
        }
        const uint32_t c = slow_reach(of_chunk, SLOW_CHUNKS, (uint64_t)b.word[1] << 32 | b.word[0]);
        picked = 128 * c + slow_reach(weights[c], 128, (uint64_t)b.word[3] << 32 | b.word[2]);
    }
    free(r);
    return picked;
}

struct compared {
    uint64_t seed;
    uint32_t n;
    float *logits;
    uint64_t *mask;
    struct sampler_scratch *x;
};

/* Eight ids of one job, fast and slow. Rows have many equal logits, both zeros, and -inf. */
static void compare(struct compared *c, const struct sampler_params *p, bool masked)
{
    struct sampler *s;
    uint32_t history[8], id = 0;
    assert_int_equal(sampler_open(p, c->n, &s, NULL), WK_OK);
    for (uint32_t step = 0; step < 8; step++) {
        const double scale = step % 2 ? 4.0 : 0.5;
        for (uint32_t i = 0; i < c->n; i++) {
            const double u = next_unit(&c->seed) + next_unit(&c->seed) + next_unit(&c->seed) - 1.5;
            c->logits[i] = step % 3 == 2 ? (float)rint(u * 2) * 0.5f : (float)(u * scale);
            if (next_random(&c->seed) % 16 == 0) c->logits[i] = i % 2 ? -INFINITY : -0.0f;
        }
        for (uint32_t i = 0; i < (c->n + 63) / 64; i++) c->mask[i] = next_random(&c->seed) | next_random(&c->seed);
        const uint64_t *mask = masked ? c->mask : NULL;
        const uint32_t want = slow_pick(p, c->n, c->logits, mask, history, step);
        id = UINT32_MAX;
        const wk_status status = sampler_pick(s, c->x, c->logits, mask, &id, NULL);
        assert_int_equal(status == WK_OK, want != UINT32_MAX);
        if (id != want)
            fail_msg("n %u step %u: id %u, expected %u (temperature %g top_k %u top_p %g min_p %g repetition %g)", c->n,
                     step, id, want, (double)p->temperature, p->top_k, (double)p->top_p, (double)p->min_p,
                     (double)p->repetition_penalty);
        history[step] = status == WK_OK ? id : (uint32_t)(next_random(&c->seed) % c->n);
        assert_int_equal(sampler_accept(s, history[step], NULL), WK_OK);
    }
    sampler_close(s);
}

static void test_all_combinations(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 1, 2, 65, 260 }, top_k[] = { 0, 1, 2, 40, UINT32_MAX /* all */ };
    static const float temperature[] = { 0, 9e-6f, 0.3f, 1, 2 }, top_p[] = { 0, 1e-12f, 0.5f, 0.95f, 1 },
                       min_p[] = { 0, 0.05f, 1 };
    static const float penalties[][3] = { { 0, 0, 1 }, { 0.5f, 0.25f, 1.3f }, { -2, 2, 0.01f } };
    uint32_t done = 0;
    for (size_t i = 0; i < 4; i++) {
        struct compared c = { 11, sizes[i], calloc(sizes[i], sizeof(float)),
                              calloc((sizes[i] + 63) / 64, sizeof(uint64_t)), NULL };
        assert_true(c.logits && c.mask && sampler_scratch_open(c.n, &c.x, NULL) == WK_OK);
        const struct sampler_bias bias[] = { { 0, 3.5f }, { c.n - 1, -100 }, { c.n / 2, 1 } };
        for (uint32_t t = 0; t < 5 * 5 * 5 * 3 * 3 * 2; t++) {
            struct sampler_params p = off;
            p.temperature = temperature[t % 5];
            p.top_k = top_k[t / 5 % 5] < c.n ? top_k[t / 5 % 5] : c.n;
            p.top_p = top_p[t / 25 % 5];
            p.min_p = min_p[t / 125 % 3];
            p.presence_penalty = penalties[t / 375 % 3][0];
            p.frequency_penalty = penalties[t / 375 % 3][1];
            p.repetition_penalty = penalties[t / 375 % 3][2];
            p.seed = next_random(&c.seed);
            if (t / 1125 % 2) {
                p.logit_bias = bias;
                p.n_logit_bias = 3;
            }
            compare(&c, &p, next_random(&c.seed) % 2);
            done++;
        }
        free(c.logits);
        free(c.mask);
        sampler_scratch_close(c.x);
    }
    assert_int_equal(done, 9000);
}

/* ---- distribution and reproducibility ------------------------------------------------------------------ */

/* Pearson's statistic of 200,000 draws from seven probabilities: with 6 degrees of freedom 22.5 is passed once in a
 * thousand times, and the seed is fixed. */
static void test_distribution(void **state)
{
    (void)state;
    const double probability[7] = { 0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01 };
    float logits[7];
    uint32_t seen[7] = { 0 }, id;
    for (int i = 0; i < 7; i++) logits[i] = (float)log(probability[i]) + 3;
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct sampler_params p = off;
        struct sampler_scratch *x;
        struct sampler *s;
        p.seed = seed << 40;
        memset(seen, 0, sizeof seen);
        assert_int_equal(sampler_scratch_open(7, &x, NULL), WK_OK);
        assert_int_equal(sampler_open(&p, 7, &s, NULL), WK_OK);
        for (int i = 0; i < 200000; i++) {
            assert_int_equal(sampler_pick(s, x, logits, NULL, &id, NULL), WK_OK);
            assert_int_equal(sampler_accept(s, id, NULL), WK_OK);
            seen[id]++;
        }
        double statistic = 0;
        for (int i = 0; i < 7; i++) {
            const double expected = 200000 * probability[i];
            statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
        }
        if (statistic > 22.5) fail_msg("seed %llu: Pearson's statistic %g", (unsigned long long)seed, statistic);
        sampler_close(s);
        sampler_scratch_close(x);
    }
}

/* The same seed gives the same ids, whoever used the scratch in between; another seed, or
 * another index, gives others. */
static void test_reproducible(void **state)
{
    (void)state;
    enum { N = 1000, STEPS = 64 };
    static float logits[N]; /* all 0: every id is as likely */
    uint32_t first[STEPS], id, other_id, same = 0;
    struct sampler_scratch *x;
    struct sampler *a, *b, *other;
    struct sampler_params p = off;
    p.seed = UINT64_MAX;
    assert_int_equal(sampler_scratch_open(N, &x, NULL), WK_OK);
    assert_int_equal(sampler_open(&p, N, &a, NULL), WK_OK);
    assert_int_equal(sampler_open(&p, N, &b, NULL), WK_OK);
    p.seed = 1;
    assert_int_equal(sampler_open(&p, N, &other, NULL), WK_OK);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(sampler_pick(a, x, logits, NULL, &first[i], NULL), WK_OK);
        assert_int_equal(sampler_accept(a, first[i], NULL), WK_OK);
    }
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(sampler_pick(other, x, logits, NULL, &other_id, NULL), WK_OK);
        assert_int_equal(sampler_accept(other, other_id, NULL), WK_OK);
        assert_int_equal(sampler_pick(b, x, logits, NULL, &id, NULL), WK_OK);
        assert_int_equal(id, first[i]);
        assert_int_equal(sampler_pick(b, x, logits, NULL, &id, NULL), WK_OK); /* picking is not accepting */
        assert_int_equal(id, first[i]);
        assert_int_equal(sampler_accept(b, id, NULL), WK_OK);
        same += other_id == id;
        if (i) same += first[i] == first[i - 1];
    }
    assert_in_range(same, 0, 4);
    sampler_close(a);
    sampler_close(b);
    sampler_close(other);
    sampler_scratch_close(x);
}

/* Four equal logits: half of the probability is the two lowest ids, and not one more. */
static void test_exact_share(void **state)
{
    (void)state;
    const float logits[4] = { 1, 1, 1, 1 };
    uint32_t seen[4] = { 0 }, id;
    struct sampler_params p = off;
    struct sampler_scratch *x;
    struct sampler *s;
    p.top_p = 0.5f;
    assert_int_equal(sampler_scratch_open(4, &x, NULL), WK_OK);
    assert_int_equal(sampler_open(&p, 4, &s, NULL), WK_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sampler_pick(s, x, logits, NULL, &id, NULL), WK_OK);
        assert_int_equal(sampler_accept(s, id, NULL), WK_OK);
        seen[id]++;
    }
    assert_true(seen[0] > 20 && seen[1] > 20 && seen[2] == 0 && seen[3] == 0);
    sampler_close(s);
    sampler_scratch_close(x);
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static void test_unusable_logits(void **state)
{
    (void)state;
    static const float temperatures[] = { 0, 1 };
    uint64_t none[2] = { 0, 0 };
    char text[256];
    const struct wk_err err = { text, sizeof text };
    for (int t = 0; t < 2; t++) {
        float logits[100] = { 0 };
        uint32_t id = 12345;
        struct sampler_top top = { .id = 12345 };
        struct sampler_params p = off;
        struct sampler_scratch *x;
        struct sampler *s;
        p.temperature = temperatures[t];
        assert_int_equal(sampler_scratch_open(100, &x, NULL), WK_OK);
        assert_int_equal(sampler_open(&p, 100, &s, NULL), WK_OK);
        static const float bad[] = { NAN, -NAN, INFINITY };
        for (int i = 0; i < 3; i++) {
            logits[99] = bad[i];
            assert_int_equal(sampler_pick(s, x, logits, NULL, &id, &err), WK_INVALID);
            assert_non_null(strstr(text, "the logit of id 99"));
            assert_int_equal(sampler_pick(s, x, logits, none, &id, &err), WK_INVALID);
            assert_int_equal(sampler_top(logits, 100, 0, 20, &top, &err), WK_INVALID);
            assert_non_null(strstr(text, "the logit of id 99"));
        }
        logits[99] = 0;
        assert_int_equal(sampler_pick(s, x, logits, none, &id, &err), WK_INVALID);
        assert_non_null(strstr(text, "forbidden by the mask"));
        for (int i = 0; i < 100; i++) logits[i] = -INFINITY;
        assert_int_equal(sampler_pick(s, x, logits, NULL, &id, &err), WK_INVALID);
        assert_int_equal(sampler_top(logits, 100, 0, 20, &top, &err), WK_INVALID);
        assert_int_equal(top.id, 12345);
        assert_int_equal(id, 12345);
        logits[42] = -3e38f; /* one finite logit is enough */
        assert_int_equal(sampler_pick(s, x, logits, NULL, &id, &err), WK_OK);
        assert_int_equal(id, 42);
        sampler_close(s);
        sampler_scratch_close(x);
    }
    /* finite logits that a division takes out of range */
    float logits[2] = { 1, 3e38f };
    uint32_t id = 7;
    struct sampler_params p = off;
    struct sampler_scratch *x;
    struct sampler *s;
    p.temperature = 0.5f;
    assert_int_equal(sampler_scratch_open(2, &x, NULL), WK_OK);
    assert_int_equal(sampler_open(&p, 2, &s, NULL), WK_OK);
    assert_int_equal(sampler_pick(s, x, logits, NULL, &id, &err), WK_INVALID);
    assert_non_null(strstr(text, "id 1 is infinite after penalties"));
    assert_int_equal(sampler_accept(s, 2, &err), WK_INVALID);
    sampler_close(s);
    assert_int_equal(sampler_open(&p, 3, &s, NULL), WK_OK);
    assert_int_equal(sampler_pick(s, x, logits, NULL, &id, &err), WK_INTERNAL); /* scratch is too small */
    assert_int_equal(id, 7);
    sampler_close(s);
    sampler_scratch_close(x);
}

static void test_parameters(void **state)
{
    (void)state;
    char text[256];
    const struct wk_err err = { text, sizeof text };
#define REFUSED(field, value, words)                                \
    do {                                                            \
        struct sampler_params p = off;                              \
        p.field = (value);                                          \
        assert_int_equal(sampler_check(&p, 100, &err), WK_INVALID); \
        if (!strstr(text, words)) fail_msg("%s", text);             \
    } while (0)
#define TAKEN(field, value)                                    \
    do {                                                       \
        struct sampler_params p = off;                         \
        p.field = (value);                                     \
        assert_int_equal(sampler_check(&p, 100, &err), WK_OK); \
    } while (0)
    REFUSED(temperature, -0.1f, "temperature is -0.1; at least 0 and at most 2 expected");
    REFUSED(temperature, 2.1f, "temperature is 2.1");
    REFUSED(temperature, NAN, "temperature is nan");
    REFUSED(temperature, INFINITY, "temperature is inf");
    REFUSED(repetition_penalty, 0, "repetition_penalty is 0; above 0 and at most 2 expected");
    REFUSED(repetition_penalty, 2.5f, "repetition_penalty is 2.5");
    REFUSED(presence_penalty, -3, "presence_penalty is -3");
    REFUSED(frequency_penalty, 3, "frequency_penalty is 3");
    REFUSED(top_p, 1.5f, "top_p is 1.5");
    REFUSED(min_p, -1, "min_p is -1");
    REFUSED(top_k, 101, "top_k is 101; at most the vocabulary, 100, expected");
    TAKEN(temperature, 0);
    TAKEN(temperature, 1e-40f);
    TAKEN(temperature, 2);
    TAKEN(repetition_penalty, 1e-30f);
    TAKEN(top_k, 100);
    TAKEN(top_p, 0);
    TAKEN(min_p, 1);
    const struct sampler_bias outside[] = { { 100, 1 } }, huge[] = { { 1, 101 } }, nan[] = { { 1, NAN } };
    struct sampler_params p = off;
    p.n_logit_bias = 1;
    p.logit_bias = outside;
    assert_int_equal(sampler_check(&p, 100, &err), WK_INVALID);
    assert_non_null(strstr(text, "logit_bias names id 100"));
    p.logit_bias = huge;
    assert_int_equal(sampler_check(&p, 100, &err), WK_INVALID);
    p.logit_bias = nan;
    assert_int_equal(sampler_check(&p, 100, &err), WK_INVALID);
    p.n_logit_bias = SAMPLER_MAX_BIAS + 1;
    assert_int_equal(sampler_check(&p, 100, &err), WK_INVALID);
    assert_int_equal(sampler_check(&off, 0, &err), WK_INVALID);
    assert_int_equal(sampler_check(&off, SAMPLER_MAX_VOCAB + 1, &err), WK_INVALID);
    struct sampler *s;
    assert_int_equal(sampler_open(&p, 100, &s, &err), WK_INVALID);
    assert_null(s);
}

struct rival {
    float logit;
    uint32_t id;
};
static int rival_first(const void *a, const void *b)
{
    const struct rival *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Log probabilities against long double, and the best against a sort: rows with ties, both zeros, -inf, and fewer ids
 * than are asked for. */
static void test_probabilities(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float logits[N];
    static struct rival rivals[N];
    uint64_t seed = 3;
    for (int round = 0; round < 40; round++) {
        const uint32_t n = round % 4 == 3 ? 1 + (uint32_t)round / 4 : N, most = (uint32_t)round % 22 % 21;
        long double total = 0, first;
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)((next_unit(&seed) - 0.5) * (round * 20 + 1)) + (round % 2 ? 1e4f : -1e4f);
            if (round % 5 == 1) logits[i] = i % 2 ? 0.0f : -0.0f;
            if (round % 5 == 2) logits[i] = rintf(logits[i] / 64) * 64;
            if (i % 7 == 3) logits[i] = -INFINITY;
            rivals[i] = (struct rival){ logits[i], i };
        }
        qsort(rivals, n, sizeof *rivals, rival_first);
        first = (long double)rivals[0].logit;
        for (uint32_t i = 0; i < n; i++) total += expl((long double)logits[i] - first);
        const uint32_t id = (uint32_t)(next_unit(&seed) * n);
        struct sampler_top top;
        struct sampler_prob p[1 + SAMPLER_MAX_TOP];
        assert_int_equal(sampler_top(logits, n, id, most, &top, NULL), WK_OK);
        sampler_probs(&top, p);
        assert_int_equal(top.n, most < n ? most : n);
        assert_int_equal(p[0].id, id);
        for (uint32_t i = 0; i <= top.n; i++) {
            const float logit = i ? rivals[i - 1].logit : logits[id];
            const long double want = (long double)logit - first - logl(total);
            assert_int_equal(p[i].id, rivals[p[i].rank - 1].id);
            if (i) assert_int_equal(p[i].rank, i);
            if (logit == -INFINITY)
                assert_true(p[i].logprob == -INFINITY);
            else if (fabsl((long double)p[i].logprob - want) > 1e-6L)
                fail_msg("round %d, %u: %.9f, expected %.9Lf", round, i, p[i].logprob, want);
        }
    }
    struct sampler_top top;
    assert_int_equal(sampler_top(logits, N, N, 0, &top, NULL), WK_INVALID);
    assert_int_equal(sampler_top(logits, N, 0, SAMPLER_MAX_TOP + 1, &top, NULL), WK_INVALID);
}

static void test_mask_allows(void **state)
{
    (void)state;
    uint64_t mask[2] = { 0, UINT64_C(1) << 36 };
    const uint32_t ends[] = { 3, 99, 100, 4000000000u };
    assert_false(sampler_mask_allows(mask, 100, NULL, 0)); /* id 100 is none */
    mask[1] |= UINT64_C(1) << 35;
    assert_true(sampler_mask_allows(mask, 100, NULL, 0));
    assert_true(sampler_mask_allows(mask, 100, ends, 1));
    assert_false(sampler_mask_allows(mask, 100, ends, 4));
    mask[0] = 8;
    assert_true(sampler_mask_allows(mask, 64, NULL, 0));
    assert_false(sampler_mask_allows(mask, 64, ends, 1));
    assert_true(mask[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),           cmocka_unit_test(test_weight),
        cmocka_unit_test(test_all_combinations), cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_reproducible),     cmocka_unit_test(test_exact_share),
        cmocka_unit_test(test_unusable_logits),  cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_probabilities),    cmocka_unit_test(test_mask_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
