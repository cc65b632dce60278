/* quant_test.c: what every quantization plugin of this project promises besides the rules of the SDK, which
 * `worker plugin check` looks at: values of other programs, and how good its encoders are. One program per plugin. */
#include <worker/plugin.h> /* before cmocka.h, which makes `fail` a macro */

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/known.h"
#include "plugin/format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test_data.h" /* which wants it before */

/* The plugin named by QUANT_TEST_PLUGIN in WORKER_PLUGIN_PATH. */
static const struct wk_quant *quant_test_plugin(void)
{
    static const struct wk_quant *quant;
    if (quant) return quant;
    char path[4096];
    const char *folder = getenv("WORKER_PLUGIN_PATH");
    if (!folder) fail_msg("WORKER_PLUGIN_PATH is not set");
    (void)snprintf(path, sizeof path, "%s/%s", folder, QUANT_TEST_PLUGIN);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_msg("%s", dlerror());
    const struct wk_plugin *plugin = dlsym(handle, WK_PLUGIN_SYMBOL);
    if (!plugin) fail_msg("%s exports no " WK_PLUGIN_SYMBOL, path);
    assert_int_equal(plugin->struct_size, sizeof *plugin);
    assert_int_equal(plugin->kind, WK_KIND_QUANT);
    assert_non_null(plugin->quant);
    quant = plugin->quant;
    return quant;
}

/* xorshift64*; any state but 0. */
struct noise {
    uint64_t state;
};

static uint64_t noise_bits(struct noise *s)
{
    s->state ^= s->state >> 12;
    s->state ^= s->state << 25;
    s->state ^= s->state >> 27;
    return s->state * 0x2545f4914f6cdd1du;
}

static float noise_uniform(struct noise *s) /* [0, 1) */ { return (float)(noise_bits(s) >> 40) * 0x1p-24f; }

static float noise_gauss(struct noise *s) /* mean 0, sigma 1 */
{
    const float radius = sqrtf(-2 * logf(1 - noise_uniform(s)));
    return radius * cosf(6.2831853f * noise_uniform(s));
}

/* Memory of exactly `bytes` bytes aligned to 64; never NULL. Freed with free. */
static void *aligned_bytes(uint64_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 1)) fail_msg("out of memory");
    return p;
}

/* All of a file; the caller frees. */
static uint8_t *read_all(const char *path, uint64_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s: cannot be read", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    assert_true(size > 0);
    rewind(file);
    uint8_t *data = aligned_bytes((uint64_t)size);
    assert_int_equal(fread(data, 1, (size_t)size, file), (size_t)size);
    (void)fclose(file);
    *bytes = (uint64_t)size;
    return data;
}

static uint64_t row_bytes(const struct wk_type_cpu *type, uint32_t k)
{
    return (uint64_t)(k / type->block) * type->block_bytes;
}

/* ---- formats ------------------------------------------------------------------------------------------- */

/* IQ1, IQ2, IQ3: their values are compared with those of tests/reference/gguf.py alone. */
static bool is_of_grid(const struct wk_type_cpu *type)
{
    return type->ggml_type == 29 || (type->ggml_type >= 16 && type->ggml_type <= 22 && type->ggml_type != 20);
}

/* The host's own reference, which plugins are compared with, says the same; it has none of grids. */
static void check_reference(const struct wk_type_cpu *type, const uint8_t *raw, const uint8_t *values, uint64_t n)
{
    float *y = aligned_bytes(type->block * sizeof *y);
    if (is_of_grid(type)) n = 0;
    for (uint64_t v = 0; v < n; v += type->block, raw += type->block_bytes) {
        assert_true(known_values(type->ggml_type, raw, y));
        for (uint32_t i = 0; i < type->block; i++) {
            float expected;
            memcpy(&expected, values + 4 * (v + i), 4);
            if (memcmp(&y[i], &expected, 4) != 0 && !(isnan(y[i]) && isnan(expected)))
                fail_msg("reference of %s: value %llu: %a, expected %a", type->name, (unsigned long long)(v + i),
                         (double)y[i], (double)expected);
        }
    }
    free(y);
}

/* Raw blocks of a type against their values, bit by bit. */
static void check_values(const struct wk_type_cpu *type, const char *raw_path, const char *values_path)
{
    uint64_t raw_bytes, value_bytes;
    uint8_t *raw = read_all(raw_path, &raw_bytes), *values = read_all(values_path, &value_bytes);
    const uint64_t n = value_bytes / sizeof(float);
    assert_int_equal(raw_bytes, n / type->block * type->block_bytes);
    float *y = aligned_bytes(value_bytes);
    format_dequantize(type, y, raw, n);
    for (uint64_t v = 0; v < n; v++) {
        if (memcmp(y + v, values + 4 * v, 4)) {
            float expected;
            memcpy(&expected, values + 4 * v, 4);
            fail_msg("%s value %llu: %a, expected %a", raw_path, (unsigned long long)v, (double)y[v], (double)expected);
        }
    }
    check_reference(type, raw, values, n);
    free(y);
    free(raw);
    free(values);
}

/* Types without blocks, and NVFP4, are not among the test data. */
static bool has_data(const struct wk_type_cpu *type) { return type->block > 1 && type->ggml_type != 40; }

typedef const char *place(char out[DATA_PATH_MAX], const char *name);

static void check_vectors(place *where, const char *raw_suffix, const char *value_suffix)
{
    const struct wk_quant *quant = quant_test_plugin();
    for (uint32_t i = 0; i < quant->n_types; i++) {
        char raw[64], values[64], a[DATA_PATH_MAX], b[DATA_PATH_MAX];
        if (where == data_path && !has_data(quant->types[i])) continue;
        (void)snprintf(raw, sizeof raw, "quant/%s%s", quant->types[i]->name, raw_suffix);
        (void)snprintf(values, sizeof values, "quant/%s%s", quant->types[i]->name, value_suffix);
        check_values(quant->types[i], where(a, raw), where(b, values));
    }
}

static void test_vectors(void **state) /* of tests/reference/gguf.py */
{
    (void)state;
    check_vectors(golden_file, ".rand.raw", ".rand.f32");
}

static void data_vectors(void **state)
{
    (void)state;
    check_vectors(data_path, ".raw", ".f32");
}

static void data_vectors_random(void **state)
{
    (void)state;
    check_vectors(data_path, ".rand.raw", ".rand.f32");
}

static double rms_error(const float *a, const float *b, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / (double)n);
}

/* Largest root mean square error on Gaussian values of sigma 1, by bits a value. */
static double error_bound(const struct wk_type_cpu *type)
{
    const double bits = 8.0 * type->block_bytes / type->block;
    return bits >= 16 ? 0.003 : 2.2 * pow(2, -(bits - 0.5));
}

/* MXFP4: every float has a scale, but a block's largest value may lose a quarter to the highest level. */
static bool scale_is_exponent(const struct wk_type_cpu *type) { return type->ggml_type == 39; }

/* The largest value that the type holds and how an encoder tells of it; NVFP4's scales are bytes. */
static float most_of(const struct wk_type_cpu *type) { return type->ggml_type == 40 ? 2688 : 65504; }

/* n values, at most 65536, as one row. A type that is made with importance alone says so, with its name, and gets the
 * same for every column. */
static wk_status encode(const struct wk_type_cpu *type, void *blocks, const float *x, uint32_t n,
                        const struct wk_err *err)
{
    static float alike[65536];
    char text[256] = "";
    const wk_status status = format_quantize(type, blocks, x, n, err);
    if (status != WK_UNSUPPORTED) return status;
    assert_int_equal(format_quantize(type, blocks, x, n, &(struct wk_err){ text, sizeof text }), WK_UNSUPPORTED);
    assert_non_null(strstr(text, type->name));
    for (uint32_t i = 0; i < n; i++) alike[i] = 0.5f;
    return format_quantize_row(type, blocks, x, alike, n, err);
}

/* Noise, constants and extremes survive encoding. */
static void test_encoder(void **state)
{
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types; i++) {
        const struct wk_type_cpu *type = quant->types[i];
        enum { N = 65536 };
        float *x = aligned_bytes(N * sizeof *x), *y = aligned_bytes(N * sizeof *y);
        uint8_t *blocks = aligned_bytes(row_bytes(type, N));
        for (uint32_t v = 0; v < N; v++) x[v] = noise_gauss(&s);
        assert_int_equal(encode(type, blocks, x, N, NULL), WK_OK);
        format_dequantize(type, y, blocks, N);
        const double error = rms_error(x, y, N);
        print_message("%-5s rms error on sigma 1: %.5f", type->name, error);
        assert_true(error < error_bound(type));

        /* few points of a grid have equal levels */
        const float relative = scale_is_exponent(type) || is_of_grid(type) ? 0.25f : 0.04f;
        static const float constants[] = { 0, 1, -1, 1e-30f, -3e4f, 5e-8f };
        for (uint32_t c = 0; c < sizeof constants / sizeof *constants; c++) {
            if (fabsf(constants[c]) > most_of(type)) continue;
            for (uint32_t v = 0; v < 256; v++) x[v] = constants[c];
            assert_int_equal(encode(type, blocks, x, 256, NULL), WK_OK);
            format_dequantize(type, y, blocks, 256);
            for (uint32_t v = 0; v < 256; v++) assert_true(fabsf(y[v] - x[v]) <= relative * fabsf(x[v]) + 5e-7f);
        }

        print_message("\n");
        free(x);
        free(y);
        free(blocks);
    }
}

/* No worse than a known encoder. */
static void data_encoder(void **state)
{
    (void)state;
    const struct wk_quant *quant = quant_test_plugin();
    char path[DATA_PATH_MAX], name[64];
    uint64_t source_bytes;
    float *source = (float *)(void *)read_all(data_path(path, "quant/source.f32"), &source_bytes);
    for (uint32_t i = 0; i < quant->n_types; i++) {
        const struct wk_type_cpu *type = quant->types[i];
        uint64_t bytes;
        if (!has_data(type)) continue;
        (void)snprintf(name, sizeof name, "quant/%s.f32", type->name);
        float *values = (float *)(void *)read_all(data_path(path, name), &bytes), *y = aligned_bytes(bytes);
        const uint64_t n = bytes / sizeof *values;
        uint8_t *blocks = aligned_bytes(n / type->block * type->block_bytes);
        assert_true(bytes <= source_bytes);
        assert_int_equal(format_quantize(type, blocks, source, n, NULL), WK_OK);
        format_dequantize(type, y, blocks, n);
        const double ours = rms_error(source, y, n), theirs = rms_error(source, values, n);
        print_message("%-5s rms error %.6g, known encoder %.6g\n", type->name, ours, theirs);
        assert_true(ours <= 1.001 * theirs); /* both deterministic: no noise to allow for */
        free(values);
        free(y);
        free(blocks);
    }
    free(source);
}

/* Squared errors of what a type makes of x, each weighed by its column, in units of all that there is: with this
 * importance, and with none. */
static void weighed_errors(const struct wk_type_cpu *type, const float *x, const float *importance, uint32_t n,
                           double errors[2])
{
    float *y = aligned_bytes(n * sizeof *y);
    uint8_t *blocks = aligned_bytes(row_bytes(type, n));
    for (int alike = 0; alike < 2; alike++) {
        double sum = 0, all = 0;
        assert_int_equal(alike ? encode(type, blocks, x, n, NULL)
                               : format_quantize_row(type, blocks, x, importance, n, NULL),
                         WK_OK);
        format_dequantize(type, y, blocks, n);
        for (uint32_t i = 0; i < n; i++) {
            sum += (double)importance[i] * pow((double)y[i] - x[i], 2);
            all += (double)importance[i] * pow(x[i], 2);
        }
        errors[alike] = sum / all;
    }
    free(y);
    free(blocks);
}

/* Columns that matter more and less, the largest 1, as whoever calls an encoder has it. */
static void draw_importance(struct noise *s, float spread, float *importance, uint32_t n)
{
    float most = 0;
    for (uint32_t i = 0; i < n; i++) {
        importance[i] = i % 5 ? expf(spread * noise_gauss(s)) : 0;
        most = fmaxf(most, importance[i]);
    }
    for (uint32_t i = 0; i < n; i++) importance[i] /= most;
}

/* What an encoder makes when it knows the importance is never worse than when it does not: of values as weights are,
 * and of one value throughout, of which equations for several unknowns say nothing. */
static void test_encoder_weighed(void **state)
{
    static const float constants[] = { 0.37f, 1.3f, 100, 0.011f, -1.7f };
    enum { N = 1024, CONSTANTS = sizeof constants / sizeof *constants };
    struct noise s = { *(uint64_t *)*state };
    const struct wk_quant *quant = quant_test_plugin();
    float *x = aligned_bytes(N * sizeof *x), *importance = aligned_bytes(N * sizeof *importance);
    for (uint32_t i = 0; i < quant->n_types; i++) {
        double errors[2];
        for (uint32_t v = 0; v < N; v++) x[v] = noise_gauss(&s);
        draw_importance(&s, 2, importance, N);
        weighed_errors(quant->types[i], x, importance, N, errors);
        print_message("%-5s weighed error %.5f, %.5f without importance\n", quant->types[i]->name, errors[0],
                      errors[1]);
        assert_true(errors[0] <= errors[1]);
        for (uint32_t c = 0; c < 2 * CONSTANTS; c++) {
            for (uint32_t v = 0; v < N; v++) x[v] = constants[c / 2];
            draw_importance(&s, c % 2 ? 1 : 2, importance, N);
            weighed_errors(quant->types[i], x, importance, N, errors);
            if (errors[0] > errors[1] + 5e-4)
                fail_msg("%s, %g throughout: %g, %g", quant->types[i]->name, (double)constants[c / 2], errors[0],
                         errors[1]);
        }
    }
    free(x);
    free(importance);
}

/* Where no column has any importance all count alike: the same blocks. */
static void test_encoder_without_importance(void **state)
{
    static const float nothing[512];
    struct noise s = { *(uint64_t *)*state };
    const struct wk_quant *quant = quant_test_plugin();
    float x[512];
    for (uint32_t v = 0; v < 512; v++) x[v] = noise_gauss(&s);
    for (uint32_t i = 0; i < quant->n_types; i++) {
        const struct wk_type_cpu *type = quant->types[i];
        uint8_t want[2048], got[2048];
        assert_int_equal(encode(type, want, x, 512, NULL), WK_OK);
        assert_int_equal(format_quantize_row(type, got, x, nothing, 512, NULL), WK_OK);
        if (memcmp(got, want, row_bytes(type, 512)) != 0) fail_msg("%s: other blocks", type->name);
    }
}

static void test_encoder_refuses(void **state)
{
    (void)state;
    const struct wk_quant *quant = quant_test_plugin();
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (uint32_t i = 0; i < quant->n_types * 3; i++) {
        const struct wk_type_cpu *type = quant->types[i / 3];
        float x[512] = { 0 };
        uint8_t blocks[2048];
        char text[256] = "";
        const struct wk_err err = { text, sizeof text };
        x[300] = bad[i % 3];
        assert_int_equal(encode(type, blocks, x, 512, &err), WK_INVALID);
        assert_non_null(strstr(text, "300"));
        if (type->block > 1 && !scale_is_exponent(type)) {
            char most[16];
            (void)snprintf(most, sizeof most, "%g", (double)most_of(type));
            x[300] = 3e38f; /* finite, but there is no scale for it */
            assert_int_equal(encode(type, blocks, x, 512, &err), WK_INVALID);
            assert_non_null(strstr(text, most));
        }
    }
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    uint64_t seed = 0x9e3779b97f4a7c15u;
    if (getenv("QUANT_TEST_SEED")) seed = strtoull(getenv("QUANT_TEST_SEED"), NULL, 0) | 1;
    print_message("seed 0x%llx (QUANT_TEST_SEED)\n", (unsigned long long)seed);
    const struct CMUnitTest of_goldens[] = { cmocka_unit_test(test_vectors) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_vectors),
        cmocka_unit_test(data_vectors_random),
        cmocka_unit_test(data_encoder),
        cmocka_unit_test_prestate(test_encoder, &seed),
        cmocka_unit_test(test_encoder_refuses),
        cmocka_unit_test_prestate(test_encoder_weighed, &seed),
        cmocka_unit_test_prestate(test_encoder_without_importance, &seed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("WORKER_GOLDENS"))
        failed += cmocka_run_group_tests(of_goldens, NULL, NULL); /* a format of this project */
    return failed;
}
