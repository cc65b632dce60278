/* quant-basic/cuda/product_q8.cu: products of Q8_0, Q5_0 and Q4_0, alone and side by side. */
#include <worker/cuda/product.cuh>

#include "q4_0.cuh"
#include "q5_0.cuh"
#include "q8_0.cuh"

WK_PRODUCT_FAMILY(quant_basic_q8, q8_0, q5_0, q4_0);
