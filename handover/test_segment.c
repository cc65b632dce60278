/* test_segment.c: shared memory that is read once, by whom it is for, and that nobody leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "segment.h"

static const char id[] = "0123456789abcdef0123456789abcdef";
enum { BYTES = 100000 };

static bool is_there(const char *name)
{
    const int fd = shm_open(name, O_RDONLY, 0);
    if (fd >= 0) (void)close(fd);
    return fd >= 0;
}

static struct segment made(void)
{
    static char bytes[BYTES];
    struct segment s;
    memset(bytes, 7, BYTES);
    assert_int_equal(segment_create(id, bytes, BYTES, &s, NULL), WK_OK);
    return s;
}

static void read_once(void **state)
{
    (void)state;
    char *out = malloc(BYTES);
    struct segment s = made();
    struct stat st;
    assert_int_equal(fstat(s.fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_false(segment_is_read(&s));
    assert_int_equal(segment_read(id, s.name, out, BYTES, NULL), WK_OK);
    assert_int_equal(out[0] + out[BYTES - 1], 14);
    assert_true(segment_is_read(&s));
    assert_false(is_there(s.name));
    assert_int_equal(segment_read(id, s.name, out, BYTES, NULL), WK_IO);
    segment_close(&s);
    segment_close(&s);
    struct segment unread = made();
    segment_close(&unread);
    assert_false(is_there(unread.name));
    free(out);
}

/* Memory that is missing: here a file may not be as long. */
static void no_room(void **state)
{
    (void)state;
    static const char bytes[BYTES];
    struct rlimit was, few;
    struct segment s;
    char text[128] = "";
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    few = was;
    few.rlim_cur = BYTES - 1;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    const wk_status status = segment_create(id, bytes, BYTES, &s, &(struct wk_err){ text, sizeof text });
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(status, WK_IO);
    assert_non_null(strstr(text, "100000 bytes of shared memory cannot be had"));
    assert_false(is_there(s.name));
    segment_close(&s);
}

static void not_ours(void **state)
{
    (void)state;
    static const char *const names[] = { "/worker_kv_",
                                         "/etc/passwd",
                                         "worker_kv_0123456789abcdef0123456789abcdef_1",
                                         "/worker_kv_0123456789abcdef0123456789abcdef_",
                                         "/worker_kv_0123456789abcdef0123456789abcdef_1/x",
                                         "/worker_kv_0123456789ABCDEF0123456789abcdef_1",
                                         "/../worker_kv_0123456789abcdef0123456789abcdef_1",
                                         "" };
    char *out = malloc(BYTES);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(segment_read(id, names[i], out, 1, NULL), WK_INVALID);
    struct segment cut = made();
    assert_int_equal(ftruncate(cut.fd, BYTES - 1), 0);
    assert_int_equal(segment_read(id, cut.name, out, BYTES, NULL), WK_INVALID);
    assert_true(is_there(cut.name)); /* it is not what was told: who has made it takes it away */
    segment_close(&cut);
    assert_false(is_there(cut.name));
    struct segment other = made();
    assert_int_equal(segment_read("1123456789abcdef0123456789abcdef", other.name, out, BYTES, NULL), WK_INVALID);
    assert_true(is_there(other.name)); /* of another hand-over: who asked for this one may not take it away */
    segment_close(&other);
    struct segment open = made();
    assert_int_equal(fchmod(open.fd, 0644), 0);
    assert_int_equal(segment_read(id, open.name, out, BYTES, NULL), WK_INVALID);
    segment_close(&open);
    free(out);
}

/* Whatever lies under a segment's name, nobody waits for it: a FIFO that nobody writes to, a folder, a link. */
static void no_files(void **state)
{
    (void)state;
    static const char path[] = "/dev/shm/worker_kv_0123456789abcdef0123456789abcdef_18446744073709551615";
    static const char name[] = "/worker_kv_0123456789abcdef0123456789abcdef_18446744073709551615";
    char byte;
    (void)alarm(60);
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(segment_read(id, name, &byte, 1, NULL), WK_INVALID);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0600), 0);
    assert_int_equal(segment_read(id, name, &byte, 1, NULL), WK_INVALID);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_int_equal(segment_read(id, name, &byte, 1, NULL), WK_IO);
    assert_int_equal(unlink(path), 0);
    (void)alarm(0);
}

/* A process that dies with a segment leaves it; the next start takes it away, and no living process's. */
static void orphans(void **state)
{
    (void)state;
    int pipes[2];
    char name[SEGMENT_NAME];
    assert_int_equal(pipe(pipes), 0);
    const pid_t pid = fork();
    if (!pid) {
        static const char bytes[BYTES];
        struct segment s;
        if (segment_create(id, bytes, BYTES, &s, NULL)) _exit(1);
        if (write(pipes[1], s.name, sizeof s.name) != sizeof s.name) _exit(1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(pipes[0], name, sizeof name), sizeof name);
    struct segment s = made();
    (void)segment_sweep();
    assert_true(is_there(name));
    assert_true(is_there(s.name));
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(segment_sweep() >= 1);
    assert_false(is_there(name));
    assert_true(is_there(s.name));
    segment_close(&s);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void places(void **state)
{
    (void)state;
    char a[SEGMENT_PLACE], b[SEGMENT_PLACE];
    assert_true(segment_place(a));
    assert_true(segment_place(b));
    assert_string_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(read_once), cmocka_unit_test(no_room),
                                        cmocka_unit_test(not_ours),  cmocka_unit_test(no_files),
                                        cmocka_unit_test(orphans),   cmocka_unit_test(places) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
