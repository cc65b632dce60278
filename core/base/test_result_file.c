/* test_result_file.c: a result appears whole or not at all, whatever the file system answers and whenever a signal
 * comes; and nothing that is no regular file is replaced. */
#include "base/result_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[128], text[512];
static const struct wk_err err = { text, sizeof text };

/* ---- a file system and signals as a test wants them ---------------------------------------------------- */

static bool no_unnamed, cannot_link, cannot_rename, cannot_sync;
static int at_link, at_rename, at_sync; /* a signal; 0: none */
static int synced;                      /* calls of fsync before the name appeared; -1: none since the start */

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (no_unnamed && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_openat(dir, name, flags, mode);
}

int __real_linkat(int from, const char *name, int to, const char *other, int flags);
int __wrap_linkat(int from, const char *name, int to, const char *other, int flags);
int __wrap_linkat(int from, const char *name, int to, const char *other, int flags)
{
    if (cannot_link) {
        errno = EPERM;
        return -1;
    }
    const int result = __real_linkat(from, name, to, other, flags);
    if (at_link) (void)raise(at_link);
    return result;
}

int __real_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other)
{
    assert_true(synced > 0); /* data before the name */
    if (at_rename) (void)raise(at_rename);
    if (cannot_rename) {
        errno = ENOSPC;
        return -1;
    }
    return __real_renameat(from, name, to, other);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (at_sync) (void)raise(at_sync);
    if (cannot_sync) {
        errno = EIO;
        return -1;
    }
    synced++;
    return __real_fsync(fd);
}

/* ---- the folder ---------------------------------------------------------------------------------------- */

static int start(void **state)
{
    (void)state;
    no_unnamed = cannot_link = cannot_rename = cannot_sync = false;
    at_link = at_rename = at_sync = synced = 0;
    (void)snprintf(folder, sizeof folder, "/tmp/worker-result-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/out", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static int files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(d);
    return n;
}

static void put(const char *name, const char *bytes)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(bytes, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void expect(const char *name, const char *bytes)
{
    char got[64] = "";
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got - 1, f), strlen(bytes));
    (void)fclose(f);
    assert_string_equal(got, bytes);
}

static wk_status write_all(const char *to)
{
    struct result_file f;
    wk_status status = result_file_open(to, &f, &err);
    if (status != WK_OK) {
        assert_null(f.stream);
        return status;
    }
    (void)result_file_write(&f, "new", 3);
    return result_file_finish(&f, &err);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static void test_appears(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct result_file f, other;
        no_unnamed = i % 2;
        if (i >= 2) put(path, "old");
        assert_int_equal(result_file_open(path, &f, &err), WK_OK);
        assert_int_equal(result_file_open(path, &other, &err), WK_OK); /* two at once do not meet */
        assert_true(result_file_write(&f, "new", 3) && result_file_write(&other, "other", 5));
        assert_int_equal(access(path, F_OK), i < 2 ? -1 : 0);
        if (i >= 2) expect(path, "old");
        assert_int_equal(result_file_finish(&f, &err), WK_OK);
        expect(path, "new");
        result_file_abandon(&other);
        result_file_abandon(&other);
        assert_int_equal(files(), 1);
        struct stat st;
        const mode_t mask = umask(0);
        (void)umask(mask);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
        assert_int_equal(unlink(path), 0);
    }
}

/* Its owner's alone from the first byte on, with a name or without, and also in place of one that was everybody's. */
static void test_private(void **state)
{
    (void)state;
    const mode_t mask = umask(0);
    for (int i = 0; i < 4; i++) {
        struct result_file f;
        struct stat st;
        no_unnamed = i % 2;
        if (i >= 2) put(path, "old");
        assert_int_equal(result_file_open_private(path, &f, &err), WK_OK);
        assert_int_equal(fstat(fileno(f.stream), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_true(result_file_write(&f, "new", 3));
        assert_int_equal(result_file_finish(&f, &err), WK_OK);
        expect(path, "new");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(unlink(path), 0);
    }
    (void)umask(mask);
}

static void test_failures(void **state)
{
    (void)state;
    static bool *const faults[] = { &cannot_link, &cannot_rename, &cannot_sync };
    static const char *const words[] = { "cannot be named", "cannot be renamed", "cannot be written to disk" };
    for (size_t i = 0; i < 6; i++) {
        no_unnamed = i % 2;
        if (no_unnamed && i / 2 == 0) continue; /* nothing is linked there */
        *faults[i / 2] = true;
        put(path, "old");
        assert_int_equal(write_all(path), WK_IO);
        *faults[i / 2] = false;
        if (!strstr(text, words[i / 2]) || strncmp(text, path, strlen(path)) != 0) fail_msg("\"%s\"", text);
        expect(path, "old");
        assert_int_equal(files(), 1);
    }
    assert_int_equal(write_all("/nowhere/at/all"), WK_IO);
    assert_non_null(strstr(text, "/nowhere/at/all: cannot be created"));
}

/* A limit on file sizes is an error of the write where the program ignores its signal, as a full disk is. */
static void test_too_large(void **state)
{
    (void)state;
    struct rlimit before;
    static char bytes[1 << 16];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        struct result_file f;
        no_unnamed = i;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1 << 20, before.rlim_max }), 0);
        assert_int_equal(result_file_open(path, &f, &err), WK_OK);
        bool ok = true;
        for (int k = 0; k < 64; k++) ok = result_file_write(&f, bytes, sizeof bytes);
        assert_false(ok);
        assert_int_equal(result_file_finish(&f, &err), WK_IO);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_non_null(strstr(text, "cannot be written: File too large"));
        assert_int_equal(files(), 0);
    }
}

/* A signal that ends the process finds nothing to leave, at any moment. */
static void test_signals(void **state)
{
    (void)state;
    static const int numbers[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 };
    static int *const moments[] = { &at_sync, &at_link, &at_rename, NULL };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (size_t m = 0; m < 8; m++) {
            no_unnamed = m % 2;
            if (no_unnamed && moments[m / 2] == &at_link) continue;
            const pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                const struct rlimit none = { 0, 0 };
                struct result_file f;
                (void)setrlimit(RLIMIT_CORE, &none);
                if (result_file_open(path, &f, &err) != WK_OK || !result_file_write(&f, "new", 3)) _exit(2);
                if (!moments[m / 2]) (void)raise(numbers[i]); /* while it is written */
                *moments[m / 2] = numbers[i];
                (void)result_file_finish(&f, &err);
                _exit(3);
            }
            int how;
            assert_int_equal(waitpid(child, &how, 0), child);
            if (!WIFSIGNALED(how) || WTERMSIG(how) != numbers[i] || files() != 0)
                fail_msg("signal %d at moment %zu: status 0x%x, %d files", numbers[i], m, (unsigned)how, files());
        }
}

static void *read_fifo(void *got)
{
    FILE *f = fopen(path, "r");
    if (f) ((char *)got)[fread(got, 1, 15, f)] = '\0';
    if (f) (void)fclose(f);
    return NULL;
}

/* What is no regular file stays what it is. */
static void test_special(void **state)
{
    (void)state;
    char got[16] = "", target[160], link[160];
    struct stat st;
    pthread_t reader;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_fifo, got), 0);
    assert_int_equal(write_all(path), WK_OK);
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_string_equal(got, "new");
    assert_true(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    assert_int_equal(unlink(path), 0);

    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(write_all(path), WK_IO);
    assert_non_null(strstr(text, "is a folder"));
    assert_int_equal(rmdir(path), 0);

    (void)snprintf(target, sizeof target, "%s/target", folder);
    (void)snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("target", path), 0);
    assert_int_equal(symlink("out", link), 0);
    assert_int_equal(write_all(link), WK_IO);
    assert_non_null(strstr(text, "leads nowhere"));
    assert_int_equal(files(), 2);
    put(target, "old");
    assert_int_equal(write_all(link), WK_OK);
    expect(target, "new");
    assert_true(lstat(link, &st) == 0 && S_ISLNK(st.st_mode) && lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    assert_int_equal(files(), 3);
}

/* Nodes of one's own, so that whatever goes wrong hits nobody else. */
static void test_devices(void **state)
{
    (void)state;
    struct stat st;
    if (mknod(path, S_IFCHR | 0600, makedev(1, 7)) != 0) skip(); /* like /dev/full */
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) skip(); /* a file system without devices */
    (void)close(fd);
    assert_int_equal(write_all(path), WK_IO);
    assert_non_null(strstr(text, "cannot be written: No space left on device"));
    assert_true(lstat(path, &st) == 0 && S_ISCHR(st.st_mode));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(1, 3)), 0); /* like /dev/null */
    assert_int_equal(write_all(path), WK_OK);
    assert_true(lstat(path, &st) == 0 && S_ISCHR(st.st_mode));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mknod(path, S_IFBLK | 0600, makedev(7, 250)), 0);
    assert_int_equal(write_all(path), WK_IO);
    assert_non_null(strstr(text, "is a block device"));
    assert_true(lstat(path, &st) == 0 && S_ISBLK(st.st_mode));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_appears, start, end),
        cmocka_unit_test_setup_teardown(test_private, start, end),
        cmocka_unit_test_setup_teardown(test_failures, start, end),
        cmocka_unit_test_setup_teardown(test_too_large, start, end),
        cmocka_unit_test_setup_teardown(test_signals, start, end),
        cmocka_unit_test_setup_teardown(test_special, start, end),
        cmocka_unit_test_setup_teardown(test_devices, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
