/* base/helper.h: small programs that the worker keeps beside itself, so that libraries which speak to strangers are not
 * in its own process: where they lie, and how one is started. */
#ifndef CORE_BASE_HELPER_H
#define CORE_BASE_HELPER_H

#include <stddef.h>
#include <sys/types.h>

#include <worker/abi.h>

/* Where the program `name` lies: beside ours in a build tree, in the libexec folder of an installation, or, if not
 * NULL, `given`. what: what it does for the worker, for the text. WK_IO: it is not there. [any thread] */
wk_status helper_find(const char *name, const char *what, const char *given, char *out, size_t cap,
                      const struct wk_err *err);
/* Starts the program with `socket` as its standard input, our standard error and nothing else: no descriptor, no
 * variable. arguments: of its command line, the name first, NULL last. Signals that are for us and reach our whole
 * process group wait until it ignores them. 0 or errno. [any thread] */
int helper_spawn(const char *program, char *const *arguments, int socket, pid_t *pid);

#endif
