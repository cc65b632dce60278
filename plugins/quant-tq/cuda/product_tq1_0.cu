/* quant-tq/cuda/product_tq1_0.cu: products of TQ1_0. */
#include <worker/cuda/product.cuh>

#include "tq1_0.cuh"

WK_PRODUCT_FAMILY(quant_tq1_0, tq1_0);
