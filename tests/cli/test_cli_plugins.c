/* test_cli_plugins.c: plugins that end the process where the host calls them, and plugins that nobody needs. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "maker.h"

static char folder[512];

/* A folder "p" with these of the zoo. */
static void put(const char *zoo)
{
    char command[1400];
    (void)snprintf(command, sizeof command, "mkdir -p p && chmod 755 p && cp '%s/%s.so' p/ && chmod 644 p/%s.so",
                   ZOO_DIR, zoo, zoo);
    assert_int_equal(system(command), 0);
}

static void take(void) { assert_int_equal(system("rm -rf p"), 0); }

static struct cli_result run_zoo(const char *where)
{
    static const char prefer[] = "ggml:0=org.example.end";
    if (strcmp(where, "scratch_bytes") == 0 || strcmp(where, "tile_bytes") == 0)
        return CLI("plan", "tiny.gguf", "--plugin-dir", folder, "--prefer", prefer);
    if (strcmp(where, "quantize") == 0)
        return CLI("quantize", "half.gguf", "out.gguf", "F32", "--plugin-dir", folder, "--prefer", prefer);
    if (strcmp(where, "dequantize") == 0 || strcmp(where, "pack") == 0 || strcmp(where, "product") == 0)
        return CLI("run", "-m", "tiny.gguf", "-p", "a", "-n", "1", "--plugin-dir", folder, "--prefer", prefer);
    return CLI("debug", "tape", "-m", "zoo.gguf", "--plugin-dir", folder);
}

/* Every way out, from every function that the host calls: status 1, and a last line that names plugin and call. */
static void each_end(void **state)
{
    (void)state;
    static const struct {
        const char *how, *said;
    } hows[] = {
        { "segv", "ended with SIGSEGV" },     { "fpe", "ended with SIGFPE" },
        { "abort", "ended with SIGABRT" },    { "exit", "called exit" },
        { "quick_exit", "called exit" },
#if !defined(THREAD_SANITIZED) /* whose own stack of calls ends first */
        { "overflow", "ended with SIGSEGV" },
#endif
    };
    static const char *const wheres[] = { "constructors", "init",       "open",   "record",
                                          "close",        "tile_bytes", "pack",   "scratch_bytes",
                                          "dequantize",   "quantize",   "product" };
    for (size_t w = 0; w < sizeof wheres / sizeof *wheres; w++)
        for (size_t h = 0; h < sizeof hows / sizeof *hows; h++) {
            char end[64], line[256];
            put(w < 5 ? "end_arch" : "end_quant");
            (void)snprintf(end, sizeof end, "%s:%s", hows[h].how, wheres[w]);
            (void)snprintf(line, sizeof line,
                           "^worker: error: INTERNAL: plugin end_(arch|quant)\\.so %s while the host called its %s; ",
                           hows[h].said, wheres[w]);
            assert_int_equal(setenv("ZOO_END", end, 1), 0);
            struct cli_result r = run_zoo(wheres[w]);
            if (r.status != 1 || !matches(last_line(r.err), line))
                fail_msg("%s: status %d, \"%s\"", end, r.status, r.err);
            cli_free(&r);
            take();
        }
    assert_int_equal(unsetenv("ZOO_END"), 0);
    assert_int_equal(access("out.gguf", F_OK), -1);
}

static void end_as_event(void **state)
{
    (void)state;
    take();
    put("end_arch");
    assert_int_equal(setenv("ZOO_END", "segv:open", 1), 0);
    struct cli_result r = CLI("debug", "tape", "-m", "zoo.gguf", "--plugin-dir", folder, "--log", "json");
    assert_int_equal(unsetenv("ZOO_END"), 0);
    assert_int_equal(r.status, 1);
    json_t *event = json_loads(last_line(r.err), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(event, "event")), "error");
    assert_string_equal(json_string_value(json_object_get(event, "code")), "INTERNAL");
    assert_true(
        matches(json_string_value(json_object_get(event, "message")), "^plugin end_arch.so ended with SIGSEGV"));
    json_decref(event);
    cli_free(&r);
    take();
}

/* A plugin that would end the process when it is mapped is not, by any command that does not need it. */
static void only_what_is_needed(void **state)
{
    (void)state;
    take();
    static const char *const commands[][8] = {
        { "run", "-m", "tiny.gguf", "-p", "a", "-n", "1" },
        { "inspect", "tiny.gguf" },
        { "plan", "tiny.gguf" },
        { "capabilities" },
        { "plugin", "list" },
        { "quantize", "tiny.gguf", "again.gguf", "F16" },
    };
    put("end_arch");
    assert_int_equal(setenv("ZOO_END", "segv:constructors", 1), 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const char *args[12];
        int n = 0;
        while (n < 8 && commands[i][n]) {
            args[n] = commands[i][n];
            n++;
        }
        args[n++] = "--plugin-dir";
        args[n++] = folder;
        args[n] = NULL;
        struct cli_result r = cli(args, NULL);
        if (r.status != 0) fail_msg("%s: status %d, \"%s\"", args[0], r.status, r.err);
        if (strcmp(args[0], "capabilities") == 0) assert_true(matches(r.out, "supports_architecture .*zoo"));
        cli_free(&r);
    }
    assert_int_equal(unsetenv("ZOO_END"), 0);
    take();
}

/* Two plugins that claim one architecture stop its models, and no others. */
static void ambiguous(void **state)
{
    (void)state;
    take();
    put("arch_other");
    put("arch_rival");
    struct cli_result other = CLI("run", "-m", "tiny.gguf", "-p", "a", "-n", "1", "--plugin-dir", folder),
                      zoo = CLI("debug", "tape", "-m", "zoo.gguf", "--plugin-dir", folder),
                      chosen = CLI("debug", "tape", "-m", "zoo.gguf", "--plugin-dir", folder, "--prefer",
                                   "arch:zoo=org.example.other-arch");
    assert_int_equal(other.status, 0);
    assert_int_equal(zoo.status, 1);
    assert_true(matches(
        zoo.err, "two plugins serve arch:zoo: org.example.other-arch .*--prefer arch:zoo=org.example.other-arch"));
    if (chosen.status != 0) fail_msg("%s", chosen.err);
    cli_free(&other);
    cli_free(&zoo);
    cli_free(&chosen);
    take();
}

/* What --plugin-option gives reaches the plugin; what no plugin asks for is refused, as is what is no option. */
static void options(void **state)
{
    (void)state;
    static const struct {
        const char *given, *words;
        int status;
    } rows[] = {
        { "org.example.zoo.greeting=good=morning", "good=morning", 0 },
        { "org.example.zoo.greetings=hello",
          "--plugin-option org.example.zoo.greetings: no plugin that this model uses", 1 },
        { "org.example.else.greeting=hello", "no plugin that this model uses asks for it", 1 },
        { "greeting=hello", "expected ID.KEY=VALUE", 1 },
        { "org.example.zoo.=hello", "expected ID.KEY=VALUE", 1 },
    };
    take();
    put("arch");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cli_result r =
            CLI("debug", "tape", "-m", "zoo.gguf", "--plugin-dir", folder, "--plugin-option", rows[i].given);
        if (r.status != rows[i].status || !strstr(r.err, rows[i].words))
            fail_msg("%s: %d, %s", rows[i].given, r.status, r.err);
        cli_free(&r);
    }
    take();
}

/* A list that names one plugin of the zoo: by flag, variable and file; what is not on it is refused with its digest. */
static void digests(void **state)
{
    (void)state;
    static const char not_listed[] = "/p/arch.so: its SHA-256, [0-9a-f]{64}, is not on the list of --plugin-digest, ";
    take();
    put("arch");
    put("conflict");
    assert_int_equal(
        system("sha256sum p/conflict.so > one.list && sha256sum p/*.so > both.list && echo x > bad.list && "
               "chmod 644 *.list && echo 'plugin_digest = one.list' > one.ini"),
        0);
    struct cli_result info = CLI("plugin", "info", "p/arch.so", "--plugin-digest", "one.list"),
                      check = CLI("plugin", "check", "p/arch.so", "--plugin-digest", "one.list"),
                      other = CLI("plugin", "check", "p/conflict.so", "--plugin-digest", "one.list"),
                      list = CLI("plugin", "list", "--plugin-dir", folder, "--config", "one.ini"),
                      run = CLI("run", "-m", "tiny.gguf", "-p", "a", "-n", "1", "--plugin-digest", "one.list"),
                      tape = CLI("debug", "tape", "-m", "zoo.gguf", "--plugin-dir", folder, "--plugin-digest",
                                 "both.list"),
                      bad = CLI("plugin", "list", "--plugin-digest", "bad.list"),
                      none = CLI("plugin", "list", "--plugin-digest", "none.list");
    assert_int_equal(setenv("WORKER_PLUGIN_DIGEST", "one.list", 1), 0);
    struct cli_result by_variable = CLI("plugin", "info", "p/arch.so");
    assert_int_equal(unsetenv("WORKER_PLUGIN_DIGEST"), 0);
    const struct {
        struct cli_result *r;
        int status;
        const char *out, *err;
    } rows[] = {
        { &info, 1, NULL, not_listed },
        { &check, 1, "(^|\n)fail  static.digest\n.*its SHA-256, [0-9a-f]{64}, is not on the list of --plugin-digest, ",
          NULL },
        { &by_variable, 1, NULL, not_listed },
        { &other, 0, "(^|\n)pass  static.digest\n.* 0 failed\n$", NULL },
        { &list, 0, "(^|\n)refused  +- +- +- +[0-9a-f]{64} .*/p/arch.so\n +its SHA-256, [0-9a-f]{64}, is not on",
          NULL },
        { &list, 0, "(^|\n)found +org.example.rival +ggml:200 +- +[0-9a-f]{64} .*/p/conflict.so", NULL },
        { &run, 1, NULL, "plugins/llama.so: its SHA-256, [0-9a-f]{64}, is not on the list" },
        { &tape, 1, NULL, "quant-basic.so: its SHA-256" },
        { &bad, 1, NULL, "PLUGIN_REFUSED: --plugin-digest bad.list: line 1: begins with 0 hex digits" },
        { &none, 1, NULL, "PLUGIN_REFUSED: --plugin-digest none.list: cannot open: No such file" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct cli_result *r = rows[i].r;
        if (r->status != rows[i].status || (rows[i].out && !matches(r->out, rows[i].out)) ||
            (rows[i].err && !matches(r->err, rows[i].err)))
            fail_msg("row %zu: %d, \"%s\", \"%s\"", i, r->status, r->out, r->err);
        if (i != 4) cli_free(rows[i].r);
    }
    take();
}

static long bytes_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

/* What the checks themselves tell is test_check's; here is what the command makes of it. */
static void checks(void **state)
{
    (void)state;
    put("arch");
    put("two_notes");
    struct cli_result good = CLI("plugin", "check", "p/arch.so"), bad = CLI("plugin", "check", "p/two_notes.so"),
                      json = CLI("plugin", "check", "--json", "p/two_notes.so"),
                      only = CLI("plugin", "check", "--only", "static.id", "--only", "static.elf", "p/arch.so"),
                      none = CLI("plugin", "check", "--only", "static.nothing", "p/arch.so"),
                      absent = CLI("plugin", "check", "p/absent.so"), list = CLI("plugin", "check", "--list"),
                      table = CLI("plugin", "check", "--list", "--json");
    if (good.status != 0) fail_msg("%s%s", good.out, good.err);
    assert_true(matches(good.out, " 0 failed\n$"));
    assert_string_equal(good.err, "");
    assert_int_equal(bad.status, 1);
    assert_true(matches(bad.out, "\nfail  static\\.note\n      rule: It has one note.*\n      has 2 notes; use "));
    assert_true(matches(bad.out, "\nskip  static\\.exports\n      not looked at: static\\.note failed\n"));
    assert_true(matches(last_line(bad.err), "PLUGIN_REFUSED: .*p/two_notes\\.so: 1 of [0-9]* checks failed: static"));
    assert_int_equal(json.status, 1);
    json_t *d = json_loads(json.out, 0, NULL), *c = json_array_get(json_object_get(d, "checks"), 6);
    assert_int_equal(json_integer_value(json_object_get(d, "failed")), 1);
    assert_string_equal(json_string_value(json_object_get(c, "id")), "static.note");
    assert_string_equal(json_string_value(json_object_get(c, "group")), "static");
    assert_string_equal(json_string_value(json_object_get(c, "result")), "fail");
    assert_int_equal(json_array_size(json_object_get(c, "details")), 1);
    json_decref(d);
    assert_int_equal(only.status, 0);
    assert_true(matches(only.out, "^pass  static\\.elf\npass  static\\.id\n2 checks: 2 passed"));
    assert_int_equal(none.status, 2);
    assert_true(matches(none.err, "--only static\\.nothing: there is no check of this id"));
    assert_int_equal(absent.status, 1);
    assert_int_equal(list.status, 0);
    assert_true(matches(list.out, "^static\\.file  *A plugin is a regular file"));
    d = json_loads(table.out, 0, NULL);
    assert_true(json_array_size(json_object_get(d, "checks")) > 40);
    json_decref(d);
    struct cli_result *const all[] = { &good, &bad, &json, &only, &none, &absent, &list, &table };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cli_free(all[i]);
    take();
}

/* What is there already stays as it is, whatever it is; nothing is written beside it. sdk/tests/new.cmake builds and
 * runs what is written. */
static void new_folder(void **state)
{
    (void)state;
    struct cli_result r = CLI("plugin", "new", "arch", "brand", "--json");
    assert_int_equal(r.status, 0);
    json_t *d = json_loads(r.out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(d, "folder")), "brand");
    assert_string_equal(json_string_value(json_object_get(d, "id")), "org.example.brand");
    json_t *files = json_object_get(d, "files");
    char path[300];
    for (size_t i = 0; i < json_array_size(files); i++) {
        (void)snprintf(path, sizeof path, "brand/%s", json_string_value(json_array_get(files, i)));
        assert_true(bytes_of(path) > 0);
    }
    assert_true(json_array_size(files) >= 4);
    json_decref(d);
    cli_free(&r);
    struct stat st;
    assert_int_equal(stat("brand", &st), 0);
    assert_int_equal(st.st_mode & (S_IWGRP | S_IWOTH), 0);

    assert_int_equal(system("rm brand/Makefile && echo mine > file && ln -s nowhere dangling && mkdir empty"), 0);
    static const char *const there[] = { "brand", "file", "dangling", "empty" };
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        r = CLI("plugin", "new", "arch", there[i]);
        if (r.status != 1 || !matches(r.err, "^worker: error: OUTPUT_FAILED: [a-z]+: exists already; choose another"))
            fail_msg("%s: %d, %s", there[i], r.status, r.err);
        cli_free(&r);
    }
    assert_int_equal(bytes_of("brand/Makefile"), -1);
    assert_int_equal(bytes_of("file"), 5);
    assert_int_equal(bytes_of("nowhere"), -1);
    assert_int_equal(rmdir("empty"), 0);
}

/* No room: an error, and no half of a folder. */
static void new_folder_cut_short(void **state)
{
    (void)state;
    char command[1400];
    (void)snprintf(command, sizeof command, "ulimit -f 4; '%s' plugin new arch short 2>said; test $? = 1", cli_program);
    assert_int_equal(system(command), 0);
    assert_int_equal(system("grep -q 'OUTPUT_FAILED: short: File too large' said"), 0);
    assert_int_equal(access("short", F_OK), -1);
}

/* A product that is wrong for one instruction set: found where that is tried, and only there. */
static void checks_of_a_set(void **state)
{
    (void)state;
    take();
    put("format_rough_avx2");
    struct cli_result portable = CLI("plugin", "check", "p/format_rough_avx2.so", "--only", "quant.product", "--isa",
                                     "portable"),
                      avx2 =
                          CLI("plugin", "check", "p/format_rough_avx2.so", "--only", "quant.product", "--isa", "avx2"),
                      speed = CLI("plugin", "check", "p/format_rough_avx2.so", "--only", "performance.product", "--isa",
                                  "portable");
    assert_int_equal(portable.status, 0);
    if (avx2.status == 2) /* a processor without it says so */
        assert_true(matches(avx2.err, "--isa: this processor has no avx2; it has portable"));
    else
        assert_true(avx2.status == 1 && matches(avx2.out, "quant.product.*product for avx2 with F32 activations"));
    assert_int_equal(speed.status, 0);
    assert_true(matches(speed.out, "for portable, one thread: 1 row [0-9.]+ GB/s of weights, where memory gives"));
    cli_free(&portable);
    cli_free(&avx2);
    cli_free(&speed);
    take();
}

static int setup(void **state)
{
    const int result = enter_scratch(state);
    char here[256];
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    make_zoo("zoo.gguf");
    if (!getcwd(here, sizeof here)) return -1;
    (void)snprintf(folder, sizeof folder, "%s/p", here);
    struct cli_result r = CLI("quantize", "tiny.gguf", "half.gguf", "F16");
    assert_int_equal(r.status, 0);
    cli_free(&r);
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_end),
                                        cmocka_unit_test(end_as_event),
                                        cmocka_unit_test(only_what_is_needed),
                                        cmocka_unit_test(ambiguous),
                                        cmocka_unit_test(options),
                                        cmocka_unit_test(digests),
                                        cmocka_unit_test(checks),
                                        cmocka_unit_test(checks_of_a_set),
                                        cmocka_unit_test(new_folder),
                                        cmocka_unit_test(new_folder_cut_short) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
