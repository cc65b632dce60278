/* gguf/cursor.h: the one way in which this room reads bytes of a file.
 *
 * Every read says how many bytes it wants and what they are; the bounds test has the form `n > limit - pos`, which
 * cannot overflow because pos <= limit always holds. The first failure sticks: later reads return nothing, so a caller
 * may read several fields and test once. Bytes are loaded before they are looked at (see gguf.c), so what was validated
 * cannot change afterwards. */
#ifndef CORE_GGUF_CURSOR_H
#define CORE_GGUF_CURSOR_H

#include <inttypes.h>
#include <string.h>

#include <worker/abi.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF numbers are copied as they lie in the file");

struct cursor {
    const uint8_t *base;
    uint64_t size;   /* of the file */
    uint64_t limit;  /* <= size: no read goes further */
    uint64_t pos;    /* <= limit */
    uint64_t loaded; /* bytes from the start that may be looked at */
    /* Makes bytes [0, end) loaded, or fails through cursor_fail. Not called when loaded == size. */
    wk_status (*load)(struct cursor *c, uint64_t end);
    int fd;           /* for load */
    const char *name; /* the file's, for messages */
    wk_status status; /* of the first failure */
    const struct wk_err *err;
};

/* Records the first failure: "name: byte at: text". Returns the status that sticks. */
WK_PRINTF(4, 5)
static inline wk_status cursor_fail(struct cursor *c, uint64_t at, wk_status status, const char *format, ...)
{
    if (c->status != WK_OK) return c->status;
    char text[640];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->status = status;
    return wk_fail(c->err, status, "%s: byte %" PRIu64 ": %s", c->name, at, text);
}

/* Bytes that the file still has. */
static inline uint64_t cursor_left(const struct cursor *c) { return c->size - c->pos; }

/* The next n bytes, or NULL after a failure. `what` completes "... needs n bytes". */
static inline const uint8_t *cursor_take(struct cursor *c, uint64_t n, const char *what)
{
    if (c->status != WK_OK) return NULL;
    if (n > c->limit - c->pos) {
        if (c->limit < c->size && n <= cursor_left(c))
            (void)cursor_fail(c, c->pos, WK_UNSUPPORTED,
                              "the metadata are larger than the %" PRIu64 " bytes that are supported", c->limit);
        else
            (void)cursor_fail(c, c->pos, WK_INVALID,
                              "%s needs %" PRIu64 " bytes, %" PRIu64
                              " are left: the file is truncated or damaged; download it again",
                              what, n, cursor_left(c));
        return NULL;
    }
    if (c->pos + n > c->loaded && c->load(c, c->pos + n) != WK_OK) return NULL;
    const uint8_t *p = c->base + c->pos;
    c->pos += n;
    return p;
}

static inline uint32_t cursor_u32(struct cursor *c, const char *what)
{
    uint32_t value = 0;
    const uint8_t *p = cursor_take(c, sizeof value, what);
    if (p) memcpy(&value, p, sizeof value);
    return value;
}

static inline uint64_t cursor_u64(struct cursor *c, const char *what)
{
    uint64_t value = 0;
    const uint8_t *p = cursor_take(c, sizeof value, what);
    if (p) memcpy(&value, p, sizeof value);
    return value;
}

#endif
