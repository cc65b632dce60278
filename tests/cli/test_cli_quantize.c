/* test_cli_quantize.c: the mixtures against published files, and models that run after quantizing. */
#include "cli.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "maker.h"
#include "test_data.h"

static json_t *inspect(const char *path)
{
    struct cli_result r = CLI("inspect", "--json", path);
    if (r.status != 0) fail_msg("inspect %s: %s", path, r.err);
    json_t *document = json_loads(r.out, 0, NULL);
    assert_non_null(document);
    cli_free(&r);
    return document;
}

static void quantize(const char *in, const char *out, const char *type)
{
    struct cli_result r = CLI("quantize", in, out, type);
    if (r.status != 0) fail_msg("quantize %s %s: %s", in, type, r.err);
    assert_string_equal(r.out, "");
    cli_free(&r);
}

static int tensors_of(const json_t *document, const char *type)
{
    const json_t *types = json_object_get(document, "types");
    for (size_t i = 0; i < json_array_size(types); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(types, i), "type")), type) == 0)
            return (int)json_integer_value(json_object_get(json_array_get(types, i), "tensors"));
    return 0;
}

/* Counts of the published Q4_K_M files of Qwen2.5-0.5B whose output is tied to the embedding. */
static void qwen_mixture(void **state)
{
    (void)state;
    make_qwen_shape("qwen.gguf");
    quantize("qwen.gguf", "qwen-q4_k_m.gguf", "Q4_K_M");
    json_t *d = inspect("qwen-q4_k_m.gguf");
    assert_int_equal(tensors_of(d, "f32"), 121);
    assert_int_equal(tensors_of(d, "q5_0"), 132);
    assert_int_equal(tensors_of(d, "q8_0"), 13);
    assert_int_equal(tensors_of(d, "q4_K"), 12);
    assert_int_equal(tensors_of(d, "q6_K"), 12);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(d, "metadata"), "general.file_type")), 15);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(d, "metadata"), "general.quantization_version")), 2);
    json_decref(d);
}

static void same_types(const char *path, const char *published)
{
    json_t *a = inspect(path), *b = inspect(published);
    const json_t *x = json_object_get(a, "tensors"), *y = json_object_get(b, "tensors");
    assert_int_equal(json_array_size(x), json_array_size(y));
    for (size_t i = 0; i < json_array_size(x); i++) {
        const json_t *ours = json_array_get(x, i), *theirs = NULL;
        for (size_t k = 0; !theirs && k < json_array_size(y); k++)
            if (json_equal(json_object_get(ours, "name"), json_object_get(json_array_get(y, k), "name")))
                theirs = json_array_get(y, k);
        assert_non_null(theirs);
        assert_string_equal(json_string_value(json_object_get(ours, "name")),
                            json_string_value(json_object_get(theirs, "name")));
        if (!json_equal(json_object_get(ours, "type"), json_object_get(theirs, "type")))
            fail_msg("%s: %s, published %s", json_string_value(json_object_get(ours, "name")),
                     json_string_value(json_object_get(ours, "type")),
                     json_string_value(json_object_get(theirs, "type")));
    }
    json_decref(a);
    json_decref(b);
}

static double perplexity(const char *model)
{
    struct cli_result r = CLI("score", "-m", model, "--exact", "--text",
                              "Once upon a time, there was a little girl named Lily. She loved to play with her toys.");
    if (r.status != 0) fail_msg("score %s: %s", model, r.err);
    json_t *d = json_loads(r.out, 0, NULL);
    const double p = json_number_value(json_object_get(d, "perplexity"));
    json_decref(d);
    cli_free(&r);
    return p;
}

/* A trained model in every mixture that there is a published file of: the same type for each tensor, and a perplexity
 * that is near. */
static void data_stories_in_every_mixture(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        double worst;
    } mixtures[] = { { "Q8_0", 1.02 }, { "Q6_K", 1.05 }, { "Q5_K_M", 1.10 }, { "Q5_0", 1.15 },   { "Q4_K_M", 1.25 },
                     { "Q4_0", 1.40 }, { "F16", 1.001 }, { "BF16", 1.02 },   { "IQ4_NL", 1.40 }, { "IQ4_XS", 1.40 } };
    char source[DATA_PATH_MAX], published[DATA_PATH_MAX], relative[96], out[64];
    (void)data_path(source, "stories260K/stories260K-ffn256-f32.gguf");
    const double reference = perplexity(source);
    assert_true(reference > 1 && reference < 20);
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        (void)snprintf(relative, sizeof relative, "stories260K/stories260K-ffn256-%s.gguf", mixtures[i].type);
        (void)snprintf(out, sizeof out, "%s.gguf", mixtures[i].type);
        quantize(source, out, mixtures[i].type);
        if (access(data_path(published, relative), R_OK) == 0) same_types(out, published); /* none of IQ4 */
        const double p = perplexity(out);
        if (!(p < reference * mixtures[i].worst && p > reference / mixtures[i].worst))
            fail_msg("%s: perplexity %f, F32 has %f", mixtures[i].type, p, reference);
        struct cli_result run =
            CLI("run", "-m", out, "-p", "Once upon a time", "--raw", "--temperature", "0", "-n", "12");
        assert_int_equal(run.status, 0);
        assert_true(run.out_len > 12);
        cli_free(&run);
    }
}

/* Logits of 24 ids; the caller frees. */
static float *logits(const char *model, bool exact, size_t *n)
{
    struct cli_result r =
        CLI("score", "-m", model, "--ids", "1 403 407 261 378 31 285 376 393 266 388 438 302 1 2 3 4 5 6 7 8 9 10 11",
            "--logits", "logits.f32", exact ? "--exact" : "--log=plain");
    struct stat st;
    if (r.status != 0) fail_msg("score %s: %s", model, r.err);
    assert_int_equal(stat("logits.f32", &st), 0);
    *n = (size_t)st.st_size / sizeof(float);
    float *values = malloc((size_t)st.st_size);
    FILE *f = fopen("logits.f32", "rb");
    assert_true(values && f);
    assert_int_equal(fread(values, sizeof *values, *n, f), *n);
    (void)fclose(f);
    cli_free(&r);
    return values;
}

static double relative_rms(const char *model, const char *reference, bool exact)
{
    size_t n, m;
    double off = 0, size = 0;
    float *a = logits(model, exact, &n), *b = logits(reference, true, &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        off += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        size += (double)b[i] * (double)b[i];
    }
    free(a);
    free(b);
    return sqrt(off / size);
}

struct encoding {
    const char *name, *type, *fallback;
    int of_type, fell_back;
};

/* A model whose every matrix is of one type computes what its values, written out in F32, do. */
static void check_encoding(const char *source, const struct encoding *e)
{
    quantize(source, "encoded.gguf", e->name);
    json_t *d = inspect("encoded.gguf");
    assert_int_equal(tensors_of(d, e->type), e->of_type);
    assert_int_equal(tensors_of(d, e->fallback), e->fell_back);
    json_decref(d);
    struct cli_result r = CLI("quantize", "encoded.gguf", "values.gguf", "F32");
    assert_int_equal(r.status, 0);
    cli_free(&r);
    const double exact = relative_rms("encoded.gguf", "values.gguf", true),
                 usual = relative_rms("encoded.gguf", "values.gguf", false);
    if (!(exact <= 1e-5 && usual <= 2e-2)) fail_msg("%s: off by %g, with 8-bit activations %g", e->name, exact, usual);
}

/* M-1822: embedding, products, attention and output of a trained model. */
static void computes_what_it_encodes(void **state)
{
    (void)state;
    check_encoding("embedded:haiku", &(struct encoding){ "MXFP4", "mxfp4", "", 57, 0 });
}

/* Rows of 64 values, but those of ffn_down: where a type's blocks have 256, the others become what the files' own
 * quantizer makes of them. */
static void data_falls_back(void **state)
{
    (void)state;
    static const struct encoding types[] = { { "MXFP4", "mxfp4", "", 36, 0 },
                                             { "IQ4_NL", "iq4_nl", "q8_0", 35, 1 },
                                             { "IQ4_XS", "iq4_xs", "iq4_nl", 5, 30 },
                                             { "q2_K", "q3_K", "iq4_nl", 5, 30 },
                                             { "Q3_K", "q3_K", "iq4_nl", 5, 31 } };
    char source[DATA_PATH_MAX];
    (void)data_path(source, "stories260K/stories260K-ffn256-f32.gguf");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) check_encoding(source, &types[i]);
}

/* As gpt-oss's files are published: experts MXFP4, every other matrix Q8_0, router, sinks, norms and biases F32. From
 * the F32 values of such a file, and by copying it: encoding gives back what copying keeps. */
static void experts_mixture(void **state)
{
    (void)state;
    char source[DATA_PATH_MAX];
    quantize(golden_file(source, "harmony.gguf"), "encoded.gguf", "mxfp4_moe");
    quantize("encoded.gguf", "values.gguf", "F32");
    quantize("values.gguf", "experts.gguf", "mxfp4_moe");
    quantize("encoded.gguf", "copied.gguf", "MXFP4_MOE");
    json_t *d = inspect("experts.gguf");
    const int layers = 2;
    assert_int_equal(tensors_of(d, "mxfp4"), 3 * layers);
    assert_int_equal(tensors_of(d, "q8_0"), 4 * layers + 2);
    assert_int_equal(tensors_of(d, "f32"), 12 * layers + 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(d, "metadata"), "general.file_type")), 38);
    json_decref(d);
    same_types("experts.gguf", "copied.gguf");
    const double p = perplexity("experts.gguf");
    assert_true(p == perplexity("copied.gguf") && p != perplexity(source));
}

/* Files with one tensor an expert: the experts become MXFP4 as well, what stands beside them Q8_0. */
static void experts_apart(void **state)
{
    (void)state;
    make_experts_apart("apart.gguf");
    quantize("apart.gguf", "apart-mxfp4.gguf", "MXFP4_MOE");
    json_t *d = inspect("apart-mxfp4.gguf");
    assert_int_equal(tensors_of(d, "mxfp4"), 6);
    assert_int_equal(tensors_of(d, "q8_0"), 3);
    assert_int_equal(tensors_of(d, "f32"), 1); /* the router */
    json_decref(d);
}

/* What published files of these architectures keep in F32: convolutions, vectors and norms of states; positions and
 * kinds of tokens. */
static void small_matrices_stay(void **state)
{
    (void)state;
    char source[DATA_PATH_MAX];
    quantize(golden_file(source, "mamba2.gguf"), "states.gguf", "Q8_0");
    json_t *d = inspect("states.gguf");
    const int layers = 3;
    assert_int_equal(tensors_of(d, "q8_0"), 2 * layers + 1); /* ssm_in, ssm_out; the embedding */
    assert_int_equal(tensors_of(d, "f32"), 7 * layers + 1);
    json_decref(d);
    quantize(golden_file(source, "bert.gguf"), "encoder.gguf", "F16");
    d = inspect("encoder.gguf");
    assert_int_equal(tensors_of(d, "f16"), 6 * layers + 1);
    assert_int_equal(tensors_of(d, "f32"), 10 * layers + 4); /* biases and norms; positions, kinds, the first norm */
    json_decref(d);
}

/* The same bytes for any number of threads. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    struct stat a, b;
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    struct cli_result one = CLI("quantize", "tiny.gguf", "one.gguf", "q4_k_m", "--threads", "1"),
                      many = CLI("quantize", "tiny.gguf", "many.gguf", "Q4_K_M", "--threads", "7");
    assert_int_equal(one.status | many.status, 0);
    assert_int_equal(stat("one.gguf", &a) | stat("many.gguf", &b), 0);
    assert_int_equal(a.st_size, b.st_size);
    char *x = malloc((size_t)a.st_size), *y = malloc((size_t)a.st_size);
    FILE *f = fopen("one.gguf", "rb"), *g = fopen("many.gguf", "rb");
    assert_true(x && y && f && g);
    assert_int_equal(fread(x, 1, (size_t)a.st_size, f) + fread(y, 1, (size_t)a.st_size, g), 2 * a.st_size);
    assert_memory_equal(x, y, (size_t)a.st_size);
    (void)fclose(f);
    (void)fclose(g);
    free(x);
    free(y);
    cli_free(&one);
    cli_free(&many);
}

/* Who begins from a quantized file is told; bytes that are copied have lost nothing. */
static void loss_is_told(void **state)
{
    (void)state;
    make_tiny(&(struct tiny_model){ .path = "plain.gguf" });
    const struct {
        const char *in, *out, *type;
        bool told;
    } runs[] = { { "plain.gguf", "small.gguf", "Q8_0", false },
                 { "small.gguf", "smaller.gguf", "Q4_0", true },
                 { "small.gguf", "same.gguf", "Q8_0", false } };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct cli_result r = CLI("quantize", runs[i].in, runs[i].out, runs[i].type);
        assert_int_equal(r.status, 0);
        assert_int_equal(strstr(r.err, "quantized already") != NULL, runs[i].told);
        cli_free(&r);
    }
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(qwen_mixture),
                                        cmocka_unit_test(data_stories_in_every_mixture),
                                        cmocka_unit_test(computes_what_it_encodes),
                                        cmocka_unit_test(data_falls_back),
                                        cmocka_unit_test(experts_mixture),
                                        cmocka_unit_test(experts_apart),
                                        cmocka_unit_test(small_matrices_stay),
                                        cmocka_unit_test(threads_do_not_matter),
                                        cmocka_unit_test(loss_is_told) };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
