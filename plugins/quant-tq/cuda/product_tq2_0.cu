/* quant-tq/cuda/product_tq2_0.cu: products of TQ2_0. */
#include <worker/cuda/product.cuh>

#include "tq2_0.cuh"

WK_PRODUCT_FAMILY(quant_tq2_0, tq2_0);
