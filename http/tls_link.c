/* tls_link.c: one connection's TLS: bytes in, bytes out, who the peer is. See tls.h.
 *
 * What has come is decrypted into a buffer of our own before the guards see it: they read ahead until a head is whole,
 * and OpenSSL's own peek never sees more than one record.
 *
 * What is written together becomes one record of at most 16 KiB. A read returns after each record (no
 * SSL_MODE_AUTO_RETRY), so that a stream of empty records cannot outlast a deadline. The progress of a slow reader is
 * counted in the socket's bytes. */
#include "tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "guard.h"
#include "http.h"

enum {
    IN_BYTES = GUARD_HEAD_MAX,
    RECORD_BYTES = SSL3_RT_MAX_PLAIN_LENGTH,
    NAME_BYTES = 512 /* of a peer's name; a longer one is left out */
};

struct tls_link {
    SSL *ssl;
    size_t at, n; /* of `in`: n bytes from `at` on are not taken yet */
    bool ended, broken, told;
    struct http_peer peer; /* subject NULL: there is none */
    char in[IN_BYTES];
};

struct tls_link *tls_open(struct http_tls *t, int fd)
{
    struct tls_link *l = malloc(sizeof *l);
    if (!l) return NULL;
    l->at = l->n = 0;
    l->ended = l->broken = l->told = false;
    l->peer = (struct http_peer){ 0 };
    l->ssl = tls_new(t);
    const int flags = fcntl(fd, F_GETFL);
    if (l->ssl && flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK) && SSL_set_fd(l->ssl, fd) == 1) {
        SSL_set_accept_state(l->ssl);
        return l;
    }
    tls_free(l);
    return NULL;
}

static void forget_peer(struct http_peer *p)
{
    for (uint32_t i = 0; i < p->n_names; i++) free((void *)(uintptr_t)p->names[i]);
    free((void *)(uintptr_t)p->subject);
    *p = (struct http_peer){ 0 };
}

void tls_free(struct tls_link *l)
{
    if (!l) return;
    forget_peer(&l->peer);
    SSL_free(l->ssl);
    OPENSSL_cleanse(l->in, sizeof l->in);
    free(l);
    ERR_clear_error();
}

/* ---- what OpenSSL says ---------------------------------------------------------------------------------- */

/* Of a call that did not succeed. */
static enum tls_step why_not(struct tls_link *l, int result)
{
    const int error = SSL_get_error(l->ssl, result);
    ERR_clear_error();
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return TLS_AGAIN;
    if (error == SSL_ERROR_ZERO_RETURN)
        l->ended = true;
    else
        l->broken = true;
    return TLS_FAILED;
}

short tls_events(const struct tls_link *l, short events)
{
    const int want = SSL_want(l->ssl);
    return want == SSL_WRITING ? POLLOUT : want == SSL_READING ? POLLIN : events;
}

/* ---- the peer ------------------------------------------------------------------------------------------- */

/* Neither a NUL that cuts it short nor a line end that makes two of one. */
static bool is_clean(const unsigned char *text, int n)
{
    for (int i = 0; i < n; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f) return false;
    return n > 0;
}

static bool format_address(const ASN1_OCTET_STRING *address, char out[NAME_BYTES])
{
    const int n = ASN1_STRING_length(address), family = n == 4 ? AF_INET : AF_INET6;
    memcpy(out, "IP:", 3);
    return (n == 4 || n == 16) && inet_ntop(family, ASN1_STRING_get0_data(address), out + 3, NAME_BYTES - 3);
}

/* False: a kind of name that is not told, or one that is not fit to be. */
static bool format_name(const GENERAL_NAME *name, char out[NAME_BYTES])
{
    int kind;
    const void *value = GENERAL_NAME_get0_value(name, &kind);
    if (kind == GEN_IPADD) return format_address(value, out);
    const char *before = kind == GEN_DNS ? "DNS:" : kind == GEN_URI ? "URI:" : kind == GEN_EMAIL ? "email:" : NULL;
    if (!before) return false;
    const unsigned char *text = ASN1_STRING_get0_data(value);
    const int n = ASN1_STRING_length(value), total = (int)strlen(before) + n;
    if (!is_clean(text, n) || total >= NAME_BYTES) return false;
    (void)snprintf(out, NAME_BYTES, "%s%.*s", before, n, (const char *)text);
    return true;
}

static bool take_names(const X509 *certificate, struct http_peer *out)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    char text[NAME_BYTES];
    bool ok = true;
    for (int i = 0; ok && i < sk_GENERAL_NAME_num(names) && out->n_names < HTTP_PEER_NAMES_MAX; i++) {
        if (!format_name(sk_GENERAL_NAME_value(names, i), text)) continue;
        const char *copy = strdup(text);
        ok = copy;
        if (ok) out->names[out->n_names++] = copy;
    }
    GENERAL_NAMES_free(names);
    return ok;
}

static char *format_subject(const X509 *certificate)
{
    char *bytes, *out = NULL;
    BIO *b = BIO_new(BIO_s_mem());
    if (b && X509_NAME_print_ex(b, X509_get_subject_name(certificate), 0,
                                XN_FLAG_RFC2253 & ~(unsigned long)ASN1_STRFLGS_ESC_MSB) >= 0) {
        const long n = BIO_get_mem_data(b, &bytes);
        out = n > 0 ? strndup(bytes, (size_t)n) : strdup("");
    }
    BIO_free(b);
    return out;
}

/* False: no memory for it. */
static bool take_peer(struct tls_link *l)
{
    X509 *certificate = SSL_get1_peer_certificate(l->ssl);
    if (!certificate) return true;
    l->peer.subject = format_subject(certificate);
    const bool ok = l->peer.subject && take_names(certificate, &l->peer);
    X509_free(certificate);
    return ok;
}

const struct http_peer *tls_peer(const struct tls_link *l) { return l->peer.subject ? &l->peer : NULL; }

/* ---- beginning and end ---------------------------------------------------------------------------------- */

enum tls_step tls_accept(struct tls_link *l)
{
    ERR_clear_error();
    const int result = SSL_do_handshake(l->ssl);
    if (result != 1) return why_not(l, result);
    if (take_peer(l)) return TLS_DONE;
    l->broken = true;
    ERR_clear_error();
    return TLS_FAILED;
}

enum tls_step tls_end(struct tls_link *l)
{
    if (l->told || l->broken || SSL_in_init(l->ssl)) return TLS_DONE;
    ERR_clear_error();
    const int result = SSL_shutdown(l->ssl); /* 0: ours is sent; the client's is not awaited */
    if (result < 0 && why_not(l, result) == TLS_AGAIN) return TLS_AGAIN;
    l->told = true;
    ERR_clear_error();
    return TLS_DONE;
}

/* ---- bytes ---------------------------------------------------------------------------------------------- */

/* At most cap bytes of what has come, decrypted; 0: none now, or none any more. */
static size_t decrypt(struct tls_link *l, char *out, size_t cap)
{
    size_t got = 0;
    if (l->ended || l->broken || !cap) return 0;
    ERR_clear_error();
    const int result = SSL_read_ex(l->ssl, out, cap, &got);
    if (result == 1) return got;
    (void)why_not(l, result);
    return 0;
}

/* All that has come, as far as there is room. */
static void fill(struct tls_link *l)
{
    if (l->at) memmove(l->in, l->in + l->at, l->n);
    l->at = 0;
    for (size_t got; (got = decrypt(l, l->in + l->n, sizeof l->in - l->n));) l->n += got;
}

static ssize_t nothing(const struct tls_link *l)
{
    if (l->ended) return 0;
    errno = l->broken ? ECONNRESET : EAGAIN;
    return -1;
}

ssize_t tls_peek(struct tls_link *l, char *out, size_t cap)
{
    fill(l);
    const size_t n = l->n < cap ? l->n : cap;
    if (!n) return nothing(l);
    memcpy(out, l->in, n);
    return (ssize_t)n;
}

ssize_t tls_read(struct tls_link *l, char *out, size_t cap)
{
    size_t n = l->n < cap ? l->n : cap;
    if (n) {
        memcpy(out, l->in + l->at, n);
        l->at += n;
        l->n -= n;
    } else {
        n = decrypt(l, out, cap);
    }
    return n ? (ssize_t)n : nothing(l);
}

bool tls_pending(const struct tls_link *l) { return l->n || SSL_pending(l->ssl) > 0; }
bool tls_ended(const struct tls_link *l) { return l->ended || l->broken; }

short tls_look(struct tls_link *l, bool more)
{
    if (more) fill(l);
    return l->broken ? POLLERR : l->ended ? POLLRDHUP : 0;
}

ssize_t tls_send(struct tls_link *l, const struct iovec *parts, int n)
{
    char record[RECORD_BYTES];
    size_t length = 0, sent = 0;
    for (int i = 0; i < n && length < sizeof record; i++) {
        const size_t room = sizeof record - length, part = parts[i].iov_len < room ? parts[i].iov_len : room;
        if (part) memcpy(record + length, parts[i].iov_base, part);
        length += part;
    }
    if (!length || l->broken || l->told) {
        errno = EPIPE;
        return length ? -1 : 0;
    }
    ERR_clear_error();
    const int result = SSL_write_ex(l->ssl, record, length, &sent);
    if (result == 1) return (ssize_t)sent;
    errno = why_not(l, result) == TLS_AGAIN ? EAGAIN : EPIPE;
    return -1;
}

uint64_t tls_written(const struct tls_link *l) { return BIO_number_written(SSL_get_wbio(l->ssl)); }
