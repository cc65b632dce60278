/* test_executor_cuda.c: the numbers of the CUDA executor, on small models that use every operation: with kernels made
 * for the test, which are slow and plain, then with the real plugins'. Argument "plain" or "plugins": only these; a
 * second argument: only the test of this name.
 *
 * Two kinds of proof, as for the CPU. A float64 evaluation of the tape, value by value, within what f16 activations
 * allow. And bits: a row's logits are the same however a prompt is cut, whatever shares the step, in any order of
 * pages, as a graph or launched one by one, with any fusion off. */
#include "device/cuda/test_executor.h"
#include "device/cuda/test_module.h"

/* ---- against float64 ----------------------------------------------------------------------------------- */

/* Rows whose error is above the bound: a nearly equal choice between experts may fall otherwise, so some are allowed
 * there. */
struct tapped {
    const struct tape_program *p;
    const struct reference *r;
    uint32_t seen, scores, allowed;
    double bound;
};

static void check_close(const char *name, const float *a, const double *b, uint32_t rows, uint32_t width, double bound,
                        uint32_t allowed)
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
    if (wrong > allowed)
        fail_msg("%s: %u of %u rows are off, the worst by a relative rms of %g; expected at most %g", name, wrong, rows,
                 sqrt(worst / (square / rows)), bound);
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
    static const char *const all[] = { "*", "blk.0.attention.scores", "blk.1.attention.scores",
                                       "blk.2.attention.scores", "blk.3.attention.scores" };
    const uint32_t n_all = kind == ZOO_CHUNKS || kind == ZOO_LATENT ? 5
                           : kind == ZOO_BOTH                       ? 4
                           : kind == ZOO_STATES                     ? 1
                                                                    : 2;
    const double bound = 1e-2;
    struct bench b;
    struct reference r;
    bench_open(&b, kind, FUSE_ALL, true, taps ? all : NULL, taps ? n_all : 0);
    reference_run(&r, b.z.program, b.s[0].tokens, N, zoo_second(0));
    struct tapped seen = { b.z.program, &r, 0, 0, kind == ZOO_EXPERTS || kind == ZOO_ROUTES ? N / 10 : 0, bound };
    if (taps) cuda->taps(b.x, on_tap, &seen);
    add(&b, &t, 0, N, role, 0);
    run(&b, &t);
    const struct tape_op *last = &b.z.program->ops[b.z.program->n_ops - 1];
    check_close("logits", b.s[0].logits, r.value[last->in[0]], N, V, bound, seen.allowed);
    if (r.embedding) check_close("embedding", b.s[0].pooled, r.embedding, 1, b.z.program->embedding_width, bound, 0);
    if (taps) {
        assert_true(seen.seen >= b.z.program->n_values / 2);
        assert_int_equal(seen.scores, n_all - 1);
    }
    assert_false(b.s[0].failed);
    reference_free(&r);
    bench_close(&b);
}

static void test_reference(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++)
        for (uint32_t i = 0; i < 4; i++) check_reference(kinds[k], i & 1, i & 2 ? ROW_GENERATED : ROW_PROMPT);
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

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
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
        float *whole = run_bits(chat_kinds[k], FUSE_ALL, false, WHOLE, N, false);
        assert_true(whole[(size_t)(N + 7) * V] != 0.0f);
        for (uint32_t i = 0; i < 3; i++) {
            step_rows = i ? FEWER : ROWS;
            float *other = run_bits(chat_kinds[k], FUSE_ALL, i > 0,
                                    i == 1   ? CHUNKS
                                    : i == 2 ? RAGGED
                                             : WHOLE,
                                    N, i == 0);
            same_bits(whole, other, (size_t)(N + 8) * V,
                      i == 0   ? "launched one by one"
                      : i == 1 ? "chunks in shuffled pages"
                               : "with other sequences",
                      k);
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
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
        float *all = run_bits(chat_kinds[k], FUSE_ALL, false, CHUNKS, N, false);
        const bool maps = chat_kinds[k] == ZOO_MAPS || chat_kinds[k] == ZOO_LEARNED; /* one model, but for its custom */
        for (uint32_t bit = maps ? FUSE_ALL + 1 : 1; bit < 2 * FUSE_ALL; bit <<= 1) { /* and once all of them */
            const uint32_t fuse = bit <= FUSE_ALL ? (uint32_t)FUSE_ALL & ~bit : 0;
            float *other = run_bits(chat_kinds[k], fuse, false, CHUNKS, N, false);
            same_bits(all, other, (size_t)(N + 8) * V, zoo_name(chat_kinds[k]), fuse);
            free(other);
        }
        free(all);
    }
}

/* Rows of which acts pass between launches by runs and as panels: first tokens of 32 and of 8 sequences, together and
 * alone. */
static void test_passed(void **state)
{
    (void)state;
    enum { N = 32 };
    for (uint32_t k = 0; k < STATELESS; k++) {
        struct bench b;
        static float alone[N][V];
        bench_open(&b, chat_kinds[k], FUSE_ALL, false, NULL, 0);
        for (uint32_t s = 0; s < N; s++) {
            add(&b, &t, s, 1, ROW_GENERATED, 0);
            run(&b, &t);
            memcpy(alone[s], b.s[s].logits, sizeof alone[s]);
            b.s[s].position = 0;
        }
        for (uint32_t n = N; n >= 8; n /= 4) {
            for (uint32_t s = 0; s < n; s++) add(&b, &t, s, 1, ROW_GENERATED, 0), b.s[s].position = 0;
            run(&b, &t);
            for (uint32_t s = 0; s < n; s++) same_bits(alone[s], b.s[s].logits, V, "passed between launches", s);
            for (uint32_t s = 0; s < n; s++) b.s[s].position = 0;
        }
        bench_close(&b);
    }
}

/* A prompt and generated rows again and again, the bits of the first time: every kernel that a step has. 100 times, or
 * KERNEL_REPEATS where a kernel takes long (the emulator). */
static void test_repeats(void **state)
{
    (void)state;
    enum { N = 60, STEPS = 3 };
    const char *asked = getenv("KERNEL_REPEATS");
    const int times = asked && atoi(asked) > 1 ? atoi(asked) : 100;
    for (uint32_t k = 0; k < STATELESS; k++) {
        struct bench b;
        float *first = NULL;
        bench_open(&b, chat_kinds[k], FUSE_ALL, true, NULL, 0);
        for (int i = 0; i < times; i++) {
            for (uint32_t s = 0; s < 2; s++) b.s[s].position = 0;
            add(&b, &t, 0, N, ROW_PROMPT, 0);
            add(&b, &t, 1, N / 2, ROW_PROMPT, 0);
            run(&b, &t);
            for (uint32_t step = 0; step < STEPS; step++) {
                add(&b, &t, 0, 1, ROW_GENERATED, 0);
                add(&b, &t, 1, 1, ROW_GENERATED, 0);
                run(&b, &t);
            }
            if (first) {
                same_bits(first, b.s[0].logits, (size_t)(N + STEPS) * V, "time", (uint32_t)i);
                memset(b.s[0].logits, 0xff, (size_t)(N + STEPS) * V * sizeof *first);
                continue;
            }
            first = b.s[0].logits;
            b.s[0].logits = calloc((size_t)ZOO_CONTEXT * V, sizeof *first);
            assert_non_null(b.s[0].logits);
        }
        free(first);
        bench_close(&b);
    }
}

/* Decoding n sequences of unequal lengths together: each gets the bits that it gets alone. */
static void test_batches(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    static const uint32_t sizes[] = { 1, 2, 3, 7, 8, 16, 33, 64 };
    for (uint32_t k = 0; k < STATELESS; k++) {
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
                    same_bits(alone[SEQUENCES - 1 - s][i],
                              b.s[SEQUENCES - 1 - s].logits + (size_t)(length[SEQUENCES - 1 - s] + i) * V, V,
                              "together", sizes[n]);
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
    for (uint32_t k = 0; k < STATELESS; k++) {
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
                for (uint32_t s = 0; s < sizes[n]; s += APART)
                    same_bits(alone[s][i], b.s[s].logits + (size_t)(length[s] + i) * V, V, "together", sizes[n]);
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
    for (uint32_t k = 0; k < STATELESS; k++) {
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
    for (uint32_t k = 0; k < CHAT_KINDS; k++) {
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
        same_bits(whole + (size_t)57 * V, b.s[0].logits + (size_t)57 * V, (size_t)3 * V, "logits rows", k);
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
    reference_run(&r, b.z.program, b.s[0].tokens, LONG + 5, zoo_second(0));
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

static int tests(int argc, char **argv)
{
    /* What depends on how products are joined, and the rest. */
    const struct CMUnitTest products[] = { cmocka_unit_test(test_reference), cmocka_unit_test(test_schedules),
                                           cmocka_unit_test(test_fusions), cmocka_unit_test(test_passed) };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_reference),      cmocka_unit_test(test_schedules), cmocka_unit_test(test_fusions),
        cmocka_unit_test(test_repeats),        cmocka_unit_test(test_batches),   cmocka_unit_test(test_large_batches),
        cmocka_unit_test(test_many_generated), cmocka_unit_test(test_wanted),    cmocka_unit_test(test_long)
    };
    static const struct wk_type_cpu *cpu[TEST_TYPES];
    for (uint32_t i = 0; i < TEST_TYPES; i++) cpu[i] = plugin_find_type(plugins, i, NULL);
    if (argc > 2) cmocka_set_test_filter(argv[2]);
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
    return failed;
}

int main(int argc, char **argv) { return test_main(tests, argc, argv); }
