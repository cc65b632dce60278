/* kv_pages.c: from bytes to pages, and where the pages of others are. */
#include "device/kv_pages.h"

#include <inttypes.h>

#include "tape/tape.h"

typedef unsigned __int128 wide;

/* What the groups can use, and its bytes: of those that see all, of those with windows or chunks. */
struct needs {
    uint64_t pages[TAPE_MAX_GROUPS], least[TAPE_MAX_GROUPS];
    bool bounded[TAPE_MAX_GROUPS];
    wide bytes[2];
};

static uint32_t sequences(const struct device_options *o)
{
    return o->kv_sequences ? o->kv_sequences : o->max_sequences;
}

static void find_needs(const struct tape_program *p, const struct device_options *o, const uint64_t *bytes,
                       struct needs *n)
{
    *n = (struct needs){ 0 };
    for (uint32_t g = 0; g < p->n_groups; g++) {
        const struct kv_span span = kv_span(&p->groups[g], o->context);
        const uint64_t all = sequences(o) * kv_pages_of(o->context), rest = sequences(o) * kv_rest(span, o->context),
                       step = span.state         ? 1
                              : kv_bounded(span) ? kv_pages_of(o->max_rows)
                                                 : 0,
                       pages = rest + step;
        n->pages[g] = pages < all ? pages : all;
        n->least[g] = kv_least(span, o->context);
        n->bounded[g] = kv_bounded(span);
        n->bytes[n->bounded[g]] += (wide)bytes[g] * n->pages[g];
    }
}

/* Parts of kv bytes: for groups that see all, for the others. What neither can use is shared out as the rest is. */
static void split(const struct needs *n, uint64_t kv, uint64_t part[2])
{
    const wide most = n->bytes[0] ? kv / 2 : kv;
    part[1] = (uint64_t)(n->bytes[1] < most ? n->bytes[1] : most);
    part[0] = kv - part[1];
    if (kv >= n->bytes[0] + n->bytes[1])
        part[1] = (uint64_t)(kv * n->bytes[1] / (n->bytes[0] + n->bytes[1]));
    else if (part[0] > n->bytes[0])
        part[1] = kv - (uint64_t)n->bytes[0];
    part[0] = kv - part[1];
}

/* Pages of group g of kv bytes; at most UINT64_MAX. */
static uint64_t deal(const struct needs *n, uint64_t kv, uint32_t g)
{
    uint64_t part[2];
    split(n, kv, part);
    const wide pages = part[n->bounded[g]] * (wide)n->pages[g] / n->bytes[n->bounded[g]];
    return pages > UINT64_MAX ? UINT64_MAX : (uint64_t)pages;
}

/* So that every group gets what it needs. */
static uint64_t least_bytes(const struct tape_program *p, const struct needs *n)
{
    uint64_t low = 0, high = UINT64_MAX; /* too few, enough */
    while (high - low > 1) {
        const uint64_t kv = low + (high - low) / 2;
        bool enough = true;
        for (uint32_t g = 0; g < p->n_groups; g++) enough = enough && deal(n, kv, g) >= n->least[g];
        *(enough ? &high : &low) = kv;
    }
    return high;
}

wk_status kv_pages(const struct tape_program *p, const struct device_options *o, const uint64_t *bytes, uint32_t *out,
                   const struct wk_err *err)
{
    struct needs needs;
    find_needs(p, o, bytes, &needs);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        const uint64_t n = o->kv_bytes ? deal(&needs, o->kv_bytes, g) : needs.pages[g];
        if (n < 1)
            return wk_fail(err, WK_INVALID,
                           "a KV cache of %" PRIu64 " bytes holds no page of %d positions: expected at least %" PRIu64,
                           o->kv_bytes, KV_PAGE, least_bytes(p, &needs));
        if (n < needs.least[g])
            return wk_fail(err, WK_INVALID,
                           "a KV cache of %" PRIu64 " bytes holds a state of a sequence once, not twice as it is needed"
                           " to go on: expected at least %" PRIu64,
                           o->kv_bytes, least_bytes(p, &needs));
        if (n > UINT32_MAX)
            return wk_fail(
                err, WK_NO_MEMORY,
                "%u sequences of %u positions need more than 2^32 cache pages; lower --context or --max-sequences",
                sequences(o), o->context);
        out[g] = (uint32_t)n;
    }
    return WK_OK;
}

wk_status kv_place_layers(const struct tape_program *p, const struct device_share *share, const struct executor *x,
                          uint64_t (*layer_bytes)(const struct executor *x, uint32_t k, uint32_t pages), uint64_t *out,
                          const struct wk_err *err)
{
    uint64_t at = 0;
    for (uint32_t k = 0; k < p->n_kv_layers; k++) {
        const uint64_t bytes = layer_bytes(x, k, share->kv_pages[p->kv_layers[k].group]);
        if (bytes > share->bytes - at)
            return wk_fail(err, WK_INVALID,
                           "the shared memory has %" PRIu64 " bytes, its pages need more: it is another program's",
                           share->bytes);
        out[k] = at;
        at += bytes;
    }
    return WK_OK;
}
