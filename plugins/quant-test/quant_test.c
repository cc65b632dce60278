/* quant-test/quant_test.c: the checks that every quantization plugin of this project passes; see quant_test.h. One
 * program per plugin. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/format.h"
#include "quant_test.h"
#include "test_data.h"

const struct wk_quant *quant_test_plugin(void)
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

uint64_t noise_bits(struct noise *s)
{
    s->state ^= s->state >> 12;
    s->state ^= s->state << 25;
    s->state ^= s->state >> 27;
    return s->state * 0x2545f4914f6cdd1du;
}

float noise_uniform(struct noise *s) { return (float)(noise_bits(s) >> 40) * 0x1p-24f; }

float noise_gauss(struct noise *s)
{
    const float radius = sqrtf(-2 * logf(1 - noise_uniform(s)));
    return radius * cosf(6.2831853f * noise_uniform(s));
}

void *aligned_bytes(uint64_t bytes)
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

uint64_t row_bytes(const struct wk_type_cpu *type, uint32_t k)
{
    return (uint64_t)(k / type->block) * type->block_bytes;
}

/* Arbitrary bits as long as they mean moderate numbers: scales among random bytes may be infinite. */
static void random_bits(const struct wk_type_cpu *type, uint8_t *row, uint32_t k, struct noise *s)
{
    float *y = aligned_bytes(type->block * sizeof *y);
    for (uint32_t b = 0; b < k / type->block; b++) {
        float most = INFINITY;
        while (!(most < 1000)) {
            for (uint32_t i = 0; i < type->block_bytes; i++)
                row[b * type->block_bytes + i] = (uint8_t)(noise_bits(s) >> 56);
            format_dequantize(type, y, row + b * type->block_bytes, type->block);
            most = 0;
            for (uint32_t i = 0; i < type->block; i++) most = fabsf(y[i]) < most ? most : fabsf(y[i]); /* NaN stays */
        }
    }
    free(y);
}

uint8_t *random_rows(const struct wk_type_cpu *type, uint32_t k, uint32_t kind, struct noise *s)
{
    const uint64_t bytes = row_bytes(type, k);
    uint8_t *rows = aligned_bytes(16 * bytes);
    float *x = aligned_bytes(k * sizeof *x);
    for (uint32_t r = 0; r < 16; r++) {
        /* One value just farther from zero than all others takes the lowest level, so that these get the highest: with
         * scales that are powers of two for 3/2, not for 1. */
        for (uint32_t i = 0; i < k; i++) {
            const float extreme = (i % 16 || r & 2 ? 1.5f : -1.5f * 33 / 32) * (r & 1 ? -1.0f : 1.0f);
            x[i] = kind == ROWS_GAUSS ? noise_gauss(s) + 0.1f : extreme;
        }
        if (kind == ROWS_BITS)
            random_bits(type, rows + r * bytes, k, s);
        else
            assert_int_equal(format_quantize(type, rows + r * bytes, x, k, NULL), WK_OK);
    }
    free(x);
    return rows;
}

uint32_t machine_isa(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vnni"))
        return WK_ISA_AVX512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? WK_ISA_AVX2 : WK_ISA_PORTABLE;
}

/* ---- formats ------------------------------------------------------------------------------------------- */

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
    free(y);
    free(raw);
    free(values);
}

typedef const char *place(char out[DATA_PATH_MAX], const char *name);

static void check_vectors(place *where, const char *raw_suffix, const char *value_suffix)
{
    const struct wk_quant *quant = quant_test_plugin();
    for (uint32_t i = 0; i < quant->n_types; i++) {
        char raw[64], values[64], a[DATA_PATH_MAX], b[DATA_PATH_MAX];
        if (quant->types[i]->block == 1 && where == data_path) continue; /* no blocks: not among the test data */
        (void)snprintf(raw, sizeof raw, "quant/%s%s", quant->types[i]->name, raw_suffix);
        (void)snprintf(values, sizeof values, "quant/%s%s", quant->types[i]->name, value_suffix);
        check_values(quant->types[i], where(a, raw), where(b, values));
    }
}

void test_vectors(void **state) /* of tests/reference/gguf.py */
{
    (void)state;
    check_vectors(golden_file, ".rand.raw", ".rand.f32");
}

void data_vectors(void **state)
{
    (void)state;
    check_vectors(data_path, ".raw", ".f32");
}

void data_vectors_random(void **state)
{
    (void)state;
    check_vectors(data_path, ".rand.raw", ".rand.f32");
}

/* pack writes all of the tile and unpack gets the bytes back, for random bytes at any alignment. */
void test_round_trip(void **state)
{
    static const uint32_t lengths[] = { 1, 3, 7, 28, 152 }; /* in blocks of 32, or of 256 */
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types * 5; i++) {
        const struct wk_type_cpu *type = quant->types[i / 5];
        const uint32_t k = type->block == 256  ? lengths[i % 5] * 256
                           : type->block == 32 ? lengths[i % 5] * 32
                                               : lengths[i % 5] * 32 + 1;
        const uint64_t bytes = row_bytes(type, k), tile_bytes = type->tile_bytes(k);
        assert_int_equal(tile_bytes % 64, 0);
        assert_true(tile_bytes >= 16 * bytes && tile_bytes <= 16 * bytes + 64);
        uint8_t *in = aligned_bytes(16 * bytes + 1), *out = aligned_bytes(16 * bytes + 1);
        uint8_t *tile = aligned_bytes(tile_bytes), *again = aligned_bytes(tile_bytes);
        for (uint64_t b = 0; b < 16 * bytes; b++) in[1 + b] = (uint8_t)(noise_bits(&s) >> 56);
        const void *from[16];
        void *to[16];
        for (uint32_t r = 0; r < 16; r++) {
            from[r] = in + 1 + r * bytes;
            to[r] = out + 1 + r * bytes;
        }
        memset(tile, 0xa5, tile_bytes);
        memset(again, 0x5a, tile_bytes);
        memset(out, 0, 16 * bytes + 1);
        format_pack(type, tile, from, k);
        format_pack(type, again, from, k);
        assert_memory_equal(tile, again, tile_bytes);
        format_unpack(type, to, tile, k);
        assert_memory_equal(in + 1, out + 1, 16 * bytes);
        free(in);
        free(out);
        free(tile);
        free(again);
    }
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

/* Noise, constants and extremes survive encoding. */
void test_encoder(void **state)
{
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types; i++) {
        const struct wk_type_cpu *type = quant->types[i];
        enum { N = 65536 };
        float *x = aligned_bytes(N * sizeof *x), *y = aligned_bytes(N * sizeof *y);
        uint8_t *blocks = aligned_bytes(row_bytes(type, N));
        for (uint32_t v = 0; v < N; v++) x[v] = noise_gauss(&s);
        assert_int_equal(format_quantize(type, blocks, x, N, NULL), WK_OK);
        format_dequantize(type, y, blocks, N);
        const double error = rms_error(x, y, N);
        print_message("%-5s rms error on sigma 1: %.5f", type->name, error);
        assert_true(error < error_bound(type));

        const float relative = scale_is_exponent(type) ? 0.25f : 0.04f;
        static const float constants[] = { 0, 1, -1, 1e-30f, -3e4f, 5e-8f };
        for (uint32_t c = 0; c < sizeof constants / sizeof *constants; c++) {
            for (uint32_t v = 0; v < 256; v++) x[v] = constants[c];
            assert_int_equal(format_quantize(type, blocks, x, 256, NULL), WK_OK);
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
void data_encoder(void **state)
{
    (void)state;
    const struct wk_quant *quant = quant_test_plugin();
    char path[DATA_PATH_MAX], name[64];
    uint64_t source_bytes;
    float *source = (float *)(void *)read_all(data_path(path, "quant/source.f32"), &source_bytes);
    for (uint32_t i = 0; i < quant->n_types; i++) {
        const struct wk_type_cpu *type = quant->types[i];
        uint64_t bytes;
        if (type->block == 1) continue;
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

void test_encoder_refuses(void **state)
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
        assert_int_equal(format_quantize(type, blocks, x, 512, &err), WK_INVALID);
        assert_non_null(strstr(text, "300"));
        if (type->block > 1 && !scale_is_exponent(type)) {
            x[300] = 3e38f; /* finite, but no half can scale it */
            assert_int_equal(format_quantize(type, blocks, x, 512, &err), WK_INVALID);
            assert_non_null(strstr(text, "65504"));
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
        cmocka_unit_test_prestate(test_round_trip, &seed),
        cmocka_unit_test_prestate(test_encoder, &seed),
        cmocka_unit_test(test_encoder_refuses),
        cmocka_unit_test_prestate(test_product, &seed),
        cmocka_unit_test_prestate(test_product_extremes, &seed),
        cmocka_unit_test_prestate(test_product_same_bits, &seed),
        cmocka_unit_test_prestate(test_product_repeats, &seed),
        cmocka_unit_test_prestate(test_product_nan, &seed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("WORKER_GOLDENS"))
        failed += cmocka_run_group_tests(of_goldens, NULL, NULL); /* a format of this project */
    return failed;
}
