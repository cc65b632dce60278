/* hub.c: see hub.h. Everything that comes back is text from outside, the hub's own documents, too. */
#include "hub.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>

#include "gate/download.h"

/* The one name of a host in this project: where models are when HF_ENDPOINT says nothing. */
static const char hub_address[] = "https://huggingface.co";

enum {
    SILENCE_MS = 60000,
    MOST_REDIRECTS = 8,
    MOST_PAGES = 64,
    MOST_FILES = 100000,
    MOST_DOCUMENT = 64 << 20,
    MOST_DRAINED = 64 << 10, /* bytes of an answer that nobody needs; a longer one costs a new connection */
    MOST_TOKEN = 4096,
    URL_BYTES = FETCH_MOST_URL + 1,
    HEADERS = 4
};

struct hub {
    struct download *download;
    bool (*stop)(void);                  /* NULL: nothing stops it */
    char endpoint[1024];                 /* without a / at its end */
    char authorization[MOST_TOKEN + 32]; /* "": no token */
    char ca_file[4096];                  /* "": the system's */
};

/* ---- addresses ----------------------------------------------------------------------------------------- */

/* Length of scheme, host and port. */
static size_t origin(const char *url)
{
    const char *host = strstr(url, "://");
    return host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;
}

static bool same_origin(const char *a, const char *b)
{
    const size_t n = origin(a);
    return n && n == origin(b) && strncasecmp(a, b, n) == 0;
}

static bool is_https(const char *url) { return strncasecmp(url, "https://", 8) == 0; }

/* Where a Location leads from a URL. False: too long. */
static bool locate(const char *url, const char *location, char out[URL_BYTES])
{
    const size_t host = origin(url), n = strcspn(location, "#");
    size_t path = host + strcspn(url + host, "?#");
    int made;
    while (path > host && url[path - 1] != '/') path--;
    if (strncasecmp(location, "http://", 7) == 0 || is_https(location))
        made = snprintf(out, URL_BYTES, "%.*s", (int)n, location);
    else if (strncmp(location, "//", 2) == 0)
        made = snprintf(out, URL_BYTES, "%s%.*s", is_https(url) ? "https:" : "http:", (int)n, location);
    else if (location[0] == '/')
        made = snprintf(out, URL_BYTES, "%.*s%.*s", (int)host, url, (int)n, location);
    else
        made = snprintf(out, URL_BYTES, "%.*s%s%.*s", (int)path, url, path == host ? "/" : "", (int)n, location);
    return n > 0 && made > 0 && made < URL_BYTES;
}

/* A file's path as a part of an address. */
static bool escape(const char *path, char *out, size_t cap)
{
    static const char digits[] = "0123456789ABCDEF";
    for (; *path; path++) {
        const unsigned char c = (unsigned char)*path;
        const bool plain = isalnum(c) || strchr("-._~/", c);
        if (cap < 4) return false;
        if (plain) {
            *out++ = (char)c;
            cap--;
        } else {
            *out++ = '%';
            *out++ = digits[c >> 4];
            *out++ = digits[c & 15];
            cap -= 3;
        }
    }
    *out = '\0';
    return true;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static wk_status take_endpoint(struct hub *h, const char *given, const struct wk_err *err)
{
    const char *endpoint = given && given[0] ? given : hub_address;
    const int n = snprintf(h->endpoint, sizeof h->endpoint, "%s", endpoint);
    const size_t host = origin(endpoint), scheme = is_https(endpoint) ? 8 : 7;
    if (n <= 0 || (size_t)n >= sizeof h->endpoint || host <= scheme || strpbrk(endpoint, "?#@ ") ||
        (!is_https(endpoint) && strncasecmp(endpoint, "http://", 7) != 0))
        return wk_fail(err, WK_INVALID, "HF_ENDPOINT: expected an address such as %s, got \"%.80s\"", hub_address,
                       endpoint);
    for (size_t end = (size_t)n; end > host && h->endpoint[end - 1] == '/';) h->endpoint[--end] = '\0';
    return WK_OK;
}

static wk_status take_token(struct hub *h, const char *token, const struct wk_err *err)
{
    if (!token || !token[0]) return WK_OK;
    bool good = strlen(token) < MOST_TOKEN;
    for (const char *c = token; *c; c++) good = good && *c > 0x20 && *c < 0x7f; /* one word of a header */
    if (!good)
        return wk_fail(err, WK_INVALID, "HF_TOKEN: expected a token of less than %d characters without spaces",
                       MOST_TOKEN);
    (void)snprintf(h->authorization, sizeof h->authorization, "Authorization: Bearer %s", token);
    return WK_OK;
}

static bool stopped(void *user) { return ((const struct hub *)user)->stop(); }

wk_status hub_open(const struct hub_options *o, struct hub **out, const struct wk_err *err)
{
    *out = NULL;
    struct hub *h = calloc(1, sizeof *h);
    if (!h) return wk_fail(err, WK_NO_MEMORY, "no memory for the connection to the hub");
    wk_status status = take_endpoint(h, o->endpoint, err);
    if (!status) status = take_token(h, o->token, err);
    if (!status && o->ca_file && (size_t)snprintf(h->ca_file, sizeof h->ca_file, "%s", o->ca_file) >= sizeof h->ca_file)
        status = wk_fail(err, WK_INVALID, "the path of the certificates is too long");
    if (!status) status = download_open(NULL, &h->download, err);
    h->stop = o->stop;
    if (!status && h->stop) download_watch(h->download, stopped, h);
    if (status)
        hub_close(h);
    else
        *out = h;
    return status;
}

void hub_close(struct hub *h)
{
    if (!h) return;
    download_close(h->download);
    OPENSSL_cleanse(h->authorization, sizeof h->authorization);
    free(h);
}

const char *hub_endpoint(const struct hub *h) { return h->endpoint; }

/* ---- requests ------------------------------------------------------------------------------------------ */

struct request {
    const struct hub_ref *ref;
    const char *headers[HEADERS];
    size_t n;
};

static uint64_t number(const char *header, const char *name)
{
    char text[32], *end;
    if (!download_header(header, name, text, sizeof text) || !isdigit((unsigned char)text[0])) return HUB_UNKNOWN;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    return errno || *end ? HUB_UNKNOWN : n;
}

/* A SHA-256 as an ETag: 64 digits in quotes. */
static void read_sha256(const char *header, const char *name, char out[HUB_SHA256])
{
    char text[HUB_ETAG];
    if (!download_header(header, name, text, sizeof text)) return;
    const char *at = text + (strncmp(text, "W/", 2) == 0 ? 2 : 0);
    at += *at == '"';
    if (strspn(at, "0123456789abcdefABCDEF") != 64 || (at[64] && strcmp(at + 64, "\"") != 0)) return;
    for (int i = 0; i < 64; i++) out[i] = (char)tolower((unsigned char)at[i]);
    out[64] = '\0';
}

/* What the hub itself says of a file: before a redirect, or with the bytes. */
static void read_links(const char *header, struct hub_answer *a)
{
    const uint64_t bytes = number(header, "X-Linked-Size");
    if (bytes != HUB_UNKNOWN) a->linked_bytes = bytes;
    read_sha256(header, "X-Linked-ETag", a->sha256);
    if (!a->sha256[0]) read_sha256(header, "ETag", a->sha256);
}

static void read_last(const char *header, struct hub_answer *a)
{
    char text[128];
    unsigned long long first, last, total;
    a->length = number(header, "Content-Length");
    a->range_first = a->range_total = HUB_UNKNOWN;
    if (!download_header(header, "ETag", a->etag, sizeof a->etag) || a->etag[0] != '"') a->etag[0] = '\0';
    if (!download_header(header, "Content-Range", text, sizeof text)) return;
    const int n = sscanf(text, "bytes %20llu-%20llu/%20llu", &first, &last, &total);
    if (n >= 2) a->range_first = first;
    if (n == 3) a->range_total = total;
}

/* Reads what is left of an answer that nobody needs, so that the connection can be used again. */
static void drain(struct hub *h)
{
    const char *bytes;
    size_t n = 1;
    for (size_t read = 0; n && read < MOST_DRAINED; read += n)
        if (download_next(h->download, &bytes, &n, NULL)) return;
}

/* Texts for answers that are none. hub: it is the hub's own host that says so. */
static wk_status refuse(const struct hub *h, const struct hub_ref *ref, const char *url, uint32_t status, bool hub,
                        const struct wk_err *err)
{
    const int label = (int)strcspn(url, "?#");
    const bool token = h->authorization[0];
    if (status == 401 && hub)
        return wk_fail(err, WK_INVALID,
                       token ? "hf:%s/%s: the hub answers 401: there is no such repository, or the "
                               "token in HF_TOKEN is not valid"
                             : "hf:%s/%s: the hub answers 401: there is no such repository, or it is "
                               "not public: put a token into HF_TOKEN",
                       ref->org, ref->name);
    if (status == 403 && hub)
        return wk_fail(err, WK_INVALID,
                       "hf:%s/%s: the hub answers 403: %s may not read it: accept its terms at %s/%s/%s, or use "
                       "another token",
                       ref->org, ref->name, token ? "the owner of the token in HF_TOKEN" : "who sends no HF_TOKEN",
                       h->endpoint, ref->org, ref->name);
    if (status == 404 && hub)
        return wk_fail(err, WK_INVALID, "hf:%s/%s: the hub answers 404: there is no %.*s", ref->org, ref->name, label,
                       url);
    const bool again = status == 408 || status == 425 || status == 429 || status >= 500 || (status == 403 && !hub);
    return wk_fail(err, again ? WK_IO : WK_INVALID, "%.*s: answers %u%s", label < 300 ? label : 300, url, status,
                   status == 429 ? ": too many requests, try later or with a token in HF_TOKEN" : "");
}

static wk_status send(struct hub *h, const struct request *r, const char *url, uint32_t *status, const char **header,
                      const struct wk_err *err)
{
    const char *headers[HEADERS + 1];
    size_t n = r->n;
    memcpy(headers, r->headers, n * sizeof *headers);
    if (h->authorization[0] && same_origin(url, h->endpoint)) headers[n++] = h->authorization;
    const struct fetch_request request = { .method = "GET",
                                           .url = url,
                                           .headers = headers,
                                           .n_headers = n,
                                           .ca_file = h->ca_file[0] ? h->ca_file : NULL,
                                           .timeout_ms = SILENCE_MS,
                                           .https_only = is_https(h->endpoint) };
    return download_begin(h->download, &request, status, header, err);
}

/* Follows redirects; the body of the last answer is left to be read. *last: its header. */
static wk_status follow(struct hub *h, const struct request *r, const char *first, struct hub_answer *a,
                        const char **last, const struct wk_err *err)
{
    char url[URL_BYTES], location[URL_BYTES], next[URL_BYTES];
    *a = (struct hub_answer){ .linked_bytes = HUB_UNKNOWN };
    (void)snprintf(url, sizeof url, "%s", first);
    for (int i = 0; i <= MOST_REDIRECTS; i++) {
        const bool hub = same_origin(url, h->endpoint);
        const char *header;
        wk_status status = send(h, r, url, &a->status, &header, err);
        if (status) return status;
        if (hub) read_links(header, a);
        *last = header;
        if (a->status < 300 || a->status > 399 || a->status == 304) {
            read_last(header, a);
            if (a->status == 200 || a->status == 206 || a->status == 416) return WK_OK;
            const uint64_t later = number(header, "Retry-After");
            a->retry_after = later < 86400 ? (uint32_t)later : 0;
            drain(h);
            return refuse(h, r->ref, url, a->status, hub, err);
        }
        if (!download_header(header, "Location", location, sizeof location) || !locate(url, location, next))
            return wk_fail(err, WK_INVALID, "%.*s: answers %u and does not say where to go", (int)strcspn(url, "?#"),
                           url, a->status);
        if (is_https(url) && !is_https(next))
            return wk_fail(err, WK_INVALID, "%.*s: leads from https to an address without it, which is not followed",
                           (int)strcspn(url, "?#"), url);
        drain(h);
        memcpy(url, next, sizeof url);
    }
    return wk_fail(err, WK_INVALID, "%.*s: leads to more than %d other addresses", (int)strcspn(first, "?#"), first,
                   MOST_REDIRECTS);
}

/* ---- what a repository holds --------------------------------------------------------------------------- */

/* A document of the hub's interface; *next: the address of its next page, "": there is none. */
static wk_status get_document(struct hub *h, const struct hub_ref *ref, const char *url, json_t **out,
                              char next[URL_BYTES], uint32_t *code, const struct wk_err *err)
{
    const struct request r = { .ref = ref };
    struct hub_answer a;
    const char *header, *bytes;
    char *text = NULL, link[URL_BYTES];
    size_t n = 1, len = 0, cap = 0;
    *out = NULL;
    next[0] = '\0';
    wk_status status = follow(h, &r, url, &a, &header, err);
    *code = a.status;
    if (status) return status;
    if (a.status != 200) return wk_fail(err, WK_INVALID, "%.*s: answers %u", (int)strcspn(url, "?#"), url, a.status);
    if (download_header(header, "Link", link, sizeof link)) {
        const char *end = strchr(link, '>');
        if (link[0] == '<' && end && strstr(end, "rel=\"next\"")) {
            link[end - link] = '\0';
            if (!locate(url, link + 1, next)) next[0] = '\0';
        }
    }
    while (!(status = download_next(h->download, &bytes, &n, err)) && n) {
        if (n > MOST_DOCUMENT - len) {
            status = wk_fail(err, WK_INVALID, "%.*s: a document of more than %d bytes", (int)strcspn(url, "?#"), url,
                             MOST_DOCUMENT);
            break;
        }
        if (n > cap - len) {
            cap = 2 * (len + n);
            char *grown = realloc(text, cap);
            if (!grown) {
                status = wk_fail(err, WK_NO_MEMORY, "no memory for what the hub says");
                break;
            }
            text = grown;
        }
        memcpy(text + len, bytes, n);
        len += n;
    }
    if (!status && !(*out = json_loadb(text ? text : "", len, 0, NULL)))
        status = wk_fail(err, WK_INVALID, "%.*s: answers what is no JSON", (int)strcspn(url, "?#"), url);
    free(text);
    return status;
}

/* One file of either document; others (folders) are passed over. */
static wk_status add_file(struct hub_listing *l, const json_t *entry, const char *path_key, const char *sha_key,
                          const struct wk_err *err)
{
    const json_t *lfs = json_object_get(entry, "lfs"), *size = json_object_get(lfs, "size");
    const char *path = json_string_value(json_object_get(entry, path_key)),
               *type = json_string_value(json_object_get(entry, "type")),
               *sha = json_string_value(json_object_get(lfs, sha_key));
    if (!json_is_integer(size)) size = json_object_get(entry, "size");
    if (!path || (type && strcmp(type, "file") != 0)) return WK_OK;
    if (l->n >= MOST_FILES) return wk_fail(err, WK_INVALID, "a repository of more than %d files", MOST_FILES);
    if (!(l->n & (l->n - 1))) {
        struct hub_file *more = realloc(l->files, (l->n ? 2 * l->n : 1) * sizeof *more);
        if (!more) return wk_fail(err, WK_NO_MEMORY, "no memory for the list of files");
        l->files = more;
    }
    struct hub_file *f = &l->files[l->n];
    *f = (struct hub_file){ .path = strdup(path), .bytes = HUB_UNKNOWN };
    if (!f->path) return wk_fail(err, WK_NO_MEMORY, "no memory for the list of files");
    l->n++;
    if (json_is_integer(size) && json_integer_value(size) >= 0) f->bytes = (uint64_t)json_integer_value(size);
    if (sha && strncmp(sha, "sha256:", 7) == 0) sha += 7;
    if (sha && strlen(sha) == 64 && strspn(sha, "0123456789abcdef") == 64)
        (void)snprintf(f->sha256, sizeof f->sha256, "%s", sha);
    return WK_OK;
}

static wk_status add_files(struct hub_listing *l, const json_t *list, const char *path_key, const char *sha_key,
                           const struct wk_err *err)
{
    wk_status status = json_is_array(list) ? WK_OK : wk_fail(err, WK_INVALID, "the hub's list of files is none");
    for (size_t i = 0; !status && i < json_array_size(list); i++)
        status = add_file(l, json_array_get(list, i), path_key, sha_key, err);
    return status;
}

/* By the repository's tree, page by page. */
static wk_status list_tree(struct hub *h, const struct hub_ref *ref, struct hub_listing *out, uint32_t *code,
                           const struct wk_err *err)
{
    char url[URL_BYTES], next[URL_BYTES];
    wk_status status = WK_OK;
    (void)snprintf(url, sizeof url, "%s/api/models/%s/%s/tree/main?recursive=true", h->endpoint, ref->org, ref->name);
    for (int page = 0; !status; page++) {
        json_t *document;
        if (page == MOST_PAGES) return wk_fail(err, WK_INVALID, "a repository of more than %d pages", MOST_PAGES);
        status = get_document(h, ref, url, &document, next, code, err);
        if (!status) status = add_files(out, document, "path", "oid", err);
        json_decref(document);
        if (!next[0]) break;
        memcpy(url, next, sizeof url);
    }
    return status;
}

/* A mirror may have this one alone. It says names and no more. */
static wk_status list_model(struct hub *h, const struct hub_ref *ref, struct hub_listing *out, const struct wk_err *err)
{
    char url[URL_BYTES], next[URL_BYTES];
    json_t *document;
    uint32_t code;
    (void)snprintf(url, sizeof url, "%s/api/models/%s/%s", h->endpoint, ref->org, ref->name);
    wk_status status = get_document(h, ref, url, &document, next, &code, err);
    if (!status) status = add_files(out, json_object_get(document, "siblings"), "rfilename", "sha256", err);
    json_decref(document);
    return status;
}

wk_status hub_list(struct hub *h, const struct hub_ref *ref, struct hub_listing *out, const struct wk_err *err)
{
    uint32_t code = 0;
    *out = (struct hub_listing){ 0 };
    wk_status status = list_tree(h, ref, out, &code, err);
    if (!status || code != 404) return status;
    hub_listing_free(out);
    return list_model(h, ref, out, err);
}

void hub_listing_free(struct hub_listing *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->files[i].path);
    free(l->files);
    *l = (struct hub_listing){ 0 };
}

/* ---- a file's bytes ------------------------------------------------------------------------------------ */

wk_status hub_get(struct hub *h, const struct hub_ref *ref, const char *path, uint64_t from, const char *if_range,
                  struct hub_answer *out, const struct wk_err *err)
{
    char url[URL_BYTES], escaped[3 * REF_FILE + 4], range[64], condition[HUB_ETAG + 16];
    struct request r = { .ref = ref };
    const char *header;
    if (!escape(path, escaped, sizeof escaped) ||
        snprintf(url, sizeof url, "%s/%s/%s/resolve/main/%s", h->endpoint, ref->org, ref->name, escaped) >= URL_BYTES)
        return wk_fail(err, WK_INVALID, "%.80s...: the name of the file is too long", path);
    if (from) {
        (void)snprintf(range, sizeof range, "Range: bytes=%llu-", (unsigned long long)from);
        r.headers[r.n++] = range;
    }
    if (from && if_range[0]) {
        (void)snprintf(condition, sizeof condition, "If-Range: %s", if_range);
        r.headers[r.n++] = condition;
    }
    return follow(h, &r, url, out, &header, err);
}

wk_status hub_read(struct hub *h, const char **bytes, size_t *n, const struct wk_err *err)
{
    return download_next(h->download, bytes, n, err);
}
