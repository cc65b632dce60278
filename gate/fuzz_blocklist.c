/* fuzz_blocklist.c: libFuzzer target: lines of phrases, a zero byte, and a text. The text given whole, byte by byte and
 * in halves finds the same phrase; what may be shown never shrinks and is never beyond the text; the steps are bounded.
 * That a phrase's own bytes are found in a text of nothing else shows that nothing is missed. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "blocklist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PHRASES = 32 };

static void require(bool promise)
{
    if (!promise) abort();
}

static struct blocklist_seen scan(struct blocklist *b, const uint8_t *text, size_t n, size_t piece)
{
    struct blocklist_scan *s;
    struct blocklist_seen last = { BLOCKLIST_NONE, 0 };
    require(blocklist_scan_begin(b, &s, NULL) == WK_OK);
    for (size_t at = 0; at < n;) {
        const size_t len = piece < n - at ? piece : n - at;
        const struct blocklist_seen now = blocklist_scan_feed(s, text + at, len);
        at += len;
        require(now.safe >= last.safe && now.safe <= at);
        require(last.phrase == BLOCKLIST_NONE || (now.phrase == last.phrase && now.safe == last.safe));
        last = now;
    }
    const struct blocklist_seen end = blocklist_scan_end(s);
    require(end.safe >= last.safe && end.safe <= n && (end.phrase != BLOCKLIST_NONE || end.safe == n));
    /* No code point of n bytes becomes more than 18 n symbols and a border for each. */
    require(blocklist_scan_steps(s) <= 2 * (36 * (uint64_t)n + 1));
    blocklist_scan_free(s);
    return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct blocklist_phrase phrases[PHRASES];
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    struct blocklist *b;
    size_t n = 0;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL, *at = data;
    if (!end) return 0;
    for (const uint8_t *line; at < end && n < PHRASES; at = line + 1) {
        line = memchr(at, '\n', (size_t)(end - at));
        if (!line) line = end;
        const bool anywhere = *at == '*';
        phrases[n++] =
            (struct blocklist_phrase){ (const char *)at + anywhere, (size_t)(line - at) - anywhere, anywhere };
    }
    if (blocklist_build(phrases, n, &b, &err)) {
        require(text[0] && !b);
        return 0;
    }
    const uint8_t *rest = end + 1;
    const size_t len = size - (size_t)(rest - data);
    const struct blocklist_seen whole = scan(b, rest, len, len), bytes = scan(b, rest, len, 1);
    require(whole.phrase == bytes.phrase && whole.safe == bytes.safe);
    const struct blocklist_seen halves = scan(b, rest, len, len / 2 + 1);
    require(whole.phrase == halves.phrase && whole.safe == halves.safe);
    for (size_t i = 0; i < n; i++)
        require(scan(b, (const uint8_t *)phrases[i].bytes, phrases[i].len, 3).phrase != BLOCKLIST_NONE);
    blocklist_free(b);
    return 0;
}
