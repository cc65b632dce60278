/* audit_line.c: see audit_line.h. */
#include "audit_line.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include "base/hex.h"
#include "base/utf8.h"

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static bool room(struct audit_bytes *b, size_t n)
{
    if (b->failed || n > SIZE_MAX / 4 - b->len) {
        b->failed = true;
        return false;
    }
    if (b->cap - b->len > n) return true;
    size_t cap = b->cap ? b->cap : 1024;
    while (cap - b->len <= n) cap *= 2;
    char *more = realloc(b->at, cap);
    if (!more) {
        b->failed = true;
        return false;
    }
    b->at = more;
    b->cap = cap;
    return true;
}

void audit_put(struct audit_bytes *b, const char *bytes, size_t n)
{
    if (!room(b, n)) return;
    memcpy(b->at + b->len, bytes, n);
    b->len += n;
}

void audit_print(struct audit_bytes *b, const char *format, ...)
{
    size_t cap = 255; /* without the terminator; enough for most, so that most is formatted once */
    for (int tries = 0; tries < 2 && room(b, cap); tries++) {
        va_list args;
        va_start(args, format);
        const int n = vsnprintf(b->at + b->len, cap + 1, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n <= cap) {
            b->len += (size_t)n;
            return;
        }
        if (n < 0) break;
        cap = (size_t)n;
    }
    b->failed = true;
}

/* Bytes of a code point that stands as it is; 0: it is escaped. C0, DEL and C1 are, since a terminal could obey them.
 */
static size_t plain(const unsigned char *p, size_t n)
{
    if (*p < 0x80) return *p >= 0x20 && *p != 0x7f && *p != '"' && *p != '\\';
    const size_t length = utf8_sequence(p, n);
    return length == 2 && p[0] == 0xc2 && p[1] < 0xa0 ? 0 : length;
}

/* Returns the bytes that it took. */
static size_t put_escaped(struct audit_bytes *b, const unsigned char *p, size_t n)
{
    char text[8];
    unsigned code = *p < 0x80 ? *p : 0xfffd;
    size_t took = 1;
    if (utf8_sequence(p, n) == 2) {
        code = (unsigned)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
        took = 2;
    }
    if (code == '"' || code == '\\')
        (void)snprintf(text, sizeof text, "\\%c", (int)code);
    else if (code == '\n')
        (void)snprintf(text, sizeof text, "\\n");
    else
        (void)snprintf(text, sizeof text, "\\u%04x", code);
    audit_put(b, text, strlen(text));
    return took;
}

void audit_put_string(struct audit_bytes *b, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    audit_put(b, "\"", 1);
    for (size_t i = 0; i < n && !b->failed;) {
        size_t run = 0, length;
        while (i + run < n && (length = plain(p + i + run, n - i - run)) > 0) run += length;
        audit_put(b, text + i, run);
        i += run;
        if (i < n) i += put_escaped(b, p + i, n - i);
    }
    audit_put(b, "\"", 1);
}

/* ---- macs ------------------------------------------------------------------------------------------------------- */

wk_status audit_mac_open(struct audit_mac *m, const void *key, size_t len, const struct wk_err *err)
{
    static const unsigned char purpose[] = "worker audit log: chain of lines";
    static char sha256[] = "SHA256"; /* OSSL_PARAM has no const */
    unsigned char chain[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    m->ctx = NULL;
    if (len < AUDIT_KEY_LEAST || len > AUDIT_KEY_MOST)
        return wk_fail(err, WK_INVALID, "expected an audit key of %d to %d bytes, got %zu", AUDIT_KEY_LEAST,
                       AUDIT_KEY_MOST, len);
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    const OSSL_PARAM parameters[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
                                      OSSL_PARAM_construct_end() };
    if (hmac) m->ctx = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);
    const bool ready = m->ctx && HMAC(EVP_sha256(), key, (int)len, purpose, sizeof purpose - 1, chain, &n) &&
                       EVP_MAC_init(m->ctx, chain, n, parameters);
    OPENSSL_cleanse(chain, sizeof chain);
    if (ready) return WK_OK;
    audit_mac_close(m);
    return wk_fail(err, WK_INTERNAL, "libcrypto has no HMAC-SHA256 for the audit log");
}

void audit_mac_close(struct audit_mac *m)
{
    EVP_MAC_CTX_free(m->ctx);
    m->ctx = NULL;
}

bool audit_mac_of(struct audit_mac *m, const void *bytes, size_t n, char hex[AUDIT_MAC + 1])
{
    unsigned char mac[AUDIT_MAC / 2];
    size_t len = 0;
    hex[0] = '\0';
    if (!EVP_MAC_init(m->ctx, NULL, 0, NULL) || !EVP_MAC_update(m->ctx, bytes, n) ||
        !EVP_MAC_final(m->ctx, mac, &len, sizeof mac) || len != sizeof mac)
        return false;
    hex_write(mac, sizeof mac, hex);
    return true;
}

static bool same_mac(const char a[AUDIT_MAC + 1], const char b[AUDIT_MAC + 1])
{
    return CRYPTO_memcmp(a, b, AUDIT_MAC) == 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

#define SEQ_BEGIN "{\"seq\":"
#define TIME_BEGIN ",\"time\":\""
#define KIND_BEGIN "\",\"kind\":\""
#define PREV_BEGIN ",\"prev\":\""
#define MAC_BEGIN "\",\"mac\":\""
enum { TIME_LEN = 27 };
_Static_assert(sizeof PREV_BEGIN - 1 + AUDIT_MAC + sizeof MAC_BEGIN - 1 + AUDIT_MAC + 2 == AUDIT_TAIL, "of a line");

bool audit_line_make(struct audit_mac *m, uint64_t seq, const char prev[AUDIT_MAC + 1], const struct audit_bytes *body,
                     struct audit_bytes *line, char mac[AUDIT_MAC + 1])
{
    struct timespec now;
    struct tm tm;
    char seconds[32];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!gmtime_r(&now.tv_sec, &tm) || !strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &tm)) return false;
    line->len = 0;
    line->failed = body->failed;
    audit_print(line, SEQ_BEGIN "%" PRIu64 TIME_BEGIN "%s.%06ldZ\",", seq, seconds, now.tv_nsec / 1000);
    audit_put(line, body->at, body->len);
    audit_print(line, PREV_BEGIN "%s\"", prev);
    if (line->failed || !audit_mac_of(m, line->at, line->len, mac)) return false;
    audit_print(line, ",\"mac\":\"%s\"}\n", mac);
    return !line->failed;
}

/* Takes a fixed text at *at. */
static bool skip(const char **at, const char *end, const char *text)
{
    const size_t n = strlen(text);
    if ((size_t)(end - *at) < n || memcmp(*at, text, n) != 0) return false;
    *at += n;
    return true;
}

static bool read_number(const char **at, const char *end, uint64_t *out)
{
    const char *begin = *at;
    *out = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        const uint64_t digit = (uint64_t)(**at - '0');
        if (*out > (UINT64_MAX - digit) / 10) return false;
        *out = *out * 10 + digit;
    }
    return *at > begin;
}

static bool read_mac(const char **at, const char *end, char out[AUDIT_MAC + 1])
{
    if (end - *at < AUDIT_MAC) return false;
    for (int i = 0; i < AUDIT_MAC; i++)
        if (!strchr("0123456789abcdef", (*at)[i]) || !(*at)[i]) return false;
    memcpy(out, *at, AUDIT_MAC);
    out[AUDIT_MAC] = '\0';
    *at += AUDIT_MAC;
    return true;
}

bool audit_line_read(struct audit_mac *m, const char *bytes, size_t n, struct audit_line *out)
{
    const char *at = bytes, *end = bytes + n;
    char right[AUDIT_MAC + 1];
    if (n < AUDIT_TAIL || !skip(&at, end, SEQ_BEGIN) || !read_number(&at, end, &out->seq) ||
        !skip(&at, end, TIME_BEGIN) || end - at < TIME_LEN)
        return false;
    at += TIME_LEN;
    if (!skip(&at, end, KIND_BEGIN)) return false;
    const char *quote = memchr(at, '"', (size_t)(end - at));
    if (!quote || (size_t)(quote - at) >= sizeof out->kind) return false;
    memcpy(out->kind, at, (size_t)(quote - at));
    out->kind[quote - at] = '\0';
    if (quote > end - AUDIT_TAIL) return false;
    at = end - AUDIT_TAIL;
    if (!skip(&at, end, PREV_BEGIN) || !read_mac(&at, end, out->prev) || !skip(&at, end, MAC_BEGIN)) return false;
    const size_t covered = (size_t)(at - bytes) - (sizeof MAC_BEGIN - 2); /* with the quote that ends prev */
    return read_mac(&at, end, out->mac) && skip(&at, end, "\"}") && audit_mac_of(m, bytes, covered, right) &&
           same_mac(right, out->mac);
}

uint64_t audit_line_number(const char *bytes, size_t n, const char *name)
{
    char text[32];
    uint64_t number;
    (void)snprintf(text, sizeof text, ",\"%s\":", name);
    const char *at = memmem(bytes, n, text, strlen(text)), *end = bytes + n;
    if (!at) return 0;
    at += strlen(text);
    return read_number(&at, end, &number) ? number : 0;
}

/* ---- FILE.head -------------------------------------------------------------------------------------------------- */

#define HEAD_BEGIN "{\"head\":"
#define HEAD_MAC ",\"mac\":\""
#define HEAD_TAG "\",\"tag\":\""

bool audit_head_make(struct audit_mac *m, uint64_t seq, const char mac[AUDIT_MAC + 1], char out[AUDIT_HEAD_BYTES + 1])
{
    char tag[AUDIT_MAC + 1];
    const int n = snprintf(out, AUDIT_HEAD_BYTES + 1, HEAD_BEGIN "%24" PRIu64 HEAD_MAC "%s", seq, mac);
    if (!audit_mac_of(m, out, (size_t)n, tag)) return false;
    return snprintf(out + n, AUDIT_HEAD_BYTES + 1 - (size_t)n, HEAD_TAG "%s\"}\n", tag) == AUDIT_HEAD_BYTES - n;
}

bool audit_head_read(struct audit_mac *m, const char *bytes, size_t n, uint64_t *seq, char mac[AUDIT_MAC + 1])
{
    const char *at = bytes, *end = bytes + n;
    char tag[AUDIT_MAC + 1], right[AUDIT_MAC + 1];
    if (!skip(&at, end, HEAD_BEGIN)) return false;
    while (at < end && *at == ' ') at++;
    if (!read_number(&at, end, seq) || !skip(&at, end, HEAD_MAC) || !read_mac(&at, end, mac) ||
        !audit_mac_of(m, bytes, (size_t)(at - bytes), right))
        return false;
    return skip(&at, end, HEAD_TAG) && read_mac(&at, end, tag) && skip(&at, end, "\"}\n") && at == end &&
           same_mac(tag, right);
}

size_t audit_signed_text(uint64_t seq, const char prev[AUDIT_MAC + 1], char out[160])
{
    return (size_t)snprintf(out, 160, "worker audit checkpoint\n%" PRIu64 "\n%s\n", seq, prev);
}
