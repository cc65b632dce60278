/* test_executor.c: the CPU executor on small models that use every operation, with the real quantization plugins.
 *
 * Two kinds of proof. Exact arithmetic against a float64 evaluation of the tape, value by value. And bits: a row's
 * logits must be the same however the prompt is cut, whatever shares the step, in any order of pages, on any number of
 * threads, with any fusion off. */
#include "test_zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "gguf/gguf.h"
#include "gguf/guard.h"
#include "model/model.h"

#include <cmocka.h>

#include "base/machine.h"

enum { TOKENS = 290, SEQUENCES = 3, ROWS = 320, MOST_ROWS = SEQUENCES * ROWS };

static struct plugin_registry *plugins;
static char text[1024];
static const struct wk_err err = { text, sizeof text };

/* ---- sequences and schedules --------------------------------------------------------------------------- */

struct sequence {
    uint32_t tokens[ZOO_CONTEXT], n, position;
    struct zoo_tables kv;
    float *logits; /* [n][ZOO_VOCAB] */
    float pooled[256];
    bool failed;
};

struct bench {
    const struct tape_program *program;
    struct executor *x;
    struct memory_plan plan;
    struct zoo_pages pages;
    struct sequence s[SEQUENCES];
    uint32_t random;
};

static uint32_t draw(struct bench *b, uint32_t below)
{
    b->random = b->random * 1664525u + 1013904223u;
    return (b->random >> 8) % below;
}

static struct device_options options(uint32_t threads, uint32_t isa, bool exact)
{
    return (struct device_options){ .threads = threads,
                                    .isa = isa,
                                    .exact = exact,
                                    .kv_type = exact ? KV_F32 : KV_F16,
                                    .context = ZOO_CONTEXT,
                                    .max_sequences = SEQUENCES,
                                    .max_rows = ROWS,
                                    .max_logits_rows = ROWS };
}

static void bench_open(struct bench *b, const struct zoo *z, const struct device_options *o, bool shuffled)
{
    memset(b, 0, sizeof *b);
    b->program = z->program;
    b->random = 5;
    const struct model_weights w = { z->file };
    struct device_options wide = *o;
    for (uint32_t g = 0; g < z->program->n_groups; g++) /* for blocks that a step passes */
        if (z->program->groups[g].state) wide.kv_sequences = 5 * SEQUENCES;
    o = &wide;
    if (device_cpu()->plan(z->program, o, &b->plan, &err) || device_cpu()->open(z->program, &w, o, &b->x, &err))
        fail_msg("%s", text);
    zoo_pages_open(&b->pages, b->program, &b->plan, shuffled ? 5 : 0);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        zoo_tables_open(&b->s[s].kv, b->program->n_groups);
        uint32_t r = 100 + s;
        for (uint32_t i = 0; i < ZOO_CONTEXT; i++) {
            r = r * 1664525u + 1013904223u;
            b->s[s].tokens[i] = (r >> 10) % ZOO_BAD_TOKEN;
        }
        b->s[s].logits = calloc((size_t)ZOO_CONTEXT * ZOO_VOCAB, sizeof(float));
        assert_non_null(b->s[s].logits);
    }
}

static void bench_close(struct bench *b)
{
    device_cpu()->close(b->x);
    zoo_pages_close(&b->pages);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        zoo_tables_close(&b->s[s].kv);
        free(b->s[s].logits);
    }
}

/* One step: the next rows[s] tokens of each sequence, 0 for none; all rows wanted, or none of those before `from`. */
static void step_sequences(struct bench *b, const uint32_t rows[SEQUENCES], uint32_t from)
{
    struct step_seq seqs[SEQUENCES];
    uint32_t tokens[MOST_ROWS], logits_rows[MOST_ROWS], of[SEQUENCES];
    float *logits = calloc((size_t)MOST_ROWS * ZOO_VOCAB, sizeof *logits),
          *pooled = calloc((size_t)SEQUENCES * 256, sizeof *pooled);
    assert_non_null(logits);
    assert_non_null(pooled);
    struct step st = { .tokens = tokens,
                       .seqs = seqs,
                       .logits_rows = logits_rows,
                       .logits = logits,
                       .pooled = b->program->embedding_width ? pooled : NULL };
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        if (!rows[s]) continue;
        zoo_hold(&b->pages, &b->s[s].kv, b->s[s].position, rows[s], 0);
        seqs[st.n_seqs] = (struct step_seq){ .row = st.n_rows,
                                             .n_rows = rows[s],
                                             .position = b->s[s].position,
                                             .role = rows[s] == 1 ? ROW_GENERATED : ROW_PROMPT,
                                             .pages = b->s[s].kv.tables,
                                             .second = zoo_second(s) };
        of[st.n_seqs++] = s;
        for (uint32_t i = 0; i < rows[s]; i++) {
            if (b->s[s].position + i >= from) logits_rows[st.n_logits_rows++] = st.n_rows;
            tokens[st.n_rows++] = b->s[s].tokens[b->s[s].position + i];
        }
    }
    if (device_cpu()->step(b->x, &st, &err)) fail_msg("%s", text);
    uint32_t w = 0;
    for (uint32_t i = 0; i < st.n_seqs; i++) {
        struct sequence *s = &b->s[of[i]];
        s->failed |= seqs[i].failed;
        memcpy(s->pooled, pooled + (size_t)i * 256, sizeof s->pooled);
        for (uint32_t r = 0; r < seqs[i].n_rows; r++, s->position++)
            if (s->position >= from)
                memcpy(s->logits + (size_t)s->position * ZOO_VOCAB, logits + (size_t)w++ * ZOO_VOCAB,
                       ZOO_VOCAB * sizeof *logits);
        zoo_hold(&b->pages, &s->kv, s->position, 0, 0);
    }
    free(logits);
    free(pooled);
}

enum schedule { WHOLE, ONE_BY_ONE, CHUNKS, RAGGED };

/* Sequence 0 alone, or all three together in chunks of every size (RAGGED). */
static void feed(struct bench *b, enum schedule how, uint32_t n)
{
    while (b->s[0].position < n) {
        uint32_t rows[SEQUENCES] = { 0 };
        for (uint32_t s = 0; s < (how == RAGGED ? SEQUENCES : 1); s++) {
            const uint32_t left = n - b->s[s].position, most = how == WHOLE        ? ROWS
                                                               : how == ONE_BY_ONE ? 1
                                                               : draw(b, 3)        ? 1 + draw(b, 60)
                                                                                   : 1;
            rows[s] = left < most ? left : most;
        }
        step_sequences(b, rows, 0);
    }
}

/* The bits of sequence 0 under some condition; caller frees. */
static float *run_bits(enum zoo_kind kind, const struct device_options *o, uint32_t fuse, bool shuffled,
                       enum schedule how, uint32_t n)
{
    struct zoo z;
    struct bench b;
    zoo_open(&z, kind, plugins, fuse, NULL, 0);
    bench_open(&b, &z, o, shuffled);
    feed(&b, how, n);
    assert_false(b.s[0].failed);
    float *bits = b.s[0].logits;
    b.s[0].logits = NULL;
    bench_close(&b);
    zoo_close(&z);
    return bits;
}

static void same_bits(const float *a, float *b, uint32_t n, const char *what, uint32_t detail)
{
    for (size_t i = 0; i < (size_t)n * ZOO_VOCAB; i++)
        if (memcmp(a + i, b + i, sizeof *a))
            fail_msg("%s %u: position %zu, logit %zu: %.9g and %.9g", what, detail, i / ZOO_VOCAB, i % ZOO_VOCAB,
                     (double)a[i], (double)b[i]);
    free(b);
}

static const enum zoo_kind chat_kinds[] = { ZOO_DENSE, ZOO_LEARNED, ZOO_EXPERTS, ZOO_WINDOWS, ZOO_ROUTES,
                                            ZOO_HEADS, ZOO_STATES,  ZOO_HYBRID,  ZOO_CHUNKS,  ZOO_LATENT };
enum { CHAT_KINDS = sizeof chat_kinds / sizeof *chat_kinds };

/* ---- against float64 ----------------------------------------------------------------------------------- */

struct tapped {
    const struct tape_program *p;
    const struct reference *r;
    uint32_t seen, scores;
    double bound;
};

static void check_close(const char *name, const float *a, const double *b, size_t n, double bound)
{
    double error = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        if (isinf(b[i]) && (double)a[i] == b[i]) continue;
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        square += b[i] * b[i];
    }
    if (!(error <= square * bound * bound))
        fail_msg("%s: relative rms %g, expected at most %g", name, sqrt(error / square), bound);
}

static void on_tap(void *user, const char *name, const float *data, uint32_t rows, uint32_t width)
{
    struct tapped *t = user;
    char value[TAPE_NAME + 8];
    (void)snprintf(value, sizeof value, "%s", name);
    char *dot = strstr(value, ".scores");
    if (dot) *dot = 0;
    const uint32_t v = tape_find_value(t->p, value);
    if (v == TAPE_NONE) fail_msg("tap of %s, which is no value", name);
    assert_int_equal(rows, t->r->n);
    const struct tape_value *x = &t->p->values[v];
    if (!dot) assert_int_equal(width, x->width * x->slots);
    t->seen++;
    t->scores += dot != NULL;
    check_close(name, data, dot ? t->r->scores[v] : t->r->value[v], (size_t)rows * width, t->bound);
}

/* Every value, and the scores of every attention; returns how many names. */
static uint32_t name_taps(enum zoo_kind kind, const char *names[9])
{
    static char scores[8][TAPE_NAME + 8];
    struct zoo z;
    uint32_t n = 0;
    zoo_open(&z, kind, plugins, FUSE_ALL, NULL, 0);
    for (uint32_t i = 0; i < z.program->n_ops; i++) {
        if (z.program->ops[i].kind != WK_OP_ATTENTION) continue;
        assert_true(n < 8);
        (void)snprintf(scores[n], sizeof scores[n], "%s.scores", z.program->values[z.program->ops[i].out].name);
        names[n] = scores[n];
        n++;
    }
    zoo_close(&z);
    names[n] = "*";
    return n + 1;
}

static void check_reference(enum zoo_kind kind, uint32_t isa, bool exact)
{
    enum { N = 100 };
    const char *all[9];
    const uint32_t n_all = name_taps(kind, all);
    struct zoo z;
    struct bench b;
    struct reference r;
    zoo_open(&z, kind, plugins, FUSE_ALL, exact ? all : NULL, exact ? n_all : 0);
    const struct device_options o = options(2, isa, exact);
    bench_open(&b, &z, &o, true);
    reference_run(&r, z.program, b.s[0].tokens, N, zoo_second(0));
    struct tapped t = { z.program, &r, 0, 0, 1e-5 };
    if (exact) device_cpu()->taps(b.x, on_tap, &t);
    feed(&b, WHOLE, N);
    const struct tape_op *last = &z.program->ops[z.program->n_ops - 1];
    check_close("logits", b.s[0].logits, r.value[last->in[0]], (size_t)N * ZOO_VOCAB, exact ? 1e-5 : 6e-2);
    if (r.embedding)
        check_close("embedding", b.s[0].pooled, r.embedding, z.program->embedding_width, exact ? 1e-5 : 6e-2);
    if (exact) {
        assert_true(t.seen >= z.program->n_values / 2);
        assert_int_equal(t.scores, n_all - 1);
    }
    reference_free(&r);
    bench_close(&b);
    zoo_close(&z);
}

static void test_reference(void **state)
{
    (void)state;
    for (uint32_t isa = 0; isa <= plugin_detect_isa(); isa++)
        for (uint32_t kind = 0; kind < ZOO_KINDS; kind++) {
            check_reference((enum zoo_kind)kind, isa, true);
            check_reference((enum zoo_kind)kind, isa, false);
        }
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

static void test_schedules(void **state)
{
    (void)state;
    for (uint32_t isa = 0; isa <= plugin_detect_isa(); isa++)
        for (uint32_t k = 0; k < CHAT_KINDS; k++) {
            const struct device_options o = options(2, isa, isa == WK_ISA_AVX2);
            const uint32_t n = isa == WK_ISA_PORTABLE ? 150 : TOKENS;
            float *whole = run_bits(chat_kinds[k], &o, FUSE_ALL, false, WHOLE, n);
            same_bits(whole, run_bits(chat_kinds[k], &o, FUSE_ALL, false, ONE_BY_ONE, n), n, "one by one", k);
            same_bits(whole, run_bits(chat_kinds[k], &o, FUSE_ALL, true, CHUNKS, n), n, "chunks in shuffled pages", k);
            same_bits(whole, run_bits(chat_kinds[k], &o, FUSE_ALL, true, RAGGED, n), n, "with other sequences", k);
            free(whole);
        }
}

static void test_threads(void **state)
{
    (void)state;
    static const uint32_t threads[] = { 2, 3, 5 };
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
        struct device_options o = options(1, WK_ISA_AVX512, false);
        float *one = run_bits(chat_kinds[k], &o, FUSE_ALL, false, CHUNKS, TOKENS);
        for (uint32_t t = 0; t < 3; t++) {
            o.threads = threads[t];
            same_bits(one, run_bits(chat_kinds[k], &o, FUSE_ALL, false, CHUNKS, TOKENS), TOKENS, "threads", threads[t]);
        }
        free(one);
    }
}

static void test_fusions(void **state)
{
    (void)state;
    enum { N = 60 };
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
        const struct device_options o = options(2, WK_ISA_AVX512, false);
        float *all = run_bits(chat_kinds[k], &o, FUSE_ALL, false, CHUNKS, N);
        for (uint32_t bit = 1; bit < FUSE_ALL; bit <<= 1)
            same_bits(all, run_bits(chat_kinds[k], &o, FUSE_ALL & ~bit, false, CHUNKS, N), N, "without fusion", bit);
        same_bits(all, run_bits(chat_kinds[k], &o, 0, false, CHUNKS, N), N, "without fusion", FUSE_ALL);
        free(all);
    }
}

static void refused(struct bench *b, struct step *st, const char *word)
{
    assert_int_equal(device_cpu()->step(b->x, st, &err), WK_INVALID);
    if (!strstr(text, word)) fail_msg("\"%s\" does not name %s", text, word);
}

/* Long pasts: with one KV head and idle threads a row's attention is cut by position; the cut must not show. */
static void cut_by_position(enum zoo_kind kind)
{
    enum { LONG = 1400 };
    float *bits[2];
    for (uint32_t t = 0; t < 2; t++) {
        struct zoo z;
        struct bench b;
        const struct device_options o = options(1 + 2 * t, WK_ISA_AVX512, false);
        zoo_open(&z, kind, plugins, FUSE_ALL, NULL, 0);
        bench_open(&b, &z, &o, true);
        while (b.s[0].position < LONG - 10)
            step_sequences(&b,
                           (const uint32_t[SEQUENCES]){
                               b.s[0].position + ROWS < LONG - 10 ? ROWS : LONG - 10 - b.s[0].position, 0, 0 },
                           LONG);
        for (uint32_t s = 1; s < 3; s++) step_sequences(&b, (const uint32_t[SEQUENCES]){ 0, s == 1, s == 2 }, LONG);
        while (b.s[0].position < LONG) step_sequences(&b, (const uint32_t[SEQUENCES]){ 1, b.s[0].position % 2, 0 }, 0);
        bits[t] = b.s[0].logits;
        b.s[0].logits = NULL;
        bench_close(&b);
        zoo_close(&z);
    }
    assert_true(bits[0][(size_t)(LONG - 1) * ZOO_VOCAB] != 0.0f);
    same_bits(bits[0], bits[1], LONG, "threads", 3);
    free(bits[0]);
}

static void test_cut_by_position(void **state)
{
    (void)state;
    cut_by_position(ZOO_WIDE);
    cut_by_position(ZOO_LATENT);
}

/* Attention in both directions: whole prompts, alone and beside others, on any number of threads, all rows wanted or
 * some; a prompt that is not whole is refused. */
static void test_both_directions(void **state)
{
    (void)state;
    enum { N = 300 };
    struct zoo z;
    zoo_open(&z, ZOO_BOTH, plugins, FUSE_ALL, NULL, 0);
    for (uint32_t exact = 0; exact < 2; exact++) {
        struct device_options o = options(2, WK_ISA_AVX512, exact);
        o.max_rows = o.max_logits_rows = MOST_ROWS;
        float *whole = run_bits(ZOO_BOTH, &o, FUSE_ALL, false, WHOLE, N);
        for (uint32_t threads = 1; threads < 4; threads++) {
            struct bench b;
            o.threads = threads;
            bench_open(&b, &z, &o, true);
            step_sequences(&b, (const uint32_t[SEQUENCES]){ N, threads, 5 }, threads == 2 ? N - 3 : 0);
            const uint32_t from = threads == 2 ? N - 3 : 0;
            assert_memory_equal(whole + (size_t)from * ZOO_VOCAB, b.s[0].logits + (size_t)from * ZOO_VOCAB,
                                (size_t)(N - from) * ZOO_VOCAB * sizeof *whole);
            zoo_hold(&b.pages, &b.s[1].kv, threads, 1, threads);
            float logits[ZOO_VOCAB], pooled[256];
            uint32_t logits_rows[1] = { 0 };
            struct step_seq q = {
                .row = 0, .n_rows = 1, .position = threads, .role = ROW_GENERATED, .pages = b.s[1].kv.tables
            };
            struct step st = { .n_rows = 1,
                               .n_seqs = 1,
                               .n_logits_rows = 1,
                               .tokens = b.s[1].tokens,
                               .seqs = &q,
                               .logits_rows = logits_rows,
                               .logits = logits,
                               .pooled = pooled };
            refused(&b, &st, "attention in both directions needs its whole prompt in one step");
            bench_close(&b);
        }
        free(whole);
    }
    zoo_close(&z);
}

/* Only some rows wanted: the same bits as among all. */
static void test_wanted(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
        struct zoo z;
        struct bench b;
        const struct device_options o = options(2, WK_ISA_AVX512, false);
        float *whole = run_bits(chat_kinds[k], &o, FUSE_ALL, false, WHOLE, 60);
        zoo_open(&z, chat_kinds[k], plugins, FUSE_ALL, NULL, 0);
        bench_open(&b, &z, &o, false);
        step_sequences(&b, (const uint32_t[SEQUENCES]){ 40, 7, 0 }, 1000);
        step_sequences(&b, (const uint32_t[SEQUENCES]){ 20, 5, 3 }, 57);
        assert_memory_equal(whole + (size_t)57 * ZOO_VOCAB, b.s[0].logits + (size_t)57 * ZOO_VOCAB,
                            (size_t)3 * ZOO_VOCAB * sizeof *whole);
        free(whole);
        bench_close(&b);
        zoo_close(&z);
    }
}

/* ---- memory, errors, cancellation ---------------------------------------------------------------------- */

/* Columns of 16, each head for itself; at least a line. */
static uint64_t state_page(const struct tape_op *op, const struct tape_kv_layer *k)
{
    uint64_t floats = k->state_floats;
    if (op->u.state.kind != WK_STATE_CONV)
        floats = (uint64_t)op->u.state.heads * op->u.state.head_k * ((op->u.state.head_v + 15) / 16 * 16);
    return floats ? (floats + 15) / 16 * 64 : 64;
}

static void test_plan(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < ZOO_KINDS; kind++)
        for (uint32_t exact = 0; exact < 2; exact++) {
            struct zoo z;
            struct bench b;
            struct memory_plan used;
            const struct device_options o = options(3, WK_ISA_AVX512, exact);
            zoo_open(&z, (enum zoo_kind)kind, plugins, FUSE_ALL, NULL, 0);
            bench_open(&b, &z, &o, false);
            device_cpu()->memory(b.x, &used);
            for (uint32_t i = 0; i < MEMORY_KINDS; i++) assert_int_equal(used.bytes[i], b.plan.bytes[i]);
            assert_int_equal(used.total, b.plan.total);
            uint64_t kv = 0;
            for (uint32_t l = 0; l < z.program->n_kv_layers; l++) {
                const struct tape_kv_layer *k = &z.program->kv_layers[l];
                if (z.program->groups[k->group].state) {
                    kv += b.plan.kv_pages[k->group] * state_page(&z.program->ops[k->op], k);
                    continue;
                }
                kv += (uint64_t)b.plan.kv_pages[k->group] * KV_PAGE * k->kv_heads *
                      (k->head_k + (k->value_in_key ? 0 : (k->head_v + 15) / 16 * 16)) * (exact ? 4 : 2);
            }
            assert_int_equal(used.bytes[MEMORY_KV], kv);
            bench_close(&b);
            zoo_close(&z);
        }
}

/* A window's group has what it spans for each sequence, and one step's rows; of bytes that are given it has all that it
 * can use, up to half. */
static void test_kv_bytes(void **state)
{
    (void)state;
    struct zoo z;
    struct memory_plan all, p;
    struct device_options o = options(1, WK_ISA_AVX512, false);
    zoo_open(&z, ZOO_DENSE, plugins, FUSE_ALL, NULL, 0);
    assert_int_equal(device_cpu()->plan(z.program, &o, &all, &err), WK_OK);
    assert_int_equal(all.kv_pages[0], SEQUENCES * 3 + ROWS / KV_PAGE);
    assert_int_equal(all.kv_pages[1], SEQUENCES * ZOO_CONTEXT / KV_PAGE);
    const uint64_t pages = all.kv_pages[0] + all.kv_pages[1],
                   page = all.bytes[MEMORY_KV] / pages; /* both groups have a layer of the same size */
    for (uint64_t n = 2; n <= 3 * pages; n++) {
        o.kv_bytes = page * n + page / 2;
        assert_int_equal(device_cpu()->plan(z.program, &o, &p, &err), WK_OK);
        const uint64_t window = n >= pages                ? o.kv_bytes * all.kv_pages[0] / pages / page
                                : n < 2 * all.kv_pages[0] ? o.kv_bytes / 2 / page
                                                          : all.kv_pages[0];
        if (p.kv_pages[0] != window)
            fail_msg("%u of %u pages have a window, expected %u", p.kv_pages[0], (unsigned)n, (unsigned)window);
        assert_in_range(p.kv_pages[0] + p.kv_pages[1], n - 1, n);
        assert_int_equal(p.bytes[MEMORY_KV], page * (p.kv_pages[0] + p.kv_pages[1]));
        assert_true(p.kv_page_bytes[0] == page && p.kv_page_bytes[1] == page);
    }
    o.kv_bytes = all.bytes[MEMORY_KV];
    assert_int_equal(device_cpu()->plan(z.program, &o, &p, &err), WK_OK);
    assert_memory_equal(&p, &all, sizeof p);
    /* Never more than whole sequences have. */
    o.kv_bytes = 0, o.max_rows = o.max_logits_rows = 100000;
    assert_int_equal(device_cpu()->plan(z.program, &o, &p, &err), WK_OK);
    assert_int_equal(p.kv_pages[0], p.kv_pages[1]);
    o.kv_sequences = 1; /* more slots than sequences that have pages */
    assert_int_equal(device_cpu()->plan(z.program, &o, &p, &err), WK_OK);
    assert_true(p.kv_pages[0] == ZOO_CONTEXT / KV_PAGE && p.kv_pages[1] == ZOO_CONTEXT / KV_PAGE);
    o = options(1, WK_ISA_AVX512, false);
    o.kv_bytes = page;
    assert_int_equal(device_cpu()->plan(z.program, &o, &p, &err), WK_INVALID);
    assert_non_null(strstr(text, "holds no page of 32 positions"));
    const char *least = strstr(text, "at least ");
    assert_non_null(least);
    o.kv_bytes = strtoull(least + 9, NULL, 10);
    assert_int_equal(device_cpu()->plan(z.program, &o, &p, &err), WK_OK);
    o.kv_bytes = UINT64_MAX;
    assert_int_equal(device_cpu()->plan(z.program, &o, &p, &err), WK_NO_MEMORY);
    zoo_close(&z);
}

static void test_too_much(void **state)
{
    (void)state;
    struct zoo z;
    struct executor *x;
    zoo_open(&z, ZOO_EXPERTS, plugins, FUSE_ALL, NULL, 0);
    const struct model_weights w = { z.file };
    struct device_options o = options(1, WK_ISA_AVX512, false);
    o.max_sequences = 65536;
    o.max_rows = o.max_logits_rows = 1 << 20;
    struct memory_plan plan;
    assert_int_equal(device_cpu()->plan(z.program, &o, &plan, &err), WK_OK);
    const uint64_t have = machine_memory();
    if (plan.total > have) {
        assert_int_equal(device_cpu()->open(z.program, &w, &o, &x, &err), WK_NO_MEMORY);
        assert_null(x);
        assert_non_null(strstr(text, "bytes"));
    } else {
        print_message("this machine has more memory than the largest plan, %llu bytes: not tried\n",
                      (unsigned long long)plan.total);
    }
    o = options(1, WK_ISA_AVX512, false);
    o.context = ZOO_CONTEXT + 1;
    assert_int_equal(device_cpu()->open(z.program, &w, &o, &x, &err), WK_INVALID);
    zoo_close(&z);
}

static void test_refusals(void **state)
{
    (void)state;
    struct zoo z;
    struct bench b;
    const struct device_options o = options(2, WK_ISA_AVX512, false);
    zoo_open(&z, ZOO_DENSE, plugins, FUSE_ALL, NULL, 0);
    bench_open(&b, &z, &o, false);
    float logits[2 * ZOO_VOCAB];
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
    assert_int_equal(device_cpu()->step(b.x, &st, &err), WK_OK);
    tokens[1] = ZOO_VOCAB;
    refused(&b, &st, "token 100");
    tokens[1] = 2;
    RESET(), q[1].row = 1, refused(&b, &st, "begins at row 1");
    RESET(), q[1].n_rows = 2, refused(&b, &st, "has 2 rows");
    RESET(), q[0].n_rows = 0, refused(&b, &st, "has 0 rows");
    RESET(), q[0].position = ZOO_CONTEXT - 1, refused(&b, &st, "context");
    RESET(), q[0].position = UINT32_MAX, refused(&b, &st, "context");
    RESET(), q[0].pages = NULL, refused(&b, &st, "page table");
    RESET(), st.n_rows = ROWS + 1, refused(&b, &st, "rows");
    RESET(), st.n_seqs = 1, refused(&b, &st, "rows");
    RESET(), st.logits = NULL, refused(&b, &st, "logits");
    RESET(), logits_rows[1] = 3, refused(&b, &st, "logits row");
    logits_rows[1] = 0, refused(&b, &st, "logits row");
    logits_rows[1] = 2;
    RESET(), q[1].n_rows = 1, st.n_rows = 2, refused(&b, &st, "rows");
    /* Behind the window, 40 positions here, a table is not read; within it, it is, and the group without one is read
     * from its beginning. */
    zoo_hold(&b.pages, &b.s[0].kv, 320, 3, 0);
    RESET(), q[0] = (struct step_seq){ .row = 0, .n_rows = 3, .position = 320, .pages = b.s[0].kv.tables },
             st.n_seqs = 1;
    assert_int_equal(device_cpu()->step(b.x, &st, &err), WK_OK);
    assert_int_equal(b.s[0].kv.pages[0][7], UINT32_MAX);
    for (uint32_t g = 0; g < 2; g++) {
        uint32_t *entry = &b.s[0].kv.pages[g][g ? 0 : 8];
        const uint32_t id = *entry;
        *entry = b.plan.kv_pages[g], refused(&b, &st, "page"), *entry = id;
    }
    RESET(), b.s[1].kv.pages[0][0] = b.plan.kv_pages[0], refused(&b, &st, "page");
    bench_close(&b);
    zoo_close(&z);
}

/* One thing wrong at a time: nothing is planned, and the number is named. */
static void test_options(void **state)
{
    (void)state;
    struct zoo z;
    struct memory_plan plan;
    zoo_open(&z, ZOO_DENSE, plugins, FUSE_ALL, NULL, 0);
    const struct device_options fine = options(2, WK_ISA_AVX512, false);
    struct device_options o = fine;
    assert_int_equal(device_cpu()->plan(z.program, &o, &plan, &err), WK_OK);
#define REFUSED(member, value, part)                                                                             \
    (o = fine, o.member = (value), assert_int_equal(device_cpu()->plan(z.program, &o, &plan, &err), WK_INVALID), \
     assert_non_null(strstr(text, part)))
    REFUSED(context, 0, "context of 0 positions: expected 1 to");
    REFUSED(context, UINT32_MAX, "context of 4294967295 positions");
    REFUSED(context, z.program->context + 1, "the tape was recorded for");
    REFUSED(max_sequences, 0, "0 sequences");
    REFUSED(max_sequences, (1 << 16) + 1, "65537 sequences: expected 1 to 65536");
    REFUSED(max_rows, 0, "0 rows a step");
    REFUSED(max_rows, (1 << 20) + 1, "1048577 rows a step: expected 1 to 1048576");
    REFUSED(max_logits_rows, 0, "0 logits rows");
    REFUSED(max_logits_rows, ROWS + 1, "logits rows a step: expected 1 to");
    REFUSED(threads, UINT32_MAX, "4294967295 threads");
    REFUSED(kv_type, (enum kv_type)7, "cache type 7");
    zoo_close(&z);
}

/* A sequence whose numbers become infinite is marked; its neighbour computes the bits that it computes alone. */
static void test_infinite(void **state)
{
    (void)state;
    const enum zoo_kind kinds[] = { ZOO_LEARNED, ZOO_EXPERTS, ZOO_STATES, ZOO_HYBRID };
    for (uint32_t k = 0; k < 4; k++) {
        struct zoo z;
        struct bench b;
        const struct device_options o = options(2, WK_ISA_AVX512, k == 1);
        float *alone = run_bits(kinds[k], &o, FUSE_ALL, false, WHOLE, 30);
        zoo_open(&z, kinds[k], plugins, FUSE_ALL, NULL, 0);
        bench_open(&b, &z, &o, true);
        b.s[1].tokens[4] = ZOO_BAD_TOKEN;
        step_sequences(&b, (const uint32_t[SEQUENCES]){ 12, 20, 9 }, k ? 1000 : 0);
        assert_true(b.s[1].failed);
        step_sequences(&b, (const uint32_t[SEQUENCES]){ 18, 1, 1 }, 12);
        assert_false(b.s[0].failed || b.s[2].failed);
        assert_memory_equal(alone + (size_t)12 * ZOO_VOCAB, b.s[0].logits + (size_t)12 * ZOO_VOCAB,
                            (size_t)18 * ZOO_VOCAB * sizeof *alone);
        free(alone);
        bench_close(&b);
        zoo_close(&z);
    }
}

static void test_cancel(void **state)
{
    (void)state;
    struct zoo z;
    struct bench b;
    const struct device_options o = options(3, WK_ISA_AVX512, false);
    float *alone = run_bits(ZOO_DENSE, &o, FUSE_ALL, false, WHOLE, 30), logits[ZOO_VOCAB];
    const bool yes = true;
    uint32_t logits_rows[1] = { 0 };
    zoo_open(&z, ZOO_DENSE, plugins, FUSE_ALL, NULL, 0);
    bench_open(&b, &z, &o, false);
    zoo_hold(&b.pages, &b.s[0].kv, 0, 30, 0);
    struct step_seq q = { .row = 0, .n_rows = 30, .pages = b.s[0].kv.tables };
    struct step st = { .n_rows = 30,
                       .n_seqs = 1,
                       .n_logits_rows = 1,
                       .tokens = b.s[0].tokens,
                       .seqs = &q,
                       .logits_rows = logits_rows,
                       .logits = logits,
                       .cancel = &yes };
    assert_int_equal(device_cpu()->step(b.x, &st, &err), WK_CANCELLED);
    feed(&b, WHOLE, 30);
    assert_memory_equal(alone, b.s[0].logits, (size_t)30 * ZOO_VOCAB * sizeof *alone);
    free(alone);
    bench_close(&b);
    zoo_close(&z);
}

/* ---- states -------------------------------------------------------------------------------------------- */

/* One step of one sequence by tables of the test's own; the last row's logits. */
static wk_status step_pages(struct bench *b, const uint32_t *const *tables, uint32_t position, uint32_t n,
                            float *logits, const bool *cancel)
{
    const uint32_t logits_rows[1] = { n - 1 };
    struct step_seq q = { .n_rows = n, .position = position, .pages = tables };
    struct step st = { .n_rows = n,
                       .n_seqs = 1,
                       .n_logits_rows = 1,
                       .tokens = b->s[0].tokens + position,
                       .seqs = &q,
                       .logits_rows = logits_rows,
                       .logits = logits,
                       .cancel = cancel };
    return device_cpu()->step(b->x, &st, &err);
}

/* A page that is full is the state at its end: any number of sequences go on from it, and none changes it. A page that
 * is missing is missed where it is read, or stored to last, and nowhere else. */
static void test_state_pages(void **state)
{
    (void)state;
    enum { N = 75, NONE = UINT32_MAX };
    struct zoo z;
    struct bench b;
    const struct device_options o = options(2, WK_ISA_AVX512, false);
    float *whole = run_bits(ZOO_STATES, &o, FUSE_ALL, false, WHOLE, N), logits[ZOO_VOCAB];
    zoo_open(&z, ZOO_STATES, plugins, FUSE_ALL, NULL, 0);
    bench_open(&b, &z, &o, false);
    uint32_t first[] = { NONE, 0 }, fork[2][3] = { { NONE, 0, 1 }, { NONE, 0, 2 } };
    const uint32_t *of_first = first, *of_fork[2] = { fork[0], fork[1] };
    assert_int_equal(step_pages(&b, &of_first, 0, 64, logits, NULL), WK_OK);
    assert_memory_equal(logits, whole + 63 * ZOO_VOCAB, sizeof logits);
    for (uint32_t turn = 0; turn < 4; turn++) {
        assert_int_equal(step_pages(&b, &of_fork[turn % 2], 64, 8, logits, NULL), WK_OK);
        assert_memory_equal(logits, whole + 71 * ZOO_VOCAB, sizeof logits);
        assert_int_equal(step_pages(&b, &of_fork[turn % 2], 72, 3, logits, NULL), WK_OK);
        assert_memory_equal(logits, whole + 74 * ZOO_VOCAB, sizeof logits);
    }
    struct {
        uint32_t position, n, missing;
    } bad[] = { { 0, 64, 1 }, { 64, 8, 1 }, { 64, 8, 2 }, { 72, 3, 2 } };
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t id = fork[0][bad[i].missing];
        fork[0][bad[i].missing] = NONE;
        assert_int_equal(step_pages(&b, &of_fork[0], bad[i].position, bad[i].n, logits, NULL), WK_INVALID);
        fork[0][bad[i].missing] = b.plan.kv_pages[0];
        assert_int_equal(step_pages(&b, &of_fork[0], bad[i].position, bad[i].n, logits, NULL), WK_INVALID);
        fork[0][bad[i].missing] = id;
    }
    fork[0][0] = b.plan.kv_pages[0]; /* passed, and neither none nor a page */
    assert_int_equal(step_pages(&b, &of_fork[0], 0, 64, logits, NULL), WK_INVALID);
    free(whole);
    bench_close(&b);
    zoo_close(&z);
}

struct stopper {
    const char *at;
    bool stop;
};
static void stop_at(void *user, const char *name, const float *data, uint32_t rows, uint32_t width)
{
    struct stopper *t = user;
    (void)data, (void)rows, (void)width;
    t->stop = t->stop || !strcmp(name, t->at);
}

/* A step that is told to stop may be run again, at whatever launch it stopped: from a full page it stops anywhere; one
 * that has begun to change a page which it also reads goes on to its end. */
static void test_state_cancel(void **state)
{
    (void)state;
    enum { N = 80 };
    static const char *const all[] = { "*" };
    static const struct {
        const char *at;
        uint32_t position;
        wk_status status;
    } rows[] = { { "token_embd", 64, WK_CANCELLED },  { "blk.0.conv", 64, WK_CANCELLED },
                 { "blk.1.delta", 64, WK_CANCELLED }, { "token_embd", 70, WK_CANCELLED },
                 { "blk.0.conv", 70, WK_OK },         { "blk.1.delta", 70, WK_OK } };
    const struct device_options o = options(2, WK_ISA_AVX512, false);
    float *whole = run_bits(ZOO_STATES, &o, FUSE_ALL, false, WHOLE, N), logits[ZOO_VOCAB];
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zoo z;
        struct bench b;
        struct stopper t = { rows[i].at, false };
        const uint32_t pages[] = { 2, 1, 0 }, *tables = pages;
        zoo_open(&z, ZOO_STATES, plugins, FUSE_ALL, all, 1);
        bench_open(&b, &z, &o, false);
        assert_int_equal(step_pages(&b, &tables, 0, rows[i].position, logits, NULL), WK_OK);
        device_cpu()->taps(b.x, stop_at, &t);
        assert_int_equal(step_pages(&b, &tables, rows[i].position, N - rows[i].position, logits, &t.stop),
                         rows[i].status);
        assert_true(t.stop);
        device_cpu()->taps(b.x, NULL, NULL);
        if (rows[i].status)
            assert_int_equal(step_pages(&b, &tables, rows[i].position, N - rows[i].position, logits, NULL), WK_OK);
        assert_memory_equal(logits, whole + (N - 1) * ZOO_VOCAB, sizeof logits);
        bench_close(&b);
        zoo_close(&z);
    }
    free(whole);
}

/* A file that is cut while it is mapped fails the step that first needs the lost bytes, and nothing else. */
static void test_truncated(void **state)
{
    (void)state;
    char path[] = "/tmp/worker-test-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct zoo z, cut;
    struct gguf *file;
    struct bench b;
    const struct device_options o = options(2, WK_ISA_AVX512, false);
    assert_int_equal(gguf_guard_install(&err), WK_OK);
    zoo_open(&z, ZOO_DENSE, plugins, FUSE_ALL, NULL, 0);
    zoo_save(ZOO_DENSE, path);
    if (gguf_open(path, &file, &err)) fail_msg("%s", text);
    cut.file = file;
    cut.program = zoo_record(cut.file, ZOO_DENSE, plugins, FUSE_ALL, NULL, 0);
    bench_open(&b, &cut, &o, false);
    assert_int_equal(ftruncate(fd, 4096), 0);
    float logits[ZOO_VOCAB];
    uint32_t logits_rows[1] = { 0 };
    zoo_hold(&b.pages, &b.s[0].kv, 0, 30, 0);
    struct step_seq q = { .row = 0, .n_rows = 30, .pages = b.s[0].kv.tables };
    struct step st = { .n_rows = 30,
                       .n_seqs = 1,
                       .n_logits_rows = 1,
                       .tokens = b.s[0].tokens,
                       .seqs = &q,
                       .logits_rows = logits_rows,
                       .logits = logits };
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(device_cpu()->step(b.x, &st, &err), WK_IO);
    bench_close(&b);
    zoo_close(&cut);
    gguf_close(file);
    zoo_close(&z);
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &plugins, &err)) {
        printf("%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),    cmocka_unit_test(test_schedules),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fusions),      cmocka_unit_test(test_cut_by_position), cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_plan),         cmocka_unit_test(test_kv_bytes),        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_infinite),        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_truncated),    cmocka_unit_test(test_options),         cmocka_unit_test(test_state_pages),
        cmocka_unit_test(test_state_cancel), cmocka_unit_test(test_both_directions),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    zoo_free();
    plugin_registry_close(plugins);
    return failed;
}
