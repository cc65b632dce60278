/* memory.c: regions of device memory of one kind each, and small pinned host memory.
 *
 * A region is one allocation mapped at one address: what the driver gave is what the plan asked for, no allocator in
 * between rounds or keeps anything, and its protection can be changed as a whole. */
#include "device/cuda/context.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic uint64_t taken; /* bytes of all regions that are mapped now */

uint64_t cuda_memory_taken(void) { return atomic_load(&taken); }

/* ---- one region ---------------------------------------------------------------------------------------- */

static wk_status fail_full(struct cuda_device *d, enum memory_kind kind, uint64_t bytes, const struct wk_err *err)
{
    size_t free_bytes = 0, total = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &total);
    return wk_fail(err, WK_NO_MEMORY,
                   "%s: required %" PRIu64 " bytes more, available %zu of %zu on GPU %u (%s); %" PRIu64
                   " are taken by this model already",
                   memory_kind_name(kind), bytes, free_bytes, total, d->info.index, d->info.name, cuda_memory_taken());
}

void cuda_region_unmap(struct cuda_device *d, struct cuda_region *r)
{
    if (!r->bytes) return;
    (void)d->driver.unmap(r->base, r->bytes);
    (void)d->driver.free(r->base, r->bytes);
    atomic_fetch_sub(&taken, r->bytes);
    *r = (struct cuda_region){ 0 };
}

wk_status cuda_region_address(struct cuda_device *d, struct cuda_region *r, CUmemGenericAllocationHandle handle,
                              const struct wk_err *err)
{
    const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)d->info.index },
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    wk_status s =
        cuda_check_driver(d, d->driver.reserve(&r->base, r->bytes, d->granule, 0, 0), "cuMemAddressReserve", err);
    if (s) return s;
    s = cuda_check_driver(d, d->driver.map(r->base, r->bytes, 0, handle, 0), "cuMemMap", err);
    if (s) {
        (void)d->driver.free(r->base, r->bytes);
        return s;
    }
    s = cuda_check_driver(d, d->driver.set_access(r->base, r->bytes, &access, 1), "cuMemSetAccess", err);
    if (!s) return WK_OK;
    (void)d->driver.unmap(r->base, r->bytes);
    (void)d->driver.free(r->base, r->bytes);
    return s;
}

wk_status cuda_region_map(struct cuda_device *d, enum memory_kind kind, uint64_t bytes, struct cuda_region *out,
                          const struct wk_err *err)
{
    CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)d->info.index } };
    if (kind == MEMORY_KV && d->shared) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    struct cuda_region r = { .kind = kind, .asked = bytes };
    CUmemGenericAllocationHandle handle;
    *out = (struct cuda_region){ 0 };
    if (bytes > UINT64_MAX - d->granule) return fail_full(d, kind, bytes, err);
    r.bytes = (bytes + d->granule - 1) / d->granule * d->granule;
    CUresult code = d->driver.create(&handle, r.bytes, &prop, 0);
    if (code && code != CUDA_ERROR_OUT_OF_MEMORY && prop.requestedHandleTypes) {
        d->shared = false; /* some containers forbid it: then as without */
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        code = d->driver.create(&handle, r.bytes, &prop, 0);
    }
    if (code == CUDA_ERROR_OUT_OF_MEMORY || (code == CUDA_ERROR_INVALID_VALUE && r.bytes > d->info.memory))
        return fail_full(d, kind, bytes, err);
    wk_status s = cuda_check_driver(d, code, "cuMemCreate", err);
    if (s) return s;
    s = cuda_region_address(d, &r, handle, err);
    (void)d->driver.release(handle);
    if (s) return s;
    atomic_fetch_add(&taken, r.bytes);
    *out = r;
    s = cuda_check(d, cudaMemsetAsync((void *)(uintptr_t)r.base, 0, r.bytes, d->stream), "cudaMemset", err);
    if (!s) s = cuda_check(d, cudaStreamSynchronize(d->stream), "cudaMemset", err);
    if (s) cuda_region_unmap(d, out);
    return s;
}

/* ---- memory of several processes ----------------------------------------------------------------------- */

static const struct cuda_region *cache_of(const struct cuda_device *d)
{
    for (uint32_t i = 0; i < d->n_regions; i++)
        if (d->region[i].kind == MEMORY_KV) return &d->region[i];
    return NULL;
}

wk_status cuda_memory_export(struct cuda_device *d, int *fd, uint64_t *bytes, const struct wk_err *err)
{
    const struct cuda_region *r = cache_of(d);
    CUmemGenericAllocationHandle handle;
    if (!d->shared || !r)
        return wk_fail(err, WK_UNSUPPORTED,
                       "GPU %u: the driver gives no memory to other processes here (file descriptors of cuMemCreate)",
                       d->info.index);
    CUresult code = d->driver.retain(&handle, (void *)(uintptr_t)r->base);
    if (code) return cuda_check_driver(d, code, "cuMemRetainAllocationHandle", err);
    code = d->driver.export_handle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    (void)d->driver.release(handle);
    if (code) {
        (void)cuda_check_driver(d, code, "cuMemExportToShareableHandle", err);
        return WK_UNSUPPORTED;
    }
    *bytes = r->bytes;
    return WK_OK;
}

wk_status cuda_memory_import(struct cuda_device *d, int fd, uint64_t bytes, void **base, const struct wk_err *err)
{
    struct cuda_region r = { .kind = MEMORY_KV, .asked = bytes, .bytes = bytes };
    CUmemGenericAllocationHandle handle;
    if (!d->shared)
        return wk_fail(err, WK_UNSUPPORTED, "GPU %u: the driver takes no memory of other processes here",
                       d->info.index);
    if (!bytes || bytes % d->granule)
        return wk_fail(err, WK_INVALID, "memory of %" PRIu64 " bytes: expected a multiple of %" PRIu64, bytes,
                       d->granule);
    const CUresult code =
        d->driver.import_handle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (code) {
        (void)cuda_check_driver(d, code, "cuMemImportFromShareableHandle", err);
        return WK_UNSUPPORTED;
    }
    const wk_status s = cuda_region_address(d, &r, handle, err);
    (void)d->driver.release(handle);
    *base = (void *)(uintptr_t)r.base;
    return s ? WK_UNSUPPORTED : WK_OK; /* the usual reason: no way between the two GPUs */
}

void cuda_memory_forget(struct cuda_device *d, void *base, uint64_t bytes)
{
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)base;
    (void)d->driver.unmap(at, bytes);
    (void)d->driver.free(at, bytes);
}

/* ---- the plan's memory --------------------------------------------------------------------------------- */

wk_status cuda_memory_take(struct cuda_device *d, enum memory_kind kind, uint64_t bytes, void **out,
                           const struct wk_err *err)
{
    *out = NULL;
    if (!bytes) return WK_OK;
    if (d->n_regions == CUDA_MAX_REGIONS)
        return wk_fail(err, WK_INTERNAL, "more than %d regions of device memory", CUDA_MAX_REGIONS);
    wk_status s = cuda_region_map(d, kind, bytes, &d->region[d->n_regions], err);
    if (s) return s;
    *out = (void *)(uintptr_t)d->region[d->n_regions++].base;
    return WK_OK;
}

wk_status cuda_memory_pinned(struct cuda_device *d, uint64_t bytes, void **host, void **device,
                             const struct wk_err *err)
{
    *host = *device = NULL;
    if (d->n_pinned == CUDA_MAX_PINNED)
        return wk_fail(err, WK_INTERNAL, "more than %d blocks of pinned memory", CUDA_MAX_PINNED);
    void *block = NULL;
    wk_status s = cuda_check(d, cudaHostAlloc(&block, bytes ? bytes : 1, cudaHostAllocMapped | cudaHostAllocPortable),
                             "cudaHostAlloc", err);
    if (s) return s;
    d->pinned[d->n_pinned++] = block;
    memset(block, 0, bytes);
    s = cuda_check(d, cudaHostGetDevicePointer(device, block, 0), "cudaHostGetDevicePointer", err);
    if (!s) *host = block;
    return s;
}

void cuda_memory_used(const struct cuda_device *d, struct memory_plan *used)
{
    *used = (struct memory_plan){ 0 };
    for (uint32_t i = 0; i < d->n_regions; i++) {
        used->bytes[d->region[i].kind] += d->region[i].asked;
        used->total += d->region[i].asked;
    }
}

void cuda_memory_close(struct cuda_device *d)
{
    while (d->n_pinned) (void)cudaFreeHost(d->pinned[--d->n_pinned]);
    while (d->n_regions) cuda_region_unmap(d, &d->region[--d->n_regions]);
}
