/* quant-mxfp4/cuda/product_nvfp4.cu: products of NVFP4. */
#include <worker/cuda/product.cuh>

#include "nvfp4.cuh"

WK_PRODUCT_FAMILY(quant_nvfp4, nvfp4);
