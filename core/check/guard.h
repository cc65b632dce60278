/* guard.h: memory between pages that nobody may touch, and calls whose faults are told in words.
 *
 * A plugin's function is handed memory that ends, or begins, where such a page begins, and inputs that may not be
 * written. What it touches beside that is a fault, which the call below catches and names: "reads at byte 0 past the
 * end of x". For processes that exist to check a plugin: the handlers that this installs stay. */
#ifndef CORE_CHECK_GUARD_H
#define CORE_CHECK_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

/* Where the memory lies between its pages. END: its last byte is the last before the guard, but for what the alignment
 * leaves over. BEGIN: its first byte is the first behind the guard. MIDDLE: its address is a multiple of the alignment
 * and of no more. Bytes of a page that are not the memory's hold a pattern that must stay. */
enum guard_place { GUARD_END = 0, GUARD_BEGIN, GUARD_MIDDLE, GUARD_PLACES };
const char *guard_place_name(enum guard_place place);

struct guarded {
    const char *name; /* for texts: "x"; lives as long as this */
    uint8_t *p;       /* [bytes] */
    size_t bytes;
    uint8_t *map; /* all of it, guards included; NULL: there is none */
    size_t mapped;
    struct guarded *next; /* of those that are there */
};

/* align: a power of two, at most 2048. The contents are `fill`. WK_NO_MEMORY. guard_free in either case; on one thread
 * at a time. */
wk_status guard_make(struct guarded *g, const char *name, size_t bytes, size_t align, enum guard_place place,
                     uint8_t fill, const struct wk_err *err);
void guard_free(struct guarded *g); /* zeroed memory allowed */
/* From now on the memory can only be read, or written again. */
wk_status guard_read_only(const struct guarded *g, bool read_only, const struct wk_err *err);
/* WK_INTERNAL: a byte beside the memory was written. */
wk_status guard_intact(const struct guarded *g, const char *what, const struct wk_err *err);

/* Calls fn(user). WK_INTERNAL, with a text that begins with `what`: it raised a signal. Rounding and denormals are as
 * at a program's start afterwards, whatever the call did to them. [any thread] */
wk_status guard_call(const char *what, void (*fn)(void *user), void *user, const struct wk_err *err);
/* Pages that are not of this room, to be named when a call writes them: "its own static data". name: NULL: no more. */
void guard_also(const void *begin, const void *end, const char *name);

#endif
