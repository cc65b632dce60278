/* test_log.c: every line is JSON that a parser reads back; plain lines cannot be forged; the bar is wiped. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log/log.h"

static int real_stderr = -1, capture = -1;
static char captured[1 << 20];

/* Standard error goes into `fd` (a memory file if negative) until end_capture. */
static void begin_capture(int fd)
{
    capture = fd >= 0 ? fd : memfd_create("stderr", MFD_CLOEXEC);
    real_stderr = dup(STDERR_FILENO);
    assert_true(capture >= 0 && real_stderr >= 0);
    assert_true(dup2(capture, STDERR_FILENO) >= 0);
}

static void restore_stderr(void)
{
    assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
    (void)close(real_stderr);
}

static const char *end_capture(void)
{
    restore_stderr();
    const ssize_t n = pread(capture, captured, sizeof captured - 1, 0);
    assert_true(n >= 0);
    captured[n] = 0;
    (void)close(capture);
    return captured;
}

static json_t *parse_line(const char *line, size_t n)
{
    json_error_t error;
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, &error);
    if (!object) fail_msg("%s in: %.*s", error.text, (int)n, line);
    return object;
}

static json_t *parse_capture(void)
{
    const char *line = end_capture();
    return parse_line(line, strlen(line));
}

static const char *string_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void test_json_line(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_JSON);
    begin_capture(-1);
    LOG(LOG_DEBUG, "hidden", NULL);
    LOG(LOG_WARN, "tested", "for \"people\"\n", log_s("path", "a\\b\x01\x7f\xc2\x9b"), log_u("bytes", INT64_MAX),
        log_f("share", 0.1), log_f("third", 1.0 / 3), log_f("nan", NAN), log_f("inf", -INFINITY), log_b("yes", 7),
        log_b("no", 0), log_s("none", NULL));
    const char *text = end_capture();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    json_t *o = parse_line(text, strlen(text));
    assert_string_equal(string_of(o, "event"), "tested");
    assert_string_equal(string_of(o, "level"), "warning");
    assert_string_equal(string_of(o, "message"), "for \"people\"\n");
    assert_string_equal(string_of(o, "path"), "a\\b\x01\x7f\xc2\x9b");
    assert_non_null(strstr(text, "a\\\\b\\u0001\\u007f\\u009b\""));
    assert_non_null(strstr(text, "\"bytes\":9223372036854775807,"));
    assert_non_null(strstr(text, "\"share\":0.1,"));
    assert_true(json_real_value(json_object_get(o, "third")) == 1.0 / 3);
    assert_true(json_is_null(json_object_get(o, "nan")) && json_is_null(json_object_get(o, "inf")) &&
                json_is_null(json_object_get(o, "none")));
    assert_true(json_is_true(json_object_get(o, "yes")) && json_is_false(json_object_get(o, "no")));
    int year, month, day, hour, minute, second, ms, used = 0;
    assert_int_equal(sscanf(string_of(o, "time"), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour, &minute,
                            &second, &ms, &used),
                     7);
    assert_int_equal(used, 24);
    json_decref(o);
}

/* Any bytes at all give valid JSON, and valid UTF-8 comes back as it was. */
static void test_any_bytes(void **state)
{
    (void)state;
    log_configure(LOG_DEBUG, LOG_JSON);
    uint32_t random = 1;
    for (int round = 0; round < 3000; round++) {
        char text[24];
        for (size_t i = 0; i + 1 < sizeof text; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = (char)(random >> 24);
        }
        text[sizeof text - 1] = 0;
        begin_capture(-1);
        LOG(LOG_INFO, "bytes", text, log_s(text, text));
        const char *line = end_capture();
        for (const char *s = line; s[1]; s++) assert_true((unsigned char)*s >= 0x20 && *s != 0x7f);
        json_decref(parse_line(line, strlen(line)));
    }
    begin_capture(-1);
    LOG(LOG_INFO, "good", "h\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80 \xed\x9f\xbf");
    json_t *o = parse_capture();
    assert_string_equal(string_of(o, "message"), "h\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80 \xed\x9f\xbf");
    json_decref(o);
}

static void test_long_line(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_JSON);
    char *text = malloc(20001);
    assert_non_null(text);
    memset(text, '\n', 20000);
    text[20000] = 0;
    begin_capture(-1);
    LOG(LOG_INFO, "long", NULL, log_u("first", 1), log_s("text", text), log_u("last", 2));
    json_t *o = parse_capture();
    assert_int_equal(json_integer_value(json_object_get(o, "first")), 1);
    assert_null(json_object_get(o, "text"));
    assert_true(json_is_true(json_object_get(o, "truncated")));
    json_decref(o);
    log_configure(LOG_INFO, LOG_PLAIN);
    begin_capture(-1);
    LOG(LOG_ERROR, "long", text);
    const char *line = end_capture();
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    free(text);
}

static void test_plain(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_PLAIN);
    begin_capture(-1);
    LOG(LOG_INFO, "quiet", "not shown");
    LOG(LOG_WARN, "w", "low memory\nworker: error: forged \x1b[2J", log_u("n", 1));
    LOG(LOG_ERROR, "gone", NULL);
    log_progress("load_progress", "load", NULL, 0.5); /* not a terminal */
    assert_string_equal(end_capture(),
                        "worker: warning: low memory\\u000aworker: error: forged \\u001b[2J\nworker: error: gone\n");
}

static void test_progress_events(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_JSON);
    static const double steps[] = { NAN, 0.0, 0.1, 0.3, 0.31, 0.8, 0.99, 1.0, 1.0 };
    for (int round = 0; round < 2; round++) { /* a second activity of the same name begins anew */
        begin_capture(-1);
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            log_progress("upload_progress", "upload", "m.gguf", steps[i]);
        const char *line = end_capture();
        for (int percent = 0; percent <= 100; percent += 25) {
            const char *end = strchr(line, '\n');
            assert_non_null(end);
            json_t *o = parse_line(line, (size_t)(end - line));
            assert_string_equal(string_of(o, "event"), "upload_progress");
            assert_string_equal(string_of(o, "model_ref"), "m.gguf");
            assert_string_equal(string_of(o, "activity"), "upload");
            assert_int_equal(json_integer_value(json_object_get(o, "percent")), percent);
            json_decref(o);
            line = end + 1;
        }
        assert_int_equal(*line, 0);
    }
}

/* The terminal whose bytes are read from *master; -1: there is none. columns 0: it does not say. */
static int open_terminal(int *master, unsigned short columns)
{
    const struct winsize size = { .ws_col = columns };
    *master = posix_openpt(O_RDWR | O_NOCTTY);
    if (*master < 0 || grantpt(*master) != 0 || unlockpt(*master) != 0) return -1;
    const int terminal = open(ptsname(*master), O_RDWR | O_NOCTTY);
    if (terminal >= 0) assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
    return terminal;
}

/* A terminal hands its bytes over when it likes: read until all are there, or none has come for a while. */
static void assert_shown(int master, const char *expected)
{
    size_t n = 0;
    for (struct pollfd ready = { .fd = master, .events = POLLIN };
         n < strlen(expected) && n < sizeof captured - 1 && poll(&ready, 1, 2000) == 1;) {
        const ssize_t got = read(master, captured + n, sizeof captured - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    captured[n] = 0;
    assert_string_equal(captured, expected);
}

static void test_bar(void **state)
{
    (void)state;
    int master;
    const int terminal = open_terminal(&master, 0);
    if (terminal < 0) skip();
    log_configure(LOG_INFO, LOG_PLAIN);
    begin_capture(terminal);
    log_progress("load_progress", "load", NULL, 0.5);
    log_progress("load_progress", "load", NULL, 0.501);
    LOG(LOG_WARN, "w", "careful");
    log_progress("load_progress", "load", NULL, 0.75);
    log_progress("load_progress", "load", NULL, 1);
    restore_stderr();
    assert_shown(master, "\r\033[Kload [###############...............]  50 %"
                         "\r\033[Kworker: warning: careful\r\n"
                         "\r\033[Kload [######################........]  75 %"
                         "\r\033[K");
    (void)close(terminal);
    (void)close(master);
}

/* No longer than its line, which could not be wiped whole. */
static void test_bar_of_narrow_terminals(void **state)
{
    (void)state;
    int master;
    const int terminal = open_terminal(&master, 23);
    if (terminal < 0) skip();
    log_configure(LOG_INFO, LOG_PLAIN);
    begin_capture(terminal);
    log_progress("load_progress", "load", NULL, 0.5);
    const struct winsize tiny = { .ws_col = 5 };
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &tiny), 0);
    log_progress("load_progress", "load", NULL, 0.75);
    log_progress("load_progress", "load", NULL, 1);
    restore_stderr();
    assert_shown(master, "\r\033[Kload [#####.....]  50 %"
                         "\r\033[Kload []  75 %"
                         "\r\033[K");
    (void)close(terminal);
    (void)close(master);
}

/* What every event carries, but for those that say it themselves. */
static void test_common(void **state)
{
    (void)state;
    static const struct log_field fields[] = { log_s("worker_id", "w"), log_u("gpu_device", 1), { .kind = LOG_END } };
    log_configure(LOG_INFO, LOG_JSON);
    log_common(fields);
    begin_capture(-1);
    LOG(LOG_INFO, "plain", NULL);
    LOG(LOG_INFO, "own", NULL, log_u("gpu_device", 2));
    log_common(NULL);
    const char *line = end_capture();
    for (int i = 0; i < 2; i++) {
        const char *end = strchr(line, '\n');
        json_t *o = parse_line(line, (size_t)(end - line));
        assert_string_equal(string_of(o, "worker_id"), "w");
        assert_int_equal(json_integer_value(json_object_get(o, "gpu_device")), i + 1);
        json_decref(o);
        line = end + 1;
    }
}

static void *log_many(void *arg)
{
    for (int i = 0; i < 200; i++) LOG(LOG_INFO, "thread", NULL, log_s("name", arg), log_u("i", i));
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_JSON);
    static char names[4][1000];
    pthread_t threads[4];
    begin_capture(-1);
    for (int i = 0; i < 4; i++) {
        memset(names[i], 'a' + i, sizeof names[i] - 1);
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, names[i]), 0);
    }
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    const char *line = end_capture();
    int n = 0;
    for (const char *end; (end = strchr(line, '\n')); line = end + 1, n++)
        json_decref(parse_line(line, (size_t)(end - line)));
    assert_int_equal(n, 800);
}

/* A reader that has stopped stops nobody: what it does not take is lost, and it is told how much once it reads again.
 * Behind all other tests: it stays so. */
static void test_stopped_reader(void **state)
{
    (void)state;
    enum { LINES = 3000 };
    int ends[2];
    char text[6000];
    log_configure(LOG_INFO, LOG_JSON);
    log_never_waits();
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    begin_capture(dup(ends[1]));
    for (int i = 0; i < LINES; i++) LOG(LOG_INFO, "event", i % 7 ? "short" : text, log_u("i", i));
    const uint64_t lost = log_lost();
    assert_true(lost > LINES / 2 && lost < LINES);
    ssize_t n = 0, got;
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    for (; (got = read(ends[0], captured + n, sizeof captured - 1 - (size_t)n)) > 0; n += got) {}
    LOG(LOG_INFO, "after", NULL);
    for (; (got = read(ends[0], captured + n, sizeof captured - 1 - (size_t)n)) > 0; n += got) {}
    captured[n] = 0;
    restore_stderr();
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(capture);
    int whole = 0, torn = 0;
    uint64_t told = 0;
    bool after = false;
    for (const char *line = captured, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        torn += !o;
        if (o && strcmp(string_of(o, "event"), "event") == 0)
            assert_int_equal(json_integer_value(json_object_get(o, "i")), whole++);
        if (o && strcmp(string_of(o, "event"), "log_lost") == 0)
            told = (uint64_t)json_integer_value(json_object_get(o, "lines"));
        after = o && strcmp(string_of(o, "event"), "after") == 0;
        json_decref(o);
    }
    assert_true(after && torn <= 1);
    assert_int_equal(told, lost);
    assert_int_equal((uint64_t)whole + lost, LINES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_line),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_progress_events),
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_bar_of_narrow_terminals),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_stopped_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
