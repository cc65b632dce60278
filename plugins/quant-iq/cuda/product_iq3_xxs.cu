/* quant-iq/cuda/product_iq3_xxs.cu: products of IQ3_XXS. */
#include <worker/cuda/product.cuh>

#include "iq3.cuh"

WK_PRODUCT_FAMILY(quant_iq3_xxs, iq3_xxs);
