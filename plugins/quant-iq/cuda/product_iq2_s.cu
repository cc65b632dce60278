/* quant-iq/cuda/product_iq2_s.cu: products of IQ2_S. */
#include <worker/cuda/product.cuh>

#include "iq2.cuh"

WK_PRODUCT_FAMILY(quant_iq2_s, iq2_s);
