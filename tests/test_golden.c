/* test_golden.c: real and tiny models end to end against golden logits: file, plugins, tape, executor, session.
 *
 * The goldens hold logits of every position, from weights dequantized to F32 and an F32 cache. With --exact arithmetic
 * the worker must agree to a relative rms of 1e-5 and choose the same ids; with 8-bit activations the distance is
 * printed and bounded. */
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

struct golden_case {
    const char *model, *golden;
    uint32_t context; /* the goldens' own: LongRoPE chooses its factors by it */
    double loose;     /* bound of the relative rms with 8-bit activations */
    bool truncate;    /* the golden rounds YaRN's bounds, as llama.cpp does */
};

/* tiny-gpt-oss has random weights: a rounding now and then chooses another expert, after which a position is somewhere
 * else. The F16 cache alone does so once in the 304 positions of the long golden. */
static const struct golden_case cases[] = {
    { "tiny/tiny-llama.gguf", "tiny/tiny-llama.golden.json", 512, 1e-5, false },
    { "tiny/tiny-llama.gguf", "tiny/tiny-llama.long.golden.json", 512, 1e-5, false },
    { "tiny/tiny-qwen2.gguf", "tiny/tiny-qwen2.golden.json", 512, 1e-5, false },
    { "tiny/tiny-phi3.gguf", "tiny/tiny-phi3.golden.json", 128, 1e-5, false },
    { "tiny/tiny-gpt2.gguf", "tiny/tiny-gpt2.numpy64.golden.json", 128, 1e-5, false },
    { "tiny/tiny-gpt-oss.gguf", "tiny/tiny-gpt-oss.golden.json", 512, 8e-2, true },
    { "tiny/tiny-gpt-oss.gguf", "tiny/tiny-gpt-oss.long.golden.json", 512, 8e-2, true },
    { "tiny/tiny-gpt-oss.gguf", "tiny/tiny-gpt-oss.long.openai-yarn.json", 512, 8e-2, false },
    { "tiny/tiny-gpt-oss-f32.gguf", "tiny/tiny-gpt-oss.golden.json", 512, 1e-5, true },
    { "tiny/tiny-gpt-oss-f32.gguf", "tiny/tiny-gpt-oss.long.golden.json", 512, 2e-2, true },
    { "tiny/tiny-gpt-oss-f32.gguf", "tiny/tiny-gpt-oss.long.openai-yarn.json", 512, 1e-5, false },
    { "stories260K/stories260K-f32.gguf", "stories260K/golden/stories260K-f32.json", 128, 1e-5, false },
    { "stories260K/stories260K-ffn256-f32.gguf", "stories260K/golden/stories260K-ffn256-f32.json", 128, 1e-5, false },
    { "stories260K/stories260K-ffn256-F16.gguf", "stories260K/golden/stories260K-ffn256-F16.json", 128, 1e-5, false },
    { "stories260K/stories260K-ffn256-BF16.gguf", "stories260K/golden/stories260K-ffn256-BF16.json", 128, 1e-5, false },
    { "stories260K/stories260K-ffn256-Q8_0.gguf", "stories260K/golden/stories260K-ffn256-Q8_0.json", 128, 2e-2, false },
    { "stories260K/stories260K-ffn256-Q5_0.gguf", "stories260K/golden/stories260K-ffn256-Q5_0.json", 128, 2e-2, false },
    { "stories260K/stories260K-ffn256-Q4_0.gguf", "stories260K/golden/stories260K-ffn256-Q4_0.json", 128, 2e-2, false },
    { "stories260K/stories260K-ffn256-Q4_K_M.gguf", "stories260K/golden/stories260K-ffn256-Q4_K_M.json", 128, 2e-2,
      false },
    { "stories260K/stories260K-ffn256-Q5_K_M.gguf", "stories260K/golden/stories260K-ffn256-Q5_K_M.json", 128, 2e-2,
      false },
    { "stories260K/stories260K-ffn256-Q6_K.gguf", "stories260K/golden/stories260K-ffn256-Q6_K.json", 128, 2e-2, false },
};

static struct plugin_registry *registry;
static char text[1024];
static const struct wk_err err = { text, sizeof text };

/* ---- models -------------------------------------------------------------------------------------------- */

/* NULL: no plugin serves its architecture. `built`: memory behind the model, to be freed after it. */
static struct model *open_model(const struct golden_case *c, uint32_t isa, bool exact, struct gguf_build **built)
{
    struct model *m;
    struct gguf *file = golden_open(c->model, c->truncate, built);
    const struct model_options o = { .device = device_cpu(),
                                     .fuse = FUSE_ALL,
                                     .dev = { .threads = 2,
                                              .isa = isa,
                                              .exact = exact,
                                              .kv_type = exact ? KV_F32 : KV_F16,
                                              .context = c->context,
                                              .max_rows = 96,
                                              .max_wanted = 96 } };
    wk_status s = model_plan(file, registry, &o, &m, &err);
    if (s == WK_UNSUPPORTED && strstr(text, "architecture")) return NULL;
    if (s || model_load(m, &err)) fail_msg("%s: %s", c->model, text);
    return m;
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static struct golden_distance feed_all(struct model *m, const struct golden *g)
{
    struct session *s;
    float *y = calloc((size_t)g->n_steps * g->n_vocab, sizeof *y);
    assert_non_null(y);
    if (session_open(m, &s, &err) || session_feed(s, g->tokens, g->n_steps, ROW_PROMPT, g->n_steps, y, &err))
        fail_msg("%s", text);
    const struct golden_distance d = golden_compare(g, y);
    session_close(s);
    free(y);
    return d;
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

static void check_case(const struct golden_case *c, uint32_t isa)
{
    static const char *const names[] = { "portable", "avx2", "avx512" };
    struct golden g;
    for (uint32_t exact = 0; exact < 2; exact++) {
        struct gguf_build *built;
        struct model *m = open_model(c, isa, exact, &built);
        if (!m) {
            print_message("%s: skipped: %s\n", c->model, text);
            gguf_build_free(built);
            return;
        }
        golden_read(c->golden, &g);
        const struct golden_distance d = feed_all(m, &g);
        print_message("%-42s %-52s %-8s %-7s rel. rms %.1e, largest difference %.1e\n", c->model, c->golden, names[isa],
                      exact ? "exact" : "default", d.rms, d.most);
        /* The default cache is F16, so even F32 models are a rounding of keys and values away. */
        const double bound = exact ? 1e-5 : c->loose < 3e-3 ? 3e-3 : c->loose;
        if (!(d.rms <= bound)) fail_msg("relative rms %g is above %g", d.rms, bound);
        assert_int_equal(d.wrong, 0);
        if (exact) check_greedy(m, &g);
        model_close(m);
        gguf_build_free(built);
        golden_free(&g);
    }
}

static void test_isa(uint32_t isa)
{
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i], isa);
}
static void test_portable(void **state)
{
    (void)state;
    test_isa(WK_ISA_PORTABLE);
}
static void test_avx2(void **state)
{
    (void)state;
    if (plugin_detect_isa() < WK_ISA_AVX2) skip();
    test_isa(WK_ISA_AVX2);
}
static void test_avx512(void **state)
{
    (void)state;
    if (plugin_detect_isa() < WK_ISA_AVX512) skip();
    test_isa(WK_ISA_AVX512);
}

int main(void)
{
    char path[1024];
    golden_path(path, sizeof path, cases[0].golden);
    FILE *probe = fopen(path, "rb");
    if (!probe) {
        printf("no golden data at %s: set WORKER_TEST_DATA\n", path);
        return 77;
    }
    (void)fclose(probe);
    const struct plugin_options o = { .isa = plugin_detect_isa() };
    if (plugin_registry_open(&o, &registry, &err)) {
        printf("%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_avx512), cmocka_unit_test(test_avx2),
                                        cmocka_unit_test(test_portable) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    plugin_registry_close(registry);
    return failed;
}
