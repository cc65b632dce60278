/* worker/cuda/image.cuh: what the code that the device runs was compiled for.
 *
 * A fat binary has code for several architectures, and the driver takes the one that suits the device; PTX of an older
 * architecture is assembled for a newer device. So a device may have clusters or wgmma while the code that runs on it
 * does not use them. Who chooses kernels therefore asks the code, by wk_image_read, and never the device alone. */
#ifndef WORKER_CUDA_IMAGE_CUH
#define WORKER_CUDA_IMAGE_CUH

#include <cuda_runtime.h>

#include <worker/abi.h>

/* In device code: what this pass of the compiler may use. 9.0 and later: launches that begin before the previous kernel
 * has ended; bulk copies, whose bytes a barrier in shared memory counts; clusters, whose blocks reach each other's
 * shared memory. 9.0a alone: wgmma. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define WK_HAS_PDL 1
#define WK_HAS_BULK_COPIES 1
#define WK_HAS_CLUSTERS 1
#else
#define WK_HAS_PDL 0
#define WK_HAS_BULK_COPIES 0
#define WK_HAS_CLUSTERS 0
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WK_HAS_WGMMA 1
#else
#define WK_HAS_WGMMA 0
#endif

/* Shared memory that a block may have on every GPU that is served: 8.6, 8.9 and 12.x have no more. A kernel of a fixed
 * size asserts that it needs no more; others read the device's limit. */
enum { WK_LEAST_BLOCK_BYTES = 99 * 1024 };

/* Is this file compiled for an architecture from `least` to `most`? Kernels that need clusters or wgmma are compiled
 * for those architectures alone, in files of their own (kernel_set.cuh): who calls them asks first whether the build
 * has them. A compiler that does not tell counts as one that does. */
constexpr bool wk_built_between(int least, int most)
{
#if defined(__CUDA_ARCH_LIST__)
    constexpr int architectures[] = { __CUDA_ARCH_LIST__ };
    for (int a : architectures)
        if (a >= least && a <= most) return true;
    return false;
#else
    return true;
#endif
}
constexpr bool wk_built_for_8x() { return wk_built_between(800, 899); }
constexpr bool wk_built_for_clusters() { return wk_built_between(900, 9999); }
constexpr bool wk_built_for_wgmma() { return wk_built_between(900, 900); }

/* Never launched. Its attributes tell the image: the architecture, and by the threads of a block whether it has wgmma
 * (9.0 without the a has not). */
enum { WK_PROBE_WGMMA = 96, WK_PROBE_PLAIN = 32 };
template <int = 0>
static __global__ void __launch_bounds__(WK_HAS_WGMMA ? WK_PROBE_WGMMA : WK_PROBE_PLAIN) wk_image_probe()
{
}

struct wk_image {
    uint32_t compute; /* capability that the code was compiled for: 80, 86, 90 */
    bool clusters;    /* its kernels share memory of a cluster and copy in bulk (sm_90 on) */
    bool wgmma;       /* its kernels of wgmma are there (sm_90a) */
    bool ptx;         /* the driver compiled it from PTX of `compute`, for a device of a later capability */
};

/* Of the current device. All files of a module are compiled for the same architectures, so one may ask for all.
 * cudaErrorNoKernelImageForDevice: there is no code for this device. */
static inline cudaError_t wk_image_read(struct wk_image *image)
{
    struct cudaFuncAttributes attributes;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, (const void *)wk_image_probe<0>);
    *image = {};
    if (code != cudaSuccess) return code;
    image->compute = (uint32_t)attributes.ptxVersion;
    image->clusters = attributes.ptxVersion >= 90;
    image->wgmma = attributes.maxThreadsPerBlock == WK_PROBE_WGMMA;
    /* nvcc makes each image from PTX of its own architecture; the driver makes code for the device from older PTX. An
     * image that runs on a later device, as 8.0's does on 8.6, keeps its own number. */
    image->ptx = attributes.binaryVersion != attributes.ptxVersion;
    return cudaSuccess;
}

#endif
