/* guard.h: is this the head of a request that we serve? A pure function over bytes, before anything else looks at them.
 *
 * Stricter than RFC 9112 wherever leniency has let two parsers see two different requests: every line ends in CR LF,
 * names touch their colon, nothing is folded, a body has one Content-Length of digits and no Transfer-Encoding, a
 * header that has one value comes once. What passes is read by CivetWeb the same way. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GUARD_HEAD_MAX = 16384,  /* bytes of request line and headers */
    GUARD_TARGET_MAX = 2048, /* bytes of path and query */
    GUARD_HEADERS_MAX = 63   /* CivetWeb keeps 64 and drops the rest without a word */
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
    int status;         /* GUARD_REFUSE: 400, 405, 408 (never from here), 411, 413, 414, 417 or 431 */
    const char *reason; /* GUARD_REFUSE: a static text */
    size_t head;        /* GUARD_PASS: bytes up to and with the empty line */
    struct guard_span method, target, host, origin;
    bool old;            /* HTTP/1.0 */
    bool sized, expects; /* Content-Length came; 100-continue is awaited */
    uint64_t length;     /* of the body */
};

/* The whole of `bytes` is judged anew each time. */
enum guard_verdict guard_check(const char *bytes, size_t n, struct guard *out);

/* Has a parser that was given a head which passed found the same in it? target: without its query; names, values: of n
 * headers, in their order. */
struct guard_parsed {
    const char *method, *target, *query, *version;
    const char *const *names, *const *values;
    size_t n;
};
bool guard_agrees(const char *head, size_t n, const struct guard_parsed *parsed);

/* Does `host` (the value of a Host header) name this machine's loopback? With or without a port. */
bool guard_loopback(struct guard_span host);

/* Decodes %XX; guard_check has made sure that every % has two digits and none is %00. out has room for n + 1. */
size_t guard_decode(const char *text, size_t n, char *out);

#endif
