/* page.c: GET /: one self-contained page, which CMake joins from the parts in page/, and GET /openapi.json: both bytes
 * of this program.
 *
 * The page may run exactly the script and the style that it brings: the Content-Security-Policy names their SHA-256,
 * computed from the bytes themselves when first asked for, and allows connections to this server alone. Nothing is
 * fetched from anywhere else. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "serve.h"

__asm__(".pushsection .rodata.serve_page, \"a\", @progbits\n"
        ".global serve_page_begin\nserve_page_begin:\n.incbin \"" SERVE_PAGE
        "\"\n.global serve_page_end\nserve_page_end:\n"
        ".global serve_openapi_begin\nserve_openapi_begin:\n.incbin \"" SERVE_OPENAPI
        "\"\n.global serve_openapi_end\nserve_openapi_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern const char serve_page_begin[], serve_page_end[], serve_openapi_begin[], serve_openapi_end[];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char policy[512];

/* SHA-256 in base64 of what stands between the first `open` and the `close` behind it; "" if it is not there. */
static void hash_of(const char *open, const char *close, char out[45])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char hex[65];
    unsigned char bytes[33] = { 0 };
    const size_t n = (size_t)(serve_page_end - serve_page_begin);
    const char *from = memmem(serve_page_begin, n, open, strlen(open));
    out[0] = '\0';
    if (!from) return;
    from += strlen(open);
    const char *to = memmem(from, (size_t)(serve_page_end - from), close, strlen(close));
    if (!to || !sha256_hex(from, (size_t)(to - from), hex)) return;
    for (size_t i = 0; i < 32; i++) {
        unsigned v = 0;
        (void)sscanf(hex + 2 * i, "%2x", &v);
        bytes[i] = (unsigned char)v;
    }
    for (size_t i = 0, o = 0; i < 33; i += 3, o += 4) { /* 32 bytes: the last digit is padding */
        const unsigned v = (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];
        out[o] = digits[v >> 18];
        out[o + 1] = digits[v >> 12 & 63];
        out[o + 2] = digits[v >> 6 & 63];
        out[o + 3] = digits[v & 63];
    }
    out[43] = '=';
    out[44] = '\0';
}

static void make_policy(void)
{
    char script[45], style[45];
    hash_of("<script>", "</script>", script);
    hash_of("<style>", "</style>", style);
    (void)snprintf(policy, sizeof policy,
                   "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; img-src "
                   "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                   script, style);
}

static void page(void *user, struct http_request *r)
{
    (void)user;
    (void)pthread_once(&once, make_policy);
    http_extra(r, "Content-Security-Policy", policy);
    http_extra(r, "Referrer-Policy", "no-referrer");
    http_extra(r, "Cache-Control", "no-cache");
    http_answer(r, 200, "text/html; charset=utf-8", serve_page_begin, (size_t)(serve_page_end - serve_page_begin));
}

static void openapi(void *user, struct http_request *r)
{
    (void)user;
    http_answer(r, 200, "application/json", serve_openapi_begin, (size_t)(serve_openapi_end - serve_openapi_begin));
}

const struct http_route serve_page_routes[] = {
    { "GET", "/", page, false },
    { "GET", "/openapi.json", openapi, false },
};
const uint32_t serve_n_page_routes = sizeof serve_page_routes / sizeof *serve_page_routes;
