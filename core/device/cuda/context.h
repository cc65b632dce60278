/* context.h: the inside of an opened CUDA device, shared by the files that memory.h names and by nobody else. */
#ifndef CORE_DEVICE_CUDA_CONTEXT_H
#define CORE_DEVICE_CUDA_CONTEXT_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudaTypedefs.h>

#include "device/cuda/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The driver's own calls, asked of the runtime, so that nothing links libcuda. */
struct cuda_driver {
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 free;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
    PFN_cuPointerGetAttribute_v4000 attribute;
    PFN_cuGetErrorName_v6000 error_name;
    PFN_cuGetErrorString_v6000 error_string;
    /* Of a device whose KV cache is shared; NULL: the driver has none. */
    PFN_cuMemExportToShareableHandle_v10020 export_handle;
    PFN_cuMemImportFromShareableHandle_v10020 import_handle;
    PFN_cuMemRetainAllocationHandle_v11000 retain;
};

/* One allocation behind one range of addresses. */
struct cuda_region {
    enum memory_kind kind;
    uint64_t asked, bytes; /* bytes: whole granules; 0: nothing is mapped */
    CUdeviceptr base;
};

enum { CUDA_MAX_REGIONS = 64, CUDA_MAX_PINNED = 64 };

struct cuda_digest;
struct cuda_prefetch;

struct cuda_device {
    struct device_info info;
    struct cuda_driver driver;
    uint64_t granule;
    cudaStream_t stream;
    struct cuda_region region[CUDA_MAX_REGIONS];
    uint32_t n_regions;
    void *pinned[CUDA_MAX_PINNED];
    uint32_t n_pinned;
    bool write_protected;
    bool shared;                    /* its KV cache can be given to other processes */
    struct cuda_upload upload;      /* as given, for verify; file NULL: nothing was uploaded */
    struct cuda_prefetch *prefetch; /* threads that read ahead; NULL: none */
    struct cuda_digest *digest;     /* thread and result; NULL: none */
};

/* errors.c: the stream of the open device, which cuda_dead asks; NULL: no device is open. */
void cuda_set_live(cudaStream_t stream);
/* errors.c: the same as cuda_check for a call of the driver. */
wk_status cuda_check_driver(struct cuda_device *d, CUresult code, const char *what, const struct wk_err *err);

/* memory.c: a region that is not part of the plan and goes back before the caller returns: staging. */
wk_status cuda_region_map(struct cuda_device *d, enum memory_kind kind, uint64_t bytes, struct cuda_region *out,
                          const struct wk_err *err);
void cuda_region_unmap(struct cuda_device *d, struct cuda_region *r);
void cuda_memory_close(struct cuda_device *d);
uint64_t cuda_memory_taken(void); /* bytes of all regions of this process. [any thread] */

/* memory.c: an address for r->bytes of the device's memory behind `handle`, which lives as long as its mapping. */
wk_status cuda_region_address(struct cuda_device *d, struct cuda_region *r, CUmemGenericAllocationHandle handle,
                              const struct wk_err *err);

/* prefetch.c */
struct cuda_prefetch *cuda_prefetch_begin(
    const struct gguf *file);                    /* NULL: it could not; then the upload reads by itself */
void cuda_prefetch_end(struct cuda_prefetch *p); /* stops and joins; NULL allowed */

/* seal.c: the weights' regions read-only, where the driver takes it: d->write_protected. */
void cuda_write_protect(struct cuda_device *d);
/* seal.c: begins the digest of d->upload in a thread. Afterwards cuda_digest_resident says that the file's data are no
 * longer needed for anything else. */
wk_status cuda_digest_begin(struct cuda_device *d, const struct wk_err *err);
void cuda_digest_resident(struct cuda_device *d);
void cuda_digest_end(struct cuda_device *d); /* stops and joins */

/* seal.c: bytes of a row as it lies in the file. */
uint64_t cuda_row_bytes(const struct tape_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
