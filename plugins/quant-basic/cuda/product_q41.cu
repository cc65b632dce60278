/* quant-basic/cuda/product_q41.cu: products of Q4_1 and Q5_1, alone and side by side. */
#include <worker/cuda/product.cuh>

#include "q4_1.cuh"
#include "q5_1.cuh"

WK_PRODUCT_FAMILY(quant_basic_q41, q4_1, q5_1);
