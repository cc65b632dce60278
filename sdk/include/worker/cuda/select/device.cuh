/* worker/cuda/select/device.cuh: the device as the choice of kernels sees it: its sizes, and what it can.
 *
 * The choice reads a description (struct wk_cuda_device) and never asks the driver, so it can be made for a device that
 * is not there. This is the one place where a driver and an image are asked. */
#ifndef WORKER_CUDA_SELECT_DEVICE_CUH
#define WORKER_CUDA_SELECT_DEVICE_CUH

#include <cuda_runtime.h>

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/check.cuh>
#include <worker/quant_cuda.h>

/* Clusters of `blocks` that a device holds at once, with `together` blocks a multiprocessor: the rule where no driver
 * can be asked. A cluster lies within a group of 16 multiprocessors; multiprocessors that are left over are a group,
 * too. */
static inline uint32_t wk_clusters_by_rule(const wk_cuda_device *d, uint32_t blocks, uint32_t together)
{
    return d->processors / 16 * (16 * together / blocks) + d->processors % 16 * together / blocks;
}

static inline wk_status wk_cuda_device_read(int32_t device, wk_cuda_device *d, const struct wk_err *err)
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
    d->struct_size = sizeof *d;
    d->processors = (uint32_t)v[0];
    d->block_bytes = (uint32_t)v[1];
    d->processor_bytes = (uint32_t)v[2];
    d->can = 0;
    if (image.clusters) d->can |= WK_CUDA_CAN_DEPENDENT | WK_CUDA_CAN_BULK;
    if (v[3] != 0 && image.clusters) d->can |= WK_CUDA_CAN_CLUSTERS;
    if (image.wgmma) d->can |= WK_CUDA_CAN_WGMMA;
    return WK_OK;
}

#endif
