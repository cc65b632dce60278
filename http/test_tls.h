/* test_tls.h: certificates made for a test, and the clients' side of TLS, one to each descriptor. */
#ifndef HTTP_TEST_TLS_H
#define HTTP_TEST_TLS_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "http.h"

/* ---- certificates --------------------------------------------------------------------------------------- */

/* A folder for this process's files; it goes with the process. */
static inline const char *tls_folder(void)
{
    static char folder[64];
    if (!folder[0]) {
        (void)snprintf(folder, sizeof folder, "/tmp/worker-tls-XXXXXX");
        if (!mkdtemp(folder)) abort();
    }
    return folder;
}

struct tls_path {
    char text[128];
};
static inline struct tls_path tls_path(const char *name)
{
    struct tls_path p;
    (void)snprintf(p.text, sizeof p.text, "%.63s/%.40s", tls_folder(), name);
    return p;
}

static inline void tls_remove_folder(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %.63s", tls_folder());
    if (system(command)) abort();
}

/* What a certificate is to say. issuer NULL: signed by itself; days: from yesterday on, negative: it has expired. */
struct tls_wanted {
    const char *name, *subject, *names; /* files NAME.pem and NAME.key; names: as openssl.cnf has subjectAltName */
    const struct tls_made *issuer;
    int days, rsa_bits;
    bool ca;
};
struct tls_made {
    X509 *certificate;
    EVP_PKEY *key;
};

static inline void tls_extend(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX c;
    X509V3_set_ctx(&c, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &c, nid, value);
    if (!e || X509_add_ext(certificate, e, -1) != 1) abort();
    X509_EXTENSION_free(e);
}

static inline struct tls_made tls_make(struct tls_wanted w)
{
    static long serial;
    struct tls_made m = { X509_new(), w.rsa_bits ? EVP_RSA_gen((unsigned)w.rsa_bits) : EVP_EC_gen("P-256") };
    X509 *issuer = w.issuer ? w.issuer->certificate : m.certificate;
    FILE *f;
    if (!m.certificate || !m.key) abort();
    (void)X509_set_version(m.certificate, 2);
    (void)ASN1_INTEGER_set(X509_get_serialNumber(m.certificate), ++serial);
    (void)X509_gmtime_adj(X509_getm_notBefore(m.certificate), -10 * 86400);
    (void)X509_gmtime_adj(X509_getm_notAfter(m.certificate), (long)w.days * 86400);
    (void)X509_set_pubkey(m.certificate, m.key);
    X509_NAME *subject = X509_get_subject_name(m.certificate);
    if (w.subject)
        (void)X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)w.subject, -1, -1, 0);
    (void)X509_set_issuer_name(m.certificate, X509_get_subject_name(issuer));
    if (w.ca) tls_extend(m.certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
    if (w.names) tls_extend(m.certificate, issuer, NID_subject_alt_name, w.names);
    if (!X509_sign(m.certificate, w.issuer ? w.issuer->key : m.key, EVP_sha256())) abort();
    char file[64];
    (void)snprintf(file, sizeof file, "%.50s.pem", w.name);
    f = fopen(tls_path(file).text, "w");
    if (!f || PEM_write_X509(f, m.certificate) != 1 || fclose(f)) abort();
    (void)snprintf(file, sizeof file, "%.50s.key", w.name);
    f = fopen(tls_path(file).text, "w");
    if (!f || PEM_write_PrivateKey(f, m.key, NULL, NULL, 0, NULL, NULL) != 1 || fclose(f)) abort();
    if (chmod(tls_path(file).text, 0600)) abort();
    return m;
}

static inline void tls_unmake(struct tls_made *m)
{
    X509_free(m->certificate);
    EVP_PKEY_free(m->key);
}

/* Of all servers of the process, for as long as it is there. */
static struct http_tls *tls_shared;

static inline void tls_close_shared(void)
{
    http_tls_close(tls_shared);
    tls_remove_folder();
}

static inline struct http_tls *tls_for_tests(void)
{
    static struct tls_path certificate, key;
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    if (tls_shared) return tls_shared;
    struct tls_made m = tls_make((struct tls_wanted){ .name = "server", .subject = "localhost", .days = 30 });
    tls_unmake(&m);
    certificate = tls_path("server.pem");
    key = tls_path("server.key");
    if (http_tls_open(&(struct http_tls_files){ .cert = certificate.text, .key = key.text }, &tls_shared, &err)) {
        (void)fprintf(stderr, "%s\n", text);
        abort();
    }
    (void)atexit(tls_close_shared);
    return tls_shared;
}

/* ---- clients -------------------------------------------------------------------------------------------- */

enum { TLS_CLIENTS_MAX = 65536 };
static SSL *tls_clients[TLS_CLIENTS_MAX]; /* by descriptor */
static SSL_CTX *tls_client_context;       /* of those to come */

static inline SSL *tls_client_of(int fd) { return fd >= 0 && fd < TLS_CLIENTS_MAX ? tls_clients[fd] : NULL; }

static inline void tls_client_free_context(void) { SSL_CTX_free(tls_client_context); }
static inline void tls_client_make_context(void)
{
    tls_client_context = SSL_CTX_new(TLS_client_method());
    if (!tls_client_context) abort();
    (void)SSL_CTX_set_options(tls_client_context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)atexit(tls_client_free_context);
}

/* The handshake; false: the server does not want it. */
static inline bool tls_client_begin(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, tls_client_make_context);
    if (fd < 0 || fd >= TLS_CLIENTS_MAX) return false;
    SSL *ssl = SSL_new(tls_client_context);
    if (!ssl || SSL_set_fd(ssl, fd) != 1) abort();
    ERR_clear_error();
    if (SSL_connect(ssl) == 1) {
        tls_clients[fd] = ssl;
        return true;
    }
    SSL_free(ssl);
    ERR_clear_error();
    return false;
}

static inline ssize_t tls_client_result(int fd, int result, size_t n)
{
    if (result == 1) return (ssize_t)n;
    const int error = SSL_get_error(tls_clients[fd], result);
    ERR_clear_error();
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

static inline ssize_t tls_client_send(int fd, const char *bytes, size_t n)
{
    size_t sent = 0;
    if (!n) return 0;
    ERR_clear_error();
    const int result = SSL_write_ex(tls_clients[fd], bytes, n, &sent);
    return tls_client_result(fd, result, sent);
}

/* One record, and what follows it as far as it is there: like a socket's bytes. */
static inline ssize_t tls_client_recv(int fd, char *out, size_t cap, int flags)
{
    const int was = fcntl(fd, F_GETFL);
    size_t n = 0, got = 1;
    ssize_t first = 0;
    if (flags & MSG_DONTWAIT) (void)fcntl(fd, F_SETFL, was | O_NONBLOCK);
    for (int why = 0; got && n < cap; errno = why) {
        got = 0;
        ERR_clear_error();
        const int result = SSL_read_ex(tls_clients[fd], out + n, cap - n, &got);
        const ssize_t is = tls_client_result(fd, result, got);
        why = errno;
        if (!n) first = is;
        n += got;
        (void)fcntl(fd, F_SETFL, was | O_NONBLOCK);
    }
    const int why = errno;
    (void)fcntl(fd, F_SETFL, was);
    errno = why;
    return n ? (ssize_t)n : first;
}

/* Nothing more is said, not even the end. */
static inline void tls_client_silence(int fd)
{
    if (tls_client_of(fd)) SSL_set_quiet_shutdown(tls_clients[fd], 1);
}

/* Says the end, as programs do that close a connection in order. */
static inline void tls_client_forget(int fd)
{
    if (!tls_client_of(fd)) return;
    const int was = fcntl(fd, F_GETFL);
    (void)fcntl(fd, F_SETFL, was | O_NONBLOCK);
    ERR_clear_error();
    (void)SSL_shutdown(tls_clients[fd]);
    ERR_clear_error();
    SSL_free(tls_clients[fd]);
    tls_clients[fd] = NULL;
}

#endif
