/* quant-q4k/cuda/product_k.cu: products of Q4_K, Q5_K and Q6_K, alone and side by side. */
#include <worker/cuda/product.cuh>

#include "q4_k.cuh"
#include "q5_k.cuh"
#include "q6_k.cuh"

WK_PRODUCT_FAMILY(quant_q4k_k, q4_k, q5_k, q6_k);
