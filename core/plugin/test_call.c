/* test_call.c: slow calls are named after 30 s and again each minute. Time is the test's: the watching thread looks
 * when it is told what the clock says. */
#include "plugin/call.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static sem_t asleep, wake;
static _Atomic long now;
static FILE *said;

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)t;
    (void)left;
    (void)sem_post(&asleep);
    while (sem_wait(&wake) != 0) {}
    return 0;
}

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, t);
    *t = (struct timespec){ now, 0 };
    return 0;
}

/* The watching thread's look at second `second` says this: NULL: nothing. */
static void look(long second, const char *line)
{
    char text[512];
    now = second;
    (void)sem_post(&wake);
    while (sem_wait(&asleep) != 0) {}
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    assert_int_equal(ftruncate(fileno(said), 0), 0);
    assert_int_equal(lseek(STDERR_FILENO, 0, SEEK_SET), 0);
    if (line ? !strstr(text, line) : text[0] != '\0') fail_msg("second %ld: \"%s\"", second, text);
}

static void test_slow(void **state)
{
    (void)state;
    struct plugin_call outer, inner;
    look(90, NULL);
    plugin_call_begin(&outer, "slow.so", 0, "open");
    look(100, NULL);
    look(129, NULL);
    look(130, "worker: warning: plugin slow.so: its open has taken 30 s and goes on\n");
    look(189, NULL);
    look(190, "its open has taken 90 s");
    look(191, NULL);
    look(250, "its open has taken 150 s");
    plugin_call_end(&outer);
    look(400, NULL);

    /* Many short calls are not a slow one. */
    for (long s = 500; s < 600; s += 10) {
        plugin_call_begin(&outer, "quick.so", 0, "product");
        look(s, NULL);
        plugin_call_end(&outer);
    }

    /* A call within a call, and the outer one again. */
    plugin_call_begin(&outer, "slow.so", 0, "record");
    plugin_call_begin(&inner, "other.so", 0, "tile_bytes");
    look(700, NULL);
    look(731, "plugin other.so: its tile_bytes has taken 31 s");
    plugin_call_end(&inner);
    look(732, NULL);
    look(761, NULL);
    look(762, "plugin slow.so: its record has taken 30 s");
    plugin_call_end(&outer);
    look(900, NULL);
}

static void last_words(const char *text) { (void)text; }

static int setup(void **state)
{
    (void)state;
    if (sem_init(&asleep, 0, 0) != 0 || sem_init(&wake, 0, 0) != 0) return -1;
    said = tmpfile();
    if (!said || dup2(fileno(said), STDERR_FILENO) < 0) return -1;
    if (plugin_calls_watch(last_words, NULL) != WK_OK) return -1;
    while (sem_wait(&asleep) != 0) {}
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_slow) };
    return cmocka_run_group_tests(tests, setup, NULL);
}
