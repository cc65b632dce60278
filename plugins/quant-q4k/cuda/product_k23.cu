/* quant-q4k/cuda/product_k23.cu: products of Q2_K and Q3_K, alone and side by side. */
#include <worker/cuda/product.cuh>

#include "q2_k.cuh"
#include "q3_k.cuh"

WK_PRODUCT_FAMILY(quant_q4k_k23, q2_k, q3_k);
