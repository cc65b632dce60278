/* part.c: see part.h. FILE.part.from is one line: the SHA-256 of the file that the part is of, and the ETag of the
 * host. What it says is a hint: a wrong one costs a download, for the whole file's SHA-256 is tested before it has its
 * name. */
#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sha256.h"

enum { BUFFER = 1 << 20, LOOK_NS = 200000000 };

static wk_status fail_errno(const char *path, const char *what, const struct wk_err *err)
{
    return wk_fail(err, WK_INVALID, "%.2000s: %s: %s", path, what, strerror(errno));
}

static wk_status no_memory(const char *path, const struct wk_err *err)
{
    return wk_fail(err, WK_NO_MEMORY, "%.2000s: out of memory", path);
}

wk_status part_make_folders(const char *path, const struct wk_err *err)
{
    char *folder = strdup(path);
    wk_status status = folder ? WK_OK : no_memory(path, err);
    for (char *slash = folder ? strchr(folder + 1, '/') : NULL; slash && !status; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) status = fail_errno(folder, "the folder cannot be made", err);
        *slash = '/';
    }
    free(folder);
    return status;
}

uint64_t part_bytes_there(const char *path, uint64_t bytes)
{
    struct stat st;
    char *part = NULL;
    uint64_t there = 0;
    if (stat(path, &st) == 0 && (uint64_t)st.st_size == bytes) return bytes;
    if (asprintf(&part, "%s.part", path) < 0) return 0;
    if (stat(part, &st) == 0 && (uint64_t)st.st_size <= bytes) there = (uint64_t)st.st_size;
    free(part);
    return there;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Whoever had the lock before may have given the file its name, and what we have locked is then another one. */
static bool is_still_there(const struct part *p)
{
    struct stat mine, there;
    return fstat(p->fd, &mine) == 0 && lstat(p->part, &there) == 0 && mine.st_dev == there.st_dev &&
           mine.st_ino == there.st_ino;
}

static wk_status lock(struct part *p, part_step step, void *user, const struct wk_err *err)
{
    while (flock(p->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno(p->part, "cannot be locked", err);
        if (!step(user, true, 0)) return wk_fail(err, WK_CANCELLED, "stopped");
        (void)nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
    }
    return WK_OK;
}

wk_status part_open(const char *path, part_step step, void *user, struct part *p, const struct wk_err *err)
{
    *p = (struct part){ .fd = -1, .path = strdup(path) };
    if (asprintf(&p->part, "%s.part", path) < 0) p->part = NULL;
    if (asprintf(&p->from, "%s.part.from", path) < 0) p->from = NULL;
    if (!p->path || !p->part || !p->from) return no_memory(path, err);
    for (;;) {
        struct stat st;
        p->fd = open(p->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (p->fd < 0) return fail_errno(p->part, "cannot be written", err);
        if (fstat(p->fd, &st) != 0 || !S_ISREG(st.st_mode))
            return wk_fail(err, WK_INVALID, "%.2000s: is no regular file; remove it", p->part);
        const wk_status status = lock(p, step, user, err);
        if (status || is_still_there(p)) return status;
        (void)close(p->fd);
    }
}

void part_close(struct part *p)
{
    struct stat st;
    char sum[65];
    if (p->fd >= 0) {
        if (fstat(p->fd, &st) == 0 && st.st_size == 0 && is_still_there(p)) {
            (void)unlink(p->part); /* nothing to keep */
            (void)unlink(p->from);
        }
        (void)close(p->fd);
    }
    if (p->sum) (void)sha256_end(p->sum, sum);
    free(p->path);
    free(p->part);
    free(p->from);
    *p = (struct part){ .fd = -1 };
}

/* ---- what is in it ------------------------------------------------------------------------------------- */

/* Adds n bytes of an open file to a sum. */
static wk_status read_into(int fd, const char *path, uint64_t n, struct sha256 *sum, part_step step, void *user,
                           const struct wk_err *err)
{
    char *buffer = malloc(BUFFER);
    wk_status status = buffer ? WK_OK : no_memory(path, err);
    for (uint64_t done = 0; !status && done < n;) {
        const uint64_t left = n - done;
        const ssize_t got = pread(fd, buffer, left < BUFFER ? (size_t)left : BUFFER, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            status = fail_errno(path, "cannot be read", err);
        else if (got == 0)
            status = wk_fail(err, WK_INVALID, "%.2000s: became shorter while it was read", path);
        else
            sha256_update(sum, buffer, (size_t)got);
        done += got > 0 ? (uint64_t)got : 0;
        if (!status && !step(user, false, done)) status = wk_fail(err, WK_CANCELLED, "stopped");
    }
    free(buffer);
    return status;
}

wk_status part_file_sha256(const char *path, uint64_t bytes, part_step step, void *user, char sha256[HUB_SHA256],
                           bool *there, const struct wk_err *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *there = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes;
    sha256[0] = '\0';
    if (!*there) {
        if (fd >= 0) (void)close(fd);
        return WK_OK;
    }
    struct sha256 *sum = sha256_begin();
    wk_status status = sum ? read_into(fd, path, bytes, sum, step, user, err) : no_memory(path, err);
    if (sum && !sha256_end(sum, sha256) && !status) status = no_memory(path, err);
    (void)close(fd);
    return status;
}

/* Begins the sum anew. */
static wk_status begin_sum(struct part *p, const struct wk_err *err)
{
    char old[65];
    if (p->sum) (void)sha256_end(p->sum, old);
    p->sum = sha256_begin();
    return p->sum ? WK_OK : no_memory(p->part, err);
}

/* Is the part of a file with this SHA-256? Then its host's ETag is known. */
static bool read_from(struct part *p, const char *sha256)
{
    char line[HUB_SHA256 + HUB_ETAG + 8];
    FILE *f = fopen(p->from, "re");
    const size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f) (void)fclose(f);
    line[n] = '\0';
    if (n < 66 || line[n - 1] != '\n' || line[64] != ' ' || strncmp(line, sha256, 64) != 0) return false;
    line[n - 1] = '\0';
    if (strlen(line) != n - 1 || n - 66 >= sizeof p->etag) return false;
    for (const char *c = line + 65; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) return false;
    memcpy(p->etag, line + 65, n - 65);
    return true;
}

static wk_status write_from(const struct part *p, const char *sha256, const char *etag, const struct wk_err *err)
{
    const int fd = open(p->from, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    const bool good = fd >= 0 && dprintf(fd, "%s %s\n", sha256, etag) > 0;
    const wk_status status = good ? WK_OK : fail_errno(p->from, "cannot be written", err);
    if (fd >= 0) (void)close(fd);
    return status;
}

wk_status part_resume(struct part *p, const char *sha256, uint64_t bytes, part_step step, void *user,
                      const struct wk_err *err)
{
    struct stat st;
    if (fstat(p->fd, &st) != 0) return fail_errno(p->part, "cannot be read", err);
    if (!st.st_size || (uint64_t)st.st_size > bytes || !read_from(p, sha256)) return part_restart(p, sha256, "", err);
    p->bytes = (uint64_t)st.st_size;
    wk_status status = begin_sum(p, err);
    return status ? status : read_into(p->fd, p->part, p->bytes, p->sum, step, user, err);
}

wk_status part_restart(struct part *p, const char *sha256, const char *etag, const struct wk_err *err)
{
    wk_status status = begin_sum(p, err);
    if (status) return status;
    p->bytes = 0;
    (void)snprintf(p->etag, sizeof p->etag, "%s", etag);
    if (ftruncate(p->fd, 0) != 0) return fail_errno(p->part, "cannot be emptied", err);
    return write_from(p, sha256, etag, err);
}

wk_status part_write(struct part *p, const void *bytes, size_t n, const struct wk_err *err)
{
    const char *at = bytes;
    for (size_t left = n; left;) {
        const ssize_t done = pwrite(p->fd, at, left, (off_t)(p->bytes + (n - left)));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            const wk_status status = fail_errno(p->part, "cannot be written", err);
            /* back to what the sum knows */
            return ftruncate(p->fd, (off_t)p->bytes) == 0 ? status : fail_errno(p->part, "cannot be cut back", err);
        }
        at += done;
        left -= (size_t)done;
    }
    sha256_update(p->sum, bytes, n);
    p->bytes += n;
    return WK_OK;
}

/* A name is on the disk when its folder is. */
static void sync_folder(const char *path)
{
    char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash) {
        slash[slash == folder] = '\0';
        const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
            (void)fsync(fd);
            (void)close(fd);
        }
    }
    free(folder);
}

wk_status part_finish(struct part *p, char sha256[HUB_SHA256], bool *right, const struct wk_err *err)
{
    char found[65];
    struct sha256 *sum = p->sum;
    p->sum = NULL;
    *right = false;
    if (!sum || !sha256_end(sum, found)) return no_memory(p->part, err);
    if (strcmp(found, sha256) != 0) {
        memcpy(sha256, found, sizeof found);
        /* emptied, it is removed when it is closed */
        return ftruncate(p->fd, 0) == 0 ? WK_OK : fail_errno(p->part, "is not what the hub has, and stays", err);
    }
    if (fsync(p->fd) != 0) return fail_errno(p->part, "cannot be written", err);
    if (rename(p->part, p->path) != 0) return fail_errno(p->path, "cannot be made", err);
    (void)unlink(p->from);
    sync_folder(p->path);
    *right = true;
    return WK_OK;
}
