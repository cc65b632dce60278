/* test_cli_fault.c: what the program answers to each fault of a device: the code, its number, the exit status, and that
 * nothing else was printed. The device is fake_device.c in an installation of its own. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "maker.h"
#include "schema.h"

static const struct {
    const char *fault, *code, *text;
    int status, number;
    bool verify; /* met by worker verify, not by worker run */
} faults[] = {
    { "no-driver", "DEVICE_NOT_FOUND", "device cuda: no NVIDIA driver here", 1, 1, false },
    { "full", "INSUFFICIENT_VRAM",
      "^tiny\\.gguf: needs [0-9]+ bytes \\(weights [0-9]+, KV cache [0-9]+ for a context of 64\\), GPU 0 \\(Fake "
      "GPU\\) has 1000 available of 8589934592;",
      1, 2, false },
    { "no-memory", "INSUFFICIENT_VRAM",
      "GPU 0 \\(Fake GPU\\) has 7516192768 available of 8589934592: kv: required 4096 bytes more", 1, 2, false },
    { "digest", "MODEL_LOAD_FAILED", "^tiny\\.gguf: the weights' digest is 1, 2 was demanded", 1, 4, false },
    { "host-page", "VRAM_RESIDENCY_FAILED", "^tiny\\.gguf: weights: byte 2097152 is host memory", 1, 6, false },
    { "lost-at-once", "CUDA_ERROR", "^context: cudaErrorIllegalAddress: ", 70, 7, false },
    { "lost-in-upload", "CUDA_ERROR", "upload: cudaErrorIllegalAddress: ", 70, 7, false },
    { "lost-in-step", "CUDA_ERROR", "^step: cudaErrorIllegalAddress: ", 70, 7, false },
    { "lost-in-collect", "CUDA_ERROR", "^collect: cudaErrorIllegalAddress: ", 70, 7, false },
    { "lost-in-verify", "CUDA_ERROR", "^verify: cudaErrorIllegalAddress: ", 70, 7, true },
    { "unsealed", "MODEL_LOAD_FAILED", "became shorter", 1, 4, true },
    { "damaged", "VRAM_RESIDENCY_FAILED", "the weights on GPU 0 have digest 00fe, the file's is 00ff", 1, 6, true },
};

static json_t *last_event(char *log)
{
    log[strlen(log) - 1] = '\0';
    const char *line = strrchr(log, '\n');
    json_t *event = json_loads(line ? line + 1 : log, 0, NULL);
    assert_non_null(event);
    return event;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "(absent)";
}

static void each_fault(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        assert_int_equal(setenv("WORKER_FAKE", faults[i].fault, 1), 0);
        const char *command = faults[i].verify ? "verify" : "run";
        struct cli_result plain = faults[i].verify
                                      ? CLI("verify", "--device", "cuda", "-m", "tiny.gguf")
                                      : CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "3");
        struct cli_result json =
            faults[i].verify
                ? CLI("verify", "--device", "cuda", "-m", "tiny.gguf", "--log", "json")
                : CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "3", "--log", "json");
        char start[64];
        (void)snprintf(start, sizeof start, "^worker: error: %s: ", faults[i].code);
        if (plain.status != faults[i].status || json.status != faults[i].status ||
            !matches(last_line(plain.err), start))
            fail_msg("%s, %s: status %d and %d, \"%s\"", command, faults[i].fault, plain.status, json.status,
                     plain.err);
        if (strcmp(faults[i].fault, "damaged") != 0 && plain.out[0])
            fail_msg("%s: printed \"%s\"", faults[i].fault, plain.out);
        json_t *event = last_event(json.err);
        assert_string_equal(text_of(event, "event"), "error");
        assert_string_equal(text_of(event, "code"), faults[i].code);
        assert_int_equal(json_integer_value(json_object_get(event, "device_code")), faults[i].number);
        if (!matches(text_of(event, "message"), faults[i].text))
            fail_msg("%s: \"%s\"", faults[i].fault, text_of(event, "message"));
        if (strcmp(faults[i].code, "INSUFFICIENT_VRAM") == 0) {
            assert_string_equal(text_of(event, "model"), "tiny");
            assert_int_equal(json_integer_value(json_object_get(event, "gpu_device")), 0);
            assert_true(json_integer_value(json_object_get(event, "vram_required")) > 0);
            assert_true(json_integer_value(json_object_get(event, "vram_available")) > 0);
        }
        json_decref(event);
        cli_free(&plain);
        cli_free(&json);
    }
    assert_int_equal(unsetenv("WORKER_FAKE"), 0);
}

/* Without a fault it runs, says where, and the load's last event is the handle. */
static void no_fault(void **state)
{
    (void)state;
    struct cli_result r = CLI("run", "--device", "cuda", "--gpu-device", "1", "-m", "tiny.gguf", "-p", "abc", "-n", "3",
                              "--seed", "1", "--ids");
    struct cli_result cpu = CLI("run", "-m", "tiny.gguf", "-p", "abc", "-n", "3", "--seed", "1", "--ids");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, cpu.out); /* the fake computes on the CPU */
    assert_true(matches(r.err, "device cuda \\(GPU 1, Fake GPU\\), model tiny"));
    cli_free(&r);
    cli_free(&cpu);
    r = CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "3", "--log", "json");
    char *at = strstr(r.err, "\"model_load_complete\"");
    assert_non_null(at);
    while (at > r.err && at[-1] != '\n') at--;
    json_t *event = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    assert_string_equal(text_of(event, "shard_id"), "tiny:gpu0:1-of-1");
    assert_string_equal(text_of(event, "gpu"), "Fake GPU");
    assert_string_equal(text_of(event, "digest"), "00ff");
    assert_string_equal(text_of(event, "model_ref"), "tiny.gguf");
    assert_true(json_is_true(json_object_get(event, "sealed")));
    assert_true(json_integer_value(json_object_get(event, "vram_bytes")) > 0);
    json_decref(event);
    cli_free(&r);
}

/* Kernels that the driver compiled are told of, once, and all else is as ever. */
static void kernels_from_ptx(void **state)
{
    (void)state;
    assert_int_equal(setenv("WORKER_FAKE", "ptx", 1), 0);
    struct cli_result plain = CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "3"),
                      json = CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "3", "--log", "json");
    assert_int_equal(unsetenv("WORKER_FAKE"), 0);
    assert_int_equal(plain.status, 0);
    assert_true(matches(plain.err, "no machine code for GPU 0 \\(Fake GPU, compute capability 9\\.0\\): the driver "
                                   "compiled its PTX of 8\\.0, .*-DWORKER_CUDA_ARCHITECTURES=90a-real"));
    char *at = strstr(json.err, "\"kernels_from_ptx\"");
    assert_non_null(at);
    assert_null(strstr(at + 1, "\"kernels_from_ptx\""));
    while (at > json.err && at[-1] != '\n') at--;
    json_t *event = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    assert_string_equal(text_of(event, "level"), "warning");
    assert_int_equal(json_integer_value(json_object_get(event, "compute")), 90);
    assert_int_equal(json_integer_value(json_object_get(event, "ptx")), 80);
    json_decref(event);
    cli_free(&plain);
    cli_free(&json);
    plain = CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "3");
    assert_null(strstr(plain.err, "PTX"));
    cli_free(&plain);
}

static void verify_and_plan(void **state)
{
    (void)state;
    struct cli_result text = CLI("verify", "--device", "cuda", "-m", "tiny.gguf"),
                      json = CLI("verify", "--device", "cuda", "-m", "tiny.gguf", "--json");
    assert_int_equal(text.status, 0);
    assert_true(matches(text.out, "sealed +yes, write-protected\ndigest +00ff\nfrom device +00ff\n"));
    json_t *document = json_loads(json.out, 0, NULL), *handle = json_object_get(document, "handle");
    json_t *schema = json_load_file(WORKER_CONTRACTS "/handle-schema.json", JSON_REJECT_DUPLICATES, NULL);
    char why[256];
    assert_non_null(schema);
    if (!schema_accepts(schema, handle, why, sizeof why)) fail_msg("handle-schema.json: %s", why);
    assert_int_equal(json_object_del(handle, "digest"), 0);
    assert_false(schema_accepts(schema, handle, why, sizeof why));
    json_decref(schema);
    json_decref(document);
    cli_free(&text);
    cli_free(&json);
    struct cli_result plan = CLI("plan", "--device", "cuda", "tiny.gguf");
    assert_int_equal(plan.status, 0);
    assert_true(matches(plan.out, "gpu +GPU 0, Fake GPU\navailable +7516192768 bytes\nfits +yes\n"));
    cli_free(&plan);
    assert_int_equal(setenv("WORKER_FAKE", "full", 1), 0);
    plan = CLI("plan", "--device", "cuda", "tiny.gguf");
    assert_int_equal(unsetenv("WORKER_FAKE"), 0);
    assert_int_equal(plan.status, 1);
    assert_true(matches(plan.out, "fits +no\n"));
    assert_true(
        matches(plan.err, "INSUFFICIENT_VRAM: tiny.gguf: needs [0-9]+ bytes, GPU 0 \\(Fake GPU\\) has 1000 available"));
    cli_free(&plan);
    struct cli_result none = CLI("run", "--device", "cuda", "--gpu-device", "2", "-m", "tiny.gguf", "-p", "x");
    assert_int_equal(none.status, 1);
    assert_true(matches(none.err, "INVALID_DEVICE: device cuda: there is no GPU 2"));
    cli_free(&none);
    struct cli_result profile = CLI("capabilities", "--json");
    json_t *p = json_loads(profile.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(p, "devices")), 2);
    assert_int_equal(json_integer_value(json_object_get(p, "vram_bytes")), (json_int_t)8 << 30);
    json_decref(p);
    cli_free(&profile);
}

/* A plugin that a device's module calls is named as one that the program calls: both at loading and in a step. */
static void plugin_in_the_module(void **state)
{
    (void)state;
    static const char *const ends[][2] = { { "exit:pack", "called exit while the host called its pack" },
                                           { "exit:product", "called exit while the host called its product" },
                                           { "abort:product",
                                             "ended with SIGABRT while the host called its product" } };
    char folder[512], line[256];
    assert_non_null(getcwd(folder, sizeof folder - 2));
    (void)strcat(folder, "/p");
    assert_int_equal(system("mkdir -p p && chmod 755 p && cp '" ZOO_DIR "/end_quant.so' p/ && chmod 644 p/*"), 0);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_int_equal(setenv("ZOO_END", ends[i][0], 1), 0);
        struct cli_result r = CLI("run", "--device", "cuda", "-m", "tiny.gguf", "-p", "abc", "-n", "1", "--plugin-dir",
                                  folder, "--prefer", "ggml:0=org.example.end");
        (void)snprintf(line, sizeof line, "^worker: error: INTERNAL: plugin end_quant\\.so %s; ", ends[i][1]);
        if (r.status != 1 || !matches(last_line(r.err), line))
            fail_msg("%s: status %d, \"%s\"", ends[i][0], r.status, r.err);
        cli_free(&r);
    }
    assert_int_equal(unsetenv("ZOO_END"), 0);
}

static int setup(void **state)
{
    char module[256];
    const int result = enter_scratch(state);
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    cli_install(module);
    cli_program = "prefix/bin/worker";
    char command[1024];
    (void)snprintf(command, sizeof command, "cp '%s' '%s' && chmod 644 '%s'", FAKE_DEVICE, module, module);
    return result ? result : system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_fault), cmocka_unit_test(no_fault),
                                        cmocka_unit_test(kernels_from_ptx), cmocka_unit_test(verify_and_plan),
                                        cmocka_unit_test(plugin_in_the_module) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
