/* quant-iq/cuda/product_iq2_xs.cu: products of IQ2_XS. */
#include <worker/cuda/product.cuh>

#include "iq2.cuh"

WK_PRODUCT_FAMILY(quant_iq2_xs, iq2_xs);
