/* hub.h: the hub as its interface has it: what a repository holds, and the bytes of a file of it.
 *
 * Requests go out through gate/download.h. A redirect is followed to at most eight addresses, never from https to http;
 * the token goes to the hub's own host and port and to no other, and is in no text. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "ref.h"

struct hub_options {
    const char *endpoint; /* http:// or https://; NULL: the hub's own */
    const char *token;    /* NULL: none */
    const char *ca_file;  /* PEM; NULL: the system's certificates */
    bool (*stop)(void);   /* true: calls fail with WK_CANCELLED */
};

struct hub; /* [one thread at a time] */

/* WK_INVALID: endpoint or token cannot be; WK_IO: the program that connects out does not run. */
wk_status hub_open(const struct hub_options *o, struct hub **out, const struct wk_err *err);
void hub_close(struct hub *h); /* NULL allowed */
const char *hub_endpoint(const struct hub *h);

/* Failures of the calls below. WK_IO: another try may be better (a broken connection, 429, 5xx). WK_INVALID: it would
 * not. WK_NO_MEMORY, WK_CANCELLED. */

enum { HUB_SHA256 = 65 };
#define HUB_UNKNOWN UINT64_MAX

struct hub_file {
    char *path; /* as the hub says it: any text */
    uint64_t bytes;
    char sha256[HUB_SHA256]; /* "": not told */
};
struct hub_listing {
    struct hub_file *files;
    size_t n;
};
/* The files of the revision main. hub_listing_free afterwards, in either case. */
wk_status hub_list(struct hub *h, const struct hub_ref *ref, struct hub_listing *out, const struct wk_err *err);
void hub_listing_free(struct hub_listing *l);

enum { HUB_ETAG = 256 };
struct hub_answer {
    uint32_t status;       /* 200: all of the file; 206: the rest from range_first; 416: there is nothing from there */
    uint64_t linked_bytes; /* that the hub says the file has; HUB_UNKNOWN */
    char sha256[HUB_SHA256];           /* that the hub says it has; "": not told */
    char etag[HUB_ETAG];               /* of the host that has the bytes, if it is a strong one; "" */
    uint64_t length;                   /* of the body; HUB_UNKNOWN */
    uint64_t range_first, range_total; /* of 206; HUB_UNKNOWN */
    uint32_t retry_after;              /* seconds, with a failure; 0: not told */
};
/* Asks for a file from byte `from` on; if_range: an ETag, "": none. The body follows by hub_read. */
wk_status hub_get(struct hub *h, const struct hub_ref *ref, const char *path, uint64_t from, const char *if_range,
                  struct hub_answer *out, const struct wk_err *err);
/* The next bytes, valid until the next call; *n 0: the end. */
wk_status hub_read(struct hub *h, const char **bytes, size_t *n, const struct wk_err *err);

#endif
