/* worker/arch_cuda.h: the CUDA side of an architecture plugin that has custom operations (worker/arch.h): a second
 * shared object, NAME-cuda.so, beside NAME.so, with one function for each of them. An architecture without custom
 * operations needs none: the worker's kernels run its tape.
 *
 * The interface has a version of its own, that of worker/quant_cuda.h, and needs an exact match. */
#ifndef WORKER_ARCH_CUDA_H
#define WORKER_ARCH_CUDA_H

#include <worker/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device memory, but for params. Rows of F32 numbers, *_stride numbers apart. */
struct wk_custom_cuda_call {
    uint32_t struct_size, n_rows;
    uint32_t n_in, n_tensors;
    const float *in[8]; /* [n_in] */
    uint64_t in_stride[8];
    uint32_t in_width[8];
    const uint32_t *position; /* [n_rows] of each row in its sequence */
    const void *params;       /* [params_bytes] host memory, alive during the call: give them to a kernel by value */
    uint32_t params_bytes, out_width;
    const float *tensor[8]; /* [n_tensors] rows x cols numbers each */
    float *out;
    uint64_t out_stride;
};

/* run enqueues kernels on `stream` (a cudaStream_t) and nothing else: it allocates nothing, waits for nothing, and the
 * same call may be captured in a graph and replayed. All n_rows rows are computed, those of padding as well: no row
 * depends on another. [serialised, any one thread] */
struct wk_custom_cuda {
    const char *name; /* that of struct wk_custom_def; static */
    wk_status (*run)(const struct wk_custom_cuda_call *call, void *stream, const struct wk_err *err);
};

/* The exported struct, WK_ARCH_CUDA_SYMBOL. */
struct wk_arch_cuda {
    uint32_t struct_size, flags; /* flags: 0 */
    const char *id;              /* of the plugin that it belongs to */
    /* Once a device, before anything else; checks that its kernels run there. WK_UNSUPPORTED with the architectures
     * that it was built for. [serialised, any one thread] */
    wk_status (*open)(int32_t device, const struct wk_err *err);
    const struct wk_custom_cuda *customs; /* [n_customs], static */
    uint32_t n_customs, reserved;
};

#define WK_ARCH_CUDA_SYMBOL "worker_arch_cuda_v0"

#ifdef __cplusplus
}
#endif
#endif
