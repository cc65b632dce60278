/* test_golden.c LIST: real and tiny models end to end against golden logits: file, plugins, tape, executor, session.
 * LIST: see golden.h; tests/reference/goldens.py makes the models and goldens that every clone has, golden_data.txt
 * names those of the test data.
 *
 * The goldens hold logits of every position, from weights dequantized to F32 and an F32 cache. With --exact arithmetic
 * the worker must agree to a relative rms of 1e-5 and choose the same ids; with 8-bit activations, which are the
 * default, to 2e-2. No single logit may be farther off than ten times that, in standard deviations.
 *
 * Mixtures of experts have a bound of their own for 8 bits: where two experts are nearly as good, rounding chooses the
 * other one now and then, after which a position is somewhere else. So one position in eight may be; the others keep to
 * the bounds of a model with random weights, which magnify roundings (4e-2), or of a trained one (2e-2: a normalized
 * mean square error of 4e-4). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "model/model.h"

#include <cmocka.h> /* after all others: its macro `fail` is also a name of arch.h */

static const struct golden_case *cases;
static uint32_t n_cases;
static struct plugin_registry *registry;
static char text[1024];
static const struct wk_err err = { text, sizeof text };

/* ---- models -------------------------------------------------------------------------------------------- */

static struct model *open_file(struct gguf *file, const struct golden_case *c, uint32_t isa, bool exact)
{
    struct model *m;
    struct adapter_source adapters[GOLDEN_ADAPTERS];
    golden_sources(c, adapters);
    const struct model_options o = { .device = device_cpu(),
                                     .fuse = FUSE_ALL,
                                     .adapters = adapters,
                                     .n_adapters = c->n_adapters,
                                     .dev = { .threads = 2,
                                              .isa = isa,
                                              .exact = exact,
                                              .kv_type = exact ? KV_F32 : KV_F16,
                                              .context = c->context,
                                              .max_rows = 96,
                                              .max_logits_rows = 96 } };
    if (model_plan(file, registry, &o, &m, &err) || model_load(m, &err)) fail_msg("%s", text);
    return m;
}

/* `built`: memory behind the model, to be freed after it. */
static struct model *open_model(const struct golden_case *c, uint32_t isa, bool exact, struct gguf_build **built)
{
    return open_file(golden_open(c->model, c->truncate, built), c, isa, exact);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

/* Logits of all positions, or the prompt's one row; the caller frees. */
static float *feed_all(struct model *m, const struct golden *g)
{
    struct session *s;
    float *y = calloc((size_t)g->n_steps * g->n_vocab, sizeof *y);
    assert_non_null(y);
    if (session_open(m, &s, &err) ||
        (g->embedding ? session_feed_pair(s, g->tokens, g->n_prompt, g->second, &err)
                      : session_feed(s, g->tokens, g->n_steps, ROW_PROMPT, g->n_steps, y, &err)))
        fail_msg("%s", text);
    if (g->embedding) {
        assert_int_equal(m->program->embedding_width, g->n_vocab);
        memcpy(y, session_embedding(s), g->n_vocab * sizeof *y);
    }
    session_close(s);
    return y;
}

/* The golden's own continuation, token by token. */
static void check_greedy(struct model *m, const struct golden *g)
{
    struct session *s;
    float *y = calloc(g->n_vocab, sizeof *y);
    assert_non_null(y);
    if (session_open(m, &s, &err) || session_feed(s, g->tokens, g->n_prompt, ROW_PROMPT, 1, y, &err))
        fail_msg("%s", text);
    for (uint32_t i = 0; i < g->n_generated; i++) {
        const uint32_t id = golden_argmax(y, g->n_vocab);
        assert_int_equal(id, g->tokens[g->n_prompt + i]);
        if (i + 1 < g->n_generated && session_feed(s, &id, 1, ROW_GENERATED, 1, y, &err)) fail_msg("%s", text);
    }
    session_close(s);
    free(y);
}

enum { CHOICES = 8, FARTHEST = 10 };

/* rms: bound of the positions that count, all but `left_out`. */
static void check_distance(const struct golden *g, const float *y, double rms, uint32_t left_out, const char *what)
{
    const struct golden_distance d = golden_compare_but(g, y, left_out);
    print_message("%s, but %u of %u: rel. rms %.1e, farthest logit %.1e\n", what, left_out, g->n_steps, d.rms,
                  d.element);
    if (!(d.rms <= rms)) fail_msg("relative rms %g is above %g", d.rms, rms);
    if (!(d.element <= FARTHEST * rms)) fail_msg("a logit is off by %g, more than %g", d.element, FARTHEST * rms);
    assert_int_equal(d.wrong, 0);
}

static void check_case(const struct golden_case *c, uint32_t isa)
{
    static const char *const names[] = { "portable", "avx2", "avx512" };
    struct golden g;
    for (uint32_t exact = 0; exact < 2; exact++) {
        struct gguf_build *built;
        struct model *m = open_model(c, isa, exact, &built);
        golden_read(c->golden, &g);
        char what[256];
        (void)snprintf(what, sizeof what, "%s %s %s %s", c->model, c->golden, names[isa], exact ? "exact" : "default");
        float *y = feed_all(m, &g);
        /* The default cache is F16, so even F32 models are a rounding of keys and values away. */
        const double bound = exact ? 1e-5 : c->loose < 3e-3 ? 3e-3 : c->loose;
        const bool experts = strstr(c->model, "gpt-oss") && !exact;
        if (experts && !(golden_compare(&g, y).rms <= bound)) fail_msg("%s: relative rms is above %g", what, bound);
        check_distance(&g, y, experts && bound > 4e-2 ? 4e-2 : bound, experts ? g.n_steps / CHOICES : 0, what);
        free(y);
        if (exact && !g.embedding) check_greedy(m, &g);
        model_close(m);
        gguf_build_free(built);
        golden_free(&g);
    }
}

static void test_isa(uint32_t isa)
{
    for (uint32_t i = 0; i < n_cases; i++) check_case(&cases[i], isa);
}
static void test_portable(void **state)
{
    (void)state;
    test_isa(WK_ISA_PORTABLE);
}
static void test_avx2(void **state)
{
    (void)state;
    test_isa(WK_ISA_AVX2);
}
static void test_avx512(void **state)
{
    (void)state;
    test_isa(WK_ISA_AVX512);
}

/* The models inside the program, which are trained: what they generate themselves with exact arithmetic, in 8 bits. */
static struct model *open_embedded(const char *path, bool exact)
{
    struct gguf *file;
    if (gguf_open(path, &file, &err)) fail_msg("%s", text);
    return open_file(file, &(struct golden_case){ .context = 512 }, plugin_detect_isa(), exact);
}

static void check_embedded(const char *path, uint32_t left_out)
{
    enum { POSITIONS = 96, BEGIN = 65 /* any */ };
    struct model *m = open_embedded(path, true);
    struct golden g = { .n_vocab = m->program->n_vocab, .n_prompt = 1, .n_steps = POSITIONS };
    struct session *s;
    g.tokens = calloc(POSITIONS + 1, sizeof *g.tokens);
    g.logits = calloc((size_t)POSITIONS * g.n_vocab, sizeof *g.logits);
    assert_true(g.tokens && g.logits);
    g.tokens[0] = BEGIN;
    if (session_open(m, &s, &err)) fail_msg("%s", text);
    for (uint32_t at = 0; at < POSITIONS; at++) {
        float *row = g.logits + (size_t)at * g.n_vocab;
        if (session_feed(s, g.tokens + at, 1, ROW_GENERATED, 1, row, &err)) fail_msg("%s", text);
        g.tokens[at + 1] = golden_argmax(row, g.n_vocab);
    }
    session_close(s);
    model_close(m);
    m = open_embedded(path, false);
    float *y = feed_all(m, &g);
    check_distance(&g, y, 2e-2, left_out ? POSITIONS / left_out : 0, path);
    free(y);
    model_close(m);
    golden_free(&g);
}

static void test_embedded(void **state)
{
    (void)state;
    check_embedded(HAIKU_MODELS "/haiku/haiku-q4_k_m.gguf", 0);
    check_embedded(HAIKU_MODELS "/haiku-moe/haiku-moe-mxfp4.gguf", CHOICES);
}

int main(int argc, char **argv)
{
    const struct plugin_options o = { .dirs = NULL };
    struct golden_case *list = argc == 2 ? golden_cases(argv[1], &n_cases) : NULL;
    cases = list;
    if (!list || plugin_registry_open(&o, &registry, &err)) {
        (void)fprintf(stderr, "usage: test_golden LIST\n%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_portable), cmocka_unit_test(test_embedded) },
                            avx2[] = { cmocka_unit_test(test_avx2) }, avx512[] = { cmocka_unit_test(test_avx512) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (plugin_detect_isa() >= WK_ISA_AVX2)
        failed += cmocka_run_group_tests(avx2, NULL, NULL); /* what this machine has */
    if (plugin_detect_isa() >= WK_ISA_AVX512) failed += cmocka_run_group_tests(avx512, NULL, NULL);
    plugin_registry_close(registry);
    free(list);
    return failed;
}
