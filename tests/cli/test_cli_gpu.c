/* test_cli_gpu.c: --device cuda on a GPU, as a user meets it: generation, the sealed handle and its digest, a demanded
 * digest, a wrong index, too little memory. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <jansson.h>

#include "base/sha256.h"
#include "gguf/gguf.h"

#include "cli.h"
#include "maker.h"

/* SHA-256 of the tensors' bytes in the order of the file; all of them F32. */
static void digest_of(const char *path, char hex[65])
{
    struct gguf *file;
    struct sha256 *sha = sha256_begin();
    assert_int_equal(gguf_open(path, &file, NULL), WK_OK);
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        uint64_t bytes;
        assert_int_equal(gguf_tensor_bytes(file, t, 1, 4, &bytes, NULL), WK_OK);
        sha256_update(sha, gguf_tensor_data(file, t), bytes);
    }
    assert_true(sha256_end(sha, hex));
    gguf_close(file);
}

static json_t *event_of(const char *log, const char *name)
{
    char *copy = strdup(log), *save = NULL;
    json_t *found = NULL;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *event = json_loads(line, 0, NULL);
        const char *this = json_string_value(json_object_get(event, "event"));
        if (!found && this && strcmp(this, name) == 0) found = json_incref(event);
        json_decref(event);
    }
    free(copy);
    if (!found) fail_msg("no event \"%s\" in %s", name, log);
    return found;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "(absent)";
}

/* The same ids every time, however the file was cut on its way. */
static void run(void **state)
{
    (void)state;
    struct cli_result a =
        CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "--seed", "7", "--ids", "-n", "20");
    struct cli_result b = CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "--seed", "7", "--ids", "-n",
                              "20", "--upload-chunk-mb", "1");
    assert_int_equal(a.status, 0);
    assert_true(matches(a.out, "^[0-9]+( [0-9]+)*\n$"));
    assert_string_equal(a.out, b.out);
    assert_true(matches(a.err, "device cuda \\(GPU 0, NVIDIA [^)]+\\), model tiny"));
    cli_free(&a);
    cli_free(&b);
    struct cli_result text =
        CLI("run", "--device", "cuda", "--temperature", "0", "-n", "16", "--prompt", "Write a haiku about rain");
    assert_int_equal(text.status, 0);
    assert_true(isalpha((unsigned char)text.out[0]));
    cli_free(&text);
}

static void verify(void **state)
{
    (void)state;
    char digest[65];
    digest_of("tiny.gguf", digest);
    struct cli_result r = CLI("verify", "--device", "cuda", "--model", "tiny.gguf", "--json");
    json_t *document = json_loads(r.out, 0, NULL), *handle = json_object_get(document, "handle");
    assert_int_equal(r.status, 0);
    assert_string_equal(text_of(handle, "digest"), digest);
    assert_string_equal(text_of(document, "device_digest"), digest);
    assert_true(json_is_true(json_object_get(handle, "sealed")));
    assert_true(json_is_true(json_object_get(document, "resident")));
    assert_string_equal(text_of(handle, "model_ref"), "tiny.gguf");
    assert_string_equal(text_of(handle, "shard_id"), "tiny:gpu0:1-of-1");
    assert_int_equal(json_integer_value(json_object_get(handle, "gpu_device")), 0);
    assert_int_equal(json_integer_value(json_object_get(handle, "total_shards")), 1);
    assert_true(json_integer_value(json_object_get(handle, "vram_bytes")) > 0);
    assert_null(strstr(r.out, "0x")); /* no address leaves the process */

    struct cli_result p = CLI("plan", "--device", "cuda", "tiny.gguf", "--json");
    json_t *plan = json_loads(p.out, 0, NULL);
    assert_int_equal(p.status, 0);
    assert_true(json_integer_value(json_object_get(plan, "available")) > 0);
    assert_int_equal(json_integer_value(json_object_get(plan, "total")),
                     json_integer_value(json_object_get(handle, "vram_bytes"))); /* what was planned is what is used */
    json_decref(plan);
    json_decref(document);
    cli_free(&p);
    cli_free(&r);
}

/* A line a kind of launch: each has its place in every token, and all products together read the weights once. */
static void launches(void **state)
{
    (void)state;
    struct cli_result r =
        CLI("bench", "--device", "cuda", "-m", "tiny.gguf", "-p", "4", "-n", "2", "-r", "1", "--kernels", "--json");
    json_t *b = json_loads(r.out, 0, NULL), *list = json_object_get(b, "launches"), *line;
    double read = 0, weights = 4.0 * (32 * (32 + 16 + 16 + 32) + 3 * 32 * 64 + 32 * TINY_VOCAB);
    bool attends = false, down = false;
    size_t i;
    assert_int_equal(r.status, 0);
    json_array_foreach (list, i, line) {
        const char *name = text_of(line, "name");
        const double bytes = json_number_value(json_object_get(line, "bytes")),
                     n = json_number_value(json_object_get(line, "launches_per_token"));
        assert_true(n >= 1 && n == floor(n));
        assert_true(json_number_value(json_object_get(line, "seconds")) >= 0);
        if (!strncmp(name, "product ", 8)) read += bytes * n;
        attends |= !strcmp(name, "attend") && bytes > 0;
        down |= !strcmp(name, "product ffn_down");
    }
    assert_true(attends && down);
    assert_true(read >= weights && read < 2 * weights); /* tiles may be padded */
    json_decref(b);
    cli_free(&r);
}

static void demanded_digest(void **state)
{
    (void)state;
    char digest[65];
    digest_of("tiny.gguf", digest);
    struct cli_result right =
        CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "2", "--log", "json", "--digest", digest);
    assert_int_equal(right.status, 0);
    json_t *event = event_of(right.err, "model_load_complete");
    assert_true(json_is_true(json_object_get(event, "sealed")));
    assert_string_equal(text_of(event, "digest"), digest);
    json_decref(event);
    for (int percent = 0; percent <= 100; percent += 25) {
        char pattern[64];
        (void)snprintf(pattern, sizeof pattern, "\"percent\":%d[,}]", percent);
        assert_true(matches(right.err, pattern));
    }
    cli_free(&right);
    digest[0] = digest[0] == '0' ? '1' : '0';
    struct cli_result wrong =
        CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "2", "--digest", digest);
    assert_int_equal(wrong.status, 1);
    assert_string_equal(wrong.out, "");
    assert_true(
        matches(last_line(wrong.err),
                "MODEL_LOAD_FAILED: tiny\\.gguf: the weights' digest is [0-9a-f]{64}, [0-9a-f]{64} was demanded"));
    cli_free(&wrong);
}

static void no_such_gpu(void **state)
{
    (void)state;
    struct cli_result r =
        CLI("run", "--device", "cuda", "--gpu-device", "99", "-m", "tiny.gguf", "-p", "abc", "--log", "json");
    assert_int_equal(r.status, 1);
    json_t *event = event_of(r.err, "error");
    assert_string_equal(text_of(event, "code"), "INVALID_DEVICE");
    assert_int_equal(json_integer_value(json_object_get(event, "device_code")), 3);
    assert_int_equal(json_integer_value(json_object_get(event, "gpu_device")), 99);
    json_decref(event);
    cli_free(&r);
}

/* Another process holds all but a few megabytes. */
static void too_little_memory(void **state)
{
    (void)state;
    size_t available = 0, total = 0;
    void *ballast = NULL;
    assert_int_equal(cudaMemGetInfo(&available, &total), cudaSuccess);
    for (size_t left = (size_t)700 << 20; cudaMalloc(&ballast, available - left) != cudaSuccess;
         left += (size_t)64 << 20)
        (void)cudaGetLastError();
    struct cli_result r =
        CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "--context", "8388608", "--log", "json");
    struct cli_result p = CLI("plan", "--device", "cuda", "tiny.gguf", "--context", "8388608");
    assert_int_equal(cudaFree(ballast), cudaSuccess);
    assert_int_equal(r.status, 1);
    json_t *event = event_of(r.err, "error");
    assert_string_equal(text_of(event, "code"), "INSUFFICIENT_VRAM");
    assert_int_equal(json_integer_value(json_object_get(event, "device_code")), 2);
    assert_true(json_integer_value(json_object_get(event, "vram_required")) >
                json_integer_value(json_object_get(event, "vram_available")));
    assert_true(matches(text_of(event, "message"),
                        "^tiny\\.gguf: needs [0-9]+ bytes .*GPU 0 \\(NVIDIA [^)]+\\) has [0-9]+ available of [0-9]+"));
    json_decref(event);
    assert_int_equal(p.status, 1);
    assert_true(matches(p.err, "INSUFFICIENT_VRAM: tiny.gguf: needs "));
    cli_free(&r);
    cli_free(&p);
    struct cli_result again = CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "2");
    assert_int_equal(again.status, 0);
    cli_free(&again);
}

static double perplexity_of(struct cli_result *r)
{
    if (r->status) fail_msg("%s", r->err);
    json_t *score = json_loads(r->out, 0, NULL);
    const double perplexity = json_number_value(json_object_get(score, "perplexity"));
    json_decref(score);
    cli_free(r);
    return perplexity;
}

/* The embedded model on the text that it was not trained on: 8-bit or f16 activations cost next to nothing. */
static void perplexity(void **state)
{
    (void)state;
    struct cli_result exact = CLI("score", "--file", HELDOUT_TEXT, "--exact"),
                      gpu = CLI("score", "--file", HELDOUT_TEXT, "--device", "cuda");
    const double want = perplexity_of(&exact), got = perplexity_of(&gpu);
    print_message("perplexity: exact %.6f, cuda %.6f (%+.4f %%)\n", want, got, 100 * (got / want - 1));
    assert_true(want > 1 && got > want * 0.998 && got < want * 1.002);
}

static int setup(void **state)
{
    const int result = enter_scratch(state);
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    return result;
}

int main(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        (void)fprintf(stderr, "no GPU here: skipped\n");
        return 77;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(run),         cmocka_unit_test(verify),
                                        cmocka_unit_test(launches),    cmocka_unit_test(demanded_digest),
                                        cmocka_unit_test(no_such_gpu), cmocka_unit_test(too_little_memory),
                                        cmocka_unit_test(perplexity) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
