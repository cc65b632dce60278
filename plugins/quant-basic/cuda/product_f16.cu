/* quant-basic/cuda/product_f16.cu: products of F16. */
#include <worker/cuda/product.cuh>

#include "plain.cuh"

WK_PRODUCT_FAMILY(quant_basic_f16, f16);
