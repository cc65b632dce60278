/* fuzz_frames.c: frames of pages as a decode worker reads them, one behind the other: whatever the bytes are, a frame
 * that is taken keeps its promises and is written as it was read. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "frames.h"

#define MUST(x)            \
    do {                   \
        if (!(x)) abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct frame *f)
{
    const bool blocks = f->kind == FRAME_RUN || f->kind == FRAME_SEGMENT || f->kind == FRAME_PEER;
    MUST(blocks ? f->from < f->to : !f->from && !f->to);
    MUST(f->kind != FRAME_HEAD || f->bytes <= FRAME_HEAD_MAX);
    MUST((f->kind != FRAME_SEGMENT && f->kind != FRAME_PEER) || f->bytes <= FRAME_NAME_MAX);
    MUST(f->kind == FRAME_END ? !f->bytes : f->bytes > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char text[256];
    const struct wk_err err = { text, sizeof text };
    while (n >= FRAME_BYTES) {
        struct frame f;
        uint8_t again[FRAME_BYTES];
        if (frame_read(data, &f, &err)) {
            MUST(text[0]);
            return 0;
        }
        check(&f);
        frame_write(&f, again);
        MUST(memcmp(again, data, FRAME_BYTES) == 0);
        data += FRAME_BYTES;
        n -= FRAME_BYTES;
        if (f.bytes > n) return 0;
        (void)crc32c(f.sum, data, (size_t)f.bytes);
        data += f.bytes;
        n -= (size_t)f.bytes;
    }
    return 0;
}
