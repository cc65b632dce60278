/* audit_file.c: see audit_file.h; and the file of the key. */
#include "audit_file.h"
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "base/hex.h"
#include "base/private_file.h"

static wk_status failed(const char *path, const char *what, const struct wk_err *err)
{
    return wk_fail(err, WK_IO, "%s: cannot be %s: %s", path, what, strerror(errno));
}

/* Regular, and the owner's alone; one that is given to us: private. Closes it else. */
static wk_status check_file(const char *path, int *fd, bool given, const struct wk_err *err)
{
    struct stat s;
    wk_status status = WK_OK;
    if (fstat(*fd, &s) != 0)
        status = failed(path, "looked at", err);
    else if (!S_ISREG(s.st_mode))
        status = wk_fail(err, WK_INVALID, "%s: expected a regular file", path);
    else if (given ? !file_is_private(&s) : s.st_mode & 077)
        status = wk_fail(err, WK_INVALID, "%s: others than its owner may use it (mode %03o): chmod 600", path,
                         (unsigned)s.st_mode & 0777);
    if (!status) return WK_OK;
    (void)close(*fd);
    *fd = -1;
    return status;
}

wk_status audit_file_open(const char *path, bool fresh, int *fd, const struct wk_err *err)
{
    const int flags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    *fd = open(path, flags | (fresh ? O_EXCL : 0), 0600);
    if (*fd < 0) return failed(path, fresh ? "made" : "opened", err);
    return check_file(path, fd, false, err);
}

wk_status audit_file_lock(const char *path, int *fd, const struct wk_err *err)
{
    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (*fd < 0) return failed(path, "opened", err);
    const wk_status status = check_file(path, fd, false, err);
    if (status || flock(*fd, LOCK_EX | LOCK_NB) == 0) return status;
    const int why = errno;
    (void)close(*fd);
    *fd = -1;
    if (why == EWOULDBLOCK)
        return wk_fail(err, WK_IO, "%s: another process writes this audit log; give each worker a file of its own",
                       path);
    return wk_fail(err, WK_IO, "%s: cannot be locked: %s", path, strerror(why));
}

bool audit_file_write(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t wrote = write(fd, bytes, n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return false;
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

void audit_file_sync_folder(const char *path)
{
    char folder[AUDIT_PATH];
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 1;
    if (n >= sizeof folder) return;
    memcpy(folder, slash ? path : ".", n);
    folder[n] = '\0';
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

/* ---- the end of a log ------------------------------------------------------------------------------------------- */

static bool read_at(int fd, char *out, size_t n, uint64_t at)
{
    while (n) {
        const ssize_t got = pread(fd, out, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO; /* it became shorter */
        if (got <= 0) return false;
        out += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return true;
}

/* *out: the offset behind the last newline among the first n bytes; 0: there is none. */
static bool last_line_end(int fd, uint64_t n, uint64_t *out)
{
    char block[16384];
    *out = 0;
    while (n) {
        const size_t len = n < sizeof block ? (size_t)n : sizeof block;
        if (!read_at(fd, block, len, n - len)) return false;
        const char *newline = memrchr(block, '\n', len);
        if (newline) {
            *out = n - len + (uint64_t)(newline - block) + 1;
            return true;
        }
        n -= len;
    }
    return true;
}

wk_status audit_file_end(int fd, const char *path, struct audit_mac *m, struct audit_end *out, const struct wk_err *err)
{
    struct stat s;
    uint64_t begin;
    *out = (struct audit_end){ 0 };
    memset(out->mac, '0', AUDIT_MAC);
    if (fstat(fd, &s) != 0 || !last_line_end(fd, (uint64_t)s.st_size, &out->whole)) return failed(path, "read", err);
    out->torn = (uint64_t)s.st_size - out->whole;
    if (!out->whole) return WK_OK;
    if (!last_line_end(fd, out->whole - 1, &begin)) return failed(path, "read", err);
    const size_t n = (size_t)(out->whole - 1 - begin);
    char *bytes = malloc(n + 1);
    if (!bytes) return wk_fail(err, WK_NO_MEMORY, "no memory for the last line of %s", path);
    struct audit_line line = { 0 };
    const bool got = read_at(fd, bytes, n, begin), right = got && audit_line_read(m, bytes, n, &line);
    free(bytes);
    if (!got) return failed(path, "read", err);
    if (!right)
        return wk_fail(err, WK_INVALID,
                       "%s: its last line was not written with this key, or was changed: see worker audit verify; to "
                       "begin a new log, move it and the file with .head away",
                       path);
    out->seq = line.seq;
    memcpy(out->mac, line.mac, sizeof out->mac);
    return WK_OK;
}

static bool copy_bytes(int from, uint64_t at, uint64_t n, int to)
{
    char block[16384];
    while (n) {
        const size_t len = n < sizeof block ? (size_t)n : sizeof block;
        if (!read_at(from, block, len, at) || !audit_file_write(to, block, len)) return false;
        at += len;
        n -= len;
    }
    return fdatasync(to) == 0;
}

wk_status audit_file_cut(int fd, const char *path, const struct audit_end *end, const struct wk_err *err)
{
    char aside[AUDIT_PATH];
    const int n = snprintf(aside, sizeof aside, "%s.torn-%" PRIu64, path, end->seq + 1);
    if (n < 0 || (size_t)n >= sizeof aside) return wk_fail(err, WK_INVALID, "%.100s...: the path is too long", path);
    const int to = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0) return failed(aside, "made", err);
    const bool copied = copy_bytes(fd, end->whole, end->torn, to);
    const int why = errno;
    (void)close(to);
    errno = why;
    if (!copied) return failed(aside, "written", err);
    return ftruncate(fd, (off_t)end->whole) == 0 ? WK_OK : failed(path, "cut back to its last whole line", err);
}

/* ---- the key ---------------------------------------------------------------------------------------------------- */

/* 32 random bytes as digits; complete or not there: a name of its own first, then a link, which never replaces. */
static wk_status make_key(const char *path, const struct wk_err *err)
{
    unsigned char random[32];
    char text[2 * sizeof random + 2], unique[AUDIT_PATH];
    const int n = snprintf(unique, sizeof unique, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof unique) return wk_fail(err, WK_INVALID, "%.100s...: the path is too long", path);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return wk_fail(err, WK_IO, "the system gives no random numbers: %s", strerror(errno));
    const int fd = mkostemp(unique, O_CLOEXEC); /* 0600 */
    if (fd < 0) return failed(path, "made", err);
    hex_write(random, sizeof random, text);
    text[sizeof text - 2] = '\n';
    const bool wrote = audit_file_write(fd, text, sizeof text - 1) && fsync(fd) == 0;
    const bool made = wrote && (link(unique, path) == 0 || errno == EEXIST);
    const wk_status status = made ? WK_OK : failed(path, "made", err);
    (void)close(fd);
    (void)unlink(unique);
    audit_file_sync_folder(path);
    OPENSSL_cleanse(random, sizeof random);
    OPENSSL_cleanse(text, sizeof text);
    return status;
}

wk_status audit_key_read(const char *path, bool make, char key[AUDIT_KEY_MOST], size_t *len, const struct wk_err *err)
{
    char bytes[AUDIT_KEY_MOST + 3]; /* and a line's end, and one more: too long */
    *len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT && make) {
        const wk_status made = make_key(path, err);
        if (made) return made;
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    }
    if (fd < 0) return failed(path, "opened", err);
    wk_status status = check_file(path, &fd, true, err);
    if (status) return status;
    size_t n = 0;
    ssize_t got = 1;
    while (got > 0 && n < sizeof bytes) {
        got = read(fd, bytes + n, sizeof bytes - n);
        if (got > 0) n += (size_t)got;
    }
    if (got < 0) status = failed(path, "read", err);
    (void)close(fd);
    if (n && bytes[n - 1] == '\n') n--;
    if (n && bytes[n - 1] == '\r') n--;
    if (!status && (n < AUDIT_KEY_LEAST || n > AUDIT_KEY_MOST))
        status = wk_fail(err, WK_INVALID, "%s: expected a key of %d to %d bytes, got %zu", path, AUDIT_KEY_LEAST,
                         AUDIT_KEY_MOST, n);
    if (!status) {
        memcpy(key, bytes, n);
        *len = n;
    }
    OPENSSL_cleanse(bytes, sizeof bytes);
    return status;
}
