/* worker/cuda/part/ring.cuh: the pipeline of a block: a ring of stages in shared memory. */
#ifndef WORKER_CUDA_PART_RING_CUH
#define WORKER_CUDA_PART_RING_CUH

#include <stdint.h>

enum {
    WK_STAGE_BYTES = 3072, /* most bytes of a warp's part of a stage, where a K step can be cut */
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
/* The state of a pipeline: which stage of the ring comes next, and what its barrier's parity is when it is done. A wait
 * with parity 1 for what was never in use does not wait. */
struct wk_pipeline_state {
    uint32_t i, parity;
    __device__ __forceinline__ void next(uint32_t n)
    {
        if (++i == n) {
            i = 0;
            parity ^= 1u;
        }
    }
};

/* A warp's place in a ring of its own: addresses of its stage and of the stage's barrier, stages to the ring's end, and
 * the parity of the barrier when the stage is there. start, bars: addresses of the ring's first stage and barrier;
 * apart: bytes from stage to stage. */
struct wk_warp_ring {
    uint32_t at, bar, left, parity;
    __device__ __forceinline__ void begin(uint32_t start, uint32_t bars, uint32_t depth)
    {
        at = start;
        bar = bars;
        left = depth;
    }
    __device__ __forceinline__ void next(uint32_t apart, uint32_t start, uint32_t bars, uint32_t depth)
    {
        at += apart;
        bar += 8;
        if (--left == 0) {
            begin(start, bars, depth);
            parity ^= 1u;
        }
    }
};

#endif
