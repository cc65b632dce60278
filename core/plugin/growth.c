/* growth.c: see growth.h. */
#include "plugin/growth.h"

#include <inttypes.h>
#include <string.h>

wk_status growth_copy(void *ours, size_t known, size_t least, const void *theirs, uint64_t size, const char *what,
                      const struct wk_err *err)
{
    if (size < least || size > GROWTH_MAX || size % 8)
        return wk_fail(err, WK_INVALID,
                       "%s says it has %" PRIu64 " bytes; at least %zu, a multiple of 8 and at most %d expected", what,
                       size, least, GROWTH_MAX);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)theirs)[i])
            return wk_fail(err, WK_UNSUPPORTED,
                           "%s: byte %zu is set, which this host (ABI %d.%d) does not know; use a newer worker", what,
                           i, WK_ABI_MAJOR, WK_ABI_MINOR);
    memset(ours, 0, known);
    memcpy(ours, theirs, size < known ? (size_t)size : known);
    return WK_OK;
}

wk_status growth_reserved(uint32_t value, const char *what, const struct wk_err *err)
{
    if (!value) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED, "%s is %" PRIu32 ", must be 0 for this host (ABI %d.%d); use a newer worker",
                   what, value, WK_ABI_MAJOR, WK_ABI_MINOR);
}

wk_status growth_flags(uint64_t flags, uint64_t known, const char *what, const struct wk_err *err)
{
    const uint64_t unknown = flags & ~known;
    if (!unknown) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED,
                   "%s has flag 0x%" PRIx64 ", which this host (ABI %d.%d) does not know; use a newer worker", what,
                   unknown & (~unknown + 1), WK_ABI_MAJOR, WK_ABI_MINOR);
}
