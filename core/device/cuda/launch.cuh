/* launch.cuh: how every kernel of this room is launched: with programmatic dependence when asked for, and with the
 * launch's own error as text. */
#ifndef CORE_DEVICE_CUDA_LAUNCH_CUH
#define CORE_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include <worker/abi.h>
#include <worker/cuda/image.cuh>
#include <worker/cuda/part/launch.cuh>

/* Text "what: cudaErrorName: text"; WK_NO_MEMORY for a lack of memory, else WK_INTERNAL. */
wk_status cuda_status(cudaError_t code, const char *what, const struct wk_err *err);

/* What the code that the current device runs has: clusters, wgmma. Never ask the device alone (worker/cuda/image.cuh).
 * Threads: any; one device a process. */
wk_status cuda_image(struct wk_image *image, const struct wk_err *err);

/* cluster: blocks next to each other in x that may write each other's shared memory; 1: none. */
template <class... Params, class... Args>
static wk_status cuda_launch_clusters(const char *what, void (*kernel)(Params...), dim3 grid, uint32_t cluster,
                                      dim3 block, size_t shared, bool pdl, void *stream, const struct wk_err *err,
                                      Args... args)
{
    /* One division of L1 and shared memory for all: a multiprocessor changes it only when empty, and then no launch
     * overlaps the one before. */
    cudaLaunchAttribute attributes[3] = {};
    cudaLaunchConfig_t config = {};
    attributes[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    config.numAttrs = 1;
    if (pdl) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = cluster;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        config.numAttrs++;
    }
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = (cudaStream_t)stream;
    config.attrs = attributes;
    return cuda_status(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), what, err);
}

template <class... Params, class... Args>
static wk_status cuda_launch(const char *what, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
                             bool pdl, void *stream, const struct wk_err *err, Args... args)
{
    return cuda_launch_clusters(what, kernel, grid, 1, block, shared, pdl, stream, err, args...);
}

#endif
