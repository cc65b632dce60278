/* kv_pages.c: from bytes to pages. */
#include "device/kv_pages.h"

#include <inttypes.h>

#include "base/checked.h"
#include "tape/tape.h"

/* Of one sequence at full length. */
static uint32_t pages_each(const struct tape_program *p, const struct device_options *o, uint32_t g)
{
    return p->groups[g].ring_pages ? p->groups[g].ring_pages : (uint32_t)(((uint64_t)o->context + KV_PAGE - 1) / KV_PAGE);
}

/* Of one sequence at full length; UINT64_MAX: more than that. */
static uint64_t sequence_bytes(const struct tape_program *p, const struct device_options *o, const uint64_t *bytes)
{
    uint64_t sum = 0, all;
    for (uint32_t g = 0; g < p->n_groups; g++)
        if (!checked_mul_u64(bytes[g], pages_each(p, o, g), &all) || !checked_add_u64(sum, all, &sum)) return UINT64_MAX;
    return sum;
}

/* Pages of group g when kv_bytes are dealt out; at most UINT64_MAX. */
static uint64_t deal(const struct tape_program *p, const struct device_options *o, uint32_t g, uint64_t sequence)
{
    const unsigned __int128 n = (unsigned __int128)o->kv_bytes * pages_each(p, o, g) / sequence;
    return n > UINT64_MAX ? UINT64_MAX : (uint64_t)n;
}

/* So that every group gets a page. */
static uint64_t least_bytes(const struct tape_program *p, const struct device_options *o, uint64_t sequence)
{
    uint32_t fewest = UINT32_MAX;
    for (uint32_t g = 0; g < p->n_groups; g++) if (pages_each(p, o, g) < fewest) fewest = pages_each(p, o, g);
    return sequence / fewest + (sequence % fewest > 0);
}

wk_status kv_pages(const struct tape_program *p, const struct device_options *o, const uint64_t *bytes, uint32_t *out, const struct wk_err *err)
{
    const uint64_t sequence = sequence_bytes(p, o, bytes);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        const uint64_t each = pages_each(p, o, g), n = o->kv_bytes ? deal(p, o, g, sequence) : each * o->max_sequences;
        if (n < 1)
            return wk_fail(err, WK_INVALID, "a KV cache of %" PRIu64 " bytes holds no page of %d positions: expected at least %" PRIu64, o->kv_bytes, KV_PAGE, least_bytes(p, o, sequence));
        if (n > UINT32_MAX)
            return wk_fail(err, WK_NO_MEMORY, "%u sequences of %u positions need more than 2^32 cache pages; lower --context or --max-sequences", o->max_sequences, o->context);
        out[g] = (uint32_t)n;
    }
    return WK_OK;
}
