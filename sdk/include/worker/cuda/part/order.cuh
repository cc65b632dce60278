/* worker/cuda/part/order.cuh: the order in which products add: K slices, and the tree over them (part/weights.cuh).
 */
#ifndef WORKER_CUDA_PART_ORDER_CUH
#define WORKER_CUDA_PART_ORDER_CUH

#include <stdint.h>

enum { WK_K_SLICES = 8 }; /* of k */

/* The K slices as the tree of part/weights.cuh has them: leaf i is K slice i with its bits turned about. */
__host__ __device__ constexpr uint32_t wk_leaf_k_slice(uint32_t leaf)
{
    return (leaf & 1u) << 2 | (leaf & 2u) | leaf >> 2;
}
__host__ __device__ constexpr uint32_t wk_log2(uint32_t x) { return x > 1 ? 1 + wk_log2(x / 2) : 0; }
__device__ __forceinline__ float wk_k_slices_sum(const float s[8])
{
    return __fadd_rn(__fadd_rn(__fadd_rn(s[0], s[4]), __fadd_rn(s[2], s[6])),
                     __fadd_rn(__fadd_rn(s[1], s[5]), __fadd_rn(s[3], s[7])));
}

#endif
