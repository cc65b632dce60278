/* test_notify.c: what a supervisor hears, on a real datagram socket; the engine is the test's own, so
 * that it can hang. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "inside.h"
#include "ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct engine_stats stats;
void engine_stats(struct engine *e, struct engine_stats *out)
{
    (void)e;
    *out = stats;
}

static int listener;

/* A bound socket under a name of its own: abstract, or a path. */
static void listen_on(bool abstract, char name[80])
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    static int n;
    (void)snprintf(name, 80, "%s/tmp/worker-notify-%d-%d", abstract ? "@" : "", (int)getpid(), n++);
    const size_t len = strlen(name);
    memcpy(a.sun_path, name, len);
    if (abstract) a.sun_path[0] = '\0';
    listener = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
                     0);
}

/* The next datagram, "" if none came. */
static const char *heard(void)
{
    static char text[1024];
    const ssize_t n = recv(listener, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void begin(const char *usec, const char *pid)
{
    char name[80];
    listen_on(true, name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
    if (usec) assert_int_equal(setenv("WATCHDOG_USEC", usec, 1), 0);
    if (pid) assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
    notify_open();
}

static void test_life(void **state)
{
    (void)state;
    begin(NULL, NULL);
    assert_null(getenv("NOTIFY_SOCKET")); /* no child inherits it */
    notify_ready("haiku on cpu\nREADY=0");
    assert_string_equal(heard(), "READY=1\nSTATUS=haiku on cpu"); /* nothing behind a line end passes for a field */
    notify_status("loading 40 %");
    assert_string_equal(heard(), "STATUS=loading 40 %");
    notify_stopping();
    assert_memory_equal(heard(), "STOPPING=1\nSTATUS=", 18);
    (void)close(listener);
}

static void test_path(void **state)
{
    (void)state;
    char name[80];
    listen_on(false, name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    notify_open();
    notify_stopping();
    assert_memory_equal(heard(), "STOPPING=1\n", 11);
    (void)unlink(name);
    notify_stopping(); /* nobody there any more: no harm */
    assert_string_equal(heard(), "");
    (void)close(listener);
}

/* One turn with a fresh supervisor, and what it heard. */
static const char *turn(const struct serve *s)
{
    begin("60000000", NULL); /* a minute: due every 20 s, progress within 30 s */
    notify_turn(s);
    const char *text = heard();
    (void)close(listener);
    return text;
}

static void test_watchdog(void **state)
{
    struct serve_model model = { .engine = NULL };
    struct serve s = { .model = NULL };
    (void)state;
    assert_string_equal(turn(&s), "WATCHDOG=1"); /* no model yet: the loop turns */
    begin("60000000", NULL);
    assert_int_equal(notify_wait(100000), 20000);
    assert_int_equal(notify_wait(100), 100);
    notify_turn(&s);
    assert_string_equal(heard(), "WATCHDOG=1");
    notify_turn(&s);
    assert_string_equal(heard(), ""); /* not due yet */
    (void)close(listener);

    atomic_store(&s.model, &model);
    stats = (struct engine_stats){ .progress_ns = serve_now_ns() };
    assert_string_equal(turn(&s), "WATCHDOG=1");
    stats.progress_ns = serve_now_ns() - 31000000000u; /* a step that hangs */
    assert_string_equal(turn(&s), "");
    stats.progress_ns = serve_now_ns();
    stats.dead = true;
    assert_string_equal(turn(&s), "");
    stats.dead = false;
    assert_string_equal(turn(&s), "WATCHDOG=1");
}

static void test_not_ours(void **state)
{
    struct serve s = { .model = NULL };
    (void)state;
    begin("60000000", "1"); /* init's */
    assert_int_equal(notify_wait(100000), 100000);
    notify_turn(&s);
    assert_string_equal(heard(), "");
    (void)close(listener);
    begin("soon", NULL);
    notify_turn(&s);
    assert_string_equal(heard(), "");
    (void)close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_life), cmocka_unit_test(test_path),
                                        cmocka_unit_test(test_watchdog), cmocka_unit_test(test_not_ours) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
