/* pull.h: fetches the files of one model from the hub into the model folder.
 *
 * A file comes into FILE.part beside its place, which one process at a time holds locked, and FILE.part.from says what
 * it is the beginning of. What is broken off goes on where it was, in the same run or the next one. A file gets its
 * name when it has the size and the SHA-256 that the hub gives, and not before: under its name there is never a wrong
 * byte. */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "hub.h"

enum pull_event {
    PULL_BEGINS,  /* a file is fetched from `done` on */
    PULL_BYTES,   /* `done` of `bytes` are there */
    PULL_CHECKS,  /* `done` of `bytes` that were there already have been read */
    PULL_WAITS,   /* another process fetches this file: said once */
    PULL_BREAKS,  /* a try failed for `why`; another follows */
    PULL_PRESENT, /* it was there already, with the right SHA-256 */
    PULL_DONE     /* it has its name */
};

struct pull_news {
    enum pull_event event;
    const char *path; /* in the repository */
    uint32_t file, files;
    uint64_t done, bytes; /* of the file */
    const char *why;
};

struct pull_options {
    struct hub *hub;
    const char *folder; /* the model folder; made if it is not there */
    bool (*stop)(void);
    void (*news)(void *user, const struct pull_news *news); /* NULL: nobody wants to know */
    void *user;
};

struct pulled_file {
    char *path;  /* in the repository */
    char *local; /* where it is */
    uint64_t bytes;
    uint64_t fetched; /* bytes that came over the network; 0: it was there */
    char sha256[HUB_SHA256];
};
struct pulled {
    struct pulled_file *files;
    uint32_t n;
};

/* All files of the model that ref names. WK_INVALID, WK_IO, WK_NO_MEMORY, WK_CANCELLED: what went wrong; the files
 * before are there. pulled_free afterwards, in either case. [one thread a hub] */
wk_status pull_model(const struct pull_options *o, const struct hub_ref *ref, struct pulled *out,
                     const struct wk_err *err);
void pulled_free(struct pulled *p);

#endif
