/* quant-q4k/cuda/large_k.cu: products of Q4_K, Q5_K and Q6_K for experts with many items each. */
#include <worker/cuda/product_large.cuh>

#include "q4_k.cuh"
#include "q5_k.cuh"
#include "q6_k.cuh"

WK_LARGE_FAMILY(quant_q4k_large, q4_k, q5_k, q6_k);
