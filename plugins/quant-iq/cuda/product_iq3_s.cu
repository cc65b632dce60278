/* quant-iq/cuda/product_iq3_s.cu: products of IQ3_S. */
#include <worker/cuda/product.cuh>

#include "iq3.cuh"

WK_PRODUCT_FAMILY(quant_iq3_s, iq3_s);
