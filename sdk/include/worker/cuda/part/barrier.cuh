/* worker/cuda/part/barrier.cuh: barriers in shared memory (mbarrier), at which warps and copies arrive. */
#ifndef WORKER_CUDA_PART_BARRIER_CUH
#define WORKER_CUDA_PART_BARRIER_CUH

#include <stdint.h>

#include <worker/cuda/image.cuh>

/* Until the stage of this parity (0: the first use) has arrived; then what it brought is visible to the lane. An image
 * for 8.x has no wait that gives the processor to other warps: it looks, and sleeps some nanoseconds before it looks
 * again, else the warps that wait would take the turns of the one that copies. */
__device__ __forceinline__ void wk_stage_wait(uint32_t bar, uint32_t parity)
{
    uint32_t done;
#if WK_HAS_BULK_COPIES
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (!done);
#else
    do { /* the sleep is in the block of the look: two blocks would cost registers, which attention spills */
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; @!p nanosleep.u32 20;"
                     " selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (!done);
#endif
}

#if WK_HAS_BULK_COPIES
enum { WK_BAR_COPIES = 1 }; /* arrivals of a warp's copy */
#else
enum { WK_BAR_COPIES = 32 };
#endif
__device__ __forceinline__ void wk_bar_init(uint32_t bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void wk_bar_init_done()
{
#if WK_HAS_BULK_COPIES
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void wk_bar_arrive(uint32_t bar)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(bar) : "memory");
}

/* A warp's arrival, once it has met: one lane's, since what the others wrote before they met is ordered with it.
 * compute-sanitizer's racecheck follows the lane that arrives alone, and reports the rest as races; so with
 * WK_RACECHECK (cmake -D CMAKE_CUDA_FLAGS=-DWK_RACECHECK) all lanes arrive, and what is then reported is one. */
#ifdef WK_RACECHECK
enum { WK_BAR_WARP = 32 }; /* arrivals */
#else
enum { WK_BAR_WARP = 1 };
#endif
__device__ __forceinline__ void wk_bar_arrive_warp(uint32_t bar, uint32_t lane)
{
    if (lane < WK_BAR_WARP) wk_bar_arrive(bar);
}
/* The same at n barriers that lie one after the other. */
__device__ __forceinline__ void wk_bar_arrive_warp(uint32_t bar, uint32_t n, uint32_t lane)
{
    if (WK_BAR_WARP == 1) {
        if (lane < n) wk_bar_arrive(bar + lane * 8);
    } else {
        for (uint32_t i = 0; i < n; i++) wk_bar_arrive(bar + i * 8);
    }
}

/* Bulk copies of `bytes` bytes (a multiple of 16) will arrive at the barrier, and one lane arrives. */
__device__ __forceinline__ void wk_bar_expect(uint32_t bar, uint32_t bytes)
{
#if WK_HAS_BULK_COPIES
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
#endif
}

#endif
