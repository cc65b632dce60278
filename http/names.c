/* names.c: names in Host and Origin. See names.h. */
#include "names.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "http.h"

enum { NAME_MAX_BYTES = 253 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static struct guard_span span_of(const char *text) { return (struct guard_span){ text, strlen(text) }; }
static bool same(struct guard_span a, const char *text)
{
    return a.n == strlen(text) && strncasecmp(a.at, text, a.n) == 0;
}

/* ---- this machine's ------------------------------------------------------------------------------------ */

static uint32_t add(char *out[NAMES_OWN_MAX], uint32_t n, const char *name, size_t len)
{
    if (!len || n == NAMES_OWN_MAX) return n;
    for (uint32_t i = 0; i < n; i++)
        if (same((struct guard_span){ name, len }, out[i])) return n;
    out[n] = strndup(name, len);
    return out[n] ? n + 1 : n;
}

static bool stands_with(const struct hostent *line, char *const *names, uint32_t n)
{
    if (names_listed(span_of(line->h_name), (const char *const *)names, n)) return true;
    for (char **alias = line->h_aliases; *alias; alias++)
        if (names_listed(span_of(*alias), (const char *const *)names, n)) return true;
    return false;
}

uint32_t names_own(char *out[NAMES_OWN_MAX])
{
    char name[256] = "";
    if (gethostname(name, sizeof name - 1)) return 0;
    uint32_t n = add(out, 0, name, strlen(name));
    n = add(out, n, name, strcspn(name, "."));
    const uint32_t given = n;
    sethostent(1);
    for (const struct hostent *line; given && (line = gethostent());) {
        if (!stands_with(line, out, given)) continue;
        n = add(out, n, line->h_name, strlen(line->h_name));
        for (char **alias = line->h_aliases; *alias; alias++) n = add(out, n, *alias, strlen(*alias));
    }
    endhostent();
    return n;
}

/* ---- Host ---------------------------------------------------------------------------------------------- */

struct guard_span names_of_host(struct guard_span host)
{
    size_t n = host.n;
    while (n && is_digit(host.at[n - 1])) n--;
    return (struct guard_span){ host.at, n && host.at[n - 1] == ':' ? n - 1 : host.n };
}

bool names_address(struct guard_span name)
{
    char text[INET6_ADDRSTRLEN + 1];
    struct in6_addr address;
    const bool bracketed = name.n > 2 && name.at[0] == '[' && name.at[name.n - 1] == ']';
    const size_t n = bracketed ? name.n - 2 : name.n;
    if (!n || n >= sizeof text) return false;
    memcpy(text, name.at + bracketed, n);
    text[n] = '\0';
    return inet_pton(bracketed ? AF_INET6 : AF_INET, text, &address) == 1;
}

bool names_listed(struct guard_span name, const char *const *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i], "*") == 0 || same(name, list[i])) return true;
    return false;
}

/* ---- what can be allowed ------------------------------------------------------------------------------- */

/* Does it look like an address of version 4, as URLs have it: is the last part a number? */
static bool ends_in_number(struct guard_span name)
{
    size_t from = name.n;
    while (from && name.at[from - 1] != '.') from--;
    if (from == name.n) return false;
    for (size_t i = from; i < name.n; i++)
        if (!is_digit(name.at[i])) return false;
    return true;
}

/* As a browser writes the host of a URL. */
static const char *host_fault(struct guard_span name)
{
    if (!name.n || name.n > NAME_MAX_BYTES) return "its host is missing, or longer than 253 bytes";
    if (name.at[0] == '[') {
        char text[INET6_ADDRSTRLEN + 1] = "", canonical[INET6_ADDRSTRLEN];
        struct in6_addr address;
        if (names_address(name)) memcpy(text, name.at + 1, name.n - 2);
        if (!text[0] || inet_pton(AF_INET6, text, &address) != 1 ||
            !inet_ntop(AF_INET6, &address, canonical, sizeof canonical) || strcasecmp(text, canonical) != 0)
            return "its host is not an IPv6 address in brackets as browsers shorten it, like [::1]";
        return NULL;
    }
    for (size_t i = 0; i < name.n; i++) {
        const char c = name.at[i];
        if (c == '*') return "wildcards are not served, but * alone";
        if (!is_digit(c) && !is_letter(c) && !strchr(".-_", c))
            return "its host has a character that names have not; others than ASCII are written as xn--...";
    }
    if (name.at[0] == '.' || name.at[0] == '-') return "its host begins with a dot or a hyphen";
    if (ends_in_number(name) && !names_address(name)) return "its host is not an IPv4 address of four numbers";
    return NULL;
}

static const char *port_fault(const char *text, bool http, bool https)
{
    const size_t n = strlen(text);
    if (!n || n > 5 || strspn(text, "0123456789") != n || text[0] == '0' || atoi(text) > 65535)
        return "its port is not a number from 1 to 65535";
    if ((http && strcmp(text, "80") == 0) || (https && strcmp(text, "443") == 0))
        return "browsers leave out the scheme's own port: leave it out";
    return NULL;
}

static size_t scheme_length(const char *text)
{
    size_t n = 0;
    while (is_letter(text[n]) || (n && (is_digit(text[n]) || (text[n] && strchr("+-.", text[n]))))) n++;
    return n;
}

const char *http_origin_fault(const char *origin)
{
    if (strcmp(origin, "*") == 0 || strcmp(origin, "null") == 0) return NULL;
    const char *at = strstr(origin, "://");
    const size_t scheme = scheme_length(origin);
    if (!at || !scheme || origin + scheme != at) return "it begins with no scheme, like https://";
    at += 3;
    const size_t n = strcspn(at, "/?#@");
    if (at[n]) return "an origin has no path, query or user: it ends behind host and port, without a /";
    const char *bracket = at[0] == '[' ? strchr(at, ']') : NULL, *colon = strchr(bracket ? bracket : at, ':');
    const struct guard_span name = { at, colon ? (size_t)(colon - at) : n };
    const char *fault = host_fault(name);
    const struct guard_span of = { origin, scheme };
    return fault || !colon ? fault : port_fault(colon + 1, same(of, "http"), same(of, "https"));
}

const char *http_host_fault(const char *name)
{
    if (strcmp(name, "*") == 0) return NULL;
    const struct guard_span all = span_of(name), bare = names_of_host(all);
    if (bare.n != all.n && name[0] != '[') return "a name is given without a port";
    if (strchr(name, '/')) return "a name is given without a scheme and a path";
    return host_fault(all);
}
