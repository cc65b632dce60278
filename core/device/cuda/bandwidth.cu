/* bandwidth.cu: what this GPU's memory gives to a kernel that only reads: the denominator of decode's speed. */
#include "device/cuda/context.h"
#include "device/cuda/launch.cuh"

enum { THREADS = 512, BLOCKS_AN_SM = 4, PASSES = 8, UNROLL = 8 };

/* The sum is stored where nothing ever is equal, so that no read can be left out. */
__global__ static void __launch_bounds__(THREADS) read_all(const uint4 *x, uint64_t n, uint32_t *never)
{
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;
    uint32_t sum = 0;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; i + (UNROLL - 1) * stride < n; i += UNROLL * stride) {
        uint4 v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) v[u] = __ldcs(x + i + u * stride);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) sum |= v[u].x | v[u].y | v[u].z | v[u].w;
    }
    for (; i < n; i += stride) sum |= x[i].x | x[i].y | x[i].z | x[i].w;
    if (sum) *never = sum; /* the memory is zero */
}

static wk_status passes(struct cuda_device *d, const struct cuda_region *r, cudaEvent_t begin, cudaEvent_t end, double *out, const struct wk_err *err)
{
    uint32_t *never = (uint32_t *)(uintptr_t)r->base;
    const dim3 grid(d->info.multiprocessors * BLOCKS_AN_SM);
    *out = 0;
    for (int i = 0; i < PASSES; i++) {
        float ms = 0;
        wk_status s = cuda_check(d, cudaEventRecord(begin, d->stream), "bandwidth", err);
        if (!s) s = cuda_launch("bandwidth", read_all, grid, dim3(THREADS), 0, false, d->stream, err, (const uint4 *)(uintptr_t)r->base, r->bytes / sizeof(uint4), never);
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
