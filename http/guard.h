/* guard.h: is this the head of a request that we serve? A pure function over bytes, before anything else looks at them.
 *
 * Stricter than RFC 9112 wherever leniency has let two parsers see two different requests: every line ends in CR LF,
 * names touch their colon, nothing is folded, a body has one Content-Length of digits or is chunked and nothing else, a
 * header that has one value comes once. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GUARD_HEAD_MAX = 16384,  /* bytes of request line and headers */
    GUARD_TARGET_MAX = 2048, /* bytes of path and query */
    GUARD_HEADERS_MAX = 63
};

struct guard_span {
    const char *at;
    size_t n;
}; /* in the bytes that were given; at NULL: absent */

enum guard_verdict {
    GUARD_MORE = 0, /* right so far, not whole yet */
    GUARD_PASS,
    GUARD_REFUSE
};

struct guard {
    int status;         /* GUARD_REFUSE: 400, 405, 408 (never from here), 413, 414, 417 or 431 */
    const char *reason; /* GUARD_REFUSE: a static text */
    size_t head;        /* GUARD_PASS: bytes up to and with the empty line */
    struct guard_span method, target, host, origin;
    bool old;            /* HTTP/1.0 */
    bool sized, chunked; /* how the body is framed: by Content-Length, in chunks; neither: there is none */
    bool expects;        /* 100-continue is awaited */
    bool asks_keep;      /* Connection: keep-alive */
    bool cross_site;     /* Sec-Fetch-Site: cross-site: a browser says that another site's page asks */
    uint64_t length;     /* of a sized body */
};

/* The whole of `bytes` is judged anew each time. */
enum guard_verdict guard_check(const char *bytes, size_t n, struct guard *out);

/* The headers of a head that passed, in their order, cut into strings within it. Returns how many. */
struct guard_header {
    const char *name, *value;
};
size_t guard_cut(char *head, size_t n, struct guard_header out[GUARD_HEADERS_MAX]);

/* What the first line asks for, also of one that is refused: as far as can be told. */
struct guard_span guard_path(const char *bytes, size_t n);

/* Decodes %XX; guard_check has made sure that every % has two digits and none is %00. out has room for n + 1. */
size_t guard_decode(const char *text, size_t n, char *out);

#endif
