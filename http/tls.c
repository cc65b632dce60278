/* tls.c: what every TLS connection of a server shares: certificate, key, whom to trust, which versions and ciphers.
 *
 * A context is made whole, from files as they are at one moment, and then never changed; a reload makes another one
 * and, if that succeeds, puts it in the place of the first. Connections hold the one that they began with. */
#include "tls.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "http.h"

/* Authenticated encryption, and keys that a later theft of the certificate's key does not give away. */
#define CIPHERS_12                                               \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:" \
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:" \
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
#define CIPHERS_13 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define GROUPS "X25519:P-256:P-384"

enum {
    SECURITY = 2,                  /* OpenSSL's level: keys of 112 bits of security (RSA from 2048), no SHA-1 */
    FILE_BYTES_MAX = 1 << 20,      /* of a file of certificates, or of a key */
    CLIENT_CHAIN_BYTES = 32 << 10, /* that a client may send of certificates */
    CLIENT_CHAIN_DEPTH = 8,
    EVERYBODY = 0007 /* of a file's mode */
};

struct http_tls {
    struct http_tls_files files;
    pthread_mutex_t lock;
    SSL_CTX *context; /* under the lock */
};

/* ---- texts ---------------------------------------------------------------------------------------------- */

/* OpenSSL's newest reason; takes all of them out of its queue. */
static const char *take_reason(void)
{
    const unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);
    ERR_clear_error();
    return text ? text : "OpenSSL gives no reason";
}

static void warn(const struct http_tls *t, const char *format, const char *path, const char *more)
{
    char text[512];
    if (!t->files.warn) return;
    (void)snprintf(text, sizeof text, format, path, more);
    t->files.warn(t->files.user, text);
}

static bool format_time(const ASN1_TIME *time, char out[HTTP_TLS_TIME])
{
    struct tm parts;
    return ASN1_TIME_to_tm(time, &parts) == 1 && strftime(out, HTTP_TLS_TIME, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static wk_status check_file(const char *what, const char *path, struct stat *out, const struct wk_err *err)
{
    if (stat(path, out) || access(path, R_OK))
        return wk_fail(err, WK_IO, "%s %s cannot be read: %s", what, path, strerror(errno));
    if (!S_ISREG(out->st_mode)) return wk_fail(err, WK_IO, "%s %s is not a regular file", what, path);
    if (out->st_size > FILE_BYTES_MAX)
        return wk_fail(err, WK_INVALID, "%s %s is larger than 1 MiB: expected a file in PEM", what, path);
    return WK_OK;
}

static wk_status refuse_file(const char *what, const char *path, const char *expected, const struct wk_err *err)
{
    return wk_fail(err, WK_INVALID, "%s %s is refused: %s; expected %s", what, path, take_reason(), expected);
}

static void warn_of_dates(const struct http_tls *t, const X509 *certificate)
{
    char at[HTTP_TLS_TIME];
    const ASN1_TIME *from = X509_get0_notBefore(certificate), *to = X509_get0_notAfter(certificate);
    if (X509_cmp_current_time(to) < 0 && format_time(to, at))
        warn(t, "the certificate %s has expired at %s: clients will refuse it", t->files.cert, at);
    if (X509_cmp_current_time(from) > 0 && format_time(from, at))
        warn(t, "the certificate %s is valid from %s on only: clients will refuse it", t->files.cert, at);
}

static wk_status read_certificate(const struct http_tls *t, SSL_CTX *c, const struct wk_err *err)
{
    struct stat st;
    wk_status status = check_file("the certificate", t->files.cert, &st, err);
    if (status) return status;
    if (SSL_CTX_use_certificate_chain_file(c, t->files.cert) != 1)
        return refuse_file("the certificate", t->files.cert,
                           "PEM, the server's certificate first, of RSA from 2048 bits on or of an elliptic curve",
                           err);
    return WK_OK;
}

/* Nobody is there to be asked for a passphrase. */
static int no_passphrase(char *out, int cap, int writing, void *user)
{
    (void)out;
    (void)cap;
    (void)writing;
    *(bool *)user = true;
    return -1;
}

static wk_status read_key(const struct http_tls *t, SSL_CTX *c, const struct wk_err *err)
{
    struct stat st;
    bool encrypted = false;
    wk_status status = check_file("the key", t->files.key, &st, err);
    if (status) return status;
    SSL_CTX_set_default_passwd_cb(c, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(c, &encrypted);
    const bool ok = SSL_CTX_use_PrivateKey_file(c, t->files.key, SSL_FILETYPE_PEM) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(c, NULL);
    SSL_CTX_set_default_passwd_cb(c, NULL);
    if (!ok && encrypted)
        return refuse_file("the key", t->files.key, "one without a passphrase (openssl pkey -in KEY -out PLAIN)", err);
    const bool other = !ok && ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH;
    if (other || (ok && SSL_CTX_check_private_key(c) != 1)) {
        ERR_clear_error();
        return wk_fail(err, WK_INVALID, "the key %s is not that of the certificate %s", t->files.key, t->files.cert);
    }
    if (!ok) return refuse_file("the key", t->files.key, "a private key in PEM", err);
    if (st.st_mode & EVERYBODY)
        warn(t, "everybody on this machine may read the key %s: take that away (chmod o-rwx)%s", t->files.key, "");
    return WK_OK;
}

/* Whose certificates clients must have. */
static wk_status read_client_ca(const struct http_tls *t, SSL_CTX *c, const struct wk_err *err)
{
    const char *path = t->files.client_ca;
    struct stat st;
    if (!path) return WK_OK;
    wk_status status = check_file("the clients' CA", path, &st, err);
    if (status) return status;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);
    if (!names || SSL_CTX_load_verify_file(c, path) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return refuse_file("the clients' CA", path, "certificates in PEM", err);
    }
    SSL_CTX_set_client_CA_list(c, names); /* which now has them */
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(c, CLIENT_CHAIN_DEPTH);
    return WK_OK;
}

/* ---- contexts ------------------------------------------------------------------------------------------- */

/* Who offers only others speaks another protocol. Who offers nothing gets no answer to it. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *offered,
                           unsigned n, void *user)
{
    static const unsigned char served[] = "\x08http/1.1\x08http/1.0";
    (void)ssl;
    (void)user;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_n, served, sizeof served - 1, offered, n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* No session is resumed: a ticket would outlive the certificate that a client has shown, and its key would open what
 * was recorded. Clients keep connections instead. Without resumption there are no early data either. */
static bool set_up(SSL_CTX *c)
{
    SSL_CTX_set_security_level(c, SECURITY);
    (void)SSL_CTX_set_options(c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF /* requests say themselves where they end */);
    (void)SSL_CTX_clear_options(c, SSL_OP_LEGACY_SERVER_CONNECT | SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION);
    (void)SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* a read returns after each record, so that no client's records keep it from its deadline */
    (void)SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY);
    (void)SSL_CTX_set_max_cert_list(c, CLIENT_CHAIN_BYTES);
    SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
    return SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) == 1 && SSL_CTX_set_cipher_list(c, CIPHERS_12) == 1 &&
           SSL_CTX_set_ciphersuites(c, CIPHERS_13) == 1 && SSL_CTX_set1_groups_list(c, GROUPS) == 1 &&
           SSL_CTX_set_num_tickets(c, 0) == 1 && SSL_CTX_set_max_early_data(c, 0) == 1;
}

static wk_status make_context(const struct http_tls *t, SSL_CTX **out, const struct wk_err *err)
{
    ERR_clear_error();
    *out = NULL;
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    if (!c || !set_up(c)) {
        SSL_CTX_free(c);
        return wk_fail(err, WK_NO_MEMORY, "OpenSSL cannot be set up: %s", take_reason());
    }
    wk_status status = read_certificate(t, c, err);
    if (!status) status = read_key(t, c, err);
    if (!status) status = read_client_ca(t, c, err);
    if (!status) {
        warn_of_dates(t, SSL_CTX_get0_certificate(c));
        *out = c;
    } else {
        SSL_CTX_free(c);
    }
    ERR_clear_error();
    return status;
}

wk_status http_tls_open(const struct http_tls_files *files, struct http_tls **out, const struct wk_err *err)
{
    struct http_tls *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    t->files = *files;
    (void)pthread_mutex_init(&t->lock, NULL);
    const wk_status status = make_context(t, &t->context, err);
    if (status)
        http_tls_close(t);
    else
        *out = t;
    return status;
}

wk_status http_tls_reload(struct http_tls *t, const struct wk_err *err)
{
    SSL_CTX *fresh;
    const wk_status status = make_context(t, &fresh, err);
    if (status) return status;
    (void)pthread_mutex_lock(&t->lock);
    SSL_CTX *old = t->context;
    t->context = fresh;
    (void)pthread_mutex_unlock(&t->lock);
    SSL_CTX_free(old);
    return WK_OK;
}

void http_tls_expires(struct http_tls *t, char out[HTTP_TLS_TIME])
{
    (void)pthread_mutex_lock(&t->lock);
    if (!format_time(X509_get0_notAfter(SSL_CTX_get0_certificate(t->context)), out)) out[0] = '\0';
    (void)pthread_mutex_unlock(&t->lock);
}

void http_tls_close(struct http_tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->context);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

SSL *tls_new(struct http_tls *t)
{
    (void)pthread_mutex_lock(&t->lock);
    SSL *ssl = SSL_new(t->context);
    (void)pthread_mutex_unlock(&t->lock);
    ERR_clear_error();
    return ssl;
}
