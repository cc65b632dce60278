/* hold.c: a queue of events in front of a scan. */
#include "hold.h"

#include <stdlib.h>
#include <string.h>

struct held {
    struct job_event event;
    uint64_t end; /* of its text, counted from the answer's beginning */
};

struct hold {
    struct blocklist_scan *scan;
    struct held *queue; /* [cap], those of [first, n) wait */
    size_t first, n, cap;
    uint64_t given, safe;
    uint32_t found;
};

wk_status hold_open(struct blocklist *list, struct hold **out, const struct wk_err *err)
{
    struct hold *h = calloc(1, sizeof *h);
    if (!h) return wk_fail(err, WK_NO_MEMORY, "no memory for the answer's scan");
    h->found = BLOCKLIST_NONE;
    const wk_status status = blocklist_scan_begin(list, &h->scan, err);
    if (status)
        hold_close(h);
    else
        *out = h;
    return status;
}

void hold_close(struct hold *h)
{
    if (!h) return;
    blocklist_scan_free(h->scan);
    free(h->queue);
    free(h);
}

static void see(struct hold *h, struct blocklist_seen seen)
{
    h->safe = seen.safe;
    h->found = seen.phrase;
}

/* Room for one more, at the end: what was told is behind `first` no more. */
static bool make_room(struct hold *h)
{
    enum { LEAST = 16 };
    if (h->n < h->cap) return true;
    if (h->first > h->cap / 2) {
        memmove(h->queue, h->queue + h->first, (h->n - h->first) * sizeof *h->queue);
        h->n -= h->first;
        h->first = 0;
        return true;
    }
    const size_t cap = h->cap ? 2 * h->cap : LEAST;
    struct held *queue = realloc(h->queue, cap * sizeof *queue);
    if (!queue) return false;
    h->queue = queue;
    h->cap = cap;
    return true;
}

bool hold_take(struct hold *h, const struct job_event *e, struct token_bytes piece)
{
    if (!make_room(h)) return false;
    if (h->found == BLOCKLIST_NONE) see(h, blocklist_scan_feed(h->scan, piece.data, piece.len));
    h->given += piece.len;
    h->queue[h->n++] = (struct held){ *e, h->given };
    return true;
}

void hold_end(struct hold *h)
{
    if (h->found == BLOCKLIST_NONE) see(h, blocklist_scan_end(h->scan));
}

bool hold_next(struct hold *h, struct job_event *out)
{
    if (h->first == h->n || h->queue[h->first].end > h->safe) return false;
    *out = h->queue[h->first++].event;
    return true;
}

uint32_t hold_found(const struct hold *h) { return h->found; }
