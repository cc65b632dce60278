/* load.c: what the plugin is once it is mapped: the loader's steps, each under its id; and what mapping, starting and
 * using it does to the process, which is its host's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/internal.h"

static void run_loader(struct check *c) { (void)check_start(c, NULL); }

/* What is written is run.c's to see. */
static void run_use(struct check *c)
{
    if (check_start(c, NULL)) check_exercise(c);
}

/* ---- what belongs to the process ----------------------------------------------------------------------- */

static uint32_t count_threads(void)
{
    uint32_t n = 0;
    DIR *d = opendir("/proc/self/task");
    for (const struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) (void)closedir(d);
    return n;
}

static void run_threads(struct check *c)
{
    const uint32_t before = count_threads();
    if (!check_start(c, NULL)) return;
    check_exercise(c);
    const uint32_t after = count_threads();
    if (after != before)
        check_fail(c,
                   "the process had %u threads before and has %u now; expected no more: the host has threads, and "
                   "calls from them",
                   before, after);
}

enum { MOST_FDS = 256 };
/* What descriptor `fd` is of; false: it is not open. */
static bool descriptor_text(int fd, char text[256])
{
    char link[32];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, text, 255);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void run_descriptors(struct check *c)
{
    static bool was[MOST_FDS];
    char text[256], copy[80];
    for (int fd = 0; fd < MOST_FDS; fd++) was[fd] = fcntl(fd, F_GETFD) >= 0;
    if (!check_start(c, NULL)) return;
    check_exercise(c);
    /* The loader keeps the copy that is mapped. */
    const char *slash = strrchr(c->options->path, '/');
    (void)snprintf(copy, sizeof copy, "/memfd:%.50s", slash ? slash + 1 : c->options->path);
    for (int fd = 0; fd < MOST_FDS; fd++) {
        const bool is = descriptor_text(fd, text);
        if (is == was[fd] || (is && strncmp(text, copy, strlen(copy)) == 0)) continue;
        if (is)
            check_fail(c,
                       "file descriptor %d (%.200s) is open now; expected none: a plugin opens no files, and closes "
                       "what a library opened for it",
                       fd, text);
        else
            check_fail(c,
                       "file descriptor %d is closed now, which is the host's; close no descriptor that you did not "
                       "open",
                       fd);
    }
}

static void run_signals(struct check *c)
{
    static struct sigaction before[65], after[65];
    sigset_t mask, now;
    (void)sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int s = 1; s <= 64; s++) (void)sigaction(s, NULL, &before[s]);
    if (!check_start(c, NULL)) return;
    check_exercise(c);
    (void)sigprocmask(SIG_BLOCK, NULL, &now);
    for (int s = 1; s <= 64; s++) {
        if (sigaction(s, NULL, &after[s]) != 0) continue;
        if (before[s].sa_handler != after[s].sa_handler || before[s].sa_flags != after[s].sa_flags)
            check_fail(c, "signal %d (%s) has another handler now; expected that of the host", s, strsignal(s));
        if (sigismember(&mask, s) != sigismember(&now, s))
            check_fail(c, "signal %d (%s) is %s now; expected the host's mask", s, strsignal(s),
                       sigismember(&now, s) ? "blocked" : "not blocked");
    }
}

extern char **environ;

static uint64_t environment_hash(void)
{
    uint64_t hash = CHECK_HASH;
    for (char **e = environ; e && *e; e++) check_hash(&hash, *e, strlen(*e) + 1);
    return hash;
}

static mode_t mask_of_files(void)
{
    const mode_t mask = umask(0);
    (void)umask(mask);
    return mask;
}

static void run_surroundings(struct check *c)
{
    char locale[256], folder[4096] = "", now[4096] = "";
    const char *text = setlocale(LC_ALL, NULL);
    (void)snprintf(locale, sizeof locale, "%s", text ? text : "");
    if (!getcwd(folder, sizeof folder)) folder[0] = '\0';
    const mode_t mask = mask_of_files();
    const uint64_t environment = environment_hash();
    if (!check_start(c, NULL)) return;
    check_exercise(c);
    text = setlocale(LC_ALL, NULL);
    if (text && strcmp(text, locale) != 0)
        check_fail(c, "the locale is %.100s now, it was %.100s; leave it to the host (numbers are written by it)", text,
                   locale);
    if (!getcwd(now, sizeof now)) now[0] = '\0';
    if (strcmp(folder, now) != 0)
        check_fail(c, "the current folder is %.200s now, it was %.200s; leave it to the host", now, folder);
    if (mask_of_files() != mask)
        check_fail(c, "the umask is %03o now, it was %03o; leave it to the host", mask_of_files(), mask);
    if (environment_hash() != environment)
        check_fail(c, "the environment has changed; leave it to the host, and take options by its option()");
}

/* Rounding, denormal numbers and traps are of each thread; a constructor that -ffast-math links in sets them. */
static void run_floats(struct check *c)
{
    static volatile float tiny = 1e-40f, one = 1.0f;
    const int rounding = fegetround();
    const int traps = fegetexcept();
    const bool denormal = tiny * one != 0.0f;
    if (!check_start(c, NULL)) return;
    check_exercise(c);
    if (denormal && tiny * one == 0.0f)
        check_fail(c, "denormal numbers are zero now; expected arithmetic as IEEE 754 has it: do not link with "
                      "-ffast-math or -Ofast, which set this for the whole thread");
    if (fegetround() != rounding) check_fail(c, "numbers are rounded in another way now; leave it to the host");
    if (fegetexcept() != traps) check_fail(c, "floating-point exceptions trap now; leave it to the host");
}

/* ---- twice --------------------------------------------------------------------------------------------- */

/* A second process has it mapped and started while this one does the same. */
static void run_again(struct check *c)
{
    int started[2], ended[2];
    char byte = 0, text[CHECK_TEXT] = "";
    const struct wk_err err = { text, sizeof text };
    if (pipe2(started, O_CLOEXEC) != 0 || pipe2(ended, O_CLOEXEC) != 0) {
        check_skip(c, "no second process could be made");
        return;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(started[0]);
        (void)close(ended[1]);
        const wk_status status = plugin_try(c->options->path, NULL, &c->entry, &err);
        ssize_t waited = write(started[1], &byte, 1);
        if (waited == 1 && status == WK_OK) waited = read(ended[0], &byte, 1); /* until that one ends */
        (void)waited;
        (void)syscall(SYS_exit_group, 0);
    }
    (void)close(started[1]);
    (void)close(ended[0]);
    if (pid < 0 || read(started[0], &byte, 1) != 1) {
        check_skip(c, "a second process did not come to an answer");
        return;
    }
    if (plugin_try(c->options->path, NULL, &c->entry, &err) != WK_OK)
        check_fail(c,
                   "it does not start while another process has it: %.400s; share no files, locks or names between "
                   "processes",
                   text);
    (void)close(ended[1]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

static const struct check_def checks[] = {
    { "load.map", "It can be mapped: every symbol that it uses is there, and its constructors return.", CHECK_OF_PLUGIN,
      true, NULL, run_loader },
    { "load.symbol", "It exports worker_plugin_v1.", CHECK_OF_PLUGIN, true, NULL, run_loader },
    { "load.size",
      "A struct has at least the size that it had in 1.0, a multiple of 8 and at most 64 KiB; of arrays by value this "
      "holds for key_size, alias_size and product_size.",
      CHECK_OF_PLUGIN, true, NULL, run_loader },
    { "load.growth",
      "What this worker does not know of a longer struct is zero, and there is no flag, kind or enumerator that it "
      "does "
      "not know.",
      CHECK_OF_PLUGIN, true, NULL, run_loader },
    { "load.slots", "Required pointers are set.", CHECK_OF_PLUGIN, true, NULL, run_loader },
    { "load.note", "The exported struct says what the note says.", CHECK_OF_PLUGIN, true, NULL, run_loader },
    { "load.claims", "It serves what its note claims, no more and no less.", CHECK_OF_PLUGIN, true, NULL, run_loader },
    { "load.counts", "It has at most 4096 keys, aliases, ignored names and ignored keys each.", CHECK_OF_ARCH, true,
      NULL, run_loader },
    { "load.keys", "The range of a key is not empty.", CHECK_OF_ARCH, true, NULL, run_loader },
    { "load.type",
      "A block has 1 to 65536 values in 1 to 1048576 bytes, activations come as F32 at least, and tile_bytes is a "
      "multiple of 64, at least the rows' own bytes and at most 1/8 + 64 bytes more.",
      CHECK_OF_QUANT, true, NULL, run_loader },
    { "load.known", "A number of ggml's has ggml's name and block; own formats take numbers from 1000 on.",
      CHECK_OF_QUANT, true, NULL, run_loader },
    { "load.products", "A type has 1 to 16 products, one of them portable, no two for one instruction set.",
      CHECK_OF_QUANT, true, NULL, run_loader },
    { "load.start", "init returns WK_OK, or fails with a text.", CHECK_OF_PLUGIN, true, NULL, run_loader },
    { "load.use",
      "What the host calls with the plain input of a small model or matrix returns: it does not crash, call exit or "
      "hang.",
      CHECK_OF_PLUGIN, true, NULL, run_use },
    { "load.output", "It writes nothing to standard output or error: the log of its host takes texts.", CHECK_OF_PLUGIN,
      false, NULL, run_use },
    { "load.threads", "It starts no thread.", CHECK_OF_PLUGIN, false, NULL, run_threads },
    { "load.descriptors", "It opens no file descriptor and closes none that is not its own.", CHECK_OF_PLUGIN, false,
      NULL, run_descriptors },
    { "load.signals", "It changes no handler of a signal and no mask.", CHECK_OF_PLUGIN, false, NULL, run_signals },
    { "load.surroundings", "It changes neither locale, folder, umask nor environment.", CHECK_OF_PLUGIN, false, NULL,
      run_surroundings },
    { "load.floats", "It leaves rounding, denormal numbers and traps of floating-point arithmetic as they are.",
      CHECK_OF_PLUGIN, false, NULL, run_floats },
    { "load.again", "It starts in a second process while the first one has it.", CHECK_OF_PLUGIN, false, NULL,
      run_again },
};
CHECK_LIST(checks_load, CHECK_LOAD, checks);
