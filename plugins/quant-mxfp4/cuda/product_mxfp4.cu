/* quant-mxfp4/cuda/product_mxfp4.cu: products of MXFP4. */
#include <worker/cuda/product.cuh>

#include "mxfp4.cuh"

WK_PRODUCT_FAMILY(quant_mxfp4, mxfp4);
