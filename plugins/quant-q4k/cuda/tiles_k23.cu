/* quant-q4k/cuda/tiles_k23.cu: Q2_K and Q3_K but for products. */
#include <worker/cuda/tiles.cuh>

#include "q2_k.cuh"
#include "q3_k.cuh"

WK_TYPE_CUDA(q2_k_cuda, q2_k);
WK_TYPE_CUDA(q3_k_cuda, q3_k);
