/* fetch.h: what is asked of other hosts: an issuer's keys, a policy server's decisions, exporters' posts; and by the
 * commands that are clients of a worker, that worker.
 *
 * The process that serves strangers does not connect out and does not link libcurl, which brings some thirty other
 * libraries. A program of its own does, worker-fetch: started here, spoken to over a socket pair, restarted when it
 * ends, and ended with the worker. What it sends back is read as bytes from outside.
 *
 * Every request has one deadline for all of it (a stream: for each silence in it), and a limit for its answer. No
 * redirects, no proxies, no cookies, no compression; certificates are always verified; http and https alone. */
#ifndef GATE_FETCH_H
#define GATE_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum {
    FETCH_MOST_ANSWER = 1 << 24, /* bytes that one may ask for */
    FETCH_MOST_BODY = 1 << 24,   /* bytes that one may send */
    FETCH_MOST_TIMEOUT_MS = 600000,
    FETCH_MOST_HEADERS = 8,
    FETCH_MOST_URL = 4096,      /* bytes */
    FETCH_MOST_WAITING = 1024,  /* calls of fetch_do at one time */
    FETCH_MOST_STARTED = 128,   /* calls of fetch_start whose end is still to come */
    FETCH_MOST_BYTES = 64 << 20 /* bodies and answers that requests in flight may take together; of these, calls of
                                 * fetch_start may take a half */
};

struct fetch;

/* Bytes of a body, as they come; status: of the answer. Called in fetch's own thread: it must not wait, and must not
 * call fetch. */
typedef void (*fetch_part)(void *arg, uint32_t status, const char *bytes, size_t n);

struct fetch_request {
    const char *method;         /* "GET", "DELETE": without a body; "POST", "PUT", "PATCH" */
    const char *url;            /* http:// or https://, no user */
    const char *content_type;   /* NULL: none */
    const char *const *headers; /* [n_headers], "Name: value" */
    size_t n_headers;
    const void *body; /* [body_len] */
    size_t body_len;
    const char *ca_file;              /* PEM: the only ones whose certificates are taken; NULL: the system's */
    const char *cert_file, *key_file; /* PEM: the certificate that a server is shown which asks for one, and its key;
                                       * NULL: none; both or neither */
    const char *unix_socket;          /* connect to this instead of the URL's host; NULL: no */
    uint32_t timeout_ms; /* for all of it, from the call on: 1 .. FETCH_MOST_TIMEOUT_MS; with part: for so long less
                          * than a byte a second may come, 2000 at least */
    uint32_t most_bytes; /* of the answer's body; a longer one fails */
    bool https_only;
    fetch_part part; /* of fetch_start: the body goes there, with done's arg, and done's answer has none; NULL: no */
};

struct fetch_answer {
    uint32_t status; /* of HTTP: 100 .. 999 */
    char *body;      /* [body_len], and a zero behind it; of fetch_do: the caller's, fetch_answer_free */
    size_t body_len;
};

/* Is this a file that can be a request's ca_file: one that can be read and has a certificate in PEM? What has none
 * would fail with the first request, and each later one. [any thread] */
wk_status fetch_check_ca(const char *file, const struct wk_err *err);

/* Starts the helper and waits until it is ready. program: NULL: PREFIX/libexec/worker/worker-fetch of the running
 * PREFIX/bin/..., or the one beside it in a build tree. WK_IO: it is not there or does not run. [main thread] */
wk_status fetch_open(const char *program, struct fetch **out, const struct wk_err *err);
/* Requests in flight fail, at once, and so does every later one: before those who ask are closed. NULL allowed.
 * [main thread] */
void fetch_stop(struct fetch *f);
/* No other thread is in a call then, or makes one. NULL allowed. [main thread] */
void fetch_close(struct fetch *f);

/* Asks, and waits for the answer, at most timeout_ms. WK_OK: there is an answer, whatever its status. WK_INVALID: the
 * request breaks a limit. WK_IO: no answer, and why: name, connection, certificate, time, size, too many at one time.
 * The text names no query and no header. [any thread] */
wk_status fetch_do(struct fetch *f, const struct fetch_request *r, struct fetch_answer *answer,
                   const struct wk_err *err);
void fetch_answer_free(struct fetch_answer *answer); /* NULL allowed; of one that is all zero: nothing */

/* answer: NULL: failure says why. Both are valid during the call. Called once, in fetch's own thread: it must not wait,
 * and must not call fetch_do; fetch_start it may. */
typedef void (*fetch_done)(void *arg, const struct fetch_answer *answer, const char *failure);
/* Asks, and does not wait. done: NULL: nobody wants to know. A failure here (WK_INVALID; WK_IO: FETCH_MOST_STARTED are
 * in flight) means that done is not called. [any thread] */
wk_status fetch_start(struct fetch *f, const struct fetch_request *r, fetch_done done, void *arg,
                      const struct wk_err *err);

/* How often the helper was started, the first time included. [any thread] */
uint64_t fetch_starts(struct fetch *f);

#endif
