/* quant-basic/cuda/large_basic.cu: products of Q8_0 and Q4_0 for experts with many items each. */
#include <worker/cuda/product_large.cuh>

#include "q4_0.cuh"
#include "q8_0.cuh"

WK_LARGE_FAMILY(quant_basic_large, q8_0, q4_0);
