/* cli.c: the harness of the command line's tests. */
#include "cli.h"

#include <dirent.h>
#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char scratch[256];
const char *cli_program = WORKER_BINARY;

static char *slurp(int fd, size_t *len)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(pread(fd, text, (size_t)size, 0), size);
    *len = (size_t)size;
    return text;
}

static int anonymous_file(void)
{
    char name[] = "/tmp/worker-cli-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    (void)unlink(name);
    return fd;
}

static pid_t spawn(const char *const *args, int in, int out, int err)
{
    char *argv[CLI_MAX_ARGS + 2] = { (char *)(uintptr_t) "worker" };
    for (int i = 0; args[i]; i++) {
        assert_true(i < CLI_MAX_ARGS);
        argv[i + 1] = (char *)(uintptr_t)args[i];
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(in, 0);
        (void)dup2(out, 1);
        (void)dup2(err, 2);
        (void)execv(cli_program, argv);
        _exit(126);
    }
    return pid;
}

static void collect(pid_t pid, struct cli_result *r, int out, int err)
{
    int status;
    size_t err_len;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r->out = slurp(out, &r->out_len);
    r->err = slurp(err, &err_len);
    if (r->status == -1 || strstr(r->err, "Sanitizer")) fail_msg("status %d, standard error:\n%s", r->status, r->err);
}

struct cli_result cli(const char *const *args, const char *input)
{
    struct cli_result r;
    int in = anonymous_file(), out = anonymous_file(), err = anonymous_file();
    if (input) assert_int_equal(pwrite(in, input, strlen(input), 0), strlen(input));
    collect(spawn(args, in, out, err), &r, out, err);
    (void)close(in);
    (void)close(out);
    (void)close(err);
    return r;
}

struct cli_result cli_interrupt(const char *const *args)
{
    struct cli_result r;
    char byte;
    int in = anonymous_file(), out = anonymous_file(), err = anonymous_file(), ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = spawn(args, in, ends[1], err);
    (void)close(ends[1]);
    for (bool first = true; read(ends[0], &byte, 1) == 1; first = false) {
        assert_int_equal(write(out, &byte, 1), 1);
        if (first) assert_int_equal(kill(pid, SIGINT), 0);
    }
    (void)close(ends[0]);
    collect(pid, &r, out, err);
    (void)close(in);
    (void)close(out);
    (void)close(err);
    return r;
}

struct cli_result cli_terminal(const char *const *args)
{
    struct cli_result r;
    char bytes[256];
    const int in = anonymous_file(), out = anonymous_file(), err = anonymous_file(),
              end = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (end < 0) skip(); /* a folder of devices without them */
    assert_true(grantpt(end) == 0 && unlockpt(end) == 0);
    const int terminal = open(ptsname(end), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(terminal >= 0);
    const pid_t pid = spawn(args, in, terminal, err);
    (void)close(terminal);
    for (ssize_t n; (n = read(end, bytes, sizeof bytes)) > 0;)
        assert_int_equal(write(out, bytes, (size_t)n), n); /* an error once nobody has it open any more */
    collect(pid, &r, out, err);
    (void)close(end);
    (void)close(in);
    (void)close(out);
    (void)close(err);
    return r;
}

void cli_free(struct cli_result *r)
{
    free(r->out);
    free(r->err);
}

bool matches(const char *text, const char *pattern)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool found = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return found;
}

const char *last_line(char *text)
{
    size_t n = strlen(text);
    while (n && text[n - 1] == '\n') text[--n] = '\0';
    const char *newline = strrchr(text, '\n');
    return newline ? newline + 1 : text;
}

unsigned files_here(void)
{
    unsigned n = 0;
    DIR *d = opendir(".");
    assert_non_null(d);
    while (readdir(d)) n++;
    (void)closedir(d);
    return n;
}

int enter_scratch(void **state)
{
    (void)state;
    /* Nothing of the user's own environment may leak into a test. */
    static const char *const names[] = { "WORKER_MODEL",  "WORKER_SEED", "WORKER_MAX_TOKENS", "WORKER_TEMPERATURE",
                                         "WORKER_DEVICE", "WORKER_LOG",  "WORKER_EXACT" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unsetenv(names[i]);
    (void)snprintf(scratch, sizeof scratch, "/tmp/worker-cli-test-XXXXXX");
    return mkdtemp(scratch) && chdir(scratch) == 0 ? 0 : -1;
}

int leave_scratch(void **state)
{
    (void)state;
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

void cli_install(char module[256])
{
    FILE *from = fopen(WORKER_BINARY, "rb");
    assert_non_null(from);
    assert_int_equal(mkdir("prefix", 0755), 0);
    assert_int_equal(mkdir("prefix/bin", 0755), 0);
    FILE *to = fopen("prefix/bin/worker", "wb");
    assert_non_null(to);
    char buffer[1 << 16];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, from)) > 0;) assert_int_equal(fwrite(buffer, 1, n, to), n);
    (void)fclose(from);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(chmod("prefix/bin/worker", 0755), 0);
    char parts[] = WORKER_LIBDIR "/worker", *save = NULL;
    (void)snprintf(module, 256, "prefix");
    for (char *p = strtok_r(parts, "/", &save); p; p = strtok_r(NULL, "/", &save)) {
        const size_t n = strlen(module);
        (void)snprintf(module + n, 256 - n, "/%s", p);
        assert_int_equal(mkdir(module, 0755), 0);
    }
    const size_t n = strlen(module);
    (void)snprintf(module + n, 256 - n, "/device-cuda.so");
}
