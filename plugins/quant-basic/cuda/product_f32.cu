/* quant-basic/cuda/product_f32.cu: products of F32. */
#include <worker/cuda/product.cuh>

#include "plain.cuh"

WK_PRODUCT_FAMILY(quant_basic_f32, f32);
