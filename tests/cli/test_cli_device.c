/* test_cli_device.c: --device cuda where there is no GPU: each cause has its message and its exit status, and nothing
 * falls back to the CPU. A machine that has one shows none of it to these tests. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "maker.h"

#if WORKER_HAS_CUDA
#define NO_GPU "DEVICE_NOT_FOUND: device cuda: (no NVIDIA driver here|the NVIDIA driver is there, but no GPU)"
#else
#define NO_GPU "DEVICE_NOT_FOUND: device cuda: this installation has no device-cuda\\.so \\(looked at: /"
#endif

static void every_command_refuses(void **state)
{
    (void)state;
    static const char *const commands[][12] = {
        { "run", "--device", "cuda", "--prompt", "x", "-n", "1" },
        { "run", "--device", "cuda", "--gpu-device", "7", "--prompt", "x", "-n", "1" },
        { "score", "--device", "cuda", "--model", "tiny.gguf", "--ids", "1 2 3" },
        { "bench", "--device", "cuda", "--model", "tiny.gguf", "-p", "4", "-n", "2", "-r", "1" },
        { "debug", "tap", "--device", "cuda", "--model", "tiny.gguf", "--ids", "1 2", "--tap", "all", "--out" },
        { "verify", "--device", "cuda", "--model", "tiny.gguf" },
        { "verify", "--device", "cuda", "--json" },
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const char *args[16] = { 0 };
        size_t n = 0;
        for (; n < 12 && commands[i][n]; n++) args[n] = commands[i][n];
        if (strcmp(args[n - 1], "--out") == 0) args[n++] = "taps";
        struct cli_result r = cli(args, NULL);
        const char *line = last_line(r.err);
        if (r.status != 1 || r.out[0] || !matches(line, NO_GPU))
            fail_msg("worker %s: status %d, \"%s\"", args[0], r.status, line);
        cli_free(&r);
    }
}

static void environment_asks_for_it(void **state)
{
    (void)state;
    assert_int_equal(setenv("WORKER_DEVICE", "cuda", 1), 0);
    assert_int_equal(setenv("WORKER_GPU_DEVICE", "3", 1),
                     0); /* means nothing to --device cpu, where it is not on the command line */
    struct cli_result r = CLI("run", "--model", "nowhere.gguf", "--prompt", "x"),
                      c = CLI("run", "--device", "cpu", "--prompt", "x", "-n", "1");
    assert_int_equal(unsetenv("WORKER_DEVICE") | unsetenv("WORKER_GPU_DEVICE"), 0);
    assert_int_equal(r.status, 1);
    assert_true(matches(r.err, NO_GPU)); /* the device is looked at before the model */
    assert_int_equal(c.status, 0);
    cli_free(&r);
    cli_free(&c);
}

static void the_event_has_numbers(void **state)
{
    (void)state;
    struct cli_result r = CLI("run", "--log", "json", "--device", "cuda", "--prompt", "x");
    assert_int_equal(r.status, 1);
    char *line = strrchr(r.err, '\n');
    assert_non_null(line);
    *line = '\0';
    line = strrchr(r.err, '\n') ? strrchr(r.err, '\n') + 1 : r.err;
    json_t *event = json_loads(line, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(event, "event")), "error");
    assert_string_equal(json_string_value(json_object_get(event, "code")), "DEVICE_NOT_FOUND");
    assert_int_equal(json_integer_value(json_object_get(event, "device_code")), 1);
    /* Every failure says what it knows of model and device, and null where it knows nothing. */
    static const char *const always[] = { "message", "gpu_device", "model", "vram_required", "vram_available" };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) assert_non_null(json_object_get(event, always[i]));
    assert_int_equal(json_integer_value(json_object_get(event, "gpu_device")), 0);
    json_decref(event);
    cli_free(&r);
    r = CLI("run", "--log", "json", "--model", "no-such.gguf", "--prompt", "x");
    event = json_loads(last_line(r.err), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(event, "code")), "MODEL_LOAD_FAILED");
    assert_string_equal(json_string_value(json_object_get(event, "model")), "no-such.gguf");
    assert_true(json_is_null(json_object_get(event, "gpu_device")) &&
                json_is_null(json_object_get(event, "vram_required")) &&
                json_is_null(json_object_get(event, "vram_available")));
    json_decref(event);
    cli_free(&r);
}

static void usage(void **state)
{
    (void)state;
    const struct {
        const char *args[8];
        const char *pattern;
    } wrong[] = {
        { { "run", "--gpu-device", "0", "--prompt", "x" }, "--gpu-device needs --device cuda" },
        { { "plan", "--device", "cpu", "--gpu-device", "1", "tiny.gguf" }, "--gpu-device needs --device cuda" },
        { { "run", "--digest", "X123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "--prompt", "x" },
          "--digest: expected 64 lower-case hexadecimal digits" },
        { { "score", "--upload-chunk-mb", "4", "--model", "m", "--ids", "1" },
          "--upload-chunk-mb needs --device cuda" },
        { { "run", "--device", "cuda", "--digest", "0123", "--prompt", "x" }, "--digest: expected 64 to 64 bytes" },
        { { "run", "--device", "cuda", "--gpu-device", "-1", "--prompt", "x" },
          "--gpu-device: expected a whole number, 0 to 1023" },
        { { "run", "--device", "cuda", "--upload-chunk-mb", "65", "--prompt", "x" },
          "--upload-chunk-mb: expected a whole number, 0 to 64" },
        { { "run", "--device", "cuda", "--digest", "X123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "--prompt", "x" },
          "--digest: expected 64 lower-case hexadecimal digits" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct cli_result r = cli(wrong[i].args, NULL);
        if (r.status != 2 || r.out[0] || !matches(r.err, wrong[i].pattern))
            fail_msg("case %zu: status %d, \"%s\"", i, r.status, r.err);
        cli_free(&r);
    }
}

/* A plan is arithmetic: it needs the module and the plugins' kernels, and no GPU. */
static void plan_needs_no_gpu(void **state)
{
    (void)state;
    struct cli_result r = CLI("plan", "--device", "cuda", "tiny.gguf", "--json"),
                      t = CLI("plan", "--device", "cuda", "tiny.gguf");
#if WORKER_HAS_CUDA
    json_t *plan = json_loads(r.out, 0, NULL), *bytes = json_object_get(plan, "bytes");
    assert_int_equal(r.status, 0);
    assert_string_equal(json_string_value(json_object_get(plan, "device")), "cuda");
    assert_true(json_is_null(json_object_get(plan, "available")));
    assert_int_equal(json_array_size(json_object_get(plan, "reasons")), 1);
    const char *key;
    json_t *value;
    json_int_t sum = 0;
    json_object_foreach (bytes, key, value) sum += json_integer_value(value);
    assert_true(sum > 0 && sum == json_integer_value(json_object_get(plan, "total")));
    assert_true(json_integer_value(json_object_get(bytes, "weights")) > 0 &&
                json_integer_value(json_object_get(bytes, "kv")) > 0);
    json_decref(plan);
    assert_int_equal(t.status, 0);
    assert_true(matches(t.out, "available +not known: device cuda: "));
#else
    assert_int_equal(r.status, 1);
    assert_true(matches(r.err, NO_GPU));
    assert_int_equal(t.status, 1);
#endif
    cli_free(&r);
    cli_free(&t);
}

static void capabilities_say_cpu(void **state)
{
    (void)state;
    struct cli_result r = CLI("capabilities", "--json");
    json_t *profile = json_loads(r.out, 0, NULL), *devices = json_object_get(profile, "devices");
    assert_int_equal(json_array_size(devices), 1);
    assert_string_equal(json_string_value(json_array_get(devices, 0)), "cpu");
    assert_int_equal(json_integer_value(json_object_get(profile, "vram_bytes")), 0);
    json_decref(profile);
    cli_free(&r);
}

/* ---- an installation whose device module is not what it should be -------------------------------------- */

static void expect_installed(const char *pattern)
{
    struct cli_result r = CLI("run", "--device", "cuda", "--prompt", "x");
    if (r.status != 1 || r.out[0] || !matches(r.err, pattern))
        fail_msg("expected \"%s\", got status %d, \"%s\"", pattern, r.status, r.err);
    cli_free(&r);
}

static void wrong_modules(void **state)
{
    (void)state;
    char module[256], folder[256], pattern[512];
    cli_install(module);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(module, '/') - module), module);
    cli_program = "prefix/bin/worker";
    (void)snprintf(
        pattern, sizeof pattern,
        "DEVICE_NOT_FOUND: device cuda: this installation has no device-cuda\\.so \\(looked at: /.*/%s\\): it "
        "is in the package worker-cuda",
        module);
    expect_installed(pattern);
    make_file(module, "\177ELF but no more", 15);
    assert_int_equal(chmod(module, 0644), 0);
    expect_installed("DEVICE_NOT_FOUND: device cuda: /.*device-cuda\\.so: cannot be mapped: ");
    make_file(module, "", 0);
    expect_installed("cannot be mapped: ");
    assert_int_equal(chmod(module, 0646), 0);
    expect_installed("device-cuda\\.so: it is writable by others \\(mode 646\\)");
    assert_int_equal(chmod(module, 0644), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    expect_installed("device-cuda\\.so: its folder is writable by others \\(mode 777\\)");
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(unlink(module), 0);
    assert_int_equal(symlink("/etc/passwd", module), 0);
    expect_installed("device-cuda\\.so: a symbolic link");
    assert_int_equal(unlink(module), 0);
    assert_int_equal(mkdir(module, 0755), 0);
    expect_installed("device-cuda\\.so: not a regular file");
    cli_program = WORKER_BINARY;
}

static int setup(void **state)
{
    const int result = enter_scratch(state);
    (void)setenv("CUDA_VISIBLE_DEVICES", "", 1);
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_refuses), cmocka_unit_test(environment_asks_for_it),
        cmocka_unit_test(the_event_has_numbers), cmocka_unit_test(usage),
        cmocka_unit_test(plan_needs_no_gpu),     cmocka_unit_test(capabilities_say_cpu),
        cmocka_unit_test(wrong_modules),
    };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
