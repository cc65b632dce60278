/* quant-iq4/cuda/product_iq4_nl.cu: products of IQ4_NL. */
#include <worker/cuda/product.cuh>

#include "iq4_nl.cuh"

WK_PRODUCT_FAMILY(quant_iq4_nl, iq4_nl);
