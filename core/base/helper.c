/* helper.c: see helper.h. */
#include "base/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

wk_status helper_find(const char *name, const char *what, const char *given, char *out, size_t cap,
                      const struct wk_err *err)
{
    char folder[PATH_MAX], installed[PATH_MAX + 64], built[PATH_MAX + 64], cache[PATH_MAX + 64];
    const char *found = given;
    if (!found) {
        const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
        char *slash = NULL;
        if (n > 0) {
            folder[n] = '\0';
            slash = strrchr(folder, '/');
        }
        if (!slash)
            return wk_fail(err, WK_IO, "%s cannot be looked for: /proc/self/exe cannot be read: mount /proc", name);
        *slash = '\0';
        (void)snprintf(built, sizeof built, "%s/%s", folder, name);
        (void)snprintf(cache, sizeof cache, "%s/../CMakeCache.txt", folder);
        (void)snprintf(installed, sizeof installed, "%s/../" HELPER_LIBEXECDIR "/worker/%s", folder, name);
        found = access(cache, F_OK) == 0 ? built : installed;
    }
    if (access(found, X_OK) != 0)
        return wk_fail(err, WK_IO, "%s: %s: the program that %s for the worker is expected there: install it", found,
                       strerror(errno), what);
    const int n = snprintf(out, cap, "%s", found);
    return n > 0 && (size_t)n < cap ? WK_OK : wk_fail(err, WK_IO, "the path of %s is too long", name);
}

int helper_spawn(const char *program, char *const *arguments, int socket, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, held;
    static const int quiet[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    char *const environment[] = { NULL };
    int e = posix_spawn_file_actions_init(&files);
    if (e) return e;
    if ((e = posix_spawnattr_init(&how)) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return e;
    }
    (void)sigfillset(&all);
    (void)sigemptyset(&held);
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) (void)sigaddset(&held, quiet[i]);
    e = posix_spawn_file_actions_adddup2(&files, socket, 0);
    if (!e) e = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    if (!e) e = posix_spawn_file_actions_addclosefrom_np(&files, 3);
    if (!e) e = posix_spawnattr_setsigdefault(&how, &all);
    if (!e) e = posix_spawnattr_setsigmask(&how, &held);
    if (!e) e = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    if (!e) e = posix_spawn(pid, program, &files, &how, arguments, environment);
    (void)posix_spawnattr_destroy(&how);
    (void)posix_spawn_file_actions_destroy(&files);
    return e;
}
