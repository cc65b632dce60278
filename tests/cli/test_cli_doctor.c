/* test_cli_doctor.c: what worker doctor finds on a machine that lacks something, the command that it gives, and its
 * verdict. The device is fake_device.c in an installation of its own, which has no plugins and no worker-fetch. */
#include "cli.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "maker.h"

static char here[2048], built_plugins[4096];

static void shell(const char *format, const char *a, const char *b)
{
    char command[8192];
    (void)snprintf(command, sizeof command, "f() { %s; }; f '%s' '%s'", format, a, b);
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    char module[256], home[4096];
    if (enter_scratch(state) || !getcwd(here, sizeof here) || !getenv("WORKER_PLUGIN_PATH")) return -1;
    (void)snprintf(built_plugins, sizeof built_plugins, "%s", getenv("WORKER_PLUGIN_PATH"));
    (void)snprintf(home, sizeof home, "%s/home", here);
    assert_int_equal(setenv("HOME", home, 1) | unsetenv("XDG_DATA_HOME") | unsetenv("OLLAMA_MODELS") |
                         unsetenv("HF_HOME") | unsetenv("HF_HUB_CACHE") | unsetenv("XDG_CACHE_HOME"),
                     0);
    cli_install(module);
    shell("cp \"$1\" \"$2\" && chmod 644 \"$2\"", FAKE_DEVICE, module);
    return 0;
}

static json_t *document(const struct cli_result *r)
{
    json_t *d = json_loads(r->out, JSON_REJECT_DUPLICATES, NULL);
    if (!d) fail_msg("no document: %s%s", r->out, r->err);
    return d;
}

static const char *word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The first finding of a check. */
static const json_t *finding(const json_t *d, const char *check)
{
    const json_t *all = json_object_get(d, "findings");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (strcmp(word(json_array_get(all, i), "check"), check) == 0) return json_array_get(all, i);
    fail_msg("nothing is said of %s", check);
    return NULL;
}

/* One finding of a run: its state, and patterns that its text and its command fit. */
static void expect(const char *const *args, const char *check, const char *state, const char *text, const char *mend)
{
    struct cli_result r = cli(args, NULL);
    json_t *d = document(&r);
    const json_t *f = finding(d, check);
    const bool serves = json_is_true(json_object_get(d, "serves"));
    if (strcmp(word(f, "state"), state) != 0 || !matches(word(f, "text"), text) || !matches(word(f, "mend"), mend))
        fail_msg("%s: %s: %s: %s", check, word(f, "state"), word(f, "text"), word(f, "mend"));
    if (r.status != (serves ? 0 : 1) || (strcmp(state, "fault") == 0 && serves))
        fail_msg("%s: status %d: %s", check, r.status, r.err);
    json_decref(d);
    cli_free(&r);
}
#define EXPECT(check, state, text, mend, ...) \
    expect((const char *const[]){ "doctor", "--json", __VA_ARGS__, NULL }, check, state, text, mend)

static void a_machine_that_serves(void **state)
{
    (void)state;
    static const char *const checks[] = { "processor", "memory",       "gpu",          "cuda module",
                                          "plugins",   "model",        "open files",   "locked memory",
                                          "port",      "worker-fetch", "model folder", "models" };
    struct cli_result r = CLI("doctor", "--json", "--port", "29871"), t = CLI("doctor");
    json_t *d = document(&r);
    assert_int_equal(r.status, 0);
    assert_true(json_is_true(json_object_get(d, "serves")));
    assert_string_equal(word(d, "device"), "cpu");
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) (void)finding(d, checks[i]);
    assert_string_equal(word(finding(d, "plugins"), "state"), "ok");
    assert_string_equal(word(finding(d, "model"), "state"), "ok");
    assert_string_equal(word(finding(d, "worker-fetch"), "state"), "ok");
    const json_t *all = json_object_get(d, "findings");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (strcmp(word(json_array_get(all, i), "state"), "advice") == 0)
            assert_true(word(json_array_get(all, i), "mend")[0]);
    assert_int_equal(t.status, 0);
    assert_true(matches(t.out, "ok +plugins +[0-9]+: [0-9]+ of architectures, [0-9]+ of formats\n"));
    assert_true(matches(t.out, "\na model can be served on --device cpu\n$"));
    assert_string_equal(t.err, "");
    json_decref(d);
    cli_free(&r);
    cli_free(&t);
}

static void a_port_that_is_taken(void **state)
{
    (void)state;
    char port[16];
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof address;
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0 && bind(s, (struct sockaddr *)&address, sizeof address) == 0 && listen(s, 1) == 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&address, &len), 0);
    (void)snprintf(port, sizeof port, "%u", ntohs(address.sin_port));
    EXPECT("port", "advice", "Address already in use", "^worker serve --port [0-9]+ ", "--port", port);
    (void)close(s);
    EXPECT("port", "ok", "is free", "^$", "--port", port);
    EXPECT("port", "advice", "192.0.2.1 port", "^ip address ", "--host", "192.0.2.1");
}

static void a_model_folder(void **state)
{
    (void)state;
    make_file("it's a file", "", 0);
    assert_int_equal(mkdir("models", 0755), 0);
    EXPECT("model folder", "note", "is not there yet; worker pull makes it", "^mkdir -p '.*/home/.local/share/",
           "--port", "29871");
    EXPECT("model folder", "advice", "is no folder", "^mv 'it'\\\\''s a file' 'it'\\\\''s a file'.old && mkdir -p 'it'",
           "--model-dir", "it's a file");
    EXPECT("model folder", "ok", "models: can be written to, .* free", "^$", "--model-dir", "models");
    EXPECT("models", "note", "none is there", "^worker pull hf:", "--model-dir", "models");
    make_tiny(&(struct tiny_model){ .path = "models/tiny.gguf" });
    EXPECT("models", "ok", "^1 are there: worker list", "^$", "--model-dir", "models");
    if (geteuid() != 0) { /* root may write anywhere */
        assert_int_equal(chmod("models", 0555), 0);
        EXPECT("model folder", "advice", "cannot be written to", "^sudo chown [0-9]+ 'models'", "--model-dir",
               "models");
        assert_int_equal(chmod("models", 0755), 0);
    }
    char *home = strdup(getenv("HOME"));
    assert_non_null(home);
    assert_int_equal(unsetenv("HOME"), 0);
    EXPECT("model folder", "advice", "HOME is not set", "^export WORKER_MODEL_DIR=", "--port", "29871");
    assert_int_equal(setenv("HOME", home, 1), 0);
    free(home);
}

static void limits(void **state)
{
    (void)state;
    char command[8192];
    (void)snprintf(command, sizeof command, "ulimit -n 200; ulimit -l 64; '%s' doctor --json > out.json",
                   WORKER_BINARY);
    assert_int_equal(system(command), 0);
    json_error_t error;
    json_t *d = json_load_file("out.json", 0, &error);
    assert_non_null(d);
    assert_string_equal(word(finding(d, "open files"), "state"), "advice");
    assert_true(matches(word(finding(d, "open files"), "text"), "^200, .* up to 200 .*too few"));
    assert_true(matches(word(finding(d, "open files"), "mend"), "LimitNOFILE"));
    json_decref(d);
}

/* Folders and files that others could write to are refused by the loader. */
static void plugins(void **state)
{
    (void)state;
    shell("mkdir -p p && chmod 755 p && cp \"$1/$2\" p/ && chmod 666 \"p/$2\"", built_plugins, "llama.so");
    EXPECT("plugin", "advice", "p/llama.so: refused: ", "^chmod go-w '.*/p/llama.so'", "--plugin-dir", "p");
    shell("chmod 644 \"$1\" && chmod 777 \"$2\"", "p/llama.so", "p");
    EXPECT("plugin", "advice", "p/llama.so: refused: ", "^chmod go-w '.*/p'", "--plugin-dir", "p");
    assert_int_equal(chmod("p", 0755), 0);
    make_file("p/llama.so", "no plugin", 9);
    EXPECT("plugin", "advice", "p/llama.so: refused: ", "^worker plugin check '.*/p/llama.so'", "--plugin-dir", "p");
}

static void an_installation_that_lacks_everything(void **state)
{
    (void)state;
    cli_program = "prefix/bin/worker";
    assert_int_equal(unsetenv("WORKER_PLUGIN_PATH"), 0);
    EXPECT("plugins", "fault", "^0: 0 of architectures, 0 of formats", "cmake --install", "--port", "29871");
    EXPECT("worker-fetch", "advice", "worker-fetch: No such file.*worker pull", "apt-get install libcurl4", "--port",
           "29871");
    struct cli_result r = CLI("doctor");
    assert_int_equal(r.status, 1);
    assert_true(matches(last_line(r.err), "^worker: error: PLUGIN_REFUSED: no model can be served on --device cpu: "));
    assert_null(strstr(r.out, "a model can be served"));
    cli_free(&r);
    assert_int_equal(setenv("WORKER_PLUGIN_PATH", built_plugins, 1), 0);
    cli_program = WORKER_BINARY;
}

static void gpus(void **state)
{
    (void)state;
    cli_program = "prefix/bin/worker";
    EXPECT("cuda", "ok", "GPU 1 of 2: Fake GPU, 8.59 GB, compute capability 9.0", "^$", "--device", "cuda",
           "--gpu-device", "1");
    EXPECT("model", "ok", "haiku needs [0-9.]+ MB, 7.52 GB available", "^$", "--device", "cuda");
    EXPECT("cuda", "fault", "there is no GPU 7", "^nvidia-smi -L", "--device", "cuda", "--gpu-device", "7");
    static const struct {
        const char *fault, *check, *code;
    } rows[] = { { "no-driver", "cuda", "DEVICE_NOT_FOUND" }, { "full", "model", "INSUFFICIENT_VRAM" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(setenv("WORKER_FAKE", rows[i].fault, 1), 0);
        EXPECT(rows[i].check, "fault", ".", ".", "--device", "cuda");
        struct cli_result r = CLI("doctor", "--device", "cuda"), cpu = CLI("doctor");
        assert_int_equal(r.status, 1);
        assert_non_null(strstr(last_line(r.err), rows[i].code));
        assert_int_equal(cpu.status, 0); /* the processor serves all the same */
        cli_free(&r);
        cli_free(&cpu);
    }
    assert_int_equal(unsetenv("WORKER_FAKE"), 0);
    shell("mv \"$1\" \"$2\"", "prefix/" WORKER_LIBDIR "/worker/device-cuda.so", "away.so");
    EXPECT("cuda module", "fault", "has no device-cuda.so", "WORKER_CUDA=on", "--device", "cuda");
    EXPECT("model", "fault", "--device cuda cannot be used", "^$", "--device", "cuda");
    cli_program = WORKER_BINARY;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_machine_that_serves),
                                        cmocka_unit_test(a_port_that_is_taken),
                                        cmocka_unit_test(a_model_folder),
                                        cmocka_unit_test(limits),
                                        cmocka_unit_test(plugins),
                                        cmocka_unit_test(gpus),
                                        cmocka_unit_test(an_installation_that_lacks_everything) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
