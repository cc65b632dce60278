/* frames.c: see frames.h. */
#include "frames.h"

#include <stdbool.h>
#include <string.h>

static const uint8_t magic[4] = { 'W', 'K', 'V', 'F' };

enum { AT_VERSION = 4, AT_KIND = 6, AT_FROM = 8, AT_TO = 12, AT_SIZE = 16, AT_SUM = 24, AT_ZERO = 28 };

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

void frame_write(const struct frame *f, uint8_t out[FRAME_BYTES])
{
    memset(out, 0, FRAME_BYTES);
    memcpy(out, magic, sizeof magic);
    put(out + AT_VERSION, FRAME_VERSION, 2);
    put(out + AT_KIND, f->kind, 2);
    put(out + AT_FROM, f->from, 4);
    put(out + AT_TO, f->to, 4);
    put(out + AT_SIZE, f->bytes, 8);
    put(out + AT_SUM, f->sum, 4);
}

/* Do kind, blocks and length belong together? */
static wk_status check(const struct frame *f, uint64_t kind, const struct wk_err *err)
{
    const bool blocks = kind == FRAME_RUN || kind == FRAME_SEGMENT || kind == FRAME_PEER;
    if (kind < FRAME_HEAD || kind > FRAME_END)
        return wk_fail(err, WK_INVALID, "a frame of pages has an unknown kind, %u", (unsigned)kind);
    if (blocks ? f->from >= f->to : f->from || f->to)
        return wk_fail(err, WK_INVALID, "a frame of pages has blocks %u to %u", f->from, f->to);
    const uint64_t most = kind == FRAME_HEAD  ? FRAME_HEAD_MAX
                          : kind == FRAME_RUN ? UINT64_MAX
                          : kind == FRAME_END ? 0
                                              : FRAME_NAME_MAX;
    if (f->bytes > most || (!f->bytes && kind != FRAME_END))
        return wk_fail(err, WK_INVALID, "a frame of pages says that it has %llu bytes", (unsigned long long)f->bytes);
    return WK_OK;
}

wk_status frame_read(const uint8_t in[FRAME_BYTES], struct frame *out, const struct wk_err *err)
{
    const uint64_t kind = get(in + AT_KIND, 2);
    if (memcmp(in, magic, sizeof magic) != 0)
        return wk_fail(err, WK_INVALID, "what came for pages does not begin as their frames do");
    if (get(in + AT_VERSION, 2) != FRAME_VERSION)
        return wk_fail(err, WK_UNSUPPORTED, "pages come in frames of version %u, this worker reads version %u",
                       (unsigned)get(in + AT_VERSION, 2), (unsigned)FRAME_VERSION);
    *out = (struct frame){ .from = (uint32_t)get(in + AT_FROM, 4),
                           .to = (uint32_t)get(in + AT_TO, 4),
                           .bytes = get(in + AT_SIZE, 8),
                           .sum = (uint32_t)get(in + AT_SUM, 4) };
    const wk_status status = check(out, kind, err);
    out->kind = status ? FRAME_END : (enum frame_kind)kind;
    return status || !get(in + AT_ZERO, 4)
               ? status
               : wk_fail(err, WK_INVALID, "a frame of pages has bytes set that have no meaning");
}
