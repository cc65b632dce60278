/* notify.c: sd_notify by hand: datagrams of "NAME=value" lines to the UNIX socket that the supervisor names in
 * NOTIFY_SOCKET.
 *
 * The watchdog is a promise about the engine, not about this loop: WATCHDOG=1 goes out only while the engine's thread
 * makes progress (it does something at least every second, also when idle). A step that hangs therefore ends in a
 * restart. */
#include "inside.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ops.h"

static struct {
    int fd; /* 0: no supervisor */
    struct sockaddr_un address;
    socklen_t size;
    uint64_t watchdog_ns, sent_ns; /* watchdog_ns 0: none */
} supervisor;

/* The watchdog is ours only if WATCHDOG_PID names us, or nobody. */
static uint64_t watchdog_of_environment(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    char *end;
    if (pid && strtol(pid, NULL, 10) != (long)getpid()) return 0;
    if (!usec) return 0;
    errno = 0;
    const unsigned long long v = strtoull(usec, &end, 10);
    return errno || end == usec || *end || v > UINT64_MAX / 1000 ? 0 : (uint64_t)v * 1000;
}

void notify_open(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t n = path ? strlen(path) : 0;
    if (supervisor.fd) (void)close(supervisor.fd);
    memset(&supervisor, 0, sizeof supervisor);
    supervisor.watchdog_ns = watchdog_of_environment();
    supervisor.address.sun_family = AF_UNIX;
    /* A path, or '@' and an abstract name. */
    if (n >= 2 && n < sizeof supervisor.address.sun_path && (path[0] == '/' || path[0] == '@')) {
        memcpy(supervisor.address.sun_path, path, n);
        if (path[0] == '@') supervisor.address.sun_path[0] = '\0';
        supervisor.size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (path[0] == '/'));
        const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        supervisor.fd = fd > 0 ? fd : 0;
    }
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

static void send_text(const char *text)
{
    if (!supervisor.fd) return;
    /* Nothing can be done about a supervisor that does not listen: its watchdog will act. */
    (void)sendto(supervisor.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                 (const struct sockaddr *)&supervisor.address, supervisor.size);
}

/* first, then STATUS= with the line cut at what would end it. */
static void send_status(const char *first, const char *status)
{
    char text[512];
    (void)snprintf(text, sizeof text, "%sSTATUS=%.*s", first, (int)strcspn(status, "\n"), status);
    send_text(text);
}

void notify_ready(const char *status) { send_status("READY=1\n", status); }
void notify_status(const char *status) { send_status("", status); }
void notify_stopping(void) { send_text("STOPPING=1\nSTATUS=draining: running jobs finish, nothing new is taken"); }

static bool makes_progress(const struct serve *s, uint64_t now)
{
    struct serve_model *m = atomic_load(&s->model);
    struct engine_stats stats;
    if (!m) return true; /* no engine yet: that this loop turns is all there is to promise */
    engine_stats(m->engine, &stats);
    return !stats.dead && (stats.progress_ns >= now || now - stats.progress_ns < supervisor.watchdog_ns / 2);
}

void notify_turn(const struct serve *s)
{
    const uint64_t now = serve_now_ns();
    if (!supervisor.watchdog_ns || now - supervisor.sent_ns < supervisor.watchdog_ns / 3 || !makes_progress(s, now))
        return;
    supervisor.sent_ns = now;
    send_text("WATCHDOG=1");
}

int notify_wait(int most)
{
    const uint64_t third_ms = supervisor.watchdog_ns / 3000000;
    if (!supervisor.watchdog_ns || third_ms >= (uint64_t)most) return most;
    return third_ms ? (int)third_ms : 1;
}
