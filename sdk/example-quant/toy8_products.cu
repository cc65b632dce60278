/* toy8_products.cu: toy8's products. */
#include <worker/cuda/product.cuh>

#include "toy8.cuh"

WK_PRODUCT_FAMILY(toy8_family, toy8);
