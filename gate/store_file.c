/* store_file.c: the policy in a file: see store.h. PATH is replaced as a whole (base/result_file.h), then, if it is
 * encrypted, PATH.generation; only then is a save done.
 *
 * PATH.generation names the newest generation that was stored, with an HMAC of the master key. It refuses an older
 * PATH that was put back by itself: from a backup, or by who wants a deleted key to be good again. It is no protection
 * against who can put back both files, or remove one and wait for an administrator who believes the warning.
 *
 * The tests end the process before and behind every call of the file system. That what was acknowledged survives a loss
 * of power rests on fsync of the file and of its folder, which such a test cannot show. */
#include "gate/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "base/hex.h"
#include "base/result_file.h"
#include "gate/sealed.h"
#include "log/log.h"

enum { MOST_FILE = SEALED_HEADER + STORE_MOST_BYTES + SEALED_TAG, MOST_STATE = 128, STATE_TEXT = 160 };

struct store_file {
    char *path, *state_path; /* state_path: PATH.generation */
    int lock;                /* PATH.lock, open and locked; -1: not yet */
    bool encrypted;
    struct sealed_kdf kdf;
    uint8_t master[SEALED_MASTER];
};

/* A text of another part, "is damaged", with the path before it. */
static wk_status of_file(const char *path, wk_status status, const char *text, const struct wk_err *err)
{
    return wk_fail(err, status, "%s %s", path, text);
}

static void close_store(void *self)
{
    struct store_file *s = self;
    if (s->lock >= 0) (void)close(s->lock);
    free(s->path);
    free(s->state_path);
    OPENSSL_cleanse(s, sizeof *s);
    free(s);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static wk_status read_open(int fd, const char *path, size_t most, char **bytes, size_t *n, const struct wk_err *err)
{
    size_t have = 0;
    char *b = malloc(most + 1);
    if (!b) return wk_fail(err, WK_NO_MEMORY, "%s: no memory for its %zu bytes", path, most);
    while (have <= most) {
        const ssize_t got = read(fd, b + have, most + 1 - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            free(b);
            return wk_fail(err, WK_IO, "%s cannot be read: %s", path, strerror(errno));
        }
        if (got == 0) break;
        have += (size_t)got;
    }
    if (have > most) {
        free(b);
        return wk_fail(err, WK_INVALID, "%s became longer while it was read", path);
    }
    b[have] = '\0';
    *bytes = b;
    *n = have;
    return WK_OK;
}

/* All of a regular file of `most` bytes at most; *bytes: terminated, for free; NULL: there is no such file. */
static wk_status read_file(const char *path, size_t most, char **bytes, size_t *n, mode_t *mode,
                           const struct wk_err *err)
{
    struct stat st;
    *bytes = NULL;
    *n = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) return WK_OK;
    if (fd < 0) return wk_fail(err, WK_IO, "%s cannot be opened: %s", path, strerror(errno));
    wk_status status = WK_OK;
    if (fstat(fd, &st) != 0)
        status = wk_fail(err, WK_IO, "%s cannot be read: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = wk_fail(err, WK_INVALID, "%s is no regular file: name one", path);
    else if (st.st_size < 0 || (uint64_t)st.st_size > most)
        status = wk_fail(err, WK_INVALID, "%s has %lld bytes; at most %zu are read", path, (long long)st.st_size, most);
    else
        status = read_open(fd, path, (size_t)st.st_size, bytes, n, err);
    if (mode) *mode = st.st_mode;
    (void)close(fd);
    return status;
}

/* The policy's file, of the form that is expected. */
static wk_status read_policy(const struct store_file *s, char **bytes, size_t *n, const struct wk_err *err)
{
    mode_t mode = 0;
    wk_status status = read_file(s->path, MOST_FILE, bytes, n, &mode, err);
    if (status != WK_OK || !*bytes) return status;
    const bool sealed = sealed_is(*bytes, *n);
    if (s->encrypted && !sealed && **bytes == '{')
        status = wk_fail(err, WK_INVALID,
                         "%s is not encrypted, but there is a passphrase: start without the passphrase, or name a new "
                         "file and make the keys anew",
                         s->path);
    else if (!s->encrypted && sealed)
        status = wk_fail(err, WK_INVALID, "%s is encrypted: give its passphrase (--policy-passphrase-file)", s->path);
    else if (!s->encrypted && (mode & (S_IRWXG | S_IRWXO)))
        status = wk_fail(err, WK_INVALID,
                         "%s has mode %03o: a policy that is not encrypted must be its owner's alone: chmod 600 it, "
                         "and make new secrets if others may have changed it",
                         s->path, (unsigned)(mode & 0777));
    if (status == WK_OK) return WK_OK;
    free(*bytes);
    *bytes = NULL;
    return status;
}

/* ---- the newest generation -------------------------------------------------------------------------------------- */

/* The text of PATH.generation. */
static wk_status state_text(const struct store_file *s, uint64_t generation, char out[STATE_TEXT],
                            const struct wk_err *err)
{
    uint8_t mac[SEALED_MAC];
    char hex[2 * SEALED_MAC + 1];
    const int n = snprintf(out, STATE_TEXT, "worker policy generation 1\n%" PRIu64 "\n", generation);
    const wk_status status = sealed_mac(s->master, out, (size_t)n, mac, err);
    if (status != WK_OK) return status;
    hex_write(mac, sizeof mac, hex);
    (void)snprintf(out + n, (size_t)(STATE_TEXT - n), "%s\n", hex);
    return WK_OK;
}

static wk_status replace(const char *path, const void *bytes, size_t n, const struct wk_err *err)
{
    struct result_file f;
    wk_status status = result_file_open_private(path, &f, err);
    if (status != WK_OK) return status;
    (void)result_file_write(&f, bytes, n); /* finish says whether it failed */
    return result_file_finish(&f, err);
}

static wk_status write_state(const struct store_file *s, uint64_t generation, const struct wk_err *err)
{
    char text[STATE_TEXT];
    const wk_status status = state_text(s, generation, text, err);
    return status == WK_OK ? replace(s->state_path, text, strlen(text), err) : status;
}

/* The generation that PATH.generation names; *there: there is such a file. */
static wk_status read_state(const struct store_file *s, bool *there, uint64_t *generation, const struct wk_err *err)
{
    char *bytes, text[STATE_TEXT];
    size_t n;
    *generation = 0;
    wk_status status = read_file(s->state_path, MOST_STATE, &bytes, &n, NULL, err);
    *there = bytes != NULL;
    if (status != WK_OK || !bytes) return status;
    const char *line = memchr(bytes, '\n', n);
    if (line) *generation = strtoull(line + 1, NULL, 10); /* any number: the text that it makes is compared */
    status = state_text(s, *generation, text, err);
    if (status == WK_OK && (n != strlen(text) || CRYPTO_memcmp(bytes, text, n) != 0))
        status = wk_fail(err, WK_INVALID,
                         "%s does not belong to %s, or is damaged. If the policy is the one you want, remove %s and "
                         "start again",
                         s->state_path, s->path, s->state_path);
    free(bytes);
    return status;
}

/* Is a policy of this generation, just read, the newest? If PATH.generation is behind (a crash came between the two
 * writes) or not there, it is written. */
static wk_status check_state(const struct store_file *s, uint64_t generation, const struct wk_err *err)
{
    uint64_t newest;
    bool there;
    const wk_status status = read_state(s, &there, &newest, err);
    if (status != WK_OK) return status;
    if (there && generation < newest)
        return wk_fail(err, WK_INVALID,
                       "%s is of generation %" PRIu64 ", and %s names %" PRIu64 ": an older policy was put back. Put "
                       "the newest back; or, if keys that were deleted since may be good again, remove %s and start "
                       "again",
                       s->path, generation, s->state_path, newest, s->state_path);
    if (there && generation == newest) return WK_OK;
    if (!there)
        LOG(LOG_WARN, "gate.policy.generation_missing",
            "the file beside the policy that names its newest generation is missing: the policy is taken as it is",
            log_s("path", s->state_path), log_u("generation", generation));
    return write_state(s, generation, err);
}

/* ---- the interface ---------------------------------------------------------------------------------------------- */

/* There is no policy: is that how it was? */
static wk_status check_absence(const struct store_file *s, const struct wk_err *err)
{
    struct stat st;
    if (!s->encrypted || (lstat(s->state_path, &st) != 0 && errno == ENOENT)) return WK_OK;
    return wk_fail(err, WK_INVALID,
                   "%s is missing, and %s says that there was a policy. Put it back; or remove %s to begin with an "
                   "empty policy",
                   s->path, s->state_path, s->state_path);
}

static wk_status load(void *self, char **json, size_t *n, uint64_t *generation, const struct wk_err *err)
{
    const struct store_file *s = self;
    char *bytes, text[512];
    const struct wk_err inner = { text, sizeof text };
    size_t bytes_n;
    *json = NULL;
    *n = 0;
    *generation = 0;
    wk_status status = read_policy(s, &bytes, &bytes_n, err);
    if (status != WK_OK) return status;
    if (!bytes) return check_absence(s, err);
    if (!s->encrypted) {
        *json = bytes;
        *n = bytes_n;
        return WK_OK;
    }
    status = sealed_open(&s->kdf, s->master, bytes, bytes_n, json, n, generation, &inner);
    free(bytes);
    if (status != WK_OK) return of_file(s->path, status, text, err);
    status = check_state(s, *generation, err);
    if (status == WK_OK) return WK_OK;
    free(*json);
    *json = NULL;
    return status;
}

static wk_status save(void *self, const char *json, size_t n, uint64_t generation, const struct wk_err *err)
{
    const struct store_file *s = self;
    uint8_t *bytes;
    size_t bytes_n;
    if (n > STORE_MOST_BYTES)
        return wk_fail(err, WK_INVALID, "the policy has %zu bytes; at most %d are stored", n, STORE_MOST_BYTES);
    if (!s->encrypted) return replace(s->path, json, n, err);
    wk_status status = sealed_make(&s->kdf, s->master, generation, json, n, &bytes, &bytes_n, err);
    if (status != WK_OK) return status;
    status = replace(s->path, bytes, bytes_n, err);
    free(bytes);
    return status == WK_OK ? write_state(s, generation, err) : status;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static wk_status take_lock(struct store_file *s, const struct wk_err *err)
{
    char *path = NULL;
    if (asprintf(&path, "%s.lock", s->path) < 0) return wk_fail(err, WK_NO_MEMORY, "no memory for a path");
    wk_status status = WK_OK;
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock < 0) {
        status = wk_fail(err, WK_IO, "%s cannot be created: %s", path, strerror(errno));
    } else if (flock(s->lock, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK
                     ? wk_fail(err, WK_IO,
                               "%s is in use by another process, which holds %s: stop that one, or let it make the "
                               "change; each worker has a policy file of its own",
                               s->path, path)
                     : wk_fail(err, WK_IO, "%s cannot be locked: %s", path, strerror(errno));
    }
    free(path);
    return status;
}

/* The master key, of the salt in the file, or of a new one if there is no file. */
static wk_status take_key(struct store_file *s, const void *passphrase, size_t n, const struct wk_err *err)
{
    char *bytes, text[512];
    const struct wk_err inner = { text, sizeof text };
    size_t bytes_n;
    wk_status status = read_policy(s, &bytes, &bytes_n, err);
    if (status != WK_OK || !s->encrypted) {
        free(bytes);
        return status;
    }
    status = bytes ? sealed_read_kdf(bytes, bytes_n, &s->kdf, &inner) : sealed_new_kdf(&s->kdf, &inner);
    if (status == WK_OK) status = sealed_derive(&s->kdf, passphrase, n, s->master, &inner);
    free(bytes);
    return status == WK_OK ? WK_OK : of_file(s->path, status, text, err);
}

/* The path for free; of a link, of what it leads to: lock and generation stand beside the file, whoever opens it by
 * which name. */
static char *file_itself(const char *path)
{
    struct stat st;
    char *real = lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
    return real ? real : strdup(path);
}

wk_status store_file_open(const char *path, void *passphrase, size_t n, struct store *out, const struct wk_err *err)
{
    struct store_file *s = calloc(1, sizeof *s);
    wk_status status = WK_OK;
    if (s) s->lock = -1;
    if (!s || !(s->path = file_itself(path)) || asprintf(&s->state_path, "%s.generation", path) < 0) {
        if (s) s->state_path = NULL; /* asprintf leaves it undefined */
        status = wk_fail(err, WK_NO_MEMORY, "%s: no memory to open it", path);
    }
    if (status == WK_OK) {
        s->encrypted = n > 0;
        status = take_lock(s, err);
    }
    if (status == WK_OK) status = take_key(s, passphrase, n, err);
    if (n > 0) OPENSSL_cleanse(passphrase, n);
    if (status != WK_OK) {
        if (s) close_store(s);
        return status;
    }
    *out = (struct store){ .self = s, .load = load, .save = save, .close = close_store };
    return WK_OK;
}
