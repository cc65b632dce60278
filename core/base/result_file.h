/* base/result_file.h: a file that a command makes: it appears whole and on disk, or not at all.
 *
 * Data go to a file without a name where the file system has such, else to one of a unique name, beside the
 * destination. When they are on disk, the file gets a unique name and is renamed to its own. A signal that ends the
 * process, a full disk and a limit on file sizes leave nothing behind (SIGKILL may: the unique name ".worker-...").
 * What is there already and is no regular file is never replaced: a FIFO or character device is written to as it is;
 * of a symbolic link the file that it leads to is replaced; anything else is refused. */
#ifndef CORE_BASE_RESULT_FILE_H
#define CORE_BASE_RESULT_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <worker/abi.h>

struct result_file {
    FILE *stream; /* NULL: not open */
    char *path;   /* as the caller gave it, for texts */
    char *name;   /* in `folder`; NULL: written in place */
    int folder;
    int temporary; /* index of its unique name; -1: it has none (yet) */
    int error;     /* errno of the first failed write; 0: none */
};

/* Failures are WK_IO or WK_NO_MEMORY, and their texts begin with the path. After a failure *f is closed. [one thread at
 * a time; several files may be open] */
wk_status result_file_open(const char *path, struct result_file *f, const struct wk_err *err);
/* The same; the file that appears is its owner's alone to read and write, whatever the umask. */
wk_status result_file_open_private(const char *path, struct result_file *f, const struct wk_err *err);
/* false: a write has failed, now or before; result_file_finish will say why. */
bool result_file_write(struct result_file *f, const void *bytes, uint64_t n);
/* Why writing failed. WK_IO */
wk_status result_file_failed(const struct result_file *f, const struct wk_err *err);
/* Flushes, synchronizes, names; closed either way. */
wk_status result_file_finish(struct result_file *f, const struct wk_err *err);
/* Closes and leaves nothing; nothing if it is not open. */
void result_file_abandon(struct result_file *f);

/* Removes what has a unique name now: for whoever ends the process in a signal's handler. [async-signal-safe] */
void result_file_remove_temporaries(void);

#endif
