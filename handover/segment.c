/* segment.c: see segment.h. */
#include "segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"

enum { ID_DIGITS = 32, NUMBER_DIGITS = 20, TRIES = 8, MODE = 0600 };

static const char folder[] = "/dev/shm", start[] = "worker_kv_";

/* "worker_kv_", 32 hexadecimal digits, "_", a number. */
static bool is_ours(const char *name)
{
    if (strncmp(name, start, sizeof start - 1) != 0) return false;
    const char *id = name + sizeof start - 1;
    if (strspn(id, "0123456789abcdef") != ID_DIGITS || id[ID_DIGITS] != '_') return false;
    const char *number = id + ID_DIGITS + 1;
    const size_t n = strspn(number, "0123456789");
    return n > 0 && n <= NUMBER_DIGITS && !number[n];
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* A new segment under a lock; -1 and errno: it cannot be had. A start that sweeps meanwhile may have seen it unlocked.
 */
static int create_locked(const char *id, char name[SEGMENT_NAME])
{
    static _Atomic uint64_t numbers;
    struct stat st;
    int fd = -1;
    for (int i = 0; i < TRIES; i++) {
        (void)snprintf(name, SEGMENT_NAME, "/%s%.32s_%" PRIu64, start, id, atomic_fetch_add(&numbers, 1));
        fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, MODE);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink) return fd;
        (void)shm_unlink(name);
        (void)close(fd);
    }
    errno = EAGAIN;
    return -1;
}

static bool write_all(int fd, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = pwrite(fd, from + at, bytes - at, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

wk_status segment_create(const char *id, const void *bytes, size_t n, struct segment *out, const struct wk_err *err)
{
    out->fd = create_locked(id, out->name);
    if (out->fd < 0) return wk_fail(err, WK_IO, "no shared memory: %s", strerror(errno));
    if (write_all(out->fd, bytes, n)) return WK_OK;
    const wk_status status = wk_fail(err, WK_IO, "%zu bytes of shared memory cannot be had: %s", n, strerror(errno));
    segment_close(out);
    return status;
}

bool segment_is_read(const struct segment *s)
{
    struct stat st;
    return fstat(s->fd, &st) == 0 && !st.st_nlink;
}

void segment_close(struct segment *s)
{
    if (s->fd < 0) return;
    if (!segment_is_read(s)) (void)shm_unlink(s->name);
    (void)close(s->fd);
    s->fd = -1;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static wk_status read_all(int fd, char *to, size_t bytes, const struct wk_err *err)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = pread(fd, to + at, bytes - at, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return wk_fail(err, WK_IO, "a segment of shared memory ends after %zu of %zu bytes%s%s", at, bytes,
                           n ? ": " : "", n ? strerror(errno) : "");
        at += (size_t)n;
    }
    return WK_OK;
}

static wk_status check(int fd, size_t bytes, const struct wk_err *err)
{
    struct stat st;
    if (fstat(fd, &st)) return wk_fail(err, WK_IO, "a segment of shared memory: %s", strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 07777) != MODE)
        return wk_fail(err, WK_INVALID, "a segment of shared memory is not this user's alone (mode %04o)",
                       (unsigned)st.st_mode & 07777);
    return (uint64_t)st.st_size == bytes
               ? WK_OK
               : wk_fail(err, WK_INVALID, "a segment of shared memory has %lld bytes, not %zu", (long long)st.st_size,
                         bytes);
}

wk_status segment_read(const char *id, const char *name, void *out, size_t bytes, const struct wk_err *err)
{
    if (name[0] != '/' || !is_ours(name + 1) || strncmp(name + sizeof start, id, ID_DIGITS) != 0)
        return wk_fail(err, WK_INVALID, "a segment has another name than those of this hand-over");
    const int fd = shm_open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); /* another user may have put a FIFO there */
    if (fd < 0) return wk_fail(err, WK_IO, "a segment of shared memory is not there: %s", strerror(errno));
    wk_status status = check(fd, bytes, err);
    if (status != WK_INVALID) (void)shm_unlink(name);
    if (!status) status = read_all(fd, out, bytes, err);
    (void)close(fd);
    return status;
}

/* ---- what is left -------------------------------------------------------------------------------------- */

static bool is_orphan(int at, const char *name)
{
    struct stat st;
    const int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    const bool orphan =
        fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (orphan) (void)unlinkat(at, name, 0); /* under the lock: who has just made it sees that it is gone */
    (void)close(fd);
    return orphan;
}

uint32_t segment_sweep(void)
{
    uint32_t n = 0;
    DIR *d = opendir(folder);
    if (!d) return 0;
    for (const struct dirent *e; (e = readdir(d));)
        if (is_ours(e->d_name) && is_orphan(dirfd(d), e->d_name)) n++;
    (void)closedir(d);
    return n;
}

bool segment_place(char out[SEGMENT_PLACE])
{
    char text[256], boot[64] = "";
    struct stat st;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    const bool known = f && fgets(boot, sizeof boot, f);
    if (f) (void)fclose(f);
    if (!known || stat(folder, &st)) return false;
    const int n = snprintf(text, sizeof text, "%.40s|%llu|%llu|%u", boot, (unsigned long long)st.st_dev,
                           (unsigned long long)st.st_ino, (unsigned)geteuid());
    return sha256_hex(text, (size_t)n, out);
}
