/* pages.cu: copies of pages, many small ones a launch: a page lies in as many places as it has layers. A few blocks
 * take them in turn, beside the kernels of steps; each has 16 bytes a thread of a whole copy in flight at once. */
#include "device/cuda/kernels.h"

#include "device/cuda/launch.cuh"

enum { THREADS = 256, AHEAD = CUDA_MOVE_BYTES / 16 / THREADS, BLOCKS = 64 };

static __global__ void __launch_bounds__(THREADS) move_pages(const cuda_move *moves, uint32_t n)
{
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const uint4 *from = (const uint4 *)moves[i].from;
        uint4 *to = (uint4 *)moves[i].to;
        const uint32_t count = (uint32_t)(moves[i].bytes / sizeof(uint4));
        uint4 value[AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            if (threadIdx.x + k * THREADS < count) value[k] = __ldcg(from + threadIdx.x + k * THREADS);
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            if (threadIdx.x + k * THREADS < count) to[threadIdx.x + k * THREADS] = value[k];
    }
}

wk_status cuda_move_pages(const cuda_move *moves, uint32_t n, void *stream, const wk_err *err)
{
    if (!n) return WK_OK;
    return cuda_launch("copy of pages", move_pages, dim3(n < BLOCKS ? n : (uint32_t)BLOCKS), dim3(THREADS), 0, false,
                       stream, err, moves, n);
}
