/* test_golden.c: real and tiny models end to end against golden logits: file, plugins, tape, executor, session.
 *
 * The goldens hold logits of every position, from weights dequantized to F32 and an F32 cache. With --exact arithmetic the worker must agree to a
 * relative rms of 1e-5 and choose the same ids; with 8-bit activations the distance is printed and bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

#include <cmocka.h> /* after all others: its macro `fail` is also a name of arch.h */

struct golden_case {
    const char *model, *golden;
    uint32_t context;   /* the goldens' own: LongRoPE chooses its factors by it */
    double loose;       /* bound of the relative rms with 8-bit activations */
};

static const struct golden_case cases[] = {
    { "tiny/tiny-llama.gguf", "tiny/tiny-llama.golden.json", 512, 1e-5 },
    { "tiny/tiny-llama.gguf", "tiny/tiny-llama.long.golden.json", 512, 1e-5 },
    { "tiny/tiny-qwen2.gguf", "tiny/tiny-qwen2.golden.json", 512, 1e-5 },
    { "tiny/tiny-phi3.gguf", "tiny/tiny-phi3.golden.json", 128, 1e-5 },
    { "tiny/tiny-gpt2.gguf", "tiny/tiny-gpt2.numpy64.golden.json", 128, 1e-5 },
    { "tiny/tiny-gpt-oss.gguf", "tiny/tiny-gpt-oss.golden.json", 512, 3e-2 },
    { "tiny/tiny-gpt-oss.gguf", "tiny/tiny-gpt-oss.long.golden.json", 512, 3e-2 },
    { "stories260K/stories260K-f32.gguf", "stories260K/golden/stories260K-f32.json", 128, 1e-5 },
    { "stories260K/stories260K-ffn256-f32.gguf", "stories260K/golden/stories260K-ffn256-f32.json", 128, 1e-5 },
    { "stories260K/stories260K-ffn256-F16.gguf", "stories260K/golden/stories260K-ffn256-F16.json", 128, 1e-5 },
    { "stories260K/stories260K-ffn256-BF16.gguf", "stories260K/golden/stories260K-ffn256-BF16.json", 128, 1e-5 },
    { "stories260K/stories260K-ffn256-Q8_0.gguf", "stories260K/golden/stories260K-ffn256-Q8_0.json", 128, 2e-2 },
    { "stories260K/stories260K-ffn256-Q5_0.gguf", "stories260K/golden/stories260K-ffn256-Q5_0.json", 128, 2e-2 },
    { "stories260K/stories260K-ffn256-Q4_0.gguf", "stories260K/golden/stories260K-ffn256-Q4_0.json", 128, 2e-2 },
    { "stories260K/stories260K-ffn256-Q4_K_M.gguf", "stories260K/golden/stories260K-ffn256-Q4_K_M.json", 128, 2e-2 },
    { "stories260K/stories260K-ffn256-Q5_K_M.gguf", "stories260K/golden/stories260K-ffn256-Q5_K_M.json", 128, 2e-2 },
    { "stories260K/stories260K-ffn256-Q6_K.gguf", "stories260K/golden/stories260K-ffn256-Q6_K.json", 128, 2e-2 },
};

static struct plugin_registry *registry;
static char text[1024];
static const struct wk_err err = { text, sizeof text };

struct golden {
    uint32_t n_vocab, n_prompt, n_generated, n_steps;
    uint32_t *tokens; /* [n_prompt + n_generated] */
    float *logits;    /* [n_steps][n_vocab] */
};

/* ---- golden files ------------------------------------------------------------------------------------------------- */

static void path_of(char *out, size_t cap, const char *name)
{
    const char *data = getenv("WORKER_TEST_DATA");
    (void)snprintf(out, cap, "%s/%s", data ? data : "../shared/data", name);
}

static void read_golden(const char *name, struct golden *g)
{
    char path[1024];
    json_error_t e;
    path_of(path, sizeof path, name);
    json_t *j = json_load_file(path, 0, &e), *prompt, *generated, *steps;
    if (!j) fail_msg("%s: %s", path, e.text);
    prompt = json_object_get(j, "prompt_tokens");
    generated = json_object_get(j, "generated");
    steps = json_object_get(j, "steps");
    *g = (struct golden){ .n_vocab = (uint32_t)json_integer_value(json_object_get(j, "n_vocab")), .n_prompt = (uint32_t)json_array_size(prompt),
                          .n_generated = (uint32_t)json_array_size(generated), .n_steps = (uint32_t)json_array_size(steps) };
    g->tokens = calloc((size_t)g->n_prompt + g->n_generated, sizeof *g->tokens);
    g->logits = calloc((size_t)g->n_steps * g->n_vocab, sizeof *g->logits);
    assert_non_null(g->tokens);
    assert_non_null(g->logits);
    for (uint32_t i = 0; i < g->n_prompt; i++) g->tokens[i] = (uint32_t)json_integer_value(json_array_get(prompt, i));
    for (uint32_t i = 0; i < g->n_generated; i++) g->tokens[g->n_prompt + i] = (uint32_t)json_integer_value(json_array_get(generated, i));
    for (uint32_t i = 0; i < g->n_steps; i++) {
        json_t *l = json_object_get(json_array_get(steps, i), "logits");
        assert_int_equal(json_array_size(l), g->n_vocab);
        for (uint32_t v = 0; v < g->n_vocab; v++) g->logits[(size_t)i * g->n_vocab + v] = (float)json_number_value(json_array_get(l, v));
    }
    json_decref(j);
}

static void free_golden(struct golden *g)
{
    free(g->tokens);
    free(g->logits);
}

/* ---- models ------------------------------------------------------------------------------------------------------- */

/* NULL: no plugin serves its architecture. */
static struct model *open_model(const struct golden_case *c, uint32_t isa, bool exact)
{
    char path[1024];
    struct gguf *file;
    struct model *m;
    path_of(path, sizeof path, c->model);
    if (gguf_open(path, &file, &err)) fail_msg("%s", text);
    const struct model_options o = { .device = device_cpu(), .fuse = FUSE_ALL,
                                     .dev = { .threads = 2, .isa = isa, .exact = exact, .kv_type = exact ? KV_F32 : KV_F16, .context = c->context, .max_rows = 96, .max_wanted = 96 } };
    wk_status s = model_plan(file, registry, &o, &m, &err);
    if (s == WK_UNSUPPORTED && strstr(text, "architecture")) return NULL;
    if (s || model_load(m, &err)) fail_msg("%s: %s", c->model, text);
    return m;
}

static uint32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) if (x[i] > x[best]) best = i;
    return best;
}

static float top_gap(const float *x, uint32_t n)
{
    const uint32_t best = argmax(x, n);
    float second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) if (i != best && x[i] > second) second = x[i];
    return x[best] - second;
}

struct distance { double rms, most; uint32_t wrong; }; /* wrong: other choices although the gap is twice the error */

static struct distance compare(const struct golden *g, const float *y)
{
    const size_t n = (size_t)g->n_steps * g->n_vocab;
    double sum = 0, square = 0, difference = 0;
    struct distance d = { 0, 0, 0 };
    for (size_t i = 0; i < n; i++) {
        const double e = (double)y[i] - g->logits[i];
        sum += g->logits[i];
        square += (double)g->logits[i] * g->logits[i];
        difference += e * e;
        if (!(fabs(e) <= d.most)) d.most = fabs(e);
    }
    const double mean = sum / (double)n;
    d.rms = sqrt(difference / (double)n) / sqrt(square / (double)n - mean * mean);
    for (uint32_t i = 0; i < g->n_steps; i++) {
        const float *a = g->logits + (size_t)i * g->n_vocab, *b = y + (size_t)i * g->n_vocab;
        if (top_gap(a, g->n_vocab) > 2 * d.most && argmax(a, g->n_vocab) != argmax(b, g->n_vocab)) d.wrong++;
    }
    return d;
}

/* ---- tests -------------------------------------------------------------------------------------------------------- */

static struct distance feed_all(struct model *m, const struct golden *g)
{
    struct session *s;
    float *y = calloc((size_t)g->n_steps * g->n_vocab, sizeof *y);
    assert_non_null(y);
    if (session_open(m, &s, &err) || session_feed(s, g->tokens, g->n_steps, ROW_PROMPT, g->n_steps, y, &err)) fail_msg("%s", text);
    const struct distance d = compare(g, y);
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
    if (session_open(m, &s, &err) || session_feed(s, g->tokens, g->n_prompt, ROW_PROMPT, 1, y, &err)) fail_msg("%s", text);
    for (uint32_t i = 0; i < g->n_generated; i++) {
        const uint32_t id = argmax(y, g->n_vocab);
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
        struct model *m = open_model(c, isa, exact);
        if (!m) {
            print_message("%s: skipped: %s\n", c->golden, text);
            return;
        }
        read_golden(c->golden, &g);
        const struct distance d = feed_all(m, &g);
        print_message("%-52s %-8s %-7s rel. rms %.1e, largest difference %.1e\n", c->golden, names[isa], exact ? "exact" : "default", d.rms, d.most);
        /* The default cache is F16, so even F32 models are a rounding of keys and values away. */
        const double bound = exact ? 1e-5 : c->loose < 3e-3 ? 3e-3 : c->loose;
        if (!(d.rms <= bound)) fail_msg("relative rms %g is above %g", d.rms, bound);
        assert_int_equal(d.wrong, 0);
        if (exact) check_greedy(m, &g);
        model_close(m);
        free_golden(&g);
    }
}

static void test_isa(uint32_t isa)
{
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i], isa);
}
static void test_portable(void **state) { (void)state; test_isa(WK_ISA_PORTABLE); }
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
    path_of(path, sizeof path, cases[0].golden);
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_avx512), cmocka_unit_test(test_avx2), cmocka_unit_test(test_portable) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    plugin_registry_close(registry);
    return failed;
}
