/* test_executor_cuda.c: the CUDA executor on small models that use every operation: with kernels made for the test, which are slow and plain, then with
 * the real plugins'. Argument "plain" or "plugins": only these; a second argument: only the test of this name.
 *
 * Two kinds of proof, as for the CPU. A float64 evaluation of the tape, value by value, within what f16 activations allow. And bits: a row's logits
 * are the same however a prompt is cut, whatever shares the step, in any order of pages, as a graph or launched one by one, with any fusion off.
 * Beside these: sampled steps against the CPU's sampler, and memory: planned is taken, and requests take nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/test_zoo.h"
#include "device/cuda/executor.h"
#include "device/cuda/module.h"
#include "device/cuda/test_module.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "sample/sample.h"

#include <cmocka.h>

enum { SEQUENCES = 64, MOST_SEQUENCES = 256, ROWS = 320, V = ZOO_VOCAB, BACK = 40 /* positions that tests go back */ };

static const struct device_ops *const cuda = &cuda_device_ops;
static struct plugin_registry *plugins;
static char text[2048];
static const struct wk_err err = { text, sizeof text };

/* ---- sequences ---------------------------------------------------------------------------------------------------------------------- */

struct sequence {
    uint32_t tokens[ZOO_CONTEXT], position;
    struct zoo_tables kv;
    float *logits; /* [ZOO_CONTEXT][V] */
    float pooled[256];
    bool failed;
};

struct bench {
    struct zoo z;
    struct executor *x;
    struct memory_plan plan;
    struct zoo_pages pages;
    struct sequence *s; /* [sequences] */
    uint32_t random;
};

struct batch { /* a step under construction */
    struct step_seq seqs[MOST_SEQUENCES];
    uint32_t tokens[ROWS], wanted[ROWS], of[MOST_SEQUENCES];
    struct step st;
};

static struct batch t; /* what every test builds; empty after run and after every opening */

static uint32_t draw(struct bench *b, uint32_t below)
{
    b->random = b->random * 1664525u + 1013904223u;
    return (b->random >> 8) % below;
}

static const struct wk_quant_cuda *plain; /* NULL: the plugins' own kernels */

static wk_status find_cuda(void *user, uint32_t type, const struct wk_quant_cuda **out, const struct wk_err *e)
{
    if (!plain) return plugin_find_cuda(user, type, out, e);
    *out = plain;
    return WK_OK;
}

static uint32_t step_rows = ROWS, sequences = SEQUENCES;

static struct device_options options(void)
{
    return (struct device_options){ .kv_type = KV_F16, .context = ZOO_CONTEXT, .max_sequences = sequences, .kv_sequences = 2 * sequences, .max_rows = step_rows, .max_wanted = step_rows, .find_cuda = find_cuda, .find_user = plugins };
}

static void bench_open(struct bench *b, enum zoo_kind kind, uint32_t fuse, bool shuffled, const char *const *taps, uint32_t n_taps)
{
    memset(b, 0, sizeof *b);
    memset(&t, 0, sizeof t);
    b->random = 5;
    b->s = calloc(sequences, sizeof *b->s);
    assert_non_null(b->s);
    zoo_open(&b->z, kind, plugins, fuse, taps, n_taps);
    const struct model_weights w = { b->z.file };
    const struct device_options o = options();
    if (cuda->plan(b->z.program, &o, &b->plan, &err) || cuda->open(b->z.program, &w, &o, &b->x, &err)) fail_msg("%s: %s", zoo_name(kind), text);
    zoo_pages_open(&b->pages, b->z.program, &b->plan, shuffled ? 5 : 0);
    for (uint32_t s = 0; s < sequences; s++) {
        zoo_tables_open(&b->s[s].kv, b->z.program->n_groups);
        uint32_t r = 100 + s;
        for (uint32_t i = 0; i < ZOO_CONTEXT; i++) {
            r = r * 1664525u + 1013904223u;
            b->s[s].tokens[i] = (r >> 10) % ZOO_BAD_TOKEN;
        }
        b->s[s].logits = calloc((size_t)ZOO_CONTEXT * V, sizeof(float));
        assert_non_null(b->s[s].logits);
    }
}

static void bench_close(struct bench *b)
{
    cuda->close(b->x);
    zoo_pages_close(&b->pages);
    for (uint32_t s = 0; s < sequences; s++) {
        zoo_tables_close(&b->s[s].kv);
        free(b->s[s].logits);
    }
    free(b->s);
    zoo_close(&b->z);
}

/* ---- steps -------------------------------------------------------------------------------------------------------------------------- */

/* The next n tokens of sequence s; rows from position `from` on are wanted. */
static void add(struct bench *b, struct batch *to, uint32_t s, uint32_t n, enum row_role role, uint32_t from)
{
    struct sequence *q = &b->s[s];
    zoo_hold(&b->pages, &q->kv, q->position, n, BACK);
    to->seqs[to->st.n_seqs] = (struct step_seq){ .row = to->st.n_rows, .n_rows = n, .position = q->position, .role = role, .pages = q->kv.tables, .slot = s };
    to->of[to->st.n_seqs++] = s;
    for (uint32_t i = 0; i < n; i++) {
        if (q->position + i >= from) to->wanted[to->st.n_wanted++] = to->st.n_rows;
        to->tokens[to->st.n_rows++] = q->tokens[q->position + i];
    }
    to->st.tokens = to->tokens;
    to->st.seqs = to->seqs;
    to->st.wanted = to->wanted;
}

static void run(struct bench *b, struct batch *of)
{
    struct step *st = &of->st;
    float *logits = calloc((size_t)ROWS * V, sizeof *logits), *pooled = calloc((size_t)sequences * 256, sizeof *pooled);
    assert_non_null(logits);
    assert_non_null(pooled);
    st->logits = logits;
    st->pooled = b->z.program->embedding_width ? pooled : NULL;
    if (cuda->step(b->x, st, &err)) fail_msg("%s", text);
    for (uint32_t i = 0; i < st->n_wanted; i++) {
        uint32_t seq = 0;
        while (of->seqs[seq].row + of->seqs[seq].n_rows <= of->wanted[i]) seq++;
        const uint32_t position = of->seqs[seq].position + of->wanted[i] - of->seqs[seq].row;
        memcpy(b->s[of->of[seq]].logits + (size_t)position * V, logits + (size_t)i * V, V * sizeof *logits);
    }
    for (uint32_t i = 0; i < st->n_seqs; i++) {
        struct sequence *s = &b->s[of->of[i]];
        s->failed |= of->seqs[i].failed;
        s->position += of->seqs[i].n_rows;
        zoo_hold(&b->pages, &s->kv, s->position, 0, BACK);
        memcpy(s->pooled, pooled + (size_t)i * 256, sizeof s->pooled);
    }
    free(logits);
    free(pooled);
    memset(of, 0, sizeof *of);
}

static void prompt(struct bench *b, uint32_t s, uint32_t n, uint32_t from)
{
    add(b, &t, s, n, ROW_PROMPT, from);
    run(b, &t);
}

static void same_bits(const float *a, const float *b, size_t n, const char *what, uint32_t detail)
{
    size_t wrong = 0, first = 0;
    for (size_t i = n; i-- > 0;)
        if (memcmp(a + i, b + i, sizeof *a)) wrong++, first = i;
    if (wrong) fail_msg("%s %u: %zu of %zu logits, first row %zu, logit %zu: %.9g and %.9g", what, detail, wrong, n, first / V, first % V, (double)a[first], (double)b[first]);
}

/* ---- against float64 ------------------------------------------------------------------------------------------------------------------ */

/* Rows whose error is above the bound: a nearly equal choice between experts may fall otherwise, so some are allowed there. */
struct tapped { const struct tape_program *p; const struct reference *r; uint32_t seen, scores, allowed; double bound; };

static void check_close(const char *name, const float *a, const double *b, uint32_t rows, uint32_t width, double bound, uint32_t allowed)
{
    double square = 0;
    uint32_t wrong = 0;
    for (size_t i = 0; i < (size_t)rows * width; i++) square += isinf(b[i]) ? 0 : b[i] * b[i];
    const double limit = square / rows * bound * bound;
    double worst = 0;
    for (uint32_t r = 0; r < rows; r++) {
        double error = 0;
        for (size_t i = (size_t)r * width; i < (size_t)(r + 1) * width; i++)
            if (!isinf(b[i]) || (double)a[i] != b[i]) error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        if (!(error <= limit)) wrong++;
        if (!(error <= worst)) worst = error;
    }
    if (wrong > allowed) fail_msg("%s: %u of %u rows are off, the worst by a relative rms of %g; expected at most %g", name, wrong, rows, sqrt(worst / (square / rows)), bound);
}

static void on_tap(void *user, const char *name, const float *data, uint32_t rows, uint32_t width)
{
    struct tapped *to = user;
    char value[TAPE_NAME + 8];
    (void)snprintf(value, sizeof value, "%s", name);
    char *dot = strstr(value, ".scores");
    if (dot) *dot = 0;
    const uint32_t v = tape_find_value(to->p, value);
    if (v == TAPE_NONE) fail_msg("tap of %s, which is no value", name);
    const struct tape_value *x = &to->p->values[v];
    assert_int_equal(rows, x->rows == ROWS_POOLED ? 1 : to->r->n);
    if (!dot) assert_int_equal(width, x->width * x->slots);
    to->seen++;
    to->scores += dot != NULL;
    check_close(name, data, dot ? to->r->scores[v] : to->r->value[v], rows, width, to->bound, to->allowed);
}

static void check_reference(enum zoo_kind kind, bool taps, enum row_role role)
{
    enum { N = 60 };
    static const char *const all[] = { "*", "blk.0.attention.scores" };
    const double bound = 1e-2;
    struct bench b;
    struct reference r;
    bench_open(&b, kind, FUSE_ALL, true, taps ? all : NULL, taps ? 2 : 0);
    reference_run(&r, b.z.program, b.s[0].tokens, N);
    struct tapped seen = { b.z.program, &r, 0, 0, kind == ZOO_EXPERTS ? N / 10 : 0, bound };
    if (taps) cuda->taps(b.x, on_tap, &seen);
    add(&b, &t, 0, N, role, 0);
    run(&b, &t);
    const struct tape_op *last = &b.z.program->ops[b.z.program->n_ops - 1];
    check_close("logits", b.s[0].logits, r.value[last->in[0]], N, V, bound, seen.allowed);
    if (r.embedding) check_close("embedding", b.s[0].pooled, r.embedding, 1, b.z.program->embedding_width, bound, 0);
    if (taps) {
        assert_true(seen.seen >= b.z.program->n_values / 2);
        assert_true(seen.scores >= 1);
    }
    assert_false(b.s[0].failed);
    reference_free(&r);
    bench_close(&b);
}

static const enum zoo_kind kinds[] = { ZOO_DENSE, ZOO_MAPS, ZOO_EXPERTS, ZOO_EMBEDDING, ZOO_WIDE, ZOO_WINDOWS };
static const enum zoo_kind chat_kinds[] = { ZOO_DENSE, ZOO_MAPS, ZOO_EXPERTS, ZOO_WINDOWS };

static void test_reference(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 6; k++)
        for (uint32_t i = 0; i < 4; i++) check_reference(kinds[k], i & 1, i & 2 ? ROW_GENERATED : ROW_PROMPT);
}

/* ---- bits ----------------------------------------------------------------------------------------------------------------------------- */

enum schedule { WHOLE, CHUNKS, RAGGED };

/* Logits of sequence 0 for n prompt rows and 8 generated ones; caller frees. */
static float *run_bits(enum zoo_kind kind, uint32_t fuse, bool shuffled, enum schedule how, uint32_t n, bool eager)
{
    struct bench b;
    bench_open(&b, kind, fuse, shuffled, NULL, 0);
    b.x->eager = eager;
    while (b.s[0].position < n) {
        for (uint32_t s = 0; s < (how == RAGGED ? 3 : 1); s++) {
            const uint32_t left = n - b.s[s].position, most = how == WHOLE ? ROWS : draw(&b, 3) ? 1 + draw(&b, 60) : 1;
            if (left) add(&b, &t, s, left < most ? left : most, ROW_PROMPT, 0);
        }
        run(&b, &t);
    }
    while (b.s[0].position < n + 8) {
        for (uint32_t s = 0; s < (how == RAGGED ? 3 : 1); s++) add(&b, &t, s, 1, ROW_GENERATED, 0);
        /* A prompt in the same step goes its own way. */
        if (how == RAGGED) add(&b, &t, 3, 9, ROW_PROMPT, 0);
        run(&b, &t);
    }
    assert_false(b.s[0].failed);
    float *bits = b.s[0].logits;
    b.s[0].logits = NULL;
    bench_close(&b);
    return bits;
}

static void test_schedules(void **state)
{
    (void)state;
    enum { N = 380, FEWER = 192 /* rows a step: the tables of windows come round */ };
    for (uint32_t k = 0; k < 4; k++) {
        float *whole = run_bits(chat_kinds[k], FUSE_ALL, false, WHOLE, N, false);
        assert_true(whole[(size_t)(N + 7) * V] != 0.0f);
        for (uint32_t i = 0; i < 3; i++) {
            step_rows = i ? FEWER : ROWS;
            float *other = run_bits(chat_kinds[k], FUSE_ALL, i > 0, i == 1 ? CHUNKS : i == 2 ? RAGGED : WHOLE, N, i == 0);
            same_bits(whole, other, (size_t)(N + 8) * V, i == 0 ? "launched one by one" : i == 1 ? "chunks in shuffled pages" : "with other sequences", k);
            free(other);
        }
        step_rows = ROWS;
        free(whole);
    }
}

static void test_fusions(void **state)
{
    (void)state;
    enum { N = 60 };
    for (uint32_t k = 0; k < 4; k++) {
        float *all = run_bits(chat_kinds[k], FUSE_ALL, false, CHUNKS, N, false);
        for (uint32_t bit = chat_kinds[k] == ZOO_MAPS ? FUSE_ALL + 1 : 1; bit < 2 * FUSE_ALL; bit <<= 1) { /* and once all of them */
            const uint32_t fuse = bit <= FUSE_ALL ? (uint32_t)FUSE_ALL & ~bit : 0;
            float *other = run_bits(chat_kinds[k], fuse, false, CHUNKS, N, false);
            same_bits(all, other, (size_t)(N + 8) * V, "fused only by", fuse);
            free(other);
        }
        free(all);
    }
}

/* Rows of which acts pass between launches by runs and as panels: first tokens of 32 sequences, together and alone. */
static void test_passed(void **state)
{
    (void)state;
    enum { N = 32 };
    for (uint32_t k = 0; k < 4; k++) {
        struct bench b;
        static float alone[N][V];
        bench_open(&b, chat_kinds[k], FUSE_ALL, false, NULL, 0);
        for (uint32_t s = 0; s < N; s++) {
            add(&b, &t, s, 1, ROW_GENERATED, 0);
            run(&b, &t);
            memcpy(alone[s], b.s[s].logits, sizeof alone[s]);
            b.s[s].position = 0;
        }
        for (uint32_t s = 0; s < N; s++) add(&b, &t, s, 1, ROW_GENERATED, 0);
        run(&b, &t);
        for (uint32_t s = 0; s < N; s++) same_bits(alone[s], b.s[s].logits, V, "passed between launches", s);
        bench_close(&b);
    }
}

/* Decoding n sequences of unequal lengths together: each gets the bits that it gets alone. */
static void test_batches(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    static const uint32_t sizes[] = { 1, 2, 3, 7, 8, 16, 33, 64 };
    for (uint32_t k = 0; k < 4; k++) {
        struct bench b;
        static float alone[SEQUENCES][STEPS][V];
        uint32_t length[SEQUENCES];
        bench_open(&b, chat_kinds[k], FUSE_ALL, true, NULL, 0);
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            length[s] = 3 + s * 7 % 120;
            prompt(&b, s, length[s], length[s]);
            for (uint32_t i = 0; i < STEPS; i++) {
                add(&b, &t, s, 1, ROW_GENERATED, 0);
                run(&b, &t);
                memcpy(alone[s][i], b.s[s].logits + (size_t)(length[s] + i) * V, sizeof alone[s][i]);
            }
        }
        for (uint32_t n = 0; n < 8; n++) {
            for (uint32_t s = 0; s < SEQUENCES; s++) b.s[s].position = length[s];
            for (uint32_t i = 0; i < STEPS; i++) {
                for (uint32_t s = 0; s < sizes[n]; s++) add(&b, &t, SEQUENCES - 1 - s, 1, ROW_GENERATED, 0);
                run(&b, &t);
                for (uint32_t s = 0; s < sizes[n]; s++)
                    same_bits(alone[SEQUENCES - 1 - s][i], b.s[SEQUENCES - 1 - s].logits + (size_t)(length[SEQUENCES - 1 - s] + i) * V, V, "together", sizes[n]);
            }
        }
        bench_close(&b);
    }
}

/* The same of more rows than one launch of some kernels takes: some of the sequences are looked at. */
static void test_large_batches(void **state)
{
    (void)state;
    enum { STEPS = 2, APART = 17 };
    static const uint32_t sizes[] = { 65, 128, 131, 256 };
    sequences = MOST_SEQUENCES;
    for (uint32_t k = 0; k < 4; k++) {
        struct bench b;
        static float alone[MOST_SEQUENCES][STEPS][V];
        uint32_t length[MOST_SEQUENCES];
        bench_open(&b, chat_kinds[k], FUSE_ALL, true, NULL, 0);
        for (uint32_t s = 0; s < MOST_SEQUENCES; s++) {
            length[s] = 1 + s * 7 % 60;
            prompt(&b, s, length[s], length[s]);
            for (uint32_t i = 0; i < STEPS && s % APART == 0; i++) {
                add(&b, &t, s, 1, ROW_GENERATED, 0);
                run(&b, &t);
                memcpy(alone[s][i], b.s[s].logits + (size_t)(length[s] + i) * V, sizeof alone[s][i]);
            }
        }
        for (uint32_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
            for (uint32_t s = 0; s < MOST_SEQUENCES; s++) b.s[s].position = length[s];
            for (uint32_t i = 0; i < STEPS; i++) {
                for (uint32_t s = 0; s < sizes[n]; s++) add(&b, &t, s, 1, ROW_GENERATED, 0);
                run(&b, &t);
                for (uint32_t s = 0; s < sizes[n]; s += APART) same_bits(alone[s][i], b.s[s].logits + (size_t)(length[s] + i) * V, V, "together", sizes[n]);
            }
        }
        bench_close(&b);
    }
    sequences = SEQUENCES;
}

/* Several generated rows of one sequence at once, more than a run holds too: the bits of one by one. */
static void test_many_generated(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        struct bench b;
        bench_open(&b, chat_kinds[k], FUSE_ALL, true, NULL, 0);
        for (uint32_t i = 0; i < 90; i++) add(&b, &t, 0, 1, ROW_GENERATED, 0), run(&b, &t);
        float *one = b.s[0].logits;
        b.s[0].logits = calloc((size_t)ZOO_CONTEXT * V, sizeof(float));
        assert_non_null(b.s[0].logits);
        b.s[0].position = 0;
        add(&b, &t, 0, 5, ROW_GENERATED, 0);
        add(&b, &t, 1, 20, ROW_GENERATED, 0);
        run(&b, &t);
        add(&b, &t, 2, 30, ROW_GENERATED, 0);
        add(&b, &t, 0, 85, ROW_GENERATED, 0);
        run(&b, &t);
        same_bits(one, b.s[0].logits, (size_t)90 * V, "several rows at once", k);
        free(one);
        bench_close(&b);
    }
}

static void test_wanted(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        struct bench b;
        bench_open(&b, chat_kinds[k], FUSE_ALL, false, NULL, 0);
        prompt(&b, 0, 60, 0);
        float *whole = b.s[0].logits;
        b.s[0].logits = calloc((size_t)ZOO_CONTEXT * V, sizeof(float));
        assert_non_null(b.s[0].logits);
        b.s[0].position = 0;
        add(&b, &t, 0, 40, ROW_PROMPT, 1000);
        add(&b, &t, 1, 7, ROW_PROMPT, 1000);
        run(&b, &t);
        add(&b, &t, 1, 5, ROW_PROMPT, 9);
        add(&b, &t, 0, 20, ROW_PROMPT, 57);
        add(&b, &t, 2, 3, ROW_GENERATED, 1);
        run(&b, &t);
        same_bits(whole + (size_t)57 * V, b.s[0].logits + (size_t)57 * V, (size_t)3 * V, "wanted", k);
        free(whole);
        bench_close(&b);
    }
}

/* Long pasts: attention cut by position. */
static void test_long(void **state)
{
    (void)state;
    enum { LONG = 1400 };
    struct bench b;
    bench_open(&b, ZOO_WIDE, FUSE_ALL, true, NULL, 0);
    while (b.s[0].position < LONG) prompt(&b, 0, b.s[0].position + ROWS < LONG ? ROWS : LONG - b.s[0].position, 2000);
    for (uint32_t i = 0; i < 5; i++) add(&b, &t, 0, 1, ROW_GENERATED, 0), run(&b, &t);
    struct reference r;
    reference_run(&r, b.z.program, b.s[0].tokens, LONG + 5);
    const struct tape_op *last = &b.z.program->ops[b.z.program->n_ops - 1];
    check_close("logits", b.s[0].logits + (size_t)LONG * V, r.value[last->in[0]] + (size_t)LONG * V, 5, V, 1e-2, 0);
    reference_free(&r);
    float one[5 * V];
    memcpy(one, b.s[0].logits + (size_t)LONG * V, sizeof one);
    b.s[0].position = LONG;
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t s = 1; s < 12; s++) add(&b, &t, s, 1, ROW_GENERATED, 0);
        add(&b, &t, 0, 1, ROW_GENERATED, 0);
        run(&b, &t);
    }
    same_bits(one, b.s[0].logits + (size_t)LONG * V, 5 * V, "long, together", 12);
    bench_close(&b);
}

/* ---- sampled steps ------------------------------------------------------------------------------------------------------------------------ */

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
        if (sampler_pick(sampler, scratch, b->s[s].logits + (size_t)at * V, NULL, &ids[i], &err) || sampler_accept(sampler, ids[i], &err)) fail_msg("%s", text);
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
    struct step_ids out = { ids, failed };
    if (cuda->collect(b->x, &out, &err)) fail_msg("%s", text);
}

static void test_sampled(void **state)
{
    (void)state;
    enum { N = 12, S = 9 };
    for (uint32_t k = 0; k < 4; k++) {
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
                if (got[s][i] != want[s][i]) fail_msg("%s: sequence %u, id %u: %u, expected %u", zoo_name(chat_kinds[k]), s, i, got[s][i], want[s][i]);
        struct step_ids none = { ids, failed };
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

/* Runs that are launched in pairs give the ids that they give alone; whatever comes between the two of a pair, none is lost and none comes late. */
static void test_pairs(void **state)
{
    (void)state;
    enum { N = 24, S = 9 };
    for (uint32_t k = 0; k < 4; k++) {
        struct bench b;
        uint32_t got[2][N + STEP_QUEUE][SEQUENCES], held = 0, pairs = 0;
        bool failed[SEQUENCES];
        bench_open(&b, chat_kinds[k], FUSE_ALL, true, NULL, 0);
        for (uint32_t ahead = 0; ahead < 2; ahead++) {
            const uint32_t depth = ahead ? STEP_QUEUE : 1;
            for (uint32_t s = 0; s < S; s++) {
                const struct sampler_params p = { .temperature = s % 3 ? 0.8f : 0, .top_p = 1, .repetition_penalty = 1, .seed = s };
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
                if (i == 12) assert_int_equal(cuda->sampler_set(b.x, S, &(struct sampler_params){ .top_p = 1, .repetition_penalty = 1 }, NULL, 0, &err), WK_OK);
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
                if (got[0][i][s] != got[1][i][s]) fail_msg("%s: id %u of sequence %u: %u, alone %u", zoo_name(chat_kinds[k]), i, s, got[1][i][s], got[0][i][s]);
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

/* ---- memory, errors, cancellation ------------------------------------------------------------------------------------------------------------ */

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
    for (uint32_t k = 0; k < 6; k++) {
        struct bench b;
        struct memory_plan used;
        const uint64_t all = free_bytes();
        bench_open(&b, kinds[k], FUSE_ALL, false, NULL, 0);
        const uint64_t taken = all - free_bytes();
        if (taken > b.plan.total + DRIVERS) fail_msg("%s: the device has %llu bytes less, %llu were planned", zoo_name(kinds[k]), (unsigned long long)taken, (unsigned long long)b.plan.total);
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
            if (left != before) fail_msg("%s: prompt %u, of %u rows, took %lld bytes of device memory", zoo_name(kinds[k]), i, 1 + i * 61 % ROWS, (long long)before - (long long)left);
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
        print_message("%s: %u sets of graphs take %llu bytes, %llu were planned\n", zoo_name(of[k]), TIMES, (unsigned long long)taken, (unsigned long long)planned);
        if (taken > planned + (2u << 20)) fail_msg("more than planned");
        for (uint32_t i = 0; i < TIMES; i++) {
            cuda_graphs_close(b.x);
            memcpy(b.x->graphs, sets[i], sizeof sets[i]);
        }
        bench_close(&b);
    }
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
    uint32_t tokens[ROWS] = { 1, 2, 3 }, wanted[2] = { 0, 2 };
    for (uint32_t s = 0; s < 2; s++) zoo_hold(&b.pages, &b.s[s].kv, 0, 3, 0);
    struct step_seq good[2] = { { .row = 0, .n_rows = 2, .pages = b.s[0].kv.tables }, { .row = 2, .n_rows = 1, .pages = b.s[1].kv.tables } }, q[2];
    const struct step fine = { .n_rows = 3, .n_seqs = 2, .n_wanted = 2, .tokens = tokens, .seqs = q, .wanted = wanted, .logits = logits };
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
    RESET(), wanted[1] = 3, refused(&b, &st, "wanted");
    wanted[1] = 2;
    /* Within the window, 40 positions here, a table is read. */
    zoo_hold(&b.pages, &b.s[0].kv, 320, 3, 0);
    const uint32_t id = b.s[0].kv.pages[0][8];
    b.s[0].kv.pages[0][8] = b.plan.kv_pages[0];
    RESET(), q[0] = (struct step_seq){ .row = 0, .n_rows = 3, .position = 320, .pages = b.s[0].kv.tables }, st.n_seqs = 1, refused(&b, &st, "page");
    b.s[0].kv.pages[0][8] = id;
    zoo_hold(&b.pages, &b.s[0].kv, 0, 3, 0);
    /* Sampled: a row before the last, a slot that is not there. */
    RESET(), assert_int_equal(cuda->submit(b.x, &st, &err), WK_INVALID);
    assert_non_null(strstr(text, "last row"));
    wanted[0] = 1;
    RESET(), q[1].slot = SEQUENCES, assert_int_equal(cuda->submit(b.x, &st, &err), WK_INVALID);
    assert_non_null(strstr(text, "slot"));
    wanted[0] = 0;
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

int main(int argc, char **argv)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1) {
        (void)fprintf(stderr, "no GPU here: skipped\n");
        return 77;
    }
    const struct plugin_options o = { .isa = plugin_detect_isa() };
    if (plugin_registry_open(&o, &plugins, &err)) {
        printf("%s\n", text);
        return 1;
    }
    /* What depends on how products are joined, and the rest. */
    const struct CMUnitTest products[] = { cmocka_unit_test(test_reference), cmocka_unit_test(test_schedules), cmocka_unit_test(test_fusions), cmocka_unit_test(test_passed) };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_schedules), cmocka_unit_test(test_fusions), cmocka_unit_test(test_batches), cmocka_unit_test(test_large_batches), cmocka_unit_test(test_many_generated),
        cmocka_unit_test(test_wanted), cmocka_unit_test(test_long), cmocka_unit_test(test_sampled), cmocka_unit_test(test_pairs), cmocka_unit_test(test_pair_fails), cmocka_unit_test(test_ends), cmocka_unit_test(test_memory), cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_infinite), cmocka_unit_test(test_cancel),
    };
    static const struct wk_type_cpu *cpu[TEST_TYPES];
    for (uint32_t i = 0; i < TEST_TYPES; i++) cpu[i] = plugin_find_type(plugins, i, NULL);
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    int failed = 0;
    /* Types that no call takes together and types that all go together take different ways through the products. */
    for (int32_t i = 0; i < 2 && (argc < 2 || !strcmp(argv[1], "plain")); i++) {
        plain = test_module(cpu, i);
        print_message("kernels: plain, types %s\n", i ? "together" : "apart");
        failed |= cmocka_run_group_tests(products, NULL, NULL);
    }
    plain = NULL;
    if (argc < 2 || !strcmp(argv[1], "plugins")) {
        print_message("kernels: the plugins'\n");
        failed |= cmocka_run_group_tests(all, NULL, NULL);
    }
    zoo_free();
    plugin_registry_close(plugins);
    return failed;
}
