/* kv_pages.h: the arithmetic of the KV cache's pages, for devices, which hold them, and for those who deal them to
 * sequences.
 *
 * A sequence holds a page for every KV_PAGE positions that rows to come may read: all positions, or in a group of
 * layers with a window those from the first on that its next row sees. Behind that, pages are given back after every
 * step. So at rest a window costs what it spans; the pages that a step's rows need besides, from the moment they are
 * stored to the moment they have attended, are planned once for all sequences. */
#ifndef CORE_DEVICE_KV_PAGES_H
#define CORE_DEVICE_KV_PAGES_H

#include "device/device.h"

/* A window as wide as the context hides nothing: 0, as if there were none. */
static inline uint32_t kv_window(uint32_t window, uint32_t context) { return window < context ? window : 0; }

/* The first position that a row at `position` sees. */
static inline uint32_t kv_first(uint32_t window, uint32_t position)
{
    return window && position + 1 > window ? position + 1 - window : 0;
}

/* Pages of n positions from the beginning. */
static inline uint64_t kv_pages_of(uint64_t n) { return (n + KV_PAGE - 1) / KV_PAGE; }

/* Pages that n > 0 positions in a row touch at most, wherever they begin. */
static inline uint64_t kv_touched(uint64_t n) { return (n + KV_PAGE - 2) / KV_PAGE + 1; }

/* Pages of a group that a sequence with `positions` to come in all holds at most between steps, and with which it can
 * always go on by one row. */
static inline uint64_t kv_rest(uint32_t window, uint64_t positions)
{
    const uint64_t all = kv_pages_of(positions);
    return window && kv_touched(window) < all ? kv_touched(window) : all;
}

/* Pages of each group into out [n_groups], when a page of group g takes bytes[g], all its layers together. kv_bytes 0:
 * all that kv_sequences (or max_sequences) of full length can use: each at rest, and beside that one step's rows. Else
 * as many as fit into kv_bytes: groups with windows get all that they can use, up to half; the others have the rest.
 * WK_INVALID: not one page of each; WK_NO_MEMORY: more than can be counted. [any thread] */
wk_status kv_pages(const struct tape_program *p, const struct device_options *o, const uint64_t *bytes, uint32_t *out,
                   const struct wk_err *err);

#endif
