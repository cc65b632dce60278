/* output_filter.c: a queue of events in front of two scans. */
#include "output_filter.h"

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

struct output_filter {
    struct sight sight[SIGHTS];
    struct held *queue; /* [cap], those of [first, n) wait */
    size_t first, n, cap;
    uint32_t found;
};

wk_status output_filter_open(struct blocklist *list, struct output_filter **out, const struct wk_err *err)
{
    struct output_filter *f = calloc(1, sizeof *f);
    if (!f) return wk_fail(err, WK_NO_MEMORY, "no memory for the answer's scan");
    f->found = BLOCKLIST_NONE;
    wk_status status = WK_OK;
    for (int i = 0; i < SIGHTS && !status; i++) status = blocklist_scan_begin(list, &f->sight[i].scan, err);
    if (status)
        output_filter_close(f);
    else
        *out = f;
    return status;
}

void output_filter_close(struct output_filter *f)
{
    if (!f) return;
    for (int i = 0; i < SIGHTS; i++) blocklist_scan_free(f->sight[i].scan);
    free(f->queue);
    free(f);
}

static void see(struct output_filter *f, struct sight *s, struct blocklist_seen seen)
{
    s->safe = seen.safe;
    if (f->found == BLOCKLIST_NONE) f->found = seen.phrase;
}

/* Room for one more, at the end: what was told is behind `first` no more. */
static bool make_room(struct output_filter *f)
{
    enum { LEAST = 16 };
    if (f->n < f->cap) return true;
    if (f->first > f->cap / 2) {
        memmove(f->queue, f->queue + f->first, (f->n - f->first) * sizeof *f->queue);
        f->n -= f->first;
        f->first = 0;
        return true;
    }
    const size_t cap = f->cap ? 2 * f->cap : LEAST;
    struct held *queue = realloc(f->queue, cap * sizeof *queue);
    if (!queue) return false;
    f->queue = queue;
    f->cap = cap;
    return true;
}

bool output_filter_take(struct output_filter *f, const struct job_event *e, struct token_bytes piece,
                        struct token_bytes marked)
{
    const struct token_bytes texts[SIGHTS] = { piece, marked };
    const bool scans = f->found == BLOCKLIST_NONE;
    if (!make_room(f)) return false;
    struct held *held = &f->queue[f->n++];
    held->event = *e;
    for (int i = 0; i < SIGHTS; i++) {
        struct sight *s = &f->sight[i];
        if (scans) see(f, s, blocklist_scan_feed(s->scan, texts[i].data, texts[i].len));
        s->given += texts[i].len;
        held->end[i] = s->given;
    }
    return true;
}

void output_filter_end(struct output_filter *f)
{
    const bool scans = f->found == BLOCKLIST_NONE;
    for (int i = 0; scans && i < SIGHTS; i++) see(f, &f->sight[i], blocklist_scan_end(f->sight[i].scan));
}

bool output_filter_next(struct output_filter *f, struct job_event *out)
{
    if (f->first == f->n) return false;
    for (int i = 0; i < SIGHTS; i++)
        if (f->queue[f->first].end[i] > f->sight[i].safe) return false;
    *out = f->queue[f->first++].event;
    return true;
}

uint32_t output_filter_found(const struct output_filter *f) { return f->found; }
