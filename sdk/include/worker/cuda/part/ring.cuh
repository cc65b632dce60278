/* worker/cuda/part/ring.cuh: the pipeline of a block: a ring of stages in shared memory. */
#ifndef WORKER_CUDA_PART_RING_CUH
#define WORKER_CUDA_PART_RING_CUH

#include <stdint.h>

#include <worker/cuda/part/arguments.cuh>

enum {
    WK_STAGE_BYTES = 3072, /* most bytes of a warp's part of a stage, where a step can be cut */
    WK_WARP_DEPTH = 8      /* most stages of a warp's own ring */
};

/* Barriers of a block, in shared memory: of at most STAGES stages and SUMS places of sums. */
template <uint32_t STAGES, uint32_t SUMS> struct wk_pipeline_bars {
    uint32_t at;
    __device__ __forceinline__ uint32_t full(uint32_t stage) const { return at + stage * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t stage) const { return at + (STAGES + stage) * 8; }
    __device__ __forceinline__ uint32_t summed(uint32_t i) const { return at + (2 * STAGES + i) * 8; }
    __device__ __forceinline__ uint32_t finished(uint32_t i) const { return at + (2 * STAGES + SUMS + i) * 8; }
};
/* A place in a ring of barriers: which one, and what its parity is when it is done. A wait with parity 1 for what was
 * never in use does not wait. */
struct wk_turn {
    uint32_t i, parity;
    __device__ __forceinline__ void next(uint32_t n)
    {
        if (++i == n) {
            i = 0;
            parity ^= 1u;
        }
    }
};

/* The warp's place in its ring. Args: depth, stages; stage_bytes, of one. */
struct wk_warp_ring {
    uint32_t at, bar, left, parity;
    uint32_t start, bars;
    template <class Args> __device__ __forceinline__ void begin(const Args &a)
    {
        at = start;
        bar = bars;
        left = a.depth;
    }
    template <class Args> __device__ __forceinline__ void next(const Args &a)
    {
        at += a.stage_bytes;
        bar += 8;
        if (--left == 0) {
            begin(a);
            parity ^= 1u;
        }
    }
};

#endif
