/* allowed.c: the list of --plugin-digest: SHA-256 of the files that may be mapped, as sha256sum writes them. Kept for
 * the process; without one every file may be mapped that vetting passes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/plugin.h"
#include "plugin/vet.h"

enum { LIST_BYTES = 1 << 20, HEX = 64 };

static struct {
    char *path; /* NULL: there is no list */
    char (*digest)[HEX + 1];
    uint32_t n;
} allowed;

static int by_digest(const void *a, const void *b) { return memcmp(a, b, HEX); }

/* Who can write to the list decides what is mapped. */
static wk_status open_list(const char *path, int *fd, const struct wk_err *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); /* NONBLOCK: a pipe must not hold us */
    if (*fd < 0) return wk_fail(err, WK_IO, "cannot open: %s", strerror(errno));
    if (fstat(*fd, &st) != 0) return wk_fail(err, WK_IO, "cannot examine: %s", strerror(errno));
    if (!S_ISREG(st.st_mode)) return wk_fail(err, WK_INVALID, "not a regular file");
    return vet_owner(&st, "it", err);
}

/* The whole file, *n bytes; the caller frees it. */
static wk_status read_list(int fd, char **text, size_t *n, const struct wk_err *err)
{
    *n = 0;
    *text = malloc(LIST_BYTES + 1);
    if (!*text) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    while (*n <= LIST_BYTES) {
        const ssize_t got = read(fd, *text + *n, LIST_BYTES + 1 - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return wk_fail(err, WK_IO, "cannot read: %s", strerror(errno));
        if (got == 0) return WK_OK;
        *n += (size_t)got;
    }
    return wk_fail(err, WK_INVALID, "longer than %d bytes", LIST_BYTES);
}

static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* "<64 hex digits>  NAME", or " *NAME", as sha256sum --binary has it. The name is for people: bytes are what counts. */
static wk_status read_line(const char *line, size_t n, unsigned number, const struct wk_err *err)
{
    size_t digits = 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127)
            return wk_fail(err, WK_INVALID, "line %u: byte 0x%02x; a line of plain text expected", number,
                           (unsigned)(unsigned char)line[i]);
    if (n == 0 || line[0] == '#') return WK_OK;
    while (digits < n && is_hex(line[digits])) digits++;
    if (digits != HEX)
        return wk_fail(err, WK_INVALID, "line %u: begins with %zu hex digits, a SHA-256 has %d", number, digits, HEX);
    if (n < HEX + 3 || line[HEX] != ' ' || (line[HEX + 1] != ' ' && line[HEX + 1] != '*') || line[HEX + 2] == ' ')
        return wk_fail(err, WK_INVALID, "line %u: two spaces and a file's name expected after the digest", number);
    char *to = allowed.digest[allowed.n++];
    for (size_t i = 0; i < HEX; i++) to[i] = line[i] >= 'A' && line[i] <= 'F' ? (char)(line[i] - 'A' + 'a') : line[i];
    to[HEX] = '\0';
    return WK_OK;
}

static wk_status read_lines(const char *text, size_t n, const struct wk_err *err)
{
    unsigned number = 1;
    for (size_t at = 0; at < n; number++) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - (text + at)) : n - at;
        const wk_status status = read_line(text + at, length, number, err);
        if (status != WK_OK) return status;
        at += length + 1;
    }
    return WK_OK;
}

static wk_status keep(const char *path, const char *text, size_t n, const struct wk_err *err)
{
    allowed.path = strdup(path);
    allowed.digest = calloc(n / (HEX + 3) + 1, sizeof *allowed.digest); /* a line with a digest has as many bytes */
    if (!allowed.path || !allowed.digest) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    const wk_status status = read_lines(text, n, err);
    if (status == WK_OK) qsort(allowed.digest, allowed.n, sizeof *allowed.digest, by_digest);
    return status;
}

static void forget(void)
{
    free(allowed.path);
    free(allowed.digest);
    memset(&allowed, 0, sizeof allowed);
}

wk_status plugin_allow_only(const char *path, const struct wk_err *err)
{
    int fd = -1;
    char *text = NULL, reason[256];
    size_t n = 0;
    const struct wk_err why = { reason, sizeof reason };
    forget();
    if (!path) return WK_OK;
    wk_status status = open_list(path, &fd, &why);
    if (status == WK_OK) status = read_list(fd, &text, &n, &why);
    if (status == WK_OK) status = keep(path, text, n, &why);
    if (fd >= 0) (void)close(fd);
    free(text);
    if (status == WK_OK) return WK_OK;
    forget();
    return wk_fail(err, status, "--plugin-digest %s: %s", path, reason);
}

wk_status allowed_check(const char digest[65], const struct wk_err *err)
{
    if (!allowed.path) return WK_OK;
    if (allowed.n && bsearch(digest, allowed.digest, allowed.n, sizeof *allowed.digest, by_digest)) return WK_OK;
    return wk_fail(err, WK_INVALID, "its SHA-256, %s, is not on the list of --plugin-digest, %s", digest, allowed.path);
}
