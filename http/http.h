/* http.h: our own small face of the HTTP server, so that nothing else knows which one it is (CivetWeb 1.15).
 *
 * A server is one listening address, IPv4 or IPv6, with its own threads. Every request passes the guards (guard.h)
 * first: exactly one Host, one body at most, by Content-Length or in chunks, a known method, bounded headers and body,
 * deadlines for both. What fails is answered with our JSON and the connection is closed. A connection carries one
 * request, and what follows it is never looked at; or, if the client asks for it (Connection: keep-alive), one after
 * the other. Routes are exact paths, or a prefix ending in '/'. HEAD and OPTIONS are answered here; 404 and 405 (with
 * Allow) too. A handler runs on the connection's own thread.
 *
 * No documents, CGI, directory listing or WebSocket; no CORS unless origins are allowed by name. A request from a page
 * of another origin gets 403, and one whose Host is no name of ours 421 (names.h).
 *
 * Threads: max_streams + reserve. A connection holds one from its first look at the header, for at most header_ms, and
 * for at most HTTP_PRESSED_MS while no thread is free; so 10,000 idle sockets delay others by (sockets / threads) *
 * HTTP_PRESSED_MS at worst. One that waits for its next request holds one for HTTP_IDLE_MS, but makes room at once when
 * half of the reserve is all that is left. Connections that wait for a thread wait in the kernel's backlog. Another
 * http_open has threads of its own and feels nothing of it.
 *
 * With TLS all of this is the same. The handshake counts as the beginning of the first header: both together have
 * header_ms, and HTTP_PRESSED_MS while no thread is free. Who speaks plain HTTP to such a port is told so (400). */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum {
    HTTP_BODY_MAX = 16 << 20,
    HTTP_OWN_BYTES = 64 << 10, /* of memory that every request has for itself */
    HTTP_ID_MAX = 160,         /* routers put two addresses into theirs */
    HTTP_TRACE_BYTES = 55,
    HTTP_EXTRA_MAX = 16,
    HTTP_CALLER_BYTES = 1024, /* of http_caller */
    HTTP_PRESSED_MS = 250,
    HTTP_IDLE_MS = 5000,
    HTTP_PING_MS = 1000
};

struct http_request;
struct sockaddr_storage;
struct http_text;
struct http_tls;
typedef void (*http_handler)(void *user, struct http_request *r);

struct http_route {
    const char *method; /* "GET" (HEAD with it), "POST", "PUT", "PATCH", "DELETE" */
    const char *path;   /* "/execute"; a prefix if it ends in '/' and has more than that */
    http_handler handle;
    bool stream; /* may hold its thread for long: counts against max_streams */
};

struct http_options {
    const char *host;     /* an IPv4 or IPv6 address; "0.0.0.0": all of IPv4, "::": of both; "localhost": 127.0.0.1 and
                             ::1 */
    uint16_t port;        /* 0: any free one (tests) */
    uint32_t max_streams; /* handlers of stream routes at once; one more gets 429 QUEUE_FULL with Retry-After within
                             milliseconds */
    uint32_t reserve;     /* threads that stream routes cannot take; at least 1 */
    uint32_t header_ms, body_ms; /* to send all of the header, of the body */
    uint64_t memory;             /* bytes that all bodies, and what handlers reserve besides, may take together, above
                                    HTTP_OWN_BYTES of each */
    uint32_t write_ms; /* a client is gone if an event's bytes make no progress for this long, or a whole answer is not
                          taken within it */
    const char *const *origins;
    uint32_t n_origins; /* CORS: allowed origins, "https://chat.example.org", or "*" */
    const char *const *hosts;
    uint32_t n_hosts; /* further names that Host may give, without a port, or "*" */
    /* Each answered request, refused ones too; method and path "-" if the guards refused it. May
     * be NULL. [any thread] */
    void (*log)(void *user, const char *method, const char *path, int status, uint64_t bytes_in, uint64_t bytes_out,
                double seconds);
    /* May this request have the route? Asked when its header was read and its route is known,
     * before anything of its body is read and before it counts against max_streams. False: it has answered. NULL: all
     * may. [the request's thread] */
    bool (*admit)(void *user, struct http_request *r, const struct http_route *route);
    /* The whole answer to a request whose route is known is about to be sent, with http_status; streams are not told
     * of here. NULL: nothing. [the request's thread] */
    void (*answering)(void *user, struct http_request *r);
    /* A request whose route is known is over: the last that is heard of it. NULL: nothing. [the request's thread] */
    void (*over)(void *user, struct http_request *r);
    /* What is said of a path that has no route, instead of the usual; NULL: the usual. May be NULL. [any thread] */
    const char *(*unknown)(const char *path);
    const char *full;     /* what a 429 says: how many streams there may be, and what decides that. NULL: the number */
    struct http_tls *tls; /* NULL: plain HTTP. Outlives the server; several may share it */
};

/* ---- TLS 1.2 and 1.3 ------------------------------------------------------------------------------------- */
/* Files in PEM. Strings live as long as the http_tls. */
struct http_tls_files {
    const char *cert;      /* the server's certificate, and behind it those between it and its root */
    const char *key;       /* its private key, without a passphrase */
    const char *client_ca; /* every client needs a certificate that one of these has issued; NULL: none needs one */
    /* Of what is odd but works: a certificate that is expired or not valid yet, a key that everybody may read. text
     * lives during the call. May be NULL. [the caller's thread] */
    void (*warn)(void *user, const char *text);
    void *user;
};
/* Reads the files. No session is ever resumed: each connection's keys are its own, and each client shows its
 * certificate. WK_IO: a file cannot be read; WK_INVALID: what is wrong with it, or the key is of another certificate;
 * WK_NO_MEMORY. [main thread] */
wk_status http_tls_open(const struct http_tls_files *files, struct http_tls **out, const struct wk_err *err);
/* Reads the same files again. New connections have what they say now, others what they had. A failure changes nothing.
 * [any thread] */
wk_status http_tls_reload(struct http_tls *t, const struct wk_err *err);
/* Until when the certificate is valid: "2027-01-31T23:59:59Z". [any thread] */
enum { HTTP_TLS_TIME = 24 };
void http_tls_expires(struct http_tls *t, char out[HTTP_TLS_TIME]);
/* After http_close of every server that has it. NULL allowed. [main thread] */
void http_tls_close(struct http_tls *t);

struct http_server;
/* Why no browser ever sends this as Origin, or no client as Host; NULL: one may, and it can be allowed. [any thread] */
const char *http_origin_fault(const char *origin);
const char *http_host_fault(const char *name);
/* Can o.host be this: an address of either kind, or localhost? [any thread] */
bool http_is_host(const char *host);

/* Binds and serves; routes and options are read until http_close. Raises the process's limit of open files to what the
 * threads can need (at most to the hard limit), ignores SIGPIPE, and has malloc give back what large requests leave
 * free. WK_INVALID: what is wrong with an option; WK_IO: the port is in use, or cannot be bound; WK_NO_MEMORY: threads.
 * [main thread] */
wk_status http_open(const struct http_options *o, const struct http_route *routes, uint32_t n_routes, void *user,
                    struct http_server **out, const struct wk_err *err);
uint16_t http_port(const struct http_server *s);
struct http_counts {
    uint64_t requests; /* given to a handler */
    uint64_t refused;  /* by the guards, and 403, 404, 405, 421; and bodies */
    uint64_t streams_refused;
    uint32_t streams, connections; /* now */
};
void http_counts(const struct http_server *s, struct http_counts *out); /* [any thread] */
/* New requests get 503; returns once no handler runs (they must have been told to end), and none will. What handlers
 * share may then be freed. NULL allowed. [main thread] */
void http_stop(struct http_server *s);
/* Stops, and closes. NULL allowed. [main thread] */
void http_close(struct http_server *s);

/* ---- a request; all strings are the request's and live until the handler returns [the handler's thread] ---- */
const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r); /* as it came, without the query */
const char *http_rest(
    const struct http_request *r); /* what follows a prefix route's path, %XX decoded; "" for an exact path */
const char *http_header(
    const struct http_request *r,
    const char *name); /* NULL: absent. Lists and X-Forwarded-* may have come more often: the first */
const char *http_id(const struct http_request *r); /* X-Request-Id as it came, if 1 to 64 of [A-Za-z0-9._-], else a
                                                      fresh one; on every answer */
/* W3C's traceparent as it came, if it is well formed; else NULL. On every answer, too. */
const char *http_trace(const struct http_request *r);
/* HTTP_CALLER_BYTES of zeroed memory, aligned for any type, for what the server's user knows of who asks. Lives as long
 * as the request. */
void *http_caller(struct http_request *r);
/* The address at the other end of the connection; AF_UNSPEC: it is not known. */
void http_address(const struct http_request *r, struct sockaddr_storage *out);
/* The address at which the connection came in; AF_UNSPEC: it is not known. */
void http_local_address(const struct http_request *r, struct sockaddr_storage *out);
int http_status(const struct http_request *r); /* of the answer; 0: none yet; 499: nobody was there to be answered */
/* Who the client's certificate says that it is, checked. The connection's: lives until the handler returns. */
enum { HTTP_PEER_NAMES_MAX = 16 };
struct http_peer {
    const char *subject;                    /* as RFC 4514 writes it, UTF-8: "CN=batch,O=Example"; may be "" */
    const char *names[HTTP_PEER_NAMES_MAX]; /* the first subject alternative names: "DNS:a.example", "URI:spiffe://...",
                                               "email:a@b.example", "IP:192.0.2.1" */
    uint32_t n_names;
};
/* NULL: none was asked for. */
const struct http_peer *http_peer(const struct http_request *r);
/* What a body's Content-Type must say. HTTP_JSON_OR_UNSAID: there may be none, or the one that `curl -d` sends of any
 * body, a form's. Of a request that a page may have made, which its Origin or Sec-Fetch-Site tells, it is HTTP_JSON:
 * what a page can send without asking first has no type that is JSON. */
enum http_body_type { HTTP_ANY_TYPE = 0, HTTP_JSON, HTTP_JSON_OR_UNSAID };
/* The whole body, at most `most` bytes, terminated, *n = 0 if there is none. False: an error was already answered (400,
 * 408, 413; 415 if the type is another; 503 if what has come of all bodies of the server, and what is
 * reserved besides, would exceed its memory) or the client is gone. Once per request. */
bool http_body(struct http_request *r, size_t most, enum http_body_type type, const char **bytes, size_t *n);
/* Memory that the handler is about to take besides, for what it makes of the body: out of the same, until the request
 * is over. False: an error was answered (413 if that can never be, else 503). */
bool http_reserve(struct http_request *r, size_t bytes);
/* The request has been read: its body is freed, and nothing is reserved any more. */
void http_release(struct http_request *r);

/* ---- one whole answer; a handler that returns without one is answered 500 ------------------------------ */
void http_extra(struct http_request *r, const char *name,
                const char *value); /* a header of the answer to come, at most HTTP_EXTRA_MAX; copied */
void http_answer(struct http_request *r, int status, const char *type, const void *bytes, size_t n);
/* A failure, before it has the form of an interface. */
enum { HTTP_MEMBERS_MAX = 4 };
struct http_member {
    const char *name; /* NULL: there is none */
    uint64_t value;
};
struct http_failure {
    int status;
    const char *code, *message; /* code: "QUEUE_FULL" */
    bool retriable;             /* the same request may succeed later, or elsewhere */
    uint32_t retry_after_s;     /* 0: 1 with 429 and 503, else none */
    const char *job_id, *field; /* NULL or "": none */
    struct http_member more[HTTP_MEMBERS_MAX];
};
/* The failure as a document in the form that belongs to the request's path (the table of failure.c), without an end of
 * line: for an event of a stream. */
void http_text_failure(struct http_text *t, const struct http_request *r, const struct http_failure *f);
/* The same as the whole answer, with its headers: Retry-After, and what else the form has. */
void http_error(struct http_request *r, const struct http_failure *f);

/* ---- a stream; ends when the handler returns ----
 * How soon a client's leaving is seen: a reset connection by the next http_event or http_ping, one whose process closed
 * it by the second http_event, or by the first http_ping if it is near and the second if it is far: with a ping every
 * 100 ms within 200 ms and a round trip. A client that has only shut down its sending side still reads, and is served.
 * One that stays connected and does not read is gone write_ms after the socket's buffer (64 KiB) is full, and one whose
 * machine has vanished write_ms after the first unacknowledged byte.
 * Lines of JSON have nothing that a client would skip, so no ping is ever written between them: a client that has shut
 * down its sending side counts as gone at the next http_ping. */
enum http_stream_kind {
    HTTP_EVENTS = 0, /* server-sent events, text/event-stream */
    HTTP_LINES,      /* a line of JSON for each event, application/x-ndjson */
    HTTP_BYTES       /* bytes as they are, application/octet-stream; no event and no ping among them */
};
/* Status 200 and headers. False: the client is gone. */
bool http_stream_begin(struct http_request *r, enum http_stream_kind kind);
/* event NULL: unnamed, as all of HTTP_LINES; data: one line of JSON. Sent at once, as one packet. False: the client is
 * gone: stop. */
bool http_event(struct http_request *r, const char *event, const char *data, size_t n);
/* The next bytes of a stream of HTTP_BYTES, [n] not 0. False: the client is gone: stop. */
bool http_bytes(struct http_request *r, const void *bytes, size_t n);
/* Is anybody still there? To be called at least every 100 ms while there is nothing to send. Looks at the socket;
 * writes a comment only if nothing was written for HTTP_PING_MS, or if the client has shut down its side (to learn
 * whether it still reads). Before http_stream_begin, and between lines, it only looks. */
bool http_ping(struct http_request *r);
/* Before a stream has begun: is anybody still there? A client that has shut down its sending side is sent an interim
 * answer (100 Continue), once: one that has left answers it with a reset. */
bool http_here(struct http_request *r);
/* For a handler that writes nothing until it has the whole answer: has the client left? One that has shut down its
 * sending side counts as gone: nothing can be written that would tell. To be called every 100 ms or so. */
bool http_left(struct http_request *r);

/* ---- text ---------------------------------------------------------------------------------------------- */
struct http_text {
    char *data;
    size_t n, cap;
    bool failed;
}; /* zeroed: empty; terminated; failed: out of memory, what was added is incomplete */
void http_text_add(struct http_text *t, const char *bytes, size_t n);
__attribute__((format(printf, 2, 3))) void http_text_format(struct http_text *t, const char *format, ...);
/* bytes as a JSON string with quotes: valid UTF-8 goes through, each maximal subpart of what is not becomes U+FFFD;
 * control characters escaped. */
void http_text_json(struct http_text *t, const char *bytes, size_t n);
void http_text_free(struct http_text *t);

#endif
