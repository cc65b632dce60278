/* result_file.c: see result_file.h. */
#include "base/result_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, MAX_TEMPORARIES = 16, NAME_TRIES = 16 };

/* Files that have a unique name now. A handler reads them, so a place is filled before it is shown. */
static struct {
    _Atomic int state; /* FREE, FILLING, SHOWN */
    int folder;
    char name[40];
} temporaries[MAX_TEMPORARIES];
enum { FREE, FILLING, SHOWN };

void result_file_remove_temporaries(void)
{
    for (int i = 0; i < MAX_TEMPORARIES; i++)
        if (atomic_load(&temporaries[i].state) == SHOWN) (void)unlinkat(temporaries[i].folder, temporaries[i].name, 0);
}

static void on_end(int number)
{
    result_file_remove_temporaries();
    (void)signal(number, SIG_DFL);
    (void)raise(number); /* when the handler returns */
}

/* Of signals that end the process, those that nobody handles. */
static void watch_signals(void)
{
    static const int numbers[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old, action = { .sa_handler = on_end };
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(numbers[i], NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
            (void)sigaction(numbers[i], &action, NULL);
    }
}

/* A new unique name, known to the handler from before there is a file of it; -1 with errno. */
static int take_temporary(int folder)
{
    for (int i = 0; i < MAX_TEMPORARIES; i++) {
        int expected = FREE;
        uint64_t random;
        if (!atomic_compare_exchange_strong(&temporaries[i].state, &expected, FILLING)) continue;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
            atomic_store(&temporaries[i].state, FREE);
            return -1;
        }
        temporaries[i].folder = folder;
        (void)snprintf(temporaries[i].name, sizeof temporaries[i].name, ".worker-%016llx", (unsigned long long)random);
        atomic_store(&temporaries[i].state, SHOWN);
        return i;
    }
    errno = EMFILE;
    return -1;
}

static void give_temporary(struct result_file *f)
{
    if (f->temporary >= 0) atomic_store(&temporaries[f->temporary].state, FREE);
    f->temporary = -1;
}

static wk_status fail_errno(const struct result_file *f, const char *what, const struct wk_err *err)
{
    return wk_fail(err, WK_IO, "%s: %s: %s", f->path, what, strerror(errno));
}

static void release(struct result_file *f)
{
    if (f->temporary >= 0) (void)unlinkat(f->folder, temporaries[f->temporary].name, 0);
    give_temporary(f);
    if (f->stream) (void)fclose(f->stream);
    if (f->folder >= 0) (void)close(f->folder);
    free(f->path);
    free(f->name);
    *f = (struct result_file){ .folder = -1, .temporary = -1 };
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Something that is no regular file, as it is. */
static int open_special(const struct result_file *f, mode_t mode, wk_status *status, const struct wk_err *err)
{
    if (!S_ISFIFO(mode) && !S_ISCHR(mode)) {
        *status = wk_fail(
            err, WK_IO, "%s: is %s; name a file, or a FIFO or character device, which is written to as it is", f->path,
            S_ISDIR(mode)    ? "a folder"
            : S_ISBLK(mode)  ? "a block device"
            : S_ISSOCK(mode) ? "a socket"
                             : "no regular file");
        return -1;
    }
    const int fd = open(f->path, O_WRONLY | O_NOCTTY | O_CLOEXEC); /* of a FIFO: waits for its reader */
    if (fd < 0) *status = fail_errno(f, "cannot be opened", err);
    return fd;
}

/* A file without a name; where the file system has none, or no /proc would give it one, of a unique name. */
static int open_temporary(struct result_file *f, mode_t mode)
{
    int fd = -1;
    if (access("/proc/self/fd", X_OK) == 0) fd = openat(f->folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
    for (int i = 0; fd < 0 && i < NAME_TRIES; i++) {
        f->temporary = take_temporary(f->folder);
        if (f->temporary < 0) return -1;
        fd = openat(f->folder, temporaries[f->temporary].name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    mode);
        if (fd >= 0 || errno != EEXIST) break;
        give_temporary(f); /* somebody else's */
    }
    if (fd < 0) give_temporary(f);
    return fd;
}

/* Folder and name of a regular file, to be made or replaced, with links followed. */
static wk_status find_place(struct result_file *f, bool exists, const struct wk_err *err)
{
    struct stat st;
    char *target = exists ? realpath(f->path, NULL) : strdup(f->path);
    if (!target) return fail_errno(f, "cannot be found", err);
    if (!exists && lstat(f->path, &st) == 0) {
        free(target);
        return wk_fail(err, WK_IO, "%s: is a symbolic link that leads nowhere; remove it or name a file", f->path);
    }
    char *slash = strrchr(target, '/');
    f->name = strdup(slash ? slash + 1 : target);
    if (slash) slash[slash == target] = '\0';
    if (f->name) f->folder = open(slash ? target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(target);
    if (!f->name) return wk_fail(err, WK_NO_MEMORY, "%s: no memory for a name", f->path);
    if (!f->name[0]) return wk_fail(err, WK_IO, "%s: is no name of a file", f->path);
    return f->folder < 0 ? fail_errno(f, "cannot be created", err) : WK_OK;
}

static wk_status open_file(const char *path, mode_t mode, struct result_file *f, const struct wk_err *err)
{
    struct stat st;
    int fd = -1;
    wk_status status = WK_OK;
    *f = (struct result_file){ .folder = -1, .temporary = -1, .path = strdup(path) };
    if (!f->path) return wk_fail(err, WK_NO_MEMORY, "%s: no memory for a name", path);
    const bool exists = stat(path, &st) == 0;
    if (!exists && errno != ENOENT) {
        status = fail_errno(f, "cannot be created", err);
    } else if (exists && !S_ISREG(st.st_mode)) {
        fd = open_special(f, st.st_mode, &status, err);
    } else if ((status = find_place(f, exists, err)) == WK_OK) {
        watch_signals();
        fd = open_temporary(f, mode);
        if (fd < 0) status = fail_errno(f, "cannot be created", err);
    }
    if (status == WK_OK) {
        f->stream = fdopen(fd, "wb");
        if (!f->stream) (void)close(fd);
        if (!f->stream || setvbuf(f->stream, NULL, _IOFBF, BUFFER_BYTES) != 0)
            status = fail_errno(f, "cannot be opened as a stream", err);
    }
    if (status != WK_OK) release(f);
    return status;
}

wk_status result_file_open(const char *path, struct result_file *f, const struct wk_err *err)
{
    return open_file(path, 0666, f, err);
}

wk_status result_file_open_private(const char *path, struct result_file *f, const struct wk_err *err)
{
    return open_file(path, 0600, f, err);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

bool result_file_write(struct result_file *f, const void *bytes, uint64_t n)
{
    if (f->error) return false;
    errno = 0;
    if (n == 0 || fwrite(bytes, 1, n, f->stream) == n) return true;
    f->error = errno ? errno : EIO;
    return false;
}

wk_status result_file_failed(const struct result_file *f, const struct wk_err *err)
{
    return wk_fail(err, WK_IO, "%s: cannot be written: %s", f->path, strerror(f->error));
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* The name appears: first a unique one, since a link replaces nothing, then its own. */
static wk_status give_name(struct result_file *f, const struct wk_err *err)
{
    char link[40];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fileno(f->stream));
    for (int i = 0; f->temporary < 0 && i < NAME_TRIES; i++) {
        f->temporary = take_temporary(f->folder);
        if (f->temporary < 0) return fail_errno(f, "cannot be named", err);
        if (linkat(AT_FDCWD, link, f->folder, temporaries[f->temporary].name, AT_SYMLINK_FOLLOW) == 0) break;
        const int error = errno;
        give_temporary(f); /* EEXIST: somebody else's */
        errno = error;
        if (error != EEXIST) return fail_errno(f, "cannot be named", err);
    }
    if (f->temporary < 0) return fail_errno(f, "cannot be named", err);
    if (renameat(f->folder, temporaries[f->temporary].name, f->folder, f->name) != 0)
        return fail_errno(f, "cannot be renamed", err);
    give_temporary(f);
    /* A rename is on disk when its folder is. EINVAL: a file system that does not synchronize folders. */
    if (fsync(f->folder) != 0 && errno != EINVAL) return fail_errno(f, "its folder cannot be synchronized", err);
    return WK_OK;
}

wk_status result_file_finish(struct result_file *f, const struct wk_err *err)
{
    wk_status status = f->error ? result_file_failed(f, err) : WK_OK;
    if (status == WK_OK && fflush(f->stream) != 0) status = fail_errno(f, "cannot be written", err);
    if (status == WK_OK && f->name && fsync(fileno(f->stream)) != 0)
        status = fail_errno(f, "cannot be written to disk", err);
    if (status == WK_OK && f->name) status = give_name(f, err);
    if (status == WK_OK) {
        FILE *stream = f->stream;
        f->stream = NULL; /* fclose frees it also when it fails */
        if (fclose(stream) != 0) status = fail_errno(f, "cannot be closed", err);
    }
    release(f);
    return status;
}

void result_file_abandon(struct result_file *f)
{
    if (f->stream) release(f);
}
