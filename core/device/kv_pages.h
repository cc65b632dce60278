/* kv_pages.h: the arithmetic of the KV cache's pages, for devices, which hold them, and for those who deal them to
 * sequences.
 *
 * A sequence holds a page for every KV_PAGE positions that rows to come may read: all positions, or in a group of
 * layers with a window or chunks those from the first on that its next row sees. Behind that, pages are given back
 * after every step. So at rest a window costs what it spans; the pages that a step's rows need besides, from the moment
 * they are stored to the moment they have attended, are planned once for all sequences.
 *
 * In a group of states a page has the state behind the last row of its block. A row reads that of the row before it, so
 * a sequence holds one page at rest, and two when its next row begins a block. A step that passes whole blocks needs no
 * page of them; who wants to go on from the end of the last of them later takes one more. */
#ifndef CORE_DEVICE_KV_PAGES_H
#define CORE_DEVICE_KV_PAGES_H

#include "device/device.h"
#include "tape/tape.h"

/* How values lie in a page: to be raised with each change, since pages pass between programs. */
enum { KV_LAYOUT_VERSION = 1 };

/* What a row sees of the positions before it: the last of `window`, its own included; or those of its chunk, of `chunk`
 * positions each, a multiple of KV_PAGE. Both 0: all of them. */
struct kv_span {
    uint32_t window, chunk;
    bool state;
};

/* A window or chunk as wide as the context hides nothing: as if there were none. */
static inline struct kv_span kv_span(const struct tape_kv_group *g, uint32_t context)
{
    return (struct kv_span){ g->state || g->window < context ? g->window : 0, g->chunk < context ? g->chunk : 0,
                             g->state };
}

/* Does it hide anything, ever? */
static inline bool kv_bounded(struct kv_span s) { return s.window || s.chunk; }

/* The first position that a row at `position` sees; never less for a later row. */
static inline uint32_t kv_first(struct kv_span s, uint32_t position)
{
    if (s.chunk) return position - position % s.chunk;
    return s.window && position + 1 > s.window ? position + 1 - s.window : 0;
}

/* Pages of n positions from the beginning. */
static inline uint64_t kv_pages_of(uint64_t n) { return (n + KV_PAGE - 1) / KV_PAGE; }

/* Pages that n > 0 positions in a row touch at most, wherever they begin. */
static inline uint64_t kv_touched(uint64_t n) { return (n + KV_PAGE - 2) / KV_PAGE + 1; }

/* Pages of a group that a sequence with `positions` to come in all holds at most between steps, and with which it can
 * always go on by one row. */
static inline uint64_t kv_rest(struct kv_span s, uint64_t positions)
{
    const uint64_t all = kv_pages_of(positions), seen = s.chunk    ? s.chunk / KV_PAGE
                                                        : s.window ? kv_touched(s.window)
                                                                   : all;
    return seen < all ? seen : all;
}

/* The page where a step keeps what block `block` stores: the block's; of states, where it has none, that of the next
 * block which has one. */
static inline uint32_t kv_step_page(const uint32_t *table, uint32_t block)
{
    while (table[block] == KV_NO_PAGE) block++;
    return table[block];
}

/* Pages without which no sequence gets to the end of the context, however few it may share with others. */
static inline uint64_t kv_least(struct kv_span s, uint64_t context) { return s.state ? kv_rest(s, context) : 1; }

/* Pages of each group into out [n_groups], when a page of group g takes bytes[g], all its layers together. kv_bytes 0:
 * all that kv_sequences (or max_sequences) of full length can use: each at rest, and beside that one step's rows. Else
 * as many as fit into kv_bytes: groups with windows or chunks get all that they can use, up to half; the others have
 * the rest. WK_INVALID: not kv_least of each; WK_NO_MEMORY: more than can be counted. [any thread] */
wk_status kv_pages(const struct tape_program *p, const struct device_options *o, const uint64_t *bytes, uint32_t *out,
                   const struct wk_err *err);

/* Where each KV layer begins in the memory of another executor of this program, into out [n_kv_layers], in bytes: its
 * layers lie as x's do, one behind the other in the program's order, but for share->kv_pages. layer_bytes: what so many
 * pages of layer k take on this device; UINT64_MAX: more than can be counted. WK_INVALID: the memory has fewer bytes.
 * [any thread] */
wk_status kv_place_layers(const struct tape_program *p, const struct device_share *share, const struct executor *x,
                          uint64_t (*layer_bytes)(const struct executor *x, uint32_t k, uint32_t pages), uint64_t *out,
                          const struct wk_err *err);

#endif
