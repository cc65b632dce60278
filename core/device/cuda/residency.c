/* residency.c: what lies behind every byte of the device's regions.
 *
 * The first byte proves nothing: an address range can begin in device memory and go on in the host's, and then neither
 * pointer of its attributes says so, only the type of the mapping. A mapping begins and ends at a multiple of the
 * driver's granule, so one question a granule asks every mapping. */
#include "device/cuda/context.h"

#include <inttypes.h>

static const char *type_name(enum cudaMemoryType type)
{
    switch (type) {
    case cudaMemoryTypeUnregistered: return "memory that the driver does not know";
    case cudaMemoryTypeHost: return "host memory";
    case cudaMemoryTypeDevice: return "device memory";
    case cudaMemoryTypeManaged: return "managed memory";
    }
    return "memory of an unknown type";
}

static wk_status check_at(struct cuda_device *d, const uint8_t *p, uint64_t offset, const char *what,
                          const struct wk_err *err)
{
    struct cudaPointerAttributes a = { 0 };
    unsigned managed = 0;
    wk_status s = cuda_check(d, cudaPointerGetAttributes(&a, p), "residency: cudaPointerGetAttributes", err);
    if (!s)
        s = cuda_check_driver(d,
                              d->driver.attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, (CUdeviceptr)(uintptr_t)p),
                              "residency: cuPointerGetAttribute", err);
    if (s) return s;
    if (a.type != cudaMemoryTypeDevice)
        return wk_fail(err, WK_INTERNAL, "%s: byte %" PRIu64 " is %s, not device memory", what, offset,
                       type_name(a.type));
    if (managed)
        return wk_fail(err, WK_INTERNAL, "%s: byte %" PRIu64 " is managed memory, not device memory", what, offset);
    if (a.device != (int)d->info.index)
        return wk_fail(err, WK_INTERNAL, "%s: byte %" PRIu64 " is on GPU %d, not on GPU %u", what, offset, a.device,
                       d->info.index);
    if (a.hostPointer)
        return wk_fail(err, WK_INTERNAL, "%s: byte %" PRIu64 " can be reached from the host", what, offset);
    if (a.devicePointer != p)
        return wk_fail(err, WK_INTERNAL, "%s: byte %" PRIu64 " lies elsewhere than it says", what, offset);
    return WK_OK;
}

wk_status cuda_residency_range(struct cuda_device *d, const void *base, uint64_t bytes, const char *what,
                               const struct wk_err *err)
{
    enum { STEP = 2 << 20 }; /* no mapping is smaller */
    wk_status s = WK_OK;
    for (uint64_t at = 0; !s && at < bytes; at += STEP) s = check_at(d, (const uint8_t *)base + at, at, what, err);
    if (!s && bytes) s = check_at(d, (const uint8_t *)base + bytes - 1, bytes - 1, what, err);
    return s;
}

wk_status cuda_residency(struct cuda_device *d, const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t i = 0; !s && i < d->n_regions; i++)
        s = cuda_residency_range(d, (const void *)(uintptr_t)d->region[i].base, d->region[i].bytes,
                                 memory_kind_name(d->region[i].kind), err);
    return s;
}
