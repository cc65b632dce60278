/* read_all.cuh: a kernel that reads memory and does nothing else: how fast that goes is what decode is measured by, in
 * the worker and in benchmarks. */
#ifndef WORKER_CUDA_READ_ALL_CUH
#define WORKER_CUDA_READ_ALL_CUH

#include <stdint.h>

enum { READ_ALL_THREADS = 512, READ_ALL_BLOCKS = 4 /* a multiprocessor */ };

/* x[n] is all zeros. *never is written where it is not, so that no read can be left out. */
__global__ static void __launch_bounds__(READ_ALL_THREADS) read_all(const uint4 *x, uint64_t n, uint32_t *never)
{
    enum { UNROLL = 8 };
    const uint64_t stride = (uint64_t)gridDim.x * READ_ALL_THREADS;
    uint32_t any = 0;
    uint64_t i = (uint64_t)blockIdx.x * READ_ALL_THREADS + threadIdx.x;
    for (; i + (UNROLL - 1) * stride < n; i += UNROLL * stride) {
        uint4 v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) v[u] = __ldcs(x + i + u * stride);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) any |= v[u].x | v[u].y | v[u].z | v[u].w;
    }
    for (; i < n; i += stride) any |= x[i].x | x[i].y | x[i].z | x[i].w;
    if (any) *never = any;
}

#endif
