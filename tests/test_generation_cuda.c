/* test_generation_cuda.c: generation on CUDA end to end, prompt to ids: a sequence's ids depend on its own job alone,
 * every time, and greedy ones are the goldens'. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/module.h"
#include "golden.h"
#include "model/generator.h"
#include "model/model.h"

#include <cmocka.h>

enum { MOST = 40, BATCH = 64 };

static struct plugin_registry *registry;
static char text[1024];
static const struct wk_err err = { text, sizeof text };

static void ok(wk_status status)
{
    if (status) fail_msg("%s", text);
}

static wk_status find_cuda(void *user, uint32_t type, const struct wk_quant_cuda **out, const struct wk_err *e)
{
    return plugin_find_cuda(user, type, out, e);
}

static struct model *open_path(const char *path, uint32_t context, uint32_t sequences, uint32_t rows)
{
    struct gguf *file;
    struct model *m;
    ok(gguf_open(path, &file, &err));
    const struct model_options o = { .device = &cuda_device_ops,
                                     .fuse = FUSE_ALL,
                                     .dev = { .context = context,
                                              .max_sequences = sequences,
                                              .max_rows = rows,
                                              .max_logits_rows = rows,
                                              .find_cuda = find_cuda,
                                              .find_user = registry } };
    ok(model_plan(file, registry, &o, &m, &err));
    ok(model_load(m, &err));
    return m;
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

/* Job i: prompts from 1 to 150 tokens, both classes; greedy, and every kind of sampling. */
struct made {
    struct sampler_params params;
    uint32_t n, tokens[160];
};

static struct made make_job(const struct model *m, uint32_t i)
{
    static const uint32_t lengths[] = { 9, 1, 64, 65, 31, 150, 2, 100 };
    struct made j = { .n = lengths[i % 8] };
    j.params = (struct sampler_params){ .temperature = i % 3 ? 0.9f : 0.0f,
                                        .top_k = i % 4 == 1 ? 30 : 0,
                                        .top_p = i % 5 == 2 ? 0.9f : 1.0f,
                                        .min_p = i % 7 == 1 ? 0.05f : 0.0f,
                                        .repetition_penalty = i % 6 == 4 ? 1.2f : 1.0f,
                                        .seed = i * 1000003 };
    for (uint32_t k = 0; k < j.n; k++) j.tokens[k] = (i * 31 + k * 7 + 3) % m->program->n_vocab;
    return j;
}

static void start(struct generator *g, uint32_t at, uint32_t i, uint32_t most, const struct model *m)
{
    const struct made j = make_job(m, i);
    ok(generator_start(
        g, at, &(struct generator_job){ .params = &j.params, .prompt = j.tokens, .n_prompt = j.n, .most = most },
        &err));
}

/* Job i by itself. */
static void alone(struct generator *g, uint32_t i, const struct model *m, uint32_t ids[MOST])
{
    start(g, 0, i, MOST, m);
    for (uint32_t k = 0; k < MOST; k++) {
        ok(generator_next(g, &ids[k], &err));
        assert_in_range(ids[k], 0, m->program->n_vocab - 1);
    }
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static const char *const models[] = { "stories260K/stories260K-ffn256-Q4_K_M.gguf",
                                      "stories260K/stories260K-ffn256-Q8_0.gguf", "tiny/tiny-qwen2.gguf" };

static void test_hundred_times(void **state)
{
    (void)state;
    struct model *m = open_path(HAIKU_MODEL, 512, 1, 512);
    struct generator *g;
    uint32_t first[4][MOST], again[MOST];
    ok(generator_open(m, 1, &g, &err));
    for (uint32_t round = 0; round <= 25; round++)
        for (uint32_t i = 0; i < 4; i++) {
            alone(g, i + 2, m, round ? again : first[i]);
            if (round) assert_memory_equal(again, first[i], sizeof again);
        }
    generator_close(g);
    model_close(m);
}

/* Alone and among others, of other lengths, in another slot; with steps that cut the long prompts and with steps that
 * do not. */
static void test_among_others(void **state)
{
    (void)state;
    static const uint32_t batches[] = { 2, 3, 8, 9, 33, BATCH };
    for (uint32_t k = 0; k < sizeof models / sizeof *models; k++) {
        char path[1024];
        golden_path(path, sizeof path, models[k]);
        struct model *single = open_path(path, 256, 1, 256), *many = open_path(path, 256, BATCH, 96);
        static uint32_t want[BATCH][MOST];
        uint32_t ids[BATCH];
        struct generator *g;
        ok(generator_open(single, 1, &g, &err));
        for (uint32_t i = 0; i < BATCH; i++) alone(g, i, single, want[i]);
        generator_close(g);
        for (uint32_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            const uint32_t n = batches[b];
            ok(generator_open(many, n, &g, &err));
            for (uint32_t i = 0; i < n; i++) start(g, n - 1 - i, i, MOST - i % 5, many); /* some end earlier */
            for (uint32_t step = 0; step < MOST; step++) {
                ok(generator_next(g, ids, &err));
                for (uint32_t i = 0; i < n; i++) {
                    const uint32_t expected = step < MOST - i % 5 ? want[i][step] : GENERATOR_NONE;
                    if (ids[n - 1 - i] != expected)
                        fail_msg("%s: job %u among %u, id %u: %u, alone %u", models[k], i, n, step, ids[n - 1 - i],
                                 expected);
                }
            }
            generator_close(g);
        }
        model_close(single);
        model_close(many);
    }
}

/* Largest difference of a logit from the golden's, token by token. */
static float distance(struct model *m, const struct golden *g)
{
    struct session *s;
    float *y = calloc((size_t)g->n_steps * g->n_vocab, sizeof *y);
    assert_non_null(y);
    ok(session_open(m, &s, &err));
    for (uint32_t i = 0; i < g->n_steps; i++)
        ok(session_feed(s, &g->tokens[i], 1, ROW_GENERATED, 1, y + (size_t)i * g->n_vocab, &err));
    const double most = golden_compare(g, y).most;
    session_close(s);
    free(y);
    return (float)most;
}

/* Greedy ids are the golden's as long as its two candidates are further apart than f16 activations move them. */
static void test_golden_ids(void **state)
{
    (void)state;
    static const struct {
        const char *model, *golden;
        uint32_t context;
    } cases[] = {
        { "tiny/tiny-llama.gguf", "tiny/tiny-llama.golden.json", 512 },
        { "tiny/tiny-qwen2.gguf", "tiny/tiny-qwen2.golden.json", 512 },
        { "tiny/tiny-phi3.gguf", "tiny/tiny-phi3.golden.json", 128 },
        { "stories260K/stories260K-f32.gguf", "stories260K/golden/stories260K-f32.json", 128 },
        { "stories260K/stories260K-ffn256-Q4_K_M.gguf", "stories260K/golden/stories260K-ffn256-Q4_K_M.json", 128 },
        { "stories260K/stories260K-ffn256-Q8_0.gguf", "stories260K/golden/stories260K-ffn256-Q8_0.json", 128 },
        { "stories260K/stories260K-ffn256-F16.gguf", "stories260K/golden/stories260K-ffn256-F16.json", 128 },
    };
    const struct sampler_params greedy = { .repetition_penalty = 1, .top_p = 1 };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[1024];
        struct golden golden;
        struct generator *g;
        golden_path(path, sizeof path, cases[i].model);
        golden_read(cases[i].golden, &golden);
        struct model *m = open_path(path, cases[i].context, 1, 96);
        const float most = distance(m, &golden);
        ok(generator_open(m, 1, &g, &err));
        ok(generator_start(
            g, 0,
            &(struct generator_job){
                .params = &greedy, .prompt = golden.tokens, .n_prompt = golden.n_prompt, .most = golden.n_generated },
            &err));
        for (uint32_t k = 0, id; k < golden.n_generated; k++) {
            ok(generator_next(g, &id, &err));
            assert_in_range(id, 0, golden.n_vocab - 1);
            const uint32_t want = golden.tokens[golden.n_prompt + k];
            if (id == want) continue;
            const float *l = golden.logits + (size_t)(golden.n_prompt - 1 + k) * golden.n_vocab;
            if (l[want] - l[id] > 2 * most)
                fail_msg("%s: id %u: %u, the golden has %u, whose logit is %g above", cases[i].golden, k, id, want,
                         (double)(l[want] - l[id]));
            print_message("%s: ids differ from %u on, where the golden's logits are %g apart\n", cases[i].golden, k,
                          (double)(l[want] - l[id]));
            break;
        }
        generator_close(g);
        model_close(m);
        golden_free(&golden);
    }
}

int main(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1) {
        (void)fprintf(stderr, "no GPU here: skipped\n");
        return 77;
    }
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &registry, &err)) {
        printf("%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_hundred_times), cmocka_unit_test(test_among_others),
                                        cmocka_unit_test(test_golden_ids) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    plugin_registry_close(registry);
    return failed;
}
