/* products.cu: the format's products: all kernels, those of prompts and of each GPU's own instructions, by one line. */
#include <worker/cuda/product.cuh>

#include "format.cuh"

WK_PRODUCT_FAMILY(format_family, format);
