/* quant-mxfp4/cuda/large_mxfp4.cu: products of MXFP4 for experts with many items each. */
#include <worker/cuda/product_large.cuh>

#include "mxfp4.cuh"

WK_LARGE_FAMILY(quant_mxfp4_large, mxfp4);
