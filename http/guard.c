/* guard.c: one pass over the lines of a head. See guard.h. */
#include "guard.h"

#include <string.h>
#include <strings.h>

enum { METHOD_MAX = 16, LENGTH_DIGITS = 10 };

static enum guard_verdict refuse(struct guard *g, int status, const char *reason)
{
    g->status = status;
    g->reason = reason;
    return GUARD_REFUSE;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_token(char c) { return is_digit(c) || is_letter(c) || (c && strchr("!#$%&'*+-.^_`|~", c)); }
static bool is_target(char c) { return is_digit(c) || is_letter(c) || (c && strchr("-._~!$&'()*+,;=:@/?%[]", c)); }

static int hex_value(char c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool same(struct guard_span a, const char *text) { return a.n == strlen(text) && !strncasecmp(a.at, text, a.n); }
static bool same_span(struct guard_span a, struct guard_span b) { return a.n == b.n && !strncasecmp(a.at, b.at, a.n); }
static bool begins(struct guard_span a, const char *text)
{
    return a.n >= strlen(text) && !strncasecmp(a.at, text, strlen(text));
}

/* ---- the request line ---------------------------------------------------------------------------------- */

/* What of the first line is there is judged even before it ends, so that what is no HTTP at all need not wait for the
 * deadline. */
static enum guard_verdict check_beginning(const char *bytes, size_t n, struct guard *g)
{
    size_t i = 0;
    while (i < n && is_token(bytes[i])) i++;
    if (i > METHOD_MAX) return refuse(g, 400, "the method is too long");
    if (i == n) return GUARD_MORE;
    if (!i || bytes[i] != ' ') return refuse(g, 400, "this is no HTTP/1.1 request");
    g->method = (struct guard_span){ bytes, i };
    if (++i == n) return GUARD_MORE;
    if (bytes[i] != '/') return refuse(g, 400, "the request target must begin with /");
    const size_t from = i;
    while (i < n && is_target(bytes[i])) i++;
    if (i - from > GUARD_TARGET_MAX) return refuse(g, 414, "the request target is longer than 2048 bytes");
    if (i == n) return GUARD_MORE;
    if (bytes[i] == '\r' || bytes[i] == '\n')
        return refuse(g, 400, "the request line has no version: HTTP/1.1 and HTTP/1.0 are served");
    if (bytes[i] != ' ') return refuse(g, 400, "the request target has a character that must be percent-encoded");
    g->target = (struct guard_span){ bytes + from, i - from };
    const size_t version = i + 1, left = n - version;
    static const char expected[] = "HTTP/1.1\r\n";
    for (size_t k = 0; k < sizeof expected - 1; k++) {
        if (k == left) return GUARD_MORE;
        const char c = bytes[version + k];
        if (c == expected[k]) continue;
        if (k != 7 || c != '0') return refuse(g, 400, "HTTP/1.1 and HTTP/1.0 are served, and lines end in CR LF");
        g->old = true;
    }
    g->head = version + sizeof expected - 1;
    return GUARD_PASS;
}

static enum guard_verdict check_target(struct guard *g)
{
    static const char *const known[] = { "GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "PATCH" };
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++)
        found = g->method.n == strlen(known[i]) && !memcmp(g->method.at, known[i], g->method.n);
    if (!found) return refuse(g, 405, "this method is not served");
    for (size_t i = 0; i < g->target.n; i++) {
        if (g->target.at[i] != '%') continue;
        const int high = g->target.n - i > 2 ? hex_value(g->target.at[i + 1]) : -1,
                  low = g->target.n - i > 2 ? hex_value(g->target.at[i + 2]) : -1;
        if (high < 0 || low < 0)
            return refuse(g, 400, "a % in the request target is not followed by two hexadecimal digits");
        if (!high && !low) return refuse(g, 400, "the request target has a %00");
    }
    return GUARD_PASS;
}

/* ---- headers ------------------------------------------------------------------------------------------- */

/* Headers that are lists, or that proxies add to, may come more than once. */
static bool may_repeat(struct guard_span name)
{
    static const char *const lists[] = { "accept",     "accept-",      "cache-control", "connection", "cookie",
                                         "forwarded",  "via",          "x-forwarded-",  "pragma",     "te",
                                         "tracestate", "baggage",      "prefer",        "keep-alive", "warning",
                                         "if-match",   "if-none-match" };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const bool prefix = lists[i][strlen(lists[i]) - 1] == '-';
        if (prefix ? begins(name, lists[i]) : same(name, lists[i])) return true;
    }
    return false;
}

static enum guard_verdict check_length(struct guard_span value, struct guard *g)
{
    if (!value.n) return refuse(g, 400, "Content-Length is empty");
    for (size_t i = 0; i < value.n; i++)
        if (!is_digit(value.at[i])) return refuse(g, 400, "Content-Length is not a number of digits");
    if (value.n > LENGTH_DIGITS) return refuse(g, 413, "Content-Length is larger than any body that is taken");
    g->sized = true;
    for (size_t i = 0; i < value.n; i++) g->length = g->length * 10 + (uint64_t)(value.at[i] - '0');
    return GUARD_PASS;
}

static enum guard_verdict check_host(struct guard_span value, struct guard *g)
{
    if (!value.n || value.n > 255) return refuse(g, 400, "Host is empty or too long");
    for (size_t i = 0; i < value.n; i++)
        if (!is_digit(value.at[i]) && !is_letter(value.at[i]) && !strchr(".-_:[]", value.at[i]))
            return refuse(g, 400, "Host is not a name or address");
    g->host = value;
    return GUARD_PASS;
}

/* Is `option` an element of the list? */
static bool has_option(struct guard_span list, const char *option)
{
    while (list.n) {
        const char *comma = memchr(list.at, ',', list.n);
        struct guard_span one = { list.at, comma ? (size_t)(comma - list.at) : list.n };
        list.at += one.n + (comma != NULL);
        list.n -= one.n + (comma != NULL);
        while (one.n && one.at[0] == ' ') one.at++, one.n--;
        while (one.n && one.at[one.n - 1] == ' ') one.n--;
        if (same(one, option)) return true;
    }
    return false;
}

/* What only the whole says, gathered while headers are read. */
struct framing {
    struct guard_span coding; /* Transfer-Encoding */
    bool close;
};

static enum guard_verdict check_header(struct guard_span name, struct guard_span value, struct framing *f,
                                       struct guard *g)
{
    if (same(name, "content-length")) return check_length(value, g);
    if (same(name, "host")) return check_host(value, g);
    if (same(name, "transfer-encoding")) f->coding = value;
    if (same(name, "connection")) {
        f->close = f->close || has_option(value, "close");
        g->asks_keep = g->asks_keep || has_option(value, "keep-alive");
    }
    if (same(name, "sec-fetch-site")) g->cross_site = same(value, "cross-site");
    if (same(name, "origin")) g->origin = value;
    if (same(name, "expect")) {
        if (!same(value, "100-continue")) return refuse(g, 417, "Expect is served for 100-continue alone");
        g->expects = true;
    }
    return GUARD_PASS;
}

/* One line from `from` on, without its CR LF; the next begins at *next. */
static enum guard_verdict cut_line(const char *bytes, size_t n, size_t from, struct guard_span *line, size_t *next,
                                   struct guard *g)
{
    size_t i = from;
    while (i < n && ((unsigned char)bytes[i] >= 0x20 && bytes[i] != 0x7f)) i++;
    if (i == n) return GUARD_MORE;
    if (bytes[i] == '\n') return refuse(g, 400, "a line of the header ends without CR");
    if (bytes[i] != '\r') return refuse(g, 400, "a line of the header has a control character");
    if (i + 1 == n) return GUARD_MORE;
    if (bytes[i + 1] != '\n') return refuse(g, 400, "a line of the header has a CR that does not end it");
    *line = (struct guard_span){ bytes + from, i - from };
    *next = i + 2;
    return GUARD_PASS;
}

static enum guard_verdict split_line(struct guard_span line, struct guard_span *name, struct guard_span *value,
                                     struct guard *g)
{
    if (line.at[0] == ' ') return refuse(g, 400, "a header is folded over two lines");
    size_t i = 0;
    while (i < line.n && is_token(line.at[i])) i++;
    if (!i || i == line.n || line.at[i] != ':')
        return refuse(g, 400, "a header is not a name, a colon directly behind it, and a value");
    *name = (struct guard_span){ line.at, i };
    size_t from = i + 1, to = line.n;
    while (from < to && line.at[from] == ' ') from++;
    while (to > from && line.at[to - 1] == ' ') to--;
    *value = (struct guard_span){ line.at + from, to - from };
    return GUARD_PASS;
}

static enum guard_verdict check_framing(const struct framing *f, struct guard *g)
{
    const struct guard_span coding = f->coding;
    g->asks_keep = g->asks_keep && !f->close;
    if (coding.at && g->sized) return refuse(g, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (coding.at && g->old) return refuse(g, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (coding.at && !same(coding, "chunked"))
        return refuse(g, 400, "this Transfer-Encoding is not served: chunked is, and bodies with Content-Length");
    g->chunked = coding.at;
    if (!g->host.at && !g->old) return refuse(g, 400, "Host is missing");
    return GUARD_PASS;
}

static enum guard_verdict check_headers(const char *bytes, size_t n, struct guard *g)
{
    struct guard_span names[GUARD_HEADERS_MAX];
    struct framing framing = { 0 };
    size_t count = 0, at = g->head;
    for (;;) {
        struct guard_span line = { 0 }, name = { 0 }, value = { 0 };
        enum guard_verdict v = cut_line(bytes, n, at, &line, &at, g);
        if (v != GUARD_PASS) return v;
        if (!line.n) break;
        if (count == GUARD_HEADERS_MAX) return refuse(g, 431, "there are more than 63 headers");
        if ((v = split_line(line, &name, &value, g)) != GUARD_PASS) return v;
        for (size_t i = 0; i < count && !may_repeat(name); i++)
            if (same_span(names[i], name)) return refuse(g, 400, "a header that has one value came twice");
        names[count++] = name;
        if ((v = check_header(name, value, &framing, g)) != GUARD_PASS) return v;
    }
    g->head = at;
    return check_framing(&framing, g);
}

enum guard_verdict guard_check(const char *bytes, size_t n, struct guard *out)
{
    *out = (struct guard){ 0 };
    const size_t seen = n < GUARD_HEAD_MAX ? n : GUARD_HEAD_MAX;
    enum guard_verdict v = check_beginning(bytes, seen, out);
    if (v == GUARD_PASS) v = check_target(out);
    if (v == GUARD_PASS) v = check_headers(bytes, seen, out);
    if (v == GUARD_MORE && seen == GUARD_HEAD_MAX)
        return refuse(out, 431, "request line and headers are larger than 16 KiB");
    return v;
}

/* ---- a head that passed -------------------------------------------------------------------------------- */

size_t guard_cut(char *head, size_t n, struct guard_header out[GUARD_HEADERS_MAX])
{
    size_t count = 0;
    char *at = (char *)memchr(head, '\n', n) + 1;
    while (*at != '\r' && count < GUARD_HEADERS_MAX) {
        char *colon = strchr(at, ':'), *end = strchr(colon, '\r'), *value = colon + 1;
        char *const next = end + 2;
        while (*value == ' ') value++;
        while (end > value && end[-1] == ' ') end--;
        *colon = *end = '\0';
        out[count++] = (struct guard_header){ at, value };
        at = next;
    }
    return count;
}

struct guard_span guard_path(const char *bytes, size_t n)
{
    size_t i = 0, end = 0;
    while (i < n && (bytes[i] == ' ' || bytes[i] == '\r' || bytes[i] == '\n')) i++;
    for (end = i; end < n && bytes[end] != '\r' && bytes[end] != '\n';) end++;
    while (i < end && bytes[i] != ' ' && bytes[i] != '\t') i++;
    while (i < end && (bytes[i] == ' ' || bytes[i] == '\t')) i++;
    const struct guard_span target = { bytes + i, end - i };
    if (begins(target, "http://") || begins(target, "https://"))
        for (i += strlen("http://") + (target.at[4] != ':'); i < end && bytes[i] != '/';) i++;
    size_t length = 0;
    while (i + length < end && bytes[i + length] != ' ' && bytes[i + length] != '\t') length++;
    return (struct guard_span){ bytes + i, length };
}

/* ---- values -------------------------------------------------------------------------------------------- */

size_t guard_decode(const char *text, size_t n, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '%' && n - i > 2) {
            out[length++] = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        } else {
            out[length++] = text[i];
        }
    }
    out[length] = 0;
    return length;
}
