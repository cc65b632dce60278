/* quant-iq/cuda/product_iq1_s.cu: products of IQ1_S. */
#include <worker/cuda/product.cuh>

#include "iq1.cuh"

WK_PRODUCT_FAMILY(quant_iq1_s, iq1_s);
