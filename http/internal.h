/* internal.h: what the sources of http/ share: the server, a request, and the socket under both. */
#ifndef HTTP_INTERNAL_H
#define HTTP_INTERNAL_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "guard.h"
#include "http.h"

struct mg_connection;
struct mg_context;
struct mg_request_info;

struct http_server {
    struct http_options o;
    const struct http_route *routes;
    uint32_t n_routes, n_threads;
    void *user;
    struct mg_context *context;
    int listener; /* CivetWeb's, found by its port */
    _Atomic uint16_t port;
    struct in_addr address; /* that we are bound to; INADDR_ANY: all */
    bool loopback;          /* it is 127.x */
    atomic_uint threads_ready, connections, streams, handlers;
    atomic_bool closing;
    _Atomic uint64_t requests, refused, streams_refused, reserved;
    char bind_error[256]; /* CivetWeb's first complaint while it starts: others follow from it */
};

/* One connection, which carries one request: made before the first byte is looked at, freed before the socket is
 * closed. */
struct http_request {
    struct http_server *s;
    struct mg_connection *connection;
    const struct mg_request_info *info;
    int fd; /* the connection's socket: CivetWeb's to close */
    uint64_t begun_ns;
    struct guard guard; /* its spans are gone once the guards are done */
    char method[8], path[GUARD_TARGET_MAX + 1], host[256], origin[256], id[HTTP_ID_MAX + 1],
        trace[HTTP_TRACE_BYTES + 1];
    const struct http_route *route;
    char *rest; /* decoded, with its terminator; NULL: "" */
    struct http_text extra;
    uint32_t n_extra;
    char *judged;    /* the guard.head bytes that the guards passed, until CivetWeb has parsed them */
    char *body;      /* guard.length bytes and a terminator */
    size_t reserved; /* bytes of the server's memory for requests */
    bool vetted;     /* the guards passed it: CivetWeb may read it */
    bool answered, head, streaming, chunked, gone, slot,
        unread; /* unread: something of the request may be left in the socket */
    int status;
    uint64_t in, out, wrote_ns;
};

/* ---- socket.c: descriptors, deadlines ------------------------------------------------------------------ */
uint64_t http_now_ns(void);
/* The descriptor of the connection from peer that the calling thread was given by CivetWeb; claims it. -1: it cannot be
 * told for certain. [any thread] */
int socket_claim(const struct http_server *s, struct in_addr peer, uint16_t peer_port);
void socket_unclaim(int fd);
int socket_listener(struct in_addr address, uint16_t port); /* -1: none */
/* Connections to that address and port which nobody has claimed; returns how many. */
uint32_t socket_leftovers(struct in_addr address, uint16_t port, bool close_them);
bool socket_allow(uint32_t descriptors, const struct wk_err *err); /* more of them for this process: raises the limit */
void socket_disallow(uint32_t descriptors);
/* Waits for events (POLLIN, ...) until deadline_ns, at most; revents, 0: time is over or the server closes. */
short socket_wait(const struct http_request *r, short events, uint64_t deadline_ns);
/* Sends all; within write_ms for each bit of progress, or for the whole if `whole`. False: the client is gone (r->gone
 * is set). */
bool socket_send(struct http_request *r, struct iovec *parts, int n, bool whole);
/* Ends our side and reads what the client may still be sending, for a moment, so that our answer is not lost in a
 * reset. */
void socket_finish(struct http_request *r);

/* ---- request.c: from a vetted connection to an answer -------------------------------------------------- */
struct http_request *request_new(struct http_server *s, struct mg_connection *c, int fd);
bool request_vet(
    struct http_request *r); /* reads ahead, judges, and answers what does not pass. False: CivetWeb must not read it */
int request_serve(struct http_request *r,
                  const struct mg_request_info *info); /* routes it; returns the answer's status */
void request_free(struct http_request *r);

/* ---- failure.c ----------------------------------------------------------------------------------------- */
/* A status as answers name it. */
struct status {
    int number;
    const char *phrase, *code, *openai; /* openai: the type of its error */
};
const struct status *status_of(int number);
void answer_refusal(struct http_request *r, int status, const char *message);

/* ---- answer.c ------------------------------------------------------------------------------------------ */
void answer_end(struct http_request *r); /* the end of the stream, or 500 if nobody answered; then the log */

#endif
