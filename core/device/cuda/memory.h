/* memory.h: the device's memory and its context: opened, counted, filled, sealed, verified, watched.
 *
 * All device memory of a process is taken here, before `ready`, in regions of one kind each (VMM: cuMemCreate + cuMemMap), so that what was
 * planned is what is used. Errors that end the context are recognised here: after one, every call answers with its text and the
 * device is dead; the process has to end. [engine thread] unless said otherwise */
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

/* GPU `index`: driver present, index in range, architecture served, memory as the plan asks: each its own message. */
wk_status cuda_device_open(int32_t index, struct cuda_device **out, const struct wk_err *err);
void cuda_device_close(struct cuda_device *d); /* frees everything; NULL allowed; touches nothing on a dead device */
void *cuda_device_stream(const struct cuda_device *d); /* the one stream on which steps run */

/* Device memory of one kind; zeroed; 2 MiB granules, counted as asked for (bytes) and as taken (granules). WK_NO_MEMORY names required, available
 * and device. */
wk_status cuda_memory_take(struct cuda_device *d, enum memory_kind kind, uint64_t bytes, void **out, const struct wk_err *err);
/* Pinned host memory that the device sees (results) or copies from (step inputs): small, counted, freed with the device. */
wk_status cuda_memory_pinned(struct cuda_device *d, uint64_t bytes, void **host, void **device, const struct wk_err *err);
void cuda_memory_used(const struct cuda_device *d, struct memory_plan *used); /* by kind, as asked for */

/* Status of a CUDA call: WK_OK, or the text "what: cudaErrorName: text". Out of memory clears itself; a sticky code marks the device dead. */
wk_status cuda_check(struct cuda_device *d, int code, const char *what, const struct wk_err *err);
bool cuda_device_dead(const struct cuda_device *d); /* [any thread] */

/* One run of tiles to be filled from the file: rows [first, first + n) of slab `slab`. */
struct cuda_load {
    const struct tape_tensor *tensor;
    const struct wk_type_cuda *type;
    uint32_t first, n, slab;
    void *tiles;                      /* device */
};
/* A small vector as F32, dequantized on the host by its type. */
struct cuda_vector { const struct tape_tensor *tensor; float *device; };
/* Reads the file through guarded copies of several threads into a ring of pinned staging (<= 256 MiB), sends it on two streams, packs it; hashes the
 * tensor bytes in file order beside it. Returns when all is resident. On any failure nothing is sealed. */
struct cuda_upload { const struct gguf *file; const struct cuda_load *loads; uint32_t n_loads; const struct cuda_vector *vectors; uint32_t n_vectors; };
wk_status cuda_upload(struct cuda_device *d, const struct cuda_upload *u, const struct wk_err *err);
/* Makes the weights read-only where the driver allows it. */
wk_status cuda_seal(struct cuda_device *d, const struct wk_err *err);
/* SHA-256 over the tensors' bytes in file order, from device memory, undoing the re-ordering. */
wk_status cuda_verify(struct cuda_device *d, const struct cuda_upload *u, char hex[65], const struct wk_err *err);
/* Every mapping of every region: type Device, this device, no host pointer. */
wk_status cuda_residency(struct cuda_device *d, const struct wk_err *err);

#ifdef __cplusplus
}
#endif
#endif
