/* worker/cuda/select/device.cuh: the device as the choice of kernels sees it: its sizes, and what it can.
 *
 * The choice reads this description and never asks the driver, so it can be made for a device that is not there. This
 * is the one place where a driver and an image are asked. */
#ifndef WORKER_CUDA_SELECT_DEVICE_CUH
#define WORKER_CUDA_SELECT_DEVICE_CUH

#include <cuda_runtime.h>

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/check.cuh>

/* Capabilities that kernels need (image.cuh): the device and the code that runs on it have them. */
enum {
    WK_CAN_DEPENDENT = 1u << 0, /* launches that begin before the previous kernel has ended */
    WK_CAN_BULK = 1u << 1,      /* bulk copies, whose bytes a barrier counts */
    WK_CAN_CLUSTERS = 1u << 2,  /* clusters: blocks that reach each other's shared memory */
    WK_CAN_WGMMA = 1u << 3      /* wgmma */
};

struct wk_product_device {
    uint32_t processors;      /* multiprocessors */
    uint32_t block_bytes;     /* most shared memory of a block */
    uint32_t processor_bytes; /* shared memory of a multiprocessor */
    uint32_t can;             /* WK_CAN_* */
};

/* Clusters of `blocks` that a device holds at once, with `together` blocks a multiprocessor: the rule where no driver
 * can be asked. A cluster lies within a group of 16 multiprocessors; multiprocessors that are left over are a group,
 * too. */
static inline uint32_t wk_clusters_by_rule(const wk_product_device *d, uint32_t blocks, uint32_t together)
{
    return d->processors / 16 * (16 * together / blocks) + d->processors % 16 * together / blocks;
}

static inline wk_status wk_product_device_read(int32_t device, wk_product_device *d, const struct wk_err *err)
{
    int v[4] = { 0, 0, 0, 0 };
    const cudaDeviceAttr attribute[4] = { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                          cudaDevAttrMaxSharedMemoryPerMultiprocessor, cudaDevAttrClusterLaunch };
    struct wk_image image;
    const wk_status known = wk_product_status(wk_image_read(&image), "product: the kernels' image", err);
    if (known) return known;
    for (int i = 0; i < 4; i++) {
        const wk_status status =
            wk_product_status(cudaDeviceGetAttribute(&v[i], attribute[i], device), "product: device attribute", err);
        if (status) return status;
    }
    d->processors = (uint32_t)v[0];
    d->block_bytes = (uint32_t)v[1];
    d->processor_bytes = (uint32_t)v[2];
    d->can = 0;
    if (v[3] != 0 && image.clusters) d->can |= WK_CAN_DEPENDENT | WK_CAN_BULK | WK_CAN_CLUSTERS;
    if (image.wgmma) d->can |= WK_CAN_WGMMA;
    return WK_OK;
}

#endif
