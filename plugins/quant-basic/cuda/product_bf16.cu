/* quant-basic/cuda/product_bf16.cu: products of BF16. */
#include <worker/cuda/product.cuh>

#include "plain.cuh"

WK_PRODUCT_FAMILY(quant_basic_bf16, bf16);
