/* test_tls.c: what only TLS has: files that are refused, versions and ciphers, clients' certificates, handshakes that
 * stall, fail or never begin, reloads, records. What requests and streams do over TLS, the other tests say, which run
 * over it as well. */
#define OVER_TLS
#include "test_client.h"

#include <stdatomic.h>

#include "internal.h"

#define H "Host: 127.0.0.1\r\n"
#define GET(target) "GET " target " HTTP/1.1\r\n" H "\r\n"
#define KEPT(target) "GET " target " HTTP/1.1\r\n" H "Connection: keep-alive\r\n\r\n"

enum { MINUTES = 600000, ANSWER = 1 << 16, EVENTS = 20 };

static struct tls_made ca, other_ca, server_cert, next_cert;
static atomic_uint left, dirty; /* handlers that saw their client leave; errors left in OpenSSL's queue */

static void handle_good(void *user, struct http_request *r)
{
    (void)user;
    if (ERR_peek_error()) atomic_fetch_add(&dirty, 1);
    http_answer(r, 200, "text/plain", "good\n", 5);
}

static void handle_peer(void *user, struct http_request *r)
{
    const struct http_peer *p = http_peer(r);
    struct http_text t = { 0 };
    (void)user;
    http_text_format(&t, "%s", p ? p->subject : "nobody");
    for (uint32_t i = 0; p && i < p->n_names; i++) http_text_format(&t, "|%s", p->names[i]);
    http_answer(r, 200, "text/plain", t.data, t.n);
    http_text_free(&t);
}

static void handle_stream(void *user, struct http_request *r)
{
    bool here = http_stream_begin(r, HTTP_EVENTS);
    (void)user;
    for (int i = 0; here && i < EVENTS; i++) here = http_event(r, "token", "{\"a\":1}", 7);
}

static void handle_work(void *user, struct http_request *r)
{
    (void)user;
    while (!http_left(r)) pause_ms(5);
    atomic_fetch_add(&left, 1);
}

static const struct http_route routes[] = { { "GET", "/good", handle_good, false },
                                            { "GET", "/peer", handle_peer, false },
                                            { "GET", "/stream", handle_stream, true },
                                            { "GET", "/work", handle_work, true } };

static struct http_server *open_with(struct http_tls *tls, uint32_t header_ms, uint32_t reserve)
{
    const struct http_options o = { .host = "127.0.0.1",
                                    .max_streams = 2,
                                    .reserve = reserve,
                                    .header_ms = header_ms,
                                    .body_ms = MINUTES,
                                    .write_ms = MINUTES,
                                    .memory = 64 << 20,
                                    .tls = tls };
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    struct http_server *s = NULL;
    if (http_open(&o, routes, sizeof routes / sizeof *routes, NULL, &s, &err)) fail_msg("%s", text);
    return s;
}

static void check_good(struct http_server *s)
{
    static char answer[ANSWER];
    assert_int_equal(exchange(http_port(s), GET("/good"), answer, sizeof answer), 200);
    assert_int_equal(atomic_load(&dirty), 0);
}

static bool idle(const struct http_server *s)
{
    struct http_counts c;
    http_counts(s, &c);
    return !c.connections;
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static char warned[1024];

static void on_warning(void *user, const char *text)
{
    (void)user;
    (void)snprintf(warned, sizeof warned, "%s", text);
}

static wk_status open_files(const char *cert, const char *key, const char *client_ca, struct http_tls **out,
                            char text[512])
{
    static struct tls_path paths[3];
    const struct wk_err err = { text, 512 };
    const char *const names[] = { cert, key, client_ca };
    for (int i = 0; i < 3; i++)
        if (names[i]) paths[i] = tls_path(names[i]);
    text[0] = warned[0] = '\0';
    return http_tls_open(&(struct http_tls_files){ .cert = paths[0].text,
                                                   .key = paths[1].text,
                                                   .client_ca = client_ca ? paths[2].text : NULL,
                                                   .warn = on_warning },
                         out, &err);
}

static struct http_tls *must_open(const char *cert, const char *key, const char *client_ca)
{
    char text[512];
    struct http_tls *t = NULL;
    if (open_files(cert, key, client_ca, &t, text)) fail_msg("%s", text);
    return t;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(tls_path(name).text, "w");
    assert_true(f && fputs(text, f) >= 0 && !fclose(f));
}

static void copy_file(const char *from, const char *to)
{
    static char text[1 << 16];
    FILE *f = fopen(tls_path(from).text, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    (void)fclose(f);
    write_file(to, text);
}

static void write_encrypted_key(void)
{
    FILE *f = fopen(tls_path("locked.key").text, "w");
    assert_true(f && PEM_write_PKCS8PrivateKey(f, server_cert.key, EVP_aes_128_cbc(), "secret", 6, NULL, NULL) == 1);
    (void)fclose(f);
}

static void refused_files(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *key, *client_ca, *said;
        wk_status status;
    } cases[] = {
        { "none.pem", "a.key", NULL, "none.pem cannot be read: No such file", WK_IO },
        { "a.pem", "none.key", NULL, "none.key cannot be read: No such file", WK_IO },
        { "a.pem", "a.key", "none.pem", "none.pem cannot be read: No such file", WK_IO },
        { ".", "a.key", NULL, "not a regular file", WK_IO },
        { "a.pem", "b.key", NULL, "is not that of the certificate", WK_INVALID },
        { "a.pem", "weak.key", NULL, "is not that of the certificate", WK_INVALID },
        { "a.pem", "locked.key", NULL, "without a passphrase", WK_INVALID },
        { "a.pem", "a.pem", NULL, "expected a private key in PEM", WK_INVALID },
        { "a.key", "a.key", NULL, "expected PEM", WK_INVALID },
        { "words.pem", "a.key", NULL, "expected PEM", WK_INVALID },
        { "a.pem", "a.key", "words.pem", "expected certificates in PEM", WK_INVALID },
        { "weak.pem", "weak.key", NULL, "RSA from 2048 bits", WK_INVALID },
    };
    struct tls_made weak = tls_make((struct tls_wanted){ .name = "weak", .subject = "x", .days = 3, .rsa_bits = 1024 });
    tls_unmake(&weak);
    write_file("words.pem", "just words\n");
    write_encrypted_key();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct http_tls *t = NULL;
        const wk_status status = open_files(cases[i].cert, cases[i].key, cases[i].client_ca, &t, text);
        if (status != cases[i].status || t || !strstr(text, cases[i].said))
            fail_msg("%zu: %d instead of %d: %s", i, (int)status, (int)cases[i].status, text);
        assert_int_equal(ERR_peek_error(), 0);
    }
}

static void warnings(void **state)
{
    (void)state;
    struct tls_made late = tls_make((struct tls_wanted){ .name = "late", .subject = "x", .days = -1 });
    tls_unmake(&late);
    http_tls_close(must_open("late.pem", "late.key", NULL));
    assert_non_null(strstr(warned, "has expired at 20"));
    assert_int_equal(chmod(tls_path("late.key").text, 0640), 0);
    http_tls_close(must_open("a.pem", "a.key", NULL));
    assert_string_equal(warned, "");
    assert_int_equal(chmod(tls_path("a.key").text, 0644), 0);
    http_tls_close(must_open("a.pem", "a.key", NULL));
    assert_non_null(strstr(warned, "everybody"));
    assert_int_equal(chmod(tls_path("a.key").text, 0600), 0);
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    char expires[HTTP_TLS_TIME];
    http_tls_expires(t, expires);
    assert_true(strlen(expires) == 20 && expires[10] == 'T' && expires[19] == 'Z');
    http_tls_close(t);
    http_tls_close(NULL);
}

/* ---- handshakes ----------------------------------------------------------------------------------------- */

struct shown {
    SSL_CTX *context;
    SSL *ssl;
    int fd;
};

static struct shown client_with(struct http_server *s)
{
    struct shown c = { .context = SSL_CTX_new(TLS_client_method()), .fd = connect_plainly(http_port(s)) };
    assert_non_null(c.context);
    (void)SSL_CTX_set_options(c.context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_security_level(c.context, 0);
    return c;
}

static bool begin(struct shown *c)
{
    if (!c->ssl) c->ssl = SSL_new(c->context);
    assert_true(c->ssl && SSL_set_fd(c->ssl, c->fd) == 1);
    ERR_clear_error();
    const bool ok = SSL_connect(c->ssl) == 1;
    ERR_clear_error();
    return ok;
}

/* The answer of a connection that closes behind it; "" if there is none. */
static const char *ask(struct shown *c, const char *request)
{
    static char answer[ANSWER];
    size_t n = 0;
    for (int got = SSL_write(c->ssl, request, (int)strlen(request)); got > 0 && n < sizeof answer - 1;)
        if ((got = SSL_read(c->ssl, answer + n, (int)(sizeof answer - 1 - n))) > 0) n += (size_t)got;
    answer[n] = '\0';
    ERR_clear_error();
    return answer;
}

static void end(struct shown *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    (void)close(c->fd);
    ERR_clear_error();
}

static bool version_served(struct http_server *s, int version)
{
    struct shown c = client_with(s);
    (void)SSL_CTX_set_min_proto_version(c.context, version);
    (void)SSL_CTX_set_max_proto_version(c.context, version);
    const bool ok = begin(&c) && SSL_version(c.ssl) == version && strstr(ask(&c, GET("/good")), "good\n");
    end(&c);
    return ok;
}

static bool ciphers_served(struct http_server *s, const char *ciphers)
{
    struct shown c = client_with(s);
    (void)SSL_CTX_set_max_proto_version(c.context, TLS1_2_VERSION);
    assert_int_equal(SSL_CTX_set_cipher_list(c.context, ciphers), 1);
    const bool ok = begin(&c);
    end(&c);
    return ok;
}

static void versions_and_ciphers(void **state)
{
    (void)state;
    static const char *const weak[] = { "AES128-SHA",
                                        "AES128-GCM-SHA256",
                                        "ECDHE-ECDSA-AES128-SHA",
                                        "ECDHE-ECDSA-AES256-SHA384",
                                        "DHE-RSA-AES128-GCM-SHA256",
                                        "aNULL",
                                        "eNULL" };
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, MINUTES, 1);
    assert_false(version_served(s, TLS1_VERSION));
    assert_false(version_served(s, TLS1_1_VERSION));
    assert_true(version_served(s, TLS1_2_VERSION));
    assert_true(version_served(s, TLS1_3_VERSION));
    for (size_t i = 0; i < sizeof weak / sizeof *weak; i++)
        if (ciphers_served(s, weak[i])) fail_msg("%s is served", weak[i]);
    assert_true(ciphers_served(s, "ECDHE-ECDSA-AES128-GCM-SHA256"));
    assert_true(ciphers_served(s, "ECDHE-ECDSA-CHACHA20-POLY1305"));
    check_good(s);
    http_close(s);
    http_tls_close(t);
}

static bool protocol_served(struct http_server *s, const char *offered, const char *chosen)
{
    const unsigned char *name = NULL;
    unsigned n = 0;
    struct shown c = client_with(s);
    assert_int_equal(SSL_CTX_set_alpn_protos(c.context, (const unsigned char *)offered, (unsigned)strlen(offered)), 0);
    const bool ok = begin(&c);
    if (ok) SSL_get0_alpn_selected(c.ssl, &name, &n);
    const bool same = ok && n == strlen(chosen) && !memcmp(name, chosen, n);
    end(&c);
    return same;
}

/* Nothing is resumed, compressed, renegotiated; HTTP/1.1 is what is spoken. */
static void extras(void **state)
{
    (void)state;
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, MINUTES, 1);
    assert_true(protocol_served(s, "\x02h2\x08http/1.1", "http/1.1"));
    assert_false(protocol_served(s, "\x02h2", "h2"));
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct shown c = client_with(s), again = client_with(s);
        (void)SSL_CTX_set_max_proto_version(c.context, version);
        assert_true(begin(&c) && strstr(ask(&c, GET("/good")), "good\n"));
        SSL_SESSION *session = SSL_get1_session(c.ssl);
        assert_false(SSL_SESSION_has_ticket(session));
        assert_int_equal(SSL_SESSION_get_max_early_data(session), 0);
        assert_null(SSL_get_current_compression(c.ssl));
        end(&c);
        again.ssl = SSL_new(again.context);
        (void)SSL_set_session(again.ssl, session);
        assert_true(begin(&again));
        assert_false(SSL_session_reused(again.ssl));
        SSL_SESSION_free(session);
        end(&again);
    }
    struct shown c = client_with(s);
    (void)SSL_CTX_set_max_proto_version(c.context, TLS1_2_VERSION);
    assert_true(begin(&c));
    assert_int_equal(SSL_renegotiate(c.ssl), 1);
    assert_true(SSL_do_handshake(c.ssl) != 1 || ask(&c, GET("/good"))[0] == '\0');
    end(&c);
    check_good(s);
    http_close(s);
    http_tls_close(t);
}

/* ---- clients' certificates ------------------------------------------------------------------------------ */

/* What /peer says to a client with this certificate; "": it is not served. */
static const char *ask_as(struct http_server *s, const struct tls_made *who, int version)
{
    struct shown c = client_with(s);
    static char said[ANSWER];
    (void)SSL_CTX_set_max_proto_version(c.context, version);
    if (who)
        assert_true(SSL_CTX_use_certificate(c.context, who->certificate) == 1 &&
                    SSL_CTX_use_PrivateKey(c.context, who->key) == 1);
    const char *answer = begin(&c) ? ask(&c, GET("/peer")) : "", *body = strstr(answer, "\r\n\r\n");
    (void)snprintf(said, sizeof said, "%s", body ? body + 4 : "");
    end(&c);
    return said;
}

static void clients(void **state)
{
    (void)state;
    static char many[60000];
    size_t n = 0;
    for (int i = 0; i < 3000; i++) n += (size_t)snprintf(many + n, sizeof many - n, "%sDNS:host-%05d", i ? "," : "", i);
    const struct tls_wanted wanted[] = {
        { .name = "c0",
          .subject = "b\xc3\xa4r, one",
          .names = "DNS:a.example,URI:spiffe://x/y,email:a@b.example,IP:192.0.2.1,IP:2001:db8::7",
          .issuer = &ca,
          .days = 3 },
        { .name = "c1", .issuer = &ca, .names = "DNS:nameless.example", .days = 3 },
        { .name = "c2", .subject = "late", .issuer = &ca, .days = -1 },
        { .name = "c3", .subject = "stranger", .issuer = &other_ca, .days = 3 },
        { .name = "c4", .subject = "alone", .days = 3 },
        { .name = "c5", .subject = "large", .names = many, .issuer = &ca, .days = 3 },
    };
    static const char *const said[] = {
        "CN=b\xc3\xa4r\\, one|DNS:a.example|URI:spiffe://x/y|email:a@b.example|IP:192.0.2.1|IP:2001:db8::7",
        "|DNS:nameless.example",
        "",
        "",
        "",
        ""
    };
    struct http_tls *t = must_open("a.pem", "a.key", "ca.pem");
    struct http_server *s = open_with(t, MINUTES, 1);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        assert_string_equal(ask_as(s, NULL, version), "");
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            struct tls_made m = tls_make(wanted[i]);
            assert_string_equal(ask_as(s, &m, version), said[i]);
            tls_unmake(&m);
        }
    }
    struct http_counts c; /* the server counts a refusal after the client has seen it */
    wait_for((http_counts(s, &c), c.refused >= 10));
    assert_int_equal(c.requests, 4);
    assert_int_equal(c.refused, 10);
    http_close(s);
    http_tls_close(t);
    t = must_open("a.pem", "a.key", NULL);
    s = open_with(t, MINUTES, 1);
    assert_string_equal(ask_as(s, NULL, TLS1_3_VERSION), "nobody");
    http_close(s);
    http_tls_close(t);
}

/* ---- what is no TLS ------------------------------------------------------------------------------------- */

static void plain_http(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const struct {
        const char *request, *said;
    } cases[] = {
        { GET("/good"), "{\"code\":\"INVALID_REQUEST\",\"message\":\"this port speaks https\"" },
        { "POST /v1/x HTTP/1.1\r\n", "{\"error\":{\"message\":\"this port speaks https\"" },
        { "G", "this port speaks https" },
        { "hello", "this port speaks https" },
        { "\x80\x2e\x01\x03\x01 SSL 2", "" },
        { "\x16\x03\x01\x00\x05hello", "" },
        { "\x16\x03\x01\xff\xff"
          "0123456789",
          "" },
        { "\x17\x03\x03\x00\x01x", "" },
        { " GET / HTTP/1.1\r\n\r\n", "" },
        { "\r\n\r\n", "" },
    };
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, 500, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int fd = connect_plainly(http_port(s));
        (void)send(fd, cases[i].request, strlen(cases[i].request), MSG_NOSIGNAL);
        assert_true(read_until(fd, answer, sizeof answer, NULL));
        (void)close(fd);
        if (cases[i].said[0] ? status_in(answer) != 400 || !strstr(answer, cases[i].said)
                             : strstr(answer, "HTTP/1.1") != NULL)
            fail_msg("%zu: %s", i, answer);
        check_good(s);
    }
    http_close(s);
    http_tls_close(t);
}

/* A ClientHello, as a client of ours writes it. */
static size_t client_hello(char *out, size_t cap)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *made = BIO_new(BIO_s_mem());
    assert_true(ssl && in && made);
    SSL_set_bio(ssl, in, made);
    (void)SSL_connect(ssl);
    const int n = BIO_read(made, out, (int)cap);
    assert_true(n > 100);
    SSL_free(ssl);
    SSL_CTX_free(context);
    ERR_clear_error();
    return (size_t)n;
}

/* A handshake has the header's deadline, byte by byte or not at all; and so has what comes behind it. */
static void slow_handshakes(void **state)
{
    (void)state;
    static char hello[4096], answer[ANSWER];
    const size_t n = client_hello(hello, sizeof hello);
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, 300, 4);
    const int drip = connect_plainly(http_port(s));
    const uint64_t end_ms = now_ms() + PATIENCE_MS;
    struct pollfd p = { .fd = drip, .events = POLLIN };
    for (size_t i = 0; i + 1 < n && !poll(&p, 1, 5); i++) {
        assert_true(now_ms() < end_ms);
        if (send(drip, hello + i, 1, MSG_NOSIGNAL) != 1) break;
    }
    assert_true(read_until(drip, answer, sizeof answer, NULL));
    assert_string_equal(answer, "");
    (void)close(drip);
    const size_t cuts[] = { 0, 1, 5, 6, n / 2, n };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const int fd = connect_plainly(http_port(s));
        (void)send(fd, hello, cuts[i], MSG_NOSIGNAL);
        assert_true(read_until(fd, answer, sizeof answer, NULL));
        (void)close(fd);
    }
    const int silent = connect_to(http_port(s));
    assert_true(read_until(silent, answer, sizeof answer, NULL));
    assert_string_equal(answer, "");
    hang_up(silent);
    wait_for(idle(s));
    http_close(s);
    http_tls_close(t);
}

/* No deadline ends these: only that threads are wanted does. */
static void stalled_handshakes(void **state)
{
    (void)state;
    static char hello[4096];
    enum { STALLED = 100 };
    const size_t n = client_hello(hello, sizeof hello);
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, MINUTES, 30);
    int fds[STALLED];
    for (int i = 0; i < STALLED; i++) {
        fds[i] = connect_plainly(http_port(s));
        const size_t part = i % 3 == 0 ? 0 : i % 3 == 1 ? n / 2 : n;
        assert_int_equal(send(fds[i], hello, part, MSG_NOSIGNAL), part);
        if (i % 10 == 0) check_good(s);
    }
    for (int i = 0; i < 10; i++) check_good(s);
    for (int i = 0; i < STALLED / 2; i++) (void)close(fds[i]);
    http_close(s); /* waits for none of them */
    for (int i = STALLED / 2; i < STALLED; i++) (void)close(fds[i]);
    http_tls_close(t);
}

/* ---- records -------------------------------------------------------------------------------------------- */

static atomic_uint records;

static void on_message(int ours, int version, int type, const void *bytes, size_t n, SSL *ssl, void *user)
{
    (void)version;
    (void)ssl;
    (void)user;
    if (!ours && type == SSL3_RT_HEADER && n > 0 && *(const unsigned char *)bytes == SSL3_RT_APPLICATION_DATA)
        atomic_fetch_add(&records, 1);
}

/* One event is one record; so is a head with its small body. */
static void one_record_each(void **state)
{
    (void)state;
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, MINUTES, 1);
    struct shown c = client_with(s);
    (void)SSL_CTX_set_max_proto_version(c.context, TLS1_2_VERSION); /* whose handshake and alerts look different */
    assert_true(begin(&c));
    SSL_set_msg_callback(c.ssl, on_message);
    const char *answer = ask(&c, GET("/stream"));
    assert_int_equal(count_of(answer, "event: token\n"), EVENTS);
    assert_int_equal(atomic_load(&records), 1 + EVENTS + 1); /* the head, the events, the last chunk */
    assert_true(SSL_get_shutdown(c.ssl) & SSL_RECEIVED_SHUTDOWN);
    end(&c);
    http_close(s);
    http_tls_close(t);
}

/* Requests in records of every size, several in one, keys that change between: all are answered, in order. */
static void requests_in_records(void **state)
{
    (void)state;
    static char answer[ANSWER];
    static const char two[] = KEPT("/good") KEPT("/good") GET("/good");
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, MINUTES, 4);
    for (size_t piece = 1; piece <= sizeof two; piece += 1 + piece / 2) {
        const int fd = connect_to(http_port(s));
        for (size_t at = 0; at < sizeof two - 1; at += piece) {
            const size_t rest = sizeof two - 1 - at;
            assert_true(send_bytes(fd, two + at, rest < piece ? rest : piece));
            if (at / piece % 8 == 0) assert_int_equal(SSL_key_update(tls_client_of(fd), SSL_KEY_UPDATE_REQUESTED), 1);
        }
        assert_true(read_until(fd, answer, sizeof answer, NULL));
        hang_up(fd);
        if (count_of(answer, "good\n") != 3) fail_msg("pieces of %zu: %s", piece, answer);
    }
    http_close(s);
    http_tls_close(t);
}

/* A client that says so, and keeps its socket open, sends no more: what it asked is answered, and who writes nothing
 * until the end sees it leave. */
static void half_closed(void **state)
{
    (void)state;
    static char answer[ANSWER];
    struct http_tls *t = must_open("a.pem", "a.key", NULL);
    struct http_server *s = open_with(t, MINUTES, 4);
    static const struct {
        const char *request;
        int status;
    } cases[] = { { GET("/good"), 200 }, { "GET /go", 400 }, { "", 0 }, { GET("/stream"), 200 }, { GET("/work"), 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int fd = connect_to(http_port(s));
        assert_true(send_text(fd, cases[i].request));
        assert_int_equal(SSL_shutdown(tls_client_of(fd)), 0);
        assert_true(read_until(fd, answer, sizeof answer, NULL));
        if (status_in(answer) != cases[i].status) fail_msg("%zu: %s", i, answer);
        if (i == 3 && count_of(answer, "event: token\n") != EVENTS) fail_msg("%s", answer);
        hang_up(fd);
    }
    assert_int_equal(atomic_load(&left), 1);
    wait_for(idle(s));
    http_close(s);
    http_tls_close(t);
}

/* ---- reload --------------------------------------------------------------------------------------------- */

static bool shows(struct http_server *s, const struct tls_made *which)
{
    struct shown c = client_with(s);
    assert_true(begin(&c));
    X509 *seen = SSL_get1_peer_certificate(c.ssl);
    const bool same = seen && X509_cmp(seen, which->certificate) == 0;
    X509_free(seen);
    end(&c);
    return same;
}

static void reloads(void **state)
{
    (void)state;
    static char answer[ANSWER];
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    copy_file("a.pem", "now.pem");
    copy_file("a.key", "now.key");
    struct http_tls *t = must_open("now.pem", "now.key", NULL);
    struct http_server *s = open_with(t, MINUTES, 4);
    const int kept = connect_to(http_port(s));
    assert_true(send_text(kept, KEPT("/good")) && read_until(kept, answer, sizeof answer, "good\n"));
    assert_true(shows(s, &server_cert));
    copy_file("b.pem", "now.pem");
    assert_int_equal(http_tls_reload(t, &err), WK_INVALID); /* the key is still the other's */
    assert_non_null(strstr(text, "is not that of the certificate"));
    assert_true(shows(s, &server_cert));
    copy_file("b.key", "now.key");
    assert_int_equal(http_tls_reload(t, &err), WK_OK);
    assert_true(shows(s, &next_cert));
    write_file("now.pem", "");
    assert_int_equal(http_tls_reload(t, &err), WK_INVALID);
    assert_int_equal(unlink(tls_path("now.key").text), 0);
    assert_int_equal(http_tls_reload(t, &err), WK_INVALID);
    assert_true(shows(s, &next_cert));
    assert_true(send_text(kept, GET("/good")) && read_until(kept, answer, sizeof answer, "good\n"));
    hang_up(kept);
    check_good(s);
    http_close(s);
    http_tls_close(t);
}

static int make_all(void **state)
{
    (void)state;
    ca = tls_make((struct tls_wanted){ .name = "ca", .subject = "clients' CA", .days = 30, .ca = true });
    other_ca = tls_make((struct tls_wanted){ .name = "other", .subject = "another CA", .days = 30, .ca = true });
    server_cert = tls_make((struct tls_wanted){ .name = "a", .subject = "localhost", .days = 30 });
    next_cert = tls_make((struct tls_wanted){ .name = "b", .subject = "localhost", .days = 30 });
    return 0;
}

static int unmake_all(void **state)
{
    (void)state;
    tls_unmake(&ca);
    tls_unmake(&other_ca);
    tls_unmake(&server_cert);
    tls_unmake(&next_cert);
    tls_remove_folder();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_files),
        cmocka_unit_test(warnings),
        cmocka_unit_test(versions_and_ciphers),
        cmocka_unit_test(extras),
        cmocka_unit_test(clients),
        cmocka_unit_test(plain_http),
        cmocka_unit_test(slow_handshakes),
        cmocka_unit_test(stalled_handshakes),
        cmocka_unit_test(one_record_each),
        cmocka_unit_test(requests_in_records),
        cmocka_unit_test(half_closed),
        cmocka_unit_test(reloads),
    };
    return cmocka_run_group_tests(tests, make_all, unmake_all);
}
