/* model_ref.c: resolves by openat2, which alone decides what lies below the folder; the path that is given out is
 * opened again by name: who may write into the folder may choose the models. */
#include "model_ref.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4))) static bool refuse(char *why, size_t cap, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, cap, format, args);
    va_end(args);
    return false;
}

static int open_below(int dir, const char *path, uint64_t flags)
{
    struct open_how how = { .flags = flags | O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

/* A file that begins a model: a .gguf that is no later part of a split one. */
static bool begins_model(const char *name)
{
    const size_t n = strlen(name);
    unsigned part = 1, parts;
    if (n < 6 || strcasecmp(name + n - 5, ".gguf") != 0) return false;
    return n < 20 || sscanf(name + n - 20, "-%5u-of-%5u", &part, &parts) != 2 || part == 1;
}

/* The one model in the folder `path`, appended to it. */
static bool only_model(int folder, char path[MODEL_PATH_MAX], const char *ref, char *why, size_t cap)
{
    const size_t n = strlen(path);
    uint32_t found = 0;
    DIR *d = fdopendir(folder);
    if (!d) {
        (void)close(folder);
        return refuse(why, cap, "model_ref %.200s: its folder cannot be read", ref);
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (!begins_model(e->d_name)) continue;
        if (!found++ && (size_t)snprintf(path + n, MODEL_PATH_MAX - n, "/%s", e->d_name) >= MODEL_PATH_MAX - n)
            found = 0;
    }
    (void)closedir(d);
    return found == 1 || refuse(why, cap, "model_ref %.200s: its folder holds %u models; name the file", ref, found);
}

static bool resolve_in(int dir, const char *ref, char path[MODEL_PATH_MAX], bool folder_allowed, char *why, size_t cap)
{
    struct stat st;
    int fd = open_below(dir, path, 0);
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return refuse(why, cap, "model_ref %.200s: leads out of --model-dir, or through a symbolic link", ref);
    if (fd < 0) return refuse(why, cap, "model_ref %.200s: no such file in --model-dir", ref);
    bool ok = fstat(fd, &st) == 0;
    if (ok && S_ISDIR(st.st_mode) && folder_allowed) {
        ok = only_model(fd, path, ref, why, cap); /* has closed it */
        if (!ok) return false;
        return resolve_in(dir, ref, path, false, why, cap);
    }
    ok = ok && S_ISREG(st.st_mode);
    (void)close(fd);
    return ok || refuse(why, cap, "model_ref %.200s: not a regular file", ref);
}

static bool has_parent(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (!at[2] || at[2] == '/')) return true;
    return false;
}

/* Files that opening the model opens by themselves: those that are there must not be links either. */
static bool beside_is_plain(int dir, const char *path, const char *ref, char *why, size_t cap)
{
    const size_t n = strlen(path), folder = strrchr(path, '/') ? (size_t)(strrchr(path, '/') + 1 - path) : 0;
    char name[MODEL_PATH_MAX + 32];
    unsigned parts = 0;
    if (n < 20 || sscanf(path + n - 20, "-00001-of-%5u.gguf", &parts) != 1) parts = 0;
    for (unsigned i = 0; i < 2 + parts; i++) {
        if (i == 0)
            (void)snprintf(name, sizeof name, "%.*stokenizer.json", (int)folder, path);
        else if (i == 1)
            (void)snprintf(name, sizeof name, "%.*s.mcd.json", (int)(n > 5 ? n - 5 : n), path);
        else
            (void)snprintf(name, sizeof name, "%.*s-%05u-of-%05u.gguf", (int)(n - 20), path, i - 1, parts);
        const int fd = open_below(dir, name, 0);
        if (fd < 0 && (errno == EXDEV || errno == ELOOP))
            return refuse(why, cap, "model_ref %.200s: %.200s is a symbolic link", ref, name + folder);
        if (fd >= 0) (void)close(fd);
    }
    return true;
}

bool model_ref_resolve(const char *dir, const char *ref, char out[MODEL_PATH_MAX], char *why, size_t cap)
{
    if (!dir)
        return refuse(why, cap, "model_ref: this worker was started without --model-dir, where it would be looked for");
    const size_t n = strlen(dir);
    const bool hf = strncmp(ref, "hf:", 3) == 0;
    char path[MODEL_PATH_MAX];
    const char *relative = hf ? ref + 3 : ref;
    if (!hf && strncmp(ref, dir, n) == 0 && ref[n] == '/') relative = ref + n + 1;
    if (!relative[0] || strlen(relative) >= sizeof path - 300)
        return refuse(why, cap, "model_ref: expected hf:org/name/file.gguf or a path in --model-dir");
    if (has_parent(relative)) return refuse(why, cap, "model_ref %.200s: has a ..", ref);
    if (relative[0] == '/') return refuse(why, cap, "model_ref %.200s: leads out of --model-dir", ref);
    (void)snprintf(path, sizeof path, "%s", relative);
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return refuse(why, cap, "--model-dir cannot be read");
    const bool ok = resolve_in(fd, ref, path, hf, why, cap) && beside_is_plain(fd, path, ref, why, cap);
    (void)close(fd);
    if (!ok) return false;
    return (size_t)snprintf(out, MODEL_PATH_MAX, "%s/%s", dir, path) < MODEL_PATH_MAX ||
           refuse(why, cap, "model_ref: the path is too long");
}
