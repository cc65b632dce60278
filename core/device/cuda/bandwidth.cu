/* bandwidth.cu: what this GPU's memory gives to a kernel that only reads: the denominator of decode's speed. */
#include "device/cuda/context.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/read_all.cuh"

enum { PASSES = 8 };

static wk_status passes(struct cuda_device *d, const struct cuda_region *r, cudaEvent_t begin, cudaEvent_t end,
                        double *out, const struct wk_err *err)
{
    uint32_t *never = (uint32_t *)(uintptr_t)r->base;
    const dim3 grid(d->info.multiprocessors * READ_ALL_BLOCKS);
    *out = 0;
    for (int i = 0; i < PASSES; i++) {
        float ms = 0;
        wk_status s = cuda_check(d, cudaEventRecord(begin, d->stream), "bandwidth", err);
        if (!s)
            s = cuda_launch("bandwidth", read_all, grid, dim3(READ_ALL_THREADS), 0, false, d->stream, err,
                            (const uint4 *)(uintptr_t)r->base, r->bytes / sizeof(uint4), never);
        if (!s) s = cuda_check(d, cudaEventRecord(end, d->stream), "bandwidth", err);
        if (!s) s = cuda_check(d, cudaEventSynchronize(end), "bandwidth", err);
        if (!s) s = cuda_check(d, cudaEventElapsedTime(&ms, begin, end), "bandwidth", err);
        if (s) return s;
        const double rate = (double)r->bytes / (ms * 1e-3);
        if (i && rate > *out) *out = rate; /* the first wakes the clocks */
    }
    return WK_OK;
}

wk_status cuda_bandwidth(struct cuda_device *d, double *out, const struct wk_err *err)
{
    const uint64_t most = (uint64_t)8 << 30;
    struct device_memory m;
    struct cuda_region r = {};
    cudaEvent_t begin = nullptr, end = nullptr;
    *out = 0;
    wk_status s = cuda_device_memory(d->info.index, &m, err);
    if (s) return s;
    s = cuda_region_map(d, MEMORY_WORKSPACE, m.free / 2 < most ? m.free / 2 : most, &r, err);
    if (!s) s = cuda_check(d, cudaEventCreate(&begin), "bandwidth", err);
    if (!s) s = cuda_check(d, cudaEventCreate(&end), "bandwidth", err);
    if (!s) s = passes(d, &r, begin, end, out, err);
    if (begin) (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
    cuda_region_unmap(d, &r);
    return s;
}
