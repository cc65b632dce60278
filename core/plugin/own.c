/* own.c: shared objects of the installation itself: device modules. They are found beside the program alone, never by
 * the environment, and are mapped from the descriptor whose owner and permissions were looked at. */
#include "plugin/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/vet.h"

/* PREFIX of PREFIX/bin/worker, or BUILD of BUILD/bin/worker; false: no /proc. */
static bool find_prefix(char *out, size_t cap)
{
    const ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    if (n <= 0) return false;
    out[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(out, '/');
        if (!slash) return false;
        *slash = '\0';
    }
    return true;
}

static wk_status map(const char *path, void **handle, const struct wk_err *err)
{
    char reason[400], link[32];
    int fd = -1;
    wk_status s = vet_open(path, &fd, &(struct wk_err){ reason, sizeof reason });
    if (!s) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        *handle = dlopen(link, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        const char *why = *handle ? NULL : dlerror();
        if (!*handle)
            s = wk_fail(&(struct wk_err){ reason, sizeof reason }, WK_UNSUPPORTED, "cannot be mapped: %s",
                        why ? why : "the dynamic linker gave no reason");
    }
    /* The descriptor of what is mapped stays open: the dynamic linker knows it by that path. */
    if (s && fd >= 0) (void)close(fd);
    return s ? wk_fail(err, s, "%s: %s", path, reason) : WK_OK;
}

wk_status plugin_open_own(const char *name, void **handle, const struct wk_err *err)
{
    char prefix[PATH_MAX], installed[PATH_MAX + 128], built[PATH_MAX + 128], cache[PATH_MAX + 32];
    *handle = NULL;
    if (!find_prefix(prefix, sizeof prefix))
        return wk_fail(err, WK_UNSUPPORTED, "%s cannot be looked for: /proc/self/exe cannot be read", name);
    (void)snprintf(installed, sizeof installed, "%s/%s/worker/%s", prefix, PLUGIN_LIBDIR, name);
    (void)snprintf(built, sizeof built, "%s/lib/worker/%s", prefix, name);
    (void)snprintf(cache, sizeof cache, "%s/CMakeCache.txt", prefix);
    if (access(installed, F_OK) == 0) return map(installed, handle, err);
    const bool tree = access(cache, F_OK) == 0 && strcmp(installed, built) != 0;
    if (tree && access(built, F_OK) == 0) return map(built, handle, err);
    return wk_fail(err, WK_UNSUPPORTED,
                   "this installation has no %s (looked at: %s%s%s): it is in the package worker-cuda, and in "
                   "a build where nvcc is found",
                   name, installed, tree ? ", " : "", tree ? built : "");
}
