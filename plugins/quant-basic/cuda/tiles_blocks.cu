/* quant-basic/cuda/tiles_blocks.cu: the types of 32 values a block but for products. */
#include <worker/cuda/tiles.cuh>

#include "q4_0.cuh"
#include "q4_1.cuh"
#include "q5_0.cuh"
#include "q5_1.cuh"
#include "q8_0.cuh"

WK_TYPE_CUDA(q8_0_cuda, q8_0);
WK_TYPE_CUDA(q4_0_cuda, q4_0);
WK_TYPE_CUDA(q4_1_cuda, q4_1);
WK_TYPE_CUDA(q5_0_cuda, q5_0);
WK_TYPE_CUDA(q5_1_cuda, q5_1);
