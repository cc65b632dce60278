/* quant-iq/product_avx2.c: the products compiled for one instruction set; the host calls them only where it exists. */
#include <worker/cpu/tile_avx2.h>

#include "formats.h"

#define PRODUCT(name) name##_product_avx2
#include "products.h"
