/* owners.c: whose jobs they are, and whose turn it is.
 *
 * Owners take turns at two places: where a waiting job begins (schedule.c) and where a prompt gets rows of a step
 * (batch.c). The turn is of the owner that had its last one longest ago, so however many jobs one has, each other waits
 * for one of them at most. An owner alone finds the order that its jobs have among themselves.
 *
 * Turns are remembered of owners without jobs, too: who sends its next job when the last one is over is not new each
 * time. There is room for all that have jobs and SPARE more; then the one whose turn was longest ago is forgotten, who
 * would be first in any case. */
#include "engine/internal.h"

#include <stdlib.h>

enum { SPARE = 1024 };

wk_status owners_open(struct owners *o, uint32_t jobs, const struct wk_err *err)
{
    const uint32_t n = jobs + SPARE;
    *o = (struct owners){ .n = n, .n_buckets = 1 };
    while (o->n_buckets < n) o->n_buckets *= 2;
    o->all = calloc(n, sizeof *o->all);
    o->buckets = calloc(o->n_buckets, sizeof *o->buckets);
    return o->all && o->buckets ? WK_OK : wk_fail(err, WK_NO_MEMORY, "out of memory for the owners of %u jobs", jobs);
}

void owners_close(struct owners *o)
{
    free(o->all);
    free(o->buckets);
}

static struct owner **bucket(struct owners *o, uint64_t key)
{
    const uint64_t h = key * 0x9e3779b97f4a7c15u;
    return &o->buckets[(h >> 32) & (o->n_buckets - 1)];
}

static void unlink_owner(struct owners *o, const struct owner *x)
{
    struct owner **at = bucket(o, x->key);
    while (*at != x) at = &(*at)->next;
    *at = x->next;
}

/* Room for one more: there are more places than jobs, so somebody has none. */
static struct owner *forget(struct owners *o)
{
    struct owner *oldest = NULL;
    if (o->n_known < o->n) return &o->all[o->n_known++];
    for (uint32_t i = 0; i < o->n; i++) {
        struct owner *x = &o->all[i];
        if (!x->live && (!oldest || x->served < oldest->served)) oldest = x;
    }
    unlink_owner(o, oldest);
    return oldest;
}

struct owner *owner_enter(struct owners *o, uint64_t key)
{
    struct owner **first = bucket(o, key), *x = *first;
    while (x && x->key != key) x = x->next;
    if (!x) {
        x = forget(o);
        first = bucket(o, key);
        *x = (struct owner){ .key = key, .next = *first };
        *first = x;
    }
    o->n_live += x->live++ == 0;
    return x;
}

void owner_leave(struct owners *o, struct owner *x) { o->n_live -= --x->live == 0; }
