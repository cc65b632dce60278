/* memory.h: the device's memory and its context: opened, counted, filled, sealed, verified, watched.
 *
 *   context.c    preflight, the context, streams, errors that end it     memory.c     regions of device memory, small
 *                pinned host memory
 *   upload.c     the file into the weights' region, and its digest        seal.c       read-only weights, the digest
 *                again from the device
 *   residency.c  what lies behind every byte
 *
 * All device memory of a process is taken here, before `ready`, in regions of one kind each (VMM: cuMemCreate +
 * cuMemMap), so that what was planned is what is used. Errors that end the context are recognised here: after one,
 * every call answers with its text and the device is dead; the process has to end. [engine thread] unless said
 * otherwise.
 *
 * A module of its own: nothing here writes log lines (the program's log is not this module's copy of it); what is to
 * be said is in the texts. */
#ifndef CORE_DEVICE_CUDA_MEMORY_H
#define CORE_DEVICE_CUDA_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/quant_cuda.h>

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_device; /* context, streams, regions, counters */
struct gguf;
struct tape_tensor;

/* device_ops.probe, .warm, .device_memory and .dead. */
wk_status cuda_probe(uint32_t gpu, struct device_info *out, const struct wk_err *err);
void cuda_warm(uint32_t gpu);
wk_status cuda_device_memory(uint32_t gpu, struct device_memory *out, const struct wk_err *err);
bool cuda_dead(void);

/* GPU `gpu`, probed, with a context of its own. While the context is made, other threads already read `file` (NULL:
 * none) into the page cache and begin its digest. At most one device is open in a process. */
wk_status cuda_device_open(uint32_t gpu, const struct gguf *file, struct cuda_device **out, const struct wk_err *err);
void cuda_device_close(struct cuda_device *d); /* frees everything; NULL allowed; touches nothing on a dead device */
/* Before memory is taken: the KV cache is to be memory that other processes can be given, where that is possible. */
void cuda_device_share(struct cuda_device *d);
/* Once there is a context: the compute capability (80: 8.0) of the PTX that the driver compiled this module's kernels
 * from; 0: the module has machine code for the device. */
wk_status cuda_image_ptx(uint32_t *compute, const struct wk_err *err);
void *cuda_device_stream(const struct cuda_device *d); /* the one stream on which steps run */
const struct device_info *cuda_device_info(const struct cuda_device *d);

/* Device memory of one kind, 2 MiB aligned, zeroed; granules of 2 MiB, counted as asked for (bytes). WK_NO_MEMORY names
 * required, available and device. MEMORY_WEIGHTS is what cuda_seal makes read-only: only what the upload fills may lie
 * in it. */
wk_status cuda_memory_take(struct cuda_device *d, enum memory_kind kind, uint64_t bytes, void **out,
                           const struct wk_err *err);
/* Pinned host memory that the device sees (results) or copies from (step inputs): small, counted, freed with the
 * device. */
wk_status cuda_memory_pinned(struct cuda_device *d, uint64_t bytes, void **host, void **device,
                             const struct wk_err *err);
/* The region of the KV cache as a file descriptor, which is the caller's, and its bytes. WK_UNSUPPORTED: it cannot be
 * shared. [any thread] */
wk_status cuda_memory_export(struct cuda_device *d, int *fd, uint64_t *bytes, const struct wk_err *err);
/* A region of another process, at *base of this device, for reading. WK_UNSUPPORTED: not on this device. [any thread]
 */
wk_status cuda_memory_import(struct cuda_device *d, int fd, uint64_t bytes, void **base, const struct wk_err *err);
void cuda_memory_forget(struct cuda_device *d, void *base, uint64_t bytes);   /* what was imported */
void cuda_memory_used(const struct cuda_device *d, struct memory_plan *used); /* by kind, as asked for */

/* Status of a CUDA call: WK_OK, or the text "what: cudaErrorName: text". A lack of memory clears itself; a sticky code
 * marks the device dead. Also for what a launch or a plugin's call gave: cuda_check(d, cudaGetLastError(), ...). d may
 * be NULL. */
wk_status cuda_check(struct cuda_device *d, int code, const char *what, const struct wk_err *err);
bool cuda_device_dead(const struct cuda_device *d); /* [any thread] */

/* One run of tiles to be filled from the file: rows [first, first + n) of slab `slab`. */
struct cuda_load {
    const struct tape_tensor *tensor;
    const struct wk_type_cuda *type;
    uint32_t first, n, slab;
    void *tiles; /* device */
};
/* A small vector as F32, dequantized on the host by its type. raw: cuda_vector_raw bytes on the device for the file's
 * own, from which the digest is verified; NULL when that is 0. */
struct cuda_vector {
    const struct tape_tensor *tensor;
    float *device;
    void *raw;
};
uint64_t cuda_vector_raw(const struct tape_tensor *tensor); /* 0: its F32 values are the file's bytes. Pure. */

/* Reads the file through guarded copies of several threads into a ring of pinned staging, sends it on two streams,
 * packs it. The lists are the caller's and stay as they are until the device is closed. Returns when all is resident,
 * and the weights are read-only where the driver takes that. A thread of its own goes on with the digest; where one is
 * demanded, this waits for it. On any failure nothing is sealed. */
struct cuda_upload {
    const struct gguf *file;
    const struct cuda_load *loads;
    uint32_t n_loads;
    const struct cuda_vector *vectors;
    uint32_t n_vectors;
    uint32_t chunk;     /* bytes; 0: the default */
    const char *digest; /* 64 hex digits that the file's bytes must have; NULL: any */
    void (*progress)(void *user, double fraction);
    void *progress_user; /* on the calling thread; NULL: none */
};
wk_status cuda_upload(struct cuda_device *d, const struct cuda_upload *u, const struct wk_err *err);
/* Waits for the digest of the file. From then on the weights are sealed and the file's tensor data are no longer
 * mapped. */
wk_status cuda_seal(struct cuda_device *d, const struct wk_err *err);
/* The handle as far as it is known now: sealed and digest once the digest is there. [any thread] */
void cuda_handle(const struct cuda_device *d, struct shard_handle *out);
/* SHA-256 of the tensors that were uploaded, in file order, read back from device memory and brought into the file's
 * order again. */
wk_status cuda_verify(struct cuda_device *d, char hex[65], const struct wk_err *err);
/* Every mapping of every region: type Device, this device, no host pointer. WK_INTERNAL names the first that is not. */
wk_status cuda_residency(struct cuda_device *d, const struct wk_err *err);
/* The same for any range of addresses. */
wk_status cuda_residency_range(struct cuda_device *d, const void *base, uint64_t bytes, const char *what,
                               const struct wk_err *err);

/* bandwidth.cu: bytes a second that reading alone reaches, the best of several passes over memory much larger than the
 * caches, or as much as is free. */
wk_status cuda_bandwidth(struct cuda_device *d, double *out, const struct wk_err *err);

#ifdef __cplusplus
}
#endif
#endif
