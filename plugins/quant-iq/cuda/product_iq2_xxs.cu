/* quant-iq/cuda/product_iq2_xxs.cu: products of IQ2_XXS. */
#include <worker/cuda/product.cuh>

#include "iq2.cuh"

WK_PRODUCT_FAMILY(quant_iq2_xxs, iq2_xxs);
