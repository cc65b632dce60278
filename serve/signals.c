/* signals.c: signals and the deadline of an end, in a thread that waits for nothing else. */
#include "signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inside.h"
#include "log/log.h"

enum { STATUS_AT_ONCE = 1, NS_PER_MS = 1000000 };

struct signals {
    const char *worker_id;
    int taken, came, wake;        /* signalfd; eventfds: for others, for the thread */
    int reload;                   /* eventfd for others; -1: there is nothing to be read again */
    _Atomic uint64_t deadline_ns; /* 0: none */
    atomic_int status;
    atomic_bool over;
    pthread_t thread;
};

/* By the system call itself: nothing of the process runs any more, nor what a sanitizer does at an end. */
static _Noreturn void end_process(const struct signals *s, int status, const char *why)
{
    LOG(LOG_WARN, "shutdown_now", why, log_s("worker_id", s->worker_id), log_u("status", (uint64_t)status));
    for (;;) (void)syscall(SYS_exit_group, status);
}

/* Milliseconds until the deadline, rounded up; -1: there is none. */
static int wait_ms(const struct signals *s)
{
    const uint64_t end = atomic_load(&s->deadline_ns), now = serve_now_ns();
    if (!end) return -1;
    const uint64_t ms = end > now ? (end - now + NS_PER_MS - 1) / NS_PER_MS : 0;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

static void *run(void *user)
{
    struct signals *s = user;
    struct pollfd p[2] = { { .fd = s->taken, .events = POLLIN }, { .fd = s->wake, .events = POLLIN } };
    struct signalfd_siginfo info;
    const uint64_t one = 1;
    uint64_t count;
    bool asked = false;
    while (!atomic_load(&s->over)) {
        (void)poll(p, 2, wait_ms(s));
        while (read(s->wake, &count, sizeof count) == sizeof count) continue;
        while (read(s->taken, &info, sizeof info) == sizeof info) {
            const bool reload = info.ssi_signo == SIGHUP;
            if (asked && !reload) end_process(s, STATUS_AT_ONCE, "a second signal: ending at once");
            asked = asked || !reload;
            if (write(reload ? s->reload : s->came, &one, sizeof one) < 0)
                continue; /* the counter is full: it was told already */
        }
        if (!atomic_load(&s->over) && !wait_ms(s))
            end_process(s, atomic_load(&s->status), "something still runs though the time to end is over");
    }
    return NULL;
}

static void release(struct signals *s)
{
    if (s->taken >= 0) (void)close(s->taken);
    if (s->came >= 0) (void)close(s->came);
    if (s->reload >= 0) (void)close(s->reload);
    if (s->wake >= 0) (void)close(s->wake);
    free(s);
}

struct signals *signals_start(const char *worker_id, bool reloads)
{
    sigset_t set;
    struct signals *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->worker_id = worker_id;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    if (reloads) (void)sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->taken = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    s->came = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->reload = reloads ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    if (s->taken >= 0 && s->came >= 0 && s->wake >= 0 && reloads == (s->reload >= 0) &&
        !pthread_create(&s->thread, NULL, run, s))
        return s;
    release(s);
    return NULL;
}

int signals_fd(const struct signals *s) { return s->came; }
int signals_reload_fd(const struct signals *s) { return s->reload; }

static void wake(const struct signals *s)
{
    const uint64_t one = 1;
    if (write(s->wake, &one, sizeof one) < 0) return; /* the counter is full: it is awake already */
}

void signals_end_at(struct signals *s, uint64_t deadline_ns, int status)
{
    atomic_store(&s->status, status);
    atomic_store(&s->deadline_ns, deadline_ns);
    wake(s);
}

void signals_stop(struct signals *s)
{
    if (!s) return;
    atomic_store(&s->over, true);
    wake(s);
    (void)pthread_join(s->thread, NULL);
    release(s);
}
