/* quant-iq4/cuda/product_iq4_xs.cu: products of IQ4_XS. */
#include <worker/cuda/product.cuh>

#include "iq4_xs.cuh"

WK_PRODUCT_FAMILY(quant_iq4_xs, iq4_xs);
