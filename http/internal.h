/* internal.h: what the sources of http/ share: the server, a request, and the socket under both. */
#ifndef HTTP_INTERNAL_H
#define HTTP_INTERNAL_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/uio.h>

#include "guard.h"
#include "http.h"
#include "names.h"
#include "tls.h"

enum { LISTENERS_MAX = 2 };

struct mg_context;

struct http_server {
    struct http_options o;
    const struct http_route *routes;
    uint32_t n_routes, n_threads;
    void *user;
    struct mg_context *context;
    int ours[LISTENERS_MAX];     /* what it is to listen with, until it does */
    int listener[LISTENERS_MAX]; /* the same as CivetWeb's, which closes them */
    uint32_t n_listeners;
    atomic_int ports_taken; /* 1: it listens with them; -1: it cannot */
    _Atomic uint16_t port;
    char *own[NAMES_OWN_MAX]; /* names of this machine */
    uint32_t n_own;
    int evict; /* an eventfd: each unit of it ends one connection that waits for its next request */
    atomic_uint threads_ready, connections, idle, streams, bodies, handlers; /* idle: of the connections; bodies: see
                                                                                body.c */
    atomic_bool closing;
    _Atomic uint64_t requests, refused, streams_refused, reserved;
    char bind_error[256]; /* CivetWeb's first complaint while it starts: others follow from it */
};

/* One request, from before its first byte is looked at. */
struct http_request {
    struct http_server *s;
    int fd;               /* the connection's socket: CivetWeb's to close */
    struct tls_link *tls; /* the connection's; NULL: plain */
    uint64_t begun_ns;
    struct guard guard; /* its spans are gone once the guards are done */
    char method[8], path[GUARD_TARGET_MAX + 1], host[256], origin[256], id[HTTP_ID_MAX + 1],
        trace[HTTP_TRACE_BYTES + 1];
    char *bytes; /* of the head, cut into the strings of headers */
    struct guard_header headers[GUARD_HEADERS_MAX];
    size_t n_headers;
    const struct http_route *route;
    char *rest; /* decoded, with its terminator; NULL: "" */
    struct http_text extra;
    uint32_t n_extra;
    char *body;     /* and a terminator */
    size_t taken;   /* bytes of memory that count as this request's */
    char asked[32]; /* the beginning of what the request is for, also if the guards refuse it: decides a failure's form
                     */
    bool vetted;    /* the guards passed it */
    bool answered, head, streaming, chunked, gone, slot, waits;
    enum http_stream_kind kind; /* of what is streamed */
    bool probed;                /* http_here has sent its interim answer */
    bool unread;                /* something of the request may be left in the socket */
    bool keeps;                 /* the connection goes on behind the answer */
    int status;
    uint64_t in, out, wrote_ns;
    int64_t acked; /* of out: what the client's side has taken, when socket_moves looked last */
    uint64_t looked_ns, moved_ns;
    _Alignas(max_align_t) unsigned char caller[HTTP_CALLER_BYTES];
};

/* ---- socket.c: descriptors, deadlines, and all bytes of a connection, plain or by TLS ------------------ */
uint64_t http_now_ns(void);
/* Our end of a connection, or of a listening socket; 0: none. */
uint16_t socket_port(int fd);
int socket_listener(uint16_t port); /* that listens there on 127.0.0.1; -1: none */
/* Connections to that port which are open in this process; returns how many. */
uint32_t socket_leftovers(uint16_t port, bool close_them);
bool socket_allow(uint32_t descriptors, const struct wk_err *err); /* more of them for this process: raises the limit */
void socket_disallow(uint32_t descriptors);
/* Waits for events (POLLIN, ...) until deadline_ns, at most; revents, 0: time is over or the server closes. */
short socket_wait(const struct http_request *r, short events, uint64_t deadline_ns);
/* What is there now, at most cap bytes; 0: the client's side has ended; -1 and errno: EAGAIN: nothing yet. A peek
 * leaves it there, to be seen again with what follows. */
ssize_t socket_peek(const struct http_request *r, char *out, size_t cap);
ssize_t socket_read(const struct http_request *r, char *out, size_t cap);
/* Takes n bytes that a peek has seen. */
bool socket_take(const struct http_request *r, char *out, size_t n);
/* How the client's side looks now: POLLRDHUP: it sends no more; POLLERR, POLLHUP, POLLNVAL: nobody is there. */
short socket_look(const struct http_request *r);
/* Sends all; within write_ms for each bit of progress, or for the whole if `whole`. False: the client is gone (r->gone
 * is set). */
bool socket_send(struct http_request *r, struct iovec *parts, int n, bool whole);
/* Has the client taken a byte within write_ms, or is there none that it could take? The kernel's own limit
 * (TCP_USER_TIMEOUT) also ends those who take bytes, but never as many at a time as a packet has. */
bool socket_moves(struct http_request *r);
/* Ends our side, also of TLS, and reads what the client may still be sending, for a moment, so that our answer is not
 * lost in a reset; unless threads are short. */
void socket_finish(struct http_request *r);

/* ---- listen.c ------------------------------------------------------------------------------------------ */
/* Sockets that listen as o->host and o->port say, [*n]; *port: where. */
wk_status listen_open(const struct http_options *o, int out[LISTENERS_MAX], uint32_t *n, uint16_t *port,
                      const struct wk_err *err);

/* ---- request.c: from a connection to answers ----------------------------------------------------------- */
void connection_serve(struct http_server *s, int fd); /* all its requests */
/* A connection needs a thread: one that only waits for its next request makes room, if there are few. */
void connection_press(struct http_server *s);
bool connection_is_pressed(const struct http_server *s);
bool request_take_slot(struct http_request *r); /* of max_streams; true: it has one */
bool request_no_thread_free(const struct http_server *s);

/* ---- body.c -------------------------------------------------------------------------------------------- */
void body_free(struct http_request *r); /* the body and all memory that is counted */

/* ---- failure.c ----------------------------------------------------------------------------------------- */
/* A status as answers name it. */
struct status {
    int number;
    const char *phrase, *code, *openai, *anthropic; /* the types of its error in these forms */
};
const struct status *status_of(int number);
void answer_refusal(struct http_request *r, int status, const char *message);
void answer_busy(struct http_request *r, const char *message); /* 503, to be tried again */
const char *failure_id_header(const struct http_request *r);   /* X-Request-Id as the interface calls it; NULL: so */

/* ---- answer.c ------------------------------------------------------------------------------------------ */
void answer_end(struct http_request *r); /* the end of the stream, or 500 if nobody answered; then the log */

#endif
