/* test_cli_machine.c: closed and full outputs, outputs that are no regular files, and limits of the process and its
 * control groups. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "maker.h"
#include "options.h"

/* A way to call each command that succeeds. */
static const char *const calls[CMD_COUNT] = {
    [CMD_RUN] = "run -m tiny.gguf -p a -n 1",
    [CMD_COMPLETE] = "complete a -m tiny.gguf -n 1",
    [CMD_CHAT] = "chat -n 1 <hello",
    [CMD_RENDER] = "render --template chat.jinja --context chat.json --as-is",
    [CMD_TOKENIZE] = "tokenize -m tiny.gguf a",
    [CMD_DETOKENIZE] = "detokenize -m tiny.gguf 5",
    [CMD_SCORE] = "score -m tiny.gguf --text abc",
    [CMD_EMBED] = "embed -m \"$WORKER_GOLDENS/bert-mean.gguf\" word1",
    [CMD_INSPECT] = "inspect tiny.gguf",
    [CMD_PLAN] = "plan tiny.gguf",
    [CMD_CAPABILITIES] = "capabilities",
    [CMD_PLUGIN] = "plugin list",
    [CMD_IMATRIX] = "imatrix -m tiny.gguf --text abcdef -o out.gguf",
    [CMD_QUANTIZE] = "quantize tiny.gguf out.gguf F16",
    [CMD_VERIFY] = "verify -m tiny.gguf --device cpu",
    [CMD_BENCH] = "bench -m tiny.gguf -p 4 -n 1 -r 1",
    [CMD_DEBUG] = "debug tape -m tiny.gguf",
    [CMD_GRAMMAR] = "grammar --regex a+",
    [CMD_AUDIT] = "audit verify --key-file audit.key audit.log",
    [CMD_ADMIN] = "admin api-keys list --policy-file policy",
    [CMD_STATUS] = "status --url http://127.0.0.1:1",
    [CMD_JOBS] = "jobs --url http://127.0.0.1:1",
    [CMD_CANCEL] = "cancel x --url http://127.0.0.1:1",
    [CMD_MODELS] = "models --url http://127.0.0.1:1",
    [CMD_METRICS] = "metrics --url http://127.0.0.1:1",
    [CMD_PULL] = "pull hf:org/name", /* with a hub: tests/hub */
    [CMD_LIST] = "list --model-dir .",
    [CMD_DOCTOR] = "doctor",
    [CMD_HELP] = "help",
};

/* Exit status of a shell's command; `text`: what it wrote to standard error. */
static int shell(const char *command, char text[4096])
{
    char line[2048];
    (void)snprintf(line, sizeof line, "%s 2>err.txt", command);
    const int status = system(line);
    FILE *f = fopen("err.txt", "r");
    assert_non_null(f);
    text[fread(text, 1, 4095, f)] = '\0';
    (void)fclose(f);
    (void)unlink("err.txt");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

static void closed_output(void **state)
{
    (void)state;
    char command[512], text[4096];
    for (int c = 0; c < CMD_COUNT; c++) {
        if (c == CMD_SERVE) continue; /* tests/serve/test_life.py: it serves */
        assert_non_null(calls[c]);
        (void)snprintf(command, sizeof command, "'%s' %s >&-", WORKER_BINARY, calls[c]);
        const int status = shell(command, text);
        if (status != 1 || !matches(text, "worker: error: OUTPUT_FAILED: standard output is closed"))
            fail_msg("%s: status %d, \"%s\"", command, status, text);
    }
    static const char *const more[] = { "--version", "-V", "--help", "-h", "run --help", "help run" };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        (void)snprintf(command, sizeof command, "'%s' %s >&-", WORKER_BINARY, more[i]);
        if (shell(command, text) != 1) fail_msg("%s: \"%s\"", command, text);
    }
    assert_int_equal(access("out.gguf", F_OK), -1);
}

static void full_output(void **state)
{
    (void)state;
    char command[512], text[4096];
    for (int c = 0; c < CMD_COUNT; c++) {
        if (c == CMD_QUANTIZE || c == CMD_IMATRIX || c == CMD_SERVE || c == CMD_VERIFY || c == CMD_PULL)
            continue;                                      /* they print nothing there, or fail */
        if (c >= CMD_STATUS && c <= CMD_METRICS) continue; /* tests/serve/test_remote.py: a worker must answer */
        assert_non_null(calls[c]);
        (void)snprintf(command, sizeof command, "'%s' %s >/dev/full", WORKER_BINARY, calls[c]);
        const int status = shell(command, text);
        if (status != 1 || !matches(text, "worker: error: OUTPUT_FAILED: "))
            fail_msg("%s: status %d, \"%s\"", command, status, text);
    }
}

/* Every command that writes a file leaves a FIFO a FIFO, and a link a link. */
static void special_outputs(void **state)
{
    (void)state;
    static const char *const writers[] = { "quantize tiny.gguf out F16", "score -m tiny.gguf --text abc --logits out" };
    char command[512], text[4096];
    struct stat st;
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        assert_int_equal(mkfifo("out", 0600), 0);
        (void)snprintf(command, sizeof command,
                       "{ timeout 60 cat out >copy & timeout 60 '%s' %s; s=$?; wait; exit $s; }", WORKER_BINARY,
                       writers[i]);
        if (shell(command, text) != 0) fail_msg("%s: \"%s\"", writers[i], text);
        assert_true(lstat("out", &st) == 0 && S_ISFIFO(st.st_mode));
        assert_true(stat("copy", &st) == 0 && st.st_size > 0);
        const off_t size = st.st_size;
        assert_int_equal(unlink("out"), 0);

        assert_int_equal(symlink("target", "out"), 0);
        make_file("target", "old", 3);
        (void)snprintf(command, sizeof command, "'%s' %s", WORKER_BINARY, writers[i]);
        if (shell(command, text) != 0) fail_msg("%s: \"%s\"", writers[i], text);
        assert_true(lstat("out", &st) == 0 && S_ISLNK(st.st_mode));
        assert_true(lstat("target", &st) == 0 && S_ISREG(st.st_mode) && st.st_size == size);
        assert_int_equal(unlink("target"), 0);
        assert_int_equal(shell(command, text), 1);
        assert_true(matches(text, "OUTPUT_FAILED: out: is a symbolic link that leads nowhere"));
        assert_int_equal(unlink("out") | unlink("copy"), 0);
    }
}

/* A limit on file sizes is an error that leaves nothing, also where plugins cannot be copied to memory. */
static void file_size_limit(void **state)
{
    (void)state;
    char command[512], text[4096];
    const unsigned before = files_here();
    for (int blocks = 8; blocks <= 65536; blocks *= 2) {
        (void)snprintf(command, sizeof command, "ulimit -f %d; '%s' quantize tiny.gguf out.gguf F32", blocks,
                       WORKER_BINARY);
        const int status = shell(command, text);
        if (status != 0 && (status != 1 || !matches(text, "File too large"))) fail_msg("%d: \"%s\"", status, text);
        if (status == 0) assert_int_equal(unlink("out.gguf"), 0);
        assert_int_equal(files_here(), before);
    }
}

/* In a mount namespace of its own the process sees control groups as the test wants them. */
static void control_groups(void **state)
{
    (void)state;
    static const struct {
        const char *files; /* below /sys/fs/cgroup */
        const char *available;
    } rows[] = {
        { "echo '100000 100000' >$g/cpu.max; echo 123456789 >$g/memory.max", "123456789" },
        { "mkdir -p $g/cpu $g/memory; echo 50000 >$g/cpu/cpu.cfs_quota_us; echo 100000 >$g/cpu/cpu.cfs_period_us; "
          "echo 100000000 >$g/memory/memory.limit_in_bytes",
          "100000000" },
    };
    static const char groups[] =
        "printf '1:cpu:/\\n2:memory:/\\n0::/\\n' >cgroup && mount --bind cgroup /proc/$$/cgroup";
    char command[1024], text[4096];
    if (geteuid() != 0) skip();
    (void)snprintf(command, sizeof command, "unshare -m sh -c \"mount -t tmpfs none /sys/fs/cgroup && %s\"", groups);
    if (shell(command, text) != 0) skip(); /* a container that may not */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)snprintf(command, sizeof command,
                       "unshare -m sh -c \"mount -t tmpfs none /sys/fs/cgroup && %s && g=/sys/fs/cgroup && { %s; } && "
                       "exec '%s' plan --json tiny.gguf\" >plan.json",
                       groups, rows[i].files, WORKER_BINARY);
        for (char *p = command; (p = strstr(p, "$")); p += 2) { /* for the inner shell */
            memmove(p + 1, p, strlen(p) + 1);
            *p = '\\';
        }
        if (shell(command, text) != 0) fail_msg("%s", text);
        json_t *plan = json_load_file("plan.json", 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(plan, "available")), atoi(rows[i].available));
        json_decref(plan);
        char *end = strstr(command, "plan --json");
        (void)snprintf(end, sizeof command - (size_t)(end - command), "run -m tiny.gguf -p a -n 1\" >run.txt");
        assert_int_equal(shell(command, text), 0);
        if (!matches(text, "[ (,]1 threads")) fail_msg("%s", text);
        end = strstr(command, "run -m");
        (void)snprintf(end, sizeof command - (size_t)(end - command),
                       "run -m tiny.gguf -p a -n 1 --context 4194304\" >run.txt");
        assert_int_equal(shell(command, text), 1);
        if (!matches(text, "INSUFFICIENT_MEMORY: .*the host has [0-9]+ available")) fail_msg("%s", text);
    }
}

/* KiB of memory that a command took at most. */
static long peak(const char *command, const char *model)
{
    int status;
    struct rusage use;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout)) _exit(3);
        if (strcmp(command, "tokenize") == 0)
            (void)execl(WORKER_BINARY, "worker", command, "-m", model, "abc", (char *)NULL);
        (void)execl(WORKER_BINARY, "worker", command, model, (char *)NULL);
        _exit(3);
    }
    assert_int_equal(wait4(child, &status, 0, &use), child);
    assert_int_equal(status, 0);
    return use.ru_maxrss;
}

/* What a command needs besides the weights does not grow with them: a hundred thousand times as many. */
static void memory_without_weights(void **state)
{
    (void)state;
    static const char *const commands[] = { "inspect", "plan", "tokenize" };
    make_tiny(&(struct tiny_model){ .path = "narrow.gguf", .hollow_ffn = 64 });
    make_tiny(&(struct tiny_model){ .path = "wide.gguf", .hollow_ffn = 1 << 20 });
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const long narrow = peak(commands[i], "narrow.gguf"), wide = peak(commands[i], "wide.gguf");
        if (wide > narrow + 16 * 1024)
            fail_msg("%s: %ld KiB for 100 KB of weights, %ld for 400 MB", commands[i], narrow, wide);
    }
}

static int setup(void **state)
{
    const int result = enter_scratch(state);
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    make_file("chat.jinja", "{{ a }}", 7);
    make_file("hello", "Hello\n", 6);
    make_file("audit.log", "", 0);
    make_file("audit.key", "0123456789abcdef\n", 17);
    if (chmod("audit.key", 0600) != 0) return 1;
    make_file("chat.json", "{\"a\": 1}", 8);
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(closed_output),   cmocka_unit_test(full_output),
                                        cmocka_unit_test(special_outputs), cmocka_unit_test(file_size_limit),
                                        cmocka_unit_test(control_groups),  cmocka_unit_test(memory_without_weights) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
