/* quant-iq/cuda/product_iq1_m.cu: products of IQ1_M. */
#include <worker/cuda/product.cuh>

#include "iq1.cuh"

WK_PRODUCT_FAMILY(quant_iq1_m, iq1_m);
