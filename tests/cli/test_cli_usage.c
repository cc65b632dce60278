/* test_cli_usage.c: help, version, environment, and wrong usage: everything that needs no model. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

static void help_names_every_option(void **state)
{
    (void)state;
    for (int c = 0; c < CMD_COUNT; c++) {
        struct cli_result r = CLI(command_table[c].name, "--help"), h = CLI("help", command_table[c].name);
        assert_int_equal(r.status, 0);
        assert_string_equal(r.err, "");
        assert_string_equal(r.out, h.out);
        for (int i = 0; i < OPT_COUNT; i++) {
            const struct option_def *def = &option_table[i];
            char name[64], variable[64], limits[96];
            if (!option_of(def, (enum command)c)) continue;
            (void)snprintf(name, sizeof name, "--%s", def->name);
            option_environment(def, variable);
            option_limits(def, limits, sizeof limits);
            if (!strstr(r.out, name)) fail_msg("worker %s --help: no %s", command_table[c].name, name);
            if (def->environment && !strstr(r.out, variable))
                fail_msg("worker %s --help: no %s", command_table[c].name, variable);
        }
        cli_free(&r);
        cli_free(&h);
    }
}

static void overview_names_every_command(void **state)
{
    (void)state;
    struct cli_result r = CLI("--help"), nothing = cli((const char *const[]){ NULL }, NULL);
    for (int c = 0; c < CMD_COUNT; c++) assert_non_null(strstr(r.out, command_table[c].name));
    assert_int_equal(r.status, 0);
    assert_int_equal(nothing.status, 2);
    assert_string_equal(nothing.out, "");
    assert_string_equal(nothing.err, r.out);
    cli_free(&r);
    cli_free(&nothing);
}

static void version(void **state)
{
    (void)state;
    struct cli_result r = CLI("--version");
    assert_int_equal(r.status, 0);
    assert_true(matches(r.out, "^worker [0-9]+\\.[0-9]+\\.[0-9]+ \\(plugin ABI [0-9]+\\.[0-9]+, "
                               "compiled with [A-Za-z]+ [0-9.]+\\)\n$"));
    cli_free(&r);
}

static const struct {
    const char *args[8];
    const char *pattern;
} wrong[] = {
    { { "rum" }, "rum: unknown command; did you mean run\\?" },
    { { "xyzzy" }, "xyzzy: unknown command; see worker --help" },
    { { "model.v2.gguf" }, "did you mean run --model\\?" },
    { { "embedded:haiku" }, "did you mean run --model\\?" },
    { { "version" }, "did you mean --version\\?" },
    { { "ls" }, "did you mean list\\?" },
    { { "show", "haiku" }, "did you mean inspect\\?" },
    { { "run", "--reasoning", "--prompt", "x" },
      "--reasoning is for chats with models that reason; this model does not; see" },
    { { "help", "rum" }, "did you mean run\\?" },
    { { "run", "--temprature", "1" }, "--temprature: unknown or ambiguous option; did you mean --temperature\\?" },
    { { "run", "--zzzzzzzz" }, "--zzzzzzzz: unknown or ambiguous option; see" },
    { { "run", "-Z" }, "-Z: unknown option" },
    { { "run", "--chat=yes" }, "--chat=yes: takes no value" },
    { { "run", "--seed" }, "--seed: needs a value" },
    { { "run", "--temperature", "2.5" }, "--temperature: expected a number, 0 to 2, default 1, got \"2.5\"" },
    { { "run", "--temperature", "nan" }, "--temperature: expected a number" },
    { { "run", "--temperature", "0.5x" }, "--temperature: expected a number" },
    { { "run", "--top-p", "-0.1" }, "--top-p: expected a number, 0 to 1" },
    { { "run", "--top-k", "-1" }, "--top-k: expected a whole number, 0 to 16777216" },
    { { "run", "--max-tokens", "0" }, "--max-tokens: expected a whole number, 1 to 1048576" },
    { { "run", "--max-tokens", "99999999999999999999" }, "--max-tokens: expected a whole number" },
    { { "run", "--seed", "18446744073709551616" }, "--seed: expected a whole number below 2\\^64" },
    { { "run", "--repetition-penalty", "0" }, "--repetition-penalty: expected a number, 0.01 to 2" },
    { { "run", "--device", "gpu" }, "--device: expected cpu\\|cuda, got \"gpu\"" },
    { { "run", "--isa", "sse9" }, "--isa: expected portable\\|avx2\\|avx512, got \"sse9\"" },
    { { "plugin", "check", "--isa", "AVX2", "p.so" }, "--isa: expected portable\\|avx2\\|avx512, got \"AVX2\"" },
    { { "run", "--device", "cp" }, "--device: expected cpu\\|cuda" },
    { { "run", "--chat", "--raw", "--prompt", "x" }, "--chat and --raw exclude each other" },
    { { "run", "--prompt", "x", "--file", "y" }, "--prompt and --file exclude each other" },
    { { "run", "--stop=" }, "--stop: .*empty" },
    { { "run", "--prompt", "x", "--logit-bias", "7" }, "--logit-bias: .*ID=X" },
    { { "run", "--prompt", "x", "--logit-bias", "7=101" }, "--logit-bias: .*-100 to 100" },
    { { "run", "extra" }, "expected no operands, got 1 operand; did you mean --prompt\\?; see" },
    { { "run", "llama3.2", "Hello" }, "got 2 operands; did you mean --model and --prompt\\?; see" },
    { { "chat", "llama3.2" }, "expected no operands, got 1 operand; did you mean --model\\?; see" },
    { { "status", "http://127.0.0.1:7531" }, "expected no operands, got 1 operand; did you mean --url\\?; see" },
    { { "serve", "model.gguf" }, "expected no operands, got 1 operand; did you mean --model\\?; see" },
    { { "serve", "--model-id", "a\xff" }, "--model-id: expected UTF-8" },
    { { "serve", "--model-id", "a\x1b[2J" }, "--model-id: expected UTF-8" },
    { { "capabilities", "model.gguf" }, "expected no operands, got 1 operand; see" },
    { { "tokenize", "--model", "m" }, "expected either TEXT or --file FILE" },
    { { "tokenize", "--model", "m", "a", "--file", "b" }, "expected either TEXT or --file FILE" },
    { { "tokenize", "text" }, "--model FILE is needed" },
    { { "detokenize", "--model", "m" }, "expected ID..., got 0 operands" },
    { { "score", "--model", "m" }, "expected one of --ids, --text and --file" },
    { { "score", "--model", "m", "--ids", "1", "--text", "x" }, "expected one of --ids, --text and --file" },
    { { "inspect" }, "expected FILE, got 0 operands" },
    { { "audit", "verify" }, "expected verify FILE..., got 1 operand" },
    { { "audit", "show", "log" }, "expected verify FILE..." },
    { { "audit", "verify", "no-such-log" }, "there is no no-such-log.key; name the file of the key with --key-file" },
    { { "admin", "api-keys" }, "expected api-keys list | .*, got 1 operand" },
    { { "admin", "keys", "list" }, "keys: expected api-keys, rate-limits, guardrails, roles, scheduler, models or" },
    { { "admin", "roles", "delete" }, "roles: expected show, replace, got delete" },
    { { "admin", "api-keys", "create" }, "api-keys create: expected an id" },
    { { "admin", "api-keys", "list", "a" }, "api-keys list takes no id" },
    { { "admin", "api-keys", "create", "Alice" }, "Alice: an id has lower-case letters" },
    { { "admin", "api-keys", "create", "a", "--set", "scopes" }, "--set: expected NAME=VALUE, got \"scopes\"" },
    { { "admin", "api-keys", "list", "--set", "a=1" }, "api-keys list sends no object" },
    { { "admin", "api-keys", "list", "--api-key", "k" }, "--api-key: others can see a command line" },
    { { "admin", "models", "show", "--policy-file", "p" }, "models is of a running worker: without --policy-file" },
    { { "cancel" }, "expected JOB, got 0 operands" },
    { { "cancel", "a\xff" }, "expected a job's id in UTF-8" },
    { { "jobs", "--url", "worker:7531" },
      "--url: expected http://HOST:PORT or https://HOST:PORT, got \"worker:7531\"" },
    { { "status", "--api-key", "k" }, "--api-key: others can see a command line" },
    { { "complete", "x", "--file", "y" }, "PROMPT and --file exclude each other" },
    { { "complete", "x", "--prompt", "y" }, "--prompt: unknown or ambiguous option" },
    { { "complete", "--grammar", "-" }, "--grammar -: standard input is the prompt already; give PROMPT or --file" },
    { { "chat", "--url", "http://127.0.0.1:1", "--chat-template", "f" },
      "--chat-template is of a model in this process" },
    { { "chat", "--api-key-file", "f" }, "--api-key-file is of --url, which is not given" },
    { { "chat", "--reasoning-effort", "low" }, "--reasoning-effort is for chats with models that reason; this model" },
    { { "chat", "--url", "ftp://host" }, "--url: expected http://HOST:PORT or https://HOST:PORT" },
    { { "complete", "x", "--ca", "f" }, "--ca is of --url, which is not given" },
    { { "complete", "x", "--url", "http://127.0.0.1:1", "--threads", "2" }, "--threads is of a model in this process" },
    { { "complete", "x", "--url", "http://127.0.0.1:1", "--model", "m" }, "--model is of a model in this process" },
    { { "complete", "x", "--url", "http://127.0.0.1:1", "--prefer", "a=b" }, "--prefer is of a model in this" },
    { { "complete", "x", "--stop=" }, "--stop: the text is empty" },
    { { "complete", "x", "--logit-bias", "7" }, "worker complete: --logit-bias: expected ID=X" },
    { { "plugin", "install" }, "expected list, info FILE, check FILE, check --list or new arch|quant NAME" },
    { { "plugin", "info" }, "expected list, info FILE, check FILE, check --list or new arch|quant NAME" },
    { { "plugin", "new", "arch" }, "expected list, info FILE, check FILE, check --list or new arch|quant NAME" },
    { { "plugin", "check" }, "expected list, info FILE, check FILE, check --list or new arch|quant NAME" },
    { { "plugin", "list", "--list" }, "--list goes with check alone, --only and --model with check FILE" },
    { { "plugin", "check", "--list", "p.so" }, "--list goes with check alone, --only and --model with check FILE" },
    { { "plugin", "info", "--only", "static.note", "p.so" }, "--only and --model with check FILE" },
    { { "plugin", "new", "model", "x" }, "new model: expected arch or quant" },
    { { "plugin", "new", "arch", "" }, "name \"\": expected a letter" },
    { { "plugin", "new", "arch", "../x" }, "name \"\\.\\./x\": expected a letter" },
    { { "plugin", "new", "arch", "a/b" }, "expected a letter and then up to 39" },
    { { "plugin", "new", "arch", "." }, "expected a letter and then up to 39" },
    { { "plugin", "new", "arch", "2x" }, "expected a letter and then up to 39" },
    { { "plugin", "new", "arch", "--", "-x" }, "expected a letter and then up to 39" },
    { { "plugin", "new", "arch", "a\nb" }, "expected a letter and then up to 39" },
    { { "plugin", "new", "arch", "a b" }, "expected a letter and then up to 39" },
    { { "plugin", "new", "arch", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddE" }, "expected a letter and then up to 39" },
    { { "plugin", "new", "arch", "install" }, "has this name already" },
    { { "plugin", "new", "arch", "tiny_model" }, "has this name already" },
    { { "plugin", "new", "quant", "reference" }, "has this name already" },
    { { "plugin", "new", "arch", "x-cuda" }, "that of a format's CUDA module" },
    { { "plugin", "new", "arch", "x", "--id", "Org.example.x" }, "--id .* expected org.example.name" },
    { { "plugin", "new", "arch", "x", "--id", "org..x" }, "--id .* expected org.example.name" },
    { { "plugin", "list", "--id", "org.example.x" }, "--id goes with new" },
    { { "quantize", "a", "b" }, "expected IN OUT TYPE, got 2 operands" },
    { { "debug", "tap", "--model", "m", "--text", "x" }, "tap needs --tap NAME and --out DIR" },
    { { "pull" }, "expected hf:ORG/NAME\\[:QUANT\\|/FILE\\], got 0 operands" },
    { { "pull", "org/name" }, "org/name: expected hf:ORG/NAME, hf:ORG/NAME:QUANTIZATION or hf:ORG/NAME/FILE.gguf" },
    { { "grammar" }, "expected one of --schema FILE, --grammar FILE and --regex REGEX" },
    { { "debug", "dump" }, "expected tap, tape or kernels" },
};

static void wrong_usage(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct cli_result r = cli(wrong[i].args, NULL);
        if (r.status != 2 || r.out[0] || !matches(r.err, wrong[i].pattern) ||
            strchr(r.err, '\n') != r.err + strlen(r.err) - 1)
            fail_msg("row %zu: status %d\nstandard output: %s\nstandard error: %s\nexpected: %s", i, r.status, r.out,
                     r.err, wrong[i].pattern);
        cli_free(&r);
    }
}

static void stop_is_limited_to_four(void **state)
{
    (void)state;
    struct cli_result r = CLI("run", "--stop", "a", "--stop", "b", "--stop", "c", "--stop", "d", "--stop", "e");
    assert_int_equal(r.status, 2);
    assert_true(matches(r.err, "--stop: given more than 4 times"));
    cli_free(&r);
}

static void environment_is_checked_like_a_flag(void **state)
{
    (void)state;
    assert_int_equal(setenv("WORKER_TEMPERATURE", "3", 1), 0);
    struct cli_result bad = CLI("run", "--prompt", "x");
    assert_int_equal(setenv("WORKER_TEMPERATURE", "1", 1), 0);
    assert_int_equal(setenv("WORKER_EXACT", "maybe", 1), 0);
    struct cli_result flag = CLI("run", "--prompt", "x");
    assert_int_equal(unsetenv("WORKER_EXACT") | unsetenv("WORKER_TEMPERATURE"), 0);
    assert_int_equal(bad.status, 2);
    assert_true(matches(bad.err, "WORKER_TEMPERATURE: expected a number, 0 to 2"));
    assert_int_equal(flag.status, 2);
    assert_true(matches(flag.err, "WORKER_EXACT: expected 1 or 0, got \"maybe\""));
    cli_free(&bad);
    cli_free(&flag);
}

static void write_config(const char *text)
{
    FILE *f = fopen("worker.ini", "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Status and pattern of `worker COMMAND --config worker.ini` with what the command needs besides. */
static void expect_config(const char *const *args, const char *text, int status, const char *pattern)
{
    write_config(text);
    struct cli_result r = cli(args, "Hello");
    if (r.status != status || !matches(r.err, pattern))
        fail_msg("worker %s with\n%s\nstatus %d, standard error: %s\nexpected: %s", args[0], text, r.status, r.err,
                 pattern);
    cli_free(&r);
}

static void every_command_reads_a_file(void **state)
{
    (void)state;
    static const char *const commands[][8] = {
        { "run", "--config", "worker.ini" },
        { "complete", "x", "--config", "worker.ini" },
        { "chat", "--config", "worker.ini" },
        { "render", "--model", "embedded:haiku", "--messages", "m", "--config", "worker.ini" },
        { "tokenize", "--model", "embedded:haiku", "x", "--config", "worker.ini" },
        { "detokenize", "--model", "embedded:haiku", "5", "--config", "worker.ini" },
        { "score", "--text", "x y", "--config", "worker.ini" },
        { "embed", "x", "--config", "worker.ini" },
        { "inspect", "embedded:haiku", "--config", "worker.ini" },
        { "plan", "embedded:haiku", "--config", "worker.ini" },
        { "capabilities", "--config", "worker.ini" },
        { "plugin", "list", "--config", "worker.ini" },
        { "quantize", "a", "b", "Q4_0", "--config", "worker.ini" },
        { "imatrix", "--text", "x y", "--out", "f", "--config", "worker.ini" },
        { "verify", "--config", "worker.ini" },
        { "bench", "--config", "worker.ini" },
        { "debug", "tape", "--config", "worker.ini" },
        { "grammar", "--regex", "a", "--config", "worker.ini" },
        { "audit", "verify", "log", "--config", "worker.ini" },
        { "serve", "--config", "worker.ini" },
        { "admin", "api-keys", "list", "--config", "worker.ini" },
        { "status", "--config", "worker.ini" },
        { "jobs", "--config", "worker.ini" },
        { "cancel", "x", "--config", "worker.ini" },
        { "models", "--config", "worker.ini" },
        { "metrics", "--config", "worker.ini" },
        { "pull", "hf:org/name", "--config", "worker.ini" },
        { "list", "--config", "worker.ini" },
        { "doctor", "--config", "worker.ini" },
        { "help", "run", "--config", "worker.ini" },
    };
    assert_int_equal(sizeof commands / sizeof *commands, CMD_COUNT);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        expect_config(commands[i], "prot = 7\n", 2, "worker.ini:1: unknown key prot; see worker ");
        expect_config(commands[i], "\xef\xbb\xbf# c\n[a]\nx = 1\n", 2, "worker.ini:3: unknown key a.x");
        expect_config(commands[i], "seed = 1\nport = 80\n", 2, "worker.ini:2: port: expected a whole number, 1024 to");
        expect_config(commands[i], "seed = 1\ntemperature = 3\n", 2, "worker.ini:2: temperature: expected a number");
    }
    /* The file of a service, as the other commands read it: what is theirs is taken. */
    static const char shared[] = "\xef\xbb\xbfport = 7531\nseed = 77\nmax_tokens = 3\nmax_sequences = 16\n"
                                 "origin = https://a.example\n[scheduler.fairness]\nenable_preemption = true\n";
    expect_config(commands[CMD_RUN], shared, 0, " 3 tokens in .*, seed 77, ");
    expect_config(commands[CMD_PLAN], shared, 0, "^$");
    expect_config((const char *const[]){ "run", "--config", "worker.ini", "--seed", "5", NULL }, shared, 0, "seed 5, ");
    expect_config((const char *const[]){ "run", "--help", "--config", "worker.ini", NULL }, "prot = 7\n", 0, "^$");
}

static void keys_of_attention(void **state)
{
    (void)state;
    static const char *const run[] = { "run", "-n", "3", "--config", "worker.ini", NULL }, *const cuda[] = {
        "plan", "embedded:haiku", "--device", "cuda", "--config", "worker.ini", NULL
    };
    static const char said[] = "have no effect: --device cpu computes attention its own way";
    expect_config(run, "[runtime.cuda.flash_attention]\nenabled = false\ntile_size = 256\n", 0, said);
    expect_config(run, "runtime.cuda.flash_attention.enabled = on\n", 0, said);
    expect_config(run, "seed = 1\n", 0, "^worker: [0-9]+ prompt tokens");
    expect_config(run, "runtime.cuda.flash_attention.enabled = maybe\n", 2,
                  "worker.ini:1: runtime.cuda.flash_attention.enabled: expected on or off, got \"maybe\"");
    expect_config(run, "runtime.cuda.flash_attention.tile_size = 0\n", 2, "expected a whole number, 16 to 1024");
    expect_config(cuda, "runtime.cuda.flash_attention.enabled = false\n", 2,
                  "--cuda-flash-attention off: --device cuda");
    expect_config(cuda, "runtime.cuda.flash_attention.tile_size = 256\n", 2, "--cuda-flash-tile: .* got 256");
    assert_int_equal(setenv("WORKER_CUDA_FLASH_ATTENTION", "0", 1), 0);
    expect_config(cuda, "", 2, "--cuda-flash-attention off: --device cuda");
    expect_config(run, "", 0, said);
    assert_int_equal(unsetenv("WORKER_CUDA_FLASH_ATTENTION"), 0);
}

static void unknown_variables_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        int status;
        const char *pattern;
    } rows[] = {
        { "WORKER_SEDD", "1", 2, "^worker run: WORKER_SEDD: unknown variable; did you mean WORKER_SEED\\?" },
        { "WORKER_XYZZY_PLUGH", "", 2, "WORKER_XYZZY_PLUGH: unknown variable; see worker run --help" },
        { "WORKER_PROMPT", "x", 2, "WORKER_PROMPT: unknown variable" },
        { "WORKER_SERVICES", "x", 2, "WORKER_SERVICES: unknown variable" },
        { "WORKER_X_PORT", "80", 2, "WORKER_X_PORT: unknown variable" },
        { "WORKER_PORT", "8000", 0, "^worker: [0-9]+ prompt" }, /* another command's */
        { "WORKER_TEST_VOCAB", "x", 0, "^worker: [0-9]+ prompt" },
        { "WORKER_PORT", "tcp://10.0.0.1:80", 0,
          "^worker: warning: 1 variables of Kubernetes. service links .*WORKER_PORT" },
        { "WORKER_SERVICE_HOST", "10.0.0.1", 0, "^worker: warning: 1 variables" },
        { "WORKER_CHAT_SERVICE_PORT_HTTP", "80", 0, "^worker: warning: 1 variables" },
        { "WORKER_CHAT_PORT", "udp://10.0.0.1:80", 0, "^worker: warning: 1 variables" },
        { "WORKER_PORT_80_TCP_ADDR", "10.0.0.1", 0, "^worker: warning: 1 variables" },
        { "WORKER_PORT_80_TCP", "tcp://10.0.0.1:80", 0, "^worker: warning: 1 variables" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(setenv(rows[i].name, rows[i].value, 1), 0);
        struct cli_result r = CLI("run", "--prompt", "x", "-n", "2");
        assert_int_equal(unsetenv(rows[i].name), 0);
        if (r.status != rows[i].status || !matches(r.err, rows[i].pattern))
            fail_msg("%s=%s: status %d: %s", rows[i].name, rows[i].value, r.status, r.err);
        cli_free(&r);
    }
}

static void full_disk_is_a_failure(void **state)
{
    (void)state;
    assert_int_equal(system("'" WORKER_BINARY "' --help >/dev/full 2>full.txt"), 1 << 8);
    assert_int_equal(system("grep -q 'OUTPUT_FAILED: standard output cannot be written' full.txt"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(help_names_every_option),
                                        cmocka_unit_test(overview_names_every_command),
                                        cmocka_unit_test(version),
                                        cmocka_unit_test(wrong_usage),
                                        cmocka_unit_test(stop_is_limited_to_four),
                                        cmocka_unit_test(environment_is_checked_like_a_flag),
                                        cmocka_unit_test(every_command_reads_a_file),
                                        cmocka_unit_test(keys_of_attention),
                                        cmocka_unit_test(unknown_variables_are_refused),
                                        cmocka_unit_test(full_disk_is_a_failure) };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
