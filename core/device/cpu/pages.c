/* pages.c: bytes of pages to and from other memory. A page's layers lie apart, each in an array of its own; outside
 * they stand one behind the other.
 *
 * The KV cache of an executor that hands pages over is a file in memory that never changes its size: another process
 * maps it and reads where the pages are. */
#include "device/cpu/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/kv_pages.h"
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

/* ---- other processes' pages ---------------------------------------------------------------------------- */

struct device_peer {
    uint8_t *base;
    uint64_t bytes;
    uint32_t kv_pages[TAPE_MAX_GROUPS];
    uint64_t layer[]; /* [n_kv_layers] where each begins */
};

enum { SEAL_FUTURE_WRITE = 0x10 /* F_SEAL_FUTURE_WRITE: mappings to come are for reading */ };

int pages_memory(struct executor *x, uint64_t bytes)
{
    const int fd = memfd_create("worker-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (bytes > INT64_MAX || ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        (void)close(fd);
        return -1;
    }
    return x->shared = fd;
}

wk_status pages_share(struct executor *x, struct device_share *out, const struct wk_err *err)
{
    *out = (struct device_share){ .fd = -1, .bytes = x->region[MEMORY_KV].bytes };
    if (!x->shared) return wk_fail(err, WK_UNSUPPORTED, "the KV cache is no memory that other processes can be given");
    memcpy(out->kv_pages, x->plan.kv_pages, sizeof out->kv_pages);
    (void)fcntl(x->shared, F_ADD_SEALS, SEAL_FUTURE_WRITE); /* older kernels have none: others could write then */
    out->fd = fcntl(x->shared, F_DUPFD_CLOEXEC, 0);
    return out->fd < 0 ? wk_fail(err, WK_IO, "no descriptor for the KV cache: %s", strerror(errno)) : WK_OK;
}

/* A file that its owner can shorten would end who reads it. */
static bool keeps_size(int fd, uint64_t bytes)
{
    struct stat s;
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &s) && (uint64_t)s.st_size >= bytes;
}

wk_status pages_peer_open(struct executor *x, const struct device_share *share, struct device_peer **out,
                          const struct wk_err *err)
{
    *out = NULL;
    struct device_peer *p = calloc(1, sizeof *p + x->program->n_kv_layers * sizeof *p->layer);
    if (!p) return wk_fail(err, WK_NO_MEMORY, "out of memory for another process's pages");
    p->bytes = share->bytes;
    memcpy(p->kv_pages, share->kv_pages, sizeof p->kv_pages);
    wk_status s = kv_place_layers(x->program, share, x, build_layer_bytes, p->layer, err);
    if (!s && (!p->bytes || !keeps_size(share->fd, p->bytes)))
        s = wk_fail(err, WK_INVALID, "the shared memory has not the %" PRIu64 " bytes that it should have", p->bytes);
    if (!s) {
        void *base = mmap(NULL, p->bytes, PROT_READ, MAP_SHARED, share->fd, 0);
        if (base == MAP_FAILED)
            s = wk_fail(err, WK_UNSUPPORTED, "the shared memory cannot be mapped: %s", strerror(errno));
        p->base = base;
    }
    if (s)
        free(p);
    else
        *out = p;
    return s;
}

void pages_peer_close(struct executor *x, struct device_peer *p)
{
    (void)x;
    if (p) (void)munmap(p->base, p->bytes);
    free(p);
}

wk_status pages_peer_read(struct executor *x, struct device_peer *p, const struct device_page *from,
                          const struct device_page *to, uint32_t n, const struct wk_err *err)
{
    wk_status s = step_check_peer(x->program, p->kv_pages, from, x->plan.kv_pages, to, n, err);
    for (uint32_t i = 0; !s && i < n; i++) {
        for (uint32_t k = 0; to[i].page != KV_NO_PAGE && k < x->program->n_kv_layers; k++) {
            if (x->program->kv_layers[k].group != to[i].group) continue;
            const uint64_t bytes = build_page_bytes(x, &x->program->kv_layers[k]);
            memcpy(x->cache[k] + bytes * to[i].page, p->base + p->layer[k] + bytes * from[i].page, bytes);
        }
    }
    return s;
}
