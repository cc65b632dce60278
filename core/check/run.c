/* run.c: the order of the checks, and the process that each of them has. The parent watches it: how it ended, what it
 * wrote to its standard output and error, and whether it does anything at all. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check/internal.h"
#include "log/log.h"
#include "plugin/vet.h"

/* SECONDS: of processor time; IDLE, ALL: seconds of a clock; LOOK: milliseconds between two looks at a child that says
 * nothing; LAST: milliseconds for a child's last words. */
enum { SECONDS = 60, IDLE = 5, ALL = 600, LOOK = 100, LAST = 1000, REPORT_FD = 100, OUTPUT = 200, DONE = 1000 };

/* What a child says: a head and a text, written at once, which a pipe keeps together. */
struct record {
    uint32_t what, bytes; /* enum check_result, or DONE */
};

/* ---- the child ----------------------------------------------------------------------------------------- */

static struct check *current; /* of this process, for what a signal's handler says */

static void say(uint32_t what, const char *text)
{
    char message[sizeof(struct record) + CHECK_TEXT];
    const size_t n = strnlen(text, CHECK_TEXT - 1);
    const struct record head = { what, (uint32_t)n };
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, text, n);
    while (write(current->report, message, sizeof head + n) < 0 && errno == EINTR) {}
}

static void say_format(uint32_t what, const char *format, va_list args)
{
    char text[CHECK_TEXT];
    (void)vsnprintf(text, sizeof text, format, args);
    say(what, text);
}

#define SAYS(function, what)                                \
    void function(struct check *c, const char *format, ...) \
    {                                                       \
        va_list args;                                       \
        (void)c;                                            \
        va_start(args, format);                             \
        say_format(what, format, args);                     \
        va_end(args);                                       \
    }
SAYS(check_fail, CHECK_FAIL)
SAYS(check_warn, CHECK_WARN)
SAYS(check_note, CHECK_PASS)
SAYS(check_skip, CHECK_SKIP)

void check_leave(struct check *c)
{
    (void)c;
    (void)fflush(stdout); /* what the plugin left there */
    say(DONE, "");
    for (;;) (void)syscall(SYS_exit_group, 0);
}

static void last_words(const char *text) { say(CHECK_FAIL, text); }

static void on_time_is_up(int number)
{
    char limit[64];
    (void)number;
    (void)snprintf(limit, sizeof limit, "%u s of processor time, %d s of doing nothing or %d s",
                   current->options->seconds, IDLE, ALL);
    plugin_calls_give_up(limit); /* does not return where a call is under way */
}

__attribute__((noreturn)) static void run_child(const struct check *made, int report, int output)
{
    static struct check own; /* on the stack a plugin could write over it before its last words */
    struct check *c = &own;
    own = *made;
    current = c;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    c->report = fcntl(report, F_DUPFD_CLOEXEC, REPORT_FD); /* out of the way of the descriptors that a check counts */
    (void)close(report);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (c->report < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0)
        for (;;) (void)syscall(SYS_exit_group, 1);
    (void)close(null);
    (void)close(output);
    log_configure(LOG_NOTHING, LOG_PLAIN); /* a plugin may log: that is no output of its own */
    (void)signal(SIGTERM, on_time_is_up);
    if (plugin_calls_catch(last_words, NULL) != WK_OK) check_skip(c, "no handlers for signals could be set up");
    c->def->run(c);
    check_leave(c);
}

/* ---- the parent ---------------------------------------------------------------------------------------- */

struct child {
    pid_t pid;
    int report, output;
    struct check_outcome *outcome;
    bool done;  /* it said so */
    bool fatal; /* its last text is how it ended */
    bool hung;  /* fatal: it had to be ended */
    char buffer[2 * CHECK_TEXT];
    size_t held;                   /* bytes of `buffer` */
    char said[OUTPUT + 1];         /* the beginning of its output */
    size_t n_said, n_output;       /* n_output: all bytes of it */
    double cpu, idle_since, began; /* seconds */
};

static double now(clockid_t clock)
{
    struct timespec t = { 0, 0 };
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void add_text(struct check_outcome *o, uint32_t what, const char *text, size_t n)
{
    if (n && o->n_texts < CHECK_TEXTS)
        (void)snprintf(o->text[o->n_texts++], CHECK_TEXT, "%.*s", (int)n, text);
    else if (n)
        o->lost++;
    if (what <= CHECK_FAIL && what > (uint32_t)o->result) o->result = (enum check_result)what;
}

static void add_format(struct check_outcome *o, uint32_t what, const char *format, ...) WK_PRINTF(3, 4);
static void add_format(struct check_outcome *o, uint32_t what, const char *format, ...)
{
    char text[CHECK_TEXT];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add_text(o, what, text, strlen(text));
}

/* Takes the whole records that `buffer` holds. false: it holds something else, which the plugin has written. */
static bool take_records(struct child *x)
{
    struct record head;
    while (x->held >= sizeof head) {
        memcpy(&head, x->buffer, sizeof head);
        if (head.bytes >= CHECK_TEXT || (head.what > CHECK_FAIL && head.what != DONE)) return false;
        if (x->held < sizeof head + head.bytes) break;
        if (head.what == DONE)
            x->done = true;
        else
            add_text(x->outcome, head.what, x->buffer + sizeof head, head.bytes);
        x->held -= sizeof head + head.bytes;
        memmove(x->buffer, x->buffer + sizeof head + head.bytes, x->held);
    }
    return true;
}

/* false: nobody writes there any more. */
static bool read_report(struct child *x)
{
    const ssize_t n = read(x->report, x->buffer + x->held, sizeof x->buffer - x->held);
    if (n <= 0) return n < 0 && (errno == EINTR || errno == EAGAIN);
    x->held += (size_t)n;
    if (take_records(x)) return true;
    add_format(x->outcome, CHECK_FAIL, "the plugin has written to a file descriptor that is not its own");
    return false;
}

static bool read_output(struct child *x)
{
    char bytes[4096];
    const ssize_t n = read(x->output, bytes, sizeof bytes);
    if (n <= 0) return n < 0 && (errno == EINTR || errno == EAGAIN);
    for (ssize_t i = 0; i < n && x->n_said < OUTPUT; i++)
        x->said[x->n_said++] = isprint((unsigned char)bytes[i]) ? bytes[i] : bytes[i] == '\n' ? ' ' : '?';
    x->n_output += (size_t)n;
    return true;
}

/* The text of a small file of /proc. */
static const char *proc_text(const char *path, char text[512])
{
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(text, 1, 511, f) : 0;
    text[n] = '\0';
    if (f) (void)fclose(f);
    return text;
}

/* Does a thread of the process, or of one that it has started, run or wait for a disk? Then it is not idle, however
 * little time the machine gives it. depth: of processes that start processes. */
static bool is_at_work(pid_t pid, int depth)
{
    char path[320], text[512];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    bool found = false;
    for (const struct dirent *d; tasks && !found && (d = readdir(tasks));) {
        if (d->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, d->d_name);
        const char *state = strrchr(proc_text(path, text), ')'); /* "12 (name) S ..." */
        found = state && state[1] && (state[2] == 'R' || state[2] == 'D');
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)pid, d->d_name);
        char *at = (char *)(uintptr_t)proc_text(path, text);
        for (pid_t child; depth && !found && (child = (pid_t)strtol(at, &at, 10)) > 0;)
            found = is_at_work(child, depth - 1);
    }
    if (tasks) (void)closedir(tasks);
    return found;
}

/* Has it taken more time than it may? */
static bool is_over(struct child *x, uint32_t seconds)
{
    clockid_t clock;
    const double t = now(CLOCK_MONOTONIC), cpu = clock_getcpuclockid(x->pid, &clock) == 0 ? now(clock) : x->cpu;
    if (cpu - x->cpu > 0.01 * (t - x->idle_since) || is_at_work(x->pid, 2)) {
        x->cpu = cpu;
        x->idle_since = t;
    }
    return cpu > seconds || t - x->idle_since > IDLE || t - x->began > ALL;
}

/* Asks it for its last words. A plugin that blocks the signal has none. */
static void end_child(struct child *x, uint32_t seconds)
{
    const uint32_t texts = x->outcome->n_texts;
    struct pollfd poll_report = { .fd = x->report, .events = POLLIN };
    (void)kill(x->pid, SIGTERM);
    if (poll(&poll_report, 1, LAST) > 0) (void)read_report(x);
    (void)kill(-x->pid, SIGKILL);
    if (x->outcome->n_texts == texts)
        add_format(
            x->outcome, CHECK_FAIL,
            "the check did not end: expected an end within %u s of processor time, %d s of doing nothing and %d s "
            "in all; look for a loop without an end, or a lock that nobody gives back",
            seconds, IDLE, ALL);
    x->fatal = x->hung = true;
}

/* Reads all that the child says, until it has ended or has to be ended. */
static void watch(struct child *x, uint32_t seconds)
{
    struct pollfd fds[2] = { { .fd = x->report, .events = POLLIN }, { .fd = x->output, .events = POLLIN } };
    x->began = x->idle_since = now(CLOCK_MONOTONIC);
    while (!x->done && fds[0].fd >= 0) {
        const int ready = poll(fds, 2, LOOK);
        if (ready == 0 && is_over(x, seconds)) {
            end_child(x, seconds);
            break;
        }
        if (ready <= 0) continue;
        if (fds[1].revents && !read_output(x)) fds[1].fd = -1;
        if (fds[0].revents && !read_report(x)) fds[0].fd = -1;
    }
}

/* Waits for the end of a child that has said its last. false: it goes on, though nobody can hear it any more. */
static bool wait_for(const struct child *x)
{
    const int how = x->done || x->fatal ? WEXITED | WNOWAIT : WEXITED | WNOWAIT | WNOHANG;
    for (int ms = 0; ms < LAST; ms++) {
        siginfo_t info = { .si_pid = 0 };
        const int got = waitid(P_PID, (id_t)x->pid, &info, how);
        if (got == 0 && info.si_pid == x->pid) return true;
        if (got == 0) (void)nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    }
    return false;
}

/* What a child leaves behind whose report has ended. */
static void reap(struct child *x)
{
    int status = 0;
    const bool ended = wait_for(x);
    (void)kill(-x->pid, SIGKILL); /* it, or what it has started */
    while (waitpid(x->pid, &status, 0) < 0 && errno == EINTR) {}
    (void)fcntl(x->output, F_SETFL, O_NONBLOCK);
    for (errno = 0; read_output(x) && errno != EAGAIN;) {}
    if (x->done || x->fatal) return;
    x->fatal = true;
    if (!ended)
        add_format(x->outcome, CHECK_FAIL, "the plugin has closed a file descriptor that is not its own");
    else if (WIFSIGNALED(status))
        add_format(x->outcome, CHECK_FAIL, "the process ended with signal %d (%s) outside of any call of the plugin",
                   WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (x->outcome->result != CHECK_FAIL)
        add_format(x->outcome, CHECK_FAIL,
                   "the process ended with status %d before the check was done: a plugin returns, and ends nothing",
                   WEXITSTATUS(status));
}

/* Runs the check in a child. *x tells afterwards how that one ended and what it wrote. */
static wk_status run_one(const struct check_options *o, struct check_outcome *outcome, struct child *x,
                         const struct wk_err *err)
{
    const struct check c = { .def = outcome->def, .options = o };
    *x = (struct child){ .outcome = outcome };
    int report[2], output[2];
    if (pipe2(report, O_CLOEXEC) != 0) return wk_fail(err, WK_IO, "a check cannot begin: %s", strerror(errno));
    if (pipe2(output, O_CLOEXEC) != 0) {
        (void)close(report[0]);
        (void)close(report[1]);
        return wk_fail(err, WK_IO, "a check cannot begin: %s", strerror(errno));
    }
    (void)fflush(NULL); /* else the child would write it once more */
    x->pid = fork();
    if (x->pid == 0) run_child(&c, report[1], output[1]);
    const int error = errno;
    (void)close(report[1]);
    (void)close(output[1]);
    x->report = report[0];
    x->output = output[0];
    if (x->pid > 0) {
        watch(x, o->seconds);
        reap(x);
    }
    (void)close(report[0]);
    (void)close(output[0]);
    return x->pid > 0 ? WK_OK : wk_fail(err, WK_IO, "a check cannot begin: %s", strerror(error));
}

/* ---- the order ----------------------------------------------------------------------------------------- */

struct run {
    const struct check_options *options;
    uint32_t kind;                /* CHECK_OF_*, of the plugin; 0: nobody can tell */
    const struct check_def *gate; /* that has failed, or a check that hung; NULL: none */
    bool *broken;                 /* [check_count()] failed, or not looked at because of one that did */
    char (*end)[CHECK_TEXT];      /* [check_count()] how the process ended in it; "": as it should */
    uint32_t wrote;               /* the first check in which something was written; check_count(): none */
};

static bool is_asked(const struct check_options *o, const char *id)
{
    bool asked = o->n_only == 0;
    for (uint32_t i = 0; i < o->n_only; i++) asked = asked || strcmp(o->only[i], id) == 0;
    return asked;
}

/* One fault is told once: where a plugin ends the process in the same way in a later check, that one was not looked
 * at. */
static void join_same_end(struct run *r, uint32_t i, struct check_outcome *o, const struct child *x)
{
    if (!x->fatal || !o->n_texts) return;
    (void)snprintf(r->end[i], CHECK_TEXT, "%s", o->text[o->n_texts - 1]);
    for (uint32_t j = 0; j < i; j++) {
        if (strcmp(r->end[j], r->end[i]) != 0) continue;
        *o = (struct check_outcome){ .def = o->def, .group = o->group };
        add_format(o, CHECK_SKIP, "ended as %s did: %.500s", check_at(j)->id, r->end[i]);
        return;
    }
}

/* So it is with what is written, from the check on that is about it: those before do the same. */
static void join_output(struct run *r, uint32_t i, struct check_outcome *o, const struct child *x)
{
    if (!x->n_output || r->wrote < i || i < check_find("load.output")) return;
    r->wrote = i;
    add_format(o, CHECK_FAIL,
               "%zu bytes were written to standard output or error: \"%s\"; a plugin writes to neither, its host's log "
               "takes texts",
               x->n_output, x->said);
}

static wk_status run_row(struct run *r, uint32_t i, struct check_outcome *o, const struct wk_err *err)
{
    const struct check_def *def = o->def;
    const uint32_t after = def->after ? check_find(def->after) : check_count();
    struct child x;
    if (r->gate) {
        add_format(o, CHECK_SKIP, "not looked at: %s failed", r->gate->id);
    } else if (after < check_count() && r->broken[after]) {
        add_format(o, CHECK_SKIP, "not looked at: %s tells of it", def->after);
        r->broken[i] = true;
    } else {
        const wk_status status = run_one(r->options, o, &x, err);
        if (status != WK_OK) return status;
        join_same_end(r, i, o, &x);
        join_output(r, i, o, &x);
        r->broken[i] = o->result == CHECK_FAIL || r->end[i][0];
        /* What hangs would hang in every check that calls it. */
        if (r->broken[i] && (def->gate || x.hung)) r->gate = def;
    }
    return WK_OK;
}

/* Which checks are about this file: by its note alone. One without a note has no kind. */
static uint32_t kind_of(const char *path)
{
    struct plugin_entry e;
    (void)plugin_inspect(path, &e, NULL);
    const uint16_t kind = e.note.kind;
    plugin_entry_clear(&e);
    return kind == WK_KIND_ARCH    ? CHECK_OF_ARCH
           : kind == WK_KIND_QUANT ? CHECK_OF_QUANT
           : kind_is_cuda(kind)    ? CHECK_OF_CUDA
                                   : 0;
}

static bool is_about(const struct check_def *def, uint32_t kind)
{
    return def->kinds == CHECK_OF_ANY || (def->kinds & kind);
}

static wk_status check_ids(const struct check_options *o, const struct wk_err *err)
{
    for (uint32_t i = 0; i < o->n_only; i++)
        if (check_find(o->only[i]) == check_count())
            return wk_fail(err, WK_INVALID, "%.80s: there is no check of this id; worker plugin check --list has them",
                           o->only[i]);
    return WK_OK;
}

wk_status check_run(const struct check_options *options, check_tell_fn tell, void *user, const struct wk_err *err)
{
    struct check_options o = *options;
    const uint32_t n = check_count();
    struct run r = { .options = &o, .kind = kind_of(o.path), .wrote = n };
    if (!o.seconds) o.seconds = SECONDS;
    wk_status status = check_ids(&o, err);
    r.broken = calloc(n, sizeof *r.broken);
    r.end = calloc(n, sizeof *r.end);
    struct check_outcome *outcome = calloc(1, sizeof *outcome);
    if (status == WK_OK && (!r.broken || !r.end || !outcome)) status = wk_fail(err, WK_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n && status == WK_OK; i++) {
        const struct check_def *def = check_at(i);
        if (!is_asked(&o, def->id) || (!o.n_only && !is_about(def, r.kind))) continue;
        *outcome = (struct check_outcome){ .def = def, .group = check_group_of(i) };
        if (!is_about(def, r.kind))
            add_format(outcome, CHECK_SKIP, "is about another kind of plugin");
        else
            status = run_row(&r, i, outcome, err);
        if (status == WK_OK) tell(user, outcome);
    }
    free(outcome);
    free(r.end);
    free(r.broken);
    return status;
}
