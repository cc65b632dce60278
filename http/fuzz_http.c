/* fuzz_http.c: libFuzzer target over the functions of http/ that see foreign bytes alone: the guard (judged again
 * on every prefix that libFuzzer thinks of, and against properties of what it passes), the decoder of chunked bodies
 * (whole, and byte by byte, alike), names in Host and Origin, and the JSON escaper (whose output must have no byte that
 * a JSON string may not have). */
#include <stdlib.h>
#include <string.h>

#include "chunks.h"
#include "http.h"
#include "names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_chunks(const char *bytes, size_t n)
{
    struct chunks whole = { 0 }, single = { 0 };
    char *out = malloc(2 * n + 1), *other = out ? out + n : NULL;
    size_t used, made, u = 0, m = 0;
    if (!out) abort();
    const enum chunks_verdict v = chunks_decode(&whole, bytes, n, &used, out, n, &made);
    enum chunks_verdict w = CHUNKS_MORE;
    while (w == CHUNKS_MORE && u < n) {
        size_t used_now, made_now;
        w = chunks_decode(&single, bytes + u, 1, &used_now, other + m, 1, &made_now);
        u += used_now;
        m += made_now;
    }
    if (v == CHUNKS_FULL || v != w || used != u || made != m || memcmp(out, other, made) ||
        (v == CHUNKS_BAD) != !!whole.reason)
        abort();
    if (v == CHUNKS_DONE && (used < 5 || memcmp(bytes + used - 4, "\r\n\r\n", 4) || made + 5 > used)) abort();
    free(out);
}

static void check_names(const char *bytes, size_t n)
{
    char *text = malloc(n + 1);
    if (!text) abort();
    memcpy(text, bytes, n);
    text[n] = 0;
    if (!http_host_fault(text) && strchr(text, '/')) abort();
    if (!http_origin_fault(text) && strcmp(text, "*") != 0 && strcmp(text, "null") != 0 && !strstr(text, "://"))
        abort();
    const struct guard_span path = guard_path(bytes, n);
    if (path.at < bytes || path.n > n || path.at + path.n > bytes + n) abort();
    free(text);
}

static void check_guard(const char *bytes, size_t n)
{
    struct guard g, again;
    const enum guard_verdict v = guard_check(bytes, n, &g);
    if (v == GUARD_REFUSE && (g.status < 400 || g.status > 499 || !g.reason)) abort();
    if (v != GUARD_PASS) return;
    if (g.head > n || g.head > GUARD_HEAD_MAX || memcmp(bytes + g.head - 4, "\r\n\r\n", 4) || memchr(bytes, 0, g.head))
        abort();
    if (guard_check(bytes, g.head, &again) != GUARD_PASS || again.head != g.head) abort();
    if (guard_check(bytes, g.head - 1, &again) != GUARD_MORE) abort();
    char *target = malloc(g.target.n + 1);
    if (!target) abort();
    const size_t length = guard_decode(g.target.at, g.target.n, target);
    if (length > g.target.n || memchr(target, 0, length)) abort();
    free(target);
    (void)names_address(names_of_host(g.host));
    struct guard_header headers[GUARD_HEADERS_MAX];
    char *head = malloc(g.head + 1);
    if (!head) abort();
    memcpy(head, bytes, g.head);
    head[g.head] = 0;
    for (size_t i = guard_cut(head, g.head, headers); i--;)
        if (!headers[i].name[0] || strpbrk(headers[i].name, ": \r\n") || strpbrk(headers[i].value, "\r\n")) abort();
    free(head);
    if (g.chunked && g.sized) abort();
    if (g.chunked) check_chunks(bytes + g.head, n - g.head);
}

static void check_text(const char *bytes, size_t n)
{
    struct http_text t = { 0 };
    http_text_json(&t, bytes, n);
    if (t.failed || t.n < 2 || t.data[0] != '"' || t.data[t.n - 1] != '"' || t.data[t.n]) abort();
    for (size_t i = 1; i < t.n - 1; i++) {
        if ((unsigned char)t.data[i] < 0x20 || t.data[i] == '"') abort();
        if (t.data[i] == '\\') i += t.data[i + 1] == 'u' ? 5 : 1;
    }
    http_text_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_guard((const char *)data, n);
    check_chunks((const char *)data, n);
    check_names((const char *)data, n);
    check_text((const char *)data, n);
    return 0;
}
