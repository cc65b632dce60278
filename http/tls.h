/* tls.h: TLS below a connection's bytes: what socket.c and request.c need of it. A link is one connection's; only the
 * thread that serves the connection calls these. None waits: what cannot be done now says so, and tls_events says what
 * to wait for. OpenSSL's queue of errors is empty before and after each. */
#ifndef HTTP_TLS_H
#define HTTP_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct http_peer;
struct http_tls;
struct tls_link;
struct ssl_st;

/* ---- tls.c ---------------------------------------------------------------------------------------------- */
/* A connection to be, with the files as they were read last; NULL: no memory. [any thread] */
struct ssl_st *tls_new(struct http_tls *t);

/* ---- tls_link.c ----------------------------------------------------------------------------------------- */
/* fd: the connection's socket, which is put into non-blocking mode and stays the caller's. NULL: no memory. */
struct tls_link *tls_open(struct http_tls *t, int fd);
/* Ends nothing on the socket. NULL allowed. */
void tls_free(struct tls_link *l);

enum tls_step { TLS_DONE = 0, TLS_AGAIN, TLS_FAILED };
/* The handshake. TLS_FAILED: the client was told, as far as the protocol has a word for it. */
enum tls_step tls_accept(struct tls_link *l);
/* Says that nothing more follows (close_notify), once. */
enum tls_step tls_end(struct tls_link *l);
/* What to poll for instead of `events`, after what was just called could not be done. */
short tls_events(const struct tls_link *l, short events);

/* As recv does with MSG_DONTWAIT, and MSG_PEEK: bytes, 0 at the end of the client's side, -1 and errno. A peek sees
 * GUARD_HEAD_MAX bytes at most; what it has seen lies in the link, and no poll tells of it: tls_pending does. */
ssize_t tls_peek(struct tls_link *l, char *out, size_t cap);
ssize_t tls_read(struct tls_link *l, char *out, size_t cap);
bool tls_pending(const struct tls_link *l);
/* Has the client's side ended, or is it lost? What has come before may still be there to be read. */
bool tls_ended(const struct tls_link *l);
/* Reads ahead if `more` has come, and says how the client's side looks: 0, POLLRDHUP: it sends no more, POLLERR: the
 * connection is lost. */
short tls_look(struct tls_link *l, bool more);
/* As sendmsg with MSG_DONTWAIT: the parts' first bytes, as many as one record has room for, as one record. After EAGAIN
 * it is to be called with the same parts. */
ssize_t tls_send(struct tls_link *l, const struct iovec *parts, int n);
/* Bytes that the socket has taken. */
uint64_t tls_written(const struct tls_link *l);
/* Of the client's certificate; NULL: none was asked for. */
const struct http_peer *tls_peer(const struct tls_link *l);

#endif
