/* hold.c: a queue of events in front of two scans. */
#include "hold.h"

#include <stdlib.h>
#include <string.h>

enum { PLAIN = 0, MARKED, SIGHTS };

struct held {
    struct job_event event;
    uint64_t end[SIGHTS]; /* of its text, counted from the answer's beginning */
};

/* The answer's text, read once without and once with control tokens. */
struct sight {
    struct blocklist_scan *scan;
    uint64_t given, safe;
};

struct hold {
    struct sight sight[SIGHTS];
    struct held *queue; /* [cap], those of [first, n) wait */
    size_t first, n, cap;
    uint32_t found;
};

wk_status hold_open(struct blocklist *list, struct hold **out, const struct wk_err *err)
{
    struct hold *h = calloc(1, sizeof *h);
    if (!h) return wk_fail(err, WK_NO_MEMORY, "no memory for the answer's scan");
    h->found = BLOCKLIST_NONE;
    wk_status status = WK_OK;
    for (int i = 0; i < SIGHTS && !status; i++) status = blocklist_scan_begin(list, &h->sight[i].scan, err);
    if (status)
        hold_close(h);
    else
        *out = h;
    return status;
}

void hold_close(struct hold *h)
{
    if (!h) return;
    for (int i = 0; i < SIGHTS; i++) blocklist_scan_free(h->sight[i].scan);
    free(h->queue);
    free(h);
}

static void see(struct hold *h, struct sight *s, struct blocklist_seen seen)
{
    s->safe = seen.safe;
    if (h->found == BLOCKLIST_NONE) h->found = seen.phrase;
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

bool hold_take(struct hold *h, const struct job_event *e, struct token_bytes piece, struct token_bytes marked)
{
    const struct token_bytes texts[SIGHTS] = { piece, marked };
    const bool scans = h->found == BLOCKLIST_NONE;
    if (!make_room(h)) return false;
    struct held *held = &h->queue[h->n++];
    held->event = *e;
    for (int i = 0; i < SIGHTS; i++) {
        struct sight *s = &h->sight[i];
        if (scans) see(h, s, blocklist_scan_feed(s->scan, texts[i].data, texts[i].len));
        s->given += texts[i].len;
        held->end[i] = s->given;
    }
    return true;
}

void hold_end(struct hold *h)
{
    const bool scans = h->found == BLOCKLIST_NONE;
    for (int i = 0; scans && i < SIGHTS; i++) see(h, &h->sight[i], blocklist_scan_end(h->sight[i].scan));
}

bool hold_next(struct hold *h, struct job_event *out)
{
    if (h->first == h->n) return false;
    for (int i = 0; i < SIGHTS; i++)
        if (h->queue[h->first].end[i] > h->sight[i].safe) return false;
    *out = h->queue[h->first++].event;
    return true;
}

uint32_t hold_found(const struct hold *h) { return h->found; }
