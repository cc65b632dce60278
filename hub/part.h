/* part.h: a file on its way: FILE.part beside its place, locked, with a running SHA-256 of what is in it. */
#ifndef HUB_PART_H
#define HUB_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "hub.h"

struct sha256;

struct part {
    char *path, *part, *from; /* FILE, FILE.part, FILE.part.from */
    int fd;                   /* of FILE.part; -1: not open */
    uint64_t bytes;           /* that are in it */
    struct sha256 *sum;       /* of these; NULL: not known yet */
    char etag[HUB_ETAG];      /* of the host that they came from; "": not told */
};

/* Called while much is read or waited for: done: bytes that were read; waits: another process has the lock. False:
 * stop.
 */
typedef bool (*part_step)(void *user, bool waits, uint64_t done);

/* Opens FILE.part and waits for its lock. Text of every failure begins with a path. part_close afterwards, in either
 * case. WK_INVALID: the disk or its rights, which no other try mends; WK_NO_MEMORY, WK_CANCELLED. [one thread] */
wk_status part_open(const char *path, part_step step, void *user, struct part *p, const struct wk_err *err);
/* What is in it becomes the beginning of a file with this SHA-256, or is dropped if it is that of another one or longer
 * than `bytes`. */
wk_status part_resume(struct part *p, const char *sha256, uint64_t bytes, part_step step, void *user,
                      const struct wk_err *err);
/* Drops what is in it: from now on it is the beginning of a file with this SHA-256, from a host with this ETag. */
wk_status part_restart(struct part *p, const char *sha256, const char *etag, const struct wk_err *err);
wk_status part_write(struct part *p, const void *bytes, size_t n, const struct wk_err *err);
/* Gives the file its name, if it has this SHA-256. *right false, with WK_OK: it has another one: sha256 becomes that,
 * and the part is removed. */
wk_status part_finish(struct part *p, char sha256[HUB_SHA256], bool *right, const struct wk_err *err);
/* Keeps what is in it for the next time. */
void part_close(struct part *p);

/* SHA-256 of a whole file. *there false, with WK_OK: there is none of this size. */
wk_status part_file_sha256(const char *path, uint64_t bytes, part_step step, void *user, char sha256[HUB_SHA256],
                           bool *there, const struct wk_err *err);
/* Bytes of a file that are there: all of them, those of its part, or none; by sizes alone. */
uint64_t part_bytes_there(const char *path, uint64_t bytes);
/* Makes the folders of a path, but not its last part. */
wk_status part_make_folders(const char *path, const struct wk_err *err);

#endif
