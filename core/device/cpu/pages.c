/* pages.c: bytes of pages to and from other memory. A page's layers lie apart, each in an array of its own; outside
 * they stand one behind the other. */
#include "device/cpu/cpu.h"

#include <string.h>

#include "device/step_check.h"

enum direction { READ, WRITE };

static void copy(uint8_t *page, uint8_t *outside, uint64_t bytes, enum direction d)
{
    if (d == READ)
        memcpy(outside, page, bytes);
    else
        memcpy(page, outside, bytes);
}

static wk_status move(struct executor *x, const struct device_page *pages, uint32_t n, uint8_t *outside,
                      enum direction d, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    wk_status s = step_check_pages(p, x->plan.kv_pages, pages, n, err);
    if (s) return s;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < p->n_kv_layers; k++) {
            if (p->kv_layers[k].group != pages[i].group) continue;
            const uint64_t bytes = build_page_bytes(x, &p->kv_layers[k]);
            if (pages[i].page != KV_NO_PAGE) copy(x->cache[k] + bytes * pages[i].page, outside, bytes, d);
            outside += bytes;
        }
    }
    return WK_OK;
}

wk_status pages_read(struct executor *x, const struct device_page *pages, uint32_t n, void *out,
                     const struct wk_err *err)
{
    return move(x, pages, n, out, READ, err);
}

/* One function for both ways: `bytes` is read alone. */
wk_status pages_write(struct executor *x, const struct device_page *pages, uint32_t n, const void *bytes,
                      const struct wk_err *err)
{
    return move(x, pages, n, (uint8_t *)(uintptr_t)bytes, WRITE, err);
}
