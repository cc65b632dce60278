/* test_sampler.c: the sampler on the device against core/sample: the same ids from the same logits, whatever the
 * parameters, the history and the neighbours in a batch. An argument limits the largest vocabulary that is tried (for
 * runs under a checker). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels.h"
#include "sample/sample.h"

#include <cmocka.h>

enum { SLOTS = 64, PADDED = 13 /* floats between rows, NaN */ };

static uint32_t largest = SAMPLER_MAX_VOCAB;
static char text[512];
static const struct wk_err err = { text, sizeof text };

static uint64_t next_random(uint64_t *s) /* xorshift64 */
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}
static double next_unit(uint64_t *s) { return (double)(next_random(s) >> 11) * 0x1p-53; }
static uint32_t below(uint64_t *s, uint32_t n) { return (uint32_t)(next_random(s) % n); }

static void cuda_ok(cudaError_t code)
{
    if (code) fail_msg("%s", cudaGetErrorString(code));
}
static void ok(wk_status status)
{
    if (status) fail_msg("%s", text);
}

/* ---- a device sampler with everything around it, and host samplers beside it --------------------------- */

struct rig {
    uint32_t n, rows;
    uint64_t stride;
    struct cuda_sampler *device;
    void *memory;
    float *d_logits, *logits; /* [rows][stride] */
    struct cuda_seq *d_seq, seq[SLOTS];
    uint32_t *d_serial, serial;
    struct cuda_sampled *ring, *d_ring;
    struct sampler *host[SLOTS];
    struct sampler_scratch *scratch;
    uint64_t *d_masks, *words; /* [rows] masks */
    struct cuda_masks masks;
    bool masked;
    struct cuda_top *top_logprobs, *d_top_logprobs;                     /* [ring][rows + 1] */
    uint32_t ends[SLOTS][SAMPLER_MAX_ENDS], n_ends[SLOTS], held[SLOTS], /* held: ids before an end may come */
        over[SLOTS]; /* over: what the slot gives from now on; 0: it runs */
};

static void rig_open(struct rig *r, uint32_t n, uint32_t rows, uint64_t stride)
{
    *r = (struct rig){ .n = n, .rows = rows, .stride = stride };
    const uint64_t bytes = cuda_sampler_bytes(SLOTS, n, rows);
    cuda_ok(cudaMalloc(&r->memory, bytes));
    cuda_ok(cudaMemset(r->memory, 0xff, bytes));
    ok(cuda_sampler_open(SLOTS, n, rows, r->memory, &r->device, &err));
    cuda_ok(cudaMalloc((void **)&r->d_logits, rows * stride * sizeof(float)));
    cuda_ok(cudaMalloc((void **)&r->d_seq, sizeof r->seq));
    cuda_ok(cudaMalloc((void **)&r->d_serial, sizeof *r->d_serial));
    cuda_ok(cudaHostAlloc((void **)&r->ring, (size_t)CUDA_RING * rows * sizeof *r->ring, cudaHostAllocMapped));
    cuda_ok(cudaHostGetDevicePointer((void **)&r->d_ring, r->ring, 0));
    const size_t masks = (size_t)rows * cuda_mask_words(n) * sizeof *r->words,
                 top_logprobs = (size_t)CUDA_RING * (rows + 1) * sizeof *r->top_logprobs;
    cuda_ok(cudaMalloc((void **)&r->d_masks, masks));
    cuda_ok(cudaHostAlloc((void **)&r->top_logprobs, top_logprobs, cudaHostAllocMapped));
    cuda_ok(cudaHostGetDevicePointer((void **)&r->d_top_logprobs, r->top_logprobs, 0));
    memset(r->top_logprobs, 0, top_logprobs);
    r->words = malloc(masks);
    r->logits = malloc(rows * stride * sizeof(float));
    assert_non_null(r->words);
    assert_non_null(r->logits);
    for (uint64_t i = 0; i < rows * stride; i++) r->logits[i] = NAN;
    ok(sampler_scratch_open(n, &r->scratch, &err));
}

static void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < SLOTS; i++) sampler_close(r->host[i]);
    sampler_scratch_close(r->scratch);
    cuda_sampler_close(r->device);
    cuda_ok(cudaFree(r->memory));
    cuda_ok(cudaFree(r->d_logits));
    cuda_ok(cudaFree(r->d_seq));
    cuda_ok(cudaFree(r->d_serial));
    cuda_ok(cudaFree(r->d_masks));
    cuda_ok(cudaFreeHost(r->ring));
    cuda_ok(cudaFreeHost(r->top_logprobs));
    free(r->words);
    free(r->logits);
}

static void rig_set(struct rig *r, uint32_t slot, const struct sampler_params *p, const uint32_t *ends, uint32_t n_ends)
{
    sampler_close(r->host[slot]);
    ok(sampler_open(p, r->n, &r->host[slot], &err));
    ok(cuda_sampler_set(r->device, slot, p, ends, n_ends, NULL, &err));
    memcpy(r->ends[slot], ends, n_ends * sizeof *ends);
    r->n_ends[slot] = n_ends;
    r->held[slot] = p->min_ids;
    r->over[slot] = 0;
}

/* Sends the first `rows` rows and the sequences, and waits for the ids. */
static void rig_run(struct rig *r, uint32_t rows, enum cuda_sample_kind kind, uint32_t *ids)
{
    const struct cuda_sample c = { .kind = kind,
                                   .rows = rows,
                                   .seq = r->d_seq,
                                   .logits = r->d_logits,
                                   .stride = r->stride,
                                   .serial = r->d_serial,
                                   .masks = r->masked ? &r->masks : NULL,
                                   .out = r->d_ring };
    r->serial++;
    if (r->masked)
        cuda_ok(cudaMemcpy(r->d_masks, r->words, (size_t)rows * r->masks.stride * sizeof *r->words,
                           cudaMemcpyHostToDevice));
    cuda_ok(cudaMemcpy(r->d_logits, r->logits, rows * r->stride * sizeof(float), cudaMemcpyHostToDevice));
    cuda_ok(cudaMemcpy(r->d_seq, r->seq, sizeof r->seq, cudaMemcpyHostToDevice));
    cuda_ok(cudaMemcpy(r->d_serial, &r->serial, sizeof r->serial, cudaMemcpyHostToDevice));
    ok(cuda_sampler_run(r->device, &c, NULL, &err));
    cuda_ok(cudaDeviceSynchronize());
    const struct cuda_sampled *got = r->ring + (size_t)(r->serial % CUDA_RING) * r->rows;
    for (uint32_t i = 0; i < rows; i++) {
        assert_int_equal(got[i].serial, r->serial);
        ids[i] = got[i].id;
    }
}

/* What the slot must give for row i, by core/sample; the slot moves on. */
static uint32_t expected(struct rig *r, uint32_t i)
{
    static uint64_t all_but_ends[SAMPLER_MAX_VOCAB / 64];
    const uint32_t slot = r->seq[i].slot, of = r->masked ? r->masks.of_row[i] : (uint32_t)CUDA_NO_MASK;
    const bool held = r->held[slot] && r->n_ends[slot];
    const uint64_t *mask = held || of != CUDA_NO_MASK ? all_but_ends : NULL;
    uint32_t id = CUDA_NO_ID;
    if (of != CUDA_NO_MASK)
        memcpy(all_but_ends, r->words + (size_t)of * r->masks.stride, (r->n + 63) / 64 * sizeof *r->words);
    else if (mask)
        memset(all_but_ends, 0xff, sizeof all_but_ends);
    for (uint32_t k = 0; held && k < r->n_ends[slot]; k++)
        all_but_ends[r->ends[slot][k] / 64] &= ~(UINT64_C(1) << r->ends[slot][k] % 64);
    if (!r->seq[i].n_rows) return UINT32_MAX;
    if (r->over[slot]) return r->over[slot];
    if (sampler_pick(r->host[slot], r->scratch, r->logits + i * r->stride, mask, &id, NULL))
        return r->over[slot] = CUDA_NO_ID;
    r->held[slot] -= r->held[slot] > 0;
    ok(sampler_accept(r->host[slot], id, &err));
    for (uint32_t k = 0; k < r->n_ends[slot]; k++)
        if (r->ends[slot][k] == id) r->over[slot] = UINT32_MAX;
    return id;
}

static void rig_compare(struct rig *r, uint32_t rows, enum cuda_sample_kind kind, const char *what)
{
    uint32_t ids[SLOTS], want[SLOTS], last[SLOTS];
    rig_run(r, rows, kind, ids);
    cuda_ok(cudaMemcpy(last, cuda_sampler_last(r->device), sizeof last, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < rows; i++) {
        want[i] = expected(r, i);
        if (ids[i] != want[i])
            fail_msg("%s: vocabulary %u, row %u of %u: id %u, expected %u", what, r->n, i, rows, ids[i], want[i]);
        if (want[i] < r->n) assert_int_equal(last[r->seq[i].slot], want[i]);
    }
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

static void make_logits(uint64_t *seed, float *l, uint32_t n)
{
    static float *base; /* values like a model's: sums of uniform ones; drawn once, used from random places on */
    if (!base) {
        uint64_t s = 99;
        base = malloc(SAMPLER_MAX_VOCAB * sizeof *base);
        assert_non_null(base);
        for (uint32_t i = 0; i < SAMPLER_MAX_VOCAB; i++)
            base[i] = (float)(next_unit(&s) + next_unit(&s) + next_unit(&s) + next_unit(&s) - 2.0);
    }
    static const float scales[] = { 0.01f, 1, 4, 12, 50, 1e6f, 1e37f };
    const uint32_t kind = below(seed, 12), from = below(seed, SAMPLER_MAX_VOCAB);
    const float scale = scales[below(seed, 7)], middle = kind == 3 ? 1e4f : kind == 4 ? -30 : 0;
    for (uint32_t i = 0; i < n; i++) l[i] = base[(from + i) % SAMPLER_MAX_VOCAB] * scale + middle;
    if (kind == 0)
        for (uint32_t i = 0; i < n; i++) l[i] = scale; /* all equal */
    if (kind == 1)
        for (uint32_t i = 0; i < n; i++) l[i] = rintf(l[i] / scale * 3) * 0.5f; /* many ties, both zeros */
    if (kind == 2)
        for (uint32_t i = 0; i < n; i++)
            if (i % 7) l[i] = -INFINITY;
    if (kind == 5)
        for (uint32_t i = 0; i < n; i++) l[i] = -INFINITY;
    if (kind == 5 && below(seed, 2)) l[below(seed, n)] = -3e38f; /* one finite logit is enough */
    if (kind == 6) l[below(seed, n)] = (float[]){ NAN, -NAN, INFINITY }[below(seed, 3)];
    if (kind == 7)
        for (uint32_t i = 0; i < 5; i++) l[below(seed, n)] = scale * 3 + (float)i; /* a few far above the rest */
    if (kind == 8)
        for (uint32_t i = 0; i < n; i++) l[i] = i % 2 ? 0.0f : -0.0f;
    if (kind == 9)
        for (uint32_t i = 0; i < n; i++) l[i] = nextafterf(1.0f, i % 3 ? 2.0f : 0.0f); /* neighbours of one float */
}

static struct sampler_params make_params(uint64_t *seed, uint32_t n, struct sampler_bias *bias)
{
    static const float temperature[] = { 0, 9e-6f, 1e-5f, 0.1f, 0.7f, 1, 1, 1.3f, 2 },
                       top_p[] = { 0, 1e-12f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 1, 1, 1 };
    static const float min_p[] = { 0, 0, 0, 1e-13f, 0.05f, 0.5f, 1 }, penalty[] = { 0, 0, 0, 0.5f, -0.25f, 2, -2 },
                       repetition[] = { 1, 1, 1, 1.3f, 0.01f, 2 };
    const uint32_t top_k[] = { 0, 0, 0, 1, 2, 40, n / 2, n - 1, n, 1 + below(seed, n) };
    struct sampler_params p = { .temperature = temperature[below(seed, 9)],
                                .top_p = top_p[below(seed, 10)],
                                .min_p = min_p[below(seed, 7)],
                                .presence_penalty = penalty[below(seed, 7)],
                                .frequency_penalty = penalty[below(seed, 7)],
                                .repetition_penalty = repetition[below(seed, 6)],
                                .top_k = top_k[below(seed, 10)],
                                .seed = next_random(seed),
                                .logit_bias = bias };
    if (below(seed, 4) == 0) p.top_p = (float)next_unit(seed);
    if (p.top_k > n) p.top_k = n;
    if (below(seed, 4) == 0) p.min_ids = 1 + below(seed, 3);
    const uint32_t biased = below(seed, 6);
    p.n_logit_bias = biased == 0 ? below(seed, SAMPLER_MAX_BIAS + 1) : biased == 1 ? 1 + below(seed, 5) : 0;
    const uint32_t range = below(seed, 2) ? n : (n + 9) / 10; /* some ids more than once */
    for (uint32_t i = 0; i < p.n_logit_bias; i++)
        bias[i] = (struct sampler_bias){ below(seed, range),
                                         (float)(next_unit(seed) * 200 - 100) * (below(seed, 2) ? 1.0f : 0.01f) };
    return p;
}

/* Masks for some of the rows, in any order: of all ids, many, few, one, and rarely of none. */
static void make_masks(uint64_t *seed, struct rig *r, uint32_t rows)
{
    uint32_t n = 0, order[SLOTS];
    r->masked = true;
    r->masks.words = r->d_masks;
    r->masks.stride = cuda_mask_words(r->n);
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t at = below(seed, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < rows; i++) r->masks.of_row[i] = CUDA_NO_MASK;
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t kind = below(seed, 12);
        uint64_t *to = r->words + (size_t)n * r->masks.stride;
        if (below(seed, 4) == 0) continue;
        r->masks.of_row[order[i]] = (uint16_t)n++;
        for (uint32_t w = 0; w < r->masks.stride; w++)
            to[w] = kind == 0  ? ~UINT64_C(0)
                    : kind < 4 ? next_random(seed)
                    : kind < 6 ? next_random(seed) & next_random(seed) & next_random(seed) & next_random(seed)
                    : kind < 8 ? UINT64_C(0xffff) << 16 * (w % 4)
                               : 0;
        if (kind >= 8 && kind < 11)
            for (uint32_t k = kind == 8 ? 1 : 40, id; k > 0; k--)
                id = below(seed, r->n), to[id / 64] |= UINT64_C(1) << id % 64;
    }
}

static void shuffle_slots(uint64_t *seed, struct rig *r)
{
    for (uint32_t i = 0; i < SLOTS; i++) r->seq[i] = (struct cuda_seq){ .n_rows = 1, .slot = i };
    for (uint32_t i = SLOTS - 1; i > 0; i--) {
        const uint32_t j = below(seed, i + 1);
        const struct cuda_seq t = r->seq[i];
        r->seq[i] = r->seq[j];
        r->seq[j] = t;
    }
}

/* ---- tests --------------------------------------------------------------------------------------------- */

struct size {
    uint32_t n, rows, rounds;
};
static const struct size sizes[] = { { 1, 64, 10 },    { 2, 64, 10 },    { 31, 64, 20 },
                                     { 1000, 64, 20 }, { 4097, 33, 10 }, { 32064, 16, 8 },
                                     { 50257, 9, 8 },  { 151936, 8, 8 }, { 262144, 5, 6 } };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Rows of different parameters in one call, three ids each. */
static void compare_random(bool clusters, bool masked)
{
    static struct sampler_bias bias[SAMPLER_MAX_BIAS];
    uint32_t compared = 0;
    for (uint32_t k = 0; k < N_SIZES && sizes[k].n <= largest; k++) {
        struct rig r;
        uint64_t seed = 12345 + k;
        rig_open(&r, sizes[k].n, sizes[k].rows, sizes[k].n + (k % 2 ? PADDED : 0));
        if (!clusters) cuda_sampler_without_clusters(r.device);
        for (uint32_t round = 0; round < (masked ? sizes[k].rounds / 2 : sizes[k].rounds); round++) {
            const uint32_t rows = 1 + below(&seed, sizes[k].rows);
            shuffle_slots(&seed, &r);
            for (uint32_t i = 0; i < rows; i++) {
                const struct sampler_params p = make_params(&seed, r.n, bias);
                const uint32_t ends[2] = { below(&seed, r.n), below(&seed, r.n) };
                rig_set(&r, r.seq[i].slot, &p, ends, below(&seed, 3));
                if (below(&seed, 20) == 0) r.seq[i].n_rows = 0;
            }
            for (uint32_t step = 0; step < 3; step++) {
                for (uint32_t i = 0; i < rows; i++) make_logits(&seed, r.logits + i * r.stride, r.n);
                if (masked) make_masks(&seed, &r, rows);
                rig_compare(&r, rows, CUDA_SAMPLE_ANY, clusters ? "clusters" : "no clusters");
                compared += rows;
            }
        }
        rig_close(&r);
    }
    printf("%u rows compared\n", compared);
}

static void test_random_clusters(void **state)
{
    (void)state;
    compare_random(true, false);
}
static void test_random_no_clusters(void **state)
{
    (void)state;
    compare_random(false, false);
}
static void test_masks_clusters(void **state)
{
    (void)state;
    compare_random(true, true);
}
static void test_masks_no_clusters(void **state)
{
    (void)state;
    compare_random(false, true);
}

/* Temperatures alone beside greedy rows, padding and slots that ended; rows that cannot be read in fours are sampled
 * all the same. */
static void test_draw(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, rows, padded;
    } of[] = { { 1, 64, 3 },      { 127, 64, 1 },   { 129, 64, 3 },    { 1001, 64, 4 },   { 32064, 5, 0 },
               { 100003, 64, 1 }, { 151936, 8, 0 }, { 151936, 33, 0 }, { 201088, 64, 0 }, { 262144, 1, 0 } };
    for (uint32_t k = 0; k < sizeof of / sizeof *of && of[k].n <= largest; k++) {
        struct rig r;
        uint64_t seed = 4321 + k;
        rig_open(&r, of[k].n, of[k].rows, of[k].n + of[k].padded);
        shuffle_slots(&seed, &r);
        for (uint32_t i = 0; i < of[k].rows; i++) {
            struct sampler_params p = { .temperature = i % 3 ? 1 : 0.1f + (float)next_unit(&seed),
                                        .repetition_penalty = 1,
                                        .top_p = 1,
                                        .seed = next_random(&seed) };
            const uint32_t end = below(&seed, r.n);
            if (i % 8 == 7) p.temperature = 0;
            assert_int_equal(cuda_sampler_kind(&p), CUDA_SAMPLE_PLAIN);
            p.min_p = 1e-13f;
            assert_int_equal(cuda_sampler_kind(&p),
                             i % 8 == 7 ? CUDA_SAMPLE_PLAIN : CUDA_SAMPLE_ANY); /* of a greedy row it changes nothing */
            p.min_p = 0;
            rig_set(&r, r.seq[i].slot, &p, &end, 1);
            if (below(&seed, 20) == 0) r.seq[i].n_rows = 0;
        }
        for (uint32_t step = 0; step < 6; step++) {
            for (uint32_t i = 0; i < of[k].rows; i++) make_logits(&seed, r.logits + i * r.stride, r.n);
            const uint32_t rows = of[k].rows > step ? of[k].rows - step : 1;
            r.masked = false;
            if (step % 2) make_masks(&seed, &r, rows);
            rig_compare(&r, rows, CUDA_SAMPLE_PLAIN, "draw");
        }
        rig_close(&r);
    }
}

static void test_greedy(void **state)
{
    (void)state;
    const struct sampler_params plain = { .repetition_penalty = 1, .top_p = 0.5f, .min_p = 0.5f, .top_k = 1 };
    assert_int_equal(cuda_sampler_kind(&plain), CUDA_SAMPLE_PLAIN);
    for (uint32_t k = 0; k < N_SIZES && sizes[k].n <= largest; k++) {
        struct rig r;
        uint64_t seed = 777 + k;
        rig_open(&r, sizes[k].n, sizes[k].rows, sizes[k].n + (k % 2 ? 0 : PADDED));
        for (uint32_t round = 0; round < sizes[k].rounds; round++) {
            const uint32_t rows = 1 + below(&seed, sizes[k].rows);
            shuffle_slots(&seed, &r);
            for (uint32_t i = 0; i < rows; i++) {
                const uint32_t end = below(&seed, r.n);
                rig_set(&r, r.seq[i].slot, &plain, &end, 1);
                if (below(&seed, 20) == 0) r.seq[i].n_rows = 0;
            }
            for (uint32_t step = 0; step < 3; step++) {
                for (uint32_t i = 0; i < rows; i++) make_logits(&seed, r.logits + i * r.stride, r.n);
                r.masked = false;
                if (step) make_masks(&seed, &r, rows);
                rig_compare(&r, rows, CUDA_SAMPLE_PLAIN, "greedy");
            }
        }
        rig_close(&r);
    }
}

/* ---- log probabilities --------------------------------------------------------------------------------- */

static void check_top(const struct rig *r, const struct cuda_top_row *of, const struct cuda_top *got,
                      const uint32_t *ids)
{
    struct sampler_top want;
    const float *logits = r->logits + of->row * r->stride;
    const uint32_t id = of->id == TOKEN_LAST ? ids[of->row] : of->id;
    assert_int_equal(got->serial, r->serial);
    if (of->id == TOKEN_LAST && id >= r->n) return; /* its slot got none: whoever reads knows */
    if (sampler_top(logits, r->n, id, of->top, &want, NULL)) {
        assert_int_equal(got->top.id, CUDA_NO_ID);
        return;
    }
    if (got->top.id != id || got->top.n != want.n || got->top.sum != want.sum || got->top.best != want.best ||
        got->top.rank != want.rank || memcmp(&got->top.logit, &want.logit, sizeof want.logit))
        fail_msg("vocabulary %u, row %u, best %u: id %u, sum %llu, best %g; expected %u, %llu, %g", r->n, of->row,
                 of->top, got->top.id, (unsigned long long)got->top.sum, (double)got->top.best, id,
                 (unsigned long long)want.sum, (double)want.best);
    for (uint32_t i = 0; i < want.n; i++)
        if (got->top.top_id[i] != want.top_id[i] || memcmp(&got->top.top_logit[i], &want.top_logit[i], sizeof(float)))
            fail_msg("vocabulary %u, row %u: best %u of %u is %u, expected %u", r->n, of->row, i, of->top,
                     got->top.top_id[i], want.top_id[i]);
}

/* Of some rows of a sampled batch, in any order: of the id that was drawn, or of any. */
static void test_top_logprobs(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < N_SIZES && sizes[k].n <= largest; k++) {
        struct rig r;
        uint64_t seed = 99 + k;
        rig_open(&r, sizes[k].n, sizes[k].rows, sizes[k].n + (k % 2 ? PADDED : 0));
        for (uint32_t round = 0; round < sizes[k].rounds; round++) {
            const uint32_t rows = 1 + below(&seed, sizes[k].rows), n = 1 + below(&seed, rows);
            const struct sampler_params p = { .temperature = 1, .repetition_penalty = 1, .top_p = 1, .seed = round };
            struct cuda_top_row of[SLOTS];
            uint32_t ids[SLOTS];
            shuffle_slots(&seed, &r);
            for (uint32_t i = 0; i < rows; i++) {
                rig_set(&r, r.seq[i].slot, &p, NULL, 0);
                make_logits(&seed, r.logits + i * r.stride, r.n);
            }
            rig_run(&r, rows, CUDA_SAMPLE_PLAIN, ids);
            for (uint32_t i = 0; i < n; i++)
                of[i] = (struct cuda_top_row){ .row = (uint16_t)((i + round) % rows),
                                               .top = (uint16_t)(below(&seed, 3) ? below(&seed, 21) : 20),
                                               .id = below(&seed, 2) ? TOKEN_LAST : below(&seed, r.n) };
            const struct cuda_top_logprobs c = { .n = n,
                                                 .of = of,
                                                 .seq = r.d_seq,
                                                 .logits = r.d_logits,
                                                 .stride = r.stride,
                                                 .serial = r.d_serial,
                                                 .out = r.d_top_logprobs,
                                                 .first = 1,
                                                 .a_run = r.rows + 1 };
            ok(cuda_sampler_top_logprobs(r.device, &c, NULL, &err));
            cuda_ok(cudaDeviceSynchronize());
            for (uint32_t i = 0; i < n; i++)
                check_top(&r, &of[i], &r.top_logprobs[(size_t)(r.serial % CUDA_RING) * (r.rows + 1) + 1 + of[i].row],
                          ids);
        }
        rig_close(&r);
    }
}

/* Fifty ids a slot: counts and draws depend on all that came before. */
static void test_sequences(void **state)
{
    (void)state;
    static struct sampler_bias bias[SAMPLER_MAX_BIAS];
    static const uint32_t vocab[] = { 17, 1000, 32064 };
    for (uint32_t k = 0; k < 3 && vocab[k] <= largest; k++) {
        struct rig r;
        uint64_t seed = 4242 + k;
        rig_open(&r, vocab[k], 12, vocab[k] + PADDED);
        shuffle_slots(&seed, &r);
        for (uint32_t i = 0; i < 12; i++) {
            struct sampler_params p = make_params(&seed, r.n, bias);
            p.presence_penalty = 0.7f;
            p.frequency_penalty = 0.3f;
            p.repetition_penalty = i % 2 ? 1.2f : 0.9f;
            p.temperature = 0.8f;
            rig_set(&r, r.seq[i].slot, &p, NULL, 0);
        }
        for (uint32_t i = 0; i < 12; i++)
            for (uint32_t id = 0; id < r.n; id++) r.logits[i * r.stride + id] = (float)(next_unit(&seed) * 3);
        for (uint32_t step = 0; step < 50; step++) {
            rig_compare(&r, 12, CUDA_SAMPLE_ANY, "sequence");
            for (uint32_t i = 0; i < 12; i++) r.logits[i * r.stride + below(&seed, r.n)] += 1.5f;
        }
        rig_close(&r);
    }
}

/* A row's ids with 63 neighbours and by itself, in another slot and another place of the batch. */
static void test_neighbours(void **state)
{
    (void)state;
    enum { N = 5000, STEPS = 10 };
    static struct sampler_bias bias[SAMPLER_MAX_BIAS];
    static uint32_t many[STEPS][SLOTS];
    struct rig all, one;
    struct sampler_params p[SLOTS];
    uint64_t seed = 31;
    rig_open(&all, N, SLOTS, N);
    rig_open(&one, N, 1, N);
    for (uint32_t i = 0; i < SLOTS; i++) {
        all.seq[i] = (struct cuda_seq){ .n_rows = 1, .slot = i };
        p[i] = make_params(&seed, N, bias);
        p[i].n_logit_bias = 0;
        rig_set(&all, i, &p[i], NULL, 0);
    }
    for (uint32_t i = 0; i < SLOTS * N; i++) all.logits[i] = (float)(next_unit(&seed) * 8);
    for (uint32_t step = 0; step < STEPS; step++) rig_run(&all, SLOTS, CUDA_SAMPLE_ANY, many[step]);
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t id;
        one.seq[0] = (struct cuda_seq){ .n_rows = 1, .slot = (i * 7 + 3) % SLOTS };
        rig_set(&one, one.seq[0].slot, &p[i], NULL, 0);
        memcpy(one.logits, all.logits + (size_t)i * N, N * sizeof(float));
        for (uint32_t step = 0; step < STEPS; step++) {
            rig_run(&one, 1, CUDA_SAMPLE_ANY, &id);
            assert_int_equal(id, many[step][i]);
        }
    }
    rig_close(&all);
    rig_close(&one);
}

/* After an end nothing changes any more; a new job in the slot begins anew. */
static void test_ends(void **state)
{
    (void)state;
    enum { N = 300 };
    static const struct {
        enum cuda_sample_kind kind;
        struct sampler_params params;
    } jobs[] = { { CUDA_SAMPLE_ANY, { .temperature = 1, .repetition_penalty = 1.1f, .top_p = 1, .seed = 5 } },
                 { CUDA_SAMPLE_PLAIN, { .temperature = 1, .repetition_penalty = 1, .top_p = 1, .seed = 5 } },
                 { CUDA_SAMPLE_PLAIN, { .repetition_penalty = 1, .top_p = 1 } } };
    uint32_t ends[SAMPLER_MAX_ENDS], id, first;
    struct rig r;
    rig_open(&r, N, 1, N);
    for (uint32_t i = 0; i < SAMPLER_MAX_ENDS; i++) ends[i] = 1000 + i;
    r.seq[0] = (struct cuda_seq){ .n_rows = 1, .slot = 63 };
    for (uint32_t i = 0; i < N; i++) r.logits[i] = 0;
    rig_set(&r, 63, &jobs[0].params, ends, SAMPLER_MAX_ENDS);
    rig_run(&r, 1, CUDA_SAMPLE_ANY, &first);
    ends[SAMPLER_MAX_ENDS - 1] = first;
    for (uint32_t k = 0; k < 3; k++) {
        const enum cuda_sample_kind kind = jobs[k].kind;
        assert_int_equal(cuda_sampler_kind(&jobs[k].params), kind);
        for (uint32_t i = 0; i < N; i++) r.logits[i] = jobs[k].params.temperature > 0 ? 0.0f : (float)(i == first);
        rig_set(&r, 63, &jobs[k].params, ends, SAMPLER_MAX_ENDS);
        rig_run(&r, 1, kind, &id);
        assert_int_equal(id, first);
        for (uint32_t step = 0; step < 3; step++) {
            uint32_t last;
            rig_run(&r, 1, kind, &id);
            assert_int_equal(id, UINT32_MAX);
            cuda_ok(cudaMemcpy(&last, cuda_sampler_last(r.device) + 63, sizeof last, cudaMemcpyDeviceToHost));
            assert_int_equal(last, first);
        }
        r.logits[7] = NAN;
        rig_run(&r, 1, kind, &id);
        assert_int_equal(id, UINT32_MAX); /* over before these logits */
    }
    rig_close(&r);
}

/* Captured once, replayed: the work of a decode graph, with dependent launches. */
static void test_graph(void **state)
{
    (void)state;
    enum { N = 20000, ROWS = 5, STEPS = 20 };
    for (uint32_t k = 0; k < 3; k++) {
        const enum cuda_sample_kind kind = k ? CUDA_SAMPLE_PLAIN : CUDA_SAMPLE_ANY;
        struct rig r;
        cudaStream_t stream;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        uint64_t seed = 8;
        rig_open(&r, N, ROWS, N);
        for (uint32_t i = 0; i < ROWS; i++) {
            const struct sampler_params p = { .temperature = k == 2 ? 0.0f : 0.9f,
                                              .top_k = kind == CUDA_SAMPLE_ANY ? 50 * i : 0,
                                              .top_p = kind == CUDA_SAMPLE_ANY ? 0.9f : 1.0f,
                                              .repetition_penalty = 1,
                                              .seed = i };
            r.seq[i] = (struct cuda_seq){ .n_rows = 1, .slot = i };
            rig_set(&r, i, &p, NULL, 0);
        }
        cuda_ok(cudaDeviceSynchronize());
        cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        const struct cuda_sample c = { .pdl = true,
                                       .kind = kind,
                                       .rows = ROWS,
                                       .seq = r.d_seq,
                                       .logits = r.d_logits,
                                       .stride = r.stride,
                                       .serial = r.d_serial,
                                       .out = r.d_ring };
        cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        cuda_ok(cudaMemcpyAsync(r.d_logits, r.d_logits, sizeof(float), cudaMemcpyDeviceToDevice,
                                stream)); /* something to depend on */
        ok(cuda_sampler_run(r.device, &c, stream, &err));
        cuda_ok(cudaStreamEndCapture(stream, &graph));
        cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
        cuda_ok(cudaMemcpy(r.d_seq, r.seq, sizeof r.seq, cudaMemcpyHostToDevice));
        for (uint32_t step = 0; step < STEPS; step++) {
            for (uint32_t i = 0; i < ROWS * N; i++) r.logits[i] = (float)(next_unit(&seed) * 20);
            r.serial++;
            cuda_ok(cudaMemcpy(r.d_logits, r.logits, ROWS * N * sizeof(float), cudaMemcpyHostToDevice));
            cuda_ok(cudaMemcpy(r.d_serial, &r.serial, sizeof r.serial, cudaMemcpyHostToDevice));
            cuda_ok(cudaGraphLaunch(exec, stream));
            cuda_ok(cudaStreamSynchronize(stream));
            for (uint32_t i = 0; i < ROWS; i++) {
                const struct cuda_sampled *got = &r.ring[(size_t)(r.serial % CUDA_RING) * ROWS + i];
                assert_int_equal(got->serial, r.serial);
                assert_int_equal(got->id, expected(&r, i));
            }
        }
        cuda_ok(cudaGraphExecDestroy(exec));
        cuda_ok(cudaGraphDestroy(graph));
        cuda_ok(cudaStreamDestroy(stream));
        rig_close(&r);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct cuda_sampler *none;
    struct rig r;
    const uint32_t ends[SAMPLER_MAX_ENDS + 1] = { 0 };
    struct sampler_params p = { .temperature = 1, .repetition_penalty = 1, .top_p = 1 };
    rig_open(&r, 100, 4, 100);
    assert_int_equal(cuda_sampler_open(1, SAMPLER_MAX_VOCAB + 1, 1, r.memory, &none, &err), WK_INVALID);
    assert_int_equal(cuda_sampler_open(1, 100, CUDA_SAMPLER_ROWS + 1, r.memory, &none, &err), WK_INVALID);
    assert_null(none);
    assert_int_equal(cuda_sampler_set(r.device, SLOTS, &p, NULL, 0, NULL, &err), WK_INVALID);
    assert_int_equal(cuda_sampler_set(r.device, 0, &p, ends, SAMPLER_MAX_ENDS + 1, NULL, &err), WK_INVALID);
    p.top_k = 101;
    assert_int_equal(cuda_sampler_set(r.device, 0, &p, NULL, 0, NULL, &err), WK_INVALID);
    assert_non_null(strstr(text, "top_k is 101"));
    const struct cuda_sample c = {
        .rows = 5, .seq = r.d_seq, .logits = r.d_logits, .stride = 100, .serial = r.d_serial, .out = r.d_ring
    };
    assert_int_equal(cuda_sampler_run(r.device, &c, NULL, &err), WK_INTERNAL);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU here\n");
        return 77;
    }
    if (argc > 1) largest = (uint32_t)strtoul(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_random_clusters),
        cmocka_unit_test(test_random_no_clusters),
        cmocka_unit_test(test_masks_clusters),
        cmocka_unit_test(test_masks_no_clusters),
        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_top_logprobs),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
