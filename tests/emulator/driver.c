/* driver.c: the driver's calls for device memory by handles, which maps a region as a whole: an address range of the
 * emulator's arena, opened when it is mapped. */
#include "runtime.h"

#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { GRANULE = 2 << 20 };

struct piece {
    struct piece *next;
    uint64_t bytes, at;
    bool host, released;
    uint32_t maps;
}; /* a handle, where it is mapped last */
static struct piece *pieces;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t used;

uint64_t driver_used(void) { return used; }

static void drop(struct piece *p)
{
    if (!p->released || p->maps) return;
    for (struct piece **o = &pieces; *o; o = &(*o)->next)
        if (*o == p) {
            *o = p->next;
            break;
        }
    if (!p->host) used -= p->bytes;
    free(p);
}

static CUresult granularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags flags)
{
    (void)prop, (void)flags;
    *out = GRANULE;
    return CUDA_SUCCESS;
}
static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    const bool host = prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    (void)flags;
    if (!bytes || bytes % GRANULE) return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&lock);
    struct piece *p = host || bytes <= device_left() ? calloc(1, sizeof *p) : NULL;
    if (p) {
        *p = (struct piece){ pieces, bytes, 0, host, false, 0 };
        pieces = p;
        if (!host) used += bytes;
    }
    (void)pthread_mutex_unlock(&lock);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult release(CUmemGenericAllocationHandle handle)
{
    struct piece *p = (struct piece *)(uintptr_t)handle;
    (void)pthread_mutex_lock(&lock);
    p->released = true;
    drop(p);
    (void)pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
static CUresult reserve(CUdeviceptr *at, size_t bytes, size_t align, CUdeviceptr hint, unsigned long long flags)
{
    (void)hint, (void)flags;
    *at = (CUdeviceptr)(uintptr_t)arena_reserve(bytes, align < GRANULE ? GRANULE : align);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult unreserve(CUdeviceptr at, size_t bytes)
{
    (void)at, (void)bytes;
    return CUDA_SUCCESS;
} /* addresses are not given out again */
static CUresult map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    struct piece *p = (struct piece *)(uintptr_t)handle;
    (void)flags;
    if (offset || bytes != p->bytes || p->maps)
        return CUDA_ERROR_NOT_SUPPORTED; /* as the project uses it: one handle, one mapping */
    p->at = at;
    p->maps++;
    return CUDA_SUCCESS;
}
static CUresult unmap(CUdeviceptr at, size_t bytes)
{
    (void)pthread_mutex_lock(&lock);
    for (struct piece *p = pieces, *next; p; p = next) {
        next = p->next;
        if (!p->maps || p->at < at || p->at + p->bytes > at + bytes) continue;
        arena_shut((void *)(uintptr_t)p->at, p->bytes);
        p->maps--;
        drop(p);
    }
    (void)pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
    (void)n;
    return arena_open((void *)(uintptr_t)at, bytes, access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

bool driver_pointer(uint64_t at, bool *host)
{
    bool found = false;
    (void)pthread_mutex_lock(&lock);
    for (const struct piece *p = pieces; p && !found; p = p->next)
        if (p->maps && at - p->at < p->bytes) found = true, *host = p->host;
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static CUresult pointer_attribute(void *out, CUpointer_attribute attribute, CUdeviceptr at)
{
    struct cudaPointerAttributes a;
    if (attribute != CU_POINTER_ATTRIBUTE_IS_MANAGED ||
        cudaPointerGetAttributes(&a, (const void *)(uintptr_t)at) != cudaSuccess)
        return CUDA_ERROR_INVALID_VALUE;
    *(unsigned *)out = a.type == cudaMemoryTypeManaged;
    return CUDA_SUCCESS;
}
static CUresult error_name(CUresult code, const char **out)
{
    *out = code == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
           : code == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
           : code == CUDA_ERROR_NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED"
                                              : "CUDA_SUCCESS";
    return CUDA_SUCCESS;
}
static CUresult error_text(CUresult code, const char **out)
{
    *out = cudaGetErrorString((cudaError_t)code); /* the enumerations agree */
    return CUDA_SUCCESS;
}

void *driver_entry(const char *symbol)
{
    static const struct {
        const char *name;
        void *function;
    } entries[] = {
        { "cuMemGetAllocationGranularity", (void *)granularity },
        { "cuMemCreate", (void *)create },
        { "cuMemRelease", (void *)release },
        { "cuMemAddressReserve", (void *)reserve },
        { "cuMemAddressFree", (void *)unreserve },
        { "cuMemMap", (void *)map },
        { "cuMemUnmap", (void *)unmap },
        { "cuMemSetAccess", (void *)set_access },
        { "cuPointerGetAttribute", (void *)pointer_attribute },
        { "cuGetErrorName", (void *)error_name },
        { "cuGetErrorString", (void *)error_text },
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (!strcmp(entries[i].name, symbol)) return entries[i].function;
    return NULL;
}
