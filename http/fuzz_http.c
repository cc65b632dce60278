/* fuzz_http.c: libFuzzer target over the two functions of http/ that see foreign bytes alone: the guard (judged again
 * on every prefix that libFuzzer thinks of, and against properties of what it passes) and the JSON escaper (whose
 * output must have no byte that a JSON string may not have). */
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

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
    (void)guard_loopback(g.host);
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
    check_text((const char *)data, n);
    return 0;
}
