/* worker/cuda/part/launch.cuh: programmatic dependent launch: what a kernel does before it waits for the previous
 * kernel. */
#ifndef WORKER_CUDA_PART_LAUNCH_CUH
#define WORKER_CUDA_PART_LAUNCH_CUH

#include <stdint.h>

#include <worker/cuda/image.cuh>

/* Programmatic dependent launch: no-ops before sm_90. Rules: before wk_depend a kernel reads weights, constants and
 * what was finished before the preceding launch began, and writes nothing; every block of every kernel calls wk_depend,
 * also one without work. */
__device__ __forceinline__ void wk_depend()
{
#if WK_HAS_PDL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void wk_release()
{
#if WK_HAS_PDL
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/* What `bits` are made of is at hand when this is passed: the compiler would put it off to behind the wait that
 * follows, but for an instruction that needs it. */
__device__ __forceinline__ void wk_at_hand(uint32_t bits)
{
    if (bits == 0xfffffff1u) wk_release(); /* almost never, and then it does no harm */
}

/* x, computed here and not where it is used: before a wait. */
__device__ __forceinline__ uint64_t wk_now(uint64_t x)
{
    asm volatile("" : "+l"(x));
    wk_at_hand((uint32_t)x);
    return x;
}

#endif
